//! `HyperLogLog`: how many distinct keys?
//!
//! **Errs** both ways, by a relative standard error of 1.04 / sqrt(registers), less for counts below the number of
//! registers; without bias from 0 up. Below some hundredth of the registers the rounded value is nearly always exact.
//!
//! **Cost** at an error of 0.005: 65,536 registers = 64 KiB; an insertion touches one register; an answer reads
//! them all.
//!
//! **Papers**: Flajolet, Fusy, Gandouet and Meunier, "`HyperLogLog`: the analysis of a near-optimal cardinality
//! estimation algorithm", 2007; the estimator: Ertl, "New cardinality estimation algorithms for `HyperLogLog`
//! sketches", 2017 (the improved raw estimator, section 2: no switch between formulas, no table of biases).
//!
//! **Why not a crate**: it must take a hash that is already there, keep its key's fingerprint, and say its bounds;
//! crates commonly hash the item themselves, correct by tables or switch to linear counting, and say no bounds.

use alloc::{boxed::Box, vec};

use super::{
    Distinct, Estimate, Geometry, Merge, MergeError, Sketch, check_mergeable,
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
};

/// Registers at least: 2^4, an error of 26 %.
pub const PRECISION_MIN: u32 = 4;
/// Registers at most: 2^18, an error of 0.2 % in 256 KiB.
pub const PRECISION_MAX: u32 = 18;
/// The probability that [`HyperLogLog::bounds`] hold the truth.
pub const CONFIDENCE: f64 = 0.999;
/// As many standard deviations to both sides of a normal distribution hold [`CONFIDENCE`] of it.
const Z: f64 = 3.2905;
/// The standard error times the square root of the registers: sqrt(3 ln 2 - 1) rounded up.
const ERROR_FACTOR: f64 = 1.04;
/// A register holds at most the 60 hash bits that [`PRECISION_MIN`] leaves, plus one.
const VALUES: usize = 64 - PRECISION_MIN as usize + 2;

/// A `HyperLogLog` sketch with one byte a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyperLogLog {
    /// In each the highest rank seen; 0 while empty.
    registers: Box<[u8]>,
    /// How many high bits of a hash choose the register.
    precision: u32,
    key_id: u64,
}

impl HyperLogLog {
    /// A sketch with at most this relative standard error, within 0.26 ([`PRECISION_MIN`]) and 0.00204
    /// ([`PRECISION_MAX`]). Not-a-number gives the smallest.
    pub fn with_error(relative_error: f64, key_id: u64) -> Self {
        let registers = ERROR_FACTOR / relative_error.clamp(0.001, 1.0);
        Self::with_precision(libm::ceil(2.0 * libm::log2(registers)) as u32, key_id)
    }

    /// A sketch with two to the `precision` registers, from [`PRECISION_MIN`] to [`PRECISION_MAX`].
    pub fn with_precision(precision: u32, key_id: u64) -> Self {
        let precision = precision.clamp(PRECISION_MIN, PRECISION_MAX);
        Self { registers: vec![0; 1 << precision].into_boxed_slice(), precision, key_id }
    }

    /// Counts the key with this hash, once however often it comes.
    #[inline]
    pub fn insert(&mut self, hash: u64) {
        let index = (hash >> (u64::BITS - self.precision)) as usize;
        let guard = 1 << (self.precision - 1);
        let rank = (hash << self.precision | guard).leading_zeros() as u8 + 1;
        self.raise(index, rank);
    }

    /// Raises a register to a rank, at most the highest that a hash can have.
    #[inline]
    pub(crate) fn raise(&mut self, register: usize, rank: u8) {
        let rank = rank.min((u64::BITS - self.precision) as u8 + 1);
        let register = &mut self.registers[register];
        *register = rank.max(*register);
    }

    /// In each register the highest rank seen; 0 while empty. The number of the register is a hash's highest bits.
    pub(crate) const fn registers(&self) -> &[u8] {
        &self.registers
    }

