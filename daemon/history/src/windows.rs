//! A day of windows in a fixed number of bytes.
//!
//! The history keeps of each report the first rows of each list, and everything that can be added up: a [`Union`] of
//! one window. The last hours are kept window by window. Each five minutes and each hour also have one union, and these
//! reach back for days. A row that is not kept only widens the bounds of its key, so bounds stay correct. An answer has
//! single windows where they are there, unions where they are not, and unions where single windows would be too many.

use std::{iter, ops::Range, path::Path};

use jiff::{SignedDuration, Timestamp};
use weir_config::Addresses;
use weir_schema::{FlowSample, Gap, Interface, Length, PastWindow, REPORTS_KEPT, Report, Union, Unique};

use crate::{
    archive::{Archive, Limits},
    block::{Block, Kept},
    confidence,
    distinct::{Distincts, DistinctsOfTime},
    ring::{OPEN_MAX, Ring},
    samples::{self, Samples},
    time::Time,
};

/// Rows of each list of five minutes, and the least of a window that takes too many bytes.
const ROWS_OF_MANY: usize = 64;
const ROWS_MIN: usize = 10;
/// Rows of each list of an answer.
const ROWS_OF_ANSWER: usize = 100;
/// Rows of each list, and of all lists, while windows are joined. A key that has no row any more may come again.
const ROWS_WHILE_JOINED: usize = 256;
const ROWS_OF_ALL_LISTS: usize = 4096;
/// If a window takes more bytes of JSON than this, its lists become shorter, and then some views are left out.
const WINDOW_MAX: usize = 512 << 10;
/// Windows of a block.
const WINDOWS_OF_BLOCK: usize = 30;
/// The lengths of the unions of older windows, in seconds.
pub const SECONDS_OF_FIVES: i64 = 300;
pub const SECONDS_OF_HOURS: i64 = 3600;
/// Unions in a block.
const UNIONS_OF_BLOCK: usize = 12;
/// The most unions of five minutes in an answer: 25 hours. More are answered by unions of hours, if there are any.
const FIVES_MAX: u64 = 300;
/// The most single windows in an answer: an hour of windows of ten seconds. More are answered by unions of five
/// minutes, if there are any.
const SINGLE_MAX: u64 = 360;
/// How many windows are joined at a time.
const BATCH: usize = 10;
/// A shorter time without windows is not a gap.
const GAP_MIN_MS: i64 = 1500;
/// With this many tables of views or more, each has fewer rows.
const TABLES_MANY: usize = 32;
/// The most interfaces of a union. If there are more, the last ones are added up.
const INTERFACES_MAX: usize = 512;
/// The number of ten-second windows in a day. The bounds of older windows hold for this many at a time.
const WINDOWS_OF_A_DAY: u64 = 8640;
/// Shares are kept in millionths.
const PARTS: f64 = 1e6;
/// Maximum number of gaps in an answer.
const GAPS_MAX: usize = 32;

/// The windows that are kept: single ones, and older ones together.
#[derive(Debug)]
pub struct Windows {
    single: Ring,
    /// The sketches of all windows in the open block; `None` after a restart, until that block is closed.
    open: Option<Distincts>,
    fives: Unions,
    hours: Unions,
    samples: Samples,
    /// How much of addresses answers may have.
    addresses: Addresses,
}

/// Unions of windows, each of the same length.
#[derive(Debug)]
struct Unions {
    ring: Ring,
    /// The length in seconds.
    length: i64,
    /// The union that is not complete yet.
    pending: Option<Kept>,
    addresses: Addresses,
}

/// The archives of a folder.
pub const SINGLE: &str = "windows-";
const FIVES: &str = "fives-";
const HOURS: &str = "hours-";
/// The parts of the limit on disk, in 32nds: of single windows, of unions of five minutes and of hours, and of samples
/// of minutes and of hours. A history without samples has other parts, because nothing takes what is left.
const PARTS_OF_DISK: [u64; 5] = [18, 3, 1, 9, 1];
const PARTS_WITHOUT_SAMPLES: [u64; 5] = [24, 6, 2, 0, 0];
const ALL_PARTS: u64 = 32;

