//! Routers with overlapping traffic, of which some report late, twice, never, with another
//! number of registers or with another key.
//!
//! `WEIR_FLEET=full` takes 200 routers and 100 windows.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    env,
    fs::{self, OpenOptions},
    io::Write as _,
    net::IpAddr,
    num::NonZero,
    path::PathBuf,
    process,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use expect_test::expect_file;
use jiff::Timestamp;
use weir_common::{
    flow::{Address, FlowKey},
    ledger::{Ledger, Loss, Tally},
    record::Record,
};
use weir_config::{self as config, Export, ExportViews};
use weir_datapath::{
    edge::{Edge, lose},
    interface::{Counts, MeasuredInterface},
};
use weir_measure::{order::Closed, question::Views, shard::Shard, window::Span};
use weir_merge::{
    Answer, By, Live, Settings,
    answer::{ListAnswer, Sums, What, WindowAnswer},
};
use weir_report::closing::{Closing, Times};
use weir_schema::{
    Encoded, Reason, Report,
    sketches::{self, ListSketch},
};
use weir_sketch::{
    Estimate,
    datasketches::{PUBLIC, hll},
    hash::{Key, mix},
};
use weir_system::numbers::{count, scaled};
use weir_top::{Request, Source as _, Update, picture};

use super::router;

const SECRET: Key = Key([1, 2]);
const OTHER_SECRET: Key = Key([3, 4]);
const START: i64 = 1_763_942_400;
const SECONDS: u64 = 10;
/// Sources of the whole fleet. Each router sees a third of them.
const SOURCES: u64 = 3_000;
/// Records of a router in a window.
const RECORDS: u64 = 600;
/// Sources that are large.
const LARGE: u64 = 30;
const TOP: usize = 20;
const LONG: usize = 60;

/// How large the fleet is.
#[derive(Clone, Copy)]
struct Size {
    routers: u64,
    windows: u64,
}

impl Size {
    fn chosen() -> Self {
        match env::var("WEIR_FLEET").as_deref() {
            Ok("full") => Self { routers: 200, windows: 100 },
            _ => Self { routers: 12, windows: 8 },
        }
    }
}

/// Returns the size of a router's registers: two routers have smaller ones.
fn lg_k(router: u64) -> u32 {
    if router == 3 || router == 7 { 11 } else { 12 }
}

fn secret(router: u64) -> Key {
    if router == 5 { OTHER_SECRET } else { SECRET }
}

/// Returns the packets that a router loses in each window.
fn lost(router: u64) -> Tally {
    if router == 1 { Tally::new(3, 300) } else { Tally::default() }
}

/// A number that chance has chosen, below `below`.
fn draw(below: u64, of: [u64; 4]) -> u64 {
    of.into_iter().fold(0, |state, part| mix(state ^ part)) % below
}

/// A flow and its packets. The first ones are of large sources, which most routers see; a small source is seen by one
/// or two of three routers.
fn record(router: u64, window: u64, nth: u64) -> Record {
    let chance = |what| draw(1 << 32, [router, window, nth, what]);
    let is_large = nth < LARGE && !(router + nth).is_multiple_of(5);
    let (source, packets, bytes) = if is_large {
        (nth, 40 + chance(1) % 9, (3e6 * 0.85_f64.powi(nth as i32)) as u64 + chance(6) % 1_000)
    } else {
        (LARGE + (chance(2) % (SOURCES / 3)) * 3 + (router + chance(3) % 2) % 3, 1, 60 + chance(6) % 1_400)
    };
    let [src, dst] = [0x0a00_0000 + source, 0xc633_6400 + chance(4) % 900];
    let [src, dst] = [src, dst].map(|word| Address::from_v4_word((word as u32).to_be()));
    let key = FlowKey::new(src, dst, 6, 0).with_ports(50_000 + (chance(5) % 2) as u16, 443);
    Record { key, packets: packets as u32, bytes, sampling: 1, ..Record::default() }
}

/// The truth about a window.
#[derive(Clone, Default)]
struct Truth {
    /// The packets of all routers.
    total: Tally,
    lost: Tally,
    by_source: HashMap<IpAddr, Tally>,
    /// The sources of routers that have the fleet's key and size.
    sources: HashSet<IpAddr>,
    flows: HashSet<(IpAddr, IpAddr, u16)>,
}

/// One router, which measures one window after the other.
struct Router {
    number: u64,
    closing: Closing,
    shard: Option<Box<Shard>>,
}

impl Router {
    /// A router that exports sketches with each report.
    fn new(number: u64) -> Self {
        Self::starting(number, START, SECONDS)
    }

    /// A router whose first window begins at this second, with this interval of exports.
    fn starting(number: u64, start: i64, every: u64) -> Self {
        let export = Export {
            views: ExportViews::All,
            every: Duration::from_secs(every),
            lg_k: lg_k(number),
            ..Export::default()
        };
        let mut config = config::Config { export, ..config::Config::default() };
        router::make_small(&mut config);
        config.observer = config::Observer { name: Some(format!("edge-{number}")), site: Some(site(number)) };
        let views = Views::new(&config, 1).unwrap();
        let (closing, shard) = router::begin(&config, views, (number, secret(number)), second(start));
        Self { number, closing, shard: Some(shard) }
    }

