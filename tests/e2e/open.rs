//! The open window, read while it is measured: its lists have everything that was sent so far, and readers cost no
//! packet.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Shutdown},
    os::unix::net::UnixStream,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use weir_common::ledger::Tally;
use weir_tests::{
    account::Loss,
    clock,
    daemon::weir_binary,
    netns::{Lab, QuietPair},
    oracle::{Dimension, Oracle},
    quiet::send,
    scratch::Scratch,
    traffic::{Plan, Traffic},
};

use crate::watch::{
    self, ONE_WINDOW, QUIET_LINK, ROOMY_PACKET_RINGS, ROOMY_RINGS, TIMEOUT, Watch, list, measure, number,
};

tests![
    the_open_window_holds_what_was_sent_so_far_and_its_report_agrees,
    packet_sockets_have_an_open_window_too,
    readers_of_the_open_window_cost_no_packet,
];

/// There are fewer candidates than sources, so that values are estimates with bounds.
const FEW: &str = "estimates: {top_error: 0.01, top_candidates: 270}\n";

fn settings(socket: &Path) -> String {
    format!("control: {{socket: {}}}\n", socket.display())
}

fn connect(socket: &Path, request: &Value) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    writeln!(stream, "{request}")?;
    Ok(stream)
}

/// The answer; `None` if there is no answer now.
fn ask(socket: &Path, request: &Value) -> Result<Option<Value>> {
    let mut line = String::new();
    connect(socket, request)?.read_to_string(&mut line)?;
    let mut told: Value = serde_json::from_str(&line).with_context(|| format!("{line:?}"))?;
    ensure!(told.get("refused").is_none(), "{told}");
    Ok(told.get("answer").is_some().then(|| told["answer"].take()))
}

fn live() -> Value {
    json!({"version": 1, "command": "live"})
}

/// Reads the open window until it has everything that was sent. Fails if it has more.
fn read_until(socket: &Path, sent: Tally) -> Result<Value> {
    clock::wait_for("all packets in the open window", TIMEOUT, || {
        let Some(live) = ask(socket, &live())? else { return Ok(None) };
        let totals = &live["totals"];
        let counted = Tally::new(number(&totals["packets"])?, number(&totals["bytes"])?);
        ensure!(counted.packets <= sent.packets, "{counted:?} of {sent:?}");
        Ok((counted == sent).then_some(live))
    })
}

/// Checks that the bounds of all rows hold, and that the largest source is listed.
fn check(live: &Value, oracle: &Oracle) -> Result<()> {
    ensure!(live["schema"] == "weir.live/1" && live["window"]["seconds"].as_f64() > Some(0.0), "{live}");
    for top in ["top", "top_by_packets"] {
        for dimension in Dimension::ALL {
            let rows = &live[top][dimension.name()];
            ensure!(!list(rows)?.is_empty(), "{top}.{} is empty", dimension.name());
            let holds = oracle.truths(dimension).hold(rows).map_err(|why| anyhow!("{top}: {why}"))?;
            ensure!(holds, "{top}.{}: {rows}", dimension.name());
        }
    }
    let sources = oracle.grouped(|key| vec![key.src]);
    let (largest, _) = sources.iter().max_by_key(|(_, tally)| tally.bytes).context("sources")?;
    let listed = list(&live["top"]["sources"])?;
    ensure!(listed.iter().any(|row| row["src_ip"] == largest.to_string()), "{largest} is not in {listed:?}");
    let unique = &live["unique"]["src_ip"];
    let distinct = sources.len() as u64;
    ensure!((number(&unique["lower"])?..=number(&unique["upper"])?).contains(&distinct), "{distinct}: {unique}");
    Ok(())
}

/// The answer of weir about a source in the open window.
fn asked(socket: &Path, source: IpAddr) -> Result<Value> {
    let mut command = Command::new(weir_binary()?);
    let output =
        command.args(["ask", "--live", "--json", &format!("src_ip={source}"), "--socket"]).arg(socket).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout)?;
    let mut rows = list(&told["answers"])?.iter();
    rows.find(|row| row["view"] == "sources").cloned().with_context(|| format!("{told}"))
}

