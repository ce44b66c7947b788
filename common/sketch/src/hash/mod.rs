//! Keyed hashing: an attacker without the key cannot choose items that collide.
//!
//! | hash | for | cost | promises |
//! |---|---|---|---|
//! | [`KeyedHash`] | the sketches | two multiplications per number, one per 16 bytes of a text; less in batches | two items that were chosen without the key share a register, a cell or a bit no more often than by chance |
//! | [`sip`] | deriving keys, fingerprints | some 40 dependent instructions per word | a pseudo-random function: outputs reveal nothing about the key |

#[cfg(test)]
mod attacks;
mod batch;
#[cfg(test)]
mod golden;
mod keyed;
#[cfg(feature = "std")]
mod random;
mod words;

use core::{fmt, hash::Hasher};

use siphasher::sip::SipHasher13;

pub use batch::combine_all;
pub use keyed::{KeyedHash, Part};
#[cfg(feature = "std")]
pub use random::NoRandom;

use crate::merge::PUBLIC;

/// A secret of 128 bits. Get it from the operating system, or from a secret that several machines share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u64; 2]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

impl Key {
    /// Derives a key for another purpose. Neither key reveals anything about the other one.
    #[must_use]
    pub fn derive(self, purpose: &str) -> Self {
        let half = |n: u8| {
            let mut hasher = SipHasher13::new_with_keys(self.0[0], self.0[1]);
            hasher.write(purpose.as_bytes());
            hasher.write_u8(n);
            hasher.finish()
        };
        Self([half(0), half(1)])
    }

    /// A fingerprint, which distinguishes keys without revealing them. It also identifies the version of the hash:
    /// sketches with the same key but different hash functions must not be merged either.
    pub fn id(self) -> u64 {
        self.derive(ID).0[0]
    }

    /// Checks that a sketch with this fingerprint was fed hashes of this key, as this version of the crate makes them.
    ///
    /// # Errors
    ///
    /// It was not.
    pub fn check(self, key_id: u64) -> Result<(), WrongKey> {
        if OLDER_IDS.iter().any(|older| self.derive(older).0[0] == key_id) {
            return Err(WrongKey::Older);
        }
        WrongKey::check(self.id(), key_id)
    }
}

/// The purpose for which fingerprints are derived. It identifies the present hash function.
const ID: &str = "id, third hash";
/// The purposes that identify earlier hash functions.
const OLDER_IDS: [&str; 2] = ["id", "id, second hash"];

/// A key that is not the one of a sketch. With hashes of this key, the sketch would not find its own content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongKey {
    /// The sketch has another key.
    Other {
        /// The fingerprint of the key.
        key: u64,
        /// The fingerprint in the sketch.
        sketch: u64,
    },
    /// The sketch was fed public hashes, which have no key.
    Public,
    /// The sketch has this key, but an older version of this crate made its hashes.
    Older,
}

impl WrongKey {
    /// Checks that a sketch with fingerprint `sketch` has the key with fingerprint `key`.
    pub(crate) const fn check(key: u64, sketch: u64) -> Result<(), Self> {
        match sketch {
            _ if sketch == key => Ok(()),
            PUBLIC => Err(Self::Public),
            _ => Err(Self::Other { key, sketch }),
        }
    }
}

impl fmt::Display for WrongKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { key, sketch } => write!(
                f,
                "the sketch was made with a key of fingerprint {sketch:016x}, but this key has {key:016x}: use the key \
                 that it was made with"
            ),
            Self::Public => f.write_str("the sketch was made of public hashes, which have no key: query it with those"),
            Self::Older => f.write_str(
                "the sketch was made with this key, but by an older version of this crate, which hashed items in another \
                 way: fill a new one",
            ),
        }
    }
}

impl core::error::Error for WrongKey {}

/// The keyed 64-bit hash of some bytes: SipHash-1-3 (Aumasson and Bernstein, "`SipHash`: a fast short-input PRF",
/// 2012).
#[inline]
pub fn sip(key: Key, bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(key.0[0], key.0[1]);
    hasher.write(bytes);
    hasher.finish()
}

/// A number below `end` from a uniform word, by its high bits and without a division (Lemire, "Fast random integer
/// generation in an interval", 2019).
#[inline(always)]
pub const fn scale(word: u64, end: u64) -> u64 {
    ((word as u128 * end as u128) >> 64) as u64
}

/// Combines two hashes into one. Their order matters.
#[inline(always)]
pub const fn combine(first: u64, second: u64) -> u64 {
    mix(first.rotate_left(32) ^ mix(second))
}

/// A bijection that spreads every input bit over the word (the finaliser of `SplitMix64`; Steele, Lea, Flood, 2014).
#[inline(always)]
pub const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_every_hash() {
        let (a, b) = (Key([1, 2]), Key([1, 3]));
        assert_ne!(sip(a, b"item"), sip(b, b"item"));
        assert_ne!(KeyedHash::new(a).of("item"), KeyedHash::new(b).of("item"));
        assert_ne!(a.derive("x"), a.derive("y"));
        assert_ne!(a.id(), b.id());
        assert_eq!(std::format!("{a:?}"), "Key(secret)");
    }

    #[test]
    fn scaling_reaches_both_ends_and_no_further() {
        assert_eq!([0, 1 << 63, u64::MAX].map(|word| scale(word, 1_001)), [0, 500, 1_000]);
    }

    #[test]
    fn combining_is_ordered() {
        assert_ne!(combine(1, 2), combine(2, 1));
    }
}
