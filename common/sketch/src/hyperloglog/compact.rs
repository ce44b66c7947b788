//! A [`HyperLogLog`] that is small at first. It is for many sketches, most of which count few keys.
//!
//! It keeps a list with a token of 32 bits for each hash, as long as the list takes at most half the memory of the
//! registers. Then it switches to registers.
//!
//! **Errors**: while it is a list, it errs only if two keys have the same token. This happens to one pair in 200
//! million. After that, its registers and its errors are those of [`HyperLogLog`]. The list loses no accuracy.
//!
//! **Cost**: 6 to 12 bytes per key at first (seldom 24, and at least 64 in all), and at most the memory of the
//! registers. An insertion into the list usually touches one cache line. Unlike most sketches here, it allocates while
//! it counts, up to a maximum that is known beforehand.
//!
//! **Papers**: Heule, Nunkesser and Hall, "`HyperLogLog` in practice", 2013 (the sparse form, with hashes at a higher
//! precision). The list is a hash table with linear probing, in which tokens are kept in order, so that equal sets look
//! equal in any order of insertion: Blelloch and Golovin, "Strongly history-independent hashing with applications",
//! 2007.
//!
//! **Why not a crate**: see [`HyperLogLog`].

use alloc::{boxed::Box, vec};

use super::{HyperLogLog, PRECISION_MAX, PRECISION_MIN};
use crate::{
    Estimate, Geometry, MergeError,
    image::{Image, ImageError, Kind, Reader, Writer},
    merge::check_mergeable,
    setting::SettingError,
};

/// How many high bits of a hash are in its token. They are followed by the rank of the remaining bits.
const TOKEN_PRECISION: u32 = 26;
/// How many bits of a token are for that rank, which is at most 39.
const RANK_BITS: u32 = u32::BITS - TOKEN_PRECISION;
/// The probability that two keys have equal tokens: equal high bits, and equal ranks.
const TOKENS_EQUAL: f64 = 1.0 / 3.0 / (1u64 << TOKEN_PRECISION) as f64;
/// The number of slots of the smallest list.
const SLOTS_MIN: usize = 8;
/// Additional slots after the last one to which a token can belong, for tokens whose own slot is taken.
const SLOTS_BEHIND: usize = 8;

/// A `HyperLogLog` that is a list at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactHyperLogLog {
    form: Form,
    precision: u32,
    key_id: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    List(Tokens),
    Registers(HyperLogLog),
}

