//! Under a real systemd the next weir may find a different mode of an interface, a different name, network namespace,
//! or end of the last window. The ledger stays exact.

use std::{
    fs,
    io::Read as _,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use aya::programs::tc::TcAttachType;
use serde_json::Value;
use weir_tests::{
    account::{self, Loss},
    clock,
    foreign::{Foreign, PASS},
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    traffic::{Plan, Traffic},
};

use crate::{
    handover::{RATE, send, settings_of},
    systemd::{
        machine::{Installed, Machine},
        service::{self, INTERFACE, Service, run_of},
    },
    watch::{self, QUIET_LINK, TIMEOUT, check_accounts, judge, seen_in},
};

tests![
    an_interface_may_have_another_name,
    another_network_namespace_has_interfaces_of_its_own,
    a_window_after_a_late_one_begins_where_that_one_ended,
    another_mode_may_come_with_a_restart,
    packets_of_a_recreated_interface_are_declared,
    a_program_that_came_in_front_meanwhile_makes_blind_since_the_last_window,
];

const CONFIG: &str = "etc/weir/weir.yaml";

/// A drop-in for the unit, installed before the machine boots.
const fn drop_in(content: &str) -> Installed<'_> {
    let path = "etc/systemd/system/weir.service.d/test.conf";
    Installed { path, content: content.as_bytes(), mode: 0o644 }
}

/// The drop-in of docs/SECURITY.md that lets the unit use packet sockets.
const PACKET_SOCKETS: &str = "[Service]\nAmbientCapabilities=CAP_NET_RAW\nCapabilityBoundingSet=CAP_NET_RAW\n\
                              RestrictAddressFamilies=AF_PACKET\n";

fn another_mode_may_come_with_a_restart() -> Result<()> {
    let alone = |mode: &str| format!("{{name: {INTERFACE}, mode: {mode}}}");
    // weir uses a packet socket, and also a program on an interface without traffic, so that there is something to hand
    // over.
    let beside_a_program = alone("afpacket") + ", {name: silent0, mode: tcx}";
    let steps = [
        (alone("native"), "xdp-native"),
        (alone("generic"), "xdp-generic"),
        (alone("tcx"), "tcx"),
        (alone("afpacket"), "afpacket"),
        (alone("tcx"), "tcx"),
        (beside_a_program, "afpacket"),
        (alone("native"), "xdp-native"),
        (alone("afpacket"), "afpacket"),
    ];
    // systemd waits long enough before the restart to send packets meanwhile.
    let machine = service::boot(&settings_of(&steps[0].0), &[drop_in(&format!("{PACKET_SOCKETS}RestartSec=3s\n"))])?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    pair.observer.ip("link add silent0 type veth peer name silent1")?;
    let service = Service { machine: &machine, observer: &pair.observer };
    let (mut all, mut oracle) = (0, Oracle::new());
    let mut send = |seed| -> Result<u64> {
        let traffic = Traffic::new(Plan { seed, packets: 3_000, flows: 100, ..Plan::default() })?;
        all += watch::send(&pair, QUIET_LINK, traffic, Pace::PacketsPerSecond(RATE), &mut oracle)?.packets;
        Ok(all)
    };
    for (seed, (interfaces, obtained)) in (70..).zip(&steps) {
        fs::write(machine.path(CONFIG), settings_of(interfaces))?;
        if *obtained == "afpacket" {
            // Packets that come before the next weir starts are in the maps of the killed one, and must be read exactly
            // once.
            let killed = service.kill()?;
            send(seed + 100)?;
            ensure!(service.property("MainPID")? == "0", "it was back too soon: this tests nothing");
            service.wait_for_other(&killed)?;
        } else {
            machine.done("systemctl restart weir")?;
        }
        let all = send(seed)?;
        let all_seen = || Ok((seen_in(INTERFACE, "ingress", &service.reports()?)?.packets >= all).then_some(()));
        clock::wait_for("reports of all packets", TIMEOUT, all_seen).with_context(|| machine.log())?;
    }
    machine.done("systemctl stop weir")?;
    let reports = service.reports()?;
    check_accounts(&reports, Loss::None).with_context(|| machine.log())?;
    // This also checks packet sizes, which are over all interfaces.
    judge("all modes together", oracle.check_reports(&reports)).with_context(|| machine.log())?;
    let seen = seen_in(INTERFACE, "ingress", &reports)?.packets;
    ensure!(seen == all, "{seen} of {all} packets are in reports\n{}", machine.log());
    let mut modes = watch::modes(INTERFACE, &reports);
    modes.dedup();
    ensure!(modes == steps.map(|(_, obtained)| obtained), "{modes:?}\n{}", machine.log());
    Ok(())
}

