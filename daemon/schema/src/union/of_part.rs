//! Answers for a part of the traffic from the lists of a union: a network, a port, or any other question about fields
//! that the rows of a list have.
//!
//! Each packet counts for one key of a list. So the part has at least what its rows have, and at most what the rows
//! leave that certainly do not belong to it. No more is known from a list: keys without a row may belong to it or not.

use std::net::IpAddr;

use weir_common::proto;
use weir_config::{
    Addresses, FlowQuestion,
    names::protocol::protocol_number,
    view::{Condition, Field, Side, Standard, Values},
};

use super::{KeySums, Union};
use crate::{Estimate, Sums, Tally, Top, lists::Key};

/// The lists that can tell most of a part, those with the fewest keys first.
const LISTS: [Standard; 5] =
    [Standard::Sources, Standard::Destinations, Standard::Services, Standard::Pairs, Standard::Flows];

/// A part of the traffic, and the lists that know it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListPart {
    question: FlowQuestion,
    lists: Vec<Standard>,
}

impl ListPart {
    /// The part that a question selects. `None` if no list has all fields that its conditions are on.
    pub fn of(question: &FlowQuestion) -> Option<Self> {
        let question = FlowQuestion { by: Vec::new(), ..question.clone() };
        let knows = |list: &Standard| question.conditions.iter().all(|condition| knows(*list, condition.field));
        let mut known = LISTS.into_iter().filter(knows);
        let first = known.next().filter(|_| !question.conditions.is_empty())?;
        // A service is known by the lower of two ports, so the flows may know more.
        let more = known.filter(|list| first == Standard::Services && *list == Standard::Flows);
        let lists = [first].into_iter().chain(more).collect();
        Some(Self { question, lists })
    }

    /// The part, if it is about no more of addresses than may be shown.
    ///
    /// # Errors
    ///
    /// It is about more.
    pub fn if_shown(self, addresses: Addresses) -> Result<Self, String> {
        Ok(Self { question: self.question.if_shown(addresses)?, ..self })
    }

    /// Whether a key belongs to it; `None` if its fields do not tell.
    fn has(&self, key: &Key<'_>) -> Option<bool> {
        let mut has = Some(true);
        for condition in &self.question.conditions {
            match holds(condition, key).map(|holds| holds != condition.is_negated) {
                Some(false) => return Some(false),
                Some(true) => {}
                None => has = None,
            }
        }
        has
    }
}

/// Returns true if the keys of a list can tell something of a field.
fn knows(list: Standard, field: Field) -> bool {
    let has_source = matches!(list, Standard::Sources | Standard::Pairs | Standard::Flows);
    let has_destination = matches!(list, Standard::Destinations | Standard::Pairs | Standard::Flows);
    match field {
        Field::Ip(Side::Src, _) => has_source,
        Field::Ip(Side::Dst, _) => has_destination,
        Field::Ip(..) => has_source && has_destination,
        Field::IpVersion => has_source || has_destination,
        Field::SrcPort | Field::DstPort => list == Standard::Flows,
        Field::Port | Field::Proto => matches!(list, Standard::Services | Standard::Flows),
        _ => false,
    }
}

