//! Starts the history, and turns requests on the control socket into its queries.

use std::{io, path::Path};

use jiff::Timestamp;
use tracing::warn;
use weir_config::{Addresses, Config};
use weir_history::{
    Changeable, History, Limits, Settings, Time,
    usage::{self, Usage},
};

/// Starts the history, if the configuration enables it. `state_directory` is that of the service, if
/// there is one.
///
/// # Errors
///
/// No thread can be started.
pub fn start(config: &Config, state_directory: Option<&Path>, observer: &str) -> io::Result<Option<History>> {
    let Some(history) = &config.history else { return Ok(None) };
    let settings = Settings {
        memory: history.memory,
        rows: history.rows,
        sample: history.sample,
        folder: history.folder(state_directory),
        limits: limits(history),
        observer: observer.to_owned(),
        addresses: config.addresses,
    };
    History::start(settings).map(Some)
}

/// Starts to count usage, if the configuration enables it and there is a state directory for it.
///
/// # Errors
///
/// No thread can be started.
pub fn start_usage(config: &Config, state_directory: Option<&Path>, observer: &str) -> io::Result<Option<Usage>> {
    let Some(usage) = &config.usage else { return Ok(None) };
    let Some(state_directory) = state_directory else {
        if usage.quota.is_some() {
            warn!("nobody watches the quota: {NO_USAGE}");
        }
        return Ok(None);
    };
    Usage::start(state_directory, observer, usage_settings(config, usage)).map(Some)
}

/// What answers about the usage depend on.
pub fn usage_settings(config: &Config, usage: &weir_config::Usage) -> usage::Settings {
    usage::Settings { first_day: usage.day, addresses: config.addresses, own: config.networks_of_hosts() }
}

/// What a history may take on disk.
pub const fn limits(history: &weir_config::History) -> Limits {
    Limits { bytes: history.max_size, age: history.max_age, has_samples: history.sample > 0 }
}

/// The settings of a history that can change while it runs.
pub const fn changeable(history: &weir_config::History, addresses: Addresses) -> Changeable {
    Changeable { rows: history.rows, sample: history.sample, limits: limits(history), addresses }
}

/// Reads the times of a query, RFC 3339.
///
/// # Errors
///
/// What is wrong with one, for the author of the client.
pub fn time(from: Option<&str>, to: Option<&str>) -> Result<Time, String> {
    let read = |name: &str, text: Option<&str>| {
        let parse = |text: &str| {
            text.parse::<Timestamp>()
                .map_err(|_| format!("{name}: {text:?} is not a time such as 2026-11-20T08:00:00Z"))
        };
        text.map(parse).transpose()
    };
    Ok(Time { from: read("from", from)?, to: read("to", to)? })
}

/// The answer if weir does not count usage.
pub const NO_USAGE: &str = "weir does not count usage: its configuration says `usage: off`, or it has no state directory \
                            (`StateDirectory=` of its service)";
/// The answer if weir remembers nothing.
pub const OFF: &str = "weir remembers nothing: its configuration says `history: off`";
