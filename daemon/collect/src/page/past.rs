//! The history of a router from its reports: its charts, and several windows together.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde_json::Value;
use weir_page::query::Times;
use weir_schema::{
    Distinct, History, InterfaceHistory, KeyHistory, KeySteps, ListKey, PastWindow, Reach, Report, Steps, Union,
    is_firing, is_measured,
};

use super::super::line::sortable;

/// The most reports that are added up: each takes some milliseconds.
const UNION_MAX: usize = 1000;
/// The most bytes of these reports, without their sketches.
const UNION_BYTES_MAX: usize = 256 << 20;
/// The most reports for a chart.
const CHART_MAX: usize = 20_000;
/// The most interfaces of all reports of a chart.
const CHART_INTERFACES_MAX: usize = 1 << 20;
/// The most different interfaces of a chart: each has a line.
const LINES_MAX: usize = 1_024;
const SECOND_MS: i64 = 1000;

/// A window in short.
#[derive(Debug)]
pub(super) struct Short {
    start_ms: i64,
    end_ms: i64,
    past: PastWindow,
    interfaces: Vec<Carried>,
}

/// The traffic of an interface in a window.
#[derive(Debug)]
struct Carried {
    name: String,
    direction: Option<String>,
    /// True if weir measured it, or at least saw some packets of it.
    is_known: bool,
    packets: u64,
    bytes: u64,
    lost: u64,
}

/// The limits of a time for texts in the database.
fn limits((from, to): Times) -> [String; 2] {
    [from.map_or_else(String::new, sortable), to.map_or_else(|| "9999".to_owned(), sortable)]
}

/// The numbers of the newest windows that touch a time. Reports are large, so only those that are chosen are read.
const CHOSEN: &str = "(SELECT number FROM reports WHERE observer_id = ?1 AND window_end > ?2 AND window_start < ?3 \
                      ORDER BY window_start DESC, number DESC LIMIT ?4)";

/// The windows that touch a time, the oldest first. If they are too many for a chart, these are the newest.
pub(super) fn windows(
    connection: &Connection,
    observer: &str,
    times: Times,
) -> rusqlite::Result<Result<Vec<Short>, String>> {
    newest(connection, observer, times, CHART_MAX)
}

fn newest(
    connection: &Connection,
    observer: &str,
    times: Times,
    max: usize,
) -> rusqlite::Result<Result<Vec<Short>, String>> {
    let [from, to] = limits(times);
    let mut sql = connection.prepare(&format!(
        "SELECT json_object('window', json_extract(report, '$.window'), 'totals', json_extract(report, '$.totals'), \
         'src_ip', json_extract(report, '$.unique.src_ip'), 'alerts', json_extract(report, '$.alerts'), \
         'interfaces', json_extract(report, '$.interfaces')) FROM reports \
         WHERE number IN {CHOSEN} ORDER BY window_start, number"
    ))?;
    let rows = sql.query_map(params![observer, from, to, max as i64], |row| row.get::<_, String>(0))?;
    let (mut windows, mut interfaces, mut lines) = (Vec::new(), 0, BTreeSet::new());
    for row in rows {
        // A report of another schema has no chart.
        let Some(window) = serde_json::from_str(&row?).ok().and_then(|value| short(&value)) else { continue };
        interfaces += window.interfaces.len();
        for of in &window.interfaces {
            lines.insert((of.name.clone(), of.direction.clone()));
        }
        if interfaces > CHART_INTERFACES_MAX || lines.len() > LINES_MAX {
            return Ok(Err("the reports have too many interfaces for a chart: choose a shorter time".to_owned()));
        }
        windows.push(window);
    }
    Ok(Ok(windows))
}

