//! Prints the content of the database (`weir collect query`): as tables for people, or as lines of JSON. It reads a
//! consistent snapshot, even while the collector writes.

mod gaps;
mod rows;

use std::{
    io::{self, Write},
    path::Path,
};

use clap::ValueEnum;
use rusqlite::Connection;
use serde::Serialize;
use weir_schema::grid::{Align, Cell, Grid, Tone};
use weir_system::numbers::{self, grouped};

pub(crate) use self::gaps::Gaps;
pub use self::gaps::{Clone, Gap, Numbers, Status};
pub use self::rows::{Contested, Observer, Tombstone, Window};
use super::store::{self, StoreError};

/// Default number of rows in a table.
const ROWS: u32 = 20;
/// Default number of gaps in a table.
const GAPS: u32 = 1_000;

/// The table that a query prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Topic {
    /// Each report: its window, and what it counted
    Windows,
    /// Who has sent reports, how many, and how many are missing
    Observers,
    /// Numbers of reports that are missing, and what explains them
    Gaps,
    /// Reports that senders had to drop, and why
    Tombstones,
    /// Ids of which another report came than the stored one
    Contested,
    /// Runs that were not one after the other: two routers have one identity
    Clones,
}

/// The options of a query.
#[derive(Clone, Copy, Debug)]
pub struct Query<'q> {
    /// The table to print.
    pub topic: Topic,
    /// True to print JSON.
    pub json: bool,
    /// Restricts the table to this observer.
    pub observer: Option<&'q str>,
    /// Maximum number of rows.
    pub limit: Option<u32>,
}

/// Why a query fails.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The database cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Runs a query and writes the result.
///
/// # Errors
///
/// The database cannot be read, or the output cannot be written.
pub fn run(path: &Path, query: &Query<'_>, out: &mut impl Write) -> Result<(), QueryError> {
    let mut connection = store::look(path)?;
    let says = |cause| StoreError::Sqlite { path: path.to_owned(), cause };
    let transaction = connection.transaction().map_err(says)?;
    let rows = if query.topic == Topic::Gaps { GAPS } else { ROWS };
    let limit = query.limit.or((!query.json).then_some(rows));
    match query.topic {
        Topic::Windows => {
            let windows = rows::windows(&transaction, query.observer, limit).map_err(says)?;
            let all = rows::count(&transaction, "reports", query.observer).map_err(says)?;
            write(query.json, "WINDOWS", &windows, Window::COLUMNS, Window::cells, out)?;
            more(query.json, windows.len(), all, "windows", out)?;
        }
        Topic::Tombstones => {
            let tombstones = rows::tombstones(&transaction, query.observer, limit).map_err(says)?;
            let all = rows::count(&transaction, "tombstones", query.observer).map_err(says)?;
            write(query.json, "TOMBSTONES", &tombstones, Tombstone::COLUMNS, Tombstone::cells, out)?;
            more(query.json, tombstones.len(), all, "tombstones", out)?;
        }
        Topic::Contested => {
            let contested = rows::contested(&transaction, query.observer, limit).map_err(says)?;
            let all = rows::find_contested(&transaction)
                .and_then(|is_there| {
                    is_there.then(|| rows::count(&transaction, "contested", query.observer)).transpose()
                })
                .map_err(says)?;
            write(query.json, "CONTESTED", &contested, Contested::COLUMNS, Contested::cells, out)?;
            more(query.json, contested.len(), all.unwrap_or_default(), "ids", out)?;
        }
        Topic::Gaps => {
            let (mut shown, mut all, mut unexplained) = (Vec::new(), 0, 0_u64);
            let room = limit.map_or(usize::MAX, |limit| limit as usize);
            for observer in gaps::observers(&transaction, query.observer).map_err(says)? {
                let of = Gaps::of(&transaction, &observer).map_err(says)?;
                all += of.gaps.len() as u64;
                unexplained = unexplained.saturating_add(of.unexplained);
                shown.extend(of.gaps.into_iter().take(room.saturating_sub(shown.len())));
                if query.json {
                    write(true, "", &shown, Gap::COLUMNS, Gap::cells, out)?;
                    shown.clear();
                }
            }
            if !query.json {
                write(false, "GAPS", &shown, Gap::COLUMNS, Gap::cells, out)?;
                if (shown.len() as u64) < all {
                    writeln!(out, "  {} of {} gaps: --limit NUMBER prints more", shown.len(), grouped(all))?;
                }
                writeln!(out, "  unexplained: {}", grouped(unexplained))?;
            }
        }
        Topic::Clones => {
            let mut clones = Vec::new();
            for observer in gaps::observers(&transaction, query.observer).map_err(says)? {
                clones.extend(Gaps::of(&transaction, &observer).map_err(says)?.clones);
            }
            let all = clones.len() as u64;
            clones.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
            write(query.json, "CLONES", &clones, Clone::COLUMNS, Clone::cells, out)?;
            more(query.json, clones.len(), all, "runs", out)?;
        }
        Topic::Observers => {
            let ids = gaps::observers(&transaction, query.observer).map_err(says)?;
            let observers = ids.iter().map(|id| rows::observer(&transaction, id, &Gaps::of(&transaction, id)?));
            let observers: Vec<Observer> = observers.collect::<Result<_, _>>().map_err(says)?;
            write(query.json, "OBSERVERS", &observers, Observer::COLUMNS, Observer::cells, out)?;
        }
    }
    Ok(())
}

