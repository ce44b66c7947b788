//! The cost per record of the five lists of a router's traffic: flows, sources, destinations, pairs and services, each
//! with bounds for every key. Compares candidates with a separate count-min to candidate buckets in the same memory.
//!
//! Records are hashed before the clock starts, because a router hashes each record once for all its sketches. A wrong
//! answer is a key whose truth is not within its bounds.

use std::collections::HashMap;

use weir_sketch::{Bounds, CandidateBuckets, CountAndSum, Weight, candidate_buckets::Packed, hash::mix};

use crate::{
    bench::Bench,
    clock::{median, nanoseconds},
    ours::{
        KEY, hash,
        lists::{Apart, Key, List, RecordGroup},
    },
    report::{Group, Outcome, MemoryLevel},
    stream::Zipf,
};

const STRUCTURE: &str = "Five lists, keys of 40 bytes, packets and bytes";
const LISTS: usize = 5;
const RECORDS: usize = 1 << 19;
/// Records that are added together, as in a worker's batch.
const BATCH: usize = 256;
/// Batches that are timed together.
const PIECE: usize = 32;
const FLOWS: u32 = 1 << 20;

/// Measures all contenders for lists.
pub fn run(bench: &mut Bench) {
    if !bench.settings.wants(STRUCTURE) {
        return;
    }
    let mut group = Group::new(
        STRUCTURE,
        MemoryLevel::Far,
        &["record"],
        "mean excess / 99.9 % / mean width of listed, in ppm of all bytes",
    );
    group.error_by_item = true;
    let zipf = Zipf::new(FLOWS, 1.1).stream(3, RECORDS);
    let random = (0..RECORDS as u64).map(mix);
    compete(bench, &mut group, "Zipf 1.1", &Records::of(zipf.into_iter().map(flow)));
    compete(bench, &mut group, "a flood on one target", &Records::of(random.clone().map(flood)));
    compete(bench, &mut group, "every flow new", &Records::of(random.map(flow)));
    bench.finish(group);
}

/// The keys of a record, one for each list.
const fn keys(source: u64, destination: u64, ports: u64) -> [Key; LISTS] {
    [
        [source, destination, ports, 17, 0],
        [source, 0, 0, 0, 1],
        [destination, 0, 0, 0, 2],
        [source, destination, 0, 0, 3],
        [ports & 0xffff, 17, 0, 0, 4],
    ]
}

fn flow(number: u64) -> [Key; LISTS] {
    keys(number & 0xffff_ffff, mix(number) & 0xffff_ffff, number >> 32)
}

fn flood(random: u64) -> [Key; LISTS] {
    keys(random & 0xffff_ffff, 1, random >> 48 << 16 | 443)
}

/// The keys of all records, by list.
struct Records {
    keys: [Vec<Key>; LISTS],
    hashes: [Vec<u64>; LISTS],
    weights: Vec<CountAndSum>,
}

impl Records {
    fn of(all: impl Iterator<Item = [Key; LISTS]>) -> Self {
        let mut keys = [(); LISTS].map(|()| Vec::with_capacity(RECORDS));
        for record in all {
            for (keys, key) in keys.iter_mut().zip(record) {
                keys.push(key);
            }
        }
        let hashes = keys.each_ref().map(|keys: &Vec<Key>| keys.iter().map(|key| hash().words(*key)).collect());
        let weights = (0..RECORDS as u64).map(|nth| CountAndSum::new(1, 60 + mix(!nth) % 1_400)).collect();
        Self { keys, hashes, weights }
    }

    /// Copies of the records from number `at` on, which are then in the nearest cache, as after hashing.
    fn batch(&self, at: usize, buffer: &mut Buffer) {
        for list in 0..LISTS {
            buffer.keys[list].copy_from_slice(&self.keys[list][at..at + BATCH]);
            buffer.hashes[list].copy_from_slice(&self.hashes[list][at..at + BATCH]);
        }
        buffer.weights.copy_from_slice(&self.weights[at..at + BATCH]);
    }
}

struct Buffer {
    keys: [[Key; BATCH]; LISTS],
    hashes: [[u64; BATCH]; LISTS],
    weights: [CountAndSum; BATCH],
}

