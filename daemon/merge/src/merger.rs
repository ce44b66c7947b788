//! Takes reports one by one, and puts each where it belongs.
//!
//! Routers do not agree on everything: some have another key, another size of sketches, or another question under the
//! same name. Sketches that differ in one of these cannot be joined, and the merger does not know in advance which ones
//! are usual. So it keeps each kind apart, lets the routers of a day vote, and decides at the end which kind is that of
//! the fleet. The others are answered apart and named as defects.
//!
//! Everything that a sender chooses has a limit, so that forged or misdirected files take no more than a fixed amount
//! of memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use weir_schema::sketches::Mismatch;
use weir_system::numbers::grouped;

use crate::{
    answer::{Answer, Defect, SCHEMA, What, WindowAnswer},
    arrivals::{Arrivals, Labels},
    group::{Group, KeyAnswer, Kind, Refusal},
    line::{Parsed, Report, Sender, Unpacked},
    routers::{ROUTERS_MAX, Router},
};

/// The most windows: each takes some megabytes.
pub const GROUPS_MAX: usize = 256;
/// The limits of all answers together.
const LIMITS: Limits = Limits {
    routers: ROUTERS_MAX,
    sketch_bytes: 1 << 30,
    votes: 2 << 20, // some 100 MB
};
/// After so many lines, the merger forgets single reports where remembering them takes much memory.
const SETTLED_EACH: u64 = 4_096;
/// The most kinds of sketches that were refused: further ones are counted together.
const REFUSED_MAX: usize = 4_096;
const DAY_SECONDS: i64 = 86_400;
/// A caveat that stands in every answer.
const NOTE: &str = "a packet that passed two routers counts at both: in totals and lists. Distinct counts, floods and \
                    scans count each value once";

/// The groups of routers that have windows of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// All routers together.
    #[default]
    All,
    /// Each site has a window of its own.
    Site,
    /// Each router has a window of its own.
    Router,
}

/// The options of a merge.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The length of a window; `None`: all reports are in one.
    pub window: Option<Duration>,
    /// The groups that have windows of their own.
    pub by: By,
    /// How many rows lists have.
    pub top: usize,
}

/// The limits of everything that senders choose. The rest is left out, and named.
#[derive(Clone, Copy, Debug)]
struct Limits {
    routers: usize,
    /// The memory of the sketches of all windows, in bytes.
    sketch_bytes: usize,
    /// How many kinds of keys all routers have.
    votes: usize,
}

/// There are more windows than fit into the memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "the reports are of more than {GROUPS_MAX} windows: choose longer ones by --window, or merge fewer files at a time"
)]
pub struct TooMany;

/// The UTC day that has this time, counted from 1970.
fn day(time: Timestamp) -> i64 {
    time.as_second().div_euclid(DAY_SECONDS)
}

/// Merges reports, one after the other.
#[derive(Debug)]
pub struct Merger {
    settings: Settings,
    limits: Limits,
    arrivals: Arrivals,
    routers: HashMap<String, Router>,
    ids: Vec<String>,
    /// By the number of the window, and by site or the identity of a router.
    groups: BTreeMap<(i128, Option<String>), Group>,
    /// Earlier windows are not kept.
    first: Option<i128>,
    /// Reports of each router that span the end of a window: their number, and the length of the longest one.
    spanning: BTreeMap<(Router, Spanning), (u64, SignedDuration)>,
    /// Which routers have which kind of key, and how many reports of them.
    kinds: BTreeMap<(String, Kind), BTreeMap<Router, u64>>,
    votes: usize,
    lines: u64,
    /// The number of lines of routers for which there is no room, and a description of them.
    left_out: (u64, String),
    refused: BTreeMap<(What, Router, String), u64>,
    unreadable: u64,
    why: Option<String>,
    reports: u64,
    with_sketches: u64,
}

impl Merger {
    /// Makes a merger without reports.
    pub fn new(settings: Settings) -> Self {
        let (arrivals, routers, ids, groups, spanning, kinds, refused) = Default::default();
        let (first, unreadable, why, reports, with_sketches) = Default::default();
        let (votes, lines, left_out) = Default::default();
        Self {
            settings,
            limits: LIMITS,
            arrivals,
            routers,
            ids,
            groups,
            first,
            spanning,
            kinds,
            votes,
            lines,
            left_out,
            refused,
            unreadable,
            why,
            reports,
            with_sketches,
        }
    }

    /// How many reports were merged.
    pub const fn reports(&self) -> u64 {
        self.reports
    }

