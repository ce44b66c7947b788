//! Windows: report intervals, aligned to multiples of the wall clock so that all routers have the same, and measured in
//! monotonic time.
//!
//! The wall clock gives a window its labels, start and end. Nothing else depends on it: the monotonic clock determines
//! the length of a window, and ensures that it ends after it starts.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use weir_system::clock::Moment;

/// The window that is being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    start: Moment,
    end: Moment,
}

/// A window that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The time at which it began.
    pub start: Timestamp,
    /// The first instant after it, later than `start`. If the clock was stepped meanwhile, this is on the clock before
    /// the step.
    pub end: Timestamp,
    /// The length on the monotonic clock.
    pub length: Duration,
    /// How far the wall clock was stepped within the window, if it was.
    pub clock_step: Option<SignedDuration>,
    /// Packets with a timestamp before the window; `None` if packets are measured as they come.
    pub late_packets: Option<u64>,
    /// Packets without a timestamp; `None` if all have one.
    pub untimed_packets: Option<u64>,
}

impl Window {
    /// A window that is open from `now` to the next multiple of `interval` since the Unix epoch.
    pub fn open(now: Moment, interval: Duration) -> Self {
        let interval_ns = interval.as_nanos().max(1) as i128;
        let left = interval_ns - now.wall.as_nanosecond().rem_euclid(interval_ns);
        let left = Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        let end = Moment { wall: later(now.wall, left), monotonic: now.monotonic.saturating_add(left) };
        Self { start: now, end }
    }

    /// The first window of a run. It ends at the next multiple of `first`, or of `interval` if that comes sooner.
    pub fn first(now: Moment, interval: Duration, first: Duration) -> Self {
        let [window, short] = [interval, first].map(|interval| Self::open(now, interval));
        if short.end.monotonic < window.end.monotonic { short } else { window }
    }

    /// The window that is open `now`, starting where the last window of an earlier weir ended. If the wall clock was
    /// stepped since then, it starts now.
    pub fn resume(last_end: Moment, now: Moment, interval: Duration) -> Self {
        let open = Self::open(now, interval);
        let Some(between) = now.monotonic.checked_sub(last_end.monotonic) else { return open };
        let drift = last_end.wall.duration_until(now.wall).saturating_sub(signed(between)).abs();
        if drift > DRIFT_MAX { open } else { Self { start: last_end, ..open } }
    }

    /// Returns when the window began, on both clocks.
    pub const fn begin(&self) -> Moment {
        self.start
    }

    /// Returns the start on the wall clock.
    pub const fn start(&self) -> Timestamp {
        self.start.wall
    }

    /// Returns the planned end on the wall clock.
    pub const fn end(&self) -> Timestamp {
        self.end.wall
    }

    /// The time until this window's end; zero after it.
    pub fn left(&self, now: Moment) -> Duration {
        self.end.monotonic.saturating_sub(now.monotonic)
    }

    /// Ends the window once its end is reached. Returns it and the next one, which is open at `now`.
    ///
    /// The next window begins where this one ended, and ends at the next multiple of `interval`. There are two
    /// exceptions: the wall clock was stepped, or this window is closed so late that it has many packets from after its
    /// end. Then it ends now, and the next one begins now.
    pub fn advance(self, now: Moment, interval: Duration) -> (Span, Self) {
        let late = now.monotonic.saturating_sub(self.end.monotonic);
        if self.step(now).is_some() || late > (interval / LATE_PART).clamp(LATE_MIN, LATE_MAX) {
            return (self.cut(now), Self::open(now, interval));
        }
        let span = Span {
            start: self.start.wall,
            end: self.end.wall,
            length: self.end.monotonic.saturating_sub(self.start.monotonic),
            clock_step: None,
            late_packets: None,
            untimed_packets: None,
        };
        // Align after the label, not after `now`: if the clock was set back a little, `now` is before the end of this
        // window.
        let label = Self::open(self.end, interval).end.wall;
        let left = Duration::try_from(now.wall.duration_until(label)).unwrap_or_default();
        let end = Moment { wall: label, monotonic: now.monotonic.saturating_add(left) };
        (span, Self { start: self.end, end })
    }

    /// The same window, up to the next multiple of another interval.
    #[must_use]
    pub fn realigned(self, interval: Duration) -> Self {
        Self::open(self.start, interval)
    }

    /// The window from its start until `now`, for a window that is closed early or very late.
    pub fn cut(self, now: Moment) -> Span {
        let (start, length) = (self.start.wall, now.monotonic.saturating_sub(self.start.monotonic));
        let clock_step = self.step(now);
        let end = match clock_step {
            None if now.wall > start => now.wall,
            _ => later(start, length.max(Duration::from_nanos(1))),
        };
        Span { start, end, length, clock_step, late_packets: None, untimed_packets: None }
    }

    /// How far the wall clock is ahead of the time expected from the monotonic clock, if that is too much for drift.
    fn step(&self, now: Moment) -> Option<SignedDuration> {
        let ahead = match now.monotonic.checked_sub(self.end.monotonic) {
            Some(late) => self.end.wall.duration_until(now.wall).saturating_sub(signed(late)),
            None => self.end.wall.duration_until(now.wall).saturating_add(signed(self.left(now))),
        };
        (ahead.abs() > DRIFT_MAX).then_some(ahead)
    }
}

