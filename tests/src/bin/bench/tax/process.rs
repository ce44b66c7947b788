//! The CPU time and memory of a process and its children, from `/proc`.

use std::{collections::HashMap, fs, path::Path, thread, time::Duration};

use anyhow::{Context, Result};
use rustix::{
    param::clock_ticks_per_second,
    process::{Pid, Signal, kill_process},
};
use weir_tests::clock;

/// A process that uses at most one tick in this time is at rest.
const REST: Duration = Duration::from_millis(300);
const REST_TIMEOUT: Duration = Duration::from_secs(20);

/// User and system time that a process and its descendants have used so far, in the kernel's ticks of mostly 10 ms.
///
/// # Errors
///
/// There is no such process.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let all = all()?;
    let ticks = |pid| all.get(&pid).map(|process| process.ticks);
    let own = ticks(pid).with_context(|| format!("process {pid} has ended"))?;
    let sum = own + below(pid, &all).into_iter().filter_map(ticks).sum::<u64>();
    Ok(Duration::from_secs_f64(sum as f64 / clock_ticks_per_second() as f64))
}

/// Waits until a process has finished its work, but no longer than 20 s, and returns the CPU time that it has used by
/// then.
///
/// # Errors
///
/// It has ended.
pub fn cpu_time_at_rest(pid: u32) -> Result<Duration> {
    let tick = Duration::from_secs_f64(1.0 / clock_ticks_per_second() as f64);
    let start = clock::now();
    let mut before = cpu_time(pid)?;
    loop {
        thread::sleep(REST);
        let now = cpu_time(pid)?;
        if now.saturating_sub(before) <= tick || start.elapsed() > REST_TIMEOUT {
            return Ok(now);
        }
        before = now;
    }
}

/// Kills all descendants of a process.
pub fn kill_below(pid: u32) {
    let Ok(all) = all() else { return };
    for pid in below(pid, &all) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // It fails only if the process has just ended.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The resident set of a process, in bytes.
///
/// # Errors
///
/// There is no such process.
pub fn resident(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().with_context(|| format!("VmRSS:{line}"))?;
    Ok(kib << 10)
}

/// The number of runs of the eBPF program that ran most, of those that a process has loaded, and their nanoseconds.
///
/// # Errors
///
/// The process has loaded no program.
pub fn busiest_program(pid: u32) -> Result<(u64, u64)> {
    let path = format!("/proc/{pid}/fdinfo");
    let mut runs = Vec::new();
    for entry in fs::read_dir(&path).with_context(|| format!("cannot read {path}"))? {
        // A descriptor may be closed meanwhile.
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().parse::<u64>().ok()
        };
        runs.extend(field("run_cnt:").zip(field("run_time_ns:")));
    }
    runs.into_iter().max().with_context(|| format!("process {pid} has loaded no eBPF program"))
}

struct Process {
    parent: u32,
    ticks: u64,
}

fn all() -> Result<HashMap<u32, Process>> {
    let mut all = HashMap::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc")? {
        let entry = entry.context("cannot read /proc")?;
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some((pid, process)) = pid.zip(read(&entry.path().join("stat"))) {
            all.insert(pid, process);
        }
    }
    Ok(all)
}

/// After the name in parentheses come `ppid`, `utime` and `stime`, which are fields 4, 14 and 15 of `proc_pid_stat(5)`.
fn read(stat: &Path) -> Option<Process> {
    let stat = fs::read_to_string(stat).ok()?;
    let fields: Vec<_> = stat.rsplit(") ").next()?.split(' ').collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Process { parent: number(4)? as u32, ticks: number(14)? + number(15)? })
}

fn below(pid: u32, all: &HashMap<u32, Process>) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(all.iter().filter(|(_, process)| process.parent == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}
