//! The HTTP sink against collectors on the loopback interface.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::DefaultBodyLimit,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    response::IntoResponse,
};
use flate2::read::GzDecoder;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use weir_config::Tls;
use weir_http::{Limits, Server};
use weir_schema::Encoded;

use super::{
    super::tests::{id, parcels},
    *,
};

/// Far longer than anything takes here; only a failing test waits for it.
pub(in crate::sink) const LONG: Duration = Duration::from_secs(20);

/// One request as it arrived.
pub(in crate::sink) struct Received {
    method: Method,
    url: Uri,
    headers: HeaderMap,
    pub(in crate::sink) body: Bytes,
}

impl Received {
    pub(in crate::sink) fn header(&self, name: &'static str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A collector on the loopback interface that takes a fixed number of requests.
pub(in crate::sink) struct Collector {
    pub(in crate::sink) address: String,
    requests: mpsc::Receiver<Received>,
    expected: usize,
}

impl Collector {
    /// Answers `expected` requests, each with a status and a body that depend on its number from 0.
    pub(in crate::sink) fn new(expected: usize, answer: impl Fn(usize) -> (u16, String) + Send + 'static) -> Self {
        let (arrived, requests) = mpsc::channel();
        let answer = Arc::new(Mutex::new((0, answer)));
        let take = move |method: Method, url: Uri, headers: HeaderMap, body: Bytes| async move {
            // The test's end of the channel may be gone.
            let _ = arrived.send(Received { method, url, headers, body });
            let mut next = answer.lock().unwrap();
            let (status, text) = (next.1)(next.0);
            next.0 += 1;
            let status = StatusCode::from_u16(status).unwrap();
            if status.is_redirection() {
                return (status, [(header::LOCATION, "http://127.0.0.1:9/elsewhere")], text).into_response();
            }
            (status, text).into_response()
        };
        let router = Router::new().fallback(take).layer(DefaultBodyLimit::disable());
        let limits = Limits { connections: 8, request: LONG, grace: LONG };
        let server = Server::start("weir-test", (Ipv4Addr::LOCALHOST, 0).into(), router, limits).unwrap();
        let address = server.address().to_string();
        // If a test fails, `answer` may wait forever, so no test waits for this thread.
        std::mem::forget(server);
        Self { address, requests, expected }
    }

    /// Answers with these statuses, one after the other.
    pub(in crate::sink) fn answering<const N: usize>(statuses: [u16; N]) -> Self {
        Self::new(N, move |number| (statuses[number], String::new()))
    }

    /// All requests, once the last has arrived.
    pub(in crate::sink) fn received(self) -> Vec<Received> {
        (0..self.expected).map(|_| self.requests.recv_timeout(LONG).expect("one more request")).collect()
    }

    /// The idempotency key of each request.
    pub(in crate::sink) fn keys(self) -> Vec<String> {
        self.received().iter().map(|request| request.header("Idempotency-Key").unwrap().to_owned()).collect()
    }
}

/// Default settings without compression.
pub(in crate::sink) fn settings(url: &str, timeout: Duration) -> config::Http {
    config::Http { url: url.parse().unwrap(), timeout, compress: Compress::None, ..config::Http::default() }
}

fn given((name, value): (&'static str, &'static str)) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), HeaderValue::from_static(value))
}

fn sink(address: &str) -> Http {
    Http::new(&settings(&format!("http://{address}/"), LONG)).unwrap()
}

#[test]
fn a_report_is_posted_as_one_line_under_its_id() {
    let collector = Collector::answering([200, 204]);
    let url = format!("http://{}/weir?table=reports", collector.address);
    let headers = [("authorization", "Bearer s3cret"), ("x-site", "fra1")].map(given).to_vec();
    let mut sink = Http::new(&config::Http { headers, ..settings(&url, LONG) }).unwrap();
    assert_eq!(sink.name(), format!("http://{}/weir", collector.address), "a query may hold a secret");
    assert!(!format!("{sink:?}").contains("s3cret"));
    let reports = parcels([1, 2]);
    for report in reports.chunks(1) {
        sink.deliver(report).unwrap();
    }
    let received = collector.received();
    assert_eq!(received.len(), reports.len());
    for (request, report) in received.iter().zip(&reports) {
        assert_eq!((&request.method, request.url.to_string()), (&Method::POST, "/weir?table=reports".to_owned()));
        assert_eq!(request.header("Idempotency-Key"), Some(report.encoded.id.as_str()));
        assert_eq!(request.header("Content-Type"), Some("application/x-ndjson"));
        assert_eq!(request.header("Content-Encoding"), None);
        assert_eq!(request.header("User-Agent"), Some(concat!("weir/", env!("CARGO_PKG_VERSION"))));
        assert_eq!(request.header("Authorization"), Some("Bearer s3cret"));
        assert_eq!(request.header("X-Site"), Some("fra1"));
        assert!(*request.body == *report.encoded.line);
    }
}

