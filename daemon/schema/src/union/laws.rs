//! Laws of unions, judged against an exact oracle: random windows with lost and uncertain packets, views that change
//! their question, and clocks that are set back.

use std::{net::IpAddr, sync::LazyLock};

use serde_json::Value;

use super::*;
use crate::{
    Estimate, KeySteps, Length, PastWindow, Row, Sums, TopSource, Uncertain,
    series::{Series, point::Point},
};

const KEYS: usize = 10;
const QUESTIONS: [&str; 2] = ["00000000000000aa", "00000000000000bb"];

static GOLDEN: LazyLock<Report> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../tests/golden/report.json")).unwrap());

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The true packets of a window, by source.
#[derive(Clone)]
struct Truth {
    start: i64,
    end: i64,
    sources: [Tally; KEYS],
    /// Which question the view asks: it matches the sources with even numbers, or the others.
    question: usize,
}

impl Truth {
    fn matched(&self, key: usize) -> bool {
        key % 2 == self.question
    }

    fn total(&self) -> Tally {
        let mut total = Tally::default();
        for of in &self.sources {
            add(&mut total, *of);
        }
        total
    }
}

fn address(key: usize) -> IpAddr {
    IpAddr::from([192, 0, 2, key as u8])
}

fn less(of: Tally, part: Tally) -> Tally {
    Tally { packets: of.packets - part.packets, bytes: of.bytes - part.bytes }
}

/// A part of this, chosen at random.
fn part(of: Tally, random: &mut Random) -> Tally {
    Tally { packets: random.below(of.packets + 1), bytes: random.below(of.bytes + 1) }
}

/// A report of a window: bounds by key.
struct Measured {
    sources: [Tally; KEYS],
    /// Packets that were seen and have no key.
    lost: Tally,
    /// How many more packets there may be that were not seen.
    beyond: Tally,
    /// How many packets there are at most.
    most: Tally,
}

impl Measured {
    /// Loses some packets of this window. Returns how many were seen, too.
    fn of(truth: &Truth, random: &mut Random) -> (Tally, Self) {
        let mut sources = truth.sources;
        let (mut lost, mut hidden) = (Tally::default(), Tally::default());
        for of in &mut sources {
            for missing in [&mut lost, &mut hidden] {
                if random.below(4) == 0 {
                    let share = part(*of, random);
                    *of = less(*of, share);
                    add(missing, share);
                }
            }
        }
        let slack = Tally { packets: random.below(5), bytes: random.below(900) };
        let mut beyond = hidden;
        if hidden != Tally::default() {
            add(&mut beyond, slack);
        }
        let totals = less(truth.total(), hidden);
        let mut most = totals;
        add(&mut most, beyond);
        (totals, Self { sources, lost, beyond, most })
    }

    fn bounds(&self, key: usize) -> Sums {
        self.total(&[key])
    }

    /// The sum of these keys.
    fn total(&self, keys: &[usize]) -> Sums {
        let mut sum = Tally::default();
        for key in keys {
            add(&mut sum, self.sources[*key]);
        }
        let up = |of: fn(&Tally) -> u64| {
            let upper = (of(&sum) + of(&self.lost) + of(&self.beyond)).min(of(&self.most));
            Estimate { value: of(&sum), lower: of(&sum), upper, sampled: None }
        };
        Sums { packets: up(|of| of.packets), bytes: up(|of| of.bytes) }
    }

    /// The rows of a list, and the most that another key has.
    fn list(&self, keys: &[usize], by_packets: bool, random: &mut Random) -> (Vec<usize>, Option<u64>) {
        let order = |key: &usize| if by_packets { self.bounds(*key).packets } else { self.bounds(*key).bytes };
        let mut keys = keys.to_vec();
        keys.sort_by_key(|key| std::cmp::Reverse(order(key).value));
        keys.retain(|key| order(key).value > 0);
        let others = keys.split_off(keys.len().min(random.below(6) as usize));
        let Self { lost, beyond, .. } = self;
        let missing = if by_packets { lost.packets + beyond.packets } else { lost.bytes + beyond.bytes };
        let most = others.iter().map(|key| order(key).upper).max().unwrap_or(0).max(missing);
        (keys, Some(most).filter(|_| random.below(3) > 0))
    }
}

