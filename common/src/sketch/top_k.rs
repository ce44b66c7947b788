//! Top-k: which keys are the largest, and how large?
//!
//! Blocks of eight candidates with a row of light cells for the rest. A key that comes is looked for in its block:
//!
//! ```text
//! held?      add to its candidate
//! not held?  a coin with probability weight / (least score + weight):
//!              head: takes the place of the block's least, whose count goes to its light cell
//!              tail: add to its light cell
//! ```
//!
//! 1. The least score is looked for only when the coin shows its head at a score that was the least before. Scores only
//!    grow, so what is a tail at the old one is a tail at the new one.
//! 2. Light cells are one row, not a count-min of two: a cell has so many small keys that the lesser of two cells is
//!    hardly less than one of twice as many. (By Zipf's law bounds are 14 % closer for it, and adding is faster; what a
//!    key had before it came in is known a little less well.)
//!
//! **Errs** never: the truth is within `[lower, upper]` for every key, held or not, number by number. A held key's lower
//! bound is what was counted since it came in; its upper bound adds what its light cell held then. A key that is not
//! held has at most its light cell. It may lack a large key, at the margin of what it can hold: under Zipf's law with
//! exponent 1.05 a table of 8,192 entries has at least 990 of the largest 1,000 (a test).
//!
//! **Cost** for 8,192 flows: 64 KiB of blocks and 576 KiB of candidates. One cache line for a key that is not held; for
//! one that is, that and its candidate. A key that comes in reads its block's eight candidates: in a flood of small keys
//! one in ten does, and fewer as it lasts.
//!
//! **Papers**: randomised admission, which keeps a flood of small keys from churning the table: Ben Basat, Chen,
//! Einziger, Friedman and Kassner, "Randomized admission policy for efficient top-k, frequency, and volume estimation",
//! 2019; heavy candidates before light cells: Yang et al., "Elastic sketch", 2018.
//!
//! **Why not a crate**: crates keep one number a key, in maps and heaps that allocate as they go, without bounds; here
//! it is packets and bytes, or any other [`Weight`], with bounds, in memory fixed beforehand.

mod block;
mod candidate;

use alloc::{boxed::Box, vec};
use core::cmp::Reverse;

use self::block::{Block, Light, tag};
use super::{Bounds, Geometry, Merge, MergeError, Sketch, check_mergeable, weight::Weight};
use crate::{hash::scale, ledger::Tally, simd};

pub use self::{block::WAYS, candidate::Candidate};

/// Candidates at most: 1.2 GiB with flow keys.
pub const ENTRIES_MAX: usize = 1 << 24;
/// Keys whose memory is asked for together, ahead of its use.
const AHEAD: usize = 32;

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

/// The candidates of a block: whole cache lines, so that one of 64 bytes is in one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Row<K, W: Weight>([Candidate<K, W>; WAYS]);

/// A table of the largest keys, with bounds for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK<K, W: Weight = Tally> {
    blocks: Box<[Block<W>]>,
    /// By block.
    rows: Box<[Row<K, W>]>,
    /// What the coins are thrown with.
    random: u64,
    key_id: u64,
}

impl<K: Copy + Eq + Default, W: Weight> TopK<K, W> {
    /// A table of at least `entries` keys, rounded up to blocks of [`WAYS`], within one block and [`ENTRIES_MAX`].
    ///
    /// Take some eight times the k that is asked for.
    pub fn with_capacity(entries: usize, key_id: u64) -> Self {
        let blocks = entries.clamp(1, ENTRIES_MAX).div_ceil(WAYS);
        Self {
            blocks: vec![Block::default(); blocks].into_boxed_slice(),
            rows: vec![Row::default(); blocks].into_boxed_slice(),
            random: key_id,
            key_id,
        }
    }

