//! How weir talks to an HTTP server, whatever the content: connection, headers, secrets, TLS, proxy, compression, and
//! what an answer means.

use std::{io::Read, time::Duration};

use ureq::{
    Agent, Proxy, ProxyProtocol,
    http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header},
};
use weir_config::{Compress, Tls};
use weir_system::text::with_causes;

use super::{
    answer::{may_pass, refusal, retry_after},
    secret::{SecretError, SecretHeader},
    tls::{self, PemError},
    transport::{AnsweredEarly, Connections, Names},
};
use crate::{gzip::gzip, sink::DeliveryError, spool::Parcel};

/// How much of an answer is read. After a larger one the connection cannot be reused.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// zstd's own default: as fast as the fastest gzip level, and a quarter smaller.
const ZSTD_LEVEL: i32 = 3;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A server that takes POST requests at one URL.
#[derive(Debug)]
pub(in crate::sink) struct Client {
    agent: Agent,
    uri: Uri,
    headers: HeaderMap,
    secrets: Vec<SecretHeader>,
    compress: Compress,
    early: AnsweredEarly,
}

/// The options of a connection to a collector.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The timeout of an attempt, from resolving the name to the end of the answer.
    pub timeout: Duration,
    /// The timeout of connecting; `None`: only `timeout` applies.
    pub connect_timeout: Option<Duration>,
    /// The timeout of sending the request; `None`: the same.
    pub send_timeout: Option<Duration>,
    /// How long the server may take until its answer begins; `None`: the same.
    pub answer_timeout: Option<Duration>,
    /// How bodies are compressed.
    pub compress: Compress,
    /// Additional headers; they replace weir's own of the same name.
    pub headers: Vec<(String, String)>,
    /// Headers whose values are in files.
    pub secrets: Vec<SecretHeader>,
    /// Which authorities HTTPS trusts, and weir's own certificate.
    pub tls: Tls,
    /// The proxy; `None`: the one from the environment, if any.
    pub proxy: Option<Uri>,
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
    /// The URL has no host, or its scheme is not HTTP or HTTPS.
    #[error("{0:?} is not a URL of the form http://host/path or https://host/path")]
    NotHttp(String),
    /// The URL contains a password, which is not repeated here.
    #[error("a user name or password in a URL would end up in logs: give an `Authorization` header instead")]
    Credentials,
    /// A file with certificates or a key cannot be used.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The proxy cannot be used.
    #[error("{url:?} cannot be the proxy: {cause}")]
    Proxy {
        /// The URL of the proxy.
        url: String,
        /// Why not.
        cause: ureq::Error,
    },
    /// A header's name has characters that HTTP does not allow.
    #[error("{0:?} is not the name of an HTTP header")]
    HeaderName(String),
    /// A header's value has characters that HTTP does not allow. It may be a secret, so it is not repeated here.
    #[error("the value of the header {0:?} contains a line break or another control character")]
    HeaderValue(String),
}

