//! The wall clock may be stepped while weir measures: windows stay in order, and reports note the step.

use std::{
    fs::OpenOptions,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    daemon::Daemon,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::Plan,
};

use crate::watch::{Ended, ROOMY_RINGS, TIMEOUT, Watch, config, judge, number, weir_with};

tests![a_stepped_clock_disturbs_no_window];

/// A wall clock that can be stepped, for one process.
pub struct Clock {
    scratch: Scratch,
}

impl Clock {
    /// A clock that agrees with the machine's.
    pub fn new() -> Result<Self> {
        let clock = Self { scratch: Scratch::new()? };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/clocks/stepped.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(clock.library()).arg(source);
        compiler.arg(format!("-DSTEP_FILE=\"{}\"", clock.scratch.file("step").display()));
        Ended::of(&mut compiler)?.check(0, &[])?;
        clock.set(0)?;
        Ok(clock)
    }

    /// The library to preload.
    pub fn library(&self) -> PathBuf {
        self.scratch.file("stepped.so")
    }

    /// Sets it to this many milliseconds before or after the machine's.
    pub fn set(&self, off_ms: i64) -> Result<()> {
        // The file is written in place, because the process has mapped it.
        let step = OpenOptions::new().write(true).create(true).truncate(false).open(self.scratch.file("step"))?;
        Ok(step.write_all_at(&(off_ms * 1_000_000).to_ne_bytes(), 0)?)
    }
}

/// A window's start and end.
fn times(report: &Value) -> Result<[jiff::Timestamp; 2]> {
    let time = |name: &str| -> Result<jiff::Timestamp> {
        Ok(report["window"][name].as_str().with_context(|| format!("no {name}"))?.parse()?)
    };
    Ok([time("start")?, time("end")?])
}

fn a_stepped_clock_disturbs_no_window() -> Result<()> {
    /// Where the clock is set to, one after the other: two hours back, a day forward, and twice by less than what
    /// counts as a step.
    const SET_MS: [i64; 5] = [0, -7_200_000, 79_200_000, 79_199_700, 79_200_100];
    let clock = Clock::new()?;
    let program = weir_with(&[("LD_PRELOAD", &clock.library())], &clock.scratch)?;
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{}]\nreport: {{interval: 1s}}\n{ROOMY_RINGS}", QuietPair::OBSERVER_INTERFACE);
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |reports| config(&settings, reports))?;
    daemon.wait_for_line("measuring every packet", TIMEOUT)?;
    let mut watch = Watch { pair, daemon };
    let mut oracle = Oracle::new();
    for (seed, off_ms) in (71..).zip(SET_MS) {
        clock.set(off_ms)?;
        watch.send(Plan { seed, packets: 2_000, ..Plan::default() }, &mut oracle)?;
        // Waits for the window in which the clock was stepped, and for two whole ones.
        let reported = watch.daemon.reports()?.len();
        watch.daemon.wait_for_reports(reported + 3, TIMEOUT)?;
    }
    let reports = watch.stop(Loss::None)?;
    judge("all windows together", oracle.check_reports(&reports))?;

    let mut steps = Vec::new();
    for (nth, report) in (1..).zip(&reports) {
        let [start, end] = times(report)?;
        let seconds = report["window"]["seconds"].as_f64().context("no length")?;
        ensure!(end > start && seconds > 0.0, "{}", report["window"]);
        ensure!(number(&report["observer"]["seq"])? == nth, "{} is report {nth}", report["id"]);
        steps.extend(report["window"].get("clock_step_seconds").map(Value::as_f64));
    }
    for pair in reports.windows(2) {
        let [[_, end], [start, next_end]] = [times(&pair[0])?, times(&pair[1])?];
        let is_stepped = pair[0]["window"].get("clock_step_seconds").is_some();
        ensure!(is_stepped || end == start, "{} and then {}", pair[0]["window"], pair[1]["window"]);
        // The last window is cut short by the end of weir.
        let is_aligned = next_end.subsec_nanosecond() == 0 || pair[1]["id"] == reports[reports.len() - 1]["id"];
        ensure!(is_aligned || pair[1]["window"].get("clock_step_seconds").is_some(), "{}", pair[1]["window"]);
    }
    let [Some(back), Some(forward)] = steps[..] else {
        anyhow::bail!("two steps of more than half a second, but reports have {steps:?}");
    };
    ensure!((back + 7_200.0).abs() < 0.5 && (forward - 86_400.0).abs() < 0.5, "{steps:?}");
    Ok(())
}
