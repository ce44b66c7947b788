use std::net::Ipv4Addr;

use serde_json::{Map, json};

use super::*;
use crate::{Beyond, Bounds, Encoded, Evidence, TopService, TopSource, Uncertain};

/// The golden report, with whole addresses.
fn whole() -> Report {
    let golden = include_str!("../../tests/golden/report.json");
    Report { addresses: None, ..serde_json::from_str(golden).unwrap() }
}

fn text(report: &Report) -> String {
    String::from_utf8(Encoded::new(report).line.to_vec()).unwrap()
}

const fn estimate(value: u64, lower: u64, upper: u64) -> Estimate {
    Estimate { value, lower, upper, sampled: None }
}

const fn exact(value: u64) -> Estimate {
    estimate(value, value, value)
}

fn source(rank: u32, ip: [u8; 4], packets: Estimate, bytes: Estimate) -> TopSource {
    TopSource { rank, src_ip: Ipv4Addr::from(ip).into(), packets, bytes }
}

fn row(rank: u32, key: &[(&str, &str)]) -> Row {
    let key: Map<String, Value> = key.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    Row { rank: Some(rank), key, ..Row::default() }
}

#[test]
fn no_address_of_the_traffic_is_left() {
    let full = text(&whole().masked(Addresses::Full));
    assert_eq!(full, text(&whole()));
    for known in ["192.0.2.1", "198.51.100.7", "203.0.113.254", "2001:db8:85a3:8d3:1319:8a2e:370:7348"] {
        assert!(full.contains(known), "{known}");
        for addresses in [Addresses::Prefix, Addresses::None] {
            let masked = text(&whole().masked(addresses));
            assert!(!masked.contains(&format!("{known}\"")), "{known} in {masked}");
        }
    }
    let prefix = text(&whole().masked(Addresses::Prefix));
    assert!(prefix.contains("\"192.0.2.0\"") && prefix.contains("\"2001:db8:85a3::\""), "{prefix}");
    let none = text(&whole().masked(Addresses::None));
    for known in ["192.0.2", "198.51.100", "203.0.113", "2001:db8"] {
        assert!(!none.contains(known), "{known} in {none}");
    }
}

/// Every value of a report that reads as an address is masked, wherever it is.
#[test]
fn whatever_reads_as_an_address_is_masked() {
    fn addresses(value: &Value, found: &mut Vec<(IpAddr, u8)>) {
        match value {
            Value::String(text) => found.extend(address_in(text).map(|(ip, length)| (ip, length.unwrap_or(128)))),
            Value::Array(values) => values.iter().for_each(|value| addresses(value, found)),
            Value::Object(fields) => fields.values().for_each(|value| addresses(value, found)),
            _ => {}
        }
    }
    for mode in [Addresses::Prefix, Addresses::None] {
        let mut report = whole();
        report.answers =
            vec![row(1, &[("src_ip", "192.0.2.77")]), row(2, &[("host", "2001:db8::77"), ("later", "192.0.2.78/31")])];
        report.views[0].rows.get_or_insert_default().push(row(9, &[("dst_ip", "192.0.2.79"), ("proto", "tcp")]));
        let mut found = Vec::new();
        addresses(&serde_json::to_value(report.masked(mode)).unwrap(), &mut found);
        assert!(found.len() > 40, "{found:?}");
        for (ip, length) in found {
            assert_eq!(mode.masked(ip), ip, "{mode:?}");
            assert!(length == 128 || length <= mode.bits(ip), "{mode:?}: {ip}/{length}");
        }
    }
}

#[test]
fn a_masked_report_notes_it_and_is_not_masked_again() {
    for addresses in [Addresses::Prefix, Addresses::None] {
        let masked = whole().masked(addresses);
        assert_eq!(masked.addresses.as_deref(), Some(addresses.name()));
        assert_eq!(masked.top.flows.len(), 4, "every row is there");
        for weaker in Addresses::ALL.into_iter().filter(|weaker| *weaker <= addresses) {
            assert_eq!(masked.clone().masked(weaker), masked);
        }
        let evidence = serde_json::to_string(&masked.alerts).unwrap();
        assert!(!evidence.contains("198.51.100.7") && evidence.contains("\"value\""), "{evidence}");
    }
    let unknown = Report { addresses: Some("a later one".to_owned()), ..whole() };
    assert_eq!(unknown.masked(Addresses::Prefix), whole().masked(Addresses::Prefix), "it may show more");
}

