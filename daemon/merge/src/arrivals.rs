//! Which reports arrived, and which did not: duplicates, gaps, tombstones, and reports that are late.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use weir_schema::arrivals::{Arrival, Arrivals as Known, Limits, Sent, Status, twins::Twin};

use crate::{
    answer::{Defect, What},
    line::{Report, Tombstone},
};

/// The most ranges of missing reports, of contested ones, and the most cloned runs that are named for an observer.
const RANGES_SHOWN: usize = 5;

/// The most ranges of reports and tombstones of all observers that are known one by one after [`Arrivals::settle`]:
/// some 100 MB.
const PIECES_MAX: usize = 1 << 20;
/// The most contents of reports of all observers: some 100 MB.
const CONTENTS_MAX: usize = 1 << 21;
/// The most of one observer.
const OF_ONE: Limits = Limits { runs: 64, pieces: 4_096, contents: 1 << 16 };
/// The least pieces and contents that each observer may have.
const LEAST_OF_ONE: usize = 64;

/// The reports of all observers.
#[derive(Debug, Default)]
pub struct Arrivals(BTreeMap<String, Observer>);

/// The names of observers in answers, by their identity.
#[derive(Debug)]
pub struct Labels(HashMap<String, String>);

impl Labels {
    /// Returns the name of this observer: its identity, if nothing came from it.
    pub fn of(&self, id: &str) -> String {
        self.0.get(id).cloned().unwrap_or_else(|| id.to_owned())
    }
}

/// The arrivals of one observer.
#[derive(Debug)]
struct Observer {
    name: String,
    known: Known,
    duplicates: u64,
    late: u64,
    forgotten: u64,
    /// When its latest window began, and the run of that.
    latest: Option<(Timestamp, String)>,
}

impl Default for Observer {
    fn default() -> Self {
        let (name, duplicates, late, forgotten, latest) = Default::default();
        Self { name, known: Known::new(OF_ONE), duplicates, late, forgotten, latest }
    }
}

impl Arrivals {
    /// Adds a report that came. Returns whether it is the first with its number.
    pub fn add(&mut self, report: &Report) -> bool {
        let observer = self.0.entry(report.sender.id.clone()).or_default();
        observer.name.clone_from(&report.sender.name);
        let sent = Sent {
            observer: &report.sender.id,
            boot_id: &report.sender.boot_id,
            seq: report.sender.seq,
            previous: report.previous.as_deref(),
            content: report.content,
            start: report.start,
            end: report.end,
        };
        let is_after = observer.known.highest(sent.boot_id).is_some_and(|highest| sent.seq < highest);
        match observer.known.report(sent) {
            Arrival::New => {}
            Arrival::Again => {
                observer.duplicates += 1;
                return false;
            }
            Arrival::Other => return false,
            Arrival::Forgotten => {
                observer.forgotten += 1;
                return false;
            }
        }
        let latest = (report.start, report.sender.boot_id.clone());
        // Within a run by number, because the clock may have been set back.
        let of_earlier_run = |(start, run): &(Timestamp, String)| latest.0 < *start && latest.1 != *run;
        observer.late += u64::from(is_after || observer.latest.as_ref().is_some_and(of_earlier_run));
        observer.latest = observer.latest.take().max(Some(latest));
        true
    }

    /// Notes that a tombstone came.
    pub fn add_tombstone(&mut self, tombstone: &Tombstone) {
        let Tombstone { sender, first, last, reason } = tombstone;
        let observer = self.0.entry(sender.id.clone()).or_default();
        if !observer.known.tombstone(&sender.boot_id, *first, *last, reason) {
            observer.forgotten += 1;
        }
    }

    /// Returns true if this observer is known, or if there is room for one of so many.
    pub fn has_room(&self, id: &str, most: usize) -> bool {
        self.0.len() < most || self.0.contains_key(id)
    }

    /// Forgets the oldest runs and reports one by one, so that the memory is bounded. Their missing reports stay
    /// missing, even if they come later.
    pub fn settle(&mut self) {
        let [pieces, contents] = [(PIECES_MAX, OF_ONE.pieces), (CONTENTS_MAX, OF_ONE.contents)]
            .map(|(all, of_one)| (all / self.0.len().max(1)).clamp(LEAST_OF_ONE, of_one));
        for observer in self.0.values_mut() {
            observer.known.settle(pieces, contents);
        }
    }

    /// Returns the name of each observer, with its identity if another observer has the same name.
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