/// How late a window may be closed and still keep its length: this part of the interval, within these limits. A busy
/// machine may look at the clock this late, and its one-second windows must stay aligned.
const LATE_PART: u32 = 10;
const LATE_MIN: Duration = Duration::from_millis(250);
const LATE_MAX: Duration = Duration::from_millis(500);

/// If the wall clock drifts by more than this within a window, it was stepped, and windows follow it.
const DRIFT_MAX: SignedDuration = SignedDuration::from_millis(500);

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(signed(by)).unwrap_or(Timestamp::MAX)
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Duration = Duration::from_secs(10);

    fn moment(wall: &str, monotonic_ms: u64) -> Moment {
        Moment { wall: wall.parse().unwrap(), monotonic: Duration::from_millis(monotonic_ms) }
    }

    fn later_by(moment: Moment, ms: u64) -> Moment {
        let by = Duration::from_millis(ms);
        Moment { wall: later(moment.wall, by), monotonic: moment.monotonic + by }
    }

    fn at(wall: &str) -> Timestamp {
        wall.parse().unwrap()
    }

    #[test]
    fn windows_align_to_the_wall_clock_and_follow_each_other() {
        let window = Window::open(moment("2026-11-20T08:00:03.5Z", 1_000), TEN);
        assert_eq!(window.left(moment("2026-11-20T08:00:04Z", 1_500)), Duration::from_secs(6));
        let late = moment("2026-11-20T08:00:10.020Z", 7_520);
        assert_eq!(window.left(late), Duration::ZERO);
        let (span, next) = window.advance(late, TEN);
        assert_eq!((span.start, span.end), (at("2026-11-20T08:00:03.5Z"), at("2026-11-20T08:00:10Z")));
        assert_eq!((span.length, span.clock_step), (Duration::from_millis(6_500), None));
        let (span, _) = next.advance(moment("2026-11-20T08:00:20.001Z", 17_501), TEN);
        assert_eq!((span.start, span.length), (at("2026-11-20T08:00:10Z"), TEN));
        assert_eq!(span.end, at("2026-11-20T08:00:20Z"));
    }

    #[test]
    fn a_first_window_is_short_and_later_windows_are_aligned() {
        const MINUTE: Duration = Duration::from_secs(60);
        let start = moment("2026-11-20T08:00:23.5Z", 0);
        let (window, at_minute) = (Window::first(start, MINUTE, TEN), Window::open(start, MINUTE));
        assert_eq!((window.start(), window.end()), (start.wall, at("2026-11-20T08:00:30Z")));
        let (span, next) = window.advance(later_by(start, 6_520), MINUTE);
        assert_eq!((span.end, span.length), (at("2026-11-20T08:00:30Z"), Duration::from_millis(6_500)));
        assert_eq!((next.start(), next.end()), (at("2026-11-20T08:00:30Z"), at("2026-11-20T08:01:00Z")));
        let (span, next) = next.advance(later_by(start, 36_500), MINUTE);
        assert_eq!((span.length, next.end()), (Duration::from_secs(30), at("2026-11-20T08:02:00Z")));
        // The shorter of the two intervals decides.
        assert_eq!(Window::first(start, MINUTE, Duration::from_secs(3_600)), at_minute);
        assert_eq!(Window::first(start, Duration::from_secs(1), TEN).end(), at("2026-11-20T08:00:24Z"));
        assert_eq!(Window::first(start, Duration::from_secs(8), TEN).end(), at("2026-11-20T08:00:24Z"));
    }

    #[test]
    fn another_interval_is_aligned_to_the_time_of_day() {
        let window = Window::open(moment("2026-11-20T08:00:52Z", 0), Duration::from_secs(1));
        let (_, next) = window.advance(moment("2026-11-20T08:00:53.01Z", 1_010), Duration::from_secs(1));
        let next = next.realigned(TEN);
        assert_eq!((next.start(), next.end()), (at("2026-11-20T08:00:53Z"), at("2026-11-20T08:01:00Z")));
        assert_eq!(next.left(moment("2026-11-20T08:00:53.01Z", 1_010)), Duration::from_millis(6_990));
    }

    #[test]
    fn a_stepped_clock_realigns_the_next_window_and_the_report_says_so() {
        for (now, step_s, left_s) in [("2026-11-20T07:00:12Z", -3_598, 8), ("2026-11-20T09:30:15Z", 5_405, 5)] {
            let window = Window::open(moment("2026-11-20T08:00:00Z", 0), TEN);
            // Ten seconds of monotonic time have passed.
            let now = moment(now, 10_000);
            let (span, next) = window.advance(now, TEN);
            assert_eq!((span.length, span.clock_step), (TEN, Some(SignedDuration::from_secs(step_s))));
            assert_eq!((span.start, span.end), (at("2026-11-20T08:00:00Z"), at("2026-11-20T08:00:10Z")));
            assert_eq!((next.start(), next.left(now)), (now.wall, Duration::from_secs(left_s)));
            let (span, _) = next.advance(moment("2026-11-20T09:30:20Z", 10_000 + left_s * 1_000), TEN);
            assert_eq!(span.clock_step.is_some(), step_s < 0, "the step is reported once");
        }
    }

    #[test]
    fn a_small_drift_of_the_wall_clock_moves_no_label() {
        let window = Window::open(moment("2026-11-20T08:00:00Z", 0), TEN);
        for (wall, left_ms) in [("09.5", 10_500), ("09.995", 10_005), ("10", 10_000), ("10.5", 9_500)] {
            let now = moment(&format!("2026-11-20T08:00:{wall}Z"), 10_000);
            let (span, next) = window.advance(now, TEN);
            assert_eq!((span.end, span.clock_step), (at("2026-11-20T08:00:10Z"), None), "{wall}");
            // The offset is corrected: the next label is aligned to the wall clock.
            assert_eq!(next.left(now), Duration::from_millis(left_ms), "{wall}");
            let (span, _) = next.advance(moment("2026-11-20T08:00:20Z", 10_000 + left_ms), TEN);
            assert_eq!((span.start, span.end), (at("2026-11-20T08:00:10Z"), at("2026-11-20T08:00:20Z")), "{wall}");
        }
        for beyond in ["2026-11-20T08:00:09.499Z", "2026-11-20T08:00:10.501Z"] {
            assert!(window.advance(moment(beyond, 10_000), TEN).0.clock_step.is_some(), "{beyond}");
        }
    }

    #[test]
    fn a_window_closed_early_or_very_late_has_its_true_length() {
        let window = Window::open(moment("2026-11-20T08:00:00Z", 0), TEN);
        let early = window.cut(moment("2026-11-20T08:00:04.2Z", 4_000));
        assert_eq!((early.length, early.end), (Duration::from_secs(4), at("2026-11-20T08:00:04.2Z")));
        let (span, next) = window.advance(moment("2026-11-20T08:00:35Z", 35_000), TEN);
        assert_eq!((span.length, span.clock_step), (Duration::from_secs(35), None));
        assert_eq!(next.left(moment("2026-11-20T08:00:35Z", 35_000)), Duration::from_secs(5));
    }

    #[test]
    fn a_window_that_is_closed_late_has_the_length_of_its_packets() {
        for (interval_ms, late_ms) in [(1_000, 250), (2_000, 250), (4_000, 400), (5_000, 500), (60_000, 500)] {
            let interval = Duration::from_millis(interval_ms);
            let at = |ms: u64| later_by(moment("2026-11-20T08:00:00Z", 0), ms);
            let window = Window::open(at(0), interval);
            let (span, next) = window.advance(at(interval_ms + late_ms), interval);
            assert_eq!((span.length, next.begin()), (interval, at(interval_ms)), "{interval_ms} ms");
            let (span, next) = window.advance(at(interval_ms + late_ms + 1), interval);
            assert_eq!(span.length, Duration::from_millis(interval_ms + late_ms + 1));
            assert_eq!((span.end, next.begin()), (at(interval_ms + late_ms + 1).wall, at(interval_ms + late_ms + 1)));
            // It ends where it would have ended.
            assert_eq!(next.left(at(2 * interval_ms)), Duration::ZERO);
        }
    }

    #[test]
    fn whatever_the_wall_clock_does_a_window_ends_after_it_starts() {
        // Any clock step, within the drift and far beyond, at any age of a window, and again in the window after it.
        let steps_ms = [-86_400_000, -3_600_000, -10_000, -501, -500, -499, -1, 0, 1, 499, 500, 501, 9_999, 86_400_000];
        let start = moment("2026-11-20T08:00:07.3Z", 1_000);
        for interval in [Duration::from_secs(1), TEN, Duration::from_secs(3_600)] {
            for first_ms in steps_ms {
                for second_ms in steps_ms {
                    let window = Window::open(start, interval);
                    let mut wall = start.wall;
                    let mut monotonic = start.monotonic;
                    let mut pass = |by: Duration, step_ms| {
                        monotonic += by;
                        wall = later(wall, by).checked_add(SignedDuration::from_millis(step_ms)).unwrap();
                        Moment { wall, monotonic }
                    };
                    let now = pass(window.left(start), first_ms);
                    let (span, next) = window.advance(now, interval);
                    assert!(span.end > span.start && !span.length.is_zero(), "{first_ms} ms: {span:?}");
                    let cut = next.cut(now);
                    assert!(cut.end > cut.start, "cut at once after {first_ms} ms: {cut:?}");
                    let now = pass(next.left(now), second_ms);
                    for span in [next.cut(now), next.advance(now, interval).0] {
                        assert!(span.end > span.start, "{first_ms} ms, then {second_ms} ms: {span:?}");
                        assert!(!span.length.is_zero(), "{first_ms} ms, then {second_ms} ms: {span:?}");
                    }
                    let before = Window::open(start, interval).cut(pass(Duration::from_micros(1), second_ms));
                    assert!(before.end > before.start, "{before:?}");
                }
            }
        }
    }
}
