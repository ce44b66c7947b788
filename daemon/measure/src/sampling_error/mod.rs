//! The error of sampling: bounds that hold for a whole list at once, and the value between them.
//!
//! A list favours lucky keys. So bounds that hold for a key chosen beforehand do not hold for a list: among many small
//! keys, it shows those whose samples are far too large. The bounds here hold for *all* keys of a dimension together,
//! in packets and in bytes, below and above, with the stated confidence. So they hold for the keys of a list, however
//! they were chosen (Berk et al., "Valid post-selection inference", 2013).
//!
//! The method: packets and bytes, lower and upper bounds each get a quarter of 1 - confidence. That share is divided by
//! size: if all keys have `total`, the bounds of a key of true size T may fail with the probability share * T / total.
//! These add up to the share (Bonferroni's inequality, with weights). The possible sizes T of a key with a sample x are
//! those for which x is not too far out (`limits.rs`).
//!
//! If packets are drawn one by one, all at one rate, the sample is Bin(T, 1/N). All other cases are covered by
//! Chernoff's tail of Bin(S / B, 1/N). S is the true sum, B the largest unit that one draw takes (the largest packet,
//! or buffer of merged packets), and N the highest rate in force. A unit of size b <= B that is taken with probability
//! 1/n >= 1/N, and then counts n b, has the cumulant generating function, in units of NB,
//! ln(1 + (exp(s n b / (N B)) - 1) / n). That is convex in b and 0 at b = 0, hence at most b/B of its value at b = B;
//! and there it rises with n (Hoeffding, 1963). So the function of the sum is at most that of the binomial variable.

mod limits;
mod value;

use weir_common::{ledger::Tally, sketch::Metric};

use self::limits::Draw;

/// The error of sampling in one window.
#[derive(Clone, Copy, Debug)]
pub struct SamplingError {
    rate: u64,
    is_steady: bool,
    packets: Drawn,
    bytes: Drawn,
}

/// The error of one metric.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    draw: Draw,
    /// The most that one draw takes, times the rate.
    unit: f64,
    total: u64,
}

/// The sampling of a window.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// N: no packet was left out at a higher rate than one in N.
    pub rate: u32,
    /// True if all packets were drawn at this rate.
    pub is_steady: bool,
    /// The most that one draw takes: one packet of the largest size, or more if offloads merge packets.
    pub largest: Tally,
    /// A lower bound of the sum of all keys.
    pub total: Tally,
}

impl SamplingError {
    /// The error of this sampling. The bounds of all keys of a dimension hold together with the probability
    /// `confidence`.
    pub fn new(sampling: Sampling, confidence: f64) -> Self {
        /// Packets and bytes, below and above.
        const SHARES: f64 = 4.0;
        let Sampling { rate, is_steady, largest, total } = sampling;
        let share = (1.0 - confidence) / SHARES;
        let drawn = |metric: Metric, whole: bool| {
            let (largest, total) = (metric.of(largest).max(1) as f64, metric.of(total));
            let draw = Draw::new(1.0 / f64::from(rate), total as f64 / largest, share, whole);
            Drawn { draw, unit: largest * f64::from(rate), total }
        };
        Self {
            rate: rate.into(),
            is_steady,
            packets: drawn(Metric::Packets, is_steady && largest.packets == 1),
            bytes: drawn(Metric::Bytes, false),
        }
    }

    /// The range of a key's true sum. Its samples, each times its rate, add up to between `lower` and `upper`.
    pub fn bounds(&self, metric: Metric, lower: u64, upper: u64) -> (u64, u64) {
        /// The relative rounding error of a limit.
        const ROUNDING: f64 = 1e-9;
        let Drawn { draw, unit, total } = self.of(metric);
        let size = unit / self.rate as f64;
        let least = size * draw.least(lower as f64 / unit) * (1.0 - ROUNDING);
        let largest = size * draw.largest(upper as f64 / unit) * (1.0 + ROUNDING);
        // The samples of a lucky key that has nearly everything may stand for more than there was.
        let largest = (largest as u64).min(*total);
        ((least.ceil() as u64).min(largest), largest)
    }

