//! Random lives of a weir, against an oracle that knows what each second carried.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use weir_schema::{Amount, Bounds, FromJson, Interface, Length, Tally, Uncertain, Usage as Answered, UsageRow, Window};

use super::{
    calendar::{By, Period},
    counting::Counting,
    files::Files,
    hour::Block,
    *,
};
use crate::{
    seconds::{Carried, Counts},
    testing::{Random, report},
};

const OBSERVER: &str = "7f3c9a52";
const NAMES: [(&str, &str); 3] = [("wan0", "ingress"), ("wan0", "egress"), ("lan0", "ingress")];

fn at_ms(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

fn at(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_second()
}

/// A folder that is removed with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-usage-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn settings(first_day: u8) -> Settings {
    Settings { first_day, addresses: Addresses::Full, own: Vec::new() }
}

pub fn disk(folder: &Path) -> Disk {
    let files = Files::new(folder, OBSERVER);
    files.create().unwrap();
    Disk::new(files)
}

pub fn window(start_ms: i64, end_ms: i64) -> Window {
    let seconds = Length::new((end_ms - start_ms) as f64 / 1e3);
    Window { start: at_ms(start_ms), end: at_ms(end_ms), seconds, ..Window::default() }
}

fn interface((name, direction): (&str, &str), packets: u64, bytes: u64) -> Interface {
    let mut interface = report(0, &[]).interfaces.swap_remove(0);
    (interface.name, interface.direction) = (name.to_owned(), Some(direction.to_owned()));
    (interface.mode, interface.blind_seconds) = ("tcx".to_owned(), None);
    interface.ledger.seen = Tally { packets, bytes };
    interface.ledger.lost.clear();
    interface.ledger.uncertain = None;
    interface
}

fn ask(disk: &Disk, counting: &Counting, query: &Query, first_day: u8) -> Answered {
    let known = Known { unwritten: counting.unwritten(), until: counting.until().unwrap(), first_day };
    let answer = query.answer(&disk.files, &known).unwrap();
    Answered::from_json(answer.as_bytes()).unwrap()
}

fn query(by: By, last: u32) -> Query {
    Query { interface: None, by, last: Some(last), to: None }
}

/// What an interface really carried, by five minutes since 1970: bytes, packets, and the seconds that weir saw.
#[derive(Clone, Debug, Default)]
struct Truth(BTreeMap<i64, [u64; 3]>);

impl Truth {
    fn add(&mut self, second: i64, bytes: u64, packets: u64) {
        let slot = self.0.entry(second.div_euclid(300)).or_default();
        *slot = [slot[0] + bytes, slot[1] + packets, slot[2] + 1];
    }

    fn of(&self, period: Period) -> impl Iterator<Item = &[u64; 3]> {
        self.0.range(period.start / 300..period.end / 300).map(|(_, of)| of)
    }

    /// The 95th percentile, by its definition: all means in order, the largest 5 % left out.
    fn percentile(&self, period: Period, until: i64, unseen: f64) -> f64 {
        let slots = (until.min(period.end) - period.start) / 300;
        let mean = |slot: i64| {
            let [bytes, _, seconds] = self.0.get(&slot).copied().unwrap_or_default();
            match seconds {
                300.. => bytes as f64 * 8.0 / seconds as f64,
                _ => f64::max(unseen, bytes as f64 * 8.0 / 300.0),
            }
        };
        let mut means: Vec<_> = (period.start / 300..).take(slots as usize).map(mean).collect();
        means.sort_by(f64::total_cmp);
        means[means.len() - 1 - (means.len() as f64 * 0.05).floor() as usize]
    }
}

/// A weir with its clock.
struct Life {
    random: Random,
    /// The wall clock, in seconds.
    now: i64,
    disk: Disk,
    counting: Counting,
    truth: [Truth; 3],
    /// What is on disk.
    written: [Truth; 3],
}

impl Life {
    fn new(seed: u64, now: i64, folder: &Path) -> Self {
        let counting = Counting::default();
        Self {
            random: Random(seed),
            now,
            disk: disk(folder),
            counting,
            truth: Default::default(),
            written: Default::default(),
        }
    }