    /// Adds a line.
    ///
    /// # Errors
    ///
    /// There are too many windows.
    pub fn add(&mut self, line: Parsed) -> Result<(), TooMany> {
        self.lines += 1;
        if self.lines.is_multiple_of(SETTLED_EACH) {
            self.arrivals.settle();
        }
        match line {
            Parsed::Report(report) if !self.make_room(&report.sender) => Ok(()),
            Parsed::Tombstone(tombstone) if !self.make_room(&tombstone.sender) => Ok(()),
            Parsed::Report(report) => self.report(*report),
            Parsed::Tombstone(tombstone) => {
                self.arrivals.add_tombstone(&tombstone);
                Ok(())
            }
            Parsed::Unreadable(why) => {
                self.note_unreadable(why);
                Ok(())
            }
        }
    }

    /// Notes that something could not be read, for this reason.
    pub fn note_unreadable(&mut self, why: String) {
        self.unreadable += 1;
        self.why.get_or_insert(why);
    }

    /// Returns whether there is room for a router. If not, this is noted.
    fn make_room(&mut self, Sender { id, name, .. }: &Sender) -> bool {
        let has_room = self.arrivals.has_room(id, self.limits.routers);
        if !has_room {
            let (lines, what) = &mut self.left_out;
            *lines += 1;
            if what.is_empty() {
                let most = grouped(self.limits.routers as u64);
                *what = format!("of more than {most} routers, such as {name} ({id}): merge fewer files at a time");
            }
        }
        has_room
    }

    fn report(&mut self, mut report: Report) -> Result<(), TooMany> {
        if !self.arrivals.add(&report) {
            return Ok(());
        }
        self.reports += 1;
        let router = self.router(&report.sender.id);
        let of = match self.settings.by {
            By::All => None,
            By::Site => Some(report.sender.site.clone().unwrap_or_else(|| "(no site)".to_owned())),
            By::Router => Some(report.sender.id.clone()),
        };
        let sketches = report.sketches.take();
        let of_sketches = sketches.as_ref().map(|sketches| (Spanning::Sketches, sketches.start, sketches.end));
        for (what, start, end) in [(Spanning::Report, report.start, report.end)].into_iter().chain(of_sketches) {
            if self.spans_windows(start, end) {
                let (reports, longest) = self.spanning.entry((router, what)).or_default();
                *reports += 1;
                *longest = end.duration_since(start).max(*longest);
            }
        }
        if !self.is_kept(report.start) {
            return Ok(());
        }
        self.group(report.start, of.clone())?.count(router, &report);
        let Some(sketches) = sketches.filter(|sketches| self.is_kept(sketches.start)) else { return Ok(()) };
        self.with_sketches += 1;
        self.sketches(router, of, sketches)
    }

    fn sketches(&mut self, router: Router, of: Option<String>, mut sketches: Unpacked) -> Result<(), TooMany> {
        let day = day(sketches.start);
        for (name, why) in std::mem::take(&mut sketches.broken) {
            self.refuse(What::BrokenSketch, router, format!("{name}: {why}"));
        }
        if !self.vote(router, day, &sketches) {
            let why = format!("there are more than {} kinds of keys of routers", grouped(self.limits.votes as u64));
            self.refuse(What::LeftOut, router, why);
            return Ok(());
        }
        let used: usize = self.groups.values().map(Group::bytes).sum();
        let room = self.limits.sketch_bytes.saturating_sub(used);
        for (name, why) in self.group(sketches.start, of)?.add(router, day, sketches, room) {
            let what = match why {
                Refusal::Mismatch(Mismatch::Geometry { .. }) => What::OtherGeometry,
                Refusal::Mismatch(Mismatch::Malformed(_)) => What::BrokenSketch,
                Refusal::NoRoom => What::LeftOut,
            };
            self.refuse(what, router, format!("{name}: {why}"));
        }
        Ok(())
    }

    /// Counts which kinds of keys a router has. Returns whether there is room for them.
    fn vote(&mut self, router: Router, day: i64, sketches: &Unpacked) -> bool {
        let counts = sketches.distinct.iter().map(|one| (&one.name, one.key_id, one.sketch.precision()));
        let spreads = sketches.spread.iter().map(|(_, one)| (&one.name, one.key_id, 0));
        for (name, key_id, lg_k) in counts.chain(spreads) {
            let routers = self.kinds.entry((name.clone(), Kind { day, key_id, lg_k })).or_default();
            let is_new = !routers.contains_key(&router);
            if is_new && self.votes >= self.limits.votes {
                return false;
            }
            self.votes += usize::from(is_new);
            *routers.entry(router).or_default() += 1;
        }
        true
    }

