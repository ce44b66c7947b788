//! Compares the guarantees of candidate buckets with exact counts.

use core::cmp::Reverse;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    format,
    vec::Vec,
};

use super::*;
use crate::{
    Columns, CountAndSum, Image,
    coin::Coin,
    hash::{Key, KeyedHash, mix},
    oracle::{Amounts, SplitMix64, Zipf, hash},
    test_size,
};

type Buckets = CandidateBuckets<u64, CountAndSum>;

const ONE: CountAndSum = CountAndSum::new(1, 100);

/// Feeds a Zipf stream over `keys` keys to the buckets and to an oracle.
fn feed(buckets: &mut Buckets, truth: &mut Amounts, seed: u64, keys: u32, exponent: f64, additions: u32) {
    let keys = test_size::of(keys, keys / 50);
    let (zipf, mut random) = (Zipf::new(keys, exponent), SplitMix64(exponent.to_bits() + seed));
    for _ in 0..test_size::of(additions, additions / 200) {
        let (key, weight) = (zipf.draw(&mut random), random.weight());
        truth.add(key, weight);
        buckets.add(hash(1, key), key, weight);
    }
}

fn assert_bounds(buckets: &Buckets, truth: &Amounts) {
    for (key, truth) in truth.iter() {
        let Bounds { lower, upper } = buckets.bounds(hash(1, key));
        assert!((lower.count..=upper.count).contains(&truth.count), "{key}: {lower:?} {truth:?} {upper:?}");
        assert!((lower.sum..=upper.sum).contains(&truth.sum), "{key}: {lower:?} {truth:?} {upper:?}");
    }
    for listed in buckets.iter() {
        assert_eq!(buckets.get(hash(1, listed.key)), Some(listed));
        let Listed { key: _, value, lower, upper } = listed;
        assert!(lower.sum <= value.sum && value.sum <= upper.sum, "{listed:?}");
        assert!(lower.count <= value.count && value.count <= upper.count, "{listed:?}");
    }
}

