//! `UltraLogLog`: how many distinct keys, in less memory?
//!
//! A register of [`HyperLogLog`](super::HyperLogLog) stores the highest rank so far. A register here also stores
//! whether each of the two lower ranks occurred, in the two bits of the byte that would be unused.
//!
//! **Errors**: in both directions. The relative standard error is 0.761 / sqrt(registers), and less for small counts.
//! That is 27 % less than `HyperLogLog` in the same memory, or the same in 54 % of the memory (with 16 registers: 5 %
//! more). The bias is below 0.3 / registers of the count for every count, which is negligible beside that error.
//!
//! **Cost** at an error of 0.006: 16,384 registers = 16 KiB. An insertion touches one register and takes twice as long
//! as that of `HyperLogLog`. A count reads all registers and solves an equation in some ten steps.
//!
//! **Papers**: Ertl, "`UltraLogLog`: a practical and more space-efficient alternative to `HyperLogLog` for approximate
//! distinct counting", 2023. The registers are those of the paper, byte for byte (except for ranks above 52, which one
//! key in 2^51 has). The estimate is by maximum likelihood, with the paper's correction of its bias.
//!
//! **Why not a crate**: this one takes hashes as input, also in batches, keeps the fingerprint of their key, and states
//! its bounds.

use alloc::{boxed::Box, vec};

use self::likelihood::Likelihood;
use super::{
    Estimate, Geometry, MergeError,
    hyperloglog::{CONFIDENCE, bounds_of},
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
    lowest_rank::{self, GROUP, LowestRank},
    merge::check_mergeable,
    normal::deviations,
    rank,
    setting::{SettingError, check_error, check_number},
};

pub(super) mod likelihood;
pub(super) mod register;

/// The fewest registers: 2^4, an error of 19 %.
pub const PRECISION_MIN: u32 = 4;
/// The most registers: 2^18, an error of 0.15 % in 256 KiB.
pub const PRECISION_MAX: u32 = 18;
/// The standard error times the square root of the registers: sqrt(ln 2 / zeta(2, 5/4)) rounded up.
pub(super) const ERROR_FACTOR: f64 = 0.761;
/// The relative bias of a count times the number of registers (Ertl, 2023).
pub(super) const BIAS_FACTOR: f64 = 0.481_473_765;
/// If the lowest rank is at least this, it saves time to process only the hashes above it: half of them.
const LOWEST_MIN: u8 = 1;

/// Counts distinct keys in less memory than a `HyperLogLog` of the same error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UltraLogLog {
    registers: Box<[u8]>,
    /// How many high bits of a hash choose the register.
    precision: u32,
    key_id: u64,
    lowest_rank: LowestRank,
}

impl UltraLogLog {
    /// A sketch with at most this relative standard error: 0.19 or less ([`PRECISION_MIN`]), down to 0.0015
    /// ([`PRECISION_MAX`]).
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_error(relative_error: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(relative_error)?;
        Ok(Self::of_precision(precision_for(relative_error), key_id))
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// The error is lower than that of [`PRECISION_MAX`], or at least 1.
    pub fn check(relative_error: f64) -> Result<(), SettingError> {
        check_error("relative_error", relative_error, self::relative_error(PRECISION_MAX))
    }

    /// A sketch with two to the `precision` registers, from [`PRECISION_MIN`] to [`PRECISION_MAX`].
    ///
    /// # Errors
    ///
    /// The precision is out of this range.
    pub fn with_precision(precision: u32, key_id: u64) -> Result<Self, SettingError> {
        check_precision(precision)?;
        Ok(Self::of_precision(precision, key_id))
    }

    pub(crate) fn of_precision(precision: u32, key_id: u64) -> Self {
        Self {
            registers: vec![0; 1 << precision].into_boxed_slice(),
            precision,
            key_id,
            lowest_rank: LowestRank::default(),
        }
    }

    /// Counts the key with this hash. It counts only once, however often it is inserted.
    #[inline]
    pub fn insert(&mut self, hash: u64) {
        let place = rank::place(hash, self.precision, self.registers.len() - 1);
        remember(&mut self.registers, self.precision, place);
    }

    /// Counts many keys. This is twice as fast as one by one, and three times as fast if there
    /// were many more keys than registers.
    pub fn insert_batch(&mut self, hashes: &[u64]) {
        for hashes in hashes.chunks(self.registers.len()) {
            // A register does not store a rank that is more than two below its highest one.
            let rank =
                |register| register::highest(register).saturating_sub(self.precision as u8 - 2).saturating_sub(3);
            let lowest = self.lowest_rank.before(hashes.len(), &self.registers, rank);
            insert_all(&mut self.registers, self.precision, lowest, hashes);
        }
    }

    /// The unbiased number of distinct keys.
    pub fn count(&self) -> f64 {
        count_of(&self.registers, self.precision)
    }

    /// The number of distinct keys: the nearest whole number, and bounds that hold with at least the probability
    /// [`CONFIDENCE`]. They are computed like those of [`HyperLogLog::bounds`](super::HyperLogLog::bounds).
    pub fn bounds(&self) -> Estimate {
        let filled = self.registers.iter().filter(|register| **register != 0).count();
        bounds_of(self.count(), deviations(CONFIDENCE) * self.relative_error(), filled as u64)
    }

    /// Merges another sketch into this one. Afterwards it is as if the keys of both had been counted here.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        merge_all(&mut self.registers, &other.registers);
        Ok(())
    }

