//! Tests that hold for every filter that can forget a key.
//!
//! The oracle counts in a map how often each *identity* is stored: the part of a key that the filter can distinguish.
//! Compared with that, a filter must not err at all, in either direction.

use std::{collections::HashMap, format, hash::Hash, vec, vec::Vec};

use super::{
    Cuckoo, Full, Image, Quotient, Remove,
    image::Reader,
    oracle::{SplitMix64, hash},
    partial_key::Place,
};

/// A filter in the form that the tests need.
pub(super) trait Lawful: Image + Remove<Error = Full> + core::fmt::Debug {
    type Identity: Hash + Eq;
    fn with_capacity(items: u64) -> Self;
    fn identity(&self, hash: u64) -> Self::Identity;
    fn items(&self) -> u64;
}

/// The fingerprint and the two places, in ascending order of the places.
fn sorted(mut place: Place) -> Place {
    place.choices.sort_unstable();
    place
}

impl Lawful for Cuckoo {
    type Identity = Place;
    fn with_capacity(items: u64) -> Self {
        Self::with_capacity(items, 7).unwrap()
    }
    fn identity(&self, hash: u64) -> Place {
        sorted(self.place(hash))
    }
    fn items(&self) -> u64 {
        self.items()
    }
}

impl Lawful for Quotient {
    type Identity = u64;
    fn with_capacity(items: u64) -> Self {
        Self::with_capacity(items, 7).unwrap()
    }
    fn identity(&self, hash: u64) -> u64 {
        hash >> (64 - self.fingerprint_bits())
    }
    fn items(&self) -> u64 {
        self.items()
    }
}

/// Sizes at which everything collides, and some at which it does not.
const SIZES: [u64; 5] = crate::test_size::of([1, 3, 10, 100, 3_000], [1, 2, 3, 10, 40]);

/// Fills the filter and empties it again, four times, with steps in both directions. At every step all results equal
/// the oracle's.
fn is_a_multiset_of_identities<F: Lawful>() {
    for size in SIZES {
        let mut filter = F::with_capacity(size);
        let new = format!("{filter:?}");
        let mut random = SplitMix64(size);
        let mut counts: HashMap<F::Identity, u64> = HashMap::new();
        let mut inside: Vec<u64> = vec![];
        for is_filling in [true, false].repeat(crate::test_size::of(4, 1)) {
            loop {
                // Some keys appear more than once.
                let key = hash(0, random.word() % (4 * size));
                let count = counts.entry(filter.identity(key)).or_default();
                assert_eq!(filter.contains(key), *count > 0);
                if random.word() % 8 < if is_filling { 7 } else { 1 } {
                    match filter.insert(key) {
                        Ok(is_new) => {
                            assert_eq!(is_new, *count == 0);
                            *count += 1;
                            inside.push(key);
                        }
                        Err(_) if is_filling => break,
                        Err(_) => {}
                    }
                } else if !inside.is_empty() {
                    let key = inside.swap_remove(random.word() as usize % inside.len());
                    assert!(filter.remove(key), "a key was lost");
                    *counts.get_mut(&filter.identity(key)).unwrap() -= 1;
                } else if !is_filling {
                    break;
                }
                assert_eq!(filter.items(), inside.len() as u64);
            }
            assert!(inside.iter().all(|key| filter.contains(*key)), "a key was lost");
            assert!(is_filling || counts.values().all(|count| *count == 0));
        }
        assert_eq!(format!("{filter:?}"), new, "an emptied filter equals a new one");
    }
}

/// A refused key changes nothing.
fn loses_nothing_when_full<F: Lawful>() {
    for size in SIZES {
        let mut filter = F::with_capacity(size);
        let mut inside = vec![];
        for key in (0..).map(|item| hash(size, item)) {
            let before = (size < 1_000).then(|| format!("{filter:?}"));
            match filter.insert(key) {
                Ok(_) => inside.push(key),
                Err(full) => {
                    assert_eq!(full.items, inside.len() as u64);
                    assert!(full.items >= size && full.capacity == size, "{full}");
                    assert!(before.is_none_or(|before| format!("{filter:?}") == before));
                    break;
                }
            }
        }
        assert!(filter.fill() <= 1.0 && inside.iter().all(|key| filter.contains(*key)));
        assert!(inside.iter().all(|key| filter.remove(*key)) && filter.items() == 0 && filter.fill() == 0.0);
    }
}

