//! The priorities of flow records in the samples that the history keeps: `weir_schema::flow_sample` says what they are
//! for. They are here because what draws the samples and what reads them have nothing else in common.

use weir_common::ledger::Tally;

/// What a packet weighs at least, in bytes: near the mean size of packets on the Internet, so that sums of packets have
/// bounds that are about as close as those of bytes.
pub const BYTES_PER_PACKET: u64 = 512;

/// What a record weighs, in bytes.
#[inline(always)]
pub const fn weight(Tally { packets, bytes }: Tally) -> u64 {
    let of_packets = packets.saturating_mul(BYTES_PER_PACKET);
    if of_packets > bytes { of_packets } else { bytes }
}

/// A number from 0 to 1, never 0, from 64 random bits. A priority is a weight divided by such a number.
#[inline(always)]
pub const fn fraction(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_weighs_its_bytes_or_those_of_usual_packets() {
        let weights = [(1, 1_500), (1, 60), (100, 6_000), (0, 0), (u64::MAX, 1)];
        let weights = weights.map(|(packets, bytes)| weight(Tally::new(packets, bytes)));
        assert_eq!(weights, [1_500, 512, 51_200, 0, u64::MAX]);
        assert_eq!((fraction(u64::MAX), fraction(0) > 0.0, fraction(1 << 63)), (1.0, true, 0.5 + fraction(0)));
    }
}
