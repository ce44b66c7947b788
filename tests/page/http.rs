//! The page's server without a browser: capabilities, host names, tokens, and clients that stall.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::mpsc::{Receiver, channel},
    thread,
};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use weir_tests::{
    account::{self, Loss},
    clock,
    inject::Pace,
    netns::{Namespace, QuietPair},
    oracle::Oracle,
    quiet::{QUIET_LINK, TIMEOUT, send},
    traffic::{Plan, Traffic},
};

use crate::Watched;

const ADDRESS: &str = "127.0.0.1:9470";

/// weir's answer to a request inside the namespace: status, head and body.
pub fn get_at(namespace: &Namespace, address: &str, path: &str, headers: &str) -> Result<(u16, String, String)> {
    get_by(namespace, address, path, &format!("Host: {address}\r\n{headers}"))
}

/// Sends a request with any headers.
pub fn get_by(namespace: &Namespace, address: &str, path: &str, headers: &str) -> Result<(u16, String, String)> {
    let address: SocketAddr = address.parse()?;
    namespace.enter(|| {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("no answer: {answer:?}"))?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, head.to_ascii_lowercase(), body.to_owned()))
    })?
}

/// weir's answer on loopback inside the namespace: status, head and body.
pub fn get(namespace: &Namespace, path: &str) -> Result<(u16, String, String)> {
    get_at(namespace, ADDRESS, path, "")
}

/// weir's answer to a request whose answer has no end: status, head, and how the body begins.
pub fn begin(namespace: &Namespace, path: &str) -> Result<(u16, String, String)> {
    let mut stream = namespace.enter(|| TcpStream::connect(ADDRESS))??;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n")?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut piece)?;
        ensure!(length > 0, "the answer ends: {}", String::from_utf8_lossy(&answer));
        answer.extend(&piece[..length]);
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let status = head.split(' ').nth(1).context("no status")?.parse()?;
            return Ok((status, head.to_ascii_lowercase(), body.to_owned()));
        }
    }
}

/// A proxy in this namespace, which passes on the messages of a stream six at a time. Returns its address.
pub fn slow_proxy(namespace: &Namespace) -> Result<SocketAddr> {
    const HELD: usize = 6;
    let listener = namespace.enter(|| TcpListener::bind("127.0.0.1:0"))??;
    let address = listener.local_addr()?;
    let forward = move |mut client: TcpStream| -> Result<()> {
        let mut server = TcpStream::connect(ADDRESS)?;
        let mut request = [0; 8192];
        let length = client.read(&mut request)?;
        let is_stream = request.starts_with(b"GET /api/seconds");
        // One request a connection: the next one might be for the stream.
        let asked = String::from_utf8_lossy(&request[..length]).replace("keep-alive", "close");
        server.write_all(asked.as_bytes())?;
        let mut held = Vec::new();
        loop {
            let length = server.read(&mut request)?;
            held.extend(&request[..length]);
            let messages = held.windows(2).filter(|two| two == b"\n\n").count();
            if length == 0 || !is_stream || messages >= HELD {
                client.write_all(&held)?;
                held.clear();
            }
            if length == 0 {
                return Ok(());
            }
        }
    };
    // Threads that it starts are in the namespace, too.
    namespace.enter(|| {
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || forward(client));
            }
        });
    })?;
    Ok(address)
}

/// The messages of a stream, in order of arrival.
pub struct Stream {
    messages: Receiver<Value>,
    stream: TcpStream,
}

/// Starts to read the page's stream.
pub fn seconds(namespace: &Namespace) -> Result<Stream> {
    let stream = namespace.enter(|| TcpStream::connect(ADDRESS))??;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut writer = stream.try_clone()?;
    // An HTTP/1.0 request gets no chunks, so each line is a message.
    writer.write_all(format!("GET /api/seconds HTTP/1.0\r\nHost: {ADDRESS}\r\n\r\n").as_bytes())?;
    let lines = BufReader::new(stream.try_clone()?).lines();
    let (tell, messages) = channel();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let message = line.strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok());
            if message.is_some_and(|message: Value| tell.send(message).is_err()) {
                return;
            }
        }
    });
    Ok(Stream { messages, stream })
}