    /// A window up to the next multiple of the interval, second by second.
    fn window(&mut self, interval: i64) {
        let (start, end) = (self.now, (self.now.div_euclid(interval) + 1) * interval);
        let mut sums = [(0, 0); 3];
        for second in start..end {
            let mut carried = Vec::new();
            for (nth, name) in NAMES.iter().enumerate() {
                let packets = self.random.below(1000);
                let bytes = packets * (60 + self.random.below(1400));
                self.truth[nth].add(second, bytes, packets);
                sums[nth] = (sums[nth].0 + packets, sums[nth].1 + bytes);
                let counts = Some(Counts { packets, bytes, lost: 0 });
                carried.push(Carried { name: name.0, direction: Some(name.1), counts });
            }
            // A reading is taken a little after the second.
            let late = self.random.below(30) as i64;
            self.counting.add_second(at_ms((second + 1) * 1000 + late), Duration::from_secs(1), carried.into_iter());
        }
        let interfaces = [0, 1, 2].map(|nth| interface(NAMES[nth], sums[nth].0, sums[nth].1));
        self.counting.add_window(&window(start * 1000, end * 1000), &interfaces);
        self.now = end;
        // No more than so many hours wait for the disk.
        if self.counting.closed().len() > 12 {
            self.write();
        }
    }

    fn write(&mut self) {
        let counting = Mutex::new(std::mem::take(&mut self.counting));
        self.disk.write(&counting, &Mutex::default());
        self.counting = counting.into_inner().unwrap();
        self.written = self.truth.clone();
    }

    /// SIGKILL: what was not written is lost, and nothing else.
    fn die(&mut self) {
        self.counting = self.disk.load();
        self.truth = self.written.clone();
    }

    fn check(&self, by: By, last: u32, day: u8) {
        let answered = ask(&self.disk, &self.counting, &query(by, last), day);
        let until = answered.until.as_second();
        let mut rows = answered.rows.iter();
        for (name, truth) in [(2, NAMES[2]), (1, NAMES[1]), (0, NAMES[0])].map(|(nth, name)| (name, &self.truth[nth])) {
            for period in Period::last(last, until - 1, by, day) {
                let [bytes, packets, seconds] =
                    truth.of(period).fold([0; 3], |sums, of| [0, 1, 2].map(|nth| sums[nth] + of[nth]));
                if seconds == 0 {
                    continue;
                }
                let row = rows.next().unwrap();
                assert_eq!((row.interface.as_str(), row.direction.as_deref()), (name.0, Some(name.1)));
                assert_eq!([row.start, row.end].map(Timestamp::as_second), [period.start, period.end]);
                let exact = |value| Amount { value, lower: value, upper: Some(value) };
                assert_eq!(row.bytes, exact(bytes), "{name:?} {by:?} {}", row.start);
                // A window in several steps is divided by bytes, so its packets may be in another hour.
                if by == By::Month {
                    assert_eq!(row.packets, exact(packets), "{name:?} {}", row.start);
                }
                assert_eq!(row.seen_seconds, seconds as f64);
                let seen_once: u64 = truth.of(period).map(|of| of[2].min(300)).sum();
                let elapsed = until.clamp(period.start, period.end) - period.start;
                assert_eq!(row.unseen_seconds, elapsed.unsigned_abs().saturating_sub(seen_once) as f64);
                check_percentile(row, truth, period, until);
            }
        }
        assert!(rows.next().is_none());
    }
}

fn check_percentile(row: &UsageRow, truth: &Truth, period: Period, until: i64) {
    let Some(Amount { value, lower, upper }) = row.p95 else { return };
    let [least, most] = [0.0, f64::INFINITY].map(|unseen| truth.percentile(period, until, unseen));
    assert_eq!(lower, least as u64, "{row:?}");
    assert_eq!(upper, most.is_finite().then_some(most as u64), "{row:?}");
    assert!(lower <= value && upper.is_none_or(|upper| value <= upper), "{row:?}");
}

#[test]
fn sums_and_percentiles_agree_with_the_oracle_over_random_lives() {
    for seed in 1..=8 {
        let folder = Folder::new(&format!("life-{seed}"));
        // Shortly before a month of 28, 29, 30 or 31 days begins or ends.
        let edges = ["2026-03-01T00:00:00Z", "2028-03-01T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"];
        let start = at(edges[seed as usize % 4]) - 9000;
        let mut life = Life::new(seed, start + seed as i64 * 7, &folder.0);
        let intervals = [1, 8, 10, 60, 64, 300, 900, 2700, 3600];
        let mut interval = 10;
        for _ in 0..120 {
            match life.random.below(20) {
                0 => interval = intervals[life.random.below(9) as usize],
                1 => life.now += life.random.below(9000) as i64,
                2 => life.now -= life.random.below(4000) as i64,
                3 => life.die(),
                4 => life.write(),
                5 => {
                    life.write();
                    life.die();
                }
                _ => life.window(interval),
            }
        }
        life.window(interval);
        let day = 1 + (seed % 28) as u8;
        for (by, last) in [(By::Hour, 60), (By::Day, 4), (By::Month, 3)] {
            life.check(by, last, day);
            life.check(by, last, 1);
        }
        let month = Period::of(life.counting.until().unwrap().as_second(), By::Month, day);
        for (name, Month { sums, .. }) in life.counting.months(month) {
            let truths = (0..3).filter(|nth| NAMES[*nth].0 == name).map(|nth| &life.truth[nth]);
            let bytes: u64 = truths.flat_map(|truth| truth.of(month)).map(|of| of[0]).sum();
            assert_eq!(sums.bytes, bytes, "{name}");
        }
    }
}

