//! Tests the answers of the server over real sockets.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use weir_config::Estimates;
use weir_deliver::status::Identity;
use weir_measure::question::Views;
use weir_schema::{Encoded, InterfaceSecond, Report, SECOND_SCHEMA, Second};

use super::*;

/// Far longer than anything takes here; only a failing test waits for it.
const LONG: Duration = Duration::from_secs(20);

struct Page {
    board: Arc<Board>,
    views: Arc<Views>,
    server: Server,
}

impl Page {
    fn open(name: &str, token: Option<&str>) -> Self {
        let started = Timestamp::UNIX_EPOCH;
        let identity = Identity { version: "0".to_owned(), pid: 7, started, interval_seconds: 10, memory_bytes: 0 };
        let board = Arc::new(Board::new(identity));
        let token_file = token.map(|token| {
            use std::os::unix::fs::PermissionsExt;
            let path = std::env::temp_dir().join(format!("weir-page-{name}-{}", std::process::id()));
            std::fs::write(&path, token).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            path
        });
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let settings = Settings { listen: Some(listen), token_file, hosts: vec!["weir.example.net".to_owned()] };
        let answerer = Box::new(|question| match question {
            Question::Ask(key) if key == "size=3" => Err(Refusal::Refused("there is no field size".to_owned())),
            Question::Live => Err(Refusal::Unavailable("no lists yet".to_owned())),
            other => Ok(json!({"asked": format!("{other:?}")}).to_string().into_bytes()),
        });
        let server = start(listen, &settings, board.clone(), answerer).unwrap();
        if let Some(path) = settings.token_file {
            std::fs::remove_file(path).unwrap();
        }
        Self { board, views: Views::built_in(&Estimates::default(), 10), server }
    }

    fn publish(&self, seq: u64) -> Encoded {
        let mut report: Report = serde_json::from_str(include_str!("../../schema/tests/golden/report.json")).unwrap();
        report.id = format!("a/b/{seq}");
        let encoded = Encoded::new(&report);
        self.board.publish(&report, &encoded, &self.views);
        encoded
    }

    fn connect(&self, path: &str, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        // Otherwise the kernel may keep all messages for a browser that reads nothing.
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 1 << 14).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").unwrap();
        stream
    }

    /// Status, head in lower case, body.
    fn get_with(&self, path: &str, headers: &str) -> (u16, String, String) {
        let mut answer = String::new();
        self.connect(path, headers).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
    }

    /// The status of an answer that goes on.
    fn begin(&self, path: &str) -> (u16, BufReader<TcpStream>) {
        let mut answer = BufReader::new(self.connect(path, "Host: localhost\r\n"));
        let mut line = String::new();
        answer.read_line(&mut line).unwrap();
        (line.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.get_with(path, "Host: localhost\r\n")
    }
}

/// A second that takes this many bytes.
fn second(nth: i64, bytes: usize) -> Second {
    Second {
        schema: SECOND_SCHEMA.to_owned(),
        time: Timestamp::from_second(nth).unwrap(),
        seconds: 1.0,
        skipped: 0,
        window_start: Timestamp::UNIX_EPOCH,
        last_report: None,
        interfaces: vec![InterfaceSecond {
            name: "x".repeat(bytes),
            direction: None,
            mode: "tcx".to_owned(),
            counted: None,
            total: None,
            lost: None,
            trouble: None,
        }],
        troubles: Vec::new(),
    }
}

