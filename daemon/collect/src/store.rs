//! The database: an `SQLite` file with each report and each tombstone once.
//!
//! A transaction is on disk before it is answered (write-ahead log, `synchronous=FULL`). Other processes may read
//! meanwhile.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};
use rustix::fs::OFlags;
use weir_system::plain_file;

use super::line::{Line, ReportLine, TombstoneLine, sortable};

/// Identifies a file as this database: `weir`.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"weir");
/// The version of the tables.
const VERSION: i32 = 1;
/// How long to wait for another process's lock.
const LOCK_TIME_MAX: Duration = Duration::from_secs(5);
/// Reports reveal who talks to whom: the file is for its owner and its group.
const MODE: u32 = 0o640;

const TABLES: &str = "
CREATE TABLE reports (
    number        INTEGER PRIMARY KEY,
    id            TEXT NOT NULL UNIQUE,
    observer_id   TEXT NOT NULL,
    boot_id       TEXT NOT NULL,
    seq           INTEGER NOT NULL,
    previous      TEXT,
    observer_name TEXT,
    site          TEXT,
    window_start  TEXT NOT NULL,
    window_end    TEXT NOT NULL,
    packets       INTEGER,
    bytes         INTEGER,
    received_at   TEXT NOT NULL,
    report        TEXT NOT NULL
) STRICT;
CREATE INDEX reports_by_observer ON reports (observer_id, boot_id, seq, previous, window_start);
CREATE INDEX reports_by_window ON reports (window_start);
CREATE TABLE tombstones (
    number        INTEGER PRIMARY KEY,
    id            TEXT NOT NULL UNIQUE,
    observer_id   TEXT NOT NULL,
    boot_id       TEXT NOT NULL,
    first_seq     INTEGER NOT NULL,
    last_seq      INTEGER NOT NULL,
    reports       INTEGER NOT NULL,
    reason        TEXT NOT NULL,
    received_at   TEXT NOT NULL,
    tombstone     TEXT NOT NULL
) STRICT;
CREATE INDEX tombstones_by_observer ON tombstones (observer_id, boot_id, first_seq);
";

/// What is missing, for dashboards: what [`weir_report::arrivals`] finds, in SQL. Tests compare both.
const MISSING: &str = include_str!("missing.sql");

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file does not exist.
    #[error("there is no database {}: `weir-collect --listen ADDRESS --database {}` makes one", .0.display(), .0.display())]
    Missing(PathBuf),
    /// It belongs to another program.
    #[error("{} is the database of another program: name another file", .0.display())]
    Foreign(PathBuf),
    /// It was created by a later version of weir.
    #[error("{} was created by a newer weir (tables of version {version}, this weir knows {VERSION}): use that one", path.display())]
    Later {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: i32,
    },
    /// The file was moved or deleted while in use.
    #[error("{} is no longer the file that was opened: put it back, or start the collector again", .0.display())]
    Moved(PathBuf),
    /// The file cannot be created.
    #[error("cannot make {}: {cause}", path.display())]
    Make {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// `SQLite` reports an error.
    #[error("{}: {cause}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The error.
        cause: rusqlite::Error,
    },
}

/// The numbers of stored reports and tombstones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Reports.
    pub reports: i64,
    /// Tombstones.
    pub tombstones: i64,
}

/// The database for writing.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

/// Whether a line was in the database before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It was not there.
    Absent,
    /// It was there.
    Same,
    /// A different text with the same id was there, and is kept.
    Other,
}

impl Store {
    /// Opens the database, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// It cannot be opened or created, or the file is something else.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // SQLite follows links, no matter who has created them.
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(MODE);
        match plain_file::open_by_own_links(path, &options, OFlags::empty()) {
            Ok(_) => {}
            Err(cause) => return Err(StoreError::Make { path: path.to_owned(), cause }),
        }
        let says = |cause| StoreError::Sqlite { path: path.to_owned(), cause };
        let mut connection = connect(path)?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(says)?;
        debug_assert_eq!(mode, "wal");
        connection.pragma_update(None, "synchronous", "FULL").map_err(says)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(says)?;
        if !check(&transaction, path)? {
            transaction.execute_batch(TABLES).map_err(says)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(says)?;
            transaction.pragma_update(None, "user_version", VERSION).map_err(says)?;
        }
        transaction.execute_batch(MISSING).map_err(says)?;
        transaction.commit().map_err(says)?;
        let file = identity(path).map_err(|cause| StoreError::Make { path: path.to_owned(), cause })?;
        Ok(Self { connection, path: path.to_owned(), file })
    }

    /// The numbers of stored reports and tombstones.
    ///
    /// # Errors
    ///
    /// `SQLite` reports an error.
    pub fn counts(&self) -> Result<Counts, StoreError> {
        let counts = self.connection.query_row(
            "SELECT (SELECT count(*) FROM reports), (SELECT count(*) FROM tombstones)",
            [],
            |row| Ok(Counts { reports: row.get(0)?, tombstones: row.get(1)? }),
        );
        counts.map_err(|cause| self.says(cause))
    }

    /// Begins a transaction, which is rolled back unless it is committed.
    ///
    /// # Errors
    ///
    /// The database cannot be written now.
    pub fn begin(&mut self) -> Result<Batch<'_>, StoreError> {
        // SQLite would keep writing into a file that no longer has a name.
        if identity(&self.path).ok() != Some(self.file) {
            return Err(StoreError::Moved(self.path.clone()));
        }
        let path = &self.path;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        transaction
            .map(|transaction| Batch { transaction, path })
            .map_err(|cause| StoreError::Sqlite { path: path.clone(), cause })
    }

    /// Limits how long to wait for locks of other processes.
    #[cfg(test)]
    pub(super) fn wait_for_locks(&self, time: Duration) {
        self.connection.busy_timeout(time).unwrap();
    }

    fn says(&self, cause: rusqlite::Error) -> StoreError {
        StoreError::Sqlite { path: self.path.clone(), cause }
    }
}

