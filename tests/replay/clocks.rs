//! Each packet is counted once, with any timestamps that a capture may have. There are few reports, and they state what
//! is odd.

use std::{fs::File, io::BufWriter, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    pcap::{SNAPLEN_MAX, Writer},
    scratch::Scratch,
};

use crate::{
    command::{DONE, text, weir_replay},
    frames::Udp,
};

const START: Duration = Duration::from_secs(1_700_000_000);
const PACKETS: u64 = 5_000;

/// A capture of packets at these times.
fn capture(path: &Path, times: impl IntoIterator<Item = Duration>) -> Result<()> {
    let flow = Udp { source: [192, 0, 2, 1].into(), destination: [198, 51, 100, 7].into(), ports: (4000, 53) };
    let frame = flow.frame(100);
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), SNAPLEN_MAX)?;
    times.into_iter().try_for_each(|time| writer.write(time, &frame))?;
    writer.finish()?;
    Ok(())
}

/// The reports of such a capture, which have all its packets.
fn reports(windows: &[&str], times: impl IntoIterator<Item = Duration>) -> Result<Vec<Value>> {
    let scratch = Scratch::new()?;
    let file = scratch.file("odd.pcap");
    let mut packets = 0;
    capture(&file, times.into_iter().inspect(|_| packets += 1))?;
    let ended = weir_replay([&["--json"], windows, &[text(&file)]].concat())?;
    let reports = ended.reports(DONE)?;
    let of = |report: &Value| report["totals"]["packets"].as_u64();
    let counted: Option<u64> = reports.iter().map(of).sum();
    ensure!(counted == Some(packets), "{counted:?} of {packets} packets are in {} reports", reports.len());
    for report in &reports {
        let window = &report["window"];
        let time = |name: &str| window[name].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        ensure!(time("end") > time("start") && time("start").is_some(), "{window}");
    }
    Ok(reports)
}

fn late(report: &Value) -> Result<u64> {
    report["window"]["late_packets"].as_u64().with_context(|| format!("no late packets in {}", report["window"]))
}

/// Two captures of machines whose clocks differ, merged in the order of arrival.
pub fn alternating_times_make_few_reports() -> Result<()> {
    const APART: Duration = Duration::from_secs(2 * 60 * 60);
    let at = |nth| START + Duration::from_millis(nth) + if nth % 2 == 0 { APART } else { Duration::ZERO };
    let reports = reports(&["--window", "10s"], (0..PACKETS).map(at))?;
    let packets = |report: &Value| report["totals"]["packets"].as_u64();
    ensure!(reports.iter().map(packets).eq([Some(PACKETS / 2); 2]), "{} reports of {PACKETS} packets", reports.len());
    ensure!(reports.iter().all(|report| late(report).is_ok_and(|late| late == 0)), "none is late");
    Ok(())
}

pub fn one_time_in_the_future_disturbs_no_window() -> Result<()> {
    let future = START + Duration::from_secs(365 * 86_400);
    // 500 packets in each window.
    let at = |nth| if nth == 1_250 { future } else { START + Duration::from_millis(nth * 20) };
    let all = reports(&["--window", "10s"], (0..PACKETS).map(at))?;
    let packets: Vec<_> = all.iter().map(|report| report["totals"]["packets"].as_u64().unwrap_or(0)).collect();
    ensure!(packets == [500, 500, 499, 500, 500, 500, 500, 500, 500, 500, 1], "{packets:?}");
    for report in &all {
        ensure!(late(report)? == 0 && report["window"]["clock_step_seconds"].is_null(), "{}", report["window"]);
    }
    Ok(())
}

