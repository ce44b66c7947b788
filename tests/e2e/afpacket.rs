//! Packet sockets are as exact as programs while they keep up. When they do not, the ledger counts the lost packets.
//! Packet sockets need only `CAP_NET_RAW`.

use std::{
    collections::HashMap,
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    daemon::{Daemon, Signal, weir_binary},
    inject::Pace,
    netns::{Lab, Namespace, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Packet, Plan, Traffic},
};

use crate::{
    sampling::check_one_in_ten,
    tcx::{check_both, check_merged, check_received, check_sent, check_without_link_headers, send_out, watch_by},
    watch::{
        self, ONE_WINDOW, QUIET_LINK, ROOMY_PACKET_RINGS, TIMEOUT, Watch, config, has_program, judge, list, measure,
        modes, native, number, one_window, seen_in, seen_on, stop,
    },
    windows::check_cut,
};

tests![
    received_packets_are_exact,
    sent_packets_are_exact,
    both_directions_have_their_own_account,
    merged_segments_count_as_the_packets_that_they_are,
    a_device_without_link_headers_is_exact,
    windows_add_up_to_what_was_sent,
    a_window_cut_while_packets_flow_balances,
    one_packet_in_ten_is_taken_and_the_rest_is_counted,
    packets_that_the_socket_drops_are_declared,
    a_flood_is_accounted_for,
    an_interface_that_goes_down_and_one_that_comes_back_are_measured,
    both_kinds_of_modes_measure_side_by_side,
    without_cap_bpf_packet_sockets_stand_in,
    a_mode_that_is_not_permitted_is_refused,
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
const MODE: &str = "afpacket";

/// An interface in the configuration that is measured with a packet socket.
fn tapped(interface: &str) -> String {
    format!("{{name: {interface}, mode: {MODE}}}")
}

fn received_packets_are_exact() -> Result<()> {
    check_received(watch_by(MODE, "ingress")?, MODE)
}

fn sent_packets_are_exact() -> Result<()> {
    check_sent(watch_by(MODE, "egress")?)
}

fn both_directions_have_their_own_account() -> Result<()> {
    check_both(watch_by(MODE, "both")?)
}

fn merged_segments_count_as_the_packets_that_they_are() -> Result<()> {
    check_merged(MODE)
}

fn a_device_without_link_headers_is_exact() -> Result<()> {
    check_without_link_headers(MODE, MODE)
}

fn windows_add_up_to_what_was_sent() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{}]\nreport: {{interval: 1s}}\n", tapped(INTERFACE));
    let mut daemon = measure(&pair.observer, &settings)?;
    ensure!(!has_program(&pair.observer, INTERFACE)?, "a program is on {INTERFACE}");
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 71, packets: 45_000, flows: 5_000, mix: Mix::odd(), ..Plan::default() };
    watch::send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(10_000), &mut oracle)?;
    let reports = stop(&mut daemon, Loss::None)?;
    ensure!(reports.len() >= 5, "{} reports of 4.5 s", reports.len());
    judge("all windows together", oracle.check_reports(&reports))?;
    for report in &reports {
        let [resident, planned] = ["rss_bytes", "memory_bytes"].map(|name| number(&report["self"][name]));
        let (resident, planned) = (resident?, planned?);
        ensure!(resident <= planned, "{resident} bytes are resident and {planned} were planned");
    }
    Ok(())
}

fn a_window_cut_while_packets_flow_balances() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{}]\nreport: {{interval: 1s}}\n{ROOMY_PACKET_RINGS}", tapped(INTERFACE));
    let daemon = measure(&pair.observer, &settings)?;
    // A reader is faster than this pace, and if it has to wait for a CPU, there is room for two seconds.
    check_cut(Watch { pair, daemon }, Pace::PacketsPerSecond(50_000))
}

fn one_packet_in_ten_is_taken_and_the_rest_is_counted() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{}]\n{ROOMY_PACKET_RINGS}sampling: {{packets: 10}}\n", tapped(INTERFACE));
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| config(&settings, reports))?;
    daemon.wait_for_line("INFO measuring one packet in 10", TIMEOUT)?;
    check_one_in_ten(Watch { pair, daemon })
}