impl Windows {
    /// Makes a history without windows, which takes at most this many bytes.
    pub fn new(memory: u64, addresses: Addresses) -> Self {
        Self::with_samples(memory, 0, addresses)
    }

    /// The same with this many more bytes for samples.
    pub fn with_samples(memory: u64, samples: u64, addresses: Addresses) -> Self {
        let [fives, hours] = [share_of_fives(memory), share_of_hours(memory)];
        let single = Ring::new(memory - fives - hours);
        let fives = Unions::new(fives, SECONDS_OF_FIVES, addresses);
        let hours = Unions::new(hours, SECONDS_OF_HOURS, addresses);
        Self { single, open: None, fives, hours, samples: Samples::new(samples), addresses }
    }

    /// Keeps them in this folder, too, and has those that are there.
    pub fn keep_in(&mut self, folder: &Path, observer: &str, limits: Limits, is_read_only: bool) {
        let [single, fives, hours, minutes_sampled, hours_sampled] = parts_of_disk(limits);
        let archive = |prefix, limits| Archive::open(folder, prefix, observer, limits, is_read_only);
        self.single.keep_in(archive(SINGLE, single));
        self.fives.ring.keep_in(archive(FIVES, fives));
        self.hours.ring.keep_in(archive(HOURS, hours));
        self.samples.keep_in(archive(samples::MINUTES, minutes_sampled), archive(samples::HOURS, hours_sampled));
        // If single windows are lost, their numbers continue after those of the unions.
        self.single.begin(self.fives.ring.next().max(self.hours.ring.next()));
    }

    /// Changes what they may take on disk.
    pub fn limit(&mut self, limits: Limits) {
        let [single, fives, hours, minutes_sampled, hours_sampled] = parts_of_disk(limits);
        self.single.limit_archive(single);
        self.fives.ring.limit_archive(fives);
        self.hours.ring.limit_archive(hours);
        self.samples.limit(minutes_sampled, hours_sampled);
    }

    /// The samples of flow records.
    pub const fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Adds the sample of a window. Later samples have at most `size` records.
    pub fn add_sample(&mut self, past: &PastWindow, sample: FlowSample, size: usize, addresses: Addresses) {
        self.samples.add(past, sample, size, addresses);
    }

    /// Writes the samples that are not complete, at the end.
    pub fn finish_samples(&mut self) {
        self.samples.finish();
    }

    /// Limits how much of addresses answers show from now on.
    pub fn mask(&mut self, addresses: Addresses) {
        self.addresses = addresses;
    }

    /// What its packed windows take in memory, in bytes.
    #[cfg(test)]
    fn memory(&self) -> u64 {
        self.single.bytes() + self.fives.ring.bytes() + self.hours.ring.bytes() + self.samples.memory()
    }

    /// What answers may show of addresses.
    pub const fn shown(&self) -> Addresses {
        self.addresses
    }

    /// Returns the ring of single windows.
    pub const fn single(&self) -> &Ring {
        &self.single
    }

    /// Adds the kept part of a report, and takes its sketches. Returns whether that has closed a block of windows.
    pub fn add(&mut self, kept: &mut Kept, addresses: Addresses) -> bool {
        let distinct = kept.distinct.take();
        let is_other =
            |(start, _)| part_of_day(start, SECONDS_OF_FIVES) != part_of_day(kept.past.start, SECONDS_OF_FIVES);
        let has_ended = self.single.open().times().is_some_and(is_other);
        if has_ended {
            self.close();
        }
        self.open =
            if self.single.open().is_empty() { distinct } else { Distincts::both(self.open.take(), distinct.as_ref()) };
        self.single.push(kept, addresses);
        let open = self.single.open();
        let is_full = open.count() >= WINDOWS_OF_BLOCK || open.bytes() >= OPEN_MAX;
        if is_full {
            self.close();
        }
        has_ended || is_full
    }

    /// Adds windows that an earlier weir has written since its last block.
    pub fn resume_open(&mut self, block: &Block) {
        self.single.begin(block.first);
        let next = self.single.next();
        for kept in block.kept(|number, _| number >= next) {
            self.single.push(&kept, block.addresses);
        }
    }

