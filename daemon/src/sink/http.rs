//! Reports to a collector over HTTP or HTTPS.

use std::{
    io::{self, Read, Write},
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use ureq::{
    Agent, Body,
    http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header},
    tls::{RootCerts, TlsConfig},
};

use super::{DeliveryError, Sink};
use crate::{clock, spool::Parcel, text::with_causes};

/// How much of the body of a refusal an error quotes: enough for a sentence.
const REFUSAL_BYTES_MAX: u64 = 200;
/// How much of an answer is read so that its connection can be used again; larger ones cost a new connection.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Reports that one request has, at most.
const BATCH: usize = 100;
/// The longest that a collector may ask to be left alone.
const AFTER_MAX: Duration = Duration::from_secs(60 * 60);
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A collector that takes reports as the bodies of POST requests (NDJSON, one report a line).
///
/// The header `Idempotency-Key` is the report's id, or the ids of the first and the last one of a batch, the same in every
/// attempt. Delivered means an answer of 2xx. 4xx refuses the reports for good, but for those that may pass: 401, 403 and 404
/// (a token that has expired, a collector that is being deployed), 408, 425 and 429. Everything else may work later.
/// `Retry-After` is honoured. Redirects are not followed. HTTPS trusts the roots of the platform.
#[derive(Debug)]
pub struct Http {
    agent: Agent,
    uri: Uri,
    headers: HeaderMap,
    compress: bool,
    /// Whether it takes messages of alerts instead of reports.
    is_webhook: bool,
}

/// Why a collector cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The URL does not parse.
    #[error("{url:?} is not a URL: {cause}")]
    NotUrl {
        /// What was given.
        url: String,
        /// Why it does not parse.
        cause: ureq::http::uri::InvalidUri,
    },
    /// The URL has no host, or another scheme.
    #[error("{0:?} is not a URL of the form http://host/path or https://host/path")]
    NotHttp(String),
    /// The URL contains a password, which is not repeated here.
    #[error("a user name or password in a URL would end up in logs: give an `Authorization` header instead")]
    Credentials,
    /// A header's name has characters that HTTP does not allow.
    #[error("{0:?} is not the name of an HTTP header")]
    HeaderName(String),
    /// A header's value, which may be a secret and is not repeated here, has characters that HTTP does not allow.
    #[error("the value of the header {0:?} contains a line break or another control character")]
    HeaderValue(String),
}

