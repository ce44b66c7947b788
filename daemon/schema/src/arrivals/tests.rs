//! Compares the arithmetic with the truth, for random histories of an observer.

use std::collections::BTreeSet;

use weir_sketch::hash::mix;

use super::{
    twins::{SAME_TIME_SECONDS_MAX, Sign},
    *,
};

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

/// One arrival in a history.
#[derive(Clone, Debug)]
enum Came {
    Report { boot_id: String, seq: u64, previous: Option<String>, start: u64, content: Content },
    Tombstone { boot_id: String, first: u64, last: u64, reason: &'static str },
}

/// The arrivals of an observer, and the truth about its reports.
struct History {
    came: Vec<Came>,
    /// The numbers of each sequence that are missing without an explanation, and which a reader can know to be missing.
    unexplained: Vec<(usize, u64)>,
    /// All numbers that are missing in any sequence.
    lost: BTreeSet<u64>,
    /// The missing numbers that tombstones explain.
    dropped: BTreeSet<(String, u64)>,
    /// The numbers of which different reports or tombstones came.
    contested: BTreeSet<(String, u64)>,
}

/// Tells if the observer of a history may lose its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Losses {
    Never,
    /// It may. A report of each run comes, and the first one of each sequence: so a reader knows all sequences.
    Known,
    /// It may, and any report may be lost.
    Any,
}

/// The numbers of a sequence.
#[derive(Default)]
struct Sequence {
    /// The numbers that are accounted for.
    known: BTreeSet<u64>,
    missing: BTreeSet<u64>,
    /// The last number of which a report came.
    reported: Option<u64>,
    /// The first numbers of runs of which only tombstones came.
    silent: BTreeSet<u64>,
}

impl Sequence {
    /// Returns true if a reader can know that this number is missing.
    fn is_known_missing(&self, number: u64) -> bool {
        let after = self.known.range(number..).next().filter(|_| self.known.first() < Some(&number));
        // A run of which only tombstones came may be of another sequence, if no report has a higher number.
        after.is_some_and(|after| !self.silent.contains(after) || self.reported > Some(*after))
    }
}

fn content(nth: u64) -> Content {
    Content::read(&nth.to_string()).unwrap()
}

