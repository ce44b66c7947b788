//! Reads a configuration in the background. Files that it names may take arbitrarily long, and stopping weir must not
//! wait for them.

use std::thread;

use crossbeam::channel::{Receiver, bounded};
use weir_config::{Config, Source};

/// A configuration that was read, and its text.
#[derive(Debug)]
pub struct Read {
    /// The configuration as it was read.
    pub config: Config,
    /// The places of its settings.
    pub source: Source,
}

impl Read {
    /// Formats a remark about a setting, with its place.
    pub(super) fn at(&self, setting: &str, what: &str) -> String {
        format!("{}: {what}", self.source.place(setting))
    }
}

/// Yields the configuration, or the mistakes in it.
pub type Reading = Receiver<Result<Read, String>>;

/// Reads on a separate thread, which may be abandoned.
pub fn aside(read: impl FnOnce() -> Result<Read, String> + Send + 'static) -> Reading {
    let (reader, reading) = bounded(1);
    let failed = reader.clone();
    let thread = thread::Builder::new().name("weir-reread".to_owned()).spawn(move || {
        // The requester may have ended.
        let _ = reader.send(read());
    });
    if let Err(error) = thread {
        let _ = failed.send(Err(format!("cannot start a thread that reads the configuration: {error}")));
    }
    reading
}
