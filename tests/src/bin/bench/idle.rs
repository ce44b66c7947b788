//! Measures what weir uses without traffic: CPU time of one core, and memory.

use std::{thread, time::Duration};

use anyhow::{Result, ensure};
use weir_tests::{
    account::{self, Loss},
    clock,
    daemon::Daemon,
    netns::{Lab, QuietPair},
};

use crate::{
    table,
    tax::process::{cpu_time, resident},
};

/// How long each configuration is measured: with ticks of 10 ms this resolves 0.01 %.
const WATCHED: Duration = Duration::from_secs(100);
const TIMEOUT: Duration = Duration::from_secs(30);

/// The measured window lengths in seconds: the default and the shortest.
const INTERVALS: [u64; 2] = [10, 1];

/// Runs weir on both directions of a quiet interface with each interval.
///
/// # Errors
///
/// It could not be started, or a report is wrong.
pub fn bench() -> Result<()> {
    let mut rows = Vec::new();
    for interval in INTERVALS {
        let pair = Lab::quiet_pair()?;
        let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
            format!(
                "interfaces: [{{name: {}, direction: both}}]\nreport: {{interval: {interval}s}}\nsinks:\n  \
                 - {{type: file, path: {}}}\n",
                QuietPair::OBSERVER_INTERFACE,
                reports.display()
            )
        })?;
        daemon.wait_for_reports(1, TIMEOUT)?;
        let (start, before) = (clock::now(), cpu_time(daemon.pid())?);
        thread::sleep(WATCHED);
        let (spent, watched) = (cpu_time(daemon.pid())? - before, start.elapsed());
        let memory = resident(daemon.pid())?;
        daemon.stop(TIMEOUT)?;
        let reports = daemon.reports()?;
        let due = WATCHED.as_secs() / interval;
        ensure!(reports.len() as u64 >= due, "{} reports in {WATCHED:?}, and {due} were due", reports.len());
        account::check(&reports, Loss::None)?;
        let share = spent.as_secs_f64() / watched.as_secs_f64();
        rows.push([
            format!("{interval} s"),
            format!("{:.2} % of a core", share * 100.0),
            format!("{} MiB", memory >> 20),
        ]);
    }
    table::say(format!("{}\n", table::machine()?))?;
    table::write(["windows", "CPU", "resident memory"], &rows)
}
