//! A flood: ten million spoofed flows, and a few heavy ones hidden among them.

use std::{slice::from_ref, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_datapath::online_cpus;
use weir_tests::{
    livegen::{Flows, Generator, HEAVY_EVERY, HEAVY_FLOWS, heavy_packets, heavy_source},
    route::{Passed, Route},
};

use super::{
    check, introduce, process,
    tool::{self, LedgerSums},
};
use crate::table::{self, thousands};

const SPOOFED_FLOWS: u32 = 10_000_000;
/// All packets, including those of the heavy flows.
const PACKETS: u32 = SPOOFED_FLOWS / (HEAVY_EVERY - 1) * HEAVY_EVERY + HEAVY_EVERY;
const WARM_UP_PACKETS: u32 = 100_000;
/// Windows are short, so that the flood fills several.
const INTERVAL_SECONDS: u32 = 5;
/// How long to wait for reports: a busy CPU may keep a window open for long.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Floods a router without and with weir, and prints the results.
///
/// # Errors
///
/// No privilege, a wrong ledger, a heavy flow that is not found, or bounds that do not hold.
pub fn bench() -> Result<()> {
    let cpu = *online_cpus()?.first().context("no CPU is online")?;
    introduce()?;
    let route = Route::new(cpu)?;
    let generator = route.generator(Flows::Flood, None)?;
    route.send(&generator, WARM_UP_PACKETS)?;
    let without = route.send(&generator, PACKETS)?;
    // A new generator starts again with packet 0.
    let flooded = flooded(&route, &route.generator(Flows::Flood, None)?)?;
    report(&without, &flooded)
}

struct Flooded {
    passed: Passed,
    account: LedgerSums,
    resident: [u64; 2],
    planned: u64,
    /// The packets of each window with a part of the flood.
    windows: Vec<u64>,
    heavy: Vec<Heavy>,
}

/// The reported packets of a heavy source over all windows, and the truth.
struct Heavy {
    source: String,
    truth: u64,
    value: u64,
    lower: u64,
    upper: u64,
}

fn flooded(route: &Route, generator: &Generator<'_>) -> Result<Flooded> {
    let before_start = route.received()?;
    let mut daemon = tool::weir(route.router(), "auto", &format!("report: {{interval: {INTERVAL_SECONDS}s}}\n"))?;
    let started = route.received()?;
    // After the first window everything is set up.
    daemon.wait_for_reports(1, TIMEOUT)?;
    let before = process::resident(daemon.pid())?;
    let passed = route.send(generator, PACKETS)?;
    let windows = daemon.reports()?.len() + 1;
    daemon.wait_for_reports(windows, TIMEOUT)?;
    let after = process::resident(daemon.pid())?;
    let before_stop = route.received()?;
    let reports = tool::stop_weir(&mut daemon)?;
    let account = tool::account(&reports)?;
    check(account.seen, before_stop.since(started), route.received()?.since(before_start))?;
    let heavy: Result<Vec<_>> = (0..HEAVY_FLOWS).map(|nth| heavy(nth, &reports)).collect();
    let heavy = heavy?;
    // The bounds include the packets that weir lost. Packets that did not reach the interface may have been of any
    // source.
    let missing = u64::from(PACKETS).saturating_sub(passed.received.packets);
    for Heavy { source, truth, lower, upper, .. } in &heavy {
        ensure!(
            (*lower..=upper + missing).contains(truth),
            "{source} sent {truth}, of which at most {missing} did not arrive, and the bounds are {lower} to {upper}"
        );
    }
    let planned = reports[0]["self"]["memory_bytes"].as_u64().context("no memory_bytes")?;
    let windows: Result<Vec<_>> = reports
        .iter()
        .filter(|report| is_flooded(report))
        .map(|report| Ok(tool::account(from_ref(report))?.seen.packets))
        .collect();
    Ok(Flooded { passed, account, resident: [before, after], planned, windows: windows?, heavy })
}

/// Returns true if a window has a part of the flood.
fn is_flooded(report: &Value) -> bool {
    /// With this many packets every heavy flow is certainly among them, and far larger than all others.
    const PACKETS_MIN: u64 = 10_000;
    report["totals"]["packets"].as_u64().is_some_and(|packets| packets >= PACKETS_MIN)
}

/// Adds up a source's packets in the lists by packets. It must be listed in every window with a part of the flood.
fn heavy(nth: u32, reports: &[Value]) -> Result<Heavy> {
    let source = heavy_source(nth);
    let truth = u64::from(heavy_packets(nth, PACKETS));
    let mut heavy = Heavy { source, truth, value: 0, lower: 0, upper: 0 };
    for report in reports {
        let listed = report["top_by_packets"]["sources"].as_array().context("a report without a list of sources")?;
        let found = listed.iter().find(|entry| entry["src_ip"] == heavy.source.as_str());
        let Some(entry) = found else {
            ensure!(!is_flooded(report), "report {}: {} is not in the list", report["id"], heavy.source);
            continue;
        };
        let number = |name: &str| entry["packets"][name].as_u64().with_context(|| format!("no {name} in {entry}"));
        heavy.value += number("value")?;
        heavy.lower += number("lower")?;
        heavy.upper += number("upper")?;
    }
    Ok(heavy)
}

fn report(without: &Passed, flooded: &Flooded) -> Result<()> {
    let Flooded { passed, account, resident, planned, windows, heavy } = flooded;
    let row = |name: &str, passed: &Passed| {
        let Passed { sent, received, delivered } = passed;
        [
            name.to_owned(),
            thousands(sent.tally.packets),
            thousands(received.packets),
            thousands(delivered.packets),
            format!("{:.0}", passed.rate()),
        ]
    };
    let heads = ["flood", "sent", "received", "forwarded", "forwarded pkt/s"];
    table::write(heads, &[row("without weir", without), row("with weir, auto: TCX", passed)])?;
    let rows: Vec<_> = heavy
        .iter()
        .map(|heavy| {
            [
                heavy.source.clone(),
                thousands(heavy.truth),
                thousands(heavy.value),
                thousands(heavy.lower),
                thousands(heavy.upper),
            ]
        })
        .collect();
    table::say("")?;
    table::write(["heavy source", "sent", "reported", "lower", "upper"], &rows)?;
    let fullest = windows.iter().copied().max().unwrap_or_default();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    table::say(format!(
        "\nUDP over IPv6: {} packets, each from another source; and one packet in {HEAVY_EVERY} from one of {HEAVY_FLOWS} heavy \
         sources.\n\
         weir's memory: {:.1} MiB resident before, {:.1} MiB after, {:.1} MiB planned. Its ledger balanced in every window;\n\
         seen: {} packets (compared with what the interface received); in flows: {}; lost: {} ({:.2} %).\n\
         Each of the {} windows of the flood listed all heavy sources among its top ten. The fullest window had\n\
         {} packets: {:.1} s of the flood at its mean rate, where the window should have {INTERVAL_SECONDS} s.",
        thousands(u64::from(PACKETS - PACKETS / HEAVY_EVERY)),
        mib(resident[0]),
        mib(resident[1]),
        mib(*planned),
        thousands(account.seen.packets),
        thousands(account.attributed.packets),
        thousands(account.lost.packets),
        100.0 * account.lost.packets as f64 / account.seen.packets.max(1) as f64,
        windows.len(),
        thousands(fullest),
        fullest as f64 * passed.sent.elapsed.as_secs_f64() / passed.delivered.packets.max(1) as f64,
    ))
}
