//! Blocks on disk, in segments: the history beyond what memory holds.
//!
//! | file | is |
//! |---|---|
//! | `PREFIX-NUMBER` | a segment: [blocks](crate::block), each followed by a [filter](crate::filter) of its addresses |
//! | `PREFIX-NUMBER.index` | for each block of the segment a line of JSON: where it is, its time, its sums |
//! | `aside-...` | a segment without any readable block |
//!
//! `NUMBER` is that of the first window. Earlier versions wrote one block a segment, without a filter and an index. An
//! index is only a shortcut: what it lacks is read from the segment. A damaged block is named and skipped.
//! Nothing is synced: a crash of weir loses nothing that was written, and a power failure what the system had not
//! written yet.

use std::{
    collections::VecDeque,
    fs,
    io::{self, Read, Seek, SeekFrom, Write},
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tracing::warn;
use weir_config::Addresses;
use weir_schema::Tally;
use weir_system::{folder::free_bytes, plain_file};

use crate::{
    block::{Block, MAGIC, NoBlock},
    filter::{Filter, unlisted},
    time::Time,
    writes::Writes,
};

/// The largest segment that is appended to, as a part of the limit, and in bytes.
const SEGMENTS_MIN: u64 = 16;
const SEGMENT_MAX: u64 = 8 << 20;
/// A segment has blocks of a day at most, so that the oldest day can go as a whole.
const DAY: i64 = 86_400;
/// The largest size of a block with its filter, in bytes.
const BLOCK_MAX: usize = 16 << 20;
/// Maximum number of invalid files that are kept.
const ASIDE_MAX: usize = 4;
const ASIDE: &str = "aside-";
const INDEX: &str = ".index";

/// What an archive may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes on disk.
    pub bytes: u64,
    /// How long a block is kept.
    pub age: Option<Duration>,
    /// True if samples of flow records need a part of it.
    pub has_samples: bool,
}

/// A block of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The number of its first window.
    pub first: u64,
    /// How many original windows it has.
    pub windows: u64,
    /// How many windows and unions it has.
    pub count: u64,
    /// The earliest start.
    pub start: Timestamp,
    /// The latest end.
    pub end: Timestamp,
    /// The most that it shows of addresses, as in its head.
    level: u8,
    /// Where it is in the segment.
    at: u64,
    bytes: u64,
    /// The bytes of its filter, which follows it.
    filter: u64,
    /// The most that a source had that is in no list of sources, and a destination.
    #[serde(default)]
    pub unlisted: Option<[Tally; 2]>,
}

impl Entry {
    /// The entry of a block at a place, with its size and that of its filter.
    fn of(block: &Block, [at, bytes, filter]: [u64; 3], unlisted: Option<[Tally; 2]>) -> Self {
        Self {
            first: block.first,
            windows: block.windows,
            count: block.entries as u64,
            start: block.start,
            end: block.end,
            level: block.addresses as u8,
            at,
            bytes,
            filter,
            unlisted,
        }
    }

    /// The most that it shows of addresses.
    pub fn addresses(&self) -> Addresses {
        Block::level(self.level)
    }

    const fn end_at(&self) -> u64 {
        self.at + self.bytes + self.filter
    }
}

/// A file of blocks.
#[derive(Clone, Debug)]
struct Segment {
    name: String,
    first: u64,
    next: u64,
    start: Timestamp,
    end: Timestamp,
    /// How many windows and unions it has.
    count: u64,
    /// The size of the file and of its index.
    bytes: u64,
    /// Where the next block goes; `None` if the file has damaged parts at its end.
    append_at: Option<u64>,
}

/// The blocks of one kind.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    prefix: &'static str,
    observer: String,
    limits: Limits,
    segments: VecDeque<Segment>,
    writes: Writes,
    is_read_only: bool,
}

