//! The report: the result of one window of one observer, in the form of the schema [`SCHEMA`].
//!
//! This is the only place that serialises reports. The doc comments here are the descriptions in the JSON Schema.
//! Within a schema version fields may be added, but never renamed. A reader ignores unknown fields of later versions.
//! An optional field is absent when its value is not known; it is never `null`.
//!
//! [`closing`] ends a window: its shards become a summary, and that becomes a report, which [`observer`] numbers.
//! [`alerting`] says which rules of the configuration a report breaks. [`series`] has the numbers that are exported or
//! that rules can use.

#![forbid(unsafe_code)]

mod account;
mod alert;
pub mod alerting;
pub mod closing;
pub mod compose;
mod encoded;
pub mod grid;
mod history;
pub mod ids;
mod instant;
mod live;
pub mod observer;
mod rates;
mod rows;
pub mod schema;
mod second;
pub mod series;
mod sizes;
mod tables;
mod tombstone;
mod union;

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use alert::{Alert, Evidence};
pub use encoded::Encoded;
pub use history::{HISTORY_SCHEMA, History, InterfaceHistory, PastWindow, Reach};
pub use ids::Ids;
pub use live::{LIVE_SCHEMA, Live, LiveAnswers, OpenWindow};
pub use rates::InterfaceRates;
pub use rows::{Bits, Entropy, Row, Spread, Sums, View, ViewTable, answers};
pub use second::{InterfaceSecond, LastReport, SECOND_SCHEMA, Second};
pub use tables::{
    Style, write_answers, write_overview, write_tables, write_talkers, write_union, write_union_overview,
};
pub use tombstone::{Reason, TOMBSTONE_SCHEMA, Tombstone};
pub use union::{Gap, REPORTS_KEPT, UNION_SCHEMA, Union};
pub use weir_config::names::protocol::protocol_name;

/// The maximum length of [`Interface::trouble`], in characters.
pub const TROUBLE_MAX: usize = 120;
/// The schema that these structs serialise to.
pub const SCHEMA: &str = "weir.report/1";

/// What one observer measured in one window.
///
/// "Bytes" are bytes on the wire as the link layer frames them: Ethernet header included, frame check sequence not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The schema's name and version.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Observer, run and sequence number, joined by `/`. No other report ever has this id: use it to remove duplicates.
    pub id: String,
    /// The id of the observer's report before this one, also before a restart. If you do not have that report, it was
    /// lost. Absent for the first report, and after a restart without a state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// What this sink was allowed to know of addresses: `prefix`, if their last bits are 0, or `none`, if all are.
    /// Absent if they are as weir saw them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<String>,
    /// The fingerprint of the hash key of this window: 16 hex digits. Sketches of two windows can be merged only if it
    /// is the same. The key changes with the first window of each UTC day.
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub key_id: String,
    /// The time that the report is about.
    pub window: Window,
    /// Who measured.
    pub observer: Observer,
    /// What the rules of the configuration say, those that have something to say. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<Alert>,
    /// Each observed interface with its exact account.
    pub interfaces: Vec<Interface>,
    /// Sums over all interfaces. Exact, except that those by version and protocol are estimates if packets were sampled
    /// or lost.
    pub totals: Totals,
    /// Estimates of the number of distinct addresses and flows.
    pub unique: Unique,
    /// Estimate of the number of flows that were not seen before.
    pub new_flows: NewFlows,
    /// The largest talkers by bytes.
    pub top: Top,
    /// The largest talkers by packets.
    pub top_by_packets: Top,
    /// Who touches many others: floods and scans.
    #[serde(default)]
    pub spread: Spread,
    /// What the views of the configuration come to, and then those of the standard views that have a table for each
    /// interface. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<View>,
    /// What is known of the keys that `weir replay --ask` asked for, in that order. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Row>,
    /// What each interface carried in each second. Absent if the window had no whole second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<InterfaceRates>,
    /// Distributions.
    pub histograms: Histograms,
    /// What measuring and reporting cost.
    #[serde(rename = "self")]
    pub self_metrics: SelfMetrics,
}

