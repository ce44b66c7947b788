//! Rows of lists and their totals.

use serde_json::Value;
use weir_schema::lists;

use super::{Faults, Range, Sums, Whole, account, judge_keys, list};

pub(super) fn judge(report: &Value, whole: &Whole, faults: &mut Faults) {
    for name in ["top", "top_by_packets"] {
        let top = &report[name];
        directions(&format!(".{name}.hosts"), list(&top["hosts"]), faults);
        // Each packet is in one row only of a list that can be added up, except for hosts.
        for list_name in lists::FIELDS.iter().map(|(list, _)| list.name()) {
            let place = format!(".{name}.{list_name}");
            // Both ends of a packet may be hosts.
            let kind = if list_name == "hosts" { Kind::Shared } else { Kind::Disjoint };
            sums(&place, list(&top[list_name]), whole.once, kind, faults);
            ordered(&place, list(&top[list_name]), top["by"].as_str().unwrap_or_default(), report, faults);
        }
        for (prefixes, members) in [("source_prefixes", "sources"), ("destination_prefixes", "destinations")] {
            let place = format!(".{name}.{prefixes}");
            sums(&place, list(&top[prefixes]), whole.once, Kind::Disjoint, faults);
            beyond(&place, list(&top[prefixes]), list(&top[members]).len() as u64, top, faults);
        }
    }
    for view in list(&report["views"]) {
        self::view(view, report, whole, faults);
    }
}

/// Tells if one packet may count in several rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Disjoint,
    /// A packet counts for both of its hosts.
    Shared,
}

/// Checks that no row exceeds its total, and also not the sum of the rows if each packet is in only one row.
fn sums(place: &str, rows: &[Value], whole: Sums, kind: Kind, faults: &mut Faults) {
    judge_keys(place, rows, faults);
    for (name, whole) in whole.each() {
        let parts: Vec<_> = rows.iter().map(|row| Range::read(&row[name])).collect();
        for (nth, part) in parts.iter().enumerate() {
            faults.at_most(&format!("{place}[{nth}].{name}.value"), part.value, whole.value);
            faults.at_most(&format!("{place}[{nth}].{name}.lower"), part.lower, whole.lower);
            faults.at_most(&format!("{place}[{nth}].{name}.upper"), part.upper, whole.upper);
        }
        if kind == Kind::Disjoint {
            let sum = |of: fn(&Range) -> u64| parts.iter().map(of).fold(0_u64, u64::saturating_add);
            faults.at_most(&format!("{place}, {name}, all values"), sum(|part| part.value), whole.value);
            faults.at_most(&format!("{place}, {name}, all lower bounds"), sum(|part| part.lower), whole.lower);
        }
    }
}

/// Checks that both directions of each host add up to its row, and that no bound of one is beyond it.
fn directions(place: &str, rows: &[Value], faults: &mut Faults) {
    for (nth, row) in rows.iter().enumerate() {
        let [whole, down, up] = [row, &row["down"], &row["up"]].map(Sums::read);
        for (((name, whole), (_, down)), (_, up)) in whole.each().into_iter().zip(down.each()).zip(up.each()) {
            let place = format!("{place}[{nth}], {name} of both directions");
            faults.at_most(&place, down.value.saturating_add(up.value), whole.value);
            faults.at_most(&place, down.upper, whole.upper);
            faults.at_most(&place, up.upper, whole.upper);
        }
    }
}

/// Checks that rows are ranked from 1, the largest first. In a report of several windows, the lower bound decides.
fn ordered(place: &str, rows: &[Value], by: &str, report: &Value, faults: &mut Faults) {
    let is_union = report["schema"] == "weir.union/1";
    let amount = |row: &Value| {
        let range = Range::read(&row[by]);
        if is_union { range.lower } else { range.value }
    };
    faults.expect(rows.is_sorted_by(|one, other| amount(one) >= amount(other)), place, || "is not in order".to_owned());
    for (rank, row) in (1_u64..).zip(rows) {
        faults.equal(&format!("{place}, rank"), row["rank"].as_u64().unwrap_or_default(), rank);
    }
}

