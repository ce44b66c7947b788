//! A list of several windows together, as text, JSON or comma-separated values: of one weir, or of many routers.

use serde_json::{Map, Value, json};
use weir_config::view::Standard;
use weir_system::{numbers, text::escaped};

use crate::{
    Estimate, Gap, Tally, Top, Union,
    lists::{FIELDS, ListRow, fields_as_json},
};

/// How a list is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListForm {
    /// As text.
    Text,
    /// As a line of JSON.
    Json,
    /// As lines of comma-separated values, with a header.
    Csv,
}

/// The standard lists that windows can be added up of, by name.
pub fn summable_lists() -> impl Iterator<Item = (&'static str, Standard)> {
    FIELDS.iter().map(|(list, _)| (list.name(), *list))
}

/// The standard list of this name that windows can be added up of.
///
/// # Errors
///
/// There is none.
pub fn summable_list(name: &str) -> Result<Standard, String> {
    let list = summable_lists().find(|(of, _)| *of == name).map(|(_, list)| list);
    list.ok_or_else(|| {
        let names: Vec<_> = summable_lists().map(|(name, _)| name).collect();
        format!("there is no list {name:?} of several windows (there are: {})", names.join(", "))
    })
}

/// The fields of the rows of a list, in their order.
pub fn fields_of(list: &str) -> &'static [&'static str] {
    FIELDS.iter().find(|(of, _)| of.name() == list).map_or(&[], |(_, fields)| *fields)
}

/// A row with the fields of its key.
struct ListedRow {
    rank: u32,
    key: Vec<(&'static str, String)>,
    packets: Estimate,
    bytes: Estimate,
}

/// A list of a union, by bytes or by packets.
pub struct Listing<'u> {
    union: &'u Union,
    top: &'u Top,
    list: Standard,
    rows: Vec<ListedRow>,
}

impl<'u> Listing<'u> {
    /// This list.
    pub fn new(union: &'u Union, list: Standard, by_packets: bool) -> Self {
        let top = if by_packets { &union.top_by_packets } else { &union.top };
        let rows = top.list(list).map(|list| list.rows).unwrap_or_default().into_iter();
        let row = |row: ListRow<'_>| ListedRow {
            rank: row.rank,
            key: row.key.fields().collect(),
            packets: row.sums.packets,
            bytes: row.sums.bytes,
        };
        let rows = rows.map(row).collect();
        Self { union, top, list, rows }
    }

    /// Its fields in JSON, under this schema.
    pub fn to_json(&self, schema: &str) -> Map<String, Value> {
        let Self { union, top, list, rows } = self;
        let row = |ListedRow { rank, key, packets, bytes }: &ListedRow| {
            let mut row: Map<String, Value> = Map::new();
            row.insert("rank".to_owned(), json!(rank));
            row.extend(fields_as_json(key));
            row.insert("packets".to_owned(), json!(packets));
            row.insert("bytes".to_owned(), json!(bytes));
            Value::Object(row)
        };
        let fields = [
            ("schema", json!(schema)),
            ("list", json!(list.name())),
            ("by", json!(top.by)),
            ("window", json!(union.window)),
            ("windows", json!(union.windows)),
            ("missing", json!(union.missing)),
            ("reaches_back_to", json!(union.reaches_back_to)),
            ("confidence", json!(top.confidence)),
            ("unlisted", json!(self.unlisted())),
            ("rows", rows.iter().map(row).collect()),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The most that a key without a row has, in the unit of the order.
    pub fn unlisted(&self) -> Option<u64> {
        self.top.list(self.list).and_then(|list| list.unlisted)
    }

    /// Its lines of comma-separated values.
    pub fn csv(&self) -> Vec<String> {
        let numbers = ["packets", "packets_lower", "packets_upper", "bytes", "bytes_lower", "bytes_upper"];
        let fields = fields_of(self.list.name()).iter().copied();
        let header: Vec<&str> = ["rank"].into_iter().chain(fields).chain(numbers).collect();
        let mut lines = vec![header.join(",")];
        for ListedRow { rank, key, packets, bytes } in &self.rows {
            let key = key.iter().map(|(_, value)| value.clone());
            let numbers = [packets, bytes].into_iter().flat_map(|of| [of.value, of.lower, of.upper]);
            let cells = [rank.to_string()].into_iter().chain(key).chain(numbers.map(|number| number.to_string()));
            lines.push(cells.collect::<Vec<_>>().join(","));
        }
        lines
    }

    /// Its rows as text.
    pub fn lines(&self) -> Vec<String> {
        let line = |ListedRow { rank, key, packets, bytes }: &ListedRow| {
            let key: Vec<_> = key.iter().map(|(_, value)| value.as_str()).collect();
            format!("{rank:>4}  {}  {}", escaped(&key.join(" ")), amounts(packets, bytes))
        };
        self.rows.iter().map(line).collect()
    }
}

/// Times without windows as text.
pub fn missing_text(missing: &[Gap]) -> impl Iterator<Item = String> {
    missing.iter().map(|gap| format!("nothing is known of {:.0} to {:.0}", gap.start, gap.end))
}

/// Packets and bytes with their bounds: `1.1 MB (1.1 MB to 1.2 MB), 1.2 k (1.2 k to 1.3 k) packets`.
pub fn amounts(packets: &Estimate, bytes: &Estimate) -> String {
    let [bytes, packets] = [amount(bytes, numbers::bytes), amount(packets, numbers::count)];
    format!("{bytes}, {packets} packets")
}

/// A number with its bounds, unless it is exact.
pub fn amount(Estimate { value, lower, upper, .. }: &Estimate, text: fn(u64) -> String) -> String {
    if lower == upper { text(*value) } else { format!("{} ({} to {})", text(*value), text(*lower), text(*upper)) }
}

/// The most that something has.
pub fn most(Tally { packets, bytes }: &Tally) -> String {
    format!("{}, {} packets", numbers::bytes(*bytes), numbers::count(*packets))
}

/// A number of windows: `1 window`.
pub fn windows_text(windows: u64) -> String {
    format!("{windows} window{}", if windows == 1 { "" } else { "s" })
}
