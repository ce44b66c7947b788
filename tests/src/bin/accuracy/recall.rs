//! Measures how often lists show the true ten: the largest of a million flows, and those of a million keys that touch
//! most items.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use weir_common::{
    flow::{Address, FlowKey, class},
    hash::FlowHashes,
    record::Record,
};
use weir_config::{
    Config,
    view::{Side, Standard, ViewKey},
};
use weir_measure::{
    answer::Answer,
    new_flows::FilterState,
    question::{Structure, Views},
    spreaders::Spreaders,
    summary::Summary,
};
use weir_sketch::hash::{Key, KeyedHash, mix};
use weir_tests::{
    oracle::{Dimension, Oracle},
    traffic::{Mix, Plan, Traffic},
};

use crate::{
    judge,
    run::Meter,
    tally::{STATED, Tallies},
    views::INTERFACES,
};

/// Rows of a list.
const TOP: usize = 10;
/// Flows, and keys that touch others.
const MANY: u32 = 1_000_000;
/// The exponent of Zipf's law, for the flows of packets and for the items of keys.
const ZIPF: f64 = 1.1;
/// Packets of a window.
const PACKETS: u64 = 500_000;
/// How many pairs of key and item are in a batch.
const TOGETHER: usize = 4_096;

/// Measures a window of a million flows with the default settings, and compares each of the five lists by bytes with
/// the oracle.
pub fn largest(seed: u64, found: &mut Tallies) -> Result<()> {
    let config = Config::default();
    let views = Views::built_in(&config.estimates, TOP);
    let mut meter = Meter::new(&config, &views, Key([seed, 0x746f_7031]), 1 + (seed % 2) as usize, []);
    let plan = Plan { seed, packets: PACKETS, flows: MANY, zipf: ZIPF, mix: Mix::plain(), ..Plan::default() };
    let mut oracle = Oracle::new();
    for (nth, packet) in Traffic::new(plan)?.enumerate() {
        oracle.add(&packet.truth);
        meter.measure(nth, &packet);
    }
    let mut measured = meter.close();
    let asked = FilterState::steadily(&measured.seen);
    let summary = Summary::merge(&mut measured.window, &views, INTERFACES as usize, asked, STATED)?;
    for (nth, dimension) in Dimension::ALL.into_iter().enumerate() {
        let truths = oracle.tallies(dimension);
        let mut largest: Vec<u64> = truths.values().map(|tally| tally.bytes).collect();
        ensure!(largest.len() > TOP, "there are only {} {}", largest.len(), dimension.name());
        // Keys of equal size may replace each other.
        let (_, tenth, _) = largest.select_nth_unstable_by_key(TOP - 1, |bytes| std::cmp::Reverse(*bytes));
        let listed = summary.views.get(nth).and_then(Answer::ranking).context("a list")?;
        let subject = |key: &ViewKey| judge::subject(&views, nth, key);
        let true_ones = listed.by_bytes.iter().filter(|row| {
            let truth = truths.get(&subject(&row.key));
            truth.is_some_and(|tally| tally.bytes >= *tenth)
        });
        found.ten(dimension.name(), true_ones.count().min(TOP) as u64);
    }
    Ok(())
}

/// The lists of floods and scans.
const SPREADS: [Standard; 3] =
    [Standard::SourcesPerDestination, Standard::DestinationsPerSource, Standard::PortsPerSource];

/// The numbers below `count`, each once, in random order: a Feistel network over all numbers with as many bits, without
/// those that are too large.
fn shuffled(count: u64, seed: u64) -> impl Iterator<Item = u64> {
    const ROUNDS: u64 = 4;
    let half = (u64::BITS - count.leading_zeros()).div_ceil(2);
    let low = (1 << half) - 1;
    let round = move |number: u64, round: u64| {
        let (left, right) = (number >> half, number & low);
        right << half | (left ^ mix(seed ^ round << 32 ^ right)) & low
    };
    (0..1 << (2 * half)).map(move |nth| (0..ROUNDS).fold(nth, round)).filter(move |number| *number < count)
}