/// The time that a report is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// When it began, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// When it ended, RFC 3339 in UTC: the first instant after it. It is always later than `start`. If the clock was
    /// stepped, both are by the clock before the step.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
    /// Its length in seconds, measured on a clock that is never adjusted.
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// By how many seconds the wall clock was stepped within it: above 0 if it was set forward or the machine slept,
    /// below 0 if it was set back. The next window begins at the new time, so the times of two windows may overlap:
    /// `seq` tells them apart. Absent if the clock was not stepped by more than half a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_step_seconds: Option<f64>,
    /// Packets of the capture whose time is before `start`. They are counted in this window. Absent unless the packets
    /// are from a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_packets: Option<u64>,
    /// Packets of the capture that have no time (pcapng's simple packet blocks). They are counted in the window that is
    /// open when they are read. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untimed_packets: Option<u64>,
}

/// Who measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observer {
    /// Its name for people.
    pub name: String,
    /// Its identity, the same after every restart.
    pub id: String,
    /// The run of the daemon: a new value after every start.
    pub boot_id: String,
    /// The number of the report, one more than that of the report before. A gap means that a report was lost. It counts
    /// on after a restart if weir has a state directory, and from 1 otherwise.
    pub seq: u64,
    /// The version of weir.
    pub version: String,
    /// The site, where one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// One observed interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    /// Its name; for a replay the capture's.
    pub name: String,
    /// The name that it had when the window began. All packets of the window are in this account, also those that came
    /// under the earlier name. Absent if it was not renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_name: Option<String>,
    /// Its number in the kernel: `ifindex` in `ip link`, ifIndex in SNMP and flow records. Absent for a capture, and
    /// while the interface is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// What the operator calls it (`ip link set NAME alias TEXT`). Absent if there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// How weir saw its packets: `xdp-native`, `xdp-generic`, `tcx`, `tc`, `afpacket` or `replay`. `waiting` if weir
    /// had not attached to it yet; `absent` if the interface was not there yet; `gone` if it disappeared;
    /// `no-default-route` if it is measured only while a default route leaves by it, and none does; `others` if this is
    /// the account of all interfaces that found no other one.
    pub mode: String,
    /// What counts as a packet: `packets` as they were on the wire, or `buffers`, in which an offload may have merged
    /// several packets (`xdp-generic`).
    pub counts: String,
    /// Which of its packets: `ingress` are those that it received, `egress` those that it sent. An interface may be
    /// listed once for each direction. Absent for a capture, and for `others`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Which of its packets feed totals and lists: `all`; `local`, those sent that did not come by an interface that
    /// feeds; or `none`. The others feed on another interface, so that each packet feeds once. `mixed` where the
    /// interfaces of `others` differ.
    pub feeds: String,
    /// Packets of `ledger.seen` that feed totals and lists on another interface. Over all interfaces, `seen` without
    /// these adds up to the totals.
    pub repeated: Tally,
    /// The sampling rate in force, whether or not a packet came: one packet in this many is measured, chosen at random,
    /// or more than that for a part of the window. 1 means every packet.
    #[schemars(range(min = 1))]
    pub sampling: u32,
    /// Where every packet went.
    pub ledger: Ledger,
    /// Packets that begin or end TCP connections.
    pub tcp: TcpPackets,
    /// Its packets by their bytes on the wire: each size class as its upper edge (inclusive) and how many packets it
    /// has, by rising edge. All reports have the same classes, and empty ones are there, too. The last one has all
    /// larger packets. These are all packets of `ledger.seen`, exactly and also with sampling, except those that a
    /// packet socket dropped or that weir missed while it was blind (`lost.socket_drop`, `lost.blind`): their sizes are
    /// not known. Those of a CPU that is late come in a
    /// later report. Packets that an offload merged count with their mean size, or, where `counts` is `buffers`, as
    /// one.
    pub packet_sizes: Vec<(u64, u64)>,
    /// The packets that weir saw, divided by those that the interface itself counted between the same two readings, one
    /// at each edge of the window. Packets of `lost.blind` are not among those that weir saw. It does not matter
    /// whether the interface counts packets that offloads merged as one or as several. Absent if the interface counted
    /// no packets, if its count is not known, or if weir began to measure it within the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub coverage: Option<f64>,
    /// The true coverage is at least this: the two counts cannot be read at one instant, and packets may be in a short
    /// queue between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub coverage_lower: Option<f64>,
    /// The true coverage is at most this. If it is below 1, weir did not see some packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub coverage_upper: Option<f64>,
    /// The same of bytes. Some interfaces count the bytes of a packet otherwise than weir: without their Ethernet
    /// header, or with the frame check sequence. There it is not 1 when weir sees all.
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
    /// For how many seconds weir may not have seen the packets, at most: somebody removed its program, or stood in
    /// front of it and kept packets back. What the interface counted then is in `lost.blind`. Absent if weir was never
    /// blind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub blind_seconds: Option<f64>,
    /// What kept weir from seeing all packets when the window ended, in words. Absent if nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The share of the seen packets that were not lost, 0 to 1; 1 if none was seen.
    #[schemars(range(min = 0, max = 1))]
    pub kept: f64,
}

