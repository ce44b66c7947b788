//! Blocked count-min: how many packets and bytes, in one or two cache lines a key?
//!
//! As [`CountMin`](super::CountMin), but all cells of a key lie in one block of 16: two in one half, one in the other.
//! With 32-bit counters a block is a cache line, with 64-bit ones two that are neighbours. So where count-min with four
//! rows waits for four lines and as many pages, this waits for one page and one line or two.
//!
//! **Errs** upwards only, by about as much as count-min with four rows of the same size together: that keys of one
//! block meet again and again costs what three cells, of which each is in use less, save. Measured with 1 MiB of 32-bit
//! counters, mean excess in packets, beside count-min's:
//!
//! | 10 million packets | plain | conservative |
//! |---|---|---|
//! | Zipf 1.05, 670,000 keys | 17.8 / 19.9 | 11.3 / 10.5 |
//! | uniform, 1,000,000 keys | 87.2 / 111.6 | 49.1 / 55.6 |
//!
//! The mean hides the difference that matters: two keys of a block share all three cells with a probability of 1/448,
//! so beside each large key one in 448 times the number of blocks is estimated like it: in the first line of the table
//! the largest excess was 48,690 packets, and count-min's 407. [`BlockedCountMin::excess`] counts them in. Where the
//! largest keys are looked for, [`HeavyLight`](super::HeavyLight) keeps those out of the cells. And where there are few
//! keys for so many cells, three cells are worse than four rows, both being nearly exact.
//!
//! **Cost** at error 0.0005: 1,360 blocks of 64 bytes with 32-bit counters = 85 KiB, 340 KiB with packets and bytes. An
//! update touches one cache line with 32-bit counters, two with 64-bit ones, at most three with packets and bytes.
//!
//! **Papers**: count-min: Cormode and Muthukrishnan, 2005; blocks: Putze, Sanders and Singler, "Cache-, hash- and
//! space-efficient Bloom filters", 2007, there for bits.
//!
//! **Why not a crate**: none has it.

use alloc::{boxed::Box, vec};
use core::{f64::consts::E, marker::PhantomData};

use super::{
    Bounds, Frequency, Geometry, Merge, MergeError, Sketch, check_mergeable,
    count_min::{AHEAD, Conservative, PREFETCH_ABOVE_BYTES, Plain, Update, least, read},
    image::{Image, ImageError, Kind, Reader, Writer},
    weight::{Weight, excess, sum},
};
use crate::{hash::scale, ledger::Tally, simd::prefetch};

/// Cells a block.
const CELLS: usize = 16;
/// Cells a half of a block: a key has two in one half, and one in the other.
const HALF: usize = CELLS / 2;
/// Cells a key has.
const DEPTH: usize = 3;
/// Rows of the count-min sketch that has as many cells.
const ROWS: usize = 4;
/// Blocks at most: 4 GiB with 32-bit counters.
pub const BLOCKS_MAX: usize = 1 << 26;

/// What the keys of one block share: with 32-bit counters a cache line, with 64-bit ones two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Block<W>([W; CELLS]);

/// A count-min sketch with all cells of a key in one block; of packets and bytes with conservative update unless said
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedCountMin<W = Tally, U = Conservative> {
    blocks: Box<[Block<W>]>,
    total: W,
    key_id: u64,
    update: PhantomData<U>,
}

impl<W: Weight> BlockedCountMin<W> {
    /// A sketch with conservative update and as many cells as a [`CountMin`](super::CountMin) of four rows and this
    /// error has: e / `error` a row, at most in [`BLOCKS_MAX`] blocks. Not-a-number gives the smallest.
    ///
    /// How the blocks fill decides what the error comes to: ask [`BlockedCountMin::excess`].
    pub fn with_error(error: f64, key_id: u64) -> Self {
        Self::new(error, key_id)
    }
}

impl<W: Weight> BlockedCountMin<W, Plain> {
    /// A sketch with plain update; otherwise as [`BlockedCountMin::with_error`].
    pub fn plain_with_error(error: f64, key_id: u64) -> Self {
        Self::new(error, key_id)
    }
}

impl<W: Weight, U: Update> BlockedCountMin<W, U> {
    fn new(error: f64, key_id: u64) -> Self {
        let cells = libm::ceil(E / error.clamp(1e-9, 1.0)) as usize * ROWS;
        let blocks = vec![Block::default(); cells.div_ceil(CELLS).clamp(1, BLOCKS_MAX)].into_boxed_slice();
        Self { blocks, total: W::default(), key_id, update: PhantomData }
    }

