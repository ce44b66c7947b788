use std::net::IpAddr;

use serde_json::json;

use super::*;
use crate::traffic::{Mix, Plan, Traffic};
use crate::{
    oracle::proto,
    truth::{Key, Lacks},
};

fn oracle() -> Oracle {
    let plan = Plan { packets: 20_000, mix: Mix::odd(), ..Plan::default() };
    let mut oracle = Oracle::new();
    for packet in Traffic::new(plan).unwrap() {
        oracle.add(&packet.truth);
    }
    oracle
}

/// A report without errors.
fn report(oracle: &Oracle) -> Value {
    let mut report = oracle.to_json(20);
    let mut ledger = report["ledger"].take();
    ledger["sampled_out"] = json!({"packets": 0, "bytes": 0});
    ledger["lost"] = json!({"ring_full": {"packets": 0, "bytes": 0}});
    let (tcp, sizes) = (report["tcp"].take(), report["packet_sizes"].take());
    report["interfaces"] = json!([{"name": "wan0", "ledger": ledger, "tcp": tcp, "packet_sizes": sizes}]);
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
fn each_kind_of_deviation_is_found_and_reported() {
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
        (add("/interfaces/0/tcp/syn", 1), ".tcp.syn: "),
        (add("/interfaces/0/tcp/syn_ack", -1), ".tcp.syn_ack: "),
        (set("/interfaces/0/tcp/fin", json!(null)), ".fin: is not a number"),
        (add("/interfaces/0/packet_sizes/5/1", -1), ".packet_sizes up to 1518"),
        (add("/interfaces/0/packet_sizes/0/0", 1), ".packet_sizes: other classes"),
        (set("/interfaces/0/packet_sizes", json!(null)), ".interfaces[0]: packet_sizes are null"),
        (add("/totals/bytes", 1), ".totals, bytes"),
        (add("/totals/udp_packets", 1), ".totals.udp_packets"),
        (add("/histograms/packet_size_bytes/min", 1), ".histograms.packet_size_bytes.min"),
        (add("/histograms/packet_size_bytes/p50", 100), ".histograms.packet_size_bytes.p50"),
        (add("/new_flows", 1), ".new_flows"),
        (set("/unique/flows", json!({"value": 0, "lower": 0, "upper": 9999})), "more than 2 % away"),
        (set("/unique/flows", json!({"value": unique + 3, "lower": unique + 2, "upper": unique + 4})), "outside of"),
        (set("/unique/flows", json!({"value": 5, "lower": 6, "upper": 7})), "outside of its own bounds"),
        (add("/top/flows/3/bytes", 1), ".top.flows[3]"),
        (add("/top_by_packets/services/0/packets", -1), ".top_by_packets.services[0]"),
        (set("/top/sources/1", right["top"]["sources"][0].clone()), "is listed again"),
        (set("/top/sources/0", right["top"]["sources"][1].clone()), "this rank belongs to"),
        (set("/top/pairs/0/src_ip", json!("192.0.2.77")), "was not there"),
        (set("/top/pairs", json!([])), "0 entries, but at least 10 keys must be listed"),
        (add("/top/source_prefixes/0/beyond/bytes", 1), ".top.source_prefixes[0], beyond bytes"),
        (add("/top_by_packets/destination_prefixes/1/packets", -1), ".destination_prefixes[1], all packets"),
        (add("/top/source_prefixes/0/members", 1), ".top.source_prefixes[0].members"),
        (set("/top/source_prefixes/1", right["top"]["source_prefixes"][0].clone()), "is listed twice"),
        (set("/top/source_prefixes/0", right["top"]["source_prefixes"][1].clone()), "is listed twice"),
        (set("/top/source_prefixes", json!(null)), ".top.source_prefixes: is not a list"),
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
fn bounds_of_tcp_hold_the_truth() {
    let oracle = oracle();
    let bounded = |value: u64, lower: u64, upper: u64| {
        let mut report = report(&oracle);
        let tcp = &mut report["interfaces"][0]["tcp"];
        let mut bounds = json!({"confidence": 0.999});
        for (name, truth) in oracle.tcp() {
            bounds[name] = json!({"lower": truth, "upper": truth});
        }
        bounds["rst"] = json!({"lower": lower, "upper": upper});
        (tcp["rst"], tcp["bounds"]) = (json!(value), bounds);
        oracle.check_report(&report)
    };
    let (_, truth) = oracle.tcp().find(|(name, _)| *name == "rst").unwrap();
    assert!(truth > 50, "{truth}");
    assert_eq!(bounded(truth + 9, truth - 9, truth + 19), Ok(()));
    for (value, lower, upper, deviation) in
        [(truth + 99, truth + 89, truth + 109, "far outside"), (truth, truth + 1, truth + 2, "its own bounds")]
    {
        let deviations = bounded(value, lower, upper).expect_err(deviation);
        assert!(deviations.iter().any(|line| line.contains(deviation)), "{deviations:#?}");
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
        oracle.add(&crate::truth::Truth { flow: Ok(key(host)), tcp_flags: 0, tos: 0, vlan: 0, bytes: 100 });
    }
    let mut report = report(&oracle);
    report["top"]["sources"].as_array_mut().unwrap().reverse();
    report["top"]["sources"][0]["bytes"] = json!({"value": 105, "lower": 95, "upper": 115});
    assert_eq!(oracle.check_report(&report), Ok(()));
}

/// A report without errors, except that some packets of UDP over IPv4 with 100 bytes each were lost, of keys that are
/// not listed.
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
fn lost_packets_excuse_as_much_and_no_more() {
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
        (set("/top/sources", json!([])), "0 entries, but at least 10 keys must be listed"),
        (set("/top_by_packets/sources/0", far), "this rank belongs to"),
        (set("/top/flows/0/bytes", json!({"value": 0, "lower": 0, "upper": 99})), "outside of bytes"),
        (set("/totals/udp_packets", json!(0)), ".totals.udp_packets"),
        (set("/totals/tcp_packets", json!(0)), ".totals, by protocol"),
        (set("/unique/src_ip", json!({"value": 1, "lower": 0, "upper": 99_999})), "is more than 2 % away"),
        (set("/unique/src_ip", json!({"value": 1, "lower": 0, "upper": 2, "confidence": 0.999})), "times the bounds"),
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
    // The traffic beyond the listed sources would be a different number now.
    report["top"]["source_prefixes"] = json!([]);
    assert_eq!(oracle.check_report(&report), Ok(()));
    report["top"]["sources"][2]["bytes"] = json!({"value": 5, "lower": 4, "upper": 6});
    let deviations = oracle.check_report(&report).unwrap_err();
    assert!(matches!(&deviations[..], [line] if line.contains("outside of bytes")), "{deviations:#?}");
}

#[test]
fn bounds_of_lists_are_judged_at_the_confidence_of_their_list() {
    let oracle = oracle();
    let with = |away: u64, confidence: f64| {
        let mut report = report(&oracle);
        report["top"]["confidence"] = json!(confidence);
        let bytes = &mut report["top"]["sources"][0]["bytes"];
        let value = bytes.as_u64().unwrap() + away;
        *bytes = json!({"value": value, "lower": value - 10, "upper": value + 10});
        let deviations = oracle.check_report(&report).err().unwrap_or_default();
        deviations.iter().all(|line| !line.contains("outside of bytes"))
    };
    // 1.49 times as far, as in the next test.
    assert!(with(10, 1.0) && !with(11, 1.0), "certain bounds always hold");
    assert!(with(15, 0.999) && !with(17, 0.999));
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
        assert_eq!(proto::number(&proto::name(proto)), Some(proto));
        assert_eq!(proto::number(&proto.to_string()), Some(proto));
    }
    assert_eq!(proto::number("ipv6-icmp"), Some(58));
    assert_eq!(proto::number("256"), None);
}
