//! Top-k candidates: which keys are the largest?
//!
//! A fixed table of keys beside a [`CountMin`](super::CountMin), which tells how large a key is that is not in it. A
//! key once in the table is counted exactly; what it had before is at most what count-min said when it came in.
//!
//! **Errs** never about a key it holds: the truth is within `[lower, upper]`, for packets and for bytes, as long as the
//! estimates that it is offered are upper bounds. It may lack a key: one that is not among the 8 largest
//! of its bucket, or one that was evicted and did not come back. Size it for some hundred times the k that is
//! reported.
//!
//! **Cost** for 1,024 flows: 97 KiB; one cache line for a key that does not get in (its bucket's hashes;
//! the bucket's price of admission stays in L1), two or three for one that is held.
//!
//! **Papers**: the sketch with a heap of candidates is Charikar, Chen and Farach-Colton, "Finding frequent items in
//! data streams", 2002; here with a set-associative table for the heap, so that an update is one bucket and not
//! log k moves. The exact count since admission beside a bound on the rest is that of Metwally, Agrawal and El Abbadi,
//! "Efficient computation of frequent and top-k elements in data streams", 2005.
//!
//! **Why not a crate**: crates keep one number a key, in maps and heaps that allocate as they go; here it must be
//! packets and bytes with bounds for both, in memory fixed beforehand.

use alloc::{boxed::Box, vec};

use super::saturating_add;
use crate::ledger::Tally;

/// Entries a bucket: their hashes fill one cache line.
pub const WAYS: usize = 8;
/// Entries at most: 1.5 GiB with flow keys.
pub const ENTRIES_MAX: usize = 1 << 24;

/// What "large" means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// By packets.
    Packets,
    /// By bytes.
    Bytes,
}

impl Metric {
    /// The number that counts.
    #[inline(always)]
    pub const fn of(self, tally: Tally) -> u64 {
        match self {
            Self::Packets => tally.packets,
            Self::Bytes => tally.bytes,
        }
    }
}

/// A key that may be among the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<K> {
    /// The key's hash.
    pub hash: u64,
    /// The key.
    pub key: K,
    /// Exactly what it had since it came in.
    pub counted: Tally,
    /// At most what it had before.
    pub missed: Tally,
}

impl<K> Candidate<K> {
    /// It had at least this.
    pub const fn lower(&self) -> Tally {
        self.counted
    }

    /// It had at most this.
    #[inline]
    pub const fn upper(&self) -> Tally {
        saturating_add(self.counted, self.missed)
    }
}

/// The hashes of one bucket: one cache line. Free ways have 0, as a key might; the candidate decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Hashes([u64; WAYS]);

/// A set-associative table of the largest keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK<K> {
    hashes: Box<[Hashes]>,
    /// By bucket: the least estimate that might get in. Never too high, because what is held only grows; brought up to
    /// date whenever the bucket is searched.
    prices: Box<[u64]>,
    /// Bucket after bucket.
    candidates: Box<[Option<Candidate<K>>]>,
    metric: Metric,
    key_id: u64,
}

impl<K: Copy + Eq> TopK<K> {
    /// A table of at least `entries` keys (rounded up to a power of two of buckets of [`WAYS`]; at most
    /// [`ENTRIES_MAX`]), the largest by `metric`.
    pub fn with_capacity(entries: usize, metric: Metric, key_id: u64) -> Self {
        let buckets = entries.min(ENTRIES_MAX).div_ceil(WAYS).next_power_of_two();
        Self {
            hashes: vec![Hashes::default(); buckets].into_boxed_slice(),
            prices: vec![0; buckets].into_boxed_slice(),
            candidates: vec![None; buckets * WAYS].into_boxed_slice(),
            metric,
            key_id,
        }
    }

    /// Tells of `weight` more of a key. `estimate` is an upper bound of all that the key had, `weight` included: what
    /// [`CountMin::add`](super::CountMin::add) has just returned.
    #[inline]
    pub fn offer(&mut self, hash: u64, key: K, weight: Tally, estimate: Tally) {
        let bucket = self.bucket(hash);
        if let Some(at) = self.position(bucket, hash, &key) {
            if let Some(candidate) = &mut self.candidates[at] {
                candidate.counted = saturating_add(candidate.counted, weight);
            }
        } else if self.metric.of(estimate) >= self.prices[bucket] {
            let missed = Tally::new(
                estimate.packets.saturating_sub(weight.packets),
                estimate.bytes.saturating_sub(weight.bytes),
            );
            self.admit(bucket, Candidate { hash, key, counted: weight, missed });
        }
    }

