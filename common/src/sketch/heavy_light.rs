//! Heavy and light: how many packets and bytes, exactly for the few large keys, closely for the many small ones?
//!
//! A block keeps its four largest keys apart, each with a counter of its own, and all others in half as wide counters,
//! one a key. Large keys never reach these light cells, and without them half the bits suffice: that is where the
//! accuracy comes from. A key that outgrows the smallest of the four takes its place; its light cell is raised to what
//! that one had, so that every estimate stays an upper bound.
//!
//! **Errs** upwards only: the truth is never above `upper`. `lower` is 0 for a small key; for a large one it is what it
//! has had since it came in or less, and holds unless another key has the same block and the same 32-bit fingerprint:
//! one chance in 2^32 for each key of the block. Mean excess in packets with 1 MiB of 32-bit counters, beside a
//! conservative count-min's of four rows and of the best number of rows:
//!
//! | 10 million packets | heavy and light | count-min, 4 rows | best |
//! |---|---|---|---|
//! | Zipf 1.05, 670,000 keys | 4.8 | 10.5 | 8.0 (2 rows) |
//! | uniform, 1,000,000 keys | 21.6 | 55.6 | 35.2 (2 rows) |
//!
//! The largest error of all was 126 and 55 packets, where count-min's of two rows was 6,463 and 50.
//!
//! One light cell a key, and not two of which the less counts: with two rows of cells, and seven large keys a block of
//! twice the size, the error was 3.4 and 20.5 packets, and an estimate took twice as long.
//!
//! **Cost** at error 0.0005: 237 blocks of 128 bytes with 32-bit counters = 30 KiB, 119 KiB with packets and bytes. A
//! large key touches one cache line (with packets and bytes at most two), a small one at most two, unless it outgrows a
//! large one.
//!
//! **Papers**: Roy, Khan and Alonso, "Augmented sketch: faster and more accurate stream processing", 2016 (exact
//! counts before a sketch, exchanged with what outgrows them); Yang et al., "Elastic sketch: adaptive and fast
//! network-wide measurements", 2018 (heavy buckets before narrow light counters); the bound on what is outside:
//! Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams", 2005.
//! Coming in at random (Ben Basat et al., "Randomized admission policy", 2017) changed the error by less than 2 %.
//!
//! **Why not a crate**: crates' sketches of this kind lose the bound when a key is put out, or keep one count.

use alloc::{boxed::Box, vec};
use core::{cmp::Reverse, f64::consts::E, hint::select_unpredictable};

use super::{
    Bounds, Frequency, Geometry, Merge, MergeError, Sketch, check_mergeable,
    count_min::{AHEAD, PREFETCH_ABOVE_BYTES},
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
    weight::{Weight, sum},
};
use crate::{hash::scale, ledger::Tally, simd::prefetch};

/// Large keys a block.
pub const WAYS: usize = 4;
/// Light cells a block: with 32-bit counters and 16-bit cells it fills two cache lines.
const CELLS: usize = 46;
/// Blocks at most: 4 GiB with 32-bit counters.
pub const BLOCKS_MAX: usize = 1 << 25;

/// What the keys of one block share. With 64-bit counters the heavy part is in one cache line; with any, the first line
/// has what each small key reads of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
struct Block<W: Weight> {
    /// Of the large keys; 0 where a way is free.
    fingerprints: [u32; WAYS],
    /// At least what any key had that is not large.
    ceiling: W,
    /// Of the large keys: at least what they had.
    counts: [W; WAYS],
    /// Of the other keys: one cell a key, which is at least what the key had, or full.
    light: [W::Narrow; CELLS],
}

impl<W: Weight> Default for Block<W> {
    fn default() -> Self {
        let (ceiling, counts, light) = Default::default();
        Self { fingerprints: [0; WAYS], ceiling, counts, light: [light; CELLS] }
    }
}

/// A sketch that counts the largest keys of each block apart; of packets and bytes, the largest by bytes, unless said
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeavyLight<W: Weight = Tally> {
    blocks: Box<[Block<W>]>,
    total: W,
    key_id: u64,
}

