//! The verdict: compares reports with the truth, and lists each deviation in a line of its own.
//!
//! Each line begins with the place in the report, written as a path for `jq`.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use serde_json::Value;
use weir_common::ledger::Tally;

use super::{By, Dimension, Oracle, Subject, Totals};
use crate::{
    account::Ledger,
    chance,
    truth::{Key, Lacks},
};

/// Of each top list so many entries have to be there, in the right order.
const TOP_RANKED: usize = 10;
/// How far a count of distinct things may be off: so much of the truth. Below 50 that is not at all.
const UNIQUE_ERROR_MAX: f64 = 0.02;
/// How far a quantile of packet sizes may be off: so much of the truth.
const QUANTILE_ERROR_MAX: f64 = 0.02;

/// Protocols that reports name, by all names in use.
const PROTOS: [(u8, &[&str]); 14] = [
    (1, &["icmp"]),
    (2, &["igmp"]),
    (4, &["ipip", "ipv4", "ip-in-ip", "ipencap"]),
    (6, &["tcp"]),
    (17, &["udp"]),
    (33, &["dccp"]),
    (41, &["6in4", "ipv6"]),
    (47, &["gre"]),
    (50, &["esp"]),
    (51, &["ah"]),
    (58, &["icmpv6", "icmp6", "ipv6-icmp"]),
    (89, &["ospf", "ospfigp"]),
    (132, &["sctp"]),
    (136, &["udplite", "udp-lite", "udp_lite"]),
];

/// The name of a protocol, or its number as text.
pub(super) fn proto_name(proto: u8) -> String {
    let named = PROTOS.iter().find(|(number, _)| *number == proto);
    named.map_or_else(|| proto.to_string(), |(_, names)| names[0].to_owned())
}

fn proto_number(name: &str) -> Option<u8> {
    /// Named by some, and not by [`proto_name`].
    const MORE: [(u8, &str); 17] = [
        (8, "egp"),
        (9, "igp"),
        (27, "rdp"),
        (46, "rsvp"),
        (59, "ipv6-nonxt"),
        (88, "eigrp"),
        (97, "etherip"),
        (103, "pim"),
        (108, "ipcomp"),
        (112, "vrrp"),
        (115, "l2tp"),
        (135, "mobility"),
        (135, "mobility-header"),
        (137, "mpls-in-ip"),
        (139, "hip"),
        (140, "shim6"),
        (143, "ethernet"),
    ];
    let also = MORE.iter().find(|(_, more)| *more == name).map(|(number, _)| *number);
    let listed = PROTOS.iter().find(|(_, names)| names.contains(&name)).map(|(number, _)| *number);
    listed.or(also).or_else(|| name.parse().ok())
}

impl Oracle {
    /// Compares one report with everything that is known about its window.
    ///
    /// Ledgers, totals and the packet sizes' count, smallest and largest have to be right to the packet; every truth
    /// has to lie within the bounds reported for it; distinct counts within 2 %; the first ten of each top list have to
    /// be the true ones, where equals may change places.
    ///
    /// Where the ledger declares packets lost, all of this is checked as far as those packets leave it certain: a count
    /// may be short of the truth by as many, and keys may change places that are no further apart. What was lost of
    /// which key is not known, so bounds have to hold as they are. Where packets were sampled out, the order of lists
    /// and protocols' counts are left to chance, and not checked; ledgers and all bounds are.
    ///
    /// # Errors
    ///
    /// All deviations.
    pub fn check_report(&self, report: &Value) -> Result<(), Vec<String>> {
        let mut verdict = Verdict::default();
        let missing = self.check_sums(std::slice::from_ref(report), &mut verdict);
        self.check_unique(report, missing, &mut verdict);
        self.check_new_flows(report, &mut verdict);
        self.check_quantiles(report, &mut verdict);
        for (place, by) in [("top", By::Bytes), ("top_by_packets", By::Packets)] {
            self.check_top(&report[place], place, by, missing, &mut verdict);
        }
        verdict.result()
    }

