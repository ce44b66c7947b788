//! The page in a browser: where it is served, and to whom.

use std::{net::SocketAddr, path::PathBuf};

use serde::Serialize;
use weir_system::text::short;

use super::{
    section::{Field, Section},
    write_address,
};

/// Maximum number of host names.
const HOSTS_MAX: usize = 16;
/// Maximum length of a host name in bytes (RFC 1035 section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// The page in a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Web {
    /// The address; `None` (`none`) turns it off.
    #[serde(serialize_with = "write_address")]
    pub listen: Option<SocketAddr>,
    /// The file with the token that a browser has to know; there is one unless `listen` is on loopback.
    pub token_file: Option<PathBuf>,
    /// Names under which the page is asked for, besides localhost and all addresses; lower case.
    pub hosts: Vec<String>,
}

pub(super) fn web(s: &mut Section<'_>) -> Web {
    let listen_field = s.field("listen");
    let web = Web {
        listen: listen_field.as_ref().and_then(Field::listen_address).flatten(),
        token_file: s.get("token_file", None, |f| f.file_path().map(Some)),
        hosts: s.get("hosts", Vec::new(), |f| hosts(&f)),
    };
    if let (Some(field), Some(listen), None) = (listen_field, web.listen, &web.token_file)
        && !listen.ip().is_loopback()
    {
        field.refuse(format!(
            "anyone who reaches {listen} can read everything: name a file with a token (`token_file`), or listen on \
             loopback, such as 127.0.0.1:{}",
            listen.port()
        ));
    }
    web
}

fn hosts(field: &Field<'_>) -> Option<Vec<String>> {
    let names = field.list(HOSTS_MAX, "[weir.example.net]")?;
    let names: Vec<_> = names.iter().map(host).collect();
    names.into_iter().collect()
}

fn host(field: &Field<'_>) -> Option<String> {
    let name = field.text()?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.is_empty() || name.len() > HOST_BYTES_MAX || !name.chars().all(is_name) {
        field.refuse(format!("{:?} is not a host name, such as weir.example.net: without a port", short(name)));
        return None;
    }
    Some(name.to_ascii_lowercase())
}
