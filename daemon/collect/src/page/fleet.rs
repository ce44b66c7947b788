//! All observers that report here: the content of their last reports, and the missing reports.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use serde_json::Value;
use weir_schema::{Account, Part, TROUBLE_MAX, late_after};
use weir_system::text::short;

use super::super::{
    counters::Duplicates,
    query::{self, Gap, Gaps, LAST_WINDOWS, Observer, Status, Tombstone},
};

/// How many gaps and tombstones are listed.
const LISTED_MAX: u32 = 100;
/// How many gaps of an observer are listed.
const LISTED_OF_ONE: usize = 10;
/// How many alerts, troubles and facts of a report are named.
const NAMED_MAX: usize = 16;
/// How many characters of such a text are shown: more than weir writes.
const TEXT_MAX: usize = 4 * TROUBLE_MAX;
/// The longest of so many last windows decides if an observer is late.
const LATE_OF_LAST: u32 = 5;

/// The fleet, as the database shows it.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    /// The observers, by their identity.
    rows: BTreeMap<String, Row>,
    tombstones: Vec<Tombstone>,
    tombstones_stored: u64,
    stored: Stored,
}

/// The first and the last rows of both tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stored {
    first: [Option<i64>; 2],
    last: [Option<i64>; 2],
}

/// An observer, and what its last report says.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    observer: Observer,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<LastReport>,
    /// The largest ones, and how many there are.
    #[serde(skip)]
    gaps: (Vec<Gap>, u64),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct LastReport {
    id: String,
    /// When its window ended.
    window_end: String,
    /// The length of its window in seconds; `null` if it has no rates.
    seconds: Option<f64>,
    /// The time at which it arrived.
    received_at: String,
    /// How long after the end of its window that was.
    delay_seconds: f64,
    version: Option<String>,
    packets: u64,
    bytes: u64,
    /// How long after the end of its window the observer is late.
    late_after_seconds: f64,
    /// Packets that were seen and lost, of all interfaces.
    lost: u64,
    /// The lowest of all interfaces.
    coverage: Option<f64>,
    /// The highest sampling rate of all interfaces: one packet in this many.
    sampling: u64,
    /// The names of the rules that fire.
    alerts: Vec<String>,
    /// Why an interface does not see all packets.
    troubles: Vec<String>,
    /// True if any interface was measured.
    is_measured: bool,
    /// The traffic that its numbers leave out, in words.
    left_out: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Totals {
    observers: u64,
    reports: u64,
    tombstones: u64,
    gaps: u64,
    dropped: u64,
    unexplained: u64,
    contested: u64,
    cloned: u64,
}

/// The fleet at a time.
#[derive(Debug, Serialize)]
pub(super) struct Now<'f> {
    schema: &'static str,
    time: Timestamp,
    /// The time at which the collector was started.
    started: Timestamp,
    duplicates: Duplicates,
    /// The observers whose reports have not come for too long.
    late: Vec<&'f str>,
    observers: Vec<&'f Row>,
    totals: Totals,
    /// The largest gaps without an explanation first.
    gaps: Vec<&'f Gap>,
    /// The latest ones last.
    tombstones: &'f [Tombstone],
}

/// An observer at a time.
#[derive(Debug, Serialize)]
pub(super) struct One<'f> {
    schema: &'static str,
    time: Timestamp,
    is_late: bool,
    #[serde(flatten)]
    row: &'f Row,
}

