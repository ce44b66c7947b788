//! A key that may be among the largest, and its state.

use crate::Weight;

/// A key that may be among the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate<K, W: Weight> {
    /// The exact weight since it became a candidate.
    pub(super) counted: W,
    /// The key.
    pub key: K,
    /// An upper bound of its weight before.
    pub(super) missed: W::Narrow,
    /// The part of the score of `missed` with which it competes.
    pub(super) credit: u32,
    /// The part of the score of `missed` that it probably had.
    pub(super) likely: u32,
}

impl<K, W: Weight> Candidate<K, W> {
    /// A key that becomes a candidate with `counted`. Before that, it had at most `missed`. It competes with a score of
    /// `credit` for that, and probably had a score of `likely`.
    #[inline(always)]
    pub(super) fn new(key: K, counted: W, missed: W, credit: u64, likely: u64) -> Self {
        let [credit, likely] = [credit, likely].map(|score| score.min(u32::MAX.into()) as u32);
        Self { counted, key, missed: missed.narrow(), credit, likely }
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

    /// The probable weight: the count since it became a candidate, plus the weight that a key usually needs to become
    /// one.
    pub fn value(&self) -> W {
        let missed = self.missed();
        let whole = missed.score().max(1);
        // A forged image may have any number.
        let likely = whole.min(self.likely.into());
        let part = |read: fn(W) -> u64| (u128::from(read(missed)) * u128::from(likely) / u128::from(whole)) as u64;
        self.counted.saturating_add(W::by_number(part))
    }

    /// The score with which it competes.
    #[inline(always)]
    pub(super) fn score(&self) -> u64 {
        self.counted.score() + u64::from(self.credit)
    }

    /// The same candidate, if it also had at most this weight in another table.
    pub(super) fn missing(self, more: W) -> Self {
        let missed = self.missed().saturating_add(more);
        Self { missed: missed.narrow(), ..self }
    }

    /// Combines two candidates of the same key.
    pub(super) fn and(self, other: &Self) -> Self {
        let counted = self.counted.saturating_add(other.counted);
        let missed = self.missed().saturating_add(other.missed());
        let credit = u64::from(self.credit) + u64::from(other.credit);
        let likely = u64::from(self.likely) + u64::from(other.likely);
        Self::new(self.key, counted, missed, credit, likely)
    }

    /// The most that it had before it became a candidate.
    pub(super) fn missed(&self) -> W {
        W::from_narrow(self.missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_the_same_key_add_up() {
        let both = Candidate::<u64, u64>::new(7, 100, 50, 40, 20).and(&Candidate::new(7, 1_000, 500, 300, 100));
        assert_eq!((both.key, both.lower(), both.upper()), (7, 1_100, 1_650));
        assert_eq!((both.value(), both.score()), (1_220, 1_440));
        let more = both.missing(50);
        assert_eq!((more.lower(), more.upper(), more.score()), (1_100, 1_700, 1_440));
    }
}
