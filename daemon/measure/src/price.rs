//! The cost of views: the memory of their sketches, and the time per record, measured with generated records.

use std::{fmt, sync::Arc, time::Duration};

use weir_common::{
    flow::{Address, FlowKey},
    record::Record,
};
use weir_config::view::Measure;
use weir_sketch::hash::{Key, KeyedHash, mix};
use weir_system::{clock, numbers::mebibytes};

use super::columns::{Item, TOGETHER, Transposed};
use crate::question::{Question, Structure, Views, sketch::ViewSketch};

/// Generated records: more flows than candidates, but few enough to be quick.
const RECORDS: u64 = 1 << 15;
/// Roughly the time for measuring all views together.
const TIME: Duration = Duration::from_millis(600);

/// The cost of one view.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// The name of the view.
    pub name: String,
    /// The structure that answers it.
    pub structure: Structure,
    /// The number of an earlier view whose sketch answers it.
    pub answered_by: Option<usize>,
    /// A remark on other conditions of its bounds.
    pub besides: &'static str,
    /// Bytes of its sketch.
    pub bytes: u64,
    /// Nanoseconds per record on this machine's CPU, if measured.
    pub nanoseconds: Option<f64>,
}

/// The cost of all views.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// The price of each view.
    pub views: Vec<Price>,
    /// How many sketches each view has.
    pub shards: u64,
}

impl Prices {
    /// The memory of these views, each of which has `shards` sketches.
    pub fn of(views: &Arc<Views>, shards: u64) -> Self {
        let price = |question: &Question| Price {
            name: question.view.name.clone(),
            structure: question.structure,
            answered_by: question.answered_by,
            besides: match question.view.measure {
                Measure::NewFlows => ", except for new flows that the filter of seen flows misses",
                _ => "",
            },
            bytes: ViewSketch::new(question, 0, TOGETHER).memory_bytes() as u64,
            nanoseconds: None,
        };
        Self { views: views.questions.iter().map(price).collect(), shards }
    }

    /// Adds the time per record.
    #[must_use]
    pub fn measured(mut self, views: &Views) -> Self {
        let key = Key([1, 2]);
        let hash = KeyedHash::new(key);
        let records: Vec<Record> = (0..RECORDS).map(record).collect();
        let items: Vec<Item<'_>> = records.iter().map(|record| Item::new(&hash, record)).collect();
        let time = TIME / self.views.len().max(1) as u32;
        let measure = |question: &Question, fed: Option<&Question>| {
            let new = |question| {
                let mut sketch = ViewSketch::new(question, key.id(), TOGETHER);
                sketch.clear();
                sketch
            };
            let (mut sketch, mut fed) = (new(question), fed.map(new));
            let mut space = Transposed::default();
            let mut absorb = || {
                for items in items.chunks(TOGETHER) {
                    sketch.absorb(question, fed.as_mut(), &hash, views.facts(), space.columns(items));
                }
            };
            // The first round fills the sketch.
            absorb();
            let (start, mut rounds, mut spent) = (clock::thread_cpu_time(), 0_u64, Duration::ZERO);
            while spent < time {
                absorb();
                rounds += 1;
                spent = clock::thread_cpu_time().saturating_sub(start);
            }
            spent.as_nanos() as f64 / (rounds * RECORDS) as f64
        };
        for (nth, question) in views.questions.iter().enumerate().take(self.views.len()) {
            // A view that a list feeds costs the additional time of the list.
            let nanoseconds = match question.fed_by {
                _ if question.answered_by.is_some() => 0.0,
                None => measure(question, None),
                Some(list) => {
                    let alone = self.views[list].nanoseconds.unwrap_or_default();
                    (measure(&views.questions[list], Some(question)) - alone).max(0.0)
                }
            };
            self.views[nth].nanoseconds = Some(nanoseconds);
        }
        self
    }

    /// Each view that has a sketch, with the names of all views that it answers, its own first.
    pub fn sharing(&self) -> impl Iterator<Item = (&Price, Vec<&str>)> {
        let own = self.views.iter().enumerate().filter(|(_, price)| price.answered_by.is_none());
        own.map(|(nth, price)| {
            let others = self.views.iter().filter(move |other| other.answered_by == Some(nth));
            (price, std::iter::once(price).chain(others).map(|price| price.name.as_str()).collect())
        })
    }

    /// The memory of all sketches of all views.
    pub fn bytes(&self) -> u64 {
        self.shards * self.views.iter().map(|price| price.bytes).sum::<u64>()
    }
}

/// A record of plausible traffic: few large flows, many small ones, and some IPv6.
fn record(nth: u64) -> Record {
    let random = mix(nth);
    // Ranks whose logarithms are uniform: the first ten come as often as the next ninety.
    let rank = 2_f64.powf((random >> 40) as f64 / f64::from(1 << 24) * 16.0) as u64;
    let host = mix(rank) as u32;
    let [src, dst] = [host | 0x0a00_0000, mix(rank ^ 1) as u32].map(Address::from_v4_word);
    let (proto, port) = if rank.is_multiple_of(3) { (17, 53) } else { (6, 443) };
    let key = FlowKey::new(src, dst, proto, 0).with_ports(1024 | rank as u16, port);
    Record { key, bytes: 60 + random % 1_400, packets: 1, sampling: 1, ..Record::default() }
}

impl fmt::Display for Prices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| mebibytes(bytes, 2);
        let time = |ns: Option<f64>| ns.map_or_else(String::new, |ns| format!("{ns:.1} ns"));
        let width = self.views.iter().map(|price| price.name.len()).max().unwrap_or(0).max("all views".len());
        writeln!(f, "  {:<width$}  {:>10}  {:>10}  {:>9}  answers by", "view", "a sketch", "in all", "a record")?;
        for (price, names) in self.sharing() {
            let Price { name, structure, answered_by: _, besides, bytes, nanoseconds } = price;
            let (one, all, time) = (mib(*bytes), mib(self.shards * bytes), time(*nanoseconds));
            writeln!(f, "  {name:<width$}  {one:>10}  {all:>10}  {time:>9}  {structure}{besides}")?;
            for other in &names[1..] {
                writeln!(f, "  {other:<width$}  {:>10}  {:>10}  {:>9}  the sketch of {name}", "-", "-", "-")?;
            }
        }
        let one = self.views.iter().map(|price| price.bytes).sum();
        let total: Option<f64> = self.views.iter().map(|price| price.nanoseconds).sum();
        let (one, all, time) = (mib(one), mib(self.bytes()), time(total));
        writeln!(f, "  {:<width$}  {one:>10}  {all:>10}  {time:>9}", "all views")
    }
}
