//! The unit that ships: systemd understands it, and it is as locked down as it says.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use weir_tests::{daemon::weir_binary, scratch::Scratch};

use crate::watch::Ended;

tests![the_unit_is_understood, the_unit_exposes_little];

const ANALYZE: &str = "systemd-analyze";

/// Why the unit cannot be looked at here.
pub fn requirements() -> Result<(), String> {
    let found = Command::new(ANALYZE).arg("--version").output();
    found.map(drop).map_err(|error| format!("{ANALYZE} (Debian: apt-get install systemd): {error}"))
}

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/weir.service")
}

fn the_unit_is_understood() -> Result<()> {
    let text = fs::read_to_string(unit())?;
    // The binary is not installed: the one that was built stands in for it.
    let (installed, built) = ("/usr/bin/weir", weir_binary()?.canonicalize()?);
    ensure!(text.contains(&format!("ExecStart={installed} run")), "ExecStart= is another one");
    let scratch = Scratch::new()?;
    let copy = scratch.file("weir.service");
    fs::write(&copy, text.replace(installed, &built.display().to_string()))?;
    let ended = Ended::of(Command::new(ANALYZE).arg("verify").arg(&copy))?;
    ended.check(0, &[])?;
    ensure!(ended.err.is_empty() && ended.out.is_empty(), "it has something to say:\n{}{}", ended.err, ended.out);
    Ok(())
}

fn the_unit_exposes_little() -> Result<()> {
    /// In tenths: an exposure of 2.0 out of 10.
    const EXPOSURE_MAX: &str = "--threshold=20";
    let ended = Ended::of(Command::new(ANALYZE).args(["security", "--offline=true", EXPOSURE_MAX]).arg(unit()))?;
    let verdict = ended.out.lines().last().context("it judged nothing")?;
    ensure!(ended.code == Some(0), "{verdict}{}", ended.err);
    Ok(())
}
