//! The content that the page must show of a report.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_system::numbers::{count, grouped, percent, scaled};

/// The id of the report that the page shows.
pub fn report_of(shown: &Value) -> Result<String> {
    let about = shown["about"].as_str().context("no version")?;
    Ok(about.split("report ").nth(1).with_context(|| format!("no report in {about:?}"))?.to_owned())
}

/// Compares everything that the page shows with the report.
pub fn compare(shown: &Value, report: &Value, by: &str) -> Result<()> {
    totals(shown, report)?;
    distinct(shown, report)?;
    ledger(shown, report)?;
    rows(shown, report, by)?;
    let alerts = report["alerts"].as_array().map_or(0, Vec::len);
    ensure!(shown["alerts"].as_object().map(serde_json::Map::len) == Some(alerts), "{alerts} alerts");
    for alert in report["alerts"].as_array().into_iter().flatten() {
        let rule = alert["rule"].as_str().context("no rule")?;
        ensure!(shown["alerts"][rule] == alert["state"], "{rule}: {}", shown["alerts"]);
    }
    Ok(())
}

/// Compares the shown totals and rows with the answer about several windows, and the totals of this answer with the sum
/// over the reports.
pub fn compare_span(shown: &Value, span: &Value, reports: &[Value], by: &str) -> Result<()> {
    for unit in ["packets", "bytes"] {
        let sum: u64 = reports.iter().filter_map(|report| report["totals"][unit].as_u64()).sum();
        ensure!(span["totals"][unit] == sum, "{unit}: {} are not the {sum} of all windows", span["totals"][unit]);
    }
    totals(shown, span)?;
    distinct(shown, span)?;
    // Beside the rate is how much it was.
    for row in shown["rows"].as_array().into_iter().flatten() {
        let value = row["value"].as_u64().unwrap_or_default() as f64;
        let text = scaled(value, if by == "bytes" { "B" } else { "pkt" });
        ensure!(row["amount"]["text"] == text && row["amount"]["value"] == row["value"], "{row} has not {text}");
    }
    rows(shown, span, by)
}

/// Counts the rows of an open window that are also in its report. Fails if a row has become smaller.
pub fn grows(shown: &Value, report: &Value) -> Result<usize> {
    let mut common = 0;
    let all = &list(report, "sources", "bytes")?.rows;
    for row in shown["rows"].as_array().into_iter().flatten() {
        let Some(later) = all.iter().find(|later| row["key"] == key_of(later)) else { continue };
        let [before, after] = [row["lower"].as_u64(), later["bytes"]["upper"].as_u64()];
        ensure!(before.is_some() && before <= after, "{row} has shrunk to {later}");
        common += 1;
    }
    Ok(common)
}

fn seconds(report: &Value) -> f64 {
    report["window"]["seconds"].as_f64().unwrap_or(1.0)
}

fn totals(shown: &Value, report: &Value) -> Result<()> {
    let [bytes, packets] = ["bytes", "packets"].map(|unit| report["totals"][unit].as_u64().unwrap_or_default());
    let found = &shown["totals"];
    ensure!(found["bytes"]["value"] == bytes && found["packets"]["value"] == packets, "totals: {found}");
    let text = scaled(bytes as f64 * 8.0 / seconds(report), "bit/s");
    ensure!(found["bytes"]["text"] == text, "{} is not {text}", found["bytes"]["text"]);
    let trust = shown["trust"].as_str().context("no line of trust")?;
    ensure!(trust.contains("balanced: yes") && trust.contains("sampled 1 in 3"), "{trust}");
    Ok(())
}

fn distinct(shown: &Value, report: &Value) -> Result<()> {
    let unique = &report["unique"];
    let all = [
        ("sources", &unique["src_ip"]),
        ("destinations", &unique["dst_ip"]),
        ("flows", &unique["flows"]),
        ("new flows", &report["new_flows"]),
    ];
    for (name, expected) in all {
        let found = &shown["distinct"][name];
        same_bounds(found, expected).with_context(|| name.to_owned())?;
        let [value, lower, upper] = ["value", "lower", "upper"].map(|part| expected[part].as_u64().unwrap_or_default());
        let is_range = (value - lower).max(upper - value) > value;
        let text = if is_range { format!("{} to {}", count(lower), count(upper)) } else { count(value) };
        ensure!(found["text"] == text, "{name}: {} is not {text}", found["text"]);
    }
    Ok(())
}

fn same_bounds(found: &Value, expected: &Value) -> Result<()> {
    for part in ["value", "lower", "upper"] {
        ensure!(found[part] == expected[part], "{part}: shown {}, reported {}", found[part], expected[part]);
    }
    Ok(())
}

fn ledger(shown: &Value, report: &Value) -> Result<()> {
    // The report has one interface.
    let ledger = &report["interfaces"][0]["ledger"];
    let mut all = vec![("seen".to_owned(), &ledger["seen"]), ("attributed".to_owned(), &ledger["attributed"])];
    all.push(("sampled_out".to_owned(), &ledger["sampled_out"]));
    for kind in ["skipped", "lost"] {
        let reasons = ledger[kind].as_object().into_iter().flatten();
        all.extend(reasons.map(|(reason, tally)| (format!("{kind}.{reason}"), tally)));
    }
    for (name, tally) in all {
        let found = &shown["ledger"][&name];
        if tally["packets"] == 0 && found.is_null() {
            continue;
        }
        ensure!(found[0]["value"] == tally["packets"], "{name}: {found} is not {tally}");
        ensure!(found[1]["value"] == tally["bytes"], "{name}: {found} is not {tally}");
        let text = grouped(tally["packets"].as_u64().unwrap_or_default());
        ensure!(found[0]["text"] == text, "{name}: {} is not {text}", found[0]["text"]);
    }
    Ok(())
}

