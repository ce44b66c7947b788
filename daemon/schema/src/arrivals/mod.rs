//! Finds out which reports of an observer arrived, and which are missing. `weir merge`, `weir top --merge` and the
//! collector use this; the recipes of `docs/collectors/` do the same in SQL, and tests compare them.
//!
//! An observer numbers its reports without gaps, also over restarts: the first report of a run has the next number, and
//! names the last report of the run before (`previous`). Only an observer that lost its state begins again at 1; that
//! report names none. So runs form **sequences**, and every number of a sequence is that of one report:
//!
//! - A run begins another sequence if its first known report names no previous one, or if its first known number is not
//!   above the last one of the run before it. The order of runs is that of the latest window of each.
//! - A run of which only tombstones came has no window. It belongs to the sequence in which its numbers are free and
//!   closest to the number before them. If no report of the sequence has a higher number, the numbers before that run
//!   may never have been used: it may have been before the observer lost its state.
//! - Numbers between those of reports and tombstones in a sequence are missing, and so are those before the first one.
//!   In the first sequence of an observer, those before the first one may never have been sent here.
//! - A report that names another run follows that run, whatever the clock said.
//! - A tombstone explains the numbers of its run that did not arrive.
//!
//! Which run the missing numbers between two runs belong to is known only for the last of them.
//!
//! Two reports with the same number are copies if they have the same [`Content`], and that is an ordinary duplicate. If
//! they are different, two observers have the same identity (a router was cloned), or one of the reports is forged: the
//! number is **contested**. The first report counts. Two tombstones of the same numbers with different reasons are
//! contested, too. Only so many contents are known, those of the highest numbers of each run: whether a copy of an
//! older report is the same is unknown.
//!
//! Runs of one sender are one after the other. Two senders with the same identity are found by their runs: [`twins`].
//!
//! Whether reports are missing at the end cannot be known: the observer may be switched off.

mod ranges;
#[cfg(test)]
mod tests;
pub mod twins;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use serde::Serialize;

use self::{ranges::Ranges, twins::Twin};
use crate::{content::Content, limits::NAME_BYTES_MAX};

/// The most runs of which only tombstones came.
pub const SILENT_RUNS_MAX: usize = 64;

/// The most that is remembered of an observer one by one. Only sums are kept of everything older.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The runs of which reports came. Until the oldest are forgotten, there may be twice as many.
    pub runs: usize,
    /// Ranges of reports and tombstones.
    pub pieces: usize,
    /// The most contents of reports that are remembered.
    pub contents: usize,
}

/// The record of which reports of one observer arrived.
#[derive(Clone, Debug)]
pub struct Arrivals {
    limits: Limits,
    /// How many reports and tombstones came since pieces were counted.
    uncounted: usize,
    /// How many contents are known.
    contents: usize,
    runs: Vec<Run>,
    /// The index of each run in `runs`.
    places: HashMap<String, usize>,
    /// The numbers that are missing among reports which are no longer known one by one.
    settled: Missing,
    /// The latest window of the runs that are no longer known.
    settled_until: Option<Timestamp>,
}

/// A report that came.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'s> {
    /// The identity of the observer.
    pub observer: &'s str,
    /// The run of weir that sent it.
    pub boot_id: &'s str,
    /// The sequence number within the run.
    pub seq: u64,
    /// The id of the previous report, if the report has one.
    pub previous: Option<&'s str>,
    /// The fingerprint of its content.
    pub content: Content,
    /// The start of its window.
    pub start: Timestamp,
    /// The end of its window.
    pub end: Timestamp,
}

/// How a report relates to those that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first with its number.
    New,
    /// A copy of it came before, as far as that is known.
    Again,
    /// Another one with its number came before.
    Other,
    /// Reports of its time are no longer known one by one, so it may have come before.
    Forgotten,
}

/// Consecutive numbers of one run that are missing for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The run of the daemon.
    pub boot_id: String,
    /// The first missing number.
    pub first: u64,
    /// The last missing number.
    pub last: u64,
    /// The explanation of the gap, if there is one.
    pub status: Status,
    /// The reason in the tombstone.
    pub reason: Option<String>,
}

/// The explanation of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// No tombstone covers it.
    Unexplained,
    /// A tombstone: the sender had to drop the reports.
    Dropped,
    /// No earlier report of this observer is known.
    BeforeFirst,
}

