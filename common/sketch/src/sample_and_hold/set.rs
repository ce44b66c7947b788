//! A set of items in the memory of registers. As long as it has room, a count is exact.
//!
//! Each byte, which would be a register, is half a lane, and sixteen lanes are a bucket. An item can be in one of two
//! buckets (as in a cuckoo filter: Fan, Andersen, Kaminsky and Mitzenmacher, "Cuckoo filter: practically better than
//! Bloom", 2014), and a new item goes into the emptier one (Azar, Broder, Karlin and Upfal, "Balanced allocations",
//! 1994). So a set could store some nine items in ten lanes. It stores only eight: then a bucket is hardly ever full,
//! and the order of items does not matter. A lane stores as much of its item's hash as the registers need later on.
//!
//! [`CompactHyperLogLog`](crate::CompactHyperLogLog) also counts few items exactly, but it takes 32 bits for each, and
//! it grows.

use crate::simd;

/// Bytes of a bucket: half a cache line.
const BUCKET: usize = 32;
/// How many bits choose one byte of a bucket. The bucket of an item has this many fewer bits than its register.
const BUCKET_BITS: u32 = BUCKET.ilog2();
/// How many bits of a hash follow those that choose the bucket. The last bit of a lane marks an item that is not in its
/// first bucket.
const TAG_BITS: u32 = u16::BITS - 1;
/// With fewer registers, as a power of two, a counter has no set: fewer than four buckets fill too unevenly.
pub const PRECISION_MIN: u32 = BUCKET_BITS + 2;

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The item, or one that the set cannot distinguish from it, was already present.
    Known,
    /// The item is new, and was stored.
    New,
    /// The item is new, and there is no room.
    Full,
}

/// How many items fit into a set whose memory has room for two to the `precision` registers. A set may be full earlier,
/// but that is rare.
pub const fn room(precision: u32) -> u32 {
    (1 << precision) / size_of::<u16>() as u32 * 13 / 16
}

/// How many different items a set can distinguish, if its memory has room for two to the `precision` registers.
pub fn distinguishable(precision: u32) -> f64 {
    libm::exp2(bits(precision).into())
}

/// Adds the item with this hash.
#[inline]
pub fn insert(memory: &mut [u8], precision: u32, hash: u64) -> Insertion {
    let (first, tag) = parts(hash, precision);
    let second = sibling(first, tag, memory.len());
    let here = [(first, tag << 1), (second, tag << 1 | 1)];
    let [taken, taken_of_second] = here.map(|(bucket, lane)| {
        let lanes = lanes(memory, bucket);
        let taken = lanes.iter().filter(|lane| **lane != [0; 2]).count();
        if lanes.contains(&lane.to_le_bytes()) { None } else { Some(taken) }
    });
    let (Some(taken), Some(taken_of_second)) = (taken, taken_of_second) else { return Insertion::Known };
    let ((bucket, lane), taken) = if taken <= taken_of_second { (here[0], taken) } else { (here[1], taken_of_second) };
    let free = &mut memory[bucket * BUCKET..][..BUCKET][2 * taken..];
    let Some(free) = free.first_chunk_mut() else { return Insertion::Full };
    *free = lane.to_le_bytes();
    Insertion::New
}

/// Prefetches both buckets of the item with this hash.
#[inline(always)]
pub fn prefetch(memory: &[u8], precision: u32, hash: u64) {
    let (first, tag) = parts(hash, precision);
    for bucket in [first, sibling(first, tag, memory.len())] {
        simd::prefetch(&memory[bucket * BUCKET]);
    }
}

/// The known parts of the hashes of all items. [`insert`] cannot distinguish them from the original hashes.
pub fn hashes(memory: &[u8], precision: u32) -> impl Iterator<Item = u64> {
    let buckets = 0..memory.len() / BUCKET;
    let lanes = buckets.flat_map(move |bucket| lanes(memory, bucket).iter().map(move |lane| (bucket, *lane)));
    lanes.map(|(bucket, lane)| (bucket, u16::from_le_bytes(lane))).filter(|(_, lane)| *lane != 0).map(
        move |(bucket, lane)| {
            let tag = lane >> 1;
            let first = if lane & 1 == 0 { bucket } else { sibling(bucket, tag, memory.len()) };
            let known = (first as u64) << TAG_BITS | u64::from(tag);
            // The unknown bits become a set bit, so that a rank is at most one more than can be known.
            known << (u64::BITS - bits(precision)) | 1 << (u64::BITS - 1 - bits(precision))
        },
    )
}

/// How many items are in a set, if this memory is one: its buckets are filled from their beginning, and it is not too
/// full.
pub fn items(memory: &[u8], precision: u32) -> Option<u32> {
    if precision < PRECISION_MIN {
        return None;
    }
    let mut items = 0;
    for bucket in 0..memory.len() / BUCKET {
        let lanes = lanes(memory, bucket);
        let taken = lanes.iter().position(|lane| *lane == [0; 2]).unwrap_or(lanes.len());
        if lanes[taken..].iter().any(|lane| *lane != [0; 2]) {
            return None;
        }
        items += taken as u32;
    }
    (items <= room(precision)).then_some(items)
}

/// How many bits of a hash are known.
const fn bits(precision: u32) -> u32 {
    precision - BUCKET_BITS + TAG_BITS
}

