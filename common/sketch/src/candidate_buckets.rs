//! Candidate buckets: which keys are the largest, how large are they, and how much can any other key have? Candidates
//! with a count-min for all other keys, both in two cache lines.
//!
//! A bucket has four candidates, each with a counter, and six light cells that all other keys of the bucket share. For
//! a key that comes, its bucket decides:
//!
//! ```text
//! held?      add to its counter
//! not held?  toss a coin with probability weight / (least score + weight), or 1 if weight is more than that score:
//!              head, and its light cell has more than the least score without weight:
//!                    replace the bucket's smallest candidate, whose count goes to its own light cell
//!              else: add to its light cell
//! ```
//!
//! 1. Candidates are known by their hashes of 64 bits. So a record reads and writes its bucket alone. The key, and what
//!    it missed, are elsewhere; they are written when it becomes a candidate, and not read before somebody asks.
//! 2. The numbers of a weight share a word ([`Weight::pack`]), so one addition counts all of them. A bit above each
//!    number tells when it is full. Then the word moves to a table of few weights, and the bucket is marked. So counts
//!    stay exact, and buckets without the mark cost nothing more.
//! 3. Counter or light cell, whichever it is, is chosen without a branch. The only branch, which is seldom taken, is
//!    for keys that may become candidates and for full words.
//! 4. A batch prefetches buckets some keys ahead.
//! 5. The least score is looked up only if the coin shows head for the least score of an earlier time. Scores only
//!    grow, so a tail for the old score is a tail for the new one.
//!
//! **Errors**: the truth is within `[lower, upper]` for every key, held or not, unless two keys of a bucket have the
//! same hash of 64 bits: one chance in 4 million for ten million keys. The lower bound of a candidate is what was
//! counted since it became one. Its upper bound adds what its light cell had then. A key that is not held has at most
//! its light cell. For five lists of a router's traffic, beside
//! [`TopK`](super::TopK) with a [`BlockedCountMin`](super::BlockedCountMin) in the same memory
//! (`scripts/bench sketches --only lists`, EPYC with AVX-512, November 2026): nanoseconds a record, and the mean excess
//! of upper bounds of unlisted keys, in millionths of everything.
//!
//! | 524,288 records, 3.9 MiB | candidate buckets | candidates, count-min beside them |
//! |---|---|---|
//! | Zipf 1.1, a million flows | 41 ns, 18 | 96 ns, 36 |
//! | a flood on one target | 45 ns, 79 | 111 ns, 163 |
//! | every flow new | 55 ns, 79 | 141 ns, 163 |
//!
//! A key has one light cell. With two cells each, of which the smaller counts, the mean excess was 34 and 149 where it
//! is 20 and 80 (conservative update: 24 and 103), because each cell has twice as much.
//!
//! **Cost** for keys of 40 bytes and weights of two numbers: 384 bytes for four candidates. A record touches two cache
//! lines next to each other. A key that becomes a candidate writes one more.
//!
//! **Papers**: heavy candidates before light counters: Yang et al., "Elastic sketch: adaptive and fast network-wide
//! measurements", 2018; random admission, which keeps a flood of small keys from changing the table all the time: Ben
//! Basat et al., "Randomized admission policy for efficient top-k, frequency, and volume estimation", 2019; the bound
//! of a key that takes the place of another: Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and
//! top-k elements in data streams", 2005 (`SpaceSaving`); count-min: Cormode and Muthukrishnan, "An improved data
//! stream summary", 2005.
//!
//! **Why not a crate**: crates keep one number for each key, without bounds, in maps and heaps that allocate while they
//! count; those with bounds (`SpaceSaving`, Misra-Gries) have none for the keys that they do not list but one for all.

mod admission;
mod bucket;
mod candidate;
mod chunk;
mod counters;
mod image;
mod merge;
mod packed;
mod rest;
mod rounded;

use alloc::{boxed::Box, vec, vec::Vec};
use core::cmp::Reverse;

pub use self::{bucket::WAYS, candidate::Listed, packed::Packed, rest::Rest};
use self::{
    bucket::{Bucket, CELLS, cell, nonzero},
    candidate::{Candidate, Row},
    chunk::{AHEAD, CHUNK, Scratch},
    counters::Counters,
};
use super::{Bounds, Geometry, MergeError, Weight};
use crate::hash::scale;

/// The most buckets: 6 GiB with keys of 40 bytes and weights of two numbers.
pub const BUCKETS_MAX: usize = 1 << 24;

/// The largest keys, with bounds for all keys. Without the second type parameter it counts `u64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateBuckets<K, W: Weight = u64> {
    counters: Counters<W>,
    /// By bucket.
    rows: Box<[Row<K, W>]>,
    scratch: Box<Scratch<W>>,
    /// The state of the random numbers for coins.
    random: u64,
    /// What that state begins with.
    seed: u64,
    /// Hashes are multiplied by this odd number before anything is derived from them.
    places: u64,
    key_id: u64,
}

