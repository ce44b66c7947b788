//! Parses a line: a report, a tombstone, or neither. Its sketches are unpacked here, on all CPUs.

use std::{num::NonZero, thread, time::Duration};

use jiff::Timestamp;
use serde::Deserialize;
use weir_common::ledger::Tally;
use weir_config::view::ViewKey;
use weir_schema::{
    Account, Content, Part, SCHEMA, Sketches, TOMBSTONE_SCHEMA, asked,
    limits::{NAME_BYTES_MAX, check_id, check_name, check_seq, check_total, check_window},
    sketches::{ListSketch, decode, key_id},
};
use weir_sketch::{HyperLogLog, Image as _, Spread, datasketches::hll};

use crate::input::{LINE_MAX, Line};

/// The most memory that the image of a spread sketch may ask for: some ten times that of weir's own.
const SPREAD_BYTES_MAX: usize = 16 << 20;

/// The most bytes of the names of a key's fields.
const FIELDS_BYTES_MAX: usize = 512;

/// The reason to leave out a sketch if the report has another one of the same name.
const TWICE: &str = "the report has another one of this name";

/// The meaning of a line.
#[derive(Debug)]
pub enum Parsed {
    /// A report.
    Report(Box<Report>),
    /// A tombstone.
    Tombstone(Tombstone),
    /// Neither, for this reason.
    Unreadable(String),
}

/// The sender of a report.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Sender {
    /// The sender's identity.
    pub id: String,
    /// The run of the daemon.
    pub boot_id: String,
    /// The number of the report.
    #[serde(default)]
    pub seq: u64,
    /// The name for people.
    #[serde(default)]
    pub name: String,
    /// The site of the sender.
    #[serde(default)]
    pub site: Option<String>,
}

impl Sender {
    /// Checks that the names are such as weir writes.
    fn check(&self) -> Result<(), String> {
        let Self { id, boot_id, seq: _, name, site } = self;
        let all = [("observer.id", id), ("observer.boot_id", boot_id), ("observer.name", name)].into_iter();
        all.chain(site.iter().map(|site| ("observer.site", site))).try_for_each(|(field, text)| check_name(field, text))
    }
}

/// A report, as far as merging needs it.
#[derive(Debug)]
pub struct Report {
    /// The weir that sent it.
    pub sender: Sender,
    /// The id of the report before.
    pub previous: Option<String>,
    /// The fingerprint of its content.
    pub content: Content,
    /// When its window began.
    pub start: Timestamp,
    /// When its window ended.
    pub end: Timestamp,
    /// Everything seen, each packet once.
    pub seen: Tally,
    /// The account of its packets.
    pub account: Account,
    /// The sketches, if it carries any.
    pub sketches: Option<Unpacked>,
}

impl Report {
    /// How long its window is, or all windows of its sketches together.
    pub fn longest(&self) -> Duration {
        let sketches = self.sketches.as_ref().map(|sketches| (sketches.start, sketches.end));
        let all = [Some((self.start, self.end)), sketches].into_iter().flatten();
        all.map(|(start, end)| end.duration_since(start).try_into().unwrap_or_default()).max().unwrap_or_default()
    }
}

/// The sketches of a report.
#[derive(Debug)]
pub struct Unpacked {
    /// When the first of their windows began.
    pub start: Timestamp,
    /// When the last one ended.
    pub end: Timestamp,
    /// The sketches of distinct counts.
    pub distinct: Vec<Counted<HyperLogLog>>,
    /// The sketches of lists.
    pub lists: Vec<ListSketch>,
    /// Distinct counts by key, with the fields of a key.
    pub spread: Vec<(Vec<String>, Counted<Spread<ViewKey>>)>,
    /// Sketches that could not be read: their names, and why.
    pub broken: Vec<(String, String)>,
}

/// A distinct count with its sketch.
#[derive(Debug)]
pub struct Counted<S> {
    /// The name of the count.
    pub name: String,
    /// The fingerprint of the question, if it is known.
    pub question: Option<u64>,
    /// The fingerprint of the key of its hashes.
    pub key_id: u64,
    /// Missing packets. Each may belong to one more value.
    pub missing: u64,
    /// The sketch.
    pub sketch: S,
}

/// Reports that will never come.
#[derive(Debug)]
pub struct Tombstone {
    /// The weir that could not send these reports.
    pub sender: Sender,
    /// The first sequence number.
    pub first: u64,
    /// The last sequence number.
    pub last: u64,
    /// Why they are lost.
    pub reason: String,
}

