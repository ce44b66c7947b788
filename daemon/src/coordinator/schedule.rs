//! When the interfaces are checked, and how long the end of a window waits.

use std::time::Duration;

use weir_system::clock::Moment;

/// All interfaces are checked this often, even without reported changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The minimum time between two checks of all interfaces, however many events arrive.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// How long the end of a window may wait before it begins, at most.
const BRIEF_PATIENCE_MAX: Duration = Duration::from_millis(200);
/// How long the end of a window may wait for a worker, at most.
const PATIENCE_MAX: Duration = Duration::from_secs(2);

/// How long the end of a window waits for workers: the report must be out before the next window ends.
pub fn patience(interval: Duration) -> Duration {
    (interval / 2).min(PATIENCE_MAX)
}

/// How long the end of a window waits for a check of the attachments, or for workers to answer before all shards
/// change: too short to be noticed.
pub fn brief_patience(interval: Duration) -> Duration {
    (interval / 5).min(BRIEF_PATIENCE_MAX)
}

/// The time since the last full second of the wall clock.
pub fn since_second(now: Moment) -> Duration {
    Duration::from_nanos(now.wall.subsec_nanosecond().rem_euclid(1_000_000_000) as u64)
}

/// Knows when the interfaces are checked next.
#[derive(Debug)]
pub struct LookSchedule {
    looked: Duration,
    due: Duration,
}

impl LookSchedule {
    /// A schedule whose first check is due one second after `now`.
    pub fn new(now: Duration) -> Self {
        Self { looked: now, due: now + LOOK_EVERY }
    }

    /// Brings the next check forward, because a change was reported.
    pub fn hear(&mut self) {
        self.due = self.due.min(self.looked + LOOK_PAUSE);
    }

    /// Schedules another check soon.
    pub fn go_on(&mut self, now: Duration) {
        self.due = self.due.min(now + LOOK_PAUSE);
    }

    /// How long until the next check.
    pub const fn left(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// Returns true if a check is due now, and schedules the next one.
    pub fn look(&mut self, now: Duration) -> bool {
        let is_due = now >= self.due;
        if is_due {
            (self.looked, self.due) = (now, now + LOOK_EVERY);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn interfaces_are_looked_at_every_second_without_news() {
        let mut looks = LookSchedule::new(ms(5_000));
        assert_eq!(looks.left(ms(5_400)), ms(600));
        assert!(!looks.look(ms(5_999)) && looks.look(ms(6_100)));
        assert_eq!(looks.left(ms(6_100)), ms(1_000));
    }

    #[test]
    fn a_report_does_not_wait_for_the_next_window() {
        assert_eq!(patience(ms(1_000)), ms(500));
        assert_eq!(patience(ms(3_600_000)), PATIENCE_MAX);
    }

    #[test]
    fn changes_are_checked_at_once_but_not_each_one() {
        let mut looks = LookSchedule::new(ms(0));
        looks.hear();
        assert_eq!(looks.left(ms(500)), Duration::ZERO, "nothing was looked at for half a second");
        assert!(looks.look(ms(500)));
        looks.hear();
        looks.hear();
        assert_eq!((looks.look(ms(549)), looks.left(ms(549))), (false, ms(1)));
        assert!(looks.look(ms(550)) && !looks.look(ms(1_549)) && looks.look(ms(1_550)));
    }
}
