//! Replays in this process, through the library, and checks every report.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir::replay::{Options, Windows, replay, write_json};
use weir_config::Config;
use weir_datapath::capture::Broken;
use weir_schema::{REPORTS_KEPT, Report, Union};
use weir_tests::{
    account::{self, Loss},
    judge::judge,
};

/// Fixes the hash keys of every run.
pub const SEED: u64 = 7;

/// The result of a replay.
pub struct Replayed {
    /// The reports, in order.
    pub reports: Vec<Value>,
    /// The parts of the capture that could not be read.
    pub broken: Vec<Broken>,
}

/// Replays captures. Every report must be JSON with balanced ledgers and no losses, because a file can wait.
///
/// # Errors
///
/// The replay failed as a whole, or a report fails these checks.
pub fn run(config: &Config, files: &[PathBuf], windows: Windows, kernel: bool) -> Result<Replayed> {
    run_with(config, files, windows, kernel, SEED)
}

/// The same with other hash keys, and other random numbers.
///
/// # Errors
///
/// As for [`run`].
pub fn run_with(config: &Config, files: &[PathBuf], windows: Windows, kernel: bool, seed: u64) -> Result<Replayed> {
    let options =
        Options { files: files.to_vec(), windows, kernel, seed: Some(seed), asks: Vec::new(), progress: false };
    let mut lines = Vec::new();
    let broken = replay(config, &options, &mut |report| write_json(report, &mut lines))?;
    let reports = reports(&lines)?;
    account::check(&reports, Loss::None)?;
    judge(&reports)?;
    judge_together(&reports)?;
    Ok(Replayed { reports, broken })
}

/// Judges unions of windows as `weir report --last` shows them: from each report on, as many windows as weir keeps.
///
/// # Errors
///
/// What contradicts itself.
pub fn judge_together(reports: &[Value]) -> Result<()> {
    let parsed: Vec<Report> =
        reports.iter().map(|report| Ok(serde_json::from_value(report.clone())?)).collect::<Result<_>>()?;
    for windows in parsed.windows(REPORTS_KEPT.min(parsed.len().max(1))) {
        let union = Union::of(windows).context("no window")?;
        judge([&serde_json::to_value(union)?])?;
    }
    Ok(())
}

/// The reports that were printed, one a line.
pub fn reports(lines: &[u8]) -> Result<Vec<Value>> {
    let text = std::str::from_utf8(lines)?;
    ensure!(text.is_empty() || text.ends_with('\n'), "the last line has no end");
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))).collect()
}

/// A configuration with little memory, so that it is set up quickly and filled quickly.
pub fn small() -> Config {
    let mut config = Config::default();
    config.estimates.unique_error = 0.05;
    config.estimates.top_error = 0.01;
    config.estimates.top_candidates = 64;
    config.seen_flows.capacity = 1_000;
    config.datapath.cache_flows = Some(256);
    config.datapath.ring = Some(64 << 10);
    config.report.interval = Duration::from_secs(1);
    config
}

/// Compares reports field by field, except for the fields about the run itself.
///
/// # Errors
///
/// The fields in which they differ.
pub fn same_but_self(left: &[Value], right: &[Value]) -> Result<()> {
    ensure!(left.len() == right.len(), "{} reports, and {}", left.len(), right.len());
    let mut differences = Vec::new();
    for (nth, (left, right)) in left.iter().zip(right).enumerate() {
        let names = |value: &Value| value.as_object().map(|object| object.keys().cloned().collect::<Vec<_>>());
        ensure!(names(left) == names(right), "report {nth}: other fields");
        for (name, value) in left.as_object().context("a report is an object")? {
            if name != "self" {
                compare(&format!("{nth}.{name}"), value, &right[name], &mut differences);
            }
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

fn compare(place: &str, left: &Value, right: &Value, differences: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            for (name, value) in a.iter() {
                compare(&format!("{place}.{name}"), value, &b[name], differences);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            for (nth, (a, b)) in pairs {
                compare(&format!("{place}[{nth}]"), a, b, differences);
            }
        }
        _ if left == right => {}
        _ => differences.push(format!("{place}: {left} is {right}")),
    }
}
