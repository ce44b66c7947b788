//! What the history costs: a month of windows is really written, and then asked.
//!
//! Windows resemble those of a small office: each list has its rows from all hosts that are up, with sizes that differ
//! from window to window. One address sends only on one day. Each answer is checked against what was written.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use weir_config::Addresses;
use weir_history::{History, Limits, Query, Settings, Stored, Time};
use weir_schema::{
    Distinct, Estimate, Length, Remembered, Report, TopDestination, TopFlow, TopPair, TopService, TopSource,
    TopUnlisted, Unique,
    sketches::{DistinctSketch, Sketches, UNIQUE, encode},
};
use weir_sketch::{HyperLogLog, datasketches::hll, hash::mix};
use weir_tests::scratch::Scratch;

use crate::table::{self, thousands};

/// The length of a window in seconds, and the windows of a day.
const LENGTH: i64 = 10;
const DAY: u64 = 86_400 / LENGTH as u64;
/// The first window begins at midnight.
const START: i64 = 1_761_955_200;
/// Rows of each list, and the hosts that they are drawn from.
const ROWS: usize = 64;
const HOSTS: u64 = 400;
/// The address that sends on one day only, and that day.
const RARE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 77);
const RARE_DAY: u64 = 11;
const MEMORY: u64 = 4 << 20;
/// How often each question is asked.
const ROUNDS: usize = 5;

/// Measures and prints.
///
/// # Errors
///
/// The folder cannot be written, or an answer is wrong.
pub fn bench(days: u64) -> Result<()> {
    ensure!(days > RARE_DAY, "{days} days are too few: the rare address sends on day {RARE_DAY}");
    table::say(format!("{}\n", table::machine()?))?;
    let scratch = Scratch::new()?;
    let folder = scratch.file("history");
    fs::create_dir(&folder)?;
    let windows = days * DAY;
    let begun = now();
    let sent = write(&folder, windows)?;
    let written = begun.elapsed().as_secs_f64();
    let sizes = Sizes::of(&folder)?;
    table::say(format!(
        "{} windows of {LENGTH} s with {ROWS} rows a list ({days} days), written in {written:.0} s, {:.2} ms each.\n",
        thousands(windows),
        written * 1e3 / windows as f64,
    ))?;
    let per_window = |bytes: u64| format!("{:.0}", bytes as f64 / windows as f64);
    let rows = [
        ["single windows", &thousands(sizes.windows >> 10), &per_window(sizes.windows)],
        ["unions of five minutes and of an hour", &thousands(sizes.unions >> 10), &per_window(sizes.unions)],
        ["indexes and filters", &thousands(sizes.indexes >> 10), &per_window(sizes.indexes)],
    ];
    table::write(["on disk", "KiB", "bytes a window"], &rows.map(|row| row.map(str::to_owned)))?;
    ask(&folder, windows, &sent, &sizes)
}

/// What the largest source has sent in all windows, and the rare one, in packets.
struct Sent {
    largest: u64,
    rare: u64,
}

fn write(folder: &Path, windows: u64) -> Result<Sent> {
    let mut golden: Report = serde_json::from_str(include_str!("../../../../daemon/schema/tests/golden/report.json"))?;
    golden.addresses = None;
    let limits = Limits { bytes: u64::MAX, age: None, has_samples: false };
    let observer = golden.observer.id.clone();
    let settings = Settings {
        memory: MEMORY,
        sample: 0,
        rows: ROWS,
        folder: Some(folder.to_owned()),
        limits,
        observer,
        addresses: Addresses::Full,
    };
    let history = History::start(settings)?;
    let mut sent = Sent { largest: 0, rare: 0 };
    for nth in 0..windows {
        let report = report(&golden, nth)?;
        for row in &report.top.sources {
            if row.src_ip == host(0) {
                sent.largest += row.packets.value;
            }
            if row.src_ip == IpAddr::V4(RARE) {
                sent.rare += row.packets.value;
            }
        }
        history.add_waiting(Box::new(report));
    }
    // It is written when it is dropped.
    drop(history);
    Ok(sent)
}

