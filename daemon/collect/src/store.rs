//! The database: an `SQLite` file with each report and each tombstone once.
//!
//! Senders repeat a report until it is acknowledged, so the same report may come again at any time, even after a crash
//! of either side. The id of a report is therefore unique in the table, and a second report with the same id never
//! replaces the first one: if their contents differ, the id is noted as contested.
//!
//! A transaction is on disk before it is answered (write-ahead log, `synchronous=FULL`). Other processes may read
//! meanwhile.

use std::{
    collections::HashSet,
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

use weir_schema::{Content, limits::OBSERVERS_MAX};

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

/// The ids for which a second, different report or tombstone came. Databases of earlier versions do not have it until a
/// collector opens them.
const CONTESTED: &str = "
CREATE TABLE IF NOT EXISTS contested (
    id            TEXT PRIMARY KEY,
    observer_id   TEXT NOT NULL,
    first_at      TEXT NOT NULL,
    last_at       TEXT NOT NULL,
    arrivals      INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS contested_by_observer ON contested (observer_id);
";

/// All observers. Each is found by an index, so their reports are not read.
pub const OBSERVERS: &str = "
WITH RECURSIVE of_reports (observer) AS (
    SELECT min(observer_id) FROM reports UNION ALL
    SELECT (SELECT min(observer_id) FROM reports WHERE observer_id > observer) FROM of_reports
    WHERE observer IS NOT NULL
), of_tombstones (observer) AS (
    SELECT min(observer_id) FROM tombstones UNION ALL
    SELECT (SELECT min(observer_id) FROM tombstones WHERE observer_id > observer) FROM of_tombstones
    WHERE observer IS NOT NULL
)
SELECT observer FROM of_reports WHERE observer IS NOT NULL UNION
SELECT observer FROM of_tombstones WHERE observer IS NOT NULL";

/// The missing reports, for dashboards: the result of [`weir_schema::arrivals`], in SQL. Tests compare both.
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
        /// The path of the database.
        path: PathBuf,
        /// The version of its tables.
        version: i32,
    },
    /// The file was moved or deleted while in use.
    #[error("{} is no longer the file that was opened: put it back, or start the collector again", .0.display())]
    Moved(PathBuf),
    /// The file cannot be created.
    #[error("cannot make {}: {cause}", path.display())]
    Make {
        /// The path of the database.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// `SQLite` reports an error.
    #[error("{}: {cause}", path.display())]
    Sqlite {
        /// The path of the database.
        path: PathBuf,
        /// `SQLite`'s error.
        cause: rusqlite::Error,
    },
}

/// The numbers of stored reports and tombstones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The number of reports.
    pub reports: i64,
    /// The number of tombstones.
    pub tombstones: i64,
}

/// The database for writing.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// The device and inode of the file.
    file: (u64, u64),
    observers: Observers,
}

/// The observers that the database has, or had.
#[derive(Debug)]
struct Observers {
    known: HashSet<String>,
    most: usize,
}

/// The state of a line in the database before it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It was not there.
    Absent,
    /// The same line was there.
    Same,
    /// A different report or tombstone with the same id was there, and is kept.
    Other,
    /// It was not there, and there is no room for its observer.
    NoRoom,
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
        transaction.execute_batch(CONTESTED).map_err(says)?;
        let observers = Observers { known: Observers::read(&transaction).map_err(says)?, most: OBSERVERS_MAX };
        transaction.commit().map_err(says)?;
        let file = identity(path).map_err(|cause| StoreError::Make { path: path.to_owned(), cause })?;
        Ok(Self { connection, path: path.to_owned(), file, observers })
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
        let Self { connection, path, file: _, observers } = self;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        transaction
            .map(|transaction| Batch { transaction, path, observers, are_current: false })
            .map_err(|cause| StoreError::Sqlite { path: path.clone(), cause })
    }

    /// Limits the number of observers.
    #[cfg(test)]
    pub(super) fn limit_observers(&mut self, most: usize) {
        self.observers.most = most;
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

impl Observers {
    fn read(connection: &Connection) -> rusqlite::Result<HashSet<String>> {
        connection.prepare(OBSERVERS)?.query_map([], |row| row.get(0))?.collect()
    }
}

/// A transaction, which stores lines together.
pub struct Batch<'s> {
    transaction: Transaction<'s>,
    path: &'s Path,
    observers: &'s mut Observers,
    /// True if the observers were read again in this transaction.
    are_current: bool,
}

