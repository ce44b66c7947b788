//! Random numbers that are repeatable by a seed.

use weir_sketch::hash::mix;

/// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The sequence of item `index` under `seed`, unrelated to those of its neighbours.
    pub const fn of(seed: u64, index: u64) -> Self {
        Self(mix(mix(seed).wrapping_add(index)))
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from 0 up to but not including 1.
    pub fn unit(&mut self) -> f64 {
        const STEPS: u64 = 1 << f64::MANTISSA_DIGITS;
        (self.bits() >> (64 - f64::MANTISSA_DIGITS)) as f64 / STEPS as f64
    }

    /// True in this share of cases.
    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: usize, to: usize) -> usize {
        let count = (to - from + 1) as u128;
        from + ((u128::from(self.bits()) * count) >> 64) as usize
    }

    /// Returns one of several values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() - 1)]
    }
}

/// Maps each number of `bits` bits to a different number of `bits` bits.
///
/// Multiplication by an odd number, addition and a right shift folded in are each reversible.
pub const fn scatter(number: u64, bits: u32, key: u64) -> u64 {
    let mask = u64::MAX >> (64 - bits);
    let mut scattered = number & mask;
    let mut round = 0;
    while round < 3 {
        let round_key = mix(key.wrapping_add(round));
        scattered = scattered.wrapping_mul(round_key | 1).wrapping_add(round_key >> 32) & mask;
        scattered ^= scattered >> (bits / 2);
        round += 1;
    }
    scattered
}

/// Ranks by Zipf's law: rank `r`, counted from 0, comes up in proportion to `1 / (r + 1)^s`.
///
/// It uses a table of cumulative weights: 8 bytes a rank, and one binary search a draw.
#[derive(Clone, Debug)]
pub struct Zipf {
    cumulated: Vec<f64>,
}

impl Zipf {
    /// The law over `ranks` ranks (at least one) with exponent `s`; 0 makes all equally likely.
    pub fn new(ranks: u32, s: f64) -> Self {
        let weights = (1..=ranks.max(1)).map(|rank| f64::from(rank).powf(-s));
        let cumulated = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { cumulated: cumulated.collect() }
    }

    /// Draws a rank.
    pub fn rank(&self, random: &mut Random) -> u32 {
        let last = self.cumulated.len() - 1;
        let target = random.unit() * self.cumulated[last];
        // Rounding may put the target beyond the last weight.
        self.cumulated.partition_point(|sum| *sum <= target).min(last) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn zipf_frequencies_follow_the_law() {
        const DRAWS: u32 = 400_000;
        for s in [1.0, 1.1, 1.3] {
            let (zipf, mut random) = (Zipf::new(100_000, s), Random::new(1));
            let mut counts = vec![0u32; 100_000];
            for _ in 0..DRAWS {
                counts[zipf.rank(&mut random) as usize] += 1;
            }
            let normaliser: f64 = (1..=100_000).map(|rank| f64::from(rank).powf(-s)).sum();
            for rank in [0usize, 1, 4, 9, 49] {
                let expected = f64::from(DRAWS) / ((rank + 1) as f64).powf(s) / normaliser;
                let off = (f64::from(counts[rank]) - expected).abs();
                // Five standard deviations of a count.
                assert!(off < 5.0 * expected.sqrt(), "s {s} rank {rank}: {} for {expected}", counts[rank]);
            }
        }
    }

    #[test]
    fn scattering_loses_nothing() {
        for bits in [16, 17] {
            let all: HashSet<_> = (0..1 << bits).map(|number| scatter(number, bits, 7)).collect();
            assert_eq!(all.len(), 1 << bits);
            assert!(all.iter().all(|number| number >> bits == 0));
        }
        assert_ne!(scatter(1, 64, 7), scatter(1, 64, 8));
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(3);
        let drawn: HashSet<_> = (0..1000).map(|_| random.between(5, 9)).collect();
        assert_eq!(drawn, HashSet::from([5, 6, 7, 8, 9]));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
        assert!(!random.chance(0.0) && random.chance(1.0));
    }
}
