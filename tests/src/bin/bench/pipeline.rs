//! The cost of a record in a worker: a shard's sketches, as a whole and part by part.

use std::{collections::HashSet, hint::black_box, sync::Arc, time::Instant};

use anyhow::{Context, Result, ensure};
use weir_common::{
    flow::{Address, FlowKey, class},
    ledger::Tally,
    record::Record,
};
use weir_config::{
    Config, Estimates, History,
    view::{Side, Standard},
};
use weir_measure::{
    columns::{Item, TOGETHER, Transposed},
    heavy_hitters::KeyEstimate,
    question::{Views, sketch::ViewSketch},
    shard::Shard,
    unique::Unique,
};
use weir_sketch::{
    Seen, TopK,
    hash::{Key, KeyedHash, mix},
};

use crate::table::{self, least_and_median, thousands};

const ROUNDS: usize = 7;
const RECORDS: u64 = 1 << 19;
/// The records of a batch, as in a worker.
const BATCH: usize = 256;
/// The settings that weir has by default.
pub const ESTIMATES: Estimates = Estimates { unique_error: 0.005, top_error: 0.0005, top_candidates: 1024 };
/// Entries of a list.
pub const TOP: usize = 10;
pub const KEY: Key = Key([7, 11]);

/// The flows of the records.
struct Stream {
    name: &'static str,
    flow: fn(u64) -> FlowKey,
}

const STREAMS: [Stream; 4] = [
    Stream { name: "64 flows in turn", flow: |nth| flow(nth % 64, false) },
    Stream { name: "Zipf 1.1, 2^20 flows", flow: |nth| flow(zipf(mix(nth)), false) },
    Stream { name: "every record a new IPv4 flow", flow: |nth| flow(mix(nth), false) },
    Stream { name: "every record a new IPv6 flow", flow: |nth| flow(mix(nth), true) },
];

/// Flow `number`: a source and a destination of its own.
pub fn flow(number: u64, v6: bool) -> FlowKey {
    let address = |number: u64| match v6 {
        false => Address::from_v4_word(number as u32),
        true => Address([0x2001_0db8, number]),
    };
    let class = if v6 { class::V6 } else { 0 };
    FlowKey::new(address(number), address(mix(number)), 17, class).with_ports((number >> 32) as u16, number as u16)
}

/// A rank out of 2^20 with a probability proportional to rank^-1.1, by inversion of the integral; `random` is uniform.
pub fn zipf(random: u64) -> u64 {
    const LARGEST: f64 = (1u64 << 20) as f64;
    let uniform = (random >> 11) as f64 / (1u64 << 53) as f64;
    (1.0 + uniform * (LARGEST.powf(-0.1) - 1.0)).powf(-10.0) as u64
}

/// Measures and prints.
///
/// # Errors
///
/// A shard's answer is wrong.
pub fn bench() -> Result<()> {
    table::say(format!("{}\n", table::machine()?))?;
    let mut rows = Vec::new();
    for Stream { name, flow } in STREAMS {
        let records = records(flow);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(round(&records).with_context(|| format!("{name}: the shard is wrong"))?);
        }
        let median = |part: usize| least_and_median(rounds.iter().map(|round| round[part]).collect()).1;
        let [whole, alone, none] = [0, 1, 2].map(median);
        let part = |part: usize| format!("{:.0}", median(part) - none);
        rows.push([
            name.to_owned(),
            format!("{whole:.0}"),
            format!("{alone:.0}"),
            // The ratio of medians, not the median of ratios.
            format!("{:.2}", whole / alone),
            format!("{none:.0}"),
            part(3),
            part(4),
            part(5),
            part(6),
            part(7),
            part(8),
            format!("{:.0}", median(9) - median(3)),
            format!("{:.1}", whole - median(10)),
        ]);
    }
    table::write(
        [
            "records of",
            "whole shard",
            "candidates alone",
            "ratio",
            "no view",
            "five lists",
            "floods, scans",
            "tables",
            "talkers",
            "a user's view",
            "no match",
            "prefixes",
            "sample",
        ],
        &rows,
    )?;
    table::say(format!(
        "\nNanoseconds per record on one CPU: medians of {ROUNDS} rounds of {} records.\n\
         - whole shard: all standard views, unique counts, new flows, totals.\n\
         - candidates alone: tables of candidates instead of the lists, and no floods and scans; the ratio is to this.\n\
         - tables: IP versions, protocols and code points of each interface. Talkers: the largest pairs of each.\n\
         - no view: unique counts, new flows and totals. The columns after it have the additional time of these \
         views.\n\
         - prefixes: the additional time of the five lists if two of them feed the standard views of prefixes.\n\
         - sample: the part of the whole shard that draws the sample of records for the history.\n\
         - a user's view: bytes by src_ip/24. No match: the same where no record matches.\n\
         Checked after each round: totals were exact, and the bounds of unique counts, new flows and the first flow held.\n",
        thousands(RECORDS)
    ))?;
    standard_views()
}

