//! Lines of reports: from files and standard input, also compressed, and from a collector's database.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flate2::bufread::MultiGzDecoder;
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};
use weir_schema::limits::LINE_BYTES_MAX;
use weir_system::magic::{GZIP, SQLITE, is_zstd};

/// Standard input, as a file.
pub const STDIN: &str = "-";
/// The most bytes of a line.
pub const LINE_MAX: u64 = LINE_BYTES_MAX as u64;
/// The lines that are read ahead have no more bytes than this and one more line.
const READ_AHEAD: usize = 16 << 20;

/// Why an input cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A file cannot be opened or read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// A compressed file ends too early.
    #[error(
        "{} is incomplete: its compressed data end after line {line}. Pack it again, or wait until it is written",
        path.display()
    )]
    Incomplete {
        /// The path of the file.
        path: PathBuf,
        /// The last line that could be read.
        line: u64,
    },
    /// A compressed file is damaged.
    #[error("{} is damaged after line {line}: {cause}. What comes after that is not in the answer", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The last line that could be read.
        line: u64,
        /// The decompressor's error.
        cause: io::Error,
    },
    /// A database is none of a collector, or cannot be read.
    #[error("cannot read {} as the database of weir-collect: {cause}", path.display())]
    Database {
        /// The path of the database.
        path: PathBuf,
        /// The cause.
        cause: rusqlite::Error,
    },
}

/// The place of a line or a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path of the input.
    pub path: Arc<Path>,
    /// The table of a database.
    pub table: Option<&'static str>,
    /// The number of the line, from 1, or of the row.
    pub number: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, table, number } = self;
        match table {
            None => write!(f, "{}:{number}", path.display()),
            Some(table) => write!(f, "{}: row {number} of {table}", path.display()),
        }
    }
}

/// A line of an input, or a row of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The place of the line.
    pub place: Place,
    /// The content of the line; `None` if it is longer than any report.
    pub text: Option<String>,
}

/// The lines that are read ahead.
pub struct Batch<'l> {
    lines: &'l mut Vec<Line>,
    bytes: usize,
    count: usize,
}

impl<'l> Batch<'l> {
    /// Takes this many lines.
    pub const fn new(lines: &'l mut Vec<Line>, count: usize) -> Self {
        Self { bytes: 0, count, lines }
    }

    /// How many more lines it takes.
    pub const fn room(&self) -> usize {
        if self.bytes < READ_AHEAD { self.count.saturating_sub(self.lines.len()) } else { 0 }
    }

    pub fn push(&mut self, place: Place, text: String) {
        self.bytes += text.len();
        self.lines.push(Line { place, text: Some(text) });
    }

    /// Adds what was read of a line, unless it is blank.
    pub fn push_read(&mut self, place: Place, line: &[u8]) {
        let line = line.trim_ascii();
        if line.len() as u64 > LINE_MAX {
            self.push_too_long(place);
        } else if !line.is_empty() {
            // Bytes that are not UTF-8 are not a report either. They are named as such.
            self.push(place, String::from_utf8_lossy(line).into_owned());
        }
    }

    /// Adds a line that is longer than any report.
    pub fn push_too_long(&mut self, place: Place) {
        self.lines.push(Line { place, text: None });
    }
}

/// All inputs, one after the other.
pub struct Inputs {
    files: std::vec::IntoIter<PathBuf>,
    open: Option<Open>,
    size: Option<u64>,
    read: Arc<AtomicU64>,
    incomplete: Vec<InputError>,
}

/// An input that is being read.
struct Open {
    path: Arc<Path>,
    content: Content,
}

enum Content {
    /// Lines, and how many of them were read.
    Text(Box<dyn BufRead + Send>, u64),
    Database(Connection, Cursor),
}

