//! Heavy hitters: the largest keys, with bounds for every key. Count-min with candidates.
//!
//! The candidates ([`TopK`]) say which keys are large, and bound each of them from below. The count-min bounds every
//! key from above, listed or not. Every record reaches it, but that of a candidate only once the key stops being a
//! candidate: until then its sum stays with the candidate, and is added wherever the count-min is read. So the few keys
//! with the most records cost the count-min nothing and do not blur it for others. Together, count-min and candidates
//! hold exactly what one count-min fed with every record would hold, after any number of merges. The candidates bound
//! keys from above as well; the lower of the two bounds is used.
//!
//! When a key becomes a candidate, both are asked what it had before, and the candidate keeps the answer: later records
//! of other keys blur the count-min, but not the bounds of this key.

use weir_common::ledger::Tally;
use weir_sketch::{BlockedCountMin, Bounds, Candidate, MergeError, Rest, TopK, count_min::Plain};

/// Candidates and count-min.
pub struct HeavyHitters<K> {
    candidates: TopK<K, Tally>,
    /// Everything that no candidate holds.
    counts: Counts,
}

/// How many keys wait for the count-min.
const TOGETHER: usize = 32;

/// The count-min, and keys waiting for it: many are added at once, long after their cells were prefetched.
struct Counts {
    counts: BlockedCountMin<Tally, Plain>,
    waiting: usize,
    hashes: [u64; TOGETHER],
    tallies: [Tally; TOGETHER],
}

impl Counts {
    #[inline(always)]
    fn add(&mut self, hash: u64, tally: Tally) {
        self.counts.prefetch(hash);
        self.hashes[self.waiting] = hash;
        self.tallies[self.waiting] = tally;
        self.waiting += 1;
        if self.waiting == TOGETHER {
            self.settle();
        }
    }

    #[inline(never)]
    fn settle(&mut self) {
        self.counts.add_batch(&self.hashes[..self.waiting], &self.tallies[..self.waiting]);
        self.waiting = 0;
    }

    /// The most that a key can have of what was added.
    fn estimate(&self, hash: u64) -> Tally {
        let mut most = self.counts.estimate(hash);
        let waiting = self.hashes.iter().zip(&self.tallies).take(self.waiting);
        for (_, tally) in waiting.filter(|(of, _)| **of == hash) {
            most.add(*tally);
        }
        most
    }

    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        let waiting = other.hashes.iter().zip(&other.tallies).take(other.waiting);
        for (hash, tally) in waiting {
            self.add(*hash, *tally);
        }
        self.counts.merge(&other.counts)
    }
}

/// Passes what candidates do not hold to the count-min, and to `beside`.
struct Overflow<'a, F, R> {
    counts: &'a mut Counts,
    hash_of: F,
    beside: &'a mut R,
}

impl<K, F: Fn(&K) -> u64, R: Rest<K, Tally>> Rest<K, Tally> for Overflow<'_, F, R> {
    #[inline(always)]
    fn add(&mut self, hash: u64, key: &K, tally: Tally) {
        self.counts.add(hash, tally);
        self.beside.add(hash, key, tally);
    }

    // A function of its own: a hash takes many registers.
    #[cold]
    #[inline(never)]
    fn give_back(&mut self, key: &K, tally: Tally) {
        let hash = (self.hash_of)(key);
        self.counts.add(hash, tally);
        self.beside.give_back(key, tally);
    }

    #[cold]
    #[inline(never)]
    fn at_most(&self, hash: u64, most: Tally) -> Tally {
        least(most, self.counts.estimate(hash))
    }
}

/// The value and bounds of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<K> {
    /// The key.
    pub key: K,
    /// The likeliest sum.
    pub value: Tally,
    /// The least that it can have.
    pub lower: Tally,
    /// The most that it can have.
    pub upper: Tally,
}

impl<K> From<Candidate<K, Tally>> for Held<K> {
    fn from(held: Candidate<K, Tally>) -> Self {
        Self { value: held.value(), lower: held.lower(), upper: held.upper(), key: held.key }
    }
}

impl<K: Copy + Eq + Default> Held<K> {
    /// What the candidates alone know of any key. One that is no candidate may have anything up to its upper bound; its
    /// value is half of that.
    pub fn of(candidates: &TopK<K, Tally>, hash: u64, key: &K) -> Self {
        let Bounds { lower, upper } = candidates.bounds(hash, key);
        let half = Tally::new(lower.packets.midpoint(upper.packets), lower.bytes.midpoint(upper.bytes));
        let value = candidates.get(hash, key).map_or(half, |held| held.value());
        Self { key: *key, value, lower, upper }
    }
}

impl<K: Copy + Eq + Default> HeavyHitters<K> {
    /// Empty. Bounds are seldom further apart than `error`, a share of everything that is added. Those of the
    /// candidates alone, of which there are at least this many, may be `error_of_candidates` apart.
    pub fn new(error: f64, error_of_candidates: f64, candidates: usize, key_id: u64) -> Self {
        Self {
            candidates: TopK::with_error(error_of_candidates, candidates, key_id),
            counts: Counts {
                counts: BlockedCountMin::plain_with_error(error, key_id),
                waiting: 0,
                hashes: [0; TOGETHER],
                tallies: [Tally::default(); TOGETHER],
            },
        }
    }

