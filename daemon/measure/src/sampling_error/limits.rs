//! The possible true sizes for a sample: the inverted tails of the binomial distribution.
//!
//! A key of true size T, of which each unit is taken with probability p, has a sample of Bin(T, p). The probability
//! that it is x or more, for x > Tp (or x or less, for x < Tp), is at most exp(-T D(x/T || p)), where D is the relative
//! entropy of two coins (Chernoff, 1952). For whole units it is also at most the normal tail beyond sqrt(2 T D(k/T ||
//! p)), with k = x - 1 (k = x + 1 for the lower tail): Zubkov and Serov, "A complete proof of universal inequalities
//! for the distribution function of the binomial law", 2013. The tighter of the two is within a few per cent of the
//! exact tail, so these limits are hardly wider than exact ones (a test shows it).
//!
//! **Inverting** takes two steps of Newton's method and no table. T D(x/T || p) is convex in T: it falls to 0 at T =
//! x/p and rises from there. So a step from any point ends on the side of the root that is further away from x/p, which
//! is the safe one. More steps tighten the limits, but none is needed to make them valid.

use statrs::function::erf::erfc_inv;

/// The probability of a draw, and the number of units of all keys together.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// The probability that a unit is taken, above 0 and below 1.
    p: f64,
    /// ln(total / share), where the limit of a key of size T may fail with the probability share * T / total.
    budget: f64,
    /// The smallest value of `budget` for any key: ln(1 / share).
    least: f64,
    /// True if a sample is a number of whole units, each drawn by itself.
    whole: bool,
}

/// The side of x/p on which the tail is inverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Sizes below x/p: the sample is larger than expected.
    Below,
    /// Sizes above x/p: the sample is smaller than expected.
    Above,
}

impl Draw {
    /// Units are taken with probability `p`. All keys together have `total` units, and their failures on one side may
    /// add up to `share`. `whole` says that samples are numbers of units, all drawn with exactly this probability.
    /// Otherwise they may be sums of parts of units, drawn with this probability or a higher one.
    pub fn new(p: f64, total: f64, share: f64, whole: bool) -> Self {
        Self { p, budget: (total.max(1.0) / share).ln(), least: -share.ln(), whole }
    }

    /// The smallest possible size of a key with a sample of `x` units.
    pub fn least(&self, x: f64) -> f64 {
        if x <= 0.0 {
            return 0.0;
        }
        // A larger size has a larger share of the failures. So from a size that is too small follows a larger one that
        // is still too small.
        let small = self.size::<1>(x, self.exponent(x), Side::Below);
        self.size::<2>(x, self.exponent(small), Side::Below)
    }

    /// The largest possible size of a key with a sample of `x` units.
    pub fn largest(&self, x: f64) -> f64 {
        // From a possible size follows one that is not too small.
        let possible = self.size::<1>(x, self.least, Side::Above);
        let possible = if self.is_possible(x, possible) { possible } else { x / self.p };
        self.size::<2>(x, self.exponent(possible), Side::Above)
    }

    /// -ln of the probability with which the limit of a key of this size may fail.
    fn exponent(&self, size: f64) -> f64 {
        (self.budget - size.max(1.0).ln()).max(self.least)
    }

    /// Returns true if a key of this size, above x/p, has such a small sample often enough.
    fn is_possible(&self, x: f64, size: f64) -> bool {
        let (x, exponent) = self.edge(x, self.exponent(size), Side::Above);
        divergence(x, size, self.p) <= exponent
    }

    /// The size on this side of x/p at which the tail beyond `x` has the probability exp(-exponent).
    fn size<const STEPS: usize>(&self, x: f64, exponent: f64, side: Side) -> f64 {
        let (edge, divergence) = self.edge(x, exponent, side);
        let size = invert::<STEPS>(edge, divergence, self.p, side);
        if side == Side::Below { size.max(x) } else { size }
    }

    /// The point at which to evaluate T D(x/T || p), and its value for a tail of exp(-exponent), by the tighter of the
    /// two laws.
    fn edge(&self, x: f64, exponent: f64, side: Side) -> (f64, f64) {
        match side {
            Side::Below if self.whole && x >= 4.0 => (x - 1.0, normal(exponent)),
            Side::Above if self.whole && x >= 1.0 => (x + 1.0, normal(exponent)),
            Side::Below | Side::Above => (x, exponent),
        }
    }
}

