//! Compares the decoded request with the report itself.

use expect_test::expect_file;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
};

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::{
    common::v1::any_value,
    metrics::v1::{AggregationTemporality, HistogramDataPoint, NumberDataPoint, metric::Data, number_data_point},
};
use serde_json::{Value, json};
use weir_config::{self as config, Compress};
use weir_schema::{
    Encoded, Ids, Reason, Tombstone,
    series::{Target, table::TABLE},
};

use super::{
    super::{
        http::tests::{Collector, LONG, settings},
        tests::parcels,
    },
    *,
};
use crate::sink::ENTRY_MESSAGES_BYTES;

const GOLDEN: &str = include_str!("../../../../schema/tests/golden/report.json");

/// All points of each metric, with their attributes.
type Points = BTreeMap<String, Vec<(BTreeMap<String, Value>, Point)>>;

/// A point: kind, start, end, and its number or numbers.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    kind: &'static str,
    start: u64,
    end: u64,
    value: Value,
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, Value> {
    let value = |attribute: &KeyValue| match attribute.value.clone().and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::IntValue(number)) => json!(number),
        Some(any_value::Value::DoubleValue(number)) => json!(number),
        Some(any_value::Value::BoolValue(flag)) => json!(flag),
        other => panic!("{other:?}"),
    };
    let known: BTreeMap<_, _> = all.iter().map(|one| (one.key.clone(), value(one))).collect();
    assert_eq!(known.len(), all.len(), "an attribute is there twice: {all:?}");
    known
}