impl Archive {
    /// The blocks in a folder. Reads the indexes, and what they lack.
    pub fn open(folder: &Path, prefix: &'static str, observer: &str, limits: Limits, is_read_only: bool) -> Self {
        let mut archive = Self {
            folder: folder.to_owned(),
            prefix,
            observer: observer.to_owned(),
            limits,
            segments: VecDeque::new(),
            writes: Writes::of_history(folder),
            is_read_only,
        };
        for (first, name) in numbered(folder, prefix) {
            if let Some(segment) = archive.segment(first, name) {
                archive.segments.push_back(segment);
            }
        }
        archive
    }

    /// The number of its first window.
    pub fn first(&self) -> Option<u64> {
        self.segments.front().map(|segment| segment.first)
    }

    /// The number after its last window.
    pub fn next(&self) -> u64 {
        self.segments.iter().map(|segment| segment.next).max().unwrap_or(0)
    }

    /// The earliest start of a window.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.segments.iter().map(|segment| segment.start).min()
    }

    /// The latest end of a window.
    pub fn newest(&self) -> Option<Timestamp> {
        self.segments.iter().map(|segment| segment.end).max()
    }

    /// What its files take, in bytes.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Changes what it may take.
    pub fn limit(&mut self, limits: Limits) {
        if self.limits != limits {
            self.limits = limits;
            self.prune();
        }
    }

    /// Adds blocks that follow those it has. If the disk is full, the oldest segments make room.
    pub fn append<'b>(&mut self, blocks: impl Iterator<Item = &'b Block>) {
        if self.is_read_only {
            return;
        }
        for block in blocks {
            let mut written = self.write(block);
            while is_full(&written) && self.make_room_for(block) {
                written = self.write(block);
            }
            let is_written = written.is_ok();
            self.writes.note(written);
            if !is_written {
                return;
            }
        }
        self.prune();
    }

    fn write(&mut self, block: &Block) -> io::Result<()> {
        let (bytes, kept) = (block.to_bytes(&self.observer), block.kept(|_, _| true));
        let filter = Filter::of(&kept).map(|filter| filter.to_bytes()).unwrap_or_default();
        let room = self.segment_max();
        let fits = |segment: &&Segment| {
            let is_same_day = day(segment.start) == day(block.start);
            is_same_day && segment.append_at.is_some() && segment.bytes + bytes.len() as u64 <= room
        };
        let (name, at) = match self.segments.back().filter(fits) {
            Some(segment) => (segment.name.clone(), segment.append_at.unwrap_or(0)),
            None => (format!("{}{:012}", self.prefix, block.first), 0),
        };
        let entry = Entry::of(block, [at, bytes.len() as u64, filter.len() as u64], Some(unlisted(&kept)));
        write_at(&self.folder.join(&name), at, &[bytes, filter].concat())?;
        let line = line_of(&entry);
        // If that fails, the block is found in the segment.
        let _ = write_end(&self.folder.join(format!("{name}{INDEX}")), at == 0, &line);
        let more = entry.bytes + entry.filter + line.len() as u64;
        match self.segments.back_mut().filter(|last| last.name == name) {
            Some(last) => last.add(&entry, more),
            None => self.segments.push_back(Segment::new(name, &entry, more)),
        }
        Ok(())
    }

    /// The most that a segment may have. Where a disk has less room than the limit, segments are smaller, so that a
    /// small part of the past can go when it is full.
    fn segment_max(&self) -> u64 {
        let on_disk = free_bytes(&self.folder).map_or(u64::MAX, |free| free.saturating_add(self.bytes()));
        (self.limits.bytes.min(on_disk) / SEGMENTS_MIN).min(SEGMENT_MAX)
    }

    /// Removes the oldest segment, because the disk is full. The only one stays until its day is over: it is worth more
    /// than a block.
    fn make_room_for(&mut self, block: &Block) -> bool {
        let is_over = self.segments.back().is_some_and(|last| day(last.start) != day(block.start));
        self.drop_oldest(if is_over { 0 } else { 1 })
    }

    /// The blocks with windows of these numbers that touch this time, the oldest first, each with its segment.
    pub fn entries(&self, numbers: &Range<u64>, time: &Time) -> Vec<(usize, Entry)> {
        let segments = self.touched(numbers, time);
        let entries =
            |(nth, segment)| self.touched_in(segment, numbers, time).into_iter().map(move |entry| (nth, entry));
        segments.flat_map(entries).collect()
    }

    /// How many windows and unions these have. Reads the indexes only of segments that are not meant as a whole.
    pub fn count(&self, numbers: &Range<u64>, time: &Time) -> u64 {
        let is_whole = |segment: &Segment| {
            let is_within = numbers.start <= segment.first && segment.next <= numbers.end;
            is_within && time.covers(segment.start, segment.end)
        };
        let (whole, parts): (Vec<_>, Vec<_>) = self.touched(numbers, time).partition(|(_, segment)| is_whole(segment));
        let of_parts = parts.into_iter().flat_map(|(_, segment)| self.touched_in(segment, numbers, time));
        whole.into_iter().map(|(_, segment)| segment.count).sum::<u64>()
            + of_parts.map(|entry| entry.count).sum::<u64>()
    }

    /// The segments with windows of these numbers that touch this time.
    fn touched<'a>(&'a self, numbers: &Range<u64>, time: &Time) -> impl Iterator<Item = (usize, &'a Segment)> {
        self.segments.iter().enumerate().filter(|(_, segment)| {
            let is_within = segment.first < numbers.end && numbers.start < segment.next;
            is_within && time.overlaps(segment.start, segment.end)
        })
    }

    /// The blocks of a segment with windows of these numbers that touch this time.
    fn touched_in(&self, segment: &Segment, numbers: &Range<u64>, time: &Time) -> Vec<Entry> {
        let mut entries = self.index(segment);
        entries.retain(|entry| {
            let is_within = entry.first < numbers.end && numbers.start < entry.first + entry.windows;
            is_within && time.overlaps(entry.start, entry.end)
        });
        entries
    }

    /// Reads a block. If it is damaged, the log names it.
    pub fn read(&self, (nth, entry): &(usize, Entry)) -> Option<Block> {
        let path = self.path(*nth)?;
        let read = read_at(&path, entry.at, entry.bytes as usize).map_err(|error| error.to_string());
        let block = read.and_then(|bytes| match Block::read(&bytes, &self.observer) {
            Ok((block, _)) => Ok(block),
            Err(error) => Err(error.to_string()),
        });
        block.map_err(|why| self.warn_of(&path, entry, &why)).ok()
    }

    /// Returns true if a block may have this address, masked as the block is. Blocks without a filter may.
    pub fn may_have(&self, (nth, entry): &(usize, Entry), address: std::net::IpAddr) -> bool {
        let Some(path) = self.path(*nth).filter(|_| entry.filter > 0) else { return true };
        let address = entry.addresses().masked(address);
        let bytes = read_at(&path, entry.at + entry.bytes, entry.filter as usize);
        let filter = bytes.ok().and_then(|bytes| Some(Filter::read(&bytes)?.0));
        filter.is_none_or(|filter| filter.may_have(address))
    }

    fn path(&self, nth: usize) -> Option<PathBuf> {
        Some(self.folder.join(&self.segments.get(nth)?.name))
    }

    fn warn_of(&self, path: &Path, Entry { at, start, end, .. }: &Entry, why: &str) {
        warn!("{}: the block at byte {at}, from {start:.0} to {end:.0}, is skipped: {why}", path.display());
    }

    /// The entries of a segment.
    fn index(&self, segment: &Segment) -> Vec<Entry> {
        let path = self.folder.join(format!("{}{INDEX}", segment.name));
        let text = read_all(&path).unwrap_or_default();
        let known = lines_of(&text);
        let known_end = known.iter().map(Entry::end_at).max().unwrap_or(0);
        let size = fs::metadata(self.folder.join(&segment.name)).map_or(0, |file| file.len());
        if known_end == size { known } else { self.scan(&segment.name).0 }
    }

    /// What a file has, if anything in it can be used. A file without any block is put aside.
    fn segment(&self, first: u64, name: String) -> Option<Segment> {
        let path = self.folder.join(&name);
        let size = fs::metadata(&path).map_or(0, |file| file.len());
        let index = read_all(&self.folder.join(format!("{name}{INDEX}"))).unwrap_or_default();
        let mut entries = lines_of(&index);
        let (mut is_whole, mut index_bytes) = (true, index.len() as u64);
        if entries.iter().map(Entry::end_at).max().unwrap_or(0) != size || entries.is_empty() {
            let damaged;
            (entries, damaged) = self.scan(&name);
            is_whole = damaged.is_none();
            if let Some(why) = damaged {
                self.tell_damaged(&path, &why, entries.is_empty());
            }
            let lines: Vec<u8> = entries.iter().flat_map(line_of).collect();
            index_bytes = lines.len() as u64;
            if !self.is_read_only && !entries.is_empty() {
                let _ = replace(&self.folder, &format!("{name}{INDEX}"), &lines);
            }
        }
        let (one, others) = entries.split_first()?;
        let mut segment = Segment::new(name, one, 0);
        others.iter().for_each(|entry| segment.add(entry, 0));
        (segment.first, segment.bytes) = (first.min(one.first), size + index_bytes);
        segment.append_at = is_whole.then_some(size);
        Some(segment)
    }

    /// The blocks of a segment, without its index, and why some part of it is damaged.
    fn scan(&self, name: &str) -> (Vec<Entry>, Option<String>) {
        let bytes = match read_all(&self.folder.join(name)) {
            Ok(bytes) => bytes,
            Err(error) => return (Vec::new(), Some(error.to_string())),
        };
        let (mut entries, mut damaged, mut at) = (Vec::new(), None, 0);
        while at < bytes.len() {
            match Block::read(&bytes[at..], &self.observer) {
                Ok((block, rest)) => {
                    let length = bytes.len() - at - rest.len();
                    let filter = Filter::read(rest).map_or(0, |(_, after)| rest.len() - after.len());
                    let unlisted = (filter > 0).then(|| unlisted(&block.kept(|_, _| true)));
                    entries.push(Entry::of(&block, [at, length, filter].map(|of| of as u64), unlisted));
                    at += length + filter;
                }
                Err(why) => {
                    let why = format!("at byte {at}: {why}");
                    damaged = damaged.or(Some(why));
                    let next = bytes[at + 1..].windows(MAGIC.len()).position(|part| part == MAGIC);
                    at = next.map_or(bytes.len(), |next| at + 1 + next);
                }
            }
        }
        (entries, damaged)
    }

    fn tell_damaged(&self, path: &Path, why: &str, is_all: bool) {
        if is_all && !self.is_read_only {
            put_aside(&self.folder, path, why);
        } else {
            warn!("{} {why}: the history lacks that part, and has the rest of the file", path.display());
        }
    }

    /// Removes the oldest segments that are too much, and one that is too old. Only one, so that a clock that is wrong
    /// for a while removes little.
    fn prune(&mut self) {
        if self.is_read_only {
            return;
        }
        while self.bytes() > self.limits.bytes && self.drop_oldest(1) {}
        let oldest_kept = self.segments.back().zip(self.limits.age).and_then(|(last, age)| {
            let age = SignedDuration::try_from(age).ok()?;
            last.end.checked_sub(age).ok()
        });
        if oldest_kept.zip(self.segments.front()).is_some_and(|(kept, segment)| segment.end < kept) {
            self.drop_oldest(1);
        }
    }

    /// Removes the oldest segment, unless so few are left.
    fn drop_oldest(&mut self, least: usize) -> bool {
        if self.segments.len() <= least {
            return false;
        }
        if let Some(oldest) = self.segments.pop_front() {
            for name in [format!("{}{INDEX}", oldest.name), oldest.name] {
                let _ = fs::remove_file(self.folder.join(name));
            }
        }
        true
    }
}

