//! Widens the bounds of single windows so that they hold for many windows at once.
//!
//! A bound of a union holds if the bounds of all its windows hold. The probabilities of failure add up (Boole's
//! inequality), so a thousand windows with a confidence of 0.999 each would have none together. Therefore the bounds of
//! each window are widened until each fails that much more rarely. This uses that the errors have a log-concave
//! distribution, such as the normal and the binomial distribution: an error of `k` times the size has at most the
//! probability of the smaller error to the power of `k`.
//!
//! Lists are different. If every packet is measured, their bounds always hold. With sampling, their confidence
//! decreases with the number of windows, and the union says so.

use weir_schema::{Distinct, NewFlows, Union};

/// Widens the bounds of a window's numbers of distinct keys and new flows, so that they hold for this many windows at
/// once with the same confidence. Does not change a union of several windows.
pub fn raise(union: &mut Union, windows: u64) {
    if union.windows > 1 || windows <= 1 {
        return;
    }
    for Distinct { value, lower, upper, confidence } in
        [&mut union.unique.src_ip, &mut union.unique.dst_ip, &mut union.unique.flows]
    {
        let times = times(confidence, windows);
        *lower = value.saturating_sub(widened(*value - (*value).min(*lower), times));
        *upper = value.saturating_add(widened(upper.saturating_sub(*value), times));
    }
    // The lower bound always holds.
    let NewFlows { value, upper, confidence, .. } = &mut union.new_flows;
    *upper = value.saturating_add(widened(upper.saturating_sub(*value), times(confidence, windows)));
}

/// How many times wider bounds must be to fail `windows` times as rarely. Also updates the confidence.
fn times(confidence: &mut f64, windows: u64) -> f64 {
    let failure = 1.0 - *confidence;
    if failure <= 0.0 || failure >= 1.0 {
        return 1.0;
    }
    let rarer = failure / windows as f64;
    *confidence = 1.0 - rarer;
    // Half of the failures are on each side.
    (rarer / 2.0).ln() / (failure / 2.0).ln()
}

/// The widened distance between the value and a bound. Whole numbers beyond `distance` are as rare as stated.
fn widened(distance: u64, times: f64) -> u64 {
    if times <= 1.0 { distance } else { ((distance as f64 + 1.0) * times).ceil() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::report;

    /// Of the distributions that the rule covers, the normal distribution has the thinnest tails, so its own bounds are
    /// closer.
    #[test]
    fn bounds_of_a_day_are_wide_enough_for_normal_errors() {
        // 3.29 and 5.42 deviations: two-sided tails of 0.001 and of 0.001 / 16,667.
        let mut confidence = 0.999;
        let times = times(&mut confidence, 16_667);
        assert!((1.0 - confidence - 6e-8).abs() < 1e-9, "{confidence}");
        assert!((5.42 / 3.29..2.5).contains(&times), "{times}");
    }

    #[test]
    fn a_day_of_windows_holds_with_the_confidence_of_one() {
        let mut union = Union::one(&report(0, &[(1, 5)]));
        raise(&mut union, 8640);
        let failures = 8640.0 * (1.0 - union.unique.src_ip.confidence);
        assert!((failures - 0.001).abs() < 1e-6, "{failures}");
        let Distinct { value, lower, upper, .. } = union.unique.src_ip;
        assert!((900..984).contains(&lower) && upper > 1016 && value == 1000, "{lower} to {upper}");
        assert!(
            union.new_flows.lower == 50 && union.new_flows.upper > 50,
            "a value one beyond the bound is as rare as stated, a value two beyond it is rarer"
        );
        let (mut joined, before) = (Union::join(&[union.clone(), union.clone()]).unwrap(), union.clone());
        raise(&mut joined, 8640);
        assert_eq!(joined.unique, Union::join(&[before.clone(), before]).unwrap().unique, "only once");
        raise(&mut union, 1);
        let certain = &mut union.unique.flows;
        (certain.confidence, certain.lower, certain.upper) = (1.0, 1000, 1000);
        let before = union.clone();
        raise(&mut union, 8640);
        assert_eq!(union.unique.flows, before.unique.flows, "bounds that always hold stay as they are");
    }
}
