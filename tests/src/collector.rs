//! A small collector, to which weir's HTTP sink sends its reports.
//!
//! It accepts what usual collectors accept (`POST` of `application/x-ndjson`, plain or gzip, one report a line) and
//! keeps it. It is also a webhook: an alert message is `application/json`. A test can make it fail in the ways in which
//! collectors fail.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read, Take, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::clock;

/// No request is unpacked beyond this many bytes.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// How soon a change of behaviour takes effect.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long a port may take to open or close.
const PORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How a collector behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Accepts reports.
    Accept,
    /// Answers this status to everything, and keeps nothing.
    Refuse(u16),
    /// Takes requests and does not answer them. When its behaviour changes, they are answered with 503.
    Hang,
    /// Does not listen: connections are refused.
    Down,
    /// Accepts reports, after a while.
    Slow,
    /// Reads the beginning of a request, and closes the connection.
    Reset,
    /// Answers with something that is not HTTP.
    Garbage,
    /// Accepts reports, and closes the connection without an answer.
    Lost,
    /// Accepts reports, and sends an endless answer.
    Endless,
    /// Answers with 429, and asks weir to wait for a second.
    Busy,
    /// Redirects to another URL.
    Redirect,
}

/// How long [`Behaviour::Slow`] takes.
const SLOW: Duration = Duration::from_millis(300);
/// Bytes of an answer that does not end unless the connection is closed.
const ENDLESS_BYTES: usize = 16 << 20;

/// A report that was received.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The `Idempotency-Key` that it came with.
    pub idempotency_key: Option<String>,
    /// The `Content-Encoding` that it came in: `gzip`, or none for plain text.
    pub encoding: Option<String>,
    /// The report that was sent.
    pub report: Value,
}

/// A collector on a thread of its own; it stops on drop.
///
/// Each response closes its connection, so that a collector that goes down leaves no connection half alive.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<CollectorState>,
    changed: Condvar,
}

#[derive(Debug)]
struct CollectorState {
    wanted: Behaviour,
    actual: Behaviour,
    stopping: bool,
    received: Vec<Received>,
    untaken: VecDeque<usize>,
    answers: Vec<u16>,
}

impl Default for CollectorState {
    fn default() -> Self {
        Self {
            wanted: Behaviour::Accept,
            actual: Behaviour::Accept,
            stopping: false,
            received: Vec::new(),
            untaken: VecDeque::new(),
            answers: Vec::new(),
        }
    }
}

