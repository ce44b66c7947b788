//! The sink `file`.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::super::{
    NONE,
    limits::{FILE_SIZE, FILES_KEPT},
    place,
    read::{path, size},
    section::Section,
    units,
};

/// A file of reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct File {
    /// Its path, relative to the working directory if not absolute.
    pub path: PathBuf,
    /// Bytes that it may have: before it has more, weir renames it and begins another one. `None` (`none`): any number.
    #[serde(serialize_with = "write_bytes_or_none")]
    pub max_size: Option<u64>,
    /// How many renamed files stay.
    pub keep: usize,
}

impl File {
    /// The default of `keep`.
    pub const KEEP: usize = 4;

    /// Where it is, however its path is written.
    pub(super) fn place(&self) -> PathBuf {
        place::of(&self.path)
    }

    /// The names of renamed files, each with where it is.
    fn rotated(&self) -> impl Iterator<Item = (PathBuf, PathBuf)> {
        let keep = if self.max_size.is_some() { self.keep } else { 0 };
        let place = place::of_name(&self.path);
        (1..=keep).map(move |nth| (rotated(&self.path, nth), rotated(&place, nth)))
    }

    /// Why the two cannot stand beside each other: what the later one says of the earlier one.
    pub(super) fn conflict(&self, earlier: &Self) -> Option<String> {
        let [own, other] = [self.place(), earlier.place()];
        let taken = earlier.rotated().find(|(_, place)| *place == own);
        let taken = taken.map(|(name, _)| format!("{} is where older reports go of", name.display()));
        let takes = self.rotated().find(|(_, place)| *place == other);
        taken.or(takes.map(|(name, _)| format!("its older reports go to {}, which is the file of", name.display())))
    }
}

/// Reads the settings of such a sink.
pub(super) fn file(s: &mut Section<'_>) -> Option<File> {
    let max_size =
        s.get("max_size", None, |f| if f.is_word_of(&[NONE]) { Some(None) } else { f.bytes(FILE_SIZE).map(Some) });
    let keep = s.get("keep", File::KEEP, |f| size(&f, FILES_KEPT));
    Some(File { path: s.require("path", "the file to append to", |f| path(&f))?, max_size, keep })
}

/// The name of the `nth` renamed file; the first one is the newest.
pub fn rotated(path: &Path, nth: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{nth}"));
    PathBuf::from(name)
}

fn write_bytes_or_none<S: Serializer>(bytes: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => units::write_bytes(bytes, serializer),
        None => serializer.serialize_str(NONE),
    }
}
