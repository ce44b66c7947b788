//! Questions: the views of a configuration, prepared for measuring.
//!
//! A [`Question`] is a [`View`] with its [`filter`] of tests, what makes its keys ([`by`](crate::by)), and the
//! structure that answers it, which the [`plan`]ner chose. Questions with the same records are [`sharing`] a structure,
//! and answers to questions with the same `fingerprint` may be added up. [`Views`] has all questions. The directory
//! knows which interface has which slot, and [`ask`] finds the questions for a key. A shard keeps a [`sketch`] for each
//! question.

pub mod ask;
pub mod filter;
mod fingerprint;
pub mod plan;
pub mod sharing;
pub mod sketch;

use std::sync::Arc;

use weir_config::{
    Config, Estimates, Report,
    names::{Facts, Geo, GeoError, Networks},
    view::{Condition, FLOW, Field, Measure, Standard, View},
};
use weir_datapath::directory::Directory;

pub use self::{
    ask::{KeyQuery, short::is_name},
    fingerprint::Fingerprint,
    plan::Structure,
};
use self::{
    filter::{Filter, Test},
    fingerprint::Meaning,
};
use crate::{by::By, hosts::HostNetworks};

/// A view that is prepared for measuring.
#[derive(Clone, Debug)]
pub struct Question {
    /// The view that asks.
    pub view: View,
    /// The filter that selects its records.
    pub filter: Filter,
    /// The key of rows, including the interface if each interface has its own table.
    pub by: By,
    /// The fields whose distinct values it counts.
    pub of: Option<By>,
    /// The fingerprint of the question. Only answers to questions with the same one may be added up.
    pub fingerprint: Fingerprint,
    /// The structure that answers it.
    pub structure: Structure,
    /// The index of an earlier question with the same records, whose sketch also answers this question.
    pub answered_by: Option<usize>,
    /// True if every measured interface feeds it. Otherwise each packet feeds it once.
    pub is_fed_by_all: bool,
    /// The index of the question of prefixes that gets the records that this one's candidates do not hold.
    pub feeds: Option<usize>,
    /// For a question of prefixes, the index of the list of addresses that feeds it instead of records. That list has a
    /// lower index.
    pub fed_by: Option<usize>,
    /// True if only the first record of a flow matters, because it counts distinct values of fields of the flow key.
    pub is_of_flows: bool,
    /// True if reports include the total of its rows.
    pub has_total: bool,
    /// The most rows of all its tables together, unless there are more tables.
    pub rows_max: usize,
    /// How many rows of each table the history remembers; 0 if it remembers none.
    pub remembered: usize,
    /// The addresses that have a row, if it is one of hosts.
    pub own: Option<Arc<HostNetworks>>,
    /// True if flows and peers of hosts are counted in the first record of a flow alone. That is enough unless records
    /// of a flow differ in what it matches, or each interface counts for itself.
    pub counts_first_records: bool,
}

/// The place of an answer in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerPlace {
    /// In its own list, whose rows are parts of the report's totals.
    List,
    /// Among the views, after the user's views.
    Tables,
    /// Among the user's views.
    Own,
}

/// The most rows of all tables of a standard view, unless there are more interfaces. So a report stays short even with
/// hundreds of interfaces.
const TABLES_ROWS_MAX: usize = 256;
/// The most rows of all tables of a view that the history remembers, unless there are more tables.
const REMEMBERED_ROWS_MAX: usize = 1024;

/// The part that views need of records whose packets another interface has fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// They do not need these records.
    Ignored,
    /// The records without hashes.
    Plain,
    /// The records with their hashes.
    Hashed,
}

/// All views, prepared for measuring.
#[derive(Debug)]
pub struct Views {
    /// The standard views, then the user's in the order of the configuration.
    pub questions: Vec<Question>,
    /// How many of the first questions are standard views.
    standard: usize,
    /// The fingerprint of the distinct counts of a report.
    pub unique: Fingerprint,
    /// The part that they need of records whose packets another interface has fed.
    pub repeated: Repeated,
    /// How many records the sample of a window has, for the history; 0 if none is drawn.
    pub sample: usize,
    /// The interfaces that their tests select.
    pub directory: Arc<Directory>,
    /// The named networks of addresses.
    pub networks: Networks,
    /// The addresses that are hosts.
    pub hosts: Arc<HostNetworks>,
    /// Autonomous systems and countries of addresses.
    pub geo: Arc<Geo>,
}

