//! Estimates the number of new flows. The filter of seen flows mistakes some of them for known ones.
//!
//! A flow is new if none of its packets was measured before. Lost and unsampled packets do not count.
//!
//! **The lower bound always holds.** A flow is counted when one of its records is absent from the filter. The filter
//! remembers a flow for at least a whole generation. It reports a flow as new to at most one worker, even if several
//! insert it at once or while the filter is rotated (see [`Seen::insert`]). So each counted flow is new, and counted
//! once. (Records of both sides of an edge reach the filter in the order in which workers read them. A flow that begins
//! on one CPU just before the edge, and on another just after it, may be counted in the second window.)
//!
//! **The upper bound.** The filter mistakes a new flow for a known one if other flows have set all its bits. Bits are
//! only set until the filter is rotated. If it were rotated between two windows, the rate of false positives at the
//! window's end would bound that of all its flows. The daemon cannot do that, because each CPU closes its window at a
//! different instant. The daemon rotates just before it orders them to close. The next window then uses only the
//! rotated filter. The ending window used first the full filter and at last the rotated one, so its rate is the higher
//! of the two ([`Seen::false_positive_rate_across`]). So the number of counted flows is at least a binomial variable
//! whose trials are the new flows. The bound is the largest number of trials for which this few successes have a
//! probability of at least half of 1 - confidence. In addition, each worker may miss one flow while the filter is
//! rotated, and each lost or unsampled packet may belong to one more.
//!
//! There are not more new flows than flows. The upper bound of all flows uses the other half of that probability, so
//! the lower of the two bounds holds with the stated confidence. If the bound of all flows is below the count of new
//! flows, it has failed, and is ignored.

use weir_sketch::{Estimate, Seen};

use super::binomial;

/// Flows not seen before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewFlows {
    /// The number of new flows, with bounds.
    pub count: Estimate,
    /// The highest probability in the window that the filter mistook a new flow for a known one.
    pub false_positive_rate: f64,
    /// The share of the filter's bits that are set at the window's end.
    pub fill: f64,
}

/// The state of the filter for a window's flows.
#[derive(Clone, Copy)]
pub struct FilterState<'a> {
    /// The filter, at the window's end.
    pub filter: &'a Seen,
    /// If it was rotated within the window: the false positive rate of the generation that was emptied.
    pub emptied: Option<f64>,
}

impl<'a> FilterState<'a> {
    /// A filter that was not rotated within the window.
    pub const fn steadily(filter: &'a Seen) -> Self {
        Self { filter, emptied: None }
    }
}

/// The filter's answers for a window's flows, and other knowledge about their number.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Flows that the filter did not know.
    pub new: u64,
    /// The workers that used it.
    pub workers: u64,
    /// Unknown packets: each may belong to one more flow.
    pub unknown: u64,
    /// All flows, known and new, including those of unknown packets.
    pub flows: Estimate,
}

impl NewFlows {
    /// The estimate. Its bounds hold with the probability `confidence`, as do those of all flows. Each side gets half
    /// of the rest.
    pub fn new(counted: Counted, filter_state: FilterState<'_>, confidence: f64) -> Self {
        let FilterState { filter, emptied } = filter_state;
        let rate = filter.false_positive_rate_across(emptied.unwrap_or(0.0));
        Self {
            count: counted.bounded(rate, emptied.is_some(), confidence),
            false_positive_rate: rate,
            fill: filter.fill(),
        }
    }
}

impl Counted {
    /// The number of new keys with its bounds, if the filter mistook a new key for a known one with a probability of at
    /// most `rate`, and was rotated within the window or not. Only the upper bound may fail, with half of what is left
    /// of the probability `confidence`.
    pub fn bounded(self, rate: f64, is_rotated: bool, confidence: f64) -> Estimate {
        let Self { new, workers, unknown, flows } = self;
        // A single worker inserts nothing while it rotates.
        let racing = if is_rotated && workers > 1 { workers } else { 0 };
        let most = most_trials(new, 1.0 - rate, (1.0 - confidence) / 2.0);
        let upper = most.saturating_add(racing).saturating_add(unknown);
        let upper = if flows.upper < new { upper } else { upper.min(flows.upper) };
        Estimate { value: new, lower: new, upper }
    }
}

/// The largest number of trials, each a success with this probability, for which at most `successes` successes have a
/// probability above `tail`.
fn most_trials(successes: u64, probability: f64, tail: f64) -> u64 {
    /// More flows than a window can have, and as many as a float can count.
    const MOST: u64 = 1 << f64::MANTISSA_DIGITS;
    // The tail falls with the number of trials, so bisection finds the limit.
    let (mut likely, mut unlikely) = (successes, MOST.max(successes.saturating_add(1)));
    while unlikely - likely > 1 {
        let middle = likely + (unlikely - likely) / 2;
        let is_likely = binomial::at_most(middle as f64, probability, successes as f64) > tail;
        if is_likely { likely = middle } else { unlikely = middle }
    }
    likely
}

#[cfg(test)]
mod tests {
    use weir_sketch::hash::mix;

    use super::*;

    const CONFIDENCE: f64 = 0.999;
    /// The bounds if nothing is known about the number of all flows.
    const ANY: Estimate = Estimate { value: 0, lower: 0, upper: u64::MAX };

    /// The hash of a flow, different for each seed.
    fn flow(seed: u64, number: u64) -> u64 {
        mix(mix(seed).wrapping_add(number))
    }

