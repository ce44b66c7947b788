//! The status of a running weir, in a few lines.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_schema::{Length, NOT_MEASURED, Report, SinkMetrics, is_measured};
use weir_system::{
    numbers::{grouped, packet_rate, percent},
    text::escaped,
};

/// The facts that do not change while weir runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The version of weir.
    pub version: String,
    /// The process id of weir.
    pub pid: u32,
    /// When it was started.
    pub started: Timestamp,
    /// The length of a window in seconds.
    pub interval_seconds: u64,
    /// The memory that is planned, resident, in bytes.
    pub memory_bytes: u64,
}

/// The status of weir.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The weir that answers.
    #[serde(flatten)]
    pub identity: Identity,
    /// A summary of the last report; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_report: Option<LastReport>,
    /// When the open window ends, and its report comes. Absent while weir starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_report: Option<Timestamp>,
    /// Why weir does not see all packets now, or did not in the open window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

weir_schema::from_json!(Status);

/// A summary of the last report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastReport {
    /// The id of the report.
    pub id: String,
    /// When its window ended.
    pub end: Timestamp,
    /// The length of the window in seconds; `null` if it is too short for rates.
    pub seconds: Length,
    /// The state of each interface.
    pub interfaces: Vec<InterfaceStatus>,
    /// CPU time for each packet, in nanoseconds. Absent if no packet was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_packet: Option<f64>,
    /// Resident memory in bytes. Absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// The state of each sink.
    pub sinks: Vec<SinkMetrics>,
}

/// An interface in the last window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// The name of the interface.
    pub name: String,
    /// `ingress` or `egress`; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// How weir sees its packets, or why it does not.
    pub mode: String,
    /// The packets seen in the window.
    pub packets: u64,
    /// The bytes of these packets.
    pub bytes: u64,
    /// Packets of these that were lost before they were measured.
    pub lost_packets: u64,
    /// For how many seconds weir may not have seen its packets; absent if it was not blind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blind_seconds: Option<f64>,
    /// Why weir did not see all packets; absent if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Status {
    /// The status after this report.
    pub fn new(identity: &Identity, report: Option<&Report>) -> Self {
        let last_report = report.map(|report| LastReport {
            id: report.id.clone(),
            end: report.window.end,
            seconds: report.window.seconds,
            interfaces: report
                .interfaces
                .iter()
                .map(|of| InterfaceStatus {
                    name: of.name.clone(),
                    direction: of.direction.clone(),
                    mode: of.mode.clone(),
                    packets: of.ledger.seen.packets,
                    bytes: of.ledger.seen.bytes,
                    lost_packets: of.ledger.lost.values().map(|lost| lost.packets).sum(),
                    blind_seconds: of.blind_seconds,
                    trouble: of.trouble.clone(),
                })
                .collect(),
            cpu_ns_per_packet: report.self_metrics.cpu_ns_per_packet,
            rss_bytes: report.self_metrics.rss_bytes,
            sinks: report.self_metrics.sinks.clone(),
        });
        Self { identity: identity.clone(), last_report, next_report: None, troubles: Vec::new() }
    }

    /// The status as one line, for `systemctl status`: the rates of the first interfaces, and the losses.
    pub fn line(&self) -> String {
        const SHOWN: usize = 4;
        let Some(last) = &self.last_report else { return "no report yet".to_owned() };
        let one = |of: &InterfaceStatus| {
            let way = if of.direction.as_deref() == Some("egress") { " egress" } else { "" };
            let count = || format!("{} packets", grouped(of.packets));
            let rate = match is_measured(&of.mode) {
                true => last.seconds.rate_text(of.packets, packet_rate).unwrap_or_else(count),
                false => format!("{NOT_MEASURED} ({})", of.mode),
            };
            format!("{}{way} {rate}", escaped(&of.name))
        };
        let mut line = last.interfaces.iter().take(SHOWN).map(one).collect::<Vec<_>>().join(", ");
        if last.interfaces.len() > SHOWN {
            line += &format!(" and {} more", last.interfaces.len() - SHOWN);
        }
        let lost: u64 = last.interfaces.iter().map(|of| of.lost_packets).sum();
        if lost > 0 {
            line += &format!("; {} packets LOST", grouped(lost));
        }
        let is_blind =
            |of: &&InterfaceStatus| !is_measured(&of.mode) || of.blind_seconds.is_some() || of.trouble.is_some();
        let blind = last.interfaces.iter().filter(is_blind).count();
        if blind > 0 {
            line += &format!("; BLIND on {blind}");
        }
        let cost = last.cpu_share().map(|share| format!("{} of a core", percent(share)));
        let memory = last.rss_bytes.map(|rss| format!("{} MiB", rss >> 20));
        let known: Vec<_> = cost.into_iter().chain(memory).collect();
        if known.is_empty() { line } else { format!("{line}; {}", known.join(", ")) }
    }
}

impl LastReport {
    /// The share of a core that the daemon took. `None` if no packet was seen.
    pub fn cpu_share(&self) -> Option<f64> {
        let seen: u64 = self.interfaces.iter().map(|of| of.packets).sum();
        let ns = self.cpu_ns_per_packet? * seen as f64;
        self.seconds.rate(ns / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_not_shown_as_zero() {
        let mut report: Report = serde_json::from_str(include_str!("../../schema/tests/golden/report.json")).unwrap();
        let now = report.window.end;
        let identity =
            Identity { version: "0.1.0".to_owned(), pid: 7, started: now, interval_seconds: 10, memory_bytes: 1 << 20 };
        let known = Status::new(&identity, Some(&report));
        assert!(known.line().ends_with("; 0.1 % of a core, 40 MiB"), "{}", known.line());
        assert!(
            known.line().starts_with("eth0 110.0 kpkt/s, wan0.100 10.0 kpkt/s; 280 packets LOST"),
            "{}",
            known.line()
        );
        "detached".clone_into(&mut report.interfaces[1].mode);
        let detached = Status::new(&identity, Some(&report)).line();
        assert!(detached.starts_with("eth0 110.0 kpkt/s, wan0.100 not measured (detached); "), "{detached}");
        (report.self_metrics.cpu_ns_per_packet, report.self_metrics.rss_bytes) = (None, None);
        let unknown = Status::new(&identity, Some(&report));
        assert!(!unknown.line().contains("of a core") && !unknown.line().contains("MiB"), "{}", unknown.line());
        let json = serde_json::to_value(&unknown).unwrap();
        assert!(json["last_report"].get("rss_bytes").is_none(), "{json}");
    }
}
