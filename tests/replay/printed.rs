//! The output of a replay on a terminal: one screen, colours, the pager, and no progress among the tables.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};
use weir_tests::{daemon::weir_binary, scratch::Scratch, traffic::Plan};

use crate::command::{capture, text};

/// Returns to the start of the line and clears it.
const CLEAR: &str = "\r\u{1b}[K";

/// The output of `weir replay` on a terminal of this size, with these environment variables.
fn on_terminal(columns: u16, lines: u16, variables: &str, arguments: &str) -> Result<String> {
    let line = format!("stty cols {columns} rows {lines}; {variables} '{}' replay {arguments}", text(&weir_binary()?));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).env("TERM", "xterm");
    let ended = command.env_remove("NO_COLOR").env_remove("PAGER").output()?;
    let shown = String::from_utf8(ended.stdout)?.replace("\r\n", "\n");
    ensure!(ended.status.success(), "{shown}");
    Ok(shown)
}

fn traffic(file: &Path, packets: u64) -> Result<()> {
    capture(file, Plan { packets, ..Plan::default() }).map(drop)
}

/// The text without colour sequences.
fn plain(shown: &str) -> String {
    let mut parts = shown.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

pub fn a_terminal_gets_one_screen() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    traffic(&file, 10_000)?;
    for (columns, lines) in [(80, 24), (120, 40), (200, 60)] {
        let shown = plain(&on_terminal(columns, lines, "", text(&file))?);
        let count = shown.lines().count();
        ensure!((usize::from(lines) / 2..usize::from(lines)).contains(&count), "{count} of {lines} lines:\n{shown}");
        let widest = shown.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        ensure!(widest <= usize::from(columns), "{widest} columns of {columns}:\n{shown}");
        for part in ["TRUST", "SOURCES", "DESTINATIONS", "SERVICES", "weir replay --full"] {
            ensure!(shown.contains(part), "no {part}:\n{shown}");
        }
    }
    Ok(())
}

pub fn colours_are_for_terminals_that_want_them() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    traffic(&file, 1_000)?;
    let has_colours = |variables: &str, arguments: &str| -> Result<bool> {
        Ok(on_terminal(100, 40, variables, &format!("'{}' {arguments}", text(&file)))?.contains("\u{1b}[1m"))
    };
    ensure!(has_colours("", "")? && has_colours("NO_COLOR=", "")?, "no colours");
    ensure!(!has_colours("NO_COLOR=1", "")?, "colours in spite of NO_COLOR");
    ensure!(!has_colours("TERM=dumb", "")?, "colours for a terminal without any");
    ensure!(!has_colours("", "| cat")?, "colours in a pipe");
    Ok(())
}

pub fn long_output_goes_to_the_pager() -> Result<()> {
    let scratch = Scratch::new()?;
    let [file, paged] = ["traffic.pcap", "paged"].map(|name| scratch.file(name));
    traffic(&file, 10_000)?;
    let pager = format!("PAGER=\"cat >'{}'\"", text(&paged));
    let full = format!("--full '{}'", text(&file));
    let shown = on_terminal(100, 40, &pager, &full)?;
    let tables = fs::read_to_string(&paged)?;
    ensure!(tables.contains("TOP SOURCES BY BYTES") && !shown.contains("TOP SOURCES"), "{shown}");
    fs::remove_file(&paged)?;
    // There is no pager if the output is short or not on a terminal. Without a pager the output is still shown.
    for (lines, pager, arguments) in [
        (400, pager.as_str(), full.clone()),
        (40, pager.as_str(), format!("{full} | cat")),
        (40, "PAGER=", full.clone()),
        (40, "PAGER=/no/such/pager", full),
    ] {
        let shown = plain(&on_terminal(100, lines, pager, &arguments)?);
        ensure!(shown.contains("TOP SOURCES BY BYTES") && !paged.exists(), "{pager} {arguments}:\n{shown}");
    }
    Ok(())
}

pub fn the_progress_is_in_no_table() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    // The line changes once in 16,384 packets.
    traffic(&file, 200_000)?;
    let shown = on_terminal(100, 40, "", &format!("--window 1s '{}'", text(&file)))?;
    ensure!(shown.contains(" left") && shown.contains("pkt/s, "), "no progress:\n{shown}");
    for line in shown.lines() {
        // Cleared text is not visible any more.
        let seen = line.rsplit(CLEAR).next().unwrap_or_default();
        ensure!(!seen.contains(" left"), "{line:?} of\n{shown}");
    }
    Ok(())
}
