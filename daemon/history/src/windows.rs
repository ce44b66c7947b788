//! A day of windows in a fixed number of bytes.
//!
//! The history keeps of each report the first rows of each list, and everything that can be added up: a [`Union`] of
//! one window. The last hours are kept window by window. Each five minutes also have one union, and these unions reach
//! back a day or more. A row that is not kept only widens the bounds of its key, so bounds stay correct.

use std::iter;

use jiff::Timestamp;
use weir_config::Addresses;
use weir_report::{Gap, Interface, Length, PastWindow, REPORTS_KEPT, Report, Union};

use crate::{
    block::{Block, Kept},
    confidence,
    ring::{OPEN_MAX, Ring},
};

/// Rows of each list of a window.
const ROWS: usize = 10;
/// Rows of each list of five minutes.
const ROWS_OF_MANY: usize = 10;
/// Rows of each list of an answer that has only a few lists.
const ROWS_OF_ANSWER: usize = 100;
const ROWS_OF_ALL_LISTS: usize = 4096;
/// If a window takes more bytes of JSON than this, some of its views are left out.
const WINDOW_MAX: usize = 512 << 10;
/// Windows of a block.
const WINDOWS_OF_BLOCK: usize = 30;
/// The length of the unions of older windows, in seconds.
pub const SECONDS_OF_MANY: i64 = 300;
/// Unions of five minutes in a block: an hour.
const UNIONS_OF_BLOCK: usize = 12;
/// The most single windows in an answer: three hours of windows. More windows are answered by unions of five minutes,
/// if there are any.
const SINGLE_MAX: u64 = 1080;
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

/// The kept windows.
#[derive(Debug)]
pub struct Windows {
    single: Ring,
    many: Ring,
    /// The windows since the last union of five minutes, together.
    pending: Option<Kept>,
    addresses_of_pending: Addresses,
    /// How much of addresses answers may have.
    addresses: Addresses,
}

/// The blocks that adding a window has closed.
#[derive(Debug, Default)]
pub struct Closed {
    /// A block of windows.
    pub single: Option<Block>,
    /// A block of unions of five minutes.
    pub many: Option<Block>,
}

impl Windows {
    /// No windows yet, in at most this many bytes.
    pub fn new(memory: u64, addresses: Addresses) -> Self {
        let many = share_of_many(memory);
        let (single, many) = (Ring::new(memory - many), Ring::new(many));
        Self { single, many, pending: None, addresses_of_pending: addresses, addresses }
    }

    /// Limits how much of addresses answers show from now on.
    pub fn mask(&mut self, addresses: Addresses) {
        self.addresses = addresses;
    }

    /// The single windows.
    pub const fn single(&self) -> &Ring {
        &self.single
    }

    /// The unions of five minutes.
    pub const fn many(&self) -> &Ring {
        &self.many
    }

    /// Adds the kept part of a report.
    pub fn add(&mut self, kept: &Kept, addresses: Addresses) -> Closed {
        let is_other = |(start, _)| part_of_day(start) != part_of_day(kept.past.start);
        let mut closed = Closed::default();
        if self.single.open().times().is_some_and(is_other) {
            closed = self.close();
        }
        self.single.push(kept, addresses);
        let open = self.single.open();
        let is_full = open.count() >= WINDOWS_OF_BLOCK || open.bytes() >= OPEN_MAX;
        if is_full && closed.single.is_none() {
            closed = self.close();
        }
        closed
    }

    /// Adds windows that an earlier weir has written.
    pub fn resume(&mut self, block: Block) {
        self.single.resume(block);
    }

    /// Adds unions that an earlier weir has written.
    pub fn resume_many(&mut self, block: Block) {
        self.many.resume(block);
    }

    /// Adds windows that an earlier weir has written since its last block.
    pub fn resume_open(&mut self, block: &Block) {
        self.single.begin(block.first);
        let next = self.single.next();
        for kept in block.kept(|number, _| number >= next) {
            self.single.push(&kept, block.addresses);
        }
    }

    /// If single windows are lost, continues their numbers after those of the unions.
    pub fn continue_after_unions(&mut self) {
        self.single.begin(self.many.next());
    }

    /// Makes the unions of five minutes that are missing after the resumed ones. Returns the blocks that this closes.
    pub fn complete(&mut self) -> Vec<Block> {
        self.many.begin(self.single.first());
        let begun = self.many.next();
        let missing: Vec<Block> = self.single.blocks().filter(|block| block.first >= begun).cloned().collect();
        missing.iter().filter_map(|block| self.summarize(block)).collect()
    }

