//! The packed key of a view.

/// The number of words of a key.
pub const WORDS: usize = 5;
/// The index of the word that all fields except addresses share.
pub(super) const SHARED: usize = WORDS - 1;
/// The most bits that these fields may take in that word. The highest bit is the IP version of addresses.
pub(super) const BITS_MAX: u32 = 63;

/// A packed key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialOrd, Ord)]
pub struct ViewKey(pub [u64; WORDS]);

/// Compares all words at once. The comparison of an array is a function call, and takes several times as long.
impl PartialEq for ViewKey {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let ([a, b, c, d, e], [f, g, h, i, j]) = (self.0, other.0);
        (a ^ f) | (b ^ g) | (c ^ h) | (d ^ i) | (e ^ j) == 0
    }
}
