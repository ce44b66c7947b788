//! Counting Bloom filter: is this key present? It is for keys that come and go.
//!
//! **Errors**: towards "yes". An absent key is found at a rate that is planned at construction, and can be computed
//! exactly from the counters that are not zero. A present key is always found, as long as no key is removed that was
//! never inserted. A counter that has reached 15 keeps that value. So a key that was inserted 15 times stays forever,
//! however often it is removed.
//!
//! **Cost** for 1,000,000 keys at a rate of 0.01: 5.5 MiB (46 bits per key, four and a half times a blocked Bloom
//! filter). A key has one cache line, with one counter of 4 bits in each of its eight words. Using one line instead of
//! several has a price: at 42 bits per key the rate is 1.4 %, while counters spread over the whole filter, in seven
//! lines per key, would have 0.65 %. This filter needs 51 bits for that rate.
//!
//! **Papers**: Fan, Cao, Almeida and Broder, "Summary cache: a scalable wide-area web cache sharing protocol", 2000 (4
//! bits suffice); Putze, Sanders and Singler, "Cache-, hash- and space-efficient Bloom filters", 2007.
//!
//! **Why not a crate**: the filters in crates use seven lines per key, and report the planned rate.

use alloc::{boxed::Box, vec};

use super::{
    Estimate, Geometry, MergeError,
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
    merge::check_mergeable,
    setting::{SettingError, check_room, check_share},
    split_block::{Change, LANES, Plan, change_all, fields, find_all, place},
};
use crate::simd::dispatch;

pub use super::split_block::{BLOCKS_MAX, RATE_MAX, RATE_MIN};

/// The width of a counter in bits.
const COUNTER_BITS: u32 = 4;
/// The highest count. A counter that has reached it keeps it.
pub const COUNT_MAX: u64 = (1 << COUNTER_BITS) - 1;

/// One cache line, with 16 counters in each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Block([u64; LANES]);

/// A Bloom filter that counts insertions, so that keys can be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountingBloom {
    blocks: Box<[Block]>,
    plan: Plan,
    key_id: u64,
}

impl CountingBloom {
    /// A filter that finds an absent key with a probability of at most `false_positive_rate` when it contains `items`
    /// distinct keys.
    ///
    /// The rate is from [`RATE_MIN`] to [`RATE_MAX`]. There is room for at most [`BLOCKS_MAX`] blocks.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_capacity(items: u64, false_positive_rate: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(items, false_positive_rate)?;
        let plan = Plan::new(items, false_positive_rate, u64::BITS / COUNTER_BITS);
        Ok(Self { blocks: vec![Block([0; LANES]); plan.blocks].into_boxed_slice(), plan, key_id })
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// The rate is not within [`RATE_MIN`] and [`RATE_MAX`], or so many keys would need more than 4 GiB.
    pub fn check(items: u64, false_positive_rate: f64) -> Result<(), SettingError> {
        check_share("false_positive_rate", false_positive_rate, RATE_MIN..=RATE_MAX)?;
        check_room("items", items, Plan::items_max(false_positive_rate, u64::BITS / COUNTER_BITS))
    }

