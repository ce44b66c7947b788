//! All shards of a window merged: what the window comes to, with the error of each estimate.

use std::cmp::Reverse;

use hdrhistogram::Histogram;
use weir_common::{
    flow::FlowKey,
    ledger::{Ledger, Loss, Tally},
    size::{SIZE_CLASSES, class_bytes},
    sketch::Metric,
};
use weir_sketch::{Estimate, HyperLogLog, Merge, MergeError, TopK};

use super::{
    new_flows::{Asked, Counted, NewFlows},
    order::Closed,
    sampling_error::{Sampling, SamplingError},
    shard::{Host, Pair, Protocols, Service, Shard},
    tcp::TcpCounts,
};

/// One window of one observer.
pub struct Summary {
    /// Each interface slot's account.
    pub ledgers: Vec<Ledger>,
    /// Each interface slot's packets that begin or end TCP connections.
    pub tcp: Vec<TcpCounts>,
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
    /// The probability that all bounds of a ranking hold, of both its orders together.
    pub confidence: f64,
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

/// One of the largest keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranked<K> {
    /// The key.
    pub key: K,
    /// Its packets.
    pub packets: Estimate,
    /// Its bytes.
    pub bytes: Estimate,
    /// What was sampled of it: where the rate changed, what was taken at a lower one counts for less. `None` if every
    /// packet was taken.
    pub sampled: Option<Tally>,
}

