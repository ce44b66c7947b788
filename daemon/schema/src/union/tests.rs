use serde_json::Value;

use super::{views::unmeasured, *};
use crate::{Estimate, Row, Sums, Uncertain, ViewTable};

fn golden() -> Report {
    serde_json::from_str(include_str!("../../tests/golden/report.json")).unwrap()
}

const BY_PACKETS: Order = Order { by_packets: true, is_masked: false };

fn exact(value: u64) -> Estimate {
    Estimate { value, lower: value, upper: value, sampled: None }
}

fn row(key: u64, packets: u64) -> Row {
    Row {
        key: [("port".to_owned(), Value::from(key))].into_iter().collect(),
        packets: Some(exact(packets)),
        bytes: Some(exact(packets * 100)),
        ..Row::default()
    }
}

#[test]
fn the_union_of_no_window_is_none_and_of_one_window_itself() {
    assert_eq!(Union::of(&[]), None);
    let mut report = golden();
    for top in [&mut report.top, &mut report.top_by_packets] {
        (top.source_prefixes, top.destination_prefixes) = (Vec::new(), Vec::new());
    }
    let one = Union::of(&[report.clone()]).unwrap();
    assert_eq!((&one.reports[..], one.window.seconds), (&[report.id.clone()][..], report.window.seconds));
    assert_eq!((&one.totals, &one.unique, &one.new_flows), (&report.totals, &report.unique, &report.new_flows));
    for (interface, known) in one.interfaces.iter().zip(&report.interfaces) {
        assert_eq!((&interface.ledger, &interface.tcp), (&known.ledger, &known.tcp));
        assert!(interface.ledger.balances());
    }
    let bounds =
        |top: &Top| top.flows.iter().map(|flow| (flow.src_ip, flow.bytes.lower, flow.bytes.upper)).collect::<Vec<_>>();
    assert_eq!(bounds(&one.top), bounds(&report.top));
}

#[test]
fn a_union_says_how_the_part_with_least_of_addresses_masks_them() {
    let of = |names: [Option<&str>; 3]| {
        let report = |name: Option<&str>| Report { addresses: name.map(str::to_owned), ..golden() };
        Union::of(&names.map(report)).unwrap().addresses
    };
    for (names, expected) in [
        ([None, None, None], None),
        ([None, Some("prefix"), None], Some("prefix")),
        ([Some("none"), Some("prefix"), None], Some("none")),
        ([Some("of a later weir"), Some("prefix"), None], Some("of a later weir")),
    ] {
        assert_eq!(of(names).as_deref(), expected);
    }
}

#[test]
fn sums_are_exact_and_ledgers_balance() {
    let (mut first, mut last) = (golden(), golden());
    last.id = "7f3c9a52/b41d/43".to_owned();
    let uncertain = |times: u64| Uncertain {
        packets: Bounds { lower: 3 * times, upper: 4 * times },
        bytes: Bounds { lower: 300 * times, upper: 410 * times },
    };
    for interface in first.interfaces.iter_mut().chain(&mut last.interfaces) {
        interface.ledger.uncertain = Some(uncertain(1));
    }
    last.interfaces.remove(1);
    let two = Union::of(&[first.clone(), last]).unwrap();
    assert_eq!(two.reports.len(), 2);
    assert_eq!(two.totals.packets, 2 * first.totals.packets);
    assert_eq!(two.interfaces.len(), 2);
    assert_eq!([0, 1].map(|nth| two.interfaces[nth].ledger.uncertain), [2, 1].map(|times| Some(uncertain(times))));
    assert!(two.interfaces.iter().all(|interface| interface.ledger.balances()));
    let seen = |interfaces: &[Interface], nth: usize| interfaces[nth].ledger.seen.packets;
    assert_eq!(seen(&two.interfaces, 0), 2 * seen(&first.interfaces, 0));
    assert_eq!(seen(&two.interfaces, 1), seen(&first.interfaces, 1), "the interface was in one window only");
    let (one, both) = (first.unique.flows, two.unique.flows);
    assert_eq!((both.lower, both.upper), (one.lower, 2 * one.upper));
    assert!((both.confidence - 0.9).abs() < 1e-9, "twice 0.95: {}", both.confidence);
}

