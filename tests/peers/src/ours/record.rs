//! weir's sketches as a worker uses them: each record is hashed once, in batches. Only packets are counted, as peers
//! do.

use weir_sketch::{BlockedBloom, Bounds, HyperLogLog};

use super::{KEY, filters::within, hash, top_k::Largest};
use crate::{
    contender::Subject,
    item::Item,
    rows::record::{Flow, RecordPath},
};

/// Flows that go together through one sketch after the other. The filter's cache lines for as many more are prefetched.
const BATCH: usize = 128;
/// A filter up to this size stays in a core's second-level cache, where prefetching would only cost time.
const NEAR_BYTES: usize = 1 << 20;

/// A filter, a distinct counter, and a table with the counts of all keys and the largest keys.
pub struct Ours {
    seen: BlockedBloom,
    new: u64,
    unique: HyperLogLog,
    largest: Largest<Flow>,
}

impl Ours {
    /// A filter of this size for this many flows, and a table of this size that is asked for its `k` largest.
    pub fn new(filter_bytes: usize, flows: u64, k: usize, table_bytes: usize) -> Self {
        let filter = |flows, rate| BlockedBloom::with_capacity(flows, rate, KEY.id()).expect("the settings are allowed");
        Self {
            seen: within(filter_bytes, flows, filter),
            new: 0,
            unique: HyperLogLog::with_precision(14, KEY.id()).expect("the settings are allowed"),
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
        let (hash, is_far) = (hash(), self.seen.memory_bytes() > NEAR_BYTES);
        let (mut hashes, mut next) = ([0; BATCH], [0; BATCH]);
        let mut chunks = flows.chunks(BATCH).peekable();
        if let Some(first) = chunks.peek() {
            hash.of_all(first, &mut hashes);
        }
        while let Some(flows) = chunks.next() {
            let of_these = &hashes[..flows.len()];
            let later = chunks.peek().copied().unwrap_or_default();
            hash.of_all(later, &mut next);
            self.new += self.seen.insert_counting(of_these);
            self.unique.insert_batch(of_these);
            let mut ask = next[..later.len()].iter();
            let parts = |flow: &Flow| {
                if is_far && let Some(hash) = ask.next() {
                    self.seen.prefetch(*hash);
                }
                (*flow, 1)
            };
            self.largest.table.add_batch((of_these, |hash| *hash), (flows, parts));
            core::mem::swap(&mut hashes, &mut next);
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
