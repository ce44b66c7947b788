//! What a running weir has counted in the open window so far: its lists, before the report has them.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_config::view::Standard;
use weir_datapath::interface::MeasuredInterface;
use weir_measure::{
    answer::Answer,
    look_up::Found,
    open::{OpenSummary, is_readable},
    question::{Ask, Views},
};

use super::{NewFlows, Row, Top, Totals, Unique, View, Window, compose, instant, rows};

/// The schema that these structs serialise to.
pub const LIVE_SCHEMA: &str = "weir.live/1";

/// The lists of the open window so far. `live` on the control socket answers with it. All bounds hold for everything
/// that was seen until `time`, or up to a second earlier if the answer was made for another reader. Rows have the form
/// that they have in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Live {
    /// The schema's name and version.
    #[schemars(extend("const" = LIVE_SCHEMA))]
    pub schema: String,
    /// When the open window was read, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub time: Timestamp,
    /// The open window.
    pub window: OpenWindow,
    /// How addresses are masked, as in a report. Absent if they are as weir saw them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<String>,
    /// Sums over all interfaces, of everything that was seen so far.
    pub totals: Totals,
    /// Estimates of the number of distinct addresses and flows so far.
    pub unique: Unique,
    /// Estimate of the number of flows that were not seen before.
    pub new_flows: NewFlows,
    /// The largest talkers by bytes. A key that is among the largest of all workers together, but of none of them
    /// alone, may be missing.
    pub top: Top,
    /// The largest talkers by packets.
    pub top_by_packets: Top,
    /// The views.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<View>,
    /// Lists and views that are known only when the window has ended, by their names. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_yet: Vec<String>,
}

/// The window that is open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenWindow {
    /// When it began, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// How long it has been open, in seconds, measured on a clock that is never adjusted.
    #[schemars(range(min = 0))]
    pub seconds: f64,
}

impl Live {
    /// The lists of an open window.
    pub fn compose(
        (time, window): (Timestamp, OpenWindow),
        plan: &Views,
        open: &OpenSummary,
        interfaces: &[MeasuredInterface],
    ) -> Self {
        let OpenSummary { sampling, confidence, uncertainty, views: answers, .. } = open;
        let list = |by| compose::list(plan, answers, by, *sampling, *confidence);
        let named = plan.questions.iter().filter(|question| !is_readable(question));
        Self {
            schema: LIVE_SCHEMA.to_owned(),
            time,
            window,
            addresses: None,
            totals: compose::totals(open.fed, open.protocols, uncertainty.is_some().then_some(*confidence)),
            unique: Unique {
                src_ip: compose::distinct(open.sources),
                dst_ip: compose::distinct(open.destinations),
                flows: compose::distinct(open.flows),
            },
            new_flows: compose::new_flows(&open.new_flows),
            top: list("bytes"),
            top_by_packets: list("packets"),
            views: views(plan, answers, interfaces),
            not_yet: named.map(|question| question.view.name.clone()).collect(),
        }
    }

    /// The same with one list or view alone.
    ///
    /// # Errors
    ///
    /// There is none with this name: which there are.
    pub fn only(mut self, name: &str) -> Result<Self, String> {
        let mut names = Vec::new();
        for top in [&mut self.top, &mut self.top_by_packets] {
            names = keep_list(top, name);
        }
        names.extend(self.views.iter().map(|view| view.name.clone()));
        if self.not_yet.iter().any(|later| later == name) {
            return Err(format!("{name} is known only when the window has ended: it is in the report"));
        }
        if !names.iter().any(|known| known == name) {
            return Err(format!("there is no list {name:?} (there are: {})", names.join(", ")));
        }
        self.views.retain(|view| view.name == name);
        Ok(self)
    }
}

