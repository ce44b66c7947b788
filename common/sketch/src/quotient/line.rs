//! A line of a quotient filter: counts of its quotients, and slots for their remainders.

use core::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{QUOTIENTS, RUN_MAX, SLOTS};

/// Bits per count of a quotient.
pub(super) const COUNT_BITS: u32 = u64::BITS / QUOTIENTS as u32;

/// One cache line: sixteen quotients and 27 remainders.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes)]
#[repr(C, align(64))]
pub(super) struct Line {
    /// How many fingerprints each quotient has. The first quotient is in the lowest bits.
    pub counts: u64,
    /// How many remainders of earlier lines come first. This may be more than the slots of this line.
    pub spilled: u16,
    /// The remainders, sorted by quotient, and within a quotient by size. Free slots are zero.
    pub remainders: [u16; SLOTS],
}

const _: () = assert!(size_of::<Line>() == 64 && RUN_MAX + 1 == 1 << COUNT_BITS);

impl Line {
    /// The number of 16-bit lanes in a line.
    const LANES: usize = 32;
    /// The lane of the first remainder.
    const FIRST: usize = Self::LANES - SLOTS;

    /// The slots of a quotient's remainders, counted from this line's first slot.
    #[inline(always)]
    pub const fn run(&self, quotient: u32) -> Range<usize> {
        let before = (1 << (COUNT_BITS * quotient)) - 1;
        let start = self.spilled as usize + sum(self.counts & before);
        start..start + (self.counts >> (COUNT_BITS * quotient)) as usize % (RUN_MAX + 1)
    }

    #[inline(always)]
    pub const fn has_room(&self) -> bool {
        self.spilled as usize + sum(self.counts) < SLOTS
    }

    /// How many remainders in these slots are smaller than this one, and whether it is among them. All lanes are
    /// compared: each with the remainder, and its position with the slots.
    #[inline(always)]
    pub fn search(&self, slots: Range<usize>, remainder: u16) -> (usize, bool) {
        let lanes: &[u16; Self::LANES] = zerocopy::transmute_ref!(self);
        let (start, end) = (slots.start as i16, slots.end as i16);
        let (mut smaller, mut equal) = (0u16, 0);
        for (slot, &lane) in (-(Self::FIRST as i16)..).zip(lanes) {
            let is_asked = (slot >= start) & (slot < end);
            smaller += u16::from(is_asked & (lane < remainder));
            equal |= u16::from(is_asked & (lane == remainder));
        }
        (smaller.into(), equal != 0)
    }

    /// Inserts a remainder into a slot. The remainders from there on move by one, and the last one is returned.
    #[inline(always)]
    pub fn open(&mut self, at: usize, remainder: u16) -> u16 {
        let last = self.remainders[SLOTS - 1];
        self.remainders.copy_within(at..SLOTS - 1, at + 1);
        self.remainders[at] = remainder;
        last
    }

    /// Removes the remainder from a slot. The remainders after it move back by one, and `last` becomes the last one.
    #[inline(always)]
    pub fn close(&mut self, at: usize, last: u16) {
        self.remainders.copy_within(at + 1.., at);
        self.remainders[SLOTS - 1] = last;
    }
}

/// The sum of sixteen counts.
#[inline(always)]
pub(super) const fn sum(counts: u64) -> usize {
    const EVEN: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    const ONES: u64 = 0x0101_0101_0101_0101;
    let pairs = (counts & EVEN) + (counts >> COUNT_BITS & EVEN);
    (pairs.wrapping_mul(ONES) >> (u64::BITS - u8::BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_up() {
        assert_eq!(sum(0), 0);
        assert_eq!(sum(0xf0f0_0000_0000_000f), 45);
        assert_eq!(sum(u64::MAX), QUOTIENTS * RUN_MAX);
    }
}
