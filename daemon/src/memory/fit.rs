//! Chooses smaller defaults if the configuration allows less memory than the defaults need.
//!
//! `memory: 20MiB` is meant for a router with little memory. Its user need not know which settings take most: those
//! that are as by default become smaller together, step by step, until all fits. What somebody has set stays. If even
//! the last step needs more, [`Fitted::check`] proposes what else to change.

use std::sync::Arc;

use weir_config::{Config, Datapath, Estimates, History, Names, SeenFlows, Sink, names::Geo, view::Standard};
use weir_datapath::{Cpus, Shares};
use weir_measure::question::Views;
use weir_schema::REPORTS_KEPT;

use super::{Change, Memory};

/// Values for all settings that may become smaller.
struct Step {
    /// `history.memory`; `None` is off.
    history: Option<u64>,
    /// `queue` of each sink. A shorter one would not hold the last reports, which would then take memory of their own.
    queue: usize,
    /// The section `estimates`.
    estimates: Estimates,
    /// The setting `seen_flows.capacity`.
    capacity: u64,
    /// `datapath.ring`: bytes per CPU.
    ring: u64,
    /// The setting `datapath.cache_flows`.
    cache_flows: u32,
    /// True if there are lists of hosts, with their names, and of floods and scans.
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
        queue: REPORTS_KEPT,
        estimates: Estimates { unique_error: 0.01, top_error: 0.001, top_candidates: 1024 },
        capacity: 500_000,
        ring: 512 << 10,
        cache_flows: 1 << 13,
        has_spreads: true,
    },
    Step {
        history: None,
        queue: REPORTS_KEPT,
        estimates: Estimates { unique_error: 0.01, top_error: 0.001, top_candidates: 512 },
        capacity: 200_000,
        ring: 512 << 10,
        cache_flows: 1 << 13,
        has_spreads: true,
    },
    Step {
        history: None,
        queue: REPORTS_KEPT,
        estimates: Estimates { unique_error: 0.01, top_error: 0.002, top_candidates: 512 },
        capacity: 100_000,
        ring: 256 << 10,
        cache_flows: 1 << 12,
        has_spreads: true,
    },
    Step {
        history: None,
        queue: REPORTS_KEPT,
        estimates: Estimates { unique_error: 0.02, top_error: 0.005, top_candidates: 256 },
        capacity: 50_000,
        ring: 128 << 10,
        cache_flows: 1 << 11,
        has_spreads: true,
    },
    Step {
        history: None,
        queue: REPORTS_KEPT,
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
    /// The CPUs of the machine.
    pub cpus: &'a Cpus,
    /// True if there are programs in the kernel.
    pub has_programs: bool,
    /// The number of interface slots.
    pub interfaces: usize,
    /// The configuration of a weir that is running already: settings that it cannot change stay as they are.
    pub running: Option<&'a Config>,
}

/// A configuration that is as small as it must be, and its plan.
pub struct Fitted {
    /// The configuration with the smaller defaults.
    pub config: Config,
    /// The views of the configuration.
    pub views: Arc<Views>,
    /// The memory of the configuration. If this is more than the configuration allows, nothing fits.
    pub memory: Memory,
    /// The settings that are smaller than by default, if any.
    pub smaller: Option<String>,
    /// The settings that are not as by default because a running weir cannot change them, if any.
    pub kept: Option<String>,
}

/// The configuration with smaller values in place of defaults, as far as it must be to fit into the memory that it
/// allows. `geo` has the databases that it names.
pub fn fit(config: &Config, machine: Fit<'_>, geo: &Arc<Geo>) -> Fitted {
    let views = |config: &Config| Views::with_geo(config, machine.interfaces, geo.clone());
    let kept = machine.beside(config);
    let views_of_kept = views(&kept);
    let names = names_bytes(&views_of_kept);
    let fitted = machine.smaller(config, names);
    let views = if fitted == kept { views_of_kept } else { views(&fitted) };
    Fitted {
        memory: Memory::plan(&fitted, &views, machine.cpus, machine.has_programs),
        smaller: differences(&kept, &fitted),
        kept: differences(config, &kept),
        views,
        config: fitted,
    }
}

/// The memory that networks and databases take.
pub(super) fn names_bytes(views: &Views) -> u64 {
    (views.networks.memory_bytes() + views.geo.memory_bytes()) as u64
}