/// All points of a resource. Fails if a series is there twice.
fn points(resource: &ResourceMetrics) -> Points {
    let [scope] = &resource.scope_metrics[..] else { panic!("one scope") };
    let mut all: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let number = |point: &NumberDataPoint, kind| {
        let value = match point.value {
            Some(number_data_point::Value::AsInt(number)) => json!(number),
            Some(number_data_point::Value::AsDouble(number)) => json!(number),
            None => panic!("no value"),
        };
        let told = Point { kind, start: point.start_time_unix_nano, end: point.time_unix_nano, value };
        (attributes(&point.attributes), told)
    };
    let histogram = |point: &HistogramDataPoint| {
        let value = json!([point.count, point.explicit_bounds, point.bucket_counts]);
        let told = Point { kind: "histogram", start: point.start_time_unix_nano, end: point.time_unix_nano, value };
        (attributes(&point.attributes), told)
    };
    for metric in &scope.metrics {
        let delta = i32::from(AggregationTemporality::Delta);
        let list = match metric.data.as_ref().unwrap() {
            Data::Sum(sum) => {
                assert!(sum.is_monotonic && sum.aggregation_temporality == delta, "{}", metric.name);
                sum.data_points.iter().map(|point| number(point, "sum")).collect()
            }
            Data::Gauge(gauge) => gauge.data_points.iter().map(|point| number(point, "gauge")).collect(),
            Data::Histogram(all) => {
                assert_eq!(all.aggregation_temporality, delta);
                all.data_points.iter().map(histogram).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert!(!metric.unit.is_empty() && metric.description.ends_with('.'), "{metric:?}");
        let series: BTreeSet<_> = list.iter().map(|(attributes, _)| format!("{attributes:?}")).collect();
        assert_eq!(series.len(), list.len(), "{}: a series is there twice", metric.name);
        assert!(all.insert(metric.name.clone(), list).is_none(), "{} is there twice", metric.name);
    }
    all
}

/// The expected points of a report, from its JSON alone.
#[derive(Default)]
struct Expected {
    start: u64,
    end: u64,
    all: Points,
}

impl Expected {
    fn add(&mut self, kind: &'static str, name: &str, attributes: &[(&str, &Value)], value: &Value) {
        if value.is_null() {
            return;
        }
        let attributes = attributes
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| ((*key).to_owned(), (*value).clone()));
        let start = if kind == "gauge" { 0 } else { self.start };
        let told = Point { kind, start, end: self.end, value: value.clone() };
        self.all.entry(name.to_owned()).or_default().push((attributes.collect(), told));
    }

    fn sum(&mut self, name: &str, attributes: &[(&str, &Value)], value: &Value) {
        self.add("sum", name, attributes, value);
    }

    fn gauge(&mut self, name: &str, attributes: &[(&str, &Value)], value: &Value) {
        self.add("gauge", name, attributes, value);
    }

    fn estimate(&mut self, name: &str, attributes: &[(&str, &Value)], value: &Value) {
        self.gauge(name, attributes, &value["value"]);
        self.gauge(&format!("{name}.lower"), attributes, &value["lower"]);
        self.gauge(&format!("{name}.upper"), attributes, &value["upper"]);
    }
}

fn nanoseconds(time: &Value) -> u64 {
    time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_nanosecond().try_into().unwrap()
}

fn real(value: &Value) -> Value {
    value.as_f64().map_or(Value::Null, |number| json!(number))
}

fn expected(report: &Value) -> Expected {
    let mut all = Expected {
        start: nanoseconds(&report["window"]["start"]),
        end: nanoseconds(&report["window"]["end"]),
        ..Expected::default()
    };
    all.gauge("weir.report.seq", &[("run", &report["observer"]["boot_id"])], &report["observer"]["seq"]);
    all.gauge("weir.window.length", &[], &real(&report["window"]["seconds"]));
    all.gauge("weir.window.clock_step", &[], &real(&report["window"]["clock_step_seconds"]));
    let totals = &report["totals"];
    for unit in ["packets", "bytes"] {
        all.sum(&format!("weir.{unit}"), &[], &totals[unit]);
    }
    for version in ["4", "6"] {
        all.sum("weir.ip.packets", &[("version", &json!(version))], &totals[&format!("ipv{version}_packets")]);
    }
    for proto in ["tcp", "udp", "icmp", "other"] {
        all.sum("weir.protocol.packets", &[("proto", &json!(proto))], &totals[&format!("{proto}_packets")]);
    }
    for interface in report["interfaces"].as_array().unwrap() {
        of_interface(&mut all, interface);
    }
    for rates in report["rates"].as_array().unwrap() {
        for (name, field) in [("weir.interface.rate.packets", "packets"), ("weir.interface.rate.bytes", "bytes")] {
            let own = [("interface", &rates["interface"]), ("direction", &rates["direction"])];
            quantiles(&mut all, name, &own, &rates[field]);
        }
    }
    quantiles(&mut all, "weir.packet.size", &[], &report["histograms"]["packet_size_bytes"]);
    for of in ["src_ip", "dst_ip", "flows"] {
        all.estimate("weir.unique", &[("of", &json!(of))], &report["unique"][of]);
    }
    all.estimate("weir.new_flows", &[], &report["new_flows"]);
    all.estimate("weir.new_hosts", &[], &report["new_hosts"]);
    for horizon in report["horizons"].as_array().unwrap() {
        let name = ("horizon", &horizon["name"]);
        for of in ["src_ip", "dst_ip", "flows"] {
            all.estimate("weir.horizon.unique", &[name, ("of", &json!(of))], &horizon["unique"][of]);
        }
        all.gauge("weir.horizon.covered", &[name], &horizon["covered_seconds"]);
    }
    for view in report["views"].as_array().unwrap() {
        of_view(&mut all, view);
    }
    for alert in report["alerts"].as_array().unwrap() {
        let is_firing = alert["state"] == "firing" || alert["state"] == "clearing";
        all.gauge("weir.alert.firing", &[("rule", &alert["rule"])], &json!(u64::from(is_firing)));
    }
    of_self(&mut all, &report["self"]);
    all
}

fn quantiles(all: &mut Expected, name: &str, own: &[(&str, &Value)], of: &Value) {
    for (quantile, field) in [("0", "min"), ("0.5", "p50"), ("0.9", "p90"), ("0.99", "p99"), ("1", "max")] {
        let quantile = json!(quantile);
        all.gauge(name, &[own, &[("quantile", &quantile)]].concat(), &of[field]);
    }
}

fn of_interface(all: &mut Expected, interface: &Value) {
    let own = [("interface", &interface["name"]), ("direction", &interface["direction"])];
    let and = |more: &[(&'static str, &Value)]| -> Vec<(&'static str, Value)> {
        own.iter().chain(more).map(|(key, value)| (*key, (*value).clone())).collect()
    };
    fn borrowed<'v>(all: &'v [(&'static str, Value)]) -> Vec<(&'v str, &'v Value)> {
        all.iter().map(|(key, value)| (*key, value)).collect()
    }
    let ledger = &interface["ledger"];
    for unit in ["packets", "bytes"] {
        all.sum(&format!("weir.interface.seen.{unit}"), &own, &ledger["seen"][unit]);
        all.sum(&format!("weir.interface.repeated.{unit}"), &own, &interface["repeated"][unit]);
        let accounted = format!("weir.interface.accounted.{unit}");
        for kind in ["attributed", "sampled_out"] {
            all.sum(&accounted, &borrowed(&and(&[("kind", &json!(kind))])), &ledger[kind][unit]);
        }
        for kind in ["skipped", "lost"] {
            for (reason, tally) in ledger[kind].as_object().unwrap() {
                let more = and(&[("kind", &json!(kind)), ("reason", &json!(reason))]);
                all.sum(&accounted, &borrowed(&more), &tally[unit]);
            }
        }
    }
    for flags in ["syn", "syn_ack", "rst", "fin"] {
        let more = and(&[("flags", &json!(flags))]);
        all.sum("weir.interface.tcp.packets", &borrowed(&more), &interface["tcp"][flags]);
        let bounds = &interface["tcp"]["bounds"][flags];
        all.gauge("weir.interface.tcp.packets.lower", &borrowed(&more), &bounds["lower"]);
        all.gauge("weir.interface.tcp.packets.upper", &borrowed(&more), &bounds["upper"]);
    }
    let classes = interface["packet_sizes"].as_array().unwrap();
    let edges: Vec<_> = classes.iter().map(|class| real(&class[0])).collect();
    let numbers: Vec<_> = classes.iter().map(|class| class[1].as_u64().unwrap()).collect();
    let sizes = json!([numbers.iter().sum::<u64>(), edges[..edges.len() - 1], numbers]);
    all.add("histogram", "weir.interface.packet.size", &own, &sizes);
    let how = ["mode", "counts", "feeds", "alias", "vrf"].map(|key| (key, &interface[key]));
    all.gauge("weir.interface.info", &[own.as_slice(), &how].concat(), &json!(1));
    all.gauge("weir.interface.sampling", &own, &interface["sampling"]);
    all.gauge("weir.interface.coverage", &own, &real(&interface["coverage"]));
    if let Some(bytes) = interface.get("coverage_bytes") {
        all.gauge("weir.interface.coverage_bytes", &own, &real(bytes));
        all.gauge("weir.interface.coverage_upper", &own, &real(&interface["coverage_upper"]));
    }
    let blind = interface.get("blind_seconds").cloned().unwrap_or_else(|| json!(0.0));
    all.gauge("weir.interface.blind", &own, &real(&blind));
    all.gauge("weir.interface.kept", &own, &real(&interface["kept"]));
}

fn of_view(all: &mut Expected, view: &Value) {
    let name = &view["name"];
    let nothing = json!([{"rows": view["rows"], "total": view["total"]}]);
    let tables = if view["tables"].is_null() { &nothing } else { &view["tables"] };
    for table in tables.as_array().unwrap() {
        let own = [("view", name), ("interface", &table["interface"]), ("direction", &table["direction"])];
        for unit in ["packets", "bytes"] {
            all.estimate(&format!("weir.view.sum.{unit}"), &own, &table["total"][unit]);
        }
        for row in table["rows"].as_array().unwrap() {
            const MEASURES: [&str; 5] = ["packets", "bytes", "flows", "new_flows", "distinct"];
            let is_key = |key: &str| key != "rank" && !MEASURES.contains(&key);
            let key = row.as_object().unwrap().iter().filter(|(key, _)| is_key(key));
            let key: Vec<_> = key.map(|(key, value)| (key.as_str(), value)).collect();
            for measure in MEASURES {
                all.estimate(&format!("weir.view.{measure}"), &[&own[..], &key].concat(), &row[measure]);
            }
        }
    }
    let bits = &view["entropy"]["bits"];
    for (ending, field) in [("", "value"), (".lower", "lower"), (".upper", "upper")] {
        all.gauge(&format!("weir.view.entropy{ending}"), &[("view", name)], &real(&bits[field]));
    }
}

fn of_self(all: &mut Expected, own: &Value) {
    for (name, field) in [
        ("weir.cpu.per_packet", "cpu_ns_per_packet"),
        ("weir.kernel.per_packet", "kernel_ns_per_packet"),
        ("weir.cache.hit_ratio", "cache_hit_rate"),
    ] {
        all.gauge(name, &[], &real(&own[field]));
    }
    all.gauge("weir.ring.peak_fill", &[], &real(&own["rings"]["peak_fill"]));
    all.gauge("weir.memory.resident", &[], &own["rss_bytes"]);
    all.gauge("weir.memory.planned", &[], &own["memory_bytes"]);
    all.sum("weir.records", &[], &own["records"]);
    all.gauge("weir.late_cpus", &[], &json!(own["late_cpus"].as_array().unwrap().len()));
    for sink in own["sinks"].as_array().unwrap() {
        let name = [("sink", &sink["name"])];
        for field in ["queued", "delivered", "failed_attempts", "dropped"] {
            all.gauge(&format!("weir.sink.{field}"), &name, &sink[field]);
        }
        for field in ["reports", "bytes"] {
            let number = sink["spool"][field].as_u64().unwrap_or_default();
            all.gauge(&format!("weir.sink.spool.{field}"), &name, &json!(number));
        }
    }
}

/// A line of JSON as it is in the spool.
fn parcel(line: &str) -> Item {
    Item::report(Encoded { id: "7f3c9a52/0000b41d/42".to_owned(), line: line.as_bytes().into() })
}

fn tombstone(line: &str, time: u64) -> Item {
    let mut tombstone = parcel(line);
    (tombstone.is_report, tombstone.time) = (false, time);
    tombstone
}

fn decoded(body: &[u8]) -> Vec<ResourceMetrics> {
    ExportMetricsServiceRequest::decode(body).unwrap().resource_metrics
}

#[test]
fn every_number_is_that_of_the_report() {
    let [resource] = decoded(&encoded(&parcel(GOLDEN)).unwrap()).try_into().unwrap();
    let report: Value = serde_json::from_str(GOLDEN).unwrap();
    let (told, expected) = (points(&resource), expected(&report));
    assert_eq!(told.keys().collect::<Vec<_>>(), expected.all.keys().collect::<Vec<_>>());
    let sorted = |points: &[(BTreeMap<String, Value>, Point)]| {
        let mut lines: Vec<_> = points.iter().map(|(attributes, told)| format!("{attributes:?} {told:?}")).collect();
        lines.sort();
        lines
    };
    for (name, points) in &told {
        assert_eq!(sorted(points), sorted(&expected.all[name]), "{name}");
    }
    let own = attributes(&resource.resource.unwrap().attributes);
    let observer = &report["observer"];
    let expected = [
        ("host.name", &observer["name"]),
        ("service.instance.id", &observer["id"]),
        ("service.name", &json!("weir")),
        ("service.version", &observer["version"]),
        ("weir.addresses", &report["addresses"]),
        ("weir.site", &observer["site"]),
    ];
    assert_eq!(own, expected.map(|(key, value)| (key.to_owned(), value.clone())).into());
    let scope = resource.scope_metrics[0].scope.as_ref().unwrap();
    assert_eq!((scope.name.as_str(), json!(scope.version)), ("weir", observer["version"].clone()));
}

/// Names, units, kinds, attributes and values: a line for each metric, and one for each of its points.
#[test]
fn the_golden_report_is_exported_as_it_was() {
    // A feature that other crates may switch on decides if the last digit is read exactly.
    let golden = GOLDEN.replace("0.9997455343551341", "0.9997");
    let [resource] = decoded(&encoded(&parcel(&golden)).unwrap()).try_into().unwrap();
    let points = points(&resource);
    let mut text = String::new();
    for metric in &resource.scope_metrics[0].metrics {
        text += &format!("{} [{}] {}\n", metric.name, metric.unit, metric.description);
        let line = |(attributes, Point { kind, start, end, value }): &(_, Point)| {
            format!("  {kind} {start} {end} {} {value}\n", json!(attributes))
        };
        // The order of points has no meaning.
        let mut lines: Vec<_> = points[&metric.name].iter().map(line).collect();
        lines.sort();
        text.extend(lines);
    }
    expect_file!["../../../tests/golden/otlp.txt"].assert_eq(&text);
}

#[test]
fn every_number_is_exported_or_says_why_not() {
    let [resource] = decoded(&encoded(&parcel(GOLDEN)).unwrap()).try_into().unwrap();
    let exported = points(&resource);
    for series in TABLE {
        for side in series.sides(Target::Otlp) {
            let parts = ["weir", series.name, side.name].into_iter().filter(|part| !part.is_empty());
            let (name, absent) = (parts.collect::<Vec<_>>().join("."), series.absent(Target::Otlp));
            assert_ne!(exported.contains_key(&name), absent.is_some(), "{name}: {absent:?}");
        }
    }
}

#[test]
fn an_unknown_value_has_no_point() {
    let mut report: Value = serde_json::from_str(GOLDEN).unwrap();
    for field in ["rss_bytes", "cache_hit_rate", "cpu_ns_per_packet"] {
        assert!(report["self"].as_object_mut().unwrap().remove(field).is_some());
    }
    let [resource] = decoded(&encoded(&parcel(&report.to_string())).unwrap()).try_into().unwrap();
    let all = points(&resource);
    for name in ["weir.memory.resident", "weir.cache.hit_ratio", "weir.cpu.per_packet"] {
        assert!(!all.contains_key(name), "{name}");
    }
    assert!(all.contains_key("weir.memory.planned"));
}

#[test]
fn a_ledger_balances_in_metrics_too() {
    let [resource] = decoded(&encoded(&parcel(GOLDEN)).unwrap()).try_into().unwrap();
    let all = points(&resource);
    for unit in ["packets", "bytes"] {
        let of = |name: &str, interface: &str| -> u64 {
            let own = all[name].iter().filter(|(attributes, _)| attributes["interface"] == interface);
            own.map(|(_, told)| told.value.as_u64().unwrap()).sum()
        };
        for interface in ["eth0", "wan0.100"] {
            let seen = of(&format!("weir.interface.seen.{unit}"), interface);
            assert!(seen > 0);
            assert_eq!(seen, of(&format!("weir.interface.accounted.{unit}"), interface));
        }
    }
}

#[test]
fn a_tombstone_is_a_sum_at_the_time_of_the_lost_reports() {
    let ids = Ids::of("7f3c9a52/0000b41d/40").unwrap();
    let line = serde_json::to_string(&Tombstone::new(&ids, Reason::SpoolFull)).unwrap();
    let tombstone = tombstone(&line, 1_763_800_000);
    let [resource] = decoded(&encoded(&tombstone).unwrap()).try_into().unwrap();
    let all = points(&resource);
    let [(own, told)] = &all["weir.reports.lost"][..] else { panic!("{all:?}") };
    assert_eq!(own["reason"], "spool_full");
    assert_eq!((told.kind, told.end, &told.value), ("sum", 1_763_800_000_000_000_000, &json!(1)));
    for name in ["weir.reports.lost.first_seq", "weir.reports.lost.last_seq"] {
        let [(own, told)] = &all[name][..] else { panic!("{all:?}") };
        assert_eq!((&own["run"], &told.value), (&json!("0000b41d"), &json!(40)));
    }
    assert_eq!(attributes(&resource.resource.unwrap().attributes)["service.instance.id"], "7f3c9a52");
}

/// Replaces every value of the golden report in turn with some odd ones.
#[test]
fn odd_reports_are_mapped_or_refused() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let mut pointers = Vec::new();
    fn walk(value: &Value, at: &str, pointers: &mut Vec<String>) {
        pointers.push(at.to_owned());
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    walk(value, &format!("{at}/{key}"), pointers);
                }
            }
            Value::Array(all) => {
                for (nth, value) in all.iter().enumerate() {
                    walk(value, &format!("{at}/{nth}"), pointers);
                }
            }
            _ => {}
        }
    }
    walk(&golden, "", &mut pointers);
    let odd = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(1e308),
        json!(""),
        json!("\u{0}\u{202e}ü".repeat(9)),
        json!("-009999-01-02T00:00:00Z"),
        json!("9999-12-30T22:00:00Z"),
        json!([]),
        json!({}),
        json!([[1, 2], [1, u64::MAX], [0, u64::MAX]]),
        json!({"view": "x", "interface": {"a": []}, "packets": null}),
    ];
    let (mut mapped, mut refused) = (0, 0);
    for (nth, pointer) in pointers.iter().enumerate() {
        for value in odd.iter().cycle().skip(nth).step_by(3).take(4) {
            let mut report = golden.clone();
            *report.pointer_mut(pointer).unwrap() = value.clone();
            match encoded(&parcel(&report.to_string())) {
                Ok(body) => {
                    assert_eq!(decoded(&body).len(), 1);
                    mapped += 1;
                }
                Err(DeliveryError::Refused(why)) => {
                    assert!(why.starts_with("weir cannot read 7f3c9a52/0000b41d/42 as a report: "), "{why}");
                    refused += 1;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    assert!(mapped > 500 && refused > 500, "{mapped} mapped, {refused} refused");
    for length in (0..GOLDEN.len()).step_by(997) {
        let cut = GOLDEN.get(..length).unwrap_or_default();
        assert!(matches!(encoded(&parcel(cut)), Err(DeliveryError::Refused(_))), "{length} bytes");
    }
}

#[test]
fn several_reports_and_tombstones_are_one_request() {
    let collector = Collector::answering([200, 200]);
    let url = format!("http://{}/v1/metrics?key=s3cret", collector.address);
    let ids = Ids::of("7f3c9a52/0000b41d/3").unwrap();
    let line = serde_json::to_string(&Tombstone::new(&ids, Reason::TooOld)).unwrap();
    let [one, two] = parcels([1, 2]);
    let batch = [one, two, tombstone(&line, 1)];
    for compress in [Compress::None, Compress::Gzip] {
        let mut sink = Otlp::new(&config::Http { compress, ..settings(&url, LONG) }).unwrap();
        assert_eq!(sink.name(), format!("otlp:http://{}/v1/metrics", collector.address));
        assert!(!format!("{:?}", sink.name()).contains("s3cret"));
        sink.deliver(&batch).unwrap();
    }
    let expected: Vec<_> = batch.iter().flat_map(|parcel| decoded(&encoded(parcel).unwrap())).collect();
    for (request, encoding) in collector.received().iter().zip([None, Some("gzip")]) {
        assert_eq!(request.header("Content-Type"), Some("application/x-protobuf"));
        assert_eq!(request.header("Content-Encoding"), encoding);
        let mut body = Vec::new();
        match encoding {
            Some(_) => drop(GzDecoder::new(&*request.body).read_to_end(&mut body).unwrap()),
            None => body.extend_from_slice(&request.body),
        }
        assert!(decoded(&body) == expected);
    }
}

#[test]
fn an_answer_means_the_same_as_that_of_an_http_collector() {
    // The specification's PartialSuccess: 3 points are rejected, and why.
    let partial = "\n\x06\x08\x03\x12\x02no";
    let answers =
        [(200, partial), (200, "ok"), (503, ""), (429, ""), (404, ""), (500, ""), (400, "\x08\x03"), (413, "")];
    let collector = Collector::new(answers.len(), move |nth| (answers[nth].0, answers[nth].1.to_owned()));
    let mut sink = Otlp::new(&settings(&format!("http://{}/v1/metrics", collector.address), LONG)).unwrap();
    for (status, _) in answers {
        let delivered = sink.deliver(&parcels([1]));
        let is_as_expected = match status {
            200 => delivered.is_ok(),
            400 | 413 => matches!(delivered, Err(DeliveryError::Refused(_))),
            _ => matches!(delivered, Err(DeliveryError::Unavailable { .. })),
        };
        assert!(is_as_expected, "{status}: {delivered:?}");
    }
    collector.received();
}

/// The worst case: rows with short keys and small numbers, in tables of interfaces.
#[test]
fn a_request_stays_within_its_planned_size() {
    let number = json!({"value": 1, "lower": 1, "upper": 1});
    let row = |rank| json!({"rank": rank, "dscp": rank, "packets": number, "bytes": number});
    let rows: Vec<_> = (1..=64).map(row).collect();
    let mut report: Value = serde_json::from_str(GOLDEN).unwrap();
    for list in ["top", "top_by_packets"] {
        for one in report[list].as_object_mut().unwrap().values_mut().filter_map(Value::as_array_mut) {
            one.clear();
        }
    }
    report["views"][1]["tables"] = json!(vec![json!({"interface": "eth0", "direction": "ingress", "rows": rows}); 16]);
    let line = report.to_string();
    let body = encoded(&parcel(&line)).unwrap();
    assert!(body.len() > line.len(), "{} bytes of JSON are {} of metrics", line.len(), body.len());
    assert!(body.len() < GROWTH * line.len(), "{} bytes of JSON are {} of metrics", line.len(), body.len());
}

/// Heap bytes of a string or list, without its own structure.
fn allocated(bytes: usize) -> usize {
    (bytes + size_of::<usize>()).next_multiple_of(16)
}

fn size_of_attributes(all: &[KeyValue]) -> usize {
    let texts = |one: &KeyValue| match one.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => allocated(one.key.len()) + allocated(text.len()),
        _ => allocated(one.key.len()),
    };
    allocated(size_of_val(all)) + all.iter().map(texts).sum::<usize>()
}

/// Rows with the longest keys: flows over IPv6 in tables of interfaces.
#[test]
fn standard_talkers_make_no_series() {
    let rows_of = |name: &str| {
        let mut report: Value = serde_json::from_str(GOLDEN).unwrap();
        for view in report["views"].as_array_mut().unwrap().iter_mut() {
            view["name"] = json!(name);
        }
        let mapped = report::mapped(&serde_json::from_value(report).unwrap());
        mapped.scope_metrics[0].metrics.iter().filter(|metric| metric.name.starts_with("weir.view.bytes")).count()
    };
    assert!(rows_of("hosts") > 0);
    assert_eq!(rows_of("talkers"), 0);
}

#[test]
fn rows_take_no_more_memory_than_planned() {
    const ROWS: usize = 100;
    let number = json!({"value": 1, "lower": 1, "upper": 1});
    let row = |rank| {
        json!({"rank": rank, "src_ip": "2001:db8:85a3:8d3:1319:8a2e:370:7348", "dst_port": 443, "proto": "tcp",
               "dst_ip": "2001:db8:4006:80a:7f3c:9a52:b41d:200e", "src_port": 49152, "packets": number, "bytes": number})
    };
    let rows: Vec<_> = (1..=ROWS).map(row).collect();
    let mut report: Value = serde_json::from_str(GOLDEN).unwrap();
    report["views"] = json!([{
        "name": "each_flow_of_an_interface", "by": [], "measure": "bytes", "counted": "per_interface", "confidence": 1.0,
        "tables": [{"interface": "enp129s0f0np0", "direction": "ingress", "rows": rows}]
    }]);
    let mapped = report::mapped(&serde_json::from_value(report).unwrap());
    let of_views = mapped.scope_metrics[0].metrics.iter().filter(|metric| metric.name.starts_with("weir.view."));
    let size: usize = of_views
        .map(|metric| match metric.data.as_ref().unwrap() {
            Data::Gauge(gauge) => {
                let points = &gauge.data_points;
                // A list that has grown may have spare capacity of the same size.
                2 * size_of_val(&points[..])
                    + points.iter().map(|one| size_of_attributes(&one.attributes)).sum::<usize>()
            }
            other => panic!("{other:?}"),
        })
        .sum();
    let planned = ROWS as u64 * ENTRY_MESSAGES_BYTES;
    assert!((planned / 2..planned).contains(&(size as u64)), "{size} bytes, and {planned} are planned");
}
