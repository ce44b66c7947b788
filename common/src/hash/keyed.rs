//! The sketches' hash: strongly universal, keyed, a few nanoseconds.
//!
//! An item of up to eight words is hashed by a sum of products with secret 128-bit numbers, modulo 2^128, of which the
//! high half is taken (multilinear hashing):
//!
//! ```text
//! hash(w1 .. wn) = mix((offset[n] + w1 * key[1] + .. + wn * key[n]) >> 64)
//! ```
//!
//! **Promises**: for any two different items that are chosen without knowledge of the key, the pair of their hashes is
//! uniform over all pairs of 64-bit words. That is what the analyses of count-min and Bloom filters ask of a hash, and
//! it leaves an attacker who knows this code but not the key nothing to compute: each two of his items meet by chance
//! only. [`mix`] is a bijection, so it keeps the promise; it is there because sums of products keep arithmetic
//! progressions, and addresses come in rows.
//!
//! **Does not promise** anything once the attacker sees hashes, or answers that depend on few of them, again and again:
//! this is no pseudo-random function, and enough outputs give the key away. weir's hashes never leave it, and the key
//! should be changed (restart, or a new fleet secret) where somebody could feed it packets and read its reports for
//! long.
//!
//! Longer items are cut into blocks of eight words, whose hashes are hashed by SipHash-1-3.
//!
//! **Cost**: two multiplications a word, independent of each other (SipHash-1-3 takes some 40 dependent instructions a
//! word).
//!
//! **Papers**: Carter and Wegman, "Universal classes of hash functions", 1979; Lemire and Kaser, "Strongly universal
//! string hashing is fast", 2014 (theorem 1: of sums modulo 2^128 of 64-bit words, the 65 highest bits are strongly
//! universal).
//!
//! **Why not a crate**: fast crates mix with public constants or promise nothing of the kind; those that promise
//! (`SipHash`) take ten times as long for a flow. And one pass must give the hashes of a flow and of its parts:
//! [`super::FlowHashes`].

use core::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use super::{Key, mix, sip};

/// Words a block: a flow key has five.
pub(super) const WORDS: usize = 8;

/// A secret member of the family of hashes.
#[derive(Clone)]
pub struct KeyedHash {
    /// What each word of a block is multiplied with.
    pub(super) factors: [u128; WORDS],
    /// What a block of so many words begins with, so that items of different lengths differ as any two.
    pub(super) offsets: [u128; WORDS + 1],
    /// For the hashes of blocks.
    long: Key,
}

impl KeyedHash {
    /// The member that this key chooses.
    pub fn new(key: Key) -> Self {
        let key = key.derive("keyed hash");
        let word = |nth: usize, half: u8| u128::from(sip(key, &[nth as u8, half]));
        let number = |nth: usize| word(nth, 0) << 64 | word(nth, 1);
        Self {
            factors: core::array::from_fn(number),
            offsets: core::array::from_fn(|count| number(WORDS + count)),
            long: key.derive("long"),
        }
    }

    /// The hash of an item.
    #[inline]
    pub fn of<T: Hash + ?Sized>(&self, item: &T) -> u64 {
        let mut hasher = KeyedHasher::new(self);
        item.hash(&mut hasher);
        hasher.finish()
    }

    /// The hash of some words, at most eight: what [`KeyedHash::of`] gives for `u64`s one after the other.
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

    /// A word's part of the sum.
    #[inline(always)]
    pub(super) const fn product(&self, nth: usize, word: u64) -> u128 {
        self.factors[nth].wrapping_mul(word as u128)
    }
}

/// The hash that a sum comes to.
#[inline(always)]
pub(super) const fn finish(sum: u128) -> u64 {
    mix((sum >> 64) as u64)
}

impl core::fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyedHash(secret)")
    }
}

/// Hashes an item part by part.
#[derive(Clone)]
pub struct KeyedHasher<'key> {
    key: &'key KeyedHash,
    /// Of the products of the block's words so far.
    sum: u128,
    /// How many those are.
    count: usize,
    /// Of the blocks before, if there are any.
    blocks: Option<SipHasher13>,
}