    /// A table whose bounds of a key are seldom further apart than `error`, a share of all that is added, and which
    /// holds at least `entries` keys.
    ///
    /// That is so while the cells for what is not held are not full, which each is at 2^32 - 1 packets or bytes (at
    /// 65,535 where counts have 32 bits): together they have room for some 10^10 / `error`. What is in a full one has no
    /// upper bound but the total.
    pub fn with_error(error: f64, entries: usize, key_id: u64) -> Self {
        // What is not held spreads over the cells. Two thirds of the error are for how unevenly it does.
        let blocks = libm::ceil(3.0 / (Light::<W>::CELLS as f64 * error.clamp(1e-9, 1.0))) as usize;
        Self::with_capacity(entries.max(blocks.saturating_mul(WAYS)), key_id)
    }

    /// Adds `weight` to a key. The hash must be the key's.
    #[inline(always)]
    pub fn add(&mut self, hash: u64, key: K, weight: W) {
        self.add_to_block(self.block(hash), tag(hash), key, weight);
    }

    #[inline(always)]
    fn add_to_block(&mut self, at: usize, tag: u8, key: K, weight: W) {
        let (block, Row(row)) = (&mut self.blocks[at], &mut self.rows[at]);
        if let Some(way) = block.ways_with(tag).find(|way| row[*way].key == key) {
            row[way].add(weight);
            return;
        }
        let coin = Coin::toss(&mut self.random, weight.score());
        if coin.is_head(block.price) {
            admit(block, row, coin, (tag, key, weight));
        } else {
            block.light.add(tag, weight);
        }
    }

    /// Adds many, in order: of each item its hash, its key and its weight.
    #[inline]
    pub fn add_batch<T>(&mut self, items: &[T], parts: impl Fn(&T) -> (u64, K, W)) {
        for items in items.chunks(AHEAD) {
            let mut places = [0; AHEAD];
            for (place, item) in places.iter_mut().zip(items) {
                *place = self.block(parts(item).0);
                simd::prefetch(&self.blocks[*place]);
            }
            for (place, item) in places.iter().zip(items) {
                let (hash, key, weight) = parts(item);
                self.add_to_block(*place, tag(hash), key, weight);
            }
        }
    }

    /// The candidate with this key.
    pub fn get(&self, hash: u64, key: &K) -> Option<&Candidate<K, W>> {
        let at = self.block(hash);
        let (block, Row(row)) = (&self.blocks[at], &self.rows[at]);
        block.ways_with(tag(hash)).map(|way| &row[way]).find(|candidate| candidate.key == *key)
    }

    /// Bounds that hold for any key.
    pub fn bounds(&self, hash: u64, key: &K) -> Bounds<W> {
        match self.get(hash, key) {
            Some(candidate) => Bounds { lower: candidate.lower(), upper: candidate.upper() },
            None => Bounds { lower: W::default(), upper: self.blocks[self.block(hash)].light.upper(tag(hash)) },
        }
    }

    /// All candidates, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Candidate<K, W>> {
        self.blocks.iter().zip(&self.rows).flat_map(|(block, Row(row))| block.taken().map(|way| &row[way]))
    }

    /// Takes in another table, as if both had shared the stream.
    ///
    /// Bounds hold for all that both were fed. Of a block's candidates the eight largest stay; what was missed adds up,
    /// so bounds are as far apart as those of both together.
    ///
    /// # Errors
    ///
    /// The other has another geometry or key.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        for at in 0..self.blocks.len() {
            let (ours, theirs) = ((&mut self.blocks[at], &mut self.rows[at].0), (&other.blocks[at], &other.rows[at].0));
            merge_block(ours, theirs);
        }
        self.random = self.random.wrapping_add(other.random.wrapping_sub(other.key_id));
        Ok(())
    }

    /// Forgets everything; writes every entry. (Not inlined: next to the allocation, the writes would be optimised
    /// out, and the pages would not become resident.)
    #[inline(never)]
    pub fn clear(&mut self) {
        self.blocks.fill(Block::default());
        self.rows.fill(Row::default());
        self.random = self.key_id;
    }

    /// How many keys it can hold.
    pub const fn capacity(&self) -> usize {
        self.blocks.len() * WAYS
    }

    /// Its size and shape.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Candidates { count: self.capacity() }
    }

    /// The fingerprint of the hash key.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// Everything it occupies, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.blocks) + size_of_val(&*self.rows)
    }

    /// The key's block: from the hash's high bits, where the tag has the low ones.
    #[inline(always)]
    const fn block(&self, hash: u64) -> usize {
        scale(hash, self.blocks.len() as u64) as usize
    }
}

