//! "Which are the largest?": how many of the true thousand largest keys of streams by Zipf's law are found.

use crate::{
    bench::Bench,
    clock::{median, time_each},
    contender::Contender,
    item::{Bytes, Item},
    ours::top_k::{Largest, LargestInBuckets},
    peers::top_k as peers,
    report::{Group, Outcome, MemoryLevel},
    stream::{Zipf, counts, largest},
};

const STRUCTURE: &str = "Top 1,000 of Zipf 1.05, 256 KiB";
/// How many of the largest are asked for.
const K: usize = 1_000;
/// The memory of each contender.
const BYTES: usize = 256 << 10;
/// Streams, one for each round: a single one shows the precision only in steps of 0.001.
const STREAMS: u64 = 5;
/// The number of different keys.
const NUMBERS: u32 = 1_000_000;

/// Measures all of them.
pub fn run(bench: &mut Bench) {
    if !bench.settings.wants(STRUCTURE) {
        return;
    }
    let length = if bench.settings.quick { 2_000_000 } else { 4_000_000 };
    let zipf = Zipf::new(NUMBERS, 1.05);
    let streams: Vec<_> = (0..STREAMS).map(|nth| zipf.stream(2 + nth, length)).collect();
    let mut group = Group::new(STRUCTURE, MemoryLevel::Near, &["add"], "precision, in the same order");
    // The longer the keys, the fewer fit.
    group.error_by_item = true;
    compete::<Bytes<8>>(bench, &mut group, &streams);
    if !bench.settings.quick {
        compete::<Bytes<13>>(bench, &mut group, &streams);
        compete::<Bytes<40>>(bench, &mut group, &streams);
    }
    bench.finish(group);
}

fn contenders<I: Item>() -> Vec<Contender<I>> {
    vec![
        Contender::ours("TopK", Largest::with_bytes(K, BYTES)),
        Contender::ours("CandidateBuckets", LargestInBuckets::with_bytes(K, BYTES)),
        Contender::peer("heavykeeper, TopK", peers::HeavyKeeper::with_bytes(K, BYTES)),
        Contender::peer("heavykeeper, BucketedTopK", peers::HeavyKeeperBucketed::with_bytes(K, BYTES)),
        Contender::peer("heavykeeper, CuckooTopK", peers::HeavyKeeperCuckoo::with_bytes(K, BYTES)),
        Contender::peer("datasketches, FrequentItems", peers::DataSketchesFrequentItems::with_bytes(K, BYTES)),
    ]
}

fn compete<I: Item>(bench: &mut Bench, group: &mut Group, streams: &[Vec<u64>]) {
    let mut contenders = contenders::<I>();
    let mut times = vec![Vec::new(); contenders.len()];
    let mut found = vec![0; contenders.len()];
    for stream in streams {
        let keys: Vec<I> = stream.iter().map(|number| I::nth(*number)).collect();
        let largest = largest(&counts(stream, NUMBERS as usize), K);
        let largest: Vec<I> = largest.into_iter().map(I::nth).collect();
        for ((contender, times), found) in contenders.iter_mut().zip(&mut times).zip(&mut found) {
            contender.subject.clear();
            time_each(&keys, times, |keys| contender.subject.put(keys));
            *found += contender.subject.ask(&largest);
        }
    }
    let outcomes = contenders.iter().zip(times).zip(found).map(|((contender, times), found)| {
        let precision = found as f64 / (K * streams.len()) as f64;
        // No sketch promises a precision; one that finds less than half is broken.
        bench.check(precision > 0.5, || format!("{} finds {precision:.3} of the largest keys", contender.name));
        Outcome {
            name: contender.name,
            ours: contender.ours,
            nanoseconds: vec![median(times)],
            memory_bytes: contender.subject.memory_bytes(),
            error: format!("{precision:.4}"),
        }
    });
    let outcomes = outcomes.collect();
    group.add(I::NAME, outcomes);
}
