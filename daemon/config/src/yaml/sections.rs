//! One table of the facts about each section of the configuration, besides its values: what a change of the section
//! means for a running weir, and which access the sandbox must allow for it.
//!
//! A new section needs a row here. Without it weir does not compile.

use std::{borrow::Cow, path::Path};

use weir_system::sandbox::{Files, Places, SandboxConfig};

use super::{Config, HashKey, Interface, Mode, Names};
use crate::names::GeoFiles;

/// The decisions that were made when weir started, and cannot change.
#[derive(Clone, Debug)]
pub struct Started {
    /// True if there are programs, not only packet sockets.
    pub has_programs: bool,
    /// True if the programs can sample.
    pub can_sample: bool,
    /// True if there are packet socket readers.
    pub has_readers: bool,
    /// True if weir may still attach filters to the classic tc hook.
    pub can_filter: bool,
    /// True if standard output gets tables for people, not JSON.
    pub has_tables: bool,
    /// The directories and files that it can reach; `None`: all that its user may.
    pub places: Option<Places>,
}

/// A setting that cannot change while weir runs, and why not.
pub type Refused = (Cow<'static, str>, Cow<'static, str>);

/// A section of the configuration.
struct Section {
    /// The name in the file.
    name: &'static str,
    /// Returns true if two configurations differ in the section.
    differs: fn(&Config, &Config) -> bool,
    /// The effect of a change on a running weir.
    change: Change,
    /// The access that the sandbox must allow.
    access: Access,
}

/// The effect of a change on a running weir.
enum Change {
    /// It applies from the end of the window on.
    Applies,
    /// It needs a restart, for this reason.
    Restart(&'static str),
    /// It depends on the change, and on how weir was started.
    Depends(fn(&Config, &Config, &Started) -> Vec<(&'static str, &'static str)>),
}

/// The access that the sandbox must allow for a section.
enum Access {
    /// No access.
    Nothing,
    /// The access that this function adds. The path is that of the service's state directory, if it has one.
    Adds(fn(&Config, Option<&Path>, &mut SandboxConfig)),
}

/// Defines the table. A field of [`Config`] without a row is an error of the compiler.
macro_rules! sections {
    ($($field:ident: $change:expr, $access:expr;)*) => {
        const SECTIONS: &[Section] = &[$(Section {
            name: stringify!($field),
            differs: |old, new| old.$field != new.$field,
            change: $change,
            access: $access,
        }),*];

        // What was found on this machine is not in the file.
        const _: fn(Config) = |Config { $($field: _,)* found_networks: _ }| ();
    };
}

use {Access::*, Change::*};

sections! {
    observer: Restart("the numbers of reports go on for one observer"), Nothing;
    interfaces: Depends(change_of_interfaces), Nothing;
    networks: Applies, Adds(|config, _, wanted| {
        for network in &config.networks {
            let setting = format!("networks.{}.file", network.name);
            wanted.files.reads(&setting, network.file.as_ref().map(|file| &file.path));
        }
    });
    names: Applies, Adds(|config, _, wanted| {
        let Names { file, leases, hosts: _ } = &config.names;
        wanted.files.reads("names.file", file);
        wanted.files.reads("names.leases", leases);
    });
    geo: Applies, Adds(|config, _, wanted| {
        let GeoFiles { asn, country } = &config.geo;
        wanted.files.reads("geo.asn", asn);
        wanted.files.reads("geo.country", country);
    });
    report: Depends(change_of_report), Nothing;
    estimates: Applies, Nothing;
    seen_flows: Depends(change_of_seen_flows), Nothing;
    new_hosts: Restart("its filter is made once"), Nothing;
    standard_views: Applies, Nothing;
    views: Applies, Nothing;
    alerts: Applies, Nothing;
    export: Applies, Nothing;
    memory: Applies, Nothing;
    history: Depends(change_of_history), Adds(|config, state_directory, wanted| {
        wanted.files.history = config.history.as_ref().and_then(|history| history.folder(state_directory));
    });
    usage: Depends(change_of_usage), Nothing;
    control: Restart("the control socket is opened once"), Adds(|config, _, wanted| {
        wanted.files.socket.clone_from(&config.control.socket);
    });
    prometheus: Restart("its address is opened once"), Adds(|config, _, wanted| {
        wanted.ports.extend(config.prometheus.listen.map(|address| address.port()));
    });
    web: Restart("its address is opened once"), Adds(|config, _, wanted| {
        wanted.ports.extend(config.web.listen.map(|address| address.port()));
        wanted.files.reads("web.token_file", &config.web.token_file);
    });
    datapath: Restart("its maps are made once"), Nothing;
    sampling: Depends(change_of_sampling), Nothing;
    addresses: Applies, Nothing;
    hash_key: Restart("the filter of seen flows depends on it"), Adds(|config, _, wanted| {
        if let HashKey::File(path) = &config.hash_key {
            wanted.files.reads("hash_key.file", [path]);
        }
    });
    sandbox: Restart("it is closed once"), Adds(|config, _, wanted| wanted.is_on = config.sandbox);
    sinks: Applies, Adds(access_of_sinks);
    // Only a sink needs the folder.
    spool: Restart("it is opened once"), Adds(|config, state_directory, wanted| {
        if config.sinks.iter().any(|sink| sink.target.spool_key().is_some()) {
            wanted.files.spool = config.spool.folder(state_directory);
        }
    });
}

fn change_of_interfaces(_: &Config, new: &Config, started: &Started) -> Vec<(&'static str, &'static str)> {
    let any = |needs: fn(&Interface) -> bool| new.interfaces.iter().any(needs);
    let mut refused = Vec::new();
    if !started.has_programs && any(|interface| !matches!(interface.mode, Mode::Auto | Mode::AfPacket)) {
        refused.push("weir was started with packet sockets only, and this mode needs its programs");
    }
    if started.has_programs && !started.can_filter && any(|interface| interface.mode == Mode::Tc) {
        refused.push("weir has given up the right to attach filters, which `mode: tc` needs");
    }
    if !started.has_readers && (!started.has_programs || any(|interface| interface.mode == Mode::AfPacket)) {
        refused.push("weir was started without threads that read packet sockets, which `mode: afpacket` needs");
    }
    refused.into_iter().map(|why| ("interfaces", why)).collect()
}

fn change_of_seen_flows(old: &Config, new: &Config, _: &Started) -> Vec<(&'static str, &'static str)> {
    let filter = |config: &Config| (config.seen_flows.capacity, config.seen_flows.false_positive_rate);
    let why = "its filter is made once; only `generation` can change";
    if filter(old) == filter(new) { Vec::new() } else { vec![("seen_flows", why)] }
}

fn change_of_report(old: &Config, new: &Config, _: &Started) -> Vec<(&'static str, &'static str)> {
    let why = "their sketches are made once";
    if old.report.horizons == new.report.horizons { Vec::new() } else { vec![("report.horizons", why)] }
}

fn change_of_usage(old: &Config, new: &Config, _: &Started) -> Vec<(&'static str, &'static str)> {
    let is_switched = old.usage.is_some() != new.usage.is_some();
    if is_switched { vec![("usage", "its files are opened once")] } else { Vec::new() }
}

fn change_of_history(old: &Config, new: &Config, _: &Started) -> Vec<(&'static str, &'static str)> {
    let once = |config: &Config| config.history.as_ref().map(|history| (history.memory, history.path.clone()));
    let why = "its memory is planned once, and its folder is opened once";
    if once(old) == once(new) { Vec::new() } else { vec![("history", why)] }
}

fn change_of_sampling(_: &Config, new: &Config, started: &Started) -> Vec<(&'static str, &'static str)> {
    let why = "weir was started to take every packet, and its programs can do nothing else";
    let is_new = started.has_programs && !started.can_sample && new.sampling.packets.leaves_out();
    if is_new { vec![("sampling.packets", why)] } else { Vec::new() }
}

fn access_of_sinks(config: &Config, _: Option<&Path>, wanted: &mut SandboxConfig) {
    for (nth, sink) in config.sinks.iter().enumerate() {
        sink.target.add_files(&|name| format!("sinks[{nth}].{name}"), &mut wanted.files);
    }
}

impl Config {
    /// Returns the access that the sandbox must allow. `state_directory` is the service's state directory, if it has
    /// one.
    pub fn wanted(&self, state_directory: Option<&Path>) -> SandboxConfig {
        let mut wanted = SandboxConfig::default();
        for section in SECTIONS {
            if let Adds(add) = section.access {
                add(self, state_directory, &mut wanted);
            }
        }
        wanted
    }