fn the_open_window_holds_what_was_sent_so_far_and_its_report_agrees() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let watch = Watch::one_window(&format!("{FEW}{ROOMY_RINGS}{}", settings(&socket)))?;
    let (mut oracle, mut sent, mut last) = (Oracle::new(), Tally::default(), Value::Null);
    for seed in [51, 52] {
        // A few packets of many flows are sent, most of which are in the flow cache until the window is read.
        sent.add(watch.send(Plan { seed, packets: 8_000, flows: 3_000, ..Plan::default() }, &mut oracle)?);
        last = read_until(&socket, sent)?;
        check(&last, &oracle)?;
    }
    let only = ask(&socket, &json!({"version": 1, "command": "live", "list": "pairs"}))?.context("no answer")?;
    ensure!(only["top"]["flows"] == json!([]) && !list(&only["top"]["pairs"])?.is_empty(), "{only}");
    let sources = oracle.grouped(|key| vec![key.src]);
    let mut by_size: Vec<_> = sources.iter().collect();
    by_size.sort_unstable_by_key(|(source, tally)| (tally.bytes, **source));
    for (source, truth) in [by_size[0], by_size[by_size.len() / 2], by_size[by_size.len() - 1]] {
        let row = asked(&socket, *source)?;
        for (name, truth) in [("bytes", truth.bytes), ("packets", truth.packets)] {
            let bounds = number(&row[name]["lower"])?..=number(&row[name]["upper"])?;
            ensure!(bounds.contains(&truth), "{source} has {truth} {name}: {row}");
        }
    }
    // Nothing was sent since then, so the report of this window must agree.
    let reports = watch.stop(Loss::None)?;
    let [report] = &reports[..] else { return Err(anyhow!("{} reports", reports.len())) };
    for total in ["packets", "bytes", "ipv4_packets", "tcp_packets", "udp_packets"] {
        ensure!(report["totals"][total] == last["totals"][total], "{total}: {} {}", report["totals"], last["totals"]);
    }
    ensure!(report["unique"] == last["unique"], "{} {}", report["unique"], last["unique"]);
    ensure!(report["window"]["start"] == last["window"]["start"]);
    watch::judge("after readings", oracle.check_reports(&reports))
}

fn packet_sockets_have_an_open_window_too() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    watch::one_window();
    let pair = Lab::quiet_pair()?;
    let interfaces = format!("interfaces: [{{name: {}, mode: afpacket}}]\n", QuietPair::OBSERVER_INTERFACE);
    let settings = format!("{interfaces}{ONE_WINDOW}{FEW}{ROOMY_PACKET_RINGS}{}", settings(&socket));
    let mut daemon = measure(&pair.observer, &settings)?;
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 53, packets: 8_000, flows: 3_000, ..Plan::default() };
    let sent = send(&pair, QUIET_LINK, Traffic::new(plan)?, weir_tests::inject::Pace::Unlimited, &mut oracle)?;
    check(&read_until(&socket, sent)?, &oracle)?;
    watch::judge("after readings", oracle.check_reports(&watch::stop(&mut daemon, Loss::None)?))
}

/// Many clients ask and never read the answer, one client asks as often as it can, and windows end meanwhile.
fn readers_of_the_open_window_cost_no_packet() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let watch = Watch::start(&format!("{}{ROOMY_RINGS}{}", watch::INTERVAL, settings(&socket)))?;
    let deaf = (0..50).map(|_| connect(&socket, &live())).collect::<Result<Vec<_>>>()?;
    let (is_over, mut oracle) = (AtomicBool::new(false), Oracle::new());
    let answers = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut answers = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                answers += u32::from(ask(&socket, &live())?.is_some());
            }
            anyhow::Ok(answers)
        });
        let sent = (0..8).try_for_each(|nth| {
            let plan = Plan { seed: 60 + nth, packets: 20_000, flows: 3_000, ..Plan::default() };
            watch.send(plan, &mut oracle).map(drop)
        });
        let mut is_answered = || Ok(ask(&socket, &live())?.map(drop));
        let answered = clock::wait_for("an answer after all of this", TIMEOUT, &mut is_answered);
        is_over.store(true, Ordering::Relaxed);
        sent.and(answered)?;
        reader.join().map_err(|_| anyhow!("the reader has panicked"))?
    })?;
    ensure!(answers > 0, "no client got an answer");
    for one in &deaf {
        // weir may have disconnected them.
        let _ = one.shutdown(Shutdown::Both);
    }
    watch::judge("with readers", oracle.check_reports(&watch.stop(Loss::None)?))
}
