//! Sums: ledgers, totals, packet sizes.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;
use weir_common::ledger::Tally;

use super::{Estimate, Missing, Verdict};
use crate::{
    account::{self, Ledger},
    oracle::{Oracle, SIZE_EDGES, Totals},
};

impl Oracle {
    /// Compares all sums. Returns what the ledgers declare as missing.
    pub(super) fn check_sums(&self, reports: &[Value], verdict: &mut Verdict) -> Missing {
        let mut sums = Sums::default();
        for report in reports {
            sums.add(report, verdict);
        }
        let Sums { ledger, totals, sizes, classes, tcp } = sums;
        let Ledger { seen, attributed, sampled_out, skipped, lost } = &ledger;
        let missing = Missing { lost: ledger.all_lost(), sampled_out: *sampled_out };
        verdict.equal_tally(".ledger.seen", self.sent(), *seen);
        let accounted = [*attributed, missing.lost, missing.sampled_out].into_iter().sum();
        verdict.equal_tally(".ledger.attributed and what is missing", self.attributed(), accounted);
        let nothing = Tally::default();
        let reasons: HashSet<_> = skipped.keys().map(String::as_str).chain(self.skipped.keys().copied()).collect();
        for reason in reasons {
            let truth = self.skipped.get(reason).unwrap_or(&nothing);
            verdict.equal_tally(&format!(".ledger.skipped.{reason}"), *truth, *skipped.get(reason).unwrap_or(&nothing));
        }
        verdict.equal_tally(".totals", self.sent(), Tally::new(totals["packets"], totals["bytes"]));
        if missing.sampled_out.is_zero() {
            let Totals { ipv4, ipv6, tcp, udp, icmp, other } = self.totals();
            for (name, truth) in [
                ("ipv4_packets", ipv4),
                ("ipv6_packets", ipv6),
                ("tcp_packets", tcp),
                ("udp_packets", udp),
                ("icmp_packets", icmp),
                ("other_packets", other),
            ] {
                verdict.short_by(&format!(".totals.{name}"), truth, totals[name], missing.lost.packets);
            }
            // Each packet that is in a flow is of one version and of one protocol.
            let sum = |names: &[&str]| names.iter().map(|name| totals[*name]).sum();
            let protocols = ["tcp_packets", "udp_packets", "icmp_packets", "other_packets"];
            verdict.equal(".totals, by version", attributed.packets, sum(&["ipv4_packets", "ipv6_packets"]));
            verdict.equal(".totals, by protocol", attributed.packets, sum(&protocols));
        }
        for (name, truth) in self.tcp() {
            let (place, stated) = (format!(".tcp.{name}"), tcp.get(name).copied().unwrap_or_default());
            // The bounds are stretched as for distinct counts, so that those of many reports do not fail by chance.
            if stated.is_exact() {
                verdict.equal(&place, truth, stated.value);
            } else if !stated.stretched(super::stretch(1.0 - TCP_CONFIDENCE)).holds(truth) {
                verdict.deviates(&place, &format!("{truth} is far outside of the bounds {stated}"));
            }
        }
        // It is unknown which packets a socket dropped.
        let unread = ["socket_drop", "blind"].iter().filter_map(|reason| lost.get(*reason));
        let mut dropped: u64 = unread.map(|tally| tally.packets).sum();
        for (edge, truth) in self.size_classes() {
            let (place, stated) =
                (format!(".packet_sizes up to {edge}"), classes.get(&edge).copied().unwrap_or_default());
            verdict.short_by(&place, truth, stated, dropped);
            dropped = dropped.saturating_sub(truth.saturating_sub(stated));
        }
        if classes.keys().any(|edge| !SIZE_EDGES.contains(edge)) {
            verdict.deviates(".packet_sizes", &format!("other classes than {SIZE_EDGES:?}: {classes:?}"));
        }
        let SizeSums { count, min, max } = sizes;
        verdict.equal(".histograms.packet_size_bytes.count", self.sent().packets, count);
        let [first, last] = [self.sizes.first_key_value(), self.sizes.last_key_value()];
        verdict.equal(".histograms.packet_size_bytes.min", first.map_or(0, |(size, _)| *size), min.unwrap_or(0));
        verdict.equal(".histograms.packet_size_bytes.max", last.map_or(0, |(size, _)| *size), max);
        missing
    }
}

