//! Assigns each packet of a capture to a window.
//!
//! Time advances with the packets. But captures are not always sorted, and the clock may have been set back meanwhile:
//!
//! - A packet after the open window waits until the open window is over, that is, until a packet arrives that is
//!   [`HOLD_NS`] later than the window's end. Until then further packets may belong to the open window. The next window
//!   starts only when a packet arrives that is [`HOLD_NS`] later than its first one, because packets may still come for
//!   an earlier window. Windows without packets are skipped.
//! - A packet from before the open window joins it, and counts as late.
//! - If only late packets arrive, the capture's clock was set back. After [`LATE_MAX`] of them in a row that also cover
//!   the length of a window, windows follow their time. A packet that is farther back than packets can be out of order
//!   ([`BEHIND_NS`]) shows it at once, because it is no stray.
//! - A packet without a time belongs to whatever window is open.
//!
//! Strays, packets whose time is far from that of the packets around them, do not advance time. Their windows are those
//! of their own time, which are [visited](Timeline::visit) last, unless one of them opens before.

use std::{ops::Range, time::Duration};

use weir_datapath::capture::{span::BEHIND_NS, span::Stretch, strays::AHEAD_NS};

use super::Windows;

/// Up to this many late packets in a row count as out of order. If there are more, windows follow their time.
pub const LATE_MAX: u64 = 100;

/// A window is over when a packet arrives this much later, in nanoseconds.
pub const HOLD_NS: u64 = AHEAD_NS;

/// A window, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayWindow {
    /// The first nanosecond of the window.
    pub start_ns: u64,
    /// The first nanosecond after it; if one window covers everything, the first after the latest packet.
    pub end_ns: u64,
    /// For how long packets could come; zero if that is not known.
    pub length: Duration,
    /// Late packets: from before the window.
    pub late: u64,
    /// Packets without a time.
    pub untimed: u64,
    /// How far the clock was set back at its end, if it was.
    pub set_back_ns: Option<u64>,
}

/// The effect of a packet's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowChange {
    /// It belongs to the open window.
    Stay,
    /// It is the first packet: its window starts here.
    Begin(u64),
    /// The open window is over, and the packet's window starts here.
    Next(ReplayWindow, u64),
}

/// The open window, and what may end it.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    /// The length of a window; `None` if one window covers everything.
    interval_ns: Option<u64>,
    open: Option<ReplayWindow>,
    /// The latest packet so far that is not late.
    latest_ns: u64,
    row: Row,
}

/// Late packets that follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    packets: u64,
    earliest_ns: u64,
    latest_ns: u64,
}

/// A window ends after its last packet, so one nanosecond must be left.
const LATEST_NS: u64 = u64::MAX - 1;

