//! The newest windows of a fleet, in fixed memory: what the live screen shows.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use weir_schema::{Estimate, Fact, InterfaceSecond, Length, Row, Tally, Verdict, late_after, sketches::KeySums};
use weir_system::numbers::{self, count, grouped, percent};
use weir_top::{Fleet, KeyDetails, Line as Rates, Rate, SECONDS_MAX};

use crate::{
    answer::{Defect, What, WindowAnswer},
    arrivals::Labels,
    cli,
    group::KeyAnswer,
    line::{Parsed, Report, Sender},
    lists::{Lists, estimate},
    merger::{By, Merger, Settings},
};

/// A caveat that is shown with the numbers.
const NOTE: &str = "a packet that passed two routers counts at both: in rates, totals and lists";
/// How many windows are kept: a report may come so much later than those of the newest one.
pub const KEPT: usize = 5;
/// The most routers that are shown.
const ROUTERS_MAX: usize = 4_096;
/// The longest of so many last reports decides if a router is late: the first and the last of a run are short.
const LATE_OF_LAST: usize = 5;
/// A router whose clock is wrong by more than this has no report in the windows of the others.
const AHEAD: SignedDuration = SignedDuration::from_secs(60);

/// The newest windows of all routers.
pub struct Board {
    merger: Merger,
    window: Duration,
    /// All routers, by their identity.
    routers: BTreeMap<String, Router>,
    /// The longest report, and the router that sent it.
    longest: (Duration, String),
}

/// The reports of a router.
#[derive(Default)]
struct Router {
    name: String,
    site: Option<String>,
    reports: u64,
    /// The last reports, by the start of their windows.
    recent: VecDeque<Recent>,
    /// The packets that it saw in each window.
    sums: BTreeMap<i128, Tally>,
    /// The start of a window that has not begun yet.
    ahead: Option<Timestamp>,
}

/// A report, in short.
#[derive(Clone, Copy)]
struct Recent {
    start: Timestamp,
    end: Timestamp,
    seen: Tally,
}

/// The window that is shown, and the time at which it is judged.
struct Shown {
    nth: i128,
    answer: WindowAnswer,
    is_open: bool,
}

impl Board {
    /// Makes an empty board whose lists have `top` rows.
    pub fn new(window: Duration, top: usize) -> Self {
        let merger = Merger::new(Settings { window: Some(window), by: By::All, top });
        Self { merger, window, routers: BTreeMap::new(), longest: Default::default() }
    }

    /// Adds a line that was read at this time.
    pub fn add(&mut self, line: Parsed, now: Timestamp) {
        let sender = match &line {
            Parsed::Report(report) => Some(&report.sender),
            Parsed::Tombstone(tombstone) => Some(&tombstone.sender),
            Parsed::Unreadable(_) => None,
        };
        if let Some(Sender { id, name, .. }) = sender.filter(|sender| !self.has_room(&sender.id)) {
            let why = format!("there are more than {} routers: {name} ({id}) is left out", grouped(ROUTERS_MAX as u64));
            return self.merger.note_unreadable(why);
        }
        match line {
            Parsed::Report(report) => self.report(report, now),
            line => {
                if let Parsed::Tombstone(tombstone) = &line {
                    self.routers.entry(tombstone.sender.id.clone()).or_default();
                }
                // Only reports begin windows.
                _ = self.merger.add(line);
            }
        }
        self.merger.keep(KEPT);
    }

    fn has_room(&self, id: &str) -> bool {
        self.routers.len() < ROUTERS_MAX || self.routers.contains_key(id)
    }

    fn report(&mut self, report: Box<Report>, now: Timestamp) {
        let router = self.routers.entry(report.sender.id.clone()).or_default();
        if report.start.duration_since(now) > AHEAD {
            (router.name, router.ahead) = (report.sender.name.clone(), Some(report.start));
            return;
        }
        let longest = report.longest();
        if longest > self.longest.0 {
            self.longest = (longest, report.sender.name.clone());
        }
        let site = report.sender.site.clone();
        let recent = Recent { start: report.start, end: report.end, seen: report.seen.into() };
        let before = self.merger.reports();
        // There are never more windows than are kept, and one.
        _ = self.merger.add(Parsed::Report(report));
        if self.merger.reports() > before {
            (router.site, router.ahead) = (site, None);
            router.add(self.merger.window_of(recent.start.as_nanosecond()), recent);
        }
    }

