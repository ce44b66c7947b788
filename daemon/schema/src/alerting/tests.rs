//! Tests how rules judge reports: numbers, bounds, evidence.

use expect_test::expect_file;
use std::collections::BTreeSet;

use serde_json::Value;
use weir_config::{
    Config,
    rule::{When, catalogue::Catalogue},
    view::Standard,
};

use super::*;
use crate::Estimate;

const TEN: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

/// The golden report, without late CPUs.
fn golden() -> Report {
    let mut report: Report = serde_json::from_str(include_str!("../../tests/golden/report.json")).unwrap();
    report.self_metrics.late_cpus.clear();
    report
}

fn rule(text: &str) -> Rule {
    let views = Config::parse(include_str!("../../tests/golden/views.yaml"), "views.yaml").unwrap().views;
    let when =
        When::parse(text, &Catalogue::new(Standard::ALL, &views)).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    Rule { name: "r".to_owned(), interface: None, windows: 1, clear: when.clear(), when }
}

/// The alert that a rule raises for a report, if any.
fn judged(rule: &Rule, report: &Report) -> Option<Alert> {
    Alerts::new(std::slice::from_ref(rule), &Questions::default(), TEN).judge(report).pop()
}

fn fires(text: &str, report: &Report) -> bool {
    judged(&rule(text), report).is_some()
}

#[test]
fn unchanged_rules_keep_their_states_after_a_restart() {
    let report = golden();
    let rule = |text: &str| Rule { windows: 3, ..rule(text) };
    let (same, other) = (rule("packets > 1"), rule("packets > 2"));
    let mut before = Alerts::new(&[same.clone(), rule("lost > 1e9")], &Questions::default(), TEN);
    assert!(before.judge(&report).is_empty() || before.states().len() == 1);
    before.judge(&report);
    let states: Vec<_> = serde_json::from_str(&serde_json::to_string(&before.states()).unwrap()).unwrap();
    assert_eq!(states.len(), 1, "one of them is inactive");
    let mut after = Alerts::new(&[other, same], &Questions::default(), TEN);
    after.resume(&states);
    let told = after.judge(&report);
    assert!(told.iter().any(|alert| alert.windows == 3), "{told:?}");
    assert_eq!(after.states()[0].1, State::Pending(Since { start: report.window.start, windows: 1 }));
}

