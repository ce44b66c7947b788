//! The history in the state directory: plain files. Invalid parts of them are skipped.
//!
//! | file | is |
//! |---|---|
//! | `windows-NUMBER` | a [block](crate::block) of windows |
//! | `fives-NUMBER` | a block of unions of five minutes |
//! | `windows.open` | blocks of a minute each, since the last block of windows |
//! | `seconds-NUMBER` | parts of a minute each: an hour. The last two are kept |
//! | `aside-...` | an invalid file that had one of these names |
//!
//! Each minute one file is written, and every five minutes one more. Nothing is synced: a crash of weir loses
//! everything since the last minute, and a power failure everything that the system had not written yet.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use thiserror::Error;
use tracing::{info, warn};
use weir_system::plain_file;

use crate::{
    block::{Block, NoBlock},
    packed::Packer,
    ring::Ring,
    seconds::{Part, ROWS, Seconds},
    windows::Windows,
};

/// The folder in the state directory.
pub const FOLDER: &str = "history";
const SINGLE: &str = "windows-";
const MANY: &str = "fives-";
const OPEN: &str = "windows.open";
const SECONDS: &str = "seconds-";
const ASIDE: &str = "aside-";
/// The name of a file while it is written.
const UNFINISHED: &str = "unfinished";
/// The largest size of a file, in bytes.
const FILE_MAX: u64 = 16 << 20;
/// Maximum number of invalid files that are kept.
const ASIDE_MAX: usize = 4;
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

/// The folder.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    /// The observer that wrote the files.
    observer: String,
    /// Whether the last log message was about a failed write.
    is_failing: bool,
    /// The file of seconds that is written to, and how many rows it has.
    seconds: (u64, usize),
    /// The next row to write.
    next_row: u64,
}

impl Disk {
    /// The history in this state directory.
    pub fn new(state_directory: &Path, observer: &str) -> Self {
        let folder = state_directory.join(FOLDER);
        Self { folder, observer: observer.to_owned(), is_failing: false, seconds: (0, 0), next_row: 0 }
    }

