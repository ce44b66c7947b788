//! Lower bounds that rows prove: a listed key was seen, so there are at least as many distinct ones as the lists name.

use std::{collections::HashSet, hash::Hash, net::IpAddr};

use serde_json::Value;

use super::Union;
use crate::{
    Distinct, Estimate, Row, Top, Unique,
    lists::{Key, ListRow},
};

/// Raises the lower bounds of distinct counts to the number of listed keys. Estimates of single windows do not know
/// that windows listed different keys.
pub(super) fn raise(union: &mut Union) {
    let (mut sources, mut destinations) = (Keys::default(), Keys::default());
    let (mut pairs, mut services, mut flows) = (Keys::default(), Keys::default(), Keys::default());
    let lists = [&union.top, &union.top_by_packets].into_iter().flat_map(Top::lists);
    for ListRow { key, sums, .. } in lists.flat_map(|list| list.rows) {
        let Key { host: _, src_ip, dst_ip, src_port, dst_port, proto, port, prefix: _ } = key;
        let [src, dst] = [src_ip, dst_ip].map(|ip| ip.map(address));
        sources.add(sums.packets, src);
        destinations.add(sums.packets, dst);
        pairs.add(sums.packets, src.zip(dst));
        services.add(sums.packets, proto.zip(port));
        flows.add(sums.packets, src_port.zip(dst_port).map(|ports| (src, dst, ports, proto)));
    }
    // On each interface that carries it, a packet may have other addresses.
    for row in union.views.iter().filter(|view| view.counted == "once").flat_map(|view| view.rows.iter().flatten()) {
        for (keys, field) in [(&mut sources, "src_ip"), (&mut destinations, "dst_ip")] {
            if let Some((packets, address)) = row.packets.zip(address_of(row, field)) {
                keys.add(packets, Some(address));
            }
        }
    }
    let Unique { src_ip, dst_ip, flows: of_flows } = &mut union.unique;
    at_least(src_ip, sources.count());
    at_least(dst_ip, destinations.count());
    // A flow has one source, one destination and one service.
    let all = [sources.count(), destinations.count(), pairs.count(), services.count(), flows.count()];
    at_least(of_flows, all.into_iter().max().unwrap_or(0));
}

fn at_least(distinct: &mut Distinct, proven: u64) {
    distinct.lower = distinct.lower.max(proven);
    distinct.value = distinct.value.max(distinct.lower);
    distinct.upper = distinct.upper.max(distinct.value);
}

/// An IPv4 address counts as the IPv6 address that maps it.
const fn address(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn address_of(row: &Row, field: &str) -> Option<IpAddr> {
    row.key.get(field).and_then(Value::as_str)?.parse().ok().map(address)
}

struct Keys<K>(HashSet<K>);

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<K: Hash + Eq> Keys<K> {
    /// Adds a key, if there is one, that certainly has packets.
    fn add(&mut self, packets: Estimate, key: Option<K>) {
        if packets.lower > 0 {
            self.0.extend(key);
        }
    }

    fn count(&self) -> u64 {
        self.0.len() as u64
    }
}