/// Traffic in which all packets have the same length, so that the bytes of dropped packets are known.
fn of_one_length(plan: Plan) -> Result<Vec<Packet>> {
    let packets: Vec<_> = Traffic::new(plan)?.collect();
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for packet in &packets {
        *lengths.entry(packet.frame.len()).or_default() += 1;
    }
    let (&usual, _) = lengths.iter().max_by_key(|(_, count)| **count).context("no packets")?;
    Ok(packets.into_iter().filter(|packet| packet.frame.len() == usual).collect())
}

/// Packets that the only interface's socket dropped.
fn dropped(report: &Value) -> Result<u64> {
    number(&list(&report["interfaces"])?[0]["ledger"]["lost"]["socket_drop"]["packets"])
}

fn packets_that_the_socket_drops_are_declared() -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{}]\ndatapath: {{packet_ring: 64KiB}}\n{ONE_WINDOW}", tapped(INTERFACE));
    let mut daemon = measure(&pair.observer, &settings)?;
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 72, packets: 20_000, flows: 100, mix: Mix::PLAIN, ..Plan::default() };
    let packets = of_one_length(plan)?;
    ensure!(packets.len() > 5_000, "{} packets are too few", packets.len());
    // The reader is stopped for a while; its ring has room for some hundred packets.
    daemon.signal(Signal::STOP)?;
    let sent = watch::send(&pair, QUIET_LINK, packets.into_iter(), Pace::Unlimited, &mut oracle)?;
    daemon.signal(Signal::CONT)?;
    let few = Plan { packets: 500, ..plan };
    let more = of_one_length(few)?;
    let paced = Pace::PacketsPerSecond(500);
    let also = watch::send(&pair, QUIET_LINK, more.into_iter(), paced, &mut oracle)?;
    let reports = stop(&mut daemon, Loss::Provoked(&["socket_drop"]))?;
    let dropped = dropped(&reports[0])?;
    ensure!(dropped > sent.packets / 2, "{dropped} of {} packets were dropped: the ring was not full", sent.packets);
    ensure!(dropped < sent.packets, "all {} were dropped, and {} not even late", sent.packets, also.packets);
    // Ledger, bounds and bytes are checked, because all packets have one length. Only the sizes of dropped packets are
    // unknown.
    let deviations = oracle.check_report(&reports[0]).err().unwrap_or_default();
    let others = deviations.into_iter().filter(|deviation| !deviation.starts_with(".histograms.packet_size_bytes"));
    let others: Vec<_> = others.collect();
    judge("packets beyond the room of a socket", if others.is_empty() { Ok(()) } else { Err(others) })?;
    let log = daemon.log()?;
    ensure!(log.contains("WARN the packet socket dropped packets"), "no warning in:\n{log}");
    Ok(())
}

fn a_flood_is_accounted_for() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let settings = format!(
        "interfaces: [{}]\ndatapath: {{packet_ring: 64KiB}}\nreport: {{interval: 1s}}\nsampling: {{packets: auto}}\n",
        tapped(INTERFACE)
    );
    let mut daemon = measure(&pair.observer, &settings)?;
    let plan = Plan { seed: 73, packets: 600_000, flows: 50_000, mix: Mix::PLAIN, ..Plan::default() };
    let sent = watch::send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut Oracle::new())?;
    // Stopping fails unless every ledger balances.
    let reports = stop(&mut daemon, Loss::Possible(&["socket_drop"]))?;
    let seen = seen_on(INTERFACE, &reports)?;
    ensure!(seen.packets == sent.packets, "seen {seen:?} of {sent:?}");
    let dropped: u64 = reports.iter().map(dropped).sum::<Result<_>>()?;
    let share = dropped as f64 / sent.packets as f64;
    ensure!(seen.bytes.abs_diff(sent.bytes) as f64 <= sent.bytes as f64 * share.max(1e-9), "{seen:?} of {sent:?}");
    let log = daemon.log()?;
    ensure!(!log.contains("did not see"), "dropped packets are taken for unseen ones:\n{log}");
    Ok(())
}

