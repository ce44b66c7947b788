//! One window of all routers, of a site, or of one router: everything that is added up.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use jiff::Timestamp;
use weir_common::{ledger::Tally, sketch::Metric};
use weir_config::{
    interface::Directions,
    names::{Facts, Geo, Networks},
    view::{Field, KeyLayout, ViewKey},
};
use weir_schema::{
    Account, Bounds, Uncertain, asked,
    sketches::{KeySums, ListSketch, ListUnion, Mismatch, key_id},
};
use weir_sketch::{
    Estimate, Geometry, HyperLogLog, Spread, Spreader, Weight as _, hyperloglog::CONFIDENCE,
    spread::CONFIDENCE as SPREAD_CONFIDENCE,
};

use crate::{
    answer::{Bounded, DistinctAnswer, ListAnswer, RowAnswer, SpreadAnswer, SpreadRow, UncertainAnswer, WindowAnswer},
    line::{Counted, Report, Unpacked},
    routers::{ROUTERS_BYTES, Router, Routers},
};

/// In place of a question that a report does not state.
pub const NOT_STATED: &str = "not stated";
/// The most rows of a list while it is added up: some 600 KiB.
const ROWS: usize = 4_096;

/// The memory that the fields of a place take beside a sketch, in bytes: a list has at most so many bytes of names.
const PLACE_BYTES: usize = 1_024 + ROUTERS_BYTES;

/// Why sketches cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// They are not like the others, or forged.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// There is no memory for them.
    #[error("there is no room for more sketches: choose longer windows by --window, or merge fewer files at a time")]
    NoRoom,
}

/// A kind of key: the UTC day, the fingerprint, and the number of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The UTC day, counted from 1970.
    pub day: i64,
    /// The fingerprint of the key.
    pub key_id: u64,
    /// The number of registers as a power of two; 0 for spread sketches.
    pub lg_k: u32,
}

/// The sum of all reports of a window.
#[derive(Debug)]
pub struct Group {
    start: Timestamp,
    end: Timestamp,
    routers: Routers,
    reports: u64,
    /// The memory of all sketches, in bytes.
    bytes: usize,
    seen: Tally,
    account: Account,
    distinct: BTreeMap<CountPlace, Union<HyperLogLog>>,
    lists: BTreeMap<ListPlace, Lists>,
    spread: BTreeMap<SpreadPlace, Union<Spread<ViewKey>>>,
    /// Distinct counts that lack some report whose list of the same keys was added: the list proves nothing about them.
    unpaired: BTreeSet<&'static str>,
}

/// The fingerprint of a question, if it is known.
pub type Asked = Option<u64>;
/// The name of a distinct count, its question and its key: those with the same ones are joined.
type CountPlace = (String, Asked, Kind);
/// The name of a list, the fields of its keys, and its question: those with the same ones are added up.
type ListPlace = (String, Vec<String>, Asked);
/// The routers that ask each question under a name, and how many sketches they sent.
type Questions<'a> = BTreeMap<&'a str, BTreeMap<Asked, (Routers, u64)>>;

/// The geometry of a spread sketch.
type Lines = (usize, usize);
/// The name of a spread sketch, the fields of its keys, its question, its key and its geometry: those with the same
/// ones are joined.
type SpreadPlace = (String, Vec<String>, Asked, Kind, Lines);
/// Distinct counts, and the list whose keys they count.
const COUNTED: [(&str, &str); 3] =
    [("unique.src_ip", "sources"), ("unique.dst_ip", "destinations"), ("unique.flows", "flows")];

/// The numbers of a key in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyAnswer {
    /// The name of the list.
    pub list: String,
    /// The fields of the key.
    pub by: Vec<String>,
    /// The bounds of the key's packets and bytes.
    pub sums: KeySums,
}

#[derive(Debug)]
struct Union<S> {
    all: S,
    missing: u64,
    routers: Routers,
    /// How many were joined.
    count: u64,
}

#[derive(Debug)]
struct Lists {
    all: ListUnion,
    routers: Routers,
    /// How many were joined.
    count: u64,
}

impl Kind {
    const FIRST: Self = Self { day: i64::MIN, key_id: 0, lg_k: 0 };
    const LAST: Self = Self { day: i64::MAX, key_id: u64::MAX, lg_k: u32::MAX };
}

