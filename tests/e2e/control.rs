//! Queries to a running weir by its control socket.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, BufReader, Write},
    net::IpAddr,
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account::Loss,
    clock,
    daemon::{Daemon, Signal, weir_binary},
    inject::Pace,
    netns::QuietPair,
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Plan, Traffic},
};

use crate::watch::{self, QUIET_LINK, ROOMY_RINGS, TIMEOUT, Watch, list, number};

tests![
    before_a_window_has_ended_there_is_no_report,
    a_key_is_known_in_each_window_and_the_last_report_is_shown,
    the_last_windows_together_hold_what_was_sent,
    seconds_add_up_to_exactly_what_was_sent,
    subscribers_that_do_not_read_cost_no_packet,
    clients_that_hang_cost_no_packet,
    a_second_weir_leaves_the_socket_and_the_next_one_takes_it,
];

/// Far less than a thousand clients would take with 16 KiB for each request.
const ROOM_FOR_CLIENTS: u64 = 8 << 20;

fn weir(socket: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(weir_binary()?);
    Ok(command.args(arguments).arg("--socket").arg(socket).output()?)
}

/// The JSON that weir prints; `None` if there is no answer yet.
fn json(socket: &Path, arguments: &[&str]) -> Result<Option<Value>> {
    let output = weir(socket, &[arguments, &["--json"]].concat())?;
    if output.status.code() == Some(3) {
        return Ok(None);
    }
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(Some(serde_json::from_slice(&output.stdout)?))
}

fn settings(socket: &Path, interval: &str) -> String {
    format!("report: {{interval: {interval}}}\n{ROOMY_RINGS}control: {{socket: {}}}\n", socket.display())
}

/// Windows begin at multiples of their length, so only one of an hour is sure to be open when the question comes.
fn before_a_window_has_ended_there_is_no_report() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let watch = Watch::one_window(&format!("control: {{socket: {}}}\n", socket.display()))?;
    for arguments in [&["report"][..], &["ask", "src_ip=192.0.2.1"]] {
        let told = weir(&socket, arguments)?;
        let why = String::from_utf8(told.stderr)?;
        ensure!(told.status.code() == Some(3) && why.contains("no window"), "{arguments:?}: {:?} {why}", told.status);
    }
    ensure!(json(&socket, &["status"])?.is_some(), "a status needs no window");
    watch.stop(Loss::None).map(drop)
}

