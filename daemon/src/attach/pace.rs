//! How much of the kernel's time attaching takes, where very many interfaces come at once.
//!
//! To put a program on a TCX hook, or to take it away, the kernel holds its configuration lock (rtnl) for a grace
//! period of RCU: some ten milliseconds, in which no other program configures anything. A filter at the classic tc hook
//! takes some ten microseconds. So weir chooses TCX by itself for a few interfaces only. (`docs/COSTS.md` has the
//! figures.)

use std::time::Duration;

use crate::config::limits::TCX_MAX;

/// In this time one more may be attached after a moment with many.
const TCX_EVERY: Duration = Duration::from_secs(1);
/// How long weir attaches and detaches at a stretch, ...
const SLICE: Duration = Duration::from_millis(50);
/// ... and how long it rests then, so that others can configure the kernel.
const REST: Duration = Duration::from_millis(50);

/// Whether weir may choose TCX by itself.
#[derive(Debug)]
pub struct TcxBudget {
    left: usize,
    since: Duration,
}

impl TcxBudget {
    /// All of it, from now on.
    pub const fn new(now: Duration) -> Self {
        Self { left: TCX_MAX, since: now }
    }

    /// Whether TCX may be chosen for so many `more` directions at once, beside those that are `held` at a tc hook.
    pub fn allows(&mut self, now: Duration, held: usize, more: usize) -> bool {
        let passed = now.saturating_sub(self.since).as_secs() / TCX_EVERY.as_secs();
        self.since += TCX_EVERY * passed as u32;
        self.left = TCX_MAX.min(self.left.saturating_add(passed as usize));
        held + more <= TCX_MAX && more <= self.left
    }

    /// So many are attached now.
    pub const fn spend(&mut self, attached: usize) {
        self.left = self.left.saturating_sub(attached);
    }
}

/// When the thread attaches and detaches, and when it lets others configure the kernel.
#[derive(Debug)]
pub struct Pace {
    works: bool,
    until: Duration,
}

impl Pace {
    /// It may begin now.
    pub const fn new(now: Duration) -> Self {
        Self { works: false, until: now }
    }

    /// How long to rest from now on. Whoever asks has something to do.
    pub fn rest(&mut self, now: Duration) -> Duration {
        if self.works && now >= self.until {
            (self.works, self.until) = (false, now + REST);
        }
        if !self.works && now >= self.until {
            (self.works, self.until) = (true, now + SLICE);
        }
        if self.works { Duration::ZERO } else { self.until.saturating_sub(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_few_interfaces_get_tcx_and_many_do_not() {
        let mut budget = TcxBudget::new(s(100));
        assert!(budget.allows(s(100), 0, TCX_MAX) && budget.allows(s(100), TCX_MAX, 0));
        assert!(!budget.allows(s(100), 0, TCX_MAX + 1));
        assert!(!budget.allows(s(100), TCX_MAX - 3, 4), "many in all");
    }

    #[test]
    fn interfaces_that_come_and_go_do_not_get_tcx_for_ever() {
        let mut budget = TcxBudget::new(s(100));
        budget.spend(TCX_MAX - 2);
        assert!(budget.allows(s(100), 2, 2) && !budget.allows(s(100), 2, 3));
        budget.spend(2);
        assert!(!budget.allows(s(100), 0, 1) && !budget.allows(s(100), 0, 1));
        assert!(budget.allows(s(101), 0, 1) && !budget.allows(s(101), 0, 2), "one a second");
        budget.spend(1);
        assert!(budget.allows(s(104), 0, 3) && !budget.allows(s(104), 0, 4));
        assert!(budget.allows(s(1_000), 0, TCX_MAX) && !budget.allows(s(1_000), 0, TCX_MAX + 1), "no more than that");
    }

    #[test]
    fn work_and_rest_take_turns() {
        let at = Duration::from_millis;
        let mut pace = Pace::new(at(1_000));
        let rests = [1_000, 1_049, 1_050, 1_060, 1_100, 1_149, 1_150, 1_400].map(|now| pace.rest(at(now)));
        assert_eq!(rests, [0, 0, 50, 40, 0, 0, 50, 0].map(at), "and after a long time without work it begins at once");
    }
}
