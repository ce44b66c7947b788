use std::{
    collections::BTreeMap,
    env, fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process,
};

use weir_config::{Addresses, FlowQuestion};
use weir_schema::{
    AskedFlows, Estimate, FoundKey, Report, TopDestination, TopFlow, TopPair, TopService, TopSource, TopUnlisted,
    flow_sample::{RecordKey, SampleError, SampledRecord, question::Selection},
};
use weir_sketch::hash::mix;

use super::*;
use crate::{
    archive::Limits,
    asked_flows::{asked_flows, why_none},
    disk::Disk,
    find::find,
    seconds::Seconds,
    testing::{ROWS, Random, at, report_of},
    windows::{Windows, of_report},
};

const OBSERVER: &str = "7f3c9a52";
const SIZE: usize = 200;

/// A folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("weir-samples-{name}-{}", process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LIMITS: Limits = Limits { bytes: 64 << 20, age: None, has_samples: true };

/// A history, and every record of its windows with their times.
struct World {
    windows: Windows,
    random: Random,
    all: Vec<(Time, Vec<SampledRecord>)>,
    next: i64,
    addresses: Addresses,
    size: usize,
}

fn record(src: u32, dst: u32, port: u16, tally: weir_common::ledger::Tally) -> SampledRecord {
    let [src, dst] = [0x0a00_0000 | src, 0xc000_0200 | dst].map(|bits| Ipv4Addr::from_bits(bits).into());
    let key = RecordKey {
        src,
        dst,
        src_port: 40_000,
        dst_port: port,
        vlan: 0,
        proto: 6,
        tos: 0,
        tcp_flags: 16,
        is_fragment: false,
    };
    SampledRecord { key, tally }
}

/// A row: its rank, its key, and its packets and bytes.
type Grouped<K> = (u32, K, [Estimate; 2]);
/// Addresses and ports.
type FlowKey = (IpAddr, IpAddr, u16, u16);

/// The largest groups of records with their exact sums, and the most that any other one has.
fn groups<K: Ord>(
    all: &[SampledRecord],
    by_packets: bool,
    key: impl Fn(&RecordKey) -> K,
) -> (Vec<Grouped<K>>, Option<u64>) {
    /// Fewer rows than there are keys.
    const ROWS_OF_LIST: usize = 12;
    let mut sums = BTreeMap::<K, [u64; 2]>::new();
    for record in all {
        let [packets, bytes] = sums.entry(key(&record.key)).or_default();
        (*packets, *bytes) = (*packets + record.tally.packets, *bytes + record.tally.bytes);
    }
    let order = |[packets, bytes]: [u64; 2]| if by_packets { packets } else { bytes };
    let mut sorted: Vec<_> = sums.into_iter().collect();
    sorted.sort_by_key(|(_, sums)| std::cmp::Reverse(order(*sums)));
    let unlisted = sorted.get(ROWS_OF_LIST).map_or(0, |(_, sums)| order(*sums));
    let exact = |value| Estimate { value, lower: value, upper: value, sampled: None };
    let rows = (1..).zip(sorted).take(ROWS_OF_LIST).map(|(rank, (key, sums))| (rank, key, sums.map(exact)));
    (rows.collect(), Some(unlisted))
}

