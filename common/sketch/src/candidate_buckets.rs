//! Candidate buckets: which keys are the largest, how large are they, and how much can any other key have? There are
//! candidates, and a count-min for all other keys, both in the same two cache lines.
//!
//! A bucket has four candidates, each with a counter, and six light cells that all other keys of the bucket share. When
//! a key arrives, its bucket decides:
//!
//! ```text
//! held:      add to its counter
//! not held:  toss a coin with probability weight / (least score + weight), or 1 if weight is more than that score;
//!            if it shows head, and the light cell has more than the least score without weight:
//!                replace the bucket's smallest candidate, whose count moves to its own light cell
//!            else: add to its light cell
//! ```
//!
//! 1. Candidates are identified by their 64-bit hashes. So a record only reads and writes its bucket. The key and its
//!    missed weight are stored elsewhere. They are written when the key becomes a candidate, and read only by queries.
//! 2. The numbers of a weight share a word ([`Weight::pack`]), so one addition counts all of them. A bit above each
//!    number shows when it is full. Then the word moves to a small table of weights, and the bucket is marked. So
//!    counts stay exact, and buckets without the mark have no extra cost.
//! 3. The choice between the counter and the light cell takes no branch. The only branch, which is seldom taken, is for
//!    keys that may become candidates and for full words.
//! 4. A batch prefetches buckets some keys ahead.
//! 5. The least score is looked up only if the coin shows head for an earlier least score. Scores only grow, so a tail
//!    for the old score is also a tail for the new one.
//!
//! **Errors**: the truth is within `[lower, upper]` for every key, held or not, unless two keys of a bucket have the
//! same 64-bit hash: one chance in 4 million for ten million keys. The lower bound of a candidate is its count since it
//! became one. Its upper bound also includes the value of its light cell at that time. A key that is not held has at
//! most the value of its light cell. The table compares five lists of a router's traffic with
//! [`TopK`](super::TopK) and a [`BlockedCountMin`](super::BlockedCountMin) in the same memory
//! (`scripts/bench sketches --only lists`, EPYC with AVX-512, November 2026): nanoseconds per record, and the mean
//! excess of upper bounds of unlisted keys, in millionths of the total.
//!
//! | 524,288 records, 3.9 MiB | candidate buckets | top-k and count-min |
//! |---|---|---|
//! | Zipf 1.1, a million flows | 41 ns, 18 | 96 ns, 36 |
//! | a flood on one target | 45 ns, 79 | 111 ns, 163 |
//! | every flow new | 55 ns, 79 | 141 ns, 163 |
//!
//! A key has one light cell. With two cells, of which the smaller one counts, the mean excess was 34 and 149 instead of
//! 20 and 80 (with conservative update: 24 and 103), because each cell was used by twice as many keys.
//!
//! **Cost** for keys of 40 bytes and weights of two numbers: 384 bytes for four candidates. A record touches two cache
//! lines next to each other. A key that becomes a candidate writes one more.
//!
//! **Papers**: heavy candidates before light counters: Yang et al., "Elastic sketch: adaptive and fast network-wide
//! measurements", 2018. Random admission, which keeps a flood of small keys from changing the table all the time: Ben
//! Basat et al., "Randomized admission policy for efficient top-k, frequency, and volume estimation", 2019. The bound
//! of a key that takes the place of another: Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and
//! top-k elements in data streams", 2005 (`SpaceSaving`). Count-min: Cormode and Muthukrishnan, "An improved data
//! stream summary", 2005.
//!
//! **Why not a crate**: crates keep one number for each key, without bounds, in maps and heaps that allocate while they
//! count. Those with bounds (`SpaceSaving`, Misra-Gries) have only one bound for all keys that they do not list.

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
use super::{
    Bounds, Geometry, MergeError, Weight,
    setting::{SettingError, check_error, check_number, check_room},
};
use crate::hash::scale;

/// The most buckets: 6 GiB with keys of 40 bytes and weights of two numbers.
pub const BUCKETS_MAX: usize = 1 << 24;

/// The largest keys, with bounds for all keys. Without the second type parameter it counts `u64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateBuckets<K, W: Weight = u64> {
    counters: Counters<W>,
    /// The entries of candidates, by bucket.
    rows: Box<[Row<K, W>]>,
    scratch: Box<Scratch<W>>,
    /// The state of the random numbers for coins.
    random: u64,
    /// The initial value of that state.
    seed: u64,
    /// Hashes are multiplied by this odd number before anything is derived from them.
    places: u64,
    key_id: u64,
}