    fn report(&mut self, window: u64, records: &[Record]) -> Report {
        let start = START + (SECONDS * window) as i64;
        self.report_of(start, start + SECONDS as i64, records)
    }

    /// The report of the window that begins at this second of the router's clock. `next` is when the next one begins.
    fn report_of(&mut self, start: i64, next: i64, records: &[Record]) -> Report {
        let mut shard = self.shard.take().unwrap();
        shard.absorb(records, &self.closing.seen);
        shard.settle(&self.closing.seen);
        let mut edge = Edge::empty(1);
        edge.counters[0].seen = records.iter().map(Record::tally).sum();
        lose(&mut edge.counters[0], Loss::ALL[0], lost(self.number), Tally::default(), false);
        let mut closed = [Closed::new(shard, edge)];
        let span = Span {
            start: second(start),
            end: second(start + SECONDS as i64),
            length: Duration::from_secs(SECONDS),
            clock_step: None,
            late_packets: None,
            untimed_packets: None,
        };
        self.closing.advance(second(next), false);
        let report = self.closing.report(&mut closed, span, Vec::new(), None, account, Vec::new()).unwrap();
        let time = |second: i64| Duration::from_secs(second.unsigned_abs());
        self.closing.rotate(Times { span, begin: time(start), end: time(start + SECONDS as i64) });
        let [Closed { mut shard, .. }] = closed;
        shard.clear();
        self.closing.keys.equip(&mut shard);
        self.shard = Some(shard);
        assert_eq!(report.observer.name, format!("edge-{}", self.number));
        report
    }
}

fn account(_: &[Ledger]) -> Vec<MeasuredInterface> {
    vec![MeasuredInterface {
        slot: Some(0),
        name: "wan0".to_owned(),
        earlier_name: None,
        index: None,
        alias: None,
        vrf: None,
        mode: "replay",
        counts: Counts::Packets,
        direction: None,
        feeds: "all",
        coverage: None,
        coverage_bytes: None,
        unseen: None,
        blind: None,
        trouble: None,
    }]
}

fn site(router: u64) -> String {
    format!("site-{}", router % 4)
}

fn at(window: u64) -> Timestamp {
    second(START + (SECONDS * window) as i64)
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// The fate of a report on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    Late,
    Twice,
    Missing,
    Dropped,
}

/// The last report of a router always arrives, because otherwise no reader could know that it is missing.
fn fate(size: Size, router: u64, window: u64) -> Fate {
    let is_inside = (1..size.windows - 1).contains(&window);
    match (draw(100, [router, window, 0, 7]), is_inside) {
        (0, true) if router % 10 == 1 => Fate::Dropped,
        (0, true) => Fate::Missing,
        (1, _) => Fate::Twice,
        (2..7, true) if window + 3 < size.windows => Fate::Late,
        _ => Fate::Arrives,
    }
}

/// The fates of the reports of a small fleet are chosen, so that each occurs.
fn chosen_fate(size: Size, router: u64, window: u64) -> Fate {
    if size.routers > 100 {
        return fate(size, router, window);
    }
    match (router, window) {
        (2, 3 | 4) | (9, 1) => Fate::Missing,
        (1, 4) => Fate::Dropped,
        (4, 2) => Fate::Twice,
        // No later report of router 10 comes before its first late one, so no reader can know that it is late.
        (6, 1) | (0, 3) | (8, 2) | (10, 1 | 2) => Fate::Late,
        (10, 3) => Fate::Missing,
        _ => Fate::Arrives,
    }
}

/// A report or a tombstone on its way.
struct Arriving {
    /// The window after which it arrives.
    time: u64,
    /// The number of the router.
    number: u64,
    /// The number of the report.
    seq: Option<u64>,
    line: String,
}