impl Timeline {
    /// The time before all captures.
    pub fn new(windows: Windows) -> Self {
        let interval_ns = match windows {
            Windows::All => None,
            Windows::Every(interval) => Some(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1)),
        };
        Self { interval_ns, open: None, latest_ns: 0, row: Row::default() }
    }

    /// Returns true if a packet with this time, or without a time, can go into the open window immediately. A single
    /// window over everything takes all packets that have a time.
    pub fn has(&self, time_ns: Option<u64>) -> bool {
        match (time_ns, self.interval_ns) {
            (Some(_), None) => true,
            (Some(time_ns), Some(_)) => self.open.is_some() && !self.is_beyond(time_ns),
            (None, _) => self.open.is_some(),
        }
    }

    /// Returns true if a packet is after the open window.
    pub fn is_beyond(&self, time_ns: u64) -> bool {
        self.is_later(time_ns, 0)
    }

    /// Returns true if the open window is over when a packet of this time arrives, or if no window is open.
    pub fn is_over(&self, time_ns: u64) -> bool {
        self.open.is_none() || self.is_later(time_ns, HOLD_NS)
    }

    fn is_later(&self, time_ns: u64, by_ns: u64) -> bool {
        let end_ns = self.open.filter(|_| self.interval_ns.is_some()).map(|open| open.end_ns);
        end_ns.is_some_and(|end_ns| time_ns.min(LATEST_NS) >= end_ns.saturating_add(by_ns))
    }

    /// Adds a packet without a time to the open window. Returns the start of a new window if none was open.
    pub fn untimed(&mut self) -> Option<u64> {
        let begins = if self.open.is_none() { Some(self.begin(0).start_ns) } else { None };
        if let Some(open) = &mut self.open {
            open.untimed += 1;
        }
        begins
    }

    /// Advances to the time of a packet.
    pub fn turn(&mut self, time_ns: u64) -> WindowChange {
        let time_ns = time_ns.min(LATEST_NS);
        let Some(open) = &mut self.open else {
            return WindowChange::Begin(self.begin(time_ns).start_ns);
        };
        let Some(interval_ns) = self.interval_ns else { return WindowChange::Stay };
        if time_ns >= open.end_ns {
            return self.next(time_ns, None);
        }
        if time_ns >= open.start_ns {
            self.latest_ns = self.latest_ns.max(time_ns);
            self.row = Row::default();
            return WindowChange::Stay;
        }
        self.row = self.row.and(time_ns);
        let is_row = self.row.packets > LATE_MAX && self.row.latest_ns - self.row.earliest_ns >= interval_ns;
        if is_row || time_ns.saturating_add(BEHIND_NS) < open.start_ns {
            let set_back_ns = self.latest_ns.saturating_sub(time_ns);
            return self.next(time_ns, Some(set_back_ns));
        }
        open.late += 1;
        WindowChange::Stay
    }

    /// Goes to the window of this time, even out of order.
    pub fn visit(&mut self, time_ns: u64) -> WindowChange {
        if self.contains(time_ns) { WindowChange::Stay } else { self.next(time_ns.min(LATEST_NS), None) }
    }

    /// Returns true if this time is within the open window.
    pub fn contains(&self, time_ns: u64) -> bool {
        self.open_ns().is_some_and(|open_ns| open_ns.contains(&time_ns.min(LATEST_NS)))
    }

    /// The time of the open window.
    pub fn open_ns(&self) -> Option<Range<u64>> {
        self.open.map(|open| open.start_ns..open.end_ns)
    }

    /// The last window; if there was no packet, one at the Unix epoch. If it is the only one, it has the time that the
    /// captures cover.
    pub fn end(self, covered: Option<Stretch>) -> ReplayWindow {
        let last = self.open.unwrap_or_else(|| self.window_of(0));
        match covered.filter(|_| self.interval_ns.is_none()) {
            Some(all) => ReplayWindow {
                start_ns: all.first_ns.min(LATEST_NS),
                end_ns: all.last_ns.min(LATEST_NS) + 1,
                length: length(all),
                ..last
            },
            None => last,
        }
    }

    fn next(&mut self, time_ns: u64, set_back_ns: Option<u64>) -> WindowChange {
        let over = self.open;
        let start_ns = self.begin(time_ns).start_ns;
        match over {
            Some(over) => WindowChange::Next(ReplayWindow { set_back_ns, ..over }, start_ns),
            None => WindowChange::Begin(start_ns),
        }
    }

    fn begin(&mut self, time_ns: u64) -> ReplayWindow {
        let window = self.window_of(time_ns);
        (self.open, self.latest_ns, self.row) = (Some(window), time_ns, Row::default());
        window
    }

    /// The window that a packet starts.
    fn window_of(&self, time_ns: u64) -> ReplayWindow {
        let interval_ns = self.interval_ns.unwrap_or(1);
        let start_ns = time_ns - time_ns % interval_ns;
        let end_ns = start_ns.saturating_add(interval_ns);
        let length = self.interval_ns.map_or(Duration::ZERO, |_| Duration::from_nanos(end_ns - start_ns));
        ReplayWindow { start_ns, end_ns, length, late: 0, untimed: 0, set_back_ns: None }
    }
}

