//! Occupancy: estimates how many keys took the used slots, and how wrong the estimate can be.
//!
//! Each key draws slots of an array, and several keys may draw the same slot. On average every key reduces the share of
//! free slots by the same factor, so the logarithm of that share gives the number of keys (linear counting). The result
//! varies as the number of free slots does. It is also a little too high on average, because the logarithm is not
//! linear. Both effects are known, and the second one is subtracted.
//!
//! **Paper**: Whang, Vander-Zanden and Taylor, "A linear-time probabilistic counting algorithm for database
//! applications", 1990.

use core::ops::Add;

use super::Estimate;

/// Within this many standard deviations on either side are 99.95 % of a normal distribution. Bounds are stated with
/// 99.9 %, because the distribution is not exactly normal.
const Z: f64 = 3.48;

/// An array of slots, some of which each key draws.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occupancy {
    /// The number of slots.
    pub slots: f64,
    /// How many slots a key draws.
    pub draws: f64,
    /// By how much a key reduces the logarithm of the expected share of free slots.
    pub per_key: f64,
}

impl Occupancy {
    /// The number of keys, if this many slots are free. If none is free, half a slot is assumed.
    pub fn items(&self, free: f64) -> Items {
        let load = -libm::log(free.max(0.5) / self.slots);
        let variance = self.slots * (libm::expm1(load) - load) / (self.draws * self.draws);
        let count = load / self.per_key - variance * self.per_key / 2.0;
        let full = if free > 0.0 { 0.0 } else { 1.0 };
        Items { count, variance, arrays: 1.0, full, in_full: full * count }
    }
}

/// The number of keys in some arrays together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items {
    count: f64,
    variance: f64,
    arrays: f64,
    /// The number of full arrays.
    full: f64,
    /// The number of keys assumed for the full arrays.
    in_full: f64,
}

impl Items {
    /// No keys in no arrays.
    pub const NONE: Self = Self { count: 0.0, variance: 0.0, arrays: 0.0, full: 0.0, in_full: 0.0 };

    /// The same number of keys in each of this many arrays.
    pub fn times(self, arrays: u64) -> Self {
        let times = arrays as f64;
        Self {
            count: self.count * times,
            variance: self.variance * times,
            arrays: self.arrays * times,
            full: self.full * times,
            in_full: self.in_full * times,
        }
    }

    /// The number of keys, with bounds that hold with a probability of 99.9 %. A full array may contain twice as many
    /// keys as were assumed for it. If more than a tenth of the arrays are full, there is no upper bound.
    pub fn estimate(self) -> Estimate {
        let margin = Z * libm::sqrt(self.variance);
        let lower = libm::floor(self.count - margin) as u64;
        let is_bounded = self.full * 10.0 <= self.arrays;
        let upper = if is_bounded { libm::ceil(self.count + self.in_full + margin) as u64 } else { u64::MAX };
        Estimate { value: (libm::round(self.count) as u64).clamp(lower, upper), lower, upper }
    }
}

impl Add for Items {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            variance: self.variance + other.variance,
            arrays: self.arrays + other.arrays,
            full: self.full + other.full,
            in_full: self.in_full + other.in_full,
        }
    }
}

impl core::iter::Sum for Items {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::NONE, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockedBloom, Bloom, CountingBloom, Filter, ScalableBloom, SharedBloom, oracle::hash};

    /// Fills filters to this share of their plan, and returns how many bounds do not hold.
    fn misses<F: Filter>(new: impl Fn(u64) -> F, items: impl Fn(&F) -> Estimate) -> u32 {
        const PLANNED: u64 = 3_000;
        let runs = (0..200).flat_map(|seed| [3, 300, PLANNED, 2 * PLANNED].map(|keys| (seed, keys)));
        let missed = |&(seed, keys): &(u64, u64)| {
            let mut filter = new(PLANNED);
            (0..keys).for_each(|item| assert!(filter.insert(hash(seed, item)).is_ok()));
            let Estimate { value, lower, upper } = items(&filter);
            assert!(lower <= value && value <= upper);
            assert!(upper - lower <= 4 + keys / 8, "{lower} to {upper} is too wide for {keys}");
            !(lower..=upper).contains(&keys)
        };
        runs.filter(missed).count() as u32
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn bounds_hold_for_every_filter() {
        // Of 800 bounds, 0.8 may be wrong. More than 5 wrong bounds happen by chance once in 5,000 tests.
        let misses = [
            misses(|planned| Bloom::with_capacity(planned, 0.01, 7).unwrap(), Bloom::estimated_items),
            misses(|planned| BlockedBloom::with_capacity(planned, 0.01, 7).unwrap(), BlockedBloom::estimated_items),
            misses(|planned| CountingBloom::with_capacity(planned, 0.01, 7).unwrap(), CountingBloom::estimated_items),
            misses(|planned| SharedBloom::with_capacity(planned, 0.01, 7).unwrap(), SharedBloom::estimated_items),
        ];
        assert!(misses.iter().all(|misses| *misses <= 5), "{misses:?}");
        // This filter does not insert a key that it already finds, which happens for one key in 10,000.
        let scalable = |_| ScalableBloom::with_capacity(500, 0.0001, 7).unwrap();
        assert!(self::misses(scalable, ScalableBloom::estimated_items) <= 5);
    }

    #[test]
    fn a_full_filter_has_no_upper_bound_and_an_empty_one_is_exact() {
        let array = Occupancy { slots: 64.0, draws: 1.0, per_key: -libm::log1p(-1.0 / 64.0) };
        assert_eq!(array.items(64.0).times(1_000_000).estimate(), Estimate::exact(0));
        let one_of = |arrays: u64| (array.items(0.0) + array.items(64.0).times(arrays - 1)).estimate();
        let Estimate { value, lower, upper } = one_of(9);
        assert!(lower < value && value > 200 && upper == u64::MAX);
        assert!((2 * value..1_000).contains(&one_of(10).upper));
        assert_eq!([Items::NONE; 3].into_iter().sum::<Items>().estimate(), Estimate::exact(0));
    }
}
