//! One CPU's sketches for the open window: no locks, and but for the filter of seen flows no sharing.
//!
//! The hot loop in plain text:
//!
//! ```text
//! for each record:
//!     hash source, destination, flow, service once
//!     totals and the interface's account += record
//!     unique sources, destinations, flows: insert
//!     flow absent from the filter of seen flows? one more new flow
//!     for each dimension: count-min += record; offer the key as a candidate for the top
//! ```

use weir_common::{
    control::INTERFACES_MAX,
    flow::{Address, FlowKey, ip},
    hash::{self, Key},
    ledger::Tally,
    packet::proto,
    record::Record,
    sketch::{Candidate, CountMin, HyperLogLog, Metric, Seen, TopK},
};
use zerocopy::IntoBytes;

/// What a shard is built from: what the user wants to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// Relative standard error of unique counts.
    pub unique_error: f64,
    /// Error of a count as a share of the window's total.
    pub top_error: f64,
    /// Candidates kept per list.
    pub top_candidates: usize,
}

/// The probability that a count-min estimate exceeds its error.
const TOP_ERROR_PROBABILITY: f64 = 0.02;

/// An address with the IP version that its packets had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    /// The address.
    pub address: Address,
    /// Whether it is IPv6.
    pub v6: bool,
}

impl Host {
    /// The address as the packets had it.
    pub const fn ip(self) -> core::net::IpAddr {
        ip(self.address, self.v6)
    }

    fn hash(self, key: Key) -> u64 {
        let [high, low] = self.address.0;
        hash::sip(key, [high, low, u64::from(self.v6)].as_bytes())
    }
}

/// A source and a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// Who sends.
    pub source: Host,
    /// Who receives.
    pub destination: Host,
}

/// A protocol and a destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Service {
    /// IP protocol number.
    pub proto: u8,
    /// Destination port.
    pub dst_port: u16,
}

/// One question "who is largest?": counts for every key, and candidates for the lists by bytes and by packets.
pub struct Dimension<K> {
    counts: CountMin,
    by_bytes: TopK<K>,
    by_packets: TopK<K>,
}

impl<K: Copy + Eq> Dimension<K> {
    fn new(geometry: &Geometry, key_id: u64) -> Self {
        let top = |metric| TopK::with_capacity(geometry.top_candidates, metric, key_id);
        Self {
            counts: CountMin::with_error(geometry.top_error, TOP_ERROR_PROBABILITY, key_id),
            by_bytes: top(Metric::Bytes),
            by_packets: top(Metric::Packets),
        }
    }

    #[inline]
    fn add(&mut self, hash: u64, key: K, tally: Tally) {
        let estimate = self.counts.add(hash, tally);
        self.by_bytes.offer(hash, key, tally, estimate);
        self.by_packets.offer(hash, key, tally, estimate);
    }

    /// Every candidate, once.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate<K>> {
        let others = self.by_packets.iter().filter(|other| self.by_bytes.get(other.hash, &other.key).is_none());
        self.by_bytes.iter().chain(others)
    }

    /// Whether `key` is a candidate.
    pub fn has_candidate(&self, hash: u64, key: &K) -> bool {
        [&self.by_bytes, &self.by_packets].into_iter().any(|candidates| candidates.get(hash, key).is_some())
    }

    /// Bounds that always hold for what this shard saw of `key`: what was counted while it was a candidate, and at most
    /// what count-min says.
    pub fn bounds(&self, hash: u64, key: &K) -> (Tally, Tally) {
        let (mut lower, mut upper) = (Tally::default(), self.counts.estimate(hash));
        for candidate in [self.by_bytes.get(hash, key), self.by_packets.get(hash, key)].into_iter().flatten() {
            lower = zip(lower, candidate.lower(), u64::max);
            upper = zip(upper, candidate.upper(), u64::min);
        }
        (lower, upper)
    }

    fn clear(&mut self) {
        self.counts.clear();
        self.by_bytes.clear();
        self.by_packets.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.counts.memory_bytes() + self.by_bytes.memory_bytes() + self.by_packets.memory_bytes()
    }
}

fn zip(a: Tally, b: Tally, pick: impl Fn(u64, u64) -> u64) -> Tally {
    Tally::new(pick(a.packets, b.packets), pick(a.bytes, b.bytes))
}

/// Packet counts by version and protocol: exact where every packet is taken, else estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocols {
    /// IPv4 packets.
    pub ipv4: u64,
    /// IPv6 packets.
    pub ipv6: u64,
    /// TCP packets.
    pub tcp: u64,
    /// UDP packets.
    pub udp: u64,
    /// ICMP and `ICMPv6` packets.
    pub icmp: u64,
    /// Packets of every other protocol.
    pub other: u64,
}

impl Protocols {
    #[inline]
    fn add(&mut self, key: &FlowKey, packets: u64) {
        *(if key.is_v6() { &mut self.ipv6 } else { &mut self.ipv4 }) += packets;
        *(match key.proto() {
            proto::TCP => &mut self.tcp,
            proto::UDP => &mut self.udp,
            proto::ICMP | proto::ICMPV6 => &mut self.icmp,
            _ => &mut self.other,
        }) += packets;
    }

    /// Adds another shard's counts.
    pub fn merge(&mut self, other: &Self) {
        let Self { ipv4, ipv6, tcp, udp, icmp, other: rest } = other;
        self.ipv4 += ipv4;
        self.ipv6 += ipv6;
        self.tcp += tcp;
        self.udp += udp;
        self.icmp += icmp;
        self.other += rest;
    }
}

