//! The report: the result of one window of one observer, in the form of the schema [`SCHEMA`].
//!
//! This is the only place that serialises reports. The doc comments here are the descriptions in the JSON Schema.
//! Within a schema version fields may be added, but never renamed. A reader ignores unknown fields of later versions.
//! An optional field is absent when its value is not known; it is never `null`.
//!
//! The crate has what a report means to its readers, and knows nothing of how one is measured: a program that only
//! reads reports needs no more than this. [`sketches`] are in reports to be merged with those of other routers.
//! `masking` removes from a report what a reader may not see of addresses. [`alerting`] judges it by the rules of the
//! configuration. [`flow_sample`] answers questions that no view asked. [`series`] has the numbers that are exported
//! or that rules can use. [`arrivals`] knows which reports of an observer are missing, [`Content`] which ones are
//! copies, and [`limits`] what a report may have at most.

#![forbid(unsafe_code)]

mod account;
mod alert;
pub mod alerting;
pub mod arrivals;
mod asked_flows;
mod changes;
mod content;
mod encoded;
pub mod flow_sample;
mod found;
mod from_json;
pub mod grid;
mod history;
pub mod ids;
mod instant;
mod length;
pub mod limits;
pub mod listing;
pub mod lists;
mod live;
mod masking;
mod names;
mod question;
mod rates;
mod remembered;
mod rows;
pub mod schema;
mod second;
pub mod series;
pub mod sketches;
mod tables;
mod tombstone;
mod top;
mod trust;
mod union;
mod usage;

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_config::Addresses;

pub use alert::{Alert, Evidence, is_firing};
pub use asked_flows::{ASKED_FLOWS_SCHEMA, AskedFlows, AskedRecords};
pub use changes::{CHANGES_SCHEMA, Change, ChangeKind, Changes, ComparedTime, KeyAmount};
pub use content::Content;
pub use encoded::Encoded;
pub use flow_sample::FlowSample;
pub use found::{Blocks, FOUND_SCHEMA, Found, FoundKey};
pub use from_json::FromJson;
pub use history::{
    HISTORY_SCHEMA, History, InterfaceHistory, KEY_HISTORY_SCHEMA, KeyHistory, KeySteps, KeyWindow, PastWindow, Reach,
    Steps,
};
pub use ids::Ids;
pub use length::Length;
pub use live::{LIVE_SCHEMA, Live, LiveAnswers, OpenWindow};
pub use names::{NAMES_SCHEMA, NameOf, NameSource, NamesAnswer};
pub use question::{BUILT_IN, Questions, asked};
pub use rates::InterfaceRates;
pub use remembered::Remembered;
pub use rows::{Bits, Entropy, HostNumbers, NOT_KEY, Row, Spread, Sums, View, ViewTable};
pub use second::{InterfaceSecond, LastReport, SECOND_SCHEMA, Second};
pub use sketches::Sketches;
pub use tables::{
    Style, write_answers, write_overview, write_tables, write_talkers, write_union, write_union_overview,
};
pub use tombstone::{Reason, TOMBSTONE_SCHEMA, Tombstone};
pub use top::{Beyond, Top, TopDestination, TopFlow, TopHost, TopPair, TopPrefix, TopService, TopSource, TopUnlisted};
pub use trust::{Account, Fact, NOT_MEASURED, Part, Verdict, is_measured, trust};
pub use union::{Gap, KeyAnswer, KeySums, ListKey, ListPart, PastAlert, REPORTS_KEPT, UNION_SCHEMA, Union};
pub use usage::{
    Amount, BusiestSecond, HostPeriod, HostUsage, HostUsageRow, InterfaceUsage, USAGE_SCHEMA, Usage, UsageRow,
};
pub use weir_config::names::protocol::protocol_name;

/// The maximum length of [`Interface::trouble`], in characters.
pub const TROUBLE_MAX: usize = 120;
/// The answer to a question about windows before there is one.
pub const NO_WINDOW: &str = "no window has ended yet: the first report comes when one has";
/// The schema that these structs serialise to.
pub const SCHEMA: &str = "weir.report/1";

/// How many seconds after the end of its last report an observer is late, if its reports have this length in seconds.
///
/// If the lengths differ, the longest of the last few counts, because the first and the last report of a run are short.
/// The dashboard for Grafana has the same rule, and a test compares them.
pub fn late_after(seconds: f64) -> f64 {
    3.0 * seconds + 30.0
}

