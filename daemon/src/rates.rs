//! Rates within a window: what an interface carried in each second.
//!
//! The counters of the kernel's programs are read once a second, at full seconds of the wall clock: [`Pulse`]. What was
//! counted between two looks, divided by the time between them, is the rate of that second. A look that comes late
//! makes a second longer: then it stands for as many seconds as it took, at their mean. Packets that weir itself
//! counts, those of captures and of packet sockets, are cut by their own times: [`Seconds`]. Either way each packet is
//! in one second.

use std::time::Duration;

use hdrhistogram::Histogram;
use weir_common::ledger::Tally;

/// A stretch shorter than this is no second yet.
const LEAST: Duration = Duration::from_millis(500);
/// A look may come so early: the end of a window and the end of its last second are known by two clocks.
const EARLY: Duration = Duration::from_millis(20);
/// Times of packets that go back by more are those of a clock that was set back.
const BACK_MAX: u64 = 2;
/// The largest rate that a histogram tells apart: ten terabytes a second.
const RATE_MAX: u64 = 10_000_000_000_000;

/// The rates of one interface in a window, each of one second.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Packets a second.
    pub packets: Histogram<u32>,
    /// Bytes a second.
    pub bytes: Histogram<u32>,
    /// The largest of them, exactly.
    pub most: Tally,
    /// The longest stretch that had to stand for one or more seconds.
    pub longest: Duration,
}

impl Default for Rates {
    fn default() -> Self {
        let histogram = || Histogram::new_with_max(RATE_MAX, 1).expect("the bounds are constant, and valid");
        Self { packets: histogram(), bytes: histogram(), most: Tally::default(), longest: Duration::ZERO }
    }
}

impl Rates {
    /// How many seconds.
    pub fn seconds(&self) -> u64 {
        self.bytes.len()
    }

    /// Adds a stretch of time, and what came in it.
    pub fn add(&mut self, came: Tally, stretch: Duration) {
        let seconds = stretch.as_secs_f64();
        let rate = |count: u64| (count as f64 / seconds).round() as u64;
        // What came within a second by its own time is not rounded.
        let rate = if seconds == 1.0 { came } else { Tally::new(rate(came.packets), rate(came.bytes)) };
        let times = (seconds.round() as u64).max(1);
        self.packets.saturating_record_n(rate.packets, times as u32);
        self.bytes.saturating_record_n(rate.bytes, times as u32);
        self.most = Tally::new(self.most.packets.max(rate.packets), self.most.bytes.max(rate.bytes));
        self.longest = self.longest.max(stretch);
    }

    /// Adds seconds in which nothing came, so that there are as many as the window has.
    pub fn fill_up(&mut self, seconds: u64) {
        self.add_silent(seconds.saturating_sub(self.seconds()));
    }

    fn add_silent(&mut self, seconds: u64) {
        if seconds > 0 {
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.packets.saturating_record_n(0, seconds);
            self.bytes.saturating_record_n(0, seconds);
            self.longest = self.longest.max(Duration::from_secs(1));
        }
    }

    /// Takes over what another source knows of the same interface. Only one of them saw its packets.
    pub fn merge(&mut self, other: Self) {
        if self.most.is_zero() && (!other.most.is_zero() || other.seconds() > self.seconds()) {
            *self = other;
        }
    }
}

/// The second in which packets come, by their own times.
#[derive(Clone, Debug, Default)]
pub struct Seconds {
    rates: Option<Box<Rates>>,
    /// The second since 1970 that is open, and what came in it.
    open: u64,
    came: Tally,
}

impl Seconds {
    /// Counts packets of a second since 1970. Packets that come late belong to the open one.
    #[inline]
    pub fn count(&mut self, second: u64, tally: Tally) {
        if second > self.open {
            self.cut();
            if let Some(rates) = &mut self.rates {
                rates.add_silent(second - self.open - 1);
            }
            self.open = second;
        } else if self.open - second > BACK_MAX {
            self.cut();
            self.open = second;
        }
        self.came.add(tally);
    }

    fn cut(&mut self) {
        let came = std::mem::take(&mut self.came);
        if !came.is_zero() {
            self.rates.get_or_insert_default().add(came, Duration::from_secs(1));
        }
    }

    /// The window is over. Packets of its last second that come later belong to the next second.
    pub fn close(&mut self) -> Rates {
        self.cut();
        self.open += 1;
        self.rates.take().map_or_else(Rates::default, |rates| *rates)
    }
}

