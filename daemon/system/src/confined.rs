//! Remembers whether weir has restricted itself (`sandbox`). This explains why it cannot open a file that its user may
//! open.

use std::{
    io::{Error, ErrorKind},
    sync::atomic::{AtomicBool, Ordering},
};

static FILES: AtomicBool = AtomicBool::new(false);

/// Notes that from here on this process opens only files in certain folders.
pub fn note() {
    FILES.store(true, Ordering::Relaxed);
}

/// The hint that follows a refusal to open a file.
pub const HINT: &str = "weir opens only files in folders that its configuration named, and that were there, when it was \
                        started: if nothing else is wrong, restart it (`sandbox`)";

/// A file error, with a hint about the possible cause.
pub fn explained(error: &Error) -> String {
    if error.kind() == ErrorKind::PermissionDenied && FILES.load(Ordering::Relaxed) {
        format!("{error}; {HINT}")
    } else {
        error.to_string()
    }
}
