//! One line of a body: a report, or a tombstone.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use weir_schema::{
    self as report, Content, TOMBSTONE_SCHEMA,
    limits::{LINE_BYTES_MAX, NAME_BYTES_MAX, check_id, check_name, check_seq, check_total, check_window},
};
use weir_system::text::short;

/// Maximum bytes of the id of a report: that of its observer, its run and its number.
const ID_BYTES_MAX: usize = 3 * NAME_BYTES_MAX;

/// The content of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'l> {
    /// A report.
    Report(ReportLine<'l>),
    /// A tombstone.
    Tombstone(TombstoneLine<'l>),
}

/// The columns of a report.
#[derive(Debug, PartialEq, Eq)]
pub struct ReportLine<'l> {
    /// The id of the report, which is globally unique.
    pub id: Cow<'l, str>,
    /// The observer that sent it.
    pub observer: ObserverFields<'l>,
    /// The number of the report.
    pub seq: i64,
    /// The id of the report before it.
    pub previous: Option<Cow<'l, str>>,
    /// When its window began, to the millisecond: the order of such texts is the order of time.
    pub window_start: String,
    /// When its window ended.
    pub window_end: String,
    /// Packets of its totals.
    pub packets: Option<i64>,
    /// Bytes of its totals.
    pub bytes: Option<i64>,
}

/// The columns of a tombstone.
#[derive(Debug, PartialEq, Eq)]
pub struct TombstoneLine<'l> {
    /// The id of the tombstone, which is globally unique.
    pub id: Cow<'l, str>,
    /// The observer that sent it.
    pub observer: ObserverFields<'l>,
    /// The first report that was dropped.
    pub first_seq: i64,
    /// The last sequence number.
    pub last_seq: i64,
    /// How many were dropped.
    pub reports: i64,
    /// The reason why the reports were dropped.
    pub reason: Cow<'l, str>,
}

/// The fields of an observer.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct ObserverFields<'l> {
    /// The identity of the observer.
    #[serde(borrow)]
    pub id: Cow<'l, str>,
    /// The run of the daemon.
    #[serde(borrow)]
    pub boot_id: Cow<'l, str>,
    /// The name for people.
    #[serde(borrow, default)]
    pub name: Option<Cow<'l, str>>,
    /// The site of the observer.
    #[serde(borrow, default)]
    pub site: Option<Cow<'l, str>>,
    #[serde(default)]
    seq: Option<u64>,
}

/// The fields that are parsed. Everything else is kept unchanged, including what later versions add.
#[derive(Deserialize)]
struct Fields<'l> {
    #[serde(borrow, default)]
    schema: Option<Cow<'l, str>>,
    #[serde(borrow, default)]
    id: Option<Cow<'l, str>>,
    #[serde(borrow, default)]
    previous: Option<Cow<'l, str>>,
    #[serde(borrow, default)]
    observer: Option<ObserverFields<'l>>,
    #[serde(default)]
    window: Option<WindowFields>,
    #[serde(default)]
    totals: Option<TotalsFields>,
    #[serde(default)]
    first_seq: Option<u64>,
    #[serde(default)]
    last_seq: Option<u64>,
    #[serde(default)]
    reports: Option<u64>,
    #[serde(borrow, default)]
    reason: Option<Cow<'l, str>>,
}

#[derive(Deserialize)]
struct WindowFields {
    start: Timestamp,
    end: Timestamp,
}

#[derive(Deserialize)]
struct TotalsFields {
    packets: u64,
    bytes: u64,
}

