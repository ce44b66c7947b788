//! Time that has passed: which part of it is shown, and how keys step through it.

use jiff::{SignedDuration, Timestamp};
use weir_schema::{Gap, History, Interface, InterfaceHistory, InterfaceSecond, Length, Union, is_measured};

use crate::history::{Line, Rate};

/// How many steps of a time a source is asked for: the widest sparkline.
pub const POINTS: u32 = 240;
/// The spans that can be chosen, in seconds, and how they are written.
pub const SPANS: [(u64, &str); 5] = [(60, "1m"), (300, "5m"), (1200, "20m"), (3600, "1h"), (86_400, "24h")];
/// A span that ends now is read again when this part of it has passed.
const PARTS: i32 = 120;

/// A time that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The last window that ended by this time.
    WindowBefore(Timestamp),
    /// The first window that began at this time or later.
    WindowAfter(Timestamp),
    /// So many seconds until the end of the last window that ended by this time.
    SpanBefore {
        /// The latest end of the span.
        to: Timestamp,
        /// The length of the span in seconds.
        seconds: u64,
    },
    /// So many seconds from the start of the first window that began at this time or later.
    SpanAfter {
        /// The earliest start of the span.
        from: Timestamp,
        /// The length of the span in seconds.
        seconds: u64,
    },
    /// So many seconds until the end of the last window of all.
    Last(u64),
    /// As early as the history reaches: a window, or as many seconds as this.
    Oldest(Option<u64>),
}

impl Look {
    /// The length of the span, in seconds; `None` for a window.
    pub const fn length(self) -> Option<u64> {
        match self {
            Self::WindowBefore(_) | Self::WindowAfter(_) => None,
            Self::SpanBefore { seconds, .. } | Self::SpanAfter { seconds, .. } | Self::Last(seconds) => Some(seconds),
            Self::Oldest(length) => length,
        }
    }
}

/// The history's answer about a time.
#[derive(Clone, Debug)]
pub struct Past {
    /// The lists and ledgers of all its windows together.
    pub union: Union,
    /// The interfaces in steps, and which alerts were firing.
    pub history: History,
}

impl Past {
    /// The interfaces with their mean rates, and their steps as a sparkline. Without a rate if weir did not measure the
    /// interface for a part of the time.
    pub fn lines(&self) -> Vec<(Line, Option<Rate>)> {
        let line = |of: &Interface| {
            let Interface { name, direction, mode, ledger, trouble, .. } = of;
            let last = InterfaceSecond {
                name: name.clone(),
                direction: direction.clone(),
                mode: mode.clone(),
                counted: Some(ledger.seen),
                total: None,
                lost: None,
                trouble: trouble.clone(),
            };
            let steps = self.history.interfaces.iter().find(|of| of.name == *name && of.direction == *direction);
            let rates = steps.map(|steps| self.rates(steps)).unwrap_or_default();
            let is_whole = of.unmeasured_seconds.is_none() && is_measured(mode);
            let mean = Rate::of(ledger.seen, self.union.window.seconds).filter(|_| is_whole);
            (Line { last, rates: rates.into() }, mean)
        };
        self.union.interfaces.iter().map(line).collect()
    }

    fn rates(&self, steps: &InterfaceHistory) -> Vec<Option<Rate>> {
        let rate = |(nth, (packets, bytes)): (usize, (&Option<u64>, &Option<u64>))| {
            let seconds = steps.known_seconds(nth, self.history.step_seconds)?;
            Rate::of(weir_schema::Tally { packets: (*packets)?, bytes: (*bytes)? }, Length::new(seconds))
        };
        steps.packets.iter().zip(&steps.bytes).enumerate().map(rate).collect()
    }

    /// The rules whose alerts were firing in this time.
    pub fn alerts(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for rule in self.history.windows.iter().flat_map(|window| &window.alerts) {
            if !all.contains(&rule.as_str()) {
                all.push(rule);
            }
        }
        all
    }

    /// How much of the time that was asked for is not known, without the time before the history began.
    pub fn missing(&self) -> SignedDuration {
        let known = self.union.missing.iter().filter(|gap| !self.is_before_history(gap));
        known.map(|gap| gap.end.duration_since(gap.start)).sum()
    }

    /// When the history began, if that was later than the time that was asked for.
    pub fn begins_later(&self) -> Option<Timestamp> {
        let is_later = self.union.missing.iter().any(|gap| self.is_before_history(gap));
        self.history.reaches_back_to.windows.filter(|_| is_later)
    }

    fn is_before_history(&self, gap: &Gap) -> bool {
        self.history.reaches_back_to.windows.is_some_and(|began| gap.start < began)
    }
}

/// The time before the one that is shown: as long a span, or the window before.
pub fn back(shown: Option<&Union>, length: Option<u64>, now: Timestamp) -> Look {
    let to = shown.map_or(now, |union| union.window.start);
    match length {
        Some(seconds) => Look::SpanBefore { to, seconds },
        None => Look::WindowBefore(to),
    }
}

/// The time after the one that is shown; `None` if that is now. `newest` is the end of the last window.
pub fn forth(shown: &Union, length: Option<u64>, newest: Option<Timestamp>) -> Option<Look> {
    let from = shown.window.end;
    if newest.is_none_or(|newest| newest <= from) {
        return None;
    }
    let Some(seconds) = length else { return Some(Look::WindowAfter(from)) };
    let is_last = newest.is_none_or(|newest| newest <= later(from, seconds));
    Some(if is_last { Look::Last(seconds) } else { Look::SpanAfter { from, seconds } })
}

