//! One register of an `UltraLogLog`: the highest position so far, and whether the two positions before it occurred.
//!
//! It represents a set of positions below 64, of which only these three are stored: six bits for the highest position,
//! and one bit for each of the two before it. The first position is always above 1, so 0 is the empty set.

use crate::rank;

/// The highest position; 0 if there is none.
#[inline(always)]
pub const fn highest(register: u8) -> u8 {
    register >> 2
}

/// Returns true if hashes can lead to this register, in a sketch of this precision.
pub fn is_possible(register: u8, precision: u32) -> bool {
    // The lowest position is that of rank 1, and the two low bits are for the two positions before the highest one.
    let rank = u32::from(highest(register)).saturating_sub(precision - 2);
    let before = [0, 0b00, 0b10].get(rank as usize).copied().unwrap_or(0b11);
    register == 0 || (1..=rank::highest(precision)).contains(&rank) && register & 0b11 & !before == 0
}

/// The register with this position added.
#[inline(always)]
pub const fn with(register: u8, position: u32) -> u8 {
    pack(unpack(register) | 1 << position)
}

/// The union of both registers.
#[inline(always)]
pub const fn union(one: u8, other: u8) -> u8 {
    // `pack` cannot pack an empty set.
    let set = unpack(one) | unpack(other);
    if set == 0 { 0 } else { pack(set) }
}

/// The set of positions. (For an empty register, the bit of position 64 is shifted out.)
#[inline(always)]
const fn unpack(register: u8) -> u64 {
    (4 | register as u64 & 3).wrapping_shl((register as u32 >> 2).wrapping_sub(2))
}

/// The register of a set whose highest position is 2 or more.
#[inline(always)]
const fn pack(set: u64) -> u8 {
    let zeros = set.leading_zeros();
    let before = set << zeros << 1 >> (u64::BITS - 2);
    ((u64::BITS - 1 - zeros) << 2) as u8 | before as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn it_keeps_the_highest_of_a_set_and_the_two_before() {
        let positions = [5, 3, 9, 8, 8, 40, 38, 2, 39, 63, 41, 61, 62];
        let (mut register, mut set) = (0, BTreeSet::new());
        for position in positions {
            register = with(register, position);
            set.insert(position);
            let top = *set.last().unwrap();
            let came = |below| u8::from(set.contains(&(top - below)));
            assert_eq!(register, (top << 2) as u8 | came(1) << 1 | came(2));
        }
    }

    #[test]
    fn a_union_equals_one_register_with_all_positions() {
        for one in [0, 16, 19, 21, 29, 30, 255] {
            for other in [0, 17, 20, 28, 31, 252] {
                let positions = |register| (2..64).filter(move |at| unpack(register) >> at & 1 == 1);
                let all = positions(one).chain(positions(other)).fold(0, with);
                assert_eq!(union(one, other), all, "{one} {other}");
            }
        }
    }
}
