//! Which reports are missing: what [`weir_report::arrivals`] finds in the database.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use serde::Serialize;
use weir_report::arrivals::{Arrivals, Sent};

use super::of;

pub use weir_report::arrivals::Status;

/// Consecutive numbers of one run that are missing for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The identity of the observer.
    pub observer: String,
    /// The run of the daemon.
    pub boot_id: String,
    /// The first number.
    pub first_seq: u64,
    /// The last number.
    pub last_seq: u64,
    /// The number of reports.
    pub reports: u64,
    /// What explains it.
    pub status: Status,
    /// The reason in the tombstone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The number of reports that are missing in these gaps.
pub(super) fn reports<'g>(gaps: impl IntoIterator<Item = &'g Gap>, chosen: impl Fn(Status) -> bool) -> u64 {
    gaps.into_iter().filter(|gap| chosen(gap.status)).fold(0, |sum, gap| sum.saturating_add(gap.reports))
}

/// All gaps, by observer, sequence and number.
pub(super) fn gaps(connection: &Connection, observer: Option<&str>) -> rusqlite::Result<Vec<Gap>> {
    let mut observers: BTreeMap<String, Arrivals<String>> = BTreeMap::new();
    let of = of(observer);
    let mut sql = connection.prepare(&format!(
        "SELECT observer_id, boot_id, seq, previous, window_start FROM reports \
         WHERE {of} ORDER BY observer_id, boot_id, seq"
    ))?;
    let mut rows = sql.query(params![observer])?;
    while let Some(row) = rows.next()? {
        let (observer, boot_id, previous): (String, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(3)?);
        let sent = Sent {
            observer: &observer,
            boot_id: &boot_id,
            seq: row.get::<_, i64>(2)?.unsigned_abs(),
            previous: previous.as_deref(),
            start: row.get(4)?,
        };
        match observers.get_mut(&observer) {
            Some(arrivals) => arrivals.report(sent),
            None => observers.entry(observer.clone()).or_default().report(sent),
        };
    }
    let mut sql = connection.prepare(&format!(
        "SELECT observer_id, boot_id, first_seq, last_seq, reason FROM tombstones \
         WHERE {of} ORDER BY observer_id, boot_id, first_seq"
    ))?;
    let mut rows = sql.query(params![observer])?;
    while let Some(row) = rows.next()? {
        let (boot_id, reason): (String, String) = (row.get(1)?, row.get(4)?);
        let [first, last] = [row.get::<_, i64>(2)?, row.get(3)?].map(i64::unsigned_abs);
        observers.entry(row.get(0)?).or_default().tombstone(&boot_id, first, last, &reason);
    }
    let gaps = observers.iter().flat_map(|(observer, arrivals)| {
        arrivals.gaps().into_iter().map(|gap| Gap {
            observer: observer.clone(),
            first_seq: gap.first,
            last_seq: gap.last,
            reports: gap.reports(),
            boot_id: gap.boot_id,
            status: gap.status,
            reason: gap.reason,
        })
    });
    Ok(gaps.collect())
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::store::{
            Store, look,
            tests::{Folder, put, report, tombstone},
        },
        *,
    };

    /// The gaps as text: run, numbers, and what explains them.
    fn found(lines: &[String]) -> Vec<String> {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        put(&mut store, lines);
        let gaps = gaps(&look(&folder.database()).unwrap(), None).unwrap();
        gaps.into_iter()
            .map(|Gap { boot_id, first_seq, last_seq, status, reason, .. }| {
                format!("{boot_id} {first_seq}-{last_seq} {status:?} {}", reason.unwrap_or_default())
                    .trim_end()
                    .to_owned()
            })
            .collect()
    }

    fn follows(boot: &str, seq: u64) -> String {
        report(boot, seq, Some(&format!("7f/{boot}/{}", seq - 1)))
    }

    #[test]
    fn numbers_that_follow_each_other_have_no_gap() {
        assert_eq!(found(&[]), [""; 0]);
        assert_eq!(found(&[report("a", 1, None), follows("a", 2), follows("a", 3)]), [""; 0]);
        // After a restart numbers go on, or start again.
        assert_eq!(found(&[report("a", 1, None), report("b", 2, Some("7f/a/1")), follows("b", 3)]), [""; 0]);
        assert_eq!(found(&[report("a", 1, None), follows("a", 2), report("b", 1, None)]), [""; 0]);
    }

    #[test]
    fn missing_reports_are_unexplained_unless_a_tombstone_covers_them() {
        let ends = [report("a", 1, None), follows("a", 10)];
        let with = |more: &[String]| found(&[&ends[..], more].concat());
        assert_eq!(with(&[]), ["a 2-9 Unexplained"]);
        assert_eq!(with(&[tombstone("a", 2, 9, "too_old")]), ["a 2-9 Dropped too_old"]);
        assert_eq!(
            with(&[tombstone("a", 3, 4, "damaged"), tombstone("a", 7, 7, "removed"), follows("a", 6)]),
            [
                "a 2-2 Unexplained",
                "a 3-4 Dropped damaged",
                "a 5-5 Unexplained",
                "a 7-7 Dropped removed",
                "a 8-9 Unexplained"
            ]
        );
        // Tombstones may overlap, and may name a report that still arrived.
        assert_eq!(
            with(&[tombstone("a", 2, 5, "too_old"), tombstone("a", 4, 10, "spool_full"), follows("a", 8)]),
            ["a 2-5 Dropped too_old", "a 6-7 Dropped spool_full", "a 9-9 Dropped spool_full"]
        );
        assert_eq!(with(&[tombstone("a", 11, 12, "removed")])[1..], ["a 11-12 Dropped removed"]);
    }

    #[test]
    fn reports_missing_at_a_restart_are_found_in_the_next_run() {
        let one = report("a", 1, None);
        assert_eq!(found(&[one.clone(), report("b", 4, Some("7f/a/3"))]), ["a 2-3 Unexplained"]);
        let explained = [one.clone(), tombstone("a", 2, 3, "queue_full"), report("b", 4, Some("7f/a/3"))];
        assert_eq!(found(&explained), ["a 2-3 Dropped queue_full"]);
        // The first reports of the next run are missing.
        assert_eq!(found(&[one.clone(), follows("b", 4)]), ["b 2-3 Unexplained"]);
        // Nothing of the next run is stored.
        assert_eq!(found(&[one.clone(), report("c", 4, Some("7f/b/3"))]), ["b 2-3 Unexplained"]);
        // A run that started at 1 again, and whose first reports are missing.
        let again = [one.clone(), follows("a", 2), follows("a", 3), follows("a", 4), follows("b", 3)];
        assert_eq!(found(&again), ["b 1-2 Unexplained"]);
        // Of the next run, only a tombstone is stored.
        assert_eq!(found(&[one.clone(), tombstone("b", 2, 3, "removed")]), ["b 2-3 Dropped removed"]);
        assert_eq!(found(&[one, tombstone("b", 3, 3, "removed")]), ["b 2-2 Unexplained", "b 3-3 Dropped removed"]);
    }

    #[test]
    fn numbers_before_the_first_report_are_listed_separately() {
        assert_eq!(found(&[follows("a", 100), follows("a", 101)]), ["a 1-99 BeforeFirst"]);
        assert_eq!(found(&[report("b", 100, Some("7f/a/99"))]), ["a 1-99 BeforeFirst"]);
        assert_eq!(found(&[tombstone("a", 5, 6, "removed")]), ["a 1-4 BeforeFirst", "a 5-6 Dropped removed"]);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let last = i64::MAX as u64;
        assert_eq!(found(&[report("a", 0, None), follows("a", last)]), [format!("a 1-{} Unexplained", last - 1)]);
        assert_eq!(found(&[tombstone("a", 0, last - 1, "removed")]), [format!("a 0-{} Dropped removed", last - 1)]);
    }
}
