use std::{cmp::Reverse, collections::BTreeMap};

use weir_common::{
    flow::{Address, FlowKey},
    ledger::Tally,
    record::Record,
};
use weir_config::{Config, Estimates, Packets, Sampling, view::Side};
use weir_datapath::edge::Edge;
use weir_sketch::{
    Seen,
    hash::{Key, mix},
};

use super::*;
use crate::{
    answer::Rows,
    closed::Closed,
    look_up::KeyValue,
    new_flows::FilterState,
    question::{KeyQuery, Question, Views, ask::OfInterface},
    ranking::Ranked,
    sampling_control::SamplingControl,
    shard::Shard,
    summary::Summary,
};

const KEY: Key = Key([3, 4]);
const CONFIDENCE: f64 = 0.999;
const RECORDS: u64 = 30_000;
/// Fewer candidates than sources.
const SETTINGS: Estimates = Estimates { unique_error: 0.05, top_error: 0.01, top_candidates: 64 };

fn seen() -> Seen {
    Seen::with_capacity(100_000, 0.01, KEY.id()).unwrap()
}

fn control() -> SamplingControl {
    SamplingControl::new(&Sampling { packets: Packets::OneIn(1), cpu: 0.5 })
}

/// Few sources with many packets, and many with few.
fn record(nth: u64) -> Record {
    let source = ((mix(nth) as f64 / u64::MAX as f64).powi(4) * 5_000.0) as u32;
    let [src, dst] = [source, mix(!nth) as u32 % 300].map(Address::from_v4_word);
    let key = FlowKey::new(src, dst, 6, 0).with_ports(40_000 + source as u16, 443);
    Record { key, packets: 1, bytes: 60 + nth % 1_400, sampling: 1, ..Record::default() }
}

/// A worker that got about every third record, and has counted all of them.
struct Worker {
    shard: Box<Shard>,
    edge: Edge,
}

impl Worker {
    fn numbers(&self, keys: &KeysByQuestion) -> Numbers {
        Numbers::new(&self.shard, keys, (self.edge.clone(), false), &control())
    }
}

fn workers(views: &Arc<Views>, filter: &Seen) -> Vec<Worker> {
    let worker = |worker: u64| {
        let mut shard = Box::new(Shard::new(&SETTINGS, views, KEY));
        let records: Vec<Record> = (0..RECORDS).filter(|nth| mix(nth ^ 77) % 3 == worker).map(record).collect();
        shard.absorb(&records, filter);
        shard.settle_waiting(filter);
        let mut edge = Edge::empty(1);
        edge.counters[0].seen = records.iter().map(Record::tally).sum();
        Worker { shard, edge }
    };
    (0..3).map(worker).collect()
}

/// The true sum of each key of a question.
fn truth(views: &Views, nth: usize) -> BTreeMap<ViewKey, Tally> {
    let mut sums = BTreeMap::<ViewKey, Tally>::new();
    let Question { by, own, .. } = &views.questions[nth];
    let is_host = |record: &Record, side: Side| {
        own.as_ref().map_or(side == Side::Src, |own| own.has(side.address(&record.key), record.key.is_v6()))
    };
    for record in (0..RECORDS).map(record) {
        for side in [Side::Src, Side::Dst].into_iter().filter(|side| is_host(&record, *side)) {
            sums.entry(by.key(&record, side, views.facts())).or_default().add(record.tally());
        }
    }
    sums
}

fn union(workers: &[Worker], plan: &Views) -> KeysByQuestion {
    let mut keys = vec![Vec::new(); plan.questions.len()];
    for worker in workers {
        for (all, own) in keys.iter_mut().zip(candidates(&worker.shard)) {
            all.extend(own);
        }
    }
    for keys in &mut keys {
        keys.sort();
        keys.dedup();
    }
    keys
}

fn summary(workers: &[Worker], views: &Views, keys: &KeysByQuestion, filter: &Seen) -> OpenSummary {
    let numbers = workers.iter().map(|worker| worker.numbers(keys)).collect();
    OpenSummary::new(numbers, views, 1, FilterState::steadily(filter), CONFIDENCE).unwrap()
}

fn holds(row: &Ranked<ViewKey>, truth: Tally) -> bool {
    (row.packets.lower..=row.packets.upper).contains(&truth.packets)
        && (row.bytes.lower..=row.bytes.upper).contains(&truth.bytes)
}

