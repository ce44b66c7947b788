//! The list of hosts: each direction, flows and peers of every listed address.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use serde_json::{Value, json};
use weir_common::ledger::Tally;

use super::{Oracle, verdict::Verdict};
use crate::truth::Key;

/// What a host truly has.
#[derive(Default)]
struct Host {
    down: Tally,
    up: Tally,
    flows: HashSet<Key>,
    peers: HashSet<IpAddr>,
}

impl Oracle {
    fn hosts(&self) -> HashMap<IpAddr, Host> {
        let mut all = HashMap::<IpAddr, Host>::new();
        for (key, tally) in &self.flows {
            for (host, peer, is_up) in [(key.src, key.dst, true), (key.dst, key.src, false)] {
                let of = all.entry(host).or_default();
                (if is_up { &mut of.up } else { &mut of.down }).add(*tally);
                of.flows.insert(key.flow());
                of.peers.insert(peer);
            }
        }
        all
    }

    /// Compares the list of hosts with the truth. Which addresses are own depends on the configuration and the machine,
    /// so it is not checked which of them are there.
    pub(super) fn check_hosts(&self, top: &Value, place: &str, verdict: &mut Verdict) {
        let Some(rows) = top["hosts"].as_array() else { return };
        let hosts = self.hosts();
        let mut listed = HashSet::new();
        for (nth, row) in rows.iter().enumerate() {
            let place = format!(".{place}.hosts[{nth}]");
            let address: Option<IpAddr> = row["host"].as_str().and_then(|text| text.parse().ok());
            let Some((address, host)) = address.and_then(|address| Some((address, hosts.get(&address)?))) else {
                verdict.deviates(&place, &format!("{} was not there", row["host"]));
                continue;
            };
            if !listed.insert(address) {
                verdict.deviates(&place, &format!("{address} is listed twice"));
            }
            let directions = [("/down", host.down), ("/up", host.up)];
            let both = Tally::new(host.down.packets + host.up.packets, host.down.bytes + host.up.bytes);
            for (direction, truth) in directions.into_iter().chain([("", both)]) {
                for (what, truth) in [("packets", truth.packets), ("bytes", truth.bytes)] {
                    let value = row.pointer(&format!("{direction}/{what}"));
                    verdict.bounds(&at_confidence(value), &format!("{place}{direction}, {what}"), truth);
                }
            }
            for (what, truth) in [("flows", host.flows.len()), ("peers", host.peers.len())] {
                verdict.bounds(&at_confidence(row.get(what)), &format!("{place}, {what}"), truth as u64);
            }
        }
    }
}

/// An estimate whose bounds hold with the confidence of distinct counts, which is also that of sampled sums.
fn at_confidence(estimate: Option<&Value>) -> Value {
    let mut estimate = estimate.cloned().unwrap_or_default();
    if let Some(fields) = estimate.as_object_mut() {
        fields.insert("confidence".to_owned(), json!(0.999));
    }
    estimate
}
