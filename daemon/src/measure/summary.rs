//! All shards of a window merged: what the window comes to, with the error of each estimate.

use std::cmp::Reverse;

use hdrhistogram::Histogram;
use weir_common::{
    flow::FlowKey,
    ledger::{Ledger, Tally},
    size::{SIZE_CLASSES, class_bytes},
    sketch::Metric,
};
use weir_sketch::{Estimate, HyperLogLog, Merge, MergeError, TopK};

use super::{
    new_flows::{Asked, Counted, NewFlows},
    order::Closed,
    sampling_error,
    shard::{Host, Pair, Protocols, Service, Shard},
};

/// One window of one observer.
pub struct Summary {
    /// Each interface slot's account.
    pub ledgers: Vec<Ledger>,
    /// Exact counts by protocol.
    pub protocols: Protocols,
    /// Distinct source addresses.
    pub sources: Estimate,
    /// Distinct destination addresses.
    pub destinations: Estimate,
    /// Distinct flows.
    pub flows: Estimate,
    /// Flows not seen before.
    pub new_flows: NewFlows,
    /// Top talkers.
    pub top: Tops,
    /// Packets by their size in bytes.
    pub sizes: Histogram<u64>,
    /// Records absorbed.
    pub records: u64,
    /// The fullest that any ring was, 0 to 1.
    pub ring_peak: f64,
    /// The highest sampling rate in force: one packet in this many was taken; 1 is every packet.
    pub sampling: u32,
}

/// The largest keys of each dimension.
pub struct Tops {
    /// Flows.
    pub flows: Ranking<FlowKey>,
    /// Source addresses.
    pub sources: Ranking<Host>,
    /// Destination addresses.
    pub destinations: Ranking<Host>,
    /// Source-destination pairs.
    pub pairs: Ranking<Pair>,
    /// Protocols with destination ports.
    pub services: Ranking<Service>,
}

/// The largest keys of one dimension, in two orders.
pub struct Ranking<K> {
    /// By bytes.
    pub by_bytes: Vec<Ranked<K>>,
    /// By packets.
    pub by_packets: Vec<Ranked<K>>,
}

/// One of the largest keys. Its bounds hold always; where packets were left out, with
/// [`weir_sketch::hyperloglog::CONFIDENCE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked<K> {
    /// The key.
    pub key: K,
    /// Its packets.
    pub packets: Estimate,
    /// Its bytes.
    pub bytes: Estimate,
}

impl Summary {
    /// Merges a window's shards into the first of them; each list has at most `top` entries. Bounds of distinct counts and
    /// of new flows hold with the probability `confidence`.
    ///
    /// # Errors
    ///
    /// The shards were built differently.
    pub fn merge(
        window: &mut [Closed],
        interfaces: usize,
        seen: Asked<'_>,
        top: usize,
        confidence: f64,
    ) -> Result<Self, MergeError> {
        let ledgers = ledgers(window, interfaces);
        let sizes = sizes(window);
        let sampling = window.iter().map(Closed::sampling).max().unwrap_or(1);
        let lost: Tally = ledgers.iter().map(Ledger::lost).sum();
        let beyond = window.iter().map(|closed| closed.edge.lost_beyond);
        let sampled_out: Tally = ledgers.iter().map(|ledger| ledger.counters.sampled_out).sum();
        // Each lost or unsampled packet may belong to one more source, destination or flow.
        let unknown = lost.packets.saturating_add(sampled_out.packets);
        let doubt = Doubt {
            lost: beyond.chain([lost]).sum(),
            unit: unit(sampling, sizes.max(), ledgers.iter().any(|ledger| ledger.counters.merged > 0)),
            total: window.iter().map(|closed| closed.shard.total).sum(),
        };
        let tops = Tops {
            flows: rank(window, |shard| &mut shard.top.flows, doubt, top)?,
            sources: rank(window, |shard| &mut shard.top.sources, doubt, top)?,
            destinations: rank(window, |shard| &mut shard.top.destinations, doubt, top)?,
            pairs: rank(window, |shard| &mut shard.top.pairs, doubt, top)?,
            services: rank(window, |shard| &mut shard.top.services, doubt, top)?,
        };
        let mut protocols = Protocols::default();
        let (mut new_flows, mut records, mut ring_peak) = (0, 0, 0_f64);
        for Closed { shard, edge: _, ring_peak: peak } in &*window {
            protocols.merge(&shard.protocols);
            new_flows += shard.new_flows;
            records += shard.records;
            ring_peak = ring_peak.max(*peak);
        }
        let flows = distinct(window, |shard| &mut shard.unique.flows, unknown, confidence)?;
        let counted = Counted { new: new_flows, workers: window.len() as u64, unknown, flows };
        Ok(Self {
            sizes,
            protocols,
            sources: distinct(window, |shard| &mut shard.unique.sources, unknown, confidence)?,
            destinations: distinct(window, |shard| &mut shard.unique.destinations, unknown, confidence)?,
            flows,
            new_flows: NewFlows::new(counted, seen, confidence),
            top: tops,
            records,
            ring_peak,
            sampling,
            ledgers,
        })
    }