    /// Returns the reports that did not arrive as they were sent.
    pub fn defects(&self, labels: &Labels) -> Vec<Defect> {
        self.0.iter().flat_map(|(id, observer)| observer.defects(id, labels)).collect()
    }
}

impl Observer {
    fn defects(&self, id: &str, labels: &Labels) -> Vec<Defect> {
        let defect =
            |what, reports, detail| Defect { what, observer: id.to_owned(), name: labels.of(id), reports, detail };
        let (settled, gaps, missing) = (self.known.settled(), self.known.gaps(), self.known.missing());
        let mut all = Vec::new();
        if missing.unexplained > 0 {
            let unexplained = gaps.iter().filter(|gap| gap.status == Status::Unexplained);
            let ranges = unexplained.map(|gap| (&*gap.boot_id, gap.first, gap.last));
            all.push(defect(What::Gap, missing.unexplained, named(ranges, settled.unexplained > 0)));
        }
        if missing.contested > 0 {
            let ranges = named(self.known.contested(), settled.contested > 0);
            let detail = format!("{ranges}: two senders have this identity, or a report is forged; the first counts");
            all.push(defect(What::Contested, missing.contested, detail));
        }
        if missing.cloned > 0 {
            let runs = named_twins(&self.known.twins(), missing.cloned);
            let detail = format!("{runs}: two senders have this identity, or one went on from an older state");
            all.push(defect(What::Cloned, missing.cloned, detail));
        }
        for (reason, reports) in missing.dropped {
            all.push(defect(What::Tombstone, reports, reason));
        }
        if self.duplicates > 0 {
            all.push(defect(What::Duplicate, self.duplicates, "counted once".to_owned()));
        }
        if self.late > 0 {
            all.push(defect(What::Late, self.late, "counted where they belong".to_owned()));
        }
        if self.forgotten > 0 {
            let detail = "came when reports of their time were no longer known one by one: not counted";
            all.push(defect(What::LeftOut, self.forgotten, detail.to_owned()));
        }
        all
    }
}

/// The first of these ranges of numbers.
fn named<'r>(ranges: impl Iterator<Item = (&'r str, u64, u64)>, has_earlier: bool) -> String {
    let mut ranges = ranges.map(|(boot_id, first, last)| format!("{boot_id}/{first}-{last}"));
    let mut shown: Vec<String> = ranges.by_ref().take(RANGES_SHOWN).collect();
    let more = ranges.count();
    shown.extend((more > 0).then(|| format!("and {more} more ranges")));
    shown.extend(has_earlier.then(|| "and earlier ones".to_owned()));
    shown.join(", ")
}

