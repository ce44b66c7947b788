//! The file descriptor store that systemd has for a service (`FDSTORE=1`). Its descriptors outlive the process, and the
//! next process of the service gets them. systemd closes them when the service is stopped, but not when it is
//! restarted.

#![expect(unsafe_code, reason = "takes ownership of descriptors that systemd passes as numbers")]

use std::{
    env,
    os::fd::{AsFd, FromRawFd as _, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use sd_notify::NotifyState;
use tracing::warn;
use weir_system::notify::{notify, notify_with};

use super::name::Name;

/// systemd must not poll the descriptors: the kernel reports an error for each map that is not a ring, and systemd
/// would then close the descriptor.
const UNWATCHED: NotifyState<'_> = NotifyState::Custom("FDPOLL=0");

/// Returns true if there is a store. systemd reports its size from version 254 on; older versions simply accept
/// descriptors.
pub fn is_there() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some() && env::var("FDSTORE").map_or(true, |most| most != "0")
}

/// Asks systemd to keep a descriptor.
pub fn keep(name: Name, descriptor: impl AsFd) {
    if !is_there() {
        return;
    }
    let name = name.to_string();
    let states = [NotifyState::FdStore, UNWATCHED, NotifyState::FdName(&name)];
    if let Err(error) = notify_with(&states, descriptor.as_fd()) {
        warn!("cannot hand a descriptor to systemd: {error}. A restart will miss packets");
    }
}

/// Asks systemd to close a descriptor.
pub fn forget(name: Name) {
    if is_there() {
        notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name.to_string())]);
    }
}

/// Takes the descriptors that systemd kept. This works once: the second call returns none. Descriptors with unknown
/// names are closed.
pub fn take() -> Vec<(Name, OwnedFd)> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let received = sd_notify::listen_fds_with_names().map(Iterator::collect::<Vec<_>>);
    let received = received.unwrap_or_else(|error| {
        warn!("cannot take over the descriptors that systemd has kept: {error}");
        Vec::new()
    });
    let owned = received.into_iter().map(|(number, name)| {
        // SAFETY: systemd opened it for this process, and nothing here has taken it before: see above.
        (name, unsafe { OwnedFd::from_raw_fd(number) })
    });
    owned.filter_map(|(name, descriptor)| Some((name.parse().ok()?, descriptor))).collect()
}
