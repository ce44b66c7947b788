//! What sketches have in common: the traits by which generic code, laws, benchmarks and [`Keyed`](super::Keyed) see
//! them.
//!
//! Each structure has these as inherent methods too, so nobody needs the traits to use one.

use core::fmt;

use super::{Estimate, Geometry, MergeError, Weight};

/// Any sketch.
pub trait Sketch {
    /// Its size and shape.
    fn geometry(&self) -> Geometry;
    /// The fingerprint of the key that its hashes are made with.
    fn key_id(&self) -> u64;
    /// Everything it occupies, in bytes.
    fn memory_bytes(&self) -> usize;
    /// Forgets everything; writes all of it, so that its pages are resident.
    fn clear(&mut self);
}

/// A sketch that takes in others of its geometry and key.
pub trait Merge: Sketch {
    /// Takes in another sketch. What may be said of the result is with each structure.
    ///
    /// # Errors
    ///
    /// The other has another geometry or key; neither is changed.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError>;
}

/// "Seen before?": wrong only towards yes.
pub trait Filter: Sketch {
    /// Inserts the key with this hash; tells whether it was absent.
    ///
    /// # Errors
    ///
    /// The filter cannot take another key, and did not; everything inserted before is still found.
    fn insert(&mut self, hash: u64) -> Result<bool, Full>;

    /// Whether the key with this hash was inserted; wrongly true at [`Filter::false_positive_rate`].
    fn contains(&self, hash: u64) -> bool;

    /// Inserts many keys, as [`Filter::insert`] does one after the other.
    ///
    /// # Errors
    ///
    /// As for one; those before it are in.
    fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
        hashes.iter().try_for_each(|&hash| self.insert(hash).map(drop))
    }

    /// Looks up many keys: `found[i]` is what [`Filter::contains`] says of `hashes[i]`. Looks at as many as the shorter
    /// of the two has.
    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        hashes.iter().zip(found).for_each(|(&hash, found)| *found = self.contains(hash));
    }

    /// The share of its room that is taken, 0 to 1.
    fn fill(&self) -> f64;

    /// The probability that a foreign key is found, from what is in it now, not from the plan.
    fn false_positive_rate(&self) -> f64;

    /// Whether it holds more than it was built for: its rate is above the planned one by more than chance, or it is
    /// full.
    fn is_saturated(&self) -> bool;
}

/// A filter that can forget one key.
pub trait Remove: Filter {
    /// Removes one insertion of the key with this hash; tells whether there was one.
    ///
    /// Remove only what was inserted: a foreign key that is found by mistake takes another key's place with it.
    fn remove(&mut self, hash: u64) -> bool;

    /// Removes one insertion of each of many keys, as [`Remove::remove`] does one after the other; tells of how many
    /// there was one.
    fn remove_batch(&mut self, hashes: &[u64]) -> u64 {
        hashes.iter().filter(|hash| self.remove(**hash)).count() as u64
    }
}

/// "How much of it?": never below the truth.
pub trait Frequency: Sketch {
    /// What is counted.
    type Weight: Weight;

    /// Adds `weight` to the key with this hash; gives the key's estimate including it.
    fn add(&mut self, hash: u64, weight: Self::Weight) -> Self::Weight;

    /// What the key with this hash had, at most.
    fn estimate(&self, hash: u64) -> Self::Weight;

    /// Adds `weights[i]` to the key with `hashes[i]`, as [`Frequency::add`] does one after the other; as many as the
    /// shorter of the two has.
    fn add_batch(&mut self, hashes: &[u64], weights: &[Self::Weight]) {
        hashes.iter().zip(weights).for_each(|(&hash, &weight)| {
            self.add(hash, weight);
        });
    }

    /// Puts what [`Frequency::estimate`] says of `hashes[i]` into `estimates[i]`; as many as the shorter of the two has.
    fn estimate_batch(&self, hashes: &[u64], estimates: &mut [Self::Weight]) {
        hashes.iter().zip(estimates).for_each(|(&hash, estimate)| *estimate = self.estimate(hash));
    }
}

/// "How many distinct?"
pub trait Distinct: Sketch {
    /// Counts the key with this hash, once however often it comes.
    fn insert(&mut self, hash: u64);

    /// Counts many keys.
    fn insert_batch(&mut self, hashes: &[u64]) {
        hashes.iter().for_each(|&hash| self.insert(hash));
    }

    /// How many there were, with bounds.
    fn bounds(&self) -> Estimate;
}

/// A filter that has no room for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// How many keys it holds.
    pub items: u64,
    /// How many it was built for.
    pub capacity: u64,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { items, capacity } = self;
        write!(f, "the filter is full with {items} keys (built for {capacity}): build it for more, or remove some")
    }
}

impl core::error::Error for Full {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bloom, SharedBloom, image::Image, oracle::hash};
    use std::vec::Vec;

    /// A batch leaves the filter, and says, what one key after the other does.
    fn batches_do_as_one_by_one<F: Filter + Image>(new: impl Fn() -> F) {
        const KEYS: usize = crate::test_size::of(2_000, 60);
        let keys: Vec<u64> = (0..KEYS as u64).map(|item| hash(1, item)).collect();
        let (mut single, mut batched) = (new(), new());
        keys[..KEYS / 2].iter().for_each(|key| assert!(single.insert(*key).is_ok()));
        assert_eq!(batched.insert_batch(&keys[..KEYS / 2]), Ok(()));
        assert!(single.to_image() == batched.to_image(), "the same bits are set");
        let mut found = [false; KEYS];
        batched.contains_batch(&keys, &mut found);
        assert!(keys.iter().zip(found).all(|(key, found)| single.contains(*key) == found));
        assert!(found[..KEYS / 2].iter().all(|found| *found) && found.iter().any(|found| !found));
        // No more than there is room for, and none of none.
        let mut few = [false; 3];
        batched.contains_batch(&keys, &mut few);
        assert_eq!(few, [true; 3]);
        assert_eq!(batched.insert_batch(&[]), Ok(()));
    }

    #[test]
    fn batches_of_filters_do_as_one_by_one() {
        // Also of so many keys that words are asked for ahead.
        for capacity in [crate::test_size::of(1_000, 100), crate::test_size::of(2_000_000, 5_000)] {
            batches_do_as_one_by_one(|| Bloom::with_capacity(capacity, 0.01, 7));
            batches_do_as_one_by_one(|| SharedBloom::with_capacity(capacity, 0.01, 7));
        }
    }
}
