//! Heavy and light: how much did this key have? The answer is almost exact for few large keys, and close for many small
//! ones.
//!
//! A block has one counter for each of its four largest keys. All other keys share *light cells* of half the width, one
//! cell per key. Large keys never reach the light cells, so half the bits suffice there, and twice as many cells fit.
//! That is why the sketch is more accurate. A key that outgrows the smallest of the four takes its place. The light
//! cell of the key that leaves is raised to its count, so every estimate remains an upper bound.
//!
//! **Errors**: only upwards. The truth is never above `upper`. For a small key `lower` is 0. For a large key, `lower`
//! is at most the weight since it became large. That fails only if another key has the same block and the same 32-bit
//! fingerprint: one chance in 2^32 for each key of the block. The mean excess with 1 MiB of 32-bit counters, compared
//! with conservative count-min with four rows and with the best number of rows:
//!
//! | 10 million additions | heavy and light | count-min, 4 rows | best |
//! |---|---|---|---|
//! | Zipf 1.05, 670,000 keys | 4.8 | 10.5 | 8.0 (2 rows) |
//! | uniform, 1,000,000 keys | 21.6 | 55.6 | 35.2 (2 rows) |
//!
//! The largest excesses were 126 and 55; those of count-min with two rows were 6,463 and 50.
//!
//! A key has one light cell. With two cells, of which the smaller one counts, and seven large keys in blocks of twice
//! the size, the mean excesses were 3.4 and 20.5, and an estimate took twice as long.
//!
//! **Cost** at error 0.0005: 237 blocks of 128 bytes with 32-bit counters = 30 KiB; 119 KiB with two numbers of 64
//! bits. A large key touches one cache line (at most two with two numbers). A small key touches at most two, unless it
//! outgrows a large one.
//!
//! **Papers**: Roy, Khan and Alonso, "Augmented sketch: faster and more accurate stream processing", 2016 (exact counts
//! before a sketch, exchanged with keys that outgrow them); Yang et al., "Elastic sketch: adaptive and fast
//! network-wide measurements", 2018 (heavy buckets before narrow light counters). The bound for keys that are not kept:
//! Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams", 2005.
//! Random admission (Ben Basat et al., "Randomized admission policy", 2017) changed the error by less than 2 %.
//!
//! **Why not a crate**: similar sketches in crates lose the bound when a key is evicted, or keep only one number.

mod block;
mod image;

use alloc::{boxed::Box, vec};
use core::f64::consts::E;

pub use self::block::WAYS;
use self::block::{Block, CELLS, fingerprint, place};
use super::{
    Bounds, Geometry, MergeError,
    batch::{GROUP, Lanes, Places, block_in_lanes, estimate_each, estimate_in_lanes, is_far, visit},
    merge::check_mergeable,
    setting::{SettingError, check_error},
    weight::{Weight, sum},
};
use crate::{hash::scale, simd::prefetch};

/// The most blocks: 4 GiB with 32-bit counters.
pub const BLOCKS_MAX: usize = 1 << 25;

/// A sketch that counts the largest keys of each block separately. Without a type parameter it counts `u64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeavyLight<W: Weight = u64> {
    blocks: Box<[Block<W>]>,
    total: W,
    key_id: u64,
}

impl<W: Weight> HeavyLight<W> {
    /// A sketch with as many light cells as a [`CountMin`](super::CountMin) of this error has in two rows, e / `error`
    /// each, in at most [`BLOCKS_MAX`] blocks.
    ///
    /// As long as no light cell is full, no estimate is higher than that of a plain count-min with one row of these
    /// cells. A cell is full at 2^32 - 2 (at 65,534 if weights have 32 bits: use 64 bits for more).
    /// [`HeavyLight::bounds`] gives the error of each key.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_error(error: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(error)?;
        let cells = libm::ceil(2.0 * E / error) as usize;
        let blocks = vec![Block::default(); cells.div_ceil(CELLS).min(BLOCKS_MAX)].into_boxed_slice();
        Ok(Self { blocks, total: W::default(), key_id })
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// The error is lower than that of [`BLOCKS_MAX`] blocks, or at least 1.
    pub fn check(error: f64) -> Result<(), SettingError> {
        check_error("error", error, 2.0 * E / (BLOCKS_MAX * CELLS) as f64)
    }

