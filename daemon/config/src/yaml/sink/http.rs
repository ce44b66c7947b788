//! The sink `http`, and the settings that it shares with other sinks that use HTTP.

use std::{path::PathBuf, time::Duration};

use http::{HeaderName, HeaderValue, Uri, header};
use serde::{Serialize, Serializer};

use weir_system::sandbox::Files;

use super::{
    super::{
        NONE,
        interface::interface_name,
        limits::{HEADERS_MAX, TIMEOUT},
        secret::is_credential,
        section::{Field, Section},
        units,
    },
    Settings,
};

/// The settings of an HTTP collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Http {
    /// The collector's URL, `http` or `https`, without credentials. [`Config::to_yaml`](crate::yaml::Config::to_yaml)
    /// does not show its query.
    #[serde(serialize_with = "write_url")]
    pub url: Uri,
    /// How long a request may take.
    #[serde(serialize_with = "units::write_duration")]
    pub timeout: Duration,
    /// How long connecting may take. `None` (`none`): up to the limit of the whole request.
    #[serde(serialize_with = "units::write_duration_or_none")]
    pub connect_timeout: Option<Duration>,
    /// How long sending the request may take.
    #[serde(serialize_with = "units::write_duration_or_none")]
    pub send_timeout: Option<Duration>,
    /// How long the collector may take until it starts its answer.
    #[serde(serialize_with = "units::write_duration_or_none")]
    pub answer_timeout: Option<Duration>,
    /// How bodies are compressed.
    pub compress: Compress,
    /// The form of bodies.
    #[serde(skip_serializing_if = "Format::is_default")]
    pub format: Format,
    /// Headers to add. Their values are secret: neither `Debug` nor [`Config::to_yaml`](crate::yaml::Config::to_yaml)
    /// shows them.
    #[serde(serialize_with = "write_headers")]
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// A file with the token of `Authorization: Bearer`. weir reads it for each request.
    pub token_file: Option<PathBuf>,
    /// More headers, whose values are in files.
    #[serde(serialize_with = "write_header_files")]
    pub header_files: Vec<(HeaderName, PathBuf)>,
    /// The trusted roots for HTTPS, and weir's own certificate.
    pub tls: Tls,
    /// The proxy. `None`: the proxy of the environment (such as `HTTPS_PROXY`), if any.
    #[serde(serialize_with = "write_url_or_null")]
    pub proxy: Option<Uri>,
    /// The VRF in which it connects to the collector or the proxy. `None`: that of the system's other programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
}

/// PEM files for HTTPS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tls {
    /// The trusted roots. `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// weir's own certificate and its chain, for collectors that require one.
    pub certificate_file: Option<PathBuf>,
    /// The file with the key of the client certificate.
    pub key_file: Option<PathBuf>,
}

/// How the body of a request or a file is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compress {
    /// gzip (RFC 1952).
    #[default]
    Gzip,
    /// zstd (RFC 8878).
    Zstd,
    /// No compression.
    None,
}

/// The form of a request's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One report a line.
    #[default]
    Ndjson,
    /// The bulk API of Elasticsearch and `OpenSearch`.
    Elasticsearch,
    /// The push API of Grafana Loki.
    Loki,
}

