//! The memory that a configuration needs: one fixed number, known before the daemon starts. `program_file` has the size
//! of the program itself. `fit` chooses smaller settings where the configuration allows less than the defaults need,
//! and `budget` says what to change if that is not enough.

pub mod allocator;
mod budget;
mod change;
mod fit;
pub mod program_file;

use std::{fmt, path::Path, sync::Arc, time::Duration};

use weir_common::{
    cpu::{Cpu, HandedOver},
    ledger::Counters,
    packet::REACH_MAX,
    record::Record,
    sampling::Valve,
};
use weir_config::{Addresses, Config, Sink, Target, slots, view::ViewKey};
use weir_datapath::{Cpus, Shares, rates::SECONDS_BYTES, ring_records, tap};
use weir_deliver::{
    prometheus,
    sink::{ENTRY_MESSAGES_BYTES, KAFKA_ANSWER_BYTES},
    spool,
};
use weir_measure::{
    lane::LATE_BYTES,
    local::Local,
    local_shard::{LISTED_MAX, LocalShard},
    open,
    question::Views,
    ranking::Ranked,
    seen,
    shard::Shard,
};
use weir_report::exporter;
use weir_schema::{REPORTS_KEPT, alerting::EVIDENCE_MAX};
use weir_system::{
    memory::{self, Part},
    numbers::{grouped, mebibytes},
};

pub use self::{
    budget::{Fitting, OverBudget},
    change::Change,
    fit::{Fit, Fitted, fit},
};

/// Thread stacks, TLS, allocator, and log lines that are not written yet.
const STACKS_BYTES: u64 = 2 << 20;
/// The system's libraries. In a static program they are a part of its file, which is counted by itself.
const LIBRARIES_BYTES: u64 = if cfg!(target_feature = "crt-static") { 0 } else { 2 << 20 };
/// The memory that the daemon needs in addition while it loads its programs, before it has sketches. The most is
/// resident while it reads the kernel's description of its types, some 5 MiB; stacks are hardly used then. The programs
/// themselves take less. Measured.
const LOADING_BYTES: u64 = 4608 << 10;
/// The largest report without its lists, and the largest list entry, measured as JSON.
const REPORT_BYTES: u64 = 8 << 10;
const ENTRY_BYTES: u64 = 320;
/// A row of the last window, in both orders, for queries.
const LISTED_BYTES: u64 = 2 * bytes_of::<Ranked<ViewKey>>();
/// The most reports that a remote sink gets at once: `weir_deliver::sink::Sink::batch_bytes`.
const BATCH_BYTES: u64 = 1 << 20;
/// A delivery of a sink: as spooled, as JSON, and as a request body.
const DELIVERY_COPIES: u64 = 3;
/// The largest answer of a Kafka broker, as it came and as it is read, three times as large, with copies of it and of
/// an earlier one.
const KAFKA_ANSWER_COPIES: u64 = 12;
/// Copies of a delivery in a Kafka client, besides [`DELIVERY_COPIES`]: as records, and as a batch.
const KAFKA_DELIVERY_COPIES: u64 = 2;
/// An interface's ledger as OTLP messages, see [`ENTRY_MESSAGES_BYTES`].
const INTERFACE_MESSAGES_BYTES: u64 = 64 << 10;
/// An interface's ledger as JSON with bounds: thousands of packets for every reason, millions in total.
const INTERFACE_BYTES: u64 = 2040;
/// What an interface has carried in a month, as JSON.
const USAGE_BYTES: u64 = 200;
/// A horizon as JSON.
const HORIZON_BYTES: u64 = 512;
/// New hosts as JSON: their number, and the addresses that are listed.
const NEW_HOSTS_BYTES: u64 = 512 + LISTED_MAX as u64 * 64;
/// An alert as JSON with all its evidence, plus the webhook's data.
const ALERT_BYTES: u64 = 1024 + EVIDENCE_MAX as u64 * ENTRY_BYTES;
/// Names of addresses are listed only if they take at least this much.
const NAMES_SHOWN: u64 = 64 << 10;
/// Each worker has the shards of the open and of the next window.
pub const SHARDS_PER_WORKER: u64 = 2;
/// Each CPU's reader keeps the counters of an even and of an odd window, to compute the next window of the same set.
const EDGES_PER_CPU: u64 = 2;
/// A worker's sum for the closing window, the counters of the CPU it is reading, and two sums in transit.
const EDGES_PER_WORKER: u64 = 4;
/// CPUs whose rings one thread reads. It absorbs 3 million new flows a second, more than two CPUs forward.
const CPUS_PER_WORKER: usize = 2;
/// The most threads that read rings. More are never needed, because sampling starts when they cannot keep up.
const WORKERS_MAX: usize = 8;
/// The kernel's memory for a CPU besides its flow cache and its ring.
const BLOCK_BYTES: u64 = bytes_of::<Cpu>() + bytes_of::<HandedOver>() + bytes_of::<Valve>() + REACH_MAX as u64;
/// The parser's tables in both program objects: mainly the steps over tags, by `EtherType`.
const TABLES_BYTES: u64 = 2 * (68 << 10);
/// The ring is mapped twice in a row, so that entries never wrap.
const RING_MAPPINGS: u64 = 2;

