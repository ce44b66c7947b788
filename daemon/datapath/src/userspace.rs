//! The userspace counterpart of the kernel program: the same parser, hash, cache and records, one packet at a time.
//! Replay and the packet socket readers use it.

use weir_common::{
    flow::{FlowKey, Scope},
    hash::{self, SlotKey},
    ledger::{Loss, Tally, Uncertain},
    packet::{Beginning, Link, Parsed, TunnelPorts, Tunnels, UNKNOWN_LENGTH, parse},
    record::{Record, Sample},
    sampling::Valve,
    size::size_class,
};
use weir_sketch::simd::prefetch;

use super::{
    edge::{Edge, lose},
    plan::Plan,
};
use crate::rates::{Seconds, WindowSeconds};

/// A packet, or several that an offload merged into one buffer with shared headers.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    /// The beginning of the packet, as it was on the wire.
    pub headers: &'a [u8],
    /// The link layer of the first bytes.
    pub link: Link,
    /// The number of packets on the wire and their bytes.
    pub tally: Tally,
    /// The part of the tally that is uncertain.
    pub uncertain: Option<Uncertain>,
    /// Arrival time in ticks: see [`Record::first_tick`].
    pub tick: u32,
    /// Arrival time in seconds since 1970; `None` if unknown.
    pub second: Option<u64>,
    /// True if these packets feed totals and lists on another interface.
    pub repeated: bool,
}

impl Buffer<'_> {
    /// Returns the first bytes, for the parser.
    pub const fn beginning(&self) -> Beginning<'_> {
        // A buffer of several packets states no length: only the offload knows it. An offload merges only IP.
        let length = if self.tally.packets == 1 { self.tally.bytes as usize } else { UNKNOWN_LENGTH };
        Beginning { bytes: self.headers, length }
    }
}

/// The work of the kernel program on one CPU. The caller gets its records.
pub struct UserspaceProgram {
    slot_key: SlotKey,
    tunnels: Tunnels,
    tunnel_ports: TunnelPorts,
    cache: Vec<Record>,
    bits: u32,
    /// The latest packets, by packet number. A packet waits here until this many more have been parsed, while the CPU
    /// prefetches its cache slot.
    pending: [Option<Pending>; PENDING],
    /// How many packets were parsed.
    parsed: usize,
    epoch: u8,
    valve: Valve,
    /// The sampling rate of the pending draw.
    drawn: u32,
    /// How many packets to skip before the next one is taken.
    left_out: u32,
    /// State of the random number generator (`SplitMix64`; Steele, Lea, Flood, 2014).
    random: u64,
    edge: Edge,
    /// The seconds, by interface slot.
    seconds: Vec<Seconds>,
}

/// How many packets at most are parsed but not in their records yet.
const PENDING: usize = 4;

/// A packet that is parsed but not in its record yet.
#[derive(Clone, Copy)]
struct Pending {
    slot: u32,
    key: FlowKey,
    packet: Sample,
}

impl UserspaceProgram {
    /// Creates a program with an empty cache.
    pub fn new(plan: &Plan) -> Self {
        let mut program = Self {
            slot_key: SlotKey::new(plan.slot_key),
            tunnels: plan.tunnels,
            tunnel_ports: plan.tunnel_ports,
            cache: vec![Record::default(); plan.cache_flows as usize],
            bits: plan.cache_flows.ilog2(),
            pending: [None; PENDING],
            parsed: 0,
            epoch: 0,
            valve: Valve::one_in(plan.sampling.first_rate()),
            drawn: 1,
            left_out: 0,
            random: plan.slot_key.derive("sampling").0[0],
            edge: Edge::empty(plan.interfaces as usize),
            seconds: vec![Seconds::default(); plan.interfaces as usize],
        };
        program.draw();
        program
    }

    /// Takes one packet in `rate` from now on. A pending draw still counts.
    pub fn set_rate(&mut self, rate: u32) {
        self.valve = Valve::one_in(rate);
    }

    /// Makes room for this many interfaces; the number never decreases.
    pub fn provide(&mut self, interfaces: usize) {
        self.edge.provide(interfaces);
        self.seconds.resize(self.edge.counters.len(), Seconds::default());
    }

