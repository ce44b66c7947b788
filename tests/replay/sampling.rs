//! Sampling, over many draws.

use std::{path::PathBuf, slice, time::Duration};

use anyhow::{Context, Error, Result, ensure};
use serde_json::Value;
use weir::replay::Windows;
use weir_common::ledger::Tally;
use weir_config::Packets;
use weir_schema::{Report, Union};
use weir_tests::{
    account::Ledger,
    chance,
    oracle::{By, Dimension, Subject},
    scratch::Scratch,
    traffic::{Mix, Plan},
};

use crate::{
    command::{CAPTURE_TIME, capture_again_and_again},
    library::{self, small},
};

const SEEDS: u64 = 200;
/// This many windows of the same traffic are replayed at once; each is a new draw.
const WINDOWS: u32 = 20;
/// Replays through the kernel, each of which begins with loading programs.
const KERNEL_REPLAYS: u64 = 2;
const RATE: u32 = 10;
/// The number of judged sources: the largest by what they really sent.
const CHOSEN: usize = 3;

/// The bounds of a list hold for the keys that the list shows, which are those that the draw favoured.
///
/// This matters for traffic of many small keys: of 2,000 flows with one packet each, only the sampled ones are listed.
/// Bounds that hold only for a key chosen beforehand fail in nearly every such list.
pub fn lists_hold_as_a_whole() -> Result<()> {
    lists_hold(SEEDS / u64::from(WINDOWS), false)
}

/// The lists hold with the kernel's draws, too.
pub fn lists_hold_through_the_kernel() -> Result<()> {
    lists_hold(KERNEL_REPLAYS, true)
}

fn lists_hold(replays: u64, kernel: bool) -> Result<()> {
    let plan = |flows, zipf| Plan { seed: 37, packets: 6_000, flows, zipf, mix: Mix::plain(), ..Plan::default() };
    let of_one_packet = Plan { packets: 2_000, flows_per_source: 1, ..plan(4_000_000, 0.0) };
    for (what, plan, rate) in [
        ("even flows", plan(4_000, 0.0), 10),
        ("even flows", plan(4_000, 0.0), 100),
        ("flows of one packet", of_one_packet, 100),
        ("flows by Zipf's law", plan(4_000, 1.1), 10),
    ] {
        let scratch = Scratch::new()?;
        let file = scratch.file("traffic.pcap");
        let truth = capture_again_and_again(&file, plan, WINDOWS)?;
        let truths = Dimension::ALL.map(|dimension| (dimension, truth.truths(dimension)));
        let mut config = small();
        config.sampling.packets = Packets::OneIn(rate);
        let mut missed = truths.each_ref().map(|_| 0);
        let mut reports = Vec::new();
        for seed in 0..replays {
            let windows = Windows::Every(CAPTURE_TIME);
            let replayed = library::run_with(&config, slice::from_ref(&file), windows, kernel, seed)?.reports;
            ensure!(replayed.len() == WINDOWS as usize, "{} windows", replayed.len());
            reports.extend(replayed);
        }
        for report in &reports {
            for ((dimension, truths), missed) in truths.iter().zip(&mut missed) {
                let mut hold = true;
                for top in ["top", "top_by_packets"] {
                    ensure!(report[top]["confidence"].as_f64() == Some(CONFIDENCE), "{}", report[top]["confidence"]);
                    ensure!(report[top]["sampling"] == rate, "{}", report[top]["sampling"]);
                    hold &= truths.hold(&report[top][dimension.name()]).map_err(Error::msg)?;
                }
                *missed += u64::from(!hold);
            }
        }
        let draws = reports.len() as u64;
        let alarm = chance::failures_that_alarm(draws, 1.0 - CONFIDENCE);
        for ((dimension, _), missed) in truths.iter().zip(missed) {
            let name = dimension.name();
            ensure!(missed < alarm, "{what} at 1 in {rate}: {missed} of {draws} lists of {name} have a false bound");
        }
    }
    Ok(())
}

