//! What a view is: *match* says which records it is about, *by* what makes a row, and *measure* what is counted.
//!
//! A [`View`] has the [`condition`]s that a record has to meet, and the [`field`]s that make a row. [`by`] packs these
//! into a key. [`standard`] views are those of every report. `written` is a view as the configuration shows it.
//!
//! Nothing here reads the configuration: the configuration is built from these parts. `weir_measure::question` makes
//! views ready to be asked.

pub mod by;
pub mod condition;
pub mod field;
mod key;
mod network;
pub mod standard;
mod written;

pub use self::{
    by::{By, Kind, Narrow, Unpackable},
    condition::{Condition, Of, Values},
    field::{Field, Lengths, Side},
    key::ViewKey,
    network::Network,
    standard::Standard,
};

/// A view: a question that is asked of every record.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Its name in reports.
    pub name: String,
    /// Which records it is about.
    pub conditions: Vec<Condition>,
    /// The key; without fields, all records together.
    pub by: Vec<Field>,
    /// What it counts.
    pub measure: Measure,
    /// Rows of each table.
    pub top: usize,
    /// Whether each interface and direction has a table of its own.
    pub per_interface: bool,
    /// The error. Of bytes, packets and new flows: the usual distance between the bounds, as a share of everything that
    /// the view counts. Of distinct values: the relative standard error.
    pub error: f64,
    /// Whether the error follows `estimates.top_error`, because the view sets none.
    pub follows_top_error: bool,
    /// Whether to report how evenly its measure is spread over all keys.
    pub has_entropy: bool,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes and packets; the rows with the most bytes.
    Bytes,
    /// The same; the rows with the most packets.
    Packets,
    /// How many distinct flows.
    Flows,
    /// How many flows the filter of seen flows did not know.
    NewFlows,
    /// How many distinct values these fields have together.
    Distinct(Vec<Field>),
}

impl Measure {
    /// The relative standard error of distinct values by key, unless a view sets another. With 8 KiB for each key that
    /// has a counter, some 3,300 values are counted exactly.
    pub const USUAL_DISTINCT_ERROR: f64 = 0.01;

    /// Whether it is bytes and packets.
    pub const fn is_tally(&self) -> bool {
        matches!(self, Self::Bytes | Self::Packets)
    }
}

/// The fields of a flow.
pub const FLOW: [Field; 5] = [
    Field::Ip(Side::Src, Lengths::WHOLE),
    Field::Ip(Side::Dst, Lengths::WHOLE),
    Field::SrcPort,
    Field::DstPort,
    Field::Proto,
];