    /// How many reports were merged.
    pub const fn reports(&self) -> u64 {
        self.merger.reports()
    }

    /// The newest window that is complete, at this time. `troubles` are those of the inputs.
    pub fn shown(&self, now: Timestamp, troubles: Vec<String>) -> Fleet {
        let judged = self.judged(now);
        let (labels, defects) = (self.merger.labels(), self.merger.defects());
        let shown = self.newest(judged);
        let nth = shown.as_ref().map(|shown| shown.nth);
        let sent = self.routers.iter().filter(|(_, router)| router.reports > 0 || router.ahead.is_some());
        let line = |(id, router): (&String, &Router)| {
            let name = if router.reports > 0 { labels.of(id) } else { router.name.clone() };
            router.line(name, judged, nth)
        };
        let mut routers: Vec<Rates> = sent.clone().map(line).collect();
        routers.sort_by(|one, other| one.last.name.cmp(&other.last.name));
        let mut fleet = Fleet { routers, note: NOTE.to_owned(), ..Fleet::default() };
        fleet.troubles = troubles.into_iter().chain(self.troubles(now, judged, shown.as_ref())).collect();
        let Some(Shown { nth, answer, is_open }) = shown else { return fleet };
        fleet.window = Some((answer.start, answer.end));
        fleet.is_open = is_open && judged == now;
        fleet.facts = facts(&answer, sent.count(), &defects);
        fleet.distinct = distinct(&answer);
        let lists = Lists { answer: &answer, routers: self.sums(nth, &labels), defects: &defects };
        [fleet.by_bytes, fleet.by_packets] = lists.in_both_orders();
        fleet
    }

    /// The time at which routers are judged: now, or the end of the newest report if all routers are late, because then
    /// no router is later than the others.
    fn judged(&self, now: Timestamp) -> Timestamp {
        let is_silent = self.routers.values().all(|router| router.is_late(now));
        self.routers.values().filter_map(Router::end).max().filter(|_| is_silent).unwrap_or(now)
    }

    /// Returns the newest window for which all routers that are not late have sent everything, or the newest of all.
    fn newest(&self, judged: Timestamp) -> Option<Shown> {
        let on_time = self.routers.values().filter(|router| !router.is_late(judged));
        let until = on_time.filter_map(Router::end).min();
        let is_whole = |nth: &i128| {
            let end = (nth + 1).saturating_mul(self.window.as_nanos() as i128);
            until.is_none_or(|until| end <= until.as_nanosecond())
        };
        let newest = self.merger.windows().last()?;
        let whole = self.merger.windows().filter(is_whole).last();
        let nth = whole.unwrap_or(newest);
        let answer = self.merger.answers(|of| of == nth).pop()?;
        Some(Shown { nth, answer, is_open: whole.is_none() })
    }

    /// Returns the packets that each router saw in a window, by the name of the router.
    fn sums(&self, nth: i128, labels: &Labels) -> Vec<(String, Tally)> {
        let sums = self.routers.iter().filter_map(|(id, router)| Some((labels.of(id), *router.sums.get(&nth)?)));
        sums.collect()
    }

    fn troubles(&self, now: Timestamp, judged: Timestamp, shown: Option<&Shown>) -> Vec<String> {
        let mut all = Vec::new();
        if self.routers.values().all(|router| router.reports == 0) {
            all.push("no report has come yet".to_owned());
        }
        if judged < now {
            all.push(format!("no report has come for {}", since(judged, now)));
        }
        let (longest, router) = &self.longest;
        if *longest > self.window {
            let needed = cli::window_of_at_least(longest.as_secs_f64().ceil() as u64).as_secs();
            let needed = cli::shown(needed);
            all.push(format!("reports of {router} are longer than a window: choose --window {needed} or longer"));
        }
        if shown.is_some_and(|Shown { answer, .. }| answer.lists.is_empty() && answer.distinct.is_empty()) {
            all.push("no report of this window has sketches: `export` in weir.yaml adds them".to_owned());
        }
        all
    }