/// Empties all lists but this one; returns their names.
fn keep_list(top: &mut Top, name: &str) -> Vec<String> {
    let Top { by: _, sampling: _, confidence: _, flows, sources, destinations, pairs, services, .. } = top;
    let keep = |list: Standard, empty: &mut dyn FnMut()| {
        if list.name() != name {
            empty();
        }
        list.name().to_owned()
    };
    vec![
        keep(Standard::Flows, &mut || flows.clear()),
        keep(Standard::Sources, &mut || sources.clear()),
        keep(Standard::Destinations, &mut || destinations.clear()),
        keep(Standard::Pairs, &mut || pairs.clear()),
        keep(Standard::Services, &mut || services.clear()),
    ]
}

fn views(plan: &Views, answers: &[Answer], interfaces: &[MeasuredInterface]) -> Vec<View> {
    let readable = plan.in_views().filter(|(_, question)| is_readable(question));
    let of = readable.filter_map(|(nth, question)| Some((question, answers.get(nth)?)));
    of.map(|(question, answer)| View::new(plan, question, answer, interfaces)).collect()
}

/// What is known of some keys in the open window. `ask` on the control socket answers with it if it is asked for the
/// open window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveAnswers {
    /// When the open window was read, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub time: Timestamp,
    /// The open window.
    pub window: OpenWindow,
    /// The answers of all views that have such keys, in the order of the question.
    pub answers: Vec<Row>,
}

impl LiveAnswers {
    /// The answers to these questions, which the workers were asked.
    pub fn new(
        (time, window): (Timestamp, OpenWindow),
        plan: &Views,
        open: &OpenSummary,
        asks: &[Ask],
        interfaces: &[MeasuredInterface],
    ) -> Self {
        let found: Vec<Found> = open.look_up(plan, asks, interfaces);
        Self { time, window, answers: rows::answers(plan, &found, interfaces) }
    }

    /// The part of the window that they are about.
    pub fn so_far(&self) -> Window {
        let OpenWindow { start, seconds } = self.window;
        let (clock_step_seconds, late_packets, untimed_packets) = Default::default();
        Window { start, end: self.time, seconds, clock_step_seconds, late_packets, untimed_packets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Report;

    /// The lists of the golden report, as those of an open window.
    fn live() -> Live {
        let golden = include_str!("../tests/golden/report.json");
        let Report { window, totals, unique, new_flows, top, top_by_packets, views, .. } =
            serde_json::from_str(golden).unwrap();
        let (schema, not_yet) = (LIVE_SCHEMA.to_owned(), vec!["source_prefixes".to_owned()]);
        let open = OpenWindow { start: window.start, seconds: 7.5 };
        let (time, addresses) = (window.end, None);
        Live { schema, time, window: open, addresses, totals, unique, new_flows, top, top_by_packets, views, not_yet }
    }

    #[test]
    fn one_list_can_be_asked_for_and_a_wrong_name_is_told_which_there_are() {
        let all = live();
        let pairs = all.clone().only("pairs").unwrap();
        assert_eq!((&pairs.top.pairs, &pairs.top_by_packets.pairs), (&all.top.pairs, &all.top_by_packets.pairs));
        assert!(pairs.top.flows.is_empty() && pairs.top_by_packets.services.is_empty() && pairs.views.is_empty());
        let view = all.clone().only(&all.views[0].name).unwrap();
        assert!(view.views == all.views[..1] && view.top.pairs.is_empty());
        assert!(all.clone().only("source_prefixes").unwrap_err().contains("when the window has ended"));
        let why = all.clone().only("pair").unwrap_err();
        assert!(
            why.contains("flows, sources, destinations, pairs, services") && why.contains(&all.views[0].name),
            "{why}"
        );
    }

    #[test]
    fn it_is_read_as_it_was_written_and_as_its_schema_says() {
        let live = live();
        let text = serde_json::to_string(&live).unwrap();
        assert_eq!(serde_json::from_str::<Live>(&text).unwrap(), live);
        let schema: serde_json::Value = serde_json::from_str(crate::schema::LIVE).unwrap();
        let validator = jsonschema::draft202012::options().should_validate_formats(true).build(&schema).unwrap();
        validator.validate(&serde_json::from_str(&text).unwrap()).unwrap();
    }
}
