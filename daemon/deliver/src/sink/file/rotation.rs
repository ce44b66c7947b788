//! Renames a file of reports when it is large enough, and compresses the renamed files.

use std::{
    fs,
    io::{self, ErrorKind, Write},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use flate2::write::GzEncoder;
use tracing::warn;
use weir_config::{self as config, Compress};
use weir_system::plain_file;

use super::MODE;

/// When to rename a file, how many renamed files to keep, and whether to compress them: `reports.1` or `reports.1.gz`
/// is the newest, `reports.2` the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The maximum size of a file in bytes; a larger report gets a file of its own.
    pub max_size: u64,
    /// How many renamed files to keep, at least one.
    pub keep: usize,
    /// How they are compressed.
    pub compress: Compress,
}

impl Rotation {
    /// Renames the file and those that were renamed before, compressed or not; the oldest is deleted. Then compresses
    /// all that are not compressed yet, including one that was left when an earlier weir was killed.
    ///
    /// # Errors
    ///
    /// A file cannot be renamed, or something else is in its place. A file that cannot be compressed stays as it is,
    /// with a line in the log.
    pub fn rotate(self, path: &Path) -> io::Result<()> {
        for nth in 1..=self.keep {
            for compress in Compress::ALL {
                refuse_obstacle(&config::rotated(path, nth, compress))?;
            }
        }
        for compress in Compress::ALL {
            let _ = fs::remove_file(config::rotated(path, self.keep, compress));
            for nth in (1..self.keep).rev() {
                rename(&config::rotated(path, nth, compress), &config::rotated(path, nth + 1, compress))?;
            }
        }
        rename(path, &config::rotated(path, 1, Compress::None))?;
        if self.compress != Compress::None {
            // All files use the same temporary name: the next one replaces the remains of a crash.
            let unfinished = unfinished(path);
            for nth in 1..=self.keep {
                let plain = config::rotated(path, nth, Compress::None);
                if fs::symlink_metadata(&plain).is_ok()
                    && let Err(error) = self.pack(&plain, &unfinished, &config::rotated(path, nth, self.compress))
                {
                    warn!("cannot compress {}: {error}; weir tries again at the next rotation", plain.display());
                }
            }
        }
        Ok(())
    }

    /// Compresses a file under another name, and removes it when the compressed one is complete.
    fn pack(self, plain: &Path, unfinished: &Path, packed: &Path) -> io::Result<()> {
        // The folder may be another user's: compress only a file, never a link to one that this user may not read.
        let mut from = plain_file::with_one_name(plain_file::open(plain)?)?;
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
        // The plain file is removed next, so the compressed one must be on disk first.
        out.sync_all()
    }
}

/// The name of the compressed file until it is complete.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    PathBuf::from(name)
}

/// Fails if something other than a regular file has the name of an older one. weir did not create it, so the operator
/// has to look at it.
fn refuse_obstacle(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let kind = found.file_type();
    let what = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_symlink() => "a link",
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a pipe",
        _ => "not a regular file",
    };
    let path = path.display();
    let why = format!("older reports go to {path}, which is {what}: move it away, and weir goes on");
    Err(io::Error::new(ErrorKind::AlreadyExists, why))
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => {
            let why = format!("cannot rename {} to {}: {error}", from.display(), to.display());
            Err(io::Error::new(error.kind(), why))
        }
        Ok(()) => Ok(()),
    }
}