    /// Compares what several reports, of consecutive windows, add up to with what is known of all their packets; and
    /// each ledger of each report with itself.
    ///
    /// For live traffic, of which nobody knows exactly which packet fell into which window.
    ///
    /// # Errors
    ///
    /// All deviations.
    pub fn check_reports(&self, reports: &[Value]) -> Result<(), Vec<String>> {
        let mut verdict = Verdict::default();
        self.check_sums(reports, &mut verdict);
        let ids: HashSet<_> = reports.iter().map(|report| report["id"].to_string()).collect();
        verdict.equal(".id: different ones", reports.len() as u64, ids.len() as u64);
        for pair in reports.windows(2) {
            let [earlier, later] = [&pair[0], &pair[1]].map(|report| verdict.number(report, "/observer/seq"));
            verdict.equal(".observer.seq", earlier + 1, later);
        }
        verdict.result()
    }

    /// Compares everything that adds up. Gives what the ledgers declare as missing.
    fn check_sums(&self, reports: &[Value], verdict: &mut Verdict) -> Missing {
        let mut sums = Sums::default();
        for report in reports {
            sums.add(report, verdict);
        }
        let Sums { ledger, totals, sizes } = sums;
        let Ledger { seen, attributed, sampled_out, skipped, lost: _ } = &ledger;
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
        let SizeSums { count, min, max } = sizes;
        verdict.equal(".histograms.packet_size_bytes.count", self.sent().packets, count);
        let [first, last] = [self.sizes.first_key_value(), self.sizes.last_key_value()];
        verdict.equal(".histograms.packet_size_bytes.min", first.map_or(0, |(size, _)| *size), min.unwrap_or(0));
        verdict.equal(".histograms.packet_size_bytes.max", last.map_or(0, |(size, _)| *size), max);
        missing
    }

    /// One report says each of these numbers once, at a confidence that is wrong once in a thousand reports; a suite
    /// with hundreds of them would often fail by chance. So the bounds are taken as far out as they would be if they
    /// were to fail once in a million, for an error that is distributed normally. That they hold as often as they say
    /// needs many draws: see `replay/confidence.rs`.
    fn check_unique(&self, report: &Value, missing: Missing, verdict: &mut Verdict) {
        for (name, dimension) in
            [("src_ip", Dimension::Sources), ("dst_ip", Dimension::Destinations), ("flows", Dimension::Flows)]
        {
            let place = format!(".unique.{name}");
            let unique = &report["unique"][name];
            let Some(estimate) = verdict.estimate(unique, &place) else { continue };
            let truth = self.distinct(dimension);
            let failure = 1.0 - unique["confidence"].as_f64().unwrap_or(1.0);
            let stretch = (chance::deviations(chance::FALSE_ALARM) / chance::deviations(failure)).max(1.0);
            if !estimate.stretched(stretch).holds(truth) {
                verdict.deviates(&place, &format!("{truth} is outside of {stretch:.2} times the bounds {estimate}"));
            }
            // A packet that is missing may have been the only one of its flow.
            let least = truth.saturating_sub(missing.lost.packets);
            let close = least as f64 * (1.0 - UNIQUE_ERROR_MAX)..=truth as f64 * (1.0 + UNIQUE_ERROR_MAX);
            if missing.sampled_out.is_zero() && !close.contains(&(estimate.value as f64)) {
                verdict.deviates(
                    &place,
                    &format!(
                        "{} is more than 2 % away from {truth}, of which at least {least} are known",
                        estimate.value
                    ),
                );
            }
        }
    }

    fn check_new_flows(&self, report: &Value, verdict: &mut Verdict) {
        let Some(estimate) = verdict.estimate(&report["new_flows"], ".new_flows") else { return };
        let truth = self.new_flows();
        if !estimate.holds(truth) {
            verdict.deviates(".new_flows", &format!("{truth} is outside of the bounds {estimate}"));
        }
    }

