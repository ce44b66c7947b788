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

mod block;
mod image;

use alloc::{boxed::Box, vec};
use core::f64::consts::E;

pub use self::block::WAYS;
use self::block::{Block, CELLS, fingerprint, place};
use super::{
    Bounds, Frequency, Geometry, Merge, MergeError, Sketch,
    batch::{GROUP, Lanes, Places, block_in_lanes, estimate_each, estimate_in_lanes, is_far, visit},
    check_mergeable,
    weight::{Weight, sum},
};
use crate::{hash::scale, simd::prefetch};

/// Blocks at most: 4 GiB with 32-bit counters.
pub const BLOCKS_MAX: usize = 1 << 25;

/// A sketch that counts the largest keys of each block apart; of packets and bytes, the largest by bytes, unless said
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeavyLight<W: Weight = u64> {
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
        let places = self.places();
        visit(&mut self.blocks, &places, (hashes, weights), ask, |blocks, [at, fingerprint], weight| {
            blocks[at as usize].add(fingerprint, *weight);
        });
    }

    /// The weight of the key with this hash, never below the truth.
    #[inline]
    pub fn estimate(&self, hash: u64) -> W {
        self.blocks[self.block(hash)].upper(fingerprint(hash))
    }

    /// Puts what [`HeavyLight::estimate`] says of `hashes[i]` into `estimates[i]`; as many as the shorter of the two
    /// has.
    pub fn estimate_batch(&self, hashes: &[u64], estimates: &mut [W]) {
        let blocks = &*self.blocks;
        if is_far(blocks) || !estimate_in_lanes(&Table(blocks), hashes, estimates) {
            estimate_each(blocks, &self.places(), (hashes, estimates), ask, |blocks, [at, fingerprint]| {
                blocks[at as usize].upper(fingerprint)
            });
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

    const fn places(&self) -> Blocks {
        Blocks(self.blocks.len())
    }

    /// The key's block.
    #[inline(always)]
    const fn block(&self, hash: u64) -> usize {
        self.places().block(hash) as usize
    }
}

/// So many blocks: a key's place is its block, and in there its fingerprint.
#[derive(Clone, Copy)]
struct Blocks(usize);

impl Blocks {
    /// The key's block: the hash as a fraction of the blocks.
    #[inline(always)]
    const fn block(self, hash: u64) -> u32 {
        scale(hash, self.0 as u64) as u32
    }
}

impl Places<2> for Blocks {
    #[inline(always)]
    fn of(&self, hash: u64) -> [u32; 2] {
        [self.block(hash), fingerprint(hash)]
    }

    #[inline(always)]
    fn of_group(&self, [blocks, fingerprints]: &mut [[u32; GROUP]; 2], hashes: &[u64; GROUP]) {
        for (nth, &hash) in hashes.iter().enumerate() {
            [blocks[nth], fingerprints[nth]] = self.of(hash);
        }
    }
}

/// Blocks, to be read in lanes.
struct Table<'a, W: Weight>(&'a [Block<W>]);

impl<W: Weight> Lanes for Table<'_, W> {
    type Weight = W;

    #[inline(always)]
    fn estimate(&self, hash: u64) -> W {
        block_in_lanes(self.0, hash).map_or_else(W::default, |block| block.upper(fingerprint(hash)))
    }
}

/// Asks for what a key may touch. Not for counts behind the first line: whose they are is not known yet, and large keys
/// come often enough to be near.
#[inline(always)]
fn ask<W: Weight>(blocks: &[Block<W>], [at, fingerprint]: [u32; 2]) {
    let block = &blocks[at as usize];
    prefetch(block);
    prefetch(&block.light[place(fingerprint)]);
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

impl<W: Weight> Frequency for HeavyLight<W> {
    type Weight = W;

    fn add(&mut self, hash: u64, weight: W) -> W {
        self.add(hash, weight)
    }
    fn estimate(&self, hash: u64) -> W {
        self.estimate(hash)
    }
    fn add_batch(&mut self, hashes: &[u64], weights: &[W]) {
        self.add_batch(hashes, weights);
    }
    fn estimate_batch(&self, hashes: &[u64], estimates: &mut [W]) {
        self.estimate_batch(hashes, estimates);
    }
}

impl<W: Weight> Merge for HeavyLight<W> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.merge(other)
    }
}

#[cfg(test)]
mod tests;
