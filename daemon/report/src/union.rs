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
mod tests {
    use super::{super::Uncertain, *};

    fn golden() -> Report {
        serde_json::from_str(include_str!("../tests/golden/report.json")).unwrap()
    }

    fn exact(value: u64) -> Estimate {
        Estimate { value, lower: value, upper: value, sampled: None }
    }

    fn row(key: u64, packets: u64) -> Row {
        Row {
            key: [("port".to_owned(), Value::from(key))].into_iter().collect(),
            packets: Some(exact(packets)),
            bytes: Some(exact(packets * 100)),
            ..Row::default()
        }
    }

    #[test]
    fn no_window_is_nothing_and_one_is_itself() {
        assert_eq!(Union::of(&[]), None);
        let mut report = golden();
        for top in [&mut report.top, &mut report.top_by_packets] {
            (top.source_prefixes, top.destination_prefixes) = (Vec::new(), Vec::new());
        }
        let one = Union::of(&[report.clone()]).unwrap();
        assert_eq!((&one.reports[..], one.window.seconds), (&[report.id.clone()][..], report.window.seconds));
        assert_eq!((&one.totals, &one.unique, &one.new_flows), (&report.totals, &report.unique, &report.new_flows));
        for (interface, known) in one.interfaces.iter().zip(&report.interfaces) {
            assert_eq!((&interface.ledger, &interface.tcp), (&known.ledger, &known.tcp));
            assert!(interface.ledger.balances());
        }
        let bounds = |top: &Top| {
            top.flows.iter().map(|flow| (flow.src_ip, flow.bytes.lower, flow.bytes.upper)).collect::<Vec<_>>()
        };
        assert_eq!(bounds(&one.top), bounds(&report.top));
    }

    #[test]
    fn sums_are_exact_and_ledgers_balance() {
        let (mut first, mut last) = (golden(), golden());
        last.id = "7f3c9a52/b41d/43".to_owned();
        let uncertain = |times: u64| Uncertain {
            packets: Bounds { lower: 3 * times, upper: 4 * times },
            bytes: Bounds { lower: 300 * times, upper: 410 * times },
        };
        for interface in first.interfaces.iter_mut().chain(&mut last.interfaces) {
            interface.ledger.uncertain = Some(uncertain(1));
        }
        last.interfaces.remove(1);
        let two = Union::of(&[first.clone(), last]).unwrap();
        assert_eq!(two.reports.len(), 2);
        assert_eq!(two.totals.packets, 2 * first.totals.packets);
        assert_eq!(two.interfaces.len(), 2);
        assert_eq!([0, 1].map(|nth| two.interfaces[nth].ledger.uncertain), [2, 1].map(|times| Some(uncertain(times))));
        assert!(two.interfaces.iter().all(|interface| interface.ledger.balances()));
        let seen = |interfaces: &[Interface], nth: usize| interfaces[nth].ledger.seen.packets;
        assert_eq!(seen(&two.interfaces, 0), 2 * seen(&first.interfaces, 0));
        assert_eq!(seen(&two.interfaces, 1), seen(&first.interfaces, 1), "it was there once");
        let (one, both) = (first.unique.flows, two.unique.flows);
        assert_eq!((both.lower, both.upper), (one.lower, 2 * one.upper));
        assert!((both.confidence - 0.9).abs() < 1e-9, "twice 0.95: {}", both.confidence);
    }

    #[test]
    fn what_one_window_does_not_list_had_at_most_what_is_left() {
        let total = Tally { packets: 100, bytes: 10_000 };
        let windows =
            [Listed::of(vec![row(1, 60), row(2, 30)], total), Listed::of(vec![row(1, 50), row(3, 40)], total)];
        let rows = together(&windows, true);
        let packets = |nth: usize| rows[nth].packets.unwrap();
        assert_eq!(rows.len(), 3, "each key of any list");
        assert_eq!((rows[0].rank, &rows[0].key["port"], packets(0)), (Some(1), &Value::from(1), exact(110)));
        assert_eq!((rows[1].rank, &rows[1].key["port"]), (Some(2), &Value::from(3)));
        assert_eq!((packets(1).value, packets(1).lower, packets(1).upper), (40, 40, 50), "10 are left of the first");
    }

