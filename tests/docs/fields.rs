//! `docs/REPORT.md` explains every field of a report, every mode and every reason, and no others.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_attach::Obtained;
use weir_common::ledger::{Loss, Skip};
use weir_config::interface::NO_ROUTE;
use weir_schema::schema;

use crate::page::{Page, spans};

const REPORT: &str = "docs/REPORT.md";

/// The names of a schema's fields: `.` precedes a field of an object, `[]` follows a list, and `REASON` stands for a
/// name that the schema leaves open.
///
/// # Errors
///
/// The schema is not valid.
pub fn of_schema() -> Result<BTreeSet<String>> {
    let schema: Value = serde_json::from_str(schema::REPORT)?;
    let mut names = BTreeSet::new();
    collect(&schema, &schema, "", &mut names)?;
    Ok(names)
}

fn collect(root: &Value, schema: &Value, at: &str, names: &mut BTreeSet<String>) -> Result<()> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let pointer = reference.trim_start_matches('#');
        let target = root.pointer(pointer).with_context(|| format!("{reference} is not in the schema"))?;
        collect(root, target, at, names)?;
    }
    let open = schema.get("additionalProperties").filter(|open| open.is_object()).map(|open| ("REASON", open));
    // An optional object is either an object or null.
    for alternative in schema.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
        collect(root, alternative, at, names)?;
    }
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, field) in fields.into_iter().flatten().map(|(name, field)| (name.as_str(), field)).chain(open) {
        let name = if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        collect(root, field, &name, names)?;
        names.insert(name);
    }
    match schema.get("items") {
        Some(items) if items.is_object() => collect(root, items, &format!("{at}[]"), names),
        _ => Ok(()),
    }
}

/// Returns true if a name on the page matches a field, part by part; `*` matches any name.
fn means(name: &str, field: &str) -> bool {
    let (name, field): (Vec<_>, Vec<_>) = (name.split('.').collect(), field.split('.').collect());
    let is_same = |(name, field): (&&str, &&str)| match name.strip_prefix('*') {
        Some(list) => field.ends_with("[]") == (list == "[]"),
        None => name == field,
    };
    name.len() == field.len() && name.iter().zip(&field).all(is_same)
}

#[test]
fn every_field_is_explained() -> Result<()> {
    let page = Page::read(REPORT)?;
    let fields = of_schema()?;
    ensure!(fields.len() > 100, "{} fields are too few: the test does not see them", fields.len());
    let rows = page.tables().into_iter().flatten().filter(|row| row.text.starts_with("| `") && !is_list(row.heading));
    let mut explained = BTreeSet::new();
    for row in rows {
        let places = spans(row.heading);
        for name in spans(row.cells()[0]) {
            let names = match places.is_empty() {
                true => vec![name.to_owned()],
                false => places.iter().map(|place| format!("{place}.{name}")).collect(),
            };
            let meant: Vec<_> =
                fields.iter().filter(|field| names.iter().any(|name| means(name, field))).cloned().collect();
            ensure!(!meant.is_empty(), "{}: a report has no field {}", page.at(row.number), names.join(" or "));
            explained.extend(meant);
        }
    }
    let missing: Vec<_> = fields.difference(&explained).cloned().collect();
    ensure!(missing.is_empty(), "{REPORT} does not explain\n{}", missing.join("\n"));
    Ok(())
}

/// The headings of the tables that list values, not fields.
const LISTS: [&str; 3] = ["Modes", "Reasons for skipped", "Reasons for lost"];

fn is_list(heading: &str) -> bool {
    LISTS.contains(&heading)
}

#[test]
fn every_mode_and_reason_is_explained() -> Result<()> {
    let page = Page::read(REPORT)?;
    let listed = |heading: &str| -> BTreeSet<String> {
        let rows = page.tables().into_iter().flatten().filter(|row| row.heading == heading);
        rows.flat_map(|row| spans(row.cells()[0])).map(str::to_owned).collect()
    };
    let [modes, skipped, lost] = LISTS.map(listed);
    let reasons: BTreeSet<_> = Skip::ALL.iter().map(|reason| reason.name().to_owned()).collect();
    ensure!(skipped == reasons, "skipped: the page has {skipped:?}, weir {reasons:?}");
    let reasons: BTreeSet<_> = Loss::ALL.iter().map(|reason| reason.name().to_owned()).collect();
    ensure!(lost == reasons, "lost: the page has {lost:?}, weir {reasons:?}");
    let known: BTreeSet<_> =
        Obtained::ALL.iter().map(|mode| mode.name()).chain(["replay", NO_ROUTE]).map(str::to_owned).collect();
    ensure!(modes == known, "modes: the page has {modes:?}, weir {known:?}");
    Ok(())
}