/// A transaction.
pub struct Batch<'s> {
    transaction: Transaction<'s>,
    path: &'s Path,
}

impl Batch<'_> {
    /// Stores a line, unless its id is already there.
    ///
    /// # Errors
    ///
    /// It cannot be written now.
    pub fn put(&mut self, line: &Line<'_>, text: &str, now: Timestamp) -> Result<Before, StoreError> {
        self.try_put(line, text, now).map_err(|cause| StoreError::Sqlite { path: self.path.to_owned(), cause })
    }

    fn try_put(&mut self, line: &Line<'_>, text: &str, now: Timestamp) -> rusqlite::Result<Before> {
        let now = sortable(now);
        let (stored, known) = match line {
            Line::Report(ReportLine { id, observer, seq, previous, window_start, window_end, packets, bytes }) => {
                let mut insert = self.transaction.prepare_cached(
                    "INSERT INTO reports (id, observer_id, boot_id, seq, previous, observer_name, site, window_start, \
                     window_end, packets, bytes, received_at, report) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (id) DO NOTHING",
                )?;
                let stored = insert.execute(params![
                    id,
                    observer.id,
                    observer.boot_id,
                    seq,
                    previous,
                    observer.name,
                    observer.site,
                    window_start,
                    window_end,
                    packets,
                    bytes,
                    now,
                    text
                ])?;
                (stored, "SELECT report = ?2 FROM reports WHERE id = ?1")
            }
            Line::Tombstone(TombstoneLine { id, observer, first_seq, last_seq, reports, reason }) => {
                let mut insert = self.transaction.prepare_cached(
                    "INSERT INTO tombstones (id, observer_id, boot_id, first_seq, last_seq, reports, reason, received_at, \
                     tombstone) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO NOTHING",
                )?;
                let stored = insert.execute(params![
                    id,
                    observer.id,
                    observer.boot_id,
                    first_seq,
                    last_seq,
                    reports,
                    reason,
                    now,
                    text
                ])?;
                (stored, "SELECT tombstone = ?2 FROM tombstones WHERE id = ?1")
            }
        };
        if stored == 1 {
            return Ok(Before::Absent);
        }
        let same: bool =
            self.transaction.prepare_cached(known)?.query_row(params![line.id(), text], |row| row.get(0))?;
        Ok(if same { Before::Same } else { Before::Other })
    }

    /// Commits the transaction to disk.
    ///
    /// # Errors
    ///
    /// It cannot be written, and nothing of it is stored.
    pub fn commit(self) -> Result<(), StoreError> {
        self.transaction.commit().map_err(|cause| StoreError::Sqlite { path: self.path.to_owned(), cause })
    }
}

/// Opens the database for reading.
///
/// # Errors
///
/// It does not exist, or it cannot be opened.
pub fn look(path: &Path) -> Result<Connection, StoreError> {
    if matches!(fs::metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound) {
        return Err(StoreError::Missing(path.to_owned()));
    }
    let connection = connect(path)?;
    let says = |cause| StoreError::Sqlite { path: path.to_owned(), cause };
    connection.pragma_update(None, "query_only", true).map_err(says)?;
    if check(&connection, path)? { Ok(connection) } else { Err(StoreError::Missing(path.to_owned())) }
}

/// Opens a connection without creating a file.
fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.busy_timeout(LOCK_TIME_MAX)?;
        Ok(connection)
    });
    connection.map_err(|cause| StoreError::Sqlite { path: path.to_owned(), cause })
}