/// Where every packet and byte went, exactly: `seen = attributed + sampled_out + sum(skipped) + sum(lost)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// All packets that weir saw.
    pub seen: Tally,
    /// Packets that were measured as part of a flow.
    pub attributed: Tally,
    /// Packets that sampling left out.
    pub sampled_out: Tally,
    /// Packets without a flow, by reason (`arp`, `non_ip`, ...); only reasons that occurred.
    pub skipped: BTreeMap<String, Tally>,
    /// Packets that are missing from the measurement, by reason; every reason, also those with zero packets.
    pub lost: BTreeMap<String, Tally>,
    /// Of `seen`, the packets of buffers that an offload merged, and of which it is not certain how many packets these
    /// were, or how long. All other numbers of the ledger count the lower bounds; the upper bounds of rows and totals
    /// have room for the upper ones. Absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<Uncertain>,
}

/// What of the packets seen is not certain: it is between these bounds, which hold without a probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Uncertain {
    /// How many packets these buffers were.
    pub packets: Bounds,
    /// How many bytes these packets had.
    pub bytes: Bounds,
}

/// Packets that begin or end TCP connections, by the flags in their header. A packet counts under each name that fits:
/// one with RST and FIN is in both. Not counted are fragments, packets that were captured without these flags, and TCP
/// inside a tunnel that weir does not look into.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpPackets {
    /// SYN without ACK: requests to connect.
    pub syn: u64,
    /// SYN with ACK: connections accepted.
    pub syn_ack: u64,
    /// RST: connections refused or broken off.
    pub rst: u64,
    /// FIN: a side has no more to send.
    pub fin: u64,
    /// How far the true numbers may be away, if packets were sampled, or if a packet socket dropped some. Absent if all
    /// four numbers are exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<TcpBounds>,
}

/// The bounds of four counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpBounds {
    /// The probability that all four true numbers lie between their bounds, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// Of `syn`.
    pub syn: Bounds,
    /// Of `syn_ack`.
    pub syn_ack: Bounds,
    /// Of `rst`.
    pub rst: Bounds,
    /// Of `fin`.
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

/// Packets and their bytes. Exact, except for `lost.blind`, which is what the interface counted and weir did not see,
/// and except for the bytes of packets that a packet socket dropped (`lost.socket_drop`):
/// each of those is counted with the mean size of the packets that the socket delivered in the same window, or in the
/// last window in which it delivered any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

/// Sums over all interfaces. Exact, except that those by version and protocol are estimates if packets were sampled or
/// lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Packets seen, also those without a flow.
    pub packets: u64,
    /// Bytes seen, also those without a flow.
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
    /// How far the true numbers of the six above may be away, if packets were sampled or lost. Absent if all are exact.
    /// `packets` and `bytes` are exact in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<TotalsBounds>,
}

