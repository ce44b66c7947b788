//! Limits the kernel time for attaching if very many interfaces appear at once.
//!
//! To attach a program to a TCX hook, or to detach it, the kernel holds its configuration lock (rtnl) for an RCU grace
//! period: some ten milliseconds, in which no other process can change the network configuration. To attach a filter at
//! the classic tc hook takes some ten microseconds. So weir chooses TCX on its own only for a few interfaces. See
//! `docs/COSTS.md` for figures.

use std::time::Duration;

use weir_config::limits::TCX_MAX;

/// After a burst, weir may attach one more TCX program in this time.
const TCX_EVERY: Duration = Duration::from_secs(1);
/// How long weir attaches and detaches without a break, ...
const SLICE: Duration = Duration::from_millis(50);
/// ... and how long the break is, in which other processes can use the kernel's lock.
const REST: Duration = Duration::from_millis(50);

/// Decides if weir may choose TCX on its own.
#[derive(Debug)]
pub struct TcxBudget {
    left: usize,
    since: Duration,
    /// True if the last plan had too many interfaces.
    is_exceeded: bool,
}

impl TcxBudget {
    /// A full budget at this time.
    pub const fn new(now: Duration) -> Self {
        Self { left: TCX_MAX, since: now, is_exceeded: false }
    }

    /// Plans to attach `more` directions at once, in addition to the `held` ones that are at a tc hook.
    pub fn plan(&mut self, now: Duration, held: usize, more: usize) {
        let passed = now.saturating_sub(self.since).as_secs() / TCX_EVERY.as_secs();
        self.since += TCX_EVERY * passed as u32;
        self.left = TCX_MAX.min(self.left.saturating_add(passed as usize));
        self.is_exceeded = held + more > TCX_MAX || more > self.left;
    }

    /// Returns true if the last plan avoids TCX.
    pub const fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Notes that this many directions were attached.
    pub const fn spend(&mut self, attached: usize) {
        self.left = self.left.saturating_sub(attached);
    }
}

/// When the thread attaches and detaches, and when it makes a break for others.
#[derive(Debug)]
pub struct Pace {
    works: bool,
    until: Duration,
}

impl Pace {
    /// Creates a pace that allows work to begin now.
    pub const fn new(now: Duration) -> Self {
        Self { works: false, until: now }
    }

    /// How long the caller, which has work to do, must wait from now on.
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

    fn allows(budget: &mut TcxBudget, now: Duration, held: usize, more: usize) -> bool {
        budget.plan(now, held, more);
        !budget.is_exceeded()
    }

    #[test]
    fn a_few_interfaces_get_tcx_and_many_do_not() {
        let budget = &mut TcxBudget::new(s(100));
        assert!(allows(budget, s(100), 0, TCX_MAX) && allows(budget, s(100), TCX_MAX, 0));
        assert!(!allows(budget, s(100), 0, TCX_MAX + 1));
        assert!(!allows(budget, s(100), TCX_MAX - 3, 4), "too many in all");
    }

    #[test]
    fn interfaces_that_come_and_go_do_not_get_tcx_forever() {
        let budget = &mut TcxBudget::new(s(100));
        budget.spend(TCX_MAX - 2);
        assert!(allows(budget, s(100), 2, 2) && !allows(budget, s(100), 2, 3));
        budget.spend(2);
        assert!(!allows(budget, s(100), 0, 1) && !allows(budget, s(100), 0, 1));
        assert!(allows(budget, s(101), 0, 1) && !allows(budget, s(101), 0, 2), "one a second");
        budget.spend(1);
        assert!(allows(budget, s(104), 0, 3) && !allows(budget, s(104), 0, 4));
        assert!(
            allows(budget, s(1_000), 0, TCX_MAX) && !allows(budget, s(1_000), 0, TCX_MAX + 1),
            "the budget has a limit"
        );
    }

    #[test]
    fn work_and_rest_take_turns() {
        let at = Duration::from_millis;
        let mut pace = Pace::new(at(1_000));
        let rests = [1_000, 1_049, 1_050, 1_060, 1_100, 1_149, 1_150, 1_400].map(|now| pace.rest(at(now)));
        assert_eq!(rests, [0, 0, 50, 40, 0, 0, 50, 0].map(at), "after a long time without work, work begins at once");
    }
}