    /// Adds `weight` to the key with this hash; gives the key's estimate including it, never below the truth.
    #[inline]
    pub fn add(&mut self, hash: u64, weight: W) -> W {
        self.total = self.total.saturating_add(weight);
        self.raise(hash, weight)
    }

    /// Adds `weights[i]` to the key with `hashes[i]`, as [`BlockedCountMin::add`] does one after the other; as many as
    /// the shorter of the two has.
    pub fn add_batch(&mut self, hashes: &[u64], weights: &[W]) {
        let count = hashes.len().min(weights.len());
        self.total = self.total.saturating_add(sum(&weights[..count]));
        let is_far = self.is_far();
        for (nth, (&hash, &weight)) in hashes.iter().zip(weights).enumerate() {
            if is_far {
                self.ask_ahead(hashes, nth);
            }
            self.raise(hash, weight);
        }
    }

    /// The weight of the key with this hash, never below the truth.
    #[inline]
    pub fn estimate(&self, hash: u64) -> W {
        let Block(cells) = &self.blocks[self.block(hash)];
        least(read(cells, places(hash)))
    }

    /// Puts what [`BlockedCountMin::estimate`] says of `hashes[i]` into `estimates[i]`; as many as the shorter of the
    /// two has.
    pub fn estimate_batch(&self, hashes: &[u64], estimates: &mut [W]) {
        let is_far = self.is_far();
        for (nth, (&hash, estimate)) in hashes.iter().zip(estimates).enumerate() {
            if is_far {
                self.ask_ahead(hashes, nth);
            }
            *estimate = self.estimate(hash);
        }
    }

    /// By how much an estimate can exceed the truth, with at least the probability `confidence`: from the counters as
    /// they are, block by block, rounded up by less than 2 %. Reads the sketch a dozen times for each number.
    ///
    /// It holds as, and for the reason, given at [`CountMin::excess`](super::CountMin::excess).
    pub fn excess(&self, confidence: f64) -> W {
        // Of a half, all pairs of cells are as likely, and of the other all cells; each half has the pair in half of
        // the cases.
        let share = |above: [usize; 2]| {
            let ways = |[pair, other]: [usize; 2]| pair * pair.saturating_sub(1) * other;
            (ways(above) + ways([above[1], above[0]])) as f64 / (2 * HALF * (HALF - 1) * HALF) as f64
        };
        excess(1.0 - confidence, self.total, |read, excess| {
            let above = |half: &[W]| half.iter().filter(|&&cell| read(cell) > excess).count();
            let halves = |Block(cells): &Block<W>| [above(&cells[..HALF]), above(&cells[HALF..])];
            self.blocks.iter().map(|block| share(halves(block))).sum::<f64>() / self.blocks.len() as f64
        })
    }

    /// Between what the weight of the key with this hash lies, given what [`BlockedCountMin::excess`] says. The upper
    /// end always holds, the lower one with the excess's confidence.
    #[inline]
    pub fn bounds(&self, hash: u64, excess: W) -> Bounds<W> {
        let upper = self.estimate(hash);
        Bounds { lower: upper.saturating_sub(excess), upper }
    }

    /// Adds another sketch cell by cell: with plain updates, exactly as if one had been fed both; with conservative
    /// ones estimates stay upper bounds, but may exceed those of one sketch fed with everything.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        self.total = self.total.saturating_add(other.total);
        for (Block(cells), Block(others)) in self.blocks.iter_mut().zip(&other.blocks) {
            cells.iter_mut().zip(others).for_each(|(cell, other)| *cell = cell.saturating_add(*other));
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

    #[inline(always)]
    fn raise(&mut self, hash: u64, weight: W) -> W {
        let at = self.block(hash);
        U::raise(&mut self.blocks[at].0, places(hash), weight)
    }

    /// The key's block: the hash as a fraction of the blocks.
    #[inline(always)]
    const fn block(&self, hash: u64) -> usize {
        scale(hash, self.blocks.len() as u64) as usize
    }

    /// At the `nth` key of a batch, asks for the cells of one further on.
    #[inline(always)]
    fn ask_ahead(&self, hashes: &[u64], nth: usize) {
        if let Some(&hash) = hashes.get(nth + AHEAD) {
            let Block(cells) = &self.blocks[self.block(hash)];
            places(hash).iter().for_each(|&place| prefetch(&cells[place]));
        }
    }

    const fn is_far(&self) -> bool {
        size_of_val(&*self.blocks) > PREFETCH_ABOVE_BYTES
    }
}

impl<W: Weight, U: Update> Sketch for BlockedCountMin<W, U> {
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

/// The weights' width is not written: a number that is too large for it becomes the largest there is.
impl<W: Weight, U: Update> Image for BlockedCountMin<W, U> {
    const KIND: Kind = Kind::BlockedCountMin;

