//! What to do when a configuration needs more memory than it allows: which views take most, and which changes would
//! fit.
//!
//! Each change that is proposed was planned like a configuration that has it, so it is accepted when somebody types it.

use std::{cmp::Reverse, fmt, slice, sync::Arc};

use super::{Memory, mib};
use crate::{
    config::{Config, limits::TOP_ERROR, slots},
    datapath::Cpus,
    measure::price::Prices,
    question::{Structure, Views},
    view::Standard,
};

/// The views that a refusal names.
const NAMED: usize = 5;
/// The user's views for each of which a change is looked for.
const VIEWS_CHANGED: usize = 3;
/// Errors to try, the smallest that fits is proposed.
const ERRORS: [f64; 5] = [0.000_5, 0.001, 0.002, 0.005, *TOP_ERROR.end()];
/// Capacities of the filter of seen flows to try, the largest that fits is proposed.
const CAPACITIES: [u64; 6] = [1_000_000, 500_000, 200_000, 100_000, 50_000, 10_000];

/// More memory than the configuration allows.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "memory: {} are allowed, but this configuration needs {} in all, of which the views take {}. The largest are {}. {} Or \
     set `memory` to {}MiB",
    mib(*allowed), mib(*needed), mib(*views), largest.join(", "), Proposed(fitting), needed.div_ceil(1 << 20)
)]
pub struct OverBudget {
    /// What is allowed, in bytes.
    pub allowed: u64,
    /// What is needed, in bytes.
    pub needed: u64,
    /// What views take of it, in bytes.
    pub views: u64,
    /// The views that take most, with what they take.
    pub largest: Vec<String>,
    /// Changes that fit, each by itself. None if even the smallest settings do not.
    pub fitting: Vec<Fitting>,
}

/// Changes that fit together.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitting {
    /// What to change.
    pub changes: Vec<Change>,
    /// What the configuration then needs, at most, in bytes.
    pub needed: u64,
}

/// One setting that is changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// `estimates.top_error`.
    TopError(f64),
    /// The standard views that stay.
    Standard(Vec<Standard>),
    /// The error of a view of the user.
    ViewError {
        /// Its name.
        view: String,
        /// The error.
        error: f64,
    },
    /// `seen_flows.capacity`.
    Capacity(u64),
}

impl Change {
    fn apply(&self, config: &mut Config) {
        match self {
            Self::TopError(error) => {
                config.estimates.top_error = *error;
                config.views.iter_mut().filter(|view| view.follows_top_error).for_each(|view| view.error = *error);
            }
            Self::Standard(staying) => config.standard_views.clone_from(staying),
            Self::ViewError { view, error } => {
                for view in config.views.iter_mut().filter(|one| one.name == *view) {
                    (view.error, view.follows_top_error) = (*error, false);
                }
            }
            Self::Capacity(capacity) => config.seen_flows.capacity = *capacity,
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
        }
    }
}

impl fmt::Display for Fitting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<_> = self.changes.iter().map(Change::to_string).collect();
        write!(f, "{} (at most {})", changes.join(" with "), mib(self.needed))
    }
}

struct Proposed<'a>(&'a [Fitting]);

impl fmt::Display for Proposed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(fitting) = self;
        if fitting.is_empty() {
            return f.write_str("No larger error and no list that is left out makes it fit.");
        }
        let all: Vec<_> = fitting.iter().map(Fitting::to_string).collect();
        write!(f, "What fits: {}.", all.join(", or "))
    }
}

impl Memory {
    /// Whether all of it is within what `config` allows, of which this is the plan on a machine with these CPUs.
    ///
    /// # Errors
    ///
    /// It is more; which views take most, and what would fit.
    pub fn check_budget(&self, config: &Config, views: &Arc<Views>, cpus: &Cpus) -> Result<(), OverBudget> {
        let (Some(allowed), needed) = (config.memory, self.total()) else { return Ok(()) };
        if needed <= allowed {
            return Ok(());
        }
        let prices = Prices::of(views, self.shards());
        let mut sizes: Vec<_> =
            prices.sharing().map(|(price, names)| (self.shards() * price.bytes, names.join(" and "))).collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        let largest = sizes.iter().take(NAMED).map(|(bytes, names)| format!("{names} ({})", mib(*bytes))).collect();
        let search = Search { plan: self, config, cpus, allowed };
        let fitting = search.fitting(&ladders(config, &prices));
        Err(OverBudget { allowed, needed, views: prices.bytes(), largest, fitting })
    }
}