impl Views {
    /// The views of a checked configuration. `interfaces` is the number of slots in use.
    ///
    /// # Errors
    ///
    /// A database of autonomous systems or countries cannot be read.
    pub fn new(config: &Config, interfaces: usize) -> Result<Arc<Self>, GeoError> {
        Ok(Self::with_geo(config, interfaces, Arc::new(Geo::open(&config.geo)?)))
    }

    /// Prepares views with databases that have been read before.
    pub fn with_geo(config: &Config, interfaces: usize, geo: Arc<Geo>) -> Arc<Self> {
        let networks = Networks::new(&config.networks);
        let hosts = Arc::new(HostNetworks::of(config));
        let meaning = Meaning { config, networks: &networks, geo: &geo, hosts: &hosts };
        let unique = meaning.of_unique();
        let mut directory = Directory::default();
        let is_of_use = |standard: &Standard| interfaces > 1 || !standard.is_for_several_interfaces();
        let standard: Vec<Standard> = config.standard().filter(is_of_use).collect();
        let standard_views = standard.iter().map(|standard| {
            let place = if standard.is_per_interface() { AnswerPlace::Tables } else { AnswerPlace::List };
            (standard.view(config.estimates.top_error, config.report.top), place)
        });
        let views = standard_views.chain(config.views.iter().map(|view| (view.clone(), AnswerPlace::Own)));
        let mut questions: Vec<_> =
            views.filter_map(|view| Question::new(view, meaning, &mut directory, interfaces)).collect();
        for (nth, view) in standard.iter().enumerate() {
            if view.is_for_several_interfaces() {
                questions[nth].structure = Structure::for_short_lists(&questions[nth].view, interfaces);
            }
            let Some(addresses) = view.of_addresses() else { continue };
            questions[nth].structure = Structure::for_prefixes(&questions[nth].view, &config.estimates);
            // The traffic beyond listed addresses depends on which are listed, so windows cannot be added up.
            questions[nth].remembered = 0;
            let list = standard[..nth].iter().position(|view| *view == addresses);
            questions[nth].fed_by = list;
            if let Some(list) = list {
                questions[list].feeds = Some(nth);
            }
        }
        sharing::share(&mut questions);
        let fed_by_all = || questions.iter().filter(|question| question.is_fed_by_all);
        let needs_hash =
            |question: &Question| !matches!(question.structure, Structure::Total | Structure::Table { .. });
        let repeated = match (fed_by_all().any(needs_hash), fed_by_all().next()) {
            (true, _) => Repeated::Hashed,
            (false, Some(_)) => Repeated::Plain,
            (false, None) => Repeated::Ignored,
        };
        let (standard, directory) = (standard.len(), Arc::new(directory));
        let sample = config.history.as_ref().map_or(0, |history| history.sample_of_window(config.report.interval));
        Arc::new(Self { questions, standard, unique, repeated, sample, directory, networks, hosts, geo })
    }

    /// The most rows of a report with this many interfaces. A row of double size counts as two.
    pub fn rows(&self, interfaces: u64) -> u64 {
        let rows = |(nth, question): (usize, &Question)| {
            let View { top, per_interface, measure, .. } = &question.view;
            let size = question.row_size();
            // Standard lists come in two orders.
            let orders = if nth < self.standard && measure.is_tally() && !per_interface { 2 } else { 1 };
            let keys = question.by.layout.domain().map(|keys| keys / question.by.layout.slots().unwrap_or(1));
            let tables = if *per_interface { interfaces } else { 1 };
            let rows = keys.map_or(*top, |keys| (*top).min(keys)) as u64 * orders * size * tables;
            rows.min((question.rows_max as u64).max(tables))
        };
        self.questions.iter().enumerate().map(rows).sum()
    }

    /// The most rows that the history remembers of a window with this many interfaces.
    pub fn remembered_rows(&self, interfaces: u64) -> u64 {
        let rows = |(nth, question): (usize, &Question)| {
            let is_table = question.view.per_interface;
            let orders = if nth < self.standard && !is_table { 2 } else { 1 };
            let tables = if is_table { interfaces.max(1) } else { 1 };
            question.remembered_rows(tables as usize) as u64 * orders * tables * question.row_size()
        };
        self.questions.iter().enumerate().map(rows).sum()
    }

    /// The index of a standard view; `None` if it is switched off.
    pub fn standard(&self, standard: Standard) -> Option<usize> {
        self.questions[..self.standard].iter().position(|question| question.view.name == standard.name())
    }

