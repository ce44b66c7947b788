//! Which reports arrived, and which did not: duplicates, gaps, tombstones, and reports that are late.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
};

use jiff::Timestamp;
use weir_report::Reason;

use crate::{
    answer::{Defect, What},
    line::{Report, Tombstone},
};

/// The most ranges of missing reports that are named for an observer.
const RANGES_SHOWN: usize = 5;

/// Of the runs of an observer, so many are known one by one after [`Arrivals::settle`].
const RUNS_MAX: usize = 16;
/// So many ranges of reports and so many tombstones of a run are known one by one then.
const RANGES_MAX: usize = 64;

/// The reports of all observers.
#[derive(Debug, Default)]
pub struct Arrivals(BTreeMap<String, Observer>);

/// What observers are called in answers.
#[derive(Debug)]
pub struct Labels(HashMap<String, String>);

impl Labels {
    /// What this observer is called: if nothing came from it, its identity.
    pub fn of(&self, id: &str) -> String {
        self.0.get(id).cloned().unwrap_or_else(|| id.to_owned())
    }
}

/// Those of one.
#[derive(Debug, Default)]
struct Observer {
    name: String,
    runs: BTreeMap<String, Run>,
    duplicates: u64,
    late: u64,
    /// What is missing of the reports that are no longer known one by one.
    settled: Missing,
    /// When its first window began.
    earliest: Option<Timestamp>,
    /// When its latest window began, and the run of that.
    latest: Option<(Timestamp, String)>,
}

/// Reports that are missing.
#[derive(Debug, Default)]
struct Missing {
    /// Without an explanation.
    unexplained: u64,
    explained: BTreeMap<Reason, u64>,
}

/// The reports of one run of a daemon.
#[derive(Debug, Default)]
struct Run {
    arrived: Numbers,
    /// A later run names the last report of this one.
    until: u64,
    /// When the window of the report that names it began.
    named_at: Option<Timestamp>,
    tombstones: Vec<(u64, u64, Reason)>,
    /// The reports before this one are no longer known one by one.
    settled: u64,
    /// When its latest window began.
    latest: Option<Timestamp>,
}

/// Numbers, as ranges: first and last.
#[derive(Debug, Default)]
struct Numbers(BTreeMap<u64, u64>);

impl Numbers {
    /// Adds a number. Returns whether it is new.
    fn insert(&mut self, number: u64) -> bool {
        let before = self.0.range(..=number).next_back().map(|(first, last)| (*first, *last));
        if before.is_some_and(|(_, last)| number <= last) {
            return false;
        }
        let first = match before {
            Some((first, last)) if last + 1 == number => first,
            _ => number,
        };
        let last = number.checked_add(1).and_then(|next| self.0.remove(&next)).unwrap_or(number);
        self.0.insert(first, last);
        true
    }

    /// The ranges of other numbers, from `from` to `until`.
    fn gaps(&self, from: u64, until: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        // The first number that was not looked at; `None` after the largest one.
        let mut next = Some(from);
        for (first, last) in &self.0 {
            gaps.extend(next.filter(|next| next < first).map(|next| (next, *first - 1)));
            next = last.checked_add(1).and_then(|after| next.map(|next| next.max(after)));
        }
        gaps.extend(next.filter(|next| *next <= until).map(|next| (next, until)));
        gaps
    }
}

impl Arrivals {
    /// A report came. Returns whether it is the first with its number.
    pub fn add(&mut self, report: &Report) -> bool {
        let observer = self.0.entry(report.sender.id.clone()).or_default();
        observer.name.clone_from(&report.sender.name);
        let run = observer.runs.entry(report.sender.boot_id.clone()).or_default();
        if report.sender.seq < run.settled {
            observer.late += 1;
            return false;
        }
        // Within a run by number, because the clock may have been set back.
        let is_after = run.arrived.0.last_key_value().is_some_and(|(_, last)| report.sender.seq < *last);
        run.latest = run.latest.max(Some(report.start));
        if !run.arrived.insert(report.sender.seq) {
            observer.duplicates += 1;
            return false;
        }
        if let Some((boot_id, seq)) = &report.previous {
            // The reports of that run may be in a later file.
            let run = observer.runs.entry(boot_id.clone()).or_default();
            run.until = run.until.max(*seq);
            run.named_at = run.named_at.max(Some(report.start));
        }
        observer.earliest = Some(observer.earliest.map_or(report.start, |earliest| earliest.min(report.start)));
        let latest = (report.start, report.sender.boot_id.clone());
        let of_earlier_run = |(start, run): &(Timestamp, String)| latest.0 < *start && latest.1 != *run;
        observer.late += u64::from(is_after || observer.latest.as_ref().is_some_and(of_earlier_run));
        observer.latest = observer.latest.take().max(Some(latest));
        true
    }