impl Group {
    /// Makes an empty group.
    pub fn new(start: Timestamp) -> Self {
        let (routers, seen, account) = Default::default();
        let (distinct, lists, spread, unpaired) = Default::default();
        let (end, reports, bytes) = (start, 0, 0);
        Self { start, end, routers, reports, bytes, seen, account, distinct, lists, spread, unpaired }
    }

    /// Adds the exact numbers of a report.
    pub fn count(&mut self, router: Router, report: &Report) {
        self.start = self.start.min(report.start);
        self.end = self.end.max(report.end);
        self.routers.insert(router);
        self.reports += 1;
        self.seen = self.seen.saturating_add(report.seen);
        self.account.join(&report.account, &report.sender.name);
    }

    /// Adds sketches, which may take so many bytes more. Returns those that cannot be added.
    pub fn add(&mut self, router: Router, day: i64, sketches: Unpacked, mut room: usize) -> Vec<(String, Refusal)> {
        self.start = self.start.min(sketches.start);
        self.end = self.end.max(sketches.end);
        for (count, list) in COUNTED {
            let has_list = sketches.lists.iter().any(|one| one.name == list);
            if has_list && !sketches.distinct.iter().any(|one| one.name == count) {
                self.unpaired.insert(count);
            }
        }
        let (before, mut refused) = (room, Vec::new());
        for Counted { name, question, key_id, missing, sketch } in sketches.distinct {
            let kind = Kind { day, key_id, lg_k: sketch.precision() };
            let (bytes, place) = (sketch.memory_bytes(), (name.clone(), question, kind));
            let merge = |all: &mut HyperLogLog, one: &HyperLogLog| all.merge(one).is_ok();
            let has_room = join(self.distinct.entry(place), (router, missing), (sketch, bytes), &mut room, merge);
            if !has_room {
                self.unpaired.extend(COUNTED.iter().map(|(count, _)| *count).filter(|count| *count == name));
                refused.push((name, Refusal::NoRoom));
            }
        }
        for (by, Counted { name, question, key_id, missing, sketch }) in sketches.spread {
            let Geometry::Lines { count, per_key } = sketch.geometry() else { continue };
            let place = (name.clone(), by, question, Kind { day, key_id, lg_k: 0 }, (count, per_key));
            let bytes = sketch.memory_bytes();
            let merge = |all: &mut Spread<ViewKey>, one: &Spread<ViewKey>| all.merge(one).is_ok();
            let has_room = join(self.spread.entry(place), (router, missing), (sketch, bytes), &mut room, merge);
            refused.extend((!has_room).then_some((name, Refusal::NoRoom)));
        }
        refused.extend(sketches.lists.into_iter().filter_map(|list| self.list(router, list, &mut room)));
        self.bytes = (self.bytes + before).saturating_sub(room);
        refused
    }

    fn list(&mut self, router: Router, list: ListSketch, room: &mut usize) -> Option<(String, Refusal)> {
        let question = asked(&list.name, &list.by, list.question.as_deref()).and_then(key_id);
        let place = (list.name.clone(), list.by.clone(), question);
        let new = || Lists { all: ListUnion::new(&list.by, ROWS), routers: Routers::default(), count: 0 };
        if !self.lists.contains_key(&place) {
            let Some(rest) = room.checked_sub(PLACE_BYTES + new().all.memory_bytes()) else {
                return Some((list.name, Refusal::NoRoom));
            };
            *room = rest;
        }
        let lists = self.lists.entry(place).or_insert_with(new);
        let (bytes, rows) = (lists.all.memory_bytes(), lists.all.len());
        if let Err(mismatch) = lists.all.add(&list) {
            return Some((list.name, mismatch.into()));
        }
        lists.routers.insert(router);
        lists.count += 1;
        if lists.all.memory_bytes() > bytes + *room {
            // Rows of small keys make room. All bounds still hold.
            lists.all.keep(rows / 4);
        }
        *room = (*room + bytes).saturating_sub(lists.all.memory_bytes());
        None
    }

    /// Returns the memory of all sketches, in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the first window of a report began.
    pub const fn start(&self) -> Timestamp {
        self.start
    }