/// The time for rates of all packets together. Only the time between the first packet and the last one is known, so
/// their rate over it is too high by up to one packet: a short time needs many packets to be worth a rate.
const fn length(all: Stretch) -> Duration {
    const LONG: Duration = Duration::from_secs(1);
    const MANY: u64 = 100;
    let between = Duration::from_nanos(all.last_ns - all.first_ns);
    if between.as_nanos() >= LONG.as_nanos() || all.packets >= MANY { between } else { Duration::ZERO }
}

impl Row {
    fn and(self, time_ns: u64) -> Self {
        let Self { packets, earliest_ns, latest_ns } = self;
        let earliest_ns = if packets == 0 { time_ns } else { earliest_ns.min(time_ns) };
        Self { packets: packets + 1, earliest_ns, latest_ns: latest_ns.max(time_ns) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const HOUR: u64 = 3_600 * SECOND;
    const DAY: u64 = 24 * HOUR;
    const TEN: Windows = Windows::Every(Duration::from_secs(10));

    /// The windows of packets at these times.
    fn windows(windows: Windows, times: impl IntoIterator<Item = u64>) -> Vec<ReplayWindow> {
        let mut timeline = Timeline::new(windows);
        let mut over = Vec::new();
        for time in times {
            if let WindowChange::Next(stretch, _) = timeline.turn(time) {
                over.push(stretch);
            }
        }
        over.push(timeline.end(None));
        assert!(over.iter().all(|window| window.end_ns > window.start_ns), "{over:?}");
        over
    }

    fn stretch(start_ns: u64, late: u64) -> ReplayWindow {
        ReplayWindow {
            start_ns,
            end_ns: start_ns + 10 * SECOND,
            length: Duration::from_secs(10),
            late,
            untimed: 0,
            set_back_ns: None,
        }
    }

    #[test]
    fn sorted_packets_have_a_window_for_each_interval_with_packets() {
        let times = [3, 9, 10, 19, 20, 57].map(|second| DAY + second * SECOND);
        let starts = [0, 10, 20, 50].map(|second| stretch(DAY + second * SECOND, 0));
        assert_eq!(windows(TEN, times), starts);
    }

    #[test]
    fn packets_that_jump_back_and_forth_within_a_minute_share_a_window() {
        let times = (0..5_000).map(|nth| DAY + (nth % 2) * 50 * SECOND + nth);
        assert_eq!(windows(TEN, times), [stretch(DAY, 0), stretch(DAY + 50 * SECOND, 2_499)]);
    }

    #[test]
    fn a_clock_that_is_set_back_far_is_followed_at_once() {
        let back = stretch(DAY, 0);
        let before = ReplayWindow { set_back_ns: Some(HOUR - SECOND), ..stretch(DAY + HOUR, 0) };
        assert_eq!(windows(TEN, [DAY + HOUR, DAY + SECOND, DAY + 2 * SECOND]), [before, back]);
    }

    #[test]
    fn strays_are_visited_in_windows_of_their_own() {
        let mut timeline = Timeline::new(TEN);
        timeline.turn(DAY);
        assert!(timeline.contains(DAY + SECOND) && !timeline.contains(DAY - 1));
        assert_eq!(timeline.visit(DAY + SECOND), WindowChange::Stay);
        assert_eq!(timeline.visit(5), WindowChange::Next(stretch(DAY, 0), 0));
        assert_eq!(timeline.visit(DAY + HOUR), WindowChange::Next(stretch(0, 0), DAY + HOUR));
        assert_eq!(timeline.end(None), stretch(DAY + HOUR, 0));
    }

    #[test]
    fn a_few_late_packets_are_no_new_time() {
        let late = |times: u64, apart: u64| {
            let late = (0..times).map(|nth| DAY + nth * apart);
            windows(TEN, [DAY + 50 * SECOND].into_iter().chain(late))
        };
        const APART: u64 = SECOND / 5;
        assert_eq!(
            late(LATE_MAX, APART),
            [stretch(DAY + 50 * SECOND, LATE_MAX)],
            "the most late packets in a row, over a long time"
        );
        assert_eq!(
            late(50 * LATE_MAX, 1),
            [stretch(DAY + 50 * SECOND, 50 * LATE_MAX)],
            "more late packets, but all at one moment"
        );
        assert_eq!(late(LATE_MAX + 1, APART).len(), 2);
    }

    #[test]
    fn packets_without_a_time_belong_to_the_open_window() {
        let mut timeline = Timeline::new(TEN);
        assert_eq!(timeline.turn(DAY), WindowChange::Begin(DAY));
        assert_eq!(timeline.untimed(), None);
        assert_eq!(timeline.end(None), ReplayWindow { untimed: 1, ..stretch(DAY, 0) });
        let mut nothing_else = Timeline::new(TEN);
        assert_eq!([nothing_else.untimed(), nothing_else.untimed()], [Some(0), None]);
        assert_eq!(nothing_else.end(None), ReplayWindow { untimed: 2, ..stretch(0, 0) });
    }

    #[test]
    fn a_window_is_over_some_time_after_its_end() {
        let mut timeline = Timeline::new(TEN);
        assert!(!timeline.has(Some(DAY)) && !timeline.has(None) && timeline.is_over(DAY), "there is none");
        timeline.turn(DAY);
        assert!(timeline.has(Some(5)) && timeline.has(None) && !timeline.has(Some(DAY + 10 * SECOND)));
        assert!(!timeline.is_beyond(DAY + 10 * SECOND - 1) && timeline.is_beyond(DAY + 10 * SECOND));
        assert!(!timeline.is_over(DAY + 10 * SECOND + HOLD_NS - 1) && timeline.is_over(DAY + 10 * SECOND + HOLD_NS));
        let mut all = Timeline::new(Windows::All);
        all.turn(DAY);
        assert!(!all.is_beyond(u64::MAX), "one window has everything");
    }

    #[test]
    fn one_window_over_everything_covers_the_time_of_the_captures() {
        let mut timeline = Timeline::new(Windows::All);
        for time in [DAY, DAY - HOUR, DAY + HOUR, 5] {
            assert!(!matches!(timeline.turn(time), WindowChange::Next(..)));
        }
        let all = Stretch { packets: 3, first_ns: DAY - HOUR, last_ns: DAY + HOUR };
        let ReplayWindow { start_ns, end_ns, length, late, .. } = timeline.end(Some(all));
        assert_eq!((start_ns, end_ns, late), (DAY - HOUR, DAY + HOUR + 1, 0));
        assert_eq!(length, Duration::from_secs(2 * 3_600));
    }

    #[test]
    fn few_packets_in_a_short_time_have_no_length() {
        for (packets, between_ns, known) in [
            (1, 0, false),
            (2, 0, false),
            (2, 2_000, false),
            (99, SECOND - 1, false),
            (2, SECOND, true),
            (100, SECOND / 1_000, true),
        ] {
            let all = Stretch { packets, first_ns: DAY, last_ns: DAY + between_ns };
            let due = if known { Duration::from_nanos(between_ns) } else { Duration::ZERO };
            assert_eq!(length(all), due, "{packets} packets in {between_ns} ns");
        }
    }

    #[test]
    fn the_end_of_time_has_one_window() {
        for length in [1, 3, 5, 10 * SECOND, u64::MAX] {
            let every = Windows::Every(Duration::from_nanos(length));
            assert_eq!(windows(every, [u64::MAX; 100]).len(), 1, "windows of {length} ns");
        }
    }

    #[test]
    fn without_packets_the_window_is_at_the_epoch() {
        assert_eq!(Timeline::new(TEN).end(None), stretch(0, 0));
        let ReplayWindow { start_ns, end_ns, .. } = Timeline::new(Windows::All).end(None);
        assert_eq!((start_ns, end_ns), (0, 1));
    }
}
