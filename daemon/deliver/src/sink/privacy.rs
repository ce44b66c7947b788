//! How much of each address a sink may see. Masking happens before anything of a report is written for that sink.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::error;
use weir_config::Addresses;
use weir_report::{Encoded, FromJson, Live, Report, Spread, Top};

use super::same_rows;

/// The part of a report about the machine that measured: its addresses are not those of traffic.
const OBSERVER: &str = "observer";
/// The field that states how addresses are masked.
const ADDRESSES: &str = "addresses";

/// A report with its addresses masked.
pub fn of_report(addresses: Addresses, report: Report) -> Report {
    if addresses == Addresses::Full {
        return report;
    }
    masked_fields(addresses, &report).unwrap_or_else(|error| {
        error!("a report goes out without its lists, because their addresses cannot be masked: {error}");
        Report {
            addresses: Some(addresses.name().to_owned()),
            alerts: Vec::new(),
            top: Top::default(),
            top_by_packets: Top::default(),
            spread: Spread::default(),
            views: Vec::new(),
            answers: Vec::new(),
            sketches: None,
            ..report
        }
    })
}

/// The lists of the open window with their addresses masked.
pub fn of_live(addresses: Addresses, live: Live) -> Live {
    if addresses == Addresses::Full {
        return live;
    }
    masked_fields(addresses, &live).unwrap_or_else(|error| {
        error!("the open window is shown without its lists, because their addresses cannot be masked: {error}");
        let addresses = Some(addresses.name().to_owned());
        Live { addresses, top: Top::default(), top_by_packets: Top::default(), views: Vec::new(), ..live }
    })
}

fn masked_fields<T: Serialize + FromJson>(addresses: Addresses, of: &T) -> serde_json::Result<T> {
    let mut value = serde_json::to_value(of)?;
    mask_fields(addresses, &mut value);
    T::from_json(value.to_string().as_bytes())
}

/// An encoded report, masked for this sink.
pub(super) fn applied(addresses: Addresses, report: Encoded) -> Encoded {
    if addresses == Addresses::Full {
        return report;
    }
    // weir encodes reports as JSON. Anything else is withheld rather than exposed.
    let Ok(mut value @ Value::Object(_)) = serde_json::from_slice(&report.line) else {
        return Encoded { line: b"{}\n".as_slice().into(), ..report };
    };
    mask_fields(addresses, &mut value);
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    Encoded { line: line.into(), ..report }
}

/// Limits each row of a list to the most that the report can have, and widens the rows of masked keys.
fn bound_lists(fields: &mut Map<String, Value>) {
    let most = ["packets", "bytes"].map(|name| (name, most(fields, name)));
    for top in ["top", "top_by_packets"] {
        let Some(lists) = fields.get_mut(top).and_then(Value::as_object_mut) else { continue };
        let unlisted = lists.get("unlisted").cloned().unwrap_or_default();
        for (list, rows) in lists {
            for (name, most) in most {
                same_rows::limit(rows, name, most);
                if unlisted[list] != 0 {
                    same_rows::widen(rows, name, most);
                }
            }
        }
    }
    // Each distinct value and each flow has a packet.
    let Some(packets) = most[0].1 else { return };
    let spread = fields.get_mut("spread").and_then(Value::as_object_mut);
    for rows in spread.into_iter().flat_map(Map::values_mut) {
        same_rows::widen_distinct(rows, "distinct", packets);
    }
    let widen = |rows: &mut Value| {
        for name in ["flows", "new_flows", "distinct"] {
            same_rows::widen_distinct(rows, name, packets);
        }
    };
    for view in fields.get_mut("views").and_then(Value::as_array_mut).into_iter().flatten() {
        for table in view.get_mut("tables").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(rows) = table.get_mut("rows") {
                widen(rows);
            }
        }
        if let Some(rows) = view.get_mut("rows") {
            widen(rows);
        }
    }
}

