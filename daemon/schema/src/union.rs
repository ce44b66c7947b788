//! The union of several windows: sums and bounds over all of them, computed from their reports.
//!
//! A key that a list does not name had at most the most that the window's total may be, minus the lower bounds of the
//! named keys; or all of it if a packet counts for two keys. So bounds are narrow for keys that every window lists, and
//! wide for keys that few windows list. A bound of the union holds if the bounds of all windows hold. The probabilities
//! of failure are added up (Boole's inequality).
//!
//! `list` joins the rows of lists, `hosts` what rows of hosts have besides, `views` those of views that asked the same
//! in all windows, `interfaces` the ledgers of interfaces, `alerts` the evidence of alerts, and `proven` counts what
//! rows prove to be distinct. `of_key` looks up one key, and `of_part` a network, a port or another part of the
//! traffic.

mod alerts;
mod hosts;
mod interfaces;
mod list;
mod of_key;
mod of_part;
mod proven;
mod views;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_config::Addresses;

pub use self::alerts::PastAlert;
pub use self::of_key::{KeyAnswer, KeySums, ListKey};
pub use self::of_part::ListPart;
use self::{
    interfaces::{interface, interfaces, of_window},
    list::{Entry, Listed, Order, cut, together, unlisted},
    views::{Views, order},
};
use super::{
    Bounds, Distinct, Interface, NewFlows, Observer, Report, Tally, Top, Totals, TotalsBounds, Unique, View, Window,
    instant, standard_lists,
};

/// Maximum number of reports that are kept for a union.
pub const REPORTS_KEPT: usize = 5;
/// The schema that [`Union`] serialises to.
pub const UNION_SCHEMA: &str = "weir.union/1";
/// Maximum number of ids in a union. A union of more windows has only the first and the last id.
const IDS_MAX: usize = 64;

/// The measurements of one observer in several consecutive windows. Its parts have the same structure and names as in a
/// report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Union {
    /// The schema's name and version.
    pub schema: String,
    /// The ids of the reports, the oldest first. If there are very many, only the first and the last.
    pub reports: Vec<String>,
    /// The number of windows.
    #[serde(default)]
    pub windows: u64,
    /// From the earliest start to the latest end of a window; `seconds` is the sum of all windows.
    pub window: Window,
    /// The observer, as in the last report.
    pub observer: Observer,
    /// How addresses are masked in the report that has least of them. Absent if no report masks them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<String>,
    /// Each interface with its exact ledger. Fields that cannot be summed are as in its last report.
    pub interfaces: Vec<Interface>,
    /// Sums over all interfaces.
    pub totals: Totals,
    /// Distinct addresses and flows: at least as many as in any one window, and at most the sum. The history knows them
    /// more closely.
    pub unique: Unique,
    /// Flows that were not seen before.
    pub new_flows: NewFlows,
    /// The largest talkers by bytes, without prefixes.
    pub top: Top,
    /// The largest talkers by packets, without prefixes.
    pub top_by_packets: Top,
    /// Views of bytes and packets.
    pub views: Vec<View>,
    /// The names of the other views and of the lists of prefixes. Their counts cannot be summed, they are not in every
    /// report, or their question changed.
    pub left_out: Vec<String>,
    /// Of these, the views whose question changed within this time: their answers do not belong together. Absent if
    /// there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The rules whose alerts were firing in any of these windows. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fired: Vec<String>,
    /// These alerts with the numbers that were farthest beyond their limits. Absent if there are none, and in unions of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<PastAlert>,
    /// The largest packet, in bytes on the wire.
    #[serde(default)]
    pub largest_packet_bytes: u64,
    /// Requested times without windows. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Gap>,
    /// From when on weir remembers windows. Absent if this is not from its history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches_back_to: Option<Timestamp>,
}

/// A time without windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The start of the gap, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// The end of the gap.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
}

impl Union {
    /// How much of addresses its rows have. An unknown name is treated as the strictest one.
    pub fn shown_addresses(&self) -> Addresses {
        shown(self.addresses.as_deref())
    }

    /// The union of one observer's reports, the oldest first; `None` if there are none.
    pub fn of(reports: &[Report]) -> Option<Self> {
        Self::join(&reports.iter().map(Self::one).collect::<Vec<_>>())
    }

