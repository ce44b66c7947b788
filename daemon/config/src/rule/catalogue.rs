//! The names of all numbers that rules can use. Reports use the same names.

use std::time::Duration;

use weir_common::ledger::{Loss, Skip};

use super::{
    subject::{Selector, Subject},
    unit::Dimension::{self, Bytes, BytesOfSecond, Count, Flows, Number, Packets, PacketsOfSecond, Volume},
};
use crate::{
    horizon::horizon_name,
    view::{Measure, Standard, View},
};

/// The series of new hosts.
pub const NEW_HOSTS: &str = "new_hosts";
/// How the names of numbers over a horizon begin.
pub const HORIZONS: &str = "horizons.";
/// A share that is at most 1.
const PART: Dimension = Dimension::Share { may_exceed: false };
/// Packets and bytes: the name in reports, and the dimension.
const AMOUNTS: [(&str, Dimension); 2] = [("packets", Packets), ("bytes", Bytes)];

/// The names of a number, the first one first; its dimension; and its place in a report: a series and labels.
type Listed = (&'static [&'static str], Dimension, &'static str, &'static [(&'static str, &'static str)]);

/// Numbers of all traffic.
const OF_TRAFFIC: &[Listed] = &[
    (&["totals.packets", "packets"], Packets, "packets", &[]),
    (&["totals.bytes", "bytes"], Bytes, "bytes", &[]),
    (&["totals.ipv4_packets"], Packets, "ip.packets", &[("version", "4")]),
    (&["totals.ipv6_packets"], Packets, "ip.packets", &[("version", "6")]),
    (&["totals.tcp_packets"], Packets, "protocol.packets", &[("proto", "tcp")]),
    (&["totals.udp_packets"], Packets, "protocol.packets", &[("proto", "udp")]),
    (&["totals.icmp_packets"], Packets, "protocol.packets", &[("proto", "icmp")]),
    (&["totals.other_packets"], Packets, "protocol.packets", &[("proto", "other")]),
    (&["unique.src_ip", "unique.src_ip.value"], Count, "unique", &[("of", "src_ip")]),
    (&["unique.dst_ip", "unique.dst_ip.value"], Count, "unique", &[("of", "dst_ip")]),
    (&["unique.flows", "unique.flows.value"], Count, "unique", &[("of", "flows")]),
    (&["new_flows", "new_flows.value"], Flows, "new_flows", &[]),
    (&["new_flows.fill"], PART, "new_flows.fill", &[]),
    (&["new_hosts", "new_hosts.value"], Count, NEW_HOSTS, &[]),
];

/// Numbers of each interface, except those of its ledger.
const OF_INTERFACES: &[Listed] = &[
    (&["tcp.syn", "interfaces.tcp.syn"], Packets, "interface.tcp.packets", &[("flags", "syn")]),
    (&["tcp.syn_ack", "interfaces.tcp.syn_ack"], Packets, "interface.tcp.packets", &[("flags", "syn_ack")]),
    (&["tcp.rst", "interfaces.tcp.rst"], Packets, "interface.tcp.packets", &[("flags", "rst")]),
    (&["tcp.fin", "interfaces.tcp.fin"], Packets, "interface.tcp.packets", &[("flags", "fin")]),
    (&["coverage", "interfaces.coverage"], Dimension::Share { may_exceed: true }, "interface.coverage", &[]),
    (&["blind_seconds", "interfaces.blind_seconds"], Number, "interface.blind", &[]),
    (&["kept", "interfaces.kept"], PART, "interface.kept", &[]),
    (&["sampling", "interfaces.sampling"], Number, "interface.sampling", &[]),
    (&["usage.bytes"], Volume, "usage.bytes", &[]),
    (&["rates.packets.max", "rates.packets"], PacketsOfSecond, "interface.rate.packets", &[("quantile", "1")]),
    (&["rates.bytes.max", "rates.bytes"], BytesOfSecond, "interface.rate.bytes", &[("quantile", "1")]),
];