/// Whether the tables exist.
fn check(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let says = |cause| StoreError::Sqlite { path: path.to_owned(), cause };
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0)).map_err(says);
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let any = connection.query_row("SELECT 1 FROM sqlite_schema LIMIT 1", [], |_| Ok(())).optional().map_err(says)?;
    match (application, version, any) {
        (APPLICATION_ID, VERSION, Some(())) => Ok(true),
        (APPLICATION_ID, version, _) => Err(StoreError::Later { path: path.to_owned(), version }),
        (0, 0, None) => Ok(false),
        _ => Err(StoreError::Foreign(path.to_owned())),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A temporary directory.
    pub(crate) struct Folder(pub(crate) PathBuf);

    impl Folder {
        pub(crate) fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("weir-collect-{}-{number}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        pub(crate) fn database(&self) -> PathBuf {
            self.0.join("reports.db")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A report with a number and the id of its predecessor. Runs are in alphabetical order.
    pub(crate) fn report(boot: &str, seq: u64, previous: Option<&str>) -> String {
        let previous = previous.map_or_else(String::new, |id| format!(r#""previous":"{id}","#));
        format!(
            r#"{{"schema":"weir.report/1","id":"7f/{boot}/{seq}",{previous}"observer":{{"id":"7f","boot_id":"{boot}","seq":{seq},"name":"edge-1"}},"window":{{"start":"2026-11-20T{:02}:{:02}:{:02}Z","end":"2026-11-20T09:00:00Z"}},"totals":{{"packets":3,"bytes":300}}}}"#,
            8 + (boot.as_bytes()[0] - b'a'),
            seq / 60 % 60,
            seq % 60
        )
    }

    /// A tombstone of these numbers.
    pub(crate) fn tombstone(boot: &str, first: u64, last: u64, reason: &str) -> String {
        let reports = last - first + 1;
        format!(
            r#"{{"schema":"weir.tombstone/1","id":"7f/{boot}/{first}-{last}","observer":{{"id":"7f","boot_id":"{boot}"}},"first_seq":{first},"last_seq":{last},"reports":{reports},"reason":"{reason}"}}"#
        )
    }

    /// When lines arrive: after all windows.
    const ARRIVAL: &str = "2026-11-21T00:00:00Z";

    /// Stores lines.
    pub(crate) fn put(store: &mut Store, lines: &[String]) -> Vec<Before> {
        let mut batch = store.begin().unwrap();
        let put = |line: &String| batch.put(&Line::read(line).unwrap(), line, ARRIVAL.parse().unwrap()).unwrap();
        let before = lines.iter().map(put).collect();
        batch.commit().unwrap();
        before
    }

    #[test]
    fn a_repeated_line_is_stored_once() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        let lines = [report("a", 1, None), tombstone("a", 2, 3, "spool_full")];
        assert_eq!(put(&mut store, &lines), [Before::Absent; 2]);
        assert_eq!(put(&mut store, &lines), [Before::Same; 2]);
        let other = [lines[0].replace("edge-1", "edge-2"), lines[1].replace("spool_full", "too_old")];
        assert_eq!(put(&mut store, &other), [Before::Other; 2]);
        drop(store);
        let store = Store::open(&folder.database()).unwrap();
        assert_eq!(store.counts().unwrap(), Counts { reports: 1, tombstones: 1 });
        let kept = "SELECT (SELECT report FROM reports) || (SELECT tombstone FROM tombstones)";
        let kept: String = store.connection.query_row(kept, [], |row| row.get(0)).unwrap();
        assert_eq!(kept, lines.concat(), "as it came first");
        let mode = fs::metadata(folder.database()).unwrap().mode() & 0o777;
        assert_eq!(mode & !MODE, 0, "{mode:o}");
    }

    #[test]
    fn uncommitted_lines_are_not_stored() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        let line = report("a", 1, None);
        let mut batch = store.begin().unwrap();
        batch.put(&Line::read(&line).unwrap(), &line, Timestamp::UNIX_EPOCH).unwrap();
        drop(batch);
        assert_eq!(store.counts().unwrap().reports, 0);
    }

    #[test]
    fn each_commit_is_synced() {
        let folder = Folder::new();
        let store = Store::open(&folder.database()).unwrap();
        let pragma = |name| store.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(pragma("synchronous"), 2, "FULL");
        let mode: String = store.connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }

    #[test]
    fn a_file_that_is_something_else_is_refused() {
        let folder = Folder::new();
        let path = folder.database();
        assert!(matches!(look(&path), Err(StoreError::Missing(_))) && !path.exists());
        fs::write(&path, "this is a text, and no database at all, however long it goes on".repeat(40)).unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::Sqlite { .. })));
        fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::Foreign(_))));
        fs::remove_file(&path).unwrap();
        drop(Store::open(&path).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::Later { version: 7, .. })));
        assert!(matches!(look(&path), Err(StoreError::Later { version: 7, .. })));
        let nowhere = folder.0.join("no/such/folder/reports.db");
        assert!(matches!(Store::open(&nowhere), Err(StoreError::Make { .. })));
    }

    #[test]
    fn nothing_is_written_into_a_file_that_is_gone() {
        let folder = Folder::new();
        let path = folder.database();
        let mut store = Store::open(&path).unwrap();
        let aside = folder.0.join("aside.db");
        fs::rename(&path, &aside).unwrap();
        assert!(matches!(store.begin(), Err(StoreError::Moved(_))));
        fs::rename(&aside, &path).unwrap();
        assert!(store.begin().is_ok());
    }
}
