//! An interface moves to another network namespace and back, or is deleted and created again under its name, with
//! another index or the same one. weir measures it again, states for how long it may have been blind, and counts
//! nothing twice.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::{Loss, tally},
    clock,
    daemon::Signal,
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    traffic::{Plan, Traffic},
};

use crate::watch::{self, INTERVAL, QUIET_LINK, ROOMY_RINGS, TIMEOUT, Watch, list, measure, seen_in};

tests![
    an_interface_that_moves_away_and_back_is_measured_again,
    an_interface_that_is_made_again_under_its_name_is_measured_again,
    an_interface_that_is_made_again_under_its_index_is_measured_again
];

const NEAR: &str = QUIET_LINK[0];
const INTERFACE: &str = QUIET_LINK[1];
/// Numbers of packets while weir runs, while it is stopped, and after that.
const SENT: [u64; 3] = [1_000, 500, 2_000];

fn send(pair: &QuietPair, packets: u64) -> Result<()> {
    let traffic = Traffic::new(Plan { seed: 138, packets, ..Plan::default() })?;
    watch::send(pair, QUIET_LINK, traffic, Pace::Unlimited, &mut Oracle::new()).map(drop)
}

fn index(pair: &QuietPair) -> Result<u32> {
    let shown = pair.observer.ip(&format!("-o link show {INTERFACE}"))?;
    Ok(shown.split(':').next().context("no index")?.trim().parse()?)
}

fn address(pair: &QuietPair) -> Result<String> {
    let shown = pair.observer.ip(&format!("-o link show {INTERFACE}"))?;
    Ok(shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next()).context("no address")?.to_owned())
}

fn wait_until_up(pair: &QuietPair) -> Result<()> {
    pair.generator.ip(&format!("link set {NEAR} arp off up"))?;
    pair.observer.ip(&format!("link set {INTERFACE} arp off up"))?;
    pair.generator.wait_until_up(NEAR)?;
    pair.observer.wait_until_up(INTERFACE)
}

/// Returns true if a window states that weir may have been blind. If so, it must not claim that weir saw everything.
fn is_said(report: &Value) -> Result<bool> {
    let mut is_blind = false;
    for one in list(&report["interfaces"])? {
        is_blind |= one["blind_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0);
    }
    Ok(is_blind)
}

/// If the interface is a new one (`is_another`), weir saw all of its packets in a window or none. So its coverage is
/// never below 1, and exactly the packets that it counted before weir was attached are lost.
///
/// Packets come; then weir is stopped, `act` changes the interface, and packets come; then weir goes on, and packets
/// come again.
fn check(mode: &str, is_another: bool, act: impl Fn(&QuietPair) -> Result<()>) -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{{name: {INTERFACE}, mode: {mode}}}]\n{INTERVAL}{ROOMY_RINGS}");
    let daemon = measure(&pair.observer, &settings)?;
    let mut watch = Watch { pair, daemon };
    send(&watch.pair, SENT[0])?;
    let windows = watch.daemon.reports()?.len();
    watch.daemon.wait_for_reports(windows + 2, TIMEOUT)?;
    watch.daemon.signal(Signal::STOP)?;
    let acted = act(&watch.pair).and_then(|()| send(&watch.pair, SENT[1]));
    watch.daemon.signal(Signal::CONT)?;
    acted?;
    let log = |watch: &Watch| watch.daemon.log();
    let attached = || Ok((log(&watch)?.matches("INFO attached ").count() >= 2).then_some(()));
    clock::wait_for("it is attached again", TIMEOUT, attached).with_context(|| log(&watch).unwrap_or_default())?;
    send(&watch.pair, SENT[2])?;
    let reports = watch::stop(&mut watch.daemon, Loss::Possible(&["blind"]))?;
    let log = log(&watch)?;
    let blind: Vec<_> = reports.iter().map(|report| Ok(is_said(report)?.then_some(report))).collect::<Result<_>>()?;
    let blind: Vec<_> = blind.into_iter().flatten().collect();
    ensure!(!blind.is_empty(), "{mode}: weir was blind in no window\n{log}");
    for report in blind {
        let flows = &report["unique"]["flows"];
        ensure!(flows["upper"].as_u64() > flows["value"].as_u64(), "{mode}: {flows} is exact\n{log}");
    }
    // Known losses are included in `seen`.
    let seen = seen_in(INTERFACE, "ingress", &reports)?.packets;
    let mut lost = 0;
    for one in reports.iter().filter_map(|report| report["interfaces"].as_array()).flatten() {
        lost += tally(&one["ledger"]["lost"]["blind"])?.packets;
    }
    ensure!(seen - lost == SENT[0] + SENT[2], "{mode}: {seen} seen, {lost} lost\n{log}");
    ensure!(lost == SENT[1] || !is_another && lost < SENT[1], "{mode}: {lost} lost of {}\n{log}", SENT[1]);
    for one in reports.iter().filter_map(|report| report["interfaces"].as_array()).flatten().filter(|_| is_another) {
        let upper = one["coverage_upper"].as_f64();
        ensure!(upper.is_none_or(|upper| upper >= 1.0), "{mode}: coverage of {one}\n{log}");
    }
    Ok(())
}

fn an_interface_that_moves_away_and_back_is_measured_again() -> Result<()> {
    for mode in ["native", "tcx", "tc", "afpacket"] {
        check(mode, false, |pair| {
            pair.observer.ip(&format!("link set {INTERFACE} netns {}", pair.generator.name()))?;
            pair.generator.ip(&format!("link set {INTERFACE} netns {}", pair.observer.name()))?;
            wait_until_up(pair)
        })?;
    }
    Ok(())
}

/// Deletes the interface and creates it again.
fn make_again(pair: &QuietPair, with: &str) -> Result<()> {
    pair.generator.ip(&format!("link delete {NEAR}"))?;
    let name = pair.generator.name();
    pair.observer.ip(&format!("link add {INTERFACE}{with} type veth peer name {NEAR} netns {name}"))?;
    wait_until_up(pair)
}

fn an_interface_that_is_made_again_under_its_name_is_measured_again() -> Result<()> {
    for mode in ["native", "tcx", "tc", "afpacket"] {
        check(mode, true, |pair| {
            let before = index(pair)?;
            make_again(pair, &format!(" index {}", before + 1_000))?;
            ensure!(index(pair)? != before, "it has the same index");
            Ok(())
        })?;
    }
    Ok(())
}

fn an_interface_that_is_made_again_under_its_index_is_measured_again() -> Result<()> {
    for mode in ["native", "tcx", "tc", "afpacket"] {
        check(mode, true, |pair| {
            let before = index(pair)?;
            // The hardware address is also the same.
            make_again(pair, &format!(" index {before} address {}", address(pair)?))?;
            ensure!(index(pair)? == before, "it has another index");
            Ok(())
        })?;
    }
    Ok(())
}