impl Summary {
    /// Merges a window's shards into the first of them; each list has at most `top` entries. The bounds of a dimension's
    /// lists all hold with the probability `confidence`; so do those of each distinct count, and those of new flows.
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
        let rates = window.iter().filter_map(Closed::sampling);
        let (least, sampling) = rates.reduce(|(a, b), (c, d)| (a.min(c), b.max(d))).unwrap_or((1, 1));
        let lost: Tally = ledgers.iter().map(Ledger::lost).sum();
        let sampled_out: Tally = ledgers.iter().map(|ledger| ledger.counters.sampled_out).sum();
        // Each lost or unsampled packet may belong to one more source, destination or flow.
        let unknown = lost.packets.saturating_add(sampled_out.packets);
        let beyond: Tally = window.iter().map(|closed| closed.edge.lost_beyond).sum();
        let dropped: Tally = ledgers.iter().map(|ledger| ledger.counters.lost[Loss::SocketDrop as usize]).sum();
        let taken: Tally = ledgers.iter().map(|ledger| ledger.attributed).sum();
        let drawn = lost.since(dropped);
        // A late CPU has not told the sizes of its packets yet.
        let is_late = window.iter().any(|closed| !closed.late.is_empty());
        let has_merged = is_late || ledgers.iter().any(|ledger| ledger.counters.merged > 0);
        let doubt = Doubt {
            total: window.iter().map(|closed| closed.shard.total).sum(),
            lost: [dropped, beyond].into_iter().sum(),
            drawn,
            sampling: (sampling > 1).then(|| {
                let sampling = Sampling {
                    rate: sampling,
                    is_steady: least == sampling,
                    largest: largest(sizes.max(), has_merged),
                    total: [taken, sampled_out, drawn].into_iter().sum(),
                };
                SamplingError::new(sampling, confidence)
            }),
        };
        let tops = Tops {
            flows: rank(window, |shard| &mut shard.top.flows, &doubt, top)?,
            sources: rank(window, |shard| &mut shard.top.sources, &doubt, top)?,
            destinations: rank(window, |shard| &mut shard.top.destinations, &doubt, top)?,
            pairs: rank(window, |shard| &mut shard.top.pairs, &doubt, top)?,
            services: rank(window, |shard| &mut shard.top.services, &doubt, top)?,
        };
        let is_steady = least == sampling;
        let tcp = ledgers.iter().map(|ledger| TcpCounts::new(ledger, sampling, is_steady, confidence)).collect();
        let mut protocols = Protocols::default();
        let (mut new_flows, mut records, mut ring_peak) = (0, 0, 0_f64);
        for Closed { shard, edge: _, ring_peak: peak, late: _ } in &*window {
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
            // Without sampling nothing is left to chance.
            confidence: if sampling == 1 { 1.0 } else { confidence },
            ledgers,
            tcp,
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

    /// Every packet seen, once: without those that another interface has fed.
    pub fn fed(&self) -> Tally {
        self.ledgers.iter().map(Ledger::fed).sum()
    }
}

fn ledgers(window: &[Closed], interfaces: usize) -> Vec<Ledger> {
    let mut ledgers = vec![Ledger::default(); interfaces];
    for Closed { shard, edge, ring_peak: _, late: _ } in window {
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
struct Doubt {
    /// The sum of all records, scaled by their sampling rates: no key has more.
    total: Tally,
    /// The most that is missing of what was never drawn.
    lost: Tally,
    /// What is missing of the packets that were drawn. Each stands for as many as the sampling rate says.
    drawn: Tally,
    /// What sampling leaves open, where packets were left out.
    sampling: Option<SamplingError>,
}

impl Doubt {
    /// The true sum of a key whose records, scaled by their sampling rates, add up to between `lower` and `upper`.
    fn bounds(&self, metric: Metric, lower: Tally, upper: Tally) -> (u64, u64) {
        let (lower, upper) = (metric.of(lower), metric.of(upper).min(metric.of(self.total)));
        let (lower, upper) = match &self.sampling {
            None => (lower, upper.saturating_add(metric.of(self.drawn))),
            Some(error) => error.bounds(metric, lower, upper.saturating_add(metric.of(error.scaled(self.drawn)))),
        };
        (lower, upper.saturating_add(metric.of(self.lost)))
    }

    /// A list's entry. `needed` is what a key needed to get into it; 0 if the list has room for all.
    fn ranked<K: Copy>(&self, candidate: &Candidate<K>, order: Metric, needed: u64) -> Ranked<K> {
        let Candidate { key, lower, value, upper } = *candidate;
        let likeliest = self.sampling.as_ref().map_or(value, |error| error.likeliest(value, order, needed));
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

/// The most that one draw takes: a whole socket buffer, however many packets an offload merged into it.
fn largest(largest_bytes: u64, has_merged: bool) -> Tally {
    /// The most that offloads merge into one buffer (64 KiB), with the headers that each packet had. "BIG TCP" can be
    /// configured to merge more; these bounds do not cover it.
    const BUFFER: Tally = Tally::new(128, 128 << 10);
    if has_merged { BUFFER } else { Tally::new(1, largest_bytes) }
}

/// A key that may be listed, and what its records add up to, scaled by their sampling rates.
#[derive(Clone, Copy)]
struct Candidate<K> {
    key: K,
    lower: Tally,
    value: Tally,
    upper: Tally,
}

fn rank<K: Copy + Ord + Default>(
    window: &mut [Closed],
    table: impl Fn(&mut Shard) -> &mut TopK<K, Tally>,
    doubt: &Doubt,
    top: usize,
) -> Result<Ranking<K>, MergeError> {
    // One more than is listed: it tells what it took to get into the list.
    let (mut by_bytes, mut by_packets) = (Vec::with_capacity(top + 1), Vec::with_capacity(top + 1));
    for held in merged(window, table)?.into_iter().flat_map(TopK::iter) {
        let value = Metric::each(|metric| metric.of(held.value()).min(metric.of(doubt.total)));
        let candidate = Candidate { key: held.key, lower: held.lower(), value, upper: held.upper() };
        keep_largest(&mut by_bytes, top + 1, candidate, |c| (Reverse((c.value.bytes, c.value.packets)), c.key));
        keep_largest(&mut by_packets, top + 1, candidate, |c| (Reverse((c.value.packets, c.value.bytes)), c.key));
    }
    let list = |candidates: Vec<Candidate<K>>, order: Metric| {
        let needed = candidates.get(top).map_or(0, |first_left_out| order.of(first_left_out.value));
        let mut list: Vec<_> = candidates.iter().take(top).map(|c| doubt.ranked(c, order, needed)).collect();
        let estimate = |ranked: &Ranked<K>| match order {
            Metric::Bytes => ranked.bytes.value,
            Metric::Packets => ranked.packets.value,
        };
        list.sort_by_key(|ranked| Reverse(estimate(ranked)));
        list
    };
    Ok(Ranking { by_bytes: list(by_bytes, Metric::Bytes), by_packets: list(by_packets, Metric::Packets) })
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
    use weir_common::{record::Record, size::size_class};
    use weir_sketch::{Seen, hash::Key};

    use super::*;
    use crate::{config::Estimates, datapath::edge::Edge};

    /// A window of one flow of 10,000 packets of 100 bytes, one in ten of which was taken: so many of these came, and so
    /// many were lost.
    fn sampled(came: u64, lost: u64) -> Closed {
        let mut shard = Box::new(Shard::new(&Estimates { top_error: 0.01, ..Estimates::default() }, Key([1, 2])));
        let key = FlowKey::default().with_proto(17);
        let record = Record { key, packets: came as u32, bytes: came * 100, sampling: 10, ..Record::default() };
        shard.absorb(&[record], &seen());
        let mut edge = Edge { sampling: (10, 10), ..Edge::empty(1) };
        let tally = |packets| Tally::new(packets, packets * 100);
        let counters = &mut edge.counters[0];
        counters.seen = tally(10_000);
        counters.sampled_out = tally(10_000 - came - lost);
        counters.lost[Loss::RingFull as usize] = tally(lost);
        edge.sizes[size_class(100)] = 10_000;
        Closed { ring_peak: 1.0, ..Closed::new(shard, edge) }
    }

    fn seen() -> Seen {
        Seen::with_capacity(1_000, 0.01, Key([1, 2]).id())
    }

    fn only_flow(closed: Closed) -> Ranked<FlowKey> {
        Summary::merge(&mut [closed], 1, Asked::steadily(&seen()), 10, 0.999).unwrap().top.flows.by_packets[0]
    }

    #[test]
    fn what_was_lost_after_it_was_drawn_stands_for_what_was_left_out() {
        let whole = only_flow(sampled(1_000, 0));
        assert!(whole.packets.upper < 12_000 && whole.packets.lower > 8_000, "{whole:?}");
        let ranked = only_flow(sampled(100, 900));
        for (estimate, truth) in [(ranked.packets, 10_000), (ranked.bytes, 1_000_000)] {
            assert!(estimate.lower < truth / 5 && estimate.upper >= truth, "{estimate:?} of {truth}");
        }
        assert_eq!(ranked.sampled, Some(Tally::new(100, 10_000)));
    }

    #[test]
    fn what_a_socket_dropped_before_it_was_drawn_stands_for_itself() {
        let mut closed = sampled(1_000, 0);
        let none = only_flow(sampled(1_000, 0));
        closed.edge.counters[0].lost[Loss::SocketDrop as usize] = Tally::new(7, 700);
        closed.edge.lost_beyond = Tally::new(0, 300);
        let ranked = only_flow(closed);
        assert_eq!(ranked.packets.upper, none.packets.upper + 7);
        assert_eq!(ranked.bytes.upper, none.bytes.upper + 1_000);
        assert_eq!(ranked.packets.lower, none.packets.lower);
    }

    /// A list that was cut shows those that were lucky: the value of the last is less than its sample says. One that has
    /// room for all is chosen from by nobody.
    #[test]
    fn values_of_a_list_that_was_cut_allow_for_luck() {
        let listed = |top| {
            let mut shard = Box::new(Shard::new(&Estimates::default(), Key([1, 2])));
            let record = |flow: u16| {
                let key = FlowKey::default().with_proto(17).with_ports(flow, 53);
                let packets = 20 + u32::from(flow);
                Record { key, packets, bytes: u64::from(packets) * 100, sampling: 10, ..Record::default() }
            };
            shard.absorb(&(0..30).map(record).collect::<Vec<_>>(), &seen());
            let mut edge = Edge { sampling: (10, 10), ..Edge::empty(1) };
            edge.counters[0].sampled_out = Tally::new(10_000, 1_000_000);
            edge.sizes[size_class(100)] = 11_000;
            let closed = Closed::new(shard, edge);
            Summary::merge(&mut [closed], 1, Asked::steadily(&seen()), top, 0.999).unwrap().top.flows.by_bytes
        };
        for (list, top) in [(listed(50), 30), (listed(5), 5)] {
            assert_eq!(list.len(), top);
            let last = list[top - 1];
            let sampled = last.sampled.unwrap();
            let of_sample = last.packets.value as f64 / (10 * sampled.packets) as f64;
            assert!(if top == 30 { of_sample == 1.0 } else { (0.3..0.8).contains(&of_sample) }, "{last:?}");
            assert!(list.is_sorted_by_key(|ranked| Reverse(ranked.bytes.value)));
            let proportion = last.bytes.value as f64 / last.packets.value as f64;
            assert!((proportion - 100.0).abs() < 5.0, "{last:?}");
        }
    }

    #[test]
    fn a_draw_takes_a_whole_buffer() {
        assert_eq!(largest(1_514, false), Tally::new(1, 1_514));
        // Forty-five segments of 1,448 bytes, each with 66 of headers, came as one.
        let buffer = largest(1_514, true);
        assert!(buffer.packets >= 45 && buffer.bytes >= 45 * 1_514, "{buffer:?}");
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
