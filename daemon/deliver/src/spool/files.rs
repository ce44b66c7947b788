//! The file operations of a spool. They are few, so that a test can simulate a disk that loses power.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, mkdirat, openat, renameat_with, unlinkat},
    io::Errno,
};
use weir_system::plain_file;

/// Mode of files in a spool: reports are for the owner, and for the group that collects them.
const FILE_MODE: u32 = 0o640;
const DIRECTORY_MODE: u32 = 0o750;
/// Larger files are not read, even if their names state a larger size: this is the largest report that is kept,
/// compressed to a quarter.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A folder of files with plain names.
///
/// A crash may lose what was written, unless it was synced. It may also lose a file that was created, renamed or
/// removed, until [`sync_names`](Self::sync_names) has returned. Until then a crash may keep any of these changes and
/// lose others. A rename is atomic.
pub(super) trait Files: Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Reads a file; fails if it has more than `bytes_max`.
    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>>;
    /// Writes a file, replacing one of the same name; with `sync`, its content is on the disk on return.
    fn write(&self, name: &str, bytes: &[u8], sync: bool) -> io::Result<()>;
    /// Syncs the names of all files to the disk.
    fn sync_names(&self) -> io::Result<()>;
    /// Renames a file, replacing one that has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Returns true if the folder is still the one that was opened. If not, the next call returns true: from then on
    /// the new folder counts.
    fn is_there(&self) -> bool {
        true
    }
}

/// A folder on a disk. Every operation goes through a descriptor of the folder, which is opened anew each time. So
/// another user who may write to the parent folder cannot make weir follow a link.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
    is_within: bool,
    /// The folder as it was last found. While this handle is open, no other folder can get its inode number.
    known: Arc<Mutex<Option<File>>>,
}

impl Folder {
    /// The folder of a sink, in the folder of all spools. It is created when it is needed.
    pub fn within(above: &Path, name: &str) -> Self {
        Self { path: above.join(name), is_within: true, known: Arc::default() }
    }

    /// The folder of all spools.
    pub fn of_all(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), is_within: false, known: Arc::default() }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the folder and its parents.
    pub fn create(&self) -> io::Result<()> {
        let Some((above, name)) = self.above() else {
            return fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&self.path);
        };
        Self::of_all(above).create()?;
        match mkdirat(plain_file::open_folder(above)?, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
            Err(Errno::EXIST) => Ok(()),
            made => Ok(made?),
        }
    }

    /// The folder of all spools, and the name of this one in it.
    fn above(&self) -> Option<(&Path, &OsStr)> {
        if self.is_within { self.path.parent().zip(self.path.file_name()) } else { None }
    }

    fn opened(&self) -> io::Result<File> {
        match self.above() {
            Some((above, name)) => plain_file::open_folder_in(&plain_file::open_folder(above)?, name),
            None => plain_file::open_folder(&self.path),
        }
    }

    fn open_to_write(&self, name: &str) -> io::Result<File> {
        match self.opened() {
            // The folder has been removed.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.create()?;
                replace(&self.opened()?, name)
            }
            opened => replace(&opened?, name),
        }
    }
}

/// Creates a file, and replaces anything that has its name.
fn replace(folder: &File, name: &str) -> io::Result<File> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(error) if error != Errno::NOENT => return Err(error.into()),
        _ => {}
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::from_raw_mode(FILE_MODE))?.into())
}

impl Files for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let folder = match self.opened() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder)? {
            // weir's own names are all valid UTF-8.
            let name = entry?.file_name().to_str().map(str::to_owned);
            names.extend(name.ok().filter(|name| name != "." && name != ".."));
        }
        Ok(names)
    }

    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = plain_file::regular(openat(self.opened()?, name, flags, Mode::empty())?.into())?;
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
        self.opened()?.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let folder = self.opened()?;
        Ok(renameat_with(&folder, from, &folder, to, RenameFlags::empty())?)
    }

    fn is_there(&self) -> bool {
        let now = self.opened().ok();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, now);
        // This is the first check, or the folder can still not be opened.
        before.is_none() || before.as_ref().and_then(identity) == known.as_ref().and_then(identity)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(self.opened()?, name, AtFlags::empty())?)
    }
}

fn identity(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|data| (data.dev(), data.ino()))
}
