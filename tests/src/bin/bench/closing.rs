//! The cost of the end of a window: the shards of two workers are merged into a summary, with 100 entries in each list.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use weir_common::{ledger::Tally, record::Record, size::size_class};
use weir_datapath::edge::Edge;
use weir_measure::{new_flows::FilterState, order::Closed, question::Views, shard::Shard, summary::Summary};
use weir_sketch::Seen;

use crate::{
    pipeline::{ESTIMATES, KEY, flow, zipf},
    table::{self, least_and_median},
};

const ROUNDS: usize = 9;
const WORKERS: u64 = 2;
const RECORDS: u64 = 1 << 17;
const BYTES: u64 = 1_000;
/// Entries of each list: the configurable maximum.
const TOP: usize = 100;

/// Measures and prints.
///
/// # Errors
///
/// A summary is wrong.
pub fn bench() -> Result<()> {
    let mut rows = Vec::new();
    for (name, rate) in [("every packet", 1), ("one packet in 10", 10), ("one packet in 1,000", 1_000)] {
        let rounds: Vec<f64> = (0..ROUNDS).map(|_| round(rate)).collect::<Result<_>>()?;
        let (least, median) = least_and_median(rounds);
        rows.push([name.to_owned(), format!("{least:.0}"), format!("{median:.0}")]);
    }
    table::say("\n")?;
    table::write(["end of a window that measured", "us, least", "us, median"], &rows)?;
    table::say(format!(
        "\nMicroseconds to merge {WORKERS} shards into a summary with {TOP} entries a list; {ROUNDS} rounds.\n\
         Checked after each round: each list is full and in order, and the bounds of its entries hold their values.\n"
    ))
}

fn round(rate: u16) -> Result<f64> {
    let seen = Seen::with_capacity(1_000_000, 0.001, KEY.id()).expect("the settings are allowed");
    let mut window: Vec<Closed> = (0..WORKERS).map(|worker| closed(worker, rate, &seen)).collect();
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let start = Instant::now();
    let plan = window[0].shard.plan().clone();
    let summary = Summary::merge(&mut window, &plan, 1, FilterState::steadily(&seen), 0.999)?;
    let microseconds = start.elapsed().as_secs_f64() * 1e6;
    let sources = &summary.views[1].ranking().context("a list of sources")?.by_packets;
    ensure!(sources.len() == TOP && sources.is_sorted_by(|one, next| one.packets.value >= next.packets.value));
    for ranked in sources {
        let weir_sketch::Estimate { value, lower, upper } = ranked.packets;
        ensure!(lower <= value && value <= upper, "{ranked:?}");
    }
    Ok(microseconds)
}

/// Makes the window of a worker.
fn closed(worker: u64, rate: u16, seen: &Seen) -> Closed {
    let mut shard = Box::new(Shard::new(&ESTIMATES, &Views::built_in(&ESTIMATES, TOP), KEY));
    let record = |nth| {
        let key = flow(zipf(weir_sketch::hash::mix(worker << 32 | nth)), false);
        Record { key, bytes: BYTES, packets: 1, sampling: rate, ..Record::default() }
    };
    shard.absorb(&(0..RECORDS).map(record).collect::<Vec<_>>(), seen);
    shard.settle(seen);
    let left_out = RECORDS * u64::from(rate - 1);
    let mut edge = Edge { sampling: (rate.into(), rate.into()), ..Edge::empty(1) };
    edge.counters[0].seen = Tally::new(RECORDS + left_out, (RECORDS + left_out) * BYTES);
    edge.counters[0].sampled_out = Tally::new(left_out, left_out * BYTES);
    edge.sizes[size_class(BYTES)] = RECORDS + left_out;
    Closed::new(shard, edge)
}