/// The reports as they arrive, and the truth about those that do.
#[derive(Default)]
struct Fleet {
    /// Lines in any order, until all are made.
    arriving: Vec<Arriving>,
    lines: Vec<String>,
    truths: Vec<Truth>,
    fates: BTreeMap<(u64, &'static str), u64>,
    fleet_key: String,
}

impl Fleet {
    /// Routers are made on all CPUs: the full fleet takes 85 s of CPU time, most of it for them.
    fn new(size: Size) -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get) as u64;
        let parts: Vec<Self> = thread::scope(|scope| {
            let part =
                |first: u64| scope.spawn(move || Self::of(size, (first..size.routers).step_by(threads as usize)));
            let parts: Vec<_> = (0..threads).map(part).collect();
            parts.into_iter().map(|part| part.join().unwrap()).collect()
        });
        let mut fleet = parts.into_iter().reduce(Self::with).unwrap();
        fleet.arriving.sort_by_key(|one| (one.time, one.number));
        fleet.count_late();
        fleet.lines = fleet.arriving.drain(..).map(|one| one.line.trim().to_owned()).collect();
        fleet
    }

    /// Returns the union of both fleets.
    fn with(mut self, other: Self) -> Self {
        self.arriving.extend(other.arriving);
        let truths = self.truths.into_iter().zip(other.truths);
        self.truths = truths.map(|(one, other)| one.with(other)).collect();
        self.fates.extend(other.fates);
        self.fleet_key += &other.fleet_key;
        self
    }

    /// Runs some of the routers.
    fn of(size: Size, routers: impl Iterator<Item = u64>) -> Self {
        let truths = (0..size.windows).map(|_| Truth::default()).collect();
        let mut fleet = Self { truths, ..Self::default() };
        for number in routers {
            let mut router = Router::new(number);
            for window in 0..size.windows {
                let records: Vec<Record> = (0..RECORDS).map(|nth| record(number, window, nth)).collect();
                let report = router.report(window, &records);
                if number == 0 {
                    fleet.fleet_key.clone_from(&report.key_id);
                }
                let line = String::from_utf8(Encoded::new(&report).line.to_vec()).unwrap();
                let (fate, seq) = (chosen_fate(size, number, window), Some(report.observer.seq));
                let mut count = |name| *fleet.fates.entry((number, name)).or_default() += 1;
                // By the time of arrival: those of a window come after its end, and late ones three windows later.
                let arriving = &mut fleet.arriving;
                match fate {
                    Fate::Arrives => arriving.push(Arriving { time: window, number, seq, line }),
                    Fate::Late => arriving.push(Arriving { time: window + 3, number, seq, line }),
                    Fate::Twice => {
                        count("twice");
                        arriving.push(Arriving { time: window + 1, number, seq, line: line.clone() });
                        arriving.push(Arriving { time: window, number, seq, line });
                    }
                    Fate::Missing => count("missing"),
                    Fate::Dropped => {
                        count("dropped");
                        arriving.push(Arriving { time: window, number, seq: None, line: tombstone(&report) });
                    }
                }
                if !matches!(fate, Fate::Missing | Fate::Dropped) {
                    fleet.truths[window as usize].add(&records, number);
                }
            }
        }
        fleet
    }

    /// Counts the reports that come after a later one of their router. One that was held back is not late if none that
    /// is later came before it: then it cannot be told from one that was sent late.
    fn count_late(&mut self) {
        let mut came: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for (number, seq) in self.arriving.iter().filter_map(|one| Some((one.number, one.seq?))) {
            let came = came.entry(number).or_default();
            let is_late = came.last().is_some_and(|last| seq < *last);
            if came.insert(seq) && is_late {
                *self.fates.entry((number, "late")).or_default() += 1;
            }
        }
    }

    fn merged(&self, settings: Settings) -> Answer {
        let file = Scratch::new(&self.lines.join("\n"));
        weir_merge::merge(std::slice::from_ref(&file.0), settings, false).unwrap()
    }

    /// How many reports had this fate.
    fn fate(&self, name: &str) -> u64 {
        self.fates.iter().filter(|((_, fate), _)| *fate == name).map(|(_, count)| count).sum()
    }
}

fn tombstone(report: &Report) -> String {
    let weir_schema::Observer { id, boot_id, seq, .. } = &report.observer;
    let reason = Reason::SpoolFull.name();
    format!(
        r#"{{"schema":"weir.tombstone/1","id":"{id}/{boot_id}/{seq}-{seq}","observer":{{"id":"{id}","boot_id":"{boot_id}"}},"first_seq":{seq},"last_seq":{seq},"reports":1,"reason":"{reason}"}}"#
    )
}

impl Truth {
    /// Adds what a router had in a window.
    fn add(&mut self, records: &[Record], router: u64) {
        let is_fleet = lg_k(router) == 12 && secret(router) == SECRET;
        self.lost.add(lost(router));
        self.total.add(lost(router));
        for record in records {
            let source = record.key.src_ip();
            self.total.add(record.tally());
            self.by_source.entry(source).or_default().add(record.tally());
            if is_fleet {
                self.flows.insert((source, record.key.dst_ip(), record.key.src_port()));
                self.sources.insert(source);
            }
        }
    }

    /// Returns the union of both.
    fn with(mut self, other: Self) -> Self {
        self.total.add(other.total);
        self.lost.add(other.lost);
        for (source, tally) in other.by_source {
            self.by_source.entry(source).or_default().add(tally);
        }
        self.sources.extend(other.sources);
        self.flows.extend(other.flows);
        self
    }

    /// The largest sources by bytes.
    fn top(&self) -> Vec<String> {
        let mut all: Vec<_> =
            self.by_source.iter().map(|(key, tally)| (std::cmp::Reverse(tally.bytes), key.to_string())).collect();
        all.sort();
        all.into_iter().take(TOP).map(|(_, key)| key).collect()
    }

