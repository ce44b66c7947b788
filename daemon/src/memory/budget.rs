//! Proposes changes if a configuration needs more memory than it allows: which views take most, and which changes would
//! fit.
//!
//! Each proposed change was planned as a complete configuration, in the same way as when weir reads it, so it is
//! accepted when the user makes it.

use std::{cmp::Reverse, fmt, slice, sync::Arc};

use weir_config::{Config, Datapath, History, SeenFlows, limits::TOP_ERROR, view::Standard};
use weir_measure::{
    price::{Price, Prices},
    question::{Structure, Views},
};

use super::{Change, Fit, Fitted, fit::names_bytes, mib};

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
    "memory: {} are allowed, but this configuration needs {} in all. The program itself needs {}, and the views take {}. \
     The largest are {}. {} Or set `memory` to {}MiB",
    mib(*allowed), mib(*needed), mib(*program), mib(*views), largest.join(", "), Proposed(fitting),
    needed.div_ceil(1 << 20)
)]
pub struct OverBudget {
    /// The bytes that the configuration allows.
    pub allowed: u64,
    /// The bytes that it needs.
    pub needed: u64,
    /// The bytes that the program itself needs, whatever it measures.
    pub program: u64,
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
    /// The changes; none if a restart is enough.
    pub changes: Vec<Change>,
    /// The most bytes that the configuration needs with them.
    pub needed: u64,
    /// True if a running weir must be restarted for them.
    pub needs_restart: bool,
}

impl fmt::Display for Fitting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<_> = self.changes.iter().map(Change::to_string).collect();
        let needed = mib(self.needed);
        match (self.needs_restart, changes.is_empty()) {
            (false, _) => write!(f, "{} (at most {needed})", changes.join(" with ")),
            (true, false) => write!(f, "{}, but only after a restart (at most {needed})", changes.join(" with ")),
            (true, true) => write!(f, "the same file after a restart (at most {needed})"),
        }
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

impl Fitted {
    /// Checks that the total is within what the configuration allows. `config` is the one that was fitted, on this
    /// machine.
    ///
    /// # Errors
    ///
    /// It needs more; the error names the views that take most, and what would fit.
    pub fn check(&self, config: &Config, machine: Fit<'_>) -> Result<(), OverBudget> {
        let (Some(allowed), needed) = (config.memory, self.memory.total()) else { return Ok(()) };
        if needed <= allowed {
            return Ok(());
        }
        let shards = self.memory.shards();
        let prices = Prices::of(&self.views, shards);
        let mut sizes: Vec<_> =
            prices.sharing().map(|(price, names)| (shards * price.bytes, names.join(" and "))).collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        let largest = sizes.iter().take(NAMED).map(|(bytes, names)| format!("{names} ({})", mib(*bytes))).collect();
        let search = Search { machine, config, names: names_bytes(&self.views), allowed };
        let fitting = search.fitting(&ladders(config, machine.interfaces, shards));
        Err(OverBudget { allowed, needed, program: self.memory.floor(), views: prices.bytes(), largest, fitting })
    }
}

/// The possible changes: for each setting the changes to try, starting with the smallest change.
fn ladders(config: &Config, interfaces: usize, shards: u64) -> Vec<Vec<Change>> {
    let errors_above = |error: f64| ERRORS.into_iter().filter(move |larger| *larger > error);
    let mut ladders: Vec<Vec<Change>> = vec![errors_above(config.estimates.top_error).map(Change::TopError).collect()];
    let without_names = Config { networks: Vec::new(), geo: Default::default(), ..config.clone() };
    let views = Views::with_geo(&without_names, interfaces, Arc::default());
    let prices = Prices::of(&views, shards).views;
    let in_force: Vec<_> = config.standard().collect();
    let bytes = |one: &Standard| views.standard(*one).map_or(0, |nth| prices[nth].bytes);
    let mut standard = in_force.clone();
    standard.sort_by_key(bytes);
    // An alert rule needs its view.
    let is_watched = |one: &Standard| config.alerts.rules.iter().any(|rule| rule.standard() == Some(*one));
    standard.retain(|one| !is_watched(one));
    let staying = |count: usize| {
        let stays = |one: &Standard| is_watched(one) || standard[..count].contains(one);
        Change::Standard(in_force.iter().copied().filter(stays).collect())
    };
    ladders.push((0..standard.len()).rev().map(staying).collect());
    let mut own: Vec<(&Price, f64)> = views
        .own()
        .filter_map(|(nth, _)| match prices[nth].structure {
            Structure::HeavyHitters { error, .. } => Some((&prices[nth], error)),
            _ => None,
        })
        .collect();
    own.sort_by_key(|(price, _)| Reverse(price.bytes));
    ladders.extend(own.iter().take(VIEWS_CHANGED).map(|(price, error)| {
        errors_above(*error).map(|error| Change::ViewError { view: price.name.clone(), error }).collect()
    }));
    let capacity = config.seen_flows.capacity;
    ladders.push(CAPACITIES.into_iter().filter(|smaller| *smaller < capacity).map(Change::Capacity).collect());
    let history = config.history.as_ref().map(|history| history.memory);
    ladders.push(HISTORIES.into_iter().filter(|smaller| *smaller < history).map(Change::History).collect());
    ladders
}