    /// How many distinct keys there were, without bias.
    pub fn count(&self) -> f64 {
        self.count_from(&self.histogram())
    }

    /// How many distinct keys there were: the nearest whole number, and bounds that hold the truth with at
    /// least the probability [`CONFIDENCE`].
    ///
    /// A normal approximation with the standard error of large counts, which is wider than that of small ones by
    /// enough to hold their lumpy distribution too (keys that share a register). It is taken relative to the truth
    /// and relative to the count, whichever is wider: with few registers the distribution is skewed. That each
    /// register not empty was filled by a key of its own bounds the truth for certain.
    pub fn bounds(&self) -> Estimate {
        let histogram = self.histogram();
        let count = self.count_from(&histogram);
        let filled = self.registers.len() as u64 - histogram[0];
        let margin = Z * self.relative_error();
        let lower = (libm::floor(count * (1.0 - margin)) as u64).max(filled);
        let upper = (libm::ceil(count / (1.0 - margin)) as u64).max(lower);
        Estimate { value: (libm::round(count) as u64).clamp(lower, upper), lower, upper }
    }

    /// Takes in another sketch: afterwards this one is as if it had been fed both.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        self.registers.iter_mut().zip(&other.registers).for_each(|(rank, other)| *rank = (*rank).max(*other));
        Ok(())
    }

    /// Forgets everything; writes every register. (Not inlined: next to the allocation, the writes would be optimised
    /// out, and the pages would not become resident.)
    #[inline(never)]
    pub fn clear(&mut self) {
        self.registers.fill(0);
    }

    /// The relative standard error of large counts.
    pub fn relative_error(&self) -> f64 {
        ERROR_FACTOR / libm::sqrt(self.registers.len() as f64)
    }

    /// The registers' number as a power of two.
    pub const fn precision(&self) -> u32 {
        self.precision
    }

    /// Its size and shape.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Registers { count: self.registers.len() }
    }

    /// The fingerprint of the hash key.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// Everything it occupies, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.registers.len()
    }

    /// Ertl's improved raw estimator.
    fn count_from(&self, histogram: &[u64; VALUES]) -> f64 {
        let registers = self.registers.len() as f64;
        let share = |count: u64| count as f64 / registers;
        let highest = (u64::BITS - self.precision) as usize;
        let mut sum = registers * tau(1.0 - share(histogram[highest + 1]));
        for count in histogram[1..=highest].iter().rev() {
            sum = 0.5 * (sum + *count as f64);
        }
        sum += registers * sigma(share(histogram[0]));
        registers * registers / (2.0 * core::f64::consts::LN_2 * sum)
    }

    /// How many registers hold each rank.
    fn histogram(&self) -> [u64; VALUES] {
        let mut histogram = [0; VALUES];
        self.registers().iter().for_each(|rank| histogram[*rank as usize] += 1);
        histogram
    }
}

impl Sketch for HyperLogLog {
    fn geometry(&self) -> Geometry {
        self.geometry()
    }
    fn key_id(&self) -> u64 {
        self.key_id
    }
    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
    fn clear(&mut self) {
        self.clear();
    }
}

impl Merge for HyperLogLog {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.merge(other)
    }
}

impl Distinct for HyperLogLog {
    fn insert(&mut self, hash: u64) {
        self.insert(hash);
    }
    fn bounds(&self) -> Estimate {
        self.bounds()
    }
}

impl Image for HyperLogLog {
    const KIND: Kind = Kind::HyperLogLog;

    fn write(&self, payload: &mut Writer) {
        payload.varint(self.precision.into());
        payload.numbers(Literal::Byte, self.registers.iter().map(|rank| u64::from(*rank)));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let range = u64::from(PRECISION_MIN)..=u64::from(PRECISION_MAX);
        let precision = payload.within("the precision", range, "from 4 to 18", Reader::varint)? as u32;
        payload.allow::<u8>("the registers", 1 << precision)?;
        let mut sketch = Self::with_precision(precision, key_id);
        payload.numbers("a register", Literal::Byte, 1 << precision, |register, rank| {
            sketch.raise(register, rank as u8);
        })?;
        Ok(sketch)
    }
}

