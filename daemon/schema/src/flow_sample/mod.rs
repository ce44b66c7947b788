//! A priority sample of flow records: a fixed number of records from which any question can be answered afterwards.
//!
//! Each record has a weight: its bytes, or [`BYTES_PER_PACKET`](weir_config::priority::BYTES_PER_PACKET) for each of
//! its packets, whichever is more; and a random number u from 0 to 1. Its priority is weight / u, and the sample has
//! the records of the highest priorities. The threshold is the highest priority that is not in it. (Duffield, Lund and
//! Thorup: "Priority sampling for estimation of arbitrary subset sums", Journal of the ACM, 2007.) A record that
//! weighs at least as much as the threshold is in the sample for certain and counts for itself. Any other record is in
//! it with the probability weight / threshold, and then stands for threshold / weight records like it. So the sum of
//! any subset is right on average.
//!
//! A record is what the kernel handed over, not a flow: the sum of a flow's records may be estimated like that of any
//! other subset, however often the flow left the kernel's cache. Each record has a u of its own. Two u of a flow that
//! depended on each other would need corrections, and a table of flows would need memory in the path of records.
//!
//! Samples of several windows are thinned to one: the priority of a record that is in a sample already is the larger
//! of its weight and that sample's threshold, divided by a new random number. That is the same as one sample of all
//! records. Records of one flow that are certain in their own samples become one record before that. So a large flow
//! takes the room of one record a minute, and its sum is exact.
//!
//! [`estimate`] has the bounds.

pub mod estimate;
pub mod question;
mod text;

use std::{cmp::Ordering, net::IpAddr};

use weir_common::ledger::Tally;
use weir_config::{
    Addresses,
    priority::{fraction, weight},
};
use weir_sketch::hash::mix;

/// The fields of a record by which questions can select it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordKey {
    /// The source address.
    pub src: IpAddr,
    /// The destination address.
    pub dst: IpAddr,
    /// The source port; for ICMP, the type.
    pub src_port: u16,
    /// The destination port; for ICMP, the code.
    pub dst_port: u16,
    /// The VLAN; 0 if there is none.
    pub vlan: u16,
    /// The IP protocol.
    pub proto: u8,
    /// The TOS byte.
    pub tos: u8,
    /// All TCP flags.
    pub tcp_flags: u8,
    /// True if its packets are fragments.
    pub is_fragment: bool,
}

/// A record of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledRecord {
    /// Its fields.
    pub key: RecordKey,
    /// Its packets and bytes, each scaled by its sampling rate.
    pub tally: Tally,
}

impl SampledRecord {
    /// Its place among the records of a sample.
    pub const fn place(&self) -> (RecordKey, u64, u64) {
        (self.key, self.tally.packets, self.tally.bytes)
    }
}

/// Records of a time, of which no more than a fixed number are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowSample {
    /// Records that weigh at least this much are certain. 0 if the sample has all records.
    pub threshold: f64,
    /// The secret from which random numbers are derived when samples are thinned.
    pub coins: u64,
    /// The sum of all records, also of those that are not in the sample.
    pub total: Tally,
    /// How far the records of the time differ from its packets.
    pub error: SampleError,
    /// The records, in the order of their keys.
    pub records: Vec<SampledRecord>,
}

/// How far the records of a time may differ from its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleError {
    /// At most these packets are in no record, and may be of any flow. They were never drawn.
    pub lost: Tally,
    /// At most these packets are in no record. They were drawn, and each is scaled by its sampling rate.
    pub drawn: Tally,
    /// At most these packets have passed.
    pub most: Tally,
    /// The highest rate of packets that sampling left out: one in this many was taken. 1 is every packet.
    pub rate: u32,
    /// The most that one draw took.
    pub largest: Tally,
}

impl Default for SampleError {
    fn default() -> Self {
        let [lost, drawn, most, largest] = [Tally::default(); 4];
        Self { lost, drawn, most, rate: 1, largest }
    }
}

impl SampleError {
    /// That of two times together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            lost: sum(self.lost, other.lost),
            drawn: sum(self.drawn, other.drawn),
            most: sum(self.most, other.most),
            rate: self.rate.max(other.rate),
            largest: Tally::new(
                self.largest.packets.max(other.largest.packets),
                self.largest.bytes.max(other.largest.bytes),
            ),
        }
    }
}

/// The sum of two tallies, as far as numbers reach.
pub(crate) fn sum(one: Tally, other: Tally) -> Tally {
    Tally::new(one.packets.saturating_add(other.packets), one.bytes.saturating_add(other.bytes))
}

/// A record while samples are united.
struct Candidate {
    record: SampledRecord,
    /// What its priority is computed from: its weight, or the threshold of its sample.
    adjusted: f64,
    priority: f64,
}

impl FlowSample {
    /// Returns true if a record is in the sample for certain.
    pub fn is_certain(&self, record: &SampledRecord) -> bool {
        weight(record.tally) as f64 >= self.threshold
    }

    /// One sample of the records of all of these, with at most `size` records.
    pub fn union(samples: impl IntoIterator<Item = Self>, size: usize) -> Self {
        let mut union = Self::default();
        let (mut certain, mut others) = (Vec::new(), Vec::new());
        for sample in samples {
            union.threshold = union.threshold.max(sample.threshold);
            union.coins = mix(union.coins ^ sample.coins);
            union.total = sum(union.total, sample.total);
            union.error = union.error.and(sample.error);
            let threshold = sample.threshold;
            for record in sample.records {
                match weight(record.tally) as f64 >= threshold {
                    true => certain.push(record),
                    false => others.push(Candidate { record, adjusted: threshold, priority: 0.0 }),
                }
            }
        }
        certain.sort_unstable_by_key(SampledRecord::place);
        certain.dedup_by(|next, record| {
            let is_same = record.key == next.key;
            if is_same {
                record.tally = sum(record.tally, next.tally);
            }
            is_same
        });
        let certain = certain.into_iter().map(|record| {
            let adjusted = weight(record.tally) as f64;
            Candidate { record, adjusted, priority: 0.0 }
        });
        others.extend(certain);
        union.draw(others, size);
        union
    }

    /// Takes the `size` records of the highest priorities above the threshold, which rises to that of the next one.
    fn draw(&mut self, mut all: Vec<Candidate>, size: usize) {
        for candidate in &mut all {
            self.coins = mix(self.coins);
            candidate.priority = candidate.adjusted / fraction(mix(!self.coins));
        }
        let threshold = self.threshold;
        all.retain(|candidate| candidate.priority >= threshold);
        if all.len() > size {
            let (_, next, _) = all.select_nth_unstable_by(size, |a, b| descending(a.priority, b.priority));
            self.threshold = threshold.max(next.priority);
            all.truncate(size);
        }
        self.records = all.into_iter().map(|candidate| candidate.record).collect();
        self.records.sort_unstable_by_key(SampledRecord::place);
    }

    /// Masks its addresses.
    pub fn mask(&mut self, addresses: Addresses) {
        for SampledRecord { key, .. } in &mut self.records {
            (key.src, key.dst) = (addresses.masked(key.src), addresses.masked(key.dst));
        }
        self.records.sort_unstable_by_key(SampledRecord::place);
    }
}

/// The order of numbers, the largest first.
fn descending(one: f64, other: f64) -> Ordering {
    other.total_cmp(&one)
}

#[cfg(test)]
mod tests;