impl Http {
    /// A collector at `url`. An attempt takes at most `timeout`, from resolving the name to the end of the answer;
    /// `compress` is gzip; `headers` come on top and replace weir's own of the same name.
    ///
    /// # Errors
    /// The URL or a header is not valid.
    pub fn new(
        url: &str,
        timeout: Duration,
        compress: bool,
        headers: Vec<(String, String)>,
    ) -> Result<Self, HttpError> {
        let uri = parse_url(url)?;
        let mut all = HeaderMap::new();
        all.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        all.insert(header::USER_AGENT, HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION"))));
        if compress {
            all.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        for (name, value) in headers {
            let Ok(header) = HeaderName::try_from(&name) else { return Err(HttpError::HeaderName(name)) };
            let Ok(mut value) = HeaderValue::try_from(value) else { return Err(HttpError::HeaderValue(name)) };
            value.set_sensitive(true);
            all.insert(header, value);
        }
        let agent = Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
            .build()
            .new_agent();
        Ok(Self { agent, uri, headers: all, compress, is_webhook: false })
    }

    /// A webhook at `url`, which takes messages of alerts, each as JSON that is not compressed. All else is as with
    /// [`Http::new`].
    ///
    /// # Errors
    /// The URL or a header is not valid.
    pub fn webhook(url: &str, timeout: Duration, headers: Vec<(String, String)>) -> Result<Self, HttpError> {
        let mut webhook = Self { is_webhook: true, ..Self::new(url, timeout, false, headers)? };
        webhook.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(webhook)
    }

    fn request(&self, batch: &[Parcel]) -> Result<Request<Vec<u8>>, DeliveryError> {
        let lines: Vec<&[u8]> = batch.iter().map(|parcel| &*parcel.encoded.line).collect();
        let body = if self.compress { gzip(&lines) } else { lines.concat() };
        let mut request = Request::post(&self.uri)
            .body(body)
            .map_err(|error| DeliveryError::Refused(format!("cannot make the request: {error}")))?;
        request.headers_mut().extend(self.headers.clone());
        let key = match batch {
            [] => String::new(),
            [one] => one.encoded.id.clone(),
            [first, .., last] => format!("{}..{}", first.encoded.id, last.encoded.id),
        };
        let value = HeaderValue::try_from(&key)
            .map_err(|_| DeliveryError::Refused(format!("the id {key:?} is not a header's value")))?;
        request.headers_mut().insert(IDEMPOTENCY_KEY, value);
        Ok(request)
    }
}

impl Sink for Http {
    fn name(&self) -> String {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        // The path of a webhook is often its secret.
        if self.is_webhook {
            format!("webhook:{scheme}://{host}")
        } else {
            format!("{scheme}://{host}{}", self.uri.path())
        }
    }

    fn carries(&self) -> [&'static str; 2] {
        if self.is_webhook { ["an alert", "alerts"] } else { ["a report", "reports"] }
    }

    fn batch(&self) -> usize {
        if self.is_webhook { 1 } else { BATCH }
    }

    fn deliver(&mut self, batch: &[Parcel]) -> Result<(), DeliveryError> {
        let request = self.request(batch)?;
        let mut response = self.agent.run(request).map_err(|error| DeliveryError::unavailable(with_causes(&error)))?;
        let status = response.status();
        if status.is_success() {
            // Delivered, whether or not the rest of the answer arrives.
            let _ = io::copy(&mut response.body_mut().as_reader().take(ANSWER_BYTES_MAX), &mut io::sink());
            return Ok(());
        }
        let message = refusal(&mut response);
        Err(if status.is_client_error() && !may_pass(status) {
            DeliveryError::Refused(message)
        } else {
            DeliveryError::Unavailable { message, after: retry_after(response.headers()) }
        })
    }
}

/// Whether this refusal says nothing of the report itself.
fn may_pass(status: StatusCode) -> bool {
    const PASSING: [StatusCode; 6] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::NOT_FOUND,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    PASSING.contains(&status)
}

/// How long the collector wants to be left alone (RFC 9110 section 10.2.3): seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let after = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            date.duration_since(clock::now().wall).try_into().unwrap_or_default()
        }
    };
    Some(after.min(AFTER_MAX))
}

fn parse_url(url: &str) -> Result<Uri, HttpError> {
    if url.split(['/', '?', '#']).nth(2).is_some_and(|authority| authority.contains('@')) {
        return Err(HttpError::Credentials);
    }
    let uri: Uri = url.parse().map_err(|cause| HttpError::NotUrl { url: url.to_owned(), cause })?;
    let http = matches!(uri.scheme_str(), Some("http" | "https"));
    if http && uri.host().is_some_and(|host| !host.is_empty()) {
        Ok(uri)
    } else {
        Err(HttpError::NotHttp(url.to_owned()))
    }
}

fn gzip(lines: &[&[u8]]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = lines.iter().try_for_each(|line| encoder.write_all(line));
    written.and_then(|()| encoder.finish()).expect("writing into memory cannot fail")
}