/// The first bucket of an item, and its tag, which is not 0.
#[inline(always)]
const fn parts(hash: u64, precision: u32) -> (usize, u16) {
    let known = hash >> (u64::BITS - bits(precision));
    let tag = known as u16 & (u16::MAX >> 1);
    ((known >> TAG_BITS) as usize, if tag == 0 { 1 } else { tag })
}

/// The other bucket of an item with this tag. (Fibonacci hashing: Knuth, "The Art of Computer Programming", section
/// 6.4.)
///
/// It is never the same bucket, as it may be in cuckoo filters, because a set may have only four buckets.
#[inline(always)]
const fn sibling(bucket: usize, tag: u16, bytes: usize) -> usize {
    let turned = (tag as u32).wrapping_mul(0x9E37_79B1) >> 16;
    bucket ^ ((turned as usize | 1) & (bytes / BUCKET - 1))
}

fn lanes(memory: &[u8], bucket: usize) -> &[[u8; 2]] {
    memory[bucket * BUCKET..][..BUCKET].as_chunks().0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hash::mix, rank, test_size};
    use std::{collections::BTreeSet, vec, vec::Vec};

    /// The stored items, and the memory, when one item found no room.
    fn filled(seed: u64, precision: u32) -> (Vec<u64>, Vec<u8>) {
        let mut memory = vec![0; 1 << precision];
        let mut taken = Vec::new();
        for nth in 0.. {
            let hash = mix(seed << 32 | nth);
            match insert(&mut memory, precision, hash) {
                Insertion::New => taken.push(hash),
                Insertion::Known => (),
                Insertion::Full => break,
            }
        }
        (taken, memory)
    }

    #[test]
    fn there_is_room_for_as_many_items_as_stated() {
        for precision in [7, 8, 11, 13, 15] {
            let seeds = test_size::of(40, 1) as u64;
            let early = (0..seeds).filter(|seed| filled(*seed, precision).0.len() < room(precision) as usize).count();
            assert!(early <= 2, "{precision}: {early} of {seeds}");
        }
        assert_eq!([8, 11, 13, 15].map(room), [104, 832, 3_328, 13_312]);
        assert_eq!((1 << PRECISION_MIN) / BUCKET, 4, "the smallest set has four buckets");
    }

    #[test]
    fn its_items_are_known_and_make_an_equal_copy() {
        for precision in [7, 11, 15].into_iter().take(test_size::of(3, 2)) {
            let (taken, mut memory) = filled(3, precision);
            let before = memory.clone();
            assert!(taken.iter().all(|hash| insert(&mut memory, precision, *hash) == Insertion::Known));
            let hashes: Vec<u64> = hashes(&memory, precision).collect();
            assert_eq!(hashes.len(), taken.len());
            assert!(hashes.iter().all(|hash| insert(&mut memory, precision, *hash) == Insertion::Known));
            assert_eq!(memory, before);
            let known = |hash: &u64| parts(*hash, precision);
            assert_eq!(
                hashes.iter().map(known).collect::<BTreeSet<_>>(),
                taken.iter().map(known).collect::<BTreeSet<_>>()
            );
        }
    }

    #[test]
    fn a_set_can_become_registers() {
        let precision = 11;
        let last = (1 << precision) - 1;
        let highest = (bits(precision) - precision + 1) as u8;
        let (taken, memory) = filled(5, precision);
        let place = |hash: u64| {
            let (register, rank) = rank::place(hash, precision, last);
            (register, rank.min(highest))
        };
        // This holds except for one item in 32,768, whose tag would be 0.
        let is_told = |hash: &&u64| **hash >> (u64::BITS - bits(precision)) & 0x7fff > 1;
        let expected: BTreeSet<_> = taken.iter().filter(is_told).map(|hash| place(*hash)).collect();
        let all: Vec<u64> = hashes(&memory, precision).collect();
        assert_eq!(all.iter().filter(is_told).map(|hash| place(*hash)).collect::<BTreeSet<_>>(), expected);
        assert!(all.iter().all(|hash| rank::place(*hash, precision, last).1 <= highest));
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn few_items_are_mistaken_for_others() {
        // There are 800 items among 2^21 that can be distinguished: 0.15 equal pairs on average, so 15 in a hundred
        // sets.
        let mistaken_for_others = |seed: u64| {
            let mut memory = vec![0; 1 << 11];
            (0..800).filter(|nth| insert(&mut memory, 11, mix(seed << 32 | nth)) == Insertion::Known).count()
        };
        let sum: usize = (0..100).map(mistaken_for_others).sum();
        assert!((2..35).contains(&sum), "{sum}");
        assert_eq!(distinguishable(11), 2_097_152.0);
    }

    #[test]
    fn siblings_are_mutual() {
        for (tag, bucket) in (1..=u16::MAX >> 1).flat_map(|tag| [(tag, 0), (tag, 2)]) {
            let other = sibling(bucket, tag, 128);
            assert!(other != bucket && other < 4 && sibling(other, tag, 128) == bucket, "{tag}: {bucket} and {other}");
        }
    }

    #[test]
    fn a_hash_without_a_tag_is_an_item_too() {
        let mut memory = [0; 128];
        assert_eq!(insert(&mut memory, 7, 0), Insertion::New);
        assert_eq!(insert(&mut memory, 7, 0), Insertion::Known);
        assert_eq!(hashes(&memory, 7).map(|hash| parts(hash, 7)).collect::<Vec<_>>(), [(0, 1)]);
    }
}