    fn refuse(&mut self, what: What, router: Router, detail: String) {
        let place = (what, router, detail);
        let is_known = self.refused.len() < REFUSED_MAX || self.refused.contains_key(&place);
        let place = if is_known { place } else { (what, router, "others".to_owned()) };
        *self.refused.entry(place).or_default() += 1;
    }

    fn router(&mut self, id: &str) -> Router {
        if let Some(router) = self.routers.get(id) {
            return *router;
        }
        let router = self.ids.len() as Router;
        self.ids.push(id.to_owned());
        self.routers.insert(id.to_owned(), router);
        router
    }

    /// Returns true if the window that has this time is kept.
    fn is_kept(&self, time: Timestamp) -> bool {
        self.first.is_none_or(|first| first <= self.window_of(time.as_nanosecond()))
    }

    /// Keeps only so many windows, the newest ones. From then on, a report of an earlier one has only arrived.
    pub fn keep(&mut self, windows: usize) {
        let mut kept: Vec<i128> = self.windows().collect();
        kept.reverse();
        kept.truncate(windows);
        let Some(first) = kept.last().copied().filter(|first| self.windows().next() != Some(*first)) else { return };
        self.groups = self.groups.split_off(&(first, None));
        self.first = Some(first);
        let day = self.groups.values().next().map(|group| day(group.start()));
        self.kinds.retain(|(_, kind), _| Some(kind.day) >= day);
        self.votes = self.kinds.values().map(BTreeMap::len).sum();
    }

    /// The numbers of all windows, the earliest first.
    pub fn windows(&self) -> impl Iterator<Item = i128> {
        let numbers: BTreeSet<i128> = self.groups.keys().map(|(nth, _)| *nth).collect();
        numbers.into_iter()
    }

    /// The number of the window that has this time, in nanoseconds since 1970.
    pub fn window_of(&self, time: i128) -> i128 {
        time.div_euclid(self.settings.window.map_or(i128::MAX, |window| window.as_nanos().max(1) as i128))
    }

    /// Returns true if a window ends between these times.
    fn spans_windows(&self, start: Timestamp, end: Timestamp) -> bool {
        // The instant of the end already belongs to the next window.
        let last = (end.as_nanosecond() - 1).max(start.as_nanosecond());
        self.window_of(start.as_nanosecond()) != self.window_of(last)
    }

    fn group(&mut self, time: Timestamp, of: Option<String>) -> Result<&mut Group, TooMany> {
        let place = (self.window_of(time.as_nanosecond()), of);
        if self.groups.len() == GROUPS_MAX && !self.groups.contains_key(&place) {
            return Err(TooMany);
        }
        Ok(self.groups.entry(place).or_insert_with(|| Group::new(time)))
    }