/// An observer, and its gaps; `None` if nothing of it is stored.
pub(crate) fn observer(connection: &Connection, id: &str) -> rusqlite::Result<Option<(Observer, Gaps)>> {
    if gaps::observers(connection, Some(id))?.is_empty() {
        return Ok(None);
    }
    let gaps = Gaps::of(connection, id)?;
    Ok(Some((rows::observer(connection, id, &gaps)?, gaps)))
}

/// The latest tombstones, in ascending order.
pub(crate) fn tombstones(connection: &Connection, limit: u32) -> rusqlite::Result<Vec<Tombstone>> {
    rows::tombstones(connection, None, Some(limit))
}

/// The number of rows in a table.
pub(crate) fn count(connection: &Connection, table: &str) -> rusqlite::Result<u64> {
    rows::count(connection, table, None)
}

/// The numbers of the last windows of observer `?1`, at most `?2`. An index has all that this needs, so no report is
/// read.
pub(crate) const LAST_WINDOWS: &str =
    "(SELECT number FROM reports WHERE observer_id = ?1 ORDER BY window_start DESC, number DESC LIMIT ?2)";

/// The condition for rows of observer `?1`, or of all. With an `OR` for both `SQLite` would not use the index.
const fn of(observer: Option<&str>) -> &'static str {
    if observer.is_some() { "observer_id = ?1" } else { "?1 IS NULL" }
}

/// The heading and alignment of a column.
type Column = (&'static str, Align);

/// Writes rows as JSON, or as a table.
fn write<R: Serialize>(
    json: bool,
    title: &str,
    rows: &[R],
    columns: &[Column],
    cells: fn(&R) -> Vec<String>,
    out: &mut impl Write,
) -> io::Result<()> {
    if json {
        return rows.iter().try_for_each(|row| {
            serde_json::to_writer(&mut *out, row)?;
            writeln!(out)
        });
    }
    writeln!(out, "{title}")?;
    if rows.is_empty() {
        return writeln!(out, "  none");
    }
    let mut grid = Grid::new(columns.iter().map(|(_, align)| *align));
    grid.row(columns.iter().map(|(name, _)| Cell::new(name, Tone::Faint)));
    for row in rows {
        grid.row(cells(row).into_iter().map(Cell::from));
    }
    grid.write(false, out)
}

/// Writes how many rows there are beyond those shown in a table.
fn more(json: bool, shown: usize, all: u64, what: &str, out: &mut impl Write) -> io::Result<()> {
    if json || shown as u64 >= all {
        return Ok(());
    }
    writeln!(out, "  the latest {shown} of {} {what}: --limit NUMBER prints more", grouped(all))
}

/// A number that may be unknown.
fn optional(number: Option<i64>, text: fn(u64) -> String) -> String {
    number.and_then(|number| u64::try_from(number).ok()).map_or_else(|| "-".to_owned(), text)
}

impl Window {
    const COLUMNS: &'static [Column] = &[
        ("start", Align::Left),
        ("end", Align::Left),
        ("observer", Align::Left),
        ("name", Align::Left),
        ("run", Align::Left),
        ("number", Align::Right),
        ("packets", Align::Right),
        ("bytes", Align::Right),
    ];

    fn cells(&self) -> Vec<String> {
        let Self { id: _, start, end, observer, name, boot_id, seq, packets, bytes } = self;
        vec![
            start.clone(),
            end.clone(),
            observer.clone(),
            name.clone().unwrap_or_else(|| "-".to_owned()),
            boot_id.clone(),
            seq.to_string(),
            optional(*packets, grouped),
            optional(*bytes, numbers::bytes),
        ]
    }
}

