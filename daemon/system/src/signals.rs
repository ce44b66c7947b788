//! Signals that end the daemon, normally or immediately, and the signal that reloads its configuration.
//!
//! | signal | the daemon |
//! |---|---|
//! | SIGINT, SIGTERM | ends: it closes the window and sends the last report |
//! | another one within a second | ends in the same way: `timeout`, `sudo` and shells send a signal twice |
//! | another one later | ends immediately |
//! | SIGHUP | reloads its configuration |

use std::{io, thread, time::Duration};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use nix::sys::signal::{SigSet, Signal};
use tracing::warn;

use crate::{clock, privileges};

/// Signals within this time after the first one belong to the same request. A person does not repeat a request so soon.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// The receiving ends of the signals' channels.
pub struct Signals {
    /// Disconnected at the first request to end.
    pub stop: Receiver<()>,
    /// Yields a message for each SIGHUP. A SIGHUP that arrives while another is queued is merged with it.
    pub hangups: Receiver<()>,
}

/// Starts to listen. Calls `hurry` when a request to end is repeated.
///
/// Call this before any other thread is started: threads inherit the signal mask that blocks SIGHUP.
///
/// # Errors
///
/// The system refuses a handler or a thread.
pub fn listen(hurry: impl Fn() + Send + 'static) -> io::Result<Signals> {
    let hangups = listen_to_hangups()?;
    let (open, ended) = bounded(0);
    let mut requests = Requests::new(open);
    let handle = move || {
        if requests.hear(clock::now().monotonic) == Urgency::AtOnce {
            hurry();
        }
    };
    // The handler runs in a thread of its own, which inherits the capabilities of the thread that sets the handler. So
    // a thread without capabilities sets it.
    let set = thread::Builder::new().spawn(|| {
        privileges::give_up_all();
        ctrlc::set_handler(handle)
    })?;
    set.join().map_err(|_| io::ErrorKind::Other)?.map_err(io::Error::other)?;
    Ok(Signals { stop: ended, hangups })
}

/// Blocks SIGHUP in this thread and those that it starts later, and waits for it in one of them.
fn listen_to_hangups() -> io::Result<Receiver<()>> {
    let (heard, hangups) = bounded(1);
    let mut hangup = SigSet::empty();
    hangup.add(Signal::SIGHUP);
    hangup.thread_block()?;
    let wait = move || {
        privileges::give_up_all();
        while hangup.wait().is_ok() {
            if let Err(TrySendError::Disconnected(())) = heard.try_send(()) {
                return;
            }
        }
        warn!("weir cannot wait for SIGHUP any more, and ignores it: `weir reload` reads the configuration again");
    };
    thread::Builder::new().name("weir-hangup".to_owned()).spawn(wait)?;
    Ok(hangups)
}

/// The requests to end so far.
struct Requests {
    /// When the first request arrived, on the monotonic clock.
    first: Option<Duration>,
    /// Dropping this disconnects the channel.
    open: Option<Sender<()>>,
}

/// How soon the daemon must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// The daemon ends after it has sent the last report.
    InOrder,
    /// The daemon ends now.
    AtOnce,
}

impl Requests {
    const fn new(open: Sender<()>) -> Self {
        Self { first: None, open: Some(open) }
    }

    /// Handles a request at this time, and returns how urgent it is.
    fn hear(&mut self, now: Duration) -> Urgency {
        self.open = None;
        let first = *self.first.get_or_insert(now);
        if now.saturating_sub(first) < SAME_REQUEST { Urgency::InOrder } else { Urgency::AtOnce }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam::channel::TryRecvError;

    use super::*;

    #[test]
    fn only_a_request_a_second_after_the_first_is_urgent() {
        let (open, ended) = bounded(0);
        let mut requests = Requests::new(open);
        assert_eq!(ended.try_recv(), Err(TryRecvError::Empty), "there was no request yet");
        let at = |ms: u64| Duration::from_millis(5_000 + ms);
        assert_eq!(requests.hear(at(0)), Urgency::InOrder);
        assert_eq!(ended.try_recv(), Err(TryRecvError::Disconnected), "the first request ends the daemon");
        for within in [0, 1, 999] {
            assert_eq!(requests.hear(at(within)), Urgency::InOrder, "{within} ms later");
        }
        // The time counts from the first request: repeating it does not postpone the urgent one.
        for beyond in [1_000, 1_001, 60_000] {
            assert_eq!(requests.hear(at(beyond)), Urgency::AtOnce, "{beyond} ms later");
        }
    }
}