impl<K: Copy + Default, W: Weight> CandidateBuckets<K, W> {
    /// Room for at least `candidates` keys, rounded up to buckets of [`WAYS`], from one bucket to [`BUCKETS_MAX`].
    ///
    /// To list the k largest keys, take about eight times k.
    pub fn with_capacity(candidates: usize, key_id: u64) -> Self {
        Self::with_buckets(candidates.div_ceil(WAYS), key_id)
    }

    /// At least `candidates` keys. The bounds of a key are seldom further apart than `error`, a share of everything
    /// that is added.
    pub fn with_error(error: f64, candidates: usize, key_id: u64) -> Self {
        Self::with_buckets(Self::buckets_for(error, candidates), key_id)
    }

    /// How many buckets [`CandidateBuckets::with_error`] makes.
    pub fn buckets_for(error: f64, candidates: usize) -> usize {
        // What is not held spreads over the cells. Three quarters of the error are for how unevenly it does.
        let buckets = libm::ceil(4.0 / (CELLS as f64 * error.clamp(1e-9, 1.0))) as usize;
        buckets.max(candidates.div_ceil(WAYS)).clamp(1, BUCKETS_MAX)
    }

    /// As many buckets as fit into so much memory.
    pub fn with_memory(bytes: usize, key_id: u64) -> Self {
        let fixed = size_of::<Self>() + size_of::<Scratch<W>>() + Self::bytes_of(0);
        let of_four = Self::bytes_of(4) - Self::bytes_of(0);
        Self::with_buckets(bytes.saturating_sub(fixed) / of_four * 4, key_id)
    }

    /// So many buckets, from one to [`BUCKETS_MAX`].
    pub fn with_buckets(count: usize, key_id: u64) -> Self {
        let count = count.clamp(1, BUCKETS_MAX);
        Self {
            counters: Counters::new(counters::buckets(count)),
            rows: vec![Row::default(); count].into_boxed_slice(),
            scratch: Box::default(),
            random: key_id,
            seed: key_id,
            places: 1,
            key_id,
        }
    }

    /// The memory that so many buckets take, in bytes, without the structure itself (some 3 KiB).
    pub const fn bytes_of(buckets: usize) -> usize {
        Counters::<W>::bytes(buckets) + buckets * size_of::<Row<K, W>>()
    }

    /// Adds `weight` to a key. `hash` must be the hash of the key.
    #[inline]
    pub fn add(&mut self, hash: u64, key: K, weight: W) {
        self.add_in_chunks(&[hash], &[weight.into()], |_| key, &mut ());
    }

    /// Adds `weights[i]` to the key with the hash `hashes[i]`, in order; stops at the end of the shorter slice.
    /// `key(i)` makes the key; it is called for few of them.
    ///
    /// Batches of some hundred are best: the first and the last keys of a batch wait for memory.
    #[inline]
    pub fn add_batch(&mut self, hashes: &[u64], weights: &[Packed<W>], key: impl Fn(usize) -> K) {
        self.add_batch_and(hashes, weights, key, &mut ());
    }

    /// The same; `rest` is told what the candidates do not hold.
    #[inline]
    pub fn add_batch_and(
        &mut self,
        hashes: &[u64],
        weights: &[Packed<W>],
        key: impl Fn(usize) -> K,
        rest: &mut impl Rest<K, W>,
    ) {
        for hash in hashes.iter().take(AHEAD) {
            self.prefetch(*hash);
        }
        self.add_in_chunks(hashes, weights, key, rest);
    }

    #[inline(always)]
    fn add_in_chunks(
        &mut self,
        hashes: &[u64],
        weights: &[Packed<W>],
        key: impl Fn(usize) -> K,
        rest: &mut impl Rest<K, W>,
    ) {
        let Scratch([one, other]) = &mut *self.scratch;
        let (mut now, mut before) = (one, other);
        before.clear();
        for (nth, weights) in weights.chunks(CHUNK).enumerate() {
            let hashes = hashes.get(nth * CHUNK..).unwrap_or_default();
            let unlisted = now.add(nth * CHUNK, &mut self.counters, (&mut self.random, self.places), hashes, weights);
            rest.unlisted(nth * CHUNK, unlisted);
            // A store that waits for its cache line would hold up all later stores.
            now.prefetch_entries(&self.rows);
            before.write_entries(&mut self.rows, &key, rest);
            core::mem::swap(&mut now, &mut before);
        }
        before.write_entries(&mut self.rows, &key, rest);
    }

