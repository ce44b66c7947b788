//! Bloom filter: was this key here before?
//!
//! **Errors**: only towards "yes". A key that was inserted is always found. An absent key is found at a rate that is
//! planned at construction, and can be computed exactly from the bits that are set.
//!
//! **Cost** for 1,000,000 keys at a rate of 0.01: 1.1 MiB (9.6 bits per key), the least memory of all filters here. But
//! the bits of a key are in 7 cache lines. This filter is the reference for the others:
//! [`BlockedBloom`](super::BlockedBloom) needs 5 % more memory and is several times as fast.
//!
//! **A slice for each hash**: the bits are cut into as many slices as a key has bits, and a key sets one bit in each.
//! As the slices are independent, the rate is exactly the product of their fills, however small the filter is, and its
//! expectation is known: (1 - (1 - 1/s)^n)^k for n keys and k slices of s bits. If all bits of a key were drawn from
//! the whole filter, the rate would be the mean of a power. In small filters that is much more than the power of the
//! mean: twice as much for 2 keys at a rate of a millionth.
//!
//! **A product for each slice**: each position comes from a multiplication of its own. If all followed from two hashes
//! (Kirsch and Mitzenmacher, 2006), they would depend on each other, and in small filters two keys would often share
//! all of them: a filter for 3 keys at a rate of 0.0001 had 17 times that rate.
//!
//! **Papers**: Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970. Slices: Mullin, "A second
//! look at Bloom filters", 1983.
//!
//! **Why not a crate**: crates report the planned rate instead of the actual one, and set fewer bits than stated for
//! some keys.

use alloc::{boxed::Box, vec};

use super::{
    Estimate, Geometry, MergeError,
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
    merge::check_mergeable,
    occupancy::Occupancy,
    setting::{SettingError, check_room, check_share},
};
use crate::{hash::scale, simd::prefetch};

/// The most bits: 4 GiB.
pub const BITS_MAX: u64 = 1 << 35;
/// The lowest rate of false positives that can be planned.
pub const RATE_MIN: f64 = 1e-9;
/// The highest rate. Such a filter is wrong half of the time.
pub const RATE_MAX: f64 = 0.5;
/// The fewest bits of a slice: any key would set a single one.
const SLOTS_MIN: u64 = 2;
/// The part of a core's second-level cache that is left beside other data, in bytes.
const NEAR_BYTES: usize = 1 << 20;
/// How many keys ahead words are prefetched. With seven bits per key, that is more cache lines than a core can wait for
/// at once.
const AHEAD: usize = 4;

/// A classic Bloom filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bloom {
    words: Box<[u64]>,
    /// The number of slices, and of bits per key.
    hashes: u32,
    /// The number of bits per slice.
    slots: u64,
    /// The number of keys that it was built for.
    capacity: u64,
    key_id: u64,
}

impl Bloom {
    /// A filter that finds an absent key with a probability of at most `false_positive_rate` (p) when it contains
    /// `items` keys (n). That is the mean over all sets of keys that it may contain. It has k = -log2 p bits per key
    /// and m = -n ln p / (ln 2)^2 bits in all, and a little more because both are whole numbers.
    ///
    /// The rate is from [`RATE_MIN`] to [`RATE_MAX`]. There is room for at most [`BITS_MAX`] bits.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_capacity(items: u64, false_positive_rate: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(items, false_positive_rate)?;
        let capacity = items.max(1);
        let (hashes, clear) = hashes_for(false_positive_rate);
        let most = BITS_MAX as f64 / f64::from(hashes);
        let slots = libm::ceil(-1.0 / libm::expm1(clear / capacity as f64)).clamp(SLOTS_MIN as f64, most);
        let words = words_for(hashes, slots as u64);
        // The slices also use the bits that are left in the last word.
        let slots = words as u64 * u64::from(u64::BITS) / u64::from(hashes);
        Ok(Self { words: vec![0; words].into_boxed_slice(), hashes, slots, capacity, key_id })
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// The rate is not within [`RATE_MIN`] and [`RATE_MAX`], or so many keys would need more than 4 GiB.
    pub fn check(items: u64, false_positive_rate: f64) -> Result<(), SettingError> {
        check_share("false_positive_rate", false_positive_rate, RATE_MIN..=RATE_MAX)?;
        let (hashes, clear) = hashes_for(false_positive_rate);
        let most = clear / libm::log1p(-f64::from(hashes) / BITS_MAX as f64);
        check_room("items", items, most as u64)
    }