impl<W: Weight> HeavyLight<W> {
    /// A sketch with as many light cells as a [`CountMin`](super::CountMin) of this error has in two rows: e / `error`
    /// each, at most in [`BLOCKS_MAX`] blocks. Not-a-number gives the smallest.
    ///
    /// No estimate exceeds that of a plain count-min of one row of these cells while no light cell is full, which each
    /// is at 2^32 - 2 (at 65,534 where counts have 32 bits: take 64 for more). [`HeavyLight::bounds`] tell what each comes
    /// to.
    pub fn with_error(error: f64, key_id: u64) -> Self {
        let cells = libm::ceil(2.0 * E / error.clamp(1e-9, 1.0)) as usize;
        let blocks = vec![Block::default(); cells.div_ceil(CELLS).clamp(1, BLOCKS_MAX)].into_boxed_slice();
        Self { blocks, total: W::default(), key_id }
    }

    /// Adds `weight` to the key with this hash; gives the key's estimate including it, never below the truth.
    #[inline]
    pub fn add(&mut self, hash: u64, weight: W) -> W {
        self.total = self.total.saturating_add(weight);
        let at = self.block(hash);
        self.blocks[at].add(fingerprint(hash), weight)
    }

    /// Adds `weights[i]` to the key with `hashes[i]`, as [`HeavyLight::add`] does one after the other; as many as the
    /// shorter of the two has.
    pub fn add_batch(&mut self, hashes: &[u64], weights: &[W]) {
        let count = hashes.len().min(weights.len());
        self.total = self.total.saturating_add(sum(&weights[..count]));
        let is_far = self.is_far();
        for (nth, (&hash, &weight)) in hashes.iter().zip(weights).enumerate() {
            if is_far {
                self.ask_ahead(hashes, nth);
            }
            let at = self.block(hash);
            self.blocks[at].add(fingerprint(hash), weight);
        }
    }

    /// The weight of the key with this hash, never below the truth.
    #[inline]
    pub fn estimate(&self, hash: u64) -> W {
        self.blocks[self.block(hash)].upper(fingerprint(hash))
    }

    /// Puts what [`HeavyLight::estimate`] says of `hashes[i]` into `estimates[i]`; as many as the shorter of the two
    /// has.
    pub fn estimate_batch(&self, hashes: &[u64], estimates: &mut [W]) {
        let is_far = self.is_far();
        for (nth, (&hash, estimate)) in hashes.iter().zip(estimates).enumerate() {
            if is_far {
                self.ask_ahead(hashes, nth);
            }
            *estimate = self.estimate(hash);
        }
    }

    /// Between what the weight of the key with this hash lies.
    #[inline]
    pub fn bounds(&self, hash: u64) -> Bounds<W> {
        let (block, fingerprint) = (&self.blocks[self.block(hash)], fingerprint(hash));
        match block.way(fingerprint) {
            // What it may have had before it came in was at most what its light cell said then, and that only grows.
            way @ 0..WAYS => {
                Bounds { lower: block.counts[way].saturating_sub(block.outside(fingerprint)), upper: block.counts[way] }
            }
            _ => Bounds { lower: W::default(), upper: block.outside(fingerprint) },
        }
    }

    /// Takes in another sketch: of both blocks' large keys the largest stay. Bounds hold, and stay as close as the sum
    /// of both sketches' were; one sketch fed with everything might have done better. The order of merges may change
    /// which of a block's keys stay large.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        self.total = self.total.saturating_add(other.total);
        let empty = Block::default();
        for (block, other) in self.blocks.iter_mut().zip(&other.blocks) {
            // What is empty leaves the other as it is, the order of its ways too.
            if *block == empty {
                *block = *other;
            } else if *other != empty {
                block.merge_in(other);
            }
        }
        Ok(())
    }

    /// Forgets everything; writes every cell. (Not inlined: next to the allocation, the writes would be optimised
    /// out, and the pages would not become resident.)
    #[inline(never)]
    pub fn clear(&mut self) {
        self.blocks.fill(Block::default());
        self.total = W::default();
    }

    /// All that was added.
    pub const fn total(&self) -> W {
        self.total
    }

    /// Its size and shape.
    pub const fn geometry(&self) -> Geometry {
        Geometry::CounterBlocks { count: self.blocks.len(), bytes: size_of::<Block<W>>() }
    }

    /// The fingerprint of the hash key.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// Everything it occupies, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.blocks)
    }

    /// The key's block: the hash as a fraction of the blocks.
    #[inline(always)]
    const fn block(&self, hash: u64) -> usize {
        scale(hash, self.blocks.len() as u64) as usize
    }

    /// At the `nth` key of a batch, asks for what one further on may touch. Not for counts behind the first line: whose
    /// they are is not known yet, and large keys come often enough to be near.
    #[inline(always)]
    fn ask_ahead(&self, hashes: &[u64], nth: usize) {
        if let Some(&hash) = hashes.get(nth + AHEAD) {
            let block = &self.blocks[self.block(hash)];
            prefetch(block);
            prefetch(&block.light[place(fingerprint(hash))]);
        }
    }

    const fn is_far(&self) -> bool {
        size_of_val(&*self.blocks) > PREFETCH_ABOVE_BYTES
    }
}