impl<'key> KeyedHasher<'key> {
    #[inline(always)]
    const fn new(key: &'key KeyedHash) -> Self {
        Self { key, sum: 0, count: 0, blocks: None }
    }

    #[inline(always)]
    fn word(&mut self, word: u64) {
        if self.count == WORDS {
            self.next_block();
        }
        self.sum = self.sum.wrapping_add(self.key.product(self.count % WORDS, word));
        self.count += 1;
    }

    /// The hash of the block so far.
    #[inline(always)]
    fn block(&self) -> u64 {
        finish(self.key.offsets[self.count].wrapping_add(self.sum))
    }

    #[cold]
    fn next_block(&mut self) {
        let long = self.key.long;
        let block = self.block();
        self.blocks.get_or_insert_with(|| SipHasher13::new_with_keys(long.0[0], long.0[1])).write_u64(block);
        (self.sum, self.count) = (0, 0);
    }
}

impl Hasher for KeyedHasher<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        // The last word says how many bytes it has, and is there even if it has none: no other bytes make these words.
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = rest.len() as u8;
        self.word(u64::from_le_bytes(last));
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.word(number.into());
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.word(number.into());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.word(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.word(number);
    }

    #[inline]
    fn write_u128(&mut self, number: u128) {
        self.word(number as u64);
        self.word((number >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.word(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let block = self.block();
        match &self.blocks {
            None => block,
            Some(blocks) => {
                let mut blocks = *blocks;
                blocks.write_u64(block);
                blocks.finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, string::String, vec, vec::Vec};

    const KEY: Key = Key([3, 5]);

    /// 64 points in a row, a stride, one bit each: what attackers and address plans make.
    fn families() -> Vec<(&'static str, Vec<[u64; 5]>)> {
        vec![
            ("a row", (0..4096).map(|n| [0, 0, 0, 0, n]).collect()),
            ("a stride of 2^32", (0..4096).map(|n| [n << 32, 1, 2, 3, 4]).collect()),
            ("a stride of 2^52", (0..4096).map(|n| [0, n << 52, 0, 0, 0]).collect()),
            ("two words in step", (0..4096).map(|n| [n, n, 0, 0, 0]).collect()),
            ("two words in opposite step", (0..4096u64).map(|n| [0, n, 0, 0, n.wrapping_neg()]).collect()),
            ("a plane", (0..4096).map(|n| [n % 64, 0, n / 64, 0, 0]).collect()),
        ]
    }

    #[test]
    fn structured_items_spread_as_random_ones() {
        // 4,096 balls in 4,096 bins fill 2,589 of them, with a standard deviation of 32 for random hashes: six are
        // allowed. 6 families x 16 keys x 4 cuts of the hash: a false alarm once in a million.
        for seed in 0..16 {
            let hash = KeyedHash::new(Key([seed, 99]));
            for (name, family) in families() {
                for shift in [0, 13, 31, 52] {
                    let bins: HashSet<_> = family.iter().map(|words| hash.words(*words) >> shift & 0xfff).collect();
                    let filled = bins.len();
                    assert!((2589 - 192..=2589 + 192).contains(&filled), "{name}, seed {seed}, {shift}: {filled}");
                }
            }
        }
    }

    #[test]
    fn two_items_share_a_cell_as_often_as_chance_has_it() {
        // Over many keys, each pair is a fair coin of 1 in 64: 20,000 keys give 312 (standard deviation 17.5).
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
        let hash = KeyedHash::new(KEY);
        let zeros = [0u8; 400];
        let mut hashes: HashSet<u64> = (0..400).map(|length| hash.of(&zeros[..length])).collect();
        assert_eq!(hashes.len(), 400, "only their lengths tell them apart");
        for at in 0..400 {
            let mut bytes = zeros;
            bytes[at] = 1;
            assert!(hashes.insert(hash.of(&bytes[..])), "byte {at} does not count");
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
        assert_eq!(hash.of(&7u16), hash.of(&7u64), "a number is a number");
        let text = String::from("a long key that takes more than one block of sixty-four bytes, and then some");
        assert_eq!(hash.of(&text), hash.of(text.as_str()), "what is borrowed hashes as what is owned");
        assert_eq!(std::format!("{hash:?}"), "KeyedHash(secret)");
    }
}
