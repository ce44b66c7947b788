//! The cost of the end of a window on a machine with many CPUs: a few workers close it on many CPUs each, and their
//! shards become a report.
//!
//! The CPUs are simulated: each has its records in memory, and its block of counters. The figures do not include the
//! time of the kernel's `flush`. Workers run one after another here, each as if it had a CPU of its own: the slowest
//! one counts.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use weir::memory::Memory;
use weir_common::{
    control::{Flush, SLOTS_MAX},
    cpu::{Cpu, EVICTED_MAX, HANDED_OVER_MAX},
    flow::Scope,
    ledger::Ledger,
    record::Record,
    size::size_class,
};
use weir_config::Config;
use weir_datapath::{
    Cpus, Edge, EdgeReader, KernelError, Shares,
    interface::{Counts, MeasuredInterface},
    ring::Drained,
};
use weir_measure::{
    keys::Keys,
    lane::Source,
    order::Closed,
    question::Views,
    ring_aggregator::RingAggregator,
    seen::{self, Rotation},
    window::Span,
};
use weir_report::{SketchExporter, closing::Closing, observer::Observer};
use weir_schema::{Encoded, Report, alerting::Alerts};
use weir_sketch::hash::mix;
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::{
    pipeline::{KEY, flow, zipf},
    table::{self, least_and_median},
};

const ROUNDS: usize = 7;
const CPUS: u32 = 128;
const BYTES: u64 = 1_000;
/// Records that each CPU has sent within the window, before its end.
const RECORDS: u64 = 1 << 13;

/// A CPU whose window ends: its ring is empty, and its cache is full.
struct Simulated {
    number: u32,
    block: Box<Cpu>,
    edges: EdgeReader,
    sent: Vec<Record>,
    cache: Vec<Record>,
}

impl Simulated {
    fn new(number: u32, interfaces: usize, cache_flows: u64) -> Self {
        let record = |nth: u64| {
            let scope = Scope::new((nth % interfaces as u64) as u8, 0);
            let key = flow(zipf(mix(u64::from(number) << 32 | nth)), false).with_scope(scope);
            Record { key, bytes: BYTES, packets: 1, sampling: 1, ..Record::default() }
        };
        let sent: Vec<_> = (0..RECORDS).map(record).collect();
        let cache: Vec<_> = (RECORDS..RECORDS + cache_flows).map(record).collect();
        let mut block: Box<Cpu> = Box::new(Cpu::new_zeroed());
        let set = &mut block.counter_sets[0];
        for record in sent.iter().chain(&cache) {
            set.interfaces[usize::from(record.key.interface())].seen.add(record.tally());
            set.sizes[size_class(BYTES)] += 1;
        }
        Self { number, block, edges: EdgeReader::new(interfaces), sent, cache }
    }
}

impl Source for Simulated {
    fn cpu(&self) -> u32 {
        self.number
    }

    fn drain(&mut self, mut take: impl FnMut(&[Record])) -> Drained {
        for one in std::mem::take(&mut self.sent).chunks(EVICTED_MAX) {
            take(one);
        }
        Drained { fill: 0.0, more: false }
    }

    fn flush(&mut self, mut take: impl FnMut(&[Record])) -> Result<Flush, KernelError> {
        let rest = self.cache.len().saturating_sub(HANDED_OVER_MAX);
        take(&self.cache.split_off(rest));
        Ok(if rest == 0 { Flush::Done } else { Flush::Again })
    }

    fn edge(&mut self, edge: &mut Edge) -> Result<(), KernelError> {
        // The kernel copies the whole block.
        black_box(self.block.as_bytes().to_vec());
        self.edges.read(0, &self.block, edge);
        Ok(())
    }

    fn provide(&mut self, interfaces: usize) {
        self.edges.provide(interfaces);
    }
}

