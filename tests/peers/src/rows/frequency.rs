//! "How much?": a stream by Zipf's law goes in, and every key's estimate is compared with its true count.
//!
//! An estimate below the truth is a wrong answer. So are too many estimates far above it.

use std::hint::black_box;

use weir_sketch::{BlockedCountMin, CountAndSum, CountMin, HeavyLight, count_min::Plain, hash::mix};

use crate::{
    bench::Bench,
    clock::{median, time_each},
    contender::Contender,
    item::{Bytes, Item, ReadyHash},
    ours::KEY,
    peers::frequency as peers,
    report::{Group, Outcome, MemoryLevel},
    stream::{Zipf, counts},
};

/// Measures all of them.
pub fn run(bench: &mut Bench) {
    row::<PlainRow>(bench);
    row::<OneLineRow>(bench);
    row::<TwoLinesRow>(bench);
    row::<ConservativeRow>(bench);
    row::<HeavyLightRow>(bench);
}

/// The number of rows of counters.
const ROWS: usize = 4;

/// The probability of exceeding the error for which weir uses this number of rows.
const PROBABILITY: f64 = 0.02;

/// The error for which weir uses this many columns.
fn error(columns: usize) -> f64 {
    std::f64::consts::E / (columns as f64 - 0.5)
}

/// A kind of count-min sketch.
trait Row {
    /// The name of the structure, and how it is built.
    const STRUCTURE: &'static str;

    /// All contenders, each with [`ROWS`] times `columns` counters.
    fn contenders<K: Item>(columns: usize) -> Vec<Contender<K>>;
}

struct PlainRow;

impl Row for PlainRow {
    const STRUCTURE: &'static str = "Count-min, 4 rows";

    fn contenders<K: Item>(columns: usize) -> Vec<Contender<K>> {
        let ours = CountMin::<u64, Plain>::plain_with_error(error(columns), PROBABILITY, KEY.id()).expect("the settings are allowed");
        plain::<i64, u64, K>(Contender::ours("CountMin, plain", ours), columns)
    }
}

struct OneLineRow;

impl Row for OneLineRow {
    const STRUCTURE: &'static str = "Count-min in one cache line, 32-bit counters, in as much memory as 4 rows";

    fn contenders<K: Item>(columns: usize) -> Vec<Contender<K>> {
        // The counters are half as wide, so there are twice as many.
        let columns = 2 * columns;
        let ours = BlockedCountMin::<u32, Plain>::plain_with_error(error(columns), KEY.id()).expect("the settings are allowed");
        plain::<i32, u32, K>(Contender::ours("BlockedCountMin, plain", ours), columns)
    }
}

struct TwoLinesRow;

impl Row for TwoLinesRow {
    const STRUCTURE: &'static str = "Count-min in two cache lines, 64-bit counters, in as much memory as 4 rows";

    fn contenders<K: Item>(columns: usize) -> Vec<Contender<K>> {
        let ours = BlockedCountMin::<u64, Plain>::plain_with_error(error(columns), KEY.id()).expect("the settings are allowed");
        plain::<i64, u64, K>(Contender::ours("BlockedCountMin, plain", ours), columns)
    }
}

/// weir's sketch, a peer that takes ready hashes, and one that does not.
fn plain<C: peers::Counter + 'static, U: peers::Unsigned + 'static, K: Item>(
    ours: Contender<K>,
    columns: usize,
) -> Vec<Contender<K>> {
    let mut contenders = vec![ours, plain_peer::<C, K>(columns)];
    if !K::IS_HASH {
        contenders.push(Contender::peer("datasketches", peers::DataSketchesCountMin::<U>::with_cells(ROWS, columns)));
    }
    contenders
}

fn plain_peer<C: peers::Counter + 'static, K: Item>(columns: usize) -> Contender<K> {
    // It takes the columns of four rows from the hash, with one bit more for each: 64 bits are faster if they suffice.
    if columns.ilog2() < 16 {
        Contender::peer("asap_sketchlib", peers::AsapSketchlib::<C, u64>::with_cells(ROWS, columns))
    } else {
        Contender::peer("asap_sketchlib", peers::AsapSketchlib::<C, u128>::with_cells(ROWS, columns))
    }
}

struct ConservativeRow;

impl Row for ConservativeRow {
    const STRUCTURE: &'static str = "Count-min with conservative update, 4 rows";

    fn contenders<K: Item>(columns: usize) -> Vec<Contender<K>> {
        let packets = CountMin::<u64>::with_error(error(columns), PROBABILITY, KEY.id()).expect("the settings are allowed");
        let tally = CountMin::<CountAndSum>::with_error(error(columns), PROBABILITY, KEY.id()).expect("the settings are allowed");
        let mut contenders =
            vec![Contender::ours("CountMin", packets), Contender::ours("CountMin, packets and bytes", tally)];
        if !K::IS_HASH {
            contenders.push(Contender::peer("count-min-sketch", peers::CountMinSketchCrate::with_columns(columns)));
        }
        contenders
    }
}

struct HeavyLightRow;

impl Row for HeavyLightRow {
    const STRUCTURE: &'static str = "Heavy and light counters";

