//! Measures the cost of exported sketches: reading them from each window, writing them once a minute, and encoding
//! them, beside the rest of what the coordinator does at the ends of the same windows.

use std::{collections::HashMap, hint::black_box, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use weir_common::{ledger::Tally, record::Record, size::size_class};
use weir_config::{Config, Export, ExportViews};
use weir_datapath::edge::Edge;
use weir_measure::{
    export::MergedWindow,
    keys::Keys,
    order::Closed,
    question::Views,
    seen::{self, Rotation},
    window::Span,
};
use weir_report::{SketchExporter, closing::Closing, observer::Observer};
use weir_schema::{Encoded, Sketches, alerting::Alerts, sketches::ListUnion};
use weir_sketch::hash::mix;
use weir_system::clock;

use crate::{
    machine::account,
    pipeline::{KEY, flow, zipf},
    table::{self, least_and_median},
};

const ROUNDS: usize = 7;
const WORKERS: u64 = 2;
/// Windows of ten seconds in a minute.
const WINDOWS: u64 = 6;
/// Records of a worker in a window.
const RECORDS: u64 = 1 << 17;
const BYTES: u64 = 1_000;

/// Milliseconds of a minute.
#[derive(Default)]
struct Minute {
    closing: f64,
    reading: f64,
    encoding: f64,
}

/// Measures and prints.
///
/// # Errors
///
/// An exported list is wrong.
pub fn bench() -> Result<()> {
    let minutes: Vec<Minute> = (0..ROUNDS as u64).map(minute).collect::<Result<_>>()?;
    let median = |part: fn(&Minute) -> f64| least_and_median(minutes.iter().map(part).collect()).1;
    let [closing, reading, encoding] =
        [|m: &Minute| m.closing, |m: &Minute| m.reading, |m: &Minute| m.encoding].map(median);
    let share = median(|m| 100.0 * (m.reading + m.encoding) / (m.closing + m.reading + m.encoding));
    let cells = [closing, reading, encoding].map(|ms| format!("{ms:.2}"));
    let [closing, reading, encoding] = cells;
    table::say("\n")?;
    table::write(
        ["a minute with `export: {views: all}`", "ends of windows", "reading", "encoding", "share of both"],
        &[["six windows of 10 s".to_owned(), closing, reading, encoding, format!("{share:.2} %")]],
    )?;
    table::say(format!(
        "\nMilliseconds of CPU time, medians of {ROUNDS} minutes: {WORKERS} workers with {RECORDS} records each in a window. The \
         ends of windows are those of `weir run` from the workers' shards to the encoded report.\nChecked after each \
         minute: the sum of every key is within the exported bounds.\n"
    ))
}

fn minute(round: u64) -> Result<Minute> {
    let config = Config::default();
    let views = Views::new(&config, 1)?;
    let mut keys = Keys::new(KEY, KEY, Timestamp::UNIX_EPOCH);
    let seen = Arc::new(seen::filter(&config.seen_flows, keys.id()));
    let mut exporter = SketchExporter::new(Export { views: ExportViews::All, ..config.export.clone() });
    let mut closing = Closing {
        key_id: keys.id(),
        keys: Keys::new(KEY, KEY, Timestamp::UNIX_EPOCH),
        seen: seen.clone(),
        rotation: Rotation::new(config.seen_flows.generation, None),
        interfaces: 1,
        views: views.clone(),
        asks: Vec::new(),
        observer: Observer::of_replay(&config.observer, 1),
        memory_bytes: 0,
        cpu_time: Duration::ZERO,
        last: None,
        alerts: Alerts::default(),
        exporter: SketchExporter::new(Export::default()),
        remembered: None,
        networks: Arc::default(),
        local: None,
    };
    let (mut took, mut truth, mut is_exported) = (Minute::default(), HashMap::<String, Tally>::new(), false);
    for nth in 0..WINDOWS {
        let mut window: Vec<Closed> = Vec::new();
        for worker in 0..WORKERS {
            let record = |record| {
                let key = flow(zipf(mix(round << 48 | nth << 40 | worker << 32 | record)), false);
                Record { key, bytes: BYTES, packets: 1, sampling: 1, ..Record::default() }
            };
            let records: Vec<Record> = (0..RECORDS).map(record).collect();
            for record in &records {
                truth.entry(record.key.src_ip().to_string()).or_default().add(record.tally());
            }
            let mut shard = keys.shard(&config.estimates, &views);
            shard.absorb(&records, &seen);
            shard.settle(&seen);
            let mut edge = Edge::empty(1);
            edge.counters[0].seen = Tally::new(RECORDS, RECORDS * BYTES);
            edge.sizes[size_class(BYTES)] = RECORDS;
            window.push(Closed::new(shard, edge));
        }
        let span = span(&config, nth as u32);
        let (report, closed) = timed(|| {
            let report = closing.report(&mut window, span, Vec::new(), None, account, Vec::new())?;
            black_box(Encoded::new(&report));
            anyhow::Ok(report)
        });
        let mut report = report?;
        let last = closing.last.as_ref().context("a window")?;
        let merged = MergedWindow { first: &window[0], views: &views, uncertainty: &last.uncertainty };
        let (sketches, read) = timed(|| exporter.add(merged, &views, span, &last.interfaces));
        took.closing += closed;
        took.reading += read;
        if let Some(sketches) = sketches {
            ensure!(nth + 1 == WINDOWS && sketches.windows == WINDOWS as u32, "{} windows", sketches.windows);
            check(&sketches, &truth)?;
            let (_, without) = timed(|| black_box(Encoded::new(&report)));
            report.sketches = Some(Box::new(sketches));
            let (_, with) = timed(|| black_box(Encoded::both(&mut report)));
            took.encoding += (with - without).max(0.0);
            is_exported = true;
        }
    }
    ensure!(is_exported, "nothing was exported");
    Ok(took)
}

fn span(config: &Config, nth: u32) -> Span {
    let length = config.report.interval;
    let start = Timestamp::UNIX_EPOCH + length * nth;
    Span { start, end: start + length, length, clock_step: None, late_packets: None, untimed_packets: None }
}

fn check(sketches: &Sketches, truth: &HashMap<String, Tally>) -> Result<()> {
    let list = sketches.lists.iter().find(|list| list.name == "sources").context("the sources")?;
    let mut union = ListUnion::new(&list.by, usize::MAX);
    union.add(list)?;
    for (key, true_sum) in truth {
        let sums = union.look_up(key);
        let [lower, upper] = [sums.lower, sums.upper];
        ensure!(
            lower.bytes <= true_sum.bytes
                && true_sum.bytes <= upper.bytes
                && lower.packets <= true_sum.packets
                && true_sum.packets <= upper.packets,
            "{sums:?}: {true_sum:?}"
        );
    }
    ensure!(list.keys.len() >= 64 && sketches.lists.len() > 4 && sketches.distinct.len() == 3);
    Ok(())
}

/// The CPU time of all threads, because other programs may run meanwhile.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = clock::cpu_time();
    let done = work();
    (done, (clock::cpu_time() - start).as_secs_f64() * 1e3)
}
