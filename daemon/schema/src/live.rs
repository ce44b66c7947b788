//! The lists of the open window so far, before its report.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_config::view::Standard;

use super::{Length, NewFlows, Row, Top, Totals, Unique, View, Window, instant, standard_lists};

/// The schema that these structs serialise to.
pub const LIVE_SCHEMA: &str = "weir.live/1";

/// The lists of the open window so far: the answer to `live` on the control socket. All bounds hold for everything that
/// was seen until `time`. That may be up to a second ago if the answer was made for another client. Rows have the same
/// form as in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Live {
    /// The schema's name and version.
    #[schemars(extend("const" = LIVE_SCHEMA))]
    pub schema: String,
    /// When the open window was read, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub time: Timestamp,
    /// The window that is open now.
    pub window: OpenWindow,
    /// How addresses are masked, as in a report. Absent if they are not masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<String>,
    /// Sums over all interfaces so far.
    pub totals: Totals,
    /// Estimates of the number of distinct addresses and flows so far.
    pub unique: Unique,
    /// Estimate of the number of flows that were not seen before.
    pub new_flows: NewFlows,
    /// The largest talkers by bytes. A key may be missing if it is among the largest of all workers together, but of no
    /// single worker.
    pub top: Top,
    /// The largest talkers by packets.
    pub top_by_packets: Top,
    /// The views as far as the open window can answer them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<View>,
    /// The names of lists and views that are known only after the window. Absent if there are none.
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
    /// The same with only one list or view.
    ///
    /// # Errors
    ///
    /// There is no list or view with this name. The error names those that exist.
    pub fn only(mut self, name: &str) -> Result<Self, String> {
        let mut names = Vec::new();
        for top in [&mut self.top, &mut self.top_by_packets] {
            names = keep_list(top, name);
        }
        names.extend(self.views.iter().map(|view| view.name.clone()));
        if self.not_yet.iter().any(|later| later == name) {
            return Err(format!("{name} is known only when the window has ended: see the report"));
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
    let mut names = Vec::new();
    macro_rules! keep_one {
        ($($list:ident $rows:ident $row:ident $noun:literal: $($field:ident),* $(+ $more:ident)?;)*) => {$(
            if Standard::$list.name() != name {
                top.$rows.clear();
            }
            names.push(Standard::$list.name().to_owned());
        )*};
    }
    standard_lists!(keep_one);
    names
}

/// The answers about some keys in the open window: the answer to `ask` on the control socket with `live`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveAnswers {
    /// When the open window was read, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub time: Timestamp,
    /// The window that is open now.
    pub window: OpenWindow,
    /// The answers of all views that have such keys, in the order of the request.
    pub answers: Vec<Row>,
}

impl LiveAnswers {
    /// The part of the window that the answers cover.
    pub fn so_far(&self) -> Window {
        let OpenWindow { start, seconds } = self.window;
        Window { start, end: self.time, seconds: Length::new(seconds), ..Window::default() }
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
    fn one_list_can_be_selected_and_the_error_of_a_wrong_name_lists_all_names() {
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
    fn it_survives_writing_and_reading_and_matches_its_schema() {
        let live = live();
        let text = serde_json::to_string(&live).unwrap();
        assert_eq!(serde_json::from_str::<Live>(&text).unwrap(), live);
        let schema: serde_json::Value = serde_json::from_str(crate::schema::LIVE).unwrap();
        let validator = jsonschema::draft202012::options().should_validate_formats(true).build(&schema).unwrap();
        validator.validate(&serde_json::from_str(&text).unwrap()).unwrap();
    }
}
