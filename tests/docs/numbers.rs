//! The pages list every number that is exported or that rules can use, and no others.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use weir_config::{rule::catalogue::Catalogue, view::Standard};
use weir_schema::series::{Series, Target};

use crate::page::{Page, spans};

const OTLP: &str = "docs/collectors/otlp.md";
const ALERTS: &str = "docs/ALERTS.md";
/// The metrics that stand for a tombstone: they are of lost reports, not of a report.
const OF_TOMBSTONES: &str = "reports.lost";

#[test]
fn every_metric_of_otlp_is_explained() -> Result<()> {
    let mut explained = BTreeSet::new();
    for row in Page::read(OTLP)?.tables().into_iter().flatten().filter(|row| row.heading == "Metrics") {
        let mut last: Option<String> = None;
        for span in spans(row.cells()[0]) {
            // `.bytes` after `weir.interface.seen.packets` is short for a name with another last part.
            let name = match (span.strip_prefix("weir."), span.strip_prefix('.'), &last) {
                (Some(name), ..) => name.to_owned(),
                (None, Some(part), Some(last)) => {
                    let (kept, _) = last.rsplit_once('.').unwrap_or_default();
                    format!("{kept}.{part}").trim_start_matches('.').to_owned()
                }
                _ => continue,
            };
            last = Some(name.clone());
            explained.insert(name);
        }
    }
    let is_of_a_report = |name: &String| !name.starts_with(OF_TOMBSTONES) && !is_bound(name);
    let explained: BTreeSet<String> = explained.into_iter().filter(is_of_a_report).collect();
    let known: BTreeSet<String> = Series::all(Target::Otlp).map(|series| series.name.to_owned()).collect();
    let [missing, unknown] = [&known - &explained, &explained - &known];
    ensure!(missing.is_empty() && unknown.is_empty(), "{OTLP} lacks {missing:?}, and has unknown {unknown:?}");
    Ok(())
}

fn is_bound(name: &str) -> bool {
    [".lower", ".upper"].iter().any(|suffix| name.ends_with(suffix))
}

#[test]
fn every_number_of_rules_is_explained() -> Result<()> {
    let page = Page::read(ALERTS)?;
    let rows: Vec<_> = page.tables().into_iter().flatten().collect();
    let patterns: Vec<&str> = rows.iter().flat_map(|row| spans(row.cells()[0])).collect();
    let catalogue = Catalogue::new(Standard::ALL, &[]);
    for name in catalogue.names() {
        let is_of_it = |spelling: &&str| catalogue.find(spelling).is_some_and(|subject| subject.name == name);
        let mut spellings = catalogue.spellings().filter(is_of_it);
        let is_there = spellings.any(|name| patterns.iter().any(|pattern| is_explained_by(name, pattern)));
        ensure!(is_there, "{ALERTS} does not explain {name}");
    }
    // `LIST` and `VIEW` stand for names, which are in the cell beside them.
    let named: BTreeSet<&str> = rows.iter().flat_map(|row| row.cells()).flat_map(spans).collect();
    for standard in Standard::ALL {
        let name = standard.name();
        let is_there = named.iter().any(|span| span.split('.').next() == Some(name));
        ensure!(is_there, "{ALERTS} does not name {name}");
    }
    Ok(())
}

/// Returns true if the name has the parts of a pattern, in which capitals stand for any part.
fn is_explained_by(name: &str, pattern: &str) -> bool {
    let [name, pattern] = [name, pattern].map(|text| text.split('.').collect::<Vec<_>>());
    let is_any = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_uppercase());
    name.len() == pattern.len() && name.iter().zip(pattern).all(|(part, of)| *part == of || is_any(of))
}
