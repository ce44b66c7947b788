//! A tool's run, and its costs.

use std::{
    fs,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::replay::children_time;

/// A run that has succeeded.
pub struct Run {
    /// User and system time.
    pub cpu: Duration,
    /// The most memory that the process occupied.
    pub peak_kib: u64,
    /// The standard output.
    pub out: Vec<u8>,
}

/// How often the memory is read: the kernel forgets the peak when the process ends.
const LOOK: Duration = Duration::from_millis(1);

/// Runs a command to its end.
///
/// # Errors
///
/// It cannot be started, or fails.
pub fn run(command: &mut Command) -> Result<Run> {
    let before = children_time()?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let (pid, has_ended) = (child.id(), AtomicBool::new(false));
    let (output, peak_kib) = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = None;
            while !has_ended.load(Ordering::Relaxed) {
                peak = peak_kib(pid).or(peak);
                thread::sleep(LOOK);
            }
            peak
        });
        let output = child.wait_with_output();
        has_ended.store(true, Ordering::Relaxed);
        (output, watcher.join().ok().flatten())
    });
    let output = output?;
    if !output.status.success() {
        bail!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let cpu = children_time()?.saturating_sub(before);
    Ok(Run { cpu, peak_kib: peak_kib.context("it ended before its memory could be read")?, out: output.stdout })
}

fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
