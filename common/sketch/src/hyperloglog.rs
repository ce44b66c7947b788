//! `HyperLogLog`: how many distinct keys?
//!
//! **Errors**: in both directions. The relative standard error is 1.04 / sqrt(registers), and less for counts below the
//! number of registers. (With only 16 registers it may be 7 % more.) The relative bias is below 0.6 / registers for
//! every count, which is negligible beside that error. A few keys are counted exactly if no two of them share a
//! register. For n keys and m registers the probability of that is about exp(-n^2 / 2m): 99.5 % for a tenth of sqrt(m)
//! (6 keys with 4,096 registers). It falls quickly for more keys. [`CompactHyperLogLog`] counts small sets exactly.
//!
//! **Cost** at an error of 0.005: 65,536 registers = 64 KiB. An insertion touches one register; a count reads all of
//! them.
//!
//! **Papers**: Flajolet, Fusy, Gandouet and Meunier, "`HyperLogLog`: the analysis of a near-optimal cardinality
//! estimation algorithm", 2007. The estimator is from Ertl, "New cardinality estimation algorithms for `HyperLogLog`
//! sketches", 2017: the improved raw estimator in section 2, which needs no switch between formulas and no table of
//! biases.
//!
//! **Why not a crate**: this one takes hashes as input, keeps the fingerprint of their key, and states its bounds.
//! Crates usually hash the item themselves, correct by tables or switch to linear counting, and state no bounds.

use alloc::{boxed::Box, vec};

use super::{
    Estimate, Geometry, MergeError,
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
    lowest_rank::{self, GROUP, LowestRank},
    merge::check_mergeable,
    normal::deviations,
    rank,
    setting::{SettingError, check_error, check_number},
};

mod compact;

pub use compact::CompactHyperLogLog;

/// The fewest registers: 2^4, an error of 26 %.
pub const PRECISION_MIN: u32 = 4;
/// The most registers: 2^18, an error of 0.2 % in 256 KiB.
pub const PRECISION_MAX: u32 = 18;
/// The probability with which [`HyperLogLog::bounds`] hold.
pub const CONFIDENCE: f64 = 0.999;
/// The upper bound allows for this many more keys than were counted. Few keys seldom share a register, and a normal
/// distribution underestimates how often they do: with 65,536 registers, bounds of 66 to 73 keys would be too low with
/// a probability of up to 0.076 % instead of 0.05 %.
const FEW: f64 = 0.125;
/// The standard error times the square root of the registers: sqrt(3 ln 2 - 1) rounded up.
const ERROR_FACTOR: f64 = 1.04;
/// The lowest relative standard error that [`HyperLogLog::with_error`] allows.
pub const ERROR_MIN: f64 = ERROR_FACTOR / (1 << (PRECISION_MAX / 2)) as f64;
/// If the lowest rank is at least this, processing only the hashes above it saves time: they are at most a quarter.
const LOWEST_MIN: u8 = 2;

/// A `HyperLogLog` sketch with one byte per register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyperLogLog {
    /// The highest rank that each register has seen; 0 if it has seen none.
    registers: Box<[u8]>,
    /// How many high bits of a hash choose the register.
    precision: u32,
    key_id: u64,
    lowest_rank: LowestRank,
}

