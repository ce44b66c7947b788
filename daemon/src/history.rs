//! Starts the history, and turns requests on the control socket into its queries.

use std::{io, path::Path};

use jiff::Timestamp;
use weir_config::Config;
use weir_history::{History, Settings, Time};

/// Starts the history, if the configuration enables it. If it is kept on disk, it is in `state_directory`.
///
/// # Errors
///
/// No thread can be started.
pub fn start(config: &Config, state_directory: Option<&Path>, observer: &str) -> io::Result<Option<History>> {
    let Some(history) = config.history else { return Ok(None) };
    let settings = Settings {
        memory: history.memory,
        state_directory: state_directory.map(Path::to_owned),
        observer: observer.to_owned(),
        addresses: config.addresses,
    };
    History::start(settings).map(Some)
}

/// Reads the times of a query, RFC 3339.
///
/// # Errors
///
/// What is wrong with one, for the author of the client.
pub fn time(from: Option<&str>, to: Option<&str>) -> Result<Time, String> {
    let read = |name: &str, text: Option<&str>| {
        let parse = |text: &str| {
            text.parse::<Timestamp>().map_err(|_| format!("{name}: {text:?} is no time such as 2026-11-20T08:00:00Z"))
        };
        text.map(parse).transpose()
    };
    Ok(Time { from: read("from", from)?, to: read("to", to)? })
}

/// The answer if weir remembers nothing.
pub const OFF: &str = "weir remembers nothing: its configuration says `history: off`";
