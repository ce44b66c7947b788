//! `weir ask --since` and `weir history`: what the past has of keys, and its lists.

use std::io::Write;

use serde_json::Value;
use weir_config::view::Standard;
use weir_schema::{
    AskedFlows, AskedRecords, Change, Changes, ComparedTime, Estimate, Found, FoundKey, KeyAmount, Union,
    listing::{ListForm, Listing, amounts, fields_of, missing_text, most, windows_text},
};
use weir_system::{
    numbers::{bit_rate, packet_rate},
    screen,
    screen::Screen,
    text::escaped,
};

use super::ShowError;

/// The schema of `weir history top --json`.
const TOP_SCHEMA: &str = "weir.history_top/1";

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
            (Some(packets), Some(bytes), ..) => {
                format!("{key}: {}; in no list, bounds by sampled flow records", amounts(packets, bytes))
            }
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

/// Shows a list of several windows together, by bytes or by packets.
///
/// # Errors
///
/// It cannot be written.
pub fn list(union: &Union, list: Standard, by_packets: bool, form: ListForm) -> Result<(), ShowError> {
    let mut out = Screen::stdout(if form == ListForm::Json { screen::Form::Json } else { screen::Form::Text });
    let listing = Listing::new(union, list, by_packets);
    match form {
        ListForm::Json => writeln!(out, "{}", Value::Object(listing.to_json(TOP_SCHEMA)))?,
        ListForm::Csv => lines(&mut out, listing.csv())?,
        ListForm::Text => {
            let window = union.window;
            writeln!(out, "{:.0} to {:.0}: {}", window.start, window.end, windows_text(union.windows))?;
            if let Some(time) = union.reaches_back_to {
                writeln!(out, "weir remembers since {time:.0}")?;
            }
            lines(&mut out, missing_text(&union.missing))?;
            lines(&mut out, listing.lines())?;
        }
    }
    Ok(())
}

fn lines(out: &mut impl Write, lines: impl IntoIterator<Item = String>) -> Result<(), ShowError> {
    for line in lines {
        writeln!(out, "{line}")?;
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
            let fields = fields_of(&changes.list);
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
        let key: Vec<_> = fields_of(list).iter().filter_map(|field| key.get(*field)).map(plain).collect();
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

/// A field of a key without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
