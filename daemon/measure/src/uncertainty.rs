//! How far the true numbers of a window may differ from those of its records: packets were lost or left out by
//! sampling, or the number of packets in a buffer is unknown.
//!
//! A lost packet may have any key, also one that no record has. The packets of a buffer have the same key. So a buffer
//! widens the bounds of packets and bytes, but neither counts of distinct keys nor bounds of keys that nobody saw.

use weir_common::{ledger::Tally, sketch::Metric};
use weir_sketch::Estimate;

use super::{
    heavy_hitters::KeyEstimate,
    ranking::Ranked,
    sampling_error::{Sampling, SamplingError},
    whole::Whole,
};

/// The uncertainty about a window's packets.
#[derive(Clone, Debug)]
pub struct Uncertainty {
    /// An upper bound of missing packets that were never drawn.
    pub lost: Tally,
    /// Packets and bytes that buffers may have beyond their counts.
    pub in_buffers: Tally,
    /// Missing packets that were drawn. Each stands for as many as the sampling rate says.
    pub drawn: Tally,
    /// Unknown packets: each may belong to one more address or flow.
    pub unknown: u64,
    /// An upper bound of new flows that no view counted, because the filter of seen flows mistook them for known ones
    /// or their packets are unknown.
    pub missed_flows: u64,
    /// The sampling, if there was any.
    pub sampling: Option<Sampling>,
    /// The whole of numbers that are fed once.
    pub once: Whole,
    /// The whole of numbers that all interfaces feed.
    pub everywhere: Whole,
    /// The whole of each interface slot.
    pub slots: Vec<Whole>,
    /// The probability that all bounds of a view hold.
    pub confidence: f64,
}

/// The uncertainty about the packets of one view.
#[derive(Clone)]
pub struct ViewUncertainty {
    lost: Tally,
    in_buffers: Tally,
    drawn: Tally,
    /// The sum of all records of the view, scaled by their sampling rates. It is an upper bound for each key.
    total: Tally,
    sampling: Option<SamplingError>,
    whole: Whole,
}

impl Uncertainty {
    /// Returns true if a true number may differ from that of the records.
    pub fn is_some(&self) -> bool {
        !self.in_buffers.is_zero() || self.sampling.is_some() || !self.lost.is_zero() || !self.drawn.is_zero()
    }

    /// The most packets that may each have another key, in a view whose records are fed once, or by all interfaces.
    pub const fn most_keys(&self, is_fed_by_all: bool) -> u64 {
        self.whole(is_fed_by_all).most.packets.saturating_sub(self.in_buffers.packets)
    }

    /// The whole of a view whose records are fed once, or by all interfaces.
    pub const fn whole(&self, is_fed_by_all: bool) -> Whole {
        if is_fed_by_all { self.everywhere } else { self.once }
    }

    /// The uncertainty of a view of this whole. Its records add up to `total`, and each counts for `keys` keys.
    pub fn of_view(&self, whole: Whole, total: Tally, keys: u64) -> ViewUncertainty {
        let sampling = self.sampling.map(|sampling| {
            let all = Tally::new(sampling.total.packets * keys, sampling.total.bytes * keys);
            SamplingError::new(Sampling { total: all, ..sampling }, self.confidence)
        });
        let &Self { lost, in_buffers, drawn, .. } = self;
        ViewUncertainty { lost, in_buffers, drawn, total, sampling, whole }
    }

    /// A count of new flows, all of which are certainly new. All uncounted ones may belong to the same key, so each key
    /// misses at most the number of all missing flows. The bounds of all rows fail only if that number is wrong.
    pub const fn new_flows(&self, mut counted: Estimate) -> Estimate {
        counted.upper = counted.upper.saturating_add(self.missed_flows);
        counted
    }

    /// A count of distinct values, with one more possible for each unknown packet. `most` is the largest possible
    /// number of values: a packet has one, or two if both of its addresses count.
    pub fn distinct(&self, counted: Estimate, most: u64) -> Estimate {
        let Estimate { value, lower, upper } = counted;
        let upper = upper.saturating_add(self.unknown).min(most);
        Estimate { value: value.min(upper), lower: lower.min(upper), upper }
    }
}