impl History {
    /// A history of some runs.
    fn of(seed: u64, losses: Losses) -> Self {
        let mut chance = Chance(seed);
        let (came, unexplained, lost, dropped, contested) = Default::default();
        let mut history = Self { came, unexplained, lost, dropped, contested };
        let mut sequences: Vec<Sequence> = vec![Sequence::default()];
        let (mut seq, mut previous, mut start) = (0, None::<String>, 0);
        let loss = [5, 30, 80][chance.below(3) as usize];
        for run in 0..1 + chance.below(7) {
            let boot_id = format!("{:016x}", mix(seed ^ run << 32));
            let is_lost = losses != Losses::Never && run > 0 && chance.is(30);
            if is_lost {
                (seq, previous) = (0, None);
                sequences.push(Sequence::default());
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
                // Otherwise a reader cannot know where a sequence begins, and to which one tombstones belong.
                let must_come = losses == Losses::Known && (seq == 1 || seq == last && came.is_empty());
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
            history.lost.extend(told.difference(&came));
            history.dropped.extend(told.difference(&came).map(|number| (boot_id.clone(), *number)));
            let sequence = sequences.last_mut().unwrap();
            sequence.missing.extend(lost.iter().filter(|number| !told.contains(number)));
            sequence.known.extend(came.union(&told));
            sequence.reported = sequence.reported.max(came.last().copied());
            sequence.silent.extend(told.first().filter(|_| came.is_empty()));
        }
        for (nth, sequence) in sequences.into_iter().enumerate() {
            // The numbers before the first report may not have been sent here, and those at the end are not known yet.
            let known = sequence.missing.iter().filter(|number| sequence.is_known_missing(**number));
            history.unexplained.extend(known.map(|number| (nth, *number)));
            history.lost.extend(sequence.missing);
        }
        let mut order: Vec<(u64, Came)> = history.came.drain(..).map(|came| (chance.below(1 << 40), came)).collect();
        order.sort_by_key(|(place, _)| *place);
        history.came = order.into_iter().map(|(_, came)| came).collect();
        history
    }

    fn arrivals(&self) -> Arrivals {
        let mut arrivals = Arrivals::new(ALL);
        for came in &self.came {
            add(&mut arrivals, came);
        }
        arrivals
    }
}

/// A report whose window begins at this second, and has ten.
fn sent<'s>(boot_id: &'s str, seq: u64, previous: Option<&'s str>, content: Content, start: u64) -> Sent<'s> {
    let [start, end] = [start, start + 10].map(|second| Timestamp::from_second(second as i64).unwrap());
    Sent { observer: "7f", boot_id, seq, previous, content, start, end }
}

fn add(arrivals: &mut Arrivals, came: &Came) {
    match came {
        Came::Report { boot_id, seq, previous, start, content } => {
            _ = arrivals.report(sent(boot_id, *seq, previous.as_deref(), *content, *start));
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
        let history = History::of(seed, [Losses::Never, Losses::Known][seed as usize % 2]);
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
        assert_eq!(arrivals.twins(), [], "{seed}: one sender");
        seen[usize::from(!lost.is_empty())] += 1;
    }
    assert!(seen.iter().all(|count| *count > 500), "{seen:?}");
}

#[test]
fn runs_with_the_same_numbers_are_told_apart_whatever_the_order() {
    for runs in [["a", "b", "c"], ["c", "b", "a"]] {
        let mut arrivals = Arrivals::new(ALL);
        for run in runs {
            arrivals.tombstone(run, 3, 4, "too_old");
        }
        let before = arrivals.gaps().into_iter().filter(|gap| gap.status == Status::BeforeFirst);
        let before: Vec<_> = before.map(|gap| (gap.boot_id, gap.first, gap.last)).collect();
        assert_eq!(before, [("a".to_owned(), 1, 2)], "{runs:?}");
    }
}

#[test]
fn no_report_is_called_missing_that_is_not_whatever_the_observer_forgot() {
    let mut claimed = 0;
    for seed in 0..6_000 {
        let history = History::of(seed, Losses::Any);
        let gaps = history.arrivals().gaps();
        for (run, number) in numbers(&gaps, Status::Unexplained) {
            assert!(history.lost.contains(&number), "{seed}: {run}/{number}: {gaps:?}");
            claimed += 1;
        }
    }
    assert!(claimed > 5_000, "{claimed}");
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
    let sent = |boot_id, seq, start| sent(boot_id, seq, None, Content::default(), start);
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
    let all = [
        ("a", 1, None, 100),
        ("a", 2, Some("7f/a/1"), 110),
        ("b", 3, Some("7f/a/2"), 5),
        ("c", 4, Some("7f/b/3"), 120),
    ];
    let mut arrivals = Arrivals::new(ALL);
    for (boot_id, seq, previous, start) in all {
        arrivals.report(sent(boot_id, seq, previous, Content::default(), start));
    }
    assert_eq!(arrivals.gaps(), []);
}

#[test]
fn a_number_of_two_different_reports_is_contested_and_copies_are_not() {
    let mut arrivals = Arrivals::new(FEW);
    let mut came = |seq, nth| arrivals.report(sent("a", seq, None, content(nth), seq));
    assert_eq!([came(1, 0), came(2, 0), came(1, 0)], [Arrival::New, Arrival::New, Arrival::Again]);
    assert_eq!([came(2, 1), came(2, 0), came(2, 1)], [Arrival::Other, Arrival::Again, Arrival::Other]);
    assert_eq!(arrivals.contested().collect::<Vec<_>>(), [("a", 2, 2)], "once");
}

#[test]
fn an_observer_takes_no_more_memory_than_its_limits() {
    let mut arrivals = Arrivals::new(FEW);
    for seq in 0..50_000_u64 {
        let boot_id = format!("{seq:06}");
        // Between any two windows there is a gap.
        arrivals.report(sent(&boot_id, 2 * seq, None, content(0), 20 * seq));
        arrivals.tombstone("a", 3 * seq, 3 * seq, "spool_full");
    }
    assert!(arrivals.runs() <= 2 * FEW.runs + SILENT_RUNS_MAX + 1, "{}", arrivals.runs());
    assert!(arrivals.pieces() <= 3 * FEW.pieces && arrivals.contents <= 2 * FEW.contents + 1);
    assert_eq!(arrivals.contents, arrivals.runs.iter().map(|run| run.contents.len()).sum::<usize>());
}

/// A machine with an identity, of which there may be several.
#[derive(Clone)]
struct Machine {
    boot_id: String,
    seq: u64,
    previous: Option<String>,
    /// The time by which its clock is ahead.
    ahead: u64,
}

/// The reports that came of a router, and of its clones if there may be any: as they came.
fn of_machines(seed: u64, may_be_cloned: bool) -> Vec<Came> {
    let mut chance = Chance(seed);
    let (mut runs, mut setbacks, mut came) = (0, 0, Vec::new());
    let loss = [0, 20, 70][chance.below(3) as usize];
    let mut run = || {
        runs += 1;
        format!("{:08x}", mix(seed ^ runs << 32) as u32)
    };
    let mut machines = vec![Machine { boot_id: run(), seq: 0, previous: None, ahead: 1_000 }];
    for window in 0..20 + chance.below(150) {
        for nth in 0..machines.len() {
            let machine = &mut machines[nth];
            if chance.is(4) {
                machine.boot_id = run();
                if chance.is(20) {
                    (machine.seq, machine.previous) = (0, None);
                }
                // A clock may be set back by a little, and ahead by any time.
                let back = chance.below(100).min(SAME_TIME_SECONDS_MAX - setbacks);
                setbacks += back;
                machine.ahead = machine.ahead - back + chance.below(3) * 40;
            }
            if may_be_cloned && chance.is(1) {
                let mut clone = Machine { boot_id: run(), ..machine.clone() };
                if chance.is(30) {
                    (clone.seq, clone.previous) = (0, None);
                }
                machines.push(clone);
            }
            let Machine { boot_id, seq, previous, ahead } = &mut machines[nth];
            *seq += 1;
            let id = format!("7f/{boot_id}/{seq}");
            let (previous, start) = (previous.replace(id), 10 * window + *ahead);
            let report = Came::Report { boot_id: boot_id.clone(), seq: *seq, previous, start, content: content(0) };
            let times = if chance.is(loss) { 0 } else { 1 + usize::from(chance.is(5)) };
            // Some of them come late.
            came.extend((0..times).map(|_| (window + chance.below(3) * chance.below(90), report.clone())));
        }
    }
    came.sort_by_key(|(at, _)| *at);
    came.into_iter().map(|(_, came)| came).collect()
}

/// The runs with twins and the signs of it, by all that came.
fn expected_twins(came: &[Came]) -> BTreeSet<(String, Sign)> {
    type Seen<'c> = (BTreeMap<u64, Option<&'c str>>, HashSet<u64>);
    let mut runs: BTreeMap<&str, Seen<'_>> = BTreeMap::new();
    for came in came {
        let Came::Report { boot_id, seq, previous, start, .. } = came else { continue };
        let run = runs.entry(boot_id).or_default();
        run.0.insert(*seq, previous.as_deref());
        run.1.extend(*start..*start + 10);
    }
    let names = |run: &str| -> Option<(String, u64)> {
        let first = runs[run].0.values().next().copied().flatten()?;
        let (before, seq) = first.strip_prefix("7f/")?.split_once('/')?;
        (before != run).then(|| (before.to_owned(), seq.parse().unwrap()))
    };
    let follows = |run: &str, other: &str| {
        let mut at = run.to_owned();
        while let Some((before, _)) = names(&at).filter(|(before, _)| runs.contains_key(&**before)) {
            at = before;
            if at == other {
                return true;
            }
        }
        false
    };
    let latest = |run: &str| runs[run].0.keys().max().copied();
    let [began, ended] =
        [|times: &HashSet<u64>| times.iter().min().copied(), |times: &HashSet<u64>| times.iter().max().copied()];
    let mut twins = BTreeSet::new();
    for (run, (_, times)) in &runs {
        let others = || runs.keys().filter(|other| *other != run);
        let named = names(run);
        if named.as_ref().is_some_and(|(before, seq)| runs.contains_key(&**before) && latest(before) > Some(*seq)) {
            twins.insert(((*run).to_owned(), Sign::OtherWentOn));
        } else if named.is_some()
            && others().any(|other| {
                let is_before = (ended(&runs[other].1), *other) < (ended(times), *run);
                names(other) == named && is_before
            })
        {
            twins.insert(((*run).to_owned(), Sign::SamePrevious));
        } else if others().any(|other| {
            let of_other = &runs[other].1;
            let is_earlier = (began(of_other), *other) < (began(times), *run);
            let common = times.intersection(of_other).count() as u64;
            is_earlier && common > SAME_TIME_SECONDS_MAX && !follows(run, other) && !follows(other, run)
        }) {
            twins.insert(((*run).to_owned(), Sign::SameTime));
        }
    }
    twins
}

#[test]
fn two_senders_of_one_identity_are_found_and_one_sender_never_is() {
    let mut signs: BTreeMap<Sign, u32> = BTreeMap::new();
    for seed in 0..2_000 {
        let came = of_machines(seed, seed % 2 == 1);
        let mut arrivals = Arrivals::new(ALL);
        for came in &came {
            add(&mut arrivals, came);
        }
        let twins = arrivals.twins();
        let found: BTreeSet<(String, Sign)> = twins.iter().map(|twin| (twin.boot_id.clone(), twin.sign)).collect();
        assert!(seed % 2 == 1 || found.is_empty(), "{seed}: one sender: {twins:?}");
        // Of more than eight runs at the same time, not all pairs are compared.
        let expected = expected_twins(&came);
        assert!(
            found.is_subset(&expected) && found.is_empty() == expected.is_empty(),
            "{seed}: {expected:?} {twins:?}"
        );
        assert_eq!(arrivals.missing().cloned, twins.len() as u64);
        for twin in twins.iter() {
            *signs.entry(twin.sign).or_default() += 1;
        }
    }
    assert!(signs.len() == 3 && signs.values().all(|count| *count > 20), "{signs:?}");
}

#[test]
fn a_clone_is_found_by_what_the_first_reports_name() {
    let twins = |all: &[(&str, u64, Option<&str>, u64)]| {
        let mut arrivals = Arrivals::new(ALL);
        for (boot_id, seq, previous, start) in all {
            arrivals.report(sent(boot_id, *seq, *previous, content(0), *start));
        }
        arrivals.twins().into_iter().map(|twin| (twin.boot_id, twin.other, twin.sign)).collect::<Vec<_>>()
    };
    let is = |run: &str, other: &str, sign| vec![(run.to_owned(), other.to_owned(), sign)];
    let original = [("a", 1, None, 0), ("a", 2, Some("7f/a/1"), 10), ("a", 4, Some("7f/a/3"), 30)];
    let of_clone = |boot_id, previous, start| [&original[..], &[(boot_id, 3, Some(previous), start)]].concat();
    assert_eq!(twins(&of_clone("b", "7f/a/2", 5_000)), is("b", "a", Sign::OtherWentOn));
    assert_eq!(twins(&of_clone("b", "7f/a/4", 5)), [], "an honest restart, and a clock that was set back");
    assert_eq!(twins(&of_clone("b", "7f/x/2", 5)), [], "nothing came of the run before");
    let both = [("b", 3, Some("7f/a/2"), 40), ("c", 3, Some("7f/a/2"), 900)];
    assert_eq!(twins(&both), is("c", "b", Sign::SamePrevious));
    let mut arrivals = Arrivals::new(ALL);
    for (boot_id, seq, previous, start) in [original[0], both[0], both[1]] {
        arrivals.report(sent(boot_id, seq, previous, content(0), start));
    }
    assert_eq!(numbers(&arrivals.gaps(), Status::Unexplained), [("a", 2)], "it is missing once");
}

#[test]
fn twins_stay_known_when_their_reports_are_forgotten() {
    let mut arrivals = Arrivals::new(FEW);
    for seq in 1..=50 {
        for boot_id in ["a", "b"] {
            arrivals.report(sent(boot_id, seq, None, content(0), 20 * seq));
        }
    }
    assert_eq!(arrivals.missing().cloned, 1);
    arrivals.settle(10, 10);
    assert!(arrivals.runs.iter().map(|run| run.times.len()).sum::<usize>() <= 10);
    assert_eq!(arrivals.missing().cloned, 1, "their times are no longer known");
    for nth in 0..3 * FEW.runs as u64 {
        arrivals.report(sent(&format!("run-{nth:04}"), 100 + nth, None, content(0), 2_000 + 10 * nth));
    }
    arrivals.settle(1_000, 10);
    assert_eq!((arrivals.missing().cloned, arrivals.twins().len()), (1, 0), "the runs are no longer known");
}