    /// Bounds hold for each row, whatever the windows contain.
    #[test]
    fn bounds_hold_whatever_was_listed() {
        let mut state = 1_u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for _ in 0..200 {
            let mut truth = [0_u64; 12];
            let windows: Vec<_> = (0..1 + random(5))
                .map(|_| {
                    let counts: Vec<u64> = (0..truth.len()).map(|_| random(4) * random(50)).collect();
                    for (sum, count) in truth.iter_mut().zip(&counts) {
                        *sum += count;
                    }
                    let total = counts.iter().sum();
                    let mut rows: Vec<_> = counts.iter().zip(0..).map(|(count, key)| row(key, *count)).collect();
                    rows.sort_by_key(|row| std::cmp::Reverse(row.packets.unwrap().value));
                    rows.truncate(random(8) as usize);
                    rows.retain(|row| row.packets.unwrap().value > 0);
                    Listed::of(rows, Tally { packets: total, bytes: total * 100 })
                })
                .collect();
            let rows = together(&windows, true);
            for row in &rows {
                let truth = truth[row.key["port"].as_u64().unwrap() as usize];
                let packets = row.packets.unwrap();
                assert!((packets.lower..=packets.upper).contains(&truth), "{packets:?} of {truth}");
                assert!((packets.lower..=packets.upper).contains(&packets.value), "{packets:?}");
            }
            assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse(row.packets.unwrap().lower)));
        }
    }

    #[test]
    fn a_view_that_changed_is_left_out() {
        let view = |measure: &str, packets: u64| View {
            name: "ports".to_owned(),
            by: vec!["port".to_owned()],
            measure: Value::from(measure),
            counted: "once".to_owned(),
            confidence: 1.0,
            total: Some(Sums { packets: exact(packets), bytes: exact(packets * 100) }),
            entropy: None,
            rows: Some(vec![row(443, packets)]),
            tables: None,
        };
        let of = |measures: [&str; 2]| {
            let reports = measures.map(|measure| Report { views: vec![view(measure, 7)], ..golden() });
            Union::of(&reports).unwrap().views
        };
        let both = of(["packets", "packets"]);
        assert_eq!(both[0].rows.as_ref().unwrap()[0].packets, Some(exact(14)));
        assert_eq!(both[0].total.unwrap().packets, exact(14));
        assert!(of(["bytes", "packets"]).is_empty() && of(["flows", "flows"]).is_empty());
        let report = Report { views: vec![view("flows", 7)], ..golden() };
        assert_eq!(Union::of(&[report]).unwrap().left_out, ["ports", "source_prefixes", "destination_prefixes"]);
    }

    #[test]
    fn tables_of_interfaces_stay_apart() {
        let table = |interface: &str, packets: u64| ViewTable {
            interface: interface.to_owned(),
            direction: Some("ingress".to_owned()),
            total: Some(Sums { packets: exact(packets), bytes: exact(packets * 100) }),
            rows: vec![row(443, packets)],
        };
        let view = |tables: Vec<ViewTable>| View {
            name: "ports".to_owned(),
            by: vec!["port".to_owned()],
            measure: Value::from("bytes"),
            counted: "per_interface".to_owned(),
            confidence: 1.0,
            total: None,
            entropy: None,
            rows: None,
            tables: Some(tables),
        };
        let mut report = golden();
        report.interfaces.truncate(1);
        let tables = [vec![table("eth0", 5)], vec![table("eth0", 6), table("eth1", 7)]];
        let reports = tables.map(|tables| Report { views: vec![view(tables)], ..report.clone() });
        let views = Union::of(&reports).unwrap().views;
        let packets = |nth: usize| views[0].tables.as_ref().unwrap()[nth].rows[0].packets.unwrap();
        assert_eq!(packets(0), exact(11));
        assert_eq!(packets(1), exact(7), "what was lost was of another interface");
    }

    /// The window without a table has lost 280 packets of this interface, which may all have matched.
    #[test]
    fn a_window_without_a_table_may_have_had_what_is_missing() {
        let table = |packets: u64| ViewTable {
            interface: "eth0".to_owned(),
            direction: Some("ingress".to_owned()),
            total: Some(Sums { packets: exact(packets), bytes: exact(packets * 100) }),
            rows: vec![row(443, packets)],
        };
        let view = |tables: Vec<ViewTable>| View {
            name: "ports".to_owned(),
            by: vec!["port".to_owned()],
            measure: Value::from("packets"),
            counted: "per_interface".to_owned(),
            confidence: 1.0,
            total: None,
            entropy: None,
            rows: None,
            tables: Some(tables),
        };
        let missing = unmeasured(&golden(), &table(0));
        assert_eq!(missing.packets, 280);
        for tables in [[vec![table(10)], vec![]], [vec![], vec![table(10)]]] {
            let reports = tables.map(|tables| Report { views: vec![view(tables)], ..golden() });
            let union = Union::of(&reports).unwrap();
            let [table] = &union.views[0].tables.as_deref().unwrap() else { panic!("{:?}", union.views) };
            let total = table.total.unwrap();
            assert_eq!(total.packets, Estimate { value: 10, lower: 10, upper: 290, sampled: None });
            assert_eq!(total.bytes.upper, 1_000 + missing.bytes);
            assert_eq!(table.rows[0].packets.unwrap().upper, 290);
        }
    }

    #[test]
    fn sums_by_protocol_keep_their_bounds() {
        let (mut exact, open) = (golden(), golden());
        exact.totals.bounds = None;
        let both = Union::of(&[exact.clone(), open.clone()]).unwrap().totals;
        let (sum, one) = (both.bounds.unwrap(), open.totals.bounds.unwrap());
        let tcp = exact.totals.tcp_packets;
        assert_eq!(sum.tcp_packets.lower, tcp + one.tcp_packets.lower);
        assert_eq!(sum.tcp_packets.upper, tcp + one.tcp_packets.upper);
        assert_eq!((sum.confidence, both.tcp_packets), (one.confidence, 2 * tcp));
        assert_eq!(Union::of(&[exact.clone(), exact]).unwrap().totals.bounds, None);
    }
}