    /// Inserts the key with this hash once more. Returns whether it was absent.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> bool {
        let (block, word) = place(hash, self.blocks.len());
        insert_one(&mut self.blocks[block], word)
    }

    /// Returns true if the key with this hash is present. This is true by mistake with the probability
    /// [`CountingBloom::false_positive_rate`].
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        let (block, word) = place(hash, self.blocks.len());
        find_one(&self.blocks[block], word)
    }

    /// Removes one insertion of the key with this hash. Returns whether there was one.
    ///
    /// Only remove keys that were inserted. Removing an absent key that is found by mistake lowers the counters of
    /// other keys, which may then not be found.
    #[inline]
    pub fn remove(&mut self, hash: u64) -> bool {
        let (block, word) = place(hash, self.blocks.len());
        remove_one(&mut self.blocks[block], word)
    }

    /// Inserts many keys, faster than one by one.
    pub fn insert_batch(&mut self, hashes: &[u64]) {
        insert_many(&mut self.blocks, hashes);
    }

    /// Removes one insertion of each of many keys. Returns how many insertions there were.
    pub fn remove_batch(&mut self, hashes: &[u64]) -> u64 {
        remove_many(&mut self.blocks, hashes)
    }

    /// Looks up many keys: `found[i]` becomes what [`CountingBloom::contains`] returns for `hashes[i]`. Stops at the
    /// end of the shorter slice.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        find_many(&self.blocks, hashes, found);
    }

    /// Merges another filter into this one by adding its counters. Afterwards it is as if the keys of both had been
    /// inserted here. Sums stop at [`COUNT_MAX`], so a key that both contain often may stay forever.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        let words = self.blocks.iter_mut().flat_map(|block| &mut block.0);
        words.zip(other.blocks.iter().flat_map(|block| &block.0)).for_each(|(word, other)| *word = sum(*word, *other));
        Ok(())
    }

    /// Empties it, and writes every block, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.blocks.fill(Block([0; LANES]));
    }

    /// The share of counters that are not zero. This reads the whole filter.
    pub fn fill(&self) -> f64 {
        self.plan.fill_of(self.taken())
    }

    /// The exact probability that an absent key is found, computed from the counters that are not zero. This reads the
    /// whole filter.
    pub fn false_positive_rate(&self) -> f64 {
        self.plan.rate_of(self.taken())
    }

    /// Returns true if it contains more keys than planned, by more than chance explains. This reads the whole filter.
    pub fn is_saturated(&self) -> bool {
        self.plan.is_exceeded(self.fill())
    }

    /// The estimated number of distinct keys, with bounds that hold with a probability of 99.9 %. If there are far more
    /// keys than planned, many blocks are full, and there is no upper bound. This reads the whole filter.
    pub fn estimated_items(&self) -> Estimate {
        self.plan.items_of(self.taken()).estimate()
    }

    /// The number of distinct keys that it was built for.
    pub const fn capacity(&self) -> u64 {
        self.plan.capacity
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        self.plan.geometry()
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.blocks.len() * size_of::<Block>()
    }

    /// For each block, how many counters of each lane are not zero.
    fn taken(&self) -> impl Iterator<Item = [u32; LANES]> {
        self.blocks.iter().map(|block| block.0.map(|word| ones(word | word >> 1 | word >> 2 | word >> 3).count_ones()))
    }
}

dispatch! {
    #[inline(always)]
    fn insert_one(block: &mut Block, word: u64) -> bool {
        block.insert(word)
    }
}

dispatch! {
    #[inline(always)]
    fn remove_one(block: &mut Block, word: u64) -> bool {
        block.remove(word)
    }
}

dispatch! {
    #[inline(always)]
    fn find_one(block: &Block, word: u64) -> bool {
        block.covers(word)
    }
}

dispatch! {
    fn insert_many(blocks: &mut [Block], hashes: &[u64]) {
        change_all::<CountIn, _>(blocks, hashes);
    }
}

dispatch! {
    fn remove_many(blocks: &mut [Block], hashes: &[u64]) -> u64 {
        change_all::<CountOut, _>(blocks, hashes)
    }
}

dispatch! {
    fn find_many(blocks: &[Block], hashes: &[u64], found: &mut [bool]) {
        find_all(blocks, hashes, found, Block::covers);
    }
}

struct CountIn;

impl Change<Block> for CountIn {
    #[inline(always)]
    fn change(block: &mut Block, word: u64) -> bool {
        block.insert(word)
    }
}

struct CountOut;

impl Change<Block> for CountOut {
    #[inline(always)]
    fn change(block: &mut Block, word: u64) -> bool {
        block.remove(word)
    }
}

impl Block {
    /// Adds one to the key's counters. Returns whether one of them was zero.
    #[inline(always)]
    fn insert(&mut self, word: u64) -> bool {
        let is_new = !self.covers(word);
        for (lane, one) in self.0.iter_mut().zip(ones_at(word)) {
            *lane += if is_full(*lane, one) { 0 } else { one };
        }
        is_new
    }

    /// Subtracts one from the key's counters. Returns whether the key was present.
    #[inline(always)]
    fn remove(&mut self, word: u64) -> bool {
        let is_here = self.covers(word);
        for (lane, one) in self.0.iter_mut().zip(ones_at(word)) {
            *lane -= if is_full(*lane, one) | !is_here { 0 } else { one };
        }
        is_here
    }

    /// Returns true if none of the key's counters is zero.
    #[inline(always)]
    fn covers(&self, word: u64) -> bool {
        // All lanes are read, without a branch, because the lane that an absent key misses cannot be predicted.
        self.0.iter().zip(ones_at(word)).fold(true, |all, (lane, one)| all & (lane & (one * COUNT_MAX) != 0))
    }
}

