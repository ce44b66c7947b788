//! Rates within a window: the packets and bytes of an interface in each second.
//!
//! [`Pulse`] reads the counters of the kernel programs once a second, at full seconds of the wall clock. The rate of a
//! second is the count between two readings, divided by the time between them. A late reading makes a second longer: it
//! then stands for several seconds, each at the mean rate. [`Seconds`] counts packets that weir itself reads, from
//! captures and packet sockets. They belong to the second of their own timestamp, in whichever order they arrive.

mod stretch;

use std::{
    ops::{Range, RangeInclusive},
    time::Duration,
};

use hdrhistogram::Histogram;
use weir_common::ledger::Tally;

use self::stretch::Stretches;

/// A shorter stretch of time does not count as a second.
const LEAST: Duration = Duration::from_millis(900);
const SECOND: Duration = Duration::from_secs(1);
/// A reading may be early by this time, because the end of a window and the end of its last second come from two
/// clocks.
const EARLY: Duration = Duration::from_millis(20);
/// How many seconds are open at once. A packet that arrives later belongs to no second.
pub const OPEN: usize = 64;
/// The largest rate that a histogram can hold: ten terabytes a second.
const RATE_MAX: u64 = 10_000_000_000_000;
/// The most memory, in bytes, for an interface whose seconds are counted: the open seconds, and the rates.
pub const SECONDS_BYTES: u64 = (OPEN * size_of::<Tally>() + size_of::<Seconds>()) as u64 + 2 * HISTOGRAM_BYTES;
/// A histogram up to [`RATE_MAX`] with four bits of precision: eight counts of 32 bits for each power of two.
const HISTOGRAM_BYTES: u64 = 4 << 10;

/// The one-second rates of an interface in a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// The distribution of packets per second.
    pub packets: Histogram<u32>,
    /// The distribution of bytes per second.
    pub bytes: Histogram<u32>,
    /// The exact largest rates.
    pub most: Tally,
    /// The exact smallest rates. They have no meaning while there are no rates.
    pub least: Tally,
    /// Packets that belong to no second, because they arrived too late or have no timestamp.
    pub unplaced: Tally,
    /// The longest stretch of time that was counted as one or more seconds.
    pub longest: Duration,
}

impl Default for Rates {
    fn default() -> Self {
        let histogram = || Histogram::new_with_max(RATE_MAX, 1).expect("the bounds are constant, and valid");
        let least = Tally::new(u64::MAX, u64::MAX);
        Self {
            packets: histogram(),
            bytes: histogram(),
            most: Tally::default(),
            least,
            unplaced: Tally::default(),
            longest: Duration::ZERO,
        }
    }
}

impl Rates {
    /// The number of seconds.
    pub fn seconds(&self) -> u64 {
        self.bytes.len()
    }

    /// Adds a stretch of time with its count. A stretch of slightly less than a second is not scaled up, because it is
    /// unknown whether more packets came in the rest of the second.
    pub fn add(&mut self, came: Tally, stretch: Duration) {
        let stretch = stretch.max(SECOND);
        let seconds = stretch.as_secs_f64();
        let rate = |count: u64| (count as f64 / seconds).round() as u64;
        // Packets attributed to a second by their own timestamps need no rounding.
        let rate = if stretch == SECOND { came } else { Tally::new(rate(came.packets), rate(came.bytes)) };
        let times = seconds.round() as u64;
        self.packets.saturating_record_n(rate.packets, times as u32);
        self.bytes.saturating_record_n(rate.bytes, times as u32);
        self.most = Tally::new(self.most.packets.max(rate.packets), self.most.bytes.max(rate.bytes));
        self.least = Tally::new(self.least.packets.min(rate.packets), self.least.bytes.min(rate.bytes));
        self.longest = self.longest.max(stretch);
    }

    /// Adds silent seconds until there are this many. Adds none if some packets cannot be assigned to a second.
    pub fn fill_up(&mut self, seconds: u64) {
        if self.unplaced.is_zero() {
            self.fill_up_surely(seconds);
        }
    }

