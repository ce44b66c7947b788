//! Remembers which reports a sink has refused, and decides when a refusal is final.
//!
//! A sink with the wrong address refuses everything, and that must cost no report. So a report that is refused for the
//! first time is held back, and those behind it are tried. Once a report has been accepted, all that were refused
//! before are tried once more, and those that are refused again are refused for good. One accepted report counts for
//! all of them: if the sink refuses half of the reports and all tombstones, it accepts fewer reports than it refuses.

use std::collections::BTreeSet;

/// After a report was accepted, this many refusals follow without a pause, which is enough to keep up with a sink that
/// accepts one report in some hundreds. At most this many are held back, which takes some ten KiB.
const REFUSALS_MAX: usize = 1000;

/// Reports that were refused and may still be accepted, by their place in line.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Refused since the last report was accepted.
    held_back: BTreeSet<u64>,
    /// Reports that were refused before the last report was accepted. They are tried again.
    once_more: BTreeSet<u64>,
    /// This many refusals may follow without a pause.
    left: usize,
}

impl Refusals {
    /// The places in line that are not tried again until a report is accepted.
    pub const fn held_back(&self) -> &BTreeSet<u64> {
        &self.held_back
    }

    /// Returns true if another attempt may follow a refusal at once. It may not if the sink accepts nothing.
    pub const fn may_go_on(&self) -> bool {
        self.left > 0
    }

    /// The sink has accepted the report or tombstone at this place. Only a report proves that it accepts reports.
    pub fn accepted(&mut self, number: u64, is_report: bool) {
        self.held_back.remove(&number);
        self.once_more.remove(&number);
        if is_report {
            self.once_more.append(&mut self.held_back);
            self.left = REFUSALS_MAX;
        }
    }

    /// The sink refuses the report or tombstone at this place. Returns whether that is final.
    pub fn refused(&mut self, number: u64) -> bool {
        self.left = self.left.saturating_sub(1);
        if self.once_more.remove(&number) {
            return true;
        }
        if self.held_back.len() >= REFUSALS_MAX {
            self.held_back.clear();
        }
        self.held_back.insert(number);
        // Reports that were dropped from the spool meanwhile are never tried again.
        while self.once_more.len() > REFUSALS_MAX {
            self.once_more.pop_first();
        }
        false
    }

    /// Lets everything that waits be tried again.
    pub fn try_all(&mut self) {
        self.held_back.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_final_only_if_a_report_was_accepted_since_the_first() {
        let mut refusals = Refusals::default();
        assert!(!refusals.refused(1) && !refusals.may_go_on());
        refusals.try_all();
        assert!(!refusals.refused(1) && !refusals.refused(2), "nothing was accepted");
        refusals.accepted(3, false);
        refusals.try_all();
        assert!(!refusals.refused(1), "a tombstone proves nothing: reports may still be refused");
        refusals.refused(2);
        refusals.accepted(4, true);
        assert!(refusals.held_back().is_empty() && refusals.refused(1) && refusals.refused(2), "one counts for both");
        assert!(!refusals.refused(5), "it was accepted before this one was tried");
    }

    #[test]
    fn memory_and_attempts_without_a_pause_have_limits() {
        let mut refusals = Refusals::default();
        for number in 0..10_000 {
            if number % 3_000 == 0 {
                refusals.accepted(number, true);
            }
            assert!(!refusals.refused(number));
            assert!(refusals.held_back.len() + refusals.once_more.len() <= 2 * REFUSALS_MAX + 1);
            assert_eq!(refusals.may_go_on(), (number as usize) % 3_000 + 1 < REFUSALS_MAX, "{number}");
        }
    }
}