/// Each window is queried for the same keys while it is the last one, so all answers together have all packets.
fn a_key_is_known_in_each_window_and_the_last_report_is_shown() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let mut watch = Watch::start(&settings(&socket, "3s"))?;
    let mut oracle = Oracle::new();
    // There are more sources than a list has rows, so some of the keys are not listed.
    let sent = watch.send(Plan { seed: 31, packets: 30_000, flows: 400, ..Plan::default() }, &mut oracle)?;
    let truth: HashMap<IpAddr, Tally> = oracle.grouped(|key| vec![key.src]);
    let mut keys: Vec<IpAddr> = truth.keys().copied().collect();
    keys.sort_unstable();
    keys.truncate(50);
    let mut question = vec!["ask".to_owned()];
    question.extend(keys.iter().map(|key| format!("src_ip={key}")));
    let question: Vec<&str> = question.iter().map(String::as_str).collect();

    let mut windows: BTreeMap<String, (Value, u64)> = BTreeMap::new();
    clock::wait_for("answers for all packets", TIMEOUT, || {
        let (Some(report), Some(asked)) = (json(&socket, &["report"])?, json(&socket, &question)?) else {
            return Ok(None);
        };
        // Between the two questions a window may have ended.
        if report["id"] == asked["report_id"] {
            ensure!(asked["window"] == report["window"], "{} and {}", asked["window"], report["window"]);
            let id = report["id"].as_str().context("id")?.to_owned();
            let packets = number(&report["interfaces"][0]["ledger"]["seen"]["packets"])?;
            windows.insert(id, (asked["answers"].clone(), packets));
        }
        let seen: u64 = windows.values().map(|(_, packets)| packets).sum();
        Ok((seen >= sent.packets).then_some(()))
    })?;
    for (nth, key) in keys.iter().enumerate() {
        let [mut value, mut lower, mut upper] = [0; 3];
        for (answers, _) in windows.values() {
            // Lists of distinct values answer, too.
            let row = list(answers)?.iter().filter(|row| row["view"] == "sources").nth(nth).context("an answer")?;
            ensure!(row["src_ip"] == key.to_string(), "{row} for {key}");
            value += number(&row["bytes"]["value"])?;
            lower += number(&row["bytes"]["lower"])?;
            upper += number(&row["bytes"]["upper"])?;
        }
        let truth = truth[key].bytes;
        ensure!((lower..=upper).contains(&truth), "{key} has {truth} bytes, and the answers are {lower} to {upper}");
        // With so few keys, all of them are candidates.
        ensure!(value == truth, "{key} has {truth} bytes, and the answers say {value}");
    }

    let status = json(&socket, &["status"])?.context("no status")?;
    ensure!(status["pid"] == watch.daemon.pid() && status["interval_seconds"] == 3, "{status}");
    let told = weir(&socket, &["status"])?;
    let told = String::from_utf8(told.stdout)?;
    ensure!(told.contains(QuietPair::OBSERVER_INTERFACE) && told.contains("delivered"), "{told}");
    // A window without packets may have ended since.
    let has_lists = told.contains("SOURCES") || told.contains(": no packets in the lists");
    ensure!(told.contains("pkt/s") && has_lists && told.contains("of a core"), "{told}");
    let screen = String::from_utf8(weir(&socket, &["report"])?.stdout)?;
    let has_trust = ["TRUST   kept 100.0 %", "TRUST   no packet seen"].iter().any(|text| screen.contains(text));
    ensure!(has_trust && screen.contains("weir report --full"), "{screen}");
    let tables = String::from_utf8(weir(&socket, &["report", "--full"])?.stdout)?;
    ensure!(tables.contains("INTERFACES") && tables.contains("TOP SOURCES BY BYTES"), "{tables}");
    let wrong = weir(&socket, &["ask", "src_ip=nowhere"])?;
    let why = String::from_utf8(wrong.stderr)?;
    ensure!(wrong.status.code() == Some(2) && why.contains("\"nowhere\" is not an address"), "{why}");

    // The sink got the same report.
    let last = json(&socket, &["report"])?.context("no report")?;
    let reports = watch::stop(&mut watch.daemon, Loss::None)?;
    ensure!(reports.contains(&last), "the last report is none of those of the sink: {}", last["id"]);
    ensure!(!socket.exists(), "the socket is still there");
    let gone = weir(&socket, &["status"])?;
    ensure!(gone.status.code() == Some(3), "{gone:?}");
    Ok(())
}