fn compete(bench: &mut Bench, group: &mut Group, item: &'static str, records: &Records) {
    let mut apart = [(); LISTS].map(|()| Apart::new());
    let mut buckets = [(); LISTS].map(|()| CandidateBuckets::with_memory(apart[0].memory_bytes(), KEY.id()).expect("the settings are allowed"));
    let [mut of_apart, mut of_buckets] = [Vec::new(), Vec::new()];
    for _ in 0..if bench.settings.quick { 3 } else { 9 } {
        time(&mut apart, records, &mut of_apart);
        time(&mut buckets, records, &mut of_buckets);
    }
    let outcomes = vec![
        outcome(bench, "CandidateBuckets", true, &buckets, records, of_buckets),
        outcome(bench, "TopK and BlockedCountMin", false, &apart, records, of_apart),
    ];
    group.add(item, outcomes);
}

/// Fills new lists, and adds to `times` the nanoseconds per record of each piece.
fn time<L: List>(lists: &mut [L; LISTS], records: &Records, times: &mut Vec<f64>) {
    lists.iter_mut().for_each(L::clear);
    let mut buffer = Box::new(Buffer {
        keys: [[Key::default(); BATCH]; LISTS],
        hashes: [[0; BATCH]; LISTS],
        weights: [CountAndSum::default(); BATCH],
    });
    let mut packed = [Packed::default(); BATCH];
    let mut piece = 0.0;
    for (nth, at) in (0..RECORDS).step_by(BATCH).enumerate() {
        records.batch(at, &mut buffer);
        piece += nanoseconds(|| {
            for (packed, weight) in packed.iter_mut().zip(&buffer.weights) {
                *packed = Packed::from(*weight);
            }
            for (list, (keys, hashes)) in lists.iter_mut().zip(buffer.keys.iter().zip(&buffer.hashes)) {
                list.add(&RecordGroup { hashes, weights: &buffer.weights, packed: &packed, keys });
            }
        });
        if nth % PIECE == PIECE - 1 {
            times.push(piece / (PIECE * BATCH) as f64);
            piece = 0.0;
        }
    }
}

/// Compares all answers with the truth.
fn outcome<L: List>(
    bench: &mut Bench,
    name: &'static str,
    ours: bool,
    lists: &[L; LISTS],
    records: &Records,
    times: Vec<f64>,
) -> Outcome {
    let (mut excesses, mut widths, mut beyond) = (Vec::new(), Vec::new(), 0);
    for (list, (keys, hashes)) in lists.iter().zip(records.keys.iter().zip(&records.hashes)) {
        let mut truths = HashMap::<(&Key, u64), CountAndSum>::new();
        for ((key, hash), weight) in keys.iter().zip(hashes).zip(&records.weights) {
            let sum = truths.entry((key, *hash)).or_default();
            *sum = sum.saturating_add(*weight);
        }
        for ((key, hash), truth) in truths {
            let (Bounds { lower, upper }, is_listed) = list.bounds(hash, key);
            let holds = lower.least(truth) == lower && upper.most(truth) == upper;
            beyond += usize::from(!holds);
            match is_listed {
                true => widths.push(upper.sum.saturating_sub(lower.sum)),
                false => excesses.push(upper.sum.saturating_sub(truth.sum)),
            }
        }
    }
    bench.check(beyond == 0, || format!("{STRUCTURE}: {name} has {beyond} keys outside of their bounds"));
    excesses.sort_unstable();
    let total: u64 = records.weights.iter().map(|weight| weight.sum).sum();
    let per_million = |bytes: f64| bytes / total as f64 * 1e6;
    let mean = |all: &[u64]| per_million(all.iter().sum::<u64>() as f64 / all.len().max(1) as f64);
    let most = excesses.get(excesses.len() * 999 / 1_000).copied().unwrap_or(0) as f64;
    Outcome {
        name,
        ours,
        nanoseconds: vec![median(times)],
        memory_bytes: lists.iter().map(L::memory_bytes).sum(),
        error: format!("{:.1}, {:.0}, {:.1}", mean(&excesses), per_million(most), mean(&widths)),
    }
}
