//! The union of several windows: what their reports say about all of them, with bounds.
//!
//! A key that a list does not name had at most the window's total minus the lower bounds of the named keys, or all of
//! the total if a packet counts for two keys. So bounds are narrow for keys that every window lists, and wide for keys
//! that few list. A bound holds if those of all windows do: the probabilities that they do not are added up (Boole's
//! inequality).

use std::collections::HashMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use weir_common::ledger::Loss;

use super::{
    Bounds, Distinct, Estimate, Interface, Ledger, NewFlows, Observer, Report, Row, Sums, Tally, TcpBounds, Top,
    TopPrefix, Totals, TotalsBounds, Unique, View, ViewTable, Window,
};

/// Maximum number of reports that are kept for a union.
pub const REPORTS_KEPT: usize = 5;
/// The schema that [`Union`] serialises to.
pub const UNION_SCHEMA: &str = "weir.union/1";

/// What one observer measured in several consecutive windows. Its parts have the structure and names of a report's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Union {
    /// The schema's name and version.
    pub schema: String,
    /// The ids of the reports, the oldest first.
    pub reports: Vec<String>,
    /// From the start of the first window to the end of the last; `seconds` is the sum of all windows.
    pub window: Window,
    /// The observer, as in the last report.
    pub observer: Observer,
    /// Each interface with its exact account. What cannot be summed is as in its last report.
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
    /// The other views and the lists of prefixes, by name: their counts cannot be summed, or they are not in every
    /// report.
    pub left_out: Vec<String>,
}

impl Union {
    /// The union of one observer's reports, the oldest first; `None` if there are none.
    pub fn of(reports: &[Report]) -> Option<Self> {
        let (first, last) = (reports.first()?, reports.last()?);
        let windows = || reports.iter().map(|report| report.window);
        let views: Vec<View> = last.views.iter().filter_map(|view| self::view(view, reports)).collect();
        let is_left_out = |name: &str| views.iter().all(|view| view.name != name);
        let views_left_out = last.views.iter().map(|view| view.name.clone()).filter(|name| is_left_out(name));
        let left_out = views_left_out.chain(prefixes_left_out(reports)).collect();
        Some(Self {
            schema: UNION_SCHEMA.to_owned(),
            reports: reports.iter().map(|report| report.id.clone()).collect(),
            window: Window {
                start: first.window.start,
                end: last.window.end,
                seconds: windows().map(|window| window.seconds).sum(),
                clock_step_seconds: windows().filter_map(|window| window.clock_step_seconds).reduce(|a, b| a + b),
                late_packets: None,
                untimed_packets: None,
            },
            observer: last.observer.clone(),
            interfaces: interfaces(reports),
            totals: totals(reports),
            unique: Unique {
                src_ip: distinct(reports.iter().map(|report| report.unique.src_ip)),
                dst_ip: distinct(reports.iter().map(|report| report.unique.dst_ip)),
                flows: distinct(reports.iter().map(|report| report.unique.flows)),
            },
            new_flows: new_flows(reports),
            top: top(reports, |report| &report.top),
            top_by_packets: top(reports, |report| &report.top_by_packets),
            views,
            left_out,
        })
    }
}

/// Which lists of prefixes the reports have. What a prefix has beyond its members depends on which members are listed,
/// and that differs from window to window.
fn prefixes_left_out(reports: &[Report]) -> impl Iterator<Item = String> {
    let has = |of: fn(&Top) -> &[TopPrefix]| reports.iter().any(|report| !of(&report.top).is_empty());
    let sources = has(|top| &top.source_prefixes).then(|| "source_prefixes".to_owned());
    let destinations = has(|top| &top.destination_prefixes).then(|| "destination_prefixes".to_owned());
    sources.into_iter().chain(destinations)
}

/// The probability that the bounds of all windows hold.
fn all_hold(confidences: impl Iterator<Item = f64>) -> f64 {
    (1.0 - confidences.map(|confidence| 1.0 - confidence).sum::<f64>()).max(0.0)
}