    /// The likeliest true sums of a key whose samples, each times its rate, add up to `scaled`. To be listed, a key
    /// needed `needed` in this metric; 0 if the list has room for all. If the rate changed, it is unknown how many
    /// packets were taken at which rate. Then the result is the scaled sum, which is right on average.
    pub fn likeliest(&self, scaled: Tally, metric: Metric, needed: u64) -> Tally {
        if !self.is_steady {
            return scaled;
        }
        let rate = self.rate as f64;
        let sample = scaled.packets as f64 / rate;
        let own = metric.of(scaled).max(1) as f64;
        let needed = (sample * needed as f64 / own).max(1.0);
        let packets = value::likeliest(sample, needed, 1.0 / rate);
        let part = packets / scaled.packets.max(1) as f64;
        Tally::new(packets.round() as u64, (scaled.bytes as f64 * part).round() as u64)
    }

    /// The taken part of a sum of samples, each times its rate; exact if the rate is steady. Packets that were taken at
    /// a lower rate count for less.
    pub const fn taken(&self, scaled: Tally) -> Tally {
        Tally::new(scaled.packets / self.rate, scaled.bytes / self.rate)
    }

    /// The most that missing samples add to a sum of samples, each times its rate.
    #[must_use]
    pub const fn scaled(&self, missing: Tally) -> Tally {
        Tally::new(missing.packets.saturating_mul(self.rate), missing.bytes.saturating_mul(self.rate))
    }

    const fn of(&self, metric: Metric) -> &Drawn {
        match metric {
            Metric::Packets => &self.packets,
            Metric::Bytes => &self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(is_steady: bool, largest: Tally) -> SamplingError {
        let total = Tally::new(60_000, 60_000_000);
        SamplingError::new(Sampling { rate: 10, is_steady, largest, total }, 0.999)
    }

    const PACKET: Tally = Tally::new(1, 1_514);

    #[test]
    fn the_sample_is_the_lower_bound_and_one_packet_may_have_been_all() {
        let error = error(true, PACKET);
        assert_eq!(error.bounds(Metric::Packets, 10, 10).0, 1);
        assert_eq!(error.bounds(Metric::Packets, 0, 0).0, 0);
        // A sample of zero is rare above this: 0.9^T = share T / total. T = 136 is the last. The limits first use the
        // share of a smaller key, of 78.7 packets: 0.9^141.7 is that.
        assert_eq!(error.bounds(Metric::Packets, 0, 0).1, 141);
        let (lower, upper) = error.bounds(Metric::Bytes, 600, 600);
        assert!((60..100).contains(&lower) && upper > 136 * 1_000, "{lower} to {upper}");
    }

    #[test]
    fn no_key_has_more_than_the_total() {
        assert_eq!(error(true, PACKET).bounds(Metric::Packets, 590_000, 600_000).1, 60_000);
        // 7,000 of 60,000 packets were taken; a draw of 1 in 10 takes 6,000 on average.
        assert_eq!(error(true, PACKET).bounds(Metric::Packets, 70_000, 70_000), (60_000, 60_000));
        let (lower, upper) = error(true, PACKET).bounds(Metric::Bytes, 90_000_000, 90_000_000);
        assert!(lower == upper && upper == 60_000_000, "{lower} to {upper}");
    }

    #[test]
    fn a_changed_rate_or_a_larger_draw_widens_the_bounds() {
        let width = |error: SamplingError| {
            let (lower, upper) = error.bounds(Metric::Packets, 10_000, 10_000);
            upper - lower
        };
        let steady = width(error(true, PACKET));
        let changing = width(error(false, PACKET));
        let merged = width(error(true, Tally::new(128, 128 << 10)));
        assert!(steady < changing && changing < steady * 5 / 4, "{steady}, {changing}");
        assert!(merged > 5 * changing, "{merged}");
    }

    #[test]
    fn the_likeliest_size_is_between_the_sample_and_the_scaled_sum() {
        let (steady, scaled) = (error(true, PACKET), Tally::new(300, 30_000));
        assert_eq!(
            steady.likeliest(scaled, Metric::Packets, 0),
            scaled,
            "far above the least that was needed to be listed"
        );
        assert_eq!(steady.likeliest(scaled, Metric::Bytes, 30_000), Tally::new(30, 3_000), "just enough to be listed");
        let between = steady.likeliest(scaled, Metric::Packets, 250);
        assert!((150..300).contains(&between.packets), "{between:?}");
        assert_eq!(error(false, PACKET).likeliest(scaled, Metric::Bytes, 30_000), scaled);
        assert_eq!(steady.taken(scaled), Tally::new(30, 3_000));
    }
}
