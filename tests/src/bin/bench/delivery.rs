//! How long the delivery of a report takes, and how fast waiting reports are delivered. The collector is `weir
//! collect`, which writes a report to disk before it answers.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use weir_config::{self as config, Addresses, Compress};
use weir_deliver::{
    sink::{Http, Outbox},
    spool::{Limits, root::SpoolRoot},
};
use weir_schema::Encoded;
use weir_tests::{clock, collecting, collecting::Collecting, netns, scratch::Scratch, table};

use crate::acknowledged;

/// A report as weir makes it, with every field: 14 KB.
const REPORT: &str = include_str!("../../../../daemon/schema/tests/golden/report.json");
/// Number of waiting reports.
const WAITED: u64 = 10_000;
/// Reports that are sent one by one.
const ONE_BY_ONE: u64 = 500;
const TIMEOUT: Duration = Duration::from_secs(120);

/// Measures both, with and without syncing reports to disk.
///
/// # Errors
///
/// Something did not arrive, or arrived twice.
pub fn bench() -> Result<()> {
    table::say(format!("{}\n", table::machine()?))?;
    let mut rows = Vec::new();
    for (name, sync) in [("`fsync: report`", true), ("`fsync: never`", false)] {
        let whole = match netns::requirements() {
            Ok(()) => shares(acknowledged::times(sync)?),
            Err(lacking) => [format!("not measured: {lacking}"), String::new()],
        };
        let alone = shares(one_by_one(sync)?);
        let (opening, rate) = drain(sync)?;
        rows.push([
            name.to_owned(),
            whole[0].clone(),
            whole[1].clone(),
            alone[0].clone(),
            alone[1].clone(),
            format!("{:.0}", fill(sync)?),
            format!("{:.0} ms", opening.as_secs_f64() * 1e3),
            format!("{rate:.0}"),
        ]);
    }
    let heads = [
        "spool",
        "end of window to acknowledgement, median",
        "99 %",
        "report to acknowledgement, median",
        "99 %",
        "reports/s into the spool",
        "to open it with 10,000",
        "reports/s out of it",
    ];
    table::write(heads, &rows)
}

/// The median and the 99th percentile.
fn shares(mut times: Vec<Duration>) -> [String; 2] {
    times.sort_unstable();
    [0.5, 0.99].map(|share| format!("{:.1} ms", times[(times.len() as f64 * share) as usize].as_secs_f64() * 1e3))
}

/// The report with this number.
fn report(seq: u64) -> Result<Encoded> {
    let mut report: serde_json::Value = serde_json::from_str(REPORT)?;
    let id = format!("7f3c9a52/0000b41d/{seq}");
    report["id"] = id.clone().into();
    report["observer"]["boot_id"] = "0000b41d".into();
    report["observer"]["seq"] = seq.into();
    let mut line = serde_json::to_vec(&report)?;
    line.push(b'\n');
    Ok(Encoded { id, line: Arc::from(line) })
}

fn place(folder: &Path, sync: bool) -> Result<SpoolRoot> {
    let limits = Limits { bytes: 1 << 30, age: None, memory: 1, sync };
    SpoolRoot::take(folder, limits).context("cannot take the folder")
}

fn outbox(collector: &Collecting, place: &SpoolRoot) -> Result<Outbox> {
    let url = format!("http://{}/", collector.address());
    let settings =
        config::Http { url: url.parse()?, timeout: TIMEOUT, compress: Compress::None, ..config::Http::default() };
    let sink = Http::new(&settings)?;
    Ok(Outbox::start(Box::new(sink), 64, Addresses::Full, Some((place, &url)))?)
}

/// Checks that each report is in the collector's database once.
fn check(folder: &Path, count: u64) -> Result<()> {
    let windows = collecting::query(folder, &["windows"])?;
    let different: BTreeSet<_> = windows.iter().map(ToString::to_string).collect();
    ensure!(windows.len() as u64 == count && different.len() as u64 == count, "{} of {count} arrived", windows.len());
    Ok(())
}

fn one_by_one(sync: bool) -> Result<Vec<Duration>> {
    let (folder, spool) = (Scratch::new()?, Scratch::new()?);
    let collector = Collecting::start(folder.path(), &[])?;
    let place = place(spool.path(), sync)?;
    let outbox = outbox(&collector, &place)?;
    let reports: Vec<_> = (1..=ONE_BY_ONE).map(report).collect::<Result<_>>()?;
    let mut times = Vec::new();
    for (nth, report) in reports.into_iter().enumerate() {
        let start = clock::now();
        outbox.offer(report);
        wait_until(&outbox, nth as u64 + 1)?;
        times.push(start.elapsed());
    }
    ensure!(outbox.finish(TIMEOUT) == 0, "something was left");
    check(folder.path(), ONE_BY_ONE)?;
    Ok(times)
}

/// Polls often, so that the end of a delivery is known to a tenth of a millisecond.
fn wait_until(outbox: &Outbox, delivered: u64) -> Result<()> {
    let start = clock::now();
    while outbox.metrics().delivered < delivered {
        ensure!(start.elapsed() < TIMEOUT, "{delivered} reports are not delivered: {:?}", outbox.metrics());
        thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// Reports a second that go into a spool.
fn fill(sync: bool) -> Result<f64> {
    let folder = Scratch::new()?;
    let spool = place(folder.path(), sync)?.open("bench", "bench", 64);
    let reports: Vec<_> = (1..=1000).map(report).collect::<Result<_>>()?;
    let start = clock::now();
    for report in reports {
        spool.keep(report, 1)?;
    }
    ensure!(spool.holding().reports == 1000, "{:?}", spool.holding());
    Ok(1000.0 / start.elapsed().as_secs_f64())
}

/// How long it takes to open a spool with waiting reports, and how many of them a second are delivered.
fn drain(sync: bool) -> Result<(Duration, f64)> {
    let (folder, spools) = (Scratch::new()?, Scratch::new()?);
    let collector = Collecting::start(folder.path(), &[])?;
    let url = format!("http://{}/", collector.address());
    {
        // The spool is filled without fsync, because only the delivery is measured.
        let spool = place(spools.path(), false)?.open(&url, &url, 64);
        for seq in 1..=WAITED {
            spool.keep(report(seq)?, 1)?;
        }
    }
    let place = place(spools.path(), sync)?;
    let start: Instant = clock::now();
    let spool = place.open(&url, &url, 64);
    let opening = start.elapsed();
    ensure!(spool.holding().reports == WAITED, "{:?}", spool.holding());
    drop(spool);
    let start = clock::now();
    let outbox = outbox(&collector, &place)?;
    wait_until(&outbox, WAITED)?;
    let rate = WAITED as f64 / start.elapsed().as_secs_f64();
    ensure!(outbox.finish(TIMEOUT) == 0, "something was left");
    check(folder.path(), WAITED)?;
    Ok((opening, rate))
}