/// Distinct sources, destinations and flows.
pub struct Unique {
    /// Sources.
    pub sources: HyperLogLog,
    /// Destinations.
    pub destinations: HyperLogLog,
    /// Flows.
    pub flows: HyperLogLog,
}

/// The dimensions: one list of top talkers each.
pub struct Dimensions {
    /// Flows.
    pub flows: Dimension<FlowKey>,
    /// Source addresses.
    pub sources: Dimension<Host>,
    /// Destination addresses.
    pub destinations: Dimension<Host>,
    /// Source-destination pairs.
    pub pairs: Dimension<Pair>,
    /// Protocols with destination ports.
    pub services: Dimension<Service>,
}

/// One CPU's sketches for one window.
pub struct Shard {
    key: Key,
    /// What the records of each interface slot add up to: packets that were taken, not what they stand for.
    pub attributed: [Tally; INTERFACES_MAX as usize],
    /// Exact counts by protocol.
    pub protocols: Protocols,
    /// Distinct counts.
    pub unique: Unique,
    /// Flows that the filter of seen flows did not know.
    pub new_flows: u64,
    /// Top talkers.
    pub top: Dimensions,
    /// Records absorbed.
    pub records: u64,
    /// The highest sampling rate of a record, at least 1.
    pub sampling: u32,
}

impl Shard {
    /// An empty shard whose hashes are keyed with `key`; all its memory is allocated and resident from the start.
    pub fn new(geometry: &Geometry, key: Key) -> Self {
        let id = key.id();
        let distinct = || HyperLogLog::with_error(geometry.unique_error, id);
        let mut shard = Self {
            key,
            attributed: [Tally::default(); INTERFACES_MAX as usize],
            protocols: Protocols::default(),
            unique: Unique { sources: distinct(), destinations: distinct(), flows: distinct() },
            new_flows: 0,
            top: Dimensions {
                flows: Dimension::new(geometry, id),
                sources: Dimension::new(geometry, id),
                destinations: Dimension::new(geometry, id),
                pairs: Dimension::new(geometry, id),
                services: Dimension::new(geometry, id),
            },
            records: 0,
            sampling: 1,
        };
        shard.clear();
        shard
    }

    /// Adds records, in order.
    pub fn absorb(&mut self, records: &[Record], seen: &Seen) {
        self.records += records.len() as u64;
        for record in records {
            self.absorb_one(record, seen);
        }
    }

    #[inline]
    fn absorb_one(&mut self, record: &Record, seen: &Seen) {
        let counted = record.tally();
        // What was taken stands for what was left out, too.
        let rate = u64::from(record.sampling);
        let tally = Tally::new(counted.packets * rate, counted.bytes * rate);
        self.sampling = self.sampling.max(record.sampling.into());
        let key = record.key.identity();
        let v6 = key.is_v6();
        let source = Host { address: key.src, v6 };
        let destination = Host { address: key.dst, v6 };
        let service = Service { proto: key.proto(), dst_port: key.dst_port() };
        let source_hash = source.hash(self.key);
        let destination_hash = destination.hash(self.key);
        let flow_hash = hash::sip(self.key, key.as_bytes());
        let service_hash = hash::sip(self.key, [u16::from(service.proto), service.dst_port].as_bytes());

        self.attributed[usize::from(record.key.interface()) % INTERFACES_MAX as usize].add(counted);
        self.protocols.add(&key, tally.packets);
        self.unique.sources.insert(source_hash);
        self.unique.destinations.insert(destination_hash);
        self.unique.flows.insert(flow_hash);
        self.new_flows += u64::from(seen.insert(flow_hash));
        self.top.flows.add(flow_hash, key, tally);
        self.top.sources.add(source_hash, source, tally);
        self.top.destinations.add(destination_hash, destination, tally);
        self.top.pairs.add(hash::combine(source_hash, destination_hash), Pair { source, destination }, tally);
        self.top.services.add(service_hash, service, tally);
    }

    /// Empties the shard for the next window; every page stays resident.
    pub fn clear(&mut self) {
        let Self { key: _, attributed, protocols, unique, new_flows, top, records, sampling } = self;
        let Unique { sources, destinations, flows } = unique;
        [sources, destinations, flows].into_iter().for_each(HyperLogLog::clear);
        let Dimensions { flows, sources, destinations, pairs, services } = top;
        flows.clear();
        sources.clear();
        destinations.clear();
        pairs.clear();
        services.clear();
        attributed.fill(Tally::default());
        *protocols = Protocols::default();
        *new_flows = 0;
        *records = 0;
        *sampling = 1;
    }

    /// The memory that this shard takes, in bytes; it never changes.
    pub fn memory_bytes(&self) -> usize {
        let Unique { sources, destinations, flows } = &self.unique;
        let unique: usize = [sources, destinations, flows].into_iter().map(HyperLogLog::memory_bytes).sum();
        let Dimensions { flows, sources, destinations, pairs, services } = &self.top;
        size_of::<Self>()
            + unique
            + flows.memory_bytes()
            + sources.memory_bytes()
            + destinations.memory_bytes()
            + pairs.memory_bytes()
            + services.memory_bytes()
    }
}

impl From<&crate::config::Estimates> for Geometry {
    fn from(estimates: &crate::config::Estimates) -> Self {
        let &crate::config::Estimates { unique_error, top_error, top_candidates } = estimates;
        Self { unique_error, top_error, top_candidates }
    }
}
