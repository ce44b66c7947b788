//! Compares the guarantees of heavy and light counters with exact counts.

use super::*;
use crate::CountAndSum;
use crate::{
    CountMin,
    batch::{is_far, tests::assert_lanes_are_estimates},
    hash::mix,
    oracle::{Amounts, SplitMix64, Zipf},
};
use core::mem::offset_of;
use std::{collections::HashMap, vec::Vec};

const KEY: u64 = 7;

/// Feeds a Zipf stream, which is uniform with an exponent of 0.
fn feed(
    sketch: &mut HeavyLight<CountAndSum>,
    truth: &mut Amounts,
    (keys, exponent): (u32, f64),
    seed: u64,
    additions: u32,
) {
    let (zipf, mut random) = (Zipf::new(crate::test_size::of(keys, keys / 50), exponent), SplitMix64(seed));
    for _ in 0..crate::test_size::of(additions, additions / 400) {
        let (hash, weight) = (mix(zipf.draw(&mut random)), random.weight());
        truth.add(hash, weight);
        let estimate = sketch.add(hash, weight);
        assert_eq!(estimate, sketch.estimate(hash));
    }
}

/// Asserts that every key's truth is within its bounds.
fn check(sketch: &HeavyLight<CountAndSum>, truth: &Amounts) {
    assert_eq!(sketch.total(), truth.total());
    for (hash, truth) in truth.iter() {
        let Bounds { lower, upper } = sketch.bounds(hash);
        assert_eq!(upper, sketch.estimate(hash));
        assert!(lower.count <= truth.count && truth.count <= upper.count, "{lower:?} {truth:?} {upper:?}");
        assert!(lower.sum <= truth.sum && truth.sum <= upper.sum, "{lower:?} {truth:?} {upper:?}");
    }
}

#[test]
fn bounds_hold_alone_and_after_merging_and_feeding_on() {
    for (seed, stream) in [(1, (5_000, 1.05)), (2, (5_000, 0.0)), (3, (300, 0.5)), (4, (20_000, 1.5))] {
        let [mut one, mut other] = [0; 2].map(|_| HeavyLight::with_error(0.005, KEY).unwrap());
        let mut truth = Amounts::default();
        feed(&mut one, &mut truth, stream, seed, 10_000);
        check(&one, &truth);
        feed(&mut other, &mut truth, stream, seed + 10, 10_000);
        one.merge(&other).unwrap();
        check(&one, &truth);
        feed(&mut one, &mut truth, stream, seed + 20, 10_000);
        check(&one, &truth);
    }
}

#[test]
fn bounds_hold_for_keys_that_outgrow_the_light_cells() {
    // There is one block and forty keys, nearly all of which outgrow sixteen bits while they are not large.
    let [mut one, mut other] = [0; 2].map(|_| HeavyLight::<u32>::with_error(0.99, KEY).unwrap());
    let (mut truth, mut random) = (HashMap::<u64, u32>::new(), SplitMix64(5));
    let check = |sketch: &HeavyLight<u32>, truth: &HashMap<u64, u32>| {
        for (&hash, &truth) in truth {
            let Bounds { lower, upper } = sketch.bounds(hash);
            assert!(lower <= truth && truth <= upper && upper < u32::MAX / 2, "{lower} {truth} {upper}");
        }
    };
    let (additions, most) = crate::test_size::of((20_000, 1_000), (1_000, 40_000));
    for nth in 0..additions {
        let (hash, weight) = (mix(random.word() % 40), (random.word() % most) as u32);
        *truth.entry(hash).or_default() += weight;
        (if nth % 2 == 0 { &mut one } else { &mut other }).add(hash, weight);
    }
    assert!(truth.values().all(|&count| count > 200_000));
    one.merge(&other).unwrap();
    check(&one, &truth);
    let foreign = one.bounds(mix(1_000));
    // The key's light cell is full, so its bound is the ceiling, which rises with each key that is turned away.
    assert!(foreign.lower == 0 && foreign.upper <= 8 * truth.values().max().unwrap(), "{foreign:?}");
}

#[test]
fn the_four_largest_keys_of_a_block_are_nearly_exact() {
    let mut sketch = HeavyLight::<u64>::with_error(0.99, KEY).unwrap();
    for key in 1..=4 {
        _ = sketch.add(mix(key), key * 1_000);
    }
    for key in 1..=4 {
        _ = sketch.add(mix(key), key);
    }
    for key in 1..=4 {
        assert_eq!(sketch.bounds(mix(key)), Bounds { lower: key * 1_001, upper: key * 1_001 });
    }
    // Key 8 is not large until it outgrows key 1, whose count then moves to the light cell.
    assert_eq!((sketch.add(mix(8), 1_001), sketch.bounds(mix(8))), (1_001, Bounds { lower: 0, upper: 1_001 }));
    sketch.add(mix(8), 1);
    assert_eq!(sketch.bounds(mix(8)), Bounds { lower: 1, upper: 1_002 });
    assert_eq!(sketch.bounds(mix(1)), Bounds { lower: 0, upper: 1_001 });
    assert_eq!(sketch.bounds(mix(2)), Bounds { lower: 2_002 - 1_001 * u64::from(shares(2, 1)), upper: 2_002 });
    assert!(sketch.estimate(mix(9)) <= 1_001);
}

