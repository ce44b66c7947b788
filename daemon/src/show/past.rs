//! `weir ask --since` and `weir history`: what the past has of keys, and its lists.

use std::io::Write;

use serde_json::{Map, Value, json};
use weir_config::view::Standard;
use weir_schema::{
    AskedFlows, AskedRecords, Change, Changes, ComparedTime, Estimate, Found, FoundKey, KeyAmount, Tally, Top, Union,
    lists::{FIELDS, fields_as_json},
};
use weir_system::{
    numbers::{self, bit_rate, packet_rate},
    screen,
    screen::Screen,
    text::escaped,
};

use super::ShowError;

/// The schema of `weir history top --json`.
const TOP_SCHEMA: &str = "weir.history_top/1";

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

/// Shows what the past has of keys.
///
/// # Errors
///
/// It cannot be written.
pub fn found(found: &Found) -> Result<(), ShowError> {
    let mut out = Screen::stdout(screen::Form::Text);
    for line in lines_of(found) {
        writeln!(out, "{}", escaped(&line))?;
    }
    Ok(())
}

fn lines_of(Found { from, to, windows, reaches_back_to, blocks, missing, keys, .. }: &Found) -> Vec<String> {
    let mut lines = vec![format!("{from:.0} to {to:.0}: {}", windows_text(*windows))];
    for key in keys {
        let FoundKey { key, listed, first, last, packets, bytes, at_most, .. } = key;
        lines.push(match (packets, bytes, first, last) {
            (Some(packets), Some(bytes), Some(first), Some(last)) => format!(
                "{key}: {}; in the lists of {}, from {first:.0} to {last:.0}",
                amounts(packets, bytes),
                windows_text(*listed),
            ),
            _ => format!("{key}: in no list; at most {}", most(at_most)),
        });
    }
    for gap in missing {
        lines.push(format!("nothing is known of {:.0} to {:.0}", gap.start, gap.end));
    }
    let damaged = if blocks.damaged > 0 { format!(", {} damaged", blocks.damaged) } else { String::new() };
    let (opened, all) = (blocks.opened, blocks.opened + blocks.skipped + blocks.damaged);
    lines.push(format!("opened {opened} of {all} blocks on disk, did not have to open {}{damaged}", blocks.skipped));
    lines.extend(reaches_back_to.map(|time| format!("weir remembers since {time:.0}")));
    lines
}

/// Packets and bytes with their bounds: `1.1 MB (1.1 MB to 1.2 MB), 1.2 k (1.2 k to 1.3 k) packets`.
fn amounts(packets: &Estimate, bytes: &Estimate) -> String {
    let [bytes, packets] = [amount(bytes, numbers::bytes), amount(packets, numbers::count)];
    format!("{bytes}, {packets} packets")
}

fn amount(Estimate { value, lower, upper, .. }: &Estimate, text: fn(u64) -> String) -> String {
    if lower == upper { text(*value) } else { format!("{} ({} to {})", text(*value), text(*lower), text(*upper)) }
}

fn most(Tally { packets, bytes }: &Tally) -> String {
    format!("{}, {} packets", numbers::bytes(*bytes), numbers::count(*packets))
}

fn windows_text(windows: u64) -> String {
    format!("{windows} window{}", if windows == 1 { "" } else { "s" })
}

/// The standard lists that windows can be added up of, by name.
pub fn lists() -> impl Iterator<Item = (&'static str, Standard)> {
    FIELDS.iter().map(|(list, _)| (list.name(), *list))
}

/// Shows a list of several windows together, by bytes or by packets.
///
/// # Errors
///
/// It cannot be written.
pub fn list(union: &Union, list: Standard, by_packets: bool, form: ListForm) -> Result<(), ShowError> {
    let mut out = Screen::stdout(if form == ListForm::Json { screen::Form::Json } else { screen::Form::Text });
    let top = if by_packets { &union.top_by_packets } else { &union.top };
    let rows = rows(top, list);
    match form {
        ListForm::Json => writeln!(out, "{}", as_json(union, top, list, &rows))?,
        ListForm::Csv => {
            let fields = fields(list.name());
            let numbers = ["packets", "packets_lower", "packets_upper", "bytes", "bytes_lower", "bytes_upper"];
            let header: Vec<&str> = ["rank"].into_iter().chain(fields.iter().copied()).chain(numbers).collect();
            writeln!(out, "{}", header.join(","))?;
            for ListedRow { rank, key, packets, bytes } in &rows {
                let key = key.iter().map(|(_, value)| value.clone());
                let numbers = [packets, bytes].into_iter().flat_map(|of| [of.value, of.lower, of.upper]);
                let cells = [rank.to_string()].into_iter().chain(key).chain(numbers.map(|number| number.to_string()));
                writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))?;
            }
        }
        ListForm::Text => {
            let window = union.window;
            writeln!(out, "{:.0} to {:.0}: {}", window.start, window.end, windows_text(union.windows))?;
            if let Some(time) = union.reaches_back_to {
                writeln!(out, "weir remembers since {time:.0}")?;
            }
            for gap in &union.missing {
                writeln!(out, "nothing is known of {:.0} to {:.0}", gap.start, gap.end)?;
            }
            for ListedRow { rank, key, packets, bytes } in &rows {
                let key: Vec<_> = key.iter().map(|(_, value)| value.as_str()).collect();
                writeln!(out, "{rank:>4}  {}  {}", escaped(&key.join(" ")), amounts(packets, bytes))?;
            }
        }
    }
    Ok(())
}