/// For keys that are chosen only by their size, sampled sums are right on average, and bounds hold as often as stated.
pub fn two_hundred_draws() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    let plan = Plan { seed: 31, packets: 20_000, flows: 200, zipf: 1.2, mix: Mix::plain(), ..Plan::default() };
    let truth = crate::command::capture(&file, plan)?;
    let seen = truth.sent();
    let chosen = truth.top(Dimension::Sources, By::Bytes, CHOSEN);

    let mut config = small();
    config.sampling.packets = Packets::OneIn(RATE);
    let mut judged = chosen.iter().map(|_| MEASURES.map(|_| Samples::default())).collect::<Vec<_>>();
    let mut unique = UNIQUE.map(|_| 0);
    for seed in 0..SEEDS {
        let report = replay(&config, &file, false, seed)?;
        let interface = &report["interfaces"][0];
        ensure!(interface["sampling"] == RATE, "{interface}");
        let ledger = Ledger::read(interface)?;
        ensure!(ledger.attributed.packets + ledger.sampled_out.packets == seen.packets, "{interface}");
        let totals = &report["totals"];
        let by_version = ["ipv4_packets", "ipv6_packets"].map(|name| totals[name].as_u64().unwrap_or(0));
        let by_version: u64 = by_version.iter().sum();
        ensure!(by_version == seen.packets, "{totals}: all {} packets have a flow", seen.packets);
        for ((source, truth), judged) in chosen.iter().zip(&mut judged) {
            let entry = top_source(&report, source).with_context(|| format!("{source} is not in the list"))?;
            for ((name, by), judged) in MEASURES.into_iter().zip(judged) {
                let Bounds { value, lower, upper } = Bounds::read(&entry[name])?;
                let sampled = entry[name]["sampled"].as_u64().context("nothing was sampled")?;
                judged.estimates.push(sampled as f64 * f64::from(RATE));
                judged.failures += u64::from(!(lower..=upper).contains(&by.of(*truth)));
                ensure!(lower < value && value < upper && upper - lower < 2 * value, "the bounds say nothing: {entry}");
            }
        }
        for ((name, dimension), failures) in UNIQUE.into_iter().zip(&mut unique) {
            let Bounds { lower, upper, .. } = Bounds::read(&report["unique"][name])?;
            *failures += u64::from(!(lower..=upper).contains(&truth.distinct(dimension)));
            ensure!(report["unique"][name]["confidence"].as_f64() == Some(CONFIDENCE), "{}", report["unique"]);
        }
        ensure!(report["top"]["confidence"].as_f64() == Some(CONFIDENCE), "{}", report["top"]["confidence"]);
    }
    let unbiased = |estimates: &[f64], truth: u64| chance::unbiased(estimates, truth as f64).map_err(Error::msg);
    // Each source and each measure is judged separately: packets and bytes of a source depend on each other, but draws
    // do not.
    let alarm = chance::failures_that_alarm(SEEDS, 1.0 - CONFIDENCE);
    for ((source, truth), judged) in chosen.iter().zip(&judged) {
        for ((name, by), Samples { estimates, failures }) in MEASURES.into_iter().zip(judged) {
            unbiased(estimates, by.of(*truth)).with_context(|| format!("{name} of {source}"))?;
            ensure!(*failures < alarm, "{name} of {source}: {failures} of {SEEDS} bounds failed");
        }
    }
    for ((name, _), failures) in UNIQUE.into_iter().zip(unique) {
        ensure!(failures < alarm, "unique {name}: {failures} of {SEEDS} bounds failed");
    }
    Ok(())
}

/// The confidence that sampled lists and unique counts state.
const CONFIDENCE: f64 = 0.999;
const MEASURES: [(&str, By); 2] = [("packets", By::Packets), ("bytes", By::Bytes)];
const UNIQUE: [(&str, Dimension); 3] =
    [("src_ip", Dimension::Sources), ("dst_ip", Dimension::Destinations), ("flows", Dimension::Flows)];

/// All draws of one number.
#[derive(Default)]
struct Samples {
    estimates: Vec<f64>,
    failures: u64,
}