fn short(value: &Value) -> Option<Short> {
    let time = |name: &str| value["window"][name].as_str()?.parse::<Timestamp>().ok();
    let (start, end) = (time("start")?, time("end")?);
    let number = |of: &Value| of.as_u64().unwrap_or_default();
    let src_ip: Distinct = serde_json::from_value(value["src_ip"].clone()).ok()?;
    let alerts = value["alerts"].as_array().into_iter().flatten();
    let firing = alerts.filter(|alert| alert["state"].as_str().is_some_and(is_firing));
    let carried = |of: &Value| {
        let lost = of["ledger"]["lost"].as_object().into_iter().flatten();
        let is_measured_then = of["mode"].as_str().is_none_or(is_measured);
        let packets = number(&of["ledger"]["seen"]["packets"]);
        Some(Carried {
            is_known: is_measured_then || packets > 0,
            name: of["name"].as_str()?.to_owned(),
            direction: of["direction"].as_str().map(str::to_owned),
            packets,
            bytes: number(&of["ledger"]["seen"]["bytes"]),
            lost: lost.map(|(_, tally)| number(&tally["packets"])).fold(0, u64::saturating_add),
        })
    };
    Some(Short {
        start_ms: start.as_millisecond(),
        end_ms: end.as_millisecond(),
        past: PastWindow {
            start,
            end,
            windows: 1,
            seconds: value["window"]["seconds"].as_f64(),
            packets: number(&value["totals"]["packets"]),
            bytes: number(&value["totals"]["bytes"]),
            src_ip,
            alerts: firing.filter_map(|alert| alert["rule"].as_str().map(str::to_owned)).collect(),
        },
        interfaces: value["interfaces"].as_array().into_iter().flatten().filter_map(carried).collect(),
    })
}

/// Each interface in equal steps. The traffic of a window is spread evenly over its time, in whole packets and bytes.
pub(super) fn history(windows: &[Short], (from, to): Times, points: usize) -> History {
    let reach = windows.first().map(|window| window.past.start);
    let to = to.or(windows.iter().map(|window| window.past.end).max()).unwrap_or(Timestamp::UNIX_EPOCH);
    let from = from.or(reach).unwrap_or(to).min(to);
    let steps = Steps::new(from, to, points);
    let grid =
        Grid { first_ms: steps.first * SECOND_MS, step_ms: steps.seconds as i64 * SECOND_MS, steps: steps.count };
    let mut interfaces = BTreeMap::new();
    for window in windows {
        for of in &window.interfaces {
            let key = (of.name.clone(), of.direction.clone());
            let history = interfaces.entry(key).or_insert_with(|| unknown(of, steps.count));
            if !of.is_known {
                continue;
            }
            grid.spread(window, of.packets, &mut history.packets);
            grid.spread(window, of.bytes, &mut history.bytes);
            grid.spread(window, of.lost, &mut history.lost);
            grid.cover(window, &mut history.seconds);
        }
    }
    let reach = Reach { seconds: reach, windows: reach };
    let past: Vec<_> = windows.iter().map(|window| window.past.clone()).collect();
    History::new(steps, reach, interfaces.into_values().collect(), &past, points)
}

fn unknown(of: &Carried, steps: usize) -> InterfaceHistory {
    let nothing = vec![None; steps];
    InterfaceHistory {
        name: of.name.clone(),
        direction: of.direction.clone(),
        packets: nothing.clone(),
        bytes: nothing.clone(),
        lost: nothing,
        seconds: vec![0.0; steps],
    }
}

/// The steps of a chart.
struct Grid {
    first_ms: i64,
    step_ms: i64,
    steps: usize,
}

impl Grid {
    /// Adds the traffic of a window to its steps. The sum of the steps is exact.
    fn spread(&self, window: &Short, whole: u64, series: &mut [Option<u64>]) {
        let length = (window.end_ms - window.start_ms).max(1);
        let until = |at_ms: i64| {
            let part = (at_ms.clamp(window.start_ms, window.end_ms) - window.start_ms).unsigned_abs();
            u64::try_from(u128::from(whole) * u128::from(part) / u128::from(length.unsigned_abs())).unwrap_or(whole)
        };
        for (step, begin) in self.touched(window) {
            let part = until(begin + self.step_ms) - until(begin);
            let Some(sum) = series.get_mut(step) else { return };
            *sum = Some(sum.unwrap_or(0).saturating_add(part));
        }
    }

    /// Adds the time that a window covers of its steps, in seconds.
    fn cover(&self, window: &Short, seconds: &mut [f64]) {
        for (step, begin) in self.touched(window) {
            let [from, to] = [begin, begin + self.step_ms].map(|at_ms| at_ms.clamp(window.start_ms, window.end_ms));
            let Some(sum) = seconds.get_mut(step) else { return };
            *sum += (to - from) as f64 / SECOND_MS as f64;
        }
    }

    /// The steps that a window touches, each with its start.
    fn touched(&self, window: &Short) -> impl Iterator<Item = (usize, i64)> {
        let Self { first_ms, step_ms, steps } = *self;
        let nth = |at_ms: i64| (at_ms - first_ms).div_euclid(step_ms);
        let (first, last) = (nth(window.start_ms).max(0), nth(window.end_ms - 1).min(steps as i64 - 1));
        (first..=last).map(move |step| (step as usize, first_ms + step * step_ms))
    }
}

