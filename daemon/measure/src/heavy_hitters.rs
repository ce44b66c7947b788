//! Heavy hitters: the largest keys, with bounds for every key. Count-min with candidates, both in one structure
//! ([`CandidateBuckets`]).
//!
//! The candidates are the large keys, and their counters bound them from below. Every other key has a cell of the
//! count-min, which bounds it from above. A record is added to the counter of its candidate, or else to the cell of its
//! key. When a key becomes a candidate, it keeps the value of its cell at that time, so later records of other keys do
//! not widen its bounds.
//!
//! Which keys share a cell depends on secret places, which differ from window to window. Sketches with different places
//! have different cells, which cannot be added up. This happens if a worker is so late that its window is merged with
//! the next one. Then its candidates are added as if they came now, and any key may have as much more as the fullest of
//! its cells.

use weir_common::ledger::Tally;
use weir_sketch::{
    Bounds, CandidateBuckets, Listed, MergeError, Weight as _,
    candidate_buckets::{Packed, Rest},
};

use super::configured::configured;

/// How many records of a batch are prefetched before the batch is added: as many as a batch prefetches ahead.
const PREFETCHED: usize = 12;

/// The largest keys of a view, with bounds for every other key.
pub struct HeavyHitters<K> {
    buckets: CandidateBuckets<K, Tally>,
    /// The hash that decides the cells of keys: see [`CandidateBuckets::rekey`].
    places: u64,
    /// How much any key may have beyond its bounds, because sketches with other places were merged.
    stray: Tally,
}

/// The value and bounds of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEstimate<K> {
    /// The key that was asked for or listed.
    pub key: K,
    /// The likeliest sum.
    pub value: Tally,
    /// The least that it can have.
    pub lower: Tally,
    /// The most that it can have.
    pub upper: Tally,
}

impl<K> From<Listed<K, Tally>> for KeyEstimate<K> {
    fn from(Listed { key, value, lower, upper }: Listed<K, Tally>) -> Self {
        Self { key, value, lower, upper }
    }
}

impl<K> KeyEstimate<K> {
    /// A key that is no candidate may have anything up to its upper bound. Its value is half of that.
    fn between(key: K, Bounds { lower, upper }: Bounds<Tally>) -> Self {
        let value = Tally::new(lower.packets.midpoint(upper.packets), lower.bytes.midpoint(upper.bytes));
        Self { key, value, lower, upper }
    }
}

impl<K: Copy + Eq + Default> HeavyHitters<K> {
    /// An empty sketch with at least this many candidates. Bounds are seldom further apart than `error`, a share of
    /// everything that is added.
    pub fn new(error: f64, candidates: usize, key_id: u64) -> Self {
        let buckets = configured(CandidateBuckets::with_error(error, candidates, key_id));
        Self { buckets, places: 1, stray: Tally::default() }
    }

    /// Prefetches the memory for the first records of a batch. The memory for later records is prefetched while the
    /// batch is added.
    #[inline(always)]
    pub fn prefetch_first(&self, hashes: &[u64]) {
        for hash in hashes.iter().take(PREFETCHED) {
            self.buckets.prefetch(*hash);
        }
    }

    /// Adds to keys: `key(i)`, whose hash is `hashes[i]`, gets `tallies[i]`. `beside` gets everything that the
    /// candidates do not hold.
    #[inline(always)]
    pub fn add_batch(
        &mut self,
        hashes: &[u64],
        tallies: &[Packed<Tally>],
        key: impl Fn(usize) -> K,
        beside: &mut impl Rest<K, Tally>,
    ) {
        self.buckets.add_batch_and(hashes, tallies, key, beside);
    }

    /// How many candidates it can have.
    pub const fn capacity(&self) -> usize {
        self.buckets.capacity()
    }

    /// The position of the candidate with this hash, if it is one: see [`CandidateBuckets::position`].
    #[inline(always)]
    pub fn position(&self, hash: u64) -> Option<usize> {
        self.buckets.position(hash)
    }