/// The measurement of one observer in one window.
///
/// "Bytes" are bytes on the wire, including the Ethernet header, without the frame check sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The schema's name and version.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Observer, run and sequence number, joined by `/`. No other report ever has this id: use it to remove duplicates.
    pub id: String,
    /// The id of the observer's previous report, even if it was made before a restart. If you do not have that report,
    /// it was lost. Absent for the first report, and after a restart without a state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// How addresses are masked for this sink: `prefix` if their last bits are 0, `none` if all bits are 0. Absent if
    /// they are not masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<String>,
    /// The fingerprint of the hash key of this window: 16 hex digits. Sketches of two windows can be merged only if
    /// their fingerprints are equal. The key changes with the first window of each UTC day.
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub key_id: String,
    /// The window of the report.
    pub window: Window,
    /// The weir that made the report.
    pub observer: Observer,
    /// The results of the configuration's rules, except inactive rules. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<Alert>,
    /// Each observed interface with its exact ledger.
    pub interfaces: Vec<Interface>,
    /// Sums over all interfaces. Exact, except that those by version and protocol are estimates if packets were sampled
    /// or lost.
    pub totals: Totals,
    /// Estimates of the number of distinct addresses and flows.
    pub unique: Unique,
    /// Estimate of the number of flows that were not seen before.
    pub new_flows: NewFlows,
    /// Distinct addresses and flows over the configured horizons, which end with this window, the shortest first.
    /// Absent if there are none. They cannot be added up over windows or routers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub horizons: Vec<Horizon>,
    /// Hosts that were not seen for a long time. Absent unless the configuration looks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_hosts: Option<NewHosts>,
    /// The largest talkers by bytes.
    pub top: Top,
    /// The largest talkers by packets.
    pub top_by_packets: Top,
    /// Addresses with many different peers or ports: floods and scans.
    #[serde(default)]
    pub spread: Spread,
    /// The results of the configured views, followed by those standard views that have a table for each interface.
    /// Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<View>,
    /// The answers for the keys of `weir replay --ask`, in that order. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Row>,
    /// What each interface has carried in the month so far. Absent unless a quota or a rule of the configuration is
    /// about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<InterfaceUsage>,
    /// The traffic of each interface in each second. Absent if the window had no full second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<InterfaceRates>,
    /// Distributions of sizes and rates.
    pub histograms: Histograms,
    /// Sketches that can be merged with those of other routers. Absent unless the configuration exports some, and in
    /// reports between two exports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sketches: Option<Box<Sketches>>,
    /// A sample of its flow records, which only the history gets. It is not a part of the JSON.
    #[serde(skip)]
    pub sample: Option<Box<FlowSample>>,
    /// The cost of measuring and reporting.
    #[serde(rename = "self")]
    pub self_metrics: SelfMetrics,
}

impl Report {
    /// How much of addresses it shows. If it has a name that this version does not know, that is the strictest one.
    pub fn shown_addresses(&self) -> Addresses {
        union::shown(self.addresses.as_deref())
    }
}

/// The window of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// When it began, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// When it ended, RFC 3339 in UTC: the first instant after it. It is always later than `start`. If the clock was
    /// stepped, both times are on the clock before the step.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
    /// The length in seconds, measured on a clock that is never adjusted. `null` if it has no rates: if it is shorter
    /// than a millisecond, or if it is a whole capture of less than a second and of less than 100 packets, because only
    /// the time between its first and its last packet is known.
    pub seconds: Length,
    /// By how many seconds the wall clock was stepped within it: above 0 if it was set forward or the machine slept,
    /// below 0 if it was set back. The next window begins at the new time, so the times of two windows may overlap:
    /// `seq` tells them apart. Absent if the clock was not stepped by more than half a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_step_seconds: Option<f64>,
    /// Packets of the capture whose time is before `start`. They are counted in this window. Absent if the packets are
    /// not from a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_packets: Option<u64>,
    /// Packets of the capture that have no time (pcapng's simple packet blocks). They count in the window that is open
    /// when they are read. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untimed_packets: Option<u64>,
    /// Packets of the capture whose time is far from that of all others, because a clock was wrong. They are counted in
    /// this window, which does not reach to their time. Absent if there are none, and if the capture is divided into
    /// windows: then strays have windows of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strays: Option<Strays>,
}

/// Packets of a capture whose time is far from that of all others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Strays {
    /// The number of such packets.
    pub packets: u64,
    /// The earliest of their times, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub earliest: Timestamp,
    /// The latest of their times, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub latest: Timestamp,
}

