//! All observers that report here: the content of their last reports, and the missing reports.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use serde_json::Value;

use super::super::{
    counters::Duplicates,
    query::{self, Gap, Observer, Status, Tombstone},
};

/// How many gaps and tombstones are listed.
const LISTED_MAX: u32 = 100;
/// An observer is late if no report came for this many windows, and this many seconds more.
const LATE_WINDOWS: f64 = 3.0;
const LATE_SECONDS: f64 = 30.0;

/// The fleet, as the database shows it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fleet {
    observers: Vec<Row>,
    totals: Totals,
    /// The largest gaps without an explanation first.
    gaps: Vec<Gap>,
    /// The latest ones last.
    tombstones: Vec<Tombstone>,
}

/// An observer, and what its last report says.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    observer: Observer,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<LastReport>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct LastReport {
    /// When its window ended.
    window_end: String,
    /// The length of its window.
    seconds: f64,
    /// When it arrived.
    received_at: String,
    /// How long after the end of its window that was.
    delay_seconds: f64,
    version: Option<String>,
    packets: u64,
    bytes: u64,
    /// Packets that were seen and lost, of all interfaces.
    lost: u64,
    /// The lowest of all interfaces.
    coverage: Option<f64>,
    /// The highest sampling rate of all interfaces: one packet in this many.
    sampling: u64,
    /// Rules that fire.
    alerts: Vec<String>,
    /// Why an interface does not see all packets.
    troubles: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Totals {
    observers: u64,
    reports: u64,
    tombstones: u64,
    gaps: u64,
    dropped: u64,
    unexplained: u64,
}

/// The fleet at a time.
#[derive(Debug, Serialize)]
pub(super) struct Now<'f> {
    schema: &'static str,
    time: Timestamp,
    /// When the collector was started.
    started: Timestamp,
    duplicates: Duplicates,
    /// The observers whose reports have not come for too long.
    late: Vec<&'f str>,
    #[serde(flatten)]
    fleet: &'f Fleet,
}

/// Reads the fleet from the database.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Fleet> {
    let mut gaps = query::gaps(connection)?;
    let observers = query::observers(connection, &gaps)?;
    let tombstones = query::tombstones(connection, LISTED_MAX)?;
    let sum = |of: fn(&Observer) -> u64| observers.iter().map(of).fold(0, u64::saturating_add);
    let totals = Totals {
        observers: observers.len() as u64,
        reports: sum(|of| of.reports),
        tombstones: query::count(connection, "tombstones")?,
        gaps: gaps.len() as u64,
        dropped: sum(|of| of.dropped),
        unexplained: sum(|of| of.unexplained),
    };
    let rank = |gap: &Gap| (gap.status != Status::Unexplained, std::cmp::Reverse(gap.reports));
    gaps.sort_by_key(rank);
    gaps.truncate(LISTED_MAX as usize);
    let rows = observers.into_iter().map(|observer| {
        let last = last(connection, &observer.observer)?;
        Ok(Row { observer, last })
    });
    Ok(Fleet { observers: rows.collect::<rusqlite::Result<_>>()?, totals, gaps, tombstones })
}

fn last(connection: &Connection, observer: &str) -> rusqlite::Result<Option<LastReport>> {
    let sql = "SELECT window_end, received_at, (julianday(window_end) - julianday(window_start)) * 86400, \
               (julianday(received_at) - julianday(window_end)) * 86400, report FROM reports \
               WHERE observer_id = ?1 ORDER BY window_start DESC, number DESC LIMIT 1";
    let row = connection.query_row(sql, params![observer], |row| {
        let report: Value = serde_json::from_str(&row.get::<_, String>(4)?).unwrap_or_default();
        Ok(LastReport::of(&report, [row.get(0)?, row.get(1)?], [row.get(2)?, row.get(3)?]))
    });
    row.optional()
}