    /// Empties it, and writes every register, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.registers.fill(0);
        self.lowest_rank = LowestRank::default();
    }

    /// The relative standard error of large counts.
    pub fn relative_error(&self) -> f64 {
        relative_error(self.precision)
    }

    /// The number of registers as a power of two.
    pub const fn precision(&self) -> u32 {
        self.precision
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Registers { count: self.registers.len() }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.registers.len()
    }
}

/// The relative standard error of large counts.
pub(super) fn relative_error(precision: u32) -> f64 {
    ERROR_FACTOR / libm::sqrt((1u64 << precision) as f64)
}

fn check_precision(precision: u32) -> Result<(), SettingError> {
    check_number("precision", precision.into(), PRECISION_MIN.into()..=PRECISION_MAX.into())
}

/// The smallest precision with at most this error, or the nearest possible one.
pub(super) fn precision_for(relative_error: f64) -> u32 {
    let registers_root = ERROR_FACTOR / relative_error.clamp(0.001, 1.0);
    (libm::ceil(2.0 * libm::log2(registers_root)) as u32).clamp(PRECISION_MIN, PRECISION_MAX)
}

/// The likeliest count of two to the `precision` registers, corrected for its bias.
pub(super) fn count_of(registers: &[u8], precision: u32) -> f64 {
    let mut histogram = [0; 256];
    registers.iter().for_each(|register| histogram[*register as usize] += 1);
    let mut likelihood = Likelihood::new(rank::highest(precision));
    likelihood.empty(histogram[0]);
    for (register, count) in (0..=u8::MAX).zip(histogram).skip(1).filter(|(_, count)| *count > 0) {
        let rank = u32::from(register::highest(register)) + 2 - precision;
        likelihood.filled(count, rank, register & 3);
    }
    let registers = registers.len() as f64;
    likelihood.keys_per_register() * registers / (1.0 + BIAS_FACTOR / registers)
}

impl Image for UltraLogLog {
    const KIND: Kind = Kind::UltraLogLog;

    fn write(&self, payload: &mut Writer) {
        payload.varint(self.precision.into());
        payload.numbers(Literal::Byte, self.registers.iter().map(|register| u64::from(*register)));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let range = u64::from(PRECISION_MIN)..=u64::from(PRECISION_MAX);
        let precision = payload.within("the precision", range, "from 4 to 18", Reader::varint)? as u32;
        payload.allow::<u8>("the registers", 1 << precision)?;
        let mut sketch = Self::of_precision(precision, key_id);
        let registers = &mut sketch.registers;
        payload.numbers("a register", Literal::Byte, 1 << precision, |at, register| {
            registers[at] = register as u8;
            let is_possible = register::is_possible(register as u8, precision);
            if is_possible { Ok(()) } else { Err("one that hashes can lead to") }
        })?;
        Ok(sketch)
    }
}

/// Adds a rank to a register. Positions count as in the paper, so that registers of all precisions have the same form.
#[inline(always)]
fn remember(registers: &mut [u8], precision: u32, (index, rank): (usize, u8)) {
    let register = &mut registers[index];
    *register = register::with(*register, u32::from(rank) + precision - 2);
}

crate::simd::dispatch! {
    fn insert_all(registers: &mut [u8], precision: u32, lowest: u8, hashes: &[u64]) {
        insert_slice(registers, precision, lowest, hashes);
    }
}

#[inline(always)]
fn insert_slice(registers: &mut [u8], precision: u32, lowest: u8, hashes: &[u64]) {
    let last = registers.len() - 1;
    let (groups, rest) = hashes.as_chunks::<GROUP>();
    for group in groups {
        if lowest < LOWEST_MIN {
            // First find all places, by vectors. Then update the registers.
            rank::places(group, precision, last).for_each(|place| remember(registers, precision, place));
        } else {
            let above = lowest_rank::above(group, precision, lowest);
            lowest_rank::for_each(group, above, |hash| {
                remember(registers, precision, rank::place(hash, precision, last));
            });
        }
    }
    rest.iter().for_each(|hash| remember(registers, precision, rank::place(*hash, precision, last)));
}