    /// The bounds of a key in all lists with its fields.
    pub fn ask(&self, question: &str) -> Vec<KeyAnswer> {
        let lists = self.lists.iter().filter(|(_, lists)| !lists.routers.is_empty());
        let usual = self.usual_questions();
        let answer = |((name, by, of), lists): (&ListPlace, &Lists)| {
            let values = values(question, by)?;
            let (list, sums) =
                (called(name, Some(&shown(*of)), usual[&**name] == *of), lists.all.look_up(&key_of(&values)));
            Some(KeyAnswer { list, by: by.clone(), sums })
        };
        lists.filter_map(answer).collect()
    }

    /// The answer. `of_fleet` says whether a kind of key is that of the fleet on its day.
    pub fn answer(&self, of: Option<String>, top: usize, of_fleet: impl Fn(&str, Kind) -> bool) -> WindowAnswer {
        let usual = self.usual_questions();
        let stated = |name: &str, question: Asked| Stated { question, is_usual: usual[name] == question };
        let lists = self.lists.iter().filter(|(_, lists)| !lists.routers.is_empty());
        let lists = lists.map(|((name, _, question), lists)| lists.answer(name, stated(name, *question), top));
        let spread = self.spread.iter().filter(|((name, _, _, kind, _), _)| of_fleet(name, *kind));
        let spread =
            spread.map(|((name, by, question, ..), union)| union.answer((name, by), stated(name, *question), top));
        let (mut lists, mut spread): (Vec<_>, Vec<_>) = (lists.collect(), spread.collect());
        lists.sort_by(|one, other| (&one.name, !one.is_usual).cmp(&(&other.name, !other.is_usual)));
        spread.sort_by(|one, other| (&one.name, !one.is_usual).cmp(&(&other.name, !other.is_usual)));
        WindowAnswer {
            of,
            start: self.start,
            end: self.end,
            routers: self.routers.len(),
            reports: self.reports,
            totals: self.seen.into(),
            lost: self.account.lost().into(),
            sampled_out: self.account.sampled_out().into(),
            not_in_lists: self.account.reasons().iter().map(|(of, sums)| (of.clone(), (*sums).into())).collect(),
            not_measured: self.account.unmeasured().clone(),
            trust: self.account.facts_of_fleet(),
            uncertain: self.account.uncertain().map(|Uncertain { packets, bytes }| {
                let [packets, bytes] = [packets, bytes].map(|Bounds { lower, upper }| Bounded { lower, upper });
                UncertainAnswer { packets, bytes }
            }),
            distinct: self.distinct(&usual, &of_fleet),
            lists,
            spread,
        }
    }

    fn distinct(&self, usual: &BTreeMap<&str, Asked>, of_fleet: impl Fn(&str, Kind) -> bool) -> Vec<DistinctAnswer> {
        let mut answers = Vec::new();
        let mut places: Vec<(&str, Asked)> =
            self.distinct.keys().map(|(name, question, _)| (name.as_str(), *question)).collect();
        places.sort_by_key(|(name, question)| (*name, usual[name] != *question, *question));
        places.dedup();
        for (name, question) in places {
            let stated = Stated { question, is_usual: usual[name] == question };
            let all =
                self.distinct.range((name.to_owned(), question, Kind::FIRST)..=(name.to_owned(), question, Kind::LAST));
            let (ours, others): (Vec<_>, Vec<_>) = all.partition(|((.., kind), _)| of_fleet(name, *kind));
            let proven = if others.is_empty() { self.proven(name) } else { 0 };
            answers.extend(joined_count(name, stated, &ours).map(|count| count.at_least(proven)));
            answers.extend(others.into_iter().filter_map(|one| {
                let apart = joined_count(name, stated, &[one])?;
                Some(DistinctAnswer { is_fleet: false, ..apart })
            }));
        }
        answers
    }

    /// How many distinct values the rows of a list prove: that list is of the same reports as the count.
    fn proven(&self, count: &str) -> u64 {
        let list = COUNTED.iter().find(|(of, _)| *of == count && !self.unpaired.contains(of));
        let questions = self.distinct.keys().filter(|(name, ..)| name == count).map(|(_, question, _)| question);
        if questions.collect::<BTreeSet<_>>().len() > 1 {
            return 0;
        }
        let lists = list.into_iter().flat_map(|(_, list)| {
            self.lists.iter().filter(move |((name, by, question), _)| {
                name == list && *question == asked(name, by, None).and_then(key_id)
            })
        });
        let rows = lists.map(|(_, lists)| lists.all.top(usize::MAX, Metric::Packets));
        rows.map(|rows| rows.iter().filter(|row| row.lower.packets > 0).count() as u64).max().unwrap_or(0)
    }