    /// Adds to keys: `key(i)`, whose hash is `hashes[i]`, gets `tallies[i]`. `hash_of` hashes any key. `beside` gets
    /// what the candidates do not hold, as the count-min does.
    #[inline(always)]
    pub fn add_batch(
        &mut self,
        hashes: &[u64],
        tallies: &[Tally],
        key: impl Fn(usize) -> K,
        hash_of: impl Fn(&K) -> u64,
        beside: &mut impl Rest<K, Tally>,
    ) {
        let mut next = 0;
        let part = |tally: &Tally| {
            next += 1;
            (key(next - 1), *tally)
        };
        let mut overflow = Overflow { counts: &mut self.counts, hash_of, beside };
        self.candidates.add_batch_and((hashes, |hash| *hash), (tallies, part), &mut overflow);
    }

    /// The candidates.
    pub fn iter(&self) -> impl Iterator<Item = Held<K>> + '_ {
        self.candidates.iter().map(Held::from)
    }

    /// An upper bound of what keys that are no candidates have, in groups: see [`TopK::light`].
    pub fn light(&self) -> impl Iterator<Item = Tally> + '_ {
        self.candidates.light()
    }

    /// A candidate with the tighter upper bound of candidates and count-min.
    pub fn tightened(&self, hash: u64, held: Held<K>) -> Held<K> {
        let upper = least(held.upper, self.most(hash, held.lower));
        Held { value: least(held.value, upper), upper, ..held }
    }

    /// The most that a key may have, if its candidate counted this much of it (zero if it has none).
    fn most(&self, hash: u64, counted: Tally) -> Tally {
        let mut most = self.counts.estimate(hash);
        most.add(counted);
        most
    }

    /// The bounds of any key. One that is no candidate may have anything up to its upper bound; its value is half of
    /// that.
    pub fn look_up(&self, hash: u64, key: &K) -> Held<K> {
        let Bounds { lower, upper } = self.candidates.bounds(hash, key);
        let upper = least(upper, self.most(hash, lower));
        let half = Tally::new(lower.packets.midpoint(upper.packets), lower.bytes.midpoint(upper.bytes));
        let value = self.candidates.get(hash, key).map_or(half, |held| least(held.value(), upper));
        Held { key: *key, value, lower, upper }
    }

    /// Merges another one into this one. `hash_of` hashes a key. `beside` gets the sums of keys that were candidates of
    /// either and no longer are.
    ///
    /// # Errors
    ///
    /// It was built differently.
    pub fn merge(
        &mut self,
        other: &Self,
        hash_of: impl Fn(&K) -> u64,
        beside: &mut impl Rest<K, Tally>,
    ) -> Result<(), MergeError> {
        let mut overflow = Overflow { counts: &mut self.counts, hash_of: &hash_of, beside };
        let their_most = |hash, most| least(most, other.counts.estimate(hash));
        self.candidates.merge_and(&other.candidates, &hash_of, &mut overflow, their_most)?;
        self.counts.merge(&other.counts)
    }

    /// Empties it; every page stays resident.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.counts.counts.clear();
        self.counts.waiting = 0;
    }

    /// Makes an empty one ready for hashes of another key, with these coins.
    pub const fn rekey(&mut self, key_id: u64, coins: u64) {
        self.candidates.rekey(key_id, coins);
        self.counts.counts.rekey(key_id);
    }

    /// The memory that it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        let waiting = size_of_val(&self.counts.hashes) + size_of_val(&self.counts.tallies);
        self.candidates.memory_bytes() + self.counts.counts.memory_bytes() + waiting
    }
}

fn least(one: Tally, other: Tally) -> Tally {
    Tally::new(one.packets.min(other.packets), one.bytes.min(other.bytes))
}

#[cfg(test)]
mod tests {
    use weir_sketch::hash::{Key, KeyedHash, mix};

    use super::*;

    const KEYS: usize = 2_000;

    /// This many records of 2,000 keys, half to each of two; the exact sums; and a count-min that got every record.
    struct Fed {
        both: [HeavyHitters<u64>; 2],
        truths: Vec<Tally>,
        hash: KeyedHash,
        every_record: BlockedCountMin<Tally, Plain>,
    }

    fn fed() -> Fed {
        let key = Key([3, 4]);
        let (hash, mut truths) = (KeyedHash::new(key), vec![Tally::default(); KEYS]);
        let mut every_record = BlockedCountMin::plain_with_error(0.01, key.id());
        let mut both = [(); 2].map(|()| HeavyHitters::new(0.01, 0.02, 64, key.id()));
        for nth in 0..50_000_u64 {
            let key = (KEYS as f64 * (mix(nth) as f64 / u64::MAX as f64).powi(4)) as u64 % KEYS as u64;
            let tally = Tally::new(1, 60 + nth % 1_000);
            truths[key as usize].add(tally);
            let of = hash.words([key]);
            every_record.add(of, tally);
            both[nth as usize % 2].add_batch(&[of], &[tally], |_| key, |key| hash.words([*key]), &mut ());
        }
        Fed { both, truths, hash, every_record }
    }