    /// The union of a single window.
    pub fn one(report: &Report) -> Self {
        // A new field has to say here what several windows have of it.
        let Report {
            schema: _,
            id,
            previous: _,
            addresses,
            key_id: _,
            window,
            observer,
            alerts: _,
            interfaces,
            totals,
            unique,
            new_flows,
            top,
            top_by_packets,
            spread: _,
            views,
            answers: _,
            usage: _,
            // Sketches of a local key stay where they are, and hosts are new once: the single reports have both.
            horizons: _,
            new_hosts: _,
            rates: _,
            histograms,
            sketches: _,
            sample: _,
            self_metrics: _,
        } = report;
        let (views, others): (Vec<_>, Vec<_>) = views.iter().cloned().partition(|view| order(view).is_some());
        let Top { source_prefixes, destination_prefixes, .. } = top;
        let prefixes = [("source_prefixes", source_prefixes), ("destination_prefixes", destination_prefixes)];
        let prefixes = prefixes.into_iter().filter(|(_, rows)| !rows.is_empty()).map(|(name, _)| name.to_owned());
        // The traffic of a prefix without its listed members depends on which members are listed, and that differs
        // between windows.
        let without_prefixes =
            |top: &Top| Top { source_prefixes: Vec::new(), destination_prefixes: Vec::new(), ..top.clone() };
        Self {
            schema: UNION_SCHEMA.to_owned(),
            reports: vec![id.clone()],
            windows: 1,
            window: Window { late_packets: None, untimed_packets: None, strays: None, ..*window },
            observer: observer.clone(),
            addresses: addresses.clone(),
            interfaces: interfaces.iter().map(|of| of_window(of, window.seconds)).collect(),
            totals: *totals,
            unique: *unique,
            new_flows: *new_flows,
            top: without_prefixes(top),
            top_by_packets: without_prefixes(top_by_packets),
            views,
            left_out: others.into_iter().map(|view| view.name).chain(prefixes).collect(),
            changed: Vec::new(),
            fired: report.firing().map(str::to_owned).collect(),
            alerts: PastAlert::of(report),
            largest_packet_bytes: histograms.packet_size_bytes.max,
            missing: Vec::new(),
            reaches_back_to: None,
        }
    }

    /// The union of several unions, the oldest first; `None` if there are none. If a part has lost rows, the bounds of
    /// their keys become wider, but stay correct.
    pub fn join(parts: &[Self]) -> Option<Self> {
        let (first, last) = (parts.first()?, parts.last()?);
        let windows = || parts.iter().map(|part| part.window);
        let Views { together, left_out, changed } = Views::of(parts);
        let mut union = Self {
            schema: UNION_SCHEMA.to_owned(),
            reports: ids(parts),
            windows: parts.iter().map(|part| part.windows).sum(),
            window: Window {
                // If the clock was set back, the last window is not the latest.
                start: windows().map(|window| window.start).min().unwrap_or(first.window.start),
                end: windows().map(|window| window.end).max().unwrap_or(last.window.end),
                seconds: windows().map(|window| window.seconds).sum(),
                clock_step_seconds: windows().filter_map(|window| window.clock_step_seconds).reduce(|a, b| a + b),
                late_packets: None,
                untimed_packets: None,
                strays: None,
            },
            observer: last.observer.clone(),
            addresses: addresses(parts),
            interfaces: interfaces(parts),
            totals: totals(parts),
            unique: Unique {
                src_ip: distinct(parts.iter().map(|part| part.unique.src_ip)),
                dst_ip: distinct(parts.iter().map(|part| part.unique.dst_ip)),
                flows: distinct(parts.iter().map(|part| part.unique.flows)),
            },
            new_flows: new_flows(parts),
            top: top(parts, |part| &part.top),
            top_by_packets: top(parts, |part| &part.top_by_packets),
            views: together,
            left_out,
            changed,
            fired: distinct_names(parts.iter().flat_map(|part| &part.fired)),
            alerts: PastAlert::join(parts),
            largest_packet_bytes: parts.iter().map(|part| part.largest_packet_bytes).max().unwrap_or(0),
            missing: Vec::new(),
            reaches_back_to: None,
        };
        proven::raise(&mut union);
        Some(union)
    }

    /// The most packets and bytes that it may have in total. Its totals are the least if some of them are uncertain.
    fn most(&self) -> Tally {
        let mut most = Tally { packets: self.totals.packets, bytes: self.totals.bytes };
        for of in &self.interfaces {
            add(&mut most, of.ledger.beyond());
        }
        most
    }

