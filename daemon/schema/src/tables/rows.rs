//! The rows of a view for a terminal.

use serde_json::{Map, Value};
use weir_config::names::{dscp::dscp_name, services::service_name};
use weir_system::numbers::{bit_rate, bytes, count, packet_rate, percent};

use super::{
    super::{
        Estimate, HostNumbers, Length, Row, Sums, View,
        grid::{
            Align::{Left, Right},
            Cell, Grid,
            Tone::{Faint, Plain, Strong},
        },
        listing::amount,
    },
    words::{Aliases, in_column, measured, ratio, with_name},
};

/// Maximum number of rows in a table; the JSON has all.
const ROWS_MAX: usize = 20;
/// The largest type of ICMP and `ICMPv6` that is in use.
const ICMP_TYPE_MAX: u16 = 161;
/// Maximum number of rows in a list of floods or scans.
const SPREAD_ROWS_MAX: usize = 5;
/// The caption of a row's share of what the view matched.
const SHARE: &str = "of view";

/// A line for each row: its rank, the fields of its key, its numbers, its share of the total, and its rate. If that is
/// too wide, the key gets a separate line.
pub(super) fn grid(view: &View, rows: Rows<'_>, aliases: &Aliases<'_>, width: usize) -> Grid {
    let Some(first) = rows.rows.first() else { return Grid::new([Left]) };
    let columns = columns(view, first);
    let captions = captions(&view.measure, first, rows.total.is_some());
    let beside = rows.grid(view, &columns, &captions, aliases);
    if beside.least_width() <= width { beside } else { rows.grid_below(view, &columns, &captions, aliases) }
}

/// The names of a row's fields. The direction is shown beside its interface; it is not a field of the view.
fn columns<'a>(view: &'a View, first: &Row) -> Vec<&'a str> {
    let has_direction = first.key.contains_key("direction") && !view.by.iter().any(|field| field == "direction");
    let mut columns: Vec<&str> = Vec::new();
    for field in &view.by {
        let field = field.split('/').next().unwrap_or(field);
        columns.push(field);
        if field == "interface" && has_direction {
            columns.push("direction");
        }
    }
    columns
}

/// The rows of a table of a view.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) rows: &'a [Row],
    /// The total of which the rows are parts.
    pub(super) total: Option<&'a Sums>,
    /// The length of the window.
    pub(super) seconds: Length,
}

impl Rows<'_> {
    /// Makes a grid with a column for each field of the key.
    fn grid(&self, view: &View, columns: &[&str], captions: &[String], aliases: &Aliases<'_>) -> Grid {
        let aligned = [Right].into_iter().chain(vec![Left; columns.len()]).chain(vec![Right; captions.len()]);
        let mut grid = Grid::new(aligned).with_optional(optional(captions));
        let head = [""].into_iter().chain(columns.iter().copied()).map(str::to_owned);
        grid.row(head.chain(captions.iter().cloned()).map(|caption| Cell::new(caption, Faint)));
        for row in self.rows.iter().take(ROWS_MAX) {
            let fields = columns.iter().map(|column| Cell::new(field(column, row, aliases), Plain));
            grid.row([place(row)].into_iter().chain(fields).chain(self.numbers(view, row)));
        }
        self.more(&mut grid);
        grid
    }

    /// The key above its numbers.
    fn grid_below(&self, view: &View, columns: &[&str], captions: &[String], aliases: &Aliases<'_>) -> Grid {
        let aligned = [Right].into_iter().chain(vec![Right; captions.len()]);
        let mut grid = Grid::new(aligned).with_optional(optional(captions));
        let head = [String::new()].into_iter().chain(captions.iter().cloned());
        grid.row(head.map(|caption| Cell::new(caption, Faint)));
        for row in self.rows.iter().take(ROWS_MAX) {
            let fields = columns.iter().map(|name| Cell::from(format!("{name} {}", field(name, row, aliases))));
            grid.across([place(row)].into_iter().chain(fields));
            grid.row([Cell::default()].into_iter().chain(self.numbers(view, row)));
        }
        self.more(&mut grid);
        grid
    }

    fn numbers(&self, view: &View, row: &Row) -> impl Iterator<Item = Cell> {
        numbers(&view.measure, row, self.total, self.seconds).into_iter().map(Cell::from)
    }

    fn more(&self, grid: &mut Grid) {
        if self.rows.len() > ROWS_MAX {
            let more = format!("… and {} more in the report's JSON", self.rows.len() - ROWS_MAX);
            grid.across([Cell::new(more, Faint)]);
        }
    }
}

/// A field of a row's key in words.
fn field(name: &str, row: &Row, aliases: &Aliases<'_>) -> String {
    match (name, row.key.get(name)) {
        ("interface", Some(Value::String(name))) => aliases.show(name),
        _ => with_meaning(name, &row.key),
    }
}