    /// The user's questions, with their indexes.
    pub fn own(&self) -> impl Iterator<Item = (usize, &Question)> {
        self.questions.iter().enumerate().skip(self.standard)
    }

    /// The questions whose answers are among the views of a report, with their indexes: the user's, then the standard
    /// ones of each interface.
    pub fn in_views(&self) -> impl Iterator<Item = (usize, &Question)> {
        let standard = self.questions.iter().enumerate().take(self.standard);
        self.own().chain(standard.filter(|(_, question)| question.view.per_interface))
    }

    /// The standard views alone, for one interface.
    pub fn built_in(estimates: &Estimates, top: usize) -> Arc<Self> {
        Self::built_in_for(estimates, top, 1)
    }

    /// The standard views alone, for this many interface slots.
    pub fn built_in_for(estimates: &Estimates, top: usize, interfaces: usize) -> Arc<Self> {
        let report = Report { top, ..Report::default() };
        let config = Config { estimates: estimates.clone(), report, ..Config::default() };
        Self::with_geo(&config, interfaces, Arc::default())
    }

    /// Returns true if any question counts new flows.
    pub fn has_new_flows(&self) -> bool {
        self.questions.iter().any(|question| question.view.measure == Measure::NewFlows)
    }

    /// The sources of fields besides records.
    pub fn facts(&self) -> Facts<'_> {
        Facts { networks: &self.networks, geo: &self.geo, directions: &self.directory.directions }
    }
}

impl Question {
    /// A question for a view. `None` if its fields do not fit into a key, which the check of the configuration refuses.
    fn new(
        (view, place): (View, AnswerPlace),
        meaning: Meaning<'_>,
        directory: &mut Directory,
        interfaces: usize,
    ) -> Option<Self> {
        let filter =
            Filter(view.conditions.iter().map(|condition| Test::new(condition, meaning.networks, directory)).collect());
        let own = view.per_interface.then_some(Field::Interface);
        let fields: Vec<Field> = view.by.iter().copied().chain(own).collect();
        let by = By::new(&fields, interfaces).ok()?;
        let of = match &view.measure {
            Measure::Bytes | Measure::Packets | Measure::NewFlows => None,
            Measure::Flows => Some(By::new(&FLOW, interfaces).ok()?),
            Measure::Distinct(of) => Some(By::new(of, interfaces).ok()?),
        };
        let counted = of.iter().flat_map(|of| of.layout.fields());
        let is_fed_by_all = fields.iter().chain(counted).any(|field| field.is_of_interface()) || filter.has_interface();
        let structure = Structure::for_view(&view, &by.layout, &meaning.config.estimates, interfaces);
        let of_fields = of.iter().flat_map(|of| of.layout.fields()).chain(&fields);
        let mut matched = view.conditions.iter().map(|Condition { field, .. }| *field);
        let counts_first_records = view.of_hosts && !is_fed_by_all && matched.clone().all(Field::is_of_flow);
        let is_of_flows = of.is_some() && of_fields.copied().chain(&mut matched).all(Field::is_of_flow);
        let has_total = place != AnswerPlace::List && view.measure.is_tally();
        let rows_max = if place == AnswerPlace::Tables { TABLES_ROWS_MAX } else { usize::MAX };
        let can_be_added_up = view.measure.is_tally() && !matches!(structure, Structure::Prefixes { .. });
        let history = meaning.config.history.as_ref().filter(|_| can_be_added_up);
        Some(Self {
            fingerprint: meaning.of_view(&view, &filter),
            filter,
            by,
            of,
            structure,
            answered_by: None,
            is_fed_by_all,
            feeds: None,
            fed_by: None,
            is_of_flows,
            has_total,
            rows_max,
            remembered: history.map_or(0, |history| history.rows),
            own: view.of_hosts.then(|| meaning.hosts.clone()),
            counts_first_records,
            view,
        })
    }

    /// How many rows of two numbers one of its rows is as large as. A prefix has every number twice, and a host has
    /// each number for both directions, and two more.
    const fn row_size(&self) -> u64 {
        match self.structure {
            Structure::Prefixes { .. } => 2,
            Structure::Hosts { .. } => 4,
            _ => 1,
        }
    }

    /// How many rows a report has of each table, if there are this many.
    pub fn reported_rows(&self, tables: usize) -> usize {
        self.view.top.min((self.rows_max / tables.max(1)).max(1))
    }