impl Stream {
    /// Waits for one more message, and returns all.
    pub fn stop(self) -> Result<Vec<Value>> {
        let last = self.messages.recv_timeout(TIMEOUT).map_err(|_| anyhow!("no more seconds come"))?;
        self.stream.shutdown(std::net::Shutdown::Both)?;
        Ok(self.messages.iter().chain([last]).collect())
    }
}

pub fn its_thread_has_no_right() -> Result<()> {
    let watched = Watched::start("report: {interval: 1s}\nprometheus: {listen: 127.0.0.1:9469}\n")?;
    let pid = watched.daemon.pid();
    for name in ["weir-web", "weir-answers"] {
        clock::wait_for(&format!("{name} without capabilities"), TIMEOUT, || {
            let threads = fs::read_dir(format!("/proc/{pid}/task"))?.filter_map(Result::ok).map(|thread| thread.path());
            let is_it = |thread: &std::path::PathBuf| {
                fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim() == name)
            };
            let Some(thread) = threads.into_iter().find(is_it) else { return Ok(None) };
            let status = fs::read_to_string(thread.join("status"))?;
            let has_none = |set| status.contains(&format!("{set}:\t0000000000000000"));
            let is_confined = status.contains("Seccomp:\t2");
            let none = ["CapEff", "CapPrm", "CapInh", "CapAmb"].into_iter().all(has_none);
            Ok((none && is_confined).then_some(()))
        })?;
    }
    // With the sandbox and both ports, every request is answered.
    let namespace = &watched.pair.observer;
    ensure!(get(namespace, "/")?.0 == 200);
    let (status, _, metrics) = get_at(namespace, "127.0.0.1:9469", "/", "")?;
    ensure!(status == 200 && metrics.contains("/metrics"), "{status} {metrics}");
    clock::wait_for("a report", TIMEOUT, || Ok((get(namespace, "/api/report")?.0 == 200).then_some(())))?;
    let (status, _, answer) = get(namespace, "/api/ask?key=src_ip%3D192.0.2.7")?;
    let answer: Value = serde_json::from_str(&answer).with_context(|| format!("{status} {answer}"))?;
    ensure!(answer["answers"].as_array().is_some_and(|answers| !answers.is_empty()), "{answer}");
    let (status, _, why) = get(namespace, "/api/ask?key=size%3D3")?;
    ensure!(status == 400 && why.contains("there is no field"), "{status} {why}");
    let (status, _, told) = get(namespace, "/api/history?key=src_ip%3D192.0.2.7")?;
    ensure!(status == 200 && told.contains("weir.key_history/1"), "{status} {told}");
    let (status, _, why) = get(namespace, "/api/history?key=ttl%3D3")?;
    ensure!(status == 400 && why.contains("no list has rows by ttl"), "{status} {why}");
    Ok(())
}

