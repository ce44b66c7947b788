//! The exact answer.
//!
//! A hash map from each flow to its packets and bytes, without sketch or sampling. It takes some 100 bytes per flow,
//! and it is exact. Everything else (sources, pairs, services, totals) is added up from the flows when asked for.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    net::IpAddr,
};

use serde_json::{Value, json};
use weir_common::ledger::Tally;

use crate::truth::{Key, Truth};

mod hosts;
mod prefixes;
pub mod proto;
mod verdict;

pub use prefixes::prefixes_hold;
pub use verdict::lists::Truths;

/// The kinds of top lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Flows.
    Flows,
    /// Source addresses.
    Sources,
    /// Destination addresses.
    Destinations,
    /// Pairs of source and destination address.
    Pairs,
    /// Pairs of protocol and the lower of the two ports. ICMP and packets without ports count under port 0.
    Services,
}

impl Dimension {
    /// Every dimension.
    pub const ALL: [Self; 5] = [Self::Flows, Self::Sources, Self::Destinations, Self::Pairs, Self::Services];

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flows => "flows",
            Self::Sources => "sources",
            Self::Destinations => "destinations",
            Self::Pairs => "pairs",
            Self::Services => "services",
        }
    }

    fn subject(self, key: &Key) -> Subject {
        match self {
            Self::Flows => Subject::Flow(key.flow()),
            Self::Sources => Subject::Source(key.src),
            Self::Destinations => Subject::Destination(key.dst),
            Self::Pairs => Subject::Pair(key.src, key.dst),
            Self::Services => Subject::Service(
                key.proto,
                match key.proto {
                    1 | 58 => 0,
                    _ => key.src_port.min(key.dst_port),
                },
            ),
        }
    }
}

/// The key of an entry of a top list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A flow.
    Flow(Key),
    /// A source address.
    Source(IpAddr),
    /// A destination address.
    Destination(IpAddr),
    /// Source and destination addresses.
    Pair(IpAddr, IpAddr),
    /// Protocol and port.
    Service(u8, u16),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flow(Key { src, dst, src_port, dst_port, proto, lacks: _ }) => {
                write!(f, "{src} {src_port} > {dst} {dst_port} protocol {proto}")
            }
            Self::Source(ip) | Self::Destination(ip) => ip.fmt(f),
            Self::Pair(src, dst) => write!(f, "{src} > {dst}"),
            Self::Service(proto, port) => write!(f, "protocol {proto} port {port}"),
        }
    }
}

/// The order of top lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Bytes.
    Bytes,
    /// Packets.
    Packets,
}

impl By {
    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Packets => "packets",
        }
    }

    /// Returns this part of a tally.
    pub const fn of(self, tally: Tally) -> u64 {
        match self {
            Self::Bytes => tally.bytes,
            Self::Packets => tally.packets,
        }
    }
}

/// The upper edges of the size classes in which reports count an interface's packets. The last has all that is larger.
pub const SIZE_EDGES: [u64; 8] = [64, 127, 255, 511, 1023, 1518, 2047, 1 << 20];

/// Everything about one window's packets, exactly, and the flows of earlier windows.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// Whole packets and fragments are separate, because views may select either.
    flows: HashMap<Key, Tally>,
    skipped: BTreeMap<&'static str, Tally>,
    sizes: BTreeMap<u64, u64>,
    /// Packets with certain TCP flags, by their names in reports.
    tcp: BTreeMap<&'static str, u64>,
    known: HashSet<Key>,
}

/// The packets that reports count by their TCP flags: a name, the mask of flags, and their values.
const TCP: [(&str, u8, u8); 4] =
    [("syn", 0x12, 0x02), ("syn_ack", 0x12, 0x12), ("rst", 0x04, 0x04), ("fin", 0x01, 0x01)];

impl Oracle {
    /// An oracle that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packet.
    pub fn add(&mut self, truth: &Truth) {
        let tally = match truth.flow {
            Ok(key) => self.flows.entry(key).or_default(),
            Err(reason) => self.skipped.entry(reason).or_default(),
        };
        tally.add(Tally::new(1, truth.bytes));
        *self.sizes.entry(truth.bytes).or_default() += 1;
        for (name, mask, flags) in TCP {
            *self.tcp.entry(name).or_default() += u64::from(truth.tcp_flags & mask == flags);
        }
    }

