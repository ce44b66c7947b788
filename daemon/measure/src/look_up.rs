//! Looks up the numbers of a key: those of its row or, if it is not listed, those of the sketch.

use std::collections::{BTreeMap, HashMap};

use weir_common::flow::Address;
use weir_config::view::{Field, Measure, ViewKey};
use weir_datapath::interface::MeasuredInterface;
use weir_sketch::Estimate;

use super::{
    answer::{Answer, Rows, counted, new_flows, order, parts},
    beyond::RankedPrefixes,
    closed::Closed,
    hosts::HostNumbers,
    ranking::{Ranked, Ranking},
    shard::Shard,
    uncertainty::Uncertainty,
};
use crate::question::{KeyQuery, Question, Views, ask::OfInterface};

/// The data that is kept from the last window besides its sketches.
pub struct LastWindow {
    /// The uncertainty about its packets.
    pub uncertainty: Uncertainty,
    /// The rows of its views.
    pub answers: Vec<Answer>,
    /// The interfaces, with their slots.
    pub interfaces: Vec<MeasuredInterface>,
}

/// A key of a view, with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyAnswer {
    /// The number of the view.
    pub view: usize,
    /// The key that matched.
    pub key: ViewKey,
    /// The numbers of the key.
    pub known: KeyValue,
    /// More numbers, if it is a host.
    pub host: Option<HostNumbers>,
}

/// A view's numbers for a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyValue {
    /// The packets and bytes of the key.
    Sums(Ranked<ViewKey>),
    /// Flows, new flows or distinct values.
    Counted(Estimate),
}

impl KeyValue {
    /// Returns true if the key certainly has no traffic.
    const fn is_nothing(&self) -> bool {
        match self {
            Self::Sums(sums) => sums.packets.upper == 0,
            Self::Counted(counted) => counted.upper == 0,
        }
    }
}

/// A key with its interface.
pub(super) struct KeyOfView {
    pub(super) view: usize,
    pub(super) key: ViewKey,
}

impl Answer {
    /// The numbers in the rows of a key. A list in two orders may know more in one of them.
    fn listed(&self, key: &ViewKey) -> Option<KeyValue> {
        let sums = |rows: [&[Ranked<ViewKey>]; 2]| {
            let found = rows.into_iter().flatten().filter(|row| row.key == *key).copied();
            found.reduce(closer).map(KeyValue::Sums)
        };
        self.tables.iter().find_map(|table| match &table.rows {
            Rows::Tallies(Ranking { by_bytes, by_packets, unlisted: _ }) => sums([by_bytes, by_packets]),
            Rows::Prefixes(RankedPrefixes { by_bytes, by_packets }) => {
                let rows = by_bytes.iter().chain(by_packets).map(|row| row.all);
                rows.filter(|row| row.key == *key).reduce(closer).map(KeyValue::Sums)
            }
            Rows::Distinct(rows) => rows.iter().find(|(row, _)| row == key).map(|(_, count)| KeyValue::Counted(*count)),
        })
    }
}

/// Combines two rows of one key.
fn closer(one: Ranked<ViewKey>, other: Ranked<ViewKey>) -> Ranked<ViewKey> {
    let both = |one: Estimate, other: Estimate| {
        let lower = one.lower.max(other.lower);
        let upper = one.upper.min(other.upper).max(lower);
        Estimate { value: one.value.clamp(lower, upper), lower, upper }
    };
    Ranked { packets: both(one.packets, other.packets), bytes: both(one.bytes, other.bytes), ..one }
}

/// The numbers of these keys, after the sketches of all shards were merged into the first. A view with a table for each
/// interface has an answer for each interface where the key has something, or for all interfaces if it has nothing
/// anywhere.
pub fn look_up(
    window: &[Closed],
    plan: &Views,
    asks: &[KeyQuery],
    LastWindow { uncertainty, answers, interfaces }: &LastWindow,
) -> Vec<KeyAnswer> {
    let Some(Closed { shard, .. }) = window.first() else { return Vec::new() };
    let wanted: Vec<Vec<KeyOfView>> = asks.iter().map(|ask| of_interfaces(plan, ask, interfaces)).collect();
    let spreads = spreads(shard, plan, wanted.iter().flatten());
    let mut all = Vec::new();
    for keys in wanted {
        let found = keys.into_iter().filter_map(|KeyOfView { view, key }| {
            let question = &plan.questions[view];
            let spread = spreads.get(&view).and_then(|known| known.get(&question.by.hash_of(shard.hash(), &key)));
            let listed = answers.get(view).and_then(|answer| answer.listed(&key));
            let known = listed.or_else(|| known(shard, (view, question), &key, spread.copied(), uncertainty))?;
            let host = host(shard, (view, question), &key, uncertainty);
            Some(KeyAnswer { view, key, known, host })
        });
        all.extend(of_interest(found.collect()));
    }
    all
}