#[test]
fn a_webhook_gets_json_and_its_path_is_never_shown() {
    let collector = Collector::answering([200]);
    let url = format!("http://{}/services/T0K3N?key=T0K3N", collector.address);
    let (url, headers) = (url.parse().unwrap(), Vec::new());
    let mut webhook = Http::webhook(&config::Webhook { url, timeout: LONG, headers, queue: 1 }).unwrap();
    assert_eq!(webhook.name(), format!("webhook:http://{}", collector.address));
    let message = Encoded { id: "a/b/1/flood".to_owned(), line: b"{}\n".as_slice().into() };
    webhook.deliver(&[Item::report(message)]).unwrap();
    let [request] = collector.received().try_into().ok().unwrap();
    assert_eq!((request.url.to_string(), &*request.body), ("/services/T0K3N?key=T0K3N".to_owned(), &b"{}\n"[..]));
    assert_eq!(request.header("Content-Type"), Some("application/json"));
    assert_eq!(request.header("Idempotency-Key"), Some("a/b/1/flood"));
}

#[test]
fn a_compressed_report_is_the_same_report() {
    let collector = Collector::answering([200]);
    let headers = vec![given(("user-agent", "ours"))];
    let url = format!("http://{}", collector.address);
    let mut sink = Http::new(&config::Http { headers, compress: Compress::Gzip, ..settings(&url, LONG) }).unwrap();
    let [report] = parcels([1]);
    sink.deliver(std::slice::from_ref(&report)).unwrap();
    let [request] = collector.received().try_into().ok().unwrap();
    assert_eq!(request.header("Content-Encoding"), Some("gzip"));
    assert_eq!(request.header("User-Agent"), Some("ours"), "a configured header replaces weir's");
    assert!(request.body.len() < report.encoded.line.len() / 2);
    let mut line = Vec::new();
    GzDecoder::new(&*request.body).read_to_end(&mut line).unwrap();
    assert!(line == *report.encoded.line);
}

#[test]
fn an_answer_says_whether_to_try_again() {
    let later = [301, 302, 307, 308, 401, 403, 404, 408, 425, 429, 500, 502, 503, 504];
    let never = [400, 405, 409, 410, 413, 422];
    let statuses = [later.as_slice(), never.as_slice()].concat();
    let collector = Collector::new(statuses.len(), {
        let statuses = statuses.clone();
        move |number| (statuses[number], format!("no:\n\x1b[31m{}", "x".repeat(300)))
    });
    let mut sink = sink(&collector.address);
    for status in statuses {
        let error = sink.deliver(&parcels([1])).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&status.to_string()), "{message}");
        assert!(message.contains(": no: [31mxxx") && message.matches('x').count() < 200, "{message}");
        assert_eq!(message.contains("\"http://127.0.0.1:9/elsewhere\""), status < 400, "{message}");
        assert_eq!(matches!(error, DeliveryError::Unavailable { .. }), later.contains(&status), "{error:?}");
        assert_eq!(matches!(error, DeliveryError::Refused(_)), never.contains(&status), "{error:?}");
    }
    collector.received();
}