    /// The key and the number of registers of the fleet, by name and day: those that most routers have.
    ///
    /// Around midnight, only the routers whose clocks are ahead may have reports of the next day, or only those whose
    /// clocks are behind have some of the day before. So a router that differs from most on one day does not decide
    /// about another day.
    fn of_fleet(&self) -> BTreeMap<Place<'_>, Kind> {
        let most = self.most(&BTreeSet::new());
        let outvoted = self.kinds.iter().filter(|((name, kind), routers)| {
            most.get(&place(name, kind)).is_some_and(|(count, usual)| usual != kind && count.trusted > routers.len())
        });
        let outvoted: BTreeSet<Router> = outvoted.flat_map(|(_, routers)| routers.keys().copied()).collect();
        let trusted = self.most(&outvoted).into_iter().filter(|(_, (count, _))| count.trusted > 0);
        trusted.map(|(place, (_, kind))| (place, kind)).collect()
    }

    /// Returns the kind of key that most routers have at each place, not counting the outvoted ones if there are
    /// others.
    fn most(&self, outvoted: &BTreeSet<Router>) -> BTreeMap<Place<'_>, (Votes, Kind)> {
        let mut most: BTreeMap<Place<'_>, (Votes, Kind)> = BTreeMap::new();
        for ((name, kind), routers) in &self.kinds {
            let trusted = routers.keys().filter(|router| !outvoted.contains(router)).count();
            let votes = Votes { trusted, reports: routers.values().sum() };
            let known = most.entry(place(name, kind)).or_insert((votes, *kind));
            if votes > known.0 {
                *known = (votes, *kind);
            }
        }
        most
    }

    /// Ends the merge and returns its answer.
    pub fn finish(self) -> Answer {
        Answer {
            schema: SCHEMA,
            reports: self.reports,
            with_sketches: self.with_sketches,
            note: NOTE,
            windows: self.answers(|_| true),
            defects: self.defects(),
        }
    }

    /// Returns the names of observers in answers.
    pub fn labels(&self) -> Labels {
        self.arrivals.labels()
    }

    /// The bounds of a key in the lists of a window, listed or not. The key is given as `weir ask` takes it.
    pub fn ask(&self, window: i128, question: &str) -> Vec<KeyAnswer> {
        self.groups.range((window, None)..(window + 1, None)).flat_map(|(_, group)| group.ask(question)).collect()
    }

    /// The answers of the windows with these numbers.
    pub fn answers(&self, which: impl Fn(i128) -> bool) -> Vec<WindowAnswer> {
        let fleet = self.of_fleet();
        let of_fleet = |name: &str, kind: Kind| fleet.get(&place(name, &kind)) == Some(&kind);
        let labels = self.arrivals.labels();
        let label = |of: &String| match self.settings.by {
            By::Router => labels.of(of),
            By::All | By::Site => of.clone(),
        };
        let mut windows: Vec<(i128, WindowAnswer)> = Vec::new();
        for ((nth, of), group) in self.groups.iter().filter(|((nth, _), _)| which(*nth)) {
            windows.push((*nth, group.answer(of.as_ref().map(label), self.settings.top, of_fleet)));
        }
        windows.sort_by(|(one, first), (other, second)| (one, &first.of).cmp(&(other, &second.of)));
        windows.into_iter().map(|(_, window)| window).collect()
    }

    /// Returns the reports that did not arrive as they were sent, and parts that were not joined.
    pub fn defects(&self) -> Vec<Defect> {
        let (fleet, labels) = (self.of_fleet(), self.arrivals.labels());
        let mut defects = self.arrivals.defects(&labels);
        defects.extend(self.foreign(&fleet, &labels));
        defects.extend(self.spanning.iter().map(|((router, what), (reports, longest))| Defect {
            detail: what.detail(*longest),
            ..self.defect(&labels, What::SpansWindows, *router, *reports)
        }));
        let mut asked: BTreeMap<(Router, String), u64> = BTreeMap::new();
        for place in self.groups.values().flat_map(Group::other_questions) {
            *asked.entry(place).or_default() += 1;
        }
        defects.extend(asked.into_iter().map(|((router, detail), reports)| Defect {
            detail,
            ..self.defect(&labels, What::OtherQuestion, router, reports)
        }));
        defects.extend(self.refused.iter().map(|((what, router, detail), reports)| Defect {
            detail: detail.clone(),
            ..self.defect(&labels, *what, *router, *reports)
        }));
        if let (reports @ 1.., detail) = &self.left_out {
            let (observer, name) = Default::default();
            defects.push(Defect { what: What::LeftOut, observer, name, reports: *reports, detail: detail.clone() });
        }
        if let Some(why) = &self.why {
            let (observer, name) = Default::default();
            let (reports, detail) = (self.unreadable, why.clone());
            defects.push(Defect { what: What::Unreadable, observer, name, reports, detail });
        }
        defects.sort_by(|one, other| (one.what, &one.name, &one.detail).cmp(&(other.what, &other.name, &other.detail)));
        defects
    }

    fn defect(&self, labels: &Labels, what: What, router: Router, reports: u64) -> Defect {
        let observer = self.ids[router as usize].clone();
        Defect { what, name: labels.of(&observer), observer, reports, detail: String::new() }
    }

    /// The routers whose sketches are not those of the fleet, each once for each kind of key.
    fn foreign(&self, fleet: &BTreeMap<Place<'_>, Kind>, labels: &Labels) -> Vec<Defect> {
        let mut all: BTreeMap<(What, Router, String), (BTreeSet<&str>, u64)> = BTreeMap::new();
        for ((name, kind), routers) in &self.kinds {
            let here = fleet.get(&place(name, kind));
            if here == Some(kind) {
                continue;
            }
            let mut of_name = fleet.range((&**name, i64::MIN, false)..).take_while(|((other, ..), _)| other == name);
            let usual = here
                .or_else(|| of_name.find(|((.., is_spread), _)| *is_spread == (kind.lg_k == 0)).map(|(_, kind)| kind));
            let (what, detail) = match usual {
                Some(usual) if usual.lg_k != kind.lg_k && here.is_none_or(|here| here.key_id == kind.key_id) => {
                    (What::OtherLgK, format!("lg_k {} instead of {}", kind.lg_k, usual.lg_k))
                }
                Some(usual) if here.is_some() => {
                    let size = if kind.lg_k == usual.lg_k { String::new() } else { format!(", lg_k {}", kind.lg_k) };
                    (What::ForeignKey, format!("key_id {:016x}{size} instead of {:016x}", kind.key_id, usual.key_id))
                }
                _ => {
                    let day =
                        format!("key_id {:016x} on a day of which no router of the fleet has reports", kind.key_id);
                    (What::ForeignKey, day)
                }
            };
            for (router, reports) in routers {
                let (names, most) = all.entry((what, *router, detail.clone())).or_default();
                names.insert(name);
                *most = (*most).max(*reports);
            }
        }
        let defect = |((what, router, detail), (names, reports)): ((What, Router, String), (BTreeSet<&str>, u64))| {
            let names: Vec<&str> = names.into_iter().collect();
            Defect { detail: format!("{detail}: {}", names.join(", ")), ..self.defect(labels, what, router, reports) }
        };
        all.into_iter().map(defect).collect()
    }
}

