//! Compares the guarantees of a blocked count-min sketch with exact counts and with count-min.

use super::*;
use crate::CountAndSum;
use crate::{
    CountMin,
    batch::tests::{assert_groups_are_their_keys, assert_lanes_are_estimates},
    hash::mix,
    oracle::{Amounts, SplitMix64, Zipf},
    simd::at_level,
};
use std::{collections::BTreeMap, vec::Vec};

const KEY: u64 = 7;

/// The shares of keys for which the excess at `confidence` is too small: of keys in the sketch, and of absent keys.
fn wronged<U: Update>(sketch: &BlockedCountMin<CountAndSum, U>, truth: &Amounts, confidence: f64) -> [f64; 2] {
    let excess = sketch.excess(confidence);
    let is_wronged = |hash: u64| {
        let (Bounds { lower, upper }, truth) = (sketch.bounds(hash, excess), truth.get(hash));
        assert!(upper.count >= truth.count && upper.sum >= truth.sum, "below the truth");
        lower.sum > truth.sum
    };
    let foreign = (0..20_000).filter(|&key| is_wronged(mix(!key))).count() as f64 / 20_000.0;
    [truth.iter().filter(|&(hash, _)| is_wronged(hash)).count() as f64 / truth.len() as f64, foreign]
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn the_excess_holds_with_its_confidence() {
    // Over 7 pairs of sketches with 20,000 absent keys each, the share of wrong bounds is known to a standard deviation
    // of 0.0008; six of them are allowed. Bounds of keys that were added are wrong less often.
    let mut shares = Vec::new();
    for seed in 0..7 {
        let mut sketches = [0; 2].map(|_| BlockedCountMin::with_error(0.01, KEY).unwrap());
        let (mut plain, mut truth) = (BlockedCountMin::plain_with_error(0.01, KEY).unwrap(), Amounts::default());
        let (zipf, mut random) = (Zipf::new(3_000, 1.05), SplitMix64(seed));
        for nth in 0..12_000 {
            let (hash, weight) = (mix(zipf.draw(&mut random)), random.weight());
            let estimate = sketches[nth % 2].add(hash, weight);
            assert_eq!(estimate, sketches[nth % 2].estimate(hash));
            plain.add(hash, weight);
            truth.add(hash, weight);
        }
        let [mut merged, other] = sketches;
        merged.merge(&other).unwrap();
        assert_eq!((merged.total(), plain.total()), (truth.total(), truth.total()));
        shares.push([wronged(&plain, &truth, 0.9), wronged(&merged, &truth, 0.9)]);
        assert_eq!(wronged(&plain, &truth, 1.0), [0.0; 2]);
    }
    for kind in 0..2 {
        let mean = |known: usize| shares.iter().map(|share| share[kind][known]).sum::<f64>() / 7.0;
        assert!(mean(0) <= 0.105 && (0.07..=0.105).contains(&mean(1)), "{shares:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn the_error_is_near_that_of_count_min() {
    for (exponent, allowed) in [(1.05, 1.25), (0.0, 1.0)] {
        let mut blocked = BlockedCountMin::<u32>::with_error(E / 4_096.0 * 1.000_001, KEY).unwrap();
        let mut classic = CountMin::<u32>::with_error(E / 4_096.0 * 1.000_001, 0.02, KEY).unwrap();
        let (zipf, mut random) = (Zipf::new(62_500, exponent), SplitMix64(8));
        let mut truth = BTreeMap::<u64, u32>::new();
        for _ in 0..625_000 {
            let hash = mix(zipf.draw(&mut random));
            *truth.entry(hash).or_default() += 1;
            blocked.add(hash, 1);
            classic.add(hash, 1);
        }
        let excess = |estimate: &dyn Fn(u64) -> u32| {
            truth.iter().map(|(&hash, &truth)| f64::from(estimate(hash) - truth)).sum::<f64>()
        };
        let ratio = excess(&|hash| blocked.estimate(hash)) / excess(&|hash| classic.estimate(hash));
        assert!((0.8..allowed).contains(&ratio), "{ratio} times");
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn all_cells_are_equally_likely() {
    let mut times = BTreeMap::<_, u32>::new();
    for low in 0..1 << 23 {
        let [one, two, across] = unpack(pack(places(low | !low << 23)));
        assert!(one != two && one / HALF == two / HALF && one / HALF != across / HALF);
        *times.entry((one, two, across)).or_default() += 1;
    }
    assert_eq!(times.len(), CELLS * (HALF - 1) * HALF);
    assert!(times.values().all(|times| (9_362..=9_363).contains(times)));
}

#[test]
fn a_batch_equals_single_additions_in_small_and_large_sketches() {
    const KEYS: usize = crate::test_size::of(1_003, 67);
    fn check<W: Weight, U: Update>(new: &BlockedCountMin<W, U>, weight: impl Fn(u64) -> W) {
        let (mut one_by_one, mut batched) = (new.clone(), new.clone());
        let hashes: Vec<_> = (0..KEYS as u64).map(|key| mix(key % (KEYS as u64 * 2 / 3))).collect();
        let weights: Vec<_> = (0..KEYS as u64 - 2).map(weight).collect();
        batched.add_batch(&hashes, &weights);
        for (&hash, &weight) in hashes.iter().zip(&weights) {
            _ = one_by_one.add(hash, weight);
        }
        assert_eq!(batched, one_by_one);
        let mut estimates = std::vec![W::default(); KEYS - 4];
        batched.estimate_batch(&hashes, &mut estimates);
        assert!(hashes.iter().zip(estimates).all(|(&hash, estimate)| batched.estimate(hash) == estimate));
    }
    for (error, of_tallies) in [(0.01, 0.01), crate::test_size::of((0.00001, 0.00001), (0.00004, 0.001))] {
        check(&BlockedCountMin::<u32>::with_error(error, KEY).unwrap(), |nth| nth as u32);
        check(&BlockedCountMin::plain_with_error(of_tallies, KEY).unwrap(), |nth| CountAndSum::new(nth, 100 * nth));
    }
}

#[test]
fn every_level_finds_and_reads_the_same_cells() {
    for count in [1, 2, 1_360, BLOCKS_MAX - 1, BLOCKS_MAX] {
        assert_groups_are_their_keys(&Blocks(count), |level, found, hashes| {
            at_level!(level, (found: &mut [[u32; GROUP]; 2], count: usize, hashes: &[u64; GROUP]) {
                place_each(found, count, hashes);
            });
        });
    }
    let hashes: Vec<_> = (0..150).map(mix).collect();
    let mut sketch = BlockedCountMin::<u32>::with_error(0.02, KEY).unwrap();
    for &hash in hashes.iter() {
        _ = sketch.add(hash, hash as u32 >> 9);
    }
    assert_lanes_are_estimates(&Table(&sketch.blocks), &hashes, |hash| sketch.estimate(hash));
    let mut sketch = BlockedCountMin::with_error(0.02, KEY).unwrap();
    for &hash in hashes.iter() {
        _ = sketch.add(hash, CountAndSum::new(hash >> 50, hash >> 20));
    }
    assert_lanes_are_estimates(&Table(&sketch.blocks), &hashes, |hash| sketch.estimate(hash));
}

#[test]
fn geometry_follows_from_the_error_and_stays_in_range() {
    let sketch = BlockedCountMin::<u32>::with_error(0.0005, KEY).unwrap();
    assert_eq!(sketch.geometry(), Geometry::CounterBlocks { count: 1_360, bytes: 64 });
    assert_eq!(sketch.memory_bytes() - size_of_val(&sketch), 85 << 10);
    for error in [0.99, 0.9] {
        let mut sketch = BlockedCountMin::with_error(error, KEY).unwrap();
        assert_eq!(sketch.geometry(), Geometry::CounterBlocks { count: 1, bytes: 256 });
        sketch.add(u64::MAX, CountAndSum::new(1, u64::MAX));
        assert_eq!(sketch.add(u64::MAX, CountAndSum::new(1, 1)), CountAndSum::new(2, u64::MAX));
    }
}
