//! Why a request got no answer, in words for the operator: the proxy is named, and a port that speaks another protocol
//! is recognised.

use std::error::Error as _;

use ureq::{Error, http::Uri};
use weir_system::text::with_causes;

/// Why a request to `uri` failed, by way of the proxy at this address if there is one.
pub(super) fn explained(error: &Error, uri: &Uri, proxy: Option<&str>) -> String {
    let why = with_causes(error);
    let why = match proxy {
        Some(proxy) if !is_of_collector(error) => format!("by way of the proxy {proxy}: {why}"),
        _ => why,
    };
    match hint(error, uri) {
        Some(hint) => format!("{why} ({hint})"),
        None => why,
    }
}

/// Returns true if only the collector itself can be the cause: it speaks TLS through a tunnel.
fn is_of_collector(error: &Error) -> bool {
    tls(error).is_some()
}

fn hint(error: &Error, uri: &Uri) -> Option<&'static str> {
    let is_plain = uri.scheme_str() == Some("http");
    match (error, tls(error)) {
        // It answers with a TLS alert, or something else that is not HTTP.
        (Error::Protocol(_) | Error::Http(_), _) if is_plain => {
            Some("is this a port for TLS? Then the URL begins with https://")
        }
        (_, Some(rustls::Error::InvalidMessage(_))) => {
            Some("the server does not speak TLS there: does the URL begin with http://?")
        }
        _ => None,
    }
}

/// The error of TLS among the causes.
fn tls(error: &Error) -> Option<&rustls::Error> {
    if let Error::Io(io) = error
        && let Some(inner) = io.get_ref().and_then(|inner| inner.downcast_ref())
    {
        return Some(inner);
    }
    let mut cause = error.source();
    while let Some(found) = cause {
        if let Some(found) = found.downcast_ref() {
            return Some(found);
        }
        cause = found.source();
    }
    None
}