#[test]
fn every_answer_forbids_the_browser_other_servers() {
    let page = Page::open("headers", None);
    for path in ["/", "/page.js", "/style.css", "/api/report", "/api/ask?key=x", "/nowhere", "/api/ask?kez=x"] {
        let (status, head, _) = page.get(path);
        let csp = head.lines().find(|line| line.starts_with("content-security-policy: ")).unwrap();
        assert!(csp.contains("default-src 'none'") && !csp.contains("unsafe"), "{path} {status}: {csp}");
        for name in ["x-content-type-options: nosniff", "referrer-policy: no-referrer", "x-frame-options: deny"] {
            assert!(head.contains(name), "{path} {status}: {head}");
        }
        assert!(!head.contains("access-control-allow"), "{head}");
    }
    let (status, head, html) = page.get("/");
    assert!(status == 200 && head.contains("content-type: text/html") && html.contains("<title>weir"), "{head}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let (status, _, body) = page.get_with("/", &format!("Host: localhost\r\nIf-None-Match: {tag}\r\n"));
    assert_eq!((status, body.as_str()), (304, ""));
}

#[test]
fn only_requests_to_names_of_this_machine_are_answered() {
    let page = Page::open("hosts", None);
    for host in ["127.0.0.1", "localhost:9470", "[::1]:9470", "192.0.2.1", "weir.example.net:9470", "WEIR.example.net"]
    {
        assert_eq!(page.get_with("/", &format!("Host: {host}\r\n")).0, 200, "{host}");
    }
    for host in ["evil.example.net", "weir.example.net.evil.example", "localhost.evil.example", "127.0.0.1.evil", ""] {
        let (status, _, why) = page.get_with("/api/report", &format!("Host: {host}\r\n"));
        assert!(status == 421 && why.contains("hosts"), "{host}: {status} {why}");
    }
}

#[test]
fn without_the_token_there_is_no_answer() {
    let page = Page::open("token", Some("0123456789abcdef\n"));
    page.publish(1);
    for path in ["/", "/page.js", "/api/report", "/api/seconds", "/nowhere"] {
        for header in ["", "Authorization: Bearer 0123456789abcdeX\r\n", "Authorization: Basic Og==\r\n"] {
            let (status, head, body) = page.get_with(path, &format!("Host: localhost\r\n{header}"));
            assert!(status == 401 && head.contains("www-authenticate: basic"), "{path}: {status} {head}");
            assert!(!body.contains("192.0.2"), "{body}");
        }
    }
    // echo -n weir:0123456789abcdef | base64
    for header in ["Bearer 0123456789abcdef", "Basic d2VpcjowMTIzNDU2Nzg5YWJjZGVm"] {
        let headers = format!("Host: localhost\r\nAuthorization: {header}\r\n");
        assert_eq!(page.get_with("/api/report", &headers).0, 200, "{header}");
    }
}

#[test]
fn reports_are_the_bytes_that_sinks_get() {
    let page = Page::open("reports", None);
    for path in ["/api/report", "/api/report?last=5"] {
        let (status, _, why) = page.get(path);
        assert!(status == 503 && why.contains("no window has ended"), "{status} {why}");
    }
    let first = page.publish(1);
    let second = page.publish(2);
    let (status, head, body) = page.get("/api/report");
    assert!(status == 200 && head.contains("content-type: application/json"), "{head}");
    assert!(body.as_bytes() == &*second.line, "the same bytes as for sinks");
    let both: Value = serde_json::from_str(&page.get("/api/report?last=5").2).unwrap();
    let parse = |of: &Encoded| serde_json::from_slice::<Value>(&of.line).unwrap();
    assert!(both == json!([parse(&first), parse(&second)]), "the last reports, the oldest first");
    assert_eq!(page.get("/api/report?last=6").0, 400);
}

#[test]
fn questions_are_passed_on_and_mistakes_explained() {
    let page = Page::open("questions", None);
    let asked = |path: &str| {
        let (status, _, body) = page.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str::<Value>(&body).unwrap()["asked"].as_str().unwrap().to_owned()
    };
    assert_eq!(asked("/api/ask?key=src_ip%3D192.0.2.7%2Cproto%3Dtcp"), "Ask(\"src_ip=192.0.2.7,proto=tcp\")");
    let span = asked("/api/span?from=2026-11-20T08:00:00Z&to=2026-11-20T08:20:00Z");
    assert!(span.starts_with("Span") && span.contains("2026-11-20T08:20:00Z"), "{span}");
    assert!(asked("/api/history").contains("from: None, to: None, points: 600"));
    assert!(asked("/api/history?points=60").contains("points: 60"));
    let of_key = asked("/api/history?key=src_ip%3D192.0.2.7&from=2026-11-20T08:00:00Z&points=360");
    assert!(of_key.starts_with("OfKey { key: \"src_ip=192.0.2.7\", view: None"), "{of_key}");
    assert!(of_key.contains("to: None, points: Some(360)"), "{of_key}");
    assert!(asked("/api/history?key=dscp%3D0&view=dscp").contains("view: Some(\"dscp\")"));
    for (path, status, part) in [
        ("/api/ask", 400, "which key"),
        ("/api/ask?key=size%3D3", 400, "no field size"),
        ("/api/live", 503, "no lists yet"),
        ("/api/span?from=yesterday", 400, "not a time in UTC"),
        ("/api/span?from=2026-11-20T08:00:00Z&to=2026-11-20T07:00:00Z", 400, "ends before it begins"),
        ("/api/history?points=0", 400, "1 to 720"),
        ("/api/history?points=721", 400, "1 to 720"),
        ("/api/history?view=dscp", 400, "which key of it"),
        ("/api/nowhere", 404, "the page is at /"),
        ("/../etc/passwd", 404, "the page is at /"),
    ] {
        let (found, _, why) = page.get(path);
        assert!(found == status && why.contains(part), "{path}: {found} {why}");
    }
    let mut post = TcpStream::connect(page.server.address()).unwrap();
    post.write_all(b"POST /api/report HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    post.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

/// The next message of a stream; `None` at its end.
fn message(lines: &mut impl BufRead) -> Option<Value> {
    let mut line = String::new();
    while lines.read_line(&mut line).ok()? > 0 {
        if let Some(data) = line.strip_prefix("data: ") {
            return Some(serde_json::from_str(data).unwrap());
        }
        line.clear();
    }
    None
}

#[test]
fn each_second_is_an_event_and_closed_connections_are_not_counted() {
    let page = Page::open("seconds", None);
    assert!(!page.board.is_subscribed());
    // With HTTP/1.1, chunk sizes would come between the lines.
    let mut stream = TcpStream::connect(page.server.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"GET /api/seconds HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream);
    while !page.board.is_subscribed() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for nth in 1..4 {
        page.board.publish_second(second(nth, 1));
        let got = message(&mut lines).unwrap();
        assert_eq!((&got["schema"], &got["skipped"]), (&json!("weir.second/1"), &Value::Null));
        assert_eq!(got["time"].as_str().unwrap().parse::<Timestamp>().unwrap(), Timestamp::from_second(nth).unwrap());
    }
    drop(lines);
    while page.board.is_subscribed() {
        page.board.publish_second(second(4, 1));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn browsers_that_read_nothing_skip_seconds_and_block_no_others() {
    let page = Page::open("stalled", None);
    let connect = |_| BufReader::new(page.connect("/api/seconds", "Host: localhost\r\n"));
    let mut stalled: Vec<_> = (0..200).map(connect).collect();
    page.publish(1);
    for _ in 0..10 {
        assert_eq!(page.get("/api/report").0, 200);
    }
    // The requests for the report may have taken the slots of some of them, which leaves room for others.
    let mut refused = (0..CONNECTIONS).find_map(|_| {
        let (status, answer) = page.begin("/api/seconds");
        if status != 200 {
            return Some((status, answer));
        }
        stalled.push(answer);
        None
    });
    let (status, answer) = refused.as_mut().expect("some are refused");
    let mut why = String::new();
    answer.read_to_string(&mut why).unwrap();
    assert!(*status == 503 && why.contains("close one of them"), "{status} {why}");
    // More than the buffers of the sockets hold.
    for nth in 1..=200 {
        page.board.publish_second(second(nth, 1 << 14));
        assert_eq!(page.get("/api/report").0, 200);
    }
    // Browsers that are still connected get the newest second, and the number of seconds that they missed.
    let newest = stalled.into_iter().filter_map(|mut lines| {
        let (mut got, mut skipped) = (0, 0);
        while got + skipped < 200 {
            let message = message(&mut lines)?;
            got += 1;
            skipped += message["skipped"].as_u64().unwrap_or(0);
        }
        Some((got, skipped))
    });
    let all: Vec<_> = newest.take(1).collect();
    assert!(all.iter().all(|(got, skipped)| got + skipped == 200 && *skipped > 0), "{all:?}");
    assert!(!all.is_empty(), "some of them are still connected");
}
