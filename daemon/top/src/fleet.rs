//! A fleet: the reports of many routers, merged.

use std::cmp::Reverse;

use jiff::Timestamp;
use weir_schema::{Estimate, Fact};

use crate::{
    history::{Line, Rate},
    list::{By, List},
};

/// The newest window of a fleet.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// The start and end of the window; `None` if no report has come yet.
    pub window: Option<(Timestamp, Timestamp)>,
    /// True if reports of this window are still expected.
    pub is_open: bool,
    /// Each router with the rates of its last reports. Those of a router that is late end with `None`.
    pub routers: Vec<Line>,
    /// How reliable the numbers are.
    pub facts: Vec<Fact>,
    /// A caveat that is shown with the numbers.
    pub note: String,
    /// Why something is missing, in words. That of a router is in its line.
    pub troubles: Vec<String>,
    /// How many different values there are, by name.
    pub distinct: Vec<(String, Estimate)>,
    /// The lists by bytes.
    pub by_bytes: Vec<List>,
    /// The same lists by packets.
    pub by_packets: Vec<List>,
}

impl Fleet {
    /// The lists in this order.
    pub fn lists(&self, by: By) -> &[List] {
        if by == By::Packets { &self.by_packets } else { &self.by_bytes }
    }

    /// The routers, in the order in which so many lines show them: if there are more, those with a trouble come first,
    /// then those with the highest rates.
    pub fn lines(&self, lines: usize) -> Vec<(&Line, Option<Rate>)> {
        let mut all: Vec<_> = self.routers.iter().map(|line| (line, line.now())).collect();
        if all.len() > lines {
            all.sort_by_key(|(line, rate)| (line.last.trouble.is_none(), Reverse(bits(rate))));
        }
        all
    }

    /// Returns all troubles of all routers.
    pub fn all_troubles(&self) -> impl Iterator<Item = String> {
        let of_routers = self.routers.iter();
        let of_routers =
            of_routers.filter_map(|line| Some(format!("{}: {}", line.last.name, line.last.trouble.as_ref()?)));
        self.troubles.iter().cloned().chain(of_routers)
    }
}

fn bits(rate: &Option<Rate>) -> u64 {
    rate.map_or(0, |rate| rate.bits as u64)
}
