//! Top-k: which keys are the largest, and how large?
//!
//! A block has eight candidates and a row of light cells for all other keys. When a key arrives, its block decides:
//!
//! ```text
//! held:      add to its candidate
//! not held:  toss a coin with probability weight / (least score + weight), or 1 if weight is more than that score;
//!            if it shows head, and the light cell has more than the least score without weight:
//!                replace the block's smallest candidate, whose count moves to its own light cell
//!            else: add to its light cell
//! ```
//!
//! 1. The least score is looked up only if the coin shows head for an earlier least score. Scores only grow, so a tail
//!    for the old score is also a tail for the new one.
//! 2. Light cells are one row, and not a count-min of two rows. A cell has so many small keys that the smaller of two
//!    cells is hardly less than one cell of a row of twice the size. (For streams by Zipf's law, this makes bounds 14 %
//!    closer, and adding is faster. The weight of a key before it became a candidate is known a little less well.)
//!
//! **Errors**: the truth is within `[lower, upper]` for every key, held or not, with certainty. The lower bound of a
//! candidate is its count since it became one. Its upper bound also includes the value of its light cell at that time.
//! A key that is not held has at most the value of its light cell. The table may miss a key that is hardly large enough
//! for it: of the 100 largest keys under Zipf's law with exponent 1.05, it misses one in 500 with 752 entries, and one
//! in 110 with 384 (a test shows it).
//!
//! **Cost** for 8,192 keys of 40 bytes and weights of two numbers: 64 KiB of blocks and 576 KiB of candidates. A key
//! that is not held touches one cache line; a candidate touches that line and its own. A key that becomes a candidate
//! reads the eight candidates of its block: in a flood of small keys one in ten does, and fewer as the flood lasts.
//!
//! **Papers**: random admission, which keeps a flood of small keys from changing the table all the time: Ben Basat,
//! Chen, Einziger, Friedman and Kassner, "Randomized admission policy for efficient top-k, frequency, and volume
//! estimation", 2019. Heavy candidates before light cells: Yang et al., "Elastic sketch", 2018.
//!
//! **Why not a crate**: crates keep one number for each key, without bounds, in maps and heaps that allocate while they
//! count. This table has any [`Weight`], with bounds, in memory that is fixed beforehand.

mod block;
mod candidate;
mod image;
mod merge;
mod rest;
mod row;

use alloc::{borrow::ToOwned, boxed::Box, vec, vec::Vec};
use core::{borrow::Borrow, cmp::Reverse};

use self::{
    block::{Block, Light, tag},
    merge::merge_block,
    row::Row,
};
use super::{
    Bounds, Geometry, MergeError,
    merge::check_mergeable,
    setting::{SettingError, check_error, check_room},
    weight::Weight,
};
use crate::{coin::Coin, hash::scale, simd};

pub use self::{block::WAYS, candidate::Candidate, rest::Rest};

/// The most candidates: 1.2 GiB with keys of 40 bytes and weights of two numbers.
pub const ENTRIES_MAX: usize = 1 << 24;
/// How many keys' memory is prefetched together.
const AHEAD: usize = 32;

/// A table of the largest keys, with bounds for all keys. Without the second type parameter it counts `u64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK<K, W: Weight = u64> {
    blocks: Box<[Block<W>]>,
    /// The candidates of each block.
    rows: Box<[Row<K, W>]>,
    /// The state of the random numbers for coins.
    random: u64,
    /// The initial value of that state.
    seed: u64,
    key_id: u64,
}

