//! weir warns when its program does not see all packets of the interface, and does not warn when it sees all.

use anyhow::{Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::{self, Loss},
    daemon::Daemon,
    foreign::{Does, Foreign},
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    traffic::{Plan, Traffic},
};

use crate::watch::{self, QUIET_LINK, ROOMY_RINGS, TIMEOUT, list, measure, number, seen_on, stop};

alone![heavy_traffic_is_not_suspected];
tests![packets_that_are_dropped_before_are_noticed, a_program_that_sees_nothing_is_noticed];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
const SETTINGS: &str = "report: {interval: 1s}\n";

/// Sends this many packets at this pace.
fn send(pair: &QuietPair, packets: u64, pace: Pace) -> Result<()> {
    let plan = Plan { seed: 80, packets, ..Plan::default() };
    watch::send(pair, QUIET_LINK, Traffic::new(plan)?, pace, &mut Oracle::new()).map(drop)
}

fn coverages(reports: &[Value]) -> Result<Vec<f64>> {
    let mut coverages = Vec::new();
    for report in reports {
        coverages.extend(list(&report["interfaces"])?.iter().filter_map(|interface| interface["coverage"].as_f64()));
    }
    Ok(coverages)
}

fn start(does: Does) -> Result<(QuietPair, Foreign, Daemon)> {
    let pair = Lab::quiet_pair()?;
    let foreign = Foreign::attach(&pair.observer, INTERFACE, does)?;
    let daemon = measure(&pair.observer, &format!("interfaces: [{INTERFACE}]\n{SETTINGS}"))?;
    Ok((pair, foreign, daemon))
}

fn packets_that_are_dropped_before_are_noticed() -> Result<()> {
    const SENT: u64 = 20_000;
    let (pair, _foreign, mut daemon) = start(Does::DropHalf)?;
    send(&pair, SENT, Pace::PacketsPerSecond(10_000))?;
    let line = daemon.wait_for_line("did not see", TIMEOUT)?;
    ensure!(line.contains("WARN") && line.contains(INTERFACE) && line.contains("XDP program"), "{line}");
    let reports = stop(&mut daemon, Loss::None)?;
    let seen = seen_on(INTERFACE, &reports)?.packets;
    ensure!((SENT / 2 - 1_000..SENT / 2 + 1_000).contains(&seen), "seen {seen} of a half of {SENT}");
    let whole = account::coverage(&reports)?;
    ensure!((0.45..0.55).contains(&whole), "coverage {whole} over all windows");
    // Of windows with few packets nothing is certain.
    let missed = SENT - seen;
    let [least, most] = unseen(&reports)?;
    ensure!((missed / 2..=missed).contains(&least) && most >= least, "{least} to {most} unseen, and {missed} were");
    Ok(())
}

/// The bounds of the packets that were not seen, over all reports.
fn unseen(reports: &[Value]) -> Result<[u64; 2]> {
    let mut sum = [0, 0];
    for report in reports {
        let packets = &report["interfaces"][0]["unseen"]["packets"];
        for (sum, bound) in sum.iter_mut().zip(["lower", "upper"]) {
            *sum += if packets.is_null() { 0 } else { number(&packets[bound])? };
        }
    }
    Ok(sum)
}

fn a_program_that_sees_nothing_is_noticed() -> Result<()> {
    let (pair, _foreign, mut daemon) = start(Does::DropAll)?;
    send(&pair, 2_000, Pace::PacketsPerSecond(1_000))?;
    let line = daemon.wait_for_line("weir's program saw none", TIMEOUT)?;
    ensure!(line.contains("WARN") && line.contains(INTERFACE) && line.contains("XDP program"), "{line}");
    let reports = stop(&mut daemon, Loss::None)?;
    ensure!(coverages(&reports)?.contains(&0.0), "{:?}", coverages(&reports));
    Ok(())
}

fn heavy_traffic_is_not_suspected() -> Result<()> {
    for mode in ["native", "tcx", "generic"] {
        let pair = Lab::quiet_pair()?;
        let settings = format!("interfaces: [{{name: {INTERFACE}, mode: {mode}}}]\n{SETTINGS}{ROOMY_RINGS}");
        let mut daemon = measure(&pair.observer, &settings)?;
        // As fast as possible, over the ends of several windows.
        send(&pair, 600_000, Pace::Unlimited)?;
        let reports = stop(&mut daemon, Loss::None)?;
        let log = daemon.log()?;
        let suspects = ["did not see", "saw none"].iter().any(|suspicion| log.contains(suspicion));
        ensure!(!suspects, "{mode}:\n{log}");
        let whole = account::coverage(&reports)?;
        ensure!((0.999..=1.001).contains(&whole), "{mode}: coverage {whole} over all windows");
        ensure!(unseen(&reports)? == [0, 0], "{mode}: {:?} packets unseen", unseen(&reports)?);
    }
    Ok(())
}
