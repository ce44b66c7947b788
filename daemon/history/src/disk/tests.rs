use std::{env, process, time::Duration};

use weir_config::Addresses;
use weir_report::Steps;

use super::*;
use crate::{
    block::Open,
    seconds::{Carried, Counts},
    testing::{Random, at, report, usual},
    windows::{Time, of_report},
};

const OBSERVER: &str = "7f3c9a52";

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
    fn start(directory: &Directory, memory: u64) -> Self {
        Self::start_as(directory, memory, OBSERVER)
    }

    fn start_as(directory: &Directory, memory: u64, observer: &str) -> Self {
        let (mut windows, mut seconds) = (Windows::new(memory, Addresses::Full), Seconds::default());
        let mut disk = Disk::new(&directory.0, observer);
        disk.load(&mut windows, &mut seconds);
        assert!(!disk.is_failing);
        let minute = Open::new(windows.single().next());
        Self { disk, windows, seconds, minute }
    }

    /// Adds ten seconds and their window.
    fn add(&mut self, nth: i64, random: &mut Random) {
        let kept = of_report(&usual(nth, random));
        for second in 1..=10 {
            let counts = Some(Counts { packets: second, bytes: 60 * second, lost: 0 });
            let carried = Carried { name: "eth0", direction: None, counts };
            self.seconds.add(at(nth * 10 + second as i64), Duration::from_secs(1), [carried].into_iter());
        }
        let number = self.windows.single().next();
        let closed = self.windows.add(&kept, Addresses::Full);
        closed.single.iter().for_each(|block| self.disk.write_single(block, &self.windows));
        closed.many.iter().for_each(|block| self.disk.write_many(block, &self.windows));
        if closed.single.is_some() {
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
        let mut writer = Writer::start(&directory, 1 << 20);
        assert_eq!(writer.windows(), nth as u64);
        for _ in 0..runs {
            writer.add(nth, &mut random);
            nth += 1;
        }
        writer.write();
        let (span, seconds) = (writer.windows.span(&Time::default()).unwrap(), writer.seconds.sums(&steps));
        let next = Writer::start(&directory, 1 << 20);
        let known = next.windows.span(&Time::default()).unwrap();
        assert_eq!((known.windows, known.totals), (nth as u64, span.totals), "after {nth}");
        assert_eq!((known.unique, known.missing), (span.unique, span.missing), "after {nth}");
        assert_eq!(next.seconds.sums(&steps), seconds, "after {nth}");
        assert_eq!(next.windows.many().next(), writer.windows.many().next(), "unions of five minutes, too");
    }
}

/// A killed weir loses only the data since the last minute.
#[test]
fn a_crash_loses_at_most_the_last_minute() {
    let directory = Directory::new("crash");
    let (mut random, mut nth) = (Random(2), 0);
    for _ in 0..80 {
        let mut writer = Writer::start(&directory, 1 << 20);
        let before = writer.windows();
        for _ in 0..7 {
            writer.add(nth, &mut random);
            nth += 1;
        }
        let lost = before + 7 - Writer::start(&directory, 1 << 20).windows();
        assert!(lost < 6, "{lost} windows after {nth}");
    }
}

#[test]
fn the_size_on_disk_is_bounded() {
    let directory = Directory::new("bounded");
    let (mut random, mut writer) = (Random(3), Writer::start(&directory, 256 << 10));
    let mut written = Vec::new();
    for nth in 0..3000 {
        writer.add(nth, &mut random);
        if nth % 100 == 99 {
            let bytes =
                directory.names().iter().map(|name| fs::metadata(directory.path(name)).unwrap().len()).sum::<u64>();
            written.push(bytes);
        }
    }
    let most = written.iter().max().unwrap();
    assert!(*most < (256 << 10) + (200 << 10), "{written:?}");
    let seconds = directory.names().iter().filter(|name| name.starts_with(SECONDS)).count();
    assert_eq!(seconds as u64, SECONDS_KEPT, "{:?}", directory.names());
    let known = writer.windows();
    assert_eq!(Writer::start(&directory, 256 << 10).windows(), known);
    assert!(Writer::start(&directory, 1 << 20).windows() >= known, "more memory than before");
    assert!(Writer::start(&directory, 16 << 10).windows() < known, "less");
}

#[test]
fn torn_and_foreign_files_are_put_aside() {
    let directory = Directory::new("torn");
    let (mut random, mut writer) = (Random(4), Writer::start(&directory, 1 << 20));
    for nth in 0..400 {
        writer.add(nth, &mut random);
    }
    let names = directory.names();
    let named = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).cloned().collect::<Vec<_>>();
    assert!(named(SINGLE).len() == 13 && named(MANY).len() == 1 && named(SECONDS).len() == 2, "{names:?}");
    let whole = |name: &str| fs::read(directory.path(name)).unwrap();
    // Half a block, a foreign file, a changed number, half a minute, half a file of seconds.
    let [torn, foreign, changed] = [2, 5, 7].map(|nth| named(SINGLE)[nth].clone());
    fs::write(directory.path(&torn), &whole(&torn)[..1000]).unwrap();
    fs::write(directory.path(&foreign), "precious").unwrap();
    let mut bytes = whole(&changed);
    bytes[16] ^= 1;
    fs::write(directory.path(&changed), bytes).unwrap();
    let open = whole(OPEN);
    fs::write(directory.path(OPEN), &open[..open.len() - 5]).unwrap();
    let seconds = named(SECONDS)[1].clone();
    let bytes = whole(&seconds);
    fs::write(directory.path(&seconds), &bytes[..bytes.len() - 5]).unwrap();
    let (before, rows) = (writer.windows(), writer.seconds.next());
    let mut next = Writer::start(&directory, 1 << 20);
    let names = directory.names();
    assert!([torn, foreign.clone(), changed].iter().all(|name| !names.contains(name)), "{names:?}");
    assert_eq!(fs::read(directory.path(&format!("{ASIDE}{foreign}"))).unwrap(), b"precious");
    // Three blocks, a minute, and four windows that were not written yet.
    assert_eq!(before - next.windows(), 3 * 30 + 6 + 4);
    assert!(next.seconds.next() < rows, "a minute is missing");
    let asides = names.iter().filter(|name| name.starts_with(ASIDE)).count();
    assert!(asides <= ASIDE_MAX, "{names:?}");
    for nth in 400..440 {
        next.add(nth, &mut random);
    }
    next.write();
    assert_eq!(Writer::start(&directory, 1 << 20).windows(), next.windows());
    let other = Writer::start_as(&directory, 1 << 20, "00000000");
    assert_eq!((other.windows(), other.seconds.next()), (0, 0), "another machine wrote it");
}

/// If the folder cannot be written to, weir continues, and remembers in memory.
#[test]
fn a_failing_disk_is_logged_once() {
    let directory = Directory::new("fails");
    fs::write(directory.0.join(FOLDER), "a file").unwrap();
    let (mut windows, mut seconds) = (Windows::new(1 << 20, Addresses::Full), Seconds::default());
    let mut disk = Disk::new(&directory.0, OBSERVER);
    disk.load(&mut windows, &mut seconds);
    assert!(disk.is_failing);
    let kept = of_report(&report(0, &[(1, 1)]));
    windows.add(&kept, Addresses::Full);
    disk.append(&windows.single().open().pack().unwrap());
    assert!(disk.is_failing && windows.span(&Time::default()).is_some());
    fs::remove_file(directory.0.join(FOLDER)).unwrap();
    fs::create_dir(directory.0.join(FOLDER)).unwrap();
    disk.append(&windows.single().open().pack().unwrap());
    assert!(!disk.is_failing);
}
