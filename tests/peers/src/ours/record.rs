//! weir's sketches as a worker uses them, each record hashed once and in batches, but of packets alone, as peers count.

use weir_common::sketch::{BlockedBloom, Bounds, HyperLogLog};

use super::{BATCH, KEY, filters::within, hash, top_k::Largest};
use crate::{
    contender::Subject,
    item::Item,
    rows::record::{Flow, RecordPath},
};

/// Filter, distinct counter, and a table that has the counts of all and the largest.
pub struct Ours {
    seen: BlockedBloom,
    new: u64,
    unique: HyperLogLog,
    largest: Largest<Flow>,
}

impl Ours {
    /// A filter of this size for so many flows, and a table of this size that is asked for its `k` largest.
    pub fn new(filter_bytes: usize, flows: u64, k: usize, table_bytes: usize) -> Self {
        let filter = |flows, rate| BlockedBloom::with_capacity(flows, rate, KEY.id());
        Self {
            seen: within(filter_bytes, flows, filter),
            new: 0,
            unique: HyperLogLog::with_precision(14, KEY.id()),
            largest: Largest::with_bytes(k, table_bytes),
        }
    }
}

impl Subject<Flow> for Ours {
    fn clear(&mut self) {
        self.seen.clear();
        self.new = 0;
        self.unique.clear();
        self.largest.clear();
    }
    fn put(&mut self, flows: &[Flow]) {
        let hash = hash();
        let (mut hashes, mut records) = ([0; BATCH], [(0, Flow::default()); BATCH]);
        for flows in flows.chunks(BATCH) {
            let (hashes, records) = (&mut hashes[..flows.len()], &mut records[..flows.len()]);
            hash.of_all(flows, hashes);
            let both = hashes.iter().zip(flows);
            records.iter_mut().zip(both).for_each(|(record, (hash, flow))| *record = (*hash, *flow));
            self.new += self.seen.insert_counting(hashes);
            self.unique.insert_batch(hashes);
            self.largest.table.add_batch(records, |(hash, flow)| (*hash, *flow, 1));
        }
    }
    fn ask(&self, flows: &[Flow]) -> u64 {
        self.largest.ask(flows)
    }
    fn memory_bytes(&self) -> usize {
        self.seen.memory_bytes() + self.unique.memory_bytes() + self.largest.memory_bytes()
    }
}

impl RecordPath for Ours {
    fn unseen(&self, flows: &[Flow]) -> u64 {
        flows.iter().filter(|flow| !self.seen.contains(flow.digest(hash()))).count() as u64
    }
    fn new_flows(&self) -> u64 {
        self.new
    }
    fn unique(&self) -> u64 {
        self.unique.bounds().value
    }
    fn packets(&self, flow: &Flow) -> (u64, u64) {
        let Bounds { lower, upper } = self.largest.table.bounds(flow.digest(hash()), flow);
        (lower, upper)
    }
}
