//! Merges rows of a list whose keys have become equal, because masking has removed what distinguished them.
//!
//! Counts and their bounds are added. Numbers of distinct values (`distinct`) cannot be added: two addresses of a
//! network may have values in common. The merged number is at least the larger of the two, and at most their sum.
//!
//! A masked key stands for a network, and a list has only some of its addresses. So the upper bound of its row must have
//! room for the addresses without a row ([`widen`]).

use std::{cmp::Reverse, collections::HashMap};

use serde_json::{Map, Value};

/// Marks an object whose key was masked while a report is being masked. No field of a report has this name.
pub(super) const CUT: &str = "\0cut";
/// Fields of a row that are not part of its key.
const MEASURED: [&str; 12] =
    ["rank", "packets", "bytes", "flows", "new_flows", "distinct", "beyond", "members", "value", "lower", "upper", CUT];
/// Fields that are added; those of `beyond` are two of them.
const ADDED: [&str; 4] = ["packets", "bytes", "flows", "new_flows"];

/// Merges rows in every list of this value, wherever it is.
pub(super) fn merge_all(value: &mut Value) {
    match value {
        Value::Array(values) => {
            if values.iter().all(is_row) {
                merge(values);
            }
            for value in values {
                merge_all(value);
            }
        }
        Value::Object(fields) => {
            for value in fields.values_mut() {
                merge_all(value);
            }
            let total = fields.get("total").cloned().unwrap_or_default();
            let is_complete = fields.get("unlisted").is_some_and(|most| *most == 0);
            if let Some(rows) = fields.get_mut("rows") {
                for name in ["packets", "bytes"] {
                    let most = total[name]["upper"].as_u64();
                    limit(rows, name, most);
                    if !is_complete {
                        widen(rows, name, most);
                    }
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether it is a row: it has something measured, with bounds, and a key beside it.
fn is_row(value: &Value) -> bool {
    let Value::Object(fields) = value else { return false };
    let has_bounds = |value: &Value| value.get("lower").is_some() && value.get("value").is_some();
    let is_measured = has_bounds(value) || MEASURED.iter().any(|name| fields.get(*name).is_some_and(has_bounds));
    is_measured && fields.keys().any(|name| !MEASURED.contains(&name.as_str()))
}

fn merge(rows: &mut Vec<Value>) {
    let order = order(rows);
    let mut places = HashMap::new();
    let mut merged: Vec<Value> = Vec::new();
    for row in rows.iter() {
        let place = *places.entry(key(row)).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(known) => add(known, row),
            None => merged.push(row.clone()),
        }
    }
    if merged.len() < rows.len() {
        sort(&mut merged, order);
        *rows = merged;
    }
}

/// The key of a row, as text.
fn key(row: &Value) -> String {
    let fields = row.as_object().into_iter().flatten().filter(|(name, _)| !MEASURED.contains(&name.as_str()));
    let key: Map<String, Value> = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    Value::Object(key).to_string()
}

fn add(row: &mut Value, other: &Value) {
    let (Some(row), Some(other)) = (row.as_object_mut(), other.as_object()) else { return };
    for (name, value) in row.iter_mut() {
        let Some(other) = other.get(name) else { continue };
        match name.as_str() {
            "beyond" => add(value, other),
            "members" => *value = sum(value, other),
            "distinct" => unite(value, other),
            name if ADDED.contains(&name) => add_estimates(value, other),
            _ => {}
        }
    }
    // Evidence of an alert: a number with bounds. Whether it is a count is not known here, so it is not added.
    if row.contains_key("lower") && row.contains_key("value") {
        let mut evidence = Value::Object(std::mem::take(row));
        unite(&mut evidence, &Value::Object(other.clone()));
        if let Value::Object(fields) = evidence {
            *row = fields;
        }
    }
}

/// Adds values, bounds and sampled counts.
fn add_estimates(one: &mut Value, other: &Value) {
    for name in ["value", "lower", "upper", "sampled"] {
        if let (Some(a), Some(b)) = (one.get(name), other.get(name)) {
            one[name] = sum(a, b);
        }
    }
}

/// Bounds of the union of two sets that may overlap.
fn unite(one: &mut Value, other: &Value) {
    for (name, together) in [("value", larger as fn(&Value, &Value) -> Value), ("lower", larger), ("upper", sum)] {
        if let (Some(a), Some(b)) = (one.get(name), other.get(name)) {
            one[name] = together(a, b);
        }
    }
}

fn sum(one: &Value, other: &Value) -> Value {
    match (one.as_u64(), other.as_u64()) {
        (Some(one), Some(other)) => one.saturating_add(other).into(),
        _ => (one.as_f64().unwrap_or_default() + other.as_f64().unwrap_or_default()).into(),
    }
}

fn larger(one: &Value, other: &Value) -> Value {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    if number(one) < number(other) { other.clone() } else { one.clone() }
}

/// The field by which the rows of a list are sorted, largest first; `None` if there is none. If several fields fit, as
/// for a single row, it is the first of them.
fn order(rows: &[Value]) -> Option<&'static str> {
    let falls = |name: &&str| {
        rows.first().is_some_and(|row| size(row, name).is_some())
            && rows.is_sorted_by(|one, next| size(one, name) >= size(next, name))
    };
    ["distinct", "new_flows", "flows", "bytes", "packets"].into_iter().find(falls)
}

fn size(row: &Value, name: &str) -> Option<u64> {
    row.get("beyond").unwrap_or(row)[name]["value"].as_u64()
}

/// Sorts rows, and updates their ranks.
fn sort(rows: &mut [Value], order: Option<&str>) {
    if let Some(by) = order {
        rows.sort_by_key(|row| Reverse(size(row, by)));
    }
    for (nth, row) in rows.iter_mut().enumerate() {
        if row.get("rank").is_some() {
            row["rank"] = (nth + 1).into();
        }
    }
}

/// Widens the upper bounds of rows with a masked key: whatever the lower bounds of the rows leave of the total may belong
/// to addresses of that network without a row.
pub(super) fn widen(rows: &mut Value, name: &str, total: Option<u64>) {
    let (Some(total), Some(rows)) = (total, rows.as_array_mut()) else { return };
    let lower = |row: &Value| row.get("beyond").unwrap_or(row)[name]["lower"].as_u64();
    let rest = rows.iter().filter_map(lower).fold(total, u64::saturating_sub);
    for row in rows.iter_mut().filter(|row| row.get(CUT).is_some()) {
        // A packet is in the rows of both of its hosts.
        let room = if row.get("host").is_some() { Some(total) } else { lower(row).map(|lower| lower + rest) };
        let row = if row.get("beyond").is_some() { &mut row["beyond"] } else { row };
        if let (Some(upper), Some(room)) = (row[name]["upper"].as_u64(), room) {
            row[name]["upper"] = upper.max(room).into();
        }
    }
}

/// Raises the upper bounds of a count of distinct things in rows with a masked key to `most`.
pub(super) fn widen_distinct(rows: &mut Value, name: &str, most: u64) {
    for row in rows.as_array_mut().into_iter().flatten().filter(|row| row.get(CUT).is_some()) {
        if let Some(upper) = row[name]["upper"].as_u64() {
            row[name]["upper"] = upper.max(most).into();
        }
    }
}

/// Removes the marks of masked keys.
pub(super) fn forget_cuts(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(forget_cuts),
        Value::Object(fields) => {
            fields.remove(CUT);
            fields.values_mut().for_each(forget_cuts);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Caps the counts and bounds of each row: none exceeds the upper bound of its table's total.
pub(super) fn limit(rows: &mut Value, name: &str, upper: Option<u64>) {
    let Some(most) = upper else { return };
    for row in rows.as_array_mut().into_iter().flatten() {
        for part in ["value", "lower", "upper"] {
            if row[name][part].as_u64().is_some_and(|count| count > most) {
                row[name][part] = most.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn estimate(value: u64, lower: u64, upper: u64) -> Value {
        json!({"value": value, "lower": lower, "upper": upper})
    }

    #[test]
    fn rows_of_one_key_are_added_and_ranked_anew() {
        let row = |rank: u64, source: &str, packets: u64, bytes: u64| {
            json!({"rank": rank, "src_ip": source, "packets": estimate(packets, packets, packets),
                   "bytes": estimate(bytes, bytes - 1, bytes + 2)})
        };
        let by_bytes = [
            row(1, "10.0.1.0", 1, 50),
            row(2, "10.0.0.0", 9, 40),
            row(3, "10.0.2.0", 1, 30),
            row(4, "10.0.0.0", 1, 20),
        ];
        let mut report = json!({"top": {"sources": by_bytes}, "other": [1, 2], "rows": []});
        merge_all(&mut report);
        let expected = json!([
            {"rank": 1, "src_ip": "10.0.0.0", "packets": estimate(10, 10, 10), "bytes": estimate(60, 58, 64)},
            row(2, "10.0.1.0", 1, 50),
            row(3, "10.0.2.0", 1, 30),
        ]);
        assert_eq!(report["top"]["sources"], expected);
        let by_packets = [row(1, "a", 9, 5), row(2, "b", 8, 70), row(3, "c", 3, 6), row(4, "c", 2, 6)];
        let mut list = json!(by_packets);
        merge_all(&mut list);
        let sources: Vec<_> = list.as_array().unwrap().iter().map(|row| row["src_ip"].as_str().unwrap()).collect();
        assert_eq!(sources, ["a", "b", "c"], "this list is by packets");
    }

    #[test]
    fn distinct_counts_of_merged_rows_may_overlap() {
        let row = |rank: u64, distinct: Value| json!({"rank": rank, "dst_ip": "10.0.0.0", "distinct": distinct});
        let mut rows = json!([row(1, estimate(90, 80, 100)), row(2, estimate(70, 65, 75))]);
        merge_all(&mut rows);
        assert_eq!(rows, json!([row(1, estimate(90, 80, 175))]));
        let evidence =
            |value, lower, upper| json!({"dst_ip": "10.0.0.0", "value": value, "lower": lower, "upper": upper});
        let mut rows = json!([evidence(9.5, 9.0, 10.0), evidence(8.0, 7.5, 8.5)]);
        merge_all(&mut rows);
        assert_eq!(rows, json!([evidence(9.5, 9.0, 18.5)]));
    }

    #[test]
    fn a_row_has_no_more_than_its_table() {
        let mut rows = json!([{"rank": 1, "src_ip": "a", "packets": estimate(10, 8, 20)}]);
        limit(&mut rows, "packets", Some(12));
        assert_eq!(rows[0]["packets"], estimate(10, 8, 12));
    }
}
