//! The loop that adds a batch, some keys at a time.

use core::fmt;

use super::{
    Packed, Rest, WAYS,
    admission::{Admission, Arrival},
    bucket::nonzero,
    candidate::{Entry, Row},
    counters::Counters,
};
use crate::{
    Weight,
    coin::Coin,
    hash::scale,
    simd::{dispatch, prefetch},
};

/// How many keys ahead a batch prefetches. Each key has two cache lines.
pub(super) const AHEAD: usize = 12;

/// How many keys are added before the entries of new candidates are written.
pub(super) const CHUNK: usize = 32;

/// Two chunks, which are used in turn. Their content has no meaning between two batches.
#[derive(Clone, Default)]
pub(super) struct Scratch<W: Weight>(pub [Chunk<W>; 2]);

impl<W: Weight> PartialEq for Scratch<W> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<W: Weight> Eq for Scratch<W> {}

impl<W: Weight> fmt::Debug for Scratch<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// Up to [`CHUNK`] keys of a batch, and those of them that became candidates and whose entries must still be written.
#[derive(Clone)]
pub(super) struct Chunk<W> {
    /// The number of its first key in the batch.
    first: usize,
    admitted: [Admission<W>; CHUNK],
    count: usize,
}

impl<W: Weight> Default for Chunk<W> {
    fn default() -> Self {
        Self { first: 0, admitted: [Admission::default(); CHUNK], count: 0 }
    }
}

impl<W: Weight> Chunk<W> {
    /// Adds weights to the keys with these hashes, of which there may be more. Returns a bit for each key that is not a
    /// candidate afterwards.
    #[inline(always)]
    pub fn add(
        &mut self,
        first: usize,
        counters: &mut Counters<W>,
        (random, places): (&mut u64, u64),
        hashes: &[u64],
        weights: &[Packed<W>],
    ) -> u64 {
        let mut done = Done { admitted: &mut self.admitted, places, count: 0, unlisted: 0 };
        add(counters, random, hashes, weights, &mut done);
        let unlisted = done.unlisted;
        (self.first, self.count) = (first, done.count);
        unlisted
    }

    /// Leaves no entries to be written.
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    fn admitted(&self) -> impl Iterator<Item = &Admission<W>> {
        self.admitted.iter().take(self.count)
    }

    /// Prefetches the entries that [`Chunk::write_entries`] writes.
    #[inline(always)]
    pub fn prefetch_entries<K>(&self, rows: &[Row<K, W>]) {
        for admission in self.admitted() {
            prefetch(&rows[admission.bucket as usize].0[usize::from(admission.way) % WAYS]);
        }
    }

    /// Writes the entries of new candidates, in order.
    #[inline(always)]
    pub fn write_entries<K>(&self, rows: &mut [Row<K, W>], key: impl Fn(usize) -> K, rest: &mut impl Rest<K, W>) {
        for &Admission { bucket, way, nth, missed, likely, counted_before } in self.admitted() {
            let entry = &mut rows[bucket as usize].0[usize::from(way) % WAYS];
            if counted_before != W::default() {
                rest.leaves(&entry.key, counted_before);
            }
            *entry = Entry { missed, likely, key: key(self.first + usize::from(nth)) };
        }
    }
}

/// The result for the keys of a chunk.
struct Done<'a, W> {
    admitted: &'a mut [Admission<W>],
    /// The number by which hashes are multiplied.
    places: u64,
    count: usize,
    unlisted: u64,
}

dispatch! {
    fn add<W: Weight>(
        counters: &mut Counters<W>, random: &mut u64, hashes: &[u64], weights: &[Packed<W>], done: &mut Done<'_, W>
    ) {
        let (mut state, mut unlisted, places) = (*random, 0, done.places);
        for (nth, (hash, packed)) in hashes.iter().zip(weights).enumerate() {
            let buckets = &mut *counters.buckets;
            let count = buckets.len() as u64;
            if let Some(later) = hashes.get(nth + AHEAD) {
                buckets[scale(nonzero(later.wrapping_mul(places)), count) as usize].prefetch();
            }
            let hash = nonzero(hash.wrapping_mul(places));
            let at = scale(hash, count) as usize;
            let coin = Coin::toss(&mut state, packed.score);
            let bucket = &mut buckets[at];
            let slot = bucket.slot(hash);
            let mut is_listed = slot < WAYS;
            let sum = bucket.words[slot].wrapping_add(packed.word);
            let may_enter = !is_listed & coin.is_head(bucket.price());
            if may_enter | (sum & W::GUARDS != 0) {
                let arrival = Arrival { hash, packed, coin };
                if let Some(admission) = counters.add_slowly(at, slot, arrival) {
                    done.admitted[done.count] = Admission { nth: nth as u16, ..admission };
                    done.count += 1;
                    is_listed = true;
                }
            } else {
                bucket.words[slot] = sum;
            }
            unlisted |= u64::from(!is_listed) << nth;
        }
        *random = state;
        done.unlisted = unlisted;
    }
}
