//! Reads the sketches of each window, and gathers those of several windows until they are exported.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use weir_common::ledger::Tally;
use weir_config::{
    Export,
    view::{KeyLayout, Measure, ViewKey, layout::push_word},
};
use weir_datapath::interface::MeasuredInterface;
use weir_measure::{
    export::{KeyBounds, MergedWindow},
    heavy_hitters::KeyEstimate,
    question::{Fingerprint, Question, Structure, Views},
    window::Span,
};
use weir_schema::{
    Remembered,
    sketches::{DistinctSketch, ListSketch, ListUnion, Sketches, SpreadSketch, UNIQUE, WIDTH, cell, encode},
};
use weir_sketch::{CandidateBuckets, HyperLogLog, Image as _, Spread, Weight as _, datasketches::hll};
use weir_system::memory::Part;

/// How many rows a gathered list keeps, for each row that is exported.
const GATHERED_PER_KEY: usize = 8;
/// The most bytes of a row of an exported list: two IPv6 addresses, ports and protocol, and five numbers.
const ROW_BYTES: u64 = 2 * 40 + 2 * 6 + 10 + 4 + 4 * 15;
/// The most bytes of a cell: two numbers.
const CELL_BYTES: u64 = 2 * 15;
/// The most bytes of names and punctuation of one sketch.
const NAMES_BYTES: u64 = 440;

/// The settings of the export, and the sketches that wait for it.
#[derive(Debug)]
pub struct SketchExporter {
    settings: Export,
    gathered: Option<Gathered>,
    guesses: Guesses,
    /// The start of the next window.
    next: Option<Timestamp>,
    is_last: bool,
}

/// [`KeyBounds::least`] of the last window, by the number of the view.
type Guesses = BTreeMap<usize, Tally>;

/// The sketches of several windows.
#[derive(Debug)]
struct Gathered {
    views: Arc<Views>,
    key_id: u64,
    settings: Export,
    start: Timestamp,
    end: Timestamp,
    windows: u32,
    missing: u64,
    /// The sketches of distinct counts, by their place among all counts of a report.
    unique: BTreeMap<usize, HyperLogLog>,
    /// By the number of the view, as are the others.
    distinct: BTreeMap<usize, HyperLogLog>,
    lists: BTreeMap<usize, ListUnion>,
    spread: BTreeMap<usize, Spread<ViewKey>>,
}

impl SketchExporter {
    /// An exporter with these settings.
    pub const fn new(settings: Export) -> Self {
        Self { settings, gathered: None, guesses: Guesses::new(), next: None, is_last: false }
    }

    /// Uses other settings from the next window on. Call [`SketchExporter::end`] before the last window with the
    /// present ones.
    pub fn change(&mut self, settings: Export) {
        *self = Self::new(settings);
    }

    /// Notes that the next window is the last one with these views and settings: everything is exported with it.
    pub const fn end(&mut self) {
        self.is_last = true;
    }

    /// Notes when the window after the next one begins. On another day, it has another key; but a day is a multiple of
    /// the interval of exports.
    pub const fn expect(&mut self, next: Timestamp) {
        self.next = Some(next);
    }

    /// Adds a window. Returns the sketches to export with its report: so they are in the report of their last window.
    pub fn add(
        &mut self,
        window: MergedWindow<'_>,
        views: &Arc<Views>,
        span: Span,
        interfaces: &[MeasuredInterface],
    ) -> Option<Sketches> {
        if !self.settings.is_on() {
            return None;
        }
        let (key_id, settings) = (window.first.shard.key_id(), &self.settings);
        let gathered =
            self.gathered.get_or_insert_with(|| Gathered::new(views.clone(), key_id, settings.clone(), span.start));
        gathered.add(window, span, interfaces, &mut self.guesses);
        let (next, is_last) = (self.next.unwrap_or(span.end), self.is_last);
        self.gathered.take_if(|one| is_last || one.is_due(next)).map(Gathered::into_sketches)
    }
}

impl Gathered {
    fn new(views: Arc<Views>, key_id: u64, settings: Export, start: Timestamp) -> Self {
        let (unique, distinct, lists, spread) = Default::default();
        Self { views, key_id, settings, start, end: start, windows: 0, missing: 0, unique, distinct, lists, spread }
    }

