//! The union of several windows: sums and bounds over all of them, computed from their reports.
//!
//! A key that a list does not name had at most the window's total minus the lower bounds of the named keys, or the
//! whole total if a packet counts for two keys. So bounds are narrow for keys that every window lists, and wide for
//! keys that few windows list. A bound of the union holds if the bounds of all windows hold. The probabilities of
//! failure are added up (Boole's inequality).

mod list;
mod of_key;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_common::ledger::Loss;
use weir_config::Addresses;

use self::list::{Entry, Listed, Order, cut, together, unlisted};
pub use self::of_key::{KeySums, ListKey};
use super::{
    Bounds, Distinct, Estimate, Interface, Ledger, Length, NewFlows, Observer, Report, Row, Sums, Tally, TcpBounds,
    Top, TopUnlisted, Totals, TotalsBounds, Unique, UnreadLinkType, View, ViewTable, Window, instant, is_measured,
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
    /// From the start of the first window to the end of the last; `seconds` is the sum of all windows.
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
    /// Distinct addresses and flows: at least as many as in any one window, and at most the sum.
    pub unique: Unique,
    /// Flows that were not seen before.
    pub new_flows: NewFlows,
    /// The largest talkers by bytes, without prefixes.
    pub top: Top,
    /// The largest talkers by packets, without prefixes.
    pub top_by_packets: Top,
    /// Views of bytes and packets.
    pub views: Vec<View>,
    /// The names of the other views and of the lists of prefixes. Their counts cannot be summed, or they are not in
    /// every report.
    pub left_out: Vec<String>,
    /// The largest packet, in bytes on the wire.
    #[serde(default)]
    pub largest_packet_bytes: u64,
    /// Requested times without windows. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Gap>,
}

/// A time without windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Its start, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// Its end.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
}

impl Union {
    /// The union of one observer's reports, the oldest first; `None` if there are none.
    pub fn of(reports: &[Report]) -> Option<Self> {
        Self::join(&reports.iter().map(Self::one).collect::<Vec<_>>())
    }

    /// The union of a single window.
    pub fn one(report: &Report) -> Self {
        let (views, others): (Vec<_>, Vec<_>) = report.views.iter().cloned().partition(|view| order(view).is_some());
        let Top { source_prefixes, destination_prefixes, .. } = &report.top;
        let prefixes = [("source_prefixes", source_prefixes), ("destination_prefixes", destination_prefixes)];
        let prefixes = prefixes.into_iter().filter(|(_, rows)| !rows.is_empty()).map(|(name, _)| name.to_owned());
        // The traffic of a prefix without its listed members depends on which members are listed, and that differs
        // between windows.
        let without_prefixes =
            |top: &Top| Top { source_prefixes: Vec::new(), destination_prefixes: Vec::new(), ..top.clone() };
        Self {
            schema: UNION_SCHEMA.to_owned(),
            reports: vec![report.id.clone()],
            windows: 1,
            window: Window { late_packets: None, untimed_packets: None, strays: None, ..report.window },
            observer: report.observer.clone(),
            addresses: report.addresses.clone(),
            interfaces: report.interfaces.iter().map(|of| of_window(of, report.window.seconds)).collect(),
            totals: report.totals,
            unique: report.unique,
            new_flows: report.new_flows,
            top: without_prefixes(&report.top),
            top_by_packets: without_prefixes(&report.top_by_packets),
            views,
            left_out: others.into_iter().map(|view| view.name).chain(prefixes).collect(),
            largest_packet_bytes: report.histograms.packet_size_bytes.max,
            missing: Vec::new(),
        }
    }

