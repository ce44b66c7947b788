//! `weir replay --history` fills a folder, which `weir history --path` reads without a running weir.

use std::{
    collections::HashMap,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{account::tally, daemon::weir_binary, oracle::Oracle, scratch::Scratch, traffic::Plan, truth::Key};

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
    let why = weir_history(&["find", "vlan=7"], &folder)?;
    ensure!(why.code == Some(2) && why.log.contains("the lists of the past have addresses, ports"), "{}", why.log);
    one_window_is_the_one_that_has_the_time(&folder)?;
    several_histories(&folder, &top)
}

/// The first window has all times from its start until its end.
fn one_window_is_the_one_that_has_the_time(folder: &Path) -> Result<()> {
    let at = |second: u64| (Timestamp::UNIX_EPOCH + SignedDuration::from_secs((START + second) as i64)).to_string();
    for (second, start) in [(0, 0), (9, 0), (10, 10), (25, 20)] {
        let top = answer(&["top", "sources", "--at", &at(second), "--json"], folder)?;
        let begun: Timestamp = top["window"]["start"].as_str().context("a start")?.parse()?;
        ensure!(top["windows"] == 1 && begun.as_second() as u64 == START + start, "{top}");
    }
    let [text, before] = ["sources", "pairs"].map(|list| weir_history(&["changes", list, "--at", &at(25)], folder));
    let (text, before) = (String::from_utf8(text?.out)?, String::from_utf8(before?.out)?);
    ensure!(text.contains(": 1 window\ncompared with ") && before.contains("may have stayed the same"), "{text}");
    let found = weir_ask(&["192.0.2.7", "10.0.0.0/8", "--at", &at(25), "--json"], folder)?;
    let found: Value = serde_json::from_slice(&found.out)?;
    ensure!(found["windows"] == 1 && found["keys"].as_array().is_some_and(|keys| keys.len() == 4), "{found}");
    let never = weir_ask(&["192.0.2.7", "--at", "2001-01-01T00:00:00Z"], folder)?;
    ensure!(never.code == Some(2) && never.log.contains("there is no data for this time"), "{}", never.log);
    let both = weir_ask(&["192.0.2.7", "--at", &at(25), "--since", "1h"], folder)?;
    ensure!(both.code == Some(2) && both.log.contains("cannot be used with"), "{}", both.log);
    Ok(())
}