impl Fit<'_> {
    /// The first step of `config` that fits into the memory that it allows, or the last one. Networks and databases
    /// take this many bytes.
    pub(super) fn smaller(&self, config: &Config, names: u64) -> Config {
        let kept = self.beside(config);
        let Some(allowed) = config.memory else { return kept };
        let fits = |config: &Config| self.needs(config, names) <= allowed;
        if fits(config) && (kept == *config || fits(&kept)) {
            return kept;
        }
        let mut smaller = kept.clone();
        for step in &STEPS {
            smaller = self.step(step, &kept);
            // The same step as at the start, so that the same file changes nothing.
            if (self.running.is_none() || fits(&step.of(config, self.cpus, true))) && fits(&smaller) {
                break;
            }
        }
        smaller
    }

    /// Returns the configuration after the last step.
    pub(super) fn smallest(&self, config: &Config) -> Config {
        STEPS.iter().last().map_or_else(|| config.clone(), |step| self.step(step, &self.beside(config)))
    }

    fn step(&self, step: &Step, config: &Config) -> Config {
        step.of(config, self.cpus, self.running.is_none())
    }

    /// The bytes that this configuration needs, of which networks and databases take `names`.
    pub(super) fn needs(&self, config: &Config, names: u64) -> u64 {
        // Names of addresses take the same memory in each trial, so they need not be prepared again.
        let config = Config { networks: Vec::new(), geo: Default::default(), ..config.clone() };
        let views = Views::with_geo(&config, self.interfaces, Arc::default());
        Memory::plan(&config, &views, self.cpus, self.has_programs).with_names(names).total()
    }

    /// The same configuration, with the sizes of the running weir in place of defaults, where it cannot change them.
    fn beside(&self, config: &Config) -> Config {
        let mut config = config.clone();
        let Some(running) = self.running.filter(|running| running.memory.is_some()) else { return config };
        let Datapath { cache_flows, ring, .. } = running.datapath;
        config.datapath.cache_flows = config.datapath.cache_flows.or(cache_flows);
        config.datapath.ring = config.datapath.ring.or(ring);
        if let Some(history) = config.history.take() {
            let running = running.history.as_ref().map(|running| running.memory);
            config.history = if is_default(&history) { in_memory(history, running) } else { Some(history) };
        }
        if config.seen_flows.capacity == SeenFlows::default().capacity {
            config.seen_flows.capacity = running.seen_flows.capacity;
        }
        config
    }
}

impl Step {
    /// The configuration with this step's values in place of defaults; of those that need a restart only if `all`.
    /// Nothing becomes larger than by default on these CPUs.
    fn of(&self, config: &Config, cpus: &Cpus, all: bool) -> Config {
        let Estimates { unique_error, top_error, top_candidates } = Estimates::default();
        let mut smaller = config.clone();
        let estimates = &mut smaller.estimates;
        // Sketches that are exported need their registers.
        let error_max = if config.export.has_unique() { config.export.unique_error_max() } else { f64::INFINITY };
        let error = self.estimates.unique_error.min(error_max).max(unique_error);
        replace(&mut estimates.unique_error, &unique_error, error);
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
        if !self.has_spreads {
            replace(&mut smaller.names, &Names::default(), Names { hosts: false, ..Names::default() });
        }
        if all {
            let Shares { cache_flows, ring } = Shares::new(&Datapath::default(), cpus);
            if let Some(history) = smaller.history.take() {
                smaller.history = if is_default(&history) { in_memory(history, self.history) } else { Some(history) };
            }
            replace(&mut smaller.seen_flows.capacity, &SeenFlows::default().capacity, self.capacity);
            replace(&mut smaller.datapath.ring, &None, Some(self.ring).filter(|smaller| *smaller < ring));
            let flows = Some(self.cache_flows).filter(|smaller| *smaller < cache_flows);
            replace(&mut smaller.datapath.cache_flows, &None, flows);
        }
        smaller
    }
}

/// The lists of floods and scans, and of hosts, which have such counters, too.
const SPREADS: [Standard; 4] =
    [Standard::Hosts, Standard::SourcesPerDestination, Standard::DestinationsPerSource, Standard::PortsPerSource];

/// Whether a history has as much memory as by default.
fn is_default(history: &History) -> bool {
    history.memory == History::default().memory
}