/// The sums over reports.
#[derive(Default)]
struct Sums {
    ledger: Ledger,
    totals: HashMap<&'static str, u64>,
    sizes: SizeSums,
    /// Packets by the upper edge of their size class.
    classes: BTreeMap<u64, u64>,
    tcp: HashMap<&'static str, Estimate>,
}

/// The confidence of the bounds of TCP's packets, which is that of all lists.
const TCP_CONFIDENCE: f64 = 0.999;

#[derive(Default)]
struct SizeSums {
    count: u64,
    min: Option<u64>,
    max: u64,
}

impl Sums {
    fn add(&mut self, report: &Value, verdict: &mut Verdict) {
        const TOTALS: [&str; 8] = [
            "packets",
            "bytes",
            "ipv4_packets",
            "ipv6_packets",
            "tcp_packets",
            "udp_packets",
            "icmp_packets",
            "other_packets",
        ];
        match report["interfaces"].as_array() {
            Some(interfaces) => {
                for (nth, interface) in interfaces.iter().enumerate() {
                    self.add_ledger(nth, interface, verdict);
                }
            }
            None => verdict.deviates(".interfaces", "is not a list"),
        }
        for name in TOTALS {
            *self.totals.entry(name).or_default() += verdict.number(report, &format!("/totals/{name}"));
        }
        let count = verdict.number(report, "/histograms/packet_size_bytes/count");
        self.sizes.count += count;
        // Without packets, the smallest and the largest mean nothing.
        if count > 0 {
            let min = verdict.number(report, "/histograms/packet_size_bytes/min");
            self.sizes.min = Some(self.sizes.min.map_or(min, |least| least.min(min)));
            self.sizes.max = self.sizes.max.max(verdict.number(report, "/histograms/packet_size_bytes/max"));
        }
    }

    /// Adds an interface's ledger, and checks that it balances. Packets that were already counted on another interface
    /// are in that one's ledger.
    fn add_ledger(&mut self, nth: usize, interface: &Value, verdict: &mut Verdict) {
        let place = format!(".interfaces[{nth}].ledger");
        match Ledger::read(interface) {
            Ok(ledger) => {
                let law = format!("{place}: attributed, sampled out, skipped and lost");
                verdict.equal_tally(&law, ledger.seen, ledger.accounted());
                if interface["feeds"] != "none" {
                    self.ledger.add(&ledger);
                    self.add_tcp(nth, &interface["tcp"], verdict);
                    match account::sizes(interface) {
                        Ok(sizes) => sizes.iter().for_each(|(edge, packets)| {
                            *self.classes.entry(*edge).or_default() += packets;
                        }),
                        Err(error) => verdict.deviates(&format!(".interfaces[{nth}]"), &format!("{error:#}")),
                    }
                }
            }
            Err(error) => verdict.deviates(&place, &format!("{error:#}")),
        }
    }

    /// Adds an interface's packets that begin or end TCP connections. Without bounds they are exact.
    fn add_tcp(&mut self, nth: usize, tcp: &Value, verdict: &mut Verdict) {
        for (name, _) in Oracle::new().tcp() {
            let value = verdict.number(tcp, &format!("/{name}"));
            let [lower, upper] = match tcp.get("bounds") {
                Some(bounds) => ["lower", "upper"].map(|end| verdict.number(bounds, &format!("/{name}/{end}"))),
                None => [value; 2],
            };
            if !(lower..=upper).contains(&value) {
                verdict.deviates(&format!(".interfaces[{nth}].tcp.{name}"), "is outside of its own bounds");
            }
            let sum = self.tcp.entry(name).or_default();
            *sum = Estimate { value: sum.value + value, lower: sum.lower + lower, upper: sum.upper + upper };
        }
    }
}
