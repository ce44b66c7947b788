//! A weight in the form that the loop over a batch needs.

use crate::Weight;

/// A weight, packed once for all structures that it is added to: `Packed::from(weight)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed<W> {
    pub(super) weight: W,
    /// See [`Weight::pack`].
    pub(super) word: u64,
    /// See [`Weight::score`].
    pub(super) score: u64,
}

impl<W: Weight> From<W> for Packed<W> {
    #[inline(always)]
    fn from(weight: W) -> Self {
        Self { weight, word: weight.pack(), score: weight.score() }
    }
}
