//! The planner: chooses the structure that answers a view.

use std::fmt;

use weir_config::{
    Estimates,
    view::{KeyLayout, Measure, View},
};

/// The structure that answers a view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Structure {
    /// One sum for a view without a key.
    Total,
    /// A sum for each possible key.
    Table {
        /// The number of keys.
        cells: usize,
    },
    /// Candidate buckets: the largest keys, and bounds for all others.
    HeavyHitters {
        /// The usual distance between the bounds, as a share of the whole.
        error: f64,
        /// The least number of candidates.
        candidates: usize,
        /// The relative standard error of a `HyperLogLog` of all keys, if the view wants the entropy.
        distinct: Option<f64>,
    },
    /// Candidate buckets, fed with the records that the candidates of a list of addresses do not hold.
    Prefixes {
        /// The usual distance between the bounds, as a share of the whole.
        error: f64,
        /// The least number of candidates.
        candidates: usize,
    },
    /// Candidate buckets for own addresses, with the sums of each direction, and counters of flows and peers.
    Hosts {
        /// The usual distance between the bounds of a host's sums, as a share of the whole.
        error: f64,
        /// The least number of hosts that are counted one by one.
        candidates: usize,
    },
    /// One `HyperLogLog` for a view without a key.
    Unique {
        /// The relative standard error.
        error: f64,
    },
    /// Distinct counts by key.
    Spread {
        /// The number of pairs of key and item that it is built for.
        pairs: u64,
        /// Keys with at least this many items stand out.
        smallest: u64,
        /// The number of keys with their own counter.
        held: usize,
        /// The relative standard error of these counters.
        error: f64,
    },
}

/// Keys with their own counter, per listed row. It is high enough that the largest keys are among them long before a
/// window ends.
const HELD_PER_ROW: usize = 4;
/// The least number of such keys, even for short lists.
const HELD_MIN: usize = 32;
/// The most such keys: each takes 8 KiB at the default error of a view.
const HELD_MAX: usize = 512;
/// Candidates per listed row.
const CANDIDATES_PER_ROW: usize = 8;
/// A host that is counted one by one takes several times the memory of another candidate, so there are fewer of them.
const CANDIDATES_PER_HOST: usize = 4;
/// The least number of hosts per listed row.
const HOSTS_PER_ROW: usize = 4;
/// How much wider the bounds of prefixes are than those of addresses. The sketch of prefixes is so small that most of
/// it stays in the CPU's nearest cache. Listed prefixes became candidates early, and have much closer bounds.
const PREFIXES_WIDER: f64 = 4.0;
/// The most interface tables for which candidates are provided. There may be more interfaces, but few have much
/// traffic.
const TABLES_MAX: usize = 16;

impl Structure {
    /// The structure for a standard view of prefixes.
    pub fn for_prefixes(view: &View, estimates: &Estimates) -> Self {
        let candidates = estimates.top_candidates.max(CANDIDATES_PER_ROW * view.top);
        Self::Prefixes { error: PREFIXES_WIDER * view.error, candidates }
    }

    /// The structure for a standard view that has a short list for each of this many interface slots.
    pub fn for_short_lists(view: &View, interfaces: usize) -> Self {
        let candidates = CANDIDATES_PER_ROW * view.top * interfaces.min(TABLES_MAX);
        Self::HeavyHitters { error: view.error, candidates, distinct: None }
    }

    /// The structure that answers both, if they are of the same kind.
    pub fn and(self, other: Self) -> Option<Self> {
        match (self, other) {
            (
                Self::HeavyHitters { error, candidates, distinct },
                Self::HeavyHitters { error: or_error, candidates: or_candidates, distinct: or_distinct },
            ) => Some(Self::HeavyHitters {
                error: error.min(or_error),
                candidates: candidates.max(or_candidates),
                distinct: distinct.or(or_distinct),
            }),
            (Self::Total, Self::Total) | (Self::Table { .. }, Self::Table { .. }) => Some(self),
            _ => None,
        }
    }