    /// Returns the candidates with their estimates.
    pub fn iter(&self) -> impl Iterator<Item = KeyEstimate<K>> + '_ {
        self.buckets.iter().map(|listed| self.with_stray(listed.into()))
    }

    /// The upper bounds of the candidates, each with a function for everything else, which takes longer.
    pub fn bounded(&self) -> impl Iterator<Item = (Tally, impl FnOnce() -> KeyEstimate<K>)> + '_ {
        let stray = self.stray;
        self.buckets
            .bounded()
            .map(move |(bounds, listed)| (bounds.upper.saturating_add(stray), move || self.with_stray(listed().into())))
    }

    /// An upper bound of every key that is not a candidate.
    pub fn most_of_others(&self) -> Tally {
        self.buckets.most_light().saturating_add(self.stray)
    }

    /// Upper bounds for keys that are not candidates, by group. Each such key is in one group. Unless
    /// [`HeavyHitters::has_strays`], all keys of a group together have at most the group's bound.
    pub fn light(&self) -> impl Iterator<Item = Tally> + '_ {
        self.buckets.light().map(|cell| cell.saturating_add(self.stray))
    }

    /// Returns true if several keys of a group together may have more than the group's bound.
    pub fn has_strays(&self) -> bool {
        self.stray != Tally::default()
    }

    /// The bounds of any key.
    pub fn look_up(&self, hash: u64, key: &K) -> KeyEstimate<K> {
        let between = || KeyEstimate::between(*key, self.buckets.bounds(hash));
        self.with_stray(self.buckets.get(hash).map_or_else(between, KeyEstimate::from))
    }

    fn with_stray(&self, held: KeyEstimate<K>) -> KeyEstimate<K> {
        KeyEstimate { upper: held.upper.saturating_add(self.stray), ..held }
    }

    /// Merges all of these into this one. The order of sketches with the same places does not matter. `hash_of` is the
    /// hash of a key. `beside` gets everything that candidates no longer hold.
    ///
    /// # Errors
    ///
    /// One of them was built differently.
    pub fn merge_all(
        &mut self,
        others: &[&Self],
        hash_of: impl Fn(&K) -> u64,
        beside: &mut impl Rest<K, Tally>,
    ) -> Result<(), MergeError> {
        let has_other_places =
            |other: &&&Self| other.places != self.places && other.buckets.key_id() == self.buckets.key_id();
        let (strays, same): (Vec<&Self>, Vec<&Self>) = others.iter().partition(has_other_places);
        let same: Vec<_> = same.into_iter().map(|other| &other.buckets).collect();
        self.buckets.merge_all_and(&same, beside)?;
        for other in strays {
            self.merge_stray(other, &hash_of, beside);
        }
        Ok(())
    }

    /// Merges a sketch with other places. The amount that a candidate missed before it became one is also in its cell.
    /// So no key has more than the fullest cell beyond the candidates' counts.
    fn merge_stray(&mut self, other: &Self, hash_of: impl Fn(&K) -> u64, beside: &mut impl Rest<K, Tally>) {
        for Listed { key, lower: counted, .. } in other.buckets.iter() {
            let mut beside = Single { key, tally: counted, beside };
            self.buckets.add_batch_and(&[hash_of(&key)], &[counted.into()], |_| key, &mut beside);
        }
        self.stray = self.stray.saturating_add(other.most_of_others());
    }

    /// Empties it. Every page stays resident.
    pub fn clear(&mut self) {
        self.buckets.clear();
        self.stray = Tally::default();
    }

    /// Prepares an empty sketch for hashes of another key, with these coins and places.
    pub const fn rekey(&mut self, key_id: u64, coins: u64, places: u64) {
        self.buckets.rekey(key_id, coins, places);
        self.places = places;
    }

    /// The memory that it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() - size_of::<CandidateBuckets<K, Tally>>() + self.buckets.memory_bytes()
    }
}

/// Passes a single key on to `beside` if it does not become a candidate.
struct Single<'a, K, R> {
    key: K,
    tally: Tally,
    beside: &'a mut R,
}

impl<K, R: Rest<K, Tally>> Rest<K, Tally> for Single<'_, K, R> {
    fn unlisted(&mut self, _first: usize, keys: u64) {
        if keys != 0 {
            self.beside.leaves(&self.key, self.tally);
        }
    }

    fn leaves(&mut self, key: &K, tally: Tally) {
        self.beside.leaves(key, tally);
    }
}

#[cfg(test)]
mod tests {
    use weir_sketch::hash::{Key, KeyedHash, mix};

    use super::*;

    const KEYS: usize = 2_000;

    /// Three sketches, each with a third of this many records of 2,000 keys, and the exact sums.
    struct Fed {
        parts: [HeavyHitters<u64>; 3],
        truths: Vec<Tally>,
        hash: KeyedHash,
    }

    fn fed() -> Fed {
        fed_in([1; 3])
    }

    /// Feeds the sketches with different places for each third.
    fn fed_in(places: [u64; 3]) -> Fed {
        let key = Key([3, 4]);
        let (hash, mut truths) = (KeyedHash::new(key), vec![Tally::default(); KEYS]);
        let mut parts = places.map(|places| {
            let mut part = HeavyHitters::new(0.02, 64, key.id());
            part.rekey(key.id(), key.id(), places);
            part
        });
        for nth in 0..50_000_u64 {
            let key = (KEYS as f64 * (mix(nth) as f64 / u64::MAX as f64).powi(4)) as u64 % KEYS as u64;
            let tally = Tally::new(1, 60 + nth % 1_000);
            truths[key as usize].add(tally);
            parts[nth as usize % 3].add_batch(&[hash.words([key])], &[tally.into()], |_| key, &mut ());
        }
        Fed { parts, truths, hash }
    }