/// Measures the cost of each standard view.
fn standard_views() -> Result<()> {
    let records = records(STREAMS[1].flow);
    let with = |views: &[Standard]| -> Result<f64> {
        let plan = plan(views, None)?;
        let rounds = (0..ROUNDS).map(|_| Ok(through(&plan, &records)?.0)).collect::<Result<_>>()?;
        Ok(least_and_median(rounds).1)
    };
    let none = with(&[])?;
    let mut rows = Vec::new();
    for view in Standard::ALL {
        // The cost of prefixes is the additional time of their list of addresses.
        let fed: Vec<_> = view.of_addresses().into_iter().collect();
        let all: Vec<_> = fed.iter().copied().chain([view]).collect();
        let without = if fed.is_empty() { none } else { with(&fed)? };
        let sketch = ViewSketch::new(&plan(&[view], None)?.questions[0], KEY.id(), TOGETHER);
        let kib = sketch.memory_bytes() as f64 / 1024.0;
        rows.push([view.name().to_owned(), format!("{:.0}", with(&all)? - without), format!("{kib:.0}")]);
    }
    table::write(["standard view", "ns a record", "KiB a worker"], &rows)?;
    table::say(
        "\nEach view alone, above a shard without views; prefixes above their list of addresses; records of Zipf 1.1.\n",
    )
}

fn records(flow: fn(u64) -> FlowKey) -> Vec<Record> {
    let record =
        |nth| Record { key: flow(nth), bytes: 100 + nth % 1_000, packets: 1, sampling: 1, ..Record::default() };
    (0..RECORDS).map(record).collect()
}

/// A plan of these standard views, and of a view of the user.
fn plan(standard: &[Standard], own: Option<&str>) -> Result<Arc<Views>> {
    planned(standard, own, History::default().sample)
}

/// The same with a sample of this many records.
fn planned(standard: &[Standard], own: Option<&str>, sample: usize) -> Result<Arc<Views>> {
    let history = Some(History { sample, ..History::default() });
    let mut config = Config { standard_views: standard.to_vec(), estimates: ESTIMATES, history, ..Config::default() };
    config.report.top = TOP;
    if let Some(own) = own {
        config.views.push(config.parse_view(own, "bench", "own")?);
    }
    // There are two directions, because a single one has no separate lists.
    Ok(Views::new(&config, 2)?)
}

const PARTS: usize = 11;

/// Runs a window's records through a shard with all views, and through shards with some views. Returns the nanoseconds
/// per record of each.
fn round(records: &[Record]) -> Result<[f64; PARTS]> {
    let (whole, mut shard, seen) = through(&plan(&Standard::ALL, None)?, records)?;
    check(&mut shard, &seen, records)?;
    let (tops, others) = Standard::ALL.split_at(7);
    let lists = &tops[..5];
    let (spreads, tables) = others.split_at(3);
    let (tables, talkers) = tables.split_at(3);
    let with = |views: &[Standard], own: Option<&str>| -> Result<f64> { Ok(through(&plan(views, own)?, records)?.0) };
    Ok([
        whole,
        without_count_min(records),
        with(&[], None)?,
        with(lists, None)?,
        with(spreads, None)?,
        with(tables, None)?,
        with(talkers, None)?,
        with(&[], Some("{by: [src_ip/24]}"))?,
        with(&[], Some("{by: [src_ip/24], match: {proto: gre}}"))?,
        with(tops, None)?,
        through(&planned(&Standard::ALL, None, 0)?, records)?.0,
    ])
}

/// Runs all records through a shard with these views; returns the nanoseconds a record, the shard, and its filter of
/// seen flows.
fn through(plan: &Arc<Views>, records: &[Record]) -> Result<(f64, Shard, Seen)> {
    let mut shard = Shard::new(&ESTIMATES, plan, KEY);
    let seen = Seen::with_capacity(1_000_000, 0.001, KEY.id()).expect("the settings are allowed");
    seen.clear();
    let took = timed(|| {
        for batch in records.chunks(BATCH) {
            shard.absorb(batch, &seen);
        }
        shard.settle(&seen);
    });
    let sent: Tally = records.iter().map(Record::tally).sum();
    ensure!(shard.attributed[0] == sent, "{:?} were absorbed, of {sent:?}", shard.attributed[0]);
    Ok((took, shard, seen))
}

