//! Extracts the exported parts from a window's sketches, so that they can be merged with the exports of other routers.
//!
//! The lists of two routers cannot be added up directly: which keys share a cell depends on secret places, which change
//! with each window ([`crate::keys`]). So the export of a list has bounds of keys: the largest candidates with their
//! bounds, and an upper bound of every other key. The next largest candidates have a separate upper bound each. The
//! exporter puts these bounds into cells with public places, which can be added up. All other keys have one common
//! bound. This costs the measurement no memory, and no time before the window's end. The bounds are closer than those
//! of a count-min of the exported size: here the other keys are spread over thousands of cells, and only the fullest
//! cell counts.

use std::cmp::Reverse;

use weir_common::{ledger::Tally, sketch::Metric};
use weir_config::view::ViewKey;
use weir_sketch::{HyperLogLog, Spread, Weight as _};

use crate::{
    answer::parts,
    by::By,
    closed::Closed,
    heavy_hitters::KeyEstimate,
    question::{Views, sketch::ViewSketch},
    uncertainty::Uncertainty,
};

/// How many candidates with a separate upper bound are exported, for each that is listed.
const BOUNDED_PER_KEY: usize = 4;
/// How many candidates are in memory, for each with a separate upper bound by one metric.
const ROOM_PER_KEY: usize = 4;
const METRICS: [Metric; 2] = [Metric::Bytes, Metric::Packets];

/// Bounds of all keys of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyBounds {
    /// The largest keys by bytes, and by packets.
    pub listed: Vec<KeyEstimate<ViewKey>>,
    /// The upper bounds of some keys that are not listed.
    pub bounded: Vec<(ViewKey, Tally)>,
    /// An upper bound of each other key.
    pub others: Tally,
    /// At least so many keys as have a bound of their own have this much, by each metric; zero if there are fewer.
    pub least: Tally,
}

/// A window whose shards were merged into the first one.
#[derive(Clone, Copy)]
pub struct MergedWindow<'a> {
    /// The shard into which all others were merged.
    pub first: &'a Closed,
    /// The questions that its sketches answer.
    pub views: &'a Views,
    /// The uncertainty about its packets.
    pub uncertainty: &'a Uncertainty,
}

impl<'a> MergedWindow<'a> {
    /// The distinct sources, destinations and flows.
    pub const fn unique(self) -> [&'a HyperLogLog; 3] {
        let unique = &self.first.shard.unique;
        [&unique.sources, &unique.destinations, &unique.flows]
    }

    /// The distinct values of the `nth` view, if it counts them without a key.
    pub fn distinct(self, nth: usize) -> Option<&'a HyperLogLog> {
        self.first.shard.views[self.views.questions[nth].sketch(nth)].unique()
    }

    /// The distinct values by key of the `nth` view, if it counts them.
    pub fn spread(self, nth: usize) -> Option<&'a Spread<ViewKey>> {
        Some(self.first.shard.views[self.views.questions[nth].sketch(nth)].spread()?.lines())
    }

    /// The bounds of all keys of the `nth` view, if it counts bytes and packets; otherwise `None`. The `keys` largest
    /// by bytes are listed, and as many by packets. `guess` is [`KeyBounds::least`] of the window before: it only saves
    /// time.
    pub fn list(self, nth: usize, keys: usize, guess: Tally) -> Option<KeyBounds> {
        let question = &self.views.questions[nth];
        if !question.view.measure.is_tally() {
            return None;
        }
        let sketch = &self.first.shard.views[question.sketch(nth)];
        let whole = self.uncertainty.whole(question.is_fed_by_all);
        let uncertainty = self.uncertainty.of_view(whole, sketch.total, parts(question));
        let upper = |most: Tally| Metric::each(|metric| uncertainty.bounds(metric, Tally::default(), most).1);
        let Largest { near, others, .. } = Largest::read(sketch, keys * BOUNDED_PER_KEY, guess);
        let (marks, least) = marks(&near, keys);
        let mut bounds = KeyBounds { listed: Vec::new(), bounded: Vec::new(), others, least };
        for (held, mark) in near.iter().zip(marks) {
            match mark {
                Mark::Other => bounds.others = bounds.others.most(held.upper),
                Mark::Bounded => bounds.bounded.push((held.key, upper(held.upper))),
                Mark::Listed => {
                    let both = |metric| uncertainty.bounds(metric, held.lower, held.upper);
                    let [lower, upper] = [Metric::each(|metric| both(metric).0), Metric::each(|metric| both(metric).1)];
                    bounds.listed.push(KeyEstimate { lower, upper, ..*held });
                }
            }
        }
        bounds.others = upper(bounds.others);
        Some(bounds)
    }

    /// How a key of the `nth` view is written: see [`By`].
    pub fn by(self, nth: usize) -> &'a By {
        &self.views.questions[nth].by
    }
}