/// A list of the report: its rows, their total, and whether the rows only have distinct counts.
struct List<'r> {
    rows: Vec<&'r Value>,
    whole: &'r Value,
    counts: bool,
}

fn list<'r>(report: &'r Value, name: &str, by: &str) -> Result<List<'r>> {
    let top = &report[if by == "bytes" { "top" } else { "top_by_packets" }];
    let of =
        |rows: &'r Value, whole, counts| List { rows: rows.as_array().into_iter().flatten().collect(), whole, counts };
    let field = match name {
        "source nets" => "source_prefixes",
        "destination nets" => "destination_prefixes",
        name => name,
    };
    if let Some(rows) = top.get(field).filter(|rows| rows.is_array()) {
        return Ok(of(rows, &report["totals"], false));
    }
    let spread = match name {
        "floods" => Some("sources_per_destination"),
        "scans" => Some("destinations_per_source"),
        "ports" => Some("ports_per_source"),
        _ => None,
    };
    if let Some(spread) = spread {
        return Ok(of(&report["spread"][spread], &report["totals"], true));
    }
    // The name is that of a view, perhaps followed by an interface.
    let mut views = report["views"].as_array().into_iter().flatten();
    let view = views.find(|view| view["name"].as_str().is_some_and(|of| name.split(' ').next() == Some(of)));
    let view = view.with_context(|| format!("no view {name}"))?;
    let table = view.get("tables").map_or(view, |tables| &tables[0]);
    Ok(of(&table["rows"], &table["total"], false))
}

/// The rows of a list that the page draws at first: `CHUNK` in `draw/table.js`.
const PART: usize = 40;

fn rows(shown: &Value, report: &Value, by: &str) -> Result<()> {
    let name = shown["list"].as_str().context("no list")?;
    let List { rows, whole, counts } = list(report, name, by)?;
    let found = shown["rows"].as_array().context("no rows")?;
    // A long list is drawn by parts, as one scrolls.
    let drawn = PART.min(rows.len())..=rows.len();
    ensure!(drawn.contains(&found.len()), "{name} has {} rows, and the report {}", found.len(), rows.len());
    for (found, row) in found.iter().zip(rows) {
        let amount = if counts { &row["distinct"] } else { &row.get("beyond").unwrap_or(row)[by] };
        let key = key_of(row);
        ensure!(found["key"] == key, "{} is not {key}", found["key"]);
        same_bounds(found, amount).with_context(|| key.clone())?;
        let text = |value: u64| match (counts, by) {
            (true, _) => count(value),
            (false, "bytes") => scaled(value as f64 * 8.0 / seconds(report), "bit/s"),
            (false, _) => scaled(value as f64 / seconds(report), "pkt/s"),
        };
        let [value, lower, upper] = ["value", "lower", "upper"].map(|part| amount[part].as_u64().unwrap_or_default());
        ensure!(found["text"] == text(value), "{key}: {} is not {}", found["text"], text(value));
        let (error, words) = error(value - lower, upper - value, &text, [value, lower, upper]);
        ensure!(found["error"] == error, "{key}: {} is not {error}", found["error"]);
        ensure!(found["range"] == words, "{key}: {} is not {words}", found["range"]);
        if !counts {
            let whole = whole.pointer(&format!("/{by}/value")).unwrap_or(&whole[by]).as_u64().unwrap_or_default();
            let share = percent(value as f64 / whole as f64);
            ensure!(found["share"] == share, "{key}: {} is not {share}", found["share"]);
        }
    }
    Ok(())
}

/// How far the truth may be from a number: in short, and in words for a screen reader.
fn error(less: u64, more: u64, text: &dyn Fn(u64) -> String, [value, lower, upper]: [u64; 3]) -> (String, String) {
    match (less, more) {
        (0, 0) => ("exact".to_owned(), format!("exactly {}", text(value))),
        (0, more) => (format!("+{}", text(more)), format!("at least {}, up to {} more", text(value), text(more))),
        (less, more) => {
            let short = match more {
                0 => format!("−{}", text(less)),
                more if more > value => format!("≤ {}", text(upper)),
                more => format!("±{}", text(less.max(more))),
            };
            (short, format!("between {} and {}", text(lower), text(upper)))
        }
    }
}

/// The key of a row in the syntax of a query, in the order of the report.
fn key_of(row: &Value) -> String {
    const ORDER: [&str; 8] = ["host", "src_ip", "dst_ip", "src_port", "dst_port", "proto", "port", "prefix"];
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields =
        row.as_object().into_iter().flatten().filter(|(name, _)| !weir_schema::NOT_KEY.contains(&name.as_str()));
    let mut fields: Vec<_> = fields.map(|(name, value)| (name.as_str(), text(value))).collect();
    fields.sort_by_key(|(name, _)| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
    fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}
