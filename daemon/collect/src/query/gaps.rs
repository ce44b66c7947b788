//! Which reports are missing.
//!
//! The reports of a run of the daemon are numbered without gaps, and each names its predecessor, even if that is from
//! an earlier run. So missing reports are known: the numbers between reports of a run, and those between the last
//! stored report of a run and the one that the next run names. A tombstone explains the numbers that it covers. Reports
//! before the first stored one of an observer may never have been sent here.
//!
//! Whether reports are missing at the end cannot be known: the observer may be switched off.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use serde::Serialize;

use super::of;

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

/// What explains a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// No tombstone covers it.
    Unexplained,
    /// A tombstone: the sender had to drop the reports.
    Dropped,
    /// No earlier report of this observer is stored.
    BeforeFirst,
}

/// The number of reports that are missing in these gaps.
pub(super) fn reports<'g>(gaps: impl IntoIterator<Item = &'g Gap>, chosen: impl Fn(Status) -> bool) -> u64 {
    gaps.into_iter().filter(|gap| chosen(gap.status)).fold(0, |sum, gap| sum.saturating_add(gap.reports))
}

/// A range of numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
}

/// What is stored of a run.
#[derive(Debug, Default)]
struct Run {
    /// The numbers of its reports, in order, merged into as few spans as possible.
    reports: Vec<Span>,
    /// Its tombstones, in the order of their first numbers.
    tombstones: Vec<(Span, String)>,
    /// The predecessor that its first report names: run and number.
    previous: Option<(String, u64)>,
    /// When its last window began, or its last tombstone arrived: runs are sorted by this.
    at: String,
}

/// All gaps, by observer, in the order of the runs.
pub(super) fn gaps(connection: &Connection, observer: Option<&str>) -> rusqlite::Result<Vec<Gap>> {
    let mut observers: BTreeMap<String, BTreeMap<String, Run>> = BTreeMap::new();
    let of = of(observer);
    let mut sql = connection.prepare(&format!(
        "SELECT observer_id, boot_id, seq, previous, window_start FROM reports \
         WHERE {of} ORDER BY observer_id, boot_id, seq"
    ))?;
    let mut rows = sql.query(params![observer])?;
    while let Some(row) = rows.next()? {
        let run = observers.entry(row.get(0)?).or_default().entry(row.get(1)?).or_default();
        let seq = row.get::<_, i64>(2)?.unsigned_abs();
        match run.reports.last_mut() {
            Some(span) if seq.saturating_sub(span.last) <= 1 => span.last = seq,
            Some(_) => run.reports.push(Span { first: seq, last: seq }),
            None => {
                run.reports.push(Span { first: seq, last: seq });
                run.previous = row.get::<_, Option<String>>(3)?.and_then(|id| parts(&id));
            }
        }
        run.at = row.get(4)?;
    }
    let mut sql = connection.prepare(&format!(
        "SELECT observer_id, boot_id, first_seq, last_seq, reason, received_at FROM tombstones \
         WHERE {of} ORDER BY observer_id, boot_id, first_seq"
    ))?;
    let mut rows = sql.query(params![observer])?;
    while let Some(row) = rows.next()? {
        let run = observers.entry(row.get(0)?).or_default().entry(row.get(1)?).or_default();
        let (first, last) = (row.get::<_, i64>(2)?.unsigned_abs(), row.get::<_, i64>(3)?.unsigned_abs());
        run.tombstones.push((Span { first, last }, row.get(4)?));
        if run.reports.is_empty() {
            run.at = row.get(5)?;
        }
    }
    let mut gaps = Vec::new();
    for (observer, runs) in observers {
        let mut runs: Vec<_> = runs.into_iter().collect();
        runs.sort_by(|(_, one), (_, other)| one.at.cmp(&other.at));
        for nth in 0..runs.len() {
            let earlier = nth.checked_sub(1).map(|nth| &runs[nth].1);
            let (boot_id, run) = &runs[nth];
            let gap = |boot_id: &str, Span { first, last }: Span, status, reason| Gap {
                observer: observer.clone(),
                boot_id: boot_id.to_owned(),
                first_seq: first,
                last_seq: last,
                reports: last - first + 1,
                status,
                reason,
            };
            if let Some((boot_id, span)) = before(boot_id, run, earlier, &runs) {
                let status = if earlier.is_some() { Status::Unexplained } else { Status::BeforeFirst };
                gaps.push(gap(&boot_id, span, status, None));
            }
            gaps.extend(run.missing().into_iter().map(|(span, reason)| {
                let status = if reason.is_some() { Status::Dropped } else { Status::Unexplained };
                gap(boot_id, span, status, reason)
            }));
        }
    }
    Ok(gaps)
}

