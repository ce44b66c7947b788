//! Turns the tree of values into a [`Config`]: one function per section, in the order of the file.

use std::path::PathBuf;

use weir_system::text::short;

use super::export::export;
use super::history::history;
use super::horizon::horizons;
use super::interface::interfaces;
use super::interval::interval;
use super::key::{GUESSABLE, KEY_DIGITS, NoKey, parse_key};
use super::limits::*;
use super::names::names;
use super::network::networks;
use super::new_hosts::new_hosts;
use super::section::{Field, Section};
use super::sink::{addresses, sinks};
use super::spool::spool;
use super::tunnel_ports::tunnel_ports;
use super::units::{show_bytes, show_duration};
use super::usage::usage;
use super::web::web;
use super::{
    AUTO, Addresses, Alerts, Config, Control, Datapath, Estimates, Export, HashKey, History, NONE, Observer, Packets,
    Prometheus, Report, Sampling, SeenFlows, Tunnels, Usage,
};
use crate::{names::GeoFiles, view::Standard};

const TUNNELS: [(&str, Tunnels); 2] = [("outer", Tunnels::Outer), ("inner", Tunnels::Inner)];

/// Reads the whole configuration. A setting with a mistake gets its default, and the field's log has the mistake.
pub(super) fn config(root: &Field<'_>) -> Config {
    if root.is_null() {
        return Config::default();
    }
    let (mut views_field, mut alerts_field, mut export_field, mut sinks_field) = (None, None, None, None);
    let config = root.section("{report: {interval: 10s}}", |s| Config {
        observer: s.section("observer", "{name: edge-1}", observer),
        interfaces: s.get("interfaces", Vec::new(), |f| interfaces(&f)),
        networks: s.get("networks", Vec::new(), |f| networks(&f)),
        names: s.section("names", "{file: names.txt}", names),
        geo: s.section("geo", "{asn: GeoLite2-ASN.mmdb}", geo),
        report: s.section("report", "{interval: 10s}", report),
        estimates: s.section("estimates", "{unique_error: 0.005}", estimates),
        seen_flows: s.section("seen_flows", "{generation: 5m}", seen_flows),
        new_hosts: s.get("new_hosts", None, |f| new_hosts(&f)),
        standard_views: s.get("standard_views", Standard::ALL.to_vec(), |f| standard_views(&f)),
        views: {
            views_field = s.field("views");
            Vec::new()
        },
        alerts: {
            alerts_field = s.field("alerts");
            Alerts::default()
        },
        export: {
            export_field = s.field("export");
            Export::default()
        },
        memory: s.get("memory", None, |f| f.bytes(MEMORY).map(Some)),
        history: s.get("history", Some(History::default()), |f| history(&f)),
        usage: s.get("usage", Some(Usage::default()), |f| usage(&f)),
        control: s.section("control", "{socket: /run/weir/control.sock}", control),
        prometheus: s.section("prometheus", "{listen: 127.0.0.1:9469}", prometheus),
        web: s.section("web", "{listen: 127.0.0.1:9470}", web),
        datapath: s.section("datapath", "{ring: 1MiB}", datapath),
        sampling: s.section("sampling", "{packets: auto}", sampling),
        addresses: s.get("addresses", Addresses::default(), |f| addresses(&f)),
        hash_key: s.get("hash_key", HashKey::default(), |f| hash_key(&f.secret())),
        sandbox: s.get("sandbox", true, |f| f.flag()),
        sinks: {
            sinks_field = s.field("sinks");
            Config::default().sinks
        },
        spool: s.section("spool", "{max_size: 64MiB}", spool),
        found_networks: Vec::new(),
    });
    let mut config = config.unwrap_or_default();
    let before = root.mistakes();
    let had_all_standard = !root.has_mistakes_below("standard_views");
    // Views get defaults from `report` and `estimates`, so they are read later.
    if let Some(views) = views_field.and_then(|field| super::view::views(&field, &config)) {
        config.views = views;
    }
    let has_all_views = had_all_standard && root.mistakes() == before;
    // Alerts refer to views, so they are read after these.
    if let Some(alerts) = alerts_field.and_then(|field| super::alert::alerts(&field, &config, has_all_views)) {
        config.alerts = alerts;
    }
    // The export names views, too.
    if let Some(export) = export_field.and_then(|field| export(&field, &config, has_all_views)) {
        config.export = export;
    }
    // A sink may send the rows of a view, so sinks are read after views.
    if let Some(sinks) = sinks_field.and_then(|field| sinks(&field, &config, has_all_views)) {
        config.sinks = sinks;
    }
    for sink in &mut config.sinks {
        sink.addresses = sink.addresses.max(config.addresses);
    }
    check_generation(root, &config);
    config
}