/// The memory that a configuration needs: numbers of threads and sizes, from which the parts follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Online CPUs, each with a ring; 0 if no program is loaded.
    pub cpus: u64,
    /// Threads that read rings, each with shards.
    pub workers: u64,
    /// Packet socket readers, each with shards and a cache.
    pub readers: u64,
    /// The most packet sockets, each with a ring.
    pub taps: u64,
    /// The flow cache of one reader, in bytes.
    pub reader_cache: u64,
    /// The sketches of one thread for one window, in bytes.
    pub shard: u64,
    /// The ring of one CPU, in bytes.
    pub ring: u64,
    /// The memory that the daemon has resident while it measures.
    daemon: Vec<Part>,
    /// The kernel's maps, except the rings of online CPUs.
    kernel: Vec<Part>,
}

/// The parts that other numbers of the plan need.
const PROGRAM: &str = "program, libraries, stacks";
const NAMES: &str = "names of addresses";

impl Memory {
    /// The memory of `config` with these views, on a machine with these CPUs, with or without programs in the kernel.
    pub fn plan(config: &Config, views: &Arc<Views>, cpus: &Cpus, has_programs: bool) -> Self {
        let online = cpus.online.len();
        let Shares { cache_flows, ring } = Shares::new(&config.datapath, cpus);
        let (caches, blocks, spare_rings) = cpus.layout(cache_flows, ring as u32).map_or((0, 0, 0), |layout| {
            let to_come = (0..).zip(&layout.blocks).filter(|(cpu, _)| !cpus.online.contains(cpu));
            (
                u64::from(layout.slots) * bytes_of::<Record>(),
                layout.blocks.len() as u64 * BLOCK_BYTES + TABLES_BYTES,
                to_come.map(|(_, part)| u64::from(part.ring_bytes)).sum(),
            )
        });
        let queued: u64 = config.sinks.iter().map(|sink| sink.queue as u64).sum();
        let alerts = config.rules().len() as u64 * ALERT_BYTES;
        let interfaces = slots(&config.interfaces) as u64;
        let rows = views.rows(interfaces);
        let usage = if config.watches_usage() { interfaces * USAGE_BYTES } else { 0 };
        let report =
            REPORT_BYTES + rows * ENTRY_BYTES + interfaces * INTERFACE_BYTES + usage + alerts + of_local_key(config);
        let taps = tap::count(&config.interfaces, has_programs);
        let workers = if has_programs { online.div_ceil(CPUS_PER_WORKER).min(WORKERS_MAX) } else { 0 };
        let cpus = if has_programs { online as u64 } else { 0 };
        let threads = Threads { cpus, workers: workers as u64, readers: taps.min(online) as u64, taps: taps as u64 };
        let local_shard = LocalShard::bytes_for(!config.report.horizons.is_empty(), config.new_hosts.is_some());
        let shard = (Shard::bytes_for(&config.estimates, views) + local_shard) as u64;
        let reader_cache = u64::from(cache_flows) * bytes_of::<Record>();
        let [packet_rings, own] = tap::memory(threads.taps, config.datapath.packet_ring);
        let tracks = interfaces.min(weir_history::TRACKS_MAX as u64);
        let readings = workers + taps.min(online);
        let [horizons, known_hosts, local_images] = Local::memory(config);
        let daemon = vec![
            threads.sketches(shard),
            threads.rings(ring),
            threads.of_readers(shard, reader_cache),
            packet_rings,
            own,
            threads.counters(interfaces),
            Part::new(NAMES, fit::names_bytes(views), "networks and databases, shared by all")
                .shown_from(NAMES_SHOWN + 1),
            seen::memory(&config.seen_flows),
            horizons,
            known_hosts,
            local_images,
            waiting(config, queued, report),
            kept(config, rows, report),
            open::memory(&config.estimates, views, interfaces as usize, readings, report),
            weir_history::memory(
                config.history.as_ref(),
                interfaces as usize,
                REPORT_BYTES + views.remembered_rows(interfaces) * ENTRY_BYTES + interfaces * INTERFACE_BYTES,
            ),
            weir_history::usage::memory(config.usage.is_some(), interfaces as usize),
            weir_names::memory(&config.names),
            weir_web::memory(&config.web, report, tracks),
            prometheus::memory(&config.prometheus),
            exporter::memory(&config.export, views, queued, config.report.interval),
            spools(config, rows, interfaces, report),
            Part::new(
                PROGRAM,
                program_file::resident_bytes() + STACKS_BYTES + LIBRARIES_BYTES,
                "of the build that prints this",
            ),
        ];
        let kernel = vec![
            Part::new("flow caches", caches, "of all CPUs"),
            Part::new("counters", blocks, "valves, buffers and tables, too"),
            Part::new("rings of CPUs that may come", spare_rings, "").if_any(),
        ];
        let kernel = if has_programs { kernel } else { Vec::new() };
        let Threads { cpus, workers, readers, taps } = threads;
        Self { cpus, workers, readers, taps, reader_cache, shard, ring, daemon, kernel }
    }

