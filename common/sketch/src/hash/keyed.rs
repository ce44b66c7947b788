//! The hash of the sketches: strongly universal and keyed. It takes a few nanoseconds per item, and less in batches
//! ([`KeyedHash::of_all`]).
//!
//! An item of up to eight words is hashed by a sum of products with secret 128-bit numbers, modulo 2^128 (multilinear
//! hashing). The hash is the high half of the sum:
//!
//! ```text
//! hash(w1 .. wn) = finish((offset[n] + w1 * key[1] + .. + wn * key[n]) >> 64)
//! ```
//!
//! Texts and bytes of 16 bytes or more are compressed first: a block of up to 256 bytes becomes two words (`words.rs`
//! has the formula).
//!
//! **Guarantees**: for any two different items that were chosen without knowledge of the key, the pair of their hashes
//! is uniform over all pairs of 64-bit words. The analyses of count-min and of Bloom filters require this of a hash. If
//! bytes are compressed, there is one exception: with a probability of at most 2^-57 two items become the same words,
//! and have the same hash. An attacker who knows this code but not the key cannot compute anything useful: any two
//! items collide only by chance. `finish` is a bijection, so it keeps the guarantee. It is needed because sums of
//! products preserve arithmetic progressions, and keys often come in progressions. One multiplication breaks them up.
//! The sum is secret, so the finaliser does not need to spread every single bit, as a finaliser of public numbers must.
//!
//! **No guarantee** holds if the attacker can see hashes, or answers that depend on few hashes, again and again. This
//! is not a pseudo-random function: enough outputs reveal the key. Keep hashes inside the program, and change the key
//! from time to time if an attacker could choose items and read answers for a long time.
//!
//! Longer items are split into blocks of eight words, and the hashes of the blocks are hashed by SipHash-1-3.
//!
//! **Cost**: two multiplications per word, and one per 16 bytes of a text. These do not depend on each other
//! (SipHash-1-3 takes some 40 dependent instructions per word). One item after the other on a Xeon takes 1.2 ns for 8
//! bytes, and 2.0 ns for 13. A text of 60 bytes takes 5 ns longer than a number on an EPYC, where `SipHash` takes 13 ns
//! longer and ahash 7 (`scripts/bench sketches --only "item by item"`).
//!
//! **Papers**: Carter and Wegman, "Universal classes of hash functions", 1979; Lemire and Kaser, "Strongly universal
//! string hashing is fast", 2014 (theorem 1: the 65 highest bits of sums modulo 2^128 of 64-bit words are strongly
//! universal); for bytes, those of `words.rs`.
//!
//! **Why not a crate**: fast crates (ahash, foldhash, rapidhash, wyhash) mix with constants or a seed, and have no such
//! proof. Those with a guarantee (`SipHash`) take ten times as long for an item of five words. Also, one pass must give
//! the hashes of an item and of its parts: [`KeyedHash::part`].

use core::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use super::{
    Key, sip,
    words::{BlockKey, Cut, Words},
};

/// The number of words per block.
pub(super) const WORDS: usize = 8;

/// A hash function that a secret key chooses.
#[derive(Clone)]
pub struct KeyedHash {
    /// The factor for each word of a block.
    pub(super) factors: [u128; WORDS],
    /// The number with which the sum for a block of this many words begins. So items of different lengths differ like
    /// any two items.
    pub(super) offsets: [u128; WORDS + 1],
    /// The numbers for compressing long byte strings.
    pub(super) bytes: BlockKey,
    /// The key for the hashes of blocks.
    long: Key,
}

impl KeyedHash {
    /// The hash function of this key.
    pub fn new(key: Key) -> Self {
        let key = key.derive("keyed hash");
        let word = |nth: usize, half: u8| u128::from(sip(key, &[nth as u8, half]));
        let number = |nth: usize| word(nth, 0) << 64 | word(nth, 1);
        Self {
            factors: core::array::from_fn(number),
            offsets: core::array::from_fn(|count| number(WORDS + count)),
            bytes: core::array::from_fn(|nth| sip(key, &[nth as u8, 2])),
            long: key.derive("long"),
        }
    }

    /// The hash of an item.
    #[inline]
    pub fn of<T: Hash + ?Sized>(&self, item: &T) -> u64 {
        let words = Adder { key: self, sum: 0, count: 0, blocks: None };
        let mut words = Cut { words, key: &self.bytes };
        item.hash(&mut words);
        words.finish()
    }

    /// The hash of at most eight words. It equals [`KeyedHash::of`] of an item that consists of these `u64`s.
    #[inline(always)]
    pub const fn words<const N: usize>(&self, words: [u64; N]) -> u64 {
        const { assert!(N <= WORDS, "longer items are hashed by `of`") };
        let (mut sum, mut nth) = (self.offsets[N], 0);
        while nth < N {
            sum = sum.wrapping_add(self.product(nth, words[nth]));
            nth += 1;
        }
        finish(sum)
    }