    fn contenders<K: Item>(columns: usize) -> Vec<Contender<K>> {
        // It has as much memory as four rows of counters.
        let memory = HeavyLight::<u64>::with_error(error(columns), KEY.id()).expect("the settings are allowed").memory_bytes();
        let share = memory as f64 / (columns * ROWS * size_of::<u64>()) as f64;
        let ours = HeavyLight::<u64>::with_error(error(columns) * share, KEY.id()).expect("the settings are allowed");
        let mut contenders = vec![Contender::ours("HeavyLight", ours)];
        if !K::IS_HASH {
            contenders.push(Contender::peer("count-min-sketch", peers::CountMinSketchCrate::with_columns(columns)));
        }
        contenders
    }
}

/// The input: a million keys by Zipf's law inside L2; beyond it, all keys equally often, so that they are spread over
/// the memory.
struct Traffic {
    stream: Vec<u64>,
    numbers: usize,
}

impl Traffic {
    fn new(bench: &Bench, place: MemoryLevel) -> Self {
        let length = if bench.settings.quick { 500_000 } else { 1_000_000 };
        let (stream, numbers) = match place {
            MemoryLevel::Near => (Zipf::new(1_000_000, 1.05).stream(1, length), 1_000_000),
            MemoryLevel::Far => ((0..length as u64).map(|n| mix(n) % length as u64).collect(), length),
        };
        Self { stream, numbers }
    }
}

const OPERATIONS: [&str; 2] = ["add", "estimate"];

fn row<R: Row>(bench: &mut Bench) {
    if !bench.settings.wants(R::STRUCTURE) {
        return;
    }
    for place in [MemoryLevel::Near, MemoryLevel::Far] {
        let columns = bench.settings.bytes(place) / ROWS / size_of::<u64>();
        let traffic = Traffic::new(bench, place);
        let mut group = Group::new(R::STRUCTURE, place, &OPERATIONS, "mean error, ppm of all");
        compete::<R, Bytes<8>>(bench, &mut group, columns, &traffic);
        if !bench.settings.quick {
            compete::<R, Bytes<13>>(bench, &mut group, columns, &traffic);
            compete::<R, Bytes<40>>(bench, &mut group, columns, &traffic);
        }
        compete::<R, ReadyHash>(bench, &mut group, columns, &traffic);
        bench.finish(group);
    }
}

fn compete<R: Row, K: Item>(bench: &mut Bench, group: &mut Group, columns: usize, traffic: &Traffic) {
    let mut contenders = R::contenders::<K>(columns);
    let keys: Vec<K> = traffic.stream.iter().map(|number| K::nth(*number)).collect();
    let mut times = vec![[const { Vec::new() }; OPERATIONS.len()]; contenders.len()];
    for _ in 0..5 {
        for (contender, times) in contenders.iter_mut().zip(&mut times) {
            contender.subject.clear();
            time_each(&keys, &mut times[0], |keys| contender.subject.put(keys));
            time_each(&keys, &mut times[1], |keys| {
                black_box(contender.subject.ask(keys));
            });
        }
    }
    let outcomes = contenders.iter().zip(times).map(|(contender, times)| {
        let error = Error::of(contender, traffic, columns);
        let who = || format!("{}: {} with {}", R::STRUCTURE, contender.name, K::NAME);
        bench.check(error.too_low == 0, || format!("{} underestimates {} keys", who(), error.too_low));
        // The promised share is e^-4; twice as many are more than chance.
        let share = error.too_high as f64 / error.keys as f64;
        bench.check(share < 2.0 * f64::exp(-4.0), || format!("{} breaks its bound for {share:.3} of keys", who()));
        Outcome {
            name: contender.name,
            ours: contender.ours,
            nanoseconds: times.into_iter().map(median).collect(),
            memory_bytes: contender.subject.memory_bytes(),
            error: format!("{:.2}", error.mean * 1e6),
        }
    });
    let outcomes = outcomes.collect();
    group.add(K::NAME, outcomes);
}

/// How wrong a sketch is about the keys of a stream.
#[derive(Default)]
struct Error {
    keys: u64,
    /// Keys whose estimate is below the truth.
    too_low: u64,
    /// Keys whose estimate exceeds the truth by more than e / columns of all.
    too_high: u64,
    /// The mean excess, as a share of all.
    mean: f64,
}

impl Error {
    fn of<K: Item>(contender: &Contender<K>, traffic: &Traffic, columns: usize) -> Self {
        let mut error = Self::default();
        let all = traffic.stream.len() as f64;
        for (number, truth) in counts(&traffic.stream, traffic.numbers).into_iter().enumerate() {
            if truth > 0 {
                let estimate = contender.subject.ask(&[K::nth(number as u64)]);
                let excess = estimate.saturating_sub(truth) as f64 / all;
                error.keys += 1;
                error.too_low += u64::from(estimate < truth);
                error.too_high += u64::from(excess > std::f64::consts::E / columns as f64);
                error.mean += excess;
            }
        }
        error.mean /= error.keys as f64;
        error
    }
}
