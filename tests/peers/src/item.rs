//! The items for the sketches: keys of 8, 13 and 40 bytes, or ready hashes.

use std::hash::{Hash, Hasher};

use weir_sketch::hash::{KeyedHash, mix};

/// One key as all contenders see it.
pub trait Item: Copy + Default + Eq + Ord + Hash + Send + Sync + 'static {
    /// The name in the tables.
    const NAME: &'static str;
    /// True if it is a ready hash: then only sketches that take hashes compete, and no hash is paid for.
    const IS_HASH: bool = false;

    /// The n-th of these keys; no two are equal.
    fn nth(n: u64) -> Self;

    /// Returns the hash by weir's keyed hash: for weir's sketches, and for peers that leave hashing to their user.
    fn digest(&self, hash: &KeyedHash) -> u64;

    /// The hashes of as many keys.
    fn digest_all(keys: &[Self], hash: &KeyedHash, hashes: &mut [u64]);

    /// Returns the bytes of the key.
    fn bytes(&self) -> &[u8];
}

/// A key of N bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes<const N: usize>([u8; N]);

impl<const N: usize> Item for Bytes<N> {
    const NAME: &'static str = match N {
        8 => "8 bytes",
        13 => "13 bytes",
        40 => "40 bytes",
        _ => panic!("a key length without a name"),
    };

    #[inline]
    fn nth(n: u64) -> Self {
        let mut word = mix(n ^ 0x5bf0_3635_dcf3_41e1);
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        Self(bytes)
    }

    #[inline(always)]
    fn digest(&self, hash: &KeyedHash) -> u64 {
        hash.of(self)
    }

    #[inline(always)]
    fn digest_all(keys: &[Self], hash: &KeyedHash, hashes: &mut [u64]) {
        hash.of_all(keys, hashes);
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Hash for Bytes<N> {
    /// A key of eight bytes is hashed as a `u64`, which every hash does fastest.
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0.first_chunk() {
            Some(word) if N == 8 => state.write_u64(u64::from_le_bytes(*word)),
            _ => state.write(&self.0),
        }
    }
}

/// A text of 60 bytes, such as an address of a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text([u8; 60]);

impl Item for Text {
    const NAME: &'static str = "text of 60 bytes";

    fn nth(n: u64) -> Self {
        let text =
            format!("https://www.example.org/{:020}/index.html?{:04}", mix(n ^ 0x5bf0_3635_dcf3_41e1), n % 10_000);
        Self(text.as_bytes().try_into().expect("it has 60 bytes"))
    }

    #[inline(always)]
    fn digest(&self, hash: &KeyedHash) -> u64 {
        hash.of(self)
    }

    #[inline(always)]
    fn digest_all(keys: &[Self], hash: &KeyedHash, hashes: &mut [u64]) {
        hash.of_all(keys, hashes);
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Default for Text {
    fn default() -> Self {
        Self([b' '; 60])
    }
}

impl Hash for Text {
    /// Hashes like a `&str`.
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
        state.write_u8(0xff);
    }
}

/// A ready 64-bit hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReadyHash(u64);

impl Item for ReadyHash {
    const NAME: &'static str = "ready hash";
    const IS_HASH: bool = true;

    #[inline]
    fn nth(n: u64) -> Self {
        Self(mix(n ^ 0x5bf0_3635_dcf3_41e1))
    }

    #[inline(always)]
    fn digest(&self, _: &KeyedHash) -> u64 {
        self.0
    }

    #[inline(always)]
    fn digest_all(keys: &[Self], _: &KeyedHash, hashes: &mut [u64]) {
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = key.0;
        }
    }

    fn bytes(&self) -> &[u8] {
        unreachable!("only sketches that take hashes are given any")
    }
}