    fn add(&mut self, window: MergedWindow<'_>, span: Span, interfaces: &[MeasuredInterface], guesses: &mut Guesses) {
        self.end = span.end;
        self.windows += 1;
        self.missing = self.missing.saturating_add(window.uncertainty.unknown);
        if self.settings.has_unique() {
            for (nth, sketch) in window.unique().into_iter().enumerate() {
                count(&mut self.unique, nth, sketch, self.settings.lg_k);
            }
        }
        let views = self.views.clone();
        let exported = views.questions.iter().enumerate().filter(|(_, question)| self.settings.has(&question.view));
        let exported: Vec<(usize, &Question)> = exported.collect();
        for (nth, question) in exported {
            if let Some(sketch) = window.distinct(nth) {
                count(&mut self.distinct, nth, sketch, self.settings.lg_k);
            }
            if let Some(spread) = window.spread(nth) {
                self.spread(nth, spread);
            }
            if question.view.measure.is_tally() {
                let capacity = GATHERED_PER_KEY * self.settings.keys;
                let new = || ListUnion::new(&fields(&question.by.layout), capacity);
                let union = self.lists.entry(nth).or_insert_with(new);
                let guess = guesses.entry(nth).or_default();
                let Some(bounds) = window.list(nth, self.settings.keys, *guess) else { continue };
                *guess = bounds.least;
                let confidence = window.uncertainty.sampling.map_or(1.0, |_| window.uncertainty.confidence);
                let keys = WrittenKeys { layout: &question.by.layout, views: &views, interfaces, text: String::new() };
                keys.add(union, &bounds, confidence);
            }
        }
    }

    fn spread(&mut self, nth: usize, spread: &Spread<ViewKey>) {
        match self.spread.get_mut(&nth) {
            Some(union) => _ = union.merge(spread),
            None => _ = self.spread.insert(nth, spread.clone()),
        }
    }

    /// Returns true if a multiple of the interval of exports is between its start and the next window. If the clock was
    /// set back, that window begins earlier.
    fn is_due(&self, next: Timestamp) -> bool {
        let every = self.settings.every.as_nanos().max(1) as i128;
        let nth = |time: Timestamp| time.as_nanosecond().div_euclid(every);
        nth(self.start) != nth(next)
    }

    fn into_sketches(self) -> Sketches {
        let Self { views, key_id, settings, start, end, windows, missing, unique, distinct, lists, spread } = self;
        let unique = unique.into_iter().map(|(nth, sketch)| (UNIQUE[nth].to_owned(), views.unique, sketch));
        let of_views = distinct.into_iter().map(|(nth, sketch)| {
            let Question { view, fingerprint, .. } = &views.questions[nth];
            (view.name.clone(), *fingerprint, sketch)
        });
        let distinct = unique.chain(of_views).map(|(name, question, sketch)| written(name, question, &sketch, missing));
        let lists = lists.into_iter().map(|(nth, mut union)| {
            let Question { view, fingerprint, .. } = &views.questions[nth];
            union.keep(settings.keys);
            ListSketch { question: Some(fingerprint.to_string()), ..union.to_list(&view.name) }
        });
        let spread = spread.into_iter().map(|(nth, sketch)| {
            let Question { view, by, fingerprint, .. } = &views.questions[nth];
            SpreadSketch {
                name: view.name.clone(),
                question: Some(fingerprint.to_string()),
                by: fields(&by.layout),
                key_id: format!("{key_id:016x}"),
                missing_packets: missing,
                image: encode(&sketch.to_image()),
            }
        });
        Sketches { start, end, windows, distinct: distinct.collect(), lists: lists.collect(), spread: spread.collect() }
    }
}

/// The distinct counts of a window in small sketches, which the history keeps.
pub fn remembered(window: MergedWindow<'_>, views: &Views, span: Span) -> Sketches {
    let missing = window.uncertainty.unknown;
    let small = window.unique().map(|sketch| sketch.folded(Remembered::LG_K));
    let distinct = small.iter().zip(UNIQUE);
    let distinct = distinct.map(|(sketch, name)| written(name.to_owned(), views.unique, sketch, missing)).collect();
    let Span { start, end, .. } = span;
    Sketches { start, end, windows: 1, distinct, lists: Vec::new(), spread: Vec::new() }
}

/// A distinct count as reports have it.
fn written(name: String, question: Fingerprint, sketch: &HyperLogLog, missing_packets: u64) -> DistinctSketch {
    DistinctSketch {
        name,
        question: Some(question.to_string()),
        key_id: format!("{:016x}", sketch.key_id()),
        lg_k: sketch.precision(),
        missing_packets,
        hll: encode(&hll::write_registers(sketch)),
    }
}

/// Adds a sketch to those of earlier windows. All have the same key and size.
fn count(all: &mut BTreeMap<usize, HyperLogLog>, nth: usize, sketch: &HyperLogLog, lg_k: u32) {
    let folded = sketch.folded(lg_k);
    match all.get_mut(&nth) {
        Some(union) => _ = union.merge(&folded),
        None => _ = all.insert(nth, folded),
    }
}

/// The names of fields, with the lengths of prefixes.
fn fields(layout: &KeyLayout) -> Vec<String> {
    layout.fields().iter().map(ToString::to_string).collect()
}

