//! A pool that merges records of one flow that come soon after each other, before they go to the sketches.
//!
//! Two large flows that share a slot of the flow cache evict each other, packet by packet. The same happens to a flow
//! whose packets alternate in their TOS, for example because of congestion marks. All sketches only add up records, so
//! one record with the sum gives the same result. A record waits here until another record needs its place, or until
//! the window ends.
//!
//! The place is an unkeyed hash of the record. An attacker can choose flows that share a place, so that their records
//! go to the sketches one by one. That costs time, but does not change any result.

use weir_common::record::Record;
use weir_sketch::simd;

/// Records that wait for others of the same flow.
pub struct Pool {
    /// Records by place. A record without packets means an empty place.
    records: Box<[Record]>,
}

impl Default for Pool {
    fn default() -> Self {
        Self { records: vec![Record::default(); Self::PLACES].into_boxed_slice() }
    }
}

impl Pool {
    /// The number of places: 128 KiB, which stay in the CPU's second-level cache.
    pub const PLACES: usize = 1 << 11;

    /// Prefetches the place of a record into the cache.
    #[inline(always)]
    pub fn prefetch(&self, record: &Record) {
        simd::prefetch(&self.records[place(record)]);
    }

    /// Adds a record to the waiting one, if that is of the same flow. Otherwise replaces the waiting record and returns
    /// it.
    #[inline(always)]
    pub fn exchange(&mut self, record: &Record) -> Option<Record> {
        let waiting = &mut self.records[place(record)];
        let sum = waiting.packets.checked_add(record.packets);
        if let Some(packets) = sum.filter(|_| are_alike(waiting, record)) {
            // Keep the times of the first record: no sketch uses them.
            waiting.packets = packets;
            waiting.bytes += record.bytes;
            return None;
        }
        let leaves = std::mem::replace(waiting, *record);
        (!leaves.is_empty()).then_some(leaves)
    }

    /// Takes out the record that waits at a place, if any.
    pub fn take(&mut self, place: usize) -> Option<Record> {
        let leaves = std::mem::take(&mut self.records[place]);
        (!leaves.is_empty()).then_some(leaves)
    }

    /// Empties it. Writes every place, so that all pages become resident.
    pub fn clear(&mut self) {
        self.records.fill(Record::default());
    }

    /// The memory that it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of_val(&*self.records)
    }
}

/// Returns true if two records are of the same flow and equal in all fields that views use.
#[inline(always)]
fn are_alike(one: &Record, other: &Record) -> bool {
    let marks = |record: &Record| (record.sampling, record.tcp_flags, record.tos, record.vlan);
    one.key.is_same(&other.key) && marks(one) == marks(other)
}

