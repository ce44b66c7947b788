//! Follows inputs that grow: files of reports, also when they are rotated, and databases of a collector.

use std::{
    fs::{File, Metadata},
    io::{self, BufRead, BufReader, Read as _, Seek as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use rusqlite::Connection;
use weir_system::clock;

use crate::input::{Batch, Cursor, GZIP, InputError, LINE_MAX, Line, SQLITE, ZSTD, database, unpacked};

/// How much of a line that is too long is passed on, so that it is named as unreadable.
const SHOWN: usize = 64;

/// All inputs that are followed.
pub struct Follower {
    inputs: Vec<Followed>,
    /// The input that is read next.
    next: usize,
    /// How much of a database is read at first.
    within: Duration,
}

struct Followed {
    path: Arc<Path>,
    open: Option<Open>,
    trouble: Option<String>,
}

struct Open {
    identity: Identity,
    content: Content,
    /// Whether another file has this path now. Its writer may still write into this one for a moment.
    is_replaced: bool,
}

/// Device and inode.
type Identity = (u64, u64);

enum Content {
    Text(Text),
    Packed(Packed),
    Database(Connection, Cursor),
}

/// Plain lines.
struct Text {
    file: BufReader<File>,
    /// How many bytes were read.
    read: u64,
    /// How many lines.
    number: u64,
    /// What has come of the next line.
    rest: Vec<u8>,
    /// Whether the next line is too long, and its start was passed on.
    is_skipped: bool,
}

/// A compressed file. When it grows, it is unpacked again, and the lines that are known are passed over.
struct Packed {
    file: File,
    reader: Option<Box<dyn BufRead + Send>>,
    /// The size of the file when the reader began.
    size: u64,
    /// How many lines the reader has read.
    number: u64,
    /// How many lines were passed on.
    known: u64,
}

impl Follower {
    /// Follows these files. Of a database, only the reports whose windows began within this time before the newest one
    /// are read, and all later ones.
    pub fn new(files: &[PathBuf], within: Duration) -> Self {
        let followed = |path: &PathBuf| Followed { path: path.as_path().into(), open: None, trouble: None };
        Self { inputs: files.iter().map(followed).collect(), next: 0, within }
    }

    /// Reads the next lines, at most `count`, from each input in turn. Returns whether there may be more now.
    pub fn read(&mut self, lines: &mut Vec<Line>, count: usize) -> bool {
        let mut batch = Batch::new(lines, count);
        let (all, mut has_more) = (self.inputs.len(), false);
        for turn in 0..all {
            if batch.room() == 0 {
                self.next = (self.next + turn) % all;
                return true;
            }
            let input = &mut self.inputs[(self.next + turn) % all];
            match input.read(self.within, &mut batch) {
                Ok(more) => {
                    has_more |= more;
                    input.trouble = None;
                }
                // What was read stays known, and the next poll tries again.
                Err(error) => input.trouble = Some(error.to_string()),
            }
        }
        self.next = (self.next + 1) % all.max(1);
        has_more
    }

    /// Why inputs cannot be read now.
    pub fn troubles(&self) -> impl Iterator<Item = String> {
        self.inputs.iter().filter_map(|input| input.trouble.clone())
    }
}

impl Followed {
    fn read(&mut self, within: Duration, batch: &mut Batch<'_>) -> Result<bool, InputError> {
        let Self { path, open, .. } = self;
        let Some(now_open) = open else {
            *open = Open::new(path, within)?;
            return Ok(open.is_some());
        };
        let before = batch.room();
        now_open.content.read(path, batch)?;
        if batch.room() == 0 {
            return Ok(true);
        }
        match std::fs::metadata(&**path) {
            Ok(now) if identity(&now) != now_open.identity => {
                let has_ended = now_open.is_replaced && batch.room() == before;
                now_open.is_replaced = true;
                if has_ended {
                    now_open.content.end(path, batch);
                    *open = None;
                }
                Ok(has_ended)
            }
            Ok(_) => {
                now_open.is_replaced = false;
                Ok(false)
            }
            // It was moved away, and nothing new is there yet.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(cause) => Err(InputError::Read { path: path.to_path_buf(), cause }),
        }
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

impl Open {
    /// Opens a file; `None` if it is so short yet that it may become anything.
    fn new(path: &Path, within: Duration) -> Result<Option<Self>, InputError> {
        let failed = |cause| InputError::Read { path: path.to_owned(), cause };
        let mut file = File::open(path).map_err(failed)?;
        let identity = identity(&file.metadata().map_err(failed)?);
        let mut start = Vec::new();
        (&mut file).take(SQLITE.len() as u64).read_to_end(&mut start).map_err(failed)?;
        if [GZIP, ZSTD, SQLITE].iter().any(|magic| magic.len() > start.len() && magic.starts_with(&start)) {
            return Ok(None);
        }
        file.rewind().map_err(failed)?;
        let content = if start == SQLITE {
            let connection = database(path)?;
            let failed = |cause| InputError::Database { path: path.to_owned(), cause };
            let cursor = Cursor::near_the_end(&connection, within, clock::now().wall).map_err(failed)?;
            Content::Database(connection, cursor)
        } else if start.starts_with(GZIP) || start.starts_with(ZSTD) {
            Content::Packed(Packed { file, reader: None, size: 0, number: 0, known: 0 })
        } else {
            let file = BufReader::new(file);
            Content::Text(Text { file, read: 0, number: 0, rest: Vec::new(), is_skipped: false })
        };
        Ok(Some(Self { identity, content, is_replaced: false }))
    }
}

impl Content {
    fn read(&mut self, path: &Arc<Path>, batch: &mut Batch<'_>) -> Result<(), InputError> {
        let failed = |cause| InputError::Read { path: path.to_path_buf(), cause };
        match self {
            Self::Text(text) => text.read(path, batch).map_err(failed),
            Self::Packed(packed) => packed.read(path, batch).map_err(|cause| match cause.kind() {
                io::ErrorKind::UnexpectedEof => {
                    InputError::Incomplete { path: path.to_path_buf(), line: packed.number }
                }
                _ => failed(cause),
            }),
            Self::Database(connection, cursor) => cursor
                .read(connection, path, batch, &AtomicU64::new(0))
                .map_err(|cause| InputError::Database { path: path.to_path_buf(), cause })?
                .map_or(Ok(()), |line| Err(InputError::LineTooLong { path: path.to_path_buf(), line })),
        }
    }

    /// Nothing comes any more: what has come of the last line is all of it.
    fn end(&mut self, path: &Arc<Path>, batch: &mut Batch<'_>) {
        if let Self::Text(text) = self {
            text.pass(path, batch);
        }
    }
}

impl Text {
    /// Reads lines that have ended.
    fn read(&mut self, path: &Arc<Path>, batch: &mut Batch<'_>) -> io::Result<()> {
        while batch.room() > 0 {
            let room = LINE_MAX + 1 - self.rest.len() as u64;
            let read = (&mut self.file).take(room).read_until(b'\n', &mut self.rest)?;
            self.read += read as u64;
            if read == 0 {
                // A file that is emptied by its writer, or by a rotation that copies it, begins anew.
                if self.file.get_ref().metadata()?.len() >= self.read {
                    return Ok(());
                }
                self.file.rewind()?;
                (self.read, self.number, self.is_skipped) = (0, 0, false);
                self.rest.clear();
            } else if self.rest.ends_with(b"\n") {
                self.pass(path, batch);
            } else if self.rest.len() as u64 > LINE_MAX {
                self.rest.truncate(SHOWN);
                self.pass(path, batch);
                self.is_skipped = true;
            }
        }
        Ok(())
    }

    /// Passes on what was read of a line.
    fn pass(&mut self, path: &Arc<Path>, batch: &mut Batch<'_>) {
        let line = std::mem::take(&mut self.rest);
        if std::mem::take(&mut self.is_skipped) || line.is_empty() {
            return;
        }
        self.number += 1;
        push(&line, path, self.number, batch);
    }
}

/// A blank line is none.
fn push(line: &[u8], path: &Arc<Path>, number: u64, batch: &mut Batch<'_>) {
    let line = String::from_utf8_lossy(line);
    if !line.trim().is_empty() {
        batch.push(path, number, line.trim().to_owned());
    }
}

impl Packed {
    fn read(&mut self, path: &Arc<Path>, batch: &mut Batch<'_>) -> io::Result<()> {
        while batch.room() > 0 {
            let Some(reader) = &mut self.reader else {
                let size = self.file.metadata()?.len();
                if size == self.size {
                    return Ok(());
                }
                self.file.rewind()?;
                self.reader = Some(unpacked(BufReader::new(self.file.try_clone()?))?);
                (self.size, self.number) = (size, 0);
                continue;
            };
            let mut line = Vec::new();
            let read = reader.take(LINE_MAX).read_until(b'\n', &mut line);
            if !matches!(read, Ok(read) if read > 0) {
                self.reader = None;
            }
            if read? > 0 {
                self.number += 1;
                if self.number > self.known {
                    self.known = self.number;
                    push(&line, path, self.number, batch);
                }
            }
        }
        Ok(())
    }
}
