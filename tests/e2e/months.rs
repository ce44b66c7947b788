//! What `weir usage` prints is the sum of the ledgers of all reports, over restarts, also by host and network, and a
//! quota raises an alert.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_common::ledger::Tally;
use weir_tests::{
    account::Loss,
    clock,
    daemon::Signal,
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::{By, Dimension, Oracle},
    scratch::Scratch,
    traffic::{Plan, Traffic},
    truth::Key,
};

use crate::{
    history::{run, weir},
    watch::{QUIET_LINK, TIMEOUT, list, number, send, stop},
};

tests![
    usage_is_the_sum_of_the_reports_and_survives_restarts,
    hosts_and_networks_have_their_usage_over_restarts,
    a_quota_is_an_alert,
];

/// The rows of this usage, or why there are none.
fn rows(socket: &std::path::Path, arguments: &[&str]) -> Result<Vec<Value>> {
    let output = weir(socket, &[&["usage", "--json"], arguments].concat())?;
    if !output.status.success() {
        return Ok(Vec::new());
    }
    let usage: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(usage["schema"] == "weir.usage/1", "{usage}");
    Ok(list(&usage["rows"])?.clone())
}

fn sum(rows: &[Value]) -> Result<Tally> {
    let mut sum = Tally::default();
    for row in rows {
        sum.add(Tally::new(number(&row["packets"]["value"])?, number(&row["bytes"]["value"])?));
    }
    Ok(sum)
}

fn usage_is_the_sum_of_the_reports_and_survives_restarts() -> Result<()> {
    let (pair, state, scratch) = (Lab::quiet_pair()?, Scratch::new()?, Scratch::new()?);
    let socket = scratch.file("control.sock");
    let mut sent = Tally::default();
    for seed in [81, 82] {
        let mut daemon = run(&pair, state.path(), &socket, "")?;
        // The first second has no reading before it.
        daemon.wait_for_reports(3, TIMEOUT)?;
        ensure!(sum(&rows(&socket, &[])?)? == sent, "after a start it knows {:?}", rows(&socket, &[])?);
        let plan = Plan { seed, packets: 5_000, flows: 100, ..Plan::default() };
        sent.add(send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut Oracle::new())?);
        clock::wait_for("the usage of all packets", TIMEOUT, || {
            let known = sum(&rows(&socket, &[QuietPair::OBSERVER_INTERFACE])?)?;
            ensure!(known.packets <= sent.packets, "{known:?} of {sent:?}");
            Ok((known == sent).then_some(()))
        })?;
        for by in ["hour", "day"] {
            let rows = rows(&socket, &["--by", by])?;
            ensure!(sum(&rows)? == sent, "by {by}: {rows:?}");
        }
        let month = rows(&socket, &[])?.swap_remove(0);
        ensure!(month["unseen_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{month}");
        ensure!(month["bytes"]["upper"] == month["bytes"]["value"], "{month}");
        ensure!(month["busiest"]["bits"].as_u64().is_some_and(|bits| bits > 0), "{month}");
        let csv = String::from_utf8(weir(&socket, &["usage", "--csv"])?.stdout)?;
        ensure!(csv.contains(&format!(",{},", sent.bytes)) && csv.starts_with("interface,"), "{csv}");
        let table = String::from_utf8(weir(&socket, &["usage"])?.stdout)?;
        ensure!(table.contains("95th percentile") && table.contains("not seen"), "{table}");
        stop(&mut daemon, Loss::None)?;
    }
    let unknown = {
        let mut daemon = run(&pair, state.path(), &socket, "")?;
        daemon.wait_for_reports(1, TIMEOUT)?;
        let output = weir(&socket, &["usage", "nothing0"])?;
        send(
            &pair,
            QUIET_LINK,
            Traffic::new(Plan { packets: 500, ..Plan::default() })?,
            Pace::Unlimited,
            &mut Oracle::new(),
        )?;
        daemon.signal(Signal::KILL)?;
        daemon.wait(TIMEOUT)?;
        output
    };
    let why = String::from_utf8(unknown.stderr)?;
    ensure!(why.contains("nothing is known of nothing0") && why.contains(QuietPair::OBSERVER_INTERFACE), "{why}");
    let mut daemon = run(&pair, state.path(), &socket, "")?;
    daemon.wait_for_reports(1, TIMEOUT)?;
    let known = sum(&rows(&socket, &[])?)?;
    ensure!(known.bytes >= sent.bytes, "SIGKILL lost more than the last minute: {known:?} of {sent:?}");
    stop(&mut daemon, Loss::None)?;
    Ok(())
}

