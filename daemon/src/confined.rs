//! Whether weir has closed itself in (`sandbox`), which then explains why a file does not open that its user may open.

use std::{
    io::{Error, ErrorKind},
    sync::atomic::{AtomicBool, Ordering},
};

static FILES: AtomicBool = AtomicBool::new(false);

/// From now on this process opens only files in some folders.
pub fn note() {
    FILES.store(true, Ordering::Relaxed);
}

/// What to add to a refusal to open a file.
pub const HINT: &str = "weir opens only files in folders that its configuration named, and that were there, when it was \
                        started: if nothing else is wrong, restart it (`sandbox`)";

/// An error of a file, with what may be behind it.
pub fn explained(error: &Error) -> String {
    if error.kind() == ErrorKind::PermissionDenied && FILES.load(Ordering::Relaxed) {
        format!("{error}; {HINT}")
    } else {
        error.to_string()
    }
}