    fn check_quantiles(&self, report: &Value, verdict: &mut Verdict) {
        let packets = self.sent().packets;
        // Of nothing there are no quantiles.
        if packets == 0 {
            return;
        }
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let place = format!(".histograms.packet_size_bytes.{name}");
            let value = verdict.number(report, &format!("/histograms/packet_size_bytes/{name}"));
            // Whoever rounds the rank in another way finds the neighbour.
            let nth = (share * packets as f64) as u64;
            let [low, high] = [nth.saturating_sub(1), nth + 2].map(|nth| self.size_of_nth(nth).unwrap_or_default());
            let (least, most) = (low as f64 * (1.0 - QUANTILE_ERROR_MAX), high as f64 * (1.0 + QUANTILE_ERROR_MAX));
            if !(least..=most).contains(&(value as f64)) {
                verdict.deviates(&place, &format!("{value} is more than 2 % away from {low} to {high}"));
            }
        }
    }

    fn check_top(&self, top: &Value, place: &str, by: By, missing: Missing, verdict: &mut Verdict) {
        if top["by"].as_str().is_some_and(|named| named != by.name()) {
            verdict.deviates(&format!(".{place}.by"), &format!("{} should be \"{}\"", top["by"], by.name()));
        }
        for dimension in Dimension::ALL {
            let place = format!(".{place}.{}", dimension.name());
            let Some(list) = top[dimension.name()].as_array() else {
                verdict.deviates(&place, "is not a list");
                continue;
            };
            TopCheck { truth: self.tallies(dimension), dimension, by, slack: missing.slack(by), place }
                .check(list, verdict);
        }
    }
}

/// What the ledgers declare as missing from the records.
#[derive(Clone, Copy)]
struct Missing {
    lost: Tally,
    sampled_out: Tally,
}

impl Missing {
    /// How far the order of a list may be off: nothing is where nothing is missing. `None` where chance decides.
    fn slack(self, by: By) -> Option<u64> {
        self.sampled_out.is_zero().then(|| by.of(self.lost))
    }
}

/// One top list under judgement.
///
/// Of a key that truly had t, at least t - `slack` was counted. So whatever is counted most in rank r had, in truth,
/// what belongs to this rank, or at most `slack` more or less; and whoever had more than `slack` beyond the last rank
/// has to be listed.
struct TopCheck {
    truth: HashMap<Subject, Tally>,
    dimension: Dimension,
    by: By,
    slack: Option<u64>,
    place: String,
}

impl TopCheck {
    fn check(&self, list: &[Value], verdict: &mut Verdict) {
        let mut ranked: Vec<_> = self.truth.values().map(|tally| self.by.of(*tally)).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(slack) = self.slack {
            // One that had no more than what is missing may be missing itself.
            let expected = ranked.iter().take(TOP_RANKED).filter(|truth| **truth > slack).count();
            if list.len() < expected {
                verdict.deviates(&self.place, &format!("{} entries; {expected} at least are true", list.len()));
            }
        }
        let mut listed = HashMap::<String, usize>::new();
        let mut last = u64::MAX;
        for (rank, entry) in list.iter().enumerate() {
            let place = format!("{}[{rank}]", self.place);
            let Some(candidates) = self.candidates(entry) else {
                verdict.deviates(&place, &format!("cannot be read: {entry}"));
                continue;
            };
            let [bytes, packets] =
                ["bytes", "packets"].map(|measure| verdict.estimate(&entry[measure], &format!("{place}.{measure}")));
            let (Some(bytes), Some(packets)) = (bytes, packets) else { continue };
            let subject = candidates[0];
            let known: Vec<_> = candidates.iter().filter_map(|subject| self.truth.get(subject)).copied().collect();
            let times = listed.entry(subject.to_string()).or_default();
            *times += 1;
            if *times > known.len().max(1) {
                verdict.deviates(&place, &format!("{subject} is listed {times} times"));
            }
            if known.is_empty() {
                verdict.deviates(&place, &format!("{subject} was not there"));
            }
            let held = |tally: &Tally| bytes.holds(tally.bytes) && packets.holds(tally.packets);
            if !known.is_empty() && !known.iter().any(held) {
                let truths: Vec<_> =
                    known.iter().map(|t| format!("{} bytes, {} packets", t.bytes, t.packets)).collect();
                let truths = truths.join(" or ");
                verdict.deviates(&place, &format!("{subject}: {truths}; outside of bytes {bytes}, packets {packets}"));
            }
            let value = if self.by == By::Bytes { bytes.value } else { packets.value };
            if value > last {
                verdict.deviates(&place, &format!("{value} comes after {last}"));
            }
            last = value;
            let true_ranked = ranked.get(rank).copied();
            let belongs = |tally: &Tally, slack| true_ranked.is_some_and(|t| t.abs_diff(self.by.of(*tally)) <= slack);
            if rank < TOP_RANKED
                && let Some(slack) = self.slack
                && !known.iter().any(|tally| belongs(tally, slack))
            {
                let had: Vec<_> = known.iter().map(|tally| self.by.of(*tally).to_string()).collect();
                let had = if had.is_empty() { "nothing".to_owned() } else { had.join(" or ") };
                let should = true_ranked.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
                verdict.deviates(
                    &place,
                    &format!("{subject} had {had} {}; this rank belongs to {should}", self.by.name()),
                );
            }
        }
    }

