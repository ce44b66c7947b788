//! The last seconds of each interface, in fixed memory.

use std::collections::VecDeque;

use weir_schema::{InterfaceSecond, Length, Second, Tally};

/// How many seconds are kept for each interface: the widest sparkline.
pub const SECONDS_MAX: usize = 240;
/// How many interfaces are kept: the most that weir measures.
const INTERFACES_MAX: usize = 256;

/// The rate of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Bits in a second.
    pub bits: f64,
    /// Packets in a second.
    pub packets: f64,
}

/// The rates of one interface in one direction.
#[derive(Clone, Debug)]
pub struct Line {
    /// The interface in the last second.
    pub last: InterfaceSecond,
    /// The rates, the latest at the end; `None` for a second without a reading.
    pub rates: VecDeque<Option<Rate>>,
}

/// All interfaces, in the order of the source.
#[derive(Clone, Debug, Default)]
pub struct History {
    lines: Vec<Line>,
}

impl History {
    /// Adds a second. Forgets interfaces that no longer exist.
    pub fn add(&mut self, second: &Second) {
        let mut before = std::mem::take(&mut self.lines);
        for interface in second.interfaces.iter().take(INTERFACES_MAX) {
            let nth = before.iter().position(|line| is_same(&line.last, interface));
            let mut line = match nth {
                Some(nth) => before.swap_remove(nth),
                None => Line { last: interface.clone(), rates: VecDeque::new() },
            };
            if nth.is_some() {
                for _ in 0..second.skipped.min(SECONDS_MAX as u64) {
                    line.push(None);
                }
            }
            line.push(interface.counted.and_then(|counted| Rate::of(counted, Length::new(second.seconds))));
            line.last = interface.clone();
            self.lines.push(line);
        }
    }

    /// Returns the lines of the interfaces.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

fn is_same(one: &InterfaceSecond, other: &InterfaceSecond) -> bool {
    one.name == other.name && one.direction == other.direction
}

impl Rate {
    /// The mean rate of so many packets and bytes in this time, if it has any.
    pub fn of(Tally { packets, bytes }: Tally, length: Length) -> Option<Self> {
        let seconds = length.seconds()?;
        Some(Self { bits: bytes as f64 * 8.0 / seconds, packets: packets as f64 / seconds })
    }
}

impl Line {
    fn push(&mut self, rate: Option<Rate>) {
        if self.rates.len() == SECONDS_MAX {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
    }

    /// The rate of the last second, if it is known.
    pub fn now(&self) -> Option<Rate> {
        self.rates.back().copied().flatten()
    }

    /// Reduces the line to at most this many rates, each the mean of a few.
    pub fn within(&self, columns: usize) -> VecDeque<Option<Rate>> {
        let each = self.rates.len().div_ceil(columns.max(1)).max(1);
        let rates: Vec<_> = self.rates.iter().copied().collect();
        rates.chunks(each).map(mean).collect()
    }

    /// The highest value of all kept seconds.
    pub fn most(&self, of: impl Fn(Rate) -> f64) -> f64 {
        self.rates.iter().flatten().map(|rate| of(*rate)).fold(0.0, f64::max)
    }
}

/// The mean of those that are known.
fn mean(rates: &[Option<Rate>]) -> Option<Rate> {
    let known = rates.iter().flatten();
    let count = known.clone().count() as f64;
    let sum = known
        .fold(Rate::default(), |sum, rate| Rate { bits: sum.bits + rate.bits, packets: sum.packets + rate.packets });
    (count > 0.0).then(|| Rate { bits: sum.bits / count, packets: sum.packets / count })
}

#[cfg(test)]
pub mod tests {
    use weir_schema::SECOND_SCHEMA;

    use super::*;

    /// A second with these interfaces: name, packets, bytes.
    pub fn second(time: i64, interfaces: &[(&str, u64, u64)]) -> Second {
        let time = jiff::Timestamp::from_second(time).unwrap();
        let interface = |&(name, packets, bytes): &(&str, u64, u64)| InterfaceSecond {
            name: name.to_owned(),
            direction: Some("ingress".to_owned()),
            mode: "xdp-native".to_owned(),
            counted: Some(Tally { packets, bytes }),
            total: None,
            lost: None,
            trouble: None,
        };
        Second {
            schema: SECOND_SCHEMA.to_owned(),
            time,
            seconds: 1.0,
            skipped: 0,
            window_start: time,
            last_report: None,
            interfaces: interfaces.iter().map(interface).collect(),
            troubles: Vec::new(),
        }
    }

    #[test]
    fn a_missed_second_is_unknown_and_not_zero() {
        let mut history = History::default();
        history.add(&second(1, &[("eth0", 10, 1000)]));
        let late = Second { skipped: 2, seconds: 2.0, ..second(4, &[("eth0", 10, 1000)]) };
        history.add(&late);
        let rates: Vec<_> = history.lines()[0].rates.iter().map(|rate| rate.map(|rate| rate.bits)).collect();
        assert_eq!(rates, [Some(8000.0), None, None, Some(4000.0)]);
        assert_eq!(history.lines()[0].now(), Some(Rate { bits: 4000.0, packets: 5.0 }));
        let mut unknown = second(5, &[("eth0", 10, 1000)]);
        unknown.interfaces[0].counted = None;
        history.add(&unknown);
        assert_eq!(history.lines()[0].now(), None);
    }

    #[test]
    fn a_time_of_many_steps_fits_few_columns_and_what_is_unknown_counts_for_nothing() {
        let rate = |packets| Some(Rate { bits: packets * 8.0, packets });
        let second = second(1, &[("eth0", 1, 1)]);
        let rates = [rate(1.0), rate(3.0), None, rate(5.0), None, None, rate(7.0)].into();
        let line = Line { last: second.interfaces[0].clone(), rates };
        assert_eq!(line.within(4), [rate(2.0), rate(5.0), None, rate(7.0)]);
        assert_eq!((line.within(7), line.within(0).len()), (line.rates.clone(), 1));
    }

    #[test]
    fn memory_is_fixed_and_vanished_interfaces_are_forgotten() {
        let mut history = History::default();
        for nth in 0..1000 {
            history.add(&second(nth, &[("eth0", nth as u64, 0), ("eth1", 1, 1)]));
        }
        assert_eq!(history.lines().len(), 2);
        assert_eq!(
            (history.lines()[0].rates.len(), history.lines()[0].most(|rate| rate.packets)),
            (SECONDS_MAX, 999.0)
        );
        history.add(&second(1000, &[("eth1", 1, 1)]));
        assert_eq!((history.lines().len(), history.lines()[0].rates.len()), (1, SECONDS_MAX));
    }
}
