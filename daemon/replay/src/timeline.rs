//! Assigns each packet of a capture to a window.
//!
//! Time advances with the packets. But captures are not always sorted, and the clock may have been set back meanwhile:
//!
//! - A packet after the open window waits until the open window is over, that is, until a packet arrives that is
//!   [`HOLD_NS`] later than the window's end. Until then further packets may belong to the open window. The next window
//!   starts only when a packet arrives that is [`HOLD_NS`] later than its first one, because packets may still come for
//!   an earlier window. Windows without packets are skipped.
//! - A packet from before the open window joins it, and counts as late.
//! - If only late packets arrive, the capture's clock was set back, or one packet had a timestamp far in the future.
//!   After [`LATE_MAX`] of them in a row that also cover the length of a window, windows follow their time.
//! - A packet without a time belongs to whatever window is open.
//!
//! So a packet far in the future waits for its time, or for the end. Timestamps that jump back and forth cost at most
//! one window per [`LATE_MAX`] packets, however far they jump.

use super::Windows;

/// Up to this many late packets in a row count as out of order. If there are more, windows follow their time.
pub const LATE_MAX: u64 = 100;

/// A window is over when a packet arrives this much later, in nanoseconds.
pub const HOLD_NS: u64 = 10_000_000_000;

/// A window, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayWindow {
    /// Its first nanosecond.
    pub start_ns: u64,
    /// The first nanosecond after it; if one window covers everything, the first after the latest packet.
    pub end_ns: u64,
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