    /// Whom an entry may mean. What a key lacks is not in reports, so that an entry without ports may mean three flows.
    fn candidates(&self, entry: &Value) -> Option<Vec<Subject>> {
        let ip = |name: &str| entry[name].as_str()?.parse::<IpAddr>().ok();
        let port = |name: &str| u16::try_from(entry[name].as_u64()?).ok();
        let proto = || proto_number(entry["proto"].as_str()?);
        Some(match self.dimension {
            Dimension::Sources => vec![Subject::Source(ip("src_ip")?)],
            Dimension::Destinations => vec![Subject::Destination(ip("dst_ip")?)],
            Dimension::Pairs => vec![Subject::Pair(ip("src_ip")?, ip("dst_ip")?)],
            Dimension::Services => vec![Subject::Service(proto()?, port("dst_port")?)],
            Dimension::Flows => {
                let (src, dst) = (ip("src_ip")?, ip("dst_ip")?);
                let (src_port, dst_port, proto) = (port("src_port")?, port("dst_port")?, proto()?);
                let key = |lacks| Subject::Flow(Key { src, dst, src_port, dst_port, proto, lacks });
                [Lacks::Nothing, Lacks::Fragment, Lacks::Transport].map(key).to_vec()
            }
        })
    }
}

/// What reports say, added up.
#[derive(Default)]
struct Sums {
    ledger: Ledger,
    totals: HashMap<&'static str, u64>,
    sizes: SizeSums,
}

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
                interfaces.iter().enumerate().for_each(|(nth, interface)| self.add_ledger(nth, interface, verdict));
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

    /// Adds an interface's ledger, and checks that it balances.
    fn add_ledger(&mut self, nth: usize, interface: &Value, verdict: &mut Verdict) {
        let place = format!(".interfaces[{nth}].ledger");
        match Ledger::read(interface) {
            Ok(ledger) => {
                let law = format!("{place}: attributed, sampled out, skipped and lost");
                verdict.equal_tally(&law, ledger.seen, ledger.accounted());
                self.ledger.add(&ledger);
            }
            Err(error) => verdict.deviates(&place, &format!("{error:#}")),
        }
    }
}

/// An estimate with its bounds; a plain number is exact.
#[derive(Clone, Copy)]
struct Estimate {
    value: u64,
    lower: u64,
    upper: u64,
}

impl Estimate {
    fn holds(self, truth: u64) -> bool {
        (self.lower..=self.upper).contains(&truth)
    }

    /// With the bounds this many times as far away.
    fn stretched(self, times: f64) -> Self {
        let Self { value, lower, upper } = self;
        let below = (value.saturating_sub(lower) as f64 * times).ceil() as u64;
        let above = (upper.saturating_sub(value) as f64 * times).ceil() as u64;
        Self { value, lower: value.saturating_sub(below), upper: value.saturating_add(above) }
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} [{}, {}]", self.value, self.lower, self.upper)
    }
}

/// The deviations so far.
#[derive(Default)]
struct Verdict {
    deviations: Vec<String>,
}

impl Verdict {
    fn result(self) -> Result<(), Vec<String>> {
        if self.deviations.is_empty() { Ok(()) } else { Err(self.deviations) }
    }

    fn deviates(&mut self, place: &str, how: &str) {
        self.deviations.push(format!("{place}: {how}"));
    }

    fn equal(&mut self, place: &str, truth: u64, reported: u64) {
        if truth != reported {
            let difference = i128::from(reported) - i128::from(truth);
            self.deviates(place, &format!("{reported} should be {truth} ({difference:+})"));
        }
    }

