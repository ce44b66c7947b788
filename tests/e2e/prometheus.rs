//! The scraped numbers are exactly those of the traffic, and scrapers cost no packet.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    netns::{Namespace, QuietPair, requirements},
    oracle::Oracle,
    prometheus::Prometheus,
    traffic::{Mix, Plan},
};

use crate::watch::{INTERVAL, TIMEOUT, Watch, judge};

tests![
    a_scrape_is_exactly_what_was_sent,
    a_scrape_is_packed_if_the_client_asks_for_it,
    a_request_for_another_host_is_refused,
    scrapers_that_hang_or_send_garbage_cost_nothing
];

/// Tests that use the programs of Prometheus.
pub const WITH_PROMETHEUS: &[crate::Test] =
    &[("promtool_finds_no_fault", promtool_finds_no_fault), ("prometheus_scrapes_it", prometheus_scrapes_it)];

/// The requirements of those tests.
pub fn requirements_of_prometheus() -> Result<(), String> {
    requirements()?;
    let found = Command::new("promtool").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err("there is no promtool (apt: prometheus)".to_owned()),
    }
}

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9469);
const SETTINGS: &str = "prometheus: {listen: 127.0.0.1:9469}\nviews: [{name: hosts, by: [src_ip], top: 5}]\n";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";

fn start() -> Result<Watch> {
    Watch::start(&format!("{INTERVAL}{SETTINGS}"))
}

/// weir's answer to a request inside the namespace: status, head and body.
pub fn get(namespace: &Namespace, path: &str, accept: &str) -> Result<(u16, String, String)> {
    namespace.enter(|| {
        let mut stream = TcpStream::connect(ADDRESS)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {ADDRESS}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("no answer: {answer:?}"))?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, head.to_owned(), body.to_owned()))
    })?
}

