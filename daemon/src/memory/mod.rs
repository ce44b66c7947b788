//! The memory that a configuration needs: one fixed number, known before the daemon starts. `program_file` says what
//! the program itself takes. `fit` chooses smaller settings where the configuration allows less than the defaults need,
//! and `budget` says what to change if that is not enough.

pub mod allocator;
mod budget;
mod change;
mod fit;
pub mod program_file;

use std::{
    fmt::{self, Write as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use weir_common::{
    cpu::{Cpu, HandedOver},
    ledger::Counters,
    packet::REACH_MAX,
    record::Record,
    sampling::Valve,
};
use weir_config::{Addresses, Config, Target, slots, view::ViewKey};
use weir_datapath::{
    Cpus, Shares,
    rates::SECONDS_BYTES,
    ring_records,
    tap::{self, OWN_MAX},
};
use weir_deliver::{
    prometheus,
    sink::{ENTRY_MESSAGES_BYTES, KAFKA_ANSWER_BYTES},
    spool,
};
use weir_measure::{lane::LATE_BYTES, open, question::Views, ranking::Ranked, shard::Shard};
use weir_report::{REPORTS_KEPT, alerting::EVIDENCE_MAX, sketches};
use weir_sketch::Seen;
use weir_system::numbers::{grouped, mebibytes};

pub use self::{
    budget::{Fitting, OverBudget},
    change::Change,
    fit::{Fit, Fitted, fit},
};

/// Libraries, thread stacks, TLS, allocator, and log lines that are not written yet.
const STACKS_BYTES: u64 = 4 << 20;
/// What the daemon needs besides while it loads its programs, before it has sketches: mostly the line numbers in the
/// object, which are copied for each function. Measured as the most that was ever resident. To read the kernel's types
/// takes less.
const LOADING_BYTES: u64 = 6656 << 10;
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
const INTERFACE_BYTES: u64 = 1880;
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

/// The memory that a configuration needs, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The program: its file, libraries, and stacks.
    pub program: u64,
    /// Online CPUs, each with a ring; 0 if no program is loaded.
    pub cpus: u64,
    /// Threads that read rings, each with shards.
    pub workers: u64,
    /// Packet socket readers, each with shards and a cache.
    pub readers: u64,
    /// The most packet sockets, each with a ring.
    pub taps: u64,
    /// One packet socket's ring.
    pub packet_ring: u64,
    /// One reader's flow cache.
    pub reader_cache: u64,
    /// One thread's sketches for one window.
    pub shard: u64,
    /// Network prefixes and address databases.
    pub names: u64,
    /// The seen-flow filter.
    pub seen_flows: u64,
    /// One CPU's ring.
    pub ring: u64,
    /// The flow caches, in the kernel.
    pub caches: u64,
    /// Counters, valves and buffers of all present and possible CPUs, and tables, in the kernel.
    pub blocks: u64,
    /// The rings of CPUs that may be added, in the kernel.
    pub spare_rings: u64,
    /// One CPU's interface counters in the daemon, for the two previous windows.
    pub counters: u64,
    /// One worker's sums over its CPUs.
    pub sums: u64,
    /// The seconds of packet sockets.
    pub seconds: u64,
    /// The router's own addresses. Packet sockets recognise its packets by them.
    pub own: u64,
    /// The most that reports waiting in sink queues take.
    pub queues: u64,
    /// The last reports, for queries, if no queue holds them.
    pub kept: u64,
    /// The rows of the last window, for queries.
    pub listed: u64,
    /// A reading of the open window, with the last answer.
    pub live: u64,
    /// The history of the last hours, plus room for packing and answers.
    pub history: u64,
    /// The most that connections of browsers and their answers take.
    pub web: u64,
    /// The keys of rows that Prometheus gets as series, for a day.
    pub talkers: u64,
    /// Sketches that are gathered until they leave, and those of reports that wait.
    pub export: u64,
    /// The most that deliveries from the spools, and the index of spool files, take.
    pub spools: u64,
}

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
        let seen = &config.seen_flows;
        let queued: u64 = config.sinks.iter().map(|sink| sink.queue as u64).sum();
        let messages = config.alerts.webhook.as_ref().map_or(0, |webhook| webhook.queue as u64);
        let alerts = config.alerts.rules.len() as u64 * ALERT_BYTES;
        let interfaces = slots(&config.interfaces) as u64;
        // A long enough queue holds the last reports, too, and shares their memory.
        let shares_reports = !config.export.is_on()
            && config.sinks.iter().any(|sink| sink.queue >= REPORTS_KEPT && matches!(sink.addresses, Addresses::Full));
        let report = REPORT_BYTES + views.rows(interfaces) * ENTRY_BYTES + interfaces * INTERFACE_BYTES + alerts;
        let taps = tap::count(&config.interfaces, has_programs);
        let is_on_disk = config.spool.folder(Some(Path::new(""))).is_some();
        let index = if is_on_disk { spool::Limits::of(&config.spool).index_bytes() } else { 0 };
        // Other sinks get one report at a time.
        let batch = |target: &Target| report + if target.is_remote() { BATCH_BYTES } else { 0 };
        let workers = if has_programs { online.div_ceil(CPUS_PER_WORKER).min(WORKERS_MAX) } else { 0 };
        let threads = workers + taps.min(online);
        Self {
            program: program_file::resident_bytes() + STACKS_BYTES,
            cpus: if has_programs { online as u64 } else { 0 },
            workers: workers as u64,
            readers: taps.min(online) as u64,
            taps: taps as u64,
            packet_ring: config.datapath.packet_ring,
            reader_cache: u64::from(cache_flows) * bytes_of::<Record>(),
            shard: Shard::bytes_for(&config.estimates, views) as u64,
            names: fit::names_bytes(views),
            seen_flows: Seen::bytes_for(seen.capacity, seen.false_positive_rate) as u64,
            ring,
            caches: if has_programs { caches } else { 0 },
            blocks: if has_programs { blocks } else { 0 },
            spare_rings: if has_programs { spare_rings } else { 0 },
            counters: interfaces * (EDGES_PER_CPU * bytes_of::<Counters>() + LATE_BYTES as u64),
            sums: EDGES_PER_WORKER * interfaces * bytes_of::<Counters>(),
            seconds: taps as u64 * SECONDS_BYTES,
            own: if taps > 0 { tap::OWN_BYTES } else { 0 },
            queues: queued * report + messages * ALERT_BYTES,
            kept: if shares_reports { 0 } else { REPORTS_KEPT as u64 * report },
            listed: views.rows(interfaces) * LISTED_BYTES,
            // The answer exists as rows, as JSON, and while it is written.
            live: open::memory_bytes(&config.estimates, views, interfaces as usize, threads) as u64 + 3 * report,
            history: config
                .history
                .map_or(0, |history| weir_history::memory_bytes(history.memory, interfaces as usize)),
            web: config
                .web
                .listen
                .map_or(0, |_| weir_web::memory_bytes(report, interfaces.min(weir_history::TRACKS_MAX as u64))),
            talkers: config.prometheus.listen.map_or(0, |_| prometheus::memory_bytes(&config.prometheus)),
            export: export(config, views, queued),
            spools: config
                .sinks
                .iter()
                .filter(|sink| sink.target.spool_key().is_some())
                .map(|sink| DELIVERY_COPIES * batch(&sink.target) + index)
                .sum::<u64>()
                + config.sinks.iter().filter(|sink| sink.target.translates()).count() as u64
                    * (views.rows(interfaces) * ENTRY_MESSAGES_BYTES + interfaces * INTERFACE_MESSAGES_BYTES)
                + config.sinks.iter().filter(|sink| matches!(sink.target, Target::Kafka(_))).count() as u64
                    * (KAFKA_ANSWER_COPIES * KAFKA_ANSWER_BYTES + KAFKA_DELIVERY_COPIES * (report + BATCH_BYTES)),
        }
    }

    /// The daemon's resident memory at most.
    pub fn resident(&self) -> u64 {
        self.measuring().max(self.floor() + self.names)
    }

    /// What the program itself needs, whatever it measures.
    pub const fn floor(&self) -> u64 {
        self.program + if self.cpus > 0 { LOADING_BYTES } else { 0 }
    }

    const fn measuring(&self) -> u64 {
        self.program
            + self.workers * (SHARDS_PER_WORKER * self.shard + self.sums)
            + self.cpus * (RING_MAPPINGS * self.ring + self.counters)
            + self.readers * (SHARDS_PER_WORKER * self.shard + self.reader_cache + self.sums)
            + self.taps * self.packet_ring
            + self.seconds
            + self.own
            + self.names
            + self.seen_flows
            + self.queues
            + self.kept
            + self.listed
            + self.live
            + self.history
            + self.web
            + self.talkers
            + self.export
            + self.spools
    }

    /// The memory of the kernel's maps except the rings of online CPUs.
    pub const fn kernel(&self) -> u64 {
        self.caches + self.blocks + self.spare_rings
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
        (self.total() + sketches + earlier + self.program + LOADING_BYTES).next_multiple_of(1 << 20)
    }
}

