//! The answer of a view for a window: chooses the largest keys of its merged sketch, and computes the bounds of each.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use weir_common::{ledger::Tally, sketch::Metric};
use weir_config::view::{KeyLayout, Measure, ViewKey};
use weir_sketch::{Estimate, hash::KeyedHash};

use super::{
    beyond::RankedPrefixes,
    entropy::{Distribution, Entropy, UnlistedKeys},
    heavy_hitters::KeyEstimate,
    hosts::{HostNumbers, NetworkNumbers},
    ranking::{Ranked, Ranking, keep_largest},
    uncertainty::{Uncertainty, ViewUncertainty},
    whole::reconcile,
};
use crate::{
    by::By,
    question::{Question, Structure, sketch::ViewSketch},
};

/// The answer of a view.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The probability that the bounds of all its rows hold.
    pub confidence: f64,
    /// How evenly its measure is spread over its keys, if the view asks for it and there was any traffic.
    pub entropy: Option<Entropy>,
    /// One table, or one for each interface slot that has rows.
    pub tables: Vec<Table>,
    /// The same tables with as many rows as the history remembers; empty if it does not remember the view.
    pub remembered: Vec<Table>,
    /// The numbers of the hosts in these tables, if the view has hosts.
    pub hosts: Arc<BTreeMap<ViewKey, HostNumbers>>,
    /// The numbers of the named networks, if the view has hosts.
    pub networks: Arc<[NetworkNumbers]>,
}

/// A list of addresses that feeds a view of prefixes.
pub(super) struct Feed<'a> {
    /// The answer of the other view.
    pub answer: &'a Answer,
    /// The other view's merged sketch.
    pub sketch: &'a ViewSketch,
    /// The other view's key.
    pub by: &'a By,
    /// The hash of its keys.
    pub hash: &'a KeyedHash,
}

impl Feed<'_> {
    /// The sum of the records of one of its keys.
    fn counted(&self, key: &ViewKey) -> Tally {
        self.sketch.look_up(self.by, self.hash, key).map_or(Tally::default(), |held| held.value)
    }
}

/// The rows of a view, or of one interface in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The interface's slot, if each interface has its own table.
    pub slot: Option<usize>,
    /// The total of all records that the view matched, if rows are bytes and packets. The rows are parts of it.
    pub total: Option<Ranked<ViewKey>>,
    /// The rows, in the order of the table.
    pub rows: Rows,
}

/// Rows, the largest first.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// Rows that have bytes and packets.
    Tallies(Ranking<ViewKey>),
    /// Bytes and packets of prefixes, and the part of them that unlisted addresses have.
    Prefixes(RankedPrefixes),
    /// Flows, new flows, or distinct values.
    Distinct(Vec<(ViewKey, Estimate)>),
}

impl Answer {
    /// The answer without any shard.
    pub(super) fn empty() -> Self {
        let (hosts, networks) = (Arc::default(), Arc::default());
        Self { confidence: 1.0, entropy: None, tables: Vec::new(), remembered: Vec::new(), hosts, networks }
    }

