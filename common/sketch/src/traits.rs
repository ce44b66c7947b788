//! The common traits of structures, for generic code and for [`Keyed`](super::Keyed).
//!
//! Each structure also has these methods itself, so the traits are not needed to use a single structure.

use core::fmt;

use super::{Estimate, Geometry, MergeError, Weight};

/// The methods that every sketch has.
pub trait Sketch {
    /// Returns the size and shape. Sketches with equal geometries can be merged.
    fn geometry(&self) -> Geometry;
    /// The fingerprint of the key of its hashes.
    fn key_id(&self) -> u64;
    /// The fingerprints of all keys that it needs: two, if it has two parts that may have different ones.
    fn key_ids(&self) -> [u64; 2] {
        [self.key_id(); 2]
    }
    /// The memory that it takes in bytes, including the structure itself.
    fn memory_bytes(&self) -> usize;
    /// Empties it, and writes all of its memory, so that its pages become resident.
    fn clear(&mut self);
}

/// A sketch that can be merged with others of the same geometry and key.
pub trait Merge: Sketch {
    /// Merges another sketch into this one. The documentation of each structure describes the result.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case neither sketch is changed.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError>;
}

/// Answers "was this key here before?" It errs only towards yes.
pub trait Filter: Sketch {
    /// The error if there is no room for a key: [`Full`], or [`Infallible`](core::convert::Infallible) if there always
    /// is.
    type Error: core::error::Error;

    /// The return type of an insertion that gives a `T`: a result, or just the `T` if there is always room.
    type Outcome<T>;

    /// The outcome of an insertion.
    fn outcome<T>(result: Result<T, Self::Error>) -> Self::Outcome<T>;

    /// Inserts the key with this hash. Returns whether it was absent.
    ///
    /// # Errors
    ///
    /// The filter has no room for this key, and is unchanged. All keys that were inserted before are still found.
    fn insert(&mut self, hash: u64) -> Result<bool, Self::Error>;

    /// Returns true if the key with this hash was inserted. This is true by mistake with the probability
    /// [`Filter::false_positive_rate`].
    fn contains(&self, hash: u64) -> bool;

    /// Inserts many keys, in order.
    ///
    /// # Errors
    ///
    /// See [`Filter::insert`]. The keys before the failed one are inserted.
    fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Self::Error> {
        hashes.iter().try_for_each(|&hash| self.insert(hash).map(drop))
    }

    /// Looks up many keys: `found[i]` becomes what [`Filter::contains`] returns for `hashes[i]`. Stops at the end of
    /// the shorter slice.
    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        hashes.iter().zip(found).for_each(|(&hash, found)| *found = self.contains(hash));
    }

    /// The share of its room that is used, from 0 to 1.
    fn fill(&self) -> f64;

    /// The probability that an absent key is found, computed from the present content.
    fn false_positive_rate(&self) -> f64;

    /// Returns true if it contains more than it was built for: its rate is higher than planned, by more than chance
    /// explains, or it is full.
    fn is_saturated(&self) -> bool;
}

/// A filter from which keys can be removed.
pub trait Remove: Filter {
    /// Removes one insertion of the key with this hash. Returns whether there was one.
    ///
    /// Only remove keys that were inserted. Removing an absent key that is found by mistake removes another key.
    fn remove(&mut self, hash: u64) -> bool;

    /// Removes one insertion of each of many keys, in order. Returns how many insertions there were.
    fn remove_batch(&mut self, hashes: &[u64]) -> u64 {
        hashes.iter().filter(|hash| self.remove(**hash)).count() as u64
    }
}

/// Answers "how much did this key have?" The answer is never below the truth.
pub trait Frequency: Sketch {
    /// The type of the weights that it counts.
    type Weight: Weight;

    /// Adds `weight` to the key with this hash. Returns the key's new estimate.
    fn add(&mut self, hash: u64, weight: Self::Weight) -> Self::Weight;

