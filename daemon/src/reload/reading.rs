//! Reading a configuration takes as long as the files that it names have it. Nobody waits for that when weir stops.

use std::thread;

use crossbeam::channel::{Receiver, bounded};

use crate::config::{Config, Source};

/// A configuration that was read, and its text.
#[derive(Debug)]
pub struct Read {
    /// The configuration.
    pub config: Config,
    /// Where its settings stand.
    pub source: Source,
}

/// What comes of reading a configuration: it, or what is wrong with it.
pub type Reading = Receiver<Result<Read, String>>;

/// Reads on a thread of its own, which may be left behind.
pub fn aside(read: impl FnOnce() -> Result<Read, String> + Send + 'static) -> Reading {
    let (reader, reading) = bounded(1);
    let failed = reader.clone();
    let thread = thread::Builder::new().name("weir-reread".to_owned()).spawn(move || {
        // Whoever asked may be gone.
        let _ = reader.send(read());
    });
    if let Err(error) = thread {
        let _ = failed.send(Err(format!("cannot start a thread that reads the configuration: {error}")));
    }
    reading
}
