//! Lists of the largest keys, with bounds for every key: candidates with a separate count-min, and both in one
//! structure.

use weir_sketch::{
    BlockedCountMin, Bounds, CandidateBuckets, CountAndSum, Rest, TopK, Weight, candidate_buckets::Packed,
    count_min::Plain,
};

use super::{KEY, hash};

/// A key as large as those of weir's views.
pub type Key = [u64; 5];

/// Records that are added together, in columns.
pub struct RecordGroup<'a> {
    pub hashes: &'a [u64],
    pub weights: &'a [CountAndSum],
    pub packed: &'a [Packed<CountAndSum>],
    pub keys: &'a [Key],
}

/// A structure that lists the largest keys.
pub trait List {
    fn clear(&mut self);
    fn add(&mut self, batch: &RecordGroup<'_>);
    /// The bounds of a key, and whether it is a candidate.
    fn bounds(&self, hash: u64, key: &Key) -> (Bounds<CountAndSum>, bool);
    fn memory_bytes(&self) -> usize;
}

impl List for CandidateBuckets<Key, CountAndSum> {
    fn clear(&mut self) {
        self.clear();
    }
    fn add(&mut self, batch: &RecordGroup<'_>) {
        self.add_batch(batch.hashes, batch.packed, |nth| batch.keys[nth]);
    }
    fn bounds(&self, hash: u64, _: &Key) -> (Bounds<CountAndSum>, bool) {
        (self.bounds(hash), self.get(hash).is_some())
    }
    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

/// How many keys wait for the count-min.
const TOGETHER: usize = 32;

/// A table of candidates, and a count-min of everything else. weir's lists had this structure before they had buckets.
pub struct Apart {
    candidates: TopK<Key, CountAndSum>,
    rest: Counts,
}

/// The count-min, with keys that wait for it: many are added at once, long after their cells were prefetched.
struct Counts {
    counts: BlockedCountMin<CountAndSum, Plain>,
    waiting: usize,
    hashes: [u64; TOGETHER],
    weights: [CountAndSum; TOGETHER],
}

impl Apart {
    /// The sizes are weir's defaults.
    pub fn new() -> Self {
        let rest = Counts {
            counts: BlockedCountMin::plain_with_error(0.001, KEY.id()).expect("the settings are allowed"),
            waiting: 0,
            hashes: [0; TOGETHER],
            weights: [CountAndSum::default(); TOGETHER],
        };
        Self { candidates: TopK::with_error(0.000_5, 1024, KEY.id()).expect("the settings are allowed"), rest }
    }
}

impl Counts {
    #[inline(always)]
    fn put(&mut self, hash: u64, weight: CountAndSum) {
        self.counts.prefetch(hash);
        self.hashes[self.waiting] = hash;
        self.weights[self.waiting] = weight;
        self.waiting += 1;
        if self.waiting == TOGETHER {
            self.settle();
        }
    }

    #[inline(never)]
    fn settle(&mut self) {
        self.counts.add_batch(&self.hashes[..self.waiting], &self.weights[..self.waiting]);
        self.waiting = 0;
    }

    fn estimate(&self, hash: u64) -> CountAndSum {
        let waiting = self.hashes.iter().zip(&self.weights).take(self.waiting).filter(|(of, _)| **of == hash);
        waiting.fold(self.counts.estimate(hash), |sum, (_, weight)| sum.saturating_add(*weight))
    }
}

impl Rest<Key, CountAndSum> for Counts {
    #[inline(always)]
    fn add(&mut self, hash: u64, _: &Key, weight: CountAndSum) {
        self.put(hash, weight);
    }
    #[cold]
    #[inline(never)]
    fn give_back(&mut self, key: &Key, weight: CountAndSum) {
        self.put(hash().words(*key), weight);
    }
    #[cold]
    #[inline(never)]
    fn at_most(&self, hash: u64, most: CountAndSum) -> CountAndSum {
        most.least(self.estimate(hash))
    }
}

impl List for Apart {
    fn clear(&mut self) {
        self.candidates.clear();
        self.rest.counts.clear();
        self.rest.waiting = 0;
    }
    fn add(&mut self, batch: &RecordGroup<'_>) {
        let mut keys = batch.keys.iter();
        let items = |weight: &CountAndSum| (keys.next().copied().unwrap_or_default(), *weight);
        self.candidates.add_batch_and((batch.hashes, |hash| *hash), (batch.weights, items), &mut self.rest);
    }
    fn bounds(&self, hash: u64, key: &Key) -> (Bounds<CountAndSum>, bool) {
        let Bounds { lower, upper } = self.candidates.bounds(hash, key);
        let upper = upper.least(lower.saturating_add(self.rest.estimate(hash)));
        (Bounds { lower, upper }, self.candidates.get(hash, key).is_some())
    }
    fn memory_bytes(&self) -> usize {
        self.candidates.memory_bytes() + self.rest.counts.memory_bytes() + TOGETHER * 24
    }
}
