//! A packet feeds totals and lists once, however many measured interfaces carry it; each interface's ledger has it.

use std::{
    net::{SocketAddr, UdpSocket},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account::{Loss, tally},
    daemon::Daemon,
    inject::Pace,
    netns::{Lab, Namespace, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan, Traffic},
};

use crate::{
    forwarding::{DATAGRAMS, UDP_PORT, exchange, sum_flow},
    watch::{self, ONE_WINDOW, QUIET_LINK, ROOMY_PACKET_RINGS, ROOMY_RINGS, config, judge, list, measure, one_window},
};

tests![
    forwarded_packets_feed_once,
    packets_of_the_router_itself_feed,
    a_bridge_and_its_only_port_feed_once,
    a_bridge_with_a_port_that_is_not_measured_feeds_all_that_it_receives,
    both_ends_of_a_veth_feed_once,
    a_vxlan_and_its_parent_feed_once,
    packet_sockets_feed_once,
    packet_sockets_know_what_the_router_itself_sends,
    packet_sockets_behind_nat_feed_what_is_received,
    the_plan_is_printed
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// Gives the bridge the address that all traffic is sent to, so that the bridge receives everything.
const TAKES_ALL: &str = "link set br0 address 02:77:ff:00:00:01 arp off up";

/// Adds a bridge without a firewall, which would drop malformed packets of the test.
fn add_bridge(namespace: &Namespace) -> Result<()> {
    namespace.ip("link add br0 type bridge")?;
    for firewall in ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"] {
        if Path::new("/proc/sys/net/bridge").join(firewall).exists() {
            namespace.set(&format!("bridge/{firewall}"), "0")?;
        }
    }
    Ok(())
}

/// The `feeds` setting, the packets seen, and the repeated ones, of one direction of an interface in a report.
fn of<'r>(report: &'r Value, name: &str, direction: &str) -> Result<(&'r str, Tally, Tally)> {
    let found = list(&report["interfaces"])?.iter().find(|one| one["name"] == name && one["direction"] == direction);
    let one = found.with_context(|| format!("{name} {direction} is not in the report"))?;
    let feeds = one["feeds"].as_str().context("the field `feeds` is missing")?;
    Ok((feeds, tally(&one["ledger"]["seen"])?, tally(&one["repeated"])?))
}

fn forwarded_packets_feed_once() -> Result<()> {
    check_forwarded("auto", "local")
}

fn packet_sockets_feed_once() -> Result<()> {
    check_forwarded("afpacket", "local")
}

/// Checks that each datagram that a router forwards is in the lists once, and in the ledgers of both interfaces.
fn check_forwarded(mode: &str, sent: &str) -> Result<()> {
    one_window();
    let lab = Lab::new()?;
    let interfaces =
        Lab::router_interfaces().map(|name| format!("{{name: {name}, mode: {mode}, direction: both}}")).join(", ");
    let mut daemon = measure(&lab.router, &format!("interfaces: [{interfaces}]\n{ONE_WINDOW}{ROOMY_RINGS}"))?;
    for server in Lab::SERVER {
        exchange(&lab, server.parse()?)?;
    }
    let reports = watch::stop(&mut daemon, Loss::None)?;
    for (client, server) in Lab::CLIENT.into_iter().zip(Lab::SERVER) {
        let datagrams = sum_flow(&reports, "packets", client, server, UDP_PORT, "udp")?;
        ensure!(datagrams == DATAGRAMS as u64, "{datagrams} datagrams from {client} in the list, not {DATAGRAMS}");
    }
    let all = 2 * DATAGRAMS as u64;
    for name in Lab::router_interfaces() {
        let (feeds, seen, repeated) = of(&reports[0], name, "ingress")?;
        ensure!(
            feeds == "all" && seen.packets >= all && repeated.is_zero(),
            "{name} receives: {feeds} {seen:?} {repeated:?}"
        );
        let (feeds, seen, repeated) = of(&reports[0], name, "egress")?;
        ensure!(
            feeds == sent && seen.packets >= all && repeated.packets >= all,
            "{name} sends: {feeds} {seen:?} {repeated:?}"
        );
    }
    Ok(())
}

