//! The parts of a report that IPFIX can express: rows as flow records, and options with names, sampling and loss of
//! interfaces.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
};

use serde_json::{Map, Value};
use weir_common::proto::{ICMP, ICMPV6};
use weir_config::{
    names::protocol::protocol_number,
    view::{Standard, values::TCP_FLAGS},
};
use weir_schema::{Estimate, FromJson, Interface, Report, Row, Tally, ViewTable};

use super::{element as ie, message::Record};

/// Bytes of an interface's name. Collectors read strings of fixed length, padded with zeros.
const NAME_BYTES: usize = 16;
const EGRESS: &str = "egress";

/// Packets and bytes that were lost since the exporter began.
#[derive(Clone, Debug, Default)]
pub struct Ignored {
    /// The sum over all interfaces.
    all: Tally,
    /// For each interface and direction of the last report. An interface that comes back starts at zero.
    each: BTreeMap<(String, Option<String>), Tally>,
}

impl Ignored {
    fn add(&mut self, report: &Report) {
        let mut each = BTreeMap::new();
        for interface in &report.interfaces {
            let key = (interface.name.clone(), interface.direction.clone());
            let mut sum = self.each.remove(&key).unwrap_or_default();
            for lost in interface.ledger.lost.values() {
                for sum in [&mut sum, &mut self.all] {
                    sum.packets = sum.packets.saturating_add(lost.packets);
                    sum.bytes = sum.bytes.saturating_add(lost.bytes);
                }
            }
            each.insert(key, sum);
        }
        self.each = each;
    }

    fn of(&self, interface: &Interface) -> Tally {
        self.each.get(&(interface.name.clone(), interface.direction.clone())).copied().unwrap_or_default()
    }
}

/// All records of a report: options first, because a collector needs them to read the flows.
pub fn of_report(report: &Report, view: &str, domain: u32, ignored: &mut Ignored) -> Vec<Record> {
    ignored.add(report);
    let domain = || Record::about(ie::DOMAIN, domain.to_be_bytes());
    let in_window = |record: Record| {
        let [start, end] = [report.window.start, report.window.end].map(|time| time.as_millisecond().to_be_bytes());
        record.with(ie::START, start).with(ie::END, end)
    };
    // The record leaves out the sampling algorithm: nfcapd ignores records that have both.
    let mut records = vec![domain().with(ie::SAMPLING_INTERVAL, report.top.sampling.to_be_bytes())];
    let mut named = HashSet::new();
    let names = report.interfaces.iter().filter_map(|interface| Some((interface.index?, &interface.name)));
    for (index, name) in names.filter(|(index, _)| named.insert(*index)) {
        // nfcapd reads only this form: a scope, a number and one name.
        let record = domain().with(ie::INGRESS_INTERFACE, index.to_be_bytes());
        records.push(record.with(ie::INTERFACE_NAME, text::<NAME_BYTES>(name)));
    }
    for interface in &report.interfaces {
        let (element, index) = side(interface);
        let Tally { packets, bytes } = interface.ledger.seen;
        let seen = with_counts(in_window(Record::about(element, index.to_be_bytes())), packets, bytes);
        records.push(with_ignored(seen, ignored.of(interface)));
    }
    // As in RFC 7011 section 4.2.
    records.push(with_ignored(in_window(domain()), ignored.all));
    records.extend(rows(report, view).iter().filter_map(|row| flow(report, row, in_window(Record::default()))));
    records
}

fn with_counts(record: Record, packets: u64, bytes: u64) -> Record {
    record
        .with(ie::PACKETS, packets.to_be_bytes())
        .with(ie::OCTETS, bytes.to_be_bytes())
        .with(ie::LAYER_2_OCTETS, bytes.to_be_bytes())
}

fn with_ignored(record: Record, ignored: Tally) -> Record {
    record
        .with(ie::IGNORED_PACKETS, ignored.packets.to_be_bytes())
        .with(ie::IGNORED_OCTETS, ignored.bytes.to_be_bytes())
}