impl Format {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Compress {
    /// All variants, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Zstd, Self::None];
}

impl Http {
    /// The default of `timeout`.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Identifies where reports go: the URL, and anything that may identify a tenant, so that one tenant's reports
    /// never go to another. This includes every header without credentials. Of headers from files it includes only the
    /// paths of the files, because their content changes.
    pub(super) fn place(&self) -> String {
        let mut place = written_alike(&self.url);
        let mut add = |name: &str, value: &str| place.extend([" ", name, "=", value]);
        for (name, value) in self.headers.iter().filter(|(name, _)| !is_credential(name)) {
            add(name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
        }
        for (name, file) in &self.header_files {
            add(name.as_str(), &file.to_string_lossy());
        }
        if let Some(file) = &self.token_file {
            add("token_file", &file.to_string_lossy());
        }
        if let Some(vrf) = &self.vrf {
            add("vrf", vrf);
        }
        place
    }

    /// The message about an earlier sink with the same place.
    pub(super) fn conflict(&self, earlier: &Self) -> String {
        let what = if self.headers == earlier.headers { super::SAME_PLACE } else { DIFFERS_IN_SECRETS };
        what.to_owned()
    }
}

/// A URL in one of the ways in which it can be written (RFC 3986, section 6.2.2 and 6.2.3): the host in lower case, and
/// no port that is the usual one.
fn written_alike(url: &Uri) -> String {
    let usual = match url.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    };
    let port = url.port_u16().filter(|port| Some(*port) != usual).map_or_else(String::new, |port| format!(":{port}"));
    let host = url.host().unwrap_or_default().to_ascii_lowercase();
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    format!("{}://{host}{port}{path}", url.scheme_str().unwrap_or_default())
}

/// The message about sinks that differ only in a secret: in the spool, their reports could not be distinguished.
const DIFFERS_IN_SECRETS: &str = "write each secret into a file of its own (`token_file` or `header_files`): only secrets \
                                  in `headers` tell it from";

pub(super) const COMPRESS: [(&str, Compress); 3] =
    [("gzip", Compress::Gzip), ("zstd", Compress::Zstd), ("none", Compress::None)];

const FORMATS: [(&str, Format); 3] =
    [("ndjson", Format::Ndjson), ("elasticsearch", Format::Elasticsearch), ("loki", Format::Loki)];

/// Headers that weir sets itself, or that would break the request.
const OWN_HEADERS: [HeaderName; 7] = [
    header::HOST,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    HeaderName::from_static("idempotency-key"),
];

impl Settings for Http {
    fn spool_key(&self) -> Option<String> {
        Some(self.place())
    }

    fn hosts(&self) -> Vec<&str> {
        self.url.host().into_iter().collect()
    }

    fn add_files(&self, setting: &dyn Fn(&str) -> String, files: &mut Files) {
        files.reads(&setting("token_file"), &self.token_file);
        files.reads(&setting("header_files"), self.header_files.iter().map(|(_, file)| file));
        self.tls.add_files(setting, files);
    }

    fn http(&self) -> Option<&Http> {
        Some(self)
    }
}

impl Tls {
    /// Adds the files that it reads.
    pub(super) fn add_files(&self, setting: &dyn Fn(&str) -> String, files: &mut Files) {
        let Self { ca_file, certificate_file, key_file } = self;
        for (name, file) in [("ca_file", ca_file), ("certificate_file", certificate_file), ("key_file", key_file)] {
            files.reads(&format!("{}.{name}", setting("tls")), file);
        }
    }
}

/// Reads the settings of this sink.
pub(super) fn http(s: &mut Section<'_>) -> Option<Http> {
    let url = s.require("url", "the collector, such as http://collector:8080/weir", |f| url(&f));
    let format = s.get("format", Format::default(), |f| f.choice(&FORMATS));
    settings(s, url, format)
}

/// Reads everything except the URL and the format.
pub(super) fn settings(s: &mut Section<'_>, url: Option<Uri>, format: Format) -> Option<Http> {
    let timeout = s.get("timeout", Http::TIMEOUT, |f| f.duration(TIMEOUT));
    let compress = s.get("compress", Compress::default(), |f| {
        let compress = f.choice(&COMPRESS)?;
        if compress == Compress::Zstd && !format.is_default() {
            f.refuse("servers of this `format` take gzip or none");
        }
        Some(compress)
    });
    let headers = s.get("headers", Vec::new(), |f| headers(&f.secret()));
    let mut part =
        |name| s.get(name, None, |f| if f.is_word_of(&[NONE]) { Some(None) } else { f.duration(TIMEOUT).map(Some) });
    let [connect_timeout, send_timeout, answer_timeout] =
        ["connect_timeout", "send_timeout", "answer_timeout"].map(&mut part);
    let is_header = |name: &HeaderName| headers.iter().any(|(given, _)| given == name);
    let token_file = s.get("token_file", None, |f| {
        if is_header(&header::AUTHORIZATION) {
            f.refuse("`headers` has an Authorization already: keep one of them");
        }
        f.file_path().map(Some)
    });
    let is_given = |name: &HeaderName| is_header(name) || token_file.is_some() && *name == header::AUTHORIZATION;
    let header_files = s.get("header_files", Vec::new(), |f| {
        by_header(&f, "{X-Api-Key: /etc/weir/api.key}", is_given, |f| f.file_path())
    });
    let tls = s.get("tls", Tls::default(), |f| tls(&f));
    let proxy = s.get("proxy", None, |f| self::url(&f).map(Some));
    let vrf = s.get("vrf", None, |f| interface_name(&f).map(Some));
    Some(Http {
        url: url?,
        timeout,
        connect_timeout,
        send_timeout,
        answer_timeout,
        compress,
        format,
        headers,
        token_file,
        header_files,
        tls,
        proxy,
        vrf,
    })
}

pub(super) fn tls(field: &Field<'_>) -> Option<Tls> {
    let tls = field.section("{ca_file: /etc/weir/ca.pem}", |s| {
        let mut file = |name| s.get(name, None, |f| f.file_path().map(Some));
        Tls { ca_file: file("ca_file"), certificate_file: file("certificate_file"), key_file: file("key_file") }
    })?;
    if tls.certificate_file.is_some() != tls.key_file.is_some() {
        field.refuse("`certificate_file` and `key_file` belong together: give both, or none");
    }
    Some(tls)
}

/// Reads a URL. No mistake quotes it, because it may contain credentials.
pub(in crate::yaml) fn url(field: &Field<'_>) -> Option<Uri> {
    let text = field.text()?;
    let url: Uri = match text.parse() {
        Ok(url) => url,
        Err(error) => {
            field.refuse(format!("not a URL: {error}"));
            return None;
        }
    };
    let authority = url.authority().map_or("", |authority| authority.as_str());
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        field.refuse("a URL begins with http:// or https://");
    } else if authority.contains('@') {
        field.refuse("a user name or password in a URL would appear in logs: use `headers: {Authorization: ...}`");
    } else if url.host().is_none_or(str::is_empty) {
        field.refuse("the URL has no host");
    } else if url.host() != Some(authority) && url.port_u16().is_none_or(|port| port == 0) {
        field.refuse("the port of the URL is not from 1 to 65535");
    } else {
        return Some(url);
    }
    None
}

