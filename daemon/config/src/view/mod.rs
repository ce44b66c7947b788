//! What a view is: *match* selects its records, *by* defines its rows, and *measure* is what it counts.
//!
//! A [`View`] has the [`condition`]s that a record has to meet, and the [`field`]s that make up a row. [`by`] packs
//! these fields into a key. Every report has the [`standard`] views. `written` writes a view as in a configuration.
//!
//! Nothing here reads the configuration: the configuration is built from these parts. `weir_measure::question` prepares
//! views for measuring.

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
    /// The conditions that select its records.
    pub conditions: Vec<Condition>,
    /// The fields of its key. Without fields, all records together make one row.
    pub by: Vec<Field>,
    /// What it counts.
    pub measure: Measure,
    /// The number of rows of each table.
    pub top: usize,
    /// Whether each interface and direction has its own table.
    pub per_interface: bool,
    /// The error. For bytes, packets and new flows, it is the usual distance between the bounds, as a share of
    /// everything that the view counts. For distinct values, it is the relative standard error.
    pub error: f64,
    /// Whether the error follows `estimates.top_error`, because the view sets none.
    pub follows_top_error: bool,
    /// Whether to report how evenly its measure is spread over all keys.
    pub has_entropy: bool,
}

/// What a view measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes and packets. The rows are those with the most bytes.
    Bytes,
    /// Bytes and packets. The rows are those with the most packets.
    Packets,
    /// The number of distinct flows.
    Flows,
    /// The number of flows that the filter of seen flows did not contain.
    NewFlows,
    /// The number of distinct combinations of these fields.
    Distinct(Vec<Field>),
}

impl Measure {
    /// The default relative standard error of distinct values by key. Each key that has a counter takes 8 KiB, which
    /// count some 3,300 values exactly.
    pub const USUAL_DISTINCT_ERROR: f64 = 0.01;

    /// Whether it measures bytes and packets.
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
