//! What a view comes to in a window: the sketches of all shards merged, the largest keys chosen, and the bounds of each.

use std::{cmp::Reverse, collections::BTreeMap};

use weir_common::{ledger::Tally, sketch::Metric};
use weir_sketch::{Estimate, MergeError, hash::KeyedHash};

use super::{
    beyond::RankedPrefixes,
    doubt::{Doubt, ViewDoubt},
    heavy_hitters::Held,
    order::Closed,
    shard::with_prefixes,
    view::ViewSketch,
};
use crate::{
    question::{Ask, Question, Structure, Views},
    view::{By, Measure, ViewKey},
};

/// What a view comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The probability that the bounds of all its rows hold.
    pub confidence: f64,
    /// One table, or one for each interface's slot that has rows.
    pub tables: Vec<Table>,
}

/// The rows of a view, or of one interface in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The interface's slot, if each has a table of its own.
    pub slot: Option<usize>,
    /// The rows.
    pub rows: Rows,
}

/// Rows, the largest first.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// Bytes and packets.
    Tallies(Ranking<ViewKey>),
    /// Bytes and packets of prefixes, and what of them is not of listed addresses.
    Prefixes(RankedPrefixes),
    /// Distinct values.
    Distinct(Vec<(ViewKey, Estimate)>),
}

/// The largest keys, in two orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranking<K> {
    /// By bytes.
    pub by_bytes: Vec<Ranked<K>>,
    /// By packets.
    pub by_packets: Vec<Ranked<K>>,
}

impl<K> Default for Ranking<K> {
    fn default() -> Self {
        Self { by_bytes: Vec::new(), by_packets: Vec::new() }
    }
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

impl Answer {
    /// Merges the sketches of the `nth` view into that of the first shard, and reads it. `before` are the answers of the
    /// views before it, which were merged before.
    ///
    /// # Errors
    ///
    /// The shards were built differently.
    pub fn new(
        window: &mut [Closed],
        plan: &Views,
        nth: usize,
        before: &[Self],
        doubt: &Doubt,
    ) -> Result<Self, MergeError> {
        let question = &plan.questions[nth];
        let Some((first, rest)) = window.split_first_mut() else {
            return Ok(Self { confidence: 1.0, tables: Vec::new() });
        };
        let hash = first.shard.hash().clone();
        for closed in rest {
            if let Some((view, prefixes)) = with_prefixes(&mut first.shard.views, nth, question) {
                view.merge(&closed.shard.views[nth], prefixes, &question.by, &hash)?;
            }
        }
        if matches!(question.structure, Structure::Prefixes { .. }) {
            let (addresses, views) = first.shard.views.split_at_mut(nth);
            let addresses = question.fed_by.and_then(|list| addresses.get(list));
            views.first_mut().into_iter().for_each(|view| view.finish_prefixes(addresses, &hash));
        }
        let (views, hash) = (&first.shard.views, &hash);
        let sketch = &views[nth];
        let keys = if question.by.has_host() { 2 } else { 1 };
        let doubts = doubt.of_view(sketch.total, keys);
        // Sums have bounds that hold for sure, unless packets were left out.
        let is_sure = question.view.measure.is_tally() && doubt.sampling.is_none();
        let tables = if matches!(question.structure, Structure::Prefixes { .. }) {
            let list = question.fed_by.and_then(|list| Some((views.get(list)?, before.get(list)?.ranking()?)));
            let by = |list: usize| &plan.questions[list].by;
            let counted = |key: &ViewKey| {
                let held = question.fed_by.and_then(|list| views.get(list)?.look_up(by(list), hash, key));
                held.map_or(Tally::default(), |held| held.value)
            };
            let listed = list.map(|(_, ranking)| ranking);
            let rows = RankedPrefixes::new(sketch.held(), listed, counted, question.view.top, &doubts);
            vec![Table { slot: None, rows: Rows::Prefixes(rows) }]
        } else if question.view.measure.is_tally() {
            rank(question, sketch, hash, &doubts)
        } else {
            count(question, sketch, doubt)
        };
        Ok(Self { confidence: if is_sure { 1.0 } else { doubt.confidence }, tables })
    }

    /// What is known of one key, after the sketches were merged.
    pub fn look_up(window: &[Closed], plan: &Views, ask: &Ask, doubt: &Doubt) -> Option<Ranked<ViewKey>> {
        let question = &plan.questions[ask.view];
        let shard = &window.first()?.shard;
        let sketch = &shard.views[ask.view];
        let held = sketch.look_up(&question.by, shard.hash(), &ask.key)?;
        Some(doubt.of_view(sketch.total, if question.by.has_host() { 2 } else { 1 }).ranked(&held, Metric::Bytes, 0))
    }

