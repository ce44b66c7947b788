//! Lists of prefixes: the traffic of each prefix, and the part of it that does not belong to listed addresses.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde_json::{Value, json};
use weir_common::ledger::Tally;

use super::{By, Dimension, Oracle, Subject, verdict::Verdict};

/// The network of an address as reports write it: of 24 bits for IPv4, of 48 for IPv6.
fn network(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => format!("{}/24", Ipv4Addr::from_bits(ip.to_bits() >> 8 << 8)),
        IpAddr::V6(ip) => format!("{}/48", Ipv6Addr::from_bits(ip.to_bits() >> 80 << 80)),
    }
}

/// A list of prefixes, and the list of addresses that may hold their members.
#[derive(Clone, Copy)]
pub(super) struct List {
    pub name: &'static str,
    addresses: Dimension,
    /// The field of the address in that list.
    field: &'static str,
}

pub(super) const LISTS: [List; 2] = [
    List { name: "source_prefixes", addresses: Dimension::Sources, field: "src_ip" },
    List { name: "destination_prefixes", addresses: Dimension::Destinations, field: "dst_ip" },
];

/// Up to this number, all prefixes are candidates, so they are counted exactly unless packets are missing.
const CERTAIN_MAX: usize = 200;

/// Returns true if all bounds of both lists of prefixes of a top list hold, whatever their order.
pub fn prefixes_hold(oracle: &Oracle, top: &Value, by: By) -> bool {
    let mut verdict = Verdict::default();
    oracle.check_prefixes(top, "top", by, false, &mut verdict);
    verdict.result().is_ok()
}

fn less(whole: Tally, part: Tally) -> Tally {
    Tally::new(whole.packets.saturating_sub(part.packets), whole.bytes.saturating_sub(part.bytes))
}

impl Oracle {
    /// The traffic of every address and of every prefix.
    fn of_prefixes(&self, list: List) -> (HashMap<IpAddr, Tally>, HashMap<String, Tally>) {
        let tallies = self.tallies(list.addresses).into_iter();
        let addresses: HashMap<IpAddr, Tally> = tallies
            .filter_map(|(subject, tally)| match subject {
                Subject::Source(ip) | Subject::Destination(ip) => Some((ip, tally)),
                _ => None,
            })
            .collect();
        let mut prefixes = HashMap::<String, Tally>::new();
        for (ip, tally) in &addresses {
            prefixes.entry(network(*ip)).or_default().add(*tally);
        }
        (addresses, prefixes)
    }

    /// The list of a perfect report that lists this many addresses.
    pub(super) fn prefixes(&self, list: List, by: By, count: usize) -> Value {
        let (_, prefixes) = self.of_prefixes(list);
        let mut members = HashMap::<String, (u32, Tally)>::new();
        for (subject, tally) in self.top(list.addresses, by, count) {
            if let Subject::Source(ip) | Subject::Destination(ip) = subject {
                let (number, sum) = members.entry(network(ip)).or_default();
                *number += 1;
                sum.add(tally);
            }
        }
        let mut rows: Vec<_> = prefixes
            .into_iter()
            .map(|(prefix, all)| {
                let (number, sum) = members.get(&prefix).copied().unwrap_or_default();
                (prefix, all, less(all, sum), number)
            })
            .filter(|(_, _, beyond, _)| by.of(*beyond) > 0)
            .collect();
        rows.sort_by(|one, other| (Reverse(by.of(one.2)), &one.0).cmp(&(Reverse(by.of(other.2)), &other.0)));
        let row = |(prefix, all, beyond, members): (String, Tally, Tally, u32)| {
            json!({
                "prefix": prefix, "packets": all.packets, "bytes": all.bytes, "members": members,
                "beyond": {"packets": beyond.packets, "bytes": beyond.bytes},
            })
        };
        rows.into_iter().take(count).map(row).collect()
    }

    /// Compares both lists of prefixes with the truth about the prefixes, and about the addresses that the report
    /// lists. If `is_complete`, nothing was lost or left out.
    pub(super) fn check_prefixes(&self, top: &Value, place: &str, by: By, is_complete: bool, verdict: &mut Verdict) {
        for list in LISTS {
            let place = format!(".{place}.{}", list.name);
            let (Some(rows), Some(listed)) = (top[list.name].as_array(), top[list.addresses.name()].as_array()) else {
                verdict.deviates(&place, "is not a list, or its list of addresses is none");
                continue;
            };
            let (addresses, prefixes) = self.of_prefixes(list);
            let mut members = HashMap::<String, (u64, Tally)>::new();
            for ip in listed.iter().filter_map(|entry| entry[list.field].as_str()?.parse().ok()) {
                let (number, sum) = members.entry(network(ip)).or_default();
                *number += 1;
                sum.add(addresses.get(&ip).copied().unwrap_or_default());
            }
            let members = |prefix: &str| members.get(prefix).copied().unwrap_or_default();
            let (mut seen, mut last, mut is_exact) = (HashSet::new(), u64::MAX, true);
            for (nth, row) in rows.iter().enumerate() {
                let place = format!("{place}[{nth}]");
                let prefix = row["prefix"].as_str().unwrap_or_default();
                let Some(all) = prefixes.get(prefix) else {
                    verdict.deviates(&place, &format!("{prefix:?} was not there"));
                    continue;
                };
                if !seen.insert(prefix) {
                    verdict.deviates(&place, &format!("{prefix} is listed twice"));
                }
                let (number, sum) = members(prefix);
                verdict.equal(&format!("{place}.members"), number, row["members"].as_u64().unwrap_or(u64::MAX));
                for (what, truth, counted) in [("all", *all, row), ("beyond", less(*all, sum), &row["beyond"])] {
                    for (measure, truth) in [("packets", truth.packets), ("bytes", truth.bytes)] {
                        let place = format!("{place}, {what} {measure}");
                        let Some(estimate) = verdict.estimate(&counted[measure], &place) else { continue };
                        is_exact &= estimate.is_exact();
                        if !estimate.holds(truth) {
                            verdict.deviates(&place, &format!("{truth} of {prefix} is outside of {estimate}"));
                        }
                        if what == "beyond" && measure == by.name() {
                            if estimate.value > last {
                                verdict.deviates(&place, &format!("{} comes after {last}", estimate.value));
                            }
                            last = estimate.value;
                        }
                    }
                }
            }
            // If everything is exact, the rows must be the truly largest; if there are few prefixes, all must be
            // listed.
            if is_complete && is_exact && prefixes.len() <= CERTAIN_MAX {
                let least = if rows.is_empty() { 0 } else { last };
                for (prefix, all) in prefixes.iter().filter(|(prefix, _)| !seen.contains(prefix.as_str())) {
                    let beyond = by.of(less(*all, members(prefix).1));
                    if beyond > least || rows.is_empty() && beyond > 0 {
                        verdict.deviates(&place, &format!("{prefix} with {beyond} is not listed"));
                    }
                }
            }
        }
    }
}
