//! What the flow records of a time have of a question that no view asked: the answer to `flows` on the control socket.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Estimate, Gap, Row, Tally, instant};

/// The schema that [`AskedFlows`] serialises to.
pub const ASKED_FLOWS_SCHEMA: &str = "weir.asked_flows/1";

/// What the flow records of a time have of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskedFlows {
    /// The schema's name and version.
    pub schema: String,
    /// The question as it was asked.
    pub question: String,
    /// The fields of the rows. Absent if only the sum was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// The earliest start of the samples that were asked, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub from: Timestamp,
    /// Their latest end.
    #[serde(serialize_with = "instant::fixed")]
    pub to: Timestamp,
    /// How many windows they cover.
    pub windows: u64,
    /// From when on weir has samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches_back_to: Option<Timestamp>,
    /// Requested times without a sample. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Gap>,
    /// The records of the samples.
    pub records: AskedRecords,
    /// The probability that all bounds hold together, 0 to 1.
    pub confidence: f64,
    /// Packets of everything that the question selects.
    pub packets: Estimate,
    /// Bytes on the wire.
    pub bytes: Estimate,
    /// The rows with the most bytes, if the question has `by`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
    /// A key without a row has no more than this. Absent if the question has no `by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Tally>,
}

/// How many records an answer is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRecords {
    /// Those of all samples.
    pub sampled: u64,
    /// Those that the question selects.
    pub selected: u64,
}