#[test]
fn thirteen_months_are_kept_and_earlier_ones_removed() {
    let folder = Folder::new("months");
    let mut disk = disk(&folder.0);
    let mut counting = Counting::default();
    let (start, end) = (at("2025-06-01T00:00:00Z"), at("2026-11-20T12:00:00Z"));
    for second in (start..end).step_by(300) {
        let carried = [interface(NAMES[0], 10, 3000), interface(NAMES[1], 1, 60)];
        counting.add_window(&window(second * 1000, (second + 300) * 1000), &carried);
        if second % 3600 == 1800 {
            let shared = Mutex::new(counting);
            disk.write(&shared, &Mutex::default());
            counting = shared.into_inner().unwrap();
        }
    }
    let months = ask(&disk, &counting, &query(By::Month, 13), 1).rows;
    assert_eq!(months.len(), 2 * 13);
    let (first, last) = (&months[13], &months[25]);
    assert_eq!((first.start.to_string().as_str(), first.bytes.value), ("2025-11-01T00:00:00Z", 30 * 288 * 3000));
    assert_eq!((last.bytes.value, last.unseen_seconds), ((19 * 288 + 144) * 3000, 0.0));
    assert_eq!(last.p95, Some(Amount { value: 80, lower: 80, upper: Some(80) }));
    assert_eq!(disk.files.months::<Block>().len(), 15);
    // A clock that is wrong for a while removes no more than one month.
    counting.add_window(&window(at("2044-01-01T00:00:00Z") * 1000, at("2044-01-01T00:05:00Z") * 1000), &[]);
    let shared = Mutex::new(counting);
    disk.write(&shared, &Mutex::default());
    assert!(disk.files.months::<Block>().contains(&"2025-11".to_owned()));
    let bytes: u64 = fs::read_dir(disk.files.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < (2 * 800) << 10, "{bytes} bytes for two directions");
    let known = Known { unwritten: Vec::new(), until: at_ms(end * 1000), first_day: 1 };
    assert!(query(By::Hour, 744).answer(&disk.files, &known).unwrap_err().contains("ask for one interface"));
    let hours = Query { to: Some(at_ms(at("2025-12-01T00:00:00Z") * 1000)), ..query(By::Hour, 400) };
    let hours = ask(&disk, &shared.into_inner().unwrap(), &hours, 1).rows;
    assert_eq!(hours.len(), 2 * 400);
    assert_eq!(hours[799].end.to_string(), "2025-12-01T00:00:00Z");
}

#[test]
fn what_a_window_is_not_certain_of_is_in_the_bounds() {
    let folder = Folder::new("bounds");
    let disk = disk(&folder.0);
    let mut counting = Counting::default();
    let start = at("2026-11-20T08:00:00Z") * 1000;
    let mut uncertain = interface(NAMES[0], 100, 30_000);
    let bounds = |lower, upper| Bounds { lower, upper };
    uncertain.ledger.uncertain = Some(Uncertain { packets: bounds(10, 15), bytes: bounds(1000, 7000) });
    uncertain.ledger.lost.insert("ring_full".to_owned(), Tally { packets: 2, bytes: 120 });
    let mut dropped = interface(NAMES[2], 100, 30_000);
    dropped.ledger.lost.insert("socket_drop".to_owned(), Tally { packets: 50, bytes: 15_000 });
    counting.add_window(&window(start, start + 300_000), &[uncertain, dropped]);
    let mut blind = interface(NAMES[0], 7, 700);
    blind.blind_seconds = Some(120.0);
    let mut away = interface(NAMES[2], 0, 0);
    away.mode = "detached".to_owned();
    counting.add_window(&window(start + 300_000, start + 600_000), &[blind, away]);
    let rows = ask(&disk, &counting, &query(By::Hour, 1), 1).rows;
    let [lan, wan] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(wan.bytes, Amount { value: 30_700, lower: 30_700, upper: Some(36_700) });
    assert_eq!(wan.packets, Amount { value: 107, lower: 107, upper: Some(112) });
    assert_eq!((wan.lost, wan.seen_seconds, wan.unseen_seconds), (Tally { packets: 2, bytes: 120 }, 480.0, 120.0));
    assert_eq!(wan.p95, Some(Amount { value: 800, lower: 800, upper: None }));
    assert_eq!(lan.bytes, Amount { value: 30_000, lower: 15_000, upper: None });
    assert_eq!((lan.seen_seconds, lan.unseen_seconds), (300.0, 300.0));
}

