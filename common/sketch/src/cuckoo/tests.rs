use std::{format, vec, vec::Vec};

use super::*;
use crate::{
    oracle::hash,
    partial_key::all_hashes,
    simd::{Level, level},
};

/// A filter for this many keys.
fn planned(items: u64) -> Cuckoo {
    Cuckoo::with_capacity(items, 7).unwrap()
}

/// Looks up many keys with the instructions of this level.
fn find_at(level: Level, buckets: &[Bucket], hashes: &[u64], found: &mut [bool]) {
    simd::at_level!(level, (buckets: &[Bucket], hashes: &[u64], found: &mut [bool]) {
        find_batch(buckets, true, hashes, found);
    });
}

#[test]
fn buckets_are_words_of_four() {
    let mut bucket = Bucket::default();
    for fingerprint in [1, u16::MAX, 0x8000, 1] {
        assert!(bucket.has_room());
        bucket.push(fingerprint);
    }
    assert!(!bucket.has_room());
    assert_eq!(bucket.find(0x8000), Some(1));
    assert!(bucket.holds(u16::MAX) && !bucket.holds(0x8001) && !bucket.holds(2));
    assert_eq!((bucket.take(1), bucket), (0x8000, Bucket(0x0001_ffff_0001)));
    assert_eq!((bucket.take(2), bucket), (1, Bucket(0xffff_0001)));
    assert_eq!((bucket.take(0), bucket), (1, Bucket(0xffff)));
}

#[test]
fn it_takes_what_was_planned_at_any_size_and_more() {
    let sizes = [1, 7, 8, 9, 20, 31, 32, 50, 333, 1_000, 20_000];
    for items in sizes.into_iter().take(crate::test_size::of(sizes.len(), 8)) {
        let mut filter = planned(items);
        let full = (0..).map(|item| filter.insert(hash(items, item))).find_map(Result::err).unwrap();
        assert_eq!((full.items, full.capacity), (filter.items(), items));
        assert!(full.items >= items && filter.is_saturated(), "{full}");
        assert!(items < 1_000 || filter.fill() > 0.945, "{}", filter.fill());
    }
}

#[test]
fn one_key_goes_in_until_both_places_are_full() {
    let mut filter = planned(1_000);
    let twins = (0..).take_while(|_| filter.insert(hash(1, 1)).is_ok()).count();
    assert_eq!(twins, 2 * SLOTS);
    let full = filter.insert(hash(1, 1)).unwrap_err();
    assert_eq!(full, Full { items: twins as u64, capacity: 1_000, copies: twins as u64 });
    assert_eq!(
        format!("{full}"),
        format!(
            "the filter holds this key {twins} times already and has no room for it once more, though only {twins} keys \
             are in (built for 1000): insert a key only if it is absent"
        )
    );
    assert!((0..twins).all(|_| filter.remove(hash(1, 1))));
    assert!(!filter.remove(hash(1, 1)) && filter.items() == 0);
}

#[test]
#[cfg_attr(miri, ignore = "trying every hash takes too long")]
fn the_rate_is_exact() {
    // Some keys are inserted twice, so that one place, or both, has their fingerprints twice.
    let mut filter = planned(12);
    for item in (0..12).chain(0..4).chain(0..2) {
        assert!(filter.insert(hash(1, item)).is_ok());
    }
    let (pairs, found) = all_hashes(filter.count())
        .fold((0, 0), |(pairs, found), hash| (pairs + 1, found + u32::from(filter.contains(hash))));
    assert_eq!(filter.false_positive_rate(), f64::from(found) / f64::from(pairs));
}

#[test]
fn every_level_finds_the_same_and_batches_remove_the_same() {
    const KEYS: u64 = crate::test_size::of(1_000, 60);
    let mut filter = planned(KEYS);
    for item in 0..KEYS {
        assert!(filter.insert(hash(1, item)).is_ok());
    }
    let hashes: Vec<u64> = (KEYS / 2..KEYS * 3 / 2 + 1).map(|item| hash(1, item)).collect();
    let one_by_one: Vec<bool> = hashes.iter().map(|hash| filter.contains(*hash)).collect();
    for level in [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|at| *at <= level()) {
        let mut found = vec![false; hashes.len()];
        find_at(level, &filter.buckets, &hashes, &mut found);
        assert_eq!(found, one_by_one, "{level:?}");
    }
    let (mut batched, mut single) = (filter.clone(), filter.clone());
    let removed = hashes.iter().filter(|hash| single.remove(**hash)).count() as u64;
    assert_eq!(batched.remove_batch(&hashes), removed);
    assert_eq!(format!("{batched:?}"), format!("{single:?}"));
}

#[test]
#[cfg_attr(miri, ignore = "a filter of a million keys takes too long")]
fn geometry_follows_from_the_plan_and_stays_in_range() {
    let million = planned(1_000_000);
    let bits = (million.memory_bytes() - size_of::<Cuckoo>()) as f64 * 8.0 / 1e6;
    assert!((16.9..17.0).contains(&bits), "{bits} bits per key");
    assert_eq!(million.geometry(), Geometry::Buckets { count: 264_555, slots: SLOTS });
    let mut smallest = planned(0);
    assert_eq!((smallest.fill(), smallest.false_positive_rate(), smallest.is_saturated()), (0.0, 0.0, false));
    let full = (0..).map(|item| smallest.insert(hash(0, item))).find_map(Result::err).unwrap();
    assert_eq!(full.capacity, 1);
}
