//! A running weir remembers exactly what it reported and counted, also after a restart.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_common::ledger::Tally;
use weir_tests::{
    account::{Loss, tally},
    clock,
    daemon::{Daemon, weir_binary},
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Plan, Traffic},
};

use crate::watch::{QUIET_LINK, ROOMY_RINGS, TIMEOUT, config, list, native, number, send, stop, weir_with};

/// The number of UDP.
const UDP: u8 = 17;

tests![it_is_the_sum_of_the_reports_and_survives_a_restart, off_remembers_nothing];

/// Runs weir with this state directory and control socket, on a quiet pair, with windows of a second.
pub fn run(pair: &QuietPair, state: &Path, socket: &Path, settings: &str) -> Result<Daemon> {
    let scratch = Scratch::new()?;
    let program = weir_with(&[("STATE_DIRECTORY", state)], &scratch)?;
    let settings = format!(
        "interfaces: [{}]\nreport: {{interval: 1s}}\n{ROOMY_RINGS}control: {{socket: {}}}\n{settings}",
        native(QuietPair::OBSERVER_INTERFACE),
        socket.display()
    );
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |reports| config(&settings, reports))?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    Ok(daemon)
}

/// The answer to a command of the control socket, or why there is none.
fn asked(socket: &Path, command: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut request = command.clone();
    request["version"] = json!(1);
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).with_context(|| format!("{line:?}"))
}

/// What a command that asks this weir prints.
pub fn weir(socket: &Path, arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(weir_binary()?).args(arguments).arg("--socket").arg(socket).output()?)
}

/// Returns the sum of the history's seconds, and that of its windows.
fn known(socket: &Path) -> Result<[Tally; 2]> {
    let told = asked(socket, &json!({"command": "history", "points": 3600}))?;
    let answer = &told["answer"];
    ensure!(answer["schema"] == "weir.history/1", "{told}");
    let [mut seconds, mut windows] = [Tally::default(); 2];
    for interface in list(&answer["interfaces"])? {
        let sum =
            |name: &str| Ok::<_, anyhow::Error>(list(&interface[name])?.iter().filter_map(Value::as_u64).sum::<u64>());
        seconds.add(Tally::new(sum("packets")?, sum("bytes")?));
        ensure!(sum("lost")? == 0, "{interface}");
    }
    for window in list(&answer["windows"])? {
        windows.add(tally(window)?);
    }
    Ok([seconds, windows])
}

fn seen(reports: &[Value]) -> Result<Tally> {
    let mut sum = Tally::default();
    for interface in reports.iter().flat_map(|report| report["interfaces"].as_array()).flatten() {
        sum.add(tally(&interface["ledger"]["seen"])?);
    }
    Ok(sum)
}

fn it_is_the_sum_of_the_reports_and_survives_a_restart() -> Result<()> {
    let (pair, state, scratch) = (Lab::quiet_pair()?, Scratch::new()?, Scratch::new()?);
    let socket = scratch.file("control.sock");
    let mut oracle = Oracle::new();
    let (mut sent, mut reports) = (Tally::default(), Vec::new());
    for seed in [71, 72] {
        let mut daemon = run(&pair, state.path(), &socket, "")?;
        // The first reading has none before it.
        let before = clock::wait_for("a second that is known", TIMEOUT, || {
            let told = asked(&socket, &json!({"command": "history"}))?;
            let first = list(&told["answer"]["interfaces"])?.first().map(|interface| interface["packets"].clone());
            let is_known = first
                .as_ref()
                .is_some_and(|packets| packets.as_array().is_some_and(|all| all.last() == Some(&json!(0))));
            if is_known { known(&socket).map(Some) } else { Ok(None) }
        })?;
        ensure!(before == [sent; 2], "after a start it knows {before:?} of {sent:?}");
        let plan = Plan { seed, packets: 20_000, flows: 300, ..Plan::default() };
        sent.add(send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?);
        clock::wait_for("a history of all packets", TIMEOUT, || {
            let now = known(&socket)?;
            ensure!(now.iter().all(|known| known.packets <= sent.packets), "{now:?} of {sent:?}");
            Ok((now == [sent; 2]).then_some(()))
        })?;
        let output = weir(&socket, &["report", "--since", "1h", "--json"])?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let union: Value = serde_json::from_slice(&output.stdout)?;
        check(&union, sent, &oracle)?;
        found(&socket, &oracle)?;
        flows(&socket, &oracle)?;
        let tables = String::from_utf8(weir(&socket, &["report", "--last", "600", "--full"])?.stdout)?;
        ensure!(tables.contains(" windows   ") && tables.contains("INTERFACES"), "{tables}");
        let early = weir(&socket, &["report", "--to", "2020-01-01 00:00"])?;
        let why = String::from_utf8(early.stderr)?;
        ensure!(early.status.code() == Some(3) && why.contains("there is no data for this time"), "{why}");
        reports.extend(stop(&mut daemon, Loss::None)?);
        ensure!(seen(&reports)? == sent, "{:?} reported of {sent:?}", seen(&reports)?);
    }
    Ok(())
}