/// The keys that may be among the largest, and a bound of all others. So only few keys are in memory at a time.
struct Largest {
    near: Vec<KeyEstimate<ViewKey>>,
    /// How many keys have separate bounds, by each metric.
    count: usize,
    /// At least so many keys have this much, by each metric.
    least: Tally,
    others: Tally,
}

impl Largest {
    /// Reads a sketch. Most keys are passed over if the guess is only a little too low.
    fn read(sketch: &ViewSketch, count: usize, guess: Tally) -> Self {
        // From window to window, a list changes by less than a quarter.
        let least = Metric::each(|metric| metric.of(guess) / 4 * 3);
        let others = sketch.most_of_others();
        let mut largest = Self { near: Vec::with_capacity(ROOM_PER_KEY * count), count, least, others };
        match sketch.hitters() {
            Some(hitters) => hitters.bounded().for_each(|(upper, held)| largest.offer(upper, held)),
            None => sketch.held().for_each(|held| largest.offer(held.upper, || held)),
        }
        let has_too_few = |metric: Metric| {
            let count = largest.near.iter().filter(|held| metric.of(held.value) >= metric.of(least)).count();
            metric.of(least) > 0 && count < largest.count
        };
        if METRICS.into_iter().any(has_too_few) { Self::read(sketch, count, Tally::default()) } else { largest }
    }

    #[inline]
    fn offer(&mut self, upper: Tally, held: impl FnOnce() -> KeyEstimate<ViewKey>) {
        let is_near = |most: Tally| METRICS.iter().any(|metric| metric.of(most) >= metric.of(self.least));
        if is_near(upper) {
            let held = held();
            if is_near(held.value) {
                if self.near.len() == ROOM_PER_KEY * self.count {
                    self.prune();
                }
                return self.near.push(held);
            }
        }
        self.others = self.others.most(upper);
    }

    /// Keeps the largest by bytes, and as many of the others by packets.
    fn prune(&mut self) {
        let mut rest = &mut self.near[..];
        for metric in METRICS {
            let (_, last, smaller) = rest.select_nth_unstable_by_key(self.count - 1, |held| order(held, metric));
            match metric {
                Metric::Bytes => self.least.bytes = last.value.bytes,
                Metric::Packets => self.least.packets = last.value.packets,
            }
            rest = smaller;
        }
        self.others = rest.iter().fold(self.others, |others, held| others.most(held.upper));
        let left_out = rest.len();
        self.near.truncate(self.near.len() - left_out);
    }
}

/// The largest first. No two keys are the same.
fn order(held: &KeyEstimate<ViewKey>, metric: Metric) -> (Reverse<u64>, ViewKey) {
    (Reverse(metric.of(held.value)), held.key)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Other,
    Bounded,
    Listed,
}

/// Which keys are listed, and which have a separate bound; and [`KeyBounds::least`].
fn marks(all: &[KeyEstimate<ViewKey>], keys: usize) -> (Vec<Mark>, Tally) {
    let mut least = [0; METRICS.len()];
    let mut marks = vec![Mark::Other; all.len()];
    let mut places: Vec<usize> = (0..all.len()).collect();
    for (metric, least) in METRICS.into_iter().zip(&mut least) {
        let mut largest = &mut places[..];
        for (count, mark) in [(keys * BOUNDED_PER_KEY, Mark::Bounded), (keys, Mark::Listed)] {
            if (1..largest.len()).contains(&count) {
                let (_, last, _) = largest.select_nth_unstable_by_key(count - 1, |at| order(&all[*at], metric));
                if mark == Mark::Bounded {
                    *least = metric.of(all[*last].value);
                }
                largest = &mut largest[..count];
            }
            for at in &*largest {
                marks[*at] = marks[*at].max(mark);
            }
        }
    }
    let [bytes, packets] = least;
    (marks, Tally::new(packets, bytes))
}