    /// The files that this configuration names. `state_directory` is the service's state directory, if it has one.
    pub fn files(&self, state_directory: Option<&Path>) -> Files {
        self.wanted(state_directory).files
    }

    /// The names of the sections in which `new` differs from this configuration.
    pub fn changed(&self, new: &Self) -> Vec<&'static str> {
        SECTIONS.iter().filter(|section| (section.differs)(self, new)).map(|section| section.name).collect()
    }

    /// The settings of `new` that a weir with this configuration cannot apply while it runs, each with the reason.
    pub fn needs_restart(&self, new: &Self, started: &Started) -> Vec<Refused> {
        let mut all: Vec<Refused> = Vec::new();
        for section in SECTIONS {
            let refused = match section.change {
                Restart(why) if (section.differs)(self, new) => vec![(section.name, why)],
                Restart(_) | Applies => Vec::new(),
                Depends(check) => check(self, new, started),
            };
            all.extend(refused.into_iter().map(|(name, why)| (name.into(), why.into())));
        }
        let files = new.files(None);
        if let Some((setting, path, to_write)) = started.places.as_ref().and_then(|places| places.lacks(&files)) {
            let what = if to_write { "writes" } else { "opens" };
            let why = format!(
                "weir {what} only files in folders that its configuration named when it was started, and {} is in none \
                 of them (see `sandbox`)",
                path.display()
            );
            all.push((setting.to_owned().into(), why.into()));
        }
        all
    }
}

#[cfg(test)]
mod tests;
