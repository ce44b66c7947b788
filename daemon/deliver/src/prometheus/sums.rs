//! Sums over all windows since the start. Only these may be counters: the numbers of single windows go up and down.

use std::collections::BTreeMap;

use weir_report::{Interface, Ledger, Report, Tally, TcpPackets, Totals};

/// How many interfaces are remembered. Beyond this, those that have been absent from reports longest are forgotten.
const REMEMBERED_MAX: usize = 512;

/// A part of an interface's ledger: kind and reason.
pub(super) type Part = (&'static str, String);

/// The sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// Windows that have ended.
    pub(super) windows: u64,
    /// The sums over all interfaces.
    pub(super) totals: Totals,
    /// Records that the kernel sent.
    pub(super) records: u64,
    /// The sums by name and direction.
    pub(super) interfaces: BTreeMap<(String, Option<String>), InterfaceSums>,
}

/// The sums of one interface and direction.
#[derive(Clone, Debug, Default)]
pub(super) struct InterfaceSums {
    /// All packets that weir saw.
    pub(super) seen: Tally,
    /// What became of them. They add up to `seen`.
    pub(super) parts: BTreeMap<Part, Tally>,
    /// Packets that feed totals and lists on another interface.
    pub(super) repeated: Tally,
    /// Packets that begin or end TCP connections: SYN, SYN with ACK, RST, FIN.
    pub(super) tcp: [u64; 4],
    /// The last window in which the interface appeared.
    last: u64,
}

impl Sums {
    /// Adds a window.
    pub(super) fn add(&mut self, report: &Report) {
        self.windows += 1;
        self.records += report.self_metrics.records;
        let Totals {
            packets,
            bytes,
            ipv4_packets,
            ipv6_packets,
            tcp_packets,
            udp_packets,
            icmp_packets,
            other_packets,
            bounds: _,
        } = report.totals;
        let all = &mut self.totals;
        for (sum, number) in [
            (&mut all.packets, packets),
            (&mut all.bytes, bytes),
            (&mut all.ipv4_packets, ipv4_packets),
            (&mut all.ipv6_packets, ipv6_packets),
            (&mut all.tcp_packets, tcp_packets),
            (&mut all.udp_packets, udp_packets),
            (&mut all.icmp_packets, icmp_packets),
            (&mut all.other_packets, other_packets),
        ] {
            *sum += number;
        }
        for interface in &report.interfaces {
            let key = (interface.name.clone(), interface.direction.clone());
            let sums = self.interfaces.entry(key).or_default();
            sums.add(interface);
            sums.last = self.windows;
        }
        self.forget();
    }

    /// Interfaces come and go, with ever new names.
    fn forget(&mut self) {
        while self.interfaces.len() > REMEMBERED_MAX {
            let oldest = self.interfaces.iter().min_by_key(|(_, sums)| sums.last);
            match oldest.map(|(key, sums)| (key.clone(), sums.last)) {
                Some((key, last)) if last < self.windows => self.interfaces.remove(&key),
                _ => return,
            };
        }
    }
}

impl InterfaceSums {
    fn add(&mut self, Interface { ledger, repeated, tcp, .. }: &Interface) {
        let Ledger { seen, attributed, sampled_out, skipped, lost, uncertain: _ } = ledger;
        add(&mut self.seen, seen);
        add(&mut self.repeated, repeated);
        let whole = [("attributed", attributed), ("sampled_out", sampled_out)];
        for (kind, tally) in whole {
            add(self.parts.entry((kind, String::new())).or_default(), tally);
        }
        for (kind, reasons) in [("skipped", skipped), ("lost", lost)] {
            for (reason, tally) in reasons {
                add(self.parts.entry((kind, reason.clone())).or_default(), tally);
            }
        }
        let TcpPackets { syn, syn_ack, rst, fin, bounds: _ } = tcp;
        for (sum, number) in self.tcp.iter_mut().zip([syn, syn_ack, rst, fin]) {
            *sum += number;
        }
    }
}

fn add(sum: &mut Tally, Tally { packets, bytes }: &Tally) {
    sum.packets += packets;
    sum.bytes += bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> Report {
        serde_json::from_str(include_str!("../../../report/tests/golden/report.json")).unwrap()
    }

    #[test]
    fn sums_only_grow_and_balance() {
        let report = golden();
        let mut sums = Sums::default();
        for windows in 1..=3 {
            sums.add(&report);
            assert_eq!((sums.windows, sums.totals.packets), (windows, windows * report.totals.packets));
            let eth0 = &sums.interfaces[&("eth0".to_owned(), Some("ingress".to_owned()))];
            assert_eq!(eth0.seen.packets, windows * 1_100_345);
            assert_eq!(eth0.parts[&("skipped", "arp".to_owned())].bytes, windows * 345_678);
            assert_eq!(eth0.tcp, [12_004, 11_800, 320, 22_610].map(|number| windows * number));
            for sums in sums.interfaces.values() {
                let mut parts = Tally::default();
                for part in sums.parts.values() {
                    add(&mut parts, part);
                }
                assert_eq!(parts, sums.seen);
            }
        }
        // An interface that no longer appears in reports keeps its sums.
        let mut without = report.clone();
        without.interfaces.clear();
        sums.add(&without);
        assert_eq!(sums.interfaces.len(), report.interfaces.len());
    }

    #[test]
    fn interfaces_under_ever_new_names_take_no_more_memory() {
        let mut report = golden();
        report.interfaces.truncate(1);
        let mut sums = Sums::default();
        for nth in 0..2 * REMEMBERED_MAX {
            report.interfaces[0].name = format!("ppp{nth}");
            sums.add(&report);
        }
        assert_eq!(sums.interfaces.len(), REMEMBERED_MAX);
        let newest = (format!("ppp{}", 2 * REMEMBERED_MAX - 1), Some("ingress".to_owned()));
        assert!(sums.interfaces.contains_key(&newest));
    }
}
