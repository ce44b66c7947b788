//! Counts distinct addresses and flows.

use weir_config::Estimates;
use weir_sketch::{Estimate, HyperLogLog, MergeError};

use super::{by::Kind, columns::Columns, configured::distinct};

/// Distinct sources, destinations and flows.
#[derive(Clone)]
pub struct Unique {
    /// Counts the distinct source addresses.
    pub sources: HyperLogLog,
    /// Counts the distinct destination addresses.
    pub destinations: HyperLogLog,
    /// Counts the distinct flows.
    pub flows: HyperLogLog,
}

impl Unique {
    /// Empty sketches for keys with this fingerprint.
    pub fn new(settings: &Estimates, key_id: u64) -> Self {
        Self::of(|| distinct(settings.unique_error, key_id))
    }

    /// Three sketches that this function makes.
    pub fn of(sketch: impl Fn() -> HyperLogLog) -> Self {
        Self { sources: sketch(), destinations: sketch(), flows: sketch() }
    }

    /// The three sketches.
    pub const fn each(&self) -> [&HyperLogLog; 3] {
        let Self { sources, destinations, flows } = self;
        [sources, destinations, flows]
    }

    /// Merges others into these. Both must have been made alike.
    ///
    /// # Errors
    ///
    /// The sketches were built differently, or have other keys.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.sources.merge(&other.sources)?;
        self.destinations.merge(&other.destinations)?;
        self.flows.merge(&other.flows)
    }

    /// Counts flows and their addresses.
    #[inline]
    pub fn insert_batch(&mut self, columns: Columns<'_>) {
        let Self { sources, destinations, flows } = self;
        for (sketch, kind) in [(sources, Kind::Source), (destinations, Kind::Destination), (flows, Kind::Flow)] {
            sketch.insert_batch(columns.hashes(kind).unwrap_or_default());
        }
    }

    pub(super) fn clear(&mut self) {
        let Self { sources, destinations, flows } = self;
        for one in [sources, destinations, flows] {
            one.clear();
        }
    }

    /// Empties all sketches. They use another key from now on.
    pub(super) fn rekey(&mut self, key_id: u64) {
        let Self { sources, destinations, flows } = self;
        for sketch in [sources, destinations, flows] {
            sketch.rekey(key_id);
        }
    }

    /// Returns the memory of all sketches, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let Self { sources, destinations, flows } = self;
        [sources, destinations, flows].into_iter().map(HyperLogLog::memory_bytes).sum()
    }
}

/// The number of distinct items of a union. Each of `unknown` packets may belong to one more, and there are at most
/// `most` packets.
pub fn bounded(union: &HyperLogLog, unknown: u64, most: u64, confidence: f64) -> Estimate {
    let Estimate { value, lower, upper } = union.bounds_at(confidence);
    let upper = upper.saturating_add(unknown).min(most);
    Estimate { value: value.min(upper), lower: lower.min(upper), upper }
}