#[test]
fn an_unlisted_key_had_at_most_the_rest_of_the_total() {
    let total = Tally { packets: 100, bytes: 10_000 };
    let lists = [[row(1, 60), row(2, 30)], [row(1, 50), row(3, 40)]];
    let windows = lists.each_ref().map(|rows| Listed::of(rows, total));
    let rows = together(&windows, true);
    let packets = |nth: usize| rows[nth].packets.unwrap();
    assert_eq!(rows.len(), 3, "each key of any list");
    assert_eq!((rows[0].rank, &rows[0].key["port"], packets(0)), (Some(1), &Value::from(1), exact(110)));
    assert_eq!((rows[1].rank, &rows[1].key["port"]), (Some(2), &Value::from(3)));
    assert_eq!(
        (packets(1).value, packets(1).lower, packets(1).upper),
        (40, 40, 50),
        "10 packets of the first window are not listed"
    );
    // The report of the first window says that no other key has more than 3.
    let windows = lists.each_ref().map(|rows| Listed::of(rows, total));
    let [first, second] = windows.map(|of| of.at_most(Some(3), BY_PACKETS));
    assert_eq!((first.others.packets, second.others.packets, first.others.bytes), (3, 3, 1_000));
    let rows = together(&[first, second], true);
    assert_eq!((rows[1].packets.unwrap().upper, rows[1].bytes.unwrap().upper), (43, 5_000));
    let masked = Order { is_masked: true, ..BY_PACKETS };
    assert_eq!(Listed::of(&lists[0], total).at_most(Some(3), masked).others.packets, 10, "several may have become one");
}

#[test]
fn rows_that_are_left_out_count_as_unlisted() {
    let rows = || vec![row(1, 60), row(2, 30), row(3, 10)];
    for (kept, unlisted, expected) in
        [(3, Some(5), Some(5)), (2, Some(5), Some(10)), (0, Some(70), Some(70)), (1, None, None), (9, Some(0), Some(0))]
    {
        let (mut rows, mut most) = (rows(), unlisted);
        cut(&mut rows, &mut most, kept, true);
        assert_eq!((rows.len(), most), (kept.min(3), expected), "{kept} {unlisted:?}");
        let (mut rows, mut most) = (vec![row(1, 7)], unlisted);
        cut(&mut rows, &mut most, 0, false);
        assert_eq!(most, unlisted.map(|most| most.max(700)));
    }
}

/// Bounds hold for each row, whatever the windows contain.
#[test]
fn bounds_hold_whatever_the_windows_list() {
    let mut state = 1_u64;
    let mut random = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for _ in 0..200 {
        let mut truth = [0_u64; 12];
        let windows: Vec<_> = (0..1 + random(5))
            .map(|_| {
                let counts: Vec<u64> = (0..truth.len()).map(|_| random(4) * random(50)).collect();
                for (sum, count) in truth.iter_mut().zip(&counts) {
                    *sum += count;
                }
                let total = counts.iter().sum();
                let mut rows: Vec<_> = counts.iter().zip(0..).map(|(count, key)| row(key, *count)).collect();
                rows.sort_by_key(|row| std::cmp::Reverse(row.packets.unwrap().value));
                rows.truncate(random(8) as usize);
                rows.retain(|row| row.packets.unwrap().value > 0);
                let is_listed = |key: u64| rows.iter().any(|row| row.key["port"] == key);
                let others = counts.iter().zip(0..).filter(|(_, key)| !is_listed(*key)).map(|(count, _)| *count);
                let unlisted = others.max().filter(|_| random(3) > 0);
                (rows, Tally { packets: total, bytes: total * 100 }, unlisted)
            })
            .collect();
        let windows: Vec<_> =
            windows.iter().map(|(rows, total, most)| Listed::of(rows, *total).at_most(*most, BY_PACKETS)).collect();
        let rows = together(&windows, true);
        let most = unlisted(&windows, BY_PACKETS).unwrap();
        for (truth, key) in truth.iter().zip(0_u64..) {
            assert!(*truth <= most || rows.iter().any(|row| row.key["port"] == key), "{truth} of {key}, {most}");
        }
        for row in &rows {
            let truth = truth[row.key["port"].as_u64().unwrap() as usize];
            let packets = row.packets.unwrap();
            assert!((packets.lower..=packets.upper).contains(&truth), "{packets:?} of {truth}");
            assert!((packets.lower..=packets.upper).contains(&packets.value), "{packets:?}");
        }
        assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse(row.packets.unwrap().lower)));
    }
}

