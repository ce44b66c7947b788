//! Heavy hitters: the largest keys, with bounds for every key. Count-min with candidates.
//!
//! Two structures are fed with every record. The candidates ([`TopK`]) say which keys are large, and bound what each had
//! from below. The count-min bounds every key from above, listed or not, and adds exactly: after any number of merges it
//! has what one alone would have. Both bounds from above hold, so the lower one is taken.

use weir_common::ledger::Tally;
use weir_sketch::{BlockedCountMin, Bounds, Candidate, MergeError, TopK, count_min::Plain};

/// Candidates and count-min.
pub struct HeavyHitters<K> {
    candidates: TopK<K, Tally>,
    counts: BlockedCountMin<Tally, Plain>,
}

/// What is known of a listed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<K> {
    /// The key.
    pub key: K,
    /// The likeliest.
    pub value: Tally,
    /// It has at least this.
    pub lower: Tally,
    /// It has at most this.
    pub upper: Tally,
}

impl<K: Copy + Eq + Default> HeavyHitters<K> {
    /// Empty, with bounds that are seldom further apart than `error`, a share of everything that is added; the bounds of
    /// the candidates alone, of which there are at least so many, may be `error_of_candidates` apart.
    pub fn new(error: f64, error_of_candidates: f64, candidates: usize, key_id: u64) -> Self {
        Self {
            candidates: TopK::with_error(error_of_candidates, candidates, key_id),
            counts: BlockedCountMin::plain_with_error(error, key_id),
        }
    }

    /// Adds to keys: `key(i)` has the hash `hashes[i]`, and is given `tallies[i]`.
    #[inline(always)]
    pub fn add_batch(&mut self, hashes: &[u64], tallies: &[Tally], key: impl Fn(usize) -> K) {
        self.counts.add_batch(hashes, tallies);
        let mut next = 0;
        let part = |tally: &Tally| {
            next += 1;
            (key(next - 1), *tally)
        };
        self.candidates.add_batch((hashes, |hash| *hash), (tallies, part));
    }

    /// The candidates.
    pub fn iter(&self) -> impl Iterator<Item = Held<K>> + '_ {
        self.candidates.iter().map(|held: &Candidate<K, Tally>| Held {
            key: held.key,
            value: held.value(),
            lower: held.lower(),
            upper: held.upper(),
        })
    }

    /// What a candidate has, after a look at the count-min as well.
    pub fn tightened(&self, hash: u64, held: Held<K>) -> Held<K> {
        let upper = least(held.upper, self.counts.estimate(hash));
        Held { value: least(held.value, upper), upper, ..held }
    }

    /// What is known of any key. One that is no candidate may have anything up to its upper bound: the value is half.
    pub fn look_up(&self, hash: u64, key: &K) -> Held<K> {
        let Bounds { lower, upper } = self.candidates.bounds(hash, key);
        let upper = least(upper, self.counts.estimate(hash));
        let half = Tally::new(lower.packets.midpoint(upper.packets), lower.bytes.midpoint(upper.bytes));
        let value = self.candidates.get(hash, key).map_or(half, |held| least(held.value(), upper));
        Held { key: *key, value, lower, upper }
    }

    /// Merges what another one has.
    ///
    /// # Errors
    ///
    /// It was built differently.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.counts.merge(&other.counts)?;
        self.candidates.merge(&other.candidates)
    }

    /// Empties it; every page stays resident.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.counts.clear();
    }

    /// Makes an empty one ready for hashes of another key, with these coins.
    pub const fn rekey(&mut self, key_id: u64, coins: u64) {
        self.candidates.rekey(key_id, coins);
        self.counts.rekey(key_id);
    }

    /// The memory that it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.candidates.memory_bytes() + self.counts.memory_bytes()
    }
}

fn least(one: Tally, other: Tally) -> Tally {
    Tally::new(one.packets.min(other.packets), one.bytes.min(other.bytes))
}

#[cfg(test)]
mod tests {
    use weir_sketch::hash::{Key, KeyedHash, mix};

    use super::*;

    /// So many records of 2,000 keys, by halves to two; the exact sums.
    fn fed() -> ([HeavyHitters<u64>; 2], Vec<Tally>, KeyedHash) {
        let (key, mut truths) = (Key([3, 4]), vec![Tally::default(); 2_000]);
        let hash = KeyedHash::new(key);
        let mut both = [(); 2].map(|()| HeavyHitters::new(0.01, 0.02, 64, key.id()));
        for nth in 0..50_000_u64 {
            let key = (2_000.0 * (mix(nth) as f64 / u64::MAX as f64).powi(4)) as u64 % 2_000;
            let tally = Tally::new(1, 60 + nth % 1_000);
            truths[key as usize].add(tally);
            both[nth as usize % 2].add_batch(&[hash.words([key])], &[tally], |_| key);
        }
        (both, truths, hash)
    }

    #[test]
    fn bounds_hold_for_every_key_before_and_after_merging_and_are_no_wider_than_either() {
        let ([mut one, other], truths, hash) = fed();
        one.merge(&other).unwrap();
        let mut tightened = 0;
        for (key, truth) in (0..).zip(&truths) {
            let of = hash.words([key]);
            let Held { value, lower, upper, .. } = one.look_up(of, &key);
            for metric in [|tally: &Tally| tally.packets, |tally: &Tally| tally.bytes] {
                assert!(metric(&lower) <= metric(truth) && metric(truth) <= metric(&upper), "{key}: {truth:?}");
                assert!((metric(&lower)..=metric(&upper)).contains(&metric(&value)));
            }
            tightened += usize::from(upper.bytes < one.candidates.bounds(of, &key).upper.bytes);
            assert!(upper.bytes <= one.counts.estimate(of).bytes);
        }
        assert!(tightened > 100, "the count-min is of use for {tightened} keys");
    }

    #[test]
    fn a_cleared_one_has_nothing() {
        let ([mut one, _], _, hash) = fed();
        let memory = one.memory_bytes();
        one.clear();
        assert_eq!(one.iter().count(), 0);
        assert_eq!(one.look_up(hash.words([5]), &5).upper, Tally::default());
        assert_eq!(one.memory_bytes(), memory);
    }
}