    #[test]
    fn bounds_hold_for_every_key_before_and_after_merging_and_are_no_wider_than_either() {
        let Fed { both: [mut one, other], truths, hash, .. } = fed();
        one.merge(&other, |key| hash.words([*key]), &mut ()).unwrap();
        let mut tightened = 0;
        for (key, truth) in (0..).zip(&truths) {
            let of = hash.words([key]);
            let Held { value, lower, upper, .. } = one.look_up(of, &key);
            for metric in [|tally: &Tally| tally.packets, |tally: &Tally| tally.bytes] {
                assert!(metric(&lower) <= metric(truth) && metric(truth) <= metric(&upper), "{key}: {truth:?}");
                assert!((metric(&lower)..=metric(&upper)).contains(&metric(&value)));
            }
            tightened += usize::from(upper.bytes < one.candidates.bounds(of, &key).upper.bytes);
            assert!(upper.bytes <= one.counts.estimate(of).bytes + lower.bytes);
        }
        assert!(tightened > 100, "the count-min is of use for {tightened} keys");
    }

    #[test]
    fn what_comes_after_a_key_became_a_candidate_does_not_widen_its_bounds() {
        let Fed { both: [one, _], hash, .. } = fed();
        let widths = one.iter().map(|held| {
            let (width, blurred) =
                (held.upper.packets - held.lower.packets, one.most(hash.words([held.key]), held.lower));
            assert!(held.upper.packets <= blurred.packets && held.upper.bytes <= blurred.bytes, "{held:?}");
            (width, blurred.packets - held.lower.packets)
        });
        let (width, blurred) = widths.fold((0, 0), |(width, blurred), (one, other)| (width + one, blurred + other));
        assert!(3 * width < 2 * blurred, "{width} is not much less than {blurred}");
    }

    #[test]
    fn after_merging_a_candidate_has_at_most_what_both_knew_of_it() {
        let Fed { both: [mut one, other], hash, .. } = fed();
        let most = |of: &HeavyHitters<u64>, key| of.look_up(hash.words([key]), &key).upper;
        let before: Vec<Tally> =
            (0..KEYS as u64).map(|key| [most(&one, key), most(&other, key)].into_iter().sum()).collect();
        one.merge(&other, |key| hash.words([*key]), &mut ()).unwrap();
        assert!(one.iter().count() >= 64);
        // Only candidates of `one`: what leaves it during the merge may be counted for others.
        let (mut sum, mut sum_before) = (Tally::default(), Tally::default());
        for Held { key, upper, .. } in one.iter() {
            sum.add(upper);
            sum_before.add(before[key as usize]);
        }
        assert!(100 * sum.packets <= 101 * sum_before.packets, "{sum:?}, {sum_before:?}");
        assert!(100 * sum.bytes <= 101 * sum_before.bytes, "{sum:?}, {sum_before:?}");
    }

    #[test]
    fn with_the_candidates_added_the_count_min_is_the_one_that_every_record_was_fed_to() {
        let Fed { both: [mut one, other], hash, every_record, .. } = fed();
        let hash_of = |key: &u64| hash.words([*key]);
        one.merge(&other, hash_of, &mut ()).unwrap();
        one.counts.settle();
        let mut whole = one.counts.counts.clone();
        assert!(whole.total().packets < 40_000, "most records cost the count-min nothing");
        for held in one.iter() {
            _ = whole.add(hash_of(&held.key), held.lower);
        }
        assert_eq!(whole, every_record);
    }

    #[test]
    fn keys_that_are_no_candidates_have_no_more_than_their_groups() {
        let Fed { both: [mut one, other], truths, hash, .. } = fed();
        let hash_of = |key: &u64| hash.words([*key]);
        one.merge(&other, hash_of, &mut ()).unwrap();
        let mut all = Tally::default();
        let mut largest = Tally::default();
        for (key, truth) in (0..).zip(&truths).filter(|(key, _)| one.candidates.get(hash_of(key), key).is_none()) {
            assert!(truth.bytes <= one.candidates.bounds(hash_of(&key), &key).upper.bytes);
            all.add(*truth);
            largest = if truth.bytes > largest.bytes { *truth } else { largest };
        }
        assert!(all.packets > 1_000);
        let groups: Vec<Tally> = one.light().collect();
        let sum: Tally = groups.iter().copied().sum();
        assert!(sum.packets >= all.packets && sum.bytes >= all.bytes);
        assert!(groups.iter().any(|group| group.bytes >= largest.bytes));
    }

    #[test]
    fn a_cleared_one_has_nothing() {
        let Fed { both: [mut one, _], hash, .. } = fed();
        let memory = one.memory_bytes();
        one.clear();
        assert_eq!(one.iter().count(), 0);
        assert_eq!(one.look_up(hash.words([5]), &5).upper, Tally::default());
        assert_eq!(one.memory_bytes(), memory);
    }
}