    /// Measures a buffer from the interface of this slot, for which there must be room. If a record has to leave the
    /// cache to make room, that record goes to `evict`.
    pub fn measure(&mut self, slot: u8, buffer: &Buffer<'_>, evict: impl FnMut(&Record)) {
        let &Buffer { headers: _, link, tally, uncertain, tick, second, repeated } = buffer;
        let taken = self.take();
        let counters = &mut self.edge.counters[usize::from(slot)];
        counters.seen.add(tally);
        counters.merged += tally.packets - 1;
        counters.uncertain.add(uncertain.unwrap_or_default());
        let class = size_class(tally.mean_bytes());
        counters.sizes.count(class, tally.packets);
        self.seconds[usize::from(slot)].count(second, tally);
        let mut scope = Scope::new(slot, self.epoch);
        if repeated {
            counters.repeated.add(tally);
            scope = scope.repeated();
        } else {
            self.edge.sizes[class] += tally.packets;
            self.edge.largest = self.edge.largest.max(tally.mean_bytes());
        }
        let Some(sampling) = taken else {
            counters.sampled_out.add(tally);
            return;
        };
        match parse(&buffer.beginning(), link, (self.tunnels, &self.tunnel_ports)) {
            Ok(parsed) => {
                counters.tcp.count(parsed.tcp_flags, sampling.into());
                let parsed = Parsed { key: parsed.key.with_scope(scope), ..parsed };
                let slot = hash::slot(&self.slot_key, &parsed, self.bits);
                prefetch(&self.cache[slot as usize]);
                let packet = Sample::new(&parsed, tally, tick.into(), sampling);
                let pending = &mut self.pending[self.parsed % PENDING];
                self.parsed = self.parsed.wrapping_add(1);
                if let Some(before) = pending.replace(Pending { slot, key: parsed.key, packet }) {
                    self.count(&before, evict);
                }
            }
            Err(skip) => counters.skipped[skip as usize].add(tally),
        }
    }

    /// Accounts for packets that a socket dropped. `counted` is the estimate, and `beyond` is how far the truth may
    /// exceed it. If `repeated`, these packets feed totals and lists on another interface.
    pub fn lose(&mut self, slot: u8, counted: Tally, beyond: Tally, repeated: bool) {
        lose(&mut self.edge.counters[usize::from(slot)], Loss::SocketDrop, counted, beyond, repeated);
    }

    /// The sampling rate: one packet in this many is taken.
    pub const fn rate(&self) -> u32 {
        self.valve.rate
    }

    /// Starts the window of an interface at this time, in nanoseconds since 1970, unless it has started. There must be
    /// room for its slot.
    pub fn begin(&mut self, slot: u8, time_ns: u64) {
        self.seconds[usize::from(slot)].begin(time_ns);
    }

    /// All records leave the cache.
    pub fn empty(&mut self, mut evict: impl FnMut(&Record)) {
        for nth in 0..PENDING {
            if let Some(next) = self.pending[self.parsed.wrapping_add(nth) % PENDING].take() {
                self.count(&next, &mut evict);
            }
        }
        let records = self.cache.iter_mut().map(std::mem::take);
        for record in records.filter(|record| !record.is_empty()) {
            evict(&record);
        }
    }

    /// The exact counts of the open window, without rates.
    pub fn counted(&self) -> Edge {
        Edge { sampling: (self.drawn, self.drawn), ..self.edge.clone() }
    }

    /// Closes the window: all records leave the cache, and the exact counts become the edge. `cut` are the seconds of
    /// the window.
    pub fn close(&mut self, cut: &WindowSeconds, evict: impl FnMut(&Record)) -> Edge {
        self.empty(evict);
        self.epoch = self.epoch.wrapping_add(1);
        let interfaces = self.edge.counters.len();
        let rates = self.seconds.iter_mut().map(|seconds| seconds.close(cut)).collect();
        Edge { sampling: (self.drawn, self.drawn), rates, ..std::mem::replace(&mut self.edge, Edge::empty(interfaces)) }
    }

    /// Decides whether the next packet is taken, and if so, returns how many packets it represents.
    fn take(&mut self) -> Option<u16> {
        if self.left_out > 0 {
            self.left_out -= 1;
            return None;
        }
        let rate = self.drawn as u16;
        self.draw();
        Some(rate)
    }

    fn draw(&mut self) {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.drawn = self.valve.rate;
        // If every packet is taken, computing the logarithm would cost a sixth of a replay's time.
        self.left_out = if self.drawn == 1 { 0 } else { self.valve.left_out((hash::mix(self.random) >> 32) as u32) };
    }

