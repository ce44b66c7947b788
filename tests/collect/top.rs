//! `weir top --merge` on a real terminal: it shows what the collector stores, and names mistakes before the screen
//! opens.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_system::numbers::scaled;
use weir_tests::{
    collecting::{Collecting, NDJSON, TIMEOUT, database},
    daemon::weir_binary,
    scratch::Scratch,
    tmux::Terminal,
};

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/demo.pcap")
}

/// The report of a router that has seen the packets of a capture, with sketches.
fn report(scratch: &Scratch, router: &str) -> Result<Vec<u8>> {
    let secret = scratch.file("fleet.key");
    if !secret.exists() {
        ensure!(Command::new(weir_binary()?).args(["key", "new"]).arg(&secret).status()?.success());
    }
    let config = scratch.file(&format!("{router}.yaml"));
    let text = "observer: {name: ROUTER}\nexport: {views: all, every: 1m}\nhash_key: {file: SECRET}\n";
    fs::write(&config, text.replace("ROUTER", router).replace("SECRET", &secret.display().to_string()))?;
    let mut replay = Command::new(weir_binary()?);
    let output = replay.args(["replay", "--json", "--config"]).arg(config).arg(demo()).output()?;
    ensure!(output.status.success() && output.stdout.ends_with(b"}\n"), "{output:?}");
    Ok(output.stdout)
}

/// Returns the answer of `weir merge` for the only window.
fn merged(input: &Path) -> Result<Value> {
    let mut merge = Command::new(weir_binary()?);
    let output = merge.args(["merge", "--json", "--window", "1m"]).arg(input).output()?;
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let [window] = answer["windows"].as_array().map(Vec::as_slice).context("no windows")? else {
        anyhow::bail!("{answer}");
    };
    Ok(window.clone())
}

/// Types `weir top --merge` with these arguments.
fn top(terminal: &Terminal, arguments: &str) -> Result<()> {
    terminal.run(&format!("{} top --merge {arguments}; echo code $?", weir_binary()?.canonicalize()?.display()))
}

/// Each row of the list that is on the screen has the numbers of `weir merge`. Returns how many there are.
fn rows_are_in(shown: &str, window: &Value, name: &str) -> Result<usize> {
    let time =
        |name: &str| Ok::<_, anyhow::Error>(window[name].as_str().context("no time")?.parse::<jiff::Timestamp>()?);
    let seconds = time("end")?.duration_since(time("start")?).as_secs_f64();
    let lists = window["lists"].as_array().context("no lists")?;
    let rows = lists.iter().find(|list| list["name"] == name).context("no such list")?["by_bytes"].as_array();
    let mut count = 0;
    for (rank, row) in (1..).zip(rows.context("no rows")?) {
        let key = row["key"].as_str().context("no key")?;
        let Some(line) = shown.lines().find(|line| line.contains(&format!(" {rank} {key} "))) else { continue };
        let rate = scaled(row["bytes"]["lower"].as_f64().context("no bytes")? * 8.0 / seconds, "bit/s");
        ensure!(line.contains(&rate), "{rate} is not in {line}");
        count += 1;
    }
    Ok(count)
}

/// A second router reports while the screen is open: the numbers are then those of both.
pub fn the_live_screen_shows_what_the_collector_stores() -> Result<()> {
    let scratch = Scratch::new()?;
    let collector = Collecting::start(scratch.path(), &[])?;
    let terminal = Terminal::new(80, 24)?;
    ensure!(collector.post(NDJSON, &report(&scratch, "edge-1")?)?.stored().len() == 1);
    top(&terminal, &database(scratch.path()).display().to_string())?;
    for (router, routers) in [("edge-1", "1 router "), ("edge-2", "2 routers ")] {
        if router == "edge-2" {
            ensure!(collector.post(NDJSON, &report(&scratch, router)?)?.stored().len() == 1);
        }
        let window = merged(&database(scratch.path()))?;
        let is_there = |shown: &str| {
            shown.contains(routers) && rows_are_in(shown, &window, "sources").is_ok_and(|rows| rows >= 10)
        };
        let shown = terminal.wait_for(routers, TIMEOUT, is_there)?;
        ensure!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        for part in [router, "a packet that passed two routers counts at both", "kept 100.0 %", "live"] {
            ensure!(shown.contains(part), "{part} is not in\n{shown}");
        }
    }
    terminal.press("Enter")?;
    let known = "all lists of the fleet, listed there or not";
    let shown =
        terminal.wait_for("the answer", TIMEOUT, |shown| shown.contains(known) && shown.contains("sources: "))?;
    ensure!(shown.contains("its last hour: the screen of a fleet has no history"), "{shown}");
    terminal.press("Escape")?;
    terminal.wait_for("the list", TIMEOUT, |shown| shown.contains("[1 sources]"))?;
    terminal.press("<")?;
    terminal.wait_for("why not", TIMEOUT, |shown| shown.contains("has no history"))?;
    terminal.press("q")?;
    terminal.wait_for("the end", TIMEOUT, |shown| shown.contains("code 0"))?;
    terminal.run("clear")?;
    terminal.expect_clean(TIMEOUT)
}

