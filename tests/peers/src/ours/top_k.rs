//! weir's tables of the largest keys.

use std::{cmp::Reverse, collections::HashSet};

use weir_common::{
    ledger::Tally,
    sketch::{CountMin, Metric, TopK},
};

use super::{KEY, frequency::Packet, hash};
use crate::{contender::Subject, item::Item};

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
        let hash = hash();
        for key in keys {
            let hash = key.digest(hash);
            let estimate = self.amounts.add(hash, Tally::ONE);
            self.candidates.offer(hash, *key, Tally::ONE, estimate);
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        let mut candidates: Vec<_> = self.candidates.iter().collect();
        candidates.sort_unstable_by_key(|candidate| Reverse(candidate.upper().packets));
        let largest: HashSet<K> = candidates.iter().take(self.k).map(|candidate| candidate.key).collect();
        keys.iter().filter(|key| largest.contains(key)).count() as u64
    }
    fn memory_bytes(&self) -> usize {
        self.amounts.memory_bytes() + self.candidates.memory_bytes()
    }
}