/// Shows what flow records have of a question.
///
/// # Errors
///
/// It cannot be written.
pub fn flows(asked: &AskedFlows, form: ListForm) -> Result<(), ShowError> {
    let mut out = Screen::stdout(if form == ListForm::Json { screen::Form::Json } else { screen::Form::Text });
    let lines = match form {
        ListForm::Json => vec![serde_json::to_string(asked).map_err(std::io::Error::from)?],
        ListForm::Csv => csv_of_flows(asked),
        ListForm::Text => lines_of_flows(asked),
    };
    for line in lines {
        writeln!(out, "{}", escaped(&line))?;
    }
    Ok(())
}

/// The fields of the rows, without the lengths of prefixes.
fn fields_of_flows(asked: &AskedFlows) -> Vec<&str> {
    asked.by.iter().map(|field| field.split('/').next().unwrap_or(field)).collect()
}

fn csv_of_flows(asked: &AskedFlows) -> Vec<String> {
    let fields = fields_of_flows(asked);
    let numbers = ["packets", "packets_lower", "packets_upper", "bytes", "bytes_lower", "bytes_upper"];
    let header: Vec<&str> = ["rank"].into_iter().chain(fields.iter().copied()).chain(numbers).collect();
    let line = |cells: Vec<String>, packets: Estimate, bytes: Estimate| {
        let numbers = [packets, bytes].into_iter().flat_map(|of| [of.value, of.lower, of.upper]);
        cells.into_iter().chain(numbers.map(|number| number.to_string())).collect::<Vec<_>>().join(",")
    };
    let mut lines = vec![header.join(",")];
    if asked.by.is_empty() {
        lines.push(line(vec![String::new()], asked.packets, asked.bytes));
    }
    for row in &asked.rows {
        let Some((packets, bytes)) = row.packets.zip(row.bytes) else { continue };
        let key = fields.iter().map(|field| row.key.get(*field).map_or_else(String::new, plain));
        let rank = row.rank.unwrap_or_default().to_string();
        lines.push(line([rank].into_iter().chain(key).collect(), packets, bytes));
    }
    lines
}

fn lines_of_flows(asked: &AskedFlows) -> Vec<String> {
    let AskedFlows { from, to, windows, records, missing, packets, bytes, rows, at_most, .. } = asked;
    let mut lines = vec![format!("{from:.0} to {to:.0}: {}", windows_text(*windows))];
    lines.extend(missing.iter().map(|gap| format!("nothing is known of {:.0} to {:.0}", gap.start, gap.end)));
    let question = if asked.question.is_empty() { "all traffic" } else { &asked.question };
    lines.push(format!("{question}: {}", amounts(packets, bytes)));
    let fields = fields_of_flows(asked);
    for row in rows {
        let Some((packets, bytes)) = row.packets.zip(row.bytes) else { continue };
        let key: Vec<_> = fields.iter().filter_map(|field| row.key.get(*field)).map(plain).collect();
        let rank = row.rank.unwrap_or_default();
        lines.push(format!("{rank:>4}  {}  {}", key.join(" "), amounts(&packets, &bytes)));
    }
    if let Some(at_most) = at_most {
        lines.push(format!("every other has at most {}", most(at_most)));
    }
    let AskedRecords { sampled, selected } = records;
    lines.push(match asked.confidence {
        1.0 => format!("exact: {selected} of {sampled} sampled flow records, which are all there were"),
        confidence => {
            let percent = confidence * 100.0;
            format!("from {selected} of {sampled} sampled flow records; all bounds hold together at {percent:.1} %")
        }
    });
    lines.extend(asked.reaches_back_to.map(|time| format!("weir has samples since {time:.0}")));
    lines
}

