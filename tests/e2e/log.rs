//! The log in the form that its reader needs: text, JSON, or lines for systemd's journal.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    daemon::{Daemon, weir_binary},
    netns::{Lab, QuietPair},
    scratch::Scratch,
};

use crate::watch::{Ended, TIMEOUT, config, measure, stop, weir};

tests![
    the_journal_gets_priorities,
    json_is_an_object_a_line_and_names_cannot_forge_one,
    a_format_that_is_none_is_refused,
    a_failure_that_lasts_is_logged_when_it_begins_and_when_it_is_over
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// A script that runs weir with a variable in its environment; `variable` is in shell syntax.
fn weir_with(variable: &str, scratch: &Scratch) -> Result<PathBuf> {
    let script = format!("#!/bin/sh\n{variable} exec '{}' \"$@\"\n", weir_binary()?.canonicalize()?.display());
    scratch.script(&script, "weir", 0o700)
}

fn the_journal_gets_priorities() -> Result<()> {
    let (pair, scratch) = (Lab::quiet_pair()?, Scratch::new()?);
    // This is how systemd identifies the file of standard error.
    let program = weir_with("JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2)", &scratch)?;
    // The second interface does not exist, which is a warning.
    let settings = format!("interfaces: [{INTERFACE}, absent0]\n");
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |reports| config(&settings, reports))?;
    daemon.wait_for_line("<6>measuring ", TIMEOUT)?;
    stop(&mut daemon, Loss::None)?;
    let log = daemon.log()?;
    for line in log.lines() {
        let text = ["<3>", "<4>", "<6>"].iter().find_map(|priority| line.strip_prefix(priority));
        let text = text.with_context(|| format!("no priority: {line:?}"))?;
        ensure!(!text.contains('\u{1b}') && !text.starts_with("20"), "colours, or a time: {line:?}");
    }
    ensure!(log.lines().any(|line| line.starts_with("<4>") && line.contains("absent0")), "{log}");
    Ok(())
}

fn json_is_an_object_a_line_and_names_cannot_forge_one() -> Result<()> {
    const NAME: &str = "w\u{202e}\u{1b}[2J0";
    let (pair, scratch) = (Lab::quiet_pair()?, Scratch::new()?);
    pair.observer.ip(&format!("link set {INTERFACE} down"))?;
    pair.observer.ip(&format!("link set {INTERFACE} name {NAME}"))?;
    pair.observer.ip(&format!("link set {NAME} up"))?;
    let program = weir_with("WEIR_LOG_FORMAT=json", &scratch)?;
    let mut daemon =
        Daemon::start_program(&program, Some(&pair.observer), |reports| config("interfaces: [\"w*\"]\n", reports))?;
    daemon.wait_for_line("\"measuring ", TIMEOUT)?;
    stop(&mut daemon, Loss::None)?;
    let log = daemon.log()?;
    ensure!(!log.contains('\u{202e}') && !log.contains('\u{1b}'), "{log:?}");
    let lines: Result<Vec<Value>, _> = log.lines().map(serde_json::from_str).collect();
    let lines = lines.with_context(|| log.clone())?;
    for line in &lines {
        let text = |name: &str| line[name].as_str().with_context(|| format!("no {name}: {line}"));
        text("time")?.parse::<jiff::Timestamp>()?;
        ensure!(["info", "warn", "error"].contains(&text("level")?), "{line}");
        ensure!(!text("message")?.is_empty() && line["fields"].is_object(), "{line}");
    }
    ensure!(lines.iter().any(|line| line["fields"]["interface"] == NAME), "{log}");
    Ok(())
}

fn a_format_that_is_none_is_refused() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut command = std::process::Command::new(weir_with("WEIR_LOG_FORMAT=xml", &scratch)?);
    Ended::of(command.args(["run", "--interface", "lo"]))?.check(2, &["WEIR_LOG_FORMAT=xml", "plain, json or auto"])?;
    weir(&["run", "--log-format", "xml"])?.check(2, &["possible values", "json"])
}

/// At the limit of open files, a task that weir repeats each second fails each second.
fn a_failure_that_lasts_is_logged_when_it_begins_and_when_it_is_over() -> Result<()> {
    /// Enough windows for weir to repeat the task several times.
    const WINDOWS: usize = 6;
    let pair = Lab::quiet_pair()?;
    let mut daemon = measure(&pair.observer, &format!("interfaces: [{INTERFACE}]\nreport: {{interval: 1s}}\n"))?;
    let reported = daemon.wait_for_reports(1, TIMEOUT)?.len();
    let pid = Pid::from_raw(daemon.pid().try_into()?).context("no process")?;
    let before = getrlimit(Resource::Nofile);
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(3), maximum: before.maximum })?;
    let failure = daemon.wait_for_line("cannot see which CPUs came or went: ", TIMEOUT)?;
    ensure!(failure.contains("Too many open files"), "no cause: {failure}");
    let reports = daemon.wait_for_reports(reported + WINDOWS, TIMEOUT)?;
    let last = &reports[reports.len() - 1]["self"];
    ensure!(last["rss_bytes"].is_null() && last["memory_bytes"].is_u64(), "it cannot know what it occupies: {last}");
    let mut lines: Vec<_> = daemon.log()?.lines().filter(|line| line.contains("cannot ")).map(without_time).collect();
    let all = lines.len();
    lines.sort();
    lines.dedup();
    ensure!(all == lines.len() && all > 0, "the same failure is logged again:\n{}", daemon.log()?);
    prlimit(Some(pid), Resource::Nofile, before)?;
    daemon.wait_for_line("weir can see which CPUs came or went again", TIMEOUT)?;
    stop(&mut daemon, Loss::None).map(drop)
}

/// A line of the log without its first word.
fn without_time(line: &str) -> String {
    line.split_once(' ').map_or(line, |(_, rest)| rest).to_owned()
}