/// Puts the lists of these records into a report.
fn fill(report: &mut Report, all: &[SampledRecord]) {
    let total: weir_common::ledger::Tally = all.iter().map(|record| record.tally).sum();
    (report.totals.packets, report.totals.bytes) = (total.packets, total.bytes);
    report.interfaces.clear();
    for (by_packets, top) in [(false, &mut report.top), (true, &mut report.top_by_packets)] {
        let (sources, of_sources) = groups(all, by_packets, |key| key.src);
        let row = |(rank, src_ip, [packets, bytes]): Grouped<IpAddr>| TopSource { rank, src_ip, packets, bytes };
        top.sources = sources.into_iter().map(row).collect();
        let (destinations, of_destinations) = groups(all, by_packets, |key| key.dst);
        let row = |(rank, dst_ip, [packets, bytes]): Grouped<IpAddr>| TopDestination { rank, dst_ip, packets, bytes };
        top.destinations = destinations.into_iter().map(row).collect();
        let (pairs, of_pairs) = groups(all, by_packets, |key| (key.src, key.dst));
        let row = |(rank, (src_ip, dst_ip), [packets, bytes]): Grouped<(IpAddr, IpAddr)>| TopPair {
            rank,
            src_ip,
            dst_ip,
            packets,
            bytes,
        };
        top.pairs = pairs.into_iter().map(row).collect();
        let (services, of_services) = groups(all, by_packets, |key| key.src_port.min(key.dst_port));
        let row = |(rank, port, [packets, bytes]): Grouped<u16>| TopService {
            rank,
            proto: "tcp".into(),
            port,
            packets,
            bytes,
        };
        top.services = services.into_iter().map(row).collect();
        let (flows, of_flows) = groups(all, by_packets, |key| (key.src, key.dst, key.src_port, key.dst_port));
        let row = |(rank, (src_ip, dst_ip, src_port, dst_port), [packets, bytes]): Grouped<FlowKey>| TopFlow {
            rank,
            src_ip,
            dst_ip,
            src_port,
            dst_port,
            proto: "tcp".into(),
            packets,
            bytes,
        };
        top.flows = flows.into_iter().map(row).collect();
        let (sources, destinations) = (of_sources, of_destinations);
        top.unlisted =
            TopUnlisted { hosts: None, flows: of_flows, sources, destinations, pairs: of_pairs, services: of_services };
        top.hosts.clear();
    }
}

impl World {
    fn new(seed: u64, windows: Windows) -> Self {
        Self { windows, random: Random(seed), all: Vec::new(), next: 0, addresses: Addresses::Full, size: SIZE }
    }

    /// A window of ten seconds with a heavy tail of records, and in its lists the exact sums of its sources.
    fn add(&mut self, records: usize) {
        let random = &mut self.random;
        let mut all = Vec::new();
        for _ in 0..records {
            let bits = random.below(12);
            let rank = 1 + random.below(1 << bits);
            let packets = 1 + random.below(60_000) / rank;
            let port = [443, 53, 22, 80][random.below(4) as usize];
            let (src, dst) = (rank as u32 * 7 + random.below(3) as u32, random.below(1 + rank) as u32 & 0xff);
            let size = 60 + random.below(1_400);
            all.push(record(src, dst, port, weir_common::ledger::Tally::new(packets, packets * size)));
        }
        self.add_records(all);
    }

    fn add_records(&mut self, all: Vec<SampledRecord>) {
        let total = all.iter().map(|record| record.tally).sum();
        let error = SampleError { most: total, ..SampleError::default() };
        let whole =
            FlowSample { coins: mix(self.next as u64 + 77), total, error, records: all.clone(), threshold: 0.0 };
        let sample = FlowSample::union([whole], self.size);
        let mut report = Report { sample: Some(Box::new(sample)), ..report_of(self.next, 10, &[]) };
        fill(&mut report, &all);
        let mut report = report.masked(self.addresses);
        let sample = report.sample.take().unwrap();
        let addresses = report.shown_addresses();
        let mut kept = of_report(&report, ROWS);
        self.windows.add_sample(&kept.past, *sample, self.size, addresses);
        self.windows.add(&mut kept, addresses);
        let time = Time { from: Some(report.window.start), to: Some(report.window.end) };
        self.all.push((time, all));
        self.next += 1;
    }

    fn ask(&self, from: i64, to: i64, text: &str, by: &[&str]) -> Option<AskedFlows> {
        let by: Vec<String> = by.iter().map(|name| (*name).to_owned()).collect();
        let time = Time { from: Some(at(from)), to: Some(at(to)) };
        asked_flows(&self.windows, &time, text, &by).unwrap()
    }

    /// Judges an answer as its reader meets it: its sum, each row, and every key without a row. Returns whether all
    /// bounds hold.
    fn holds(&self, answer: &AskedFlows) -> bool {
        let time = Time { from: Some(answer.from), to: Some(answer.to) };
        let is_meant = |of: &Time| time.covers(of.from.unwrap(), of.to.unwrap());
        holds_for(answer, self.all.iter().filter(|(of, _)| is_meant(of)).flat_map(|(_, records)| records))
    }
}

