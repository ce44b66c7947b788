//! Finds missing reports, and runs of clones: the result of [`weir_schema::arrivals`] finds in the database.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde::Serialize;
use weir_schema::{
    Content,
    arrivals::{
        Arrivals, Limits, Sent,
        twins::{Sign, Twin},
    },
};

use super::super::store::OBSERVERS;

pub use weir_schema::arrivals::Status;

/// The most that is known one by one of an observer.
const LIMITS: Limits = Limits { runs: 1_024, pieces: 16_384, contents: 0 };

/// Consecutive numbers of one run that are missing for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The identity of the observer.
    pub observer: String,
    /// The run and the numbers; absent for earlier reports if only their number is known.
    #[serde(flatten)]
    pub numbers: Option<Numbers>,
    /// The number of reports.
    pub reports: u64,
    /// The explanation of the gap.
    pub status: Status,
    /// The reason in the tombstone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A run that was not the next one of its observer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Clone {
    /// The identity of the observer.
    pub observer: String,
    /// The run of weir that is cloned.
    pub boot_id: String,
    /// The reason to think so of the other run.
    pub sign: Sign,
    /// The other run with the same identity.
    pub other_boot_id: String,
}

/// Consecutive numbers of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// The run of the daemon.
    pub boot_id: String,
    /// The first sequence number.
    pub first_seq: u64,
    /// The last sequence number.
    pub last_seq: u64,
}

/// The missing reports of an observer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gaps {
    /// By sequence and number, at last the sums of earlier ones.
    pub gaps: Vec<Gap>,
    /// Reports that the observer has declared as dropped.
    pub dropped: u64,
    /// Reports without an explanation.
    pub unexplained: u64,
    /// The runs that were not one after the other.
    pub clones: Vec<Clone>,
    /// How many there were, also of those that are no longer known one by one.
    pub cloned: u64,
}

impl Gaps {
    /// The gaps of an observer.
    pub fn of(connection: &Connection, observer: &str) -> rusqlite::Result<Self> {
        let arrivals = arrivals(connection, observer)?;
        let missing = arrivals.missing();
        let dropped = missing.dropped.values().fold(0, |sum: u64, reports| sum.saturating_add(*reports));
        let listed = arrivals.gaps().into_iter().map(|gap| Gap {
            observer: observer.to_owned(),
            reports: gap.reports(),
            numbers: Some(Numbers { boot_id: gap.boot_id, first_seq: gap.first, last_seq: gap.last }),
            status: gap.status,
            reason: gap.reason,
        });
        let settled = arrivals.settled();
        let unexplained = (Status::Unexplained, None, settled.unexplained);
        let of_reasons = settled.dropped.iter();
        let of_reasons = of_reasons.map(|(reason, reports)| (Status::Dropped, Some(reason.clone()), *reports));
        let earlier = [unexplained].into_iter().chain(of_reasons).filter(|(.., reports)| *reports > 0);
        let earlier = earlier.map(|(status, reason, reports)| {
            let observer = observer.to_owned();
            Gap { observer, numbers: None, reports, status, reason }
        });
        let gaps = listed.chain(earlier).collect();
        let clones = arrivals.twins().into_iter().map(|Twin { boot_id, other, sign }| {
            let observer = observer.to_owned();
            Clone { observer, boot_id, sign, other_boot_id: other }
        });
        let (clones, cloned) = (clones.collect(), missing.cloned);
        Ok(Self { gaps, dropped, unexplained: missing.unexplained, clones, cloned })
    }
}

/// The identities of all observers, or only this one.
pub(super) fn observers(connection: &Connection, observer: Option<&str>) -> rusqlite::Result<Vec<String>> {
    let Some(observer) = observer else {
        return connection.prepare(OBSERVERS)?.query_map([], |row| row.get(0))?.collect();
    };
    let sql = "SELECT 1 FROM reports WHERE observer_id = ?1 UNION ALL SELECT 1 FROM tombstones WHERE observer_id = ?1";
    Ok(if connection.prepare_cached(sql)?.exists([observer])? { vec![observer.to_owned()] } else { Vec::new() })
}

