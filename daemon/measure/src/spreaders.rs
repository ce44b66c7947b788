//! Spreaders: the keys that touch many others, with bounds for every row of a list. A spread sketch plus held keys.
//!
//! The spread sketch ([`Spread`]) counts every key in lines that all keys share, and merges exactly. Its bounds are
//! wide, because a key's lines also hold items of other keys. The few keys that touch the most have their own counters
//! ([`SampleAndHold`]) with tight bounds, but these miss the items that such a key touched before it was held. Both see
//! every pair and both bound the number of items, so their bounds are combined.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use weir_config::view::ViewKey;
use weir_sketch::{Estimate, MergeError, SampleAndHold, Spread, Spreader, hash::combine_all, spread::CONFIDENCE};

mod population;

use self::population::{Likely, Population};
use crate::{columns::TOGETHER, configured::configured};

/// The relative standard error of keys without their own counter, without the effect of other keys.
pub const ERROR_OF_OTHERS: f64 = 0.04;
/// The probability that some bound of a list fails. Each of the two structures gets half of it.
const FAILURE: f64 = 1.0 - CONFIDENCE;

/// A spread sketch, and counters for the keys that touch the most.
pub struct Spreaders {
    all: Spread<ViewKey>,
    held: SampleAndHold<ViewKey>,
}

impl Spreaders {
    /// An empty sketch for `pairs` pairs of a key and an item. Keys with `smallest` items or more stand out. `held`
    /// keys are held, and their counts have this relative standard error.
    pub fn new(pairs: u64, smallest: u64, (held, error): (usize, f64), key_id: u64) -> Self {
        Self {
            all: configured(Spread::with_resolution(pairs, smallest, ERROR_OF_OTHERS, key_id)),
            held: configured(SampleAndHold::with_room(held, error, key_id)),
        }
    }

    /// Counts pairs: `key(i)`, whose hash is `key_hashes[i]`, touches the item with the hash `item_hashes[i]`.
    #[inline]
    pub fn insert_batch(&mut self, key_hashes: &[u64], item_hashes: &[u64], key: impl Fn(usize) -> ViewKey) {
        let mut pairs = [0; TOGETHER];
        for (nth, (keys, items)) in key_hashes.chunks(TOGETHER).zip(item_hashes.chunks(TOGETHER)).enumerate() {
            combine_all(keys, items, &mut pairs);
            let (pairs, key) = (&pairs[..keys.len().min(items.len())], |at| key(nth * TOGETHER + at));
            self.all.insert_pairs(keys, pairs, key);
            self.held.insert_pairs(keys, pairs, key);
        }
    }

    /// The `count` keys that touch the most, largest first, among those that are held or remembered by a line. All
    /// their bounds hold together with the probability [`CONFIDENCE`], whichever keys these are.
    pub fn top(&self, count: usize) -> Vec<Spreader<ViewKey>> {
        let (mut all, _) = self.all(&[]);
        all.sort_unstable_by_key(|spreader| (Reverse(spreader.touched.value), spreader.hash));
        all.truncate(count);
        all
    }

    /// The estimates for these keys, by their hashes, whether listed or not. [`Spreaders::top`] would give the same
    /// numbers.
    pub fn look_up(&self, hashes: &[u64]) -> Vec<Estimate> {
        let (all, unlisted) = self.all(hashes);
        let listed: HashMap<u64, Estimate> = all.iter().map(|spreader| (spreader.hash, spreader.touched)).collect();
        hashes.iter().zip(unlisted).map(|(hash, other)| listed.get(hash).copied().unwrap_or(other)).collect()
    }

    /// All keys that are held or remembered by a line. Also the estimates of the `asked` keys, which may not be among
    /// them.
    fn all(&self, asked: &[u64]) -> (Vec<Spreader<ViewKey>>, Vec<Estimate>) {
        let survey = self.all.survey();
        let mut remembered = survey.remembered();
        let margin_of_held = self.held.margin(remembered.len(), FAILURE / 2.0);
        let held = self.held.held(&margin_of_held);
        let margin = survey.margin(remembered.len() + held.len(), FAILURE / 2.0);
        let hashes: HashSet<u64> = held.iter().map(|held| held.hash).collect();
        remembered.retain(|(hash, _)| !hashes.contains(hash));
        let look = |hash| survey.look(hash, &margin);
        let of_held: Vec<_> = held.iter().map(|held| look(held.hash)).collect();
        let of_others: Vec<_> = remembered.iter().map(|(hash, _)| look(*hash)).collect();
        let population = Population::of(&survey, of_held.iter().chain(&of_others).map(|(_, found)| *found));
        let unheld = |hash, (shared, found): (Estimate, f64), least: u64| {
            let unheld = self.held.estimate_unheld(hash, &margin_of_held);
            let likely = population.likely(found).value.min(unheld.value as f64);
            together(Estimate { lower: shared.lower.max(least), ..shared }, unheld, likely)
        };
        let others = remembered.into_iter().zip(of_others).map(|((hash, key), found)| {
            // The key was inserted at least once, otherwise no line would remember it.
            Spreader { hash, key, touched: unheld(hash, found, 1) }
        });
        let held = held.into_iter().zip(of_held).map(|(held, (shared, found))| {
            let likely = Likely::of(held.touched).and(population.likely(found));
            Spreader { touched: together(held.touched, shared, likely.value), ..held }
        });
        let asked = asked.iter().map(|hash| unheld(*hash, look(*hash), 0)).collect();
        (others.chain(held).collect(), asked)
    }