    fn questions(&self) -> Questions<'_> {
        let mut all = Questions::new();
        let lists = self.lists.iter().map(|((name, _, asked), of)| (name, *asked, &of.routers, of.count));
        let distinct = self.distinct.iter().map(|((name, asked, _), of)| (name, *asked, &of.routers, of.count));
        let spread = self.spread.iter().map(|((name, _, asked, ..), of)| (name, *asked, &of.routers, of.count));
        for (name, question, routers, count) in lists.chain(distinct).chain(spread) {
            let known = all.entry(name).or_default().entry(question).or_default();
            known.0.join(routers);
            known.1 += count;
        }
        all
    }

    /// The question that most routers ask under each name; of two, the one with more sketches.
    fn usual_questions(&self) -> BTreeMap<&str, Asked> {
        let most = |questions: BTreeMap<Asked, (Routers, u64)>| {
            let usual = questions.iter().max_by_key(|(_, (routers, count))| (routers.len(), *count));
            usual.and_then(|(question, _)| *question)
        };
        self.questions().into_iter().map(|(name, questions)| (name, most(questions))).collect()
    }

    /// The routers that ask another question than most under a name.
    pub fn other_questions(&self) -> Vec<(Router, String)> {
        let usual = self.usual_questions();
        let mut others = Vec::new();
        for (name, questions) in self.questions() {
            for (question, (routers, _)) in questions.into_iter().filter(|(question, _)| usual[name] != *question) {
                let detail = format!("{name}: question {} instead of {}", shown(question), shown(usual[name]));
                others.extend(routers.iter().map(|router| (router, detail.clone())));
            }
        }
        others
    }
}

/// A question as an answer states it.
#[derive(Clone, Copy)]
struct Stated {
    question: Asked,
    is_usual: bool,
}

impl Stated {
    fn text(self) -> Option<String> {
        self.question.map(|question| format!("{question:016x}"))
    }
}

fn shown(question: Asked) -> String {
    question.map_or_else(|| NOT_STATED.to_owned(), |question| format!("{question:016x}"))
}

/// Returns the name under which a list is shown, which tells those with another question than most apart.
pub fn called(name: &str, question: Option<&str>, is_usual: bool) -> String {
    if is_usual { name.to_owned() } else { format!("{name} (question {})", question.unwrap_or(NOT_STATED)) }
}

/// The values of these fields in a key as `weir ask` takes it, such as `src_ip=192.0.2.7,port=443`.
fn values<'q>(question: &'q str, by: &[String]) -> Option<Vec<&'q str>> {
    let (mut values, mut rest) = (Vec::new(), question);
    for (nth, field) in by.iter().enumerate() {
        rest = rest.strip_prefix(field)?.strip_prefix('=')?;
        let Some(next) = by.get(nth + 1) else {
            values.push(rest);
            return Some(values).filter(|values| !values.iter().any(|value| value.contains('=')));
        };
        let (value, after) = rest.split_once(',').filter(|(_, after)| after.starts_with(&**next))?;
        values.push(value);
        rest = after;
    }
    Some(values).filter(|_| rest.is_empty())
}

/// The key of a list with these values.
fn key_of(values: &[&str]) -> String {
    if values.is_empty() { "*".to_owned() } else { values.join(" ") }
}

/// Adds a sketch, and the packets that may have been of more values. Returns whether there is room for it.
fn join<K: Ord, S>(
    entry: Entry<'_, K, Union<S>>,
    (router, missing): (Router, u64),
    (sketch, bytes): (S, usize),
    room: &mut usize,
    merge: impl Fn(&mut S, &S) -> bool,
) -> bool {
    match entry {
        Entry::Vacant(place) => {
            let Some(rest) = room.checked_sub(PLACE_BYTES + bytes) else { return false };
            *room = rest;
            let mut routers = Routers::default();
            routers.insert(router);
            place.insert(Union { all: sketch, missing, routers, count: 1 });
        }
        // The place says that both have the same key and size.
        Entry::Occupied(mut union) => {
            let union = union.get_mut();
            if merge(&mut union.all, &sketch) {
                union.missing = union.missing.saturating_add(missing);
                union.routers.insert(router);
                union.count += 1;
            }
        }
    }
    true
}