#[inline(always)]
fn place(record: &Record) -> usize {
    /// A large odd number, which spreads low bits upwards.
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let Record { key, tos, vlan, .. } = record;
    let ([a, b], [c, d]) = (key.src.0, key.dst.0);
    // A packet that a router forwards makes two records, one of which is repeated. The rest of the scope is ignored, so
    // the same traffic takes the same places, whichever datapath made the records.
    let marks = u64::from(key.scope().is_repeated()) << 24 | u64::from(*tos) << 16 | u64::from(*vlan);
    let flow = a ^ b.rotate_left(32) ^ c.rotate_left(11) ^ d.rotate_left(43) ^ key.without_scope().tail();
    let folded = flow ^ marks.rotate_left(24);
    ((folded ^ folded >> 32).wrapping_mul(ODD) >> (u64::BITS - Pool::PLACES.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use weir_common::{
        flow::{Address, FlowKey, Scope},
        ledger::Tally,
    };
    use weir_sketch::hash::mix;

    use super::*;

    fn record(flow: u64) -> Record {
        let [src, dst] = [flow, mix(flow)].map(|word| Address::from_v4_word(word as u32));
        let key = FlowKey::new(src, dst, 6, 0).with_ports(flow as u16, 443);
        Record { key, packets: 1, bytes: 100 + flow, sampling: 1, ..Record::default() }
    }

    fn drained(pool: &mut Pool) -> Vec<Record> {
        (0..Pool::PLACES).filter_map(|place| pool.take(place)).collect()
    }

    #[test]
    fn everything_that_is_added_leaves_exactly_once() {
        let mut pool = Pool::default();
        let (mut came, mut left) = (BTreeMap::<_, Tally>::new(), BTreeMap::<_, Tally>::new());
        let add = |sums: &mut BTreeMap<_, Tally>, record: &Record| {
            sums.entry((record.key.src_ip(), record.tos)).or_default().add(record.tally());
        };
        let mut records = 0;
        for nth in 0..60_000 {
            // Half of the records are of ten flows.
            let flow = if mix(nth).is_multiple_of(2) { mix(nth) >> 8 & 7 } else { mix(!nth) % 5_000 };
            let record = Record { tos: u8::from(mix(nth) >> 20 & 63 == 0), ..record(flow) };
            add(&mut came, &record);
            if let Some(leaves) = pool.exchange(&record) {
                add(&mut left, &leaves);
                records += 1;
            }
        }
        for leaves in drained(&mut pool) {
            add(&mut left, &leaves);
            records += 1;
        }
        assert_eq!(came, left);
        assert!(records < 45_000, "{records} of 60,000 are left");
        assert_eq!(drained(&mut pool), []);
    }

    #[test]
    fn alternating_records_become_few() {
        let mut pool = Pool::default();
        // Two flows, and both values of TOS.
        let turns = (0..1_000_u64).map(|nth| Record { tos: (nth >> 1 & 1) as u8, ..record(nth & 1) });
        assert_eq!(turns.filter_map(|record| pool.exchange(&record)).count(), 0);
        assert_eq!(drained(&mut pool).iter().map(|record| record.packets).collect::<Vec<_>>(), [250; 4]);
    }

    #[test]
    fn every_part_of_a_flow_spreads_records_over_the_places() {
        let v4 = |word: u32| Address::from_v4_word(word);
        let key = |src, dst| FlowKey::new(src, dst, 6, 0);
        let with_key = |key| Record { key, ..record(1) };
        let of = record(1).key;
        let parts: [&dyn Fn(u16) -> Record; 9] = [
            &|nth| with_key(key(v4(nth.into()), v4(7))),
            &|nth| with_key(key(v4(7), v4(nth.into()))),
            &|nth| with_key(key(Address([nth.into(), 7]), Address([7, 7]))),
            &|nth| with_key(key(Address([7, 7]), Address([nth.into(), 7]))),
            &|nth| with_key(key(v4(1), v4(2)).with_ports(nth, 443)),
            &|nth| with_key(key(v4(1), v4(2)).with_ports(443, nth)),
            &|nth| Record { vlan: nth, ..record(1) },
            &|nth| Record { tos: nth as u8, vlan: nth >> 8, ..record(1) },
            // Two hosts of one network that talk to each other.
            &|nth| with_key(key(v4(0x0a00_0000 | u32::from(nth >> 5)), v4(0x0a00_0000 | u32::from(nth & 31)))),
        ];
        for (part, of) in parts.iter().enumerate() {
            let places: BTreeSet<usize> = (0..1 << 10).map(|nth| place(&of(nth))).collect();
            // Of 1,024 records placed at random, 806 places are expected to be in use.
            assert!(places.len() > 700, "part {part}: {} places", places.len());
        }
        let repeated = with_key(of.with_scope(Scope::new(3, 0).repeated()));
        assert_ne!(place(&repeated), place(&record(1)));
        assert_eq!(
            place(&with_key(of.with_scope(Scope::new(3, 1)))),
            place(&record(1)),
            "the place does not depend on the datapath and the time"
        );
        assert_eq!(Pool::default().memory_bytes(), 128 << 10);
    }

    #[test]
    fn records_that_views_distinguish_are_not_merged() {
        let first = record(7);
        let changed: [fn(&mut Record); 6] = [
            |record| record.tos = 4,
            |record| record.vlan = 4,
            |record| record.tcp_flags = 4,
            |record| record.sampling = 4,
            |record| record.packets = u32::MAX,
            |record| record.key = record.key.with_scope(Scope::new(3, 0)),
        ];
        for change in changed {
            let (mut pool, mut other) = (Pool::default(), first);
            change(&mut other);
            // Even if they share a place.
            assert!(!are_alike(&first, &other) || other.packets == u32::MAX);
            assert_eq!(pool.exchange(&first), None);
            let mut left: Vec<_> = pool.exchange(&other).into_iter().chain(drained(&mut pool)).collect();
            left.sort_by_key(|record| *record != first);
            assert_eq!(left, [first, other]);
        }
        let mut pool = Pool::default();
        assert_eq!((pool.exchange(&first), pool.exchange(&first)), (None, None));
        assert_eq!(drained(&mut pool).iter().map(Record::tally).collect::<Vec<_>>(), [Tally::new(2, 2 * first.bytes)]);
        pool.exchange(&first);
        pool.clear();
        assert_eq!(drained(&mut pool), [], "another window");
    }
}
