//! How many items a key may have touched while it was not held.

use alloc::vec::Vec;

use super::{CHANCES, poisson::expected_if_no_more};

/// How many items a key may have touched while it was not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The price when it was held again. Its counts from earlier times add up to less.
    before: u64,
    /// The price for which it waited; 0 if every pair was taken.
    waited: u64,
    /// How often it was held before, at most.
    times: u32,
}

impl Missed {
    /// The numbers that it consists of, for an image.
    pub const fn numbers(self) -> [u64; 3] {
        [self.before, self.waited, self.times as u64]
    }

    /// The value with these numbers, from an image.
    pub const fn of_numbers(before: u64, waited: u64, times: u32) -> Self {
        Self { before, waited, times }
    }

    /// For a key that is held for this price, and left at most this many times before. The largest number means any
    /// number of times.
    pub fn new(price: u64, times: u8) -> Self {
        // Each time that it was held, it had at least one item.
        let known = if times == u8::MAX { u64::MAX } else { times.into() };
        let times = known.min(price).min(u32::MAX.into()) as u32;
        let (before, waited) = (if times > 0 { price } else { 0 }, if price > CHANCES { price } else { 0 });
        Self { before, waited, times }
    }

    /// Adds the items that it may have missed in another table.
    pub fn and(self, other: Self) -> Self {
        Self {
            before: self.before.saturating_add(other.before),
            waited: self.waited.saturating_add(other.waited),
            times: self.times.max(other.times),
        }
    }

    /// How many items it missed on average, while it waited for the last time.
    pub const fn usual(self) -> u64 {
        self.waited / CHANCES
    }

    /// How many items it missed at most. `waits` has the number of rare pairs for which it may have waited, and `error`
    /// is the relative error of a score.
    pub fn most(self, waits: &[f64], error: f64) -> u64 {
        let Self { before, waited, times } = self;
        let pairs = waits.get(times as usize).copied().unwrap_or(f64::INFINITY) * waited as f64 / CHANCES as f64;
        libm::ceil(before as f64 * (1.0 + error) + if waited == 0 { 0.0 } else { pairs }) as u64
    }
}

/// How many rare pairs a key may have waited for, if it left at most this many times. A larger number has at most this
/// probability.
///
/// It waited for one more rare pair than it left. Each of its pairs was rare enough with a probability of [`CHANCES`] /
/// price, or more while the price was lower. So the number of its pairs is the number of rare pairs times price /
/// [`CHANCES`].
pub fn waits(times: u32, probability: f64) -> Vec<f64> {
    (0..=times.min(EVENTS_MAX)).map(|times| expected_if_no_more(times, probability)).collect()
}

/// More events would be meaningless for a single key.
const EVENTS_MAX: u32 = 254;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_items_grow_with_the_price_and_the_confidence() {
        /// One pair in a hundred is rare enough.
        const PRICE: u64 = 100 * CHANCES;
        let missed = Missed::new(PRICE, 0);
        let most = |missed: Missed, probability| missed.most(&waits(3, probability), 0.1);
        // This is 100 times the logarithm.
        assert_eq!((most(missed, 0.1), most(missed, 1e-6)), (231, 1_382));
        assert_eq!(missed.usual(), 100);
        let every_pair = Missed::new(CHANCES, 0);
        assert_eq!((every_pair.usual(), most(every_pair, 0.01)), (0, 0));
        // It left once. Its earlier count was at most the price, with an error of 10 %, and it waited for two rare
        // pairs.
        assert_eq!(most(Missed::new(PRICE, 1), 0.05), PRICE + PRICE / 10 + 475);
        assert_eq!(Missed::new(1, 9), Missed { before: 1, waited: 0, times: 1 });
        assert_eq!(most(Missed::new(CHANCES, 9), 0.05), CHANCES + 1, "every pair was taken while the price was so low");
        let both = missed.and(Missed::new(40, 3));
        assert_eq!(both, Missed { before: 40, waited: PRICE + 40, times: 3 });
        assert_eq!(most(Missed::new(PRICE, 4), 0.1), u64::MAX, "so many times are not distinguished");
        assert_eq!(Missed::new(300, u8::MAX).times, 300, "this many times, or more");
        assert_eq!(Missed::new(300, u8::MAX).most(&waits(300, 0.1), 0.1), u64::MAX, "the number is unknown");
    }
}
