//! Compares the guarantees of a top-k table with exact counts.

use super::*;
use crate::{Columns, CountAndSum, Image};
use crate::{
    oracle::{Amounts, SplitMix64, Zipf, hash},
    test_size,
};
use core::cmp::Reverse;
use std::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

const ONE: CountAndSum = CountAndSum::new(1, 100);

/// Feeds a Zipf stream over `keys` keys to a table and to an oracle.
fn feed(table: &mut TopK<u64, CountAndSum>, truth: &mut Amounts, seed: u64, keys: u32, exponent: f64, additions: u32) {
    let keys = test_size::of(keys, keys / 50);
    let (zipf, mut random) = (Zipf::new(keys, exponent), SplitMix64(exponent.to_bits() + seed));
    for _ in 0..test_size::of(additions, additions / 200) {
        let (key, weight) = (zipf.draw(&mut random), random.weight());
        truth.add(key, weight);
        table.add(hash(1, key), key, weight);
    }
}

fn assert_bounds(table: &TopK<u64, CountAndSum>, truth: &Amounts) {
    for (key, truth) in truth.iter() {
        let Bounds { lower, upper } = table.bounds(hash(1, key), &key);
        assert!((lower.count..=upper.count).contains(&truth.count), "{key}: {lower:?} {truth:?} {upper:?}");
        assert!((lower.sum..=upper.sum).contains(&truth.sum), "{key}: {lower:?} {truth:?} {upper:?}");
    }
    for candidate in table.iter() {
        assert_eq!(table.get(hash(1, candidate.key), &candidate.key), Some(candidate));
        let (lower, value, upper) = (candidate.lower(), candidate.value(), candidate.upper());
        assert!(lower.sum <= value.sum && value.sum <= upper.sum, "{candidate:?}");
        assert!(lower.count <= value.count && value.count <= upper.count, "{candidate:?}");
    }
}

