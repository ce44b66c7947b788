//! The likeliest size of a key that is in a list because its sample was large.
//!
//! A list favours lucky keys: the mean of their samples, scaled up, is above the mean of their sizes (the winner's
//! curse). So the value is the size T for which the sample x is likeliest *among the samples that get a key into the
//! list*, which are those of at least c: T maximises P(X = x | X >= c) (Zhong and Prentice, 2008). For samples far
//! above c, T is x/p. For a sample of exactly c, T is the smallest possible size.
//!
//! For Bin(T, p), the ratio of the likelihoods of T and T + 1 says that x is nearly the mean of the samples of at least
//! c: x = Tp + Tp(1 - p) P(X = c - 1 | T) / P(X >= c | T). With a normal variable for X, that becomes a function of one
//! number, which is tabulated. Most values are within a tenth of a sample's standard deviation from the exact maximum;
//! for samples just above a large c, where c is far out in the distribution's tail, the values are within 2 per cent (a
//! test shows it).

use std::sync::LazyLock;

use statrs::function::erf::erfc;

/// The likeliest size of a key with a sample of `x` units, each taken with probability `p`, if a sample of `c` was
/// needed to be listed.
pub fn likeliest(x: f64, c: f64, p: f64) -> f64 {
    /// The mean determines the width of its distribution, and vice versa.
    const ROUNDS: usize = 8;
    if x <= c {
        return x;
    }
    // Samples are whole numbers: the distribution's step at c begins half a unit below.
    let edge = c - 0.5;
    let next = |mean: f64| {
        // Take the middle of the variance at the mean and the variance at the sample, which may be nearly the whole
        // key.
        let variance = (mean * (1.0 - p)).midpoint(x * (1.0 - x * p / mean));
        let deviation = variance.sqrt();
        (edge + deviation * mean_above_edge((x - edge) / deviation)).max(x * p)
    };
    // From the second round on take only half of each step, because full steps would oscillate.
    let mean = (1..ROUNDS).fold(next(x), |mean, _| mean.midpoint(next(mean)));
    mean / p
}

/// The mean of a normal variable with standard deviation 1 whose part above 0 has the mean `seen`.
fn mean_above_edge(seen: f64) -> f64 {
    let Table(entries) = &*TABLE;
    let at = entries.partition_point(|(_, of_part)| *of_part <= seen);
    match (at.checked_sub(1).map(|before| entries[before]), entries.get(at)) {
        (Some((mean, of_part)), Some((next, of_next))) => mean + (next - mean) * (seen - of_part) / (of_next - of_part),
        // Nearly the whole distribution is above 0.
        (_, None) => seen,
        // So little of the distribution is above 0 that only the slope there matters.
        (None, _) => -1.0 / seen.max(f64::MIN_POSITIVE),
    }
}

/// Means, each with the mean of the part above 0. Both ascend.
struct Table([(f64, f64); Table::ENTRIES]);

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

impl Table {
    const ENTRIES: usize = 1_024;
    const LEAST: f64 = -20.0;
    const MOST: f64 = 8.0;

    fn new() -> Self {
        Self(std::array::from_fn(|nth| {
            let mean = Self::LEAST + (Self::MOST - Self::LEAST) * nth as f64 / (Self::ENTRIES - 1) as f64;
            let above = 0.5 * erfc(-mean / std::f64::consts::SQRT_2);
            let density = (-0.5 * mean * mean).exp() / (2.0 * std::f64::consts::PI).sqrt();
            (mean, mean + density / above)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The T that maximises P(X = x | X >= c), by trying all sizes.
    fn exact(x: u64, c: u64, p: f64) -> u64 {
        let most = (x as f64 / p) as u64 + 10;
        let ln_likelihood = |size: u64| {
            let ln_probability = |x: u64| {
                use statrs::function::factorial::ln_binomial;
                ln_binomial(size, x) + x as f64 * p.ln() + (size - x) as f64 * (-p).ln_1p()
            };
            let first = ln_probability(c);
            let tail: f64 =
                (c..=size).map(|k| (ln_probability(k) - first).exp()).take_while(|part| *part > 1e-12).sum();
            ln_probability(x) - first - tail.ln()
        };
        (x..=most).max_by(|one, other| ln_likelihood(*one).total_cmp(&ln_likelihood(*other))).unwrap_or(x)
    }

    /// Panics unless the value is near the exact one.
    fn compare(x: u64, c: u64, rate: f64) {
        let (found, exact) = (likeliest(x as f64, c as f64, 1.0 / rate), exact(x, c, 1.0 / rate));
        let deviation = (x as f64 * (1.0 - 1.0 / rate)).sqrt() * rate;
        // The likelihood may be the same for the next larger size.
        let off = found - found.clamp(exact as f64, exact as f64 + 1.0);
        assert!(
            off.abs() < (0.1 * deviation).max(0.02 * exact as f64),
            "{x} of at least {c} at 1 in {rate}: {found:.1}, exactly {exact}: {:.3} deviations",
            off / deviation
        );
    }

    #[test]
    fn it_is_the_size_that_makes_the_sample_likeliest() {
        for rate in [2.0, 10.0, 100.0] {
            for c in [1_u64, 2, 5, 20, 100] {
                for x in [c, c + 1, c + 2, c + c / 4, 2 * c, 3 * c] {
                    compare(x, c, rate);
                }
            }
        }
    }

    #[test]
    fn it_is_nearly_so_for_samples_just_above_a_large_limit() {
        for x in [1_001, 1_002, 1_010, 1_100] {
            compare(x, 1_000, 2.0);
        }
        for x in [1_001, 1_020] {
            compare(x, 1_000, 10.0);
        }
        // So far out that the table has no entry.
        compare(4_001, 4_000, 2.0);
    }
}