/// The most that sketches take: those that are gathered, and those of reports in queues.
fn export(config: &Config, views: &Views, queued: u64) -> u64 {
    let (every, interval) = (config.export.every.as_secs(), config.report.interval.as_secs());
    let waiting = (queued * interval).div_ceil(every.max(interval).max(1));
    sketches::memory_bytes(&config.export, views) + waiting * sketches::bytes_at_most(&config.export, views)
}

const fn bytes_of<T>() -> u64 {
    size_of::<T>() as u64
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpus, workers, readers, taps, packet_ring, reader_cache, shard, seen_flows, ring, counters, .. } =
            self;
        let mut line = |what: &str, bytes: u64, how: String| writeln!(f, "  {what:<28}{:>10}  {how}", mib(bytes));
        let plural = |count: &u64, what: &str| format!("{count} {what}{}", if *count == 1 { "" } else { "s" });
        if *cpus > 0 {
            let sketches = workers * SHARDS_PER_WORKER * shard;
            let of_workers = plural(workers, "worker");
            line("sketches", sketches, format!("{of_workers} x {SHARDS_PER_WORKER} x {}", mib(*shard)))?;
            let mapped = cpus * RING_MAPPINGS * ring;
            line("rings, as mapped", mapped, format!("{} x {RING_MAPPINGS} x {}", plural(cpus, "CPU"), mib(*ring)))?;
        }
        if *taps > 0 {
            line(
                "readers of packet sockets",
                readers * (SHARDS_PER_WORKER * shard + reader_cache),
                format!("{readers} x ({SHARDS_PER_WORKER} x {} sketches + {} cache)", mib(*shard), mib(*reader_cache)),
            )?;
            line("packet sockets' rings", taps * packet_ring, format!("{taps} x {}, at most", mib(*packet_ring)))?;
            line("the router's own addresses", self.own, format!("at most {OWN_MAX} of IP and of links"))?;
        }
        let sums = (workers + readers) * self.sums;
        let of_all = format!("of {} and {}", plural(cpus, "CPU"), plural(&(workers + readers), "thread"));
        line("counters of interfaces", cpus * counters + sums + self.seconds, of_all)?;
        if self.names > NAMES_SHOWN {
            line("names of addresses", self.names, "networks and databases, shared by all".into())?;
        }
        line("filter of seen flows", *seen_flows, "shared by all".into())?;
        line("reports waiting, at most", self.queues, String::from("all queues full"))?;
        if self.kept + self.listed > NAMES_SHOWN {
            let last = self.kept + self.listed;
            line("last reports", last, String::from("for `weir report`, `weir ask` and Prometheus"))?;
        }
        line("the open window, when read", self.live, String::from("for `weir top` and `weir ask --live`"))?;
        if self.history > 0 {
            line("history", self.history, String::from("an hour of seconds, windows, and room to pack and join them"))?;
        }
        if self.web > 0 {
            line("the page", self.web, String::from("connections of browsers, and answers in progress"))?;
        }
        if self.talkers > 0 {
            line("keys of `prometheus.top`", self.talkers, String::from("of a day, in three lists"))?;
        }
        if self.export > 0 {
            line("sketches to export", self.export, String::from("gathered, and in reports that wait"))?;
        }
        if self.spools > 0 {
            line("delivery and spools", self.spools, String::from("batches, and the names of all files"))?;
        }
        line("program, libraries, stacks", self.program, "of the build that prints this".to_owned())?;
        let how = match self.resident() > self.measuring() {
            true => "while the programs are loaded; later less",
            false => "the same for ten flows and for ten million",
        };
        line("resident, at most", self.resident(), how.to_owned())?;
        if *cpus > 0 {
            let (caches, blocks) = (mib(self.caches), mib(self.blocks));
            let mut how = format!("{caches} flow caches, {blocks} counters");
            if self.spare_rings > 0 {
                write!(how, ", {} rings of CPUs that may come", mib(self.spare_rings))?;
            }
            line("kernel maps, in addition", self.kernel(), how)?;
            line("in all, at most", self.total(), String::from("each ring once: it is mapped twice"))?;
            let limit = "`MemoryMax=` that leaves room for a reload and a restart".to_owned();
            line("limit of the service", self.limit(), limit)?;
            let records = ring_records(*ring);
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

    use weir_report::{Ledger, Report, Tally};

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
            Memory::plan(&config, &Views::new(&config, 1).unwrap(), &Cpus::of(2), true).kept
        };
        assert_eq!((kept("queue: 64"), kept("queue: 5")), (0, 0));
        assert!(kept("queue: 4") > 5 * REPORT_BYTES);
        assert_eq!(kept("queue: 4"), kept("queue: 64, addresses: prefix"));
    }

    #[test]
    fn the_keys_of_prometheus_are_planned() {
        let plan = |prometheus: &str| {
            let config = Config::parse(&format!("prometheus: {{{prometheus}}}"), "test").unwrap();
            Memory::plan(&config, &Views::new(&config, 1).unwrap(), &Cpus::of(2), true)
        };
        let (none, some) = (plan("listen: 127.0.0.1:9469"), plan("listen: 127.0.0.1:9469, top: 5"));
        assert_eq!((none.talkers, some.talkers), (0, 3 * 500 * 8));
        assert_eq!(some.total() - none.total(), some.talkers);
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
        for (interfaces, limit) in [("[eth0]", 259 << 20), ("[\"*\"]", 390 << 20)] {
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
        let golden = include_str!("../../report/tests/golden/report.json");
        let mut account = serde_json::from_str::<Report>(golden).unwrap().interfaces.swap_remove(1);
        let tally = |packets| Tally { packets, bytes: packets * 800 };
        account.name = "x".repeat(15);
        account.earlier_name = Some(account.name.clone());
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
        (account.blind_seconds, account.trouble) = (share, Some("x".repeat(weir_report::TROUBLE_MAX)));
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
        assert_eq!((few.spare_rings, more.spare_rings), (0, 512 << 10));
        assert!(more.to_string().contains("0.5 MiB rings of CPUs that may come"), "{more}");
        // An offline CPU has a full-size ring.
        assert_eq!(plan(&Cpus { online: vec![0], ..all }).spare_rings, few.ring);
    }
}
