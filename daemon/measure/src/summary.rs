//! All shards of a window merged: the numbers of the window, with the error of each estimate.

use weir_common::{
    control::OTHERS,
    ledger::{Ledger, PacketSizes, Tally},
    size::COARSE_EDGES,
    sketch::Metric,
};
use weir_datapath::rates::Rates;
use weir_sketch::{Estimate, HyperLogLog, Merge, MergeError};

use super::{
    answer::Answer,
    new_flows::{Counted, FilterState, NewFlows},
    order::Closed,
    protocols::{self, Protocols},
    sampling_error::Sampling,
    shard::Shard,
    sizes::Sizes,
    tcp::TcpCounts,
    uncertainty::{BUFFER, Uncertainty, largest},
    whole::{Counted as Feeding, Whole},
};
use crate::question::Views;

/// One window of one observer.
pub struct Summary {
    /// Each interface slot's account.
    pub ledgers: Vec<Ledger>,
    /// Each interface slot's packets that begin or end TCP connections.
    pub tcp: Vec<TcpCounts>,
    /// Packets by protocol.
    pub protocols: Protocols<Estimate>,
    /// Distinct source addresses.
    pub sources: Estimate,
    /// Distinct destination addresses.
    pub destinations: Estimate,
    /// Distinct flows.
    pub flows: Estimate,
    /// Flows not seen before.
    pub new_flows: NewFlows,
    /// The answers of the views, in their order.
    pub views: Vec<Answer>,
    /// Packets by their size in bytes.
    pub sizes: Sizes,
    /// Each interface slot's rates.
    pub rates: Vec<Rates>,
    /// Records absorbed.
    pub records: u64,
    /// The highest fill of any ring, 0 to 1; `None` if there are no rings.
    pub ring_peak: Option<f64>,
    /// The highest sampling rate in force: one packet in this many is taken; 1 is every packet.
    pub sampling: u32,
    /// The probability that all bounds of a ranking hold, in both of its orders together.
    pub confidence: f64,
    /// Why the true numbers may differ from those of the records.
    pub uncertainty: Uncertainty,
}