    /// Makes the unions that are missing after the resumed ones.
    pub fn complete(&mut self) {
        let time = Time::default();
        self.fives.ring.begin(self.single.first());
        self.hours.ring.begin(self.fives.ring.first());
        let of_hours = self.fives.ring.archived(&(self.hours.ring.next()..u64::MAX), &time);
        for entry in of_hours {
            if let Some(block) = self.fives.ring.archive().and_then(|archive| archive.read(&entry)) {
                let kept: Vec<_> = block.numbered().map(|(number, _)| number).zip(block.kept(|_, _| true)).collect();
                for (number, kept) in kept {
                    self.hours.add_one(number, kept, block.addresses);
                }
            }
        }
        self.samples.complete();
        let of_fives = self.single.archived(&(self.fives.ring.next()..u64::MAX), &time);
        for entry in of_fives {
            if let Some(block) = self.single.archive().and_then(|archive| archive.read(&entry)) {
                self.summarize(&block, None);
            }
        }
    }

    /// Closes the open block.
    fn close(&mut self) {
        let distinct = self.open.take();
        if let Some(block) = self.single.close() {
            self.summarize(&block, distinct);
        }
    }

    /// Adds a block to the unions of its five minutes and of its hour.
    fn summarize(&mut self, block: &Block, distinct: Option<Distincts>) {
        let mut all = block.kept(|_, _| true);
        for kept in &mut all {
            confidence::raise(&mut kept.union, WINDOWS_OF_A_DAY);
        }
        for (number, kept, addresses) in self.fives.add(block.first, all, distinct, block.addresses) {
            self.hours.add_one(number, kept, addresses);
        }
    }

    /// The earliest start of a window.
    pub fn oldest(&self) -> Option<Timestamp> {
        [&self.hours.ring, &self.fives.ring, &self.single].into_iter().filter_map(Ring::oldest).min()
    }

    /// The latest end of a window.
    pub fn newest(&self) -> Option<Timestamp> {
        self.single.newest()
    }

    /// The totals of all windows that touch this time, the oldest first. Where there are very many, they are several
    /// together.
    pub fn index(&self, time: &Time) -> Vec<PastWindow> {
        let mut all = Vec::new();
        for (block, range) in self.selected(&self.cuts(time), time) {
            let is_wanted = |(number, past): &(u64, PastWindow)| range.contains(number) && time.is_touched(past);
            all.extend(block.numbered().filter(is_wanted).map(|(_, past)| past));
        }
        all
    }

    /// The time of at least this many of the last windows that ended by `to`; `None` if there are none.
    pub fn last(&self, windows: u64, to: Option<Timestamp>) -> Option<Time> {
        let end = to.into_iter().chain(self.newest()).min()?;
        self.widen(windows, |length| {
            let from = end.checked_sub(length).ok().filter(|from| self.oldest().is_some_and(|oldest| oldest < *from));
            let mut all = self.index(&Time { from, to });
            all.retain(|past| to.is_none_or(|to| past.end <= to));
            (from.is_none(), all.into_iter().rev().collect())
        })
    }

    /// The time of the first windows that began at `from` or later, at least as many as this; `None` if there are none.
    pub fn first(&self, windows: u64, from: Option<Timestamp>) -> Option<Time> {
        let begin = from.into_iter().chain(self.oldest()).max()?;
        self.widen(windows, |length| {
            let to = begin.checked_add(length).ok().filter(|to| self.newest().is_some_and(|newest| *to < newest));
            let mut all = self.index(&Time { from, to });
            all.retain(|past| from.is_none_or(|from| from <= past.start));
            (to.is_none(), all)
        })
    }

    /// The time of the first of these windows, at least as many as this, out of a time that gets longer until it has
    /// them. `of` has the windows of a length, and whether there are no more.
    fn widen(&self, windows: u64, of: impl Fn(SignedDuration) -> (bool, Vec<PastWindow>)) -> Option<Time> {
        let mut length = SignedDuration::from_mins(30);
        loop {
            let (are_all, pasts) = of(length);
            if are_all || pasts.iter().map(|past| past.windows).sum::<u64>() > windows {
                return around(pasts.iter(), windows);
            }
            length = length.saturating_mul(8);
        }
    }