    /// The same plan if names of addresses take this much.
    fn with_names(mut self, bytes: u64) -> Self {
        for part in self.daemon.iter_mut().filter(|part| part.what == NAMES) {
            part.bytes = bytes;
        }
        self
    }

    /// Returns the bytes of the part with this name.
    fn part(&self, what: &str) -> u64 {
        self.daemon.iter().chain(&self.kernel).find(|part| part.what == what).map_or(0, |part| part.bytes)
    }

    /// The daemon's resident memory at most.
    pub fn resident(&self) -> u64 {
        self.measuring().max(self.floor() + self.part(NAMES))
    }

    /// Returns the bytes that the program itself needs, whatever it measures.
    pub fn floor(&self) -> u64 {
        self.part(PROGRAM) + if self.cpus > 0 { LOADING_BYTES } else { 0 }
    }

    fn measuring(&self) -> u64 {
        memory::total(&self.daemon)
    }

    /// The memory of the kernel's maps except the rings of online CPUs.
    pub fn kernel(&self) -> u64 {
        memory::total(&self.kernel)
    }

    /// The number of sketches per view.
    pub const fn shards(&self) -> u64 {
        SHARDS_PER_WORKER * (self.workers + self.readers)
    }

    /// The memory of daemon and kernel together. Rings count once, because the daemon maps the kernel's pages.
    pub fn total(&self) -> u64 {
        self.resident() - self.cpus * (RING_MAPPINGS - 1) * self.ring + self.kernel()
    }
}

impl Memory {
    /// A limit for the service (`MemoryMax=`), in whole mebibytes: the total, a second set of sketches while a new
    /// configuration is prepared, and the maps and rings of an earlier weir.
    pub fn limit(&self) -> u64 {
        let sketches = self.shards() * self.shard;
        let earlier = self.kernel() + self.cpus * self.ring;
        (self.total() + sketches + earlier + self.part(PROGRAM) + LOADING_BYTES).next_multiple_of(1 << 20)
    }
}

/// The threads that measure, and their inputs.
struct Threads {
    cpus: u64,
    workers: u64,
    readers: u64,
    taps: u64,
}

impl Threads {
    fn sketches(&self, shard: u64) -> Part {
        let how = format!("{} x {SHARDS_PER_WORKER} x {}", plural(self.workers, "worker"), mib(shard));
        Part::new("sketches", self.workers * SHARDS_PER_WORKER * shard, how).if_any()
    }

