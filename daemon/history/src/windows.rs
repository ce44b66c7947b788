//! A day of windows in a fixed number of bytes.
//!
//! Of each report the first rows of each list stay, and what can be added up: a [`Union`] of one window. The last hours
//! are kept window by window. Of five minutes at a time there is also one union; those reach back a day and more. A row
//! that its window does not keep widens the bounds of its key, and makes none of them wrong.

use jiff::Timestamp;
use weir_config::Addresses;
use weir_report::{Gap, Interface, PastWindow, REPORTS_KEPT, Report, Union};

use crate::{
    block::{Block, Kept},
    confidence,
    ring::{OPEN_MAX, Ring},
};

/// Rows of each list of a window.
const ROWS: usize = 10;
/// Rows of each list of five minutes.
const ROWS_OF_MANY: usize = 10;
/// Rows of each list of an answer, where there are only a few lists, and of all lists together.
const ROWS_OF_ANSWER: usize = 100;
const ROWS_OF_ALL_LISTS: usize = 4096;
/// A window that takes more bytes of JSON loses views.
const WINDOW_MAX: usize = 512 << 10;
/// Windows of a block.
const WINDOWS_OF_BLOCK: usize = 30;
/// Older windows are kept together for so many seconds.
pub const SECONDS_OF_MANY: i64 = 300;
/// Unions of five minutes in a block: an hour.
const UNIONS_OF_BLOCK: usize = 12;
/// More windows than these are answered by unions of five minutes, where there are any: three hours of windows.
const SINGLE_MAX: u64 = 1080;
/// So many windows are joined at a time.
const BATCH: usize = 10;
/// A time without windows that is shorter than this is none.
const GAP_MIN_MS: i64 = 1500;
/// From so many tables of views on, each has fewer rows.
const TABLES_MANY: usize = 32;
/// Interfaces of a union. Beyond that, those that came last are added up.
const INTERFACES_MAX: usize = 512;
/// Windows of ten seconds: for as many at a time the bounds of older windows hold.
const WINDOWS_OF_A_DAY: u64 = 8640;
/// Shares are kept to the millionth.
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

/// The blocks that were closed when a window was added.
#[derive(Debug, Default)]
pub struct Closed {
    /// Of windows.
    pub single: Option<Block>,
    /// Of unions of five minutes.
    pub many: Option<Block>,
}

impl Windows {
    /// No windows yet, in at most this many bytes.
    pub fn new(memory: u64, addresses: Addresses) -> Self {
        let many = share_of_many(memory);
        let (single, many) = (Ring::new(memory - many), Ring::new(many));
        Self { single, many, pending: None, addresses_of_pending: addresses, addresses }
    }

    /// From now on answers have only this much of addresses.
    pub fn mask(&mut self, addresses: Addresses) {
        self.addresses = addresses;
    }

    /// The windows themselves.
    pub const fn single(&self) -> &Ring {
        &self.single
    }

    /// Unions of five minutes.
    pub const fn many(&self) -> &Ring {
        &self.many
    }

    /// Adds what stays of a report.
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

    /// Where windows themselves are lost, numbers go on after those of unions.
    pub fn continue_after_unions(&mut self) {
        self.single.begin(self.many.next());
    }

    /// Makes the unions of five minutes that are missing after those that were resumed. Returns the blocks that these
    /// close.
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

    /// Adds a block to the union of its five minutes. Returns the block that these close.
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

    /// When the oldest window began.
    pub fn oldest(&self) -> Option<Timestamp> {
        [&self.many, &self.single].into_iter().filter_map(Ring::oldest).min()
    }

    /// When the newest window ended.
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

    /// The time of the last windows, at least as many as this.
    pub fn last(&self, windows: u64) -> Time {
        let all = self.index(&Time::default());
        let mut known = 0;
        let is_enough = |past: &&PastWindow| {
            known += past.windows;
            known >= windows
        };
        Time { from: all.iter().rev().find(is_enough).or(all.first()).map(|past| past.start), to: None }
    }