impl<K: Copy + Default, W: Weight> CandidateBuckets<K, W> {
    /// Room for at least `candidates` keys, rounded up to buckets of [`WAYS`], from one bucket to [`BUCKETS_MAX`].
    ///
    /// To list the k largest keys, take about eight times k.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_capacity(candidates: usize, key_id: u64) -> Result<Self, SettingError> {
        Self::check(candidates)?;
        Ok(Self::of_buckets(candidates.div_ceil(WAYS).max(1), key_id))
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// More than [`BUCKETS_MAX`] buckets are needed.
    pub fn check(candidates: usize) -> Result<(), SettingError> {
        check_room("candidates", candidates as u64, (BUCKETS_MAX * WAYS) as u64)
    }

    /// Room for at least `candidates` keys. The bounds of a key seldom differ by more than `error`, a share of
    /// everything that is added.
    ///
    /// # Errors
    ///
    /// The error is no share that [`BUCKETS_MAX`] buckets can have, or there is no room for so many candidates.
    pub fn with_error(error: f64, candidates: usize, key_id: u64) -> Result<Self, SettingError> {
        Self::check(candidates)?;
        check_error("error", error, buckets_of(BUCKETS_MAX as f64))?;
        Ok(Self::of_buckets(Self::buckets_for(error, candidates), key_id))
    }

    /// How many buckets [`CandidateBuckets::with_error`] creates with settings that it allows.
    pub fn buckets_for(error: f64, candidates: usize) -> usize {
        let buckets = libm::ceil(buckets_of(error)) as usize;
        buckets.max(candidates.div_ceil(WAYS)).clamp(1, BUCKETS_MAX)
    }

    /// As many buckets as fit into this much memory.
    ///
    /// # Errors
    ///
    /// Less than four buckets fit, or more than [`BUCKETS_MAX`].
    pub fn with_memory(bytes: usize, key_id: u64) -> Result<Self, SettingError> {
        let fixed = size_of::<Self>() + size_of::<Scratch<W>>() + Self::bytes_of(0);
        let of_four = Self::bytes_of(4) - Self::bytes_of(0);
        let most = fixed + BUCKETS_MAX / 4 * of_four;
        check_number("bytes", bytes as u64, (fixed + of_four) as u64..=most as u64)?;
        Ok(Self::of_buckets((bytes - fixed) / of_four * 4, key_id))
    }

    /// This many buckets, from one to [`BUCKETS_MAX`].
    ///
    /// # Errors
    ///
    /// There are none, or too many.
    pub fn with_buckets(count: usize, key_id: u64) -> Result<Self, SettingError> {
        check_number("count", count as u64, 1..=BUCKETS_MAX as u64)?;
        Ok(Self::of_buckets(count, key_id))
    }

