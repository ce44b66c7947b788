//! Reads the numbers of the table from a report.

use std::collections::BTreeSet;

use weir_config::view::Standard;

use super::point::{Keyed, Label, Labels, Owner, Point, Reading, Scalar};
use crate::{
    Beyond, Entropy, Estimate, Histogram, Horizon, Interface, InterfaceRates, InterfaceUsage, Ledger, Report, Row,
    SinkMetrics, Sums, Tally, Top, View, standard_lists,
};

/// A function that reads the points of a series.
#[derive(Clone, Copy, Debug)]
pub(super) enum Get {
    /// Reads one number, if it is known.
    Once(fn(&Report) -> Option<Reading>),
    /// Reads one number of each interface, if it is known.
    Each(fn(&Interface) -> Option<Reading>),
    /// Reads one number of each sink.
    Sink(fn(&SinkMetrics) -> u64),
    /// Reads numbers that have labels.
    Labelled(for<'r> fn(&'r Report, &mut Points<'r>)),
    /// Numbers of each interface, with labels.
    EachLabelled(for<'r> fn(&'r Interface, &mut Points<'r>)),
    /// A distribution of each interface: classes by their upper edges.
    Classes(fn(&Interface) -> &[(u64, u64)]),
}

impl Get {
    /// The points of a report. Points of the same interface are together.
    pub fn points<'r>(&self, report: &'r Report) -> Vec<Vec<Point<'r>>> {
        let mut all = Points::default();
        match self {
            Self::Once(of) => {
                if let Some(reading) = of(report) {
                    all.put(Labels::new(), reading);
                }
            }
            Self::Sink(of) => {
                for sink in &report.self_metrics.sinks {
                    all.put(vec![("sink", (&sink.name).into())], of(sink));
                }
            }
            Self::Labelled(of) => of(report, &mut all),
            Self::Each(of) => {
                for interface in &report.interfaces {
                    if let Some(reading) = of(interface) {
                        all.put_of(Owner::interface(interface), &[], reading);
                    }
                }
            }
            Self::EachLabelled(of) => {
                let of = |interface| {
                    let mut points = Points::default();
                    of(interface, &mut points);
                    points.0
                };
                return report.interfaces.iter().map(of).collect();
            }
            Self::Classes(_) => {}
        }
        match self {
            Self::Each(_) => all.0.into_iter().map(|point| vec![point]).collect(),
            _ => vec![all.0],
        }
    }
}

/// Points that are being read.
#[derive(Default)]
pub(super) struct Points<'r>(Vec<Point<'r>>);

impl<'r> Points<'r> {
    /// Adds a number of all traffic.
    fn put(&mut self, labels: Labels<'r>, reading: impl Into<Reading>) {
        self.0.push(Point { labels, owner: Owner::All, reading: reading.into(), is_exported: true });
    }

    /// Adds a number of an interface. The interface is the first label.
    fn put_of(&mut self, owner: Owner<'r>, labels: &[(&'r str, &'r str)], reading: impl Into<Reading>) {
        let mut all = owner.labels();
        all.extend(labels.iter().map(|(name, value)| (*name, (*value).into())));
        self.0.push(Point { labels: all, owner, reading: reading.into(), is_exported: true });
    }

    /// Adds a row of a standard list.
    fn put_row(&mut self, list: Standard, row: &'r dyn Keyed, reading: Estimate) {
        let labels = vec![("list", list.name().into())];
        self.0.push(Point { labels, owner: Owner::Row(row), reading: reading.into(), is_exported: true });
    }

    /// Adds numbers of all traffic that have a label with this name.
    fn put_each<R: Into<Reading>, const N: usize>(&mut self, label: &'r str, readings: [(&'r str, R); N]) {
        for (value, reading) in readings {
            self.put(vec![(label, value.into())], reading);
        }
    }
}

/// A known number.
pub(super) fn known(reading: impl Into<Reading>) -> Option<Reading> {
    Some(reading.into())
}

/// Packets or bytes of a tally.
pub(super) type Amount = fn(&Tally) -> u64;

pub(super) const PACKETS: Amount = |tally| tally.packets;
pub(super) const BYTES: Amount = |tally| tally.bytes;

