//! Reading the numbers of a report.

use std::collections::BTreeMap;

use weir_config::{
    rule::subject::{Account, Amount, Column, Flag, OfEntropy, OfInterface, Place, Sum},
    view::Standard,
};

use super::number::{Holder, Keyed, Number};
use crate::{Entropy, Estimate, Interface, InterfaceRates, Ledger, Report, Row, Tally, Top, ViewTable};

/// Reasons for which bytes are assumed, not counted.
const ASSUMED: [&str; 2] = ["socket_drop", "blind"];

/// The assumed part of a ledger's lost packets, for this reason or for all.
fn assumed(ledger: &Ledger, reason: Option<&str>) -> Tally {
    let mut all = Tally::default();
    for name in ASSUMED.iter().filter(|name| reason.is_none_or(|reason| reason == **name)) {
        let Tally { packets, bytes } = ledger.lost.get(*name).copied().unwrap_or_default();
        all.packets = all.packets.saturating_add(packets);
        all.bytes = all.bytes.saturating_add(bytes);
    }
    all
}

/// The packets or the bytes of a pair.
const fn amount_of<T: Copy>(amount: Amount, [packets, bytes]: [T; 2]) -> T {
    match amount {
        Amount::Packets => packets,
        Amount::Bytes => bytes,
    }
}

/// A number of all traffic, if it is known.
fn sum(report: &Report, of: Sum) -> Option<Number> {
    let Report { totals, unique, new_flows, self_metrics, .. } = report;
    Some(match of {
        Sum::Total(Amount::Packets) => Number::count(totals.packets),
        Sum::Total(Amount::Bytes) => total_bytes(report),
        Sum::Ipv4 => (totals.ipv4_packets, totals.bounds.map(|bounds| bounds.ipv4_packets)).into(),
        Sum::Ipv6 => (totals.ipv6_packets, totals.bounds.map(|bounds| bounds.ipv6_packets)).into(),
        Sum::Tcp => (totals.tcp_packets, totals.bounds.map(|bounds| bounds.tcp_packets)).into(),
        Sum::Udp => (totals.udp_packets, totals.bounds.map(|bounds| bounds.udp_packets)).into(),
        Sum::Icmp => (totals.icmp_packets, totals.bounds.map(|bounds| bounds.icmp_packets)).into(),
        Sum::Other => (totals.other_packets, totals.bounds.map(|bounds| bounds.other_packets)).into(),
        Sum::Sources => unique.src_ip.into(),
        Sum::Destinations => unique.dst_ip.into(),
        Sum::Flows => unique.flows.into(),
        Sum::NewFlows => (*new_flows).into(),
        Sum::SeenFill => Number::exact(new_flows.fill),
        Sum::RingFill => Number::exact(self_metrics.rings.peak_fill?),
        Sum::CacheHitRate => Number::exact(self_metrics.cache_hit_rate?),
        Sum::CpuPerPacket => Number::exact(self_metrics.cpu_ns_per_packet?),
        Sum::ResidentBytes => Number::count(self_metrics.rss_bytes?),
    })
}

/// A number of an interface, if it is known.
fn of_interface(interface: &Interface, of: OfInterface) -> Option<Number> {
    let Interface { tcp, coverage, coverage_lower, coverage_upper, kept, sampling, blind_seconds, .. } = interface;
    Some(match of {
        OfInterface::Ledger(account, amount) => of_ledger(interface, account, amount),
        OfInterface::Tcp(Flag::Syn) => (tcp.syn, tcp.bounds.map(|bounds| bounds.syn)).into(),
        OfInterface::Tcp(Flag::SynAck) => (tcp.syn_ack, tcp.bounds.map(|bounds| bounds.syn_ack)).into(),
        OfInterface::Tcp(Flag::Rst) => (tcp.rst, tcp.bounds.map(|bounds| bounds.rst)).into(),
        OfInterface::Tcp(Flag::Fin) => (tcp.fin, tcp.bounds.map(|bounds| bounds.fin)).into(),
        OfInterface::Coverage => {
            let value = (*coverage)?;
            let (lower, upper) = (coverage_lower.unwrap_or(value), coverage_upper.unwrap_or(value));
            Number { value, lower, upper }
        }
        OfInterface::BlindSeconds => Number::exact(blind_seconds.unwrap_or_default()),
        OfInterface::Kept => Number::exact(*kept),
        OfInterface::Sampling => Number::exact(f64::from(*sampling)),
    })
}