/// Half the square of the distance beyond which a normal variable lies with the probability exp(-exponent).
fn normal(exponent: f64) -> f64 {
    erfc_inv(2.0 * (-exponent).exp()).powi(2)
}

/// The size T on this side of x/p with T D(x/T || p) = `exponent`, or one a little further from x/p.
fn invert<const STEPS: usize>(x: f64, exponent: f64, p: f64, side: Side) -> f64 {
    if x <= 0.0 {
        // Nothing was taken, with the probability (1 - p)^T.
        return exponent / -(-p).ln_1p();
    }
    if side == Side::Below && exponent >= -x * p.ln() {
        // Even that a key of size x was taken completely is not rare enough.
        return x;
    }
    let mean = x / p;
    // The first terms of a power series, for small p: a good enough start for Newton's method.
    let s = (2.0 * exponent * (1.0 - p) / x).sqrt();
    let mut size = match side {
        Side::Below => {
            (mean * (1.0 - s * (1.0 - s * (1.0 / 3.0 - s / 36.0)))).clamp(x + (mean - x) * 1e-3, mean * (1.0 - 1e-9))
        }
        Side::Above => mean * (1.0 + s * (1.0 + s * (1.0 / 3.0 + s / 36.0))).max(1.0 + 1e-9),
    };
    for step in 1..=STEPS {
        let next = size - (divergence(x, size, p) - exponent) / slope(x, size, p);
        size = match side {
            // A step may be too long and reach sizes that no key with this sample has. But the last step must not be
            // shortened.
            Side::Below if step < STEPS => next.clamp(x.midpoint(size).min(mean), mean * (1.0 - 1e-12)),
            Side::Below => next.max(x),
            Side::Above => next,
        };
    }
    size
}

/// T D(x/T || p), for x from 0 to T.
fn divergence(x: f64, size: f64, p: f64) -> f64 {
    // Use the distance of the sample from its mean, because near the mean the terms are large and nearly cancel.
    let off = x - size * p;
    let term = |part: f64, mean: f64, off: f64| if part <= 0.0 { 0.0 } else { part * (off / mean).ln_1p() };
    term(x, size * p, off) + term(size - x, size * (1.0 - p), -off)
}