#[test]
fn the_busiest_second_is_of_its_hour() {
    let mut counting = Counting::default();
    let start = at("2026-11-20T08:59:50Z");
    // The track is known from the first window on.
    counting.add_window(&window((start - 10) * 1000, start * 1000), &[interface(NAMES[0], 0, 0)]);
    for second in start..start + 11 {
        // The first second of the next hour is read before the window of this hour is closed.
        let bytes = if second == start + 10 { 9000 } else { 100 + (second - start) as u64 };
        let carried =
            Carried { name: "wan0", direction: Some("ingress"), counts: Some(Counts { packets: 1, bytes, lost: 0 }) };
        counting.add_second(at_ms((second + 1) * 1000 + 3), Duration::from_secs(1), [carried].into_iter());
    }
    counting.add_window(&window(start * 1000, (start + 10) * 1000), &[interface(NAMES[0], 10, 1045)]);
    counting.add_window(&window((start + 10) * 1000, (start + 20) * 1000), &[interface(NAMES[0], 1, 9000)]);
    let folder = Folder::new("busiest");
    let rows = ask(&disk(&folder.0), &counting, &query(By::Hour, 2), 1).rows;
    let busiest: Vec<_> =
        rows.iter().map(|row| row.busiest.map(|of| (of.start.as_second() - start, of.bits))).collect();
    assert_eq!(busiest, [Some((9, 109 * 8)), Some((10, 9000 * 8))]);
    assert_eq!([rows[0].bytes.value, rows[1].bytes.value], [1045, 9000]);
}

#[test]
fn more_interfaces_than_there_is_room_for_take_the_places_of_those_that_have_gone() {
    let mut counting = Counting::default();
    let start = at("2026-11-20T08:00:00Z") * 1000;
    for nth in 0..200 {
        let name = format!("ppp{nth}");
        let begin = start + nth * 3_600_000;
        counting.add_window(&window(begin, begin + 10_000), &[interface((&name, "ingress"), 1, 100)]);
    }
    assert_eq!(counting.open_hour().unwrap().tracks.len(), 1);
    let month = Period::of(at("2026-11-28T00:00:00Z"), By::Month, 1);
    assert!(counting.months(month).contains_key("ppp199"));
}

#[test]
fn a_stop_writes_the_open_hour_though_clients_could_still_ask() {
    let folder = Folder::new("stop");
    let start = at("2026-11-20T08:00:00Z") * 1000;
    let usage = Usage::start(&folder.0, OBSERVER, settings(1)).unwrap();
    let asker = usage.asker();
    usage.add_window(&window(start, start + 10_000), &[interface(NAMES[0], 3, 700)]);
    assert_eq!(usage.of_month()[0].bytes, Amount { value: 700, lower: 700, upper: None });
    let answer = asker
        .ask(Asked::Interfaces(Query { last: None, ..query(By::Month, 1) }), || ())
        .unwrap()
        .recv()
        .unwrap()
        .unwrap();
    assert_eq!(Answered::from_json(answer.as_bytes()).unwrap().rows[0].bytes.value, 700);
    drop(usage);
    assert_eq!(disk(&folder.0).files.open_entry::<Block>().unwrap().tracks[0].1.sums.packets, 3);
    let later = Usage::start(&folder.0, OBSERVER, settings(15)).unwrap();
    assert!(later.of_month().is_empty(), "no window has ended yet");
    later.add_window(&window(start + 10_000, start + 20_000), &[interface(NAMES[1], 1, 60)]);
    let InterfaceUsage { since, bytes, .. } = &later.of_month()[0];
    assert_eq!((since.to_string().as_str(), bytes.value), ("2026-11-15T00:00:00Z", 760));
}

#[test]
fn an_hour_that_is_on_disk_twice_counts_once() {
    let folder = Folder::new("twice");
    let mut life = Life::new(3, at("2026-11-20T08:00:00Z"), &folder.0);
    (0..400).for_each(|_| life.window(10));
    life.write();
    // A crash after the hour was added to the month, before the open hour was replaced.
    let mut blocks = Vec::new();
    life.disk.files.visit("2026-11", |block: Block| blocks.push(block));
    life.disk.files.write_open(&blocks[0]).unwrap();
    assert_eq!(life.disk.files.open_entry::<Block>(), None);
    life.disk.files.write_open(&Block { id: 7, ..blocks[0].clone() }).unwrap();
    assert!(life.disk.files.open_entry::<Block>().is_some());
}
