//! Reports arrive once. A sink that does not accept them loses only its own reports, and later reports say so.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, Permissions},
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    collector::{Behaviour, Collector},
    daemon::{Daemon, Signal, weir_binary},
    netns::{Lab, Namespace, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::Plan,
};

use crate::watch::{Ended, TIMEOUT, Watch, check_accounts, config, judge, list, number, stop};

alone![a_sink_that_fails_costs_only_its_own_reports];
tests![reports_arrive_once_named_and_packed, secrets_are_told_to_the_collector_alone];

fn collector(namespace: &Namespace) -> Result<Collector> {
    namespace.enter(|| Collector::listen((Ipv4Addr::LOCALHOST, 0).into()))?
}

fn settings(reports: &Path, sinks: &[String]) -> String {
    let config =
        config(&format!("interfaces: [{}]\nreport: {{interval: 1s}}\n", QuietPair::OBSERVER_INTERFACE), reports);
    let sinks: String = sinks.iter().map(|sink| format!("  - {sink}\n")).collect();
    config + &sinks
}

fn reports_arrive_once_named_and_packed() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let [packed, plain] = [collector(&pair.observer)?, collector(&pair.observer)?];
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
        let packed = format!("{{type: http, url: \"{}\"}}", packed.url());
        let plain = format!("{{type: http, url: \"{}\", compress: none}}", plain.url());
        settings(reports, &[packed, plain])
    })?;
    daemon.wait_for_line("measuring every packet", TIMEOUT)?;
    let mut watch = Watch { pair, daemon };
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 61, ..Plan::default() }, &mut oracle)?;
    watch.daemon.wait_for_reports(3, TIMEOUT)?;
    let reports = watch.stop(Loss::None)?;
    judge("the reports in the file", oracle.check_reports(&reports))?;
    for (collector, encoding) in [(packed, Some("gzip")), (plain, None)] {
        let received = collector.wait_for(reports.len(), TIMEOUT)?;
        for received in &received {
            let id = received.report["id"].as_str();
            ensure!(received.idempotency_key.as_deref() == id, "{:?} with report {id:?}", received.idempotency_key);
            ensure!(received.encoding.as_deref() == encoding, "{:?} is not {encoding:?}", received.encoding);
        }
        let received: Vec<_> = received.into_iter().map(|received| received.report).collect();
        ensure!(received == reports, "{} reports received, and {} in the file, differ", received.len(), reports.len());
    }
    Ok(())
}

fn a_sink_that_fails_costs_only_its_own_reports() -> Result<()> {
    const BEHAVIOURS: [Behaviour; 5] =
        [Behaviour::Down, Behaviour::Hang, Behaviour::Refuse(503), Behaviour::Refuse(403), Behaviour::Refuse(400)];
    let pair = Lab::quiet_pair()?;
    let failing: Vec<_> = BEHAVIOURS
        .into_iter()
        .map(|behaviour| {
            let collector = collector(&pair.observer)?;
            pair.observer.enter(|| collector.behave(behaviour))??;
            Ok((behaviour, collector))
        })
        .collect::<Result<_>>()?;
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
        let sinks = failing
            .iter()
            .map(|(_, collector)| format!("{{type: http, url: \"{}\", timeout: 300ms, queue: 2}}", collector.url()));
        settings(reports, &sinks.collect::<Vec<_>>())
    })?;
    daemon.wait_for_line("measuring every packet", TIMEOUT)?;
    let mut watch = Watch { pair, daemon };
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 62, ..Plan::default() }, &mut oracle)?;
    let while_failing = watch.daemon.wait_for_reports(5, TIMEOUT)?;
    check_on_time(&while_failing)?;
    for (behaviour, collector) in &failing {
        let account = account(while_failing.last().context("there are five")?, collector)?;
        ensure!(account["delivered"] == 0, "{behaviour:?}: {account}");
        ensure!(number(&account["dropped"])? > 0, "{behaviour:?}: no drop is declared: {account}");
        ensure!(
            number(&account["failed_attempts"])? > 0 && account["last_error"].is_string(),
            "{behaviour:?}: {account}"
        );
        watch.pair.observer.enter(|| collector.behave(Behaviour::Accept))??;
    }
    watch.send(Plan { seed: 63, ..Plan::default() }, &mut oracle)?;
    for (behaviour, collector) in &failing {
        // More reports than were waiting, so newer ones arrive, too.
        collector.wait_for(4, TIMEOUT).with_context(|| format!("after {behaviour:?}"))?;
    }
    let reports = stop(&mut watch.daemon, Loss::None)?;
    judge("the reports in the file", oracle.check_reports(&reports))?;
    check_on_time(&reports)?;

    let last = reports.last().context("there are reports")?;
    for (behaviour, collector) in &failing {
        let received = collector.received().into_iter().map(|received| received.report);
        let (received, tombstones): (Vec<_>, Vec<_>) =
            received.partition(|received| received["schema"] != "weir.tombstone/1");
        check_accounts(&received, Loss::None)?;
        let sent: HashMap<_, _> = reports.iter().map(|report| (report["id"].to_string(), report)).collect();
        let ids: BTreeSet<_> = received.iter().map(|report| report["id"].to_string()).collect();
        ensure!(ids.len() == received.len(), "{behaviour:?}: a report came twice, of {}", received.len());
        ensure!(
            received.iter().all(|report| sent[&report["id"].to_string()] == report),
            "{behaviour:?}: not as in the file"
        );
        let dropped = number(&account(last, collector)?["dropped"])?;
        let accounted = dropped + received.len() as u64;
        let all = reports.len() as u64;
        ensure!(accounted == all, "{behaviour:?}: {} received and {dropped} dropped of {all}", received.len());
        let told: u64 = tombstones.iter().map(|one| number(&one["reports"])).sum::<Result<_>>()?;
        ensure!(told == dropped, "{behaviour:?}: {dropped} dropped, and tombstones for {told}");
    }
    Ok(())
}

