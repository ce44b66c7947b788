//! The common parts of the sinks with an asynchronous client.

pub(super) mod secret;
pub(super) mod tls;

use std::{
    convert::Infallible,
    thread,
    time::{Duration, Instant},
};

use crossbeam::channel::{self, Receiver, RecvTimeoutError};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    time,
};
use weir_system::text::escaped;

pub use self::tls::TlsError;
use super::{DeliveryError, now};

/// How many characters of a server's message are quoted in an error: enough for a sentence.
const QUOTED_MAX: usize = 200;

/// The thread that drives the connections of a sink, also between deliveries: it answers a server's pings.
#[derive(Debug)]
pub(in crate::sink) struct Driver {
    handle: Handle,
    /// Dropping it ends the thread, once the name of the server has been looked up.
    stop: Option<oneshot::Sender<Infallible>>,
    ended: Receiver<Infallible>,
}

impl Driver {
    /// Starts the thread of a sink with this name.
    pub fn start(name: &'static str) -> std::io::Result<Self> {
        // Only name lookups block.
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(1)
            .thread_name(format!("{name}-name"))
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let (here, ended) = channel::bounded::<Infallible>(0);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            // The receiver ends with an error, because nothing is ever sent.
            let _ = runtime.block_on(stopped);
            drop(runtime);
            drop(here);
        })?;
        Ok(Self { handle, stop: Some(stop), ended })
    }

    /// Waits for this work, but no longer than `within`: `None` is returned then.
    pub fn block_on<T>(&self, within: Duration, work: impl Future<Output = T>) -> Option<T> {
        self.handle.block_on(async { time::timeout(within, work).await.ok() })
    }

    /// Lets the thread end. Reports that it has not sent yet are never sent.
    pub fn stop(&mut self) {
        self.stop = None;
    }

    /// Returns true if the thread has ended, or ends within this time.
    fn has_ended(&self, within: Duration) -> bool {
        self.ended.recv_timeout(within) == Err(RecvTimeoutError::Disconnected)
    }
}

/// Waits until the thread of the last connection has ended: one attempt at a time, however long a name server takes.
///
/// # Errors
///
/// It still looks up the address of `host`.
pub(super) fn wait_for_last(last: &mut Option<Driver>, until: Instant, host: &str) -> Result<(), DeliveryError> {
    if last.take_if(|last| last.has_ended(left(until))).is_none() && last.is_some() {
        return Err(unavailable(format!("the last attempt still looks up the address of {host}")));
    }
    Ok(())
}

/// How much time is left.
pub(super) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(now())
}

/// An error after which a retry may work.
pub(super) const fn unavailable(message: String) -> DeliveryError {
    DeliveryError::unavailable(message)
}

/// Quotes the server's words in one line that is safe to print on a terminal.
pub(super) fn quoted(text: &str) -> String {
    let end = text.char_indices().nth(QUOTED_MAX).map_or(text.len(), |(end, _)| end);
    escaped(&text[..end])
}