impl Fleet {
    /// Reads changes from the database: only the observers that have something new, or everything if rows were deleted.
    pub(super) fn update(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let stored = Stored::read(connection)?;
        if stored == self.stored {
            return Ok(());
        }
        let is_longer = stored.last.iter().zip(self.stored.last).all(|(now, before)| *now >= before);
        if stored.first != self.stored.first || !is_longer {
            *self = Self::default();
        }
        let mut sql = connection.prepare(
            "SELECT observer_id FROM reports WHERE number > ?1 UNION SELECT observer_id FROM tombstones WHERE number > ?2",
        )?;
        let known = self.stored.last.map(|last| last.unwrap_or_default());
        let changed: Vec<String> = sql.query_map(known, |row| row.get(0))?.collect::<Result<_, _>>()?;
        for id in changed {
            if let Some((observer, Gaps { mut gaps, .. })) = query::observer(connection, &id)? {
                let count = gaps.len() as u64;
                gaps.sort_by_key(place);
                gaps.truncate(LISTED_OF_ONE);
                let gaps = (gaps, count);
                let last = last(connection, &id)?;
                self.rows.insert(id, Row { observer, last, gaps });
            }
        }
        self.tombstones = query::tombstones(connection, LISTED_MAX)?;
        self.tombstones_stored = query::count(connection, "tombstones")?;
        self.stored = stored;
        Ok(())
    }

    /// The fleet at this time.
    pub(super) fn at(&self, time: Timestamp, started: Timestamp, duplicates: Duplicates) -> Now<'_> {
        let observers: Vec<_> = self.rows.values().collect();
        let sum = |of: fn(&Observer) -> u64| observers.iter().map(|row| of(&row.observer)).fold(0, u64::saturating_add);
        let mut gaps: Vec<_> = observers.iter().flat_map(|row| &row.gaps.0).collect();
        let totals = Totals {
            observers: observers.len() as u64,
            reports: sum(|of| of.reports),
            tombstones: self.tombstones_stored,
            gaps: observers.iter().map(|row| row.gaps.1).sum(),
            dropped: sum(|of| of.dropped),
            unexplained: sum(|of| of.unexplained),
            contested: sum(|of| of.contested),
            cloned: sum(|of| of.cloned),
        };
        gaps.sort_by_key(|gap| place(gap));
        gaps.truncate(LISTED_MAX as usize);
        let late = observers.iter().filter(|row| row.is_late(time)).map(|row| &*row.observer.observer).collect();
        let tombstones = &self.tombstones;
        Now { schema: "weir.fleet/1", time, started, duplicates, late, observers, totals, gaps, tombstones }
    }

    /// An observer at this time; `None` if nothing of it is stored.
    pub(super) fn one(&self, id: &str, time: Timestamp) -> Option<One<'_>> {
        let row = self.rows.get(id)?;
        Some(One { schema: "weir.observer/1", time, is_late: row.is_late(time), row })
    }
}

/// The place of a gap in the list.
fn place(gap: &Gap) -> (bool, Reverse<u64>) {
    (gap.status != Status::Unexplained, Reverse(gap.reports))
}

impl Stored {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        // SQLite finds each of these at once, but not two of them in one SELECT.
        let sql = "SELECT (SELECT min(number) FROM reports), (SELECT min(number) FROM tombstones), \
                   (SELECT max(number) FROM reports), (SELECT max(number) FROM tombstones)";
        connection
            .query_row(sql, [], |row| Ok(Self { first: [row.get(0)?, row.get(1)?], last: [row.get(2)?, row.get(3)?] }))
    }
}

/// The last report of an observer, in short.
fn last(connection: &Connection, observer: &str) -> rusqlite::Result<Option<LastReport>> {
    let sql = format!(
        "SELECT id, window_end, received_at, (julianday(window_end) - julianday(window_start)) * 86400, \
         (julianday(received_at) - julianday(window_end)) * 86400, report FROM reports WHERE number IN {LAST_WINDOWS}"
    );
    let row = connection.query_row(&sql, params![observer, 1], |row| {
        let report: Value = serde_json::from_str(&row.get::<_, String>(5)?).unwrap_or_default();
        // SQLite does not know every time that an earlier version stored.
        let length = |column| row.get::<_, Option<f64>>(column).map(Option::unwrap_or_default);
        Ok(LastReport::of(&report, [row.get(0)?, row.get(1)?, row.get(2)?], [length(3)?, length(4)?]))
    });
    let Some(mut last) = row.optional()? else { return Ok(None) };
    let sql = format!(
        "SELECT max((julianday(window_end) - julianday(window_start)) * 86400) FROM reports WHERE number IN {LAST_WINDOWS}"
    );
    let longest: Option<f64> = connection.query_row(&sql, params![observer, LATE_OF_LAST], |row| row.get(0))?;
    last.late_after_seconds = late_after(longest.unwrap_or_default());
    Ok(Some(last))
}