impl ViewUncertainty {
    /// An upper bound of the sum of any key's records.
    pub const fn total(&self) -> Tally {
        self.total
    }

    /// The true sum of a key whose records, scaled by their sampling rates, add up to between `lower` and `upper`.
    pub fn bounds(&self, metric: Metric, lower: Tally, upper: Tally) -> (u64, u64) {
        let &Self { lost, in_buffers, drawn, .. } = self;
        // Without any record and any missing packet, a key has no buffers.
        let has_none = upper.is_zero() && !self.is_missing();
        let in_buffers = if has_none { 0 } else { metric.of(in_buffers) };
        let lower = metric.of(lower);
        // No key has more than the total, and no key has less than its own count.
        let upper = metric.of(upper).min(metric.of(self.total)).max(lower);
        let (lower, upper) = match &self.sampling {
            None => (lower, upper.saturating_add(metric.of(drawn))),
            Some(error) => error.bounds(metric, lower, upper.saturating_add(metric.of(error.scaled(drawn)))),
        };
        if !self.is_missing() && self.in_buffers.is_zero() {
            return (lower, upper);
        }
        // A packet may count for several keys, but only once for each.
        let upper = upper.saturating_add(metric.of(lost)).saturating_add(in_buffers).min(metric.of(self.whole.most));
        (lower.min(upper), upper)
    }

    /// Returns true if packets are missing: some of their keys may be in no record.
    fn is_missing(&self) -> bool {
        self.sampling.is_some() || !self.lost.is_zero() || !self.drawn.is_zero()
    }

    /// Returns the uncertainty about the packets of one interface slot.
    #[must_use]
    pub fn of_slot(&self, slot: Option<usize>, uncertainty: &Uncertainty) -> Self {
        let whole = slot.and_then(|slot| uncertainty.slots.get(slot)).copied().unwrap_or(self.whole);
        Self { whole, ..self.clone() }
    }

    /// The view's sum as the total of a list without its own total.
    pub fn as_total<K: Default>(&self) -> Ranked<K> {
        self.whole.as_total(self.total)
    }

    /// A row. `needed` is the least that a listed key has; 0 if there is room for all.
    pub fn ranked<K: Copy>(&self, held: &KeyEstimate<K>, order: Metric, needed: u64) -> Ranked<K> {
        let KeyEstimate { key, lower, value, upper } = *held;
        let likeliest = match &self.sampling {
            Some(error) => self.whole.due(error.likeliest(value, order, needed)),
            None => value,
        };
        let estimate = |metric: Metric| {
            let (lower, upper) = self.bounds(metric, lower, upper);
            Estimate { value: metric.of(likeliest).clamp(lower, upper), lower, upper }
        };
        Ranked {
            key,
            packets: estimate(Metric::Packets),
            bytes: estimate(Metric::Bytes),
            sampled: self.sampling.as_ref().map(|error| error.taken(value)),
        }
    }
}

/// The most that offloads merge into one buffer (64 KiB), with the headers that each packet had. "BIG TCP" can be
/// configured to merge more; these bounds do not cover that.
pub const BUFFER: Tally = Tally::new(128, 128 << 10);

/// The most that one draw takes: a whole socket buffer, including all packets that an offload merged into it.
pub fn largest(largest_bytes: u64, has_merged: bool) -> Tally {
    if has_merged { Tally::new(BUFFER.packets, BUFFER.bytes.max(largest_bytes)) } else { Tally::new(1, largest_bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_takes_a_whole_buffer() {
        assert_eq!(largest(1_514, false), Tally::new(1, 1_514));
        // Forty-five segments of 1,448 bytes, each with 66 bytes of headers, merged into one.
        let buffer = largest(1_514, true);
        assert!(buffer.packets >= 45 && buffer.bytes >= 45 * 1_514, "{buffer:?}");
    }
}