    /// Forgets the window's packets, but not its flows.
    pub fn next_window(&mut self) {
        self.known.extend(self.flows.drain().map(|(key, _)| key.flow()));
        self.skipped.clear();
        self.sizes.clear();
        self.tcp.clear();
    }

    /// All packets of the window.
    pub fn sent(&self) -> Tally {
        let mut sent = self.attributed();
        sent.add(self.skipped.values().copied().sum());
        sent
    }

    /// The packets that have a flow.
    pub fn attributed(&self) -> Tally {
        self.attributed_where(|_| true)
    }

    /// The packets of chosen flows.
    pub fn attributed_where(&self, chosen: impl Fn(&Key) -> bool) -> Tally {
        self.flows.iter().filter(|(key, _)| chosen(key)).map(|(_, tally)| *tally).sum()
    }

    /// Sums over flows, grouped by the keys that `keys` makes of each flow. A flow without keys does not count.
    pub fn grouped<K: Eq + std::hash::Hash>(&self, keys: impl Fn(&Key) -> Vec<K>) -> HashMap<K, Tally> {
        let mut groups: HashMap<K, Tally> = HashMap::new();
        for (flow, tally) in &self.flows {
            for key in keys(flow) {
                groups.entry(key).or_default().add(*tally);
            }
        }
        groups
    }

    /// How many different values each key has, of those that `pairs` makes of flows.
    pub fn spread<K: Eq + std::hash::Hash, V: Eq + std::hash::Hash>(
        &self,
        pairs: impl Fn(&Key) -> Vec<(K, V)>,
    ) -> HashMap<K, u64> {
        let mut groups: HashMap<K, HashSet<V>> = HashMap::new();
        for flow in self.flows.keys() {
            for (key, value) in pairs(flow) {
                _ = groups.entry(key).or_default().insert(value);
            }
        }
        groups.into_iter().map(|(key, values)| (key, values.len() as u64)).collect()
    }