/// Returns true if the counter whose lowest bit is in `one` has reached the highest count.
#[inline(always)]
const fn is_full(lane: u64, one: u64) -> bool {
    !lane & (one * COUNT_MAX) == 0
}

/// For each lane, a word with a 1 in the key's counter and 0 in the others.
#[inline(always)]
fn ones_at(word: u64) -> [u64; LANES] {
    // The upper four of six bits choose one of 16 counters. With the lower two bits clear, the six bits are the
    // position of the counter's first bit.
    fields(word).map(|field| 1 << (field & 0b11_1100))
}

/// The lowest bit of each of a word's counters.
#[inline(always)]
const fn ones(word: u64) -> u64 {
    word & 0x1111_1111_1111_1111
}

/// The sum of each pair of counters. A sum stops at the highest count.
#[inline(always)]
const fn sum(one: u64, other: u64) -> u64 {
    const EVEN: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    const fn sum_even(one: u64, other: u64) -> u64 {
        let sum = (one & EVEN) + (other & EVEN);
        // A carry out of a counter sets all its bits.
        let carried = sum >> COUNTER_BITS & EVEN;
        (sum | (carried * COUNT_MAX)) & EVEN
    }
    sum_even(one, other) | sum_even(one >> COUNTER_BITS, other >> COUNTER_BITS) << COUNTER_BITS
}

impl Image for CountingBloom {
    const KIND: Kind = Kind::CountingBloom;