/// How many of the last columns may be left out: all except the number, its bounds and its share.
fn optional(captions: &[String]) -> usize {
    captions.len().saturating_sub(if captions.iter().any(|caption| caption == SHARE) { 3 } else { 2 })
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

/// Each requested key, with a line for each view of bytes and packets.
pub(super) fn answers(answers: &[&Row], seconds: Length) -> Grid {
    let mut grid = Grid::new([Left].into_iter().chain([Right; 5])).with_optional(2);
    let head = [String::new()].into_iter().chain(captions(&Value::Null, &Row::default(), false));
    grid.row(head.map(|caption| Cell::new(caption, Faint)));
    by_key(&mut grid, answers, |answer| numbers(&Value::Null, answer, None, seconds));
    grid
}

/// Each requested key, with a line for each view that counts flows or distinct values.
pub(super) fn counts(answers: &[&Row]) -> Grid {
    let mut grid = Grid::new([Left, Right, Right, Left]);
    grid.row(["", "", "±", ""].map(|caption| Cell::new(caption, Faint)));
    by_key(&mut grid, answers, |answer| {
        let (what, counted) = match answer {
            Row { flows: Some(counted), .. } => ("flows", counted),
            Row { new_flows: Some(counted), .. } => ("new flows", counted),
            Row { distinct: Some(counted), .. } => ("distinct", counted),
            _ => return Vec::new(),
        };
        let [value, error] = measured(counted, in_column(count, ""));
        vec![value, error, what.to_owned()]
    });
    grid
}

/// Adds a line with the view and numbers of each answer. A line with the key is above it, unless the previous answer
/// has the same key.
fn by_key(grid: &mut Grid, answers: &[&Row], numbers: impl Fn(&Row) -> Vec<String>) {
    let mut before = None;
    for answer in answers {
        let key = key_of(answer);
        if before.as_ref() != Some(&key) {
            grid.across([Cell::new(&key, Strong)]);
            before = Some(key);
        }
        let view = format!("  {}", answer.view.as_deref().unwrap_or_default());
        grid.row([view].into_iter().chain(numbers(answer)).map(Cell::from));
        if let Some(host) = answer.host() {
            grid.across([Cell::new(format!("    {}", of_host(&host)), Faint)]);
        }
    }
}

/// Both directions of a host, its flows and peers, in words.
fn of_host(HostNumbers { down, up, flows, peers }: &HostNumbers) -> String {
    let [down, up] = [down, up].map(|direction| amount(&direction.bytes, bytes));
    let [flows, peers] = [flows, peers].map(|of| amount(of, count));
    format!("down {down}, up {up}, flows {flows}, peers {peers}")
}

/// The two ends of a packet.
const ENDS: [&str; 2] = ["src_ip", "dst_ip"];

/// The values of a row's key, without the names of the fields.
pub(super) fn key_values(row: &Row, aliases: &Aliases<'_>) -> String {
    let value = |name: &str| field(name, row, aliases);
    let is_end = |name: &str| ENDS.contains(&name);
    let mut values: Vec<_> = row.key.keys().filter(|name| !is_end(name)).map(|name| value(name)).collect();
    let ends: Vec<_> = ENDS.into_iter().filter(|name| row.key.contains_key(*name)).map(value).collect();
    values.extend((!ends.is_empty()).then(|| ends.join(" → ")));
    if values.is_empty() { "all".to_owned() } else { values.join(" ") }
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
        Row { bytes: Some(_), .. } => tally_captions(measure),
        Row { flows: Some(_), .. } => &["flows  ", "±"],
        Row { new_flows: Some(_), .. } => &["new flows  ", "±"],
        Row { distinct: Some(_), .. } => &["distinct  ", "±"],
        _ => tally_captions(measure),
    };
    captions.iter().filter(|caption| has_total || **caption != SHARE).map(|caption| (*caption).to_owned()).collect()
}

fn tally_captions(measure: &Value) -> &'static [&'static str] {
    if measure == "packets" {
        &["packets  ", "±", SHARE, "pkt/s", "bytes  ", "bit/s"]
    } else {
        &["bytes  ", "±", SHARE, "bit/s", "packets  ", "pkt/s"]
    }
}

fn numbers(measure: &Value, row: &Row, total: Option<&Sums>, seconds: Length) -> Vec<String> {
    let rate = |value: u64, rate: fn(u64, f64) -> String| seconds.rate_text(value, rate).unwrap_or_default();
    let in_bytes = |bytes_of: &Estimate| {
        let [value, error] = measured(bytes_of, in_column(bytes, "B"));
        (value, error, rate(bytes_of.value, bit_rate))
    };
    let in_packets = |packets: &Estimate| {
        let [value, error] = measured(packets, in_column(count, ""));
        (value, error, rate(packets.value, packet_rate))
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
            // A neighbour solicitation, and a port that may be one.
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

    #[test]
    fn source_and_destination_are_in_the_direction_of_the_packet() {
        for (key, shown) in [
            (json!({"dst_ip": "192.0.2.2", "src_ip": "192.0.2.1"}), "192.0.2.1 → 192.0.2.2"),
            (json!({"dst_ip": "192.0.2.2", "proto": "tcp", "src_ip": "192.0.2.1"}), "tcp 192.0.2.1 → 192.0.2.2"),
            (json!({"dst_ip": "192.0.2.2"}), "192.0.2.2"),
            (json!({}), "all"),
        ] {
            let row: Row = serde_json::from_value(key).unwrap();
            assert_eq!(key_values(&row, &Aliases::default()), shown);
        }
    }
}