impl HyperLogLog {
    /// A sketch with at most this relative standard error: 0.26 or less ([`PRECISION_MIN`]), down to 0.00204
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
        check_error("relative_error", relative_error, relative_error_of(PRECISION_MAX))
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
        raise(&mut self.registers, place);
    }

    /// Counts many keys. This is faster than one by one, especially if there were many more keys than registers, so
    /// that few hashes can still raise a register.
    pub fn insert_batch(&mut self, hashes: &[u64]) {
        for hashes in hashes.chunks(self.registers.len()) {
            let lowest = self.lowest_rank.before(hashes.len(), &self.registers, |least| least);
            insert_all(&mut self.registers, self.precision, lowest, hashes);
        }
    }

    /// Raises a register to a rank, which must not exceed the highest rank that a hash can have.
    #[inline]
    pub(crate) fn raise(&mut self, register: usize, rank: u8) {
        let rank = rank.min(rank::highest(self.precision) as u8);
        let register = &mut self.registers[register];
        *register = rank.max(*register);
    }

    /// The highest rank that each register has seen; 0 if it has seen none. The highest bits of a hash are the number
    /// of its register.
    pub(crate) const fn registers(&self) -> &[u8] {
        &self.registers
    }

    /// The unbiased number of distinct keys.
    pub fn count(&self) -> f64 {
        self.count_from(&self.histogram())
    }

    /// The number of distinct keys: the nearest whole number, and bounds that hold with at least the probability
    /// [`CONFIDENCE`]. Each bound fails with at most half of the remaining probability.
    pub fn bounds(&self) -> Estimate {
        self.bounds_at(CONFIDENCE)
    }

    /// Like [`Self::bounds`], with bounds that hold with at least the probability `confidence`.
    ///
    /// The bounds are a normal approximation with the standard error of large counts. That of small counts is so much
    /// lower that it makes up for their uneven distribution (keys that share a register). The error is taken relative
    /// to the truth or to the count, whichever is wider, because the distribution is skewed with few registers. The
    /// truth is at least the number of registers that are not empty.
    pub fn bounds_at(&self, confidence: f64) -> Estimate {
        let histogram = self.histogram();
        let count = self.count_from(&histogram);
        let filled = self.registers.len() as u64 - histogram[0];
        bounds_of(count, deviations(confidence) * self.relative_error(), filled)
    }

    /// Merges another sketch into this one. Afterwards it is as if the keys of both had been counted here.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        self.registers.iter_mut().zip(&other.registers).for_each(|(rank, other)| *rank = (*rank).max(*other));
        Ok(())
    }

    /// The sketch that the same keys would have made with two to the `precision` registers. Returns a copy if this
    /// sketch has no more registers than that. A precision below [`PRECISION_MIN`] is raised to it. Sketches of
    /// different sizes can be merged after the larger one is folded.
    ///
    /// `DataSketches` folds other bits of its hashes. So do not fold a sketch of its hashes
    /// ([`PublicHash`](crate::datasketches::PublicHash)). Create it with the right precision instead.
    pub fn folded(&self, precision: u32) -> Self {
        let mut folded = Self::of_precision(precision.clamp(PRECISION_MIN, self.precision), self.key_id);
        let bits = (self.precision - folded.precision) as u8;
        let highest = rank::highest(folded.precision) as u8;
        // The number of a register within its group becomes the first bits in which zeros are counted. So the first
        // register that is not empty has the highest rank. The last element, 0, is for a group that is all empty.
        let mut ranks = vec![0; (1 << bits) + 1];
        (1..1_usize << bits).for_each(|low| ranks[low] = bits - low.ilog2() as u8);
        for (rank, group) in folded.registers.iter_mut().zip(self.registers.chunks_exact(1 << bits)) {
            let low = first_filled(group);
            let of_first = bits.saturating_add(group[0]).min(highest);
            *rank = core::hint::select_unpredictable(low == 0, of_first, ranks[low]);
        }
        folded
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
        relative_error_of(self.precision)
    }

    /// The number of registers as a power of two.
    pub const fn precision(&self) -> u32 {
        self.precision
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Registers { count: self.registers.len() }
    }

    /// Makes an empty sketch ready for hashes of another key.
    pub const fn rekey(&mut self, key_id: u64) {
        self.key_id = key_id;
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.registers.len()
    }

    /// Ertl's improved raw estimator, corrected for its remaining bias: on average, the reciprocal of a random sum is
    /// too large by the relative variance of the sum.
    fn count_from(&self, histogram: &Histogram) -> f64 {
        let registers = self.registers.len() as f64;
        let share = |count: u64| count as f64 / registers;
        let highest = rank::highest(self.precision) as usize;
        let mut sum = registers * tau(1.0 - share(histogram[highest]));
        for count in histogram[1..highest].iter().rev() {
            sum = 0.5 * (sum + *count as f64);
        }
        sum += registers * sigma(share(histogram[0]));
        let bias = ERROR_FACTOR * ERROR_FACTOR / registers;
        registers * registers / (2.0 * core::f64::consts::LN_2 * sum) / (1.0 + bias)
    }

    /// How many registers have each rank.
    pub(crate) fn histogram(&self) -> Histogram {
        let mut histogram = [0; rank::RANK_MAX as usize + 1];
        self.registers().iter().for_each(|rank| histogram[*rank as usize] += 1);
        histogram
    }
}