/// The router forwards packets, and also sends its own: datagrams from an old and from a new address, ARP, and
/// neighbour discovery.
fn packet_sockets_know_what_the_router_itself_sends() -> Result<()> {
    const OWN: u64 = 50;
    const NEW: &str = "10.77.2.77";
    for mode in ["auto", "afpacket"] {
        one_window();
        let lab = Lab::new()?;
        let of_mode = |name| format!("{{name: {name}, mode: {mode}, direction: both}}");
        let interfaces = Lab::router_interfaces().map(of_mode).join(", ");
        let settings = format!("interfaces: [{interfaces}]\n{ONE_WINDOW}{ROOMY_PACKET_RINGS}");
        let scratch = Scratch::new()?;
        let program = watch::weir_with(&[("WEIR_LOG", Path::new("debug"))], &scratch)?;
        let mut daemon = Daemon::start_program(&program, Some(&lab.router), |reports| config(&settings, reports))?;
        daemon.wait_for_line("INFO measuring ", watch::TIMEOUT)?;
        let address = SocketAddr::new(Lab::SERVER[0].parse()?, UDP_PORT + 1);
        let _listens = lab.server.enter(|| UdpSocket::bind(address))??;
        lab.router.ip(&format!("address add {NEW}/24 dev lan0"))?;
        if mode == "afpacket" {
            // The loopback interface has two addresses, and each of the other interfaces has three.
            daemon.wait_for_line("the router's own addresses have changed addresses=9", watch::TIMEOUT)?;
        }
        for from in ["10.77.2.1", NEW] {
            lab.router.enter(|| -> Result<()> {
                let socket = UdpSocket::bind((from, 5_000))?;
                for _ in 0..OWN {
                    socket.send_to(b"from the router", address)?;
                }
                Ok(())
            })??;
        }
        for server in Lab::SERVER {
            exchange(&lab, server.parse()?)?;
        }
        let reports = watch::stop(&mut daemon, Loss::None)?;
        for from in ["10.77.2.1", NEW] {
            let listed = sum_flow(&reports, "packets", from, Lab::SERVER[0], UDP_PORT + 1, "udp")?;
            ensure!(listed == OWN, "{mode}: {listed} of {OWN} datagrams from {from}");
        }
        for name in Lab::router_interfaces() {
            let (feeds, seen, repeated) = of(&reports[0], name, "egress")?;
            let forwarded = 2 * DATAGRAMS as u64;
            ensure!(
                feeds == "local" && repeated.packets == forwarded && seen.packets > forwarded,
                "{mode}: {name} sends: {feeds} {seen:?} {repeated:?}, and has forwarded {forwarded}"
            );
        }
    }
    Ok(())
}

/// If the router translates addresses, forwarded packets have its own address as the source. They still feed once.
fn packet_sockets_behind_nat_feed_what_is_received() -> Result<()> {
    one_window();
    let lab = Lab::new()?;
    let rules = "table ip lab { chain out { type nat hook postrouting priority 100; oifname lan0 masquerade; }; }";
    let Ok(output) = lab.router.command("nft").arg(rules).output() else { return Ok(()) };
    ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    let interfaces = Lab::router_interfaces().map(|name| format!("{{name: {name}, mode: afpacket, direction: both}}"));
    let settings = format!("interfaces: [{}]\n{ONE_WINDOW}{ROOMY_PACKET_RINGS}", interfaces.join(", "));
    let mut daemon = measure(&lab.router, &settings)?;
    exchange(&lab, Lab::SERVER[0].parse()?)?;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    let (feeds, seen, repeated) = of(&reports[0], "lan0", "egress")?;
    ensure!(feeds == "none" && seen == repeated, "lan0 sends: {feeds} {seen:?} {repeated:?}");
    let log = daemon.log()?;
    ensure!(log.contains("The router translates addresses, so the source"), "{log}");
    Ok(())
}

