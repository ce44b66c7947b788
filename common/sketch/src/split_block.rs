//! Split blocks: the common part of the filters that keep a key within one cache line.
//!
//! A block is one cache line of eight 64-bit lanes. A lane has slots: 64 bits, or 16 counters of 4 bits. A key has one
//! block, and one slot in each of its lanes. This file has the place of a key, the number of blocks for a plan, and the
//! estimate of keys from the used slots.

use super::{
    Geometry,
    image::{ImageError, Reader, Writer},
    occupancy::{Items, Occupancy},
};
use crate::{hash::scale, simd::prefetch};

/// Lanes per block. A key takes one slot in each.
pub(super) const LANES: usize = 8;
/// The most blocks: 4 GiB.
pub const BLOCKS_MAX: usize = 1 << 26;
/// The lowest rate of false positives that can be planned.
pub const RATE_MIN: f64 = 1e-9;
/// The highest rate. Such a filter is wrong half of the time.
pub const RATE_MAX: f64 = 0.5;
/// Filters with more blocks (1 MiB) prefetch lines. Smaller ones stay within a core's second-level cache, where
/// prefetching only costs time. (The limit is lower under Miri, which takes long for each block.)
pub(super) const BLOCKS_NEAR: usize = if cfg!(miri) { 1 << 5 } else { 1 << 14 };
/// Batches are processed in chunks of this many keys. Decisions and counts are made once per chunk.
const CHUNK: usize = 8;
/// How many chunks ahead lines are prefetched: sixteen keys, about as many lines as a core can wait for at once.
const CHUNKS_AHEAD: usize = 2;

/// The shape of a filter, and its number of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// How many keys the filter is for.
    pub capacity: u64,
    /// How many blocks it has.
    pub blocks: usize,
    /// The number of slots per lane.
    slots: u32,
}

impl Plan {
    /// A plan with as many blocks, up to [`BLOCKS_MAX`], as a filter with `items` keys needs to find an absent key with
    /// a probability of at most `rate`. The rate is clamped to [`RATE_MIN`] and [`RATE_MAX`]. NaN gives the smallest
    /// filter.
    pub fn new(items: u64, rate: f64, slots: u32) -> Self {
        let load = load_for(rate, slots);
        // The capacity is at most what the largest number of blocks has room for.
        let capacity = items.clamp(1, items_max(load));
        let blocks = libm::ceil(capacity as f64 / load) as usize;
        Self { capacity, blocks: blocks.clamp(1, BLOCKS_MAX), slots }
    }

    /// The most keys for which there is a plan with this rate.
    pub fn items_max(rate: f64, slots: u32) -> u64 {
        items_max(load_for(rate, slots))
    }

    /// Writes the plan into an image's payload.
    pub fn write(&self, payload: &mut Writer) {
        payload.varint(self.capacity);
        payload.varint(self.blocks as u64);
    }

    /// Reads a plan that [`Plan::write`] wrote.
    pub fn read(payload: &mut Reader, slots: u32) -> Result<Self, ImageError> {
        let capacity = payload.within("the capacity", 1..=u64::MAX, "at least 1", Reader::varint)?;
        let blocks = payload.within("the blocks", 1..=BLOCKS_MAX as u64, "from 1 to 2^26", Reader::varint)? as usize;
        Ok(Self { capacity, blocks, slots })
    }