/// How many reports are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Missing reports without an explanation.
    pub unexplained: u64,
    /// Missing reports, by the reason of their tombstone.
    pub dropped: BTreeMap<String, u64>,
    /// Numbers of which different reports or tombstones came. These are not missing.
    pub contested: u64,
    /// Runs that were not one after the other.
    pub cloned: u64,
}

/// The reports of one run of a daemon.
#[derive(Clone, Debug)]
struct Run {
    boot_id: String,
    reports: Ranges,
    /// The contents of the highest numbers.
    contents: BTreeMap<u64, Content>,
    /// The numbers of which different reports or tombstones came.
    contested: Ranges,
    /// First number, last number, reason.
    tombstones: BTreeSet<(u64, u64, String)>,
    /// The lowest number of a report that came, and which report it names.
    lowest: Option<(u64, Before)>,
    /// When the latest window of its reports began. `None` if only tombstones came.
    latest: Option<Timestamp>,
    /// The seconds of its windows.
    times: Ranges,
    /// The twin that was known when something was forgotten.
    twin: Option<Twin>,
    /// The reports before this one are no longer known one by one.
    settled: u64,
}

/// The predecessor of a report, as the report names it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// A report of the same run, or one that cannot be read.
    Report,
    /// The run, and the number if it can be read.
    OtherRun(String, Option<u64>),
}

/// Consecutive numbers that are accounted for.
struct Known<'a> {
    first: u64,
    last: u64,
    boot_id: &'a str,
    is_tombstone: bool,
    /// The other run that the report with the first number names.
    follows: Option<&'a str>,
    /// True if the report with the first number says that it is the first of all.
    is_start: bool,
    /// True if these are the first numbers of a run of which only tombstones came.
    begins_silent: bool,
}

impl Gap {
    /// The number of reports.
    pub const fn reports(&self) -> u64 {
        count(self.first, self.last)
    }
}

impl Arrivals {
    /// Makes an empty record.
    pub fn new(limits: Limits) -> Self {
        let (uncounted, contents, runs, places, settled) = Default::default();
        Self { limits, uncounted, contents, runs, places, settled, settled_until: None }
    }
}

impl Arrivals {
    /// Notes that a report came.
    pub fn report(&mut self, sent: Sent<'_>) -> Arrival {
        self.bound();
        let Sent { observer, boot_id, seq, previous, content, start, end } = sent;
        let found = self.find(boot_id);
        if found.is_none() && self.settled_until.is_some_and(|until| start <= until) {
            return Arrival::Forgotten;
        }
        let run = self.run(found, boot_id);
        if seq < run.settled {
            return Arrival::Forgotten;
        }
        if !run.reports.insert(seq) {
            let is_copy = run.contents.get(&seq).is_none_or(|known| *known == content);
            if !is_copy {
                run.contested.insert(seq);
            }
            return if is_copy { Arrival::Again } else { Arrival::Other };
        }
        if run.lowest.as_ref().is_none_or(|(lowest, _)| seq < *lowest) {
            run.lowest = Some((seq, Before::of(observer, boot_id, previous)));
        }
        run.latest = run.latest.max(Some(start));
        run.times.insert_span(second(start), second(end));
        run.contents.insert(seq, content);
        self.contents += 1;
        Arrival::New
    }

    /// A tombstone of these numbers came. Returns whether there is room for it.
    pub fn tombstone(&mut self, boot_id: &str, first: u64, last: u64, reason: &str) -> bool {
        self.bound();
        let found = self.find(boot_id);
        if found.is_none() && !self.has_room_for_silent(last) {
            return false;
        }
        let run = self.run(found, boot_id);
        let first = first.max(run.settled);
        if first <= last {
            let same = (first, last, String::new())..=(first, last, char::MAX.to_string());
            if run.tombstones.range(same).any(|(.., other)| other != reason) {
                run.contested.insert_range(first, last);
            }
            run.tombstones.insert((first, last, reason.to_owned()));
        }
        true
    }

    /// Forgets what exceeds the limits.
    fn bound(&mut self) {
        self.uncounted += 1;
        let Limits { runs, pieces, contents } = self.limits;
        if self.runs.len() > 2 * runs + SILENT_RUNS_MAX || self.uncounted > pieces || self.contents > 2 * contents {
            self.settle(pieces, contents);
        }
    }