/// The element and value that identify an interface and its direction; 0 if the interface has no number.
fn side(interface: &Interface) -> (u16, u32) {
    let is_egress = interface.direction.as_deref() == Some(EGRESS);
    (if is_egress { ie::EGRESS_INTERFACE } else { ie::INGRESS_INTERFACE }, interface.index.unwrap_or(0))
}

/// Returns true if the report has the view.
pub(super) fn has_view(report: &Report, view: &str) -> bool {
    view == Standard::Flows.name() || report.views.iter().any(|one| one.name == view)
}

/// The rows of the view; empty if the report does not have it.
fn rows(report: &Report, view: &str) -> Vec<Row> {
    let Some(view) = report.views.iter().find(|one| one.name == view) else {
        return if view == Standard::Flows.name() { flows(report) } else { Vec::new() };
    };
    let rows = view.parts().flat_map(|(table, _, rows)| rows.iter().map(move |row| (table, row.clone())));
    let with_interface = |(table, mut row): (Option<&ViewTable>, Row)| {
        if let Some(ViewTable { interface, direction, .. }) = table {
            row.key.insert("interface".to_owned(), Value::from(interface.as_str()));
            row.key.extend(direction.as_deref().map(|way| ("direction".to_owned(), Value::from(way))));
        }
        row
    };
    rows.map(with_interface).collect()
}

/// The largest flows, by bytes or by packets. A flow that is in both lists appears once.
fn flows(report: &Report) -> Vec<Row> {
    let mut known = HashSet::new();
    let all = report.top.flows.iter().chain(&report.top_by_packets.flows);
    let rows = all.filter_map(|flow| Row::from_json(&serde_json::to_vec(flow).ok()?).ok());
    rows.filter(|row| known.insert(Value::from(row.key.clone()).to_string())).collect()
}

/// The flow record of a row; `None` if it has no counts.
fn flow(report: &Report, row: &Row, record: Record) -> Option<Record> {
    let [packets, bytes] = [row.packets.as_ref()?, row.bytes.as_ref()?].map(sampled);
    let proto = row.key.get("proto").and_then(Value::as_str).and_then(protocol_number);
    let record = row.key.iter().fold(record, |record, (field, value)| with_field(record, field, value, proto));
    Some(with_counts(with_interface(with_icmp(record, &row.key, proto), &row.key, report), packets, bytes))
}

/// The sampled count: the collector multiplies it by the sampling interval, as for any exporter.
fn sampled(estimate: &Estimate) -> u64 {
    estimate.sampled.unwrap_or(estimate.value)
}

fn with_field(record: Record, field: &str, value: &Value, proto: Option<u8>) -> Record {
    match (field, value) {
        ("src_ip", Value::String(text)) => {
            with_address(record, text, [ie::SRC_V4, ie::SRC_V4_LENGTH, ie::SRC_V6, ie::SRC_V6_LENGTH])
        }
        ("dst_ip", Value::String(text)) => {
            with_address(record, text, [ie::DST_V4, ie::DST_V4_LENGTH, ie::DST_V6, ie::DST_V6_LENGTH])
        }
        ("tcp_flags", Value::String(letters)) => record.with(ie::TCP_CONTROL_BITS, [tcp_flags(letters)]),
        ("direction", Value::String(way)) => record.with(ie::DIRECTION, [u8::from(way == EGRESS)]),
        (_, Value::Number(number)) => with_number(record, field, number.as_u64().unwrap_or(0), proto),
        ("proto", _) => match proto {
            Some(proto) => record.with(ie::PROTOCOL, [proto]),
            None => record,
        },
        _ => record,
    }
}

fn with_number(record: Record, field: &str, number: u64, proto: Option<u8>) -> Record {
    match field {
        "src_port" if !is_icmp(proto) => record.with(ie::SRC_PORT, (number as u16).to_be_bytes()),
        "dst_port" if !is_icmp(proto) => record.with(ie::DST_PORT, (number as u16).to_be_bytes()),
        "ip_version" => record.with(ie::IP_VERSION, [number as u8]),
        "vlan" => record.with(ie::VLAN, (number as u16).to_be_bytes()),
        "dscp" => record.with(ie::DSCP, [number as u8]),
        "src_as" => record.with(ie::SRC_AS, (number as u32).to_be_bytes()),
        "dst_as" => record.with(ie::DST_AS, (number as u32).to_be_bytes()),
        _ => record,
    }
}

