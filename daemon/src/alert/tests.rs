//! Rules on reports: names, limits, bounds, evidence.

use std::collections::BTreeSet;

use super::*;
use crate::{
    config::Config,
    report::Estimate,
    rule::{Quantity, When, WhenError, catalogue::Catalogue, unit::Dimension},
    view::{Standard, View},
};

const TEN: Duration = Duration::from_secs(10);

/// The golden report, of which no CPU was late.
fn golden() -> Report {
    let mut report: Report = serde_json::from_str(include_str!("../../tests/golden/report.json")).unwrap();
    report.self_metrics.late_cpus.clear();
    report
}

/// The views that the golden report has.
fn views() -> Vec<View> {
    let text = "views: [{name: web, by: [dst_ip], measure: bytes, entropy: true}, {name: all}, {name: each, per: interface}, \
                {name: hosts, measure: {distinct: src_ip}}, {name: opens, by: [src_ip], measure: new_flows}]";
    Config::parse(text, "test").unwrap().views
}

fn catalogue() -> Catalogue {
    Catalogue::new(Standard::ALL, &views())
}

fn when(text: &str) -> When {
    When::parse(text, &catalogue()).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn rule(text: &str) -> Rule {
    let when = when(text);
    Rule { name: "r".to_owned(), interface: None, windows: 1, clear: when.clear(), when }
}

/// The alert that a rule makes of a report, if it makes one.
fn judged(rule: &Rule, report: &Report) -> Option<Alert> {
    Alerts::new(std::slice::from_ref(rule), TEN).judge(report).pop()
}

fn fires(text: &str, report: &Report) -> bool {
    judged(&rule(text), report).is_some()
}

#[test]
fn rules_that_are_the_same_go_on_after_a_restart() {
    let report = golden();
    let rule = |text: &str| Rule { windows: 3, ..rule(text) };
    let (same, other) = (rule("packets > 1"), rule("packets > 2"));
    let mut before = Alerts::new(&[same.clone(), rule("lost > 1e9")], TEN);
    assert!(before.judge(&report).is_empty() || before.states().len() == 1);
    before.judge(&report);
    let states: Vec<_> = serde_json::from_str(&serde_json::to_string(&before.states()).unwrap()).unwrap();
    assert_eq!(states.len(), 1, "one of them is inactive");
    let mut after = Alerts::new(&[other, same], TEN);
    after.resume(&states);
    let told = after.judge(&report);
    assert!(told.iter().any(|alert| alert.windows == 3), "{told:?}");
    assert_eq!(after.states()[0].1, State::Pending(Since { start: report.window.start, windows: 1 }));
}

#[test]
fn numbers_are_found_under_the_names_of_the_report() {
    let report = golden();
    // Beyond and not beyond what the golden report has there.
    for (above, not) in [
        ("totals.packets > 1200344", "totals.packets > 1200345"),
        ("packets >= 1200345", "packets >= 1200346"),
        ("totals.bytes > 729.8 Mbit/s", "bytes > 729.9 Mbit/s"),
        ("unique.src_ip > 98899", "unique.src_ip > 98900"),
        ("new_flows > 4179", "new_flows > 4180"),
        ("new_flows > 417.9 flow/s", "new_flows > 418 flow/s"),
        ("new_flows.fill > 30 %", "new_flows.fill > 0.31"),
        ("seen > 1100344", "seen.packets > 110.1 kpkt/s"),
        ("lost > 279", "lost > 280"),
        ("lost.ring_full > 279", "lost.no_ring > 0"),
        ("interfaces.ledger.lost.ring_full.bytes > 95877", "lost.ring_full.bytes > 95878"),
        ("skipped > 1364", "skipped > 1365"),
        ("skipped.arp.bytes > 345677", "skipped.mpls > 0"),
        ("sampled_out > 74989", "sampled_out > 74990"),
        ("tcp.syn > 12003", "tcp.syn > 12004"),
        ("coverage < 0.99", "coverage < 98.7 %"),
        ("kept < 99.98 %", "kept < 99.97 %"),
        ("sampling > 3", "sampling > 4"),
        ("rates.packets > 187 kpkt/s", "rates.packets > 188.1 kpkt/s"),
        ("sources.bytes > 200 Mbit/s", "top_sources.bytes > 250 Mbit/s"),
        ("top.sources.packets > 1000", "top_by_packets.sources.packets > 1e7"),
        ("self.rings.peak_fill >= 1 %", "self.rings.peak_fill > 99 %"),
        ("self.rss_bytes > 1000", "self.rss_bytes > 1e12"),
    ] {
        assert!(fires(above, &report), "{above}");
        assert!(!fires(not, &report), "{not}");
    }
}

/// Every name of a report with every part has a number there, where the report has one.
#[test]
fn every_name_is_read() {
    let mut report = golden();
    report.spread.ports_per_source = report.spread.destinations_per_source.clone();
    let seen: BTreeSet<_> = report.views.iter().map(|view| view.name.clone()).collect();
    let standard = Catalogue::new(Standard::ALL, &[]);
    let mut without = Vec::new();
    for name in standard.names() {
        let mut count = 0;
        reading::visit(&standard.find(name).unwrap().place, &report, &mut |number, _| {
            assert!(number.lower <= number.value && number.value <= number.upper, "{name}: {number:?}");
            count += 1;
        });
        let view = name.split('.').next().unwrap();
        if count == 0 && (!["ip_versions", "protocols", "dscp", "talkers"].contains(&view) || seen.contains(view)) {
            without.push(name.to_owned());
        }
    }
    assert!(without.is_empty(), "the golden report has no number for these: {without:?}");
    report.interfaces.clear();
    assert!(!fires("coverage < 0.99", &report), "what is not there is not too small");
}

#[test]
fn a_view_of_the_user_has_the_short_name() {
    let text = "views: [{name: sources, by: [src_ip], measure: packets}, {name: totals}, {name: new_flows, measure: new_flows}]";
    let views = Config::parse(text, "test").unwrap().views;
    let catalogue = Catalogue::new(Standard::ALL, &views);
    let canonical = |name: &str| catalogue.find(name).unwrap_or_else(|| panic!("{name}")).name.clone();
    assert_eq!(canonical("sources.bytes"), "sources.bytes");
    assert_eq!(catalogue.find("sources.bytes").unwrap().standard, None);
    assert_eq!(catalogue.find("top.sources.bytes").unwrap().standard, Some(Standard::Sources));
    assert_eq!([canonical("totals.packets"), canonical("packets")], ["totals.packets", "packets"]);
    assert_eq!([canonical("new_flows"), canonical("new_flows.value")], ["new_flows.new_flows", "new_flows.value"]);
    // Each first name leads back to itself, so that a configuration that weir prints means the same.
    for catalogue in [&catalogue, &self::catalogue()] {
        for name in catalogue.names() {
            assert_eq!(catalogue.find(name).unwrap().name, name);
        }
        let spellings: Vec<_> = catalogue.spellings().collect();
        let different: BTreeSet<_> = spellings.iter().collect();
        assert_eq!(spellings.len(), different.len(), "each spelling means one thing");
    }
}

#[test]
fn conditions_are_read_and_written() {
    for (text, canonical, clear) in [
        ("sources.bytes > 1 Gbit/s", "sources.bytes > 1 Gbit/s", 0.9),
        ("  top_sources.bytes>1Gbit/s ", "sources.bytes > 1 Gbit/s", 0.9),
        ("destinations_per_source > 5000", "destinations_per_source.distinct > 5000", 4500.0),
        ("spread.destinations_per_source >= 5e3", "destinations_per_source.distinct >= 5000", 4500.0),
        ("coverage < 0.99", "coverage < 0.99", 0.991),
        ("coverage < 99 %", "coverage < 99 %", 99.1),
        ("coverage<99%", "coverage < 99 %", 99.1),
        ("kept <= 1", "kept <= 1", 1.0),
        ("lost > 0", "lost.packets > 0", 0.0),
        ("all.bytes < 10 kbit/s", "all.bytes < 10 kbit/s", 11.0),
        ("web.total.packets < 100", "web.total.packets < 100", 110.0),
        ("web.entropy.normalized < 0.5", "web.entropy.normalized < 0.5", 0.55),
        ("hosts > 7.5", "hosts.distinct > 7.5", 6.75),
        ("views.opens > 10", "opens.new_flows > 10", 9.0),
        ("each.bytes > 5 MB", "each.bytes > 5 MB", 4.5),
        ("rates.bytes > 3 Gbit/s", "rates.bytes.max > 3 Gbit/s", 2.7),
    ] {
        let when = when(text);
        assert_eq!((when.to_string(), when.clear()), (canonical.to_owned(), clear), "{text}");
        assert_eq!(self::when(canonical), when);
    }
}

#[test]
fn numbers_with_units_are_taken_apart() {
    let parse =
        |text: &str| Quantity::parse(text, Dimension::Bytes).map(|of| (of.number, of.unit.map(|unit| unit.name)));
    for (text, number, unit) in [
        ("5", 5.0, None),
        (" 0.5 Gbit/s ", 0.5, Some("Gbit/s")),
        ("1e9", 1e9, None),
        ("1E-3GB", 0.001, Some("GB")),
        ("1.5e+3 kB", 1500.0, Some("kB")),
        (".5 B", 0.5, Some("B")),
    ] {
        assert_eq!(parse(text), Ok((number, unit)), "{text}");
    }
    for text in
        ["", "x", "-1", "1.2.3", "1e", "1 e5", "1,000", "1_000", "e5", "9e999", "nan", "inf", "5 5", "0x10", "５"]
    {
        assert!(parse(text).is_err(), "{text}");
    }
}

/// Nothing that a person may type makes it panic.
#[test]
fn no_text_makes_it_panic() {
    let pieces =
        ["sources", ".", "bytes", " ", ">", "=", "<", "1", "e", "-", "Gbit/s", "%", "é", "\u{0}", "!", "coverage"];
    let catalogue = catalogue();
    let mut random = 1_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text += pieces[(random >> 33) as usize % pieces.len()];
        }
        if let Ok(when) = When::parse(&text, &catalogue) {
            assert_eq!(When::parse(&when.to_string(), &catalogue).as_ref(), Ok(&when), "{text}");
            assert!(when.allows(when.clear()), "{text}");
        }
    }
    assert_eq!(When::parse("nothing > 1", &catalogue), Err(WhenError::Unknown("nothing".to_owned())));
}