/// The weir that made a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observer {
    /// The name for people, as configured.
    pub name: String,
    /// The identity, which stays the same after a restart.
    pub id: String,
    /// The run of the daemon: a new value after every start.
    pub boot_id: String,
    /// The number of the report, one more than that of the previous report. A gap means that a report was lost. After a
    /// restart, numbers continue if weir has a state directory, and start at 1 otherwise.
    pub seq: u64,
    /// The version of weir.
    pub version: String,
    /// The site. Absent if none is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// An interface in one direction, with its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    /// The name of the interface. For a replay this is the name of the capture.
    pub name: String,
    /// The name that it had when the window began. This entry has all packets of the window, including those under the
    /// earlier name. Absent if it was not renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_name: Option<String>,
    /// The number of the interface in the kernel: `ifindex` in `ip link`, ifIndex in SNMP and flow records. Absent for
    /// a capture, and while the interface does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The operator's name for it (`ip link set NAME alias TEXT`). Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// The VRF that it is in, itself or as a member of a bridge or bond: the name of the VRF's device. Absent if it is
    /// in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// How weir saw its packets when the window ended: `xdp-native`, `xdp-generic`, `tcx`, `tc`, `afpacket` or
    /// `replay`; `others` if this entry is the sum of all interfaces without their own entry. In any other mode weir
    /// did not measure it, and what it carried is unknown: `waiting` if weir had not attached to it yet; `absent` if
    /// the interface did not exist yet; `gone` if it disappeared; `detached` by `weir detach`; `refused` if weir cannot
    /// attach to it; `blind` if another process removed weir's program and weir cannot attach it again;
    /// `no-default-route` if it is measured only while it carries a default route, and it carries none.
    pub mode: String,
    /// The unit of one packet: `packets` means packets on the wire, `buffers` means buffers in which an offload may
    /// have merged several packets (`xdp-generic`).
    pub counts: String,
    /// The direction: `ingress` for packets that it received, `egress` for packets that it sent. An interface may be
    /// listed once for each direction. Absent for a capture, and for `others`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Which of its packets count in totals and lists: `all`; `local`, the sent packets that did not arrive on an
    /// interface whose packets count; or `none`. All other packets count on another interface, so that each packet
    /// counts once. `mixed` if the interfaces of `others` differ.
    pub feeds: String,
    /// Packets of `ledger.seen` that count in totals and lists on another interface. The sum of `seen` over all
    /// interfaces, minus these packets, equals the totals.
    pub repeated: Tally,
    /// The sampling rate in force, even if no packet came. One packet in this many is measured, chosen at random; for a
    /// part of the window it may have been more. 1 means every packet.
    #[schemars(range(min = 1))]
    pub sampling: u32,
    /// The account of every packet.
    pub ledger: Ledger,
    /// Packets that begin or end TCP connections.
    pub tcp: TcpPackets,
    /// The packets of the interface by their bytes on the wire: each size class as its upper edge (inclusive) and its
    /// number of packets, in ascending order. All reports have the same classes, including empty ones. The last class
    /// has all larger packets. The numbers are exact, also with sampling. They cover all packets of `ledger.seen`,
    /// except those that a packet socket dropped or that weir missed while it was blind (`lost.socket_drop`,
    /// `lost.blind`), whose sizes are unknown. Packets of a late CPU come in a later report. Packets that an offload
    /// merged count with their mean size, or as one packet if `counts` is `buffers`.
    pub packet_sizes: Vec<(u64, u64)>,
    /// The packets that weir saw, divided by those that the interface itself counted between the same two readings, at
    /// the start and the end of the window. Packets of `lost.blind` do not count as seen here. It does not matter
    /// whether the interface counts merged packets as one or as several. Absent if the interface counted no packets, if
    /// its count is not known, or if weir began to measure it within the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub coverage: Option<f64>,
    /// The true coverage is at least this: the two counters cannot be read at the same instant, and packets may be in a
    /// short queue between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub coverage_lower: Option<f64>,
    /// The true coverage is at most this. If it is below 1, weir did not see some packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub coverage_upper: Option<f64>,
    /// The same for bytes. Some interfaces count bytes differently than weir: without the Ethernet header, or with the
    /// frame check sequence. For these it is not 1 even if weir sees everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub coverage_bytes: Option<f64>,
    /// `coverage_bytes` is at least this, for the same reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub coverage_bytes_lower: Option<f64>,
    /// `coverage_bytes` is at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub coverage_bytes_upper: Option<f64>,
    /// Bounds of the packets that the interface itself counted and weir did not see, as far as they are not in
    /// `lost.blind`: for instance those that its card forwarded in hardware. They are in no number of `ledger`. Absent
    /// if none was certainly missed, or if the interface does not count them either. Of several windows together: the
    /// sum of those that had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Uncertain>,
    /// For how many seconds, at most, weir may not have seen the packets, because another process removed its program
    /// or another program ran first and held packets back. The packets that the interface counted meanwhile are in
    /// `lost.blind`. Absent if weir was never blind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub blind_seconds: Option<f64>,
    /// Why weir did not see all packets when the window ended, in words. Absent if it saw all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Of several windows together: the length of those at whose end weir did not measure the interface, in seconds.
    /// The ledger has nothing of what the interface carried meanwhile. Absent if weir measured it in all, and in a
    /// report, whose `mode` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub unmeasured_seconds: Option<f64>,
    /// Of a capture, the link types that weir does not read, with the packets in `skipped.link_type`. Absent if it read
    /// all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread_link_types: Vec<UnreadLinkType>,
    /// The share of the seen packets that were not lost, 0 to 1; 1 if none was seen.
    #[schemars(range(min = 0, max = 1))]
    pub kept: f64,
}

