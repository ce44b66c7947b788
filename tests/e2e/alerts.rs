//! An alert begins after exactly the configured number of windows, names the keys that caused it, and is sent once to
//! each recipient.

use std::{
    collections::HashMap,
    fs,
    net::{IpAddr, Ipv4Addr},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    collector::{Behaviour, Collector, Received},
    daemon::{Daemon, Signal, weir_binary},
    netns::{Lab, Namespace, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan},
};

use crate::{
    prometheus::get,
    watch::{ROOMY_RINGS, TIMEOUT, Watch, config, list, measure, native, number, stop},
};

tests![
    a_scan_is_reported_once_after_exactly_the_required_windows,
    lost_packets_are_told_with_their_interface,
    a_rule_that_is_reloaded_away_ends_its_alert,
    a_webhook_that_is_reloaded_away_hears_of_each_end,
    without_addresses_no_output_has_one,
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
/// A scan reaches more than this.
const LIMIT: u64 = 1_000;
/// The alert of a scan begins and ends after this many windows.
const WINDOWS: usize = 2;

/// Rules. Only the first two are ever met, each only in its own test.
fn rules(webhook: &Collector) -> String {
    format!(
        "report: {{interval: 1s}}
alerts:
  rules:
    - {{name: scan, when: destinations_per_source.distinct > {LIMIT}, for: {WINDOWS} windows}}
    - {{name: loss, when: lost > 0, interface: \"{INTERFACE}\"}}
    - {{name: busy, when: sources.bytes > 40 Gbit/s}}
    - {{name: flood, when: sources_per_destination > 1e6}}
    - {{name: full, when: self.rings.peak_fill > 99.99 %, for: 1000 windows}}
    - {{name: elsewhere, when: lost > 0, interface: elsewhere}}
  webhook: {{url: \"{}\", timeout: 1s}}
",
        webhook.url()
    )
}

fn start(settings: &str) -> Result<(Watch, Collector)> {
    let pair = Lab::quiet_pair()?;
    let webhook = webhook(&pair.observer)?;
    let interface = format!("interfaces: [{}]\n", native(INTERFACE));
    let daemon = measure(&pair.observer, &format!("{interface}{}{settings}", rules(&webhook)))?;
    Ok((Watch { pair, daemon }, webhook))
}

fn webhook(namespace: &Namespace) -> Result<Collector> {
    namespace.enter(|| Collector::listen((Ipv4Addr::LOCALHOST, 0).into()))?
}

/// The alert of a rule in a report, if it has one.
fn alert<'r>(report: &'r Value, rule: &str) -> Option<&'r Value> {
    report["alerts"].as_array()?.iter().find(|alert| alert["rule"] == rule)
}

/// The messages about a rule in the reports, in the log or at the webhook, each with the start of the alert.
type AlertMessages = Vec<(String, String)>;

fn told_by_reports(reports: &[Value]) -> Result<AlertMessages> {
    let alerts: Vec<_> = reports.iter().filter_map(|report| report["alerts"].as_array()).flatten().collect();
    let changes = alerts.into_iter().filter(|alert| alert.get("change").is_some());
    changes.map(|alert| Ok((text(alert, "change")?, format!("{} {}", alert["rule"], alert["since"])))).collect()
}

fn text(value: &Value, name: &str) -> Result<String> {
    Ok(value[name].as_str().with_context(|| format!("no {name} in {value}"))?.to_owned())
}

/// Compares log and webhook with the reports: each change is there once, in this order.
fn check_told(daemon: &Daemon, reports: &[Value], messages: &[Received]) -> Result<()> {
    let told = told_by_reports(reports)?;
    let log = daemon.log()?;
    let lines: Vec<_> =
        log.lines().filter(|line| line.contains("alert begins:") || line.contains("alert ends:")).collect();
    ensure!(lines.len() == told.len(), "{told:?}, and the log has\n{}", lines.join("\n"));
    for ((change, _), line) in told.iter().zip(&lines) {
        ensure!(line.contains(if change == "begins" { "WARN" } else { "INFO" }), "{change}: {line}");
        ensure!(line.contains(&format!("alert {change}: ")), "{change}: {line}");
    }
    let sent: Vec<_> = messages
        .iter()
        .map(|message| {
            let alert = &message.report["alert"];
            Ok((text(alert, "change")?, format!("{} {}", alert["rule"], alert["since"])))
        })
        .collect::<Result<_>>()?;
    ensure!(sent == told, "the webhook got {sent:?}, and reports say {told:?}");
    for Received { idempotency_key, report: message, .. } in messages {
        let key = format!("{}/{}", text(message, "report")?, text(&message["alert"], "rule")?);
        ensure!(idempotency_key.as_deref() == Some(&key), "{idempotency_key:?} is not {key}");
        let report = reports.iter().find(|report| report["id"] == message["report"]).context("no such report")?;
        ensure!(message["observer"] == report["observer"] && message["window"] == report["window"], "{message}");
        ensure!(alert(report, &text(&message["alert"], "rule")?) == Some(&message["alert"]), "{message}");
    }
    Ok(())
}

/// Decides for each report if the rule for scans should fire at the end of its window.
fn expected(reports: &[Value]) -> Result<Vec<bool>> {
    // By default an alert ends a tenth below its limit.
    let back = LIMIT * 9 / 10;
    let (mut fires, mut beyond, mut within) = (false, 0, 0);
    let mut story = Vec::new();
    for report in reports {
        let seconds = report["window"]["seconds"].as_f64().context("seconds")?;
        let rows = list(&report["spread"]["destinations_per_source"])?;
        let lower = rows.iter().filter_map(|row| row["distinct"]["lower"].as_u64()).max().unwrap_or(0);
        // On a busy machine a window may be longer. Then one of the seconds that cover it has at least the mean.
        let is_long_and_certain = seconds > 1.1 && lower as f64 / seconds.ceil() > LIMIT as f64;
        if (0.9..=1.1).contains(&seconds) || is_long_and_certain {
            beyond = if lower > LIMIT { beyond + 1 } else { 0 };
            within = if lower <= back { within + 1 } else { 0 };
            fires = if fires { within < WINDOWS } else { beyond >= WINDOWS };
        }
        story.push(fires);
    }
    Ok(story)
}

/// All addresses in a text.
fn addresses(text: &str) -> Vec<IpAddr> {
    let parts = text.split(|c: char| !c.is_ascii_hexdigit() && !".:".contains(c));
    parts.filter_map(|part| part.trim_end_matches(':').parse().ok()).collect()
}

/// One source that goes to thousands of destinations.
fn scan(seed: u64) -> Plan {
    let (packets, flows, flows_per_source, flows_per_destination) = (4_000, 4_000, 4_000, 1);
    Plan { seed, packets, flows, zipf: 0.0, flows_per_source, flows_per_destination, mix: Mix::PLAIN }
}

/// `addresses: none` holds for every output: the table of `docs/SECURITY.md` lists them.
fn without_addresses_no_output_has_one() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let control = format!("control: {{socket: {}}}\n", socket.display());
    let scrape = "prometheus: {listen: 127.0.0.1:9469}\n";
    let (mut watch, webhook) = start(&format!("{ROOMY_RINGS}addresses: none\n{control}{scrape}"))?;
    let mut oracle = Oracle::new();
    let plan = scan(73);
    clock::wait_for("an alert", TIMEOUT, || {
        watch.send(plan, &mut oracle)?;
        thread::sleep(Duration::from_millis(50));
        Ok((!webhook.received().is_empty()).then_some(()))
    })?;
    for live in [&[][..], &["--live"]] {
        for key in ["198.51.100.7", "192.0.2.1, 198.51.100.7", "198.51.100.0/24"] {
            let asked = Command::new(weir_binary()?).args(["ask", key, "--socket"]).arg(&socket).args(live).output()?;
            let why = String::from_utf8(asked.stderr)?;
            ensure!(asked.status.code() == Some(2) && why.contains("`addresses: none`"), "{live:?} {key}: {why}");
        }
    }
    // The last window may have been empty.
    let asked = || {
        let asked = Command::new(weir_binary()?).args(["report", "--json", "--socket"]).arg(&socket).output()?;
        Ok(String::from_utf8(asked.stdout)?)
    };
    let scraped = || get(&watch.pair.observer, "/report", "*/*").map(|(_, _, scraped)| scraped);
    let mut with_addresses = |of: &dyn Fn() -> Result<String>| {
        clock::wait_for("a report with addresses", TIMEOUT, || {
            watch.send(plan, &mut oracle)?;
            Ok(Some(of()?).filter(|report| !addresses(report).is_empty()))
        })
    };
    let (asked, scraped) = (with_addresses(&asked)?, with_addresses(&scraped)?);
    let (_, _, metrics) = get(&watch.pair.observer, "/metrics", "*/*")?;
    // These reports are not judged, because many rows have the same masked address.
    watch.daemon.stop(TIMEOUT)?;
    let reports = watch.daemon.reports()?;
    let log = watch.daemon.log()?;
    let log: Vec<_> = log.lines().filter(|line| line.contains("alert begins")).collect();
    let messages: Vec<_> = webhook.received().iter().map(|message| message.report.to_string()).collect();
    for (way, text) in [
        ("sink", Value::from(reports).to_string()),
        ("webhook", messages.concat()),
        ("log", log.concat()),
        ("control socket", asked),
        ("/report", scraped),
    ] {
        let told = addresses(&text);
        ensure!(!told.is_empty(), "{way} has no addresses at all: {text}");
        ensure!(told.iter().all(IpAddr::is_unspecified), "{way}: {told:?}");
    }
    ensure!(addresses(&metrics).is_empty(), "{metrics}");
    Ok(())
}

fn a_scan_is_reported_once_after_exactly_the_required_windows() -> Result<()> {
    let (mut watch, webhook) = start(ROOMY_RINGS)?;
    let mut oracle = Oracle::new();
    // Calm traffic: some thousand packets of many sources with few destinations each.
    watch.send(Plan { seed: 71, ..Plan::default() }, &mut oracle)?;
    let calm = watch.daemon.reports()?.len() + 2;
    watch.daemon.wait_for_reports(calm, TIMEOUT)?;
    ensure!(webhook.received().is_empty(), "calm traffic makes an alert: {:?}", webhook.received());

    // The webhook refuses connections at first; the message still arrives, once.
    watch.pair.observer.enter(|| webhook.behave(Behaviour::Down))??;
    let plan = scan(72);
    let mut was_down = false;
    clock::wait_for("the begin of the alert", TIMEOUT, || {
        watch.send(plan, &mut oracle)?;
        if !was_down && watch.daemon.log()?.contains("cannot deliver an alert") {
            watch.pair.observer.enter(|| webhook.behave(Behaviour::Accept))??;
            was_down = true;
        }
        thread::sleep(Duration::from_millis(50));
        Ok((!webhook.received().is_empty()).then_some(()))
    })?;
    ensure!(was_down, "the webhook was never missed");
    let begun = webhook.received().len();
    webhook.wait_for(begun + 1, TIMEOUT).context("the end of the alert")?;
    // When the next report comes, the answer to that message has arrived, too.
    let reported = watch.daemon.reports()?.len();
    watch.daemon.wait_for_reports(reported + 2, TIMEOUT)?;
    let reports = stop(&mut watch.daemon, Loss::None)?;
    let messages = webhook.received();
    check_told(&watch.daemon, &reports, &messages)?;

    let fires: Vec<_> = reports
        .iter()
        .map(|report| {
            alert(report, "scan").is_some_and(|alert| alert["state"] == "firing" || alert["state"] == "clearing")
        })
        .collect();
    let expected = expected(&reports)?;
    ensure!(fires == expected, "the alert fires in {fires:?}, and should in {expected:?}");
    let others: Vec<_> = reports.iter().filter_map(|report| report["alerts"].as_array()).flatten().collect();
    ensure!(others.iter().all(|alert| alert["rule"] == "scan"), "other rules say something: {others:?}");

    // The truth over all windows together: a single window cannot have more.
    let truth: HashMap<IpAddr, u64> = oracle.spread(|key| vec![(key.src, key.dst)]);
    let (scanner, reached) = truth.iter().max_by_key(|(_, reached)| **reached).context("nobody sent")?;
    for alert in reports.iter().filter_map(|report| alert(report, "scan")).filter(|alert| alert["change"] == "begins") {
        let [first, rest @ ..] = list(&alert["evidence"])?.as_slice() else { panic!("no evidence: {alert}") };
        ensure!(rest.is_empty() && first["src_ip"] == scanner.to_string(), "{scanner} scans, not {alert}");
        let lower = number(&first["lower"])?;
        ensure!((LIMIT + 1..=*reached).contains(&lower), "{reached} were reached, and the alert says {first}");
        ensure!(alert["windows"] == WINDOWS && alert["for"] == WINDOWS, "{alert}");
    }
    let account = reports.iter().rev().find_map(|report| {
        let sinks = report["self"]["sinks"].as_array()?;
        sinks.iter().find(|sink| sink["name"].as_str().is_some_and(|name| name.starts_with("webhook:"))).cloned()
    });
    let account = account.context("no account of the webhook")?;
    ensure!(account["delivered"] == messages.len() && account["dropped"] == 0, "{account}");
    Ok(())
}

fn lost_packets_are_told_with_their_interface() -> Result<()> {
    // The ring has room for some thousand records, and the daemon is stopped and does not read them. That takes more
    // than a window, as on a machine that is too busy: the window is too long for most rules, but not for this one.
    let (mut watch, webhook) = start("datapath: {ring: 64KiB, cache_flows: 256}\n")?;
    watch.daemon.wait_for_reports(2, TIMEOUT)?;
    watch.daemon.signal(Signal::STOP)?;
    let plan = Plan { seed: 73, packets: 40_000, flows: 40_000, zipf: 0.0, mix: Mix::PLAIN, ..Plan::default() };
    watch.send(plan, &mut Oracle::new())?;
    thread::sleep(Duration::from_millis(1_500));
    watch.daemon.signal(Signal::CONT)?;
    webhook.wait_for(2, TIMEOUT).context("the begin and the end of the alert")?;
    let reports = stop(&mut watch.daemon, Loss::Provoked(&["ring_full"]))?;
    check_told(&watch.daemon, &reports, &webhook.received())?;
    let begins = reports.iter().find(|report| alert(report, "loss").is_some()).context("no report has the alert")?;
    let told = alert(begins, "loss").context("an alert")?;
    let lost = &begins["interfaces"][0]["ledger"]["lost"]["ring_full"]["packets"];
    let evidence = &told["evidence"][0];
    ensure!(evidence["interface"] == INTERFACE && evidence["direction"] == "ingress", "{told}");
    ensure!(
        evidence["value"] == *lost && evidence["lower"] == *lost && evidence["upper"] == *lost,
        "{lost} and {told}"
    );
    ensure!(reports.iter().all(|report| alert(report, "elsewhere").is_none()), "a rule is about another interface");
    Ok(())
}

/// Settings with two rules that are always met.
fn always_met(rule: &str, webhook: &Collector) -> String {
    format!(
        "interfaces: [{}]\nreport: {{interval: 1s}}\ncontrol: {{socket: none}}\nalerts:\n  rules:\n    \
         - {{name: stays, when: self.rss_bytes > 1}}\n    - {{name: {rule}, when: self.rss_bytes > 2}}\n  webhook: {{url: \"{}\"}}\n",
        native(INTERFACE),
        webhook.url()
    )
}

fn reload(daemon: &mut Daemon, settings: &str) -> Result<()> {
    let directory = daemon.directory();
    fs::write(directory.join("weir.yaml"), config(settings, &directory.join("reports.ndjson")))?;
    daemon.signal(Signal::HUP)
}

/// Rule, state and change of each message.
fn story(received: &[Received]) -> Result<Vec<String>> {
    let one = |message: &Received| {
        let alert = &message.report["alert"];
        Ok([text(alert, "rule")?, text(alert, "state")?, text(alert, "change")?].join(" "))
    };
    received.iter().map(one).collect()
}

/// The alert of a removed rule ends; the alert of the remaining rule goes on.
fn a_rule_that_is_reloaded_away_ends_its_alert() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let webhook = webhook(&pair.observer)?;
    let mut daemon = measure(&pair.observer, &always_met("leaves", &webhook))?;
    webhook.wait_for(2, TIMEOUT).context("both alerts begin")?;
    reload(&mut daemon, &always_met("comes", &webhook))?;
    let told = webhook.wait_for(4, TIMEOUT).context("one alert ends, and another one begins")?;
    let expected = ["stays firing begins", "leaves firing begins", "leaves withdrawn ends", "comes firing begins"];
    ensure!(story(&told)? == expected, "{:?}", story(&told)?);
    let reports = stop(&mut daemon, Loss::None)?;
    check_told(&daemon, &reports, &webhook.received())
}

/// The alerts go on, but they end for the first webhook and begin for the second one.
fn a_webhook_that_is_reloaded_away_hears_of_each_end() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let [first, second, dead] = [webhook(&pair.observer)?, webhook(&pair.observer)?, webhook(&pair.observer)?];
    let mut daemon = measure(&pair.observer, &always_met("too", &first))?;
    first.wait_for(2, TIMEOUT).context("both alerts begin")?;
    reload(&mut daemon, &always_met("too", &second))?;
    let told = first.wait_for(4, TIMEOUT).context("both end for the first webhook")?;
    let expected = ["stays firing begins", "too firing begins", "stays withdrawn ends", "too withdrawn ends"];
    ensure!(story(&told)? == expected, "{:?}", story(&told)?);
    let told = second.wait_for(2, TIMEOUT).context("both begin for the second webhook")?;
    ensure!(story(&told)? == expected[..2], "{:?}", story(&told)?);
    pair.observer.enter(|| dead.behave(Behaviour::Refuse(503)))??;
    reload(&mut daemon, &always_met("too", &dead))?;
    daemon.wait_for_line("cannot deliver an alert", TIMEOUT)?;
    let reports = stop(&mut daemon, Loss::None)?;
    ensure!(told_by_reports(&reports)?.len() == 2, "in reports the alerts go on: {:?}", told_by_reports(&reports)?);
    let log = daemon.log()?;
    ensure!(log.contains("these alerts were not delivered sink=\"webhook:"), "{log}");
    ensure!(!log.contains("these reports were not delivered"), "{log}");
    Ok(())
}