/// Packets of a wrong clock have windows of their own, and each packet of the right time is in the window of its time.
pub fn strays_disturb_no_window() -> Result<()> {
    const DAY: Duration = Duration::from_secs(86_400);
    const SECONDS: fn(u64) -> Duration = Duration::from_secs;
    // 1,000 packets in each of six windows.
    let steady = || (0..6_000).map(|nth| START + Duration::from_millis(nth * 10));
    let later = START + 42 * DAY;
    for (strays, place, windows) in [
        (vec![later, later + SECONDS(30)], 1_000, &[1, 1][..]),
        (vec![later, later + SECONDS(30)], 1_500, &[1, 1]),
        (vec![later, later + SECONDS(30)], 0, &[1, 1]),
        (vec![later, later + SECONDS(30)], 6_000, &[1, 1]),
        (vec![START - 42 * DAY, START - DAY], 3_000, &[1, 1]),
        (vec![later; 90], 3_000, &[90]),
        (vec![Duration::ZERO, later, START - DAY], 5_999, &[1, 1, 1]),
    ] {
        let mut times: Vec<_> = steady().collect();
        let apart = 500.min(times.len() - place);
        for (nth, stray) in strays.iter().enumerate() {
            // They come one after the other, or with many packets between them.
            times.insert(place + nth * if strays.len() == 2 { apart } else { 1 }, *stray);
        }
        let all = reports(&["--window", "10s"], times.iter().copied())?;
        let packets: Vec<_> = all.iter().map(|report| report["totals"]["packets"].as_u64().unwrap_or(0)).collect();
        ensure!(packets == [&[1_000; 6][..], windows].concat(), "{strays:?} at {place}: {packets:?}");
        for report in &all {
            ensure!(late(report)? == 0 && report["window"]["clock_step_seconds"].is_null(), "{}", report["window"]);
        }
        let whole = reports(&[], times)?;
        let window = &whole[0]["window"];
        ensure!(window["seconds"] == 59.99 && window["strays"]["packets"] == strays.len(), "{strays:?}: {window}");
        ensure!(whole[0]["rates"][0]["packets"]["max"] == 100, "{}", whole[0]["rates"]);
    }
    Ok(())
}

/// If most packets say so, there was a pause, or the clock was set.
pub fn most_packets_are_no_strays() -> Result<()> {
    let steady = |from: Duration| (0..3_000).map(move |nth| from + Duration::from_millis(nth * 10));
    let other = START + Duration::from_secs(3 * 86_400);
    for (first, second) in [(START, other), (other, START)] {
        let all = reports(&["--window", "10s"], steady(first).chain(steady(second)))?;
        let packets: Vec<_> = all.iter().map(|report| report["totals"]["packets"].as_u64().unwrap_or(0)).collect();
        ensure!(packets == [1_000; 6], "{packets:?}");
        let whole = reports(&[], steady(first).chain(steady(second)))?;
        let window = &whole[0]["window"];
        let due = (other - START).as_secs_f64() + 29.99;
        ensure!(window["seconds"] == due && window["strays"].is_null(), "{window}");
    }
    // A second capture from another day is short, and has no strays either.
    let scratch = Scratch::new()?;
    let [long, short] = ["long.pcap", "short.pcap"].map(|name| scratch.file(name));
    capture(&long, steady(START))?;
    capture(&short, [other, other + Duration::from_secs(1)])?;
    let reports = weir_replay(["--json", text(&short), text(&long)])?.reports(DONE)?;
    let window = &reports[0]["window"];
    ensure!(window["seconds"] == (other - START).as_secs_f64() + 1.0 && window["strays"].is_null(), "{window}");
    Ok(())
}

/// A stray in one of two captures of one time does not make the other one wait.
pub fn a_stray_in_one_of_two_captures() -> Result<()> {
    let scratch = Scratch::new()?;
    let [one, other] = ["one.pcap", "other.pcap"].map(|name| scratch.file(name));
    let steady = || (0..3_000).map(|nth| START + Duration::from_millis(nth * 10));
    let mut times: Vec<_> = steady().collect();
    times.insert(700, START + Duration::from_secs(42 * 86_400));
    capture(&one, times)?;
    capture(&other, steady())?;
    let reports = weir_replay(["--json", "--window", "10s", text(&one), text(&other)])?.reports(DONE)?;
    let packets: Vec<_> = reports.iter().map(|report| report["totals"]["packets"].as_u64().unwrap_or(0)).collect();
    ensure!(packets == [2_000, 2_000, 2_000, 1], "{packets:?}");
    Ok(())
}

