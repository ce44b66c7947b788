//! Each query of the dashboard for the collector has an answer from a database that the collector wrote.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_tests::{
    collecting::{Collecting, NDJSON, database},
    daemon::weir_binary,
    grafana::{Dashboard, Query},
    scratch::Scratch,
};

/// The requirements of this test.
pub fn sqlite_is_there() -> Result<(), String> {
    let found = Command::new("sqlite3").arg("--version").stdout(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err("there is no sqlite3 (apt: sqlite3)".to_owned()),
    }
}

/// The rows that `SQLite` gives for a query.
pub fn rows(folder: &Path, text: &str) -> Result<Vec<Value>> {
    let output = Command::new("sqlite3").args(["-readonly", "-json"]).arg(database(folder)).arg(text).output()?;
    ensure!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    if output.stdout.is_empty() {
        return Ok(Vec::new());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Reports of one router, as `weir replay` makes them of the capture of the demo.
fn replayed(name: &str, scratch: &Scratch) -> Result<Vec<Value>> {
    let config = scratch.file("weir.yaml");
    let settings = format!(
        "observer: {{name: {name}, site: fra1}}\nalerts: {{rules: [{{name: any, when: packets > 0}}]}}\nsinks: []\n"
    );
    fs::write(&config, settings)?;
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/demo.pcap");
    let output = Command::new(weir_binary()?)
        .args(["replay", "--json", "--window", "1s", "--config"])
        .arg(&config)
        .arg(capture)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "{}", output.status);
    let text = String::from_utf8(output.stdout)?;
    // All that run on this machine have the same identity.
    let first: Value = serde_json::from_str(text.lines().next().context("no report")?)?;
    let id = first["observer"]["id"].as_str().context("no identity")?;
    let other = format!("{id}-{name}");
    let report = |line: &str| {
        let mut report: Value = serde_json::from_str(&line.replace(id, &other))?;
        // A capture has no counters of an interface, and no direction.
        report["interfaces"][0]["coverage"] = 0.999.into();
        report["interfaces"][0]["direction"] = "ingress".into();
        Ok(report)
    };
    text.lines().map(report).collect()
}

/// Sends all reports of a router but two. A tombstone explains one of these.
fn send(collector: &Collecting, reports: &[Value]) -> Result<()> {
    ensure!(reports.len() > 4, "{} reports are too few", reports.len());
    let kept = reports.iter().enumerate().filter(|(nth, _)| ![1, 2].contains(nth));
    let mut lines: Vec<_> = kept.map(|(_, report)| report.to_string()).collect();
    let observer = &reports[0]["observer"];
    let [id, boot] = ["id", "boot_id"].map(|name| observer[name].as_str().unwrap_or_default());
    let lost = reports[2]["observer"]["seq"].as_u64().context("no number")?;
    let tombstone = json!({"schema": "weir.tombstone/1", "id": format!("{id}/{boot}/{lost}-{lost}"),
        "observer": {"id": id, "boot_id": boot}, "first_seq": lost, "last_seq": lost, "reports": 1, "reason": "spool_full"});
    lines.push(tombstone.to_string());
    let answer = collector.post(NDJSON, lines.join("\n").as_bytes())?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(())
}

/// A query as Grafana sends it, if the user has chosen all observers and all times.
fn filled_in(text: &str, observers: &[Value]) -> Result<String> {
    let all: Vec<_> = observers.iter().filter_map(Value::as_str).map(|id| format!("'{id}'")).collect();
    let text = text.replace("${observer:sqlstring}", &all.join(","));
    let text = text.replace("$__from", "0").replace("$__to", "4000000000000");
    // `$.` begins a path in JSON, and is not a variable.
    ensure!(!text.replace("'$.", "").contains('$'), "an unknown variable: {text}");
    Ok(text)
}

pub fn the_dashboard_has_data() -> Result<()> {
    let scratch = Scratch::new()?;
    let collector = Collecting::start(scratch.path(), &[])?;
    let mut last = Vec::new();
    for name in ["edge-1", "edge-2"] {
        let reports = replayed(name, &scratch)?;
        send(&collector, &reports)?;
        last.extend(reports.last().cloned());
    }
    let board = Dashboard::read("weir-collector.json")?;
    let [(_, observers)] = &board.variables()[..] else { anyhow::bail!("{:?}", board.variables()) };
    let observers: Vec<_> = rows(scratch.path(), observers)?.iter().map(|row| row["__value"].clone()).collect();
    ensure!(observers.len() == 2, "{observers:?}");
    let queries = board.queries()?;
    ensure!(queries.len() > 15, "{} queries", queries.len());
    for query in &queries {
        let rows = rows(scratch.path(), &filled_in(&query.text, &observers)?).with_context(|| query.of.clone())?;
        check_shape(query, &rows).with_context(|| format!("{}: {rows:?}", query.of))?;
        numbers(query, &rows, &last).with_context(|| format!("{}: {rows:?}", query.of))?;
    }
    Ok(())
}

/// There are rows, no column is empty, and times are whole seconds in an order that makes lines.
fn check_shape(query: &Query, rows: &[Value]) -> Result<()> {
    let first = rows.first().and_then(Value::as_object).context("no rows")?;
    for column in first.keys() {
        ensure!(rows.iter().any(|row| !row[column].is_null()), "{column} is empty");
    }
    for time in query.times.iter().filter(|time| first.contains_key(*time)) {
        ensure!(rows.iter().all(|row| row[time].is_i64()), "{time} is not in whole seconds");
    }
    if query.is_series {
        ensure!(query.times == ["time"], "{:?}", query.times);
        ensure!(rows.iter().map(|row| row["time"].as_i64()).is_sorted(), "not in the order of time");
    }
    Ok(())
}

/// Some numbers are those of the reports.
fn numbers(query: &Query, rows: &[Value], last: &[Value]) -> Result<()> {
    match query.of.as_str() {
        "Observers A" if rows[0].get("observers").is_some() => ensure!(rows[0]["observers"] == 2),
        "Missing, unexplained A" => ensure!(rows[0]["missing"] == 2, "one of each router"),
        "Dropped by senders A" => ensure!(rows[0]["dropped"] == 2, "one of each router"),
        "Alerts firing A" => ensure!(rows[0]["firing"] == 2),
        "Gaps A" => {
            let counts = |row: &Value| ["missing", "dropped", "unexplained"].map(|name| row[name].as_i64());
            let all: Vec<_> = rows.iter().map(counts).collect();
            let [unexplained, dropped] = [[1, 0, 1], [1, 1, 0]].map(|row| row.map(Some));
            ensure!(all == [unexplained, unexplained, dropped, dropped], "one of each router");
            ensure!(rows[0]["reason"].is_null() && rows[2]["reason"] == "spool_full");
        }
        "Largest sources A" => {
            let of = &last[0];
            let seconds = of["window"]["seconds"].as_f64().context("no length")?;
            let source = &of["top"]["sources"][0];
            let row = rows.iter().find(|row| row["observer"] == "edge-1" && row["source"] == source["src_ip"]);
            let row = row.context("the largest source is not there")?;
            for (column, part) in [("at least", "lower"), ("estimate", "value"), ("at most", "upper")] {
                let rate = source["bytes"][part].as_f64().unwrap_or_default() * 8.0 / seconds;
                let shown = row[column].as_f64().unwrap_or_default();
                ensure!((shown - rate).abs() <= rate * 1e-3, "{column}: {shown} is not {rate}");
            }
        }
        _ => {}
    }
    Ok(())
}
