//! The rates of interfaces in each second, in a report.

use hdrhistogram::Histogram as Recorded;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_datapath::{interface::MeasuredInterface, rates::Rates};
use weir_system::numbers::scaled;

use weir_common::ledger::Tally;

use super::{
    Histogram,
    grid::{
        Align::{Left, Right},
        Cell, Grid,
        Tone::Faint,
    },
};

/// The traffic of one interface in each second of the window. It shows bursts that the mean of the window hides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceRates {
    /// The interface's name. For a replay this is the name of the capture.
    pub interface: String,
    /// `ingress` or `egress`; absent for a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// The longest time between two readings of the counters, in seconds: 1, unless the daemon was delayed. The rate of
    /// a longer time is its mean, so a short burst within it may have been higher.
    #[schemars(range(min = 0))]
    pub longest_second: f64,
    /// Packets that are in no second, because they came more than a minute after others or have no time. One second may
    /// have had this much more. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplaced: Option<super::Tally>,
    /// Packets per second: the number of seconds, and their distribution. `min` and `max` are exact.
    pub packets: Histogram,
    /// Bytes per second, likewise.
    pub bytes: Histogram,
}

impl InterfaceRates {
    /// The rates of a window of this many seconds. `None` if it had no full second, or if the counters were not read.
    pub(super) fn new(interface: &MeasuredInterface, rates: &Rates, seen: Tally, seconds: u64) -> Option<Self> {
        if rates.most.is_zero() && !seen.is_zero() {
            return None;
        }
        let mut rates = rates.clone();
        rates.fill_up(seconds);
        if rates.seconds() == 0 {
            return None;
        }
        Some(Self {
            interface: interface.name.clone(),
            direction: interface.direction.map(str::to_owned),
            unplaced: (!rates.unplaced.is_zero()).then(|| rates.unplaced.into()),
            longest_second: (rates.longest.as_secs_f64() * 1000.0).round() / 1000.0,
            packets: distribution(&rates.packets, [rates.least.packets, rates.most.packets]),
            bytes: distribution(&rates.bytes, [rates.least.bytes, rates.most.bytes]),
        })
    }
}

/// A distribution of rates whose minimum and maximum are exact. Buckets end at powers of two, minus one.
fn distribution(recorded: &Recorded<u32>, [min, max]: [u64; 2]) -> Histogram {
    let quantile = |share| recorded.value_at_quantile(share).clamp(min, max);
    let (mut buckets, mut low) = (Vec::new(), 0);
    for power in 0..u64::BITS - 1 {
        if low > max {
            break;
        }
        let high = (1_u64 << power) - 1;
        let seconds = recorded.count_between(low, high);
        if seconds > 0 {
            buckets.push((high, seconds));
        }
        low = high + 1;
    }
    Histogram { count: recorded.len(), min, p50: quantile(0.5), p90: quantile(0.9), p99: quantile(0.99), max, buckets }
}

/// A line for each interface: its median second, the 90th percentile, and its busiest second.
pub(super) fn grid(rates: &[InterfaceRates]) -> Grid {
    let mut grid = Grid::new([Left, Left, Right, Right, Right, Right, Right, Right]).with_optional(3);
    let captions = ["", "", "median", "90 %", "max", "median", "90 %", "max"];
    grid.row(captions.map(|caption| Cell::new(caption, Faint)));
    for InterfaceRates { interface, direction, longest_second: _, unplaced: _, packets, bytes } in rates {
        let bits = |bytes: u64| scaled(bytes as f64 * 8.0, "bit/s");
        let each = |packets: u64| scaled(packets as f64, "pkt/s");
        let name = [interface.clone(), direction.clone().unwrap_or_default()];
        let numbers = [
            bits(bytes.p50),
            bits(bytes.p90),
            bits(bytes.max),
            each(packets.p50),
            each(packets.p90),
            each(packets.max),
        ];
        grid.row(name.into_iter().chain(numbers).map(Cell::from));
    }
    grid
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_second_is_in_one_bucket_and_the_largest_is_exact() {
        let mut rates = Rates::default();
        for bytes in [1, 1_000, 1_003, 70_001, 123_456_789] {
            rates.add(Tally::new(1, bytes), Duration::from_secs(1));
        }
        rates.fill_up(7);
        let Histogram { count, min, p50, p90: _, p99: _, max, buckets } =
            distribution(&rates.bytes, [rates.least.bytes, rates.most.bytes]);
        assert_eq!((count, min, max), (7, 0, 123_456_789));
        assert!((900..1_100).contains(&p50), "{p50}");
        assert_eq!(buckets.iter().map(|(_, seconds)| seconds).sum::<u64>(), 7);
        assert!(buckets.is_sorted() && buckets[0] == (0, 2) && buckets.last().unwrap().0 >= max, "{buckets:?}");
    }
}