/// An answer other than 2xx in one line: status, where a redirect leads, and the beginning of its body.
fn refusal(response: &mut Response<Body>) -> String {
    let mut message = response.status().to_string();
    if let Some(location) = response.headers().get(header::LOCATION) {
        message += &format!(", redirects are not followed, configure the URL {location:?}");
    }
    let mut body = Vec::new();
    // Any part that arrives is quoted.
    let _ = response.body_mut().as_reader().take(REFUSAL_BYTES_MAX).read_to_end(&mut body);
    let text = String::from_utf8_lossy(&body);
    let words: Vec<_> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    if !words.is_empty() {
        message += &format!(": {}", words.join(" "));
    }
    message
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        net::TcpListener,
        thread::{self, JoinHandle},
    };

    use flate2::read::GzDecoder;
    use tiny_http::{Header, Method, Response, Server};

    use super::{
        super::{
            Encoded,
            tests::{id, parcels},
        },
        *,
    };

    /// Far longer than anything here takes; only a failing test waits for it.
    pub(in crate::sink) const LONG: Duration = Duration::from_secs(20);

    /// One request as it arrived.
    pub(in crate::sink) struct Received {
        method: Method,
        url: String,
        headers: Vec<Header>,
        body: Vec<u8>,
    }

    impl Received {
        fn header(&self, name: &'static str) -> Option<&str> {
            self.headers.iter().find(|header| header.field.equiv(name)).map(|header| header.value.as_str())
        }
    }

    /// A collector on the loopback interface that takes a fixed number of requests.
    pub(in crate::sink) struct Collector {
        pub(in crate::sink) address: String,
        requests: JoinHandle<Vec<Received>>,
    }

    impl Collector {
        /// Answers each of `requests` requests, given its number from 0, with a status and a body.
        pub(in crate::sink) fn new(requests: usize, answer: impl Fn(usize) -> (u16, String) + Send + 'static) -> Self {
            let server = Server::http("127.0.0.1:0").unwrap();
            let address = server.server_addr().to_string();
            let serve = move |number| {
                let mut request = server.recv_timeout(LONG).unwrap().expect("one more request");
                let mut body = Vec::new();
                request.as_reader().read_to_end(&mut body).unwrap();
                let (method, url) = (request.method().clone(), request.url().to_owned());
                let headers = request.headers().to_vec();
                let (status, text) = answer(number);
                let elsewhere = Header::from_bytes("Location", "http://127.0.0.1:9/elsewhere").unwrap();
                let mut response = Response::from_string(text).with_status_code(status);
                if (300..400).contains(&status) {
                    response.add_header(elsewhere);
                }
                request.respond(response).unwrap();
                Received { method, url, headers, body }
            };
            Self { address, requests: thread::spawn(move || (0..requests).map(serve).collect()) }
        }

        /// Answers with these statuses, one after the other.
        pub(in crate::sink) fn answering<const N: usize>(statuses: [u16; N]) -> Self {
            Self::new(N, move |number| (statuses[number], String::new()))
        }

        /// All requests, once the last has been answered.
        fn received(self) -> Vec<Received> {
            self.requests.join().unwrap()
        }

        /// The idempotency key of each request.
        pub(in crate::sink) fn keys(self) -> Vec<String> {
            self.received().iter().map(|request| request.header("Idempotency-Key").unwrap().to_owned()).collect()
        }
    }

    fn sink(address: &str) -> Http {
        Http::new(&format!("http://{address}/"), LONG, false, Vec::new()).unwrap()
    }

    #[test]
    fn a_report_is_posted_as_one_line_under_its_id() {
        let collector = Collector::answering([200, 204]);
        let url = format!("http://{}/weir?table=reports", collector.address);
        let headers = [("Authorization", "Bearer s3cret"), ("X-Site", "fra1")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let mut sink = Http::new(&url, LONG, false, headers).unwrap();
        assert_eq!(sink.name(), format!("http://{}/weir", collector.address), "a query may hold a secret");
        assert!(!format!("{sink:?}").contains("s3cret"));
        let reports = parcels([1, 2]);
        reports.chunks(1).for_each(|report| sink.deliver(report).unwrap());
        let received = collector.received();
        assert_eq!(received.len(), reports.len());
        for (request, report) in received.iter().zip(&reports) {
            assert_eq!((&request.method, request.url.as_str()), (&Method::Post, "/weir?table=reports"));
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
    fn a_webhook_gets_json_and_its_path_is_never_told() {
        let collector = Collector::answering([200]);
        let url = format!("http://{}/services/T0K3N?key=T0K3N", collector.address);
        let mut webhook = Http::webhook(&url, LONG, Vec::new()).unwrap();
        assert_eq!(webhook.name(), format!("webhook:http://{}", collector.address));
        let message = Encoded { id: "a/b/1/flood".to_owned(), line: b"{}\n".as_slice().into() };
        webhook.deliver(&[Parcel::report(message)]).unwrap();
        let [request] = collector.received().try_into().ok().unwrap();
        assert_eq!((request.url.as_str(), request.body.as_slice()), ("/services/T0K3N?key=T0K3N", b"{}\n".as_slice()));
        assert_eq!(request.header("Content-Type"), Some("application/json"));
        assert_eq!(request.header("Idempotency-Key"), Some("a/b/1/flood"));
    }

    #[test]
    fn a_compressed_report_is_the_same_report() {
        let collector = Collector::answering([200]);
        let headers = vec![("user-agent".to_owned(), "ours".to_owned())];
        let mut sink = Http::new(&format!("http://{}", collector.address), LONG, true, headers).unwrap();
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
        let mut packed = Http::new(&format!("http://{}", collector.address), LONG, true, Vec::new()).unwrap();
        packed.deliver(&reports).unwrap();
        let expected = reports.each_ref().map(|report| &*report.encoded.line).concat();
        for (nth, request) in collector.received().into_iter().enumerate() {
            assert_eq!(request.header("Idempotency-Key").unwrap(), format!("{}..{}", id(1), id(3)));
            let mut body = Vec::new();
            // One member, for those who read only one.
            GzDecoder::new(&*request.body).read_to_end(&mut body).map_or_else(|_| body = request.body.clone(), drop);
            assert!(body == expected, "request {nth}");
        }
    }

    #[test]
    fn a_collector_may_ask_to_be_left_alone() {
        let after = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_after(&headers)
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("999999999"), Some(AFTER_MAX));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO), "that is over");
        assert_eq!(after("Tue, 01 Jan 2999 00:00:00 GMT"), Some(AFTER_MAX));
        for wrong in ["", "soon", "-1", "1.5"] {
            assert_eq!(after(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_does_not_answer_is_unavailable() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let mut sink = Http::new(&url, Duration::from_millis(50), false, Vec::new()).unwrap();
        let error = sink.deliver(&parcels([1])).unwrap_err();
        assert!(
            matches!(&error, DeliveryError::Unavailable { message, .. } if message.contains("timeout")),
            "{error:?}"
        );
        drop(silent);
        // With time enough, what is refused does not look like what is late.
        let mut sink = Http::new(&url, LONG, false, Vec::new()).unwrap();
        let error = sink.deliver(&parcels([1])).unwrap_err();
        assert!(
            matches!(&error, DeliveryError::Unavailable { message, .. } if message.contains("refused")),
            "{error:?}"
        );
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
        let mut sink = Http::new(&url, LONG, false, Vec::new()).unwrap();
        let error = sink.deliver(&parcels([1])).unwrap_err();
        assert!(matches!(error, DeliveryError::Unavailable { .. }), "{error:?}");
        assert_eq!(first_byte.join().unwrap(), 22, "a TLS handshake record (RFC 8446 section 5.1)");
    }

    #[test]
    fn a_mistake_is_named_and_a_secret_is_not() {
        let make = |url: &str, name: &str, value: &str| {
            Http::new(url, LONG, false, vec![(name.to_owned(), value.to_owned())]).unwrap_err().to_string()
        };
        for url in ["collector:8080", "collector.example/weir", "ftp://collector.example/", "http:///weir", "", "/weir"]
        {
            assert!(make(url, "a", "b").contains(&format!("{url:?} is not a URL")), "{url}: {}", make(url, "a", "b"));
        }
        assert!(make("http://[::1/", "a", "b").contains("\"http://[::1/\" is not a URL"));
        let error = make("https://weir:s3cret@collector.example/", "a", "b");
        assert!(error.contains("`Authorization`") && !error.contains("s3cret"), "{error}");
        assert!(make("http://[::1]:80/", "a b", "c").contains("\"a b\" is not the name of an HTTP header"));
        let error = make("http://127.0.0.1", "x-token", "s3cret\r\nx: y");
        assert!(error.contains("\"x-token\"") && !error.contains("s3cret"), "{error}");
    }
}
