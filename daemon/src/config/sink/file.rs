//! The sink `file`.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::{
    super::{
        NONE,
        limits::{FILE_SIZE, FILES_KEPT},
        place,
        section::Section,
        units,
    },
    http::{COMPRESS, Compress},
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
    /// How they are packed.
    pub compress: Compress,
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
        let each = (1..=keep).flat_map(|nth| Compress::ALL.map(|compress| (nth, compress)));
        each.map(move |(nth, compress)| (rotated(&self.path, nth, compress), rotated(&place, nth, compress)))
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
    let keep = s.get("keep", File::KEEP, |f| f.size(FILES_KEPT));
    let compress = s.get("compress", Compress::None, |f| {
        let compress = f.choice(&COMPRESS)?;
        if compress != Compress::None && max_size.is_none() {
            f.refuse("only renamed files are compressed, and without `max_size` none is renamed: give it, too");
        }
        Some(compress)
    });
    Some(File { path: s.require("path", "the file to append to", |f| f.file_path())?, max_size, keep, compress })
}

/// The name of the `nth` renamed file if it is packed like this; the first one is the newest.
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
