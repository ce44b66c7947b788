//! weir's table of the largest keys.

use std::{cmp::Reverse, collections::HashSet};

use weir_sketch::{CandidateBuckets, TopK, candidate_buckets::Packed};

use super::{BATCH, KEY, hash};
use crate::{contender::Subject, item::Item};

/// A table that is asked for its `k` largest keys.
pub struct Largest<K> {
    /// The table of the largest keys.
    pub table: TopK<K, u64>,
    k: usize,
}

impl<K: Item> Largest<K> {
    /// Makes a table with as many entries as fit into this memory.
    pub fn with_bytes(k: usize, bytes: usize) -> Self {
        const TRIED: usize = 8_000;
        let entries = bytes * TRIED / TopK::<K, u64>::with_capacity(TRIED, KEY.id()).expect("the settings are allowed").memory_bytes();
        Self { table: TopK::with_capacity(entries, KEY.id()).expect("the settings are allowed"), k }
    }
}

impl<K: Item> Subject<K> for Largest<K> {
    fn clear(&mut self) {
        self.table.clear();
    }
    fn put(&mut self, keys: &[K]) {
        let mut hashes = [0; BATCH];
        for keys in keys.chunks(BATCH) {
            let hashes = &mut hashes[..keys.len()];
            K::digest_all(keys, hash(), hashes);
            self.table.add_batch((hashes, |hash| *hash), (keys, |key| (*key, 1)));
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        let mut candidates: Vec<_> = self.table.iter().collect();
        candidates.sort_unstable_by_key(|candidate| Reverse(candidate.value()));
        let largest: HashSet<K> = candidates.iter().take(self.k).map(|candidate| candidate.key).collect();
        keys.iter().filter(|key| largest.contains(key)).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

/// Candidate buckets that are asked for their `k` largest keys.
pub struct LargestInBuckets<K> {
    buckets: CandidateBuckets<K, u64>,
    k: usize,
}

impl<K: Item> LargestInBuckets<K> {
    /// Makes a structure with as many buckets as fit into this memory.
    pub fn with_bytes(k: usize, bytes: usize) -> Self {
        Self { buckets: CandidateBuckets::with_memory(bytes, KEY.id()).expect("the settings are allowed"), k }
    }
}

impl<K: Item> Subject<K> for LargestInBuckets<K> {
    fn clear(&mut self) {
        self.buckets.clear();
    }
    fn put(&mut self, keys: &[K]) {
        let (mut hashes, ones) = ([0; BATCH], [Packed::from(1); BATCH]);
        for keys in keys.chunks(BATCH) {
            let hashes = &mut hashes[..keys.len()];
            K::digest_all(keys, hash(), hashes);
            self.buckets.add_batch(hashes, &ones[..keys.len()], |nth| keys[nth]);
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        let mut listed: Vec<_> = self.buckets.iter().collect();
        listed.sort_unstable_by_key(|listed| Reverse(listed.value));
        let largest: HashSet<K> = listed.iter().take(self.k).map(|listed| listed.key).collect();
        keys.iter().filter(|key| largest.contains(key)).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.buckets.memory_bytes()
    }
}