#[test]
fn rows_of_one_key_are_added_and_ranked_anew() {
    let mut report = whole();
    report.top.unlisted.sources = Some(0);
    (report.totals.packets, report.totals.bytes) = (1000, 1000);
    report.interfaces.clear();
    let bytes = |value| estimate(value, value - 1, value + 2);
    report.top.sources = vec![
        source(1, [10, 0, 1, 1], exact(1), bytes(50)),
        source(2, [10, 0, 0, 1], exact(9), bytes(40)),
        source(3, [10, 0, 2, 1], exact(1), bytes(30)),
        source(4, [10, 0, 0, 2], exact(1), bytes(20)),
    ];
    report.top_by_packets.unlisted.sources = Some(0);
    report.top_by_packets.sources = vec![
        source(1, [10, 0, 0, 1], exact(9), exact(5)),
        source(2, [10, 0, 1, 1], exact(8), exact(70)),
        source(3, [10, 0, 2, 1], exact(6), exact(6)),
        source(4, [10, 0, 2, 2], exact(5), exact(6)),
    ];
    let masked = report.masked(Addresses::Prefix);
    let expected = [
        source(1, [10, 0, 0, 0], exact(10), estimate(60, 58, 64)),
        source(2, [10, 0, 1, 0], exact(1), bytes(50)),
        source(3, [10, 0, 2, 0], exact(1), bytes(30)),
    ];
    assert_eq!(masked.top.sources, expected);
    let by_packets: Vec<_> = masked.top_by_packets.sources.iter().map(|row| row.src_ip.to_string()).collect();
    assert_eq!(by_packets, ["10.0.2.0", "10.0.0.0", "10.0.1.0"]);
}

#[test]
fn distinct_values_of_united_rows_may_be_the_same() {
    let mut report = whole();
    report.totals.packets = 0;
    report.interfaces.clear();
    let one = |rank, ip, distinct| Row { distinct: Some(distinct), ..row(rank, &[("dst_ip", ip)]) };
    report.spread.sources_per_destination =
        vec![one(1, "10.0.0.1", estimate(90, 80, 100)), one(2, "10.0.0.2", estimate(70, 65, 75))];
    let evidence = |ip, value, lower, upper| Evidence { key: row(1, &[("dst_ip", ip)]).key, value, lower, upper };
    report.alerts.truncate(1);
    report.alerts[0].evidence = vec![
        evidence("10.0.0.1", 9.5, 9.0, Some(10.0)),
        evidence("10.0.0.2", 8.0, 7.5, Some(8.5)),
        evidence("10.0.1.1", 8.0, 7.5, Some(8.5)),
        evidence("10.0.1.2", 9.0, 7.0, None),
    ];
    let masked = report.masked(Addresses::Prefix);
    assert_eq!(masked.spread.sources_per_destination, [one(1, "10.0.0.0", estimate(90, 80, 175))]);
    let united = [evidence("10.0.0.0", 9.5, 9.0, Some(18.5)), evidence("10.0.1.0", 9.0, 7.5, None)];
    assert_eq!(masked.alerts[0].evidence, united, "an unknown bound stays unknown");
}

#[test]
fn a_row_has_no_more_than_its_table() {
    let mut report = whole();
    let view = &mut report.views[0];
    view.total = Some(Sums { packets: estimate(9, 9, 12), bytes: exact(100) });
    view.tables = None;
    let one = |ip| Row {
        packets: Some(estimate(7, 4, 10)),
        bytes: Some(exact(40)),
        ..row(1, &[("src_ip", ip), ("proto", "tcp")])
    };
    view.rows = Some(vec![one("10.0.0.1"), one("10.0.0.2")]);
    (view.measure, view.unlisted) = (json!("bytes"), Some(0));
    let masked = report.clone().masked(Addresses::Prefix);
    let rows = masked.views[0].rows.as_deref().unwrap();
    assert_eq!((rows[0].packets, rows[0].bytes), (Some(estimate(12, 8, 12)), Some(exact(80))));
    // Without these, others may have the rest.
    report.views[0].unlisted = None;
    let masked = report.masked(Addresses::Prefix);
    assert_eq!(masked.views[0].rows.as_deref().unwrap()[0].bytes, Some(estimate(80, 80, 100)));
}