    fn fill_up_surely(&mut self, seconds: u64) {
        let silent = seconds.saturating_sub(self.seconds());
        if silent > 0 {
            let silent = u32::try_from(silent).unwrap_or(u32::MAX);
            self.packets.saturating_record_n(0, silent);
            self.bytes.saturating_record_n(0, silent);
            self.least = Tally::default();
            self.longest = self.longest.max(SECOND);
        }
    }

    /// Adds an incomplete second, unless it is below the smallest rate: that would be a false minimum.
    fn add_part(&mut self, came: Tally) {
        if self.seconds() > 0 && came.packets >= self.least.packets && came.bytes >= self.least.bytes {
            self.add(came, SECOND);
        }
    }

    /// Adds the rates of other seconds of the same source.
    fn and(&mut self, other: &Self) {
        let Self { packets, bytes, most, least, unplaced, longest } = other;
        for (sum, rates) in [(&mut self.packets, packets), (&mut self.bytes, bytes)] {
            // All have the same bounds.
            _ = sum.add(rates);
        }
        self.most = Tally::new(self.most.packets.max(most.packets), self.most.bytes.max(most.bytes));
        self.least = Tally::new(self.least.packets.min(least.packets), self.least.bytes.min(least.bytes));
        self.unplaced.add(*unplaced);
        self.longest = self.longest.max(*longest);
    }

    /// Merges the rates of another source of the same interface. Only one of the two sources saw its packets.
    pub fn merge(&mut self, other: Self) {
        if self.most.is_zero() && (!other.most.is_zero() || other.seconds() > self.seconds()) {
            let unplaced = self.unplaced;
            *self = other;
            self.unplaced.add(unplaced);
        }
    }
}

/// Determines which seconds belong to a window that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowSeconds {
    /// Where the window began, unless the window before determines that.
    start: Start,
    /// The first second that has not ended.
    end: u64,
    /// The most seconds that can have passed, by the monotonic clock.
    at_most: u64,
    /// The window that follows, if any.
    then: Then,
}

/// Tells if another window follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing follows. The window began with its first packet and ended with its last one, so its first and last
    /// seconds may be incomplete.
    Nothing,
    /// Another window follows, which begins at this time.
    Window(u64),
}

/// The place in the seconds at which a window begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    /// The first whole second of the window.
    whole: u64,
    /// The second before, if the window has only its end.
    part: Option<u64>,
}

impl Start {
    const fn of(time_ns: u64) -> Self {
        let part = if time_ns.is_multiple_of(NS) { None } else { Some(time_ns / NS) };
        Self { whole: time_ns.div_ceil(NS), part }
    }
}

impl WindowSeconds {
    /// Makes the end of a window whose beginning is unknown. The next window follows immediately.
    pub fn at(end_ns: u64, passed: Duration) -> Self {
        // Allow for a small difference between the two clocks.
        let end = end_ns.saturating_add(EARLY.as_nanos() as u64) / NS;
        let at_most = passed.as_secs_f64().round() as u64;
        Self { start: Start::of(end * NS), end, at_most, then: Then::Window(end * NS) }
    }

    /// For a window between these times, in nanoseconds since the Unix epoch.
    pub const fn of(start_ns: u64, end_ns: u64, then: Then) -> Self {
        Self { start: Start::of(start_ns), end: end_ns / NS, at_most: u64::MAX, then }
    }

    /// How many whole seconds are between these times, in nanoseconds since the Unix epoch.
    pub const fn whole_seconds(start_ns: u64, end_ns: u64) -> u64 {
        (end_ns / NS).saturating_sub(Start::of(start_ns).whole)
    }
}

const NS: u64 = 1_000_000_000;

/// Counts packets by the second of their own timestamps. Several seconds are open at once, because packets of several
/// captures or sockets do not arrive in the order of their timestamps.
#[derive(Clone, Debug, Default)]
pub struct Seconds {
    /// Where the window begins, if not at its first packet.
    start: Option<Start>,
    /// The latest open second.
    newest: Option<u64>,
    /// The count of each open second, at its number modulo [`OPEN`]. Empty before the first packet.
    open: Vec<Tally>,
    /// A second far ahead of the open ones, and its count. If the timestamp of the next packet is similar, time has
    /// moved on to there; otherwise this timestamp was wrong.
    ahead: Option<(u64, Tally)>,
    /// The seconds of a window with an unknown beginning.
    stretches: Stretches,
    rates: Option<Box<Rates>>,
    /// The first and last seconds that are in the rates.
    counted: Option<(u64, u64)>,
    unplaced: Tally,
}