fn row(value: u64, lower: u64, upper: u64) -> Report {
    let mut report = golden();
    report.spread.destinations_per_source.truncate(1);
    report.spread.destinations_per_source[0].distinct = Some(Estimate { value, lower, upper, sampled: None });
    report
}

#[test]
fn only_the_bound_that_makes_it_certain_decides() {
    // Above: the lower bound.
    assert!(!fires("destinations_per_source > 5000", &row(9_000, 5_000, 12_000)), "it may be 5000");
    assert!(fires("destinations_per_source > 5000", &row(5_500, 5_001, 12_000)));
    assert!(fires("destinations_per_source >= 5000", &row(5_500, 5_000, 12_000)));
    // Below: the upper bound.
    let unique = |lower, upper| {
        let mut report = golden();
        (report.unique.src_ip.lower, report.unique.src_ip.value, report.unique.src_ip.upper) = (lower, lower, upper);
        report
    };
    assert!(!fires("unique.src_ip < 100", &unique(10, 100)), "it may be 100");
    assert!(fires("unique.src_ip < 100", &unique(10, 99)));
    assert!(fires("unique.src_ip <= 100", &unique(10, 100)));
    // With sampling a count by protocol has no bounds, and so nothing is certain.
    let mut report = golden();
    assert!(report.interfaces.iter().any(|interface| interface.sampling > 1));
    assert!(!fires("totals.tcp_packets > 1", &report) && !fires("totals.tcp_packets < 1e18", &report));
    report.interfaces.iter_mut().for_each(|interface| interface.sampling = 1);
    assert!(fires("totals.tcp_packets > 850709", &report) && fires("totals.tcp_packets < 850711", &report));
}

