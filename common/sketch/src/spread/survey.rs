//! The results of a spread sketch, from all of its lines at once.

use alloc::vec::Vec;
use core::ops::Range;

use super::{LINES_PER_KEY, Line, Sample, Spread, idle::Idle, place::REGISTERS};
use crate::{Estimate, hash::mix, normal::deviations, ultraloglog};

/// The probability with which bounds hold.
pub const CONFIDENCE: f64 = 0.999;
/// The probability with which they do not hold.
const FAILURE: f64 = 1.0 - CONFIDENCE;
/// The variance of the mean of the two middle quartiles, relative to that of the mean of all lines.
const QUARTILES_VARIANCE: f64 = 1.2;
/// This many standard deviations on one side are exceeded with a quarter of the probability that [`CONFIDENCE`] leaves.
const Z: f64 = 3.481;
/// The most lines that a key may have.
const LINES_PER_KEY_MOST: usize = LINES_PER_KEY[LINES_PER_KEY.len() - 1];
/// In how many ways a bound may fail, at most: there are two sides, and a lower bound is the highest of three, each
/// with two causes. (The upper bound has two causes.)
const WAYS: f64 = 8.0;
/// How many random keys that touched nothing are used to estimate the usual content of lines.
const IDLE_KEYS: u64 = 2_000;

/// A key that may touch many items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spreader<K> {
    /// The hash of the key.
    pub hash: u64,
    /// The key.
    pub key: K,
    /// How many items it touches.
    pub touched: Estimate,
}

/// The content of all lines of a [`Spread`] when [`Spread::survey`] read them.
#[derive(Clone, Debug)]
pub struct Survey<'a, K> {
    spread: &'a Spread<K>,
    /// The number of pairs in each line.
    counts: Vec<f64>,
    idle: Idle,
    /// The usual content of a key's middle lines that belongs to other keys.
    usual: f64,
    /// The standard deviation of that content.
    noise: f64,
}

/// How far off the estimates of some keys may be, so that all their bounds hold together.
#[derive(Clone, Debug)]
pub struct Margin {
    /// The margin in standard deviations.
    deviations: f64,
    /// The parts of a key's lines that each give a lower bound.
    lower: [Part; 3],
    upper: Part,
}

/// Some of a key's lines, by the order of their contents.
#[derive(Clone, Debug)]
struct Part {
    ranks: Range<usize>,
    /// How much of their content may belong to other keys.
    idle: f64,
    /// The relative standard error of their content.
    error: f64,
    /// The variance of the estimated number of items, per item, because pairs are spread unevenly over the lines.
    unevenness: f64,
}

impl Part {
    /// The relative error of the content, at this many standard deviations.
    fn certain(&self, deviations: f64) -> f64 {
        1.0 - (deviations * self.error).min(0.9)
    }

    /// How far off the number of items may be because this many pairs are spread unevenly.
    fn uneven(&self, deviations: f64, items: f64) -> f64 {
        deviations * libm::sqrt(self.unevenness * items)
    }
}

impl<'a, K: Copy> Survey<'a, K> {
    pub(super) fn of(spread: &'a Spread<K>) -> Self {
        let counts: Vec<f64> = spread.lines.iter().map(Line::count).collect();
        let idle = Idle::of(&counts, spread.lines_per_key);
        let mut survey = Self { spread, counts, idle, usual: 0.0, noise: 0.0 };
        if survey.idle.is_empty() {
            return survey;
        }
        let middle = survey.middle();
        let mut found: Vec<f64> = (0..IDLE_KEYS).map(|nth| mean(&survey.found(mix(nth))[middle.clone()])).collect();
        found.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| found[(IDLE_KEYS as f64 * share) as usize];
        survey.usual = at(0.5);
        // This is the deviation of a normal distribution. The few keys that share lines with large ones do not affect
        // it.
        survey.noise = (at(0.841) - at(0.159)) / 2.0;
        survey
    }

    /// How many items the key with this hash touches, with bounds that hold with the probability [`CONFIDENCE`].
    pub fn estimate(&self, key_hash: u64) -> Estimate {
        self.estimate_within(key_hash, &self.margin(1, FAILURE))
    }

    /// The keys that lines remember, each once, with their hashes.
    pub fn remembered(&self) -> Vec<(u64, K)> {
        let mut samples: Vec<Sample<K>> = self.spread.samples.iter().copied().flatten().collect();
        samples.sort_unstable_by_key(|sample| sample.hash);
        samples.dedup_by_key(|sample| sample.hash);
        samples.into_iter().map(|Sample { hash, key }| (hash, key)).collect()
    }

    /// The `count` keys that touch the most items, largest first, among the keys that lines remember.
    ///
    /// Their bounds all hold together with the probability [`CONFIDENCE`], whichever keys are the largest. A list shows
    /// keys that chance has favoured, so each bound allows for all keys that might have been listed.
    pub fn top(&self, count: usize) -> Vec<Spreader<K>> {
        let remembered = self.remembered();
        let margin = self.margin(remembered.len(), FAILURE);
        let spreader = |(hash, key)| Spreader { hash, key, touched: self.estimate_within(hash, &margin) };
        let mut spreaders: Vec<Spreader<K>> = remembered.into_iter().map(spreader).collect();
        spreaders.sort_unstable_by_key(|spreader| (core::cmp::Reverse(spreader.touched.value), spreader.hash));
        spreaders.truncate(count);
        spreaders
    }