/// The time of a record without count-min sketches, and without the lists of floods and scans.
fn without_count_min(records: &[Record]) -> f64 {
    fn table<K: Copy + Eq + Default>() -> TopK<K, Tally> {
        let mut table = TopK::with_error(ESTIMATES.top_error, ESTIMATES.top_candidates, KEY.id())
            .expect("the settings are allowed");
        table.clear();
        table
    }
    let (mut flows, mut pairs) = (table::<FlowKey>(), table::<FlowKey>());
    let (mut sources, mut destinations) = (table::<(u64, u64, bool)>(), table::<(u64, u64, bool)>());
    let mut services = table::<u64>();
    let mut unique = Unique::new(&ESTIMATES, KEY.id());
    let (hash, mut total, mut space) = (KeyedHash::new(KEY), Tally::default(), Transposed::default());
    let seen = Seen::with_capacity(1_000_000, 0.001, KEY.id()).expect("the settings are allowed");
    seen.clear();
    let mut items = [Item::new(&hash, &records[0]); TOGETHER];
    let (mut new, mut protocols) = (0_u64, [0_u64; 256]);
    let took = timed(|| {
        for records in records.chunks(TOGETHER) {
            let items = &mut items[..records.len()];
            for (item, record) in items.iter_mut().zip(records) {
                *item = Item::new(&hash, record);
                seen.prefetch(item.hashes.flow);
                total.add(item.tally);
                protocols[usize::from(record.key.proto())] += item.tally.packets;
            }
            let items = &*items;
            unique.insert_batch(space.columns(items));
            new += items.iter().map(|item| u64::from(seen.insert(item.hashes.flow))).sum::<u64>();
            let host =
                |address: Address, item: &Item<'_>| ((address.0[0], address.0[1], item.record.key.is_v6()), item.tally);
            flows.add_batch((items, |item| item.hashes.flow), (items, |item| (item.record.key.identity(), item.tally)));
            sources.add_batch((items, |item| item.hashes.source), (items, |item| host(item.record.key.src, item)));
            destinations
                .add_batch((items, |item| item.hashes.destination), (items, |item| host(item.record.key.dst, item)));
            let pair = |key: &FlowKey| FlowKey::new(key.src, key.dst, 0, u8::from(key.is_v6()));
            pairs.add_batch((items, |item| item.hashes.pair), (items, |item| (pair(&item.record.key), item.tally)));
            let service = |key: &FlowKey| u64::from(key.port()) << 8 | u64::from(key.proto());
            services.add_batch(
                (items, |item| item.hashes.service),
                (items, |item| (service(&item.record.key), item.tally)),
            );
        }
    });
    black_box((flows, sources, destinations, pairs, services, unique, new, total, protocols));
    took
}

/// The nanoseconds per record of some work.
fn timed(work: impl FnOnce()) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / RECORDS as f64
}

fn check(shard: &mut Shard, seen: &Seen, records: &[Record]) -> Result<()> {
    let flows = records.iter().map(|record| record.key).collect::<HashSet<_>>().len() as u64;
    let unique = shard.unique.flows.bounds();
    ensure!((unique.lower..=unique.upper).contains(&flows), "{flows} flows are not within {unique:?}");
    let missed = flows.saturating_sub(shard.new_flows) as f64;
    let allowed = 10.0 + 2.0 * flows as f64 * seen.false_positive_rate();
    ensure!(shard.new_flows <= flows && missed <= allowed, "{} new flows of {flows}", shard.new_flows);
    let first = records[0].key;
    let truth: Tally = records.iter().filter(|record| record.key == first).map(Record::tally).sum();
    let by = &shard.plan().questions[0].by;
    let key = by.key(&records[0], Side::Src, shard.plan().facts());
    let known = shard.views[0].look_up(by, &KeyedHash::new(KEY), &key);
    let KeyEstimate { lower, upper, .. } = known.context("flows have bytes")?;
    let holds = |lower, truth, upper| lower <= truth && truth <= upper;
    ensure!(
        holds(lower.bytes, truth.bytes, upper.bytes) && holds(lower.packets, truth.packets, upper.packets),
        "the first flow had {truth:?}, which is not within {lower:?} and {upper:?}"
    );
    Ok(())
}
