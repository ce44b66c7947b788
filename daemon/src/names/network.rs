//! A network: a name for addresses, with the prefixes that it is for.

use std::{path::PathBuf, sync::Arc};

use serde::{Serialize, Serializer};

use super::Prefix;

/// A name for addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Network {
    /// The name: letters, digits, `_`, `-` and `.`.
    #[serde(skip)]
    pub name: String,
    /// The prefixes that the configuration has itself.
    pub prefixes: Vec<Prefix>,
    /// The file with more of them, if any.
    pub file: Option<PrefixFile>,
    /// Whether these addresses are the user's own side, as seen from the Internet.
    pub own: bool,
}

/// A file of prefixes, as it was when the configuration was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixFile {
    /// Its path.
    pub path: PathBuf,
    /// What it has. There may be a million of them, which clones share.
    pub prefixes: Arc<[Prefix]>,
}

impl Network {
    /// All prefixes: those of the configuration, and those of the file.
    pub fn all_prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        let of_file = self.file.iter().flat_map(|file| file.prefixes.iter());
        self.prefixes.iter().chain(of_file).copied()
    }
}

/// A file is shown by its path.
impl Serialize for PrefixFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.path.serialize(serializer)
    }
}
