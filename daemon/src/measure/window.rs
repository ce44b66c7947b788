//! Windows: the report interval, aligned to wall-clock multiples so that routers line up, measured on monotonic time.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Moment;

/// The open window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    start: Moment,
    end: Moment,
}

/// A window that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// When it began.
    pub start: Timestamp,
    /// The first instant after it.
    pub end: Timestamp,
    /// Its length on the monotonic clock.
    pub length: Duration,
}

impl Window {
    /// The window that is open `now`, up to the next multiple of `interval` since the Unix epoch.
    pub fn open(now: Moment, interval: Duration) -> Self {
        let interval_ns = interval.as_nanos().max(1) as i128;
        let left = interval_ns - now.wall.as_nanosecond().rem_euclid(interval_ns);
        let left = Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        let end = Moment { wall: later(now.wall, left), monotonic: now.monotonic.saturating_add(left) };
        Self { start: now, end }
    }

    /// When it began, by the wall clock.
    pub const fn start(&self) -> Timestamp {
        self.start.wall
    }

    /// How long until this window's edge; zero once it is past.
    pub fn left(&self, now: Moment) -> Duration {
        self.end.monotonic.saturating_sub(now.monotonic)
    }

    /// The whole window, when its edge is reached, and the next one, open at `now`.
    ///
    /// The next begins where this one ended, unless the wall clock was moved meanwhile.
    pub fn advance(self, now: Moment, interval: Duration) -> (Span, Self) {
        let late = now.monotonic.saturating_sub(self.end.monotonic);
        let drifted = later(self.end.wall, late).duration_until(now.wall).abs() > DRIFT_MAX;
        let edge = if drifted || late >= interval { now } else { self.end };
        let span = self.span(edge);
        let aligned = Self::open(now, interval);
        (span, Self { start: edge, end: aligned.end })
    }

    /// The window as far as it came, when it is closed before its edge.
    pub fn cut(self, now: Moment) -> Span {
        self.span(now)
    }

    fn span(&self, edge: Moment) -> Span {
        Span { start: self.start.wall, end: edge.wall, length: edge.monotonic.saturating_sub(self.start.monotonic) }
    }
}

/// If the wall clock drifts by more than this within a window, the next edge follows it.
const DRIFT_MAX: jiff::SignedDuration = jiff::SignedDuration::from_millis(500);

fn later(time: Timestamp, by: Duration) -> Timestamp {
    jiff::SignedDuration::try_from(by).ok().and_then(|by| time.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Duration = Duration::from_secs(10);

    fn moment(wall: &str, monotonic_ms: u64) -> Moment {
        Moment { wall: wall.parse().unwrap(), monotonic: Duration::from_millis(monotonic_ms) }
    }

    #[test]
    fn windows_align_to_the_wall_clock_and_follow_each_other() {
        let window = Window::open(moment("2026-11-20T08:00:03.5Z", 1_000), TEN);
        assert_eq!(window.left(moment("2026-11-20T08:00:04Z", 1_500)), Duration::from_secs(6));
        let late = moment("2026-11-20T08:00:10.020Z", 7_520);
        assert_eq!(window.left(late), Duration::ZERO);
        let (span, next) = window.advance(late, TEN);
        assert_eq!(span.start, "2026-11-20T08:00:03.5Z".parse().unwrap());
        assert_eq!(span.end, "2026-11-20T08:00:10Z".parse().unwrap());
        assert_eq!(span.length, Duration::from_millis(6_500));
        let (span, _) = next.advance(moment("2026-11-20T08:00:20.001Z", 17_501), TEN);
        assert_eq!((span.start, span.length), ("2026-11-20T08:00:10Z".parse().unwrap(), TEN));
        assert_eq!(span.end, "2026-11-20T08:00:20Z".parse().unwrap());
    }

    #[test]
    fn a_moved_clock_realigns_the_next_window() {
        let window = Window::open(moment("2026-11-20T08:00:00Z", 0), TEN);
        // The wall clock was set back by an hour; ten seconds of monotonic time have passed.
        let now = moment("2026-11-20T07:00:12Z", 10_000);
        let (span, next) = window.advance(now, TEN);
        assert_eq!(span.length, TEN);
        assert_eq!(next.left(now), Duration::from_secs(8));
    }

    #[test]
    fn a_wall_clock_that_drifts_a_little_moves_no_edge() {
        let window = Window::open(moment("2026-11-20T08:00:00Z", 0), TEN);
        let end = |wall: &str| window.advance(moment(wall, 10_000), TEN).0.end.to_string();
        for within in ["2026-11-20T08:00:09.5Z", "2026-11-20T08:00:10Z", "2026-11-20T08:00:10.5Z"] {
            assert_eq!(end(within), "2026-11-20T08:00:10Z", "{within}");
        }
        for beyond in ["2026-11-20T08:00:09.499Z", "2026-11-20T08:00:10.501Z"] {
            assert_eq!(end(beyond), beyond);
        }
    }

    #[test]
    fn a_window_closed_early_or_very_late_says_its_true_length() {
        let window = Window::open(moment("2026-11-20T08:00:00Z", 0), TEN);
        assert_eq!(window.cut(moment("2026-11-20T08:00:04Z", 4_000)).length, Duration::from_secs(4));
        let (span, next) = window.advance(moment("2026-11-20T08:00:35Z", 35_000), TEN);
        assert_eq!(span.length, Duration::from_secs(35));
        assert_eq!(next.left(moment("2026-11-20T08:00:35Z", 35_000)), Duration::from_secs(5));
    }
}
