//! What a rule may be about: the numbers of a report, and how each is read from one.

use std::fmt;

use super::{
    number::{Holder, Keyed, Number},
    unit::Dimension,
};
use crate::{
    report::{Entropy, Estimate, Interface, InterfaceRates, Report, Row, Tally, Top, ViewTable},
    view::Standard,
};

/// Numbers of a report that have one name.
#[derive(Clone)]
pub struct Subject {
    /// The name.
    pub name: String,
    /// What they count.
    pub dimension: Dimension,
    /// Whether there are numbers of the largest keys only: a key that is not listed may have less.
    pub is_listed: bool,
    /// Whether each interface has numbers of its own.
    pub is_per_interface: bool,
    /// The standard view that they are of.
    pub standard: Option<Standard>,
    pub(super) read: Read,
}

/// How numbers are read from a report.
#[derive(Clone)]
pub(super) enum Read {
    /// The only one.
    One(fn(&Report) -> Number),
    /// One of each interface, if it is known.
    Interface(fn(&Interface) -> Option<Number>),
    /// One of each interface's account.
    Ledger(Account, Amount),
    /// One of each interface's seconds.
    Rates(fn(&InterfaceRates) -> Number),
    /// Those of a list's rows.
    Top(Standard, Amount),
    /// The same, beyond listed addresses.
    Beyond(Standard, Amount),
    /// Those of a list of floods or scans.
    Spread(Standard),
    /// Those of the rows of a view.
    Rows(String, fn(&Row) -> Option<Estimate>),
    /// Those of all that a view matched.
    Total(String, Amount),
    /// One of the entropy of a view.
    Entropy(String, fn(&Entropy) -> Number),
}

/// Packets or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Packets,
    Bytes,
}

impl Amount {
    pub(super) const ALL: [Self; 2] = [Self::Packets, Self::Bytes];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
        }
    }

    pub(super) const fn dimension(self) -> Dimension {
        match self {
            Self::Packets => Dimension::Packets,
            Self::Bytes => Dimension::Bytes,
        }
    }

    const fn of<T: Copy>(self, [packets, bytes]: [T; 2]) -> T {
        match self {
            Self::Packets => packets,
            Self::Bytes => bytes,
        }
    }
}

