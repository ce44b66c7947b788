//! Starts `weir run`, step by step. No other module does that.
//!
//! Each step is a type that consumes the one before, so no step can be left out or come too early. A step that fails,
//! or is dropped, closes what it has opened.
//!
//! | step | has |
//! |---|---|
//! | `Loaded` | locked folders, the kernel programs, views, sketches, sinks: nothing is measured yet |
//! | `Attached` | the interfaces, and what an earlier weir has left: packets are counted |
//! | `Wired` | all threads, connected with queues; those that talk to others still wait |
//! | `Confined` | only the rights and system calls that measuring needs |
//!
//! ```text
//! kernel, per CPU:  packets -> flow cache -> ring
//! worker, a few:    rings -> shard           (never waits)
//! reader, of taps:  packet sockets -> shard  (where there is no eBPF, or it is not asked for)
//! attacher:         lists interfaces, attaches to them, checks the attachments; may wait for the kernel's lock
//! chains:           asks which programs run before weir's; has the capability for that, and no other system call
//! coordinator:      at each edge has all workers close, merges their shards, composes the report
//! sink, two each:   spool -> collector       (may be slow or dead; only its own spool fills; a webhook is one, too)
//! control:          answers queries: the last report, and keys in the last window
//! metrics:          exports to Prometheus: the last report, and sums of all
//! page:             serves browsers: files, the last report, each second; another thread asks what is not on the board
//! reloader:         reads the configuration again and prepares it; the coordinator applies it at an edge
//! ```

mod attached;
mod confined;
mod loaded;
mod services;
mod setup;
mod takeover;
#[cfg(test)]
mod testing;
mod threads;
mod wired;

use std::{io, path::Path, thread};

use thiserror::Error;
use weir_attach::AttachError;
use weir_config::{Config, KeyError, names::GeoError};
use weir_datapath::KernelError;
use weir_deliver::sink;
use weir_system::{lock::LockError, sandbox::Places, signals::Signals};

use self::loaded::Loaded;
use crate::{coordinator::MeasureError, memory::OverBudget, reload::reloader::Reread};

/// Why the daemon stopped.
#[derive(Debug, Error)]
pub enum RunError {
    /// The kernel side failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// An interface cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The readers of packet sockets cannot be created.
    #[error("cannot make the readers of packet sockets")]
    Taps(#[source] io::Error),
    /// The hash key is not usable.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A geo database is not usable.
    #[error(transparent)]
    Geo(#[from] GeoError),
    /// The plan needs more memory than the configuration allows.
    #[error(transparent)]
    Budget(#[from] OverBudget),
    /// Another weir uses this folder.
    #[error(transparent)]
    Taken(#[from] LockError),
    /// A sink cannot be opened.
    #[error(transparent)]
    Sink(#[from] sink::OpenError),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// Measuring could not continue.
    #[error(transparent)]
    Measure(#[from] MeasureError),
}

/// How the daemon is started, apart from its configuration.
pub struct Start<'a> {
    /// Where the number of the last report is kept across restarts.
    pub directory: Option<&'a Path>,
    /// True if a missing interface is an error at start.
    pub strict: bool,
    /// True if standard output gets tables for people, not JSON.
    pub has_tables: bool,
    /// Reads the configuration again.
    pub reread: Reread<'a>,
    /// The folders and files that weir may access; `None` means everything that its user may access.
    pub places: Option<Places>,
}

/// Measures and reports until a signal ends it.
///
/// # Errors
///
/// The daemon cannot start, or cannot continue.
pub fn run(config: &Config, start: Start<'_>, signals: Signals) -> Result<(), RunError> {
    let Signals { stop, hangups } = signals;
    let (loaded, mut kernel) = Loaded::new(config, start)?;
    let attached = loaded.attach(kernel.as_mut())?;
    thread::scope(|scope| {
        let wired = attached.wire(scope, hangups)?;
        wired.confine().run(&stop)
    })
}
