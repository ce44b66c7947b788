//! A line of a spread sketch, and loops that add many pairs.

use super::place::{CHUNK, Place, Places, RANK_BITS, REGISTERS};
use crate::{
    simd,
    ultraloglog::{self, likelihood::Likelihood, register},
};

/// Sketches with more lines (32 KiB) prefetch them. Alone, a sketch stays in the second-level cache up to 1 MiB; but
/// programs have other structures beside it, which take its place there.
const LINES_NEAR: usize = 1 << 9;
/// How many touches ahead lines are prefetched: about as many lines as a core can wait for at once.
const AHEAD: usize = 16;

/// One cache line: the registers of an `UltraLogLog`, and the rarest pair so far.
#[derive(Clone, PartialEq, Eq)]
#[repr(align(64))]
pub struct Line {
    pub registers: [u8; REGISTERS],
    /// The rarity of the rarest pair; 0 if there was none.
    pub tag: u16,
}

impl Line {
    pub const EMPTY: Self = Self { registers: [0; REGISTERS], tag: 0 };

    /// The number of pairs so far.
    pub fn count(&self) -> f64 {
        // With little traffic, nearly all lines are empty.
        if *self == Self::EMPTY {
            return 0.0;
        }
        let mut likelihood = Likelihood::new(RANK_BITS + 1);
        for register in self.registers {
            match register::highest(register) {
                0 => likelihood.empty(1),
                position => likelihood.filled(1, u32::from(position) - 1, register & 3),
            }
        }
        let registers = REGISTERS as f64;
        let keys = likelihood.keys_per_register() * registers / (1.0 + ultraloglog::BIAS_FACTOR / registers);
        // A full line only gives a lower limit of their number.
        keys.min((1u64 << RANK_BITS) as f64 * registers)
    }
}

/// Most lines of a small sketch are empty, and print as one word.
impl core::fmt::Debug for Line {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            &Self::EMPTY => f.write_str("Empty"),
            Self { registers, tag } => f.debug_struct("Line").field("registers", registers).field("tag", tag).finish(),
        }
    }
}

/// Counts a pair in its line. Returns whether no rarer pair was counted there before.
#[inline(always)]
pub const fn raise(lines: &mut [Line], place: Place) -> bool {
    let line = &mut lines[place.line as usize];
    let register = &mut line.registers[place.register as usize];
    *register = register::with(*register, place.zeros() + 2);
    place.tag() >= line.tag
}

/// [`raise`] for the first `count` places. Stores the indices of those for which it returns `true` in `rare`, and
/// returns how many.
#[inline(always)]
pub fn raise_all(lines: &mut [Line], places: &Places, count: usize, rare: &mut [u8; CHUNK]) -> usize {
    let is_far = lines.len() > LINES_NEAR;
    let mut rares = 0;
    for i in 0..count.min(CHUNK) {
        if is_far && let Some(&later) = places.lines.get(i + AHEAD) {
            simd::prefetch(&lines[later as usize]);
        }
        rare[rares] = i as u8;
        rares += usize::from(raise(lines, places.get(i)));
    }
    rares
}

simd::dispatch! {
    pub fn raise_chunk(lines: &mut [Line], places: &Places, count: usize, rare: &mut [u8; CHUNK]) -> usize {
        raise_all(lines, places, count, rare)
    }
}