#[test]
fn a_view_that_changed_is_left_out() {
    let view = |measure: &str, packets: u64| View {
        unlisted: None,
        name: "ports".to_owned(),
        question: None,
        by: vec!["port".to_owned()],
        measure: Value::from(measure),
        counted: "once".to_owned(),
        confidence: 1.0,
        total: Some(Sums { packets: exact(packets), bytes: exact(packets * 100) }),
        entropy: None,
        rows: Some(vec![row(443, packets)]),
        tables: None,
    };
    let of = |measures: [&str; 2]| {
        let reports = measures.map(|measure| Report { views: vec![view(measure, 7)], ..golden() });
        Union::of(&reports).unwrap().views
    };
    let both = of(["packets", "packets"]);
    assert_eq!(both[0].rows.as_ref().unwrap()[0].packets, Some(exact(14)));
    assert_eq!(both[0].total.unwrap().packets, exact(14));
    assert!(of(["bytes", "packets"]).is_empty() && of(["flows", "flows"]).is_empty());
    let report = Report { views: vec![view("flows", 7)], ..golden() };
    assert_eq!(Union::of(&[report]).unwrap().left_out, ["ports", "source_prefixes", "destination_prefixes"]);
}

#[test]
fn tables_of_interfaces_stay_apart() {
    let table = |interface: &str, packets: u64| ViewTable {
        interface: interface.to_owned(),
        direction: Some("ingress".to_owned()),
        total: Some(Sums { packets: exact(packets), bytes: exact(packets * 100) }),
        rows: vec![row(443, packets)],
    };
    let view = |tables: Vec<ViewTable>| View {
        unlisted: None,
        name: "ports".to_owned(),
        question: None,
        by: vec!["port".to_owned()],
        measure: Value::from("bytes"),
        counted: "per_interface".to_owned(),
        confidence: 1.0,
        total: None,
        entropy: None,
        rows: None,
        tables: Some(tables),
    };
    let mut report = golden();
    report.interfaces.truncate(1);
    let tables = [vec![table("eth0", 5)], vec![table("eth0", 6), table("eth1", 7)]];
    let reports = tables.map(|tables| Report { views: vec![view(tables)], ..report.clone() });
    let views = Union::of(&reports).unwrap().views;
    let packets = |nth: usize| views[0].tables.as_ref().unwrap()[nth].rows[0].packets.unwrap();
    assert_eq!(packets(0), exact(11));
    assert_eq!(packets(1), exact(7), "the lost packets were on another interface");
}

/// The window without a table has lost 280 packets of this interface, which may all have matched.
#[test]
fn the_lost_packets_of_a_window_without_a_table_may_have_matched() {
    let table = |packets: u64| ViewTable {
        interface: "eth0".to_owned(),
        direction: Some("ingress".to_owned()),
        total: Some(Sums { packets: exact(packets), bytes: exact(packets * 100) }),
        rows: vec![row(443, packets)],
    };
    let view = |tables: Vec<ViewTable>| View {
        unlisted: None,
        name: "ports".to_owned(),
        question: None,
        by: vec!["port".to_owned()],
        measure: Value::from("packets"),
        counted: "per_interface".to_owned(),
        confidence: 1.0,
        total: None,
        entropy: None,
        rows: None,
        tables: Some(tables),
    };
    let missing = unmeasured(&Union::one(&golden()), &table(0));
    assert_eq!(missing.packets, 280);
    for tables in [[vec![table(10)], vec![]], [vec![], vec![table(10)]]] {
        let reports = tables.map(|tables| Report { views: vec![view(tables)], ..golden() });
        let union = Union::of(&reports).unwrap();
        let [table] = &union.views[0].tables.as_deref().unwrap() else { panic!("{:?}", union.views) };
        let total = table.total.unwrap();
        assert_eq!(total.packets, Estimate { value: 10, lower: 10, upper: 290, sampled: None });
        assert_eq!(total.bytes.upper, 1_000 + missing.bytes);
        assert_eq!(table.rows[0].packets.unwrap().upper, 290);
    }
}

#[test]
fn sums_by_protocol_keep_their_bounds() {
    let (mut exact, open) = (golden(), golden());
    exact.totals.bounds = None;
    let both = Union::of(&[exact.clone(), open.clone()]).unwrap().totals;
    let (sum, one) = (both.bounds.unwrap(), open.totals.bounds.unwrap());
    let tcp = exact.totals.tcp_packets;
    assert_eq!(sum.tcp_packets.lower, tcp + one.tcp_packets.lower);
    assert_eq!(sum.tcp_packets.upper, tcp + one.tcp_packets.upper);
    assert_eq!((sum.confidence, both.tcp_packets), (one.confidence, 2 * tcp));
    assert_eq!(Union::of(&[exact.clone(), exact]).unwrap().totals.bounds, None);
}
