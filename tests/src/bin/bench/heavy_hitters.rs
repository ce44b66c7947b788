//! Compares the candidate buckets of a list, which have a count-min, to a table of candidates alone: how far bounds are
//! apart, and which of the largest keys are found, by one worker and after merging ten.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use weir_common::ledger::Tally;
use weir_measure::heavy_hitters::{HeavyHitters, KeyEstimate};
use weir_sketch::{
    TopK,
    candidate_buckets::Packed,
    hash::{Key, KeyedHash, mix},
};

use crate::table::{self, thousands};

const RECORDS: u64 = 2_000_000;
/// Flows, by Zipf's law with exponent 1.1.
const FLOWS: u64 = 1 << 20;
const SHARDS: usize = 10;
const TOP: usize = 100;
/// The error of the candidates alone, as configured by default.
const ERROR: f64 = 0.000_5;

/// A key as large as those of views.
type Wide = [u64; 5];

const KEY: Key = Key([7, 11]);

fn hash_of(key: &Wide) -> u64 {
    KeyedHash::new(KEY).words(*key)
}

/// The structures that are compared.
trait Table {
    fn add(&mut self, hashes: &[u64], keys: &[Wide], tallies: &[Tally]);
    fn merge(&mut self, others: &[&Self]) -> Result<()>;
    fn look_up(&self, hash: u64, key: &Wide) -> KeyEstimate<Wide>;
    fn keys(&self) -> Vec<KeyEstimate<Wide>>;
    fn bytes(&self) -> usize;
}

impl Table for TopK<Wide, Tally> {
    fn add(&mut self, hashes: &[u64], keys: &[Wide], tallies: &[Tally]) {
        let mut parts = keys.iter().zip(tallies).map(|(key, tally)| (*key, *tally));
        self.add_batch((hashes, |hash| *hash), (hashes, |_| parts.next().unwrap_or_default()));
    }
    fn merge(&mut self, others: &[&Self]) -> Result<()> {
        others.iter().try_for_each(|other| Ok(Self::merge(self, other)?))
    }
    fn look_up(&self, hash: u64, key: &Wide) -> KeyEstimate<Wide> {
        let bounds = self.bounds(hash, key);
        KeyEstimate { key: *key, value: bounds.upper, lower: bounds.lower, upper: bounds.upper }
    }
    fn keys(&self) -> Vec<KeyEstimate<Wide>> {
        let held = |held: weir_sketch::Candidate<Wide, Tally>| KeyEstimate {
            key: held.key,
            value: held.value(),
            lower: held.lower(),
            upper: held.upper(),
        };
        self.iter().map(held).collect()
    }
    fn bytes(&self) -> usize {
        self.memory_bytes()
    }
}

impl Table for HeavyHitters<Wide> {
    fn add(&mut self, hashes: &[u64], keys: &[Wide], tallies: &[Tally]) {
        let packed: Vec<_> = tallies.iter().copied().map(Packed::from).collect();
        self.add_batch(hashes, &packed, |nth| keys[nth], &mut ());
    }
    fn merge(&mut self, others: &[&Self]) -> Result<()> {
        Ok(self.merge_all(others, hash_of, &mut ())?)
    }
    fn look_up(&self, hash: u64, key: &Wide) -> KeyEstimate<Wide> {
        Self::look_up(self, hash, key)
    }
    fn keys(&self) -> Vec<KeyEstimate<Wide>> {
        self.iter().collect()
    }
    fn bytes(&self) -> usize {
        self.memory_bytes()
    }
}

