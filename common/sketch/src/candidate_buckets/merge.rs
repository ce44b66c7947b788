//! Merges buckets with the same index.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{
    CandidateBuckets, Rest, WAYS,
    bucket::{self, CELLS, HAS_LOST, cell},
    candidate::{Candidate, Row},
    rounded::Rounded,
};
use crate::{MergeError, Weight, merge::check_mergeable};

impl<K: Copy + Default, W: Weight> CandidateBuckets<K, W> {
    /// Merges all of these into this one. The order of the others does not matter.
    ///
    /// Bounds hold for the streams of all of them together. The four largest candidates of each bucket stay. The widths
    /// of bounds add up. (Merging one after the other would keep other candidates in another order.)
    ///
    /// # Errors
    ///
    /// One of them has another geometry or key. In that case nothing is changed.
    pub fn merge_all(&mut self, others: &[&Self]) -> Result<(), MergeError> {
        self.merge_all_and(others, &mut ())
    }

    /// Like [`Self::merge_all`]. `rest` gets the candidates that are dropped.
    ///
    /// # Errors
    ///
    /// One of them has another geometry or key. In that case nothing is changed.
    pub fn merge_all_and(&mut self, others: &[&Self], rest: &mut impl Rest<K, W>) -> Result<(), MergeError> {
        for other in others {
            check_mergeable((self.geometry(), self.placed_key_id()), (other.geometry(), other.placed_key_id()))?;
        }
        let mut candidates = Vec::with_capacity((1 + others.len()) * WAYS);
        for at in 0..self.buckets() {
            self.merge_buckets(at, others, &mut candidates, rest);
        }
        for other in others {
            self.random = self.random.wrapping_add(other.random.wrapping_sub(other.seed));
        }
        Ok(())
    }

    /// A fingerprint of the key and of the places.
    const fn placed_key_id(&self) -> u64 {
        self.key_id.wrapping_mul(self.places)
    }

    /// Merges the buckets with one index. `candidates` is a buffer for the candidates of all of them.
    fn merge_buckets(
        &mut self,
        at: usize,
        others: &[&Self],
        candidates: &mut Vec<Candidate<K, W>>,
        rest: &mut impl Rest<K, W>,
    ) {
        // Empty buckets change nothing, not even the order of candidates.
        let mut filled = others.iter().filter(|other| !other.counters.buckets[at].is_empty());
        match (filled.next(), filled.next(), self.counters.buckets[at].is_empty()) {
            (None, ..) => return,
            (Some(other), None, true) => {
                self.counters.copy_bucket(at, &other.counters);
                self.rows[at] = other.rows[at];
                return;
            }
            _ => (),
        }
        candidates.clear();
        let mut cells = [W::default(); CELLS];
        let mut has_lost = false;
        for part in others.iter().copied().chain([&*self]) {
            has_lost |= part.counters.buckets[at].has(HAS_LOST);
            for (sum, cell) in cells.iter_mut().zip(bucket::cells()) {
                *sum = sum.saturating_add(part.counters.get(at, cell));
            }
            for candidate in part.candidates(at) {
                if candidates.iter().all(|other| other.hash != candidate.hash) {
                    candidates.push(self.merged(at, others, candidate.hash));
                }
            }
        }
        // No two candidates have the same hash, so there is only one order.
        candidates.sort_unstable_by_key(|candidate| (Reverse(candidate.score()), candidate.hash));
        let leave = candidates.split_off(candidates.len().min(WAYS));
        for candidate in &leave {
            let sum = &mut cells[cell(candidate.hash) - WAYS];
            *sum = sum.saturating_add(candidate.counted);
            rest.leaves(&candidate.entry.key, candidate.counted);
        }
        self.counters.clear_bucket(at);
        self.rows[at] = Row::default();
        if has_lost {
            self.counters.buckets[at].mark(HAS_LOST);
        }
        for (sum, cell) in cells.into_iter().zip(bucket::cells()) {
            self.counters.set(at, cell, sum);
        }
        for (way, candidate) in candidates.iter().enumerate() {
            self.put(at, way, candidate);
        }
    }

    /// A candidate of one or more buckets, with the counts of all buckets.
    fn merged(&self, at: usize, others: &[&Self], hash: u64) -> Candidate<K, W> {
        let mut sum = Candidate::<K, W> { hash, ..Candidate::default() };
        for part in others.iter().copied().chain([self]) {
            let way = part.counters.buckets[at].way(hash);
            if way == WAYS {
                sum.entry.missed = sum.entry.missed.saturating_add(part.counters.most(at, cell(hash)));
                continue;
            }
            let Candidate { hash: _, counted, counted_at_most: _, credit, entry } = part.candidate(at, way);
            sum.counted = sum.counted.saturating_add(counted);
            sum.credit += credit;
            sum.entry.missed = sum.entry.missed.saturating_add(entry.missed);
            sum.entry.likely = sum.entry.likely.saturating_add(entry.likely);
            sum.entry.key = entry.key;
        }
        sum
    }

    fn put(&mut self, at: usize, way: usize, candidate: &Candidate<K, W>) {
        self.rows[at].0[way] = candidate.entry;
        self.counters.set(at, way, candidate.counted);
        let bucket = &mut self.counters.buckets[at];
        bucket.hashes[way] = candidate.hash;
        bucket.credits[way] = Rounded::down(candidate.credit);
        // The last candidate has the smallest score. But a free way costs nothing.
        if way == WAYS - 1 {
            bucket.set_price(candidate.score());
        }
    }
}
