//! Blocked Bloom filter: was this key here before? All bits of a key lie in one cache line.
//!
//! **Errors**: only towards "yes". A key that was inserted is always found. An absent key is found at a rate that is
//! planned at construction, and can be computed exactly from the bits that are set.
//!
//! **Cost** for 1,000,000 keys at a rate of 0.01: 1.2 MiB (10.1 bits per key). A key has one cache line, and sets one
//! bit in each of its eight words. With AVX-512 the whole line is one register, with AVX2 it is two. If lines come from
//! memory, a lookup takes 9 to 10 ns on a Xeon, which can wait for 16 lines at once. That holds for every filter with
//! one line per key, however it reads the lines. There a batch only saves time for hashing.
//!
//! **Papers**: Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970; Putze, Sanders and Singler,
//! "Cache-, hash- and space-efficient Bloom filters", 2007. The split-block filter of Apache Parquet also has one bit
//! in each word of a block, with eight words of 32 bits. With 64 bits, as here, keys spread more evenly over blocks:
//! the same memory gives a fifth fewer false positives. The time is the same with AVX-512. With AVX2 alone, a lookup
//! inside the cache takes a little longer than with 32 bits.
//!
//! **Why not a crate**: this filter is faster, plans for the uneven load of blocks, and computes its rate from its
//! state.

use alloc::{boxed::Box, vec};
use core::hint::black_box;

use super::{
    Estimate, Geometry, MergeError,
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
    merge::check_mergeable,
    occupancy::Items,
    setting::{SettingError, check_room, check_share},
    split_block::{Change, LANES, Plan, change_all, fields, find_all, place},
};
use crate::simd::{self, dispatch};

pub use super::split_block::{BLOCKS_MAX, RATE_MAX, RATE_MIN};

/// A block, which is one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Block([u64; LANES]);

/// A Bloom filter that keeps all bits of a key in one cache line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedBloom {
    blocks: Box<[Block]>,
    plan: Plan,
    key_id: u64,
}

impl BlockedBloom {
    /// A filter that finds an absent key with a probability of at most `false_positive_rate` when it contains `items`
    /// keys.
    ///
    /// The rate is from [`RATE_MIN`] to [`RATE_MAX`]. There is room for at most [`BLOCKS_MAX`] blocks.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_capacity(items: u64, false_positive_rate: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(items, false_positive_rate)?;
        Ok(Self::from_plan(Plan::new(items, false_positive_rate, u64::BITS), key_id))
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// The rate is not within [`RATE_MIN`] and [`RATE_MAX`], or so many keys would need more than 4 GiB.
    pub fn check(items: u64, false_positive_rate: f64) -> Result<(), SettingError> {
        check_share("false_positive_rate", false_positive_rate, RATE_MIN..=RATE_MAX)?;
        check_room("items", items, Plan::items_max(false_positive_rate, u64::BITS))
    }

    pub(super) fn from_plan(plan: Plan, key_id: u64) -> Self {
        Self { blocks: vec![Block([0; LANES]); plan.blocks].into_boxed_slice(), plan, key_id }
    }

