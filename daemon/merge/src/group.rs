//! One window of all routers, of a site, or of one router: everything that is added up.

use std::collections::{BTreeMap, btree_map::Entry};

use jiff::Timestamp;
use weir_common::{ledger::Tally, sketch::Metric};
use weir_config::{
    Estimates,
    view::{By, Field, ViewKey},
};
use weir_measure::question::Views;
use weir_report::{
    Account,
    sketches::{KeySums, ListSketch, ListUnion, Mismatch},
};
use weir_sketch::{
    Estimate, Geometry, HyperLogLog, Spread, Spreader, Weight as _, hyperloglog::CONFIDENCE,
    spread::CONFIDENCE as SPREAD_CONFIDENCE,
};

use crate::{
    answer::{Bounded, DistinctAnswer, ListAnswer, RowAnswer, SpreadAnswer, SpreadRow, WindowAnswer},
    line::{Counted, Report, Unpacked},
    routers::{ROUTERS_BYTES, Router, Routers},
};

/// The most rows of a list while it is added up: some 600 KiB.
const ROWS: usize = 4_096;

/// What the fields of a place take beside a sketch: a list has at most so many bytes of names.
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
    /// The fingerprint.
    pub key_id: u64,
    /// The number of registers as a power of two; 0 for spread sketches.
    pub lg_k: u32,
}

/// Everything of a window.
#[derive(Debug)]
pub struct Group {
    start: Timestamp,
    end: Timestamp,
    routers: Routers,
    reports: u64,
    /// What all sketches take, in bytes.
    bytes: usize,
    seen: Tally,
    account: Account,
    distinct: BTreeMap<(String, Kind), Union<HyperLogLog>>,
    lists: BTreeMap<(String, Vec<String>), Lists>,
    spread: BTreeMap<SpreadPlace, Union<Spread<ViewKey>>>,
}

/// The geometry of a spread sketch.
type Lines = (usize, usize);
/// The name of a spread sketch, the fields of its keys, its key and its geometry: those with the same ones are joined.
type SpreadPlace = (String, Vec<String>, Kind, Lines);

/// What a list says about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyAnswer {
    /// The list's name.
    pub list: String,
    /// The fields of the key.
    pub by: Vec<String>,
    /// The bounds.
    pub sums: KeySums,
}

#[derive(Debug)]
struct Union<S> {
    all: S,
    missing: u64,
    routers: Routers,
}

#[derive(Debug)]
struct Lists {
    all: ListUnion,
    routers: Routers,
}

impl Group {
    /// Nothing yet.
    pub fn new(start: Timestamp) -> Self {
        let (routers, seen, account) = Default::default();
        let (distinct, lists, spread) = Default::default();
        Self { start, end: start, routers, reports: 0, bytes: 0, seen, account, distinct, lists, spread }
    }

    /// Adds what is exact of a report.
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
        let (before, mut refused) = (room, Vec::new());
        for Counted { name, key_id, missing, sketch } in sketches.distinct {
            let kind = Kind { day, key_id, lg_k: sketch.precision() };
            let (bytes, place) = (sketch.memory_bytes(), (name.clone(), kind));
            let merge = |all: &mut HyperLogLog, one: &HyperLogLog| all.merge(one).is_ok();
            let has_room = join(self.distinct.entry(place), (router, missing), (sketch, bytes), &mut room, merge);
            refused.extend((!has_room).then_some((name, Refusal::NoRoom)));
        }
        for (by, Counted { name, key_id, missing, sketch }) in sketches.spread {
            let Geometry::Lines { count, per_key } = sketch.geometry() else { continue };
            let place = (name.clone(), by, Kind { day, key_id, lg_k: 0 }, (count, per_key));
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
        let place = (list.name.clone(), list.by.clone());
        let new = || Lists { all: ListUnion::new(&list.by, ROWS), routers: Routers::default() };
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
        if lists.all.memory_bytes() > bytes + *room {
            // Rows of small keys make room. All bounds still hold.
            lists.all.keep(rows / 4);
        }
        *room = (*room + bytes).saturating_sub(lists.all.memory_bytes());
        None
    }