    /// Inserts the key with this hash. Returns whether it was absent.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> bool {
        let mut is_new = false;
        for (word, bit) in self.positions(hash) {
            is_new |= self.words[word] & bit == 0;
            self.words[word] |= bit;
        }
        is_new
    }

    /// Returns true if the key with this hash was inserted. This is true by mistake with the probability
    /// [`Bloom::false_positive_rate`].
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        self.positions(hash).all(|(word, bit)| self.words[word] & bit != 0)
    }

    /// Inserts many keys, faster than one by one.
    pub fn insert_batch(&mut self, hashes: &[u64]) {
        let is_far = self.is_far();
        for (nth, &hash) in hashes.iter().enumerate() {
            if is_far {
                self.ask_for(hashes.get(nth + AHEAD));
            }
            self.positions(hash).for_each(|(word, bit)| self.words[word] |= bit);
        }
    }

    /// Looks up many keys: `found[i]` becomes what [`Bloom::contains`] returns for `hashes[i]`. Stops at the end of the
    /// shorter slice.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let is_far = self.is_far();
        for (nth, (&hash, found)) in hashes.iter().zip(found).enumerate() {
            if is_far {
                self.ask_for(hashes.get(nth + AHEAD));
            }
            // All bits are read, without a branch, because the bit that an absent key misses cannot be predicted.
            *found = self.positions(hash).fold(true, |all, (word, bit)| all & (self.words[word] & bit != 0));
        }
    }

    /// Merges another filter into this one. Afterwards it is as if the keys of both had been inserted here.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
        Ok(())
    }

    /// Empties it, and writes every word, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// The share of bits that are set. This reads the whole filter.
    pub fn fill(&self) -> f64 {
        self.bits_set() as f64 / self.bits() as f64
    }

    /// The exact probability that an absent key is found, computed from the bits that are set: the product of the fills
    /// of all slices. This reads the whole filter.
    pub fn false_positive_rate(&self) -> f64 {
        (0..self.hashes).map(|slice| self.bits_set_in(slice) as f64 / self.slots as f64).product()
    }

    /// Returns true if it contains more keys than planned, by more than chance explains: by four standard deviations of
    /// as many independent bits. This reads the whole filter.
    pub fn is_saturated(&self) -> bool {
        let planned = -libm::expm1(-self.per_key() * self.capacity as f64);
        self.fill() > planned + 4.0 * libm::sqrt(planned * (1.0 - planned) / self.bits() as f64)
    }

    /// The estimated number of distinct keys, with bounds that hold with a probability of 99.9 %. A full filter has no
    /// upper bound. This reads the whole filter.
    pub fn estimated_items(&self) -> Estimate {
        // Together the slices are one array from which each key draws once for each slice.
        let (slots, draws) = (self.bits() as f64, f64::from(self.hashes));
        Occupancy { slots, draws, per_key: self.per_key() }.items((self.bits() - self.bits_set()) as f64).estimate()
    }

    /// The number of keys that it was built for.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Bits { count: self.bits(), hashes: self.hashes }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.words.len() * size_of::<u64>()
    }

    const fn bits(&self) -> u64 {
        self.hashes as u64 * self.slots
    }

    fn bits_set(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// How many bits of this slice are set.
    fn bits_set_in(&self, slice: u32) -> u64 {
        const WIDTH: u64 = u64::BITS as u64;
        let first = u64::from(slice) * self.slots;
        let last = first + self.slots - 1;
        let set = (first / WIDTH..=last / WIDTH).map(|word| {
            let begin = word * WIDTH;
            let from = u64::MAX << first.saturating_sub(begin);
            let to = u64::MAX >> (WIDTH - 1 - (last - begin).min(WIDTH - 1));
            u64::from((self.words[word as usize] & from & to).count_ones())
        });
        set.sum()
    }

    /// By how much a key reduces the logarithm of the expected share of clear bits.
    fn per_key(&self) -> f64 {
        -libm::log1p(-1.0 / self.slots as f64)
    }

    /// Returns true if it is larger than a core's second-level cache, so that prefetching saves time.
    const fn is_far(&self) -> bool {
        size_of_val(&*self.words) > NEAR_BYTES
    }

    /// Prefetches the words of a later key.
    #[inline(always)]
    fn ask_for(&self, hash: Option<&u64>) {
        hash.into_iter().flat_map(|&hash| self.positions(hash)).for_each(|(word, _)| prefetch(&self.words[word]));
    }

    /// The key's bits, one in each slice, as the index of a word and a mask.
    ///
    /// Each position has a word of its own: the hash with other bits flipped, multiplied by an odd number, and both
    /// halves of the product combined. One product costs no more than the step to the next position of double hashing.
    #[inline(always)]
    fn positions(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        /// 2^64 divided by the golden ratio.
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        /// Its multiples flip other bits of the hash for each slice.
        const FLIP: u64 = 0xbf58_476d_1ce4_e5b9;
        let slots = self.slots;
        (0..u64::from(self.hashes)).map(move |slice| {
            let product = u128::from(hash ^ slice.wrapping_mul(FLIP)) * u128::from(ODD);
            let word = (product >> u64::BITS) as u64 ^ product as u64;
            let position = slice * slots + scale(word, slots);
            ((position / u64::from(u64::BITS)) as usize, 1 << (position % u64::from(u64::BITS)))
        })
    }
}