fn packets_of_the_router_itself_feed() -> Result<()> {
    const DATAGRAMS: u64 = 50;
    one_window();
    let lab = Lab::new()?;
    let interfaces = Lab::router_interfaces().map(|name| format!("{{name: {name}, direction: both}}")).join(", ");
    let mut daemon = measure(&lab.router, &format!("interfaces: [{interfaces}]\n{ONE_WINDOW}{ROOMY_RINGS}"))?;
    let to = SocketAddr::new(Lab::SERVER[0].parse()?, UDP_PORT);
    let from = lab.router.enter(|| -> Result<SocketAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(to)?;
        for _ in 0..DATAGRAMS {
            // The first datagrams may be answered by "port unreachable", which the next call returns as an error.
            let _ = socket.send(b"from the router");
        }
        Ok(socket.local_addr()?)
    })??;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    let datagrams = sum_flow(&reports, "packets", &from.ip().to_string(), &to.ip().to_string(), UDP_PORT, "udp")?;
    ensure!((1..=DATAGRAMS).contains(&datagrams), "{datagrams} of {DATAGRAMS} datagrams of the router in the list");
    Ok(())
}

fn a_bridge_and_its_only_port_feed_once() -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    add_bridge(&pair.observer)?;
    pair.observer.ip(&format!("link set {INTERFACE} master br0"))?;
    pair.observer.ip(TAKES_ALL)?;
    pair.observer.wait_until_up("br0")?;
    let mut daemon = measure(&pair.observer, &format!("interfaces: [br0, {INTERFACE}]\n{ONE_WINDOW}{ROOMY_RINGS}"))?;
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 77, packets: 5_000, mix: Mix::odd(), ..Plan::default() };
    watch::send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    judge("a bridge and its port", oracle.check_report(&reports[0]))?;
    let (feeds, _, repeated) = of(&reports[0], "br0", "ingress")?;
    ensure!(feeds == "none" && !repeated.is_zero(), "br0: {feeds} {repeated:?}: nothing came up, this tests nothing");
    Ok(())
}

fn a_bridge_with_a_port_that_is_not_measured_feeds_all_that_it_receives() -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    pair.generator.ip(&format!("link add gen1 type veth peer name port1 netns {}", pair.observer.name()))?;
    pair.generator.ip("link set gen1 arp off up")?;
    add_bridge(&pair.observer)?;
    for port in [INTERFACE, "port1"] {
        pair.observer.ip(&format!("link set {port} arp off master br0 up"))?;
    }
    pair.observer.ip(TAKES_ALL)?;
    for name in ["br0", "port1", INTERFACE] {
        pair.observer.wait_until_up(name)?;
    }
    let mut daemon = measure(&pair.observer, &format!("interfaces: [br0, {INTERFACE}]\n{ONE_WINDOW}{ROOMY_RINGS}"))?;
    let before = pair.observer.counters("br0")?.received.packets;
    // There are no odd frames, because a bridge does not forward some kinds.
    let plan = |seed, packets| Plan { seed, packets, mix: Mix::plain(), ..Plan::default() };
    for (link, seed, packets) in [(QUIET_LINK, 78, 3_000), (["gen1", "port1"], 79, 2_000)] {
        watch::send(&pair, link, Traffic::new(plan(seed, packets))?, Pace::Unlimited, &mut Oracle::new())?;
    }
    let came_up = pair.observer.counters("br0")?.received.packets - before;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    let (feeds, seen, repeated) = of(&reports[0], "br0", "ingress")?;
    ensure!(feeds == "all" && seen.packets >= came_up && repeated.is_zero(), "br0: {feeds} {seen:?} {repeated:?}");
    let (feeds, port, repeated) = of(&reports[0], INTERFACE, "ingress")?;
    ensure!(feeds == "none" && repeated == port && port.packets >= 3_000, "the port: {feeds} {port:?} {repeated:?}");
    ensure!(seen.packets >= 5_000, "{seen:?}: not all came up, this tests nothing");
    let totals = tally(&reports[0]["totals"])?;
    ensure!(totals == seen, "totals {totals:?}, the bridge {seen:?}");
    Ok(())
}