    fn count(&mut self, &Pending { slot, key, packet }: &Pending, mut evict: impl FnMut(&Record)) {
        let record = &mut self.cache[slot as usize];
        if record.takes(&key, packet) {
            record.add(packet);
            return;
        }
        let evicted = std::mem::replace(record, Record::first(key, packet));
        if !evicted.is_empty() {
            evict(&evicted);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_common::ledger::{Ledger, Skip};
    use weir_config::Packets;
    use weir_sketch::hash::Key;

    use super::*;

    fn program(sampling: Packets) -> UserspaceProgram {
        UserspaceProgram::new(&Plan {
            slot_key: Key([7, 11]),
            cache_flows: 256,
            ring_bytes: 1 << 16,
            sampling,
            interfaces: 2,
            tunnels: Tunnels::Outer,
            tunnel_ports: TunnelPorts::USUAL,
        })
    }

    /// An Ethernet, IPv4 and UDP packet with this source port.
    fn udp(port: u16) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
        frame[23] = 17;
        frame[26..34].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 7]);
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
        frame
    }

    fn arp() -> [u8; 60] {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        frame
    }

    /// Measures frames on the second interface and closes the window. Returns the records and the edge.
    fn window(program: &mut UserspaceProgram, frames: impl IntoIterator<Item = [u8; 60]>) -> (Vec<Record>, Edge) {
        let mut records = Vec::new();
        for frame in frames {
            let buffer = Buffer {
                headers: &frame,
                link: Link::Ethernet,
                tally: Tally::new(1, 60),
                uncertain: None,
                tick: 0,
                second: None,
                repeated: false,
            };
            program.measure(1, &buffer, |record| records.push(*record));
        }
        let edge = program.close(&WindowSeconds::at(0, Duration::ZERO), |record| records.push(*record));
        (records, edge)
    }

    fn sum(records: &[Record]) -> Tally {
        records.iter().map(Record::tally).sum()
    }

    #[test]
    fn a_flow_has_one_record_per_window_and_other_packets_are_skipped() {
        let mut program = program(Packets::OneIn(1));
        for epoch in 0..3 {
            let (records, edge) = window(&mut program, [udp(5), udp(5), arp(), udp(6), udp(5)]);
            let packets: Vec<_> = records.iter().map(|record| (record.key.src_port(), record.tally())).collect();
            let expected = [(5, Tally::new(3, 180)), (6, Tally::new(1, 60))];
            assert!(packets.len() == 2 && expected.iter().all(|one| packets.contains(one)), "{packets:?}");
            assert!(records.iter().all(|record| (record.key.epoch(), record.key.interface()) == (epoch, 1)));
            assert_eq!(edge.counters[1].seen, Tally::new(5, 300));
            assert_eq!(edge.counters[1].skipped[Skip::Arp as usize], Tally::new(1, 60));
            assert_eq!((edge.sizes[size_class(60)], edge.counters[0].seen), (5, Tally::default()));
        }
    }

    #[test]
    fn the_ledger_balances_with_evictions_and_sampling() {
        for (rate, taken) in [(1, 20_000..=20_000), (10, 1_700..=2_300)] {
            let mut program = program(Packets::OneIn(rate));
            let (records, edge) = window(&mut program, (0..20_000_u32).map(|n| udp((n % 3_000) as u16)));
            assert!(records.len() > 256, "the flows do not all fit into the cache");
            let ledger = Ledger { counters: edge.counters[1], attributed: sum(&records) };
            assert!(ledger.balances() && ledger.counters.seen == Tally::new(20_000, 1_200_000), "{ledger:?}");
            assert!(taken.contains(&ledger.attributed.packets), "1 in {rate}: {ledger:?}");
            assert!(records.iter().all(|record| u32::from(record.sampling) == rate));
            assert_eq!(edge.sampling, (rate, rate));
        }
    }

    #[test]
    fn packets_dropped_by_a_socket_count_as_seen_and_lost() {
        let mut program = program(Packets::OneIn(1));
        program.lose(1, Tally::new(3, 300), Tally::new(0, 4_000), false);
        let (records, edge) = window(&mut program, [udp(5)]);
        let ledger = Ledger { counters: edge.counters[1], attributed: sum(&records) };
        assert!(ledger.balances() && ledger.lost() == Tally::new(3, 300), "{ledger:?}");
        assert_eq!(ledger.counters.uncertain.beyond(), Tally::new(0, 4_000));
        let next = window(&mut program, []).1.counters[1];
        assert_eq!(next.uncertain, Uncertain::default(), "the dropped packets belong to the window before");
    }
}