/// Numbers of weir itself.
const OF_WEIR: &[Listed] = &[
    (&["self.rings.peak_fill"], PART, "ring.peak_fill", &[]),
    (&["self.cache_hit_rate"], PART, "cache.hit_ratio", &[]),
    (&["self.cpu_ns_per_packet"], Number, "cpu.per_packet", &[]),
    (&["self.rss_bytes"], Number, "memory.resident", &[]),
];

/// All names that a rule may use.
#[derive(Debug, Default)]
pub struct Catalogue(Vec<Named>);

/// A subject with all of its names.
#[derive(Debug)]
struct Named {
    names: Vec<String>,
    subject: Subject,
}

impl Catalogue {
    /// The names for these standard views and for the user's views. If a standard view and a user's view have the same
    /// name, the user's view gets it, and the standard view only has its longer names.
    pub fn new(standard: impl IntoIterator<Item = Standard>, own: &[View]) -> Self {
        let mut all = Self::default();
        for view in own {
            all.add_view(view, None);
        }
        for standard in standard {
            all.add_standard(standard);
        }
        all.add(OF_TRAFFIC, false);
        all.add_ledgers();
        all.add(OF_INTERFACES, true);
        all.add(OF_WEIR, false);
        all
    }

    /// Adds the distinct counts over these horizons.
    #[must_use]
    pub fn with_horizons(mut self, horizons: &[Duration]) -> Self {
        for horizon in horizons.iter().map(|horizon| horizon_name(horizon.as_secs())) {
            for of in ["src_ip", "dst_ip", "flows"] {
                let name = format!("{HORIZONS}{horizon}.{of}");
                let names = vec![name.clone(), format!("{name}.value")];
                self.insert(names, Count, Selector::new("horizon.unique", &[("horizon", &horizon), ("of", of)]));
            }
        }
        self
    }

    /// The names for these standard views alone.
    pub fn of_standard(standard: impl IntoIterator<Item = Standard>) -> Self {
        let mut all = Self::default();
        for standard in standard {
            all.add_standard(standard);
        }
        all
    }

    /// The subject with this name.
    pub fn find(&self, name: &str) -> Option<&Subject> {
        self.0.iter().find(|named| named.names.iter().any(|known| known == name)).map(|named| &named.subject)
    }