/// The packets of a link type that weir does not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadLinkType {
    /// The number of the link type in captures. Absent for all link types that have no entry of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_type: Option<u16>,
    /// The name of the link type. Absent if weir does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of packets with it.
    pub packets: u64,
    /// The bytes of these packets.
    pub bytes: u64,
}

/// The account of every packet and byte, exactly: `seen = attributed + sampled_out + sum(skipped) + sum(lost)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// All packets that weir saw.
    pub seen: Tally,
    /// Packets that were measured as part of a flow.
    pub attributed: Tally,
    /// Packets that sampling left out.
    pub sampled_out: Tally,
    /// Packets without a flow, by reason (`arp`, `non_ip`, ...). Only reasons that occurred are listed.
    pub skipped: BTreeMap<String, Tally>,
    /// Packets that are missing from the measurement, by reason. Every reason is listed, even with zero packets.
    pub lost: BTreeMap<String, Tally>,
    /// Packets of `seen` in merged buffers whose exact number of packets or bytes is not certain. All other numbers of
    /// the ledger use the lower bounds. The upper bounds of rows and totals include the upper bounds. Absent if there
    /// were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<Uncertain>,
}

/// The uncertain part of the seen packets. Its bounds always hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Uncertain {
    /// The number of packets in these buffers.
    pub packets: Bounds,
    /// The number of bytes in these buffers.
    pub bytes: Bounds,
}

/// Packets that begin or end TCP connections, by the flags in their header. A packet counts under each flag that it
/// has: a packet with RST and FIN counts in both. Fragments, packets that were captured without these flags, and TCP
/// inside a tunnel that weir does not look into are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpPackets {
    /// SYN without ACK: requests to connect.
    pub syn: u64,
    /// SYN with ACK: connections accepted.
    pub syn_ack: u64,
    /// RST: connections refused or broken off.
    pub rst: u64,
    /// FIN: one side has no more data to send.
    pub fin: u64,
    /// Bounds of the true numbers, if packets were sampled or a packet socket dropped some. Absent if all four numbers
    /// are exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<TcpBounds>,
}

/// The bounds of four counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpBounds {
    /// The probability that all four true numbers lie between their bounds, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// Bounds of `syn`.
    pub syn: Bounds,
    /// Bounds of `syn_ack`.
    pub syn_ack: Bounds,
    /// Bounds of `rst`.
    pub rst: Bounds,
    /// Bounds of `fin`.
    pub fin: Bounds,
}

/// The bounds of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bounds {
    /// The true number is at least this, at the stated confidence.
    pub lower: u64,
    /// The true number is at most this, at the stated confidence.
    pub upper: u64,
}

/// Packets and their bytes. They are exact, with two exceptions. `lost.blind` is taken from the interface's own
/// counters. The bytes of packets that a packet socket dropped (`lost.socket_drop`) are assumed: each packet counts
/// with the mean size of the packets that the socket delivered in the same window, or in the last window in which it
/// delivered any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// The number of packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

