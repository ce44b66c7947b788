//! Windows, tombstones and observers, as they are in the database.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;

use super::{LAST_WINDOWS, gaps::Gaps, of};

/// A report, as the table of windows shows it.
#[derive(Debug, Serialize)]
pub struct Window {
    /// The id of the report.
    pub id: String,
    /// When its window began.
    pub start: String,
    /// When its window ended.
    pub end: String,
    /// The identity of the observer.
    pub observer: String,
    /// The name of the observer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The run of the daemon.
    pub boot_id: String,
    /// The number of the report.
    pub seq: i64,
    /// Packets of its totals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<i64>,
    /// Bytes of its totals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
}

/// Reports that a sender had to drop.
#[derive(Clone, Debug, Serialize)]
pub struct Tombstone {
    /// The id of the tombstone.
    pub id: String,
    /// The time at which it arrived.
    pub received_at: String,
    /// The identity of the observer.
    pub observer: String,
    /// The run of the daemon.
    pub boot_id: String,
    /// The first sequence number.
    pub first_seq: i64,
    /// The last sequence number.
    pub last_seq: i64,
    /// The number of reports that it stands for.
    pub reports: i64,
    /// The reason why they were dropped.
    pub reason: String,
}

/// An observer that has sent reports.
#[derive(Clone, Debug, Serialize)]
pub struct Observer {
    /// The identity of the observer.
    pub observer: String,
    /// The name in its last report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The site in its last report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The number of its runs.
    pub runs: u64,
    /// The number of its stored reports.
    pub reports: u64,
    /// When the first window began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_window: Option<String>,
    /// When the last window ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_window: Option<String>,
    /// Missing reports that it has declared as dropped.
    pub dropped: u64,
    /// Missing reports without an explanation.
    pub unexplained: u64,
    /// The number of ids for which a second, different report or tombstone came.
    pub contested: u64,
    /// The number of its runs that were not one after the other.
    pub cloned: u64,
}

/// An id for which a second, different report or tombstone came.
#[derive(Clone, Debug, Serialize)]
pub struct Contested {
    /// The id of the report or tombstone.
    pub id: String,
    /// The identity of the observer.
    pub observer: String,
    /// When another one came first.
    pub first_at: String,
    /// When another one came last.
    pub last_at: String,
    /// How often another one came.
    pub arrivals: u64,
}

/// The latest windows, in ascending order.
pub(super) fn windows(
    connection: &Connection,
    observer: Option<&str>,
    limit: Option<u32>,
) -> rusqlite::Result<Vec<Window>> {
    // The rows are chosen by an index, so the others are not read.
    let sql = format!(
        "SELECT id, window_start, window_end, observer_id, observer_name, boot_id, seq, packets, bytes FROM reports \
         WHERE number IN (SELECT number FROM reports WHERE {} ORDER BY window_start DESC, number DESC LIMIT ?2) \
         ORDER BY window_start DESC, number DESC",
        of(observer)
    );
    let window = |row: &Row<'_>| {
        Ok(Window {
            id: row.get(0)?,
            start: row.get(1)?,
            end: row.get(2)?,
            observer: row.get(3)?,
            name: row.get(4)?,
            boot_id: row.get(5)?,
            seq: row.get(6)?,
            packets: row.get(7)?,
            bytes: row.get(8)?,
        })
    };
    latest(connection, &sql, observer, limit, window)
}

/// The latest tombstones, in ascending order.
pub(super) fn tombstones(
    connection: &Connection,
    observer: Option<&str>,
    limit: Option<u32>,
) -> rusqlite::Result<Vec<Tombstone>> {
    let sql = format!(
        "SELECT id, received_at, observer_id, boot_id, first_seq, last_seq, reports, reason FROM tombstones \
         WHERE {} ORDER BY number DESC LIMIT ?2",
        of(observer)
    );
    let tombstone = |row: &Row<'_>| {
        Ok(Tombstone {
            id: row.get(0)?,
            received_at: row.get(1)?,
            observer: row.get(2)?,
            boot_id: row.get(3)?,
            first_seq: row.get(4)?,
            last_seq: row.get(5)?,
            reports: row.get(6)?,
            reason: row.get(7)?,
        })
    };
    latest(connection, &sql, observer, limit, tombstone)
}

fn latest<R>(
    connection: &Connection,
    sql: &str,
    observer: Option<&str>,
    limit: Option<u32>,
    row: fn(&Row<'_>) -> rusqlite::Result<R>,
) -> rusqlite::Result<Vec<R>> {
    // A negative limit means no limit.
    let limit = limit.map_or(-1, i64::from);
    let mut rows: Vec<R> =
        connection.prepare(sql)?.query_map(params![observer, limit], row)?.collect::<Result<_, _>>()?;
    rows.reverse();
    Ok(rows)
}

/// The number of rows in a table, of one observer or of all.
pub(super) fn count(connection: &Connection, table: &str, observer: Option<&str>) -> rusqlite::Result<u64> {
    let sql = format!("SELECT count(*) FROM {table} WHERE {}", of(observer));
    let count: i64 = connection.query_row(&sql, params![observer], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// An observer, perhaps with only tombstones.
pub(super) fn observer(connection: &Connection, id: &str, missing: &Gaps) -> rusqlite::Result<Observer> {
    let Gaps { gaps: _, dropped, unexplained, clones: _, cloned } = *missing;
    let mut sums = connection.prepare_cached(
        "SELECT count(*), min(window_start), max(number), (SELECT count(*) FROM \
         (SELECT boot_id FROM reports WHERE observer_id = ?1 UNION SELECT boot_id FROM tombstones WHERE observer_id = ?1)) \
         FROM reports WHERE observer_id = ?1",
    )?;
    let (reports, first_window, last, runs) = sums.query_row([id], |row| {
        Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get::<_, Option<i64>>(2)?, row.get::<_, i64>(3)?))
    })?;
    let mut ends =
        connection.prepare_cached(&format!("SELECT max(window_end) FROM reports WHERE number IN {LAST_WINDOWS}"))?;
    let last_window = ends.query_row(params![id, 1], |row| row.get(0))?;
    let mut who = connection.prepare_cached("SELECT observer_name, site FROM reports WHERE number = ?1")?;
    let (name, site) = who.query_row([last], |row| Ok((row.get(0)?, row.get(1)?))).optional()?.unwrap_or_default();
    let (runs, reports) = (runs.unsigned_abs(), reports.unsigned_abs());
    let contested = if find_contested(connection)? { count(connection, "contested", Some(id))? } else { 0 };
    let observer = id.to_owned();
    Ok(Observer {
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
    })
}

/// Looks up whether there is a table of contested ids: a database of an earlier version has none.
pub(super) fn find_contested(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'contested'";
    connection.prepare_cached(sql)?.exists([])
}

/// The latest contested ids, in ascending order.
pub(super) fn contested(
    connection: &Connection,
    observer: Option<&str>,
    limit: Option<u32>,
) -> rusqlite::Result<Vec<Contested>> {
    if !find_contested(connection)? {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT id, observer_id, first_at, last_at, arrivals FROM contested WHERE {} ORDER BY last_at DESC, id LIMIT ?2",
        of(observer)
    );
    let contested = |row: &Row<'_>| {
        Ok(Contested {
            id: row.get(0)?,
            observer: row.get(1)?,
            first_at: row.get(2)?,
            last_at: row.get(3)?,
            arrivals: row.get::<_, i64>(4)?.unsigned_abs(),
        })
    };
    latest(connection, &sql, observer, limit, contested)
}