/// `weir merge --history` of one router prints the list that `weir history` prints, and no router counts twice.
fn several_histories(folder: &Path, top: &Value) -> Result<()> {
    let merge = |arguments: &[&str]| -> Result<Ended> {
        let mut command = Command::new(weir_binary()?);
        Ok(command.arg("merge").args(arguments).stdin(Stdio::null()).output().context("cannot start weir")?.into())
    };
    let one = merge(&["--history", text(folder), "--packets", "--json"])?;
    ensure!(one.code == Some(DONE), "{}", one.log);
    let one: Value = serde_json::from_slice(&one.out)?;
    for field in ["list", "by", "windows", "window", "confidence", "unlisted", "rows"] {
        ensure!(one[field] == top[field], "{field}: {} is not {}", one[field], top[field]);
    }
    ensure!(one["schema"] == "weir.history_merge/1" && one["routers"][0]["windows"] == TIMES, "{one}");
    let shown = String::from_utf8(merge(&["--history", text(folder), "--top", "3"])?.out)?;
    ensure!(shown.contains(" windows of 1 router\n") && shown.contains("every other has at most "), "{shown}");
    let csv = String::from_utf8(merge(&["--history", text(folder), "--list", "services", "--csv"])?.out)?;
    ensure!(csv.starts_with("rank,proto,port,packets,"), "{csv}");
    let twice = merge(&["--history", text(folder), text(folder)])?;
    ensure!(twice.code == Some(2) && twice.log.contains("the history of the same router"), "{}", twice.log);
    let none = merge(&["--history", "/nonexistent"])?;
    ensure!(none.code == Some(2) && none.log.contains("has no history: name a folder"), "{}", none.log);
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

fn weir_ask(arguments: &[&str], folder: &Path) -> Result<Ended> {
    let mut command = Command::new(weir_binary()?);
    command.arg("ask").args(arguments).args(["--path", text(folder)]).stdin(Stdio::null());
    Ok(command.output().context("cannot start weir")?.into())
}

/// Networks and ports are found with bounds that hold, which the rows of lists or the sample make close.
fn parts_are_found(oracle: &Oracle, folder: &Path) -> Result<()> {
    let first_octet = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => Some(ip.octets()[0]),
        IpAddr::V6(_) => None,
    };
    let octets = oracle.grouped(|key| first_octet(key.src).into_iter().collect());
    let (octet, _) = octets.iter().max_by_key(|(_, of)| of.bytes).context("a network")?;
    let network = format!("{octet}.0.0.0/8");
    type Part<'s> = (&'s str, &'s dyn Fn(&Key) -> bool);
    let parts: [Part<'_>; 4] = [
        (&format!("src_ip={network}"), &|key| first_octet(key.src) == Some(*octet)),
        (&format!("dst_ip={network}"), &|key| first_octet(key.dst) == Some(*octet)),
        ("port=443", &|key| key.src_port == 443 || key.dst_port == 443),
        ("proto!=tcp", &|key| key.proto != 6),
    ];
    let found = answer(&["find", &network, ":443", "proto!=tcp", "--json"], folder)?;
    ensure!(found["windows"] == TIMES, "{found}");
    for (nth, (name, selects)) in parts.iter().enumerate() {
        let truth = oracle.grouped(|key| selects(key).then_some(()).into_iter().collect());
        let truth = truth.get(&()).copied().unwrap_or_default();
        let key = &found["keys"][nth];
        for (metric, truth) in [("packets", truth.packets), ("bytes", truth.bytes)] {
            let truth = truth * u64::from(TIMES);
            let lower = key[metric]["lower"].as_u64().unwrap_or(0);
            let upper = number(&key["at_most"][metric])?;
            ensure!((lower..=upper).contains(&truth), "{name} has {truth} {metric}: {key}");
            ensure!(nth > 0 || upper - lower <= truth / 2, "{name}: the bounds of {truth} {metric} say little: {key}");
        }
        ensure!(key["confidence"].as_f64() >= Some(0.99), "{key}");
    }
    Ok(())
}

