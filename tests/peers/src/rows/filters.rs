//! "Seen before?": every filter is filled as planned, and then asked for present and absent keys.
//!
//! A false negative is a wrong answer. So is a rate of false positives above the structure's limit.

use weir_sketch::{BlockedBloom, Bloom, CountingBloom, Cuckoo, Quotient, ScalableBloom, hash::mix};

use crate::{
    bench::Bench,
    clock::{median, time_each},
    contender::Contender,
    item::{Bytes, Item, ReadyHash},
    ours::{KEY, filters as ours},
    peers::filters as peers,
    report::{Group, Outcome, MemoryLevel},
};

/// Measures all filters.
pub fn run(bench: &mut Bench) {
    row::<BlockedRow>(bench);
    row::<ClassicRow>(bench);
    row::<CountingRow>(bench);
    row::<ScalableRow>(bench);
    row::<CuckooRow>(bench);
    row::<QuotientRow>(bench);
}

/// A kind of filter.
pub(super) trait Row {
    /// The name of the structure, and how it is built.
    const STRUCTURE: &'static str;
    /// True if keys can be removed. Then the last quarter of insertions, where room is short, is timed by itself.
    const REMOVABLE: bool = false;
    /// True if all kinds of items are measured beyond the cache, and not only the shortest. Slow peers take minutes to
    /// fill.
    const ALL_ITEMS_FAR: bool = false;
    /// The highest allowed rate of false positives.
    const RATE_AT_MOST: f64;

    /// The number of keys for filters of this size.
    fn keys(bytes: usize) -> u64;

    /// All contenders, each of about this size.
    fn contenders<K: Item>(bytes: usize) -> Vec<Contender<K>>;
}

struct BlockedRow;

impl Row for BlockedRow {
    const STRUCTURE: &'static str = "Blocked Bloom filter, 10.5 bits a key";
    const ALL_ITEMS_FAR: bool = true;
    const RATE_AT_MOST: f64 = 0.0125;

    fn keys(bytes: usize) -> u64 {
        (bytes as f64 * 8.0 / 10.5) as u64
    }

    fn contenders<K: Item>(bytes: usize) -> Vec<Contender<K>> {
        let keys = Self::keys(bytes);
        let blocked = || ours::within(bytes, keys, |keys, rate| BlockedBloom::with_capacity(keys, rate, KEY.id()).expect("the settings are allowed"));
        vec![
            Contender::ours("BlockedBloom, in batches", ours::InBatches(blocked())),
            Contender::ours("BlockedBloom, one by one", ours::OneByOne(blocked())),
            Contender::peer("sbbf-rs-safe", peers::SbbfRsSafe::with_bytes(bytes)),
        ]
    }
}

struct ClassicRow;

impl Row for ClassicRow {
    const STRUCTURE: &'static str = "Bloom filter at 0.65 %";
    const RATE_AT_MOST: f64 = 0.0075;

    fn keys(bytes: usize) -> u64 {
        (bytes as f64 * 8.0 / 10.5) as u64
    }

    fn contenders<K: Item>(bytes: usize) -> Vec<Contender<K>> {
        if K::IS_HASH {
            return Vec::new();
        }
        let keys = Self::keys(bytes);
        vec![
            Contender::ours("BlockedBloom", ours::InBatches(BlockedBloom::with_capacity(keys, 0.0065, KEY.id()).expect("the settings are allowed"))),
            Contender::ours("Bloom", ours::InBatches(Bloom::with_capacity(keys, 0.0065, KEY.id()).expect("the settings are allowed"))),
            Contender::peer("fastbloom", peers::Fastbloom::with_bytes(bytes, keys)),
        ]
    }
}

struct CountingRow;

impl Row for CountingRow {
    const STRUCTURE: &'static str = "Counting Bloom filter, 4 bits a counter, 42 bits a key";
    const REMOVABLE: bool = true;
    const RATE_AT_MOST: f64 = 0.02;

    fn keys(bytes: usize) -> u64 {
        (bytes as f64 * 8.0 / 42.0) as u64
    }

    fn contenders<K: Item>(bytes: usize) -> Vec<Contender<K>> {
        if K::IS_HASH {
            return Vec::new();
        }
        let keys = Self::keys(bytes);
        let counting = ours::within(bytes, keys, |keys, rate| CountingBloom::with_capacity(keys, rate, KEY.id()).expect("the settings are allowed"));
        vec![
            Contender::ours("CountingBloom", ours::Removable::new(counting)),
            Contender::peer("fastbloom-rs", peers::FastbloomRsCounting::with_bytes(bytes, 7)),
            Contender::peer("bloomcraft", peers::BloomcraftCounting::with_bytes(bytes, 7)),
        ]
    }
}