/// A window and its report. Some packets are lost, and some are neither in the rows nor in the totals: they may be, as
/// `uncertain` says.
fn window(nth: u64, start: i64, question: usize, random: &mut Random) -> (Truth, Report) {
    let source = |random: &mut Random| {
        let packets = random.below(3) * random.below(60);
        Tally { packets, bytes: packets * (40 + random.below(1460)) }
    };
    let truth = Truth { start, end: start + 10, sources: std::array::from_fn(|_| source(random)), question };
    let (totals, measured) = Measured::of(&truth, random);
    let Measured { lost, beyond, .. } = measured;
    let mut report = GOLDEN.clone();
    let at = |second: i64| Timestamp::from_second(1_764_144_000 + second).unwrap();
    report.id = format!("7f3c9a52/b41d/{nth}");
    (report.window.start, report.window.end, report.window.seconds) =
        (at(truth.start), at(truth.end), Length::new(10.0));
    (report.addresses, report.alerts, report.totals.bounds) = (None, Vec::new(), None);
    (report.totals.packets, report.totals.bytes) = (totals.packets, totals.bytes);
    report.interfaces.truncate(1);
    let least = Tally { packets: random.below(100), bytes: random.below(9_000) };
    let ledger = &mut report.interfaces[0].ledger;
    (ledger.seen, ledger.lost, ledger.sampled_out) =
        (totals, [("ring_full".to_owned(), lost)].into(), Tally::default());
    ledger.uncertain = (beyond != Tally::default()).then(|| Uncertain {
        packets: Bounds { lower: least.packets, upper: least.packets + beyond.packets },
        bytes: Bounds { lower: least.bytes, upper: least.bytes + beyond.bytes },
    });
    let all: Vec<usize> = (0..KEYS).collect();
    for (top, by_packets) in [(&mut report.top, false), (&mut report.top_by_packets, true)] {
        let (keys, unlisted) = measured.list(&all, by_packets, random);
        let row = |(rank, key): (u32, &usize)| {
            let Sums { packets, bytes } = measured.bounds(*key);
            TopSource { rank, src_ip: address(*key), packets, bytes }
        };
        let sources = (1..).zip(&keys).map(row).collect();
        let by = if by_packets { "packets" } else { "bytes" }.to_owned();
        *top = Top { by, confidence: 1.0, sampling: 1, sources, ..Top::default() };
        top.unlisted.sources = unlisted;
    }
    let distinct = truth.sources.iter().filter(|of| of.packets > 0).count() as u64;
    let (below, above) = (random.below(3), random.below(3));
    report.unique.src_ip =
        Distinct { value: distinct, lower: distinct.saturating_sub(below), upper: distinct + above, confidence: 1.0 };
    let matched: Vec<usize> = all.into_iter().filter(|key| truth.matched(*key)).collect();
    let (keys, unlisted) = measured.list(&matched, true, random);
    let row = |(rank, key): (u32, &usize)| Row {
        rank: Some(rank),
        key: [("src_ip".to_owned(), Value::from(address(*key).to_string()))].into_iter().collect(),
        packets: Some(measured.bounds(*key).packets),
        bytes: Some(measured.bounds(*key).bytes),
        ..Row::default()
    };
    report.views = vec![View {
        name: "w".to_owned(),
        question: Some(QUESTIONS[question].to_owned()),
        by: vec!["src_ip".to_owned()],
        measure: Value::from("packets"),
        counted: "once".to_owned(),
        confidence: 1.0,
        total: Some(measured.total(&matched)),
        entropy: None,
        rows: Some((1..).zip(&keys).map(row).collect()),
        unlisted,
        tables: None,
    }];
    (truth, report)
}