/// The derivative of [`divergence`] by T.
fn slope(x: f64, size: f64, p: f64) -> f64 {
    ((size * p - x) / (size * (1.0 - p))).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of each limit for a list that states 99.9 %.
    const SHARE: f64 = 0.00025;

    /// ln P(Bin(T, p) >= x), or of <= x, term by term.
    fn ln_tail(size: u64, p: f64, x: u64, side: Side) -> f64 {
        let odds = p / (1.0 - p);
        let (mut ln_term, mut sum, mut k) = (ln_probability(size, p, x), 0.0, x);
        let first = ln_term;
        loop {
            let part = (ln_term - first).exp();
            sum += part;
            let at_end = match side {
                Side::Below => k == size,
                Side::Above => k == 0,
            };
            if at_end || part < sum * 1e-15 {
                return first + sum.ln();
            }
            match side {
                Side::Below => {
                    ln_term += ((size - k) as f64 / (k + 1) as f64 * odds).ln();
                    k += 1;
                }
                Side::Above => {
                    ln_term += (k as f64 / ((size - k + 1) as f64 * odds)).ln();
                    k -= 1;
                }
            }
        }
    }

    fn ln_probability(size: u64, p: f64, x: u64) -> f64 {
        use statrs::function::factorial::ln_binomial;
        ln_binomial(size, x) + x as f64 * p.ln() + (size - x) as f64 * (-p).ln_1p()
    }

    /// The limits of the exact tails, by trial.
    fn exact(total: f64, p: f64, x: u64) -> (u64, u64) {
        let possible = |size: u64, side| ln_tail(size, p, x, side) > (SHARE * size as f64 / total).ln();
        let mean = (x as f64 / p) as u64;
        let (mut impossible, mut least) = (x.max(1) - 1, mean.max(1));
        while least - impossible > 1 {
            let middle = impossible.midpoint(least);
            if middle >= x && possible(middle, Side::Below) { least = middle } else { impossible = middle }
        }
        let (mut largest, mut beyond) = (mean, mean * 1_000 + (100.0 / p) as u64);
        while beyond - largest > 1 {
            let middle = largest.midpoint(beyond);
            if possible(middle, Side::Above) { largest = middle } else { beyond = middle }
        }
        (if x == 0 { 0 } else { least }, largest)
    }

    /// The limits are never tighter than the exact ones, and on either side at most an eighth further away from the
    /// mean.
    #[test]
    fn limits_hold_and_are_hardly_wider_than_exact_ones() {
        let mut widest = 0.0_f64;
        for rate in [2_u32, 10, 100, 1_000, 65_535] {
            let p = 1.0 / f64::from(rate);
            for x in [0, 1, 2, 3, 5, 8, 13, 30, 100, 1_000, 10_000] {
                for total in [60_000, 1_000_000, 1_000_000_000_u64].map(|total| total as f64 * f64::from(rate)) {
                    let draw = Draw::new(p, total, SHARE, true);
                    let (least, largest) = (draw.least(x as f64).ceil() as u64, draw.largest(x as f64).floor() as u64);
                    let (exact_least, exact_largest) = exact(total, p, x);
                    let place = format!("{x} at 1 in {rate} of {total}");
                    assert!(least <= exact_least, "{place}: {least} is above {exact_least}");
                    assert!(largest >= exact_largest, "{place}: {largest} is below {exact_largest}");
                    let mean = x as f64 / p;
                    if x > 0 && exact_least > x {
                        widest = widest.max((mean - least as f64) / (mean - exact_least as f64));
                    }
                    widest = widest.max((largest as f64 - mean) / (exact_largest as f64 - mean));
                }
            }
        }
        assert!(widest < 1.0 + 1.0 / 8.0, "{widest} times as wide");
    }

    /// The first point on the way from `within` to `beyond` that is beyond.
    fn root(is_beyond: impl Fn(f64) -> bool, mut within: f64, mut beyond: f64) -> f64 {
        for _ in 0..200 {
            let middle = within.midpoint(beyond);
            if is_beyond(middle) { beyond = middle } else { within = middle }
        }
        beyond
    }

    #[test]
    fn newtons_method_ends_close_to_the_root_on_the_safe_side() {
        let (mut below, mut above) = (0.0_f64, 0.0_f64);
        for p in [0.5, 0.1, 0.01, 1e-3, 1.0 / 65_535.0] {
            for x in [0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1e3, 1e4, 1e6] {
                for exponent in [0.01, 0.1, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0] {
                    let (mean, place) = (x / p, format!("{x} at {p}, exponent {exponent}"));
                    let is_rare = |size: f64| divergence(x, size, p) > exponent;
                    let (least, largest) = (root(is_rare, mean, x), root(is_rare, mean, mean * 1e4 + 1e4 / p));
                    let (small, large) =
                        (invert::<2>(x, exponent, p, Side::Below), invert::<2>(x, exponent, p, Side::Above));
                    let rounding = mean * 1e-9;
                    assert!(x <= small && small <= least + rounding, "{place}: {small} is above {least}");
                    assert!(large >= largest - rounding, "{place}: {large} is below {largest}");
                    below = below.max((least - small) / (mean - least).max(rounding));
                    above = above.max((large - largest) / (largest - mean).max(rounding));
                }
            }
        }
        assert!(
            below < 0.02 && above < 1e-6,
            "further from the mean than needed by {below} and {above} of the distance"
        );
    }

    #[test]
    fn the_largest_size_of_a_key_that_has_nearly_all_is_possible() {
        let mut widest = 0.0_f64;
        for p in [0.5, 0.1, 0.01, 1.0 / 65_535.0] {
            for x in [0.5, 1.0, 1.5, 2.0, 5.0, 10.0, 100.0, 1e4] {
                let alone = Draw::new(p, 1.0, SHARE, false).largest(x);
                for nth in 0..400 {
                    let total = alone * (1.0 + (f64::from(nth) - 100.0) * 1e-5);
                    let draw = Draw::new(p, total, SHARE, false);
                    let beyond = |size: f64| divergence(x, size, p) > draw.exponent(size);
                    let (exact, found) = (root(beyond, x / p, 100.0 * alone), draw.largest(x));
                    assert!(found >= exact * (1.0 - 1e-12), "{x} at {p} of {total}: {found} is below {exact}");
                    widest = widest.max((found - x / p) / (exact - x / p));
                }
            }
        }
        assert!(widest < 1.4, "{widest} times as far from the mean as needed");
    }
}
