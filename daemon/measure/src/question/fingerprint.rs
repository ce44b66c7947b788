//! The fingerprint of a question. Two answers may be added up only if their questions have the same one.
//!
//! It depends on the meaning of a question, not on how it is written: `port: [443, 80]` and `port: [80, 443]` have the
//! same fingerprint, and so do two lists of prefixes with the same addresses. Names of networks count by the addresses
//! that they stand for. So a changed prefix file changes the fingerprints of the views that use its network, and no
//! others. Nothing that belongs to one machine counts: routers with the same configuration have the same fingerprints.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    net::IpAddr,
    sync::Arc,
};

use weir_config::{
    Config, Tunnels,
    names::{
        Geo, Networks,
        geo::Key::{self, Asn, Country},
    },
    view::{Condition, Field, Measure, Values, View, field::Source},
};

use super::filter::{Among, Filter, Test};
use crate::hosts::HostNetworks;

/// The fingerprint of a question. It is written as 16 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Everything that the meaning of views depends on besides themselves.
#[derive(Clone, Copy)]
pub(super) struct Meaning<'a> {
    pub(super) config: &'a Config,
    pub(super) networks: &'a Networks,
    pub(super) geo: &'a Geo,
    pub(super) hosts: &'a Arc<HostNetworks>,
}

impl Meaning<'_> {
    /// The fingerprint of the distinct counts that every report has. They depend on what a flow is, like all views.
    pub(super) fn of_unique(self) -> Fingerprint {
        self.begun().finish()
    }

    /// The fingerprint of a view with this filter, which has a test for each of its conditions.
    pub(super) fn of_view(self, view: &View, filter: &Filter) -> Fingerprint {
        let View { conditions, by, measure, per_interface, of_hosts, .. } = view;
        let mut digest = self.begun();
        let mut tests: Vec<(&Condition, &Test)> = conditions.iter().zip(&filter.0).collect();
        tests.sort_by_key(|(condition, _)| (condition.field.name(), condition.is_negated));
        for (condition, test) in tests {
            digest.line(format_args!("match {} {}", condition.field, condition.is_negated));
            self.values(condition, test, &mut digest);
        }
        digest.line(format_args!("per_interface {per_interface}"));
        for field in by {
            digest.line(format_args!("by {field}"));
            self.names_of(*field, &mut digest);
        }
        if *of_hosts {
            // The networks that were found on this machine do not count: what a host is means the same everywhere.
            digest.line(format_args!("hosts"));
            digest.ranges(self.networks, |id| self.networks.is_own(id));
        }
        match measure {
            Measure::Bytes => digest.line(format_args!("measure bytes")),
            Measure::Packets => digest.line(format_args!("measure packets")),
            Measure::Flows => digest.line(format_args!("measure flows")),
            Measure::NewFlows => {
                digest.line(format_args!("measure new_flows {:?}", self.config.seen_flows.generation));
            }
            Measure::Distinct(of) => {
                digest.line(format_args!("measure distinct"));
                // Different pairs are as many as different pairs the other way round.
                let mut of = of.clone();
                of.sort_by_key(Field::to_string);
                for field in of {
                    digest.line(format_args!("of {field}"));
                    self.names_of(field, &mut digest);
                }
            }
        }
        digest.finish()
    }

    /// A digest of what all questions depend on.
    fn begun(self) -> Digest {
        let mut digest = Digest::new();
        let datapath = &self.config.datapath;
        match datapath.tunnels {
            Tunnels::Outer => digest.line(format_args!("tunnels outer")),
            Tunnels::Inner => digest.line(format_args!("tunnels inner {:?}", datapath.tunnel_ports.0)),
        }
        digest
    }

    fn values(self, condition: &Condition, test: &Test, digest: &mut Digest) {
        match (&condition.values, &test.among) {
            (_, Among::Prefixes(networks)) => digest.ranges(networks, |id| id != Networks::NONE),
            (Values::Networks(_), among) => digest.ranges(self.networks, |id| among.has(id.into())),
            (Values::Ranges(ranges), _) => {
                let mut ranges = ranges.clone();
                ranges.sort_unstable();
                for (first, last) in joined(&ranges) {
                    digest.line(format_args!("{first} to {last}"));
                }
                self.names_of(condition.field, digest);
            }
            (Values::Numbers(numbers) | Values::Flags(numbers), _) => {
                for number in numbers.iter().collect::<BTreeSet<_>>() {
                    digest.line(format_args!("{number}"));
                }
                self.names_of(condition.field, digest);
            }
            (Values::Interfaces(names), _) => {
                for name in names.iter().collect::<BTreeSet<_>>() {
                    digest.line(format_args!("{name:?}"));
                }
            }
            _ => {
                for text in &condition.texts {
                    digest.line(format_args!("{text:?}"));
                }
            }
        }
    }

    /// Adds the table in which the values of a field are looked up.
    fn names_of(self, field: Field, digest: &mut Digest) {
        match field.row().source {
            Some(Source::Networks) => digest.ranges(self.networks, |id| self.networks.name(id)),
            Some(Source::OwnNetworks) => digest.ranges(self.networks, |id| self.networks.is_own(id)),
            Some(Source::Systems) => self.database(Asn, digest),
            Some(Source::Countries) => self.database(Country, digest),
            None => {}
        }
    }

    fn database(self, key: Key, digest: &mut Digest) {
        digest.line(format_args!("database {:?}", self.geo.edition(key)));
    }
}

