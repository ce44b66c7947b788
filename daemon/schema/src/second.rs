//! The exact counters of a running weir in the last second, long before the report.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Tally, instant};

/// The schema that these structs serialise to.
pub const SECOND_SCHEMA: &str = "weir.second/1";

/// The traffic of each interface in the last second. `subscribe` on the control socket sends such a message each
/// second. All counts are exact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// The schema's name and version.
    #[schemars(extend("const" = SECOND_SCHEMA))]
    pub schema: String,
    /// When the counters were read: the end of the second, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub time: Timestamp,
    /// The time between this reading and the previous one, in seconds, measured on a clock that is never adjusted:
    /// about 1, or more if the daemon was delayed.
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// How many messages before this one the reader missed, because it read too slowly. The packets of the missed
    /// seconds are the growth of `total` minus `counted`. Absent if it missed none.
    #[serde(default, skip_serializing_if = "super::alert::is_zero")]
    pub skipped: u64,
    /// When the open window began, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub window_start: Timestamp,
    /// The last report. Absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_report: Option<LastReport>,
    /// Each measured interface and direction.
    pub interfaces: Vec<InterfaceSecond>,
    /// Why weir does not see all packets now, in words. Absent if it sees all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

/// Identifies the last report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastReport {
    /// The id of the report.
    pub id: String,
    /// When its window ended, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
}

/// The traffic of one interface in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceSecond {
    /// The interface's name. For a replay this is the name of the capture.
    pub name: String,
    /// `ingress` or `egress`; absent for a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// How weir sees its packets, in the words of the report.
    pub mode: String,
    /// Packets and bytes in this second. Absent if weir does not measure the interface, as `mode` says: then nothing is
    /// known of them. Absent, too, if packet sockets count them (`afpacket`); then only the report has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Tally>,
    /// A counter that grows by `counted` each second. The difference of two messages is exact, whatever was sent
    /// between them. It does not begin at 0. Absent if `counted` is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Tally>,
    /// Packets and bytes of the open window that are lost so far. Absent if that is not known before its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Tally>,
    /// Why weir does not see all of its packets now, in words. Absent if it sees all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_survives_writing_and_reading_and_omits_unknown_fields() {
        let second = Second {
            schema: SECOND_SCHEMA.to_owned(),
            time: "2026-11-20T08:00:03Z".parse().unwrap(),
            seconds: 1.0,
            skipped: 0,
            window_start: "2026-11-20T08:00:00Z".parse().unwrap(),
            last_report: None,
            interfaces: vec![InterfaceSecond {
                name: "eth0".to_owned(),
                direction: Some("ingress".to_owned()),
                mode: "tcx".to_owned(),
                counted: Some(Tally { packets: 3, bytes: 180 }),
                total: Some(Tally { packets: 10, bytes: 600 }),
                lost: None,
                trouble: None,
            }],
            troubles: Vec::new(),
        };
        let text = serde_json::to_string(&second).unwrap();
        assert_eq!(serde_json::from_str::<Second>(&text).unwrap(), second);
        for absent in ["skipped", "last_report", "lost", "trouble"] {
            assert!(!text.contains(absent), "{text}");
        }
    }
}
