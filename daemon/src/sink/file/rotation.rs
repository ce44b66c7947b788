//! Renaming a file of reports when it is large enough, and packing those that were renamed.

use std::{
    fs,
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use flate2::write::GzEncoder;
use tracing::warn;

use super::MODE;
use crate::{
    config::{self, Compress},
    plain_file,
};

/// When a file is renamed, how many renamed ones stay, and whether these are packed: `reports.1` or `reports.1.gz` is
/// the newest, `reports.2` the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes that a file may have; a report that is larger has a file of its own.
    pub max_size: u64,
    /// Renamed files that stay, at least one.
    pub keep: usize,
    /// How they are packed.
    pub compress: Compress,
}

impl Rotation {
    /// Renames the file, and those that were renamed before, however they are packed; the oldest goes. Then packs all
    /// that are not: also one that an earlier weir was killed over.
    ///
    /// # Errors
    ///
    /// A file cannot be renamed. One that cannot be packed stays as it is, which is said in the log.
    pub fn rotate(self, path: &Path) -> io::Result<()> {
        for compress in Compress::ALL {
            let _ = fs::remove_file(config::rotated(path, self.keep, compress));
            for nth in (1..self.keep).rev() {
                rename(&config::rotated(path, nth, compress), &config::rotated(path, nth + 1, compress))?;
            }
        }
        rename(path, &config::rotated(path, 1, Compress::None))?;
        if self.compress != Compress::None {
            // One name for all: the next one replaces what a crash has left of it.
            let unfinished = unfinished(path);
            for nth in 1..=self.keep {
                let plain = config::rotated(path, nth, Compress::None);
                if fs::symlink_metadata(&plain).is_ok()
                    && let Err(error) = self.pack(&plain, &unfinished, &config::rotated(path, nth, self.compress))
                {
                    warn!("cannot compress {}: {error}. It stays as it is until the next one", plain.display());
                }
            }
        }
        Ok(())
    }

    /// Packs a file under another name; it is gone when that one is complete.
    fn pack(self, plain: &Path, unfinished: &Path, packed: &Path) -> io::Result<()> {
        // The folder may be another user's: what is packed is a file, and no link to one that he may not read.
        let mut from = plain_file::open(plain)?;
        let out = plain_file::replace(unfinished, MODE)?;
        let written = self.write_packed(&mut from, out).and_then(|()| fs::rename(unfinished, packed));
        if written.is_err() {
            let _ = fs::remove_file(unfinished);
        }
        written?;
        fs::remove_file(plain)
    }

    fn write_packed(self, plain: &mut fs::File, mut out: fs::File) -> io::Result<()> {
        match self.compress {
            Compress::Gzip => {
                let mut encoder = GzEncoder::new(&mut out, flate2::Compression::default());
                io::copy(plain, &mut encoder)?;
                encoder.finish()?;
            }
            Compress::Zstd => zstd::stream::copy_encode(plain, &mut out, zstd::DEFAULT_COMPRESSION_LEVEL)?,
            Compress::None => drop(io::copy(plain, &mut out)?),
        }
        out.flush()?;
        // The plain file goes next: the packed one has to be on the disk before.
        out.sync_all()
    }
}

/// Where a file is while it is packed.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    PathBuf::from(name)
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}