#[test]
fn bytes_that_are_assumed_make_nothing_certain() {
    let mut report = golden();
    let dropped = report.interfaces[0].ledger.lost.get_mut("socket_drop").unwrap();
    (dropped.packets, dropped.bytes) = (100, 100_000);
    assert!(fires("lost.socket_drop > 99", &report), "packets are counted");
    assert!(!fires("lost.socket_drop.bytes > 0", &report), "bytes are not");
    assert!(fires("lost.bytes > 95877", &report) && !fires("lost.bytes > 95878", &report));
    assert!(!fires("totals.bytes < 1e15", &report) && fires("totals.bytes > 912245677", &report));
    assert!(!fires("totals.bytes > 912245678", &report));
}

/// For random bounds around a truth: a rule that the truth does not meet never fires.
#[test]
fn what_is_not_true_never_fires() {
    let mut random = 7_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut fired = 0;
    for _ in 0..4_000 {
        let (truth, limit) = (draw(2_000), draw(2_000));
        let (lower, upper) = (truth - draw(truth + 1), truth + draw(500));
        let report = row(lower + draw(upper - lower + 1), lower, upper);
        let is_above = fires(&format!("destinations_per_source > {limit}"), &report);
        assert!(!is_above || truth > limit, "{truth} in {lower} to {upper} is not above {limit}");
        let mut report = golden();
        (report.unique.flows.lower, report.unique.flows.upper) = (lower, upper);
        let is_below = limit > 0 && fires(&format!("unique.flows < {limit}"), &report);
        assert!(!is_below || truth < limit, "{truth} in {lower} to {upper} is not below {limit}");
        fired += usize::from(is_above) + usize::from(is_below);
    }
    assert!(fired > 500, "{fired}: too few to show anything");
}

