//! What weir must know about each section of the configuration besides its values, in one table: what a change of the
//! section means for a running weir, and what the sandbox must allow for it.
//!
//! A new section needs a row here. Without it weir does not compile.

use std::{borrow::Cow, path::Path};

use weir_system::sandbox::{Files, Places, SandboxConfig};

use super::{Config, File, HashKey, Http, Interface, Kafka, Mode, Nats, Target, Tls};
use crate::names::GeoFiles;

/// What was decided when weir started, and cannot change.
#[derive(Clone, Debug)]
pub struct Started {
    /// Whether there are programs, not only packet sockets.
    pub has_programs: bool,
    /// Whether they can sample.
    pub can_sample: bool,
    /// Whether there are packet socket readers.
    pub has_readers: bool,
    /// Whether weir may still attach filters to the classic tc hook.
    pub can_filter: bool,
    /// Whether standard output gets tables for people, not JSON.
    pub has_tables: bool,
    /// The directories and files that it can reach; `None`: all that its user may.
    pub places: Option<Places>,
}

/// A setting that cannot change while weir runs, and why not.
pub type Refused = (Cow<'static, str>, Cow<'static, str>);

/// A section of the configuration.
struct Section {
    /// Its name in the file.
    name: &'static str,
    /// Whether two configurations differ in it.
    differs: fn(&Config, &Config) -> bool,
    /// What a change means for a running weir.
    change: Change,
    /// What the sandbox must allow.
    access: Access,
}

/// What a change of a section means for a running weir.
enum Change {
    /// It applies from the end of the window on.
    Applies,
    /// It needs a restart, for this reason.
    Restart(&'static str),
    /// It depends on the change, and on how weir was started.
    Depends(fn(&Config, &Config, &Started) -> Vec<(&'static str, &'static str)>),
}

/// What the sandbox must allow for a section.
enum Access {
    /// Nothing.
    Nothing,
    /// What this adds. The path is that of the service's state directory, if it has one.
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

        const _: fn(Config) = |Config { $($field: _),* }| ();
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
    geo: Applies, Adds(|config, _, wanted| {
        let GeoFiles { asn, country } = &config.geo;
        wanted.files.reads("geo.asn", asn);
        wanted.files.reads("geo.country", country);
    });
    report: Applies, Nothing;
    estimates: Applies, Nothing;
    seen_flows: Depends(change_of_seen_flows), Nothing;
    standard_views: Applies, Nothing;
    views: Applies, Nothing;
    alerts: Applies, Nothing;
    export: Applies, Nothing;
    memory: Applies, Nothing;
    history: Restart("its memory is planned once"), Nothing;
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

fn change_of_sampling(_: &Config, new: &Config, started: &Started) -> Vec<(&'static str, &'static str)> {
    let why = "weir was started to take every packet, and its programs can do nothing else";
    let is_new = started.has_programs && !started.can_sample && new.sampling.packets.leaves_out();
    if is_new { vec![("sampling.packets", why)] } else { Vec::new() }
}

fn access_of_sinks(config: &Config, _: Option<&Path>, wanted: &mut SandboxConfig) {
    let files = &mut wanted.files;
    for (nth, sink) in config.sinks.iter().enumerate() {
        let setting = |name: &str| format!("sinks[{nth}].{name}");
        match &sink.target {
            Target::Stdout | Target::Ipfix(_) => {}
            Target::File(File { path, .. }) => files.written.push((setting("path"), path.clone())),
            Target::Http(http) | Target::Otlp(http) => {
                let Http { token_file, header_files, tls, .. } = &**http;
                files.reads(&setting("token_file"), token_file);
                files.reads(&setting("header_files"), header_files.iter().map(|(_, file)| file));
                access_of_tls(files, &setting("tls"), tls);
            }
            Target::Kafka(kafka) => {
                let Kafka { sasl, tls, .. } = &**kafka;
                files.reads(&setting("sasl.password_file"), sasl.iter().map(|sasl| &sasl.password_file));
                if let Some(tls) = tls {
                    access_of_tls(files, &setting("tls"), tls);
                }
            }
            Target::Nats(nats) => {
                let Nats { credentials_file, token_file, password_file, tls, .. } = &**nats;
                files.reads(&setting("credentials_file"), credentials_file);
                files.reads(&setting("token_file"), token_file);
                files.reads(&setting("password_file"), password_file);
                access_of_tls(files, &setting("tls"), tls);
            }
        }
    }
}

fn access_of_tls(files: &mut Files, setting: &str, Tls { ca_file, certificate_file, key_file }: &Tls) {
    for (name, file) in [("ca_file", ca_file), ("certificate_file", certificate_file), ("key_file", key_file)] {
        files.reads(&format!("{setting}.{name}"), file);
    }
}

impl Config {
    /// What the sandbox must allow. `state_directory` is the service's state directory, if it has one.
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