/// The same for the records that the answer has to be about.
fn holds_for<'r>(answer: &AskedFlows, records: impl Iterator<Item = &'r SampledRecord>) -> bool {
    let question = FlowQuestion::parse(&answer.question, &answer.by).unwrap();
    let selection = Selection::new(&question).unwrap();
    let mut groups = BTreeMap::<_, [u64; 2]>::new();
    let mut whole = [0; 2];
    for record in records {
        if selection.has(&record.key) {
            let sums = [record.tally.packets, record.tally.bytes];
            let group = groups.entry(serde_json::to_string(&selection.show(&selection.row(&record.key))).unwrap());
            let group = group.or_default();
            for nth in [0, 1] {
                whole[nth] += sums[nth];
                group[nth] += sums[nth];
            }
        }
    }
    let is_within = |estimate: Estimate, truth| estimate.lower <= truth && truth <= estimate.upper;
    let mut holds = is_within(answer.packets, whole[0]) && is_within(answer.bytes, whole[1]);
    for row in &answer.rows {
        let truth = groups.remove(&serde_json::to_string(&row.key).unwrap()).unwrap_or_default();
        holds &= is_within(row.packets.unwrap(), truth[0]) && is_within(row.bytes.unwrap(), truth[1]);
        assert!(row.bytes.unwrap().upper <= answer.bytes.upper && row.bytes.unwrap().value <= answer.bytes.value);
    }
    if let Some(at_most) = answer.at_most {
        holds &= groups.values().all(|[packets, bytes]| *packets <= at_most.packets && *bytes <= at_most.bytes);
    }
    holds
}

/// What people look for besides single keys.
const SOUGHT: [&str; 6] =
    ["10.0.0.0/25", ":443", "tcp/22", "src_ip=10.0.0.0/24,dst_port=53", "src_ip=10.0.0.7", "dst_ip!=192.0.2.0/29"];

impl World {
    /// Looks for parts of the traffic. Returns how many answers there were, and how many bounds failed.
    fn find(&self, from: i64, to: i64) -> (u32, u32) {
        let time = Time { from: Some(at(from)), to: Some(at(to)) };
        let Some(found) = find(&self.windows, &time, &SOUGHT.map(str::to_owned)).unwrap() else { return (0, 0) };
        let is_meant = |of: &Time| found.from < of.to.unwrap() && of.from.unwrap() < found.to;
        let all: Vec<_> = self.all.iter().filter(|(of, _)| is_meant(of)).flat_map(|(_, records)| records).collect();
        let mut failed = 0;
        for FoundKey { key, packets, bytes, at_most, .. } in &found.keys {
            // The list of services has both directions under the lower port, and all records here are of TCP.
            let asked = if key == "proto=tcp,port=22" { "port=22" } else { key };
            let selection = Selection::new(&FlowQuestion::parse(asked, &[]).unwrap()).unwrap();
            let selected = all.iter().filter(|record| selection.has(&record.key));
            let truth: weir_common::ledger::Tally = selected.map(|record| record.tally).sum();
            let lower = |of: &Option<Estimate>| of.map_or(0, |of| of.lower);
            let holds = (lower(packets)..=at_most.packets).contains(&truth.packets)
                && (lower(bytes)..=at_most.bytes).contains(&truth.bytes);
            failed += u32::from(!holds && found.missing.is_empty());
        }
        (found.keys.len() as u32, failed)
    }
}

const QUESTIONS: [(&str, &[&str]); 6] = [
    ("dst_port=443", &["dst_ip"]),
    ("src_ip=10.0.0.0/24,dst_port!=22", &["src_ip"]),
    ("host=192.0.2.0/28", &["src_ip/24", "dst_port"]),
    ("proto=tcp", &["src_ip", "dst_ip"]),
    ("dst_port=50-60", &[]),
    ("src_ip=10.0.0.7", &["dst_port"]),
];