#[test]
fn several_reports_are_one_request() {
    let collector = Collector::answering([200, 200]);
    let mut sink = sink(&collector.address);
    let reports = parcels([1, 2, 3]);
    sink.deliver(&reports).unwrap();
    let url = format!("http://{}", collector.address);
    let mut packed = Http::new(&config::Http { compress: Compress::Gzip, ..settings(&url, LONG) }).unwrap();
    packed.deliver(&reports).unwrap();
    let expected = reports.each_ref().map(|report| &*report.encoded.line).concat();
    for (nth, request) in collector.received().into_iter().enumerate() {
        assert_eq!(request.header("Idempotency-Key").unwrap(), format!("{}..{}", id(1), id(3)));
        let mut body = Vec::new();
        // One gzip member, for collectors that read only the first.
        GzDecoder::new(&*request.body).read_to_end(&mut body).map_or_else(|_| body = request.body.to_vec(), drop);
        assert!(body == expected, "request {nth}");
    }
}

#[test]
fn a_collector_that_does_not_answer_is_unavailable() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let mut sink = Http::new(&settings(&url, Duration::from_millis(50))).unwrap();
    let error = sink.deliver(&parcels([1])).unwrap_err();
    assert!(matches!(&error, DeliveryError::Unavailable { message, .. } if message.contains("timeout")), "{error:?}");
    drop(silent);
    // With enough time, a refusal cannot be mistaken for a timeout.
    let mut sink = Http::new(&settings(&url, LONG)).unwrap();
    let error = sink.deliver(&parcels([1])).unwrap_err();
    assert!(matches!(&error, DeliveryError::Unavailable { message, .. } if message.contains("refused")), "{error:?}");
}

#[test]
fn https_is_never_plain_text() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let first_byte = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        first[0]
    });
    let mut sink = Http::new(&settings(&url, LONG)).unwrap();
    let error = sink.deliver(&parcels([1])).unwrap_err();
    assert!(matches!(error, DeliveryError::Unavailable { .. }), "{error:?}");
    assert_eq!(first_byte.join().unwrap(), 22, "a TLS handshake record (RFC 8446 section 5.1)");
}

/// A temporary file that only its owner may read.
struct Private(PathBuf);

impl Private {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-http-{}-{name}", std::process::id()));
        let file = Self(path);
        file.write(content);
        file.allow(0o600);
        file
    }

    fn write(&self, content: &str) {
        fs::write(&self.0, content).unwrap();
    }

    fn allow(&self, mode: u32) {
        fs::set_permissions(&self.0, fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_token_is_read_for_each_request_and_never_shown() {
    let token = Private::new("token", "first-s3cret\n");
    let collector = Collector::answering([200, 200]);
    let url = format!("http://{}", collector.address);
    let mut sink = Http::new(&config::Http { token_file: Some(token.0.clone()), ..settings(&url, LONG) }).unwrap();
    sink.deliver(&parcels([1])).unwrap();
    token.write("second-s3cret");
    sink.deliver(&parcels([2])).unwrap();
    let why = |sink: &mut Http| {
        let error = sink.deliver(&parcels([3])).unwrap_err();
        assert!(matches!(error, DeliveryError::Unavailable { .. }), "{error:?}");
        let message = error.to_string();
        assert!(!message.contains("s3cret") && message.contains(&*token.0.to_string_lossy()), "{message}");
        message
    };
    token.write("third-s3cret\nand more");
    assert!(why(&mut sink).contains("in one line"));
    token.write(" \n");
    assert!(why(&mut sink).contains("in one line"));
    token.allow(0o644);
    assert!(why(&mut sink).contains("chmod o="));
    fs::remove_file(&token.0).unwrap();
    assert!(why(&mut sink).contains("No such file"));
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &token.0, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(why(&mut sink).contains("not a regular file"), "and the sink does not wait for a writer");
    let received = collector.received();
    let tokens: Vec<_> = received.iter().map(|request| request.header("Authorization").unwrap()).collect();
    assert_eq!(tokens, ["Bearer first-s3cret", "Bearer second-s3cret"]);
}

#[test]
fn zstd_is_the_same_report() {
    let collector = Collector::answering([200]);
    let url = format!("http://{}", collector.address);
    let mut sink = Http::new(&config::Http { compress: Compress::Zstd, ..settings(&url, LONG) }).unwrap();
    let reports = parcels([1, 2]);
    sink.deliver(&reports).unwrap();
    let [request] = collector.received().try_into().ok().unwrap();
    assert_eq!(request.header("Content-Encoding"), Some("zstd"));
    let lines = zstd::stream::decode_all(&*request.body).unwrap();
    assert!(lines == reports.each_ref().map(|report| &*report.encoded.line).concat());
}

/// Reads a request up to the end of its head.
fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut next = [0];
        stream.read_exact(&mut next).unwrap();
        head.extend(next);
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
fn a_proxy_gets_the_whole_url_and_makes_a_tunnel_for_https_only() {
    for (url, first) in [
        ("http://collector.example/weir?a=b", "POST http://collector.example/weir?a=b HTTP/1.1\r\n"),
        ("http://collector.example:8080", "POST http://collector.example:8080/ HTTP/1.1\r\n"),
        ("https://collector.example/weir", "CONNECT collector.example:443 HTTP/1.1\r\n"),
    ] {
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: Uri = format!("http://{}", proxy.local_addr().unwrap()).parse().unwrap();
        let asked = thread::spawn(move || {
            let (mut stream, _) = proxy.accept().unwrap();
            let head = read_head(&mut stream);
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            stream.read_exact(&mut body).unwrap();
            stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").unwrap();
            (head, body)
        });
        let report = parcels([1]);
        let settings = config::Http { proxy: Some(address), ..settings(url, LONG) };
        let error = Http::new(&settings).unwrap().deliver(&report);
        assert!(matches!(error, Err(DeliveryError::Unavailable { .. })), "{error:?}");
        let (head, body) = asked.join().unwrap();
        assert!(head.starts_with(first), "{head}");
        let host = url.split('/').nth(2).unwrap();
        assert!(head.to_lowercase().contains(&format!("host: {host}")), "{head}");
        assert!(url.starts_with("https") || *body == *report[0].encoded.line, "the whole report");
    }
}

#[test]
fn an_answer_before_the_request_was_read_is_no_delivery() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let hasty = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        // The client closes without an error: everything has been read.
        let _ = stream.read_to_end(&mut Vec::new());
        let (mut stream, _) = listener.accept().unwrap();
        let head = read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        head
    });
    let mut sink = sink(&address);
    for read in ["nothing", "the head alone"] {
        let error = sink.deliver(&parcels([1])).unwrap_err();
        assert!(matches!(&error, DeliveryError::Unavailable { .. }), "{read}: {error:?}");
        assert!(error.to_string().contains("before the server had read the request"), "{read}: {error}");
    }
    hasty.join().unwrap();
    let collector = Collector::answering([200]);
    let mut sink = self::sink(&collector.address);
    sink.deliver(&parcels([1])).unwrap();
    assert!(*collector.received()[0].body == *parcels([1])[0].encoded.line);
}