fn an_interface_that_goes_down_and_one_that_comes_back_are_measured() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{{name: \"obs*\", mode: {MODE}}}]\nreport: {{interval: 1s}}\n");
    let mut daemon = measure(&pair.observer, &settings)?;
    let plan = |seed| Plan { seed, packets: 3_000, mix: Mix::odd(), ..Plan::default() };
    let mut oracle = Oracle::new();
    let mut send = |link, seed| watch::send(&pair, link, Traffic::new(plan(seed))?, Pace::Unlimited, &mut oracle);
    send(QUIET_LINK, 74)?;

    pair.observer.ip(&format!("link set {INTERFACE} down"))?;
    pair.observer.ip(&format!("link set {INTERFACE} up"))?;
    for (namespace, interface) in [(&pair.generator, QUIET_LINK[0]), (&pair.observer, QUIET_LINK[1])] {
        namespace.wait_until_up(interface)?;
    }
    send(QUIET_LINK, 75)?;

    const SECOND_LINK: [&str; 2] = ["gen1", "obs1"];
    let [near, far] = SECOND_LINK;
    for seed in [76, 77] {
        let other = pair.observer.name();
        pair.generator.ip(&format!("link add {near} type veth peer name {far} netns {other}"))?;
        let attached = || {
            let log = daemon_lines(&daemon, &format!("attached interface={far}"))?;
            Ok((log as u64 == seed - 75).then_some(()))
        };
        clock::wait_for("the new interface", TIMEOUT, attached)?;
        pair.observer.ip(&format!("link set {far} arp off up"))?;
        pair.generator.ip(&format!("link set {near} arp off up"))?;
        pair.generator.wait_until_up(near)?;
        pair.observer.wait_until_up(far)?;
        send(SECOND_LINK, seed)?;
        pair.generator.ip(&format!("link delete {near}"))?;
    }
    send(QUIET_LINK, 78)?;
    let reports = stop(&mut daemon, Loss::None)?;
    judge("packets of both interfaces", oracle.check_reports(&reports))
}

/// How many lines of its log contain `part`.
fn daemon_lines(daemon: &Daemon, part: &str) -> Result<usize> {
    Ok(daemon.log()?.lines().filter(|line| line.contains(part)).count())
}

fn both_kinds_of_modes_measure_side_by_side() -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    let second = ["gen1", "obs1"];
    let [near, far] = second;
    let settings = format!("interfaces: [{}, {}]\n{ROOMY_PACKET_RINGS}{ONE_WINDOW}", tapped(INTERFACE), native(far));
    pair.generator.ip(&format!("link add {near} type veth peer name {far} netns {}", pair.observer.name()))?;
    pair.generator.ip(&format!("link set {near} arp off up"))?;
    pair.observer.ip(&format!("link set {far} arp off up"))?;
    pair.generator.wait_until_up(near)?;
    pair.observer.wait_until_up(far)?;
    let mut daemon = measure(&pair.observer, &settings)?;
    let mut oracle = Oracle::new();
    let mut send = |link, seed| {
        let plan = Plan { seed, packets: 8_000, mix: Mix::odd(), ..Plan::default() };
        watch::send(&pair, link, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)
    };
    let (tapped, programmed) = (send(QUIET_LINK, 79)?, send(second, 80)?);
    let reports = stop(&mut daemon, Loss::None)?;
    judge("both together", oracle.check_report(&reports[0]))?;
    for (interface, mode, sent) in [(INTERFACE, MODE, tapped), (far, "xdp-native", programmed)] {
        ensure!(modes(interface, &reports) == [mode], "{interface}: {:?}", modes(interface, &reports));
        ensure!(seen_on(interface, &reports)? == sent, "{interface}: {:?} of {sent:?}", seen_on(interface, &reports)?);
    }
    Ok(())
}