    /// A tombstone came.
    pub fn add_tombstone(&mut self, tombstone: Tombstone) {
        let Tombstone { sender, first, last, reason } = tombstone;
        let observer = self.0.entry(sender.id).or_default();
        let run = observer.runs.entry(sender.boot_id).or_default();
        if last >= run.settled && !run.tombstones.contains(&(first, last, reason)) {
            run.tombstones.push((first, last, reason));
        }
    }

    /// Forgets the oldest runs and reports one by one, so that the memory is bounded. What is missing of them stays
    /// missing, also if it comes later.
    pub fn settle(&mut self) {
        self.0.values_mut().for_each(Observer::settle);
    }

    /// What each observer is called: its name, with its identity if another observer has the same name.
    pub fn labels(&self) -> Labels {
        let name = |(id, observer): (&String, &Observer)| match &*observer.name {
            "" => id.clone(),
            name => name.to_owned(),
        };
        let mut uses: HashMap<String, u32> = HashMap::new();
        for observer in &self.0 {
            *uses.entry(name(observer)).or_default() += 1;
        }
        let label = |observer: (&String, &Observer)| {
            let (id, name) = (observer.0.clone(), name(observer));
            let label = if uses[&name] > 1 { format!("{name} ({id})") } else { name };
            (id, label)
        };
        Labels(self.0.iter().map(label).collect())
    }

    /// What did not arrive as it was sent.
    pub fn defects(&self, labels: &Labels) -> Vec<Defect> {
        let mut all = Vec::new();
        for (id, observer) in &self.0 {
            let defect =
                |what, reports, detail| Defect { what, observer: id.clone(), name: labels.of(id), reports, detail };
            let (mut missing, mut ranges) = (observer.settled.unexplained, Vec::new());
            let mut explained = observer.settled.explained.clone();
            for (boot_id, run) in &observer.runs {
                for (first, last) in run.missing(observer.earliest, &mut explained) {
                    missing = missing.saturating_add(count(first, last));
                    ranges.push(format!("{boot_id}/{first}-{last}"));
                }
            }
            if missing > 0 {
                let more = ranges.len().saturating_sub(RANGES_SHOWN);
                ranges.truncate(RANGES_SHOWN);
                ranges.extend((more > 0).then(|| format!("and {more} more ranges")));
                ranges.extend((observer.settled.unexplained > 0).then(|| "and earlier ones".to_owned()));
                all.push(defect(What::Gap, missing, ranges.join(", ")));
            }
            for (reason, reports) in explained {
                all.push(defect(What::Tombstone, reports, reason.name().to_owned()));
            }
            if observer.duplicates > 0 {
                all.push(defect(What::Duplicate, observer.duplicates, "counted once".to_owned()));
            }
            if observer.late > 0 {
                all.push(defect(What::Late, observer.late, "counted where they belong".to_owned()));
            }
        }
        all
    }
}

impl Observer {
    fn settle(&mut self) {
        let Self { runs, settled, earliest, .. } = self;
        while runs.len() > RUNS_MAX {
            let age = |(_, run): &(&String, &Run)| run.latest.max(run.named_at);
            let Some(oldest) = runs.iter().min_by_key(age).map(|(boot_id, _)| boot_id.clone()) else { return };
            if let Some(mut run) = runs.remove(&oldest) {
                run.settle(u64::MAX, *earliest, settled);
            }
        }
        for run in runs.values_mut() {
            let firsts: Vec<u64> = run.arrived.0.keys().copied().collect();
            let mut of_tombstones: Vec<u64> = run.tombstones.iter().map(|(first, ..)| *first).collect();
            of_tombstones.sort_unstable();
            let many = [firsts, of_tombstones].into_iter().filter(|firsts| firsts.len() > RANGES_MAX);
            let below = many.map(|firsts| firsts[firsts.len() - RANGES_MAX / 2]).max();
            if let Some(below) = below.filter(|below| *below > run.settled) {
                run.settle(below, *earliest, settled);
            }
        }
    }
}

