//! The contenders that are weir's distinct counters.

use weir_sketch::Distinct;

use super::{hash, in_batches};
use crate::{contender::Subject, item::Item};

/// A counter that gets keys one by one.
pub struct OneByOne<D>(pub D);

impl<K: Item, D: Distinct> Subject<K> for OneByOne<D> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        let hash = hash();
        for key in keys.iter() {
            self.0.insert(key.digest(hash));
        }
    }
    fn ask(&self, _: &[K]) -> u64 {
        self.0.bounds().value
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// A counter that gets its keys in batches.
pub struct InBatches<D>(pub D);

impl<K: Item, D: Distinct> Subject<K> for InBatches<D> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        in_batches(keys, |hashes| self.0.insert_batch(hashes));
    }
    fn ask(&self, _: &[K]) -> u64 {
        self.0.bounds().value
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}