/// The same history in this much memory; `None` is off.
fn in_memory(history: History, memory: Option<u64>) -> Option<History> {
    memory.map(|memory| History { memory, ..history })
}

fn replace<T: PartialEq>(setting: &mut T, default: &T, smaller: T) {
    if setting == default {
        *setting = smaller;
    }
}

/// The settings that differ, with their values in the second configuration. `None` if there are none.
fn differences(before: &Config, after: &Config) -> Option<String> {
    if before == after {
        return None;
    }
    let [before, after] = [before, after].map(Config::settings);
    let changed = after.iter().filter(|setting| !before.contains(setting));
    let mut all: Vec<_> = changed.map(|(name, value)| format!("{name}: {value}")).collect();
    let is_gone =
        |(name, value): &&(String, String)| name == STANDARD_VIEWS && !after.contains(&(name.clone(), value.clone()));
    let gone: Vec<_> = before.iter().filter(is_gone).map(|(_, list)| list.as_str()).collect();
    if !gone.is_empty() {
        all.push(format!("{STANDARD_VIEWS} without {}", gone.join(", ")));
    }
    Some(all.join(", ")).filter(|all| !all.is_empty())
}

/// The setting that is a list of words, of which some are left out.
const STANDARD_VIEWS: &str = "standard_views";
#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse(&format!("interfaces: [eth0]\n{text}"), "test").unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    fn machine(cpus: &Cpus) -> Fit<'_> {
        Fit { cpus, has_programs: true, interfaces: 1, running: None }
    }

    fn fitted(config: &Config, machine: Fit<'_>) -> Fitted {
        fit(config, machine, &Arc::default())
    }

    /// As much memory as this program itself needs, and so many MiB.
    fn allowing(mib: u64, text: &str) -> Config {
        let config = parse(text);
        let floor = fitted(&config, machine(&Cpus::of(2))).memory.floor();
        Config { memory: Some(floor + (mib << 20)), ..config }
    }

    #[test]
    fn defaults_become_as_small_as_the_memory_asks_and_no_smaller() {
        let cpus = Cpus::of(2);
        let mut needs: Vec<u64> = Vec::new();
        for mib in [2, 3, 4, 6, 11, 16, 24, 100] {
            let config = allowing(mib, "");
            let Fitted { config: fitted, memory, smaller, .. } = fitted(&config, machine(&cpus));
            let needed = memory.total();
            assert!(Some(needed) <= config.memory, "{mib} MiB besides the program: {needed}, {smaller:?}");
            assert_eq!(smaller.is_none(), fitted == config, "{smaller:?}");
            needs.push(needed);
        }
        needs.dedup();
        assert!(needs.is_sorted() && needs.len() > 4, "more memory is used: {needs:?}");
        let unlimited = parse("");
        assert_eq!(fitted(&unlimited, machine(&cpus)).config, unlimited);
    }

    /// Returns the bytes of the part with this name.
    fn named(memory: &Memory, what: &str) -> u64 {
        let mut parts = memory.daemon.iter().chain(&memory.kernel);
        parts.find(|part| part.what == what).unwrap_or_else(|| panic!("there is no part {what}")).bytes
    }

    #[test]
    fn no_step_makes_anything_larger() {
        for (count, text) in [2, 16, 64, 128].into_iter().flat_map(|cpus| {
            let two = "sinks: [{type: stdout}, {type: file, path: /a, addresses: prefix}]\nexport: {views: all}";
            ["", two, "report: {top: 100}"].map(|text| (cpus, text))
        }) {
            let (cpus, mut config) = (Cpus::of(count), parse(text));
            let machine = machine(&cpus);
            let mut before = fitted(&config, machine).memory;
            for step in &STEPS {
                config = step.of(&parse(text), &cpus, true);
                let memory = fitted(&config, machine).memory;
                for (what, part) in [
                    ("rings", (|memory| memory.ring) as fn(&Memory) -> u64),
                    ("flow caches", |memory| named(memory, "flow caches")),
                    ("caches of readers", |memory| memory.reader_cache),
                    ("sketches", |memory| memory.shard),
                    ("filter", |memory| named(memory, "filter of seen flows")),
                    ("reports", |memory| named(memory, "reports waiting, at most") + named(memory, "last reports")),
                    ("history", |memory| named(memory, "history")),
                    ("export", |memory| named(memory, "sketches to export")),
                    ("total", Memory::total),
                ] {
                    let (earlier, now) = (part(&before), part(&memory));
                    assert!(now <= earlier, "{count} CPUs, {text:?}: {what} take {now} after {earlier}");
                }
                before = memory;
            }
        }
    }

    #[test]
    fn exported_registers_stay() {
        let cpus = Cpus::of(2);
        for lg_k in [12, 14, 15] {
            let text = format!("export: {{views: [unique], lg_k: {lg_k}}}");
            let Fitted { config, .. } = fitted(&allowing(0, &text), machine(&cpus));
            let registers = 1_u64 << lg_k;
            let error = config.estimates.unique_error;
            assert!((1.04 / error).powi(2) >= registers as f64 - 0.5, "{lg_k}: {error}");
            let typed = Config::parse(&config.to_yaml(), "a test").unwrap_or_else(|mistakes| panic!("{mistakes}"));
            assert_eq!(typed.estimates, config.estimates, "the file with these settings is valid");
        }
        let free = fitted(&allowing(0, "export: {views: [sources], lg_k: 15}"), machine(&cpus)).config;
        assert_eq!(free.estimates.unique_error, 0.02);
    }

    #[test]
    fn what_is_set_stays_and_an_alert_keeps_its_list() {
        let text = "estimates: {top_error: 0.0002}\nhistory: {memory: 1MiB}\ndatapath: {ring: 2MiB}\n\
                    sinks: [{type: stdout, queue: 9}]\nviews: [{name: v, by: [dst_port], error: 0.003}, {name: w, by: \
                    [src_ip, dst_port]}]\nalerts: {rules: [{name: a, when: ports_per_source > 5}]}";
        let Fitted { config, smaller, .. } = fitted(&allowing(1, text), machine(&Cpus::of(2)));
        assert_eq!(
            (config.estimates.top_error, config.history),
            (0.0002, Some(History { memory: 1 << 20, ..History::default() }))
        );
        assert_eq!((config.datapath.ring, config.sinks[0].queue, config.views[0].error), (Some(2 << 20), 9, 0.003));
        assert_eq!((config.seen_flows.capacity, config.estimates.top_candidates), (50_000, 128));
        assert!(config.standard_views.contains(&Standard::PortsPerSource), "the rule needs it");
        assert!(!config.standard_views.contains(&Standard::SourcesPerDestination));
        assert_eq!(
            smaller.unwrap(),
            "names.hosts: false, estimates.unique_error: 0.02, estimates.top_candidates: 128, seen_flows.capacity: \
             50000, datapath.cache_flows: 2048, standard_views without hosts, sources_per_destination, \
             destinations_per_source"
        );
        let views = "views: [{name: w, by: [src_ip, dst_port]}]\nsinks: [{type: stdout}]";
        let smaller = fitted(&allowing(0, views), machine(&Cpus::of(2))).smaller.unwrap();
        for part in ["views.w.error: 0.01, ", "sinks[0].queue: 5, ", "history: off, ", "datapath.ring: 128KiB, "] {
            assert!(smaller.contains(part), "{part}: {smaller}");
        }
    }

    #[test]
    fn a_running_weir_keeps_what_it_cannot_change() {
        let cpus = Cpus::of(2);
        let running = fitted(&allowing(1, ""), machine(&cpus)).config;
        let beside = Fit { running: Some(&running), ..machine(&cpus) };
        // The same file, one that allows more, and one that limits nothing any more.
        for memory in [running.memory, Some(1 << 30), None] {
            let found = fitted(&Config { memory, ..parse("") }, beside);
            let Config { history, datapath, seen_flows, .. } = found.config;
            assert_eq!((&history, &datapath, &seen_flows), (&running.history, &running.datapath, &running.seen_flows));
            let kept = found.kept.unwrap();
            for part in ["history: off", "seen_flows.capacity: 50000", "datapath.ring: 128KiB"] {
                assert!(kept.contains(part), "{part}: {kept}");
            }
            assert_eq!(found.smaller.is_some(), memory == running.memory, "what a reload changes is smaller again");
        }
        assert_eq!(fitted(&Config { memory: running.memory, ..parse("") }, beside).config, running);
        let other = parse("datapath: {ring: 4MiB}\nmemory: 1GiB");
        assert_eq!(fitted(&other, beside).config.datapath.ring, Some(4 << 20), "the reload refuses that");
    }
}