#[test]
fn an_alert_tells_its_numbers_the_farthest_first() {
    let mut report = golden();
    let template = report.spread.destinations_per_source[0].clone();
    let row = |nth: u64| {
        let mut row = template.clone();
        row.key.insert("src_ip".to_owned(), format!("192.0.2.{nth}").into());
        row.distinct = Some(Estimate { value: 100 * nth, lower: 90 * nth, upper: 110 * nth, sampled: None });
        row
    };
    report.spread.destinations_per_source = (1..=20).map(row).collect();
    let alert = judged(&rule("destinations_per_source > 450"), &report).unwrap();
    assert_eq!((alert.evidence.len(), alert.more), (EVIDENCE_MAX, 5), "15 of 20 are above");
    let shown: Vec<_> = alert.evidence.iter().map(|one| one.key["src_ip"].as_str().unwrap()).collect();
    let expected: Vec<_> = (11..=20).rev().map(|nth| format!("192.0.2.{nth}")).collect();
    assert_eq!(shown, expected);
    let first = &alert.evidence[0];
    assert_eq!((first.value, first.lower, first.upper), (2_000.0, 1_800.0, Some(2_200.0)));
    assert_eq!(first.key.len(), 1, "the key, and nothing that was measured: {:?}", first.key);
    assert_eq!(first.holder(), "src_ip 192.0.2.20");
    assert_eq!(first.amount(None), "2000 (1800 to 2200)");
    // The smallest first where they are too small.
    let alert = judged(&rule("kept < 100 %"), &report).unwrap();
    assert_eq!(alert.evidence[0].holder(), "direction ingress, interface eth0");
    assert_eq!(alert.evidence[0].amount(alert.unit.as_deref()), "99.9746 (99.9745 to 99.9746) %");
}

#[test]
fn a_rule_for_an_interface_is_not_about_others() {
    let report = golden();
    let of = |pattern: &str, text: &str| {
        let rule = Rule { interface: Some(pattern.to_owned()), ..rule(text) };
        judged(&rule, &report).map(|alert| alert.evidence.len())
    };
    assert_eq!(judged(&rule("seen > 0"), &report).map(|alert| alert.evidence.len()), Some(2));
    assert_eq!([of("eth0", "seen > 0"), of("wan*", "seen > 0"), of("ppp*", "seen > 0")], [Some(1), Some(1), None]);
    assert_eq!([of("eth0", "coverage < 0.99"), of("wan?.100", "coverage < 0.99")], [None, Some(1)]);
    assert_eq!([of("eth0", "dscp.packets > 0"), of("ppp*", "dscp.packets > 0")], [Some(2), None]);
}