/// The first of so many runs that were not one after the other.
fn named_twins(twins: &[Twin], all: u64) -> String {
    let shown = twins.iter().take(RANGES_SHOWN);
    let mut shown: Vec<_> = shown.map(|twin| format!("{} {} {}", twin.boot_id, twin.sign.name(), twin.other)).collect();
    let more = all.saturating_sub(shown.len() as u64);
    shown.extend((more > 0).then(|| format!("and {more} more runs")));
    shown.join(", ")
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
            previous: previous.map(|(boot_id, seq)| format!("7f/{boot_id}/{seq}")),
            content: Default::default(),
            start: at(10 * seq as i64),
            end: at(10 * seq as i64 + 10),
            seen: Default::default(),
            account: Default::default(),
            sketches: None,
        }
    }

    fn tombstone(boot_id: &str, first: u64, last: u64) -> Tombstone {
        Tombstone { sender: sender(boot_id, 0), first, last, reason: "spool_full".to_owned() }
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
        arrivals.add_tombstone(&tombstone("b", 9, 13));
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
    fn two_different_reports_of_one_number_are_named_and_copies_are_duplicates() {
        let mut arrivals = Arrivals::default();
        let other = |seq| {
            let content = weir_schema::Content::read("1").unwrap();
            Report { content, ..report("b", seq, None) }
        };
        let added = [report("b", 1, None), report("b", 2, None), report("b", 2, None), other(2), other(2), other(1)];
        assert_eq!(added.map(|report| arrivals.add(&report)), [true, true, false, false, false, false]);
        let [contested, duplicate] = &shown(&arrivals)[..] else { panic!() };
        assert_eq!((contested.0, contested.1), (What::Contested, 2));
        assert!(contested.2.starts_with("b/1-2: two senders"), "{contested:?}");
        assert_eq!((duplicate.0, duplicate.1), (What::Duplicate, 1));
        arrivals.add_tombstone(&tombstone("b", 3, 4));
        arrivals.add_tombstone(&tombstone("b", 3, 4));
        assert_eq!(shown(&arrivals)[0].1, 2);
        arrivals.add_tombstone(&Tombstone { reason: "too_old".to_owned(), ..tombstone("b", 3, 4) });
        assert_eq!(shown(&arrivals)[0].1, 4);
    }

    #[test]
    fn a_router_that_was_cloned_and_started_anew_is_named() {
        let mut arrivals = Arrivals::default();
        let runs = [report("a", 1, None), report("a", 2, Some(("a", 1))), report("a", 3, Some(("a", 2)))];
        let of_clone = [report("b", 3, Some(("a", 2))), report("b", 4, Some(("b", 3)))];
        assert!(runs.iter().chain(&of_clone).all(|report| arrivals.add(report)));
        let shown = shown(&arrivals);
        let [(what, runs, detail)] = &shown[..] else { panic!("{shown:?}") };
        assert_eq!((*what, *runs), (What::Cloned, 1));
        assert!(detail.starts_with("b began before the end of a: two senders"), "{detail}");
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
        alone.add_tombstone(&tombstone("c", 2, 3));
        assert_eq!(shown(&alone), [(What::Tombstone, 2, "spool_full".to_owned())], "before the first that came");
        alone.add(&report("e", 8, Some(("d", 7))));
        let between = (What::Gap, 3, "d/5-7".to_owned());
        assert_eq!(shown(&alone)[0], between, "nothing came of a run between two others");
    }

    #[test]
    fn reports_that_are_missing_at_the_start_of_a_run_are_named() {
        let came = |reports: &[Report], tombstones: &[Tombstone]| {
            let mut arrivals = Arrivals::default();
            for report in reports {
                _ = arrivals.add(report);
            }
            for tombstone in tombstones {
                arrivals.add_tombstone(tombstone);
            }
            shown(&arrivals)
        };
        let of_a = || (1..=5).map(|seq| report("a", seq, (seq > 1).then(|| ("a", seq - 1))));
        let of_b = [report("b", 9, Some(("b", 8))), report("b", 10, Some(("b", 9)))];
        let both: Vec<Report> = of_a().chain(of_b).collect();
        assert_eq!(came(&both, &[]), [(What::Gap, 3, "b/6-8".to_owned())]);
        let dropped = (What::Tombstone, 2, "spool_full".to_owned());
        assert_eq!(came(&both, &[tombstone("b", 6, 7)]), [(What::Gap, 1, "b/8-8".to_owned()), dropped.clone()]);
        assert_eq!(came(&both, &[tombstone("x", 6, 7)]), [(What::Gap, 1, "b/8-8".to_owned()), dropped]);
        // Nothing came of the run `b`.
        let without_b: Vec<Report> = of_a().chain([report("c", 9, Some(("b", 8)))]).collect();
        assert_eq!(came(&without_b, &[]), [(What::Gap, 3, "b/6-8".to_owned())]);
    }

    #[test]
    fn only_so_many_runs_are_known_and_what_is_missing_between_them_stays_missing() {
        let mut arrivals = Arrivals::default();
        for run in 0..1_000 {
            // Of each run, the second report comes, and the first one does not.
            let (boot_id, seq) = (format!("{run:04}"), 2 * run + 2);
            assert!(arrivals.add(&report(&boot_id, seq, Some((&boot_id, seq - 1)))));
        }
        assert_eq!(
            shown(&arrivals).iter().map(|(what, reports, _)| (*what, *reports)).collect::<Vec<_>>(),
            [(What::Gap, 999)]
        );
    }

    #[test]
    fn a_report_that_comes_when_those_of_its_time_are_forgotten_is_named() {
        let mut arrivals = Arrivals::default();
        let numbers = (0..2 * OF_ONE.pieces as u64).map(|nth| 2 * nth);
        for seq in numbers {
            _ = arrivals.add(&report("b", seq, None));
        }
        arrivals.settle();
        assert!(!arrivals.add(&report("b", 3, None)));
        let last = shown(&arrivals).pop().unwrap();
        assert_eq!((last.0, last.1), (What::LeftOut, 1));
        let missing = 2 * OF_ONE.pieces as u64 - 1;
        assert_eq!((shown(&arrivals)[0].0, shown(&arrivals)[0].1), (What::Gap, missing), "it stays missing");
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
}