impl Collector {
    /// Listens on `address`, in the network namespace that the calling thread is in; port 0 picks a free one.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on.
    pub fn listen(address: SocketAddr) -> Result<Self> {
        let (listener, address) = bind(address)?;
        let shared = Arc::<Shared>::default();
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || serve(&shared, listener, address)
        });
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Returns the address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL to post to.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Changes how it behaves, and returns when it does.
    ///
    /// # Errors
    ///
    /// The port did not close, or another process took it while it was closed.
    pub fn behave(&self, behaviour: Behaviour) -> Result<()> {
        let mut state = self.shared.lock();
        state.wanted = behaviour;
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, 2 * PORT_TIMEOUT, |state| state.actual != behaviour && !state.stopping)
            .unwrap_or_else(PoisonError::into_inner);
        ensure!(state.actual == behaviour, "the collector is still {:?} and not {behaviour:?}", state.actual);
        Ok(())
    }

    /// Returns everything that was received so far, including repetitions.
    pub fn received(&self) -> Vec<Received> {
        self.shared.lock().received.clone()
    }

    /// The status of every answer so far.
    pub fn answers(&self) -> Vec<u16> {
        self.shared.lock().answers.clone()
    }

    /// Waits until at least `count` reports were received, and returns all.
    ///
    /// # Errors
    ///
    /// There are fewer after `timeout`.
    pub fn wait_for(&self, count: usize, timeout: Duration) -> Result<Vec<Received>> {
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), timeout, |state| state.received.len() < count)
            .unwrap_or_else(PoisonError::into_inner);
        let have = state.received.len();
        ensure!(have >= count, "{have} of {count} reports came within {timeout:?}; answers: {:?}", state.answers);
        Ok(state.received.clone())
    }

    /// The next report in order of arrival that was not given yet; waits for one.
    pub fn next(&self, timeout: Duration) -> Option<Received> {
        let (mut state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), timeout, |state| state.untaken.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        let nth = state.untaken.pop_front()?;
        state.received.get(nth).cloned()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, CollectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn becomes(&self, behaviour: Behaviour) {
        self.lock().actual = behaviour;
        self.changed.notify_all();
    }

    /// Records an answer and the reports that it accepts. Called before the answer is sent, so that a client that has
    /// the answer finds the report here.
    fn note(&self, status: u16, reports: Vec<Received>) {
        let mut state = self.lock();
        state.answers.push(status);
        for report in reports {
            let nth = state.received.len();
            state.untaken.push_back(nth);
            state.received.push(report);
        }
        drop(state);
        self.changed.notify_all();
    }
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// A request whose head has been read. Its connection is closed with it.
struct Request {
    head: String,
    body: Take<BufReader<TcpStream>>,
}

impl Request {
    /// The request of a client that has connected, if there is one.
    fn accept(listener: &TcpListener) -> Option<Self> {
        let (stream, _) = listener.accept().ok()?;
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(PORT_TIMEOUT)).ok()?;
        let (mut stream, mut head) = (BufReader::new(stream), String::new());
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let mut request = Self { head, body: stream.take(0) };
        let length = request.header("Content-Length").and_then(|length| length.parse().ok());
        request.body.set_limit(length.unwrap_or(0));
        Some(request)
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Reads the rest of the body, because a close before that would be a reset, and answers.
    fn respond(mut self, answer: &[u8]) {
        // A client that has hung up does not want its answer.
        let _ = io::copy(&mut self.body, &mut io::sink());
        let _ = self.body.get_mut().get_mut().write_all(answer);
    }
}

/// The collector's thread: it alone owns the listener, because that has to close in the namespace where it opened.
fn serve(shared: &Shared, listener: TcpListener, address: SocketAddr) {
    let mut listening = Some(listener);
    let mut held = Vec::new();
    loop {
        let (wanted, actual, stopping) = {
            let state = shared.lock();
            (state.wanted, state.actual, state.stopping)
        };
        if stopping {
            break;
        }
        if wanted != actual {
            for request in held.drain(..) {
                answer(shared, request, 503, Vec::new());
            }
            if wanted == Behaviour::Down {
                drop(listening.take());
                // If the port stays open, the old behaviour stays, and the waiting test fails.
                if wait_until_refused(address).is_err() {
                    break;
                }
            } else if listening.is_none() {
                let bound = clock::wait_for("a free port", PORT_TIMEOUT, || Ok(bind(address).ok()));
                let Ok((listener, _)) = bound else { break };
                listening = Some(listener);
            }
            shared.becomes(wanted);
        }
        let Some(request) = listening.as_ref().and_then(Request::accept) else {
            thread::sleep(POLL_INTERVAL);
            continue;
        };
        match wanted {
            Behaviour::Accept => accept(shared, request),
            Behaviour::Refuse(status) => answer(shared, request, status, Vec::new()),
            Behaviour::Hang | Behaviour::Down => held.push(request),
            Behaviour::Slow => {
                thread::sleep(SLOW);
                accept(shared, request);
            }
            Behaviour::Reset => reset(shared, request),
            Behaviour::Garbage => write(shared, request, 0, b"SSH-2.0-not-http\r\n"),
            Behaviour::Lost => keep(shared, request, b""),
            Behaviour::Endless => keep(shared, request, &endless()),
            Behaviour::Busy => {
                let answer =
                    "HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                write(shared, request, 429, answer.as_bytes());
            }
            Behaviour::Redirect => {
                let answer = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\
                              Connection: close\r\n\r\n";
                write(shared, request, 302, answer.as_bytes());
            }
        }
    }
    shared.lock().stopping = true;
    shared.changed.notify_all();
    drop(listening);
}

fn wait_until_refused(address: SocketAddr) -> Result<()> {
    clock::wait_for("a closed port", PORT_TIMEOUT, || {
        let connected = TcpStream::connect_timeout(&address, POLL_INTERVAL);
        Ok(connected.is_err().then_some(()))
    })
}

fn accept(shared: &Shared, mut request: Request) {
    match read(&mut request) {
        Ok(reports) => answer(shared, request, 200, reports),
        Err(status) => answer(shared, request, status, Vec::new()),
    }
}

/// The reports of a request, or the status that refuses it.
fn read(request: &mut Request) -> Result<Vec<Received>, u16> {
    // Reports, and messages of alerts.
    const CONTENT_TYPES: [&str; 2] = ["application/x-ndjson", "application/json"];
    if !request.head.starts_with("POST ") {
        return Err(405);
    }
    let idempotency_key = request.header("Idempotency-Key").map(str::to_owned);
    let kind = request.header("Content-Type").unwrap_or_default();
    if !kind.split(';').next().is_some_and(|kind| CONTENT_TYPES.contains(&kind.trim())) {
        return Err(415);
    }
    let encoding = request.header("Content-Encoding").map(str::to_owned);
    let mut body = String::new();
    let reader = &mut request.body;
    let read = match encoding.as_deref() {
        None | Some("identity") => reader.take(BODY_BYTES_MAX).read_to_string(&mut body),
        Some("gzip") => MultiGzDecoder::new(reader).take(BODY_BYTES_MAX).read_to_string(&mut body),
        Some(_) => return Err(415),
    };
    read.map_err(|_| 400u16)?;
    let lines = body.lines().filter(|line| !line.is_empty());
    let received = lines.map(|line| {
        let report = serde_json::from_str(line).map_err(|_| 400u16)?;
        Ok(Received { idempotency_key: idempotency_key.clone(), encoding: encoding.clone(), report })
    });
    received.collect()
}

/// Keeps the reports of a request, and answers this.
fn keep(shared: &Shared, mut request: Request, answer: &[u8]) {
    let reports = read(&mut request).unwrap_or_default();
    shared.note(200, reports);
    request.respond(answer);
}

/// Reads a little of a request.
fn reset(shared: &Shared, mut request: Request) {
    let _ = request.body.read(&mut [0; 16]);
    shared.note(0, Vec::new());
}

fn endless() -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
    answer.resize(ENDLESS_BYTES, b'x');
    answer
}