/// Times begin and end anywhere, weir is started again, and some windows are nearly empty.
#[test]
#[expect(clippy::print_stdout, reason = "how often bounds failed")]
fn bounds_hold_over_random_times_and_restarts() {
    let folder = Folder::new("random");
    let (mut answers, mut failed) = (0, 0);
    let mut world = World::new(3, loaded(&folder));
    for step in 0..260_u64 {
        let records = if step % 40 == 39 { 3_000 } else { 20 + mix(step) as usize % 600 };
        world.add(records);
        if step % 57 == 56 {
            // An orderly end, and a pause of some windows.
            world.windows.finish_samples();
            Disk::new(&folder.0, OBSERVER).write_open(&world.windows);
            world.windows = loaded(&folder);
            world.next += (mix(step) % 9) as i64;
        }
        if step % 3 != 2 {
            continue;
        }
        let end = world.next * 10;
        let from = (mix(step ^ 5) % end as u64) as i64;
        let to = from + 1 + (mix(step ^ 7) % (end - from) as u64) as i64;
        let (text, by) = QUESTIONS[step as usize % QUESTIONS.len()];
        let Some(answer) = world.ask(from, to, text, by) else { continue };
        assert!(answer.from <= at(to) && at(from) <= answer.to);
        let is_whole = answer.to.duration_since(answer.from).as_secs() == 10 * answer.windows as i64;
        assert!(is_whole || !answer.missing.is_empty(), "{answer:?}");
        (answers, failed) = (answers + 1, failed + u32::from(!world.holds(&answer)));
        let (all, wrong) = world.find(from, to);
        (answers, failed) = (answers + all, failed + wrong);
    }
    println!("{failed} of {answers} answers failed");
    assert!(answers > 60 && failed == 0, "{failed} of {answers}");
}

fn loaded(folder: &Folder) -> Windows {
    let mut windows = Windows::with_samples(1 << 20, 64 << 10, Addresses::Full);
    Disk::new(&folder.0, OBSERVER).load(&mut windows, &mut Seconds::default(), LIMITS);
    windows
}

/// Where minutes would be too many, an answer has hours; and each window once.
#[test]
fn long_times_are_answered_by_hours_and_no_window_counts_twice() {
    let mut world = World::new(9, Windows::with_samples(8 << 20, 32 << 20, Addresses::Full));
    for _ in 0..6 * 60 * 8 {
        world.add(40);
    }
    for (from, to, is_long) in [(0, 8 * 3600, true), (1_000, 27_000, true), (1_000, 9_000, false)] {
        let answer = world.ask(from, to, "dst_port=443", &["dst_ip"]).unwrap();
        let minutes = (to + 59) / 60 - from / 60;
        assert_eq!(answer.windows as i64, 6 * minutes, "{from} to {to}");
        let records = answer.records.sampled;
        assert_eq!(records < 120 * minutes as u64, is_long, "{records} records of {minutes} minutes");
        assert!(answer.missing.is_empty() && world.holds(&answer), "{answer:?}");
    }
    // All of it is known exactly, though the records are not.
    let all = world.ask(0, 8 * 3600, "", &["dst_port"]).unwrap();
    assert!(world.holds(&all));
    assert_eq!((all.packets.lower, all.bytes.lower), (all.packets.upper, all.bytes.upper));
}

#[test]
#[expect(clippy::print_stdout, reason = "docs/HISTORY.md says how to print the sizes")]
fn the_size_of_a_sample_is_that_which_the_plan_states() {
    let mut world = World::new(4, Windows::with_samples(8 << 20, 8 << 20, Addresses::Full));
    for _ in 0..60 {
        world.add(500);
    }
    let minutes = world.windows.samples().minutes.bytes() / 10;
    let bytes = minutes / SIZE as u64;
    println!("{minutes} bytes a minute, {bytes} a record");
    assert!(bytes <= crate::reach::BYTES_OF_RECORD, "{bytes} bytes a record");
}

