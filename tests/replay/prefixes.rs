//! Lists of prefixes: a prefix is ranked by its traffic beyond that of its listed addresses.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir::replay::Windows;
use weir_config::{Config, Packets, view::Standard};
use weir_tests::{
    chance,
    oracle::{By, Oracle, prefixes_hold},
    scratch::Scratch,
    traffic::{Mix, Plan},
    truth::{Key, Lacks, Truth},
};

use crate::{
    frames::{self, Udp},
    library::{self, small},
};

const LISTED: u8 = 10;
const SEEDS: u64 = 100;
const CONFIDENCE: f64 = 0.999;

/// Packets of listed hosts, each in a separate network with little other traffic; of two networks with crowds of small
/// hosts; and of single hosts in many other networks. Each host sends and receives.
fn crowds_and_elephants() -> Vec<(Udp, usize)> {
    const PEER: (u16, u16) = (4_000, 53);
    let v4 = |network: u16, host: u8| -> IpAddr {
        let [high, low] = network.to_be_bytes();
        Ipv4Addr::new(10, high, low, host).into()
    };
    let v6 = |network: u16, host: u16| -> IpAddr { Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, host).into() };
    let mut packets = Vec::new();
    let mut both = |host: IpAddr, count: usize, bytes: usize| {
        let peer = if host.is_ipv4() { v4(9_999, 1) } else { v6(9_999, 1) };
        for (source, destination) in [(host, peer), (peer, host)] {
            packets.extend((0..count).map(|_| (Udp { source, destination, ports: PEER }, bytes)));
        }
    };
    for elephant in 0..LISTED {
        both(v4(elephant.into(), 1), 1_100, 1_400);
        both(v4(elephant.into(), 2), 2, 110);
    }
    for host in 0..200 {
        both(v4(500, host), 5, 200);
    }
    for host in 0..150 {
        both(v6(7, host), 5, 200);
    }
    for network in 1_000..1_120 {
        both(v4(network, 9), 1, 100);
    }
    packets
}

fn oracle(packets: &[(Udp, usize)]) -> Oracle {
    let mut oracle = Oracle::new();
    for (Udp { source, destination, ports: (src_port, dst_port) }, bytes) in packets {
        let key = Key {
            src: *source,
            dst: *destination,
            src_port: *src_port,
            dst_port: *dst_port,
            proto: 17,
            lacks: Lacks::Nothing,
        };
        let bytes =
            Udp { source: *source, destination: *destination, ports: (*src_port, *dst_port) }.frame(*bytes).len();
        oracle.add(&Truth { flow: Ok(key), tcp_flags: 0, tos: 0, vlan: 0, bytes: bytes as u64 });
    }
    oracle
}

fn report(config: &Config, file: &PathBuf, kernel: bool, seed: u64) -> Result<Value> {
    let replayed = library::run_with(config, std::slice::from_ref(file), Windows::All, kernel, seed)?;
    replayed.reports.into_iter().next().context("no report")
}

fn written(scratch: &Scratch, packets: &[(Udp, usize)]) -> Result<PathBuf> {
    let file = scratch.file("prefixes.pcap");
    let times = (0..).map(|nth| Duration::new(1_700_000_000, 1_000 * nth));
    frames::write(&file, times.zip(packets).map(|(time, (flow, bytes))| (time, flow.frame(*bytes))))?;
    Ok(file)
}

const LISTS: [(&str, &str); 2] = [("source_prefixes", "sources"), ("destination_prefixes", "destinations")];