/// The part of a report that spans the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Spanning {
    Report,
    Sketches,
}

impl Spanning {
    /// Says which numbers are concerned, and how to avoid it.
    fn detail(self, longest: SignedDuration) -> String {
        let seconds = longest.as_secs();
        match self {
            Self::Report => format!(
                "reports of up to {seconds} s: all of their packets and bytes count in the window in which they begin. \
                 Choose a --window that report.interval divides"
            ),
            Self::Sketches => format!(
                "sketches of up to {seconds} s: all of their distinct counts, lists, floods and scans count in the \
                 window in which they begin. Choose a --window that export.every divides"
            ),
        }
    }
}

/// A name on a day, apart for spread sketches: all routers should have the same key there.
type Place<'a> = (&'a str, i64, bool);

fn place<'a>(name: &'a str, kind: &Kind) -> Place<'a> {
    (name, kind.day, kind.lg_k == 0)
}

/// How many have a kind of key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Votes {
    /// The number of routers that vote.
    trusted: usize,
    /// Reports of all routers.
    reports: u64,
}

#[cfg(test)]
mod tests {
    use weir_schema::{
        Account, Part,
        sketches::{ListSketch, SEED, WIDTH, cell},
    };
    use weir_sketch::{
        HyperLogLog,
        hash::{Key, mix},
    };

    use super::*;
    use crate::line::{Counted, Sender};

    /// A report of this router, with a window between these seconds of a day.
    fn report(id: &str, name: &str, start: i64, end: i64) -> Parsed {
        let at = |second| Timestamp::from_second(1_699_920_000 + second).unwrap();
        let (id, name, boot_id) = (id.to_owned(), name.to_owned(), "b".to_owned());
        Parsed::Report(Box::new(Report {
            sender: Sender { id, boot_id, seq: start as u64, name, site: None },
            previous: None,
            content: Default::default(),
            start: at(start),
            end: at(end),
            seen: Default::default(),
            account: Default::default(),
            sketches: None,
        }))
    }

    /// Adds these sketches to a report.
    fn with(parsed: Parsed, distinct: Vec<Counted<HyperLogLog>>, lists: Vec<ListSketch>) -> Parsed {
        let Parsed::Report(mut report) = parsed else { panic!("{parsed:?}") };
        let (start, end, spread, broken) = (report.start, report.end, Vec::new(), Vec::new());
        report.sketches = Some(Unpacked { start, end, distinct, lists, spread, broken });
        Parsed::Report(report)
    }

    /// A list of keys, each with its packets and how many more there may be. No other key has more than `rest`.
    fn list(name: &str, question: Option<&str>, keys: &[(String, u64, u64)], rest: u64) -> ListSketch {
        let numbers = |number: &dyn Fn(&(String, u64, u64)) -> u64| keys.iter().map(number).collect::<Vec<_>>();
        ListSketch {
            name: name.to_owned(),
            question: question.map(str::to_owned),
            by: vec!["src_ip".to_owned()],
            confidence: 1.0,
            width: WIDTH as u32,
            depth: 1,
            seed: SEED,
            keys: keys.iter().map(|(key, ..)| key.clone()).collect(),
            cells: keys.iter().map(|(key, ..)| cell(key)).collect(),
            packets_lower: numbers(&|(_, packets, _)| *packets),
            packets_upper: numbers(&|(_, packets, more)| packets + more),
            bytes_lower: numbers(&|(_, packets, _)| packets * 100),
            bytes_upper: numbers(&|(_, packets, more)| (packets + more) * 100),
            rest_packets: vec![rest; WIDTH],
            rest_bytes: vec![rest * 100; WIDTH],
        }
    }

    fn counted(name: &str, question: Option<u64>, values: std::ops::Range<u64>) -> Counted<HyperLogLog> {
        let key = Key([1, 2]);
        let mut sketch = HyperLogLog::with_precision(12, key.id()).unwrap();
        for value in values {
            sketch.insert(mix(value));
        }
        Counted { name: name.to_owned(), question, key_id: key.id(), missing: 0, sketch }
    }