    /// Reads the merged sketch of a question. `list` has the list of addresses that feeds it and their sketch, if it is
    /// one of prefixes.
    pub(super) fn read(
        question: &Question,
        sketch: &ViewSketch,
        list: Option<&Feed<'_>>,
        uncertainty: &Uncertainty,
    ) -> Self {
        let whole = uncertainty.whole(question.is_fed_by_all);
        let uncertainties = uncertainty.of_view(whole, sketch.total, parts(question));
        // The bounds of sums are certain, unless packets were left out.
        let is_sure = question.view.measure.is_tally() && uncertainty.sampling.is_none();
        let mut remembered = Vec::new();
        let tables = match question.view.measure {
            _ if matches!(question.structure, Structure::Prefixes { .. }) => {
                let counted = |key: &ViewKey| list.map_or(Tally::default(), |list| list.counted(key));
                let listed = list.and_then(|list| list.answer.ranking());
                let rows = RankedPrefixes::new(sketch.held(), listed, counted, question.view.top, &uncertainties);
                vec![Table { slot: None, total: None, rows: Rows::Prefixes(rows) }]
            }
            Measure::Bytes | Measure::Packets => {
                let by_slot = sketch.totals(&question.by);
                let total_of = |slot: Option<usize>| match slot {
                    Some(slot) => by_slot.get(slot).copied().unwrap_or_default(),
                    None => sketch.total,
                };
                let most = question.view.top.max(question.remembered);
                let errors = (&uncertainties, uncertainty);
                let largest = Largest::of(question, sketch.held(), most, Some(sketch.most_of_others()), errors);
                if question.remembered > 0 {
                    remembered = largest.tables(question.remembered_rows(largest.count()), total_of);
                }
                largest.tables(question.reported_rows(largest.count()), total_of)
            }
            Measure::NewFlows => vec![count_new(question, sketch.held(), sketch.total, uncertainty)],
            Measure::Flows | Measure::Distinct(_) => count(question, sketch, uncertainty),
        };
        let entropy = if question.view.has_entropy { entropy(question, sketch, uncertainty) } else { None };
        let hosts = sketch.hosts().map_or_else(Arc::default, |hosts| {
            let keys = keys_of(tables.iter().chain(&remembered));
            let counts = hosts.counts(&keys, 1.0 - uncertainty.confidence);
            let held: BTreeMap<ViewKey, KeyEstimate<ViewKey>> = sketch
                .held()
                .filter(|held| keys.binary_search(&held.key).is_ok())
                .map(|held| (held.key, held))
                .collect();
            let numbers = keys.iter().zip(counts).filter_map(|(key, counts)| {
                Some((*key, HostNumbers::new(counts, held.get(key)?, &uncertainties, uncertainty)))
            });
            Arc::new(numbers.collect())
        });
        let named = question.own.iter().flat_map(|own| own.names());
        let networks = named
            .zip(sketch.hosts().map_or(&[][..], |hosts| hosts.networks()))
            .map(|(name, counted)| NetworkNumbers::new(name, *counted, &uncertainties))
            .collect();
        let confidence = if is_sure { 1.0 } else { uncertainty.confidence };
        Self { confidence, entropy, tables, remembered, hosts, networks }
    }

    /// The same answer with the rows that the history remembers. They are taken out.
    pub fn take_remembered(&mut self) -> Self {
        let (confidence, tables) = (self.confidence, std::mem::take(&mut self.remembered));
        let (hosts, networks) = (self.hosts.clone(), self.networks.clone());
        Self { confidence, entropy: None, tables, remembered: Vec::new(), hosts, networks }
    }

    /// The rows in both orders, if the view has prefixes.
    pub fn prefixes(&self) -> Option<&RankedPrefixes> {
        match self.tables.first() {
            Some(Table { slot: None, rows: Rows::Prefixes(ranking), .. }) => Some(ranking),
            _ => None,
        }
    }

    /// The rows of the only table in both orders, if the view has bytes and packets.
    pub fn ranking(&self) -> Option<&Ranking<ViewKey>> {
        match self.tables.first() {
            Some(Table { slot: None, total: _, rows: Rows::Tallies(ranking) }) => Some(ranking),
            _ => None,
        }
    }
}

/// The keys of the rows of these tables, each once and in order.
pub(super) fn keys_of<'t>(tables: impl Iterator<Item = &'t Table>) -> Vec<ViewKey> {
    let rankings =
        tables.filter_map(|table| if let Rows::Tallies(ranking) = &table.rows { Some(ranking) } else { None });
    let rows = rankings.flat_map(|ranking| ranking.by_bytes.iter().chain(&ranking.by_packets));
    rows.map(|row| row.key).collect::<BTreeSet<_>>().into_iter().collect()
}

/// How many bounded numbers a record contributes to: the total and one row, or two rows if both addresses count. A host
/// also has a number for each direction, and so has its network if that has a name.
pub(super) fn parts(question: &Question) -> u64 {
    let sides = 1 + u64::from(question.by.layout.has_host());
    let has_networks = question.own.as_ref().is_some_and(|own| own.named() > 0);
    let numbers = if question.view.of_hosts { 2 * (1 + u64::from(has_networks)) } else { 1 };
    sides * numbers + u64::from(question.has_total)
}

/// The slot of the table that has a key.
pub(super) fn slot(question: &Question, key: &ViewKey) -> Option<usize> {
    if question.view.per_interface { question.by.layout.slot(key) } else { None }
}

/// The largest keys of a view in both orders, from which lists of several lengths are made.
pub(super) struct Largest<'a> {
    question: &'a Question,
    /// By interface slot, if each interface has its own table.
    keys: BTreeMap<Option<usize>, [Vec<KeyEstimate<ViewKey>>; 2]>,
    /// The most of a key that is not among these.
    others: Unlisted,
    /// Whether that is known.
    is_known: bool,
    uncertainties: &'a ViewUncertainty,
    window: &'a Uncertainty,
}