/// Adds an address, with its prefix length if it is a network. The elements are IPv4 and its length, then IPv6 and its
/// length.
fn with_address(record: Record, text: &str, [v4, v4_length, v6, v6_length]: [u16; 4]) -> Record {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, length.parse::<u8>().ok()),
        None => (text, None),
    };
    let (record, element) = match address.parse() {
        Ok(IpAddr::V4(address)) => (record.with(v4, address.octets()), v4_length),
        Ok(IpAddr::V6(address)) => (record.with(v6, address.octets()), v6_length),
        Err(_) => return record,
    };
    match length {
        Some(length) => record.with(element, [length]),
        None => record,
    }
}

const fn is_icmp(proto: Option<u8>) -> bool {
    matches!(proto, Some(ICMP | ICMPV6))
}

/// Adds type and code of ICMP, which reports have in place of ports.
fn with_icmp(record: Record, key: &Map<String, Value>, proto: Option<u8>) -> Record {
    let number = |field| key.get(field).and_then(Value::as_u64).map(|number| number as u8);
    match (proto, number("src_port"), number("dst_port")) {
        (Some(ICMP), Some(kind), Some(code)) => record.with(ie::ICMP_V4, [kind, code]),
        (Some(ICMPV6), Some(kind), Some(code)) => record.with(ie::ICMP_V6, [kind, code]),
        _ => record,
    }
}

/// Adds the interface by which the packets came or went; the other one is unknown, and 0.
fn with_interface(record: Record, key: &Map<String, Value>, report: &Report) -> Record {
    let Some(name) = key.get("interface") else { return record };
    let way = key.get("direction");
    let is_it = |one: &&Interface| *name == one.name && one.direction.as_deref() == way.and_then(Value::as_str);
    let index = report.interfaces.iter().find(is_it).and_then(|interface| interface.index).unwrap_or(0);
    let [ingress, egress] = if way.is_some_and(|way| way == EGRESS) { [0, index] } else { [index, 0] };
    record.with(ie::INGRESS_INTERFACE, ingress.to_be_bytes()).with(ie::EGRESS_INTERFACE, egress.to_be_bytes())
}

/// The TCP flags that these letters stand for.
fn tcp_flags(letters: &str) -> u8 {
    let bits = TCP_FLAGS.iter().zip(0..).filter(|((_, letter), _)| letters.contains(*letter));
    bits.fold(0, |flags, (_, bit)| flags | 1 << bit)
}