/// The interface is renamed while weir runs, and again while no weir runs.
fn an_interface_may_have_another_name() -> Result<()> {
    const NAMES: [&str; 3] = [INTERFACE, "obs8", "obs9"];
    let settings = settings_of("{name: \"obs*\", mode: native, direction: both}");
    // systemd waits long enough before the restart to rename an interface meanwhile.
    let machine = service::boot(&settings, &[drop_in("[Service]\nRestartSec=4s\n")])?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    let service = Service { machine: &machine, observer: &pair.observer };
    machine.done("systemctl start weir")?;
    let seen = |reports: &[Value]| -> Result<u64> {
        NAMES.iter().map(|name| Ok(seen_in(name, "ingress", reports)?.packets)).sum()
    };
    let mut all = 0;
    let mut send = |name: &str, seed| -> Result<()> {
        let traffic = Traffic::new(Plan { seed, packets: 3_000, flows: 100, ..Plan::default() })?;
        let link = [QuietPair::GENERATOR_INTERFACE, name];
        all += watch::send(&pair, link, traffic, Pace::PacketsPerSecond(RATE), &mut Oracle::new())?.packets;
        Ok(())
    };
    let rename = |[from, to]: [&str; 2]| pair.observer.ip(&format!("link set {from} name {to}"));
    let is_reported = |name: &str| {
        let named = || {
            Ok(service
                .reports()?
                .last()
                .is_some_and(|last| !watch::modes(name, std::slice::from_ref(last)).is_empty())
                .then_some(()))
        };
        clock::wait_for(&format!("a report about {name}"), TIMEOUT, named).with_context(|| machine.log())
    };
    send(NAMES[0], 60)?;
    rename([NAMES[0], NAMES[1]])?;
    send(NAMES[1], 61)?;
    is_reported(NAMES[1])?;

    let killed = service.kill()?;
    rename([NAMES[1], NAMES[2]])?;
    send(NAMES[2], 62)?;
    ensure!(service.property("MainPID")? == "0", "it was back too soon: this tests nothing");
    service.wait_for_other(&killed)?;
    is_reported(NAMES[2])?;
    send(NAMES[2], 63)?;
    let all_seen = || Ok((seen(&service.reports()?)? >= all).then_some(()));
    clock::wait_for("reports of all packets", TIMEOUT, all_seen).with_context(|| machine.log())?;
    machine.done("systemctl stop weir")?;
    let reports = service.reports()?;
    // The killed weir had read packets since its last report.
    check_accounts(&reports, Loss::Possible(&["restart"])).with_context(|| machine.log())?;
    ensure!(seen(&reports)? == all, "{} of {all} packets are in reports\n{}", seen(&reports)?, machine.log());
    let coverage = account::coverage(&reports)?;
    ensure!((0.99..=1.01).contains(&coverage), "coverage {coverage} over all windows\n{}", machine.log());
    Ok(())
}

/// A process in a network namespace of a machine; killed on drop.
struct Resident(Child);

impl Resident {
    fn of(machine: &Machine, namespace: &str) -> Result<Self> {
        let file = machine.path(&format!("run/netns/{namespace}"));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", file.display())).args(["sh", "-c", "echo; exec sleep 600"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start nsenter")?;
        let mut out = child.stdout.take().context("piped")?;
        let resident = Self(child);
        out.read_exact(&mut [0]).context("it did not enter the namespace")?;
        Ok(resident)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number that an interface has in its namespace.
fn ifindex(pair: &QuietPair) -> Result<u64> {
    let shown: Value = serde_json::from_str(&pair.observer.ip(&format!("-j link show dev {INTERFACE}"))?)?;
    shown[0]["ifindex"].as_u64().with_context(|| format!("no ifindex in {shown}"))
}

/// The unit moves to another network namespace, which has a different interface with the same name and number.
fn another_network_namespace_has_interfaces_of_its_own() -> Result<()> {
    let settings = settings_of(&format!("{{name: {INTERFACE}, mode: native, direction: both}}"));
    let machine = service::boot(&settings, &[])?;
    let before = Lab::quiet_pair_to(machine.init())?;
    machine.done("ip netns add other")?;
    let resident = Resident::of(&machine, "other")?;
    let after = Lab::quiet_pair_to(resident.0.id())?;
    let numbers = [ifindex(&before)?, ifindex(&after)?];
    ensure!(numbers[0] == numbers[1], "the interfaces have the numbers {numbers:?}: this tests nothing");
    let first = Service { machine: &machine, observer: &before.observer };
    machine.done("systemctl start weir")?;
    let mut all = 0;
    send((&first, &before), 50, &mut all)?;

    let folder = machine.path("etc/systemd/system/weir.service.d");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("namespace.conf"), "[Service]\nNetworkNamespacePath=/run/netns/other\n")?;
    machine.done("systemctl daemon-reload")?;
    machine.done("systemctl restart weir")?;
    let second = Service { machine: &machine, observer: &after.observer };
    first.expect_attached(false).context("in the namespace that weir has left")?;
    second.expect_attached(true).context("in the namespace that weir is in now")?;
    // No weir counts these packets.
    let plan = Plan { seed: 51, packets: 2_000, ..Plan::default() };
    watch::send(&before, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(RATE), &mut Oracle::new())?;
    send((&second, &after), 52, &mut all)?;
    machine.done("systemctl stop weir")?;
    second.expect_attached(false).context("after it was stopped")?;
    let reports = second.reports()?;
    check_accounts(&reports, Loss::None).with_context(|| machine.log())?;
    let seen = seen_in(INTERFACE, "ingress", &reports)?.packets;
    ensure!(seen == all, "{seen} of {all} packets are in reports\n{}", machine.log());
    Ok(())
}