/// This includes a filter planned for more keys than can be built for. It is made from an image, because a real one
/// takes 4 GiB.
fn is_saturated_when_full<F: Lawful>() {
    const HEADER: usize = 24;
    const ITEMS: u64 = crate::test_size::of(1_000, 350);
    let image = F::with_capacity(ITEMS).to_image();
    // The capacity is the first number, ITEMS in two bytes. It is changed to 2^64 - 1.
    let capped = [&[0xff; 9][..], &[1], &image[HEADER + 2..]].concat();
    let capped = F::read(&mut Reader::new(&capped, 1 << 20), 7).unwrap();
    for mut filter in [F::with_capacity(ITEMS), capped] {
        assert!(!filter.is_saturated());
        let hashes: Vec<u64> = (0..ITEMS * 6 / 5).map(|item| hash(1, item)).collect();
        let full = filter.insert_batch(&hashes).unwrap_err();
        assert!((ITEMS..ITEMS * 11 / 10).contains(&full.capacity) && filter.is_saturated(), "{full}");
    }
}

/// This includes a filter so large that it prefetches lines, and keys up to the first one that does not fit.
fn batches_equal_single_insertions<F: Lawful>() {
    const MANY: u64 = crate::test_size::of(1_000, 100);
    for (size, items) in [(100, 100), crate::test_size::of((1_000_000, 5_000), (200, 100))] {
        let keys: Vec<u64> = (0..items).map(|item| hash(1, item)).collect();
        let (mut one_by_one, mut batched) = (F::with_capacity(size), F::with_capacity(size));
        assert!(keys.iter().all(|key| one_by_one.insert(*key).is_ok()));
        batched.insert_batch(&keys).unwrap();
        let probes: Vec<u64> = (0..2 * items + 1).map(|item| hash(1, item)).collect();
        let mut found = vec![true; probes.len() + 1];
        batched.contains_batch(&probes, &mut found);
        assert!(probes.iter().zip(&found).all(|(key, found)| one_by_one.contains(*key) == *found));
        assert!(found[probes.len()], "elements after the keys are not changed");
        let mut few = [false; 3];
        batched.contains_batch(&probes, &mut few);
        assert_eq!(few, [true; 3]);
        // Half of the keys are removed, each of them twice, and further keys, some of which are found by mistake.
        let gone: Vec<u64> = [&keys[..keys.len() / 2 + 1], &probes[..]].concat();
        let removed = gone.iter().filter(|key| one_by_one.remove(**key)).count() as u64;
        assert_eq!(batched.remove_batch(&gone), removed);
        assert_eq!(format!("{batched:?}"), format!("{one_by_one:?}"));
    }
    let many: Vec<u64> = (0..2 * MANY).map(|item| hash(2, item)).collect();
    let mut filter = F::with_capacity(MANY);
    let full = filter.insert_batch(&many).unwrap_err();
    assert_eq!(filter.items(), full.items);
    assert!(many[..full.items as usize].iter().all(|key| filter.contains(*key)), "the keys before it are inserted");
}

/// Tests a filter that contains the planned keys, then with half of them removed, then with all removed.
fn the_rate_is_as_computed<F: Lawful>() {
    const TRIES: u64 = 1_000_000;
    const SIZE: u64 = 2_000;
    let mut filter = F::with_capacity(SIZE);
    let keys: Vec<u64> = (0..SIZE).map(|item| hash(1, item)).collect();
    for key in keys.iter() {
        assert!(filter.insert(*key).is_ok());
    }
    for half in keys.chunks(SIZE as usize / 2) {
        let computed = filter.false_positive_rate();
        let found = (0..TRIES).filter(|item| filter.contains(crate::hash::mix(item + (1 << 40)))).count() as f64;
        let expected = computed * TRIES as f64;
        // A Poisson number exceeds 4.5 standard deviations plus 3 with a chance of one in 100,000.
        assert!((found - expected).abs() <= 4.5 * expected.sqrt() + 3.0, "computed {expected}, found {found}");
        assert!(expected > 5.0, "too few for a test: {expected}");
        for key in half.iter() {
            assert!(filter.remove(*key));
        }
    }
    assert_eq!(filter.false_positive_rate(), 0.0);
}

fn takes_extreme_hashes<F: Lawful>() {
    let mut filter = F::with_capacity(100);
    for key in [0, u64::MAX, 1 << 63, u64::MAX >> 32, u64::MAX << 32] {
        assert!(filter.insert(key).is_ok() && filter.contains(key));
        assert!(filter.remove(key));
    }
    filter.insert(0).unwrap();
    filter.clear();
    assert_eq!(format!("{filter:?}"), format!("{:?}", F::with_capacity(100)));
}

macro_rules! laws {
    ($($module:ident: $filter:ty,)+) => {
        $(mod $module {
            use super::*;
            laws!(@each $filter: is_a_multiset_of_identities, loses_nothing_when_full, is_saturated_when_full,
                batches_equal_single_insertions, takes_extreme_hashes,
                #[cfg_attr(miri, ignore = "statistics over many keys take too long")] the_rate_is_as_computed);
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

laws! {
    cuckoo: Cuckoo,
    quotient: Quotient,
}
