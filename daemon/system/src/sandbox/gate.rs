//! Threads that talk to other machines or processes wait here until all threads are restricted. So answers of
//! collectors and requests of clients are read only under the restrictions. An attacker who takes over such a thread
//! has only the remaining rights.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tracing::info;

use super::calls::forbid_bpf;

static STATE: Mutex<GateState> = Mutex::new(GateState::Open);
static CHANGED: Condvar = Condvar::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateState {
    /// No thread waits: there are no restrictions, or they will not follow any more.
    Open,
    /// Restrictions will follow, and threads wait for them.
    Pending,
    /// All threads are restricted.
    Restricted,
}

fn state() -> MutexGuard<'static, GateState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes [`pass`] wait from now on.
pub(super) fn hold() {
    *state() = GateState::Pending;
}

/// Lets the waiting threads continue, because all threads are restricted.
pub(super) fn restricted() {
    *state() = GateState::Restricted;
    CHANGED.notify_all();
}

/// Waits until all threads are restricted, if restrictions will follow. Then this thread also gives up eBPF, which it
/// does not need.
pub fn pass() {
    let mut now = state();
    while *now == GateState::Pending {
        now = CHANGED.wait(now).unwrap_or_else(PoisonError::into_inner);
    }
    let is_restricted = *now == GateState::Restricted;
    drop(now);
    if is_restricted && let Err(error) = forbid_bpf() {
        info!("a thread that needs no eBPF keeps it: {error}");
    }
}

/// Lets the waiting threads continue when it is dropped: weir does not start after all, or starts without restrictions.
#[derive(Debug)]
pub struct Opening;

impl Drop for Opening {
    fn drop(&mut self) {
        let mut now = state();
        if *now == GateState::Pending {
            *now = GateState::Open;
            CHANGED.notify_all();
        }
    }
}
