//! Sampling: one packet in N, at random, so that no traffic pattern can hide between the samples.
//!
//! Each packet is taken with probability 1/N, independently of all others. There is no draw per packet. One draw
//! determines how many packets are left out before the next one is taken, which follows the geometric distribution
//! (Vitter, 1987). A packet that is taken stands for N packets, so sums of taken packets, times N, are unbiased. They
//! stay unbiased while N changes: the next draw uses the new N, and each packet stands for the N of its own draw.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The largest N.
pub const RATE_MAX: u32 = u16::MAX as u32;

/// The sampling rate of one CPU. Userspace sets it for the kernel side.
///
/// It fills a cache line, so that CPUs do not share one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Valve {
    /// N: one packet in this many is taken, 1 to [`RATE_MAX`].
    pub rate: u32,
    /// 1 / -log2(1 - 1/N), with 16 fractional bits; 0 for N = 1.
    pub scale: u32,
    /// Padding to the end of the cache line.
    pub padding: [u64; 7],
}

const _: () = assert!(size_of::<Valve>() == 64);

impl Valve {
    /// Takes every packet.
    pub const OPEN: Self = Self { rate: 1, scale: 0, padding: [0; 7] };

    /// Takes one packet in `rate`, which is clamped to the range from 1 to [`RATE_MAX`].
    #[cfg(feature = "sketch")]
    pub fn one_in(rate: u32) -> Self {
        let rate = rate.clamp(1, RATE_MAX);
        let scale = if rate == 1 { 0.0 } else { -core::f64::consts::LN_2 / libm::log1p(-1.0 / f64::from(rate)) };
        Self { rate, scale: (scale * 65_536.0) as u32, padding: [0; 7] }
    }

    /// How many packets to leave out before the next one is taken, from a 32-bit random number.
    ///
    /// By inversion: with u uniform in (0, 1], floor(log u / log(1 - 1/N)) is geometric.
    #[inline(always)]
    pub const fn left_out(&self, random: u32) -> u32 {
        ((minus_log2(random) as u64 * self.scale as u64) >> 32) as u32
    }
}

/// -log2((x + 1) / 2^32), with 16 fractional bits, computed bit by bit through squaring.
#[inline(always)]
const fn minus_log2(x: u32) -> u32 {
    const BITS: u32 = 16;
    let x = x as u64 + 1;
    // Between 2^31 and 2^32, which represent 1 and 2.
    let exponent = 63 - x.leading_zeros();
    let mut mantissa = if exponent > 31 { x >> (exponent - 31) } else { x << (31 - exponent) };
    let mut fraction = 0;
    let mut bit = 0;
    while bit < BITS {
        mantissa = (mantissa * mantissa) >> 31;
        let above = (mantissa >> 32) as u32;
        mantissa >>= above;
        fraction = fraction << 1 | above;
        bit += 1;
    }
    ((32 - exponent) << BITS) - fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_right_to_the_last_bit_but_one() {
        for x in [0, 1, 2, 3, 99, 65_535, 1 << 20, (1 << 31) - 1, 1 << 31, u32::MAX - 1, u32::MAX] {
            let exact = 32.0 - f64::from(x).ln_1p() / core::f64::consts::LN_2;
            let found = f64::from(minus_log2(x)) / 65_536.0;
            assert!((found - exact).abs() < 2.0 / 65_536.0, "{x}: {found}, not {exact}");
        }
    }

    #[test]
    fn an_open_valve_leaves_nothing_out() {
        assert_eq!(Valve::one_in(1), Valve::OPEN);
        assert!([0, 1, u32::MAX / 2, u32::MAX].iter().all(|random| Valve::OPEN.left_out(*random) == 0));
    }

    /// The midpoints of many equal parts of the random numbers: their mean is the mean of all.
    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn one_packet_in_n_is_taken_on_average() {
        const PARTS: u32 = 1 << 20;
        for rate in [2, 3, 10, 100, 1_000, RATE_MAX] {
            let valve = Valve::one_in(rate);
            let draws = (0..PARTS).map(|part| u64::from(valve.left_out(part << 12 | 1 << 11)) + 1);
            let mean = draws.sum::<u64>() as f64 / f64::from(PARTS);
            assert!((mean / f64::from(rate) - 1.0).abs() < 2e-4, "one in {mean}, not in {rate}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn gaps_are_geometric() {
        let valve = Valve::one_in(4);
        let draws = 1 << 16;
        for gap in 0..12 {
            let longer = (0..draws).filter(|draw| valve.left_out(draw << 16 | 1 << 15) >= gap).count();
            let expected = 0.75_f64.powi(gap as i32);
            assert!((longer as f64 / f64::from(draws) - expected).abs() < 1e-4, "{gap}: {longer}");
        }
    }
}