/// Whether a condition, without its negation, holds for a key; `None` if the key does not tell.
fn holds(condition: &Condition, key: &Key<'_>) -> Option<bool> {
    let Key { src_ip, dst_ip, src_port, dst_port, proto, port, .. } = *key;
    match (&condition.values, condition.field) {
        (Values::Prefixes(prefixes), Field::Ip(side, _)) => {
            let is_in = |address: IpAddr| prefixes.iter().any(|prefix| prefix.contains(address));
            match side {
                Side::Src => src_ip.map(is_in),
                Side::Dst => dst_ip.map(is_in),
                Side::Host => any([src_ip.map(is_in), dst_ip.map(is_in)]),
            }
        }
        (Values::Ranges(ranges), field) => {
            let is_in = |port: u16| ranges.iter().any(|(first, last)| (*first..=*last).contains(&u32::from(port)));
            match field {
                Field::SrcPort => src_port.map(is_in),
                Field::DstPort => dst_port.map(is_in),
                Field::Port if src_port.is_some() => any([src_port.map(is_in), dst_port.map(is_in)]),
                Field::Port => {
                    // The type and the code of ICMP are ports of its records, but not of its service.
                    let port = port.filter(|_| !matches!(number(proto), Some(proto::ICMP | proto::ICMPV6) | None))?;
                    // The other port is at least as high.
                    let may_be_higher = ranges.iter().any(|(_, last)| u32::from(port) < *last);
                    if is_in(port) { Some(true) } else { (!may_be_higher).then_some(false) }
                }
                _ => None,
            }
        }
        (Values::Numbers(numbers), Field::Proto) => Some(numbers.contains(&number(proto)?)),
        (Values::Numbers(numbers), Field::IpVersion) => {
            let is_v6 = src_ip.or(dst_ip)?.is_ipv6();
            Some(numbers.contains(&u8::from(is_v6)))
        }
        _ => None,
    }
}

fn number(proto: Option<&str>) -> Option<u8> {
    let name = proto?;
    name.parse().ok().or_else(|| protocol_number(name))
}

/// Whether one of two is true; `None` if that is not known.
fn any(of: [Option<bool>; 2]) -> Option<bool> {
    if of.contains(&Some(true)) { Some(true) } else { of.iter().all(Option::is_some).then_some(false) }
}

/// What a list says of a part.
struct OfList {
    has_rows: bool,
    rows: [Estimate; 2],
    most: [u64; 2],
}

impl Union {
    /// What the lists say of a part of the traffic. Without a row that belongs to it, it has no `sums`.
    pub fn of_part(&self, part: &ListPart) -> KeySums {
        let Tally { packets, bytes } = self.most();
        let mut all = OfList { has_rows: false, rows: [Estimate::default(); 2], most: [packets, bytes] };
        let mut confidence = 1.0;
        if part.question.can_be_answered_with(self.shown_addresses()) {
            for top in [&self.top, &self.top_by_packets] {
                for list in &part.lists {
                    all.take(&self.in_list(top, *list, part));
                    confidence -= 1.0 - top.confidence;
                }
            }
        }
        let OfList { has_rows, rows, most: [packets, bytes] } = all;
        let at_most = Tally { packets, bytes };
        let [of_packets, of_bytes] = [(rows[0], packets), (rows[1], bytes)].map(|(of, most)| {
            let upper = most.max(of.lower);
            Estimate { value: of.value.clamp(of.lower, upper), upper, ..of }
        });
        let sums = has_rows.then_some(Sums { packets: of_packets, bytes: of_bytes });
        KeySums { sums, at_most, confidence: f64::max(confidence, 0.0) }
    }

    fn in_list(&self, top: &Top, list: Standard, part: &ListPart) -> OfList {
        let Tally { packets, bytes } = self.most();
        let mut of = OfList { has_rows: false, rows: [Estimate::default(); 2], most: [packets, bytes] };
        for row in top.list(list).map(|list| list.rows).unwrap_or_default() {
            let counts = [row.sums.packets, row.sums.bytes];
            match part.has(&row.key) {
                Some(true) => {
                    of.has_rows = true;
                    for (sum, count) in of.rows.iter_mut().zip(counts) {
                        sum.value = sum.value.saturating_add(count.value);
                        sum.lower = sum.lower.saturating_add(count.lower);
                    }
                }
                Some(false) => {
                    for (most, count) in of.most.iter_mut().zip(counts) {
                        *most = most.saturating_sub(count.lower);
                    }
                }
                None => {}
            }
        }
        of
    }
}