impl Image for HyperLogLog {
    const KIND: Kind = Kind::HyperLogLog;

    fn write(&self, payload: &mut Writer) {
        payload.varint(self.precision.into());
        payload.numbers(Literal::Byte, self.registers.iter().map(|rank| u64::from(*rank)));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let range = u64::from(PRECISION_MIN)..=u64::from(PRECISION_MAX);
        let precision = payload.within("the precision", range, "from 4 to 18", Reader::varint)? as u32;
        payload.allow::<u8>("the registers", 1 << precision)?;
        let mut sketch = Self::of_precision(precision, key_id);
        payload.numbers("a register", Literal::Byte, 1 << precision, |register, rank| {
            sketch.raise(register, rank as u8);
            if rank <= rank::highest(precision).into() { Ok(()) } else { Err("a rank that a hash can have") }
        })?;
        Ok(sketch)
    }
}

/// The nearest whole number to a count, and bounds like those of [`HyperLogLog::bounds_at`]. Their distance from the
/// count is `margin`, a share of the count. `filled` registers are not empty.
pub(super) fn bounds_of(count: f64, margin: f64, filled: u64) -> Estimate {
    if filled == 0 {
        return Estimate::exact(0);
    }
    let margin = margin.min(1.0);
    let lower = (libm::floor(count * (1.0 - margin)) as u64).max(filled);
    let upper = (libm::ceil((count + FEW) / (1.0 - margin)) as u64).max(lower);
    Estimate { value: (libm::round(count) as u64).clamp(lower, upper), lower, upper }
}

pub(super) fn check_precision(precision: u32) -> Result<(), SettingError> {
    check_number("precision", precision.into(), PRECISION_MIN.into()..=PRECISION_MAX.into())
}

/// The smallest precision with at most this error, or the nearest possible one.
fn precision_for(relative_error: f64) -> u32 {
    let registers_root = ERROR_FACTOR / relative_error.clamp(0.001, 1.0);
    (libm::ceil(2.0 * libm::log2(registers_root)) as u32).clamp(PRECISION_MIN, PRECISION_MAX)
}

/// The relative standard error of large counts.
fn relative_error_of(precision: u32) -> f64 {
    ERROR_FACTOR / libm::sqrt((1u64 << precision) as f64)
}

/// How many registers have each rank.
type Histogram = [u64; rank::RANK_MAX as usize + 1];

/// The index of the first register that is not empty; their number if all are empty. Sixteen are read at once.
fn first_filled(registers: &[u8]) -> usize {
    let (groups, rest) = registers.as_chunks::<16>();
    for (nth, group) in groups.iter().enumerate() {
        let group = u128::from_le_bytes(*group);
        if group != 0 {
            return 16 * nth + group.trailing_zeros() as usize / 8;
        }
    }
    registers.len() - rest.len() + rest.iter().take_while(|rank| **rank == 0).count()
}

/// Raises a register. It always stores, because a branch could be predicted only if hardly any key changed a register.
#[inline(always)]
fn raise(registers: &mut [u8], (index, rank): (usize, u8)) {
    let register = &mut registers[index];
    *register = rank.max(*register);
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
            rank::places(group, precision, last).for_each(|place| raise(registers, place));
        } else {
            let above = lowest_rank::above(group, precision, lowest);
            lowest_rank::for_each(group, above, |hash| raise(registers, rank::place(hash, precision, last)));
        }
    }
    rest.iter().for_each(|hash| raise(registers, rank::place(*hash, precision, last)));
}

