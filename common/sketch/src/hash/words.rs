//! Splits an item into words, which are all that the hash functions take.
//!
//! A number is one word (a `u128` is two). Fewer than 16 bytes are one or two words, the last of which includes the
//! number of its bytes. More bytes are compressed, a block of up to 256 bytes to two words, by one multiplication per
//! 16 bytes. That is faster than hashing each word:
//!
//! ```text
//! block(b1 .. bn) = length + (b1 + key[1]) * (b2 + key[2]) + (b3 + key[3]) * (b4 + key[4]) + ..
//! ```
//!
//! The products have 128 bits, and the sums in brackets 64. This is NH: for any two different blocks and any number d,
//! their sums of products differ by exactly d with a probability of at most 2^-63. So the lengths, which are added,
//! make no collision likelier. The last two words are the block's last 16 bytes, some of which may also be in the words
//! before.
//!
//! **Paper**: Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: fast and secure message authentication", 1999.

use core::hash::Hasher;

/// A receiver of an item's words, one after the other.
pub(super) trait Words {
    /// Takes the next word.
    fn word(&mut self, word: u64);

    /// The hash of the words so far.
    fn hash(&self) -> u64;
}

/// The number of bytes of a pair of words.
const PAIR: usize = 16;
/// The most bytes that are compressed together.
pub(super) const BLOCK: usize = 256;

/// The secret numbers for compressing bytes: one for each word of a block.
pub(super) type BlockKey = [u64; BLOCK / 8];

/// A [`Hasher`] that splits an item into words and passes them on.
pub(super) struct Cut<'key, W> {
    pub words: W,
    pub key: &'key BlockKey,
}

impl<W: Words> Cut<'_, W> {
    /// Adds both halves of a block's sum, which includes `length`.
    #[inline(always)]
    fn block(&mut self, block: &[u8], length: usize) {
        let sum = compress(self.key, block, length);
        self.words.word(sum as u64);
        self.words.word((sum >> 64) as u64);
    }

    /// Adds fewer than 16 bytes.
    #[inline(always)]
    fn short(&mut self, bytes: &[u8]) {
        if let Some(word) = bytes.first_chunk() {
            self.words.word(u64::from_le_bytes(*word));
        }
        // The last word includes the number of its bytes, and exists even if it has none, so no other bytes give the
        // same words.
        self.words.word(rest(bytes) | (bytes.len() as u64 % 8) << 56);
    }

    /// Adds more than one block.
    #[cold]
    #[inline(never)]
    fn blocks(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while rest.len() >= PAIR {
            let (block, behind) = rest.split_at(rest.len().min(BLOCK));
            // With the number of bytes from here to the end, the words also determine the item's whole length.
            self.block(block, rest.len());
            rest = behind;
        }
        if !rest.is_empty() {
            self.short(rest);
        }
    }
}

/// The sum of 16 to 256 bytes.
#[inline(always)]
fn compress(key: &BlockKey, block: &[u8], length: usize) -> u128 {
    let pairs = block.as_chunks::<PAIR>().0;
    let mut sum = length as u128;
    let mut keys = key.as_chunks::<2>().0.iter();
    // The last pair is handled separately.
    for (pair, key) in pairs[..(block.len() - 1) / PAIR].iter().zip(&mut keys) {
        sum = sum.wrapping_add(product(pair, key));
    }
    if let (Some(pair), Some(key)) = (block.last_chunk(), keys.next()) {
        sum = sum.wrapping_add(product(pair, key));
    }
    sum
}

/// The product of two words, each with its key added.
#[inline(always)]
fn product(pair: &[u8; PAIR], key: &[u64; 2]) -> u128 {
    let pair = u128::from_le_bytes(*pair);
    let [one, other] = [(pair as u64).wrapping_add(key[0]), ((pair >> 64) as u64).wrapping_add(key[1])];
    u128::from(one) * u128::from(other)
}

/// A number made of fewer than eight bytes, with the first byte in its lowest bits. It reads overlapping parts, because
/// a copy of unknown length would be a function call.
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

/// A number made of the last bytes, those after the whole words.
#[inline(always)]
fn rest(bytes: &[u8]) -> u64 {
    match bytes.last_chunk() {
        // Two shifts are needed, because a single shift by 64, if there are no bytes, would be invalid.
        Some(last) => u64::from_le_bytes(*last) >> 8 >> (8 * (7 - bytes.len() % 8)),
        None => short(bytes),
    }
}

impl<W: Words> Hasher for Cut<'_, W> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        match bytes.len() {
            0..PAIR => self.short(bytes),
            PAIR..=BLOCK => self.block(bytes, bytes.len()),
            _ => self.blocks(bytes),
        }
    }

    #[inline(always)]
    fn write_u8(&mut self, number: u8) {
        self.words.word(number.into());
    }

    #[inline(always)]
    fn write_u16(&mut self, number: u16) {
        self.words.word(number.into());
    }

    #[inline(always)]
    fn write_u32(&mut self, number: u32) {
        self.words.word(number.into());
    }

    #[inline(always)]
    fn write_u64(&mut self, number: u64) {
        self.words.word(number);
    }

    #[inline(always)]
    fn write_u128(&mut self, number: u128) {
        self.words.word(number as u64);
        self.words.word((number >> 64) as u64);
    }

    #[inline(always)]
    fn write_usize(&mut self, number: usize) {
        self.words.word(number as u64);
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.words.hash()
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

    #[test]
    fn a_block_is_its_length_and_the_products_of_its_pairs() {
        let key: BlockKey = core::array::from_fn(|nth| crate::hash::mix(nth as u64));
        let bytes: Vec<u8> = (0..BLOCK).map(|nth| crate::hash::mix(nth as u64 + 99) as u8).collect();
        let number = |at: usize| (0..8).fold(0, |number, nth| number | u64::from(bytes[at + nth]) << (8 * nth));
        for length in PAIR..=BLOCK {
            let mut starts: Vec<usize> = (0..length - PAIR).step_by(PAIR).collect();
            starts.push(length - PAIR);
            let mut sum = 1_000;
            for (nth, at) in starts.iter().enumerate() {
                let [one, other] = [0, 1].map(|half| number(at + 8 * half).wrapping_add(key[2 * nth + half]));
                sum = u128::wrapping_add(sum, u128::from(one) * u128::from(other));
            }
            assert_eq!(compress(&key, &bytes[..length], 1_000), sum, "{length} bytes");
        }
    }

    /// Bytes without their length in front.
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