/// Checks that the part of a prefix beyond its members is at most its whole.
fn beyond(place: &str, rows: &[Value], listed: u64, top: &Value, faults: &mut Faults) {
    let mut members = 0;
    for (nth, row) in rows.iter().enumerate() {
        let (all, beyond) = (Sums::read(row), Sums::read(&row["beyond"]));
        for ((name, all), (_, beyond)) in all.each().into_iter().zip(beyond.each()) {
            let place = format!("{place}[{nth}].beyond.{name}");
            faults.at_most(&place, beyond.value, all.value);
            faults.at_most(&place, beyond.lower, all.lower);
            faults.at_most(&place, beyond.upper, all.upper);
        }
        members += row["members"].as_u64().unwrap_or_default();
    }
    faults.at_most(&format!("{place}, members"), members, listed);
    let by = top["by"].as_str().unwrap_or_default();
    let amount = |row: &Value| Range::read(&row["beyond"][by]).value;
    faults.expect(rows.is_sorted_by(|one, other| amount(one) >= amount(other)), place, || "is not in order".to_owned());
}

fn view(view: &Value, report: &Value, whole: &Whole, faults: &mut Faults) {
    let place = format!(".views[{}]", view["name"]);
    let all = if view["counted"] == "once" { whole.once } else { whole.each };
    let shares = list(&view["by"]).iter().filter_map(Value::as_str).any(|field| field.starts_with("host"));
    let kind = if shares { Kind::Shared } else { Kind::Disjoint };
    table(&place, view, view, all, kind, report, whole, faults);
    for part in list(&view["tables"]) {
        let place = format!("{place}, {} {}", part["interface"], part["direction"]);
        table(&place, view, part, of_interface(report, part, all), kind, report, whole, faults);
    }
    if let (Some(bits), Some(keys)) = (view["entropy"]["bits"]["upper"].as_f64(), view["entropy"]["keys"].as_object()) {
        let most = keys["upper"].as_f64().unwrap_or_default().max(1.0).log2();
        faults.expect(bits <= most + 1e-5, &format!("{place}.entropy"), || format!("{bits} bits, and {most} at most"));
    }
}

/// The traffic of an interface, if it is known.
fn of_interface(report: &Value, table: &Value, all: Sums) -> Sums {
    let is_same = |one: &&Value| one["name"] == table["interface"] && one["direction"] == table["direction"];
    let mut found = list(&report["interfaces"]).iter().filter(is_same);
    let of = |interface: &Value| {
        let seen = account::tally(&interface["ledger"]["seen"]).ok()?;
        Some(Sums::at_least(seen, super::beyond(interface)))
    };
    match (found.next().and_then(of), found.next()) {
        (Some(seen), None) => seen,
        _ => all,
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of one sentence")]
fn table(
    place: &str,
    view: &Value,
    table: &Value,
    all: Sums,
    kind: Kind,
    report: &Value,
    whole: &Whole,
    faults: &mut Faults,
) {
    let (rows, total) = (list(&table["rows"]), &table["total"]);
    if !total.is_null() {
        let stated = Sums::read(total);
        for ((name, all), (_, stated)) in all.each().into_iter().zip(stated.each()) {
            let place = format!("{place}.total.{name}");
            faults.at_most(&place, stated.upper, all.upper);
        }
        sums(place, rows, stated, kind, faults);
        ordered(place, rows, if view["measure"] == "packets" { "packets" } else { "bytes" }, report, faults);
        return;
    }
    judge_keys(place, rows, faults);
    for (nth, row) in rows.iter().enumerate().filter(|_| !whole.is_late) {
        // A packet belongs to one flow and has one value in each field, but it has two hosts.
        let most = all.packets.value.saturating_mul(2);
        for name in ["flows", "new_flows", "distinct"].iter().filter(|name| !row[**name].is_null()) {
            faults.at_most(&format!("{place}[{nth}].{name}"), Range::read(&row[*name]).upper, most);
        }
    }
}