impl<'l> Line<'l> {
    /// Parses a line, without its line break.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for the sender's log.
    pub fn read(text: &'l str) -> Result<Self, String> {
        // serde would also accept a list of the fields in their order.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(format!("{:?} is not a JSON object", short(text)));
        }
        if text.len() > LINE_BYTES_MAX {
            return Err(format!("the line is longer than {} MiB, so it is not a report", LINE_BYTES_MAX >> 20));
        }
        Content::read(text)?;
        let fields: Fields<'l> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match fields.schema.as_deref() {
            Some(report::SCHEMA) => fields.report().map(Self::Report),
            Some(TOMBSTONE_SCHEMA) => fields.tombstone().map(Self::Tombstone),
            Some(other) => Err(format!(
                "schema {:?} is unknown to this weir (have: {}, {TOMBSTONE_SCHEMA})",
                short(other),
                report::SCHEMA
            )),
            None => Err(missing("schema")),
        }
    }

    /// Returns the observer that sent the line.
    pub const fn observer(&self) -> &ObserverFields<'l> {
        match self {
            Self::Report(report) => &report.observer,
            Self::Tombstone(tombstone) => &tombstone.observer,
        }
    }

    /// Returns the id of the report or tombstone.
    pub fn id(&self) -> &str {
        match self {
            Self::Report(report) => &report.id,
            Self::Tombstone(tombstone) => &tombstone.id,
        }
    }
}

impl<'l> Fields<'l> {
    fn report(self) -> Result<ReportLine<'l>, String> {
        let (id, observer) = identity(self.id, self.observer)?;
        let seq = observer.seq.ok_or_else(|| missing("observer.seq"))?;
        check_id(&id, &observer.id, &observer.boot_id, &seq.to_string())?;
        let window = self.window.ok_or_else(|| missing("window"))?;
        check_window(window.start, window.end)?;
        if let Some(TotalsFields { packets, bytes }) = self.totals {
            check_total("totals.packets", packets)?;
            check_total("totals.bytes", bytes)?;
        }
        if self.previous.as_ref().is_some_and(|previous| previous.len() > ID_BYTES_MAX) {
            return Err(format!("`previous` is longer than {ID_BYTES_MAX} bytes"));
        }
        let sum = |of: fn(&TotalsFields) -> u64| self.totals.as_ref().and_then(|totals| i64::try_from(of(totals)).ok());
        Ok(ReportLine {
            packets: sum(|totals| totals.packets),
            bytes: sum(|totals| totals.bytes),
            id,
            observer,
            seq: number("observer.seq", seq)?,
            previous: self.previous,
            window_start: sortable(window.start),
            window_end: sortable(window.end),
        })
    }

    fn tombstone(self) -> Result<TombstoneLine<'l>, String> {
        let (id, observer) = identity(self.id, self.observer)?;
        let first = self.first_seq.ok_or_else(|| missing("first_seq"))?;
        let last = self.last_seq.ok_or_else(|| missing("last_seq"))?;
        let reports = self.reports.ok_or_else(|| missing("reports"))?;
        let reason = self.reason.ok_or_else(|| missing("reason"))?;
        let (first_seq, last_seq) = (number("first_seq", first)?, number("last_seq", last)?);
        if last < first {
            return Err(format!("last_seq {last} is before first_seq {first}"));
        }
        let numbers = last - first + 1;
        if !(1..=numbers).contains(&reports) {
            return Err(format!(
                "{reports} reports cannot be those from {first} to {last}, which are at most {numbers}"
            ));
        }
        check_id(&id, &observer.id, &observer.boot_id, &format!("{first}-{last}"))?;
        check_name("reason", &reason)?;
        Ok(TombstoneLine { id, observer, first_seq, last_seq, reports: number("reports", reports)?, reason })
    }
}

fn identity<'l>(
    id: Option<Cow<'l, str>>,
    observer: Option<ObserverFields<'l>>,
) -> Result<(Cow<'l, str>, ObserverFields<'l>), String> {
    let id = id.ok_or_else(|| missing("id"))?;
    let observer = observer.ok_or_else(|| missing("observer"))?;
    for (name, part) in [("observer.id", &observer.id), ("observer.boot_id", &observer.boot_id)] {
        check_name(name, part)?;
        if part.is_empty() || part.contains('/') {
            return Err(format!("{name} {:?} is empty, or has a slash", short(part)));
        }
    }
    for (name, text) in [("observer.name", &observer.name), ("observer.site", &observer.site)] {
        text.as_ref().map_or(Ok(()), |text| check_name(name, text))?;
    }
    Ok((id, observer))
}

