//! The references for tests of the sketches: exact counts, and random streams from a seed.

use std::collections::HashMap;
use std::vec::Vec;

use crate::{
    CountAndSum, Weight,
    hash::{Key, mix, sip},
};

/// Exact amounts, in a map.
#[derive(Default)]
pub(super) struct Amounts(HashMap<u64, CountAndSum>);

impl Amounts {
    pub fn add(&mut self, key: u64, weight: CountAndSum) {
        let sum = self.0.entry(key).or_default();
        *sum = sum.saturating_add(weight);
    }

    pub fn get(&self, key: u64) -> CountAndSum {
        self.0.get(&key).copied().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, CountAndSum)> {
        self.0.iter().map(|(key, tally)| (*key, *tally))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn total(&self) -> CountAndSum {
        self.0.values().copied().fold(CountAndSum::default(), Weight::saturating_add)
    }

    /// The `count` largest amounts, largest first.
    pub fn largest(&self, count: usize, amount: impl Fn(CountAndSum) -> u64) -> Vec<u64> {
        let mut amounts: Vec<u64> = self.0.values().map(|tally| amount(*tally)).collect();
        amounts.sort_unstable_by(|one, other| other.cmp(one));
        amounts.truncate(count);
        amounts
    }
}

/// The hash of item `item` with a key made from `seed`.
pub(super) fn hash(seed: u64, item: u64) -> u64 {
    sip(Key([seed, !seed]), &item.to_le_bytes())
}

/// A seeded source of random words (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub(super) struct SplitMix64(pub u64);

impl SplitMix64 {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number that is uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A random weight: 1 to 8 times 60 to 1,514.
    pub fn weight(&mut self) -> CountAndSum {
        let count = 1 + self.word() % 8;
        CountAndSum::new(count, count * (60 + self.word() % 1455))
    }
}

/// Zipf's law: key n is drawn with a probability proportional to (n + 1)^-s.
pub(super) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    pub fn new(keys: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        let cumulative = (1..=keys).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        });
        Self { cumulative: cumulative.collect() }
    }

    pub fn draw(&self, random: &mut SplitMix64) -> u64 {
        let target = random.unit() * self.cumulative[self.cumulative.len() - 1];
        self.cumulative.partition_point(|sum| *sum <= target) as u64
    }
}