#[test]
fn the_bounds_of_all_rows_hold_and_the_largest_keys_are_listed_in_order() {
    let (views, filter) = (Views::built_in(&SETTINGS, 10), seen());
    let workers = workers(&views, &filter);
    let open = summary(&workers, &views, &union(&workers, &views), &filter);
    let (mut lists, mut large) = (0, 0);
    for (nth, answer) in open.views.iter().enumerate() {
        let Some(ranking) = answer.ranking() else { continue };
        lists += 1;
        let truths = truth(&views, nth);
        for rows in [&ranking.by_bytes, &ranking.by_packets] {
            assert_eq!(rows.len(), truths.len().min(10));
            assert!(rows.iter().all(|row| holds(row, truths[&row.key])), "{rows:?}");
        }
        let mut largest: Vec<_> = truths.iter().collect();
        largest.sort_by_key(|(_, sum)| Reverse(sum.bytes));
        // All flows are small here.
        if largest[0].1.bytes > all_bytes() / 20 {
            assert!(ranking.by_bytes.iter().any(|row| row.key == *largest[0].0));
            large += 1;
        }
        let values: Vec<u64> = ranking.by_bytes.iter().map(|row| row.bytes.value).collect();
        assert!(values.is_sorted_by_key(|value| Reverse(*value)), "{values:?}");
    }
    assert!(lists == 6 && large >= 2, "{lists}, {large}");
    assert_eq!(open.fed, (0..RECORDS).map(|nth| record(nth).tally()).sum());
    assert_eq!((open.protocols.tcp.value, open.confidence, open.sampling), (RECORDS, 1.0, 1));
    let flows = truth(&views, 0).len() as u64;
    assert!((open.flows.lower..=open.flows.upper).contains(&flows), "{:?}", open.flows);
    assert!((open.new_flows.count.lower..=open.new_flows.count.upper).contains(&flows), "{:?}", open.new_flows);
    assert!((open.destinations.lower..=open.destinations.upper).contains(&300), "{:?}", open.destinations);
}

#[test]
fn a_reading_and_the_report_of_the_same_window_agree() {
    let (views, filter) = (Views::built_in(&SETTINGS, 10), seen());
    let workers = workers(&views, &filter);
    let open = summary(&workers, &views, &union(&workers, &views), &filter);
    let mut window: Vec<Closed> = workers.into_iter().map(|Worker { shard, edge }| Closed::new(shard, edge)).collect();
    let report = Summary::merge(&mut window, &views, 1, FilterState::steadily(&filter), CONFIDENCE).unwrap();
    assert_eq!((open.fed, open.protocols, open.flows), (report.fed(), report.protocols, report.flows));
    assert_eq!(
        (open.sources, open.destinations, open.new_flows),
        (report.sources, report.destinations, report.new_flows)
    );
    let mut compared = 0;
    for (open, report) in open.views.iter().zip(&report.views) {
        let (Some(open), Some(report)) = (open.ranking(), report.ranking()) else {
            continue;
        };
        // The bounds of reading and report overlap.
        for row in &open.by_bytes {
            let Some(other) = report.by_bytes.iter().find(|other| other.key == row.key) else { continue };
            compared += 1;
            assert!(row.bytes.lower <= other.bytes.upper && other.bytes.lower <= row.bytes.upper, "{row:?} {other:?}");
        }
    }
    assert!(compared > 10, "{compared} rows are in both");
}

#[test]
fn any_key_can_be_looked_up() {
    let (views, filter) = (Views::built_in(&SETTINGS, 10), seen());
    let workers = workers(&views, &filter);
    let nth = views.questions.iter().position(|question| question.view.name == "sources").unwrap();
    let truths = truth(&views, nth);
    let small = truths.iter().min_by_key(|(_, sum)| sum.bytes).unwrap();
    let ask = |key| KeyQuery { view: nth, key, of: OfInterface::default() };
    let asks = [ask(*small.0), ask(*truths.iter().max_by_key(|(_, sum)| sum.bytes).unwrap().0)];
    let mut keys = vec![Vec::new(); views.questions.len()];
    add_asked(&mut keys, &views, &asks, &[]);
    add_asked(&mut keys, &views, &asks, &[]);
    assert_eq!(keys[nth].len(), 2, "each once");
    let found = summary(&workers, &views, &keys, &filter).look_up(&views, &asks, &[]);
    assert_eq!(found.len(), 2);
    for found in &found {
        let KeyValue::Sums(row) = found.known else { panic!("{found:?}") };
        assert!(holds(&row, truths[&found.key]), "{row:?}: {:?}", truths[&found.key]);
    }
    let KeyValue::Sums(row) = found[0].known else { panic!() };
    assert!(row.bytes.upper < all_bytes() / 10, "the bounds show that it is small: {row:?}");
}

