//! One table of all numbers of a report that are exported to Prometheus and OTLP, or judged by the rules of alerts.
//!
//! [`table::TABLE`] has a [`Series`] for each: its name, unit, kind and description, and a function that reads its
//! [points](point) from a report. `weir_config::rule::catalogue` has the names by which rules select points.

pub mod point;
mod read;
pub mod table;

use self::{
    point::{Classes, Labels, Owner, Point, Reading, Scalar},
    read::Get,
};
use crate::Report;

/// A number of a report, which may appear several times with different labels.
#[derive(Debug)]
pub struct Series {
    /// The name, from which the exporters derive theirs.
    pub name: &'static str,
    /// The unit of the numbers.
    pub unit: Unit,
    /// How it behaves from window to window.
    pub kind: Kind,
    /// A sentence that describes the numbers.
    pub help: &'static str,
    /// The targets in which its bounds are separate series. Rules use all bounds.
    bounds: &'static [Target],
    /// Why it is not exported, by [`Target`].
    absent: [Option<&'static str>; 3],
    get: Get,
}

/// A target of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The Prometheus endpoint.
    Prometheus,
    /// The OTLP exporter.
    Otlp,
    /// The rules of alerts.
    Rules,
}

/// How a number behaves from window to window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Counted in the window: the numbers of several windows add up.
    Sum,
    /// Counted since the daemon's start.
    SinceStart,
    /// The value in the window. It goes up and down.
    Gauge,
    /// Always 1: its labels carry the information.
    Info,
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// The code in the Unified Code for Units of Measure.
    pub ucum: &'static str,
    /// The suffix of names in Prometheus; empty if there is none.
    pub base: &'static str,
    /// How many of this unit make one of the Prometheus unit.
    pub parts: f64,
}

#[expect(non_upper_case_globals, reason = "the table reads as if they were variants")]
impl Unit {
    const One: Self = Self { ucum: "1", base: "", parts: 1.0 };
    const Ratio: Self = Self { base: "ratio", ..Self::One };
    const Packets: Self = Self { ucum: "{packet}", base: "packets", ..Self::One };
    const PacketsPerSecond: Self = Self { ucum: "{packet}/s", ..Self::One };
    const Bytes: Self = Self { ucum: "By", base: "bytes", ..Self::One };
    const BytesPerSecond: Self = Self { ucum: "By/s", ..Self::One };
    const Flows: Self = Self { ucum: "{flow}", ..Self::One };
    const Records: Self = Self { ucum: "{record}", ..Self::One };
    const Reports: Self = Self { ucum: "{report}", base: "reports", ..Self::One };
    const Attempts: Self = Self { ucum: "{attempt}", base: "attempts", ..Self::One };
    const Cpus: Self = Self { ucum: "{cpu}", ..Self::One };
    const Bits: Self = Self { ucum: "bit", ..Self::One };
    const Seconds: Self = Self { ucum: "s", base: "seconds", ..Self::One };
    const Nanoseconds: Self = Self { ucum: "ns", base: "seconds", parts: 1e9 };
}

/// The number itself, or one of its bounds.
#[derive(Debug)]
pub struct Side {
    /// The suffix of its name; empty for the number itself.
    pub name: &'static str,
    /// The words that are appended to the description.
    pub help: &'static str,
    /// Takes this side of a reading; `None` if the reading lacks it.
    pub of: fn(&Reading) -> Option<Scalar>,
}

const SIDES: [Side; 3] = [
    Side { name: "", help: "", of: |reading| Some(reading.value) },
    Side { name: "lower", help: " Lower bound.", of: |reading| reading.bounds.map(|[lower, _]| lower) },
    Side { name: "upper", help: " Upper bound.", of: |reading| reading.bounds.map(|[_, upper]| upper) },
];

impl Series {
    /// The series with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        table::TABLE.iter().find(|series| series.name == name)
    }

    /// All series for this target.
    pub fn all(target: Target) -> impl Iterator<Item = &'static Self> {
        table::TABLE.iter().filter(move |series| series.absent(target).is_none())
    }

    /// Why it is not exported to this target; `None` if it is.
    pub const fn absent(&self, target: Target) -> Option<&'static str> {
        self.absent[target as usize]
    }

    /// The number, and the bounds that are exported to this target.
    pub fn sides(&self, target: Target) -> &'static [Side] {
        if self.bounds.contains(&target) { &SIDES } else { &SIDES[..1] }
    }

    /// The points of a report. Points of the same interface are together.
    pub(crate) fn groups<'r>(&self, report: &'r Report) -> Vec<Vec<Point<'r>>> {
        self.get.points(report)
    }

    /// The points of a report that are exported.
    pub fn points<'r>(&self, report: &'r Report) -> impl Iterator<Item = Point<'r>> + use<'r> {
        self.groups(report).into_iter().flatten().filter(|point| point.is_exported)
    }

    /// The classes of each interface, if it is a distribution with fixed classes.
    pub fn classes<'r>(&self, report: &'r Report) -> Option<Vec<(Labels<'r>, Classes<'r>)>> {
        let Get::Classes(of) = self.get else { return None };
        let all = report.interfaces.iter().map(|one| (Owner::interface(one).labels(), of(one)));
        Some(all.collect())
    }

    const fn new(name: &'static str, unit: Unit, kind: Kind, help: &'static str, get: Get) -> Self {
        Self { name, unit, kind, help, bounds: &[], absent: [None; 3], get }
    }

    const fn bounds(mut self, exported: &'static [Target]) -> Self {
        self.bounds = exported;
        self
    }

    const fn not(mut self, targets: &[Target], why: &'static str) -> Self {
        let mut nth = 0;
        while nth < targets.len() {
            self.absent[targets[nth] as usize] = Some(why);
            nth += 1;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use weir_config::{Config, rule::catalogue::Catalogue, view::Standard};

    use super::{table::TABLE, *};

    /// The exporters have the same test for their numbers.
    #[test]
    fn every_number_is_in_the_rules_or_has_a_reason_why_not() {
        let views = "views:
            - {name: hosts, by: [src_ip], measure: bytes, entropy: true}
            - {name: each_flow, by: [src_ip], measure: flows}
            - {name: each_new_flow, by: [src_ip], measure: new_flows}
            - {name: ports, by: [src_ip], measure: {distinct: dst_port}}";
        let views = Config::parse(views, "views.yaml").unwrap().views;
        let mut judged = BTreeSet::new();
        let standard = Catalogue::new(Standard::ALL, &[]).with_horizons(&[Duration::from_secs(3600)]);
        for catalogue in [standard, Catalogue::new([], &views)] {
            judged.extend(catalogue.names().map(|name| catalogue.find(name).unwrap().selector.series.clone()));
        }
        for series in TABLE {
            let Series { name, help, .. } = series;
            assert_eq!(judged.remove(*name), series.absent(Target::Rules).is_none(), "{name}");
            assert!(help.ends_with('.'), "{name}: {help}");
        }
        assert!(judged.is_empty(), "rules name series that are not in the table, or that are in it twice: {judged:?}");
    }
}