fn observer(s: &mut Section<'_>) -> Observer {
    Observer { name: s.get("name", None, |f| name(&f).map(Some)), site: s.get("site", None, |f| name(&f).map(Some)) }
}

fn name(field: &Field<'_>) -> Option<String> {
    let name = field.text()?;
    if !NAME_BYTES.contains(&name.len()) {
        let (min, max) = NAME_BYTES.into_inner();
        field.refuse(format!("{} bytes, but a name has {min} to {max}", name.len()));
    } else if name.chars().any(char::is_control) {
        field.refuse(format!("{:?} contains a control character", short(name)));
    } else {
        return Some(name.to_owned());
    }
    None
}

fn geo(s: &mut Section<'_>) -> GeoFiles {
    let file = |f: Field<'_>| f.file_path().map(Some);
    GeoFiles { asn: s.get("asn", None, file), country: s.get("country", None, file) }
}

fn control(s: &mut Section<'_>) -> Control {
    Control { socket: s.get("socket", Control::default().socket, |f| socket(&f)) }
}

fn prometheus(s: &mut Section<'_>) -> Prometheus {
    Prometheus {
        listen: s.get("listen", None, |f| f.listen_address()),
        top: s.get("top", 0, |f| f.count(EXPORTED).map(|top| top as usize)),
    }
}

/// Reads the path of a socket, or `none`.
fn socket(field: &Field<'_>) -> Option<Option<PathBuf>> {
    if field.is_word_of(&[NONE]) {
        return Some(None);
    }
    let path = field.file_path()?;
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_BYTES {
        field.refuse(format!(
            "{bytes} bytes, but the path of a socket has at most {SOCKET_BYTES}: choose a shorter one"
        ));
    } else if path.file_name().is_none() {
        field.refuse("not the path of a file: end it with a name, such as control.sock");
    } else {
        return Some(Some(path));
    }
    None
}

fn report(s: &mut Section<'_>) -> Report {
    let default = Report::default();
    let interval = s.get("interval", default.interval, |f| interval(&f));
    Report {
        interval,
        first_window: s.get("first_window", default.first_window, |f| super::interval::interval(&f)),
        top: s.get("top", default.top, |f| f.size(TOP)),
        horizons: s.get("horizons", default.horizons, |f| horizons(&f, interval)),
    }
}

fn estimates(s: &mut Section<'_>) -> Estimates {
    let default = Estimates::default();
    Estimates {
        unique_error: s.get("unique_error", default.unique_error, |f| f.ratio(UNIQUE_ERROR)),
        top_error: s.get("top_error", default.top_error, |f| f.ratio(TOP_ERROR)),
        top_candidates: s.get("top_candidates", default.top_candidates, |f| f.size(TOP_CANDIDATES)),
    }
}

fn seen_flows(s: &mut Section<'_>) -> SeenFlows {
    let default = SeenFlows::default();
    SeenFlows {
        capacity: s.get("capacity", default.capacity, |f| f.count(CAPACITY)),
        false_positive_rate: s
            .get("false_positive_rate", default.false_positive_rate, |f| f.ratio(FALSE_POSITIVE_RATE)),
        generation: s.get("generation", default.generation, |f| f.duration(GENERATION)),
    }
}

/// Checks that a flow is remembered longer than the window in which it was seen. The mistake is reported at
/// `generation`, or at the interval if `generation` has its default. It is not reported if one of the two has a mistake
/// of its own.
fn check_generation(root: &Field<'_>, config: &Config) {
    let (interval, generation) = (config.report.interval, config.seen_flows.generation);
    if generation >= interval || root.blames("report.interval") || root.blames("seen_flows.generation") {
        return;
    }
    let [interval, generation] = [interval, generation].map(|duration| show_duration(&duration));
    if let Some(field) = root.below(&["seen_flows", "generation"]) {
        field.refuse(format!("{generation} is shorter than report.interval, {interval}"));
    } else if let Some(field) = root.below(&["report", "interval"]) {
        field.refuse(format!(
            "{interval} is longer than seen_flows.generation, {generation} by default: set that to {interval} or more"
        ));
    }
}

