//! What came more than once, since the collector was started: the database has each report once, and does not tell.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::store::Before;

/// Counts what came.
#[derive(Debug, Default)]
pub struct Counters {
    /// Lines that had been stored before.
    again: AtomicU64,
    /// Of these, with another content.
    different: AtomicU64,
}

/// The same for readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Duplicates {
    /// Reports and tombstones that came once more.
    again: u64,
    /// Of these, with another content than the first time.
    different: u64,
}

impl Counters {
    /// Counts a line that was stored, or not.
    pub fn count(&self, before: Before) {
        if before != Before::Absent {
            self.again.fetch_add(1, Ordering::Relaxed);
        }
        if before == Before::Other {
            self.different.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The numbers now.
    pub fn read(&self) -> Duplicates {
        Duplicates { again: self.again.load(Ordering::Relaxed), different: self.different.load(Ordering::Relaxed) }
    }
}
