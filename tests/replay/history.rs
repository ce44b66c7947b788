//! `weir replay --history` fills a folder, which `weir history --path` reads without a running weir.

use std::{
    fs,
    net::IpAddr,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use weir_tests::{account::tally, daemon::weir_binary, scratch::Scratch, traffic::Plan};

use crate::command::{CAPTURE_TIME, DONE, Ended, capture_again_and_again, text, weir_replay};

/// How often the capture has the same traffic: more than five minutes, so that there are several blocks.
const TIMES: u32 = 70;
/// When the first packet was captured, in seconds since 1970.
const START: u64 = 1_700_000_000;

fn weir_history(arguments: &[&str], folder: &Path) -> Result<Ended> {
    let mut command = Command::new(weir_binary()?);
    command.arg("history").args(arguments).args(["--path", text(folder)]).stdin(Stdio::null());
    Ok(command.output().context("cannot start weir")?.into())
}

fn answer(arguments: &[&str], folder: &Path) -> Result<Value> {
    let ended = weir_history(arguments, folder)?;
    ensure!(ended.code == Some(DONE), "{arguments:?}: {}", ended.log);
    Ok(serde_json::from_slice(&ended.out)?)
}

fn number(value: &Value) -> Result<u64> {
    value.as_u64().with_context(|| format!("{value} is no number"))
}

pub fn a_replay_fills_one_that_is_read_without_a_daemon() -> Result<()> {
    let scratch = Scratch::new()?;
    let (file, folder) = (scratch.file("traffic.pcap"), scratch.file("past"));
    let plan = Plan { packets: 3_000, flows: 300, ..Plan::default() };
    let oracle = capture_again_and_again(&file, plan, TIMES)?;
    let ended = weir_replay(["--json", "--window", "10s", "--history", text(&folder), text(&file)])?;
    let reports = ended.reports(DONE)?;
    ensure!(reports.len() == TIMES as usize && ended.log.is_empty(), "{} reports: {}", reports.len(), ended.log);
    let packets: u64 = reports.iter().map(|report| tally(&report["totals"]).map(|of| of.packets)).sum::<Result<_>>()?;

    let top = answer(&["top", "sources", "--by", "packets", "--json"], &folder)?;
    ensure!(top["windows"] == TIMES && top["missing"] == Value::Array(Vec::new()), "{top}");
    let truth = oracle.grouped(|key| vec![key.src]);
    let rows = top["rows"].as_array().context("rows")?;
    ensure!(rows.len() > 40.min(truth.len()), "{} rows of {} sources, not only ten", rows.len(), truth.len());
    for (nth, row) in rows.iter().enumerate() {
        let source: IpAddr = row["src_ip"].as_str().context("an address")?.parse()?;
        let sent = truth.get(&source).with_context(|| format!("{source} has sent nothing"))?.packets * u64::from(TIMES);
        let (value, lower, upper) =
            (number(&row["packets"]["value"])?, number(&row["packets"]["lower"])?, number(&row["packets"]["upper"])?);
        ensure!((lower..=upper).contains(&sent), "{source} sent {sent}: {row}");
        ensure!(nth >= 20 || value.abs_diff(sent) * 10 <= sent, "{source} sent {sent}: {row}");
    }

    let csv = weir_history(&["top", "services", "--csv"], &folder)?;
    let csv = String::from_utf8(csv.out)?;
    let header = "rank,proto,port,packets,packets_lower,packets_upper,bytes,bytes_lower,bytes_upper";
    ensure!(csv.lines().next() == Some(header) && csv.lines().count() > 2, "{csv}");

    let first = rows[0]["src_ip"].as_str().context("an address")?;
    let found = answer(&["find", first, "--json"], &folder)?;
    ensure!(found["schema"] == "weir.found/1" && found["windows"] == TIMES, "{found}");
    let sent = truth[&first.parse::<IpAddr>()?].packets * u64::from(TIMES);
    ensure!(found["keys"][0]["packets"]["value"] == sent && found["keys"][0]["listed"] == TIMES, "{found} of {sent}");
    let nobody = answer(&["find", "203.0.113.254", "--json"], &folder)?;
    ensure!(nobody["blocks"]["opened"] == 0 && number(&nobody["blocks"]["skipped"])? > 0, "{nobody}");
    ensure!(nobody["keys"][0]["packets"].is_null() && number(&nobody["keys"][0]["at_most"]["packets"])? < packets);
    nothing_has_changed(&folder, rows.len())?;
    let why = weir_history(&["find", ":443"], &folder)?;
    ensure!(why.code == Some(2) && why.log.contains("an address, or the fields of a row"), "{}", why.log);
    Ok(())
}

/// The same traffic comes again and again, so both halves are the same; and beside half as much time of it, too.
fn nothing_has_changed(folder: &Path, sources: usize) -> Result<()> {
    let half = CAPTURE_TIME.as_secs() * u64::from(TIMES) / 2;
    let at =
        |seconds: u64| (Timestamp::UNIX_EPOCH + SignedDuration::from_secs(START as i64 + seconds as i64)).to_string();
    let (first, middle, end) = (at(0), at(half), at(2 * half));
    let later = ["changes", "sources", "--by", "packets", "--from", &middle, "--to", &end, "--json"];
    for against in [None, Some(first.as_str()), Some("350s")] {
        let against = against.iter().flat_map(|against| ["--against", against]);
        let arguments: Vec<&str> = later.into_iter().chain(against).collect();
        let changes = answer(&arguments, folder)?;
        ensure!(changes["before"]["windows"] == changes["now"]["windows"], "{changes}");
        let count = changes["uncertain"].as_u64().context("a number")? as usize;
        ensure!(changes["rows"] == Value::Array(Vec::new()) && count >= sources, "{changes} of {sources}");
    }
    let text = weir_history(&["changes", "flows", "--from", &middle, "--to", &end], folder)?;
    let text = String::from_utf8(text.out)?;
    ensure!(text.contains("compared with ") && text.contains("may have stayed the same"), "{text}");
    for (wrong, why) in [
        (&["changes", "sources"][..], "name a time: --since 1h"),
        (&["changes", "sources", "--from", &end, "--to", &first], "ends"),
        (&["changes", "sources", "--from", &first, "--to", &middle], "with which it is compared"),
        (&["changes", "sources", "--since", "1h", "--against", "last week"], "or a length such as 7d"),
    ] {
        let ended = weir_history(wrong, folder)?;
        ensure!(ended.code == Some(2) && ended.log.contains(why), "{wrong:?}: {}", ended.log);
    }
    Ok(())
}

pub fn a_folder_of_a_router_is_not_touched() -> Result<()> {
    let scratch = Scratch::new()?;
    let (file, folder) = (scratch.file("traffic.pcap"), scratch.file("past"));
    capture_again_and_again(&file, Plan { packets: 100, ..Plan::default() }, 1)?;
    fs::create_dir(&folder)?;
    fs::write(folder.join("windows-000000000000"), b"weirhst17f3c9a52 and more")?;
    let ended = weir_replay(["--history", text(&folder), text(&file)])?;
    ensure!(ended.code == Some(2) && ended.log.contains("name another one"), "{:?}: {}", ended.code, ended.log);
    ensure!(fs::read_dir(&folder)?.count() == 1, "{} s", CAPTURE_TIME.as_secs());
    let nothing = weir_history(&["top", "flows"], &scratch.file("nowhere"))?;
    ensure!(nothing.code == Some(2) && nothing.log.contains("has no history"), "{}", nothing.log);
    Ok(())
}