    /// Adds `weight` to the key with this hash. Returns the key's new estimate, which is never below the truth.
    #[inline]
    pub fn add(&mut self, hash: u64, weight: W) -> W {
        self.total = self.total.saturating_add(weight);
        let at = self.block(hash);
        self.blocks[at].add(fingerprint(hash), weight)
    }

    /// Adds `weights[i]` to the key with the hash `hashes[i]`, in order. Stops at the end of the shorter slice.
    pub fn add_batch(&mut self, hashes: &[u64], weights: &[W]) {
        let count = hashes.len().min(weights.len());
        self.total = self.total.saturating_add(sum(&weights[..count]));
        let places = self.places();
        visit(&mut self.blocks, &places, (hashes, weights), ask, |blocks, [at, fingerprint], weight| {
            blocks[at as usize].add(fingerprint, *weight);
        });
    }

    /// The estimate for the key with this hash, never below the truth.
    #[inline]
    pub fn estimate(&self, hash: u64) -> W {
        self.blocks[self.block(hash)].upper(fingerprint(hash))
    }

    /// Sets `estimates[i]` to what [`HeavyLight::estimate`] returns for `hashes[i]`. Stops at the end of the shorter
    /// slice.
    pub fn estimate_batch(&self, hashes: &[u64], estimates: &mut [W]) {
        let blocks = &*self.blocks;
        if is_far(blocks) || !estimate_in_lanes(&Table(blocks), hashes, estimates) {
            estimate_each(blocks, &self.places(), (hashes, estimates), ask, |blocks, [at, fingerprint]| {
                blocks[at as usize].upper(fingerprint)
            });
        }
    }

    /// Bounds of the weight of the key with this hash.
    #[inline]
    pub fn bounds(&self, hash: u64) -> Bounds<W> {
        let (block, fingerprint) = (&self.blocks[self.block(hash)], fingerprint(hash));
        match block.way(fingerprint) {
            // Before it became large, it had at most the value of its light cell then, and cells only grow.
            way @ 0..WAYS => {
                Bounds { lower: block.counts[way].saturating_sub(block.outside(fingerprint)), upper: block.counts[way] }
            }
            _ => Bounds { lower: W::default(), upper: block.outside(fingerprint) },
        }
    }

    /// Merges another sketch into this one. The largest of both blocks' large keys stay large. Bounds still hold. They
    /// are as wide as those of both sketches together; one sketch that was fed both streams might have narrower ones.
    /// The order of merges may change which keys of a block stay large.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        self.total = self.total.saturating_add(other.total);
        let empty = Block::default();
        for (block, other) in self.blocks.iter_mut().zip(&other.blocks) {
            // An empty block leaves the other one as it is, including the order of its ways.
            if *block == empty {
                *block = *other;
            } else if *other != empty {
                block.merge_in(other);
            }
        }
        Ok(())
    }

    /// Empties it, and writes every cell, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.blocks.fill(Block::default());
        self.total = W::default();
    }

    /// The sum of everything that was added.
    pub const fn total(&self) -> W {
        self.total
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::CounterBlocks { count: self.blocks.len(), bytes: size_of::<Block<W>>() }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.blocks)
    }

    const fn places(&self) -> Blocks {
        Blocks(self.blocks.len())
    }

    /// Returns the block of a key.
    #[inline(always)]
    const fn block(&self, hash: u64) -> usize {
        self.places().block(hash) as usize
    }
}

/// A number of blocks. The place of a key is its block and its fingerprint.
#[derive(Clone, Copy)]
struct Blocks(usize);

impl Blocks {
    /// The key's block: the hash as a fraction of the number of blocks.
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

/// Blocks to be read in lanes.
struct Table<'a, W: Weight>(&'a [Block<W>]);

impl<W: Weight> Lanes for Table<'_, W> {
    type Weight = W;

    #[inline(always)]
    fn estimate(&self, hash: u64) -> W {
        block_in_lanes(self.0, hash).map_or_else(W::default, |block| block.upper(fingerprint(hash)))
    }
}

/// Prefetches what a key may touch, except the counts after the first line: large keys appear so often that their
/// counts are in the cache.
#[inline(always)]
fn ask<W: Weight>(blocks: &[Block<W>], [at, fingerprint]: [u32; 2]) {
    let block = &blocks[at as usize];
    prefetch(block);
    prefetch(&block.light[place(fingerprint)]);
}

#[cfg(test)]
mod tests;