impl Client {
    /// A client for the server at `url` that sends bodies of this type.
    ///
    /// # Errors
    /// The URL or another option is not valid.
    pub(in crate::sink) fn new(url: &str, content_type: &'static str, options: Options) -> Result<Self, HttpError> {
        let Options { timeout, connect_timeout, send_timeout, answer_timeout, compress, headers, secrets, tls, proxy } =
            options;
        let uri = parse_url(url)?;
        let mut all = HeaderMap::new();
        all.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        all.insert(header::USER_AGENT, HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION"))));
        if let Some(encoding) = encoding(compress) {
            all.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        for (name, value) in headers {
            let Ok(header) = HeaderName::try_from(&name) else { return Err(HttpError::HeaderName(name)) };
            let Ok(mut value) = HeaderValue::try_from(value) else { return Err(HttpError::HeaderValue(name)) };
            value.set_sensitive(true);
            all.insert(header, value);
        }
        let proxy = match proxy.map(|proxy| proxy.to_string()) {
            Some(url) => Some(Proxy::new(&url).map_err(|cause| HttpError::Proxy { url, cause })?),
            None => Proxy::try_from_env(),
        };
        let (named, tunnel) = divided(proxy, &uri);
        if let Some(value) = named.as_ref().and_then(credentials) {
            all.insert(header::PROXY_AUTHORIZATION, value);
        }
        let agent = Agent::config_builder()
            .timeout_global(Some(timeout))
            .timeout_connect(connect_timeout)
            .timeout_send_body(send_timeout)
            .timeout_recv_response(answer_timeout)
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(tls::config(&tls)?)
            .proxy(tunnel)
            .build();
        let early = AnsweredEarly::default();
        let origin = named.is_some().then(|| origin(&uri));
        let connections = Connections::new(early.clone(), origin);
        let names = Names::new(named.map(|proxy| proxy.uri().clone()));
        let agent = Agent::with_parts(agent, connections, names);
        Ok(Self { agent, uri, headers: all, secrets, compress, early })
    }

    /// Reads the files with secrets, as each request does.
    ///
    /// # Errors
    ///
    /// The first file without a valid secret.
    pub(in crate::sink) fn check_secrets(&self) -> Result<(), SecretError> {
        self.secrets.iter().try_for_each(|secret| secret.value().map(drop))
    }

    /// Scheme, host and port.
    pub(in crate::sink) fn origin(&self) -> String {
        origin(&self.uri)
    }

    /// The URL without its query, which may hold a secret.
    pub(in crate::sink) fn name(&self) -> String {
        self.origin() + self.uri.path()
    }

    /// Sends the concatenation of `parts` as the body for this batch. If the server has accepted it, returns the body
    /// of the answer: as much as arrives and is not too large.
    ///
    /// # Errors
    ///
    /// [`DeliveryError::Refused`] for an answer of 4xx, except those that may pass. Everything else may work later.
    pub(in crate::sink) fn post(&self, batch: &[Parcel], parts: &[&[u8]]) -> Result<Vec<u8>, DeliveryError> {
        let request = self.request(batch, parts)?;
        let _ = self.early.take();
        let mut response = self.agent.run(request).map_err(|error| DeliveryError::unavailable(with_causes(&error)))?;
        let status = response.status();
        if status.is_success() && self.early.take() {
            let message = format!("{status}, but before the server had read the request: it has not taken anything");
            return Err(DeliveryError::unavailable(message));
        }
        if status.is_success() {
            // The report is delivered, whether or not the rest of the answer arrives.
            let mut answer = Vec::new();
            let _ = response.body_mut().as_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
            return Ok(answer);
        }
        let message = refusal(&mut response);
        Err(if status.is_client_error() && !may_pass(status) {
            DeliveryError::Refused(message)
        } else {
            DeliveryError::Unavailable { message, after: retry_after(response.headers()) }
        })
    }

    fn request(&self, batch: &[Parcel], parts: &[&[u8]]) -> Result<Request<Vec<u8>>, DeliveryError> {
        let body = match self.compress {
            Compress::Gzip => gzip(parts),
            Compress::Zstd => zstd::bulk::compress(&parts.concat(), ZSTD_LEVEL)
                .map_err(|error| DeliveryError::unavailable(format!("cannot compress reports: {error}")))?,
            Compress::None => parts.concat(),
        };
        let mut request = Request::post(&self.uri)
            .body(body)
            .map_err(|error| DeliveryError::Refused(format!("cannot make the request: {error}")))?;
        request.headers_mut().extend(self.headers.clone());
        for secret in &self.secrets {
            let value = secret.value().map_err(|error| DeliveryError::unavailable(error.to_string()))?;
            request.headers_mut().insert(secret.name.clone(), value);
        }
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

fn origin(uri: &Uri) -> String {
    let host = uri.authority().map_or("", |authority| authority.as_str());
    format!("{}://{host}", uri.scheme_str().unwrap_or_default())
}

/// The proxy as one that gets the whole URL of each request, as RFC 9112 section 3.2.2 requires for `http://`, or as
/// one that makes a tunnel (CONNECT): usual proxies refuse a tunnel to port 80.
fn divided(proxy: Option<Proxy>, uri: &Uri) -> (Option<Proxy>, Option<Proxy>) {
    match proxy {
        Some(proxy) if proxy.is_no_proxy(uri) => (None, None),
        Some(proxy) if uri.scheme_str() == Some("http") && proxy.protocol() == ProxyProtocol::Http => {
            (Some(proxy), None)
        }
        proxy => (None, proxy),
    }
}

/// The credentials for a proxy (RFC 7617): the proxy's URL in the environment may contain a user name and a password.
fn credentials(proxy: &Proxy) -> Option<HeaderValue> {
    if proxy.username().is_none() && proxy.password().is_none() {
        return None;
    }
    let pair = format!("{}:{}", proxy.username().unwrap_or_default(), proxy.password().unwrap_or_default());
    let mut value = HeaderValue::try_from(format!("Basic {}", base64(pair.as_bytes()))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// RFC 4648 section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for nth in 0..4 {
            let digit = char::from(DIGITS[(bits >> (18 - 6 * nth) & 63) as usize]);
            text.push(if nth <= group.len() { digit } else { '=' });
        }
    }
    text
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

const fn encoding(compress: Compress) -> Option<&'static str> {
    match compress {
        Compress::Gzip => Some("gzip"),
        Compress::Zstd => Some("zstd"),
        Compress::None => None,
    }
}
