//! A history on a disk that is full goes on with the newest windows. The disk is a small file system in memory.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use weir_tests::{daemon::weir_binary, scratch::Scratch, traffic::Plan};

use crate::command::{CAPTURE_TIME, DONE, Ended, capture_again_and_again, text};

/// How many windows there are: far more than the disk has room for.
const WINDOWS: u32 = 240;
const DISK: &str = "144k";
/// When the first packet was captured, in seconds since 1970.
const START: i64 = 1_700_000_000;
/// The windows of a block, which has five minutes: a full disk may lose the last one.
const WINDOWS_OF_BLOCK: u64 = 30;

/// Fills the disk by a replay, and asks it, in a name space of mounts.
const SCRIPT: &str = r#"
    mount -t tmpfs -o "size=$4" none "$1" || exit 9
    "$2" replay --json --window 10s --history "$1" "$3" >"$5" || exit 8
    "$2" history top sources --json --path "$1"
"#;

pub fn the_newest_windows_are_kept() -> Result<()> {
    let scratch = Scratch::new()?;
    let (file, folder, reports) = (scratch.file("traffic.pcap"), scratch.file("past"), scratch.file("reports"));
    std::fs::create_dir(&folder)?;
    capture_again_and_again(&file, Plan { packets: 2_000, flows: 300, ..Plan::default() }, WINDOWS)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "sh", text(&folder)]).arg(weir_binary()?);
    command.args([text(&file), DISK, text(&reports)]).stdin(Stdio::null());
    let ended = Ended::from(command.output().context("cannot start unshare")?);
    ensure!(ended.code == Some(DONE), "{:?}: {}", ended.code, ended.log);
    let made = std::fs::read_to_string(&reports)?.lines().count();
    ensure!(made == WINDOWS as usize, "{made} reports: a full disk changes none");

    let top: Value = serde_json::from_slice(&ended.out)?;
    let windows = top["windows"].as_u64().context("a number of windows")?;
    ensure!((WINDOWS_OF_BLOCK..u64::from(WINDOWS)).contains(&windows), "{windows} windows have room: {}", ended.log);
    let newest: Timestamp = top["window"]["end"].as_str().with_context(|| top.to_string())?.parse()?;
    let end = START + i64::from(WINDOWS) * CAPTURE_TIME.as_secs() as i64;
    let lost = (end - newest.as_second()) / CAPTURE_TIME.as_secs() as i64;
    ensure!((0..=WINDOWS_OF_BLOCK as i64).contains(&lost), "the newest {lost} windows are lost: {}", ended.log);
    ensure!(lost == 0 || ended.log.contains("cannot write the history"), "nothing tells of them: {}", ended.log);
    Ok(())
}
