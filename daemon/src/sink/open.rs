//! Opens the sinks of a configuration.

use std::{io, path::Path};

use thiserror::Error;
use ureq::http::{HeaderName, HeaderValue, header};

use super::{
    File, Http, HttpError, Ipfix, Outbox, Rotation, Sink, Stdout,
    http::{Options, SecretError, SecretHeader},
};
use crate::{
    config::{self, Addresses, Target},
    spool::place::Place,
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

/// Opens every sink, each on its own threads; its reports wait in `spools`, if that is given.
///
/// # Errors
///
/// The first that cannot be opened.
pub fn open(sinks: &[config::Sink], spools: Option<&Place>) -> Result<Vec<Outbox>, OpenError> {
    sinks.iter().map(|sink| open_one(sink, spools.zip(sink.target.spool_key().as_deref()))).collect()
}

fn open_one(sink: &config::Sink, spool: Option<(&Place, &str)>) -> Result<Outbox, OpenError> {
    let (name, target): (_, Box<dyn Sink>) = match &sink.target {
        Target::Stdout => {
            let opened = Stdout::new().map_err(|source| OpenError::System { name: "stdout", source })?;
            ("stdout", Box::new(opened))
        }
        Target::File(config::File { path, max_size, keep, compress }) => {
            let rotation = max_size.map(|max_size| Rotation { max_size, keep: *keep, compress: *compress });
            ("file", Box::new(File::new(path, rotation)))
        }
        Target::Http(http) => ("http", Box::new(Http::new(&http.url.to_string(), options(http))?)),
        Target::Ipfix(ipfix) => ("ipfix", Box::new(Ipfix::new(ipfix))),
        #[cfg(feature = "otlp")]
        Target::Otlp(http) => ("otlp", Box::new(super::Otlp::new(&http.url.to_string(), options(http))?)),
        #[cfg(not(feature = "otlp"))]
        Target::Otlp(_) => return Err(OpenError::NotBuilt("otlp")),
        #[cfg(feature = "nats")]
        Target::Nats(nats) => ("nats", Box::new(super::Nats::new(nats).map_err(OpenError::Nats)?)),
        #[cfg(not(feature = "nats"))]
        Target::Nats(_) => return Err(OpenError::NotBuilt("nats")),
    };
    Outbox::start(target, sink.queue, sink.addresses, spool).map_err(|source| OpenError::System { name, source })
}

/// Checks the files that sinks need, as [`open`] and their first request do. Returns what is wrong with secrets. These
/// are read for each request, so a sink with a missing secret waits for it.
///
/// # Errors
///
/// The first sink that cannot be opened.
pub fn check(sinks: &[config::Sink]) -> Result<Vec<String>, OpenError> {
    let mut wrong = Vec::new();
    for (nth, sink) in sinks.iter().enumerate() {
        let checked = match &sink.target {
            Target::Http(http) | Target::Otlp(http) => {
                let mut options = options(http);
                options.secrets.retain(|secret| !is_credential_of_service(&secret.file));
                Http::new(&http.url.to_string(), options)?.check_secrets().map_err(|error| error.to_string())
            }
            #[cfg(feature = "nats")]
            Target::Nats(nats) => {
                super::Nats::new(nats).map_err(OpenError::Nats)?;
                super::nats::check_secrets(nats)
            }
            _ => Ok(()),
        };
        wrong.extend(checked.err().map(|error| format!("sinks[{nth}]: {error}")));
    }
    Ok(wrong)
}

/// Whether systemd creates this file when it starts a service (`LoadCredential=`), and the service is not running.
fn is_credential_of_service(file: &Path) -> bool {
    file.starts_with("/run/credentials") && file.parent().is_some_and(|folder| !folder.exists())
}

fn options(http: &config::Http) -> Options {
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

/// Opens the webhook, which gets alert messages, on its own thread with its own queue.
///
/// # Errors
///
/// It cannot be opened.
pub fn open_webhook(webhook: &config::Webhook) -> Result<Outbox, OpenError> {
    let config::Webhook { url, timeout, headers, queue } = webhook;
    let target = Http::webhook(&url.to_string(), *timeout, as_text(headers))?;
    Outbox::start(Box::new(target), *queue, Addresses::Full, None)
        .map_err(|source| OpenError::System { name: "webhook", source })
}

fn as_text(headers: &[(HeaderName, HeaderValue)]) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, time::Duration};

    use super::*;
    use crate::config::Config;

    #[test]
    fn files_with_secrets_are_looked_at_before_the_first_request() {
        let path = std::env::temp_dir().join(format!("weir-open-{}-token", std::process::id()));
        let text = format!("sinks: [{{type: http, url: 'https://a/', token_file: {}}}]", path.display());
        let config = Config::parse(&text, "weir.yaml").unwrap();
        let wrong = || check(&config.sinks).unwrap().join("; ");
        assert!(wrong().starts_with("sinks[0]: cannot read ") && wrong().contains("No such file"), "{}", wrong());
        std::fs::write(&path, "two\nlines").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(wrong().contains("chmod o="), "{}", wrong());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(wrong().contains("in one line"), "{}", wrong());
        std::fs::write(&path, "s3cret\n").unwrap();
        assert_eq!(wrong(), "");
        std::fs::remove_file(&path).unwrap();
        let text = "sinks: [{type: http, url: 'https://a/', token_file: /run/credentials/weir-none.service/token}]";
        assert!(
            check(&Config::parse(text, "weir.yaml").unwrap().sinks).unwrap().is_empty(),
            "the service will have it"
        );
    }

    #[test]
    fn sinks_are_opened_in_the_order_of_the_configuration() {
        let text = "sinks: [{type: file, path: /nowhere/reports}, {type: http, url: 'http://[::1]:9/weir'}]";
        let config = Config::parse(text, "weir.yaml").unwrap();
        let opened = open(&config.sinks, None).unwrap();
        let names: Vec<_> = Outbox::finish_all(opened, Duration::ZERO).into_iter().map(|sink| sink.name).collect();
        assert_eq!(names, ["file:/nowhere/reports", "http://[::1]:9/weir"]);
    }
}
