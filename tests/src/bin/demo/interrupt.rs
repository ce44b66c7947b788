//! Ctrl-C and SIGTERM: the demo does not begin its next step, and cleans up as usual.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use weir_tests::clock;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Waits are cut into pieces of this length.
const PATIENCE: Duration = Duration::from_millis(50);

/// From here on, an interrupt is noted instead of ending the process.
///
/// # Errors
///
/// The handler cannot be set.
pub fn listen() -> Result<()> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed)).context("cannot listen for Ctrl-C")
}

/// Returns true if there was an interrupt.
pub fn happened() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Fails if there was an interrupt.
///
/// # Errors
///
/// There was an interrupt.
pub fn check() -> Result<()> {
    if happened() {
        bail!("interrupted");
    }
    Ok(())
}

/// Sleeps, unless interrupted.
///
/// # Errors
///
/// There was an interrupt.
pub fn sleep(length: Duration) -> Result<()> {
    let start = clock::now();
    while let Some(left) = length.checked_sub(start.elapsed()) {
        check()?;
        thread::sleep(left.min(PATIENCE));
    }
    check()
}