#[test]
fn numbers_are_found_under_the_names_of_the_report() {
    let report = golden();
    // The golden report meets the first condition, but not the second.
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

#[test]
fn no_rule_is_about_new_hosts_while_weir_is_learning() {
    let mut report = golden();
    assert!(fires("new_hosts > 1", &report) && !fires("new_hosts > 2", &report), "the lower bound decides");
    if let Some(new) = &mut report.new_hosts {
        new.learning = true;
    }
    assert!(!fires("new_hosts > 1", &report) && !fires("new_hosts < 100", &report));
}

/// Every name is read from a report with all parts, if the report has such a number.
#[test]
fn every_name_is_read() {
    let mut report = golden();
    report.spread.ports_per_source = report.spread.destinations_per_source.clone();
    // Only a configuration with a quota, or a rule about it, has this.
    let bytes = crate::Amount { value: 7, lower: 7, upper: None };
    report.usage = vec![crate::InterfaceUsage { interface: "wan0".to_owned(), since: Timestamp::UNIX_EPOCH, bytes }];
    let seen: BTreeSet<_> = report.views.iter().map(|view| view.name.clone()).collect();
    let standard = Catalogue::new(Standard::ALL, &[]).with_horizons(&[HOUR]);
    let mut without = Vec::new();
    for name in standard.names() {
        let mut count = 0;
        reading::visit(&standard.find(name).unwrap().selector, &report, &mut |number, _| {
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
    assert!(!fires("coverage < 0.99", &report), "a missing number is not too small");
    let own = &mut report.self_metrics;
    (own.cache_hit_rate, own.cpu_ns_per_packet, own.rss_bytes) = (None, None, None);
    for what in ["cache_hit_rate", "cpu_ns_per_packet", "rss_bytes"] {
        assert!(!fires(&format!("self.{what} < 1"), &report), "{what}: an unknown number is not too small");
    }
}

/// Checks every number that a rule can use, under each of its names.
#[test]
fn rules_read_the_same_numbers_from_the_golden_report() {
    let report = golden();
    let views = Config::parse(include_str!("../../tests/golden/views.yaml"), "views.yaml").unwrap().views;
    let mut text = String::new();
    let both = [Catalogue::new(Standard::ALL, &[]).with_horizons(&[HOUR]), Catalogue::new([], &views)];
    for (nth, catalogue) in both.iter().enumerate() {
        for name in catalogue.spellings().filter(|name| nth == 0 || both[0].find(name).is_none()) {
            let subject = catalogue.find(name).unwrap();
            text += &format!("{name} ({subject:?}, {:?})\n", subject.dimension);
            // A subject has the same numbers under its other names.
            if name != subject.name {
                continue;
            }
            reading::visit(&subject.selector, &report, &mut |Number { value, lower, upper }, owner| {
                text += &format!("  {value} {lower} {upper} {}\n", Value::Object(owner.key()));
            });
        }
    }
    expect_file!["../../tests/golden/rules.txt"].assert_eq(&text);
}

fn row(value: u64, lower: u64, upper: u64) -> Report {
    let mut report = golden();
    report.spread.destinations_per_source.truncate(1);
    report.spread.destinations_per_source[0].distinct = Some(Estimate { value, lower, upper, sampled: None });
    report
}

#[test]
fn only_the_bound_that_makes_a_condition_certain_decides() {
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
    // The count of a protocol has bounds if packets are missing.
    let mut report = golden();
    let tcp = report.totals.bounds.unwrap().tcp_packets;
    let [above, below] = [tcp.lower - 1, tcp.upper + 1];
    assert!(tcp.lower < report.totals.tcp_packets && report.totals.tcp_packets < tcp.upper);
    assert!(fires(&format!("totals.tcp_packets > {above}"), &report), "it is at least {}", tcp.lower);
    assert!(!fires(&format!("totals.tcp_packets > {}", tcp.lower), &report));
    assert!(fires(&format!("totals.tcp_packets < {below}"), &report), "it is at most {}", tcp.upper);
    assert!(!fires(&format!("totals.tcp_packets < {}", tcp.upper), &report));
    report.totals.bounds = None;
    assert!(fires("totals.tcp_packets > 850709", &report) && fires("totals.tcp_packets < 850711", &report));
}

#[test]
fn assumed_bytes_never_make_a_condition_certain() {
    let mut report = golden();
    let dropped = report.interfaces[0].ledger.lost.get_mut("socket_drop").unwrap();
    (dropped.packets, dropped.bytes) = (100, 100_000);
    assert!(fires("lost.socket_drop > 99", &report), "packets are counted");
    assert!(!fires("lost.socket_drop.bytes > 0", &report), "bytes are not");
    assert!(fires("lost.bytes > 95877", &report) && !fires("lost.bytes > 95878", &report));
    assert!(!fires("totals.bytes < 1e15", &report) && fires("totals.bytes > 912245677", &report));
    assert!(!fires("totals.bytes > 912245678", &report));
}

/// With random bounds around a true number, a rule never fires if the true number does not meet its condition.
#[test]
fn a_false_condition_never_fires() {
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
    assert!(fired > 500, "{fired} alerts are too few for this test");
}

#[test]
fn an_alert_lists_its_numbers_the_most_extreme_first() {
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
    assert_eq!(first.key.len(), 1, "only the key, no measured number: {:?}", first.key);
    assert_eq!(first.holder(), "src_ip 192.0.2.20");
    assert_eq!(first.amount(None), "2000 (1800 to 2200)");
    // Numbers that are too small come smallest first.
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
fn an_alert_has_the_right_states_and_numbers_from_beginning_to_end() {
    let rule = Rule { windows: 2, clear: 4_000.0, ..rule("destinations_per_source > 5000") };
    let mut alerts = Alerts::new(&[rule], &Questions::default(), TEN);
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
    let mut alerts = Alerts::new(&[rule], &Questions::default(), TEN);
    let mut short = row(6_000, 6_000, 6_000);
    short.window.seconds = Length::new(8.9);
    assert_eq!(alerts.judge(&short), [], "not yet");
    let fired = alerts.judge(&row(6_000, 6_000, 6_000)).pop().unwrap();
    assert_eq!((fired.state.as_str(), fired.change.as_deref()), ("firing", Some("begins")));
    let mut quiet = row(0, 0, 0);
    quiet.window.seconds = Length::new(8.9);
    let still = alerts.judge(&quiet).pop().unwrap();
    assert_eq!((still.state.as_str(), still.change, still.windows), ("firing", None, 1), "the state stays");
}

#[test]
fn a_window_that_is_too_long_begins_only_what_is_certain_and_ends_nothing() {
    let mut alerts =
        Alerts::new(&[rule("destinations_per_source > 5000"), rule("unique.src_ip < 5")], &Questions::default(), TEN);
    let mut judge = |seconds: f64, lower: u64| {
        let mut report = row(lower, lower, lower);
        report.window.seconds = Length::new(seconds);
        let told = alerts.judge(&report);
        let told = told.iter().map(|alert| format!("{} {}", alert.state, alert.change.clone().unwrap_or_default()));
        told.collect::<Vec<_>>()
    };
    assert_eq!(judge(25.2, 12_000), [""; 0], "this much came in more than two windows");
    assert_eq!(judge(11.1, 6_000), [""; 0]);
    assert_eq!(judge(10.9, 6_000), ["firing begins"]);
    assert_eq!(judge(25.2, 0), ["firing "], "the state stays");
    assert_eq!(judge(10.0, 0), ["cleared ends"]);
    assert_eq!(judge(25.2, 15_000), [""; 0], "three windows may have had 5000 each");
    assert_eq!(judge(25.2, 15_003), ["firing begins"], "one of three had more");
    let mut any = Alerts::of_any_length(&[rule("destinations_per_source > 5000")], &Questions::default());
    for (seconds, is_judged) in [(0.9, false), (1.0, true), (1e9, true)] {
        assert_eq!(any.extent(Length::new(seconds)) == Extent::Whole, is_judged);
    }
    let mut report = row(6_000, 6_000, 6_000);
    report.window.seconds = Length::new(3_600.0);
    assert_eq!(any.judge(&report).len(), 1);
    report.window.seconds = Length::default();
    assert!(any.judge(&report).iter().all(|alert| alert.evidence.is_empty()), "there is no rate");
}

#[test]
fn a_loss_in_a_window_that_is_too_long_is_certain_and_a_rate_is_its_mean() {
    let mut report = golden();
    report.window.seconds = Length::new(12.0);
    let fires = |text: &str| Alerts::new(&[rule(text)], &Questions::default(), TEN).judge(&report).pop().is_some();
    assert!(fires("lost.ring_full > 0"));
    // A window of ten seconds had at least half of all packets.
    let packets = report.totals.packets as f64;
    let limits = [0.999, 1.001].map(|part| packets / 20.0 * part);
    assert_eq!(limits.map(|limit| fires(&format!("packets > {limit:.3} pkt/s"))), [true, false]);
}

#[test]
fn windows_with_a_gap_between_them_are_not_in_a_row() {
    let rule = Rule { windows: 2, ..rule("destinations_per_source > 5000") };
    let mut alerts = Alerts::new(&[rule], &Questions::default(), TEN);
    let mut judge = |start_s: i64, lower: u64, is_stepped: bool| {
        let mut report = row(lower, lower, lower);
        report.window.start = Timestamp::from_second(start_s).unwrap();
        report.window.end = Timestamp::from_second(start_s + 10).unwrap();
        report.window.clock_step_seconds = is_stepped.then_some(3_600.0);
        alerts.judge(&report).pop().map_or_else(String::new, |alert| alert.state)
    };
    assert_eq!(judge(0, 6_000, false), "pending");
    assert_eq!(judge(7_200, 6_000, false), "pending", "two hours later it is the first one again");
    assert_eq!(judge(7_210, 6_000, false), "firing");
    assert_eq!(judge(7_220, 0, false), "clearing");
    assert_eq!(judge(9_000, 0, false), "clearing", "it ends after two windows in a row");
    assert_eq!(judge(9_010, 0, false), "cleared");
    // If the clock was set, windows still follow each other.
    assert_eq!(judge(9_020, 6_000, true), "pending");
    assert_eq!(judge(12_620, 6_000, false), "firing");
}

#[test]
fn a_new_configuration_ends_the_alerts_of_removed_rules() {
    let [stays, leaves, new] =
        ["stays", "leaves", "new"].map(|name| Rule { name: name.to_owned(), ..rule("destinations_per_source > 5000") });
    let mut alerts = Alerts::new(&[stays.clone(), leaves], &Questions::default(), TEN);
    let mut told = |lower: u64, next: Option<&[Rule]>| {
        if let Some(next) = next {
            alerts.part_from(next, &Questions::default());
        }
        let told: Vec<_> = alerts
            .judge(&row(lower, lower, lower))
            .into_iter()
            .map(|alert| {
                let change = alert.change.map_or_else(String::new, |change| format!(" {change}"));
                format!("{} {}{change}", alert.rule, alert.state)
            })
            .collect();
        if let Some(next) = next {
            alerts.change(next, &Questions::default(), TEN);
        }
        told
    };
    let next = [new, stays];
    assert_eq!(told(6_000, None), ["stays firing begins", "leaves firing begins"]);
    assert_eq!(told(6_000, Some(&next)), ["stays firing", "leaves withdrawn ends"]);
    assert_eq!(told(6_000, None), ["new firing begins", "stays firing"]);
    assert_eq!(told(0, Some(&[])), ["new cleared ends", "stays cleared ends"], "they end anyway");
    assert_eq!(told(6_000, None), [""; 0]);
    // An alert that would begin with the last window of its rule does not begin.
    let mut alerts = Alerts::new(&next, &Questions::default(), TEN);
    alerts.part_from(&[], &Questions::default());
    assert_eq!(alerts.judge(&row(6_000, 6_000, 6_000)), []);
}

/// A view keeps its name, but asks something else: the windows before are not evidence for the windows after.
#[test]
fn a_view_that_asks_another_question_ends_its_alerts() {
    let web_asks = |question: &str| Questions {
        by_name: [("web".to_owned(), question.to_owned())].into(),
        ..Questions::default()
    };
    let (web, dns) = (web_asks("0000000000000080"), web_asks("0000000000000053"));
    let rules = [
        Rule { name: "web".to_owned(), windows: 2, ..rule("web.bytes > 1") },
        Rule { name: "all".to_owned(), windows: 2, ..rule("packets > 1") },
    ];
    let mut report = golden();
    report.views[0].name = "web".to_owned();
    let states = |alerts: &mut Alerts| {
        let told = alerts.judge(&report);
        told.iter().map(|alert| format!("{} {}", alert.rule, alert.state)).collect::<Vec<_>>()
    };
    let mut alerts = Alerts::new(&rules, &web, TEN);
    assert_eq!(states(&mut alerts), ["web pending", "all pending"]);
    alerts.part_from(&rules, &web);
    assert_eq!(states(&mut alerts), ["web firing", "all firing"]);
    let before = alerts.states();
    alerts.part_from(&rules, &dns);
    assert_eq!(states(&mut alerts), ["web withdrawn", "all firing"]);
    alerts.change(&rules, &dns, TEN);
    assert_eq!(states(&mut alerts), ["web pending", "all firing"]);
    // The same after a restart.
    for (questions, expected) in [(&web, "web firing"), (&dns, "web pending")] {
        let mut resumed = Alerts::new(&rules, questions, TEN);
        resumed.resume(&before);
        assert_eq!(states(&mut resumed), [expected, "all firing"]);
    }
    let of_earlier_version: Vec<_> =
        alerts.rules.iter().zip(before).map(|(of, (_, state))| (of.rule.to_string(), state)).collect();
    let mut resumed = Alerts::new(&rules, &dns, TEN);
    resumed.resume(&of_earlier_version);
    assert_eq!(states(&mut resumed), ["web firing", "all firing"]);
}

/// There are 100 more packets than were counted at most, and 50,000 more bytes.
#[test]
fn what_is_not_certain_is_judged_by_its_bounds() {
    let mut report = golden();
    let bounds = |lower, upper| crate::Bounds { lower, upper };
    for interface in &mut report.interfaces {
        for lost in interface.ledger.lost.values_mut() {
            *lost = crate::Tally::default();
        }
    }
    report.interfaces[0].ledger.uncertain =
        Some(crate::Uncertain { packets: bounds(100, 200), bytes: bounds(0, 50_000) });
    let crate::Totals { packets, bytes, .. } = report.totals;
    for (number, limit, beyond) in [("packets", packets, 100), ("bytes", bytes, 50_000)] {
        assert!(!fires(&format!("{number} < {}", limit + beyond), &report), "there may be as many");
        assert!(fires(&format!("{number} < {}", limit + beyond + 1), &report));
        assert!(
            fires(&format!("{number} > {}", limit - 1), &report) && !fires(&format!("{number} > {limit}"), &report)
        );
    }
}

#[test]
fn packets_of_a_late_cpu_may_be_missing() {
    let mut report = golden();
    assert!(fires("totals.packets < 2000000", &report));
    report.self_metrics.late_cpus = vec![1];
    assert!(!fires("totals.packets < 2000000", &report), "there may be more");
    assert!(fires("totals.packets > 1000000", &report), "there are at least this many");
}

#[test]
fn numbers_are_rounded_outwards() {
    assert_eq!((rounded(1.234_567_8, f64::floor), rounded(1.234_567_8, f64::ceil)), (1.234_56, 1.234_57));
    assert_eq!((rounded(123_456_789.0, f64::floor), rounded(123_456_789.0, f64::ceil)), (123_456_000.0, 123_457_000.0));
    assert_eq!((rounded(0.000_123_456_78, f64::floor), rounded(0.0, f64::ceil)), (0.000_123_456, 0.0));
    assert_eq!(rounded(f64::INFINITY, f64::ceil), f64::INFINITY);
}
