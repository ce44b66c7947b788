//! Sets of numbers, as ranges.

use std::collections::BTreeMap;

/// Numbers, as ranges: the last number by the first one. No two ranges touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a number. Returns whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        let is_new = !self.has(number);
        if is_new {
            self.insert_range(number, number);
        }
        is_new
    }

    /// Adds the numbers from `first` to `last`.
    pub fn insert_range(&mut self, mut first: u64, mut last: u64) {
        // All ranges that overlap or touch the new one become part of it.
        while let Some((from, to)) = self.0.range(..=last.saturating_add(1)).next_back() {
            let (from, to) = (*from, *to);
            if to.saturating_add(1) < first {
                break;
            }
            (first, last) = (first.min(from), last.max(to));
            self.0.remove(&from);
        }
        self.0.insert(first, last);
    }

    /// Adds the numbers from `first` to the one before `end`.
    pub fn insert_span(&mut self, first: u64, end: u64) {
        if let Some(last) = end.checked_sub(1).filter(|last| first <= *last) {
            self.insert_range(first, last);
        }
    }

    /// Forgets all ranges but so many of the last ones.
    pub fn keep_last(&mut self, ranges: usize) {
        if let Some(beyond) = self.0.len().checked_sub(ranges).filter(|beyond| *beyond > 0) {
            let first = self.0.keys().nth(beyond).copied();
            self.0 = first.map(|first| self.0.split_off(&first)).unwrap_or_default();
        }
    }

    pub fn has(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, last)| number <= *last)
    }

    /// The ranges, in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.0.iter().map(|(first, last)| (*first, *last))
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn first(&self) -> Option<u64> {
        self.0.keys().next().copied()
    }

    pub fn last(&self) -> Option<u64> {
        self.0.values().next_back().copied()
    }

    /// The ranges of the numbers from `first` to `last` that are not in this set.
    pub fn gaps(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        // The first number that was not looked at; `None` after the largest one.
        let mut next = Some(first);
        let before = self.0.range(..first).next_back();
        for (from, to) in before.into_iter().chain(self.0.range(first..)) {
            let Some(at) = next.filter(|at| *at <= last) else { break };
            if at < *from {
                gaps.push((at, last.min(*from - 1)));
            }
            next = to.checked_add(1).map(|after| after.max(at));
        }
        gaps.extend(next.filter(|next| *next <= last).map(|next| (next, last)));
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ranges() {
        let mut numbers = Ranges::default();
        for number in [5, 3, 4, 9, 0, u64::MAX, 8] {
            assert!(numbers.insert(number) && !numbers.insert(number));
        }
        assert_eq!(numbers.0, [(0, 0), (3, 5), (8, 9), (u64::MAX, u64::MAX)].into());
        assert_eq!(numbers.gaps(0, 0), []);
        assert_eq!(numbers.gaps(0, u64::MAX), [(1, 2), (6, 7), (10, u64::MAX - 1)]);
        assert_eq!(numbers.gaps(4, 7), [(6, 7)]);
        assert_eq!(Ranges([(3, 4)].into()).gaps(2, 6), [(2, 2), (5, 6)]);
        numbers.insert_range(2, 12);
        assert_eq!(numbers.0, [(0, 0), (2, 12), (u64::MAX, u64::MAX)].into());
        numbers.insert_range(1, u64::MAX);
        assert_eq!(numbers.0, [(0, u64::MAX)].into());
    }
}