/// Gives the key the place of the block's least, if the coin has it so at what that one really has.
#[inline(always)]
fn admit<K, W: Weight>(
    block: &mut Block<W>,
    row: &mut [Candidate<K, W>; WAYS],
    coin: Coin,
    (tag, key, weight): (u8, K, W),
) {
    let (way, price) = block.cheapest(row);
    block.price = price;
    if !coin.is_head(price) {
        return block.light.add(tag, weight);
    }
    let missed = block.light.upper(tag);
    // A free way has no tag and has counted nothing.
    block.light.add(block.tag(way), row[way].lower());
    row[way] = Candidate::new(key, weight, missed, price.min(missed.score()));
    block.give(way, tag);
    // It may have less than the least had: what it missed was perhaps nothing.
    block.price = price.min(row[way].score());
}

/// Takes one block of another table into ours.
fn merge_block<K: Copy + Eq + Default, W: Weight>(
    (block, row): (&mut Block<W>, &mut [Candidate<K, W>; WAYS]),
    (their_block, their_row): (&Block<W>, &[Candidate<K, W>; WAYS]),
) {
    let mut all = [(0, Candidate::default()); 2 * WAYS];
    let mut count = 0;
    let mut put = |tag, candidate| {
        all[count] = (tag, candidate);
        count += 1;
    };
    let twin = |block: &Block<W>, row: &[Candidate<K, W>; WAYS], tag, key| {
        block.ways_with(tag).map(|way| row[way]).find(|candidate| candidate.key == key)
    };
    for (tag, our) in block.taken().map(|way| (block.tag(way), row[way])) {
        put(
            tag,
            match twin(their_block, their_row, tag, our.key) {
                Some(their) => our.and(&their),
                None => our.missing(their_block.light.upper(tag)),
            },
        );
    }
    for (tag, their) in their_block.taken().map(|way| (their_block.tag(way), their_row[way])) {
        if twin(block, row, tag, their.key).is_none() {
            put(tag, their.missing(block.light.upper(tag)));
        }
    }
    block.light.merge(&their_block.light);
    // By the key's hash last, so that the order of merging seldom decides between equals.
    let all = &mut all[..count];
    all.sort_unstable_by_key(|(tag, candidate)| (Reverse(candidate.score()), *tag));
    block.free();
    for (way, (tag, candidate)) in all.iter().enumerate() {
        if way < WAYS {
            row[way] = *candidate;
            block.give(way, *tag);
        } else {
            block.light.add(*tag, candidate.lower());
        }
    }
}

/// A coin that was tossed for a weight: it shows its head at prices that are low enough.
#[derive(Clone, Copy)]
struct Coin {
    drawn: u64,
    weight: u64,
}

impl Coin {
    #[inline(always)]
    const fn toss(random: &mut u64, weight: u64) -> Self {
        // Knuth's linear congruential generator (1998, section 3.3.4), of which only the high bits are random: they
        // decide.
        *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        Self { drawn: *random, weight }
    }

    /// True with the probability weight / (weight + price), both below 2^63; if so, then for any lower price too.
    #[inline(always)]
    const fn is_head(self, price: u64) -> bool {
        scale(self.drawn, self.weight + price) < self.weight
    }
}

impl<K: Copy + Eq + Default, W: Weight> Sketch for TopK<K, W> {
    fn geometry(&self) -> Geometry {
        self.geometry()
    }
    fn key_id(&self) -> u64 {
        self.key_id
    }
    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
    fn clear(&mut self) {
        self.clear();
    }
}

