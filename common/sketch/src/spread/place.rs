//! The place of a pair: the line of a spread sketch, the register in it, and the pair's rarity.

use crate::{hash::mix, simd};

/// The low bits of a pair's hash, from which the rank and the tag are made.
pub const RANK_BITS: u32 = 40;
/// The highest bits, which choose one of at most 16 lines. The bits between choose the register.
const LINE_BITS: u32 = 4;
/// Bits of a tag after the number of zeros.
pub const TAG_BITS: u32 = 10;
/// Registers per line: a line has 64 bytes, less its tag.
pub const REGISTERS: usize = 62;
/// How many touches' places are found together.
pub const CHUNK: usize = 32;

/// The number of lines, and how many of them each key has.
#[derive(Clone, Copy)]
pub struct Grid {
    pub lines: u64,
    pub lines_per_key: u64,
}

impl Grid {
    /// One of a key's lines. Each line comes from a different part of the grid, so no two are the same.
    #[inline(always)]
    pub const fn line(self, key_hash: u64, which: u64) -> u64 {
        // This is a large odd number, so that different keys have different lines.
        const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = mix(key_hash.wrapping_add(which.wrapping_mul(STRIDE)));
        let part = self.lines / self.lines_per_key;
        which * part + (((hash >> 32) * part) >> 32)
    }

    /// The place of a pair with this hash.
    #[inline(always)]
    pub const fn place(self, key_hash: u64, pair: u64) -> Place {
        let which = pair >> (u64::BITS - LINE_BITS) & (self.lines_per_key - 1);
        let share = pair >> RANK_BITS & ((1 << (u64::BITS - LINE_BITS - RANK_BITS)) - 1);
        let register = (share * REGISTERS as u64) >> (u64::BITS - LINE_BITS - RANK_BITS);
        Place { line: self.line(key_hash, which), register, behind: pair << (u64::BITS - RANK_BITS) }
    }
}

/// The place of a pair, and its rarity.
#[derive(Clone, Copy)]
pub struct Place {
    pub line: u64,
    pub register: u64,
    /// The remaining hash bits, as the highest bits. The smaller, the rarer.
    pub behind: u64,
}

impl Place {
    /// How many zeros these bits begin with: one less than the rank.
    #[inline(always)]
    pub const fn zeros(self) -> u32 {
        (self.behind | 1 << (u64::BITS - RANK_BITS - 1)).leading_zeros()
    }

    /// The rarity of the pair: these bits as a float with 6 bits of exponent and 10 of mantissa, both inverted. It is
    /// never 0.
    #[inline(always)]
    pub const fn tag(self) -> u16 {
        let mantissa = (self.behind << self.zeros() << 1 >> (u64::BITS - TAG_BITS)) as u16;
        (self.zeros() as u16 + 1) << TAG_BITS | !mantissa & ((1 << TAG_BITS) - 1)
    }
}

/// The places of many pairs, with an array for each part, as vectors need it.
pub struct Places {
    pub lines: [u64; CHUNK],
    pub registers: [u64; CHUNK],
    pub behind: [u64; CHUNK],
}

impl Places {
    pub const EMPTY: Self = Self { lines: [0; CHUNK], registers: [0; CHUNK], behind: [0; CHUNK] };

    #[inline(always)]
    pub fn fill(&mut self, grid: Grid, keys: &[u64], pairs: &[u64]) {
        let parts = self.lines.iter_mut().zip(&mut self.registers).zip(&mut self.behind);
        for ((&key, &pair), ((line, register), behind)) in keys.iter().zip(pairs).zip(parts) {
            let place = grid.place(key, pair);
            (*line, *register, *behind) = (place.line, place.register, place.behind);
        }
    }

    #[inline(always)]
    pub const fn get(&self, i: usize) -> Place {
        Place { line: self.lines[i], register: self.registers[i], behind: self.behind[i] }
    }
}

simd::dispatch! {
    pub fn place_chunk(grid: Grid, keys: &[u64], pairs: &[u64], places: &mut Places) {
        places.fill(grid, keys, pairs);
    }
}
