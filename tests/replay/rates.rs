//! Rates: the seconds of a capture, by the timestamps of its packets.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weir_tests::{
    pcap::{SNAPLEN_MAX, Writer},
    scratch::Scratch,
    traffic::{Plan, Traffic},
};

use crate::{
    command::{DONE, text, weir_replay},
    frames::{self, Udp},
};

/// Packets of each second, one of which has none.
const PACKETS: [u64; 6] = [10, 300, 0, 70, 70, 5];

/// Every packet counts in the second in which it came, in both datapaths. Seconds without packets count, too.
pub fn every_second_is_true(kernel: bool) -> Result<()> {
    let scratch = Scratch::new()?;
    let path = scratch.file("rates.pcap");
    let mut writer = Writer::new(BufWriter::new(File::create(&path)?), SNAPLEN_MAX)?;
    let mut traffic = Traffic::new(Plan { packets: PACKETS.iter().sum(), ..Plan::default() })?;
    let mut bytes = [0; PACKETS.len()];
    for ((second, packets), bytes) in (1_700_000_001..).zip(PACKETS).zip(&mut bytes) {
        for (nth, packet) in (0..packets).zip(&mut traffic) {
            // The first packet is at the very beginning of the second, and the last one at the very end.
            let within = Duration::from_nanos(nth * 999_999_999 / packets.saturating_sub(1).max(1));
            writer.write(Duration::from_secs(second) + within, &packet.frame)?;
            *bytes += packet.frame.len() as u64;
        }
    }
    writer.finish()?;
    let datapath = if kernel { &["--kernel"][..] } else { &[] };
    for (windows, each) in [("all", PACKETS.len()), ("3s", 3)] {
        let arguments = [&["--json", "--window", windows], datapath, &[text(&path)]].concat();
        let reports = weir_replay(arguments)?.reports(DONE)?;
        ensure!(reports.len() == PACKETS.len() / each, "{} reports", reports.len());
        for ((report, packets), bytes) in reports.iter().zip(PACKETS.chunks(each)).zip(bytes.chunks(each)) {
            let rates = &report["rates"][0];
            for (rate, truth) in [("packets", packets), ("bytes", bytes)] {
                let (rate, most, least) = (&rates[rate], truth.iter().max(), truth.iter().min().copied().unwrap_or(0));
                ensure!(rate["max"].as_u64().as_ref() == most, "{rate}, not {truth:?}");
                // Above 16 a histogram distinguishes numbers only by their first four bits.
                let min = rate["min"].as_u64().unwrap_or(u64::MAX);
                ensure!((least - least / 16..=least).contains(&min), "{rate}, not {truth:?}");
                ensure!(rate["count"] == json!(truth.len()), "{rate} of {truth:?}");
            }
            ensure!(rates["longest_second"] == json!(1.0), "{rates}");
        }
    }
    Ok(())
}

const START: u64 = 1_760_000_000;

fn frame(source: u8) -> Vec<u8> {
    Udp { source: [192, 0, 2, source].into(), destination: [198, 51, 100, 7].into(), ports: (4000, 53) }.frame(100)
}

/// A packet every 10 ms of these seconds.
fn steady(seconds: std::ops::Range<u64>) -> Vec<Duration> {
    (seconds.start * 100..seconds.end * 100).map(|nth| Duration::from_millis(nth * 10)).collect()
}

/// The reports of captures of these packets, the sum of what their rates say, and what is in no second.
fn replay(files: &[PathBuf], window: &str) -> Result<Vec<Value>> {
    let arguments = ["--json", "--window", window].into_iter().chain(files.iter().map(|file| text(file)));
    weir_replay(arguments)?.reports(DONE)
}

/// Each second has this many packets, and there are this many of them.
fn expect_even(report: &Value, packets: u64, seconds: u64) -> Result<()> {
    let rates = &report["rates"][0];
    let said = ["count", "min", "max"].map(|name| rates["packets"][name].as_u64());
    ensure!(said == [seconds, packets, packets].map(Some), "{seconds} seconds of {packets} packets: {rates}");
    ensure!(rates["unplaced"].is_null() && report["window"]["late_packets"] == 0, "{rates}, {}", report["window"]);
    Ok(())
}

