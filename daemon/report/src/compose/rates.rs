//! Makes the distribution of an interface's rates in each second of a window.

use hdrhistogram::Histogram as Recorded;
use weir_common::ledger::Tally;
use weir_datapath::{interface::MeasuredInterface, rates::Rates};
use weir_schema::{Histogram, InterfaceRates};

/// The rates of a window of this many seconds. `None` if it had no full second, or if the counters were not read.
pub(super) fn of_interface(
    interface: &MeasuredInterface,
    rates: &Rates,
    seen: Tally,
    seconds: u64,
) -> Option<InterfaceRates> {
    if rates.most.is_zero() && !seen.is_zero() {
        return None;
    }
    let mut rates = rates.clone();
    rates.fill_up(seconds);
    if rates.seconds() == 0 {
        return None;
    }
    Some(InterfaceRates {
        interface: interface.name.clone(),
        direction: interface.direction.map(str::to_owned),
        unplaced: (!rates.unplaced.is_zero()).then(|| rates.unplaced.into()),
        longest_second: (rates.longest.as_secs_f64() * 1000.0).round() / 1000.0,
        packets: distribution(&rates.packets, [rates.least.packets, rates.most.packets]),
        bytes: distribution(&rates.bytes, [rates.least.bytes, rates.most.bytes]),
    })
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
