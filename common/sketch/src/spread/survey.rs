//! What a spread sketch answers, from all of its lines at once.

use alloc::vec::Vec;

use super::{LINES_PER_KEY, Line, Sample, Spread, place::REGISTERS};
use crate::{Estimate, hash::mix, normal::deviations, ultraloglog};

/// The probability with which bounds hold.
pub const CONFIDENCE: f64 = 0.999;
/// So many standard deviations to one side are exceeded with a quarter of the probability that [`CONFIDENCE`] leaves:
/// there are two sides, and two reasons for each.
const Z: f64 = 3.481;
/// The variance of the mean of the two middle quartiles, relative to that of the mean of all.
const QUARTILES_VARIANCE: f64 = 1.2;
/// How many keys that touched nothing are drawn, to learn what their lines hold. A quarter of what [`CONFIDENCE`]
/// leaves is 5 of them.
const IDLE_KEYS: usize = 20_000;
/// How many of them are beyond a bound.
const IDLE_KEYS_BEYOND: usize = 5;

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

/// What all lines of a [`Spread`] held when [`Spread::survey`] read them.
#[derive(Clone, Debug)]
pub struct Survey<'a, K> {
    spread: &'a Spread<K>,
    /// How many pairs came to each line.
    counts: Vec<f64>,
    idle: Idle,
}

/// What a key's lines hold that it did not put there: the mean of their two middle quartiles.
#[derive(Clone, Copy, Debug)]
struct Idle {
    least: f64,
    median: f64,
    most: f64,
    /// The least and the most that any of the drawn keys found.
    extremes: [f64; 2],
}

/// How far off the estimate of one key may be.
#[derive(Clone, Copy, Debug)]
struct Margin {
    /// Standard deviations.
    deviations: f64,
    /// What its lines may hold of other keys, at least and at most.
    idle: [f64; 2],
}

impl<'a, K: Copy> Survey<'a, K> {
    pub(super) fn of(spread: &'a Spread<K>) -> Self {
        let counts = spread.lines.iter().map(Line::count).collect();
        let idle = Idle { least: 0.0, median: 0.0, most: 0.0, extremes: [0.0; 2] };
        let mut survey = Self { spread, counts, idle };
        if survey.counts.iter().all(|count| *count == 0.0) {
            return survey;
        }
        let mut found: Vec<f64> = (0..IDLE_KEYS as u64).map(|hash| survey.found(mix(hash))).collect();
        found.sort_unstable_by(f64::total_cmp);
        survey.idle = Idle {
            least: found[IDLE_KEYS_BEYOND],
            median: found[IDLE_KEYS / 2],
            most: found[IDLE_KEYS - 1 - IDLE_KEYS_BEYOND],
            extremes: [found[0], found[IDLE_KEYS - 1]],
        };
        survey
    }

    /// How many items the key with this hash touches, with bounds that hold with the probability [`CONFIDENCE`].
    ///
    /// The remaining probability is divided by four, for two reasons on either side: the key's lines hold unusually
    /// much or little of other keys, or the estimates of the lines and the key's share in each are off by more than `Z`
    /// standard deviations.
    pub fn estimate(&self, key_hash: u64) -> Estimate {
        let Idle { least, most, .. } = self.idle;
        self.estimate_within(key_hash, Margin { deviations: Z, idle: [least, most] })
    }

    fn estimate_within(&self, key_hash: u64, allowed: Margin) -> Estimate {
        let Margin { deviations, idle: [least, most] } = allowed;
        let lines = self.spread.lines_per_key as f64;
        let found = self.found(key_hash);
        let margin = (deviations * self.spread.relative_error()).min(0.9);
        let value = (lines * (found - self.idle.median)).max(0.0);
        let lower = (lines * (found * (1.0 - margin) - most)).max(0.0);
        let upper = (lines * (found / (1.0 - margin) - least)).max(0.0);
        // How far the middle moves if so many pairs spread unevenly over the lines. The truth may be above the upper
        // bound that this is computed from, which adds less than the square of the factor.
        let factor = deviations * libm::sqrt(QUARTILES_VARIANCE);
        let unevenness = |count: f64| factor * libm::sqrt(count);
        let lower = libm::floor((lower - unevenness(lower)).max(0.0)) as u64;
        let upper = libm::ceil(upper + unevenness(upper) + factor * factor) as u64;
        Estimate { value: (libm::round(value) as u64).clamp(lower, upper), lower, upper }
    }

    /// The `count` keys that touch the most items, largest first, among the keys that a line remembers.
    ///
    /// Their bounds all hold together with the probability [`CONFIDENCE`], whichever keys are the largest: a list shows
    /// those whom chance has favoured, so each bound allows for all keys that might have been listed. (What other keys
    /// leave in their lines is known from a sample of keys, and not so far into its tail.)
    pub fn top(&self, count: usize) -> Vec<Spreader<K>> {
        let mut samples: Vec<Sample<K>> = self.spread.samples.iter().copied().flatten().collect();
        samples.sort_unstable_by_key(|sample| sample.hash);
        samples.dedup_by_key(|sample| sample.hash);
        let remaining = (1.0 - CONFIDENCE) / (2 * samples.len().max(1)) as f64;
        let allowed = Margin { deviations: deviations(1.0 - remaining), idle: self.idle.extremes };
        let spreader = |Sample { hash, key }| Spreader { hash, key, touched: self.estimate_within(hash, allowed) };
        let mut spreaders: Vec<Spreader<K>> = samples.into_iter().map(spreader).collect();
        spreaders.sort_unstable_by_key(|spreader| (core::cmp::Reverse(spreader.touched.value), spreader.hash));
        spreaders.truncate(count);
        spreaders
    }

    /// How many pairs there were of all keys together, with bounds that hold with the probability [`CONFIDENCE`]. The
    /// content of each line is known to 10 %, and most of these errors cancel.
    pub fn pairs(&self) -> Estimate {
        /// The relative bias that remains because a line has few registers is at most this.
        const BIAS: f64 = 0.005;
        let (sum, squares) =
            self.counts.iter().fold((0.0, 0.0), |(sum, squares), count| (sum + count, squares + count * count));
        let margin = Z * ultraloglog::ERROR_FACTOR * libm::sqrt(squares / REGISTERS as f64) + BIAS * sum;
        let (lower, upper) = (libm::floor((sum - margin).max(0.0)) as u64, libm::ceil(sum + margin) as u64);
        Estimate { value: libm::round(sum) as u64, lower, upper }
    }

    /// The mean of a key's lines, without the quarter that holds the most and the quarter that holds the least.
    fn found(&self, key_hash: u64) -> f64 {
        const MOST: usize = LINES_PER_KEY[LINES_PER_KEY.len() - 1];
        let (lines, grid) = (self.spread.lines_per_key, self.spread.grid());
        let mut counts = [0.0; MOST];
        let counts = &mut counts[..lines];
        for (which, count) in (0..).zip(counts.iter_mut()) {
            *count = self.counts[grid.line(key_hash, which) as usize];
        }
        if counts.iter().all(|count| *count == 0.0) {
            return 0.0;
        }
        // None is below 0, so their bits are in their order, and are compared faster.
        counts.sort_unstable_by_key(|count| count.to_bits());
        let middle = &counts[lines / 4..lines - lines / 4];
        middle.iter().sum::<f64>() / middle.len() as f64
    }
}

/// The relative standard error with this many lines per key.
pub fn relative_error_of(lines_per_key: usize) -> f64 {
    ultraloglog::ERROR_FACTOR * libm::sqrt(QUARTILES_VARIANCE / (lines_per_key * REGISTERS) as f64)
}