/// Looks at counters that only rise, once a second.
#[derive(Debug)]
pub struct Pulse {
    looked: Duration,
    due: Duration,
    /// What each slot's counters said at the last look.
    said: Vec<Tally>,
    rates: Vec<Rates>,
}

impl Pulse {
    /// At this monotonic time, so long after a full second, the counters say `said`.
    pub fn new(now: Duration, since_second: Duration, said: Vec<Tally>) -> Self {
        let rates = vec![Rates::default(); said.len()];
        Self { looked: now, due: next(now, since_second), said, rates }
    }

    /// How long until the next look.
    pub const fn left(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// Takes a look, if it is time: `says` reads a slot's counters.
    pub fn look(&mut self, now: Duration, since_second: Duration, mut says: impl FnMut(usize) -> Tally) {
        if now + EARLY < self.due {
            return;
        }
        self.due = next(now, since_second);
        let stretch = now.saturating_sub(self.looked);
        if stretch < LEAST {
            // The first second began shortly before its end: it is a part of the next one.
            return;
        }
        self.looked = now;
        for (slot, (said, rates)) in self.said.iter_mut().zip(&mut self.rates).enumerate() {
            let says = says(slot);
            rates.add(says.since(*said), stretch);
            *said = says;
        }
    }

    /// Follows more slots, whose counters say this much; `says` reads them.
    pub fn provide(&mut self, slots: usize, says: impl FnMut(usize) -> Tally) {
        self.said.extend((self.said.len()..slots).map(says));
        self.rates.resize_with(self.said.len(), Rates::default);
    }

    /// The window is over: the rates of each slot.
    pub fn close(&mut self) -> Vec<Rates> {
        let empty = vec![Rates::default(); self.rates.len()];
        std::mem::replace(&mut self.rates, empty)
    }
}

/// When the next full second is; not the one that a look came early for.
fn next(now: Duration, since_second: Duration) -> Duration {
    let left = Duration::from_secs(1).saturating_sub(since_second);
    now + if left <= EARLY { left + Duration::from_secs(1) } else { left }
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

    #[test]
    fn packets_are_cut_by_their_own_seconds() {
        let mut seconds = Seconds::default();
        for (second, packets) in [(100, 3), (100, 4), (103, 5), (102, 1), (104, 2)] {
            seconds.count(second, tally(packets));
        }
        let mut rates = seconds.close();
        // Seven, nothing twice, six with the one that came late, and two.
        assert_eq!((rates.seconds(), rates.most, rates.packets.count_at(0)), (5, tally(7), 2));
        rates.fill_up(7);
        assert_eq!((rates.seconds(), rates.packets.count_at(0), rates.longest), (7, 4, ms(1_000)));
        // One that belongs to the second that was reported, and the clock is set back.
        seconds.count(104, tally(9));
        seconds.count(105, tally(9));
        seconds.count(50, tally(8));
        assert_eq!((seconds.close().most, seconds.close().seconds()), (tally(18), 0));
    }

    #[test]
    fn counters_are_looked_at_at_full_seconds() {
        let mut pulse = Pulse::new(ms(10_300), ms(700), vec![tally(50), tally(0)]);
        assert_eq!(pulse.left(ms(10_400)), ms(200));
        pulse.look(ms(10_570), ms(970), |_| unreachable!("it is not time yet"));
        // After 300 ms: that is no second.
        pulse.look(ms(10_600), ms(0), |_| tally(70));
        assert_eq!((pulse.rates[0].seconds(), pulse.left(ms(10_600))), (0, ms(1_000)));
        pulse.look(ms(11_600), ms(0), |slot| if slot == 0 { tally(50 + 130) } else { tally(13) });
        // 50 ms late: it is a longer second.
        pulse.look(ms(12_650), ms(50), |slot| if slot == 0 { tally(180 + 210) } else { tally(13) });
        assert_eq!(pulse.left(ms(12_650)), ms(950));
        let rates = pulse.close();
        // 130 packets in 1,300 ms; the first second was none.
        assert_eq!((rates[0].seconds(), rates[0].most, rates[0].longest), (2, tally(200), ms(1_300)));
        assert_eq!((rates[1].packets.min(), rates[1].most), (0, tally(10)));
        // The window ends a little before its last second does.
        pulse.look(ms(13_595), ms(995), |_| tally(1_000));
        assert_eq!((pulse.close()[0].seconds(), pulse.left(ms(13_595))), (1, ms(1_005)));
        assert_eq!(pulse.close()[0].seconds(), 0);
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