    /// The bounds of a key in all lists of the window that is shown, listed there or not; or the facts about the router
    /// of that name.
    pub fn ask(&self, key: String, now: Timestamp) -> KeyDetails {
        let judged = self.judged(now);
        let shown = self.newest(judged);
        let of_router = || {
            let (labels, name) = (self.merger.labels(), key.strip_prefix('=')?);
            let (_, router) = self.routers.iter().find(|(id, _)| labels.of(id) == name)?;
            Some(router.in_words(now))
        };
        let Some(Shown { nth, answer, .. }) = shown else {
            return KeyDetails { key, rows: Err("no report has come yet".to_owned()), seconds: Length::default() };
        };
        let rows: Vec<Row> = self.merger.ask(nth, &key).into_iter().map(row).collect();
        let rows = match of_router() {
            _ if !rows.is_empty() => Ok(rows),
            Some(words) => Err(words),
            None => Err("no list of the fleet has such keys".to_owned()),
        };
        KeyDetails { key, rows, seconds: seconds(&answer) }
    }
}

/// The length of a window.
fn seconds(answer: &WindowAnswer) -> Length {
    Length::new(answer.end.duration_since(answer.start).as_secs_f64())
}

/// Turns the numbers of a key in a list into a row.
fn row(KeyAnswer { list, by, sums }: KeyAnswer) -> Row {
    let values = sums.key.split(' ').map(|value| value.into());
    let KeySums { lower, upper, .. } = &sums;
    Row {
        view: Some(list),
        key: by.into_iter().zip(values).collect(),
        packets: Some(estimate(lower.packets, lower.packets, upper.packets)),
        bytes: Some(estimate(lower.bytes, lower.bytes, upper.bytes)),
        ..Row::default()
    }
}

/// Says for how long no report has come.
fn since(time: Timestamp, now: Timestamp) -> String {
    numbers::time(now.duration_since(time))
}

