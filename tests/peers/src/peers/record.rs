//! The best crates for each part of a record's path, together. Those that take ready hashes share one hash for each
//! record.

use asap_sketchlib::{CountMinSketch, FastPath, Vector2D};
use simple_hll::HyperLogLog;

use super::frequency::Ready;
use crate::{
    contender::Subject,
    rows::record::{Flow, RecordPath},
};

/// The number of rows of counters.
const ROWS: usize = 4;
/// Flows that go together through one sketch after the other: shorter loops make all of them faster.
const BATCH: usize = 256;

/// Filter, distinct counter, counts of all, and the largest.
pub struct Together<L> {
    hash: ahash::RandomState,
    seen: sbbf_rs_safe::Filter,
    new: u64,
    unique: HyperLogLog<14>,
    counts: CountMinSketch<Vector2D<i64>, FastPath, Ready<u64>>,
    largest: L,
}

impl<L> Together<L> {
    /// A filter and counts of these sizes.
    pub fn new(filter_bytes: usize, counts_bytes: usize, largest: L) -> Self {
        Self {
            hash: ahash::RandomState::with_seeds(1, 2, 3, 4),
            seen: sbbf_rs_safe::Filter::new(8, filter_bytes),
            new: 0,
            unique: HyperLogLog::new(),
            counts: CountMinSketch::with_dimensions(ROWS, counts_bytes / ROWS / size_of::<i64>()),
            largest,
        }
    }
}

impl<L: Subject<Flow>> Subject<Flow> for Together<L> {
    fn clear(&mut self) {
        self.seen.reset();
        self.new = 0;
        self.unique = HyperLogLog::new();
        self.counts.clear();
        self.largest.clear();
    }
    fn put(&mut self, flows: &[Flow]) {
        let mut hashes = [0; BATCH];
        for flows in flows.chunks(BATCH) {
            let hashes = &mut hashes[..flows.len()];
            for (place, flow) in hashes.iter_mut().zip(flows) {
                *place = self.hash.hash_one(flow);
            }
            self.new += hashes.iter().filter(|hash| !self.seen.insert_hash(**hash)).count() as u64;
            for hash in hashes.iter() {
                self.unique.add_hash(*hash);
            }
            for hash in hashes.iter() {
                self.counts.update_with_hash(hash);
            }
            // This crate always hashes by itself.
            self.largest.put(flows);
        }
    }
    fn ask(&self, flows: &[Flow]) -> u64 {
        self.largest.ask(flows)
    }
    fn memory_bytes(&self) -> usize {
        self.seen.as_bytes().len()
            + self.unique.get_registers().len()
            + self.counts.memory_bytes()
            + self.largest.memory_bytes()
    }
}

impl<L: Subject<Flow>> RecordPath for Together<L> {
    fn unseen(&self, flows: &[Flow]) -> u64 {
        flows.iter().filter(|flow| !self.seen.contains_hash(self.hash.hash_one(flow))).count() as u64
    }
    fn new_flows(&self) -> u64 {
        self.new
    }
    fn unique(&self) -> u64 {
        self.unique.count() as u64
    }
    fn packets(&self, flow: &Flow) -> (u64, u64) {
        (0, self.counts.estimate_with_hash(&self.hash.hash_one(flow)) as u64)
    }
}