/// Measures and prints.
///
/// # Errors
///
/// A bound does not hold.
pub fn bench() -> Result<()> {
    let key = KEY;
    let mut rows = Vec::new();
    for shards in [1, SHARDS] {
        let alone = || TopK::with_error(ERROR, 1024, key.id()).expect("the settings are allowed");
        rows.push(row("candidates alone", shards, alone)?);
        rows.push(row("candidates and count-min", shards, || HeavyHitters::new(ERROR, 1024, key.id()))?);
    }
    table::write(
        [
            "structure",
            "workers",
            "KiB",
            "top 100 found",
            "width, top 10",
            "width, top 100",
            "excess, any key",
            "of which 99 %",
        ],
        &rows,
    )?;
    table::say(format!(
        "\n{} records of {} flows, Zipf 1.1, shared out among the workers. Widths are the mean distance of the bounds of\n\
         listed keys, in bytes per million bytes of all; the excess is what upper bounds of flows that are not listed have\n\
         too much, on average, and at most for 99 in 100. Every bound was checked, of every flow.",
        thousands(RECORDS),
        thousands(FLOWS),
    ))
}

fn row<T: Table>(name: &str, shards: usize, empty: impl Fn() -> T) -> Result<[String; 8]> {
    let hash = KeyedHash::new(KEY);
    let mut tables: Vec<T> = (0..shards).map(|_| empty()).collect();
    let mut truths: HashMap<u64, u64> = HashMap::new();
    let mut total = 0;
    for (nth, start) in (0..RECORDS).step_by(256).enumerate() {
        let flows: Vec<u64> = (start..RECORDS.min(start + 256)).map(|nth| crate::pipeline::zipf(mix(nth))).collect();
        let keys: Vec<Wide> = flows.iter().map(|flow| wide(*flow)).collect();
        let hashes: Vec<u64> = keys.iter().map(|key| hash.words(*key)).collect();
        let tallies: Vec<Tally> = (start..).zip(&flows).map(|(nth, _)| Tally::new(1, 60 + mix(!nth) % 1_400)).collect();
        for (flow, tally) in flows.iter().zip(&tallies) {
            *truths.entry(*flow).or_default() += tally.bytes;
            total += tally.bytes;
        }
        tables[nth % shards].add(&hashes, &keys, &tallies);
    }
    let (first, rest) = tables.split_at_mut(1);
    first[0].merge(&rest.iter().collect::<Vec<_>>())?;
    let table = &first[0];
    let mut largest: Vec<(u64, u64)> = truths.iter().map(|(flow, bytes)| (*bytes, *flow)).collect();
    largest.sort_unstable_by(|one, other| other.cmp(one));
    let mut listed = table.keys();
    listed.sort_unstable_by_key(|held| std::cmp::Reverse(held.value.bytes));
    let found = largest[..TOP].iter().filter(|(_, flow)| listed[..TOP].iter().any(|held| held.key == wide(*flow)));
    let width = |top: usize| {
        let widths = listed[..top].iter().map(|held| {
            let held = table.look_up(hash.words(held.key), &held.key);
            held.upper.bytes - held.lower.bytes
        });
        format!("{:.1}", widths.sum::<u64>() as f64 / top as f64 / total as f64 * 1e6)
    };
    let mut excesses = Vec::new();
    for (flow, truth) in &truths {
        let KeyEstimate { lower, upper, .. } = table.look_up(hash.words(wide(*flow)), &wide(*flow));
        ensure!(
            lower.bytes <= *truth && *truth <= upper.bytes,
            "{name}: flow {flow} has {truth}: {lower:?} to {upper:?}"
        );
        if lower.bytes == 0 {
            excesses.push(upper.bytes - truth);
        }
    }
    excesses.sort_unstable();
    let per_million = |bytes: f64| format!("{:.1}", bytes / total as f64 * 1e6);
    let mean = excesses.iter().sum::<u64>() as f64 / excesses.len().max(1) as f64;
    let most = excesses.get(excesses.len() * 99 / 100).copied().unwrap_or(0) as f64;
    Ok([
        name.to_owned(),
        shards.to_string(),
        (table.bytes() / 1024).to_string(),
        found.count().to_string(),
        width(10),
        width(TOP),
        per_million(mean),
        per_million(most),
    ])
}

const fn wide(flow: u64) -> Wide {
    [flow, 0, 0, 0, 0]
}
