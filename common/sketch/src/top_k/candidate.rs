//! A key that may be among the largest, and what is known of it.

use crate::Weight;

/// A key that may be among the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate<K, W: Weight> {
    /// Exactly what it had since it became a candidate.
    pub(super) counted: W,
    /// The key.
    pub key: K,
    /// An upper bound of what it had before.
    pub(super) missed: W::Narrow,
    /// The part of the score of `missed` that it probably really had.
    pub(super) credit: u32,
}

impl<K, W: Weight> Candidate<K, W> {
    /// A key that becomes a candidate with `counted`. Before, it had at most `missed`, and probably a score of
    /// `credit`.
    #[inline(always)]
    pub(super) fn new(key: K, counted: W, missed: W, credit: u64) -> Self {
        Self { counted, key, missed: missed.narrow(), credit: credit.min(u32::MAX.into()) as u32 }
    }

    /// The weight is at least this.
    #[inline(always)]
    pub const fn lower(&self) -> W {
        self.counted
    }

    /// The weight is at most this.
    pub fn upper(&self) -> W {
        self.counted.saturating_add(self.missed())
    }

    /// The probable weight: what was counted since it became a candidate, and as much of the time before as it took to
    /// become one.
    pub fn value(&self) -> W {
        let (missed, credit) = (self.missed(), u128::from(self.credit));
        let whole = u128::from(missed.score()).max(1);
        let part = |read: fn(W) -> u64| (u128::from(read(missed)) * credit / whole) as u64;
        self.counted.saturating_add(W::by_number(part))
    }

    /// The score that it competes with.
    #[inline(always)]
    pub(super) fn score(&self) -> u64 {
        self.counted.score() + u64::from(self.credit)
    }

    /// The same candidate, after it also had at most this in another table.
    pub(super) fn missing(self, more: W) -> Self {
        let missed = self.missed().saturating_add(more);
        Self { missed: missed.narrow(), ..self }
    }

    /// Two candidates of the same key as one.
    pub(super) fn and(self, other: &Self) -> Self {
        let counted = self.counted.saturating_add(other.counted);
        let missed = self.missed().saturating_add(other.missed());
        let credit = u64::from(self.credit) + u64::from(other.credit);
        Self::new(self.key, counted, missed, credit)
    }

    fn missed(&self) -> W {
        W::from_narrow(self.missed)
    }
}
