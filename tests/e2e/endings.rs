//! Which events end weir, which do not, and what it remembers of its last report at the next start.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ExitStatus, Stdio},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, kill_process};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    daemon::{Daemon, Signal, weir_binary},
    netns::{Lab, QuietPair},
    scratch::Scratch,
};

use crate::watch::{Ended, TIMEOUT, check_accounts, config, has_program, number, stop, weir_with};

tests![
    a_hangup_does_not_end_it,
    without_a_reader_it_ends_and_says_why,
    without_a_reader_the_other_sinks_go_on,
    numbers_go_on_after_every_end,
    two_daemons_do_not_share_numbers,
    a_torn_state_is_no_reason_to_stop
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
/// The exit code after a failure while running.
const BROKEN: i32 = 1;

fn settings() -> String {
    format!("interfaces: [{INTERFACE}]\nreport: {{interval: 1s}}\n")
}

fn a_hangup_does_not_end_it() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| config(&settings(), reports))?;
    daemon.wait_for_line("measuring every packet", TIMEOUT)?;
    for nth in 1..=2 {
        daemon.signal(Signal::HUP)?;
        let said = || Ok((daemon.log()?.matches("asked_by=\"SIGHUP\"").count() == nth).then_some(()));
        clock::wait_for("a line about each hangup", TIMEOUT, said)
            .with_context(|| format!("weir wrote:\n{}", daemon.log().unwrap_or_default()))?;
        let reported = daemon.reports()?.len();
        daemon.wait_for_reports(reported + 1, TIMEOUT)?;
    }
    stop(&mut daemon, Loss::None).map(drop)
}

/// weir with its standard output in a pipe that was closed after the first report; killed on drop.
struct Unread {
    child: Child,
    scratch: Scratch,
}

impl Unread {
    fn start(pair: &QuietPair, config: impl FnOnce(&Path) -> String) -> Result<Self> {
        let scratch = Scratch::new()?;
        let path = scratch.file("weir.yaml");
        fs::write(&path, config(&scratch.file("reports.ndjson")))?;
        let mut command = pair.observer.command(weir_binary()?);
        command.args(["run", "--config"]).arg(path).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.stderr(File::create(scratch.file("log"))?).spawn().context("cannot start weir")?;
        let mut unread = Self { child, scratch };
        let mut line = String::new();
        BufReader::new(unread.child.stdout.take().context("piped")?).read_line(&mut line)?;
        check_accounts(&[serde_json::from_str(&line)?], Loss::None)?;
        Ok(unread)
    }

    fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.scratch.file("log"))?)
    }

    fn wait(&mut self) -> Result<ExitStatus> {
        let ended = clock::wait_for("the end of weir", TIMEOUT, || Ok(self.child.try_wait()?));
        ended.with_context(|| self.log().unwrap_or_default())
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn without_a_reader_it_ends_and_says_why() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let mut weir = Unread::start(&pair, |_| settings())?;
    let (status, log) = (weir.wait()?, weir.log()?);
    ensure!(status.code() == Some(BROKEN), "it ended with {status}:\n{log}");
    let last = log.lines().last().unwrap_or_default();
    for part in ["no sink accepts reports any more", "stdout", "Broken pipe", "sinks:"] {
        ensure!(last.contains(part), "\"{part}\" is not in the last line:\n{log}");
    }
    ensure!(!has_program(&pair.observer, INTERFACE)?, "a program is left on {INTERFACE}");
    Ok(())
}

fn without_a_reader_the_other_sinks_go_on() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let mut weir = Unread::start(&pair, |reports| config(&settings(), reports) + "  - {type: stdout}\n")?;
    let reports = weir.scratch.file("reports.ndjson");
    let goes_on = |log: &str| {
        let mut lines = log.lines().filter(|line| line.contains("weir goes on"));
        lines.any(|line| line.contains(&format!("file:{}", reports.display())))
    };
    clock::wait_for("a line that says where reports go", TIMEOUT, || Ok(goes_on(&weir.log()?).then_some(())))
        .with_context(|| weir.log().unwrap_or_default())?;
    let written = || fs::read_to_string(&reports).map(|text| text.lines().count());
    let before = written()?;
    clock::wait_for("two more reports", TIMEOUT, || Ok((written()? > before + 1).then_some(())))?;
    kill_process(Pid::from_child(&weir.child), Signal::TERM)?;
    let status = weir.wait()?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