/// There is no rate where there is no time.
pub fn a_moment_has_no_rate() -> Result<()> {
    let micros = Duration::from_micros;
    for times in [vec![START], vec![START; 2], vec![START, START + micros(2)], vec![START; 5_000]] {
        let reports = reports(&[], times.clone())?;
        let window = &reports[0]["window"];
        ensure!(window.get("seconds").is_some_and(Value::is_null), "{window}");
        let scratch = Scratch::new()?;
        let file = scratch.file("moment.pcap");
        capture(&file, times)?;
        for full in [&[][..], &["--full"]] {
            let tables = String::from_utf8(weir_replay([&[text(&file)], full].concat())?.out)?;
            // The heading of the column is there.
            let is_rate = |line: &str| line.contains("bit/s") && !line.contains("of all") && !line.contains("of view");
            ensure!(!tables.lines().any(is_rate) && !tables.contains("pkt/s)"), "{tables}");
        }
    }
    let reports = reports(&[], [START, START + Duration::from_secs(2)])?;
    ensure!(reports[0]["window"]["seconds"] == 2.0, "{}", reports[0]["window"]);
    Ok(())
}

/// A packet that comes 1 s late is in its own window, also at the beginning of the capture and after a pause.
pub fn a_late_packet_is_in_its_own_window_after_a_pause() -> Result<()> {
    let at = |seconds: f64| Duration::from_secs_f64(START.as_secs_f64() + seconds);
    for (times, due) in [
        // It begins at 22:13:20, which is the start of a window.
        (&[0.1, -0.1, 3.0][..], &[1, 2][..]),
        (&[0.0, 100.0, 99.0, 103.0], &[1, 1, 2]),
        (&[0.0, 100.0, 103.0, 99.0, 93.5, 120.0, 111.0], &[1, 2, 2, 1, 1]),
    ] {
        let all = reports(&["--window", "10s"], times.iter().map(|time| at(*time)))?;
        let packets: Vec<_> = all.iter().map(|report| report["totals"]["packets"].as_u64().unwrap_or(0)).collect();
        ensure!(packets == due, "{times:?}: {packets:?}");
        for report in &all {
            let seconds = report["rates"].as_array().and_then(|rates| rates.first()).context("no rates")?;
            ensure!(late(report)? == 0 && seconds["unplaced"].is_null(), "{times:?}: {seconds}");
            ensure!(seconds["packets"]["count"] == 10, "{times:?}: {seconds}");
        }
    }
    Ok(())
}

/// This is the latest time that the format can hold.
pub fn the_latest_time_of_all_is_a_window() -> Result<()> {
    let latest = Duration::new(u64::from(u32::MAX), 999_999_999);
    ensure!(reports(&["--window", "1h"], vec![latest; 1_000])?.len() == 1);
    Ok(())
}

pub fn a_capture_without_packets_says_so() -> Result<()> {
    for windows in [&[][..], &["--window", "all"], &["--window", "1s"]] {
        let reports = reports(windows, [])?;
        ensure!(reports.len() == 1 && late(&reports[0])? == 0, "{windows:?}: {} reports", reports.len());
    }
    let scratch = Scratch::new()?;
    let file = scratch.file("nothing.pcap");
    capture(&file, [])?;
    let ended = weir_replay([text(&file)])?;
    let tables = String::from_utf8(ended.out)?;
    ensure!(ended.code == Some(DONE) && tables.contains("no packets: the capture has none"), "{tables}");
    // With another capture that has packets, there is no message.
    let other = scratch.file("something.pcap");
    capture(&other, [START])?;
    let reports = weir_replay(["--json", text(&file), text(&other), text(&file)])?.reports(DONE)?;
    ensure!(reports.len() == 1 && reports[0]["totals"]["packets"] == 1, "{} reports", reports.len());
    Ok(())
}