    /// The union of several unions, the oldest first; `None` if there are none. If a part has lost rows, the bounds of
    /// their keys become wider, but stay correct.
    pub fn join(parts: &[Self]) -> Option<Self> {
        let (first, last) = (parts.first()?, parts.last()?);
        let windows = || parts.iter().map(|part| part.window);
        let views: Vec<View> = last.views.iter().filter_map(|view| self::view(view, parts)).collect();
        let is_left_out = |name: &String| views.iter().all(|view| view.name != *name);
        let mut left_out: Vec<_> = last.views.iter().map(|view| view.name.clone()).filter(is_left_out).collect();
        for name in parts.iter().rev().flat_map(|part| &part.left_out) {
            if is_left_out(name) && !left_out.contains(name) {
                left_out.push(name.clone());
            }
        }
        Some(Self {
            schema: UNION_SCHEMA.to_owned(),
            reports: ids(parts),
            windows: parts.iter().map(|part| part.windows).sum(),
            window: Window {
                start: first.window.start,
                end: last.window.end,
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
            views,
            left_out,
            largest_packet_bytes: parts.iter().map(|part| part.largest_packet_bytes).max().unwrap_or(0),
            missing: Vec::new(),
        })
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
            let Top { flows, sources, destinations, pairs, services, unlisted, .. } = top;
            cut(flows, &mut unlisted.flows, rows, by_packets);
            cut(sources, &mut unlisted.sources, rows, by_packets);
            cut(destinations, &mut unlisted.destinations, rows, by_packets);
            cut(pairs, &mut unlisted.pairs, rows, by_packets);
            cut(services, &mut unlisted.services, rows, by_packets);
        }
        for view in &mut self.views {
            let by_packets = order(view).unwrap_or(false);
            if let Some(list) = &mut view.rows {
                cut(list, &mut view.unlisted, rows, by_packets);
            }
            if let Some(tables) = &mut view.tables {
                tables.truncate(interfaces);
                tables.iter_mut().for_each(|table| table.rows.truncate(rows));
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
    masked.max_by_key(|name| Addresses::from_name(name).unwrap_or(Addresses::None)).cloned()
}

/// Whether the rows of a view are ordered by packets; `None` if its counts cannot be summed.
fn order(view: &View) -> Option<bool> {
    match view.measure.as_str()? {
        "bytes" => Some(false),
        "packets" => Some(true),
        _ => None,
    }
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
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            value: self.value.max(other.value),
            lower: self.lower.max(other.lower),
            upper: self.upper.saturating_add(other.upper),
            confidence: all_hold([self.confidence, other.confidence].into_iter()),
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

/// An interface of a report, for a union: whether it was measured must not get lost among other windows.
fn of_window(interface: &Interface, length: Length) -> Interface {
    let unmeasured_seconds = (!is_measured(&interface.mode)).then(|| length.seconds().unwrap_or_default());
    Interface { unmeasured_seconds, ..interface.clone() }
}

/// Each interface and direction, in the order of the first appearance.
fn interfaces(parts: &[Union]) -> Vec<Interface> {
    let mut all: Vec<Vec<&Interface>> = Vec::new();
    for interface in parts.iter().flat_map(|part| &part.interfaces) {
        let is_same = |known: &Vec<&Interface>| {
            known.iter().all(|known| known.name == interface.name && known.direction == interface.direction)
        };
        match all.iter_mut().find(|known| is_same(known)) {
            Some(known) => known.push(interface),
            None => all.push(vec![interface]),
        }
    }
    all.iter().filter_map(|parts| interface(parts)).collect()
}

fn interface(parts: &[&Interface]) -> Option<Interface> {
    let (last, earlier) = parts.split_last()?;
    let mut sum = (*last).clone();
    for part in earlier {
        add(&mut sum.repeated, part.repeated);
        add_ledger(&mut sum.ledger, &part.ledger);
        sum.sampling = sum.sampling.max(part.sampling);
        for (size, packets) in &part.packet_sizes {
            match sum.packet_sizes.iter_mut().find(|(known, _)| known == size) {
                Some((_, known)) => *known = known.saturating_add(*packets),
                None => sum.packet_sizes.push((*size, *packets)),
            }
        }
    }
    sum.earlier_name = parts.iter().find_map(|part| part.earlier_name.clone());
    sum.unread_link_types = unread_link_types(parts);
    sum.tcp = tcp(parts);
    sum.kept = sum.ledger.kept();
    let packets = |ledger: &Ledger| seen_itself(ledger).packets;
    let bytes = |ledger: &Ledger| seen_itself(ledger).bytes;
    sum.coverage = together_covered(parts, packets, |part| part.coverage);
    sum.coverage_lower = together_covered(parts, packets, |part| part.coverage_lower);
    sum.coverage_upper = together_covered(parts, packets, |part| part.coverage_upper);
    sum.coverage_bytes = together_covered(parts, bytes, |part| part.coverage_bytes);
    sum.coverage_bytes_lower = together_covered(parts, bytes, |part| part.coverage_bytes_lower);
    sum.coverage_bytes_upper = together_covered(parts, bytes, |part| part.coverage_bytes_upper);
    sum.blind_seconds = parts.iter().filter_map(|part| part.blind_seconds).reduce(|one, other| one + other);
    sum.unmeasured_seconds = parts.iter().filter_map(|part| part.unmeasured_seconds).reduce(|one, other| one + other);
    Some(sum)
}

/// The link types that were not read in any of the windows.
fn unread_link_types(parts: &[&Interface]) -> Vec<UnreadLinkType> {
    let mut all: Vec<UnreadLinkType> = Vec::new();
    for next in parts.iter().flat_map(|part| &part.unread_link_types) {
        match all.iter_mut().find(|known| known.link_type == next.link_type) {
            Some(known) => {
                known.packets = known.packets.saturating_add(next.packets);
                known.bytes = known.bytes.saturating_add(next.bytes);
            }
            None => all.push(next.clone()),
        }
    }
    all
}

/// The packets that weir itself saw, without those that it missed while it was blind.
fn seen_itself(Ledger { seen, lost, .. }: &Ledger) -> Tally {
    let missed = lost.get(Loss::Blind.name()).copied().unwrap_or_default();
    Tally { packets: seen.packets.saturating_sub(missed.packets), bytes: seen.bytes.saturating_sub(missed.bytes) }
}

/// The coverage of all windows that have one, weighted by the interface's own count.
fn together_covered(
    parts: &[&Interface],
    seen: impl Fn(&Ledger) -> u64,
    coverage: impl Fn(&Interface) -> Option<f64>,
) -> Option<f64> {
    let (mut covered, mut own) = (0.0, 0.0);
    for part in parts {
        let Some(value) = part.coverage else { continue };
        let missed = part.ledger.seen.packets.saturating_sub(seen_itself(&part.ledger).packets);
        let counted = if value > 0.0 { seen(&part.ledger) as f64 / value } else { missed as f64 };
        covered += coverage(part)? * counted;
        own += counted;
    }
    (own > 0.0).then(|| covered / own)
}

fn add_ledger(sum: &mut Ledger, more: &Ledger) {
    let Ledger { seen, attributed, sampled_out, skipped, lost, uncertain } = more;
    add(&mut sum.seen, *seen);
    add(&mut sum.attributed, *attributed);
    add(&mut sum.sampled_out, *sampled_out);
    for (sums, more) in [(&mut sum.skipped, skipped), (&mut sum.lost, lost)] {
        for (reason, tally) in more {
            add(sums.entry(reason.clone()).or_default(), *tally);
        }
    }
    match (&mut sum.uncertain, uncertain) {
        (Some(sum), Some(more)) => sum.add(*more),
        (none, more) => *none = none.or(*more),
    }
}

fn tcp(parts: &[&Interface]) -> super::TcpPackets {
    let sum = |of: &dyn Fn(&Interface) -> u64| parts.iter().fold(0_u64, |sum, part| sum.saturating_add(of(part)));
    let bounded = |count: fn(&super::TcpPackets) -> u64, bounds: fn(&TcpBounds) -> Bounds| Bounds {
        lower: sum(&|part| part.tcp.bounds.map_or(count(&part.tcp), |known| bounds(&known).lower)),
        upper: sum(&|part| part.tcp.bounds.map_or(count(&part.tcp), |known| bounds(&known).upper)),
    };
    let confidences = || parts.iter().filter_map(|part| Some(part.tcp.bounds?.confidence));
    super::TcpPackets {
        syn: sum(&|part| part.tcp.syn),
        syn_ack: sum(&|part| part.tcp.syn_ack),
        rst: sum(&|part| part.tcp.rst),
        fin: sum(&|part| part.tcp.fin),
        bounds: confidences().next().is_some().then(|| TcpBounds {
            confidence: all_hold(confidences()),
            syn: bounded(|tcp| tcp.syn, |bounds| bounds.syn),
            syn_ack: bounded(|tcp| tcp.syn_ack, |bounds| bounds.syn_ack),
            rst: bounded(|tcp| tcp.rst, |bounds| bounds.rst),
            fin: bounded(|tcp| tcp.fin, |bounds| bounds.fin),
        }),
    }
}

fn top(parts: &[Union], of: impl Fn(&Union) -> &Top) -> Top {
    let tops: Vec<_> = parts.iter().map(|part| (of(part), &part.totals)).collect();
    let by_packets = tops.last().is_some_and(|(top, _)| top.by == "packets");
    let order = Order { by_packets, is_masked: addresses(parts).is_some() };
    let (flows, of_flows) = list(&tops, order, |top| (&top.flows, top.unlisted.flows));
    let (sources, of_sources) = list(&tops, order, |top| (&top.sources, top.unlisted.sources));
    let (destinations, of_destinations) = list(&tops, order, |top| (&top.destinations, top.unlisted.destinations));
    let (pairs, of_pairs) = list(&tops, order, |top| (&top.pairs, top.unlisted.pairs));
    let (services, of_services) = list(&tops, order, |top| (&top.services, top.unlisted.services));
    Top {
        by: if by_packets { "packets" } else { "bytes" }.to_owned(),
        sampling: tops.iter().map(|(top, _)| top.sampling).max().unwrap_or(1),
        confidence: all_hold(tops.iter().map(|(top, _)| top.confidence)),
        flows,
        sources,
        destinations,
        pairs,
        services,
        source_prefixes: Vec::new(),
        destination_prefixes: Vec::new(),
        unlisted: TopUnlisted {
            flows: of_flows,
            sources: of_sources,
            destinations: of_destinations,
            pairs: of_pairs,
            services: of_services,
        },
    }
}

/// A list over all windows, and the most that each other key has.
fn list<E: Entry>(
    tops: &[(&Top, &Totals)],
    order: Order,
    entries: fn(&Top) -> (&Vec<E>, Option<u64>),
) -> (Vec<E>, Option<u64>) {
    let windows = tops.iter().map(|(top, totals)| {
        let (rows, unlisted) = entries(top);
        Listed::of(rows, Tally { packets: totals.packets, bytes: totals.bytes }).at_most(unlisted, order)
    });
    let windows: Vec<_> = windows.collect();
    (together(&windows, order.by_packets), unlisted(&windows, order))
}

/// A view over all windows; `None` if not every window has it, or if it cannot be summed.
fn view(last: &View, parts: &[Union]) -> Option<View> {
    let by_packets = order(last)?;
    let same = |view: &&View| view.name == last.name && view.by == last.by && view.measure == last.measure;
    let views: Vec<&View> = parts.iter().map(|part| part.views.iter().find(same)).collect::<Option<_>>()?;
    // Both addresses of a packet are hosts, so a packet counts for two keys.
    let counts_twice = last.by.iter().any(|field| field == "host" || field.starts_with("host/"));
    let of_order = Order { by_packets, is_masked: addresses(parts).is_some() };
    let (rows, unlisted) = match last.rows {
        Some(_) => {
            let windows = views.iter().map(|view| {
                let list = listed(view.rows.as_ref()?, view.total.as_ref()?, counts_twice);
                Some(list.at_most(view.unlisted, of_order))
            });
            let windows: Vec<_> = windows.collect::<Option<_>>()?;
            (Some(together(&windows, by_packets)), unlisted(&windows, of_order))
        }
        None => (None, None),
    };
    let tables = match last.tables {
        Some(_) => Some(tables(&views, parts, by_packets, counts_twice)?),
        None => None,
    };
    let totals = || views.iter().map(|view| view.total);
    Some(View {
        confidence: all_hold(views.iter().map(|view| view.confidence)),
        total: totals().try_fold(None, |sum, total| Some(Some(sums(sum, total?)))).flatten(),
        entropy: None,
        rows,
        unlisted,
        tables,
        ..last.clone()
    })
}

fn listed<'r>(rows: &'r [Row], total: &Sums, counts_twice: bool) -> Listed<'r, Row> {
    let total = Tally { packets: total.packets.upper, bytes: total.bytes.upper };
    if counts_twice { Listed { rows, others: total } } else { Listed::of(rows, total) }
}

fn sums(sum: Option<Sums>, more: Sums) -> Sums {
    let Some(sum) = sum else { return more };
    let add = |a: Estimate, b: Estimate| Estimate {
        value: a.value.saturating_add(b.value),
        lower: a.lower.saturating_add(b.lower),
        upper: a.upper.saturating_add(b.upper),
        sampled: None,
    };
    Sums { packets: add(sum.packets, more.packets), bytes: add(sum.bytes, more.bytes) }
}

/// The tables of each interface and direction.
fn tables(views: &[&View], parts: &[Union], by_packets: bool, counts_twice: bool) -> Option<Vec<ViewTable>> {
    let mut all: Vec<ViewTable> = Vec::new();
    for table in views.iter().flat_map(|view| view.tables.iter().flatten()) {
        if !all.iter().any(|known| known.interface == table.interface && known.direction == table.direction) {
            all.push(ViewTable { rows: Vec::new(), total: None, ..table.clone() });
        }
    }
    for one in &mut all {
        let mut windows = Vec::new();
        let mut total = None;
        for (view, part) in views.iter().zip(parts) {
            let same = |table: &&ViewTable| table.interface == one.interface && table.direction == one.direction;
            match view.tables.iter().flatten().find(same) {
                Some(table) => {
                    windows.push(listed(&table.rows, table.total.as_ref()?, counts_twice));
                    total = Some(sums(total, table.total?));
                }
                // The window has no table, because no measured packet matched.
                None => {
                    let others = unmeasured(part, one);
                    total = Some(sums(total, at_most(others)));
                    windows.push(Listed { rows: &[], others });
                }
            }
        }
        one.rows = together(&windows, by_packets);
        one.total = total;
    }
    Some(all)
}

/// The packets that were sampled out or lost on a table's interface in a window. How many of them would have matched is
/// unknown.
fn unmeasured(part: &Union, table: &ViewTable) -> Tally {
    let mut all = Tally::default();
    let is_same = |interface: &&Interface| interface.name == table.interface && interface.direction == table.direction;
    for Ledger { sampled_out, lost, .. } in part.interfaces.iter().filter(is_same).map(|of| &of.ledger) {
        for tally in std::iter::once(sampled_out).chain(lost.values()) {
            add(&mut all, *tally);
        }
        // The sizes of these packets are unknown. Assume that none exceeded the largest packet.
        let mut dropped = Tally::default();
        for reason in Loss::UNREAD {
            add(&mut dropped, lost.get(reason.name()).copied().unwrap_or_default());
        }
        let largest = dropped.packets.saturating_mul(part.largest_packet_bytes);
        all.bytes = all.bytes.saturating_add(largest.saturating_sub(dropped.bytes));
    }
    all
}

/// An unknown amount up to this bound.
fn at_most(most: Tally) -> Sums {
    let up_to = |upper| Estimate { value: 0, lower: 0, upper, sampled: None };
    Sums { packets: up_to(most.packets), bytes: up_to(most.bytes) }
}

#[cfg(test)]
mod tests;