    /// The part of an item's sum for word number `nth` (0 to 7).
    ///
    /// This is for items that have words in common, such as a pair and its two members. Each word is multiplied once,
    /// and all items with this word use the same [`Part`]. Two different items must differ in their parts or in their
    /// offset.
    #[inline(always)]
    pub const fn part(&self, nth: usize, word: u64) -> Part {
        Part(self.product(nth, word))
    }

    /// The hash of an item that is the sum of these parts. Give different offsets (0 to 8) to different kinds of items.
    /// Then their hashes differ even if their parts are equal.
    #[inline(always)]
    pub const fn whole(&self, offset: usize, parts: Part) -> u64 {
        finish(self.offsets[offset].wrapping_add(parts.0))
    }

    /// The product for one word.
    #[inline(always)]
    pub(super) const fn product(&self, nth: usize, word: u64) -> u128 {
        self.factors[nth].wrapping_mul(word as u128)
    }
}

/// The sum for some words of an item: see [`KeyedHash::part`].
#[derive(Clone, Copy)]
pub struct Part(u128);

impl Part {
    /// The sum of both parts.
    #[must_use]
    #[inline(always)]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

/// Mixes the high half of a sum: the upper 32 bits change the lower ones, a product with an odd factor (degski's)
/// spreads those upwards, and the upper bits change the lower ones again.
#[inline(always)]
pub(super) const fn finish(sum: u128) -> u64 {
    finish_high((sum >> 64) as u64)
}

/// Mixes this high half of a sum.
#[inline(always)]
pub(super) const fn finish_high(high: u64) -> u64 {
    const ODD: u64 = 0xd6e8_feb8_6659_fd93;
    let product = (high ^ high >> 32).wrapping_mul(ODD);
    product ^ product >> 32
}

impl core::fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyedHash(secret)")
    }
}

/// Adds up an item word by word.
#[derive(Clone)]
struct Adder<'key> {
    key: &'key KeyedHash,
    /// The sum of products of the block so far.
    sum: u128,
    /// The number of words of the block so far.
    count: usize,
    /// The hash state of the blocks before, if there are any.
    blocks: Option<SipHasher13>,
}

impl Adder<'_> {
    /// The hash of the block so far.
    #[inline(always)]
    fn block(&self) -> u64 {
        finish(self.key.offsets[self.count].wrapping_add(self.sum))
    }
}

impl Words for Adder<'_> {
    #[inline(always)]
    fn word(&mut self, word: u64) {
        if self.count == WORDS {
            self.blocks = Some(with_block(self.blocks, self.block(), self.key.long));
            (self.sum, self.count) = (0, 0);
        }
        self.sum = self.sum.wrapping_add(self.key.product(self.count % WORDS, word));
        self.count += 1;
    }

    #[inline(always)]
    fn hash(&self) -> u64 {
        let block = self.block();
        match self.blocks {
            None => block,
            blocks => with_block(blocks, block, self.key.long).finish(),
        }
    }
}

