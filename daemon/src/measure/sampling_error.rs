//! How much wider sampling makes the bounds of a sum.

use weir_sketch::hyperloglog::CONFIDENCE;

/// A normal variable lies within this many standard deviations of its mean with probability [`CONFIDENCE`].
pub const DEVIATIONS: f64 = 3.2905;
const _: () = assert!(CONFIDENCE == 0.999);

/// The range of the true sum. The sampled packets, each scaled by its sampling rate, add up to between `lower` and
/// `upper`; no packet adds more than `unit` to that.
///
/// A packet of b bytes that is taken with probability 1/N adds N b to the sum and (N - 1) b^2 to its variance, at most
/// `unit` = N max(b) times its mean, as for a Poisson variable in steps of `unit`; the range is the score interval of
/// that (Wilson, 1927), which holds for small counts too. Holds with [`CONFIDENCE`].
pub fn widen(lower: u64, upper: u64, unit: u64) -> (u64, u64) {
    const SQUARE: f64 = DEVIATIONS * DEVIATIONS;
    if unit == 0 {
        return (lower, upper);
    }
    let unit = unit as f64;
    let side = |sum: u64, sign: f64| {
        let steps = sum as f64 / unit;
        unit * (steps + SQUARE / 2.0 + sign * DEVIATIONS * (steps + SQUARE / 4.0).sqrt())
    };
    (side(lower, -1.0).max(0.0).floor() as u64, side(upper, 1.0).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_wider_without_sampling() {
        assert_eq!(widen(5, 9, 0), (5, 9));
    }

    #[test]
    fn few_samples_have_wide_bounds_and_many_narrow_ones() {
        assert_eq!(widen(0, 0, 100), (0, 1083));
        let (lower, upper) = widen(1_000, 1_000, 100);
        assert!((350..450).contains(&lower) && (2_400..2_800).contains(&upper), "{lower} to {upper}");
        let (lower, upper) = widen(1_000_000_000, 1_000_000_000, 100);
        assert!(1_000_000_000 - lower < 1_100_000 && upper - 1_000_000_000 < 1_100_000, "{lower} to {upper}");
    }
}
