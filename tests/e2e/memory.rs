//! Memory is one fixed number, the same for ten flows and for a million spoofed ones.

use std::{
    fs,
    mem::MaybeUninit,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    thread::gettid,
};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    daemon::{Signal, weir_binary},
    inject::Pace,
    netns::QuietPair,
    oracle::{By, Dimension, Oracle},
    scratch::Scratch,
    traffic::{Mix, Plan, Traffic},
};

use crate::{
    reload::wait_until_in_force,
    watch::{self, QUIET_LINK, TIMEOUT, Watch, config, judge, list, native, number},
};

alone![a_million_spoofed_flows_take_no_more_memory];
tests![
    the_smallest_configuration_stays_within_its_plan_from_the_start,
    a_small_memory_is_enough_for_smaller_defaults,
    databases_are_read_once,
    it_follows_the_plan_from_reload_to_reload,
    a_reload_says_what_became_smaller_and_what_stays,
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
/// The most memory that the default configuration may take, in bytes.
const RSS_MAX: u64 = 64 << 20;
/// How much the resident set may change, as a share.
const CHANGE_MAX: f64 = 0.02;
/// Every packet makes a record, and the default ring holds the records of 150 ms. The daemon waits less than that for a
/// CPU.
const FLOOD_PACE: Pace = Pace::PacketsPerSecond(100_000);
/// One packet in this many belongs to a heavy hitter.
const HEAVY_EVERY: usize = 10;

/// The sketches are small, so that the memory for loading the programs shows.
fn the_smallest_configuration_stays_within_its_plan_from_the_start() -> Result<()> {
    let settings = "estimates: {unique_error: 0.05, top_error: 0.01, top_candidates: 64}\n\
                    seen_flows: {capacity: 1000}\ndatapath: {ring: 64KiB, cache_flows: 256}\n\
                    report: {interval: 1s, top: 1}\n";
    let (mut watch, anonymous) = watched_from_the_start(settings)?;
    let reports = watch.daemon.wait_for_reports(2, TIMEOUT)?;
    let planned = number(&reports[0]["self"]["memory_bytes"])?;
    let most = status(watch.daemon.pid(), "VmHWM:")?;
    ensure!(most <= planned, "{most} bytes were resident once; planned are {planned}");
    check_anonymous(anonymous, planned)?;
    watch.stop(Loss::None).map(drop)
}

/// The most bytes besides files that weir has resident while it starts. The pages of its program differ much between
/// a build for debugging and the one that users get; all else does not.
fn watched_from_the_start(settings: &str) -> Result<(Watch, u64)> {
    let children = format!("/proc/self/task/{}/children", gettid().as_raw_nonzero());
    let has_started = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !has_started.load(Relaxed) {
                let children = fs::read_to_string(&children).unwrap_or_default();
                for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
                    let is_weir = fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "weir\n");
                    // It may have ended.
                    most = most.max(status(pid, "RssAnon:").ok().filter(|_| is_weir).unwrap_or(0));
                }
            }
            most
        });
        let watch = Watch::start(settings);
        has_started.store(true, Relaxed);
        let most = watcher.join().map_err(|_| anyhow!("the watcher failed"))?;
        ensure!(most > 0, "{children} names no weir");
        Ok((watch?, most))
    })
}

/// Checks that weir had no more than planned, apart from the file of its program.
fn check_anonymous(anonymous: u64, planned: u64) -> Result<()> {
    /// Stacks and libraries: `STACKS_BYTES`.
    const STACKS: u64 = 4 << 20;
    let allowed = planned - (program()? - STACKS);
    ensure!(anonymous <= allowed, "{anonymous} bytes besides files were resident once; planned are {allowed}");
    Ok(())
}

/// The memory that is planned for the program itself, in bytes.
fn program() -> Result<u64> {
    let plan = Command::new(weir_binary()?).args(["check", "--config", "/dev/null"]).output()?;
    planned(&String::from_utf8(plan.stdout)?, "program, libraries, stacks")
}

/// 20 MiB for the program that users get. A build for debugging is larger, so it gets as much besides itself.
fn a_small_memory_is_enough_for_smaller_defaults() -> Result<()> {
    /// The part of 20 MiB that a stripped program leaves.
    const BESIDE: u64 = 7 << 20;
    /// The plan says the program's size to a tenth of a MiB.
    const ROUNDING: u64 = (1 << 20) / 20;
    let memory = (program()? + ROUNDING + BESIDE).max(20 << 20);
    let (mut watch, anonymous) = watched_from_the_start(&format!("memory: {memory}\nreport: {{interval: 2s}}\n"))?;
    let log = watch.daemon.log()?;
    ensure!(log.contains("allows less than the defaults need") && log.contains("estimates.top_error: "), "{log}");
    let mut oracle = Oracle::new();
    let small = Mix { damaged: 0.0, ..Mix::plain() };
    let plan = Plan { seed: 74, packets: 200_000, flows: 1_000_000, zipf: 0.5, mix: small, ..Plan::default() };
    watch::send(&watch.pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(20_000), &mut oracle)?;
    let flooded = watch.daemon.reports()?.len() + 2;
    let reports = watch.daemon.wait_for_reports(flooded, TIMEOUT)?;
    let most = status(watch.daemon.pid(), "VmHWM:")?;
    ensure!(most <= memory, "{most} bytes were resident once; {memory} are allowed");
    let planned = number(&reports[0]["self"]["memory_bytes"])?;
    ensure!(planned <= memory && most <= planned, "{planned} bytes are planned; {most} were resident");
    check_anonymous(anonymous, planned)?;
    // The ring holds a tenth of a second of this flood: on a busy machine it may be full.
    let reports = watch.stop(Loss::Possible(&["ring_full"]))?;
    judge("all windows together", oracle.check_reports(&reports))
}