    /// A count that may be less than the truth by what is missing.
    fn short_by(&mut self, place: &str, truth: u64, reported: u64, missing: u64) {
        let nearest = reported.clamp(truth.saturating_sub(missing), truth);
        self.equal(place, nearest, reported);
    }

    fn equal_tally(&mut self, place: &str, truth: Tally, reported: Tally) {
        self.equal(&format!("{place}, packets"), truth.packets, reported.packets);
        self.equal(&format!("{place}, bytes"), truth.bytes, reported.bytes);
    }

    /// The number at a JSON pointer; 0, and a deviation, if there is none.
    fn number(&mut self, value: &Value, pointer: &str) -> u64 {
        let number = value.pointer(pointer).and_then(Value::as_u64);
        number.unwrap_or_else(|| {
            self.deviates(&pointer.replace('/', "."), "is not a number from 0 up");
            0
        })
    }

    fn estimate(&mut self, value: &Value, place: &str) -> Option<Estimate> {
        if let Some(value) = value.as_u64() {
            return Some(Estimate { value, lower: value, upper: value });
        }
        let [estimated, lower, upper] = ["value", "lower", "upper"].map(|name| value[name].as_u64());
        let (Some(estimated), Some(lower), Some(upper)) = (estimated, lower, upper) else {
            self.deviates(place, &format!("has no value, lower and upper: {value}"));
            return None;
        };
        if !(lower..=upper).contains(&estimated) {
            self.deviates(place, &format!("{estimated} is outside of its own bounds {lower} to {upper}"));
        }
        Some(Estimate { value: estimated, lower, upper })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Mix, Plan, Traffic};
    use serde_json::json;

    fn oracle() -> Oracle {
        let plan = Plan { packets: 20_000, mix: Mix::odd(), ..Plan::default() };
        let mut oracle = Oracle::new();
        Traffic::new(plan).unwrap().for_each(|packet| oracle.add(&packet.truth));
        oracle
    }

    /// The report of a weir that makes no errors.
    fn report(oracle: &Oracle) -> Value {
        let mut report = oracle.to_json(20);
        let mut ledger = report["ledger"].take();
        ledger["sampled_out"] = json!({"packets": 0, "bytes": 0});
        ledger["lost"] = json!({"ring_full": {"packets": 0, "bytes": 0}});
        report["interfaces"] = json!([{"name": "wan0", "ledger": ledger}]);
        report["id"] = json!("7f3c9a52/b41d/1");
        report["observer"] = json!({"seq": 1});
        report
    }

    #[test]
    fn a_right_report_passes() {
        let oracle = oracle();
        assert_eq!(oracle.check_report(&report(&oracle)), Ok(()));
        assert_eq!(Oracle::new().check_report(&report(&Oracle::new())), Ok(()), "nothing was sent");
    }

    #[test]
    fn each_kind_of_deviation_is_found_and_said() {
        let oracle = oracle();
        let right = report(&oracle);
        let add = |pointer: &str, change: i64| {
            let mut wrong = right.clone();
            let number = wrong.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is not there"));
            *number = json!(number.as_i64().unwrap() + change);
            wrong
        };
        let set = |pointer: &str, value: Value| {
            let mut wrong = right.clone();
            *wrong.pointer_mut(pointer).unwrap() = value;
            wrong
        };
        let unique = oracle.distinct(Dimension::Flows);
        for (wrong, deviation) in [
            (add("/interfaces/0/ledger/seen/packets", 1), ".ledger.seen, packets"),
            (add("/interfaces/0/ledger/attributed/bytes", -1), "attributed, sampled out, skipped and lost, bytes"),
            (add("/interfaces/0/ledger/skipped/arp/packets", -1), ".ledger.skipped.arp, packets"),
            (add("/totals/bytes", 1), ".totals, bytes"),
            (add("/totals/udp_packets", 1), ".totals.udp_packets"),
            (add("/histograms/packet_size_bytes/min", 1), ".histograms.packet_size_bytes.min"),
            (add("/histograms/packet_size_bytes/p50", 100), ".histograms.packet_size_bytes.p50"),
            (add("/new_flows", 1), ".new_flows"),
            (set("/unique/flows", json!({"value": 0, "lower": 0, "upper": 9999})), "more than 2 % away"),
            (
                set("/unique/flows", json!({"value": unique + 3, "lower": unique + 2, "upper": unique + 4})),
                "outside of",
            ),
            (set("/unique/flows", json!({"value": 5, "lower": 6, "upper": 7})), "outside of its own bounds"),
            (add("/top/flows/3/bytes", 1), ".top.flows[3]"),
            (add("/top_by_packets/services/0/packets", -1), ".top_by_packets.services[0]"),
            (set("/top/sources/1", right["top"]["sources"][0].clone()), "is listed 2 times"),
            (set("/top/sources/0", right["top"]["sources"][1].clone()), "this rank belongs to"),
            (set("/top/pairs/0/src_ip", json!("192.0.2.77")), "was not there"),
            (set("/top/pairs", json!([])), "0 entries; 10 at least are true"),
            (set("/top/services/0/proto", json!("carrier-pigeon")), "cannot be read"),
            (set("/top/by", json!("packets")), ".top.by"),
            (set("/top/flows", json!(null)), ".top.flows: is not a list"),
            (set("/interfaces", json!(null)), ".interfaces: is not a list"),
        ] {
            let deviations = oracle.check_report(&wrong).expect_err(deviation);
            assert!(deviations.iter().any(|line| line.contains(deviation)), "{deviation}: {deviations:#?}");
        }
    }