/// Reads the headers to add. The field is secret.
pub(in crate::yaml) fn headers(field: &Field<'_>) -> Option<Vec<(HeaderName, HeaderValue)>> {
    by_header(field, "{Authorization: Bearer ...}", |_| false, header_value)
}

/// Reads a value for each header. `is_given` tells whether a header is already set.
fn by_header<T>(
    field: &Field<'_>,
    example: &str,
    is_given: impl Fn(&HeaderName) -> bool,
    read: impl Fn(&Field<'_>) -> Option<T>,
) -> Option<Vec<(HeaderName, T)>> {
    let mut all: Vec<(HeaderName, T)> = Vec::new();
    for (name, field) in field.map(HEADERS_MAX, example)? {
        let Some(value) = read(&field) else { continue };
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            field.refuse_key("not the name of an HTTP header: use letters, digits and dashes");
            continue;
        };
        if OWN_HEADERS.contains(&name) {
            field.refuse_key("weir sets this header itself");
        } else if is_given(&name) || all.iter().any(|(earlier, _)| *earlier == name) {
            field.refuse_key("given twice: keep one of them");
        } else {
            all.push((name, value));
        }
    }
    Some(all)
}

fn header_value(field: &Field<'_>) -> Option<HeaderValue> {
    let Ok(mut value) = HeaderValue::from_str(field.text()?) else {
        field.refuse("contains a line break or another character that HTTP does not allow in a header");
        return None;
    };
    value.set_sensitive(true);
    Some(value)
}

fn write_header_files<S: Serializer>(files: &[(HeaderName, PathBuf)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(files.iter().map(|(name, file)| (name.as_str(), file)))
}

fn write_url_or_null<S: Serializer>(url: &Option<Uri>, serializer: S) -> Result<S::Ok, S::Error> {
    url.as_ref().map(Uri::to_string).serialize(serializer)
}

/// Writes a URL without its query, because some collectors expect their key there.
fn write_url<S: Serializer>(url: &Uri, serializer: S) -> Result<S::Ok, S::Error> {
    match (url.to_string().split_once('?'), url.query()) {
        (Some((public, _)), Some(_)) => serializer.collect_str(&format_args!("{public}?***")),
        _ => serializer.collect_str(url),
    }
}

pub(in crate::yaml) fn write_headers<S: Serializer>(
    headers: &[(HeaderName, HeaderValue)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(headers.iter().map(|(name, _)| (name.as_str(), "***")))
}
