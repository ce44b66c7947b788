//! Signals: what asks the daemon to end, how urgent it is, and what asks it to read its configuration again.
//!
//! | signal | the daemon |
//! |---|---|
//! | SIGINT, SIGTERM | ends: it closes the window and sends the last report |
//! | another of them within a second | goes on with that: `timeout`, `sudo` and shells signal twice |
//! | another of them later | ends at once |
//! | SIGHUP | reads its configuration again |

use std::{io, thread, time::Duration};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use nix::sys::signal::{SigSet, Signal};
use tracing::warn;

use crate::{clock, privileges};

/// Signals that come this soon after the first one belong to it. A person takes longer to lose patience.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// What comes of signals.
pub struct Signals {
    /// Is closed at the first request to end.
    pub stop: Receiver<()>,
    /// A message for each SIGHUP; one that comes while another waits is that one.
    pub hangups: Receiver<()>,
}

/// Begins to listen. Calls `hurry` when a request to end is repeated.
///
/// Call it before any other thread is started: threads inherit that SIGHUP does not reach them.
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
    // The thread of the handler has the rights of the one that sets it: none.
    let set = thread::Builder::new().spawn(|| {
        privileges::give_up_all();
        ctrlc::set_handler(handle)
    })?;
    set.join().map_err(|_| io::ErrorKind::Other)?.map_err(io::Error::other)?;
    Ok(Signals { stop: ended, hangups })
}

/// The signal is blocked everywhere, and a thread waits for it.
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
    /// When the first one came, on the monotonic clock.
    first: Option<Duration>,
    /// Closes its channel when it is dropped.
    open: Option<Sender<()>>,
}

/// How soon the daemon is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// When the last report is sent.
    InOrder,
    /// Now.
    AtOnce,
}

impl Requests {
    const fn new(open: Sender<()>) -> Self {
        Self { first: None, open: Some(open) }
    }

    /// What another request at this time means.
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
        assert_eq!(ended.try_recv(), Err(TryRecvError::Empty), "nobody asked yet");
        let at = |ms: u64| Duration::from_millis(5_000 + ms);
        assert_eq!(requests.hear(at(0)), Urgency::InOrder);
        assert_eq!(ended.try_recv(), Err(TryRecvError::Disconnected), "the first one ends it");
        for within in [0, 1, 999] {
            assert_eq!(requests.hear(at(within)), Urgency::InOrder, "{within} ms later");
        }
        // Counted from the first: repeating it does not put the urgent one off.
        for beyond in [1_000, 1_001, 60_000] {
            assert_eq!(requests.hear(at(beyond)), Urgency::AtOnce, "{beyond} ms later");
        }
    }
}
