//! `weir merge --history`: what the histories of several routers have of a time, as text, JSON or comma-separated
//! values.

use std::io::{self, Write};

use serde_json::{Value, json};
use weir_config::view::Standard;
use weir_history::{OneOfSeveral, Several};
use weir_schema::{
    Distinct,
    listing::{ListForm, Listing, missing_text, windows_text},
};
use weir_system::{numbers, text::escaped};

/// The schema of `--json`.
const SCHEMA: &str = "weir.history_merge/1";
/// The most interfaces that are added up one by one: all of them bound what rows leave out.
const INTERFACES_MAX: usize = 4096;
/// A caveat that stands in every answer.
const NOTE: &str = "a packet that passed two routers counts at both: in totals and lists. Distinct counts have each \
                    value once";

/// Writes a list of several routers together, with at most so many rows.
///
/// # Errors
///
/// Those of `out`.
pub fn write_history(
    several: &Several,
    (list, by_packets, rows): (Standard, bool, usize),
    form: ListForm,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut several = several.clone();
    several.union.trim(rows, INTERFACES_MAX);
    let listing = Listing::new(&several.union, list, by_packets);
    let lines = match form {
        ListForm::Json => vec![to_json(&several, &listing).to_string()],
        ListForm::Csv => listing.csv(),
        ListForm::Text => lines_of(&several, &listing, by_packets),
    };
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The fields of `weir history top --json`, and those of several routers.
fn to_json(Several { union, routers }: &Several, listing: &Listing<'_>) -> Value {
    let mut all = listing.to_json(SCHEMA);
    // Each router has its own gaps.
    all.remove("missing");
    let fields = [
        ("routers", json!(routers)),
        ("totals", json!(union.totals)),
        ("unique", json!(union.unique)),
        ("left_out", json!(union.left_out)),
        ("changed", json!(union.changed)),
        ("note", json!(NOTE)),
    ];
    all.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(all)
}

fn lines_of(several: &Several, listing: &Listing<'_>, by_packets: bool) -> Vec<String> {
    let Several { union, routers } = several;
    let counted = routers.iter().filter(|router| router.left_out.is_none()).count();
    let routers_text = format!("{counted} router{}", if counted == 1 { "" } else { "s" });
    let windows = windows_text(union.windows);
    let mut lines = vec![format!("{:.0} to {:.0}: {windows} of {routers_text}", union.window.start, union.window.end)];
    for router in routers {
        lines.extend(lines_of_router(router));
    }
    let [bytes, packets] = [numbers::bytes(union.totals.bytes), numbers::count(union.totals.packets)];
    let distinct = several.distinct().map(|(name, of)| count_text(name, of));
    lines.push(format!("together {bytes}, {packets} packets; {}", distinct.join(", ")));
    lines.extend(listing.lines());
    if let Some(most) = listing.unlisted() {
        let most = if by_packets { format!("{} packets", numbers::count(most)) } else { numbers::bytes(most) };
        lines.push(format!("every other has at most {most}"));
    }
    if !union.changed.is_empty() {
        let names = union.changed.join(", ");
        lines.push(format!("not added up, because it was not asked the same everywhere: {}", escaped(&names)));
    }
    lines.push(format!("{NOTE}."));
    lines
}

fn lines_of_router(router: &OneOfSeveral) -> Vec<String> {
    let OneOfSeveral { name, id, windows, missing, alerts, left_out, .. } = router;
    let name = escaped(name);
    if let Some(why) = left_out {
        return vec![format!("{name} ({id}) is left out: {why}")];
    }
    let mut lines = vec![format!("{name} ({id}): {}", windows_text(*windows))];
    lines.extend(missing_text(missing).map(|gap| format!("{name}: {gap}")));
    lines.extend(alerts.iter().map(|alert| format!("{name}: {}", escaped(&alert.told()))));
    lines
}

/// A distinct count with its bounds.
fn count_text(name: &str, Distinct { value, lower, upper, .. }: Distinct) -> String {
    let count = numbers::count;
    if lower == upper {
        return format!("{} {name}", count(value));
    }
    format!("{} {name} ({} to {})", count(value), count(lower), count(upper))
}
