//! The kernel program's twin in userspace: the same parser, hash, cache and records, one packet at a time.

use std::sync::Arc;

use weir_common::{
    flow::FlowKey,
    hash::{self, SlotKey},
    ledger::Tally,
    packet::{Tunnels, parse},
    record::{Record, Sample},
    sampling::Valve,
    size::size_class,
    sketch::Seen,
};

use super::Datapath;
use crate::{
    batch::Batch,
    capture::Packet,
    edge::Edge,
    kernel::{KernelError, Plan},
    shard::Shard,
    worker::Closed,
};

const NS_PER_MS: u64 = 1_000_000;

/// What the kernel does on one CPU, with one interface.
pub struct SoftwareDatapath {
    slot_key: SlotKey,
    tunnels: Tunnels,
    cache: Vec<Record>,
    bits: u32,
    epoch: u8,
    valve: Valve,
    /// Packets left out before the next is taken.
    left_out: u32,
    /// The state of the random numbers (`SplitMix64`; Steele, Lea, Flood, 2014).
    random: u64,
    edge: Edge,
    batch: Batch,
    seen: Arc<Seen>,
}

impl SoftwareDatapath {
    /// A datapath that fills `shard`.
    pub fn new(plan: &Plan, seen: Arc<Seen>, shard: Box<Shard>) -> Self {
        let mut datapath = Self {
            slot_key: SlotKey::new(plan.slot_key),
            tunnels: plan.tunnels,
            cache: vec![Record::default(); plan.cache_flows as usize],
            bits: plan.cache_flows.ilog2(),
            epoch: 0,
            valve: Valve::one_in(plan.sampling.first_rate()),
            left_out: 0,
            random: plan.slot_key.derive("sampling").0[0],
            edge: Edge::empty(1),
            batch: Batch::new(shard),
            seen,
        };
        datapath.draw();
        datapath
    }

    /// Whether the next packet is taken.
    fn take(&mut self) -> bool {
        if self.left_out > 0 {
            self.left_out -= 1;
            return false;
        }
        self.draw();
        true
    }

    fn draw(&mut self) {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.left_out = self.valve.left_out((hash::mix(self.random) >> 32) as u32);
    }

    fn count(&mut self, key: FlowKey, packet: Sample) {
        let slot = hash::slot(&self.slot_key, &key, self.bits);
        let record = &mut self.cache[slot as usize];
        if record.takes(&key, packet) {
            record.add(packet);
            return;
        }
        let evicted = std::mem::replace(record, Record::first(key, packet));
        if !evicted.is_empty() {
            self.batch.push(&evicted, &self.seen);
        }
    }
}

impl Datapath for SoftwareDatapath {
    fn measure(&mut self, packet: &Packet<'_>) -> Result<(), KernelError> {
        let one = Tally::new(1, u64::from(packet.wire_bytes));
        self.edge.counters[0].seen.add(one);
        self.edge.sizes[size_class(one.bytes)] += 1;
        if !self.take() {
            self.edge.counters[0].sampled_out.add(one);
            return Ok(());
        }
        let counters = &mut self.edge.counters[0];
        match parse(packet.captured, packet.link, self.tunnels) {
            Ok(parsed) => {
                let key = parsed.key.with_scope(0, self.epoch);
                let tick = (packet.time_ns / NS_PER_MS) as u32;
                let sampling = self.valve.rate as u16;
                self.count(key, Sample { tally: one, tick, sampling, tcp_flags: parsed.tcp_flags });
            }
            Err(skip) => counters.skipped[skip as usize].add(one),
        }
        Ok(())
    }

    fn close(&mut self, spare: Box<Shard>) -> Result<Closed, KernelError> {
        for slot in 0..self.cache.len() {
            let record = std::mem::take(&mut self.cache[slot]);
            if !record.is_empty() {
                self.batch.push(&record, &self.seen);
            }
        }
        self.epoch = self.epoch.wrapping_add(1);
        Ok(Closed {
            shard: self.batch.replace(Batch::new(spare), &self.seen),
            edge: Edge { sampling: self.valve.rate, ..std::mem::replace(&mut self.edge, Edge::empty(1)) },
            ring_peak: 0.0,
        })
    }
}
