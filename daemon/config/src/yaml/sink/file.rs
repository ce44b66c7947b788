//! The settings of the sink `file`.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use weir_system::sandbox::Files;

use super::{
    super::{
        NONE,
        limits::{FILE_SIZE, FILES_KEPT},
        place,
        section::Section,
        units,
    },
    Settings,
    http::{COMPRESS, Compress},
};

/// A file of reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct File {
    /// The path. A relative path starts at the working directory.
    pub path: PathBuf,
    /// The most bytes of a file. Before the file grows larger, weir renames it and starts a new one. `None` (`none`):
    /// no limit.
    #[serde(serialize_with = "write_bytes_or_none")]
    pub max_size: Option<u64>,
    /// How many renamed files to keep.
    pub keep: usize,
    /// How renamed files are compressed.
    pub compress: Compress,
}

impl File {
    /// The default of `keep`.
    pub const KEEP: usize = 4;

    /// The resolved path of the file.
    pub(super) fn place(&self) -> PathBuf {
        place::of(&self.path)
    }

    /// All names of files to which its reports may go.
    pub(in crate::yaml) fn names(&self) -> impl Iterator<Item = PathBuf> {
        std::iter::once(self.path.clone()).chain(self.rotated().map(|(name, _)| name))
    }

    /// The names of renamed files, and the resolved path of each.
    fn rotated(&self) -> impl Iterator<Item = (PathBuf, PathBuf)> {
        let keep = if self.max_size.is_some() { self.keep } else { 0 };
        let place = place::of_name(&self.path);
        let each = (1..=keep).flat_map(|nth| Compress::ALL.map(|compress| (nth, compress)));
        each.map(move |(nth, compress)| (rotated(&self.path, nth, compress), rotated(&place, nth, compress)))
    }

    /// The reason why the two sinks conflict, as a message at the later one about the earlier one.
    pub(super) fn conflict(&self, earlier: &Self) -> Option<String> {
        let [own, other] = [self.place(), earlier.place()];
        let taken = earlier.rotated().find(|(_, place)| *place == own);
        let taken = taken.map(|(name, _)| format!("{} is the name of a renamed file of", name.display()));
        let takes = self.rotated().find(|(_, place)| *place == other);
        taken.or(takes.map(|(name, _)| format!("its renamed files include {}, which is the file of", name.display())))
    }
}

impl Settings for File {
    fn spool_key(&self) -> Option<String> {
        Some(self.place().to_string_lossy().into_owned())
    }

    fn add_files(&self, setting: &dyn Fn(&str) -> String, files: &mut Files) {
        files.written.push((setting("path"), self.path.clone()));
    }
}

/// Reads the settings of this sink.
pub(super) fn file(s: &mut Section<'_>) -> Option<File> {
    let max_size =
        s.get("max_size", None, |f| if f.is_word_of(&[NONE]) { Some(None) } else { f.bytes(FILE_SIZE).map(Some) });
    let keep = s.get("keep", File::KEEP, |f| f.size(FILES_KEPT));
    let compress = s.get("compress", Compress::None, |f| {
        let compress = f.choice(&COMPRESS)?;
        if compress != Compress::None && max_size.is_none() {
            f.refuse("only renamed files are compressed, and without `max_size` none is renamed: set `max_size`, too");
        }
        Some(compress)
    });
    Some(File { path: s.require("path", "the file to append to", |f| f.file_path())?, max_size, keep, compress })
}

/// The name of renamed file number `nth` with this compression. The first is the newest.
pub fn rotated(path: &Path, nth: usize, compress: Compress) -> PathBuf {
    let ending = match compress {
        Compress::Gzip => ".gz",
        Compress::Zstd => ".zst",
        Compress::None => "",
    };
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{nth}{ending}"));
    PathBuf::from(name)
}

fn write_bytes_or_none<S: Serializer>(bytes: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => units::write_bytes(bytes, serializer),
        None => serializer.serialize_str(NONE),
    }
}