    /// The filter's size and shape.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Blocks { count: self.blocks }
    }

    /// The share of used slots when the filter contains as many keys as planned.
    pub fn fill(&self) -> f64 {
        // j keys leave a slot free with the probability (1 - 1/slots)^j, and j is Poisson with the load as its mean.
        -libm::expm1(-(self.capacity as f64 / self.blocks as f64) / f64::from(self.slots))
    }

    /// Returns true if more slots are used than planned, by more than chance explains: by four standard deviations of
    /// as many independent slots. (Slots are not independent, but that reduces the variance.)
    pub fn is_exceeded(&self, fill: f64) -> bool {
        let (planned, slots) = (self.fill(), (self.blocks * LANES) as f64 * f64::from(self.slots));
        fill > planned + 4.0 * libm::sqrt(planned * (1.0 - planned) / slots)
    }

    /// The share of used slots, from the number used in each lane of each block.
    pub fn fill_of(&self, taken: impl Iterator<Item = [u32; LANES]>) -> f64 {
        let taken: u64 = taken.flatten().map(u64::from).sum();
        taken as f64 / (self.blocks * LANES) as f64 / f64::from(self.slots)
    }

    /// The exact probability that an absent key is found: the mean over all blocks of the product of the fills of their
    /// lanes.
    pub fn rate_of(&self, taken: impl Iterator<Item = [u32; LANES]>) -> f64 {
        // Lanes have at most 64 slots, so the product of eight lanes fits into 64 bits.
        let ways = taken.map(|lanes| lanes.iter().map(|lane| u64::from(*lane)).product::<u64>() as f64);
        ways.sum::<f64>() / power(f64::from(self.slots)) / self.blocks as f64
    }

    /// The estimated number of distinct keys, from each block's slots.
    pub fn items_of(&self, taken: impl Iterator<Item = [u32; LANES]>) -> Items {
        const SLOTS_MAX: usize = LANES * u64::BITS as usize;
        let mut blocks_by_taken = [0u64; SLOTS_MAX + 1];
        taken.for_each(|lanes| blocks_by_taken[lanes.iter().sum::<u32>() as usize] += 1);
        let slots = LANES as f64 * f64::from(self.slots);
        let per_key = -libm::log1p(-1.0 / f64::from(self.slots));
        let block = Occupancy { slots, draws: LANES as f64, per_key };
        let by_taken = blocks_by_taken.iter().enumerate().filter(|(_, blocks)| **blocks > 0);
        by_taken.map(|(taken, blocks)| block.items(slots - taken as f64).times(*blocks)).sum()
    }
}

/// The block of the key with this hash, and a word that chooses its slots there.
///
/// The block is the upper half of the product of hash and number of blocks, which needs no division and allows any
/// number. So the keys of one block have equal high bits in their hashes. The word is made so that the low bits, which
/// differ, affect all upper bits. (The lower half of that product would cost nothing, but it repeats bits if the number
/// is near a power of two.)
#[inline(always)]
pub(super) const fn place(hash: u64, blocks: usize) -> (usize, u64) {
    /// 2^64 divided by the golden ratio.
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (scale(hash, blocks as u64) as usize, hash.wrapping_mul(ODD))
}

/// Six bits of the word for each lane. They are not the topmost bits: a field that needs no mask would differ from the
/// others, and the compiler would not make one vector of all eight.
#[inline(always)]
pub(super) fn fields(word: u64) -> [u64; LANES] {
    core::array::from_fn(|lane| (word >> (10 + 6 * lane)) & 63)
}

/// Calls `find` with the block and the word of each of many keys, and stores the results.
#[inline(always)]
pub(super) fn find_all<B>(blocks: &[B], hashes: &[u64], found: &mut [bool], find: impl Fn(&B, u64) -> bool) {
    let count = hashes.len().min(found.len());
    let (chunks, rest) = hashes[..count].as_chunks();
    let (found, found_rest) = found[..count].as_chunks_mut::<CHUNK>();
    for (nth, (chunk, found)) in chunks.iter().zip(found).enumerate() {
        ask_ahead(blocks, chunks, nth);
        for (&hash, found) in chunk.iter().zip(found) {
            let (block, word) = place(hash, blocks.len());
            *found = find(&blocks[block], word);
        }
    }
    for (&hash, found) in rest.iter().zip(found_rest) {
        let (block, word) = place(hash, blocks.len());
        *found = find(&blocks[block], word);
    }
}

/// A change of a key's block. This is not a closure, because large closures are not inlined, and code that is not
/// inlined is compiled for the portable level.
pub(super) trait Change<B> {
    /// Changes a block by its key's word. Returns whether the key was new (insertion) or present (removal).
    fn change(block: &mut B, word: u64) -> bool;
}