impl Summary {
    /// Merges a window's shards, which have the sketches of `plan`, into the first of them. The bounds of all rows of a
    /// view hold with the probability `confidence`; so do those of each distinct count, and those of new flows.
    ///
    /// # Errors
    ///
    /// The shards were built differently.
    pub fn merge(
        window: &mut [Closed],
        plan: &Views,
        interfaces: usize,
        seen: FilterState<'_>,
        confidence: f64,
    ) -> Result<Self, MergeError> {
        let ledgers = ledgers(window, interfaces);
        let sizes = Sizes::of(window);
        let rates = window.iter().filter_map(Closed::sampling);
        let (least, highest) = rates.reduce(|(a, b), (c, d)| (a.min(c), b.max(d))).unwrap_or((1, 1));
        // Even if no packet came.
        let sampling = window.iter().map(|closed| closed.rate).fold(highest, u32::max);
        let lost: Tally = ledgers.iter().map(Ledger::lost).sum();
        let beyond: Tally = ledgers.iter().map(|ledger| ledger.counters.uncertain.beyond()).sum();
        let sampled_out: Tally = ledgers.iter().map(|ledger| ledger.counters.sampled_out).sum();
        // Each lost or unsampled packet may belong to one more source, destination or flow.
        let unknown = lost.packets.saturating_add(sampled_out.packets).saturating_add(beyond.packets);
        let dropped: Tally = ledgers.iter().map(Ledger::unread).sum();
        let taken: Tally = ledgers.iter().map(|ledger| ledger.attributed).sum();
        let drawn = lost.since(dropped);
        // A late CPU has not reported the sizes of its packets yet.
        let is_late = window.iter().any(|closed| !closed.late.is_empty());
        let has_merged = is_late || ledgers.iter().any(|ledger| ledger.counters.merged > 0);
        let is_steady = least == highest;
        let scaled: Tally = window.iter().map(|closed| closed.shard.total).sum();
        let whole = |ledgers: &[Ledger], counted, scaled: Option<Tally>| {
            Whole::new(ledgers, counted, scaled.filter(|_| highest > 1))
        };
        // The scaled sum of all interfaces, with packets that others feed, is known only if the rate was steady.
        let all = |ledgers: &[Ledger]| {
            let taken: Tally = ledgers.iter().map(|ledger| ledger.attributed).sum();
            let scaled = Metric::each(|metric| metric.of(taken).saturating_mul(highest.into()));
            whole(ledgers, Feeding::Everywhere, is_steady.then_some(scaled))
        };
        let once = whole(&ledgers, Feeding::Once, Some(scaled));
        let most = once.most.packets;
        let mut flows = distinct(window, |shard| &mut shard.unique.flows, unknown, most, confidence)?;
        let new: u64 = window.iter().map(|closed| closed.shard.new_flows).sum();
        // New flows are flows: the estimate of all flows is no less than the count of new ones.
        flows.value = flows.value.max(new.min(flows.upper));
        let counted = Counted { new, workers: window.len() as u64, unknown, flows };
        let mut new_flows = NewFlows::new(counted, seen, confidence);
        new_flows.count.upper = new_flows.count.upper.min(most.max(new));
        let uncertainty = Uncertainty {
            missed_flows: new_flows.count.upper.saturating_sub(new),
            lost: [dropped, beyond].into_iter().sum(),
            drawn,
            unknown,
            sampling: (highest > 1).then(|| Sampling {
                rate: highest,
                is_steady,
                largest: largest(largest_drawn(&sizes, &ledgers), has_merged),
                total: [taken, sampled_out, drawn].into_iter().sum(),
            }),
            once,
            everywhere: all(&ledgers),
            slots: ledgers.iter().map(|ledger| all(std::slice::from_ref(ledger))).collect(),
            confidence,
        };
        let mut views = Vec::with_capacity(plan.questions.len());
        for nth in 0..plan.questions.len() {
            views.push(Answer::new(window, plan, nth, &views, &uncertainty)?);
        }
        let tcp = tcp_counts(window, &ledgers, (highest, is_steady), confidence);
        let mut protocols = Protocols::default();
        let (mut records, mut ring_peak) = (0, None);
        for Closed { shard, ring_peak: peak, .. } in &*window {
            protocols.merge(&shard.protocols);
            records += shard.records;
            ring_peak = [ring_peak, *peak].into_iter().flatten().reduce(f64::max);
        }
        Ok(Self {
            sizes,
            rates: rates_of(window, interfaces),
            protocols: protocols.estimates(&uncertainty.of_view(uncertainty.once, scaled, protocols::PARTS)),
            sources: distinct(window, |shard| &mut shard.unique.sources, unknown, most, confidence)?,
            destinations: distinct(window, |shard| &mut shard.unique.destinations, unknown, most, confidence)?,
            flows,
            new_flows,
            views,
            records,
            ring_peak,
            sampling,
            // Without sampling the bounds are certain.
            confidence: if highest == 1 { 1.0 } else { confidence },
            ledgers,
            tcp,
            uncertainty,
        })
    }

    /// The share of attributed packets whose flow was in the cache; every other packet began a record. `None` if there
    /// were none.
    pub fn cache_hit_rate(&self) -> Option<f64> {
        let attributed: u64 = self.ledgers.iter().map(|ledger| ledger.attributed.packets).sum();
        (attributed > 0).then(|| attributed.saturating_sub(self.records) as f64 / attributed as f64)
    }

    /// Everything seen on all interfaces.
    pub fn seen(&self) -> Tally {
        self.ledgers.iter().map(|ledger| ledger.counters.seen).sum()
    }

