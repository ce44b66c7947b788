//! `HyperLogLog` as the package sees it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_sketch::{
    HyperLogLog,
    datasketches::{PUBLIC, PublicHash, hll},
    hash::{Key, KeyedHash},
};

use crate::peer;

/// `peer.py` joins each sketch with these.
const JOINED: std::ops::Range<u64> = 1_000..4_000;

/// The hash is fixed, so no estimate depends on chance, and the result is always the same.
pub fn the_package_reads_ours() -> Result<()> {
    let mut images = BTreeMap::new();
    let mut truths = Vec::new();
    for precision in [4, 8, 10, 12, 14, 18] {
        for count in [0, 1, 10, 900, 3_000, 50_000] {
            let mut sketch = HyperLogLog::with_precision(precision, PUBLIC).expect("the settings are allowed");
            for n in 0..count {
                sketch.insert(PublicHash::of_integer(n).for_precision(precision));
            }
            let name = format!("hll-lgk-{precision}-items-0-to-{count}.sk");
            images.insert(name.clone(), hll::write(&sketch));
            truths.push((name, sketch, count));
        }
    }
    let said = peer::said(&images)?;
    for (name, sketch, count) in truths {
        let said = PeerEstimate(&said[&name]);
        ensure!(said.number("lg_k")? == f64::from(sketch.precision()), "{name}: lg k");
        ensure!(said.0["is_empty"] == Value::Bool(count == 0), "{name}: is empty");
        said.expect_about("estimate", count, &sketch)?;
        ensure!(said.number("alone_in_a_union")? == said.number("estimate")?, "{name}: alone in a union");
        let bounds = said.number("lower")?..=said.number("upper")?;
        ensure!(bounds.contains(&(count as f64)), "{name}: {count} is not within {bounds:?}");
        let joined = JOINED.end.max(count) - JOINED.start + JOINED.start.min(count);
        said.expect_about("joined", joined, &sketch)?;
    }
    Ok(())
}

/// The package can count a sketch with a secret key, and join it with others of the same key.
pub fn the_package_reads_keyed_ones() -> Result<()> {
    const COUNT: u64 = 20_000;
    let key = Key([8, 9]);
    let hash = KeyedHash::new(key);
    let mut sketch = HyperLogLog::with_precision(12, key.id()).expect("the settings are allowed");
    for n in 0..COUNT {
        sketch.insert(hash.of(&n));
    }
    let image = hll::write(&sketch);
    ensure!(hll::read(&image, key.id())? == sketch);
    let said = peer::said(&BTreeMap::from([("hll-keyed.sk".to_owned(), image)]))?;
    PeerEstimate(&said["hll-keyed.sk"]).expect_about("estimate", COUNT, &sketch)
}

/// Exports of routers with different errors, of few and of many values. The package merges them to the same registers
/// as weir, in any order.
pub fn the_package_merges_exports_in_any_order() -> Result<()> {
    let key = Key([8, 9]);
    let hash = KeyedHash::new(key);
    let routers = [(12, 0..50_000), (14, 40_000..40_003), (16, 45_000..95_000), (13, 7..7), (18, 0..2_000_u64)];
    let mut all = HyperLogLog::with_precision(12, key.id()).expect("the settings are allowed");
    let mut images = Vec::new();
    for (precision, values) in routers {
        let mut sketch = HyperLogLog::with_precision(precision, key.id()).expect("the settings are allowed");
        for value in values {
            sketch.insert(hash.of(&value));
        }
        let folded = sketch.folded(12);
        all.merge(&folded)?;
        images.push(hll::write_registers(&folded));
    }
    ensure!(all.bounds().lower <= 95_000 && 95_000 <= all.bounds().upper, "{:?}", all.bounds());
    let expected: String = hll::write_registers(&all)[40..40 + 4096].iter().map(|rank| format!("{rank:02x}")).collect();
    let united = peer::united(&images)?;
    ensure!(united.len() == 120 * 5, "{} unions", united.len());
    ensure!(united.iter().all(|registers| *registers == expected), "a union has other registers");
    Ok(())
}

struct PeerEstimate<'a>(&'a Value);

impl PeerEstimate<'_> {
    fn number(&self, field: &str) -> Result<f64> {
        self.0[field].as_f64().with_context(|| format!("{field} is not a number in {}", self.0))
    }

    /// The margin is four standard errors plus one, because the package's estimate of a few items is coarse.
    fn expect_about(&self, field: &str, truth: u64, sketch: &HyperLogLog) -> Result<()> {
        let (number, truth) = (self.number(field)?, truth as f64);
        let margin = 4.0 * sketch.relative_error() * truth + 1.0;
        ensure!((number - truth).abs() <= margin, "{field} is not {truth} in {}", self.0);
        Ok(())
    }
}
