//! A stuck worker, CPU or pipe does not stop reports. Late packets are in a later report.

use std::{
    fs::{self, File},
    io::Write,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::{
    sys::{
        ptrace,
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    daemon::{Signal, weir_binary},
    netns::{Lab, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::Plan,
};

use crate::{
    cpus::{check_numbers, send_on},
    reload::wait_until_in_force,
    watch::{INTERVAL, ROOMY_RINGS, TIMEOUT, Watch, check_accounts, config, judge, native, seen_on},
};

alone![a_real_time_task_that_takes_a_cpu_delays_no_report];
tests![
    a_worker_that_gets_no_time_delays_no_report,
    a_reload_while_a_worker_gets_no_time_loses_no_packet,
    a_worker_that_gets_no_time_before_the_end_is_reported,
    a_daemon_that_was_stopped_goes_on_where_it_was,
    a_log_without_a_reader_delays_no_report,
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// The threads of a process whose names begin like this.
fn threads(pid: u32, name: &str) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        if fs::read_to_string(path.join("comm"))?.starts_with(name) {
            found.push(path.file_name().and_then(|tid| tid.to_str()).context("a thread without a number")?.parse()?);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The workers' threads. A new thread has its name only once it runs.
fn workers(watch: &Watch) -> Result<Vec<i32>> {
    let named = || Ok(Some(threads(watch.daemon.pid(), "weir-worker")?).filter(|all| !all.is_empty()));
    clock::wait_for("the workers", TIMEOUT, named)
}

/// One thread of another process that is stopped until this is dropped. It must be dropped by the thread that created
/// it.
struct StoppedThread(Pid);

impl StoppedThread {
    fn new(tid: i32) -> Result<Self> {
        let tid = Pid::from_raw(tid);
        ptrace::seize(tid, ptrace::Options::empty())?;
        let held = Self(tid);
        ptrace::interrupt(tid)?;
        waitpid(tid, Some(WaitPidFlag::__WALL))?;
        Ok(held)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // It fails only for a thread that has ended.
        let _ = ptrace::detach(self.0, None);
    }
}

fn late(reports: &[Value]) -> usize {
    reports.iter().filter(|report| report["self"]["late_cpus"].as_array().is_some_and(|cpus| !cpus.is_empty())).count()
}

fn a_worker_that_gets_no_time_delays_no_report() -> Result<()> {
    let mut watch = Watch::start(&format!("{INTERVAL}{ROOMY_RINGS}"))?;
    let mut oracle = Oracle::new();
    let plan = |seed| Plan { seed, packets: 5_000, flows: 2_000, ..Plan::default() };
    for (seed, worker) in (0..).zip(workers(&watch)?) {
        let held = StoppedThread::new(worker)?;
        for cpu in 0..2 {
            send_on(cpu, &watch, plan(51 + 2 * seed + u64::from(cpu)), &mut oracle)?;
        }
        // Several windows end without the worker.
        let reported = watch.daemon.reports()?.len();
        watch.daemon.wait_for_reports(reported + 4, TIMEOUT)?;
        drop(held);
        let reported = watch.daemon.reports()?.len();
        watch.daemon.wait_for_reports(reported + 3, TIMEOUT)?;
    }
    let reports = watch.stop(Loss::None)?;
    ensure!(late(&reports) >= 3, "only {} of {} reports name a late CPU", late(&reports), reports.len());
    ensure!(late(&reports[reports.len() - 1..]) == 0, "a CPU is still late at the end");
    check_numbers(&reports)?;
    judge("all windows together", oracle.check_reports(&reports))
}

/// The log line after weir has read another configuration.
const VALID: &str = "the configuration is valid";

/// Records that a worker has in its sketches cannot be added to sketches of other views. So the views change when the
/// worker is there again.
fn a_reload_while_a_worker_gets_no_time_loses_no_packet() -> Result<()> {
    let mut watch = Watch::start(&format!("{INTERVAL}{ROOMY_RINGS}"))?;
    let mut oracle = Oracle::new();
    let plan = |seed| Plan { seed, packets: 5_000, flows: 2_000, ..Plan::default() };
    for (nth, worker) in (0..).zip(workers(&watch)?) {
        for cpu in 0..2 {
            send_on(cpu, &watch, plan(81 + 4 * nth + u64::from(cpu)), &mut oracle)?;
        }
        let held = StoppedThread::new(worker)?;
        let rows = 20 + nth;
        let settings = format!(
            "interfaces: [{}]\nreport: {{interval: 1s, top: {rows}}}\n{ROOMY_RINGS}control: {{socket: none}}\n",
            native(INTERFACE)
        );
        let directory = watch.daemon.directory();
        fs::write(directory.join("weir.yaml"), config(&settings, &directory.join("reports.ndjson")))?;
        watch.daemon.signal(Signal::HUP)?;
        let is_read = || Ok((watch.daemon.log()?.matches(VALID).count() > nth as usize).then_some(()));
        clock::wait_for("the new configuration", TIMEOUT, is_read)?;
        for cpu in 0..2 {
            send_on(cpu, &watch, plan(83 + 4 * nth + u64::from(cpu)), &mut oracle)?;
        }
        // Several windows end without the worker.
        let reported = watch.daemon.reports()?.len();
        watch.daemon.wait_for_reports(reported + 3, TIMEOUT)?;
        drop(held);
        wait_until_in_force(&watch.daemon, 1 + nth as usize)?;
        let reported = watch.daemon.reports()?.len();
        watch.daemon.wait_for_reports(reported + 2, TIMEOUT)?;
    }
    let reports = watch.stop(Loss::None)?;
    ensure!(late(&reports) >= 2, "only {} of {} reports name a late CPU", late(&reports), reports.len());
    check_numbers(&reports)?;
    judge("all windows together", oracle.check_reports(&reports))
}

fn a_worker_that_gets_no_time_before_the_end_is_reported() -> Result<()> {
    let mut watch = Watch::start(&format!("{INTERVAL}{ROOMY_RINGS}"))?;
    let mut oracle = Oracle::new();
    let plan = |seed| Plan { seed, packets: 5_000, flows: 2_000, ..Plan::default() };
    let held = StoppedThread::new(*workers(&watch)?.first().context("there is no worker")?)?;
    for cpu in 0..2 {
        send_on(cpu, &watch, plan(91 + u64::from(cpu)), &mut oracle)?;
    }
    let reported = watch.daemon.reports()?.len();
    watch.daemon.wait_for_reports(reported + 2, TIMEOUT)?;
    watch.daemon.signal(Signal::TERM)?;
    watch.daemon.wait_for_line("stopping: closing and reporting the last window", TIMEOUT)?;
    drop(held);
    ensure!(watch.daemon.wait(TIMEOUT)?.success(), "weir wrote:\n{}", watch.daemon.log()?);
    let reports = watch.daemon.reports()?;
    check_accounts(&reports, Loss::None)?;
    check_numbers(&reports)?;
    judge("all windows together", oracle.check_reports(&reports))
}

fn a_real_time_task_that_takes_a_cpu_delays_no_report() -> Result<()> {
    let mut watch = Watch::start(&format!("{INTERVAL}{ROOMY_RINGS}"))?;
    let mut oracle = Oracle::new();
    let mut sent = send_on(1, &watch, Plan { seed: 61, ..Plan::default() }, &mut oracle)?;
    let reported = watch.daemon.reports()?.len();
    let mut spinner = Command::new("timeout")
        .args(["4", "taskset", "-c", "1", "chrt", "-f", "50", "sh", "-c", "while :; do :; done"])
        .spawn()
        .context("cannot start a spinner")?;
    let reports = watch.daemon.wait_for_reports(reported + 3, TIMEOUT);
    spinner.wait()?;
    let reports = reports?;
    ensure!(seen_on(INTERFACE, &reports)? == sent, "the packets of the CPU that was taken are not reported");
    sent.add(send_on(1, &watch, Plan { seed: 62, ..Plan::default() }, &mut oracle)?);
    let reports = watch.stop(Loss::None)?;
    ensure!(seen_on(INTERFACE, &reports)? == sent, "{:?} of {sent:?}", seen_on(INTERFACE, &reports)?);
    check_numbers(&reports)?;
    judge("all windows together", oracle.check_reports(&reports))
}

fn a_daemon_that_was_stopped_goes_on_where_it_was() -> Result<()> {
    let mut watch = Watch::start(&format!("{INTERVAL}{ROOMY_RINGS}"))?;
    let mut oracle = Oracle::new();
    watch.daemon.wait_for_reports(1, TIMEOUT)?;
    watch.daemon.signal(Signal::STOP)?;
    for cpu in 0..2 {
        send_on(cpu, &watch, Plan { seed: 71, ..Plan::default() }, &mut oracle)?;
        // Several windows pass meanwhile.
        thread::sleep(Duration::from_millis(1_700));
    }
    watch.daemon.signal(Signal::CONT)?;
    let reported = watch.daemon.reports()?.len();
    watch.daemon.wait_for_reports(reported + 2, TIMEOUT)?;
    let reports = watch.stop(Loss::None)?;
    check_numbers(&reports)?;
    judge("all windows together", oracle.check_reports(&reports))
}

fn a_log_without_a_reader_delays_no_report() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let scratch = Scratch::new()?;
    let (path, reports) = (scratch.file("weir.yaml"), scratch.file("reports.ndjson"));
    fs::write(
        &path,
        config(&format!("interfaces: [{}]\n{INTERVAL}control: {{socket: none}}\n", native(INTERFACE)), &reports),
    )?;
    // A pipe without room for a single line.
    let (_reader, writer) = rustix::pipe::pipe()?;
    let mut full = File::from(writer.try_clone()?);
    let size = rustix::pipe::fcntl_getpipe_size(&writer)?;
    full.write_all(&vec![b'.'; size])?;
    let mut weir = pair.observer.command(weir_binary()?);
    let mut weir = weir.arg("run").arg("--config").arg(&path).stdin(Stdio::null()).stderr(writer).spawn()?;
    let reported = || Ok(fs::read_to_string(&reports).is_ok_and(|text| text.lines().count() >= 3).then_some(()));
    let outcome = clock::wait_for("three reports", TIMEOUT, reported);
    weir.kill()?;
    weir.wait()?;
    outcome
}
