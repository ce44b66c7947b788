//! The packed key of a view.

use weir_sketch::image::{ImageError, PlainKey, Reader, Writer};

/// The number of words of a key.
pub const WORDS: usize = 5;
/// The index of the word that all fields except addresses share.
pub const SHARED: usize = WORDS - 1;
/// The most bits that these fields may take in that word. The highest bit is the IP version of addresses.
pub const BITS_MAX: u32 = 63;

/// The key of a row, packed into words as its [`KeyLayout`](super::layout::KeyLayout) says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialOrd, Ord)]
pub struct ViewKey(pub [u64; WORDS]);

/// 40 bytes: two addresses of 16 octets, in network order, and the shared word.
impl PlainKey for ViewKey {
    const BYTES: usize = 8 * WORDS;

    fn write(&self, payload: &mut Writer) {
        let [addresses @ .., shared] = self.0;
        for word in addresses {
            payload.bytes(&word.to_ne_bytes());
        }
        payload.bytes(&shared.to_le_bytes());
    }
    fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError> {
        let mut words = [0; WORDS];
        for word in &mut words[..SHARED] {
            *word = u64::from_ne_bytes(payload.array(field)?);
        }
        words[SHARED] = u64::from_le_bytes(payload.array(field)?);
        Ok(Self(words))
    }
}

/// Compares all words at once. The comparison of an array is a function call, and takes several times as long.
impl PartialEq for ViewKey {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let ([a, b, c, d, e], [f, g, h, i, j]) = (self.0, other.0);
        (a ^ f) | (b ^ g) | (c ^ h) | (d ^ i) | (e ^ j) == 0
    }
}
