//! Rows in a report. Views, lists of floods and scans, and answers have the same form of row.

use std::iter;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_config::view::Standard;

use super::Estimate;

/// The fields of rows, in lists and views, that are not part of their keys.
pub const NOT_KEY: [&str; 12] =
    ["rank", "view", "packets", "bytes", "flows", "new_flows", "distinct", "beyond", "members", "down", "up", "peers"];

/// The result of a view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct View {
    /// The name of the view in the configuration.
    pub name: String,
    /// The fingerprint of the question: 16 hex digits. Two answers can be added up only if theirs are equal, and then
    /// `match`, `by`, `measure`, `per` and everything that they refer to (networks, databases, tunnels) mean the same.
    /// Routers with the same configuration have the same one. Absent in reports of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub question: Option<String>,
    /// The fields that make a row's key.
    pub by: Vec<String>,
    /// The measure: `bytes` or `packets` (rows have both, and this one orders them), `flows`, `new_flows`, or
    /// `distinct` with the fields whose different values are counted.
    #[schemars(with = "serde_json::Value")]
    pub measure: Value,
    /// `once`: each packet counts once, on however many interfaces it was seen. `per_interface`: a packet counts on
    /// each interface, because the view distinguishes interfaces.
    pub counted: String,
    /// The probability that the true numbers of all rows and totals lie between their bounds, 0 to 1; 1 if they always
    /// do.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// All packets and bytes that the view matched. The rows are parts of it. Absent if each interface has its own
    /// table, and if flows or different values are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Sums>,
    /// How evenly packets or bytes are spread over all keys, listed or not. Absent if the view does not have `entropy:
    /// true`, and if nothing matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy: Option<Entropy>,
    /// The rows, the largest first. Absent if each interface has its own table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<Row>>,
    /// The most that a key without a row has, in bytes or packets as the rows are ordered. Absent if each interface has
    /// its own table, and if flows or different values are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<u64>,
    /// A table for each interface and direction that has rows. Absent if there is one table for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<Vec<ViewTable>>,
}

/// The rows of one interface and direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ViewTable {
    /// The name of the interface.
    pub interface: String,
    /// `ingress` or `egress`; absent for a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// All packets and bytes that the view matched there. The rows are parts of it. Absent if flows or different values
    /// are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Sums>,
    /// The rows, the largest first.
    pub rows: Vec<Row>,
}

/// Shannon's entropy of the distribution of packets or bytes over keys: 0 if one key has everything, and log2 of the
/// number of keys if all keys have the same amount.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entropy {
    /// The entropy in bits.
    pub bits: Bits,
    /// The entropy divided by the entropy of the same number of equal keys, 0 to 1; 0 if there is one key.
    #[schemars(range(min = 0, max = 1))]
    pub normalized: f64,
    /// How many different keys there are.
    pub keys: Estimate,
    /// The probability that the true numbers of bits and keys lie between their bounds, 0 to 1; 1 if they always do.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
}

/// A number of bits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bits {
    /// The likeliest value, in bits.
    #[schemars(range(min = 0))]
    pub value: f64,
    /// The true number is at least this, at the stated confidence.
    #[schemars(range(min = 0))]
    pub lower: f64,
    /// The true number is at most this, at the stated confidence.
    #[schemars(range(min = 0))]
    pub upper: f64,
}

/// All packets and bytes that a view matched, or those of a host in one direction. A packet counts once in the total of
/// a view, even if it counts in two rows (`host`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sums {
    /// The packets.
    pub packets: Estimate,
    /// Bytes on the wire.
    pub bytes: Estimate,
}

/// What is known of a host besides the sum of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostNumbers {
    /// What was sent to the host.
    pub down: Sums,
    /// What the host sent.
    pub up: Sums,
    /// Different flows to it and from it.
    pub flows: Estimate,
    /// Different addresses that it sent to or received from.
    pub peers: Estimate,
}

/// One row of a view, of a list of floods or scans, or of the answers: the fields of its key by name, and the measured
/// numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The rank in the list, from 1. Absent in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The name of the view that answers. Only in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// The fields of its key.
    #[serde(flatten)]
    pub key: Map<String, Value>,
    /// Packets. In the answer for a key that no list has, any number between the bounds is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Estimate>,
    /// Bytes on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Estimate>,
    /// The number of different flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<Estimate>,
    /// Flows that were not seen before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_flows: Option<Estimate>,
    /// The number of different values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<Estimate>,
    /// What was sent to the host, in a view of hosts. There `flows` are those in either direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<Sums>,
    /// What the host sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Sums>,
    /// Different addresses that the host sent to or received from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<Estimate>,
}

impl Row {
    /// More numbers, if the row is one of a host.
    pub fn host(&self) -> Option<HostNumbers> {
        Some(HostNumbers { down: self.down?, up: self.up?, flows: self.flows?, peers: self.peers? })
    }

    /// The row with these numbers of a host.
    #[must_use]
    pub fn with_host(self, numbers: Option<HostNumbers>) -> Self {
        let Some(HostNumbers { down, up, flows, peers }) = numbers else { return self };
        Self { down: Some(down), up: Some(up), flows: Some(flows), peers: Some(peers), ..self }
    }
}

/// Addresses with many different peers or ports: floods and scans. Each list has the largest rows, with bounds that
/// hold for all of them together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The probability that the true numbers of all rows of a list lie between their bounds, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// Destinations by the number of different sources that send to them. A flooded destination has many.
    pub sources_per_destination: Vec<Row>,
    /// Sources by the number of different destinations that they send to. A scanner of a network has many.
    pub destinations_per_source: Vec<Row>,
    /// Sources by the number of different destination ports that they send to. A scanner of hosts has many.
    pub ports_per_source: Vec<Row>,
}

impl View {
    /// Returns the tables of the view, each with its total and rows: one table for all, or one for each interface and
    /// direction.
    pub fn parts(&self) -> impl Iterator<Item = (Option<&ViewTable>, Option<&Sums>, &[Row])> {
        let whole = (None, self.total.as_ref(), self.rows.as_deref().unwrap_or_default());
        let tables = self.tables.iter().flatten().map(|table| (Some(table), table.total.as_ref(), &table.rows[..]));
        iter::once(whole).chain(tables)
    }

    /// Returns true if the rows become series in metrics databases. Such a database keeps a series for every key that
    /// ever had a row, so rows of addresses are exported only on request.
    pub fn has_series(&self) -> bool {
        self.name != Standard::Talkers.name()
    }
}