/// Runs weir with this state directory, until it has written `count` reports.
fn run(pair: &QuietPair, state: &Path, count: usize) -> Result<Daemon> {
    let scratch = Scratch::new()?;
    let program = weir_with(&[("STATE_DIRECTORY", state)], &scratch)?;
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |reports| config(&settings(), reports))?;
    daemon.wait_for_reports(count, TIMEOUT)?;
    Ok(daemon)
}

fn numbers_go_on_after_every_end() -> Result<()> {
    let (pair, state) = (Lab::quiet_pair()?, Scratch::new()?);
    let mut reports = Vec::new();
    for signal in [Signal::TERM, Signal::KILL, Signal::INT] {
        let mut daemon = run(&pair, state.path(), 2)?;
        daemon.signal(signal)?;
        daemon.wait(TIMEOUT)?;
        reports.extend(daemon.reports()?);
    }
    check_accounts(&reports, Loss::None)?;
    let ids: BTreeSet<_> = reports.iter().map(|report| report["id"].to_string()).collect();
    ensure!(ids.len() == reports.len(), "an id is there twice");
    ensure!(reports[0].get("previous").is_none(), "the first report names {}", reports[0]["previous"]);
    let (mut runs, mut lost) = (0, 0);
    for pair in reports.windows(2) {
        let [before, after] = [0, 1].map(|nth| &pair[nth]["observer"]);
        let step = number(&after["seq"])? - number(&before["seq"])?;
        runs += u32::from(before["boot_id"] != after["boot_id"]);
        // A report that had a number but was not sent when weir was killed is missing, and the gap is visible.
        ensure!(
            (step == 1) == (pair[1]["previous"] == pair[0]["id"]) && (1..=2).contains(&step),
            "{} and then {} after {}",
            pair[0]["id"],
            pair[1]["id"],
            pair[1]["previous"]
        );
        lost += step - 1;
    }
    ensure!(runs == 2 && lost <= 1, "{} runs, of which {lost} reports were lost by one SIGKILL", runs + 1);
    Ok(())
}

fn two_daemons_do_not_share_numbers() -> Result<()> {
    let (pair, state) = (Lab::quiet_pair()?, Scratch::new()?);
    let mut first = run(&pair, state.path(), 2)?;
    // Another link, because the first one's hook is taken.
    let other = Lab::quiet_pair()?;
    let scratch = Scratch::new()?;
    let program = weir_with(&[("STATE_DIRECTORY", state.path())], &scratch)?;
    // If the second weir started, it would never end.
    let mut second = other.observer.command("timeout");
    let ended = Ended::of(second.arg("60").arg(program).args(["run", "--interface", INTERFACE]))?;
    let why = format!("{} is in use by the weir with process id {}", state.path().display(), first.pid());
    ended.check(3, &[&why])?;
    ensure!(!has_program(&other.observer, INTERFACE)?, "a program is left on {INTERFACE}");
    let kept = stop(&mut first, Loss::None)?;
    let last = kept.last().context("there are reports")?;
    let next = stop(&mut run(&pair, state.path(), 1)?, Loss::None)?;
    ensure!(next[0]["previous"] == last["id"], "{} after {}", next[0]["previous"], last["id"]);
    Ok(())
}

fn a_torn_state_is_no_reason_to_stop() -> Result<()> {
    let (pair, state) = (Lab::quiet_pair()?, Scratch::new()?);
    stop(&mut run(&pair, state.path(), 1)?, Loss::None)?;
    let mut kept = fs::read_dir(state.path())?.filter_map(|entry| Some(entry.ok()?.path()));
    let kept = kept.find(|path| path.extension().is_some_and(|extension| extension == "json"));
    let kept = kept.context("nothing was kept")?;
    let whole = fs::read(&kept)?;
    fs::write(&kept, &whole[..whole.len() / 2])?;
    let mut daemon = run(&pair, state.path(), 1)?;
    daemon.wait_for_line(&kept.display().to_string(), TIMEOUT)?;
    let reports: Vec<Value> = stop(&mut daemon, Loss::None)?;
    ensure!(reports[0]["observer"]["seq"] == 1 && reports[0].get("previous").is_none(), "{}", reports[0]["id"]);
    let next = stop(&mut run(&pair, state.path(), 1)?, Loss::None)?;
    ensure!(next[0]["previous"] == reports[reports.len() - 1]["id"], "{}", next[0]["previous"]);
    Ok(())
}
