//! The law of filters: an absent key is found no more often than was asked for, and as often as the filter states.
//! Measured for every filter, from a single key to ten thousand, and for rates from 0.3 to a millionth.
//!
//! A small filter differs much from another one with other keys. So many filters are measured, and the law is about
//! their mean.

use std::{format, vec::Vec};

use crate::{
    BlockedBloom, Bloom, CountingBloom, Cuckoo, Filter, Quotient, ScalableBloom, Seen, SharedBloom, hash::mix,
    oracle::hash,
};

const ITEMS: [u64; 13] = [1, 2, 3, 4, 5, 8, 13, 25, 50, 100, 300, 1_000, 10_000];
const RATES: [f64; 7] = [0.3, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6];
/// Chance exceeds a bound of this many standard deviations once in a billion.
const DEVIATIONS: f64 = 6.0;

/// The false positives of some filters with the same plan.
#[derive(Debug, Default)]
struct Measured {
    filters: f64,
    /// The sum of the stated rates, and of their squares.
    stated: f64,
    squares: f64,
    /// How many absent keys were looked up, and found, and how many should be by the stated rates.
    tries: f64,
    found: f64,
    expected: f64,
}

impl Measured {
    /// Fills filters with `items` keys each, and looks up absent keys.
    fn of<F>(
        (items, rate): (u64, f64),
        new: impl Fn() -> F,
        insert: impl Fn(&mut F, u64),
        contains: impl Fn(&F, u64) -> bool,
        stated: impl Fn(&F) -> f64,
    ) -> Self {
        let filters = (20_000 / items).clamp(3, 300);
        let tries = ((60.0 / rate) as u64).clamp(2_000, 600_000) / filters + 1;
        let mut measured = Self::default();
        for seed in 0..filters {
            let mut filter = new();
            for item in 0..items {
                insert(&mut filter, hash(seed, item));
            }
            let absent = hash(seed, items);
            let found = (0..tries).filter(|item| contains(&filter, mix(absent.wrapping_add(mix(*item))))).count();
            measured += (stated(&filter), tries as f64, found as f64);
        }
        measured
    }

    /// Says which promise the filter breaks, if any.
    fn wrong(&self, rate: f64) -> Option<&'static str> {
        let Self { filters, stated, squares, tries, found, expected } = *self;
        let mean = stated / filters;
        let spread = libm::sqrt((squares / filters - mean * mean).max(0.0) / filters);
        let chance = |expected: f64| DEVIATIONS * libm::sqrt(expected) + DEVIATIONS;
        if mean > rate * 1.000_1 + DEVIATIONS * spread {
            Some("states more than was asked for")
        } else if found > tries * rate + DEVIATIONS * tries * spread + chance(tries * rate) {
            Some("finds more than was asked for")
        } else if (found - expected).abs() > chance(expected) {
            Some("finds another share than it states")
        } else {
            None
        }
    }
}

impl core::ops::AddAssign<(f64, f64, f64)> for Measured {
    fn add_assign(&mut self, (stated, tries, found): (f64, f64, f64)) {
        self.filters += 1.0;
        self.stated += stated;
        self.squares += stated * stated;
        self.tries += tries;
        self.found += found;
        self.expected += stated * tries;
    }
}

/// Checks a filter for each number of keys and each rate.
fn the_law_holds<F: Filter>(rates: &[f64], new: impl Fn(u64, f64) -> F) {
    let mut wrong = Vec::new();
    for (rate, items) in rates.iter().flat_map(|rate| ITEMS.map(|items| (*rate, items))) {
        let measured = Measured::of(
            (items, rate),
            || new(items, rate),
            |filter, hash| assert!(filter.insert(hash).is_ok(), "a planned key has room"),
            Filter::contains,
            Filter::false_positive_rate,
        );
        wrong.extend(measured.wrong(rate).map(|why| format!("{items} keys at {rate}: {why}: {measured:?}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

macro_rules! laws {
    ($($name:ident: $rates:expr, $new:expr;)+) => {
        $(#[test]
        #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
        fn $name() {
            the_law_holds(&$rates, $new);
        })+
    };
}

laws! {
    bloom: RATES, |items, rate| Bloom::with_capacity(items, rate, 7).unwrap();
    blocked_bloom: RATES, |items, rate| BlockedBloom::with_capacity(items, rate, 7).unwrap();
    counting_bloom: RATES, |items, rate| CountingBloom::with_capacity(items, rate, 7).unwrap();
    shared_bloom: RATES, |items, rate| SharedBloom::with_capacity(items, rate, 7).unwrap();
    scalable_bloom: RATES, |items, rate| ScalableBloom::with_capacity(items, rate, 7).unwrap();
    a_scalable_bloom_that_grew: RATES, |items, rate| ScalableBloom::with_capacity(items.div_ceil(9), rate, 7).unwrap();
    cuckoo: [0.000_123], |items, _| Cuckoo::with_capacity(items, 7).unwrap();
    quotient: [0.000_05], |items, _| Quotient::with_capacity(items, 7).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn seen() {
    for (rate, items) in RATES.iter().flat_map(|rate| ITEMS.map(|items| (*rate, items))) {
        let measured = Measured::of(
            (2 * items, rate),
            || (Seen::with_capacity(items, rate, 7).unwrap(), 0),
            |(seen, inserted): &mut (Seen, u64), hash| {
                // Half of the keys are in each generation.
                if *inserted == items {
                    seen.rotate();
                }
                seen.insert(hash);
                *inserted += 1;
            },
            |(seen, _), hash| seen.contains(hash),
            |(seen, _)| seen.false_positive_rate(),
        );
        assert_eq!(measured.wrong(rate), None, "{items} keys at {rate}: {measured:?}");
    }
}

/// The plan of a Bloom filter is exact: the mean of the stated rate over all possible contents is (1 - (1 - 1/s)^n)^k.
#[test]
fn a_bloom_filter_is_as_large_as_its_plan_needs() {
    for (rate, items) in RATES.iter().flat_map(|rate| ITEMS.map(|items| (*rate, items))) {
        let filter = Bloom::with_capacity(items, rate, 7).unwrap();
        let crate::Geometry::Bits { count, hashes } = filter.geometry() else { panic!("not of bits") };
        let slots = (count / u64::from(hashes)) as f64;
        let planned = libm::pow(-libm::expm1(items as f64 * libm::log1p(-1.0 / slots)), hashes.into());
        assert!(planned <= rate, "{items} keys at {rate}: {planned}");
        // With a word less in all, it would not be.
        let less = (count.div_ceil(64) - 1) * 64 / u64::from(hashes);
        let planned = libm::pow(-libm::expm1(items as f64 * libm::log1p(-1.0 / less.max(1) as f64)), hashes.into());
        assert!(less < 2 || planned > rate, "{items} keys at {rate}: a word less is enough: {planned}");
    }
}