impl<K: Clone + Eq + Default, W: Weight> TopK<K, W> {
    /// A table of at least `entries` keys, rounded up to blocks of [`WAYS`], from one block to [`ENTRIES_MAX`] keys.
    ///
    /// To list the k largest keys, use about eight times k.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_capacity(entries: usize, key_id: u64) -> Result<Self, SettingError> {
        Self::check(entries)?;
        Ok(Self::of_blocks(entries.div_ceil(WAYS).max(1), key_id))
    }

    fn of_blocks(blocks: usize, key_id: u64) -> Self {
        Self {
            blocks: vec![Block::default(); blocks].into_boxed_slice(),
            rows: (0..blocks).map(|_| Row::default()).collect(),
            random: key_id,
            seed: key_id,
            key_id,
        }
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// There are more than [`ENTRIES_MAX`].
    pub fn check(entries: usize) -> Result<(), SettingError> {
        check_room("entries", entries as u64, ENTRIES_MAX as u64)
    }

    /// A table of at least `entries` keys. The bounds of a key seldom differ by more than `error`, a share of
    /// everything that is added.
    ///
    /// That holds as long as the light cells, which count the keys that are not held, are not full. A cell is full at
    /// 2^32 - 1 (at 65,535 if weights have 32 bits). Together they have room for some 10^10 / `error`. Keys of a full
    /// cell have no upper bound except the total.
    ///
    /// # Errors
    ///
    /// The error is no share that the largest table can have, or there is no room for so many entries.
    pub fn with_error(error: f64, entries: usize, key_id: u64) -> Result<Self, SettingError> {
        // Keys that are not held are spread over the cells. Two thirds of the error allow for an uneven spread.
        let cells = |error: f64| 3.0 / (Light::<W>::CELLS as f64 * error);
        Self::check(entries)?;
        check_error("error", error, cells((ENTRIES_MAX / WAYS) as f64))?;
        let blocks = (libm::ceil(cells(error)) as usize).min(ENTRIES_MAX / WAYS);
        Ok(Self::of_blocks(blocks.max(entries.div_ceil(WAYS)), key_id))
    }

    /// Adds `weight` to a key. `hash` must be the hash of the key.
    #[inline(always)]
    pub fn add(&mut self, hash: u64, key: K, weight: W) {
        self.add_to_block(self.block(hash), hash, (key, weight), &mut ());
    }

    /// Like [`TopK::add`], for a borrowed key. It is cloned if it becomes a candidate.
    #[inline]
    pub fn add_borrowed<Q: Eq + ToOwned<Owned = K> + ?Sized>(&mut self, hash: u64, key: &Q, weight: W)
    where
        K: Borrow<Q>,
    {
        let at = self.block(hash);
        let (block, row) = (&mut self.blocks[at], &mut self.rows[at]);
        if let Some(way) = block.ways_with(tag(hash)).find(|way| row.has(*way, key)) {
            return row.add(way, weight);
        }
        let coin = Coin::toss(&mut self.random, weight.score());
        if !(coin.is_head(block.price) && admit(block, row, coin, (hash, key.to_owned(), weight), &mut ())) {
            block.light.add(tag(hash), weight);
        }
    }

    #[inline(always)]
    fn add_to_block(&mut self, at: usize, hash: u64, (key, weight): (K, W), rest: &mut impl Rest<K, W>) {
        let (block, row) = (&mut self.blocks[at], &mut self.rows[at]);
        let tag = tag(hash);
        if let Some(way) = block.ways_with(tag).find(|way| row.has(*way, &key)) {
            row.add(way, weight);
            return;
        }
        let coin = Coin::toss(&mut self.random, weight.score());
        if !(coin.is_head(block.price) && admit(block, row, coin, (hash, key.clone(), weight), rest)) {
            block.light.add(tag, weight);
            rest.add(hash, &key, weight);
        }
    }

    /// Adds many weights, in order. The first column comes with a function that returns the hash of an element, which
    /// is called several times. The second column, which may be the same one, comes with a function that returns key
    /// and weight, which is called once. Stops at the end of the shorter column.
    #[inline]
    pub fn add_batch<H, T>(&mut self, hashes: (&[H], impl Fn(&H) -> u64), items: (&[T], impl FnMut(&T) -> (K, W))) {
        self.add_batch_and(hashes, items, &mut ());
    }

    /// Like [`TopK::add_batch`]. `rest` gets the weights that the candidates do not hold.
    #[inline]
    pub fn add_batch_and<H, T>(
        &mut self,
        (hashes, hash): (&[H], impl Fn(&H) -> u64),
        (items, mut parts): (&[T], impl FnMut(&T) -> (K, W)),
        rest: &mut impl Rest<K, W>,
    ) {
        for (hashes, items) in hashes.chunks(AHEAD).zip(items.chunks(AHEAD)) {
            let (mut places, mut ways) = ([0_u32; AHEAD], [0_u8; AHEAD]);
            for (place, of) in places.iter_mut().zip(hashes) {
                let at = self.block(hash(of));
                simd::prefetch(&self.blocks[at]);
                *place = at as u32;
            }
            // Most held keys are in the first way with their tag.
            for ((way, place), of) in ways.iter_mut().zip(&places).zip(hashes) {
                let first = self.blocks[*place as usize].ways_with(tag(hash(of))).next().unwrap_or(0);
                self.rows[*place as usize].prefetch(first);
                *way = first as u8;
            }
            for ((place, way), (of, item)) in places.iter().zip(ways).zip(hashes.iter().zip(items)) {
                let (key, weight) = parts(item);
                let (at, way) = (*place as usize, usize::from(way));
                let (block, row) = (&self.blocks[at], &mut self.rows[at]);
                if block.tag(way) == tag(hash(of)) && row.has(way, &key) {
                    row.add(way, weight);
                } else {
                    self.add_to_block(at, hash(of), (key, weight), rest);
                }
            }
        }
    }

    /// The candidate with this key, if the key is held.
    pub fn get<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Option<Candidate<K, W>>
    where
        K: Borrow<Q>,
    {
        let at = self.block(hash);
        let (block, row) = (&self.blocks[at], &self.rows[at]);
        block.ways_with(tag(hash)).find(|way| row.has(*way, key)).map(|way| row.get(way))
    }

    /// Bounds of a key's weight, which hold for any key, held or not.
    pub fn bounds<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Bounds<W>
    where
        K: Borrow<Q>,
    {
        match self.get(hash, key) {
            Some(candidate) => Bounds { lower: candidate.lower(), upper: candidate.upper() },
            None => Bounds { lower: W::default(), upper: self.blocks[self.block(hash)].light.upper(tag(hash)) },
        }
    }

    /// All candidates, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Candidate<K, W>> {
        self.blocks.iter().zip(&self.rows).flat_map(|(block, row)| block.taken().map(|way| row.get(way)))
    }

    /// The largest candidates, at most this many, largest first.
    pub fn top(&self, count: usize) -> Vec<Candidate<K, W>> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by_cached_key(|candidate| Reverse(candidate.value().magnitude()));
        all.truncate(count);
        all
    }

    /// The weights of keys that are not held, in groups. Each such key is in one group, and all keys of a group
    /// together have at most this weight.
    pub fn light(&self) -> impl Iterator<Item = W> {
        self.blocks.iter().flat_map(|block| block.light.cells())
    }

    /// Merges another table into this one.
    ///
    /// Bounds hold for the streams of both together. The eight largest candidates of both blocks stay. The widths of
    /// bounds add up.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.merge_and(other, |_| 0, &mut (), |_, most| most)
    }

    /// Like [`TopK::merge`]. `rest` gets the counts of keys that stop being candidates. It must not have been merged
    /// with the other table's rest before: each rest is asked about keys that are candidates in one table and not in
    /// the other. `hash_of` makes the hash of such a key; `at_most` is [`Rest::at_most`] of the other table's rest.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ.
    pub fn merge_and(
        &mut self,
        other: &Self,
        hash_of: impl Fn(&K) -> u64,
        rest: &mut impl Rest<K, W>,
        at_most: impl Fn(u64, W) -> W,
    ) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        for at in 0..self.blocks.len() {
            let (ours, theirs) = ((&mut self.blocks[at], &mut self.rows[at]), (&other.blocks[at], &other.rows[at]));
            merge_block(ours, theirs, &hash_of, rest, &at_most);
        }
        self.random = self.random.wrapping_add(other.random.wrapping_sub(other.seed));
        Ok(())
    }

    /// Empties it, and writes every entry, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.blocks.fill(Block::default());
        self.rows.fill_with(Row::default);
        self.random = self.seed;
    }

    /// Makes an empty table ready for hashes of another key. `seed` determines all coins until the table is cleared,
    /// and again after that.
    ///
    /// The default seed is the fingerprint of the key, so that results can be repeated. An attacker who knows the seed
    /// knows every coin, and can choose when each key appears. If attackers may learn the fingerprint, give each table
    /// a secret seed, and another one after each [`TopK::clear`].
    pub const fn rekey(&mut self, key_id: u64, seed: u64) {
        self.key_id = key_id;
        self.seed = seed;
        self.random = seed;
    }

    /// How many keys it can hold as candidates.
    pub const fn capacity(&self) -> usize {
        self.blocks.len() * WAYS
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Candidates { count: self.capacity() }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.blocks) + size_of_val(&*self.rows)
    }

    /// The key's block, from the high bits of the hash. The tag comes from the low bits.
    #[inline(always)]
    const fn block(&self, hash: u64) -> usize {
        scale(hash, self.blocks.len() as u64) as usize
    }
}