struct ScalableRow;

impl Row for ScalableRow {
    const STRUCTURE: &'static str = "Scalable Bloom filter at 1 %, grown from 1/32 of its keys";
    const RATE_AT_MOST: f64 = 0.012;

    fn keys(bytes: usize) -> u64 {
        // The number of keys that the peer takes; it fills each of its filters to a half.
        (bytes as f64 * 8.0 / 36.0) as u64
    }

    fn contenders<K: Item>(bytes: usize) -> Vec<Contender<K>> {
        if K::IS_HASH {
            return Vec::new();
        }
        let first = Self::keys(bytes) / 32;
        vec![
            Contender::ours("ScalableBloom", ours::InBatches(ScalableBloom::with_capacity(first, 0.01, KEY.id()).expect("the settings are allowed"))),
            Contender::peer("bloomcraft", peers::BloomcraftScalable::with_capacity(first as usize)),
        ]
    }
}

/// The load of a filter with 16-bit fingerprints.
const CUCKOO_LOAD: f64 = 0.945;

struct CuckooRow;

impl Row for CuckooRow {
    const STRUCTURE: &'static str = "Cuckoo filter of 16 bits, filled to 94.5 %";
    const REMOVABLE: bool = true;
    const RATE_AT_MOST: f64 = 0.04;

    fn keys(bytes: usize) -> u64 {
        (bytes as f64 / 2.0 * CUCKOO_LOAD) as u64
    }

    fn contenders<K: Item>(bytes: usize) -> Vec<Contender<K>> {
        if K::IS_HASH {
            return Vec::new();
        }
        let keys = Self::keys(bytes);
        vec![
            Contender::ours("Cuckoo", ours::Removable::new(Cuckoo::with_capacity(keys, KEY.id()).expect("the settings are allowed"))),
            Contender::peer("cuckoofilter, 8 bits", peers::Cuckoofilter::with_slots(bytes / 2)),
        ]
    }
}

struct QuotientRow;

impl Row for QuotientRow {
    const STRUCTURE: &'static str = "Quotient filter, filled to 90 %";
    const REMOVABLE: bool = true;
    const RATE_AT_MOST: f64 = 0.0003;

    fn keys(bytes: usize) -> u64 {
        // The peer's slots are a power of two, of some 14 bits each.
        (bytes as f64 * 8.0 / 16.0 * 0.9) as u64
    }

    fn contenders<K: Item>(bytes: usize) -> Vec<Contender<K>> {
        if K::IS_HASH {
            return Vec::new();
        }
        let keys = Self::keys(bytes);
        vec![
            Contender::ours("Quotient", ours::Removable::new(Quotient::with_capacity(keys, KEY.id()).expect("the settings are allowed"))),
            Contender::peer("qfilter", peers::Qfilter::with_capacity(keys, 0.000_25)),
        ]
    }
}

const OPERATIONS: [&str; 5] = ["insert", "absent", "present", "insert when nearly full", "remove"];

/// Measures one kind of filter at both memory levels with all kinds of items.
fn row<R: Row>(bench: &mut Bench) {
    if !bench.settings.wants(R::STRUCTURE) {
        return;
    }
    for place in [MemoryLevel::Near, MemoryLevel::Far] {
        let operations = if R::REMOVABLE { &OPERATIONS[..] } else { &OPERATIONS[..3] };
        let mut group = Group::new(R::STRUCTURE, place, operations, "false positives");
        compete::<R, Bytes<8>>(bench, &mut group);
        if !bench.settings.quick && (place == MemoryLevel::Near || R::ALL_ITEMS_FAR) {
            compete::<R, Bytes<13>>(bench, &mut group);
            compete::<R, Bytes<40>>(bench, &mut group);
            compete::<R, ReadyHash>(bench, &mut group);
        }
        bench.finish(group);
    }
}

/// How a filter is filled and asked.
struct Schedule {
    /// How often it is filled anew.
    fills: usize,
    /// In how many pieces it is filled; contenders take turns after each piece.
    slices: u64,
    /// How many rounds of questions follow a fill.
    asks: u64,
    /// How many keys a round of questions has.
    asked: u64,
    /// True if a contender's memory is brought back into the cache when its turn comes.
    warm: bool,
}

impl Schedule {
    fn new(place: MemoryLevel, keys: u64) -> Self {
        match place {
            MemoryLevel::Near => Self { fills: 5, slices: 4, asks: 1, asked: keys, warm: true },
            MemoryLevel::Far => Self { fills: 1, slices: 16, asks: 5, asked: 100_000, warm: false },
        }
    }
}

