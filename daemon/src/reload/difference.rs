//! Differences between two configurations, and which of them cannot be applied while weir runs.

use std::borrow::Cow;

use weir_config::{Config, Interface, Mode, slots};
use weir_datapath::tap;
use weir_system::sandbox::Places;

/// What was decided at the start and cannot change.
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
    /// The directories and files that it can reach; `None`: all that its user may.
    pub places: Option<Places>,
}

/// A setting that cannot change, and why not.
pub type Refused = (Cow<'static, str>, Cow<'static, str>);

/// The sections that differ.
pub fn changed(old: &Config, new: &Config) -> Vec<&'static str> {
    let Config {
        observer,
        interfaces,
        networks,
        geo,
        report,
        estimates,
        seen_flows,
        standard_views,
        views,
        alerts,
        memory,
        control,
        prometheus,
        datapath,
        sampling,
        addresses,
        hash_key,
        sandbox,
        sinks,
        spool,
    } = new;
    let all = [
        ("observer", *observer != old.observer),
        ("interfaces", *interfaces != old.interfaces),
        ("networks", *networks != old.networks),
        ("geo", *geo != old.geo),
        ("report", *report != old.report),
        ("estimates", *estimates != old.estimates),
        ("seen_flows", *seen_flows != old.seen_flows),
        ("standard_views", *standard_views != old.standard_views),
        ("views", *views != old.views),
        ("alerts", *alerts != old.alerts),
        ("memory", *memory != old.memory),
        ("control", *control != old.control),
        ("prometheus", *prometheus != old.prometheus),
        ("datapath", *datapath != old.datapath),
        ("sampling", *sampling != old.sampling),
        ("addresses", *addresses != old.addresses),
        ("hash_key", *hash_key != old.hash_key),
        ("sandbox", *sandbox != old.sandbox),
        ("sinks", *sinks != old.sinks),
        ("spool", *spool != old.spool),
    ];
    all.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect()
}

/// The changed settings that cannot be applied while weir runs, each with the reason.
pub fn needs_restart(old: &Config, new: &Config, started: &Started) -> Vec<Refused> {
    let mut all: Vec<Refused> = Vec::new();
    let mut note = |differs: bool, name: &'static str, why: &'static str| {
        if differs {
            all.push((name.into(), why.into()));
        }
    };
    note(new.observer != old.observer, "observer", "the numbers of reports go on for one observer");
    note(new.spool != old.spool, "spool", "it is opened once");
    note(new.control != old.control, "control", "the control socket is opened once");
    note(new.prometheus != old.prometheus, "prometheus", "its address is opened once");
    note(new.datapath != old.datapath, "datapath", "its maps are made once");
    note(new.hash_key != old.hash_key, "hash_key", "flows that were seen are known by it");
    note(new.sandbox != old.sandbox, "sandbox", "it is closed once");
    let filter = |config: &Config| (config.seen_flows.capacity, config.seen_flows.false_positive_rate);
    note(filter(new) != filter(old), "seen_flows", "its filter is made once; only `generation` can change");
    let samples_anew = started.has_programs && !started.can_sample && new.sampling.packets.leaves_out();
    note(
        samples_anew,
        "sampling.packets",
        "weir was started to take every packet, and its programs can do nothing else",
    );
    let asks_for_programs = |interface: &Interface| !matches!(interface.mode, Mode::Auto | Mode::AfPacket);
    note(
        !started.has_programs && new.interfaces.iter().any(asks_for_programs),
        "interfaces",
        "weir was started with packet sockets only, and this mode needs its programs",
    );
    let asks_for_filters = |interface: &Interface| interface.mode == Mode::Tc;
    note(
        started.has_programs && !started.can_filter && new.interfaces.iter().any(asks_for_filters),
        "interfaces",
        "weir has given up the right to attach filters, which `mode: tc` needs",
    );
    let needs_readers = tap::count(&new.interfaces, started.has_programs) > 0;
    note(
        needs_readers && !started.has_readers,
        "interfaces",
        "weir was started without threads that read packet sockets, which `mode: afpacket` needs",
    );
    let files = new.files(None);
    if let Some((setting, path, to_write)) = started.places.as_ref().and_then(|places| places.lacks(&files)) {
        let what = if to_write { "writes" } else { "opens" };
        let why = format!(
            "weir {what} only files in folders that its configuration named when it was started, and {} is in none of \
             them (see `sandbox`)",
            path.display()
        );
        all.push((setting.to_owned().into(), why.into()));
    }
    all
}