    /// The highest number of a run that came.
    pub fn highest(&self, boot_id: &str) -> Option<u64> {
        self.find(boot_id).and_then(|nth| self.runs[nth].reports.last())
    }

    fn find(&self, boot_id: &str) -> Option<usize> {
        self.places.get(boot_id).copied()
    }

    fn run(&mut self, found: Option<usize>, boot_id: &str) -> &mut Run {
        let nth = found.unwrap_or_else(|| {
            self.runs.push(Run::new(boot_id));
            self.places.insert(boot_id.to_owned(), self.runs.len() - 1);
            self.runs.len() - 1
        });
        &mut self.runs[nth]
    }

    /// Returns true if there is room for another run of which only tombstones came, with this last number.
    fn has_room_for_silent(&self, last: u64) -> bool {
        let (silent, others): (Vec<_>, Vec<_>) = self.runs.iter().partition(|run| run.latest.is_none());
        // One that ends before all others may be a run that is no longer known.
        let is_settled = self.settled_until.is_some() && others.iter().all(|run| last < run.first());
        silent.len() < SILENT_RUNS_MAX && !is_settled
    }

    /// The number of runs that are known.
    #[cfg(test)]
    const fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The numbers of which different reports came, by run.
    pub fn contested(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let of_run = |run: &'_ Run| -> Vec<(u64, u64)> { run.contested.iter().collect() };
        let each =
            self.runs.iter().flat_map(move |run| of_run(run).into_iter().map(|numbers| (&*run.boot_id, numbers)));
        each.map(|(boot_id, (first, last))| (boot_id, first, last))
    }

    /// Returns the sums of all missing and contested numbers.
    pub fn missing(&self) -> Missing {
        let mut missing = self.settled.clone();
        for gap in &self.gaps() {
            missing.add(gap);
        }
        missing.contested = sum(missing.contested, self.contested().map(|(_, first, last)| (first, last)));
        missing.cloned = missing.cloned.saturating_add(self.twins().len() as u64);
        missing
    }

    /// The number of ranges and tombstones that are known one by one, which is proportional to the memory.
    pub fn pieces(&self) -> usize {
        self.runs.iter().map(Run::pieces).sum()
    }

    /// Returns the gaps by sequence and number. Reports that are no longer known one by one are in
    /// [`Arrivals::settled`].
    pub fn gaps(&self) -> Vec<Gap> {
        let (mut gaps, lasts) = (Vec::new(), self.lasts());
        for (nth, sequence) in self.sequences().into_iter().enumerate() {
            let mut here = self.holes(nth == 0, &sequence, &lasts);
            here.extend(sequence.iter().flat_map(|run| self.runs[*run].dropped()));
            here.sort_by_key(|gap| (gap.first, gap.last));
            gaps.extend(here);
        }
        each_once(&mut gaps);
        gaps
    }

    /// Returns the numbers that are missing among reports which are no longer known one by one.
    pub const fn settled(&self) -> &Missing {
        &self.settled
    }

    /// Forgets the oldest runs and reports one by one, so that at most so many pieces and contents are known, and only
    /// as many runs as there may be. Their missing reports stay missing, even if they come later.
    pub fn settle(&mut self, pieces: usize, contents: usize) {
        self.uncounted = 0;
        let order = self.in_order();
        if let Some(oldest) = order.len().checked_sub(self.limits.runs).filter(|oldest| *oldest > 0) {
            self.forget(oldest);
        }
        self.forget_contents(contents);
        self.forget_times(pieces);
        if self.pieces() > pieces {
            self.forget_pieces(pieces);
        }
    }

    /// Forgets the contents of the oldest reports.
    fn forget_contents(&mut self, contents: usize) {
        let mut order = self.in_order();
        order.reverse();
        let mut room = contents;
        for nth in order {
            let known = &mut self.runs[nth].contents;
            if let Some(beyond) = known.len().checked_sub(room).filter(|beyond| *beyond > 0) {
                let first = known.keys().nth(beyond).copied();
                *known = first.map(|first| known.split_off(&first)).unwrap_or_default();
            }
            room -= known.len();
        }
        self.contents = contents - room;
    }