    #[test]
    fn equals_may_change_places_and_bounds_may_be_wide() {
        let key = |host: u8| {
            let [src, dst] = [[10, 0, 0, host], [10, 0, 1, 1]].map(IpAddr::from);
            Key { src, dst, src_port: 1, dst_port: 2, proto: 17, lacks: Lacks::Nothing }
        };
        let mut oracle = Oracle::new();
        for host in 0..20 {
            oracle.add(&crate::truth::Truth { flow: Ok(key(host)), tcp_flags: 0, bytes: 100 });
        }
        let mut report = report(&oracle);
        report["top"]["sources"].as_array_mut().unwrap().reverse();
        report["top"]["sources"][0]["bytes"] = json!({"value": 105, "lower": 95, "upper": 115});
        assert_eq!(oracle.check_report(&report), Ok(()));
    }

    /// The report of a weir that makes no errors and lost some packets of UDP over IPv4, of 100 bytes each, that belong
    /// to no key that it lists.
    fn lossy(oracle: &Oracle, lost: u64) -> Value {
        let mut report = report(oracle);
        let less = |number: &mut Value, by: u64| *number = json!(number.as_u64().unwrap() - by);
        let attributed = &mut report["interfaces"][0]["ledger"]["attributed"];
        less(&mut attributed["packets"], lost);
        less(&mut attributed["bytes"], lost * 100);
        report["interfaces"][0]["ledger"]["lost"]["ring_full"] = json!({"packets": lost, "bytes": lost * 100});
        less(&mut report["totals"]["udp_packets"], lost);
        less(&mut report["totals"]["ipv4_packets"], lost);
        for list in ["top", "top_by_packets"] {
            for dimension in Dimension::ALL {
                for entry in report[list][dimension.name()].as_array_mut().unwrap() {
                    for (measure, lost) in [("packets", lost), ("bytes", lost * 100)] {
                        let value = entry[measure].as_u64().unwrap();
                        entry[measure] = json!({"value": value, "lower": value, "upper": value + lost});
                    }
                }
            }
        }
        report
    }

    #[test]
    fn what_is_lost_excuses_as_much_and_no_more() {
        let oracle = oracle();
        assert_eq!(oracle.check_report(&lossy(&oracle, 5)), Ok(()));
        let set = |pointer: &str, value: Value| {
            let mut wrong = lossy(&oracle, 5);
            *wrong.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is not there")) = value;
            wrong
        };
        let sources = oracle.top(Dimension::Sources, By::Packets, 20);
        let far = lossy(&oracle, 5)["top_by_packets"]["sources"][15].clone();
        assert!(sources[0].1.packets > sources[15].1.packets + 5, "{sources:?}");
        for (wrong, deviation) in [
            (set("/interfaces/0/ledger/lost/ring_full/bytes", json!(501)), "skipped and lost, bytes"),
            (set("/top/sources", json!([])), "0 entries; 10 at least are true"),
            (set("/top_by_packets/sources/0", far), "this rank belongs to"),
            (set("/top/flows/0/bytes", json!({"value": 0, "lower": 0, "upper": 99})), "outside of bytes"),
            (set("/totals/udp_packets", json!(0)), ".totals.udp_packets"),
            (set("/totals/tcp_packets", json!(0)), ".totals, by protocol"),
            (set("/unique/src_ip", json!({"value": 1, "lower": 0, "upper": 99_999})), "is more than 2 % away"),
            (
                set("/unique/src_ip", json!({"value": 1, "lower": 0, "upper": 2, "confidence": 0.999})),
                "times the bounds",
            ),
        ] {
            let deviations = oracle.check_report(&wrong).expect_err(deviation);
            assert!(deviations.iter().any(|line| line.contains(deviation)), "{deviation}: {deviations:#?}");
        }
    }