/// Searches for changes that fit.
struct Search<'a> {
    machine: Fit<'a>,
    config: &'a Config,
    names: u64,
    allowed: u64,
}

impl Search<'_> {
    /// For each setting the smallest change that fits by itself; if there is none, the fewest largest changes together.
    /// If the same file fits after a restart, no change is proposed that needs one.
    fn fitting(&self, ladders: &[Vec<Change>]) -> Vec<Fitting> {
        let as_it_is = self.fit(&[]);
        let is_better = |fitting: &Fitting| as_it_is.is_none() || !fitting.needs_restart;
        let fit = |changes: &[Change]| self.fit(changes).filter(is_better);
        let alone = ladders.iter().filter_map(|ladder| ladder.iter().find_map(|change| fit(slice::from_ref(change))));
        let alone: Vec<_> = alone.chain(as_it_is.clone()).collect();
        if !alone.is_empty() {
            return alone;
        }
        let strongest: Vec<_> = ladders.iter().filter_map(|ladder| ladder.last().cloned()).collect();
        (2..=strongest.len()).find_map(|count| self.fit(&strongest[..count])).into_iter().collect()
    }

    fn fit(&self, changes: &[Change]) -> Option<Fitting> {
        let Self { machine, names, allowed, .. } = *self;
        let mut config = self.config.clone();
        for change in changes {
            change.apply(&mut config);
        }
        let needed = |machine: &Fit<'_>| {
            let fits = machine.needs(&machine.smallest(&config), names) <= allowed;
            let fitted = fits.then(|| machine.smaller(&config, names))?;
            let is_possible = machine.running.is_none_or(|running| planned_once(running) == planned_once(&fitted));
            is_possible.then(|| machine.needs(&fitted, names))
        };
        let fitting = |needed, needs_restart| Fitting { changes: changes.to_vec(), needed, needs_restart };
        let restarted = Fit { running: None, ..machine };
        let at_once = needed(&machine).map(|needed| fitting(needed, false));
        let later = || machine.running.and_then(|_| needed(&restarted)).map(|needed| fitting(needed, true));
        at_once.or_else(later)
    }
}

/// The settings that determine memory and that only a restart changes.
fn planned_once(config: &Config) -> (Option<&History>, u64, f64, &Datapath) {
    let SeenFlows { capacity, false_positive_rate, .. } = config.seen_flows;
    (config.history.as_ref(), capacity, false_positive_rate, &config.datapath)
}

#[cfg(test)]
mod tests {
    use weir_config::slots;
    use weir_datapath::Cpus;

    use super::*;
    use crate::memory::fit;

    fn check(text: &str, cpus: u32) -> Result<u64, OverBudget> {
        check_beside(text, cpus, None)
    }

    /// The total of this configuration as weir would read it, or as a running weir would.
    fn check_beside(text: &str, cpus: u32, running: Option<&Config>) -> Result<u64, OverBudget> {
        let config = parse(text);
        let cpus = Cpus::of(cpus);
        let machine = Fit { cpus: &cpus, has_programs: true, interfaces: slots(&config.interfaces), running };
        let fitted = fit(&config, machine, &Arc::default());
        fitted.check(&config, machine).map(|()| fitted.memory.total())
    }