    /// The candidate with this key.
    pub fn get(&self, hash: u64, key: &K) -> Option<Candidate<K>> {
        self.position(self.bucket(hash), hash, key).and_then(|at| self.candidates[at])
    }

    /// All candidates, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Candidate<K>> {
        self.candidates.iter().flatten()
    }

    /// Forgets everything; writes every entry. (Not inlined: next to the allocation, the writes would be optimised
    /// out, and the pages would not become resident.)
    #[inline(never)]
    pub fn clear(&mut self) {
        self.hashes.fill(Hashes::default());
        self.prices.fill(0);
        self.candidates.fill(None);
    }

    /// How many keys it can hold.
    pub const fn capacity(&self) -> usize {
        self.candidates.len()
    }

    /// What its keys are the largest by.
    pub const fn metric(&self) -> Metric {
        self.metric
    }

    /// The fingerprint of the hash key.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// Everything it occupies, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.hashes.len() * (size_of::<Hashes>() + size_of::<u64>())
            + self.candidates.len() * size_of::<Option<Candidate<K>>>()
    }

    /// The bucket: the hash's high bits, where count-min reads the low ones.
    #[inline(always)]
    const fn bucket(&self, hash: u64) -> usize {
        let buckets = self.hashes.len();
        hash.rotate_left(buckets.trailing_zeros()) as usize & (buckets - 1)
    }

    /// Where the key is, if it is held.
    #[inline(always)]
    fn position(&self, bucket: usize, hash: u64, key: &K) -> Option<usize> {
        // All eight compared without a branch: most keys of a flood are in no way.
        let ways = self.hashes[bucket].0;
        let mut matches = (0..WAYS).fold(0u8, |matches, way| matches | u8::from(ways[way] == hash) << way);
        while matches != 0 {
            let at = bucket * WAYS + matches.trailing_zeros() as usize;
            if self.candidates[at].as_ref().is_some_and(|candidate| candidate.key == *key) {
                return Some(at);
            }
            matches &= matches - 1;
        }
        None
    }

    /// Puts a candidate into a free way, or in the place of the smallest if that is smaller.
    fn admit(&mut self, bucket: usize, candidate: Candidate<K>) {
        let ways = &mut self.candidates[bucket * WAYS..][..WAYS];
        let rank = |candidate: &Candidate<K>| self.metric.of(candidate.upper());
        // A free way has no rank, which is less than any.
        let (mut way, mut least) = (0, ways[0].as_ref().map(rank));
        for (other, held) in ways.iter().enumerate().skip(1) {
            let held = held.as_ref().map(rank);
            if held < least {
                (way, least) = (other, held);
            }
        }
        if let Some(least) = least {
            self.prices[bucket] = least.saturating_add(1);
            if rank(&candidate) <= least {
                return;
            }
        }
        ways[way] = Some(candidate);
        self.hashes[bucket].0[way] = candidate.hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::{
        CountMin,
        oracle::{Amounts, SplitMix64, Zipf, hash},
    };
    use std::vec::Vec;

    const ONE: Tally = Tally::new(1, 100);

    /// Feeds Zipf traffic over `keys` keys through a count-min sketch into a table, and to an oracle.
    fn feed(table: &mut TopK<u64>, keys: u32, exponent: f64, records: u32) -> Amounts {
        let mut amounts = CountMin::with_error(0.0005, 0.001, 7);
        let (zipf, mut random) = (Zipf::new(keys, exponent), SplitMix64(exponent.to_bits()));
        let mut truth = Amounts::default();
        for _ in 0..records {
            let (key, weight) = (zipf.draw(&mut random), random.weight());
            let hash = hash(1, key);
            truth.add(key, weight);
            table.offer(hash, key, weight, amounts.add(hash, weight));
        }
        truth
    }

    fn assert_bounds(table: &TopK<u64>, truth: &Amounts) {
        for candidate in table.iter() {
            let (truth, lower, upper) = (truth.get(candidate.key), candidate.lower(), candidate.upper());
            assert!((lower.packets..=upper.packets).contains(&truth.packets), "{candidate:?} {truth:?}");
            assert!((lower.bytes..=upper.bytes).contains(&truth.bytes), "{candidate:?} {truth:?}");
            assert_eq!(table.get(candidate.hash, &candidate.key).as_ref(), Some(candidate));
        }
    }

    #[test]
    fn the_top_ten_are_those_of_the_oracle() {
        for exponent in [1.0, 1.1, 1.3] {
            for metric in [Metric::Packets, Metric::Bytes] {
                let mut table = TopK::with_capacity(1024, metric, 7);
                let truth = feed(&mut table, 100_000, exponent, 500_000);
                assert_bounds(&table, &truth);
                let mut candidates: Vec<_> = table.iter().collect();
                candidates.sort_by_key(|candidate| core::cmp::Reverse(metric.of(candidate.upper())));
                // Compared by amount, so that keys of equal size may stand for each other.
                let top: Vec<u64> = candidates[..10].iter().map(|top| metric.of(truth.get(top.key))).collect();
                assert_eq!(top, truth.largest(10, |tally| metric.of(tally)), "s = {exponent}, by {metric:?}");
            }
        }
    }

    #[test]
    fn bounds_hold_under_churn() {
        // Hardly skewed, and 64 entries for 50,000 keys: admission and eviction all the time.
        let mut table = TopK::with_capacity(64, Metric::Bytes, 7);
        let truth = feed(&mut table, 50_000, 0.3, 100_000);
        assert_eq!(table.iter().count(), 64);
        assert_bounds(&table, &truth);
    }

    #[test]
    fn a_bucket_keeps_its_largest() {
        let mut table = TopK::with_capacity(8, Metric::Bytes, 7);
        (1..=8).for_each(|key| table.offer(key, key, Tally::new(1, key * 100), Tally::new(1, key * 100)));
        table.offer(9, 9, ONE, Tally::new(2, 100));
        assert_eq!(table.get(9, &9), None, "as large as the smallest is not larger");
        table.offer(9, 9, ONE, Tally::new(3, 101));
        let admitted = Candidate { hash: 9, key: 9, counted: ONE, missed: Tally::new(2, 1) };
        assert_eq!((table.get(9, &9), table.get(1, &1)), (Some(admitted), None));
        table.offer(9, 9, ONE, Tally::new(4, 201));
        assert_eq!(table.get(9, &9), Some(Candidate { counted: Tally::new(2, 200), ..admitted }));
        assert_eq!((admitted.lower(), admitted.upper()), (ONE, Tally::new(3, 101)));
        // The smallest is now key 2 with 200; many packets do not help where bytes count.
        table.offer(10, 10, ONE, Tally::new(1_000, 200));
        assert_eq!(table.get(10, &10), None);
    }

    #[test]
    fn a_hash_is_not_a_key() {
        let mut table = TopK::with_capacity(8, Metric::Packets, 7);
        assert_eq!(table.get(0, &1), None, "a free way has hash 0");
        for (key, times) in [(1, 1), (2, 2), (3, 3)] {
            (0..times).for_each(|_| table.offer(0, key, ONE, Tally::new(9, 900)));
        }
        for (key, times) in [(1, 1), (2, 2), (3, 3)] {
            assert_eq!(table.get(0, &key).unwrap().counted.packets, times);
        }
    }

    #[test]
    fn capacity_is_rounded_up_and_kept_in_range() {
        for (entries, capacity) in [(0, 8), (1, 8), (8, 8), (9, 16), (1000, 1024), (1025, 2048)] {
            let table = TopK::<u64>::with_capacity(entries, Metric::Packets, 7);
            assert_eq!(table.capacity(), capacity);
        }
        let table = TopK::<crate::flow::FlowKey>::with_capacity(1024, Metric::Packets, 7);
        assert_eq!((table.metric(), table.key_id()), (Metric::Packets, 7));
        assert_eq!(table.memory_bytes() - size_of_val(&table), 97 << 10);
        assert_eq!(align_of_val(&table.hashes[0]), size_of_val(&table.hashes[0]));
    }

    #[test]
    fn clearing_is_as_good_as_new_and_extremes_saturate() {
        let new = TopK::with_capacity(64, Metric::Bytes, 7);
        let mut table = new.clone();
        feed(&mut table, 1_000, 1.0, 5_000);
        assert_ne!(table, new);
        table.clear();
        assert_eq!(table, new);
        let most = Tally::new(u64::MAX, u64::MAX);
        for key in 0..10 {
            table.offer(0, key, most, most);
            table.offer(0, key, most, most);
        }
        assert_eq!(table.iter().count(), 8);
        assert!(table.iter().all(|candidate| candidate.upper() == most));
    }
}