    /// The packets without a flow, by reason; reasons that did not occur are left out.
    pub fn skipped(&self) -> &BTreeMap<&'static str, Tally> {
        &self.skipped
    }

    /// How many packets had each size in bytes.
    pub fn sizes(&self) -> &BTreeMap<u64, u64> {
        &self.sizes
    }

    /// How many packets are in each size class, by its upper edge.
    pub fn size_classes(&self) -> [(u64, u64); SIZE_EDGES.len()] {
        let mut classes = SIZE_EDGES.map(|edge| (edge, 0));
        for (size, count) in &self.sizes {
            let nth = SIZE_EDGES.iter().position(|edge| size <= edge).unwrap_or(SIZE_EDGES.len() - 1);
            classes[nth].1 += count;
        }
        classes
    }

    /// Packets that begin or end TCP connections, by their names in reports.
    pub fn tcp(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TCP.into_iter().map(|(name, ..)| (name, self.tcp.get(name).copied().unwrap_or_default()))
    }

    /// The smallest size that at least this share of packets does not exceed; `None` without packets.
    pub fn size_at(&self, share: f64) -> Option<u64> {
        self.size_of_nth((share * self.sent().packets as f64).ceil() as u64)
    }

    /// The size of the `nth` smallest packet, counted from 1; of the nearest existing one if there are fewer.
    fn size_of_nth(&self, nth: u64) -> Option<u64> {
        let mut passed = 0;
        let found = self.sizes.iter().find(|(_, count)| {
            passed += **count;
            passed >= nth
        });
        found.or(self.sizes.last_key_value()).map(|(size, _)| *size)
    }

    /// How many flows (or sources, ...) there are.
    pub fn distinct(&self, dimension: Dimension) -> u64 {
        self.flows.keys().map(|key| dimension.subject(key)).collect::<HashSet<_>>().len() as u64
    }

    /// How many of the window's flows were in no earlier window.
    pub fn new_flows(&self) -> u64 {
        let flows: HashSet<Key> = self.flows.keys().map(|key| key.flow()).collect();
        flows.difference(&self.known).count() as u64
    }

    /// Returns the packets of each flow (or source, ...).
    pub fn tallies(&self, dimension: Dimension) -> HashMap<Subject, Tally> {
        let mut tallies = HashMap::<_, Tally>::new();
        for (key, tally) in &self.flows {
            tallies.entry(dimension.subject(key)).or_default().add(*tally);
        }
        tallies
    }

    /// The `count` largest, in descending order; equal ones are ordered by name.
    pub fn top(&self, dimension: Dimension, by: By, count: usize) -> Vec<(Subject, Tally)> {
        let mut ranked: Vec<_> = self.tallies(dimension).into_iter().collect();
        ranked.sort_unstable_by_key(|(subject, tally)| (std::cmp::Reverse(by.of(*tally)), *subject));
        ranked.truncate(count);
        ranked
    }

    /// The truth as JSON, with top lists of `count` entries: a report without errors.
    pub fn to_json(&self, count: usize) -> Value {
        let top = |by: By| {
            let lists = Dimension::ALL.map(|dimension| {
                let entries: Value = self.top(dimension, by, count).into_iter().map(entry_json).collect();
                (dimension.name().to_owned(), entries)
            });
            let prefixes = prefixes::LISTS.map(|list| (list.name.to_owned(), self.prefixes(list, by, count)));
            let order = [("by".to_owned(), by.name().into())];
            Value::Object(lists.into_iter().chain(prefixes).chain(order).collect())
        };
        let skipped: serde_json::Map<_, _> =
            self.skipped.iter().map(|(reason, tally)| ((*reason).to_owned(), tally_json(*tally))).collect();
        let Totals { ipv4, ipv6, tcp, udp, icmp, other } = self.totals();
        let Tally { packets, bytes } = self.sent();
        json!({
            "ledger": {
                "seen": tally_json(self.sent()),
                "attributed": tally_json(self.attributed()),
                "skipped": skipped,
            },
            "packet_sizes": self.size_classes(),
            "tcp": self.tcp().collect::<BTreeMap<_, _>>(),
            "totals": {
                "packets": packets, "bytes": bytes, "ipv4_packets": ipv4, "ipv6_packets": ipv6,
                "tcp_packets": tcp, "udp_packets": udp, "icmp_packets": icmp, "other_packets": other,
            },
            "unique": {
                "src_ip": self.distinct(Dimension::Sources),
                "dst_ip": self.distinct(Dimension::Destinations),
                "flows": self.distinct(Dimension::Flows),
            },
            "new_flows": self.new_flows(),
            "top": top(By::Bytes),
            "top_by_packets": top(By::Packets),
            "histograms": {"packet_size_bytes": {
                "count": packets,
                "min": self.sizes.first_key_value().map(|(size, _)| size),
                "p50": self.size_at(0.5), "p90": self.size_at(0.9), "p99": self.size_at(0.99),
                "max": self.sizes.last_key_value().map(|(size, _)| size),
            }},
        })
    }

    fn totals(&self) -> Totals {
        const ICMP: u8 = 1;
        const ICMPV6: u8 = 58;
        const TCP: u8 = 6;
        const UDP: u8 = 17;
        let packets = |chosen: fn(&Key) -> bool| self.attributed_where(chosen).packets;
        Totals {
            ipv4: packets(|key| key.src.is_ipv4()),
            ipv6: packets(|key| key.src.is_ipv6()),
            tcp: packets(|key| key.proto == TCP),
            udp: packets(|key| key.proto == UDP),
            icmp: packets(|key| matches!(key.proto, ICMP | ICMPV6)),
            other: packets(|key| !matches!(key.proto, TCP | UDP | ICMP | ICMPV6)),
        }
    }
}

impl<'a> Extend<&'a Truth> for Oracle {
    fn extend<I: IntoIterator<Item = &'a Truth>>(&mut self, truths: I) {
        for truth in truths {
            self.add(truth);
        }
    }
}

/// Attributed packets by kind: each is in one of the first two and in one of the others.
struct Totals {
    ipv4: u64,
    ipv6: u64,
    tcp: u64,
    udp: u64,
    icmp: u64,
    other: u64,
}

fn tally_json(tally: Tally) -> Value {
    json!({"packets": tally.packets, "bytes": tally.bytes})
}

