//! The counter of a held key: how it grows, and what it has counted.

use super::{
    poisson,
    set::{self, Insertion},
};
use crate::{Estimate, hyperloglog::bounds_of, rank, simd, ultraloglog, ultraloglog::register};

/// How many bits of a score are its fraction.
const FRACTION: u32 = 8;
/// The probability that a register changes is counted in units of 2 to the minus this.
const SCALE: u32 = 40;

/// Counts items while they arrive. The items are in the counter's memory, which is empty at first.
///
/// As long as there is room, that memory is a set of items. Then it becomes registers, and each item that changes the
/// highest rank of a register counts as many as it takes on average for such a change (Ting, "Streamed approximate
/// counting of distinct elements", 2014). So the score is known at any time, without reading the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The initial score plus the items since, with [`FRACTION`] bits of fraction.
    score: u64,
    kept: Kept,
}

/// The content of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// A set of this many items.
    Set(u32),
    /// Registers, with the probability that the next item changes the highest rank of its register, times the number of
    /// registers.
    Registers(u64),
}

/// The memory of a counter: two to the `precision` bytes, and a buffer of the same size.
pub struct Memory<'a> {
    pub bytes: &'a mut [u8],
    pub spare: &'a mut [u8],
    pub precision: u32,
}

impl Counter {
    /// Creates a counter with this score and with empty memory.
    pub const fn new(score: u64, precision: u32) -> Self {
        let is_large = precision >= set::PRECISION_MIN;
        let kept = if is_large { Kept::Set(0) } else { Kept::Registers(1 << (SCALE + precision)) };
        Self { score: score.saturating_mul(1 << FRACTION), kept }
    }

    /// Returns the score including the fraction, and the number of items of the set plus one, or 0 if it has registers.
    pub fn numbers(self) -> [u64; 2] {
        match self.kept {
            Kept::Set(items) => [self.score, u64::from(items) + 1],
            Kept::Registers(_) => [self.score, 0],
        }
    }

    /// Restores the counter from these numbers and this memory; `None` if they are inconsistent.
    pub fn restored(score: u64, set: u64, memory: &[u8], precision: u32) -> Option<Self> {
        let kept = match set {
            0 if memory.iter().all(|register| register::is_possible(*register, precision)) => {
                Kept::Registers(open(memory, precision))
            }
            0 => return None,
            set => Kept::Set(set::items(memory, precision).filter(|items| u64::from(*items) + 1 == set)?),
        };
        Some(Self { score, kept })
    }

    /// The score without its fraction.
    pub const fn score(self) -> u64 {
        self.score >> FRACTION
    }

    /// Prefetches the memory that [`Counter::count`] will touch.
    #[inline(always)]
    pub fn prefetch(self, memory: &[u8], precision: u32, hash: u64) {
        match self.kept {
            Kept::Set(_) => set::prefetch(memory, precision, hash),
            Kept::Registers(_) => simd::prefetch(&memory[rank::place(hash, precision, memory.len() - 1).0]),
        }
    }

    /// Counts the item with this hash.
    #[inline(always)]
    pub fn count(&mut self, memory: Memory<'_>, hash: u64) {
        self.score = self.score.saturating_add(self.enter(memory, hash));
    }

    /// Enters an item into the memory. Returns how much it adds to the score.
    #[inline(always)]
    fn enter(&mut self, memory: Memory<'_>, hash: u64) -> u64 {
        match &mut self.kept {
            Kept::Registers(open) => enter_register(memory.bytes, memory.precision, open, hash),
            Kept::Set(items) => match set::insert(memory.bytes, memory.precision, hash) {
                Insertion::Known => 0,
                Insertion::New => {
                    *items += 1;
                    if *items > set::room(memory.precision) {
                        let Memory { bytes, spare, precision } = memory;
                        self.kept = Kept::Registers(outgrow(bytes, spare, precision));
                    }
                    1 << FRACTION
                }
                Insertion::Full => {
                    let Memory { bytes, spare, precision } = memory;
                    let mut open = outgrow(bytes, spare, precision);
                    let more = enter_register(bytes, precision, &mut open, hash);
                    self.kept = Kept::Registers(open);
                    more
                }
            },
        }
    }

    /// Adds the count of another counter, whose memory is `theirs`.
    pub fn merge(&mut self, memory: Memory<'_>, other: Self, theirs: &[u8]) {
        let Memory { bytes, spare, precision } = memory;
        self.score = self.score.saturating_add(other.score);
        match (other.kept, self.kept) {
            (Kept::Set(_), _) => set::hashes(theirs, precision).for_each(|hash| {
                self.enter(Memory { bytes: &mut *bytes, spare: &mut *spare, precision }, hash);
            }),
            (Kept::Registers(_), kept) => {
                if matches!(kept, Kept::Set(_)) {
                    outgrow(bytes, spare, precision);
                }
                ultraloglog::merge_all(bytes, theirs);
                self.kept = Kept::Registers(open(bytes, precision));
            }
        }
    }

