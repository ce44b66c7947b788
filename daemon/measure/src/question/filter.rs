//! The filter of a view: tests on the fields of a record, all of which must hold.

use std::sync::Arc;

use weir_common::{
    flow::{Address, class},
    record::Record,
};
use weir_config::{
    names::{Facts, Networks},
    view::{Condition, Field, Of, Side, Values},
};

use weir_datapath::directory::{Directory, Selected, Selector};

/// Tests, all of which must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter(pub Vec<Test>);

/// A test or its negation.
#[derive(Clone, Debug)]
pub struct Test {
    /// Whether the record passes if the test does not hold.
    pub is_negated: bool,
    /// The field that it reads.
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
    /// Interfaces, as the slots that are selected now.
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
    pub(super) fn has(&self, number: u32) -> bool {
        self.having(&[number]) == 1
    }

    /// Which of these numbers pass. Separate loops for each kind of value take a fraction of the time of one loop for
    /// all.
    #[inline]
    fn having(&self, numbers: &[u32]) -> u32 {
        match self {
            Self::Ranges(ranges) => ranges.iter().fold(0, |having, (first, last)| {
                having | bits(numbers.iter(), |number| (*first..=*last).contains(number))
            }),
            Self::Bits(set) => bits(numbers.iter(), |number| set[*number as usize / 64 % 4] >> (number % 64) & 1 == 1),
            Self::Interfaces(selected) => bits(numbers.iter(), |number| selected.has(*number as u8)),
            Self::Prefixes(_) => 0,
        }
    }

    #[inline]
    fn has_address(&self, address: Address, is_v6: bool) -> bool {
        matches!(self, Self::Prefixes(networks) if networks.of(address, is_v6) != Networks::NONE)
    }
}

/// How many records a filter tests at once, one bit each.
pub const RECORDS_MAX: usize = u32::BITS as usize;

/// A bit for each item that has a property; the first is the lowest.
#[inline(always)]
fn bits<T>(items: impl Iterator<Item = T>, has: impl Fn(T) -> bool) -> u32 {
    items.zip(0..u32::BITS).fold(0, |bits, (item, nth)| bits | u32::from(has(item)) << nth)
}

impl Test {
    /// The test of a condition; `networks` has the numbers of the networks.
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

    /// Which of the records in `so_far` pass.
    #[inline]
    fn passing<'a>(&self, so_far: u32, records: impl Iterator<Item = &'a Record> + Clone, facts: Facts<'_>) -> u32 {
        let holding = self.holding(so_far, records, facts);
        so_far & if self.is_negated { !holding } else { holding }
    }

    /// For which of these records the test holds. There is a loop for each field. Slow fields are looked up only for
    /// the records in `so_far`; the other bits may be wrong.
    #[inline]
    fn holding<'a>(&self, so_far: u32, records: impl Iterator<Item = &'a Record> + Clone, facts: Facts<'_>) -> u32 {
        let among = &self.among;
        macro_rules! having {
            ($number:expr) => {{
                let (mut numbers, mut count) = ([0; RECORDS_MAX], 0);
                for (number, record) in numbers.iter_mut().zip(records.clone()) {
                    *number = u32::from($number(record));
                    count += 1;
                }
                among.having(&numbers[..count])
            }};
        }
        // Finding a network takes several nanoseconds, and looking up an address takes hundreds.
        macro_rules! search {
            ($side:expr, $has:expr) => {
                bits(records.clone().zip(0..u32::BITS), |(record, nth)| {
                    so_far >> nth & 1 == 1 && $side.each().iter().any(|side| $has(*side, record))
                })
            };
        }
        let net = |side: Side, record: &Record| facts.networks.of(side.address(&record.key), record.key.is_v6());
        match self.of {
            Of::Ip(side) => search!(side, |side: Side, Record { key, .. }: &Record| {
                among.has_address(side.address(key), key.is_v6())
            }),
            Of::SrcPort => having!(|record: &Record| record.key.src_port()),
            Of::DstPort => having!(|record: &Record| record.key.dst_port()),
            Of::Port => {
                having!(|record: &Record| record.key.src_port()) | having!(|record: &Record| record.key.dst_port())
            }
            Of::Proto => having!(|record: &Record| record.key.proto()),
            Of::IpVersion => having!(|record: &Record| record.key.is_v6()),
            Of::Fragment => having!(|record: &Record| record.key.class() & class::FRAGMENT != 0),
            Of::Slot => having!(|record: &Record| record.key.interface()),
            Of::Vlan => having!(|record: &Record| record.vlan & 0xfff),
            Of::Dscp => having!(|record: &Record| record.tos >> 2),
            Of::Ecn => having!(|record: &Record| record.tos & 3),
            Of::TcpFlags => {
                let flags = bits(0..u8::BITS, |bit| among.has(bit));
                bits(records, |record| u32::from(record.tcp_flags) & flags != 0)
            }
            Of::Net(side) => search!(side, |side, record| among.has(net(side, record).into())),
            Of::As(side) => search!(side, |side, record| among.has(Field::As(side).number(record, facts) as u32)),
            Of::Country(side) => {
                search!(side, |side, record| among.has(Field::Country(side).number(record, facts) as u32))
            }
            Of::Scope => search!(Side::Src, |_, record| among.has(Field::Scope.number(record, facts) as u32)),
        }
    }
}

