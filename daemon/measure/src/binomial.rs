//! The tails of the binomial distribution: the probability of at most, or at least, a number of successes.
//!
//! The number of trials need not be whole. The tail is then that of the corresponding beta distribution.
//!
//! **Papers**: the tail is a regularised incomplete beta function (Abramowitz and Stegun, "Handbook of mathematical
//! functions", 1964, 26.5.24). If the variance is large, that function's continued fraction would need too many steps.
//! Then the tail is approximated by that of a normal variable: Peizer and Pratt, "A normal approximation for binomial,
//! F, beta, and other common, related tail probabilities", 1968. The two agree to one part in 100,000, out to six
//! standard deviations.

use std::f64::consts::SQRT_2;

use statrs::function::{beta::checked_beta_reg, erf::erfc};

/// From this variance on, the normal approximation is used. Below it, 140 steps of the continued fraction are always
/// enough.
const LARGE: f64 = 5_000.0;

/// The probability of at most `k` successes in `n` trials, each of which succeeds with probability `p`.
///
/// Returns 1 for arguments that are not finite, so no bound becomes narrower.
pub fn at_most(n: f64, p: f64, k: f64) -> f64 {
    tail(n, (p, 1.0 - p), k)
}

/// The probability of at least `k` successes in `n` trials, each of which succeeds with probability `p`.
///
/// Returns 1 for arguments that are not finite. Only tests use it, to decide how many bounds may fail.
#[cfg(test)]
pub fn at_least(n: f64, p: f64, k: f64) -> f64 {
    // At most n - k failures.
    tail(n, (1.0 - p, p), n - k)
}

/// The probability of at most `k` successes, each with probability `p`; `q` is 1 - p.
fn tail(n: f64, (p, q): (f64, f64), k: f64) -> f64 {
    if ![n, p, k].into_iter().all(f64::is_finite) || k >= n || p <= 0.0 {
        1.0
    } else if k < 0.0 || q <= 0.0 {
        0.0
    } else if n * p * q >= LARGE {
        large(n, (p, q), k)
    } else {
        exact(n, (p, q), k)
    }
}

/// The tail by the incomplete beta function.
fn exact(n: f64, (_, q): (f64, f64), k: f64) -> f64 {
    checked_beta_reg(n - k, k + 1.0, q).map_or(1.0, |tail| tail.clamp(0.0, 1.0))
}

/// The tail by Peizer and Pratt's second formula.
fn large(n: f64, (p, q): (f64, f64), k: f64) -> f64 {
    let correction = 0.02 * (q / (k + 1.0) - p / (n - k) + (q - 0.5) / (n + 1.0));
    let distance = k + 2.0 / 3.0 - (n + 1.0 / 3.0) * p + correction;
    let skew = q * bend((k + 0.5) / (n * p)) + p * bend((n - k - 0.5) / (n * q));
    let deviations = distance * ((1.0 + skew) / ((n + 1.0 / 6.0) * p * q)).sqrt();
    0.5 * erfc(-deviations / SQRT_2)
}

