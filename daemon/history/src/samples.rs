//! Samples of flow records: one of each minute, and one of each hour.
//!
//! The report of a window brings a sample of its records ([`weir_schema::flow_sample`]). Those of a minute are thinned
//! to one, which has a block of its own, and those of an hour, too. A sample of an hour has as few records as one of a
//! minute: where an answer would take very many minutes, it has hours. Minutes that do not follow each other, because
//! weir was not running or the clock was set, are not united, so each sample has all windows between its start and its
//! end.
//!
//! Windows with a sample are numbered, so each is in an answer once, whatever the clock did. What is in no block yet is
//! the last minute. A weir that is killed loses it, and one that ends writes it.

use std::ops::Range;

use jiff::Timestamp;
use weir_config::Addresses;
use weir_schema::{FlowSample, Gap, PastWindow, flow_sample::SampledRecord};

use crate::{
    archive::{Archive, Limits},
    block::Block,
    ring::Ring,
    time::Time,
};

/// The archives of a folder.
pub const MINUTES: &str = "samples-";
pub const HOURS: &str = "samples_of_hours-";
/// The lengths in seconds.
const SECONDS_OF_MINUTES: i64 = 60;
const SECONDS_OF_HOURS: i64 = 3600;
/// While samples are united, one may have so many times the records that are kept at the end. Then large flows, which
/// become one record, do not take the room of others.
const ROOM: usize = 2;
/// The most samples of minutes in an answer, where there are samples of hours.
const MINUTES_MAX: u64 = 360;
/// A longer time between two windows is a gap.
const GAP_MS: i64 = 1500;

/// The samples that are kept.
#[derive(Debug)]
pub struct Samples {
    minutes: Ring,
    hours: Ring,
    /// The minute and the hour that are not complete yet.
    minute: Option<Pending>,
    hour: Option<Pending>,
    /// How many records a sample has at most.
    size: usize,
}

/// The times of samples that cannot be used.
#[derive(Debug, Default)]
pub struct Unusable {
    /// Their blocks are damaged.
    pub damaged: Vec<Gap>,
    /// Their addresses are masked more than the question allows, or may not be shown.
    pub masked: Vec<Gap>,
}

/// Samples that are being united.
#[derive(Debug)]
struct Pending {
    /// The number of the first window.
    first: u64,
    past: PastWindow,
    sample: FlowSample,
    addresses: Addresses,
}

impl Pending {
    /// Returns true if a window or a minute is another part of the same minute or hour.
    fn is_continued_by(&self, next: &Self, length: i64) -> bool {
        let part = |time: Timestamp| time.as_second().div_euclid(length);
        let between = next.past.start.as_millisecond() - self.past.end.as_millisecond();
        part(self.past.start) == part(next.past.start) && between.abs() < GAP_MS
    }

    /// Returns true if it reaches to the end of its minute or hour.
    fn is_complete(&self, length: i64) -> bool {
        let part = |time: Timestamp| time.as_second().div_euclid(length);
        part(self.past.start) != part(self.past.end)
    }

    fn add(&mut self, next: Self, size: usize) {
        self.past.add(&next.past);
        self.addresses = self.addresses.min(next.addresses);
        let both = [std::mem::take(&mut self.sample), next.sample];
        self.sample = FlowSample::union(both, size.saturating_mul(ROOM));
    }
}

/// The memory of a minute and an hour that are being united, and of so many windows that wait, in bytes. A sample of a
/// minute has `size` records.
pub const fn pending_bytes(size: usize, windows: usize) -> u64 {
    let waiting = windows * size.div_ceil(2);
    ((2 * ROOM * size + waiting) * size_of::<SampledRecord>()) as u64
}

/// Adds a part to a minute or an hour. Returns what is complete.
fn extend(pending: &mut Option<Pending>, next: Pending, length: i64, size: usize) -> Vec<Pending> {
    let mut complete: Vec<_> = pending.take_if(|before| !before.is_continued_by(&next, length)).into_iter().collect();
    match pending {
        Some(before) => before.add(next, size),
        None => *pending = Some(next),
    }
    complete.extend(pending.take_if(|all| all.is_complete(length)));
    complete
}

/// Writes a sample into a ring.
fn push(ring: &mut Ring, Pending { first, past, sample, addresses }: &Pending) {
    ring.begin(*first);
    ring.push_alone(past, sample.to_text().as_bytes(), *addresses);
}

impl Samples {
    /// Makes a history without samples, of at most this many bytes in memory.
    pub fn new(memory: u64) -> Self {
        let hours = memory / 4;
        Self { minutes: Ring::new(memory - hours), hours: Ring::new(hours), minute: None, hour: None, size: 0 }
    }

    /// Keeps them in archives, too, and has those that are there.
    pub fn keep_in(&mut self, minutes: Archive, hours: Archive) {
        self.minutes.keep_in(minutes);
        self.hours.keep_in(hours);
        // If minutes are lost, their numbers continue after those of the hours.
        self.minutes.begin(self.hours.next());
    }

    /// Unites the minutes that are in no hour yet.
    pub fn complete(&mut self) {
        let since = self.hours.next();
        for entry in self.minutes.archived(&(since..u64::MAX), &Time::default()) {
            let Some(block) = self.minutes.archive().and_then(|archive| archive.read(&entry)) else { continue };
            for minute in read(&block, |_, _| true) {
                self.add_minute(minute);
            }
        }
    }

    /// Changes what they may take on disk.
    pub fn limit(&mut self, minutes: Limits, hours: Limits) {
        self.minutes.limit_archive(minutes);
        self.hours.limit_archive(hours);
    }

    /// What their packed blocks take in memory, in bytes.
    #[cfg(test)]
    pub fn memory(&self) -> u64 {
        self.minutes.bytes() + self.hours.bytes()
    }