fn host(nth: u64) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + nth as u32).into()
}

/// The report of a window. Host number `n` has a share of about 1 / (n + 1).
fn report(golden: &Report, nth: u64) -> Result<Report> {
    let mut report = golden.clone();
    let at = |nth: u64| Timestamp::from_second(START + nth as i64 * LENGTH).unwrap_or_default();
    report.id = format!("{}/0000000000000001/{}", golden.observer.id, nth + 1);
    (report.window.start, report.window.end) = (at(nth), at(nth + 1));
    report.window.seconds = Length::new(LENGTH as f64);
    let packets = |rank: u64| (40_000 / (rank + 1)) * (70 + mix(nth * HOSTS + rank) % 61) / 100 + 1;
    let exact = |value| Estimate { value, lower: value, upper: value, sampled: None };
    // Beyond the twentieth, hosts come and go.
    let mut hosts: Vec<(u64, IpAddr)> = (0..20).map(|rank| (packets(rank), host(rank))).collect();
    hosts.extend((20..ROWS as u64).map(|rank| (packets(rank), host(20 + mix(nth / 30 * HOSTS + rank) % HOSTS))));
    if nth / DAY == RARE_DAY {
        hosts[30].1 = RARE.into();
    }
    hosts.sort_unstable_by_key(|(packets, host)| (std::cmp::Reverse(*packets), *host));
    hosts.dedup_by_key(|(_, host)| *host);
    let mut known = std::collections::HashSet::new();
    hosts.retain(|(_, host)| known.insert(*host));
    let total: u64 = hosts.iter().map(|(packets, _)| packets).sum();
    (report.totals.packets, report.totals.bytes, report.totals.bounds) = (total, total * 700, None);
    let counted = |value: usize| {
        let value = value as u64;
        Distinct { value, lower: value - value / 50, upper: value + value / 50, confidence: 0.999 }
    };
    let [src_ip, dst_ip, flows] = [1, 2, 20].map(|times| counted(times * hosts.len()));
    report.unique = Unique { src_ip, dst_ip, flows };
    report.sketches = Some(Box::new(sketches(&report, &hosts)?));
    for top in [&mut report.top, &mut report.top_by_packets] {
        top.confidence = 1.0;
        (top.flows, top.pairs, top.sources) = (Vec::new(), Vec::new(), Vec::new());
        (top.destinations, top.services) = (Vec::new(), Vec::new());
        for (rank, (packets, host)) in (1..).zip(&hosts) {
            let (packets, bytes) = (exact(*packets), exact(packets * 700));
            let peer: IpAddr = Ipv4Addr::from_bits(0xc633_6400 + (mix(u64::from(rank)) % 200) as u32).into();
            let port = 1024 + rank as u16;
            let proto = std::borrow::Cow::Borrowed("tcp");
            top.sources.push(TopSource { rank, src_ip: *host, packets, bytes });
            top.destinations.push(TopDestination { rank, dst_ip: *host, packets, bytes });
            top.pairs.push(TopPair { rank, src_ip: *host, dst_ip: peer, packets, bytes });
            let (src_port, dst_port) = (port, 443);
            top.flows.push(TopFlow {
                rank,
                src_ip: *host,
                dst_ip: peer,
                src_port,
                dst_port,
                proto: proto.clone(),
                packets,
                bytes,
            });
            top.services.push(TopService { rank, proto, port, packets, bytes });
        }
        let least = Some(0);
        top.unlisted = TopUnlisted {
            hosts: least,
            flows: least,
            sources: least,
            destinations: least,
            pairs: least,
            services: least,
        };
    }
    Ok(report)
}