/// The bounds of sums by version and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TotalsBounds {
    /// The probability that all six true numbers lie between their bounds, 0 to 1; 1 if they always do.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// Of `ipv4_packets`.
    pub ipv4_packets: Bounds,
    /// Of `ipv6_packets`.
    pub ipv6_packets: Bounds,
    /// Of `tcp_packets`.
    pub tcp_packets: Bounds,
    /// Of `udp_packets`.
    pub udp_packets: Bounds,
    /// Of `icmp_packets`.
    pub icmp_packets: Bounds,
    /// Of `other_packets`.
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
    /// The estimate.
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
    /// The estimate.
    pub value: u64,
    /// The true number is at least this.
    pub lower: u64,
    /// The true number is at most this.
    pub upper: u64,
    /// The probability that the true number lies between the bounds, 0 to 1. The lower bound always holds.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// The highest probability in the window that a new flow was taken for a known one, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub false_positive_rate: f64,
    /// The share of the filter's bits that are set, 0 to 1, at the end of the window.
    #[schemars(range(min = 0, max = 1))]
    pub fill: f64,
}

/// The largest talkers in one order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Top {
    /// What ranks them: `bytes` or `packets`.
    pub by: String,
    /// The sampling rate in force, whether or not a packet came: one packet in this many is sampled, or more than that
    /// for a part of the window. 1 means every packet. If sampling left nothing out of the window, `confidence` is 1.
    #[serde(default = "every_packet")]
    #[schemars(range(min = 1))]
    pub sampling: u32,
    /// The probability that the true numbers of all entries of one list lie between their bounds, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// The largest flows.
    pub flows: Vec<TopFlow>,
    /// The source addresses that sent most.
    pub sources: Vec<TopSource>,
    /// The destination addresses that received most.
    pub destinations: Vec<TopDestination>,
    /// The largest pairs of source and destination address, in that direction.
    pub pairs: Vec<TopPair>,
    /// The largest services: protocol and port.
    pub services: Vec<TopService>,
    /// The networks of source addresses (/24 for IPv4, /48 for IPv6) that sent most beyond those of their addresses
    /// that are in `sources`.
    #[serde(default)]
    pub source_prefixes: Vec<TopPrefix>,
    /// The networks of destination addresses (/24 for IPv4, /48 for IPv6) that received most beyond those of their
    /// addresses that are in `destinations`.
    #[serde(default)]
    pub destination_prefixes: Vec<TopPrefix>,
}

/// One of the largest flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopFlow {
    /// Its place, from 1.
    pub rank: u32,
    /// Source address.
    pub src_ip: IpAddr,
    /// Destination address.
    pub dst_ip: IpAddr,
    /// Source port; the type for ICMP and `ICMPv6`; 0 for protocols without ports, for fragments (the first one, too),
    /// and for packets that end before their ports.
    pub src_port: u16,
    /// Destination port; the code for ICMP and `ICMPv6`; 0 where `src_port` says so.
    pub dst_port: u16,
    /// IP protocol: its name in lower case, or its IANA number as text.
    pub proto: Cow<'static, str>,
    /// Packets.
    pub packets: Estimate,
    /// Bytes on the wire.
    pub bytes: Estimate,
}

/// One of the source addresses that sent most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopSource {
    /// Its place, from 1.
    pub rank: u32,
    /// Source address.
    pub src_ip: IpAddr,
    /// Packets from it.
    pub packets: Estimate,
    /// Bytes on the wire from it.
    pub bytes: Estimate,
}

/// One of the destination addresses that received most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopDestination {
    /// Its place, from 1.
    pub rank: u32,
    /// Destination address.
    pub dst_ip: IpAddr,
    /// Packets to it.
    pub packets: Estimate,
    /// Bytes on the wire to it.
    pub bytes: Estimate,
}

/// One of the largest pairs of source and destination address.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopPair {
    /// Its place, from 1.
    pub rank: u32,
    /// Source address.
    pub src_ip: IpAddr,
    /// Destination address.
    pub dst_ip: IpAddr,
    /// Packets from the source to the destination.
    pub packets: Estimate,
    /// Bytes on the wire from the source to the destination.
    pub bytes: Estimate,
}

/// One of the largest services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopService {
    /// Its place, from 1.
    pub rank: u32,
    /// IP protocol: its name in lower case, or its IANA number as text.
    pub proto: Cow<'static, str>,
    /// The lower of the two ports, so that both directions of a conversation count; 0 for ICMP and for protocols
    /// without ports.
    pub port: u16,
    /// Packets to it and from it.
    pub packets: Estimate,
    /// Bytes on the wire to it and from it.
    pub bytes: Estimate,
}