/// Shows what changed in a list between two times.
///
/// # Errors
///
/// It cannot be written.
pub fn changes(changes: &Changes, form: ListForm) -> Result<(), ShowError> {
    let mut out = Screen::stdout(if form == ListForm::Json { screen::Form::Json } else { screen::Form::Text });
    match form {
        ListForm::Json => writeln!(out, "{}", serde_json::to_string(changes).map_err(std::io::Error::from)?)?,
        ListForm::Csv => {
            let fields = fields(&changes.list);
            let numbers = ["before", "before_lower", "before_upper", "now", "now_lower", "now_upper"];
            let header: Vec<&str> = ["change"].into_iter().chain(fields.iter().copied()).chain(numbers).collect();
            writeln!(out, "{}", header.join(","))?;
            for Change { change, key, before, now } in &changes.rows {
                let key = fields.iter().map(|field| key.get(*field).map_or_else(String::new, plain));
                let numbers = [before, now].into_iter().flat_map(|of| {
                    let value = of.value.map_or_else(String::new, |value| value.to_string());
                    [value, of.lower.to_string(), of.upper.to_string()]
                });
                let cells = [change.name().to_owned()].into_iter().chain(key).chain(numbers);
                writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))?;
            }
        }
        ListForm::Text => {
            for line in lines_of_changes(changes) {
                writeln!(out, "{}", escaped(&line))?;
            }
        }
    }
    Ok(())
}

fn lines_of_changes(Changes { list, by, before, now, rows, uncertain, .. }: &Changes) -> Vec<String> {
    let mut lines = Vec::new();
    for (what, ComparedTime { window, windows, missing }) in [("", now), ("compared with ", before)] {
        lines.push(format!("{what}{:.0} to {:.0}: {}", window.start, window.end, windows_text(*windows)));
        lines.extend(missing.iter().map(|gap| format!("nothing is known of {:.0} to {:.0}", gap.start, gap.end)));
    }
    for Change { change, key, before: earlier, now: later } in rows {
        let key: Vec<_> = fields(list).iter().filter_map(|field| key.get(*field)).map(plain).collect();
        let (earlier, later) = (rate(earlier, before, by), rate(later, now, by));
        lines.push(format!("{:<6}  {}  {later}, before {earlier}", change.name(), key.join(" ")));
    }
    let named = rows.len() + uncertain;
    lines.push(match (rows.len(), uncertain) {
        (0, 0) => format!("neither time has any {list}"),
        (_, 0) => format!("all {named} {list} that the lists name have changed"),
        _ => format!("{uncertain} of {named} {list} that the lists name may have stayed the same"),
    });
    lines
}

/// What a key had in a time, as a rate with its bounds.
fn rate(KeyAmount { value, lower, upper }: &KeyAmount, time: &ComparedTime, by: &str) -> String {
    let of = if by == "packets" { packet_rate } else { bit_rate };
    let text = |number: u64| time.window.seconds.rate_text(number, of).unwrap_or_else(|| number.to_string());
    match value {
        None if *upper == 0 => "nothing".to_owned(),
        None => format!("at most {}", text(*upper)),
        Some(value) if lower == upper => text(*value),
        Some(value) => format!("{} ({} to {})", text(*value), text(*lower), text(*upper)),
    }
}

/// The fields of the rows of a list, in their order.
fn fields(list: &str) -> &'static [&'static str] {
    FIELDS.iter().find(|(of, _)| of.name() == list).map_or(&[], |(_, fields)| *fields)
}

/// A field of a key without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A row with the fields of its key.
struct ListedRow {
    rank: u32,
    key: Vec<(&'static str, String)>,
    packets: Estimate,
    bytes: Estimate,
}

fn rows(top: &Top, list: Standard) -> Vec<ListedRow> {
    let rows = top.list(list).map(|list| list.rows).unwrap_or_default().into_iter();
    let row = |row: weir_schema::lists::ListRow<'_>| ListedRow {
        rank: row.rank,
        key: row.key.fields().collect(),
        packets: row.sums.packets,
        bytes: row.sums.bytes,
    };
    rows.map(row).collect()
}

fn as_json(union: &Union, top: &Top, list: Standard, rows: &[ListedRow]) -> Value {
    let row = |ListedRow { rank, key, packets, bytes }: &ListedRow| {
        let mut row: Map<String, Value> = Map::new();
        row.insert("rank".to_owned(), json!(rank));
        row.extend(fields_as_json(key));
        row.insert("packets".to_owned(), json!(packets));
        row.insert("bytes".to_owned(), json!(bytes));
        Value::Object(row)
    };
    json!({
        "schema": TOP_SCHEMA,
        "list": list.name(),
        "by": top.by,
        "window": union.window,
        "windows": union.windows,
        "missing": union.missing,
        "reaches_back_to": union.reaches_back_to,
        "confidence": top.confidence,
        "unlisted": top.list(list).and_then(|list| list.unlisted),
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}