/// Interface slots needed for the transition between two configurations, given the `provided` ones: an interface that
/// is removed keeps its slot until its last window is reported.
pub fn slots_between(old: &Config, new: &Config, provided: usize) -> usize {
    if old.interfaces == new.interfaces {
        return provided;
    }
    let most = slots(old.interfaces.iter().chain(&new.interfaces));
    provided.max(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: Started =
        Started { has_programs: true, can_sample: false, has_readers: false, can_filter: false, places: None };

    fn config(text: &str) -> Config {
        Config::parse(text, "weir.yaml").unwrap()
    }

    #[test]
    fn sections_that_differ_are_named() {
        let old = config("interfaces: [eth0]\nsinks: [{type: stdout}]");
        assert!(changed(&old, &old).is_empty());
        let new =
            config("interfaces: [eth0, eth1]\nreport: {interval: 1s}\nsinks: [{type: stdout}]\nviews: [{name: w}]");
        assert_eq!(changed(&old, &new), ["interfaces", "report", "views"]);
        assert_eq!(changed(&new, &old), ["interfaces", "report", "views"]);
    }

    #[test]
    fn what_cannot_change_is_named_with_the_reason() {
        let old = config("interfaces: [eth0]");
        for (text, name) in [
            ("observer: {name: r1}", "observer"),
            ("control: {socket: /tmp/other.sock}", "control"),
            ("spool: {path: none}", "spool"),
            ("prometheus: {listen: 127.0.0.1:9469}", "prometheus"),
            ("datapath: {tunnels: inner}", "datapath"),
            ("hash_key: {file: /etc/weir/key}", "hash_key"),
            ("seen_flows: {capacity: 2000}", "seen_flows"),
            ("seen_flows: {false_positive_rate: 0.01}", "seen_flows"),
            ("sampling: {packets: 10}", "sampling.packets"),
            ("sampling: {packets: auto}", "sampling.packets"),
        ] {
            let refused = needs_restart(&old, &config(&format!("interfaces: [eth0]\n{text}")), &STARTED);
            assert!(refused.len() == 1 && refused[0].0 == name, "{refused:?}");
        }
        let socket = config("interfaces: [{name: eth0, mode: afpacket}]");
        assert!(needs_restart(&old, &socket, &STARTED)[0].1.contains("afpacket"));
        assert!(needs_restart(&old, &socket, &Started { has_readers: true, ..STARTED }).is_empty());
        let tc = config("interfaces: [{name: eth0, mode: tc}]");
        assert!(needs_restart(&old, &tc, &STARTED)[0].1.contains("mode: tc"));
        assert!(needs_restart(&old, &tc, &Started { can_filter: true, ..STARTED }).is_empty());
        let sockets_only = Started { has_programs: false, has_readers: true, ..STARTED };
        let tcx = config("interfaces: [{name: eth0, mode: tcx}]");
        assert!(needs_restart(&socket, &tcx, &sockets_only)[0].1.contains("its programs"));
    }

    #[test]
    fn all_else_can_change() {
        let old = config("interfaces: [eth0]");
        let new = "interfaces: [eth1, {name: \"ppp*\", direction: both}]\nnetworks: {n: {prefixes: [192.0.2.0/24]}}\n\
                   report: {interval: 1s, top: 5}\nestimates: {top_error: 0.001}\nseen_flows: {generation: 1m}\n\
                   standard_views: [flows]\nviews: [{name: w}]\nmemory: 1GiB\nsampling: {cpu: 0.2}\n\
                   sinks: [{type: stdout}]\nalerts: {rules: [{name: a, when: lost > 0}]}";
        assert_eq!(needs_restart(&old, &config(new), &STARTED), []);
        let samples = Started { can_sample: true, ..STARTED };
        assert!(needs_restart(&old, &config("interfaces: [eth0]\nsampling: {packets: 10}"), &samples).is_empty());
    }

    #[test]
    fn a_file_in_a_folder_that_weir_has_given_up_needs_a_restart() {
        let old = config("interfaces: [eth0]");
        let new = config("interfaces: [eth0]\nsinks: [{type: file, path: /usr/share/reports}]");
        let places = Places { read: ["/usr".into()].into(), ..Places::default() };
        let refused = needs_restart(&old, &new, &Started { places: Some(places), ..STARTED });
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].0, "sinks[0].path");
        assert!(refused[0].1.contains("writes only") && refused[0].1.contains("/usr/share/reports"), "{refused:?}");
    }

    #[test]
    fn interfaces_that_leave_and_that_come_have_room_together() {
        let (one, two) = (config("interfaces: [eth0]"), config("interfaces: [{name: eth1, direction: both}]"));
        assert_eq!(slots_between(&one, &one, 1), 1);
        assert_eq!(slots_between(&one, &two, 1), 3);
        assert_eq!(slots_between(&two, &one, 7), 7, "slots keep their numbers");
        assert_eq!(slots_between(&one, &config("interfaces: [\"*\"]"), 1), 256);
    }
}
