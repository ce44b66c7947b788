//! What a view matches: tests on the fields of a record, all of which have to hold.

use std::sync::Arc;

use weir_common::{
    flow::{Address, class},
    record::Record,
};

use super::directory::{Directory, Selected, Selector};
use crate::{
    names::{Facts, Networks},
    view::{Condition, Field, Of, Side, Values},
};

/// Tests that all have to hold.
#[derive(Clone, Debug, Default)]
pub struct Filter(pub Vec<Test>);

/// A test, or its contrary.
#[derive(Clone, Debug)]
pub struct Test {
    /// Whether the record passes if it does not hold.
    pub is_negated: bool,
    /// What it is about.
    pub of: Of,
    /// The values that pass.
    pub among: Among,
}

/// The values that pass.
#[derive(Clone, Debug)]
pub enum Among {
    /// Addresses in these networks.
    Prefixes(Arc<Networks>),
    /// Numbers in these ranges, both ends included.
    Ranges(Box<[(u32, u32)]>),
    /// Numbers whose bits are set.
    Bits(Box<[u64; 4]>),
    /// Interfaces, by what is there now.
    Interfaces(Arc<Selected>),
}

impl Among {
    /// Numbers below 256 that pass.
    pub fn bits(numbers: impl IntoIterator<Item = u8>) -> Self {
        let mut bits = Box::new([0; 4]);
        for number in numbers {
            bits[usize::from(number) / 64] |= 1 << (number % 64);
        }
        Self::Bits(bits)
    }

    #[inline]
    fn has(&self, number: u32) -> bool {
        match self {
            Self::Ranges(ranges) => ranges.iter().any(|(first, last)| (*first..=*last).contains(&number)),
            Self::Bits(bits) => bits[number as usize / 64 % 4] >> (number % 64) & 1 == 1,
            Self::Interfaces(selected) => selected.has(number as u8),
            Self::Prefixes(_) => false,
        }
    }

    #[inline]
    fn has_address(&self, address: Address, is_v6: bool) -> bool {
        matches!(self, Self::Prefixes(networks) if networks.of(address, is_v6) != Networks::NONE)
    }
}

impl Test {
    /// What a condition comes to, where networks have these numbers.
    pub fn new(condition: &Condition, networks: &Networks, directory: &mut Directory) -> Self {
        let (of, among) = match &condition.values {
            Values::Prefixes(side, prefixes) => {
                (Of::Ip(*side), Among::Prefixes(Arc::new(Networks::of_prefixes(prefixes))))
            }
            Values::Ranges(of, ranges) => (*of, Among::Ranges(ranges.clone().into_boxed_slice())),
            Values::Numbers(of, numbers) => (*of, Among::bits(numbers.iter().copied())),
            Values::Interfaces(names) => (Of::Slot, Among::Interfaces(directory.add(Selector::Names(names.clone())))),
            Values::Direction(way) => (Of::Slot, Among::Interfaces(directory.add(Selector::Direction(*way)))),
            Values::Networks(side, names) => {
                (Of::Net(*side), Among::bits(names.iter().map(|name| networks.id(name).unwrap_or(Networks::NONE))))
            }
        };
        Self { is_negated: condition.is_negated, of, among }
    }

    /// Whether a record passes.
    #[inline]
    pub fn passes(&self, record: &Record, facts: Facts<'_>) -> bool {
        self.holds(record, facts) != self.is_negated
    }

    #[inline]
    fn holds(&self, record: &Record, facts: Facts<'_>) -> bool {
        let (key, among) = (&record.key, &self.among);
        let is_v6 = key.is_v6();
        let known = |side: Side, of: fn(Side) -> Field| {
            side.each().iter().any(|side| among.has(of(*side).number(record, facts) as u32))
        };
        let net = |address| among.has(facts.networks.of(address, is_v6).into());
        match self.of {
            Of::Ip(Side::Src) => among.has_address(key.src, is_v6),
            Of::Ip(Side::Dst) => among.has_address(key.dst, is_v6),
            Of::Ip(Side::Host) => among.has_address(key.src, is_v6) || among.has_address(key.dst, is_v6),
            Of::SrcPort => among.has(key.src_port().into()),
            Of::DstPort => among.has(key.dst_port().into()),
            Of::Port => among.has(key.src_port().into()) || among.has(key.dst_port().into()),
            Of::Proto => among.has(key.proto().into()),
            Of::IpVersion => among.has(is_v6.into()),
            Of::Fragment => among.has((key.class() & class::FRAGMENT != 0).into()),
            Of::Slot => among.has(key.interface().into()),
            Of::Vlan => among.has((record.vlan & 0xfff).into()),
            Of::Dscp => among.has((record.tos >> 2).into()),
            Of::Ecn => among.has((record.tos & 3).into()),
            Of::TcpFlags => (0..8).any(|bit| record.tcp_flags >> bit & 1 == 1 && among.has(bit)),
            Of::Net(Side::Src) => net(key.src),
            Of::Net(Side::Dst) => net(key.dst),
            Of::Net(Side::Host) => net(key.src) || net(key.dst),
            Of::As(side) => known(side, Field::As),
            Of::Country(side) => known(side, Field::Country),
            Of::Scope => {
                let [src, dst] = [key.src, key.dst].map(|address| facts.networks.of(address, is_v6));
                among.has(facts.networks.scope(src, dst) as u32)
            }
        }
    }
}