pub(super) fn observer<'r>(report: &'r Report, points: &mut Points<'r>) {
    let observer = &report.observer;
    let mut labels: Labels<'r> =
        vec![("name", (&observer.name).into()), ("id", (&observer.id).into()), ("boot_id", (&observer.boot_id).into())];
    labels.extend(observer.site.as_ref().map(|site| ("site", site.into())));
    points.put(labels, 1_u64);
}

pub(super) fn usage<'r>(report: &'r Report, points: &mut Points<'r>) {
    for InterfaceUsage { interface, bytes, .. } in &report.usage {
        let upper = bytes.upper.map_or(Scalar::Real(f64::INFINITY), Scalar::Whole);
        points.put_of(Owner::Interface(interface, None), &[], Reading::between(bytes.value, bytes.lower, upper));
    }
}

pub(super) fn number_in_run<'r>(report: &'r Report, points: &mut Points<'r>) {
    points.put(vec![("run", (&report.observer.boot_id).into())], report.observer.seq);
}

pub(super) fn by_version<'r>(report: &'r Report, points: &mut Points<'r>) {
    let (of, bounds) = (&report.totals, report.totals.bounds.as_ref());
    points.put_each(
        "version",
        [
            ("4", (of.ipv4_packets, bounds.map(|bounds| bounds.ipv4_packets))),
            ("6", (of.ipv6_packets, bounds.map(|bounds| bounds.ipv6_packets))),
        ],
    );
}

pub(super) fn by_protocol<'r>(report: &'r Report, points: &mut Points<'r>) {
    let (of, bounds) = (&report.totals, report.totals.bounds.as_ref());
    points.put_each(
        "proto",
        [
            ("tcp", (of.tcp_packets, bounds.map(|bounds| bounds.tcp_packets))),
            ("udp", (of.udp_packets, bounds.map(|bounds| bounds.udp_packets))),
            ("icmp", (of.icmp_packets, bounds.map(|bounds| bounds.icmp_packets))),
            ("other", (of.other_packets, bounds.map(|bounds| bounds.other_packets))),
        ],
    );
}

/// Reasons for which bytes are assumed, not counted.
const ASSUMED: [&str; 2] = ["socket_drop", "blind"];

/// The bytes of a ledger that are assumed.
fn assumed(ledger: &Ledger) -> u64 {
    let bytes = ASSUMED.iter().filter_map(|reason| ledger.lost.get(*reason)).map(|tally| tally.bytes);
    bytes.fold(0, u64::saturating_add)
}

/// The sum over the ledgers of all interfaces.
fn over_all(report: &Report, of: impl Fn(&Ledger) -> u64) -> u64 {
    report.interfaces.iter().map(|interface| of(&interface.ledger)).fold(0, u64::saturating_add)
}

/// All packets of a report.
pub(super) fn total_packets(report: &Report) -> Option<Reading> {
    Some(Reading::at_least(report.totals.packets, over_all(report, |ledger| ledger.beyond().packets)))
}

/// All bytes of a report, some of which may be assumed.
pub(super) fn total_bytes(report: &Report) -> Option<Reading> {
    let beyond = over_all(report, |ledger| ledger.beyond().bytes);
    Some(Reading::at_least(report.totals.bytes, beyond).with_assumed(over_all(report, assumed)))
}

pub(super) fn seen_packets(Interface { ledger, .. }: &Interface) -> Option<Reading> {
    Some(Reading::at_least(ledger.seen.packets, ledger.beyond().packets))
}

pub(super) fn seen_bytes(Interface { ledger, .. }: &Interface) -> Option<Reading> {
    Some(Reading::at_least(ledger.seen.bytes, ledger.beyond().bytes).with_assumed(assumed(ledger)))
}

/// Adds a point for each part of the account of an interface's packets.
pub(super) fn accounted<'r>(of: Amount, interface: &'r Interface, points: &mut Points<'r>) {
    let Ledger { seen: _, attributed, sampled_out, skipped, lost, uncertain: _ } = &interface.ledger;
    let owner = Owner::interface(interface);
    // It is not known which of them have the packets that are not certain.
    let beyond = of(&interface.ledger.beyond());
    let counted = |tally| Reading::at_least(of(tally), beyond);
    points.put_of(owner, &[("kind", "attributed")], counted(attributed));
    for (reason, tally) in lost {
        // Only the bytes of these packets are assumed.
        let is_assumed = ASSUMED.contains(&&**reason) && of(&Tally { packets: 0, bytes: 1 }) == 1;
        let reading = counted(tally).with_assumed(if is_assumed { of(tally) } else { 0 });
        points.put_of(owner, &[("kind", "lost"), ("reason", reason)], reading);
    }
    points.put_of(owner, &[("kind", "sampled_out")], counted(sampled_out));
    for (reason, tally) in skipped {
        points.put_of(owner, &[("kind", "skipped"), ("reason", reason)], counted(tally));
    }
}

