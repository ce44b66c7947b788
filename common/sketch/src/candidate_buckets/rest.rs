//! The interface for weights that candidates do not hold.

/// A second structure, which gets the weights that the candidates of [`CandidateBuckets`](super::CandidateBuckets) do
/// not hold.
///
/// Candidates and rest together have everything that was added, each weight once.
pub trait Rest<K, W> {
    /// Called after some keys of a batch were added: up to 64 keys, from number `first` on. A bit of `keys` is set for
    /// each key that was not a candidate afterwards. The lowest bit is that of `first`.
    fn unlisted(&mut self, first: usize, keys: u64);

    /// Called when a key stops being a candidate. It had this weight since it became one.
    fn leaves(&mut self, key: &K, weight: W);
}

/// Ignores the weights of keys that are not listed.
impl<K, W> Rest<K, W> for () {
    #[inline(always)]
    fn unlisted(&mut self, _first: usize, _keys: u64) {}
    #[inline(always)]
    fn leaves(&mut self, _key: &K, _weight: W) {}
}