/// The last row that was read of each table.
#[derive(Debug, Default)]
pub struct Cursor {
    report: i64,
    tombstone: i64,
    /// Reports of earlier windows are passed over.
    from: Option<String>,
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
        Self { files: files.into_iter(), open: None, size, read: Arc::default(), incomplete: Vec::new() }
    }

    /// The bytes of all inputs, if they are all files.
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// The bytes that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The inputs that could be read in part only.
    pub fn incomplete(self) -> Vec<InputError> {
        self.incomplete
    }

    /// Reads some lines, at most `count`. Returns whether there may be more.
    ///
    /// # Errors
    ///
    /// An input cannot be read.
    pub fn read(&mut self, lines: &mut Vec<Line>, count: usize) -> Result<bool, InputError> {
        let mut batch = Batch::new(lines, count);
        while batch.room() > 0 {
            let Some(open) = &mut self.open else {
                let Some(path) = self.files.next() else { return Ok(false) };
                self.open = Some(Open::new(&path, &self.read)?);
                continue;
            };
            let before = batch.lines.len();
            match open.read(&mut batch, &self.read) {
                // The part that could be read counts.
                Err(error @ (InputError::Incomplete { .. } | InputError::Damaged { .. })) => {
                    self.incomplete.push(error);
                    self.open = None;
                }
                read => {
                    read?;
                    if batch.lines.len() == before {
                        self.open = None;
                    }
                }
            }
        }
        Ok(true)
    }
}

impl Open {
    fn new(path: &Path, counted: &Arc<AtomicU64>) -> Result<Self, InputError> {
        let content = Content::new(path, counted)?;
        Ok(Self { path: path.into(), content })
    }

    fn read(&mut self, batch: &mut Batch<'_>, counted: &AtomicU64) -> Result<(), InputError> {
        let path = || self.path.to_path_buf();
        match &mut self.content {
            Content::Text(text, line) => read_lines(&mut **text, line, &self.path, batch),
            Content::Database(connection, cursor) => cursor
                .read(connection, &self.path, batch, counted)
                .map_err(|cause| InputError::Database { path: path(), cause }),
        }
    }
}

impl Content {
    fn new(path: &Path, counted: &Arc<AtomicU64>) -> Result<Self, InputError> {
        let failed = |cause| InputError::Read { path: path.to_owned(), cause };
        let text = |text: io::Result<Box<dyn BufRead + Send>>| Ok(Self::Text(text.map_err(failed)?, 0));
        if path == Path::new(STDIN) {
            return text(unpacked(BufReader::new(Counting(io::stdin(), counted.clone()))));
        }
        let mut file = File::open(path).map_err(failed)?;
        let mut start = Vec::new();
        (&mut file).take(SQLITE.len() as u64).read_to_end(&mut start).map_err(failed)?;
        if start == SQLITE {
            return Ok(Self::Database(database(path)?, Cursor::default()));
        }
        if file.rewind().is_err() {
            // A pipe: what was read of it comes first.
            return text(unpacked(BufReader::new(Counting(io::Cursor::new(start).chain(file), counted.clone()))));
        }
        text(unpacked(BufReader::new(Counting(file, counted.clone()))))
    }
}

/// Opens a database for reading.
///
/// # Errors
///
/// It cannot be opened.
pub fn database(path: &Path) -> Result<Connection, InputError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|cause| InputError::Database { path: path.to_owned(), cause })
}

/// The text of an input, which may be compressed.
///
/// # Errors
///
/// It cannot be read.
pub fn unpacked(mut input: impl BufRead + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let start = input.fill_buf()?;
    let (is_gzip, is_zstd) = (start.starts_with(GZIP), is_zstd(start));
    Ok(if is_gzip {
        Box::new(BufReader::new(MultiGzDecoder::new(input)))
    } else if is_zstd {
        Box::new(BufReader::new(zstd::Decoder::with_buffer(input)?))
    } else {
        Box::new(input)
    })
}

/// Reads a line, or the beginning of one that is longer than any report, and passes over the rest. Returns how many
/// bytes of it were kept.
///
/// # Errors
///
/// It cannot be read.
pub fn read_line(text: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let read = (&mut *text).take(LINE_MAX + 2).read_until(b'\n', line)?;
    if read as u64 > LINE_MAX && !line.ends_with(b"\n") {
        text.skip_until(b'\n')?;
    }
    Ok(read)
}

/// Reads lines after line `number`.
fn read_lines(
    text: &mut dyn BufRead,
    number: &mut u64,
    path: &Arc<Path>,
    batch: &mut Batch<'_>,
) -> Result<(), InputError> {
    while batch.room() > 0 {
        let mut line = Vec::new();
        let read = read_line(text, &mut line).map_err(|cause| match cause.kind() {
            io::ErrorKind::UnexpectedEof => InputError::Incomplete { path: path.to_path_buf(), line: *number },
            // It is the decompressor's own.
            _ if cause.raw_os_error().is_none() => {
                InputError::Damaged { path: path.to_path_buf(), line: *number, cause }
            }
            _ => InputError::Read { path: path.to_path_buf(), cause },
        })?;
        if read == 0 {
            return Ok(());
        }
        *number += 1;
        batch.push_read(Place { path: path.clone(), table: None, number: *number }, &line);
    }
    Ok(())
}

