//! Finds the number of keys that makes a set of registers likeliest.
//!
//! Keys arrive at a register as a Poisson process. Keys of rank k have 2^-k of the whole rate. For some ranks, a
//! register shows that a key arrived, for others that none did, and for the rest nothing. So the likelihood of a rate x
//! is exp(-x a) times the product over k of (1 - exp(-x 2^-k))^b(k), where a is the sum of the probabilities of ranks
//! that did not arrive, and b(k) is the number of registers at which rank k arrived (Ertl, 2023, section 3.1).

/// An upper limit of ranks.
pub const RANKS: usize = 64;

/// The information from all registers together.
#[derive(Clone, Copy, Debug)]
pub struct Likelihood {
    absent: f64,
    present: [u32; RANKS],
    /// All ranks from this one on count as one. It is as probable as the next lower rank.
    highest: u32,
}

impl Likelihood {
    /// Creates it without registers. Ranks end at `highest`.
    pub const fn new(highest: u32) -> Self {
        Self { absent: 0.0, present: [0; RANKS], highest }
    }

    /// Adds registers at which no key arrived.
    pub fn empty(&mut self, registers: u32) {
        self.absent += f64::from(registers);
    }

    /// Adds registers with this highest rank. `before` has the two lower ranks: bit 1 is set if the next lower rank
    /// arrived, and bit 0 for the one below that.
    pub fn filled(&mut self, registers: u32, rank: u32, before: u8) {
        let count = f64::from(registers);
        if rank < self.highest {
            self.absent += count * power(rank);
        }
        self.present[rank as usize] += registers;
        for (below, came) in [(1, before & 2), (2, before & 1)] {
            if rank > below {
                if came == 0 {
                    self.absent += count * power(rank - below);
                } else {
                    self.present[(rank - below) as usize] += registers;
                }
            }
        }
    }

    /// The likeliest number of keys per register; infinite if every register is full.
    ///
    /// There the derivative of the logarithm, times x, is zero: x a = sum of b(k) h(x 2^-k) with h(x) = x / (exp(x) -
    /// 1). The difference of the two sides grows and is concave in x, so every step of Newton's method approaches the
    /// root from the left.
    pub fn keys_per_register(&self) -> f64 {
        let ranks = || (1..).zip(&self.present[1..]).filter(|(_, count)| **count > 0);
        let probability = |rank: u32| power(rank.min(self.highest - 1));
        let (mut total, mut half) = (0.0, self.absent);
        for (rank, count) in ranks() {
            total += f64::from(*count);
            half += 0.5 * f64::from(*count) * probability(rank);
        }
        if total == 0.0 || self.absent == 0.0 {
            return if total == 0.0 { 0.0 } else { f64::INFINITY };
        }
        // This would be the root if h were its tangent at 0, which is below h.
        let mut x = total / half;
        for _ in 0..64 {
            let (mut difference, mut slope) = (x * self.absent, self.absent);
            for (rank, count) in ranks() {
                let (count, probability) = (f64::from(*count), probability(rank));
                let (value, derivative) = h(x * probability);
                difference -= count * value;
                slope -= count * probability * derivative;
            }
            let step = difference / slope;
            x -= step;
            if step.abs() <= 1e-7 * x {
                break;
            }
        }
        x
    }
}

/// 2^-rank.
fn power(rank: u32) -> f64 {
    1.0 / (1u64 << rank) as f64
}

/// x / (exp(x) - 1), and its derivative.
fn h(x: f64) -> (f64, f64) {
    if x < 1e-5 {
        return (1.0 - 0.5 * x, -0.5);
    }
    let less_one = libm::expm1(x);
    let value = x / less_one;
    (value, (1.0 - x - value) / less_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_where_the_likelihood_is_greatest() {
        let mut likelihood = Likelihood::new(51);
        likelihood.empty(3);
        for (registers, rank, before) in [(40, 1, 0), (20, 2, 2), (9, 3, 1), (5, 4, 3), (1, 9, 0)] {
            likelihood.filled(registers, rank, before);
        }
        // The same is computed by hand: a, and the logarithm of the whole likelihood.
        let absent = 3.0 + 40.0 / 2.0 + 20.0 / 4.0 + 9.0 * (1.0 / 8.0 + 1.0 / 4.0) + 5.0 / 16.0 + 1.0 / 512.0 * 7.0;
        let present = [(1, 40.0 + 20.0 + 9.0), (2, 20.0 + 5.0), (3, 9.0 + 5.0), (4, 5.0), (9, 1.0)];
        let logarithm = |x: f64| {
            let one = |(rank, count): (i32, f64)| count * (1.0 - (-x * 0.5f64.powi(rank)).exp()).ln();
            present.into_iter().map(one).sum::<f64>() - x * absent
        };
        let best = likelihood.keys_per_register();
        assert!(logarithm(best) > logarithm(best * 1.001) && logarithm(best) > logarithm(best / 1.001), "{best}");
    }

    #[test]
    fn extremes_have_an_answer() {
        let mut likelihood = Likelihood::new(51);
        likelihood.empty(4);
        assert_eq!(likelihood.keys_per_register(), 0.0);
        likelihood.filled(1, 51, 0);
        assert!(likelihood.keys_per_register() > 0.0);
        let mut full = Likelihood::new(51);
        full.filled(16, 51, 3);
        assert_eq!(full.keys_per_register(), f64::INFINITY);
    }
}