impl Filter {
    /// Whether a record passes all tests.
    #[inline]
    pub fn passes(&self, record: &Record, facts: Facts<'_>) -> bool {
        self.0.iter().all(|test| test.passes(record, facts))
    }

    /// Whether there are no tests.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it tells interfaces apart.
    pub fn has_interface(&self) -> bool {
        self.0.iter().any(|test| test.of == Of::Slot)
    }

    /// Whether all records of a flow pass, or none.
    pub fn is_of_flow(&self) -> bool {
        self.0.iter().all(|test| test.of.is_of_flow())
    }
}

#[cfg(test)]
mod tests {
    use weir_common::flow::FlowKey;

    use super::*;
    use crate::{config::Config, interface::Way, question::Views};

    /// Whether the only view of a configuration passes a record.
    fn passes(conditions: &str, record: &Record) -> bool {
        let networks = "networks: {own: {prefixes: [10.0.0.0/8], own: true}, peer: {prefixes: [192.0.2.0/24]}}";
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus");
        let geo = format!("geo: {{asn: {corpus}/asn.mmdb, country: {corpus}/country.mmdb}}");
        let text = format!("{networks}\n{geo}\nviews: [{{name: w, match: {{{conditions}}}}}]");
        let config = Config::parse(&text, "test").unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let views = Views::new(&config, 4).unwrap();
        views.directory.assign(0, "wan0", Some(Way::Ingress));
        views.directory.assign(1, "wan0", Some(Way::Egress));
        views.directory.assign(2, "lan0", Some(Way::Ingress));
        let (_, question) = views.own().next().unwrap();
        question.filter.passes(record, views.facts())
    }

    fn record() -> Record {
        let [src, dst] = ["10.1.2.3", "192.0.2.9"].map(|ip| Address::from(ip.parse::<std::net::Ipv4Addr>().unwrap()));
        let key = FlowKey::new(src, dst, 6, 0).with_ports(50_000, 443);
        let key = key.with_scope(weir_common::flow::Scope::new(1, 7));
        // Expedited forwarding with congestion experienced; SYN and ACK.
        Record {
            key,
            tos: 46 << 2 | 3,
            tcp_flags: 0x12,
            vlan: 100,
            packets: 1,
            bytes: 60,
            sampling: 1,
            ..Record::default()
        }
    }

    #[test]
    fn each_condition_passes_what_it_says_and_nothing_else() {
        let passing = [
            "src_ip: 10.0.0.0/8",
            "dst_ip: 192.0.2.9",
            "host: 192.0.2.0/24",
            "host: 10.1.2.3",
            "src_port: 50000",
            "dst_port: [80, 440-450]",
            "port: 443",
            "port: 50000",
            "proto: tcp",
            "proto: 6",
            "ip_version: 4",
            "fragment: false",
            "interface: wan0",
            "interface: \"w*\"",
            "direction: egress",
            "vlan: 90-110",
            "dscp: ef",
            "dscp: 46",
            "ecn: ce",
            "tcp_flags: syn",
            "tcp_flags: [fin, ack]",
            "src_net: own",
            "dst_net: peer",
            "net: own",
            "net: peer",
            "scope: out",
            "dst_as: 64496",
            "dst_as: [1, AS64490-as64500]",
            "src_as: 0",
            "dst_country: xx",
            "dst_country: [DE, XX]",
            "not: {src_country: [XX, NO]}",
            "proto: tcp, not: {dst_port: 80, vlan: 7}",
        ];
        let failing = [
            "src_ip: 192.0.2.0/24",
            "dst_ip: 10.0.0.0/8",
            "host: 198.51.100.0/24",
            "src_ip: \"::/0\"",
            "src_port: 443",
            "dst_port: [80, 400-442]",
            "port: 80",
            "proto: [udp, icmp]",
            "ip_version: 6",
            "fragment: true",
            "interface: lan0",
            "interface: \"l*\"",
            "direction: ingress",
            "vlan: 0",
            "dscp: af41",
            "ecn: ect0",
            "tcp_flags: rst",
            "src_net: peer",
            "dst_net: own",
            "scope: [in, transit, internal]",
            "src_as: 64496",
            "dst_as: [64495, 64497-4294967295]",
            "dst_country: XY",
            "src_country: XX",
            "proto: tcp, not: {dst_port: 443}",
            "proto: tcp, dst_port: 80",
            "not: {vlan: 100, ecn: ect0}",
        ];
        assert!(passing.into_iter().all(|conditions| passes(conditions, &record()) || panic!("{conditions}")));
        assert!(failing.into_iter().all(|conditions| !passes(conditions, &record()) || panic!("{conditions}")));
    }
}