/// A small sample: most records are not in it. Each bound of each row is judged, and those of keys without a row.
pub fn it_answers_questions_that_no_view_asked() -> Result<()> {
    let scratch = Scratch::new()?;
    let (file, folder, config) = (scratch.file("traffic.pcap"), scratch.file("past"), scratch.file("weir.yaml"));
    fs::write(&config, "history: {sample: 150}\nviews: []\n")?;
    let plan = Plan { packets: 3_000, flows: 600, ..Plan::default() };
    let oracle = capture_again_and_again(&file, plan, TIMES)?;
    let ended = weir_replay([
        "--config",
        text(&config),
        "--seed",
        "5",
        "--json",
        "--window",
        "10s",
        "--history",
        text(&folder),
        text(&file),
    ])?;
    ensure!(ended.reports(DONE)?.len() == TIMES as usize, "{}", ended.log);
    let ask = |arguments: &[&str]| -> Result<Value> {
        let ended = weir_ask(&[arguments, &["--json"]].concat(), &folder)?;
        ensure!(ended.code == Some(DONE), "{arguments:?}: {}", ended.log);
        Ok(serde_json::from_slice(&ended.out)?)
    };
    let holds = |row: &Value, truth: [u64; 2]| -> Result<bool> {
        let mut holds = true;
        for (metric, truth) in ["packets", "bytes"].into_iter().zip(truth) {
            holds &= (number(&row[metric]["lower"])?..=number(&row[metric]["upper"])?).contains(&truth);
        }
        Ok(holds)
    };
    for proto in ["tcp", "udp"] {
        let answer = ask(&[&format!("proto={proto}"), "--by", "dst_ip"])?;
        ensure!(answer["schema"] == "weir.asked_flows/1" && answer["windows"] == TIMES, "{answer}");
        ensure!(answer["missing"].is_null() && answer["confidence"].as_f64() >= Some(0.99), "{answer}");
        ensure!(number(&answer["records"]["sampled"])? <= 150 * u64::from(TIMES) / 5, "{}", answer["records"]);
        let is_selected = |key: &Key| key.proto == if proto == "tcp" { 6 } else { 17 };
        let select = |key: &Key| is_selected(key).then_some(key.dst).into_iter().collect();
        let sums = |of: Tally| [of.packets, of.bytes].map(|of| of * u64::from(TIMES));
        let mut truth: HashMap<IpAddr, [u64; 2]> =
            oracle.grouped(select).into_iter().map(|(address, of)| (address, sums(of))).collect();
        let whole = truth.values().fold([0; 2], |all, of| [all[0] + of[0], all[1] + of[1]]);
        ensure!(holds(&answer, whole)?, "{whole:?}: {} {}", answer["packets"], answer["bytes"]);
        for row in answer["rows"].as_array().context("rows")? {
            let address: IpAddr = row["dst_ip"].as_str().context("an address")?.parse()?;
            let sent = truth.remove(&address).with_context(|| format!("{address} has got nothing"))?;
            ensure!(holds(row, sent)?, "{address} got {sent:?}: {row}");
        }
        let at_most = [number(&answer["at_most"]["packets"])?, number(&answer["at_most"]["bytes"])?];
        ensure!(truth.values().all(|of| of[0] <= at_most[0] && of[1] <= at_most[1]), "{at_most:?} of {truth:?}");
    }
    // The lists know a source exactly, which the sample does not.
    let sources = oracle.grouped(|key| vec![key.src]);
    let (first, sent) = sources.iter().max_by_key(|(_, of)| of.bytes).context("a source")?;
    let answer = ask(&[&format!("src_ip={first}"), "--by", "src_ip"])?;
    let bytes = sent.bytes * u64::from(TIMES);
    ensure!(answer["bytes"] == serde_json::json!({"value": bytes, "lower": bytes, "upper": bytes}), "{answer} {bytes}");
    parts_are_found(&oracle, &folder)?;
    let csv = String::from_utf8(weir_ask(&["proto=tcp", "--by", "dst_port,proto", "--csv"], &folder)?.out)?;
    let header = "rank,dst_port,proto,packets,packets_lower,packets_upper,bytes,bytes_lower,bytes_upper";
    ensure!(csv.lines().next() == Some(header) && csv.lines().count() > 2, "{csv}");
    let shown = String::from_utf8(weir_ask(&["tcp/443", "--by", "src_ip/24"], &folder)?.out)?;
    ensure!(
        shown.contains("all bounds hold together at 99.9 %") && shown.contains("every other has at most"),
        "{shown}"
    );
    for (wrong, why) in [
        (&["scr_ip=192.0.2.7"][..], "there is no field \"scr_ip\", did you mean src_ip?"),
        (&["src_ip=192.0.2.7/24"], "write 192.0.2.0/24 for the prefix"),
        (&["src_net=lan"], "the flow records of the past do not have src_net"),
        (&["dst_port=443", "proto=tcp", "--by", "proto"], "ask the flow records one at a time"),
        (
            &["dst_port=443", "--from", "2001-01-01T00:00:00Z", "--to", "2001-01-02T00:00:00Z"],
            "the history has samples from",
        ),
    ] {
        let ended = weir_ask(wrong, &folder)?;
        ensure!(ended.code == Some(2) && ended.log.contains(why), "{wrong:?}: {:?} {}", ended.code, ended.log);
    }
    let without = scratch.file("without");
    fs::write(&config, "history: {sample: 0}\n")?;
    weir_replay(["--config", text(&config), "--json", "--history", text(&without), text(&file)])?;
    let none = weir_ask(&["dst_port=443"], &without)?;
    ensure!(none.code == Some(2) && none.log.contains("set `history: {sample: 1000}`"), "{}", none.log);
    // Without a question, the rows are of all traffic.
    let all = ask(&["--by", "proto"])?;
    ensure!(all["question"] == "" && all["rows"].as_array().is_some_and(|rows| rows.len() > 1), "{all}");
    a_damaged_sample_is_named(&folder)
}

fn a_damaged_sample_is_named(folder: &Path) -> Result<()> {
    let names: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    let is_sample = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("samples-") && !name.ends_with(".index")
    };
    let path = names.iter().map(fs::DirEntry::path).find(is_sample).context("a segment of samples")?;
    let mut bytes = fs::read(&path)?;
    bytes[80] ^= 0xff;
    fs::write(&path, bytes)?;
    let ended = weir_ask(&["proto=tcp"], folder)?;
    let is_named = ended.log.contains("the block at byte 0") && ended.log.contains(text(&path));
    ensure!(ended.code == Some(DONE) && is_named, "{:?} {}", ended.code, ended.log);
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