/// The term of the empty registers: x + sum over k >= 1 of x^(2^k) 2^(k-1) (Ertl, 2017, algorithm 6).
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut sum, mut weight) = (x, 1.0);
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// The term of the registers at the highest rank: (1 - x - sum over k >= 1 of (1 - x^(2^-k))^2 2^-k) / 3 (Ertl, 2017,
/// algorithm 6).
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut sum, mut weight) = (1.0 - x, 1.0);
    loop {
        x = libm::sqrt(x);
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distinct_laws::Counting;
    use crate::oracle::{SplitMix64, hash};
    use crate::simd::{Level, at_level, level};
    use std::vec::Vec;

    fn with_precision(precision: u32) -> HyperLogLog {
        let sketch = HyperLogLog::with_precision(precision, 7).unwrap();
        assert_eq!(sketch.precision(), precision);
        sketch
    }

    /// A sketch of `count` keys. Other seeds have other keys.
    fn fed(precision: u32, seed: u64, count: u64) -> HyperLogLog {
        let mut sketch = with_precision(precision);
        (0..count).for_each(|item| sketch.insert(hash(seed, item)));
        sketch
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn few_keys_are_counted_exactly_if_they_share_no_register() {
        // About 5 of 1,000 counts are wrong. Six standard deviations more are allowed: a chance of one in a billion.
        for precision in [8, 12, 16] {
            let keys = libm::sqrt((1u64 << precision) as f64) / 10.0;
            let wrong = |seed: &u64| fed(precision, *seed, keys as u64).bounds().value != keys as u64;
            assert!((0..1_000).filter(wrong).count() <= 5 + 14, "{precision}");
        }
        // With a hundredth of many registers, hardly any count is exact. A small set is.
        let wrong = |seed: &u64| fed(16, *seed, 655).bounds().value != 655;
        assert!((0..100).filter(wrong).count() > 50);
        for seed in 0..100 {
            let mut small = CompactHyperLogLog::with_precision(16, 7).unwrap();
            (0..655).for_each(|item| small.insert(hash(seed, item)));
            assert_eq!(small.bounds().value, 655);
        }
    }

    #[test]
    fn a_folded_sketch_is_the_one_of_fewer_registers() {
        for (seed, count) in (0..).zip([0, 1, 300, crate::test_size::of(50_000, 500)]) {
            let large = fed(10, seed, count);
            for precision in PRECISION_MIN..=10 {
                assert_eq!(large.folded(precision).registers, fed(precision, seed, count).registers, "{precision}");
            }
            assert_eq!(large.folded(14).registers, large.registers, "there is nothing to unfold");
        }
        let (mut whole, [one, other]) = (with_precision(8), [1, 2].map(|seed| fed(10, seed, 1_000)));
        whole.merge(&one.folded(8)).unwrap();
        whole.merge(&other.folded(8)).unwrap();
        let mut large = one;
        large.merge(&other).unwrap();
        assert_eq!(whole.registers, large.folded(8).registers, "the order of folding and merging does not matter");
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn the_error_is_as_planned_from_one_to_a_million() {
        // 3.5 standard deviations are allowed, so one check in 2,149 fails by chance. With 3 precisions x 8 counts, one
        // run of this test in 89 would fail by chance.
        for (precision, seed) in [(10, 1), (14, 2), (16, 3)] {
            let mut sketch = with_precision(precision);
            let mut fed = 0;
            for count in [1, 10, 49, 100, 1_000, 10_000, 100_000, 1_000_000] {
                (fed..count).for_each(|item| sketch.insert(hash(seed, item)));
                fed = count;
                let error = sketch.count() / count as f64 - 1.0;
                assert!(error.abs() <= 3.5 * sketch.relative_error(), "{precision}: {count} off by {error}");
            }
        }
    }

    #[test]
    fn batches_and_all_instruction_sets_give_the_same_registers() {
        let mut random = SplitMix64(4);
        for precision in [4, 11, 12, 13, crate::test_size::of(18, 13)] {
            // The stream is long enough for the floor to rise, and has hashes of every rank.
            let mut hashes: Vec<u64> = (0..crate::test_size::of(40_000, 200)).map(|_| random.word()).collect();
            hashes.extend((0..64).map(|bits| random.word() & !(u64::MAX >> precision) | u64::MAX >> precision >> bits));
            let (mut single, mut batched) = (with_precision(precision), with_precision(precision));
            hashes.iter().for_each(|hash| single.insert(*hash));
            hashes.chunks(1_000).for_each(|hashes| batched.insert_batch(hashes));
            assert_eq!(batched.registers, single.registers, "{precision}");
            let least = single.registers.iter().copied().min().unwrap_or(0);
            for lowest in 0..=least {
                for level in [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|at| *at <= level()) {
                    let mut registers = single.registers.clone();
                    registers.iter_mut().for_each(|register| *register = (*register).min(lowest));
                    let (hashes, at): (&[u64], &mut [u8]) = (&hashes, &mut registers);
                    at_level!(level, (at: &mut [u8], precision: u32, lowest: u8, hashes: &[u64]) {
                        insert_slice(at, precision, lowest, hashes);
                    });
                    assert_eq!(registers, single.registers, "{precision} {lowest} {level:?}");
                }
            }
        }
    }

    /// A sketch as that many keys leave it, without feeding them. Each register is at most k with the probability
    /// exp(-keys / registers / 2^k), and is drawn from this distribution. (The number of keys is an average, which
    /// hardly increases the spread from 64 keys per register on.)
    fn drawn(precision: u32, random: &mut SplitMix64, keys: f64) -> HyperLogLog {
        let mut sketch = with_precision(precision);
        let each = keys / sketch.registers.len() as f64;
        for register in &mut sketch.registers {
            let rank = (each / -random.unit().ln()).log2().ceil();
            *register = rank.clamp(0.0, f64::from(rank::highest(precision))) as u8;
        }
        sketch
    }

    const COUNTING: Counting<HyperLogLog> =
        Counting { with_precision, count: |sketch| (sketch.count(), sketch.relative_error()), drawn, bias: 0.6 };

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn the_error_is_as_stated_from_one_key_to_a_trillion() {
        for (precision, sketches, few) in [(4, 4_000, 1.07), (8, 1_000, 1.0), (12, 100, 1.0)] {
            COUNTING.errs_as_stated_from_one_key_to_a_trillion(precision, sketches, few);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn bounds_hold_with_the_stated_confidence() {
        COUNTING.has_bounds_that_hold_with_the_stated_confidence();
    }

    /// The estimator as in the paper, with sums term by term, and without the correction of the remaining bias.
    fn by_the_paper(registers: &[u8], highest: u8) -> f64 {
        let two_to = |exponent: i32| 2f64.powi(exponent);
        let count = registers.len() as f64;
        let share = |rank: u8| registers.iter().filter(|held| **held == rank).count() as f64 / count;
        let sigma = |x: f64| x + (1..60).map(|k| x.powf(two_to(k)) * two_to(k - 1)).sum::<f64>();
        let tau = |x: f64| {
            let terms = (1..60).map(|k| (1.0 - x.powf(two_to(-k))).powi(2) * two_to(-k));
            (1.0 - x - terms.sum::<f64>()) / 3.0
        };
        let between: f64 = (1..highest).map(|rank| share(rank) * two_to(-i32::from(rank))).sum();
        let sum = sigma(share(0)) + between + tau(1.0 - share(highest)) * two_to(1 - i32::from(highest));
        let raw = count / (2.0 * core::f64::consts::LN_2 * sum);
        raw / (1.0 + 1.04 * 1.04 / count)
    }

    #[test]
    fn the_count_is_that_of_the_paper() {
        let mut random = SplitMix64(11);
        for precision in [4, 7, 10] {
            // From 2^48 keys per register on, some registers have the highest possible rank.
            let full = precision as i32 + 48;
            for exponent in [4, 7, 12, 20, 40, full, full + 1, full + 2] {
                let sketch = drawn(precision, &mut random, 2f64.powi(exponent));
                let expected = by_the_paper(&sketch.registers, rank::highest(precision) as u8);
                let error = sketch.count() / expected - 1.0;
                assert!(error.abs() < 1e-9, "2^{precision} registers, 2^{exponent} keys: off by {error}");
            }
        }
    }

    #[test]
    fn there_are_at_least_as_many_keys_as_filled_registers() {
        for count in [1, 10, 49] {
            let sketch = fed(16, 1, count);
            let filled = sketch.registers.iter().filter(|rank| **rank > 0).count() as u64;
            assert_eq!(sketch.bounds().lower, filled);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn registers_at_the_highest_rank_are_allowed_for() {
        // From 2^60 keys on, some registers have the highest possible rank.
        let mut random = SplitMix64(9);
        for keys in [10, 24, 40, 56, 60, 62, 64].map(|exponent| 2f64.powi(exponent)) {
            let sketch = drawn(14, &mut random, keys);
            let error = sketch.count() / keys - 1.0;
            assert!(error.abs() <= 3.5 * sketch.relative_error(), "{keys} off by {error}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn small_counts_look_exact() {
        // With fewer than 50 keys, two share one of 65,536 registers with a probability of at most 1.8 %.
        let exact = (0..1_000u64).filter(|seed| {
            let count = seed % 50;
            fed(16, *seed, count).bounds().value == count
        });
        assert!(exact.count() >= 980);
        assert_eq!(with_precision(16).bounds(), Estimate::exact(0));
        assert_eq!(fed(16, 1, 1).bounds(), Estimate { value: 1, lower: 1, upper: 2 });
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn bounds_hold_for_small_counts_by_calculation() {
        // Small counts err only if keys share registers, and that distribution is known exactly: for n keys,
        // P(v registers filled) follows from that for n - 1. For every n, the truth must be above the upper bound for v
        // filled registers with a probability of at most half of 0.1 %.
        for precision in [12, 14, 16] {
            let registers = f64::from(1 << precision);
            let most = 1_000.min(1usize << precision >> 3);
            let mut sketch = with_precision(precision);
            let mut random = SplitMix64(u64::from(precision));
            // The values of the filled registers matter little at this load, so they are random.
            let uppers: Vec<u64> = (0..=most)
                .map(|filled| {
                    if filled > 0 {
                        sketch.registers[filled] = 1 + random.word().leading_zeros() as u8;
                    }
                    sketch.bounds().upper
                })
                .collect();
            let mut filled_probability = std::vec![0.0; most + 1];
            filled_probability[0] = 1.0;
            for count in 1..=most {
                for filled in (1..=count).rev() {
                    let (same, new) = (filled as f64, registers - (filled - 1) as f64);
                    filled_probability[filled] =
                        (filled_probability[filled] * same + filled_probability[filled - 1] * new) / registers;
                }
                filled_probability[0] = 0.0;
                let missed: f64 =
                    (1..=count).filter(|v| uppers[*v] < count as u64).map(|v| filled_probability[v]).sum();
                assert!(missed <= (1.0 - CONFIDENCE) / 2.0, "{count} keys at precision {precision}: {missed}");
            }
        }
    }

    #[test]
    fn geometry_follows_from_the_error_and_stays_in_range() {
        assert_eq!(HyperLogLog::with_error(0.005, 7).unwrap().precision(), 16);
        assert_eq!(HyperLogLog::with_error(0.005, 7).unwrap().geometry(), Geometry::Registers { count: 65_536 });
        for (error, precision) in [(ERROR_MIN, 18), (0.9, 4), (0.26, 4)] {
            assert_eq!(HyperLogLog::with_error(error, 7).unwrap().precision(), precision, "{error}");
        }
        let sketch = HyperLogLog::with_error(0.01, 7).unwrap();
        assert!(sketch.relative_error() <= 0.01);
        assert_eq!(sketch.memory_bytes() - size_of::<HyperLogLog>(), 16 << 10);
    }

    #[test]
    fn a_rekeyed_sketch_does_not_merge_with_earlier_ones() {
        let mut sketch = with_precision(4);
        assert_eq!(sketch.merge(&with_precision(4)), Ok(()));
        sketch.rekey(8);
        assert_eq!(sketch.key_id(), 8);
        assert!(sketch.merge(&with_precision(4)).is_err());
    }

    #[test]
    fn extreme_hashes_and_full_registers_have_a_result() {
        for precision in [4, crate::test_size::of(18, 10)] {
            let mut sketch = with_precision(precision);
            sketch.insert(0);
            sketch.insert(u64::MAX);
            assert_eq!(sketch.registers[0], rank::highest(precision) as u8);
            assert_eq!(sketch.registers[sketch.registers.len() - 1], 1);
            sketch.registers.fill(rank::highest(precision) as u8);
            assert_eq!(sketch.bounds().upper, u64::MAX);
        }
    }
}
