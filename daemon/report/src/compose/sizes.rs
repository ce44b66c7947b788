//! Packet sizes in a report: a fine distribution for all interfaces together, and a few classes for each interface.

use weir_common::{ledger::PacketSizes, size::COARSE_EDGES};
use weir_measure::sizes::Sizes;
use weir_schema::Histogram;

/// Upper edges of the packet-size buckets, in bytes: first the coarse classes, then jumbo frames and merged segments.
const EDGES: [u64; 12] = {
    let mut edges = [0, 0, 0, 0, 0, 0, 0, 4095, 9215, 16_383, 65_535, 1 << 20];
    let mut nth = 0;
    while nth < COARSE_EDGES.len() {
        edges[nth] = COARSE_EDGES[nth];
        nth += 1;
    }
    edges
};

/// The upper edge of the last coarse class, which includes all larger packets.
const LAST_EDGE: u64 = EDGES[EDGES.len() - 1];

/// The distribution of all packets.
pub(super) fn histogram(sizes: &Sizes) -> Histogram {
    if sizes.is_empty() {
        return Histogram::default();
    }
    let mut buckets = Vec::new();
    let mut low = 0;
    for edge in EDGES {
        if low > sizes.largest() {
            break;
        }
        // The last class has all larger packets.
        let high = if edge == LAST_EDGE { u64::MAX } else { edge };
        buckets.push((edge, sizes.count_between(low, high)));
        low = edge + 1;
    }
    Histogram {
        count: sizes.len(),
        min: sizes.smallest(),
        p50: sizes.at_quantile(0.5),
        p90: sizes.at_quantile(0.9),
        p99: sizes.at_quantile(0.99),
        max: sizes.largest(),
        buckets,
    }
}

/// The packets of one interface: each class as its upper edge, and how many packets it has.
pub(super) fn buckets(sizes: PacketSizes) -> Vec<(u64, u64)> {
    COARSE_EDGES.into_iter().chain([LAST_EDGE]).zip(sizes.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fine_and_coarse_buckets_have_the_same_edges() {
        assert!(EDGES.is_sorted() && EDGES.starts_with(&COARSE_EDGES), "{EDGES:?}");
        let buckets = buckets(PacketSizes([1, 2, 3, 4, 5, 6, 7, 8]));
        let expected = [(64, 1), (127, 2), (255, 3), (511, 4), (1_023, 5), (1_518, 6), (2_047, 7), (1_048_576, 8)];
        assert_eq!(buckets, expected);
    }
}
