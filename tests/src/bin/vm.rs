//! The checks that `scripts/vm` runs on each kernel: do the programs load, attach and count as on this machine?
//!
//! Writes a line per check, fields separated by tabs: `check`, its name, `ok` or `failed`, and a detail. The last line
//! is `checks` and how many there were. It ends with exit code 1 if one failed.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde_json::Value;
use weir_common::{ledger::Tally, packet::Tunnels};
use weir_config::Packets;
use weir_datapath::{Features, LoadedProgram, Plan, probe_tcx};
use weir_tests::{
    account::{self, Loss},
    daemon::{Daemon, weir_binary},
    inject::{self, Pace},
    netns::{Lab, QuietPair},
    object::{PLAN, load_all},
    oracle::Oracle,
    traffic::{self, Mix, Traffic},
};

/// Runs weir's checks of a kernel on the one that is running.
#[derive(Parser)]
struct Arguments {
    /// The compiled test `parser`
    parser: PathBuf,
    /// The compiled test `e2e`; without it, only the programs are checked, which is much quicker
    e2e: Option<PathBuf>,
}

/// Under emulation everything takes some thirty times as long.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The settings of `mode:` for an interface, and the mode that the report states.
const MODES: [(&str, &str); 5] =
    [("native", "xdp-native"), ("generic", "xdp-generic"), ("tcx", "tcx"), ("tc", "tc"), ("afpacket", "afpacket")];
/// Half of the verifier's limit, to leave room for changes of the programs.
const VERIFIED_MAX: u32 = 500_000;
/// The parser's trials for which test-run before Linux 5.18 is too old: they need metadata, or frames beyond a page.
const BEYOND_OLD_TEST_RUN: [&str; 3] = ["every_link_type", "cut_at_every_offset", "every_length_and_type"];
/// The end-to-end tests that run on each kernel, and the parts of names that select them.
const END_TO_END: [(&str, &str); 12] = [
    ("ledger native", "ledger::o"),
    ("ledger generic", "ledger::generic"),
    ("merged packets", "merged::"),
    ("windows under traffic", "windows::a_window_cut_while"),
    ("forwarded packets feed once", "feeds::forwarded_packets"),
    ("reload", "reload::interfaces_come"),
    ("stop", "stop::sigint"),
    ("killed", "stop::killed"),
    ("as a service", "usage::the_capabilities"),
    ("packet sockets alone", "afpacket::without_cap_bpf"),
    ("vrfs", "vrfs::"),
    ("flowtables", "offload::"),
];

/// The settings with which the programs are loaded. Each makes other code of them, with other frames on the stack.
const LOADED: [(&str, Tunnels, u32); 4] = [
    ("load", Tunnels::Outer, 1),
    ("load, inside tunnels", Tunnels::Inner, 1),
    ("load, sampling", Tunnels::Outer, 10),
    ("load, sampling inside tunnels", Tunnels::Inner, 10),
];

/// Those of which all may be ignored, because a kernel may lack what they are about.
const OPTIONAL: [&str; 1] = ["offload::"];

fn main() -> ExitCode {
    let Arguments { parser, e2e } = Arguments::parse();
    let (mut all, mut count) = (true, 0);
    let mut check = |name: &str, outcome: Result<String>| {
        let (verdict, detail) = match &outcome {
            Ok(detail) => ("ok", detail.clone()),
            Err(error) => ("failed", format!("{error:#}").replace('\n', " | ")),
        };
        all &= outcome.is_ok();
        count += 1;
        // If standard output is closed, the error cannot be reported.
        let _ = writeln!(io::stdout(), "check\t{name}\t{verdict}\t{detail}");
    };
    for (name, tunnels, packets) in LOADED {
        check(name, load(tunnels, packets));
    }
    check("doctor", doctor());
    for (mode, obtained) in MODES {
        let outcome = match (mode, probe_tcx()) {
            ("tcx", Ok(false)) => Ok("this kernel has none".to_owned()),
            _ => attach(mode, obtained),
        };
        check(&format!("attach {mode}"), outcome);
    }
    for suite in ["table", "cache", "differential"] {
        check(&format!("parser {suite}"), parser_trials(&parser, suite));
    }
    for (name, filter) in END_TO_END.iter().filter(|_| e2e.is_some()) {
        check(name, e2e.as_deref().map_or_else(|| Ok(String::new()), |e2e| trials(e2e, &[filter])));
    }
    let _ = writeln!(io::stdout(), "checks\t{count}");
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Loads every program that this kernel should accept; returns how many instructions its verifier processed for each.
fn load(tunnels: Tunnels, packets: u32) -> Result<String> {
    let loaded = load_all(&Plan { tunnels, sampling: Packets::OneIn(packets), ..PLAN })?;
    for LoadedProgram { name, verified_instructions } in &loaded {
        let count = verified_instructions.unwrap_or_default();
        ensure!(count <= VERIFIED_MAX, "{name}: {count} instructions verified are too near to the million allowed");
    }
    // Kernels before 5.16 do not report the number.
    let count = |LoadedProgram { name, verified_instructions }| match verified_instructions {
        Some(count) => format!("{name}={count}"),
        None => format!("{name}=?"),
    };
    Ok(loaded.into_iter().map(count).collect::<Vec<_>>().join(" "))
}

/// `weir doctor` must agree with the other checks that weir can measure here.
fn doctor() -> Result<String> {
    let output = Command::new(weir_binary()?).arg("doctor").output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{}\n{said}", output.status);
    let lacks = said
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("no "))
        .map(|line| line.split("  ").map(str::trim).find(|word| !word.is_empty()).unwrap_or_default());
    Ok(format!("lacks: {}", lacks.collect::<Vec<_>>().join(", ")))
}