fn largest(buckets: &Buckets, count: usize, column: usize) -> Vec<u64> {
    let mut all: Vec<_> = buckets.iter().collect();
    all.sort_by_key(|listed| Reverse(listed.value.columns()[column]));
    all[..count].iter().map(|listed| listed.key).collect()
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn the_top_ten_are_those_of_the_oracle() {
    for exponent in [1.0, 1.1, 1.3] {
        let (mut buckets, mut truth) = (Buckets::with_capacity(1024, 7).unwrap(), Amounts::default());
        feed(&mut buckets, &mut truth, 0, 100_000, exponent, 500_000);
        assert_bounds(&buckets, &truth);
        for column in [0, 1] {
            // Keys are compared by amount, because keys of equal size may replace each other.
            let amount = |key: &u64| truth.get(*key).columns()[column];
            let top: Vec<u64> = largest(&buckets, 10, column).iter().map(amount).collect();
            assert_eq!(top, truth.largest(10, |weight| weight.columns()[column]), "s = {exponent}, by column {column}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn a_flood_of_small_keys_leaves_the_large_ones_alone() {
    let (mut buckets, mut truth) = (Buckets::with_capacity(1024, 7).unwrap(), Amounts::default());
    let mut random = SplitMix64(3);
    for nth in 0..400_000 {
        // Twenty keys have 0.1 % each, among others that appear once.
        let key = if random.word().is_multiple_of(50) { random.word() % 20 } else { 1_000 + nth };
        truth.add(key, ONE);
        buckets.add(hash(1, key), key, ONE);
    }
    assert_bounds(&buckets, &truth);
    let top: BTreeSet<u64> = largest(&buckets, 20, 0).into_iter().collect();
    assert_eq!(top, (0..20).collect());
    for key in 0..20 {
        let (value, truth) = (buckets.get(hash(1, key)).unwrap().value.count, truth.get(key).count);
        assert!(value.abs_diff(truth) * 10 < truth, "{key}: {value}, in truth {truth}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn large_keys_that_begin_during_a_flood_are_found() {
    // One record in fifty belongs to one of ten keys. Each of these is half as large as the one before it, and the last
    // one has ten records of half a million. All other keys appear once.
    const RECORDS: u64 = 1 << 19;
    let mut found = 0;
    for seed in 0..5 {
        let (mut buckets, mut truth) = (Buckets::with_buckets(2_048, 7).unwrap(), Amounts::default());
        for nth in 0..RECORDS {
            let random = hash(seed, nth);
            let is_large = nth >= RECORDS / 2 && random.is_multiple_of(50);
            let key = if is_large { u64::from(mix(random).leading_zeros()).min(9) } else { 1_000 + nth };
            truth.add(key, ONE);
            buckets.add(hash(1, key), key, ONE);
        }
        assert_bounds(&buckets, &truth);
        found += largest(&buckets, 10, 0).iter().filter(|key| **key < 10).count();
    }
    // With random coins it is 42 to 46.
    assert!(found >= 40, "{found} of 50");
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn bounds_are_as_close_as_planned() {
    // These two streams are hard: all keys are new, or there is hardly any skew.
    for exponent in [0.0, 0.5] {
        let (mut buckets, mut truth) = (Buckets::with_error(0.002, 0, 7).unwrap(), Amounts::default());
        feed(&mut buckets, &mut truth, 2, 200_000, exponent, 400_000);
        let allowed = (truth.total().sum as f64 * 0.002) as u64;
        let wide = truth.iter().filter(|(key, _)| {
            let Bounds { lower, upper } = buckets.bounds(hash(1, *key));
            upper.sum - lower.sum > allowed
        });
        assert!(wide.count() * 100 < truth.len(), "s = {exponent}");
    }
}

#[test]
fn bounds_hold_under_churn_and_after_merging() {
    // With hardly any skew, and 64 candidates for 50,000 keys, candidates change all the time.
    let [mut one, mut other] = [(); 2].map(|()| Buckets::with_capacity(64, 7).unwrap());
    let mut truth = Amounts::default();
    feed(&mut one, &mut truth, 1, 50_000, 0.3, 50_000);
    assert_eq!(one.iter().count(), 64);
    assert_bounds(&one, &truth);
    feed(&mut other, &mut truth, 2, 50_000, 0.3, 50_000);
    one.merge(&other).unwrap();
    assert_bounds(&one, &truth);
    feed(&mut one, &mut truth, 3, 50_000, 0.3, 10_000);
    assert_bounds(&one, &truth);
}

/// Ten workers' buckets, and the truth about their streams.
fn ten() -> (Vec<Buckets>, Amounts) {
    let mut truth = Amounts::default();
    let fed = (0..10).map(|nth| {
        let mut buckets = Buckets::with_capacity(256, 7).unwrap();
        feed(&mut buckets, &mut truth, nth, 20_000, 0.9, 20_000);
        buckets
    });
    let fed = fed.collect();
    (fed, truth)
}

#[test]
fn the_order_of_a_merge_of_many_does_not_matter() {
    let (fed, truth) = ten();
    let in_order = |order: &[usize]| {
        let others: Vec<_> = order[1..].iter().map(|nth| &fed[*nth]).collect();
        let mut sum = fed[order[0]].clone();
        sum.merge_all(&others).unwrap();
        sum
    };
    let one = in_order(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_bounds(&one, &truth);
    assert!(one == in_order(&[7, 3, 9, 0, 5, 8, 2, 6, 1, 4]));
    let of_all =
        |weights: &mut dyn Iterator<Item = CountAndSum>| weights.fold(CountAndSum::default(), Weight::saturating_add);
    let [listed, light] = [of_all(&mut one.iter().map(|listed| listed.lower)), of_all(&mut one.light())];
    assert_eq!(listed.saturating_add(light), truth.total(), "each weight is in exactly one place");
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn the_largest_keys_are_listed_after_merging() {
    let (fed, truth) = ten();
    let mut sum = Buckets::with_capacity(256, 7).unwrap();
    sum.merge_all(&fed.iter().collect::<Vec<_>>()).unwrap();
    let amounts: Vec<u64> = largest(&sum, 10, 1).iter().map(|key| truth.get(*key).sum).collect();
    assert_eq!(amounts, truth.largest(10, |weight| weight.sum));
}

#[test]
fn refused_merges_change_nothing() {
    let (fed, _) = ten();
    let mut one = fed[0].clone();
    let [larger, other_key] = [Buckets::with_capacity(512, 7).unwrap(), Buckets::with_capacity(256, 8).unwrap()];
    assert!(matches!(one.merge_all(&[&fed[1], &larger]), Err(MergeError::Geometry { .. })));
    assert!(matches!(one.merge_all(&[&fed[1], &other_key]), Err(MergeError::Key { .. })));
    assert!(one == fed[0]);
}

#[test]
fn weights_that_do_not_fit_into_a_word_are_counted_exactly() {
    // Records have 2^34 bytes, so a word is full after eight. There are sixteen more keys than places for candidates,
    // so candidates come and go.
    let record = |random: &mut SplitMix64| CountAndSum::new(1 << 20, (1 << 34) + random.word() % 1_000);
    let (zipf, mut random) = (Zipf::new(40, 0.5), SplitMix64(1));
    let (mut parts, mut truth) = ([(); 3].map(|()| Buckets::with_buckets(6, 7).unwrap()), Amounts::default());
    for nth in 0..test_size::of(30_000, 300) {
        let (key, weight) = (zipf.draw(&mut random), record(&mut random));
        truth.add(key, weight);
        parts[nth % 3].add(hash(1, key), key, weight);
    }
    let [mut one, two, three] = parts;
    one.merge_all(&[&two, &three]).unwrap();
    assert_bounds(&one, &truth);
    let sum =
        one.iter().map(|listed| listed.lower).chain(one.light()).fold(CountAndSum::default(), Weight::saturating_add);
    assert_eq!(sum, truth.total(), "nothing was lost");
    let image = one.to_image();
    let read = Buckets::from_image(&image, 1 << 20).unwrap();
    assert_bounds(&read, &truth);
    assert_eq!(read.to_image(), image);
    one.clear();
    assert_eq!(one, Buckets::with_buckets(6, 7).unwrap());
}

#[test]
fn bounds_hold_even_without_any_room() {
    // Every word spills, immediately or later, and there is room for few.
    let (mut buckets, mut truth) = (Buckets::with_capacity(1_024, 7).unwrap(), HashMap::<u64, CountAndSum>::new());
    let mut random = SplitMix64(2);
    for nth in 0..test_size::of(20_000, 2_000) {
        let (key, weight) = (random.word() % 5_000, CountAndSum::new(1 << 24, 1 << (30 + nth % 9)));
        let sum = truth.entry(key).or_default();
        *sum = sum.saturating_add(weight);
        buckets.add(hash(1, key), key, weight);
    }
    let twin = buckets.clone();
    let check = |buckets: &Buckets, times: u64| {
        let mut unknown = 0;
        for (key, truth) in &truth {
            let Bounds { lower, upper } = buckets.bounds(hash(1, *key));
            assert!(lower.sum <= times * truth.sum && times * truth.sum <= upper.sum, "{lower:?} {truth:?} {upper:?}");
            assert!(lower.count <= times * truth.count && times * truth.count <= upper.count);
            unknown += usize::from(upper.sum == u64::MAX);
        }
        assert!(unknown > truth.len() / 4, "{unknown} of {} are unknown", truth.len());
    };
    check(&buckets, 1);
    check(&Buckets::from_image(&buckets.to_image(), 1 << 20).unwrap(), 1);
    buckets.merge(&twin).unwrap();
    check(&buckets, 2);
}

#[test]
fn extremes_saturate() {
    let most = CountAndSum::new(u64::MAX, u64::MAX);
    let mut buckets = Buckets::with_capacity(4, 7).unwrap();
    for hash in [0, 1, u64::MAX, 1 << 63, 9, u64::MAX] {
        buckets.add(hash, hash, CountAndSum::default());
        buckets.add(hash, hash, most);
        buckets.add(hash, hash, most);
    }
    assert_eq!(buckets.iter().count(), 4);
    assert!(buckets.iter().all(|listed| listed.upper == most));
    let twin = buckets.clone();
    buckets.merge(&twin).unwrap();
    assert!([0, 9].map(|hash| buckets.bounds(hash).upper).iter().all(|upper| *upper == most));
}

/// Remembers the weights that it gets.
#[derive(Default)]
struct Told {
    unlisted: Vec<usize>,
    left: BTreeMap<u64, CountAndSum>,
}

impl Rest<u64, CountAndSum> for Told {
    fn unlisted(&mut self, first: usize, keys: u64) {
        self.unlisted.extend((0..64).filter(|nth| keys >> nth & 1 == 1).map(|nth| first + nth));
    }
    fn leaves(&mut self, key: &u64, weight: CountAndSum) {
        let sum = self.left.entry(*key).or_default();
        *sum = sum.saturating_add(weight);
    }
}

#[test]
fn candidates_and_rest_together_have_the_whole_weight_of_each_key() {
    let zipf = Zipf::new(2_000, 0.9);
    let (mut random, mut truth) = (SplitMix64(5), Amounts::default());
    let mut both = [(); 2].map(|()| (Buckets::with_capacity(64, 7).unwrap(), BTreeMap::<u64, CountAndSum>::new()));
    let give = |rest: &mut BTreeMap<u64, CountAndSum>, key, weight| {
        let sum = rest.entry(key).or_default();
        *sum = sum.saturating_add(weight);
    };
    for nth in 0..test_size::of(200, 4) {
        let keys: Vec<u64> = (0..100).map(|_| zipf.draw(&mut random)).collect();
        let weights: Vec<_> = keys.iter().map(|_| random.weight()).collect();
        for (key, weight) in keys.iter().zip(&weights) {
            truth.add(*key, *weight);
        }
        let hashes: Vec<_> = keys.iter().map(|key| hash(1, *key)).collect();
        let packed: Vec<_> = weights.iter().map(|weight| Packed::from(*weight)).collect();
        let ((buckets, rest), mut told) = (&mut both[nth % 2], Told::default());
        buckets.add_batch_and(&hashes, &packed, |nth| keys[nth], &mut told);
        for nth in told.unlisted.iter() {
            give(rest, keys[*nth], weights[*nth]);
        }
        for (key, weight) in told.left {
            give(rest, key, weight);
        }
    }
    let [(mut one, mut rest), (other, others)] = both;
    let mut told = Told::default();
    one.merge_all_and(&[&other], &mut told).unwrap();
    for (key, weight) in told.left.into_iter().chain(others) {
        give(&mut rest, key, weight);
    }
    for listed in one.iter() {
        give(&mut rest, listed.key, listed.lower);
    }
    assert!(truth.iter().all(|(key, truth)| rest.get(&key) == Some(&truth)), "{} keys", rest.len());
}

#[test]
fn a_batch_equals_single_additions() {
    for capacity in [64, 8_192] {
        let [mut one_by_one, mut batched] = [(); 2].map(|()| Buckets::with_capacity(capacity, 7).unwrap());
        let mut random = SplitMix64(1);
        let items: Vec<_> = (0..test_size::of(5_000, 200)).map(|_| (random.word() % 999, random.weight())).collect();
        for (key, weight) in items.iter() {
            one_by_one.add(hash(1, *key), *key, *weight);
        }
        let hashes: Vec<_> = items.iter().map(|(key, _)| hash(1, *key)).collect();
        let weights: Vec<_> = items.iter().map(|(_, weight)| Packed::from(*weight)).collect();
        // The batches are not whole chunks, and there are more hashes than weights.
        let (first, rest) = hashes.split_at(77);
        batched.add_batch(&hashes, &weights[..77], |nth| items[nth].0);
        batched.add_batch(rest, &weights[77..], |nth| items[77 + nth].0);
        batched.add_batch(first, &[], |_| unreachable!());
        assert_eq!(one_by_one, batched);
    }
}

/// Checks counts of one number, for each width.
fn assert_bounds_of_counts<W: Weight + From<u32>>() {
    let [mut one, mut other] = [(); 2].map(|()| CandidateBuckets::<u64, W>::with_capacity(256, 7).unwrap());
    let (mut truth, mut random) = (Amounts::default(), SplitMix64(9));
    let zipf = Zipf::new(test_size::of(20_000, 400), 1.0);
    for nth in 0..test_size::of(60_000, 600) {
        let (key, count) = (zipf.draw(&mut random), random.word() % 10_000);
        truth.add(key, CountAndSum::new(count, 0));
        (if nth % 2 == 0 { &mut one } else { &mut other }).add(hash(1, key), key, W::from(count as u32));
    }
    one.merge(&other).unwrap();
    for (key, CountAndSum { count, .. }) in truth.iter() {
        let Bounds { lower, upper } = one.bounds(hash(1, key));
        assert!((lower.magnitude()..=upper.magnitude()).contains(&count), "{key}: {lower:?} {count} {upper:?}");
    }
    let listed = one.iter().max_by_key(|listed| listed.value.magnitude()).unwrap();
    assert_eq!(truth.get(listed.key).count, truth.largest(1, |weight| weight.count)[0]);
}

#[test]
fn counts_of_one_number_have_bounds_too() {
    assert_bounds_of_counts::<u32>();
    assert_bounds_of_counts::<u64>();
}

#[test]
fn a_key_is_admitted_if_the_coin_shows_head_and_it_may_exceed_the_smallest() {
    use super::{admission::Arrival, bucket::HAS_SPILLED};
    // There is one bucket, whose smallest candidate has 10. The new key has another light cell than the candidates.
    let (old, new) = (1, 0xffff_ffff);
    let full = || {
        let mut counters = Counters::<u64>::new(counters::buckets(1));
        for way in 0..WAYS {
            counters.buckets[0].hashes[way] = old + way as u64;
            counters.set(0, way, 10 + way as u64);
        }
        counters
    };
    let mut random = 1;
    let mut coin = |weight, is_head| {
        (0..1_000).map(|_| Coin::toss(&mut random, weight)).find(|coin| coin.is_head(10) == is_head).unwrap()
    };
    let mut attempt = |missed: u64, weight: u64, is_head| {
        let mut counters = full();
        counters.set(0, cell(new), missed);
        let arrival = Arrival { hash: new, packed: &weight.into(), coin: coin(weight, is_head) };
        let admission = counters.add_slowly(0, cell(new), arrival);
        (counters, admission)
    };
    for (missed, weight, is_head) in [(0, 10, true), (5, 5, true), (100, 10, false)] {
        let (counters, admission) = attempt(missed, weight, is_head);
        assert!(admission.is_none(), "{missed}, {weight}");
        assert_eq!((counters.get(0, cell(old)), counters.get(0, cell(new))), (0, missed + weight));
        assert_eq!(counters.buckets[0].price(), 10, "the price was updated");
    }
    for missed in [1, 100] {
        let (counters, admission) = attempt(missed, 10, true);
        let admission = admission.unwrap();
        assert_eq!(
            (admission.way, admission.missed, admission.likely, admission.counted_before),
            (0, missed, missed.min(10), 10)
        );
        let bucket = &counters.buckets[0];
        assert_eq!(bucket.hashes, [new, old + 1, old + 2, old + 3]);
        assert_eq!((counters.get(0, 0), bucket.credits[0].get(), bucket.has(HAS_SPILLED)), (10, missed.min(10), false));
        // The weight of the smallest candidate is now in its light cell.
        assert_eq!((counters.get(0, cell(old)), counters.get(0, cell(new))), (10, missed));
        assert_eq!(bucket.price(), 11, "the smallest score of the others, or of the new key");
    }
}

#[test]
fn coins_follow_the_seed_and_not_the_fingerprint() {
    // There is one bucket of four candidates, and a thousand keys that could become candidates: coins decide which do.
    let fed = |key_id, seed| {
        let mut buckets = Buckets::with_capacity(4, 1).unwrap();
        buckets.rekey(key_id, seed, 1);
        for key in 0..1_000 {
            buckets.add(hash(1, key), key, ONE);
        }
        buckets
    };
    let listed = |buckets: &Buckets| buckets.iter().map(|listed| listed.key).collect::<BTreeSet<_>>();
    let buckets = fed(7, 1);
    assert_eq!((buckets.key_id(), listed(&buckets)), (7, listed(&fed(8, 1))));
    assert_ne!(listed(&buckets), listed(&fed(7, 2)));
    let mut again = buckets.clone();
    again.clear();
    for key in 0..1_000 {
        again.add(hash(1, key), key, ONE);
    }
    assert_eq!(again, buckets, "clearing resets the state to the seed");
    assert_eq!(again.clone().merge(&fed(8, 1)), Err(MergeError::Key { ours: 7, theirs: 8 }));
    assert_eq!(again.merge(&fed(7, 2)), Ok(()));
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn an_attacker_without_the_key_cannot_fill_a_light_cell() {
    // The attacker knows the code and uses a known key. The attacker sends items that share the victim's light cell
    // under that key, and before them four keys that keep the victim from becoming a candidate.
    let (known, victim) = (Key([1, 2]), 77);
    let place = |key: Key, item: u64| {
        let hash = KeyedHash::new(key).words([item]);
        (scale(hash, 2_048), cell(hash))
    };
    let items: Vec<u64> =
        (0..1 << 21).filter(|item| *item != victim && place(known, *item) == place(known, victim)).collect();
    assert!((100..260).contains(&items.len()), "{} of two million", items.len());
    let excess = |key: Key| {
        let (mut buckets, hash) = (Buckets::with_buckets(2_048, key.id()).unwrap(), KeyedHash::new(key));
        for item in &items {
            buckets.add(hash.words([*item]), *item, ONE);
            buckets.add(hash.words([*item]), *item, ONE);
        }
        buckets.bounds(hash.words([victim])).upper.count as f64 / (2 * items.len()) as f64
    };
    assert!(excess(known) > 0.9, "with the known key the attack works");
    for secret in 0..8 {
        // One item in 12,288 is in the cell by chance. Two or more of them are there about once in ten thousand runs.
        let share = excess(Key([secret, 0x5eed]));
        assert!(share < 0.015, "{share} of the attacker's items count for the victim");
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn keys_that_share_a_cell_do_not_share_it_with_other_places() {
    // The attacker saw the bounds of one window, and knows which items are in the victim's cell.
    let (hash, victim) = (KeyedHash::new(Key([1, 2])), 77);
    let place = |item: u64| (scale(hash.words([item]), 2_048), cell(hash.words([item])));
    let items: Vec<u64> = (0..1 << 20).filter(|item| *item != victim && place(*item) == place(victim)).collect();
    let share = |places| {
        let mut buckets = Buckets::with_buckets(2_048, 7).unwrap();
        buckets.rekey(7, 1, places);
        for item in items.iter().chain(&items) {
            buckets.add(hash.words([*item]), *item, ONE);
        }
        buckets.bounds(hash.words([victim])).upper.count as f64 / (2 * items.len()) as f64
    };
    assert!(items.len() > 50 && share(1) > 0.8, "{} items, {}", items.len(), share(1));
    for seed in 1..=50 {
        let share = share(mix(seed));
        assert!(share < 0.06, "{share} of the items still count for the victim");
    }
    let [mut one, mut other] = [(); 2].map(|()| Buckets::with_buckets(4, 7).unwrap());
    other.rekey(7, 1, 3);
    assert!(matches!(one.merge(&other), Err(MergeError::Key { .. })), "their buckets have other keys");
    other.add(1, 1, ONE);
    let read = Buckets::from_image(&other.to_image(), 1 << 20).unwrap();
    assert_eq!((read.bounds(1), &read), (Bounds { lower: ONE, upper: ONE }, &other));
}

#[test]
fn geometry_follows_from_the_settings_and_stays_in_range() {
    for (candidates, capacity) in [(0, 4), (1, 4), (4, 4), (5, 8), (1_000, 1_000), (1_025, 1_028)] {
        assert_eq!(Buckets::with_capacity(candidates, 7).unwrap().capacity(), capacity);
    }
    assert_eq!(Buckets::with_error(0.9, 0, 7).unwrap().capacity(), 4);
    let buckets = CandidateBuckets::<[u64; 5], CountAndSum>::with_error(0.0005, 1_024, 7).unwrap();
    assert_eq!((buckets.geometry(), buckets.key_id()), (Geometry::CandidateBuckets { count: 1_334 }, 7));
    assert_eq!(CandidateBuckets::<[u64; 5], CountAndSum>::bytes_of(1_000), 1_000 * (128 + 256) + 314 * 24);
    assert_eq!(format!("{}", buckets.geometry()), "1334 buckets of four candidates");
}
