//! Where everything goes that candidates do not hold.

/// A second structure, such as a count-min, that is given what the candidates of a [`TopK`](super::TopK) do not hold.
///
/// Candidates and rest together have all that was added, each weight once. So a candidate costs the second structure
/// nothing for as long as it is one, and yet the second structure, with the candidates added to it, is what it would be
/// if it had been given everything.
pub trait Rest<K, W> {
    /// A key with this hash, which is no candidate, has more.
    fn add(&mut self, hash: u64, key: &K, weight: W);
    /// A key is a candidate no longer. It had this much since it became one.
    fn give_back(&mut self, key: &K, weight: W);
    /// What a key with this hash, which is no candidate, has at most. The table knows that it is at most `most`.
    ///
    /// The table asks when a key becomes a candidate. What comes later of other keys does not blur the answer.
    fn at_most(&self, hash: u64, most: W) -> W;
}

/// Nobody wants to know.
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