    fn of_buckets(count: usize, key_id: u64) -> Self {
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

    /// The memory of this many buckets in bytes, without the structure itself (some 3 KiB).
    pub const fn bytes_of(buckets: usize) -> usize {
        Counters::<W>::bytes(buckets) + buckets * size_of::<Row<K, W>>()
    }

    /// Adds `weight` to a key. `hash` must be the hash of the key.
    #[inline]
    pub fn add(&mut self, hash: u64, key: K, weight: W) {
        self.add_in_chunks(&[hash], &[weight.into()], |_| key, &mut ());
    }

    /// Adds `weights[i]` to the key with the hash `hashes[i]`, in order. Stops at the end of the shorter slice.
    /// `key(i)` makes the key; it is called for few of them.
    ///
    /// Batches of some hundred keys are best, because the first and the last keys of a batch wait for memory.
    #[inline]
    pub fn add_batch(&mut self, hashes: &[u64], weights: &[Packed<W>], key: impl Fn(usize) -> K) {
        self.add_batch_and(hashes, weights, key, &mut ());
    }

    /// Like [`CandidateBuckets::add_batch`]. `rest` gets the weights that the candidates do not hold.
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
            // A store that waits for its cache line would delay all later stores.
            now.prefetch_entries(&self.rows);
            before.write_entries(&mut self.rows, &key, rest);
            core::mem::swap(&mut now, &mut before);
        }
        before.write_entries(&mut self.rows, &key, rest);
    }

    /// Prefetches the cache lines that a record of this key touches.
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

    /// The position of the candidate with this hash, below [`CandidateBuckets::capacity`], if it is held. No other key
    /// has it as long as this one is a candidate. So more numbers about candidates can be kept in an array beside this
    /// structure; whoever does so has to notice when another key has taken the position.
    #[inline(always)]
    pub fn position(&self, hash: u64) -> Option<usize> {
        let hash = self.placed(hash);
        let at = self.place(hash);
        let way = self.counters.buckets[at].way(hash);
        (way < WAYS).then_some(at * WAYS + way)
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
        self.bounded().map(|(_, listed)| listed())
    }

    /// The bounds of all candidates, each with a function for everything else, which takes longer.
    pub fn bounded(&self) -> impl Iterator<Item = (Bounds<W>, impl FnOnce() -> Listed<K, W>)> {
        let all = (0..self.buckets()).flat_map(move |at| self.candidates(at));
        all.map(|candidate| (candidate.bounds(), move || candidate.listed()))
    }

    /// The `count` largest candidates by the [`Weight::magnitude`] of their values, largest first.
    pub fn top(&self, count: usize) -> Vec<Listed<K, W>> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by_key(|listed| Reverse(listed.value.magnitude()));
        all.truncate(count);
        all
    }

    /// The weights of keys that are not held, in groups. Each such key is in one group, and all keys of a group
    /// together have at most this weight.
    pub fn light(&self) -> impl Iterator<Item = W> {
        (0..self.buckets()).flat_map(move |at| bucket::cells().map(move |cell| self.counters.most(at, cell)))
    }

    /// The largest number of each kind in these groups.
    pub fn most_light(&self) -> W {
        let mut most = W::default();
        for (at, bucket) in self.counters.buckets.iter().enumerate() {
            if bucket.is_plain() {
                most = bucket.words[bucket::cells()].iter().fold(most, |most, word| most.most(W::unpack(*word)));
            } else {
                most = bucket::cells().fold(most, |most, cell| most.most(self.counters.most(at, cell)));
            }
        }
        most
    }

    /// Merges another structure into this one: see [`CandidateBuckets::merge_all`].
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.merge_all(&[other])
    }

    /// Empties it, and writes every entry, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.counters.clear();
        self.rows.fill(Row::default());
        self.random = self.seed;
    }

    /// Makes an empty structure ready for hashes of another key. `seed` determines all coins until the structure is
    /// cleared, and again after that. `places` determines which keys share a bucket and a cell; only structures with
    /// equal `places` can be merged.
    ///
    /// The default seed is the fingerprint of the key, so that results can be repeated. An attacker who knows the seed
    /// knows every coin, and can choose when each key appears. If attackers may learn the fingerprint, give each
    /// structure a secret seed, and another one after each [`CandidateBuckets::clear`].
    ///
    /// An attacker who sends keys and sees bounds learns which keys share a cell, and can widen the bounds of a key. If
    /// attackers can do both, use secret `places`, and new ones each time that bounds were shown. (They are made odd;
    /// the default is 1.)
    pub const fn rekey(&mut self, key_id: u64, seed: u64, places: u64) {
        self.key_id = key_id;
        self.seed = seed;
        self.random = seed;
        self.places = places | 1;
    }

    /// How many keys it can hold as candidates.
    pub const fn capacity(&self) -> usize {
        self.buckets() * WAYS
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::CandidateBuckets { count: self.buckets() }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Scratch<W>>() + Self::bytes_of(self.buckets())
    }

    const fn buckets(&self) -> usize {
        self.rows.len()
    }

    /// The hash from which everything else is derived. A product with an odd number is a bijection, and the number
    /// determines which products have their highest bits in common (Dietzfelbinger et al., "A reliable randomized
    /// algorithm for the closest-pair problem", 1997).
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

/// How many buckets have this error; and which error so many buckets have, because the function is its own inverse.
/// Keys that are not held are spread over the cells. Three quarters of the error allow for an uneven spread.
fn buckets_of(error: f64) -> f64 {
    4.0 / (CELLS as f64 * error)
}

#[cfg(test)]
mod tests;
