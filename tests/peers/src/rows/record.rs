//! The whole path of a record through one worker's sketches: Was the flow seen before? How many flows are there? How
//! large is each? Which are the largest?
//!
//! Wrong answers are: an added flow that is not found, a count outside its bounds, and a number of flows that is far
//! off.

use crate::{
    bench::Bench,
    clock::{median, time_each},
    contender::Subject,
    item::{Bytes, Item},
    ours::record::Ours,
    peers::{
        record::Together,
        top_k::{HeavyKeeperBucketed, HeavyKeeperCuckoo},
    },
    report::{Group, Outcome, MemoryLevel},
    stream::{Zipf, counts, largest},
};

const STRUCTURE: &str = "The whole record path, flows of 13 bytes";
/// How many of the largest are sought.
const K: usize = 1_000;
/// The memory for the largest and for all counts together.
const COUNTS_BYTES: usize = 512 << 10;
/// The same memory in weir: less, and its counts are still closer than those of the peers.
const OURS_COUNTS_BYTES: usize = 320 << 10;
/// Bits of a filter for each flow that it is planned for.
const BITS_PER_FLOW: f64 = 10.5;
/// The standard error of 2^14 registers.
const STANDARD_ERROR: f64 = 1.04 / 128.0;

/// A flow of IPv4: addresses, ports and protocol.
pub type Flow = Bytes<13>;

/// Sketches that take records and answer all four questions. [`Subject::ask`] returns how many flows are among the K
/// largest.
pub trait RecordPath: Subject<Flow> {
    /// How many of these flows were not seen.
    fn unseen(&self, flows: &[Flow]) -> u64;

    /// How many records were of a flow that was not seen before.
    fn new_flows(&self) -> u64;

    /// How many flows there are.
    fn unique(&self) -> u64;

    /// The bounds of a flow's number of packets.
    fn packets(&self, flow: &Flow) -> (u64, u64);
}

/// Measures all contenders for records.
pub fn run(bench: &mut Bench) {
    if !bench.settings.wants(STRUCTURE) {
        return;
    }
    for place in [MemoryLevel::Near, MemoryLevel::Far] {
        let mut group =
            Group::new(STRUCTURE, place, &["record"], "of Zipf 1.05: flows off by; count too high by; precision");
        // The errors of the last input are printed: with equal flows, none is the largest.
        compete(bench, &mut group, place, "all new", &Records::all_new());
        compete(bench, &mut group, place, "Zipf 1.05", &Records::popular());
        bench.finish(group);
    }
}

fn contenders(filter_bytes: usize) -> Vec<(&'static str, bool, Box<dyn RecordPath>)> {
    let flows = (filter_bytes as f64 * 8.0 / BITS_PER_FLOW) as u64;
    let bucketed = HeavyKeeperBucketed::with_bytes(K, COUNTS_BYTES / 2);
    let cuckoo = HeavyKeeperCuckoo::with_bytes(K, COUNTS_BYTES / 2);
    vec![
        ("BlockedBloom, HyperLogLog, TopK", true, Box::new(Ours::new(filter_bytes, flows, K, OURS_COUNTS_BYTES))),
        (
            "sbbf-rs-safe, simple_hll, asap_sketchlib, heavykeeper's BucketedTopK",
            false,
            Box::new(Together::new(filter_bytes, COUNTS_BYTES / 2, bucketed)),
        ),
        (
            "the same with heavykeeper's CuckooTopK",
            false,
            Box::new(Together::new(filter_bytes, COUNTS_BYTES / 2, cuckoo)),
        ),
    ]
}

/// The records that every contender gets.
struct Records {
    flows: Vec<Flow>,
    /// Every flow once.
    distinct: Vec<Flow>,
    /// How many packets each of them has.
    packets: Vec<u64>,
    /// The K largest, and those that are as large as the last of them.
    largest: Vec<Flow>,
}

impl Records {
    const LENGTH: usize = 1_000_000;

    /// A few flows have most of the packets.
    fn popular() -> Self {
        Self::of(&Zipf::new(1_000_000, 1.05).stream(3, Self::LENGTH))
    }

    /// No flow comes twice: a flood from spoofed addresses. There are no more flows than the smaller filter is planned
    /// for.
    fn all_new() -> Self {
        Self::of(&(0..390_000).collect::<Vec<_>>())
    }

    fn of(stream: &[u64]) -> Self {
        let counts = counts(stream, 1_000_000);
        let seen = (0..).zip(&counts).filter(|(_, count)| **count > 0);
        let (distinct, packets) = seen.map(|(number, count)| (Flow::nth(number), *count)).unzip();
        Self {
            flows: stream.iter().map(|number| Flow::nth(*number)).collect(),
            distinct,
            packets,
            largest: largest(&counts, K).into_iter().map(Flow::nth).collect(),
        }
    }
}

fn compete(bench: &mut Bench, group: &mut Group, place: MemoryLevel, item: &'static str, records: &Records) {
    let mut contenders = contenders(bench.settings.bytes(place));
    let mut times = vec![Vec::new(); contenders.len()];
    let rounds = if bench.settings.quick { 5 } else { 9 };
    for _ in 0..rounds {
        for ((_, _, subject), times) in contenders.iter_mut().zip(&mut times) {
            subject.clear();
            time_each(&records.flows, times, |flows| subject.put(flows));
        }
    }
    let outcomes = contenders.iter().zip(times).map(|((name, ours, subject), times)| {
        let error = check(bench, name, subject.as_ref(), records);
        Outcome { name, ours: *ours, nanoseconds: vec![median(times)], memory_bytes: subject.memory_bytes(), error }
    });
    let outcomes = outcomes.collect();
    group.add(item, outcomes);
}

/// Compares all answers with the truth; returns their errors as text.
fn check(bench: &mut Bench, name: &str, subject: &dyn RecordPath, records: &Records) -> String {
    let flows = records.distinct.len() as f64;
    let unseen = subject.unseen(&records.distinct);
    bench.check(unseen == 0, || format!("{STRUCTURE}: {name} has not seen {unseen} flows"));

    // Some new flows are taken for seen, at most at the rate of a full filter, and the filter is full only at the end.
    let new = subject.new_flows() as f64 / flows;
    bench.check((0.99..=1.0).contains(&new), || format!("{STRUCTURE}: {name} finds {new:.4} of flows new"));

    let unique = subject.unique() as f64 / flows - 1.0;
    // A correct result exceeds this once in 10,000 times.
    bench.check(unique.abs() < 4.0 * STANDARD_ERROR, || {
        format!("{STRUCTURE}: {name} is off by {:.2} % of flows", unique * 100.0)
    });

    let (mut beyond, mut excess) = (0, 0);
    for (flow, packets) in records.distinct.iter().zip(&records.packets) {
        let (lower, upper) = subject.packets(flow);
        beyond += u64::from(!(lower..=upper).contains(packets));
        excess += upper.saturating_sub(*packets);
    }
    bench.check(beyond == 0, || format!("{STRUCTURE}: {name} has {beyond} flows outside of their bounds"));

    let precision = subject.ask(&records.largest) as f64 / K as f64;
    let excess = excess as f64 / flows / records.flows.len() as f64;
    format!("{:.2} %; {:.2} ppm; {precision:.3}", unique.abs() * 100.0, excess * 1e6)
}