/// weir is stopped beyond the end of a window, closes the window late, and is killed before the next one ends.
fn a_window_after_a_late_one_begins_where_that_one_ended() -> Result<()> {
    const INTERVAL_MS: u64 = 5_000;
    /// More than a clock may drift within a window.
    const LATE: Duration = Duration::from_millis(1_200);
    let settings = settings_of(INTERFACE).replace("interval: 1s", "interval: 5s");
    let machine = service::boot(&settings, &[])?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    let service = Service { machine: &machine, observer: &pair.observer };
    machine.done("systemctl start weir")?;
    let signal = |signal: &str| machine.done(&format!("systemctl kill -s {signal} weir"));
    let until_edge = || {
        let since = clock::since_epoch().as_millis() as u64 % INTERVAL_MS;
        Duration::from_millis(INTERVAL_MS - since)
    };
    // weir is stopped some time before the end of a window.
    let ahead = Duration::from_millis(500);
    thread::sleep((until_edge() + Duration::from_millis(INTERVAL_MS)).saturating_sub(ahead));
    signal("STOP")?;
    let known = service.reports()?.len();
    thread::sleep(ahead + LATE);
    signal("CONT")?;
    let reported = || Ok((service.reports()?.len() > known).then_some(()));
    clock::wait_for("the late report", TIMEOUT, reported).with_context(|| machine.log())?;
    let killed = service.property("MainPID")?;
    signal("KILL")?;
    ensure!(service.reports()?.len() == known + 1, "one more window has ended: this tests nothing\n{}", machine.log());
    service.wait_for_other(&killed)?;
    let next = || Ok(service.reports()?.into_iter().nth(known + 1));
    let next = clock::wait_for("the next report", TIMEOUT, next).with_context(|| machine.log())?;
    let late = &service.reports()?[known];
    ensure!(run_of(&next) != run_of(late), "the killed weir has reported: this tests nothing\n{}", machine.log());
    let (end, start) = (&late["window"]["end"], &next["window"]["start"]);
    ensure!(end == start, "a gap between windows, from {end} to {start}\n{}", machine.log());
    machine.done("systemctl stop weir").map(drop)
}

/// The number of packets sent each time.
const SOME: u64 = 600;

fn send_some(pair: &QuietPair, seed: u64, packets: u64) -> Result<()> {
    let traffic = Traffic::new(Plan { seed, packets, flows: 100, ..Plan::default() })?;
    watch::send(pair, QUIET_LINK, traffic, Pace::PacketsPerSecond(RATE), &mut Oracle::new()).map(drop)
}