/// The number of a series, as it is written.
fn series(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

fn of_interface(name: &str, more: &str) -> String {
    format!(
        "weir_interface_{name}_total{{interface=\"{}\",direction=\"ingress\"{more}}}",
        QuietPair::OBSERVER_INTERFACE
    )
}

fn a_scrape_is_exactly_what_was_sent() -> Result<()> {
    let watch = start()?;
    let mut oracle = Oracle::new();
    let seen = [of_interface("seen_packets", ""), of_interface("seen_bytes", "")];
    let mut before = [0, 0];
    for seed in [71, 72, 73] {
        watch.send(Plan { seed, mix: Mix::odd(), ..Plan::default() }, &mut oracle)?;
        let sent = oracle.sent();
        let text = clock::wait_for("all packets in the sums", TIMEOUT, || {
            let (status, head, text) = get(&watch.pair.observer, "/metrics", OPEN_METRICS)?;
            ensure!(status == 200 && head.contains(OPEN_METRICS) && text.ends_with("# EOF\n"), "{head}\n{text}");
            let now = seen.each_ref().map(|name| series(&text, name).unwrap_or_default());
            ensure!(now >= before && now[1] >= before[1], "a counter went back from {before:?} to {now:?}");
            before = now;
            Ok((now == [sent.packets, sent.bytes]).then_some(text))
        })?;
        for (unit, of) in [("packets", sent.packets), ("bytes", sent.bytes)] {
            ensure!(series(&text, &format!("weir_{unit}_total")) == Some(of), "all {unit}: {text}");
        }
        let attributed = oracle.attributed();
        let of = |unit, more: &str| series(&text, &of_interface(&format!("accounted_{unit}"), more));
        let parts = [of("packets", ",kind=\"attributed\""), of("bytes", ",kind=\"attributed\"")];
        ensure!(parts == [Some(attributed.packets), Some(attributed.bytes)], "{parts:?} is not {attributed:?}");
        for (reason, tally) in oracle.skipped() {
            let more = format!(",kind=\"skipped\",reason=\"{reason}\"");
            let found = [of("packets", &more), of("bytes", &more)];
            ensure!(found == [Some(tally.packets), Some(tally.bytes)], "{reason}: {found:?} is not {tally:?}");
        }
        let lost = text.lines().filter(|line| line.contains("accounted_packets_total") && line.contains("\"lost\""));
        ensure!(lost.clone().count() > 0 && lost.clone().all(|line| line.ends_with(" 0")), "something is lost: {text}");
    }
    ensure!(!oracle.skipped().is_empty(), "nothing of what was sent is skipped: the test does not see it");
    for path in ["/healthz", "/readyz"] {
        let (status, _, said) = get(&watch.pair.observer, path, "*/*")?;
        ensure!(status == 200, "{path}: {status} {said}");
    }
    let (_, _, report) = get(&watch.pair.observer, "/report", "*/*")?;
    let report: Value = serde_json::from_str(&report)?;
    ensure!(get(&watch.pair.observer, "/nowhere", "*/*")?.0 == 404);
    let reports = watch.stop(Loss::None)?;
    ensure!(reports.contains(&report), "the scraped report is none of the reports: {report}");
    judge("all windows", oracle.check_reports(&reports))
}

/// The answer to these bytes, until weir closes the connection.
fn answer(namespace: &Namespace, request: &str) -> Result<Vec<u8>> {
    namespace.enter(|| {
        let mut stream = TcpStream::connect(ADDRESS)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    })?
}

fn a_scrape_is_packed_if_the_client_asks_for_it() -> Result<()> {
    let watch = start()?;
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 74, ..Plan::default() }, &mut oracle)?;
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: {ADDRESS}\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n");
    let seen = of_interface("seen_packets", "");
    let sent = oracle.sent().packets;
    // An HTTP/1.0 request never gets a chunked answer.
    let request = request.replace("HTTP/1.1", "HTTP/1.0");
    let (packed, text) = clock::wait_for("all packets in the sums", TIMEOUT, || {
        let answer = answer(&watch.pair.observer, &request)?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no head")?;
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        ensure!(head.starts_with("http/1.0 200") && head.contains("content-encoding: gzip"), "{head}");
        ensure!(head.contains("vary: accept-encoding"), "{head}");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&answer[end + 4..]).read_to_string(&mut text)?;
        Ok((series(&text, &seen) == Some(sent)).then_some((answer.len(), text)))
    })?;
    ensure!(packed * 4 < text.len(), "{packed} bytes of {} are not packed", text.len());
    let (_, head, plain) = get(&watch.pair.observer, "/metrics", "*/*")?;
    ensure!(!head.to_ascii_lowercase().contains("content-encoding") && series(&plain, &seen) == Some(sent), "{head}");
    judge("all windows", oracle.check_reports(&watch.stop(Loss::None)?))
}

/// The host is a name that anybody could point at this address (DNS rebinding), in every form that a request allows.
fn a_request_for_another_host_is_refused() -> Result<()> {
    let watch = start()?;
    for (target, hosts, status) in [
        ("/report", "Host: evil.example.net\r\n", "421"),
        ("http://evil.example.net/report", "Host: localhost\r\n", "421"),
        ("http://localhost@evil.example.net:9469/report", "Host: localhost\r\n", "400"),
        ("/healthz", "Host: localhost\r\nHost: evil.example.net\r\n", "400"),
        ("/healthz", "Host: localhost\r\nHost: localhost\r\n", "400"),
        ("/healthz", "Host: localhost\r\n", "200"),
        ("http://localhost:9469/healthz", "Host: evil.example.net\r\n", "200"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        let answer = String::from_utf8_lossy(&answer(&watch.pair.observer, &request)?).into_owned();
        ensure!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}{answer}");
    }
    watch.stop(Loss::None).map(drop)
}