    fn write(&self, payload: &mut Writer) {
        let Self { blocks, total, key_id: _, update: PhantomData } = self;
        payload.varint(U::NUMBER.into());
        payload.varint(blocks.len() as u64);
        payload.weight(*total);
        payload.weights(&blocks.iter().flat_map(|block| block.0));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let update = U::NUMBER.into();
        payload.within("the update", update..=update, "0 if plain, 1 if conservative", Reader::varint)?;
        let count = payload.within("the blocks", 1..=BLOCKS_MAX as u64, "from 1 to 2^26", Reader::varint)? as usize;
        let total = payload.weight("the total")?;
        let mut blocks: Box<[Block<W>]> = payload.allocate("the blocks", count)?;
        payload.weights("a cell", count * CELLS, |at, part| {
            let cell = &mut blocks[at / CELLS].0[at % CELLS];
            *cell = cell.saturating_add(part);
        })?;
        Ok(Self { blocks, total, key_id, update: PhantomData })
    }
}

impl<W: Weight, U: Update> Frequency for BlockedCountMin<W, U> {
    type Weight = W;

    fn add(&mut self, hash: u64, weight: W) -> W {
        self.add(hash, weight)
    }
    fn estimate(&self, hash: u64) -> W {
        self.estimate(hash)
    }
}

impl<W: Weight, U: Update> Merge for BlockedCountMin<W, U> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.merge(other)
    }
}