impl<'a> Largest<'a> {
    /// The largest of these keys, for lists of at most `most` rows. `others` is an upper bound for each key that is not
    /// one of these.
    pub(super) fn of(
        question: &'a Question,
        keys: impl Iterator<Item = KeyEstimate<ViewKey>>,
        most: usize,
        others: Option<Tally>,
        (uncertainties, window): (&'a ViewUncertainty, &'a Uncertainty),
    ) -> Self {
        // Keep one more than is listed: it shows how large a listed key had to be.
        let room = most + 1;
        let mut tables: BTreeMap<Option<usize>, [Vec<KeyEstimate<ViewKey>>; 2]> = BTreeMap::new();
        let mut unlisted = Unlisted(others.unwrap_or_default());
        if !question.view.per_interface {
            tables.insert(None, Default::default());
        }
        for held in keys {
            let value = Metric::each(|metric| metric.of(held.value).min(metric.of(uncertainties.total())));
            let held = KeyEstimate { value, ..held };
            let [by_bytes, by_packets] = tables.entry(slot(question, &held.key)).or_default();
            let left = [
                keep_largest(by_bytes, room, held, |h| (Reverse((h.value.bytes, h.value.packets)), h.key)),
                keep_largest(by_packets, room, held, |h| (Reverse((h.value.packets, h.value.bytes)), h.key)),
            ];
            unlisted.see(left.each_ref().map(Option::as_slice));
        }
        Self { question, keys: tables, others: unlisted, is_known: others.is_some(), uncertainties, window }
    }

    /// The number of tables.
    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }

    /// The tables with at most `rows` rows each. `total_of` has the sum of an interface slot or of all.
    pub(super) fn tables(&self, rows: usize, total_of: impl Fn(Option<usize>) -> Tally) -> Vec<Table> {
        self.keys.iter().map(|(slot, lists)| self.table(*slot, lists, rows, total_of(*slot))).collect()
    }

    fn table(&self, slot: Option<usize>, lists: &[Vec<KeyEstimate<ViewKey>>; 2], rows: usize, sum: Tally) -> Table {
        let Self { question, others, is_known, uncertainties, window, .. } = *self;
        let uncertainty = uncertainties.of_slot(slot, window);
        let mut total = if question.has_total {
            let held = KeyEstimate { key: ViewKey::default(), value: sum, lower: sum, upper: sum };
            uncertainty.ranked(&held, order(&question.view.measure), 0)
        } else {
            uncertainty.as_total()
        };
        let mut unlisted = others;
        unlisted.see(lists.each_ref().map(|list| list.get(rows..).unwrap_or_default()));
        // In a table of one interface, only keys of that interface may have a row.
        let is_known = is_known && slot.is_none();
        let [by_bytes, by_packets] = lists;
        let list = |keys, order, total: &mut _| listed(question, keys, rows, order, &uncertainty, total);
        let rows = Rows::Tallies(Ranking {
            unlisted: is_known.then(|| unlisted.bound(&uncertainty)),
            by_bytes: list(by_bytes, Metric::Bytes, &mut total),
            by_packets: list(by_packets, Metric::Packets, &mut total),
        });
        Table { slot, total: question.has_total.then_some(total), rows }
    }
}

/// The first of these keys as rows, whose bounds fit the total.
fn listed(
    question: &Question,
    keys: &[KeyEstimate<ViewKey>],
    rows: usize,
    order: Metric,
    uncertainty: &ViewUncertainty,
    total: &mut Ranked<ViewKey>,
) -> Vec<Ranked<ViewKey>> {
    let needed = keys.get(rows).map_or(0, |first_left_out| order.of(first_left_out.value));
    let mut rows: Vec<_> = keys.iter().take(rows).map(|held| uncertainty.ranked(held, order, needed)).collect();
    reconcile(rows.iter_mut(), total, !question.by.layout.has_host());
    rows.sort_by_key(|ranked| Reverse(ranked.estimate(order).value));
    rows
}

/// Upper bounds for the keys without a row: bytes in the order by bytes, and packets in the order by packets.
#[derive(Clone, Copy)]
struct Unlisted(Tally);

impl Unlisted {
    /// Notes keys that have no row in the order by bytes, and in that by packets.
    fn see(&mut self, [by_bytes, by_packets]: [&[KeyEstimate<ViewKey>]; 2]) {
        for key in by_bytes {
            self.0.bytes = self.0.bytes.max(key.upper.bytes);
        }
        for key in by_packets {
            self.0.packets = self.0.packets.max(key.upper.packets);
        }
    }