/// (1 - x^2 + 2 x ln x) / (1 - x)^2, which is 1 at 0 and 0 at 1.
fn bend(x: f64) -> f64 {
    let off = x - 1.0;
    if x <= 0.0 {
        1.0
    } else if off.abs() < 0.01 {
        // Use the first terms of its series, because numerator and denominator are both nearly 0 here.
        off * (-1.0 / 3.0 + off * (1.0 / 6.0 + off * (-0.1 + off / 15.0)))
    } else {
        (1.0 - x * x + 2.0 * x * x.ln()) / (off * off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probabilities of 0, 1, 2, ... successes, each from the one before, by logarithms.
    fn terms(n: u64, p: f64) -> impl Iterator<Item = f64> {
        let odds = (p / (1.0 - p)).ln();
        (0..=n).scan(n as f64 * (-p).ln_1p(), move |term, k| {
            let this = term.exp();
            *term += ((n - k) as f64 / (k + 1) as f64).ln() + odds;
            Some(this)
        })
    }

    #[test]
    fn tails_are_sums_of_terms() {
        for (n, p) in [(1, 0.5), (5, 0.5), (30, 0.999), (700, 0.001), (6_000, 0.3), (40_000, 0.01), (40_000, 0.5)] {
            let mut below = 0.0;
            for (k, term) in (0..=n).zip(terms(n, p)) {
                let (n, k) = (n as f64, k as f64);
                let (fewer, more) = (at_most(n, p, k), at_least(n, p, k));
                assert!((more - (1.0 - below)).abs() < 1e-6, "at least {k} of {n} by {p}: {more}");
                below += term;
                assert!((fewer - below).abs() < 1e-6, "at most {k} of {n} by {p}: {fewer}, {below} by the sum");
            }
        }
    }

    #[test]
    fn small_tails_are_right_too() {
        // Bounds are taken from tails such as these.
        for (n, p) in [(3_000_u64, 0.05), (200_000, 0.05), (10_000_000, 0.000_1)] {
            let deviation = (n as f64 * p * (1.0 - p)).sqrt();
            for off in [-4.5, -3.29, -1.0, 0.0, 1.0, 3.29, 4.5] {
                let k = (n as f64 * p + off * deviation).floor() as u64;
                let below: f64 = terms(n, p).take(k as usize + 1).sum();
                let above: f64 = terms(n, p).skip(k as usize).take(20_000).sum();
                for (found, summed) in
                    [(at_most(n as f64, p, k as f64), below), (at_least(n as f64, p, k as f64), above)]
                {
                    assert!((found / summed - 1.0).abs() < 1e-4, "{k} of {n} by {p}: {found}, {summed} by the sum");
                }
            }
        }
    }

    #[test]
    fn both_formulas_agree_where_they_meet() {
        for p in [0.5, 0.1, 0.001, 0.999] {
            let n = (LARGE / (p * (1.0 - p))).round();
            for off in -60..=60 {
                let k = (n * p + f64::from(off) / 10.0 * LARGE.sqrt()).floor();
                let [exact, approximate] = [exact, large].map(|tail| tail(n, (p, 1.0 - p), k));
                let least = exact.min(1.0 - exact);
                assert!((exact - approximate).abs() < 1e-4 * least + 1e-12, "{k} by {p}: {exact}, {approximate}");
            }
        }
    }

    #[test]
    fn the_tail_is_one_at_the_ends_and_for_invalid_numbers() {
        assert_eq!([at_most(10.0, 0.5, -1.0), at_most(10.0, 0.5, 10.0), at_most(0.0, 0.5, 0.0)], [0.0, 1.0, 1.0]);
        assert_eq!([at_least(10.0, 0.5, 0.0), at_least(10.0, 0.5, 10.5), at_least(10.0, 0.5, -3.0)], [1.0, 0.0, 1.0]);
        assert_eq!([at_most(10.0, 0.0, 3.0), at_most(10.0, 1.0, 3.0), at_least(10.0, 1.0, 3.0)], [1.0, 0.0, 1.0]);
        assert_eq!(at_least(10.0, 0.0, 3.0), 0.0);
        for (n, p, k) in [(f64::NAN, 0.5, 1.0), (10.0, f64::NAN, 1.0), (10.0, 0.5, f64::NAN), (f64::INFINITY, 0.5, 1.0)]
        {
            assert_eq!([at_most(n, p, k), at_least(n, p, k)], [1.0, 1.0], "{n} {p} {k}");
        }
    }

    #[test]
    fn fractional_trials_lie_between_whole_ones() {
        for (p, k) in [(0.5, 3.0), (0.01, 0.0), (0.9, 7.0)] {
            let [fewer, half, more] = [9.0, 9.5, 10.0].map(|n| at_most(n, p, k));
            assert!(fewer > half && half > more, "{p}: {fewer}, {half}, {more}");
        }
        // Far more trials than a window ever has.
        let tail = at_most(1e18, 0.5, 5e17 - 1.645 * 5e8);
        assert!((tail - 0.05).abs() < 1e-4, "{tail}");
    }
}
