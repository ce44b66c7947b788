//! Horizons and new hosts of a replay, beside the exact sets, over midnight and with sampling.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir::replay::Windows;
use weir_config::{Config, NewHosts, Packets};
use weir_tests::scratch::Scratch;

use crate::{
    frames::{self, Udp},
    library::{run_with, small},
};

/// 2026-11-21T00:00:00Z.
const MIDNIGHT: u64 = 1_795_219_200;
/// The capture begins this many seconds before midnight, and ends as many after it.
const AROUND: u64 = 5_400;
const MINUTE: u64 = 60;
/// Nothing is sent in these seconds: a gap in which no window is reported.
const SILENCE: std::ops::Range<u64> = MIDNIGHT + 600..MIDNIGHT + 1_500;
const HORIZON: u64 = 3_600;

/// What was sent: the second, and the source.
type Sent = Vec<(u64, Ipv4Addr)>;

/// One source in a second: some come again and again, and each minute brings a new one.
fn capture(scratch: &Scratch) -> Result<(PathBuf, Sent)> {
    let file = scratch.file("hours.pcap");
    let seconds = (MIDNIGHT - AROUND..MIDNIGHT + AROUND).filter(|second| !SILENCE.contains(second));
    let source = |second: u64| match second % MINUTE {
        0 => Ipv4Addr::from_bits(0x0a01_0000 + (second / MINUTE % 0xffff) as u32),
        // A sender outside of own networks is no host.
        1 => Ipv4Addr::from_bits(0xc633_6400 + (second / MINUTE % 50) as u32),
        other => Ipv4Addr::from_bits(0x0a02_0000 + (other * (second / 900 % 3)) as u32),
    };
    let sent: Sent = seconds.map(|second| (second, source(second))).collect();
    let packets = sent.iter().map(|(second, source)| {
        let udp = Udp { source: (*source).into(), destination: [198, 51, 100, 7].into(), ports: (1_000, 53) };
        (Duration::from_secs(*second) + Duration::from_millis(200), udp.frame(100))
    });
    frames::write(&file, packets)?;
    Ok((file, sent))
}

fn config(packets: Packets) -> Config {
    let mut config = small();
    config.report.interval = Duration::from_secs(MINUTE);
    config.report.horizons = vec![Duration::from_secs(HORIZON), Duration::from_secs(24 * 3_600)];
    config.new_hosts = Some(NewHosts { learning: Duration::from_secs(600), ..NewHosts::default() });
    config.sampling.packets = packets;
    config
}

fn second(time: &Value) -> Result<u64> {
    let time: jiff::Timestamp = time.as_str().context("a time")?.parse()?;
    Ok(time.as_second().try_into()?)
}

fn bounds(estimate: &Value) -> Result<std::ops::RangeInclusive<u64>> {
    let number = |name: &str| estimate[name].as_u64().with_context(|| format!("{name} of {estimate}"));
    let (value, lower, upper) = (number("value")?, number("lower")?, number("upper")?);
    ensure!(lower <= value && value <= upper, "{estimate}");
    Ok(lower..=upper)
}

pub fn counts_over_horizons_are_those_of_their_windows() -> Result<()> {
    let scratch = Scratch::new()?;
    let (file, sent) = capture(&scratch)?;
    for packets in [Packets::OneIn(1), Packets::OneIn(3)] {
        let windows = Windows::Every(Duration::from_secs(MINUTE));
        let reports = run_with(&config(packets), std::slice::from_ref(&file), windows, false, 7)?.reports;
        ensure!(reports.len() as u64 == (2 * AROUND - (SILENCE.end - SILENCE.start)) / MINUTE, "{}", reports.len());
        for report in &reports {
            let end = second(&report["window"]["end"])?;
            let horizons = report["horizons"].as_array().context("horizons")?;
            ensure!(horizons.len() == 2, "{horizons:?}");
            for (horizon, length) in horizons.iter().zip([HORIZON, 24 * 3_600]) {
                let start = second(&horizon["start"])?;
                let (least, part) = ((MIDNIGHT - AROUND).max(end - length), length / 24);
                let is_silent = least < SILENCE.end && least + part >= SILENCE.start;
                let latest = if is_silent { SILENCE.end } else { least } + part;
                ensure!(start >= least && start < end, "{start} to {end}, of {length}: {horizon}");
                ensure!(start <= latest, "{start} is late for {least}: {horizon}");
                let within = sent.iter().filter(|(second, _)| (start..end).contains(second));
                let sources: BTreeSet<_> = within.map(|(_, source)| source).collect();
                let counted = bounds(&horizon["unique"]["src_ip"])?;
                ensure!(counted.contains(&(sources.len() as u64)), "{} sources: {horizon}", sources.len());
                let covered = sent.iter().filter(|(second, _)| (start..end).contains(second)).count() as f64;
                ensure!(horizon["covered_seconds"] == covered, "{covered}: {horizon}");
                // A part is never above its whole.
                let own = bounds(&report["unique"]["src_ip"])?;
                ensure!(own.start() <= counted.start(), "{own:?} of {counted:?}");
            }
        }
    }
    Ok(())
}

pub fn new_hosts_are_those_that_had_not_sent() -> Result<()> {
    let scratch = Scratch::new()?;
    let (file, sent) = capture(&scratch)?;
    let windows = Windows::Every(Duration::from_secs(MINUTE));
    let mut config = config(Packets::OneIn(1));
    config.addresses = weir_config::Addresses::Full;
    let reports = run_with(&config, std::slice::from_ref(&file), windows, false, 7)?.reports;
    let mut first: BTreeMap<Ipv4Addr, u64> = BTreeMap::new();
    for (second, source) in sent.iter().filter(|(_, source)| source.is_private()) {
        first.entry(*source).or_insert(*second);
    }
    let mut listed = BTreeSet::new();
    for (nth, report) in (0_u64..).zip(&reports) {
        let (start, end) = (second(&report["window"]["start"])?, second(&report["window"]["end"])?);
        let new = &report["new_hosts"];
        let truth = first.values().filter(|second| (start..end).contains(second)).count() as u64;
        ensure!(bounds(new)?.contains(&truth), "{truth}: {new}");
        ensure!(new["learning"] == (nth < 10), "window {nth}: {new}");
        ensure!(
            second(&new["since"])? == MIDNIGHT - AROUND && new["known_seconds"] == (nth + 1) as f64 * 60.0,
            "{new}"
        );
        for host in new["hosts"].as_array().context("hosts")? {
            let host: Ipv4Addr = host["src_ip"].as_str().context("an address")?.parse()?;
            ensure!(first.get(&host).is_some_and(|second| (start..end).contains(second)), "{host} in {start} to {end}");
            ensure!(listed.insert(host), "{host} is new twice");
        }
    }
    ensure!(listed.len() + 2 >= first.len(), "{} of {} hosts are listed", listed.len(), first.len());
    Ok(())
}