/// Measures some odd traffic on a veth in one mode, and checks everything in the report.
fn attach(mode: &str, obtained: &str) -> Result<String> {
    let pair = Lab::quiet_pair()?;
    let interface = QuietPair::OBSERVER_INTERFACE;
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
        format!(
            "interfaces: [{{name: {interface}, mode: {mode}}}]\nreport: {{interval: 1h, first_window: 1h}}\nseen_flows: {{generation: 1h}}\n\
             sinks: [{{type: file, path: {}}}]\n",
            reports.display()
        )
    })?;
    daemon.wait_for_line("measuring every packet", TIMEOUT)?;
    let plan = traffic::Plan { seed: 5, packets: 5_000, flows: 1_000, mix: Mix::odd(), ..traffic::Plan::default() };
    let mut oracle = Oracle::new();
    let packets = Traffic::new(plan)?.inspect(|packet| oracle.add(&packet.truth));
    let sent = pair.generator.enter(|| inject::send(QuietPair::GENERATOR_INTERFACE, packets, Pace::Unlimited))??;
    weir_tests::clock::wait_for("the arrival of all packets", TIMEOUT, || {
        Ok((pair.observer.counters(interface)?.received.packets >= sent.packets).then_some(()))
    })?;
    let status = daemon.stop(TIMEOUT)?;
    ensure!(status.success(), "weir ended with {status}: {}", daemon.log()?);
    let reports = daemon.reports()?;
    account::check(&reports, Loss::None)?;
    let report = reports.last().context("no report")?;
    oracle.check_report(report).map_err(|deviations| anyhow::anyhow!(deviations.join("; ")))?;
    let there = &report["interfaces"][0];
    ensure!(there["mode"] == obtained, "the mode is {}", there["mode"]);
    let seen = seen(there)?;
    ensure!(seen == sent, "seen {seen:?} of {sent:?}");
    Ok(format!("{} packets", sent.packets))
}

fn seen(interface: &Value) -> Result<Tally> {
    let count = |unit| interface["ledger"]["seen"][unit].as_u64().with_context(|| format!("no {unit} in {interface}"));
    Ok(Tally::new(count("packets")?, count("bytes")?))
}

/// Runs the trials of one file of the parser's tests, except for those with captures.
fn parser_trials(parser: &Path, suite: &str) -> Result<String> {
    let mut skipped = vec!["captured"];
    if !Features::of_this_kernel().fragments {
        skipped.extend(BEYOND_OLD_TEST_RUN);
    }
    let skips = skipped.into_iter().flat_map(|name| ["--skip", name]);
    trials(parser, &skips.chain([suite]).collect::<Vec<_>>())
}

/// Runs the trials of a test binary that match the arguments; returns how many passed.
fn trials(binary: &Path, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(binary).args(arguments).output().with_context(|| format!("cannot run {}", binary.display()))?;
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    let result = out.lines().find_map(|line| line.strip_prefix("test result: "));
    ensure!(output.status.success(), "{}\n{}", out.trim(), err.trim());
    let result = result.context("no result")?;
    let passed = result.split(&['.', ';'][..]).nth(1).unwrap_or(result).trim();
    let is_optional = arguments.iter().any(|filter| OPTIONAL.contains(filter)) && result.contains(" ignored");
    ensure!(!passed.starts_with("0 ") || is_optional, "nothing ran: {result}");
    Ok(passed.to_owned())
}
