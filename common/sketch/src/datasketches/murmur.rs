//! The hash that all sketches of Apache `DataSketches` share, so that sketches of any origin can be merged: the 64-bit
//! variant of `MurmurHash3` with 128 bits, with the seed 9001.
//!
//! **This hash is not keyed**: anyone can construct items that collide. Use it only for sketches that leave the machine
//! to be merged with those of other programs.
//!
//! **Source**: Austin Appleby, "`MurmurHash3`", 2011 (the algorithm); `hll_sketch` of `DataSketches` (how its bits are
//! used).
//!
//! **Why not a crate**: `mur3` gives the same hashes, but it reads slices through raw pointers and has had only one
//! release. The forty lines here are safe code, and the algorithm will never change.

use core::net::{Ipv4Addr, Ipv6Addr};

/// The seed of all hashes in `DataSketches`.
const SEED: u64 = 9001;
const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;
/// Bytes hashed in one step.
const BLOCK: usize = 16;

/// An item's hash, as in `DataSketches`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicHash {
    /// The half of the hash whose low bits choose the register.
    place: u64,
    /// The half of the hash whose leading zeros give the rank.
    rank: u64,
}

impl PublicHash {
    /// The hash of bytes, or of the UTF-8 of a string. `DataSketches` does not count empty items, and the caller should
    /// not count them either.
    #[inline]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let [place, rank] = murmur3(bytes, SEED);
        Self { place, rank }
    }

    /// The hash of an integer of any width.
    #[inline]
    pub fn of_integer(integer: u64) -> Self {
        Self::of_bytes(&integer.to_le_bytes())
    }

    /// The hash of an IPv4 address as an integer: 192.0.2.1 is 3,221,225,985. Do not count IPv4 and IPv6 addresses in
    /// the same sketch.
    #[inline]
    pub fn of_ipv4(address: Ipv4Addr) -> Self {
        Self::of_integer(address.to_bits().into())
    }

    /// The hash of an IPv6 address as 16 bytes in network order. Do not count IPv4 and IPv6 addresses in the same
    /// sketch.
    #[inline]
    pub fn of_ipv6(address: Ipv6Addr) -> Self {
        Self::of_bytes(&address.octets())
    }

    /// The 64 bits for a [`HyperLogLog`](crate::HyperLogLog) of this precision: the register's number, then the bits
    /// whose zeros are counted. With these, each register has the same value as in a sketch of `DataSketches`.
    #[inline]
    pub const fn for_precision(self, precision: u32) -> u64 {
        self.place << (u64::BITS - precision) | self.rank >> precision
    }
}

/// Both halves of `MurmurHash3_x64_128`.
#[inline]
fn murmur3(bytes: &[u8], seed: u64) -> [u64; 2] {
    let (mut first, mut second) = (seed, seed);
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    for block in blocks {
        let [low, high] = halves(block);
        first ^= scrambled_low(low);
        first = first.rotate_left(27).wrapping_add(second).wrapping_mul(5).wrapping_add(0x52dc_e729);
        second ^= scrambled_high(high);
        second = second.rotate_left(31).wrapping_add(first).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // Missing bytes are zeros, and zeros change nothing.
    let mut block = [0; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    let [low, high] = halves(&block);
    first ^= scrambled_low(low) ^ bytes.len() as u64;
    second ^= scrambled_high(high) ^ bytes.len() as u64;

    first = first.wrapping_add(second);
    second = second.wrapping_add(first);
    first = spread(first);
    second = spread(second);
    first = first.wrapping_add(second);
    [first, second.wrapping_add(first)]
}

#[inline(always)]
const fn halves(block: &[u8; BLOCK]) -> [u64; 2] {
    let both = u128::from_le_bytes(*block);
    [both as u64, (both >> 64) as u64]
}

#[inline(always)]
const fn scrambled_low(word: u64) -> u64 {
    word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline(always)]
const fn scrambled_high(word: u64) -> u64 {
    word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

/// A bijection in which every bit depends on all bits.
#[inline(always)]
const fn spread(mut word: u64) -> u64 {
    word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HyperLogLog, MergeError, datasketches::PUBLIC, hash::Key};

    /// The algorithm's own check: the hash of the hashes of 256 keys, of 0 to 255 bytes, each with a different seed.
    #[test]
    fn it_is_murmur3() {
        let key: std::vec::Vec<u8> = (0..=255).collect();
        let mut hashes = std::vec::Vec::new();
        for length in 0..256 {
            let [first, second] = murmur3(&key[..length], 256 - length as u64);
            hashes.extend_from_slice(&first.to_le_bytes());
            hashes.extend_from_slice(&second.to_le_bytes());
        }
        assert_eq!(murmur3(&hashes, 0)[0] as u32, 0x6384_ba69);
    }

    #[test]
    fn addresses_are_hashed_as_documented() {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(PublicHash::of_ipv4(address), PublicHash::of_bytes(&[1, 2, 0, 192, 0, 0, 0, 0]));
        let address: Ipv6Addr = "2001:db8::1".parse().unwrap();
        assert_eq!(PublicHash::of_ipv6(address), PublicHash::of_bytes(b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01"));
    }

    #[test]
    fn a_public_sketch_is_never_merged_with_a_keyed_one() {
        let key_id = Key([1, 2]).id();
        let (mut public, keyed) =
            (HyperLogLog::with_precision(4, PUBLIC).unwrap(), HyperLogLog::with_precision(4, key_id).unwrap());
        let error = public.merge(&keyed).unwrap_err();
        assert_eq!(error, MergeError::Key { ours: PUBLIC, theirs: key_id });
        assert!(std::format!("{error}").contains("public hashes"));
    }

    #[test]
    fn registers_equal_those_of_datasketches() {
        for precision in [4, 11, 18] {
            for hash in
                (0..crate::test_size::of(500, 50)).map(PublicHash::of_integer).chain([PublicHash { place: 5, rank: 0 }])
            {
                let new = HyperLogLog::with_precision(precision, PUBLIC).unwrap();
                let (mut inserted, mut raised) = (new.clone(), new);
                inserted.insert(hash.for_precision(precision));
                raised.raise((hash.place & ((1 << precision) - 1)) as usize, hash.rank.leading_zeros() as u8 + 1);
                assert_eq!(inserted, raised);
            }
        }
    }
}