/// Returns true if two keys have the same light cell.
fn shares(one: u64, other: u64) -> bool {
    place(fingerprint(mix(one))) == place(fingerprint(mix(other)))
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn the_error_is_half_of_a_conservative_count_min_of_equal_memory() {
    // This is a sixteenth of the stream and of the memory in the table above.
    for exponent in [1.05, 0.0] {
        let mut heavy_light = HeavyLight::<u32>::with_error(2.0 * E / (512.0 * 46.0) * 1.000_001, KEY).unwrap();
        let mut count_min = CountMin::<u32>::with_error(E / 4_096.0 * 1.000_001, 0.02, KEY).unwrap();
        let mut truth = HashMap::<u64, u32>::new();
        let (zipf, mut random) = (Zipf::new(62_500, exponent), SplitMix64(8));
        for _ in 0..625_000 {
            let hash = mix(zipf.draw(&mut random));
            *truth.entry(hash).or_default() += 1;
            heavy_light.add(hash, 1);
            count_min.add(hash, 1);
        }
        let kib = |bytes: usize| (bytes + 512) >> 10;
        assert_eq!((kib(heavy_light.memory_bytes()), kib(count_min.memory_bytes())), (64, 64));
        let excess = |estimate: &dyn Fn(u64) -> u32| {
            truth.iter().map(|(&hash, &truth)| u64::from(estimate(hash) - truth)).sum::<u64>()
        };
        let (ours, theirs) = (excess(&|hash| heavy_light.estimate(hash)), excess(&|hash| count_min.estimate(hash)));
        assert!(ours * 2 < theirs, "{ours} of {theirs}");
    }
}

#[test]
fn a_batch_equals_single_additions_in_small_and_large_sketches() {
    const KEYS: usize = crate::test_size::of(1_003, 67);
    for error in [0.01, 0.00001] {
        let mut one_by_one = HeavyLight::<u32>::with_error(error, KEY).unwrap();
        let mut batched = one_by_one.clone();
        assert_eq!(is_far(&batched.blocks), error < 0.001);
        let hashes: Vec<_> = (0..KEYS as u64).map(|key| mix(key % (KEYS as u64 * 2 / 3))).collect();
        let weights: Vec<_> = (0..KEYS as u32 - 2).collect();
        batched.add_batch(&hashes, &weights);
        for (&hash, &weight) in hashes.iter().zip(&weights) {
            _ = one_by_one.add(hash, weight);
        }
        assert_eq!(batched, one_by_one);
        let mut estimates = [7; KEYS - 4];
        batched.estimate_batch(&hashes, &mut estimates);
        assert!(hashes.iter().zip(estimates).all(|(&hash, estimate)| batched.estimate(hash) == estimate));
    }
}

#[test]
fn geometry_follows_from_the_error_and_extremes_stay_in_range() {
    let sketch = HeavyLight::<u32>::with_error(0.0005, KEY).unwrap();
    assert_eq!(sketch.geometry(), Geometry::CounterBlocks { count: 237, bytes: 128 });
    assert_eq!(sketch.memory_bytes() - size_of_val(&sketch), 237 * 128);
    assert_eq!((size_of::<Block<u64>>(), size_of::<Block<CountAndSum>>()), (256, 512));
    let (ceiling, counts) = (offset_of!(Block<CountAndSum>, ceiling), offset_of!(Block<u64>, counts));
    assert!(ceiling + size_of::<CountAndSum>() <= 64 && counts + size_of::<[u64; WAYS]>() <= 64, "{ceiling}, {counts}");
    for error in [0.99, 0.9] {
        let mut sketch = HeavyLight::with_error(error, KEY).unwrap();
        assert_eq!(sketch.geometry(), HeavyLight::<CountAndSum>::with_error(0.95, KEY).unwrap().geometry());
        for key in 0..40 {
            // The hashes have every special low half, and the weights are zero and the maximum.
            let hash = [0, u64::MAX, u64::MAX << 32, 1 << 32 | 1, mix(key)][key as usize % 5];
            sketch.add(hash, CountAndSum::default());
            sketch.add(hash, CountAndSum::new(u64::MAX, key));
            assert_eq!(sketch.add(hash, CountAndSum::new(1, 0)).count, u64::MAX);
        }
        let other = sketch.clone();
        sketch.merge(&other).unwrap();
        assert_eq!(sketch.estimate(0).count, u64::MAX);
    }
}

#[test]
fn every_level_reads_the_same() {
    fn check<W: Weight>(weight: impl Fn(u64) -> W) {
        // Some keys are large, some have full cells, and some never appeared.
        let hashes: Vec<_> = [0, u64::MAX, 1 << 63].into_iter().chain((0..147).map(mix)).collect();
        let mut sketch = HeavyLight::<W>::with_error(0.05, KEY).unwrap();
        for &hash in hashes[..100].iter() {
            _ = sketch.add(hash, weight(hash));
        }
        assert_lanes_are_estimates(&Table(&sketch.blocks), &hashes, |hash| sketch.estimate(hash));
    }
    check(|hash| hash as u32 >> 12);
    check(|hash| hash >> 20);
    check(|hash| CountAndSum::new(hash >> 50, hash >> 20));
}