/// Consecutive late packets.
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

    /// Whether a packet with this time, or without a time, can go into the open window immediately. A single window
    /// over everything takes all packets that have a time.
    pub fn has(&self, time_ns: Option<u64>) -> bool {
        match (time_ns, self.interval_ns) {
            (Some(_), None) => true,
            (Some(time_ns), Some(_)) => self.open.is_some() && !self.is_beyond(time_ns),
            (None, _) => self.open.is_some(),
        }
    }

    /// Whether a packet is after the open window.
    pub fn is_beyond(&self, time_ns: u64) -> bool {
        self.is_later(time_ns, 0)
    }

    /// Whether the open window is over when a packet of this time arrives, or no window is open.
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
        let Some(interval_ns) = self.interval_ns else {
            open.start_ns = open.start_ns.min(time_ns);
            open.end_ns = open.end_ns.max(time_ns + 1);
            return WindowChange::Stay;
        };
        if time_ns >= open.end_ns {
            return self.next(time_ns, None);
        }
        if time_ns >= open.start_ns {
            self.latest_ns = self.latest_ns.max(time_ns);
            self.row = Row::default();
            return WindowChange::Stay;
        }
        self.row = self.row.and(time_ns);
        if self.row.packets > LATE_MAX && self.row.latest_ns - self.row.earliest_ns >= interval_ns {
            let set_back_ns = self.latest_ns.saturating_sub(time_ns);
            return self.next(time_ns, Some(set_back_ns));
        }
        open.late += 1;
        WindowChange::Stay
    }

    /// The last window; if there was no packet, one at the Unix epoch.
    pub fn end(self) -> ReplayWindow {
        self.open.unwrap_or_else(|| self.window_of(0))
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
        ReplayWindow { start_ns, end_ns: start_ns.saturating_add(interval_ns), late: 0, untimed: 0, set_back_ns: None }
    }
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

    /// The windows of packets at these times, each with its start, late packets and how far the clock was set back.
    fn windows(windows: Windows, times: impl IntoIterator<Item = u64>) -> Vec<ReplayWindow> {
        let mut timeline = Timeline::new(windows);
        let mut over = Vec::new();
        for time in times {
            if let WindowChange::Next(stretch, _) = timeline.turn(time) {
                over.push(stretch);
            }
        }
        over.push(timeline.end());
        assert!(over.iter().all(|window| window.end_ns > window.start_ns), "{over:?}");
        over
    }

    fn stretch(start_ns: u64, late: u64) -> ReplayWindow {
        ReplayWindow { start_ns, end_ns: start_ns + 10 * SECOND, late, untimed: 0, set_back_ns: None }
    }

    #[test]
    fn sorted_packets_have_a_window_for_each_interval_with_packets() {
        let times = [3, 9, 10, 19, 20, 57].map(|second| DAY + second * SECOND);
        let starts = [0, 10, 20, 50].map(|second| stretch(DAY + second * SECOND, 0));
        assert_eq!(windows(TEN, times), starts);
    }

    #[test]
    fn packets_that_jump_back_and_forth_share_a_window() {
        let times = (0..5_000).map(|nth| DAY + (nth % 2) * 2 * HOUR + nth);
        assert_eq!(windows(TEN, times), [stretch(DAY, 0), stretch(DAY + 2 * HOUR, 2_499)]);
    }

    #[test]
    fn jumps_cost_at_most_one_window_for_each_row_of_late_packets() {
        // The most expensive case: each row is just long enough and covers a window.
        let row = LATE_MAX + 2;
        let jumping = |nth: u64| if nth.is_multiple_of(row) { 2 * HOUR } else { (nth % row) * SECOND };
        let count = windows(TEN, (0..50 * row).map(|nth| DAY + jumping(nth))).len() as u64;
        assert!((100..=101).contains(&count), "{count} windows of {} packets", 50 * row);
        let shorter = |nth: u64| if nth.is_multiple_of(LATE_MAX) { 2 * HOUR } else { (nth % LATE_MAX) * SECOND };
        assert_eq!(windows(TEN, (0..50 * row).map(|nth| DAY + shorter(nth))).len(), 1);
    }

    #[test]
    fn one_packet_far_in_the_future_costs_one_window() {
        const FUTURE: u64 = DAY + 1_000 * DAY;
        // A packet every 20 ms: 500 in each window.
        let at = |nth: u64| if nth == 1_000 { FUTURE } else { DAY + nth * SECOND / 50 };
        let all = windows(TEN, (0..3_000).map(at));
        let starts: Vec<_> = all.iter().map(|window| window.start_ns).collect();
        let then = [0, 10].map(|second| DAY + second * SECOND);
        // 10 s of late packets are in the future window; those after it are where they belong.
        let later = [30, 40, 50].map(|second| DAY + second * SECOND);
        assert_eq!(starts, [&then[..], &[FUTURE], &later[..]].concat());
        assert_eq!(all[2].late, 500);
        assert_eq!(all[2].set_back_ns, Some(FUTURE - (DAY + 1_501 * SECOND / 50)));
        assert!(all.iter().enumerate().all(|(nth, window)| nth == 2 || *window == stretch(window.start_ns, 0)));
    }

    #[test]
    fn a_few_late_packets_are_no_new_time() {
        let late = |times: u64, apart: u64| {
            let late = (0..times).map(|nth| DAY + nth * apart);
            windows(TEN, [DAY + HOUR].into_iter().chain(late))
        };
        assert_eq!(
            late(LATE_MAX, SECOND),
            [stretch(DAY + HOUR, LATE_MAX)],
            "the most late packets in a row, over a long time"
        );
        assert_eq!(
            late(50 * LATE_MAX, 1),
            [stretch(DAY + HOUR, 50 * LATE_MAX)],
            "more late packets, but all at one moment"
        );
        assert_eq!(late(LATE_MAX + 1, SECOND).len(), 2);
    }

    #[test]
    fn packets_without_a_time_belong_to_the_open_window() {
        let mut timeline = Timeline::new(TEN);
        assert_eq!(timeline.turn(DAY), WindowChange::Begin(DAY));
        assert_eq!(timeline.untimed(), None);
        assert_eq!(timeline.end(), ReplayWindow { untimed: 1, ..stretch(DAY, 0) });
        let mut nothing_else = Timeline::new(TEN);
        assert_eq!([nothing_else.untimed(), nothing_else.untimed()], [Some(0), None]);
        assert_eq!(nothing_else.end(), ReplayWindow { untimed: 2, ..stretch(0, 0) });
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
    fn one_window_over_everything_has_no_late_packets() {
        let times = [DAY, DAY - HOUR, DAY + HOUR, 5];
        let all = ReplayWindow { start_ns: 5, end_ns: DAY + HOUR + 1, late: 0, untimed: 0, set_back_ns: None };
        assert_eq!(windows(Windows::All, times), [all]);
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
        assert_eq!(Timeline::new(TEN).end(), stretch(0, 0));
        let ReplayWindow { start_ns, end_ns, .. } = Timeline::new(Windows::All).end();
        assert_eq!((start_ns, end_ns), (0, 1));
    }
}