    fn merged() -> (HeavyHitters<u64>, Vec<Tally>, KeyedHash) {
        let Fed { parts: [mut one, two, three], truths, hash } = fed();
        one.merge_all(&[&two, &three], |key| hash.words([*key]), &mut ()).unwrap();
        (one, truths, hash)
    }

    #[test]
    fn bounds_hold_for_every_key_after_merging() {
        let (one, truths, hash) = merged();
        let mut listed = 0;
        for (key, truth) in (0..).zip(&truths) {
            let KeyEstimate { value, lower, upper, .. } = one.look_up(hash.words([key]), &key);
            for metric in [|tally: &Tally| tally.packets, |tally: &Tally| tally.bytes] {
                assert!(metric(&lower) <= metric(truth) && metric(truth) <= metric(&upper), "{key}: {truth:?}");
                assert!((metric(&lower)..=metric(&upper)).contains(&metric(&value)));
            }
            listed += usize::from(lower.packets > 0);
        }
        assert_eq!((listed, one.iter().count()), (136, 136), "only the candidates have a lower bound");
    }

    #[test]
    fn the_order_of_merging_does_not_matter() {
        let sorted = |one: &HeavyHitters<u64>| {
            let mut all: Vec<_> = one.iter().map(|held| (held.key, held.lower.bytes, held.upper.bytes)).collect();
            all.sort_unstable();
            all
        };
        let Fed { parts: [one, two, mut three], hash, .. } = fed();
        three.merge_all(&[&two, &one], |key| hash.words([*key]), &mut ()).unwrap();
        assert_eq!(sorted(&three), sorted(&merged().0));
    }

    #[test]
    fn keys_that_are_not_candidates_are_within_the_bounds_of_their_groups() {
        let (one, truths, hash) = merged();
        let (mut all, mut largest) = (Tally::default(), Tally::default());
        for (key, truth) in (0..).zip(&truths) {
            let held = one.look_up(hash.words([key]), &key);
            if held.lower.packets == 0 {
                assert!(truth.bytes <= held.upper.bytes);
                all.add(*truth);
                largest = if truth.bytes > largest.bytes { *truth } else { largest };
            }
        }
        assert!(all.packets > 1_000);
        let groups: Vec<Tally> = one.light().collect();
        let sum: Tally = groups.iter().copied().sum();
        assert!(sum.packets >= all.packets && sum.bytes >= all.bytes);
        assert!(groups.iter().any(|group| group.bytes >= largest.bytes));
    }

    /// Counts everything that it gets.
    #[derive(Default)]
    struct Told(Tally);

    impl Rest<u64, Tally> for Told {
        fn unlisted(&mut self, _first: usize, _keys: u64) {}
        fn leaves(&mut self, _key: &u64, tally: Tally) {
            self.0.add(tally);
        }
    }

    #[test]
    fn bounds_hold_after_merging_with_other_places() {
        let Fed { parts: [mut one, late, same], truths, hash } = fed_in([7, 5, 7]);
        let counted = |one: &HeavyHitters<u64>| one.iter().map(|held| held.lower).sum::<Tally>();
        let (before, mut told) = ([&one, &late, &same].map(counted).into_iter().sum::<Tally>(), Told::default());
        one.merge_all(&[&late, &same], |key| hash.words([*key]), &mut told).unwrap();
        assert!(one.has_strays());
        let (mut width, total) = (0, truths.iter().copied().sum::<Tally>());
        for (key, truth) in (0..).zip(&truths) {
            let KeyEstimate { lower, upper, .. } = one.look_up(hash.words([key]), &key);
            assert!(lower.packets <= truth.packets && truth.packets <= upper.packets, "{key}: {truth:?}");
            assert!(lower.bytes <= truth.bytes && truth.bytes <= upper.bytes, "{key}: {truth:?}");
            width = width.max(upper.bytes - lower.bytes);
        }
        assert!(width < total.bytes / 20, "{width} of {}", total.bytes);
        let after = [counted(&one), told.0].into_iter().sum::<Tally>();
        assert_eq!(after, before, "everything that no candidate holds any more was passed on");
        for held in one.iter() {
            assert_eq!(one.look_up(hash.words([held.key]), &held.key), held);
        }
        one.clear();
        assert!(!one.has_strays());
    }

    #[test]
    fn a_cleared_sketch_is_empty() {
        let Fed { parts: [mut one, ..], hash, .. } = fed();
        let memory = one.memory_bytes();
        one.clear();
        assert_eq!(one.iter().count(), 0);
        assert_eq!(one.look_up(hash.words([5]), &5).upper, Tally::default());
        assert_eq!(one.memory_bytes(), memory);
    }
}