impl Seconds {
    /// Begins the window at this time, in nanoseconds since the Unix epoch, unless its beginning is already known.
    pub fn begin(&mut self, time_ns: u64) {
        self.start.get_or_insert(Start::of(time_ns));
    }

    /// Counts packets in a second since 1970; `None` if they have no timestamp.
    #[inline]
    pub fn count(&mut self, second: Option<u64>, tally: Tally) {
        match (second, self.newest) {
            (Some(second), Some(newest)) if second == newest => self.open[place(second)].add(tally),
            (Some(second), _) => self.count_elsewhere(second, tally),
            (None, _) => self.unplaced.add(tally),
        }
    }

    fn count_elsewhere(&mut self, second: u64, tally: Tally) {
        let Some(newest) = self.newest else {
            self.open.resize(OPEN, Tally::default());
            self.newest = Some(second);
            self.open[place(second)].add(tally);
            return;
        };
        if let Some((ahead, came)) = self.ahead.take() {
            if second.saturating_add(OPEN as u64) > ahead {
                // Two packets confirm it: time has moved on.
                self.go_on(ahead);
                self.open[place(ahead)].add(came);
                return self.count(Some(second), tally);
            }
            // The timestamp was wrong.
            self.unplaced.add(came);
        }
        if second >= newest.saturating_add(OPEN as u64) {
            self.ahead = Some((second, tally));
        } else if second > newest {
            self.go_on(second);
            self.open[place(second)].add(tally);
        } else if newest - second < OPEN as u64 {
            self.open[place(second)].add(tally);
        } else {
            self.unplaced.add(tally);
        }
    }

    /// Makes a later second the newest one, and closes seconds that are now too old.
    fn go_on(&mut self, second: u64) {
        for old in self.numbers() {
            if second - old >= OPEN as u64 {
                let came = std::mem::take(&mut self.open[place(old)]);
                self.retire(old, came);
            }
        }
        self.newest = Some(second);
    }

    /// The numbers of the open seconds, earliest first.
    fn numbers(&self) -> Range<u64> {
        self.newest.map_or(0..0, |newest| newest.saturating_sub(OPEN as u64 - 1)..newest + 1)
    }

    /// Closes a second within an open window.
    fn retire(&mut self, second: u64, came: Tally) {
        match self.start {
            _ if came.is_zero() => {}
            Some(Start { whole, .. }) if second >= whole => self.add(second, came),
            Some(Start { part, .. }) if part == Some(second) => {}
            Some(_) => self.unplaced.add(came),
            None => self.stretches.add(second, came),
        }
    }

    fn add(&mut self, second: u64, came: Tally) {
        self.cover(second..=second);
        self.rates.get_or_insert_default().add(came, SECOND);
    }

    fn cover(&mut self, seconds: RangeInclusive<u64>) {
        let (first, last) = self.counted.unwrap_or((*seconds.start(), *seconds.end()));
        self.counted = Some((first.min(*seconds.start()), last.max(*seconds.end())));
    }