#[test]
fn each_part_of_a_request_has_a_limit_of_its_own() {
    const SHORT: Option<Duration> = Some(Duration::from_millis(100));
    /// Far more than the buffers of both sides hold.
    const MANY: usize = 3000;
    let why = |reports: usize, limited: fn(&mut config::Http)| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (report, mut settings) = (parcels([1])[0].clone(), settings(&url, LONG));
        limited(&mut settings);
        let error = Http::new(&settings).unwrap().deliver(&vec![report; reports]).unwrap_err();
        let DeliveryError::Unavailable { message, .. } = error else { panic!("{error:?}") };
        message
    };
    // The kernel accepts the connection, but no process reads from it.
    let sending = why(MANY, |settings| settings.send_timeout = SHORT);
    assert!(sending.contains("send"), "{sending}");
    let answering = why(1, |settings| settings.answer_timeout = SHORT);
    assert!(answering.contains("response"), "{answering}");
}

/// Certificates for a collector and a router, signed by an authority for one test.
struct Certificates {
    authority: String,
    collector: (CertificateDer<'static>, PrivateKeyDer<'static>),
    router: [String; 2],
}

impl Certificates {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = parameters.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(parameters, key);
        let signed = |name: &str| {
            let key = KeyPair::generate().unwrap();
            (CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap(), key)
        };
        let (collector, collector_key) = signed("127.0.0.1");
        let (router, router_key) = signed("router.example");
        let key = PrivateKeyDer::try_from(collector_key.serialize_der()).unwrap();
        Self {
            authority,
            collector: (collector.der().clone(), key),
            router: [router.pem(), router_key.serialize_pem()],
        }
    }

    /// Starts a collector that takes one report from a router that it knows; returns its URL. Its thread returns
    /// whether a report came.
    fn serve(&self) -> (String, JoinHandle<bool>) {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(self.authority.as_bytes()).map(Result::unwrap));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let (certificate, key) = (self.collector.0.clone(), self.collector.1.clone_key());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
            let mut tls = rustls::Stream::new(&mut connection, &mut stream);
            let (mut request, mut part) = (Vec::new(), [0; 16 << 10]);
            while !request.ends_with(b"}\n") {
                match tls.read(&mut part) {
                    Ok(length) if length > 0 => request.extend_from_slice(&part[..length]),
                    _ => return false,
                }
            }
            tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").is_ok()
        };
        (url, thread::spawn(serve))
    }
}

