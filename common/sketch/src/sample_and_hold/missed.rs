//! What a key may have touched while it was not held.

use alloc::vec::Vec;

use super::{CHANCES, poisson::expected_if_no_more};

/// What a key may have touched while it was not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The price when it was held again: what it had when it was held before was less in all.
    before: u64,
    /// The price for which it waited; 0 if every pair was taken.
    waited: u64,
    /// It was held so often before, at most.
    times: u32,
}

impl Missed {
    /// What it consists of.
    pub const fn numbers(self) -> [u64; 3] {
        [self.before, self.waited, self.times as u64]
    }

    /// What consists of these.
    pub const fn of_numbers(before: u64, waited: u64, times: u32) -> Self {
        Self { before, waited, times }
    }

    /// Of a key that is held for this price. It left so often before, at most; or any number of times, if that is the
    /// largest number.
    pub fn new(price: u64, times: u8) -> Self {
        // Each time that it was held it had one item at least.
        let known = if times == u8::MAX { u64::MAX } else { times.into() };
        let times = known.min(price).min(u32::MAX.into()) as u32;
        let (before, waited) = (if times > 0 { price } else { 0 }, if price > CHANCES { price } else { 0 });
        Self { before, waited, times }
    }

    /// Together with what it missed in another table.
    pub fn and(self, other: Self) -> Self {
        Self {
            before: self.before.saturating_add(other.before),
            waited: self.waited.saturating_add(other.waited),
            times: self.times.max(other.times),
        }
    }

    /// How many items on average, while it waited for the last time.
    pub const fn usual(self) -> u64 {
        self.waited / CHANCES
    }

    /// At most so many items. `waits` tells how many rare pairs it may have waited for; a score has this relative
    /// error.
    pub fn most(self, waits: &[f64], error: f64) -> u64 {
        let Self { before, waited, times } = self;
        let pairs = waits.get(times as usize).copied().unwrap_or(f64::INFINITY) * waited as f64 / CHANCES as f64;
        libm::ceil(before as f64 * (1.0 + error) + if waited == 0 { 0.0 } else { pairs }) as u64
    }
}

/// How many rare pairs a key may have waited for that left so often or less: more, but with this probability.
///
/// It waited for one rare pair more than it left. Each of its pairs was rare enough with a probability of [`CHANCES`] /
/// price, or more while the price was lower. So many pairs are that times price / [`CHANCES`].
pub fn waits(times: u32, probability: f64) -> Vec<f64> {
    (0..=times.min(EVENTS_MAX)).map(|times| expected_if_no_more(times, probability)).collect()
}

/// More say nothing about a single key.
const EVENTS_MAX: u32 = 254;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_grows_with_the_price_and_with_the_certainty() {
        /// One pair in a hundred is rare enough.
        const PRICE: u64 = 100 * CHANCES;
        let missed = Missed::new(PRICE, 0);
        let most = |missed: Missed, probability| missed.most(&waits(3, probability), 0.1);
        // 100 times the logarithm.
        assert_eq!((most(missed, 0.1), most(missed, 1e-6)), (231, 1_382));
        assert_eq!(missed.usual(), 100);
        let every_pair = Missed::new(CHANCES, 0);
        assert_eq!((every_pair.usual(), most(every_pair, 0.01)), (0, 0));
        // It left once: it had so much at most then, 10 % off, and waited for two rare pairs.
        assert_eq!(most(Missed::new(PRICE, 1), 0.05), PRICE + PRICE / 10 + 475);
        assert_eq!(Missed::new(1, 9), Missed { before: 1, waited: 0, times: 1 });
        assert_eq!(most(Missed::new(CHANCES, 9), 0.05), CHANCES + 1, "every pair was taken while the price was so low");
        let both = missed.and(Missed::new(40, 3));
        assert_eq!(both, Missed { before: 40, waited: PRICE + 40, times: 3 });
        assert_eq!(most(Missed::new(PRICE, 4), 0.1), u64::MAX, "that often is not planned for");
        assert_eq!(Missed::new(300, u8::MAX).times, 300, "that often, or more often");
        assert_eq!(Missed::new(300, u8::MAX).most(&waits(300, 0.1), 0.1), u64::MAX, "nobody knows");
    }
}