/// The union has all packets, and its bounds hold for each source that it lists.
fn check(union: &Value, sent: Tally, oracle: &Oracle) -> Result<()> {
    ensure!(union["schema"] == "weir.union/1", "{union}");
    ensure!(tally(&union["totals"])? == sent && tally(&union["interfaces"][0]["ledger"]["seen"])? == sent, "{union}");
    ensure!(number(&union["windows"])? >= list(&union["reports"])?.len() as u64, "{union}");
    let truth = oracle.grouped(|key| vec![key.src]);
    let listed = list(&union["top"]["sources"])?;
    ensure!(listed.len() >= 64.min(truth.len()), "{} rows of {} sources", listed.len(), truth.len());
    for row in listed {
        let source: std::net::IpAddr = row["src_ip"].as_str().context("an address")?.parse()?;
        let bytes = truth.get(&source).with_context(|| format!("{source} has sent nothing"))?.bytes;
        let bounds = number(&row["bytes"]["lower"])?..=number(&row["bytes"]["upper"])?;
        ensure!(bounds.contains(&bytes), "{source} has {bytes} bytes, and the history says {bounds:?}");
    }
    let distinct = &union["unique"]["src_ip"];
    let bounds = number(&distinct["lower"])?..=number(&distinct["upper"])?;
    ensure!(bounds.contains(&(truth.len() as u64)), "{} sources, and the history says {distinct}", truth.len());
    ensure!(distinct["confidence"].as_f64().is_some_and(|confidence| confidence > 0.99), "{distinct}");
    Ok(())
}

/// `weir ask` says what the past has of an address, also after a restart.
fn found(socket: &Path, oracle: &Oracle) -> Result<()> {
    let truth = oracle.grouped(|key| vec![key.src]);
    let (source, sent) = truth.iter().max_by_key(|(_, sent)| sent.packets).context("a source")?;
    let output = weir(socket, &["ask", "--since", "1d", "--json", &source.to_string()])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let key = &found["keys"][0];
    ensure!(key["key"] == format!("src_ip={source}"), "{found}");
    let bounds = number(&key["packets"]["lower"])?..=number(&key["packets"]["upper"])?;
    ensure!(bounds.contains(&sent.packets) && number(&key["listed"])? > 0, "{source} sent {sent:?}: {found}");
    let text = String::from_utf8(weir(socket, &["ask", "--since", "7d", &source.to_string()])?.stdout)?;
    ensure!(text.contains("blocks on disk") && text.contains("weir remembers since"), "{text}");
    Ok(())
}

/// A question that no view asks is answered from samples, with true bounds for the sum, for each row and for all
/// others.
fn flows(socket: &Path, oracle: &Oracle) -> Result<()> {
    let truth = oracle.grouped(|key| if key.proto == UDP { vec![key.dst] } else { Vec::new() });
    let sum = truth.values().fold(Tally::default(), |mut sum, tally| {
        sum.add(*tally);
        sum
    });
    let output = weir(socket, &["ask", "--since", "1h", "proto=udp", "--by", "dst_ip", "--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout)?;
    let holds = |of: &Value, true_sum: &Tally| -> Result<bool> {
        let packets = number(&of["packets"]["lower"])?..=number(&of["packets"]["upper"])?;
        let bytes = number(&of["bytes"]["lower"])?..=number(&of["bytes"]["upper"])?;
        Ok(packets.contains(&true_sum.packets) && bytes.contains(&true_sum.bytes))
    };
    ensure!(told["schema"] == "weir.asked_flows/1" && holds(&told, &sum)?, "UDP had {sum:?}: {told}");
    let rows = list(&told["rows"])?;
    ensure!(!rows.is_empty(), "{told}");
    let mut others = truth.clone();
    for row in rows {
        let address: std::net::IpAddr = row["dst_ip"].as_str().context("an address")?.parse()?;
        let received = others.remove(&address).with_context(|| format!("{address} has received nothing"))?;
        ensure!(holds(row, &received)?, "{address} received {received:?}: {row}");
    }
    let most = others.values().map(|tally| tally.bytes).max().unwrap_or(0);
    ensure!(others.is_empty() || most <= number(&told["at_most"]["bytes"])?, "another received {most} bytes: {told}");
    Ok(())
}

fn off_remembers_nothing() -> Result<()> {
    let (pair, state, scratch) = (Lab::quiet_pair()?, Scratch::new()?, Scratch::new()?);
    let socket = scratch.file("control.sock");
    let mut daemon = run(&pair, state.path(), &socket, "history: off\n")?;
    daemon.wait_for_reports(2, TIMEOUT)?;
    for command in ["history", "span"] {
        let told = asked(&socket, &json!({"command": command}))?;
        ensure!(told["unavailable"].as_str().is_some_and(|why| why.contains("history: off")), "{told}");
    }
    let output = weir(&socket, &["report", "--since", "20m"])?;
    ensure!(output.status.code() == Some(3), "{output:?}");
    ensure!(weir(&socket, &["report", "--last", "2"])?.status.success(), "the last few reports are kept anyway");
    stop(&mut daemon, Loss::None)?;
    ensure!(!state.path().join("history").exists(), "it has written a history");
    Ok(())
}