fn largest(table: &TopK<u64, CountAndSum>, count: usize, column: usize) -> Vec<u64> {
    let mut candidates: Vec<_> = table.iter().collect();
    candidates.sort_by_key(|candidate| Reverse(candidate.value().columns()[column]));
    candidates[..count].iter().map(|candidate| candidate.key).collect()
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn the_top_ten_are_those_of_the_oracle() {
    for exponent in [1.0, 1.1, 1.3] {
        let (mut table, mut truth) = (TopK::with_capacity(1024, 7).unwrap(), Amounts::default());
        feed(&mut table, &mut truth, 0, 100_000, exponent, 500_000);
        assert_bounds(&table, &truth);
        for column in [0, 1] {
            // Keys are compared by amount, because keys of equal size may replace each other.
            let amount = |key: &u64| truth.get(*key).columns()[column];
            let top: Vec<u64> = largest(&table, 10, column).iter().map(amount).collect();
            assert_eq!(top, truth.largest(10, |weight| weight.columns()[column]), "s = {exponent}, by column {column}");
        }
    }
}

/// How many of the 100 largest keys a table lacks, in this many streams by Zipf's law.
fn lacking(entries: usize, streams: u64) -> usize {
    const K: usize = 100;
    let zipf = Zipf::new(100_000, 1.05);
    let lacking = (0..streams).map(|seed| {
        let (mut table, mut random) = (TopK::<u64, u64>::with_capacity(entries, 7).unwrap(), SplitMix64(seed));
        let mut truth = std::vec![0u64; 100_000];
        for _ in 0..200_000 {
            let key = zipf.draw(&mut random);
            truth[key as usize] += 1;
            table.add(hash(seed, key), key, 1);
        }
        let mut candidates: Vec<_> = table.iter().collect();
        candidates.sort_by_key(|candidate| Reverse(candidate.value()));
        let amounts: Vec<u64> = candidates.iter().map(|candidate| truth[candidate.key as usize]).collect();
        truth.sort_unstable_by_key(|amount| Reverse(*amount));
        // Of keys that are as large as the last of them, any may be listed.
        amounts[..K].iter().filter(|amount| **amount < truth[K - 1]).count()
    });
    lacking.sum()
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn few_of_the_largest_keys_are_missing() {
    // In 150 streams, an average of 4.1 and 17.7 keys were missing per 20 streams. If keys are missing independently,
    // this many are missing once in 100,000.
    for (entries, most) in [(752, 16), (384, 40)] {
        let lacking = lacking(entries, 20);
        assert!(lacking <= most, "{entries} entries: {lacking} of 2,000 are lacking");
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn a_flood_of_small_keys_leaves_the_large_ones_alone() {
    let (mut table, mut truth) = (TopK::with_capacity(1024, 7).unwrap(), Amounts::default());
    let mut random = SplitMix64(3);
    let mut add = |key: u64| {
        truth.add(key, ONE);
        table.add(hash(1, key), key, ONE);
    };
    for nth in 0..400_000 {
        // Twenty keys have 0.1 % each, among others that appear once.
        add(if random.word().is_multiple_of(50) { random.word() % 20 } else { 1_000 + nth });
    }
    assert_bounds(&table, &truth);
    let top: BTreeSet<u64> = largest(&table, 20, 0).into_iter().collect();
    assert_eq!(top, (0..20).collect());
    for key in 0..20 {
        let (value, truth) = (table.get(hash(1, key), &key).unwrap().value().count, truth.get(key).count);
        assert!(value.abs_diff(truth) * 10 < truth, "{key}: {value}, in truth {truth}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn bounds_are_as_close_as_planned() {
    // These two streams are hard: all keys are new, or there is hardly any skew.
    for exponent in [0.0, 0.5] {
        let (mut table, mut truth) = (TopK::with_error(0.002, 0, 7).unwrap(), Amounts::default());
        feed(&mut table, &mut truth, 2, 200_000, exponent, 400_000);
        let allowed = (truth.total().sum as f64 * 0.002) as u64;
        let wide = truth.iter().filter(|(key, _)| {
            let Bounds { lower, upper } = table.bounds(hash(1, *key), key);
            upper.sum - lower.sum > allowed
        });
        assert!(wide.count() * 100 < truth.len(), "s = {exponent}");
    }
}

#[test]
fn bounds_hold_under_churn_and_after_merging() {
    // With hardly any skew, and 64 entries for 50,000 keys, candidates change all the time.
    let table = || TopK::with_capacity(64, 7).unwrap();
    let (mut one, mut other, mut truth) = (table(), table(), Amounts::default());
    feed(&mut one, &mut truth, 1, 50_000, 0.3, 50_000);
    assert_eq!(one.iter().count(), 64);
    assert_bounds(&one, &truth);
    feed(&mut other, &mut truth, 2, 50_000, 0.3, 50_000);
    one.merge(&other).unwrap();
    assert_bounds(&one, &truth);
    feed(&mut one, &mut truth, 3, 50_000, 0.3, 10_000);
    assert_bounds(&one, &truth);
}

#[test]
fn candidates_and_light_cells_together_have_everything() {
    let (mut table, mut truth) = (TopK::with_capacity(64, 7).unwrap(), Amounts::default());
    feed(&mut table, &mut truth, 4, 5_000, 0.8, 20_000);
    let light = table.light().fold(CountAndSum::default(), Weight::saturating_add);
    assert!(light.count * 4 > truth.total().count, "{light:?}");
    let all = table.iter().fold(light, |sum, candidate| sum.saturating_add(candidate.lower()));
    assert_eq!(all, truth.total());
}

/// A rest that has the exact weight of each key, by its hash.
#[derive(Default)]
struct Exact(BTreeMap<u64, CountAndSum>);

impl Exact {
    fn give(&mut self, hash: u64, weight: CountAndSum) {
        let sum = self.0.entry(hash).or_default();
        *sum = sum.saturating_add(weight);
    }
}

impl Rest<u64, CountAndSum> for Exact {
    fn add(&mut self, hash: u64, _: &u64, weight: CountAndSum) {
        self.give(hash, weight);
    }

    fn give_back(&mut self, key: &u64, weight: CountAndSum) {
        self.give(hash(1, *key), weight);
    }

    fn at_most(&self, hash: u64, most: CountAndSum) -> CountAndSum {
        let known = self.0.get(&hash).copied().unwrap_or_default();
        assert!(known.count <= most.count && known.sum <= most.sum, "the light cells give an upper bound");
        known
    }
}

#[test]
fn upper_bounds_are_as_close_as_those_of_the_rest() {
    let zipf = Zipf::new(2_000, 0.9);
    let (mut random, mut truth) = (SplitMix64(5), Amounts::default());
    let mut both = [(); 2].map(|()| (TopK::<u64, CountAndSum>::with_capacity(64, 7).unwrap(), Exact::default()));
    for nth in 0..20_000 {
        let (key, weight) = (zipf.draw(&mut random), random.weight());
        truth.add(key, weight);
        let (table, rest) = &mut both[nth % 2];
        table.add_batch_and((&[hash(1, key)], |hash| *hash), (&[weight], |weight| (key, *weight)), rest);
    }
    let [(mut one, mut rest), (other, others)] = both;
    one.merge_and(&other, |key| hash(1, *key), &mut rest, |hash, most| others.at_most(hash, most)).unwrap();
    assert_eq!(one.iter().count(), 64);
    assert!(one.iter().any(|candidate| candidate.lower() != candidate.upper()));
    for candidate in one.iter() {
        assert_eq!(candidate.upper(), truth.get(candidate.key), "{candidate:?}");
    }
    for (hash, weight) in others.0 {
        rest.give(hash, weight);
    }
    for (key, truth) in truth.iter() {
        let mut known = rest.0.get(&hash(1, key)).copied().unwrap_or_default();
        known = known.saturating_add(one.get(hash(1, key), &key).map_or(CountAndSum::default(), |held| held.lower()));
        assert_eq!(known, truth, "{key} is in the table or in the rest");
    }
}

/// Checks counts of one number, with a width whose light cells may overflow: feeds two tables and merges them.
fn assert_bounds_of_counts<W: Weight + From<u32>>() {
    const MOST: u64 = 10_000;
    let mut tables = [0, 1].map(|_| TopK::<u64, W>::with_capacity(256, 7).unwrap());
    let (mut truth, mut random) = (Amounts::default(), SplitMix64(9));
    let zipf = Zipf::new(test_size::of(20_000, 400), 1.0);
    for nth in 0..test_size::of(60_000, 600) {
        let (key, count) = (zipf.draw(&mut random), random.word() % MOST);
        truth.add(key, CountAndSum::new(count, 0));
        tables[nth % 2].add(hash(1, key), key, W::from(count as u32));
    }
    let [mut table, other] = tables;
    table.merge(&other).unwrap();
    for (key, CountAndSum { count, .. }) in truth.iter() {
        let Bounds { lower, upper } = table.bounds(hash(1, key), &key);
        assert!(
            (Weight::magnitude(lower)..=Weight::magnitude(upper)).contains(&count),
            "{key}: {lower:?} {count} {upper:?}"
        );
    }
    let held = table.iter().max_by_key(|candidate| candidate.value().magnitude()).unwrap();
    assert_eq!(truth.get(held.key).count, truth.largest(1, |tally| tally.count)[0]);
}

#[test]
fn counts_of_one_number_have_bounds_too() {
    assert_bounds_of_counts::<u32>();
    assert_bounds_of_counts::<u64>();
}

#[test]
fn merging_keeps_the_largest_of_both_and_commutes() {
    let table = || TopK::with_capacity(1024, 7).unwrap();
    let (mut one, mut other, mut truth) = (table(), table(), Amounts::default());
    feed(&mut one, &mut truth, 1, 20_000, 1.1, 100_000);
    feed(&mut other, &mut truth, 2, 20_000, 1.1, 100_000);
    let (ours, theirs) = (one.clone(), other.clone());
    one.merge(&theirs).unwrap();
    other.merge(&ours).unwrap();
    let sorted = |table: &TopK<u64, CountAndSum>| {
        let mut all: Vec<_> = table.iter().map(|c| (c.key, c.lower().sum, c.value().sum, c.upper().sum)).collect();
        all.sort_unstable();
        all
    };
    assert!(one == other, "the order of the merge does not matter");
    let amounts: Vec<u64> = largest(&one, 10, 1).iter().map(|key| truth.get(*key).sum).collect();
    assert_eq!(amounts, truth.largest(10, |tally| tally.sum));
    // Merging an empty table changes nothing.
    let mut empty = table();
    empty.merge(&ours).unwrap();
    assert_eq!(sorted(&empty), sorted(&ours));
    assert!(matches!(one.merge(&TopK::with_capacity(2048, 7).unwrap()), Err(MergeError::Geometry { .. })));
    assert!(matches!(one.merge(&TopK::with_capacity(1024, 8).unwrap()), Err(MergeError::Key { .. })));
}

#[test]
fn a_key_is_admitted_if_the_coin_shows_head_and_it_may_exceed_the_smallest() {
    // The smallest candidate has 10. The new key has another light cell than the candidates.
    let (old_tag, new_tag) = (1, 200);
    let mut row = Row::<u64, u64>::default();
    for way in 0..WAYS {
        row.set(way, Candidate::new(way as u64, 10 + way as u64, 0, 0, 0));
    }
    let mut full = Block::<u64>::default();
    for way in 0..WAYS {
        full.give(way, old_tag);
    }
    let mut random = 1;
    let mut coin = |weight, is_head| {
        (0..1_000).map(|_| Coin::toss(&mut random, weight)).find(|coin| coin.is_head(10) == is_head).unwrap()
    };
    let mut attempt = |missed, weight, is_head| {
        let (mut block, mut row) = (full.clone(), row);
        block.light.add(new_tag, missed);
        let is_admitted = admit(&mut block, &mut row, coin(weight, is_head), (new_tag.into(), 99, weight), &mut ());
        (block, row, is_admitted)
    };
    for (missed, weight, is_head) in [(0, 10, true), (5, 5, true), (100, 10, false)] {
        let (block, after, is_admitted) = attempt(missed, weight, is_head);
        assert_eq!((after, is_admitted), (row, false), "{missed}, {weight}");
        assert_eq!((block.light.upper(old_tag), block.light.upper(new_tag)), (0, missed));
    }
    for missed in [1, 100] {
        let (block, after, is_admitted) = attempt(missed, 10, true);
        assert!(is_admitted);
        let new = after.get(0);
        assert_eq!((new.key, new.lower(), new.value(), new.upper()), (99, 10, 10 + missed.min(10), 10 + missed));
        assert_eq!(block.tag(0), new_tag);
        for way in 1..WAYS {
            assert_eq!(after.get(way), row.get(way));
        }
        // The weight of the smallest candidate is now in its light cell.
        assert_eq!((block.light.upper(old_tag), block.light.upper(new_tag)), (10, missed));
    }
}

#[test]
fn a_hash_is_not_a_key() {
    let mut table = TopK::with_capacity(8, 7).unwrap();
    assert_eq!(table.get(0, &0), None, "a free way has tag 0 and key 0");
    for (key, times) in [(0, 1), (1, 2), (2, 3)] {
        for _ in 0..times {
            table.add(0, key, ONE);
        }
    }
    for (key, times) in [(0, 1), (1, 2), (2, 3)] {
        assert_eq!(table.get(0, &key).unwrap().lower().count, times);
    }
    assert_eq!(table.bounds(0, &9), Bounds::default(), "there was no other key");
}

#[test]
fn a_batch_equals_single_additions() {
    for entries in [64, 8192] {
        let (mut one_by_one, mut batched) =
            (TopK::with_capacity(entries, 7).unwrap(), TopK::with_capacity(entries, 7).unwrap());
        let mut random = SplitMix64(1);
        let count = test_size::of(5_000, 200);
        let items: Vec<_> = (0..count).map(|_| (random.word() % 999, random.weight())).collect();
        for (key, weight) in items.iter() {
            one_by_one.add(hash(1, *key), *key, *weight);
        }
        batched.add_batch((&items, |(key, _)| hash(1, *key)), (&items, |item| *item));
        assert_eq!(one_by_one, batched);
    }
}

#[test]
fn capacity_is_rounded_up_and_kept_in_range() {
    for (entries, capacity) in [(0, 8), (1, 8), (8, 8), (9, 16), (1000, 1000), (1025, 1032)] {
        assert_eq!(TopK::<u64>::with_capacity(entries, 7).unwrap().capacity(), capacity);
    }
    assert_eq!(TopK::<u64>::with_error(0.9, 0, 7).unwrap().capacity(), 8);
    let table = TopK::<[u64; 5], CountAndSum>::with_error(0.0005, 1024, 7).unwrap();
    assert_eq!((table.capacity(), table.key_id()), (8000, 7));
    assert_eq!(table.memory_bytes() - size_of_val(&table), 1000 * (64 + 8 * 72));
}

#[test]
fn a_cleared_table_equals_a_new_one_and_extremes_saturate() {
    let new = TopK::with_capacity(64, 7).unwrap();
    let mut table = new.clone();
    feed(&mut table, &mut Amounts::default(), 1, 1_000, 1.0, 5_000);
    assert_ne!(table, new);
    table.clear();
    assert_eq!(table, new);
    let most = CountAndSum::new(u64::MAX, u64::MAX);
    for key in 0..10 {
        table.add(0, key, most);
        table.add(0, key, most);
    }
    assert_eq!(table.iter().count(), 8);
    assert!(table.iter().all(|candidate| candidate.upper() == most));
    let mut twice = table.clone();
    twice.merge(&table).unwrap();
    assert!(twice.iter().all(|candidate| candidate.upper() == most));
}

#[test]
fn a_forged_price_is_refused() {
    let mut table = TopK::<u64, CountAndSum>::with_capacity(8, 7).unwrap();
    for price in [(1 << 63) - 1, 1 << 63, u64::MAX] {
        table.blocks[0].price = price;
        let read = TopK::<u64, CountAndSum>::from_image(&table.to_image(), 1 << 20);
        assert_eq!(read.is_ok(), price < 1 << 63, "{price}");
        if let Ok(mut read) = read {
            // The sum of weight and price decides.
            read.add(hash(1, 1), 1, CountAndSum::new(u64::MAX, u64::MAX));
        }
    }
}

#[test]
fn coins_follow_the_seed_and_not_the_fingerprint() {
    // There is one block of eight candidates, and a thousand keys that could become candidates: coins decide which do.
    let fed = |key_id, seed| {
        let mut table = TopK::<u64, CountAndSum>::with_capacity(8, 1).unwrap();
        table.rekey(key_id, seed);
        for key in 0..1_000 {
            table.add(hash(1, key), key, ONE);
        }
        table
    };
    let held = |table: &TopK<u64, CountAndSum>| table.iter().map(|candidate| candidate.key).collect::<BTreeSet<_>>();
    let table = fed(7, 1);
    assert_eq!((table.key_id(), held(&table)), (7, held(&fed(8, 1))));
    assert_ne!(held(&table), held(&fed(7, 2)));
    let mut again = table.clone();
    again.clear();
    for key in 0..1_000 {
        again.add(hash(1, key), key, ONE);
    }
    assert_eq!(again, table, "clearing resets the state to the seed");
    assert_eq!(again.clone().merge(&fed(8, 1)), Err(MergeError::Key { ours: 7, theirs: 8 }));
    assert_eq!(again.merge(&fed(7, 2)), Ok(()));
}
