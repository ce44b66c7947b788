//! The status of a running weir, in a few lines.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_config::interface::NO_ROUTE;
use weir_report::{Report, SinkMetrics};
use weir_system::{
    numbers::{self, grouped},
    text::visible,
};

/// What does not change while weir runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The version of weir.
    pub version: String,
    /// Its process id.
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
    /// Why weir does not see all packets now, or did not in the open window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

/// A summary of the last report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastReport {
    /// Its id.
    pub id: String,
    /// When its window ended.
    pub end: Timestamp,
    /// The length of the window in seconds.
    pub seconds: f64,
    /// Each interface.
    pub interfaces: Vec<InterfaceStatus>,
    /// CPU time for each packet, in nanoseconds. Absent if no packet was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_packet: Option<f64>,
    /// Resident memory in bytes. Absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// The sinks.
    pub sinks: Vec<SinkMetrics>,
}

/// An interface in the last window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// `ingress` or `egress`; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// How weir sees its packets, or why it does not.
    pub mode: String,
    /// Packets seen.
    pub packets: u64,
    /// Their bytes.
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
        Self { identity: identity.clone(), last_report, troubles: Vec::new() }
    }

    /// The status as one line, for `systemctl status`: what the first interfaces carry, and what is lost.
    pub fn line(&self) -> String {
        const SHOWN: usize = 4;
        let Some(last) = &self.last_report else { return "no report yet".to_owned() };
        let rate = |number: u64| grouped((number as f64 / last.seconds.max(f64::MIN_POSITIVE)).round() as u64);
        let one = |of: &InterfaceStatus| {
            let way = if of.direction.as_deref() == Some("egress") { " egress" } else { "" };
            format!("{}{way} {} packet/s", of.name.chars().map(visible).collect::<String>(), rate(of.packets))
        };
        let mut line = last.interfaces.iter().take(SHOWN).map(one).collect::<Vec<_>>().join(", ");
        if last.interfaces.len() > SHOWN {
            line += &format!(" and {} more", last.interfaces.len() - SHOWN);
        }
        let lost: u64 = last.interfaces.iter().map(|of| of.lost_packets).sum();
        if lost > 0 {
            line += &format!("; {} packets LOST", grouped(lost));
        }
        let blind = last.interfaces.iter().filter(|of| of.blind_seconds.is_some() || of.trouble.is_some()).count();
        if blind > 0 {
            line += &format!("; BLIND on {blind}");
        }
        let cost = last.cpu_ns_per_packet.map(|cpu| format!("{cpu:.0} ns/packet"));
        let memory = last.rss_bytes.map(|rss| format!("{} MiB", rss >> 20));
        let known: Vec<_> = cost.into_iter().chain(memory).collect();
        if known.is_empty() { line } else { format!("{line}; {}", known.join(", ")) }
    }

    /// The status as lines for people, at this time.
    pub fn at(&self, now: Timestamp) -> impl fmt::Display {
        StatusText { status: self, now }.to_string()
    }
}

struct StatusText<'a> {
    status: &'a Status,
    now: Timestamp,
}