/// Makes a program in this folder that runs weir with these capabilities and no others, as any user.
pub fn with_few_rights(granted: &str, scratch: &Scratch) -> Result<PathBuf> {
    let sets = ["inh-caps", "ambient-caps", "bounding-set"].map(|set| format!("--{set}=-all{granted}")).join(" ");
    // It is called by its path, because some shells have a built-in `setpriv` with fewer options.
    let setpriv = env::var_os("PATH").and_then(|path| {
        let mut candidates = env::split_paths(&path).map(|directory| directory.join("setpriv"));
        candidates.find(|candidate| candidate.is_file())
    });
    let setpriv = setpriv.context("there is no setpriv (Debian: apt-get install util-linux)")?;
    let line = format!("exec {} {sets} {} \"$@\"", setpriv.display(), weir_binary()?.display());
    scratch.script(&format!("#!/bin/sh\n{line}\n"), "weir-with-few-rights", 0o755)
}

fn with_alone(granted: &str, namespace: &Namespace, settings: &str) -> Result<(Daemon, Scratch)> {
    let scratch = Scratch::new()?;
    let wrapper = with_few_rights(granted, &scratch)?;
    let daemon = Daemon::start_program(&wrapper, Some(namespace), |reports| config(settings, reports))?;
    Ok((daemon, scratch))
}

fn without_cap_bpf_packet_sockets_stand_in() -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    // Where the kernel tracks connections, this weir may not ask whether it translates addresses, and then sent packets
    // feed nothing unless the configuration says so.
    let tracks = pair.observer.enter(|| Path::new("/proc/sys/net/netfilter/nf_conntrack_count").exists())?;
    let feeds = if tracks { ", feeds: all" } else { "" };
    let settings =
        format!("interfaces: [{{name: {INTERFACE}, direction: both{feeds}}}]\n{ROOMY_PACKET_RINGS}{ONE_WINDOW}");
    let (mut daemon, _scratch) = with_alone(",+net_raw", &pair.observer, &settings)?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    let log = daemon.log()?;
    ensure!(log.contains("WARN not permitted to load eBPF programs") && log.contains("CAP_BPF"), "{log}");
    let watch = Watch { pair, daemon };
    let mut oracle = Oracle::new();
    let plan = |seed, packets| Plan { seed, packets, mix: Mix::odd(), ..Plan::default() };
    let received = watch.send(plan(81, 9_000), &mut oracle)?;
    let sent = send_out(&watch, plan(82, 6_000), &mut oracle)?;
    let reports = watch.stop(Loss::None)?;
    for (direction, expected) in [("ingress", received), ("egress", sent)] {
        let seen = seen_in(INTERFACE, direction, &reports)?;
        ensure!(seen == expected, "{direction}: seen {seen:?} of {expected:?}");
    }
    ensure!(modes(INTERFACE, &reports) == [MODE; 2], "{:?}", modes(INTERFACE, &reports));
    let windows: Vec<_> = reports.iter().map(|report| report["window"].to_string()).collect();
    ensure!(windows.len() == 1, "several windows: {}", windows.join(", "));
    judge("with CAP_NET_RAW alone", oracle.check_report(&reports[0]))
}

fn a_mode_that_is_not_permitted_is_refused() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let for_programs = "not permitted to load eBPF programs";
    for (mode, granted, expected) in [
        ("native", ",+net_raw", for_programs),
        ("generic", ",+net_raw", for_programs),
        ("tcx", ",+net_raw", for_programs),
        ("auto", "", for_programs),
        (MODE, "", "root lacks the capability CAP_NET_RAW"),
        (MODE, ",+net_admin,+bpf,+perfmon", "root lacks the capability CAP_NET_RAW"),
    ] {
        let settings = format!("interfaces: [{{name: {INTERFACE}, mode: {mode}}}]\n");
        let (mut daemon, _scratch) = with_alone(granted, &pair.observer, &settings)?;
        let status = daemon.wait(TIMEOUT)?;
        let log = daemon.log()?;
        ensure!(status.code() == Some(3), "{mode} with {granted}: it ended with {status}:\n{log}");
        ensure!(log.contains(expected), "{mode} with {granted}: {log}");
    }
    Ok(())
}