#[cfg(test)]
mod tests {
    use weir_common::{
        flow::{Address, FlowKey},
        record::Record,
    };
    use weir_config::{Estimates, view::Standard};
    use weir_datapath::edge::Edge;
    use weir_sketch::{
        Seen,
        hash::{Key, mix},
    };

    use super::*;
    use crate::{new_flows::FilterState, shard::Shard, summary::Summary};

    const SOURCES: u64 = 20_000;

    fn record(source: u64) -> Record {
        let [src, dst] = [source as u32, 9].map(Address::from_v4_word);
        // The largest by packets are not the largest by bytes.
        let (packets, bytes) = (1 + 40_000 / (1 + source % 7_919) as u32, 60 + 90_000_000 / (1 + source));
        let key = FlowKey::new(src, dst, 6, 0).with_ports(50_000, 443);
        Record { key, packets, bytes, sampling: 1, ..Record::default() }
    }

    #[test]
    fn every_key_is_within_its_bounds_whether_it_is_listed_or_not() {
        let (settings, key) = (Estimates::default(), Key([1, 2]));
        let views = Views::built_in(&settings, 10);
        let seen = Seen::with_capacity(100_000, 0.01, key.id()).unwrap();
        let mut shard = Box::new(Shard::new(&settings, &views, key));
        let mut order: Vec<u64> = (0..SOURCES).collect();
        order.sort_by_key(|source| mix(*source));
        for source in order {
            shard.absorb(&[record(source)], &seen);
        }
        shard.settle(&seen);
        let mut window = [Closed::new(shard, Edge::empty(1))];
        let summary = Summary::merge(&mut window, &views, 1, FilterState::steadily(&seen), 0.999).unwrap();
        let merged = MergedWindow { first: &window[0], views: &views, uncertainty: &summary.uncertainty };
        let nth = views.standard(Standard::Sources).unwrap();
        let read = |guess| {
            let mut bounds = merged.list(nth, 20, guess).unwrap();
            bounds.listed.sort_by_key(|held| held.key);
            bounds.bounded.sort_by_key(|(key, _)| *key);
            bounds
        };
        let bounds = read(Tally::default());
        // However wrong a guess is, the answer is the same.
        for per_cent in [1, 75, 100, 120, 200, 100_000] {
            let guess = Metric::each(|metric| metric.of(bounds.least) * per_cent / 100);
            assert_eq!(read(guess), bounds, "{per_cent} %");
        }
        let KeyBounds { listed, bounded, others, .. } = bounds;
        assert!((21..=40).contains(&listed.len()) && (81..=160).contains(&(listed.len() + bounded.len())));
        let by = merged.by(nth);
        for source in 0..SOURCES {
            let record = record(source);
            let key = by.key(&record, weir_config::view::Side::Src, views.facts());
            let truth = record.tally();
            let listed = listed.iter().find(|held| held.key == key).map(|held| (held.lower, held.upper));
            let own = bounded.iter().find(|(bounded, _)| *bounded == key).map(|(_, upper)| (Tally::default(), *upper));
            let (lower, upper) = listed.or(own).unwrap_or((Tally::default(), others));
            for metric in [Metric::Packets, Metric::Bytes] {
                assert!(metric.of(lower) <= metric.of(truth) && metric.of(truth) <= metric.of(upper), "{source}");
            }
        }
        let total: u64 = (0..SOURCES).map(|source| record(source).bytes).sum();
        assert!(others.bytes < total / 500, "{others:?} of {total}");
        assert_eq!(merged.unique()[0].bounds().value, summary.sources.value);
        let spread = views.standard(Standard::SourcesPerDestination).unwrap();
        assert!(
            merged.spread(spread).is_some()
                && merged.list(spread, 20, Tally::default()).is_none()
                && merged.distinct(nth).is_none()
        );
    }
}