    /// Every packet seen, counted once: without those that another interface feeds.
    pub fn fed(&self) -> Tally {
        self.ledgers.iter().map(Ledger::fed).sum()
    }
}

fn ledgers(window: &[Closed], interfaces: usize) -> Vec<Ledger> {
    let mut ledgers = vec![Ledger::default(); interfaces];
    for Closed { shard, edge, .. } in window {
        for ((ledger, counters), attributed) in ledgers.iter_mut().zip(&edge.counters).zip(shard.attributed) {
            ledger.add(&Ledger { counters: *counters, attributed });
        }
    }
    add_others(window, &mut ledgers);
    ledgers
}

/// Makes a ledger of the packets for which no slot was found, if there are any.
fn add_others(window: &[Closed], ledgers: &mut Vec<Ledger>) {
    const SLOT: usize = OTHERS as usize;
    let mut others = Ledger::default();
    if ledgers.len() <= SLOT {
        for Closed { shard, edge, .. } in window {
            others.add(&Ledger { counters: edge.others, attributed: shard.attributed[SLOT] });
        }
    }
    if others != Ledger::default() {
        ledgers.resize(SLOT, Ledger::default());
        ledgers.push(others);
    }
}

/// Merges one sketch of all shards into that of the first.
fn merged<S: Merge>(window: &mut [Closed], sketch: impl Fn(&mut Shard) -> &mut S) -> Result<Option<&S>, MergeError> {
    let Some((first, rest)) = window.split_first_mut() else { return Ok(None) };
    let all = sketch(&mut first.shard);
    for closed in rest {
        all.merge(sketch(&mut closed.shard))?;
    }
    Ok(Some(all))
}

/// An upper bound of the size of a drawn packet. The exact sizes leave out packets that another interface feeds, where
/// they may have been smaller; of those only the size class is known.
fn largest_drawn(sizes: &Sizes, ledgers: &[Ledger]) -> u64 {
    let repeated = ledgers.iter().filter(|ledger| !ledger.counters.repeated.is_zero());
    let ends = repeated.filter_map(|ledger| {
        let PacketSizes(classes) = ledger.counters.sizes;
        let class = classes.iter().rposition(|packets| *packets > 0)?;
        Some(COARSE_EDGES.get(class).copied().unwrap_or(BUFFER.bytes))
    });
    ends.fold(sizes.largest(), u64::max)
}

/// Each interface's packets that begin or end TCP connections.
fn tcp_counts(
    window: &[Closed],
    ledgers: &[Ledger],
    (rate, is_steady): (u32, bool),
    confidence: f64,
) -> Vec<TcpCounts> {
    let counts = |(slot, ledger): (usize, &Ledger)| {
        let overstated = window.iter().filter_map(|closed| closed.shard.overstated.get(slot)).sum();
        TcpCounts::new(ledger, rate, is_steady, overstated, confidence)
    };
    ledgers.iter().enumerate().map(counts).collect()
}

/// The union over all shards. Each lost or unsampled packet may belong to one more distinct item. There are at most
/// `most` packets.
fn distinct(
    window: &mut [Closed],
    sketch: impl Fn(&mut Shard) -> &mut HyperLogLog,
    unknown: u64,
    most: u64,
    confidence: f64,
) -> Result<Estimate, MergeError> {
    let Some(union) = merged(window, sketch)? else { return Ok(Estimate::default()) };
    let Estimate { value, lower, upper } = union.bounds_at(confidence);
    let upper = upper.saturating_add(unknown).min(most);
    Ok(Estimate { value: value.min(upper), lower: lower.min(upper), upper })
}

fn rates_of(window: &mut [Closed], interfaces: usize) -> Vec<Rates> {
    let mut rates = vec![Rates::default(); interfaces];
    for closed in window {
        let known = std::mem::take(&mut closed.edge.rates);
        for (rates, known) in rates.iter_mut().zip(known) {
            rates.merge(known);
        }
    }
    rates
}

#[cfg(test)]
mod tests;