fn entry_json((subject, tally): (Subject, Tally)) -> Value {
    let Tally { packets, bytes } = tally;
    match subject {
        Subject::Flow(Key { src, dst, src_port, dst_port, proto, lacks: _ }) => json!({
            "src_ip": src, "dst_ip": dst, "src_port": src_port, "dst_port": dst_port,
            "proto": proto::name(proto), "packets": packets, "bytes": bytes,
        }),
        Subject::Source(ip) => json!({"src_ip": ip, "packets": packets, "bytes": bytes}),
        Subject::Destination(ip) => json!({"dst_ip": ip, "packets": packets, "bytes": bytes}),
        Subject::Pair(src, dst) => json!({"src_ip": src, "dst_ip": dst, "packets": packets, "bytes": bytes}),
        Subject::Service(proto, port) => {
            json!({"proto": proto::name(proto), "port": port, "packets": packets, "bytes": bytes})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::Lacks;

    fn truth(src: [u8; 4], dst: [u8; 4], dst_port: u16, bytes: u64) -> Truth {
        let (src, dst) = (src.into(), dst.into());
        let key = Key { src, dst, src_port: 50_000, dst_port, proto: 6, lacks: Lacks::Nothing };
        Truth { flow: Ok(key), tcp_flags: 0x10, tos: 0, vlan: 0, bytes }
    }

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [10, 0, 0, 2];
    const C: [u8; 4] = [10, 0, 0, 3];

    fn example() -> Oracle {
        let arp = Truth { flow: Err("arp"), tcp_flags: 0, tos: 0, vlan: 0, bytes: 60 };
        let mut oracle = Oracle::new();
        oracle.extend(&[
            truth(A, C, 443, 1500),
            truth(A, C, 443, 1500),
            truth(A, C, 80, 100),
            truth(B, C, 80, 200),
            truth(B, C, 80, 200),
            truth(B, C, 80, 200),
            truth(B, A, 53, 70),
            arp,
        ]);
        oracle
    }

    #[test]
    fn a_handful_of_packets_adds_up_as_by_hand() {
        let oracle = example();
        assert_eq!((oracle.sent(), oracle.attributed()), (Tally::new(8, 3830), Tally::new(7, 3770)));
        assert_eq!(oracle.skipped(), &BTreeMap::from([("arp", Tally::new(1, 60))]));
        assert_eq!(Dimension::ALL.map(|dimension| oracle.distinct(dimension)), [4, 2, 2, 3, 3]);

        let top = |dimension, by| {
            let entries = oracle.top(dimension, by, 2).into_iter();
            entries.map(|(subject, tally)| (subject.to_string(), by.of(tally))).collect::<Vec<_>>()
        };
        let named = |entries: [(&str, u64); 2]| entries.map(|(name, value)| (name.to_owned(), value)).to_vec();
        assert_eq!(top(Dimension::Sources, By::Bytes), named([("10.0.0.1", 3100), ("10.0.0.2", 670)]));
        assert_eq!(top(Dimension::Sources, By::Packets), named([("10.0.0.2", 4), ("10.0.0.1", 3)]));
        let pairs = [("10.0.0.1 > 10.0.0.3", 3), ("10.0.0.2 > 10.0.0.3", 3)];
        assert_eq!(top(Dimension::Pairs, By::Packets), named(pairs));
        let services = [("protocol 6 port 443", 3000), ("protocol 6 port 80", 700)];
        assert_eq!(top(Dimension::Services, By::Bytes), named(services));
        let flows =
            [("10.0.0.1 50000 > 10.0.0.3 443 protocol 6", 3000), ("10.0.0.2 50000 > 10.0.0.3 80 protocol 6", 600)];
        assert_eq!(top(Dimension::Flows, By::Bytes), named(flows));
    }

    #[test]
    fn sizes_are_ranked() {
        let oracle = example();
        assert_eq!([0.0, 0.125, 0.5, 0.75, 1.0].map(|share| oracle.size_at(share)), [60, 60, 200, 200, 1500].map(Some));
        assert_eq!(Oracle::new().size_at(0.5), None);
    }

    #[test]
    fn a_flow_is_new_once() {
        let mut oracle = example();
        assert_eq!(oracle.new_flows(), 4);
        oracle.next_window();
        assert_eq!((oracle.new_flows(), oracle.sent()), (0, Tally::default()));
        oracle.extend(&[truth(A, C, 443, 60), truth(A, C, 444, 60)]);
        assert_eq!((oracle.distinct(Dimension::Flows), oracle.new_flows()), (2, 1));
    }
}
