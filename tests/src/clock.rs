//! The one place of this crate that reads the clock.

use std::{
    env,
    sync::LazyLock,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Result, bail};

/// How long to sleep between two looks at something awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The variable with the factor by which tests wait longer on an emulated machine.
const PATIENCE_VARIABLE: &str = "WEIR_PATIENCE";
static PATIENCE: LazyLock<u32> =
    LazyLock::new(|| env::var(PATIENCE_VARIABLE).ok().and_then(|factor| factor.parse().ok()).unwrap_or(1));

/// The monotonic clock, now.
#[expect(clippy::disallowed_methods, reason = "the laboratory paces real traffic and waits for real processes")]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock, since the Unix epoch: what weir's windows are aligned to.
pub fn since_epoch() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Looks again and again until `look` finds something.
///
/// # Errors
///
/// The error of `look`, at once; or `what` did not happen within `timeout`.
pub fn wait_for<T>(what: &str, timeout: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let (start, timeout) = (now(), timeout * *PATIENCE);
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() >= timeout {
            bail!("{what}: not within {timeout:?}");
        }
        thread::sleep(POLL_INTERVAL);
    }
}