/// The most packets or bytes that a report or an open window can have: its total, and what may have passed unseen.
fn most(fields: &Map<String, Value>, name: &str) -> Option<u64> {
    let total = fields.get("totals")?[name].as_u64()?;
    let interfaces = fields.get("interfaces").and_then(Value::as_array).into_iter().flatten();
    let unseen = interfaces.filter_map(|interface| {
        let uncertain = &interface["ledger"]["uncertain"][name];
        Some(uncertain["upper"].as_u64()?.saturating_sub(uncertain["lower"].as_u64()?))
    });
    Some(unseen.fold(total, u64::saturating_add))
}

/// A report from the spool, masked for this sink: when it was kept, the sink may have been allowed to see more.
pub(super) fn ensured(addresses: Addresses, report: Encoded) -> Encoded {
    // This can only match a key: inside a string the quotes would be escaped.
    let says = |known: Addresses| {
        let field = format!("\"{ADDRESSES}\":\"{}\"", known.name());
        report.line.windows(field.len()).any(|part| part == field.as_bytes())
    };
    let is_enough = match addresses {
        Addresses::Full => true,
        Addresses::Prefix => says(Addresses::Prefix) || says(Addresses::None),
        Addresses::None => says(Addresses::None),
    };
    if is_enough { report } else { applied(addresses, report) }
}

/// Masks a whole report, and notes that in it.
fn mask_fields(addresses: Addresses, report: &mut Value) {
    let Value::Object(fields) = report else { return };
    mask_sketches(fields);
    for (name, value) in &mut *fields {
        if name != OBSERVER {
            mask(addresses, value);
            same_rows::merge_all(value);
        }
    }
    bound_lists(fields);
    fields.values_mut().for_each(same_rows::forget_cuts);
    fields.insert(ADDRESSES.to_owned(), Value::from(addresses.name()));
}

/// Removes the sketches that contain addresses. The registers of distinct counts contain none.
fn mask_sketches(fields: &mut Map<String, Value>) {
    let Some(sketches) = fields.get_mut("sketches").and_then(Value::as_object_mut) else { return };
    sketches.insert("spread".to_owned(), Value::Array(Vec::new()));
    if let Some(lists) = sketches.get_mut("lists").and_then(Value::as_array_mut) {
        lists.retain(|list| !list["by"].as_array().is_none_or(|by| by.iter().any(is_address)));
    }
}

/// Whether a field is an address or a part of one.
fn is_address(field: &Value) -> bool {
    let name = field.as_str().and_then(|field| field.split('/').next());
    matches!(name, None | Some("src_ip" | "dst_ip" | "host"))
}

/// Masks every address and prefix in a value, wherever it is, including fields that will be added to reports later.
fn mask(addresses: Addresses, value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(masked) = masked(addresses, text) {
                *text = masked;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mask(addresses, value)),
        Value::Object(fields) => {
            let is_cut = fields.values().any(|value| value.as_str().is_some_and(|text| is_cut(addresses, text)));
            fields.values_mut().for_each(|value| mask(addresses, value));
            if is_cut {
                fields.insert(same_rows::CUT.to_owned(), Value::Bool(true));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn masked(addresses: Addresses, text: &str) -> Option<String> {
    let (address, length) = address_in(text)?;
    let bits = addresses.bits(address);
    let cut = cut(address, bits);
    Some(length.map_or_else(|| cut.to_string(), |length| format!("{cut}/{}", length.min(bits))))
}

/// Whether masking removes bits from this text, so that it stands for more addresses than before.
fn is_cut(addresses: Addresses, text: &str) -> bool {
    address_in(text).is_some_and(|(address, length)| length.is_none_or(|length| addresses.bits(address) < length))
}

/// The address in a text, and the length of its prefix if it is one.
fn address_in(text: &str) -> Option<(IpAddr, Option<u8>)> {
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let length = length.map(str::parse).transpose().ok()?;
    Some((address.parse().ok()?, length))
}

/// The address with all bits after these set to 0.
fn cut(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & mask_of(bits, 32) as u32).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & mask_of(bits, 128)).into(),
    }
}