/// Packets of several windows, asked for together: sums are exact, and the bounds of each row hold.
fn the_last_windows_together_hold_what_was_sent() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let watch = Watch::start(&settings(&socket, "1s"))?;
    let mut oracle = Oracle::new();
    // There are more keys than lists have rows, and two seconds of packets make at least two windows.
    let traffic = Traffic::new(Plan { seed: 33, packets: 20_000, flows: 400, ..Plan::default() })?;
    let sent = watch::send(&watch.pair, QUIET_LINK, traffic, Pace::PacketsPerSecond(10_000), &mut oracle)?;
    let union = clock::wait_for("windows with all packets", TIMEOUT, || {
        let Some(union) = json(&socket, &["report", "--last", "5"])? else { return Ok(None) };
        Ok((number(&union["totals"]["packets"])? >= sent.packets).then_some(union))
    })?;
    ensure!(union["schema"] == "weir.union/1", "{union}");
    ensure!(number(&union["totals"]["bytes"])? == sent.bytes, "{} of {sent:?}", union["totals"]);
    let seen = &union["interfaces"][0]["ledger"]["seen"];
    ensure!(number(&seen["packets"])? == sent.packets, "{seen} of {sent:?}");
    let windows = list(&union["reports"])?.len();
    ensure!((2..=5).contains(&windows), "{windows} windows");
    let (sources, destinations) = (oracle.grouped(|key| vec![key.src]), oracle.grouped(|key| vec![key.dst]));
    for order in ["top", "top_by_packets"] {
        for (name, field, truth) in [("sources", "src_ip", &sources), ("destinations", "dst_ip", &destinations)] {
            let rows = list(&union[order][name])?;
            ensure!(rows.len() >= 10, "{} rows of {name}", rows.len());
            for row in rows {
                let address: IpAddr = row[field].as_str().with_context(|| format!("no {field} in {row}"))?.parse()?;
                let truth = truth.get(&address).with_context(|| format!("{address} sent nothing"))?;
                for (measure, truth) in [("packets", truth.packets), ("bytes", truth.bytes)] {
                    let [lower, upper] = ["lower", "upper"].map(|bound| number(&row[measure][bound]));
                    let holds = (lower?..=upper?).contains(&truth);
                    ensure!(holds, "{address} has {truth} {measure}: {row}");
                }
            }
        }
    }
    for (name, truth) in [("src_ip", sources.len()), ("dst_ip", destinations.len())] {
        let unique = &union["unique"][name];
        let holds = (number(&unique["lower"])?..=number(&unique["upper"])?).contains(&(truth as u64));
        ensure!(holds, "{truth} {name}: {unique}");
    }
    let screen = String::from_utf8(weir(&socket, &["report", "--last", "2"])?.stdout)?;
    ensure!(screen.contains("2 windows") && screen.contains("SOURCES   "), "{screen}");
    let tables = String::from_utf8(weir(&socket, &["report", "--last", "2", "--full"])?.stdout)?;
    ensure!(tables.contains("2 windows") && tables.contains("TOP SOURCES BY BYTES"), "{tables}");
    for (count, why) in [("0", "0 is not in 1..=4294967295"), ("x", "invalid digit")] {
        let refused = weir(&socket, &["report", "--last", count])?;
        let said = String::from_utf8(refused.stderr)?;
        ensure!(refused.status.code() == Some(2) && said.contains(why), "{count}: {said}");
    }
    watch.stop(Loss::None).map(drop)
}

fn clients_that_hang_cost_no_packet() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let watch = Watch::start(&settings(&socket, "1s"))?;
    clock::wait_for("a report", TIMEOUT, || json(&socket, &["report"]))?;
    let resident = || -> Result<u64> {
        let report = clock::wait_for("a report", TIMEOUT, || json(&socket, &["report"]))?;
        number(&report["self"]["rss_bytes"])
    };
    let mut oracle = Oracle::new();
    // Sketches take their memory with the first packets.
    watch.send(Plan { seed: 31, packets: 20_000, ..Plan::default() }, &mut oracle)?;
    let before = resident()?;
    let mut hanging = Vec::new();
    for nth in 0..1_000 {
        let mut client = UnixStream::connect(&socket)?;
        let bytes: &[u8] = [
            &b""[..],
            b"{\"version\":1,\"command\":",
            b"{\"version\":1,\"command\":\"report\"}\n",
            b"{\"version\":1,\"command\":\"ask\",\"keys\":[\"src_ip=192.0.2.1\"]}\n",
            &[b'x'; 10_000],
        ][nth % 5];
        // The client may already be disconnected.
        let _ = client.write_all(bytes);
        hanging.push(client);
    }
    watch.send(Plan { seed: 32, packets: 20_000, ..Plan::default() }, &mut oracle)?;
    clock::wait_for("a status beside a thousand clients", TIMEOUT, || json(&socket, &["status"]))?;
    let grown = resident()?.saturating_sub(before);
    ensure!(grown < ROOM_FOR_CLIENTS, "it takes {grown} bytes more beside a thousand clients");
    drop(hanging);
    watch::judge("with a thousand clients", oracle.check_reports(&watch.stop(Loss::None)?))
}

/// A client that has subscribed.
struct Subscriber(BufReader<UnixStream>);

