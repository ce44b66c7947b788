//! Sampling, over many draws: estimates are right on average, and their bounds hold as often as they say.

use std::{collections::HashMap, net::IpAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir::{config::Packets, replay::Windows};
use weir_common::ledger::Tally;
use weir_tests::{
    scratch::Scratch,
    traffic::{Mix, Plan, Traffic},
};

use crate::library::{self, small, tally};

const SEEDS: u64 = 200;
const RATE: u32 = 10;
/// Standard errors that a mean of so many draws is off by once in 15,000 runs.
const DEVIATIONS: f64 = 4.0;

pub fn two_hundred_draws() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    let plan = Plan { seed: 31, packets: 20_000, flows: 200, zipf: 1.2, mix: Mix::plain(), ..Plan::default() };
    crate::command::capture(&file, plan)?;
    let (mut sources, mut seen) = (HashMap::<IpAddr, Tally>::new(), Tally::default());
    for packet in Traffic::new(plan)? {
        let one = Tally::new(1, packet.truth.bytes);
        let key = packet.truth.flow.ok().context("plain traffic has flows")?;
        sources.entry(key.src).or_default().add(one);
        seen.add(one);
    }
    let largest = *sources.iter().max_by_key(|(_, tally)| tally.bytes).context("no traffic")?.0;

    let mut config = small();
    config.sampling.packets = Packets::OneIn(RATE);
    let mut estimates = [const { Vec::new() }; 3];
    let (mut judged, mut outside) = (0_u32, 0_u32);
    for seed in 0..SEEDS {
        let report = replay(&config, &file, seed)?;
        let interface = &report["interfaces"][0];
        ensure!(interface["sampling"] == RATE, "{interface}");
        let [attributed, left_out] = ["attributed", "sampled_out"].map(|name| tally(&interface["ledger"][name]));
        let (attributed, left_out) = (attributed?, left_out?);
        ensure!(attributed.packets + left_out.packets == seen.packets, "{interface}");
        let totals = &report["totals"];
        let by_version = ["ipv4_packets", "ipv6_packets"].map(|name| totals[name].as_u64().unwrap_or(0));
        estimates[0].push(by_version.iter().sum::<u64>() as f64);
        let entry = top_source(&report, largest).with_context(|| format!("{largest} is not in the list"))?;
        for (metric, name, truth) in [(1, "packets", sources[&largest].packets), (2, "bytes", sources[&largest].bytes)]
        {
            let [value, lower, upper] =
                ["value", "lower", "upper"].map(|part| entry[name][part].as_u64().unwrap_or(u64::MAX));
            estimates[metric].push(value as f64);
            judged += 1;
            outside += u32::from(!(lower..=upper).contains(&truth));
            ensure!(lower < value && value < upper && upper - lower < value, "the bounds say nothing: {entry}");
        }
        ensure!(report["top"]["confidence"].as_f64() == Some(0.999), "{}", report["top"]["confidence"]);
    }
    // One in a thousand of them may be; more than five of 400 happen once in 25,000 runs.
    ensure!(outside <= 5, "the truth was outside of {outside} of {judged} bounds");
    let truths = [seen.packets, sources[&largest].packets, sources[&largest].bytes];
    for ((what, estimates), truth) in
        ["packets", "the largest source's packets", "its bytes"].into_iter().zip(&estimates).zip(truths)
    {
        unbiased(estimates, truth as f64).with_context(|| what)?;
    }
    Ok(())
}

/// A window from which nothing was taken says so as well: no bound may look certain.
pub fn a_window_that_is_left_out_says_so() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    crate::command::capture(&file, Plan { packets: 1_000, mix: Mix::plain(), ..Plan::default() })?;
    let mut config = small();
    config.sampling.packets = Packets::OneIn(50_000);
    for kernel in if weir_tests::trial::root().is_ok() { &[false, true][..] } else { &[false] } {
        let windows = Windows::Every(Duration::from_secs(1));
        let reports = library::run_with(&config, std::slice::from_ref(&file), windows, *kernel, 3)?.reports;
        ensure!(reports.len() == 10, "{} reports", reports.len());
        for report in reports {
            let interface = &report["interfaces"][0];
            ensure!(interface["sampling"] == 50_000, "kernel: {kernel}: {interface}");
            ensure!(report["top"]["confidence"].as_f64() == Some(0.999), "{}", report["top"]["confidence"]);
        }
    }
    Ok(())
}

fn replay(config: &weir::config::Config, file: &PathBuf, seed: u64) -> Result<Value> {
    let mut replayed = library::run_with(config, std::slice::from_ref(file), Windows::All, false, seed)?;
    replayed.reports.pop().context("no report")
}

fn top_source(report: &Value, source: IpAddr) -> Option<&Value> {
    let source = source.to_string();
    report["top"]["sources"].as_array()?.iter().find(|entry| entry["src_ip"] == source)
}

fn unbiased(estimates: &[f64], truth: f64) -> Result<()> {
    let count = estimates.len() as f64;
    let mean = estimates.iter().sum::<f64>() / count;
    let variance = estimates.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let error = (variance / count).sqrt();
    ensure!(error > 0.0, "all draws are the same");
    ensure!((mean - truth).abs() < DEVIATIONS * error, "{truth} is estimated as {mean:.1} +- {error:.1}");
    Ok(())
}