    /// How many rows the history remembers of each table, if there are this many.
    pub fn remembered_rows(&self, tables: usize) -> usize {
        self.remembered.min((REMEMBERED_ROWS_MAX.min(self.rows_max) / tables.max(1)).max(1))
    }

    /// The index of the question whose sketch answers the `nth` question.
    pub fn sketch(&self, nth: usize) -> usize {
        self.answered_by.unwrap_or(nth)
    }

    /// Returns true if records feed its sketch, that is, it has its own sketch and is not fed by a list of addresses.
    pub const fn is_fed_by_records(&self) -> bool {
        self.fed_by.is_none() && self.answered_by.is_none()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use weir_common::{
        flow::{FlowKey, Scope},
        record::Record,
    };
    use weir_config::{interface::Way, view::Side};

    use super::*;

    #[test]
    fn a_view_by_direction_uses_the_current_interface_of_a_slot() {
        let config = Config::parse("views: [{name: w, by: [direction, proto]}]", "test").unwrap();
        let views = Views::new(&config, 4).unwrap();
        let by = &views.own().next().unwrap().1.by;
        let key = FlowKey::default().with_proto(6).with_scope(Scope::new(2, 0));
        let record = Record { key, packets: 1, bytes: 60, sampling: 1, ..Record::default() };
        let shown =
            || Value::Object(by.layout.show(&by.key(&record, Side::Src, views.facts()), views.facts(), |_, _| ()));
        for (way, row) in [
            (Some(Way::Egress), json!({"direction": "egress", "proto": "tcp"})),
            (Some(Way::Ingress), json!({"direction": "ingress", "proto": "tcp"})),
            (None, json!({"proto": "tcp"})),
        ] {
            views.directory.assign(2, &["eth0"], way);
            assert_eq!(shown(), row);
        }
    }

    #[test]
    fn a_users_view_replaces_a_standard_table_of_the_same_name() {
        let names = |text: &str| {
            let views = Views::new(&Config::parse(text, "test").unwrap(), 4).unwrap();
            let names: Vec<String> = views.in_views().map(|(_, question)| question.view.name.clone()).collect();
            let first = views.own().next().map(|(_, question)| question.view.name.clone());
            (names.join(" "), first)
        };
        let own = "views: [{name: w}, {name: dscp, by: [dscp]}, {name: flows}]";
        let (w, none) = (Some("w".to_owned()), None);
        assert_eq!(names(own), ("w dscp flows ip_versions protocols talkers".to_owned(), w.clone()));
        assert_eq!(names(&format!("standard_views: [dscp]\n{own}")), ("w dscp flows".to_owned(), w));
        assert_eq!(names(""), ("ip_versions protocols dscp talkers".to_owned(), none.clone()));
        assert_eq!(names("standard_views: []"), (String::new(), none));
    }

    #[test]
    fn the_views_decide_how_repeated_packets_are_measured() {
        let repeated = |text: &str| Views::new(&Config::parse(text, "test").unwrap(), 4).unwrap().repeated;
        assert_eq!(repeated(""), Repeated::Hashed);
        assert_eq!(repeated("standard_views: [flows, dscp]"), Repeated::Plain);
        assert_eq!(repeated("standard_views: [flows]"), Repeated::Ignored);
        assert_eq!(repeated("views: [{name: w, by: [src_ip], per: interface}]"), Repeated::Hashed);
    }

    #[test]
    fn views_that_distinguish_interfaces_are_fed_by_all_of_them() {
        let is_fed_by_all = |view: &str| {
            let config = Config::parse(&format!("views: [{{name: w, {view}}}]"), "test").unwrap();
            let views = Views::new(&config, 4).unwrap();
            views.own().next().unwrap().1.is_fed_by_all
        };
        for view in [
            "by: [interface]",
            "by: [direction]",
            "by: [interface, direction]",
            "match: {direction: egress}",
            "match: {not: {interface: eth0}}",
            "by: [src_ip], per: interface",
            "by: [src_ip], measure: {distinct: [interface, proto]}",
            "measure: {distinct: direction}",
        ] {
            assert!(is_fed_by_all(view), "{view}");
        }
        for view in ["by: [src_ip]", "match: {vlan: 7}", "by: [src_ip], measure: flows", "measure: {distinct: dst_ip}"]
        {
            assert!(!is_fed_by_all(view), "{view}");
        }
    }
}