    /// The union of all windows that touch this time; `None` if there are none.
    pub fn span(&self, time: &Time) -> Option<Union> {
        let cuts = self.cuts(time);
        // The windows of this time alone: then windows that are added later do not change the answer.
        let windows = self.index(time).iter().filter(|past| past.windows == 1).count() as u64;
        let mut all = None;
        let (mut known, mut fired) = (Vec::new(), Vec::new());
        self.walk(&cuts, time, |kept| {
            known.extend(kept.iter().flat_map(|kept| known_times(&kept.past, &kept.union)));
            fired.extend(kept.iter().flat_map(|kept| kept.past.alerts.clone()));
            let mut kept = kept.into_iter().peekable();
            while kept.peek().is_some() {
                let mut batch: Vec<Kept> = kept.by_ref().take(BATCH).collect();
                for one in batch.iter_mut().filter(|_| windows > REPORTS_KEPT as u64) {
                    confidence::raise(&mut one.union, windows);
                }
                all = joined(all.take(), batch);
            }
        });
        let mut union = all?.union;
        union.trim(ROWS_OF_ANSWER, INTERFACES_MAX);
        let end = self.newest().into_iter().chain(time.to).min().unwrap_or(Timestamp::MAX);
        union.missing = gaps(known, time.from.or(self.oldest()), end);
        fired.sort_unstable();
        fired.dedup();
        union.fired = fired;
        if union.windows > 1
            && let Some(unique) = self.distinct(&cuts, time)
        {
            union.narrow(unique);
        }
        union.reaches_back_to = self.oldest();
        Some(union)
    }

    /// The distinct counts of all windows that touch this time, by the sketches of unions. Windows that are in no union
    /// with sketches have their own counts. `None` without sketches.
    fn distinct(&self, cuts: &Cuts, time: &Time) -> Option<Unique> {
        let (of_time, others) = self.sketched(cuts, time)?;
        Some(others.into_iter().fold(of_time.counts()?, Unique::or))
    }

    /// The sketches of all windows that touch this time, and the counts of windows without. `None` without sketches.
    pub fn sketched(&self, cuts: &Cuts, time: &Time) -> Option<(DistinctsOfTime, Vec<Unique>)> {
        let mut of_time = DistinctsOfTime::default();
        let mut counted: Vec<Range<u64>> = Vec::new();
        let mut count = |number: u64, own: (Timestamp, Timestamp), distinct: &Distincts| {
            let within = (own.0.max(time.from.unwrap_or(own.0)), own.1.min(time.to.unwrap_or(own.1)));
            of_time.add(distinct, own, within);
            counted.push(number..number + distinct.windows);
        };
        // Where an answer has single windows, unions of five minutes count them.
        for (ring, numbers) in [(&self.hours.ring, 0..cuts.hours), (&self.fives.ring, cuts.hours..u64::MAX)] {
            for block in ring.touching(numbers.clone(), time).filter(|block| block.addresses >= self.addresses) {
                let is_wanted = |number: u64, past: &PastWindow| numbers.contains(&number) && time.is_touched(past);
                let chosen = block.numbered().filter(|(number, past)| is_wanted(*number, past));
                for ((number, _), kept) in chosen.zip(block.kept(is_wanted)) {
                    kept.distinct.iter().for_each(|distinct| count(number, (kept.past.start, kept.past.end), distinct));
                }
            }
        }
        if let Some((pending, distinct)) =
            self.fives.pending.as_ref().and_then(|one| Some((one, one.distinct.as_ref()?)))
            && time.is_touched(&pending.past)
        {
            count(self.fives.ring.next(), (pending.past.start, pending.past.end), distinct);
        }
        let open = self.single.open();
        if let Some(((start, end), distinct)) = open.times().zip(self.open.as_ref())
            && time.overlaps(start, end)
        {
            count(open.first(), (start, end), distinct);
        }
        of_time.counts()?;
        let mut others = Vec::new();
        let is_counted = |number: u64, windows: u64| {
            counted.iter().any(|numbers| numbers.start <= number && number + windows <= numbers.end)
        };
        for (block, range) in self.selected(cuts, time) {
            let is_left = |number: u64, past: &PastWindow| {
                range.contains(&number) && time.is_touched(past) && !is_counted(number, past.windows)
            };
            if block.numbered().any(|(number, past)| is_left(number, &past)) {
                for mut kept in block.kept(is_left) {
                    confidence::raise(&mut kept.union, WINDOWS_OF_A_DAY);
                    others.push(kept.union.unique);
                }
            }
        }
        Some((of_time, others))
    }