/// Changes the blocks of many keys. Returns how often the change returned `true`.
#[inline(always)]
pub(super) fn change_all<C: Change<B>, B>(blocks: &mut [B], hashes: &[u64]) -> u64 {
    let (chunks, rest) = hashes.as_chunks();
    let mut changed = 0;
    for (nth, chunk) in chunks.iter().enumerate() {
        ask_ahead(blocks, chunks, nth);
        for &hash in chunk {
            let (block, word) = place(hash, blocks.len());
            changed += u64::from(C::change(&mut blocks[block], word));
        }
    }
    for &hash in rest {
        let (block, word) = place(hash, blocks.len());
        changed += u64::from(C::change(&mut blocks[block], word));
    }
    changed
}

/// For chunk number `nth` of a batch, prefetches the lines of a later chunk if the filter is large.
#[inline(always)]
fn ask_ahead<B>(blocks: &[B], chunks: &[[u64; CHUNK]], nth: usize) {
    if blocks.len() > BLOCKS_NEAR
        && let Some(chunk) = chunks.get(nth + CHUNKS_AHEAD)
    {
        chunk.iter().for_each(|&hash| prefetch(&blocks[place(hash, blocks.len()).0]));
    }
}

/// The number of keys that the largest filter has room for, if a block has this many on average.
pub(super) fn items_max(load: f64) -> u64 {
    (BLOCKS_MAX as f64 * load) as u64
}

/// The most keys that a block may have on average for a rate of false positives of at most `rate`.
fn load_for(rate: f64, slots: u32) -> f64 {
    // At the upper end the rate is 0.9, above RATE_MAX.
    largest_load(rate, f64::from(slots), 4.4 * f64::from(slots), |load| rate_at(load, slots))
}

/// The most keys that a block may have on average, up to `most`, so that `rate_at` this load is at most `rate`, which
/// is clamped to [`RATE_MIN`] and [`RATE_MAX`]. A key takes eight places of a block, each one of `slots`.
///
/// Newton's method finds it, on logarithms, whose slope changes little, in a few evaluations.
pub(super) fn largest_load(rate: f64, slots: f64, most: f64, rate_at: impl Fn(f64) -> PoissonMean) -> f64 {
    /// Loads are multiples of this small part of `most`, so that the geometry does not depend on the first and the last
    /// step of the search.
    const STEPS: f64 = (1 << 20) as f64;
    /// After a step of less than a millionth, the error is about the square of that.
    const NEAR: f64 = 1e-6;
    /// No rate that was tried took more than six evaluations.
    const EVALUATIONS_MAX: u32 = 12;
    if rate.is_nan() {
        // NaN must not give the largest filter.
        return most;
    }
    let rate = rate.clamp(RATE_MIN, RATE_MAX);
    // The search starts as if all blocks had equally many keys.
    let mut load = -slots * libm::log1p(-libm::pow(rate, 1.0 / LANES as f64));
    for _ in 0..EVALUATIONS_MAX {
        let found = rate_at(load);
        let step = libm::log(rate / found.value) / found.slope;
        load *= libm::exp(step);
        if step.abs() < NEAR {
            break;
        }
    }
    libm::floor(load / most * STEPS).clamp(1.0, STEPS) / STEPS * most
}

/// The rate of false positives when blocks have `load` keys on average: the mean, over the Poisson distribution of keys
/// in a block, of the probability that the absent key's slot is used in all eight lanes.
fn rate_at(load: f64, slots: u32) -> PoissonMean {
    let stays_free = 1.0 - 1.0 / f64::from(slots);
    let mut free = 1.0;
    poisson_mean(load, || {
        let rate = power(1.0 - free);
        free *= stays_free;
        rate
    })
}

/// The mean of a value over a Poisson distribution.
pub(super) struct PoissonMean {
    pub value: f64,
    /// By how many percent the value grows if the mean of the distribution grows by one percent.
    pub slope: f64,
}