/// All windows of an observer that touch a time together, or why that is not possible.
pub(super) fn span(connection: &Connection, observer: &str, times: Times) -> rusqlite::Result<Result<Union, String>> {
    let mut parts = Vec::new();
    let read = each(connection, observer, times, |report| parts.push(Union::one(report)))?;
    Ok(read.and_then(|()| Union::join(&parts).ok_or_else(|| "no report of this time is stored".to_owned())))
}

/// A key of a list in each window that touches a time, or why that is not possible.
pub(super) fn of_key(
    connection: &Connection,
    observer: &str,
    (key, view): (&str, Option<&str>),
    times: Times,
    points: usize,
) -> rusqlite::Result<Result<KeyHistory, String>> {
    let list_key = match ListKey::parse(key, view) {
        Ok(list_key) => list_key,
        Err(why) => return Ok(Err(why)),
    };
    let mut windows = Vec::new();
    let read = each(connection, observer, times, |report| windows.push((PastWindow::of(report), Union::one(report))))?;
    let from = times.0.or(windows.first().map(|(past, _)| past.start)).unwrap_or(Timestamp::UNIX_EPOCH);
    let to = times.1.or(windows.iter().map(|(past, _)| past.end).max()).unwrap_or(from);
    let mut steps = KeySteps::new(key, view, (from, to), points);
    for (past, union) in &windows {
        steps.add(past, union, &list_key);
    }
    Ok(read.map(|()| steps.finish()))
}

