//! What a running weir counted in the last second: exact, and long before the report.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Tally, instant};

/// The schema that these structs serialise to.
pub const SECOND_SCHEMA: &str = "weir.second/1";

/// What each interface carried since the second before. `subscribe` on the control socket sends one such message a
/// second. All counts are exact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// The schema's name and version.
    #[schemars(extend("const" = SECOND_SCHEMA))]
    pub schema: String,
    /// When the counters were read: the end of the second, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub time: Timestamp,
    /// How much time is between this reading and the one before, in seconds, measured on a clock that is never
    /// adjusted: about 1, and more if the daemon was held up.
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// How many messages before this one the reader did not get, because it read too slowly. What came in their seconds
    /// is the growth of `total` without that of this second. Absent if there are none.
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

/// Which report is the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastReport {
    /// Its id.
    pub id: String,
    /// When its window ended, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
}

/// What one interface carried in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceSecond {
    /// The interface's name; for a replay the capture's.
    pub name: String,
    /// `ingress` or `egress`; absent for a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// How weir sees its packets, with the words of the report.
    pub mode: String,
    /// Packets and their bytes in this second. Absent where packet sockets count them (`afpacket`): they come with the
    /// report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Tally>,
    /// A counter that only grows, by `counted` each second: the difference of two messages is exact, whatever came
    /// between them. It does not begin at 0. Absent as `counted` is.
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
    fn a_second_is_read_as_it_was_written_and_says_nothing_of_what_is_not_known() {
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
