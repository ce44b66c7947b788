//! How fast captures are replayed: the release binary over a million generated packets.

use std::{fs::File, io::BufWriter, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account::{self, Loss},
    daemon::weir_binary,
    oracle::Oracle,
    pcap::{Schedule, Writer},
    scratch::Scratch,
    traffic::{HEADERS_MAX, Mix, Plan, Traffic},
};

use crate::table::{self, least_and_median, thousands};

const ROUNDS: usize = 5;
const PACKETS: u64 = 1_000_000;
const SCHEDULE: Schedule = Schedule { start: Duration::from_secs(1_700_000_000), packets_per_second: 100_000 };

struct Capture {
    name: &'static str,
    plan: Plan,
}

fn captures() -> [Capture; 2] {
    let plan = Plan {
        seed: 7,
        packets: PACKETS,
        flows: 100_000,
        zipf: 1.1,
        flows_per_source: 4,
        flows_per_destination: 8,
        mix: Mix::default(),
    };
    [
        Capture { name: "Zipf 1.1, 100,000 flows", plan },
        Capture { name: "10,000,000 flows of equal size", plan: Plan { flows: 10_000_000, zipf: 0.0, ..plan } },
    ]
}

/// Measures and prints.
///
/// # Errors
///
/// There is no binary, there is no room for the captures (some 250 MB), or a report is wrong.
pub fn bench() -> Result<()> {
    let weir = weir_binary()?;
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    let mut rows = Vec::new();
    for Capture { name, plan } in captures() {
        let sent = write_capture(&file, plan)?;
        let mut seconds = Vec::new();
        let mut hits = 0.0;
        for _ in 0..ROUNDS {
            let (spent, report) = replay(&weir, &file)?;
            check(&report, sent).with_context(|| format!("{name}: the report is wrong"))?;
            seconds.push(spent.as_secs_f64());
            hits = report["self"]["cache_hit_rate"].as_f64().context("no cache_hit_rate")?;
        }
        let (least, median) = least_and_median(seconds);
        let rate = |seconds: f64| format!("{:.2}", sent.packets as f64 / seconds / 1e6);
        rows.push([
            name.to_owned(),
            format!("{:.1} %", 100.0 * hits),
            rate(median),
            rate(least),
            format!("{:.0}", 1e9 * median / sent.packets as f64),
        ]);
    }
    table::say(format!("{}\n", table::machine()?))?;
    table::write(["capture", "cache hits", "median Mpkt/s", "best Mpkt/s", "CPU ns/pkt"], &rows)?;
    table::say(format!(
        "\nPackets per second of CPU time (user and system) of `weir replay --window all` over {} packets; {ROUNDS} runs.\n\
         Checked after each run: weir had seen what was generated, to the byte, and its ledger balanced.",
        thousands(PACKETS),
    ))
}

fn write_capture(path: &Path, plan: Plan) -> Result<Tally> {
    let cannot = || format!("cannot write {}", path.display());
    let mut oracle = Oracle::new();
    let file = BufWriter::new(File::create(path).with_context(cannot)?);
    let mut writer = Writer::new(file, HEADERS_MAX as u32).with_context(cannot)?;
    for (nth, packet) in (0..).zip(Traffic::new(plan)?) {
        oracle.add(&packet.truth);
        writer.write(SCHEDULE.at(nth), &packet.frame).with_context(cannot)?;
    }
    writer.finish().with_context(cannot)?;
    Ok(oracle.sent())
}

/// Replays, and returns the CPU time it took and the report.
fn replay(weir: &Path, capture: &Path) -> Result<(Duration, Value)> {
    let before = children_time()?;
    let output = Command::new(weir)
        .args(["replay", "--json", "--window", "all", "--seed", "1"])
        .arg(capture)
        .output()
        .with_context(|| format!("cannot start {}", weir.display()))?;
    let spent = children_time()?.saturating_sub(before);
    if !output.status.success() {
        bail!("weir replay: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok((spent, serde_json::from_slice(&output.stdout).context("weir replay wrote no report")?))
}

/// User and system time of all children that have ended.
///
/// # Errors
///
/// The kernel does not report it.
pub fn children_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the time that children took")?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

fn check(report: &Value, sent: Tally) -> Result<()> {
    let seen = account::check(std::slice::from_ref(report), Loss::None)?.seen;
    ensure!(seen == sent, "{sent:?} were generated and {seen:?} were seen");
    Ok(())
}
