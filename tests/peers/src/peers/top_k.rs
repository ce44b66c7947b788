//! Crates that answer "which are the largest?". One of them has three variants with the same interface.

use std::collections::HashSet;

use datasketches::frequencies::{ErrorType, FrequentItemsSketch};

use crate::{contender::Subject, item::Item};

/// The decay that the crate's own benchmarks use.
const DECAY: f64 = 0.9;
/// Cells a bucket, or rows: as in the crate's own benchmarks.
const DEPTH: usize = 4;

macro_rules! variants {
    ($($(#[$meta:meta])* $name:ident = $crate_name:ident;)+) => {$(
        $(#[$meta])*
        pub struct $name<K: Item> {
            sketch: heavykeeper::$crate_name<K>,
            k: usize,
            width: usize,
        }

        impl<K: Item> $name<K> {
            /// The widest that fits into this memory.
            pub fn with_bytes(k: usize, bytes: usize) -> Self {
                let fits = |width: &usize| heavykeeper::$crate_name::<K>::new(k, *width, DEPTH, DECAY).mem_bytes(|_| 0) <= bytes;
                let width = (1..=256).map(|share| share * 64).filter(fits).max().unwrap_or(64);
                Self { sketch: heavykeeper::$crate_name::new(k, width, DEPTH, DECAY), k, width }
            }
        }

        impl<K: Item> Subject<K> for $name<K> {
            fn clear(&mut self) {
                self.sketch = heavykeeper::$crate_name::new(self.k, self.width, DEPTH, DECAY);
            }
            fn put(&mut self, keys: &[K]) {
                for key in keys.iter() {
                    self.sketch.add(key, 1);
                }
            }
            fn ask(&self, keys: &[K]) -> u64 {
                let largest: HashSet<K> = self.sketch.list().into_iter().take(self.k).map(|node| node.item).collect();
                keys.iter().filter(|key| largest.contains(*key)).count() as u64
            }
            fn memory_bytes(&self) -> usize {
                self.sketch.mem_bytes(|_| 0)
            }
        }
    )+};
}

variants! {
    /// `HeavyKeeper` as in the paper: rows of buckets, counts decay.
    HeavyKeeper = TopK;
    /// `HeavyKeeper` with all cells of a key in one bucket.
    HeavyKeeperBucketed = BucketedTopK;
    /// The cuckoo variant: a key is in one of two buckets, each with a lobby and with slots that do not decay.
    HeavyKeeperCuckoo = CuckooTopK;
}

/// Frequent items of Apache DataSketches: a table that purges its small counts when it is full.
pub struct DataSketchesFrequentItems<K: Item> {
    sketch: FrequentItemsSketch<K>,
    k: usize,
}

impl<K: Item> DataSketchesFrequentItems<K> {
    /// The number of slots is the power of two whose memory is nearest to this size.
    pub fn with_bytes(k: usize, bytes: usize) -> Self {
        /// Besides the key a slot has its count, and the distance to its preferred slot.
        const BESIDE: usize = size_of::<u64>() + size_of::<u16>();
        let slots = bytes as f64 / (size_of::<Option<K>>() + BESIDE) as f64;
        let sketch = FrequentItemsSketch::new(1 << slots.log2().round() as u32).expect("the size is in range");
        Self { sketch, k }
    }
}

impl<K: Item> Subject<K> for DataSketchesFrequentItems<K> {
    fn clear(&mut self) {
        self.sketch.reset();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.sketch.update(*key);
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        let rows = self.sketch.frequent_items(ErrorType::NoFalseNegatives);
        let largest: HashSet<K> = rows.iter().take(self.k).map(|row| *row.item()).collect();
        keys.iter().filter(|key| largest.contains(*key)).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.sketch.estimated_size()
    }
}