/// The mean of a value over the Poisson distribution with this `mean`. The value grows with the number, but above the
/// mean it must grow more slowly than probabilities fall. It is evaluated at 0, 1, 2 and so on.
pub(super) fn poisson_mean(mean: f64, mut value: impl FnMut() -> f64) -> PoissonMean {
    /// The sum ends when a number above the mean adds less than this share: all following numbers add little more.
    const WEIGHT_MIN: f64 = 1e-14;
    // This is more than fifteen standard deviations: the rest weighs less than 1e-20.
    let most = (mean + 15.0 * libm::sqrt(mean) + 30.0) as u32;
    // The slope comes from the derivative of the probabilities by the mean, p(n) (n / mean - 1).
    let (mut sum, mut moment, mut probability) = (0.0, 0.0, libm::exp(-mean));
    for number in (0..most).map(f64::from) {
        let share = probability * value();
        sum += share;
        moment += share * number;
        if number > mean && share < sum * WEIGHT_MIN {
            break;
        }
        probability *= mean / (number + 1.0);
    }
    PoissonMean { value: sum, slope: moment / sum - mean }
}

/// The power of the number of lanes.
fn power(base: f64) -> f64 {
    (0..LANES.ilog2()).fold(base, |power, _| power * power)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::{Filter, oracle::hash};
    use core::convert::Infallible;

    /// Compares filters with their plan. `fed` builds a filter for a rate, with the planned keys from a seed.
    pub fn assert_the_rate_is_as_planned_and_as_computed<F: Filter>(items: u64, fed: impl Fn(f64, u64) -> F) {
        // 4.5 standard deviations of the number found by chance are allowed: a chance of one in 147,000 for each of
        // twelve. The computed rate differs from the plan because the loads of blocks vary, by some 1 % at the lowest
        // rate.
        const TRIES: u64 = 100_000;
        for seed in 0..3 {
            for planned in [0.002, 0.01, 0.05, 0.3] {
                let filter = fed(planned, seed);
                assert!(!filter.is_saturated() && (0..items).all(|item| filter.contains(hash(seed, item))));
                let computed = filter.false_positive_rate();
                assert!((0.95..1.05).contains(&(computed / planned)), "planned {planned}, computed {computed}");
                let expected = computed * TRIES as f64;
                let found = (0..TRIES).filter(|item| filter.contains(hash(seed + 9, *item))).count() as f64;
                assert!((found - expected).abs() < 4.5 * expected.sqrt(), "{expected} expected, {found} found");
            }
        }
    }

    /// Builds filters of both ends of the settings. `bits_per_key` is the range for a filter of very many keys at 1 %.
    pub fn assert_any_size_works_and_memory_is_reported<F: Filter<Error = Infallible>>(
        with_capacity: fn(u64, f64, u64) -> Result<F, crate::SettingError>,
        bits_per_key: core::ops::Range<f64>,
    ) {
        const MANY: u32 = crate::test_size::of(1_000_000, 10_000);
        let large = with_capacity(MANY.into(), 0.01, 7).unwrap();
        let bits = (large.memory_bytes() - size_of::<F>()) as f64 * 8.0 / f64::from(MANY);
        assert!(bits_per_key.contains(&bits) && large.key_id() == 7, "{bits} bits per key");
        for rate in [RATE_MIN, RATE_MAX] {
            let mut filter = with_capacity(0, rate, 7).unwrap();
            let are_new = [u64::MAX, 0, 0].map(|hash| filter.insert(hash));
            assert_eq!(are_new, [Ok(true), Ok(true), Ok(false)], "{rate}");
        }
    }
    use core::cell::Cell;
    use std::boxed::Box;

    #[test]
    fn plans_stay_in_range() {
        for slots in [16, 64] {
            assert!(rate_at(4.4 * f64::from(slots), slots).value > RATE_MAX);
            for rate in [f64::NAN, RATE_MAX, 2.0, f64::INFINITY] {
                assert_eq!(Plan::new(10, rate, slots).blocks, 1, "{rate}");
            }
            for rate in [-1.0, 0.0, f64::NEG_INFINITY] {
                assert_eq!(Plan::new(10, rate, slots), Plan::new(10, RATE_MIN, slots));
            }
            assert_eq!(Plan::new(u64::MAX, 0.01, slots).blocks, BLOCKS_MAX);
            assert_eq!(Plan::new(0, 0.01, slots), Plan::new(1, 0.01, slots));
            for rate in [f64::NAN, 0.0, 0.01, 1.0] {
                let largest = Plan::new(u64::MAX, rate, slots);
                assert!(largest.is_exceeded(1.0), "planned for no more keys than it is built for");
                assert_eq!(Plan::new(largest.capacity, rate, slots), largest);
            }
        }
    }

    #[test]
    fn the_largest_load_within_the_rate_is_found() {
        const RATES: u32 = crate::test_size::of(1000, 5);
        for slots in [16, 64] {
            let step = 4.4 * f64::from(slots) / f64::from(1 << 20);
            for nth in 0..=RATES {
                let rate = RATE_MAX * (RATE_MIN / RATE_MAX).powf(f64::from(nth) / f64::from(RATES));
                let (load, evaluations) = (load_for(rate, slots), Cell::new(0));
                assert!(rate_at(load, slots).value <= rate, "{rate}: {load} keys of {slots} slots");
                assert!(rate_at(load + step, slots).value > rate, "{rate}: {load} keys of {slots} slots");
                largest_load(rate, f64::from(slots), 4.4 * f64::from(slots), |load| {
                    evaluations.update(|count| count + 1);
                    rate_at(load, slots)
                });
                assert!(evaluations.get() <= 6, "{rate}: {} evaluations", evaluations.get());
            }
        }
    }

    /// Counts pairs of fields of many words in 4,096 cells, and compares chi-squared with its 4,095 degrees of freedom:
    /// a standard deviation is 90. More than six of them happen once in 10^8, for each of 72 pairs.
    fn assert_pairs_are_uniform(what: &str, words: impl Fn() -> Box<dyn Iterator<Item = u64>>) {
        for (one, other) in (0..LANES).map(|lane| (lane, (lane + 1) % LANES)).chain((0..4).map(|lane| (lane, lane + 4)))
        {
            let mut cells = std::vec![0u32; 4096];
            let mut count = 0.0;
            for word in words() {
                let fields = fields(word);
                cells[(fields[one] << 6 | fields[other]) as usize] += 1;
                count += 1.0;
            }
            let expected = count / 4096.0;
            let chi_squared: f64 = cells.iter().map(|cell| (f64::from(*cell) - expected).powi(2) / expected).sum();
            assert!((4095.0 - 6.0 * 90.5..4095.0 + 6.0 * 90.5).contains(&chi_squared), "{what}: {chi_squared}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn slots_of_a_key_are_independent_even_within_one_block() {
        const KEYS: u64 = 40_000;
        for blocks in [1, 15, (1 << 14) + 1] {
            assert_pairs_are_uniform("all keys", || {
                Box::new((0..KEYS).map(move |item| place(hash(blocks as u64, item), blocks).1))
            });
        }
        // Keys of one block have the same high bits: in the largest filters only 38 bits differ.
        for (blocks, block) in [(BLOCKS_MAX - 1, 0x0123_4567), (BLOCKS_MAX, 0x0222_2222), (BLOCKS_MAX / 3, 77)] {
            let first = (u128::from(block) << 64).div_ceil(blocks as u128) as u64;
            let alike = move |item| first + (hash(7, item) >> 27);
            assert!((0..KEYS).all(|item| place(alike(item), blocks).0 as u64 == block));
            assert_pairs_are_uniform("a block's keys", || {
                Box::new((0..KEYS).map(move |item| place(alike(item), blocks).1))
            });
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn blocks_are_chosen_evenly() {
        // There are 100 keys per block. Nine standard deviations of a Poisson distribution are allowed.
        let mut keys = [0u32; 1001];
        (0..100_100).for_each(|item| keys[place(hash(1, item), 1001).0] += 1);
        assert!(keys.iter().all(|keys| (10..190).contains(keys)));
        assert_eq!((place(0, 1001).0, place(u64::MAX, 1001).0), (0, 1000));
    }
}