    /// How many of the two distinct counts are outside their bounds. Sums have to hold always.
    fn failures(&self, window: &WindowAnswer) -> usize {
        assert_eq!((window.totals, window.lost), (self.total.into(), self.lost.into()));
        let list = window.lists.iter().find(|list| list.name == "sources").unwrap();
        let rows: Vec<&str> = list.by_bytes.iter().map(|row| &*row.key).collect();
        assert_eq!(rows, self.top());
        for row in list.by_bytes.iter().chain(&list.by_packets) {
            let truth = self.by_source[&row.key.parse().unwrap()];
            assert!(row.bytes.lower <= truth.bytes && truth.bytes <= row.bytes.upper, "{row:?}: {truth:?}");
            assert!(row.packets.lower <= truth.packets && truth.packets <= row.packets.upper, "{row:?}: {truth:?}");
        }
        let listed: HashSet<IpAddr> = rows.iter().map(|row| row.parse().unwrap()).collect();
        for (key, truth) in self.by_source.iter().filter(|(key, _)| !listed.contains(key)) {
            let most = list.by_bytes.last().map_or(0, |row| row.bytes.upper).max(list.others.bytes);
            assert!(truth.bytes <= most, "{key} has {truth:?}, and others at most {most}");
        }
        let fails = |(name, truth): (&str, usize)| {
            let count = window.distinct.iter().find(|count| count.name == name && count.is_fleet).unwrap();
            !(count.lower..=count.upper).contains(&(truth as u64))
        };
        [("unique.src_ip", self.sources.len()), ("unique.flows", self.flows.len())]
            .into_iter()
            .filter(|one| fails(*one))
            .count()
    }
}

/// The sketches of a window, added up as docs/FLEET.md says, without the code of `weir merge`.
#[derive(Default)]
struct Reference {
    /// The highest value of each register, by name, `lg_k` and key, and how many packets are missing.
    registers: BTreeMap<(String, u32, String), (Vec<u8>, u64)>,
    lists: BTreeMap<String, Vec<ListSketch>>,
}

impl Reference {
    /// The sketches of the reports that began in a window, each report once.
    fn of<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Self {
        let mut reference = Self::default();
        for sketches in reports.into_iter().flat_map(|report| &report.sketches) {
            for one in &sketches.distinct {
                let image = sketches::decode(&one.hll).unwrap();
                let registers = &image[40..40 + (1 << one.lg_k)];
                let place = (one.name.clone(), one.lg_k, one.key_id.clone());
                let new = || (vec![0; registers.len()], 0);
                let (all, missing) = reference.registers.entry(place).or_insert_with(new);
                *missing += one.missing_packets;
                for (highest, register) in all.iter_mut().zip(registers) {
                    *highest = (*highest).max(*register);
                }
            }
            for list in &sketches.lists {
                reference.lists.entry(list.name.clone()).or_default().push(list.clone());
            }
        }
        reference
    }

    /// Every count and every row of the answer is that of the reference.
    fn check(&self, window: &WindowAnswer, top: usize) {
        assert_eq!(window.distinct.len(), self.registers.len());
        for count in &window.distinct {
            let place = (count.name.clone(), count.lg_k, count.key_id.clone().unwrap());
            // The sketch of DataSketches: 40 bytes of preamble, the registers, and no mark.
            let mut image = vec![0; 40];
            image[..8].copy_from_slice(&[10, 1, 7, count.lg_k as u8, 0, 16, 0, 10]);
            let (registers, missing) = &self.registers[&place];
            image.extend(registers);
            let Estimate { value, lower, upper } = hll::read(&image, PUBLIC).unwrap().bounds();
            assert_eq!((count.value, count.lower, count.upper), (value, lower, upper + missing), "{place:?}");
        }
        assert_eq!(window.lists.len(), self.lists.len());
        for found in &window.lists {
            let lists = &self.lists[&found.name];
            let most = |of: fn(&ListSketch) -> &[u64]| {
                (0..sketches::WIDTH).map(|cell| lists.iter().map(|list| of(list)[cell]).sum::<u64>()).max().unwrap()
            };
            let others = Sums { packets: most(|list| &list.rest_packets), bytes: most(|list| &list.rest_bytes) };
            assert_eq!(found.others, others, "{}", found.name);
            for row in found.by_bytes.iter().chain(&found.by_packets) {
                let sums = row_of(lists, &row.key);
                let own = [row.packets.lower, row.packets.upper, row.bytes.lower, row.bytes.upper];
                assert_eq!(own, sums, "{} {}", found.name, row.key);
            }
            if lists.len() < 20 {
                check_certain(found, lists, top);
            }
        }
    }
}

/// A row by bytes is certain if fewer than `top` other keys may have more than it has at least.
fn check_certain(found: &ListAnswer, lists: &[ListSketch], top: usize) {
    let keys: BTreeSet<&String> = lists.iter().flat_map(|list| &list.keys).collect();
    let uppers: Vec<(&String, u64)> = keys.into_iter().map(|key| (key, row_of(lists, key)[3])).collect();
    for row in &found.by_bytes {
        let larger = uppers.iter().filter(|(key, upper)| **key != row.key && *upper > row.bytes.lower).count();
        let is_certain = larger < top && found.others.bytes <= row.bytes.lower;
        assert_eq!(row.is_certain, is_certain, "{} {row:?}: {larger} may be larger", found.name);
    }
}