impl<W: Weight> Block<W> {
    #[inline(always)]
    fn add(&mut self, fingerprint: u32, weight: W) -> W {
        let way = self.way(fingerprint);
        if way < WAYS {
            self.counts[way] = self.counts[way].saturating_add(weight);
            self.counts[way]
        } else {
            self.add_outside(fingerprint, weight)
        }
    }

    /// Adds to a key that is in no way: in its light cell, or, if it has outgrown the smallest of the large keys, in
    /// its place.
    #[inline(always)]
    fn add_outside(&mut self, fingerprint: u32, weight: W) -> W {
        let upper = self.outside(fingerprint).saturating_add(weight);
        // What was put out last was the smallest then, so nothing below the ceiling gets in: four counts less to read.
        if upper.rank() <= self.ceiling.rank() || !self.replace_smallest(fingerprint, upper) {
            self.raise(fingerprint, upper);
        }
        upper
    }

    /// Lets a key in if it is larger than the smallest that is in.
    fn replace_smallest(&mut self, fingerprint: u32, count: W) -> bool {
        let smallest = (1..WAYS).fold(
            0,
            |least, way| {
                if self.counts[way].rank() < self.counts[least].rank() { way } else { least }
            },
        );
        let (evicted, evicted_count) = (self.fingerprints[smallest], self.counts[smallest]);
        if count.rank() <= evicted_count.rank() {
            // The smallest is known now: what has not outgrown it either need not look.
            self.ceiling = self.ceiling.most(evicted_count);
            return false;
        }
        (self.fingerprints[smallest], self.counts[smallest]) = (fingerprint, count);
        self.raise(evicted, evicted_count);
        true
    }

    /// Raises a key's light cell to what it had, if that is not higher already.
    #[inline(always)]
    fn raise(&mut self, fingerprint: u32, count: W) {
        self.ceiling = self.ceiling.most(count);
        let cell = &mut self.light[place(fingerprint)];
        *cell = W::from_narrow(*cell).most(count).narrow();
    }

    /// The way with this fingerprint; [`WAYS`] if there is none.
    #[inline(always)]
    fn way(&self, fingerprint: u32) -> usize {
        // All four compared at once, without a branch: small keys are in no way. (Without bit 0: a compiler that makes
        // it of the comparison itself treats one way unlike the others, and then compares one by one.)
        const BITS: [u32; WAYS] = [2, 4, 8, 16];
        let bit = |way: usize| if self.fingerprints[way] == fingerprint { BITS[way] } else { 0 };
        let matches = core::array::from_fn::<_, WAYS, _>(bit).into_iter().fold(0, |matches, bit| matches | bit);
        // Four ways have bits 1 to 4; the fifth says that there is none.
        (matches | 2 << WAYS).trailing_zeros() as usize - 1
    }

    /// At least what the key had.
    #[inline(always)]
    fn upper(&self, fingerprint: u32) -> W {
        let way = self.way(fingerprint);
        // Both are read, and one is chosen without a branch: which it will be nobody can foresee.
        select_unpredictable(way < WAYS, self.counts[way % WAYS], self.outside(fingerprint))
    }

    /// At least what the key had while it was in no way: its light cell, or, where that is full, what no key outside
    /// exceeds.
    #[inline(always)]
    fn outside(&self, fingerprint: u32) -> W {
        W::from_narrow(self.light[place(fingerprint)]).least(self.ceiling)
    }