impl Run {
    /// Adds up what is missing before this number, and forgets it.
    fn settle(&mut self, below: u64, earliest: Option<Timestamp>, settled: &mut Missing) {
        let after = self.arrived.0.split_off(&below);
        let arrived = Numbers(mem::replace(&mut self.arrived.0, after));
        let (until, named_at, tombstones) = (self.until, self.named_at, self.tombstones.clone());
        let mut before = Self { arrived, until, named_at, tombstones, ..Self::default() };
        if below < u64::MAX {
            before.tombstones.retain(|(first, ..)| *first < below);
            before.tombstones.iter_mut().for_each(|(_, last, _)| *last = (*last).min(below - 1));
            before.until = below - 1;
        }
        for (first, last) in before.missing(earliest, &mut settled.explained) {
            settled.unexplained = settled.unexplained.saturating_add(count(first, last));
        }
        if let (Some(known), Some(last)) = (before.first(), below.checked_sub(1)) {
            // A number that is adjacent to the next range belongs to it.
            let last = self.arrived.0.remove(&below).unwrap_or(last);
            self.arrived.0.insert(known, last);
        }
        self.tombstones.retain(|(_, last, _)| *last >= below);
        self.settled = below;
    }

    /// The first of its reports that is known.
    fn first(&self) -> Option<u64> {
        let tombstones = self.tombstones.iter().map(|(first, ..)| *first);
        self.arrived.0.keys().next().copied().into_iter().chain(tombstones).min()
    }

    /// The ranges that are missing without an explanation. Those with one are added to `explained`.
    ///
    /// `earliest` is the start of the first window of this observer.
    fn missing(&self, earliest: Option<Timestamp>, explained: &mut BTreeMap<Reason, u64>) -> Vec<(u64, u64)> {
        let last = self.tombstones.iter().map(|(_, last, _)| *last).max().unwrap_or(0);
        let known = self.first();
        // If nothing of a run between two others came, only its last report is known. A run before all others may be in
        // files that are not merged now.
        let is_between = self.named_at.zip(earliest).is_some_and(|(named_at, earliest)| earliest < named_at);
        let Some(first) = known.or_else(|| is_between.then_some(self.until)) else { return Vec::new() };
        let mut rest = self.arrived.gaps(first, self.until.max(last));
        for (first, last, reason) in &self.tombstones {
            let mut outside = Vec::new();
            for (from, to) in rest {
                let (inner, until) = (from.max(*first), to.min(*last));
                if inner > until {
                    outside.push((from, to));
                    continue;
                }
                let sum = explained.entry(*reason).or_default();
                *sum = sum.saturating_add(count(inner, until));
                outside.extend((from < inner).then(|| (from, inner - 1)));
                outside.extend((until < to).then(|| (until + 1, to)));
            }
            rest = outside;
        }
        rest
    }
}

