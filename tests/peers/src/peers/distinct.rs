//! Crates that answer "how many distinct?".

use cardinality_estimator::CardinalityEstimator;
use simple_hll::HyperLogLog;
use ultraloglog::UltraLogLog;

use crate::{contender::Subject, item::Item, ours::hash};

/// HyperLogLog with 2^14 registers of a byte. Takes ready hashes.
#[derive(Default)]
pub struct SimpleHll(HyperLogLog<14>);

impl<K: Item> Subject<K> for SimpleHll {
    fn clear(&mut self) {
        self.0 = HyperLogLog::new();
    }
    fn put(&mut self, keys: &[K]) {
        let hash = hash();
        keys.iter().for_each(|key| self.0.add_hash(key.digest(hash)));
    }
    fn ask(&self, _: &[K]) -> u64 {
        self.0.count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.get_registers().len()
    }
}

/// HyperLogLog with 2^14 registers of six bits, exact and small for a few.
pub struct CardinalityEstimatorCrate<K: Item>(CardinalityEstimator<K, wyhash::WyHash, 14, 6>);

impl<K: Item> CardinalityEstimatorCrate<K> {
    /// An empty one.
    pub fn new() -> Self {
        Self(CardinalityEstimator::new())
    }
}

impl<K: Item> Subject<K> for CardinalityEstimatorCrate<K> {
    fn clear(&mut self) {
        self.0 = CardinalityEstimator::new();
    }
    fn put(&mut self, keys: &[K]) {
        let hash = hash();
        if K::IS_HASH {
            keys.iter().for_each(|key| self.0.insert_hash(key.digest(hash)));
        } else {
            keys.iter().for_each(|key| self.0.insert(key));
        }
    }
    fn ask(&self, _: &[K]) -> u64 {
        self.0.estimate() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.size_of()
    }
}

/// UltraLogLog with 2^p registers of a byte. Takes ready hashes.
pub struct UltraLogLogCrate(UltraLogLog);

impl UltraLogLogCrate {
    /// An empty one.
    pub fn with_precision(p: u32) -> Self {
        Self(UltraLogLog::new(p).expect("the precision is in range"))
    }
}

impl<K: Item> Subject<K> for UltraLogLogCrate {
    fn clear(&mut self) {
        self.0.reset();
    }
    fn put(&mut self, keys: &[K]) {
        let hash = hash();
        keys.iter().for_each(|key| {
            self.0.add(key.digest(hash));
        });
    }
    fn ask(&self, _: &[K]) -> u64 {
        self.0.get_distinct_count_estimate() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.get_state().len()
    }
}
