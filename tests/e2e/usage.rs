//! What weir says to people: the way out of every mistake, and what a configuration costs.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use weir_tests::{
    daemon::weir_binary,
    netns::{Lab, QuietPair},
    scratch::Scratch,
};

use crate::watch::{Ended, Watch, number, weir};

tests![
    without_privilege_it_says_what_it_needs,
    without_an_interface_it_says_how_to_name_one,
    a_mistake_in_the_configuration_has_a_place_and_a_remedy,
    check_prints_what_is_in_force_and_its_memory
];

fn without_privilege_it_says_what_it_needs() -> Result<()> {
    const NOBODY: u32 = 65_534;
    let pair = Lab::quiet_pair()?;
    let scratch = Scratch::new()?;
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    // Where everybody may run it, whoever may enter the directory that it was built in.
    let binary = scratch.file("weir");
    fs::copy(weir_binary()?, &binary)?;
    let config = scratch.file("weir.yaml");
    fs::write(&config, format!("interfaces: [{}]\n", QuietPair::OBSERVER_INTERFACE))?;
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644))?;
    let mut command = Command::new(&binary);
    command.arg("run").arg("--config").arg(&config).uid(NOBODY).gid(NOBODY);
    let ended = pair.observer.enter(|| Ended::of(&mut command))??;
    ended.check(3, &["not permitted to load eBPF programs: run as root, or with the capabilities CAP_BPF"])?;
    ensure!(ended.err.lines().count() == 1, "one sentence is enough:\n{}", ended.err);
    Ok(())
}

fn without_an_interface_it_says_how_to_name_one() -> Result<()> {
    let scratch = Scratch::new()?;
    let config = scratch.file("weir.yaml");
    fs::write(&config, "interfaces: []\n")?;
    let ended = weir(&["run", "--config", &config.display().to_string()])?;
    ended.check(2, &["no interface to measure", "--interface eth0", "interfaces:"])
}

fn a_mistake_in_the_configuration_has_a_place_and_a_remedy() -> Result<()> {
    let scratch = Scratch::new()?;
    let config = scratch.file("weir.yaml");
    fs::write(&config, "interfaces: [eth0]\nreport:\n  intervall: 10s\n  top: 1000\n")?;
    let path = config.display().to_string();
    for command in ["run", "check"] {
        let ended = weir(&[command, "--config", &path])?;
        let typo = format!("{path}:3:3: ");
        let limit = format!("{path}:4:8: ");
        ended.check(2, &[&typo, "intervall", "did you mean", "interval", &limit, "1000"])?;
    }
    let missing = scratch.file("missing.yaml").display().to_string();
    weir(&["check", "--config", &missing])?.check(2, &[&missing, "No such file"])
}

fn check_prints_what_is_in_force_and_its_memory() -> Result<()> {
    let scratch = Scratch::new()?;
    let config = scratch.file("weir.yaml");
    fs::write(&config, "report: {interval: 1s, top: 7}\nhash_key: \"00112233445566778899aabbccddeeff\"\n")?;
    let ended = weir(&["check", "--config", &config.display().to_string()])?;
    ended.check(0, &[])?;
    for part in ["interval: 1s", "top: 7", "cache_flows: 4096"] {
        ensure!(ended.out.contains(part), "\"{part}\" is not in:\n{}", ended.out);
    }
    ensure!(!ended.out.contains("00112233"), "the key is shown:\n{}", ended.out);

    // What it says about the defaults is what the running daemon plans with, to the unit that it prints.
    let empty = scratch.file("empty.yaml");
    fs::write(&empty, "sinks: [{type: file, path: /dev/null}]\n")?;
    let checked = weir(&["check", "--config", &empty.display().to_string()])?;
    checked.check(0, &[])?;
    let line = checked.out.lines().find(|line| line.trim_start().starts_with("resident, at most"));
    let said = line.with_context(|| format!("no memory in:\n{}", checked.out))?;
    let reports = Watch::start("")?.stop()?;
    let planned = number(&reports[0]["self"]["memory_bytes"])? as f64 / f64::from(1 << 20);
    ensure!(said.contains(&format!(" {planned:.1} MiB ")), "{planned:.1} MiB are planned, but it said:\n{said}");
    Ok(())
}
