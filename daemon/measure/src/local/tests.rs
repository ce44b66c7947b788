//! Known hosts beside exact sets, and the format on disk.

use std::collections::HashMap;

use weir_common::{
    flow::{Address, FlowKey},
    ledger::Tally,
    record::Record,
};
use weir_datapath::edge::Edge;
use weir_sketch::{Seen, hash::mix};

use super::*;
use crate::{local_shard::LISTED_MAX, new_flows::FilterState, question::Views, shard::Shard};

const KEY: Key = Key([3, 4]);
const CONFIDENCE: f64 = 0.999;
const DAY: Duration = Duration::from_secs(86_400);

fn config(text: &str) -> Config {
    Config::parse(text, "weir.yaml").unwrap()
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_second(second as i64).unwrap()
}

/// A packet from 10.x.x.x to another network.
fn from(host: u32) -> Record {
    record([10, (host >> 16) as u8, (host >> 8) as u8, host as u8])
}

fn record(src: [u8; 4]) -> Record {
    let [src, dst] = [src, [192, 0, 2, 9]].map(|ip| Address::from_v4_word(u32::from_ne_bytes(ip)));
    Record {
        key: FlowKey::new(src, dst, 17, 0).with_ports(50_000, 443),
        packets: 1,
        bytes: 100,
        sampling: 1,
        ..Record::default()
    }
}

/// Measures windows as a daemon does: with two workers, of which each has half of the records.
struct Measured {
    views: Arc<Views>,
    config: Config,
    local: Local,
}

impl Measured {
    fn new(text: &str) -> Self {
        Self::of(config(text))
    }

    fn of(config: Config) -> Self {
        let views = Views::new(&config, 1).unwrap();
        let local = Local::new(&config, KEY).unwrap();
        Self { views, config, local }
    }

    fn window(&mut self, start: Timestamp, length: Duration, records: &[Record], lost: u64) -> Answers {
        let seen = Seen::with_capacity(1000, 0.01, 9).unwrap();
        let common = self.local.common();
        let mut closed: Vec<Closed> = Vec::new();
        for worker in 0..2 {
            let mut shard = Box::new(Shard::new(&self.config.estimates, &self.views, Key([worker, 9])));
            shard.rekey(
                Key([1, 9]),
                &[],
                crate::shard::Secrets { window: 1, coins: Key([worker, 5]), places: Key([1, 1]) },
            );
            shard.local = Some(Box::new(LocalShard::new(&common)));
            let own: Vec<Record> = records.iter().skip(worker as usize).step_by(2).copied().collect();
            shard.absorb(&own, &seen);
            shard.settle(&seen);
            let mut edge = Edge::empty(1);
            let lost = if worker == 0 { lost } else { 0 };
            edge.counters[0].seen = Tally::new(own.len() as u64 + lost, 100 * (own.len() as u64 + lost));
            edge.counters[0].lost[0] = Tally::new(lost, 100 * lost);
            closed.push(Closed::new(shard, edge));
        }
        let end = start.checked_add(length).unwrap();
        let span = Span { start, end, length, clock_step: None, late_packets: None, untimed_packets: None };
        self.local.end_window(span);
        let summary = Summary::merge(&mut closed, &self.views, 1, FilterState::steadily(&seen), CONFIDENCE).unwrap();
        self.local.add(&mut closed, span, &summary, CONFIDENCE).unwrap()
    }

    /// Ends this weir, and starts the next one with what it has left.
    fn restart(&mut self) {
        let kept = Kept::from_bytes(&self.local.to_bytes()).unwrap();
        self.local = Local::resume(&self.config, kept).unwrap();
    }
}

#[test]
fn nothing_is_measured_unless_it_is_configured() {
    assert!(Local::new(&Config::default(), KEY).is_none());
    let total = |text: &str| Local::memory(&config(text)).iter().map(|part| part.bytes).sum::<u64>();
    assert_eq!((total(""), LocalShard::bytes_for(false, false)), (0, 0));
    assert!(total("report: {horizons: [1h]}") > 300 << 10);
    assert!(total("report: {horizons: [1h, 24h]}\nnew_hosts: {}") < 3 << 20);
}