    /// Reads the files of an earlier weir. Logs files that cannot be used, and puts them aside.
    pub fn load(&mut self, windows: &mut Windows, seconds: &mut Seconds) {
        if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder) {
            return self.note(Err(error));
        }
        for (number, name) in self.numbered(SECONDS) {
            // If the last file is torn, do not write to it any more.
            self.seconds = (number + 1, 0);
            if let Some(bytes) = self.read(&name) {
                self.resume_seconds(&name, &bytes, seconds);
            }
        }
        self.next_row = seconds.next();
        for (_, name) in self.numbered(MANY) {
            if let Some(block) = self.block(&name) {
                windows.resume_many(block);
            }
        }
        for (_, name) in self.numbered(SINGLE) {
            if let Some(block) = self.block(&name) {
                windows.resume(block);
            }
        }
        windows.continue_after_unions();
        for block in self.open_blocks() {
            windows.resume_open(&block);
        }
        for block in windows.complete() {
            self.write_many(&block, windows);
        }
        self.write_open(windows.single().open().pack());
        self.prune(SINGLE, windows.single());
        self.prune(MANY, windows.many());
    }

    /// Writes a block of windows. Its minutes are no longer needed.
    pub fn write_single(&mut self, block: &Block, windows: &Windows) {
        let written = self.replace(&format!("{SINGLE}{:012}", block.first), &block.to_bytes(&self.observer));
        self.note(written);
        self.prune(SINGLE, windows.single());
        self.write_open(windows.single().open().pack());
    }

    /// Writes a block of unions of five minutes.
    pub fn write_many(&mut self, block: &Block, windows: &Windows) {
        let written = self.replace(&format!("{MANY}{:012}", block.first), &block.to_bytes(&self.observer));
        self.note(written);
        self.prune(MANY, windows.many());
    }

    /// Writes the windows of a minute.
    pub fn append(&mut self, minute: &Block) {
        let written = self.append_to(OPEN, &minute.to_bytes(&self.observer));
        self.note(written);
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
        self.note(written);
        if self.seconds.0 != number {
            self.remove(SECONDS, |nth| nth + SECONDS_KEPT <= number + 1);
        }
    }

    /// The first row of seconds that is not written yet.
    pub const fn next_row(&self) -> u64 {
        self.next_row
    }

    /// Writes the windows since the last block as one block.
    fn write_open(&mut self, open: Option<Block>) {
        let written = match open {
            Some(block) => self.replace(OPEN, &block.to_bytes(&self.observer)),
            None => match fs::remove_file(self.folder.join(OPEN)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        self.note(written);
    }

    fn append_to(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        drop(plain_file::open_or_create(&path, 0o600)?);
        let mut file = plain_file::regular(OpenOptions::new().append(true).open(&path)?)?;
        file.write_all(bytes)
    }

    /// Replaces a file. After a crash it is either the old one or the new one.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.folder.join(UNFINISHED);
        plain_file::replace(&unfinished, 0o600)?.write_all(bytes)?;
        fs::rename(unfinished, self.folder.join(name))
    }

    /// Logs when writing begins to fail, and when it works again.
    fn note(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) if std::mem::take(&mut self.is_failing) => info!("the history is written again"),
            Err(error) if !std::mem::replace(&mut self.is_failing, true) => warn!(
                "cannot write the history to {}: {error}. It continues in memory; a restart loses everything that is \
                 not written",
                self.folder.display()
            ),
            _ => {}
        }
    }

    /// The files with this prefix, by their numbers.
    fn numbered(&self, prefix: &str) -> Vec<(u64, String)> {
        let names = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut all: Vec<_> = names
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some((name.strip_prefix(prefix)?.parse().ok()?, name))
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// Removes the blocks that the ring does not have any more.
    fn prune(&self, prefix: &str, ring: &Ring) {
        self.remove(prefix, |first| first < ring.first());
    }

    fn remove(&self, prefix: &str, is_old: impl Fn(u64) -> bool) {
        for (_, name) in self.numbered(prefix).into_iter().filter(|(number, _)| is_old(*number)) {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }

    /// The bytes of a file. If it cannot be read, logs that and returns `None`.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let read =
            plain_file::open(&self.folder.join(name)).and_then(|file| file.take(FILE_MAX).read_to_end(&mut bytes));
        match read {
            Ok(_) => Some(bytes),
            Err(error) => {
                self.put_aside(name, &error.into());
                None
            }
        }
    }

    fn block(&self, name: &str) -> Option<Block> {
        let bytes = self.read(name)?;
        match Block::read(&bytes, &self.observer) {
            Ok((block, _)) => Some(block),
            Err(error) => {
                self.put_aside(name, &error.into());
                None
            }
        }
    }

    /// The complete windows since the last block.
    fn open_blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        if !self.folder.join(OPEN).exists() {
            return blocks;
        }
        let bytes = self.read(OPEN).unwrap_or_default();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match Block::read(rest, &self.observer) {
                Ok((block, next)) => {
                    blocks.push(block);
                    rest = next;
                }
                Err(error) => {
                    self.put_aside(OPEN, &error.into());
                    break;
                }
            }
        }
        blocks
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

    /// Renames an invalid file, so that weir does not read it again. If there are already [`ASIDE_MAX`] such files,
    /// removes it.
    fn put_aside(&self, name: &str, why: &Unusable) {
        let path = self.folder.join(name);
        let names = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let known =
            names.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(ASIDE))).count();
        let aside = self.folder.join(format!("{ASIDE}{name}"));
        let (moved, what) = match known < ASIDE_MAX {
            true => (fs::rename(&path, &aside), format!("it is now {}", aside.display())),
            false => (fs::remove_file(&path), "it is removed".to_owned()),
        };
        let what = moved.map_or_else(|error| format!("it stays, but is not used: {error}"), |()| what);
        warn!("{}: {why}, so the history lacks its content: {what}", path.display());
    }
}

#[cfg(test)]
mod tests;
