//! weir as a service of a machine, watched from outside.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use aya::programs::TcAttachType;
use serde_json::Value;
use weir_datapath::{probe_tcx, tcx_programs};
use weir_tests::{
    clock,
    daemon::weir_binary,
    netns::{Namespace, QuietPair},
};

use super::machine::{Installed, Machine};
use crate::watch::{Ended, TIMEOUT, has_program};

/// The interface that it measures.
pub const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// weir as a service of the machine.
pub struct Service<'a> {
    pub machine: &'a Machine,
    /// The namespace that it measures in.
    pub observer: &'a Namespace,
}

/// Boots a machine that has weir, its unit and this configuration, and more files.
pub fn boot(config: &str, more: &[Installed<'_>]) -> Result<Machine> {
    let (binary, unit) = (fs::read(weir_binary()?)?, fs::read(super::unit())?);
    let mut files = vec![
        Installed { path: "usr/bin/weir", content: &binary, mode: 0o755 },
        Installed { path: "etc/systemd/system/weir.service", content: &unit, mode: 0o644 },
        Installed { path: "etc/weir/weir.yaml", content: config.as_bytes(), mode: 0o644 },
    ];
    files.extend(more.iter().map(|Installed { path, content, mode }| Installed { path, content, mode: *mode }));
    Machine::boot(&files)
}

/// The run of the daemon that made a report.
pub fn run_of(report: &Value) -> String {
    let id = report["id"].as_str().unwrap_or_default();
    id.rsplit_once('/').map_or(id, |(run, _)| run).to_owned()
}

impl Service<'_> {
    pub fn property(&self, name: &str) -> Result<String> {
        let shown = self.machine.done(&format!("systemctl show --value --property={name} weir"))?;
        Ok(shown.trim_end().to_owned())
    }

    /// Checks the interface: it must have a program for each direction, or none.
    pub fn expect_attached(&self, expected: bool) -> Result<()> {
        let there = [has_program(self.observer, INTERFACE)?, sends_through_a_program(self.observer)?];
        ensure!(there == [expected; 2], "programs for received and sent packets: {there:?}\n{}", self.machine.log());
        Ok(())
    }

    /// Every report so far, of all runs.
    pub fn reports(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.machine.path("var/lib/weir/reports.ndjson")).unwrap_or_default();
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        // A kill may cut a line. The next weir ends it, and the report counts as missing.
        let report = |line| match serde_json::from_str(line) {
            Err(error) if error.is_eof() => None,
            read => Some(read.map_err(Into::into)),
        };
        complete.lines().filter_map(report).collect()
    }

    /// Kills weir, waits until it has ended, and returns the number that its process had.
    pub fn kill(&self) -> Result<String> {
        let killed = self.property("MainPID")?;
        self.machine.done("systemctl kill -s KILL weir")?;
        let ended = || Ok((self.property("MainPID")? != killed).then_some(()));
        clock::wait_for("the end of what was killed", TIMEOUT, ended)?;
        Ok(killed)
    }

    /// Waits until weir runs with another process number than `before`, and returns its number.
    pub fn wait_for_other(&self, before: &str) -> Result<String> {
        let other = || {
            let [pid, state] = [self.property("MainPID")?, self.property("ActiveState")?];
            Ok((pid != before && pid != "0" && state == "active").then_some(pid))
        };
        clock::wait_for("weir to run again", TIMEOUT, other).with_context(|| self.machine.log())
    }
}

/// Returns true if there is a program on the egress of the interface: by TCX, or by a tc filter before Linux 6.6.
pub fn sends_through_a_program(namespace: &Namespace) -> Result<bool> {
    if !probe_tcx()? {
        let filters = Ended::of(namespace.command("tc").args(["filter", "show", "dev", INTERFACE, "egress"]))?;
        return Ok(filters.out.contains("weir"));
    }
    Ok(!namespace.enter(|| tcx_programs(INTERFACE, TcAttachType::Egress))??.is_empty())
}
