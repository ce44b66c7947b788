//! A number of a report with its bounds, as rules judge it.

use weir_config::rule::Operator;

use crate::series::point::Reading;

/// A number of a report. The true number lies between the bounds, with the confidence that the report states. The
/// bounds of an exact number are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// The likeliest value.
    pub value: f64,
    /// The lower bound.
    pub lower: f64,
    /// The upper bound; infinite if unknown.
    pub upper: f64,
}

impl Number {
    /// An exact zero.
    pub const ZERO: Self = Self { value: 0.0, lower: 0.0, upper: 0.0 };

    /// The sum of two numbers.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let Self { value, lower, upper } = self;
        Self { value: value + other.value, lower: lower + other.lower, upper: upper + other.upper }
    }

    /// The bound that a rule compares with its limit. If this bound is beyond the limit, so is the true number.
    pub const fn judged(self, by: Operator) -> f64 {
        if by.is_upward() { self.lower } else { self.upper }
    }

    /// Converts the number to a unit of this size.
    #[must_use]
    pub fn per(self, scale: f64) -> Self {
        let Self { value, lower, upper } = self;
        Self { value: value / scale, lower: lower / scale, upper: upper / scale }
    }
}

impl From<Reading> for Number {
    fn from(Reading { value, bounds }: Reading) -> Self {
        let [lower, upper] = bounds.unwrap_or([value; 2]);
        Self { value: value.into(), lower: lower.into(), upper: upper.into() }
    }
}
