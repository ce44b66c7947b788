//! Views: questions that are asked of every record. *Match* says which records, *by* is the key, *measure* is what of
//! them.
//!
//! A [`View`] is the question as the configuration has it. [`Views`] are all of them, ready to be asked: a [`filter`] of
//! tests, and [`by`], which packs the [`field`]s into a key. [`plan`] chooses the structure that answers, and knows what
//! it costs. [`directory`] knows which interface has which slot, and [`networks`] have names for addresses.

pub mod ask;
pub mod by;
pub mod directory;
pub mod field;
pub mod filter;
pub mod geo;
pub mod networks;
pub mod plan;
pub mod standard;

use std::sync::Arc;

use serde::{Serialize, Serializer, ser::SerializeMap};

pub use self::{
    ask::Ask,
    by::{By, Kind, ViewKey},
    field::{Facts, Field, Side},
    plan::Structure,
    standard::Standard,
};
use self::{
    directory::{Directory, Selector},
    filter::{Among, Filter, Of, Test},
    geo::{Geo, GeoError},
    networks::Networks,
};
use crate::config::{Config, Estimates, Prefix, Report, Way};

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Its name in reports.
    pub name: String,
    /// Which records.
    pub conditions: Vec<Condition>,
    /// The key; without fields, all records together.
    pub by: Vec<Field>,
    /// What of them.
    pub measure: Measure,
    /// Rows of each table.
    pub top: usize,
    /// Whether each interface and direction has a table of its own.
    pub per_interface: bool,
    /// How exact: the usual distance of the bounds, as a share of all that the view counts.
    pub error: f64,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes and packets; the rows with the most bytes.
    Bytes,
    /// The same; the rows with the most packets.
    Packets,
    /// How many different flows.
    Flows,
    /// How many different values these fields have together.
    Distinct(Vec<Field>),
}

impl Measure {
    /// Whether it is bytes and packets.
    pub const fn is_tally(&self) -> bool {
        matches!(self, Self::Bytes | Self::Packets)
    }
}

/// A condition of a view: one key of `match`, or of `not` in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The key.
    pub key: &'static str,
    /// Whether it is in `not`.
    pub is_negated: bool,
    /// The values as they were written.
    pub texts: Vec<String>,
    /// What they mean.
    pub values: Values,
}

/// What the values of a condition mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Addresses in these prefixes.
    Prefixes(Side, Vec<Prefix>),
    /// Numbers in these ranges.
    Ranges(Of, Vec<(u16, u16)>),
    /// Numbers.
    Numbers(Of, Vec<u8>),
    /// Interfaces by name or pattern.
    Interfaces(Vec<String>),
    /// A direction.
    Direction(Way),
    /// Networks by name.
    Networks(Side, Vec<String>),
}

/// A view that is ready to be asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The view.
    pub view: View,
    /// Which records.
    pub filter: Filter,
    /// Their key, with the interface in it if each has a table of its own.
    pub by: By,
    /// What is distinct.
    pub of: Option<By>,
    /// What answers it.
    pub structure: Structure,
    /// Whether every measured interface feeds it; otherwise each packet feeds it once.
    pub is_fed_by_all: bool,
    /// Whether the second record of a flow changes nothing: it counts what is distinct, by what makes a flow.
    pub is_of_flows: bool,
}

/// All views, ready to be asked.
#[derive(Debug)]
pub struct Views {
    /// The standard views, then the user's in the order of the configuration.
    pub questions: Vec<Question>,
    /// How many of them, the first ones, are standard views.
    standard: usize,
    /// Which interfaces their tests select.
    pub directory: Directory,
    /// Names for addresses.
    pub networks: Networks,
    /// Autonomous systems and countries of addresses.
    pub geo: Geo,
}

impl Views {
    /// The views of a configuration that was checked. `interfaces` are the slots in use.
    ///
    /// # Errors
    ///
    /// A database of autonomous systems or countries cannot be read.
    pub fn new(config: &Config, interfaces: usize) -> Result<Arc<Self>, GeoError> {
        Ok(Self::with_geo(config, interfaces, Geo::open(&config.geo)?))
    }

    fn with_geo(config: &Config, interfaces: usize, geo: Geo) -> Arc<Self> {
        let networks = Networks::new(&config.networks);
        let mut directory = Directory::default();
        let standard = config.standard_views.iter().map(|standard| standard.view(&config.estimates, config.report.top));
        let views = standard.chain(config.views.iter().cloned());
        let questions = views
            .filter_map(|view| Question::new(view, &config.estimates, &networks, &mut directory, interfaces))
            .collect();
        Arc::new(Self { questions, standard: config.standard_views.len(), directory, networks, geo })
    }

    /// Rows of a report, at most, with so many interfaces.
    pub fn rows(&self, interfaces: u64) -> u64 {
        let rows = |(nth, question): (usize, &Question)| {
            let View { top, per_interface, measure, .. } = &question.view;
            // Standard lists are there in two orders.
            let orders = if nth < self.standard && measure.is_tally() { 2 } else { 1 };
            *top as u64 * orders * if *per_interface { interfaces } else { 1 }
        };
        self.questions.iter().enumerate().map(rows).sum()
    }

