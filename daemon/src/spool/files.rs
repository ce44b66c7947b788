//! The files of one spool, as few operations as it needs: so a test can stand in for a disk that loses power.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::plain_file;

/// What a file in a spool may have: reports are for the owner, and for the group of those who collect them.
const FILE_MODE: u32 = 0o640;
const DIRECTORY_MODE: u32 = 0o750;
/// A file that is larger is not read, whatever its name says: the largest report that is kept, packed to a quarter.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A folder of files with plain names.
///
/// What was written may be lost in a crash, unless it was synced; what was created, renamed or removed, until
/// [`sync_names`](Self::sync_names) has returned. Until then a crash may keep any of these changes and lose others. A
/// rename is done wholly or not at all.
pub(super) trait Files: Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Reads a file; gives an error if it has more than `bytes_max`.
    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>>;
    /// Writes a file, in place of one of this name; with `sync`, its bytes are on the disk then.
    fn write(&self, name: &str, bytes: &[u8], sync: bool) -> io::Result<()>;
    /// Brings the names of all files to the disk.
    fn sync_names(&self) -> io::Result<()>;
    /// Gives a file another name, in place of one that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A folder on a disk.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`. It is created when it is needed.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates it, and the folders above.
    pub fn create(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&self.0)
    }

    fn open_to_write(&self, name: &str) -> io::Result<File> {
        let path = self.0.join(name);
        match plain_file::replace(&path, FILE_MODE) {
            // Somebody has removed the folder.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.create()?;
                plain_file::replace(&path, FILE_MODE)
            }
            opened => opened,
        }
    }
}

impl Files for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        // weir's own names are all text.
        entries.filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose()).collect()
    }

    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let file = plain_file::open(&self.0.join(name))?;
        let refused = |why| Err(io::Error::new(ErrorKind::InvalidData, why));
        if bytes_max.min(file.metadata()?.len()) > FILE_BYTES_MAX {
            return refused("the file is larger than any that weir writes");
        }
        let mut bytes = Vec::new();
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return refused("the file is longer than its name says");
        }
        Ok(bytes)
    }

    fn write(&self, name: &str, bytes: &[u8], sync: bool) -> io::Result<()> {
        let mut file = self.open_to_write(name)?;
        file.write_all(bytes)?;
        if sync { file.sync_all() } else { Ok(()) }
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }
}