fn answer(shared: &Shared, request: Request, status: u16, reports: Vec<Received>) {
    shared.note(status, reports);
    let response = format!("HTTP/1.1 {status} As Told\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    request.respond(response.as_bytes());
}

/// Answers this, and keeps nothing.
fn write(shared: &Shared, request: Request, status: u16, answer: &[u8]) {
    shared.note(status, Vec::new());
    request.respond(answer);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use flate2::{Compression, write::GzEncoder};
    use serde_json::json;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn collector() -> Collector {
        Collector::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    /// Posts, and returns the status; `None` if the connection was refused or nothing was answered in time.
    fn post(collector: &Collector, headers: &str, body: &[u8]) -> Option<u16> {
        let mut stream = TcpStream::connect(collector.address()).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let head = format!("POST /v1 HTTP/1.1\r\nHost: lab\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).ok()?;
        std::str::from_utf8(&answer[9..]).unwrap().parse().ok()
    }

    const NDJSON: &str = "Content-Type: application/x-ndjson\r\n";

    #[test]
    fn it_keeps_reports_plain_and_packed() {
        let collector = collector();
        let headers = format!("{NDJSON}Idempotency-Key: a/b/1\r\n");
        assert_eq!(post(&collector, &headers, b"{\"n\":1}\n{\"n\":2}\n"), Some(200));
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(b"{\"n\":3}\n").unwrap();
        let headers = format!("{NDJSON}Content-Encoding: gzip\r\n");
        assert_eq!(post(&collector, &headers, &gzip.finish().unwrap()), Some(200));

        let received = collector.wait_for(3, TIMEOUT).unwrap();
        let keys: Vec<_> = received.iter().map(|received| received.idempotency_key.as_deref()).collect();
        assert_eq!(keys, [Some("a/b/1"), Some("a/b/1"), None]);
        let encodings: Vec<_> = received.iter().map(|received| received.encoding.as_deref()).collect();
        assert_eq!(encodings, [None, None, Some("gzip")]);
        let reports: Vec<_> = received.into_iter().map(|received| received.report).collect();
        assert_eq!(reports, [json!({"n": 1}), json!({"n": 2}), json!({"n": 3})]);
        let in_turn: Vec<_> = (0..3).map(|_| collector.next(TIMEOUT).unwrap().report).collect();
        assert_eq!(in_turn, reports);
        assert!(collector.next(Duration::ZERO).is_none());
        assert!(collector.wait_for(4, Duration::from_millis(10)).is_err());
    }

    #[test]
    fn it_refuses_what_is_no_report() {
        let collector = collector();
        assert_eq!(post(&collector, "Content-Type: text/plain\r\n", b"{}"), Some(415));
        assert_eq!(post(&collector, &format!("{NDJSON}Content-Encoding: br\r\n"), b"{}"), Some(415));
        assert_eq!(post(&collector, &format!("{NDJSON}Content-Encoding: gzip\r\n"), b"{}"), Some(400));
        assert_eq!(post(&collector, NDJSON, b"{\"n\":"), Some(400));
        assert_eq!((collector.received(), collector.answers()), (vec![], vec![415, 415, 400, 400]));
    }

    #[test]
    fn it_fails_as_told_and_recovers() {
        let collector = collector();
        collector.behave(Behaviour::Refuse(500)).unwrap();
        assert_eq!(post(&collector, NDJSON, b"{}"), Some(500));
        collector.behave(Behaviour::Hang).unwrap();
        assert_eq!(post(&collector, NDJSON, b"{}"), None);
        collector.behave(Behaviour::Down).unwrap();
        assert!(TcpStream::connect(collector.address()).is_err());
        collector.behave(Behaviour::Accept).unwrap();
        assert_eq!(post(&collector, NDJSON, b"{}"), Some(200));
        assert_eq!((collector.received().len(), collector.answers()), (1, vec![500, 503, 200]));
    }
}