impl Tombstone {
    const COLUMNS: &'static [Column] = &[
        ("received", Align::Left),
        ("observer", Align::Left),
        ("run", Align::Left),
        ("first", Align::Right),
        ("last", Align::Right),
        ("reports", Align::Right),
        ("reason", Align::Left),
    ];

    fn cells(&self) -> Vec<String> {
        let Self { id: _, received_at, observer, boot_id, first_seq, last_seq, reports, reason } = self;
        vec![
            received_at.clone(),
            observer.clone(),
            boot_id.clone(),
            first_seq.to_string(),
            last_seq.to_string(),
            optional(Some(*reports), grouped),
            reason.clone(),
        ]
    }
}

impl Gap {
    const COLUMNS: &'static [Column] = &[
        ("observer", Align::Left),
        ("run", Align::Left),
        ("first", Align::Right),
        ("last", Align::Right),
        ("reports", Align::Right),
        ("explained by", Align::Left),
    ];

    fn cells(&self) -> Vec<String> {
        let Self { observer, numbers, reports, status, reason } = self;
        let explained = match status {
            Status::Unexplained => "nothing: unexplained".to_owned(),
            Status::Dropped => format!("the sender: {}", reason.as_deref().unwrap_or("-")),
            Status::BeforeFirst => "before the first stored report".to_owned(),
        };
        let [boot_id, first, last] = match numbers {
            Some(Numbers { boot_id, first_seq, last_seq }) => {
                [boot_id.clone(), first_seq.to_string(), last_seq.to_string()]
            }
            None => ["earlier ones".to_owned(), "-".to_owned(), "-".to_owned()],
        };
        vec![observer.clone(), boot_id, first, last, grouped(*reports), explained]
    }
}

impl Clone {
    const COLUMNS: &'static [Column] =
        &[("observer", Align::Left), ("run", Align::Left), ("", Align::Left), ("other run", Align::Left)];

    fn cells(&self) -> Vec<String> {
        let Self { observer, boot_id, sign, other_boot_id } = self;
        vec![observer.clone(), boot_id.clone(), sign.name().to_owned(), other_boot_id.clone()]
    }
}

impl Contested {
    const COLUMNS: &'static [Column] = &[
        ("id", Align::Left),
        ("first another one", Align::Left),
        ("last another one", Align::Left),
        ("times", Align::Right),
    ];

    fn cells(&self) -> Vec<String> {
        let Self { id, observer: _, first_at, last_at, arrivals } = self;
        vec![id.clone(), first_at.clone(), last_at.clone(), grouped(*arrivals)]
    }
}

impl Observer {
    const COLUMNS: &'static [Column] = &[
        ("observer", Align::Left),
        ("name", Align::Left),
        ("site", Align::Left),
        ("runs", Align::Right),
        ("reports", Align::Right),
        ("first window", Align::Left),
        ("last window", Align::Left),
        ("dropped", Align::Right),
        ("unexplained", Align::Right),
        ("contested", Align::Right),
        ("cloned", Align::Right),
    ];

    fn cells(&self) -> Vec<String> {
        let Self {
            observer,
            name,
            site,
            runs,
            reports,
            first_window,
            last_window,
            dropped,
            unexplained,
            contested,
            cloned,
        } = self;
        vec![
            observer.clone(),
            or_dash(name),
            or_dash(site),
            runs.to_string(),
            grouped(*reports),
            or_dash(first_window),
            or_dash(last_window),
            grouped(*dropped),
            grouped(*unexplained),
            grouped(*contested),
            grouped(*cloned),
        ]
    }
}

