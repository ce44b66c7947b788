//! From the settings of a sink to what it is opened with, and why that fails.

use std::io;

use thiserror::Error;
use ureq::http::{HeaderName, HeaderValue, header};
use weir_config as config;

use super::{
    Http, HttpError,
    http::{Options, SecretError, SecretHeader},
};

/// Why a sink cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The system refused a resource.
    #[error("cannot open the {name} sink")]
    System {
        /// Which one.
        name: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The settings of the HTTP sink are not valid.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A file with a secret cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The certificates or the key of the NATS sink cannot be used.
    #[cfg(feature = "nats")]
    #[error("cannot open the nats sink")]
    Nats(#[source] super::nats::TlsError),
    /// This weir was built without the sink. The configuration check reports that earlier.
    #[cfg(not(all(feature = "nats", feature = "otlp")))]
    #[error("this weir was built without the {0} sink")]
    NotBuilt(&'static str),
}

/// The sink that speaks HTTP by these settings.
pub(super) fn http(settings: &config::Http, options: Options) -> Result<Http, HttpError> {
    Http::new(&settings.url.to_string(), options)
}

/// How a collector is spoken to by these settings.
pub(super) fn options(http: &config::Http) -> Options {
    let config::Http {
        url: _,
        timeout,
        connect_timeout,
        send_timeout,
        answer_timeout,
        compress,
        headers,
        token_file,
        header_files,
        tls,
        proxy,
    } = http;
    let token = token_file.iter().map(|file| SecretHeader {
        name: header::AUTHORIZATION,
        before: "Bearer ",
        file: file.clone(),
    });
    let others =
        header_files.iter().map(|(name, file)| SecretHeader { name: name.clone(), before: "", file: file.clone() });
    Options {
        timeout: *timeout,
        connect_timeout: *connect_timeout,
        send_timeout: *send_timeout,
        answer_timeout: *answer_timeout,
        compress: *compress,
        headers: as_text(headers),
        secrets: token.chain(others).collect(),
        tls: tls.clone(),
        proxy: proxy.clone(),
    }
}

pub(super) fn as_text(headers: &[(HeaderName, HeaderValue)]) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