#[test]
fn a_stricter_setting_hides_what_is_less_strict_and_masked_records_answer_no_more() {
    let mut world = World::new(4, Windows::with_samples(1 << 20, 1 << 20, Addresses::Full));
    (0..12).for_each(|_| world.add(50));
    world.addresses = Addresses::Prefix;
    (0..12).for_each(|_| world.add(50));
    let missing = |answer: Option<AskedFlows>| {
        answer.map(|answer| answer.missing.iter().map(|gap| (gap.start, gap.end)).collect::<Vec<_>>())
    };
    // Whole addresses are in the first two minutes only.
    assert_eq!(missing(world.ask(0, 240, "src_ip=10.0.0.7", &[])), Some(vec![(at(120), at(240))]));
    assert_eq!(missing(world.ask(0, 240, "proto=tcp", &["dst_ip"])), Some(vec![(at(120), at(240))]));
    assert_eq!(missing(world.ask(0, 240, "src_ip=10.0.0.0/24", &[])), Some(vec![]));
    assert_eq!(world.ask(120, 240, "src_ip=10.0.0.7", &[]), None);
    world.windows.mask(Addresses::Prefix);
    assert_eq!(missing(world.ask(0, 240, "src_ip=10.0.0.0/24", &[])), Some(vec![(at(0), at(120))]));
    let answer = world.ask(0, 240, "proto=tcp", &["dst_ip"]).unwrap();
    assert_eq!(answer.by, ["dst_ip/24/48"]);
    assert_eq!(answer.rows[0].key["dst_ip"], "192.0.2.0/24");
    let time = Time::default();
    let why = asked_flows(&world.windows, &time, "src_ip=10.0.0.7", &[]).unwrap_err();
    assert!(why.contains("only questions about networks"), "{why}");
}

/// A group for each record: more than there is room for.
#[test]
fn very_many_groups_take_fixed_memory_and_their_bounds_hold() {
    let mut world = World::new(6, Windows::with_samples(8 << 20, 32 << 20, Addresses::Full));
    for nth in 0..6 * 200_u32 {
        let records = (0..60).map(|one| {
            let packets = if one < 3 { 5_000 } else { 1 };
            let source = if one < 3 { one } else { 0x1_0000 + nth * 60 + one };
            record(source, one, 443, weir_common::ledger::Tally::new(packets, packets * 100))
        });
        world.add_records(records.collect());
    }
    let answer = world.ask(0, 12_000, "dst_port=443", &["src_ip"]).unwrap();
    assert!(answer.rows.len() == 100 && answer.records.selected > 1 << 14, "{} records", answer.records.selected);
    let first: Vec<_> = answer.rows[..3].iter().map(|row| row.key["src_ip"].as_str().unwrap()).collect();
    assert!(["10.0.0.0", "10.0.0.1", "10.0.0.2"].iter().all(|of| first.contains(of)), "{first:?}");
    assert!(world.holds(&answer));
}

/// Windows that belong to one minute: its start, its end, and all records.
struct Minute {
    start: i64,
    end: i64,
    records: Vec<SampledRecord>,
}

/// Random lives of a weir: over midnight, with steps of the clock, reloads, orderly ends and SIGKILL.
#[test]
#[expect(clippy::print_stdout, reason = "how often bounds failed")]
fn bounds_hold_over_midnight_steps_of_the_clock_reloads_and_kills() {
    let (mut answers, mut failed, mut killed) = (0, 0, 0);
    for seed in 0..8 {
        let folder = Folder::new(&format!("lives-{seed}"));
        let mut world = World::new(seed, loaded(&folder));
        // The day ends after some windows.
        world.next = (86_400 - crate::testing::START.rem_euclid(86_400)) / 10 - 20;
        let mut minutes: Vec<Minute> = Vec::new();
        let mut is_open = false;
        for step in 0..150_u64 {
            world.add(5 + mix(step ^ seed << 8) as usize % 300);
            let (start, records) = ((world.next - 1) * 10, world.all.last().unwrap().1.clone());
            let part = |second: i64| (crate::testing::START + second).div_euclid(60);
            let continues = |last: &&mut Minute| is_open && part(last.start) == part(start) && last.end == start;
            match minutes.last_mut().filter(continues) {
                Some(last) => {
                    last.end = start + 10;
                    last.records.extend(records);
                }
                None => minutes.push(Minute { start, end: start + 10, records }),
            }
            is_open = part(minutes.last().unwrap().start) == part(start + 10);
            match world.random.below(40) {
                0 => world.next += 1 + world.random.below(30) as i64,
                1 => world.next -= 1 + world.random.below(12) as i64,
                2 => world.size = 50 + world.random.below(300) as usize,
                3 => {
                    world.windows.finish_samples();
                    Disk::new(&folder.0, OBSERVER).write_open(&world.windows);
                    (world.windows, is_open) = (loaded(&folder), false);
                }
                4 => {
                    // The minute that is not complete is lost, and so are the windows of the lists since their last
                    // block.
                    if is_open {
                        minutes.pop();
                    }
                    killed += 1;
                    (world.windows, is_open) = (loaded(&folder), false);
                }
                _ => {}
            }
            let (first, last) = (world.next - 150, world.next + 20);
            let from = 10 * first + world.random.below(10 * (last - first) as u64) as i64;
            let to = from + 1 + world.random.below(900) as i64;
            let (text, by) = QUESTIONS[step as usize % QUESTIONS.len()];
            let touched: Vec<_> = minutes.iter().filter(|of| of.start < to && from < of.end).collect();
            let Some(answer) = world.ask(from, to, text, by) else {
                assert_eq!(touched.len(), 0, "{from} to {to}");
                continue;
            };
            let (start, end) = (touched.iter().map(|of| of.start).min(), touched.iter().map(|of| of.end).max());
            assert_eq!((Some(answer.from), Some(answer.to)), (start.map(at), end.map(at)), "{from} to {to}");
            let records = touched.iter().flat_map(|of| &of.records);
            (answers, failed) = (answers + 1, failed + u32::from(!holds_for(&answer, records)));
        }
    }
    println!("{failed} of {answers} answers failed, {killed} times killed");
    assert!(answers > 500 && killed > 10 && failed == 0, "{failed} of {answers}, {killed} times killed");
}