    fn rings(&self, ring: u64) -> Part {
        let how = format!("{} x {RING_MAPPINGS} x {}", plural(self.cpus, "CPU"), mib(ring));
        Part::new("rings, as mapped", self.cpus * RING_MAPPINGS * ring, how).if_any()
    }

    fn of_readers(&self, shard: u64, cache: u64) -> Part {
        let how = format!("{} x ({SHARDS_PER_WORKER} x {} sketches + {} cache)", self.readers, mib(shard), mib(cache));
        Part::new("readers of packet sockets", self.readers * (SHARDS_PER_WORKER * shard + cache), how).if_any()
    }

    /// The counters of each CPU for the two previous windows, the sums of each thread, and the seconds of sockets.
    fn counters(&self, interfaces: u64) -> Part {
        let of_cpu = interfaces * (EDGES_PER_CPU * bytes_of::<Counters>() + LATE_BYTES as u64);
        let of_thread = EDGES_PER_WORKER * interfaces * bytes_of::<Counters>();
        let threads = self.workers + self.readers;
        let how = format!("of {} and {}", plural(self.cpus, "CPU"), plural(threads, "thread"));
        let bytes = self.cpus * of_cpu + threads * of_thread + self.taps * SECONDS_BYTES;
        Part::new("counters of interfaces", bytes, how)
    }
}

/// What a report says of horizons and new hosts.
fn of_local_key(config: &Config) -> u64 {
    let hosts = config.new_hosts.map_or(0, |_| NEW_HOSTS_BYTES);
    config.report.horizons.len() as u64 * HORIZON_BYTES + hosts
}

/// The reports that wait in the queues of sinks, and the messages of alerts.
fn waiting(config: &Config, queued: u64, report: u64) -> Part {
    let messages = config.alerts.webhook.as_ref().map_or(0, |webhook| webhook.queue as u64);
    Part::new("reports waiting, at most", queued * report + messages * ALERT_BYTES, "all queues full")
}

/// The last reports, unless a queue holds them, and the rows of the last window.
fn kept(config: &Config, rows: u64, report: u64) -> Part {
    // A long enough queue holds the last reports, too, and shares their memory.
    let shares_reports = !config.export.is_on()
        && config.sinks.iter().any(|sink| sink.queue >= REPORTS_KEPT && matches!(sink.addresses, Addresses::Full));
    let reports = if shares_reports { 0 } else { REPORTS_KEPT as u64 * report };
    let how = "for `weir report`, `weir ask` and Prometheus";
    Part::new("last reports", reports + rows * LISTED_BYTES, how).shown_from(NAMES_SHOWN + 1)
}

/// Deliveries from the spools, and the index of spool files.
fn spools(config: &Config, rows: u64, interfaces: u64, report: u64) -> Part {
    let is_on_disk = config.spool.folder(Some(Path::new(""))).is_some();
    let index = if is_on_disk { spool::Limits::of(&config.spool).index_bytes() } else { 0 };
    // Other sinks get one report at a time.
    let batch = |target: &Target| report + if target.is_remote() { BATCH_BYTES } else { 0 };
    let of_sink = |sink: &Sink| {
        let spooled = sink.target.spool_key().map_or(0, |_| DELIVERY_COPIES * batch(&sink.target) + index);
        let messages = rows * ENTRY_MESSAGES_BYTES + interfaces * INTERFACE_MESSAGES_BYTES;
        let kafka = KAFKA_ANSWER_COPIES * KAFKA_ANSWER_BYTES + KAFKA_DELIVERY_COPIES * (report + BATCH_BYTES);
        let is_kafka = matches!(sink.target, Target::Kafka(_));
        spooled + if sink.target.translates() { messages } else { 0 } + if is_kafka { kafka } else { 0 }
    };
    let bytes = config.sinks.iter().map(of_sink).sum();
    Part::new("delivery and spools", bytes, "batches, and the names of all files").if_any()
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

const fn bytes_of<T>() -> u64 {
    size_of::<T>() as u64
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, bytes: u64, how: &str| writeln!(f, "  {what:<28}{:>10}  {how}", mib(bytes));
        for part in self.daemon.iter().filter(|part| part.is_shown()) {
            line(part.what, part.bytes, &part.how)?;
        }
        let how = match self.resident() > self.measuring() {
            true => "while the programs are loaded; later less",
            false => "the same for ten flows and for ten million",
        };
        line("resident, at most", self.resident(), how)?;
        if self.cpus > 0 {
            let parts = self.kernel.iter().filter(|part| part.is_shown());
            let parts: Vec<_> = parts.map(|part| format!("{} {}", mib(part.bytes), part.what)).collect();
            line("kernel maps, in addition", self.kernel(), &parts.join(", "))?;
            line("in all, at most", self.total(), "each ring once: it is mapped twice")?;
            line("limit of the service", self.limit(), "`MemoryMax=` that leaves room for a reload and a restart")?;
            let records = ring_records(self.ring);
            writeln!(f, "\n# how long a CPU's ring lasts while nobody reads it: {} records", grouped(records))?;
            for rate in [100_000, 1_000_000, 10_000_000] {
                let lasts = Duration::from_micros(records * 1_000_000 / rate);
                writeln!(f, "  {:>10} new flows a second on that CPU: {lasts:.1?}", grouped(rate))?;
            }
        }
        Ok(())
    }
}