fn of_ledger(interface: &Interface, account: Account, amount: Amount) -> Number {
    let [all, assumed] = tallies(interface, account);
    match amount {
        Amount::Packets => Number::count(all.packets),
        Amount::Bytes => Number::assumed(all.bytes, assumed.bytes),
    }
}

/// The packets and bytes in an account of an interface, and the assumed part of them.
fn tallies(interface: &Interface, account: Account) -> [Tally; 2] {
    let Interface { ledger, repeated, .. } = interface;
    let none = Tally::default();
    let one = |tallies: &BTreeMap<String, Tally>, reason: Option<&str>| match reason {
        Some(reason) => tallies.get(reason).copied().unwrap_or(none),
        None => tallies.values().fold(none, |sum, tally| Tally {
            packets: sum.packets.saturating_add(tally.packets),
            bytes: sum.bytes.saturating_add(tally.bytes),
        }),
    };
    match account {
        Account::Seen => [ledger.seen, assumed(ledger, None)],
        Account::Attributed => [ledger.attributed, none],
        Account::SampledOut => [ledger.sampled_out, none],
        Account::Repeated => [*repeated, none],
        Account::Skipped(reason) => [one(&ledger.skipped, reason), none],
        Account::Lost(reason) => [one(&ledger.lost, reason), assumed(ledger, reason)],
    }
}

/// All bytes of a report, some of which may be assumed.
fn total_bytes(report: &Report) -> Number {
    let dropped = |interface: &Interface| assumed(&interface.ledger, None).bytes;
    Number::assumed(report.totals.bytes, report.interfaces.iter().map(dropped).fold(0, u64::saturating_add))
}

/// The busiest second. If the daemon was delayed, or if packets belong to no second, there may have been a busier one.
fn busiest(rates: &InterfaceRates, amount: Amount) -> Number {
    /// The longest second, by the clocks, that still counts as one.
    const LONGEST: f64 = 1.5;
    let max = amount_of(amount, [rates.packets.max, rates.bytes.max]);
    let unplaced = rates.unplaced.map_or(0, |unplaced| amount_of(amount, [unplaced.packets, unplaced.bytes]));
    let upper = if rates.longest_second > LONGEST { f64::INFINITY } else { max.saturating_add(unplaced) as f64 };
    Number { upper, ..Number::count(max) }
}

/// An entropy as a part of the most that this many keys can have. Its bounds follow from those of both.
fn normalized(entropy: &Entropy) -> Number {
    let Entropy { bits, normalized, keys, confidence: _ } = *entropy;
    let part = |bits: f64, keys: u64| if keys > 1 { (bits / (keys as f64).log2()).min(1.0) } else { 0.0 };
    let (lower, upper) =
        (part(bits.lower, keys.upper), if keys.lower > 1 { part(bits.upper, keys.lower) } else { 1.0 });
    Number { value: normalized.clamp(lower, upper), lower, upper }
}