fn scrapers_that_hang_or_send_garbage_cost_nothing() -> Result<()> {
    let watch = start()?;
    let pid = watch.daemon.pid();
    // A new thread gets its name only after a moment.
    let metrics = clock::wait_for("the thread for it", TIMEOUT, || {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))?.filter_map(Result::ok).map(|thread| thread.path());
        let is_it =
            |thread: &PathBuf| fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "weir-metrics");
        let metrics: Vec<_> = threads.filter(is_it).collect();
        Ok((!metrics.is_empty()).then_some(metrics))
    })?;
    let [thread] = &metrics[..] else { anyhow::bail!("there is one thread for it: {metrics:?}") };
    // The thread drops its capabilities before it accepts its first connection.
    clock::wait_for("a thread without capabilities", TIMEOUT, || {
        let status = fs::read_to_string(thread.join("status"))?;
        let has_none = |set| status.contains(&format!("{set}:\t0000000000000000"));
        Ok(["CapEff", "CapPrm", "CapInh", "CapAmb"].into_iter().all(has_none).then_some(()))
    })?;

    let hanging = watch.pair.observer.enter(|| -> Result<Vec<TcpStream>> {
        let begin = |beginning: &[u8]| {
            let mut stream = TcpStream::connect(ADDRESS)?;
            // A connection that was closed for a newer one cannot be written to.
            let _ = stream.write_all(beginning);
            Ok(stream)
        };
        // These connections are answered and closed. Until then they would occupy slots of other clients.
        let refused: [&[u8]; 2] = [
            b"\x16\x03\x01\x02\x00\x01\x00 garbage\r\n\r\n",
            b"POST /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\nx",
        ];
        for beginning in refused {
            let mut stream: TcpStream = begin(beginning)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            let mut answer = Vec::new();
            // weir may close the connection before it has read the whole request.
            let _ = stream.read_to_end(&mut answer);
            ensure!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
        }
        // These connections stay open. The last one sends a request and never reads the answer.
        let hanging: [&[u8]; 3] = [b"", b"GET /metrics HTT", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"];
        hanging.into_iter().cycle().take(100).map(begin).collect()
    })??;
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 74, ..Plan::default() }, &mut oracle)?;
    let sent = oracle.sent();
    let name = of_interface("seen_packets", "");
    clock::wait_for("a scrape with all packets", TIMEOUT, || {
        let (status, _, text) = get(&watch.pair.observer, "/metrics", "")?;
        ensure!(status == 200, "{status}: {text}");
        Ok((series(&text, &name) == Some(sent.packets)).then_some(()))
    })?;
    let sockets = fs::read_dir(format!("/proc/{pid}/fd"))?
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"));
    let sockets = sockets.count();
    ensure!(sockets < 50, "{sockets} sockets: weir should have closed some connections");
    drop(hanging);
    let reports = watch.stop(Loss::None)?;
    judge("beside clients that hang", oracle.check_reports(&reports))
}

fn promtool_finds_no_fault() -> Result<()> {
    let watch = start()?;
    watch.send(Plan { seed: 75, mix: Mix::odd(), ..Plan::default() }, &mut Oracle::new())?;
    let text = clock::wait_for("rows of a view", TIMEOUT, || {
        let (_, _, text) = get(&watch.pair.observer, "/metrics", "text/plain")?;
        Ok(text.contains("weir_view_bytes{view=\"hosts\",src_ip=\"").then_some(text))
    })?;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    promtool.stdin.take().context("it is piped")?.write_all(text.as_bytes())?;
    let ended = promtool.wait_with_output()?;
    let said = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    ensure!(ended.status.success() && said.is_empty(), "{}: {said}\n{text}", ended.status);
    Ok(())
}

fn prometheus_scrapes_it() -> Result<()> {
    let watch = start()?;
    let server = Prometheus::start(&watch.pair.observer, ADDRESS)?;
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 76, ..Plan::default() }, &mut oracle)?;
    let sent = oracle.sent();
    let ask = |query: &str| -> Result<Option<u64>> {
        let answer = server.api(&watch.pair.observer, &format!("query?query={query}"))?;
        let Some(body) = answer else { return Ok(None) };
        let value = body.pointer("/data/result/0/value/1").and_then(Value::as_str);
        Ok(value.and_then(|value| value.parse().ok()))
    };
    let waited = clock::wait_for("Prometheus to have all packets", 2 * TIMEOUT, || {
        Ok((ask("weir_interface_seen_packets_total")? == Some(sent.packets)).then_some(()))
    });
    waited.with_context(|| server.log())?;
    ensure!(ask("up")? == Some(1), "the last scrape failed");
    ensure!(ask("weir_interface_seen_bytes_total")? == Some(sent.bytes), "bytes");
    let reports = watch.stop(Loss::None)?;
    judge("beside Prometheus", oracle.check_reports(&reports))
}
