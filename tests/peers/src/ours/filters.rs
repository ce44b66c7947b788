//! weir's filters. If a full filter refuses an item, it does not find it either, and the check of all answers notices.

use weir_sketch::{Filter, Keyed, Remove};

use super::{BATCH, hash, in_batches};
use crate::{contender::Subject, item::Item};

/// A filter that gets keys one by one.
pub struct OneByOne<F>(pub F);

impl<K: Item, F: Filter> Subject<K> for OneByOne<F> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        let hash = hash();
        for key in keys {
            let _ = self.0.insert(key.digest(hash));
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        let hash = hash();
        keys.iter().filter(|key| self.0.contains(key.digest(hash))).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// A filter that gets items one by one and hashes each.
pub struct Keys<F, const REMOVES: bool = false>(pub Keyed<F>);

impl<F> Keys<F, true> {
    /// A filter that also removes items.
    pub const fn removable(filter: Keyed<F>) -> Self {
        Self(filter)
    }
}

impl<K: Item, F: Filter> Subject<K> for Keys<F> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            drop(self.0.insert(key));
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().filter(|key| self.0.contains(*key)).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl<K: Item, F: Remove> Subject<K> for Keys<F, true> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            drop(self.0.insert(key));
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().filter(|key| self.0.contains(*key)).count() as u64
    }
    fn remove(&mut self, keys: &[K]) {
        for key in keys.iter() {
            _ = self.0.remove(key);
        }
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// A filter that gets its keys in batches.
pub struct InBatches<F>(pub F);

impl<K: Item, F: Filter> Subject<K> for InBatches<F> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        in_batches(keys, |hashes| {
            let _ = self.0.insert_batch(hashes);
        });
    }
    fn ask(&self, keys: &[K]) -> u64 {
        let (mut answers, mut found) = ([false; BATCH], 0);
        in_batches(keys, |hashes| {
            let answers = &mut answers[..hashes.len()];
            self.0.contains_batch(hashes, answers);
            found += answers.iter().filter(|answer| **answer).count() as u64;
        });
        found
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// A filter that gets keys in batches, and also removes them in batches.
pub struct Removable<F>(InBatches<F>);

impl<F> Removable<F> {
    /// Wraps a filter from which keys can be removed.
    pub const fn new(filter: F) -> Self {
        Self(InBatches(filter))
    }
}

impl<K: Item, F: Remove> Subject<K> for Removable<F> {
    fn clear(&mut self) {
        Subject::<K>::clear(&mut self.0);
    }
    fn put(&mut self, keys: &[K]) {
        self.0.put(keys);
    }
    fn ask(&self, keys: &[K]) -> u64 {
        self.0.ask(keys)
    }
    fn remove(&mut self, keys: &[K]) {
        in_batches(keys, |hashes| {
            self.0.0.remove_batch(hashes);
        });
    }
    fn memory_bytes(&self) -> usize {
        Subject::<K>::memory_bytes(&self.0)
    }
}

/// The filter with the lowest rate of false positives that fits into this memory; `build` takes the keys and the rate.
pub fn within<F: Filter>(bytes: usize, keys: u64, build: impl Fn(u64, f64) -> F) -> F {
    // Small filters are tried, because the memory per key does not depend on the size.
    const TRIED: u64 = 10_000;
    let bytes = bytes as u64 * TRIED / keys;
    let (mut too_low, mut fits) = (1e-6, 0.5);
    for _ in 0..20 {
        let rate = f64::sqrt(too_low * fits);
        let does_fit = build(TRIED, rate).memory_bytes() as u64 <= bytes;
        *(if does_fit { &mut fits } else { &mut too_low }) = rate;
    }
    build(keys, fits)
}
