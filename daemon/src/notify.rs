//! What systemd is told, if it started weir (`Type=notify`).

use sd_notify::NotifyState;
use tracing::warn;

/// Tells systemd these states, in order.
pub fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("cannot notify systemd: {error}");
    }
}