    /// Adds the sample of a window. Later samples have at most `size` records.
    pub fn add(&mut self, past: &PastWindow, sample: FlowSample, size: usize, addresses: Addresses) {
        self.size = size;
        let past = PastWindow { alerts: Vec::new(), ..past.clone() };
        // The first window of a minute has the number after all earlier ones.
        let window = Pending { first: self.minutes.next(), past, sample, addresses };
        for minute in extend(&mut self.minute, window, SECONDS_OF_MINUTES, size) {
            self.close_minute(minute);
        }
    }

    /// Writes the minute that is not complete, at the end.
    pub fn finish(&mut self) {
        if let Some(minute) = self.minute.take() {
            self.close_minute(minute);
        }
    }

    fn close_minute(&mut self, mut minute: Pending) {
        minute.first = self.minutes.next();
        minute.sample = FlowSample::union([minute.sample], self.size);
        push(&mut self.minutes, &minute);
        self.add_minute(minute);
    }

    fn add_minute(&mut self, minute: Pending) {
        // After a restart, the size is not known before the first window.
        let size = self.size.max(minute.sample.records.len());
        for mut hour in extend(&mut self.hour, minute, SECONDS_OF_HOURS, size) {
            hour.sample = FlowSample::union([hour.sample], size);
            push(&mut self.hours, &hour);
        }
    }

    /// The earliest start of a sample.
    pub fn oldest(&self) -> Option<Timestamp> {
        let minute = self.minute.as_ref().map(|minute| minute.past.start);
        [self.hours.oldest(), self.minutes.oldest(), minute].into_iter().flatten().min()
    }

    /// The latest end of a sample.
    pub fn newest(&self) -> Option<Timestamp> {
        let minute = self.minute.as_ref().map(|minute| minute.past.end);
        [self.hours.newest(), self.minutes.newest(), minute].into_iter().flatten().max()
    }

    /// Calls `each` with the samples that touch this time, each window in one of them. `may_be_used` says whether
    /// samples may be used whose addresses are masked in this way.
    pub fn each(
        &self,
        time: &Time,
        may_be_used: impl Fn(Addresses) -> bool,
        mut each: impl FnMut(&PastWindow, FlowSample),
    ) {
        let hours = self.chosen_hours(time);
        for block in self.hours.touching(0..u64::MAX, time).filter(|block| may_be_used(block.addresses)) {
            let is_chosen = |number: u64, _: &PastWindow| hours.iter().any(|hour| hour.start == number);
            read(&block, is_chosen).into_iter().for_each(|of| each(&of.past, of.sample));
        }
        let ends = hours.iter().map(|hour| hour.end);
        let starts = hours.iter().map(|hour| hour.start).chain([u64::MAX]);
        for (from, to) in [0].into_iter().chain(ends).zip(starts) {
            for block in self.minutes.touching(from..to, time).filter(|block| may_be_used(block.addresses)) {
                let is_wanted = |number: u64, past: &PastWindow| (from..to).contains(&number) && time.is_touched(past);
                read(&block, is_wanted).into_iter().for_each(|of| each(&of.past, of.sample));
            }
        }
        if let Some(Pending { past, sample, addresses, .. }) = &self.minute
            && time.is_touched(past)
            && may_be_used(*addresses)
        {
            each(past, sample.clone());
        }
    }

    /// The times of samples that touch this time and cannot be used. `may_be_used` is as in [`Samples::each`].
    pub fn unusable(&self, time: &Time, may_be_used: impl Fn(Addresses) -> bool) -> Unusable {
        let mut all = Unusable::default();
        for ring in [&self.minutes, &self.hours] {
            for entry in ring.archived(&(0..u64::MAX), time) {
                let of = Gap { start: entry.1.start, end: entry.1.end };
                if ring.archive().and_then(|archive| archive.read(&entry)).is_none() {
                    all.damaged.push(of);
                } else if !may_be_used(entry.1.addresses()) {
                    all.masked.push(of);
                }
            }
            let masked = ring.in_memory(0..u64::MAX, time).filter(|block| !may_be_used(block.addresses));
            all.masked.extend(masked.map(|block| Gap { start: block.start, end: block.end }));
        }
        let of_minute = self.minute.iter().filter(|of| time.is_touched(&of.past) && !may_be_used(of.addresses));
        all.masked.extend(of_minute.map(|of| Gap { start: of.past.start, end: of.past.end }));
        all
    }

    /// The numbers of the windows that are taken as hours: where minutes would be too many, or are there no more.
    fn chosen_hours(&self, time: &Time) -> Vec<Range<u64>> {
        let (first, are_many) = (self.minutes.first(), self.minutes.count(&(0..u64::MAX), time) > MINUTES_MAX);
        let mut hours = Vec::new();
        for block in self.hours.touching(0..u64::MAX, time) {
            hours.extend(block.numbered().filter_map(|(number, past)| {
                let is_chosen =
                    time.is_touched(&past) && (number < first || are_many && time.covers(past.start, past.end));
                is_chosen.then_some(number..number + past.windows)
            }));
        }
        hours
    }
}

/// The samples of a block for which `is_wanted` returns true.
fn read(block: &Block, is_wanted: impl Fn(u64, &PastWindow) -> bool) -> Vec<Pending> {
    let numbers = block.numbered().filter(|(number, past)| is_wanted(*number, past)).map(|(number, _)| number);
    let samples = numbers.zip(block.bodies(&is_wanted)).filter_map(|(first, (past, text))| {
        Some(Pending { first, past, sample: FlowSample::from_text(&text)?, addresses: block.addresses })
    });
    samples.collect()
}

#[cfg(test)]
mod tests;