    /// Takes closer bounds of the distinct counts, if they are closer. Both are bounds of the same windows.
    pub fn narrow(&mut self, closer: Unique) {
        let Unique { src_ip, dst_ip, flows } = &mut self.unique;
        for (one, closer) in [(src_ip, closer.src_ip), (dst_ip, closer.dst_ip), (flows, closer.flows)] {
            let (lower, upper) = (one.lower.max(closer.lower), one.upper.min(closer.upper));
            if lower > upper {
                // One of both has failed: both are left to be seen.
                (one.lower, one.upper) = (one.lower.min(closer.lower), one.upper.max(closer.upper));
                continue;
            }
            let confidence = all_hold([one.confidence, closer.confidence].into_iter());
            *one = Distinct { value: closer.value.clamp(lower, upper), lower, upper, confidence };
        }
        proven::raise(self);
    }

    /// The number of lists.
    pub fn lists(&self) -> usize {
        const LISTS_OF_TOPS: usize = 10;
        let of_views = self.views.iter().map(|view| view.tables.as_ref().map_or(1, Vec::len));
        LISTS_OF_TOPS + of_views.sum::<usize>()
    }

    /// Keeps at most this many rows of each list and this many interfaces. Further interfaces are added up.
    pub fn trim(&mut self, rows: usize, interfaces: usize) {
        for top in [&mut self.top, &mut self.top_by_packets] {
            let by_packets = top.by == "packets";
            macro_rules! cut_each {
                ($($list:ident $rows:ident $row:ident $noun:literal: $($field:ident),* $(+ $more:ident)?;)*) => {
                    $(cut(&mut top.$rows, &mut top.unlisted.$rows, rows, by_packets);)*
                };
            }
            standard_lists!(cut_each);
        }
        for view in &mut self.views {
            let by_packets = order(view).unwrap_or(false);
            if let Some(list) = &mut view.rows {
                cut(list, &mut view.unlisted, rows, by_packets);
            }
            if let Some(tables) = &mut view.tables {
                tables.truncate(interfaces);
                for table in tables {
                    table.rows.truncate(rows);
                }
            }
        }
        if self.interfaces.len() > interfaces {
            let others = self.interfaces.split_off(interfaces.saturating_sub(1));
            let sum = interface(&others.iter().collect::<Vec<_>>());
            self.interfaces.extend(sum.map(|sum| Interface {
                name: "others".to_owned(),
                mode: "others".to_owned(),
                direction: None,
                index: None,
                alias: None,
                vrf: None,
                trouble: None,
                unread_link_types: Vec::new(),
                ..sum
            }));
        }
    }
}

/// The ids of all parts, or the first and the last.
fn ids(parts: &[Union]) -> Vec<String> {
    let mut all: Vec<String> = parts.iter().flat_map(|part| &part.reports).cloned().collect();
    if all.len() > IDS_MAX {
        all.drain(1..all.len() - 1);
    }
    all
}

/// The strictest masking of addresses. An unknown name is treated as the strictest one.
fn addresses(parts: &[Union]) -> Option<String> {
    let masked = parts.iter().filter_map(|part| part.addresses.as_ref());
    masked.max_by_key(|name| shown(Some(name))).cloned()
}

/// How much of addresses a report or a union with this name has.
pub(crate) fn shown(name: Option<&str>) -> Addresses {
    name.map_or(Addresses::Full, |name| Addresses::from_name(name).unwrap_or(Addresses::None))
}

/// Returns each name once.
pub(crate) fn distinct_names<'n>(names: impl Iterator<Item = &'n String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

/// The probability that the bounds of all windows hold.
fn all_hold(confidences: impl Iterator<Item = f64>) -> f64 {
    (1.0 - confidences.map(|confidence| 1.0 - confidence).sum::<f64>()).max(0.0)
}

fn add(sum: &mut Tally, more: Tally) {
    *sum = Tally { packets: sum.packets.saturating_add(more.packets), bytes: sum.bytes.saturating_add(more.bytes) };
}

fn totals(parts: &[Union]) -> Totals {
    let sum = |of: fn(&Totals) -> u64| parts.iter().fold(0_u64, |sum, part| sum.saturating_add(of(&part.totals)));
    Totals {
        packets: sum(|totals| totals.packets),
        bytes: sum(|totals| totals.bytes),
        ipv4_packets: sum(|totals| totals.ipv4_packets),
        ipv6_packets: sum(|totals| totals.ipv6_packets),
        tcp_packets: sum(|totals| totals.tcp_packets),
        udp_packets: sum(|totals| totals.udp_packets),
        icmp_packets: sum(|totals| totals.icmp_packets),
        other_packets: sum(|totals| totals.other_packets),
        bounds: totals_bounds(parts),
    }
}

