//! Reads the open window while it is measured: its lists so far.
//!
//! Nothing is copied without a request, and sketches of keys are never copied. A reading has two steps. In each step
//! every worker gets an order, and answers it between two batches:
//!
//! ```text
//! keys:     have each CPU hand over its cache; name the largest keys of each list, twice as many as a report shows
//! numbers:  for all keys that any worker named, or that a client asks for: the bounds of what was counted so far,
//!           with the exact counters of the same moment
//! ```
//!
//! The answers of all workers add up to those of the open window, as their sketches do at its end. The bounds hold for
//! everything that was seen until a CPU handed over its cache. The lists may differ from those of a report, because a
//! key that is not among the largest of any single worker is not found. Floods, scans and prefixes need merged
//! sketches, so they are not available.

mod candidates;
mod numbers;
mod summary;

use std::sync::Arc;

use weir_common::{
    control::SLOTS_MAX,
    ledger::{Counters, Tally},
    size::SIZE_CLASSES,
};
use weir_config::{
    Estimates,
    view::{Measure, ViewKey},
};
use weir_system::memory::Part;

pub use self::{
    candidates::{KEYS_PER_ROW, candidates, rows_of_each},
    numbers::Numbers,
    summary::{OpenSummary, add_asked, count_asked},
};
use crate::{
    configured,
    heavy_hitters::KeyEstimate,
    question::{Question, Structure, Views},
    unique::Unique,
};

/// The most keys that one reading looks up for all clients, each view and interface counted.
pub const ASKED_MAX: usize = 4096;
/// Lists have the largest keys by bytes and by packets.
const ORDERS: usize = 2;

/// Keys by question, in the order of the questions.
pub type KeysByQuestion = Vec<Vec<ViewKey>>;

/// The part of a reading that a worker is asked for.
#[derive(Clone)]
pub enum OpenRequest {
    /// The largest keys, after every CPU has handed over its cache.
    Keys,
    /// The numbers of these keys.
    Numbers(Arc<KeysByQuestion>),
}

/// The content of a worker's answer.
pub enum Content {
    /// The largest keys of each question.
    Keys(KeysByQuestion),
    /// The numbers of the requested keys.
    Numbers(Box<Numbers>),
}

/// The answer of a worker.
pub struct OpenPart {
    /// The number of the reading, and that of the worker.
    pub of: (u64, usize),
    /// The content of the answer.
    pub content: Content,
}

/// Returns true if the open window has an answer to this question, that is, if its numbers can be added up.
pub const fn is_readable(question: &Question) -> bool {
    match question.view.measure {
        Measure::Bytes | Measure::Packets | Measure::NewFlows => {
            !matches!(question.structure, Structure::Prefixes { .. })
        }
        Measure::Flows | Measure::Distinct(_) => matches!(question.structure, Structure::Unique { .. }),
    }
}

/// The memory of a reading, for shards with these estimates and views, this many threads and this many interface slots,
/// if its answer takes `report` bytes: as rows, as JSON, and while it is written.
pub fn memory(estimates: &Estimates, views: &Views, interfaces: usize, threads: usize, report: u64) -> Part {
    let bytes = reading_bytes(estimates, views, interfaces, threads) as u64 + 3 * report;
    Part::new("the open window, when read", bytes, "for `weir top` and `weir ask --live`")
}

/// Returns the memory of a reading without its answer.
fn reading_bytes(estimates: &Estimates, views: &Views, interfaces: usize, threads: usize) -> usize {
    let (mut keys, mut distinct) = (0, Unique::new(estimates, 0).memory_bytes());
    for question in views.questions.iter().filter(|question| is_readable(question)) {
        let tables = if question.view.per_interface { interfaces } else { 1 };
        let domain = question.by.layout.domain().unwrap_or(usize::MAX);
        keys += (ORDERS * KEYS_PER_ROW * rows_of_each(question, tables) * tables).min(domain);
        if let Structure::Unique { error } = question.structure {
            distinct += configured::distinct(error, 0).memory_bytes();
        }
    }
    let all = threads * keys + ASKED_MAX;
    let exact = (SLOTS_MAX as usize + SIZE_CLASSES) * size_of::<Tally>() + interfaces * size_of::<Counters>();
    threads * (keys * size_of::<ViewKey>() + all * size_of::<KeyEstimate<ViewKey>>() + distinct + exact)
}

#[cfg(test)]
mod tests;