/// A crowd is listed before the network of a listed host, although that network has more in all. Every number is true.
pub fn a_crowd_comes_before_the_network_of_a_listed_host(kernel: bool) -> Result<()> {
    let packets = crowds_and_elephants();
    let scratch = Scratch::new()?;
    let (file, oracle) = (written(&scratch, &packets)?, oracle(&packets));
    let mut config = small();
    // Distinct counts are judged as well.
    config.estimates.unique_error = Config::default().estimates.unique_error;
    // The peers are listed, too.
    config.report.top = usize::from(LISTED) + 2;
    let report = report(&config, &file, kernel, library::SEED)?;
    oracle.check_report(&report).map_err(|wrong| anyhow::anyhow!(wrong.join("\n")))?;
    let mut elephants = 0;
    for (top, by) in [("top", By::Bytes), ("top_by_packets", By::Packets)] {
        for (list, addresses) in LISTS {
            ensure!(report[top][addresses].as_array().is_some_and(|rows| rows.len() == config.report.top));
            let rows = report[top][list].as_array().context("no list of prefixes")?;
            let prefix = |nth: usize| rows.get(nth).map(|row| row["prefix"].as_str().unwrap_or_default());
            ensure!(prefix(0) == Some("10.1.244.0/24"), "{top}.{list}: {:?}", prefix(0));
            ensure!(prefix(1) == Some("2001:db8:7::/48"), "{top}.{list}: {:?}", prefix(1));
            ensure!(rows.len() == config.report.top, "{top}.{list}: {} rows", rows.len());
            let value = |row: &Value| row[by.name()]["value"].as_u64().unwrap_or(0);
            let beyond = |row: &Value| row["beyond"][by.name()]["value"].as_u64().unwrap_or(u64::MAX);
            for row in rows.iter().skip(2) {
                ensure!(beyond(row) < beyond(&rows[1]) / 10, "{top}.{list}: {row}");
                let has_elephant = row["members"] == 1;
                elephants += usize::from(has_elephant);
                ensure!(!has_elephant || value(row) > value(&rows[1]), "{row} has less in all than a crowd");
            }
        }
    }
    ensure!(elephants > 0, "no network of a listed host is listed, so nothing was compared");
    Ok(())
}

/// Without the list of addresses, and without any other view, the lists of prefixes are those of all addresses.
pub fn without_the_lists_of_addresses() -> Result<()> {
    let packets = crowds_and_elephants();
    let scratch = Scratch::new()?;
    let (file, oracle) = (written(&scratch, &packets)?, oracle(&packets));
    let standard_views = vec![Standard::SourcePrefixes, Standard::DestinationPrefixes];
    let report = report(&Config { standard_views, ..small() }, &file, false, library::SEED)?;
    for (top, by) in [("top", By::Bytes), ("top_by_packets", By::Packets)] {
        ensure!(prefixes_hold(&oracle, &report[top], by), "{top}: {}", report[top]);
        for (list, addresses) in LISTS {
            ensure!(report[top][addresses].as_array().is_some_and(Vec::is_empty), "{addresses} are switched off");
            let rows = report[top][list].as_array().context("no list of prefixes")?;
            ensure!(rows.len() == Config::default().report.top.min(10), "{} rows", rows.len());
            ensure!(rows.iter().all(|row| row["members"] == 0 && row["beyond"]["bytes"] == row["bytes"]), "{rows:?}");
        }
    }
    Ok(())
}

/// With sampling, bounds hold as often as stated; those of `beyond` hold if the bounds of both lists do.
pub fn bounds_hold_when_sampled() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    let plan = Plan { seed: 41, packets: 8_000, flows: 3_000, zipf: 0.8, mix: Mix::plain(), ..Plan::default() };
    let oracle = crate::command::capture(&file, plan)?;
    let mut config = small();
    config.sampling.packets = Packets::OneIn(10);
    let mut missed = [0; 2];
    for seed in 0..SEEDS {
        let report = report(&config, &file, false, seed)?;
        for ((top, by), missed) in [("top", By::Bytes), ("top_by_packets", By::Packets)].into_iter().zip(&mut missed) {
            for (list, _) in LISTS {
                let rows = report[top][list].as_array().context("no list of prefixes")?;
                ensure!(rows.len() > 5, "{top}.{list} has {} rows", rows.len());
                ensure!(rows.iter().all(|row| row["beyond"]["bytes"]["sampled"].is_u64()), "nothing was sampled");
            }
            *missed += u64::from(!prefixes_hold(&oracle, &report[top], by));
        }
    }
    // Two lists of prefixes, and two of addresses.
    let alarm = chance::failures_that_alarm(SEEDS, 4.0 * (1.0 - CONFIDENCE));
    ensure!(missed.iter().all(|missed| *missed < alarm), "{missed:?} of {SEEDS} reports have a false bound");
    Ok(())
}
