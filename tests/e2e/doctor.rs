//! The findings of `weir doctor` agree with what `weir run` can do, and `weir doctor` attaches nothing.

use std::{collections::BTreeSet, fs, net::IpAddr, os::unix::fs::PermissionsExt};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_datapath::probe_tcx;
use weir_tests::{
    account::Loss,
    clock,
    daemon::weir_binary,
    foreign::{Does, Foreign},
    netns::{Lab, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan},
};

use crate::{
    usage::{NOBODY, Public},
    watch::{Ended, TIMEOUT, Watch, has_program, list, number, seen_on, weir},
};

tests![
    root_may_measure_and_nothing_is_attached,
    each_capability_that_lacks_is_named,
    an_interface_in_use_is_reported_with_the_program,
    a_missing_interface_is_reported_with_those_that_exist,
    native_mode_that_is_not_to_be_had_matters_where_it_was_asked_for,
    programs_of_others_are_named_at_every_hook,
    kept_rights_and_restarts_are_explained,
    a_bundle_shows_neither_addresses_nor_secrets,
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// The names of the findings that keep `weir run` from working.
fn forbidding(diagnosis: &Value) -> Result<Vec<&str>> {
    let of_interfaces = list(&diagnosis["interfaces"])?.iter().filter_map(|interface| interface["findings"].as_array());
    let all = list(&diagnosis["machine"])?.iter().chain(of_interfaces.flatten());
    Ok(all
        .filter(|finding| finding["needed"] == true && finding["answer"] == "no")
        .filter_map(|finding| finding["name"].as_str())
        .collect())
}

/// The finding with this name about the interface.
fn on_interface<'a>(diagnosis: &'a Value, name: &str) -> Result<(&'a str, &'a str)> {
    let finding = list(&diagnosis["interfaces"][0]["findings"])?.iter().find(|finding| finding["name"] == name);
    let finding = finding.with_context(|| format!("nothing about {name} in {diagnosis}"))?;
    Ok((finding["answer"].as_str().context("no answer")?, finding["detail"].as_str().context("no detail")?))
}

/// The line of JSON that it prints; the exit code must agree with it.
fn diagnosis(ended: &Ended) -> Result<Value> {
    let diagnosis: Value = serde_json::from_str(&ended.out).with_context(|| format!("{}{}", ended.out, ended.err))?;
    let possible = forbidding(&diagnosis)?.is_empty();
    ensure!(diagnosis["possible"] == possible, "possible: {} in {diagnosis}", diagnosis["possible"]);
    ended.check(if possible { 0 } else { 3 }, &[])?;
    Ok(diagnosis)
}

fn doctor(pair: &QuietPair, interface: &str) -> Result<Value> {
    let mut command = pair.observer.command(weir_binary()?);
    diagnosis(&Ended::of(command.args(["doctor", "--json", interface]))?)
}

fn root_may_measure_and_nothing_is_attached() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let found = doctor(&pair, INTERFACE)?;
    ensure!(found["possible"] == true, "{found}");
    let programs = list(&found["programs"])?;
    ensure!(programs.len() == 5, "{programs:?}");
    for program in programs {
        let verified = number(&program["verified_instructions"])?;
        ensure!((1..1_000_000).contains(&verified), "{program}");
    }
    let (_, there) = on_interface(&found, "there")?;
    ensure!(there.contains("driver veth, MTU 1500"), "{there}");
    ensure!(!has_program(&pair.observer, INTERFACE)?, "a program is on {INTERFACE}");
    let table = Ended::of(pair.observer.command(weir_binary()?).args(["doctor", INTERFACE]))?;
    table.check(0, &[])?;
    ensure!(table.out.ends_with("weir run can measure here.\n"), "{}", table.out);
    Ok(())
}

fn each_capability_that_lacks_is_named() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let public = Public::new("")?;
    for (granted, expected) in [
        ("+bpf,+perfmon,+net_admin", &[][..]),
        ("+bpf,+net_admin", &["CAP_PERFMON", "programs"]),
        ("+perfmon,+net_admin", &["CAP_BPF", "programs"]),
        ("+sys_admin", &["CAP_NET_ADMIN"]),
        ("+net_raw", &[]),
        ("+net_admin", &["CAP_BPF", "CAP_PERFMON", "programs"]),
    ] {
        let capabilities = format!("-all,{granted}");
        let mut command = pair.observer.command("setpriv");
        command.args(["--clear-groups", &format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}")]);
        for set in ["inh-caps", "ambient-caps", "bounding-set"] {
            command.arg(format!("--{set}={capabilities}"));
        }
        let found = diagnosis(&Ended::of(command.arg(public.binary()).args(["doctor", "--json", INTERFACE]))?)?;
        let forbids = forbidding(&found)?;
        ensure!(forbids == expected, "with {granted}: {forbids:?} in {found}");
    }
    Ok(())
}