/// Returns true if a span that ends now has to be read again, because another window has ended since. A history that
/// has just begun has less than the span that was asked for, so this depends on the length of what is shown.
pub fn is_old(shown: &Union, newest: Timestamp) -> bool {
    let since = newest.duration_since(shown.window.end);
    since.is_positive() && since >= length(shown) / PARTS
}

/// From the start of the first window to the end of the last one.
pub fn length(shown: &Union) -> SignedDuration {
    shown.window.end.duration_since(shown.window.start)
}

/// A time so many seconds earlier.
pub fn earlier(time: Timestamp, seconds: u64) -> Timestamp {
    time.checked_sub(duration(seconds)).unwrap_or(Timestamp::MIN)
}

/// A time so many seconds later.
pub fn later(time: Timestamp, seconds: u64) -> Timestamp {
    time.checked_add(duration(seconds)).unwrap_or(Timestamp::MAX)
}

/// Converts seconds to a duration.
pub fn duration(seconds: u64) -> SignedDuration {
    SignedDuration::from_secs(seconds.try_into().unwrap_or(i64::MAX))
}

#[cfg(test)]
pub mod tests {
    use weir_schema::{HISTORY_SCHEMA, PastWindow, Reach};

    use super::*;
    use crate::screen::tests::golden;

    /// Two windows that are as the golden report, ten minutes ago, with the seconds of one of its interfaces.
    pub fn past() -> Past {
        let mut reports = [golden(), golden()];
        for (nth, report) in (0..).zip(&mut reports) {
            let start = earlier(report.window.start, 600 - 10 * nth);
            (report.window.start, report.window.end) = (start, later(start, 10));
        }
        let union = Union::of(&reports).unwrap();
        let of = &union.interfaces[0];
        let steps: Vec<Option<u64>> = (0..20).map(|nth| (nth != 4).then_some(100_000 + 5_000 * nth)).collect();
        let steps = InterfaceHistory {
            name: of.name.clone(),
            direction: of.direction.clone(),
            packets: steps.clone(),
            bytes: steps.iter().map(|packets| packets.map(|packets| packets * 700)).collect(),
            lost: vec![Some(0); 20],
            seconds: vec![1.0; 20],
        };
        let [first, second] = [0, 1].map(|nth| PastWindow {
            start: reports[nth].window.start,
            end: reports[nth].window.end,
            windows: 1,
            seconds: Some(10.0),
            packets: union.totals.packets / 2,
            bytes: union.totals.bytes / 2,
            src_ip: union.unique.src_ip,
            alerts: vec!["flood".to_owned()],
        });
        let history = History {
            schema: HISTORY_SCHEMA.to_owned(),
            from: union.window.start,
            to: union.window.end,
            step_seconds: 1,
            reaches_back_to: Reach::default(),
            interfaces: vec![steps],
            windows: vec![first, second],
        };
        Past { union, history }
    }

    #[test]
    fn a_step_back_and_one_forth_are_the_same_way() {
        let Past { union, .. } = past();
        let (start, end) = (union.window.start, union.window.end);
        let now = golden().window.end;
        assert_eq!(back(None, None, now), Look::WindowBefore(now));
        assert_eq!(back(Some(&union), None, now), Look::WindowBefore(start));
        assert_eq!(back(Some(&union), Some(60), now), Look::SpanBefore { to: start, seconds: 60 });
        assert_eq!(forth(&union, None, Some(now)), Some(Look::WindowAfter(end)));
        assert_eq!(forth(&union, Some(60), Some(now)), Some(Look::SpanAfter { from: end, seconds: 60 }));
        assert_eq!(forth(&union, Some(3600), Some(now)), Some(Look::Last(3600)), "it would reach beyond now");
        assert_eq!(forth(&union, None, Some(end)), None, "there is no later window");
    }

    #[test]
    fn a_long_span_is_not_read_again_with_each_window() {
        let Past { mut union, .. } = past();
        let end = union.window.end;
        for (length, seconds, expected) in [
            (20, 0, false),
            (20, 10, true),
            (1200, 9, false),
            (1200, 10, true),
            (86_400, 600, false),
            (86_400, 720, true),
        ] {
            union.window.start = earlier(end, length);
            assert_eq!(is_old(&union, later(end, seconds)), expected, "{length} s, {seconds} s later");
        }
    }

    #[test]
    fn the_time_before_the_history_began_is_not_missing() {
        let mut past = past();
        let start = past.union.window.start;
        assert_eq!((past.missing(), past.begins_later()), (SignedDuration::ZERO, None));
        let gap = |from, to| Gap { start: later(start, from), end: later(start, to) };
        past.union.missing = vec![Gap { start: earlier(start, 3600), end: start }, gap(10, 15), gap(17, 20)];
        past.history.reaches_back_to.windows = Some(start);
        assert_eq!((past.missing(), past.begins_later()), (duration(8), Some(start)));
        past.history.reaches_back_to.windows = Some(earlier(start, 7200));
        assert_eq!((past.missing(), past.begins_later()), (duration(3608), None), "weir did not run");
    }

    #[test]
    fn a_look_knows_the_length_of_its_span() {
        let time = past().union.window.start;
        for (look, length) in [
            (Look::WindowBefore(time), None),
            (Look::WindowAfter(time), None),
            (Look::SpanBefore { to: time, seconds: 60 }, Some(60)),
            (Look::SpanAfter { from: time, seconds: 300 }, Some(300)),
            (Look::Last(1200), Some(1200)),
            (Look::Oldest(Some(3600)), Some(3600)),
            (Look::Oldest(None), None),
        ] {
            assert_eq!(look.length(), length, "{look:?}");
        }
        assert_eq!((earlier(time, u64::MAX), later(time, u64::MAX)), (Timestamp::MIN, Timestamp::MAX));
    }
}