/// A file that is empty fills later, and one that is rotated is followed.
pub fn the_live_screen_follows_a_file_from_its_first_report_on() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("reports.ndjson");
    fs::write(&file, "")?;
    let terminal = Terminal::new(100, 30)?;
    top(&terminal, &file.display().to_string())?;
    terminal.wait_for("nothing", TIMEOUT, |shown| {
        shown.contains("0 routers") && shown.contains("no report has come yet")
    })?;
    let (first, second) = (report(&scratch, "edge-1")?, report(&scratch, "edge-2")?);
    let (start, end) = first.split_at(first.len() / 2);
    let mut writer = OpenOptions::new().append(true).open(&file)?;
    for part in [start, end] {
        writer.write_all(part)?;
    }
    terminal.wait_for("a router", TIMEOUT, |shown| shown.contains("1 router ") && shown.contains("[1 sources]"))?;
    fs::rename(&file, scratch.file("reports.ndjson.1"))?;
    fs::write(&file, second)?;
    let shown = terminal.wait_for("two routers", TIMEOUT, |shown| shown.contains("2 routers"))?;
    ensure!(!shown.contains("unreadable"), "{shown}");
    terminal.press("q")?;
    terminal.wait_for("the end", TIMEOUT, |shown| shown.contains("code 0")).map(drop)
}

/// Each mistake is named before a screen hides it.
pub fn mistakes_of_the_live_screen_are_named() -> Result<()> {
    let scratch = Scratch::new()?;
    let text = scratch.file("README.md");
    fs::write(&text, "# No report\n")?;
    let sample = scratch.file("edge-1.ndjson");
    fs::write(&sample, report(&scratch, "edge-1")?)?;
    let terminal = Terminal::new(160, 50)?;
    let mistakes = [
        ("".to_owned(), 2, "a value is required for '--merge <FILE>...'"),
        ("-".to_owned(), 2, "the keyboard is standard input"),
        (scratch.file("missing").display().to_string(), 1, "missing: No such file or directory"),
        (scratch.path().display().to_string(), 2, "is not a regular file: only files of reports and databases"),
        (demo().display().to_string(), 2, "is a capture, not a file of reports: `weir top --replay"),
        (text.display().to_string(), 2, "is not a file of reports: none of its first 1 lines is one"),
        (format!("{} --window 7s", sample.display()), 2, "7s does not divide a day: take 6s or 8s"),
        (format!("{} --window all", sample.display()), 2, "a window of a fleet has whole seconds"),
        (
            format!("{} --window 5s", sample.display()),
            2,
            "5s is shorter than the reports of edge-1: choose --window 10s",
        ),
        (format!("{} | cat", sample.display()), 0, "the live screen draws on a terminal"),
    ];
    for (nth, (arguments, code, why)) in mistakes.into_iter().enumerate() {
        terminal.run(&format!("clear; echo mistake {nth}"))?;
        let begun = format!("mistake {nth}");
        terminal.wait_for(&begun, TIMEOUT, |shown| shown.lines().any(|line| line == begun))?;
        top(&terminal, &arguments)?;
        let ended = format!("code {code}");
        let shown = terminal.wait_for(&ended, TIMEOUT, |shown| shown.lines().any(|line| line == ended))?;
        let shown = shown.lines().collect::<Vec<_>>().join(" ");
        ensure!(shown.contains(why), "{why:?} is not in {shown}");
    }
    let mut piped = Command::new(weir_binary()?);
    let output = piped.args(["top", "--merge"]).arg(&sample).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2) && said.contains("`weir merge --json`"), "{said}");
    Ok(())
}