/// Those of these keys that have something, or all if none has.
pub(super) fn of_interest(found: Vec<KeyAnswer>) -> impl Iterator<Item = KeyAnswer> {
    let have_all_nothing = found.iter().all(|found| found.known.is_nothing());
    found.into_iter().filter(move |found| have_all_nothing || !found.known.is_nothing())
}

/// The keys of each interface that the query means.
pub(super) fn of_interfaces(plan: &Views, ask: &KeyQuery, interfaces: &[MeasuredInterface]) -> Vec<KeyOfView> {
    let KeyQuery { view, key, of: OfInterface { name, way } } = ask;
    let Question { by, own, .. } = &plan.questions[*view];
    // A view of hosts has no other addresses.
    if own.as_ref().is_some_and(|own| !own.has(Address([key.0[0], key.0[1]]), by.layout.is_v6(key))) {
        return Vec::new();
    }
    if by.layout.slots().is_none() {
        return vec![KeyOfView { view: *view, key: *key }];
    }
    let is_meant = |one: &&MeasuredInterface| {
        name.as_ref().is_none_or(|name| *name == one.name) && way.is_none_or(|way| one.direction == Some(way.name()))
    };
    let of_slot = |slot: usize| {
        let mut key = *key;
        by.layout.set(&mut key, Field::Interface, slot as u64);
        KeyOfView { view: *view, key }
    };
    interfaces.iter().filter(is_meant).filter_map(|one| one.slot).map(of_slot).collect()
}

/// The spread estimates by view and key hash; each sketch is searched only once.
fn spreads<'a>(
    shard: &Shard,
    plan: &Views,
    wanted: impl Iterator<Item = &'a KeyOfView>,
) -> BTreeMap<usize, HashMap<u64, Estimate>> {
    let mut hashes: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for KeyOfView { view, key } in wanted {
        hashes.entry(*view).or_default().push(plan.questions[*view].by.hash_of(shard.hash(), key));
    }
    let known = |(view, hashes): (usize, Vec<u64>)| {
        let spread = shard.views[plan.questions[view].sketch(view)].spread()?;
        Some((view, hashes.iter().copied().zip(spread.look_up(&hashes)).collect()))
    };
    hashes.into_iter().filter_map(known).collect()
}

/// The numbers of a host besides the sum of both directions.
fn host(
    shard: &Shard,
    (nth, question): (usize, &Question),
    key: &ViewKey,
    uncertainty: &Uncertainty,
) -> Option<HostNumbers> {
    let sketch = &shard.views[question.sketch(nth)];
    let counts = sketch.hosts()?.counts(&[*key], 1.0 - uncertainty.confidence);
    let held = sketch.look_up(&question.by, shard.hash(), key)?;
    let whole = uncertainty.whole(question.is_fed_by_all);
    let uncertainties = uncertainty.of_view(whole, sketch.total, parts(question));
    Some(HostNumbers::new(*counts.first()?, &held, &uncertainties, uncertainty))
}

fn known(
    shard: &Shard,
    (nth, question): (usize, &Question),
    key: &ViewKey,
    spread: Option<Estimate>,
    uncertainty: &Uncertainty,
) -> Option<KeyValue> {
    let sketch = &shard.views[question.sketch(nth)];
    let held = || sketch.look_up(&question.by, shard.hash(), key);
    Some(match question.view.measure {
        Measure::Bytes | Measure::Packets => {
            let order = order(&question.view.measure);
            let whole = uncertainty.whole(question.is_fed_by_all);
            KeyValue::Sums(uncertainty.of_view(whole, sketch.total, parts(question)).ranked(&held()?, order, 0))
        }
        Measure::NewFlows => KeyValue::Counted(new_flows(sketch.total, held()?, uncertainty)),
        Measure::Flows | Measure::Distinct(_) => {
            let unique = || sketch.unique().map(|distinct| distinct.bounds_at(uncertainty.confidence));
            KeyValue::Counted(counted(question, spread.or_else(unique)?, uncertainty))
        }
    })
}