/// An estimate as a report has it.
struct Bounds {
    value: u64,
    lower: u64,
    upper: u64,
}

impl Bounds {
    fn read(estimate: &Value) -> Result<Self> {
        let part = |name: &str| estimate[name].as_u64().with_context(|| format!("no {name} in {estimate}"));
        Ok(Self { value: part("value")?, lower: part("lower")?, upper: part("upper")? })
    }
}

/// A window from which no packet was taken must not have exact bounds.
pub fn a_window_that_is_left_out_says_so() -> Result<()> {
    left_out(false)
}

/// The kernel's program gives the same result.
pub fn the_kernel_says_so_too() -> Result<()> {
    left_out(true)
}

fn left_out(kernel: bool) -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    crate::command::capture(&file, Plan { packets: 1_000, mix: Mix::plain(), ..Plan::default() })?;
    let mut config = small();
    config.sampling.packets = Packets::OneIn(50_000);
    let windows = Windows::Every(Duration::from_secs(1));
    let reports = library::run_with(&config, slice::from_ref(&file), windows, kernel, 3)?.reports;
    ensure!(reports.len() == 10, "{} reports", reports.len());
    for report in reports {
        let interface = &report["interfaces"][0];
        ensure!(interface["sampling"] == 50_000, "{interface}");
        ensure!(report["top"]["confidence"].as_f64() == Some(CONFIDENCE), "{}", report["top"]["confidence"]);
    }
    Ok(())
}

/// If sampling left out no packet of a window, each packet counts once, and the numbers are exact. Every window states
/// the rate in force.
pub fn a_window_that_left_nothing_out_is_certain() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    crate::command::capture(&file, Plan { packets: 1_000, mix: Mix::plain(), ..Plan::default() })?;
    let mut config = small();
    config.sampling.packets = Packets::OneIn(3);
    // The packets of the capture fill ten seconds, about two in each window.
    let windows = Windows::Every(Duration::from_millis(20));
    let reports = library::run_with(&config, slice::from_ref(&file), windows, false, 5)?.reports;
    let (mut certain, mut left_out) = (0, 0);
    for report in &reports {
        let ledger = Ledger::read(&report["interfaces"][0])?;
        ensure!(report["interfaces"][0]["sampling"] == 3 && report["top"]["sampling"] == 3, "{report}");
        if !ledger.sampled_out.is_zero() {
            left_out += 1;
            ensure!(report["top"]["confidence"].as_f64() == Some(CONFIDENCE), "{report}");
            continue;
        }
        ensure!(report["top"]["confidence"].as_f64() == Some(1.0) && report["totals"]["bounds"].is_null(), "{report}");
        let flows = report["top"]["flows"].as_array().context("flows")?;
        let mut listed = Tally::default();
        for flow in flows {
            let exact = |name: &str| flow[name]["value"].as_u64().filter(|value| flow[name]["lower"] == *value);
            let (packets, bytes) = exact("packets").zip(exact("bytes")).with_context(|| format!("{flow}"))?;
            ensure!(flow["packets"]["upper"] == packets && flow["bytes"]["upper"] == bytes, "{flow}");
            listed.add(Tally::new(packets, bytes));
        }
        ensure!(listed == ledger.attributed, "{listed:?} of {ledger:?}");
        certain += u64::from(!ledger.attributed.is_zero());
    }
    ensure!(certain > 10 && left_out > 10, "{certain} windows left nothing out, {left_out} did");
    Ok(())
}