    /// Calls `each` with all windows that touch this time, the oldest first. Where there are very many, they are
    /// several together.
    pub fn each(&self, time: &Time, mut each: impl FnMut(&Kept)) {
        self.walk(&self.cuts(time), time, |kept| kept.iter().for_each(&mut each));
    }

    /// Which windows an answer about this time has.
    pub fn cuts(&self, time: &Time) -> Cuts {
        self.cuts_within(time, FIVES_MAX)
    }

    /// The same without unions of hours, where there are shorter ones.
    pub fn fine_cuts(&self, time: &Time) -> Cuts {
        self.cuts_within(time, u64::MAX)
    }

    fn cuts_within(&self, time: &Time, fives_max: u64) -> Cuts {
        let (single, fives, hours) = (&self.single, &self.fives.ring, &self.hours.ring);
        let mut of_fives = first_after(fives, single.first());
        let mut of_hours = first_after(hours, fives.first().min(of_fives));
        of_fives = of_fives.max(of_hours);
        if single.count(&(of_fives..u64::MAX), time) > SINGLE_MAX {
            of_fives = of_fives.max(fives.next());
        }
        if fives_max < u64::MAX && fives.count(&(of_hours..of_fives), time) > fives_max {
            of_hours = of_hours.max(hours.next());
            of_fives = of_fives.max(of_hours);
        }
        Cuts { hours: of_hours, fives: of_fives }
    }

    /// The kinds of windows with their numbers, those with the oldest first.
    pub fn kinds(&self, cuts: &Cuts) -> [(&Ring, Range<u64>); 3] {
        [
            (&self.hours.ring, 0..cuts.hours),
            (&self.fives.ring, cuts.hours..cuts.fives),
            (&self.single, cuts.fives..u64::MAX),
        ]
    }

    /// Calls `each` with the windows of each block that touch this time.
    fn walk(&self, cuts: &Cuts, time: &Time, mut each: impl FnMut(Vec<Kept>)) {
        for (block, range) in self.selected(cuts, time) {
            each(block.kept(|number, past| range.contains(&number) && time.is_touched(past)));
        }
    }

    /// The blocks that touch this time and may be shown, each with the numbers of its windows that are meant.
    fn selected<'a>(&'a self, cuts: &Cuts, time: &'a Time) -> impl Iterator<Item = (Block, Range<u64>)> + 'a {
        let blocks = self.kinds(cuts).into_iter().flat_map(|(ring, range)| {
            let numbers = range.clone();
            ring.touching(range, time).map(move |block| (block, numbers.clone()))
        });
        blocks.filter(|(block, _)| block.addresses >= self.addresses)
    }
}

/// Windows with smaller numbers than these are taken as unions of hours, or of five minutes.
#[derive(Clone, Copy, Debug)]
pub struct Cuts {
    hours: u64,
    fives: u64,
}

/// The number of the first window to use after these unions, if windows begin with the number `first`: the first one
/// whose union is not cut.
fn first_after(unions: &Ring, first: u64) -> u64 {
    let time = Time::default();
    let blocks = unions.touching(first..first.saturating_add(1), &time);
    let numbered = blocks.flat_map(|block| block.numbered().collect::<Vec<_>>());
    let is_around = |(number, past): &(u64, PastWindow)| *number < first && first < number + past.windows;
    numbered.filter(is_around).map(|(number, past)| number + past.windows).last().unwrap_or(first)
}

impl Unions {
    fn new(memory: u64, length: i64, addresses: Addresses) -> Self {
        Self { ring: Ring::new(memory), length, pending: None, addresses }
    }

    /// The number of the next window.
    fn next(&self) -> u64 {
        self.ring.next() + self.pending.as_ref().map_or(0, |pending| pending.past.windows)
    }