/// Makes some windows that follow each other.
fn windows(random: &mut Random) -> Vec<(Truth, Report)> {
    let (mut start, mut question, count) = (1_000, random.below(2) as usize, 1 + random.below(7));
    let mut next = |nth: u64| {
        if random.below(6) == 0 {
            question = 1 - question;
        }
        let window = window(nth, start, question, random);
        start += 10;
        match random.below(8) {
            // The clock is set back.
            0 => start -= random.below(90) as i64,
            1 => start += random.below(90) as i64,
            _ => {}
        }
        window
    };
    (0..count).map(&mut next).collect()
}

fn within(estimate: Estimate, truth: u64, what: &str) {
    let Estimate { value, lower, upper, .. } = estimate;
    assert!(lower <= truth && truth <= upper && lower <= value && value <= upper, "{what}: {truth} in {estimate:?}");
}

/// The sums of the windows that count, by key.
fn sums(windows: &[(Truth, Report)], counts: impl Fn(&Truth, usize) -> bool) -> [Tally; KEYS] {
    let mut sums = [Tally::default(); KEYS];
    for (key, sum) in sums.iter_mut().enumerate() {
        for (truth, _) in windows.iter().filter(|(truth, _)| counts(truth, key)) {
            add(sum, truth.sources[key]);
        }
    }
    sums
}

fn judge(windows: &[(Truth, Report)], union: &Union) {
    let truth = sums(windows, |_, _| true);
    let mut total = Tally::default();
    for of in truth.iter() {
        add(&mut total, *of);
    }
    let most = union.most();
    assert!(union.totals.packets <= total.packets && total.packets <= most.packets, "{total:?}, {most:?}");
    assert!(union.totals.bytes <= total.bytes && total.bytes <= most.bytes, "{total:?}, {most:?}");
    let times = || windows.iter().map(|(truth, _)| truth);
    let second = |time: Timestamp| time.as_second() - 1_764_144_000;
    assert_eq!(Some(second(union.window.start)), times().map(|of| of.start).min());
    assert_eq!(Some(second(union.window.end)), times().map(|of| of.end).max());
    let key_of = |ip: IpAddr| (0..KEYS).find(|key| address(*key) == ip).unwrap();
    for top in [&union.top, &union.top_by_packets] {
        for row in &top.sources {
            within(row.packets, truth[key_of(row.src_ip)].packets, "packets of a row");
            within(row.bytes, truth[key_of(row.src_ip)].bytes, "bytes of a row");
        }
        for key in (0..KEYS).filter(|key| top.sources.iter().all(|row| row.src_ip != address(*key))) {
            let of = if top.by == "packets" { truth[key].packets } else { truth[key].bytes };
            assert!(top.unlisted.sources.is_none_or(|most| of <= most), "{of} of {:?}", top.unlisted);
        }
    }
    let distinct = truth.iter().filter(|of| of.packets > 0).count() as u64;
    let Distinct { value, lower, upper, .. } = union.unique.src_ip;
    assert!(
        lower <= distinct && distinct <= upper && lower <= value && value <= upper,
        "{distinct}: {lower} to {upper}"
    );
    let certain = [&union.top, &union.top_by_packets]
        .map(|top| top.sources.iter().filter(|row| row.packets.lower > 0).count() as u64);
    assert!(certain.iter().all(|rows| *rows <= lower || windows.len() == 1), "{certain:?} rows, {lower}");
    let is_same = times().all(|of| of.question == windows[0].0.question);
    assert_eq!(union.views.len(), usize::from(is_same), "{:?}", union.left_out);
    let names = if is_same { vec![] } else { vec!["w".to_owned()] };
    assert_eq!((&union.left_out, &union.changed), (&names, &names));
    let matched = sums(windows, Truth::matched);
    for (key, truth) in matched.iter().enumerate().filter(|_| is_same) {
        let key = address(key).to_string();
        let row = union.views[0].rows.iter().flatten().find(|row| row.key["src_ip"] == key.as_str());
        match row {
            Some(row) => {
                within(row.packets.unwrap(), truth.packets, "packets of a view");
                within(row.bytes.unwrap(), truth.bytes, "bytes of a view");
            }
            None => assert!(union.views[0].unlisted.is_none_or(|most| truth.packets <= most), "{truth:?}"),
        }
    }
    for (key, truth) in truth.iter().enumerate() {
        let asked = ListKey::parse(&format!("src_ip={}", address(key)), None).unwrap();
        let KeyAnswer::Asked(sums, _) = union.of_key(&asked) else { panic!() };
        assert!(truth.packets <= sums.at_most.packets && truth.bytes <= sums.at_most.bytes, "{truth:?} {sums:?}");
    }
}