    /// The sketch that counts every key.
    pub const fn lines(&self) -> &Spread<ViewKey> {
        &self.all
    }

    /// Merges another one into this one.
    ///
    /// # Errors
    ///
    /// The other was built differently.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.all.merge(&other.all)?;
        self.held.merge(&other.held)
    }

    /// Empties it; every page stays resident.
    pub fn clear(&mut self) {
        self.all.clear();
        self.held.clear();
    }

    /// Prepares an empty sketch for hashes of another key.
    pub const fn rekey(&mut self, key_id: u64) {
        self.all.rekey(key_id);
        self.held.rekey(key_id);
    }

    /// The memory that it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.all.memory_bytes() + self.held.memory_bytes()
    }
}

/// Combines two estimates of the same number: the bounds of both hold. The result is `value`, or the nearest bound.
fn together(one: Estimate, other: Estimate, value: f64) -> Estimate {
    let lower = one.lower.max(other.lower);
    // They contradict each other only if one of them has failed, which may happen with the remaining probability.
    let upper = one.upper.min(other.upper).max(lower);
    Estimate { value: (value.round() as u64).clamp(lower, upper), lower, upper }
}

#[cfg(test)]
mod tests {
    use weir_sketch::hash::mix;

    use super::*;

    fn key(number: u64) -> ViewKey {
        ViewKey([number, 0, 0, 0, 0])
    }

    /// How many items key `n` touches.
    fn items(n: u64) -> u64 {
        30_000 / (n + 1) + 2
    }

    /// Feeds a part of all pairs, shuffled.
    fn feed(spreaders: &mut Spreaders, seed: u64, part: impl Fn(u64) -> bool) {
        let sizes: Vec<u64> = (0..5_000).map(items).collect();
        feed_sizes(spreaders, seed, &sizes, part);
    }

    /// Feeds keys that touch `sizes` items.
    fn feed_sizes(spreaders: &mut Spreaders, seed: u64, sizes: &[u64], part: impl Fn(u64) -> bool) {
        let mut pairs: Vec<(u64, u64)> =
            (0..).zip(sizes).flat_map(|(n, size)| (0..*size).map(move |nth| (n, nth))).collect();
        pairs.retain(|(n, nth)| part(n ^ nth));
        pairs.sort_by_cached_key(|(n, nth)| mix(seed ^ mix(nth << 32 | n)));
        let hashes: Vec<u64> = pairs.iter().map(|(n, _)| mix(seed ^ mix(*n))).collect();
        let touched: Vec<u64> = pairs.iter().map(|(n, nth)| mix(seed ^ mix(n << 32 | nth))).collect();
        spreaders.insert_batch(&hashes, &touched, |at| key(pairs[at].0));
    }

    #[test]
    fn bounds_of_a_list_hold_and_are_closer_than_those_of_the_lines() {
        let (mut exact, windows) = (0, 10);
        for seed in 0..windows {
            let mut halves = [0, 1].map(|_| Spreaders::new(100_000, 1_000, (40, 0.02), 7));
            for (nth, half) in (0..).zip(&mut halves) {
                feed(half, seed, |n| n % 2 == nth);
            }
            let [mut whole, other] = halves;
            whole.merge(&other).unwrap();
            let top = whole.top(10);
            exact += u32::from(top.iter().zip(0..).all(|(found, n)| found.key == key(n)));
            let survey = whole.all.survey();
            for Spreader { hash, key, touched: Estimate { value, lower, upper } } in top {
                let (truth, wide) = (items(key.0[0]), survey.estimate(hash));
                assert!((lower..=upper).contains(&truth) && (lower..=upper).contains(&value), "{key:?}");
                // The expected width is some 19 %, plus a little for the items missed in both halves.
                assert!((upper - lower) as f64 <= 0.4 * truth as f64, "{key:?}: {lower} to {upper}, in truth {truth}");
                assert!(upper - lower <= wide.upper - wide.lower);
            }
        }
        // Neighbours among the first ten are at least 10 % apart; counts are known to 1.7 %.
        assert!(exact >= 9, "{exact} of {windows} lists are in order");
    }