    /// The structure for a view.
    pub fn for_view(view: &View, layout: &KeyLayout, estimates: &Estimates, interfaces: usize) -> Self {
        let tables = if view.per_interface { interfaces.min(TABLES_MAX) } else { 1 };
        if view.of_hosts {
            let usual = estimates.top_candidates / CANDIDATES_PER_HOST;
            return Self::Hosts { error: view.error, candidates: usual.max(HOSTS_PER_ROW * view.top * tables) };
        }
        match view.measure {
            Measure::Bytes | Measure::Packets | Measure::NewFlows if layout.fields().is_empty() => Self::Total,
            Measure::Bytes | Measure::Packets | Measure::NewFlows => match layout.domain() {
                Some(cells) => Self::Table { cells },
                None => Self::HeavyHitters {
                    error: view.error,
                    candidates: estimates.top_candidates.max(CANDIDATES_PER_ROW * view.top * tables),
                    distinct: view.has_entropy.then_some(estimates.unique_error),
                },
            },
            Measure::Flows | Measure::Distinct(_) if layout.fields().is_empty() => Self::Unique { error: view.error },
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
            Self::Prefixes { error, candidates: _ } => {
                write!(f, "count-min and candidates: bounds usually within {} % of the whole", percent(*error))
            }
            Self::Hosts { error, candidates } => write!(
                f,
                "{candidates} hosts with down, up, flows and peers; others usually within {} % of the whole",
                percent(*error)
            ),
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

/// A share in percent, rounded to hide floating-point noise.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

#[cfg(test)]
mod tests {
    use weir_config::{Config, view::Standard};

    use super::*;
    use crate::question::Views;

    /// The structure of a user's view, on this many interfaces, with its description.
    fn of(text: &str, interfaces: usize) -> (Structure, String) {
        let mut config = Config { standard_views: Vec::new(), ..Config::default() };
        let view = config.parse_view(text, "a test", "view").unwrap();
        config.views.push(view);
        let structure = Views::new(&config, interfaces).unwrap().questions[0].structure;
        (structure, structure.to_string())
    }

    #[test]
    fn the_measure_and_the_number_of_keys_decide() {
        use Structure::{HeavyHitters, Spread, Table, Total, Unique};
        assert_eq!(of("{match: {proto: tcp}}", 1), (Total, "one sum: exact".to_owned()));
        assert_eq!(of("{measure: new_flows}", 1).0, Total);
        assert_eq!(of("{by: [proto]}", 1), (Table { cells: 256 }, "a table of 256 sums: exact".to_owned()));
        assert_eq!(of("{by: [proto], measure: packets}", 1).0, Table { cells: 256 });
        let hitters = |candidates, distinct| HeavyHitters { error: 0.0005, candidates, distinct };
        let words = "count-min and candidates: bounds usually within 0.05 % of the whole";
        assert_eq!(of("{by: [src_ip]}", 1), (hitters(1_024, None), words.to_owned()));
        let entropy = of("{by: [src_ip], entropy: true}", 1);
        assert_eq!(entropy, (hitters(1_024, Some(0.005)), format!("{words}; HyperLogLog for the entropy")));
        // Eight candidates a row, if that is more than the default, and for at most 16 tables.
        assert_eq!(of("{by: [src_ip], top: 100, per: interface}", 4).0, hitters(3_200, None));
        assert_eq!(of("{by: [src_ip], top: 100, per: interface}", 100).0, hitters(12_800, None));
        let unique = |error| Unique { error };
        assert_eq!(of("{measure: flows}", 1), (unique(0.005), "HyperLogLog: standard error 0.5 %".to_owned()));
        assert_eq!(of("{measure: {distinct: src_ip}, error: 0.035}", 1).1, "HyperLogLog: standard error 3.5 %");
        let spread = |held, error| Spread { pairs: 200_000, smallest: 1_000, held, error };
        let few = of("{by: [proto], measure: {distinct: src_ip}, top: 1}", 1);
        let words = "spread: keys with 1000 or more; the largest 32 exactly, or with a standard error of 1 %";
        assert_eq!(few, (spread(32, 0.01), words.to_owned()));
        assert_eq!(of("{by: [proto], measure: flows, top: 20, error: 0.02}", 1).0, spread(80, 0.02));
        assert_eq!(of("{by: [proto], measure: flows, top: 20, per: interface}", 3).0, spread(240, 0.01));
        assert_eq!(of("{by: [proto], measure: flows, top: 100, per: interface}", 3).0, spread(512, 0.01));
    }

    #[test]
    fn short_standard_views_take_little_memory() {
        let config = Config::default();
        let views = Views::new(&config, 4).unwrap();
        let standard = |view| views.standard(view).map(|nth| views.questions[nth].structure);
        let talkers = standard(Standard::Talkers);
        assert_eq!(talkers, Some(Structure::HeavyHitters { error: 0.01, candidates: 160, distinct: None }));
        let prefixes = standard(Standard::SourcePrefixes);
        assert_eq!(prefixes, Some(Structure::Prefixes { error: 0.002, candidates: 1_024 }));
        let words = "count-min and candidates: bounds usually within 0.2 % of the whole";
        assert_eq!(prefixes.map(|structure| structure.to_string()), Some(words.to_owned()));
        let mut long = Config::default();
        (long.report.top, long.estimates.top_candidates) = (100, 64);
        let long = Views::new(&long, 4).unwrap();
        let prefixes = long.standard(Standard::SourcePrefixes).map(|nth| long.questions[nth].structure);
        assert_eq!(prefixes, Some(Structure::Prefixes { error: 0.002, candidates: 800 }));
        let scans = standard(Standard::PortsPerSource);
        assert_eq!(scans, Some(Structure::Spread { pairs: 200_000, smallest: 1_000, held: 40, error: 0.02 }));
    }
}