#[test]
fn new_hosts_are_masked_and_listed_once() {
    let mut report = whole();
    let host = |text: &str| NewHost { src_ip: text.parse().unwrap() };
    let new = report.new_hosts.as_mut().unwrap();
    new.hosts = ["192.168.1.77", "192.168.1.78", "192.168.2.1", "2001:db8::77"].map(host).into();
    let hosts = |addresses| report.clone().masked(addresses).new_hosts.unwrap().hosts;
    assert_eq!(hosts(Addresses::Full).len(), 4);
    assert_eq!(hosts(Addresses::Prefix), ["192.168.1.0", "192.168.2.0", "2001:db8::"].map(host));
    assert_eq!(hosts(Addresses::None), ["0.0.0.0", "::"].map(host));
}

#[test]
fn a_packet_is_in_the_rows_of_both_of_its_hosts() {
    let mut report = whole();
    let view = &mut report.views[0];
    view.total = Some(Sums { packets: exact(10), bytes: exact(10) });
    (view.tables, view.measure, view.unlisted) = (None, json!("bytes"), None);
    let one = |ip| Row { packets: Some(exact(4)), bytes: Some(exact(4)), ..row(1, &[("host", ip)]) };
    view.rows = Some(vec![one("10.0.0.1"), one("10.0.1.1")]);
    let masked = report.masked(Addresses::Prefix);
    for row in masked.views[0].rows.as_deref().unwrap() {
        assert_eq!(row.bytes, Some(estimate(4, 4, 10)), "the lower bounds leave 2, but each packet counts twice");
    }
}

/// A list of sources, of which the list shows only some: each masked row must have room for the others.
#[test]
fn a_masked_row_has_room_for_the_addresses_of_its_network_without_a_row() {
    let mut report = whole();
    // 300 sources in two networks: source n of the first has 1,000 - n bytes, source n of the second 500.
    let bytes = |network: u32, n: u32| if network == 0 { 1000 - u64::from(n) } else { 500 };
    let all: Vec<_> = (0..2_u32).flat_map(|network| (0..150).map(move |n| (network, n))).collect();
    let row = |(rank, &(network, n)): (u32, &(u32, u32))| TopSource {
        rank,
        src_ip: Ipv4Addr::from_bits(0x0a00_0000 | network << 8 | n).into(),
        packets: exact(1),
        bytes: exact(bytes(network, n)),
    };
    let truth = [0, 1].map(|network| (0..150).map(|n| bytes(network, n)).sum::<u64>());
    (report.totals.packets, report.totals.bytes) = (300, truth.iter().sum());
    report.interfaces.clear();
    for (listed, unlisted) in [(10, Some(990)), (10, None), (200, Some(500)), (300, Some(0))] {
        report.top.sources = (1..).zip(&all[..listed]).map(row).collect();
        report.top.unlisted.sources = unlisted;
        let masked = report.clone().masked(Addresses::Prefix);
        for row in &masked.top.sources {
            let truth = truth[usize::from(row.src_ip.to_string() == "10.0.1.0")];
            assert!((row.bytes.lower..=row.bytes.upper).contains(&truth), "{listed}: {row:?}, and {truth}");
            let is_exact = row.bytes.lower == row.bytes.upper;
            assert_eq!(is_exact, unlisted == Some(0), "{row:?}");
        }
        let none = report.clone().masked(Addresses::None);
        let [all] = &none.top.sources[..] else { panic!("one key: {:?}", none.top.sources) };
        assert_eq!(all.bytes.upper, truth.iter().sum::<u64>());
    }
    // Packets that passed unseen may have been of any address.
    let uncertain = Bounds { lower: 5, upper: 75 };
    let mut interface = whole().interfaces.remove(0);
    interface.ledger.uncertain = Some(Uncertain { packets: uncertain, bytes: uncertain });
    report.interfaces = vec![interface];
    report.top.unlisted.sources = None;
    report.top.sources = (1..).zip(&all[..10]).map(row).collect();
    let none = report.masked(Addresses::None);
    assert_eq!(none.top.sources[0].bytes.upper, truth.iter().sum::<u64>() + 70);
}

