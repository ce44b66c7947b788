use std::{
    collections::{HashMap, HashSet},
    env, fs,
    net::{IpAddr, Ipv4Addr},
    process,
};

use weir_schema::{Report, TopSource};

use super::*;
use crate::{
    archive::Limits,
    disk::Disk,
    seconds::Seconds,
    testing::{Random, add, at, report_with_sketches},
};

const LIMITS: Limits = Limits { bytes: 64 << 20, age: None, has_samples: false };
/// The length of a window in seconds.
const LENGTH: i64 = 10;

/// A folder of folders, removed on drop.
struct Fleet(PathBuf);

impl Fleet {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("weir-several-{name}-{}", process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Writes the history of a router with these windows, and returns its folder.
    fn write(&self, id: &str, reports: impl Iterator<Item = Report>) -> PathBuf {
        let folder = self.0.join(id);
        let mut windows = Windows::new(1 << 20, Addresses::Full);
        let mut disk = Disk::new(&folder, id);
        disk.load(&mut windows, &mut Seconds::default(), LIMITS);
        for mut report in reports {
            (report.observer.id, report.observer.name) = (id.to_owned(), format!("edge-{id}"));
            add(&mut windows, &report);
        }
        disk.write_open(&windows);
        folder
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn between(from: i64, to: i64) -> Time {
    Time { from: Some(at(from)), to: Some(at(to)) }
}

/// The sources of a window of a router with their packets. Some are seen by all routers, and some by one.
fn sources(router: u64, random: &mut Random) -> Vec<(u32, u64)> {
    let mut all: Vec<(u32, u64)> =
        (1..=40).map(|rank: u32| (rank, 1 + random.below(40_000) / u64::from(rank))).collect();
    let own = 1000 * router as u32;
    all.extend((1..=80).map(|rank: u32| (own + rank, 1 + random.below(9_000) / u64::from(rank))));
    all.retain(|_| random.below(4) > 0);
    all.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
    all
}

#[test]
fn lists_totals_and_distinct_counts_of_several_hold() {
    for seed in 0..6 {
        let fleet = Fleet::new(&format!("random-{seed}"));
        let mut random = Random(seed);
        let (mut truth, mut folders) = (Vec::new(), Vec::new());
        for router in 1..=3 {
            // Routers were started at different times, and the third one has another key.
            let first = random.below(20) as i64;
            let windows: Vec<_> = (first..180).map(|nth| (nth, sources(router, &mut random))).collect();
            let key_id = if router == 3 { 77 } else { 5 };
            let reports = windows.iter().map(|(nth, sources)| report_with_sketches(*nth, LENGTH, key_id, sources));
            folders.push(fleet.write(&router.to_string(), reports));
            truth.push(windows);
        }
        for _ in 0..6 {
            let from = random.below(1500) as i64;
            let to = from + 1 + random.below(1900 - from as u64) as i64;
            let several = Several::read(&folders, &between(from, to)).unwrap();
            let mut sums: HashMap<u32, u64> = HashMap::new();
            let mut counted = 0;
            for (windows, router) in truth.iter().zip(&several.routers) {
                let (Some(from), Some(to)) = (router.from, router.to) else { panic!("{router:?}") };
                let is_meant = |nth: i64| from <= at(nth * LENGTH) && at(nth * LENGTH + LENGTH) <= to;
                for (_, sources) in windows.iter().filter(|(nth, _)| is_meant(*nth)) {
                    counted += 1;
                    sources.iter().for_each(|(source, packets)| *sums.entry(*source).or_default() += packets);
                }
            }
            let union = &several.union;
            assert_eq!((union.windows, union.totals.packets), (counted, sums.values().sum()), "{from} to {to}");
            let sources = sums.keys().collect::<HashSet<_>>().len() as u64;
            let distinct = union.unique.src_ip;
            assert!((distinct.lower..=distinct.upper).contains(&sources), "{sources} of {distinct:?}, {from} to {to}");
            assert!(union.confidence_is_useful(), "{union:?}");
            let mut unlisted = sums.clone();
            for TopSource { src_ip, packets, .. } in &union.top_by_packets.sources {
                let IpAddr::V4(address) = src_ip else { panic!() };
                let sent = unlisted.remove(&u32::from(*address)).unwrap_or(0);
                assert!((packets.lower..=packets.upper).contains(&sent), "{address} sent {sent}: {packets:?}");
            }
            let most = union.top_by_packets.unlisted.sources.unwrap();
            assert!(unlisted.values().all(|sent| *sent <= most), "{most} of {unlisted:?}");
        }
    }
}

/// A test of bounds needs bounds that can hold.
trait Useful {
    fn confidence_is_useful(&self) -> bool;
}

impl Useful for Union {
    fn confidence_is_useful(&self) -> bool {
        self.top_by_packets.confidence > 0.99 && self.unique.src_ip.confidence > 0.99
    }
}

#[test]
fn with_one_key_a_source_counts_once_whichever_routers_saw_it() {
    let fleet = Fleet::new("distinct");
    let windows = |key_id: u64, sources: std::ops::Range<u32>| {
        let all: Vec<_> = sources.map(|source| (source, 5)).collect();
        // Sketches are on disk when an hour of unions is full.
        (0..400).map(move |nth| report_with_sketches(nth, LENGTH, key_id, &all))
    };
    let one = fleet.write("1", windows(5, 0..600));
    let other = fleet.write("2", windows(5, 300..900));
    let foreign = fleet.write("3", windows(6, 300..900));
    let count = |folders: &[PathBuf]| Several::read(folders, &between(0, 3000)).unwrap().union.unique.src_ip;
    let same = count(&[one.clone(), other]);
    assert!(same.value.abs_diff(900) < 45 && same.lower <= 900 && same.upper >= 900, "{same:?}");
    assert!(same.upper < 1000 && same.lower > 800, "{same:?}");
    let apart = count(&[one, foreign]);
    assert!(apart.lower <= 600 && apart.upper >= 1200, "{apart:?}");
}

#[test]
fn what_does_not_belong_together_stays_apart_and_is_named() {
    let fleet = Fleet::new("apart");
    let report = |nth| report_with_sketches(nth, LENGTH, 5, &[(0x0a00_0001, 10), (0x0a00_0002, 5)]);
    let (first, second) = (fleet.write("1", (0..30).map(report)), fleet.write("2", (0..30).map(report)));
    let masked = fleet.write("3", (0..30).map(|nth| report(nth).masked(Addresses::Prefix)));
    let later = fleet.write("4", (500..510).map(report));
    let several = Several::read(&[masked.clone(), first.clone(), second.clone(), later.clone()], &between(0, 300));
    let Several { union, routers } = several.unwrap();
    assert_eq!((union.windows, union.totals.packets), (60, 60 * 15));
    let rows: Vec<_> = union.top.sources.iter().map(|row| (row.src_ip, row.packets.value)).collect();
    let address = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    assert_eq!(rows, [(address(1), 600), (address(2), 300)]);
    let why: Vec<_> = routers.iter().map(|router| (&*router.name, router.left_out.as_deref())).collect();
    assert!(why[0].1.unwrap().contains("masked as `prefix` says, theirs as `full` does"), "{why:?}");
    assert_eq!((why[1], why[2]), (("edge-1", None), ("edge-2", None)));
    assert!(why[3].1.unwrap().starts_with("it has no window of this time, only from 2025-11-26T09:23:20Z"), "{why:?}");

    let none = Several::read(&[later], &between(0, 300)).unwrap_err();
    assert!(none.contains("it has no window of this time"), "{none}");
    let copy = fleet.0.join("copy");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(&first).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let twice = Several::read(&[first, copy], &between(0, 300)).unwrap_err();
    assert!(twice.contains("have the history of the same router (1)"), "{twice}");
    let empty = Several::read(&[second, fleet.0.clone()], &between(0, 300)).unwrap_err();
    assert!(empty.contains("has no history: name a folder"), "{empty}");
}
