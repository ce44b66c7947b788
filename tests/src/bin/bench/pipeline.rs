//! What a record costs a worker: a shard's sketches, whole and part by part.

use std::{array, collections::HashSet, hint::black_box, time::Instant};

use anyhow::{Context, Result, ensure};
use weir::{
    config::{Config, Estimates},
    measure::{
        heavy_hitters::Held,
        shard::{Columns, Item, Shard, TOGETHER, Unique},
        view::ViewSketch,
    },
    question::{Question, Views},
    view::Side,
};
use weir_common::{
    flow::{Address, FlowKey, class},
    ledger::Tally,
    record::Record,
};
use weir_sketch::{
    Seen, TopK,
    hash::{Key, KeyedHash, mix},
};

use crate::table::{self, least_and_median, thousands};

const ROUNDS: usize = 7;
const RECORDS: u64 = 1 << 19;
/// As a worker's batch.
const BATCH: usize = 256;
/// weir's defaults.
pub const ESTIMATES: Estimates = Estimates { unique_error: 0.005, top_error: 0.0005, top_candidates: 1024 };
/// Entries of a list.
pub const TOP: usize = 10;
pub const KEY: Key = Key([7, 11]);

/// Which flow each record is of.
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
        let records: Vec<Record> = (0..RECORDS)
            .map(|nth| Record {
                key: flow(nth),
                bytes: 100 + nth % 1_000,
                packets: 1,
                sampling: 1,
                ..Record::default()
            })
            .collect();
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(round(&records).with_context(|| format!("{name}: the shard is wrong"))?);
        }
        let median = |part: usize| least_and_median(rounds.iter().map(|round| round[part]).collect()).1;
        let cells: [String; PARTS] = array::from_fn(|part| match part {
            // The ratio of medians, not the median of ratios.
            2 => format!("{:.2}", median(0) / median(1)),
            part => format!("{:.0}", median(part)),
        });
        rows.push([&[name.to_owned()], &cells[..]].concat().try_into().expect("a name and the parts"));
    }
    table::write(
        [
            "records of",
            "whole shard",
            "candidates alone",
            "ratio",
            "hashes",
            "unique counts",
            "seen flows",
            "five lists",
            "floods, scans",
            "a user's view",
            "no match",
        ],
        &rows,
    )?;
    table::say(format!(
        "\nNanoseconds per record on one CPU: medians of {ROUNDS} rounds of {} records. The parts run alone, too.\n\
         - whole shard: all standard views, unique counts, new flows, totals.\n\
         - candidates alone: the same without floods, scans and the count-min of the lists; the ratio is to this.\n\
         - a user's view: bytes by src_ip/24. No match: the same where no record matches.\n\
         Checked after each round: totals were exact, and the bounds of unique counts, new flows and the first flow held.",
        thousands(RECORDS)
    ))
}

const PARTS: usize = 10;

/// A window's records through a shard and through its parts: nanoseconds a record of each.
fn round(records: &[Record]) -> Result<[f64; PARTS]> {
    let plan = Views::built_in(&ESTIMATES, TOP);
    let mut shard = Shard::new(&ESTIMATES, &plan, KEY);
    let seen = Seen::with_capacity(1_000_000, 0.001, KEY.id());
    seen.clear();
    let whole = timed(|| records.chunks(BATCH).for_each(|batch| shard.absorb(batch, &seen)));
    check(&mut shard, &seen, records)?;

    let hash = KeyedHash::new(KEY);
    let mut items = vec![Item::default(); records.len()];
    let hashes = timed(|| items.iter_mut().zip(records).for_each(|(item, record)| *item = Item::new(&hash, record)));
    let mut sketches = Unique::new(&ESTIMATES, KEY.id());
    let unique = timed(|| items.chunks(TOGETHER).for_each(|batch| sketches.insert_batch(&Columns::new(batch))));
    seen.clear();
    let seen_flows = timed(|| {
        for batch in items.chunks(BATCH) {
            batch.iter().for_each(|item| seen.prefetch(item.hashes.flow));
            batch.iter().for_each(|item| _ = black_box(seen.insert(item.hashes.flow)));
        }
    });
    let alone = without_count_min(records);
    let absorb = |plan: &Views, questions: &[Question]| {
        let mut views: Vec<_> = questions.iter().map(|view| (view, ViewSketch::new(view, KEY.id(), BATCH))).collect();
        views.iter_mut().for_each(|(_, sketch)| sketch.clear());
        timed(|| {
            for batch in items.chunks(TOGETHER) {
                let columns = Columns::new(batch);
                views.iter_mut().for_each(|(view, sketch)| sketch.absorb(view, &hash, plan.facts(), &columns));
            }
        })
    };
    let (lists, spreads) = plan.questions.split_at(5);
    let own = |view: &str| -> Result<f64> {
        let mut config = Config { standard_views: Vec::new(), ..Config::default() };
        config.views.push(config.parse_view(view, "bench", "own")?);
        let plan = Views::new(&config, 1)?;
        Ok(absorb(&plan, &plan.questions))
    };
    let matching = own("{by: [src_ip/24]}")?;
    let failing = own("{by: [src_ip/24], match: {proto: gre}}")?;
    Ok([whole, alone, 0.0, hashes, unique, seen_flows, absorb(&plan, lists), absorb(&plan, spreads), matching, failing])
}

/// What a record took before lists had a count-min, and before there were floods and scans.
fn without_count_min(records: &[Record]) -> f64 {
    fn table<K: Copy + Eq + Default>() -> TopK<K, Tally> {
        let mut table = TopK::with_error(ESTIMATES.top_error, ESTIMATES.top_candidates, KEY.id());
        table.clear();
        table
    }
    let (mut flows, mut pairs) = (table::<FlowKey>(), table::<FlowKey>());
    let (mut sources, mut destinations) = (table::<(u64, u64, bool)>(), table::<(u64, u64, bool)>());
    let mut services = table::<u64>();
    let mut unique = Unique::new(&ESTIMATES, KEY.id());
    let (hash, mut total) = (KeyedHash::new(KEY), Tally::default());
    let seen = Seen::with_capacity(1_000_000, 0.001, KEY.id());
    seen.clear();
    let mut items = [Item::default(); TOGETHER];
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
            unique.insert_batch(&Columns::new(items));
            new += items.iter().map(|item| u64::from(seen.insert(item.hashes.flow))).sum::<u64>();
            let host =
                |address: Address, item: &Item| ((address.0[0], address.0[1], item.record.key.is_v6()), item.tally);
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

/// The nanoseconds a record that some work takes.
fn timed(work: impl FnOnce()) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / RECORDS as f64
}

fn check(shard: &mut Shard, seen: &Seen, records: &[Record]) -> Result<()> {
    let sent: Tally = records.iter().map(Record::tally).sum();
    ensure!(shard.attributed[0] == sent, "{:?} were absorbed, of {sent:?}", shard.attributed[0]);
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
    let known = shard.views[0].look_up(by.hash_of(&KeyedHash::new(KEY), &key), &key);
    let Held { lower, upper, .. } = known.context("flows have bytes")?;
    let holds = |lower, truth, upper| lower <= truth && truth <= upper;
    ensure!(
        holds(lower.bytes, truth.bytes, upper.bytes) && holds(lower.packets, truth.packets, upper.packets),
        "the first flow had {truth:?}, which is not within {lower:?} and {upper:?}"
    );
    Ok(())
}
