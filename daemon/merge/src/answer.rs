//! The answer of a merge, and its JSON.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use weir_common::ledger::Tally;
use weir_schema::Fact;

/// The schema that [`Answer`] serialises to.
pub const SCHEMA: &str = "weir.merge/1";

/// The combined answer of all reports.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// The schema's name and version.
    pub schema: &'static str,
    /// How many reports were merged, each once.
    pub reports: u64,
    /// How many of them had sketches.
    pub with_sketches: u64,
    /// A caveat about the sums: a packet that passed two routers counts at both.
    pub note: &'static str,
    /// Windows, by time and then by site or router.
    pub windows: Vec<WindowAnswer>,
    /// Reports that did not arrive, and parts of reports that were not joined.
    pub defects: Vec<Defect>,
}

/// A window of all routers, of a site, or of one router.
#[derive(Debug, Serialize)]
pub struct WindowAnswer {
    /// The site or the name of the router, if there is one window for each. If two routers have the same name, it ends
    /// with the identity of the router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// When the first report's window began.
    pub start: Timestamp,
    /// When the last one ended.
    pub end: Timestamp,
    /// How many routers sent reports.
    pub routers: usize,
    /// How many reports they sent.
    pub reports: u64,
    /// Packets and bytes that they saw. A packet that passed two routers counts at both.
    pub totals: Sums,
    /// The packets that were lost.
    pub lost: Sums,
    /// The packets that sampling left out.
    pub sampled_out: Sums,
    /// The packets that are in no list, by reason.
    pub not_in_lists: BTreeMap<String, Sums>,
    /// Routers and their interfaces that were not measured in a report, with the reason. At most 64 are named.
    pub not_measured: BTreeSet<String>,
    /// How reliable the numbers are.
    pub trust: Vec<Fact>,
    /// Packets whose exact number or length is not certain: `totals` has their lower bounds. Absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<UncertainAnswer>,
    /// Distinct counts. A value that several routers saw counts once.
    pub distinct: Vec<DistinctAnswer>,
    /// The largest keys. A packet that passed two routers counts at both.
    pub lists: Vec<ListAnswer>,
    /// The lists of floods and scans.
    pub spread: Vec<SpreadAnswer>,
}

/// Packets and bytes, in 64 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// The number of packets.
    pub packets: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl From<weir_schema::Tally> for Sums {
    fn from(weir_schema::Tally { packets, bytes }: weir_schema::Tally) -> Self {
        Self { packets, bytes }
    }
}

impl From<Tally> for Sums {
    fn from(Tally { packets, bytes }: Tally) -> Self {
        Self { packets, bytes }
    }
}

/// A number between bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounded {
    /// The truth is at least this.
    pub lower: u64,
    /// The truth is at most this.
    pub upper: u64,
}

/// Packets and bytes between bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UncertainAnswer {
    /// Bounds of the packets.
    pub packets: Bounded,
    /// Bounds of the bytes.
    pub bytes: Bounded,
}

/// A distinct count of the fleet, such as that of all sources.
#[derive(Debug, Serialize)]
pub struct DistinctAnswer {
    /// The name of the count in reports.
    pub name: String,
    /// The fingerprint of the question, if it is known. Answers with different ones are not added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// True if most routers ask this question under this name. Others stand for themselves: they are in no other
    /// number.
    pub is_usual: bool,
    /// The likeliest number.
    pub value: u64,
    /// The truth is at least this.
    pub lower: u64,
    /// The truth is at most this.
    pub upper: u64,
    /// The probability that both bounds hold.
    pub confidence: f64,
    /// How many routers' sketches it is of.
    pub routers: usize,
    /// How many keys: those of several days cannot be joined. Then the lower bound is that of the largest day, and the
    /// upper bound is the sum.
    pub keys: usize,
    /// True if it has the fleet's key. Others stand for themselves: they are in no other number.
    pub is_fleet: bool,
    /// The fingerprint of the key, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// The number of registers as a power of two.
    pub lg_k: u32,
}

impl DistinctAnswer {
    /// Raises the lower bound to at least so many values, which are known.
    #[must_use]
    pub fn at_least(self, proven: u64) -> Self {
        let lower = self.lower.max(proven);
        let value = self.value.max(lower);
        Self { value, lower, upper: self.upper.max(value), ..self }
    }
}