/// Making a plan fit tries many configurations, and each of them would read the databases again.
fn databases_are_read_once() -> Result<()> {
    let scratch = Scratch::new()?;
    let (database, config) = (scratch.file("asn.mmdb"), scratch.file("weir.yaml"));
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/asn.mmdb"), &database)?;
    let memory = program()? + (8 << 20);
    fs::write(&config, format!("geo: {{asn: {}}}\nmemory: {memory}\n", database.display()))?;
    let watcher = inotify::init(CreateFlags::NONBLOCK)?;
    // With the closing in between, no two openings are reported as one.
    inotify::add_watch(&watcher, &database, WatchFlags::OPEN | WatchFlags::CLOSE_NOWRITE)?;
    let plan = Command::new(weir_binary()?).args(["check", "--config"]).arg(&config).output()?;
    let plan = String::from_utf8(plan.stdout)?;
    ensure!(
        plan.contains("# smaller than by default, to fit into `memory`\n"),
        "all fits, so nothing was tried: {plan}"
    );
    let (mut buffer, mut opened) = ([MaybeUninit::uninit(); 4096], 0);
    let mut events = inotify::Reader::new(&watcher, &mut buffer);
    while let Ok(event) = events.next() {
        opened += usize::from(event.events().contains(ReadFlags::OPEN));
    }
    ensure!(opened == 1, "the database was opened {opened} times");
    Ok(())
}

/// A line of the plan that `weir check` prints, in bytes.
fn planned(plan: &str, line: &str) -> Result<u64> {
    let found = plan.lines().find_map(|found| found.trim().strip_prefix(line)).with_context(|| format!("no {line}"))?;
    let mib: f64 = found.split_whitespace().next().context("no number")?.parse()?;
    Ok((mib * f64::from(1 << 20)) as u64)
}

/// Reloads switch between large and small sketches; freed memory is returned to the system.
fn it_follows_the_plan_from_reload_to_reload() -> Result<()> {
    const ROUNDS: usize = 4;
    let settings = |error: &str| format!("report: {{interval: 1s}}\nestimates: {{top_error: {error}}}\n");
    let (small, large) = (settings("0.005"), settings("0.00005"));
    let mut watch = Watch::start(&small)?;
    let directory = watch.daemon.directory().to_owned();
    for nth in 0..2 * ROUNDS {
        let settings = if nth % 2 == 0 { &large } else { &small };
        let all = format!("interfaces: [{}]\n{settings}control: {{socket: none}}\n", native(INTERFACE));
        fs::write(directory.join("weir.yaml"), config(&all, &directory.join("reports.ndjson")))?;
        watch.daemon.signal(Signal::HUP)?;
        wait_until_in_force(&watch.daemon, nth + 1)?;
        // The last sketches of the previous configuration are freed when the next window ends.
        let reported = watch.daemon.reports()?.len();
        watch.daemon.wait_for_reports(reported + 2, TIMEOUT)?;
    }
    let resident = resident(watch.daemon.pid())?;
    let reports = watch.stop(Loss::None)?;
    let plans = reports.iter().map(|report| number(&report["self"]["memory_bytes"])).collect::<Result<Vec<_>>>()?;
    let (planned, largest) = (plans[0], plans.iter().copied().max().unwrap_or_default());
    ensure!(largest > planned + (40 << 20), "the large sketches are not large: {largest} and {planned} bytes");
    ensure!(resident <= planned, "{resident} bytes are resident after all reloads; planned are {planned}");
    Ok(())
}

