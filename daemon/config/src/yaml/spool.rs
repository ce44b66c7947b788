//! The section `spool`: where reports wait for sinks.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use super::{
    NONE,
    limits::{SPOOL_AGE, SPOOL_SIZE},
    location::Location,
    section::Section,
    units,
};

/// The spool of every sink that delivers over the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spool {
    /// The location of the spool.
    pub path: Location,
    /// When a report is synced to disk.
    pub fsync: Fsync,
    /// The most bytes on disk per sink.
    #[serde(serialize_with = "units::write_bytes")]
    pub max_size: u64,
    /// How long a report may wait. `None` (`none`): as long as there is room.
    #[serde(serialize_with = "units::write_duration_or_none")]
    pub max_age: Option<Duration>,
}

/// When a report is synced to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// Before the report is sent.
    #[default]
    Report,
    /// When the system decides. Then a machine crash may lose reports, but a crash of weir does not.
    Never,
}

impl Default for Spool {
    fn default() -> Self {
        Self { path: Location::default(), fsync: Fsync::default(), max_size: 64 << 20, max_age: None }
    }
}

impl Spool {
    /// The directory of all spools, given the service's state directory. `None` if reports wait in memory.
    pub fn folder(&self, state_directory: Option<&Path>) -> Option<PathBuf> {
        self.path.folder(state_directory, "spool")
    }
}

/// Reads the section.
pub(super) fn spool(s: &mut Section<'_>) -> Spool {
    let default = Spool::default();
    Spool {
        path: s.get("path", default.path, |f| Location::read(&f)),
        fsync: s.get("fsync", default.fsync, |f| f.choice(&[("report", Fsync::Report), ("never", Fsync::Never)])),
        max_size: s.get("max_size", default.max_size, |f| f.bytes(SPOOL_SIZE)),
        max_age: s.get("max_age", default.max_age, |f| {
            if f.is_word_of(&[NONE]) { Some(None) } else { f.duration(SPOOL_AGE).map(Some) }
        }),
    }
}