/// Sorted ranges without overlaps: neighbours become one.
fn joined(ranges: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut all: Vec<(u32, u32)> = Vec::new();
    for &(first, last) in ranges {
        match all.last_mut().filter(|before| first <= before.1.saturating_add(1)) {
            Some(before) => before.1 = before.1.max(last),
            None => all.push((first, last)),
        }
    }
    all
}

/// A hash (FNV-1a) of lines of text. It must never change: reports of different versions of weir are added up by it.
struct Digest(u64);

impl Digest {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing into a digest cannot fail.
        let _ = self.write_fmt(line);
        let _ = self.write_char('\n');
    }

    /// The addresses at which the property of networks changes, and the property from there on.
    fn ranges<P: PartialEq + fmt::Debug>(&mut self, networks: &Networks, property: impl Fn(u8) -> P) {
        let mut last = None;
        networks.each_range(|first, id| {
            let next = (first.is_ipv6(), property(id));
            if last.as_ref() != Some(&next) {
                match first {
                    IpAddr::V4(first) => self.bytes(&first.octets()),
                    IpAddr::V6(first) => self.bytes(&first.octets()),
                }
                self.line(format_args!(" {:?}", next.1));
                last = Some(next);
            }
        });
    }

    const fn finish(self) -> Fingerprint {
        Fingerprint(self.0)
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::question::Views;

    /// The fingerprints of the views of this configuration, by name.
    fn fingerprints(text: &str) -> BTreeMap<String, Fingerprint> {
        let views = Views::new(&Config::parse(text, "a test").unwrap(), 4).unwrap();
        views.questions.iter().map(|question| (question.view.name.clone(), question.fingerprint)).collect()
    }

    /// The fingerprint of a view, among these networks.
    fn of_view(view: &str, networks: &str) -> Fingerprint {
        fingerprints(&format!("networks: {{{networks}}}\nviews: [{{name: w, {view}}}]"))["w"]
    }

    const NETS: &str = "a: {prefixes: [10.0.0.0/8]}, b: {prefixes: [192.0.2.0/24], own: true}";

    #[test]
    fn the_same_question_written_in_another_way_has_the_same_fingerprint() {
        for [one, other] in [
            ["match: {port: [80, 443]}", "match: {port: [443, 80, 80]}"],
            ["match: {port: [80-82]}", "match: {port: [80, 81, 82]}"],
            ["match: {dst_ip: [10.0.0.0/9, 10.128.0.0/9]}", "match: {dst_ip: [10.0.0.0/8, 10.1.2.3]}"],
            ["match: {proto: tcp, port: 80}", "match: {port: 80, proto: 6}"],
            ["by: [src_ip], top: 5", "by: [src_ip], top: 50, error: 0.01, entropy: true"],
            ["measure: {distinct: [src_ip, dst_port]}", "measure: {distinct: [dst_port, src_ip]}"],
            ["match: {interface: [eth0, eth1]}", "match: {interface: [eth1, eth0]}"],
        ] {
            assert_eq!(of_view(one, NETS), of_view(other, NETS), "{one}, {other}");
        }
    }

    #[test]
    fn another_question_has_another_fingerprint() {
        let all = [
            "match: {port: 80}",
            "match: {port: 81}",
            "match: {not: {port: 80}}",
            "match: {src_port: 80}",
            "match: {src_ip: 10.0.0.0/8}",
            "match: {dst_ip: 10.0.0.0/8}",
            "match: {src_net: a}",
            "match: {src_net: b}",
            "match: {src_net: [a, b]}",
            "match: {dst_net: a}",
            "match: {scope: in}",
            "match: {scope: out}",
            "match: {interface: eth0}",
            "match: {interface: eth1}",
            "match: {direction: ingress}",
            "match: {direction: egress}",
            "match: {tcp_flags: syn}",
            "match: {dscp: 46}",
            "by: [src_ip]",
            "by: [src_ip/24]",
            "by: [src_ip/24/32]",
            "by: [src_ip, dst_ip]",
            "by: [src_net]",
            "by: [scope]",
            "by: [src_ip], per: interface",
            "by: [src_ip], measure: packets",
            "by: [src_ip], measure: flows",
            "by: [src_ip], measure: new_flows",
            "by: [src_ip], measure: {distinct: dst_ip}",
            "by: [src_ip], measure: {distinct: dst_port}",
            "measure: {distinct: dst_ip}",
        ];
        let of: BTreeMap<_, _> = all.iter().map(|view| (of_view(view, NETS), view)).collect();
        assert_eq!(of.len(), all.len(), "two have the same");
    }

    /// Networks count only by their effect on a view, so their names do not matter.
    #[test]
    fn networks_count_by_their_addresses() {
        let other_net =
            "a: {prefixes: [10.0.0.0/8]}, b: {prefixes: [192.0.2.0/24], own: true}, c: {prefixes: [203.0.113.0/24]}";
        let within =
            "a: {prefixes: [10.0.0.0/8]}, b: {prefixes: [192.0.2.0/24], own: true}, c: {prefixes: [10.1.0.0/16]}";
        let not_own = "a: {prefixes: [10.0.0.0/8]}, b: {prefixes: [192.0.2.0/24]}";
        let renamed = "x: {prefixes: [10.0.0.0/8]}, b: {prefixes: [192.0.2.0/24], own: true}";
        let order = "b: {prefixes: [192.0.2.0/24], own: true}, a: {prefixes: [10.0.0.0/9, 10.128.0.0/9]}";
        for (view, nets, is_same) in [
            ("match: {src_net: a}", other_net, true),
            ("match: {src_net: a}", within, false),
            ("match: {src_net: a}", not_own, true),
            ("match: {src_net: a}", order, true),
            ("by: [src_net]", other_net, false),
            ("by: [src_net]", renamed, false),
            ("by: [src_net]", order, true),
            ("by: [scope]", not_own, false),
            ("by: [scope]", other_net, true),
            ("match: {scope: in}", not_own, false),
            ("match: {scope: in}", renamed, true),
            ("by: [src_ip]", not_own, true),
            ("measure: {distinct: src_net}", renamed, false),
        ] {
            assert_eq!(of_view(view, NETS) == of_view(view, nets), is_same, "{view} among {nets}");
        }
    }

    #[test]
    fn what_all_lists_depend_on_counts_for_all_of_them() {
        let (outer, inner) = (fingerprints(""), fingerprints("datapath: {tunnels: inner}"));
        assert!(outer.len() > 10 && outer.iter().all(|(name, of)| inner[name] != *of));
        assert_eq!(outer, fingerprints("report: {interval: 60s, top: 3}\nsampling: {packets: 100}"));
        let own = "views: [{name: new, measure: new_flows}, {name: w, by: [src_ip]}]";
        let longer = fingerprints(&format!("{own}\nseen_flows: {{generation: 1h}}"));
        let usual = fingerprints(own);
        assert_eq!(usual.iter().filter(|(name, of)| longer[*name] != **of).count(), 1);
        assert_ne!(usual["new"], longer["new"]);
    }

    /// Reports of different versions are added up by their fingerprints. If this test fails, keep the old fingerprint.
    #[test]
    fn fingerprints_stay_the_same_in_later_versions() {
        assert_eq!(fingerprints("")["sources"].to_string(), SOURCES);
        assert_eq!(of_view("match: {src_net: a, port: [80, 443]}, by: [dst_ip/24]", NETS).to_string(), WEB);
        for (view, fingerprint) in OTHERS {
            assert_eq!(of_view(view, NETS).to_string(), fingerprint, "{view}");
        }
    }

    const SOURCES: &str = "74007701b704aaa7";
    const WEB: &str = "5028d95bf2a8c019";
    /// Each kind of condition, and fields of each kind.
    const OTHERS: [(&str, &str); 7] = [
        ("match: {host: [192.0.2.0/24, 10.0.0.0/8]}", "3b94a85cc2daa376"),
        ("match: {interface: [wan0, eth1]}", "27fb0a2a4da29107"),
        ("match: {direction: egress}", "3e82db0baa920270"),
        ("match: {tcp_flags: [syn, ack]}", "f82ba58ee0b4ba1a"),
        ("match: {net: [a, b]}", "2b07fc39726bf7c5"),
        ("match: {scope: [out, in]}", "4e7b87f29ee2bc99"),
        ("by: [interface, vlan, dscp, ecn, tcp_flags]", "2ea3c16f62132520"),
    ];
}