    fn parse(text: &str) -> Config {
        Config::parse(text, "test").unwrap_or_else(|mistakes| panic!("{text}\n{mistakes}"))
    }

    /// A configuration after the user has followed the message, with an existing setting replaced.
    fn typed(text: &str, change: &Change) -> String {
        let told = change.to_string();
        let (setting, place) = told.strip_prefix('`').unwrap().split_once('`').unwrap();
        if let Some(view) = place.strip_prefix(" in the view ") {
            let (before, own) = text.split_once(&format!("name: {view}")).unwrap();
            let (own, after) = own.split_once('}').unwrap();
            let own: Vec<_> = own.split(", ").filter(|setting| !setting.starts_with("error: ")).collect();
            return format!("{before}name: {view}, {setting}{}}}{after}", own.join(", "));
        }
        let key = setting.split_inclusive(':').next().unwrap();
        let key = format!("{}:", key.trim_end_matches(':'));
        let others = text.lines().filter(|line| !line.starts_with(&key));
        others.chain([setting]).map(|line| format!("{line}\n")).collect()
    }

    /// Views that share the sketches of the standard lists.
    const SHARING: &str = "interfaces: [eth0]\nviews: [{name: c, by: [src_ip], measure: packets}, {name: d, by: [flow], measure: \
                           packets}, {name: e, by: [dst_ip], measure: packets, error: 0.0005}]";

    /// Configurations with settings that weir leaves alone.
    const TEXTS: [&str; 8] = [
        SHARING,
        "interfaces: [eth0]",
        "interfaces: [eth0]\nestimates: {top_error: 0.0001}",
        "interfaces: [\"*\"]\nseen_flows: {capacity: 5000000}",
        "interfaces: [eth0]\nviews: [{name: fine, by: [src_ip, dst_port], error: 0.0001}, {name: ports, by: [dst_port]}]",
        "interfaces: [eth0]\nnetworks: {mine: {prefixes: [10.0.0.0/8]}}\nviews: [{name: nets, by: [src_net, src_ip], match: \
         {src_net: mine}, per: interface}]\nstandard_views: [sources, flows, ports_per_source]\nhistory: {memory: 8MiB}",
        "interfaces: [{name: eth0, direction: both}]\nviews: [{name: many, by: [vlan, src_ip], top: 100, error: 0.0002}]\n\
         standard_views: []",
        "interfaces: [eth0]\nestimates: {top_error: 0.0002}\nhistory: {memory: 1MiB}\nseen_flows: {capacity: 2000000}\n\
         alerts: {rules: [{name: a, when: flows.bytes > 5}, {name: b, when: ports_per_source > 5}]}",
    ];

    /// The kinds of changes that are proposed.
    const KINDS: [fn(&Change) -> bool; 6] = [
        |change| matches!(change, Change::TopError(_)),
        |change| matches!(change, Change::Standard(_)),
        |change| matches!(change, Change::ViewError { .. }),
        |change| matches!(change, Change::Capacity(_)),
        |change| matches!(change, Change::History(Some(_))),
        |change| matches!(change, Change::History(None)),
    ];