/// Sketches of distinct counts as weir makes them, with these sources.
fn sketches(report: &Report, hosts: &[(u64, IpAddr)]) -> Result<Sketches> {
    // The key changes each day.
    let key_id = report.window.start.as_second() as u64 / 86_400;
    let one = |(times, name): (u64, &str)| {
        let mut sketch = HyperLogLog::with_precision(Remembered::LG_K, key_id)?;
        for (_, host) in hosts {
            let IpAddr::V4(host) = host else { continue };
            for port in 0..times {
                sketch.insert(mix(u64::from(host.to_bits()) << 32 | port ^ key_id));
            }
        }
        Ok(DistinctSketch {
            name: name.to_owned(),
            question: None,
            key_id: format!("{key_id:016x}"),
            lg_k: Remembered::LG_K,
            missing_packets: 0,
            hll: encode(&hll::write_registers(&sketch)),
        })
    };
    // Twenty flows a source.
    let distinct = [1, 2, 20].into_iter().zip(UNIQUE).map(one).collect::<Result<_>>()?;
    let (start, end) = (report.window.start, report.window.end);
    Ok(Sketches { start, end, windows: 1, distinct, lists: Vec::new(), spread: Vec::new() })
}

/// What the files of a folder take, in bytes.
struct Sizes {
    windows: u64,
    unions: u64,
    indexes: u64,
}

impl Sizes {
    fn of(folder: &Path) -> Result<Self> {
        let mut sizes = Self { windows: 0, unions: 0, indexes: 0 };
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (name, bytes) = (entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len());
            let place = if name.ends_with(".index") {
                &mut sizes.indexes
            } else if name.starts_with("windows") {
                &mut sizes.windows
            } else {
                &mut sizes.unions
            };
            *place += bytes;
        }
        Ok(sizes)
    }
}

/// Checks an answer.
type Check = Box<dyn Fn(&Value) -> Result<()>>;

/// A question, and whether its answer is right.
struct Question {
    name: &'static str,
    query: Query,
    check: Check,
}

/// All hosts were up on the last day.
fn sources(answer: &Value) -> Result<()> {
    let (count, truth) = (&answer["unique"]["src_ip"], HOSTS + 20);
    let [value, lower, upper] = ["value", "lower", "upper"].map(|name| count[name].as_u64().unwrap_or(0));
    ensure!(value.abs_diff(truth) * 10 <= truth && lower <= truth && truth <= upper, "{count} sources of {truth}");
    Ok(())
}

fn questions(windows: u64, sent: &Sent) -> Vec<Question> {
    let end = Timestamp::from_second(START + windows as i64 * LENGTH).unwrap_or_default();
    let last = |seconds: i64| Time { from: Some(end - SignedDuration::from_secs(seconds)), to: Some(end) };
    let count = |windows: u64| {
        Box::new(move |answer: &Value| {
            ensure!(answer["windows"] == windows, "{} windows of {windows}", answer["windows"]);
            ensure!(answer["top"]["sources"][0]["src_ip"] == host(0).to_string(), "another first row");
            Ok(())
        })
    };
    let (largest, rare) = (sent.largest, sent.rare);
    let all = Time::default();
    let between = move |of: &Value, truth: u64| {
        let [lower, upper] = [&of["lower"], &of["upper"]].map(|bound| bound.as_u64().unwrap_or(0));
        ensure!((lower..=upper).contains(&truth), "{of} does not have {truth}");
        Ok(())
    };
    vec![
        Question { name: "lists of 20 minutes", query: Query::Span(last(1200)), check: count(120) },
        Question { name: "lists of an hour", query: Query::Span(last(3600)), check: count(360) },
        Question {
            name: "lists of a day",
            query: Query::Span(last(86_400)),
            check: Box::new(|answer| {
                ensure!(answer["windows"] == DAY, "{} windows of {DAY}", answer["windows"]);
                sources(answer)
            }),
        },
        Question {
            name: "lists of all days",
            query: Query::Span(all),
            check: Box::new(move |answer| {
                ensure!(answer["windows"] == windows, "{} windows of {windows}", answer["windows"]);
                between(&answer["top"]["sources"][0]["packets"], largest)
            }),
        },
        Question {
            name: "rates and totals of all days",
            query: Query::History(all, Some(360)),
            check: Box::new(|answer| {
                ensure!(answer["windows"].as_array().is_some_and(|all| all.len() > 100), "few windows");
                Ok(())
            }),
        },
        Question {
            name: "an address that sent on one day",
            query: Query::Find(vec![format!("src_ip={RARE}")], all),
            check: Box::new(move |answer| {
                let key = &answer["keys"][0];
                ensure!(key["packets"]["value"] == rare, "{key} of {rare}");
                between(&key["packets"], rare)
            }),
        },
        Question {
            name: "an address that never sent",
            query: Query::Find(vec!["203.0.113.200".to_owned()], all),
            check: Box::new(|answer| {
                ensure!(answer["keys"][0]["packets"].is_null(), "it sent: {}", answer["keys"]);
                Ok(())
            }),
        },
    ]
}

