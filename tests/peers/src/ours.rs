//! weir's sketches as contenders: one by one, and in batches.

use std::collections::HashSet;

use weir_common::{
    hash::{Key, KeyedHash},
    ledger::Tally,
    sketch::{BlockedBloom, CountMin, Distinct, Filter, HyperLogLog, Metric, TopK},
};

use crate::{contender::Subject, item::Item};

/// The secret of this run.
pub const KEY: Key = Key([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);

/// Its hash.
pub const HASH: KeyedHash = KeyedHash::new(KEY);

/// How many keys are hashed before a sketch gets them.
const BATCH: usize = 256;

/// Hands over the hashes of all keys, a batch at a time.
#[inline(always)]
pub fn in_batches<K: Item>(hash: &KeyedHash, keys: &[K], mut take: impl FnMut(&[u64])) {
    let mut hashes = [0; BATCH];
    for batch in keys.chunks(BATCH) {
        hashes.iter_mut().zip(batch).for_each(|(place, key)| *place = key.digest(hash));
        take(&hashes[..batch.len()]);
    }
}

/// A sketch that is fed one key after the other.
pub struct OneByOne<S>(S, KeyedHash);

/// A sketch that is fed in batches.
pub struct Batched<S>(S, KeyedHash);

impl<S> OneByOne<S> {
    /// This sketch with the run's hash.
    pub const fn new(sketch: S) -> Self {
        Self(sketch, HASH)
    }
}

impl<S> Batched<S> {
    /// This sketch with the run's hash.
    pub const fn new(sketch: S) -> Self {
        Self(sketch, HASH)
    }
}

/// Filters by their trait.
pub struct FilterOf<F>(pub F);

impl<K: Item, F: Filter> Subject<K> for OneByOne<FilterOf<F>> {
    fn clear(&mut self) {
        self.0.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        // A filter that is full does not find the key, which the check of all answers sees.
        for key in keys {
            let _ = self.0.0.insert(key.digest(&self.1));
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().filter(|key| self.0.0.contains(key.digest(&self.1))).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.0.memory_bytes()
    }
}

impl<K: Item> Subject<K> for OneByOne<BlockedBloom> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys {
            self.0.insert(key.digest(&self.1));
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().filter(|key| self.0.contains(key.digest(&self.1))).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl<K: Item, D: Distinct> Subject<K> for Batched<D> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        in_batches(&self.1, keys, |hashes| self.0.insert_batch(hashes));
    }
    fn ask(&self, _: &[K]) -> u64 {
        self.0.bounds().value
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl<K: Item> Subject<K> for OneByOne<HyperLogLog> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        keys.iter().for_each(|key| self.0.insert(key.digest(&self.1)));
    }
    fn ask(&self, _: &[K]) -> u64 {
        self.0.bounds().value
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// What each key of a stream weighs.
const PACKET: Tally = Tally::new(1, 1_000);

impl<K: Item> Subject<K> for OneByOne<CountMin> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        keys.iter().for_each(|key| {
            self.0.add(key.digest(&self.1), PACKET);
        });
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| self.0.estimate(key.digest(&self.1)).packets).sum()
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// A table of candidates beside a count-min sketch, which tells what keys had before they came in.
pub struct CountMinWithTopK<K> {
    amounts: CountMin,
    candidates: TopK<K>,
    k: usize,
}

impl<K: Item> CountMinWithTopK<K> {
    /// In about 256 KiB.
    pub fn new(k: usize) -> Self {
        let amounts = CountMin::with_error(0.00133, 0.02, KEY.id());
        Self { amounts, candidates: TopK::with_capacity(k + k / 2, Metric::Packets, KEY.id()), k }
    }
}

impl<K: Item> Subject<K> for CountMinWithTopK<K> {
    fn clear(&mut self) {
        self.amounts.clear();
        self.candidates.clear();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys {
            let hash = key.digest(&HASH);
            let estimate = self.amounts.add(hash, PACKET);
            self.candidates.offer(hash, *key, PACKET, estimate);
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        let mut candidates: Vec<_> = self.candidates.iter().collect();
        candidates.sort_unstable_by_key(|candidate| std::cmp::Reverse(candidate.upper().packets));
        let largest: HashSet<K> = candidates.iter().take(self.k).map(|candidate| candidate.key).collect();
        keys.iter().filter(|key| largest.contains(key)).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.amounts.memory_bytes() + self.candidates.memory_bytes()
    }
}
