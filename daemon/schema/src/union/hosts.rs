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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::Ipv4Addr};

    use super::*;
    use crate::{Report, TopHost, Union};

    const HOSTS: u32 = 6;

    /// What each host has in one window: packets down and up, and peers.
    fn window(random: &mut u64) -> Vec<(u64, u64, BTreeSet<u64>)> {
        let mut next = || {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *random >> 33
        };
        (0..HOSTS).map(|_| (next() % 1000, next() % 500, (0..next() % 20).map(|_| next() % 30).collect())).collect()
    }

    /// A report that lists this many of the hosts, and knows the most of the others.
    fn report(of: &[(u64, u64, BTreeSet<u64>)], rows: usize) -> Report {
        let golden = include_str!("../../tests/golden/report.json");
        let mut report: Report = serde_json::from_str(golden).unwrap();
        report.addresses = None;
        let exact = |value| Estimate { value, lower: value, upper: value, sampled: None };
        let sums = |packets| Sums { packets: exact(packets), bytes: exact(100 * packets) };
        let mut all: Vec<TopHost> = (0..)
            .zip(of)
            .map(|(host, (down, up, peers))| {
                let Sums { packets, bytes } = sums(down + up);
                let peers = exact(peers.len() as u64);
                let numbers = HostNumbers { down: sums(*down), up: sums(*up), flows: peers, peers };
                TopHost { rank: 1, host: Ipv4Addr::from(0x0a00_0000 + host).into(), packets, bytes, numbers }
            })
            .collect();
        all.sort_by_key(|row| std::cmp::Reverse(row.bytes.value));
        let others = all.split_off(rows);
        for top in [&mut report.top, &mut report.top_by_packets] {
            top.hosts.clone_from(&all);
            let most = others.first().map_or(0, |row| row.packets.value);
            top.unlisted.hosts = Some(if top.by == "packets" { most } else { 100 * most });
        }
        report
    }

    #[test]
    fn numbers_of_hosts_over_windows_are_between_their_bounds() {
        let mut random = 7;
        let mut listed = 0;
        for nth in 0..60 {
            let windows: Vec<_> = (0..1 + nth % 5).map(|_| window(&mut random)).collect();
            let reports: Vec<Report> = windows.iter().map(|of| report(of, 3)).collect();
            let union = Union::of(&reports).unwrap();
            for row in union.top.hosts.iter().chain(&union.top_by_packets.hosts) {
                let host = (0..HOSTS).find(|host| row.host == Ipv4Addr::from(0x0a00_0000 + host)).unwrap() as usize;
                let sum = |of: fn(&(u64, u64, BTreeSet<u64>)) -> u64| windows.iter().map(|all| of(&all[host])).sum();
                let peers: BTreeSet<u64> = windows.iter().flat_map(|all| all[host].2.clone()).collect();
                let HostNumbers { down, up, flows: _, peers: of_peers } = row.numbers;
                let (of_down, of_up): (u64, u64) = (sum(|of| of.0), sum(|of| of.1));
                for (Estimate { value, lower, upper, .. }, truth) in [
                    (down.packets, of_down),
                    (up.packets, of_up),
                    (down.bytes, 100 * of_down),
                    (up.bytes, 100 * of_up),
                    (of_peers, peers.len() as u64),
                ] {
                    assert!((lower..=upper).contains(&truth), "{nth}: {lower} to {upper}, truly {truth}");
                    assert!((lower..=upper).contains(&value), "{nth}: {lower} {value} {upper}");
                }
                assert!(down.bytes.upper <= row.bytes.upper && up.packets.upper <= row.packets.upper);
                listed += 1;
            }
        }
        assert!(listed > 300, "{listed} rows");
    }
}