impl Batch<'_> {
    /// Stores a line, unless its id is already there, or it is of an observer for which there is no room.
    ///
    /// # Errors
    ///
    /// It cannot be written now.
    pub fn put(&mut self, line: &Line<'_>, text: &str, now: Timestamp) -> Result<Before, StoreError> {
        self.try_put(line, text, now).map_err(|cause| StoreError::Sqlite { path: self.path.to_owned(), cause })
    }

    fn try_put(&mut self, line: &Line<'_>, text: &str, now: Timestamp) -> rusqlite::Result<Before> {
        let now = sortable(now);
        if !self.make_room(&line.observer().id)? {
            return Ok(Before::NoRoom);
        }
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
                (stored, "SELECT report FROM reports WHERE id = ?1")
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
                (stored, "SELECT tombstone FROM tombstones WHERE id = ?1")
            }
        };
        if stored == 1 {
            return Ok(Before::Absent);
        }
        let known: String = self.transaction.prepare_cached(known)?.query_row([line.id()], |row| row.get(0))?;
        if known == text || Content::read(&known).ok() == Content::read(text).ok() {
            return Ok(Before::Same);
        }
        let mut contest = self.transaction.prepare_cached(
            "INSERT INTO contested (id, observer_id, first_at, last_at, arrivals) VALUES (?1, ?2, ?3, ?3, 1) \
             ON CONFLICT (id) DO UPDATE SET last_at = excluded.last_at, arrivals = arrivals + 1",
        )?;
        contest.execute(params![line.id(), line.observer().id, now])?;
        Ok(Before::Other)
    }

    /// Counts this observer as known. Returns whether there is room for it.
    fn make_room(&mut self, id: &str) -> rusqlite::Result<bool> {
        let is_full = |observers: &Observers| !observers.known.contains(id) && observers.known.len() >= observers.most;
        // Another process may have deleted the reports of other observers.
        if is_full(self.observers) && !self.are_current {
            self.observers.known = Observers::read(&self.transaction)?;
            self.are_current = true;
        }
        let has_room = !is_full(self.observers);
        if has_room && !self.observers.known.contains(id) {
            self.observers.known.insert(id.to_owned());
        }
        Ok(has_room)
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

/// Returns true if the tables exist, and checks their version.
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
            r#"{{"schema":"weir.report/1","id":"7f/{boot}/{seq}",{previous}"observer":{{"id":"7f","boot_id":"{boot}","seq":{seq},"name":"edge-1"}},"window":{{"start":"2026-11-20T{:02}:{:02}:{:02}Z","end":"2026-11-20T{:02}:00:00Z"}},"totals":{{"packets":3,"bytes":300}}}}"#,
            8 + (boot.as_bytes()[0] - b'a'),
            seq / 60 % 60,
            seq % 60,
            9 + (boot.as_bytes()[0] - b'a'),
        )
    }

    /// A tombstone of these numbers.
    pub(crate) fn tombstone(boot: &str, first: u64, last: u64, reason: &str) -> String {
        let reports = last - first + 1;
        format!(
            r#"{{"schema":"weir.tombstone/1","id":"7f/{boot}/{first}-{last}","observer":{{"id":"7f","boot_id":"{boot}"}},"first_seq":{first},"last_seq":{last},"reports":{reports},"reason":"{reason}"}}"#
        )
    }

    /// The time of arrival in tests, which is after all windows.
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
        let copies = lines.clone().map(|line| line.replacen(":", " : ", 1));
        assert_eq!(put(&mut store, &copies), [Before::Same; 2], "a program between may write it otherwise");
        assert_eq!(put(&mut store, &other), [Before::Other; 2]);
        drop(store);
        let store = Store::open(&folder.database()).unwrap();
        assert_eq!(store.counts().unwrap(), Counts { reports: 1, tombstones: 1 });
        let contested = "SELECT group_concat(id || ' ' || arrivals, ', ' ORDER BY id) FROM contested";
        let contested: String = store.connection.query_row(contested, [], |row| row.get(0)).unwrap();
        assert_eq!(contested, "7f/a/1 1, 7f/a/2-3 1");
        let kept = "SELECT (SELECT report FROM reports) || (SELECT tombstone FROM tombstones)";
        let kept: String = store.connection.query_row(kept, [], |row| row.get(0)).unwrap();
        assert_eq!(kept, lines.concat(), "as it came first");
        let mode = fs::metadata(folder.database()).unwrap().mode() & 0o777;
        assert_eq!(mode & !MODE, 0, "{mode:o}");
    }

    #[test]
    fn only_so_many_observers_are_stored() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        store.limit_observers(2);
        let [one, two, three] = ["7f", "80", "81"].map(|id| report("a", 1, None).replace("7f", id));
        let of_three = tombstone("a", 2, 3, "too_old").replace("7f", "81");
        let all =
            [one.clone(), two, three.clone(), of_three, one.replace("a/1", "a/2").replace("\"seq\":1", "\"seq\":2")];
        let stored = [Before::Absent, Before::Absent, Before::NoRoom, Before::NoRoom, Before::Absent];
        assert_eq!(put(&mut store, &all), stored);
        let other = Connection::open(folder.database()).unwrap();
        other.execute("DELETE FROM reports WHERE observer_id = '7f'", []).unwrap();
        assert_eq!(put(&mut store, &[three]), [Before::Absent]);
        drop(store);
        let store = Store::open(&folder.database()).unwrap();
        assert_eq!(store.observers.known, ["80", "81"].map(str::to_owned).into());
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
