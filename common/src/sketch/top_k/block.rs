//! A block of a top-k table: what is known of its eight candidates and of all keys that are not held.

use crate::ledger::Tally;

/// Candidates a block: their tags and scores fill one cache line.
pub const WAYS: usize = 8;
/// Light cells in each of a block's two rows: a cache line.
pub(super) const CELLS: usize = 4;

/// What is known of one block's keys: two cache lines. (Entries are elsewhere.)
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(128))]
pub(super) struct Block {
    /// Of each way, the lowest byte of its key's hash; way 0 has the lowest byte.
    tags: u64,
    /// Of each way, its score as [`rank`] has it; less than [`WAYS`] while it is free.
    ranks: [u32; WAYS],
    /// The least of the ranks.
    least: u32,
    /// About the score of that way.
    price: u64,
    /// A small count-min of what is not held, in the second line.
    pub light: Light,
}

const _: () = assert!(size_of::<Block>() == 128);

/// A score with the way that has it in the three lowest bits, so that the least of the eight says which way it is: the
/// nearest number of 21 significant bits, in the order of scores below 2^63. At least that of 1: a key without weight
/// has its way, too.
#[inline(always)]
const fn rank(score: u64, way: usize) -> u32 {
    // Positive floating-point numbers are in the order of their bits.
    ((score | 1) as i64 as f32).to_bits() & !(WAYS as u32 - 1) | way as u32
}

/// About the score of a rank.
#[inline(always)]
const fn unrank(rank: u32) -> u64 {
    f32::from_bits(rank) as u64
}

impl Block {
    pub const EMPTY: Self =
        Self { tags: 0, ranks: [0, 1, 2, 3, 4, 5, 6, 7], least: 0, price: 0, light: Light([[Cell(0); CELLS]; 2]) };

    /// The ways whose tag it is, free ones among them: the highest bit of each such way's byte.
    #[inline(always)]
    pub const fn ways_with(&self, tag: u8) -> Ways {
        const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        // All eight compared at once. A byte that differs has a bit; adding carries it to the highest one.
        let differing = self.tags ^ u64::from_ne_bytes([tag; 8]);
        Ways(!(((differing & LOW) + LOW) | differing | LOW))
    }

    #[inline(always)]
    pub const fn tag(&self, way: usize) -> u8 {
        (self.tags >> (way * 8)) as u8
    }

    #[inline(always)]
    pub const fn is_free(&self, way: usize) -> bool {
        self.ranks[way] < WAYS as u32
    }

    /// The way to give to another key, and about the score that it has.
    #[inline(always)]
    pub const fn cheapest(&self) -> (usize, u64) {
        (self.least as usize % WAYS, self.price)
    }

    /// Frees all ways; what is not held stays.
    pub const fn free(&mut self) {
        *self = Self { light: self.light, ..Self::EMPTY };
    }

    /// Gives a way to a key.
    #[inline(always)]
    pub fn take(&mut self, way: usize, tag: u8, score: u64) {
        self.tags = self.tags & !(0xff << (way * 8)) | (tag as u64) << (way * 8);
        self.raise(way, score);
    }

    /// Notes a new score of a way; what held the least no longer has to.
    #[inline(always)]
    pub fn raise(&mut self, way: usize, score: u64) {
        let was_least = self.least == self.ranks[way];
        self.ranks[way] = rank(score, way);
        if was_least {
            self.least = self.ranks.iter().fold(u32::MAX, |least, rank| least.min(*rank));
            self.price = unrank(self.least);
        }
    }
}

/// Two rows of cells: a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Light([[Cell; CELLS]; 2]);

impl Light {
    /// At most what a key had that was never held, or since then.
    #[inline(always)]
    pub const fn upper(&self, tag: u8) -> Tally {
        let [one, other] = cells(tag);
        self.0[0][one].least(self.0[1][other]).upper()
    }

    /// Adds to a key that is not held.
    #[inline(always)]
    pub fn add(&mut self, tag: u8, weight: Tally) {
        // Conservative: each cell is raised to the new bound, and none that is higher already.
        let [one, other] = cells(tag);
        let bound = self.0[0][one].least(self.0[1][other]).plus(weight);
        self.0[0][one] = self.0[0][one].most(bound);
        self.0[1][other] = self.0[1][other].most(bound);
    }

    /// Adds cell by cell.
    pub fn merge(&mut self, other: &Self) {
        for (cell, other) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *cell = cell.plus(other.upper());
        }
    }
}

