//! The counterpart of the kernel's program in userspace: the same parser, hash, cache and records, one packet at a time.
//! Replay measures with it, and so does whoever reads packet sockets.

use weir_common::{
    flow::{FlowKey, Scope},
    hash::{self, SlotKey},
    ledger::{Loss, Tally},
    packet::{Link, Tunnels, parse},
    record::{Record, Sample},
    sampling::Valve,
    size::size_class,
};

use super::{edge::Edge, plan::Plan};

/// A packet, or as many as an offload merged into one buffer, which then share its headers.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    /// The beginning, as it was on the wire.
    pub headers: &'a [u8],
    /// What it begins with.
    pub link: Link,
    /// The packets on the wire.
    pub tally: Tally,
    /// When it came: see [`Record::first_tick`].
    pub tick: u32,
}

/// What the kernel's program does on one CPU. The records that it makes go to whoever calls it.
pub struct UserspaceProgram {
    slot_key: SlotKey,
    tunnels: Tunnels,
    cache: Vec<Record>,
    bits: u32,
    epoch: u8,
    valve: Valve,
    /// The rate of the draw that is pending.
    drawn: u32,
    /// Packets left out before the next is taken.
    left_out: u32,
    /// The state of the random numbers (`SplitMix64`; Steele, Lea, Flood, 2014).
    random: u64,
    edge: Edge,
}

impl UserspaceProgram {
    /// A program with an empty cache.
    pub fn new(plan: &Plan) -> Self {
        let mut program = Self {
            slot_key: SlotKey::new(plan.slot_key),
            tunnels: plan.tunnels,
            cache: vec![Record::default(); plan.cache_flows as usize],
            bits: plan.cache_flows.ilog2(),
            epoch: 0,
            valve: Valve::one_in(plan.sampling.first_rate()),
            drawn: 1,
            left_out: 0,
            random: plan.slot_key.derive("sampling").0[0],
            edge: Edge::empty(plan.interfaces as usize),
        };
        program.draw();
        program
    }

    /// Takes one packet in `rate` from now on; a draw that was made before still counts.
    pub fn set_rate(&mut self, rate: u32) {
        self.valve = Valve::one_in(rate);
    }

    /// Measures what came by the interface of this slot, of which there are as many as the plan said. A record that
    /// has to leave the cache for it goes to `evict`.
    pub fn measure(&mut self, slot: u8, buffer: &Buffer<'_>, evict: impl FnMut(&Record)) {
        let &Buffer { headers, link, tally, tick } = buffer;
        let taken = self.take();
        let counters = &mut self.edge.counters[usize::from(slot)];
        counters.seen.add(tally);
        counters.merged += tally.packets - 1;
        self.edge.sizes[size_class(tally.mean_bytes())] += tally.packets;
        let Some(sampling) = taken else {
            counters.sampled_out.add(tally);
            return;
        };
        match parse(headers, link, self.tunnels) {
            Ok(parsed) => {
                let key = parsed.key.with_scope(Scope::new(slot, self.epoch));
                self.count(key, Sample { tally, tick, sampling, tcp_flags: parsed.tcp_flags }, evict);
            }
            Err(skip) => counters.skipped[skip as usize].add(tally),
        }
    }

    /// Accounts for packets that a socket dropped: what they are counted for, and what they may come to beyond.
    pub fn lose(&mut self, slot: u8, counted: Tally, beyond: Tally) {
        let counters = &mut self.edge.counters[usize::from(slot)];
        counters.seen.add(counted);
        counters.lost[Loss::SocketDrop as usize].add(counted);
        self.edge.lost_beyond.add(beyond);
    }

    /// Closes the window: all records leave the cache, and what was counted exactly is the edge.
    pub fn close(&mut self, mut evict: impl FnMut(&Record)) -> Edge {
        let records = self.cache.iter_mut().map(std::mem::take);
        records.filter(|record| !record.is_empty()).for_each(|record| evict(&record));
        self.epoch = self.epoch.wrapping_add(1);
        let interfaces = self.edge.counters.len();
        Edge { sampling: self.drawn, ..std::mem::replace(&mut self.edge, Edge::empty(interfaces)) }
    }

    /// Whether the next packet is taken, and then how many it stands for.
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
        self.left_out = self.valve.left_out((hash::mix(self.random) >> 32) as u32);
    }

    fn count(&mut self, key: FlowKey, packet: Sample, mut evict: impl FnMut(&Record)) {
        let slot = hash::slot(&self.slot_key, &key, self.bits);
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
