use std::{env, process, time::Duration};

use weir_config::Addresses;
use weir_schema::Steps;

use super::*;
use crate::{
    block::Open,
    seconds::{Carried, Counts},
    testing::{ROWS, Random, at, at as at_second, report, usual},
    time::Time,
    windows::of_report,
};

const OBSERVER: &str = "7f3c9a52";
const FOLDER: &str = "history";
/// Room for everything.
const DISK: u64 = 64 << 20;

/// A state directory, removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("weir-history-{name}-{}", process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(FOLDER)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(FOLDER).join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A weir that writes to a directory.
struct Writer {
    disk: Disk,
    windows: Windows,
    seconds: Seconds,
    minute: Open,
}

impl Writer {
    fn start(directory: &Directory, bytes: u64) -> Self {
        Self::start_as(directory, bytes, OBSERVER)
    }

    /// With this much on disk, and little memory.
    fn start_as(directory: &Directory, bytes: u64, observer: &str) -> Self {
        let (mut windows, mut seconds) = (Windows::new(64 << 10, Addresses::Full), Seconds::default());
        let mut disk = Disk::new(&directory.0.join(FOLDER), observer);
        disk.load(&mut windows, &mut seconds, Limits { bytes, age: None, has_samples: false });
        assert!(!disk.writes.is_failing);
        let minute = Open::new(windows.single().next());
        Self { disk, windows, seconds, minute }
    }

    /// Adds ten seconds and their window.
    fn add(&mut self, nth: i64, random: &mut Random) {
        let mut kept = of_report(&usual(nth, random), ROWS);
        for second in 1..=10 {
            let counts = Some(Counts { packets: second, bytes: 60 * second, lost: 0 });
            let carried = Carried { name: "eth0", direction: None, counts };
            self.seconds.add(at(nth * 10 + second as i64), Duration::from_secs(1), [carried].into_iter());
        }
        let number = self.windows.single().next();
        let closed = self.windows.add(&mut kept, Addresses::Full);
        if closed {
            self.disk.write_open(&self.windows);
            self.minute = Open::new(self.windows.single().open().next());
        } else {
            self.minute = if self.minute.is_empty() { Open::new(number) } else { self.minute.clone() };
            self.minute.push(&kept, Addresses::Full);
        }
        if nth % 6 == 5 {
            self.write();
        }
    }

    fn write(&mut self) {
        if let Some(block) = std::mem::take(&mut self.minute).pack() {
            self.disk.append(&block);
        }
        self.disk.write_seconds(self.seconds.next(), &self.seconds.part(self.disk.next_row()));
    }

    fn windows(&self) -> u64 {
        self.windows.index(&Time::default()).iter().map(|past| past.windows).sum()
    }
}

#[test]
fn a_restart_at_any_time_loses_nothing() {
    let directory = Directory::new("restart");
    let mut random = Random(1);
    let mut nth = 0;
    let steps = Steps { first: at(0).as_second(), seconds: 1, count: 2570 };
    for runs in [1, 6, 29, 30, 31, 60, 100] {
        let mut writer = Writer::start(&directory, DISK);
        assert_eq!(writer.windows(), nth as u64);
        for _ in 0..runs {
            writer.add(nth, &mut random);
            nth += 1;
        }
        writer.write();
        let (span, seconds) = (writer.windows.span(&Time::default()).unwrap(), writer.seconds.sums(&steps));
        let next = Writer::start(&directory, DISK);
        let known = next.windows.span(&Time::default()).unwrap();
        assert_eq!((known.windows, known.totals), (nth as u64, span.totals), "after {nth}");
        assert_eq!((known.unique, known.missing), (span.unique, span.missing), "after {nth}");
        assert_eq!(next.seconds.sums(&steps), seconds, "after {nth}");
    }
}

/// A killed weir loses only the data since the last minute.
#[test]
fn a_crash_loses_at_most_the_last_minute() {
    let directory = Directory::new("crash");
    let (mut random, mut nth) = (Random(2), 0);
    for _ in 0..80 {
        let mut writer = Writer::start(&directory, DISK);
        let before = writer.windows();
        for _ in 0..7 {
            writer.add(nth, &mut random);
            nth += 1;
        }
        let lost = before + 7 - Writer::start(&directory, DISK).windows();
        assert!(lost < 6, "{lost} windows after {nth}");
    }
}