fn is_full(written: &io::Result<()>) -> bool {
    matches!(written, Err(error) if error.kind() == io::ErrorKind::StorageFull)
}

/// The day in which a time lies, in UTC.
fn day(time: Timestamp) -> i64 {
    time.as_second().div_euclid(DAY)
}

impl Segment {
    fn new(name: String, entry: &Entry, bytes: u64) -> Self {
        let &Entry { first, windows, count, start, end, .. } = entry;
        Self { name, first, next: first + windows, start, end, count, bytes, append_at: Some(entry.end_at()) }
    }

    fn add(&mut self, entry: &Entry, bytes: u64) {
        self.next = self.next.max(entry.first + entry.windows);
        (self.start, self.end) = (self.start.min(entry.start), self.end.max(entry.end));
        self.count += entry.count;
        self.bytes += bytes;
        self.append_at = Some(entry.end_at());
    }
}

/// The files with this prefix, by their numbers.
pub fn numbered(folder: &Path, prefix: &str) -> Vec<(u64, String)> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<_> = names
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_prefix(prefix)?.parse().ok()?, name))
        })
        .collect();
    all.sort_unstable();
    all
}

/// Replaces a file. After a crash it is either the old one or the new one.
///
/// # Errors
///
/// The system refused it.
pub fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    /// The name of a file while it is written.
    const UNFINISHED: &str = "unfinished";
    let unfinished = folder.join(UNFINISHED);
    plain_file::replace(&unfinished, 0o600)?.write_all(bytes)?;
    fs::rename(unfinished, folder.join(name))
}

