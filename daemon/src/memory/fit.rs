//! Smaller defaults, where the configuration allows less memory than they need.
//!
//! `memory: 20MiB` is meant for a router with little memory. Its user need not know which settings take most: those
//! that are as by default become smaller together, step by step, until all fits. What somebody has set stays. If even
//! the last step needs more, [`Memory::check_budget`] proposes what else to change.

use std::sync::Arc;

use weir_config::{Config, Datapath, Estimates, History, SeenFlows, Sink, slots, view::Standard};
use weir_datapath::Cpus;
use weir_measure::question::Views;

use super::{Change, Memory};

/// Values for all settings that may become smaller.
struct Step {
    /// `history.memory`; `None` is off.
    history: Option<u64>,
    /// `queue` of each sink.
    queue: usize,
    /// `estimates`.
    estimates: Estimates,
    /// `seen_flows.capacity`.
    capacity: u64,
    /// `datapath.ring`: bytes per CPU.
    ring: u64,
    /// `datapath.cache_flows`.
    cache_flows: u32,
    /// Whether there are lists of floods and scans.
    has_spreads: bool,
}

/// The steps, from the largest to the smallest.
const STEPS: [Step; 6] = [
    Step {
        history: Some(1 << 20),
        queue: 8,
        estimates: Estimates { unique_error: 0.005, top_error: 0.0005, top_candidates: 1024 },
        capacity: 1_000_000,
        ring: 1 << 20,
        cache_flows: 1 << 14,
        has_spreads: true,
    },
    Step {
        history: Some(512 << 10),
        queue: 5,
        estimates: Estimates { unique_error: 0.01, top_error: 0.001, top_candidates: 1024 },
        capacity: 500_000,
        ring: 512 << 10,
        cache_flows: 1 << 13,
        has_spreads: true,
    },
    Step {
        history: None,
        queue: 5,
        estimates: Estimates { unique_error: 0.01, top_error: 0.001, top_candidates: 512 },
        capacity: 200_000,
        ring: 512 << 10,
        cache_flows: 1 << 13,
        has_spreads: true,
    },
    Step {
        history: None,
        queue: 5,
        estimates: Estimates { unique_error: 0.01, top_error: 0.002, top_candidates: 512 },
        capacity: 100_000,
        ring: 256 << 10,
        cache_flows: 1 << 12,
        has_spreads: true,
    },
    Step {
        history: None,
        queue: 2,
        estimates: Estimates { unique_error: 0.02, top_error: 0.005, top_candidates: 256 },
        capacity: 50_000,
        ring: 128 << 10,
        cache_flows: 1 << 11,
        has_spreads: true,
    },
    Step {
        history: None,
        queue: 2,
        estimates: Estimates { unique_error: 0.02, top_error: 0.01, top_candidates: 128 },
        capacity: 50_000,
        ring: 128 << 10,
        cache_flows: 1 << 11,
        has_spreads: false,
    },
];

/// On which machine, and beside which configuration.
#[derive(Clone, Copy)]
pub struct Fit<'a> {
    /// Its CPUs.
    pub cpus: &'a Cpus,
    /// Whether there are programs in the kernel.
    pub has_programs: bool,
    /// The configuration of a weir that runs already: what it cannot change stays as it is.
    pub running: Option<&'a Config>,
}

/// A configuration that fits, if one does.
pub struct Fitted {
    /// The configuration.
    pub config: Config,
    /// The settings that are smaller than by default, if any.
    pub smaller: Option<String>,
}

/// The configuration with smaller values in place of defaults, as far as it must be to fit into the memory that it
/// allows.
pub fn fit(config: &Config, machine: Fit<'_>) -> Fitted {
    let kept = match machine.running {
        Some(running) if running.memory.is_some() => beside(config.clone(), running),
        _ => config.clone(),
    };
    let Some(allowed) = config.memory else { return Fitted { config: kept, smaller: None } };
    let fits = |config: &Config| machine.needs(config).is_none_or(|needed| needed <= allowed);
    if fits(config) && fits(&kept) {
        return Fitted { config: kept, smaller: None };
    }
    let mut smaller = kept.clone();
    for step in &STEPS {
        smaller = step.of(&kept, machine.running.is_none());
        // The same step as at the start, so that the same file changes nothing.
        if fits(&step.of(config, true)) && fits(&smaller) {
            break;
        }
    }
    Fitted { smaller: Some(differences(config, &smaller)), config: smaller }
}

impl Fit<'_> {
    /// The bytes that this configuration needs. `None` if it has a mistake, which is told elsewhere.
    fn needs(&self, config: &Config) -> Option<u64> {
        let views: Arc<Views> = Views::new(config, slots(&config.interfaces)).ok()?;
        Some(Memory::plan(config, &views, self.cpus, self.has_programs).total())
    }
}

/// The same, with the sizes of a running weir in place of defaults, where it cannot change them.
fn beside(mut config: Config, running: &Config) -> Config {
    let Datapath { cache_flows, ring, .. } = running.datapath;
    config.datapath.cache_flows = config.datapath.cache_flows.or(cache_flows);
    config.datapath.ring = config.datapath.ring.or(ring);
    if config.history == Some(History::default()) {
        config.history = running.history;
    }
    if config.seen_flows.capacity == SeenFlows::default().capacity {
        config.seen_flows.capacity = running.seen_flows.capacity;
    }
    config
}