#[test]
fn the_size_on_disk_is_bounded_and_the_oldest_go_first() {
    const MOST: u64 = 1 << 20;
    let directory = Directory::new("bounded");
    let (mut random, mut writer) = (Random(3), Writer::start(&directory, MOST));
    let mut oldest = None;
    for nth in 0..3000 {
        writer.add(nth, &mut random);
        if nth % 100 == 99 {
            let bytes =
                directory.names().iter().map(|name| fs::metadata(directory.path(name)).unwrap().len()).sum::<u64>();
            assert!(bytes < MOST + (300 << 10), "{bytes} bytes after {nth}");
            assert!(oldest <= writer.windows.oldest(), "what is gone does not come back");
            oldest = writer.windows.oldest();
        }
    }
    assert!(writer.windows.single().first() > 0, "nothing was dropped");
    let seconds = directory.names().iter().filter(|name| name.starts_with(SECONDS)).count();
    assert_eq!(seconds as u64, SECONDS_KEPT, "{:?}", directory.names());
    let known = writer.windows.span(&Time::default()).unwrap();
    let next = Writer::start(&directory, MOST).windows.span(&Time::default()).unwrap();
    assert_eq!((next.windows, next.totals, next.missing), (known.windows, known.totals, known.missing));
    // An hour is the least; a segment has some of it.
    let mut next = Writer::start(&directory, MOST);
    next.windows.limit(Limits { bytes: MOST, age: Some(Duration::from_secs(3600)), has_samples: false });
    assert!(next.windows.single().oldest() > writer.windows.single().oldest());
}

/// The windows of files that end with `range` are lost, and nothing else: the rest of their segment stays.
#[test]
fn a_damaged_block_is_skipped_and_the_rest_of_its_segment_stays() {
    for name in ["torn", "without-index"] {
        let directory = Directory::new(name);
        let (mut random, mut writer) = (Random(4), Writer::start(&directory, DISK));
        for nth in 0..390 {
            writer.add(nth, &mut random);
        }
        writer.write();
        let segment = directory.path("windows-000000000000");
        let index = directory.path("windows-000000000000.index");
        let (mut bytes, whole) = (fs::read(&segment).unwrap(), writer.windows.span(&Time::default()).unwrap());
        assert_eq!((whole.windows, whole.missing.len()), (390, 0));
        let starts = |bytes: &[u8]| -> Vec<usize> {
            (0..bytes.len() - 8).filter(|at| bytes[*at..*at + 8] == crate::block::MAGIC).collect()
        };
        // In the third block a bit of its number is wrong.
        let at = starts(&bytes)[2] + 16;
        bytes[at] ^= 1;
        fs::write(&segment, &bytes).unwrap();
        if name == "without-index" {
            fs::remove_file(&index).unwrap();
        }
        let mut next = Writer::start(&directory, DISK);
        let all = Time { from: Some(at_second(0)), to: Some(at_second(2400)) };
        let union = next.windows.span(&all).unwrap();
        assert_eq!((union.windows, union.missing.len()), (240 - 30, 1), "{name}: {:?}", union.missing);
        assert_eq!(union.missing[0], weir_schema::Gap { start: at_second(600), end: at_second(900) });
        for nth in 390..470 {
            next.add(nth, &mut random);
        }
        next.write();
        let again = Writer::start(&directory, DISK);
        let all = Time { from: Some(at_second(3000)), to: Some(at_second(4700)) };
        assert_eq!(again.windows.span(&all).unwrap().windows, 170, "{name}: it goes on");
    }
}

/// A weir that was killed while it wrote a block loses that block, and no other.
#[test]
fn a_torn_end_loses_only_the_last_block() {
    let directory = Directory::new("torn-end");
    let (mut random, mut writer) = (Random(4), Writer::start(&directory, DISK));
    for nth in 0..150 {
        writer.add(nth, &mut random);
    }
    let segment = directory.path("windows-000000000000");
    let bytes = fs::read(&segment).unwrap();
    fs::write(&segment, &bytes[..bytes.len() - 3000]).unwrap();
    let _ = fs::remove_file(directory.path(OPEN));
    let mut next = Writer::start(&directory, DISK);
    let union = next.windows.span(&Time::default()).unwrap();
    assert!((120..150).contains(&union.windows), "{} windows", union.windows);
    for nth in 150..300 {
        next.add(nth, &mut random);
    }
    next.write();
    let after = Time { from: Some(at_second(1500)), to: None };
    assert_eq!(Writer::start(&directory, DISK).windows.span(&after).unwrap().windows, 150);
}

#[test]
fn files_of_others_are_put_aside() {
    let directory = Directory::new("foreign");
    let (mut random, mut writer) = (Random(4), Writer::start(&directory, DISK));
    for nth in 0..400 {
        writer.add(nth, &mut random);
    }
    fs::write(directory.path("windows-000000009999"), "precious").unwrap();
    let open = fs::read(directory.path(OPEN)).unwrap();
    fs::write(directory.path(OPEN), &open[..open.len() - 5]).unwrap();
    let seconds = directory.names().into_iter().rfind(|name| name.starts_with(SECONDS)).unwrap();
    let bytes = fs::read(directory.path(&seconds)).unwrap();
    fs::write(directory.path(&seconds), &bytes[..bytes.len() - 5]).unwrap();
    let (before, rows) = (writer.windows(), writer.seconds.next());
    let next = Writer::start(&directory, DISK);
    assert_eq!(fs::read(directory.path("aside-windows-000000009999")).unwrap(), b"precious");
    assert!(before - next.windows() <= 10 && next.seconds.next() < rows, "a minute is missing");
    let other = Writer::start_as(&directory, DISK, "00000000");
    assert_eq!((other.windows(), other.seconds.next()), (0, 0), "another machine wrote it");
}