fn totals_bounds(parts: &[Union]) -> Option<TotalsBounds> {
    let sum = |count: fn(&Totals) -> u64, bounds: fn(&TotalsBounds) -> Bounds| {
        let mut sum = Bounds { lower: 0, upper: 0 };
        for Union { totals, .. } in parts {
            let exact = Bounds { lower: count(totals), upper: count(totals) };
            let Bounds { lower, upper } = totals.bounds.as_ref().map_or(exact, bounds);
            sum = Bounds { lower: sum.lower.saturating_add(lower), upper: sum.upper.saturating_add(upper) };
        }
        sum
    };
    let confidences = || parts.iter().filter_map(|part| Some(part.totals.bounds?.confidence));
    confidences().next().is_some().then(|| TotalsBounds {
        confidence: all_hold(confidences()),
        ipv4_packets: sum(|totals| totals.ipv4_packets, |bounds| bounds.ipv4_packets),
        ipv6_packets: sum(|totals| totals.ipv6_packets, |bounds| bounds.ipv6_packets),
        tcp_packets: sum(|totals| totals.tcp_packets, |bounds| bounds.tcp_packets),
        udp_packets: sum(|totals| totals.udp_packets, |bounds| bounds.udp_packets),
        icmp_packets: sum(|totals| totals.icmp_packets, |bounds| bounds.icmp_packets),
        other_packets: sum(|totals| totals.other_packets, |bounds| bounds.other_packets),
    })
}

impl Distinct {
    /// The number in the union of two windows.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            value: self.value.max(other.value),
            lower: self.lower.max(other.lower),
            upper: self.upper.saturating_add(other.upper),
            confidence: all_hold([self.confidence, other.confidence].into_iter()),
        }
    }
}

impl Unique {
    /// The numbers in the union of two times.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            src_ip: self.src_ip.or(other.src_ip),
            dst_ip: self.dst_ip.or(other.dst_ip),
            flows: self.flows.or(other.flows),
        }
    }
}

fn distinct(windows: impl Iterator<Item = Distinct>) -> Distinct {
    let nothing = Distinct { value: 0, lower: 0, upper: 0, confidence: 1.0 };
    windows.fold(nothing, Distinct::or)
}

fn new_flows(parts: &[Union]) -> NewFlows {
    let windows = || parts.iter().map(|part| part.new_flows);
    NewFlows {
        value: windows().fold(0, |sum, window| sum.saturating_add(window.value)),
        lower: windows().fold(0, |sum, window| sum.saturating_add(window.lower)),
        upper: windows().fold(0, |sum, window| sum.saturating_add(window.upper)),
        confidence: all_hold(windows().map(|window| window.confidence)),
        false_positive_rate: windows().map(|window| window.false_positive_rate).fold(0.0, f64::max),
        fill: windows().next_back().map_or(0.0, |window| window.fill),
    }
}

fn top(parts: &[Union], of: impl Fn(&Union) -> &Top) -> Top {
    let tops: Vec<_> = parts.iter().map(|part| (of(part), part.most())).collect();
    let by_packets = tops.last().is_some_and(|(top, _)| top.by == "packets");
    let order = Order { by_packets, is_masked: addresses(parts).is_some() };
    let mut joined = Top {
        by: if by_packets { "packets" } else { "bytes" }.to_owned(),
        sampling: tops.iter().map(|(top, _)| top.sampling).max().unwrap_or(1),
        confidence: all_hold(tops.iter().map(|(top, _)| top.confidence)),
        ..Top::default()
    };
    macro_rules! join_each {
        ($($list:ident $rows:ident $row:ident $noun:literal: $($field:ident),* $(+ $more:ident)?;)*) => {
            $((joined.$rows, joined.unlisted.$rows) = list(&tops, order, |top| (&top.$rows, top.unlisted.$rows));)*
        };
    }
    standard_lists!(join_each);
    joined
}

/// A list over all windows, and the most that each other key has.
fn list<E: Entry>(
    tops: &[(&Top, Tally)],
    order: Order,
    entries: fn(&Top) -> (&Vec<E>, Option<u64>),
) -> (Vec<E>, Option<u64>) {
    let windows = tops.iter().map(|(top, most)| {
        let (rows, unlisted) = entries(top);
        // A packet that is in two rows leaves as much for a third one.
        let list = if E::IS_OF_BOTH_SIDES { Listed { rows, others: *most } } else { Listed::of(rows, *most) };
        list.at_most(unlisted, order)
    });
    let windows: Vec<_> = windows.collect();
    (hosts::added_up(together(&windows, order.by_packets), &windows), unlisted(&windows, order))
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