/// The number of slices for this rate, and the logarithm of the share of bits that are still clear when the filter
/// reaches it.
///
/// n keys leave a bit of a slice of s bits clear with the probability (1 - 1/s)^n, and the rate is the probability that
/// one bit in each slice is set.
fn hashes_for(rate: f64) -> (u32, f64) {
    let hashes = libm::round(-libm::log2(rate)).max(1.0);
    (hashes as u32, libm::log1p(-libm::pow(rate, 1.0 / hashes)))
}

/// The number of words for this many slices of this many bits.
const fn words_for(hashes: u32, slots: u64) -> usize {
    (hashes as u64 * slots).div_ceil(u64::BITS as u64) as usize
}

impl Image for Bloom {
    const KIND: Kind = Kind::Bloom;

    fn write(&self, payload: &mut Writer) {
        let Self { words, hashes, slots, capacity, key_id: _ } = self;
        [*capacity, (*hashes).into(), *slots].into_iter().for_each(|number| payload.varint(number));
        payload.numbers(Literal::Word, words.iter().copied());
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let capacity = payload.within("the capacity", 1..=u64::MAX, "at least 1", Reader::varint)?;
        let hashes = payload.within("the bits per key", 1..=30, "from 1 to 30", Reader::varint)? as u32;
        let slots = SLOTS_MIN..=BITS_MAX / u64::from(hashes);
        let slots = payload.within("the bits of a slice", slots, "from 2 to 2^35 / bits per key", Reader::varint)?;
        let count = words_for(hashes, slots);
        let unused = count as u64 * u64::from(u64::BITS) - u64::from(hashes) * slots;
        let mut words: Box<[u64]> = payload.allocate("the words", count)?;
        payload.numbers("a word", Literal::Word, count, |at, word| {
            if at + 1 == count && word.leading_zeros() < unused as u32 {
                return Err("a word without bits after the last slice");
            }
            words[at] = word;
            Ok(())
        })?;
        Ok(Self { words, hashes, slots, capacity, key_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{SplitMix64, hash};
    use std::collections::HashSet;

    fn fed(planned: u64, rate: f64, seed: u64, items: u64) -> Bloom {
        let mut filter = Bloom::with_capacity(planned, rate, 7).unwrap();
        for item in 0..items {
            filter.insert(hash(seed, item));
        }
        filter
    }

    #[test]
    fn every_key_is_found_and_new_only_once() {
        const KEYS: u64 = crate::test_size::of(20_000, 50);
        let mut filter = Bloom::with_capacity(KEYS, 0.01, 7).unwrap();
        let mut inserted = HashSet::new();
        for key in (0..KEYS).chain(0..KEYS / 4).map(|item| hash(1, item)) {
            let known = filter.contains(key);
            assert_eq!(filter.insert(key), !known, "exactly the keys that were not found are new");
            assert!(known || inserted.insert(key), "a key was forgotten");
        }
        assert!(inserted.iter().all(|key| filter.contains(*key)));
        // The filter gets 20,000 keys, the last ones at a rate of 1 %: some 25 false positives in all.
        assert!(inserted.len() as u64 >= KEYS - KEYS / 200, "{}", inserted.len());
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn the_rate_is_as_planned_and_as_computed() {
        // 4.5 standard deviations of the number found by chance are allowed: a chance of one in 147,000 for each of
        // fifteen filters.
        for seed in 0..3 {
            for planned in [0.001, 0.01, 0.05, 0.3, 0.5] {
                let (filter, tries) = (fed(30_000, planned, seed, 30_000), 100_000u32);
                let computed = filter.false_positive_rate();
                assert!((0.97..1.03).contains(&(computed / planned)), "planned {planned}, computed {computed}");
                let expected = computed * f64::from(tries);
                let found = (0..tries).filter(|item| filter.contains(hash(seed + 9, (*item).into()))).count() as f64;
                assert!((found - expected).abs() < 4.5 * expected.sqrt(), "{expected} expected, {found} found");
            }
        }
    }

    #[test]
    fn every_key_has_as_many_bits_as_planned() {
        let mut random = SplitMix64(1);
        let extremes = [0, 1, u64::MAX, 1 << 63, u64::MAX >> 1];
        for (items, rate) in [(1, RATE_MIN), (1, 0.5), (3, 0.1), (100, 0.01), (100_000, 1e-4)] {
            let filter = Bloom::with_capacity(items, rate, 7).unwrap();
            for key in (0..crate::test_size::of(1_000, 5)).map(|_| random.word()).chain(extremes) {
                let mut single = filter.clone();
                assert!(single.insert(key) && single.contains(key));
                // One in each slice, and nothing behind the last one.
                for slice in 0..single.hashes {
                    assert_eq!(single.bits_set_in(slice), 1, "slice {slice} of {key:x}, {items} keys at {rate}");
                }
                assert_eq!(single.bits_set(), u64::from(single.hashes));
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn fill_and_number_of_keys_are_estimated() {
        let empty = Bloom::with_capacity(10_000, 0.01, 7).unwrap();
        assert_eq!((empty.fill(), empty.false_positive_rate(), empty.estimated_items().upper), (0.0, 0.0, 0));
        for items in [1, 100, 10_000, 20_000] {
            let filter = fed(10_000, 0.01, items, items);
            let estimated = filter.estimated_items().value as f64;
            assert!((estimated / items as f64 - 1.0).abs() < 0.02, "{items} keys, {estimated} estimated");
            assert_eq!(filter.is_saturated(), items > 10_000);
        }
        let filter = fed(1, 0.5, 1, 10_000);
        assert_eq!((filter.fill(), filter.false_positive_rate()), (1.0, 1.0));
        assert!(filter.estimated_items().upper == u64::MAX, "a full filter has no upper bound");
    }

    #[test]
    fn geometry_follows_from_the_plan_and_stays_in_range() {
        // n ln p / (ln 2)^2 is 9,585,058 bits. With seven hashes instead of 6.64, it is a thousandth more.
        let Geometry::Bits { count, hashes: 7 } = Bloom::with_capacity(1_000_000, 0.01, 7).unwrap().geometry() else {
            panic!("not seven bits per key");
        };
        assert!((9_585_058..9_600_000).contains(&count), "{count}");
        for (rate, hashes) in [(RATE_MAX, 1), (RATE_MIN, 30)] {
            assert_eq!(Bloom::with_capacity(10, rate, 7).unwrap().hashes, hashes, "{rate}");
        }
        let smallest = Bloom::with_capacity(0, 0.5, 7).unwrap();
        assert_eq!((smallest.capacity(), smallest.memory_bytes() - size_of::<Bloom>()), (1, 8));
    }
}
