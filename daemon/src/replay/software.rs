//! The kernel program's twin in userspace: the same parser, hash, cache and records, one packet at a time.

use std::sync::Arc;

use weir_common::{
    flow::FlowKey,
    hash::{self, Key},
    ledger::Tally,
    packet::{Tunnels, parse},
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

/// What the kernel does on one CPU, with one interface.
pub struct SoftwareDatapath {
    slot_key: Key,
    tunnels: Tunnels,
    cache: Vec<Record>,
    mask: usize,
    epoch: u8,
    edge: Edge,
    batch: Batch,
    seen: Arc<Seen>,
}

impl SoftwareDatapath {
    /// A datapath that fills `shard`.
    pub fn new(plan: &Plan, seen: Arc<Seen>, shard: Box<Shard>) -> Self {
        let slots = plan.cache_flows as usize;
        Self {
            slot_key: plan.slot_key,
            tunnels: plan.tunnels,
            cache: vec![Record::default(); slots],
            mask: slots - 1,
            epoch: 0,
            edge: Edge::empty(1),
            batch: Batch::new(shard),
            seen,
        }
    }

    fn count(&mut self, key: FlowKey, bytes: u64, tcp_flags: u8, now_ns: u64) {
        let slot = hash::slot(&self.slot_key, &key) as usize & self.mask;
        let record = &mut self.cache[slot];
        if record.key == key {
            record.add(bytes, tcp_flags, now_ns);
            return;
        }
        let evicted = std::mem::replace(record, Record::first(key, bytes, tcp_flags, now_ns));
        if !evicted.is_empty() {
            self.batch.push(&evicted, &self.seen);
        }
    }
}

impl Datapath for SoftwareDatapath {
    fn measure(&mut self, packet: &Packet<'_>) -> Result<(), KernelError> {
        let bytes = u64::from(packet.wire_bytes);
        let counters = &mut self.edge.counters[0];
        counters.seen.add(Tally::new(1, bytes));
        self.edge.sizes[size_class(bytes)] += 1;
        match parse(packet.captured, packet.link, self.tunnels) {
            Ok(parsed) => {
                let key = FlowKey { epoch: self.epoch, ..parsed.key };
                self.count(key, bytes, parsed.tcp_flags, packet.time_ns);
            }
            Err(skip) => counters.skipped[skip as usize].add(Tally::new(1, bytes)),
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