    /// Takes in another block, neither being empty.
    fn merge_in(&mut self, other: &Self) {
        let mut large = [(0, W::default()); 2 * WAYS];
        for (entry, way) in large.iter_mut().zip(0..WAYS) {
            let fingerprint = self.fingerprints[way];
            if fingerprint != 0 {
                *entry = (fingerprint, self.counts[way].saturating_add(other.upper(fingerprint)));
            }
        }
        for (entry, way) in large[WAYS..].iter_mut().zip(0..WAYS) {
            let fingerprint = other.fingerprints[way];
            if fingerprint != 0 && self.way(fingerprint) == WAYS {
                *entry = (fingerprint, other.counts[way].saturating_add(self.outside(fingerprint)));
            }
        }
        // Equal ranks in an order that does not depend on which of the two takes in the other.
        large.sort_unstable_by_key(|&(fingerprint, count)| Reverse((count.rank(), fingerprint)));
        self.ceiling = self.ceiling.saturating_add(other.ceiling);
        for (cell, &other) in self.light.iter_mut().zip(&other.light) {
            *cell = W::from_narrow(*cell).saturating_add(W::from_narrow(other)).narrow();
        }
        let (stay, leave) = large.split_at(WAYS);
        for (way, &(fingerprint, count)) in stay.iter().enumerate() {
            (self.fingerprints[way], self.counts[way]) = (fingerprint, count);
        }
        leave.iter().for_each(|&(fingerprint, count)| self.raise(fingerprint, count));
    }
}

impl<W: Weight> Sketch for HeavyLight<W> {
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

/// Part after part of all blocks. The weights' width is not written: a number that is too large for it becomes the
/// largest there is.
impl<W: Weight> Image for HeavyLight<W> {
    const KIND: Kind = Kind::HeavyLight;

    fn write(&self, payload: &mut Writer) {
        let Self { blocks, total, key_id: _ } = self;
        payload.varint(blocks.len() as u64);
        payload.weight(*total);
        let fingerprints = blocks.iter().flat_map(|block| &block.fingerprints);
        payload.numbers(Literal::Varint, fingerprints.map(|fingerprint| u64::from(*fingerprint)));
        payload.weights(&blocks.iter().flat_map(|block| block.counts));
        payload.weights(&blocks.iter().map(|block| block.ceiling));
        let cells = blocks.iter().flat_map(|block| &block.light);
        payload.weights(&cells.map(|cell| W::from_narrow(*cell)));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let count = payload.within("the blocks", 1..=BLOCKS_MAX as u64, "from 1 to 2^25", Reader::varint)? as usize;
        let total = payload.weight("the total")?;
        let mut blocks: Box<[Block<W>]> = payload.allocate("the blocks", count)?;
        payload.numbers("a fingerprint", Literal::Varint, count * WAYS, |at, fingerprint| {
            blocks[at / WAYS].fingerprints[at % WAYS] = u32::try_from(fingerprint).map_err(|_| "below 2^32")?;
            Ok(())
        })?;
        payload.weights("a count", count * WAYS, |at, part| {
            let count = &mut blocks[at / WAYS].counts[at % WAYS];
            *count = count.saturating_add(part);
        })?;
        payload.weights("a ceiling", count, |at, part| {
            blocks[at].ceiling = blocks[at].ceiling.saturating_add(part);
        })?;
        payload.weights("a light cell", count * CELLS, |at, part| {
            let cell = &mut blocks[at / CELLS].light[at % CELLS];
            *cell = W::from_narrow(*cell).saturating_add(part).narrow();
        })?;
        Ok(Self { blocks, total, key_id })
    }
}

impl<W: Weight> Frequency for HeavyLight<W> {
    type Weight = W;

    fn add(&mut self, hash: u64, weight: W) -> W {
        self.add(hash, weight)
    }
    fn estimate(&self, hash: u64) -> W {
        self.estimate(hash)
    }
}

impl<W: Weight> Merge for HeavyLight<W> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.merge(other)
    }
}

/// The hash's low half, of which the number of a block reads nothing; never 0, which marks a free way.
#[inline(always)]
const fn fingerprint(hash: u64) -> u32 {
    match hash as u32 {
        0 => 1,
        fingerprint => fingerprint,
    }
}

