//! The largest keys of a window, with their bounds.

use weir_common::{ledger::Tally, sketch::Metric};
use weir_sketch::Estimate;

/// The largest keys, in two orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranking<K> {
    /// The keys with the most bytes.
    pub by_bytes: Vec<Ranked<K>>,
    /// The keys with the most packets.
    pub by_packets: Vec<Ranked<K>>,
    /// The most bytes of a key that is not in `by_bytes`, and the most packets of one that is not in `by_packets`, if
    /// that is known.
    pub unlisted: Option<Tally>,
}

impl<K> Default for Ranking<K> {
    fn default() -> Self {
        Self { by_bytes: Vec::new(), by_packets: Vec::new(), unlisted: None }
    }
}

/// One of the largest keys, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked<K> {
    /// The key of the row.
    pub key: K,
    /// The packets of the key.
    pub packets: Estimate,
    /// The bytes of the key.
    pub bytes: Estimate,
    /// The sampled part. If the rate changed, packets that were taken at a lower rate count for less. `None` if every
    /// packet was taken.
    pub sampled: Option<Tally>,
}

impl<K> Ranked<K> {
    /// Returns the number for this metric.
    pub const fn estimate(&self, metric: Metric) -> Estimate {
        match metric {
            Metric::Packets => self.packets,
            Metric::Bytes => self.bytes,
        }
    }

    /// Returns the number for this metric, to change it.
    pub const fn estimate_mut(&mut self, metric: Metric) -> &mut Estimate {
        match metric {
            Metric::Packets => &mut self.packets,
            Metric::Bytes => &mut self.bytes,
        }
    }
}

/// Adds to a list that holds the first `top` by `order`, in that order. The list never holds more, because the memory
/// for the end of a window must not depend on the number of candidates. Returns the entry that the list does not hold
/// now: the new one, or the one whose place it took.
pub(super) fn keep_largest<T, O: Ord>(list: &mut Vec<T>, top: usize, new: T, order: impl Fn(&T) -> O) -> Option<T> {
    let place = list.partition_point(|kept| order(kept) < order(&new));
    if place >= top {
        return Some(new);
    }
    let left = if list.len() == top { list.pop() } else { None };
    list.insert(place, new);
    left
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;

    #[test]
    fn the_list_equals_the_first_of_all_sorted_keys_and_never_holds_more() {
        let numbers: Vec<u64> = (0..500).map(|n| n * 7919 % 500).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable_by_key(|n| Reverse(*n));
        for top in [0, 1, 10, 499, 1_000] {
            let mut kept = Vec::with_capacity(top);
            let capacity = kept.capacity();
            for n in &numbers {
                let full = kept.len() == top;
                let left = keep_largest(&mut kept, top, *n, |n| Reverse(*n));
                assert!(left.is_some() == full && left.is_none_or(|left| kept.iter().all(|kept| *kept > left)));
            }
            assert_eq!(kept, sorted[..top.min(500)]);
            assert_eq!(kept.capacity(), capacity);
        }
    }
}