crate::simd::dispatch! {
    /// Replaces each register by its union with another one.
    pub(super) fn merge_all(registers: &mut [u8], others: &[u8]) {
        for (register, other) in registers.iter_mut().zip(others) {
            *register = register::union(*register, *other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distinct_laws::Counting;
    use crate::oracle::SplitMix64;
    use crate::simd::{Level, at_level, level};
    use std::vec::Vec;

    fn with_precision(precision: u32) -> UltraLogLog {
        let sketch = UltraLogLog::with_precision(precision, 7).unwrap();
        assert_eq!(sketch.precision(), precision);
        sketch
    }

    /// A sketch after that many keys, without feeding them: the ranks in a register are drawn from the Poisson process.
    /// (The number of keys is an average, which hardly increases the spread from 64 keys per register on.)
    fn drawn(precision: u32, random: &mut SplitMix64, keys: f64) -> UltraLogLog {
        let mut sketch = with_precision(precision);
        let each = keys / sketch.registers.len() as f64;
        for register in &mut sketch.registers {
            let rank =
                (each / -random.unit().ln()).log2().ceil().clamp(0.0, f64::from(rank::highest(precision))) as u32;
            for lower in rank.saturating_sub(2).max(1)..=rank {
                let came = random.unit() >= (-each * 0.5f64.powi(lower as i32)).exp();
                if came || lower == rank {
                    *register = register::with(*register, lower + precision - 2);
                }
            }
        }
        sketch
    }

    const COUNTING: Counting<UltraLogLog> =
        Counting { with_precision, count: |sketch| (sketch.count(), sketch.relative_error()), drawn, bias: 0.3 };

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn the_error_is_as_stated_from_one_key_to_a_trillion() {
        for (precision, sketches, few) in [(4, 2_000, 1.05), (8, 400, 1.0), (12, 40, 1.0)] {
            COUNTING.errs_as_stated_from_one_key_to_a_trillion(precision, sketches, few);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn bounds_hold_with_the_stated_confidence() {
        COUNTING.has_bounds_that_hold_with_the_stated_confidence();
    }

    #[test]
    fn batches_and_all_instruction_sets_give_the_same_registers() {
        let mut random = SplitMix64(4);
        for precision in [PRECISION_MIN, 11, crate::test_size::of(PRECISION_MAX, 13)] {
            // The stream is long enough for the floor to rise, and has hashes of every rank.
            let mut hashes: Vec<u64> = (0..crate::test_size::of(40_000, 100)).map(|_| random.word()).collect();
            hashes.extend((0..64).map(|bits| random.word() & !(u64::MAX >> precision) | u64::MAX >> precision >> bits));
            let (mut single, mut batched) = (with_precision(precision), with_precision(precision));
            hashes.iter().for_each(|hash| single.insert(*hash));
            hashes.chunks(1_000).for_each(|hashes| batched.insert_batch(hashes));
            assert_eq!(batched.registers, single.registers, "{precision}");
            for level in [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|at| *at <= level()) {
                for lowest in [0, LOWEST_MIN] {
                    // A register above the floor stores nothing of ranks below the floor.
                    let hashes: Vec<u64> =
                        hashes.iter().copied().filter(|hash| lowest == 0 || hash << precision >> 63 == 0).collect();
                    let (mut expected, mut found) = (with_precision(precision), with_precision(precision));
                    hashes.iter().for_each(|hash| expected.insert(*hash));
                    let (hashes, registers): (&[u64], &mut [u8]) = (&hashes, &mut found.registers);
                    at_level!(level, (registers: &mut [u8], precision: u32, lowest: u8, hashes: &[u64]) {
                        insert_slice(registers, precision, lowest, hashes);
                    });
                    assert_eq!(found, expected, "{precision} {lowest} {level:?}");
                }
            }
        }
    }

    #[test]
    fn registers_are_those_of_the_paper() {
        // From section 2: with precision 8, the hash's first byte is the index; then there are 0, 2 and 1 zeros until
        // the next set bit.
        let mut sketch = with_precision(8);
        for (hash, register) in [(1, 7 << 2), (1, 9 << 2 | 1), (1, 9 << 2 | 3)]
            .into_iter()
            .zip([0, 2, 1])
            .map(|((index, register), zeros)| (index << 56 | (1u64 << 55) >> zeros, register))
        {
            sketch.insert(hash);
            assert_eq!(sketch.registers[1], register);
        }
        assert_eq!(sketch.registers.iter().filter(|register| **register != 0).count(), 1);
    }

    #[test]
    fn extremes_have_a_result() {
        let settings = [(0.9, 4), (0.2, 4), (0.1, 6), (0.006, 14), (0.003, 16), (0.001_5, 18)];
        for (error, precision) in settings.into_iter().take(crate::test_size::of(6, 3)) {
            let mut sketch = UltraLogLog::with_error(error, 7).unwrap();
            assert_eq!(sketch.precision(), precision, "{error}");
            assert_eq!(sketch.bounds(), Estimate::exact(0));
            assert_eq!(sketch.memory_bytes() - size_of::<UltraLogLog>(), 1 << precision);
            sketch.insert(0);
            sketch.insert(u64::MAX);
            let highest = (rank::highest(precision) + precision - 2) as u8;
            assert_eq!(sketch.registers[0], highest << 2);
            sketch.registers.fill(highest << 2 | 3);
            assert_eq!(sketch.bounds().upper, u64::MAX);
            sketch.clear();
            assert_eq!(sketch, with_precision(precision));
        }
    }
}
