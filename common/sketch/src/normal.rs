//! The normal distribution: how far a variable is from its mean, with a given probability.

/// A normal variable is within this many standard deviations of its mean, on both sides, with this probability.
///
/// For a probability of 1 or more, it returns the distance beyond which the remaining probability is below the smallest
/// representable number.
pub(crate) fn deviations(probability: f64) -> f64 {
    const MOST: f64 = 38.0;
    // The remaining probability falls with the distance, so bisection finds it.
    let (mut near, mut far) = (0.0, MOST);
    for _ in 0..f64::MANTISSA_DIGITS {
        let middle = (near + far) / 2.0;
        let beyond = libm::erfc(middle / core::f64::consts::SQRT_2);
        if beyond > 1.0 - probability { near = middle } else { far = middle }
    }
    far
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_tables() {
        for (probability, distance) in [(0.5, 0.674_490), (0.9, 1.644_854), (0.95, 1.959_964), (0.999, 3.290_527)] {
            assert!((deviations(probability) - distance).abs() < 1e-6, "{probability}: {}", deviations(probability));
        }
        assert_eq!(deviations(1.0), 38.0);
        assert!(deviations(0.0) < 1e-12 && deviations(-1.0) < 1e-12);
    }
}