/// Sums over all interfaces. Exact, except that those by version and protocol are estimates if packets were sampled or
/// lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Packets seen, including those without a flow.
    pub packets: u64,
    /// Bytes seen, including those without a flow.
    pub bytes: u64,
    /// Packets of IPv4 flows.
    pub ipv4_packets: u64,
    /// Packets of IPv6 flows.
    pub ipv6_packets: u64,
    /// Packets of TCP flows.
    pub tcp_packets: u64,
    /// Packets of UDP flows.
    pub udp_packets: u64,
    /// Packets of ICMP and `ICMPv6` flows.
    pub icmp_packets: u64,
    /// Packets of flows of every other IP protocol.
    pub other_packets: u64,
    /// Bounds of the six true numbers above, if packets were sampled or lost. Absent if all six are exact. `packets`
    /// and `bytes` are always exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<TotalsBounds>,
}

/// The bounds of sums by version and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TotalsBounds {
    /// The probability that all six true numbers lie between their bounds, 0 to 1; 1 if they always do.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// Bounds of `ipv4_packets`.
    pub ipv4_packets: Bounds,
    /// Bounds of `ipv6_packets`.
    pub ipv6_packets: Bounds,
    /// Bounds of `tcp_packets`.
    pub tcp_packets: Bounds,
    /// Bounds of `udp_packets`.
    pub udp_packets: Bounds,
    /// Bounds of `icmp_packets`.
    pub icmp_packets: Bounds,
    /// Bounds of `other_packets`.
    pub other_packets: Bounds,
}

/// Estimates of the number of distinct addresses and flows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unique {
    /// Distinct source addresses.
    pub src_ip: Distinct,
    /// Distinct destination addresses.
    pub dst_ip: Distinct,
    /// Distinct flows: addresses, ports and protocol.
    pub flows: Distinct,
}

/// An estimated number of distinct items.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distinct {
    /// The likeliest number.
    pub value: u64,
    /// The true number is at least this, at the stated confidence.
    pub lower: u64,
    /// The true number is at most this, at the stated confidence.
    pub upper: u64,
    /// The probability that the true number lies between the bounds, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
}

/// Estimate of the number of flows that were not seen before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NewFlows {
    /// The likeliest number.
    pub value: u64,
    /// The true number is at least this.
    pub lower: u64,
    /// The true number is at most this.
    pub upper: u64,
    /// The probability that the true number lies between the bounds, 0 to 1. The lower bound always holds.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// The highest probability in the window that a new flow was mistaken for a known one, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub false_positive_rate: f64,
    /// The share of the filter's bits that are set, 0 to 1, at the end of the window.
    #[schemars(range(min = 0, max = 1))]
    pub fill: f64,
}

/// Distinct addresses and flows over a horizon that is longer than a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Horizon {
    /// The horizon as rules and metrics call it: `1h`, `24h`.
    pub name: String,
    /// The length of the horizon in seconds, as configured.
    pub seconds: u64,
    /// When the first window that it includes began, RFC 3339 in UTC. This is up to a 24th part of the horizon later
    /// than `seconds` before the end of the report's window, and later if weir has not measured for so long.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// For how many seconds since `start` weir has measured. What passed at other times is not included.
    #[schemars(range(min = 0))]
    pub covered_seconds: f64,
    /// The numbers of that time. They are at least those of the report's window.
    pub unique: Unique,
}

/// Hosts that were not seen for a long time: own addresses, as in the list of hosts, that sent something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NewHosts {
    /// The likeliest number.
    pub value: u64,
    /// The true number is at least this.
    pub lower: u64,
    /// The true number is at most this.
    pub upper: u64,
    /// The probability that the true number lies between the bounds, 0 to 1. The lower bound always holds.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// The highest probability in the window that a new host was mistaken for a known one, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub false_positive_rate: f64,
    /// The share of the bits of the filter's current generation that are set, 0 to 1, at the end of the window.
    #[schemars(range(min = 0, max = 1))]
    pub fill: f64,
    /// Since when weir knows hosts, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub since: Timestamp,
    /// For how many seconds since then weir has measured. An address that sent nothing in this time counts as new.
    #[schemars(range(min = 0))]
    pub known_seconds: f64,
    /// True if weir had not known hosts for as long as `new_hosts.learning` says when the window began. Then hosts
    /// count as new that may have been there for long, and neither rules nor metrics have the number.
    pub learning: bool,
    /// The first of them: at most 64.
    pub hosts: Vec<NewHost>,
}

/// A host that was not seen for a long time. It sent its first packet in the report's window, or shortly before if a
/// CPU was late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewHost {
    /// Its address.
    pub src_ip: IpAddr,
}