impl Subscriber {
    fn new(socket: &Path) -> Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"{\"version\":1,\"command\":\"subscribe\"}\n")?;
        Ok(Self(BufReader::new(stream)))
    }

    fn next(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let mut told: Value = serde_json::from_str(&line).with_context(|| format!("{line:?}"))?;
        Ok(told["answer"].take())
    }
}

fn tally(of: &Value) -> Result<Tally> {
    Ok(Tally::new(number(&of["packets"])?, number(&of["bytes"])?))
}

fn seconds_add_up_to_exactly_what_was_sent() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let watch = Watch::start(&settings(&socket, "3s"))?;
    let mut subscriber = Subscriber::new(&socket)?;
    let first = subscriber.next()?;
    let before = tally(&first["interfaces"][0]["total"])?;
    ensure!(first["schema"] == "weir.second/1" && first["interfaces"][0]["direction"] == "ingress", "{first}");
    let mut oracle = Oracle::new();
    let sent = watch.send(Plan { seed: 41, packets: 30_000, flows: 400, ..Plan::default() }, &mut oracle)?;
    let (mut sum, mut last, mut is_reported) = (Tally::default(), before, false);
    // Reads on after all packets have come, until a window has ended.
    while sum.packets < sent.packets || !is_reported {
        let second = subscriber.next()?;
        let interface = &second["interfaces"][0];
        sum.add(tally(&interface["counted"])?);
        last = tally(&interface["total"])?;
        ensure!(second.get("skipped").is_none(), "{second}");
        ensure!(sum.packets <= sent.packets, "{sum:?} of {sent:?} after {second}");
        is_reported = second["last_report"]["id"].is_string() && interface["lost"]["packets"] == 0;
    }
    ensure!(sum == sent && last.since(before) == sent, "{sum:?} in seconds, {last:?} after {before:?}, sent {sent:?}");
    watch::judge("with a subscriber", oracle.check_reports(&watch.stop(Loss::None)?))
}

fn subscribers_that_do_not_read_cost_no_packet() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let watch = Watch::start(&settings(&socket, "1s"))?;
    let deaf = (0..100).map(|_| Subscriber::new(&socket)).collect::<Result<Vec<_>>>()?;
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 42, packets: 20_000, ..Plan::default() }, &mut oracle)?;
    clock::wait_for("a report", TIMEOUT, || json(&socket, &["report"]))?;
    ensure!(json(&socket, &["status"])?.is_some(), "no status beside a hundred subscribers");
    drop(deaf);
    // The subscribers' slots are free again.
    clock::wait_for("a place for a subscriber", TIMEOUT, || {
        let second = Subscriber::new(&socket)?.next()?;
        Ok((second["schema"] == "weir.second/1").then_some(()))
    })?;
    watch::judge("with a hundred subscribers", oracle.check_reports(&watch.stop(Loss::None)?))
}

fn a_second_weir_leaves_the_socket_and_the_next_one_takes_it() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let mut first = Watch::start(&settings(&socket, "1s"))?;
    let asked = || anyhow::Ok(json(&socket, &["status"])?.context("no answer")?["pid"].as_u64());
    ensure!(asked()? == Some(first.daemon.pid().into()));
    let mut second = Watch::start(&settings(&socket, "1s"))?;
    ensure!(second.daemon.log()?.contains("another weir uses it"), "{}", second.daemon.log()?);
    second.daemon.stop(TIMEOUT)?;
    ensure!(asked()? == Some(first.daemon.pid().into()), "the second weir has taken the socket along");
    first.daemon.signal(Signal::KILL)?;
    first.daemon.wait(TIMEOUT)?;
    ensure!(socket.exists(), "a killed weir removes nothing");
    let gone = weir(&socket, &["status"])?;
    let why = String::from_utf8(gone.stderr)?;
    ensure!(gone.status.code() == Some(3) && why.contains("has ended"), "{why}");
    let mut third: Daemon = Watch::start(&settings(&socket, "1s"))?.daemon;
    let pid = third.pid();
    clock::wait_for("the next weir", Duration::from_secs(10), || Ok((asked()? == Some(pid.into())).then_some(())))?;
    third.stop(TIMEOUT)?;
    Ok(())
}