/// Calls `each` with every number at this place and its owner.
pub(super) fn visit<'r>(place: &Place, report: &'r Report, each: &mut dyn FnMut(Number, Holder<'r>)) {
    match place {
        Place::Sum(of) => sum(report, *of).into_iter().for_each(|number| each(number, Holder::All)),
        Place::Interface(of) => {
            for interface in &report.interfaces {
                if let Some(number) = of_interface(interface, *of) {
                    each(number, Holder::interface(interface));
                }
            }
        }
        Place::BusiestSecond(amount) => {
            for rates in &report.rates {
                each(busiest(rates, *amount), Holder::rates(rates));
            }
        }
        Place::Top(list, amount) => {
            top(ordered(report, *amount), *list, &mut |sums, _, row| {
                each(amount_of(*amount, sums).into(), Holder::Row(row));
            });
        }
        Place::Beyond(list, amount) => {
            top(ordered(report, *amount), *list, &mut |_, beyond, row| {
                each(amount_of(*amount, beyond).into(), Holder::Row(row));
            });
        }
        Place::Spread(list) => {
            let rows = match list {
                Standard::SourcesPerDestination => &report.spread.sources_per_destination,
                Standard::DestinationsPerSource => &report.spread.destinations_per_source,
                _ => &report.spread.ports_per_source,
            };
            for row in rows {
                each(row.distinct.unwrap_or_default().into(), Holder::Row(row));
            }
        }
        Place::Rows(view, column) => rows_of(report, view, *column, each),
        Place::Total(view, amount) => {
            let Some(view) = report.views.iter().find(|one| one.name == *view) else { return };
            if let Some(total) = view.total {
                each(amount_of(*amount, [total.packets, total.bytes]).into(), Holder::All);
            }
            for ViewTable { interface, direction, total, .. } in view.tables.iter().flatten() {
                if let Some(total) = total {
                    let holder = Holder::Interface(interface, direction.as_deref());
                    each(amount_of(*amount, [total.packets, total.bytes]).into(), holder);
                }
            }
        }
        Place::Entropy(view, of) => {
            let view = report.views.iter().find(|one| one.name == *view);
            if let Some(entropy) = view.and_then(|view| view.entropy.as_ref()) {
                each(of_entropy(entropy, *of), Holder::All);
            }
        }
    }
}

fn of_entropy(entropy: &Entropy, of: OfEntropy) -> Number {
    match of {
        OfEntropy::Bits => entropy.bits.into(),
        OfEntropy::Normalized => normalized(entropy),
        OfEntropy::Keys => entropy.keys.into(),
    }
}

fn rows_of<'r>(report: &'r Report, view: &str, column: Column, each: &mut dyn FnMut(Number, Holder<'r>)) {
    let Some(view) = report.views.iter().find(|one| one.name == view) else { return };
    for row in view.rows.iter().flatten() {
        if let Some(number) = of_row(row, column) {
            each(number.into(), Holder::Row(row));
        }
    }
    for ViewTable { interface, direction, rows, .. } in view.tables.iter().flatten() {
        for row in rows {
            if let Some(number) = of_row(row, column) {
                each(number.into(), Holder::InTable(interface, direction.as_deref(), row));
            }
        }
    }
}

const fn of_row(row: &Row, column: Column) -> Option<Estimate> {
    match column {
        Column::Amount(Amount::Packets) => row.packets,
        Column::Amount(Amount::Bytes) => row.bytes,
        Column::Flows => row.flows,
        Column::NewFlows => row.new_flows,
        Column::Distinct => row.distinct,
    }
}

/// The lists ordered by this amount.
const fn ordered(report: &Report, amount: Amount) -> &Top {
    match amount {
        Amount::Packets => &report.top_by_packets,
        Amount::Bytes => &report.top,
    }
}

/// Calls `each` with the packets and bytes of every row, and the part of them beyond listed addresses.
fn top<'r>(top: &'r Top, list: Standard, each: &mut dyn FnMut([Estimate; 2], [Estimate; 2], &'r dyn Keyed)) {
    macro_rules! rows {
        ($rows:expr) => {
            $rows.iter().for_each(|row| each([row.packets, row.bytes], [row.packets, row.bytes], row))
        };
    }
    match list {
        Standard::Flows => rows!(top.flows),
        Standard::Sources => rows!(top.sources),
        Standard::Destinations => rows!(top.destinations),
        Standard::Pairs => rows!(top.pairs),
        Standard::Services => rows!(top.services),
        Standard::SourcePrefixes | Standard::DestinationPrefixes => {
            let is_source = list == Standard::SourcePrefixes;
            for row in if is_source { &top.source_prefixes } else { &top.destination_prefixes } {
                each([row.packets, row.bytes], [row.beyond.packets, row.beyond.bytes], row);
            }
        }
        Standard::SourcesPerDestination
        | Standard::DestinationsPerSource
        | Standard::PortsPerSource
        | Standard::IpVersions
        | Standard::Protocols
        | Standard::Dscp
        | Standard::Talkers => {}
    }
}