fn number(name: &str, value: u64) -> Result<i64, String> {
    check_seq(name, value)?;
    // SQLite's integers are signed.
    Ok(value.cast_signed())
}

fn missing(name: &str) -> String {
    format!("`{name}` is missing")
}

/// A time as text of a fixed length, so that the order of texts is the order of time.
pub fn sortable(time: Timestamp) -> String {
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = include_str!("../../schema/tests/golden/report.json");
    const TOMBSTONE: &str = r#"{"schema":"weir.tombstone/1","id":"7f3c9a52/b41d/40-42","observer":{"id":"7f3c9a52","boot_id":"b41d"},"first_seq":40,"last_seq":42,"reports":3,"reason":"spool_full"}"#;

    #[test]
    fn a_report_has_its_columns() {
        let Ok(Line::Report(report)) = Line::read(REPORT) else { panic!("it is a report") };
        assert_eq!((&*report.id, report.seq), ("7f3c9a52/b41d/42", 42));
        assert_eq!(report.previous.as_deref(), Some("7f3c9a52/b41d/41"));
        assert_eq!((&*report.observer.id, &*report.observer.boot_id), ("7f3c9a52", "b41d"));
        assert_eq!((report.observer.name.as_deref(), report.observer.site.as_deref()), (Some("edge-1"), Some("fra1")));
        assert_eq!(report.window_start, "2026-11-20T08:00:00.000Z");
        assert_eq!(report.window_end, "2026-11-20T08:00:10.000Z");
        let whole: report::Report = serde_json::from_str(REPORT).unwrap();
        assert_eq!(report.packets, Some(whole.totals.packets as i64));
        assert_eq!(report.bytes, Some(whole.totals.bytes as i64));
    }

    #[test]
    fn a_tombstone_has_its_columns_whatever_its_reason() {
        let unknown = TOMBSTONE.replace("spool_full", "cat_ate_it");
        for (text, reason) in [(TOMBSTONE, "spool_full"), (&*unknown, "cat_ate_it")] {
            let Ok(Line::Tombstone(tombstone)) = Line::read(text) else { panic!("it is a tombstone") };
            assert_eq!(tombstone.id, "7f3c9a52/b41d/40-42");
            assert_eq!((tombstone.first_seq, tombstone.last_seq, tombstone.reports), (40, 42, 3));
            assert_eq!(tombstone.reason, reason);
        }
    }

    #[test]
    fn errors_name_the_problem() {
        let says = |text: &str, part: &str| {
            let error = Line::read(text).unwrap_err();
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        };
        says("", "is not a JSON object");
        says("{\"schema\":\"weir.report/1\"", "EOF");
        says(&format!("[{REPORT}]"), "is not a JSON object");
        says("{} {}", "trailing characters");
        says("{}", "`schema` is missing");
        says(r#"{"schema":"weir.report/2"}"#, "weir.report/2");
        says(r#"{"schema":"weir.report/1"}"#, "`id` is missing");
        let report: serde_json::Value = serde_json::from_str(REPORT).unwrap();
        let changed = |pointer: &str, value: serde_json::Value| {
            let mut report = report.clone();
            *report.pointer_mut(pointer).unwrap() = value;
            report.to_string()
        };
        says(&changed("/id", "7f3c9a52/b41d/43".into()), "which makes \"7f3c9a52/b41d/42\"");
        says(&changed("/observer/id", "7f/3c".into()), "has a slash");
        says(&changed("/observer/seq", (-1).into()), "invalid value");
        says(&changed("/window/end", "yesterday".into()), "year");
        let huge = changed("/observer/seq", u64::MAX.into()).replace("b41d/42", &format!("b41d/{}", u64::MAX));
        says(&huge, "no weir has sent 18446744073709551615 reports (`observer.seq`)");
        let says_of_tombstone = |from: &str, to: &str, part| says(&TOMBSTONE.replace(from, to), part);
        says_of_tombstone("\"first_seq\":40", "\"first_seq\":43", "is before first_seq");
        says_of_tombstone("\"reports\":3", "\"reports\":4", "at most 3");
        says_of_tombstone("\"reports\":3", "\"reports\":0", "0 reports");
        says_of_tombstone("40-42", "40-43", "which makes \"7f3c9a52/b41d/40-42\"");
        says_of_tombstone(",\"reason\":\"spool_full\"", "", "`reason` is missing");
    }

    #[test]
    fn the_nesting_of_a_report_has_a_limit() {
        use weir_schema::limits::DEPTH_MAX;
        let with = |depth: usize| {
            let deep = "[".repeat(depth) + "\"]\\\"[\"" + &"]".repeat(depth);
            REPORT.trim_end().strip_suffix('}').unwrap().to_owned() + ",\"later\":" + &deep + "}"
        };
        assert!(Line::read(&with(DEPTH_MAX - 1)).is_ok());
        for depth in [DEPTH_MAX, 200_000] {
            assert!(Line::read(&with(depth)).unwrap_err().contains("more than 64 levels"));
        }
    }

    #[test]
    fn every_text_of_a_report_has_a_limit() {
        let says = |pointer: &str, bytes: usize, part: &str| {
            let mut report: serde_json::Value = serde_json::from_str(REPORT).unwrap();
            *report.pointer_mut(pointer).unwrap() = "x".repeat(bytes).into();
            let error = Line::read(&report.to_string()).unwrap_err();
            assert!(error.contains(part) && error.len() < 300, "{error:?} does not say {part:?}");
        };
        for (pointer, field) in [
            ("/observer/id", "observer.id"),
            ("/observer/boot_id", "observer.boot_id"),
            ("/observer/name", "observer.name"),
            ("/observer/site", "observer.site"),
        ] {
            says(pointer, 256, &format!("`{field}` is longer than 255 bytes"));
            says(pointer, 10 << 20, "is longer than");
        }
        says("/previous", 10 << 20, "is longer than");
        for (pointer, field) in [("/interfaces/0/name", "name"), ("/top/sources/0/src_ip", "src_ip")] {
            says(pointer, 10 << 20, &format!("the text of `{field}` is longer than 65536 bytes"));
        }
        let long = TOMBSTONE.replace("spool_full", &"x".repeat(256));
        assert!(Line::read(&long).unwrap_err().contains("`reason` is longer than 255 bytes"));
        let name = REPORT.replacen("\"totals\"", &format!("\"{}\":1,\"totals\"", "x".repeat(10 << 20)), 1);
        assert!(Line::read(&name).unwrap_err().contains("the name of a field is longer than 255 bytes"));
        let spaces = format!("{}{}", REPORT.trim_end(), " ".repeat(LINE_BYTES_MAX));
        assert!(Line::read(&spaces).unwrap_err().contains("longer than 16 MiB"));
    }

    #[test]
    fn a_window_that_no_database_can_order_is_refused() {
        for (from, to) in
            [("2026-11-20T08:00:00", "-000100-11-20T08:00:00"), ("2026-11-20T08:00:00", "2027-11-20T08:00:00")]
        {
            let error = Line::read(&REPORT.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains("begins before 1970, or ends before it begins"), "{to}: {error}");
        }
    }

    #[test]
    fn totals_that_no_link_carries_are_refused() {
        for total in [1 << 53, u64::MAX] {
            let mut report: serde_json::Value = serde_json::from_str(REPORT).unwrap();
            report["totals"]["bytes"] = total.into();
            let why = Line::read(&report.to_string()).unwrap_err();
            assert_eq!(why, format!("no window has {total} (totals.bytes)"));
        }
    }

    #[test]
    fn times_are_in_the_order_of_their_texts() {
        let times = ["2026-11-20T08:00:00Z", "2026-11-20T08:00:00.5Z", "2026-11-20T08:00:01Z"];
        let texts = times.map(|time| sortable(time.parse().unwrap()));
        assert!(texts.is_sorted(), "{texts:?}");
    }
}
