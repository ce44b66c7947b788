//! Answers with their errors.

/// A number and how wrong it can be. The confidence is stated where the estimate is made.
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
    /// A number that is known for certain.
    pub const fn exact(value: u64) -> Self {
        Self { value, lower: value, upper: value }
    }
}

/// Between what a key's weight lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds<W> {
    /// It had at least this.
    pub lower: W,
    /// It had at most this.
    pub upper: W,
}
