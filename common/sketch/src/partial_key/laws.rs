//! Tests that hold for both filters of partial keys.

use core::ops::Range;
use std::{format, vec, vec::Vec};

use crate::{
    Cuckoo, Full, Geometry, TwoChoice,
    oracle::hash,
    removal_laws::Lawful,
    simd::{Level, level},
};

/// A filter of partial keys in the form that the tests need.
pub trait PartialKey: Lawful + Clone {
    /// How many fingerprints fit into a place.
    const SLOTS: usize;
    /// A large filter that refuses a key is at least as full as this.
    const LOAD_WHEN_FULL: f64;
    /// The number of planned keys for a filter that is small enough to try every hash.
    const FEW: u64;
    /// The memory for a million keys, in bits per key.
    const BITS_PER_KEY: Range<f64>;
    /// The geometry for a million keys.
    const OF_A_MILLION: Geometry;

    /// One hash for each pair of a first place and a fingerprint.
    fn all_hashes(&self) -> impl Iterator<Item = u64>;
    /// Looks up many keys with the instructions of this level.
    fn find_at(&self, level: Level, hashes: &[u64], found: &mut [bool]);
    /// Removes many keys with the instructions of this level, if there is a choice.
    fn remove_at_level(&mut self, level: Level, hashes: &[u64]) -> u64;
}

fn it_takes_what_was_planned_at_any_size_and_more<F: PartialKey>() {
    let sizes = [1, 7, 8, 9, 20, 31, 32, 50, 333, 1_000, 20_000];
    for items in sizes.into_iter().take(crate::test_size::of(sizes.len(), 8)) {
        let mut filter = F::with_capacity(items);
        let full = (0..).map(|item| filter.insert(hash(items, item))).find_map(Result::err).unwrap();
        assert_eq!((full.items, full.capacity), (filter.items(), items));
        assert!(full.items >= items && filter.is_saturated(), "{full}");
        assert!(items < 1_000 || filter.fill() > F::LOAD_WHEN_FULL, "{}", filter.fill());
    }
}

fn one_key_goes_in_until_both_places_are_full<F: PartialKey>() {
    let mut filter = F::with_capacity(1_000);
    let twins = (0..).take_while(|_| filter.insert(hash(1, 1)).is_ok()).count();
    assert_eq!(twins, 2 * F::SLOTS);
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

fn the_rate_is_exact<F: PartialKey>() {
    // Some keys are inserted twice, so that one place, or both, has their fingerprints twice.
    let mut filter = F::with_capacity(F::FEW);
    (0..12).chain(0..4).chain(0..2).for_each(|item| assert!(filter.insert(hash(1, item)).is_ok()));
    let (pairs, found) =
        filter.all_hashes().fold((0, 0), |(pairs, found), hash| (pairs + 1, found + u32::from(filter.contains(hash))));
    assert_eq!(filter.false_positive_rate(), f64::from(found) / f64::from(pairs));
}

fn every_level_finds_and_removes_the_same<F: PartialKey>() {
    const KEYS: u64 = crate::test_size::of(1_000, 60);
    let mut filter = F::with_capacity(KEYS);
    (0..KEYS).for_each(|item| assert!(filter.insert(hash(1, item)).is_ok()));
    let hashes: Vec<u64> = (KEYS / 2..KEYS * 3 / 2 + 1).map(|item| hash(1, item)).collect();
    let one_by_one: Vec<bool> = hashes.iter().map(|hash| filter.contains(*hash)).collect();
    for level in [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|at| *at <= level()) {
        let mut found = vec![false; hashes.len()];
        filter.find_at(level, &hashes, &mut found);
        assert_eq!(found, one_by_one, "{level:?}");
        let (mut batched, mut single) = (filter.clone(), filter.clone());
        let removed = hashes.iter().filter(|hash| single.remove(**hash)).count() as u64;
        assert_eq!(batched.remove_at_level(level, &hashes), removed, "{level:?}");
        assert_eq!(format!("{batched:?}"), format!("{single:?}"), "{level:?}");
    }
}

fn geometry_follows_from_the_plan_and_stays_in_range<F: PartialKey>() {
    let million = F::with_capacity(1_000_000);
    let bits = (million.memory_bytes() - size_of::<F>()) as f64 * 8.0 / 1e6;
    assert!(F::BITS_PER_KEY.contains(&bits), "{bits} bits per key");
    assert_eq!(million.geometry(), F::OF_A_MILLION);
    let mut smallest = F::with_capacity(0);
    assert_eq!((smallest.fill(), smallest.false_positive_rate(), smallest.is_saturated()), (0.0, 0.0, false));
    let full = (0..).map(|item| smallest.insert(hash(0, item))).find_map(Result::err).unwrap();
    assert_eq!(full.capacity, 1);
}

macro_rules! laws {
    ($($module:ident: $filter:ty),+) => {
        $(mod $module {
            use super::*;
            laws!(@each $filter: it_takes_what_was_planned_at_any_size_and_more,
                one_key_goes_in_until_both_places_are_full, every_level_finds_and_removes_the_same,
                #[cfg_attr(miri, ignore = "trying every hash takes too long")] the_rate_is_exact,
                #[cfg_attr(miri, ignore = "a filter of a million keys takes too long")]
                geometry_follows_from_the_plan_and_stays_in_range);
        })+
    };
    (@each $filter:ty: $($(#[$meta:meta])? $law:ident),+) => {
        $(#[test]
        $(#[$meta])?
        fn $law() {
            super::$law::<$filter>();
        })+
    };
}

laws! { cuckoo: Cuckoo, two_choice: TwoChoice }