/// The least and the most packets and bytes of a key: the sum of its rows, and of its cells where it has none.
fn row_of(lists: &[ListSketch], key: &str) -> [u64; 4] {
    let place = |list: &ListSketch| list.keys.iter().position(|known| known == key);
    let cell = lists.iter().find_map(|list| Some(list.cells[place(list)?])).unwrap() as usize;
    let of = |list: &ListSketch| match place(list) {
        Some(nth) => [list.packets_lower[nth], list.packets_upper[nth], list.bytes_lower[nth], list.bytes_upper[nth]],
        None => [0, list.rest_packets[cell], 0, list.rest_bytes[cell]],
    };
    lists.iter().map(of).reduce(|sum, one| std::array::from_fn(|nth| sum[nth] + one[nth])).unwrap()
}

/// A file that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(content: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("weir-fleet-{}-{nth}", process::id()));
        fs::write(&path, content).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The defects of this kind: the name of the router, and how many reports.
fn defects(answer: &Answer, what: What) -> BTreeMap<&str, u64> {
    answer.defects.iter().filter(|one| one.what == what).map(|one| (&*one.name, one.reports)).collect()
}

#[test]
fn a_fleet_answers_truly_and_names_every_defect() {
    let size = Size::chosen();
    let fleet = Fleet::new(size);
    let window = Some(Duration::from_secs(SECONDS));
    let answer = fleet.merged(Settings { window, by: By::All, top: TOP });
    assert_eq!(answer.windows.len() as u64, size.windows);
    let mut reports: BTreeMap<String, Report> = BTreeMap::new();
    for report in fleet.lines.iter().filter_map(|line| serde_json::from_str::<Report>(line).ok()) {
        reports.insert(report.id.clone(), report);
    }
    // Longer lists have rows that are not certain.
    let long = fleet.merged(Settings { window, by: By::All, top: LONG });
    for (start, (found, long)) in (0..).map(at).zip(answer.windows.iter().zip(&long.windows)) {
        let reference = Reference::of(reports.values().filter(|report| report.window.start == start));
        reference.check(found, TOP);
        reference.check(long, LONG);
        assert!(long.lists.iter().any(|list| list.by_bytes.iter().any(|row| !row.is_certain)));
    }
    let failures: usize = fleet.truths.iter().zip(&answer.windows).map(|(truth, window)| truth.failures(window)).sum();
    let counts = 2 * answer.windows.len();
    assert!(failures * 1_000 <= counts.max(1_000), "{failures} of {counts} distinct counts are outside their bounds");

    let per_router = |name: &'static str| {
        let of =
            |((router, fate), count): (&(u64, &str), &u64)| (*fate == name).then(|| (format!("edge-{router}"), *count));
        fleet.fates.iter().filter_map(of).collect::<BTreeMap<String, u64>>()
    };
    for (name, what) in [("missing", What::Gap), ("dropped", What::Tombstone), ("twice", What::Duplicate)] {
        assert!(fleet.fate(name) > 0, "{name}");
        let found: BTreeMap<String, u64> =
            defects(&answer, what).into_iter().map(|(name, reports)| (name.to_owned(), reports)).collect();
        assert_eq!(found, per_router(name), "{name}");
    }
    let late = per_router("late");
    assert!(!late.is_empty());
    assert_eq!(defects(&answer, What::Late), late.iter().map(|(router, reports)| (&**router, *reports)).collect());
    let arrived = |router: u64| {
        size.windows
            - ["missing", "dropped"]
                .map(|fate| fleet.fates.get(&(router, fate)).copied().unwrap_or(0))
                .iter()
                .sum::<u64>()
    };
    assert_eq!(defects(&answer, What::ForeignKey), [("edge-5", arrived(5))].into());
    assert_eq!(defects(&answer, What::OtherLgK), [("edge-3", arrived(3)), ("edge-7", arrived(7))].into());
    let named = [What::Gap, What::Tombstone, What::Duplicate, What::Late, What::ForeignKey, What::OtherLgK];
    let others: Vec<_> = answer.defects.iter().filter(|defect| !named.contains(&defect.what)).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn what_is_not_of_the_fleet_stands_apart() {
    let fleet = Fleet::new(Size { routers: 9, windows: 4 });
    let answer = fleet.merged(Settings { window: None, by: By::All, top: 5 });
    let [window] = &answer.windows[..] else { panic!() };
    let of_name: Vec<_> = window.distinct.iter().filter(|count| count.name == "unique.src_ip").collect();
    assert_eq!(
        of_name.iter().map(|count| (count.is_fleet, count.routers, count.lg_k)).collect::<Vec<_>>(),
        [(true, 6, 12), (false, 2, 11), (false, 1, 12)].into_iter().collect::<Vec<_>>()
    );
    assert_eq!(of_name[0].key_id.as_deref(), Some(&*fleet.fleet_key));
    let sources: HashSet<&IpAddr> = fleet.truths.iter().flat_map(|truth| &truth.sources).collect();
    assert!(
        (of_name[0].lower..=of_name[0].upper).contains(&(sources.len() as u64)),
        "a source of two windows counts once"
    );

    let by_site = fleet.merged(Settings { window: None, by: By::Site, top: 5 });
    let sites: Vec<_> = by_site.windows.iter().map(|window| (window.of.as_deref(), window.routers)).collect();
    assert_eq!(sites, [(Some("site-0"), 3), (Some("site-1"), 2), (Some("site-2"), 2), (Some("site-3"), 2)]);
    let packets: u64 = by_site.windows.iter().map(|window| window.totals.packets).sum();
    assert_eq!(packets, window.totals.packets);
}