    /// The union of all windows that touch this time; `None` if there are none.
    pub fn span(&self, time: &Time) -> Option<Union> {
        let mut cut = self.first_single();
        let singles = |cut| {
            let blocks = self.single.all().filter(|block| block.next() > cut && time.touches(block));
            blocks.map(|block| block.windows).sum::<u64>()
        };
        if singles(cut) > SINGLE_MAX {
            cut = self.many.next().max(self.single.first());
        }
        let windows = singles(cut).max(1);
        let mut all = None;
        let mut known = Vec::new();
        for (block, from, to) in self.selected(cut, time) {
            let kept = block.kept(|number, past| (from..to).contains(&number) && time.is_touched(past));
            known.extend(kept.iter().map(|kept| Gap { start: kept.past.start, end: kept.past.end }));
            let mut kept = kept.into_iter().peekable();
            while kept.peek().is_some() {
                let mut batch: Vec<Kept> = kept.by_ref().take(BATCH).collect();
                for one in batch.iter_mut().filter(|_| windows > REPORTS_KEPT as u64) {
                    confidence::raise(&mut one.union, windows);
                }
                all = joined(all, batch);
            }
        }
        let mut union = all?.union;
        let end = self.newest().into_iter().chain(time.to).min().unwrap_or(Timestamp::MAX);
        union.missing = gaps(known, time.from.or(self.oldest()), end);
        Some(union)
    }

    /// The number from which on windows themselves are told of: the first one whose five minutes are there completely.
    fn first_single(&self) -> u64 {
        let first = self.single.first();
        let of_many = self.many.all().find(|block| (block.first..block.next()).contains(&first));
        let numbered = of_many.iter().flat_map(Block::numbered);
        let is_around = |(number, past): &(u64, PastWindow)| *number < first && first < number + past.windows;
        numbered.filter(is_around).map(|(number, past)| number + past.windows).last().unwrap_or(first)
    }

    /// The blocks that touch this time and may be told of, and from which number to which: unions before `cut`, and
    /// then single windows.
    fn selected<'a>(&'a self, cut: u64, time: &'a Time) -> impl Iterator<Item = (Block, u64, u64)> {
        let many = self.many.all().filter(move |block| block.first < cut).map(move |block| (block, 0, cut));
        let single = self.single.all().filter(move |block| block.next() > cut).map(move |block| (block, cut, u64::MAX));
        many.chain(single).filter(|(block, ..)| block.addresses >= self.addresses && time.touches(block))
    }
}

/// How much of the memory is for unions of five minutes. With half of the default memory a day of them fits whatever is
/// measured, if the lists are the usual ones.
pub const fn share_of_many(memory: u64) -> u64 {
    memory / 2
}

/// A time that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Its start; `None`: as early as possible.
    pub from: Option<Timestamp>,
    /// Its end; `None`: as late as possible.
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

/// The number of the five minutes that a time is in.
fn part_of_day(time: Timestamp) -> i64 {
    time.as_second().div_euclid(SECONDS_OF_MANY)
}

/// What stays of a report.
pub fn of_report(report: &Report) -> Kept {
    let mut union = Union::one(report);
    let tables = union.views.iter().flat_map(|view| &view.tables).flatten().count();
    union.trim(if tables > TABLES_MANY { ROWS / 3 } else { ROWS }, INTERFACES_MAX);
    union.window.seconds = rounded(union.window.seconds);
    union.interfaces.iter_mut().for_each(shorten);
    while serde_json::to_vec(&union).is_ok_and(|text| text.len() > WINDOW_MAX)
        && let Some(view) = union.views.pop()
    {
        union.left_out.push(view.name);
    }
    let firing = report.alerts.iter().filter(|alert| alert.state == "firing" || alert.state == "clearing");
    let past = PastWindow {
        start: report.window.start,
        end: report.window.end,
        windows: 1,
        packets: report.totals.packets,
        bytes: report.totals.bytes,
        src_ip: report.unique.src_ip,
        alerts: firing.map(|alert| alert.rule.clone()).collect(),
    };
    Kept { past, union }
}

/// Shares in fewer digits, and bounds not narrower than they were.
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

/// All of these together, in fixed memory.
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
    let mut union = Union::join(&unions)?;
    let rows = ROWS_OF_ALL_LISTS / union.lists().max(1);
    union.trim(rows.clamp(ROWS, ROWS_OF_ANSWER), INTERFACES_MAX);
    Some(Kept { past, union })
}

/// The times between `from` and `to` that are not known.
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