#[test]
fn only_what_is_masked_is_widened() {
    let mut report = whole();
    (report.totals.packets, report.totals.bytes) = (1_000_000, 1_000_000_000);
    report.interfaces.clear();
    report.top.unlisted.services = None;
    let service = TopService { rank: 1, proto: "tcp".into(), port: 443, packets: exact(3), bytes: exact(300) };
    report.top.services = vec![service.clone()];
    let beyond = Beyond { packets: exact(1), bytes: exact(60) };
    let prefix = |prefix: &str| TopPrefix {
        rank: 1,
        prefix: prefix.to_owned(),
        packets: exact(2),
        bytes: exact(120),
        beyond,
        members: 1,
    };
    report.top.source_prefixes = vec![prefix("10.1.2.0/24"), prefix("10.1.3.0/24")];
    let masked = report.clone().masked(Addresses::Prefix);
    assert_eq!(masked.top.services, [service]);
    assert_eq!(masked.top.source_prefixes, report.top.source_prefixes, "short enough");
    let rows = &masked.spread.destinations_per_source;
    assert!(!rows.is_empty() && rows.iter().all(|row| row.distinct.unwrap().upper == 1_000_000), "{rows:?}");
    let none = report.masked(Addresses::None).top.source_prefixes;
    let [TopPrefix { prefix, bytes, beyond, members, .. }] = &none[..] else { panic!("one key: {none:?}") };
    assert_eq!((&**prefix, *bytes, *members), ("0.0.0.0/0", exact(240), 2));
    assert_eq!(beyond.bytes, estimate(120, 120, 1_000_000_000), "no list has all networks");
}

#[test]
fn sketches_without_addresses_are_left() {
    let names = |addresses| {
        let sketches = whole().masked(addresses).sketches.unwrap();
        let lists: Vec<String> = sketches.lists.into_iter().map(|list| list.name).collect();
        (sketches.distinct.len(), lists.join(" "), sketches.spread.len())
    };
    assert_eq!(names(Addresses::Full), (1, "services flows".to_owned(), 1));
    for addresses in [Addresses::Prefix, Addresses::None] {
        assert_eq!(names(addresses), (1, "services".to_owned(), 0));
    }
    let mut report = whole();
    let lists = &mut report.sketches.as_mut().unwrap().lists;
    lists.truncate(1);
    for by in ["a_later_field", "src_ip/16/32", "host"] {
        lists[0].by = vec!["proto".to_owned(), by.to_owned()];
        let mut sketches = Sketches { lists: lists.clone(), ..*whole().sketches.unwrap() };
        mask_sketches(&mut sketches);
        assert!(sketches.lists.is_empty(), "{by}");
    }
}

#[test]
fn prefixes_keep_their_length_if_they_are_short_enough() {
    let masked = |text: &str| {
        let mut masked = text.to_owned();
        let is_cut = masked.mask(Addresses::Prefix);
        (masked, is_cut)
    };
    for (text, shown, is_cut) in [
        ("10.1.2.3", "10.1.2.0", true),
        ("10.1.0.0/16", "10.1.0.0/16", false),
        ("10.1.2.128/25", "10.1.2.0/24", true),
        ("2001:db8:1:2::/64", "2001:db8:1::/48", true),
    ] {
        assert_eq!(masked(text), (shown.to_owned(), is_cut), "{text}");
    }
    for other in ["eth0", "1.2.3", "10.0.0.0/x", "tcp/443", "7f3c9a52/b41d/1", "2026-11-20T08:00:00Z"] {
        assert_eq!(masked(other), (other.to_owned(), false), "{other}");
    }
}
