//! A sketch together with its hash key: it takes items instead of hashes.

use core::hash::Hash;

use super::{Bounds, Distinct, Filter, Frequency, Full, Merge, MergeError, Remove, Sketch, TopK, Weight};
use crate::hash::{Key, KeyedHash};

/// Items of a batch that are hashed before the sketch gets them. They make 2 KiB of hashes: enough for a large sketch
/// to prefetch most of its lines.
const BATCH: usize = 256;

/// A sketch that takes items of any type, and hashes them with a secret key.
///
/// ```
/// use weir_sketch::{HyperLogLog, Keyed, hash::Key};
///
/// let mut visitors = Keyed::new(Key([1, 2]), |key_id| HyperLogLog::with_error(0.01, key_id));
/// visitors.count_in("192.0.2.1");
/// visitors.count_in("192.0.2.2");
/// visitors.count_in("192.0.2.1");
/// assert_eq!(visitors.bounds().value, 2);
/// ```
#[derive(Clone, Debug)]
pub struct Keyed<S> {
    sketch: S,
    hash: KeyedHash,
}

impl<S: Sketch> Keyed<S> {
    /// The sketch that `build` makes for the fingerprint of this key, and the hash of this key.
    pub fn new(key: Key, build: impl FnOnce(u64) -> S) -> Self {
        Self { sketch: build(key.id()), hash: KeyedHash::new(key) }
    }

    /// The hash of an item, for methods of the sketch that take hashes.
    #[inline]
    pub fn hash<T: Hash + ?Sized>(&self, item: &T) -> u64 {
        self.hash.of(item)
    }

    /// The sketch, for methods that take ready hashes.
    pub const fn sketch_mut(&mut self) -> &mut S {
        &mut self.sketch
    }
}

impl<S> core::ops::Deref for Keyed<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.sketch
    }
}

impl<S: Merge> Keyed<S> {
    /// Merges another sketch into this one.
    ///
    /// # Errors
    ///
    /// The other has another geometry or key.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.sketch.merge(&other.sketch)
    }
}

impl<S: Filter> Keyed<S> {
    /// Inserts an item; returns whether it was absent.
    ///
    /// # Errors
    ///
    /// The filter is full.
    pub fn insert<T: Hash + ?Sized>(&mut self, item: &T) -> Result<bool, Full> {
        self.sketch.insert(self.hash.of(item))
    }

    /// Inserts many items, in order.
    ///
    /// # Errors
    ///
    /// The filter is full. The items before the one that found no room are in.
    pub fn insert_batch<T: Hash>(&mut self, items: &[T]) -> Result<(), Full> {
        let Self { sketch, hash } = self;
        items.chunks(BATCH).try_for_each(|items| sketch.insert_batch(hash_all(hash, items, &mut [0; BATCH])))
    }

    /// Whether an item was inserted; true by mistake with the filter's rate of false positives.
    pub fn contains<T: Hash + ?Sized>(&self, item: &T) -> bool {
        self.sketch.contains(self.hash.of(item))
    }

    /// Looks up many items: `found[i]` is for `items[i]`; stops at the end of the shorter slice.
    pub fn contains_batch<T: Hash>(&self, items: &[T], found: &mut [bool]) {
        for (items, found) in items.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            self.sketch.contains_batch(hash_all(&self.hash, items, &mut [0; BATCH]), found);
        }
    }
}

impl<S: Remove> Keyed<S> {
    /// Removes one insertion of an item; returns whether there was one.
    pub fn remove<T: Hash + ?Sized>(&mut self, item: &T) -> bool {
        self.sketch.remove(self.hash.of(item))
    }

    /// Removes one insertion of each of many items; returns how many insertions there were.
    pub fn remove_batch<T: Hash>(&mut self, items: &[T]) -> u64 {
        let Self { sketch, hash } = self;
        items.chunks(BATCH).map(|items| sketch.remove_batch(hash_all(hash, items, &mut [0; BATCH]))).sum()
    }
}

impl<S: Frequency> Keyed<S> {
    /// Adds `weight` to an item; returns the item's estimate, which includes it and is never below the truth.
    pub fn add<T: Hash + ?Sized>(&mut self, item: &T, weight: S::Weight) -> S::Weight {
        self.sketch.add(self.hash.of(item), weight)
    }

    /// The estimate of an item, never below the truth.
    pub fn estimate<T: Hash + ?Sized>(&self, item: &T) -> S::Weight {
        self.sketch.estimate(self.hash.of(item))
    }

    /// Adds `weights[i]` to `items[i]`; stops at the end of the shorter slice.
    pub fn add_batch<T: Hash>(&mut self, items: &[T], weights: &[S::Weight]) {
        for (items, weights) in items.chunks(BATCH).zip(weights.chunks(BATCH)) {
            self.sketch.add_batch(hash_all(&self.hash, items, &mut [0; BATCH]), weights);
        }
    }

