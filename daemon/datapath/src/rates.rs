//! Rates within a window: what an interface carried in each second.
//!
//! The counters of the kernel programs are read once a second, at full seconds of the wall clock: [`Pulse`]. The rate
//! of a second is what was counted between two readings, divided by the time between them. A late reading makes a
//! second longer: it then stands for several seconds, each at the mean rate. Packets that weir itself counts, from
//! captures and packet sockets, belong to the second of their own timestamp, in whichever order they arrive:
//! [`Seconds`].

use std::{ops::Range, time::Duration};

use hdrhistogram::Histogram;
use weir_common::ledger::Tally;

/// A shorter stretch does not count as a second.
const LEAST: Duration = Duration::from_millis(900);
const SECOND: Duration = Duration::from_secs(1);
/// A reading may be this early: the end of a window and the end of its last second come from two clocks.
const EARLY: Duration = Duration::from_millis(20);
/// How many seconds are open at once. A packet that arrives later than that is attributed to no second.
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
    /// Packets a second.
    pub packets: Histogram<u32>,
    /// Bytes a second.
    pub bytes: Histogram<u32>,
    /// The largest rates, exactly.
    pub most: Tally,
    /// The smallest rates, exactly; meaningless while there are none.
    pub least: Tally,
    /// Packets that belong to no second: they arrived too late for it, or have no timestamp.
    pub unplaced: Tally,
    /// The longest stretch that was counted as one or more seconds.
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

    /// Adds a stretch of time and what was counted in it. A stretch of slightly less than a second is not scaled up:
    /// nobody knows whether more came in the rest.
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

    /// Adds silent seconds until there are this many. Adds none if it is unknown in which seconds some of the packets
    /// came.
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

    /// Adds a partly known second, unless it is below the smallest rate: that would be a false minimum.
    fn add_part(&mut self, came: Tally) {
        if self.seconds() > 0 && came.packets >= self.least.packets && came.bytes >= self.least.bytes {
            self.add(came, SECOND);
        }
    }

    /// Takes over the rates of another source of the same interface. Only one of the two saw its packets.
    pub fn merge(&mut self, other: Self) {
        if self.most.is_zero() && (!other.most.is_zero() || other.seconds() > self.seconds()) {
            let unplaced = self.unplaced;
            *self = other;
            self.unplaced.add(unplaced);
        }
    }
}

/// Which seconds belong to a window that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Where the window began, if that is not known from the window before.
    start: Start,
    /// The first second that has not ended.
    end: u64,
    /// At most this many seconds have passed, whatever the clock says.
    at_most: u64,
    /// What follows the window.
    then: Then,
}

/// What follows a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing. The window began with its first packet and ended with its last one, so its first and last seconds may
    /// be incomplete.
    Nothing,
    /// Another window, which begins at this time.
    Window(u64),
}

/// Where a window begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    /// Its first whole second.
    whole: u64,
    /// The second of which the window has only the end.
    part: Option<u64>,
}

impl Start {
    const fn of(time_ns: u64) -> Self {
        let part = if time_ns.is_multiple_of(NS) { None } else { Some(time_ns / NS) };
        Self { whole: time_ns.div_ceil(NS), part }
    }
}

impl Cut {
    /// For a window of which only the end is known: the time, and how much time has passed. The next one follows at
    /// once.
    pub fn at(end_ns: u64, passed: Duration) -> Self {
        // The two clocks differ a little.
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

/// Counts packets by the second of their own timestamps. Several seconds are open at once: packets of several captures
/// or sockets do not arrive in the order of their timestamps.
#[derive(Clone, Debug, Default)]
pub struct Seconds {
    /// Where the window begins, if not at its first packet.
    start: Option<Start>,
    /// The latest open second.
    newest: Option<u64>,
    /// What was counted in each open second, at its number modulo [`OPEN`]. Empty before the first packet.
    open: Vec<Tally>,
    /// A second far ahead of the open ones, and what was counted in it. If the next packet is not much earlier, time
    /// has moved on to there; otherwise the timestamp was wrong.
    ahead: Option<(u64, Tally)>,
    /// The first second of the window, once it is closed; it may be incomplete.
    first: Option<(u64, Tally)>,
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

    /// Counts packets of a second since 1970; `None` if they have no timestamp.
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
                // Time has moved on to there.
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

    /// Makes a later second the newest one, and closes those that are now too old.
    fn go_on(&mut self, second: u64) {
        for old in self.numbers() {
            if second - old >= OPEN as u64 {
                let came = std::mem::take(&mut self.open[place(old)]);
                self.retire(old, came);
            }
        }
        self.newest = Some(second);
    }

    /// The open seconds, the earliest first.
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
            None if self.first.is_none() => self.first = Some((second, came)),
            None => self.add(second, came),
        }
    }

