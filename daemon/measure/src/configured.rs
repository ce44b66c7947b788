//! Sketches with the settings of a configuration.
//!
//! The limits of the configuration are within those of the sketches, so a sketch refuses none of its settings.

use weir_sketch::{HyperLogLog, SettingError, hyperloglog};

/// A sketch that was made with settings within the limits of the configuration.
///
/// # Panics
///
/// The sketch refused them. A test shows that it accepts the ends of all limits.
pub fn configured<S>(made: Result<S, SettingError>) -> S {
    made.unwrap_or_else(|error| panic!("the limits of the configuration are too wide for a sketch: {error}"))
}

/// A count of distinct keys with this relative standard error, or the lowest that there is.
pub fn distinct(relative_error: f64, key_id: u64) -> HyperLogLog {
    configured(HyperLogLog::with_error(relative_error.max(hyperloglog::ERROR_MIN), key_id))
}

#[cfg(test)]
mod tests {
    use weir_common::ledger::Tally;
    use weir_config::{
        limits::{CAPACITY, DISTINCT_ERROR, FALSE_POSITIVE_RATE, TOP_CANDIDATES, TOP_ERROR, UNIQUE_ERROR},
        view::ViewKey,
    };
    use weir_sketch::{CandidateBuckets, SampleAndHold, Seen};

    use super::*;

    #[test]
    fn sketches_accept_all_settings_that_the_configuration_allows() {
        let ends = |limits: std::ops::RangeInclusive<f64>| [*limits.start(), *limits.end()];
        for error in ends(UNIQUE_ERROR).into_iter().chain(ends(DISTINCT_ERROR)) {
            // The lowest that there is may be a little higher than the lowest limit.
            assert!(distinct(error, 7).relative_error() <= error.max(0.002_04), "{error}");
        }
        for error in ends(DISTINCT_ERROR) {
            assert_eq!(SampleAndHold::<ViewKey>::check(512, error), Ok(()), "{error}");
        }
        for error in ends(TOP_ERROR) {
            for candidates in [*TOP_CANDIDATES.start(), *TOP_CANDIDATES.end()] {
                _ = configured(CandidateBuckets::<ViewKey, Tally>::with_error(error, candidates as usize, 7));
            }
        }
        for rate in ends(FALSE_POSITIVE_RATE) {
            for capacity in [*CAPACITY.start(), *CAPACITY.end()] {
                assert_eq!(Seen::check(capacity, rate), Ok(()), "{capacity} at {rate}");
            }
        }
    }
}