fn mib(bytes: u64) -> String {
    mebibytes(bytes, 1)
}

#[cfg(test)]
mod tests {
    use weir_common::ledger::Skip;

    use super::*;

    use weir_schema::{Ledger, Report, Tally};

    fn default_plan(cpus: u32, has_programs: bool) -> Memory {
        let config = Config::default();
        Memory::plan(&config, &Views::new(&config, 1).unwrap(), &Cpus::of(cpus), has_programs)
    }

    #[test]
    #[cfg(feature = "otlp")]
    fn messages_of_otlp_are_planned() {
        let plan_of = |kind: &str| {
            let sink = format!("{{type: {kind}, url: 'http://collector/v1/metrics'}}");
            let config = Config::parse(&format!("interfaces: [eth0]\nsinks: [{sink}]"), "test").unwrap();
            assert_eq!(slots(&config.interfaces), 1);
            let views = Views::new(&config, 1).unwrap();
            (Memory::plan(&config, &views, &Cpus::of(2), true).total(), views.rows(1))
        };
        let ((otlp, rows), (http, _)) = (plan_of("otlp"), plan_of("http"));
        assert_eq!(otlp - http, rows * ENTRY_MESSAGES_BYTES + INTERFACE_MESSAGES_BYTES);
    }

    #[test]
    #[cfg(feature = "kafka")]
    fn answers_of_brokers_are_planned() {
        let plan_of = |sink: &str| {
            let config = Config::parse(&format!("sinks: [{sink}]"), "test").unwrap();
            Memory::plan(&config, &Views::new(&config, 1).unwrap(), &Cpus::of(2), true).total()
        };
        let (kafka, http) = (plan_of("{type: kafka, brokers: [k]}"), plan_of("{type: http, url: 'http://c/'}"));
        assert!(kafka > http + KAFKA_ANSWER_COPIES * KAFKA_ANSWER_BYTES, "{kafka} and {http}");
    }

    #[test]
    fn the_last_reports_are_planned_if_no_queue_has_them() {
        let kept = |sink: &str| {
            let config = Config::parse(&format!("sinks: [{{type: stdout, {sink}}}]"), "test").unwrap();
            Memory::plan(&config, &Views::new(&config, 1).unwrap(), &Cpus::of(2), true).part("last reports")
        };
        let rows = kept("queue: 64");
        assert_eq!(kept("queue: 5"), rows);
        assert!(kept("queue: 4") > rows + 5 * REPORT_BYTES);
        assert_eq!(kept("queue: 4"), kept("queue: 64, addresses: prefix"));
    }

    #[test]
    fn the_keys_of_prometheus_are_planned() {
        let plan = |prometheus: &str| {
            let config = Config::parse(&format!("prometheus: {{{prometheus}}}"), "test").unwrap();
            Memory::plan(&config, &Views::new(&config, 1).unwrap(), &Cpus::of(2), true)
        };
        let (none, some) = (plan("listen: 127.0.0.1:9469"), plan("listen: 127.0.0.1:9469, top: 5"));
        let keys = |plan: &Memory| plan.part("keys of `prometheus.top`");
        assert_eq!((keys(&none), keys(&some)), (0, 3 * 500 * 8));
        assert_eq!(some.total() - none.total(), keys(&some));
        assert!(some.to_string().contains("prometheus.top") && !none.to_string().contains("prometheus.top"));
    }