fn or_dash(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{
        super::store::{
            Store,
            tests::{Folder, put, report, tombstone},
        },
        *,
    };

    fn ask(folder: &Folder, topic: Topic, json: bool) -> String {
        let mut out = Vec::new();
        let query = Query { topic, json, observer: None, limit: None };
        run(&folder.database(), &query, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn queries_work_while_the_collector_writes() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        assert_eq!(ask(&folder, Topic::Windows, false), "WINDOWS\n  none\n");
        put(&mut store, &[report("a", 1, None), tombstone("a", 2, 3, "spool_full"), report("a", 5, Some("7f/a/4"))]);
        // Another transaction is open.
        let _batch = store.begin().unwrap();
        assert_eq!(
            ask(&folder, Topic::Windows, false),
            "WINDOWS
  start                     end                       observer  name    run  number  packets  bytes
  2026-11-20T08:00:01.000Z  2026-11-20T09:00:00.000Z  7f        edge-1  a         1        3  300 B
  2026-11-20T08:00:05.000Z  2026-11-20T09:00:00.000Z  7f        edge-1  a         5        3  300 B
"
        );
        assert_eq!(
            ask(&folder, Topic::Gaps, false),
            "GAPS
  observer  run  first  last  reports  explained by
  7f        a        2     3        2  the sender: spool_full
  7f        a        4     4        1  nothing: unexplained
  unexplained: 1
"
        );
        assert_eq!(
            ask(&folder, Topic::Tombstones, false),
            "TOMBSTONES
  received                  observer  run  first  last  reports  reason
  2026-11-21T00:00:00.000Z  7f        a        2     3        2  spool_full
"
        );
        let observers = ask(&folder, Topic::Observers, true);
        let observer: serde_json::Value = serde_json::from_str(&observers).unwrap();
        assert_eq!(
            (&observer["reports"], &observer["dropped"], &observer["unexplained"]),
            (&2.into(), &2.into(), &1.into())
        );
        assert_eq!((&observer["name"], &observer["runs"]), (&"edge-1".into(), &1.into()));
        let gaps = ask(&folder, Topic::Gaps, true);
        assert_eq!(
            gaps.lines().last(),
            Some(r#"{"observer":"7f","boot_id":"a","first_seq":4,"last_seq":4,"reports":1,"status":"unexplained"}"#)
        );
    }

    #[test]
    fn contested_ids_are_listed() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        assert_eq!(ask(&folder, Topic::Contested, false), "CONTESTED\n  none\n");
        let (one, two) = (report("a", 1, None), report("a", 2, Some("7f/a/1")));
        let cloned = two.replace("edge-1", "edge-2");
        put(&mut store, &[one.clone(), two, one, cloned.clone(), cloned]);
        assert_eq!(
            ask(&folder, Topic::Contested, false),
            "CONTESTED
  id      first another one         last another one          times
  7f/a/2  2026-11-21T00:00:00.000Z  2026-11-21T00:00:00.000Z      2
"
        );
        let observers = ask(&folder, Topic::Observers, true);
        assert!(observers.contains(r#""contested":1"#), "{observers}");
        // A database of an earlier version.
        drop(store);
        Connection::open(folder.database()).unwrap().execute_batch("DROP TABLE contested").unwrap();
        assert_eq!(ask(&folder, Topic::Contested, true), "");
        assert!(ask(&folder, Topic::Observers, true).contains(r#""contested":0"#));
    }

    #[test]
    fn runs_of_a_clone_are_listed() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        assert_eq!(ask(&folder, Topic::Clones, false), "CLONES\n  none\n");
        let original = [report("a", 1, None), report("a", 2, Some("7f/a/1")), report("a", 3, Some("7f/a/2"))];
        put(&mut store, &[&original[..], &[report("b", 3, Some("7f/a/2"))]].concat());
        assert_eq!(
            ask(&folder, Topic::Clones, false),
            "CLONES
  observer  run                           other run
  7f        b    began before the end of  a
"
        );
        let row = r#"{"observer":"7f","boot_id":"b","sign":"other_went_on","other_boot_id":"a"}"#;
        assert_eq!(ask(&folder, Topic::Clones, true).trim_end(), row);
        let observers = ask(&folder, Topic::Observers, true);
        assert!(observers.contains(r#""cloned":1"#), "{observers}");
    }

    #[test]
    fn a_table_shows_the_latest_rows_and_counts_the_others() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        let reports: Vec<_> = (1..=30).map(|seq| report("a", seq, None)).collect();
        put(&mut store, &reports);
        let table = ask(&folder, Topic::Windows, false);
        assert!(table.ends_with("  the latest 20 of 30 windows: --limit NUMBER prints more\n"), "{table}");
        assert!(table.contains("  08:00:30") || table.contains("T08:00:30") && !table.contains("T08:00:10"), "{table}");
        assert_eq!(ask(&folder, Topic::Windows, true).lines().count(), 30);
        let query = Query { topic: Topic::Windows, json: true, observer: Some("nobody"), limit: None };
        let mut out = Vec::new();
        run(&folder.database(), &query, &mut out).unwrap();
        assert!(out.is_empty());
    }
}