    fn write(&self, payload: &mut Writer) {
        let Self { blocks, plan, key_id: _ } = self;
        plan.write(payload);
        payload.numbers(Literal::Word, blocks.iter().flat_map(|block| block.0));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let plan = Plan::read(payload, u64::BITS / COUNTER_BITS)?;
        let mut blocks: Box<[Block]> = payload.allocate("the blocks", plan.blocks)?;
        payload.numbers("a lane", Literal::Word, plan.blocks * LANES, |at, lane| {
            blocks[at / LANES].0[at % LANES] = lane;
            Ok(())
        })?;
        Ok(Self { blocks, plan, key_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        oracle::{SplitMix64, hash},
        simd::{self, Level, at_level},
        split_block::tests::{
            assert_any_size_works_and_memory_is_reported, assert_the_rate_is_as_planned_and_as_computed,
        },
    };
    use std::{collections::HashMap, vec::Vec};

    #[test]
    fn keys_come_and_go() {
        let empty = CountingBloom::with_capacity(1_000, 0.01, 7).unwrap();
        let mut filter = empty.clone();
        let mut counts: HashMap<u64, u64> = HashMap::new();
        let mut random = SplitMix64(1);
        for step in 0..crate::test_size::of(20_000, 60) {
            let key = hash(1, random.word() % 700);
            let count = counts.entry(key).or_default();
            // Insertions and removals are equally frequent, and a key is present at most three times: no counter
            // reaches the highest count.
            if random.word().is_multiple_of(2) && *count < 3 {
                *count += 1;
                let known = filter.contains(key);
                assert_eq!(filter.insert(key), !known);
            } else if *count > 0 {
                *count -= 1;
                assert!(filter.remove(key));
            }
            if step % 500 == 0 {
                assert!(counts.iter().all(|(key, count)| *count == 0 || filter.contains(*key)));
            }
        }
        assert!(filter.taken().flatten().all(|taken| taken < 16), "a full lane would hide a forgotten key");
        for (key, count) in counts {
            (0..count).for_each(|_| assert!(filter.remove(key)));
        }
        assert!(filter == empty, "removed keys leave no trace");
        assert!(!filter.remove(1) && filter == empty);
    }

    #[test]
    fn a_full_counter_stays_full() {
        let mut filter = CountingBloom::with_capacity(100, 0.01, 7).unwrap();
        (0..COUNT_MAX - 1).for_each(|nth| assert_eq!(filter.insert(9), nth == 0));
        (0..COUNT_MAX - 1).for_each(|_| assert!(filter.remove(9)));
        assert!(!filter.contains(9));
        (0..COUNT_MAX + 5).for_each(|nth| assert_eq!(filter.insert(9), nth == 0));
        (0..2 * COUNT_MAX).for_each(|_| assert!(filter.remove(9)));
        assert!(filter.contains(9) && filter.estimated_items().value == 1, "no other counter is changed");
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn the_rate_is_as_planned_and_as_computed() {
        const ITEMS: usize = 30_000;
        assert_the_rate_is_as_planned_and_as_computed(ITEMS as u64, |planned, seed| {
            let mut filter = CountingBloom::with_capacity(ITEMS as u64, planned, 7).unwrap();
            let keys: Vec<u64> = (0..ITEMS as u64 * 4 / 3).map(|item| hash(seed, item)).collect();
            filter.insert_batch(&keys);
            assert!(filter.is_saturated());
            // A quarter of the keys is removed again.
            keys[ITEMS..].iter().for_each(|key| assert!(filter.remove(*key)));
            assert!((filter.estimated_items().value as f64 / ITEMS as f64 - 1.0).abs() < 0.02);
            filter
        });
    }

    #[test]
    fn every_instruction_set_and_batch_gives_the_same_counters() {
        const KEYS: u64 = crate::test_size::of(6_001, 91);
        let keys: Vec<u64> = (0..KEYS).map(|item| hash(1, item % 3_500 * (item % 3))).collect();
        let run = |level: Level| {
            let mut filter = CountingBloom::with_capacity(4_000, 0.02, 7).unwrap();
            let mut found = std::vec![false; keys.len()];
            let (blocks, hashes): (&mut [Block], &[u64]) = (&mut filter.blocks, &keys);
            at_level!(level, (blocks: &mut [Block], hashes: &[u64]) {
                change_all::<CountIn, _>(blocks, hashes);
                change_all::<CountOut, _>(blocks, &hashes[..hashes.len() / 3]);
            });
            let (blocks, hashes, answers): (&[Block], &[u64], &mut [bool]) = (&filter.blocks, &keys, &mut found);
            at_level!(level, (blocks: &[Block], hashes: &[u64], answers: &mut [bool]) {
                find_all(blocks, hashes, answers, Block::covers);
            });
            (filter, found)
        };
        let portable = run(Level::Portable);
        for level in [Level::Avx2, Level::Avx512].into_iter().filter(|level| *level <= simd::level()) {
            assert!(run(level) == portable, "{level:?}");
        }
        let mut one_by_one = CountingBloom::with_capacity(4_000, 0.02, 7).unwrap();
        for key in &keys {
            one_by_one.insert(*key);
        }
        let mut batched = CountingBloom::with_capacity(4_000, 0.02, 7).unwrap();
        batched.insert_batch(&keys);
        assert!(batched == one_by_one);
        for key in &keys[..keys.len() / 3] {
            one_by_one.remove(*key);
        }
        assert!(portable.0 == one_by_one);
        let mut found = std::vec![false; keys.len()];
        one_by_one.contains_batch(&keys, &mut found);
        assert!(found == portable.1 && found.contains(&false));
    }

    #[test]
    fn a_merged_filter_equals_one_that_was_fed_both() {
        // There are 600 keys, so that both filters contain many of them, and some as often as can be counted.
        let stream = |seed| {
            let mut random = SplitMix64(seed);
            (0..crate::test_size::of(4_000, 50))
                .map(move |_| hash(1, (random.word() % 600) & random.word()))
                .collect::<Vec<u64>>()
        };
        let fed = |streams: &[u64]| {
            let mut filter = CountingBloom::with_capacity(600, 0.01, 7).unwrap();
            streams.iter().for_each(|seed| filter.insert_batch(&stream(*seed)));
            filter
        };
        let mut merged = fed(&[1]);
        merged.merge(&fed(&[2])).unwrap();
        assert!(merged == fed(&[1, 2]));
    }

    #[test]
    fn sums_of_counters_stop_at_the_maximum() {
        let counter = |word: u64, nth: u32| word >> (COUNTER_BITS * nth) & COUNT_MAX;
        let mut random = SplitMix64(1);
        for _ in 0..crate::test_size::of(1_000, 100) {
            let (one, other) = (random.word(), random.word());
            let sum = sum(one, other);
            assert!((0..16).all(|nth| counter(sum, nth) == (counter(one, nth) + counter(other, nth)).min(COUNT_MAX)));
        }
    }

    #[test]
    fn any_size_works_and_memory_is_reported() {
        assert_any_size_works_and_memory_is_reported(CountingBloom::with_capacity, 45.0..46.5);
        let filter = CountingBloom::with_capacity(100, 0.01, 7).unwrap();
        assert_eq!((align_of_val(&filter.blocks[0]), filter.capacity()), (64, 100));
    }
}