    /// The estimate of the key with this hash, which is never below the truth.
    fn estimate(&self, hash: u64) -> Self::Weight;

    /// Adds `weights[i]` to the key with the hash `hashes[i]`, in order. Stops at the end of the shorter slice.
    fn add_batch(&mut self, hashes: &[u64], weights: &[Self::Weight]) {
        hashes.iter().zip(weights).for_each(|(&hash, &weight)| {
            self.add(hash, weight);
        });
    }

    /// Sets `estimates[i]` to what [`Frequency::estimate`] returns for `hashes[i]`. Stops at the end of the shorter
    /// slice.
    fn estimate_batch(&self, hashes: &[u64], estimates: &mut [Self::Weight]) {
        hashes.iter().zip(estimates).for_each(|(&hash, estimate)| *estimate = self.estimate(hash));
    }
}

/// Answers "how many distinct keys were there?"
pub trait Distinct: Sketch {
    /// Counts the key with this hash. It counts only once, however often it is inserted.
    fn insert(&mut self, hash: u64);

    /// Counts many keys. Large sketches override this to prefetch.
    fn insert_batch(&mut self, hashes: &[u64]) {
        hashes.iter().for_each(|&hash| self.insert(hash));
    }

    /// The number of distinct keys, with bounds.
    fn bounds(&self) -> Estimate;
}

/// A filter has no room for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The number of keys in the filter.
    pub items: u64,
    /// The number of keys that it was built for.
    pub capacity: u64,
    /// How often it contains this key, or others that it cannot distinguish from it.
    pub copies: u64,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { items, capacity, copies } = self;
        if items >= capacity {
            write!(f, "the filter is full with {items} keys (built for {capacity}): build it for more, or remove some")
        } else if *copies > 1 {
            write!(
                f,
                "the filter holds this key {copies} times already and has no room for it once more, though only {items} \
                 keys are in (built for {capacity}): insert a key only if it is absent"
            )
        } else {
            write!(
                f,
                "the filter has no room left where this key belongs, though only {items} keys are in (built for \
                 {capacity}): build it for more, or remove some"
            )
        }
    }
}

impl core::error::Error for Full {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bloom, SharedBloom, image::Image, oracle::hash};
    use std::vec::Vec;

    /// Checks that a batch leaves the same filter as one key after the other, and returns the same.
    fn batches_equal_single_insertions<F: Filter + Image>(new: impl Fn() -> F) {
        const KEYS: usize = crate::test_size::of(2_000, 60);
        let keys: Vec<u64> = (0..KEYS as u64).map(|item| hash(1, item)).collect();
        let (mut single, mut batched) = (new(), new());
        keys[..KEYS / 2].iter().for_each(|key| assert!(single.insert(*key).is_ok()));
        assert!(batched.insert_batch(&keys[..KEYS / 2]).is_ok());
        assert!(single.to_image() == batched.to_image(), "the same bits are set");
        let mut found = [false; KEYS];
        batched.contains_batch(&keys, &mut found);
        assert!(keys.iter().zip(found).all(|(key, found)| single.contains(*key) == found));
        assert!(found[..KEYS / 2].iter().all(|found| *found) && found.iter().any(|found| !found));
        // At most as many elements as there is room for are written, and none for no keys.
        let mut few = [false; 3];
        batched.contains_batch(&keys, &mut few);
        assert_eq!(few, [true; 3]);
        assert!(batched.insert_batch(&[]).is_ok());
    }

    #[test]
    fn batches_of_filters_equal_single_insertions() {
        // This includes so many keys that words are prefetched.
        for capacity in [crate::test_size::of(1_000, 100), crate::test_size::of(2_000_000, 5_000)] {
            batches_equal_single_insertions(|| Bloom::with_capacity(capacity, 0.01, 7).unwrap());
            batches_equal_single_insertions(|| SharedBloom::with_capacity(capacity, 0.01, 7).unwrap());
        }
    }
}