/// Reads from the database which reports of an observer have arrived.
fn arrivals(connection: &Connection, observer: &str) -> rusqlite::Result<Arrivals> {
    let mut arrivals = Arrivals::new(LIMITS);
    let runs = "SELECT count(*) FROM (SELECT DISTINCT boot_id FROM reports WHERE observer_id = ?1 LIMIT ?2)";
    let runs: i64 = connection.query_row(runs, params![observer, LIMITS.runs as i64 + 1], |row| row.get(0))?;
    // An index has the order of runs and numbers. Of many runs, the oldest are forgotten, so they have to come first.
    let order = if runs > LIMITS.runs as i64 { "number" } else { "boot_id, seq" };
    let mut sql = connection.prepare(&format!(
        "SELECT boot_id, seq, previous, window_start, window_end FROM reports WHERE observer_id = ?1 ORDER BY {order}"
    ))?;
    let mut rows = sql.query([observer])?;
    // Another program may have stored a time that is later than all that can be read.
    let time = |text: String| text.parse().unwrap_or(Timestamp::MAX);
    while let Some(row) = rows.next()? {
        let (boot_id, previous): (String, Option<String>) = (row.get(0)?, row.get(2)?);
        arrivals.report(Sent {
            observer,
            boot_id: &boot_id,
            seq: row.get::<_, i64>(1)?.unsigned_abs(),
            previous: previous.as_deref(),
            // The database has each id once, so contents need not be compared.
            content: Content::default(),
            start: time(row.get(3)?),
            end: time(row.get(4)?),
        });
    }
    let mut sql = connection.prepare(
        "SELECT boot_id, first_seq, last_seq, reason FROM tombstones WHERE observer_id = ?1 ORDER BY boot_id, first_seq",
    )?;
    let mut rows = sql.query([observer])?;
    while let Some(row) = rows.next()? {
        let (boot_id, reason): (String, String) = (row.get(0)?, row.get(3)?);
        let [first, last] = [row.get::<_, i64>(1)?, row.get(2)?].map(i64::unsigned_abs);
        arrivals.tombstone(&boot_id, first, last, &reason);
    }
    Ok(arrivals)
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
        let connection = look(&folder.database()).unwrap();
        let observers = observers(&connection, None).unwrap();
        let gaps = observers.iter().flat_map(|observer| Gaps::of(&connection, observer).unwrap().gaps);
        gaps.map(|Gap { numbers, status, reason, .. }| {
            let Numbers { boot_id, first_seq, last_seq } = numbers.unwrap();
            format!("{boot_id} {first_seq}-{last_seq} {status:?} {}", reason.unwrap_or_default()).trim_end().to_owned()
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
        // It may have been before the observer lost its state, unless a later report comes.
        let silent = [one.clone(), tombstone("b", 3, 3, "removed")];
        assert_eq!(found(&silent), ["b 3-3 Dropped removed"]);
        let later = [&silent[..], &[report("c", 4, Some("7f/b/3"))]].concat();
        assert_eq!(found(&later), ["b 2-2 Unexplained", "b 3-3 Dropped removed"]);
        // Before the observer lost its state, only a tombstone was stored.
        let before = [one.clone(), follows("a", 2), tombstone("b", 40, 42, "removed")];
        assert_eq!(found(&before), ["b 40-42 Dropped removed"]);
        let reached = [&before[..], &[follows("a", 3), follows("a", 41)]].concat();
        assert_eq!(found(&reached), ["a 4-40 Unexplained", "b 1-39 BeforeFirst", "b 40-42 Dropped removed"]);
    }

    #[test]
    fn numbers_before_the_first_report_are_listed_separately() {
        assert_eq!(found(&[follows("a", 100), follows("a", 101)]), ["a 1-99 BeforeFirst"]);
        assert_eq!(found(&[report("b", 100, Some("7f/a/99"))]), ["a 1-99 BeforeFirst"]);
        assert_eq!(found(&[tombstone("a", 5, 6, "removed")]), ["a 1-4 BeforeFirst", "a 5-6 Dropped removed"]);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let last = weir_schema::limits::SEQ_MAX - 1;
        assert_eq!(found(&[report("a", 0, None), follows("a", last)]), [format!("a 1-{} Unexplained", last - 1)]);
        assert_eq!(found(&[tombstone("a", 0, last - 1, "removed")]), [format!("a 0-{} Dropped removed", last - 1)]);
    }

    #[test]
    fn of_many_runs_the_sums_stay_right() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        let runs = 3 * LIMITS.runs as u64;
        // Of each run, only the second report comes. The identities of runs are in no order.
        let lines: Vec<String> = (0..runs)
            .map(|run| {
                let (boot_id, seq) = (format!("a{:016x}", scrambled(run)), 2 * run + 2);
                let line = report(&boot_id, seq, Some(&format!("7f/{boot_id}/{}", seq - 1)));
                let (head, tail) = line.split_once("\"start\":\"2026-11-20T").unwrap();
                format!("{head}\"start\":\"2026-11-20T08:{:02}:{:02}{}", run / 60, run % 60, &tail[8..])
            })
            .collect();
        put(&mut store, &lines);
        let Gaps { gaps, dropped, unexplained, .. } = Gaps::of(&look(&folder.database()).unwrap(), "7f").unwrap();
        assert_eq!((dropped, unexplained), (0, runs - 1));
        assert!(gaps.len() <= 2 * LIMITS.runs + 100, "{}", gaps.len());
        let earlier = gaps.last().unwrap();
        assert!(earlier.numbers.is_none() && earlier.reports > 0);
        assert!(!serde_json::to_string(earlier).unwrap().contains("boot_id"));
    }

    fn scrambled(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }
}