    /// The rows in both orders, where the view has prefixes.
    pub fn prefixes(&self) -> Option<&RankedPrefixes> {
        match self.tables.first() {
            Some(Table { slot: None, rows: Rows::Prefixes(ranking) }) => Some(ranking),
            _ => None,
        }
    }

    /// The only table's rows in both orders, where the view has bytes and packets.
    pub fn ranking(&self) -> Option<&Ranking<ViewKey>> {
        match self.tables.first() {
            Some(Table { slot: None, rows: Rows::Tallies(ranking) }) => Some(ranking),
            _ => None,
        }
    }
}

/// The slot in whose table a key is.
fn slot(question: &Question, key: &ViewKey) -> Option<usize> {
    if question.view.per_interface { question.by.slot(key) } else { None }
}

fn rank(question: &Question, sketch: &ViewSketch, hash: &KeyedHash, doubt: &ViewDoubt) -> Vec<Table> {
    let top = question.view.top;
    // One more than is listed: it tells what it took to get into the list.
    let mut tables: BTreeMap<Option<usize>, [Vec<Held<ViewKey>>; 2]> = BTreeMap::new();
    if !question.view.per_interface {
        tables.insert(None, Default::default());
    }
    for held in sketch.held() {
        let value = Metric::each(|metric| metric.of(held.value).min(metric.of(doubt.total())));
        let held = Held { value, ..held };
        let [by_bytes, by_packets] = tables.entry(slot(question, &held.key)).or_default();
        keep_largest(by_bytes, top + 1, held, |h| (Reverse((h.value.bytes, h.value.packets)), h.key));
        keep_largest(by_packets, top + 1, held, |h| (Reverse((h.value.packets, h.value.bytes)), h.key));
    }
    let list = |candidates: Vec<Held<ViewKey>>, order: Metric| {
        let needed = candidates.get(top).map_or(0, |first_left_out| order.of(first_left_out.value));
        let rows = candidates.iter().take(top).map(|held| {
            let held = sketch.tightened(question.by.hash_of(hash, &held.key), *held);
            doubt.ranked(&held, order, needed)
        });
        let mut rows: Vec<_> = rows.collect();
        let estimate = |ranked: &Ranked<ViewKey>| match order {
            Metric::Bytes => ranked.bytes.value,
            Metric::Packets => ranked.packets.value,
        };
        rows.sort_by_key(|ranked| Reverse(estimate(ranked)));
        rows
    };
    let table = |(slot, [by_bytes, by_packets]): (Option<usize>, [Vec<Held<ViewKey>>; 2])| Table {
        slot,
        rows: Rows::Tallies(Ranking {
            by_bytes: list(by_bytes, Metric::Bytes),
            by_packets: list(by_packets, Metric::Packets),
        }),
    };
    tables.into_iter().map(table).collect()
}

fn count(question: &Question, sketch: &ViewSketch, doubt: &Doubt) -> Vec<Table> {
    /// Keys that are looked at for each row, where several tables share a sketch.
    const KEYS_PER_ROW: usize = 64;
    let mut tables: BTreeMap<Option<usize>, Vec<(ViewKey, Estimate)>> = BTreeMap::new();
    if !question.view.per_interface {
        tables.insert(None, Vec::new());
    }
    if let Some(distinct) = sketch.unique() {
        let counted = doubt.distinct(distinct.bounds_at(doubt.confidence));
        tables.entry(None).or_default().push((By::at(0), counted));
    }
    if let Some(spread) = sketch.spread() {
        let top = question.view.top;
        let looked_at = if question.view.per_interface { top * KEYS_PER_ROW } else { top };
        for spreader in spread.survey().top(looked_at) {
            let rows = tables.entry(slot(question, &spreader.key)).or_default();
            if rows.len() < top && spreader.touched.value > 0 {
                rows.push((spreader.key, doubt.distinct(spreader.touched)));
            }
        }
    }
    tables.into_iter().map(|(slot, rows)| Table { slot, rows: Rows::Distinct(rows) }).collect()
}

impl Measure {
    /// The order of the rows of a view with this measure.
    pub const fn order(&self) -> Metric {
        if matches!(self, Self::Packets) { Metric::Packets } else { Metric::Bytes }
    }
}

/// Adds to a list that holds the first `top` by `order`, in that order. The list never holds more: the memory for a
/// window's end must not depend on the number of candidates.
pub(super) fn keep_largest<T, O: Ord>(list: &mut Vec<T>, top: usize, new: T, order: impl Fn(&T) -> O) {
    let place = list.partition_point(|kept| order(kept) < order(&new));
    if place < top {
        list.truncate(top - 1);
        list.insert(place, new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