/// The count of one key, or bounds of the count of several.
fn joined_count(name: &str, stated: Stated, unions: &[(&CountPlace, &Union<HyperLogLog>)]) -> Option<DistinctAnswer> {
    let ((.., kind), first) = unions.first()?;
    // Each of several days may fail.
    let confidence = 1.0 - (1.0 - CONFIDENCE) / unions.len() as f64;
    let counts = unions.iter().map(|(_, union)| {
        let Estimate { value, lower, upper } = union.all.bounds_at(confidence);
        Estimate { value, lower, upper: upper.saturating_add(union.missing) }
    });
    let counts: Vec<Estimate> = counts.collect();
    let mut routers = Routers::default();
    for (_, union) in unions {
        routers.join(&union.routers);
    }
    Some(DistinctAnswer {
        name: name.to_owned(),
        question: stated.text(),
        is_usual: stated.is_usual,
        value: counts.iter().map(|count| count.value).max()?,
        lower: counts.iter().map(|count| count.lower).max()?,
        upper: counts.iter().fold(0, |sum, count| sum.saturating_add(count.upper)),
        confidence: CONFIDENCE,
        routers: routers.len(),
        keys: unions.len(),
        is_fleet: true,
        key_id: (unions.len() == 1).then(|| format!("{:016x}", kind.key_id)),
        lg_k: first.all.precision(),
    })
}

impl Lists {
    fn answer(&self, name: &str, stated: Stated, top: usize) -> ListAnswer {
        let others = self.all.others();
        ListAnswer {
            name: name.to_owned(),
            question: stated.text(),
            is_usual: stated.is_usual,
            by: self.all.by().to_vec(),
            confidence: self.all.confidence(),
            routers: self.routers.len(),
            others: others.into(),
            by_bytes: self.rows(top, Metric::Bytes, others),
            by_packets: self.rows(top, Metric::Packets, others),
        }
    }

    fn rows(&self, top: usize, metric: Metric, others: Tally) -> Vec<RowAnswer> {
        let mut uppers: Vec<u64> = self.all.top(usize::MAX, metric).iter().map(|sums| metric.of(sums.upper)).collect();
        uppers.sort_unstable_by(|one, other| other.cmp(one));
        let row = |KeySums { key, lower, upper }: KeySums| {
            let certain = metric.of(lower);
            // A row that is not exact is one of those above its own lower bound.
            let itself = usize::from(metric.of(upper) > certain);
            let above = uppers.partition_point(|upper| *upper > certain) - itself;
            RowAnswer {
                key,
                packets: Bounded { lower: lower.packets, upper: upper.packets },
                bytes: Bounded { lower: lower.bytes, upper: upper.bytes },
                is_certain: above < top && metric.of(others) <= certain,
            }
        };
        self.all.top(top, metric).into_iter().map(row).collect()
    }
}

impl Union<Spread<ViewKey>> {
    fn answer(&self, (name, fields): (&str, &[String]), stated: Stated, top: usize) -> SpreadAnswer {
        let parsed: Option<Vec<Field>> = fields.iter().map(|field| Field::parse(field).ok()).collect();
        let layout = parsed.and_then(|fields| KeyLayout::new(&fields, 1).ok());
        // The names of a router's networks, systems and countries are not in its sketch.
        let (networks, geo, directions) = (Networks::new(&[]), Geo::default(), Directions::default());
        let facts = Facts { networks: &networks, geo: &geo, directions: &directions };
        let row = |Spreader { hash: _, key, touched: Estimate { value, lower, upper } }: Spreader<ViewKey>| {
            let shown = layout.as_ref().map(|layout| layout.show(&key, facts, |_, _| ()));
            let values = shown.iter().flat_map(|shown| shown.values());
            let values: Vec<String> =
                values.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
            SpreadRow { key: values.join(" "), value, lower, upper: upper.saturating_add(self.missing) }
        };
        SpreadAnswer {
            name: name.to_owned(),
            question: stated.text(),
            is_usual: stated.is_usual,
            by: fields.to_vec(),
            confidence: SPREAD_CONFIDENCE,
            routers: self.routers.len(),
            rows: self.all.survey().top(top).into_iter().filter(|found| found.touched.value > 0).map(row).collect(),
        }
    }
}
