//! What changed in a list between two times: which keys are new or gone, and which have grown or shrunk.
//!
//! The two times may differ in length, and in how much of them weir has seen, so rates are compared. A change is
//! certain if the bounds of both rates do not overlap. A key that only one of the lists names has at most what the
//! other one says of keys without a row.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_config::view::Standard;

use crate::{Gap, KeyAnswer, ListKey, Union, Window, lists::fields_as_json};

/// The schema that [`Changes`] serialises to.
pub const CHANGES_SCHEMA: &str = "weir.history_changes/1";

/// The changes of a list between two times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// The schema's name and version.
    pub schema: String,
    /// The name of the list.
    pub list: String,
    /// What is compared: `bytes` or `packets`.
    pub by: String,
    /// The earlier time.
    pub before: ComparedTime,
    /// The later time.
    pub now: ComparedTime,
    /// The probability that all bounds hold, 0 to 1.
    pub confidence: f64,
    /// The certain changes, the largest first.
    pub rows: Vec<Change>,
    /// How many other keys the lists name: their bounds overlap, so they may have stayed the same.
    pub uncertain: usize,
}

/// A time that is compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedTime {
    /// From the start of its first window to the end of the last one; `seconds` is the sum of all windows.
    pub window: Window,
    /// The number of windows.
    pub windows: u64,
    /// The parts of it that weir has no data for. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Gap>,
}

/// The change of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What has happened.
    pub change: ChangeKind,
    /// The key: its fields as the rows of the list have them.
    #[serde(flatten)]
    pub key: Map<String, Value>,
    /// What it had in the earlier time, in bytes or packets.
    pub before: KeyAmount,
    /// What it had in the later time.
    pub now: KeyAmount,
}

/// What has happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Only the later list has it, with more than it can have had before.
    New,
    /// Only the earlier list has it, with more than it can have now.
    Gone,
    /// Its rate is higher.
    Grown,
    /// Its rate is lower.
    Shrunk,
}

/// How much a key had in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyAmount {
    /// The most likely amount; `null` if the list of this time does not name the key.
    pub value: Option<u64>,
    /// It had at least this much.
    pub lower: u64,
    /// It had at most this much.
    pub upper: u64,
}

impl ChangeKind {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Grown => "grown",
            Self::Shrunk => "shrunk",
        }
    }
}

impl Changes {
    /// Compares a list of two times, by packets or by bytes.
    ///
    /// # Errors
    ///
    /// The list cannot be added up, or the windows of a time have no length.
    pub fn of(before: &Union, now: &Union, list: Standard, by_packets: bool) -> Result<Self, String> {
        let seconds = |union: &Union| {
            let seconds = union.window.seconds.seconds().filter(|seconds| *seconds > 0.0);
            seconds.ok_or_else(|| "the windows of one of these times have no length, so there are no rates".to_owned())
        };
        let lengths = (seconds(before)?, seconds(now)?);
        let keys: BTreeSet<Fields> = [before, now].iter().flat_map(|union| keys(union, list, by_packets)).collect();
        let (mut changes, mut uncertain) = (Vec::new(), 0);
        let mut confidence: f64 = 1.0;
        for key in &keys {
            let parts: Vec<String> = key.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let parsed = ListKey::parse(&parts.join(","), None)?;
            let (of_before, first) = amount(before, &parsed, by_packets)?;
            let (of_now, second) = amount(now, &parsed, by_packets)?;
            confidence = confidence.min((first + second - 1.0).max(0.0));
            match certain(&of_before, &of_now, lengths) {
                Some((change, rate)) => {
                    changes.push((rate, Change { change, key: fields_as_json(key), before: of_before, now: of_now }));
                }
                None => uncertain += 1,
            }
        }
        changes.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        Ok(Self {
            schema: CHANGES_SCHEMA.to_owned(),
            list: list.name().to_owned(),
            by: if by_packets { "packets" } else { "bytes" }.to_owned(),
            before: ComparedTime::of(before),
            now: ComparedTime::of(now),
            confidence,
            rows: changes.into_iter().map(|(_, change)| change).collect(),
            uncertain,
        })
    }
}

impl ComparedTime {
    fn of(union: &Union) -> Self {
        Self { window: union.window, windows: union.windows, missing: union.missing.clone() }
    }
}

