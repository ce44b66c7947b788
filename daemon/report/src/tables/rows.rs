//! The rows of a view for a terminal.

use serde_json::{Map, Value};
use weir_config::names::{dscp::dscp_name, services::service_name};
use weir_system::numbers::{bytes, count, percent, scaled};

use super::{
    super::{
        Estimate, Row, Sums, View,
        grid::{
            Align::{Left, Right},
            Cell, Grid,
            Tone::{Faint, Plain},
        },
    },
    words::{Aliases, in_column, measured, ratio, with_name},
};

/// Maximum number of rows in a table; the JSON has all.
const ROWS_MAX: usize = 20;
/// The largest type of ICMP and `ICMPv6` that is in use.
const ICMP_TYPE_MAX: u16 = 161;
/// Maximum number of rows in a list of floods or scans.
const SPREAD_ROWS_MAX: usize = 5;
/// The caption of a row's share of the total.
const SHARE: &str = "share";

/// A line for each row: its rank, the fields of its key, what was measured, its share of the total, and the rate over
/// this many seconds.
pub(super) fn grid(view: &View, (rows, total): (&[Row], Option<&Sums>), seconds: f64, aliases: &Aliases<'_>) -> Grid {
    let Some(first) = rows.first() else { return Grid::new([Left]) };
    let fields: Vec<&str> = view.by.iter().map(|field| field.split('/').next().unwrap_or(field)).collect();
    let keys: Vec<&String> = first.key.keys().collect();
    // The direction is shown beside its interface; it is not a field of the view.
    let mut columns: Vec<&str> = Vec::new();
    for field in fields {
        columns.push(field);
        if field == "interface"
            && !view.by.iter().any(|other| other == "direction")
            && keys.iter().any(|key| *key == "direction")
        {
            columns.push("direction");
        }
    }
    let captions = captions(&view.measure, first, total.is_some());
    let mut grid = Grid::new([Right].into_iter().chain(vec![Left; columns.len()]).chain(vec![Right; captions.len()]));
    let head = [""].into_iter().chain(columns.iter().copied()).map(str::to_owned).chain(captions);
    grid.row(head.map(|caption| Cell::new(caption, Faint)));
    for row in rows.iter().take(ROWS_MAX) {
        let fields = columns.iter().map(|column| {
            let shown = match (*column, row.key.get(*column)) {
                ("interface", Some(Value::String(name))) => aliases.show(name),
                _ => with_meaning(column, &row.key),
            };
            Cell::new(shown, Plain)
        });
        let numbers = numbers(&view.measure, row, total, seconds).into_iter().map(Cell::from);
        grid.row([place(row)].into_iter().chain(fields).chain(numbers));
    }
    if rows.len() > ROWS_MAX {
        grid.across([Cell::new(format!("… and {} more in the report's JSON", rows.len() - ROWS_MAX), Faint)]);
    }
    grid
}

/// A line for each key of a list of distinct counts.
pub(super) fn spread(counted: &str, rows: &[Row]) -> Grid {
    let mut grid = Grid::new([Right, Left, Right, Right]);
    if !rows.is_empty() {
        let captions = [String::new(), String::new(), format!("{counted}  "), "±".to_owned()];
        grid.row(captions.map(|caption| Cell::new(caption, Faint)));
    }
    for row in rows.iter().take(SPREAD_ROWS_MAX) {
        let key: Vec<String> = row.key.values().map(|value| text(Some(value))).collect();
        let [value, error] = measured(&row.distinct.unwrap_or_default(), in_column(count, ""));
        grid.row([place(row), key.join(" ").into(), value.into(), Cell::new(error, Faint)]);
    }
    grid
}

/// A line for each key that was asked for, in views of bytes and packets.
pub(super) fn answers(answers: &[&Row], seconds: f64) -> Grid {
    let mut grid = Grid::new([Left].into_iter().chain([Right; 5]).chain([Left]));
    let captions = captions(&Value::Null, &Row::default(), false).into_iter().chain(["view".to_owned()]);
    grid.row([String::new()].into_iter().chain(captions).map(|caption| Cell::new(caption, Faint)));
    for answer in answers {
        let numbers = numbers(&Value::Null, answer, None, seconds);
        let view = answer.view.clone().unwrap_or_default();
        grid.row([key_of(answer)].into_iter().chain(numbers).chain([view]).map(Cell::from));
    }
    grid
}

/// A line for each key that was asked for, in views that count flows or distinct values.
pub(super) fn counts(answers: &[&Row]) -> Grid {
    let mut grid = Grid::new([Left, Right, Right, Left, Left]);
    grid.row(["", "", "±", "", "view"].map(|caption| Cell::new(caption, Faint)));
    for answer in answers {
        let [value, error] = match answer {
            Row { flows: Some(count), .. } | Row { new_flows: Some(count), .. } | Row { distinct: Some(count), .. } => {
                measured(count, in_column(self::count, ""))
            }
            _ => Default::default(),
        };
        let what = match answer {
            Row { flows: Some(_), .. } => "flows",
            Row { new_flows: Some(_), .. } => "new flows",
            _ => "distinct",
        };
        let view = answer.view.clone().unwrap_or_default();
        grid.row([key_of(answer), value, error, what.to_owned(), view].map(Cell::from));
    }
    grid
}

