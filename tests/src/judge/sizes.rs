//! Packet sizes: classes, quantiles, and the bytes that follow from them.

use serde_json::Value;

use super::{Faults, Whole, list};

/// Coarse classes have the same edges as the fine ones of the histogram up to here.
const COARSE: usize = 7;

pub(super) fn judge(report: &Value, whole: &Whole, faults: &mut Faults) {
    let histogram = &report["histograms"]["packet_size_bytes"];
    if histogram.is_null() {
        // Unions of several windows have no sizes.
        return;
    }
    let place = ".histograms.packet_size_bytes";
    let number = |name: &str| histogram[name].as_u64().unwrap_or_default();
    let count = number("count");
    let packets = whole.once.packets.value;
    if !whole.is_late {
        faults.at_most(&format!("{place}.count"), count, packets);
        faults.at_most(&format!("{place}: without a size"), packets - count.min(packets), whole.sizeless);
    }
    let ordered = ["min", "p50", "p90", "p99", "max"].map(number);
    faults.expect(ordered.is_sorted(), place, || format!("{ordered:?} are not in order"));
    let buckets: Vec<(u64, u64)> = serde_json::from_value(histogram["buckets"].clone()).unwrap_or_default();
    faults.expect(buckets.is_sorted_by(|(low, _), (high, _)| low < high), place, || format!("edges of {buckets:?}"));
    faults.equal(&format!("{place}.buckets"), buckets.iter().map(|(_, packets)| packets).sum(), count);
    if whole.sizeless == 0 && !whole.is_late {
        bytes_of(&buckets, number("max"), whole.once.bytes.value, faults);
    }
    if !whole.has_repeated && !whole.is_late {
        coarse(report, &buckets, faults);
    }
}

/// Checks that the bytes of the ledger are possible with these buckets. Packets that an offload merged count with their
/// mean size, rounded down to a byte.
fn bytes_of(buckets: &[(u64, u64)], max: u64, bytes: u64, faults: &mut Faults) {
    let (mut least, mut most, mut low) = (0_u128, 0_u128, 0_u64);
    for (edge, packets) in buckets {
        least += u128::from(low) * u128::from(*packets);
        most += u128::from((*edge).min(max) + 1) * u128::from(*packets);
        low = edge + 1;
    }
    // All packets that are larger than the last edge are in the last bucket.
    if buckets.last().is_some_and(|(edge, _)| *edge < max) {
        return;
    }
    let is_between = least <= bytes.into() && u128::from(bytes) <= most;
    faults.expect(is_between, ".histograms.packet_size_bytes", || {
        format!("{bytes} bytes are not the {least} to {most} of these sizes")
    });
}

/// Checks that the classes of the interfaces add up to those of all packets.
fn coarse(report: &Value, buckets: &[(u64, u64)], faults: &mut Faults) {
    let all: Vec<Vec<(u64, u64)>> = list(&report["interfaces"])
        .iter()
        .map(|interface| serde_json::from_value(interface["packet_sizes"].clone()).unwrap_or_default())
        .collect();
    let edges: Vec<_> = all.first().into_iter().flatten().take(COARSE).map(|(edge, _)| *edge).collect();
    if !buckets.iter().zip(&edges).all(|((edge, _), coarse)| edge == coarse) {
        // The classes differ from weir's, so nothing can be compared.
        return;
    }
    for (edge, packets) in buckets.iter().take(COARSE) {
        let sum: u64 = all.iter().flatten().filter(|(known, _)| known == edge).map(|(_, packets)| packets).sum();
        faults.equal(&format!(".histograms.packet_size_bytes, up to {edge}"), *packets, sum);
    }
}