impl Row {
    /// Returns true if no report came for too long.
    fn is_late(&self, now: Timestamp) -> bool {
        self.last.as_ref().is_none_or(|last| last.is_late(now))
    }
}

impl LastReport {
    fn of(report: &Value, [id, window_end, received_at]: [String; 3], [seconds, delay_seconds]: [f64; 2]) -> Self {
        let interfaces = || report["interfaces"].as_array().into_iter().flatten();
        let lost = interfaces().flat_map(|of| of["ledger"]["lost"].as_object().into_iter().flatten());
        let named =
            |of: &Value| Some(format!("{}: {}", short(of["name"].as_str()?), beginning(of["trouble"].as_str()?)));
        let troubles: BTreeSet<_> = interfaces().filter_map(named).collect();
        let alerts = report["alerts"].as_array().into_iter().flatten();
        let firing = alerts.filter(|alert| alert["state"] == "firing").filter_map(|alert| alert["rule"].as_str());
        let parts: Vec<Part> = interfaces().filter_map(|of| serde_json::from_value(of.clone()).ok()).collect();
        let account = Account::of_parts(&parts);
        Self {
            id,
            window_end,
            seconds: report["window"]["seconds"].as_f64(),
            received_at,
            delay_seconds,
            late_after_seconds: late_after(seconds),
            version: report["observer"]["version"].as_str().map(short),
            packets: report["totals"]["packets"].as_u64().unwrap_or_default(),
            bytes: report["totals"]["bytes"].as_u64().unwrap_or_default(),
            lost: lost.filter_map(|(_, tally)| tally["packets"].as_u64()).fold(0, u64::saturating_add),
            coverage: interfaces().filter_map(|of| of["coverage"].as_f64()).reduce(f64::min),
            sampling: interfaces().filter_map(|of| of["sampling"].as_u64()).max().unwrap_or(1),
            alerts: firing.take(NAMED_MAX).map(short).collect(),
            troubles: troubles.into_iter().take(NAMED_MAX).collect(),
            is_measured: !account.is_nothing(),
            left_out: account.left_out().take(NAMED_MAX).map(|fact| beginning(&fact.text)).collect(),
        }
    }

    /// Returns true if no report came for too long.
    fn is_late(&self, now: Timestamp) -> bool {
        let Ok(end) = self.window_end.parse::<Timestamp>() else { return false };
        now.duration_since(end).as_secs_f64() > self.late_after_seconds
    }
}