/// What can be changed: for each setting the changes to try, those that leave most first.
fn ladders(config: &Config, prices: &Prices) -> Vec<Vec<Change>> {
    let errors_above = |error: f64| ERRORS.into_iter().filter(move |larger| *larger > error);
    let mut ladders: Vec<Vec<Change>> = vec![errors_above(config.estimates.top_error).map(Change::TopError).collect()];
    // The standard views come first.
    let in_force: Vec<_> = config.standard().collect();
    let (standard, own) = prices.views.split_at(in_force.len().min(prices.views.len()));
    let mut standard: Vec<_> = in_force.iter().zip(standard).collect();
    standard.sort_by_key(|(_, price)| price.bytes);
    // A rule of an alert needs its view.
    let is_watched = |one: &Standard| config.alerts.rules.iter().any(|rule| rule.standard() == Some(*one));
    standard.retain(|(one, _)| !is_watched(one));
    let staying = |count: usize| {
        let stays = |one: &Standard| is_watched(one) || standard[..count].iter().any(|(standard, _)| *standard == one);
        Change::Standard(in_force.iter().copied().filter(stays).collect())
    };
    ladders.push((0..standard.len()).rev().map(staying).collect());
    let mut own: Vec<_> = own
        .iter()
        .filter_map(|price| match price.structure {
            Structure::HeavyHitters { error, .. } => Some((price, error)),
            _ => None,
        })
        .collect();
    own.sort_by_key(|(price, _)| Reverse(price.bytes));
    ladders.extend(own.iter().take(VIEWS_CHANGED).map(|(price, error)| {
        errors_above(*error).map(|error| Change::ViewError { view: price.name.clone(), error }).collect()
    }));
    let capacity = config.seen_flows.capacity;
    ladders.push(CAPACITIES.into_iter().filter(|smaller| *smaller < capacity).map(Change::Capacity).collect());
    ladders
}

/// Looks for changes that fit.
struct Search<'a> {
    plan: &'a Memory,
    config: &'a Config,
    cpus: &'a Cpus,
    allowed: u64,
}

