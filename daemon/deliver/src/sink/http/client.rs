//! The HTTP client for every kind of content: connection, headers, secrets, TLS, proxy, compression, and the meaning of
//! answers.

use ureq::{
    Agent, Proxy, ProxyProtocol,
    http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header},
};
use weir_config::{self as config, Compress, is_credential_of_service};

use super::{
    answer::{Accepted, may_pass, refusal, retry_after},
    failure::explained,
    secret::SecretHeader,
    tls::{self, PemError},
    transport::{AnsweredEarly, Connections, Names},
};
use crate::{
    gzip::gzip,
    sink::{DeliveryError, vrf},
    spool::Item,
};

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
    /// Host and port of the proxy, if there is one.
    proxy: Option<String>,
    /// The VRF of its connections, if there is one.
    vrf: Option<String>,
}

/// Why a collector cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// A file with certificates or a key cannot be used.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The proxy cannot be used.
    #[error("{url:?} cannot be the proxy: {cause}")]
    Proxy {
        /// The URL of the proxy.
        url: String,
        /// The client's error.
        cause: ureq::Error,
    },
}

impl Client {
    /// A client for the server with these settings that sends bodies of this type.
    ///
    /// # Errors
    /// The certificates, the key or the proxy cannot be used.
    pub(in crate::sink) fn new(settings: &config::Http, content_type: &'static str) -> Result<Self, HttpError> {
        let uri = settings.url.clone();
        let mut all = HeaderMap::new();
        all.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        all.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        all.insert(header::USER_AGENT, HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION"))));
        if let Some(encoding) = encoding(settings.compress) {
            all.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        for (name, value) in &settings.headers {
            let mut value = value.clone();
            value.set_sensitive(true);
            all.insert(name, value);
        }
        let proxy = match settings.proxy.as_ref().map(Uri::to_string) {
            Some(url) => Some(Proxy::new(&url).map_err(|cause| HttpError::Proxy { url, cause })?),
            None => Proxy::try_from_env(),
        };
        let (named, tunnel) = divided(proxy, &uri);
        let proxy = named.as_ref().or(tunnel.as_ref()).map(|proxy| format!("{}:{}", proxy.host(), proxy.port()));
        if let Some(value) = named.as_ref().and_then(credentials) {
            all.insert(header::PROXY_AUTHORIZATION, value);
        }
        let agent = Agent::config_builder()
            .timeout_global(Some(settings.timeout))
            .timeout_connect(settings.connect_timeout)
            .timeout_send_body(settings.send_timeout)
            .timeout_recv_response(settings.answer_timeout)
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(tls::config(&settings.tls)?)
            .proxy(tunnel)
            .build();
        let early = AnsweredEarly::default();
        let origin = named.is_some().then(|| origin(&uri));
        let connections = Connections::new(early.clone(), origin, settings.vrf.clone());
        let names = Names::new(named.map(|proxy| proxy.uri().clone()));
        let agent = Agent::with_parts(agent, connections, names);
        let (secrets, compress) = (SecretHeader::of(settings), settings.compress);
        let vrf = settings.vrf.clone();
        Ok(Self { agent, uri, headers: all, secrets, compress, early, proxy, vrf })
    }

    /// Reads the files with secrets and looks for the VRF, as each request does. See
    /// [`Sink::check`](crate::sink::Sink::check).
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub(in crate::sink) fn check(&self) -> Result<(), String> {
        vrf::check(self.vrf.as_deref())?;
        let mut secrets = self.secrets.iter().filter(|secret| !is_credential_of_service(&secret.file));
        secrets.try_for_each(|secret| secret.value().map(drop)).map_err(|error| error.to_string())
    }

    /// Scheme, host and port.
    pub(in crate::sink) fn origin(&self) -> String {
        origin(&self.uri)
    }

    /// The URL without its query, which may hold a secret.
    pub(in crate::sink) fn name(&self) -> String {
        self.origin() + self.uri.path()
    }

    /// Sends the concatenation of `parts` as the body for this batch. If the server accepts it, returns the answer: the
    /// report is delivered, whether or not the rest of the answer arrives.
    ///
    /// # Errors
    ///
    /// [`DeliveryError::Refused`] for an answer of 4xx, except those that may pass. Everything else may work later.
    pub(in crate::sink) fn post(&self, batch: &[Item], parts: &[&[u8]]) -> Result<Accepted, DeliveryError> {
        let request = self.request(batch, parts)?;
        let _ = self.early.take();
        let explained = |error| DeliveryError::unavailable(explained(&error, &self.uri, self.proxy.as_deref()));
        let mut response = self.agent.run(request).map_err(explained)?;
        let status = response.status();
        if status.is_success() && self.early.take() {
            let message = format!("{status}, but before the server had read the request: it has not taken anything");
            return Err(DeliveryError::unavailable(message));
        }
        if status.is_success() {
            return Ok(Accepted(response));
        }
        let message = refusal(&mut response);
        Err(if status.is_client_error() && !may_pass(status) {
            DeliveryError::Refused(message)
        } else {
            DeliveryError::Unavailable { message, after: retry_after(response.headers()) }
        })
    }

    fn request(&self, batch: &[Item], parts: &[&[u8]]) -> Result<Request<Vec<u8>>, DeliveryError> {
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

/// The proxy is in the first place if it gets the whole URL of each request, as RFC 9112 section 3.2.2 requires for
/// `http://`, and in the second place if it makes a tunnel (CONNECT). Most proxies refuse a tunnel to port 80.
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

const fn encoding(compress: Compress) -> Option<&'static str> {
    match compress {
        Compress::Gzip => Some("gzip"),
        Compress::Zstd => Some("zstd"),
        Compress::None => None,
    }
}