/// The beginning of a text that may be a sentence.
fn beginning(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
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
        let mut fleet = Fleet::default();
        fleet.update(&look(&folder.database()).unwrap()).unwrap();
        let now = fleet.at(time("2026-11-20T10:00:00Z"), Timestamp::UNIX_EPOCH, Duplicates::default());
        let totals = Totals {
            observers: 1,
            reports: 2,
            tombstones: 1,
            gaps: 2,
            dropped: 2,
            unexplained: 2,
            contested: 0,
            cloned: 0,
        };
        assert_eq!(now.totals, totals);
        assert_eq!(now.gaps[0].status, Status::Unexplained, "these come first");
        let last = now.observers[0].last.clone().unwrap();
        assert_eq!((last.packets, last.bytes, last.lost), (3, 300, 0));
        // The window of this report is an hour long.
        let late = |text| !fleet.at(time(text), time(text), Duplicates::default()).late.is_empty();
        assert!(!late("2026-11-20T11:59:00Z") && late("2026-11-20T12:01:00Z"));
    }

    #[test]
    fn the_last_report_is_told_in_short() {
        let report: Value = serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap();
        let texts = ["a/b/1", "2026-11-20T08:00:10.000Z", "2026-11-20T08:00:10.500Z"].map(str::to_owned);
        let last = LastReport::of(&report, texts, [10.0, 0.5]);
        assert_eq!((last.lost, last.sampling, last.coverage), (280, 4, Some(0.987)));
        assert_eq!(last.alerts, ["flood"]);
        assert!(last.is_measured);
        assert!(!last.is_late(time("2026-11-20T08:01:10Z")) && last.is_late(time("2026-11-20T08:01:11Z")));
    }

    #[test]
    fn what_is_told_of_a_forged_report_is_bounded() {
        let long = "x".repeat(60_000);
        let interface =
            |nth: usize| serde_json::json!({"name": format!("{nth} {long}"), "trouble": long, "mode": "absent"});
        let report = serde_json::json!({
            "observer": {"version": long},
            "interfaces": (0..200).map(interface).collect::<Vec<_>>(),
            "alerts": vec![serde_json::json!({"rule": long, "state": "firing"}); 200],
        });
        let texts = ["a/b/1", "2026-11-20T08:00:10.000Z", "2026-11-20T08:00:10.500Z"].map(str::to_owned);
        let told = serde_json::to_string(&LastReport::of(&report, texts, [10.0, 0.5])).unwrap();
        assert!(told.len() < 40_000, "{}", told.len());
    }

    /// An earlier version stored it.
    #[test]
    fn a_window_that_the_database_cannot_read_hides_no_other_observer() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        let [first, second] = [["08:00:00", "08:00:10"], ["08:00:10", "08:00:20"]];
        put(&mut store, &[window("x", 1, first), window("y", 1, second)]);
        let connection = Connection::open(folder.database()).unwrap();
        let forge = "UPDATE reports SET window_start = '-009999-01-02T00:00:00.000Z' WHERE observer_id = 'x'";
        assert_eq!(connection.execute(forge, []).unwrap(), 1);
        let mut fleet = Fleet::default();
        fleet.update(&connection).unwrap();
        assert_eq!(fleet.rows.keys().collect::<Vec<_>>(), ["x", "y"]);
    }

    #[test]
    fn a_router_that_measures_nothing_is_told() {
        let mut report: Value = serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap();
        for interface in report["interfaces"].as_array_mut().unwrap() {
            interface["mode"] = "detached".into();
            interface["ledger"]["seen"] = serde_json::json!({"packets": 0, "bytes": 0});
        }
        let texts = ["a/b/1", "2026-11-20T08:00:10.000Z", "2026-11-20T08:00:10.500Z"].map(str::to_owned);
        let last = LastReport::of(&report, texts, [10.0, 0.5]);
        assert!(!last.is_measured);
        assert!(last.left_out.iter().any(|text| text.starts_with("not measured: eth0")), "{:?}", last.left_out);
    }

    /// A report with this number, window and size.
    fn window(observer: &str, seq: u64, [start, end]: [&str; 2]) -> String {
        format!(
            r#"{{"schema":"weir.report/1","id":"{observer}/a/{seq}","observer":{{"id":"{observer}","boot_id":"a","seq":{seq}}},"window":{{"start":"2026-11-20T{start}Z","end":"2026-11-20T{end}Z"}},"totals":{{"packets":{seq},"bytes":300}}}}"#
        )
    }

    #[test]
    fn only_observers_with_something_new_are_read_again_and_all_after_a_deletion() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        let [first, second] = [["08:00:00", "08:00:10"], ["08:00:10", "08:00:20"]];
        put(&mut store, &[window("x", 1, first), window("y", 1, first), tombstone("a", 2, 3, "spool_full")]);
        let connection = look(&folder.database()).unwrap();
        let mut fleet = Fleet::default();
        fleet.update(&connection).unwrap();
        assert_eq!(fleet.rows.keys().collect::<Vec<_>>(), ["7f", "x", "y"]);
        // A number that nothing else writes shows if a row is read again.
        let forged = |fleet: &mut Fleet| fleet.rows.values_mut().for_each(|row| row.observer.reports = 77);
        let reports = |fleet: &Fleet| fleet.rows.values().map(|row| row.observer.reports).collect::<Vec<_>>();
        forged(&mut fleet);
        fleet.update(&connection).unwrap();
        assert_eq!(reports(&fleet), [77, 77, 77]);
        put(&mut store, &[window("y", 2, second)]);
        fleet.update(&connection).unwrap();
        assert_eq!(reports(&fleet), [77, 77, 2]);
        assert_eq!(fleet.rows["y"].last.as_ref().unwrap().id, "y/a/2");
        put(&mut store, &[tombstone("a", 5, 5, "spool_full")]);
        fleet.update(&connection).unwrap();
        assert_eq!((reports(&fleet), fleet.tombstones_stored), (vec![0, 77, 2], 2));
        drop(connection);
        let other = Connection::open(folder.database()).unwrap();
        other.execute("DELETE FROM reports WHERE observer_id = 'x'", []).unwrap();
        fleet.update(&other).unwrap();
        assert_eq!(fleet.rows.keys().collect::<Vec<_>>(), ["7f", "y"]);
        assert!(fleet.one("x", Timestamp::UNIX_EPOCH).is_none() && fleet.one("y", Timestamp::UNIX_EPOCH).is_some());
    }

    /// The query of a panel, for these observers and this time.
    fn of_grafana(title: &str, observers: &str, time: &str) -> String {
        let board: Value =
            serde_json::from_str(include_str!("../../../../config/grafana/weir-collector.json")).unwrap();
        let panel = board["panels"].as_array().unwrap().iter().find(|panel| panel["title"] == title).unwrap();
        let text = panel["targets"][0]["rawQueryText"].as_str().unwrap();
        text.replace("${observer:sqlstring}", observers).replace("'now'", &format!("'{time}'"))
    }

    #[test]
    fn late_means_the_same_on_the_page_and_in_grafana() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        let times = |minute: u32, length: u32| {
            let clock = |minute: u32| format!("{:02}:{:02}:00", 8 + minute / 60, minute % 60);
            [clock(minute), clock(minute + length)]
        };
        let put_window = |store: &mut Store, observer: &str, seq, minute, length| {
            let [start, end] = times(minute, length);
            put(store, &[window(observer, seq, [&start, &end])]);
        };
        // One had long windows once, and the last window of the other was cut short by a restart.
        put_window(&mut store, "x", 1, 0, 60);
        for (seq, minute) in (2..).zip(60..65) {
            put_window(&mut store, "x", seq, minute, 1);
        }
        for (seq, minute, length) in [(1, 0, 30), (2, 30, 30), (3, 60, 5)] {
            put_window(&mut store, "y", seq, minute, length);
        }
        let connection = look(&folder.database()).unwrap();
        let mut fleet = Fleet::default();
        fleet.update(&connection).unwrap();
        // All have ended at 09:05. Three windows are 3 minutes or 90 minutes.
        for (clock, expected) in
            [("09:08:29", &[][..]), ("09:08:31", &["x"]), ("10:35:29", &["x"]), ("10:35:31", &["x", "y"])]
        {
            let time = format!("2026-11-20T{clock}Z");
            let now = fleet.at(time.parse().unwrap(), Timestamp::UNIX_EPOCH, Duplicates::default());
            assert_eq!(now.late, expected, "{clock}");
            let sql = of_grafana("Late observers", "'x','y'", &time);
            let late: i64 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
            assert_eq!(late, expected.len() as i64, "Grafana at {clock}");
        }
    }
}