/// A network, listed for what it has beyond those of its addresses that are listed themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopPrefix {
    /// Its place by what it has beyond its members, from 1.
    pub rank: u32,
    /// The network: its first address and its length, such as `192.0.2.0/24` or `2001:db8::/48`.
    pub prefix: String,
    /// All its packets.
    pub packets: Estimate,
    /// All its bytes on the wire.
    pub bytes: Estimate,
    /// What of it is not of its members. The bounds hold if those of this list and of the list of addresses do.
    pub beyond: Beyond,
    /// How many of its addresses are in the list of addresses of the same direction and order.
    pub members: u32,
}

/// What a network has beyond those of its addresses that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Beyond {
    /// Packets.
    pub packets: Estimate,
    /// Bytes on the wire.
    pub bytes: Estimate,
}

const fn every_packet() -> u32 {
    1
}

/// An estimated count. Its list states the confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The estimate.
    pub value: u64,
    /// The true number is at least this, at the stated confidence.
    pub lower: u64,
    /// The true number is at most this, at the stated confidence.
    pub upper: u64,
    /// What was sampled of it. To add up windows or routers, add this, times the `sampling` of each list: the sum is
    /// right on average, which a sum of values is not. If the rate changed in the window, what was sampled at a lower
    /// rate counts for less. Absent if every packet was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<u64>,
}

impl Estimate {
    /// The estimate of a sketch, and how many were sampled, if not all were.
    pub(crate) fn new(estimate: weir_sketch::Estimate, sampled: Option<u64>) -> Self {
        let weir_sketch::Estimate { value, lower, upper } = estimate;
        Self { value, lower, upper, sampled }
    }
}

/// Distributions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Histograms {
    /// Bytes on the wire of each packet seen, except those that a packet socket dropped.
    pub packet_size_bytes: Histogram,
}

/// A distribution. A quantile is the upper edge of its bucket. All zero if nothing was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// How many values there are.
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
    /// Each bucket as its upper edge (inclusive) and how many values are in it, by rising edge. Empty ones may be
    /// absent.
    pub buckets: Vec<(u64, u64)>,
}

/// What measuring and reporting cost.
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
    /// Records that the kernel sent through the rings; without a kernel side, those that left the flow cache.
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
    /// CPUs that were late: what of this window is missing of theirs will come in a later one. Absent if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_cpus: Vec<u32>,
    /// Reports that wait on disk.
    pub spool: Spool,
    /// Each sink's account since the daemon's start.
    pub sinks: Vec<SinkMetrics>,
}

/// The rings between kernel and daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rings {
    /// How full the fullest ring was in this window, 0 to 1. Absent where there are no rings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub peak_fill: Option<f64>,
}

/// Reports that wait on disk, for all sinks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spool {
    /// Reports in it.
    pub reports: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Reports lost since the daemon's start; each is in a tombstone.
    pub dropped: u64,
}

/// What waits on disk for one sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SinkSpool {
    /// Reports in it.
    pub reports: u64,
    /// The size of all its files in bytes, each in whole blocks; refused reports that are kept aside included.
    pub bytes: u64,
}

/// One sink's account since the daemon's start. Every report for it, also one that an earlier run has left, is queued,
/// delivered or dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SinkMetrics {
    /// The sink's name.
    pub name: String,
    /// Reports that wait, on disk or in memory, or are being delivered now.
    pub queued: u64,
    /// Reports delivered.
    pub delivered: u64,
    /// Attempts that failed; one report may take several.
    pub failed_attempts: u64,
    /// Reports that were lost. A tombstone is delivered in the place of each. One that is tried again and delivered
    /// (`weir spool retry`) still counts here.
    pub dropped: u64,
    /// Why they were lost, and how many: `spool_full`, `queue_full`, `too_old`, `damaged`, `refused` or `removed`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<String, u64>,
    /// Lost reports that this sink was told nothing of: it refused their tombstone, or too many tombstones waited.
    #[serde(default, skip_serializing_if = "alert::is_zero")]
    pub untold: u64,
    /// What waits on disk; absent if the sink has no spool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<SinkSpool>,
    /// What went wrong last; absent while all goes well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}