    const ALL: Settings = Settings { window: None, by: By::All, top: 3 };

    /// Three routers ask the same under a name, and one asks something else; an old one does not say.
    #[test]
    fn answers_to_different_questions_stay_apart_and_are_named() {
        const WEB: &str = "00000000000000aa";
        const DNS: &str = "00000000000000bb";
        let key = |packets| vec![("192.0.2.1".to_owned(), packets, 0)];
        let routers = [("1", Some(WEB), 10), ("2", Some(WEB), 20), ("3", Some(DNS), 4_000), ("4", None, 500_000)];
        let reports = routers.map(|(id, question, packets)| {
            let asked = question.map(|text| u64::from_str_radix(text, 16).unwrap());
            let lists = vec![list("w", question, &key(packets), 0), list("sources", None, &key(packets), 0)];
            let distinct = vec![counted("count", asked, packets..2 * packets.min(40_000))];
            with(report(id, id, 0, 10), distinct, lists)
        });
        let answer = merged(ALL, reports);
        let [window] = &answer.windows[..] else { panic!() };
        let of = |name: &str| {
            let lists = window.lists.iter().filter(|list| list.name == name);
            lists
                .map(|list| (list.question.as_deref(), list.is_usual, list.routers, list.by_packets[0].packets.lower))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("w"), [(Some(WEB), true, 2, 30), (None, false, 1, 500_000), (Some(DNS), false, 1, 4_000)]);
        let [(Some(_), true, 4, 504_030)] = of("sources")[..] else { panic!("{:?}", of("sources")) };
        let counts: Vec<_> =
            window.distinct.iter().map(|one| (one.question.as_deref(), one.is_usual, one.routers)).collect();
        assert_eq!(counts, [(Some(WEB), true, 2), (None, false, 1), (Some(DNS), false, 1)]);
        assert!(window.distinct[0].lower <= 30 && window.distinct[0].upper >= 30);
        let mut others: Vec<_> = answer.defects.iter().map(|one| (one.what, &*one.name, one.detail.as_str())).collect();
        others.sort_unstable();
        assert_eq!(
            others,
            [
                (What::OtherQuestion, "3", &*format!("count: question {DNS} instead of {WEB}")),
                (What::OtherQuestion, "3", &*format!("w: question {DNS} instead of {WEB}")),
                (What::OtherQuestion, "4", &*format!("count: question not stated instead of {WEB}")),
                (What::OtherQuestion, "4", &*format!("w: question not stated instead of {WEB}")),
            ]
        );
    }

    /// A row is certain only if fewer than `top` others may be larger, whatever the truth is within the bounds.
    #[test]
    fn a_certain_row_is_among_the_largest_whatever_the_truth_is() {
        let mut state = 5_u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let (mut certain, mut possible) = (0, 0);
        for _ in 0..400 {
            let rest = random(12);
            let keys: Vec<_> =
                (0..12).map(|nth| (format!("192.0.2.{nth}"), 1 + random(20), random(3) * random(12))).collect();
            let top = 1 + random(5) as usize;
            let lists = vec![list("sources", None, &keys, rest)];
            let answer = merged(Settings { top, ..ALL }, [with(report("1", "a", 0, 10), Vec::new(), lists)]);
            for row in &answer.windows[0].lists[0].by_packets {
                let (_, lower, _) = keys.iter().find(|(key, ..)| *key == row.key).unwrap();
                // The worst case: it has its least, and all others have their most.
                let larger = keys.iter().filter(|(key, one, more)| *key != row.key && one + more > *lower).count();
                let is_certain = larger < top && rest <= *lower;
                assert_eq!(row.is_certain, is_certain, "{row:?} of {keys:?}, {top} rows, {rest}");
                certain += usize::from(is_certain);
                possible += 1;
            }
        }
        assert!(certain > 300 && possible > certain + 300, "{certain} of {possible}");
    }

    /// Two days have two keys. The larger of their counts is less than the rows of their list.
    #[test]
    fn a_distinct_count_is_at_least_what_rows_prove() {
        let sources =
            |range: std::ops::Range<u64>| range.map(|nth| (format!("10.0.0.{nth}"), 1, 0)).collect::<Vec<_>>();
        let unique = |range| counted("unique.src_ip", None, range);
        let day = |id: &str, start, distinct, range| {
            with(report(id, id, start, start + 10), distinct, vec![list("sources", None, &sources(range), 0)])
        };
        let second = unique(30..60);
        let second = Counted { sketch: HyperLogLog::with_precision(12, 7).unwrap(), key_id: 7, ..second };
        let both = || [day("1", 0, vec![unique(0..30)], 0..30), day("1", 86_400, vec![unique(30..60)], 30..60)];
        let count = |reports: [Parsed; 2]| {
            let answer = merged(ALL, reports);
            let count = answer.windows[0].distinct.iter().find(|one| one.name == "unique.src_ip").unwrap();
            (count.lower, count.value >= count.lower && count.upper >= count.value)
        };
        assert_eq!(count(both()), (60, true));
        let [first, _] = both();
        let other = day("2", 86_400, Vec::new(), 30..60);
        assert!(count([first, other]).0 <= 30, "the list is of a report that the count does not have");
        let [first, _] = both();
        assert!(count([first, day("2", 0, vec![second], 30..60)]).0 <= 30, "a foreign key stands for itself");
    }