#[test]
fn counts_of_two_days_are_bounded_and_not_joined() {
    let reports = |day: u64| {
        let mut router = Router::new(0);
        let window = day * 8_640;
        router.closing.keys.restart(at(window), &router.closing.seen);
        let mut shard = router.shard.take().unwrap();
        router.closing.keys.equip(&mut shard);
        router.shard = Some(shard);
        let records: Vec<Record> = (0..RECORDS).map(|nth| record(0, day, nth)).collect();
        let report = router.report(window, &records);
        let sources: BTreeSet<String> = records.iter().map(|record| record.key.src_ip().to_string()).collect();
        (report, sources)
    };
    let [(mut first, ours), (mut second, theirs)] = [0, 1].map(reports);
    assert_ne!(first.key_id, second.key_id);
    for (report, seq) in [(&mut first, 1), (&mut second, 2)] {
        report.observer.seq = seq;
        report.id = format!("{}/{}/{seq}", report.observer.id, report.observer.boot_id);
    }
    let lines = [&first, &second].map(|report| String::from_utf8(Encoded::new(report).line.to_vec()).unwrap());
    let file = Scratch::new(&lines.concat());
    let answer =
        weir_merge::merge(std::slice::from_ref(&file.0), Settings { window: None, by: By::All, top: 5 }, false)
            .unwrap();
    assert_eq!(defects(&answer, What::ForeignKey), [].into(), "another day is not another fleet");
    let count = answer.windows[0].distinct.iter().find(|count| count.name == "unique.src_ip").unwrap();
    let all = ours.union(&theirs).count() as u64;
    assert_eq!(count.keys, 2);
    assert!(count.lower <= all && all <= count.upper && count.upper >= ours.len() as u64 + theirs.len() as u64);
}

/// Routers whose clocks are up to three minutes apart, for five minutes before and after midnight.
struct Clocks {
    /// The true second at which each report was sent, with the number of its router and its text.
    sent: Vec<(i64, u64, String)>,
    /// By the hour of the router's clock, counted from midnight.
    truths: BTreeMap<i64, Truth>,
}

/// How far the clock of a router is ahead, in seconds. The clock of one router is set right soon after its midnight.
fn ahead(router: u64, true_second: i64) -> i64 {
    const SET_RIGHT: u64 = 4;
    match [0, 90, -90, 40, 40, 90, -50, 90][router as usize] {
        _ if router == SET_RIGHT && true_second >= START - 20 => 0,
        seconds => seconds,
    }
}

impl Clocks {
    const ROUTERS: u64 = 8;
    const AROUND: i64 = 300;

    fn measured() -> &'static Self {
        static CLOCKS: LazyLock<Clocks> = LazyLock::new(Clocks::new);
        &CLOCKS
    }

    fn new() -> Self {
        let mut clocks = Self { sent: Vec::new(), truths: BTreeMap::new() };
        let step = SECONDS as i64;
        for number in 0..Self::ROUTERS {
            let first = START - Self::AROUND;
            let mut router = Router::starting(number, first + ahead(number, first), 60);
            for now in (first..START + Self::AROUND).step_by(SECONDS as usize) {
                let window = ((now - first) / step) as u64;
                let records: Vec<Record> = (0..RECORDS).map(|nth| record(number, window, nth)).collect();
                let (start, next) = (now + ahead(number, now), now + step + ahead(number, now + step));
                if now + step == START + Self::AROUND {
                    router.closing.exporter.end();
                }
                let report = router.report_of(start, next, &records);
                clocks.truths.entry((start - START).div_euclid(3_600)).or_default().add(&records, number);
                let line = String::from_utf8(Encoded::new(&report).line.to_vec()).unwrap();
                clocks.sent.push((now + step, number, line));
            }
        }
        clocks.sent.sort();
        clocks
    }

    fn merged(&self, until: i64, window: Option<u64>) -> Answer {
        let sent = self.sent.iter().take_while(|(time, ..)| *time <= until);
        let file = Scratch::new(&sent.map(|(.., line)| line.as_str()).collect::<String>());
        let settings = Settings { window: window.map(Duration::from_secs), by: By::All, top: TOP };
        weir_merge::merge(std::slice::from_ref(&file.0), settings, false).unwrap()
    }
}