impl Search<'_> {
    /// For each setting the least change that fits by itself; if there is none, the fewest strong ones together.
    fn fitting(&self, ladders: &[Vec<Change>]) -> Vec<Fitting> {
        let alone: Vec<_> = ladders
            .iter()
            .filter_map(|ladder| ladder.iter().find_map(|change| self.fit(slice::from_ref(change))))
            .collect();
        if !alone.is_empty() {
            return alone;
        }
        let strongest: Vec<_> = ladders.iter().filter_map(|ladder| ladder.last().cloned()).collect();
        (2..=strongest.len()).find_map(|count| self.fit(&strongest[..count])).into_iter().collect()
    }

    fn fit(&self, changes: &[Change]) -> Option<Fitting> {
        // Names of addresses take the same as before, and need no second reading of their files.
        let mut config = Config { networks: Vec::new(), geo: Default::default(), ..self.config.clone() };
        changes.iter().for_each(|change| change.apply(&mut config));
        let views = Views::new(&config, slots(&config.interfaces)).ok()?;
        let plan = Memory::plan(&config, &views, self.cpus, self.plan.cpus > 0);
        let needed = Memory { names: self.plan.names, ..plan }.total();
        (needed <= self.allowed).then(|| Fitting { changes: changes.to_vec(), needed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, cpus: u32) -> Result<u64, OverBudget> {
        let config = Config::parse(text, "test").unwrap_or_else(|mistakes| panic!("{text}\n{mistakes}"));
        let views = Views::new(&config, slots(&config.interfaces)).unwrap();
        let memory = Memory::plan(&config, &views, &Cpus::of(cpus), true);
        memory.check_budget(&config, &views, &Cpus::of(cpus)).map(|()| memory.total())
    }

    /// A configuration after somebody typed what a message says, in the place of a setting that was there.
    fn typed(text: &str, change: &Change) -> String {
        let told = change.to_string();
        let (setting, place) = told.strip_prefix('`').unwrap().split_once('`').unwrap();
        if let Some(view) = place.strip_prefix(" in the view ") {
            return text.replace(&format!("name: {view}"), &format!("name: {view}, {setting}"));
        }
        let key = setting.split_inclusive(':').next().unwrap();
        let others = text.lines().filter(|line| !line.starts_with(key));
        others.chain([setting]).map(|line| format!("{line}\n")).collect()
    }

    /// Views that share the sketches of the standard lists.
    const SHARING: &str = "interfaces: [eth0]\nviews: [{name: c, by: [src_ip], measure: packets}, {name: d, by: [flow], measure: \
                           packets}, {name: e, by: [dst_ip], measure: packets, error: 0.0005}]";

    const TEXTS: [&str; 7] = [
        SHARING,
        "interfaces: [eth0]",
        "interfaces: [\"*\"]",
        "interfaces: [eth0]\nviews: [{name: fine, by: [src_ip, dst_port]}, {name: ports, by: [dst_port]}]",
        "interfaces: [eth0]\nnetworks: {mine: {prefixes: [10.0.0.0/8]}}\nviews: [{name: nets, by: [src_net, src_ip], match: \
         {src_net: mine}, per: interface}]\nstandard_views: [sources, flows, ports_per_source]",
        "interfaces: [{name: eth0, direction: both}]\nviews: [{name: many, by: [vlan, src_ip], top: 100}]\nstandard_views: []",
        "interfaces: [eth0]\nalerts: {rules: [{name: a, when: flows.bytes > 5}, {name: b, when: ports_per_source > 5}]}",
    ];

    #[test]
    fn what_is_proposed_is_accepted_when_it_is_typed() {
        let (mut proposed, mut together) = (Vec::new(), 0);
        for (text, cpus) in TEXTS.into_iter().zip([2, 2, 128, 2, 8, 4, 2]) {
            let needed = check(text, cpus).unwrap();
            for percent in [99, 95, 90, 80, 70, 60, 50] {
                let allowed = (needed * percent / 100) >> 20 << 20;
                let text = format!("{text}\nmemory: {}MiB", allowed >> 20);
                let refused = check(&text, cpus).unwrap_err();
                assert_eq!((refused.allowed, refused.needed), (allowed, needed));
                for Fitting { changes, needed } in &refused.fitting {
                    let typed = changes.iter().fold(text.clone(), |text, change| typed(&text, change));
                    let needs = check(&typed, cpus).unwrap_or_else(|refused| panic!("{typed}\n{refused}"));
                    assert!(needs <= *needed, "{needs} bytes are more than the {needed} that were told: {typed}");
                    assert!(refused.to_string().contains(&changes[0].to_string()), "{refused}");
                    together += usize::from(changes.len() > 1);
                    proposed.extend(changes.clone());
                }
            }
        }
        for kind in [
            |change: &Change| matches!(change, Change::TopError(_)),
            |change: &Change| matches!(change, Change::Standard(_)),
            |change: &Change| matches!(change, Change::ViewError { .. }),
            |change: &Change| matches!(change, Change::Capacity(_)),
        ] {
            assert!(proposed.iter().any(kind), "each kind of change is proposed somewhere: {proposed:?}");
        }
        assert!(together > 0, "nowhere is one change too little, so several together were not tried");
    }

    #[test]
    fn a_larger_error_for_all_lists_is_proposed_also_where_views_share_them() {
        let text = SHARING.replace(", error: 0.0005", "");
        let needed = check(&text, 2).unwrap();
        let refused = check(&format!("{text}\nmemory: {}MiB", (needed >> 20) - 4), 2).unwrap_err();
        let changes: Vec<_> = refused.fitting.iter().map(|fitting| &fitting.changes[..]).collect();
        assert!(matches!(changes[0], [Change::TopError(_)]), "{refused}");
        assert!(refused.largest.iter().any(|view| view.starts_with("sources and c (")), "{refused}");
    }

    #[test]
    fn more_than_is_allowed_is_refused_with_what_takes_most() {
        let needed = check("interfaces: [eth0]", 2).unwrap();
        assert_eq!(check(&format!("interfaces: [eth0]\nmemory: {needed}"), 2), Ok(needed));
        let refused = check(&format!("interfaces: [eth0]\nmemory: {}", needed - 1), 2).unwrap_err();
        assert_eq!((refused.needed, refused.largest.len()), (needed, NAMED));
        let told = refused.to_string();
        let way_out = format!("Or set `memory` to {}MiB", needed.div_ceil(1 << 20));
        assert!(told.contains("flows (") && told.contains("What fits: `") && told.ends_with(&way_out), "{told}");
        let hopeless = check("interfaces: [eth0]\nmemory: 16MiB", 2).unwrap_err();
        assert_eq!(hopeless.fitting, []);
        assert!(hopeless.to_string().contains("No larger error and no list that is left out"), "{hopeless}");
    }
}
