//! Horizons and known hosts outlive a restart, a new host is an alert, and a damaged file begins anew.

use std::{collections::BTreeSet, fs, net::IpAddr, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    daemon::Daemon,
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Plan, Traffic},
};

use crate::watch::{QUIET_LINK, ROOMY_RINGS, TIMEOUT, config, list, native, number, send, stop, weir_with};

tests![horizons_and_known_hosts_outlive_a_restart];

const SETTINGS: &str = "report: {interval: 1s, horizons: [1h]}\nnew_hosts: {learning: 2s}\ncontrol: {socket: none}\n\
                        alerts: {rules: [{name: stranger, when: new_hosts > 0}]}\n";

fn run(pair: &QuietPair, state: &Path) -> Result<Daemon> {
    let scratch = Scratch::new()?;
    let program = weir_with(&[("STATE_DIRECTORY", state)], &scratch)?;
    let settings = format!("interfaces: [{}]\n{ROOMY_RINGS}{SETTINGS}", native(QuietPair::OBSERVER_INTERFACE));
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |reports| config(&settings, reports))?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    Ok(daemon)
}

/// The sources of a plan's traffic, and which of them are hosts of private networks.
struct Sources {
    all: BTreeSet<IpAddr>,
    hosts: BTreeSet<IpAddr>,
}

fn traffic(pair: &QuietPair, seed: u64) -> Result<Sources> {
    let mut oracle = Oracle::new();
    let plan = Plan { seed, packets: 4_000, flows: 120, ..Plan::default() };
    send(pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
    let all: BTreeSet<IpAddr> = oracle.grouped(|key| vec![key.src]).into_keys().collect();
    let is_host = |ip: &&IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_private(),
        IpAddr::V6(ip) => ip.is_unique_local(),
    };
    let hosts = all.iter().filter(is_host).copied().collect();
    Ok(Sources { all, hosts })
}

/// The hosts that these reports list as new, and how many they counted.
fn new_hosts(reports: &[Value]) -> Result<(BTreeSet<IpAddr>, u64)> {
    let (mut listed, mut count) = (BTreeSet::new(), 0);
    for new in reports.iter().map(|report| &report["new_hosts"]) {
        count += number(&new["value"])?;
        for host in list(&new["hosts"])? {
            listed.insert(host["src_ip"].as_str().context("an address")?.parse()?);
        }
    }
    Ok((listed, count))
}

fn sources_in_an_hour(report: &Value) -> Result<[u64; 2]> {
    let count = &report["horizons"][0]["unique"]["src_ip"];
    Ok([number(&count["lower"])?, number(&count["upper"])?])
}

/// Waits until as many sources are in the horizon as there may be.
fn wait_for_sources(daemon: &mut Daemon, sources: usize) -> Result<Value> {
    clock::wait_for("the sources of the last hour", TIMEOUT, || {
        let Some(report) = daemon.reports()?.pop() else { return Ok(None) };
        let [lower, upper] = sources_in_an_hour(&report)?;
        Ok((lower..=upper).contains(&(sources as u64)).then_some(report))
    })
}

fn is_firing(report: &Value) -> bool {
    report["alerts"]
        .as_array()
        .is_some_and(|alerts| alerts.iter().any(|alert| alert["rule"] == "stranger" && alert["state"] == "firing"))
}

fn horizons_and_known_hosts_outlive_a_restart() -> Result<()> {
    let (pair, state) = (Lab::quiet_pair()?, Scratch::new()?);
    let mut daemon = run(&pair, state.path())?;
    let sent = traffic(&pair, 91)?;
    ensure!(sent.hosts.len() > 20 && sent.hosts.len() < sent.all.len(), "{} hosts", sent.hosts.len());
    wait_for_sources(&mut daemon, sent.all.len())?;
    let reports = stop(&mut daemon, Loss::None)?;
    let (listed, count) = new_hosts(&reports)?;
    ensure!(listed.is_subset(&sent.hosts) && count + 2 >= sent.hosts.len() as u64, "{count} of {}", sent.hosts.len());
    ensure!(reports[0]["new_hosts"]["learning"] == true, "{}", reports[0]["new_hosts"]);
    let file = state.path().join("history/local");
    ensure!(fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600, "only weir's user may read the local key");

    // The same sources are known, and the horizon still has them.
    let mut daemon = run(&pair, state.path())?;
    daemon.wait_for_line("horizons and known hosts go on", TIMEOUT)?;
    let quiet = daemon.wait_for_reports(1, TIMEOUT)?.swap_remove(0);
    let [lower, upper] = sources_in_an_hour(&quiet)?;
    ensure!((lower..=upper).contains(&(sent.all.len() as u64)), "{} sources: {quiet}", sent.all.len());
    ensure!(number(&quiet["unique"]["src_ip"]["value"])? < 5, "{quiet}");
    let again = traffic(&pair, 91)?;
    ensure!(again.all == sent.all, "the same traffic");
    clock::wait_for("the end of learning", TIMEOUT, || {
        Ok(daemon.reports()?.last().is_some_and(|last| last["new_hosts"]["learning"] == false).then_some(()))
    })?;
    let others = traffic(&pair, 92)?;
    let all: BTreeSet<_> = sent.all.union(&others.all).collect();
    wait_for_sources(&mut daemon, all.len())?;
    clock::wait_for("an alert about new hosts", TIMEOUT, || Ok(daemon.reports()?.iter().any(is_firing).then_some(())))?;
    let reports = stop(&mut daemon, Loss::None)?;
    let strangers: BTreeSet<_> = others.hosts.difference(&sent.hosts).copied().collect();
    let (listed, count) = new_hosts(&reports)?;
    ensure!(listed.is_subset(&strangers), "{listed:?} are not among {strangers:?}");
    ensure!(count <= strangers.len() as u64 && count + 2 >= strangers.len() as u64, "{count} of {}", strangers.len());

    // A damaged file is named, and everything begins anew.
    let mut bytes = fs::read(&file)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes)?;
    let mut daemon = run(&pair, state.path())?;
    let line = daemon.wait_for_line("it is damaged", TIMEOUT)?;
    ensure!(line.contains("history/local") && line.contains("begin anew"), "{line}");
    let first = daemon.wait_for_reports(1, TIMEOUT)?.swap_remove(0);
    ensure!(sources_in_an_hour(&first)?[1] < 5 && first["new_hosts"]["learning"] == true, "{first}");
    stop(&mut daemon, Loss::None)?;
    Ok(())
}