    #[test]
    fn a_proposed_change_is_accepted() {
        let (mut proposed, mut together) = (Vec::new(), 0);
        for (text, cpus) in TEXTS.into_iter().zip([2, 2, 2, 128, 2, 8, 4, 2]) {
            let OverBudget { needed, program, .. } = check(&format!("{text}\nmemory: 16MiB"), cpus).unwrap_err();
            for percent in [99, 95, 90, 75, 60, 45, 30, 15] {
                let allowed = (program + (needed - program) * percent / 100) >> 20;
                let text = format!("{text}\nmemory: {allowed}MiB");
                let Err(refused) = check(&text, cpus) else { continue };
                assert_eq!((refused.allowed, refused.needed), (allowed << 20, needed));
                for Fitting { changes, needed, needs_restart } in &refused.fitting {
                    assert!(!needs_restart, "{refused}");
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
                let told = refused.to_string();
                let (_, enough) = told.rsplit_once("Or set `memory` to ").unwrap();
                let typed = text.replace(&format!("memory: {allowed}MiB"), &format!("memory: {enough}"));
                check(&typed, cpus).unwrap_or_else(|refused| panic!("{typed}\n{refused}"));
            }
        }
        for kind in KINDS {
            assert!(proposed.iter().any(kind), "each kind of change is proposed somewhere: {proposed:?}");
        }
        assert!(together > 0, "one change was always enough, so several together were not tried");
    }

    #[test]
    fn a_reload_says_which_changes_need_a_restart() {
        let text = "interfaces: [eth0]\nhistory: {memory: 8MiB}\nestimates: {top_error: 0.0002}";
        let needed = check(&format!("{text}\nmemory: 16MiB"), 2).unwrap_err().needed;
        let running = parse(text);
        // Only some of the sizes of the running weir can change.
        let memory = |less: u64| format!("{text}\nmemory: {}MiB", needed.div_ceil(1 << 20) - less);
        let same = check_beside(&memory(0), 2, Some(&running)).unwrap_err();
        let last = same.fitting.last().unwrap();
        assert!(last.changes.is_empty() && last.needs_restart, "{same}");
        assert!(same.to_string().contains("the same file after a restart (at most "), "{same}");
        check(&memory(0), 2).unwrap();
        let less = check_beside(&memory(2), 2, Some(&running)).unwrap_err();
        let history = |one: &&Fitting| matches!(one.changes[..], [Change::History(_)]);
        let fitting = less.fitting.iter().find(history).unwrap_or_else(|| panic!("{less}"));
        assert!(fitting.needs_restart && less.to_string().contains(", but only after a restart (at most "), "{less}");
        for Fitting { changes, needs_restart, .. } in &less.fitting {
            let typed = changes.iter().fold(memory(2), |text, change| typed(&text, change));
            let running = (!needs_restart).then_some(&running);
            check_beside(&typed, 2, running).unwrap_or_else(|refused| panic!("{typed}\n{refused}"));
        }
    }

    #[test]
    fn a_larger_error_for_all_lists_is_proposed_even_if_views_share_them() {
        let text = format!("{}\nestimates: {{top_error: 0.0002}}", SHARING.replace(", error: 0.0005", ""));
        let needed = check(&format!("{text}\nmemory: 16MiB"), 2).unwrap_err().needed;
        let refused = check(&format!("{text}\nmemory: {}MiB", (needed >> 20) - 1), 2).unwrap_err();
        let changes: Vec<_> = refused.fitting.iter().map(|fitting| &fitting.changes[..]).collect();
        assert!(matches!(changes[0], [Change::TopError(_)]), "{refused}");
        assert!(refused.largest.iter().any(|view| view.starts_with("sources and c (")), "{refused}");
    }

    #[test]
    fn a_plan_over_the_limit_is_refused_and_the_largest_views_are_named() {
        let text = "interfaces: [eth0]\nestimates: {top_error: 0.0001}";
        let needed = check(&format!("{text}\nmemory: 16MiB"), 2).unwrap_err().needed;
        assert_eq!(check(&format!("{text}\nmemory: {needed}"), 2), Ok(needed));
        let refused = check(&format!("{text}\nmemory: {}", needed - 1), 2).unwrap_err();
        assert_eq!((refused.needed, refused.largest.len()), (needed, NAMED));
        let told = refused.to_string();
        let way_out = format!("Or set `memory` to {}MiB", needed.div_ceil(1 << 20));
        assert!(told.contains("flows (") && told.contains("What fits: `") && told.ends_with(&way_out), "{told}");
        let hopeless = check("interfaces: [eth0]\nmemory: 16MiB", 2).unwrap_err();
        assert_eq!(hopeless.fitting, []);
        assert!(hopeless.to_string().contains("Neither larger errors nor fewer lists"), "{hopeless}");
        let floor = format!("The program itself needs {}, ", mib(hopeless.program));
        assert!(hopeless.program > 16 << 20 && hopeless.to_string().contains(&floor), "{hopeless}");
    }

    #[test]
    fn own_views_are_not_taken_for_standard_ones() {
        // Some standard views are not asked on a single interface.
        let config = parse("interfaces: [eth0]\nviews: [{name: own, by: [src_ip, dst_port], error: 0.0001}]");
        let ladders = ladders(&config, 1, 2);
        let is_of_own = |change: &Change| matches!(change, Change::ViewError { view, .. } if view == "own");
        assert!(ladders.iter().flatten().any(is_of_own), "{ladders:?}");
    }
}