    /// The number of a standard view, unless it is switched off.
    pub fn standard(&self, standard: Standard) -> Option<usize> {
        self.questions[..self.standard].iter().position(|question| question.view.name == standard.name())
    }

    /// The user's questions, with their numbers.
    pub fn own(&self) -> impl Iterator<Item = (usize, &Question)> {
        self.questions.iter().enumerate().skip(self.standard)
    }

    /// The standard views alone.
    pub fn built_in(estimates: &Estimates, top: usize) -> Arc<Self> {
        let report = Report { top, ..Report::default() };
        Self::with_geo(&Config { estimates: estimates.clone(), report, ..Config::default() }, 1, Geo::default())
    }

    /// Whether a question is fed by packets that have fed on another interface.
    pub fn has_repeated(&self) -> bool {
        self.questions.iter().any(|question| question.is_fed_by_all)
    }

    /// What fields are read from besides records.
    pub fn facts(&self) -> Facts<'_> {
        Facts { networks: &self.networks, geo: &self.geo }
    }
}

impl Question {
    /// Nothing if its fields do not fit into a key, which the configuration's check refuses.
    fn new(
        view: View,
        estimates: &Estimates,
        networks: &Networks,
        directory: &mut Directory,
        interfaces: usize,
    ) -> Option<Self> {
        let filter = Filter(view.conditions.iter().map(|condition| condition.test(networks, directory)).collect());
        let own = view.per_interface.then_some(Field::Interface);
        let fields: Vec<Field> = view.by.iter().copied().chain(own).collect();
        let by = By::new(&fields, interfaces).ok()?;
        let of = match &view.measure {
            Measure::Bytes | Measure::Packets => None,
            Measure::Flows => Some(By::new(&FLOW, interfaces).ok()?),
            Measure::Distinct(of) => Some(By::new(of, interfaces).ok()?),
        };
        let has_interface = fields.contains(&Field::Interface) || filter.has_interface();
        let structure = Structure::for_view(&view, &by, estimates, interfaces);
        let of_fields = of.iter().flat_map(By::fields).chain(&fields);
        let is_of_flows = of.is_some() && filter.is_of_flow() && of_fields.copied().all(Field::is_of_flow);
        Some(Self { filter, by, of, structure, is_fed_by_all: has_interface, is_of_flows, view })
    }
}

/// The fields of a flow.
pub const FLOW: [Field; 5] = [
    Field::Ip(Side::Src, field::Lengths::WHOLE),
    Field::Ip(Side::Dst, field::Lengths::WHOLE),
    Field::SrcPort,
    Field::DstPort,
    Field::Proto,
];

impl Condition {
    fn test(&self, networks: &Networks, directory: &mut Directory) -> Test {
        let (of, among) = match &self.values {
            Values::Prefixes(side, prefixes) => {
                (Of::Ip(*side), Among::Prefixes(Arc::new(Networks::of_prefixes(prefixes))))
            }
            Values::Ranges(of, ranges) => (*of, Among::Ranges(ranges.clone().into_boxed_slice())),
            Values::Numbers(of, numbers) => (*of, Among::bits(numbers.iter().copied())),
            Values::Interfaces(names) => (Of::Slot, Among::Interfaces(directory.add(Selector::Names(names.clone())))),
            Values::Direction(way) => (Of::Slot, Among::Interfaces(directory.add(Selector::Direction(*way)))),
            Values::Networks(side, names) => {
                (Of::Net(*side), Among::bits(names.iter().map(|name| networks.id(name).unwrap_or(Networks::NONE))))
            }
        };
        Test { is_negated: self.is_negated, of, among }
    }
}

/// As the configuration has it, with every setting.
impl Serialize for View {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { name, conditions, by, measure, top, per_interface, error } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        if !conditions.is_empty() {
            map.serialize_entry("match", &Conditions(conditions, false))?;
        }
        map.serialize_entry("by", &by.iter().map(Field::to_string).collect::<Vec<_>>())?;
        map.serialize_entry("measure", measure)?;
        map.serialize_entry("top", top)?;
        if *per_interface {
            map.serialize_entry("per", "interface")?;
        }
        map.serialize_entry("error", error)?;
        map.end()
    }
}

struct Conditions<'a>(&'a [Condition], bool);

impl Serialize for Conditions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(conditions, negated) = *self;
        let mut map = serializer.serialize_map(None)?;
        for condition in conditions.iter().filter(|condition| condition.is_negated == negated) {
            map.serialize_entry(condition.key, &condition.texts)?;
        }
        if !negated && conditions.iter().any(|condition| condition.is_negated) {
            map.serialize_entry("not", &Conditions(conditions, true))?;
        }
        map.end()
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes => serializer.serialize_str("bytes"),
            Self::Packets => serializer.serialize_str("packets"),
            Self::Flows => serializer.serialize_str("flows"),
            Self::Distinct(of) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("distinct", &of.iter().map(Field::to_string).collect::<Vec<_>>())?;
                map.end()
            }
        }
    }
}