impl Filter {
    /// Which of at most [`RECORDS_MAX`] records pass all tests. Each has a bit, and the first record has the lowest.
    #[inline]
    pub fn passing<'a>(&self, records: &(impl ExactSizeIterator<Item = &'a Record> + Clone), facts: Facts<'_>) -> u32 {
        let all = u32::MAX.checked_shr(u32::BITS - records.len().min(RECORDS_MAX) as u32).unwrap_or(0);
        let and = |passing, test: &Test| match passing {
            0 => 0,
            passing => test.passing(passing, records.clone(), facts),
        };
        self.0.iter().fold(all, and)
    }

    /// Whether there are no tests.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it distinguishes interfaces.
    pub fn has_interface(&self) -> bool {
        self.0.iter().any(|test| test.of == Of::Slot)
    }

    /// Whether either all records of a flow pass, or none.
    pub fn is_of_flow(&self) -> bool {
        self.0.iter().all(|test| test.of.is_of_flow())
    }
}

#[cfg(test)]
mod tests {
    use weir_common::flow::FlowKey;
    use weir_config::{Config, interface::Way};

    use super::*;
    use crate::question::Views;

    /// Whether the only view of a configuration passes a record. The record is tested alone and among others.
    fn passes(conditions: &str, record: &Record) -> bool {
        let networks = "networks: {own: {prefixes: [10.0.0.0/8], own: true}, peer: {prefixes: [192.0.2.0/24]}}";
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus");
        let geo = format!("geo: {{asn: {corpus}/asn.mmdb, country: {corpus}/country.mmdb}}");
        let text = format!("{networks}\n{geo}\nviews: [{{name: w, match: {{{conditions}}}}}]");
        let config = Config::parse(&text, "test").unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let views = Views::new(&config, 4).unwrap();
        views.directory.assign(0, &["wan0"], Some(Way::Ingress));
        views.directory.assign(1, &["wan0"], Some(Way::Egress));
        views.directory.assign(2, &["lan0", "home"], Some(Way::Ingress));
        let (_, question) = views.own().next().unwrap();
        let passing = |records: &[Record]| question.filter.passing(&records.iter(), views.facts());
        let alone = passing(&[*record]);
        assert!(alone <= 1, "there is only one record");
        let other = Record { key: FlowKey::default(), tos: 1, tcp_flags: 1, vlan: 7, ..*record };
        let other_alone = passing(&[other]);
        for nth in 0..RECORDS_MAX {
            let mut records = [other; RECORDS_MAX];
            records[nth] = *record;
            let others = if other_alone == 1 { !(1 << nth) } else { 0 };
            assert_eq!(passing(&records), others | alone << nth, "{conditions}: {nth}");
        }
        alone == 1
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
    fn each_condition_passes_exactly_its_records() {
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
            "interface: home",
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