    /// Inserts the key with this hash. Returns whether it was absent.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> bool {
        let (block, word) = place(hash, self.blocks.len());
        insert_one(&mut self.blocks[block], word)
    }

    /// Returns true if the key with this hash was inserted. This is true by mistake with the probability
    /// [`BlockedBloom::false_positive_rate`].
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        let (block, word) = place(hash, self.blocks.len());
        find_one(&self.blocks[block], word)
    }

    /// Prefetches the cache line of the key with this hash. This saves time if the filter is larger than a core's
    /// second-level cache, and costs time if it is not.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        simd::prefetch(&self.blocks[place(hash, self.blocks.len()).0]);
    }

    /// Inserts many keys, faster than one by one.
    pub fn insert_batch(&mut self, hashes: &[u64]) {
        insert_many(&mut self.blocks, hashes);
    }

    /// Looks up many keys: `found[i]` becomes what [`BlockedBloom::contains`] returns for `hashes[i]`. Stops at the end
    /// of the shorter slice.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        find_many(&self.blocks, hashes, found);
    }

    /// Merges another filter into this one. Afterwards it is as if the keys of both had been inserted here.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        let words = self.blocks.iter_mut().flat_map(|block| &mut block.0);
        words.zip(other.blocks.iter().flat_map(|block| &block.0)).for_each(|(word, other)| *word |= other);
        Ok(())
    }

    /// Empties it, and writes every block, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.blocks.fill(Block([0; LANES]));
    }

    /// The share of bits that are set. This reads the whole filter.
    pub fn fill(&self) -> f64 {
        self.plan.fill_of(self.bits_set())
    }

    /// The exact probability that an absent key is found, computed from the bits that are set. This reads the whole
    /// filter.
    pub fn false_positive_rate(&self) -> f64 {
        self.plan.rate_of(self.bits_set())
    }

    /// Returns true if it contains more keys than planned, by more than chance explains. This reads the whole filter.
    pub fn is_saturated(&self) -> bool {
        self.plan.is_exceeded(self.fill())
    }

    /// The estimated number of distinct keys, with bounds that hold with a probability of 99.9 %. If there are far more
    /// keys than planned, many blocks are full, and there is no upper bound. This reads the whole filter.
    pub fn estimated_items(&self) -> Estimate {
        self.items().estimate()
    }

    /// The number of keys that it was built for.
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

    pub(super) fn items(&self) -> Items {
        self.plan.items_of(self.bits_set())
    }

    pub(super) const fn plan(&self) -> Plan {
        self.plan
    }

    pub(super) const fn blocks(&self) -> usize {
        self.plan.blocks
    }

    /// Inserts many keys, faster than one by one. Returns how many were absent.
    pub fn insert_counting(&mut self, hashes: &[u64]) -> u64 {
        count_new(&mut self.blocks, hashes)
    }

    fn bits_set(&self) -> impl Iterator<Item = [u32; LANES]> {
        self.blocks.iter().map(|block| block.0.map(u64::count_ones))
    }
}

dispatch! {
    #[inline(always)]
    fn insert_one(block: &mut Block, word: u64) -> bool {
        block.insert::<ROTATES>(word)
    }
}

dispatch! {
    #[inline(always)]
    fn find_one(block: &Block, word: u64) -> bool {
        block.covers::<ROTATES>(word)
    }
}

dispatch! {
    fn insert_many(blocks: &mut [Block], hashes: &[u64]) {
        change_all::<Insert<ROTATES>, _>(blocks, hashes);
    }
}

dispatch! {
    fn count_new(blocks: &mut [Block], hashes: &[u64]) -> u64 {
        change_all::<Insert<ROTATES>, _>(blocks, hashes)
    }
}

dispatch! {
    fn find_many(blocks: &[Block], hashes: &[u64], found: &mut [bool]) {
        find_all(blocks, hashes, found, Block::covers::<ROTATES>);
    }
}

struct Insert<const ROTATES: bool>;

impl<const ROTATES: bool> Change<Block> for Insert<ROTATES> {
    #[inline(always)]
    fn change(block: &mut Block, word: u64) -> bool {
        block.insert::<ROTATES>(word)
    }
}

impl Block {
    /// Sets the key's bits. Returns whether one of them was clear.
    #[inline(always)]
    fn insert<const ROTATES: bool>(&mut self, word: u64) -> bool {
        let is_new = !self.covers::<ROTATES>(word);
        // Where vectors cannot compare by a mask, compilers would do both of these lane by lane if they were done
        // together.
        let block = if ROTATES { self } else { black_box(self) };
        block.0.iter_mut().zip(bits::<ROTATES>(word)).for_each(|(lane, bit)| *lane |= bit);
        is_new
    }

    /// Returns true if each lane has the key's bit. All lanes are read, without a branch, because the lane that an
    /// absent key misses cannot be predicted.
    #[inline(always)]
    fn covers<const ROTATES: bool>(&self, word: u64) -> bool {
        let lanes = self.0.iter().zip(bits::<ROTATES>(word));
        if ROTATES {
            // One instruction compares all lanes in memory.
            lanes.fold(true, |all, (lane, bit)| all & (lane & bit != 0))
        } else {
            // With bits made by a shift, the expression above would need one more shift.
            lanes.fold(0, |missing, (lane, bit)| missing | bit & !lane) == 0
        }
    }
}