/// How many numbers a range has.
const fn count(first: u64, last: u64) -> u64 {
    (last - first).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Sender;

    fn sender(boot_id: &str, seq: u64) -> Sender {
        Sender { id: "7f".to_owned(), boot_id: boot_id.to_owned(), seq, name: "edge-1".to_owned(), site: None }
    }

    fn report(boot_id: &str, seq: u64, previous: Option<(&str, u64)>) -> Report {
        let at = |second| Timestamp::from_second(1_700_000_000 + second).unwrap();
        Report {
            sender: sender(boot_id, seq),
            previous: previous.map(|(boot_id, seq)| (boot_id.to_owned(), seq)),
            start: at(10 * seq as i64),
            end: at(10 * seq as i64 + 10),
            seen: Default::default(),
            lost: Default::default(),
            sampled_out: Default::default(),
            uncertain: None,
            sketches: None,
        }
    }

    fn shown(arrivals: &Arrivals) -> Vec<(What, u64, String)> {
        arrivals
            .defects(&arrivals.labels())
            .into_iter()
            .map(|defect| (defect.what, defect.reports, defect.detail))
            .collect()
    }

    #[test]
    fn every_report_counts_once_and_every_missing_one_is_named() {
        let mut arrivals = Arrivals::default();
        let added = [7, 8, 12, 11, 8, 20].map(|seq| arrivals.add(&report("b", seq, None)));
        assert_eq!(added, [true, true, true, true, false, true]);
        // The next run says that there were two more.
        assert!(arrivals.add(&report("c", 23, Some(("b", 22)))));
        assert!(arrivals.add(&report("c", 24, Some(("c", 23)))));
        arrivals.add_tombstone(Tombstone { sender: sender("b", 0), first: 9, last: 13, reason: Reason::SpoolFull });
        assert_eq!(
            shown(&arrivals),
            [
                (What::Gap, 8, "b/14-19, b/21-22".to_owned()),
                (What::Tombstone, 3, "spool_full".to_owned()),
                (What::Duplicate, 1, "counted once".to_owned()),
                (What::Late, 1, "counted where they belong".to_owned()),
            ]
        );
        assert_eq!(["7f", "80"].map(|id| arrivals.labels().of(id)), ["edge-1", "80"]);
    }

    #[test]
    fn gaps_are_found_whatever_the_order_of_the_files() {
        let reports = [report("b", 1, None), report("c", 4, Some(("b", 3))), report("c", 5, Some(("c", 4)))];
        let mut shown_of = Vec::new();
        for order in [[0, 1, 2], [1, 2, 0], [2, 1, 0]] {
            let mut arrivals = Arrivals::default();
            assert!(order.iter().all(|nth| arrivals.add(&reports[*nth])));
            shown_of.push(shown(&arrivals).into_iter().filter(|(what, ..)| *what == What::Gap).collect::<Vec<_>>());
        }
        assert_eq!(shown_of, vec![[(What::Gap, 2, "b/2-3".to_owned())]; 3]);
        let mut alone = Arrivals::default();
        alone.add(&reports[1]);
        assert_eq!(shown(&alone), [], "the run before is in no file");
        alone.add_tombstone(Tombstone { sender: sender("c", 0), first: 2, last: 3, reason: Reason::SpoolFull });
        assert_eq!(shown(&alone), [(What::Tombstone, 2, "spool_full".to_owned())], "before the first that came");
        alone.add(&report("e", 9, Some(("d", 7))));
        let between = (What::Gap, 1, "d/7-7".to_owned());
        assert_eq!(shown(&alone)[0], between, "nothing came of a run between two others");
    }

    #[test]
    fn what_is_missing_stays_missing_when_it_is_no_longer_known_one_by_one() {
        let (mut exact, mut settled) = (Arrivals::default(), Arrivals::default());
        let mut previous = None;
        for nth in 0..20_000_u64 {
            // A run of 500 reports, of which every third one is missing, and some of these with a tombstone.
            let boot_id = format!("run-{}", nth / 500);
            let report =
                report(&boot_id, nth, previous.as_ref().map(|(boot_id, seq): &(String, u64)| (&**boot_id, *seq)));
            previous = Some((boot_id.clone(), nth));
            for arrivals in [&mut exact, &mut settled] {
                match nth % 6 {
                    2 => {}
                    5 => arrivals.add_tombstone(Tombstone {
                        sender: sender(&boot_id, 0),
                        first: nth,
                        last: nth,
                        reason: Reason::SpoolFull,
                    }),
                    _ => assert!(arrivals.add(&report)),
                }
            }
            if nth % 100 == 0 {
                settled.settle();
            }
        }
        settled.settle();
        let sums =
            |arrivals: &Arrivals| shown(arrivals).into_iter().map(|(what, sum, _)| (what, sum)).collect::<Vec<_>>();
        // Nobody knows whether the first reports of a run are missing.
        assert_eq!(sums(&exact), [(What::Gap, 3_320), (What::Tombstone, 3_333)]);
        assert_eq!(sums(&settled), sums(&exact));
        assert!(shown(&settled)[0].2.ends_with("and earlier ones"), "{:?}", shown(&settled));
        let runs = &settled.0["7f"].runs;
        assert!(runs.len() <= RUNS_MAX);
        assert!(runs.values().all(|run| run.arrived.0.len() <= RANGES_MAX && run.tombstones.len() <= RANGES_MAX));
        assert!(!settled.add(&report("run-39", 19_502, None)), "it is too late");
        assert_eq!(sums(&settled).last(), Some(&(What::Late, 1)));
    }

    #[test]
    fn names_that_two_observers_have_are_told_apart() {
        let mut arrivals = Arrivals::default();
        let named = |id: &str, name: &str| {
            let sender = Sender { id: id.to_owned(), name: name.to_owned(), ..sender("b", 1) };
            Report { sender, ..report("b", 1, None) }
        };
        for (id, name) in [("1", "edge"), ("2", "edge"), ("3", "core")] {
            arrivals.add(&named(id, name));
        }
        assert_eq!(["1", "2", "3"].map(|id| arrivals.labels().of(id)), ["edge (1)", "edge (2)", "core"]);
    }

    #[test]
    fn numbers_are_ranges() {
        let mut numbers = Numbers::default();
        for number in [5, 3, 4, 9, 0, u64::MAX, 8] {
            assert!(numbers.insert(number) && !numbers.insert(number));
        }
        assert_eq!(numbers.0, [(0, 0), (3, 5), (8, 9), (u64::MAX, u64::MAX)].into());
        assert_eq!(numbers.gaps(0, 0), [(1, 2), (6, 7), (10, u64::MAX - 1)]);
        assert_eq!(Numbers([(3, 4)].into()).gaps(2, 6), [(2, 2), (5, 6)]);
    }
}
