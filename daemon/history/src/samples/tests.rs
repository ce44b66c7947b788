use std::{env, fs, net::Ipv4Addr, path::PathBuf, process};

use weir_config::{Addresses, FlowQuestion};
use weir_schema::{
    AskedFlows, Estimate, Report,
    flow_sample::{RecordKey, SampleError, SampledRecord, question::Selection},
};
use weir_sketch::hash::mix;

use super::*;
use crate::{
    archive::Limits,
    asked_flows::asked_flows,
    disk::Disk,
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

impl World {
    fn new(seed: u64, windows: Windows) -> Self {
        Self { windows, random: Random(seed), all: Vec::new(), next: 0, addresses: Addresses::Full }
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
        let sample = FlowSample::union([whole], SIZE);
        let mut report = Report { sample: Some(Box::new(sample)), ..report_of(self.next, 10, &[]) };
        for top in [&mut report.top, &mut report.top_by_packets] {
            top.unlisted.sources = Some(u64::MAX / 1_000);
        }
        let mut report = report.masked(self.addresses);
        let sample = report.sample.take().unwrap();
        let addresses = report.shown_addresses();
        let mut kept = of_report(&report, ROWS);
        self.windows.add_sample(&kept.past, *sample, SIZE, addresses);
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
        let question = FlowQuestion::parse(&answer.question, &answer.by).unwrap();
        let selection = Selection::new(&question).unwrap();
        let time = Time { from: Some(answer.from), to: Some(answer.to) };
        let is_meant = |of: &Time| time.covers(of.from.unwrap(), of.to.unwrap());
        let mut groups = std::collections::BTreeMap::<_, [u64; 2]>::new();
        let mut whole = [0; 2];
        for record in self.all.iter().filter(|(of, _)| is_meant(of)).flat_map(|(_, records)| records) {
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
