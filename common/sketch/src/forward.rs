//! Implements the traits for all structures. Each method calls the structure's own method of the same name. Structures
//! have these methods as their own, too, so that callers who know the type need no trait.

use core::convert::Infallible;

use super::{
    BlockedBloom, BlockedCountMin, Bloom, CandidateBuckets, CompactHyperLogLog, CountMin, CountingBloom, Cuckoo,
    Distinct, Estimate, Filter, Frequency, Full, Geometry, HeavyLight, HyperLogLog, Merge, MergeError, Quotient,
    Remove, SampleAndHold, ScalableBloom, Seen, SharedBloom, Sketch, Spread, TopK, UltraLogLog, Weight,
    count_min::Update,
};

/// Implements a trait for several types with one body. In it, `Self::name` is the type's own method. (If a type had no
/// such method, `Self::name` would be the trait's, which would call itself without end.)
macro_rules! forward {
    ($trait:ident for $($type:ty $(where [$($parameters:tt)*])?),+ => $body:tt) => {
        $(impl$(<$($parameters)*>)? $trait for $type $body)+
    };
}

forward! {
    Sketch for Bloom, BlockedBloom, SharedBloom, CountingBloom, ScalableBloom, Cuckoo, Quotient,
        CountMin<W, U> where [W: Weight, U: Update], BlockedCountMin<W, U> where [W: Weight, U: Update],
        HeavyLight<W> where [W: Weight], TopK<K, W> where [K: Clone + Eq + Default, W: Weight],
        CandidateBuckets<K, W> where [K: Copy + Default, W: Weight],
        HyperLogLog, CompactHyperLogLog, UltraLogLog, Spread<K> where [K: Copy], SampleAndHold<K> where [K: Copy]
    => {
        fn geometry(&self) -> Geometry {
            Self::geometry(self)
        }
        fn key_id(&self) -> u64 {
            Self::key_id(self)
        }
        fn memory_bytes(&self) -> usize {
            Self::memory_bytes(self)
        }
        fn clear(&mut self) {
            Self::clear(self);
        }
    }
}

// Only this one can have hashes of two keys at once: while one key replaces another.
impl Sketch for Seen {
    fn geometry(&self) -> Geometry {
        Self::geometry(self)
    }
    fn key_id(&self) -> u64 {
        Self::key_id(self)
    }
    fn key_ids(&self) -> [u64; 2] {
        Self::key_ids(self)
    }
    fn memory_bytes(&self) -> usize {
        Self::memory_bytes(self)
    }
    fn clear(&mut self) {
        Self::clear(self);
    }
}

forward! {
    Merge for Bloom, BlockedBloom, SharedBloom, CountingBloom, ScalableBloom, Quotient,
        CountMin<W, U> where [W: Weight, U: Update], BlockedCountMin<W, U> where [W: Weight, U: Update],
        HeavyLight<W> where [W: Weight], TopK<K, W> where [K: Clone + Eq + Default, W: Weight],
        CandidateBuckets<K, W> where [K: Copy + Default, W: Weight],
        HyperLogLog, CompactHyperLogLog, UltraLogLog, Spread<K> where [K: Copy], SampleAndHold<K> where [K: Copy]
    => {
        fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
            Self::merge(self, other)
        }
    }
}

// These are never full: with more keys than planned, only their rate of false positives rises.
forward! {
    Filter for Bloom, BlockedBloom, SharedBloom, CountingBloom, ScalableBloom => {
        type Error = Infallible;
        type Outcome<T> = T;

        fn outcome<T>(result: Result<T, Infallible>) -> T {
            let Ok(outcome) = result;
            outcome
        }
        fn insert(&mut self, hash: u64) -> Result<bool, Infallible> {
            Ok(Self::insert(self, hash))
        }
        fn contains(&self, hash: u64) -> bool {
            Self::contains(self, hash)
        }
        fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Infallible> {
            Self::insert_batch(self, hashes);
            Ok(())
        }
        fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
            Self::contains_batch(self, hashes, found);
        }
        fn fill(&self) -> f64 {
            Self::fill(self)
        }
        fn false_positive_rate(&self) -> f64 {
            Self::false_positive_rate(self)
        }
        fn is_saturated(&self) -> bool {
            Self::is_saturated(self)
        }
    }
}

forward! {
    Filter for Cuckoo, Quotient => {
        type Error = Full;
        type Outcome<T> = Result<T, Full>;

        fn outcome<T>(result: Result<T, Full>) -> Result<T, Full> {
            result
        }
        fn insert(&mut self, hash: u64) -> Result<bool, Full> {
            Self::insert(self, hash)
        }
        fn contains(&self, hash: u64) -> bool {
            Self::contains(self, hash)
        }
        fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
            Self::insert_batch(self, hashes)
        }
        fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
            Self::contains_batch(self, hashes, found);
        }
        fn fill(&self) -> f64 {
            Self::fill(self)
        }
        fn false_positive_rate(&self) -> f64 {
            Self::false_positive_rate(self)
        }
        fn is_saturated(&self) -> bool {
            Self::is_saturated(self)
        }
    }
}

forward! {
    Remove for CountingBloom, Cuckoo, Quotient => {
        fn remove(&mut self, hash: u64) -> bool {
            Self::remove(self, hash)
        }
        fn remove_batch(&mut self, hashes: &[u64]) -> u64 {
            Self::remove_batch(self, hashes)
        }
    }
}

forward! {
    Frequency for CountMin<W, U> where [W: Weight, U: Update], BlockedCountMin<W, U> where [W: Weight, U: Update],
        HeavyLight<W> where [W: Weight]
    => {
        type Weight = W;

        fn add(&mut self, hash: u64, weight: W) -> W {
            Self::add(self, hash, weight)
        }
        fn estimate(&self, hash: u64) -> W {
            Self::estimate(self, hash)
        }
        fn add_batch(&mut self, hashes: &[u64], weights: &[W]) {
            Self::add_batch(self, hashes, weights);
        }
        fn estimate_batch(&self, hashes: &[u64], estimates: &mut [W]) {
            Self::estimate_batch(self, hashes, estimates);
        }
    }
}

forward! {
    Distinct for HyperLogLog, CompactHyperLogLog, UltraLogLog => {
        fn insert(&mut self, hash: u64) {
            Self::insert(self, hash);
        }
        fn insert_batch(&mut self, hashes: &[u64]) {
            Self::insert_batch(self, hashes);
        }
        fn bounds(&self) -> Estimate {
            Self::bounds(self)
        }
    }
}