/// Ones in the first `bits` of `width`.
const fn mask_of(bits: u8, width: u8) -> u128 {
    let all = if width == 128 { u128::MAX } else { (1 << width) - 1 };
    if bits >= width { all } else { all & !(all >> bits) }
}

#[cfg(test)]
mod tests {
    use weir_report::{Bounds, Estimate, TopSource, Uncertain};

    use super::{super::tests::encoded, *};

    fn text(addresses: Addresses) -> String {
        String::from_utf8(applied(addresses, encoded("a/b/1")).line.to_vec()).unwrap()
    }

    /// Log and webhook messages are made from the report itself.
    #[test]
    fn a_report_masked_for_all_sinks_has_no_address_left() {
        let report: Report = serde_json::from_slice(&encoded("a/b/1").line).unwrap();
        let evidence = |report: &Report| serde_json::to_string(&report.alerts).unwrap();
        assert!(evidence(&report).contains("198.51.100.7"), "{}", evidence(&report));
        assert_eq!(of_report(Addresses::Full, report.clone()), report);
        for addresses in [Addresses::Prefix, Addresses::None] {
            let masked = of_report(addresses, report.clone());
            assert!(!evidence(&masked).contains("198.51.100.7"), "{}", evidence(&masked));
            assert_eq!(masked.addresses.as_deref(), Some(addresses.name()));
            let as_of_sinks = applied(addresses, Encoded::new(&report));
            assert_eq!(masked, serde_json::from_slice(&as_of_sinks.line).unwrap());
        }
    }

    #[test]
    fn no_address_of_the_traffic_is_left() {
        let full = text(Addresses::Full);
        for known in ["192.0.2.1", "198.51.100.7", "203.0.113.254", "2001:db8:85a3:8d3:1319:8a2e:370:7348"] {
            assert!(full.contains(known), "{known}");
            for addresses in [Addresses::Prefix, Addresses::None] {
                assert!(!text(addresses).contains(&format!("{known}\"")), "{known} in {}", text(addresses));
            }
        }
        let prefix = text(Addresses::Prefix);
        assert!(prefix.contains("\"192.0.2.0\"") && prefix.contains("\"2001:db8:85a3::\""), "{prefix}");
        let none = text(Addresses::None);
        for known in ["192.0.2", "198.51.100", "203.0.113", "2001:db8"] {
            assert!(!none.contains(known), "{known} in {none}");
        }
    }