    #[test]
    fn what_is_not_certain_is_added_up() {
        let bounds = |lower, upper| weir_schema::Bounds { lower, upper };
        let uncertain = |id: &str, of| {
            let Parsed::Report(mut one) = report(id, id, 0, 10) else { panic!() };
            let part: Part = serde_json::from_value(serde_json::json!({"ledger": {"uncertain": of}})).unwrap();
            one.account = Account::of_parts(&[part]);
            Parsed::Report(one)
        };
        let some = Some(weir_schema::Uncertain { packets: bounds(3, 5), bytes: bounds(300, 7_000) });
        let of = |reports: [Parsed; 3]| merged(ALL, reports).windows.remove(0).uncertain;
        let both = of([uncertain("1", some), uncertain("2", None), uncertain("3", some)]).unwrap();
        assert_eq!((both.packets.lower, both.packets.upper, both.bytes.lower, both.bytes.upper), (6, 10, 600, 14_000));
        assert_eq!(of(["1", "2", "3"].map(|id| uncertain(id, None))), None);
    }

    fn merged(settings: Settings, reports: impl IntoIterator<Item = Parsed>) -> Answer {
        let mut merger = Merger::new(settings);
        for report in reports {
            merger.add(report).unwrap();
        }
        merger.finish()
    }

    #[test]
    fn a_report_that_spans_two_windows_is_named_and_counts_where_it_begins() {
        let settings = Settings { window: Some(Duration::from_secs(60)), by: By::All, top: 5 };
        let answer = merged(settings, [report("1", "a", 50, 60), report("1", "a", 55, 65), report("1", "a", 60, 70)]);
        assert_eq!(answer.windows.iter().map(|window| window.reports).collect::<Vec<_>>(), [2, 1]);
        let [spans] = &answer.defects.iter().filter(|one| one.what == What::SpansWindows).collect::<Vec<_>>()[..]
        else {
            panic!("{:?}", answer.defects)
        };
        assert_eq!((spans.reports, &*spans.name), (1, "a"));
        assert!(spans.detail.starts_with("reports of up to 10 s: all of their packets"), "{}", spans.detail);
        let mut with_sketches = report("1", "a", 60, 70);
        if let Parsed::Report(report) = &mut with_sketches {
            let (distinct, lists, spread, broken) = Default::default();
            let start = report.start - SignedDuration::from_secs(50);
            report.sketches = Some(Unpacked { start, end: report.end, distinct, lists, spread, broken });
        }
        let of_sketches = merged(settings, [with_sketches]);
        let [spans] = &of_sketches.defects[..] else { panic!("{:?}", of_sketches.defects) };
        assert!(spans.detail.starts_with("sketches of up to 60 s: all of their distinct counts"), "{}", spans.detail);
        let whole = merged(Settings { window: None, ..settings }, [report("1", "a", 55, 65)]);
        assert!(whole.defects.is_empty() && whole.windows.len() == 1, "{:?}", whole.defects);
    }

    const QUESTION: &str = "00000000000000cc";

    /// A report with a distinct count and a list of these names.
    fn with_sketches(id: &str, second: i64, name: &str) -> Parsed {
        let mut parsed = report(id, id, second, second + 10);
        if let Parsed::Report(report) = &mut parsed {
            let key = format!("10.0.{second}.1");
            let list = ListSketch {
                question: Some(QUESTION.to_owned()),
                name: name.to_owned(),
                by: vec!["src_ip".to_owned()],
                confidence: 1.0,
                width: 256,
                depth: 1,
                seed: 9001,
                cells: vec![cell(&key)],
                keys: vec![key],
                packets_lower: vec![1],
                packets_upper: vec![1],
                bytes_lower: vec![60],
                bytes_upper: vec![60],
                rest_packets: vec![0; 256],
                rest_bytes: vec![0; 256],
            };
            let sketch = HyperLogLog::with_precision(12, 7).unwrap();
            let counted = Counted {
                name: name.to_owned(),
                question: u64::from_str_radix(QUESTION, 16).ok(),
                key_id: 7,
                missing: 0,
                sketch,
            };
            let (start, end) = (report.start, report.end);
            let (distinct, lists) = (vec![counted], vec![list]);
            report.sketches = Some(Unpacked { start, end, distinct, lists, spread: Vec::new(), broken: Vec::new() });
        }
        parsed
    }