impl CompactHyperLogLog {
    /// A sketch with at most this relative standard error, in the same range as [`HyperLogLog::with_error`].
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_error(relative_error: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(relative_error)?;
        Ok(Self::of_precision(super::precision_for(relative_error), key_id))
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// The error is lower than that of [`PRECISION_MAX`], or at least 1.
    pub fn check(relative_error: f64) -> Result<(), SettingError> {
        HyperLogLog::check(relative_error)
    }

    /// A sketch that switches to two to the `precision` registers, from [`PRECISION_MIN`] to [`PRECISION_MAX`].
    ///
    /// # Errors
    ///
    /// The precision is out of this range.
    pub fn with_precision(precision: u32, key_id: u64) -> Result<Self, SettingError> {
        super::check_precision(precision)?;
        Ok(Self::of_precision(precision, key_id))
    }

    fn of_precision(precision: u32, key_id: u64) -> Self {
        Self { form: Form::List(Tokens::with_slots(SLOTS_MIN)), precision, key_id }
    }

    /// Counts the key with this hash. It counts only once, however often it is inserted.
    pub fn insert(&mut self, hash: u64) {
        match &mut self.form {
            Form::List(tokens) => {
                if let Err(homeless) = tokens.insert(token(hash)) {
                    self.grow(homeless);
                }
            }
            Form::Registers(registers) => registers.insert(hash),
        }
    }

    /// Counts many keys, faster than one by one.
    pub fn insert_batch(&mut self, hashes: &[u64]) {
        for (i, hash) in hashes.iter().enumerate() {
            if let Form::Registers(registers) = &mut self.form {
                return registers.insert_batch(&hashes[i..]);
            }
            self.insert(*hash);
        }
    }

    /// The number of distinct keys, with bounds that hold with at least the probability
    /// [`CONFIDENCE`](super::CONFIDENCE).
    pub fn bounds(&self) -> Estimate {
        match &self.form {
            Form::List(tokens) => {
                let pairs_equal = (tokens.count * tokens.count) as f64 / 2.0 * TOKENS_EQUAL;
                // The number of equal pairs is Poisson. Below this limit it is 0 with the stated confidence; above the
                // limit, the second bound holds.
                let most = if pairs_equal < 0.001 { 0.0 } else { pairs_equal + 4.0 * libm::sqrt(pairs_equal) + 2.0 };
                let count = tokens.count as u64;
                let value = count + libm::round(pairs_equal) as u64;
                Estimate { value, lower: count, upper: count + libm::ceil(most) as u64 }
            }
            Form::Registers(registers) => registers.bounds(),
        }
    }

    /// Merges another sketch into this one. Afterwards it is as if the keys of both had been counted here.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        match (&mut self.form, &other.form) {
            (Form::Registers(ours), Form::Registers(theirs)) => ours.merge(theirs)?,
            (Form::List(tokens), Form::Registers(theirs)) => {
                let mut registers = theirs.clone();
                tokens.iter().for_each(|token| registers.insert(hash_with(token)));
                self.form = Form::Registers(registers);
            }
            (_, Form::List(tokens)) => tokens.iter().for_each(|token| self.insert(hash_with(token))),
        }
        Ok(())
    }

    /// Empties it, and makes it as small as at first.
    pub fn clear(&mut self) {
        *self = Self::of_precision(self.precision, self.key_id);
    }

    /// Returns the size and shape that it has with registers. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Registers { count: 1 << self.precision }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes now in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.form {
                Form::List(tokens) => size_of_val(&*tokens.slots),
                Form::Registers(registers) => registers.registers().len(),
            }
    }

    /// The most memory that it may take, in bytes.
    pub const fn memory_bytes_max(&self) -> usize {
        let (registers, list) = (1 << self.precision, (SLOTS_MIN + SLOTS_BEHIND) * size_of::<u32>());
        size_of::<Self>() + if registers > list { registers } else { list }
    }

    /// Makes room, and inserts the token that had no place.
    #[cold]
    fn grow(&mut self, homeless: u32) {
        let Form::List(tokens) = &self.form else { return };
        let slots = 2 * (tokens.slots.len() - SLOTS_BEHIND);
        let hashes = tokens.iter().chain([homeless]).map(hash_with);
        if slots * size_of::<u32>() > 1 << (self.precision - 1) {
            let mut registers = HyperLogLog::of_precision(self.precision, self.key_id);
            hashes.for_each(|hash| registers.insert(hash));
            self.form = Form::Registers(registers);
        } else {
            let mut larger = Self { form: Form::List(Tokens::with_slots(slots)), ..*self };
            hashes.for_each(|hash| larger.insert(hash));
            *self = larger;
        }
    }
}

/// The image is a list of tokens, each as its difference from the one before, or the image of the registers.
impl Image for CompactHyperLogLog {
    const KIND: Kind = Kind::CompactHyperLogLog;

    fn write(&self, payload: &mut Writer) {
        match &self.form {
            Form::List(tokens) => {
                payload.varint(tokens.count as u64 + 1);
                payload.varint(self.precision.into());
                tokens.iter().fold(0, |before, token| {
                    payload.varint((token - before).into());
                    token
                });
            }
            Form::Registers(registers) => {
                payload.varint(0);
                registers.write(payload);
            }
        }
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let Some(count) = payload.varint("the number of tokens")?.checked_sub(1) else {
            let registers = HyperLogLog::read(payload, key_id)?;
            return Ok(Self { precision: registers.precision(), form: Form::Registers(registers), key_id });
        };
        let precisions = PRECISION_MIN.into()..=PRECISION_MAX.into();
        let precision = payload.within("the precision", precisions, "from 4 to 18", Reader::varint)? as u32;
        let mut sketch = Self::of_precision(precision, key_id);
        payload.allow::<u8>("the sketch", sketch.memory_bytes_max())?;
        let mut before = 0;
        for _ in 0..count {
            let at = payload.at();
            let token = payload.varint("a token")?.saturating_add(before.into());
            before = u32::try_from(token).ok().filter(|token| is_token(*token)).ok_or(ImageError::Value {
                field: "a token",
                at,
                found: token,
                expected: "below 2^32, with a rank from 1 to 39",
            })?;
            sketch.insert(hash_with(before));
        }
        Ok(sketch)
    }
}

/// Returns true if a hash can have this token.
const fn is_token(token: u32) -> bool {
    let rank = token & ((1 << RANK_BITS) - 1);
    1 <= rank && rank <= u64::BITS - TOKEN_PRECISION + 1
}

