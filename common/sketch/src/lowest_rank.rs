//! The lowest rank in any register. A hash of this rank or a lower one cannot change a register.
//!
//! Once a sketch has seen many times as many keys as it has registers, nearly all hashes are like that. One comparison
//! of whole vectors rejects such hashes before their registers are looked up.

/// How many hashes are compared together. Each has one bit in a word.
pub(super) const GROUP: usize = u64::BITS as usize;

/// A lower bound of the ranks of all registers.
///
/// It is a shortcut and not a part of a sketch's state: it does not affect the registers. So all values compare as
/// equal, and none is printed.
#[derive(Clone, Copy, Default)]
pub(super) struct LowestRank {
    rank: u8,
    /// How many hashes were added since the last update.
    age: usize,
}

impl LowestRank {
    /// The bound before `fed` more hashes are added. It is updated once for every `registers` hashes, which costs each
    /// hash a fraction of a cycle.
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

impl PartialEq for LowestRank {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LowestRank {}

impl core::fmt::Debug for LowestRank {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("LowestRank")
    }
}

/// The hashes with a higher rank than `lowest`: bit i is for hash i. The rank is one more than the number of zeros that
/// follow the `precision` highest bits.
#[inline(always)]
pub(super) fn above(hashes: &[u64; GROUP], precision: u32, lowest: u8) -> u64 {
    let behind_index = u64::MAX >> precision;
    let must_be_zero = behind_index & !(behind_index >> lowest);
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
    fn hashes_above_the_lowest_rank_are_found() {
        let mut random = SplitMix64(1);
        for precision in [4, 14, 18] {
            for lowest in [0, 1, 2, 7, 40, 53] {
                // Every second hash has few bits after its index, so that some hashes are above high ranks, too.
                let hashes: [u64; GROUP] = core::array::from_fn(|i| {
                    let zeros = if i % 2 == 0 { 0 } else { random.word() % 60 };
                    random.word() & !(u64::MAX >> precision) | random.word() >> precision >> zeros
                });
                let above = above(&hashes, precision, lowest);
                for (i, hash) in hashes.iter().enumerate() {
                    let rank = (hash << precision).leading_zeros() + 1;
                    assert_eq!(above >> i & 1 == 1, rank > u32::from(lowest), "{hash:016x} of {precision}, {lowest}");
                }
                let mut seen = 0;
                for_each(&hashes, above, |hash| seen += usize::from(hashes.contains(&hash)));
                assert_eq!(seen, above.count_ones() as usize);
            }
        }
    }
}
