//! The section `export`: which sketches the reports carry, so that those of a fleet can be merged.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{
    Config, NONE,
    interval::interval,
    limits::{EXPORT_KEYS, EXPORT_LG_K, VIEWS_MAX},
    section::{Field, Section},
    units,
};
use crate::view::{Measure, Standard, View};

/// The word for all views.
const ALL: &str = "all";
/// The name that the distinct counts of sources, destinations and flows have together.
pub const UNIQUE: &str = "unique";

/// Which sketches are exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Export {
    /// The views whose sketches are exported.
    pub views: ExportViews,
    /// How often: the sketches of all windows in between are merged first.
    #[serde(serialize_with = "units::write_duration")]
    pub every: Duration,
    /// The base-two logarithm of the registers of a distinct count.
    pub lg_k: u32,
    /// How many of the largest keys of a list are exported, by bytes and by packets each.
    pub keys: usize,
}

/// The choice of views.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExportViews {
    /// No view is exported.
    #[default]
    None,
    /// All that can be merged, except floods and scans: their images are large.
    All,
    /// The views with these names are exported.
    Named(Vec<String>),
}

impl Serialize for ExportViews {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str(NONE),
            Self::All => serializer.serialize_str(ALL),
            Self::Named(names) => names.serialize(serializer),
        }
    }
}

impl Default for Export {
    fn default() -> Self {
        Self { views: ExportViews::None, every: Duration::from_secs(60), lg_k: 12, keys: 64 }
    }
}

impl Export {
    /// Returns true if anything is exported.
    pub fn is_on(&self) -> bool {
        self.views != ExportViews::None
    }

    /// Returns true if the distinct counts of sources, destinations and flows are exported.
    pub fn has_unique(&self) -> bool {
        match &self.views {
            ExportViews::None => false,
            ExportViews::All => true,
            ExportViews::Named(names) => names.iter().any(|name| name == UNIQUE),
        }
    }

    /// The largest error of a distinct count that has as many registers as are exported.
    pub fn unique_error_max(&self) -> f64 {
        1.04 / 2f64.powi(self.lg_k as i32).sqrt()
    }

    /// Returns true if the sketch of a view is exported.
    pub fn has(&self, view: &View) -> bool {
        let is_large = matches!(view.measure, Measure::Flows | Measure::Distinct(_)) && !view.by.is_empty();
        match &self.views {
            ExportViews::None => false,
            ExportViews::All => obstacle(view).is_none() && !is_large,
            ExportViews::Named(names) => names.contains(&view.name) && obstacle(view).is_none(),
        }
    }
}

/// Why the sketches of a view cannot be merged with those of other routers.
fn obstacle(view: &View) -> Option<&'static str> {
    let is_of_prefixes = [Standard::SourcePrefixes, Standard::DestinationPrefixes].map(Standard::name);
    if view.per_interface {
        Some("it has a table for each interface, and interfaces of two routers are not the same")
    } else if is_of_prefixes.contains(&&*view.name) {
        Some("it has no bounds for prefixes that are not listed: use a view of your own, such as {by: [src_ip/24]}")
    } else if view.measure == Measure::NewFlows {
        Some("a flow that is new to two routers looks the same as two new flows")
    } else {
        None
    }
}

/// Reads the section. `config` has the views; `is_whole` is set if these are all views that the file defines.
pub(super) fn export(field: &Field<'_>, config: &Config, is_whole: bool) -> Option<Export> {
    field.section("{views: all}", |s: &mut Section<'_>| {
        let default = Export::default();
        let lg_k_field = s.field("lg_k");
        let export = Export {
            views: s.get("views", default.views, |f| views(&f, config, is_whole)),
            every: s.get("every", default.every, |f| interval(&f)),
            lg_k: lg_k_field.as_ref().and_then(|f| f.count(EXPORT_LG_K)).map_or(default.lg_k, |lg_k| lg_k as u32),
            keys: s.get("keys", default.keys, |f| f.size(EXPORT_KEYS)),
        };
        check_registers(lg_k_field.as_ref().unwrap_or(field), &export, config);
        export
    })
}

/// Checks that the distinct counts have at least as many registers as are exported.
fn check_registers(field: &Field<'_>, export: &Export, config: &Config) {
    let most = export.unique_error_max();
    let unique = export.has_unique().then_some((UNIQUE, config.estimates.unique_error, "estimates.unique_error"));
    let own = config.views.iter().filter(|view| {
        export.has(view) && view.by.is_empty() && matches!(view.measure, Measure::Flows | Measure::Distinct(_))
    });
    let own = own.map(|view| (&*view.name, view.error, "its `error`"));
    for (name, error, setting) in unique.into_iter().chain(own) {
        if error > most {
            let most = (most * 1e5).floor() / 1e5;
            field.refuse(format!(
                "{} is more than the registers of {name}: set {setting} to {most} or less, or a lower lg_k on all routers",
                export.lg_k
            ));
        }
    }
}

