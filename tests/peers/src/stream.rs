//! Streams of keys, by Zipf's law or all equally often.

use weir_sketch::hash::mix;

/// The distribution of the keys of a stream.
pub struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    /// Key n of this many is drawn with a probability proportional to (n + 1)^-exponent.
    pub fn new(keys: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        let cumulative = (1..=keys).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        });
        Self { cumulative: cumulative.collect() }
    }

    /// The numbers of the keys of a stream, by its seed.
    pub fn stream(&self, seed: u64, length: usize) -> Vec<u64> {
        let all = self.cumulative[self.cumulative.len() - 1];
        let draw = |n: u64| {
            let target = (mix(mix(seed) ^ n) >> 11) as f64 / (1u64 << 53) as f64 * all;
            self.cumulative.partition_point(|sum| *sum <= target) as u64
        };
        (0..length as u64).map(draw).collect()
    }
}

/// How often each number comes in a stream of numbers below `numbers`.
pub fn counts(stream: &[u64], numbers: usize) -> Vec<u64> {
    let mut counts = vec![0; numbers];
    for number in stream.iter() {
        counts[*number as usize] += 1;
    }
    counts
}

/// The numbers that come most often, and those that come as often as the last of these, because a sketch may name any
/// of them.
pub fn largest(counts: &[u64], how_many: usize) -> Vec<u64> {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
    let least = sorted[how_many - 1];
    (0..counts.len() as u64).filter(|number| counts[*number as usize] >= least).collect()
}