/// The empty registers' part: x + sum over k >= 1 of x^(2^k) 2^(k-1) (Ertl, 2017, algorithm 6).
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut sum, mut weight) = (x, 1.0);
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// The full registers' part: (1 - x - sum over k >= 1 of (1 - x^(2^-k))^2 2^-k) / 3 (Ertl, 2017, algorithm 6).
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut sum, mut weight) = (1.0 - x, 1.0);
    loop {
        x = libm::sqrt(x);
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::oracle::{SplitMix64, hash};
    use std::vec::Vec;

    fn with_precision(precision: u32) -> HyperLogLog {
        let sketch = HyperLogLog::with_precision(precision, 7);
        assert_eq!(sketch.precision(), precision);
        sketch
    }

    /// `count` keys that no other seed has.
    fn fed(precision: u32, seed: u64, count: u64) -> HyperLogLog {
        let mut sketch = with_precision(precision);
        (0..count).for_each(|item| sketch.insert(hash(seed, item)));
        sketch
    }

    #[test]
    fn the_error_is_as_planned_from_one_to_a_million() {
        // 3.5 standard deviations: one in 2,149 fails by chance; 3 precisions x 8 counts, one chance in 89 over all.
        for (precision, seed) in [(10, 1), (14, 2), (16, 3)] {
            let mut sketch = with_precision(precision);
            let mut fed = 0;
            for count in [1, 10, 49, 100, 1_000, 10_000, 100_000, 1_000_000] {
                (fed..count).for_each(|item| sketch.insert(hash(seed, item)));
                fed = count;
                let error = sketch.count() / count as f64 - 1.0;
                assert!(error.abs() <= 3.5 * sketch.relative_error(), "{precision}: {count} off by {error}");
            }
        }
    }

    #[test]
    fn counts_that_no_test_can_feed_are_right_too() {
        // With n keys a register is at most k with the probability exp(-n / registers / 2^k): drawn from that. From
        // 2^60 keys on some registers hold the highest rank there is.
        for keys in [10, 24, 40, 56, 60, 62, 64].map(|exponent| 2f64.powi(exponent)) {
            let (mut sketch, mut random) = (with_precision(14), SplitMix64(9));
            for register in &mut sketch.registers {
                let rank = (keys / 16_384.0 / -random.unit().ln()).log2().ceil();
                *register = rank.clamp(0.0, 51.0) as u8;
            }
            let error = sketch.count() / keys - 1.0;
            assert!(error.abs() <= 3.5 * sketch.relative_error(), "{keys} off by {error}");
        }
    }

    #[test]
    fn the_estimator_has_no_bias_and_the_stated_spread() {
        // Means of 400 sketches: within 4 standard errors of the truth (one chance in 15,787 each).
        const TRIALS: u64 = 400;
        for count in [5, 60, 256, 700, 2_000, 20_000] {
            let errors: Vec<f64> = (0..TRIALS).map(|seed| fed(8, seed, count).count() / count as f64 - 1.0).collect();
            let mean = errors.iter().sum::<f64>() / TRIALS as f64;
            let spread = (errors.iter().map(|error| error * error).sum::<f64>() / TRIALS as f64).sqrt();
            let stated = with_precision(8).relative_error();
            assert!(mean.abs() <= 4.0 * stated / (TRIALS as f64).sqrt(), "{count}: bias {mean}");
            // A standard deviation of 400 draws is itself known to 3.5 %.
            assert!(spread <= 1.15 * stated, "{count}: spread {spread}, stated {stated}");
        }
    }

    #[test]
    fn small_counts_look_exact() {
        // Below 50 keys two share one of 65,536 registers with a probability of at most 1.8 %.
        let exact = (0..1_000u64).filter(|seed| {
            let count = seed % 50;
            fed(16, *seed, count).bounds().value == count
        });
        assert!(exact.count() >= 980);
        assert_eq!(with_precision(16).bounds(), Estimate::exact(0));
        assert_eq!(fed(16, 1, 1).bounds(), Estimate { value: 1, lower: 1, upper: 2 });
    }

    #[test]
    fn bounds_hold_with_the_stated_confidence() {
        // Expected misses among 3,000 trials a precision: at most 3. More than 12 by chance: one in 60,000.
        for precision in [4, 6, 10, 12] {
            let mut misses = 0;
            for count in [1, 3, 10, 40, 150, 1_000] {
                for seed in 0..500 {
                    let Estimate { value, lower, upper } = fed(precision, seed * 1_000 + count, count).bounds();
                    assert!(lower <= value && value <= upper);
                    misses += u32::from(!(lower..=upper).contains(&count));
                }
            }
            assert!(misses <= 12, "{misses} misses at precision {precision}");
        }
    }

    #[test]
    fn bounds_hold_for_small_counts_by_calculation() {
        // Small counts err only by keys that share registers, and that distribution is known exactly: with n keys,
        // P(v registers filled) follows from that of n - 1. The truth must be above the upper bound for v filled
        // registers with a probability of at most 0.1 %, whatever n.
        for precision in [12, 14, 16] {
            let registers = f64::from(1 << precision);
            let most = 1_000.min(1usize << precision >> 3);
            let mut sketch = with_precision(precision);
            let mut random = SplitMix64(u64::from(precision));
            // The filled registers' values matter little at this load, but let them be as chance has them.
            let uppers: Vec<u64> = (0..=most)
                .map(|filled| {
                    if filled > 0 {
                        sketch.registers[filled] = 1 + random.word().leading_zeros() as u8;
                    }
                    sketch.bounds().upper
                })
                .collect();
            let mut filled_probability = std::vec![0.0; most + 1];
            filled_probability[0] = 1.0;
            for count in 1..=most {
                for filled in (1..=count).rev() {
                    let (same, new) = (filled as f64, registers - (filled - 1) as f64);
                    filled_probability[filled] =
                        (filled_probability[filled] * same + filled_probability[filled - 1] * new) / registers;
                }
                filled_probability[0] = 0.0;
                let missed: f64 =
                    (1..=count).filter(|v| uppers[*v] < count as u64).map(|v| filled_probability[v]).sum();
                assert!(missed <= 1.0 - CONFIDENCE, "{count} keys at precision {precision}: {missed}");
            }
        }
    }

    #[test]
    fn geometry_follows_from_the_error_and_stays_in_range() {
        assert_eq!(HyperLogLog::with_error(0.005, 7).precision(), 16);
        assert_eq!(HyperLogLog::with_error(0.005, 7).geometry(), Geometry::Registers { count: 65_536 });
        for (error, precision) in [(0.0, 18), (-1.0, 18), (1.0, 4), (9.0, 4), (f64::NAN, 4), (0.26, 4)] {
            assert_eq!(HyperLogLog::with_error(error, 7).precision(), precision, "{error}");
        }
        let sketch = HyperLogLog::with_error(0.01, 7);
        assert!(sketch.relative_error() <= 0.01);
        assert_eq!(sketch.memory_bytes() - size_of::<HyperLogLog>(), 16 << 10);
    }

    #[test]
    fn extreme_hashes_and_full_registers_are_answered() {
        for precision in [4, 18] {
            let mut sketch = with_precision(precision);
            sketch.insert(0);
            sketch.insert(u64::MAX);
            assert_eq!(sketch.registers[0], 65 - precision as u8);
            assert_eq!(sketch.registers[sketch.registers.len() - 1], 1);
            sketch.registers.fill(65 - precision as u8);
            assert_eq!(sketch.bounds().upper, u64::MAX);
        }
    }
}