    /// The share of attributed packets whose flow was in the cache. Every other packet began a record.
    pub fn cache_hit_rate(&self) -> f64 {
        let attributed: u64 = self.ledgers.iter().map(|ledger| ledger.attributed.packets).sum();
        if attributed == 0 { 0.0 } else { attributed.saturating_sub(self.records) as f64 / attributed as f64 }
    }

    /// Everything seen on all interfaces.
    pub fn seen(&self) -> Tally {
        self.ledgers.iter().map(|ledger| ledger.counters.seen).sum()
    }
}

fn ledgers(window: &[Closed], interfaces: usize) -> Vec<Ledger> {
    let mut ledgers = vec![Ledger::default(); interfaces];
    for Closed { shard, edge, ring_peak: _ } in window {
        for ((ledger, counters), attributed) in ledgers.iter_mut().zip(&edge.counters).zip(shard.attributed) {
            ledger.add(&Ledger { counters: *counters, attributed });
        }
    }
    ledgers
}

/// One sketch of all shards, merged into the first of them.
fn merged<S: Merge>(window: &mut [Closed], sketch: impl Fn(&mut Shard) -> &mut S) -> Result<Option<&S>, MergeError> {
    let Some((first, rest)) = window.split_first_mut() else { return Ok(None) };
    let all = sketch(&mut first.shard);
    for closed in rest {
        all.merge(sketch(&mut closed.shard))?;
    }
    Ok(Some(all))
}

/// The union over all shards. Each lost or unsampled packet may belong to one more distinct item.
fn distinct(
    window: &mut [Closed],
    sketch: impl Fn(&mut Shard) -> &mut HyperLogLog,
    unknown: u64,
    confidence: f64,
) -> Result<Estimate, MergeError> {
    let Some(union) = merged(window, sketch)? else { return Ok(Estimate::default()) };
    let mut estimate = union.bounds_at(confidence);
    estimate.upper = estimate.upper.saturating_add(unknown);
    Ok(estimate)
}

/// Why the true sums of a window may differ from those of its records.
#[derive(Clone, Copy)]
struct Doubt {
    /// The most that may be missing.
    lost: Tally,
    /// See [`sampling_error::widen`].
    unit: Tally,
    /// The sum of all records, scaled by their sampling rates: no key has more.
    total: Tally,
}