/// Renames an invalid file, so that weir does not read it again. If there are already [`ASIDE_MAX`] such files, removes
/// it.
pub fn put_aside(folder: &Path, path: &Path, why: &str) {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let known = names.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(ASIDE))).count();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = folder.join(format!("{ASIDE}{name}"));
    let (moved, what) = match known < ASIDE_MAX {
        true => (fs::rename(path, &aside), format!("it is now {}", aside.display())),
        false => (fs::remove_file(path), "it is removed".to_owned()),
    };
    let what = moved.map_or_else(|error| format!("it stays, but is not used: {error}"), |()| what);
    warn!("{}: {why}, so the history lacks its content: {what}", path.display());
}

/// A line of an index: the entry, and a checksum.
fn line_of(entry: &Entry) -> Vec<u8> {
    let json = serde_json::to_vec(entry).expect("it has text keys and is written into memory");
    let sum = crc32fast::hash(&json);
    [json, format!(" {sum:08x}\n").into_bytes()].concat()
}

/// The entries of an index, until the first damaged line.
fn lines_of(text: &[u8]) -> Vec<Entry> {
    let entry = |line: &[u8]| {
        let (json, sum) = line.strip_suffix(b"\n")?.split_last_chunk::<9>()?;
        let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?.trim_start(), 16).ok()?;
        if crc32fast::hash(json) == sum { serde_json::from_slice(json).ok() } else { None }
    };
    text.split_inclusive(|byte| *byte == b'\n').map_while(entry).collect()
}

/// Writes these bytes at a place of a file. What an interrupted write has left there is replaced.
fn write_at(path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut file = plain_file::regular(plain_file::open_or_create(path, 0o600)?)?;
    file.set_len(at)?;
    file.seek(SeekFrom::Start(at))?;
    let written = file.write_all(bytes);
    if written.is_err() {
        let _ = file.set_len(at);
    }
    written
}

/// Appends to a file, which is emptied before if it `begins`.
fn write_end(path: &Path, begins: bool, bytes: &[u8]) -> io::Result<()> {
    let mut file = plain_file::append(path, 0o600)?;
    if begins {
        file.set_len(0)?;
    }
    file.write_all(bytes)
}

fn read_at(path: &Path, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
    if bytes > BLOCK_MAX {
        return Err(io::Error::other(NoBlock::Torn));
    }
    let mut file = plain_file::open(path)?;
    file.seek(SeekFrom::Start(at))?;
    let mut read = vec![0; bytes];
    file.read_exact(&mut read)?;
    Ok(read)
}

fn read_all(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    plain_file::open(path)?.take(2 * SEGMENT_MAX + BLOCK_MAX as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
