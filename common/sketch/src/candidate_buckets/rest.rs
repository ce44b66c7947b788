//! Where everything goes that candidates do not hold.

/// A second structure that is told what the candidates of [`CandidateBuckets`](super::CandidateBuckets) do not hold.
///
/// Candidates and rest together have all that was added, each weight once.
pub trait Rest<K, W> {
    /// After some keys of a batch were added, up to 64 from number `first` on: a bit of `keys` is set for each of them
    /// that was no candidate then. The lowest is that of `first`.
    fn unlisted(&mut self, first: usize, keys: u64);

    /// A key is a candidate no longer. It had this much since it became one.
    fn leaves(&mut self, key: &K, weight: W);
}

/// Nobody wants to know.
impl<K, W> Rest<K, W> for () {
    #[inline(always)]
    fn unlisted(&mut self, _first: usize, _keys: u64) {}
    #[inline(always)]
    fn leaves(&mut self, _key: &K, _weight: W) {}
}