/// The beginning of a string as far as it fits, padded with zeros.
fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let end = text.floor_char_boundary(N);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_config as config;

    use super::*;

    const DOMAIN: u32 = 7;

    fn golden() -> Report {
        serde_json::from_str(include_str!("../../../../schema/tests/golden/report.json")).unwrap()
    }

    fn flows(records: &[Record]) -> Vec<&Record> {
        records.iter().filter(|record| !record.is_option()).collect()
    }

    fn row(key: &Value) -> Row {
        let estimate = Estimate { value: 9, ..Estimate::default() };
        let Value::Object(key) = key.clone() else { panic!("{key} is not a map") };
        Row { key, packets: Some(estimate), bytes: Some(estimate), ..Row::default() }
    }

    fn record(key: &Value) -> Record {
        flow(&golden(), &row(key), Record::default()).unwrap()
    }

    #[test]
    fn a_flow_in_both_lists_is_exported_once_with_its_sampled_count() {
        let report = golden();
        let records = of_report(&report, "flows", DOMAIN, &mut Ignored::default());
        let flows = flows(&records);
        let key =
            |flow: &weir_schema::TopFlow| (flow.src_ip, flow.dst_ip, flow.src_port, flow.dst_port, flow.proto.clone());
        let keys: HashSet<_> = report.top.flows.iter().chain(&report.top_by_packets.flows).map(key).collect();
        assert_eq!(flows.len(), keys.len());
        let first = &report.top.flows[0];
        assert_eq!(flows[0].get(ie::SRC_V4), Some(&[192, 0, 2, 1][..]));
        assert_eq!(flows[0].get(ie::DST_PORT), Some(&443_u16.to_be_bytes()[..]));
        assert_eq!(flows[0].get(ie::PROTOCOL), Some(&[6][..]));
        assert_eq!(flows[0].get(ie::PACKETS), Some(&first.packets.sampled.unwrap().to_be_bytes()[..]));
        for element in [ie::OCTETS, ie::LAYER_2_OCTETS] {
            assert_eq!(flows[0].get(element), Some(&first.bytes.sampled.unwrap().to_be_bytes()[..]));
        }
        assert_eq!(flows[0].get(ie::START), Some(&report.window.start.as_millisecond().to_be_bytes()[..]));
        let sampling = records.iter().find_map(|record| record.get(ie::SAMPLING_INTERVAL));
        assert_eq!(sampling, Some(&report.top.sampling.to_be_bytes()[..]));
    }

    #[test]
    fn loss_adds_up_from_report_to_report() {
        let report = golden();
        let mut ignored = Ignored::default();
        let mut all = || {
            let records = of_report(&report, "none", DOMAIN, &mut ignored);
            assert!(flows(&records).is_empty(), "there is no such view");
            let of = |element, value: u32| {
                let value = value.to_be_bytes();
                let mut found = records.iter().filter(|record| record.get(element) == Some(&value[..]));
                found.find_map(|record| record.get(ie::IGNORED_PACKETS)).unwrap().to_vec()
            };
            (of(ie::INGRESS_INTERFACE, report.interfaces[0].index.unwrap()), of(ie::DOMAIN, DOMAIN))
        };
        let lost = |times: u64| (280 * times).to_be_bytes().to_vec();
        assert_eq!(all(), (lost(1), lost(1)));
        assert_eq!(all(), (lost(2), lost(2)));
    }

    #[test]
    fn every_field_that_a_view_may_have_becomes_an_element() {
        let values = json!({
            "src_ip": "192.0.2.0/24", "dst_ip": "2001:db8::1", "src_port": 1, "dst_port": 2, "proto": "tcp", "ip_version": 4,
            "interface": "eth0", "direction": "ingress", "vlan": 100, "dscp": 46, "tcp_flags": "SA", "src_as": 64496,
            "dst_as": 64497,
        });
        for field in config::IPFIX_FIELDS {
            let key = Value::Object([(field.to_owned(), values[field].clone())].into_iter().collect());
            assert_ne!(record(&key), record(&json!({})), "{field}");
        }
        let record = record(&values);
        let expected: [(u16, &[u8]); 6] = [
            (ie::SRC_V4_LENGTH, &[24]),
            (ie::INGRESS_INTERFACE, &[0, 0, 0, 2]),
            (ie::EGRESS_INTERFACE, &[0; 4]),
            (ie::TCP_CONTROL_BITS, &[0b1_0010]),
            (ie::SRC_AS, &64496_u32.to_be_bytes()),
            (ie::DSCP, &[46]),
        ];
        for (element, value) in expected {
            assert_eq!(record.get(element), Some(value), "{element}");
        }
        assert_eq!(record.get(ie::DST_V6_LENGTH), None, "a whole address has no length");
    }

    #[test]
    fn icmp_type_and_code_are_not_exported_as_ports() {
        let record = record(&json!({"proto": "icmp", "src_port": 3, "dst_port": 1}));
        assert_eq!(record.get(ie::ICMP_V4), Some(&[3, 1][..]));
        assert_eq!((record.get(ie::SRC_PORT), record.get(ie::DST_PORT)), (None, None));
    }

    #[test]
    fn unexpected_values_are_left_out() {
        let plain = record(&json!({}));
        for odd in [
            json!({"src_ip": "?"}),
            json!({"src_ip": 5}),
            json!({"proto": "no such"}),
            json!({"scope": "in"}),
            json!({"dst_port": null}),
            json!({"fragment": true}),
        ] {
            assert_eq!(record(&odd), plain, "{odd}");
        }
        assert_eq!(text::<4>("äöü"), *"äö".as_bytes());
        assert_eq!(text::<3>("äöü"), [0xc3, 0xa4, 0], "no half character");
    }
}