    /// How many of these flows are new to the filter.
    fn ask(filter: &Seen, seed: u64, flows: std::ops::Range<u64>) -> u64 {
        flows.filter(|number| filter.insert(flow(seed, *number))).count() as u64
    }

    fn filter() -> Seen {
        Seen::with_capacity(1_000, 0.001, 7).unwrap()
    }

    fn bounds(new: u64, filter: &Seen, emptied: Option<f64>) -> Estimate {
        NewFlows::new(Counted { new, workers: 1, unknown: 0, flows: ANY }, FilterState { filter, emptied }, CONFIDENCE)
            .count
    }

    /// Fails if the chance of at least `misses` failed bounds in `trials` is below one in a million.
    fn judge(misses: u64, trials: u64, what: &str) {
        // Half of the probability belongs to the bound of all flows, which is absent here.
        let chance = binomial::at_least(trials as f64, (1.0 - CONFIDENCE) / 2.0, misses as f64);
        assert!(chance > 1e-6, "{what}: {misses} of {trials} bounds failed, which has a chance of {chance:.1e}");
    }

    #[test]
    fn few_new_flows_after_a_flood_are_bounded() {
        const SEEDS: u64 = 2_000;
        for new in [1, 5, 50] {
            let misses = (0..SEEDS).filter(|seed| {
                let filter = filter();
                ask(&filter, *seed, 0..6_000);
                let counted = ask(&filter, *seed, 6_000..6_000 + new);
                let Estimate { value, lower, upper } = bounds(counted, &filter, None);
                assert!(lower <= value && value <= upper && lower <= new);
                upper < new
            });
            judge(misses.count() as u64, SEEDS, &format!("{new} new flows"));
        }
    }

    #[test]
    fn bounds_hold_in_floods_and_rotations_and_are_useful() {
        const SEEDS: u64 = 500;
        for (flood, quiet) in [(100, 100), (1_000, 1_000), (6_000, 30), (20_000, 500)] {
            let mut misses = [0; 3];
            for seed in 0..SEEDS {
                let filter = filter();
                let mut next = 0;
                let mut ask = |flows: u64| {
                    next += flows;
                    ask(&filter, seed, next - flows..next)
                };
                let mut check = |window: usize, new, counted, emptied| {
                    let Estimate { lower, upper, .. } = bounds(counted, &filter, emptied);
                    assert!(lower <= new);
                    misses[window] += u64::from(upper < new);
                    (upper - lower) as f64 / new as f64
                };
                let counted = ask(flood);
                check(0, flood, counted, None);
                filter.rotate();
                // The daemon rotates while the window is still in use; a CPU is in the next one before it has reported.
                let full = ask(quiet);
                let emptied = filter.rotate();
                let counted = full + ask(quiet);
                let early = ask(quiet);
                check(1, 2 * quiet, counted, Some(emptied));
                let counted = early + ask(quiet);
                let width = check(2, 2 * quiet, counted, None);
                assert!(flood > 100 || width < 0.05, "{width}");
            }
            for (window, misses) in misses.into_iter().enumerate() {
                judge(misses, SEEDS, &format!("{flood} and {quiet}, window {window}"));
            }
        }
    }

    #[test]
    fn the_bound_is_the_largest_number_that_is_not_unlikely() {
        // At most 0 of n succeed with 0.5^n, which is above 0.0005 up to 10.
        assert_eq!(most_trials(0, 0.5, 0.000_5), 10);
        for (successes, probability) in [(0, 0.9), (5, 0.25), (700, 0.999), (100_000, 0.999), (30, 0.01)] {
            let most = most_trials(successes, probability, 0.000_5);
            let chance = |trials: u64| binomial::at_most(trials as f64, probability, successes as f64);
            assert!(chance(most) > 0.000_5 && chance(most + 1) <= 0.000_5, "{successes} by {probability}: {most}");
        }
        assert_eq!(most_trials(7, 1.0, 0.000_5), 7, "the filter misses nothing");
        assert!(most_trials(7, 0.0, 0.000_5) >= 1 << 52, "the filter misses everything");
        assert_eq!(most_trials(u64::MAX, 0.5, 0.000_5), u64::MAX);
    }

    #[test]
    fn other_knowledge_about_the_number_is_used() {
        let (filter, other) = (filter(), filter());
        let rate =
            |filter_state: FilterState<'_>, counted| NewFlows::new(counted, filter_state, CONFIDENCE).count.upper;
        let counted = Counted { new: 10, workers: 1, unknown: 0, flows: ANY };
        let empty = FilterState::steadily(&filter);
        assert_eq!(rate(empty, counted), 10, "an empty filter misses nothing");
        assert_eq!(rate(empty, Counted { unknown: 3, ..counted }), 13);
        let rotated = FilterState { emptied: Some(0.0), ..empty };
        assert_eq!([1, 4].map(|workers| rate(rotated, Counted { workers, ..counted })), [10, 14]);
        ask(&other, 1, 0..10_000);
        let full = FilterState::steadily(&other);
        let limited = |upper| rate(full, Counted { flows: Estimate { value: 0, lower: 0, upper }, ..counted });
        assert!(limited(u64::MAX) > 100);
        assert_eq!(limited(12), 12);
        assert_eq!(limited(9), limited(u64::MAX), "a bound below what was counted has failed");
    }
}
