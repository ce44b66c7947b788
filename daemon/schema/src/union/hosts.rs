//! What rows of hosts have besides their counts, over several windows.
//!
//! A window that does not list a host tells only that it has at most as much as any unlisted host, in either direction.
//! So many packets may be of so many flows, to so many peers. Flows and peers of several windows may be the same ones.

use std::collections::HashMap;

use super::list::{Entry, Listed};
use crate::{Estimate, HostNumbers, Sums};

/// Rows with their numbers over all windows, if they are rows of hosts.
pub(super) fn added_up<E: Entry>(rows: Vec<E>, windows: &[Listed<'_, E>]) -> Vec<E> {
    if rows.iter().all(|row| row.host().is_none()) {
        return rows;
    }
    let mut all = vec![HostNumbers::default(); rows.len()];
    for Listed { rows: listed, others } in windows {
        let listed: HashMap<E::Key<'_>, HostNumbers> =
            listed.iter().filter_map(|row| Some((row.key(), row.host()?))).collect();
        let at_most = |upper| Estimate { value: 0, lower: 0, upper, sampled: None };
        let sums = Sums { packets: at_most(others.packets), bytes: at_most(others.bytes) };
        let unlisted = HostNumbers { down: sums, up: sums, flows: sums.packets, peers: sums.packets };
        for (row, sum) in rows.iter().zip(&mut all) {
            sum.add(listed.get(&row.key()).unwrap_or(&unlisted));
        }
    }
    let with_host = |(row, sum): (E, HostNumbers)| match row.counts() {
        Some(counts) => row.with_host(sum.within(counts.sums())),
        None => row,
    };
    rows.into_iter().zip(all).map(with_host).collect()
}

impl HostNumbers {
    /// Adds the numbers of the same host in another window.
    fn add(&mut self, other: &Self) {
        for (one, other) in [(&mut self.down, other.down), (&mut self.up, other.up)] {
            add(&mut one.packets, other.packets);
            add(&mut one.bytes, other.bytes);
        }
        for (one, other) in [(&mut self.flows, other.flows), (&mut self.peers, other.peers)] {
            let (value, lower) = (one.value.max(other.value), one.lower.max(other.lower));
            *one = Estimate { value, lower, upper: one.upper.saturating_add(other.upper), sampled: None };
        }
    }

    /// The same numbers with the bounds that follow from the sums of both directions.
    fn within(self, whole: Sums) -> Self {
        let part = |one: Estimate, other: Estimate, whole: Estimate| {
            let upper = one.upper.min(whole.upper.saturating_sub(other.lower)).max(one.lower);
            Estimate { value: one.value.clamp(one.lower, upper), upper, ..one }
        };
        let direction = |one: Sums, other: Sums| Sums {
            packets: part(one.packets, other.packets, whole.packets),
            bytes: part(one.bytes, other.bytes, whole.bytes),
        };
        // Each flow and each peer has a packet.
        let distinct = |one: Estimate| part(one, Estimate::default(), whole.packets);
        let Self { down, up, flows, peers } = self;
        Self { down: direction(down, up), up: direction(up, down), flows: distinct(flows), peers: distinct(peers) }
    }
}

const fn add(one: &mut Estimate, other: Estimate) {
    one.value = one.value.saturating_add(other.value);
    one.lower = one.lower.saturating_add(other.lower);
    one.upper = one.upper.saturating_add(other.upper);
    one.sampled = None;
}
