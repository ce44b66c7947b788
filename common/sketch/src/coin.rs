//! The coin that decides which keys become candidates.

use crate::hash::scale;

/// A coin that was tossed for a weight. It shows head for every price that is low enough.
#[derive(Clone, Copy)]
pub struct Coin {
    drawn: u64,
    weight: u64,
}

impl Coin {
    #[inline(always)]
    pub const fn toss(random: &mut u64, weight: u64) -> Self {
        // Knuth's linear congruential generator (1998, section 3.3.4). Only its high bits are random, and only they
        // decide.
        *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        Self::drawn(*random, weight)
    }

    /// The coin for which [`Coin::toss`] left this state.
    #[inline(always)]
    pub const fn drawn(random: u64, weight: u64) -> Self {
        Self { drawn: random, weight }
    }

    /// True with the probability weight / (weight + price), both below 2^63. Always true if the weight is larger than
    /// the price: a key with more weight at once than the smallest candidate has in all needs no coin. If it is true
    /// for a price, it is true for every lower price.
    #[inline(always)]
    pub const fn is_head(self, price: u64) -> bool {
        !self.is_needed(price) || scale(self.drawn, self.weight + price) < self.weight
    }

    /// Returns true if the coin is needed, because the weight alone does not decide.
    #[inline(always)]
    pub const fn is_needed(self, price: u64) -> bool {
        self.weight <= price
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn coins_are_fair() {
        let mut random = 5;
        for (weight, price) in [(1, 1), (1, 9), (572, 100_000), (1 << 62, 1 << 62), (1, 0)] {
            let heads = (0..100_000).filter(|_| Coin::toss(&mut random, weight).is_head(price)).count() as f64;
            let expected = 100_000.0 * weight as f64 / (weight as f64 + price as f64);
            // Five standard deviations are allowed.
            assert!((heads - expected).abs() <= 5.0 * expected.sqrt(), "{weight}, {price}: {heads}");
        }
        assert!((0..1_000).all(|_| Coin::toss(&mut random, 10).is_head(9)), "a weight above the price needs no coin");
    }
}
