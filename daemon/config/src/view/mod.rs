//! A view is a question about traffic: *match* selects its records, *by* defines its rows, and *measure* says which
//! number each row has.
//!
//! A [`View`] has the [`condition`]s that a record has to meet, and the [`field`]s that make up a row. All that weir
//! knows of a field is in one table, [`field::FIELDS`]. The [`layout`] of a key says where its fields are. Every report
//! has the [`standard`] views. `written` writes a view as in a configuration.
//!
//! Nothing here reads the configuration: the configuration is built from these parts. `weir_measure::question` prepares
//! views for measuring.

pub mod condition;
pub mod field;
pub mod key;
pub mod layout;
pub mod lengths;
pub mod standard;
pub mod values;
mod written;

pub use self::{
    condition::{Condition, Values},
    field::{Field, Side},
    key::ViewKey,
    layout::{KeyLayout, Unpackable},
    lengths::Lengths,
    standard::Standard,
};

/// A view: a question that is asked of every record.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The name in reports.
    pub name: String,
    /// The conditions that select its records.
    pub conditions: Vec<Condition>,
    /// The fields of its key. Without fields, all records together make one row.
    pub by: Vec<Field>,
    /// The number that each row has.
    pub measure: Measure,
    /// The number of rows of each table.
    pub top: usize,
    /// True if each interface and direction has its own table.
    pub per_interface: bool,
    /// The error. For bytes, packets and new flows, it is the usual distance between the bounds, as a share of
    /// everything that the view counts. For distinct values, it is the relative standard error.
    pub error: f64,
    /// True if the error follows `estimates.top_error`, because the view sets none.
    pub follows_top_error: bool,
    /// True to report how evenly its measure is spread over all keys.
    pub has_entropy: bool,
    /// True if a row is an own address, its measure is the sum of both directions, and it also has packets and bytes of
    /// each direction, and the numbers of its flows and peers. Then `by` is the host, and `measure` bytes.
    pub of_hosts: bool,
}

/// The number that a view measures for each row.
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

    /// Returns true if it measures bytes and packets.
    pub const fn is_tally(&self) -> bool {
        matches!(self, Self::Bytes | Self::Packets)
    }
}

/// The address of a host, in both directions.
pub const HOST: Field = Field::Ip(Side::Host, Lengths::WHOLE);

/// The fields of a flow.
pub const FLOW: [Field; 5] = [
    Field::Ip(Side::Src, Lengths::WHOLE),
    Field::Ip(Side::Dst, Lengths::WHOLE),
    Field::SrcPort,
    Field::DstPort,
    Field::Proto,
];
