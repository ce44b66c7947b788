//! The arithmetic beside the truth: random histories of an observer, of which everything is known.

use std::collections::BTreeSet;

use weir_sketch::hash::mix;

use super::*;

/// Enough for every history here.
const ALL: Limits = Limits { runs: 1_000, pieces: 100_000, contents: 100_000 };
const FEW: Limits = Limits { runs: 64, pieces: 1_000, contents: 1_000 };

/// Numbers that chance has chosen.
struct Chance(u64);

impl Chance {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % below
    }

    fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What came, as it came.
#[derive(Clone, Debug)]
enum Came {
    Report { boot_id: String, seq: u64, previous: Option<String>, start: u64, content: Content },
    Tombstone { boot_id: String, first: u64, last: u64, reason: &'static str },
}

/// What came of an observer, and what is true of it.
struct History {
    came: Vec<Came>,
    /// The numbers of each sequence that are missing without an explanation, and which a reader can know to be missing.
    unexplained: Vec<(usize, u64)>,
    /// Those that tombstones explain.
    dropped: BTreeSet<(String, u64)>,
    /// Those of which different reports or tombstones came.
    contested: BTreeSet<(String, u64)>,
}

fn content(nth: u64) -> Content {
    Content::read(&nth.to_string()).unwrap()
}

impl History {
    /// A history of some runs. The observer may lose its state only if it says so `with_losses_of_state`.
    fn of(seed: u64, with_losses_of_state: bool) -> Self {
        let mut chance = Chance(seed);
        let mut history =
            Self { came: Vec::new(), unexplained: Vec::new(), dropped: BTreeSet::new(), contested: BTreeSet::new() };
        // For each sequence: the numbers that are accounted for, and those that are not.
        let mut sequences: Vec<(BTreeSet<u64>, BTreeSet<u64>)> = vec![Default::default()];
        let (mut seq, mut previous, mut start) = (0, None::<String>, 0);
        let loss = [5, 30, 80][chance.below(3) as usize];
        for run in 0..1 + chance.below(7) {
            let boot_id = format!("{:016x}", mix(seed ^ run << 32));
            let is_lost = with_losses_of_state && run > 0 && chance.is(30);
            if is_lost {
                (seq, previous) = (0, None);
                sequences.push(Default::default());
            }
            let (first, last) = (seq + 1, seq + 1 + chance.below(12));
            let mut came = BTreeSet::new();
            while seq < last {
                (seq, start) = (seq + 1, start + 10);
                let report = |nth| {
                    let (boot_id, previous, content) = (boot_id.clone(), previous.clone(), content(nth));
                    Came::Report { boot_id, seq, previous, start, content }
                };
                let (report, other) = (report(0), report(1));
                // Where the observer loses its state, the first report of a sequence comes, and one of each run:
                // otherwise nobody can know where a sequence begins, and to which one tombstones belong.
                let must_come = with_losses_of_state && (seq == 1 || seq == last && came.is_empty());
                if must_come || !chance.is(loss) {
                    came.insert(seq);
                    history.came.push(report.clone());
                    history.came.extend(chance.is(10).then_some(report));
                    if chance.is(5) {
                        history.came.extend(vec![other; 1 + chance.below(2) as usize]);
                        history.contested.insert((boot_id.clone(), seq));
                    }
                }
                previous = Some(format!("7f/{boot_id}/{seq}"));
            }
            let lost: Vec<u64> = (first..=last).filter(|number| !came.contains(number)).collect();
            let mut told = BTreeSet::new();
            for number in &lost {
                if chance.is(40) {
                    // It may name reports that came after all, or that another tombstone names.
                    let until = last.min(*number + [0, 0, 0, 1, 4][chance.below(5) as usize]);
                    let [reason, other] =
                        [["spool_full", "too_old"], ["too_old", "spool_full"]][chance.below(2) as usize];
                    let tombstone =
                        |reason| Came::Tombstone { boot_id: boot_id.clone(), first: *number, last: until, reason };
                    if chance.is(5) {
                        history.came.push(tombstone(other));
                        history.contested.extend((*number..=until).map(|number| (boot_id.clone(), number)));
                    }
                    let tombstone = tombstone(reason);
                    history.came.push(tombstone.clone());
                    history.came.extend(chance.is(10).then_some(tombstone));
                    told.extend(*number..=until);
                }
            }
            history.dropped.extend(told.difference(&came).map(|number| (boot_id.clone(), *number)));
            let (known, missing) = sequences.last_mut().unwrap();
            missing.extend(lost.iter().filter(|number| !told.contains(number)));
            known.extend(came.union(&told));
        }
        for (nth, (known, missing)) in sequences.into_iter().enumerate() {
            let (Some(first), Some(last)) = (known.first(), known.last()) else { continue };
            // Those before the first one may not have been sent here, and of those at the end nobody knows.
            let is_known = |number: &&u64| **number < *last && *first < **number;
            history.unexplained.extend(missing.iter().filter(is_known).map(|number| (nth, *number)));
        }
        let mut order: Vec<(u64, Came)> = history.came.drain(..).map(|came| (chance.below(1 << 40), came)).collect();
        order.sort_by_key(|(place, _)| *place);
        history.came = order.into_iter().map(|(_, came)| came).collect();
        history
    }

