//! Chance in tests. A bound at a stated confidence is sometimes wrong, and a test must be able to tell that
//! from a fault.

/// How often a test that judges by chance may fail although nothing is wrong: once in a million runs.
pub const FALSE_ALARM: f64 = 1e-6;

/// The smallest number of failures among `trials` independent ones that is a fault: this many or more occur with a
/// probability below [`FALSE_ALARM`] if each trial fails with the probability `failure`.
pub fn failures_that_alarm(trials: u64, failure: f64) -> u64 {
    (0..=trials).find(|&failures| at_least(failures, trials, failure) < FALSE_ALARM).unwrap_or(trials + 1)
}

/// The probability of at least `least` failures among `trials`: the upper tail of the binomial distribution.
pub fn at_least(least: u64, trials: u64, failure: f64) -> f64 {
    if least == 0 {
        return 1.0;
    }
    if failure <= 0.0 || least > trials {
        return 0.0;
    }
    if failure >= 1.0 {
        return 1.0;
    }
    // This uses logarithms, because the coefficients overflow long before the terms do.
    let odds = (failure / (1.0 - failure)).ln();
    let mut term = trials as f64 * (-failure).ln_1p();
    let mut tail = 0.0;
    for failures in 0..=trials {
        if failures >= least {
            tail += term.exp();
        }
        term += ((trials - failures) as f64 / (failures + 1) as f64).ln() + odds;
    }
    tail.min(1.0)
}

/// The distance in standard deviations that a normal variable exceeds, on either side, with this probability.
pub fn deviations(probability: f64) -> f64 {
    /// Beyond this distance, the probability is below the smallest floating-point number.
    const MOST: f64 = 38.0;
    // The probability falls with the distance, so halving finds it.
    let (mut near, mut far) = (0.0, MOST);
    for _ in 0..100 {
        let middle = (near + far) / 2.0;
        if both_tails(middle) > probability { near = middle } else { far = middle }
    }
    far
}

/// The probability that a normal variable is off by more than this many standard deviations, on either side.
///
/// It integrates the density with Simpson's rule.
fn both_tails(deviations: f64) -> f64 {
    /// Beyond this many more standard deviations, the rest is negligible.
    const REACH: f64 = 12.0;
    const STEPS: u32 = 2_000;
    let width = REACH / f64::from(STEPS);
    let density = |step: u32| (-0.5 * (deviations + f64::from(step) * width).powi(2)).exp();
    let weight = |step: u32| match step {
        0 | STEPS => 1.0,
        _ if step.is_multiple_of(2) => 2.0,
        _ => 4.0,
    };
    let sum: f64 = (0..=STEPS).map(|step| weight(step) * density(step)).sum();
    2.0 * sum * width / 3.0 / (2.0 * std::f64::consts::PI).sqrt()
}

/// Compares the mean of many estimates with the truth.
///
/// # Errors
///
/// The difference is larger than chance explains in one of a million cases; or all estimates are the same, so nothing
/// was random.
pub fn unbiased(estimates: &[f64], truth: f64) -> Result<(), String> {
    let count = estimates.len() as f64;
    let mean = estimates.iter().sum::<f64>() / count;
    let variance = estimates.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let error = (variance / count).sqrt();
    if error == 0.0 || error.is_nan() {
        return Err(format!("all {count} estimates are {mean}"));
    }
    if (mean - truth).abs() > deviations(FALSE_ALARM) * error {
        return Err(format!("{truth} is estimated as {mean:.1} +- {error:.1}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_tables() {
        for (deviations_off, probability) in [(1.0, 0.317_310_5), (1.959_964, 0.05), (3.290_527, 0.001)] {
            assert!((both_tails(deviations_off) / probability - 1.0).abs() < 1e-5, "{deviations_off}");
            assert!((deviations(probability) - deviations_off).abs() < 1e-5, "{probability}");
        }
        assert!((deviations(FALSE_ALARM) - 4.891_638).abs() < 1e-5);
    }

    #[test]
    fn coins_and_dice_fall_as_they_do() {
        for (least, trials, failure, probability) in
            [(0, 5, 0.5, 1.0), (5, 5, 0.5, 1.0 / 32.0), (4, 5, 0.5, 6.0 / 32.0), (1, 2, 1.0 / 6.0, 11.0 / 36.0)]
        {
            let found = at_least(least, trials, failure);
            assert!((found - probability).abs() < 1e-12, "{least} of {trials}: {found}");
        }
        // Many rare failures: like the Poisson distribution with mean 1.
        assert!((at_least(1, 1_000_000, 1e-6) - (1.0 - (-1.0_f64).exp())).abs() < 1e-6);
        assert_eq!([at_least(6, 5, 0.5), at_least(3, 5, 0.0), at_least(3, 5, 1.0)], [0.0, 0.0, 1.0]);
    }

    #[test]
    fn an_alarm_is_as_rare_as_it_says_and_no_rarer_than_it_must() {
        for (trials, failure) in [(400, 0.001), (3_000, 0.001), (100, 0.05)] {
            let alarm = failures_that_alarm(trials, failure);
            assert!(at_least(alarm, trials, failure) < FALSE_ALARM);
            assert!(at_least(alarm - 1, trials, failure) >= FALSE_ALARM);
        }
        assert_eq!(failures_that_alarm(3, 1.0), 4, "where all fail, none of it is a fault");
    }

    #[test]
    fn a_mean_that_is_off_is_found() {
        let around = |middle: f64| (0..200).map(|nth| middle + f64::from(nth % 7) - 3.0).collect::<Vec<_>>();
        assert!(unbiased(&around(1_000.0), 1_000.0).is_ok());
        assert!(unbiased(&around(1_001.0), 1_000.0).is_err());
        assert!(unbiased(&[5.0; 10], 5.0).is_err());
    }
}
