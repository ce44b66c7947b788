//! Follows inputs that grow: files of reports, also when they are rotated, and databases of a collector.
//!
//! A file of reports may be rotated while it is read: it gets another name, and its writer may still append to it for a
//! moment. So weir follows the open file and not its name. It changes to the new file under the name only after a later
//! poll has found nothing new in the old one. Files are known by device and inode, so that a rotated file which is an
//! input itself is not read twice.

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
use weir_system::magic::{GZIP, SQLITE, ZSTD, is_zstd};

use crate::input::{Batch, Cursor, InputError, LINE_MAX, Line, Place, database, read_line, unpacked};

/// How many files are remembered after others took their paths. While they are, no other file has their identity.
const RETIRED_MAX: usize = 64;

/// All inputs that are followed.
pub struct Follower {
    inputs: Vec<Followed>,
    /// The input that is read next.
    next: usize,
    /// How much of a database is read at first.
    within: Duration,
    /// The files whose paths are those of other files now. A rotation gives them another path, which may be an input.
    retired: Vec<Open>,
}

struct Followed {
    path: Arc<Path>,
    open: Option<Open>,
    trouble: Option<String>,
}

struct Open {
    identity: Identity,
    content: Content,
    /// True if another file has this path now. The writer may still write into this one for a moment.
    is_replaced: bool,
}

/// The device and inode of a file.
type Identity = (u64, u64);

enum Content {
    Text(Text),
    Packed(Packed),
    Database(Connection, Cursor),
}

/// Plain lines, as far as they have been read.
struct Text {
    file: BufReader<File>,
    /// How many bytes were read.
    read: u64,
    /// The number of the last line.
    number: u64,
    /// The bytes of the next line that have come.
    rest: Vec<u8>,
    /// True if the next line is too long, and its start was passed on.
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
        Self { inputs: files.iter().map(followed).collect(), next: 0, within, retired: Vec::new() }
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
            let held: Vec<_> = self.inputs.iter().filter_map(|input| Some(input.open.as_ref()?.identity)).collect();
            let input = &mut self.inputs[(self.next + turn) % all];
            match input.read(self.within, &held, &mut self.retired, &mut batch) {
                Ok(more) => {
                    has_more |= more;
                    input.trouble = None;
                }
                // The lines that were read stay known, and the next poll tries again.
                Err(error) => input.trouble = Some(error.to_string()),
            }
        }
        self.next = (self.next + 1) % all.max(1);
        self.retired.drain(..self.retired.len().saturating_sub(RETIRED_MAX));
        has_more
    }

    /// Why inputs cannot be read now.
    pub fn troubles(&self) -> impl Iterator<Item = String> {
        self.inputs.iter().filter_map(|input| input.trouble.clone())
    }
}