/// Bounds of bytes depend on the largest packet. Here most bytes are in one packet of half a mebibyte, which is in the
/// last size class.
pub fn lists_of_large_packets_hold() -> Result<()> {
    const LARGE: u64 = 512 << 10;
    const SMALL: u64 = 400;
    let scratch = Scratch::new()?;
    let file = scratch.file("large.pcap");
    let frame = |source: u8, bytes: u64| {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
        frame.extend([10, 0, 0, source, 10, 9, 9, 9, 0, 53, 0, 53, 0, 26, 0, 0]);
        frame.resize(60, 0);
        (frame, bytes)
    };
    let frames: Vec<_> = (0..SMALL).map(|nth| frame((nth % 100) as u8, 1_000)).chain([frame(200, LARGE)]).collect();
    write_pcap(&file, &frames)?;
    let mut config = small();
    config.sampling.packets = Packets::OneIn(2);
    let (mut missed, mut largest) = (0, 0);
    for seed in 0..SEEDS {
        let report = replay(&config, &file, false, seed)?;
        let sizes = &report["histograms"]["packet_size_bytes"];
        ensure!(sizes["max"] == LARGE && sizes["count"] == SMALL + 1, "{sizes}");
        let rows = report["top"]["sources"].as_array().context("sources")?;
        let mut holds = true;
        for row in rows {
            let is_large = row["src_ip"] == "10.0.0.200";
            let truth = if is_large { LARGE } else { 4_000 };
            let Bounds { lower, upper, .. } = Bounds::read(&row["bytes"])?;
            holds &= (lower..=upper).contains(&truth);
            largest += u64::from(is_large);
        }
        missed += u64::from(!holds);
    }
    let alarm = chance::failures_that_alarm(SEEDS, 1.0 - CONFIDENCE);
    ensure!(missed < alarm, "{missed} of {SEEDS} lists have a false bound");
    ensure!(largest > SEEDS / 4, "the large packet was listed {largest} times");
    Ok(())
}

/// A capture of these frames, each with its length on the wire, within a second.
fn write_pcap(file: &PathBuf, frames: &[(Vec<u8>, u64)]) -> Result<()> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (nth, (frame, wire)) in frames.iter().enumerate() {
        for word in [1_700_000_000, nth as u32 * 1_000, frame.len() as u32, u32::try_from(*wire)?] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    std::fs::write(file, bytes)?;
    Ok(())
}

/// Several windows together, some of which took nothing of an interface, have the truth within their bounds.
pub fn windows_together_hold() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    let truth = crate::command::capture(&file, Plan { packets: 500, mix: Mix::plain(), ..Plan::default() })?;
    let seen = truth.sent().packets;
    let mut config = small();
    config.sampling.packets = Packets::OneIn(50);
    // Ten windows of 50 packets: one third of them take none.
    let windows = Windows::Every(Duration::from_secs(1));
    let (mut missed, mut unions, mut empty) = (0, 0, 0);
    for seed in 0..SEEDS / 10 {
        let reports = library::run_with(&config, slice::from_ref(&file), windows, false, seed)?.reports;
        let parsed: Vec<Report> =
            reports.iter().map(|report| Ok(serde_json::from_value(report.clone())?)).collect::<Result<_>>()?;
        empty += parsed.iter().filter(|report| report.views.iter().any(|view| view.tables == Some(Vec::new()))).count();
        let union = serde_json::to_value(Union::of(&parsed).context("no window")?)?;
        let versions = union["views"].as_array().context("views")?.iter().find(|view| view["name"] == "ip_versions");
        let total = &versions.context("ip_versions")?["tables"][0]["total"]["packets"];
        if total.is_null() {
            continue;
        }
        unions += 1;
        let Bounds { lower, upper, .. } = Bounds::read(total)?;
        missed += u64::from(!(lower..=upper).contains(&seen));
    }
    let alarm = chance::failures_that_alarm(unions, 10.0 * (1.0 - CONFIDENCE));
    ensure!(unions > 10 && empty > 10, "{unions} windows together, {empty} windows took nothing");
    ensure!(missed < alarm, "{missed} of {unions} totals of windows together are false");
    Ok(())
}

fn replay(config: &weir_config::Config, file: &PathBuf, kernel: bool, seed: u64) -> Result<Value> {
    let mut replayed = library::run_with(config, slice::from_ref(file), Windows::All, kernel, seed)?;
    replayed.reports.pop().context("no report")
}

fn top_source<'a>(report: &'a Value, source: &Subject) -> Option<&'a Value> {
    let source = source.to_string();
    report["top"]["sources"].as_array()?.iter().find(|entry| entry["src_ip"] == source)
}
