//! Results with their errors.

/// A number with bounds. Each method that returns one states the probability with which the bounds hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The likeliest number.
    pub value: u64,
    /// The truth is at least this.
    pub lower: u64,
    /// The truth is at most this.
    pub upper: u64,
}

impl Estimate {
    /// A number that is known exactly.
    pub const fn exact(value: u64) -> Self {
        Self { value, lower: value, upper: value }
    }
}

/// Bounds of a key's weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds<W> {
    /// The weight is at least this.
    pub lower: W,
    /// The weight is at most this.
    pub upper: W,
}