    /// Sets `estimates[i]` to the estimate of `items[i]`; stops at the end of the shorter slice.
    pub fn estimate_batch<T: Hash>(&self, items: &[T], estimates: &mut [S::Weight]) {
        for (items, estimates) in items.chunks(BATCH).zip(estimates.chunks_mut(BATCH)) {
            self.sketch.estimate_batch(hash_all(&self.hash, items, &mut [0; BATCH]), estimates);
        }
    }
}

impl<K: Copy + Eq + Default + Hash, W: Weight> Keyed<TopK<K, W>> {
    /// Adds `weight` to a key. (This also keeps the key, if it is among the largest.)
    pub fn add_key(&mut self, key: K, weight: W) {
        self.sketch.add(self.hash.of(&key), key, weight);
    }

    /// Bounds of a key's weight, whether the key is held or not.
    pub fn bounds_of(&self, key: &K) -> Bounds<W> {
        self.sketch.bounds(self.hash.of(key), key)
    }
}

impl<S: Distinct> Keyed<S> {
    /// Counts an item. It counts once, however often it comes.
    pub fn count_in<T: Hash + ?Sized>(&mut self, item: &T) {
        self.sketch.insert(self.hash.of(item));
    }

    /// Counts many items.
    pub fn count_in_batch<T: Hash>(&mut self, items: &[T]) {
        for items in items.chunks(BATCH) {
            self.sketch.insert_batch(hash_all(&self.hash, items, &mut [0; BATCH]));
        }
    }
}

/// The hashes of at most [`BATCH`] items.
fn hash_all<'a, T: Hash>(hash: &KeyedHash, items: &[T], hashes: &'a mut [u64; BATCH]) -> &'a [u64] {
    let hashes = &mut hashes[..items.len()];
    hash.of_all(items, hashes);
    hashes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockedBloom, CountAndSum, CountMin, Cuckoo, HeavyLight, HyperLogLog};
    use std::{format, string::String, vec::Vec};

    const KEY: Key = Key([4, 2]);

    const NAMES: usize = crate::test_size::of(1_000, 50);

    fn names() -> Vec<String> {
        (0..NAMES).map(|number| format!("host-{number}")).collect()
    }

    #[test]
    fn batches_of_items_are_their_items() {
        let mut one_by_one = Keyed::new(KEY, |key_id| BlockedBloom::with_capacity(1_000, 0.001, key_id));
        let mut batched = one_by_one.clone();
        for name in names() {
            one_by_one.insert(&name).unwrap();
        }
        batched.insert_batch(&names()).unwrap();
        assert_eq!(*one_by_one, *batched);
        let mut found = [false; NAMES];
        batched.contains_batch(&names(), &mut found);
        assert!(found.iter().all(|found| *found) && batched.contains("host-7") && !batched.contains("guest-7"));

        let mut one_by_one = Keyed::new(KEY, |key_id| HyperLogLog::with_error(0.01, key_id));
        let mut batched = one_by_one.clone();
        names().iter().for_each(|name| one_by_one.count_in(name));
        batched.count_in_batch(&names());
        assert_eq!(*one_by_one, *batched);

        let mut one_by_one = Keyed::new(KEY, |key_id| CountMin::<u64>::with_error(0.01, 0.01, key_id));
        let mut batched = one_by_one.clone();
        let weights: Vec<u64> = (1..=NAMES as u64).collect();
        names().iter().zip(&weights).for_each(|(name, weight)| _ = one_by_one.add(name, *weight));
        batched.add_batch(&names(), &weights);
        assert_eq!(*one_by_one, *batched);
        let mut estimates = [0; NAMES];
        batched.estimate_batch(&names(), &mut estimates);
        assert!(names().iter().zip(estimates).all(|(name, estimate)| one_by_one.estimate(name) == estimate));
        assert!(estimates.iter().zip(&weights).all(|(estimate, weight)| estimate >= weight));
    }

    #[test]
    fn every_question_takes_items() {
        let mut filter = Keyed::new(KEY, |key_id| Cuckoo::with_capacity(100, key_id));
        filter.insert("a").unwrap();
        assert!(filter.remove("a") && !filter.contains("a"));
        filter.insert_batch(&["b", "c"]).unwrap();
        assert_eq!((filter.remove_batch(&["a", "b", "c", "c"]), filter.fill()), (2, 0.0));
        let mut counts = Keyed::new(KEY, |key_id| CountMin::<u64>::with_error(0.01, 0.01, key_id));
        counts.add("a", 3);
        assert_eq!((counts.add("a", 4), counts.estimate("a"), counts.estimate("b")), (7, 7, 0));
        let mut largest = Keyed::new(KEY, |key_id| HeavyLight::<u64>::with_error(0.01, key_id));
        largest.add("a", 3);
        assert_eq!(largest.estimate("a"), 3);
        let mut top = Keyed::new(KEY, |key_id| TopK::with_capacity(64, key_id));
        top.add_key(7u32, CountAndSum::new(1, 60));
        assert_eq!(top.bounds_of(&7), Bounds { lower: CountAndSum::new(1, 60), upper: CountAndSum::new(1, 60) });
    }
}