/// The most that one sampled buffer adds to a scaled sum; nothing where every packet is taken.
///
/// Sampling takes a whole socket buffer or none of it, however many packets an offload merged into it.
fn unit(sampling: u32, largest_bytes: u64, has_merged: bool) -> Tally {
    /// The most that offloads merge into one buffer (64 KiB), with the headers that each packet had. "BIG TCP" can be
    /// configured to merge more; these bounds do not cover it.
    const BUFFER: Tally = Tally::new(128, 128 << 10);
    let rate = u64::from(sampling);
    match (rate, has_merged) {
        (1, _) => Tally::default(),
        (_, false) => Tally::new(rate, rate * largest_bytes),
        (_, true) => Tally::new(rate * BUFFER.packets, rate * BUFFER.bytes),
    }
}

fn rank<K: Copy + Ord + Default>(
    window: &mut [Closed],
    table: impl Fn(&mut Shard) -> &mut TopK<K, Tally>,
    doubt: Doubt,
    top: usize,
) -> Result<Ranking<K>, MergeError> {
    let (mut by_bytes, mut by_packets) = (Vec::with_capacity(top), Vec::with_capacity(top));
    for candidate in merged(window, table)?.into_iter().flat_map(TopK::iter) {
        let (lower, value, upper) = (candidate.lower(), candidate.value(), candidate.upper());
        let estimate = |metric: Metric| {
            let most = metric.of(upper).min(metric.of(doubt.total));
            let value = metric.of(value).min(most);
            let (lower, upper) = sampling_error::widen(metric.of(lower), most, metric.of(doubt.unit));
            Estimate { value, lower, upper: upper.saturating_add(metric.of(doubt.lost)) }
        };
        let ranked = Ranked { key: candidate.key, packets: estimate(Metric::Packets), bytes: estimate(Metric::Bytes) };
        keep_largest(&mut by_bytes, top, ranked, |r| (Reverse((r.bytes.value, r.packets.value)), r.key));
        keep_largest(&mut by_packets, top, ranked, |r| (Reverse((r.packets.value, r.bytes.value)), r.key));
    }
    Ok(Ranking { by_bytes, by_packets })
}

/// Adds to a list that holds the first `top` by `order`, in that order. The list never holds more: the memory for a
/// window's end must not depend on the number of candidates.
fn keep_largest<T, O: Ord>(list: &mut Vec<T>, top: usize, new: T, order: impl Fn(&T) -> O) {
    let place = list.partition_point(|kept| order(kept) < order(&new));
    if place < top {
        list.truncate(top - 1);
        list.insert(place, new);
    }
}

fn sizes(window: &[Closed]) -> Histogram<u64> {
    const LARGEST: u64 = class_bytes(SIZE_CLASSES - 1);
    let mut histogram = Histogram::new_with_max(LARGEST, 3).expect("the bounds are constant, and valid");
    for closed in window {
        for (class, &packets) in closed.edge.sizes.iter().enumerate().filter(|&(_, &packets)| packets > 0) {
            histogram.saturating_record_n(class_bytes(class), packets);
        }
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_weighs_what_it_takes_at_once() {
        assert_eq!(unit(1, 1_514, true), Tally::default());
        assert_eq!(unit(10, 1_514, false), Tally::new(10, 15_140));
        // Forty-five segments of 1,448 bytes, each with 66 of headers, came as one.
        let unit = unit(10, 1_514, true);
        assert!(unit.packets >= 10 * 45 && unit.bytes >= 10 * 45 * 1_514, "{unit:?}");
    }

    #[test]
    fn the_largest_are_those_that_sorting_puts_first_and_no_more_is_held() {
        let numbers: Vec<u64> = (0..500).map(|n| n * 7919 % 500).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable_by_key(|n| Reverse(*n));
        for top in [0, 1, 10, 499, 1_000] {
            let mut kept = Vec::with_capacity(top);
            let capacity = kept.capacity();
            numbers.iter().for_each(|n| keep_largest(&mut kept, top, *n, |n| Reverse(*n)));
            assert_eq!(kept, sorted[..top.min(500)]);
            assert_eq!(kept.capacity(), capacity);
        }
    }
}
