//! Tests of a quotient filter beyond those of all filters that can forget keys.

use super::{
    batch::{find_all, insert_all, remove_all},
    *,
};
use crate::{
    oracle::{SplitMix64, hash},
    simd::{self, Level},
};
use std::{collections::BTreeMap, format, vec::Vec};

fn fed(capacity: u64, seed: u64, items: u64) -> Quotient {
    let mut filter = Quotient::with_capacity(capacity, 7).unwrap();
    for item in 0..items {
        assert!(filter.insert(hash(seed, item)).is_ok());
    }
    filter
}

/// The oracle: how often each fingerprint is stored.
fn counts(hashes: impl Iterator<Item = u64>, bits: u32) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for hash in hashes {
        *counts.entry(hash >> (64 - bits)).or_default() += 1;
    }
    counts
}

#[test]
fn filters_of_any_size_take_a_little_more_than_planned() {
    for items in [1, 20, 24, 25, 50, 333, 1_000, 20_000].into_iter().take(crate::test_size::of(8, 6)) {
        let mut filter = Quotient::with_capacity(items, 7).unwrap();
        let full = (0..).map(|item| filter.insert(hash(items, item))).find_map(Result::err).unwrap();
        assert_eq!((full.items, full.capacity), (filter.items(), items));
        assert!(full.items >= items && (0.9..=0.95).contains(&filter.fill()), "{full}");
        assert_eq!(filter.is_saturated(), full.items > items);
    }
}

#[test]
fn a_key_can_be_inserted_fifteen_times() {
    const N: u64 = crate::test_size::of(1_000, 100);
    let mut filter = fed(N, 1, N * 9 / 10);
    let twins = (0..).take_while(|_| filter.insert(hash(2, 1)).is_ok()).count();
    assert!(twins <= RUN_MAX && filter.contains(hash(2, 1)), "{twins}");
    let full = filter.insert(hash(2, 1)).unwrap_err();
    assert_eq!((full.copies, full.items), (twins as u64, N * 9 / 10 + twins as u64));
    assert!(format!("{full}").starts_with(&format!("the filter holds this key {twins} times already")), "{full}");
    assert!((0..twins).all(|_| filter.remove(hash(2, 1))));
    assert_eq!(format!("{filter:?}"), format!("{:?}", fed(N, 1, N * 9 / 10)));
}

#[test]
fn the_same_fingerprints_give_the_same_bits_in_any_order() {
    const N: u64 = crate::test_size::of(1_000, 45);
    // The filters are full, so that many remainders spill, in some filters also from the last line into the first one.
    const KEYS: u64 = N * 21 / 20;
    let backwards = |seed, items: Range<u64>| {
        let mut filter = Quotient::with_capacity(N, 7).unwrap();
        for item in items.rev() {
            assert!(filter.insert(hash(seed, item)).is_ok());
        }
        filter
    };
    let mut wrapped = 0;
    for seed in 0..8 {
        let mut filter = fed(N, seed, KEYS);
        wrapped += u32::from(filter.lines[0].spilled > 0);
        assert_eq!(format!("{filter:?}"), format!("{:?}", backwards(seed, 0..KEYS)));
        for item in 0..KEYS / 2 {
            assert!(filter.remove(hash(seed, item)));
        }
        assert_eq!(format!("{filter:?}"), format!("{:?}", backwards(seed, KEYS / 2..KEYS)));
    }
    assert!(wrapped > 0);
}

#[test]
fn fingerprints_are_read_back_in_order() {
    for capacity in [1, 24, 100, 1_000, 7_777].into_iter().take(crate::test_size::of(5, 3)) {
        let mut random = SplitMix64(capacity);
        let hashes: Vec<u64> = (0..capacity).map(|_| hash(1, random.word() % capacity)).collect();
        let mut filter = Quotient::with_capacity(capacity, 7).unwrap();
        filter.insert_batch(&hashes).unwrap();
        let fingerprints: Vec<u64> = filter.fingerprints().collect();
        let bits = filter.fingerprint_bits();
        assert!(fingerprints.is_sorted() && fingerprints.len() as u64 == filter.items());
        assert!(fingerprints.iter().all(|fingerprint| fingerprint << bits == 0));
        assert_eq!(counts(fingerprints.iter().copied(), bits), counts(hashes.into_iter(), bits));
    }
}

