//! weir's table of the largest keys.

use std::{cmp::Reverse, collections::HashSet};

use weir_sketch::TopK;

use super::{BATCH, KEY, hash};
use crate::{contender::Subject, item::Item};

/// A table that is asked for its `k` largest keys.
pub struct Largest<K> {
    /// The table.
    pub table: TopK<K, u64>,
    k: usize,
}

impl<K: Item> Largest<K> {
    /// As many entries as fit into this memory.
    pub fn with_bytes(k: usize, bytes: usize) -> Self {
        const TRIED: usize = 8_000;
        let entries = bytes * TRIED / TopK::<K, u64>::with_capacity(TRIED, KEY.id()).memory_bytes();
        Self { table: TopK::with_capacity(entries, KEY.id()), k }
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
