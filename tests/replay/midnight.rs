//! The key of a day: what changes at midnight UTC, and what must stay the same.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir::replay::Windows;
use weir_config::Config;
use weir_tests::scratch::Scratch;

use crate::{
    frames::{self, Udp},
    library::{run_with, small},
};

/// 2026-11-21T00:00:00Z.
const MIDNIGHT: u64 = 1_795_219_200;
/// Captures begin this many seconds before midnight, and end as many after it.
const AROUND: u64 = 30;
const SECOND: Windows = Windows::Every(Duration::from_secs(1));

/// A capture of a flow that never ends, and of one new flow in every second.
fn capture(scratch: &Scratch) -> Result<PathBuf> {
    let file = scratch.file("midnight.pcap");
    let steady = Udp { source: [192, 0, 2, 1].into(), destination: [198, 51, 100, 7].into(), ports: (1, 53) };
    let new = |second: u64| Udp { ports: (1_000 + second as u16, 53), ..steady };
    let seconds = 0..2 * AROUND;
    let packets = seconds.flat_map(|second| {
        let at = |ms| Duration::from_secs(MIDNIGHT - AROUND + second) + Duration::from_millis(ms);
        [(at(100), steady.frame(100)), (at(500), new(second).frame(100)), (at(900), steady.frame(100))]
    });
    frames::write(&file, packets)?;
    Ok(file)
}

/// A configuration with generations of this length, which start with the first window.
fn generations(seconds: u64) -> Config {
    let mut config = small();
    config.seen_flows.generation = Duration::from_secs(seconds);
    config.seen_flows.false_positive_rate = 1e-6;
    config
}

fn key_id(report: &Value) -> Result<&str> {
    report["key_id"].as_str().context("no key_id")
}

pub fn the_key_changes_with_the_first_window_of_the_day() -> Result<()> {
    let scratch = Scratch::new()?;
    let files = [capture(&scratch)?];
    let ids = |windows, seed| -> Result<Vec<String>> {
        let reports = run_with(&small(), &files, windows, false, seed)?.reports;
        reports.iter().map(|report| key_id(report).map(str::to_owned)).collect()
    };
    let seconds = ids(SECOND, 7)?;
    let (before, after) = seconds.split_at(AROUND as usize);
    ensure!(seconds.len() == 2 * AROUND as usize, "{} reports", seconds.len());
    ensure!(before.iter().all(|id| *id == before[0]) && after.iter().all(|id| *id == after[0]), "{seconds:?}");
    ensure!(before[0] != after[0], "the same key on two days: {}", before[0]);
    let is_hex = |id: &str| id.len() == 16 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    ensure!(is_hex(&before[0]), "{}", before[0]);
    // A window that spans midnight keeps the key of its start.
    ensure!(ids(Windows::All, 7)? == before[..1], "one window of everything");
    // 40 s: windows begin at 23:59:20 and at 00:00:00.
    ensure!(ids(Windows::Every(Duration::from_secs(40)), 7)? == [&before[0], &after[0]].map(String::as_str));
    // A day is no multiple of 7 s: the window that begins at 23:59:57 ends on the next day.
    let sevens = ids(Windows::Every(Duration::from_secs(7)), 7)?;
    let begin = |nth: u64| (MIDNIGHT - AROUND) / 7 * 7 + 7 * nth;
    for (nth, id) in (0..).zip(&sevens) {
        ensure!(*id == if begin(nth) < MIDNIGHT { &*before[0] } else { &*after[0] }, "window {nth} of {sevens:?}");
    }
    ensure!(ids(SECOND, 7)? == seconds, "the same seed has the same keys");
    let others: BTreeSet<_> = ids(SECOND, 8)?.into_iter().chain(seconds).collect();
    ensure!(others.len() == 4, "another seed has other keys: {others:?}");
    Ok(())
}

