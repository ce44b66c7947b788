//! Ledgers, totals, and counts of distinct things.

use serde_json::Value;

use weir_common::ledger::Tally;

use super::{Faults, Range, Sums, Whole, account, list};
use crate::account::Ledger;

/// Reasons for losing packets whose sizes are not known.
const SIZELESS: [&str; 2] = ["socket_drop", "blind"];

pub(super) fn judge(report: &Value, faults: &mut Faults) -> Whole {
    let whole = ledgers(report, faults);
    protocols(report, whole.once.packets, faults);
    let packets = whole.once.packets.upper;
    for name in ["src_ip", "dst_ip", "flows"] {
        let place = format!(".unique.{name}");
        // A late CPU's packets are counted before its counters.
        if !whole.is_late {
            faults.at_most(&place, Range::read(&report["unique"][name]).upper, packets);
        }
    }
    if !whole.is_late {
        faults.at_most(".new_flows", Range::read(&report["new_flows"]).upper, packets);
    }
    whole
}

fn ledgers(report: &Value, faults: &mut Faults) -> Whole {
    let [mut seen, mut repeated, mut sampled_out, mut beyond] = [Tally::default(); 4];
    let (mut sizeless, mut highest) = (0, 1);
    for (nth, interface) in list(&report["interfaces"]).iter().enumerate() {
        let place = format!(".interfaces[{nth}]");
        let (Ok(ledger), Ok(again)) = (Ledger::read(interface), account::tally(&interface["repeated"])) else {
            faults.expect(false, &place, || "has no ledger".to_owned());
            continue;
        };
        faults.expect(ledger.seen == ledger.accounted(), &place, || format!("does not balance: {ledger:?}"));
        faults.at_most(&format!("{place}.repeated.packets"), again.packets, ledger.seen.packets);
        faults.at_most(&format!("{place}.repeated.bytes"), again.bytes, ledger.seen.bytes);
        let rate = interface["sampling"].as_u64().unwrap_or_default();
        faults.expect(rate > 1 || ledger.sampled_out.is_zero(), &place, || {
            format!("{:?} are left out at a rate of {rate}", ledger.sampled_out)
        });
        let tcp = &interface["tcp"];
        for name in ["syn", "syn_ack", "rst", "fin"] {
            let (place, count) = (format!("{place}.tcp.{name}"), tcp[name].as_u64().unwrap_or_default());
            let bounds = &tcp["bounds"][name];
            let number = |bound: &str| bounds[bound].as_u64().unwrap_or(count);
            let (lower, upper) = (number("lower"), number("upper"));
            faults.expect(lower <= count && count <= upper, &place, || format!("{count} of {lower} to {upper}"));
            if report["self"]["late_cpus"].is_null() && list(&report["reports"]).len() < 2 {
                faults.at_most(&place, upper, ledger.seen.packets);
            }
        }
        seen.add(ledger.seen);
        beyond.add(super::beyond(interface));
        repeated.add(again);
        sampled_out.add(ledger.sampled_out);
        sizeless += SIZELESS.iter().filter_map(|reason| ledger.lost.get(*reason)).map(|lost| lost.packets).sum::<u64>();
        highest = highest.max(rate);
    }
    let fed = seen.since(repeated);
    let totals = &report["totals"];
    faults.equal(".totals.packets", totals["packets"].as_u64().unwrap_or_default(), fed.packets);
    faults.equal(".totals.bytes", totals["bytes"].as_u64().unwrap_or_default(), fed.bytes);
    for name in ["top", "top_by_packets"] {
        let top = &report[name];
        faults.equal(&format!(".{name}.sampling"), top["sampling"].as_u64().unwrap_or_default(), highest);
        let is_sure = top["confidence"].as_f64() == Some(1.0);
        faults.expect(!is_sure || sampled_out.is_zero(), &format!(".{name}.confidence"), || {
            format!("{} where {sampled_out:?} are left out", top["confidence"])
        });
    }
    Whole {
        once: Sums::at_least(fed, beyond),
        each: Sums::at_least(seen, beyond),
        has_repeated: !repeated.is_zero(),
        sizeless,
        is_late: !report["self"]["late_cpus"].is_null(),
    }
}

/// Checks the packets by version and by protocol: each packet has one version and one protocol.
fn protocols(report: &Value, all: Range, faults: &mut Faults) {
    const VERSIONS: [&str; 2] = ["ipv4_packets", "ipv6_packets"];
    const PROTOCOLS: [&str; 4] = ["tcp_packets", "udp_packets", "icmp_packets", "other_packets"];
    let totals = &report["totals"];
    let sum = |names: &[&str], of: &dyn Fn(&str) -> Option<u64>| -> u64 {
        names.iter().map(|name| of(name).unwrap_or_default()).sum()
    };
    let count = |name: &str| totals[name].as_u64();
    let by_version = sum(&VERSIONS, &count);
    faults.at_most(".totals, by version", by_version, all.value);
    faults.at_most(".totals, by protocol", sum(&PROTOCOLS, &count), all.value);
    let bounds = &totals["bounds"];
    if bounds.is_null() {
        faults.equal(".totals, by protocol", sum(&PROTOCOLS, &count), by_version);
        let is_open = list(&report["interfaces"]).iter().any(|interface| {
            Ledger::read(interface).is_ok_and(|ledger| !ledger.sampled_out.is_zero() || !ledger.all_lost().is_zero())
        });
        faults.expect(!is_open, ".totals", || "has no bounds, and packets are missing".to_owned());
        return;
    }
    let lower = |name: &str| bounds[name]["lower"].as_u64();
    for names in [&VERSIONS[..], &PROTOCOLS] {
        faults.at_most(".totals.bounds, lower", sum(names, &lower), all.value);
    }
    for name in VERSIONS.iter().chain(&PROTOCOLS) {
        let (value, bounds) = (count(name).unwrap_or_default(), &bounds[*name]);
        let [lower, upper] = ["lower", "upper"].map(|bound| bounds[bound].as_u64().unwrap_or(u64::MAX));
        let is_between = lower <= value && value <= upper;
        faults.expect(is_between, &format!(".totals.{name}"), || format!("{value} of {lower} to {upper}"));
        faults.at_most(&format!(".totals.bounds.{name}"), upper, all.upper);
    }
}
