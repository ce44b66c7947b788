//! The interface for weights that candidates do not hold.

/// A second structure, such as a count-min, which gets the weights that the candidates of a [`TopK`](super::TopK) do
/// not hold.
///
/// Candidates and rest together have everything that was added, each weight once. So a candidate costs the second
/// structure nothing while it is one. If the candidates are added to the second structure, the result is the same as if
/// it had been given everything.
pub trait Rest<K, W> {
    /// Called when a key with this hash, which is not a candidate, gets more weight.
    fn add(&mut self, hash: u64, key: &K, weight: W);
    /// Called when a key stops being a candidate. It had this weight since it became one.
    fn give_back(&mut self, key: &K, weight: W);
    /// The most that a key with this hash, which is not a candidate, has. The table knows that it is at most `most`.
    ///
    /// The table asks when a key becomes a candidate, so that later weights of other keys do not affect the result.
    fn at_most(&self, hash: u64, most: W) -> W;
}

/// Ignores the weights of keys that are not listed.
impl<K, W> Rest<K, W> for () {
    #[inline(always)]
    fn add(&mut self, _hash: u64, _key: &K, _weight: W) {}
    #[inline(always)]
    fn give_back(&mut self, _key: &K, _weight: W) {}
    #[inline(always)]
    fn at_most(&self, _hash: u64, most: W) -> W {
        most
    }
}
