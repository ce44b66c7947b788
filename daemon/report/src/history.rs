//! The history of a running weir: the traffic of each interface in equal steps, and the totals of windows.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Distinct, instant};

/// The schema that [`History`] serialises to.
pub const HISTORY_SCHEMA: &str = "weir.history/1";

/// The answer to `history` on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The schema's name and version.
    pub schema: String,
    /// The start of the first step, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub from: Timestamp,
    /// The end of the last step.
    #[serde(serialize_with = "instant::fixed")]
    pub to: Timestamp,
    /// The length of a step: whole seconds.
    pub step_seconds: u64,
    /// How far back weir remembers.
    pub reaches_back_to: Reach,
    /// Each interface and direction that existed in this time.
    pub interfaces: Vec<InterfaceHistory>,
    /// The windows of this time, the oldest first. If there are more windows than steps, neighbours are added together.
    pub windows: Vec<PastWindow>,
}

/// How far back weir remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Seconds of interfaces. Absent if it remembers none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Timestamp>,
    /// Windows; older windows may be several together. Absent if it remembers none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Timestamp>,
}

/// The traffic of an interface in one direction in each step: exact sums of its seconds. `null` if no second of the
/// step is known. A second counts under the name that the interface had at the end of that second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceHistory {
    /// Its name.
    pub name: String,
    /// `ingress` or `egress`; absent for `others`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Packets.
    pub packets: Vec<Option<u64>>,
    /// Bytes on the wire.
    pub bytes: Vec<Option<u64>>,
    /// Packets that were lost.
    pub lost: Vec<Option<u64>>,
}

/// The totals of a window, or of several consecutive windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastWindow {
    /// The start of the first window, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// The end of the last window.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
    /// The number of windows.
    pub windows: u64,
    /// Packets seen.
    pub packets: u64,
    /// Bytes seen.
    pub bytes: u64,
    /// Distinct source addresses: at least as many as in any one window, and at most the sum.
    pub src_ip: Distinct,
    /// The rules whose alerts were firing in any of these windows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<String>,
}

impl PastWindow {
    /// Adds the following windows.
    pub fn add(&mut self, next: &Self) {
        self.end = self.end.max(next.end);
        self.windows += next.windows;
        self.packets = self.packets.saturating_add(next.packets);
        self.bytes = self.bytes.saturating_add(next.bytes);
        self.src_ip = self.src_ip.or(next.src_ip);
        for name in &next.alerts {
            if !self.alerts.contains(name) {
                self.alerts.push(name.clone());
            }
        }
    }
}