/// The key of an answer in words.
fn key_of(answer: &Row) -> String {
    let fields = answer.key.keys().map(|name| format!("{name} {}", with_meaning(name, &answer.key)));
    fields.collect::<Vec<_>>().join(", ")
}

fn place(row: &Row) -> Cell {
    Cell::new(row.rank.map_or_else(String::new, |rank| rank.to_string()), Faint)
}

fn captions(measure: &Value, row: &Row, has_total: bool) -> Vec<String> {
    let captions: &[&str] = match row {
        Row { flows: Some(_), .. } => &["flows  ", "±"],
        Row { new_flows: Some(_), .. } => &["new flows  ", "±"],
        Row { distinct: Some(_), .. } => &["distinct  ", "±"],
        _ if measure == "packets" => &["packets  ", "±", SHARE, "pkt/s", "bytes  ", "bit/s"],
        _ => &["bytes  ", "±", SHARE, "bit/s", "packets  ", "pkt/s"],
    };
    captions.iter().filter(|caption| has_total || **caption != SHARE).map(|caption| (*caption).to_owned()).collect()
}

fn numbers(measure: &Value, row: &Row, total: Option<&Sums>, seconds: f64) -> Vec<String> {
    let rate = |value: u64, unit, factor: f64| {
        if seconds > 0.0 { scaled(value as f64 * factor / seconds, unit) } else { String::new() }
    };
    let in_bytes = |bytes_of: &Estimate| {
        let [value, error] = measured(bytes_of, in_column(bytes, "B"));
        (value, error, rate(bytes_of.value, "bit/s", 8.0))
    };
    let in_packets = |packets: &Estimate| {
        let [value, error] = measured(packets, in_column(count, ""));
        (value, error, rate(packets.value, "pkt/s", 1.0))
    };
    match row {
        Row { packets: Some(packets), bytes: Some(bytes), .. } => {
            let share = |part: &Estimate, of: fn(&Sums) -> Estimate| {
                total.map(|total| percent(ratio(part.value, of(total).value)))
            };
            let (share_of_packets, share_of_bytes) =
                (share(packets, |total| total.packets), share(bytes, |total| total.bytes));
            let ((bytes, bytes_error, bit_rate), (packets, packets_error, packet_rate)) =
                (in_bytes(bytes), in_packets(packets));
            let (first, share, rest) = if measure == "packets" {
                ([packets, packets_error], share_of_packets, [packet_rate, bytes, bit_rate])
            } else {
                ([bytes, bytes_error], share_of_bytes, [bit_rate, packets, packet_rate])
            };
            first.into_iter().chain(share).chain(rest).collect()
        }
        Row { flows: Some(number), .. } | Row { new_flows: Some(number), .. } | Row { distinct: Some(number), .. } => {
            measured(number, in_column(count, "")).into()
        }
        _ => Vec::new(),
    }
}

/// The value of a field, with its common name.
fn with_meaning(field: &str, key: &Map<String, Value>) -> String {
    let value = key.get(field);
    let number = value.and_then(Value::as_u64);
    let name = match field {
        "dscp" => number.and_then(dscp_name),
        "port" | "src_port" | "dst_port" => {
            let (proto, port) =
                (key.get("proto").and_then(Value::as_str), number.and_then(|port| port.try_into().ok()));
            // Without a protocol, small source ports may be ICMP types.
            let is_port = field != "src_port" || proto.is_some() || port > Some(ICMP_TYPE_MAX);
            port.filter(|_| is_port).and_then(|port| service_name(proto, port)).map(str::to_owned)
        }
        _ => None,
    };
    with_name(text(value), name)
}

fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_have_the_names_that_people_know() {
        for (field, key, shown) in [
            ("port", json!({"proto": "tcp", "port": 443}), "443 (https)"),
            ("port", json!({"port": 443}), "443 (https)"),
            ("dst_port", json!({"proto": "udp", "dst_port": 22}), "22"),
            ("dst_port", json!({"dst_port": 22}), "22 (ssh)"),
            // A neighbour solicitation, and what may be one.
            ("src_port", json!({"proto": "icmpv6", "src_port": 135}), "135"),
            ("src_port", json!({"src_port": 135}), "135"),
            ("src_port", json!({"src_port": 443}), "443 (https)"),
            ("dscp", json!({"dscp": 46}), "46 (EF)"),
            ("dscp", json!({"dscp": 3}), "3"),
            ("proto", json!({"proto": "tcp", "port": 443}), "tcp"),
            ("src_net", json!({"dst_net": "peer"}), "-"),
        ] {
            assert_eq!(with_meaning(field, key.as_object().unwrap()), shown, "{field} of {key}");
        }
    }
}
