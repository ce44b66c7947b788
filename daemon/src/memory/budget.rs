//! What to do if a configuration needs more memory than it allows: which views take most, and which changes would fit.
//!
//! Each proposed change was planned as a complete configuration, so it is accepted when the user makes it.

use std::{cmp::Reverse, fmt, slice, sync::Arc};

use weir_config::{Config, History, limits::TOP_ERROR, slots, view::Standard};
use weir_datapath::Cpus;
use weir_measure::{
    price::Prices,
    question::{Structure, Views},
};

use super::{Memory, mib};

/// How many views a refusal names.
const NAMED: usize = 5;
/// How many of the user's views are tried with a change.
const VIEWS_CHANGED: usize = 3;
/// Errors to try. The smallest that fits is proposed.
const ERRORS: [f64; 5] = [0.000_5, 0.001, 0.002, 0.005, *TOP_ERROR.end()];
/// Capacities of the seen-flow filter to try. The largest that fits is proposed.
const CAPACITIES: [u64; 6] = [1_000_000, 500_000, 200_000, 100_000, 50_000, 10_000];
/// Memory of the history to try, in bytes; the largest that fits is proposed, or none.
const HISTORIES: [Option<u64>; 6] =
    [Some(4 << 20), Some(2 << 20), Some(1 << 20), Some(512 << 10), Some(256 << 10), None];

/// More memory than the configuration allows.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "memory: {} are allowed, but this configuration needs {} in all, of which the views take {}. The largest are {}. {} Or \
     set `memory` to {}MiB",
    mib(*allowed), mib(*needed), mib(*views), largest.join(", "), Proposed(fitting), needed.div_ceil(1 << 20)
)]
pub struct OverBudget {
    /// The allowed bytes.
    pub allowed: u64,
    /// The needed bytes.
    pub needed: u64,
    /// The bytes that views take of it.
    pub views: u64,
    /// The largest views, with their size.
    pub largest: Vec<String>,
    /// Changes that fit, each by itself. Empty if even the smallest settings do not fit.
    pub fitting: Vec<Fitting>,
}

/// Changes that fit together.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitting {
    /// The changes.
    pub changes: Vec<Change>,
    /// The most bytes that the configuration needs with them.
    pub needed: u64,
}

/// A changed setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// `estimates.top_error`.
    TopError(f64),
    /// The remaining standard views.
    Standard(Vec<Standard>),
    /// The error of a user's view.
    ViewError {
        /// Its name.
        view: String,
        /// The error.
        error: f64,
    },
    /// `seen_flows.capacity`.
    Capacity(u64),
    /// `history.memory`; `None` turns it off.
    History(Option<u64>),
}

impl Change {
    pub(super) fn apply(&self, config: &mut Config) {
        match self {
            Self::TopError(error) => {
                config.estimates.top_error = *error;
                for view in config.views.iter_mut().filter(|view| view.follows_top_error) {
                    view.error = *error;
                }
            }
            Self::Standard(staying) => config.standard_views.clone_from(staying),
            Self::ViewError { view, error } => {
                for view in config.views.iter_mut().filter(|one| one.name == *view) {
                    (view.error, view.follows_top_error) = (*error, false);
                }
            }
            Self::Capacity(capacity) => config.seen_flows.capacity = *capacity,
            Self::History(memory) => config.history = memory.map(|memory| History { memory }),
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
            Self::History(Some(memory)) => write!(f, "`history: {{memory: {}KiB}}`", memory >> 10),
            Self::History(None) => f.write_str("`history: off`"),
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
            return f.write_str("Neither larger errors nor fewer lists make it fit.");
        }
        let all: Vec<_> = fitting.iter().map(Fitting::to_string).collect();
        write!(f, "What fits: {}.", all.join(", or "))
    }
}

