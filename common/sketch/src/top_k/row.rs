//! A row of a top-k table: the candidates of a block.

use core::{borrow::Borrow, hint::select_unpredictable};

use super::{Candidate, WAYS};
use crate::Weight;

/// The candidates of a block. A held key touches only its entry. Rows are aligned to cache lines: with keys of 40 bytes
/// and weights of two numbers, an entry is one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct Row<K, W: Weight> {
    entries: [Entry<K, W>; WAYS],
    /// See [`Candidate`].
    credits: [u32; WAYS],
    /// See [`Candidate`].
    likely: [u32; WAYS],
}

/// A candidate without its probable earlier weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Entry<K, W: Weight> {
    counted: W,
    missed: W::Narrow,
    key: K,
}

const _: () = assert!(size_of::<Entry<[u64; 5], crate::CountAndSum>>() == 64);

impl<K: Clone + Eq, W: Weight> Row<K, W> {
    /// Returns true if this way's candidate has this key.
    #[inline(always)]
    pub fn has<Q: Eq + ?Sized>(&self, way: usize, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.entries[way].key.borrow() == key
    }

    /// Adds to a candidate.
    #[inline(always)]
    pub fn add(&mut self, way: usize, weight: W) {
        let counted = &mut self.entries[way].counted;
        *counted = counted.saturating_add(weight);
    }

    #[inline(always)]
    pub fn get(&self, way: usize) -> Candidate<K, W> {
        let Entry { counted, missed, key } = self.entries[way].clone();
        Candidate { counted, key, missed, credit: self.credits[way], likely: self.likely[way] }
    }

    #[inline(always)]
    pub fn set(&mut self, way: usize, candidate: Candidate<K, W>) {
        let Candidate { counted, key, missed, credit, likely } = candidate;
        self.entries[way] = Entry { counted, missed, key };
        self.credits[way] = credit;
        self.likely[way] = likely;
    }

    /// The first way with the smallest score, and that score.
    pub fn cheapest(&self) -> (usize, u64) {
        let mut least = (0, u64::MAX);
        for (way, (entry, credit)) in self.entries.iter().zip(self.credits).enumerate() {
            let score = entry.counted.score() + u64::from(credit);
            least = select_unpredictable(score < least.1, (way, score), least);
        }
        least
    }

    /// Prefetches the memory that [`Row::has`] and [`Row::add`] read.
    #[inline(always)]
    pub fn prefetch(&self, way: usize) {
        crate::simd::prefetch(&self.entries[way]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_is_the_first_with_the_least_score() {
        let mut row = Row::<u64, u64>::default();
        for (way, score) in [5, 3, 9, 3, 8, 7, 6, 4].into_iter().enumerate() {
            row.set(way, Candidate::new(way as u64, score, 0, 0, 0));
        }
        assert_eq!(row.cheapest(), (1, 3));
        row.add(1, 1);
        assert_eq!(row.cheapest(), (3, 3));
        row.set(3, Candidate::new(3, 2, 9, 2, 2));
        assert_eq!((row.cheapest(), row.get(3).value()), ((1, 4), 4));
        assert!(row.has(3, &3) && !row.has(3, &4));
    }
}