/// Files of the version that wrote a file for each block, without filters and indexes.
#[test]
fn files_of_earlier_versions_are_taken_over() {
    let directory = Directory::new("earlier");
    fs::create_dir(directory.0.join(FOLDER)).unwrap();
    let mut random = Random(8);
    for first in (0..300).step_by(30) {
        let mut open = Open::new(first);
        for nth in first..first + 30 {
            open.push(&of_report(&usual(nth as i64, &mut random), 10), Addresses::Full);
        }
        let bytes = open.pack().unwrap().to_bytes(OBSERVER);
        fs::write(directory.path(&format!("windows-{first:012}")), bytes).unwrap();
    }
    let mut writer = Writer::start(&directory, DISK);
    assert_eq!(writer.windows(), 300);
    for nth in 300..400 {
        writer.add(nth, &mut random);
    }
    writer.write();
    let union = Writer::start(&directory, DISK).windows.span(&Time::default()).unwrap();
    assert_eq!((union.windows, union.missing), (400, vec![]));
}

/// Days on disk, and hardly any memory: long spans have unions, short ones windows, and each window counts once.
#[test]
fn spans_of_any_length_and_age_count_each_window_once() {
    let directory = Directory::new("days");
    let (mut random, mut writer) = (Random(6), Writer::start(&directory, DISK));
    let (mut totals, all) = (Vec::new(), 3 * 8640);
    for nth in 0..all {
        let sources: Vec<_> = (1..9).map(|key| (key, random.below(1000) + 1)).collect();
        totals.push(sources.iter().map(|(_, packets)| packets).sum::<u64>());
        let mut kept = of_report(&report(nth, &sources), ROWS);
        writer.windows.add(&mut kept, Addresses::Full);
        if nth == all / 2 + 77 {
            writer.disk.write_open(&writer.windows);
            writer = Writer::start(&directory, DISK);
        }
    }
    for (from, to, slack) in [
        (0, all, 0),
        (1000, 1100, 0),
        (5000, 5001, 0),
        (8640, 2 * 8640, 30),
        (100, all - 100, 360),
        (all - 400, all, 30),
        (7, 8000, 30),
    ] {
        let time = Time { from: Some(at_second(from * 10)), to: Some(at_second(to * 10)) };
        let union = writer.windows.span(&time).unwrap();
        let begun = (union.window.start.as_second() - crate::testing::START) / 10;
        let ended = (union.window.end.as_second() - crate::testing::START) / 10;
        assert!((from - slack..=from).contains(&begun) && (to..=to + slack).contains(&ended), "{begun} to {ended}");
        assert_eq!((union.windows as i64, union.missing.len()), (ended - begun, 0), "{from} to {to}");
        let truth: u64 = totals[begun as usize..ended as usize].iter().sum();
        assert_eq!(union.totals.packets, truth, "{from} to {to}");
        let listed: u64 = union.top.sources.iter().map(|row| row.packets.value).sum();
        assert_eq!(listed, truth, "{from} to {to}");
    }
    assert_eq!(writer.windows.last(5, None).unwrap().from, Some(at_second((all - 5) * 10)));
    assert_eq!(writer.windows.first(5, None).unwrap().from, writer.windows.oldest());
    assert_eq!(writer.windows.last(3, Some(at_second(5000))).unwrap().from, Some(at_second(4970)));
    assert_eq!(writer.windows.oldest(), Some(at_second(0)));
}

/// If the folder cannot be written to, weir continues, and remembers in memory.
#[test]
fn a_failing_disk_is_logged_once() {
    let directory = Directory::new("fails");
    fs::write(directory.0.join(FOLDER), "a file").unwrap();
    let (mut windows, mut seconds) = (Windows::new(1 << 20, Addresses::Full), Seconds::default());
    let mut disk = Disk::new(&directory.0.join(FOLDER), OBSERVER);
    disk.load(&mut windows, &mut seconds, Limits { bytes: DISK, age: None, has_samples: false });
    assert!(disk.writes.is_failing);
    let mut kept = of_report(&report(0, &[(1, 1)]), ROWS);
    windows.add(&mut kept, Addresses::Full);
    disk.append(&windows.single().open().pack().unwrap());
    assert!(disk.writes.is_failing && windows.span(&Time::default()).is_some());
    fs::remove_file(directory.0.join(FOLDER)).unwrap();
    fs::create_dir(directory.0.join(FOLDER)).unwrap();
    disk.append(&windows.single().open().pack().unwrap());
    assert!(!disk.writes.is_failing);
}

