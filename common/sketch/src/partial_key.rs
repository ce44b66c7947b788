//! Partial-key hashing: a key has two places. Either place can be computed from the other one and the key's
//! fingerprint, without the key.
//!
//! So a fingerprint can move to its other place without its key. Any number of places is possible: the two places of a
//! key add up to a number that the fingerprint determines, modulo the number of places. (The paper uses an exclusive
//! or, and a power of two.)
//!
//! **Paper**: Fan, Andersen, Kaminsky and Mitzenmacher, "Cuckoo filter: practically better than Bloom", 2014.

use crate::simd;

/// The fingerprint that a filter stores for a key, and its two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub fingerprint: u16,
    /// The two places. They are rarely equal.
    pub choices: [u32; 2],
}

impl Place {
    /// The place of a hash among `count` places, at least one. Its fingerprint is uniform in
    /// `FINGERPRINT_MIN..=u16::MAX`.
    #[inline(always)]
    pub fn of(hash: u64, count: u32) -> Self {
        let fingerprint = FINGERPRINT_MIN + scale(hash as u32, u32::from(u16::MAX - FINGERPRINT_MIN) + 1) as u16;
        let first = scale((hash >> 32) as u32, count);
        Self { fingerprint, choices: [first, other(first, fingerprint, count)] }
    }
}

/// The places of some keys, with an array for each part of them, so that they are computed in lanes.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub fingerprints: [u16; BATCH],
    pub choices: [[u32; BATCH]; 2],
}

/// The smallest fingerprint, because 0 is an empty slot.
pub(super) const FINGERPRINT_MIN: u16 = 1;
/// How many keys are processed together. This many lines can be prefetched from memory at once.
pub(super) const BATCH: usize = 32;

impl Places {
    /// Computes the places of at most [`BATCH`] hashes.
    #[inline(always)]
    fn set(&mut self, hashes: &[u64], count: u32) {
        let [one, two] = &mut self.choices;
        let places = self.fingerprints.iter_mut().zip(one).zip(two);
        for (((fingerprint, one), two), &hash) in places.zip(hashes) {
            let place = Place::of(hash, count);
            (*fingerprint, [*one, *two]) = (place.fingerprint, place.choices);
        }
    }

    #[inline(always)]
    pub fn get(&self, nth: usize) -> Place {
        let [one, two] = &self.choices;
        Place { fingerprint: self.fingerprints[nth], choices: [one[nth], two[nth]] }
    }

    /// Prefetches the lines in which their buckets begin.
    #[inline(always)]
    fn prefetch<T>(&self, buckets: &[T]) {
        for choices in &self.choices {
            choices.iter().for_each(|&choice| simd::prefetch(&buckets[choice as usize]));
        }
    }
}

/// The places of many keys, [`BATCH`] at a time. While some are processed, the lines of the next ones are prefetched.
pub(super) struct Ahead<'a> {
    hashes: core::slice::Chunks<'a, u64>,
    next: Places,
    /// Returns true if lines are probably not in a cache.
    is_far: bool,
}

impl<'a> Ahead<'a> {
    #[inline(always)]
    pub fn new<T>(hashes: &'a [u64], buckets: &[T], is_far: bool) -> Self {
        let next = Places { fingerprints: [0; BATCH], choices: [[0; BATCH]; 2] };
        let mut ahead = Self { hashes: hashes.chunks(BATCH), next, is_far };
        ahead.ask(buckets);
        ahead
    }

    /// The places of the next of `hashes.chunks(BATCH)`.
    #[inline(always)]
    pub fn next<T>(&mut self, buckets: &[T]) -> Places {
        let places = self.next;
        self.ask(buckets);
        places
    }

    #[inline(always)]
    fn ask<T>(&mut self, buckets: &[T]) {
        if let Some(hashes) = self.hashes.next() {
            self.next.set(hashes, buckets.len() as u32);
            if self.is_far {
                self.next.prefetch(buckets);
            }
        }
    }
}

/// The other place of a fingerprint.
#[inline(always)]
pub(super) fn other(place: u32, fingerprint: u16, count: u32) -> u32 {
    // Multiples of the golden ratio spread any range of fingerprints evenly.
    let sum = scale(u32::from(fingerprint).wrapping_mul(0x9e37_79b1), count);
    let difference = sum.wrapping_sub(place);
    if sum < place { difference.wrapping_add(count) } else { difference }
}

/// A number in `0..count` from a uniform word, by a product instead of a division.
#[inline(always)]
fn scale(word: u32, count: u32) -> u32 {
    ((u64::from(word) * u64::from(count)) >> 32) as u32
}

/// One hash for each pair of a first place and a fingerprint. Every hash is equivalent to one of these.
#[cfg(test)]
pub(super) fn all_hashes(count: u32) -> impl Iterator<Item = u64> {
    let word = |nth: u32, of: u32| (u64::from(nth) << 32).div_ceil(u64::from(of));
    let fingerprints = u32::from(u16::MAX - FINGERPRINT_MIN) + 1;
    (0..count)
        .flat_map(move |place| (0..fingerprints).map(move |nth| word(place, count) << 32 | word(nth, fingerprints)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::hash;
    use std::collections::HashSet;

    #[test]
    #[cfg_attr(miri, ignore = "trying every hash takes too long")]
    fn all_hashes_are_all_places() {
        let places: HashSet<_> = all_hashes(3).map(|hash| Place::of(hash, 3)).collect();
        assert_eq!(places.len(), 3 * 65_535);
    }

    #[test]
    fn each_place_leads_to_the_other() {
        for count in [1, 2, 3, 7, 64, 1_000, 65_537, u32::MAX] {
            for item in 0..crate::test_size::of(1_000, 50) {
                let Place { fingerprint, choices: [one, two] } = Place::of(hash(1, item), count);
                assert!(one < count && two < count && fingerprint >= 1);
                assert_eq!((other(one, fingerprint, count), other(two, fingerprint, count)), (two, one));
            }
        }
    }

    #[test]
    fn extreme_hashes_stay_in_range() {
        for hash in [0, u64::MAX, 0xffff_ffff, !0xffff_ffff] {
            let place = Place::of(hash, 1_000);
            assert!(place.fingerprint >= 1 && place.choices.iter().all(|choice| *choice < 1_000), "{place:?}");
        }
    }
}