impl OfList {
    /// Takes the closer bounds of another list.
    fn take(&mut self, other: &Self) {
        self.has_rows |= other.has_rows;
        for (one, other) in self.rows.iter_mut().zip(other.rows) {
            one.value = one.value.max(other.value);
            one.lower = one.lower.max(other.lower);
        }
        for (one, other) in self.most.iter_mut().zip(other.most) {
            *one = (*one).min(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Report, TopDestination, TopFlow, TopPair, TopService, TopSource};

    /// A flow with its packets: source, destination, ports and protocol.
    type Flow = (u8, u8, u16, u16, &'static str, u64);

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }
    }

    fn source(last: u8) -> IpAddr {
        [10, 1, last / 16, last].into()
    }

    fn destination(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// The largest groups of these flows, at most `rows`, each with bounds that are up to `slack` apart.
    fn groups<K: Ord>(
        flows: &[Flow],
        key: impl Fn(&Flow) -> K,
        (rows, slack): (usize, u64),
    ) -> Vec<(u32, K, Estimate, Estimate)> {
        let mut sums = std::collections::BTreeMap::<K, u64>::new();
        for flow in flows {
            *sums.entry(key(flow)).or_default() += flow.5;
        }
        let mut all: Vec<_> = sums.into_iter().collect();
        all.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
        all.truncate(rows);
        let estimate = |value: u64| Estimate {
            value,
            lower: value.saturating_sub(value % (slack + 1)),
            upper: value + slack,
            sampled: None,
        };
        (1..).zip(all).map(|(rank, (key, value))| (rank, key, estimate(value), estimate(value * 100))).collect()
    }

    fn union(flows: &[Flow], size: (usize, u64)) -> Union {
        let mut report: Report = serde_json::from_str(include_str!("../../tests/golden/report.json")).unwrap();
        report.addresses = None;
        report.interfaces.clear();
        let packets = flows.iter().map(|flow| flow.5).sum();
        (report.totals.packets, report.totals.bytes, report.totals.bounds) = (packets, packets * 100, None);
        for top in [&mut report.top, &mut report.top_by_packets] {
            top.confidence = 1.0;
            let sources = groups(flows, |flow| flow.0, size).into_iter();
            top.sources = sources
                .map(|(rank, key, packets, bytes)| TopSource { rank, src_ip: source(key), packets, bytes })
                .collect();
            let destinations = groups(flows, |flow| flow.1, size).into_iter();
            top.destinations = destinations
                .map(|(rank, key, packets, bytes)| TopDestination { rank, dst_ip: destination(key), packets, bytes })
                .collect();
            let pairs = groups(flows, |flow| (flow.0, flow.1), size).into_iter();
            top.pairs = pairs
                .map(|(rank, (src, dst), packets, bytes)| TopPair {
                    rank,
                    src_ip: source(src),
                    dst_ip: destination(dst),
                    packets,
                    bytes,
                })
                .collect();
            let port = |flow: &Flow| if flow.4 == "icmp" { 0 } else { flow.2.min(flow.3) };
            let services = groups(flows, |flow| (flow.4, port(flow)), size).into_iter();
            top.services = services
                .map(|(rank, (proto, port), packets, bytes)| TopService {
                    rank,
                    proto: proto.into(),
                    port,
                    packets,
                    bytes,
                })
                .collect();
            let each = groups(flows, |flow| (flow.0, flow.1, flow.2, flow.3, flow.4), size).into_iter();
            top.flows = each
                .map(|(rank, (src, dst, src_port, dst_port, proto), packets, bytes)| TopFlow {
                    rank,
                    src_ip: source(src),
                    dst_ip: destination(dst),
                    src_port,
                    dst_port,
                    proto: proto.into(),
                    packets,
                    bytes,
                })
                .collect();
        }
        Union::one(&report)
    }

    fn question(text: &str) -> FlowQuestion {
        FlowQuestion::parse(text, &[]).unwrap()
    }

    /// What a question means, said once more in other words.
    type Question = (&'static str, fn(&Flow) -> bool);
    const QUESTIONS: [Question; 12] = [
        ("src_ip=10.1.1.0/24", |flow| flow.0 / 16 == 1),
        ("src_ip!=10.1.1.0/24", |flow| flow.0 / 16 != 1),
        ("dst_ip=192.0.2.0/30", |flow| flow.1 < 4),
        ("host=10.1.0.0/24", |flow| flow.0 / 16 == 0),
        ("src_ip=10.1.0.0/24,dst_ip=192.0.2.1", |flow| flow.0 / 16 == 0 && flow.1 == 1),
        (":443", |flow| flow.2 == 443 || flow.3 == 443),
        ("port=50-500", |flow| (50..=500).contains(&flow.2) || (50..=500).contains(&flow.3)),
        ("tcp/443", |flow| flow.4 == "tcp" && (flow.2 == 443 || flow.3 == 443)),
        ("proto!=udp", |flow| flow.4 != "udp"),
        ("dst_port=443,dst_port=53", |flow| [443, 53].contains(&flow.3)),
        ("src_ip=10.1.1.0/24,dst_port=443", |flow| flow.0 / 16 == 1 && flow.3 == 443),
        ("ip_version=4", |_| true),
    ];

    #[test]
    fn bounds_of_parts_hold_for_random_flows() {
        let mut random = Random(11);
        let (mut answers, mut close) = (0, 0);
        for round in 0..300 {
            let count = 1 + random.below(60);
            let mut flows: Vec<Flow> = Vec::new();
            for _ in 0..count {
                let ports = [443, 53, 22, 8080, 40_000, 50_123];
                let proto = ["tcp", "udp", "icmp", "47"][random.below(4) as usize];
                let mut port = || ports[random.below(6) as usize];
                let (src_port, dst_port) = (port(), port());
                let rank = 1 + random.below(30);
                let (src, dst) = (random.below(48) as u8, random.below(8) as u8);
                flows.push((src, dst, src_port, dst_port, proto, 1 + random.below(9_000) / rank));
            }
            let union = union(&flows, (1 + random.below(20) as usize, random.below(4)));
            for (text, selects) in QUESTIONS {
                let truth: u64 = flows.iter().filter(|flow| selects(flow)).map(|flow| flow.5).sum();
                let found = union.of_part(&ListPart::of(&question(text)).unwrap());
                assert!(
                    truth <= found.at_most.packets && truth * 100 <= found.at_most.bytes,
                    "{round} {text} {found:?}"
                );
                let lower = found.sums.map_or(0, |sums| sums.packets.lower);
                assert!(lower <= truth, "{round} {text}: {truth} of {found:?}");
                answers += 1;
                close += u32::from(found.at_most.packets - lower <= 1 + truth / 5);
            }
        }
        assert!(close * 3 > answers, "bounds are close in {close} of {answers}");
    }

    #[test]
    fn what_no_list_knows_is_no_part_and_masked_rows_do_not_tell_more_than_they_have() {
        for unknown in ["vlan=7", "src_ip=10.0.0.0/8,dscp=46", "tcp_flags=syn"] {
            assert_eq!(ListPart::of(&question(unknown)), None, "{unknown}");
        }
        let flows = [(1, 1, 40_000, 443, "tcp", 70), (2, 1, 40_000, 443, "tcp", 30)];
        let mut union = union(&flows, (9, 0));
        union.addresses = Some("prefix".to_owned());
        let of = |text: &str| union.of_part(&ListPart::of(&question(text)).unwrap());
        assert_eq!((of("src_ip=10.1.0.1").sums, of("src_ip=10.1.0.1").at_most.packets), (None, 100));
        assert_eq!(of("src_ip=10.1.0.0/16").sums.unwrap().packets.lower, 100);
        let part = ListPart::of(&question("src_ip=10.1.0.0/28")).unwrap();
        assert!(part.clone().if_shown(Addresses::Prefix).is_err() && part.if_shown(Addresses::Full).is_ok());
    }
}