fn all_bytes() -> u64 {
    (0..RECORDS).map(|nth| record(nth).bytes).sum()
}

#[test]
fn views_are_read_if_their_numbers_add_up() {
    let yaml = "standard_views: [services]\nviews:\n- {name: total, by: []}\n- {name: protocols2, by: [proto]}\n\
                - {name: hosts, by: [], measure: {distinct: [dst_ip]}}\n\
                - {name: new, by: [src_ip], measure: new_flows}\n\
                - {name: scans, by: [src_ip], measure: {distinct: [dst_ip]}}";
    let config = Config::parse(yaml, "a test").unwrap();
    let (views, filter) = (Views::new(&config, 1).unwrap(), seen());
    let workers = workers(&views, &filter);
    let open = summary(&workers, &views, &union(&workers, &views), &filter);
    let of = |name: &str| {
        let nth = views.questions.iter().position(|question| question.view.name == name).unwrap();
        open.views[nth].tables.first().cloned()
    };
    let total = of("total").unwrap();
    assert_eq!(total.total.unwrap().packets.value, RECORDS);
    let Rows::Tallies(rows) = of("protocols2").unwrap().rows else { panic!() };
    assert_eq!(rows.by_bytes.iter().map(|row| row.packets.value).collect::<Vec<_>>(), [RECORDS]);
    let Rows::Distinct(hosts) = of("hosts").unwrap().rows else { panic!() };
    assert!((hosts[0].1.lower..=hosts[0].1.upper).contains(&300), "{hosts:?}");
    let Rows::Distinct(new) = of("new").unwrap().rows else { panic!() };
    assert!(!new.is_empty() && new.iter().all(|(_, count)| count.lower <= count.value));
    assert!(of("scans").is_none(), "sketches of pairs do not add up");
}

#[test]
fn the_memory_of_a_reading_is_planned() {
    let (views, filter) = (Views::built_in(&SETTINGS, 10), seen());
    let workers = workers(&views, &filter);
    let union = union(&workers, &views);
    let bytes = |numbers: &Numbers| {
        let held: usize = numbers.views.iter().map(|view| size_of_val(&view.held[..])).sum();
        let Edge { counters, sizes, .. } = &numbers.edge;
        let exact = size_of_val(&*numbers.attributed) + size_of_val(&counters[..]) + size_of_val(&sizes[..]);
        held + exact + numbers.unique.memory_bytes()
    };
    let numbers: usize = workers.iter().map(|worker| bytes(&worker.numbers(&union))).sum();
    let named: usize =
        workers.iter().flat_map(|worker| candidates(&worker.shard)).map(|keys| size_of_val(&keys[..])).sum();
    let of_clients = workers.len() * ASKED_MAX * size_of::<KeyEstimate<ViewKey>>();
    let planned = reading_bytes(&SETTINGS, workers[0].shard.plan(), 1, workers.len()) - of_clients;
    assert!(numbers + named <= planned && planned < 3 * (numbers + named), "{numbers} + {named}, {planned} planned");
}

#[test]
fn waiting_records_widen_the_bounds_of_all_keys() {
    let (views, filter) = (Views::built_in(&SETTINGS, 10), seen());
    let mut workers = workers(&views, &filter);
    // These packets are seen, but not in a record yet.
    workers[0].edge.counters[0].seen.add(Tally::new(7, 7_000));
    let keys = union(&workers, &views);
    let open = summary(&workers, &views, &keys, &filter);
    assert_eq!(open.uncertainty.lost, Tally::new(7, 7_000));
    workers[0].edge.counters[0].seen = workers[0].edge.counters[0].seen.since(Tally::new(7, 7_000));
    let without = summary(&workers, &views, &keys, &filter);
    let upper = |open: &OpenSummary| open.views[0].ranking().unwrap().by_bytes[0].bytes.upper;
    assert_eq!(upper(&open), upper(&without) + 7_000);
}