/// Measures and prints.
///
/// # Errors
///
/// A report is wrong.
pub fn bench() -> Result<()> {
    let config = Config::default();
    let cpus = Cpus::of(CPUS);
    let workers = Memory::plan(&config, &Views::new(&config, SLOTS_MAX as usize)?, &cpus, true).workers as usize;
    let mut rows = Vec::new();
    for (name, interfaces) in [("4 interfaces", 4), ("256 interfaces", SLOTS_MAX as usize)] {
        let rounds: Vec<_> = (0..ROUNDS).map(|_| round(&config, &cpus, workers, interfaces)).collect::<Result<_>>()?;
        let least = |part: fn(&[f64; 2]) -> f64| least_and_median(rounds.iter().map(part).collect());
        let [(_, worker), (_, report), (best, both)] =
            [least(|[one, _]| *one), least(|[_, two]| *two), least(|[one, two]| one + two)];
        let cells = [worker, report, best, both].map(|ms| format!("{ms:.1}"));
        rows.push([&[name.to_owned()], &cells[..]].concat().try_into().expect("a name and the figures"));
    }
    let title = format!("end of a window over {CPUS} CPUs");
    table::say("\n")?;
    table::write([&title, "slowest worker", "merge and report", "together, least", "together, median"], &rows)?;
    let Shares { cache_flows, .. } = Shares::new(&config.datapath, &cpus);
    table::say(format!(
        "\nMilliseconds, medians of {ROUNDS} rounds: {workers} workers with {} simulated CPUs each, whose caches are full \
         ({cache_flows} flows).\nEach worker has a CPU of its own. The time that the kernel's programs take is not \
         in it.\nChecked after each round: the report has every packet of every CPU, and each ledger balances.\n",
        CPUS as usize / workers
    ))
}

/// Milliseconds of the slowest worker, and of everything after it.
fn round(config: &Config, cpus: &Cpus, workers: usize, interfaces: usize) -> Result<[f64; 2]> {
    let views = Views::new(config, interfaces)?;
    let mut keys = Keys::new(KEY, KEY, Timestamp::UNIX_EPOCH);
    let seen = Arc::new(seen::filter(&config.seen_flows, keys.id()));
    let cache_flows = u64::from(Shares::new(&config.datapath, cpus).cache_flows);
    let (mut window, mut slowest) = (Vec::<Closed>::new(), 0_f64);
    for nth in 0..workers {
        let mut collector = RingAggregator::new(seen.clone(), interfaces, keys.shard(&config.estimates, &views));
        for cpu in cpus.online.iter().skip(nth).step_by(workers) {
            collector.add(Simulated::new(*cpu, interfaces, cache_flows));
        }
        collector.drain();
        let spare = keys.shard(&config.estimates, &views);
        let (closed, took) = timed(|| collector.close(spare));
        window.push(closed?);
        slowest = slowest.max(took);
    }
    let mut closing = Closing {
        key_id: keys.id(),
        keys,
        seen,
        rotation: Rotation::new(config.seen_flows.generation, None),
        interfaces,
        views,
        asks: Vec::new(),
        observer: Observer::of_replay(&config.observer, 1),
        memory_bytes: 0,
        cpu_time: Duration::ZERO,
        last: None,
        alerts: Alerts::default(),
        exporter: SketchExporter::new(config.export.clone()),
        remembered: None,
        networks: Arc::default(),
        local: None,
    };
    let span = Span {
        start: Timestamp::UNIX_EPOCH,
        end: Timestamp::UNIX_EPOCH + config.report.interval,
        length: config.report.interval,
        clock_step: None,
        late_packets: None,
        untimed_packets: None,
    };
    let (report, took) = timed(|| {
        let report = closing.report(&mut window, span, Vec::new(), None, account, Vec::new())?;
        black_box(Encoded::new(&report));
        anyhow::Ok(report)
    });
    check(&report?, u64::from(CPUS) * (RECORDS + cache_flows))?;
    Ok([slowest, took])
}

pub fn account(ledgers: &[Ledger]) -> Vec<MeasuredInterface> {
    let interface = |slot| MeasuredInterface {
        slot: Some(slot),
        name: format!("ppp{slot}"),
        earlier_name: None,
        index: None,
        alias: None,
        vrf: None,
        mode: "tcx",
        counts: Counts::Packets,
        direction: Some("ingress"),
        feeds: "all",
        coverage: None,
        coverage_bytes: None,
        unseen: None,
        blind: None,
        trouble: None,
    };
    (0..ledgers.len()).map(interface).collect()
}

fn check(report: &Report, sent: u64) -> Result<()> {
    let mut seen = 0;
    for interface in &report.interfaces {
        let ledger = &interface.ledger;
        ensure!(ledger.seen.packets == ledger.attributed.packets, "{}: {ledger:?}", interface.name);
        seen += ledger.seen.packets;
    }
    ensure!(seen == sent, "{seen} packets in the report, of {sent}");
    let first = report.top.sources.first().context("an empty list")?;
    ensure!(first.packets.lower <= first.packets.value && first.packets.value <= first.packets.upper, "{first:?}");
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let start = Instant::now();
    let done = work();
    (done, start.elapsed().as_secs_f64() * 1e3)
}