/// The largest keys of a list.
#[derive(Debug, Serialize)]
pub struct ListAnswer {
    /// The name of the list.
    pub name: String,
    /// The fingerprint of the question, if it is known. Answers with different ones are not added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// True if most routers ask this question under this name. Others stand for themselves: they are in no other
    /// number.
    pub is_usual: bool,
    /// The fields of a key.
    pub by: Vec<String>,
    /// The probability that all bounds hold.
    pub confidence: f64,
    /// How many routers' lists it is of.
    pub routers: usize,
    /// The most that a key without a row has.
    pub others: Sums,
    /// The rows with the most bytes that are certain.
    pub by_bytes: Vec<RowAnswer>,
    /// The rows with the most packets that are certain.
    pub by_packets: Vec<RowAnswer>,
}

/// A row of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowAnswer {
    /// The values of its fields.
    pub key: String,
    /// Bounds of the packets.
    pub packets: Bounded,
    /// Bounds of the bytes.
    pub bytes: Bounded,
    /// True if it certainly is among as many of the largest keys as there are rows.
    pub is_certain: bool,
}

/// A list of floods or scans.
#[derive(Debug, Serialize)]
pub struct SpreadAnswer {
    /// The name of the list.
    pub name: String,
    /// The fingerprint of the question, if it is known. Answers with different ones are not added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// True if most routers ask this question under this name. Others stand for themselves: they are in no other
    /// number.
    pub is_usual: bool,
    /// The fields of a key.
    pub by: Vec<String>,
    /// The probability that all bounds hold.
    pub confidence: f64,
    /// How many routers' sketches it is of.
    pub routers: usize,
    /// The keys that touch the most different values.
    pub rows: Vec<SpreadRow>,
}

/// A row of floods or scans.
#[derive(Debug, Serialize)]
pub struct SpreadRow {
    /// The values of its fields.
    pub key: String,
    /// The likeliest number of different values.
    pub value: u64,
    /// The truth is at least this.
    pub lower: u64,
    /// The truth is at most this.
    pub upper: u64,
}

/// The kind of a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Reports that did not arrive, without an explanation.
    Gap,
    /// Reports that the sender had to drop.
    Tombstone,
    /// Numbers of which two different reports, or two different tombstones, arrived: two senders have the same
    /// identity, or one of the reports is forged. The first one counts.
    Contested,
    /// Runs that were not one after the other: two senders have the same identity, or one went on from an older state.
    Cloned,
    /// Reports that arrived again.
    Duplicate,
    /// Reports that arrived after later ones.
    Late,
    /// Reports that span the end of a window, or whose sketches do. The packets and bytes of such a report, or the
    /// distinct counts and lists of such sketches, count in the window in which they begin.
    SpansWindows,
    /// Sketches with another key than most of that day.
    ForeignKey,
    /// Lists and counts that ask another question under the same name than most routers.
    OtherQuestion,
    /// Distinct counts with another number of registers.
    OtherLgK,
    /// Lists or spread sketches with another geometry.
    OtherGeometry,
    /// Sketches that could not be read.
    BrokenSketch,
    /// Reports or sketches for which there is no room.
    LeftOut,
    /// Lines that are no report.
    Unreadable,
}

impl What {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gap => "missing",
            Self::Tombstone => "dropped by the sender",
            Self::Contested => "two different ones",
            Self::Cloned => "cloned identity",
            Self::Duplicate => "came twice",
            Self::Late => "late",
            Self::SpansWindows => "spans two windows",
            Self::ForeignKey => "foreign key",
            Self::OtherQuestion => "other question",
            Self::OtherLgK => "other lg_k",
            Self::OtherGeometry => "other geometry",
            Self::BrokenSketch => "broken sketch",
            Self::LeftOut => "left out",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Reports that did not arrive as they were sent, or that were not joined with the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Defect {
    /// The kind of the defect.
    pub what: What,
    /// The observer's identity; empty if it is not known.
    pub observer: String,
    /// The name of the router, list or file that is concerned.
    pub name: String,
    /// How many reports. For another question: in how many windows. For a cloned identity: how many runs.
    pub reports: u64,
    /// The reports that are concerned, or the reason.
    pub detail: String,
}
