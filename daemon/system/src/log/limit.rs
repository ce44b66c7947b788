//! Limits repeated lines: messages about packets, flapping interfaces, clients or a failing sink must not fill a disk,
//! or hide all other messages.
//!
//! Lines from the same place in the code count as the same message, even if their texts differ. Suppressed lines are
//! counted. The count is logged when the period is over: with the next line of any kind, or when weir ends.

use std::{collections::HashMap, mem, time::Duration};

use tracing::{Level, callsite::Identifier};

/// The most lines of one message in each [`PERIOD`]: some six a second. A router with dozens of interfaces logs a line
/// for each of them when it starts.
pub const LINES_MAX: u32 = 64;
/// The length of a period, which begins with the first line.
const PERIOD: Duration = Duration::from_secs(10);

/// The counts so far, one entry for each place in the code that logs.
#[derive(Debug, Default)]
pub struct Limiter(HashMap<Identifier, Count>);

#[derive(Debug)]
struct Count {
    since: Duration,
    lines: u32,
    left_out: u64,
    level: Level,
    /// The last suppressed message.
    last: String,
}

/// The suppressed lines of one message.
#[derive(Debug, PartialEq, Eq)]
pub struct More {
    /// The level of these lines.
    pub level: Level,
    /// The number of lines.
    pub lines: u64,
    /// The last message among them.
    pub last: String,
}

impl Count {
    fn take(&mut self) -> Option<More> {
        let lines = mem::take(&mut self.left_out);
        (lines > 0).then(|| More { level: self.level, lines, last: mem::take(&mut self.last) })
    }
}

impl Limiter {
    /// Returns true if a line may be written now. If not, the line is counted.
    pub fn admit(&mut self, place: Identifier, level: Level, message: &str, now: Duration) -> bool {
        let new = || Count { since: now, lines: 0, left_out: 0, level, last: String::new() };
        let count = self.0.entry(place).or_insert_with(new);
        if now.saturating_sub(count.since) >= PERIOD && count.left_out == 0 {
            (count.since, count.lines) = (now, 0);
        }
        let is_admitted = count.lines < LINES_MAX;
        if is_admitted {
            count.lines += 1;
        } else {
            count.left_out += 1;
            message.clone_into(&mut count.last);
        }
        is_admitted
    }

    /// Takes the suppressed lines of periods that are over.
    pub fn over(&mut self, now: Duration) -> Vec<More> {
        let over = self.0.values_mut().filter(|count| now.saturating_sub(count.since) >= PERIOD);
        over.filter_map(Count::take).collect()
    }

    /// Takes the suppressed lines that have not been logged yet.
    pub fn rest(&mut self) -> Vec<More> {
        self.0.values_mut().filter_map(Count::take).collect()
    }
}

#[cfg(test)]
mod tests {
    use tracing::{Metadata, callsite::Callsite, subscriber::Interest};

    use super::*;

    /// A place in the code. Callsites are identified by their memory address, so the struct must not be empty.
    struct TestCallsite(u8);

    static ONE: TestCallsite = TestCallsite(1);

    impl Callsite for TestCallsite {
        fn set_interest(&self, _: Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("nobody asks place {}", self.0)
        }
    }

    #[test]
    fn each_place_has_its_own_limit_and_a_new_one_in_each_period() {
        let mut limiter = Limiter::default();
        let admitted = |limiter: &mut Limiter, place, count: u32, now| {
            (0..count).filter(|_| limiter.admit(Identifier(place), Level::WARN, "gone", now)).count() as u32
        };
        let (start, later) = (Duration::from_secs(100), Duration::from_secs(109));
        assert_eq!(admitted(&mut limiter, &ONE, LINES_MAX + 3, start), LINES_MAX);
        assert_eq!(admitted(&mut limiter, &ONE, 2, later), 0);
        static OTHER: TestCallsite = TestCallsite(2);
        assert_eq!(admitted(&mut limiter, &OTHER, 1, later), 1, "another place has its own limit");
        assert_eq!(limiter.over(later), [], "the period is not over");
        let end = start + PERIOD;
        let more = |lines| More { level: Level::WARN, lines, last: "gone".to_owned() };
        assert_eq!(limiter.over(end), [more(5)]);
        assert_eq!(limiter.over(end), [], "once");
        assert_eq!(admitted(&mut limiter, &ONE, LINES_MAX + 1, end), LINES_MAX);
        assert_eq!(limiter.rest(), [more(1)]);
    }

    #[test]
    fn few_lines_are_all_written() {
        let mut limiter = Limiter::default();
        for second in 0..1_000 {
            let now = Duration::from_secs(second);
            assert!((0..6).all(|_| limiter.admit(Identifier(&ONE), Level::INFO, "", now)), "second {second}");
        }
        assert_eq!(limiter.rest(), []);
    }
}