    fn arrivals(&self) -> Arrivals<u64> {
        let mut arrivals = Arrivals::new(ALL);
        self.came.iter().for_each(|came| add(&mut arrivals, came));
        arrivals
    }
}

fn add(arrivals: &mut Arrivals<u64>, came: &Came) {
    match came {
        Came::Report { boot_id, seq, previous, start, content } => {
            let (previous, content) = (previous.as_deref(), *content);
            _ = arrivals.report(Sent { observer: "7f", boot_id, seq: *seq, previous, content, start: *start });
        }
        Came::Tombstone { boot_id, first, last, reason } => {
            assert!(arrivals.tombstone(boot_id, *first, *last, reason));
        }
    }
}

fn numbers(gaps: &[Gap], status: Status) -> Vec<(&str, u64)> {
    let chosen = gaps.iter().filter(|gap| gap.status == status);
    chosen.flat_map(|gap| (gap.first..=gap.last).map(|number| (&*gap.boot_id, number))).collect()
}

#[test]
fn what_is_missing_is_what_was_lost_whatever_the_order() {
    let mut seen = [0, 0];
    for seed in 0..6_000 {
        let history = History::of(seed, seed % 2 == 1);
        let arrivals = history.arrivals();
        let gaps = arrivals.gaps();
        let contested: BTreeSet<(String, u64)> = arrivals
            .contested()
            .flat_map(|(boot_id, first, last)| (first..=last).map(move |number| (boot_id.to_owned(), number)))
            .collect();
        assert_eq!(contested, history.contested, "{seed}: {:#?}", history.came);
        assert_eq!(arrivals.missing().contested, contested.len() as u64);
        let mut found: Vec<u64> = numbers(&gaps, Status::Unexplained).into_iter().map(|(_, number)| number).collect();
        found.sort_unstable();
        let mut lost: Vec<u64> = history.unexplained.iter().map(|(_, number)| *number).collect();
        lost.sort_unstable();
        assert_eq!(found, lost, "{seed}: {:#?}", history.came);
        let dropped: BTreeSet<(String, u64)> =
            numbers(&gaps, Status::Dropped).into_iter().map(|(boot_id, number)| (boot_id.to_owned(), number)).collect();
        assert_eq!(dropped, history.dropped, "{seed}");
        seen[usize::from(!lost.is_empty())] += 1;
    }
    assert!(seen.iter().all(|count| *count > 500), "{seen:?}");
}

#[test]
fn sums_stay_when_reports_are_no_longer_known_one_by_one() {
    for seed in 1..300 {
        let (mut exact, mut settled) = (Arrivals::new(ALL), Arrivals::new(FEW));
        let mut chance = Chance(seed);
        let (mut previous, mut boot_id) = (None::<String>, String::new());
        for seq in 1..3_000 {
            if seq == 1 || chance.is(4) {
                boot_id = format!("{seq:04}");
            }
            let report = |nth| {
                let (boot_id, previous, content) = (boot_id.clone(), previous.clone(), content(nth));
                Came::Report { boot_id, seq, previous, start: 10 * seq, content }
            };
            let (report, other) = (report(0), report(1));
            previous = Some(format!("7f/{boot_id}/{seq}"));
            for arrivals in [&mut exact, &mut settled] {
                match mix(seed ^ seq) % 6 {
                    2 => {}
                    3 => [&report, &other].into_iter().for_each(|came| add(arrivals, came)),
                    5 => assert!(arrivals.tombstone(&boot_id, seq, seq, "spool_full")),
                    _ => add(arrivals, &report),
                }
            }
            if seq % 100 == 0 {
                settled.settle(40, 10);
            }
        }
        settled.settle(40, 10);
        // A run of which nothing but tombstones came has no place in time.
        assert_eq!(settled.missing(), exact.missing(), "{seed}");
        assert!(settled.pieces() <= 40 + FEW.runs + SILENT_RUNS_MAX, "{}", settled.pieces());
    }
}

#[test]
fn what_comes_when_it_is_no_longer_known_one_by_one_is_not_counted() {
    let mut arrivals = Arrivals::new(FEW);
    let sent = |boot_id, seq, start| {
        let content = Content::default();
        Sent { observer: "7f", boot_id, seq, previous: None, content, start }
    };
    for seq in 0..100 {
        assert_eq!(arrivals.report(sent("a", 2 * seq, seq)), Arrival::New);
    }
    arrivals.settle(10, 10);
    assert_eq!(arrivals.report(sent("a", 1, 0)), Arrival::Forgotten);
    assert_eq!(arrivals.report(sent("a", 198, 0)), Arrival::Again);
    assert_eq!(arrivals.report(sent("a", 197, 0)), Arrival::New);
    let runs: Vec<String> = (0..3 * FEW.runs as u64).map(|nth| format!("run-{nth:04}")).collect();
    for (nth, boot_id) in (1_000..).zip(&runs) {
        arrivals.report(sent(boot_id, nth, nth));
        arrivals.settle(1_000, 10);
    }
    assert_eq!(arrivals.report(sent("a", 300, 90)), Arrival::Forgotten, "its run is no longer known");
    assert_eq!(arrivals.report(sent("new", 1, 5_000)), Arrival::New);
}

#[test]
fn a_report_follows_the_run_that_it_names_whatever_the_clock_said() {
    // The clock of the second run was wrong.
    let sent = [
        ("a", 1, None, 100),
        ("a", 2, Some("7f/a/1"), 110),
        ("b", 3, Some("7f/a/2"), 5),
        ("c", 4, Some("7f/b/3"), 120),
    ];
    let mut arrivals = Arrivals::new(ALL);
    for (boot_id, seq, previous, start) in sent {
        arrivals.report(Sent { observer: "7f", boot_id, seq, previous, content: Content::default(), start });
    }
    assert_eq!(arrivals.gaps(), []);
}

#[test]
fn a_number_of_two_different_reports_is_contested_and_copies_are_not() {
    let mut arrivals = Arrivals::new(FEW);
    let mut came = |seq, nth| {
        arrivals.report(Sent { observer: "7f", boot_id: "a", seq, previous: None, content: content(nth), start: seq })
    };
    assert_eq!([came(1, 0), came(2, 0), came(1, 0)], [Arrival::New, Arrival::New, Arrival::Again]);
    assert_eq!([came(2, 1), came(2, 0), came(2, 1)], [Arrival::Other, Arrival::Again, Arrival::Other]);
    assert_eq!(arrivals.contested().collect::<Vec<_>>(), [("a", 2, 2)], "once");
}

#[test]
fn an_observer_takes_no_more_memory_than_its_limits() {
    let mut arrivals = Arrivals::new(FEW);
    for seq in 0..50_000_u64 {
        let boot_id = format!("{seq:06}");
        let sent =
            Sent { observer: "7f", boot_id: &boot_id, seq: 2 * seq, previous: None, content: content(0), start: seq };
        arrivals.report(sent);
        arrivals.tombstone("a", 3 * seq, 3 * seq, "spool_full");
    }
    assert!(arrivals.runs() <= 2 * FEW.runs + SILENT_RUNS_MAX + 1, "{}", arrivals.runs());
    assert!(arrivals.pieces() <= 3 * FEW.pieces && arrivals.contents <= 2 * FEW.contents + 1);
    assert_eq!(arrivals.contents, arrivals.runs.iter().map(|run| run.contents.len()).sum::<usize>());
}