    #[test]
    fn a_forged_list_is_named_and_changes_no_bound() {
        let settings = Settings { window: None, by: By::All, top: 5 };
        for forger_is_first in [true, false] {
            let mut forged = with_sketches("forger", 10, "sources");
            if let Parsed::Report(report) = &mut forged {
                report.sketches.as_mut().unwrap().lists[0].confidence = 1e308;
            }
            let mut lines = vec![with_sketches("honest", 0, "sources"), forged];
            if forger_is_first {
                lines.reverse();
            }
            let answer = merged(settings, lines);
            let list = &answer.windows[0].lists[0];
            assert_eq!((list.confidence, list.routers, list.by_bytes.len()), (1.0, 1, 1));
            let [defect] = &answer.defects[..] else { panic!("{:?}", answer.defects) };
            assert_eq!((defect.what, &*defect.name), (What::BrokenSketch, "forger"));
            assert_eq!(defect.detail, "sources: its confidence is not a probability");
        }
    }

    fn left_out(merger: &Merger) -> Vec<(u64, String)> {
        let defects = merger.defects().into_iter().filter(|one| one.what == What::LeftOut);
        defects.map(|one| (one.reports, one.detail)).collect()
    }

    #[test]
    fn what_has_no_room_is_left_out_and_named() {
        let settings = Settings { window: None, by: By::All, top: 5 };
        let limited = |limits, lines: Vec<Parsed>| {
            let mut merger = Merger { limits, ..Merger::new(settings) };
            for line in lines {
                merger.add(line).unwrap();
            }
            merger
        };
        let routers = limited(
            Limits { routers: 3, ..LIMITS },
            (0..9)
                .map(|nth| report(&format!("id-{}", nth % 5), &format!("edge-{}", nth % 5), 10 * nth, 10 * nth + 10))
                .collect(),
        );
        let why = "of more than 3 routers, such as edge-3 (id-3): merge fewer files at a time";
        assert_eq!((routers.reports(), left_out(&routers)), (6, vec![(3, why.to_owned())]));

        let invented = || (0..50).map(|nth| with_sketches("id", 10 * nth, &format!("name-{nth}"))).collect();
        assert_eq!(left_out(&limited(LIMITS, invented())), []);
        let limits = Limits { sketch_bytes: 100 << 10, ..LIMITS };
        let names = limited(limits, invented());
        assert!(names.groups.values().map(Group::bytes).sum::<usize>() <= limits.sketch_bytes);
        let all = left_out(&names);
        assert!(all.len() > 20 && all[0].1.contains("there is no room for more sketches"), "{all:?}");
        assert_eq!(names.reports(), 50, "sums have all reports");

        let kinds = limited(Limits { votes: 10, ..LIMITS }, invented());
        assert_eq!(left_out(&kinds), [(40, "there are more than 10 kinds of keys of routers".to_owned())]);
    }

    #[test]
    fn rows_of_small_keys_make_room() {
        let lines: Vec<Parsed> = (0..100).map(|nth| with_sketches("id", 10 * nth, "sources")).collect();
        let settings = Settings { window: None, by: By::All, top: 100 };
        let mut merger = Merger { limits: Limits { sketch_bytes: 20 << 10, ..LIMITS }, ..Merger::new(settings) };
        for line in lines {
            merger.add(line).unwrap();
        }
        assert!(merger.groups.values().all(|group| group.bytes() <= 20 << 10));
        assert_eq!(left_out(&merger), []);
        for nth in 0..100 {
            let [answer] = &merger.ask(0, &format!("src_ip=10.0.{}.1", 10 * nth))[..] else { panic!() };
            assert!(answer.sums.lower.bytes <= 60 && 60 <= answer.sums.upper.bytes, "{answer:?}");
        }
    }

    #[test]
    fn two_routers_of_one_name_have_two_windows() {
        let settings = Settings { window: None, by: By::Router, top: 5 };
        let answer =
            merged(settings, [("2", "edge"), ("1", "edge"), ("3", "core")].map(|(id, name)| report(id, name, 0, 10)));
        let of: Vec<_> = answer.windows.iter().filter_map(|window| window.of.as_deref()).collect();
        assert_eq!(of, ["core", "edge (1)", "edge (2)"]);
    }
}