/// weir is killed with some packets unreported. For four seconds no weir runs; meanwhile `act` changes the interface,
/// which then carries some packets. Returns the interface's part of each report of the next weir, after some more
/// packets, and the log.
fn behind_its_back<T>(act: impl FnOnce(&QuietPair) -> Result<T>) -> Result<(Vec<Value>, String)> {
    let settings = settings_of(&format!("{{name: {INTERFACE}, mode: tcx}}"));
    let machine = service::boot(&settings, &[drop_in("[Service]\nRestartSec=4s\n")])?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    let service = Service { machine: &machine, observer: &pair.observer };
    machine.done("systemctl start weir")?;
    let mut all = 0;
    send((&service, &pair), 90, &mut all)?;
    let killed = service.kill()?;
    send_some(&pair, 91, 2 * SOME)?;
    let known = service.reports()?.len();
    let _done = act(&pair)?;
    send_some(&pair, 92, SOME)?;
    ensure!(service.property("MainPID")? == "0", "it was back too soon: this tests nothing");
    service.wait_for_other(&killed)?;
    send_some(&pair, 93, SOME)?;
    all += 4 * SOME;
    let all_seen = || Ok((declared(&service.reports()?)? >= all).then_some(()));
    clock::wait_for("reports of all packets", TIMEOUT, all_seen).with_context(|| machine.log())?;
    machine.done("systemctl stop weir")?;
    let mut reports = service.reports()?;
    let log = machine.log();
    check_accounts(&reports, Loss::Possible(&["blind"])).with_context(|| log.clone())?;
    let declared = declared(&reports)?;
    ensure!(declared == all, "{declared} of {all} packets are in reports\n{log}");
    let windows = reports.split_off(known).into_iter().map(|mut report| report["interfaces"][0].take());
    Ok((windows.collect(), log))
}

/// How many packets the interface received according to these reports, at most.
fn declared(reports: &[Value]) -> Result<u64> {
    let beyond: u64 = reports.iter().flat_map(|report| report["interfaces"].as_array()).flatten().map(beyond).sum();
    Ok(seen_in(INTERFACE, "ingress", reports)?.packets + beyond)
}

/// How many packets more an interface may have received.
fn beyond(interface: &Value) -> u64 {
    let [lower, upper] = ["lower", "upper"].map(|bound| interface["ledger"]["uncertain"]["packets"][bound].as_u64());
    upper.unwrap_or(0) - lower.unwrap_or(0)
}

/// Checks that the first window states what was missed, certain or not, and for how long, and that the others state no
/// loss.
fn expect_declared((windows, log): &(Vec<Value>, String), most: u64, is_certain: bool) -> Result<()> {
    let (first, others) = windows.split_first().context("no window")?;
    let (lost, seconds) = (first["ledger"]["lost"]["blind"]["packets"].as_u64(), &first["blind_seconds"]);
    let missed = if is_certain { lost } else { lost.map(|_| beyond(first)) };
    let is_right = missed.is_some_and(|missed| (SOME..=most).contains(&missed));
    ensure!(is_right, "{missed:?} packets were missed, and not {SOME} to {most}: {first}\n{log}");
    // No weir ran for four seconds.
    ensure!(seconds.as_f64().is_some_and(|seconds| seconds >= 4.0), "blind for {seconds} s: {first}\n{log}");
    for one in others {
        ensure!(one["blind_seconds"].is_null(), "it was blind: {one}\n{log}");
    }
    for one in windows {
        let upper = one["coverage_upper"].as_f64().unwrap_or(1.0);
        let lower = one["coverage_lower"].as_f64().unwrap_or(1.0);
        ensure!(lower <= 1.0 && upper > 0.1, "coverage {lower} to {upper}: {one}\n{log}");
    }
    Ok(())
}

/// An interface of this name is deleted and made again while no weir runs: under the same number, or under another.
fn packets_of_a_recreated_interface_are_declared() -> Result<()> {
    for is_same in [true, false] {
        let found = behind_its_back(|pair| {
            let number = ifindex(pair)?;
            let generator = (QuietPair::GENERATOR_INTERFACE, pair.generator.name());
            pair.observer.ip(&format!("link del {INTERFACE}"))?;
            let index = if is_same { format!("index {number} ") } else { String::new() };
            pair.observer.ip(&format!(
                "link add {INTERFACE} {index}type veth peer name {} netns {}",
                generator.0, generator.1
            ))?;
            for (namespace, interface) in [(&pair.generator, generator.0), (&pair.observer, INTERFACE)] {
                namespace.ip(&format!("link set {interface} arp off up"))?;
            }
            pair.observer.wait_until_up(INTERFACE)?;
            ensure!((ifindex(pair)? == number) == is_same, "this tests nothing");
            Ok(())
        })?;
        expect_declared(&found, SOME, false).with_context(|| format!("the same number: {is_same}"))?;
        ensure!(found.1.contains("created again"), "it is not logged\n{}", found.1);
        ensure!(found.0[0]["coverage"].is_null(), "the first window compares two interfaces: {}", found.0[0]);
    }
    Ok(())
}

fn a_program_that_came_in_front_meanwhile_makes_blind_since_the_last_window() -> Result<()> {
    let stand = |pair: &QuietPair| Foreign::stand_first(&pair.observer, INTERFACE, TcAttachType::Ingress, PASS);
    // The last packets may come before weir has moved to the front.
    expect_declared(&behind_its_back(stand)?, 2 * SOME, true)
}
