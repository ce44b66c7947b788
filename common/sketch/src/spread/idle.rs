//! The content of a key's lines that belongs to other keys.

use alloc::vec::Vec;
use core::ops::Range;

/// The contents of all lines, in order. A key's lines are drawn from these, one from each part of the grid.
///
/// The contents of some of a key's lines are bounded rank by rank. If a share `s` of all lines exceeds a level, at
/// least `n` of a key's `m` lines exceed it with a probability of at most (m choose n) * s^n. This holds for any
/// traffic, and arbitrarily far into the tail, which random keys would not reach. Differences between parts of the grid
/// only reduce the probability (the mean of products is at most the power of the mean).
#[derive(Clone, Debug)]
pub struct Idle {
    sorted: Vec<f64>,
    lines_per_key: usize,
}

impl Idle {
    pub fn of(counts: &[f64], lines_per_key: usize) -> Self {
        let mut sorted = counts.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Self { sorted, lines_per_key }
    }

    /// Returns true if all lines are empty.
    pub fn is_empty(&self) -> bool {
        self.sorted.last().is_none_or(|most| *most == 0.0)
    }

    /// An upper bound of the mean content of a key's lines with these ranks (0 is the lowest), if the key touched
    /// nothing. It fails with at most this probability.
    pub fn most(&self, ranks: Range<usize>, probability: f64) -> f64 {
        let each = probability / ranks.len() as f64;
        // A rank exceeds a level if its line and all higher ones do.
        let level = |rank: usize| self.sorted[self.sorted.len() - 1 - self.beyond(self.lines_per_key - rank, each)];
        mean(ranks.map(level))
    }

    /// The same as a lower bound.
    pub fn least(&self, ranks: Range<usize>, probability: f64) -> f64 {
        let each = probability / ranks.len() as f64;
        mean(ranks.map(|rank| self.sorted[self.beyond(rank + 1, each)]))
    }

    /// How many lines may exceed a level, so that `count` of a key's lines exceed it with at most this probability.
    fn beyond(&self, count: usize, probability: f64) -> usize {
        let share = libm::pow(probability / choose(self.lines_per_key, count), 1.0 / count as f64);
        ((self.sorted.len() as f64 * share) as usize).min(self.sorted.len() - 1)
    }
}

/// The number of subsets of size `count` that a set of size `all` has.
fn choose(all: usize, count: usize) -> f64 {
    (0..count).map(|nth| (all - nth) as f64 / (nth + 1) as f64).product()
}

fn mean(levels: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = levels.len() as f64;
    levels.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::SplitMix64;

    /// Lines with little, more, and very much content. Each part of the grid has the same.
    fn counts(random: &mut SplitMix64) -> Vec<f64> {
        (0..1_024)
            .map(|_| random.word() % 50 + if random.word().is_multiple_of(20) { 5_000 } else { 0 })
            .map(|n| n as f64)
            .collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn lines_exceed_a_level_as_seldom_as_stated() {
        const KEYS: usize = 200_000;
        let mut random = SplitMix64(1);
        for lines in super::super::LINES_PER_KEY {
            let counts = counts(&mut random);
            let idle = Idle::of(&counts, lines);
            let part = counts.len() / lines;
            let drawn: Vec<Vec<f64>> = (0..KEYS)
                .map(|_| {
                    let line = |which: usize| counts[which * part + random.word() as usize % part];
                    let mut key: Vec<f64> = (0..lines).map(line).collect();
                    key.sort_unstable_by(f64::total_cmp);
                    key
                })
                .collect();
            for ranks in [0..lines / 4, 0..lines / 2, lines / 4..lines - lines / 4] {
                for probability in [0.1, 0.01, 0.001] {
                    let (least, most) = (idle.least(ranks.clone(), probability), idle.most(ranks.clone(), probability));
                    let found = |key: &Vec<f64>| mean(key[ranks.clone()].iter().copied());
                    let [above, below] = [
                        drawn.iter().filter(|key| found(key) > most).count(),
                        drawn.iter().filter(|key| found(key) < least).count(),
                    ];
                    // Five standard deviations of such a count are allowed.
                    let allowed = KEYS as f64 * probability;
                    let allowed = (allowed + 5.0 * libm::sqrt(allowed)) as usize;
                    assert!(above <= allowed && below <= allowed, "{ranks:?} of {lines}: {above}, {below} > {allowed}");
                    assert!(least < most, "{ranks:?} of {lines}");
                }
            }
        }
    }

    #[test]
    fn levels_are_those_of_the_lines() {
        // One line in a hundred contains 1,000. The probability that two of four lines contain it is at most 6 /
        // 10,000.
        let counts: Vec<f64> = (0..1_000).map(|line| if line % 100 == 0 { 1_000.0 } else { 1.0 }).collect();
        let idle = Idle::of(&counts, 4);
        assert_eq!((idle.most(2..3, 0.000_7), idle.most(2..3, 0.000_5)), (1.0, 1_000.0));
        assert_eq!((idle.most(0..1, 0.000_5), idle.least(0..4, 0.5)), (1.0, 1.0));
        // For any probability, the bound is the content of a line.
        assert_eq!((idle.most(0..4, 1e-300), idle.least(0..4, 1e-300)), (1_000.0, 1.0));
        assert_eq!([choose(8, 3), choose(16, 1), choose(4, 4)], [56.0, 16.0, 1.0]);
    }
}
