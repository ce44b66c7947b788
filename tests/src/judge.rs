//! Judges a report without knowing the traffic: do its parts, totals, ledgers and sizes agree?
//!
//! So it can judge every report that a test sees: live, replayed, sampled, over several windows, with lost packets. It
//! reads JSON, as a collector does, and shares no code with the daemon.

use std::collections::HashSet;

use anyhow::{Result, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;

use crate::account;

mod lists;
mod sizes;
mod sums;

/// Judges each of these reports separately.
///
/// # Errors
///
/// All contradictions, one per line, each with its place in the report.
pub fn judge<'a>(reports: impl IntoIterator<Item = &'a Value>) -> Result<()> {
    // Packets of a late CPU are counted by size in a later report, when the CPU is read.
    let mut has_sizes = true;
    for report in reports {
        has_sizes &= report["self"]["late_cpus"].as_array().is_none_or(Vec::is_empty);
        let faults = faults(report, has_sizes);
        let id = if report["id"].is_null() { &report["reports"] } else { &report["id"] };
        ensure!(faults.is_empty(), "report {id} contradicts itself:\n{}", faults.join("\n"));
    }
    Ok(())
}

/// All contradictions in a report, or in a report of several windows (`weir.union/1`). Sizes are checked only if
/// `has_sizes`, which means that they are the sizes of the report's own packets.
pub fn faults(report: &Value, has_sizes: bool) -> Vec<String> {
    let mut faults = Faults::default();
    faults.walk("", report);
    let whole = sums::judge(report, &mut faults);
    if has_sizes {
        sizes::judge(report, &whole, &mut faults);
    }
    lists::judge(report, &whole, &mut faults);
    faults.0
}

/// The contradictions found so far.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn expect(&mut self, holds: bool, place: &str, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(format!("{place}: {}", what()));
        }
    }

    fn at_most(&mut self, place: &str, part: u64, whole: u64) {
        self.expect(part <= whole, place, || format!("{part} of {whole}"));
    }

    fn equal(&mut self, place: &str, stated: u64, due: u64) {
        self.expect(stated == due, place, || format!("{stated} should be {due}"));
    }

    /// Every estimate lies between its bounds, every share and every confidence between 0 and 1.
    fn walk(&mut self, place: &str, value: &Value) {
        const SHARES: [&str; 6] = ["confidence", "kept", "false_positive_rate", "fill", "normalized", "cache_hit_rate"];
        match value {
            Value::Object(fields) => {
                let number = |name: &str| fields.get(name).and_then(Value::as_f64);
                if let (Some(lower), Some(upper)) = (number("lower"), number("upper")) {
                    let estimate = number("value").unwrap_or(lower);
                    let is_between = lower <= estimate && estimate <= upper;
                    self.expect(is_between, place, || format!("{estimate} is not between {lower} and {upper}"));
                }
                for share in SHARES.iter().filter_map(|name| number(name)) {
                    self.expect((0.0..=1.0).contains(&share), place, || format!("{share} is no share"));
                }
                for (name, field) in fields {
                    self.walk(&format!("{place}.{name}"), field);
                }
            }
            Value::Array(elements) => {
                for (nth, element) in elements.iter().enumerate() {
                    self.walk(&format!("{place}[{nth}]"), element);
                }
            }
            _ => {}
        }
    }
}

/// A number with its bounds; a plain number is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Range {
    value: u64,
    lower: u64,
    upper: u64,
}

impl Range {
    const fn exact(value: u64) -> Self {
        Self { value, lower: value, upper: value }
    }

    fn read(value: &Value) -> Self {
        let number = |name: &str| value[name].as_u64().unwrap_or_default();
        value.as_u64().map_or_else(
            || Self { value: number("value"), lower: number("lower"), upper: number("upper") },
            Self::exact,
        )
    }
}

/// A number of packets and one of bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    packets: Range,
    bytes: Range,
}

impl Sums {
    fn read(value: &Value) -> Self {
        Self { packets: Range::read(&value["packets"]), bytes: Range::read(&value["bytes"]) }
    }

    /// The counted packets and bytes, and up to `beyond` more.
    fn at_least(counted: Tally, beyond: Tally) -> Self {
        let range = |counted, beyond| Range { value: counted, lower: counted, upper: counted + beyond };
        Self { packets: range(counted.packets, beyond.packets), bytes: range(counted.bytes, beyond.bytes) }
    }

    /// Each with its name.
    const fn each(self) -> [(&'static str, Range); 2] {
        [("packets", self.packets), ("bytes", self.bytes)]
    }
}

/// How many more packets and bytes an interface may have had than were counted.
fn beyond(interface: &Value) -> Tally {
    let more = |name: &str| {
        let range = Range::read(&interface["ledger"]["uncertain"][name]);
        range.upper - range.lower.min(range.upper)
    };
    Tally::new(more("packets"), more("bytes"))
}

/// The totals that the parts of a report belong to.
struct Whole {
    /// Every packet, counted once.
    once: Sums,
    /// Every packet, on each interface that carried it.
    each: Sums,
    /// True if some packets are counted on two interfaces.
    has_repeated: bool,
    /// Packets of unknown size, which a socket dropped or weir did not see.
    sizeless: u64,
    /// True if the counters of a CPU come later.
    is_late: bool,
}

/// The elements of a list; none if it is absent.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The key of a row, as it is printed.
fn key(row: &Value) -> String {
    let fields =
        row.as_object().into_iter().flatten().filter(|(name, _)| !weir_schema::NOT_KEY.contains(&name.as_str()));
    fields.map(|(name, value)| format!("{name}={value} ")).collect()
}

/// Checks that no printed key is listed twice.
fn judge_keys(place: &str, rows: &[Value], faults: &mut Faults) {
    let mut known = HashSet::new();
    for row in rows {
        let key = key(row);
        faults.expect(known.insert(key.clone()), place, || format!("{key}is listed twice"));
    }
}

#[cfg(test)]
mod tests;
