//! Lines of reports: from files and standard input, also compressed, and from a collector's database.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::bufread::MultiGzDecoder;
use rusqlite::{Connection, OpenFlags};

/// Standard input, as a file.
const STDIN: &str = "-";
/// The most bytes of a line: a report with the largest sketches has less.
pub const LINE_MAX: u64 = 16 << 20;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const SQLITE: &[u8] = b"SQLite format 3\0";

/// Why an input cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A file cannot be opened or read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// A database is none of a collector, or cannot be read.
    #[error("cannot read {} as the database of weir-collect: {cause}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: rusqlite::Error,
    },
}

/// All inputs, one after the other.
pub struct Inputs {
    files: std::vec::IntoIter<PathBuf>,
    open: Option<Open>,
    size: Option<u64>,
    read: Arc<AtomicU64>,
}

/// An input that is being read.
enum Open {
    Text(PathBuf, Box<dyn BufRead>),
    Database(PathBuf, Connection, Cursor),
}

/// The last row that was read of each table.
#[derive(Default)]
struct Cursor {
    report: i64,
    tombstone: i64,
}

/// Counts the bytes that were read.
struct Counting<R>(R, Arc<AtomicU64>);

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Inputs {
    /// Reads these files in this order; `-` is standard input.
    pub fn new(files: Vec<PathBuf>) -> Self {
        let size = |file: &PathBuf| std::fs::metadata(file).ok().filter(|file| file.is_file()).map(|file| file.len());
        let size = files.iter().map(size).sum();
        Self { files: files.into_iter(), open: None, size, read: Arc::default() }
    }

    /// The bytes of all inputs, if they are all files.
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// The bytes that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Reads up to `count` lines. Returns whether there may be more.
    ///
    /// # Errors
    ///
    /// An input cannot be read.
    pub fn read(&mut self, lines: &mut Vec<String>, count: usize) -> Result<bool, InputError> {
        while lines.len() < count {
            let Some(open) = &mut self.open else {
                let Some(path) = self.files.next() else { return Ok(false) };
                self.open = Some(Open::new(path, &self.read)?);
                continue;
            };
            let before = lines.len();
            open.read(lines, count, &self.read)?;
            if lines.len() == before {
                self.open = None;
            }
        }
        Ok(true)
    }
}

impl Open {
    fn new(path: PathBuf, counted: &Arc<AtomicU64>) -> Result<Self, InputError> {
        let failed = |cause| InputError::Read { path: path.clone(), cause };
        if path == Path::new(STDIN) {
            let stdin = BufReader::new(Counting(io::stdin(), counted.clone()));
            return Ok(Self::Text(path.clone(), unpacked(stdin).map_err(failed)?));
        }
        let mut file = File::open(&path).map_err(failed)?;
        let mut start = Vec::new();
        (&mut file).take(SQLITE.len() as u64).read_to_end(&mut start).map_err(failed)?;
        if start == SQLITE {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(&path, flags);
            let connection = connection.map_err(|cause| InputError::Database { path: path.clone(), cause })?;
            return Ok(Self::Database(path, connection, Cursor::default()));
        }
        if file.rewind().is_err() {
            // A pipe: what was read of it comes first.
            let rest = BufReader::new(Counting(io::Cursor::new(start).chain(file), counted.clone()));
            return Ok(Self::Text(path.clone(), unpacked(rest).map_err(failed)?));
        }
        let text = unpacked(BufReader::new(Counting(file, counted.clone()))).map_err(failed)?;
        Ok(Self::Text(path, text))
    }

    fn read(&mut self, lines: &mut Vec<String>, count: usize, counted: &AtomicU64) -> Result<(), InputError> {
        match self {
            Self::Text(path, text) => {
                read_lines(text, lines, count).map_err(|cause| InputError::Read { path: path.clone(), cause })
            }
            Self::Database(path, connection, cursor) => cursor
                .read(connection, lines, count - lines.len(), counted)
                .map_err(|cause| InputError::Database { path: path.clone(), cause }),
        }
    }
}

