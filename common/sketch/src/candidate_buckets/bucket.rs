//! A bucket: two cache lines with everything that most records of its keys read and write.

use super::rounded::Rounded;
use crate::simd::prefetch;

/// Candidates in a bucket: their hashes fill half a cache line.
pub const WAYS: usize = 4;
/// Light cells in a bucket.
pub(super) const CELLS: usize = 6;
/// Words in a bucket that count: first those of the candidates, then those of the light cells.
pub(super) const SLOTS: usize = WAYS + CELLS;

/// Set if a weight of this bucket does not fit into its word. It is in the table of
/// [`Spills`](super::counters::Spills).
pub(super) const HAS_SPILLED: u64 = 1;
/// Set if a weight of this bucket fits nowhere. The sizes of its counts are then unknown.
pub(super) const HAS_LOST: u64 = 2;
/// The number of bits of both.
const FLAGS: u32 = 2;

/// The state of four candidates and of all other keys of the bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C, align(128))]
pub(super) struct Bucket {
    /// The hash of the key in each way, 0 if the way is free.
    pub hashes: [u64; WAYS],
    /// Packed weights: see [`Weight::pack`](crate::Weight::pack).
    pub words: [u64; SLOTS],
    /// For each way, the part of the score of missed weight with which the key competes.
    pub credits: [Rounded; WAYS],
    /// The price of a place. The lowest bits are [`HAS_SPILLED`] and [`HAS_LOST`].
    price_and_flags: u64,
}

const _: () = assert!(size_of::<Bucket>() == 128);

impl Bucket {
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch(self);
        prefetch(&self.words[WAYS]);
    }

    /// The way of the key with this hash; [`WAYS`] if it has none. The hash is not 0.
    #[inline(always)]
    pub fn way(&self, hash: u64) -> usize {
        // All four are compared without a branch. Bit 0 is not used: with it, compilers treat one way differently from
        // the others, and then compare the ways one by one.
        const BITS: [u32; WAYS] = [2, 4, 8, 16];
        let bit = |way: usize| if self.hashes[way] == hash { BITS[way] } else { 0 };
        let matches = bit(0) | bit(1) | bit(2) | bit(3);
        // The four ways have bits 1 to 4. The fifth bit means that no way matches.
        (matches | 2 << WAYS).trailing_zeros() as usize - 1
    }

    /// The word in which the key counts.
    #[inline(always)]
    pub fn slot(&self, hash: u64) -> usize {
        let way = self.way(hash);
        core::hint::select_unpredictable(way < WAYS, way, cell(hash))
    }

    /// The ways that are taken.
    pub fn taken(&self) -> impl Iterator<Item = usize> {
        (0..WAYS).filter(|way| self.hashes[*way] != 0)
    }

    #[inline(always)]
    pub const fn has(&self, flag: u64) -> bool {
        self.price_and_flags & flag != 0
    }

    /// Returns true if all weights of the bucket are in their words.
    #[inline(always)]
    pub const fn is_plain(&self) -> bool {
        !self.has(HAS_SPILLED | HAS_LOST)
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub const fn mark(&mut self, flag: u64) {
        self.price_and_flags |= flag;
    }

    /// A lower bound of the smallest score of the candidates. Scores only grow, so it is updated only when a key seems
    /// to become a candidate.
    #[inline(always)]
    pub const fn price(&self) -> u64 {
        self.price_and_flags >> FLAGS
    }

    #[inline(always)]
    pub fn set_price(&mut self, price: u64) {
        let flags = self.price_and_flags & ((1 << FLAGS) - 1);
        self.price_and_flags = price.min(u64::MAX >> FLAGS) << FLAGS | flags;
    }
}

/// Changes the hash 0, which marks a free way, to another one.
#[inline(always)]
pub(super) const fn nonzero(hash: u64) -> u64 {
    if hash == 0 { 1 } else { hash }
}

/// The word of the light cell of the key with this hash, from the low half, which the choice of the bucket does not
/// use.
#[inline(always)]
pub(super) const fn cell(hash: u64) -> usize {
    WAYS + ((hash as u32 as u64 * CELLS as u64) >> u32::BITS) as usize
}

/// The words of all light cells.
pub(super) const fn cells() -> core::ops::Range<usize> {
    WAYS..SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_counts_in_its_way_or_in_its_light_cell() {
        let bucket = Bucket { hashes: [7, 0, 1 << 63, u64::MAX], ..Bucket::default() };
        assert_eq!([7, 1 << 63, u64::MAX, 8].map(|hash| bucket.way(hash)), [0, 2, 3, WAYS]);
        assert_eq!([7, u64::MAX, 8, 0xffff_fffe].map(|hash| bucket.slot(hash)), [0, 3, WAYS, SLOTS - 1]);
        assert!(bucket.taken().eq([0, 2, 3]));
        assert_eq!([0, 5, u64::MAX].map(nonzero), [1, 5, u64::MAX]);
    }
}
