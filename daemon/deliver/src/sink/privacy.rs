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

/// Limits each row of a list to the total of the report.
fn limit_lists(fields: &mut Map<String, Value>) {
    let totals = fields.get("totals").cloned().unwrap_or_default();
    for top in ["top", "top_by_packets"] {
        for lists in fields.get_mut(top).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            for name in ["packets", "bytes"] {
                same_rows::limit(lists, name, &totals[name]);
            }
        }
    }
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
    limit_lists(fields);
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
        Value::Object(fields) => fields.values_mut().for_each(|value| mask(addresses, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn masked(addresses: Addresses, text: &str) -> Option<String> {
    let bits = |address: IpAddr| addresses.bits(address);
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(cut(address, bits(address)).to_string());
    }
    let (address, length) = text.split_once('/')?;
    let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
    let length = length.min(bits(address));
    Some(format!("{}/{length}", cut(address, length)))
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
