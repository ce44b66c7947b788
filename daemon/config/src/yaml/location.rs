//! Where weir keeps something on disk: `auto`, `none`, or a folder.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::{AUTO, NONE, section::Field};

/// The place of something that weir keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Location {
    /// In the service's state directory, if there is one (`auto`).
    #[default]
    StateDirectory,
    /// In memory (`none`).
    Memory,
    /// In this directory.
    Folder(PathBuf),
}

impl Location {
    pub(super) fn read(field: &Field<'_>) -> Option<Self> {
        if field.is_word_of(&[AUTO]) {
            return Some(Self::StateDirectory);
        }
        if field.is_word_of(&[NONE]) {
            return Some(Self::Memory);
        }
        field.file_path().map(Self::Folder)
    }

    /// The folder, which has this name in the service's state directory. `None` if it is only in memory.
    pub(super) fn folder(&self, state_directory: Option<&Path>, name: &str) -> Option<PathBuf> {
        match self {
            Self::StateDirectory => state_directory.map(|directory| directory.join(name)),
            Self::Memory => None,
            Self::Folder(folder) => Some(folder.clone()),
        }
    }
}

impl Serialize for Location {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::StateDirectory => AUTO.serialize(serializer),
            Self::Memory => NONE.serialize(serializer),
            Self::Folder(folder) => folder.serialize(serializer),
        }
    }
}
