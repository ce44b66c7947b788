//! What a sink has refused, and when that is for good.
//!
//! A refusal needs a witness: a sink with the wrong address refuses everything, and that must cost no report. So a
//! report that is refused for the first time is doubted, and those behind it are tried. When a report has passed, all
//! that were doubted before are tried once more, and whatever is refused again is refused for good. One witness serves
//! for all of them: where half of the reports are refused, and each tombstone, too, there would not be one for each.

use std::collections::BTreeSet;

/// After a report has passed, so many refusals follow without a pause: a sink that takes one report in some hundreds
/// is kept up with. It is also how many are doubted at a time, which takes some ten KiB.
const PATIENCE: usize = 1000;

/// What is doubted, by its place in line.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Refused since a report has passed.
    since: BTreeSet<u64>,
    /// Refused before a report has passed: they are tried once more.
    before: BTreeSet<u64>,
    /// So many refusals may follow without a pause.
    patience: usize,
}

impl Doubts {
    /// What is not to be tried before a report has passed.
    pub const fn since(&self) -> &BTreeSet<u64> {
        &self.since
    }

    /// Whether what is refused next is followed by another attempt at once: not if a sink takes nothing.
    pub const fn has_patience(&self) -> bool {
        self.patience > 0
    }

    /// The sink has taken what was at this place. `is_report`: that makes it a witness.
    pub fn delivered(&mut self, number: u64, is_report: bool) {
        self.since.remove(&number);
        self.before.remove(&number);
        if is_report {
            self.before.append(&mut self.since);
            self.patience = PATIENCE;
        }
    }

    /// The sink refuses what is at this place. Returns whether that is for good.
    pub fn refused(&mut self, number: u64) -> bool {
        self.patience = self.patience.saturating_sub(1);
        if self.before.remove(&number) {
            return true;
        }
        if self.since.len() >= PATIENCE {
            self.since.clear();
        }
        self.since.insert(number);
        // What was dropped from the spool meanwhile is never tried again.
        while self.before.len() > PATIENCE {
            self.before.pop_first();
        }
        false
    }

    /// All that waits may be tried once more.
    pub fn begin_anew(&mut self) {
        self.since.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_for_good_only_if_a_report_has_passed_since_the_first() {
        let mut doubts = Doubts::default();
        assert!(!doubts.refused(1) && !doubts.has_patience());
        doubts.begin_anew();
        assert!(!doubts.refused(1) && !doubts.refused(2), "nothing has passed");
        doubts.delivered(3, false);
        doubts.begin_anew();
        assert!(!doubts.refused(1), "a tombstone is no witness: reports may be refused all the same");
        doubts.refused(2);
        doubts.delivered(4, true);
        assert!(doubts.since().is_empty() && doubts.refused(1) && doubts.refused(2), "one is witness for both");
        assert!(!doubts.refused(5), "it has passed before this one was tried");
    }

    #[test]
    fn memory_and_attempts_without_a_pause_have_limits() {
        let mut doubts = Doubts::default();
        for number in 0..10_000 {
            if number % 3_000 == 0 {
                doubts.delivered(number, true);
            }
            assert!(!doubts.refused(number));
            assert!(doubts.since.len() + doubts.before.len() <= 2 * PATIENCE + 1);
            assert_eq!(doubts.has_patience(), (number as usize) % 3_000 + 1 < PATIENCE, "{number}");
        }
    }
}
