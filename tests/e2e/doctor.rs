//! What `weir doctor` says agrees with what `weir run` can do, and it attaches nothing to find out.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    daemon::weir_binary,
    netns::{Lab, QuietPair},
};

use crate::{
    usage::{NOBODY, Public},
    watch::{Ended, Watch, has_program, list, number, weir},
};

tests![
    root_may_measure_and_nothing_is_attached,
    each_capability_that_lacks_is_named,
    an_interface_that_is_taken_is_told_with_the_program,
    an_interface_that_is_not_there_is_told_with_those_that_are,
    native_mode_that_is_not_to_be_had_matters_where_it_was_asked_for,
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

/// What was found under this name on the only interface.
fn on_interface<'a>(diagnosis: &'a Value, name: &str) -> Result<(&'a str, &'a str)> {
    let finding = list(&diagnosis["interfaces"][0]["findings"])?.iter().find(|finding| finding["name"] == name);
    let finding = finding.with_context(|| format!("nothing about {name} in {diagnosis}"))?;
    Ok((finding["answer"].as_str().context("no answer")?, finding["detail"].as_str().context("no detail")?))
}

/// Its one line of JSON, with an exit code that agrees with it.
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

fn an_interface_that_is_taken_is_told_with_the_program() -> Result<()> {
    let watch = Watch::start("")?;
    for (mode, expected) in [("native", &["what it receives"][..]), ("generic", &["what it receives"]), ("tcx", &[])] {
        let public = Public::new(&format!("interfaces: [{{name: {INTERFACE}, mode: {mode}}}]\n"))?;
        let mut command = watch.pair.observer.command(weir_binary()?);
        command.args(["doctor", "--json", "--config"]).arg(public.config());
        let found = diagnosis(&Ended::of(&mut command)?)?;
        ensure!(forbidding(&found)? == expected, "{mode}: {found}");
        let (_, detail) = on_interface(&found, "free for XDP")?;
        ensure!(detail.contains("weir is there already: program ") && detail.ends_with(", native"), "{detail}");
    }
    ensure!(has_program(&watch.pair.observer, INTERFACE)?, "the program is gone");
    watch.stop(Loss::None).map(drop)
}

fn an_interface_that_is_not_there_is_told_with_those_that_are() -> Result<()> {
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
