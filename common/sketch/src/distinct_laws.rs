//! Tests for sketches of registers that count distinct keys: `HyperLogLog` and `UltraLogLog`.

use std::vec::Vec;

use super::{
    Distinct, Estimate,
    oracle::{SplitMix64, hash},
};

/// The functions of such a sketch that the tests need.
pub(super) struct Counting<S> {
    pub with_precision: fn(u32) -> S,
    /// The count, and the stated error.
    pub count: fn(&S) -> (f64, f64),
    /// A sketch after that many keys, without feeding them: its registers are drawn from the distribution that they
    /// have then. (The number of keys is an average, which hardly increases the spread from 64 keys per register on.)
    pub drawn: fn(u32, &mut SplitMix64, f64) -> S,
    /// The largest bias times the number of registers.
    pub bias: f64,
}

impl<S: Distinct> Counting<S> {
    /// Tests this many sketches with this precision. They may err by `few` times the stated error.
    pub fn errs_as_stated_from_one_key_to_a_trillion(&self, precision: u32, sketches: usize, few: f64) {
        // The mean of this many errors has a standard deviation of the stated error / sqrt(sketches); it exceeds 4.5 of
        // them by chance once in 147,160. Their root mean square is known to 1 / sqrt(2 sketches); it exceeds 4.5 of
        // them once in 294,319. In 3 x 26 checks, something fails by chance once in 1,250.
        let registers = f64::from(1 << precision);
        let (mut random, number) = (SplitMix64(precision.into()), sketches as f64);
        let check = |count: f64, errors: &[f64]| {
            let (_, stated) = (self.count)(&(self.with_precision)(precision));
            let bias = errors.iter().sum::<f64>() / number;
            let spread = (errors.iter().map(|error| error * error).sum::<f64>() / number).sqrt();
            let bias_most = self.bias / registers + 4.5 * stated / number.sqrt();
            assert!(bias.abs() <= bias_most, "{precision}: bias {bias} at {count}");
            let spread_most = few * stated * (1.0 + 4.5 / (2.0 * number).sqrt());
            assert!(spread <= spread_most, "{precision}: {spread} at {count}");
        };
        let error = |sketch: &S, count: f64| (self.count)(sketch).0 / count - 1.0;
        let counts: Vec<u64> = (0..=16).map(|i| (64.0 * registers).powf(f64::from(i) / 16.0) as u64).collect();
        let mut errors = std::vec![Vec::new(); counts.len()];
        for _ in 0..sketches {
            let (mut sketch, mut fed) = ((self.with_precision)(precision), 0);
            for (count, errors) in counts.iter().zip(&mut errors) {
                for _ in fed..*count {
                    sketch.insert(random.word());
                }
                fed = *count;
                errors.push(error(&sketch, *count as f64));
            }
        }
        for (count, errors) in counts.iter().zip(&errors) {
            check(*count as f64, errors);
        }
        for count in (4..=12).map(|exponent| 10f64.powi(exponent)).filter(|count| *count >= 64.0 * registers) {
            let errors = (0..sketches).map(|_| error(&(self.drawn)(precision, &mut random, count), count));
            check(count, &errors.collect::<Vec<f64>>());
        }
    }

    pub fn has_bounds_that_hold_with_the_stated_confidence(&self) {
        // At most 3 misses are expected in 3,000 trials per precision. More than 12 have a chance of one in 60,000.
        for precision in [4, 6, 10, 12] {
            let mut misses = 0;
            for count in [1, 3, 10, 40, 150, 1_000] {
                for seed in 0..500 {
                    let mut sketch = (self.with_precision)(precision);
                    for item in 0..count {
                        sketch.insert(hash(seed * 1_000 + count, item));
                    }
                    let Estimate { value, lower, upper } = sketch.bounds();
                    assert!(lower <= value && value <= upper);
                    misses += u32::from(!(lower..=upper).contains(&count));
                }
            }
            assert!(misses <= 12, "{misses} misses at precision {precision}");
        }
    }
}
