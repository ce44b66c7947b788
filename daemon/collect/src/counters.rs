//! Counts repeated and refused lines since the collector was started. The database does not show them, because it
//! stores each report once.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::store::Before;

/// Counts what arrives again.
#[derive(Debug, Default)]
pub struct Counters {
    /// Lines that were already stored.
    again: AtomicU64,
    /// Lines that were already stored with another content.
    different: AtomicU64,
    /// Lines that were refused.
    refused: AtomicU64,
}

/// The same numbers at one moment, for readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Duplicates {
    /// Reports and tombstones that arrived again.
    again: u64,
    /// Those of them with another content than the first time.
    different: u64,
    /// Lines that were refused: they are no report, or exceed a limit.
    refused: u64,
}

impl Counters {
    /// Counts a line that was stored, or not.
    pub fn count(&self, before: Before) {
        if matches!(before, Before::Same | Before::Other) {
            self.again.fetch_add(1, Ordering::Relaxed);
        }
        if before == Before::Other {
            self.different.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts lines that were refused.
    pub fn refuse(&self, lines: u64) {
        self.refused.fetch_add(lines, Ordering::Relaxed);
    }

    /// Returns the numbers at this moment.
    pub fn read(&self) -> Duplicates {
        let Self { again, different, refused } = self;
        let [again, different, refused] = [again, different, refused].map(|count| count.load(Ordering::Relaxed));
        Duplicates { again, different, refused }
    }
}