    #[test]
    fn each_of_the_two_structures_may_fail_half_as_often() {
        let mut spreaders = Spreaders::new(100_000, 1_000, (40, 0.02), 7);
        feed(&mut spreaders, 1, |_| true);
        let (held, survey) = (&spreaders.held, spreaders.all.survey());
        let remembered = survey.remembered();
        let margin = held.margin(remembered.len(), 0.0005);
        let of_held = held.held(&margin);
        let wide = survey.margin(remembered.len() + of_held.len(), 0.0005);
        let top = spreaders.top(usize::MAX);
        let mut of_lines = 0;
        for Spreader { hash, key: found, touched } in &top {
            let shared = survey.estimate_within(*hash, &wide);
            let own = of_held
                .iter()
                .find(|held| held.hash == *hash)
                .map_or_else(|| held.estimate_unheld(*hash, &margin), |held| held.touched);
            assert_eq!(touched.lower, own.lower.max(shared.lower).max(1), "{found:?}");
            assert_eq!(touched.upper, own.upper.min(shared.upper).max(touched.lower), "{found:?}");
            of_lines += u32::from(touched.upper == shared.upper && shared.upper < own.upper);
        }
        assert!(of_lines > 10, "both say something: {of_lines} of {}", top.len());
        assert!(top.iter().filter(|one| of_held.iter().any(|held| held.hash == one.hash)).count() == of_held.len());
    }

    #[test]
    fn it_works_with_another_key_and_knows_its_memory() {
        let new = || Spreaders::new(10_000, 100, (8, 0.05), 7);
        let (mut one, other) = (new(), new());
        assert_eq!(one.memory_bytes(), one.all.memory_bytes() + one.held.memory_bytes());
        one.rekey(9);
        assert_eq!((one.all.key_id(), one.held.key_id()), (9, 9));
        assert!(matches!(one.merge(&other), Err(MergeError::Key { ours: 9, theirs: 7 })));
    }

    #[test]
    fn a_list_does_not_favour_lucky_keys() {
        const SEEDS: u64 = 6;
        // There are more large keys than counters, and the last key is the largest.
        let sizes: Vec<u64> = (0..=200).map(|n| if n == 200 { 2_000 } else { 1_000 }).collect();
        let (mut error, mut rows, mut first) = (0.0, 0, 0);
        for seed in 0..SEEDS {
            let mut spreaders = Spreaders::new(200_000, 1_000, (32, 0.01), 7);
            feed_sizes(&mut spreaders, seed, &sizes, |_| true);
            let top = spreaders.top(10);
            first += u32::from(top[0].key == key(200));
            for Spreader { key, touched: Estimate { value, lower, upper }, .. } in top {
                let truth = sizes[key.0[0] as usize];
                assert!((lower..=upper).contains(&truth), "{key:?}: {lower} to {upper}");
                error += value as f64 / truth as f64 - 1.0;
                rows += 1;
            }
        }
        // Without the correction, the ten luckiest of 200 would appear half as large again as they are.
        let error = error / f64::from(rows);
        assert!(error.abs() < 0.12, "{error}");
        assert!(first >= 5, "first in {first} of {SEEDS}");
    }

    #[test]
    fn two_estimates_are_combined() {
        let estimate = |lower, upper| Estimate { value: lower, lower, upper };
        let together = |one, other, value: f64| {
            let Estimate { lower, value, upper } = together(one, other, value);
            (lower, value, upper)
        };
        assert_eq!(together(estimate(90, 110), estimate(50, 105), 100.0), (90, 100, 105));
        assert_eq!(together(estimate(10, 900), estimate(50, 105), 20.0), (50, 50, 105));
        assert_eq!(together(estimate(90, 130), estimate(50, 100), 120.0), (90, 100, 100));
        assert_eq!(together(estimate(90, 100), estimate(110, 200), 95.0), (110, 110, 110));
    }

    #[test]
    fn a_cleared_sketch_is_empty() {
        let mut spreaders = Spreaders::new(10_000, 100, (8, 0.05), 7);
        feed(&mut spreaders, 1, |_| true);
        assert_eq!(spreaders.top(3).len(), 3);
        let memory = spreaders.memory_bytes();
        spreaders.clear();
        assert!(spreaders.top(3).is_empty() && spreaders.memory_bytes() == memory);
    }
}