impl Cursor {
    /// Before the reports whose windows began within this time before the newest one. A window that begins after `now`
    /// does not count: the clock of its router is wrong.
    ///
    /// # Errors
    ///
    /// The database has other tables, or cannot be read.
    pub fn near_the_end(connection: &Connection, within: Duration, now: Timestamp) -> rusqlite::Result<Self> {
        // As weir-collect writes times, so that their order is that of the texts.
        let text = |time: Timestamp| format!("{time:.3}");
        let sql = "SELECT max(window_start) FROM reports WHERE window_start <= ?1";
        let newest: Option<String> = connection.query_row(sql, [text(now)], |row| row.get(0))?;
        let Some(newest) = newest.and_then(|newest| newest.parse::<Timestamp>().ok()) else {
            return Ok(Self::default());
        };
        let from = text(newest.saturating_sub(within).unwrap_or(Timestamp::MIN));
        // Without the plus, SQLite would look at one row after the other.
        let sql = "SELECT min(+number) FROM reports WHERE window_start >= ?1";
        let first: i64 = connection.query_row(sql, [&from], |row| row.get(0))?;
        let sql = "SELECT coalesce(max(number), 0) FROM tombstones WHERE received_at < (SELECT received_at FROM reports \
                   WHERE number = ?1)";
        let tombstone = connection.query_row(sql, [first], |row| row.get(0))?;
        Ok(Self { report: first - 1, tombstone, from: Some(from) })
    }

    /// How many rows of both tables there are up to the last ones that were read.
    pub const fn rows(&self) -> u64 {
        self.report.saturating_add(self.tombstone).unsigned_abs()
    }

