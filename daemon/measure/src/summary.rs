//! All shards of a window merged: the numbers of the window, with the error of each estimate.

use weir_common::ledger::{Ledger, Tally};
use weir_datapath::rates::Rates;
use weir_sketch::{Estimate, HyperLogLog, Merge, MergeError};

use super::{
    account::{Account, WorkerAccount},
    answer::Answer,
    closed::Closed,
    new_flows::{FilterState, NewFlows},
    protocols::{self, Protocols},
    shard::Shard,
    sizes::Sizes,
    tcp::TcpCounts,
    uncertainty::Uncertainty,
    unique::bounded,
    views,
};
use crate::question::Views;

/// The numbers of one window of one observer.
pub struct Summary {
    /// The account of each interface slot.
    pub ledgers: Vec<Ledger>,
    /// Each interface slot's packets that begin or end TCP connections.
    pub tcp: Vec<TcpCounts>,
    /// The number of packets by protocol.
    pub protocols: Protocols<Estimate>,
    /// The number of distinct source addresses.
    pub sources: Estimate,
    /// The number of distinct destination addresses.
    pub destinations: Estimate,
    /// The number of distinct flows.
    pub flows: Estimate,
    /// Flows not seen before.
    pub new_flows: NewFlows,
    /// The answers of the views, in their order.
    pub views: Vec<Answer>,
    /// Packets by their size in bytes.
    pub sizes: Sizes,
    /// The rates of each interface slot.
    pub rates: Vec<Rates>,
    /// The number of absorbed records.
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
    /// Merges a window's shards, which have the sketches of `plan`, and leaves the result in the first of them. It does
    /// not matter which worker was ready first: the shards are sorted first.
    ///
    /// The bounds of all rows of a view hold with the probability `confidence`. So do those of each distinct count, and
    /// those of new flows.
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
        window.sort_unstable_by_key(|closed| closed.shard.place_in_merge());
        let parts: Vec<WorkerAccount<'_>> = window.iter().map(Closed::part).collect();
        let account = Account::new(&parts, interfaces);
        let (unknown, most) = (account.unknown, account.most_keys());
        let mut flows = distinct(window, |shard| &mut shard.unique.flows, unknown, most, confidence)?;
        let new: u64 = window.iter().map(|closed| closed.shard.new_flows).sum();
        let new_flows = account.new_flows((new, window.len()), &mut flows, seen, confidence);
        let uncertainty = account.uncertainty(new_flows.count.upper.saturating_sub(new), confidence);
        let Account { ledgers, sizes, sampling, is_steady, highest, scaled, .. } = account;
        let views = views::answers(window, plan, &uncertainty)?;
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

    /// The share of attributed packets whose flow was in the cache. Every other packet began a record. `None` if there
    /// were no packets.
    pub fn cache_hit_rate(&self) -> Option<f64> {
        let attributed: u64 = self.ledgers.iter().map(|ledger| ledger.attributed.packets).sum();
        (attributed > 0).then(|| attributed.saturating_sub(self.records) as f64 / attributed as f64)
    }

    /// Returns the sum of everything seen on all interfaces.
    pub fn seen(&self) -> Tally {
        self.ledgers.iter().map(|ledger| ledger.counters.seen).sum()
    }

    /// Every packet seen, counted once: without packets that another interface has already counted.
    pub fn fed(&self) -> Tally {
        self.ledgers.iter().map(Ledger::fed).sum()
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

/// Returns each interface's packets that begin or end TCP connections.
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
    Ok(merged(window, sketch)?.map_or_else(Estimate::default, |union| bounded(union, unknown, most, confidence)))
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