fn datapath(s: &mut Section<'_>) -> Datapath {
    let default = Datapath::default();
    Datapath {
        cache_flows: s.get("cache_flows", default.cache_flows, |f| {
            or_auto(&f, "a whole number", |f| {
                let slots = power_of_two(f, f.count(CACHE_FLOWS)?, &|slots| slots.to_string())?;
                u32::try_from(slots).ok()
            })
        }),
        ring: s.get("ring", default.ring, |f| {
            or_auto(&f, "a size such as 1MiB", |f| power_of_two(f, f.bytes(RING)?, &show_bytes))
        }),
        packet_ring: s
            .get("packet_ring", default.packet_ring, |f| power_of_two(&f, f.bytes(PACKET_RING)?, &show_bytes)),
        tunnels: s.get("tunnels", default.tunnels, |f| f.choice(&TUNNELS)),
        tunnel_ports: s.get("tunnel_ports", default.tunnel_ports, |f| tunnel_ports(&f)),
    }
}

/// Reads a value with `read`, or the word that lets weir decide: then the inner value is `None`.
fn or_auto<T: Copy>(field: &Field<'_>, what: &str, read: impl FnOnce(&Field<'_>) -> Option<T>) -> Option<Option<T>> {
    if field.is_word() {
        return field.choice_of(&format!("{what} or auto"), &[(AUTO, None)]);
    }
    read(field).map(Some)
}

fn sampling(s: &mut Section<'_>) -> Sampling {
    let default = Sampling::default();
    Sampling {
        packets: s.get("packets", default.packets, |f| packets(&f)),
        cpu: s.get("cpu", default.cpu, |f| f.ratio(CPU_SHARE)),
    }
}

/// Reads the names of standard views without duplicates, and puts them in the order of reports.
fn standard_views(field: &Field<'_>) -> Option<Vec<Standard>> {
    let names = Standard::ALL.map(|standard| (standard.name(), standard));
    let mut chosen = Vec::new();
    for item in field.list(Standard::ALL.len(), "[flows, sources]")? {
        match item.choice(&names) {
            Some(standard) if chosen.contains(&standard) => item.refuse(format!("{} is listed twice", standard.name())),
            Some(standard) => chosen.push(standard),
            None => (),
        }
    }
    Some(Standard::ALL.into_iter().filter(|standard| chosen.contains(standard)).collect())
}

/// Reads a number, or the word that lets weir decide.
fn packets(field: &Field<'_>) -> Option<Packets> {
    if field.is_text() {
        return field.choice_of("a whole number or auto", &[(AUTO, Packets::Auto)]);
    }
    field.count(ONE_IN).and_then(|rate| u32::try_from(rate).ok()).map(Packets::OneIn)
}

/// Checks that a value is a power of two. The limits are powers of two as well, so the suggested values are within
/// them.
fn power_of_two(field: &Field<'_>, value: u64, show: &dyn Fn(u64) -> String) -> Option<u64> {
    if value.is_power_of_two() {
        return Some(value);
    }
    let above = value.next_power_of_two();
    let [value, below, above] = [value, above / 2, above].map(show);
    field.refuse(format!("{value} is not a power of two, try {below} or {above}"));
    None
}

/// Reads a key, or a map that names its file. The field is secret, because a mistyped key still shows most of the key.
fn hash_key(field: &Field<'_>) -> Option<HashKey> {
    if field.is_map() {
        let file = field.section("{file: /etc/weir/hash.key}", |s| {
            s.require("file", "the path of a file with 32 hex digits", |f| f.file_path())
        });
        return file?.map(HashKey::File);
    }
    let text = field.text()?;
    match parse_key(text) {
        Ok(key) => return Some(HashKey::Given(key)),
        Err(NoKey::Guessable) => field.refuse(format!("these are {GUESSABLE}")),
        Err(NoKey::Malformed) => {
            let (count, hex) = (text.chars().count(), text.chars().all(|c| c.is_ascii_hexdigit()));
            let found = if hex { format!("{count}") } else { format!("{count} characters, not all hex digits") };
            field.refuse(format!("expected {KEY_DIGITS} hex digits, found {found}"));
        }
    }
    None
}