    /// The margin with which the bounds of this many keys hold together, except with the probability `failure`.
    pub fn margin(&self, keys: usize, failure: f64) -> Margin {
        let probability = failure / WAYS / keys.max(1) as f64;
        let lines = self.spread.lines_per_key;
        let line_error = ultraloglog::ERROR_FACTOR / libm::sqrt(REGISTERS as f64);
        let lowest = |count: usize| Part {
            ranks: 0..count,
            idle: self.idle.most(0..count, probability),
            error: line_error / libm::sqrt(count as f64),
            unevenness: (lines - count) as f64 / count as f64,
        };
        let middle = |idle| Part {
            ranks: self.middle(),
            idle,
            error: self.spread.relative_error(),
            unevenness: QUARTILES_VARIANCE,
        };
        Margin {
            deviations: deviations(1.0 - 2.0 * probability),
            lower: [middle(self.idle.most(self.middle(), probability)), lowest(lines / 2), lowest(lines / 4)],
            upper: middle(self.idle.least(self.middle(), probability)),
        }
    }

    /// How many items a key touches, with bounds that have this margin.
    ///
    /// The lower bound is the highest of three. For a large key, the two middle quartiles of its lines give the best
    /// bound. The lowest half and the lowest quarter contain less of other keys: they give a better bound for a key
    /// that shares some lines with far larger keys.
    pub fn estimate_within(&self, key_hash: u64, margin: &Margin) -> Estimate {
        self.look(key_hash, margin).0
    }

    /// Like [`Self::estimate_within`], together with the unbiased number, which is below 0 if other keys put less into
    /// the key's lines than usual.
    pub fn look(&self, key_hash: u64, margin: &Margin) -> (Estimate, f64) {
        let &Margin { deviations, ref lower, ref upper } = margin;
        let lines = self.spread.lines_per_key as f64;
        let found = self.found(key_hash);
        let at_least = |part: &Part| {
            let items = (lines * (mean(&found[part.ranks.clone()]) * part.certain(deviations) - part.idle)).max(0.0);
            items - part.uneven(deviations, items)
        };
        let lower = libm::floor(lower.iter().map(at_least).fold(0.0, f64::max)) as u64;
        let middle = mean(&found[upper.ranks.clone()]);
        let items = (lines * (middle / upper.certain(deviations) - upper.idle)).max(0.0);
        // The truth may be above the bound from which the unevenness is computed, which adds less than this square.
        let beyond = deviations * deviations * upper.unevenness;
        let upper = libm::ceil(items + upper.uneven(deviations, items) + beyond) as u64;
        let unbiased = lines * (middle - self.usual);
        let value = libm::round(unbiased.max(0.0)) as u64;
        (Estimate { value: value.clamp(lower, upper), lower, upper }, unbiased)
    }

    /// The standard deviation of the unbiased number, for a key that touches this many items.
    pub fn deviation(&self, items: f64) -> f64 {
        let (noise, items) = (self.spread.lines_per_key as f64 * self.noise, items.max(0.0));
        let error = self.spread.relative_error() * items;
        libm::sqrt(noise * noise + error * error + QUARTILES_VARIANCE * items)
    }

    /// How many pairs there were of all keys together, with bounds that hold with the probability [`CONFIDENCE`]. The
    /// content of each line is known to 10 %, and most of these errors cancel.
    pub fn pairs(&self) -> Estimate {
        /// The remaining relative bias, because a line has few registers, is at most this.
        const BIAS: f64 = 0.005;
        let (sum, squares) =
            self.counts.iter().fold((0.0, 0.0), |(sum, squares), count| (sum + count, squares + count * count));
        let margin = Z * ultraloglog::ERROR_FACTOR * libm::sqrt(squares / REGISTERS as f64) + BIAS * sum;
        let (lower, upper) = (libm::floor((sum - margin).max(0.0)) as u64, libm::ceil(sum + margin) as u64);
        Estimate { value: libm::round(sum) as u64, lower, upper }
    }

    /// The ranks of a key's lines without the highest and the lowest quarter.
    const fn middle(&self) -> Range<usize> {
        let quarter = self.spread.lines_per_key / 4;
        quarter..self.spread.lines_per_key - quarter
    }

    /// The contents of a key's lines, in ascending order, followed by zeros.
    fn found(&self, key_hash: u64) -> [f64; LINES_PER_KEY_MOST] {
        let (lines, grid) = (self.spread.lines_per_key, self.spread.grid());
        let mut counts = [0.0; LINES_PER_KEY_MOST];
        for (which, count) in (0..).zip(&mut counts[..lines]) {
            *count = self.counts[grid.line(key_hash, which) as usize];
        }
        // No count is below 0, so the bits have the same order as the numbers, and are compared faster.
        counts[..lines].sort_unstable_by_key(|count| count.to_bits());
        counts
    }
}

fn mean(counts: &[f64]) -> f64 {
    counts.iter().sum::<f64>() / counts.len() as f64
}

/// The relative standard error with this many lines per key.
pub fn relative_error_of(lines_per_key: usize) -> f64 {
    ultraloglog::ERROR_FACTOR * libm::sqrt(QUARTILES_VARIANCE / (lines_per_key * REGISTERS) as f64)
}
