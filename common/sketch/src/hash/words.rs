//! The words of an item that is hashed.

use core::hash::Hasher;

/// What takes an item's words, one after the other.
pub(super) trait Words {
    /// Takes the next word.
    fn word(&mut self, word: u64);

    /// The hash of the words so far.
    fn hash(&self) -> u64;
}

/// Cuts an item into words.
pub(super) struct Cut<W>(pub W);

/// The number that fewer than eight bytes are, the first in its lowest bits. (By overlapping parts, not by a copy: a
/// copy of a length that is not known beforehand is a call.)
#[inline(always)]
fn short(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    match (bytes.first_chunk(), bytes.last_chunk(), bytes) {
        (Some(first), Some(last), _) => {
            let [first, last] = [first, last].map(|four| u64::from(u32::from_le_bytes(*four)));
            first | last << (8 * (length - 4))
        }
        (_, _, [first, .., last]) => {
            let middle = u64::from(bytes[length / 2]) << (8 * (length / 2));
            u64::from(*first) | middle | u64::from(*last) << (8 * (length - 1))
        }
        (_, _, [only]) => u64::from(*only),
        _ => 0,
    }
}

/// The number that the last bytes are, those behind the whole words.
#[inline(always)]
fn rest(bytes: &[u8]) -> u64 {
    match bytes.last_chunk() {
        // The shift is by 64 if there are none, which one alone could not be.
        Some(last) => u64::from_le_bytes(*last) >> 8 >> (8 * (7 - bytes.len() % 8)),
        None => short(bytes),
    }
}

impl<W: Words> Hasher for Cut<W> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        bytes.as_chunks().0.iter().for_each(|word| self.0.word(u64::from_le_bytes(*word)));
        // The last word says how many bytes it has, and is there even if it has none: no other bytes make these words.
        self.0.word(rest(bytes) | (bytes.len() as u64 % 8) << 56);
    }

    #[inline(always)]
    fn write_u8(&mut self, number: u8) {
        self.0.word(number.into());
    }

    #[inline(always)]
    fn write_u16(&mut self, number: u16) {
        self.0.word(number.into());
    }

    #[inline(always)]
    fn write_u32(&mut self, number: u32) {
        self.0.word(number.into());
    }

    #[inline(always)]
    fn write_u64(&mut self, number: u64) {
        self.0.word(number);
    }

    #[inline(always)]
    fn write_u128(&mut self, number: u128) {
        self.0.word(number as u64);
        self.0.word((number >> 64) as u64);
    }

    #[inline(always)]
    fn write_usize(&mut self, number: usize) {
        self.0.word(number as u64);
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.0.hash()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{Key, KeyedHash};
    use std::vec::Vec;

    #[test]
    fn the_last_word_is_the_rest_and_its_length() {
        let bytes: Vec<u8> = (1..=40).collect();
        for length in 0..bytes.len() {
            let mut number = [0; 8];
            let behind = &bytes[length - length % 8..length];
            number[..behind.len()].copy_from_slice(behind);
            assert_eq!(rest(&bytes[..length]), u64::from_le_bytes(number), "{length} bytes");
        }
    }

    /// Bytes without their number in front.
    struct Plain<'a>(&'a [u8]);

    impl core::hash::Hash for Plain<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            state.write(self.0);
        }
    }

    #[test]
    fn bytes_are_words_of_eight() {
        let hash = KeyedHash::new(Key([3, 5]));
        assert_eq!(
            hash.of(&Plain(b"ABCDEFGHIJK")),
            hash.words([u64::from_le_bytes(*b"ABCDEFGH"), u64::from_le_bytes(*b"IJK\0\0\0\0\x03")])
        );
    }
}
