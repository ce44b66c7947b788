//! Crates that answer "how many distinct?".

use cardinality_estimator::CardinalityEstimator;
use datasketches::hll::{HllSketch, HllType};
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
        for key in keys.iter() {
            self.0.add_hash(key.digest(hash));
        }
    }
    fn ask(&self, _: &[K]) -> u64 {
        self.0.count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.get_registers().len()
    }
}

/// HyperLogLog with 2^14 registers of six bits; exact and small for a few items.
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
            for key in keys.iter() {
                self.0.insert_hash(key.digest(hash));
            }
        } else {
            for key in keys.iter() {
                self.0.insert(key);
            }
        }
    }
    fn ask(&self, _: &[K]) -> u64 {
        self.0.estimate() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.size_of()
    }
}

/// HyperLogLog with 2^14 registers of a byte, of Apache DataSketches. It hashes by itself.
///
/// While it counts one stream, it adds up how likely each change of a register was ("HIP"). That is more exact than the
/// registers alone, and is lost by merging.
pub struct DataSketchesHll {
    sketch: HllSketch,
    is_hip: bool,
}

impl DataSketchesHll {
    /// Answers as about one stream.
    pub fn hip() -> Self {
        Self { sketch: empty_hll(), is_hip: true }
    }

    /// Answers as after merging: from the registers alone.
    pub fn composite() -> Self {
        Self { sketch: empty_hll(), is_hip: false }
    }
}

fn empty_hll() -> HllSketch {
    HllSketch::new(14, HllType::Hll8).expect("the precision is in range")
}

impl<K: Item> Subject<K> for DataSketchesHll {
    fn clear(&mut self) {
        self.sketch = empty_hll();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.sketch.update(key);
        }
    }
    fn ask(&self, _: &[K]) -> u64 {
        if self.is_hip { self.sketch.estimate() as u64 } else { self.sketch.composite_estimate() as u64 }
    }
    fn memory_bytes(&self) -> usize {
        self.sketch.estimated_size()
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
        for key in keys.iter() {
            self.0.add(key.digest(hash));
        }
    }
    fn ask(&self, _: &[K]) -> u64 {
        self.0.get_distinct_count_estimate() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.get_state().len()
    }
}