    /// Reads the next rows: first all reports, in the order of their arrival, then the tombstones.
    ///
    /// # Errors
    ///
    /// The database has other tables, or cannot be read.
    pub fn read(
        &mut self,
        connection: &Connection,
        path: &Arc<Path>,
        batch: &mut Batch<'_>,
        counted: &AtomicU64,
    ) -> rusqlite::Result<()> {
        // A row that is too long is not read into memory.
        let of = |table: &str, column: &str, also: &str| {
            format!(
                "SELECT number, CASE WHEN octet_length({column}) <= {LINE_MAX} THEN {column} END FROM {table} WHERE \
                 number > :last {also} ORDER BY number"
            )
        };
        let from = self.from.as_ref();
        let late = if from.is_some() { "AND window_start >= :from" } else { "" };
        for (table, column, also, last, from) in [
            ("reports", "report", late, &mut self.report, from),
            ("tombstones", "tombstone", "", &mut self.tombstone, None),
        ] {
            let mut statement = connection.prepare_cached(&of(table, column, also))?;
            statement.raw_bind_parameter(c":last", *last)?;
            if let Some(from) = from {
                statement.raw_bind_parameter(c":from", from)?;
            }
            let mut rows = statement.raw_query();
            while batch.room() > 0 {
                let Some(row) = rows.next()? else { break };
                *last = row.get(0)?;
                let place = Place { path: path.clone(), table: Some(table), number: last.unsigned_abs() };
                match row.get::<_, Option<String>>(1)? {
                    None => batch.push_too_long(place),
                    Some(text) => {
                        counted.fetch_add(text.len() as u64, Ordering::Relaxed);
                        batch.push(place, text);
                    }
                }
            }
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
            let text = |line: Line| line.text.unwrap_or_else(|| format!("{}: too long", line.place));
            all.extend(lines.drain(..).map(text));
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
        let mut cut = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        cut.write_all(text).unwrap();
        let cut = cut.finish().unwrap();
        let cut_zstd = zstd::encode_all(&text[..], 1).unwrap();
        let cut = vec![
            file("cut", &cut[..cut.len() - 9]),
            file("cut.zst", &cut_zstd[..cut_zstd.len() - 2]),
            files[0].clone(),
        ];
        let (mut inputs, mut lines) = (Inputs::new(cut), Vec::new());
        while inputs.read(&mut lines, 100).unwrap() {}
        assert_eq!(lines[lines.len() - 3..].iter().filter_map(|line| line.text.as_deref()).collect::<Vec<_>>(), once);
        let [cut, cut_zstd] = &inputs.incomplete().iter().map(InputError::to_string).collect::<Vec<_>>()[..] else {
            panic!()
        };
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(cut.contains("cut is incomplete") && cut_zstd.contains("cut.zst is incomplete"), "{cut}, {cut_zstd}");
        assert!(missing.contains("missing: No such file"), "{missing}");
        assert!(foreign.contains("as the database of weir-collect"), "{foreign}");
    }

    #[test]
    fn what_is_read_ahead_is_bounded_and_lines_know_where_they_are() {
        let folder = std::env::temp_dir().join(format!("weir-merge-ahead-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (long, longest) = (folder.join("long"), folder.join("longest"));
        let line = "x".repeat(LINE_MAX as usize - 1);
        std::fs::write(&long, format!("\n{line}\n{line}\nshort")).unwrap();
        let twice = line.repeat(2);
        std::fs::write(&longest, format!("short\n{line}xx\n{twice}{twice}\nshort\n{line}x\r\n")).unwrap();
        let (mut inputs, mut lines, mut batches) = (Inputs::new(vec![long.clone()]), Vec::new(), Vec::new());
        while inputs.read(&mut lines, 512).unwrap() || !lines.is_empty() {
            batches.push(lines.drain(..).map(|line| (line.place.number, line.text.unwrap().len())).collect::<Vec<_>>());
        }
        let with_longest = all(vec![longest.clone()]).unwrap();
        let packed = folder.join("packed");
        std::fs::write(&packed, zstd::encode_all(File::open(&longest).unwrap(), 1).unwrap()).unwrap();
        let with_packed = all(vec![packed]).unwrap();
        let database = folder.join("reports.db");
        let connection = Connection::open(&database).unwrap();
        let tables = "CREATE TABLE reports (number INTEGER PRIMARY KEY, report TEXT);
                      CREATE TABLE tombstones (number INTEGER PRIMARY KEY, tombstone TEXT);
                      INSERT INTO reports (number, report) VALUES (7, 'r');";
        connection.execute_batch(tables).unwrap();
        connection.execute("INSERT INTO tombstones VALUES (9, ?1)", [format!("{line}xx")]).unwrap();
        let too_long_row = all(vec![database]).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let length = line.len();
        assert_eq!(batches, [vec![(2, length), (3, length)], vec![(4, 5)]], "two lines exceed the limit");
        for all in [with_longest, with_packed] {
            let [first, second, third, short, last] = &all[..] else { panic!("{}", all.len()) };
            assert_eq!((&**first, &**short, last.len()), ("short", "short", LINE_MAX as usize));
            assert!(second.ends_with(":2: too long") && third.ends_with(":3: too long"), "the others are read");
        }
        assert!(too_long_row[0] == "r" && too_long_row[1].ends_with("reports.db: row 9 of tombstones: too long"));
    }

    #[test]
    fn a_damaged_file_does_not_end_the_merge() {
        let folder = std::env::temp_dir().join(format!("weir-merge-damaged-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, content: &[u8]| {
            std::fs::write(folder.join(name), content).unwrap();
            folder.join(name)
        };
        let text: String = (0..20_000).map(|nth| format!("{{\"a\":{nth}}}\n")).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        let damaged = |mut packed: Vec<u8>| {
            let middle = packed.len() / 2;
            packed[middle..middle + 64].fill(0xff);
            packed
        };
        let files = vec![
            file("a.gz", &damaged(gzip.finish().unwrap())),
            file("a.zst", &damaged(zstd::encode_all(text.as_bytes(), 1).unwrap())),
            file("plain", b"{\"last\":1}\n"),
        ];
        let (mut inputs, mut lines, mut last) = (Inputs::new(files), Vec::new(), String::new());
        while inputs.read(&mut lines, 1_000).unwrap() || !lines.is_empty() {
            last = lines.drain(..).next_back().map_or(last, |line| line.text.unwrap());
        }
        assert_eq!(last, "{\"last\":1}");
        let named: Vec<_> = inputs.incomplete().iter().map(ToString::to_string).collect();
        let is_named = |name: &str| named.iter().any(|why| why.contains(name) && why.contains("is damaged after line"));
        assert!(named.len() == 2 && is_named("a.gz") && is_named("a.zst"), "{named:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