    /// Closes the open block.
    fn close(&mut self) -> Closed {
        let Some(block) = self.single.close() else { return Closed::default() };
        let many = self.summarize(&block);
        Closed { single: Some(block), many }
    }

    /// Adds a block to the union of its five minutes. Returns the block of unions that this closes.
    fn summarize(&mut self, block: &Block) -> Option<Block> {
        let mut closed = None;
        if self.pending.as_ref().is_some_and(|pending| part_of_day(pending.past.start) != part_of_day(block.start)) {
            closed = self.finish_pending();
        }
        let mut all = block.kept(|_, _| true);
        for kept in &mut all {
            confidence::raise(&mut kept.union, WINDOWS_OF_A_DAY);
        }
        self.addresses_of_pending =
            if self.pending.is_none() { block.addresses } else { self.addresses_of_pending.min(block.addresses) };
        self.pending = joined(self.pending.take(), all);
        if part_of_day(block.end) != part_of_day(block.start) {
            closed = self.finish_pending().or(closed);
        }
        closed
    }

    fn finish_pending(&mut self) -> Option<Block> {
        let mut kept = self.pending.take()?;
        kept.union.trim(ROWS_OF_MANY, INTERFACES_MAX);
        self.many.push(&kept, self.addresses_of_pending);
        let open = self.many.open();
        let is_full = open.count() >= UNIONS_OF_BLOCK || open.bytes() >= OPEN_MAX;
        if is_full { self.many.close() } else { None }
    }

    /// The earliest start of a window.
    pub fn oldest(&self) -> Option<Timestamp> {
        [&self.many, &self.single].into_iter().filter_map(Ring::oldest).min()
    }

    /// The latest end of a window.
    pub fn newest(&self) -> Option<Timestamp> {
        self.single.newest()
    }

    /// The totals of all windows that touch this time, the oldest first.
    pub fn index(&self, time: &Time) -> Vec<PastWindow> {
        let cut = self.first_single();
        let mut all = Vec::new();
        for (block, from, to) in self.selected(cut, time) {
            let is_wanted = |(number, past): &(u64, PastWindow)| (from..to).contains(number) && time.is_touched(past);
            all.extend(block.numbered().filter(is_wanted).map(|(_, past)| past));
        }
        all
    }

    /// The time of at least this many of the last windows that ended by `to`; `None` if there are none.
    pub fn last(&self, windows: u64, to: Option<Timestamp>) -> Option<Time> {
        let all = self.index(&Time { from: None, to });
        around(all.iter().rev().filter(|past| to.is_none_or(|to| past.end <= to)), windows)
    }

    /// The time of the first windows that began at `from` or later, at least as many as this; `None` if there are none.
    pub fn first(&self, windows: u64, from: Option<Timestamp>) -> Option<Time> {
        let all = self.index(&Time { from, to: None });
        around(all.iter().filter(|past| from.is_none_or(|from| from <= past.start)), windows)
    }