    fn forget_pieces(&mut self, pieces: usize) {
        let mut order = self.in_order();
        order.extend((0..self.runs.len()).filter(|nth| self.runs[*nth].latest.is_none()));
        // The newest run keeps its newest pieces.
        let newest = order.iter().rposition(|nth| self.runs[*nth].latest.is_some());
        let newest = newest.map(|place| order.remove(place));
        for nth in order {
            if self.pieces() <= pieces / 2 {
                return;
            }
            let below = self.runs[nth].last().saturating_add(1);
            self.runs[nth].settle(below, &mut self.settled);
        }
        if let Some(nth) = newest {
            let below = self.runs[nth].below(pieces / 2);
            self.runs[nth].settle(below, &mut self.settled);
        }
    }

    /// Forgets the oldest runs, and those before the next one of which only tombstones came. From then on, the next one
    /// begins as if nothing was before it.
    fn forget(&mut self, oldest: usize) {
        self.keep_twins();
        let (sequences, order) = (self.sequences(), self.in_order());
        let (oldest, next) = (order[..oldest].iter().copied().collect::<HashSet<_>>(), order.get(oldest).copied());
        let first_of_next = next.map(|nth| self.runs[nth].first());
        let of_next = sequences.iter().position(|sequence| next.is_some_and(|next| sequence.contains(&next)));
        let (mut gaps, mut forgotten, lasts) = (Vec::new(), Vec::new(), self.lasts());
        let mut contested = self.settled.contested;
        for (place, sequence) in sequences.iter().enumerate() {
            let is_before = |last: u64| match (of_next, first_of_next) {
                (Some(of_next), Some(first)) => place < of_next || place == of_next && last < first,
                _ => true,
            };
            gaps.extend(self.holes(place == 0, sequence, &lasts).into_iter().filter(|gap| is_before(gap.last)));
            for (nth, run) in sequence.iter().map(|nth| (*nth, &self.runs[*nth])) {
                if oldest.contains(&nth) || run.latest.is_none() && is_before(run.last()) {
                    gaps.extend(run.dropped());
                    contested = sum(contested, run.contested.iter());
                    forgotten.push(run.boot_id.clone());
                }
            }
        }
        self.settled.contested = contested;
        each_once(&mut gaps);
        for gap in gaps.iter() {
            self.settled.add(gap);
        }
        if let (Some(nth), Some(first)) = (next, first_of_next) {
            self.runs[nth].lowest = Some((first, Before::Nothing));
            self.runs[nth].settled = self.runs[nth].settled.max(first);
        }
        for boot_id in forgotten.iter() {
            self.remove(boot_id);
        }
    }

    fn remove(&mut self, boot_id: &str) {
        let Some(place) = self.places.remove(boot_id) else { return };
        let run = self.runs.swap_remove(place);
        self.contents -= run.contents.len();
        self.settled.cloned += u64::from(run.twin.is_some());
        if let Some(moved) = self.runs.get(place) {
            self.places.insert(moved.boot_id.clone(), place);
        }
        self.settled_until = self.settled_until.max(run.latest);
    }

