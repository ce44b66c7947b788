//! "How many distinct?": next to each time is the root mean square of the relative error over many sets of keys.
//!
//! These structures have a few KiB and are always in a cache, so there is no row beyond the cache.

use weir_sketch::{HyperLogLog, UltraLogLog};

use crate::{
    bench::Bench,
    clock::{median, time_each},
    contender::Contender,
    item::{Bytes, Item, ReadyHash},
    ours::{KEY, distinct as ours},
    peers::distinct as peers,
    report::{Group, Outcome, MemoryLevel},
};

/// Measures all of them.
pub fn run(bench: &mut Bench) {
    row::<HllRow>(bench);
    row::<UllRow>(bench);
}

/// A kind of distinct counter.
trait Row {
    /// The name of the structure, and how it is built.
    const STRUCTURE: &'static str;
    /// The standard error by theory.
    const STANDARD_ERROR: f64;

    /// All contenders.
    fn contenders<K: Item>() -> Vec<Contender<K>>;
}

struct HllRow;

impl Row for HllRow {
    const STRUCTURE: &'static str = "HyperLogLog, 2^14 registers";
    const STANDARD_ERROR: f64 = 1.04 / 128.0;

    fn contenders<K: Item>() -> Vec<Contender<K>> {
        let sketch = || HyperLogLog::with_error(0.0082, KEY.id()).expect("the settings are allowed");
        let mut contenders = vec![
            Contender::ours("HyperLogLog, in batches", ours::InBatches(sketch())),
            Contender::ours("HyperLogLog, one by one", ours::OneByOne(sketch())),
            Contender::peer("simple_hll", peers::SimpleHll::default()),
            Contender::peer("cardinality-estimator", peers::CardinalityEstimatorCrate::new()),
        ];
        if !K::IS_HASH {
            contenders.push(Contender::peer("datasketches, one stream (HIP)", peers::DataSketchesHll::hip()));
            contenders.push(Contender::peer("datasketches, as after merging", peers::DataSketchesHll::composite()));
        }
        contenders
    }
}

struct UllRow;

impl Row for UllRow {
    const STRUCTURE: &'static str = "UltraLogLog, 2^13 registers";
    const STANDARD_ERROR: f64 = 0.78 / 90.5;

    fn contenders<K: Item>() -> Vec<Contender<K>> {
        let sketch = || UltraLogLog::with_precision(13, KEY.id()).expect("the settings are allowed");
        vec![
            Contender::ours("UltraLogLog, in batches", ours::InBatches(sketch())),
            Contender::ours("UltraLogLog, one by one", ours::OneByOne(sketch())),
            Contender::peer("ultraloglog", peers::UltraLogLogCrate::with_precision(13)),
        ]
    }
}

/// The number of keys in a round.
const KEYS: u64 = 250_000;

fn row<R: Row>(bench: &mut Bench) {
    if !bench.settings.wants(R::STRUCTURE) {
        return;
    }
    let mut group = Group::new(R::STRUCTURE, MemoryLevel::Near, &["insert"], "RMSE");
    compete::<R, Bytes<8>>(bench, &mut group);
    if !bench.settings.quick {
        compete::<R, Bytes<13>>(bench, &mut group);
        compete::<R, Bytes<40>>(bench, &mut group);
    }
    compete::<R, ReadyHash>(bench, &mut group);
    bench.finish(group);
}

fn compete<R: Row, K: Item>(bench: &mut Bench, group: &mut Group) {
    let mut contenders = R::contenders::<K>();
    let rounds = if bench.settings.quick { 64 } else { 200 };
    let mut times = vec![Vec::new(); contenders.len()];
    let mut squares = vec![0.0; contenders.len()];
    for round in 0..rounds {
        let keys: Vec<K> = (round * KEYS..(round + 1) * KEYS).map(K::nth).collect();
        for (nth, contender) in contenders.iter_mut().enumerate() {
            contender.subject.clear();
            time_each(&keys, &mut times[nth], |keys| contender.subject.put(keys));
            let error = contender.subject.ask(&[]) as f64 / KEYS as f64 - 1.0;
            squares[nth] += error * error;
        }
    }
    let outcomes = contenders.iter().zip(times).zip(squares).map(|((contender, times), squares)| {
        let error = f64::sqrt(squares / rounds as f64);
        // One in 10,000 correct results exceeds this: chi-squared with 64 or more degrees of freedom.
        bench.check(error < 1.35 * R::STANDARD_ERROR, || {
            format!("{}: {} with {} is off by {:.2} %", R::STRUCTURE, contender.name, K::NAME, error * 100.0)
        });
        Outcome {
            name: contender.name,
            ours: contender.ours,
            nanoseconds: vec![median(times)],
            memory_bytes: contender.subject.memory_bytes(),
            error: format!("{:.2} %", error * 100.0),
        }
    });
    let outcomes = outcomes.collect();
    group.add(K::NAME, outcomes);
}