/// The part of a hash that registers of any precision need. It is never 0.
const fn token(hash: u64) -> u32 {
    let rank = (hash << TOKEN_PRECISION | 1 << (TOKEN_PRECISION - 1)).leading_zeros() + 1;
    let high = (hash >> (u64::BITS - TOKEN_PRECISION)) as u32;
    high << RANK_BITS | rank
}

/// A hash that has this token.
const fn hash_with(token: u32) -> u64 {
    let (high, rank) = (token >> RANK_BITS, token & ((1 << RANK_BITS) - 1));
    let behind = (1 << (u64::BITS - TOKEN_PRECISION - 1)) >> (rank - 1);
    (high as u64) << (u64::BITS - TOKEN_PRECISION) | behind
}

/// A set of tokens: a table in which each token is at its place or after it, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tokens {
    /// The tokens; 0 if a slot is free.
    slots: Box<[u32]>,
    count: usize,
}

impl Tokens {
    fn with_slots(slots: usize) -> Self {
        Self { slots: vec![0; slots + SLOTS_BEHIND].into_boxed_slice(), count: 0 }
    }

    /// Inserts a token.
    ///
    /// # Errors
    ///
    /// There is no room left, or none at the end of the table. The error is the token that has no place now.
    fn insert(&mut self, mut token: u32) -> Result<(), u32> {
        let places = self.slots.len() - SLOTS_BEHIND;
        let place = token >> (u32::BITS - places.trailing_zeros());
        for slot in &mut self.slots[place as usize..] {
            if *slot == token {
                return Ok(());
            }
            if *slot == 0 {
                if self.count * 3 >= places * 2 {
                    return Err(token);
                }
                *slot = token;
                self.count += 1;
                return Ok(());
            }
            if *slot > token {
                core::mem::swap(slot, &mut token);
            }
        }
        Err(token)
    }

    /// All tokens, in ascending order.
    fn iter(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().copied().filter(|token| *token != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{SplitMix64, hash};
    use std::vec::Vec;

    #[test]
    fn its_registers_equal_those_of_a_hyperloglog() {
        let (most, items) = crate::test_size::of((PRECISION_MAX, 60_000), (11, 400));
        for precision in [PRECISION_MIN, 10, most] {
            let mut compact = CompactHyperLogLog::with_precision(precision, 7).unwrap();
            let mut dense = HyperLogLog::with_precision(precision, 7).unwrap();
            for item in 0..items {
                compact.insert(hash(1, item));
                dense.insert(hash(1, item));
                assert!(compact.memory_bytes() <= compact.memory_bytes_max());
            }
            assert_eq!(compact.form, Form::Registers(dense));
        }
    }

    #[test]
    fn batches_equal_single_insertions() {
        const MANY: usize = crate::test_size::of(5_000, 700);
        let hashes: Vec<u64> = (0..MANY as u64).map(|item| hash(2, item)).collect();
        for count in [10, 100, MANY] {
            let (mut single, mut batched) =
                (CompactHyperLogLog::with_error(0.02, 7).unwrap(), CompactHyperLogLog::with_error(0.02, 7).unwrap());
            hashes[..count].iter().for_each(|hash| single.insert(*hash));
            batched.insert_batch(&hashes[..count]);
            assert_eq!(single, batched);
        }
    }

    #[test]
    fn as_a_list_it_is_exact_and_small() {
        let mut sketch = CompactHyperLogLog::with_precision(14, 7).unwrap();
        for item in 0..crate::test_size::of(1_000, 150) {
            assert!(matches!(sketch.form, Form::List(_)));
            // Fewer than one pair in 400 such sketches have equal tokens; this sketch has none.
            assert_eq!(sketch.bounds().value, item);
            assert!(sketch.bounds().lower <= item && sketch.bounds().upper <= item + 3);
            sketch.insert(hash(3, item));
            sketch.insert(hash(3, item));
            assert!(sketch.memory_bytes() < 200 + 24 * sketch.bounds().value as usize);
        }
    }

    #[test]
    fn tokens_keep_what_registers_need() {
        let mut random = SplitMix64(5);
        for zeros in 0..64 {
            for hash in [random.word(), u64::MAX, 0].map(|word| word >> zeros) {
                assert_eq!(token(hash_with(token(hash))), token(hash), "{hash:016x}");
                let (mut one, mut other) =
                    (HyperLogLog::with_precision(18, 7).unwrap(), HyperLogLog::with_precision(18, 7).unwrap());
                one.insert(hash);
                other.insert(hash_with(token(hash)));
                assert_eq!(one, other, "{hash:016x}");
            }
        }
    }
}