impl<K: Copy + Eq + Default, W: Weight> Merge for TopK<K, W> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.merge(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::oracle::{Amounts, SplitMix64, Zipf, hash};
    use core::cmp::Reverse;
    use std::{collections::BTreeSet, vec::Vec};

    const ONE: Tally = Tally::new(1, 100);

    /// Feeds Zipf traffic over `keys` keys to a table and to an oracle.
    fn feed(table: &mut TopK<u64>, truth: &mut Amounts, seed: u64, keys: u32, exponent: f64, records: u32) {
        let (zipf, mut random) =
            (Zipf::new(crate::test_size::of(keys, keys / 50), exponent), SplitMix64(exponent.to_bits() + seed));
        for _ in 0..crate::test_size::of(records, records / 200) {
            let (key, weight) = (zipf.draw(&mut random), random.weight());
            truth.add(key, weight);
            table.add(hash(1, key), key, weight);
        }
    }

    fn assert_bounds(table: &TopK<u64>, truth: &Amounts) {
        for (key, truth) in truth.iter() {
            let Bounds { lower, upper } = table.bounds(hash(1, key), &key);
            assert!((lower.packets..=upper.packets).contains(&truth.packets), "{key}: {lower:?} {truth:?} {upper:?}");
            assert!((lower.bytes..=upper.bytes).contains(&truth.bytes), "{key}: {lower:?} {truth:?} {upper:?}");
        }
        for candidate in table.iter() {
            assert_eq!(table.get(hash(1, candidate.key), &candidate.key), Some(candidate));
            let (lower, value, upper) = (candidate.lower(), candidate.value(), candidate.upper());
            assert!(lower.bytes <= value.bytes && value.bytes <= upper.bytes, "{candidate:?}");
            assert!(lower.packets <= value.packets && value.packets <= upper.packets, "{candidate:?}");
        }
    }

    fn largest(table: &TopK<u64>, count: usize, metric: Metric) -> Vec<u64> {
        let mut candidates: Vec<_> = table.iter().collect();
        candidates.sort_by_key(|candidate| Reverse(metric.of(candidate.value())));
        candidates[..count].iter().map(|candidate| candidate.key).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn the_top_ten_are_those_of_the_oracle() {
        for exponent in [1.0, 1.1, 1.3] {
            let (mut table, mut truth) = (TopK::with_capacity(1024, 7), Amounts::default());
            feed(&mut table, &mut truth, 0, 100_000, exponent, 500_000);
            assert_bounds(&table, &truth);
            for metric in [Metric::Packets, Metric::Bytes] {
                // Compared by amount, so that keys of equal size may stand for each other.
                let amount = |key: &u64| metric.of(truth.get(*key));
                let top: Vec<u64> = largest(&table, 10, metric).iter().map(amount).collect();
                assert_eq!(top, truth.largest(10, |tally| metric.of(tally)), "s = {exponent}, by {metric:?}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn nearly_all_of_the_top_thousand_are_held() {
        let (mut table, mut truth) = (TopK::with_capacity(8192, 7), Amounts::default());
        feed(&mut table, &mut truth, 1, 300_000, 1.05, 1_000_000);
        let least = truth.largest(1_000, |tally| tally.bytes)[999];
        let right = largest(&table, 1_000, Metric::Bytes).iter().filter(|key| truth.get(**key).bytes >= least).count();
        assert!(right >= 990, "{right} of 1,000");
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn a_flood_of_small_keys_leaves_the_large_ones_alone() {
        let (mut table, mut truth) = (TopK::with_capacity(1024, 7), Amounts::default());
        let mut random = SplitMix64(3);
        let mut add = |key: u64| {
            truth.add(key, ONE);
            table.add(hash(1, key), key, ONE);
        };
        for nth in 0..400_000 {
            // Twenty keys of 0.1 % each among others that come once.
            add(if random.word().is_multiple_of(50) { random.word() % 20 } else { 1_000 + nth });
        }
        assert_bounds(&table, &truth);
        let top: BTreeSet<u64> = largest(&table, 20, Metric::Packets).into_iter().collect();
        assert_eq!(top, (0..20).collect());
        for key in 0..20 {
            let (value, truth) = (table.get(hash(1, key), &key).unwrap().value().packets, truth.get(key).packets);
            assert!(value.abs_diff(truth) * 10 < truth, "{key}: {value}, in truth {truth}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn bounds_are_as_close_as_planned() {
        // Two streams that are hard: everything new, and hardly skewed.
        for exponent in [0.0, 0.5] {
            let (mut table, mut truth) = (TopK::with_error(0.002, 0, 7), Amounts::default());
            feed(&mut table, &mut truth, 2, 200_000, exponent, 400_000);
            let allowed = (truth.total().bytes as f64 * 0.002) as u64;
            let wide = truth.iter().filter(|(key, _)| {
                let Bounds { lower, upper } = table.bounds(hash(1, *key), key);
                upper.bytes - lower.bytes > allowed
            });
            assert!(wide.count() * 100 < truth.len(), "s = {exponent}");
        }
    }

    #[test]
    fn bounds_hold_under_churn_and_after_merging() {
        // Hardly skewed, and 64 entries for 50,000 keys: admission and eviction all the time.
        let table = || TopK::with_capacity(64, 7);
        let (mut one, mut other, mut truth) = (table(), table(), Amounts::default());
        feed(&mut one, &mut truth, 1, 50_000, 0.3, 50_000);
        assert_eq!(one.iter().count(), 64);
        assert_bounds(&one, &truth);
        feed(&mut other, &mut truth, 2, 50_000, 0.3, 50_000);
        one.merge(&other).unwrap();
        assert_bounds(&one, &truth);
        feed(&mut one, &mut truth, 3, 50_000, 0.3, 10_000);
        assert_bounds(&one, &truth);
    }

    /// Counts alone, of a width whose light cells may overflow: feeds two tables and merges them.
    fn assert_bounds_of_counts<W: Weight + From<u32>>() {
        const MOST: u64 = 10_000;
        let mut tables = [0, 1].map(|_| TopK::<u64, W>::with_capacity(256, 7));
        let (mut truth, mut random) = (Amounts::default(), SplitMix64(9));
        let zipf = Zipf::new(crate::test_size::of(20_000, 400), 1.0);
        for nth in 0..crate::test_size::of(60_000, 600) {
            let (key, count) = (zipf.draw(&mut random), random.word() % MOST);
            truth.add(key, Tally::new(count, 0));
            tables[nth % 2].add(hash(1, key), key, W::from(count as u32));
        }
        let [mut table, other] = tables;
        table.merge(&other).unwrap();
        for (key, Tally { packets, .. }) in truth.iter() {
            let Bounds { lower, upper } = table.bounds(hash(1, key), &key);
            assert!((lower.rank()..=upper.rank()).contains(&packets), "{key}: {lower:?} {packets} {upper:?}");
        }
        let held = table.iter().max_by_key(|candidate| candidate.value().rank()).unwrap();
        assert_eq!(truth.get(held.key).packets, truth.largest(1, |tally| tally.packets)[0]);
    }

    #[test]
    fn counts_alone_have_bounds_too() {
        assert_bounds_of_counts::<u32>();
        assert_bounds_of_counts::<u64>();
    }

    #[test]
    fn merging_keeps_the_largest_of_both_and_commutes() {
        let table = || TopK::with_capacity(1024, 7);
        let (mut one, mut other, mut truth) = (table(), table(), Amounts::default());
        feed(&mut one, &mut truth, 1, 20_000, 1.1, 100_000);
        feed(&mut other, &mut truth, 2, 20_000, 1.1, 100_000);
        let (ours, theirs) = (one.clone(), other.clone());
        one.merge(&theirs).unwrap();
        other.merge(&ours).unwrap();
        let sorted = |table: &TopK<u64>| {
            let mut all: Vec<_> =
                table.iter().map(|c| (c.key, c.lower().bytes, c.value().bytes, c.upper().bytes)).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(sorted(&one), sorted(&other));
        let amounts: Vec<u64> = largest(&one, 10, Metric::Bytes).iter().map(|key| truth.get(*key).bytes).collect();
        assert_eq!(amounts, truth.largest(10, |tally| tally.bytes));
        // The empty table changes nothing.
        let mut empty = table();
        empty.merge(&ours).unwrap();
        assert_eq!(sorted(&empty), sorted(&ours));
        assert!(matches!(one.merge(&TopK::with_capacity(2048, 7)), Err(MergeError::Geometry { .. })));
        assert!(matches!(one.merge(&TopK::with_capacity(1024, 8)), Err(MergeError::Key { .. })));
    }

    #[test]
    fn a_hash_is_not_a_key() {
        let mut table = TopK::with_capacity(8, 7);
        assert_eq!(table.get(0, &0), None, "a free way has tag 0 and key 0");
        for (key, times) in [(0, 1), (1, 2), (2, 3)] {
            (0..times).for_each(|_| table.add(0, key, ONE));
        }
        for (key, times) in [(0, 1), (1, 2), (2, 3)] {
            assert_eq!(table.get(0, &key).unwrap().lower().packets, times);
        }
        assert_eq!(table.bounds(0, &9), Bounds::default(), "no other key was ever there");
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn coins_are_fair() {
        let mut random = 5;
        for (weight, price) in [(1, 1), (1, 9), (572, 100_000), (1 << 62, 1 << 62), (1, 0)] {
            let heads = (0..100_000).filter(|_| Coin::toss(&mut random, weight).is_head(price)).count() as f64;
            let expected = 100_000.0 * weight as f64 / (weight as f64 + price as f64);
            // Five standard deviations.
            assert!((heads - expected).abs() <= 5.0 * expected.sqrt(), "{weight}, {price}: {heads}");
        }
    }

    #[test]
    fn a_batch_adds_as_one_after_the_other() {
        for entries in [64, 8192] {
            let (mut one_by_one, mut batched) = (TopK::with_capacity(entries, 7), TopK::with_capacity(entries, 7));
            let mut random = SplitMix64(1);
            let items: Vec<_> =
                (0..crate::test_size::of(5_000, 200)).map(|_| (random.word() % 999, random.weight())).collect();
            items.iter().for_each(|(key, weight)| one_by_one.add(hash(1, *key), *key, *weight));
            batched.add_batch(&items, |(key, weight)| (hash(1, *key), *key, *weight));
            assert_eq!(one_by_one, batched);
        }
    }

    #[test]
    fn capacity_is_rounded_up_and_kept_in_range() {
        for (entries, capacity) in [(0, 8), (1, 8), (8, 8), (9, 16), (1000, 1000), (1025, 1032)] {
            assert_eq!(TopK::<u64>::with_capacity(entries, 7).capacity(), capacity);
        }
        for error in [f64::NAN, 1.0, 7.0] {
            assert_eq!(TopK::<u64>::with_error(error, 0, 7).capacity(), 8, "{error}");
        }
        let table = TopK::<crate::flow::FlowKey>::with_error(0.0005, 1024, 7);
        assert_eq!((table.capacity(), table.key_id()), (8000, 7));
        assert_eq!(table.memory_bytes() - size_of_val(&table), 1000 * (64 + 8 * 72));
    }

    #[test]
    fn clearing_is_as_good_as_new_and_extremes_saturate() {
        let new = TopK::with_capacity(64, 7);
        let mut table = new.clone();
        feed(&mut table, &mut Amounts::default(), 1, 1_000, 1.0, 5_000);
        assert_ne!(table, new);
        table.clear();
        assert_eq!(table, new);
        let most = Tally::new(u64::MAX, u64::MAX);
        for key in 0..10 {
            table.add(0, key, most);
            table.add(0, key, most);
        }
        assert_eq!(table.iter().count(), 8);
        assert!(table.iter().all(|candidate| candidate.upper() == most));
        let mut twice = table.clone();
        twice.merge(&table).unwrap();
        assert!(twice.iter().all(|candidate| candidate.upper() == most));
    }
}
