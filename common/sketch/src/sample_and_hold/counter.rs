//! The counter of a held key: how it grows, and how much it has.

use crate::{rank, ultraloglog::register};

/// The bits behind the point of a score.
const FRACTION: u32 = 8;
/// The probability that something changes is counted in units of 2 to the minus this.
const SCALE: u32 = 40;

/// How many items came, while they come: each that changes the highest rank of a register stands for as many as it takes
/// on average until one does (Ting, "Streamed approximate counting of distinct elements", 2014). So it is known at every
/// moment, without a look at the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// What it had at the beginning, and the items since, with [`FRACTION`] bits behind the point.
    score: u64,
    /// The probability that the next item changes the highest rank of its register, times the registers.
    open: u64,
}

impl Counter {
    /// One that begins with this score, and with empty registers.
    pub const fn new(score: u64, precision: u32) -> Self {
        Self { score: score << FRACTION, open: 1 << (SCALE + precision) }
    }

    /// The whole items of its score.
    pub const fn score(self) -> u64 {
        self.score >> FRACTION
    }

    /// Counts the item with this hash in registers.
    #[inline(always)]
    pub fn count(&mut self, registers: &mut [u8], precision: u32, hash: u64) {
        let (at, rank) = rank::place(hash, precision, registers.len() - 1);
        let before = registers[at];
        registers[at] = register::with(before, u32::from(rank) + precision - 2);
        let highest = rank_of(before, precision);
        if u32::from(rank) > highest {
            let whole = (1u128 << (SCALE + precision + FRACTION)) / u128::from(self.open.max(1));
            self.score = self.score.saturating_add(whole as u64);
            self.open -= probability(highest) - probability(rank.into());
        }
    }

    /// With what another one counted.
    pub const fn and(self, other: Self) -> Self {
        Self { score: self.score.saturating_add(other.score), ..self }
    }

    /// The same, after something else came to its registers.
    pub fn settled(self, registers: &[u8], precision: u32) -> Self {
        Self { open: registers.iter().map(|register| probability(rank_of(*register, precision))).sum(), ..self }
    }
}

/// The relative standard error of a score: that of the highest ranks, counted while they come (Ting, 2014).
pub fn relative_error(precision: u32) -> f64 {
    const ERROR_FACTOR: f64 = 0.8326;
    ERROR_FACTOR / libm::sqrt((1u64 << precision) as f64)
}

/// The highest rank that came to a register; 0 if none did.
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
    use crate::{hash::mix, ultraloglog};

    const PRECISION: u32 = 8;

    fn counted(seed: u64, items: u64) -> (Counter, [u8; 1 << PRECISION]) {
        let (mut counter, mut registers) = (Counter::new(0, PRECISION), [0; 1 << PRECISION]);
        (0..items).for_each(|nth| counter.count(&mut registers, PRECISION, mix(seed << 32 | nth)));
        (counter, registers)
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn scores_are_as_exact_as_they_say() {
        const ITEMS: u64 = 20_000;
        const SEEDS: u64 = 300;
        let error = |seed| counted(seed, ITEMS).0.score() as f64 / ITEMS as f64 - 1.0;
        let (mut sum, mut squares) = (0.0, 0.0);
        for error in (0..SEEDS).map(error) {
            sum += error;
            squares += error * error;
        }
        let (mean, deviation) = (sum / SEEDS as f64, libm::sqrt(squares / SEEDS as f64));
        // A standard deviation of 300 is known to 4 %, and their mean to 1 / sqrt(300) of it.
        let ratio = deviation / relative_error(PRECISION);
        assert!((0.85..1.15).contains(&ratio), "{deviation} is {ratio} of what is said");
        assert!(mean.abs() < 0.25 * deviation, "{mean} on average");
    }

    #[test]
    fn what_comes_again_changes_nothing_and_counts_add_up() {
        let (mut once, mut registers) = counted(1, 1_000);
        let (before, filled) = (once, registers);
        (0..1_000).for_each(|nth| once.count(&mut registers, PRECISION, mix(1 << 32 | nth)));
        assert_eq!((once, registers), (before, filled));
        // The registers say themselves how likely the next change is.
        assert_eq!(Counter::new(0, PRECISION).and(once).settled(&registers, PRECISION), once);
        let (other, others) = counted(2, 500);
        let both = once.and(other);
        assert_eq!(both.score, once.score + other.score);
        ultraloglog::merge_all(&mut registers, &others);
        let settled = both.settled(&registers, PRECISION);
        assert!(settled.open < once.open.min(other.open), "more registers are filled");
        assert_eq!(Counter::new(7, PRECISION).score(), 7);
    }
}
