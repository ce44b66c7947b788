//! The filter of a view: tests on the fields of a record, all of which must hold.

use std::sync::Arc;

use weir_common::{flow::Address, record::Record};
use weir_config::{
    names::{Facts, Networks},
    view::{Condition, Field, Values},
};
use weir_datapath::directory::{Directory, Selected, Selector};

use crate::fields::{self, FieldLoop};

/// Tests, all of which must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter(pub Vec<Test>);

/// A test or its negation.
#[derive(Clone, Debug)]
pub struct Test {
    /// True if the record passes when the test does not hold.
    pub is_negated: bool,
    /// The values that pass.
    pub among: Among,
    /// The fields that are read; the value of one of them must pass.
    fields: Vec<Field>,
    /// True if the fields are looked up in tables, which takes longer than everything else.
    is_looked_up: bool,
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
        let row = condition.field.row();
        let mut fields = row.either.map_or_else(|| vec![row.field], Vec::from);
        let among = match &condition.values {
            Values::Prefixes(prefixes) => Among::Prefixes(Arc::new(Networks::of_prefixes(prefixes))),
            Values::Ranges(ranges) => Among::Ranges(ranges.clone().into_boxed_slice()),
            Values::Numbers(numbers) => Among::bits(numbers.iter().copied()),
            Values::Flags(flags) => {
                let wanted = flags.iter().fold(0, |wanted, bit| wanted | 1_u8.checked_shl((*bit).into()).unwrap_or(0));
                Among::bits((0..=u8::MAX).filter(|flags| flags & wanted != 0))
            }
            Values::Networks(names) => {
                Among::bits(names.iter().map(|name| networks.id(name).unwrap_or(Networks::NONE)))
            }
            Values::Interfaces(names) => Among::Interfaces(directory.add(Selector::Names(names.clone()))),
            // The directory knows which slots have this direction.
            Values::Direction(way) => {
                fields = vec![Field::Interface];
                Among::Interfaces(directory.add(Selector::Direction(*way)))
            }
        };
        Self { is_negated: condition.is_negated, among, fields, is_looked_up: row.source.is_some() }
    }

    /// Returns which of the records in `so_far` pass.
    #[inline]
    fn passing<'a>(&self, so_far: u32, records: &(impl Iterator<Item = &'a Record> + Clone), facts: Facts<'_>) -> u32 {
        let holding = self.holding(so_far, records, facts);
        so_far & if self.is_negated { !holding } else { holding }
    }

    /// For which of these records the test holds. Slow fields are looked up only for the records in `so_far`; the other
    /// bits may be wrong.
    #[inline]
    fn holding<'a>(&self, so_far: u32, records: &(impl Iterator<Item = &'a Record> + Clone), facts: Facts<'_>) -> u32 {
        self.fields.iter().fold(0, |holding, field| {
            let wanted = so_far & !holding;
            holding
                | match (field, &self.among) {
                    (Field::Ip(side, _), among) => bits(records.clone().zip(0..), |(Record { key, .. }, nth)| {
                        wanted >> nth & 1 == 1 && among.has_address(side.address(key), key.is_v6())
                    }),
                    (field, among) if self.is_looked_up => {
                        fields::run(*field, facts, Search { wanted, records: records.clone(), among })
                    }
                    (field, among) => fields::run(*field, facts, Compare { records: records.clone(), among }),
                }
        })
    }

    /// Returns true if it distinguishes interfaces.
    fn has_interface(&self) -> bool {
        matches!(self.among, Among::Interfaces(_))
    }
}

/// Compares the numbers of all records.
struct Compare<'t, I> {
    records: I,
    among: &'t Among,
}

impl<'a, I: Iterator<Item = &'a Record>> FieldLoop for Compare<'_, I> {
    type Out = u32;

    #[inline(always)]
    fn run(self, number: impl Fn(&Record) -> u64) -> u32 {
        let (mut numbers, mut count) = ([0; RECORDS_MAX], 0);
        for (space, record) in numbers.iter_mut().zip(self.records) {
            *space = number(record) as u32;
            count += 1;
        }
        self.among.having(&numbers[..count])
    }
}

/// Compares the numbers of the wanted records. Finding a network takes several nanoseconds, and looking up an address
/// takes hundreds.
struct Search<'t, I> {
    wanted: u32,
    records: I,
    among: &'t Among,
}

impl<'a, I: Iterator<Item = &'a Record>> FieldLoop for Search<'_, I> {
    type Out = u32;

    #[inline(always)]
    fn run(self, number: impl Fn(&Record) -> u64) -> u32 {
        bits(self.records.zip(0..), |(record, nth): (&Record, u32)| {
            self.wanted >> nth & 1 == 1 && self.among.has(number(record) as u32)
        })
    }
}

impl Filter {
    /// Which of at most [`RECORDS_MAX`] records pass all tests. Each has a bit, and the first record has the lowest.
    #[inline]
    pub fn passing<'a>(&self, records: &(impl ExactSizeIterator<Item = &'a Record> + Clone), facts: Facts<'_>) -> u32 {
        let all = u32::MAX.checked_shr(u32::BITS - records.len().min(RECORDS_MAX) as u32).unwrap_or(0);
        let and = |passing, test: &Test| match passing {
            0 => 0,
            passing => test.passing(passing, records, facts),
        };
        self.0.iter().fold(all, and)
    }

    /// Returns true if there are no tests.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if it distinguishes interfaces.
    pub fn has_interface(&self) -> bool {
        self.0.iter().any(Test::has_interface)
    }
}

#[cfg(test)]
mod tests {
    use weir_common::flow::FlowKey;
    use weir_config::{Config, interface::Way};

    use super::*;
    use crate::question::Views;

    /// Returns true if the only view of a configuration passes a record. The record is tested alone and among others.
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