/// The text of an input, which may be compressed.
fn unpacked(mut input: impl BufRead + 'static) -> io::Result<Box<dyn BufRead>> {
    let start = input.fill_buf()?;
    let (is_gzip, is_zstd) = (start.starts_with(GZIP), start.starts_with(ZSTD));
    Ok(if is_gzip {
        Box::new(BufReader::new(MultiGzDecoder::new(input)))
    } else if is_zstd {
        Box::new(BufReader::new(zstd::Decoder::with_buffer(input)?))
    } else {
        Box::new(input)
    })
}

fn read_lines(text: &mut dyn BufRead, lines: &mut Vec<String>, count: usize) -> io::Result<()> {
    while lines.len() < count {
        let mut line = Vec::new();
        if (&mut *text).take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        // What is no UTF-8 is no report, and is named as that.
        let line = String::from_utf8_lossy(&line);
        if !line.trim().is_empty() {
            lines.push(line.trim().to_owned());
        }
    }
    Ok(())
}

impl Cursor {
    /// Reads the next rows: first all reports, in the order of their arrival, then the tombstones.
    fn read(
        &mut self,
        connection: &Connection,
        lines: &mut Vec<String>,
        count: usize,
        counted: &AtomicU64,
    ) -> rusqlite::Result<()> {
        let mut next = |sql: &str, last: &mut i64, count: usize| -> rusqlite::Result<usize> {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query((*last, count as i64))?;
            let mut found = 0;
            while let Some(row) = rows.next()? {
                *last = row.get(0)?;
                let line: String = row.get(1)?;
                counted.fetch_add(line.len() as u64, Ordering::Relaxed);
                lines.push(line);
                found += 1;
            }
            Ok(found)
        };
        let reports = "SELECT number, report FROM reports WHERE number > ?1 ORDER BY number LIMIT ?2";
        let found = next(reports, &mut self.report, count)?;
        if found < count {
            let tombstones = "SELECT number, tombstone FROM tombstones WHERE number > ?1 ORDER BY number LIMIT ?2";
            next(tombstones, &mut self.tombstone, count - found)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn all(files: Vec<PathBuf>) -> Result<Vec<String>, InputError> {
        let (mut inputs, mut all, mut lines) = (Inputs::new(files), Vec::new(), Vec::new());
        loop {
            let has_more = inputs.read(&mut lines, 2)?;
            all.append(&mut lines);
            if !has_more {
                return Ok(all);
            }
        }
    }

    #[test]
    fn files_are_read_however_they_are_packed() {
        let folder = std::env::temp_dir().join(format!("weir-merge-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, content: &[u8]| {
            std::fs::write(folder.join(name), content).unwrap();
            folder.join(name)
        };
        let text = b"{\"a\":1}\n\n{\"b\":2}\n{\"c\":3}";
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text).unwrap();
        let files = vec![
            file("plain", text),
            file("empty", b""),
            file("gzip", &gzip.finish().unwrap()),
            file("zstd", &zstd::encode_all(&text[..], 1).unwrap()),
        ];
        let database = folder.join("reports.db");
        let connection = Connection::open(&database).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE reports (number INTEGER PRIMARY KEY, report TEXT);
                 CREATE TABLE tombstones (number INTEGER PRIMARY KEY, tombstone TEXT);
                 INSERT INTO reports (report) VALUES ('r1'), ('r2'), ('r3');
                 INSERT INTO tombstones (tombstone) VALUES ('t1'), ('t2');",
            )
            .unwrap();
        let once = ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"];
        let expected: Vec<&str> = [once, once, once].concat();
        assert_eq!(all(files.clone()).unwrap(), expected);
        assert_eq!(all(vec![database]).unwrap(), ["r1", "r2", "r3", "t1", "t2"]);
        let missing = all(vec![files[0].clone(), folder.join("missing")]).unwrap_err().to_string();
        let other = file("other.db", &[SQLITE, &[0; 100]].concat());
        let foreign = all(vec![other]).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(missing.contains("missing: No such file"), "{missing}");
        assert!(foreign.contains("as the database of weir-collect"), "{foreign}");
    }
}