/// The run and number in an id.
fn parts(id: &str) -> Option<(String, u64)> {
    let mut parts = id.split('/').skip(1);
    let (boot_id, seq) = (parts.next()?, parts.next()?);
    Some((boot_id.to_owned(), seq.parse().ok()?))
}

/// The gap before the first known number of a run: the run that it belongs to, and its numbers.
fn before(boot_id: &str, run: &Run, earlier: Option<&Run>, runs: &[(String, Run)]) -> Option<(String, Span)> {
    let first = run.first();
    let begins_with_report = run.reports.first().is_some_and(|span| span.first == first);
    let (boot, last) = match &run.previous {
        Some((boot, seq)) if begins_with_report => (&**boot, *seq),
        // The report says that it is the first.
        None if begins_with_report => return None,
        _ => (boot_id, first.checked_sub(1)?),
    };
    let other = runs.iter().find(|(known, _)| known == boot && known != boot_id);
    let from = match (other, earlier) {
        (Some((_, other)), _) => other.last() + 1,
        // Numbers go on after a restart, unless the observer has lost its state.
        (None, Some(earlier)) if earlier.last() < last => earlier.last() + 1,
        // The number before a tombstone may be that of the previous run.
        (None, Some(earlier)) if earlier.last() == last && !begins_with_report => return None,
        (None, Some(_)) if boot == boot_id => 1,
        (None, Some(_)) => last,
        (None, None) => 1,
    };
    (from <= last).then(|| (boot.to_owned(), Span { first: from, last }))
}

impl Run {
    /// Its first known number.
    fn first(&self) -> u64 {
        let firsts = self.reports.first().into_iter().chain(self.tombstones.first().map(|(span, _)| span));
        firsts.map(|span| span.first).min().unwrap_or_default()
    }

    /// Its last known number.
    fn last(&self) -> u64 {
        let lasts = self.reports.last().into_iter().chain(self.tombstones.iter().map(|(span, _)| span));
        lasts.map(|span| span.last).max().unwrap_or_default()
    }

    /// Numbers without a report between the first and the last known one, with the reason of the tombstone that covers
    /// them.
    fn missing(&self) -> Vec<(Span, Option<String>)> {
        let mut missing: Vec<(Span, Option<String>)> = Vec::new();
        let mut tombstones = self.tombstones.iter().peekable();
        let mut next = self.first();
        let end = Span { first: self.last() + 1, last: self.last() + 1 };
        for report in self.reports.iter().chain([&end]) {
            // The numbers from `next` up to the report are missing.
            while next < report.first {
                while tombstones.next_if(|(span, _)| span.last < next).is_some() {}
                let (until, reason) = match tombstones.peek() {
                    Some((span, reason)) if span.first <= next => (span.last, Some(reason.clone())),
                    Some((span, _)) => (span.first - 1, None),
                    None => (report.first - 1, None),
                };
                let span = Span { first: next, last: until.min(report.first - 1) };
                next = span.last + 1;
                match missing.last_mut() {
                    Some((before, because)) if *because == reason && before.last + 1 == span.first => {
                        before.last = span.last;
                    }
                    _ => missing.push((span, reason)),
                }
            }
            next = report.last + 1;
        }
        missing
    }
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