/// The fields that are read. All others are passed over.
#[derive(Deserialize)]
struct Fields {
    schema: String,
    id: String,
    observer: Sender,
    #[serde(default)]
    previous: Option<String>,
    #[serde(default)]
    window: Option<Window>,
    #[serde(default)]
    totals: Option<Sums>,
    #[serde(default)]
    interfaces: Vec<Part>,
    #[serde(default)]
    sketches: Option<Sketches>,
    #[serde(default)]
    first_seq: Option<u64>,
    #[serde(default)]
    last_seq: Option<u64>,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Window {
    start: Timestamp,
    end: Timestamp,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Sums {
    packets: u64,
    bytes: u64,
}

impl From<Sums> for Tally {
    fn from(Sums { packets, bytes }: Sums) -> Self {
        Self::new(packets, bytes)
    }
}

/// Parses lines on all CPUs; the order stays.
pub fn parse_all(lines: &[Line]) -> Vec<Parsed> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(8);
    let part = lines.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts: Vec<_> = lines.chunks(part).map(|lines| scope.spawn(|| parse_part(lines))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
    })
}

fn parse_part(lines: &[Line]) -> Vec<Parsed> {
    let at = |line: &Line| match line.text.as_deref().map_or_else(|| Parsed::Unreadable(too_long()), parse) {
        Parsed::Unreadable(why) => Parsed::Unreadable(format!("{}: {why}", line.place)),
        parsed => parsed,
    };
    lines.iter().map(at).collect()
}

fn too_long() -> String {
    format!("it has more than {} MiB, so it is not a report: is this a file of reports, one a line?", LINE_MAX >> 20)
}

/// Parses a line.
pub fn parse(line: &str) -> Parsed {
    let read = || {
        let content = Content::read(line)?;
        Ok((content, serde_json::from_str(line).map_err(|error| error.to_string())?))
    };
    let (content, fields): (Content, Fields) = match read() {
        Ok(read) => read,
        Err(why) => return Parsed::Unreadable(why),
    };
    if let Err(why) = fields.observer.check() {
        return Parsed::Unreadable(why);
    }
    match &*fields.schema {
        SCHEMA => report(fields, content).unwrap_or_else(Parsed::Unreadable),
        TOMBSTONE_SCHEMA => tombstone(fields).unwrap_or_else(Parsed::Unreadable),
        other => Parsed::Unreadable(format!("the schema {other:?} is unknown (have: {SCHEMA}, {TOMBSTONE_SCHEMA})")),
    }
}

fn report(fields: Fields, content: Content) -> Result<Parsed, String> {
    let Fields { id, observer, previous, window, totals, interfaces, sketches, .. } = fields;
    check_seq("observer.seq", observer.seq)?;
    check_id(&id, &observer.id, &observer.boot_id, &observer.seq.to_string())?;
    let (Some(window), Some(totals)) = (window, totals) else {
        return Err("the report has no window or no totals".to_owned());
    };
    check_window(window.start, window.end)?;
    sketches.as_ref().map_or(Ok(()), |sketches| check_window(sketches.start, sketches.end))?;
    check_total("totals.packets", totals.packets)?;
    check_total("totals.bytes", totals.bytes)?;
    interfaces.iter().try_for_each(Part::check)?;
    Ok(Parsed::Report(Box::new(Report {
        previous,
        content,
        sender: observer,
        start: window.start,
        end: window.end,
        seen: totals.into(),
        account: Account::of_parts(&interfaces),
        sketches: sketches.map(unpack),
    })))
}

fn tombstone(fields: Fields) -> Result<Parsed, String> {
    let Fields { id, observer, first_seq, last_seq, reason, .. } = fields;
    match (first_seq, last_seq, reason) {
        // A later version may have reasons that this one does not know.
        (Some(first), Some(last), Some(reason)) if first <= last => {
            check_seq("last_seq", last)?;
            check_id(&id, &observer.id, &observer.boot_id, &format!("{first}-{last}"))?;
            check_name("reason", &reason)?;
            Ok(Parsed::Tombstone(Tombstone { sender: observer, first, last, reason }))
        }
        _ => Err("the tombstone does not say which reports it stands for".to_owned()),
    }
}