impl Followed {
    /// Reads the next lines of the file that has this path now. `held` are the files of all inputs.
    fn read(
        &mut self,
        within: Duration,
        held: &[Identity],
        retired: &mut Vec<Open>,
        batch: &mut Batch<'_>,
    ) -> Result<bool, InputError> {
        let Self { path, open, .. } = self;
        let Some(now_open) = open else {
            let found =
                std::fs::metadata(&**path).map_err(|cause| InputError::Read { path: path.to_path_buf(), cause })?;
            let found = identity(&found);
            if held.contains(&found) {
                return Ok(false);
            }
            *open = match retired.iter().position(|old| old.identity == found) {
                Some(old) => Some(Open { is_replaced: false, ..retired.swap_remove(old) }),
                None => Open::new(path, within)?,
            };
            return Ok(open.is_some());
        };
        let before = now_open.content.position();
        now_open.content.read(path, batch)?;
        if batch.room() == 0 {
            return Ok(true);
        }
        match std::fs::metadata(&**path) {
            Ok(now) if identity(&now) != now_open.identity => {
                let has_ended = now_open.is_replaced && now_open.content.position() == before;
                now_open.is_replaced = true;
                if has_ended {
                    now_open.content.end(path, batch);
                    retired.extend(open.take());
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
        } else if start.starts_with(GZIP) || is_zstd(&start) {
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
                .map_err(|cause| InputError::Database { path: path.to_path_buf(), cause }),
        }
    }

    /// A number that is larger when something was read.
    const fn position(&self) -> u64 {
        match self {
            Self::Text(text) => text.read,
            Self::Packed(packed) => packed.known,
            Self::Database(_, cursor) => cursor.rows(),
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
                self.rest.clear();
                if !std::mem::replace(&mut self.is_skipped, true) {
                    self.number += 1;
                    batch.push_too_long(Place { path: path.clone(), table: None, number: self.number });
                }
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
        batch.push_read(Place { path: path.clone(), table: None, number: self.number }, &line);
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
            let read = read_line(&mut **reader, &mut line);
            if !matches!(read, Ok(read) if read > 0) {
                self.reader = None;
            }
            if read? > 0 {
                self.number += 1;
                if self.number > self.known {
                    self.known = self.number;
                    batch.push_read(Place { path: path.clone(), table: None, number: self.number }, &line);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, OpenOptions},
        io::Write as _,
        ops::Deref,
    };

    use super::*;

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("weir-follow-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Deref for Folder {
        type Target = Path;

        fn deref(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn append(path: &Path, text: impl AsRef<[u8]>) {
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_ref()).unwrap();
    }

    /// Reads the lines that have come since the last time.
    fn read(follower: &mut Follower) -> Vec<String> {
        read_lines(follower).into_iter().map(|line| line.text.unwrap()).collect()
    }

    fn read_lines(follower: &mut Follower) -> Vec<Line> {
        let (mut all, mut lines) = (Vec::new(), Vec::new());
        loop {
            let has_more = follower.read(&mut lines, 2);
            assert!(lines.len() <= 2);
            all.append(&mut lines);
            if !has_more {
                return all;
            }
        }
    }

    #[test]
    fn a_line_comes_once_it_has_ended_whatever_becomes_of_the_file() {
        let folder = Folder::new("text");
        let path = folder.join("reports.ndjson");
        append(&path, "");
        let mut follower = Follower::new(std::slice::from_ref(&path), Duration::ZERO);
        assert_eq!(read(&mut follower), [""; 0], "an empty file fills later");
        append(&path, "a\n\nb\nhal");
        assert_eq!(read(&mut follower), ["a", "b"]);
        assert_eq!(read(&mut follower), [""; 0], "half a line waits");
        append(&path, "f\nc");
        assert_eq!(read(&mut follower), ["half"]);
        // A rotation: the writer goes on for a moment, then opens the new file.
        fs::rename(&path, folder.join("reports.ndjson.1")).unwrap();
        assert_eq!(read(&mut follower), [""; 0], "nothing is there");
        append(&folder.join("reports.ndjson.1"), "2\n");
        append(&path, "d\n");
        assert_eq!(read(&mut follower), ["c2"]);
        append(&folder.join("reports.ndjson.1"), "last");
        assert_eq!(read(&mut follower), [""; 0], "it may still be written");
        assert_eq!(read(&mut follower), ["last", "d"]);
        // A rotation that copies the file and empties it.
        fs::write(&path, "").unwrap();
        assert_eq!(read(&mut follower), [""; 0]);
        append(&path, "e\n");
        assert_eq!(read(&mut follower), ["e"]);
        assert_eq!(follower.troubles().count(), 0);
    }

    #[test]
    fn a_line_that_is_too_long_is_named_and_the_next_ones_are_read() {
        let folder = Folder::new("long");
        let path = folder.join("reports.ndjson");
        append(&path, format!("a\n{}\nb\n", "x".repeat(3 * LINE_MAX as usize)));
        let mut follower = Follower::new(&[path], Duration::ZERO);
        let all: Vec<_> = read_lines(&mut follower).into_iter().map(|line| (line.place.number, line.text)).collect();
        assert_eq!(all, [(1, Some("a".to_owned())), (2, None), (3, Some("b".to_owned()))]);
    }

    #[test]
    fn a_file_that_a_rotation_moves_to_another_input_is_read_once() {
        let folder = Folder::new("rotation");
        let [newest, older] = ["reports.ndjson", "reports.ndjson.1"].map(|name| folder.join(name));
        append(&newest, "b\n");
        append(&older, "a\n");
        let mut follower = Follower::new(&[newest.clone(), older.clone()], Duration::ZERO);
        let mut both = read(&mut follower);
        both.sort();
        assert_eq!(both, ["a", "b"]);
        for (line, more) in [("c", "b2"), ("d", "c2"), ("e", "d2")] {
            fs::rename(&newest, &older).unwrap();
            assert_eq!([read(&mut follower), read(&mut follower)].concat(), [""; 0]);
            append(&older, format!("{more}\n"));
            append(&newest, format!("{line}\n"));
            let mut rest: Vec<String> = (0..4).flat_map(|_| read(&mut follower)).collect();
            rest.sort();
            assert_eq!(rest, [more, line]);
        }
    }

    #[test]
    fn no_input_waits_for_the_others() {
        let folder = Folder::new("turns");
        let files = ["a", "b", "c"].map(|name| {
            append(&folder.join(name), format!("{name}\n").repeat(5));
            folder.join(name)
        });
        let mut follower = Follower::new(&files, Duration::ZERO);
        assert!(follower.read(&mut Vec::new(), 2), "they are opened");
        let (mut lines, mut first) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            assert!(follower.read(&mut lines, 2));
            first.extend(lines.drain(..).next().unwrap().text);
        }
        first.sort();
        assert_eq!(first, ["a", "b", "c"]);
    }

    #[test]
    fn a_compressed_file_that_grows_is_unpacked_again_and_no_line_comes_twice() {
        let folder = Folder::new("packed");
        let path = folder.join("reports.zst");
        let packed = zstd::encode_all(&b"a\nb\nc\n"[..], 1).unwrap();
        fs::write(&path, &packed[..packed.len() - 4]).unwrap();
        let mut follower = Follower::new(std::slice::from_ref(&path), Duration::ZERO);
        let before = read(&mut follower);
        append(&path, &packed[packed.len() - 4..]);
        let whole = [before, read(&mut follower)].concat();
        assert_eq!(whole, ["a", "b", "c"]);
        append(&path, zstd::encode_all(&b"d\n"[..], 1).unwrap());
        assert_eq!(read(&mut follower), ["d"]);
        fs::remove_file(&path).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"e\n").unwrap();
        fs::write(&path, gzip.finish().unwrap()).unwrap();
        assert_eq!([read(&mut follower), read(&mut follower)].concat(), ["e"], "another file");
    }

    #[test]
    fn the_newest_rows_of_a_database_come_and_then_each_new_one() {
        let folder = Folder::new("database");
        let path = folder.join("reports.db");
        let writer = Connection::open(&path).unwrap();
        let tables = "PRAGMA journal_mode = WAL;
             CREATE TABLE reports (number INTEGER PRIMARY KEY, window_start TEXT, received_at TEXT, report TEXT);
             CREATE TABLE tombstones (number INTEGER PRIMARY KEY, received_at TEXT, tombstone TEXT);";
        writer.execute_batch(tables).unwrap();
        let put = |minute: u32, report: &str| {
            let time = format!("2026-11-20T08:{minute:02}:00.000Z");
            writer
                .execute(
                    "INSERT INTO reports (window_start, received_at, report) VALUES (?1, ?1, ?2)",
                    [&*time, report],
                )
                .unwrap();
        };
        let mut empty = Follower::new(std::slice::from_ref(&path), Duration::from_secs(300));
        assert_eq!(read(&mut empty), [""; 0]);
        writer.execute("INSERT INTO tombstones VALUES (1, '2026-11-20T08:00:30.000Z', 'old')", []).unwrap();
        writer.execute("INSERT INTO tombstones VALUES (2, '2026-11-20T08:31:00.000Z', 'new')", []).unwrap();
        for (minute, report) in [(0, "r0"), (30, "r30"), (1, "r1, late"), (31, "r31")] {
            put(minute, report);
        }
        // The clock of its router is wrong.
        writer
            .execute("INSERT INTO reports VALUES (9, '2999-11-20T08:00:00.000Z', '2026-11-20T08:31:00.000Z', 'r9')", [])
            .unwrap();
        let mut follower = Follower::new(std::slice::from_ref(&path), Duration::from_secs(300));
        assert_eq!(read(&mut follower), ["r30", "r31", "r9", "new"]);
        put(32, "r32");
        assert_eq!(read(&mut follower), ["r32"]);
        assert_eq!(read(&mut empty), ["r0", "r30", "r1, late", "r31", "r9", "r32", "old", "new"]);
        // Another file takes its place.
        drop(writer);
        for name in ["reports.db", "reports.db-wal", "reports.db-shm"] {
            let _ = fs::remove_file(folder.join(name));
        }
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch(tables).unwrap();
        writer.execute("INSERT INTO reports VALUES (1, '2026-11-20T09:00:00.000Z', '', 'again')", []).unwrap();
        assert_eq!([read(&mut follower), read(&mut follower)].concat(), ["again"]);
        assert_eq!(follower.troubles().count(), 0);
    }
}