    /// A list of sources, of which the list shows only some: each masked row must have room for the others.
    #[test]
    fn a_masked_row_has_room_for_the_addresses_of_its_network_without_a_row() {
        let mut report: Report = serde_json::from_slice(&encoded("a/b/1").line).unwrap();
        // 300 sources in two networks: source n of the first has 1,000 - n bytes, source n of the second 500.
        let bytes = |network: u32, n: u32| if network == 0 { 1000 - u64::from(n) } else { 500 };
        let all: Vec<_> = (0..2_u32).flat_map(|network| (0..150).map(move |n| (network, n))).collect();
        let exact = |value| Estimate { value, lower: value, upper: value, sampled: None };
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
            let masked = of_report(Addresses::Prefix, report.clone());
            for row in &masked.top.sources {
                let truth = truth[usize::from(row.src_ip.to_string() == "10.0.1.0")];
                assert!((row.bytes.lower..=row.bytes.upper).contains(&truth), "{listed}: {row:?}, and {truth}");
                let is_exact = row.bytes.lower == row.bytes.upper;
                assert_eq!(is_exact, unlisted == Some(0), "{row:?}");
            }
            let none = of_report(Addresses::None, report.clone());
            let [all] = &none.top.sources[..] else { panic!("one key: {:?}", none.top.sources) };
            assert_eq!(all.bytes.upper, truth.iter().sum::<u64>());
        }
        // What passed unseen may have been of any address.
        let uncertain = Bounds { lower: 5, upper: 75 };
        let mut interface = serde_json::from_slice::<Report>(&encoded("a/b/1").line).unwrap().interfaces.remove(0);
        interface.ledger.uncertain = Some(Uncertain { packets: uncertain, bytes: uncertain });
        report.interfaces = vec![interface];
        report.top.unlisted.sources = None;
        report.top.sources = (1..).zip(&all[..10]).map(row).collect();
        let none = of_report(Addresses::None, report.clone());
        assert_eq!(none.top.sources[0].bytes.upper, truth.iter().sum::<u64>() + 70);
    }

    #[test]
    fn a_masked_row_of_distinct_values_has_room_and_no_mark_is_left() {
        let mut report: Report = serde_json::from_slice(&encoded("a/b/1").line).unwrap();
        report.totals.packets = 1_000_000;
        report.interfaces.clear();
        let masked = of_report(Addresses::Prefix, report);
        let rows = &masked.spread.destinations_per_source;
        assert!(!rows.is_empty() && rows.iter().all(|row| row.distinct.unwrap().upper == 1_000_000), "{rows:?}");
        let text = serde_json::to_string(&masked).unwrap();
        assert!(!text.contains("cut\""), "{text}");
    }

    #[test]
    fn sketches_without_addresses_are_left() {
        let names = |addresses| {
            let report: Report = serde_json::from_str(&text(addresses)).unwrap();
            let sketches = report.sketches.unwrap();
            let lists: Vec<String> = sketches.lists.into_iter().map(|list| list.name).collect();
            (sketches.distinct.len(), lists.join(" "), sketches.spread.len())
        };
        assert_eq!(names(Addresses::Full), (1, "services flows".to_owned(), 1));
        for addresses in [Addresses::Prefix, Addresses::None] {
            assert_eq!(names(addresses), (1, "services".to_owned(), 0));
        }
    }

    #[test]
    fn a_masked_report_is_valid_and_notes_the_masking() {
        for (addresses, name) in [(Addresses::Prefix, "prefix"), (Addresses::None, "none")] {
            let report: Report = serde_json::from_str(&text(addresses)).unwrap();
            assert_eq!(report.addresses.as_deref(), Some(name));
            assert_eq!(report.top.flows.len(), 4, "every row is there");
        }
        assert_eq!(text(Addresses::Full).as_bytes(), &*encoded("a/b/1").line, "as it was");
    }

    #[test]
    fn waiting_reports_are_masked_too_if_the_sink_may_see_less_now() {
        let kept = |addresses| applied(addresses, encoded("a/b/1"));
        let text = |encoded: Encoded| String::from_utf8(encoded.line.to_vec()).unwrap();
        for (kept_as, sent_as, expected) in [
            (Addresses::Full, Addresses::Prefix, Addresses::Prefix),
            (Addresses::Full, Addresses::None, Addresses::None),
            (Addresses::Prefix, Addresses::None, Addresses::None),
            (Addresses::None, Addresses::Prefix, Addresses::None),
            (Addresses::Prefix, Addresses::Full, Addresses::Prefix),
        ] {
            // The report's own field decides, so the test starts without the golden report's.
            let mut first = kept(Addresses::Full);
            first.line = text(first.clone()).replace("\"addresses\":\"prefix\",", "").into_bytes().into();
            let waiting = applied(kept_as, first.clone());
            let sent = ensured(sent_as, waiting);
            assert_eq!(text(sent), text(applied(expected, first)), "{kept_as:?}, {sent_as:?}");
        }
    }

    #[test]
    fn prefixes_keep_their_length_if_they_are_short_enough() {
        let masked = |text: &str| masked(Addresses::Prefix, text);
        assert_eq!(masked("10.1.2.3").as_deref(), Some("10.1.2.0"));
        assert_eq!(masked("10.1.0.0/16").as_deref(), Some("10.1.0.0/16"));
        assert_eq!(masked("10.1.2.128/25").as_deref(), Some("10.1.2.0/24"));
        assert_eq!(masked("2001:db8:1:2::/64").as_deref(), Some("2001:db8:1::/48"));
        for other in ["eth0", "1.2.3", "10.0.0.0/x", "tcp/443", "7f3c9a52/b41d/1", "2026-11-20T08:00:00Z"] {
            assert_eq!(masked(other), None, "{other}");
        }
    }
}
