//! Reports appended to a file, one line each.

mod rotation;

use std::{
    fs,
    io::{self, ErrorKind},
    mem,
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, OFlags, fcntl_setfl, flock},
    io::Errno,
};
use weir_system::{confined, folder, plain_file};

pub use self::rotation::Rotation;
use super::{DeliveryError, Sink, write_line};
use crate::spool::Item;

/// Mode of a new file: traffic data is for the owner, and for the group that collects it.
const MODE: u32 = 0o640;

/// A file of reports (NDJSON). weir rotates it if configured to. Others may rotate it, too: if it was moved or deleted,
/// a new one is created.
///
/// A report is delivered when the system has accepted it; it is not synced to the disk. A report that is already the
/// last line of the file is not written again: weir may have been killed before it noted the delivery. A named pipe
/// accepts reports only while a process reads it.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    rotation: Option<Rotation>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: fs::File,
    /// Device and inode that the path must still lead to.
    identity: (u64, u64),
    torn: bool,
    /// True if weir has written nothing yet: an earlier weir may already have written the first report.
    is_new: bool,
}

impl File {
    /// Appends to the file at `path`, which is opened with the first report.
    pub fn new(path: impl Into<PathBuf>, rotation: Option<Rotation>) -> Self {
        Self { path: path.into(), rotation, open: None }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.moved()? {
            self.open = None;
        }
        let open = self.opened()?;
        if mem::take(&mut open.is_new) && open.ends_with(line)? {
            return Ok(());
        }
        if let Some(rotation) = self.rotation
            && self.opened()?.size()?.is_some_and(|size| size > 0 && size + line.len() as u64 > rotation.max_size)
        {
            self.open = None;
            rotation.rotate(&self.path)?;
        }
        let open = self.opened()?;
        let before = (open.size()?, open.torn);
        let written = write_line(&mut open.file, &mut open.torn, line);
        if let (Err(_), (Some(size), torn)) = (&written, before)
            && open.cut(size)?
        {
            open.torn = torn;
        }
        if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            // The next reader of the pipe starts with a whole line.
            self.open = None;
            return Err(nobody_reads());
        }
        written
    }

    fn opened(&mut self) -> io::Result<&mut Open> {
        Ok(match &mut self.open {
            Some(open) => open,
            closed => closed.insert(Open::at(&self.path)?),
        })
    }

    /// Returns true if the path leads to another file than the open one, or to none.
    fn moved(&self) -> io::Result<bool> {
        let Some(open) = &self.open else { return Ok(false) };
        match fs::metadata(&self.path) {
            Ok(metadata) => Ok(identity(&metadata) != open.identity),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl Open {
    /// The size in bytes; `None` for a pipe or a device.
    fn size(&self) -> io::Result<Option<u64>> {
        let metadata = self.file.metadata()?;
        Ok(metadata.is_file().then_some(metadata.len()))
    }

    /// Removes the part of a line that a full disk has accepted, to make room for later reports that fit. Returns
    /// whether there was anything to remove.
    fn cut(&self, size: u64) -> io::Result<bool> {
        let is_longer = self.size()?.is_some_and(|now| now > size);
        if is_longer {
            self.file.set_len(size)?;
        }
        Ok(is_longer)
    }

    /// Returns true if this is the last line of the file.
    fn ends_with(&self, line: &[u8]) -> io::Result<bool> {
        let Some(start) = self.size()?.and_then(|size| size.checked_sub(line.len() as u64)) else { return Ok(false) };
        let mut last = vec![0; line.len()];
        self.file.read_exact_at(&mut last, start)?;
        Ok(last == line)
    }

    fn at(path: &PathBuf) -> io::Result<Self> {
        let is_pipe = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
        let file = if is_pipe {
            open_pipe(path)?
        } else {
            let mut options = fs::OpenOptions::new();
            options.read(true).append(true).create(true).mode(MODE);
            plain_file::open_by_own_links(path, &options, OFlags::empty())?
        };
        let metadata = file.metadata()?;
        let file = if metadata.is_file() { plain_file::with_one_name(file)? } else { file };
        if metadata.is_file() {
            lock(&file)?;
        }
        let mut last = [b'\n'];
        if metadata.is_file() && metadata.len() > 0 {
            file.read_exact_at(&mut last, metadata.len() - 1)?;
        }
        Ok(Self { file, identity: identity(&metadata), torn: last != *b"\n", is_new: true })
    }
}

/// Locks the file against other weirs: two of them would mix their reports and rotate it twice. Closing the file
/// unlocks it.
fn lock(file: &fs::File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(io::Error::new(
            ErrorKind::ResourceBusy,
            "another process has locked it: does another weir write to it?",
        )),
        // Some file systems do not support locks.
        _ => Ok(()),
    }
}

/// Opens a named pipe for writing only. With read access weir would fill the pipe without a reader; a blocking open
/// would wait for a reader for ever.
fn open_pipe(path: &Path) -> io::Result<fs::File> {
    let opened = plain_file::open_by_own_links(path, fs::OpenOptions::new().write(true), OFlags::NONBLOCK);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => nobody_reads(),
        _ => error,
    })?;
    // From here on, writes wait for a slow reader, so that it gets whole lines.
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

fn nobody_reads() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "it is a pipe, and nobody reads it")
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Sink for File {
    fn name(&self) -> String {
        format!("file:{}", self.path.display())
    }

    fn check(&self) -> Result<(), String> {
        check_file(&self.path)
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        batch.iter().try_for_each(|parcel| self.append(&parcel.encoded.line)).map_err(|error| {
            let why = confined::explained(&error);
            DeliveryError::unavailable(format!("cannot write to {}: {why}", self.path.display()))
        })
    }
}

/// Why reports cannot be appended to this file, as far as weir can tell without creating it.
fn check_file(path: &Path) -> Result<(), String> {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            Err(format!("{shown} is a folder: name a file in it, such as {}", path.join("reports.ndjson").display()))
        }
        Ok(found) if found.is_file() && found.nlink() > 1 => {
            Err(format!("{shown} has {} names (hard links): name another file", found.nlink()))
        }
        Ok(_) => Ok(()),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            folder::check(folder.unwrap_or(Path::new(".")))
        }
    }
}

#[cfg(test)]
mod tests;