fn an_interface_in_use_is_reported_with_the_program() -> Result<()> {
    let watch = Watch::start("")?;
    for (mode, expected) in [("native", &["what it receives"][..]), ("generic", &["what it receives"]), ("tcx", &[])] {
        let public = Public::new(&format!("interfaces: [{{name: {INTERFACE}, mode: {mode}}}]\n"))?;
        let mut command = watch.pair.observer.command(weir_binary()?);
        command.args(["doctor", "--json", "--config"]).arg(public.config());
        let found = diagnosis(&Ended::of(&mut command)?)?;
        ensure!(forbidding(&found)? == expected, "{mode}: {found}");
        let (_, detail) = on_interface(&found, "free for XDP")?;
        ensure!(detail.contains("weir is attached already: program ") && detail.ends_with(", native"), "{detail}");
    }
    ensure!(has_program(&watch.pair.observer, INTERFACE)?, "the program is gone");
    watch.stop(Loss::None).map(drop)
}

fn a_missing_interface_is_reported_with_those_that_exist() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let found = doctor(&pair, "nope0")?;
    let (answer, detail) = on_interface(&found, "there")?;
    let have = format!("interface \"nope0\" not found (have: lo, {INTERFACE})");
    ensure!(answer == "no" && detail == have, "{answer}: {detail}");
    Ok(())
}

fn native_mode_that_is_not_to_be_had_matters_where_it_was_asked_for() -> Result<()> {
    for (mode, expected) in [("auto", &[][..]), ("generic", &[]), ("native", &["what it receives"])] {
        let public = Public::new(&format!("interfaces: [{{name: lo, mode: {mode}}}]\n"))?;
        let config = public.config().display().to_string();
        let found = diagnosis(&weir(&["doctor", "--json", "--config", &config])?)?;
        let forbids = forbidding(&found)?;
        ensure!(forbids == expected, "{mode}: {forbids:?} in {found}");
    }
    Ok(())
}

fn programs_of_others_are_named_at_every_hook() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let before = doctor(&pair, INTERFACE)?;
    for hook in ["TCX, received", "TCX, sent", "tc, received", "tc, sent"] {
        ensure!(on_interface(&before, hook).is_err(), "nothing is there: {before}");
    }
    let mut command = pair.observer.command("tc");
    Ended::of(command.args(["qdisc", "add", "dev", INTERFACE, "clsact"]))?.check(0, &[])?;
    let _programs =
        [Foreign::attach(&pair.observer, INTERFACE, Does::Pass)?, Foreign::attach_tc(&pair.observer, INTERFACE)?];
    let tcx =
        if matches!(probe_tcx(), Ok(true)) { Some(Foreign::attach_tcx(&pair.observer, INTERFACE)?) } else { None };
    let found = doctor(&pair, INTERFACE)?;
    let hooks = ["free for XDP", "tc, received", "TCX, received"];
    for hook in hooks.into_iter().take(if tcx.is_some() { 3 } else { 2 }) {
        let (_, detail) = on_interface(&found, hook)?;
        ensure!(detail.contains("\"foreign\"") && detail.contains("not weir's"), "{hook}: {detail}");
    }
    ensure!(on_interface(&found, "tc, sent").is_err(), "nothing is there: {found}");
    ensure!(found["possible"] == true, "{found}");
    Ok(())
}