/// The key's bit in each lane.
#[inline(always)]
fn bits<const ROTATES: bool>(word: u64) -> [u64; LANES] {
    // A rotation takes its number modulo 64 anyway, but a shift does not.
    fields(word).map(|bit| if ROTATES { 1u64.rotate_left(bit as u32) } else { 1 << bit })
}

impl Image for BlockedBloom {
    const KIND: Kind = Kind::BlockedBloom;

    fn write(&self, payload: &mut Writer) {
        let Self { blocks, plan, key_id: _ } = self;
        plan.write(payload);
        payload.numbers(Literal::Word, blocks.iter().flat_map(|block| block.0));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let plan = Plan::read(payload, u64::BITS)?;
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
        simd::{Level, at_level},
        split_block::tests::{
            assert_any_size_works_and_memory_is_reported, assert_the_rate_is_as_planned_and_as_computed,
        },
    };
    use std::{collections::HashSet, vec::Vec};

    fn hashes(seed: u64, items: core::ops::Range<u64>) -> Vec<u64> {
        items.map(|item| hash(seed, item)).collect()
    }

    fn fed(planned: u64, rate: f64, seed: u64, items: u64) -> BlockedBloom {
        let mut filter = BlockedBloom::with_capacity(planned, rate, 7).unwrap();
        filter.insert_batch(&hashes(seed, 0..items));
        filter
    }

    /// How many of `tries` keys the filter finds, although none of them was inserted.
    fn found(filter: &BlockedBloom, seed: u64, tries: u64) -> f64 {
        (1..=tries).filter(|item| filter.contains(hash(seed, u64::MAX - item))).count() as f64
    }