    /// The number of different items in its memory, with bounds. Each bound fails with at most this probability. A
    /// normal variable is farther than `deviations` standard deviations from its mean, on either side, with twice that
    /// probability.
    pub fn items(self, memory: &[u8], precision: u32, (probability, deviations): (f64, f64)) -> Estimate {
        match self.kept {
            Kept::Set(items) => {
                let (items, of) = (items.into(), set::distinguishable(precision));
                Estimate { value: items, lower: items, upper: items + mistaken_for_others(items, of, probability) }
            }
            Kept::Registers(_) => {
                let filled = memory.iter().filter(|register| **register != 0).count();
                let count = ultraloglog::count_of(memory, precision);
                bounds_of(count, deviations * ultraloglog::relative_error(precision), filled as u64)
            }
        }
    }
}

/// Turns a set into registers. Returns the probability that the next item changes one, times the number of registers.
#[cold]
fn outgrow(bytes: &mut [u8], spare: &mut [u8], precision: u32) -> u64 {
    spare.copy_from_slice(bytes);
    bytes.fill(0);
    let mut open = open(bytes, precision);
    for hash in set::hashes(spare, precision) {
        enter_register(bytes, precision, &mut open, hash);
    }
    open
}

/// Enters an item into registers. Returns how many items it counts for, in units of a score.
#[inline(always)]
fn enter_register(registers: &mut [u8], precision: u32, open: &mut u64, hash: u64) -> u64 {
    let (at, rank) = rank::place(hash, precision, registers.len() - 1);
    let before = registers[at];
    registers[at] = register::with(before, u32::from(rank) + precision - 2);
    let highest = rank_of(before, precision);
    if u32::from(rank) <= highest {
        return 0;
    }
    let whole = (1u128 << (SCALE + precision + FRACTION)) / u128::from((*open).max(1));
    *open -= probability(highest) - probability(rank.into());
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// The probability that the next item changes the highest rank of its register, times the number of registers.
fn open(registers: &[u8], precision: u32) -> u64 {
    registers.iter().map(|register| probability(rank_of(*register, precision))).sum()
}

/// The most items that a set with this many items may have taken for others. A set can distinguish `of` items. With at
/// most this probability there were more.
///
/// The probability that an item equals an earlier one is at most the number of earlier items divided by `of`,
/// independently of what the earlier ones did. So the number of mistaken items is at most a Poisson variable whose mean
/// is the sum of these probabilities.
fn mistaken_for_others(items: u64, of: f64, probability: f64) -> u64 {
    let mut others = 0;
    loop {
        let all = (items + u64::from(others) + 1) as f64;
        if poisson::at_least(others + 1, all * (all - 1.0) / (2.0 * of)) <= probability {
            return others.into();
        }
        others += 1;
    }
}

/// The relative standard error of a score: that of counting highest ranks while items arrive (Ting, 2014).
pub fn relative_error(precision: u32) -> f64 {
    const ERROR_FACTOR: f64 = 0.8326;
    ERROR_FACTOR / libm::sqrt((1u64 << precision) as f64)
}

/// The highest rank in a register; 0 if there was none.
#[inline(always)]
const fn rank_of(register: u8, precision: u32) -> u32 {
    (register::highest(register) as u32 + 2).saturating_sub(precision)
}

/// The probability of a rank above this one.
#[inline(always)]
const fn probability(rank: u32) -> u64 {
    if rank > SCALE { 0 } else { 1 << (SCALE - rank) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hash::mix, test_size};
    use std::{vec, vec::Vec};

    /// The first has a set for some 110 items, the second has no set.
    const PRECISIONS: [u32; 2] = [8, 6];
    const CERTAINTY: (f64, f64) = (1e-6, 4.9);

    /// A counter with its memory.
    #[derive(Clone, Debug, PartialEq)]
    struct Owner {
        counter: Counter,
        bytes: Vec<u8>,
        precision: u32,
    }

    impl Owner {
        fn new(precision: u32) -> Self {
            Self { counter: Counter::new(0, precision), bytes: vec![0; 1 << precision], precision }
        }

        fn with(precision: u32, seed: u64, items: u64) -> Self {
            let mut owner = Self::new(precision);
            owner.count(seed, items);
            owner
        }

        fn count(&mut self, seed: u64, items: u64) {
            let mut spare = vec![0; 1 << self.precision];
            for nth in 0..items {
                let memory = Memory { bytes: &mut self.bytes, spare: &mut spare, precision: self.precision };
                self.counter.count(memory, mix(seed << 32 | nth));
            }
        }

        fn merge(&mut self, other: &Self) {
            let mut spare = vec![0; 1 << self.precision];
            let memory = Memory { bytes: &mut self.bytes, spare: &mut spare, precision: self.precision };
            self.counter.merge(memory, other.counter, &other.bytes);
        }

        fn is_set(&self) -> bool {
            matches!(self.counter.kept, Kept::Set(_))
        }

        fn items(&self) -> Estimate {
            self.counter.items(&self.bytes, self.precision, CERTAINTY)
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn scores_are_as_exact_as_stated() {
        const ITEMS: u64 = 20_000;
        const SEEDS: u64 = 300;
        for precision in PRECISIONS {
            let error = |seed| Owner::with(precision, seed, ITEMS).counter.score() as f64 / ITEMS as f64 - 1.0;
            let (mut sum, mut squares) = (0.0, 0.0);
            for error in (0..SEEDS).map(error) {
                sum += error;
                squares += error * error;
            }
            let (mean, deviation) = (sum / SEEDS as f64, libm::sqrt(squares / SEEDS as f64));
            // A standard deviation of 300 values is known to 4 %, and their mean to 1 / sqrt(300) of it.
            let ratio = deviation / relative_error(precision);
            assert!((0.85..1.15).contains(&ratio), "{deviation} is {ratio} of the stated error");
            assert!(mean.abs() < 0.25 * deviation, "{mean} on average");
        }
    }

    #[test]
    fn it_is_exact_while_it_has_room_and_bounds_hold_beyond() {
        for items in (0..=800).step_by(100) {
            let owner = Owner::with(11, 2, items);
            let Estimate { value, lower, upper } = owner.items();
            assert!(owner.is_set() && owner.counter.score() == value && value == lower);
            assert!(value + 1 >= items && upper >= items && upper - lower <= 6, "{items}: {lower} to {upper}");
        }
        // This does not happen as soon as one bucket is full, because that would depend on the order of items.
        assert!((820..840).any(|items| Owner::with(11, 2, items).counter.kept == Kept::Set(set::room(11))));
        assert!(!Owner::with(11, 2, 840).is_set());
        for items in [1_000, 5_000, test_size::of(300_000, 6_000) as u64] {
            let owner = Owner::with(11, 4, items);
            let Estimate { lower, upper, .. } = owner.items();
            assert!(!owner.is_set() && (lower..=upper).contains(&items), "{items}: {lower} to {upper}");
        }
    }

    #[test]
    fn repeated_items_change_nothing() {
        for (precision, items) in [(8, 50), (8, 1_000), (6, 50)] {
            let owner = Owner::with(precision, 1, items);
            let mut twice = owner.clone();
            twice.count(1, items);
            assert_eq!(twice, owner);
        }
        assert_eq!(Counter::new(7, 8).score(), 7);
    }

    #[test]
    fn merged_counters_have_the_items_of_both() {
        for precision in PRECISIONS {
            for (ours, theirs) in [(0, 0), (30, 0), (0, 30), (50, 40), (80, 90), (30, 2_000), (2_000, 30), (2_000, 900)]
            {
                let (one, other) = (Owner::with(precision, 1, ours), Owner::with(precision, 2, theirs));
                let (mut here, mut there) = (one.clone(), other.clone());
                here.merge(&other);
                there.merge(&one);
                let score = one.counter.score.saturating_add(other.counter.score);
                assert_eq!((here.counter.score, there.counter.score), (score, score));
                assert_eq!(here.items(), there.items(), "{precision} {ours} {theirs}");
                if !here.is_set() {
                    assert_eq!(here, there, "registers and what they can still count are the same in either order");
                    // The registers determine the probability of the next change.
                    assert_eq!(here.counter.kept, Kept::Registers(open(&here.bytes, precision)));
                }
                let Estimate { lower, upper, .. } = here.items();
                assert!((lower..=upper).contains(&(ours + theirs)), "{ours} {theirs}: {lower} to {upper}");
                // The merged counter continues to count, and its content is known.
                let mut more = here.clone();
                more.merge(&one);
                more.merge(&other);
                assert_eq!(more.items(), here.items());
            }
        }
    }

    #[test]
    fn few_items_may_have_been_mistaken_for_others() {
        // Of 3,000 items among 2^23, half a pair is expected to be equal. More than 5 pairs have a probability of
        // 0.000,02.
        let of = set::distinguishable(13);
        assert_eq!((mistaken_for_others(3_000, of, 1e-4), mistaken_for_others(3_000, of, 1e-9)), (5, 9));
        assert_eq!((mistaken_for_others(0, of, 1e-9), mistaken_for_others(1, of, 1e-3)), (0, 0));
        // For 10 items of 100: one equal pair among 11 has a probability of 0.42, two among 12 have 0.14, and three
        // among 13 have 0.05.
        assert_eq!([0.5, 0.4, 0.1].map(|probability| mistaken_for_others(10, 100.0, probability)), [0, 1, 2]);
    }

    #[test]
    fn a_rank_is_as_rare_as_the_zeros_before_it() {
        assert_eq!([0, 1, SCALE, SCALE + 1].map(probability), [1 << SCALE, 1 << (SCALE - 1), 1, 0]);
    }
}
