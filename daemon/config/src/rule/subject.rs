//! The subjects of rules: numbers of a report, with their name and their place in it.

use std::fmt;

use super::unit::Dimension;
use crate::view::Standard;

/// Numbers of a report that share a name.
#[derive(Clone)]
pub struct Subject {
    /// The name of the number in a condition.
    pub name: String,
    /// The dimension of these numbers.
    pub dimension: Dimension,
    /// True if only the largest keys have such a number. A key that is not listed may have a smaller one.
    pub is_listed: bool,
    /// True if each interface has its own numbers.
    pub is_per_interface: bool,
    /// The standard view that they come from.
    pub standard: Option<Standard>,
    /// The place of the numbers in a report.
    pub selector: Selector,
}

/// The place of numbers in a report: all points of a series (`weir_schema::series`) that have all of these labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The name of the series.
    pub series: String,
    /// The names and values of the labels.
    pub labels: Vec<(&'static str, String)>,
}

impl Selector {
    /// Selects points of this series with these labels.
    pub fn new(series: impl Into<String>, labels: &[(&'static str, &str)]) -> Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { series: series.into(), labels }
    }
}

/// Names are unique within a configuration, so they decide.
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