/// The fields of a key and their values.
type Fields = Vec<(&'static str, String)>;

/// The keys of a list.
fn keys(union: &Union, list: Standard, by_packets: bool) -> Vec<Fields> {
    let top = if by_packets { &union.top_by_packets } else { &union.top };
    let rows = top.list(list).map(|list| list.rows).unwrap_or_default();
    rows.iter().map(|row| row.key.fields().collect()).collect()
}

/// What a key had, and the probability that this is so.
fn amount(union: &Union, key: &ListKey, by_packets: bool) -> Result<(KeyAmount, f64), String> {
    let KeyAnswer::Asked(found, _) = union.of_key(key) else {
        return Err("this list cannot be added up over several windows".to_owned());
    };
    let most = if by_packets { found.at_most.packets } else { found.at_most.bytes };
    let sums = found.sums.map(|sums| if by_packets { sums.packets } else { sums.bytes });
    let none = KeyAmount { value: None, lower: 0, upper: most };
    let amount =
        sums.map_or(none, |of| KeyAmount { value: Some(of.value), lower: of.lower, upper: of.upper.min(most) });
    Ok((amount, found.confidence))
}

/// What has certainly happened to a key, and by how much a second at least.
fn certain(before: &KeyAmount, now: &KeyAmount, (of_before, of_now): (f64, f64)) -> Option<(ChangeKind, f64)> {
    let rate = |amount: u64, seconds: f64| amount as f64 / seconds;
    let more = rate(now.lower, of_now) - rate(before.upper, of_before);
    let less = rate(before.lower, of_before) - rate(now.upper, of_now);
    if more > 0.0 {
        Some((if before.value.is_none() { ChangeKind::New } else { ChangeKind::Grown }, more))
    } else if less > 0.0 {
        Some((if now.value.is_none() { ChangeKind::Gone } else { ChangeKind::Shrunk }, less))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Estimate, Report, TopSource};

    /// A union of windows of so many seconds, in which these sources had at least and at most so many packets. Every
    /// other one had at most `unlisted`.
    fn union(seconds: u32, sources: &[(u8, u64, u64)], unlisted: u64) -> Union {
        let mut report: Report = serde_json::from_str(include_str!("../tests/golden/report.json")).unwrap();
        report.addresses = None;
        report.window.seconds = crate::Length::new(seconds.into());
        report.totals.packets = 1_000_000;
        report.totals.bytes = 1_000_000;
        report.top_by_packets.sources = (1..)
            .zip(sources)
            .map(|(rank, &(last, lower, upper))| {
                let packets = Estimate { value: lower, lower, upper, sampled: None };
                TopSource { rank, src_ip: [192, 0, 2, last].into(), packets, bytes: packets }
            })
            .collect();
        report.top_by_packets.unlisted.sources = Some(unlisted);
        report.top.sources = report.top_by_packets.sources.clone();
        report.top.unlisted.sources = Some(unlisted);
        Union::one(&report)
    }

    fn changes(before: &Union, now: &Union) -> (Vec<(ChangeKind, String)>, usize) {
        let changes = Changes::of(before, now, Standard::Sources, true).unwrap();
        let rows = changes.rows.iter().map(|row| (row.change, row.key["src_ip"].as_str().unwrap().to_owned()));
        (rows.collect(), changes.uncertain)
    }

    #[test]
    fn only_bounds_that_do_not_overlap_are_a_change() {
        let before = union(10, &[(1, 500, 510), (2, 300, 350), (3, 90, 100), (4, 80, 80), (9, 60, 60)], 50);
        let now = union(10, &[(1, 505, 520), (2, 400, 400), (5, 300, 300), (6, 45, 60), (4, 70, 70)], 40);
        let (rows, uncertain) = changes(&before, &now);
        let kinds = [
            (ChangeKind::New, "192.0.2.5"),
            (ChangeKind::Grown, "192.0.2.2"),
            (ChangeKind::Gone, "192.0.2.3"),
            (ChangeKind::Gone, "192.0.2.9"),
            (ChangeKind::Shrunk, "192.0.2.4"),
        ];
        // They have changed by 250, 50, 50, 20 and 10 at least.
        assert_eq!(rows, kinds.map(|(kind, source)| (kind, source.to_owned())));
        assert_eq!(uncertain, 2, "1 and 6 may have stayed the same");
    }

    #[test]
    fn times_of_other_lengths_are_compared_by_their_rates() {
        let (hour, day) = (
            union(3600, &[(1, 3600, 3600), (2, 100, 100)], 0),
            union(86_400, &[(1, 86_400, 86_400), (2, 100, 100)], 0),
        );
        assert_eq!(changes(&hour, &day), (vec![(ChangeKind::Shrunk, "192.0.2.2".to_owned())], 1));
        assert_eq!(changes(&day, &hour), (vec![(ChangeKind::Grown, "192.0.2.2".to_owned())], 1));
    }

    #[test]
    fn without_a_length_there_are_no_rates() {
        let (one, mut other) = (union(10, &[], 0), union(10, &[], 0));
        other.window.seconds = crate::Length::default();
        assert!(Changes::of(&one, &other, Standard::Sources, true).unwrap_err().contains("no length"));
        assert!(Changes::of(&one, &one, Standard::Sources, true).unwrap().rows.is_empty());
    }
}
