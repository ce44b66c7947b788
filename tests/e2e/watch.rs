//! Shared by the tests: weir on a quiet link, traffic for it, and the check of each report's ledger.

use std::{
    collections::BTreeSet,
    fmt::Display,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context, Result, anyhow, ensure};
use jsonschema::Validator;
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account::{self, Ledger, Loss, tally},
    daemon::{Daemon, Signal, weir_binary},
    inject::Pace,
    judge,
    netns::{Lab, Namespace, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Plan, Traffic},
};

pub use weir_tests::quiet::{ONE_WINDOW, QUIET_LINK, TIMEOUT, one_window, send};

/// Rings with room for a million records each. A test that sends no more than that loses none, however long the daemon
/// has to wait for a CPU on a busy machine.
pub const ROOMY_RINGS: &str = "datapath: {ring: 64MiB}\n";
/// The same for packet sockets: room for some hundred thousand packets.
pub const ROOMY_PACKET_RINGS: &str = "datapath: {packet_ring: 64MiB}\n";
/// The setting of the shortest windows.
pub const INTERVAL: &str = "report: {interval: 1s}\n";

/// weir on the observer's end of a quiet link.
pub struct Watch {
    /// The link whose observer weir measures.
    pub pair: QuietPair,
    /// The daemon, which measures and reports to its file.
    pub daemon: Daemon,
}

impl Watch {
    /// Makes a link and starts weir with these settings, which name no interfaces and no sinks. weir measures the link
    /// with native XDP, as it does with network cards.
    pub fn start(settings: &str) -> Result<Self> {
        let pair = Lab::quiet_pair()?;
        let daemon =
            measure(&pair.observer, &format!("interfaces: [{}]\n{settings}", native(QuietPair::OBSERVER_INTERFACE)))?;
        Ok(Self { pair, daemon })
    }

    /// Like [`Watch::start`], with a single window that is still open when the test ends.
    pub fn one_window(settings: &str) -> Result<Self> {
        one_window();
        Self::start(&format!("{ONE_WINDOW}{settings}"))
    }

    /// Sends a plan's packets as fast as possible, records each in the oracle, and waits until all have arrived.
    pub fn send(&self, plan: Plan, oracle: &mut Oracle) -> Result<Tally> {
        send(&self.pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, oracle)
    }

    /// Stops weir and returns all its reports: see [`stop`].
    pub fn stop(mut self, loss: Loss) -> Result<Vec<Value>> {
        stop(&mut self.daemon, loss)
    }
}

/// The configuration of an interface with native XDP, which weir does not choose by itself on a veth.
pub fn native(interface: &str) -> String {
    format!("{{name: {interface}, mode: native}}")
}

/// Starts weir with these settings, which name no sinks, and returns when it measures.
pub fn measure(namespace: &Namespace, settings: &str) -> Result<Daemon> {
    let mut daemon = Daemon::start(Some(namespace), |reports| config(settings, reports))?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    Ok(daemon)
}

/// How often a test repeats its work, if `scripts/soak` sets it.
pub fn times() -> Option<u32> {
    std::env::var("WEIR_TIMES").ok()?.parse().ok()
}

/// A program that runs weir with these variables in its environment, as a script in `scratch`.
pub fn weir_with(variables: &[(&str, &Path)], scratch: &Scratch) -> Result<PathBuf> {
    let weir = weir_binary()?.canonicalize()?;
    let variables: String = variables.iter().map(|(name, value)| format!("{name}='{}' ", value.display())).collect();
    let script = format!("#!/bin/sh\n{variables}exec '{}' \"$@\"\n", weir.display());
    scratch.script(&script, "weir", 0o700)
}

/// The ids of the reports that wait on disk for the sink of this type. Other spools are left out: a report in there may
/// have been only half written for this sink when weir was killed.
pub fn waiting(state: &Scratch, kind: &str) -> Result<BTreeSet<String>> {
    let mut command = Command::new(weir_binary()?);
    let listed = Ended::of(command.args(["spool", "ls", "--json", "--path"]).arg(state.file("spool")))?;
    listed.check(0, &[])?;
    let items = listed.out.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let prefix = format!("{kind}-");
    let is_for_sink = |item: &&Value| item["sink"].as_str().is_some_and(|sink| sink.starts_with(&prefix));
    items.iter().filter(is_for_sink).map(|item| item["id"].as_str().map(str::to_owned).context("an id")).collect()
}

/// A configuration that reports to a file; more sinks may be appended to it, a line each.
pub fn config(settings: &str, reports: &Path) -> String {
    format!("{settings}\nsinks:\n  - {{type: file, path: {}}}\n", reports.display())
}

/// Stops a daemon and returns all its reports, which [`check_accounts`] checks.
pub fn stop(daemon: &mut Daemon, loss: Loss) -> Result<Vec<Value>> {
    end(daemon, Signal::TERM, loss)
}

/// Ends the daemon by another signal.
pub fn end(daemon: &mut Daemon, signal: Signal, loss: Loss) -> Result<Vec<Value>> {
    daemon.signal(signal)?;
    let status = daemon.wait(TIMEOUT)?;
    ensure!(status.success(), "weir ended with {status}\n{}", daemon.log()?);
    let reports = daemon.reports()?;
    check_accounts(&reports, loss).with_context(|| format!("weir wrote:\n{}", daemon.log().unwrap_or_default()))?;
    Ok(reports)
}