fn both_ends_of_a_veth_feed_once() -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    pair.observer.ip("link add end0 type veth peer name end1")?;
    for end in ["end0", "end1"] {
        pair.observer.ip(&format!("link set {end} arp off up"))?;
    }
    for end in ["end0", "end1"] {
        pair.observer.wait_until_up(end)?;
    }
    let settings = "interfaces: [{name: \"end*\", direction: both}]\n";
    let mut daemon = measure(&pair.observer, &format!("{settings}{ONE_WINDOW}{ROOMY_RINGS}"))?;
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 80, packets: 4_000, mix: Mix::plain(), ..Plan::default() };
    let packets = Traffic::new(plan)?.inspect(|packet| oracle.add(&packet.truth));
    let sent = pair.observer.enter(|| weir_tests::inject::send("end0", packets, Pace::Unlimited))??;
    let arrived = || Ok((pair.observer.counters("end1")?.received.packets >= sent.packets).then_some(()));
    weir_tests::clock::wait_for("the arrival of all packets", watch::TIMEOUT, arrived)?;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    let (feeds, seen, repeated) = of(&reports[0], "end1", "ingress")?;
    ensure!(feeds == "none" && seen.packets >= sent.packets && repeated == seen, "end1: {feeds} {seen:?} {repeated:?}");
    judge("both ends of a veth", oracle.check_report(&reports[0]))
}

fn a_vxlan_and_its_parent_feed_once() -> Result<()> {
    const DATAGRAMS: u64 = 1_000;
    for tunnels in ["inner", "outer"] {
        one_window();
        let pair = Lab::quiet_pair()?;
        let [near, far] = QUIET_LINK;
        let ends = [(&pair.generator, near, 1), (&pair.observer, far, 2)];
        for (namespace, link, host) in ends {
            namespace.ip(&format!("link set {link} arp on"))?;
            namespace.ip(&format!("address add 192.0.2.{host}/24 dev {link}"))?;
            let peer = 3 - host;
            namespace
                .ip(&format!("link add vx0 type vxlan id 7 dstport 4789 local 192.0.2.{host} remote 192.0.2.{peer}"))?;
            namespace.ip(&format!("address add 198.51.100.{host}/24 dev vx0"))?;
            namespace.ip("link set vx0 up")?;
        }
        let settings = format!("interfaces: [{far}, vx0]\ndatapath: {{tunnels: {tunnels}, ring: 64MiB}}\n{ONE_WINDOW}");
        let mut daemon = measure(&pair.observer, &settings)?;
        let receiver = pair.observer.enter(|| UdpSocket::bind("198.51.100.2:7001"))??;
        receiver.set_read_timeout(Some(watch::TIMEOUT))?;
        pair.generator.enter(|| -> Result<()> {
            let sender = UdpSocket::bind("198.51.100.1:5000")?;
            for _ in 0..DATAGRAMS {
                sender.send_to(b"through the tunnel", "198.51.100.2:7001")?;
                receiver.recv(&mut [0; 64])?;
            }
            Ok(())
        })??;
        let reports = watch::stop(&mut daemon, Loss::None)?;
        let (feeds, seen, repeated) = of(&reports[0], "vx0", "ingress")?;
        ensure!(feeds == "none" && seen.packets >= DATAGRAMS && repeated == seen, "vx0: {feeds} {seen:?} {repeated:?}");
        let inner = sum_flow(&reports, "packets", "198.51.100.1", "198.51.100.2", 7001, "udp")?;
        let expected = if tunnels == "inner" { DATAGRAMS } else { 0 };
        ensure!(inner == expected, "tunnels: {tunnels}: {inner} datagrams in the list, not {expected}");
        let outer = sum_flow(&reports, "packets", "192.0.2.1", "192.0.2.2", 4789, "udp")?;
        ensure!((outer >= DATAGRAMS) == (tunnels == "outer"), "tunnels: {tunnels}: {outer} packets of the tunnel");
    }
    Ok(())
}

fn the_plan_is_printed() -> Result<()> {
    let lab = Lab::new()?;
    let scratch = Scratch::new()?;
    let config = scratch.file("weir.yaml");
    let [wan, lan] = Lab::router_interfaces();
    std::fs::write(&config, format!("interfaces: [{{name: {wan}, direction: both}}, {lan}, ppp0]\n"))?;
    let mut check = lab.router.command(weir_tests::daemon::weir_binary()?);
    let printed = watch::Ended::of(check.arg("check").arg("--config").arg(&config))?;
    printed.check(0, &[])?;
    for line in [
        format!("{wan} ingress: feeds all\n"),
        format!("{wan} egress: feeds local: packets that arrived on"),
        format!("{lan} ingress: feeds all\n"),
        "ppp0: not there now\n".to_owned(),
    ] {
        ensure!(printed.out.contains(&line), "{line:?} is not in\n{}", printed.out);
    }
    Ok(())
}