    /// The runs of which reports came, by the time of their windows.
    fn in_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.runs.len()).filter(|nth| self.runs[*nth].latest.is_some()).collect();
        let place = |nth: &usize| {
            let run = &self.runs[*nth];
            (run.latest, &run.boot_id)
        };
        order.sort_by(|one, other| place(one).cmp(&place(other)));
        order
    }

    /// The runs of each sequence.
    fn sequences(&self) -> Vec<Vec<usize>> {
        let mut sequences: Vec<Vec<usize>> = Vec::new();
        let mut before: Option<u64> = None;
        for nth in self.in_order() {
            let run = &self.runs[nth];
            let begins = run.is_start() || before.is_some_and(|last| run.first() <= last);
            match sequences.last_mut().filter(|_| !begins) {
                Some(sequence) => sequence.push(nth),
                None => sequences.push(vec![nth]),
            }
            before = Some(run.last());
        }
        let with_reports = sequences.clone();
        for (nth, run) in self.runs.iter().enumerate().filter(|(_, run)| run.latest.is_none()) {
            let place = self.place_of(run, &with_reports);
            if place == sequences.len() {
                sequences.push(Vec::new());
            }
            sequences[place].push(nth);
        }
        sequences
    }

    /// The sequence of a run of which only tombstones came, or the number of sequences if it fits into none.
    fn place_of(&self, silent: &Run, sequences: &[Vec<usize>]) -> usize {
        let (first, last) = (silent.first(), silent.last());
        let fitting = sequences.iter().enumerate().filter_map(|(nth, sequence)| {
            let runs = sequence.iter().map(|nth| &self.runs[*nth]);
            let is_free = runs.clone().all(|run| last < run.first() || run.last() < first);
            is_free.then(|| (runs.map(Run::last).filter(|other| *other < first).max(), nth))
        });
        fitting.max().map_or(sequences.len(), |(_, nth)| nth)
    }

    /// The last number of each run.
    fn lasts(&self) -> HashMap<&str, u64> {
        self.runs.iter().map(|run| (&*run.boot_id, run.last())).collect()
    }

    /// The numbers of a sequence that neither reports nor tombstones account for.
    fn holes(&self, is_first: bool, sequence: &[usize], lasts: &HashMap<&str, u64>) -> Vec<Gap> {
        let mut all: Vec<Known<'_>> = sequence.iter().flat_map(|nth| self.runs[*nth].known()).collect();
        // A report says more than a tombstone of its number. The order of arrival decides nothing.
        all.sort_by_key(|known| (known.first, known.is_tombstone, known.last, known.boot_id));
        let with_reports = sequence.iter().map(|nth| &self.runs[*nth]).filter(|run| run.latest.is_some());
        let reported = with_reports.map(Run::last).max();
        let (mut holes, mut last) = (Vec::new(), None);
        for known in all {
            let before = last.max(known.follows.and_then(|boot_id| lasts.get(boot_id).copied()));
            let next = before.map_or(Some(1), |before: u64| before.checked_add(1));
            let may_be_unused = known.begins_silent && before.is_some() && reported < Some(known.first);
            let is_certain = !known.is_start && !may_be_unused;
            if let Some(next) = next.filter(|next| *next < known.first && is_certain) {
                holes.push(Gap {
                    boot_id: known.follows.unwrap_or(known.boot_id).to_owned(),
                    first: next,
                    last: known.first - 1,
                    status: match before.is_none() && (is_first || reported.is_none()) {
                        true => Status::BeforeFirst,
                        false => Status::Unexplained,
                    },
                    reason: None,
                });
            }
            last = last.max(Some(known.last));
        }
        holes
    }
}

impl Run {
    fn new(boot_id: &str) -> Self {
        let (reports, contents, contested, tombstones, times, settled) = Default::default();
        let (boot_id, lowest, latest, twin) = (boot_id.to_owned(), None, None, None);
        Self { boot_id, reports, contents, contested, tombstones, lowest, latest, times, twin, settled }
    }

    /// Returns the first known number of the run.
    fn first(&self) -> u64 {
        let of_tombstones = self.tombstones.first().map(|(first, ..)| *first);
        self.reports.first().into_iter().chain(of_tombstones).min().unwrap_or_default()
    }

    /// Returns the last known number of the run.
    fn last(&self) -> u64 {
        let of_tombstones = self.tombstones.iter().map(|(_, last, _)| *last).max();
        self.reports.last().max(of_tombstones).unwrap_or_default()
    }

    /// Returns true if the run's first report says that it is the first of all.
    fn is_start(&self) -> bool {
        self.lowest.as_ref().is_some_and(|(seq, before)| *seq == self.first() && *before == Before::Nothing)
    }

    /// Returns true if only tombstones came of the run, and this is its first number.
    fn begins_silent(&self, first: u64) -> bool {
        self.latest.is_none() && first == self.first()
    }

    fn pieces(&self) -> usize {
        1 + self.reports.len() + self.contested.len() + self.tombstones.len()
    }