/// The hash state of the blocks before, with one more block added. The arguments are passed by value, here and below,
/// so that the state for an item of a few words is never in memory.
#[cold]
fn with_block(blocks: Option<SipHasher13>, block: u64, key: Key) -> SipHasher13 {
    let mut blocks = blocks.unwrap_or_else(|| SipHasher13::new_with_keys(key.0[0], key.0[1]));
    blocks.write_u64(block);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, string::String, vec, vec::Vec};

    const KEY: Key = Key([3, 5]);

    /// The number of items per family.
    const ITEMS: usize = 4096;

    /// All choices of twelve bits, each at its place in a word.
    fn cube(place: impl Fn(usize) -> (usize, usize)) -> Vec<[u64; 5]> {
        let item = |choice: usize| {
            let mut words = [0; 5];
            for bit in 0..12 {
                let (word, at) = place(bit);
                words[word] |= (choice as u64 >> bit & 1) << at;
            }
            words
        };
        (0..ITEMS).map(item).collect()
    }

    /// Families of items as attackers and address plans make them: rows, strides, planes, bits.
    fn families() -> Vec<(&'static str, Vec<[u64; 5]>)> {
        let each = |item: fn(u64) -> [u64; 5]| (0..ITEMS as u64).map(item).collect();
        vec![
            ("a row", each(|n| [0, 0, 0, 0, n])),
            ("a row in network order", each(|n| [0, n.swap_bytes(), 0, 0, 0])),
            ("a stride of 2^32", each(|n| [n << 32, 1, 2, 3, 4])),
            ("a stride of 2^52", each(|n| [0, n << 52, 0, 0, 0])),
            ("squares", each(|n| [n * n, 0, 0, 0, 0])),
            ("two words in step", each(|n| [n, n, 0, 0, 0])),
            ("two words in opposite step", each(|n| [0, n, 0, 0, n.wrapping_neg()])),
            ("a plane", each(|n| [n % 64, 0, n / 64, 0, 0])),
            ("a space", each(|n| [n % 16, 0, n / 16 % 16, 0, n / 256])),
            ("every fifth bit of a word", cube(|bit| (1, 5 * bit))),
            ("the highest bits of a word", cube(|bit| (0, 52 + bit))),
            ("some bits of every word", cube(|bit| (bit % 5, 60 - 7 * (bit / 5)))),
        ]
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn structured_items_spread_as_random_ones() {
        // Chi-squared of 4,096 cells has a standard deviation of 90.5 for random hashes. Six of them are allowed: 12
        // families x 16 keys x 6 cuts of the hash, as words and as bytes, give a false alarm once in 500,000. Their
        // mean square is 1 +- 0.03.
        const CUTS: [u32; 6] = [0, 13, 22, 31, 42, 52];
        let (mut squares, mut count) = (0.0, 0.0);
        for seed in 0..16 {
            let hash = KeyedHash::new(Key([seed, 99]));
            for (name, family) in families() {
                let bytes = |words: &[u64; 5]| words.map(u64::to_le_bytes).as_flattened().to_vec();
                let of_words: Vec<u64> = family.iter().map(|words| hash.words(*words)).collect();
                let of_bytes: Vec<u64> = family.iter().map(|words| hash.of(&bytes(words))).collect();
                for (cut, hashes) in CUTS.iter().flat_map(|cut| [(cut, &of_words), (cut, &of_bytes)]) {
                    let mut cells = vec![0i64; ITEMS];
                    hashes.iter().for_each(|hash| cells[(hash >> cut) as usize % ITEMS] += 1);
                    let chi_squared: i64 = cells.iter().map(|count| (count - 1).pow(2)).sum();
                    let deviation = (chi_squared as f64 - 4095.0) / 90.5;
                    assert!(deviation.abs() < 6.0, "{name}, seed {seed}, cut {cut}: {deviation}");
                    squares += deviation * deviation;
                    count += 1.0;
                }
            }
        }
        let mean = squares / count;
        assert!((0.8..1.2).contains(&mean), "{mean}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn two_items_share_a_cell_as_often_as_by_chance() {
        // Over many keys, each pair shares a cell with a probability of 1 in 64: 20,000 keys give 312 (standard
        // deviation 17.5).
        for (one, other) in [([0, 0], [0, 1]), ([1, 2], [2, 1]), ([0, 0], [1 << 63, 1 << 63]), ([5, 5], [5, u64::MAX])]
        {
            let shared = (0..20_000).filter(|seed| {
                let hash = KeyedHash::new(Key([*seed, 1]));
                hash.words(one) >> 58 == hash.words(other) >> 58
            });
            let shared = shared.count();
            assert!((312 - 90..=312 + 90).contains(&shared), "{one:?} {other:?}: {shared}");
        }
    }

    #[test]
    fn items_of_every_length_differ() {
        const BYTES: usize = crate::test_size::of(400, 100);
        let hash = KeyedHash::new(KEY);
        let zeros = [0u8; BYTES];
        let mut hashes: HashSet<u64> = (0..BYTES).map(|length| hash.of(&zeros[..length])).collect();
        assert_eq!(hashes.len(), BYTES, "only their lengths differ");
        // A text has no length before it.
        let text = "\0".repeat(BYTES);
        let texts: HashSet<u64> = (0..BYTES).map(|length| hash.of(&text[..length])).collect();
        assert_eq!(texts.len(), BYTES, "only their lengths differ");
        for at in 0..BYTES {
            let mut bytes = zeros;
            bytes[at] = 1;
            assert!(hashes.insert(hash.of(&bytes[..])), "byte {at} has no effect");
        }
        assert_ne!(hash.of("ABCDEFG"), hash.of("ABCDEFG\u{7}"));
        assert_ne!(hash.of(&("ab", "c")), hash.of(&("a", "bc")));
        assert_ne!(hash.words([1]), hash.words([1, 0]));
    }

    #[test]
    fn words_hash_as_their_sequence() {
        let hash = KeyedHash::new(KEY);
        assert_eq!(hash.words([1, 2, 3]), hash.of(&(1u64, 2u64, 3u64)));
        assert_eq!(hash.words([7]), hash.of(&7u64));
        assert_eq!(hash.of(&7u16), hash.of(&7u64), "all widths of a number have the same hash");
        let text = String::from("a long key that takes more than one block of sixty-four bytes, and then some");
        assert_eq!(hash.of(&text), hash.of(text.as_str()), "borrowed and owned texts have the same hash");
        assert_eq!(std::format!("{hash:?}"), "KeyedHash(secret)");
    }
}