/// Windows of one second, numbered without a gap: measuring did not wait.
fn check_on_time(reports: &[Value]) -> Result<()> {
    for (nth, report) in reports.iter().enumerate() {
        ensure!(
            report["observer"]["seq"] == nth as u64 + 1,
            "report {nth} has the number {}",
            report["observer"]["seq"]
        );
        let seconds = report["window"]["seconds"].as_f64().context("a window has no length")?;
        let within = nth > 0 && nth + 1 < reports.len();
        ensure!(!within || (0.5..1.5).contains(&seconds), "window {nth} took {seconds} s");
    }
    Ok(())
}

/// A collector's account in a report.
fn account<'a>(report: &'a Value, collector: &Collector) -> Result<&'a Value> {
    let address = collector.address().to_string();
    let mut accounts = list(&report["self"]["sinks"])?.iter();
    accounts
        .find(|account| account["name"].as_str().is_some_and(|name| name.contains(&address)))
        .with_context(|| format!("no account of {address}"))
}

/// Checks all output of weir for secrets, while a collector refuses its token, accepts it, and quotes it in its
/// answers.
fn secrets_are_told_to_the_collector_alone() -> Result<()> {
    const IN_HEADER: &str = "s3cret-in-a-header";
    const IN_QUERY: &str = "s3cret-in-the-query";
    const IN_FILE: &str = "s3cret-in-a-file";
    let pair = Lab::quiet_pair()?;
    let collector = collector(&pair.observer)?;
    let state = Scratch::new()?;
    let [token, key, socket] = ["token", "key", "control.sock"].map(|name| state.file(name));
    for (file, secret) in [(&token, IN_FILE), (&key, IN_FILE)] {
        fs::write(file, secret)?;
        fs::set_permissions(file, Permissions::from_mode(0o600))?;
    }
    pair.observer.enter(|| collector.behave(Behaviour::Refuse(401)))??;
    let scratch = Scratch::new()?;
    let weir = weir_binary()?.canonicalize()?;
    // The configuration contains a secret, so only its owner may read it.
    let (state_path, weir) = (state.path().display(), weir.display());
    let script = format!("#!/bin/sh\nchmod o= \"$3\"\nSTATE_DIRECTORY='{state_path}' exec '{weir}' \"$@\"\n");
    let program = scratch.script(&script, "weir", 0o700)?;
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |reports| {
        let sink = format!(
            "{{type: http, url: \"{}?key={IN_QUERY}\", headers: {{X-Api-Key: {IN_HEADER}}}, token_file: {}, \
             header_files: {{X-Other: {}}}, timeout: 500ms}}",
            collector.url(),
            token.display(),
            key.display()
        );
        settings(reports, &[sink]) + &format!("control: {{socket: {}}}\n", socket.display())
    })?;
    let config = daemon.directory().join("weir.yaml");
    daemon.wait_for_reports(2, TIMEOUT)?;
    daemon.wait_for_line("401", TIMEOUT)?;
    fs::set_permissions(&token, Permissions::from_mode(0o644))?;
    pair.observer.enter(|| collector.behave(Behaviour::Accept))??;
    daemon.wait_for_reports(4, TIMEOUT)?;
    fs::set_permissions(&token, Permissions::from_mode(0o600))?;
    let received = collector.wait_for(2, TIMEOUT)?;
    ensure!(!received.is_empty(), "the collector has the secrets");

    let bundle = state.file("bundle");
    let mut told = Vec::new();
    for arguments in [
        vec!["status"],
        vec!["status", "--json"],
        vec!["report"],
        vec!["report", "--json"],
        vec!["check"],
        vec!["doctor", "--json"],
        vec!["doctor", "--bundle", bundle.to_str().context("text")?],
    ] {
        let mut command = pair.observer.command(weir_binary()?);
        let ended = Ended::of(command.args(&arguments).arg("--config").arg(&config))?;
        ensure!(ended.code == Some(0) || arguments[0] == "doctor", "{arguments:?}: {}{}", ended.out, ended.err);
        told.push((arguments.join(" "), ended.out + &ended.err));
    }
    told.push(("the bundle".to_owned(), fs::read_to_string(&bundle)?));
    daemon.signal(Signal::TERM)?;
    ensure!(daemon.wait(TIMEOUT)?.success(), "{}", daemon.log()?);
    told.push(("the log".to_owned(), daemon.log()?));
    told.push(("the reports".to_owned(), daemon.reports()?.iter().map(ToString::to_string).collect()));
    let spool = Command::new("grep").args(["-rl", "s3cret"]).arg(state.file("spool")).output()?;
    told.push(("the spool".to_owned(), String::from_utf8_lossy(&spool.stdout).into_owned()));
    told.push(("names in the spool".to_owned(), format!("{:?}", walk(&state.file("spool"))?)));
    for (what, text) in told {
        ensure!(!text.contains("s3cret"), "{what} has a secret:\n{text}");
    }
    Ok(())
}

fn walk(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(walk(&path)?);
        }
        all.push(path);
    }
    Ok(all)
}