fn ask(folder: &Path, windows: u64, sent: &Sent, sizes: &Sizes) -> Result<()> {
    let mut rows = Vec::new();
    forget(folder)?;
    let (opened, read) = counted(|| Stored::open(folder).context("no history in the folder"))?;
    let all = sizes.windows + sizes.unions + sizes.indexes;
    rows.push(["a start".to_owned(), milliseconds(read.seconds), String::new(), share(read.bytes, all), String::new()]);
    drop(opened);
    for Question { name, query, check } in questions(windows, sent) {
        forget(folder)?;
        let stored = Stored::open(folder).context("no history in the folder")?;
        let (answer, cold) = counted(|| stored.answer(&query).map_err(|why| anyhow!("{name}: {why}")))?;
        let answer: Value = serde_json::from_str(&answer)?;
        check(&answer).with_context(|| name.to_owned())?;
        let mut warm = f64::INFINITY;
        for _ in 0..ROUNDS {
            let (_, again) = counted(|| stored.answer(&query).map_err(|why| anyhow!("{name}: {why}")))?;
            warm = warm.min(again.seconds);
        }
        let blocks = &answer["blocks"];
        let [opened, skipped] = [&blocks["opened"], &blocks["skipped"]].map(Value::as_u64);
        let blocks = opened.zip(skipped).map_or_else(String::new, |(opened, skipped)| share(opened, opened + skipped));
        rows.push([name.to_owned(), milliseconds(cold.seconds), milliseconds(warm), share(cold.bytes, all), blocks]);
    }
    table::write(["question", "cold ms", "warm ms", "read from disk", "blocks opened"], &rows)?;
    table::say(format!(
        "\nRead by one thread. Cold: no file was in the page cache; warm: the least of {ROUNDS} answers after it.\n\
         Checked: the number of windows, the largest source, and all that the rare one has sent."
    ))
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e3)
}

fn share(part: u64, all: u64) -> String {
    format!("{:.2} %", part as f64 * 100.0 / all.max(1) as f64)
}

/// What an answer took.
struct Took {
    seconds: f64,
    /// Bytes that it read from files.
    bytes: u64,
}

fn counted<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Took)> {
    let (before, begun) = (bytes_read()?, now());
    let done = work()?;
    Ok((done, Took { seconds: begun.elapsed().as_secs_f64(), bytes: bytes_read()? - before }))
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    Instant::now()
}

/// All that this process has read from files so far.
fn bytes_read() -> Result<u64> {
    let io = fs::read_to_string("/proc/self/io")?;
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    Ok(read.context("no rchar in /proc/self/io")?.parse()?)
}

/// Takes the files of a folder out of the page cache.
fn forget(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        let file = fs::File::open(&path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}