impl fmt::Display for StatusText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { identity, last_report, troubles } = self.status;
        let Identity { version, pid, started, interval_seconds, memory_bytes } = identity;
        writeln!(f, "weir {version}, process {pid}, runs for {}", numbers::time(self.now.duration_since(*started)))?;
        for trouble in troubles {
            writeln!(f, "TROUBLE {}", trouble.chars().map(visible).collect::<String>())?;
        }
        let Some(last) = last_report else {
            return write!(f, "no report yet: a window has {interval_seconds} s");
        };
        let LastReport { id, end, seconds, interfaces, cpu_ns_per_packet, rss_bytes, sinks } = last;
        writeln!(f, "last report {id}, {} ago, about {seconds:.0} s", numbers::time(self.now.duration_since(*end)))?;
        for InterfaceStatus { name, direction, mode, packets, bytes, lost_packets, blind_seconds, trouble } in
            interfaces
        {
            let name: String = name.chars().map(visible).collect();
            let way = if direction.as_deref() == Some("egress") { " egress" } else { "" };
            let per_second = |number: u64| grouped((number as f64 / seconds.max(f64::MIN_POSITIVE)).round() as u64);
            let mode = if mode == NO_ROUTE { "carries no default route now" } else { mode };
            write!(f, "  {name}{way} ({mode}): {} packet/s, {} bit/s", per_second(*packets), per_second(8 * bytes))?;
            if *lost_packets > 0 {
                write!(f, ", {} LOST", grouped(*lost_packets))?;
            }
            if let Some(seconds) = blind_seconds {
                write!(f, ", BLIND for up to {seconds:.1} s")?;
            }
            if let Some(trouble) = trouble {
                write!(f, ", TROUBLE: {}", trouble.chars().map(visible).collect::<String>())?;
            }
            writeln!(f)?;
        }
        let cost = cpu_ns_per_packet.map_or("unknown".to_owned(), |cpu| format!("{cpu:.0} ns/packet"));
        let memory = rss_bytes.map_or("unknown".to_owned(), |rss| format!("{} MiB", rss >> 20));
        writeln!(f, "daemon CPU {cost}, memory {memory} (planned: {} MiB)", memory_bytes >> 20)?;
        for SinkMetrics { name, queued, delivered, failed_attempts: _, dropped, lost, untold, spool, last_error } in
            sinks
        {
            let name: String = name.chars().map(visible).collect();
            write!(f, "sink {name}: {} delivered, {queued} waiting", grouped(*delivered))?;
            if let Some(spool) = spool.filter(|spool| spool.reports > 0) {
                write!(f, ", {} of them on disk", grouped(spool.reports))?;
            }
            if *dropped > 0 {
                let why = lost.iter().map(|(reason, count)| format!("{reason} {}", grouped(*count)));
                write!(f, ", {} DROPPED ({})", grouped(*dropped), why.collect::<Vec<_>>().join(", "))?;
            }
            if *untold > 0 {
                write!(f, ", it was not told of {} that are lost", grouped(*untold))?;
            }
            let error = last_error.iter().flat_map(|error| error.chars().map(visible));
            writeln!(f, "{}{}", if last_error.is_some() { ": " } else { "" }, error.collect::<String>())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_a_default_route_is_not_called_gone() {
        let mut report: Report = serde_json::from_str(include_str!("../../report/tests/golden/report.json")).unwrap();
        let now = report.window.end;
        let identity =
            Identity { version: "0.1.0".to_owned(), pid: 7, started: now, interval_seconds: 10, memory_bytes: 1 << 20 };
        let mut told = |mode: &str| {
            mode.clone_into(&mut report.interfaces[0].mode);
            Status::new(&identity, Some(&report)).at(now).to_string()
        };
        assert!(told("gone").contains(" (gone): "));
        let without_route = told(NO_ROUTE);
        assert!(without_route.contains(" (carries no default route now): "), "{without_route}");
    }

    #[test]
    fn what_is_not_known_is_not_said_to_be_nothing() {
        let mut report: Report = serde_json::from_str(include_str!("../../report/tests/golden/report.json")).unwrap();
        let now = report.window.end;
        let identity =
            Identity { version: "0.1.0".to_owned(), pid: 7, started: now, interval_seconds: 10, memory_bytes: 1 << 20 };
        let known = Status::new(&identity, Some(&report));
        assert!(known.line().ends_with("; 9 ns/packet, 40 MiB"), "{}", known.line());
        (report.self_metrics.cpu_ns_per_packet, report.self_metrics.rss_bytes) = (None, None);
        let unknown = Status::new(&identity, Some(&report));
        assert!(!unknown.line().contains("ns/packet") && !unknown.line().contains("MiB"), "{}", unknown.line());
        let lines = unknown.at(now).to_string();
        assert!(lines.contains("daemon CPU unknown, memory unknown (planned: 1 MiB)"), "{lines}");
        let json = serde_json::to_value(&unknown).unwrap();
        assert!(json["last_report"].get("rss_bytes").is_none(), "{json}");
    }
}
