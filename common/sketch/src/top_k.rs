//! Top-k: which keys are the largest, and how large?
//!
//! Blocks of eight candidates with a row of light cells for the rest. A key that comes is looked for in its block:
//!
//! ```text
//! held?      add to its candidate
//! not held?  a coin with probability weight / (least score + weight):
//!              head, and its light cell has more than the least score without weight:
//!                    takes the place of the block's least, whose count goes to its light cell
//!              else: add to its light cell
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
//! held has at most its light cell. It may lack a large key, at the margin of what it can hold: of the largest 100
//! under Zipf's law with exponent 1.05, one in 500 with 752 entries and one in 110 with 384 (a test).
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
mod coin;
mod merge;

use alloc::{boxed::Box, vec};

use self::{
    block::{Block, Light, tag},
    coin::Coin,
    merge::merge_block,
};
use super::{Bounds, Geometry, Merge, MergeError, Sketch, check_mergeable, weight::Weight};
use crate::{hash::scale, simd};

pub use self::{block::WAYS, candidate::Candidate};

/// Candidates at most: 1.2 GiB with flow keys.
pub const ENTRIES_MAX: usize = 1 << 24;
/// Keys whose memory is asked for together, ahead of its use.
const AHEAD: usize = 32;

/// The candidates of a block: whole cache lines, so that one of 64 bytes is in one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Row<K, W: Weight>([Candidate<K, W>; WAYS]);

/// A table of the largest keys, with bounds for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK<K, W: Weight = u64> {
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

    /// Adds many, in order, from two columns, which may be the same: how to read the hash of each, which is done twice;
    /// and how to read its key and its weight, which is done once. As many as the shorter column has.
    #[inline]
    pub fn add_batch<H, T>(
        &mut self,
        (hashes, hash): (&[H], impl Fn(&H) -> u64),
        (items, mut parts): (&[T], impl FnMut(&T) -> (K, W)),
    ) {
        for (hashes, items) in hashes.chunks(AHEAD).zip(items.chunks(AHEAD)) {
            let mut places = [0; AHEAD];
            for (place, of) in places.iter_mut().zip(hashes) {
                *place = self.block(hash(of));
                simd::prefetch(&self.blocks[*place]);
            }
            for (place, (of, item)) in places.iter().zip(hashes.iter().zip(items)) {
                let (key, weight) = parts(item);
                self.add_to_block(*place, tag(hash(of)), key, weight);
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

/// Gives the key the place of the block's least, if the coin has it so at what that one really has, and it may have more.
#[inline(always)]
fn admit<K, W: Weight>(
    block: &mut Block<W>,
    row: &mut [Candidate<K, W>; WAYS],
    coin: Coin,
    (tag, key, weight): (u8, K, W),
) {
    let (way, price) = block.cheapest(row);
    block.price = price;
    let missed = block.light.upper(tag);
    let most = missed.score().saturating_add(weight.score());
    if most <= price || !coin.is_head(price) {
        return block.light.add(tag, weight);
    }
    // A free way has no tag and has counted nothing.
    block.light.add(block.tag(way), row[way].lower());
    row[way] = Candidate::new(key, weight, missed, price.min(missed.score()));
    block.give(way, tag);
    // It may have less than the least had: what it missed was perhaps nothing.
    block.price = price.min(row[way].score());
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
mod tests;