fn add(sum: &mut Tally, more: Tally) {
    *sum = Tally { packets: sum.packets.saturating_add(more.packets), bytes: sum.bytes.saturating_add(more.bytes) };
}

fn totals(reports: &[Report]) -> Totals {
    let sum = |of: fn(&Totals) -> u64| reports.iter().fold(0_u64, |sum, report| sum.saturating_add(of(&report.totals)));
    Totals {
        packets: sum(|totals| totals.packets),
        bytes: sum(|totals| totals.bytes),
        ipv4_packets: sum(|totals| totals.ipv4_packets),
        ipv6_packets: sum(|totals| totals.ipv6_packets),
        tcp_packets: sum(|totals| totals.tcp_packets),
        udp_packets: sum(|totals| totals.udp_packets),
        icmp_packets: sum(|totals| totals.icmp_packets),
        other_packets: sum(|totals| totals.other_packets),
        bounds: totals_bounds(reports),
    }
}

fn totals_bounds(reports: &[Report]) -> Option<TotalsBounds> {
    let sum = |count: fn(&Totals) -> u64, bounds: fn(&TotalsBounds) -> Bounds| {
        let mut sum = Bounds { lower: 0, upper: 0 };
        for Report { totals, .. } in reports {
            let exact = Bounds { lower: count(totals), upper: count(totals) };
            let Bounds { lower, upper } = totals.bounds.as_ref().map_or(exact, bounds);
            sum = Bounds { lower: sum.lower.saturating_add(lower), upper: sum.upper.saturating_add(upper) };
        }
        sum
    };
    let confidences = || reports.iter().filter_map(|report| Some(report.totals.bounds?.confidence));
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

fn distinct(windows: impl Iterator<Item = Distinct> + Clone) -> Distinct {
    Distinct {
        value: windows.clone().map(|window| window.value).max().unwrap_or(0),
        lower: windows.clone().map(|window| window.lower).max().unwrap_or(0),
        upper: windows.clone().fold(0, |sum, window| sum.saturating_add(window.upper)),
        confidence: all_hold(windows.map(|window| window.confidence)),
    }
}

fn new_flows(reports: &[Report]) -> NewFlows {
    let windows = || reports.iter().map(|report| report.new_flows);
    NewFlows {
        value: windows().fold(0, |sum, window| sum.saturating_add(window.value)),
        lower: windows().fold(0, |sum, window| sum.saturating_add(window.lower)),
        upper: windows().fold(0, |sum, window| sum.saturating_add(window.upper)),
        confidence: all_hold(windows().map(|window| window.confidence)),
        false_positive_rate: windows().map(|window| window.false_positive_rate).fold(0.0, f64::max),
        fill: windows().next_back().map_or(0.0, |window| window.fill),
    }
}

/// Each interface and direction, in the order of the first appearance.
fn interfaces(reports: &[Report]) -> Vec<Interface> {
    let mut all: Vec<Vec<&Interface>> = Vec::new();
    for interface in reports.iter().flat_map(|report| &report.interfaces) {
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
    Some(sum)
}

/// What weir itself has seen, without what it missed while it was blind.
fn seen_itself(Ledger { seen, lost, .. }: &Ledger) -> Tally {
    let missed = lost.get(Loss::Blind.name()).copied().unwrap_or_default();
    Tally { packets: seen.packets.saturating_sub(missed.packets), bytes: seen.bytes.saturating_sub(missed.bytes) }
}

/// The coverage of all windows that state theirs, weighted by what the interface counted.
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

/// A list in one window.
struct Listed {
    rows: Vec<Row>,
    /// The upper bound of a key that is not among the rows.
    others: Tally,
}

impl Listed {
    /// A list of these rows out of a total; each packet counts for one key.
    fn of(rows: Vec<Row>, total: Tally) -> Self {
        let mut others = total;
        for row in &rows {
            let lower = |estimate: Option<Estimate>| estimate.map_or(0, |estimate| estimate.lower);
            others.packets = others.packets.saturating_sub(lower(row.packets));
            others.bytes = others.bytes.saturating_sub(lower(row.bytes));
        }
        Self { rows, others }
    }
}

/// The rows of all windows, in descending order of their lower bounds.
fn together(windows: &[Listed], by_packets: bool) -> Vec<Row> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut parts: Vec<Vec<Option<&Row>>> = Vec::new();
    for (nth, window) in windows.iter().enumerate() {
        for row in &window.rows {
            let key = Value::from(row.key.clone()).to_string();
            let place = *places.entry(key).or_insert_with(|| {
                parts.push(vec![None; windows.len()]);
                parts.len() - 1
            });
            parts[place][nth] = Some(row);
        }
    }
    let mut rows: Vec<Row> = parts.iter().filter_map(|parts| sum_of(parts, windows)).collect();
    let least = |estimate: Option<Estimate>| std::cmp::Reverse(estimate.map_or(0, |estimate| estimate.lower));
    rows.sort_by_key(|row| least(if by_packets { row.packets } else { row.bytes }));
    for (rank, row) in (1..).zip(&mut rows) {
        row.rank = Some(rank);
    }
    rows
}

/// The sum of a key's rows in the windows that list it, with bounds for the others.
fn sum_of(parts: &[Option<&Row>], windows: &[Listed]) -> Option<Row> {
    let sum = |of: fn(&Row) -> Option<Estimate>, others: fn(&Tally) -> u64| {
        let mut sum = Estimate { value: 0, lower: 0, upper: 0, sampled: None };
        for (part, window) in parts.iter().zip(windows) {
            let Estimate { value, lower, upper, sampled: _ } = match part {
                Some(row) => of(row)?,
                None => Estimate { value: 0, lower: 0, upper: others(&window.others), sampled: None },
            };
            sum.value = sum.value.saturating_add(value);
            sum.lower = sum.lower.saturating_add(lower);
            sum.upper = sum.upper.saturating_add(upper);
        }
        Some(sum)
    };
    Some(Row {
        key: parts.iter().flatten().next()?.key.clone(),
        packets: Some(sum(|row| row.packets, |others| others.packets)?),
        bytes: Some(sum(|row| row.bytes, |others| others.bytes)?),
        ..Row::default()
    })
}

fn top(reports: &[Report], of: impl Fn(&Report) -> &Top) -> Top {
    let tops: Vec<_> = reports.iter().map(|report| (of(report), &report.totals)).collect();
    let by_packets = tops.last().is_some_and(|(top, _)| top.by == "packets");
    Top {
        by: if by_packets { "packets" } else { "bytes" }.to_owned(),
        sampling: tops.iter().map(|(top, _)| top.sampling).max().unwrap_or(1),
        confidence: all_hold(tops.iter().map(|(top, _)| top.confidence)),
        flows: list(&tops, by_packets, |top| &top.flows),
        sources: list(&tops, by_packets, |top| &top.sources),
        destinations: list(&tops, by_packets, |top| &top.destinations),
        pairs: list(&tops, by_packets, |top| &top.pairs),
        services: list(&tops, by_packets, |top| &top.services),
        source_prefixes: Vec::new(),
        destination_prefixes: Vec::new(),
    }
}

fn list<E: Serialize + DeserializeOwned>(
    tops: &[(&Top, &Totals)],
    by_packets: bool,
    entries: fn(&Top) -> &Vec<E>,
) -> Vec<E> {
    let listed = |(top, totals): &(&Top, &Totals)| {
        let rows = entries(top).iter().filter_map(converted::<_, Row>).collect();
        Listed::of(rows, Tally { packets: totals.packets, bytes: totals.bytes })
    };
    let windows: Vec<_> = tops.iter().map(listed).collect();
    together(&windows, by_packets).iter().filter_map(converted).collect()
}

/// Converts an entry to a row and back: the same fields in another type.
fn converted<A: Serialize, B: DeserializeOwned>(entry: &A) -> Option<B> {
    serde_json::from_value(serde_json::to_value(entry).ok()?).ok()
}

/// A view over all windows; `None` if not every window has it, or if it cannot be summed.
fn view(last: &View, reports: &[Report]) -> Option<View> {
    let by_packets = match last.measure.as_str()? {
        "bytes" => false,
        "packets" => true,
        _ => return None,
    };
    let same = |view: &&View| view.name == last.name && view.by == last.by && view.measure == last.measure;
    let views: Vec<&View> = reports.iter().map(|report| report.views.iter().find(same)).collect::<Option<_>>()?;
    // Both addresses of a packet are hosts, so it counts for two keys.
    let counts_twice = last.by.iter().any(|field| field == "host" || field.starts_with("host/"));
    let listed = |rows: &[Row], total: &Sums| {
        let total = Tally { packets: total.packets.upper, bytes: total.bytes.upper };
        let rows = rows.to_vec();
        if counts_twice { Listed { rows, others: total } } else { Listed::of(rows, total) }
    };
    let rows = match last.rows {
        Some(_) => {
            let windows: Option<Vec<_>> =
                views.iter().map(|view| Some(listed(view.rows.as_ref()?, view.total.as_ref()?))).collect();
            Some(together(&windows?, by_packets))
        }
        None => None,
    };
    let tables = match last.tables {
        Some(_) => Some(tables(&views, reports, by_packets, listed)?),
        None => None,
    };
    let totals = || views.iter().map(|view| view.total);
    Some(View {
        confidence: all_hold(views.iter().map(|view| view.confidence)),
        total: totals().try_fold(None, |sum, total| Some(Some(sums(sum, total?)))).flatten(),
        entropy: None,
        rows,
        tables,
        ..last.clone()
    })
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
fn tables(
    views: &[&View],
    reports: &[Report],
    by_packets: bool,
    listed: impl Fn(&[Row], &Sums) -> Listed,
) -> Option<Vec<ViewTable>> {
    let mut all: Vec<ViewTable> = Vec::new();
    for table in views.iter().flat_map(|view| view.tables.iter().flatten()) {
        if !all.iter().any(|known| known.interface == table.interface && known.direction == table.direction) {
            all.push(ViewTable { rows: Vec::new(), total: None, ..table.clone() });
        }
    }
    for one in &mut all {
        let mut windows = Vec::new();
        let mut total = None;
        for (view, report) in views.iter().zip(reports) {
            let same = |table: &&ViewTable| table.interface == one.interface && table.direction == one.direction;
            match view.tables.iter().flatten().find(same) {
                Some(table) => {
                    windows.push(listed(&table.rows, table.total.as_ref()?));
                    total = Some(sums(total, table.total?));
                }
                // The window has no table, because nothing that was measured matched.
                None => {
                    let others = unmeasured(report, one);
                    total = Some(sums(total, at_most(others)));
                    windows.push(Listed { rows: Vec::new(), others });
                }
            }
        }
        one.rows = together(&windows, by_packets);
        one.total = total;
    }
    Some(all)
}

/// What was sampled out or lost on a table's interface in a window: how much of it would have matched is unknown.
fn unmeasured(report: &Report, table: &ViewTable) -> Tally {
    let mut all = Tally::default();
    let is_same = |interface: &&Interface| interface.name == table.interface && interface.direction == table.direction;
    for Ledger { sampled_out, lost, .. } in report.interfaces.iter().filter(is_same).map(|of| &of.ledger) {
        for tally in std::iter::once(sampled_out).chain(lost.values()) {
            add(&mut all, *tally);
        }
        // The sizes of these packets are assumed. As far as is known, none exceeded the largest packet.
        let mut dropped = Tally::default();
        for reason in Loss::UNREAD {
            add(&mut dropped, lost.get(reason.name()).copied().unwrap_or_default());
        }
        let largest = dropped.packets.saturating_mul(report.histograms.packet_size_bytes.max);
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