    /// The union of all windows that touch this time; `None` if there are none.
    pub fn span(&self, time: &Time) -> Option<Union> {
        let cut = self.cut(time);
        // The windows of this time alone: then windows that are added later do not change the answer.
        let numbered = self.selected(cut, time).flat_map(|(block, from, to)| {
            let is_its = |(number, past): &(u64, PastWindow)| (from..to).contains(number) && time.is_touched(past);
            block.numbered().filter(is_its).collect::<Vec<_>>()
        });
        let windows = numbered.map(|(_, past)| past).filter(|past| past.windows == 1).count() as u64;
        let mut all = None;
        let (mut known, mut fired) = (Vec::new(), Vec::new());
        self.walk(cut, time, |kept| {
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
        let end = self.newest().into_iter().chain(time.to).min().unwrap_or(Timestamp::MAX);
        union.missing = gaps(known, time.from.or(self.oldest()), end);
        fired.sort_unstable();
        fired.dedup();
        union.fired = fired;
        Some(union)
    }

    /// Calls `each` with all windows that touch this time, the oldest first. Where there are very many, those are five
    /// minutes at a time.
    pub fn each(&self, time: &Time, mut each: impl FnMut(&Kept)) {
        let cut = self.cut(time);
        self.walk(cut, time, |kept| kept.iter().for_each(&mut each));
    }

    /// The number before which windows of this time are taken five minutes at a time.
    fn cut(&self, time: &Time) -> u64 {
        let mut cut = self.first_single();
        let singles = |cut| {
            let blocks = self.single.all().filter(|block| block.next() > cut && time.touches(block));
            blocks.map(|block| block.windows).sum::<u64>()
        };
        if singles(cut) > SINGLE_MAX {
            cut = self.many.next().max(self.single.first());
        }
        cut
    }

    /// Calls `each` with the windows of each block that touch this time.
    fn walk(&self, cut: u64, time: &Time, mut each: impl FnMut(Vec<Kept>)) {
        for (block, from, to) in self.selected(cut, time) {
            each(block.kept(|number, past| (from..to).contains(&number) && time.is_touched(past)));
        }
    }

    /// The number of the first single window to use: the first one whose five minutes are kept completely.
    fn first_single(&self) -> u64 {
        let first = self.single.first();
        let of_many = self.many.all().find(|block| (block.first..block.next()).contains(&first));
        let numbered = of_many.iter().flat_map(Block::numbered);
        let is_around = |(number, past): &(u64, PastWindow)| *number < first && first < number + past.windows;
        numbered.filter(is_around).map(|(number, past)| number + past.windows).last().unwrap_or(first)
    }

    /// The blocks that touch this time and may be shown, each with its first and last number: unions before `cut`, and
    /// then single windows.
    fn selected<'a>(&'a self, cut: u64, time: &'a Time) -> impl Iterator<Item = (Block, u64, u64)> {
        let many = self.many.all().filter(move |block| block.first < cut).map(move |block| (block, 0, cut));
        let single = self.single.all().filter(move |block| block.next() > cut).map(move |block| (block, cut, u64::MAX));
        many.chain(single).filter(|(block, ..)| block.addresses >= self.addresses && time.touches(block))
    }
}

/// How much of the memory is for unions of five minutes. With the usual lists, half of the default memory is always
/// enough for a day.
pub const fn share_of_many(memory: u64) -> u64 {
    memory / 2
}

/// The time of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Its start; `None` means as early as possible.
    pub from: Option<Timestamp>,
    /// Its end; `None` means as late as possible.
    pub to: Option<Timestamp>,
}

impl Time {
    fn overlaps(&self, start: Timestamp, end: Timestamp) -> bool {
        self.from.is_none_or(|from| from < end) && self.to.is_none_or(|to| start < to)
    }

    fn touches(&self, block: &Block) -> bool {
        self.overlaps(block.start, block.end)
    }

    fn is_touched(&self, past: &PastWindow) -> bool {
        self.overlaps(past.start, past.end)
    }
}

/// The number of the five minutes that contain a time.
fn part_of_day(time: Timestamp) -> i64 {
    time.as_second().div_euclid(SECONDS_OF_MANY)
}

/// The part of a report that is kept.
pub fn of_report(report: &Report) -> Kept {
    let mut union = Union::one(report);
    let tables = union.views.iter().flat_map(|view| &view.tables).flatten().count();
    union.trim(if tables > TABLES_MANY { ROWS / 3 } else { ROWS }, INTERFACES_MAX);
    union.window.seconds = union.window.seconds.seconds().map(rounded).map_or_else(Length::default, Length::new);
    // Its totals have them.
    union.fired = Vec::new();
    union.interfaces.iter_mut().for_each(shorten);
    while serde_json::to_vec(&union).is_ok_and(|text| text.len() > WINDOW_MAX)
        && let Some(view) = union.views.pop()
    {
        union.left_out.push(view.name);
    }
    Kept { past: PastWindow::of(report), union }
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
    for Kept { past, union } in before.into_iter().chain(next) {
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
    union.trim(rows.clamp(ROWS, ROWS_OF_ANSWER), INTERFACES_MAX);
    Some(Kept { past, union })
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

/// The times of a window, or of several together: all of it but what is missing between them.
fn known_times(past: &PastWindow, union: &Union) -> Vec<Gap> {
    let mut start = past.start;
    let mut known = Vec::new();
    for gap in &union.missing {
        known.push(Gap { start, end: gap.start });
        start = gap.end;
    }
    known.push(Gap { start, end: past.end });
    known
}

/// The times between `from` and `to` that have no window.
fn gaps(mut known: Vec<Gap>, from: Option<Timestamp>, to: Timestamp) -> Vec<Gap> {
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
mod tests;
