//! Random histories of observers, of which some reports are lost, repeated or explained. Every reader must find the
//! same ones missing.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_schema::{
    Content,
    arrivals::{Arrivals, Limits, Sent, Status},
};
use weir_sketch::hash::mix;

/// How many observers there are.
const OBSERVERS: u64 = 60;
/// Enough for all histories.
const ALL: Limits = Limits { runs: 100, pieces: 10_000, contents: 10_000 };

/// The reports of an observer that are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Gaps without an explanation: run, first and last number, status.
    pub gaps: BTreeSet<(String, u64, u64, String)>,
    /// How many reports tombstones explain.
    pub dropped: u64,
}

impl Missing {
    /// How many are missing without an explanation, except for those before the first one.
    pub fn unexplained(&self) -> u64 {
        let gaps = self.gaps.iter().filter(|(.., status)| status == "unexplained");
        gaps.map(|(_, first, last, _)| last - first + 1).sum()
    }
}

/// Reports and tombstones in the order of their arrival.
pub struct Histories {
    pub lines: Vec<String>,
    /// The missing reports, by observer.
    pub missing: BTreeMap<String, Missing>,
    /// The ids of two different reports or tombstones.
    pub contested: BTreeSet<String>,
    /// How many numbers of each observer these are.
    pub contested_numbers: BTreeMap<String, u64>,
    /// The runs of each observer that were not one after the other.
    pub clones: BTreeMap<String, BTreeSet<String>>,
    /// The ids that two reports which came name as the one before.
    named_twice: BTreeSet<String>,
}

impl Histories {
    pub fn new() -> Self {
        let (lines, missing, contested, contested_numbers, clones, named_twice) = Default::default();
        let mut all = Self { lines, missing, contested, contested_numbers, clones, named_twice };
        for nth in 0..OBSERVERS {
            all.observe(nth);
        }
        // Only tombstones came of these runs, and all have the same numbers.
        let silent = ["0000000c", "0000000a", "0000000b"].map(|boot_id| {
            let observer = json!({"id": "5a5a5a5a", "boot_id": boot_id});
            let tombstone = json!({
                "schema": "weir.tombstone/1", "id": format!("5a5a5a5a/{boot_id}/6-7"), "observer": observer,
                "first_seq": 6, "last_seq": 7, "reports": 2, "reason": "too_old",
            });
            tombstone.to_string()
        });
        all.add("5a5a5a5a".to_owned(), silent.into());
        all
    }

    /// All lines as a file.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Adds an observer with the history of this number.
    fn observe(&mut self, nth: u64) {
        let mut state = nth;
        let mut below = |below: u64| {
            state = mix(state);
            state % below
        };
        let (observer, mut lines) = (format!("{:08x}", mix(nth ^ 0xff) as u32), Vec::new());
        let (mut seq, mut previous, mut window) = (0, None::<String>, 0);
        let loss = [5, 30, 80][below(3) as usize];
        // Of some observers, a clone goes on from where a run began.
        let runs = 1 + below(6);
        let (cloned, mut original) = (if nth % 4 == 2 { below(runs) } else { runs }, None);
        for run in 0..=runs {
            if run == cloned {
                original = Some((seq, previous.clone(), window));
            }
            if run == runs {
                let Some(original) = original.take() else { break };
                (seq, previous, window) = original;
            }
            let boot_id = format!("{:08x}", mix(mix(nth) ^ run) as u32);
            // Sometimes the observer has lost its state.
            if nth % 2 == 1 && run > 0 && below(100) < 30 {
                (seq, previous) = (0, None);
            }
            let last_of_run = seq + 1 + below(10);
            while seq < last_of_run {
                (seq, window) = (seq + 1, window + 1);
                let id = format!("{observer}/{boot_id}/{seq}");
                let mut report = json!({
                    "schema": "weir.report/1", "id": id,
                    "observer": {"id": observer, "boot_id": boot_id, "seq": seq, "name": format!("edge-{nth}")},
                    "window": {"start": start(window), "end": start(window + 1), "seconds": 10},
                    "totals": {"packets": 1, "bytes": 60},
                });
                if let Some(previous) = previous.replace(id) {
                    report["previous"] = Value::String(previous);
                }
                let came = below(100) >= loss;
                for _ in 0..if came { 1 + u64::from(below(10) == 0) } else { 0 } {
                    lines.push((below(1 << 30), report.to_string()));
                }
                if came && below(100) < 4 {
                    self.contested.insert(format!("{observer}/{boot_id}/{seq}"));
                    report["observer"]["name"] = "a clone".into();
                    for _ in 0..1 + below(2) {
                        lines.push((below(1 << 30), report.to_string()));
                    }
                }
                if below(100) < if came { 5 } else { 40 } {
                    let (last, reason) =
                        (last_of_run.min(seq + below(3)), ["spool_full", "too_old"][below(2) as usize]);
                    let mut tombstone = json!({
                        "schema": "weir.tombstone/1", "id": format!("{observer}/{boot_id}/{seq}-{last}"),
                        "observer": {"id": observer, "boot_id": boot_id},
                        "first_seq": seq, "last_seq": last, "reports": last - seq + 1, "reason": reason,
                    });
                    lines.push((below(1 << 30), tombstone.to_string()));
                    if below(100) < 5 {
                        self.contested.insert(format!("{observer}/{boot_id}/{seq}-{last}"));
                        tombstone["reason"] = "damaged".into();
                        lines.push((below(1 << 30), tombstone.to_string()));
                    }
                }
            }
        }
        lines.sort();
        self.add(observer, lines.into_iter().map(|(_, line)| line).collect());
    }

