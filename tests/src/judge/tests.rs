use serde_json::json;

use super::*;

fn golden() -> Value {
    let mut report: Value =
        serde_json::from_str(include_str!("../../../daemon/schema/tests/golden/report.json")).unwrap();
    // The golden report has everything that a report can have. But with a late CPU not everything can be judged.
    report["self"]["late_cpus"] = Value::Null;
    report
}

#[test]
fn the_golden_report_agrees_with_itself() {
    let faults = faults(&golden(), true);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Each change is one lie; the judge names its place.
#[test]
fn each_lie_is_named() {
    let lies: &[(&str, Value, &str)] = &[
        ("/totals/packets", json!(1), ".totals.packets"),
        ("/totals/ipv4_packets", json!(1u64 << 40), ".totals, by version"),
        ("/totals/udp_packets", json!(1u64 << 40), ".totals, by protocol"),
        ("/unique/src_ip/upper", json!(1u64 << 40), ".unique.src_ip"),
        ("/interfaces/0/ledger/attributed/bytes", json!(1), ".interfaces[0]"),
        ("/interfaces/0/kept", json!(1.5), ".interfaces[0]"),
        ("/interfaces/0/sampling", json!(9), ".top.sampling"),
        ("/top/confidence", json!(1.0), ".top.confidence"),
        ("/top/flows/0/bytes/lower", json!(1u64 << 60), ".top.flows[0].bytes"),
        ("/top/flows/0/rank", json!(7), ".top.flows, rank"),
        (
            "/top/flows/0/packets",
            json!({"value": 1u64 << 40, "lower": 0, "upper": 1u64 << 40}),
            ".top.flows[0].packets",
        ),
        ("/histograms/packet_size_bytes/count", json!(1), ".histograms.packet_size_bytes"),
        ("/histograms/packet_size_bytes/max", json!(1), ".histograms.packet_size_bytes"),
        ("/views/0/total/bytes", json!({"value": 0, "lower": 0, "upper": 0}), ".views"),
    ];
    for (pointer, lie, place) in lies {
        let mut report = golden();
        *report.pointer_mut(pointer).unwrap_or_else(|| panic!("there is no {pointer}")) = lie.clone();
        let found = faults(&report, true);
        assert!(found.iter().any(|fault| fault.starts_with(place)), "{pointer}: {found:?}");
    }
}

#[test]
fn a_key_that_is_listed_twice_is_named() {
    let mut report = golden();
    let first = report["top"]["flows"][0].clone();
    report["top"]["flows"].as_array_mut().unwrap().push(first);
    assert!(faults(&report, true).iter().any(|fault| fault.contains("listed twice")));
}
