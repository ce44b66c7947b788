//! Poisson's law, for the number of rare events.

/// The largest expected number of events for which no more than `events` happen with this probability. (The binomial
/// law has lighter tails: Anderson and Samuels, "Some inequalities among binomial and Poisson probabilities", 1967.)
pub fn expected_if_no_more(events: u32, probability: f64) -> f64 {
    if events == 0 {
        return -libm::log(probability);
    }
    let no_more = |expected: f64| {
        let (mut term, mut sum) = (libm::exp(-expected), 0.0);
        for nth in 0..=events {
            sum += term;
            term *= expected / f64::from(nth + 1);
        }
        sum
    };
    // The probability falls as the expected number rises, so bisection finds it.
    let (mut few, mut many) = (0.0, 700.0);
    for _ in 0..f64::MANTISSA_DIGITS {
        let middle = (few + many) / 2.0;
        if no_more(middle) > probability { few = middle } else { many = middle }
    }
    many
}

/// The probability of at least this many events, if `expected` are expected.
pub fn at_least(events: u32, expected: f64) -> f64 {
    let mut term = libm::exp(-expected);
    for nth in 1..=events {
        term *= expected / f64::from(nth);
    }
    // Terms rise up to the expected number of events, and then fall. After a term that adds nothing to the sum, no
    // later one does.
    let (mut sum, mut nth) = (0.0, events);
    while sum + term > sum {
        sum += term;
        nth += 1;
        term *= expected / f64::from(nth);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_are_those_of_tables() {
        // These are 95 % bounds of Poisson's law: 3.00, 4.74 and 16.96 for 0, 1 and 10 events.
        for (events, mean) in [(0, 2.996), (1, 4.744), (10, 16.962)] {
            let expected = expected_if_no_more(events, 0.05);
            assert!((expected - mean).abs() < 0.001, "{events}: {expected}");
        }
        assert!(expected_if_no_more(254, 1e-12) < 500.0, "far from the start of the bisection");
    }

    #[test]
    fn tails_are_those_of_tables() {
        for (events, expected, probability) in [
            (0, 0.5, 1.0),
            (1, 0.5, 0.393_469),
            (3, 0.5, 0.014_388),
            (15, 10.0, 0.083_458),
            (3, 10.0, 0.997_231),
            (650, 700.0, 0.972_948),
        ] {
            let found = at_least(events, expected);
            assert!((found - probability).abs() < 1e-6, "{events} of {expected}: {found}");
        }
        // Far out, 1 minus the rest would be zero. The result is 0.01^9 / 9!, less 1 %.
        let far = at_least(9, 0.01) * 362_880.0 * 1e18;
        assert!((0.98..1.0).contains(&far), "{far}");
        assert_eq!((at_least(1, 0.0), at_least(0, 0.0)), (0.0, 1.0));
    }
}