    /// What all its sketches take, in bytes.
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
        let answer = |((name, by), lists): (&(String, Vec<String>), &Lists)| {
            let values = values(question, by)?;
            Some(KeyAnswer { list: name.clone(), by: by.clone(), sums: lists.all.look_up(&key_of(&values)) })
        };
        lists.filter_map(answer).collect()
    }

    /// The answer. `of_fleet` says whether a kind of key is that of the fleet on its day.
    pub fn answer(&self, of: Option<String>, top: usize, of_fleet: impl Fn(&str, Kind) -> bool) -> WindowAnswer {
        let lists = self.lists.iter().filter(|(_, lists)| !lists.routers.is_empty());
        let spread = self.spread.iter().filter(|((name, _, kind, _), _)| of_fleet(name, *kind));
        WindowAnswer {
            of,
            start: self.start,
            end: self.end,
            routers: self.routers.len(),
            reports: self.reports,
            totals: self.seen.into(),
            lost: self.account.lost().into(),
            sampled_out: self.account.sampled_out().into(),
            not_in_lists: self
                .account
                .reasons()
                .iter()
                .map(|(reason, sums)| (reason.clone(), (*sums).into()))
                .collect(),
            not_measured: self.account.unmeasured().clone(),
            trust: self.account.facts_of_fleet(),
            distinct: self.distinct(of_fleet_of(&of_fleet)),
            lists: lists.map(|((name, _), lists)| lists.answer(name, top)).collect(),
            spread: spread.map(|((name, by, ..), union)| union.answer(name, by, top)).collect(),
        }
    }

    fn distinct(&self, of_fleet: impl Fn(&str, Kind) -> bool) -> Vec<DistinctAnswer> {
        let mut answers = Vec::new();
        let all: Vec<_> = self.distinct.iter().collect();
        for of_name in all.chunk_by(|((one, _), _), ((other, _), _)| one == other) {
            let [((name, _), _), ..] = of_name else { continue };
            let (ours, others): (Vec<_>, Vec<_>) =
                of_name.iter().copied().partition(|((_, kind), _)| of_fleet(name, *kind));
            answers.extend(joined_count(name, &ours));
            answers.extend(others.into_iter().filter_map(|one| {
                let apart = joined_count(name, &[one])?;
                Some(DistinctAnswer { is_fleet: false, ..apart })
            }));
        }
        answers
    }
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

/// By reference, so that it can be used again.
fn of_fleet_of<'a>(of_fleet: &'a impl Fn(&str, Kind) -> bool) -> impl Fn(&str, Kind) -> bool + 'a {
    move |name, kind| of_fleet(name, kind)
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
            place.insert(Union { all: sketch, missing, routers });
        }
        // The place says that both have the same key and size.
        Entry::Occupied(mut union) => {
            let union = union.get_mut();
            if merge(&mut union.all, &sketch) {
                union.missing = union.missing.saturating_add(missing);
                union.routers.insert(router);
            }
        }
    }
    true
}

/// The count of one key, or bounds of the count of several.
fn joined_count(name: &str, unions: &[(&(String, Kind), &Union<HyperLogLog>)]) -> Option<DistinctAnswer> {
    let ((_, kind), first) = unions.first()?;
    // Each of several days may fail.
    let confidence = 1.0 - (1.0 - CONFIDENCE) / unions.len() as f64;
    let counts = unions.iter().map(|(_, union)| {
        let Estimate { value, lower, upper } = union.all.bounds_at(confidence);
        Estimate { value, lower, upper: upper.saturating_add(union.missing) }
    });
    let counts: Vec<Estimate> = counts.collect();
    let mut routers = Routers::default();
    unions.iter().for_each(|(_, union)| routers.join(&union.routers));
    Some(DistinctAnswer {
        name: name.to_owned(),
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
    fn answer(&self, name: &str, top: usize) -> ListAnswer {
        let others = self.all.others();
        ListAnswer {
            name: name.to_owned(),
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
            // It is one of those above its own lower bound.
            let above = uppers.iter().take_while(|upper| **upper > certain).count();
            RowAnswer {
                key,
                packets: Bounded { lower: lower.packets, upper: upper.packets },
                bytes: Bounded { lower: lower.bytes, upper: upper.bytes },
                is_certain: above.max(1) <= top && metric.of(others) <= certain,
            }
        };
        self.all.top(top, metric).into_iter().map(row).collect()
    }
}

impl Union<Spread<ViewKey>> {
    fn answer(&self, name: &str, fields: &[String], top: usize) -> SpreadAnswer {
        let parsed: Option<Vec<Field>> = fields.iter().map(|field| Field::parse(field).ok()).collect();
        let by = parsed.and_then(|fields| By::new(&fields, 1).ok());
        let views = Views::built_in(&Estimates::default(), 1);
        let row = |Spreader { hash: _, key, touched: Estimate { value, lower, upper } }: Spreader<ViewKey>| {
            let shown = by.as_ref().map(|by| by.show(&key, views.facts(), |_, _| ()));
            let values = shown.iter().flat_map(|shown| shown.values());
            let values: Vec<String> =
                values.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
            SpreadRow { key: values.join(" "), value, lower, upper: upper.saturating_add(self.missing) }
        };
        SpreadAnswer {
            name: name.to_owned(),
            by: fields.to_vec(),
            confidence: SPREAD_CONFIDENCE,
            routers: self.routers.len(),
            rows: self.all.survey().top(top).into_iter().filter(|found| found.touched.value > 0).map(row).collect(),
        }
    }
}