impl LastReport {
    fn of(report: &Value, [window_end, received_at]: [String; 2], [seconds, delay_seconds]: [f64; 2]) -> Self {
        let interfaces = || report["interfaces"].as_array().into_iter().flatten();
        let lost = interfaces().flat_map(|of| of["ledger"]["lost"].as_object().into_iter().flatten());
        let named = |of: &Value| Some(format!("{}: {}", of["name"].as_str()?, of["trouble"].as_str()?));
        let troubles: BTreeSet<_> = interfaces().filter_map(named).collect();
        let alerts = report["alerts"].as_array().into_iter().flatten();
        let firing = alerts.filter(|alert| alert["state"] == "firing").filter_map(|alert| alert["rule"].as_str());
        Self {
            window_end,
            seconds: report["window"]["seconds"].as_f64().unwrap_or(seconds),
            received_at,
            delay_seconds,
            version: report["observer"]["version"].as_str().map(str::to_owned),
            packets: report["totals"]["packets"].as_u64().unwrap_or_default(),
            bytes: report["totals"]["bytes"].as_u64().unwrap_or_default(),
            lost: lost.filter_map(|(_, tally)| tally["packets"].as_u64()).fold(0, u64::saturating_add),
            coverage: interfaces().filter_map(|of| of["coverage"].as_f64()).reduce(f64::min),
            sampling: interfaces().filter_map(|of| of["sampling"].as_u64()).max().unwrap_or(1),
            alerts: firing.map(str::to_owned).collect(),
            troubles: troubles.into_iter().collect(),
        }
    }

    /// Whether no report came for too long.
    fn is_late(&self, now: Timestamp) -> bool {
        let Ok(end) = self.window_end.parse::<Timestamp>() else { return false };
        now.duration_since(end).as_secs_f64() > LATE_WINDOWS * self.seconds + LATE_SECONDS
    }
}

impl Fleet {
    /// The fleet at this time.
    pub(super) fn at(&self, time: Timestamp, started: Timestamp, duplicates: Duplicates) -> Now<'_> {
        let is_late = |row: &&Row| row.last.as_ref().is_none_or(|last| last.is_late(time));
        let late = self.observers.iter().filter(is_late).map(|row| &*row.observer.observer).collect();
        Now { schema: "weir.fleet/1", time, started, duplicates, late, fleet: self }
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

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_fleet_is_what_the_database_has() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        put(&mut store, &[report("a", 1, None), tombstone("a", 2, 3, "spool_full"), report("a", 6, Some("7f/a/5"))]);
        let fleet = read(&look(&folder.database()).unwrap()).unwrap();
        let totals = Totals { observers: 1, reports: 2, tombstones: 1, gaps: 2, dropped: 2, unexplained: 2 };
        assert_eq!(fleet.totals, totals);
        assert_eq!(fleet.gaps[0].status, Status::Unexplained, "these come first");
        let last = fleet.observers[0].last.clone().unwrap();
        assert_eq!((last.packets, last.bytes, last.lost), (3, 300, 0));
        // The window of this report is an hour long.
        let late = |text| !fleet.at(time(text), time(text), Duplicates::default()).late.is_empty();
        assert!(!late("2026-11-20T11:59:00Z") && late("2026-11-20T12:01:00Z"));
    }

    #[test]
    fn the_last_report_is_told_in_short() {
        let report: Value = serde_json::from_str(include_str!("../../../report/tests/golden/report.json")).unwrap();
        let times = ["2026-11-20T08:00:10.000Z", "2026-11-20T08:00:10.500Z"].map(str::to_owned);
        let last = LastReport::of(&report, times, [10.0, 0.5]);
        assert_eq!((last.lost, last.sampling, last.coverage), (280, 4, Some(0.987)));
        assert_eq!(last.alerts, ["flood"]);
        assert!(!last.is_late(time("2026-11-20T08:01:10Z")) && last.is_late(time("2026-11-20T08:01:11Z")));
    }
}