/// Rotations happen at the end of windows: shortly before midnight, at midnight, and shortly after it; also at the end
/// of every window, so that two keys are in use for only one window.
pub fn a_steady_flow_is_not_new_at_midnight(kernel: bool) -> Result<()> {
    let scratch = Scratch::new()?;
    let files = [capture(&scratch)?];
    for generation in [1, 7, AROUND - 1, AROUND, AROUND + 1, 3_600] {
        let reports = run_with(&generations(generation), &files, SECOND, kernel, 7)?.reports;
        ensure!(reports.len() == 2 * AROUND as usize, "{} reports", reports.len());
        for (nth, report) in reports.iter().enumerate() {
            // Each second has one new flow; the steady flow is new in the first second.
            let expected = if nth == 0 { 2 } else { 1 };
            let new = &report["new_flows"]["value"];
            ensure!(*new == expected, "generations of {generation} s, window {nth}: {new} new flows, not {expected}");
        }
    }
    Ok(())
}

/// A flow that comes again within its generations is known, even if the key has changed. After two generations it is
/// forgotten, whichever key the filter has then.
pub fn flows_seen_before_midnight_are_known_until_they_are_forgotten() -> Result<()> {
    const GENERATION: u64 = 10;
    let scratch = Scratch::new()?;
    let file = scratch.file("again.pcap");
    let flow = Udp { source: [192, 0, 2, 1].into(), destination: [198, 51, 100, 7].into(), ports: (1, 53) };
    let other = |second: u64| Udp { ports: (2, 1_000 + second as u16), ..flow };
    for last in (MIDNIGHT - 2 * GENERATION..MIDNIGHT).step_by(3) {
        for silence in [1, 4, 9, 21, 25] {
            let again = last + silence;
            // There is a packet in every second, so that windows end and generations rotate.
            let clock = (MIDNIGHT - 60..MIDNIGHT + 60).map(|second| {
                let what = if second == last || second == again { flow } else { other(second + 60 - MIDNIGHT) };
                (Duration::from_secs(second), what.frame(100))
            });
            frames::write(&file, clock)?;
            let reports = run_with(&generations(GENERATION), std::slice::from_ref(&file), SECOND, false, 7)?.reports;
            let report = &reports[(again - (MIDNIGHT - 60)) as usize];
            let expected = u64::from(silence > 2 * GENERATION);
            let new = &report["new_flows"]["value"];
            ensure!(*new == expected, "last {last}, again {again}: {new} new flows, not {expected}");
        }
    }
    Ok(())
}

/// Flows are forgotten by time, even if no packets come: as if windows without packets had passed.
pub fn flows_seen_before_a_long_silence_are_forgotten() -> Result<()> {
    const GENERATION: u64 = 60;
    const FLOWS: u16 = 35;
    let scratch = Scratch::new()?;
    let file = scratch.file("silence.pcap");
    let flow = |port| Udp { source: [192, 0, 2, 1].into(), destination: [198, 51, 100, 7].into(), ports: (port, 53) };
    // The silence may span midnight, when the key changes.
    for start in [MIDNIGHT, MIDNIGHT - 3_600] {
        for (silence, expected) in
            [(10, 0), (GENERATION, 0), (2 * GENERATION + 5, FLOWS), (7_200, FLOWS), (200_000, FLOWS)]
        {
            let times = [start, start + silence];
            let packets =
                times.into_iter().flat_map(|time| (0..FLOWS).map(move |port| (Duration::from_secs(time), port)));
            frames::write(&file, packets.map(|(time, port)| (time, flow(port).frame(100))))?;
            let reports = run_with(&generations(GENERATION), std::slice::from_ref(&file), SECOND, false, 7)?.reports;
            let new: Vec<_> = reports.iter().filter_map(|report| report["new_flows"]["value"].as_u64()).collect();
            ensure!(new == [u64::from(FLOWS), u64::from(expected)], "{silence} s of silence: {new:?}");
        }
    }
    Ok(())
}