fn kept_rights_and_restarts_are_explained() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    for (mode, kept, has_gap) in
        [("native", "", false), ("tc", "CAP_NET_ADMIN", true), ("afpacket", "CAP_NET_RAW", true)]
    {
        let public = Public::new(&format!("interfaces: [{{name: {INTERFACE}, mode: {mode}}}]\n"))?;
        let mut command = pair.observer.command(weir_binary()?);
        command.args(["doctor", "--json", "--config"]).arg(public.config());
        let found = diagnosis(&Ended::of(&mut command)?)?;
        let of_machine = |name: &str| -> Result<Vec<&str>> {
            let findings = list(&found["machine"])?.iter().filter(|finding| finding["name"] == name);
            Ok(findings.filter_map(|finding| finding["detail"].as_str()).collect())
        };
        let rights = of_machine("rights kept")?;
        ensure!(rights.iter().any(|right| right.starts_with(kept)), "{mode}: {rights:?}");
        ensure!(of_machine("restart")?.len() == 1 && of_machine("clock")?.len() == 1, "{found}");
        ensure!(on_interface(&found, "restart").is_ok() == has_gap, "{mode}: {found}");
        let (_, queues) = on_interface(&found, "queues")?;
        ensure!(queues.contains("receive queue"), "{queues}");
    }
    Ok(())
}

/// All addresses in a JSON value, including those of prefixes.
fn addresses(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let address = text.split_once('/').map_or(text.as_str(), |(address, _)| address);
            found.extend(address.parse::<IpAddr>().is_ok().then(|| address.to_owned()));
        }
        Value::Array(all) => all.iter().for_each(|one| addresses(one, found)),
        Value::Object(fields) => fields.values().for_each(|one| addresses(one, found)),
        _ => {}
    }
}

fn a_bundle_shows_neither_addresses_nor_secrets() -> Result<()> {
    let scratch = Scratch::new()?;
    let [socket, config, file] = ["control.sock", "weir.yaml", "bundle.json"].map(|name| scratch.file(name));
    let shared = format!("observer: {{name: core7, site: fra1}}\ncontrol: {{socket: {}}}\n", socket.display());
    let mut watch = Watch::start(&format!("report: {{interval: 15s}}\n{shared}"))?;
    watch.pair.observer.ip(&format!("link set {INTERFACE} alias Acme-uplink"))?;
    let plan = Plan { seed: 71, packets: 5_000, flows: 500, mix: Mix::odd(), ..Plan::default() };
    let sent = watch.send(plan, &mut Oracle::new())?;
    // The bundle must contain the report with the last packets; the next report comes some seconds later.
    let all_seen = || Ok((seen_on(INTERFACE, &watch.daemon.reports()?)?.packets >= sent.packets).then_some(()));
    clock::wait_for("reports of all packets", TIMEOUT, all_seen)?;
    let secrets = "hash_key: 8f3c1a7be02d4965b1fe7730c4a9d258\n\
                   networks: {acme: {prefixes: [198.51.100.0/24]}}\n\
                   sinks:\n  - {type: http, url: \"https://collector.example/path-token\", \
                   headers: {Authorization: hidden}}\n";
    fs::write(&config, format!("interfaces: [{INTERFACE}]\n{shared}{secrets}"))?;
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600))?;
    let mut command = watch.pair.observer.command(weir_binary()?);
    command.args(["doctor", "--config"]).arg(&config).arg("--bundle").arg(&file);
    let ended = Ended::of(&mut command)?;
    ended.check(0, &[])?;
    ensure!(ended.out.contains("Read it before you send it"), "{}", ended.out);
    ensure!(fs::metadata(&file)?.permissions().mode() & 0o077 == 0, "others may read it");
    let text = fs::read_to_string(&file)?;
    let bundle: Value = serde_json::from_str(&text)?;
    let shown = &bundle["report"]["interfaces"][0];
    ensure!(shown["name"] == INTERFACE && shown["alias"] == "alias-1", "{shown}");
    ensure!(list(&bundle["doctor"]["interfaces"])?.len() == 1 && list(&bundle["check"])?.len() > 20, "{text}");
    let mut known = BTreeSet::new();
    for report in &watch.daemon.reports()? {
        addresses(report, &mut known);
    }
    ensure!(text.contains("\"v4-") && text.contains("\"v6-"), "the report has no traffic: {text}");
    ensure!(known.len() > 20, "the traffic had addresses: {known:?}");
    let mac = fs::read_to_string("/sys/class/net/lo/address").unwrap_or_default();
    let others =
        ["core7", "fra1", "Acme", "acme", "198.51.100", "8f3c1a7b", "collector.example", "path-token", "hidden"];
    for secret in known.iter().map(String::as_str).chain(others).chain([mac.trim()]).filter(|text| text.len() > 2) {
        ensure!(!text.contains(secret), "{secret} is in {text}");
    }
    Ended::of(&mut command)?.check(1, &["bundle.json", "File exists"])?;
    watch.stop(Loss::None).map(drop)
}