#[test]
fn clocks_that_are_apart_lose_nothing_when_the_key_turns_at_midnight() {
    let clocks = Clocks::measured();
    let reports = Clocks::ROUTERS * 2 * Clocks::AROUND as u64 / SECONDS;
    for window in [None, Some(3_600), Some(86_400)] {
        let answer = clocks.merged(i64::MAX, window);
        assert_eq!(answer.reports, reports);
        let named: Vec<_> = answer.defects.iter().map(|one| (one.what, &*one.name)).collect();
        // One row for each day.
        let expected = [What::ForeignKey, What::ForeignKey, What::OtherLgK, What::OtherLgK];
        let expected = expected.into_iter().zip(["edge-5", "edge-5", "edge-3", "edge-7"]);
        assert_eq!(named, expected.collect::<Vec<_>>(), "{window:?}");
        let truths: Vec<Truth> = match window {
            Some(_) => clocks.truths.values().cloned().collect(),
            None => vec![clocks.truths.values().cloned().reduce(Truth::with).unwrap()],
        };
        assert_eq!(answer.windows.len(), truths.len());
        for (truth, found) in truths.iter().zip(&answer.windows) {
            assert_eq!((truth.failures(found), found.routers as u64), (0, Clocks::ROUTERS), "{window:?}");
            let count = found.distinct.iter().find(|count| count.name == "unique.src_ip" && count.is_fleet).unwrap();
            assert_eq!((count.routers, count.keys), (5, if window.is_some() { 1 } else { 2 }), "{window:?}");
        }
    }
}

/// The reports end soon before or after midnight, so only the routers whose clocks are ahead have some of the next day:
/// one with the key of the fleet, one with another secret, and one with another number of registers.
#[test]
fn a_day_of_few_routers_does_not_make_the_key_of_a_fleet_foreign() {
    let clocks = Clocks::measured();
    for until in [START - 30, START + 30] {
        let answer = clocks.merged(until, None);
        let foreign = defects(&answer, What::ForeignKey);
        assert!(foreign.keys().eq(["edge-5"].iter()), "{until}: {foreign:?}");
        let other: BTreeSet<&str> = defects(&answer, What::OtherLgK).into_keys().collect();
        assert_eq!(other, ["edge-3", "edge-7"].into(), "{until}");
    }
}

