//! The judgement: reports against the truth, every deviation in a line of its own.
//!
//! Each line begins with the place in the report, as `jq` would be asked for it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
};

use serde_json::Value;
use weir_common::ledger::Tally;

use super::{By, Dimension, Oracle, Subject, Totals};
use crate::truth::{Key, Lacks};

/// Of each top list so many entries have to be there, in the right order.
const TOP_RANKED: usize = 10;
/// How far a count of distinct things may be off: so much of the truth. Below 50 that is not at all.
const UNIQUE_ERROR_MAX: f64 = 0.02;
/// How far a quantile of packet sizes may be off: so much of the truth.
const QUANTILE_ERROR_MAX: f64 = 0.02;
/// Bounds at a confidence of 95 % (1.96 standard deviations) miss once in 20. At twice the distance it is once in
/// 11,000, and a deviation.
const UNIQUE_BOUNDS_STRETCH: f64 = 2.0;

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
    /// be the true ones, where equals may change places. Where the ledger declares that packets were lost or sampled
    /// out, only ledgers and bounds are held against the report.
    ///
    /// # Errors
    ///
    /// All deviations.
    pub fn check_report(&self, report: &Value) -> Result<(), Vec<String>> {
        let mut verdict = Verdict::default();
        let missing = self.check_sums(std::slice::from_ref(report), &mut verdict);
        let complete = missing == 0;
        self.check_unique(report, complete, &mut verdict);
        self.check_new_flows(report, &mut verdict);
        self.check_quantiles(report, &mut verdict);
        for (place, by) in [("top", By::Bytes), ("top_by_packets", By::Packets)] {
            self.check_top(&report[place], place, by, complete, &mut verdict);
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

    /// Compares everything that adds up. Gives the number of packets that the ledgers declare as lost or sampled out.
    fn check_sums(&self, reports: &[Value], verdict: &mut Verdict) -> u64 {
        let mut sums = Sums::default();
        for report in reports {
            sums.add(report, verdict);
        }
        let Sums { seen, attributed, missing, skipped, totals, sizes } = sums;
        verdict.equal_tally(".ledger.seen", self.sent(), seen);
        let mut accounted = attributed;
        accounted.add(missing);
        verdict.equal_tally(".ledger.attributed and what is missing", self.attributed(), accounted);
        let nothing = Tally::default();
        let reasons: HashSet<_> = skipped.keys().map(String::as_str).chain(self.skipped.keys().copied()).collect();
        for reason in reasons {
            let truth = self.skipped.get(reason).unwrap_or(&nothing);
            verdict.equal_tally(&format!(".ledger.skipped.{reason}"), *truth, *skipped.get(reason).unwrap_or(&nothing));
        }
        verdict.equal_tally(".totals", self.sent(), Tally::new(totals["packets"], totals["bytes"]));
        if missing.is_zero() {
            let Totals { ipv4, ipv6, tcp, udp, icmp, other } = self.totals();
            for (name, truth) in [
                ("ipv4_packets", ipv4),
                ("ipv6_packets", ipv6),
                ("tcp_packets", tcp),
                ("udp_packets", udp),
                ("icmp_packets", icmp),
                ("other_packets", other),
            ] {
                verdict.equal(&format!(".totals.{name}"), truth, totals[name]);
            }
        }
        let SizeSums { count, min, max } = sizes;
        verdict.equal(".histograms.packet_size_bytes.count", self.sent().packets, count);
        let [first, last] = [self.sizes.first_key_value(), self.sizes.last_key_value()];
        verdict.equal(".histograms.packet_size_bytes.min", first.map_or(0, |(size, _)| *size), min.unwrap_or(0));
        verdict.equal(".histograms.packet_size_bytes.max", last.map_or(0, |(size, _)| *size), max);
        missing.packets
    }

    fn check_unique(&self, report: &Value, complete: bool, verdict: &mut Verdict) {
        for (name, dimension) in
            [("src_ip", Dimension::Sources), ("dst_ip", Dimension::Destinations), ("flows", Dimension::Flows)]
        {
            let place = format!(".unique.{name}");
            let Some(estimate) = verdict.estimate(&report["unique"][name], &place) else { continue };
            let truth = self.distinct(dimension);
            if !estimate.stretched(UNIQUE_BOUNDS_STRETCH).holds(truth) {
                verdict.deviates(&place, &format!("{truth} is outside of twice the bounds {estimate}"));
            }
            if complete && estimate.value.abs_diff(truth) as f64 > truth as f64 * UNIQUE_ERROR_MAX {
                verdict.deviates(&place, &format!("{} is more than 2 % away from {truth}", estimate.value));
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

    fn check_top(&self, top: &Value, place: &str, by: By, ordered: bool, verdict: &mut Verdict) {
        if top["by"].as_str().is_some_and(|named| named != by.name()) {
            verdict.deviates(&format!(".{place}.by"), &format!("{} should be \"{}\"", top["by"], by.name()));
        }
        for dimension in Dimension::ALL {
            let place = format!(".{place}.{}", dimension.name());
            let Some(list) = top[dimension.name()].as_array() else {
                verdict.deviates(&place, "is not a list");
                continue;
            };
            TopCheck { truth: self.tallies(dimension), dimension, by, ordered, place }.check(list, verdict);
        }
    }
}

/// One top list under judgement.
struct TopCheck {
    truth: HashMap<Subject, Tally>,
    dimension: Dimension,
    by: By,
    ordered: bool,
    place: String,
}

impl TopCheck {
    fn check(&self, list: &[Value], verdict: &mut Verdict) {
        let mut ranked: Vec<_> = self.truth.values().map(|tally| self.by.of(*tally)).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        let expected = ranked.len().min(TOP_RANKED);
        if self.ordered && list.len() < expected {
            verdict.deviates(&self.place, &format!("{} entries; {expected} at least are true", list.len()));
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
            if self.ordered && rank < TOP_RANKED && !known.iter().any(|tally| Some(self.by.of(*tally)) == true_ranked) {
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
    seen: Tally,
    attributed: Tally,
    missing: Tally,
    skipped: BTreeMap<String, Tally>,
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
        let ledger = &interface["ledger"];
        let place = format!(".interfaces[{nth}].ledger");
        let [seen, attributed, sampled_out] =
            ["seen", "attributed", "sampled_out"].map(|name| verdict.tally(&ledger[name], &format!("{place}.{name}")));
        let [skipped, lost] =
            ["skipped", "lost"].map(|name| verdict.tallies(&ledger[name], &format!("{place}.{name}")));
        let accounted: Tally =
            [attributed, sampled_out].into_iter().chain(skipped.values().copied()).chain(lost.values().copied()).sum();
        verdict.equal_tally(&format!("{place}: attributed, sampled out, skipped and lost"), seen, accounted);
        self.seen.add(seen);
        self.attributed.add(attributed);
        self.missing.add([sampled_out].into_iter().chain(lost.into_values()).sum());
        for (reason, tally) in skipped {
            self.skipped.entry(reason).or_default().add(tally);
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

    fn tally(&mut self, value: &Value, place: &str) -> Tally {
        let [packets, bytes] = ["packets", "bytes"].map(|name| value[name].as_u64());
        match (packets, bytes) {
            (Some(packets), Some(bytes)) => Tally::new(packets, bytes),
            _ => {
                self.deviates(place, &format!("has no packets and bytes: {value}"));
                Tally::default()
            }
        }
    }

    fn tallies(&mut self, value: &Value, place: &str) -> BTreeMap<String, Tally> {
        let Some(named) = value.as_object() else {
            self.deviates(place, &format!("is no table of reasons: {value}"));
            return BTreeMap::new();
        };
        let read =
            |(reason, tally): (&String, &Value)| (reason.clone(), self.tally(tally, &format!("{place}.{reason}")));
        named.iter().map(read).collect()
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

    #[test]
    fn losses_excuse_the_lists_but_not_the_ledger() {
        let oracle = oracle();
        let mut report = report(&oracle);
        let Tally { packets, bytes } = oracle.attributed();
        report["interfaces"][0]["ledger"]["attributed"] = json!({"packets": packets - 5, "bytes": bytes - 400});
        report["interfaces"][0]["ledger"]["lost"]["ring_full"] = json!({"packets": 5, "bytes": 400});
        report["top"]["sources"] = json!([]);
        report["totals"]["udp_packets"] = json!(0);
        assert_eq!(oracle.check_report(&report), Ok(()));
        report["interfaces"][0]["ledger"]["lost"]["ring_full"] = json!({"packets": 5, "bytes": 401});
        assert!(oracle.check_report(&report).is_err());
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