    /// Adds windows, the first of which has this number, unless they are there already. Returns the unions that are
    /// complete now, with their numbers and what they show of addresses.
    /// `distinct` are the sketches of all of them together.
    fn add(
        &mut self,
        first: u64,
        all: Vec<Kept>,
        distinct: Option<Distincts>,
        addresses: Addresses,
    ) -> Vec<(u64, Kept, Addresses)> {
        let mut finished = Vec::new();
        if first < self.next() {
            return finished;
        }
        if first > self.next() {
            // Windows are lost.
            finished.extend(self.finish());
            self.ring.close();
            self.ring.begin(first);
        }
        let part = |time| part_of_day(time, self.length);
        let Some((start, end)) = all.first().zip(all.last()).map(|(first, last)| (first.past.start, last.past.end))
        else {
            return finished;
        };
        let is_other = self.pending.as_ref().is_some_and(|pending| part(pending.past.start) != part(start));
        let ends = part(end) != part(start);
        if is_other {
            finished.extend(self.finish());
        }
        self.addresses = if self.pending.is_none() { addresses } else { self.addresses.min(addresses) };
        let mut before = self.pending.take();
        let distinct = match &mut before {
            Some(before) => Distincts::both(before.distinct.take(), distinct.as_ref()),
            None => distinct,
        };
        self.pending = joined(before, all).map(|kept| Kept { distinct, ..kept });
        if ends {
            finished.extend(self.finish());
        }
        finished
    }

    fn add_one(&mut self, number: u64, mut kept: Kept, addresses: Addresses) {
        let distinct = kept.distinct.take();
        self.add(number, vec![kept], distinct, addresses);
    }

    fn finish(&mut self) -> Option<(u64, Kept, Addresses)> {
        let (number, mut kept) = (self.ring.next(), self.pending.take()?);
        kept.union.trim(ROWS_OF_MANY, INTERFACES_MAX);
        self.ring.push(&kept, self.addresses);
        let open = self.ring.open();
        if open.count() >= UNIONS_OF_BLOCK || open.bytes() >= OPEN_MAX {
            self.ring.close();
        }
        Some((number, kept, self.addresses))
    }
}

/// How much of the memory is for unions of five minutes, and of hours. The rest is for single windows.
pub const fn share_of_fives(memory: u64) -> u64 {
    memory / 8 * 3
}

pub const fn share_of_hours(memory: u64) -> u64 {
    memory / 8
}

/// How much of the memory is for packed samples, if they have at most so many records; 0 if there are none. What is
/// being united takes memory from them, too.
pub const fn share_of_samples(memory: u64, size: usize) -> u64 {
    if size == 0 { 0 } else { memory / 8 }
}

/// How much of the disk is for single windows.
pub const fn share_of_windows_on_disk(bytes: u64, has_samples: bool) -> u64 {
    bytes / ALL_PARTS * if has_samples { PARTS_OF_DISK[0] } else { PARTS_WITHOUT_SAMPLES[0] }
}

/// How much of the disk is for samples of minutes.
pub const fn share_of_samples_on_disk(bytes: u64) -> u64 {
    bytes / ALL_PARTS * PARTS_OF_DISK[3]
}

fn parts_of_disk(limits: Limits) -> [Limits; 5] {
    let parts = if limits.has_samples { PARTS_OF_DISK } else { PARTS_WITHOUT_SAMPLES };
    parts.map(|part| Limits { bytes: limits.bytes / ALL_PARTS * part, ..limits })
}

/// The number of the part of this length, in seconds, that contains a time.
fn part_of_day(time: Timestamp, length: i64) -> i64 {
    time.as_second().div_euclid(length)
}

/// The part of a report that is kept, with this many rows of each list.
pub fn of_report(report: &Report, rows: usize) -> Kept {
    let mut union = Union::one(report);
    let tables = union.views.iter().flat_map(|view| &view.tables).flatten().count();
    let mut rows = if tables > TABLES_MANY { rows.div_ceil(3) } else { rows };
    union.trim(rows, INTERFACES_MAX);
    union.window.seconds = union.window.seconds.seconds().map(rounded).map_or_else(Length::default, Length::new);
    // The totals have the alerts that fired.
    union.fired = Vec::new();
    union.interfaces.iter_mut().for_each(shorten);
    while serde_json::to_vec(&union).is_ok_and(|text| text.len() > WINDOW_MAX) {
        if rows > ROWS_MIN {
            rows = (rows / 2).max(ROWS_MIN);
            union.trim(rows, INTERFACES_MAX);
            continue;
        }
        let Some(view) = union.views.pop() else { break };
        union.left_out.push(view.name);
    }
    Kept { past: PastWindow::of(report), union, distinct: Distincts::of_report(report) }
}