pub(super) fn by_flags<'r>(interface: &'r Interface, points: &mut Points<'r>) {
    let (of, bounds) = (&interface.tcp, interface.tcp.bounds.as_ref());
    for (flags, number, bounds) in [
        ("syn", of.syn, bounds.map(|bounds| bounds.syn)),
        ("syn_ack", of.syn_ack, bounds.map(|bounds| bounds.syn_ack)),
        ("rst", of.rst, bounds.map(|bounds| bounds.rst)),
        ("fin", of.fin, bounds.map(|bounds| bounds.fin)),
    ] {
        points.put_of(Owner::interface(interface), &[("flags", flags)], (number, bounds));
    }
}

pub(super) fn how_measured<'r>(interface: &'r Interface, points: &mut Points<'r>) {
    let Interface { mode, counts, feeds, alias, vrf, .. } = interface;
    let mut labels: Vec<(&str, &str)> = vec![("mode", mode), ("counts", counts), ("feeds", feeds)];
    labels.extend(alias.as_ref().map(|alias| ("alias", alias.as_str())));
    labels.extend(vrf.as_ref().map(|vrf| ("vrf", vrf.as_str())));
    points.put_of(Owner::interface(interface), &labels, 1_u64);
}

pub(super) fn coverage(interface: &Interface) -> Option<Reading> {
    let value = interface.coverage?;
    let [lower, upper] = [interface.coverage_lower, interface.coverage_upper].map(|bound| bound.unwrap_or(value));
    Some(Reading::between(value, lower, upper))
}

/// A distribution as one number for each quantile. Empty if nothing was counted.
fn quantiles(of: &Histogram) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let Histogram { count, min, p50, p90, p99, max, buckets: _ } = *of;
    let all = [("0", min), ("0.5", p50), ("0.9", p90), ("0.99", p99), ("1", max)];
    all.into_iter().filter(move |_| count > 0)
}

/// The seconds of each interface. If the daemon was delayed, or if packets belong to no second, a second may have been
/// busier than the stated maximum.
pub(super) fn rates<'r>(
    report: &'r Report,
    of: fn(&InterfaceRates) -> &Histogram,
    amount: Amount,
    points: &mut Points<'r>,
) {
    /// A time between readings of up to this many seconds counts as one second.
    const LONGEST: f64 = 1.5;
    for rates in &report.rates {
        for (quantile, number) in quantiles(of(rates)) {
            let unplaced = rates.unplaced.as_ref().map_or(0, amount);
            let reading = match quantile {
                "1" if rates.longest_second > LONGEST => Reading::between(number, number, f64::INFINITY),
                "1" => Reading::between(number, number, number.saturating_add(unplaced)),
                _ => number.into(),
            };
            points.put_of(Owner::rates(rates), &[("quantile", quantile)], reading);
        }
    }
}

pub(super) fn packet_sizes<'r>(report: &'r Report, points: &mut Points<'r>) {
    for (quantile, number) in quantiles(&report.histograms.packet_size_bytes) {
        points.put(vec![("quantile", quantile.into())], number);
    }
}

pub(super) fn unique<'r>(report: &'r Report, points: &mut Points<'r>) {
    let of = &report.unique;
    points.put_each("of", [("src_ip", of.src_ip), ("dst_ip", of.dst_ip), ("flows", of.flows)]);
}

pub(super) fn horizons<'r>(report: &'r Report, points: &mut Points<'r>) {
    for Horizon { name, unique, .. } in &report.horizons {
        for (of, count) in [("src_ip", unique.src_ip), ("dst_ip", unique.dst_ip), ("flows", unique.flows)] {
            points.put(vec![("horizon", name.into()), ("of", of.into())], count);
        }
    }
}

pub(super) fn covered<'r>(report: &'r Report, points: &mut Points<'r>) {
    for Horizon { name, covered_seconds, .. } in &report.horizons {
        points.put(vec![("horizon", name.into())], *covered_seconds);
    }
}

