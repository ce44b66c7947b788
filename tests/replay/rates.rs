//! Rates: the seconds of a capture, by the times of its packets.

use std::{fs::File, io::BufWriter, time::Duration};

use anyhow::{Result, ensure};
use serde_json::json;
use weir_tests::{
    pcap::{SNAPLEN_MAX, Writer},
    scratch::Scratch,
    traffic::{Plan, Traffic},
};

use crate::command::{DONE, text, weir_replay};

/// Packets of each second, one of which has none.
const PACKETS: [u64; 6] = [10, 300, 0, 70, 70, 5];

/// Every packet is in the second in which it came, whichever datapath counted it; seconds without any are there, too.
pub fn every_second_is_true(kernel: bool) -> Result<()> {
    let scratch = Scratch::new()?;
    let path = scratch.file("rates.pcap");
    let mut writer = Writer::new(BufWriter::new(File::create(&path)?), SNAPLEN_MAX)?;
    let mut traffic = Traffic::new(Plan { packets: PACKETS.iter().sum(), ..Plan::default() })?;
    let mut bytes = [0; PACKETS.len()];
    for ((second, packets), bytes) in (1_700_000_001..).zip(PACKETS).zip(&mut bytes) {
        for (nth, packet) in (0..packets).zip(&mut traffic) {
            // The first at the very beginning, the last at the very end.
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
                // Above 16 a histogram tells numbers apart by their first four bits.
                let min = rate["min"].as_u64().unwrap_or(u64::MAX);
                ensure!((least - least / 16..=least).contains(&min), "{rate}, not {truth:?}");
                ensure!(rate["count"] == json!(truth.len()), "{rate} of {truth:?}");
            }
            ensure!(rates["longest_second"] == json!(1.0), "{rates}");
        }
    }
    Ok(())
}