/// Rounds shares to fewer digits, without making bounds narrower.
fn shorten(interface: &mut Interface) {
    (interface.coverage_bytes, interface.coverage_bytes_lower, interface.coverage_bytes_upper) = (None, None, None);
    interface.kept = rounded(interface.kept);
    interface.coverage = interface.coverage.map(rounded);
    interface.coverage_lower = interface.coverage_lower.map(|share| (share * PARTS).floor() / PARTS);
    interface.coverage_upper = interface.coverage_upper.map(|share| (share * PARTS).ceil() / PARTS);
}

fn rounded(number: f64) -> f64 {
    (number * PARTS).round() / PARTS
}

/// Joins all of these in fixed memory.
fn joined(before: Option<Kept>, next: Vec<Kept>) -> Option<Kept> {
    let (mut pasts, mut unions) = (Vec::new(), Vec::new());
    for Kept { past, union, .. } in before.into_iter().chain(next) {
        pasts.push(past);
        unions.push(union);
    }
    let mut past = pasts.first()?.clone();
    for next in &pasts[1..] {
        past.add(next);
    }
    let known = iter::zip(&pasts, &unions).flat_map(|(past, union)| known_times(past, union)).collect();
    let mut union = Union::join(&unions)?;
    union.missing = gaps(known, Some(past.start), past.end);
    let rows = ROWS_OF_ALL_LISTS / union.lists().max(1);
    union.trim(rows.clamp(ROWS_MIN, ROWS_WHILE_JOINED), INTERFACES_MAX);
    Some(Kept { past, union, distinct: None })
}

/// The time from the earliest start to the latest end of the first of these windows, at least as many as this. `None`
/// if there are none.
fn around<'p>(pasts: impl Iterator<Item = &'p PastWindow>, windows: u64) -> Option<Time> {
    let (mut times, mut known): (Option<(Timestamp, Timestamp)>, u64) = (None, 0);
    for PastWindow { start, end, windows: more, .. } in pasts {
        // If the clock was set back, later windows have earlier times.
        times = Some(times.map_or((*start, *end), |(first, last)| (first.min(*start), last.max(*end))));
        known += more;
        if known >= windows {
            break;
        }
    }
    times.map(|(from, to)| Time { from: Some(from), to: Some(to) })
}

/// The times that a window covers, or several together, without the gaps between them.
pub fn known_times(past: &PastWindow, union: &Union) -> Vec<Gap> {
    let mut start = past.start;
    let mut known = Vec::new();
    for gap in &union.missing {
        known.push(Gap { start, end: gap.start });
        start = gap.end;
    }
    known.push(Gap { start, end: past.end });
    known
}

/// How long a window is, or several together, in seconds.
pub fn length_of(past: &PastWindow) -> f64 {
    past.seconds.unwrap_or_else(|| past.end.duration_since(past.start).as_secs_f64())
}

/// Returns true if windows of this length together are longer than the time from the first start to the last end: the
/// clock was set back, so their times do not tell which windows these are.
pub fn is_repeated(seconds: f64, from: Timestamp, to: Timestamp) -> bool {
    seconds > to.duration_since(from).as_secs_f64() + GAP_MIN_MS as f64 / 1e3
}

/// The times between `from` and `to` that have no window.
pub fn gaps(mut known: Vec<Gap>, from: Option<Timestamp>, to: Timestamp) -> Vec<Gap> {
    known.sort_by_key(|time| time.start);
    let mut gaps = Vec::new();
    let mut end = from.unwrap_or(to);
    for time in known.into_iter().chain([Gap { start: to, end: to }]) {
        if time.start.as_millisecond() - end.as_millisecond() >= GAP_MIN_MS && gaps.len() < GAPS_MAX {
            gaps.push(Gap { start: end, end: time.start });
        }
        end = end.max(time.end);
    }
    gaps
}

#[cfg(test)]
mod accuracy;
#[cfg(test)]
mod tests;