#[test]
fn resizing_needs_no_keys_and_keeps_every_fingerprint() {
    const N: u64 = crate::test_size::of(1_000, 60);
    let mut filter = fed(N, 1, N);
    let fingerprints: Vec<u64> = filter.fingerprints().collect();
    let rate = filter.false_positive_rate();
    for capacity in [5 * N, crate::test_size::of(100, 20) * N, N * 5 / 4, N] {
        filter.resize(capacity).unwrap();
        assert_eq!((filter.capacity(), filter.items()), (capacity, N));
        assert!(filter.fingerprints().eq(fingerprints.iter().copied()));
        assert_eq!(filter.false_positive_rate(), rate, "the same fingerprints have the same rate");
        assert!((0..N).all(|item| filter.contains(hash(1, item))));
    }
    assert_eq!(format!("{filter:?}"), format!("{:?}", fed(N, 1, N)));
    // The rate grows with the size of the filter.
    filter.resize(8 * N).unwrap();
    for item in N..8 * N {
        assert!(filter.insert(hash(1, item)).is_ok());
    }
    assert!((7.5..=8.0).contains(&(filter.false_positive_rate() / rate)), "{}", filter.false_positive_rate() / rate);
}

#[test]
fn resizing_below_the_content_changes_nothing() {
    const N: u64 = crate::test_size::of(1_000, 100);
    let mut filter = fed(3 * N, 1, N * 5 / 2);
    let before = format!("{filter:?}");
    assert_eq!(filter.resize(N * 9 / 5), Err(Full { items: N * 5 / 2, capacity: N * 9 / 5, copies: 0 }));
    assert_eq!(format!("{filter:?}"), before);
    // The filter also does not become so small that two fingerprints would look the same.
    for item in 0..N * 5 / 2 - 1 {
        assert!(filter.remove(hash(1, item)));
    }
    filter.resize(0).unwrap();
    assert_eq!((filter.capacity(), filter.items()), (1, 1));
    assert!(filter.lines.len() * QUOTIENTS >= 1 << (filter.fingerprint_bits() - REMAINDER_BITS));
    assert!(filter.contains(hash(1, N * 5 / 2 - 1)));
}

#[test]
fn a_merged_filter_equals_one_that_was_fed_both() {
    const N: u64 = crate::test_size::of(1_000, 100);
    let mut merged = fed(2 * N, 1, N * 9 / 10);
    merged.merge(&fed(2 * N, 2, N)).unwrap();
    let mut both = fed(2 * N, 1, N * 9 / 10);
    for item in 0..N {
        assert!(both.insert(hash(2, item)).is_ok());
    }
    assert_eq!(format!("{merged:?}"), format!("{both:?}"));
}

#[test]
fn a_merge_that_does_not_fit_changes_nothing_until_there_is_room() {
    const SIZE: u64 = crate::test_size::of(1_000, 60);
    const KEYS: u64 = SIZE * 8 / 10;
    let (mut ours, mut theirs) = (fed(SIZE, 1, KEYS), fed(SIZE, 2, KEYS));
    let before = format!("{ours:?}");
    let error = ours.merge(&theirs).unwrap_err();
    let room = ours.items_max();
    assert_eq!(error, MergeError::Full { items: 2 * KEYS, room });
    assert!(format!("{error}").contains(&format!("{} keys together, but room for only {room}", 2 * KEYS)), "{error}");
    assert_eq!(format!("{ours:?}"), before);
    for filter in [&mut ours, &mut theirs] {
        filter.resize(2 * KEYS).unwrap();
    }
    ours.merge(&theirs).unwrap();
    assert!((0..KEYS).all(|item| ours.contains(hash(1, item)) && ours.contains(hash(2, item))));
    // One key is inserted once too often, which is noticed only in the middle of the merge.
    let mut often = Quotient::with_capacity(2 * KEYS, 7).unwrap();
    for _ in 0..RUN_MAX {
        assert!(often.insert(hash(1, 1)).is_ok());
    }
    often.resize(2 * KEYS).unwrap();
    let (mut ours, before) = (often.clone(), format!("{often:?}"));
    assert!(matches!(ours.merge(&often), Err(MergeError::Full { .. })));
    assert_eq!(format!("{ours:?}"), before);
}

