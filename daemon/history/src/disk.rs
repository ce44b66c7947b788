//! The files of the history besides its [archives](crate::archive): what is not in a closed block yet, and the seconds.
//!
//! | file | is |
//! |---|---|
//! | `windows-`, `fives-`, `hours-...` | the archives: single windows, unions of five minutes and of hours |
//! | `windows.open` | blocks of a minute each, since the last block of windows |
//! | `seconds-NUMBER` | parts of a minute each: an hour. The last two are kept |
//!
//! Each minute one file is written, and every five minutes one more. Nothing is synced: a crash of weir loses
//! everything since the last minute, and a power failure everything that the system had not written yet.

use std::{
    fs::{self, DirBuilder},
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use thiserror::Error;
use tracing::warn;
use weir_system::plain_file;

use crate::{
    archive::{Limits, numbered, put_aside, replace},
    block::{Block, NoBlock},
    packed::Packer,
    seconds::{Part, ROWS, Seconds},
    windows::Windows,
    writes::Writes,
};

pub const OPEN: &str = "windows.open";
const SECONDS: &str = "seconds-";
/// The largest size of a file, in bytes.
const FILE_MAX: u64 = 16 << 20;
/// How many files of seconds are kept.
const SECONDS_KEPT: u64 = 2;

const MAGIC_OF_SECONDS: [u8; 8] = *b"weirsec1";
const HEAD_OF_SECONDS: usize = 24;

/// Why a file is not used.
#[derive(Debug, Error)]
enum Unusable {
    #[error(transparent)]
    NoBlock(#[from] NoBlock),
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Creates the folder, if it is not there. Only weir's user may read it.
///
/// # Errors
///
/// The system refuses it.
pub fn create(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The folder.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    /// The observer that wrote the files.
    observer: String,
    writes: Writes,
    /// The file of seconds that is written to, and how many rows it has.
    seconds: (u64, usize),
    /// The next row to write.
    next_row: u64,
}

impl Disk {
    /// The history in this folder.
    pub fn new(folder: &Path, observer: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            observer: observer.to_owned(),
            writes: Writes::of_history(folder),
            seconds: (0, 0),
            next_row: 0,
        }
    }

    /// Opens the archives, and reads the other files of an earlier weir. Logs files that cannot be used, and puts them
    /// aside.
    pub fn load(&mut self, windows: &mut Windows, seconds: &mut Seconds, limits: Limits) {
        if let Err(error) = create(&self.folder) {
            return self.writes.note(Err(error));
        }
        for (number, name) in numbered(&self.folder, SECONDS) {
            // If the last file is torn, do not write to it any more.
            self.seconds = (number + 1, 0);
            if let Some(bytes) = self.read(&name) {
                self.resume_seconds(&name, &bytes, seconds);
            }
        }
        self.next_row = seconds.next();
        windows.keep_in(&self.folder, &self.observer, limits, false);
        let (blocks, damage) = self.open_blocks();
        if let Some(why) = damage {
            self.put_aside(OPEN, &why);
        }
        for block in blocks {
            windows.resume_open(&block);
        }
        windows.complete();
        self.write_open(windows);
    }

    /// Opens the archives and adds the open windows, without changing anything: a running weir may be writing them.
    pub fn read_only(&self, windows: &mut Windows, limits: Limits) {
        windows.keep_in(&self.folder, &self.observer, limits, true);
        let (blocks, damage) = self.open_blocks();
        if let Some(why) = damage {
            warn!("{}: {why}: the answer lacks what follows", self.folder.join(OPEN).display());
        }
        for block in blocks {
            windows.resume_open(&block);
        }
    }

    /// Writes the windows of a minute.
    pub fn append(&mut self, minute: &Block) {
        let written = self.append_to(OPEN, &minute.to_bytes(&self.observer));
        self.writes.note(written);
    }

    /// Writes the seconds since the last time.
    pub fn write_seconds(&mut self, next: u64, part: &Part) {
        self.next_row = next;
        if part.is_empty() {
            return;
        }
        let (number, rows) = self.seconds;
        self.seconds = if rows >= ROWS { (number + 1, part.rows()) } else { (number, rows + part.rows()) };
        let written = self.append_to(&format!("{SECONDS}{:012}", self.seconds.0), &self.packed(part));
        self.writes.note(written);
        if self.seconds.0 != number {
            self.remove(SECONDS, |nth| nth + SECONDS_KEPT <= number + 1);
        }
    }

    /// The first row of seconds that is not written yet.
    pub const fn next_row(&self) -> u64 {
        self.next_row
    }

    /// Writes the windows since the last block as one block, in place of their minutes.
    pub fn write_open(&mut self, windows: &Windows) {
        let written = match windows.single().open().pack() {
            Some(block) => replace(&self.folder, OPEN, &block.to_bytes(&self.observer)),
            None => match fs::remove_file(self.folder.join(OPEN)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        self.writes.note(written);
    }

    /// Appends to a file. What an interrupted write has left is removed, so that what follows it can be read.
    fn append_to(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = plain_file::append(&self.folder.join(name), 0o600)?;
        let size = file.metadata()?.len();
        let written = file.write_all(bytes);
        if written.is_err() {
            let _ = file.set_len(size);
        }
        written
    }

    fn remove(&self, prefix: &str, is_old: impl Fn(u64) -> bool) {
        for (_, name) in numbered(&self.folder, prefix).into_iter().filter(|(number, _)| is_old(*number)) {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }

    /// The bytes of a file. If it cannot be read, logs that and returns `None`.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        self.bytes(name).map_err(|error| self.put_aside(name, &error.into())).ok()
    }

    /// The complete windows since the last block, and why there are no more, if the file has more.
    fn open_blocks(&self) -> (Vec<Block>, Option<Unusable>) {
        let mut blocks = Vec::new();
        let bytes = match self.bytes(OPEN) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (blocks, None),
            Err(error) => return (blocks, Some(error.into())),
        };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match Block::read(rest, &self.observer) {
                Ok((block, next)) => {
                    blocks.push(block);
                    rest = next;
                }
                Err(why) => return (blocks, Some(why.into())),
            }
        }
        (blocks, None)
    }

    fn bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        plain_file::open(&self.folder.join(name))?.take(FILE_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Resumes the complete seconds of a file.
    fn resume_seconds(&self, name: &str, bytes: &[u8], seconds: &mut Seconds) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.unpacked(rest) {
                Ok((part, next)) => {
                    seconds.resume(&part);
                    rest = next;
                }
                Err(error) => return self.put_aside(name, &error.into()),
            }
        }
    }

    fn packed(&self, part: &Part) -> Vec<u8> {
        let mut packer = Packer::default();
        packer.push(&serde_json::to_vec(part).expect("it has text keys and is written into memory"));
        let packed = packer.pack();
        let mut bytes = MAGIC_OF_SECONDS.to_vec();
        bytes.extend(self.name());
        bytes.extend((packed.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(&packed).to_le_bytes());
        bytes.extend(&packed);
        bytes
    }

    fn unpacked<'b>(&self, bytes: &'b [u8]) -> Result<(Part, &'b [u8]), NoBlock> {
        let (head, rest) = bytes.split_at_checked(HEAD_OF_SECONDS).ok_or(NoBlock::Torn)?;
        if head[..8] != MAGIC_OF_SECONDS {
            return Err(NoBlock::Foreign);
        }
        let word = |at: usize| head[at..at + 4].try_into().map(u32::from_le_bytes).map_err(|_| NoBlock::Torn);
        let (packed, rest) = rest.split_at_checked(word(16)? as usize).ok_or(NoBlock::Torn)?;
        if crc32fast::hash(packed) != word(20)? {
            return Err(NoBlock::Torn);
        }
        if head[8..16] != self.name() {
            return Err(NoBlock::OfAnother);
        }
        let text = Packer::unpack(packed).and_then(|packer| packer.texts().next());
        let part = text.and_then(|text| serde_json::from_slice(&text).ok()).ok_or(NoBlock::Torn)?;
        Ok((part, rest))
    }

    fn name(&self) -> [u8; 8] {
        crate::block::name(&self.observer)
    }

    fn put_aside(&self, name: &str, why: &Unusable) {
        put_aside(&self.folder, &self.folder.join(name), &why.to_string());
    }
}

#[cfg(test)]
mod tests;
