//! Crates that answer "seen before?".

use std::hash::BuildHasher;

use bloomcraft::filters::{CountingBloomFilter, GrowthStrategy, ScalableBloomFilter};
use fastbloom_rs::{Deletable, Membership};

use crate::{contender::Subject, item::Item, ours::hash};

/// Split-block Bloom filter with eight words of 32 bits, as in Apache Parquet. Takes ready hashes.
pub struct SbbfRsSafe(sbbf_rs_safe::Filter);

impl SbbfRsSafe {
    /// Makes a filter with as many blocks as fit into this memory.
    pub fn with_bytes(bytes: usize) -> Self {
        Self(sbbf_rs_safe::Filter::new(8, bytes))
    }
}

impl<K: Item> Subject<K> for SbbfRsSafe {
    fn clear(&mut self) {
        self.0.reset();
    }
    fn put(&mut self, keys: &[K]) {
        let hash = hash();
        for key in keys.iter() {
            self.0.insert_hash(key.digest(hash));
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        let hash = hash();
        keys.iter().filter(|key| self.0.contains_hash(key.digest(hash))).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.0.as_bytes().len()
    }
}

/// Classic Bloom filter, whose bits may be anywhere.
pub struct Fastbloom<S = fastbloom::DefaultHasher>(fastbloom::BloomFilter<S>);

impl Fastbloom<ahash::RandomState> {
    /// Makes the filter with another keyed hash.
    pub fn with_ahash(bytes: usize, keys: u64) -> Self {
        let filter = fastbloom::BloomFilter::with_num_bits(bytes * 8).hasher(ahash::RandomState::new());
        Self(filter.expected_items(keys as usize))
    }
}

impl Fastbloom {
    /// As many bits as fit into this memory, and the number of hashes that suits this many keys.
    pub fn with_bytes(bytes: usize, keys: u64) -> Self {
        Self(fastbloom::BloomFilter::with_num_bits(bytes * 8).expected_items(keys as usize))
    }
}

impl<K: Item, S: BuildHasher> Subject<K> for Fastbloom<S> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.0.insert(key);
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().filter(|key| self.0.contains(*key)).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        size_of_val(self.0.as_slice())
    }
}

/// Counting Bloom filter with four bits a counter.
pub struct FastbloomRsCounting(fastbloom_rs::CountingBloomFilter, usize);

impl FastbloomRsCounting {
    /// Makes a filter with as many counters as fit into this memory.
    pub fn with_bytes(bytes: usize, hashes: u32) -> Self {
        let mut builder = fastbloom_rs::FilterBuilder::from_size_and_hashes(bytes as u64 * 2, hashes);
        builder.enable_repeat_insert(true);
        Self(builder.build_counting_bloom_filter(), bytes)
    }
}

impl<K: Item> Subject<K> for FastbloomRsCounting {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.0.add(key.bytes());
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().filter(|key| self.0.contains(key.bytes())).count() as u64
    }
    fn remove(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.0.remove(key.bytes());
        }
    }
    fn memory_bytes(&self) -> usize {
        self.1
    }
}

/// Counting Bloom filter with four bits a counter.
pub struct BloomcraftCounting<K: Item>(CountingBloomFilter<K>);

impl<K: Item> BloomcraftCounting<K> {
    /// Makes a filter with as many counters as fit into this memory.
    pub fn with_bytes(bytes: usize, hashes: usize) -> Self {
        Self(CountingBloomFilter::with_params(bytes * 2, hashes))
    }
}

impl<K: Item> Subject<K> for BloomcraftCounting<K> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.0.insert_fast(key);
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().filter(|key| self.0.contains(key)).count() as u64
    }
    fn remove(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.0.delete(key);
        }
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_usage()
    }
}

/// Bloom filters that grow.
pub struct BloomcraftScalable<K: Item> {
    filter: ScalableBloomFilter<K>,
    first: usize,
}

impl<K: Item> BloomcraftScalable<K> {
    /// Begins with room for this many keys. Tuned: these settings give 1 % in the least memory.
    pub fn with_capacity(first: usize) -> Self {
        Self { filter: Self::grown_from(first), first }
    }

    fn grown_from(first: usize) -> ScalableBloomFilter<K> {
        let growth = GrowthStrategy::Geometric(2.0);
        ScalableBloomFilter::with_strategy(first, 0.04, 0.8, growth).expect("the settings are in range")
    }
}

impl<K: Item> Subject<K> for BloomcraftScalable<K> {
    fn clear(&mut self) {
        self.filter = Self::grown_from(self.first);
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.filter.insert_fast(key);
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().filter(|key| self.filter.contains(key)).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.filter.memory_usage()
    }
}

/// Cuckoo filter with four fingerprints of 8 bits a bucket.
pub struct Cuckoofilter(cuckoofilter::CuckooFilter<ahash::AHasher>, usize);

impl Cuckoofilter {
    /// This many fingerprints, a power of two.
    pub fn with_slots(slots: usize) -> Self {
        Self(cuckoofilter::CuckooFilter::with_capacity(slots), slots)
    }
}

impl<K: Item> Subject<K> for Cuckoofilter {
    fn clear(&mut self) {
        // It cannot be cleared, so a new one replaces it.
        self.0 = cuckoofilter::CuckooFilter::with_capacity(self.1);
    }
    fn put(&mut self, keys: &[K]) {
        // It loses keys that do not fit, which the check of all answers notices.
        for key in keys.iter() {
            drop(self.0.add(key));
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().filter(|key| self.0.contains(*key)).count() as u64
    }
    fn remove(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.0.delete(key);
        }
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_usage()
    }
}

/// Rank-select quotient filter.
pub struct Qfilter(qfilter::Filter);

impl Qfilter {
    /// A filter for this many keys at this rate; it rounds the slots up to a power of two.
    pub fn with_capacity(keys: u64, rate: f64) -> Self {
        Self(qfilter::Filter::new(keys, rate).expect("capacity and rate are in range"))
    }
}

impl<K: Item> Subject<K> for Qfilter {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            drop(self.0.insert_duplicated(key));
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().filter(|key| self.0.contains(*key)).count() as u64
    }
    fn remove(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.0.remove(key);
        }
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_usage()
    }
}
