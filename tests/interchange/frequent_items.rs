//! Frequent items as the package sees them.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weir_sketch::{Estimate, datasketches::FrequentItems};

use crate::peer;

/// Numbers of items: few, at both sides of the limit of the smallest table, and many.
const COUNTS: [u64; 5] = [0, 1, 12, 13, 3_000];
/// The weight of the whole stream.
const TOTAL: u64 = 1 << 40;
/// The distance between an item's bounds, and the maximum of an absent item.
const ERROR: u64 = 2;

pub fn the_package_reads_longs() -> Result<()> {
    let said = said("longs", |n| {
        FrequentItems::new(items(n).map(|(n, bounds)| (n as i64 - 3, bounds)), TOTAL, ERROR).write()
    })?;
    for (count, said) in COUNTS.into_iter().zip(said) {
        compare(&said, items(count).map(|(n, bounds)| json!([n as i64 - 3, bounds.lower, bounds.upper])))?;
    }
    Ok(())
}

pub fn the_package_reads_strings() -> Result<()> {
    let text = |n: u64| if n == 0 { String::new() } else { format!("192.0.2.1:{n} → ☃") };
    let said =
        said("strings", |n| FrequentItems::new(items(n).map(|(n, bounds)| (text(n), bounds)), TOTAL, ERROR).write())?;
    for (count, said) in COUNTS.into_iter().zip(said) {
        compare(&said, items(count).map(|(n, bounds)| json!([text(n), bounds.lower, bounds.upper])))?;
    }
    Ok(())
}

/// Items with bounds that are all [`ERROR`] apart.
fn items(count: u64) -> impl Iterator<Item = (u64, Estimate)> {
    (0..count).map(|n| (n, Estimate { value: n + 1 + ERROR, lower: n + 1, upper: n + 1 + ERROR }))
}

/// The package's answer about the image of each count.
fn said(kind: &str, image: impl Fn(u64) -> Vec<u8>) -> Result<Vec<Value>> {
    let name = |count| format!("{kind}-{count}.sk");
    let images: BTreeMap<_, _> = COUNTS.map(|count| (name(count), image(count))).into();
    let said = peer::said(&images)?;
    Ok(COUNTS.map(|count| said[&name(count)].clone()).into())
}

fn compare(said: &Value, items: impl Iterator<Item = Value>) -> Result<()> {
    ensure!(said["total"] == TOTAL && said["absent"] == ERROR, "not {TOTAL} in all, {ERROR} if absent: {said}");
    // The package gives the largest first; lower bounds are all different here.
    let mut expected: Vec<_> = items.collect();
    expected.reverse();
    ensure!(said["items"] == Value::Array(expected), "the items are not as written in {said}");
    Ok(())
}