/// An estimated count. Its list states the confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The likeliest value.
    pub value: u64,
    /// The true number is at least this, at the stated confidence.
    pub lower: u64,
    /// The true number is at most this, at the stated confidence.
    pub upper: u64,
    /// The sampled part. To add up windows or routers, add this, times the `sampling` of each list: that sum is right
    /// on average, but a sum of values is not. If the rate changed in the window, packets that were sampled at a lower
    /// rate count for less. Absent if every packet was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<u64>,
}

impl Estimate {
    /// The estimate of a sketch, and the sampled number, if not every packet was taken.
    pub fn new(estimate: weir_sketch::Estimate, sampled: Option<u64>) -> Self {
        let weir_sketch::Estimate { value, lower, upper } = estimate;
        Self { value, lower, upper, sampled }
    }
}

/// Distributions of sizes and rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Histograms {
    /// Bytes on the wire of each packet seen, except those that a packet socket dropped.
    pub packet_size_bytes: Histogram,
}

/// A distribution. A quantile is the upper edge of its bucket. All values are zero if nothing was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// The number of values.
    pub count: u64,
    /// The smallest value.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// 90 % of the values are at most this.
    pub p90: u64,
    /// 99 % of the values are at most this.
    pub p99: u64,
    /// The largest value.
    pub max: u64,
    /// Each bucket as its upper edge (inclusive) and its number of values, in ascending order. Empty buckets may be
    /// absent.
    pub buckets: Vec<(u64, u64)>,
}

/// The cost of measuring and reporting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfMetrics {
    /// Daemon CPU per packet: its user and system time per packet seen, in nanoseconds. Absent if none was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cpu_ns_per_packet: Option<f64>,
    /// Memory that the daemon uses (resident set), in bytes. Absent if `/proc` does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// Memory that the configuration plans for sketches, rings and caches, in bytes.
    pub memory_bytes: u64,
    /// Records that the kernel sent through the rings; without kernel programs, records that left the flow cache.
    pub records: u64,
    /// The share of the packets whose flow was in the flow cache, 0 to 1. Absent if no packet belonged to a flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub cache_hit_rate: Option<f64>,
    /// Run time of the kernel's program per packet, in nanoseconds. Absent unless the kernel measures it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub kernel_ns_per_packet: Option<f64>,
    /// The rings between kernel and daemon.
    pub rings: Rings,
    /// CPUs that were late: their missing packets of this window will come in a later one. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_cpus: Vec<u32>,
    /// Reports that wait on disk.
    pub spool: Spool,
    /// Each sink's counters since the daemon's start.
    pub sinks: Vec<SinkMetrics>,
}

/// The rings between kernel and daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rings {
    /// The highest fill of any ring in this window, 0 to 1. Absent if there are no rings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub peak_fill: Option<f64>,
}

/// Reports that wait on disk, for all sinks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spool {
    /// The number of reports in the spool.
    pub reports: u64,
    /// The size of these reports in bytes.
    pub bytes: u64,
    /// Reports lost since the daemon's start; each is in a tombstone.
    pub dropped: u64,
}

/// The reports that wait on disk for one sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SinkSpool {
    /// The number of reports that wait for this sink.
    pub reports: u64,
    /// The size of all its files in bytes, each in full blocks, including kept refused reports.
    pub bytes: u64,
}

/// One sink's counters since the daemon's start. Every report for it, including those left by an earlier run, is
/// queued, delivered or dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SinkMetrics {
    /// The name of the sink.
    pub name: String,
    /// Reports that wait, on disk or in memory, or are being delivered now.
    pub queued: u64,
    /// The number of reports delivered.
    pub delivered: u64,
    /// Attempts that failed; one report may take several.
    pub failed_attempts: u64,
    /// Reports that were lost. A tombstone is delivered in place of each. A report that is delivered later by `weir
    /// spool retry` still counts here.
    pub dropped: u64,
    /// Why they were lost, and how many: `spool_full`, `queue_full`, `too_old`, `damaged`, `refused` or `removed`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<String, u64>,
    /// Lost reports whose tombstone this sink did not get, because it refused the tombstone or too many tombstones
    /// waited.
    #[serde(default, skip_serializing_if = "alert::is_zero")]
    pub untold: u64,
    /// The reports that wait on disk. Absent if the sink has no spool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<SinkSpool>,
    /// The last error. Absent while delivery works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}
