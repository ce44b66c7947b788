//! Ranks prefixes by the traffic of their unlisted addresses.

use std::{cmp::Reverse, collections::BTreeMap};

use weir_common::{ledger::Tally, sketch::Metric};
use weir_config::view::ViewKey;
use weir_sketch::Estimate;

use super::{
    heavy_hitters::KeyEstimate,
    prefixes::Prefix,
    ranking::{Ranked, Ranking, keep_largest},
    uncertainty::ViewUncertainty,
    whole::reconcile,
};

/// A prefix, and the traffic of its unlisted addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedPrefix {
    /// All traffic of the prefix.
    pub all: Ranked<ViewKey>,
    /// The part of its unlisted addresses. Its bounds hold if those of the prefix and of all its listed members hold.
    pub beyond: Ranked<ViewKey>,
    /// How many of its addresses are in the list of addresses, in the same order.
    pub members: u32,
}

/// The prefixes whose unlisted addresses have the most, in two orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankedPrefixes {
    /// The prefixes with the most bytes.
    pub by_bytes: Vec<RankedPrefix>,
    /// The prefixes with the most packets.
    pub by_packets: Vec<RankedPrefix>,
}

impl RankedPrefixes {
    /// The first `top` of these prefixes in each order. `listed` is the list of addresses, if there is one, and
    /// `look_up` returns the sum of the records of one of them.
    pub fn new(
        prefixes: impl Iterator<Item = KeyEstimate<ViewKey>>,
        listed: Option<&Ranking<ViewKey>>,
        look_up: impl Fn(&ViewKey) -> Tally,
        top: usize,
        uncertainty: &ViewUncertainty,
    ) -> Self {
        let of = |rows: Option<&Vec<Ranked<ViewKey>>>, order| List {
            order,
            members: Members::by_prefix(rows.into_iter().flatten(), &look_up),
            // Keep one more than is listed: it shows how large a listed prefix had to be.
            largest: Vec::new(),
        };
        let mut lists =
            [of(listed.map(|l| &l.by_bytes), Metric::Bytes), of(listed.map(|l| &l.by_packets), Metric::Packets)];
        for held in prefixes {
            let value = Metric::each(|metric| metric.of(held.value).min(metric.of(uncertainty.total())));
            for list in &mut lists {
                list.offer(KeyEstimate { value, ..held }, top + 1);
            }
        }
        let [by_bytes, by_packets] = lists.map(|list| list.rows(top, uncertainty));
        Self { by_bytes, by_packets }
    }
}

/// The sum of the listed addresses of a prefix.
#[derive(Clone, Copy, Default)]
struct Members {
    count: u32,
    /// The sum of their records.
    counted: Tally,
    packets: Estimate,
    bytes: Estimate,
    sampled: Tally,
}

impl Members {
    fn by_prefix<'a>(
        rows: impl Iterator<Item = &'a Ranked<ViewKey>>,
        look_up: &impl Fn(&ViewKey) -> Tally,
    ) -> BTreeMap<Prefix, Self> {
        let mut all = BTreeMap::<_, Self>::new();
        for Ranked { key, packets, bytes, sampled } in rows {
            let members = all.entry(Prefix::of(key)).or_default();
            members.count += 1;
            members.counted.add(look_up(key));
            add(&mut members.packets, packets);
            add(&mut members.bytes, bytes);
            members.sampled.add(sampled.unwrap_or_default());
        }
        all
    }
}

/// The list in one order.
struct List {
    order: Metric,
    members: BTreeMap<Prefix, Members>,
    largest: Vec<Candidate>,
}

struct Candidate {
    held: KeyEstimate<ViewKey>,
    members: Members,
    /// The sum of its records without those of its members.
    beyond: Tally,
}

impl List {
    fn offer(&mut self, held: KeyEstimate<ViewKey>, most: usize) {
        let members = self.members.get(&Prefix::of(&held.key)).copied().unwrap_or_default();
        let beyond = Metric::each(|metric| metric.of(held.value).saturating_sub(metric.of(members.counted)));
        if self.order.of(beyond) == 0 {
            return;
        }
        let other = if self.order == Metric::Bytes { Metric::Packets } else { Metric::Bytes };
        let order = |c: &Candidate| (Reverse((self.order.of(c.beyond), other.of(c.beyond))), c.held.key);
        _ = keep_largest(&mut self.largest, most, Candidate { held, members, beyond }, order);
    }

    fn rows(self, top: usize, uncertainty: &ViewUncertainty) -> Vec<RankedPrefix> {
        let Self { order, members: _, largest } = self;
        let needed = largest.get(top).map(|first_left_out| order.of(first_left_out.beyond));
        let listed: Vec<_> = largest.iter().take(top).collect();
        let all = listed.iter().map(|Candidate { held, members, beyond: _ }| {
            // The prefix has the traffic of its members in any case.
            let needed = needed.map_or(0, |needed| needed.saturating_add(order.of(members.counted)));
            uncertainty.ranked(held, order, needed)
        });
        let mut all: Vec<_> = all.collect();
        reconcile(all.iter_mut(), &mut uncertainty.as_total(), true);
        let row = |(Candidate { members, .. }, all): (&Candidate, Ranked<ViewKey>)| {
            let beyond = Ranked {
                key: all.key,
                packets: without(all.packets, members.packets),
                bytes: without(all.bytes, members.bytes),
                sampled: all.sampled.map(|sampled| {
                    Metric::each(|metric| metric.of(sampled).saturating_sub(metric.of(members.sampled)))
                }),
            };
            RankedPrefix { all, beyond, members: members.count }
        };
        let mut rows: Vec<_> = listed.into_iter().zip(all).map(row).collect();
        rows.sort_by_key(|row| match order {
            Metric::Bytes => Reverse(row.beyond.bytes.value),
            Metric::Packets => Reverse(row.beyond.packets.value),
        });
        rows
    }
}

const fn add(sum: &mut Estimate, more: &Estimate) {
    sum.value = sum.value.saturating_add(more.value);
    sum.lower = sum.lower.saturating_add(more.lower);
    sum.upper = sum.upper.saturating_add(more.upper);
}

/// A whole minus a part of it.
fn without(whole: Estimate, part: Estimate) -> Estimate {
    let lower = whole.lower.saturating_sub(part.upper);
    let upper = whole.upper.saturating_sub(part.lower).max(lower);
    Estimate { value: whole.value.saturating_sub(part.value).clamp(lower, upper), lower, upper }
}