impl Step {
    /// The configuration with this step's values in place of defaults; of those that need a restart only if `all`.
    fn of(&self, config: &Config, all: bool) -> Config {
        let Estimates { unique_error, top_error, top_candidates } = Estimates::default();
        let mut smaller = config.clone();
        let estimates = &mut smaller.estimates;
        replace(&mut estimates.unique_error, &unique_error, self.estimates.unique_error);
        replace(&mut estimates.top_candidates, &top_candidates, self.estimates.top_candidates);
        if estimates.top_error == top_error {
            Change::TopError(self.estimates.top_error).apply(&mut smaller);
        }
        for sink in &mut smaller.sinks {
            replace(&mut sink.queue, &Sink::QUEUE, self.queue);
        }
        if !self.has_spreads && smaller.standard_views == Standard::ALL {
            let is_watched = |view| config.alerts.rules.iter().any(|rule| rule.standard() == Some(view));
            smaller.standard_views.retain(|view| !SPREADS.contains(view) || is_watched(*view));
        }
        if all {
            replace(&mut smaller.history, &Some(History::default()), self.history.map(|memory| History { memory }));
            replace(&mut smaller.seen_flows.capacity, &SeenFlows::default().capacity, self.capacity);
            replace(&mut smaller.datapath.ring, &None, Some(self.ring));
            replace(&mut smaller.datapath.cache_flows, &None, Some(self.cache_flows));
        }
        smaller
    }
}

/// The lists of floods and scans.
const SPREADS: [Standard; 3] =
    [Standard::SourcesPerDestination, Standard::DestinationsPerSource, Standard::PortsPerSource];

fn replace<T: PartialEq>(setting: &mut T, default: &T, smaller: T) {
    if setting == default {
        *setting = smaller;
    }
}

/// The settings that differ, as they are in the second configuration.
fn differences(before: &Config, after: &Config) -> String {
    let lines = [before, after].map(|config| config.to_yaml());
    let [before, after] = lines.each_ref().map(|text| text.lines().map(str::trim).collect::<Vec<_>>());
    let mut all: Vec<_> = after.iter().filter(|line| !before.contains(line)).map(|line| (*line).to_owned()).collect();
    let without = before.iter().filter(|line| !after.contains(line)).filter_map(|line| line.strip_prefix("- "));
    all.extend(without.map(|list| format!("no {list}")));
    all.dedup();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse(&format!("interfaces: [eth0]\n{text}"), "test").unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    fn machine(cpus: &Cpus) -> Fit<'_> {
        Fit { cpus, has_programs: true, running: None }
    }

    /// As much memory as this program, and so many MiB.
    fn allowing(mib: u64, text: &str) -> Config {
        let config = parse(text);
        let plan = Memory::plan(&config, &Views::new(&config, 1).unwrap(), &Cpus::of(2), true);
        Config { memory: Some(plan.program + (mib << 20)), ..config }
    }

    #[test]
    fn defaults_become_as_small_as_the_memory_asks_and_no_smaller() {
        let cpus = Cpus::of(2);
        let mut needs: Vec<u64> = Vec::new();
        for mib in [6, 8, 10, 13, 18, 23, 100] {
            let config = allowing(mib, "");
            let Fitted { config: fitted, smaller } = fit(&config, machine(&cpus));
            let needed = machine(&cpus).needs(&fitted).unwrap();
            assert!(Some(needed) <= config.memory, "{mib} MiB besides the program: {needed}, {smaller:?}");
            assert_eq!(smaller.is_none(), fitted == config, "{smaller:?}");
            needs.push(needed);
        }
        needs.dedup();
        assert!(needs.is_sorted() && needs.len() > 4, "more memory is used: {needs:?}");
        let unlimited = parse("");
        assert_eq!(fit(&unlimited, machine(&cpus)).config, unlimited);
    }

    #[test]
    fn what_is_set_stays_and_an_alert_keeps_its_list() {
        let text = "estimates: {top_error: 0.0002}\nhistory: {memory: 1MiB}\ndatapath: {ring: 2MiB}\n\
                    sinks: [{type: stdout, queue: 9}]\nviews: [{name: v, by: [dst_port], error: 0.003}]\n\
                    alerts: {rules: [{name: a, when: ports_per_source > 5}]}";
        let Fitted { config, smaller } = fit(&allowing(1, text), machine(&Cpus::of(2)));
        assert_eq!((config.estimates.top_error, config.history), (0.0002, Some(History { memory: 1 << 20 })));
        assert_eq!((config.datapath.ring, config.sinks[0].queue, config.views[0].error), (Some(2 << 20), 9, 0.003));
        assert_eq!((config.seen_flows.capacity, config.estimates.top_candidates), (50_000, 128));
        assert!(config.standard_views.contains(&Standard::PortsPerSource), "the rule needs it");
        assert!(!config.standard_views.contains(&Standard::SourcesPerDestination));
        let smaller = smaller.unwrap();
        for part in ["capacity: 50000", "top_candidates: 128", "no sources_per_destination"] {
            assert!(smaller.contains(part), "{part}: {smaller}");
        }
        assert!(!smaller.contains("no ports_per_source") && !smaller.contains("queue"), "{smaller}");
    }

    #[test]
    fn a_running_weir_keeps_what_it_cannot_change() {
        let cpus = Cpus::of(2);
        let running = fit(&allowing(8, ""), machine(&cpus)).config;
        let beside = Fit { running: Some(&running), ..machine(&cpus) };
        // The same file, one that allows more, and one that limits nothing any more.
        for memory in [running.memory, Some(1 << 30), None] {
            let Config { history, datapath, seen_flows, .. } = fit(&Config { memory, ..parse("") }, beside).config;
            assert_eq!((history, &datapath, &seen_flows), (running.history, &running.datapath, &running.seen_flows));
        }
        assert_eq!(fit(&Config { memory: running.memory, ..parse("") }, beside).config, running);
        let other = parse("datapath: {ring: 4MiB}\nmemory: 1GiB");
        assert_eq!(fit(&other, beside).config.datapath.ring, Some(4 << 20), "the reload refuses that");
    }
}