/// The steps of a key hold the truth of their windows: all windows, or those that answer the last question.
fn judge_steps(windows: &[(Truth, Report)], view: Option<&str>, key: usize) {
    let list_key = ListKey::parse(&format!("src_ip={}", address(key)), view).unwrap();
    let times = (Timestamp::from_second(1_764_144_000).unwrap(), Timestamp::from_second(1_764_147_600).unwrap());
    let mut steps = KeySteps::new("", view, times, 36);
    for (_, report) in windows {
        steps.add(&PastWindow::of(report), &Union::one(report), &list_key);
    }
    let history = steps.finish();
    let last = windows.last().unwrap().0.question;
    let counts: Vec<&Truth> =
        windows.iter().map(|(truth, _)| truth).filter(|of| view.is_none() || of.question == last).collect();
    let known: u64 = history.windows.iter().map(|of| of.windows).sum();
    assert_eq!((known, history.left_out), (counts.len() as u64, (windows.len() - counts.len()) as u64));
    let truth = |of: fn(&Tally) -> u64| -> u64 {
        let matched = counts.iter().filter(|truth| view.is_none() || truth.matched(key));
        matched.map(|truth| of(&truth.sources[key])).sum()
    };
    let all = history.windows.iter().copied().reduce(|mut sum, next| {
        sum.add(&next);
        sum
    });
    let all = all.unwrap();
    assert!(truth(|of| of.packets) <= all.at_most.packets && truth(|of| of.bytes) <= all.at_most.bytes, "{all:?}");
    for (estimate, truth) in [(all.packets, truth(|of| of.packets)), (all.bytes, truth(|of| of.bytes))] {
        if let Some(estimate) = estimate {
            within(estimate, truth, "a key over time");
        }
    }
}

#[test]
fn every_number_of_a_union_holds_the_truth() {
    let mut random = Random(11);
    for _ in 0..600 {
        let windows = windows(&mut random);
        let reports: Vec<Report> = windows.iter().map(|(_, report)| report.clone()).collect();
        let union = Union::of(&reports).unwrap();
        judge(&windows, &union);
        // Joined in two steps, and with fewer rows in between.
        let (first, rest) = reports.split_at(random.below(reports.len() as u64) as usize);
        let mut parts: Vec<Union> = [first, rest].into_iter().filter_map(Union::of).collect();
        for part in &mut parts {
            part.trim(random.below(5) as usize, 4);
        }
        let joined = Union::join(&parts).unwrap();
        if !first.is_empty() {
            judge(&windows, &joined);
        }
        let key = random.below(KEYS as u64) as usize;
        judge_steps(&windows, None, key);
        judge_steps(&windows, Some("w"), key);
    }
}

/// Rules judge by these totals, so the bounds must hold for the true packets.
#[test]
fn totals_of_a_report_hold_the_truth_for_rules() {
    let mut random = Random(12);
    for nth in 0..300 {
        let (truth, report) = window(nth, 0, 0, &mut random);
        for (name, total) in [("packets", truth.total().packets), ("bytes", truth.total().bytes)] {
            let Point { reading, .. } = Series::named(name).unwrap().points(&report).next().unwrap();
            let exact = [reading.value; 2];
            let [lower, upper] = reading.bounds.unwrap_or(exact).map(f64::from);
            assert!(lower <= total as f64 && total as f64 <= upper, "{name}: {total} in {lower} to {upper}");
        }
    }
}