fn hosts_and_networks_have_their_usage_over_restarts() -> Result<()> {
    let (pair, state, scratch) = (Lab::quiet_pair()?, Scratch::new()?, Scratch::new()?);
    let socket = scratch.file("control.sock");
    // Every address is a host, so each packet is in both directions of the network.
    let settings = "networks: {lab: {prefixes: [0.0.0.0/0, '::/0'], own: true}}\n";
    let mut oracle = Oracle::new();
    for seed in [83, 84] {
        let mut daemon = run(&pair, state.path(), &socket, settings)?;
        daemon.wait_for_reports(2, TIMEOUT)?;
        let plan = Plan { seed, packets: 8_000, flows: 300, ..Plan::default() };
        send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
        let all = oracle.attributed().bytes;
        let networks = clock::wait_for("the usage of the network", TIMEOUT, || {
            let networks = periods(&socket, "networks", &[])?;
            let down = networks.first().map(|month| month["rows"][0]["down"]["value"].clone());
            Ok((down == Some(all.into())).then_some(networks))
        })?;
        let exact = |bytes: u64| json!({"value": bytes, "lower": bytes, "upper": bytes});
        let row = json!({"network": "lab", "down": exact(all), "up": exact(all), "bytes": exact(2 * all)});
        ensure!(networks[0]["rows"] == json!([row]), "{networks:?} in place of {row}");
        for arguments in [&["--by", "day", "--top", "25"][..], &[]] {
            let hosts = periods(&socket, "hosts", arguments)?;
            check_hosts(hosts.last().context("no period")?, &oracle)?;
        }
        let one = oracle.top(Dimension::Sources, By::Bytes, 1)[0].0.to_string();
        let of_one = periods(&socket, &one, &[])?;
        ensure!(of_one[0]["rows"][0]["host"] == one, "{one}: {of_one:?}");
        let table = String::from_utf8(weir(&socket, &["usage", "hosts"])?.stdout)?;
        ensure!(table.contains("down") && table.contains(&one) && table.contains("not seen"), "{table}");
        let csv = String::from_utf8(weir(&socket, &["usage", "networks", "--csv"])?.stdout)?;
        ensure!(csv.contains(",lab,") && csv.contains(&format!(",{all},{all},{all},")), "{csv}");
        stop(&mut daemon, Loss::None)?;
    }
    let mut daemon = run(&pair, state.path(), &socket, &format!("{settings}addresses: prefix\n"))?;
    daemon.wait_for_reports(1, TIMEOUT)?;
    let refused = String::from_utf8(weir(&socket, &["usage", "hosts"])?.stderr)?;
    ensure!(refused.contains("addresses: prefix"), "{refused}");
    ensure!(!periods(&socket, "networks", &[])?.is_empty(), "networks are no addresses");
    stop(&mut daemon, Loss::None)?;
    Ok(())
}

/// The periods of this usage of hosts or networks.
fn periods(socket: &std::path::Path, whose: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let output = weir(socket, &[&["usage", whose, "--json"], arguments].concat())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let usage: Value = serde_json::from_slice(&output.stdout)?;
    Ok(list(&usage["periods"])?.clone())
}

/// Every row of a period has bounds that hold, and no other host has more than the period says.
fn check_hosts(period: &Value, oracle: &Oracle) -> Result<()> {
    let [down, up] = [|key: &Key| vec![key.dst.to_string()], |key: &Key| vec![key.src.to_string()]]
        .map(|host_of| oracle.grouped(host_of));
    let mut rest: BTreeSet<_> = down.keys().chain(up.keys()).collect();
    let truth = |of: &HashMap<String, Tally>, host: &str| of.get(host).map_or(0, |sum| sum.bytes);
    for row in list(&period["rows"])? {
        let host = row["host"].as_str().context("a row without a host")?;
        ensure!(rest.remove(&host.to_owned()), "{host} was not there, or is listed twice: {period}");
        let truths = [truth(&down, host), truth(&up, host)];
        for (what, truth) in [("down", truths[0]), ("up", truths[1]), ("bytes", truths[0] + truths[1])] {
            let holds = number(&row[what]["lower"])? <= truth && truth <= number(&row[what]["upper"])?;
            ensure!(holds, "{host}, {what}: truly {truth}: {row}");
        }
    }
    let most = number(&period["unlisted"])?;
    for host in rest {
        let truth = truth(&down, host) + truth(&up, host);
        ensure!(truth <= most, "{host} has {truth}, and {most} is the most that an unlisted host has");
    }
    Ok(())
}

fn a_quota_is_an_alert() -> Result<()> {
    let (pair, state, scratch) = (Lab::quiet_pair()?, Scratch::new()?, Scratch::new()?);
    let socket = scratch.file("control.sock");
    let interface = QuietPair::OBSERVER_INTERFACE;
    let settings = format!("usage: {{quota: 1MB, interface: {interface}}}\n");
    let mut daemon = run(&pair, state.path(), &socket, &settings)?;
    let quiet = daemon.wait_for_reports(2, TIMEOUT)?;
    ensure!(quiet.iter().all(|report| report["alerts"].is_null()), "{quiet:?}");
    let plan = Plan { packets: 20_000, ..Plan::default() };
    let sent = send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut Oracle::new())?;
    ensure!(sent.bytes > 1_000_000, "{sent:?}");
    let firing = |report: &Value| {
        let alerts = report["alerts"].as_array();
        alerts.is_some_and(|alerts| alerts.iter().any(|alert| alert["rule"] == "quota" && alert["state"] == "firing"))
    };
    let report = clock::wait_for("the alert", TIMEOUT, || Ok(daemon.reports()?.into_iter().rev().find(firing)))?;
    let alert = &report["alerts"][0];
    ensure!(alert["when"] == "usage.bytes > 1 MB", "{alert}");
    ensure!(alert["evidence"][0]["interface"] == interface, "{alert}");
    let month = &report["usage"][0];
    ensure!(month["interface"] == interface && number(&month["bytes"]["value"])? > 1_000_000, "{report}");
    ensure!(month["bytes"].get("upper").is_none(), "weir did not see the whole month: {month}");
    stop(&mut daemon, Loss::None)?;
    // It goes on after a restart.
    let mut daemon = run(&pair, state.path(), &socket, &settings)?;
    clock::wait_for("the alert after a restart", TIMEOUT, || Ok(daemon.reports()?.into_iter().find(firing)))?;
    stop(&mut daemon, Loss::None)?;
    Ok(())
}
