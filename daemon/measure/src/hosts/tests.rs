use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use weir_common::{flow::Scope, record::Record};
use weir_config::Config;
use weir_datapath::edge::Edge;
use weir_sketch::{
    Seen,
    hash::{Key, mix},
};

use super::*;
use crate::{
    answer::{Answer, Rows},
    closed::Closed,
    new_flows::FilterState,
    question::Views,
    ranking::Ranking,
    shard::{Secrets, Shard},
    summary::Summary,
};

/// What a host truly has.
#[derive(Clone, Debug, Default)]
struct Truth {
    directions: Directions,
    flows: HashSet<FlowKey>,
    peers: HashSet<Address>,
}

impl Truth {
    fn sum(&self) -> Tally {
        self.directions.down.saturating_add(self.directions.up)
    }
}

fn v4(number: u32) -> Address {
    Address::from(std::net::Ipv4Addr::from(number))
}

/// The own addresses of the tests are in 10.0.0.0/8.
fn is_own(address: Address) -> bool {
    u64::from_be(address.0[1]) as u32 >> 24 == 10
}

/// Random traffic of so many hosts with the Internet and with each other, by Zipf's law.
fn traffic(seed: u64, hosts: u64, count: u64) -> Vec<Record> {
    let random = |nth: u64, of: u64| mix(seed << 40 | nth << 4 | of);
    let record = |nth: u64| {
        let zipf = |of: u64| ((hosts as f64).powf(random(nth, of) as f64 / u64::MAX as f64) - 1.0) as u32;
        let host = v4(0x0a00_0000 + zipf(0));
        let peer = match random(nth, 1) % 8 {
            0 => v4(0x0a00_0000 + zipf(2)),
            _ => v4(0xc000_0000 + (random(nth, 2) % 3_000) as u32),
        };
        let (src, dst) = if random(nth, 3) % 3 == 0 { (host, peer) } else { (peer, host) };
        let key = FlowKey::new(src, dst, 6, 0).with_ports(443, (random(nth, 4) % 50) as u16);
        let (packets, bytes) = (1 + (random(nth, 5) % 20) as u32, 60 + (random(nth, 6) % 20_000) as u32);
        Record { key: key.with_scope(Scope::new(0, 0)), packets, bytes: bytes.into(), sampling: 1, ..Record::default() }
    };
    (0..count).map(record).collect()
}

/// The truth about each host in these records.
fn truths<'r>(records: impl IntoIterator<Item = &'r Record>) -> BTreeMap<Address, Truth> {
    let mut all: BTreeMap<Address, Truth> = BTreeMap::new();
    for record in records {
        let (src, dst) = (record.key.src, record.key.dst);
        for (host, peer, is_up) in [(src, dst, true), (dst, src, false)].into_iter().filter(|(host, ..)| is_own(*host))
        {
            let truth = all.entry(host).or_default();
            let Directions { down, up } = &mut truth.directions;
            if is_up { up } else { down }.add(record.tally());
            truth.flows.insert(record.key);
            truth.peers.insert(peer);
        }
    }
    all
}

fn views(yaml: &str) -> Arc<Views> {
    Views::new(&Config::parse(yaml, "a test").unwrap(), 1).unwrap()
}

/// The answers of a window in which so many workers got these records in turn, each in groups of this size.
fn window(views: &Arc<Views>, records: &[Record], workers: usize, group: usize) -> Vec<Answer> {
    let key = Key([1, 2]);
    let seen = Seen::with_capacity(1 << 16, 0.001, key.id()).unwrap();
    let mut shards: Vec<_> =
        (0..workers).map(|_| Box::new(Shard::new(&Config::default().estimates, views, key))).collect();
    for (nth, shard) in (0..).zip(&mut shards) {
        shard.rekey(key, &[], Secrets { window: 1, coins: Key([nth, 7]), places: Key([3, 4]) });
    }
    let mut edges = vec![Edge::empty(1); workers];
    for (nth, records) in records.chunks(group).enumerate() {
        shards[nth % workers].absorb(records, &seen);
        edges[nth % workers].counters[0].seen.add(records.iter().map(Record::tally).sum());
    }
    for shard in &mut shards {
        shard.settle(&seen);
    }
    let mut all: Vec<_> = shards.into_iter().zip(edges).map(|(shard, edge)| Closed::new(shard, edge)).collect();
    Summary::merge(&mut all, views, 1, FilterState::steadily(&seen), 0.999).unwrap().views
}

fn ranking(answer: &Answer) -> &Ranking<ViewKey> {
    let Rows::Tallies(ranking) = &answer.tables[0].rows else { panic!("hosts have packets and bytes") };
    ranking
}