/// Two taps, one of which lags; some packets lag beyond the end of a window.
pub fn a_tap_that_lags_moves_no_packet_to_another_second() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("lag.pcap");
    for lag in [1, 3, 9] {
        let lag = Duration::from_secs(lag);
        let [one, other] = [(); 2].map(|()| steady(START..START + 30));
        let mut arrivals: Vec<_> = one.iter().map(|time| (*time, *time, 1)).collect();
        arrivals.extend(other.iter().map(|time| (*time + lag, *time, 2)));
        arrivals.sort();
        frames::write(&file, arrivals.into_iter().map(|(_, time, source)| (time, frame(source))))?;
        expect_even(&replay(std::slice::from_ref(&file), "all")?[0], 200, 30)?;
        for (window, length) in [("10s", 10), ("1s", 1), ("5s", 5)] {
            let reports = replay(std::slice::from_ref(&file), window)?;
            ensure!(reports.len() as u64 == 30 / length, "{} windows of {window}", reports.len());
            reports.iter().try_for_each(|report| expect_even(report, 200, length))?;
        }
    }
    Ok(())
}

/// Captures of the same time on one command line, in any order, are one measurement in the order of time.
pub fn captures_of_one_time_are_merged() -> Result<()> {
    let scratch = Scratch::new()?;
    let [one, other, later] = ["one", "other", "later"].map(|name| scratch.file(name));
    let write = |file: &Path, seconds, source| {
        frames::write(file, steady(seconds).into_iter().map(|time| (time, frame(source))))
    };
    write(&one, START..START + 20, 1)?;
    write(&other, START..START + 20, 2)?;
    write(&later, START + 20..START + 40, 3)?;
    for files in [[&one, &other, &later], [&later, &other, &one]] {
        let files = files.map(Clone::clone);
        let reports = replay(&files, "10s")?;
        ensure!(reports.len() == 4, "{} reports", reports.len());
        for (nth, report) in reports.iter().enumerate() {
            expect_even(report, if nth < 2 { 200 } else { 100 }, 10)?;
        }
    }
    let files = [one, other];
    expect_even(&replay(&files, "all")?[0], 200, 20)
}

/// Packets without a timestamp, and those in a partial second, are in the ledger but in no rate.
pub fn a_packet_without_a_second_is_in_no_rate() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("untimed.pcapng");
    let mut bytes = Vec::new();
    let mut block = |kind: u32, content: &[u8]| {
        let length = (content.len() as u32 + 12).to_le_bytes();
        bytes.extend([&kind.to_le_bytes()[..], &length, content, &length].concat());
    };
    block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
    let frame = frame(1);
    let simple = [&100_u32.to_le_bytes()[..], &frame].concat();
    block(3, &simple);
    for time in steady(START..START + 10) {
        let us = time.as_micros() as u64;
        let words = [0, (us >> 32) as u32, us as u32, 100, 100];
        block(6, &[words.map(u32::to_le_bytes).concat(), frame.clone()].concat());
        if time.subsec_millis() == 500 {
            block(3, &simple);
        }
    }
    fs::write(&file, bytes)?;
    for window in ["all", "10s"] {
        let reports = replay(std::slice::from_ref(&file), window)?;
        ensure!(reports.len() == 1, "{} reports", reports.len());
        let (report, rates) = (&reports[0], &reports[0]["rates"][0]);
        ensure!(report["totals"]["packets"] == 1_011 && report["window"]["untimed_packets"] == 11, "{report}");
        ensure!(rates["unplaced"]["packets"] == 11, "{rates}");
        let said = ["count", "min", "max"].map(|name| rates["packets"][name].as_u64());
        ensure!(said == [10, 100, 100].map(Some), "{rates}");
    }
    Ok(())
}

/// The capture begins and ends within a second.
pub fn parts_of_seconds_are_none() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("parts.pcap");
    let times = steady(START..START + 10);
    frames::write(&file, times[40..970].iter().map(|time| (*time, frame(1))))?;
    expect_even(&replay(&[file], "all")?[0], 100, 8)
}
