//! A network: a name for addresses, with its prefixes.

use std::{path::PathBuf, sync::Arc};

use serde::{Serialize, Serializer};

use super::Prefix;

/// A name for addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Network {
    /// The name: letters, digits, `_`, `-` and `.`.
    #[serde(skip)]
    pub name: String,
    /// The prefixes written in the configuration.
    pub prefixes: Vec<Prefix>,
    /// The file with more prefixes, if any.
    pub file: Option<PrefixFile>,
    /// True if these addresses belong to the operator, and not to the Internet.
    pub own: bool,
}

/// The content of a prefix file when the configuration was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The prefixes in it. There may be a million of them, so clones share the memory.
    pub prefixes: Arc<[Prefix]>,
}

impl Network {
    /// All prefixes, from the configuration and from the file.
    pub fn all_prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        let of_file = self.file.iter().flat_map(|file| file.prefixes.iter());
        self.prefixes.iter().chain(of_file).copied()
    }
}

/// A printed configuration shows a file by its path.
impl Serialize for PrefixFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.path.serialize(serializer)
    }
}