    fn known(&self) -> impl Iterator<Item = Known<'_>> {
        let boot_id = &*self.boot_id;
        let of_reports = self.reports.iter().map(move |(first, last)| {
            let before = self.lowest.as_ref().filter(|(seq, _)| *seq == first).map(|(_, before)| before);
            let follows = match before {
                Some(Before::OtherRun(run, _)) => Some(&**run),
                _ => None,
            };
            let is_tombstone = false;
            let (is_start, begins_silent) = (first == self.first() && self.is_start(), self.begins_silent(first));
            Known { first, last, boot_id, is_tombstone, follows, is_start, begins_silent }
        });
        let of_tombstones = self.tombstones.iter().map(move |(first, last, _)| {
            let (is_tombstone, follows, is_start) = (true, None, false);
            let begins_silent = self.begins_silent(*first);
            Known { first: *first, last: *last, boot_id, is_tombstone, follows, is_start, begins_silent }
        });
        of_reports.chain(of_tombstones)
    }

    /// The numbers that tombstones explain, each once: those of the tombstone with the lowest first number.
    fn dropped(&self) -> Vec<Gap> {
        let mut dropped: Vec<Gap> = Vec::new();
        let mut next = Some(0);
        for (first, last, reason) in &self.tombstones {
            let Some(from) = next.map(|next: u64| next.max(*first)) else { break };
            if *last < from {
                continue;
            }
            next = last.checked_add(1);
            for (first, last) in self.reports.gaps(from, *last) {
                match dropped.last_mut() {
                    Some(before) if before.reason.as_ref() == Some(reason) && before.last + 1 == first => {
                        before.last = last;
                    }
                    _ => dropped.push(Gap {
                        boot_id: self.boot_id.clone(),
                        first,
                        last,
                        status: Status::Dropped,
                        reason: Some(reason.clone()),
                    }),
                }
            }
        }
        dropped
    }

    /// The number below which all pieces but so many are.
    fn below(&self, pieces: usize) -> u64 {
        let of_reports = self.reports.iter().map(|(first, _)| first);
        let mut firsts: Vec<u64> = of_reports.chain(self.tombstones.iter().map(|(first, ..)| *first)).collect();
        firsts.sort_unstable();
        firsts.iter().rev().nth(pieces).copied().unwrap_or_default()
    }

    /// Adds up the missing reports before this number, and forgets them.
    fn settle(&mut self, below: u64, settled: &mut Missing) {
        let Some(last) = below.checked_sub(1).filter(|last| self.first() <= *last) else { return };
        let first = self.first();
        for gap in self.dropped().into_iter().filter(|gap| gap.first < below) {
            settled.add(&Gap { last: gap.last.min(last), ..gap });
        }
        let mut known = self.reports.clone();
        for (first, last, _) in &self.tombstones {
            known.insert_range(*first, *last);
        }
        settled.unexplained = sum(settled.unexplained, known.gaps(first, last));
        self.reports.insert_range(first, last);
        let tombstones = std::mem::take(&mut self.tombstones).into_iter().filter(|(_, last, _)| *last >= below);
        self.tombstones = tombstones.map(|(first, last, reason)| (first.max(below), last, reason)).collect();
        let contested = std::mem::take(&mut self.contested);
        for (first, last) in contested.iter() {
            if first < below {
                settled.contested = sum(settled.contested, [(first, last.min(below - 1))]);
            }
            if last >= below {
                self.contested.insert_range(first.max(below), last);
            }
        }
        self.settled = self.settled.max(below);
    }
}

impl Missing {
    /// Adds a gap.
    pub fn add(&mut self, gap: &Gap) {
        match gap.status {
            Status::Unexplained => self.unexplained = self.unexplained.saturating_add(gap.reports()),
            Status::Dropped => {
                let dropped = self.dropped.entry(gap.reason.clone().unwrap_or_default()).or_default();
                *dropped = dropped.saturating_add(gap.reports());
            }
            Status::BeforeFirst => {}
        }
    }
}

impl Before {
    /// Reads the `previous` of a report of this observer and run.
    fn of(observer: &str, boot_id: &str, previous: Option<&str>) -> Self {
        let Some(id) = previous else { return Self::Nothing };
        let run =
            id.strip_prefix(observer).and_then(|rest| rest.strip_prefix('/')).and_then(|rest| rest.rsplit_once('/'));
        match run {
            Some((run, seq)) if run != boot_id && run.len() <= NAME_BYTES_MAX => {
                Self::OtherRun(run.to_owned(), seq.parse().ok())
            }
            _ => Self::Report,
        }
    }
}

/// The second in which this instant is.
fn second(at: Timestamp) -> u64 {
    at.as_second().max(0).cast_unsigned()
}

/// Two clones may name the same report as the last one: then the reports before it are missing only once.
fn each_once(gaps: &mut Vec<Gap>) {
    let mut known = HashSet::new();
    gaps.retain(|gap| gap.status != Status::Unexplained || known.insert((gap.boot_id.clone(), gap.first, gap.last)));
}

/// How many numbers a range has.
const fn count(first: u64, last: u64) -> u64 {
    (last - first).saturating_add(1)
}

fn sum(before: u64, ranges: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    ranges.into_iter().fold(before, |sum, (first, last)| sum.saturating_add(count(first, last)))
}
