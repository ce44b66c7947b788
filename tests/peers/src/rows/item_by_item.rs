//! Items one by one, each hashed when it comes, with a secret key: texts of 60 bytes and numbers of 8. Most programs
//! use a filter in this way.

use weir_sketch::{BlockedBloom, Cuckoo, Quotient};

use super::filters::{Row, compete};
use crate::{
    bench::Bench,
    contender::Contender,
    item::{Bytes, Item, Text},
    ours::{KEY, filters::Keys},
    peers::filters as peers,
    report::{Group, MemoryLevel},
};

/// Measures all filters whose crates take items.
pub fn run(bench: &mut Bench) {
    row::<BloomRow>(bench, &OPERATIONS[..3]);
    row::<CuckooRow>(bench, &OPERATIONS);
    row::<QuotientRow>(bench, &OPERATIONS);
}

const OPERATIONS: [&str; 5] = ["insert", "absent", "present", "insert when nearly full", "remove"];

fn row<R: Row>(bench: &mut Bench, operations: &'static [&'static str]) {
    if !bench.settings.wants(R::STRUCTURE) {
        return;
    }
    let is_short = bench.settings.quick || !R::ALL_ITEMS_FAR;
    for place in if is_short { &[MemoryLevel::Near][..] } else { &[MemoryLevel::Near, MemoryLevel::Far] } {
        let mut group = Group::new(R::STRUCTURE, *place, operations, "false positives");
        compete::<R, Text>(bench, &mut group);
        compete::<R, Bytes<8>>(bench, &mut group);
        bench.finish(group);
    }
}

struct BloomRow;

impl Row for BloomRow {
    const STRUCTURE: &'static str = "Item by item: Bloom filter at 0.65 %";
    const ALL_ITEMS_FAR: bool = true;
    const RATE_AT_MOST: f64 = 0.0075;

    fn keys(bytes: usize) -> u64 {
        (bytes as f64 * 8.0 / 10.5) as u64
    }

    fn contenders<K: Item>(bytes: usize) -> Vec<Contender<K>> {
        let keys = Self::keys(bytes);
        vec![
            Contender::ours("BlockedBloom", Keys(BlockedBloom::with_key(KEY, keys, 0.0065).unwrap())),
            Contender::peer("fastbloom (SipHash)", peers::Fastbloom::with_bytes(bytes, keys)),
            Contender::peer("fastbloom with ahash", peers::Fastbloom::with_ahash(bytes, keys)),
        ]
    }
}

struct CuckooRow;

impl Row for CuckooRow {
    const STRUCTURE: &'static str = "Item by item: cuckoo filter of 16 bits, filled to 94.5 %";
    const REMOVABLE: bool = true;
    const RATE_AT_MOST: f64 = 0.04;

    fn keys(bytes: usize) -> u64 {
        (bytes as f64 / 2.0 * 0.945) as u64
    }

    fn contenders<K: Item>(bytes: usize) -> Vec<Contender<K>> {
        let keys = Self::keys(bytes);
        vec![
            Contender::ours("Cuckoo", Keys::removable(Cuckoo::with_key(KEY, keys).unwrap())),
            Contender::peer("cuckoofilter, 8 bits", peers::Cuckoofilter::with_slots(bytes / 2)),
        ]
    }
}

struct QuotientRow;

impl Row for QuotientRow {
    const STRUCTURE: &'static str = "Item by item: quotient filter, filled to 90 %";
    const REMOVABLE: bool = true;
    const RATE_AT_MOST: f64 = 0.0003;

    fn keys(bytes: usize) -> u64 {
        (bytes as f64 * 8.0 / 16.0 * 0.9) as u64
    }

    fn contenders<K: Item>(bytes: usize) -> Vec<Contender<K>> {
        let keys = Self::keys(bytes);
        vec![
            Contender::ours("Quotient", Keys::removable(Quotient::with_key(KEY, keys).unwrap())),
            Contender::peer("qfilter", peers::Qfilter::with_capacity(keys, 0.000_25)),
        ]
    }
}