/// The keys of a view as texts.
struct WrittenKeys<'a> {
    layout: &'a KeyLayout,
    views: &'a Views,
    interfaces: &'a [MeasuredInterface],
    text: String,
}

impl WrittenKeys<'_> {
    /// Adds the bounds of a window.
    fn add(mut self, union: &mut ListUnion, bounds: &KeyBounds, confidence: f64) {
        let KeyBounds { listed, bounded, others, least: _ } = bounds;
        let mut rest = [*others; WIDTH];
        for (key, upper) in bounded {
            let rest = &mut rest[cell(self.key(key)) as usize];
            *rest = rest.most(*upper);
        }
        for KeyEstimate { key, lower, upper, .. } in listed {
            let key = self.key(key);
            let cell = cell(key) as usize;
            union.add_row(key, (cell, rest[cell]), *lower, *upper);
        }
        union.add_cells(rest.into_iter(), confidence);
    }

    fn key(&mut self, key: &ViewKey) -> &str {
        let Self { layout, views, interfaces, text } = self;
        let interface = |slot, text: &mut String| {
            let Some(found) = interfaces.iter().find(|interface| interface.slot == Some(slot)) else {
                return text.push('?');
            };
            push_word(&found.name, text);
            if let Some(direction) = found.direction.filter(|_| !found.name.is_empty()) {
                text.push('/');
                text.push_str(direction);
            }
        };
        text.clear();
        layout.write(key, views.facts(), interface, text);
        text
    }
}

/// The most bytes that the sketches of a report take, as JSON. 0 if none are exported.
pub fn bytes_at_most(settings: &Export, views: &Views) -> u64 {
    let base64 = |bytes: u64| bytes.div_ceil(3) * 4 + NAMES_BYTES;
    let registers = base64((1 << settings.lg_k) + 52);
    let unique = if settings.has_unique() { 3 * registers } else { 0 };
    let of_view = |question: &Question| match (&question.view.measure, question.structure) {
        (Measure::Flows | Measure::Distinct(_), Structure::Spread { pairs, smallest, .. }) => {
            // The sketch that `Spreaders` makes: a line's registers and tag, and the hash and key of its sample.
            let lines = Spread::<ViewKey>::lines_for(pairs, smallest, weir_measure::spreaders::ERROR_OF_OTHERS);
            base64(lines as u64 * (64 + 8 + 40))
        }
        (Measure::Flows | Measure::Distinct(_), _) => registers,
        _ => {
            let rows = question.by.layout.domain().map_or(u64::MAX, |keys| keys as u64).min(2 * settings.keys as u64);
            NAMES_BYTES + rows * ROW_BYTES + WIDTH as u64 * CELL_BYTES
        }
    };
    let exported = views.questions.iter().filter(|question| settings.has(&question.view));
    unique + exported.map(of_view).sum::<u64>()
}

/// The memory of sketches: those that are gathered, and those of so many reports that wait in queues, whose windows
/// have this length.
pub fn memory(settings: &Export, views: &Views, queued: u64, interval: Duration) -> Part {
    let (every, interval) = (settings.every.as_secs(), interval.as_secs());
    let waiting = (queued * interval).div_ceil(every.max(interval).max(1));
    let bytes = gathering_bytes(settings, views) + waiting * bytes_at_most(settings, views);
    Part::new("sketches to export", bytes, "gathered, and in reports that wait").if_any()
}

/// The most memory that gathering and writing take, in bytes. 0 if nothing is exported.
fn gathering_bytes(settings: &Export, views: &Views) -> u64 {
    /// A gathered row: its key, its numbers, and the table that it is in.
    const GATHERED_BYTES: u64 = 256;
    /// A candidate while a window is read, with its place in the order and its mark.
    const CANDIDATE_BYTES: u64 = 112;
    let has_rows = |question: &&Question| settings.has(&question.view) && question.view.measure.is_tally();
    let lists = views.questions.iter().filter(has_rows);
    let rows = 2 * (GATHERED_PER_KEY * settings.keys) as u64 * GATHERED_BYTES + 3 * WIDTH as u64 * 16;
    let candidates = lists.clone().map(|question| match question.structure {
        Structure::HeavyHitters { error, candidates, .. } | Structure::Hosts { error, candidates } => {
            (4 * CandidateBuckets::<ViewKey, Tally>::buckets_for(error, candidates)) as u64
        }
        Structure::Table { cells } => cells as u64,
        _ => 1,
    });
    // Gathered, as sketches of the report, and as their text.
    let candidates = candidates.max().unwrap_or(0) * CANDIDATE_BYTES;
    3 * bytes_at_most(settings, views) + lists.count() as u64 * rows + candidates
}

/// How many reports a day have sketches, if windows have this length.
pub fn reports_a_day(settings: &Export, interval: Duration) -> u64 {
    const DAY: u64 = 86_400;
    DAY / settings.every.max(interval).as_secs().max(1)
}