    #[test]
    fn sampling_leaves_the_order_to_chance_but_no_bound() {
        let oracle = oracle();
        let mut report = report(&oracle);
        let Tally { packets, bytes } = oracle.attributed();
        let ledger = &mut report["interfaces"][0]["ledger"];
        ledger["attributed"] = json!({"packets": packets - 5, "bytes": bytes - 400});
        ledger["sampled_out"] = json!({"packets": 5, "bytes": 400});
        report["totals"]["udp_packets"] = json!(0);
        report["top"]["sources"].as_array_mut().unwrap().truncate(3);
        assert_eq!(oracle.check_report(&report), Ok(()));
        report["top"]["sources"][2]["bytes"] = json!({"value": 5, "lower": 4, "upper": 6});
        let deviations = oracle.check_report(&report).unwrap_err();
        assert!(matches!(&deviations[..], [line] if line.contains("outside of bytes")), "{deviations:#?}");
    }

    #[test]
    fn bounds_are_judged_at_the_confidence_that_they_state() {
        let oracle = oracle();
        let truth = oracle.distinct(Dimension::Flows);
        // At 99.9 % the bounds are 3.29 standard deviations away, and one in a million is 4.89: 1.49 times as far.
        let with = |away: u64| {
            let mut report = report(&oracle);
            let value = truth + away;
            report["unique"]["flows"] =
                json!({"value": value, "lower": value - 10, "upper": value + 10, "confidence": 0.999});
            oracle.check_report(&report)
        };
        assert_eq!((with(10), with(15)), (Ok(()), Ok(())));
        assert!(with(17).unwrap_err()[0].contains("outside of 1.49 times the bounds"));
        let mut exact = report(&oracle);
        exact["unique"]["flows"] = json!({"value": truth + 1, "lower": truth + 1, "upper": truth + 2});
        assert!(oracle.check_report(&exact).is_err(), "bounds without a confidence always hold");
    }

    #[test]
    fn windows_add_up_and_come_in_order() {
        let plan = Plan { packets: 5_000, ..Plan::default() };
        let (mut all, mut window, mut reports) = (Oracle::new(), Oracle::new(), Vec::new());
        for (at, packet) in Traffic::new(plan).unwrap().enumerate() {
            all.add(&packet.truth);
            window.add(&packet.truth);
            if at % 1_000 == 999 {
                let mut report = report(&window);
                report["observer"]["seq"] = json!(reports.len());
                report["id"] = json!(format!("7f3c9a52/b41d/{}", reports.len()));
                assert_eq!(window.check_report(&report), Ok(()));
                reports.push(report);
                window.next_window();
            }
        }
        assert_eq!(all.check_reports(&reports), Ok(()));
        let gap = [&reports[..2], &reports[3..]].concat();
        let deviations = all.check_reports(&gap).unwrap_err();
        assert!(deviations.iter().any(|line| line.starts_with(".observer.seq: 3 should be 2")), "{deviations:#?}");
        assert!(deviations.iter().any(|line| line.starts_with(".ledger.seen, packets: 4000 should be 5000")));
    }

    #[test]
    fn protocols_are_known_by_name_and_by_number() {
        for proto in 0..=u8::MAX {
            assert_eq!(proto_number(&proto_name(proto)), Some(proto));
            assert_eq!(proto_number(&proto.to_string()), Some(proto));
        }
        assert_eq!(proto_number("ipv6-icmp"), Some(58));
        assert_eq!(proto_number("256"), None);
    }
}
