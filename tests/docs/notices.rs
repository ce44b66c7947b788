//! weir contains code of other projects, whose licences require that each copy includes the licence text.

use std::{collections::BTreeSet, fs, process::Command};

use anyhow::{Context, Result, ensure};

use crate::root;

/// The length of the line between two packages: no licence has a line this long.
const RULE_BYTES: usize = 100;
/// A package with weir's own licence may come without the text.
const KNOWN: &str = "Apache-2.0";
/// The package with the collector's database.
const DATABASE: &str = "libsqlite3-sys";

#[test]
fn every_package_is_named_with_its_licence_and_its_text() -> Result<()> {
    let weir = packages_in(&["weir", "--features", "weir/all-sinks"])?;
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    for name in ["aya", "async-nats", "rskafka", "rustls", "serde_json", "zstd-sys"] {
        ensure!(weir.contains(name) && lock.contains(&format!("name = \"{name}\"")), "{name} is not named");
    }
    ensure!(weir.iter().all(|name| !name.starts_with("weir")), "weir is no third party: {weir:?}");
    let collector = packages_in(&["weir-collect", "weir-merge"])?;
    for name in [DATABASE, "axum", "ratatui"] {
        ensure!(collector.contains(name), "{name} is not named");
    }
    ensure!(!weir.contains(DATABASE), "only the collector has a database");
    Ok(())
}

/// The packages that the notices list for programs that are shipped together.
fn packages_in(programs: &[&str]) -> Result<BTreeSet<String>> {
    let output = Command::new(root().join("scripts/notices")).args(programs).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut named = BTreeSet::new();
    for part in text.split(&format!("\n{}\n", "=".repeat(RULE_BYTES))).skip(1) {
        let title = part.lines().next().context("a package has no title")?;
        let (package, licence) = title.split_once(": ").with_context(|| format!("no licence: {title}"))?;
        ensure!(part.contains("\n--- ") || licence.contains(KNOWN), "{package} has no text of its licence, {licence}");
        named.extend(package.split(' ').next().map(str::to_owned));
    }
    Ok(named)
}