/// Packets in the highest 24 bits, bytes in the others. What does not fit is endless. In a table of 8,000 entries, a
/// cell has one part in 4,000 of what small keys have: 16 million packets there are 10^11 in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell(u64);

impl Cell {
    const BYTES_BITS: u32 = 40;
    const PACKETS_MAX: u64 = (1 << (u64::BITS - Self::BYTES_BITS)) - 1;
    const BYTES_MAX: u64 = (1 << Self::BYTES_BITS) - 1;

    /// At most this.
    #[inline(always)]
    pub const fn upper(self) -> Tally {
        let (packets, bytes) = self.parts();
        Tally::new(
            if packets == Self::PACKETS_MAX { u64::MAX } else { packets },
            if bytes == Self::BYTES_MAX { u64::MAX } else { bytes },
        )
    }

    #[inline(always)]
    const fn plus(self, weight: Tally) -> Self {
        let (packets, bytes) = self.parts();
        let packets = min(packets + min(weight.packets, Self::PACKETS_MAX), Self::PACKETS_MAX);
        Self(packets << Self::BYTES_BITS | min(bytes + min(weight.bytes, Self::BYTES_MAX), Self::BYTES_MAX))
    }

    /// The lesser packets and the lesser bytes.
    #[inline(always)]
    const fn least(self, other: Self) -> Self {
        let (packets, bytes) = (min(self.0, other.0), min(self.0 & Self::BYTES_MAX, other.0 & Self::BYTES_MAX));
        Self(packets & !Self::BYTES_MAX | bytes)
    }

    /// The larger packets and the larger bytes.
    #[inline(always)]
    const fn most(self, other: Self) -> Self {
        let (packets, bytes) = (max(self.0, other.0), max(self.0 & Self::BYTES_MAX, other.0 & Self::BYTES_MAX));
        Self(packets & !Self::BYTES_MAX | bytes)
    }

    #[inline(always)]
    const fn parts(self) -> (u64, u64) {
        (self.0 >> Self::BYTES_BITS, self.0 & Self::BYTES_MAX)
    }
}

#[inline(always)]
pub(super) const fn min(one: u64, other: u64) -> u64 {
    if one < other { one } else { other }
}

#[inline(always)]
const fn max(one: u64, other: u64) -> u64 {
    if one < other { other } else { one }
}

/// Some ways of a block.
#[derive(Clone, Copy)]
pub(super) struct Ways(u64);

impl Iterator for Ways {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let way = self.0.trailing_zeros() as usize / 8;
        self.0 &= self.0 - 1;
        Some(way)
    }
}

/// The key's cell in each row.
#[inline(always)]
const fn cells(tag: u8) -> [usize; 2] {
    [tag as usize % CELLS, tag as usize / CELLS % CELLS]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_in_the_order_of_scores_and_know_their_way() {
        let scores = [0, 1, 2, 100, 572, 573, 1 << 20, 1 << 40, i64::MAX as u64];
        for pair in scores.windows(2).skip(1) {
            assert!(rank(pair[0], 7) <= rank(pair[1], 0) | 7, "{pair:?}");
        }
        for score in scores {
            assert!(rank(score, 0) >= WAYS as u32, "a way that is taken is not free");
            assert_eq!(rank(score, 5) % WAYS as u32, 5);
            assert!(unrank(rank(score, 5)).abs_diff(score) <= score / (1 << 20) + 1, "{score}");
        }
    }

    #[test]
    fn light_cells_never_say_too_little() {
        let mut cell = Cell(0);
        for (packets, bytes) in [(1, 1 << 39), (1 << 23, 5), (Cell::PACKETS_MAX, 6), (2, Cell::BYTES_MAX + 9)] {
            cell = cell.most(Cell(0).plus(Tally::new(packets, bytes)));
            assert!(cell.upper().packets >= packets && cell.upper().bytes >= bytes);
        }
        assert_eq!(cell.upper(), Tally::new(u64::MAX, u64::MAX));
        assert_eq!(Cell(0).plus(Tally::new(3, 4)).upper(), Tally::new(3, 4));
        let mut light = Light([[Cell(0); CELLS]; 2]);
        light.add(5, Tally::new(1, 10));
        let before = light;
        light.merge(&before);
        assert_eq!(light.upper(5), Tally::new(2, 20));
    }
}