/// Waits for an update of the live screen.
fn wait<T>(live: &mut Live, mut is_it: impl FnMut(Update) -> Option<T>) -> T {
    for _ in 0..6_000 {
        match live.next() {
            Some(update) => {
                if let Some(found) = is_it(update) {
                    return found;
                }
            }
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
    panic!("it was not shown")
}

/// Waits for a window that ends at this time. For how long nothing has come depends on the clock, so it is left out.
fn window_until(live: &mut Live, end: Timestamp) -> weir_top::Fleet {
    wait(live, |update| match update {
        Update::Fleet(mut fleet) if fleet.window.is_some_and(|(_, until)| until == end) => {
            fleet.troubles.retain(|trouble| !trouble.starts_with("no report has come for"));
            Some(*fleet)
        }
        _ => None,
    })
}

/// Returns the screen ten seconds after the end of a window.
fn shown(fleet: &weir_top::Fleet, keys: &str, size: (u16, u16)) -> String {
    let now = Timestamp::from_second(fleet.window.unwrap().1.as_second() + 10).unwrap();
    picture([Update::Fleet(Box::new(fleet.clone()))], keys, now, size)
}

#[test]
fn every_number_on_the_live_screen_is_that_of_the_merge() {
    let size = Size { routers: 12, windows: 8 };
    let fleet = Fleet::new(size);
    let answer = fleet.merged(Settings { window: Some(Duration::from_secs(SECONDS)), by: By::All, top: TOP });
    let window = answer.windows.last().unwrap();
    let file = Scratch::new(&(fleet.lines.join("\n") + "\n"));
    let mut live = Live::new(std::slice::from_ref(&file.0), Duration::from_secs(SECONDS), TOP).unwrap();
    let fleet = window_until(&mut live, window.end);
    expect_file!["golden/live-80x24.txt"].assert_eq(&shown(&fleet, "", (80, 24)));
    expect_file!["golden/live-160x50.txt"].assert_eq(&shown(&fleet, "", (160, 50)));
    expect_file!["golden/live-help-80x24.txt"].assert_eq(&shown(&fleet, "?", (80, 24)));
    let tall = |keys: &str| shown(&fleet, keys, (160, 100));
    let has = |shown: &str, parts: &[&str]| {
        let line = shown.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        assert!(line.is_some(), "no line has {parts:?}:\n{shown}");
    };
    let first = tall("");
    has(&first, &["12 routers", "live"]);
    let missing: u64 = defects(&answer, What::Gap).values().sum();
    let (lost, missing) = (format!("lost {}", window.lost.packets), format!("missing {missing}"));
    assert!(window.lost.packets > 0, "some packets are lost");
    has(&first, &["routers 12/12", "reports 12", &lost, "in lists"]);
    for part in [&missing, "dropped by the sender 1", "came twice 1"] {
        has(&first, &[part]);
    }
    has(&first, &["a packet that passed two routers counts at both"]);
    for defect in &answer.defects {
        has(&first, &[&format!("{} ", defect.what.name())]);
    }
    let tab = |name: &str| (1..=9).find(|nth| tall(&nth.to_string()).contains(&format!("[{nth} {name}]"))).unwrap();
    for (key, by_packets) in [("b", false), ("p", true)] {
        for list in &window.lists {
            let rows = if by_packets { &list.by_packets } else { &list.by_bytes };
            let shown = tall(&format!("{key}{}", tab(&list.name)));
            for (rank, row) in (1..).zip(rows) {
                let bounds = if by_packets { row.packets } else { row.bytes };
                let text = |number: u64| match by_packets {
                    true => scaled(number as f64 / SECONDS as f64, "pkt/s"),
                    false => scaled(number as f64 * 8.0 / SECONDS as f64, "bit/s"),
                };
                let most = if bounds.lower == bounds.upper { "exact".to_owned() } else { text(bounds.upper) };
                let doubt = if row.is_certain { " " } else { "?" };
                // A service is shown as people write it.
                let named = row.key.split(' ').next().unwrap();
                has(&shown, &[&format!("{rank}{doubt}{named}"), &text(bounds.lower), &most]);
            }
        }
    }
    let shown = tall(&tab("distinct").to_string());
    for one in &window.distinct {
        let apart = format!("apart: key {}, lg_k {}", one.key_id.as_ref().unwrap(), one.lg_k);
        let apart = if one.is_fleet { "" } else { &apart };
        has(&shown, &[&one.name, &format!("{} router", one.routers), apart, &count(one.value)]);
    }
    let shown = tall(&tab("defects").to_string());
    for defect in &answer.defects {
        has(&shown, &[defect.what.name(), &defect.name, &count(defect.reports)]);
    }
    let shown = tall(&tab("routers").to_string());
    let routers: u64 = (0..size.routers).map(|router| u64::from(shown.contains(&format!("edge-{router} ")))).sum();
    assert_eq!(routers, size.routers);
}

#[test]
fn the_live_screen_follows_its_files_and_answers_for_any_key() {
    let fleet = Fleet::new(Size { routers: 4, windows: 6 });
    let half = fleet.lines.len() / 2;
    let file = Scratch::new(&(fleet.lines[..half].join("\n") + "\n"));
    let mut live = Live::new(std::slice::from_ref(&file.0), Duration::from_secs(SECONDS), TOP).unwrap();
    let before = wait(&mut live, |update| match update {
        Update::Fleet(fleet) => fleet.window,
        _ => None,
    });
    assert!(before.1 < at(6), "{before:?}");
    let mut writer = OpenOptions::new().append(true).open(&file.0).unwrap();
    writer.write_all((fleet.lines[half..].join("\n") + "\n").as_bytes()).unwrap();
    window_until(&mut live, at(6));
    let answer = fleet.merged(Settings { window: Some(Duration::from_secs(SECONDS)), by: By::All, top: 5 });
    let sources = answer.windows.last().unwrap().lists.iter().find(|list| list.name == "sources").unwrap();
    let row = &sources.by_bytes[2];
    let mut ask = |key: &str| {
        live.ask(Request::Key { key: format!("src_ip={key}"), is_open: false });
        wait(&mut live, |update| match update {
            Update::KeyDetails(known) => Some(known),
            _ => None,
        })
    };
    let known = ask(&row.key);
    assert_eq!(known.seconds.seconds(), Some(SECONDS as f64));
    let [found] = &known.rows.unwrap()[..] else { panic!() };
    let bytes = found.bytes.unwrap();
    assert_eq!((found.view.as_deref(), bytes.lower, bytes.upper), (Some("sources"), row.bytes.lower, row.bytes.upper));
    let unlisted = ask("203.0.113.77").rows.unwrap()[0].bytes.unwrap();
    assert!(unlisted.lower == 0 && unlisted.upper <= sources.others.bytes, "{unlisted:?}");
    assert_eq!(ask("1,dst_ip=2").rows.unwrap_err(), "no list of the fleet has such keys");
    live.ask(Request::PastOfKey { key: "src_ip=192.0.2.1".to_owned(), view: None, to: None });
    let why = wait(&mut live, |update| match update {
        Update::PastOfKey(_, past) => Some(past.unwrap_err()),
        _ => None,
    });
    assert!(why.contains("has no history"), "{why}");
}

#[test]
fn everything_gathered_is_exported_with_its_last_window() {
    let mut router = Router::starting(0, START + 20, 60);
    let mut shown = Vec::new();
    let mut report = |router: &mut Router, start: i64, next: i64| {
        let sketches = router.report_of(START + start, START + next, &[record(0, 0, 0)]).sketches;
        shown.push(sketches.map(|one| (one.start.as_second() - START, one.end.as_second() - START, one.windows)));
    };
    // The last windows with these settings.
    report(&mut router, 20, 30);
    router.closing.exporter.end();
    report(&mut router, 30, 40);
    router.closing.exporter.change(Export { views: ExportViews::All, ..Export::default() });
    report(&mut router, 40, 50);
    // A multiple of the interval is between this window and the next one: before a silence, and if the clock is set
    // back.
    report(&mut router, 50, 200);
    report(&mut router, 200, 210);
    report(&mut router, 210, 100);
    report(&mut router, 100, 110);
    report(&mut router, 110, 120);
    let exported = [None, Some((20, 40, 2)), None, Some((40, 60, 2)), None, Some((200, 220, 2)), None];
    assert_eq!(shown, exported.into_iter().chain([Some((100, 120, 2))]).collect::<Vec<_>>());
}