#[test]
fn colliding_keys_cause_an_error() {
    const COUNT: u64 = crate::test_size::of(100, 10);
    // All keys are in the first quotient of each line from the 100th line on, with consecutive hashes.
    let mut filter = Quotient::with_capacity(crate::test_size::of(10_000, 3_000), 7).unwrap();
    let step = u64::MAX / (filter.lines.len() * QUOTIENTS) as u64;
    let mut inserted = Vec::new();
    for quotient in 1_600..1_600 + COUNT {
        let hashes = (0..20).map(|item| quotient * step + item * (step / 32) + step / 64);
        inserted.extend(hashes.filter(|hash| filter.insert(*hash).is_ok()));
    }
    assert_eq!(inserted.len(), COUNT as usize * RUN_MAX);
    assert!(inserted.iter().all(|hash| filter.contains(*hash)));
    assert!(inserted.iter().all(|hash| filter.remove(*hash)) && filter.items() == 0);
    // A remainder that cannot be counted as spilled is refused, and nothing moves.
    let line = filter.place(1 << 63).line();
    for item in 0..SLOTS as u64 {
        assert!(filter.insert((1 << 63) + item * (step / 2)).is_ok());
    }
    filter.lines[line + 1].spilled = u16::MAX;
    let before = format!("{filter:?}");
    assert!(filter.insert(1 << 63).is_err());
    assert_eq!(format!("{filter:?}"), before);
}

#[test]
fn every_level_finds_the_same() {
    const N: u64 = crate::test_size::of(1_000, 100);
    let filter = fed(N, 1, N * 21 / 20);
    let hashes: Vec<u64> = (N / 2..N * 8 / 5 + 1).map(|item| hash(1, item)).collect();
    let one_by_one: Vec<bool> = hashes.iter().map(|hash| filter.contains(*hash)).collect();
    for level in [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|level| *level <= simd::level()) {
        let mut all = std::vec![false; hashes.len()];
        let (filter, hashes, found) = (&filter, &*hashes, &mut *all);
        simd::at_level!(level, (filter: &Quotient, hashes: &[u64], found: &mut [bool]) {
            find_all(filter, hashes, found);
        });
        assert_eq!(all, one_by_one, "{level:?}");
    }
}

#[test]
fn every_level_inserts_and_removes_the_same() {
    const N: u64 = crate::test_size::of(1_000, 100);
    const KEYS: u64 = N * 21 / 20;
    let hashes: Vec<u64> = (0..KEYS).map(|item| hash(1, item)).collect();
    for level in [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|level| *level <= simd::level()) {
        let mut one = Quotient::with_capacity(N, 7).unwrap();
        let (filter, hashes) = (&mut one, &*hashes);
        let done = simd::at_level!(level, (filter: &mut Quotient, hashes: &[u64]) -> Result<(), Full> {
            insert_all(filter, hashes)
        });
        assert_eq!((done, format!("{one:?}")), (Ok(()), format!("{:?}", fed(N, 1, KEYS))), "{level:?}");
        let filter = &mut one;
        let removed = simd::at_level!(level, (filter: &mut Quotient, hashes: &[u64]) -> u64 {
            remove_all(filter, hashes)
        });
        assert_eq!((removed, one.items()), (KEYS, 0), "{level:?}");
    }
}

#[test]
fn geometry_follows_from_the_plan_and_stays_in_range() {
    let million = Quotient::with_capacity(1_000_000, 7).unwrap();
    let bits = (million.memory_bytes() - size_of::<Quotient>()) as f64 * 8.0 / 1e6;
    assert!((21.0..21.1).contains(&bits), "{bits} bits per key");
    assert_eq!(million.geometry(), Geometry::Quotients { count: 41_153 * QUOTIENTS, fingerprint_bits: 35 });
    let smallest = Quotient::with_capacity(0, 7).unwrap();
    assert_eq!((smallest.capacity(), smallest.fill(), smallest.false_positive_rate()), (1, 0.0, 0.0));
    assert_eq!(smallest.geometry(), Geometry::Quotients { count: QUOTIENTS, fingerprint_bits: 20 });
}