/// Checks reports against the schema that weir prints, the ledger of each interface against its identity, and losses
/// against what the test allows. Returns the sums.
pub fn check_accounts(reports: &[Value], loss: Loss) -> Result<Ledger> {
    let validator = validator()?;
    for report in reports {
        let id = &report["id"];
        let errors: Vec<_> =
            validator.iter_errors(report).map(|error| format!("{}: {error}", error.instance_path())).collect();
        ensure!(errors.is_empty(), "report {id} does not keep to the schema:\n{}", errors.join("\n"));
    }
    judge::judge(reports)?;
    account::check(reports, loss)
}

/// The packets that weir saw the interface receive, over all these reports.
pub fn seen_on(interface: &str, reports: &[Value]) -> Result<Tally> {
    let interfaces: Result<Vec<_>> = reports.iter().map(|report| list(&report["interfaces"])).collect();
    let interfaces = interfaces?.into_iter().flatten().filter(|candidate| candidate["name"] == interface);
    interfaces.map(|interface| tally(&interface["ledger"]["seen"])).sum_tallies()
}

/// Returns the packets of one direction of the interface.
pub fn seen_in(interface: &str, direction: &str, reports: &[Value]) -> Result<Tally> {
    let interfaces: Result<Vec<_>> = reports.iter().map(|report| list(&report["interfaces"])).collect();
    let interfaces = interfaces?.into_iter().flatten();
    let chosen = interfaces.filter(|one| one["name"] == interface && one["direction"] == direction);
    chosen.map(|one| tally(&one["ledger"]["seen"])).sum_tallies()
}

/// An interface's modes, in the order of the reports.
pub fn modes<'a>(interface: &str, reports: &'a [Value]) -> Vec<&'a str> {
    let interfaces = reports.iter().filter_map(|report| report["interfaces"].as_array()).flatten();
    interfaces
        .filter(|candidate| candidate["name"] == interface)
        .filter_map(|interface| interface["mode"].as_str())
        .collect()
}

/// The elements of a list.
pub fn list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().with_context(|| format!("{value} is not a list"))
}

/// Reads a count.
pub fn number(value: &Value) -> Result<u64> {
    value.as_u64().with_context(|| format!("{value} is not a number from 0 up"))
}

/// Adds up tallies of which some may be missing.
pub trait SumTallies {
    /// The sum, or the first that is missing.
    fn sum_tallies(self) -> Result<Tally>;
}

impl<I: Iterator<Item = Result<Tally>>> SumTallies for I {
    fn sum_tallies(mut self) -> Result<Tally> {
        self.try_fold(Tally::default(), |mut sum, tally| {
            sum.add(tally?);
            Ok(sum)
        })
    }
}

/// An oracle's judgement as an error with a line for each deviation.
pub fn judge(about: impl Display, judgement: Result<(), Vec<String>>) -> Result<()> {
    judgement.map_err(|deviations| anyhow!("{about}: {} deviations:\n{}", deviations.len(), deviations.join("\n")))
}

/// Returns true if there is an XDP program on the interface.
pub fn has_program(namespace: &Namespace, interface: &str) -> Result<bool> {
    let shown: Value = serde_json::from_str(&namespace.ip(&format!("-d -j link show dev {interface}"))?)?;
    Ok(shown[0].get("xdp").is_some())
}

/// Runs weir to its end, outside of any namespace.
pub fn weir(arguments: &[&str]) -> Result<Ended> {
    Ended::of(Command::new(weir_binary()?).args(arguments))
}

/// How a command ended.
pub struct Ended {
    /// The exit code of the command.
    pub code: Option<i32>,
    /// The text that it wrote to standard output.
    pub out: String,
    /// The text that it wrote to standard error.
    pub err: String,
}

impl Ended {
    /// Runs a command to its end.
    pub fn of(command: &mut Command) -> Result<Self> {
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok(Self { code: output.status.code(), out, err })
    }

    /// Checks the exit code, and that the standard error contains these parts.
    pub fn check(&self, code: i32, parts: &[&str]) -> Result<()> {
        let Self { code: actual, out, err } = self;
        ensure!(*actual == Some(code), "it ended with {actual:?} and not with {code}; it wrote:\n{err}{out}");
        for part in parts {
            ensure!(err.contains(part), "it did not write \"{part}\" but:\n{err}");
        }
        Ok(())
    }
}

/// The validator of the schema that `weir schema report` prints.
fn validator() -> Result<&'static Validator> {
    static MADE: OnceLock<Result<Validator, String>> = OnceLock::new();
    let make = || {
        let printed = weir(&["schema", "report"])?;
        printed.check(0, &[])?;
        let schema = serde_json::from_str(&printed.out).context("`weir schema report` printed no JSON")?;
        jsonschema::draft202012::options()
            .should_validate_formats(true)
            .build(&schema)
            .map_err(|error| anyhow!("`weir schema report` printed no JSON Schema: {error}"))
    };
    MADE.get_or_init(|| make().map_err(|error| format!("{error:#}"))).as_ref().map_err(|error| anyhow!("{error}"))
}