/// Gives the key the place of the smallest candidate, if the coin shows head for that candidate's real score, and the
/// key may have more. Returns whether it did.
#[inline(always)]
fn admit<K: Clone + Eq, W: Weight>(
    block: &mut Block<W>,
    row: &mut Row<K, W>,
    coin: Coin,
    (hash, key, weight): (u64, K, W),
    rest: &mut impl Rest<K, W>,
) -> bool {
    let tag = tag(hash);
    // A free way has the score 0.
    let (way, price) = block.ways_with(0).next().map_or_else(|| row.cheapest(), |free| (free, 0));
    block.price = price;
    let missed = block.light.upper(tag);
    let most = missed.score().saturating_add(weight.score());
    if most <= price || !coin.is_head(price) {
        return false;
    }
    // A free way has no tag.
    if block.tag(way) != 0 {
        let leaves = row.get(way);
        block.light.add(block.tag(way), leaves.lower());
        rest.give_back(&leaves.key, leaves.lower());
    }
    // A key that needs a coin waits on average until it has missed as much as the price. A key that needs no coin has
    // not waited: it was as heavy before, when the price was lower. It nevertheless competes with the whole credit,
    // because otherwise one heavy key after the other would take the same place.
    let credit = price.min(missed.score());
    let missed = rest.at_most(hash, missed);
    let likely = if coin.is_needed(price) { credit.min(missed.score()) } else { 0 };
    let candidate = Candidate::new(key, weight, missed, credit, likely);
    let score = candidate.score();
    row.set(way, candidate);
    block.give(way, tag);
    // The new candidate's score may be below that of the smallest candidate before, because it may have missed nothing.
    block.price = price.min(score);
    true
}

#[cfg(test)]
mod tests;