/// Hosts that come and go for months, with restarts, beside the day on which each was last seen.
#[test]
fn hosts_are_new_after_the_days_that_are_configured() {
    let (mut failed, mut counted, mut missed) = (0, 0_u64, 0_u64);
    for seed in 0..6_u64 {
        let mut measured = Measured::new(
            "interfaces: []\nnew_hosts: {days: 6, hosts: 4000, learning: 1d}\nreport: {interval: 1h}\nseen_flows: {generation: 2h}",
        );
        let mut last: HashMap<u32, u64> = HashMap::new();
        for day in 0..60_u64 {
            if mix(seed ^ day << 8).is_multiple_of(7) {
                measured.restart();
            }
            let hosts: Vec<u32> = (0..150).map(|nth| (mix(mix(seed) ^ day << 32 ^ nth) % 900) as u32).collect();
            let records: Vec<Record> = hosts.iter().map(|host| from(*host)).collect();
            let answers = measured.window(at(day * 86_400), DAY, &records, 0);
            let new = answers.new_hosts.unwrap();
            // For six days a host is known; after eight it is forgotten. What lies between may be either.
            let unseen = |host: &u32| last.get(host).map_or(u64::MAX, |before| day - before);
            let mut distinct = hosts.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let surely = distinct.iter().filter(|host| unseen(host) > 9).count() as u64;
            let perhaps = distinct.iter().filter(|host| unseen(host) > 6).count() as u64;
            assert!(new.count.value <= perhaps, "{seed}, {day}: {} of {perhaps}", new.count.value);
            failed += u64::from(new.count.upper < surely);
            (counted, missed) = (counted + surely, missed + surely.saturating_sub(new.count.value));
            assert_eq!(new.is_learning, day == 0, "{day}");
            assert!(new.hosts.len() == (new.count.value as usize).min(LISTED_MAX));
            for host in hosts {
                last.insert(host, day);
            }
        }
    }
    assert!(failed <= 2, "{failed} bounds failed");
    assert!(missed * 200 < counted, "{missed} of {counted} new hosts were missed");
}

#[test]
fn a_local_shard_takes_the_memory_that_is_planned() {
    for text in ["new_hosts: {}", "report: {horizons: [1h]}", "new_hosts: {}\nreport: {horizons: [1h]}"] {
        let (config, measured) = (config(text), Measured::new(text));
        let shard = LocalShard::new(&measured.local.common());
        let planned = LocalShard::bytes_for(!config.report.horizons.is_empty(), config.new_hosts.is_some());
        assert!(shard.memory_bytes().abs_diff(planned) < 512, "{text}: {} of {planned}", shard.memory_bytes());
    }
}

#[test]
fn only_senders_in_own_networks_are_hosts() {
    let sent = [[10, 0, 0, 1], [172, 16, 0, 2], [192, 168, 7, 3], [198, 51, 100, 4], [8, 8, 8, 8]].map(record);
    let mut private = Measured::new("new_hosts: {}");
    let new = private.window(at(0), DAY, &sent, 0).new_hosts.unwrap();
    assert_eq!((new.count.value, new.hosts.len()), (3, 3));
    assert!(new.hosts.iter().all(|host| matches!(host, IpAddr::V4(ip) if ip.is_private())), "{:?}", new.hosts);
    let found = vec!["198.51.100.0/24".parse().unwrap()];
    let mut found = Measured::of(Config { found_networks: found, ..config("new_hosts: {}") });
    assert_eq!(found.window(at(0), DAY, &sent, 0).new_hosts.unwrap().count.value, 4);
    let mut own = Measured::new(
        "new_hosts: {}\nnetworks: {lan: {prefixes: [198.51.100.0/24], own: true}, far: {prefixes: [10.0.0.0/8]}}",
    );
    assert_eq!(own.window(at(0), DAY, &sent, 0).new_hosts.unwrap().hosts, [IpAddr::from([198, 51, 100, 4])]);
}