fn views(field: &Field<'_>, config: &Config, is_whole: bool) -> Option<ExportViews> {
    if field.is_text() {
        return field
            .choice_of("a list of views, all or none", &[(ALL, true), (NONE, false)])
            .map(|all| if all { ExportViews::All } else { ExportViews::None });
    }
    let mut names: Vec<String> = Vec::new();
    for item in field.list(VIEWS_MAX + Standard::ALL.len() + 1, "[unique, sources, flows]")? {
        let Some(name) = item.text() else { continue };
        if names.iter().any(|known| known == name) {
            item.refuse(format!("{name} is listed twice"));
        } else if let Some(view) = view(config, name) {
            match obstacle(&view) {
                Some(why) => item.refuse(format!("{name} cannot be merged with that of another router: {why}")),
                None => names.push(name.to_owned()),
            }
        } else if name == UNIQUE {
            names.push(name.to_owned());
        } else if is_whole {
            item.refuse(format!("there is no view {name:?}: name one of `views` or `standard_views`, or {UNIQUE}"));
        }
    }
    Some(ExportViews::Named(names))
}

/// The view with this name.
fn view(config: &Config, name: &str) -> Option<View> {
    let own = config.views.iter().find(|view| view.name == name).cloned();
    let standard = || config.standard().find(|standard| standard.name() == name);
    own.or_else(|| standard().map(|standard| standard.view(config.estimates.top_error, config.report.top)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Export, String> {
        Config::parse(text, "weir.yaml").map(|config| config.export).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn nothing_leaves_the_router_unless_it_is_asked_for() {
        assert_eq!(read("").unwrap(), Export::default());
        assert!(!read("export: {every: 10s}").unwrap().is_on());
        let all = read("export: {views: all}").unwrap();
        let standard = |name: Standard| all.has(&name.view(0.0005, 10));
        assert!(all.has_unique() && standard(Standard::Flows) && standard(Standard::Services));
        for left_out in [Standard::SourcePrefixes, Standard::PortsPerSource, Standard::Talkers, Standard::Protocols] {
            assert!(!standard(left_out), "{left_out:?}");
        }
        let named = read("export: {views: [sources, ports_per_source], every: 5m, lg_k: 11, keys: 10}").unwrap();
        assert!(!named.has_unique() && named.has(&Standard::PortsPerSource.view(0.0005, 10)));
        assert_eq!((named.every, named.lg_k, named.keys), (Duration::from_secs(300), 11, 10));
    }

    #[test]
    fn what_cannot_be_merged_is_refused() {
        for (text, part) in [
            ("export: {views: some}", "a list of views, all or none"),
            ("export: {views: [sorces]}", "there is no view \"sorces\""),
            ("export: {views: [flows, flows]}", "flows is listed twice"),
            ("export: {views: [talkers]}", "talkers cannot be merged"),
            ("export: {views: [source_prefixes]}", "src_ip/24"),
            ("views: [{name: w, measure: new_flows}]\nexport: {views: [w]}", "looks the same"),
            ("standard_views: []\nexport: {views: [flows]}", "there is no view \"flows\""),
            ("export: {views: all, every: 7s}", "does not divide a day"),
            ("export: {lg_k: 3}", "below the minimum of 4"),
            ("export: {keys: 0}", "below the minimum of 1"),
            ("estimates: {unique_error: 0.02}\nexport: {views: all}", "set estimates.unique_error to 0.01625 or less"),
            (
                "views: [{name: w, measure: {distinct: src_ip}, error: 0.02}]\nexport: {views: [w]}",
                "more than the registers of w",
            ),
        ] {
            let mistake = read(text).unwrap_err();
            assert!(mistake.contains(part), "{mistake}");
        }
        assert!(read("estimates: {unique_error: 0.02}\nexport: {views: all, lg_k: 11}").is_ok());
        assert!(read("estimates: {unique_error: 0.02}\nexport: {views: [sources]}").is_ok());
    }

    #[test]
    fn what_is_shown_is_read() {
        for views in ["none", "all", "[unique, sources]"] {
            let config = Config::parse(&format!("export: {{views: {views}, every: 2m}}"), "weir.yaml").unwrap();
            assert_eq!(Config::parse(&config.to_yaml(), "weir.yaml").unwrap(), config);
        }
    }
}
