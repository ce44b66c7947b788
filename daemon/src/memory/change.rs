//! Changes of settings that determine how much memory a configuration needs.

use std::fmt;

use weir_config::{Config, History, view::Standard};

/// A change of a setting that needs less memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A larger `estimates.top_error`.
    TopError(f64),
    /// The remaining standard views.
    Standard(Vec<Standard>),
    /// The error of a user's view.
    ViewError {
        /// The name of the view.
        view: String,
        /// The larger error.
        error: f64,
    },
    /// A smaller `seen_flows.capacity`.
    Capacity(u64),
    /// `history.memory`; `None` turns it off.
    History(Option<u64>),
}

impl Change {
    pub(super) fn apply(&self, config: &mut Config) {
        match self {
            Self::TopError(error) => {
                config.estimates.top_error = *error;
                for view in config.views.iter_mut().filter(|view| view.follows_top_error) {
                    view.error = *error;
                }
            }
            Self::Standard(staying) => config.standard_views.clone_from(staying),
            Self::ViewError { view, error } => {
                for view in config.views.iter_mut().filter(|one| one.name == *view) {
                    (view.error, view.follows_top_error) = (*error, false);
                }
            }
            Self::Capacity(capacity) => config.seen_flows.capacity = *capacity,
            Self::History(memory) => {
                let history = config.history.take().unwrap_or_default();
                config.history = memory.map(|memory| History { memory, ..history });
            }
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TopError(error) => write!(f, "`estimates: {{top_error: {error}}}`"),
            Self::Standard(staying) => {
                let names: Vec<_> = staying.iter().map(|standard| standard.name()).collect();
                write!(f, "`standard_views: [{}]`", names.join(", "))
            }
            Self::ViewError { view, error } => write!(f, "`error: {error}` in the view {view}"),
            Self::Capacity(capacity) => write!(f, "`seen_flows: {{capacity: {capacity}}}`"),
            Self::History(Some(memory)) => write!(f, "`history: {{memory: {}KiB}}`", memory >> 10),
            Self::History(None) => f.write_str("`history: off`"),
        }
    }
}
