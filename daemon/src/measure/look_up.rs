//! What is known of a key that somebody asks for, listed or not: the bounds that a list would show, or closer ones.

use std::collections::{BTreeMap, HashMap};

use weir_sketch::Estimate;

use super::{
    answer::{counted, new_flows, parts},
    doubt::Doubt,
    interface::MeasuredInterface,
    order::Closed,
    ranking::Ranked,
    shard::Shard,
};
use crate::{
    question::{Ask, Question, Views, ask::OfInterface},
    view::{Field, Measure, ViewKey},
};

/// A key of a view, and what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The number of the view.
    pub view: usize,
    /// The key.
    pub key: ViewKey,
    /// What is known.
    pub known: Known,
}

/// What a view counts of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known {
    /// Packets and bytes.
    Sums(Ranked<ViewKey>),
    /// Flows, new flows or different values.
    Counted(Estimate),
}

impl Known {
    /// Whether there was nothing for certain.
    const fn is_nothing(&self) -> bool {
        match self {
            Self::Sums(sums) => sums.packets.upper == 0,
            Self::Counted(counted) => counted.upper == 0,
        }
    }
}

/// A key with its interface.
struct Wanted {
    view: usize,
    key: ViewKey,
    /// Whether it is left out if there was nothing: one of the tables of all interfaces.
    is_one_of_all: bool,
}

/// What is known of these keys, after the sketches of all shards were merged into the first. A view with a table for
/// each interface tells of each that had something, unless one is named.
pub fn look_up(
    window: &[Closed],
    plan: &Views,
    asks: &[Ask],
    doubt: &Doubt,
    interfaces: &[MeasuredInterface],
) -> Vec<Found> {
    let Some(Closed { shard, .. }) = window.first() else { return Vec::new() };
    let wanted: Vec<Wanted> = asks.iter().flat_map(|ask| of_interfaces(plan, ask, interfaces)).collect();
    let spreads = spreads(shard, plan, &wanted);
    let mut all = Vec::new();
    for Wanted { view, key, is_one_of_all } in wanted {
        let question = &plan.questions[view];
        let spread = spreads.get(&view).and_then(|known| known.get(&question.by.hash_of(shard.hash(), &key)));
        let Some(known) = known(shard, (view, question), &key, spread.copied(), doubt) else { continue };
        if !(is_one_of_all && known.is_nothing()) {
            all.push(Found { view, key, known });
        }
    }
    all
}

/// The keys of each interface that is meant.
fn of_interfaces(plan: &Views, ask: &Ask, interfaces: &[MeasuredInterface]) -> Vec<Wanted> {
    let Ask { view, key, of: OfInterface { name, way } } = ask;
    let by = &plan.questions[*view].by;
    if by.slots().is_none() {
        return vec![Wanted { view: *view, key: *key, is_one_of_all: false }];
    }
    let is_meant = |one: &&MeasuredInterface| {
        name.as_ref().is_none_or(|name| *name == one.name) && way.is_none_or(|way| one.direction == Some(way.name()))
    };
    let of_slot = |one: &MeasuredInterface| {
        let mut key = *key;
        by.set(&mut key, Field::Interface, one.slot as u64);
        Wanted { view: *view, key, is_one_of_all: name.is_none() }
    };
    interfaces.iter().filter(is_meant).map(of_slot).collect()
}

/// By view and by the hash of a key, what a spread knows: each is looked through once.
fn spreads(shard: &Shard, plan: &Views, wanted: &[Wanted]) -> BTreeMap<usize, HashMap<u64, Estimate>> {
    let mut hashes: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for Wanted { view, key, .. } in wanted {
        hashes.entry(*view).or_default().push(plan.questions[*view].by.hash_of(shard.hash(), key));
    }
    let known = |(view, hashes): (usize, Vec<u64>)| {
        let spread = shard.views[plan.questions[view].sketch(view)].spread()?;
        Some((view, hashes.iter().copied().zip(spread.look_up(&hashes)).collect()))
    };
    hashes.into_iter().filter_map(known).collect()
}

fn known(
    shard: &Shard,
    (nth, question): (usize, &Question),
    key: &ViewKey,
    spread: Option<Estimate>,
    doubt: &Doubt,
) -> Option<Known> {
    let sketch = &shard.views[question.sketch(nth)];
    let held = || sketch.look_up(&question.by, shard.hash(), key);
    Some(match question.view.measure {
        Measure::Bytes | Measure::Packets => {
            let order = question.view.measure.order();
            Known::Sums(doubt.of_view(sketch.total, parts(question)).ranked(&held()?, order, 0))
        }
        Measure::NewFlows => Known::Counted(new_flows(sketch, held()?, doubt)),
        Measure::Flows | Measure::Distinct(_) => {
            let unique = || sketch.unique().map(|distinct| distinct.bounds_at(doubt.confidence));
            Known::Counted(counted(question, spread.or_else(unique)?, doubt))
        }
    })
}