/// Nanoseconds by operation, round by round, and the answers.
#[derive(Default)]
struct Record {
    nanoseconds: [Vec<f64>; OPERATIONS.len()],
    asked: u64,
    found_absent: u64,
    missed_present: u64,
}

pub(super) fn compete<R: Row, K: Item>(bench: &mut Bench, group: &mut Group) {
    let bytes = bench.settings.bytes(group.place);
    let mut contenders = R::contenders::<K>(bytes);
    if contenders.is_empty() {
        return;
    }
    let keys = R::keys(bytes);
    let records = measure::<R, K>(&mut contenders, keys, &Schedule::new(group.place, keys));
    let operations = group.operations.len();
    let outcomes = contenders.iter().zip(records).map(|(contender, record)| {
        let Record { nanoseconds, asked, found_absent, missed_present } = record;
        let who = || format!("{}: {} with {}", R::STRUCTURE, contender.name, K::NAME);
        bench.check(missed_present == 0, || format!("{} has not {missed_present} of the keys it was given", who()));
        let rate = found_absent as f64 / asked as f64;
        bench.check(rate <= R::RATE_AT_MOST, || format!("{} finds {:.2} % of foreign keys", who(), rate * 100.0));
        Outcome {
            name: contender.name,
            ours: contender.ours,
            nanoseconds: nanoseconds.into_iter().take(operations).map(median).collect(),
            memory_bytes: contender.subject.memory_bytes(),
            error: format!("{:.2} %", rate * 100.0),
        }
    });
    let outcomes = outcomes.collect();
    group.add(K::NAME, outcomes);
}

/// Foreign keys begin here.
const ABSENT: u64 = 1 << 40;

fn measure<R: Row, K: Item>(contenders: &mut [Contender<K>], keys: u64, schedule: &Schedule) -> Vec<Record> {
    let mut records: Vec<Record> = contenders.iter().map(|_| Record::default()).collect();
    let slice = |nth: u64| -> Vec<K> {
        (keys * nth / schedule.slices..keys * (nth + 1) / schedule.slices).map(K::nth).collect()
    };
    for _ in 0..schedule.fills {
        for nth in 0..schedule.slices {
            let batch = slice(nth);
            let is_last_quarter = R::REMOVABLE && nth * 4 >= schedule.slices * 3;
            for (contender, record) in contenders.iter_mut().zip(&mut records) {
                if nth == 0 {
                    contender.subject.clear();
                }
                warm(contender, &batch, schedule);
                let times = &mut record.nanoseconds[if is_last_quarter { 3 } else { 0 }];
                time_each(&batch, times, |keys| contender.subject.put(keys));
            }
        }
        for round in 0..schedule.asks {
            let numbers = round * schedule.asked..(round + 1) * schedule.asked;
            let absent: Vec<K> = numbers.clone().map(|n| K::nth(ABSENT + n)).collect();
            // The order is random, so that a key is not near the previous one.
            let present = numbers.map(|n| K::nth(((u128::from(mix(n)) * u128::from(keys)) >> 64) as u64));
            let present: Vec<K> = present.collect();
            for (contender, record) in contenders.iter_mut().zip(&mut records) {
                warm(contender, &absent, schedule);
                let mut found = [0; 2];
                for (nth, keys) in [&absent, &present].into_iter().enumerate() {
                    time_each(keys, &mut record.nanoseconds[1 + nth], |keys| found[nth] += contender.subject.ask(keys));
                }
                record.asked += schedule.asked;
                record.found_absent += found[0];
                record.missed_present += schedule.asked - found[1];
            }
        }
        if R::REMOVABLE {
            remove_last_quarter(contenders, &mut records, slice, schedule);
        }
    }
    records
}

/// Times the removal of the last quarter of all keys; the others must still be there.
fn remove_last_quarter<K: Item>(
    contenders: &mut [Contender<K>],
    records: &mut [Record],
    slice: impl Fn(u64) -> Vec<K>,
    schedule: &Schedule,
) {
    for nth in schedule.slices * 3 / 4..schedule.slices {
        let batch = slice(nth);
        for (contender, record) in contenders.iter_mut().zip(&mut *records) {
            warm(contender, &batch, schedule);
            time_each(&batch, &mut record.nanoseconds[4], |keys| contender.subject.remove(keys));
        }
    }
    let kept = slice(0);
    for (contender, record) in contenders.iter().zip(records) {
        record.missed_present += kept.len() as u64 - contender.subject.ask(&kept);
    }
}

/// Asks some untimed questions, which bring the filter back into the cache.
fn warm<K>(contender: &Contender<K>, keys: &[K], schedule: &Schedule) {
    if schedule.warm {
        std::hint::black_box(contender.subject.ask(&keys[..keys.len() / 4]));
    }
}