    /// Prefetches what a record of this key touches.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.counters.buckets[self.place(self.placed(hash))].prefetch();
    }

    /// The candidate with this hash, if it is held.
    pub fn get(&self, hash: u64) -> Option<Listed<K, W>> {
        let hash = self.placed(hash);
        let at = self.place(hash);
        let way = self.counters.buckets[at].way(hash);
        (way < WAYS).then(|| self.candidate(at, way).listed())
    }

    /// Bounds of a key's weight, which hold for any key, held or not.
    pub fn bounds(&self, hash: u64) -> Bounds<W> {
        let hash = self.placed(hash);
        let at = self.place(hash);
        match self.counters.buckets[at].way(hash) {
            way @ 0..WAYS => self.candidate(at, way).bounds(),
            _ => Bounds { lower: W::default(), upper: self.counters.most(at, cell(hash)) },
        }
    }

    /// All candidates, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Listed<K, W>> {
        (0..self.buckets()).flat_map(move |at| self.candidates(at)).map(|candidate| candidate.listed())
    }

    /// The `count` largest candidates by their values, largest first: by what [`Weight::magnitude`] compares.
    pub fn top(&self, count: usize) -> Vec<Listed<K, W>> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by_key(|listed| Reverse(listed.value.magnitude()));
        all.truncate(count);
        all
    }

    /// What keys that are not held have, in groups: each such key is in one of them, and all of a group together have
    /// at most this.
    pub fn light(&self) -> impl Iterator<Item = W> {
        (0..self.buckets()).flat_map(move |at| bucket::cells().map(move |cell| self.counters.most(at, cell)))
    }

    /// Merges another one into this one, as [`CandidateBuckets::merge_all`] does with many.
    ///
    /// # Errors
    ///
    /// The other has another geometry or key. Nothing has changed then.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.merge_all(&[other])
    }

    /// Empties it. Writes every entry, so that its pages become resident.
    // Not inlined: next to the allocation, compilers would leave the writes out.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.counters.clear();
        self.rows.fill(Row::default());
        self.random = self.seed;
    }

    /// Makes an empty one ready for hashes of another key. `seed` decides all coins until it is cleared, and again
    /// after that. `places` decides which keys share a bucket and a cell; only those of equal `places` merge.
    ///
    /// A new one takes the fingerprint of its key for the seed, so that its answers can be repeated. Whoever knows
    /// the seed knows every coin, and can choose when each key comes. If strangers may learn the fingerprint, give
    /// each one a secret seed, and another one after each [`CandidateBuckets::clear`].
    ///
    /// Whoever sends keys and sees bounds learns which keys share a cell with another one, and can widen the bounds of
    /// that one. If strangers can do both, take secret `places`, and others each time that bounds were shown. (They are
    /// made odd; a new structure has 1.)
    pub const fn rekey(&mut self, key_id: u64, seed: u64, places: u64) {
        self.key_id = key_id;
        self.seed = seed;
        self.random = seed;
        self.places = places | 1;
    }

    /// How many keys it can hold.
    pub const fn capacity(&self) -> usize {
        self.buckets() * WAYS
    }

    /// Its size and shape: sketches merge if these are equal.
    pub const fn geometry(&self) -> Geometry {
        Geometry::CandidateBuckets { count: self.buckets() }
    }

    /// The fingerprint of the key that its hashes are made with.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes, in bytes, with itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Scratch<W>>() + Self::bytes_of(self.buckets())
    }

    const fn buckets(&self) -> usize {
        self.rows.len()
    }

    /// The hash from which everything is derived. A product with an odd number is a bijection, and which products have
    /// their highest bits in common depends on the number (Dietzfelbinger et al., "A reliable randomized algorithm for
    /// the closest-pair problem", 1997).
    #[inline(always)]
    const fn placed(&self, hash: u64) -> u64 {
        nonzero(hash.wrapping_mul(self.places))
    }

    /// The key's bucket, from the high bits of the placed hash. The light cell has the low half.
    #[inline(always)]
    const fn place(&self, hash: u64) -> usize {
        scale(hash, self.counters.buckets.len() as u64) as usize
    }

    fn candidate(&self, at: usize, way: usize) -> Candidate<K, W> {
        let Bucket { hashes, credits, .. } = &self.counters.buckets[at];
        Candidate {
            hash: hashes[way],
            counted: self.counters.get(at, way),
            counted_at_most: self.counters.most(at, way),
            credit: credits[way].get(),
            entry: self.rows[at].0[way],
        }
    }

    fn candidates(&self, at: usize) -> impl Iterator<Item = Candidate<K, W>> {
        self.counters.buckets[at].taken().map(move |way| self.candidate(at, way))
    }
}

#[cfg(test)]
mod tests;