/// The key's cells in its block, by the hash's low half, of which the number of a block reads nothing: any cell,
/// another one of its half (all as likely, to one part in 9,362) and one of the other half.
#[inline(always)]
const fn places(hash: u64) -> [usize; DEPTH] {
    let low = hash as usize;
    let (cell, step, across) = (low % CELLS, (((low >> 4) & 0xffff) * (HALF - 1)) >> 16, (low >> 20) % HALF);
    [cell, cell ^ (1 + step), cell ^ (HALF | across)]
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
    use std::{collections::BTreeMap, vec::Vec};

    const KEY: u64 = 7;

    /// Of keys that a sketch saw and of keys that it did not, the shares that its excess at `confidence` wrongs.
    fn wronged<U: Update>(sketch: &BlockedCountMin<Tally, U>, truth: &Amounts, confidence: f64) -> [f64; 2] {
        let excess = sketch.excess(confidence);
        let is_wronged = |hash: u64| {
            let (Bounds { lower, upper }, truth) = (sketch.bounds(hash, excess), truth.get(hash));
            assert!(upper.packets >= truth.packets && upper.bytes >= truth.bytes, "below the truth");
            lower.bytes > truth.bytes
        };
        let foreign = (0..20_000).filter(|&key| is_wronged(mix(!key))).count() as f64 / 20_000.0;
        [truth.iter().filter(|&(hash, _)| is_wronged(hash)).count() as f64 / truth.len() as f64, foreign]
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn the_excess_holds_with_its_confidence() {
        // Over 7 pairs of sketches with 20,000 foreign keys each the share that is wronged is known to a standard
        // deviation of 0.0008; six are allowed. Keys that were added are wronged less often.
        let mut shares = Vec::new();
        for seed in 0..7 {
            let mut sketches = [0; 2].map(|_| BlockedCountMin::with_error(0.01, KEY));
            let (mut plain, mut truth) = (BlockedCountMin::plain_with_error(0.01, KEY), Amounts::default());
            let (zipf, mut random) = (Zipf::new(3_000, 1.05), SplitMix64(seed));
            for nth in 0..12_000 {
                let (hash, weight) = (mix(zipf.draw(&mut random)), random.weight());
                let estimate = sketches[nth % 2].add(hash, weight);
                assert_eq!(estimate, sketches[nth % 2].estimate(hash));
                plain.add(hash, weight);
                truth.add(hash, weight);
            }
            let [mut merged, other] = sketches;
            merged.merge(&other).unwrap();
            assert_eq!((merged.total(), plain.total()), (truth.total(), truth.total()));
            shares.push([wronged(&plain, &truth, 0.9), wronged(&merged, &truth, 0.9)]);
            assert_eq!(wronged(&plain, &truth, 1.0), [0.0; 2]);
        }
        for kind in 0..2 {
            let mean = |known: usize| shares.iter().map(|share| share[kind][known]).sum::<f64>() / 7.0;
            assert!(mean(0) <= 0.105 && (0.07..=0.105).contains(&mean(1)), "{shares:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn the_error_is_near_that_of_count_min() {
        for (exponent, allowed) in [(1.05, 1.25), (0.0, 1.0)] {
            let mut blocked = BlockedCountMin::<u32>::with_error(E / 4_096.0 * 1.000_001, KEY);
            let mut classic = CountMin::<u32>::with_error(E / 4_096.0 * 1.000_001, 0.02, KEY);
            let (zipf, mut random) = (Zipf::new(62_500, exponent), SplitMix64(8));
            let mut truth = BTreeMap::<u64, u32>::new();
            for _ in 0..625_000 {
                let hash = mix(zipf.draw(&mut random));
                *truth.entry(hash).or_default() += 1;
                blocked.add(hash, 1);
                classic.add(hash, 1);
            }
            let excess = |estimate: &dyn Fn(u64) -> u32| {
                truth.iter().map(|(&hash, &truth)| f64::from(estimate(hash) - truth)).sum::<f64>()
            };
            let ratio = excess(&|hash| blocked.estimate(hash)) / excess(&|hash| classic.estimate(hash));
            assert!((0.8..allowed).contains(&ratio), "{ratio} times");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn all_cells_are_as_likely() {
        let mut times = BTreeMap::<_, u32>::new();
        for low in 0..1 << 23 {
            let [one, two, across] = places(low | !low << 23);
            assert!(one != two && one / HALF == two / HALF && one / HALF != across / HALF);
            *times.entry((one, two, across)).or_default() += 1;
        }
        assert_eq!(times.len(), CELLS * (HALF - 1) * HALF);
        assert!(times.values().all(|times| (9_362..=9_363).contains(times)));
    }

    #[test]
    fn a_batch_is_one_after_the_other_near_and_far() {
        const KEYS: usize = crate::test_size::of(1_003, 67);
        fn check<W: Weight, U: Update>(new: &BlockedCountMin<W, U>, weight: impl Fn(u64) -> W) {
            let (mut one_by_one, mut batched) = (new.clone(), new.clone());
            let hashes: Vec<_> = (0..KEYS as u64).map(|key| mix(key % (KEYS as u64 * 2 / 3))).collect();
            let weights: Vec<_> = (0..KEYS as u64 - 2).map(weight).collect();
            batched.add_batch(&hashes, &weights);
            hashes.iter().zip(&weights).for_each(|(&hash, &weight)| _ = one_by_one.add(hash, weight));
            assert_eq!(batched, one_by_one);
            let mut estimates = std::vec![W::default(); KEYS - 4];
            batched.estimate_batch(&hashes, &mut estimates);
            assert!(hashes.iter().zip(estimates).all(|(&hash, estimate)| batched.estimate(hash) == estimate));
        }
        for (error, of_tallies) in [(0.01, 0.01), crate::test_size::of((0.00001, 0.00001), (0.00004, 0.001))] {
            check(&BlockedCountMin::<u32>::with_error(error, KEY), |nth| nth as u32);
            check(&BlockedCountMin::plain_with_error(of_tallies, KEY), |nth| Tally::new(nth, 100 * nth));
        }
    }

    #[test]
    fn geometry_follows_from_the_error_and_stays_in_range() {
        let sketch = BlockedCountMin::<u32>::with_error(0.0005, KEY);
        assert_eq!(sketch.geometry(), Geometry::CounterBlocks { count: 1_360, bytes: 64 });
        assert_eq!(sketch.memory_bytes() - size_of_val(&sketch), 85 << 10);
        for error in [f64::NAN, f64::INFINITY, 9.0, 1.0] {
            let mut sketch = BlockedCountMin::with_error(error, KEY);
            assert_eq!(sketch.geometry(), Geometry::CounterBlocks { count: 1, bytes: 256 });
            sketch.add(u64::MAX, Tally::new(1, u64::MAX));
            assert_eq!(sketch.add(u64::MAX, Tally::new(1, 1)), Tally::new(2, u64::MAX));
        }
    }
}
