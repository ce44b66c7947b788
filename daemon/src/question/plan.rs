//! The planner: which structure answers a view, and what it costs.

use std::fmt;

use crate::{
    config::Estimates,
    view::{By, Measure, View},
};

/// What answers a view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Structure {
    /// One sum.
    Total,
    /// A sum for each of so many keys: all there can be.
    Table {
        /// How many.
        cells: usize,
    },
    /// Count-min with candidates.
    HeavyHitters {
        /// The usual distance of bounds, as a share of the whole.
        error: f64,
        /// Candidates at least.
        candidates: usize,
        /// The relative standard error of a `HyperLogLog` of all keys, where the entropy is asked for.
        distinct: Option<f64>,
    },
    /// Candidates alone.
    Candidates {
        /// The usual distance of bounds, as a share of the whole.
        error: f64,
        /// How many at least.
        candidates: usize,
    },
    /// Candidates, fed by what the candidates of a list of addresses do not hold.
    Prefixes {
        /// The usual distance of bounds, as a share of the whole.
        error: f64,
        /// Candidates at least.
        candidates: usize,
    },
    /// One `HyperLogLog`.
    Unique {
        /// Its relative standard error.
        error: f64,
    },
    /// Distinct counts by key.
    Spread {
        /// Pairs of key and item that it is made for.
        pairs: u64,
        /// Keys with so many items stand out.
        smallest: u64,
        /// Keys that have a counter of their own.
        held: usize,
        /// The relative standard error of these counters.
        error: f64,
    },
}

/// Keys with a counter of their own, for each row that is listed: so many that those which touch most are among them long
/// before a window ends.
const HELD_PER_ROW: usize = 4;
/// Such keys at least, also for short lists.
const HELD_MIN: usize = 32;
/// Such keys at most: each takes 8 KiB at the error that a view has without asking.
const HELD_MAX: usize = 512;
/// Candidates for each row that is listed.
const CANDIDATES_PER_ROW: usize = 8;
/// How much wider the bounds of prefixes are than those of addresses. So all that a prefix which is no candidate reads stays
/// in the CPU's nearest cache. Prefixes that are listed became candidates early, and have much closer bounds.
const PREFIXES_WIDER: f64 = 4.0;
/// Tables of interfaces that share their candidates, at most: there may be more interfaces, but few carry much.
const TABLES_MAX: usize = 16;

impl Structure {
    /// The structure for a standard view of prefixes.
    pub fn for_prefixes(view: &View, estimates: &Estimates) -> Self {
        let candidates = estimates.top_candidates.max(CANDIDATES_PER_ROW * view.top);
        Self::Prefixes { error: PREFIXES_WIDER * view.error, candidates }
    }

    /// The structure for a standard view that has a short list for each of so many slots of interfaces.
    pub fn for_short_lists(view: &View, interfaces: usize) -> Self {
        let candidates = CANDIDATES_PER_ROW * view.top * interfaces.min(TABLES_MAX);
        Self::Candidates { error: view.error, candidates }
    }

    /// The structure for a view.
    pub fn for_view(view: &View, by: &By, estimates: &Estimates, interfaces: usize) -> Self {
        let tables = if view.per_interface { interfaces.min(TABLES_MAX) } else { 1 };
        match view.measure {
            Measure::Bytes | Measure::Packets | Measure::NewFlows if by.fields().is_empty() => Self::Total,
            Measure::Bytes | Measure::Packets | Measure::NewFlows => match by.domain() {
                Some(cells) => Self::Table { cells },
                None => Self::HeavyHitters {
                    error: view.error,
                    candidates: estimates.top_candidates.max(CANDIDATES_PER_ROW * view.top * tables),
                    distinct: view.has_entropy.then_some(estimates.unique_error),
                },
            },
            Measure::Flows | Measure::Distinct(_) if by.fields().is_empty() => Self::Unique { error: view.error },
            Measure::Flows | Measure::Distinct(_) => {
                let held = (HELD_PER_ROW * view.top * tables).clamp(HELD_MIN, HELD_MAX);
                Self::Spread { pairs: 200_000, smallest: 1_000, held, error: view.error }
            }
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total => write!(f, "one sum: exact"),
            Self::Table { cells } => write!(f, "a table of {cells} sums: exact"),
            Self::HeavyHitters { error, candidates: _, distinct } => {
                write!(f, "count-min and candidates: bounds usually within {} % of the whole", percent(*error))?;
                if distinct.is_some() { write!(f, "; HyperLogLog for the entropy") } else { Ok(()) }
            }
            Self::Candidates { error, candidates: _ } | Self::Prefixes { error, candidates: _ } => {
                write!(f, "candidates: bounds usually within {} % of the whole", percent(*error))
            }
            Self::Unique { error } => write!(f, "HyperLogLog: standard error {} %", percent(*error)),
            Self::Spread { pairs: _, smallest, held, error } => {
                let percent = percent(*error);
                write!(
                    f,
                    "spread: keys with {smallest} or more; the largest {held} exactly, or with a standard error of {percent} %"
                )
            }
        }
    }
}

/// A share in percent, without the digits that only say how numbers are stored.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}