/// The distinct counts of the fleet's key, the usual ones first.
fn distinct(answer: &WindowAnswer) -> Vec<(String, Estimate)> {
    const FIRST: [&str; 3] = ["unique.src_ip", "unique.dst_ip", "unique.flows"];
    let ours = answer.distinct.iter().filter(|count| count.is_fleet && count.is_usual);
    let mut ours: Vec<_> =
        ours.map(|count| (count.name.clone(), estimate(count.value, count.lower, count.upper))).collect();
    ours.sort_by_key(|(name, _)| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
    ours
}

/// Judges how reliable the numbers of a window are, and lists the defects of the reports that were read.
fn facts(answer: &WindowAnswer, known: usize, defects: &[Defect]) -> Vec<Fact> {
    let WindowAnswer { routers, reports, totals, sampled_out, trust, lists, .. } = answer;
    let fact = |text: String, is_good| Fact::judged(text, is_good);
    let share = |part: u64| part as f64 / totals.packets.max(1) as f64;
    let mut all = vec![
        fact(format!("routers {routers}/{known}"), *routers == known),
        Fact::new(format!("reports {}", grouped(*reports)), Verdict::Neutral),
    ];
    all.extend(trust.iter().cloned());
    if sampled_out.packets > 0 {
        all.push(fact(format!("sampled out {}", percent(share(sampled_out.packets))), false));
    }
    let least = lists.iter().map(|list| list.routers).min().filter(|least| least < routers);
    all.extend(least.map(|least| fact(format!("lists of {least}/{routers}"), false)));
    let mut of_kinds: BTreeMap<What, u64> = BTreeMap::new();
    for defect in defects {
        *of_kinds.entry(defect.what).or_default() += defect.reports;
    }
    all.extend(of_kinds.into_iter().map(|(what, reports)| fact(format!("{} {}", what.name(), count(reports)), false)));
    all
}

impl Router {
    /// Adds a report of the window with this number.
    fn add(&mut self, nth: i128, report: Recent) {
        self.reports += 1;
        let place = self.recent.partition_point(|other| other.start <= report.start);
        self.recent.insert(place, report);
        if self.recent.len() > SECONDS_MAX {
            self.recent.pop_front();
        }
        let sum = self.sums.entry(nth).or_default();
        sum.packets = sum.packets.saturating_add(report.seen.packets);
        sum.bytes = sum.bytes.saturating_add(report.seen.bytes);
        if self.sums.len() > KEPT {
            self.sums.pop_first();
        }
    }

    /// The end of its last report.
    fn end(&self) -> Option<Timestamp> {
        self.recent.back().map(|last| last.end)
    }

    /// How long after the end of its last report it is late.
    fn late_after(&self) -> SignedDuration {
        let lengths = self.recent.iter().rev().take(LATE_OF_LAST).map(Recent::length);
        SignedDuration::from_secs_f64(late_after(lengths.max().unwrap_or_default().as_secs_f64()))
    }

    fn is_late(&self, judged: Timestamp) -> bool {
        self.end().is_none_or(|end| judged.duration_since(end) > self.late_after())
    }

    /// Returns the router's line: the rates of its last reports, and why there is none in the window that is shown.
    fn line(&self, name: String, judged: Timestamp, shown: Option<i128>) -> Rates {
        let trouble = match (self.ahead, self.end()) {
            (Some(ahead), _) => Some(format!("its clock is wrong: it reports {ahead:.0}, which is left out")),
            (None, Some(end)) if self.is_late(judged) => Some(format!("late: no report for {}", since(end, judged))),
            (None, _) if shown.is_some_and(|nth| !self.sums.contains_key(&nth)) => {
                Some("no report in this window".to_owned())
            }
            (None, _) => None,
        };
        let last = InterfaceSecond {
            name,
            direction: self.site.clone(),
            mode: "others".to_owned(),
            counted: None,
            total: None,
            lost: None,
            trouble,
        };
        Rates { last, rates: self.rates(judged) }
    }

    /// The rate of each of its last reports, and `None` for each one that did not come.
    fn rates(&self, judged: Timestamp) -> VecDeque<Option<Rate>> {
        let mut rates = VecDeque::new();
        let next = self.recent.iter().skip(1).map(|next| Some(next.start));
        for (report, next) in self.recent.iter().zip(next.chain([None])) {
            let length = report.length();
            rates.push_back(Rate::of(report.seen, Length::new(length.as_secs_f64())));
            let until = next.unwrap_or(if self.is_late(judged) { judged } else { report.end });
            let missing = until.duration_since(report.end).as_secs_f64() / length.as_secs_f64().max(f64::MIN_POSITIVE);
            rates.extend((0..(missing.round() as usize).min(SECONDS_MAX)).map(|_| None));
            rates.drain(..rates.len().saturating_sub(SECONDS_MAX));
        }
        rates
    }

    /// Describes the state of the router in words.
    fn in_words(&self, now: Timestamp) -> String {
        let site = self.site.as_ref().map_or_else(String::new, |site| format!(" at {site}"));
        let last = self.recent.back().map_or_else(String::new, |last| {
            format!(", the last one until {:.0}, {} ago", last.end, since(last.end, now))
        });
        let reports = if self.reports == 1 { "report" } else { "reports" };
        format!("{} {reports}{site}{last}", grouped(self.reports))
    }
}

impl Recent {
    fn length(&self) -> SignedDuration {
        self.end.duration_since(self.start)
    }
}

#[cfg(test)]
mod tests {
    use weir_common::ledger;
    use weir_schema::Account;
    use weir_top::{By, List};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_040 + second).unwrap()
    }

    /// A report of ten seconds from this second on, with 100 packets.
    fn report(router: &str, second: i64) -> Parsed {
        Parsed::Report(Box::new(Report {
            content: Default::default(),
            sender: Sender {
                id: format!("id of {router}"),
                boot_id: "b".to_owned(),
                seq: (second / 10) as u64,
                name: router.to_owned(),
                site: Some("fra".to_owned()),
            },
            previous: None,
            start: at(second),
            end: at(second + 10),
            seen: ledger::Tally::new(100, 12_500),
            account: Account::default(),
            sketches: None,
        }))
    }

    fn board() -> Board {
        Board::new(Duration::from_secs(60), 20)
    }

    /// Adds the reports of these routers from one second to another.
    fn add(board: &mut Board, routers: &[&str], seconds: std::ops::Range<i64>) {
        for second in seconds.step_by(10) {
            for router in routers {
                board.add(report(router, second), at(second + 10));
            }
        }
    }

    fn shown(board: &Board, second: i64) -> Fleet {
        board.shown(at(second), Vec::new())
    }

    fn window(fleet: &Fleet) -> Option<[i64; 2]> {
        fleet.window.map(|(start, end)| [start, end].map(|time| time.as_second() - at(0).as_second()))
    }

    fn trouble<'f>(fleet: &'f Fleet, router: &str) -> Option<&'f str> {
        fleet.routers.iter().find(|line| line.last.name == router).unwrap().last.trouble.as_deref()
    }

    fn list<'f>(fleet: &'f Fleet, name: &str) -> &'f List {
        fleet.lists(By::Bytes).iter().find(|list| list.name == name).unwrap()
    }

    #[test]
    fn the_newest_window_is_shown_once_all_routers_have_sent_it() {
        let mut board = board();
        assert_eq!(window(&shown(&board, 0)), None);
        assert_eq!(shown(&board, 0).troubles, ["no report has come yet"]);
        add(&mut board, &["a", "b"], 0..50);
        let fleet = shown(&board, 50);
        assert_eq!((window(&fleet), fleet.is_open), (Some([0, 50]), true), "nothing else is there");
        add(&mut board, &["a", "b"], 50..60);
        add(&mut board, &["a"], 60..120);
        let fleet = shown(&board, 120);
        assert_eq!((window(&fleet), fleet.is_open), (Some([0, 60]), false), "b has not sent the next one");
        add(&mut board, &["b"], 60..120);
        assert_eq!(window(&shown(&board, 120)), Some([60, 120]));
        let rows: Vec<u64> =
            list(&shown(&board, 120), "routers").entries.iter().map(|row| row.amount.of(By::Packets).lower).collect();
        assert_eq!(rows, [600, 600]);
    }

    #[test]
    fn a_router_that_is_late_holds_up_nobody_and_is_named() {
        let mut board = board();
        add(&mut board, &["a", "b"], 0..60);
        add(&mut board, &["a"], 60..180);
        let fleet = shown(&board, 120);
        assert_eq!((window(&fleet), trouble(&fleet, "b")), (Some([0, 60]), None), "three windows and 30 s");
        let fleet = shown(&board, 181);
        assert_eq!(window(&fleet), Some([120, 180]));
        assert_eq!((trouble(&fleet, "a"), trouble(&fleet, "b")), (None, Some("late: no report for 2m 1s")));
        assert_eq!(fleet.facts[0], Fact::judged("routers 1/2", false));
        let rates = |router: usize| fleet.routers[router].rates.iter().map(Option::is_some).collect::<Vec<_>>();
        assert_eq!(rates(0), [true; 18]);
        assert_eq!(rates(1), [[true; 6], [false; 6], [false; 6]].concat());
        add(&mut board, &["b"], 180..190);
        let back = shown(&board, 191);
        assert_eq!((window(&back), trouble(&back, "b")), (Some([120, 180]), Some("no report in this window")));
        add(&mut board, &["b"], 60..180);
        let late = shown(&board, 191);
        assert_eq!((trouble(&late, "b"), late.facts[1].text.as_str()), (None, "reports 12"), "its windows are kept");
        assert_eq!(late.facts.last().unwrap().text, "late 12");
    }

    #[test]
    fn a_router_with_long_windows_does_not_hide_that_another_one_is_late() {
        let mut board = board();
        add(&mut board, &["a"], 0..60);
        let Parsed::Report(mut slow) = report("slow", 0) else { panic!() };
        slow.end = at(50);
        board.add(Parsed::Report(slow), at(60));
        let fleet = shown(&board, 160);
        assert_eq!((trouble(&fleet, "a"), trouble(&fleet, "slow")), (Some("late: no report for 1m 40s"), None));
    }

    #[test]
    fn if_all_routers_stop_their_last_window_stays() {
        let mut board = board();
        add(&mut board, &["a", "b"], 0..120);
        let fleet = shown(&board, 7_320);
        assert_eq!(window(&fleet), Some([60, 120]));
        assert_eq!(fleet.troubles[0], "no report has come for 2h");
        assert_eq!((trouble(&fleet, "a"), trouble(&fleet, "b")), (None, None));
    }

    #[test]
    fn a_router_whose_clock_is_wrong_changes_no_window() {
        let mut board = board();
        add(&mut board, &["a"], 0..60);
        board.add(report("b", 864_000), at(60));
        let fleet = shown(&board, 60);
        assert_eq!(window(&fleet), Some([0, 60]));
        assert!(trouble(&fleet, "b").unwrap().starts_with("its clock is wrong: it reports 2023-11-24T"));
        add(&mut board, &["b"], 60..70);
        assert_ne!(trouble(&shown(&board, 70), "b"), trouble(&fleet, "b"), "its clock was set");
    }

    #[test]
    fn the_memory_is_bounded_after_thousands_of_windows_and_nothing_that_is_missing_is_forgotten() {
        let mut board = board();
        let (mut missing, mut twice) = (0, 0);
        for second in (0..300_000).step_by(10) {
            for router in ["a", "b", "c"] {
                // Every seventh one of b is missing, and every eleventh one of c comes twice.
                if router == "b" && second % 70 == 10 {
                    missing += 1;
                    continue;
                }
                board.add(report(router, second), at(second + 10));
                if router == "c" && second % 110 == 10 {
                    twice += 1;
                    board.add(report(router, second), at(second + 10));
                }
            }
        }
        assert_eq!(board.merger.windows().count(), KEPT);
        for router in board.routers.values() {
            assert!(router.recent.len() <= SECONDS_MAX && router.sums.len() <= KEPT);
        }
        let fleet = shown(&board, 300_000);
        assert_eq!(window(&fleet), Some([299_940, 300_000]));
        let texts: Vec<&str> = fleet.facts.iter().map(|fact| &*fact.text).collect();
        assert_eq!(texts[..2], ["routers 3/3", "reports 17"], "one of b is missing");
        let defects = board.merger.defects();
        let sum = |what| defects.iter().filter(|one| one.what == what).map(|one| one.reports).sum::<u64>();
        assert_eq!((sum(What::Gap), sum(What::Duplicate)), (missing, twice));
        let described = format!("{:?}", board.merger);
        // Most of it are the contents of the last reports.
        assert!(described.len() < 2_000_000, "{} bytes", described.len());
        for nth in 0..2 * ROUTERS_MAX {
            board.add(report(&nth.to_string(), 300_000), at(300_010));
        }
        assert_eq!(board.routers.len(), ROUTERS_MAX);
        assert!(shown(&board, 300_010).facts.iter().any(|fact| fact.text.starts_with("unreadable")));
    }

    #[test]
    fn a_window_that_is_shorter_than_reports_says_which_one_is_needed() {
        let mut board = Board::new(Duration::from_secs(5), 20);
        add(&mut board, &["a"], 0..60);
        let troubles = shown(&board, 60).troubles.join("; ");
        assert!(
            troubles.contains("reports of a are longer than a window: choose --window 10s or longer"),
            "{troubles}"
        );
        assert!(troubles.contains("no report of this window has sketches"), "{troubles}");
    }

    #[test]
    fn a_router_can_be_asked_for() {
        let mut board = board();
        add(&mut board, &["a"], 0..60);
        let KeyDetails { rows, .. } = board.ask("=a".to_owned(), at(70));
        assert_eq!(rows.unwrap_err(), "6 reports at fra, the last one until 2023-11-14T22:15:00Z, 10s ago");
        assert_eq!(board.ask("port=1".to_owned(), at(70)).rows.unwrap_err(), "no list of the fleet has such keys");
    }
}