    /// All names, including alternative spellings.
    pub fn spellings(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|named| named.names.iter().map(String::as_str))
    }

    /// The first name of each subject.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|named| named.subject.name.as_str())
    }

    fn add(&mut self, listed: &[Listed], is_per_interface: bool) {
        for (names, dimension, series, labels) in listed {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            if let Some(subject) = self.insert(names, *dimension, Selector::new(*series, labels)) {
                subject.is_per_interface = is_per_interface;
            }
        }
    }

    /// Adds a subject under those of the names that are not used yet.
    fn insert(&mut self, names: Vec<String>, dimension: Dimension, selector: Selector) -> Option<&mut Subject> {
        let names: Vec<_> = names.into_iter().filter(|name| self.find(name).is_none()).collect();
        let name = names.first()?.clone();
        let subject = Subject { name, dimension, is_listed: false, is_per_interface: false, standard: None, selector };
        self.0.push(Named { names, subject });
        self.0.last_mut().map(|named| &mut named.subject)
    }

    fn add_view(&mut self, view: &View, standard: Option<Standard>) {
        let View { name: view_name, by, measure, per_interface, has_entropy, .. } = view;
        let is_one = by.is_empty() && !per_interface;
        let names = |what: &str| vec![format!("{view_name}.{what}"), format!("views.{view_name}.{what}")];
        let mut put = |names: Vec<String>, dimension, is_listed, selector| {
            if let Some(subject) = self.insert(names, dimension, selector) {
                (subject.is_listed, subject.is_per_interface, subject.standard) = (is_listed, *per_interface, standard);
            }
        };
        let selector = |series: String| Selector::new(series, &[("view", view_name)]);
        let counted = match measure {
            Measure::Bytes | Measure::Packets => {
                for (amount, dimension) in AMOUNTS {
                    let total = selector(format!("view.sum.{amount}"));
                    let total_names = names(&format!("total.{amount}"));
                    // A view without a key only has a total, which is in every window.
                    if is_one {
                        put([names(amount), total_names].concat(), dimension, false, total);
                        continue;
                    }
                    put(names(amount), dimension, true, selector(format!("view.{amount}")));
                    // An interface without packets has no table.
                    put(total_names, dimension, *per_interface, total);
                }
                None
            }
            Measure::Flows => Some(("flows", Count)),
            Measure::NewFlows => Some(("new_flows", Flows)),
            Measure::Distinct(_) => Some(("distinct", Count)),
        };
        if let Some((name, dimension)) = counted {
            let short = [view_name.clone(), format!("views.{view_name}")];
            put(names(name).into_iter().chain(short).collect(), dimension, !is_one, selector(format!("view.{name}")));
        }
        if *has_entropy {
            for (what, dimension, series) in [
                ("bits", Number, "view.entropy"),
                ("normalized", PART, "view.entropy.normalized"),
                ("keys", Count, "view.entropy.keys"),
            ] {
                put(names(&format!("entropy.{what}")), dimension, false, selector(series.to_owned()));
            }
        }
    }

    fn add_standard(&mut self, standard: Standard) {
        let name = standard.name();
        let view = standard.view(0.0, 0);
        if standard.is_per_interface() {
            self.add_view(&view, Some(standard));
            return;
        }
        let mut put = |names: Vec<String>, dimension, selector| {
            if let Some(subject) = self.insert(names, dimension, selector) {
                (subject.is_listed, subject.standard) = (true, Some(standard));
            }
        };
        let selector = |series: &str| Selector::new(series, &[("list", name)]);
        if !view.measure.is_tally() {
            let names =
                ["distinct", ""].map(|what| if what.is_empty() { name.to_owned() } else { format!("{name}.{what}") });
            let spellings = names.clone().map(|name| format!("spread.{name}"));
            put(names.into_iter().chain(spellings).collect(), Count, selector("spread"));
            return;
        }
        for (amount, dimension) in AMOUNTS {
            let names = |what: &str| -> Vec<String> {
                let short = format!("{name}.{what}");
                let long = ["top.", "top_"].map(|top| format!("{top}{short}"));
                // The measure determines which list it is.
                let other = (amount == "packets").then(|| format!("top_by_packets.{short}"));
                [short].into_iter().chain(long).chain(other).collect()
            };
            put(names(amount), dimension, selector(&format!("top.{amount}")));
            if standard.of_addresses().is_some() {
                put(names(&format!("beyond.{amount}")), dimension, selector(&format!("top.beyond.{amount}")));
            }
        }
    }

    /// Adds the numbers of the interfaces' ledgers.
    fn add_ledgers(&mut self) {
        let skipped = Skip::ALL.iter().map(|reason| ("skipped", Some(reason.name())));
        let lost = Loss::ALL.iter().map(|reason| ("lost", Some(reason.name())));
        let whole = [("seen", None), ("attributed", None), ("sampled_out", None), ("repeated", None)];
        let accounts = whole.into_iter().chain([("skipped", None)]).chain(skipped).chain([("lost", None)]).chain(lost);
        for (kind, reason) in accounts {
            let name = reason.map_or_else(|| kind.to_owned(), |reason| format!("{kind}.{reason}"));
            let long = if kind == "repeated" { "interfaces" } else { "interfaces.ledger" };
            for (amount, dimension) in AMOUNTS {
                let full = format!("{name}.{amount}");
                // A name without `packets` or `bytes` means packets.
                let short = (amount == "packets").then(|| name.clone());
                let long = [format!("ledger.{full}"), format!("{long}.{full}")];
                let names = [full].into_iter().chain(short).chain(long).collect();
                let selector = if ["seen", "repeated"].contains(&kind) {
                    Selector::new(format!("interface.{kind}.{amount}"), &[])
                } else {
                    let reason = reason.map(|reason| ("reason", reason));
                    let labels: Vec<_> = [("kind", kind)].into_iter().chain(reason).collect();
                    Selector::new(format!("interface.accounted.{amount}"), &labels)
                };
                if let Some(subject) = self.insert(names, dimension, selector) {
                    subject.is_per_interface = true;
                }
            }
        }
    }
}