/// The views of a report, each name once. A view of the user has precedence over a standard view.
fn views(report: &Report) -> impl Iterator<Item = &View> {
    let mut names = BTreeSet::new();
    report.views.iter().filter(move |view| names.insert(&*view.name))
}

/// A number of each row of views, for all interfaces together or for each.
pub(super) fn rows<'r>(report: &'r Report, of: fn(&Row) -> Option<Estimate>, points: &mut Points<'r>) {
    for view in views(report) {
        for (table, _, rows) in view.parts() {
            for row in rows {
                let Some(number) = of(row) else { continue };
                let owner = match table {
                    Some(table) => Owner::InTable(&table.interface, table.direction.as_deref(), row),
                    None => Owner::Row(row),
                };
                let mut labels: Labels<'r> = vec![("view", (&view.name).into())];
                labels.extend(owner.labels());
                labels.extend(row.key.iter().map(|(name, value)| (name.as_str(), Label::Field(value))));
                points.0.push(Point { labels, owner, reading: number.into(), is_exported: view.has_series() });
            }
        }
    }
}

/// A number of each view's total, for all interfaces together or for each.
pub(super) fn sums<'r>(report: &'r Report, of: fn(&Sums) -> Estimate, points: &mut Points<'r>) {
    for view in views(report) {
        for (table, total, _) in view.parts() {
            let Some(total) = total else { continue };
            let owner =
                table.map_or(Owner::All, |table| Owner::Interface(&table.interface, table.direction.as_deref()));
            let mut labels: Labels<'r> = vec![("view", (&view.name).into())];
            labels.extend(owner.labels());
            points.0.push(Point { labels, owner, reading: of(total).into(), is_exported: view.has_series() });
        }
    }
}

/// A number of the entropy of each view.
pub(super) fn entropy<'r>(report: &'r Report, of: fn(&Entropy) -> Reading, points: &mut Points<'r>) {
    for view in views(report) {
        if let Some(entropy) = &view.entropy {
            points.put(vec![("view", (&view.name).into())], of(entropy));
        }
    }
}

/// An entropy as a part of the maximum for its number of keys. Its bounds follow from those of both.
pub(super) fn normalized(entropy: &Entropy) -> Reading {
    let Entropy { bits, normalized, keys, confidence: _ } = *entropy;
    let part = |bits: f64, keys: u64| if keys > 1 { (bits / (keys as f64).log2()).min(1.0) } else { 0.0 };
    let (lower, upper) =
        (part(bits.lower, keys.upper), if keys.lower > 1 { part(bits.upper, keys.lower) } else { 1.0 });
    Reading::between(normalized.clamp(lower, upper), lower, upper)
}

/// The rows of the standard lists in one order.
pub(super) fn top<'r>(top: &'r Top, of: fn(&Sums) -> Estimate, points: &mut Points<'r>) {
    macro_rules! put_each {
        ($($list:ident $rows:ident $row:ident $noun:literal: $($field:ident),* $(+ $more:ident)?;)*) => {
            $(for row in &top.$rows {
                points.put_row(Standard::$list, row, of(&Sums { packets: row.packets, bytes: row.bytes }));
            })*
        };
    }
    standard_lists!(put_each);
    for (list, rows) in top.prefixes() {
        for row in rows {
            points.put_row(list, row, of(&Sums { packets: row.packets, bytes: row.bytes }));
        }
    }
}

/// The traffic of networks without their listed addresses.
pub(super) fn beyond<'r>(top: &'r Top, of: fn(&Sums) -> Estimate, points: &mut Points<'r>) {
    for (list, rows) in top.prefixes() {
        for row in rows {
            let Beyond { packets, bytes } = row.beyond;
            points.put_row(list, row, of(&Sums { packets, bytes }));
        }
    }
}

pub(super) fn spread<'r>(report: &'r Report, points: &mut Points<'r>) {
    for (list, rows) in report.spread.lists() {
        for row in rows {
            points.put_row(list, row, row.distinct.unwrap_or_default());
        }
    }
}

pub(super) fn alerts<'r>(report: &'r Report, points: &mut Points<'r>) {
    for alert in &report.alerts {
        let is_firing = matches!(&*alert.state, "firing" | "clearing");
        points.put(vec![("rule", (&alert.rule).into())], u64::from(is_firing));
    }
}
