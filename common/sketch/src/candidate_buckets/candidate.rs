//! What is known of a candidate beside its count.

use crate::{Bounds, Weight};

/// What is known of the candidates of a bucket beside their hashes and counts. It is written when a key becomes a
/// candidate. With keys of 40 bytes and weights of two numbers an entry is a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct Row<K, W>(pub [Entry<K, W>; super::WAYS]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Entry<K, W> {
    /// An upper bound of what the key had before it became a candidate.
    pub missed: W,
    /// The part of the score of `missed` that it probably really had.
    pub likely: u64,
    pub key: K,
}

const _: () = assert!(size_of::<Entry<[u64; 5], crate::CountAndSum>>() == 64);

/// A candidate, with all that is known of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidate<K, W> {
    pub hash: u64,
    /// What it had since it became a candidate.
    pub counted: W,
    /// The most that it may have had since then: more only if something was lost.
    pub counted_at_most: W,
    /// See [`Bucket::credits`](super::bucket::Bucket::credits).
    pub credit: u64,
    pub entry: Entry<K, W>,
}

impl<K: Copy, W: Weight> Candidate<K, W> {
    /// The score that it competes with.
    pub fn score(&self) -> u64 {
        self.counted.score().saturating_add(self.credit)
    }

    pub fn bounds(&self) -> Bounds<W> {
        Bounds { lower: self.counted, upper: self.counted_at_most.saturating_add(self.entry.missed) }
    }

    /// What it counted, and as much of the time before as it usually takes to become a candidate.
    fn value(&self) -> W {
        let Entry { missed, likely, .. } = self.entry;
        let whole = u128::from(missed.score()).max(1);
        let part = |read: fn(W) -> u64| (u128::from(read(missed)) * u128::from(likely) / whole) as u64;
        self.counted.saturating_add(W::by_number(part))
    }

    pub fn listed(&self) -> Listed<K, W> {
        let Bounds { lower, upper } = self.bounds();
        Listed { key: self.entry.key, value: self.value(), lower, upper }
    }
}

/// A key that is listed, with its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listed<K, W> {
    /// The key.
    pub key: K,
    /// The likeliest weight.
    pub value: W,
    /// The weight is at least this.
    pub lower: W,
    /// The weight is at most this.
    pub upper: W,
}