    /// Ends the window and returns its rates. If another window follows immediately, seconds that have not ended stay
    /// open for it.
    pub fn close(&mut self, cut: &WindowSeconds) -> Rates {
        let &WindowSeconds { start, end, at_most, then } = cut;
        let Start { whole: start, part } = self.start.unwrap_or(start);
        if let Some((ahead, came)) = self.ahead.take() {
            // No packet followed that could show the timestamp to be wrong.
            self.go_on(ahead);
            self.open[place(ahead)].add(came);
        }
        let goes_on = then == Then::Window(end * NS) && self.newest.is_none_or(|newest| newest <= end + 1);
        let mut parts = Vec::new();
        let mut single = Vec::new();
        for stretch in self.stretches.take() {
            if stretch.last() < part.unwrap_or(start) || stretch.first.0 > end {
                self.unplaced.add(stretch.all());
                continue;
            }
            single.push(stretch.first);
            if let Some((last, rates)) = stretch.others {
                self.cover(stretch.first.0.clamp(start, last)..=last);
                self.rates.get_or_insert_default().and(&rates);
            }
        }
        single.extend(self.take_open(if goes_on { end } else { u64::MAX }));
        for (second, came) in single {
            if (start..end).contains(&second) {
                self.add(second, came);
            } else if second == end || part == Some(second) {
                parts.push(came);
            } else {
                self.unplaced.add(came);
            }
        }
        if !goes_on {
            self.newest = None;
        }
        self.start = match then {
            Then::Nothing => None,
            Then::Window(time_ns) => Some(Start::of(time_ns)),
        };
        let mut rates = self.rates.take().map_or_else(Rates::default, |rates| *rates);
        rates.unplaced = std::mem::take(&mut self.unplaced);
        let counted = self.counted.take().map_or(0, |(first, last)| last - first + 1);
        let window = end.saturating_sub(start);
        let known = if rates.unplaced.is_zero() { window } else { counted.min(window) };
        rates.fill_up_surely(known.min(at_most));
        if then == Then::Nothing {
            for came in parts {
                rates.add_part(came);
            }
        }
        rates
    }

    /// Removes and returns the counts of all open seconds before this one.
    fn take_open(&mut self, before: u64) -> Vec<(u64, Tally)> {
        let numbers = self.numbers().filter(|second| *second < before);
        let taken = numbers.map(|second| (second, std::mem::take(&mut self.open[place(second)])));
        taken.filter(|(_, came)| !came.is_zero()).collect()
    }
}

/// The index of an open second.
#[inline]
const fn place(second: u64) -> usize {
    second as usize % OPEN
}

/// Reads counters that only increase, once a second.
#[derive(Debug)]
pub struct Pulse {
    due: Duration,
    slots: Vec<Slot>,
}

/// The latest reading of one interface's counters.
#[derive(Debug)]
struct Slot {
    /// The time and value of the last reading. `None` before the first full second, because an incomplete second does
    /// not count.
    last: Option<(Duration, Tally)>,
    rates: Rates,
}

impl Slot {
    fn new(last: Option<(Duration, Tally)>) -> Self {
        Self { last, rates: Rates::default() }
    }

    /// Notes that a full second has ended. After a late reading, the rest of its second is part of the next one.
    fn look(&mut self, now: Duration, counters: impl FnOnce() -> Tally) {
        let Some((then, before)) = self.last else {
            self.last = Some((now, counters()));
            return;
        };
        let stretch = now.saturating_sub(then);
        if stretch >= LEAST {
            let counters = counters();
            self.rates.add(counters.since(before), stretch);
            self.last = Some((now, counters));
        }
    }
}

impl Pulse {
    /// `counters` are the values at this monotonic time, which is `since_second` after a full second.
    pub fn new(now: Duration, since_second: Duration, counters: Vec<Tally>) -> Self {
        let is_full = since_second <= EARLY;
        let slots = counters.into_iter().map(|first| Slot::new(is_full.then_some((now, first)))).collect();
        Self { due: next(now, since_second), slots }
    }

    /// The time until the next reading.
    pub const fn left(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// Reads the counters if it is time: `counters` returns those of a slot. Returns whether it was time.
    pub fn look(&mut self, now: Duration, since_second: Duration, counters: impl Fn(usize) -> Tally) -> bool {
        if now + EARLY < self.due {
            return false;
        }
        self.due = next(now, since_second);
        for (nth, slot) in self.slots.iter_mut().enumerate() {
            slot.look(now, || counters(nth));
        }
        true
    }

    /// Adds slots, up to this many.
    pub fn provide(&mut self, slots: usize) {
        let known = self.slots.len();
        self.slots.extend((known..slots).map(|_| Slot::new(None)));
    }

    /// Ends the window and returns the rates of each slot.
    pub fn close(&mut self) -> Vec<Rates> {
        self.slots.iter_mut().map(|slot| std::mem::take(&mut slot.rates)).collect()
    }
}

/// The time of the next full second. If the reading was slightly early for a full second, that second is skipped.
fn next(now: Duration, since_second: Duration) -> Duration {
    let left = SECOND.saturating_sub(since_second);
    now + if left <= EARLY { left + SECOND } else { left }
}

#[cfg(test)]
mod tests;