#[test]
fn lost_packets_may_be_of_new_hosts_and_of_more_sources() {
    let mut measured = Measured::new("new_hosts: {}\nreport: {horizons: [1h]}");
    let records: Vec<Record> = (0..50).map(from).collect();
    let minute = Duration::from_secs(60);
    let answers = measured.window(at(0), minute, &records, 7);
    assert_eq!(answers.new_hosts.map(|new| new.count), Some(Estimate { value: 50, lower: 50, upper: 57 }));
    let [sources, ..] = answers.horizons[0].counts;
    assert!(sources.lower <= 50 && (57..70).contains(&sources.upper), "{sources:?}");
    let answers = measured.window(at(60), minute, &records[..1], 0);
    assert_eq!(answers.new_hosts.map(|new| new.count), Some(Estimate { value: 0, lower: 0, upper: 0 }));
    let [sources, ..] = answers.horizons[0].counts;
    assert!(sources.lower >= 49 && sources.upper >= 57, "{sources:?}");
}

#[test]
fn a_flood_of_hosts_makes_it_learn_again() {
    let mut measured = Measured::new("new_hosts: {days: 3, hosts: 256, learning: 12h}");
    let hour = Duration::from_secs(3600);
    for nth in 0..20 {
        let new = measured.window(at(nth * 3600), hour, &[from(1)], 0).new_hosts.unwrap();
        assert_eq!((new.count.value, new.is_learning), (u64::from(nth == 0), nth < 12), "{nth}");
        assert_eq!((new.since, new.known), (at(0), hour * (nth as u32 + 1)));
    }
    let mut learns = false;
    for nth in 20..26 {
        let flood: Vec<Record> = (0..300).map(|host| from((nth as u32) << 16 | host)).chain([from(1)]).collect();
        let new = measured.window(at(nth * 3600), hour, &flood, 0).new_hosts.unwrap();
        assert!(new.hosts.len() == LISTED_MAX && !new.hosts.contains(&IpAddr::from([10, 0, 0, 1])));
        assert!((280..=300).contains(&new.count.value) && new.count.upper >= 300, "{:?}", new.count);
        learns |= new.is_learning;
    }
    assert!(learns, "the filter has forgotten what it knew before the flood");
}

#[test]
fn the_image_is_read_as_it_was_written_and_damage_is_noticed() {
    let text = "new_hosts: {hosts: 300}\nreport: {horizons: [1h, 24h]}";
    let mut measured = Measured::new(text);
    for nth in 0..50 {
        let records: Vec<Record> = (0..20).map(|host| from(nth as u32 * 7 + host)).collect();
        measured.window(at(1_700_000_000 + nth * 60), Duration::from_secs(60), &records, 1);
    }
    let bytes = measured.local.to_bytes();
    let read =
        |bytes: &[u8]| Kept::from_bytes(bytes).map(|kept| Local::resume(&config(text), kept).unwrap().to_bytes());
    assert_eq!(read(&bytes), Ok(bytes.clone()));
    for end in 0..bytes.len().min(4_000) {
        assert!(read(&bytes[..end]).is_err(), "{end}");
    }
    for seed in 0..3_000_u64 {
        let mut damaged = bytes.clone();
        let place = (mix(seed) % damaged.len() as u64) as usize;
        damaged[place] ^= 1 << (seed % 8);
        // A number may be another valid number; nothing panics.
        let _ = read(&damaged);
    }
    assert!(read(&[&bytes[..], &[0]].concat()).is_err() && read(b"").is_err());
    // Another configuration takes what it can use.
    let kept = || Kept::from_bytes(&bytes).unwrap();
    let fewer = Local::resume(&config("report: {horizons: [2h, 24h]}"), kept()).unwrap();
    assert_eq!(fewer.horizons.iter().map(|horizon| horizon.parts().len()).collect::<Vec<_>>(), [0, 2]);
    let larger = Local::resume(&config("new_hosts: {hosts: 20000}"), kept()).unwrap();
    assert_eq!(larger.hosts.unwrap().known(), Duration::ZERO);
    assert!(Local::resume(&Config::default(), kept()).is_none());
}