/// Checks that a sketch has names such as weir writes. The error has the start of its name, and why not.
fn check_names(name: &str, by: &[String]) -> Result<(), (String, String)> {
    let broken = |why: String| Err((name.chars().take(NAME_BYTES_MAX / 4).collect(), why));
    if name.len() > NAME_BYTES_MAX {
        return broken(format!("its name is longer than {NAME_BYTES_MAX} bytes"));
    }
    // Each takes some bytes, also if it is empty.
    let bytes: usize = by.iter().map(|field| size_of::<String>() + field.len()).sum();
    if bytes > FIELDS_BYTES_MAX {
        return broken(format!("the names of its fields are longer than {FIELDS_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// Checks that a window may have lost so many packets. The error has the name of the sketch, and why not.
fn check_missing(name: &str, missing: u64) -> Result<(), (String, String)> {
    check_total("missing_packets", missing).map_err(|why| (name.to_owned(), why))
}

fn unpack(sketches: Sketches) -> Unpacked {
    let Sketches { start, end, windows: _, distinct, lists, spread } = sketches;
    let mut unpacked =
        Unpacked { start, end, distinct: Vec::new(), lists: Vec::new(), spread: Vec::new(), broken: Vec::new() };
    for one in lists {
        match check_names(&one.name, &one.by) {
            Ok(()) if unpacked.lists.iter().any(|other| (&other.name, &other.by) == (&one.name, &one.by)) => {
                unpacked.broken.push((one.name, TWICE.to_owned()));
            }
            Ok(()) => unpacked.lists.push(one),
            Err(broken) => unpacked.broken.push(broken),
        }
    }
    for one in distinct {
        if let Err(broken) = check_names(&one.name, &[]).and_then(|()| check_missing(&one.name, one.missing_packets)) {
            unpacked.broken.push(broken);
            continue;
        }
        if unpacked.distinct.iter().any(|other| other.name == one.name) {
            unpacked.broken.push((one.name, TWICE.to_owned()));
            continue;
        }
        let read = |key_id| {
            let image = decode(&one.hll).ok_or("it is not base64")?;
            let sketch = hll::read(&image, key_id).map_err(|error| error.to_string())?;
            if sketch.precision() == one.lg_k {
                Ok(sketch)
            } else {
                Err("its lg_k is not that of its image".to_owned())
            }
        };
        match key_id(&one.key_id).ok_or("its key_id is not a fingerprint".to_owned()).and_then(|id| Ok((id, read(id)?)))
        {
            Ok((key_id, sketch)) => {
                let question = asked(&one.name, &[], one.question.as_deref()).and_then(self::key_id);
                let counted = Counted { name: one.name, question, key_id, missing: one.missing_packets, sketch };
                unpacked.distinct.push(counted);
            }
            Err(why) => unpacked.broken.push((one.name, why)),
        }
    }
    for one in spread {
        if let Err(broken) =
            check_names(&one.name, &one.by).and_then(|()| check_missing(&one.name, one.missing_packets))
        {
            unpacked.broken.push(broken);
            continue;
        }
        if unpacked.spread.iter().any(|(by, other)| (by, &other.name) == (&one.by, &one.name)) {
            unpacked.broken.push((one.name, TWICE.to_owned()));
            continue;
        }
        let read = || {
            let image = decode(&one.image).ok_or("it is not base64")?;
            Spread::<ViewKey>::from_image(&image, SPREAD_BYTES_MAX).map_err(|error| error.to_string())
        };
        match read() {
            Ok(sketch) if key_id(&one.key_id) == Some(sketch.key_id()) => {
                let key_id = sketch.key_id();
                let question = asked(&one.name, &one.by, one.question.as_deref()).and_then(self::key_id);
                let counted = Counted { name: one.name, question, key_id, missing: one.missing_packets, sketch };
                unpacked.spread.push((one.by, counted));
            }
            Ok(_) => unpacked.broken.push((one.name, "its key_id is not that of its image".to_owned())),
            Err(why) => unpacked.broken.push((one.name, why)),
        }
    }
    unpacked
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::input::Place;

    /// A report with every field.
    const GOLDEN: &str = include_str!("../../schema/tests/golden/report.json");

    #[test]
    fn a_report_is_read_with_its_sketches() {
        let Parsed::Report(report) = parse(GOLDEN) else { panic!() };
        assert_eq!((&*report.sender.name, report.sender.seq), ("edge-1", 42));
        assert_eq!(report.previous.as_deref(), Some("7f3c9a52/b41d/41"));
        assert!(report.seen.packets > 1_000_000 && report.account.lost().packets > 0);
        let sketches = report.sketches.unwrap();
        assert_eq!((sketches.distinct.len(), sketches.lists.len(), sketches.broken.len()), (1, 2, 1));
        assert_eq!(sketches.distinct[0].sketch.bounds().value, 3, "three registers of sixteen");
        assert_eq!(sketches.broken[0].0, "ports_per_source");
    }

    #[test]
    fn a_sketch_counts_once() {
        let mut forged: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
        for kind in ["distinct", "lists", "spread"] {
            let all = forged["sketches"][kind].as_array_mut().unwrap();
            all.extend(all.clone());
        }
        let Parsed::Report(report) = parse(&forged.to_string()) else { panic!() };
        let sketches = report.sketches.unwrap();
        assert_eq!((sketches.distinct.len(), sketches.lists.len()), (1, 2));
        assert_eq!(sketches.broken.iter().filter(|(_, why)| why == TWICE).count(), 3);
    }

    #[test]
    fn what_is_no_report_says_why() {
        let why = |line: &str| match parse(line) {
            Parsed::Unreadable(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(why("{}").contains("missing field"));
        assert!(why("ok").contains("expected"));
        assert!(
            why(&GOLDEN.replacen("\"version\"", &format!("\"{}\"", "x".repeat(10 << 20)), 1))
                .contains("name of a field")
        );
        let observer = r#""observer":{"id":"a","boot_id":"b"}"#;
        let of =
            |schema: &str, id: &str, more: &str| format!(r#"{{"schema":"{schema}","id":"{id}",{observer}{more}}}"#);
        assert!(why(&of("weir.report/9", "a/b/0", "")).contains("weir.report/9"));
        assert!(why(&of("weir.report/1", "a/b/0", "")).contains("no window"));
        assert!(why(&of("weir.tombstone/1", "a/b/3-4", r#","first_seq":3"#)).contains("which reports"));
        let numbers = |seq: u64| {
            let tombstone = format!(r#","first_seq":3,"last_seq":{seq},"reason":"spool_full""#);
            parse(&of("weir.tombstone/1", &format!("a/b/3-{seq}"), &tombstone))
        };
        let other = r#","first_seq":3,"last_seq":4,"reason":"spool_full""#;
        assert!(why(&of("weir.tombstone/1", "a/b/3-5", other)).contains("is not that of its observer"));
        assert!(why(&GOLDEN.replacen("\"seq\": 42", "\"seq\": 43", 1)).contains("is not that of its observer"));
        assert!(matches!(numbers(weir_schema::limits::SEQ_MAX - 1), Parsed::Tombstone(_)));
        assert!(matches!(numbers(u64::MAX), Parsed::Unreadable(_)));
        assert!(why(&GOLDEN.replacen("\"seq\": 42", &format!("\"seq\": {}", u64::MAX), 1)).contains("observer.seq"));
        let renamed = |field: &str, value: &str| {
            why(&GOLDEN.replacen(
                &format!("\"{field}\": \"{value}\""),
                &format!("\"{field}\": \"{}\"", "x".repeat(300)),
                1,
            ))
        };
        assert!(renamed("name", "edge-1").contains("`observer.name` is longer than 255 bytes"));
        assert!(why(&GOLDEN.replacen("\"end\": \"20", "\"end\": \"19", 1)).contains("ends before it begins"));
        assert!(why(&GOLDEN.replacen("\"start\": \"20", "\"start\": \"19", 1)).contains("begins before 1970"));
        let mut forged: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
        forged["totals"]["bytes"] = (1_u64 << 53).into();
        assert!(why(&forged.to_string()).contains("no window has 9007199254740992 (totals.bytes)"));
        let forged = |pointer: &str, value: serde_json::Value| {
            let mut forged: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
            *forged.pointer_mut(pointer).unwrap() = value;
            forged.to_string()
        };
        for (pointer, value) in [("name", "x".repeat(256).into()), ("mode", "x".repeat(60_000).into())] {
            let why = why(&forged(&format!("/interfaces/0/{pointer}"), value));
            assert!(why.contains("`interfaces` is longer than 255 bytes"), "{why}");
        }
        let why = why(&forged("/interfaces/0/ledger/seen/packets", (1_u64 << 63).into()));
        assert!(why.contains("no window has 9223372036854775808 (interfaces[].ledger)"), "{why}");
        let Parsed::Report(report) = parse(&forged("/sketches/distinct/0/missing_packets", (1_u64 << 63).into()))
        else {
            panic!()
        };
        let broken = report.sketches.unwrap().broken;
        assert!(broken.iter().any(|(_, why)| why.contains("(missing_packets)")), "{broken:?}");
        let place = |number| Place { path: Path::new("a.json").into(), table: None, number };
        let line = |number, text: &str| Line { place: place(number), text: Some(text.to_owned()) };
        let report = GOLDEN.replace('\n', "");
        let too_long = Line { place: place(5), text: None };
        let lines = [line(1, &report), line(3, "{}"), line(4, &report), too_long];
        let parsed = parse_all(&lines);
        let kinds: Vec<bool> = parsed.iter().map(|line| matches!(line, Parsed::Report(_))).collect();
        assert_eq!(kinds, [true, false, true, false], "the order stays");
        assert!(matches!(&parsed[3], Parsed::Unreadable(why) if why.starts_with("a.json:5: it has more than 16 MiB")));
        assert!(matches!(&parsed[1], Parsed::Unreadable(why) if why.starts_with("a.json:3: missing field")));
    }
}