/// Adds windows whose only source is this one, and closes the block.
fn close_with(windows: &mut Windows, first: i64, source: u32, addresses: Addresses) {
    for nth in first..first + 30 {
        let report = report(nth, &[(source, 100), (0x0a00_0001, 3)]).masked(addresses);
        windows.add(&mut of_report(&report, ROWS), report.shown_addresses());
    }
    windows.complete();
}

/// The most that a key can have had in all windows of a folder.
fn at_most(directory: &Directory, key: &str) -> (u64, u64) {
    let writer = Writer::start(directory, DISK);
    let found = crate::find::find(&writer.windows, &Time::default(), &[key.to_owned()]).unwrap().unwrap();
    (found.keys[0].at_most.packets, found.blocks.skipped)
}

#[test]
fn an_address_of_a_masked_network_has_at_most_what_the_network_has() {
    let directory = Directory::new("masked");
    let mut writer = Writer::start(&directory, DISK);
    for part in 0..10 {
        close_with(&mut writer.windows, 30 * part, 0xc000_0207, Addresses::Prefix);
    }
    drop(writer);
    let (most, _) = at_most(&directory, "src_ip=192.0.2.7");
    assert!(most >= 100 * 300, "{most}");
    let (most, skipped) = at_most(&directory, "src_ip=192.0.2.0");
    assert!(most >= 100 * 300, "{most}");
    assert_eq!(skipped, 0, "its network is in each block");
    let (_, skipped) = at_most(&directory, "src_ip=100.64.9.7");
    assert!(skipped > 0, "its network is in none");
}

#[test]
fn what_may_not_be_shown_is_not_answered() {
    let directory = Directory::new("shown");
    let mut writer = Writer::start(&directory, DISK);
    close_with(&mut writer.windows, 0, 0xc000_0207, Addresses::Full);
    for (shown, key, is_answered) in [
        (Addresses::Full, "192.0.2.7", true),
        (Addresses::Prefix, "192.0.2.7", false),
        (Addresses::Prefix, "192.0.2.0", true),
        (Addresses::Prefix, "src_ip=192.0.2.0,dst_ip=10.0.0.1", false),
        (Addresses::Prefix, "proto=tcp,port=443", true),
        (Addresses::None, "192.0.2.0", false),
    ] {
        writer.windows.mask(shown);
        let found = crate::find::find(&writer.windows, &Time::default(), &[key.to_owned()]);
        assert_eq!(found.is_ok(), is_answered, "{shown:?}, {key}: {found:?}");
        assert!(is_answered || found.unwrap_err().contains("the configuration has `addresses: "));
    }
}

#[test]
fn a_clock_that_is_wrong_for_a_while_removes_little() {
    let directory = Directory::new("clock");
    let month = Limits { bytes: DISK, age: Some(Duration::from_secs(30 * 86_400)), has_samples: false };
    let mut writer = Writer::start(&directory, DISK);
    for nth in 0..12 * 180 {
        let report = crate::testing::report_of(nth, 480, &[(1, 5)]);
        writer.windows.add(&mut of_report(&report, ROWS), Addresses::Full);
    }
    writer.windows.complete();
    writer.windows.limit(month);
    let segments = || directory.names().iter().filter(|name| name.starts_with("windows-0")).count();
    let before = segments();
    // Ten years later, for an hour, and back.
    for nth in (3_650 * 180..3_650 * 180 + 8).chain(12 * 180..12 * 180 + 8) {
        let report = crate::testing::report_of(nth, 480, &[(1, 5)]);
        writer.windows.add(&mut of_report(&report, ROWS), Addresses::Full);
    }
    assert!(before > 20 && segments() > before / 2, "{before} files, then {}", segments());
}

#[test]
fn a_folder_that_is_only_read_stays_as_it_is() {
    let directory = Directory::new("read");
    let (mut writer, mut random) = (Writer::start(&directory, DISK), Random(3));
    for nth in 0..6 {
        writer.add(nth, &mut random);
    }
    // A running weir has begun to write the next minute.
    let mut open = fs::read(directory.path(OPEN)).unwrap();
    let begun = open[..40].to_vec();
    open.extend(begun);
    fs::write(directory.path(OPEN), &open).unwrap();
    let names = directory.names();
    let stored = crate::Stored::open(&directory.0.join(FOLDER)).unwrap();
    let answer = stored.answer(&crate::Query::Span(Time::default()));
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(directory.names(), names);
    assert_eq!(fs::read(directory.path(OPEN)).unwrap(), open);
}