/// A key's light cell. Only by the fingerprint: nothing else is known of a key that is put out.
#[inline(always)]
const fn place(fingerprint: u32) -> usize {
    ((fingerprint as u64 * CELLS as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hash::mix,
        sketch::{
            CountMin,
            oracle::{Amounts, SplitMix64, Zipf},
        },
    };
    use core::mem::offset_of;
    use std::{collections::HashMap, vec::Vec};

    const KEY: u64 = 7;

    /// Feeds Zipf traffic, or uniform with an exponent of 0.
    fn feed(sketch: &mut HeavyLight, truth: &mut Amounts, (keys, exponent): (u32, f64), seed: u64, records: u32) {
        let (zipf, mut random) = (Zipf::new(crate::test_size::of(keys, keys / 50), exponent), SplitMix64(seed));
        for _ in 0..crate::test_size::of(records, records / 400) {
            let (hash, weight) = (mix(zipf.draw(&mut random)), random.weight());
            truth.add(hash, weight);
            let estimate = sketch.add(hash, weight);
            assert_eq!(estimate, sketch.estimate(hash));
        }
    }

    /// Every key's truth is within its bounds.
    fn check(sketch: &HeavyLight, truth: &Amounts) {
        assert_eq!(sketch.total(), truth.total());
        for (hash, truth) in truth.iter() {
            let Bounds { lower, upper } = sketch.bounds(hash);
            assert_eq!(upper, sketch.estimate(hash));
            assert!(lower.packets <= truth.packets && truth.packets <= upper.packets, "{lower:?} {truth:?} {upper:?}");
            assert!(lower.bytes <= truth.bytes && truth.bytes <= upper.bytes, "{lower:?} {truth:?} {upper:?}");
        }
    }

    #[test]
    fn bounds_hold_alone_and_after_merging_and_feeding_on() {
        for (seed, traffic) in [(1, (5_000, 1.05)), (2, (5_000, 0.0)), (3, (300, 0.5)), (4, (20_000, 1.5))] {
            let [mut one, mut other] = [0; 2].map(|_| HeavyLight::with_error(0.005, KEY));
            let mut truth = Amounts::default();
            feed(&mut one, &mut truth, traffic, seed, 10_000);
            check(&one, &truth);
            feed(&mut other, &mut truth, traffic, seed + 10, 10_000);
            one.merge(&other).unwrap();
            check(&one, &truth);
            feed(&mut one, &mut truth, traffic, seed + 20, 10_000);
            check(&one, &truth);
        }
    }

    #[test]
    fn bounds_hold_for_what_outgrows_the_light_cells() {
        // One block, forty keys, of which nearly all outgrow sixteen bits while they are outside.
        let [mut one, mut other] = [0; 2].map(|_| HeavyLight::<u32>::with_error(1.0, KEY));
        let (mut truth, mut random) = (HashMap::<u64, u32>::new(), SplitMix64(5));
        let check = |sketch: &HeavyLight<u32>, truth: &HashMap<u64, u32>| {
            for (&hash, &truth) in truth {
                let Bounds { lower, upper } = sketch.bounds(hash);
                assert!(lower <= truth && truth <= upper && upper < u32::MAX / 2, "{lower} {truth} {upper}");
            }
        };
        let (records, most) = crate::test_size::of((20_000, 1_000), (1_000, 40_000));
        for nth in 0..records {
            let (hash, weight) = (mix(random.word() % 40), (random.word() % most) as u32);
            *truth.entry(hash).or_default() += weight;
            (if nth % 2 == 0 { &mut one } else { &mut other }).add(hash, weight);
        }
        assert!(truth.values().all(|&count| count > 200_000));
        one.merge(&other).unwrap();
        check(&one, &truth);
        let foreign = one.bounds(mix(1_000));
        // Its light cell is full, so that the ceiling is its bound, which rises with each key that is turned away.
        assert!(foreign.lower == 0 && foreign.upper <= 8 * truth.values().max().unwrap(), "{foreign:?}");
    }

    #[test]
    fn the_four_largest_of_a_block_are_exact_and_then_nearly() {
        let mut sketch = HeavyLight::<u64>::with_error(1.0, KEY);
        (1..=4).for_each(|key| _ = sketch.add(mix(key), key * 1_000));
        (1..=4).for_each(|key| _ = sketch.add(mix(key), key));
        for key in 1..=4 {
            assert_eq!(sketch.bounds(mix(key)), Bounds { lower: key * 1_001, upper: key * 1_001 });
        }
        // Key 8 is outside until it outgrows key 1, whose count goes where it came from.
        assert_eq!((sketch.add(mix(8), 1_001), sketch.bounds(mix(8))), (1_001, Bounds { lower: 0, upper: 1_001 }));
        sketch.add(mix(8), 1);
        assert_eq!(sketch.bounds(mix(8)), Bounds { lower: 1, upper: 1_002 });
        assert_eq!(sketch.bounds(mix(1)), Bounds { lower: 0, upper: 1_001 });
        assert_eq!(sketch.bounds(mix(2)), Bounds { lower: 2_002 - 1_001 * u64::from(shares(2, 1)), upper: 2_002 });
        assert!(sketch.estimate(mix(9)) <= 1_001);
    }

    /// Whether two keys have the same light cell.
    fn shares(one: u64, other: u64) -> bool {
        place(fingerprint(mix(one))) == place(fingerprint(mix(other)))
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn the_error_is_half_of_a_conservative_count_min_of_equal_memory() {
        // A sixteenth of the traffic and the memory in the table above.
        for exponent in [1.05, 0.0] {
            let mut heavy_light = HeavyLight::<u32>::with_error(2.0 * E / (512.0 * 46.0) * 1.000_001, KEY);
            let mut count_min = CountMin::<u32>::with_error(E / 4_096.0 * 1.000_001, 0.02, KEY);
            let mut truth = HashMap::<u64, u32>::new();
            let (zipf, mut random) = (Zipf::new(62_500, exponent), SplitMix64(8));
            for _ in 0..625_000 {
                let hash = mix(zipf.draw(&mut random));
                *truth.entry(hash).or_default() += 1;
                heavy_light.add(hash, 1);
                count_min.add(hash, 1);
            }
            let kib = |bytes: usize| (bytes + 512) >> 10;
            assert_eq!((kib(heavy_light.memory_bytes()), kib(count_min.memory_bytes())), (64, 64));
            let excess = |estimate: &dyn Fn(u64) -> u32| {
                truth.iter().map(|(&hash, &truth)| u64::from(estimate(hash) - truth)).sum::<u64>()
            };
            let (ours, theirs) = (excess(&|hash| heavy_light.estimate(hash)), excess(&|hash| count_min.estimate(hash)));
            assert!(ours * 2 < theirs, "{ours} of {theirs}");
        }
    }

    #[test]
    fn a_batch_is_one_after_the_other_near_and_far() {
        const KEYS: usize = crate::test_size::of(1_003, 67);
        for error in [0.01, 0.00001] {
            let mut one_by_one = HeavyLight::<u32>::with_error(error, KEY);
            let mut batched = one_by_one.clone();
            assert_eq!(size_of_val(&*batched.blocks) > PREFETCH_ABOVE_BYTES, error < 0.001);
            let hashes: Vec<_> = (0..KEYS as u64).map(|key| mix(key % (KEYS as u64 * 2 / 3))).collect();
            let weights: Vec<_> = (0..KEYS as u32 - 2).collect();
            batched.add_batch(&hashes, &weights);
            hashes.iter().zip(&weights).for_each(|(&hash, &weight)| _ = one_by_one.add(hash, weight));
            assert_eq!(batched, one_by_one);
            let mut estimates = [7; KEYS - 4];
            batched.estimate_batch(&hashes, &mut estimates);
            assert!(hashes.iter().zip(estimates).all(|(&hash, estimate)| batched.estimate(hash) == estimate));
        }
    }

    #[test]
    fn geometry_follows_from_the_error_and_extremes_stay_in_range() {
        let sketch = HeavyLight::<u32>::with_error(0.0005, KEY);
        assert_eq!(sketch.geometry(), Geometry::CounterBlocks { count: 237, bytes: 128 });
        assert_eq!(sketch.memory_bytes() - size_of_val(&sketch), 237 * 128);
        assert_eq!((size_of::<Block<u64>>(), size_of::<Block<Tally>>()), (256, 512));
        let (ceiling, counts) = (offset_of!(Block<Tally>, ceiling), offset_of!(Block<u64>, counts));
        assert!(ceiling + size_of::<Tally>() <= 64 && counts + size_of::<[u64; WAYS]>() <= 64, "{ceiling}, {counts}");
        for error in [f64::NAN, f64::INFINITY, 9.0, 1.0] {
            let mut sketch = HeavyLight::with_error(error, KEY);
            assert_eq!(sketch.geometry(), HeavyLight::<Tally>::with_error(1.0, KEY).geometry());
            for key in 0..40 {
                // Hashes with every low half that is special, and weights of nothing and of all there is.
                let hash = [0, u64::MAX, u64::MAX << 32, 1 << 32 | 1, mix(key)][key as usize % 5];
                sketch.add(hash, Tally::default());
                sketch.add(hash, Tally::new(u64::MAX, key));
                assert_eq!(sketch.add(hash, Tally::new(1, 0)).packets, u64::MAX);
            }
            let other = sketch.clone();
            sketch.merge(&other).unwrap();
            assert_eq!(sketch.estimate(0).packets, u64::MAX);
        }
    }
}