    #[test]
    fn many_cpus_and_thousands_of_interfaces_stay_within_the_limit() {
        // A pattern may need the ledgers of all interfaces.
        let plan_of = |interfaces: &str, cpus| {
            let config = Config::parse(&format!("interfaces: {interfaces}"), "test").unwrap();
            let views = Views::new(&config, slots(&config.interfaces)).unwrap();
            Memory::plan(&config, &views, &Cpus::of(cpus), true)
        };
        for (interfaces, limit) in [("[eth0]", 303 << 20), ("[\"*\"]", 434 << 20)] {
            let plan = plan_of(interfaces, 128);
            assert!(plan.total() <= limit, "{interfaces}: {plan}");
            assert_eq!(plan.workers, WORKERS_MAX as u64);
        }
        // The unit's limit is that of the largest default plan.
        let unit = include_str!("../../../config/weir.service");
        assert!(unit.contains("\nMemoryMax=1G\n") && plan_of("[\"*\"]", 128).limit() <= 1 << 30);
        let few = default_plan(2, true);
        assert!(few.resident() <= 64 << 20, "{few}");
    }

    #[test]
    fn the_ledger_of_an_interface_is_no_longer_than_planned() {
        let golden = include_str!("../../schema/tests/golden/report.json");
        let mut account = serde_json::from_str::<Report>(golden).unwrap().interfaces.swap_remove(1);
        let tally = |packets| Tally { packets, bytes: packets * 800 };
        account.name = "x".repeat(15);
        account.earlier_name = Some(account.name.clone());
        account.vrf = Some(account.name.clone());
        let live = Skip::ALL.iter().filter(|reason| **reason != Skip::LinkType);
        account.ledger.skipped = live.map(|reason| (reason.name().to_owned(), tally(1_234))).collect();
        let Ledger { seen, attributed, sampled_out, lost, .. } = &mut account.ledger;
        let lost = lost.values_mut().take(1);
        for sum in [seen, attributed, sampled_out, &mut account.repeated].into_iter().chain(lost) {
            *sum = tally(1_234_000);
        }
        for (_, packets) in &mut account.packet_sizes {
            *packets = 1_234_000;
        }
        let share = Some(0.999981);
        (account.coverage, account.kept) = (share, 0.9991231234567891);
        (account.coverage_lower, account.coverage_upper, account.coverage_bytes) = (share, share, share);
        (account.coverage_bytes_lower, account.coverage_bytes_upper) = (share, share);
        (account.blind_seconds, account.trouble) = (share, Some("x".repeat(weir_schema::TROUBLE_MAX)));
        let bytes = serde_json::to_vec(&account).unwrap().len() as u64;
        assert!((INTERFACE_BYTES - 100..INTERFACE_BYTES).contains(&bytes), "{bytes} bytes");
    }

    #[test]
    fn a_ring_counts_once_in_the_total() {
        let plan = default_plan(2, true);
        assert_eq!(plan.total(), plan.resident() + plan.kernel() - 2 * plan.ring);
        let without = default_plan(2, false);
        assert_eq!(without.total(), without.resident());
        assert!(!without.to_string().contains("ring"), "{without}");
    }

    #[test]
    fn rings_of_cpus_that_may_be_added_are_planned() {
        let config = Config::default();
        let views = Views::new(&config, 1).unwrap();
        let plan = |cpus: &Cpus| Memory::plan(&config, &views, cpus, true);
        let all = Cpus::of(2);
        let (few, more) = (plan(&all), plan(&Cpus { possible: 4, ..all.clone() }));
        let spare = |plan: &Memory| plan.part("rings of CPUs that may come");
        assert_eq!((spare(&few), spare(&more)), (0, 512 << 10));
        assert!(more.to_string().contains("0.5 MiB rings of CPUs that may come"), "{more}");
        // An offline CPU has a full-size ring.
        assert_eq!(spare(&plan(&Cpus { online: vec![0], ..all })), few.ring);
    }
}
