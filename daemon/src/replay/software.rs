//! The kernel program's twin in userspace: the same parser, hash, cache and records, one packet at a time.

use std::sync::Arc;

use weir_common::{
    hash::{self, SlotKey},
    ledger::Tally,
    packet::parse,
    record::Record,
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
    cache: Vec<Record>,
    bits: u32,
    epoch: u8,
    edge: Edge,
    batch: Batch,
    seen: Arc<Seen>,
}

impl SoftwareDatapath {
    /// A datapath that fills `shard`.
    pub fn new(plan: &Plan, seen: Arc<Seen>, shard: Box<Shard>) -> Self {
        Self {
            slot_key: SlotKey::new(plan.slot_key),
            cache: vec![Record::default(); plan.cache_flows as usize],
            bits: plan.cache_flows.ilog2(),
            epoch: 0,
            edge: Edge::empty(1),
            batch: Batch::new(shard),
            seen,
        }
    }

    fn count(&mut self, packet: &Record) {
        let slot = hash::slot(&self.slot_key, &packet.key, self.bits);
        let record = &mut self.cache[slot as usize];
        if record.key == packet.key && record.has_room() {
            record.add(packet);
            return;
        }
        let evicted = std::mem::replace(record, *packet);
        if !evicted.is_empty() {
            self.batch.push(&evicted, &self.seen);
        }
    }
}

impl Datapath for SoftwareDatapath {
    fn measure(&mut self, packet: &Packet<'_>) -> Result<(), KernelError> {
        let one = Tally::new(1, u64::from(packet.wire_bytes));
        let counters = &mut self.edge.counters[0];
        counters.seen.add(one);
        self.edge.sizes[size_class(one.bytes)] += 1;
        match parse(packet.captured, packet.link) {
            Ok(parsed) => {
                let key = parsed.key.with_scope(0, self.epoch);
                let tick = (packet.time_ns / NS_PER_MS) as u32;
                self.count(&Record::first(key, one, parsed.tcp_flags, tick));
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
            edge: std::mem::replace(&mut self.edge, Edge::empty(1)),
            ring_peak: 0.0,
        })
    }
}
