//! The subjects of rules: numbers of a report, by their name and their place in it.

use std::fmt;

use super::unit::Dimension;
use crate::view::Standard;

/// Numbers of a report that share a name.
#[derive(Clone)]
pub struct Subject {
    /// The name.
    pub name: String,
    /// What they count.
    pub dimension: Dimension,
    /// Whether only the largest keys have numbers: a key that is not listed may have less.
    pub is_listed: bool,
    /// Whether each interface has numbers of its own.
    pub is_per_interface: bool,
    /// The standard view that they come from.
    pub standard: Option<Standard>,
    /// Where they are in a report.
    pub selector: Selector,
}

/// Where numbers are in a report: points of a series (`weir_report::series`), those that have all of these labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The name of the series.
    pub series: String,
    /// Names and values of labels.
    pub labels: Vec<(&'static str, String)>,
}

impl Selector {
    /// Points of this series with these labels.
    pub fn new(series: impl Into<String>, labels: &[(&'static str, &str)]) -> Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { series: series.into(), labels }
    }
}

/// A name is unique within a configuration.
impl PartialEq for Subject {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