fn a_reload_says_what_became_smaller_and_what_stays() -> Result<()> {
    let program = program()?;
    let settings = |mib: u64| format!("report: {{interval: 1s}}\nmemory: {}\n", program + (mib << 20));
    let mut watch = Watch::start(&settings(8))?;
    let directory = watch.daemon.directory().to_owned();
    let (smaller, kept) = ("so these are smaller: ", "these stay as at the start, and change only after a restart: ");
    for (nth, settings, are_smaller) in [(1, settings(9), 2), (2, "report: {interval: 1s}\n".to_owned(), 2)] {
        let all = format!("interfaces: [{}]\n{settings}control: {{socket: none}}\n", native(INTERFACE));
        fs::write(directory.join("weir.yaml"), config(&all, &directory.join("reports.ndjson")))?;
        watch.daemon.signal(Signal::HUP)?;
        wait_until_in_force(&watch.daemon, nth)?;
        let log = watch.daemon.log()?;
        ensure!(log.matches(smaller).count() == are_smaller && log.matches(kept).count() == nth, "{log}");
        ensure!(log.contains("estimates.top_error: ") && log.contains(", history: off, "), "{log}");
    }
    watch.stop(Loss::None).map(drop)
}

fn a_million_spoofed_flows_take_no_more_memory() -> Result<()> {
    // The history grows with the time until it is as large as planned, whatever comes. So it is off here.
    let mut watch = Watch::start("report: {interval: 2s}\nhistory: off\n")?;
    let mut oracle = Oracle::new();
    // Send enough flows for full lists, so that reports are as large as in a flood.
    watch.send(Plan { seed: 71, packets: 20_000, flows: 2_000, ..Plan::default() }, &mut oracle)?;
    let calm = watch.daemon.reports()?.len() + 2;
    watch.daemon.wait_for_reports(calm, TIMEOUT)?;
    let before = resident(watch.daemon.pid())?;

    // The flows of 1,200,000 packets are drawn from four million, so there are more than a million flows.
    let small = Mix { damaged: 0.0, ..Mix::plain() };
    let flood = Plan { seed: 72, packets: 1_200_000, flows: 4_000_000, zipf: 0.0, mix: small, ..Plan::default() };
    let heavy = Plan { seed: 73, packets: flood.packets, flows: 10, zipf: 1.0, mix: small, ..Plan::default() };
    let (mut spoofed, mut heavy) = (Traffic::new(flood)?, Traffic::new(heavy)?);
    let mixed =
        (0..).map_while(|nth: usize| if nth.is_multiple_of(HEAVY_EVERY) { heavy.next() } else { spoofed.next() });
    watch::send(&watch.pair, QUIET_LINK, mixed, FLOOD_PACE, &mut oracle)?;
    let flows = oracle.distinct(Dimension::Flows);
    ensure!(flows > 1_000_000, "the flood had {flows} flows only");
    let flooded = watch.daemon.reports()?.len() + 2;
    let reports = watch.daemon.wait_for_reports(flooded, TIMEOUT)?;
    let after = resident(watch.daemon.pid())?;

    let planned = number(&reports[0]["self"]["memory_bytes"])?;
    for (when, bytes) in [("before", before), ("after", after)] {
        ensure!(bytes < RSS_MAX.min(planned), "{bytes} bytes {when} the flood; planned are {planned}");
    }
    let change = after.abs_diff(before) as f64 / before as f64;
    ensure!(change <= CHANGE_MAX, "{before} bytes before the flood and {after} after it: {:.1} %", change * 100.0);
    let reported: Result<Vec<_>> = reports.iter().map(|report| number(&report["self"]["rss_bytes"])).collect();
    let reported = reported?;
    ensure!(reported.iter().all(|rss| *rss > 0 && *rss < planned), "self.rss_bytes {reported:?}, planned {planned}");

    let reports = watch.stop(Loss::None)?;
    judge("all windows together", oracle.check_reports(&reports))?;
    check_heaviest(&oracle, &reports)
}

/// The resident set of a process, in bytes, as the kernel accounts it.
fn resident(pid: u32) -> Result<u64> {
    status(pid, "VmRSS:")
}

/// A field of `/proc/PID/status` that the kernel states in KiB, in bytes.
fn status(pid: u32, name: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().with_context(|| format!("{name}{line}"))?;
    Ok(kib << 10)
}

/// The three largest sources of all packets lead the lists of every window that the flood filled.
fn check_heaviest(oracle: &Oracle, reports: &[Value]) -> Result<()> {
    const FULL_PACKETS: u64 = 50_000;
    let heaviest = oracle.top(Dimension::Flows, By::Packets, 3);
    let full = reports.iter().filter(|report| report["totals"]["packets"].as_u64().is_some_and(|n| n > FULL_PACKETS));
    let full: Vec<_> = full.collect();
    ensure!(!full.is_empty(), "no window had more than {FULL_PACKETS} packets");
    for report in full {
        let listed = list(&report["top_by_packets"]["flows"])?;
        for (subject, _) in &heaviest {
            let name = subject.to_string();
            let found = listed.iter().any(|flow| {
                let text = |field: &str| flow[field].as_str().unwrap_or_default();
                name.starts_with(&format!(
                    "{} {} > {} {} ",
                    text("src_ip"),
                    flow["src_port"],
                    text("dst_ip"),
                    flow["dst_port"]
                ))
            });
            ensure!(found, "report {}: {name} is not among the first ten", report["id"]);
        }
    }
    Ok(())
}