    /// The most that such a key truly has.
    fn bound(&self, uncertainty: &ViewUncertainty) -> Tally {
        Metric::each(|metric| uncertainty.bounds(metric, Tally::default(), self.0).1)
    }
}

fn count(question: &Question, sketch: &ViewSketch, uncertainty: &Uncertainty) -> Vec<Table> {
    /// Keys to look at for each row, if several tables share a sketch.
    const KEYS_PER_ROW: usize = 64;
    let mut tables: BTreeMap<Option<usize>, Vec<(ViewKey, Estimate)>> = BTreeMap::new();
    if !question.view.per_interface {
        tables.insert(None, Vec::new());
    }
    if let Some(distinct) = sketch.unique() {
        let counted = counted(question, distinct.bounds_at(uncertainty.confidence), uncertainty);
        tables.entry(None).or_default().push((KeyLayout::at(0), counted));
    }
    if let Some(spread) = sketch.spread() {
        let top = question.view.top;
        let looked_at = if question.view.per_interface { top * KEYS_PER_ROW } else { top };
        for spreader in spread.top(looked_at) {
            let rows = tables.entry(slot(question, &spreader.key)).or_default();
            if rows.len() < top && spreader.touched.value > 0 {
                rows.push((spreader.key, counted(question, spreader.touched, uncertainty)));
            }
        }
    }
    tables.into_iter().map(|(slot, rows)| Table { slot, total: None, rows: Rows::Distinct(rows) }).collect()
}

/// A sketch's count of distinct values, with bounds that allow for missing packets.
pub(super) fn counted(question: &Question, counted: Estimate, uncertainty: &Uncertainty) -> Estimate {
    // There cannot be more values than these fields can have.
    let most = question.of.as_ref().and_then(|of| of.layout.domain()).map_or(u64::MAX, |values| values as u64);
    let hosts = 1 + u64::from(question.of.as_ref().is_some_and(|of| of.layout.has_host()));
    let packets = uncertainty.most_keys(question.is_fed_by_all);
    uncertainty.distinct(counted, most.min(packets.saturating_mul(hosts)))
}

/// The new flows of a key, out of all `total` counted new flows, with bounds that allow for missing packets.
pub(super) fn new_flows(total: Tally, held: KeyEstimate<ViewKey>, uncertainty: &Uncertainty) -> Estimate {
    let KeyEstimate { key: _, value, lower, upper } = held;
    let upper = upper.packets.min(total.packets);
    uncertainty.new_flows(Estimate { value: value.packets.min(upper), lower: lower.packets, upper })
}

fn entropy(question: &Question, sketch: &ViewSketch, uncertainty: &Uncertainty) -> Option<Entropy> {
    let (metric, confidence) = (order(&question.view.measure), uncertainty.confidence);
    // Both the bounds of keys and the bounds of their number may fail. If both are uncertain, each has half of the
    // probability.
    let half = 1.0 - (1.0 - uncertainty.confidence) / 2.0;
    let (is_missing, has_sketch) = (uncertainty.is_some(), sketch.keys().is_some());
    let uncertainty = Uncertainty {
        confidence: if is_missing && has_sketch { half } else { uncertainty.confidence },
        ..uncertainty.clone()
    };
    let uncertainties = uncertainty.of_view(uncertainty.whole(question.is_fed_by_all), sketch.total, parts(question));
    let estimate = |value, lower, upper| {
        let (lower, upper) = uncertainties.bounds(metric, lower, upper);
        Estimate { value: metric.of(value).clamp(lower, upper), lower, upper }
    };
    let known: Vec<Estimate> =
        sketch.held().map(|KeyEstimate { value, lower, upper, .. }| estimate(value, lower, upper)).collect();
    let found = known.len() as u64;
    let keys = match (sketch.keys(), sketch.cells()) {
        (Some(keys), _) => uncertainty.distinct(keys.bounds_at(uncertainty.confidence), u64::MAX),
        (None, cells) => {
            let keys = uncertainty.distinct(Estimate { value: found, lower: found, upper: found }, u64::MAX);
            Estimate { upper: keys.upper.min(cells.map_or(u64::MAX, |cells| cells as u64)), ..keys }
        }
    };
    // There are at least as many keys as were found.
    let [value, lower, upper] = [keys.value, keys.lower, keys.upper].map(|keys| keys.max(found));
    let others = if is_missing || sketch.has_strays() {
        UnlistedKeys::Each(estimate(Tally::default(), Tally::default(), sketch.most_of_others()).upper)
    } else {
        UnlistedKeys::Groups(sketch.light().map(|group| metric.of(group)).collect())
    };
    let total = estimate(sketch.total, sketch.total, sketch.total);
    let confidence = if is_missing || has_sketch { confidence } else { 1.0 };
    Distribution { known, total, keys: Estimate { value, lower, upper }, others }.entropy(confidence)
}