/// A part of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    Seen,
    Attributed,
    SampledOut,
    Repeated,
    /// For all reasons, or for one.
    Skipped(Option<&'static str>),
    /// For all reasons, or for one.
    Lost(Option<&'static str>),
}

/// The reason for which bytes are assumed, not counted.
const ASSUMED: &str = "socket_drop";

impl Account {
    /// What of an interface is in it, and what of that is assumed.
    fn of(self, interface: &Interface) -> [Tally; 2] {
        let Interface { ledger, repeated, .. } = interface;
        let none = Tally::default();
        let dropped = ledger.lost.get(ASSUMED).copied().unwrap_or(none);
        let one = |tallies: &std::collections::BTreeMap<String, Tally>, reason: Option<&str>| match reason {
            Some(reason) => tallies.get(reason).copied().unwrap_or(none),
            None => tallies.values().fold(none, |sum, tally| Tally {
                packets: sum.packets.saturating_add(tally.packets),
                bytes: sum.bytes.saturating_add(tally.bytes),
            }),
        };
        match self {
            Self::Seen => [ledger.seen, dropped],
            Self::Attributed => [ledger.attributed, none],
            Self::SampledOut => [ledger.sampled_out, none],
            Self::Repeated => [*repeated, none],
            Self::Skipped(reason) => [one(&ledger.skipped, reason), none],
            Self::Lost(reason) => {
                let is_in = reason.is_none_or(|reason| reason == ASSUMED);
                [one(&ledger.lost, reason), if is_in { dropped } else { none }]
            }
        }
    }

    fn number(self, amount: Amount, interface: &Interface) -> Number {
        let [all, assumed] = self.of(interface);
        match amount {
            Amount::Packets => Number::count(all.packets),
            Amount::Bytes => Number::assumed(all.bytes, assumed.bytes),
        }
    }
}

/// All bytes of a report, some of which may be assumed.
pub(super) fn total_bytes(report: &Report) -> Number {
    let dropped = |interface: &Interface| interface.ledger.lost.get(ASSUMED).map_or(0, |tally| tally.bytes);
    Number::assumed(report.totals.bytes, report.interfaces.iter().map(dropped).fold(0, u64::saturating_add))
}

/// A sum by protocol, which has no bounds where packets were sampled.
pub(super) fn by_protocol(report: &Report, packets: u64) -> Number {
    let is_exact = report.interfaces.iter().all(|interface| interface.sampling == 1);
    if is_exact { Number::count(packets) } else { Number::unbounded(packets) }
}

/// The busiest second. If the daemon was held up, there may have been a busier one.
pub(super) fn busiest(rates: &InterfaceRates, max: u64) -> Number {
    /// A second may be so long by the clocks.
    const LONGEST: f64 = 1.5;
    let upper = if rates.longest_second > LONGEST { f64::INFINITY } else { max as f64 };
    Number { upper, ..Number::count(max) }
}

/// An entropy as a part of the most that so many keys may have. Its bounds follow from those of both.
pub(super) fn normalized(entropy: &Entropy) -> Number {
    let Entropy { bits, normalized, keys, confidence: _ } = *entropy;
    let part = |bits: f64, keys: u64| if keys > 1 { (bits / (keys as f64).log2()).min(1.0) } else { 0.0 };
    let (lower, upper) =
        (part(bits.lower, keys.upper), if keys.lower > 1 { part(bits.upper, keys.lower) } else { 1.0 });
    Number { value: normalized.clamp(lower, upper), lower, upper }
}

impl Subject {
    /// Calls `each` with every number of the report, and whose number it is.
    pub fn visit<'r>(&self, report: &'r Report, each: &mut dyn FnMut(Number, Holder<'r>)) {
        match &self.read {
            Read::One(number) => each(number(report), Holder::All),
            Read::Interface(number) => {
                for interface in &report.interfaces {
                    if let Some(number) = number(interface) {
                        each(number, Holder::interface(interface));
                    }
                }
            }
            Read::Ledger(account, amount) => {
                let numbers =
                    report.interfaces.iter().map(|one| (account.number(*amount, one), Holder::interface(one)));
                numbers.for_each(|(number, holder)| each(number, holder));
            }
            Read::Rates(number) => report.rates.iter().for_each(|rates| each(number(rates), Holder::rates(rates))),
            Read::Top(list, amount) => {
                top(ordered(report, *amount), *list, &mut |sums, _, row| {
                    each(amount.of(sums).into(), Holder::Row(row));
                });
            }
            Read::Beyond(list, amount) => {
                top(ordered(report, *amount), *list, &mut |_, beyond, row| {
                    each(amount.of(beyond).into(), Holder::Row(row));
                });
            }
            Read::Spread(list) => {
                let rows = match list {
                    Standard::SourcesPerDestination => &report.spread.sources_per_destination,
                    Standard::DestinationsPerSource => &report.spread.destinations_per_source,
                    _ => &report.spread.ports_per_source,
                };
                for row in rows {
                    each(row.distinct.unwrap_or_default().into(), Holder::Row(row));
                }
            }
            Read::Rows(view, number) => rows_of(report, view, *number, each),
            Read::Total(view, amount) => {
                let Some(view) = report.views.iter().find(|one| one.name == *view) else { return };
                if let Some(total) = view.total {
                    each(amount.of([total.packets, total.bytes]).into(), Holder::All);
                }
                for ViewTable { interface, direction, total, .. } in view.tables.iter().flatten() {
                    if let Some(total) = total {
                        let holder = Holder::Interface(interface, direction.as_deref());
                        each(amount.of([total.packets, total.bytes]).into(), holder);
                    }
                }
            }
            Read::Entropy(view, number) => {
                let entropy = report.views.iter().find(|one| one.name == *view).and_then(|view| view.entropy.as_ref());
                entropy.into_iter().for_each(|entropy| each(number(entropy), Holder::All));
            }
        }
    }
}

fn rows_of<'r>(
    report: &'r Report,
    view: &str,
    number: fn(&Row) -> Option<Estimate>,
    each: &mut dyn FnMut(Number, Holder<'r>),
) {
    let Some(view) = report.views.iter().find(|one| one.name == view) else { return };
    for row in view.rows.iter().flatten() {
        if let Some(number) = number(row) {
            each(number.into(), Holder::Row(row));
        }
    }
    for ViewTable { interface, direction, rows, .. } in view.tables.iter().flatten() {
        for row in rows {
            if let Some(number) = number(row) {
                each(number.into(), Holder::InTable(interface, direction.as_deref(), row));
            }
        }
    }
}

/// The lists in the order of this amount.
const fn ordered(report: &Report, amount: Amount) -> &Top {
    match amount {
        Amount::Packets => &report.top_by_packets,
        Amount::Bytes => &report.top,
    }
}

/// Calls `each` with the packets and bytes of every row, and what of them is beyond listed addresses.
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

/// A name means one thing within a configuration.
impl PartialEq for Subject {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