/// A folder whose samples are damaged says so, and not that addresses are masked.
#[test]
fn damaged_samples_are_named_where_nothing_else_is_left() {
    let folder = Folder::new("damaged");
    let mut world = World::new(3, loaded(&folder));
    (0..18).for_each(|_| world.add(200));
    world.windows.finish_samples();
    Disk::new(&folder.0, OBSERVER).write_open(&world.windows);
    let damage = |which: &[usize]| {
        let path = folder.0.join("samples-000000000000");
        let mut bytes = fs::read(&path).unwrap();
        let blocks: Vec<_> = (0..bytes.len() - 8).filter(|at| bytes[*at..*at + 8] == crate::block::MAGIC).collect();
        which.iter().for_each(|nth| bytes[blocks[*nth] + 40] ^= 1);
        fs::write(path, bytes).unwrap();
    };
    let why = |windows: &Windows, from: i64, to: i64, text: &str| {
        let time = Time { from: Some(at(from)), to: Some(at(to)) };
        assert_eq!(asked_flows(windows, &time, text, &[]).unwrap(), None);
        why_none(windows, &time, text, &[])
    };
    damage(&[1]);
    // As `--path` reads a folder.
    let stored = || {
        let mut windows = Windows::with_samples(1 << 20, 64 << 10, Addresses::Full);
        Disk::new(&folder.0, OBSERVER).read_only(&mut windows, LIMITS);
        windows
    };
    world.windows = stored();
    let gap = Gap { start: at(60), end: at(120) };
    assert_eq!(world.ask(0, 180, "dst_port=443", &[]).unwrap().missing, [gap]);
    let of_one = why(&world.windows, 60, 120, "dst_port=443");
    assert!(of_one.contains("the one from 2025-11-26T08:01:00Z to 2025-11-26T08:02:00Z is damaged"), "{of_one}");
    damage(&[0, 2]);
    let of_all = why(&stored(), 0, 180, "dst_port=443");
    assert!(of_all.contains("3 of them, from 2025-11-26T08:00:00Z") && !of_all.contains("masked"), "{of_all}");
    let later = why(&stored(), 10_000, 20_000, "dst_port=443");
    assert!(later.starts_with("there is no sample of flow records of this time: the history has samples "), "{later}");
    let mut masked = World::new(4, Windows::with_samples(1 << 20, 1 << 20, Addresses::Full));
    masked.addresses = Addresses::Prefix;
    (0..12).for_each(|_| masked.add(50));
    let of_masked = why(&masked.windows, 0, 120, "src_ip=10.0.0.7");
    assert!(of_masked.contains("2 of them") && of_masked.contains("have masked addresses"), "{of_masked}");
}