    /// Adds what came of an observer.
    fn add(&mut self, observer: String, lines: Vec<String>) {
        let (missing, contested, clones) = expected(&observer, &lines);
        self.missing.insert(observer.clone(), missing);
        self.contested_numbers.insert(observer.clone(), contested);
        self.clones.insert(observer, clones);
        let mut after: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in &lines {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            if let (Some(previous), Some(id)) = (line["previous"].as_str(), line["id"].as_str()) {
                after.entry(previous.to_owned()).or_default().insert(id.to_owned());
            }
        }
        self.named_twice.extend(after.into_iter().filter(|(_, ids)| ids.len() > 1).map(|(previous, _)| previous));
        self.lines.extend(lines);
    }

    /// Checks that these rows, of all observers, are exactly the missing reports.
    pub fn check(&self, reader: &str, rows: &[Value]) -> Result<()> {
        let mut found: BTreeMap<&str, Missing> = BTreeMap::new();
        for row in rows {
            let text = |name: &str| row[name].as_str().with_context(|| format!("{reader}: {name} in {row}"));
            let number = |name: &str| row[name].as_u64().with_context(|| format!("{reader}: {name} in {row}"));
            let missing = found.entry(text("observer_id").or_else(|_| text("observer"))?).or_default();
            if text("status")? == "dropped" {
                missing.dropped += number("reports")?;
                continue;
            }
            let (first, last) =
                (number("first").or_else(|_| number("first_seq"))?, number("last").or_else(|_| number("last_seq"))?);
            ensure!(number("reports")? == last - first + 1, "{reader}: {row}");
            let is_new = missing.gaps.insert((text("boot_id")?.to_owned(), first, last, text("status")?.to_owned()));
            ensure!(is_new, "{reader}: twice: {row}");
        }
        for (observer, missing) in &self.missing {
            let found = found.get(&**observer).cloned().unwrap_or_default();
            ensure!(found == *missing, "{reader}, {observer}: {found:?} instead of {missing:?}");
        }
        Ok(())
    }
}

impl Histories {
    /// Checks that these are the ids that two reports name as the one before.
    pub fn check_named_twice(&self, reader: &str, ids: impl IntoIterator<Item = String>) -> Result<()> {
        let found: BTreeSet<String> = ids.into_iter().collect();
        ensure!(found == self.named_twice, "{reader}: {found:?} instead of {:?}", self.named_twice);
        ensure!(found.len() > 2, "this tests little");
        Ok(())
    }

    /// Checks that these are the contested ids.
    pub fn check_contested(&self, reader: &str, ids: impl IntoIterator<Item = String>) -> Result<()> {
        let found: BTreeSet<String> = ids.into_iter().collect();
        ensure!(found == self.contested, "{reader}: {found:?} instead of {:?}", self.contested);
        ensure!(found.len() > 10, "this tests little");
        Ok(())
    }
}

/// When a window begins.
fn start(window: u64) -> String {
    let seconds = 10 * window;
    format!("2026-11-20T{:02}:{:02}:{:02}.000000Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Returns the missing reports, the number of contested ids, and the runs of a clone, according to the arithmetic that
/// its own tests compare with the truth.
fn expected(observer: &str, lines: &[String]) -> (Missing, u64, BTreeSet<String>) {
    let mut arrivals = Arrivals::new(ALL);
    for line in lines {
        let content = Content::read(line).unwrap_or_default();
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        let text = |pointer: &str| line.pointer(pointer).and_then(Value::as_str);
        let number = |pointer: &str| line.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
        let boot_id = text("/observer/boot_id").unwrap_or_default();
        if let Some(reason) = text("/reason") {
            arrivals.tombstone(boot_id, number("/first_seq"), number("/last_seq"), reason);
        } else {
            let time = |pointer| text(pointer).unwrap_or_default().parse().unwrap_or_default();
            let (seq, start, end) = (number("/observer/seq"), time("/window/start"), time("/window/end"));
            arrivals.report(Sent { observer, boot_id, seq, previous: text("/previous"), content, start, end });
        }
    }
    let mut missing = Missing::default();
    for gap in arrivals.gaps() {
        let status = match gap.status {
            Status::Dropped => {
                missing.dropped += gap.reports();
                continue;
            }
            Status::Unexplained => "unexplained",
            Status::BeforeFirst => "before_first",
        };
        missing.gaps.insert((gap.boot_id, gap.first, gap.last, status.to_owned()));
    }
    let clones = arrivals.twins().into_iter().map(|twin| twin.boot_id).collect();
    (missing, arrivals.missing().contested, clones)
}