    fn add(&mut self, second: u64, came: Tally) {
        let (first, last) = self.counted.unwrap_or((second, second));
        self.counted = Some((first.min(second), last.max(second)));
        self.rates.get_or_insert_default().add(came, SECOND);
    }

    /// Ends the window and returns its rates. If another window follows at once, seconds that have not ended stay open
    /// for it.
    pub fn close(&mut self, cut: &Cut) -> Rates {
        let &Cut { start, end, at_most, then } = cut;
        let Start { whole: start, part } = self.start.unwrap_or(start);
        if let Some((ahead, came)) = self.ahead.take() {
            // Nothing came after it.
            self.go_on(ahead);
            self.open[place(ahead)].add(came);
        }
        let goes_on = then == Then::Window(end * NS) && self.newest.is_none_or(|newest| newest <= end + 1);
        let mut parts = Vec::new();
        for (second, came) in self.first.take().into_iter().chain(self.take_open(if goes_on { end } else { u64::MAX }))
        {
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
        let known = if rates.unplaced.is_zero() { end.saturating_sub(start) } else { counted };
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

/// One interface's counters.
#[derive(Debug)]
struct Slot {
    /// The time and value of the last reading. `None` before the first full second, because a part of a second does not
    /// count.
    looked: Option<(Duration, Tally)>,
    rates: Rates,
}

impl Slot {
    fn new(looked: Option<(Duration, Tally)>) -> Self {
        Self { looked, rates: Rates::default() }
    }

    /// A full second has ended. After a late reading, the rest of its second counts as a part of the next one.
    fn look(&mut self, now: Duration, says: impl FnOnce() -> Tally) {
        let Some((then, said)) = self.looked else {
            self.looked = Some((now, says()));
            return;
        };
        let stretch = now.saturating_sub(then);
        if stretch >= LEAST {
            let says = says();
            self.rates.add(says.since(said), stretch);
            self.looked = Some((now, says));
        }
    }
}

impl Pulse {
    /// `said` are the counters at this monotonic time, which is `since_second` after a full second.
    pub fn new(now: Duration, since_second: Duration, said: Vec<Tally>) -> Self {
        let is_full = since_second <= EARLY;
        let slots = said.into_iter().map(|said| Slot::new(is_full.then_some((now, said)))).collect();
        Self { due: next(now, since_second), slots }
    }

    /// How long until the next reading.
    pub const fn left(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// Reads the counters if it is time: `says` returns those of a slot.
    pub fn look(&mut self, now: Duration, since_second: Duration, says: impl Fn(usize) -> Tally) {
        if now + EARLY < self.due {
            return;
        }
        self.due = next(now, since_second);
        for (nth, slot) in self.slots.iter_mut().enumerate() {
            slot.look(now, || says(nth));
        }
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

/// When the next full second is. If the reading was early for a full second, that one is skipped.
fn next(now: Duration, since_second: Duration) -> Duration {
    let left = SECOND.saturating_sub(since_second);
    now + if left <= EARLY { left + SECOND } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn tally(packets: u64) -> Tally {
        Tally::new(packets, packets * 100)
    }

    const NS_PER_MS: u64 = 1_000_000;

    /// The seconds of a window between these times in milliseconds; the next one follows at once.
    fn window(start_ms: u64, end_ms: u64) -> Cut {
        Cut::of(start_ms * NS_PER_MS, end_ms * NS_PER_MS, Then::Window(end_ms * NS_PER_MS))
    }

    /// The seconds of a single window that has everything.
    fn all(start_ms: u64, end_ms: u64) -> Cut {
        Cut::of(start_ms * NS_PER_MS, end_ms * NS_PER_MS, Then::Nothing)
    }

    fn counted(packets: impl IntoIterator<Item = (u64, u64)>) -> Seconds {
        let mut seconds = Seconds::default();
        for (second, packets) in packets {
            seconds.count(Some(second), tally(packets));
        }
        seconds
    }

    /// The number of seconds, the fewest and the most packets in one, and the packets that are in none.
    fn sums(rates: &Rates) -> [u64; 4] {
        [rates.seconds(), rates.least.packets, rates.most.packets, rates.unplaced.packets]
    }

    #[test]
    fn packets_are_in_their_own_seconds_in_whichever_order_they_come() {
        // Two sources, one of which lags by this many seconds.
        for lag in [0, 1, 3, OPEN as u64 - 1] {
            let times =
                (0..200 + lag).flat_map(|second| [(1_000 + second, 50), ((1_000 + second).wrapping_sub(lag), 50)]);
            let times = times.filter(|(second, _)| (1_000..1_200).contains(second));
            let mut seconds = counted(times);
            assert_eq!(sums(&seconds.close(&window(1_000_000, 1_200_000))), [200, 100, 100, 0], "{lag} s");
        }
        let mut seconds = counted([(100, 3), (100, 4), (103, 5), (102, 1), (104, 2)]);
        let rates = seconds.close(&window(100_000, 107_000));
        assert_eq!((sums(&rates), rates.packets.count_at(0), rates.longest), ([7, 0, 7, 0], 3, ms(1_000)));
    }

    #[test]
    fn what_is_later_than_all_open_seconds_is_in_none_and_nothing_is_said_of_silence_then() {
        let late = OPEN as u64;
        let mut seconds = counted([(1_000, 7), (1_001, 7), (1_020, 7), (1_002 + late, 7), (1_001, 5), (1_003, 1)]);
        let rates = seconds.close(&window(900_000, 1_100_000));
        // From the first to the last second with a known count.
        assert_eq!(sums(&rates), [late + 3, 0, 7, 5]);
        let mut rates = rates;
        rates.fill_up(200);
        assert_eq!(rates.seconds(), late + 3, "of the others nobody knows");
    }

    #[test]
    fn a_packet_without_a_time_is_in_no_second() {
        let mut seconds = counted([(1_000, 7), (1_001, 6)]);
        seconds.count(None, tally(100));
        assert_eq!(sums(&seconds.close(&window(1_000_000, 1_002_000))), [2, 6, 7, 100]);
        assert_eq!(sums(&seconds.close(&window(1_002_000, 1_004_000)))[..], [2, 0, 0, 0], "that was the window before");
    }

    #[test]
    fn one_wrong_time_costs_no_more_than_its_packet() {
        for wrong in [0, 5_000_000_000] {
            let times = [(1_000, 5), (1_001, 5), (wrong, 1), (1_002, 5), (1_003, 5)];
            let (first, last) = (1_000.min(wrong), 1_004.max(wrong + 1));
            let rates = counted(times).close(&all(first * 1_000, last * 1_000));
            assert_eq!(sums(&rates), [4, 5, 5, 1], "{wrong}");
        }
        // Where time moved on, there was silence.
        let mut seconds = counted([(1_000, 5), (9_000, 5), (9_001, 6)]);
        assert_eq!(sums(&seconds.close(&window(1_000_000, 9_002_000))), [8_002, 0, 6, 0]);
        let mut seconds = counted([(1_000, 5), (9_001, 6), (9_000, 5)]);
        assert_eq!(sums(&seconds.close(&window(1_000_000, 9_002_000))), [8_002, 0, 6, 0]);
        let mut last = counted([(1_000, 5), (9_000, 5)]);
        assert_eq!(sums(&last.close(&window(1_000_000, 9_001_000))), [8_001, 0, 5, 0]);
    }

    #[test]
    fn pauses_between_single_packets_are_silence() {
        for pause in [OPEN as u64 - 1, OPEN as u64, 100, 1_000] {
            let mut quiet = counted((0..10).map(|nth| (1_000 + nth * pause, 1)));
            let rates = quiet.close(&all(1_000_000, (1_001 + 9 * pause) * 1_000));
            assert_eq!(sums(&rates), [9 * pause + 1, 0, 1, 0], "{pause} s");
            assert_eq!(rates.packets.count_at(1), 10, "{pause} s");
        }
    }

    #[test]
    fn packets_less_than_all_open_seconds_late_are_in_their_own() {
        for lag in [1, 59, OPEN as u64 - 1] {
            let (ahead, late) = (1_005 + OPEN as u64, 1_005 + OPEN as u64 - lag);
            let times = [(1_000, 1), (1_005, 1), (ahead, 1), (late, 1), (ahead + 10, 1)];
            let rates = counted(times).close(&all(1_000_000, (ahead + 11) * 1_000));
            assert_eq!(sums(&rates), [ahead + 11 - 1_000, 0, 1, 0], "{lag} s");
        }
    }

    #[test]
    fn a_part_of_a_second_is_no_second() {
        // Half of the first and last seconds.
        let times = [(100, 5), (101, 10), (102, 10), (103, 5)];
        assert_eq!(sums(&counted(times).close(&window(100_500, 103_500))), [2, 10, 10, 0]);
        assert_eq!(sums(&counted(times).close(&all(100_500, 103_500))), [2, 10, 10, 0]);
        // But if the last packet of a capture comes shortly before the end of its second, that second counts.
        let even = [(100, 10), (101, 10), (102, 11), (103, 10)];
        assert_eq!(sums(&counted(even).close(&all(100_000, 103_990))), [4, 10, 11, 0]);
        assert_eq!(counted([(100, 10), (101, 10)]).close(&all(100_400, 101_600)).seconds(), 0, "none is whole");
        // The first second may end long before the window does.
        let long = (100..300).map(|second| (second, if second == 100 { 5 } else { 10 }));
        assert_eq!(sums(&counted(long).close(&all(100_500, 300_000))), [199, 10, 10, 0]);
    }

    #[test]
    fn the_second_of_a_packet_socket_is_in_one_window_though_this_ends_a_little_late() {
        let mut seconds = Seconds::default();
        seconds.begin(100 * NS + 300_000_000);
        let mut read = |times: &[(u64, u64)], end_ms: u64, passed_ms: u64| {
            for (second, packets) in times {
                seconds.count(Some(*second), tally(*packets));
            }
            sums(&seconds.close(&Cut::at(end_ms * NS_PER_MS, ms(passed_ms))))
        };
        // The socket was opened within the first second, and read 4 ms into the next window.
        assert_eq!(read(&[(100, 9), (101, 10), (102, 10), (103, 1)], 103_004, 2_704), [2, 10, 10, 0]);
        assert_eq!(read(&[(103, 9), (104, 10)], 105_001, 1_997), [2, 10, 10, 0]);
        // By the clock, the window has not quite ended.
        assert_eq!(read(&[(105, 10)], 105_999, 998), [1, 10, 10, 0]);
        assert_eq!(read(&[(105, 1), (106, 10)], 107_000, 1_001), [1, 10, 10, 1], "one was read too late");
        // The clock jumps an hour forward: these seconds did not pass.
        assert_eq!(read(&[(107, 10), (3_707, 10), (3_708, 10)], 3_709_000, 3_000), [3, 10, 10, 0]);
        // It jumps back: nothing is known of what came after that.
        assert_eq!(read(&[(3_709, 10), (110, 10), (111, 10)], 112_000, 3_000), [0, u64::MAX, 0, 30]);
        assert_eq!(read(&[(112, 10), (113, 10)], 114_000, 2_000), [2, 10, 10, 0], "time goes on");
    }

    #[test]
    fn counters_are_looked_at_at_full_seconds() {
        let mut pulse = Pulse::new(ms(10_300), ms(700), vec![tally(50), tally(0)]);
        assert_eq!(pulse.left(ms(10_400)), ms(200));
        pulse.look(ms(10_570), ms(970), |_| unreachable!("it is not time yet"));
        // What came in the 300 ms before belongs to no second.
        pulse.look(ms(10_600), ms(0), |slot| if slot == 0 { tally(70) } else { tally(3) });
        assert_eq!((pulse.slots[0].rates.seconds(), pulse.left(ms(10_600))), (0, ms(1_000)));
        pulse.look(ms(11_600), ms(0), |slot| if slot == 0 { tally(70 + 130) } else { tally(13) });
        // 50 ms late: a longer second.
        pulse.look(ms(12_650), ms(50), |slot| if slot == 0 { tally(200 + 210) } else { tally(13) });
        assert_eq!(pulse.left(ms(12_650)), ms(950));
        let rates = pulse.close();
        assert_eq!((rates[0].seconds(), rates[0].most, rates[0].longest), (2, tally(200), ms(1_050)));
        assert_eq!((rates[1].packets.min(), rates[1].most), (0, tally(10)));
        // The window ends slightly before its last second does.
        pulse.look(ms(13_595), ms(995), |_| tally(1_000));
        assert_eq!((pulse.close()[0].seconds(), pulse.left(ms(13_595))), (1, ms(1_005)));
        assert_eq!(pulse.close()[0].seconds(), 0);
    }

    #[test]
    fn nothing_is_scaled_up() {
        // Started 895 ms before a full second, with a burst at once: that part does not count as a second.
        let mut started = Pulse::new(ms(105), ms(105), vec![tally(0)]);
        started.look(ms(1_000), ms(0), |_| tally(1_000));
        started.look(ms(2_000), ms(0), |_| tally(1_000));
        assert_eq!(sums(&started.close()[0])[..3], [1, 0, 0]);
        // A reading comes 460 ms late: the rest of its second is a part of the next one, at the mean rate of both.
        let mut held_up = Pulse::new(ms(0), ms(0), vec![tally(0)]);
        held_up.look(ms(1_460), ms(460), |_| tally(0));
        held_up.look(ms(2_000), ms(0), |_| tally(1_000));
        held_up.look(ms(3_000), ms(0), |_| tally(1_000));
        assert_eq!(sums(&held_up.close()[0])[..3], [3, 0, 649]);
        // A little less than a second counts as it is.
        let mut jitter = Pulse::new(ms(0), ms(0), vec![tally(0)]);
        jitter.look(ms(1_060), ms(60), |_| tally(0));
        jitter.look(ms(2_000), ms(0), |_| tally(1_000));
        assert_eq!(sums(&jitter.close()[0])[..3], [2, 0, 1_000]);
    }

    #[test]
    fn an_interface_that_comes_begins_with_its_first_whole_second() {
        let mut pulse = Pulse::new(ms(0), ms(0), vec![tally(0)]);
        pulse.provide(2);
        pulse.look(ms(1_000), ms(0), |slot| tally(if slot == 0 { 5 } else { 700 }));
        pulse.look(ms(2_000), ms(0), |slot| tally(if slot == 0 { 10 } else { 900 }));
        let rates = pulse.close();
        assert_eq!((sums(&rates[0])[..3].to_vec(), sums(&rates[1])[..3].to_vec()), (vec![2, 5, 5], vec![1, 200, 200]));
    }

    #[test]
    fn a_look_that_is_seconds_late_stands_for_all_of_them_at_their_mean() {
        let mut pulse = Pulse::new(ms(0), ms(0), vec![tally(0)]);
        pulse.look(ms(3_000), ms(0), |_| tally(300));
        let rates = &pulse.close()[0];
        assert_eq!((rates.seconds(), rates.most, rates.longest), (3, tally(100), ms(3_000)));
    }

    #[test]
    fn who_saw_packets_knows_better() {
        let (mut silent, mut busy) = (Rates::default(), Rates::default());
        silent.fill_up(10);
        busy.add(tally(5), ms(1_000));
        let mut one = silent.clone();
        one.merge(busy.clone());
        assert_eq!(one, busy);
        one.merge(silent.clone());
        assert_eq!(one, busy);
        let mut nothing = Rates::default();
        nothing.merge(silent.clone());
        assert_eq!(nothing, silent);
    }
}