/// Checks whether a list shows the ten keys that touch most items, of a million keys by Zipf's law; the smallest keys
/// touch one item. The list changes with the seed. Its sketch has its default size and the daemon's hashes. The items
/// of one key are all different, and all pairs come in random order.
pub fn spread(seed: u64, found: &mut Tallies) -> Result<()> {
    let standard = SPREADS[(seed % SPREADS.len() as u64) as usize];
    let views: Arc<Views> = Views::built_in(&Config::default().estimates, TOP);
    let question = &views.questions[views.standard(standard).context("a standard view")?];
    let (by, of) = (&question.by, question.of.as_ref().context("what is distinct")?);
    let Structure::Spread { pairs, smallest, held, error } = question.structure else {
        anyhow::bail!("{} is not answered by a spread sketch", standard.name())
    };
    let key = Key([seed, 0x7370_7265]);
    let hash = KeyedHash::new(key);
    let mut sketch = Spreaders::new(pairs, smallest, (held, error), key.id());
    // There are only this many ports.
    let most = if standard == Standard::PortsPerSource { f64::from(u16::MAX) } else { f64::from(MANY).powf(ZIPF) };
    let touched = |rank: u32| (most * f64::from(rank).powf(-ZIPF)).round().max(1.0) as u64;
    let record = |rank: u32, nth: u64| {
        let one = Address([mix(seed ^ u64::from(rank) << 32), u64::from(rank)]);
        let other = Address([mix(seed ^ u64::from(rank)), nth]);
        let (src, dst) = if standard == Standard::SourcesPerDestination { (other, one) } else { (one, other) };
        let key = FlowKey::new(src, dst, 6, class::V6).with_ports(1, (nth + 1) as u16);
        Record { key, packets: 1, bytes: 60, sampling: 1, ..Record::default() }
    };
    // The touches of key n are numbered from `ends[n - 1]` up to `ends[n]`.
    let ends: Vec<u64> = (1..=MANY)
        .scan(0, |end, rank| {
            Some({
                *end += touched(rank);
                *end
            })
        })
        .collect();
    let all = ends.last().copied().unwrap_or_default();
    let (mut keys, mut key_hashes, mut item_hashes) = (Vec::new(), Vec::new(), Vec::new());
    for number in shuffled(all, seed) {
        let rank = 1 + ends.partition_point(|end| *end <= number) as u32;
        let record = record(rank, ends[rank as usize - 1] - 1 - number);
        let hashes = FlowHashes::new(&hash, &record.key);
        let key = by.key(&record, Side::Src, views.facts());
        key_hashes.push(by.hash(&hash, &key, &hashes));
        item_hashes.push(of.hash(&hash, &of.key(&record, Side::Src, views.facts()), &hashes));
        keys.push(key);
        if keys.len() == TOGETHER {
            sketch.insert_batch(&key_hashes, &item_hashes, |nth| keys[nth]);
            keys.clear();
            key_hashes.clear();
            item_hashes.clear();
        }
    }
    sketch.insert_batch(&key_hashes, &item_hashes, |nth| keys[nth]);
    let listed = sketch.top(TOP);
    let is_listed = |rank: u32| {
        let key = by.key(&record(rank, 0), Side::Src, views.facts());
        listed.iter().any(|spreader| spreader.key == key)
    };
    found.ten(standard.name(), (1..=TOP as u32).filter(|rank| is_listed(*rank)).count() as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once_and_in_no_order() {
        for count in [1, 2, 1_000, 65_536, 100_000] {
            let mut numbers: Vec<u64> = shuffled(count, 7).collect();
            let in_order = numbers.is_sorted();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..count), "{count}");
            assert!(count < 10 || !in_order, "{count}");
        }
    }
}