pub fn beyond_loopback_it_needs_a_token() -> Result<()> {
    const TOKEN: &str = "0123456789abcdef";
    let pair = weir_tests::netns::Lab::quiet_pair()?;
    pair.observer.ip(&format!("addr add 192.0.2.1/24 dev {}", QuietPair::OBSERVER_INTERFACE))?;
    let scratch = weir_tests::scratch::Scratch::new()?;
    let file = scratch.file("token");
    fs::write(&file, format!("{TOKEN}\n"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    let mut daemon = weir_tests::daemon::Daemon::start(Some(&pair.observer), |reports| {
        format!(
            "interfaces: [{}]\nreport: {{interval: 1s}}\nweb: {{listen: 192.0.2.1:9470, token_file: {}}}\n\
             sinks: [{{type: file, path: {}}}]\n",
            QuietPair::OBSERVER_INTERFACE,
            file.display(),
            reports.display()
        )
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    let at = |path: &str, headers: &str| get_at(&pair.observer, "192.0.2.1:9470", path, headers);
    for path in ["/", "/page.js", "/api/report", "/api/seconds"] {
        ensure!(at(path, "")?.0 == 401, "{path} without a token");
        ensure!(at(path, "Authorization: Bearer 0123456789abcdeX\r\n")?.0 == 401, "{path} with another token");
    }
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    ensure!(at("/", &bearer)?.0 == 200);
    clock::wait_for("a report", TIMEOUT, || Ok((at("/api/report", &bearer)?.0 == 200).then_some(())))?;
    ensure!(!daemon.log()?.contains(TOKEN), "the token is in the log");
    Ok(())
}

pub fn browsers_that_stall_cost_no_packet() -> Result<()> {
    const STALLED: usize = 200;
    weir_tests::quiet::one_window();
    let mut watched = Watched::start(weir_tests::quiet::ONE_WINDOW)?;
    let namespace = &watched.pair.observer;
    let stalled = namespace.enter(|| -> Result<Vec<TcpStream>> {
        let begin = |request: &str| {
            let mut stream = TcpStream::connect(ADDRESS)?;
            // Writing fails on a connection that weir has closed for a newer one.
            let _ = stream.write_all(request.replace("HOST", &format!("Host: {ADDRESS}")).as_bytes());
            Ok(stream)
        };
        let requests = [
            "GET /api/seconds HTTP/1.1\r\nHOST\r\n\r\n",
            "GET /api/report HTTP/1.1\r\nHOST\r\n\r\n",
            "GET /api/ask?key=src_ip%3D192.0.2.7 HTTP/1.1\r\nHOST\r\n\r\n",
            "GET /api/sec",
            "",
        ];
        // First all want the stream of seconds, then each one of these.
        let all = [requests[0]].into_iter().cycle().take(STALLED).chain(requests.into_iter().cycle().take(STALLED));
        all.map(begin).collect()
    })??;
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 91, packets: 50_000, ..Plan::default() };
    send(&watched.pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(20_000), &mut oracle)?;
    let pid = watched.daemon.pid();
    let sockets = fs::read_dir(format!("/proc/{pid}/fd"))?
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"));
    let sockets = sockets.count();
    ensure!(sockets < 80, "{sockets} sockets: weir should have closed some connections");
    ensure!(get(namespace, "/")?.0 == 200, "the stalled clients block other clients");
    watched.daemon.stop(TIMEOUT)?;
    drop(stalled);
    let reports = watched.daemon.reports()?;
    account::check(&reports, Loss::None)?;
    for report in &reports {
        let [rss, planned] = ["rss_bytes", "memory_bytes"].map(|name| report["self"][name].as_u64().unwrap_or(0));
        ensure!(rss <= planned, "{rss} bytes are more than the {planned} that are planned");
    }
    oracle.check_reports(&reports).map_err(|wrong| anyhow!("{wrong:?}"))
}

pub fn addresses_are_masked_as_in_the_report() -> Result<()> {
    let watched = Watched::start("report: {interval: 2s}\naddresses: none\n")?;
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 92, ..Plan::default() };
    send(&watched.pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
    let report = clock::wait_for("a report with packets", TIMEOUT, || {
        let (_, _, body) = get(&watched.pair.observer, "/api/report")?;
        let Ok(report) = serde_json::from_str::<Value>(&body) else { return Ok(None) };
        Ok(report["top"]["sources"][0].is_object().then_some(report))
    })?;
    ensure!(report["addresses"] == "none", "{}", report["addresses"]);
    for row in report["top"]["sources"].as_array().into_iter().flatten() {
        ensure!(row["src_ip"] == "0.0.0.0" || row["src_ip"] == "::", "{row}");
    }
    // Otherwise anyone could try out who is there.
    for key in ["src_ip%3D192.0.2.7", "192.0.2.7", "192.0.2.0/24", "src_ip%3D192.0.2.7,dst_ip%3D192.0.2.8"] {
        let (status, _, why) = get(&watched.pair.observer, &format!("/api/ask?key={key}"))?;
        ensure!(status == 400 && why.contains("`addresses: none`"), "{key}: {status} {why}");
    }
    let (status, _, answer) = get(&watched.pair.observer, "/api/ask?key=%3A443")?;
    ensure!(status == 200, "{status} {answer}");
    Ok(())
}