/// Calls `take` with each report of an observer whose window touches a time, the oldest first.
fn each(
    connection: &Connection,
    observer: &str,
    times: Times,
    mut take: impl FnMut(&Report),
) -> rusqlite::Result<Result<(), String>> {
    let [from, to] = limits(times);
    let mut sql = connection.prepare(&format!(
        "SELECT json_remove(report, '$.sketches') FROM reports WHERE number IN {CHOSEN} ORDER BY window_start, number"
    ))?;
    let mut rows = sql.query(params![observer, from, to, UNION_MAX as i64 + 1])?;
    let (mut count, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        if count == UNION_MAX {
            return Ok(Err(format!("more than {UNION_MAX} reports are too many to add up: choose a shorter time")));
        }
        let text = row.get_ref(0)?.as_str()?;
        (count, bytes) = (count + 1, bytes + text.len());
        if bytes > UNION_BYTES_MAX {
            let most = UNION_BYTES_MAX >> 20;
            return Ok(Err(format!(
                "the reports have more than {most} MiB, too many to add up: choose a shorter time"
            )));
        }
        match serde_json::from_str::<Report>(text) {
            Ok(report) => take(&report),
            Err(error) => return Ok(Err(format!("a report cannot be added up: {error}"))),
        }
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::store::{
            Store, look,
            tests::{Folder, put},
        },
        *,
    };

    #[test]
    fn a_chart_of_too_many_reports_has_the_newest() {
        let golden: Value = serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap();
        let line = |nth: u64| {
            let mut report = golden.clone();
            report["id"] = format!("7f/b41d/{nth}").into();
            report["observer"]["id"] = "7f".into();
            report["observer"]["seq"] = nth.into();
            report["window"]["start"] = format!("2026-11-20T08:00:{:02}Z", 10 * nth).into();
            report["window"]["end"] = format!("2026-11-20T08:00:{:02}Z", 10 * nth + 9).into();
            report.to_string()
        };
        let folder = Folder::new();
        // An old report may come last.
        put(&mut Store::open(&folder.database()).unwrap(), &[1, 2, 3, 5, 4, 0].map(line));
        let connection = look(&folder.database()).unwrap();
        let starts = |times, max| {
            let found = newest(&connection, "7f", times, max).unwrap().unwrap();
            found.iter().map(|window| window.past.start.as_second() % 60).collect::<Vec<_>>()
        };
        assert_eq!(starts((None, None), 10), [0, 10, 20, 30, 40, 50]);
        assert_eq!(starts((None, None), 3), [30, 40, 50]);
        let time = |text: &str| Some(text.parse().unwrap());
        assert_eq!(starts((time("2026-11-20T08:00:15Z"), time("2026-11-20T08:00:41Z")), 2), [30, 40]);
    }

    #[test]
    fn a_forged_report_with_many_interfaces_has_no_chart() {
        let mut report: Value = serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap();
        let interface = report["interfaces"][0].clone();
        let named = |nth: usize| {
            let mut interface = interface.clone();
            interface["name"] = format!("eth{nth}").into();
            interface
        };
        report["interfaces"] = (0..=LINES_MAX).map(named).collect();
        let folder = Folder::new();
        put(&mut Store::open(&folder.database()).unwrap(), &[report.to_string()]);
        let connection = look(&folder.database()).unwrap();
        let observer = report["observer"]["id"].as_str().unwrap();
        assert!(windows(&connection, observer, (None, None)).unwrap().unwrap_err().contains("too many interfaces"));
    }

    #[test]
    fn a_key_has_a_step_for_each_report() {
        let mut report: Value = serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap();
        let source = report["top"]["sources"][0]["src_ip"].as_str().unwrap().to_owned();
        report["addresses"] = Value::Null;
        let lines = [0, 1, 2].map(|nth: u64| {
            report["id"] = format!("7f/b41d/{nth}").into();
            report["observer"]["id"] = "7f".into();
            report["observer"]["seq"] = nth.into();
            report["window"]["start"] = format!("2026-11-20T08:00:{:02}Z", 10 * nth).into();
            report["window"]["end"] = format!("2026-11-20T08:00:{:02}Z", 10 * nth + 10).into();
            report.to_string()
        });
        let folder = Folder::new();
        put(&mut Store::open(&folder.database()).unwrap(), &lines);
        let connection = look(&folder.database()).unwrap();
        let key = format!("src_ip={source}");
        let told = of_key(&connection, "7f", (&key, None), (None, None), 360).unwrap().unwrap();
        let bytes: Vec<_> = told.windows.iter().map(|window| window.bytes.map(|bytes| bytes.value)).collect();
        assert_eq!(bytes, [report["top"]["sources"][0]["bytes"]["value"].as_u64(); 3]);
        assert!(told.windows.iter().all(|window| (window.windows, window.listed) == (1, 1)));
        let few = of_key(&connection, "7f", (&key, None), (None, None), 1).unwrap().unwrap();
        assert_eq!((few.windows.len(), few.windows[0].windows), (1, 3));
        assert!(of_key(&connection, "7f", ("ttl=7", None), (None, None), 1).unwrap().is_err());
    }

    fn window(start: i64, end: i64, bytes: u64) -> Short {
        let json = serde_json::json!({
            "window": {"start": Timestamp::from_second(start).unwrap().to_string(), "end": Timestamp::from_second(end).unwrap().to_string()},
            "totals": {"packets": 10, "bytes": bytes},
            "src_ip": {"value": 1, "lower": 1, "upper": 1, "confidence": 1.0},
            "alerts": [{"rule": "scan", "state": "firing"}],
            "interfaces": [{"name": "eth0", "direction": "ingress",
                "ledger": {"seen": {"packets": 10, "bytes": bytes}, "lost": {"ring_full": {"packets": 3, "bytes": 0}}}}],
        });
        short(&json).unwrap()
    }

    #[test]
    fn what_a_window_has_is_spread_over_its_time_exactly() {
        let windows = [window(100, 110, 1003), window(110, 120, 7), window(130, 140, 50)];
        let of = history(&windows, (None, None), 720);
        assert_eq!((of.step_seconds, of.interfaces.len(), of.windows.len()), (1, 1, 3));
        let bytes = &of.interfaces[0].bytes;
        assert_eq!(bytes.len(), 40);
        assert_eq!(bytes[..10].iter().flatten().sum::<u64>(), 1003);
        assert_eq!(bytes.iter().flatten().sum::<u64>(), 1060);
        assert!(bytes[20..30].iter().all(Option::is_none), "a gap");
        assert_eq!(of.interfaces[0].lost.iter().flatten().sum::<u64>(), 9);
        let few = history(&windows, (None, None), 2);
        assert_eq!((few.step_seconds, &few.interfaces[0].bytes[..]), (20, &[Some(1010), Some(50)][..]));
        assert_eq!(few.interfaces[0].seconds, [20.0, 10.0], "half of the last step is known");
        assert_eq!((few.windows.len(), few.windows[0].windows), (2, 2));
        let time = |second| Some(Timestamp::from_second(second).unwrap());
        let part = history(&windows[1..2], (time(115), time(117)), 100);
        assert_eq!((part.interfaces[0].packets.clone(), part.from), (vec![Some(1), Some(1)], time(115).unwrap()));
        assert_eq!(history(&[], (None, None), 10).interfaces.len(), 0);
    }
}
