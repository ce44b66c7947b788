//! Index and rank: the two parts of a hash that a sketch with registers uses.
//!
//! The highest bits are the index of a register. The rank is the position, from 1 on, of the first set bit after them:
//! half of all hashes have rank 1, a quarter have rank 2, and so on.

use super::lowest_rank::GROUP;

/// The stored bits of a float's mantissa.
const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
/// The highest rank: up to here, a float can represent the position of the first set bit.
pub(super) const RANK_MAX: u32 = MANTISSA_BITS;

/// The highest rank of a hash whose index has `precision` bits. It is as frequent as the next lower rank.
pub(super) const fn highest(precision: u32) -> u32 {
    let highest = u64::BITS - precision + 1;
    if highest < RANK_MAX { highest } else { RANK_MAX }
}

/// The index, at most `last` (two to the `precision`, less one), and the rank.
#[inline(always)]
pub(super) const fn place(hash: u64, precision: u32, last: usize) -> (usize, u8) {
    let turned = turn(hash, precision);
    (turned as usize & last, behind_index(turned, last).leading_zeros() as u8 + 1)
}

/// The places of a group of hashes, computed by vectors.
///
/// Only AVX-512 can count leading zeros in vectors, but every instruction set can subtract floats. If the leading 1 of
/// a number from 1 to 2 is subtracted, the exponent falls by the rank.
#[inline(always)]
pub(super) fn places(hashes: &[u64; GROUP], precision: u32, last: usize) -> impl Iterator<Item = (usize, u8)> {
    let (mut indexes, mut ranks) = ([0; GROUP], [0; GROUP]);
    for (i, hash) in hashes.iter().enumerate() {
        let turned = turn(*hash, precision);
        indexes[i] = turned as u32 & last as u32;
        let mantissa = behind_index(turned, last) >> (u64::BITS - MANTISSA_BITS);
        let fraction = f64::from_bits(1f64.to_bits() | mantissa) - 1.0;
        ranks[i] = ((1f64.to_bits() >> MANTISSA_BITS) - (fraction.to_bits() >> MANTISSA_BITS)) as u32;
    }
    indexes.into_iter().zip(ranks).map(|(index, rank)| (index as usize, rank as u8))
}

/// Rotates a hash so that the index is in its lowest bits, and the bits after the index are its highest bits.
#[inline(always)]
const fn turn(hash: u64, precision: u32) -> u64 {
    hash.rotate_left(precision)
}

/// The bits after the index, followed by set bits, so that no rank is above the highest one.
#[inline(always)]
const fn behind_index(turned: u64, last: usize) -> u64 {
    turned | last as u64 | u64::MAX >> (RANK_MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::SplitMix64;

    #[test]
    fn groups_are_placed_as_single_hashes_are() {
        let mut random = SplitMix64(1);
        for precision in [4, 11, 12, 13, 18] {
            let last = (1 << precision) - 1;
            for round in 0..crate::test_size::of(50, 5) {
                let hashes: [u64; GROUP] = core::array::from_fn(|bits| {
                    let behind = if round == 0 { u64::MAX } else { random.word() };
                    random.word() & !(u64::MAX >> precision) | behind >> precision >> (bits as u32).min(63)
                });
                for (hash, place_in_group) in hashes.into_iter().zip(places(&hashes, precision, last)) {
                    let index = (hash >> (64 - precision)) as usize;
                    let rank = (hash << precision).leading_zeros() + 1;
                    assert_eq!(place(hash, precision, last), (index, rank.min(highest(precision)) as u8));
                    assert_eq!(place_in_group, place(hash, precision, last));
                }
            }
        }
    }
}