    #[test]
    fn every_key_is_found_and_new_only_once() {
        const KEYS: u64 = crate::test_size::of(20_000, 50);
        let mut filter = BlockedBloom::with_capacity(KEYS, 0.01, 7).unwrap();
        let mut inserted = HashSet::new();
        for key in (0..KEYS).chain(0..KEYS / 4).map(|item| hash(1, item)) {
            let known = filter.contains(key);
            assert_eq!(filter.insert(key), !known, "exactly the keys that were not found are new");
            assert!(known || inserted.insert(key), "a key was forgotten");
        }
        assert!(inserted.iter().all(|key| filter.contains(*key)));
        // The filter gets 20,000 keys, the last ones at a rate of 1 %: some 40 false positives in all.
        assert!(inserted.len() as u64 >= KEYS - KEYS / 200, "{}", inserted.len());
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn the_rate_is_as_planned_and_as_computed() {
        assert_the_rate_is_as_planned_and_as_computed(50_000, |planned, seed| fed(50_000, planned, seed, 50_000));
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn the_rate_is_as_computed_in_the_largest_filter_too() {
        // This tests some blocks of it, with as many keys as at a rate of 1 %. The hashes of all keys have the same
        // high 26 bits.
        const TRIES: u64 = 400;
        let (mut expected, mut found) = (0.0, 0.0);
        for number in 0..500 {
            let first = hash(1, number) & !(u64::MAX >> BLOCKS_MAX.ilog2());
            let word = |key| {
                let (block, word) = place(first | hash(number, key) >> BLOCKS_MAX.ilog2(), BLOCKS_MAX);
                assert_eq!(block as u64, first >> (u64::BITS - BLOCKS_MAX.ilog2()));
                word
            };
            let mut block = Block([0; LANES]);
            (0..51).for_each(|key| assert!(block.insert::<false>(word(key)) || block.covers::<false>(word(key))));
            let rate: f64 = block.0.iter().map(|lane| f64::from(lane.count_ones()) / 64.0).product();
            expected += rate * TRIES as f64;
            found += (51..51 + TRIES).filter(|key| block.covers::<false>(word(*key))).count() as f64;
        }
        // A difference this large has a chance of one in 147,000.
        assert!((found - expected).abs() < 4.5 * expected.sqrt(), "{expected} expected, {found} found");
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn the_rate_is_as_computed_for_millions_of_keys() {
        let (filter, tries) = (fed(1 << 22, 0.001, 1, 1 << 22), 1 << 22);
        let (expected, found) = (filter.false_positive_rate() * tries as f64, found(&filter, 1, tries));
        assert!((expected / tries as f64 / 0.001 - 1.0).abs() < 0.01);
        // A difference this large has a chance of one in 147,000.
        assert!((found - expected).abs() < 4.5 * expected.sqrt(), "{expected} expected, {found} found");
    }

    #[test]
    fn batches_equal_single_calls() {
        // Batches may have any length, also in a filter so large that lines are prefetched.
        for (planned, most) in [(300, 100), (crate::test_size::of(2_000_000, 4_000), 100)] {
            let mut random = SplitMix64(planned);
            let mut one_by_one = BlockedBloom::with_capacity(planned, 0.01, 7).unwrap();
            let mut batched = one_by_one.clone();
            let mut counted = one_by_one.clone();
            for length in (0..most).step_by(crate::test_size::of(1, 33)) {
                let keys: Vec<u64> = (0..length).map(|_| hash(1, random.word() % 10_000)).collect();
                let new = keys.iter().filter(|key| one_by_one.insert(**key)).count() as u64;
                batched.insert_batch(&keys);
                assert_eq!(counted.insert_counting(&keys), new);
                let wanted: Vec<u64> = (0..length).map(|_| hash(1, random.word() % 10_000)).collect();
                let mut found = std::vec![true; length as usize + 1];
                batched.contains_batch(&wanted, &mut found);
                assert!(wanted.iter().zip(&found).all(|(key, found)| one_by_one.contains(*key) == *found));
                assert!(found[length as usize], "an element after the keys was changed");
                found.fill(true);
                batched.contains_batch(&wanted, &mut found[..length as usize / 2]);
                assert!(found[length as usize / 2..].iter().all(|found| *found));
            }
            assert!(one_by_one == batched && one_by_one == counted);
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        const KEYS: u64 = crate::test_size::of(4_000, 60);
        let (keys, wanted) = (hashes(1, 0..KEYS), hashes(1, KEYS / 2..KEYS * 5 / 2));
        let run = |level: Level| {
            let mut filter = BlockedBloom::with_capacity(4_000, 0.02, 7).unwrap();
            let mut found = std::vec![false; wanted.len()];
            let (blocks, keys): (&mut [Block], &[u64]) = (&mut filter.blocks, &keys);
            let new = at_level!(level, (blocks: &mut [Block], keys: &[u64]) -> u64 {
                change_all::<Insert<ROTATES>, _>(blocks, keys)
            });
            let (blocks, wanted, answers): (&[Block], &[u64], &mut [bool]) = (&filter.blocks, &wanted, &mut found);
            at_level!(level, (blocks: &[Block], wanted: &[u64], answers: &mut [bool]) {
                find_all(blocks, wanted, answers, Block::covers::<ROTATES>);
            });
            (filter, new, found)
        };
        let portable = run(Level::Portable);
        for level in [Level::Avx2, Level::Avx512].into_iter().filter(|level| *level <= simd::level()) {
            assert!(run(level) == portable, "{level:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn fill_and_number_of_keys_are_estimated() {
        let empty = BlockedBloom::with_capacity(10_000, 0.01, 7).unwrap();
        assert_eq!((empty.fill(), empty.false_positive_rate(), empty.estimated_items().upper), (0.0, 0.0, 0));
        for items in [1, 100, 10_000, 20_000] {
            let filter = fed(10_000, 0.01, items, items);
            let estimated = filter.estimated_items().value as f64;
            assert!((estimated / items as f64 - 1.0).abs() < 0.02, "{items} keys, {estimated} estimated");
            assert_eq!(filter.is_saturated(), items > 10_000);
        }
        let filter = fed(10_000, 0.01, 1, 100_000);
        assert!(filter.fill() > 0.99 && filter.fill() <= 1.0);
        assert!(filter.false_positive_rate() > 0.97 && filter.false_positive_rate() <= 1.0);
    }

    #[test]
    fn any_size_works_and_memory_is_reported() {
        assert_any_size_works_and_memory_is_reported(BlockedBloom::with_capacity, 10.0..10.2);
        let filter = BlockedBloom::with_capacity(100, 0.01, 7).unwrap();
        assert_eq!((align_of_val(&filter.blocks[0]), filter.capacity()), (64, 100));
    }
}
