//! The state of a candidate apart from its count.

use crate::{Bounds, Weight};

/// The state of a bucket's candidates apart from their hashes and counts. It is written when a key becomes a candidate.
/// With keys of 40 bytes and weights of two numbers, an entry is one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct Row<K, W>(pub [Entry<K, W>; super::WAYS]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Entry<K, W> {
    /// An upper bound of the key's weight before it became a candidate.
    pub missed: W,
    /// The part of the score of `missed` that the key probably had.
    pub likely: u64,
    pub key: K,
}

const _: () = assert!(size_of::<Entry<[u64; 5], crate::CountAndSum>>() == 64);

/// A candidate with its whole state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidate<K, W> {
    pub hash: u64,
    /// The weight since it became a candidate.
    pub counted: W,
    /// The largest possible weight since then. It is larger than `counted` only if something was lost.
    pub counted_at_most: W,
    /// See [`Bucket::credits`](super::bucket::Bucket::credits).
    pub credit: u64,
    pub entry: Entry<K, W>,
}

impl<K: Copy, W: Weight> Candidate<K, W> {
    /// The score with which it competes.
    pub fn score(&self) -> u64 {
        self.counted.score().saturating_add(self.credit)
    }

    pub fn bounds(&self) -> Bounds<W> {
        Bounds { lower: self.counted, upper: self.counted_at_most.saturating_add(self.entry.missed) }
    }

    /// Returns the count, plus the weight that a key usually needs to become a candidate.
    fn value(&self) -> W {
        let Entry { missed, likely, .. } = self.entry;
        let whole = missed.score().max(1);
        // A forged image may have any number.
        let likely = likely.min(whole);
        let part = |read: fn(W) -> u64| (u128::from(read(missed)) * u128::from(likely) / u128::from(whole)) as u64;
        self.counted.saturating_add(W::by_number(part))
    }

    pub fn listed(&self) -> Listed<K, W> {
        let Bounds { lower, upper } = self.bounds();
        Listed { key: self.entry.key, value: self.value(), lower, upper }
    }
}

/// A listed key, with its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listed<K, W> {
    /// The key, as the caller gave it.
    pub key: K,
    /// The likeliest weight.
    pub value: W,
    /// The weight is at least this.
    pub lower: W,
    /// The weight is at most this.
    pub upper: W,
}
