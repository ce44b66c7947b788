//! Which hashes can change nothing: those of no higher rank than the smallest register holds.
//!
//! Once a sketch has seen many times as many keys as it has registers, nearly every hash is such a one, and a
//! comparison of whole vectors rejects it before its register is looked for.

/// Hashes looked at together: one bit each in a word.
pub(super) const GROUP: usize = u64::BITS as usize;

/// A lower bound of all registers' ranks. It is a shortcut and no part of a sketch's state: whatever it is, the same
/// registers result. So all floors are equal, and none prints.
#[derive(Clone, Copy, Default)]
pub(super) struct Floor {
    rank: u8,
    /// Hashes fed since it was brought up to date.
    age: usize,
}

impl Floor {
    /// The floor before `fed` more hashes. It is found anew once per as many hashes as there are `registers`, which
    /// costs each of them a fraction of a cycle.
    #[inline]
    pub fn before(&mut self, fed: usize, registers: &[u8], rank: impl Fn(u8) -> u8) -> u8 {
        if self.age >= registers.len() {
            self.rank = rank(registers.iter().fold(u8::MAX, |least, register| least.min(*register)));
            self.age = 0;
        }
        self.age += fed;
        self.rank
    }
}

impl PartialEq for Floor {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Floor {}

impl core::fmt::Debug for Floor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Floor")
    }
}

/// Which of these hashes have a higher rank than `floor`: bit i for hash i. The rank is one more than the number of
/// zeros that follow the `precision` highest bits.
#[inline(always)]
pub(super) fn above(hashes: &[u64; GROUP], precision: u32, floor: u8) -> u64 {
    let behind_index = u64::MAX >> precision;
    let must_be_zero = behind_index & !(behind_index >> floor);
    let mut above = 0;
    for (octet, hashes) in hashes.as_chunks::<8>().0.iter().enumerate() {
        let mut bits = 0;
        for (bit, hash) in hashes.iter().enumerate() {
            bits |= u8::from(hash & must_be_zero == 0) << bit;
        }
        above |= u64::from(bits) << (octet * 8);
    }
    above
}

/// Calls `change` with each hash whose bit is set.
#[inline(always)]
pub(super) fn for_each(hashes: &[u64; GROUP], mut set: u64, mut change: impl FnMut(u64)) {
    while set != 0 {
        change(hashes[set.trailing_zeros() as usize]);
        set &= set - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::SplitMix64;

    #[test]
    fn what_is_above_the_floor_is_found() {
        let mut random = SplitMix64(1);
        for precision in [4, 14, 18] {
            for floor in [0, 1, 2, 7, 40, 53] {
                // Every second hash has few bits behind its index, so that high floors have something above them too.
                let hashes: [u64; GROUP] = core::array::from_fn(|i| {
                    let zeros = if i % 2 == 0 { 0 } else { random.word() % 60 };
                    random.word() & !(u64::MAX >> precision) | random.word() >> precision >> zeros
                });
                let above = above(&hashes, precision, floor);
                for (i, hash) in hashes.iter().enumerate() {
                    let rank = (hash << precision).leading_zeros() + 1;
                    assert_eq!(above >> i & 1 == 1, rank > u32::from(floor), "{hash:016x} of {precision}, {floor}");
                }
                let mut seen = 0;
                for_each(&hashes, above, |hash| seen += usize::from(hashes.contains(&hash)));
                assert_eq!(seen, above.count_ones() as usize);
            }
        }
    }
}