#[test]
fn a_story_has_its_states_and_its_numbers() {
    let rule = Rule { windows: 2, clear: 4_000.0, ..rule("destinations_per_source > 5000") };
    let mut alerts = Alerts::new(&[rule], TEN);
    let told: Vec<String> = [6_000, 6_000, 6_000, 4_500, 3_000, 4_500, 3_000, 100, 100]
        .into_iter()
        .map(|lower| {
            let alert = alerts.judge(&row(lower, lower, lower)).pop();
            alert.map_or_else(String::new, |alert| {
                let change = alert.change.map_or_else(String::new, |change| format!(" {change}"));
                format!("{}{change} {} {}", alert.state, alert.windows, alert.evidence[0].value)
            })
        })
        .collect();
    let expected = [
        "pending 1 6000",
        "firing begins 2 6000",
        "firing 3 6000",
        "firing 4 4500",
        "clearing 5 3000",
        "firing 6 4500",
        "clearing 7 3000",
        "cleared ends 8 100",
        "",
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_window_that_is_cut_off_is_not_judged() {
    let rule = rule("destinations_per_source > 5000");
    let mut alerts = Alerts::new(&[rule], TEN);
    let mut short = row(6_000, 6_000, 6_000);
    short.window.seconds = 8.9;
    assert_eq!(alerts.judge(&short), [], "not yet");
    let fired = alerts.judge(&row(6_000, 6_000, 6_000)).pop().unwrap();
    assert_eq!((fired.state.as_str(), fired.change.as_deref()), ("firing", Some("begins")));
    let mut quiet = row(0, 0, 0);
    quiet.window.seconds = 8.9;
    let still = alerts.judge(&quiet).pop().unwrap();
    assert_eq!((still.state.as_str(), still.change, still.windows), ("firing", None, 1), "it stays as it was");
}

#[test]
fn another_configuration_ends_the_alerts_of_rules_that_it_does_not_have() {
    let [stays, leaves, new] =
        ["stays", "leaves", "new"].map(|name| Rule { name: name.to_owned(), ..rule("destinations_per_source > 5000") });
    let mut alerts = Alerts::new(&[stays.clone(), leaves], TEN);
    let mut told = |lower: u64, next: Option<&[Rule]>| {
        next.into_iter().for_each(|next| alerts.part_from(next));
        let told: Vec<_> = alerts
            .judge(&row(lower, lower, lower))
            .into_iter()
            .map(|alert| {
                let change = alert.change.map_or_else(String::new, |change| format!(" {change}"));
                format!("{} {}{change}", alert.rule, alert.state)
            })
            .collect();
        next.into_iter().for_each(|next| alerts.change(next, TEN));
        told
    };
    let next = [new, stays];
    assert_eq!(told(6_000, None), ["stays firing begins", "leaves firing begins"]);
    assert_eq!(told(6_000, Some(&next)), ["stays firing", "leaves withdrawn ends"]);
    assert_eq!(told(6_000, None), ["new firing begins", "stays firing"]);
    assert_eq!(told(0, Some(&[])), ["new cleared ends", "stays cleared ends"], "they end anyway");
    assert_eq!(told(6_000, None), [""; 0]);
    // What would begin with the last window of its rule does not begin.
    let mut alerts = Alerts::new(&next, TEN);
    alerts.part_from(&[]);
    assert_eq!(alerts.judge(&row(6_000, 6_000, 6_000)), []);
}

#[test]
fn what_a_late_cpu_has_may_be_missing() {
    let mut report = golden();
    assert!(fires("totals.packets < 2000000", &report));
    report.self_metrics.late_cpus = vec![1];
    assert!(!fires("totals.packets < 2000000", &report), "there may be more");
    assert!(fires("totals.packets > 1000000", &report), "there are so many at least");
}

#[test]
fn numbers_are_rounded_outwards() {
    assert_eq!((rounded(1.234_567_8, f64::floor), rounded(1.234_567_8, f64::ceil)), (1.234_56, 1.234_57));
    assert_eq!((rounded(123_456_789.0, f64::floor), rounded(123_456_789.0, f64::ceil)), (123_456_000.0, 123_457_000.0));
    assert_eq!((rounded(0.000_123_456_78, f64::floor), rounded(0.0, f64::ceil)), (0.000_123_456, 0.0));
    assert_eq!(rounded(f64::INFINITY, f64::ceil), f64::INFINITY);
}

/// The page lists every number that a rule may be about.
#[test]
fn the_page_lists_every_name() {
    let page = include_str!("../../../docs/ALERTS.md");
    let spans: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let all = Catalogue::new(Standard::ALL, &[]);
    let is_listed = |name: &&str| {
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let is_reason = ["skipped", "lost"].contains(&first) && rest.contains('.');
        let with = |first: &str| spans.contains(format!("{first}.{rest}").as_str());
        spans.contains(name) || with("LIST") || with("VIEW") || is_reason || spans.contains(first) && with("ACCOUNT")
    };
    let missing: Vec<_> = all.names().filter(|name| !is_listed(name)).collect();
    assert!(missing.is_empty(), "docs/ALERTS.md does not list {missing:?}");
}