/// The keys with the most new flows. Each new flow was counted as one packet.
pub(super) fn count_new(
    question: &Question,
    keys: impl Iterator<Item = KeyEstimate<ViewKey>>,
    total: Tally,
    uncertainty: &Uncertainty,
) -> Table {
    let top = question.view.top;
    let mut largest: Vec<KeyEstimate<ViewKey>> = Vec::new();
    for held in keys {
        _ = keep_largest(&mut largest, top, held, |held| (Reverse(held.value.packets), held.key));
    }
    let row = |held: KeyEstimate<ViewKey>| (held.key, new_flows(total, held, uncertainty));
    let mut rows: Vec<_> = largest.into_iter().map(row).collect();
    rows.sort_by_key(|(_, counted)| Reverse(counted.value));
    Table { slot: None, total: None, rows: Rows::Distinct(rows) }
}

/// The order of the rows of a view with this measure.
pub const fn order(measure: &Measure) -> Metric {
    if matches!(measure, Measure::Packets) { Metric::Packets } else { Metric::Bytes }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, net::IpAddr, sync::Arc};

    use weir_common::{
        flow::{Address, FlowKey, Scope},
        ledger::{Ledger, Tally},
        record::Record,
    };
    use weir_config::{
        Config,
        view::{Field, Side},
    };
    use weir_datapath::edge::Edge;
    use weir_sketch::{
        Seen,
        hash::{Key, mix},
    };

    use super::*;
    use crate::{
        closed::Closed,
        new_flows::FilterState,
        prefixes::Prefix,
        question::Views,
        shard::{Secrets, Shard},
        summary::Summary,
        views::answers_with,
        whole::{Counted, Whole},
    };

    const KEY: Key = Key([1, 2]);

    /// The views of this YAML, for four interfaces, without standard views.
    fn views(yaml: &str) -> (Config, Arc<Views>) {
        let config = Config::parse(&format!("standard_views: []\nviews: {yaml}"), "a test").unwrap();
        let views = Views::new(&config, 4).unwrap();
        (config, views)
    }

    /// Records of some thousand sources on three interfaces.
    fn records() -> Vec<Record> {
        let record = |nth: u64| {
            let random = mix(nth);
            let source = Address::from_v4_word((random % 5_000) as u32);
            let proto = if random.is_multiple_of(3) { 17 } else { 6 };
            let interface = (mix(!nth) % 3) as u8;
            let key = FlowKey::new(source, Address::from_v4_word(9), proto, 0).with_scope(Scope::new(interface, 0));
            Record { key, packets: 1 + nth as u32 % 3, bytes: 60 + nth % 1_400, sampling: 1, ..Record::default() }
        };
        (0..30_000).map(record).collect()
    }

    /// The windows of workers that have these records each.
    fn window(config: &Config, views: &Arc<Views>, workers: &[&[Record]]) -> Vec<Closed> {
        let seen = Seen::with_capacity(100_000, 0.001, KEY.id()).unwrap();
        let mut coins = 0;
        let closed = |records: &&[Record]| {
            let mut shard = Box::new(Shard::new(&config.estimates, views, KEY));
            coins += 1;
            shard.rekey(KEY, &[], Secrets { window: 1, coins: Key([mix(coins); 2]), places: Key([7, 8]) });
            for records in records.chunks(100) {
                shard.absorb(records, &seen);
            }
            shard.settle(&seen);
            Closed::new(shard, Edge::empty(4))
        };
        workers.iter().map(closed).collect()
    }

    fn uncertainty() -> Uncertainty {
        let mut all = Ledger::default();
        all.counters.seen = Tally::new(1 << 40, 1 << 50);
        let everything = Whole::new(&[all], Counted::Everywhere, None);
        Uncertainty {
            lost: Tally::default(),
            in_buffers: Tally::default(),
            drawn: Tally::default(),
            unknown: 0,
            missed_flows: 3,
            sampling: None,
            once: everything,
            everywhere: everything,
            slots: Vec::new(),
            confidence: 0.999,
        }
    }

    /// The answers of workers that have these records each.
    fn answers(config: &Config, views: &Arc<Views>, workers: &[&[Record]]) -> Vec<Answer> {
        answers_with(1, &mut window(config, views, workers), views, &uncertainty()).unwrap()
    }

    #[test]
    fn threads_and_the_order_of_workers_do_not_matter() {
        let text = "views: [{name: same, by: [src_ip], measure: packets, top: 50}, {name: entropy, by: [src_ip, proto], \
                    entropy: true}, {name: new, by: [src_ip], measure: new_flows}, {name: each, by: [proto], per: interface}]";
        let config =
            Config::parse(&format!("estimates: {{top_candidates: 64, top_error: 0.01}}\n{text}"), "a test").unwrap();
        let plan = Views::new(&config, 4).unwrap();
        let same = plan.own().next().unwrap().1;
        assert!(same.answered_by.is_some() && plan.questions.iter().any(|question| question.fed_by.is_some()));
        let records = records();
        let of_workers: Vec<_> = records.chunks(5_000).collect();
        // The filter of seen flows is shared, so workers are fed in the same order, and merged in another one.
        let ordered = |order: &dyn Fn(&mut [Closed])| {
            let mut window = window(&config, &plan, &of_workers);
            order(&mut window);
            window
        };
        let answer = |helpers, order: &dyn Fn(&mut [Closed])| {
            answers_with(helpers, &mut ordered(order), &plan, &uncertainty()).unwrap()
        };
        let seen = Seen::with_capacity(1_000, 0.001, KEY.id()).unwrap();
        let summary = |order: &dyn Fn(&mut [Closed])| {
            Summary::merge(&mut ordered(order), &plan, 4, FilterState::steadily(&seen), 0.999).unwrap().views
        };
        let reported = summary(&|_| ());
        let alone = answer(0, &|_| ());
        assert_eq!(alone.len(), plan.questions.len());
        assert!(alone.iter().all(|answer| !answer.tables.is_empty()), "{alone:?}");
        for helpers in [1, 3, 20] {
            assert!(answer(helpers, &|_| ()) == alone, "{helpers} threads");
        }
        let mut drawn = 0;
        let orders = (1..of_workers.len()).flat_map(|first| [(first, false), (first, true)]);
        for (first, is_reversed) in orders.chain([(0, true)]) {
            let order = |window: &mut [Closed]| {
                window.rotate_left(first);
                if is_reversed {
                    window[1..].reverse();
                }
            };
            assert!(summary(&order) == reported, "a window is merged in an order of its own");
            let answers = answer(3, &order);
            for (question, (one, other)) in plan.questions.iter().zip(answers.iter().zip(&alone)) {
                // Which prefixes become candidates, and which keys of spreads have counters, depends on the order. But
                // in each order, their bounds hold.
                if matches!(question.structure, Structure::Prefixes { .. } | Structure::Spread { .. }) {
                    drawn += check_bounds(question, one, &records);
                } else {
                    assert!(one == other, "{} differs in another order", question.view.name);
                }
            }
        }
        assert!(drawn > 400, "{drawn} rows of prefixes and spreads");
    }

    /// Checks all rows of an answer about prefixes or distinct values. Returns how many there are.
    fn check_bounds(question: &Question, answer: &Answer, records: &[Record]) -> usize {
        let name = &question.view.name;
        let holds = |Estimate { value, lower, upper }: Estimate, truth: u64| {
            assert!(lower <= truth && truth <= upper, "{name}: {truth} is not within {lower} to {upper}");
            assert!(lower <= value && value <= upper, "{name}: {value} is not within {lower} to {upper}");
        };
        let is_of_sources = question.view.by.iter().any(|field| matches!(field, Field::Ip(Side::Src, _)));
        let (own, other) = if is_of_sources { (Side::Src, Side::Dst) } else { (Side::Dst, Side::Src) };
        let address = |record: &Record, side| if side == Side::Src { record.key.src } else { record.key.dst };
        let mut rows = 0;
        for table in &answer.tables {
            match &table.rows {
                Rows::Prefixes(ranked) => {
                    for row in ranked.by_bytes.iter().chain(&ranked.by_packets) {
                        let of_prefix =
                            |record: &&Record| Prefix::new(address(record, own), false).key() == row.all.key;
                        let truth: Tally = records.iter().filter(of_prefix).map(Record::tally).sum();
                        holds(row.all.packets, truth.packets);
                        holds(row.all.bytes, truth.bytes);
                        rows += 1;
                    }
                }
                Rows::Distinct(counts) => {
                    for (key, count) in counts {
                        let of_key = records.iter().filter(|record| {
                            let Address([high, low]) = address(record, own);
                            key.0[..2] == [high, low] || key.0[2..4] == [high, low]
                        });
                        // Nothing has ports here, so each source has touched one.
                        let values: HashSet<_> = of_key
                            .map(|record| match name.as_str() {
                                "ports_per_source" => [0; 2],
                                _ => address(record, other).0,
                            })
                            .collect();
                        holds(*count, values.len() as u64);
                        rows += 1;
                    }
                }
                Rows::Tallies(_) => panic!("{name} has prefixes or distinct values"),
            }
        }
        rows
    }

    #[test]
    fn the_history_remembers_more_rows_and_reports_stay_the_same() {
        let plan = |history: &str| {
            let text = format!("history: {history}\nviews: [{{name: few, by: [src_ip], top: 3}}]");
            let config = Config::parse(&text, "a test").unwrap();
            let views = Views::new(&config, 4).unwrap();
            (config, views)
        };
        let records = records();
        let truth = |key: &ViewKey, by: &By| -> Tally {
            let own = records.iter().filter(|record| by.flow(key).src_ip() == record.key.src_ip());
            own.map(Record::tally).sum()
        };
        let (with, without) = (plan("{rows: 64}"), plan("off"));
        let all = answers(&with.0, &with.1, &[&records[..9_000], &records[9_000..]]);
        let short = answers(&without.0, &without.1, &[&records[..9_000], &records[9_000..]]);
        let mut lists = 0;
        for (question, (mut one, other)) in with.1.questions.iter().zip(all.into_iter().zip(short)) {
            let longer = one.take_remembered();
            assert!(other.hosts.iter().all(|(host, numbers)| one.hosts.get(host) == Some(numbers)));
            one.hosts = other.hosts.clone();
            assert!(one == other, "{}: the report is another one", question.view.name);
            let name = question.view.name.as_str();
            for table in &longer.tables {
                let Rows::Tallies(Ranking { by_bytes, by_packets, unlisted }) = &table.rows else { panic!("{name}") };
                let least = match name {
                    "pairs" | "flows" | "sources" | "few" | "talkers" => 64,
                    // No address is an own one.
                    "hosts" => 0,
                    _ => 1,
                };
                assert!(by_bytes.len() >= least && by_packets.len() <= 64, "{name}: {} rows", by_bytes.len());
                if name != "sources" && name != "few" {
                    continue;
                }
                lists += 1;
                for row in by_bytes {
                    let truth = truth(&row.key, &question.by);
                    assert!((row.bytes.lower..=row.bytes.upper).contains(&truth.bytes), "{row:?} of {truth:?}");
                }
                let is_listed = |record: &&Record| {
                    by_bytes.iter().any(|row| question.by.flow(&row.key).src_ip() == record.key.src_ip())
                };
                let others = records.iter().filter(|record| !is_listed(record)).map(|record| record.key.src_ip());
                let others: HashSet<IpAddr> = others.take(200).collect();
                let most = others.iter().map(|ip| {
                    records.iter().filter(|record| record.key.src_ip() == *ip).map(|record| record.bytes).sum::<u64>()
                });
                assert!(most.max() <= unlisted.map(|most| most.bytes), "{name}: {unlisted:?}");
            }
        }
        assert_eq!(lists, 2);
    }

    #[test]
    fn the_total_of_each_table_is_the_sum_of_all_workers() {
        let (config, plan) = views(
            "[{name: hosts, by: [host], match: {proto: tcp}}, {name: each, by: [src_ip], match: {proto: tcp}, per: \
             interface}, {name: few, by: [proto], match: {proto: tcp}, per: interface, top: 1}, {name: distinct, \
             measure: {distinct: src_ip}}]",
        );
        let records = records();
        let sum = |slot: Option<u8>| -> Tally {
            let counts =
                |record: &&Record| record.key.proto() == 6 && slot.is_none_or(|slot| record.key.interface() == slot);
            records.iter().filter(counts).map(Record::tally).sum()
        };
        let answers = answers(&config, &plan, &[&records[..7_000], &records[7_000..7_001], &records[7_001..]]);
        for (answer, slots) in
            answers.iter().zip([vec![None], vec![Some(0), Some(1), Some(2)], vec![Some(0), Some(1), Some(2)]])
        {
            assert_eq!(answer.tables.iter().map(|table| table.slot).collect::<Vec<_>>(), slots);
            for table in &answer.tables {
                let Ranked { packets, bytes, .. } = table.total.unwrap();
                let truth = sum(table.slot.map(|slot| slot as u8));
                for (estimate, truth) in [(packets, truth.packets), (bytes, truth.bytes)] {
                    assert_eq!(estimate, Estimate { value: truth, lower: truth, upper: truth });
                }
            }
        }
        assert!(answers[3].tables[0].total.is_none(), "distinct values do not add up");
    }

    #[test]
    fn talkers_of_an_interface_are_right_whichever_worker_read_them() {
        let config = Config::parse("standard_views: [talkers]", "a test").unwrap();
        let plan = Views::new(&config, 4).unwrap();
        let number = |flow: FlowKey| match flow.src_ip() {
            IpAddr::V4(source) => u32::from_ne_bytes(source.octets()),
            IpAddr::V6(source) => panic!("there is no {source}"),
        };
        // On each interface other sources send the most.
        let mut records = records();
        for record in &mut records {
            let is_large = number(record.key) % 500 == u32::from(record.key.interface());
            record.bytes += 1_000_000 * u64::from(is_large);
        }
        let answers = answers(&config, &plan, &[&records[..9_000], &records[9_000..9_001], &records[9_001..]]);
        let [Answer { tables, .. }] = &answers[..] else { panic!("{} answers", answers.len()) };
        assert_eq!(tables.iter().map(|table| table.slot).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
        for (table, slot) in tables.iter().zip(0..) {
            let there: Vec<_> = records.iter().filter(|record| record.key.interface() == slot).collect();
            let sum: Tally = there.iter().map(|record| record.tally()).sum();
            let total = table.total.unwrap();
            assert_eq!((total.packets.lower, total.packets.upper), (sum.packets, sum.packets));
            assert_eq!((total.bytes.lower, total.bytes.upper), (sum.bytes, sum.bytes));
            let Rows::Tallies(Ranking { by_bytes: rows, .. }) = &table.rows else { panic!("{:?}", table.rows) };
            assert_eq!(rows.len(), 5, "the table has five rows");
            for Ranked { key, packets, bytes, sampled: _ } in rows {
                let flow = plan.questions[0].by.flow(key);
                assert_eq!(number(flow) % 500, u32::from(slot), "{flow:?}");
                let of_it = there.iter().filter(|record| number(record.key) == number(flow));
                let truth: Tally = of_it.map(|record| record.tally()).sum();
                assert!((packets.lower..=packets.upper).contains(&truth.packets), "{packets:?} of {truth:?}");
                assert!((bytes.lower..=bytes.upper).contains(&truth.bytes), "{bytes:?} of {truth:?}");
                assert!(bytes.lower > 0, "the lower bound is useless: {bytes:?} of {truth:?}");
            }
        }
    }

    #[test]
    fn each_new_flow_counts_once_for_its_keys_whichever_worker_saw_it() {
        let (config, plan) = views(
            "[{name: sources, by: [src_ip], measure: new_flows, top: 100}, {name: protocols, by: [proto], measure: \
             new_flows}, {name: udp, match: {proto: udp}, measure: new_flows}, {name: hosts, by: [host], measure: \
             new_flows, top: 1}]",
        );
        // Every flow comes several times, and to every worker.
        let records = records();
        let mut flows: BTreeMap<_, FlowKey> = BTreeMap::new();
        for record in &records {
            flows.insert((record.key.src_ip(), record.key.proto()), record.key);
        }
        assert!(flows.len() < records.len() / 2);
        let answers = answers(&config, &plan, &[&records, &records[5_000..], &records[..9_000]]);
        let rows = |nth: usize| match &answers[nth].tables[..] {
            [Table { slot: None, total: None, rows: Rows::Distinct(rows) }] => rows.clone(),
            tables => panic!("{tables:?}"),
        };
        let missed = |counted: u64| Estimate { value: counted, lower: counted, upper: counted + 3 };
        let count = |proto: u8| flows.values().filter(|flow| flow.proto() == proto).count() as u64;
        assert_eq!(rows(1), [(KeyLayout::at(6), missed(count(6))), (KeyLayout::at(17), missed(count(17)))]);
        assert_eq!(rows(2), [(KeyLayout::at(0), missed(count(17)))]);
        assert_eq!(rows(0).len(), 100);
        for (key, counted) in rows(0) {
            let source = plan.questions[0].by.flow(&key).src_ip();
            let truth = flows.keys().filter(|(ip, _)| *ip == source).count() as u64;
            assert!(counted.lower <= truth && truth <= counted.upper, "{counted:?} of {truth}");
        }
        let (_, all) = rows(3)[0];
        assert!(all.lower <= flows.len() as u64 && flows.len() as u64 <= all.upper, "all go to one destination");
    }
}
