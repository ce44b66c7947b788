//! The section `spool`: where reports wait for sinks.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Serialize, Serializer};

use super::{
    AUTO, NONE,
    limits::{SPOOL_AGE, SPOOL_SIZE},
    section::{Field, Section},
    units,
};

/// The spool of every sink that delivers over the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spool {
    /// The location of the spool.
    pub path: SpoolLocation,
    /// When a report is synced to disk.
    pub fsync: Fsync,
    /// The most bytes on disk per sink.
    #[serde(serialize_with = "units::write_bytes")]
    pub max_size: u64,
    /// How long a report may wait. `None` (`none`): as long as there is room.
    #[serde(serialize_with = "units::write_duration_or_none")]
    pub max_age: Option<Duration>,
}

/// The location of the spool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SpoolLocation {
    /// In the service's state directory, if there is one (`auto`).
    #[default]
    StateDirectory,
    /// In memory (`none`).
    Memory,
    /// In this directory.
    Folder(PathBuf),
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
        Self { path: SpoolLocation::default(), fsync: Fsync::default(), max_size: 64 << 20, max_age: None }
    }
}

impl Spool {
    /// The directory of all spools, given the service's state directory. `None` if reports wait in memory.
    pub fn folder(&self, state_directory: Option<&Path>) -> Option<PathBuf> {
        match &self.path {
            SpoolLocation::StateDirectory => state_directory.map(|directory| directory.join("spool")),
            SpoolLocation::Memory => None,
            SpoolLocation::Folder(folder) => Some(folder.clone()),
        }
    }
}

impl Serialize for SpoolLocation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::StateDirectory => AUTO.serialize(serializer),
            Self::Memory => NONE.serialize(serializer),
            Self::Folder(folder) => folder.serialize(serializer),
        }
    }
}

/// Reads the section.
pub(super) fn spool(s: &mut Section<'_>) -> Spool {
    let default = Spool::default();
    Spool {
        path: s.get("path", default.path, |f| place(&f)),
        fsync: s.get("fsync", default.fsync, |f| f.choice(&[("report", Fsync::Report), ("never", Fsync::Never)])),
        max_size: s.get("max_size", default.max_size, |f| f.bytes(SPOOL_SIZE)),
        max_age: s.get("max_age", default.max_age, |f| {
            if f.is_word_of(&[NONE]) { Some(None) } else { f.duration(SPOOL_AGE).map(Some) }
        }),
    }
}

fn place(field: &Field<'_>) -> Option<SpoolLocation> {
    if field.is_word_of(&[AUTO]) {
        return Some(SpoolLocation::StateDirectory);
    }
    if field.is_word_of(&[NONE]) {
        return Some(SpoolLocation::Memory);
    }
    field.file_path().map(SpoolLocation::Folder)
}