#[test]
fn https_trusts_the_given_roots_and_shows_a_certificate() {
    let [ours, others] = [Certificates::new(), Certificates::new()];
    let files = |name: &str, certificates: &Certificates| {
        let [certificate, key] = &certificates.router;
        [
            Private::new(&format!("{name}-ca"), &certificates.authority),
            Private::new(&format!("{name}-certificate"), certificate),
            Private::new(&format!("{name}-key"), key),
        ]
    };
    let [known, foreign] = [files("ours", &ours), files("others", &others)];
    let tls = |roots: &[Private; 3], own: Option<&[Private; 3]>| Tls {
        ca_file: Some(roots[0].0.clone()),
        certificate_file: own.map(|own| own[1].0.clone()),
        key_file: own.map(|own| own[2].0.clone()),
    };
    for (tls, arrives) in [
        (tls(&known, Some(&known)), true),
        (tls(&foreign, Some(&known)), false),
        (tls(&known, None), false),
        (tls(&known, Some(&foreign)), false),
        (Tls::default(), false),
    ] {
        let (url, server) = ours.serve();
        let mut sink = Http::new(&config::Http { tls: tls.clone(), ..settings(&url, LONG) }).unwrap();
        let delivered = sink.deliver(&parcels([1]));
        assert_eq!(delivered.is_ok(), arrives, "{tls:?}: {delivered:?}");
        drop(sink);
        assert_eq!(server.join().unwrap(), arrives, "{tls:?}");
    }
    // Mistakes are reported when the sink is opened.
    let why =
        |tls: Tls| Http::new(&config::Http { tls, ..settings("https://127.0.0.1/", LONG) }).unwrap_err().to_string();
    let swapped = Tls { ca_file: Some(known[2].0.clone()), ..Tls::default() };
    assert!(why(swapped).contains("has no certificate in PEM format"));
    known[2].allow(0o644);
    assert!(why(tls(&known, Some(&known))).contains("chmod o="));
    assert!(why(Tls { ca_file: Some("/nowhere/ca.pem".into()), ..Tls::default() }).contains("/nowhere/ca.pem"));
}

/// A server that answers every connection with these bytes.
fn answering_with(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(bytes);
        }
    });
    address
}

#[test]
fn a_failure_names_the_proxy_and_recognises_a_port_of_another_protocol() {
    let why = |url: &str, proxy: Option<&str>| {
        let proxy = proxy.map(|proxy| format!("http://{proxy}").parse().unwrap());
        let settings = config::Http { proxy, ..settings(url, LONG) };
        Http::new(&settings).unwrap().deliver(&parcels([1])).unwrap_err().to_string()
    };
    // A handshake_failure alert, and what a server without TLS says to a TLS handshake.
    let (with_tls, without) =
        (answering_with(b"\x15\x03\x03\0\x02\x02\x28"), answering_with(b"HTTP/1.1 400 No\r\n\r\n"));
    let to_tls = why(&format!("http://{with_tls}/"), None);
    assert!(to_tls.contains("begins with https://"), "{to_tls}");
    let to_plain = why(&format!("https://{without}/"), None);
    assert!(to_plain.contains("does not speak TLS there"), "{to_plain}");
    // Nobody listens on a port that was just free.
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().to_string();
    for url in ["http://192.0.2.1/", "https://192.0.2.1/"] {
        let dead = why(url, Some(&closed));
        assert!(dead.contains(&format!("the proxy {closed}: ")), "{dead}");
    }
    let direct = why(&format!("http://{closed}/"), None);
    assert!(!direct.contains("proxy") && !direct.contains("https://"), "{direct}");
}