/// Checks every number of every row against the truth. Returns how wide the bounds of sums and of counts are at most.
fn check(answer: &Answer, truths: &BTreeMap<Address, Truth>, context: &str) -> [u64; 2] {
    let Ranking { by_bytes, by_packets, unlisted } = ranking(answer);
    let mut widest = [0; 2];
    for row in by_bytes.iter().chain(by_packets) {
        let host = Address([row.key.0[0], row.key.0[1]]);
        let truth = &truths[&host];
        let numbers = &answer.hosts[&row.key];
        let [down, up] = numbers.directions(row);
        let directions = [(down, truth.directions.down), (up, truth.directions.up)];
        let mut all = vec![
            (row.packets, truth.sum().packets, "packets"),
            (row.bytes, truth.sum().bytes, "bytes"),
            (numbers.flows, truth.flows.len() as u64, "flows"),
            (numbers.peers, truth.peers.len() as u64, "peers"),
        ];
        for (direction, truth) in directions {
            all.extend([(direction.packets, truth.packets, "packets"), (direction.bytes, truth.bytes, "bytes")]);
        }
        for (Estimate { value, lower, upper }, truth, what) in all {
            assert!((lower..=upper).contains(&truth), "{context}: {host:?} {what}: {lower} to {upper}, truly {truth}");
            assert!((lower..=upper).contains(&value), "{context}: {host:?} {what}: {lower} {value} {upper}");
            let kind = usize::from(["flows", "peers"].contains(&what));
            widest[kind] = widest[kind].max(upper - lower);
        }
        // Parts never exceed their whole.
        for (part, other, whole) in [(down.packets, up.packets, row.packets), (down.bytes, up.bytes, row.bytes)] {
            assert_eq!(part.value + other.value, whole.value, "{context}: {host:?}");
            assert!(part.upper <= whole.upper && other.upper <= whole.upper, "{context}: {host:?}");
        }
    }
    let listed: BTreeSet<_> = by_bytes.iter().map(|row| Address([row.key.0[0], row.key.0[1]])).collect();
    let most = truths.iter().filter(|(host, _)| !listed.contains(host)).map(|(_, truth)| truth.sum().bytes).max();
    assert!(unlisted.unwrap().bytes >= most.unwrap_or(0), "{context}: an unlisted host has {most:?}");
    widest
}

#[test]
fn every_number_of_a_few_hosts_is_exact() {
    let views = views("standard_views: [hosts]\nreport: {top: 40}");
    for seed in 0..20 {
        let records = traffic(seed, 30, 300);
        let truths = truths(&records);
        let answers = window(&views, &records, 1, 1 + (seed as usize * 37) % 300);
        assert_eq!(ranking(&answers[0]).by_bytes.len(), truths.len());
        let [of_sums, of_counts] = check(&answers[0], &truths, &format!("seed {seed}"));
        assert_eq!(of_sums, 0, "seed {seed}");
        // Up to some hundred flows and peers, a few may have been mistaken for others.
        let most = truths.values().map(|truth| truth.flows.len().max(truth.peers.len())).max().unwrap();
        assert!((30..110).contains(&most) && of_counts <= 6, "seed {seed}: {of_counts} of {most}");
    }
}

#[test]
fn bounds_hold_for_thousands_of_rows_whatever_the_hosts_and_workers() {
    let views = views("standard_views: [hosts]\nreport: {top: 50}");
    let mut rows = 0;
    for seed in 0..40 {
        let (hosts, workers) = ([20, 400, 5_000, 200_000][seed as usize % 4], 1 + seed as usize % 3);
        let records = traffic(seed, hosts, 12_000);
        let answers = window(&views, &records, workers, 200);
        check(&answers[0], &truths(&records), &format!("seed {seed}, {hosts} hosts, {workers} workers"));
        rows += ranking(&answers[0]).by_bytes.len();
    }
    assert!(rows > 1_500, "{rows} rows");
}

#[test]
fn a_view_of_hosts_counts_what_it_matches() {
    let views = views("standard_views: []\nviews: [{name: web, measure: hosts, match: {dst_port: 7}, top: 20}]");
    let records = traffic(1, 30, 5_000);
    let answers = window(&views, &records, 2, 64);
    let matched = truths(records.iter().filter(|record| record.key.dst_port() == 7));
    check(&answers[0], &matched, "matched");
    assert!(matched.len() > 10);
}

#[test]
fn networks_are_found_one_by_one_and_by_ranges() {
    let prefixes = |count: u32| -> Vec<Prefix> {
        let v4 = (0..count).map(|nth| format!("10.{nth}.0.0/16").parse().unwrap());
        v4.chain(["2001:db8::/32".parse().unwrap()]).collect()
    };
    for count in [1, 8, 9, 200] {
        let own = HostNetworks::new(&prefixes(count));
        for nth in 0..=255 {
            let address = v4(0x0a00_0001 | nth << 16);
            assert_eq!(own.has(address, false), nth < count, "{nth} of {count}");
        }
        let v6 = Address::from("2001:db8:7::1".parse::<std::net::Ipv6Addr>().unwrap());
        assert!(own.has(v6, true) && !own.has(v6, false));
    }
}

#[test]
fn named_networks_have_exact_sums_by_their_longest_prefix() {
    let views = views(
        "standard_views: [hosts]\nnetworks:\n  all: {prefixes: [10.0.0.0/8], own: true}\n  office: {\
         prefixes: [10.0.0.0/26, 10.0.1.0/24], own: true}\n  outside: {prefixes: [192.0.0.0/8]}",
    );
    for workers in 1..=3 {
        let records = traffic(workers, 3_000, 6_000);
        let mut expected = [("all", Directions::default()), ("office", Directions::default())];
        for (host, truth) in truths(&records) {
            let number = u64::from_be(host.0[1]) as u32;
            let is_office = number < 0x0a00_0040 || number >> 8 == 0x000a_0001;
            let Directions { down, up } = &mut expected[usize::from(is_office)].1;
            down.add(truth.directions.down);
            up.add(truth.directions.up);
        }
        let answers = window(&views, &records, workers as usize, 50);
        let exact = |of: Tally| Estimate { value: of.bytes, lower: of.bytes, upper: of.bytes };
        let expected = expected.map(|(name, Directions { down, up })| NetworkNumbers {
            name: name.to_owned(),
            down: exact(down),
            up: exact(up),
            bytes: exact(down.saturating_add(up)),
        });
        assert_eq!(answers[0].networks[..], expected);
    }
}