impl Memory {
    /// Checks that the total is within what `config` allows. This must be the plan of `config` on a machine with these
    /// CPUs.
    ///
    /// # Errors
    ///
    /// It needs more; the error names the views that take most, and what would fit.
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

/// The possible changes: for each setting the changes to try, starting with the smallest change.
fn ladders(config: &Config, prices: &Prices) -> Vec<Vec<Change>> {
    let errors_above = |error: f64| ERRORS.into_iter().filter(move |larger| *larger > error);
    let mut ladders: Vec<Vec<Change>> = vec![errors_above(config.estimates.top_error).map(Change::TopError).collect()];
    // The standard views come first.
    let in_force: Vec<_> = config.standard().collect();
    let (standard, own) = prices.views.split_at(in_force.len().min(prices.views.len()));
    let mut standard: Vec<_> = in_force.iter().zip(standard).collect();
    standard.sort_by_key(|(_, price)| price.bytes);
    // An alert rule needs its view.
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
    let history = config.history.map(|history| history.memory);
    ladders.push(HISTORIES.into_iter().filter(|smaller| *smaller < history).map(Change::History).collect());
    ladders
}

/// Searches for changes that fit.
struct Search<'a> {
    plan: &'a Memory,
    config: &'a Config,
    cpus: &'a Cpus,
    allowed: u64,
}

impl Search<'_> {
    /// For each setting the smallest change that fits by itself; if there is none, the fewest largest changes together.
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
        // Names of addresses take the same memory in each trial, so their files need not be read again.
        let mut config = Config { networks: Vec::new(), geo: Default::default(), ..self.config.clone() };
        for change in changes {
            change.apply(&mut config);
        }
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

    /// A configuration after the user has followed the message, with an existing setting replaced.
    fn typed(text: &str, change: &Change) -> String {
        let told = change.to_string();
        let (setting, place) = told.strip_prefix('`').unwrap().split_once('`').unwrap();
        if let Some(view) = place.strip_prefix(" in the view ") {
            let text = if view == "e" { text.replace(", error: 0.0005", "") } else { text.to_owned() };
            return text.replace(&format!("name: {view}"), &format!("name: {view}, {setting}"));
        }
        let key = setting.split_inclusive(':').next().unwrap();
        let key = format!("{}:", key.trim_end_matches(':'));
        let others = text.lines().filter(|line| !line.starts_with(&key));
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
    fn a_proposed_change_is_accepted() {
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
                    assert!(
                        needs <= *needed,
                        "{needs} bytes are more than the {needed} that the message named: {typed}"
                    );
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
            |change: &Change| matches!(change, Change::History(Some(_))),
            |change: &Change| matches!(change, Change::History(None)),
        ] {
            assert!(proposed.iter().any(kind), "each kind of change is proposed somewhere: {proposed:?}");
        }
        assert!(together > 0, "one change was always enough, so several together were not tried");
    }

    #[test]
    fn a_larger_error_for_all_lists_is_proposed_even_if_views_share_them() {
        let text = SHARING.replace(", error: 0.0005", "");
        let needed = check(&text, 2).unwrap();
        let refused = check(&format!("{text}\nmemory: {}MiB", (needed >> 20) - 2), 2).unwrap_err();
        let changes: Vec<_> = refused.fitting.iter().map(|fitting| &fitting.changes[..]).collect();
        assert!(matches!(changes[0], [Change::TopError(_)]), "{refused}");
        assert!(refused.largest.iter().any(|view| view.starts_with("sources and c (")), "{refused}");
    }

    #[test]
    fn a_plan_over_the_limit_is_refused_and_the_largest_views_are_named() {
        let needed = check("interfaces: [eth0]", 2).unwrap();
        assert_eq!(check(&format!("interfaces: [eth0]\nmemory: {needed}"), 2), Ok(needed));
        let refused = check(&format!("interfaces: [eth0]\nmemory: {}", needed - 1), 2).unwrap_err();
        assert_eq!((refused.needed, refused.largest.len()), (needed, NAMED));
        let told = refused.to_string();
        let way_out = format!("Or set `memory` to {}MiB", needed.div_ceil(1 << 20));
        assert!(told.contains("flows (") && told.contains("What fits: `") && told.ends_with(&way_out), "{told}");
        let hopeless = check("interfaces: [eth0]\nmemory: 16MiB", 2).unwrap_err();
        assert_eq!(hopeless.fitting, []);
        assert!(hopeless.to_string().contains("Neither larger errors nor fewer lists"), "{hopeless}");
    }
}
