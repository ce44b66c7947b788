//! weir's programs are removed, replaced, or preceded by other programs. weir notices, takes its place again, and
//! reports the packets that it missed in the windows in which it was blind.

use std::{net::Ipv4Addr, os::fd::AsFd as _, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use aya::programs::tc::TcAttachType;
use serde_json::Value;
use weir_attach::netlink::Devices;
use weir_common::ledger::Tally;
use weir_datapath::syscall::{self, Hook};
use weir_tests::{
    account::{Loss, tally},
    clock,
    daemon::{Daemon, Signal, weir_binary},
    foreign::{Does, Foreign, NEXT, PASS, links_of},
    netns::{Lab, Namespace, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::Plan,
};

use crate::{
    prometheus::get,
    tcx::send_out,
    watch::{self, INTERVAL, ROOMY_RINGS, TIMEOUT, Watch, list, measure, seen_in},
};

tests![
    a_removed_link_is_attached_again,
    a_program_in_weirs_place_is_replaced,
    a_program_that_ends_the_chain_is_passed,
    a_filter_that_ends_the_chain_is_passed,
    a_program_that_cannot_be_passed_is_named,
    an_xdp_program_that_keeps_packets_back_is_named,
    a_program_that_passes_everything_on_does_not_make_weir_blind,
    a_fight_is_bounded_and_loud,
    two_weirs_do_not_fight,
    a_window_that_was_blind_is_not_exact
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
const METRICS: &str = "prometheus: {listen: 127.0.0.1:9469}\n";
const BLIND: Loss = Loss::Provoked(&["blind"]);

fn watch_by(mode: &str, more: &str) -> Result<Watch> {
    let pair = Lab::quiet_pair()?;
    let settings =
        format!("interfaces: [{{name: {INTERFACE}, mode: {mode}, direction: both}}]\n{INTERVAL}{ROOMY_RINGS}{more}");
    let daemon = measure(&pair.observer, &settings)?;
    Ok(Watch { pair, daemon })
}

fn plan(packets: u64) -> Plan {
    Plan { seed: 137, packets, ..Plan::default() }
}

/// Sends packets both ways.
fn send(watch: &Watch, packets: u64) -> Result<()> {
    watch.send(plan(packets), &mut Oracle::new())?;
    send_out(watch, plan(packets), &mut Oracle::new()).map(drop)
}

/// Stops weir, runs `act`, sends `packets` in both directions, and lets weir go on.
fn behind_its_back<T>(watch: &mut Watch, packets: u64, act: impl FnOnce(&Watch) -> Result<T>) -> Result<T> {
    watch.daemon.signal(Signal::STOP)?;
    let done = act(watch).and_then(|done| send(watch, packets).map(|()| done));
    watch.daemon.signal(Signal::CONT)?;
    done
}

/// The packets of one direction that are lost because weir did not see them, over all reports, and how long weir was
/// blind.
fn blind_in(direction: &str, reports: &[Value]) -> Result<(Tally, f64)> {
    let (mut lost, mut seconds) = (Tally::default(), 0.0);
    for report in reports {
        for one in list(&report["interfaces"])?.iter().filter(|one| one["direction"] == direction) {
            let here = tally(&one["ledger"]["lost"]["blind"])?;
            lost.add(here);
            seconds += one["blind_seconds"].as_f64().unwrap_or_default();
            ensure!(here.packets == 0 || one["blind_seconds"].is_f64(), "lost, and not said to be blind: {one}");
            ensure!(here.packets == 0 || one["kept"].as_f64().is_some_and(|kept| kept < 1.0), "all is kept: {one}");
            ensure!(
                here.packets == 0 || one["coverage_upper"].as_f64().is_some_and(|upper| upper < 1.0),
                "no packet is missing: {one}"
            );
        }
    }
    Ok((lost, seconds))
}

/// Waits for the end of the window that is open. While packets flow, the counts of the interface and of weir at the
/// edge of a window may differ by some packets.
fn window_ends(watch: &mut Watch) -> Result<()> {
    let before = watch.daemon.reports()?.len();
    clock::wait_for("the end of a window", TIMEOUT, || Ok((watch.daemon.reports()?.len() > before).then_some(())))
}

/// Checks the ledgers, given how many packets came in each direction before, while and after weir was blind: they have
/// all packets, and those in the middle are lost.
fn check(mut watch: Watch, ways: &[&str], [before, amid, after]: [u64; 3], own: [Tally; 2]) -> Result<()> {
    window_ends(&mut watch)?;
    send(&watch, after)?;
    let reports = watch::stop(&mut watch.daemon, BLIND)?;
    let counters = watch.pair.observer.counters(INTERFACE)?;
    let log = watch.daemon.log()?;
    for (direction, own) in [("ingress", counters.received.since(own[0])), ("egress", counters.sent.since(own[1]))] {
        let seen = seen_in(INTERFACE, direction, &reports)?;
        // A veth with XDP counts without Ethernet headers.
        let counts_alike = !log.contains("xdp-native") || direction == "egress";
        ensure!(seen.packets == own.packets, "{direction}: {seen:?} of {own:?}\n{log}");
        ensure!(!counts_alike || seen == own, "{direction}: {seen:?} of {own:?}\n{log}");
        let all = before + amid + after;
        ensure!(own.packets == all, "{direction}: {own:?} came, and {all} were sent");
        let (lost, seconds) = blind_in(direction, &reports)?;
        let is_blind = ways.contains(&direction);
        ensure!(lost.packets == if is_blind { amid } else { 0 }, "{direction}: {lost:?} of {amid}\n{log}");
        ensure!((seconds > 0.0) == is_blind, "{direction}: blind for {seconds} s\n{log}");
    }
    Ok(())
}

fn own(watch: &Watch) -> Result<[Tally; 2]> {
    let counters = watch.pair.observer.counters(INTERFACE)?;
    Ok([counters.received, counters.sent])
}

fn a_removed_link_is_attached_again() -> Result<()> {
    for mode in ["native", "generic", "tcx"] {
        let mut watch = watch_by(mode, "")?;
        let own = own(&watch)?;
        send(&watch, 1_000)?;
        behind_its_back(&mut watch, 500, |watch| {
            let links = links_of(watch.daemon.pid())?;
            ensure!(links.len() == 2, "{mode}: {} links", links.len());
            links.iter().try_for_each(|link| Ok(syscall::detach(link.as_fd())?))
        })?;
        for _direction in 0..2 {
            let line = watch.daemon.wait_for_line("weir attaches it again", TIMEOUT)?;
            ensure!(line.contains("WARN") && line.contains("another process has removed weir's program"), "{line}");
        }
        check(watch, &["ingress", "egress"], [1_000, 500, 2_000], own).with_context(|| mode.to_owned())?;
    }
    Ok(())
}

fn a_program_in_weirs_place_is_replaced() -> Result<()> {
    let mut watch = watch_by("tcx", "")?;
    let elsewhere = Lab::quiet_pair()?;
    let foreign = Foreign::attach_tcx(&elsewhere.observer, INTERFACE)?;
    let own = own(&watch)?;
    send(&watch, 1_000)?;
    behind_its_back(&mut watch, 500, |watch| {
        links_of(watch.daemon.pid())?.iter().try_for_each(|link| foreign.replace(link))
    })?;
    let line = watch.daemon.wait_for_line("weir attaches it again", TIMEOUT)?;
    ensure!(line.contains(&format!("program {}", foreign.number()?)), "{line}");
    watch.daemon.wait_for_line("weir attaches it again", TIMEOUT)?;
    check(watch, &["ingress", "egress"], [1_000, 500, 2_000], own)
}

/// The programs at a TCX hook of the observer's interface.
fn chain(observer: &Namespace, hook: Hook) -> Result<Vec<u32>> {
    let chain = observer.enter(|| -> Result<_> {
        let device = Devices::open()?.find(INTERFACE)?.context("there is no such interface")?;
        Ok(syscall::chain(device.ifindex, hook)?)
    })??;
    Ok(chain.into_iter().map(|one| one.program).collect())
}

fn a_program_that_ends_the_chain_is_passed() -> Result<()> {
    for (way, hook, direction) in
        [(TcAttachType::Ingress, Hook::TcxIngress, "ingress"), (TcAttachType::Egress, Hook::TcxEgress, "egress")]
    {
        let mut watch = watch_by("tcx", "")?;
        let own = own(&watch)?;
        send(&watch, 1_000)?;
        let stand = |watch: &Watch| Foreign::stand_first(&watch.pair.observer, INTERFACE, way, PASS);
        let foreign = behind_its_back(&mut watch, 500, stand)?;
        let line = watch.daemon.wait_for_line("weir has moved before it", TIMEOUT)?;
        ensure!(line.contains("WARN") && line.contains(&format!("program {}", foreign.number()?)), "{line}");
        let now = chain(&watch.pair.observer, hook)?;
        ensure!(
            now.len() == 2 && now[1] == foreign.number()?,
            "{now:?}: the foreign program is {:?}",
            foreign.number()
        );
        check(watch, &[direction], [1_000, 500, 2_000], own).with_context(|| direction.to_owned())?;
    }
    Ok(())
}

fn a_filter_that_ends_the_chain_is_passed() -> Result<()> {
    let mut watch = watch_by("tc", "")?;
    let own = own(&watch)?;
    send(&watch, 1_000)?;
    let stand = |watch: &Watch| Foreign::filter_first(&watch.pair.observer, INTERFACE, TcAttachType::Ingress, PASS);
    let _foreign = behind_its_back(&mut watch, 500, stand)?;
    let line = watch.daemon.wait_for_line("weir has moved before it", TIMEOUT)?;
    ensure!(line.contains("a bpf filter of priority 1"), "{line}");
    check(watch, &["ingress"], [1_000, 500, 2_000], own)
}

/// A TCX program runs before a classic filter. weir cannot move before it, and the packets that it stops are lost.
fn a_program_that_cannot_be_passed_is_named() -> Result<()> {
    let mut watch = watch_by("tc", METRICS)?;
    let foreign = Foreign::stand_first(&watch.pair.observer, INTERFACE, TcAttachType::Ingress, PASS)?;
    let line = watch.daemon.wait_for_line("weir cannot move before it", TIMEOUT)?;
    ensure!(line.contains(&format!("program {}", foreign.number()?)), "{line}");
    let reports = kept_back(&mut watch, foreign)?;
    let (lost, seconds) = blind_in("ingress", &reports)?;
    ensure!(lost.packets == 500 && seconds > 0.0, "{lost:?}, {seconds} s\n{}", watch.daemon.log()?);
    Ok(())
}

/// An XDP program runs before everything else. The packets that a firewall drops there are not lost, but weir names it.
fn an_xdp_program_that_keeps_packets_back_is_named() -> Result<()> {
    for mode in ["tcx", "tc", "afpacket"] {
        let mut watch = watch_by(mode, METRICS)?;
        let foreign = Foreign::attach(&watch.pair.observer, INTERFACE, Does::DropAll)?;
        watch.pair.observer.wait_until_up(INTERFACE)?;
        let reports = kept_back(&mut watch, foreign).with_context(|| mode.to_owned())?;
        ensure!(blind_in("ingress", &reports)? == (Tally::default(), 0.0), "{mode}: {reports:?}");
    }
    Ok(())
}

/// Sends packets while a program drops all of them. `/readyz` and a report name the program until it is gone.
fn kept_back(watch: &mut Watch, foreign: Foreign) -> Result<Vec<Value>> {
    let who = format!("program {}", foreign.number()?);
    let ready = |watch: &Watch, status: u16, text: &str| {
        clock::wait_for(&format!("readiness with {status}"), TIMEOUT, || {
            let (now, _, body) = get(&watch.pair.observer, "/readyz", "")?;
            Ok((now == status && body.contains(text)).then_some(()))
        })
    };
    ready(watch, 200, "")?;
    // weir lists the interfaces, and what is on them, once a second.
    window_ends(watch)?;
    window_ends(watch)?;
    watch.send(plan(500), &mut Oracle::new())?;
    ready(watch, 503, &who)?;
    drop(foreign);
    ready(watch, 200, "")?;
    let reports = watch::stop(&mut watch.daemon, Loss::Possible(&["blind"]))?;
    let interfaces = reports.iter().filter_map(|report| report["interfaces"].as_array()).flatten();
    let mut troubles = interfaces.filter_map(|one| one["trouble"].as_str());
    ensure!(troubles.any(|trouble| trouble.contains(&who)), "no report names it: {reports:?}");
    Ok(reports)
}

fn a_program_that_passes_everything_on_does_not_make_weir_blind() -> Result<()> {
    let mut watch = watch_by("tcx", "")?;
    let stand = |watch: &Watch| Foreign::stand_first(&watch.pair.observer, INTERFACE, TcAttachType::Ingress, NEXT);
    let _foreign = behind_its_back(&mut watch, 500, stand)?;
    watch.daemon.wait_for_line("weir has moved before it", TIMEOUT)?;
    send(&watch, 500)?;
    let reports = watch::stop(&mut watch.daemon, Loss::None)?;
    let (_, seconds) = blind_in("ingress", &reports)?;
    ensure!(seconds == 0.0, "blind for {seconds} s: {reports:?}\n{}", watch.daemon.log()?);
    ensure!(seen_in(INTERFACE, "ingress", &reports)?.packets == 1_000, "{reports:?}");
    Ok(())
}

fn weir(socket: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(weir_binary()?).args(arguments).arg("--socket").arg(socket).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn a_fight_is_bounded_and_loud() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("weir.sock");
    let more =
        format!("prometheus: {{listen: {}:9469}}\ncontrol: {{socket: {}}}\n", Ipv4Addr::LOCALHOST, socket.display());
    let Watch { pair, mut daemon } = watch_by("tcx", &more)?;
    let observer = &pair.observer;
    let ready = || Ok((get(observer, "/readyz", "")?.0 == 200).then_some(()));
    clock::wait_for("a window, and readiness", TIMEOUT, ready)?;
    for _ in 0..3 {
        let one = Foreign::stand_first(observer, INTERFACE, TcAttachType::Ingress, PASS)?;
        daemon.wait_for_line(&format!("program {} runs before weir's program", one.number()?), TIMEOUT)?;
        // If it were still there, it would be named together with the next one.
        drop(one);
    }
    let last = Foreign::stand_first(observer, INTERFACE, TcAttachType::Ingress, PASS)?;
    let line = daemon.wait_for_line("again and again", TIMEOUT)?;
    let who = format!("program {}", last.number()?);
    ensure!(line.contains("WARN") && line.contains(&who), "{line}");
    let named = || Ok(get(observer, "/readyz", "")?.2.contains(&who).then_some(()));
    clock::wait_for("readiness that names the program", TIMEOUT, named)?;
    ensure!(get(observer, "/healthz", "")?.0 == 200, "it is alive");
    let told = weir(&socket, &["status"])?;
    ensure!(told.contains("TROUBLE") && told.contains(&who), "{told}");
    let reported = || Ok(weir(&socket, &["report", "--json"])?.contains("runs before weir's program").then_some(()));
    clock::wait_for("a report that names the trouble", TIMEOUT, reported)?;
    drop(last);
    daemon.wait_for_line("sees all packets again", TIMEOUT)?;
    clock::wait_for("readiness", TIMEOUT, ready)?;
    watch::stop(&mut daemon, Loss::Possible(&["blind"])).map(drop)
}

fn two_weirs_do_not_fight() -> Result<()> {
    let mut watch = watch_by("tcx", "")?;
    let mut second = measure(&watch.pair.observer, &format!("interfaces: [{INTERFACE}]\n{INTERVAL}"))?;
    let windows = |daemon: &mut Daemon, more: usize| {
        let before = daemon.reports()?.len();
        clock::wait_for("some windows", TIMEOUT, || Ok((daemon.reports()?.len() >= before + more).then_some(())))
    };
    windows(&mut second, 3)?;
    for daemon in [&mut second, &mut watch.daemon] {
        watch::stop(daemon, Loss::None)?;
        let log = daemon.log()?;
        ensure!(!log.contains("before weir's program"), "{log}");
    }
    Ok(())
}

/// Packets that weir did not see may belong to any flow, so no answer about a flow is exact.
fn a_window_that_was_blind_is_not_exact() -> Result<()> {
    let mut watch = watch_by("tcx", METRICS)?;
    behind_its_back(&mut watch, 500, |watch| {
        links_of(watch.daemon.pid())?.iter().try_for_each(|link| Ok(syscall::detach(link.as_fd())?))
    })?;
    watch.daemon.wait_for_line("weir attaches it again", TIMEOUT)?;
    let blind = || {
        let (status, _, body) = get(&watch.pair.observer, "/readyz", "")?;
        Ok((status == 503 && body.contains("was blind")).then_some(()))
    };
    clock::wait_for("a window that is not all seen, and no readiness", TIMEOUT, blind)?;
    let reports = watch::stop(&mut watch.daemon, BLIND)?;
    // In the window in which it is attached again, no packet may be missing, according to the interface's own count.
    let is_blind = |report: &&Value| blind_in("ingress", &[(*report).clone()]).is_ok_and(|(lost, _)| lost.packets > 0);
    let blind: Vec<_> = reports.iter().filter(is_blind).collect();
    ensure!(
        !blind.is_empty(),
        "no window was blind: {:?}\n{}",
        reports.iter().map(|report| &report["interfaces"]).collect::<Vec<_>>(),
        watch.daemon.log()?
    );
    let lost: u64 = reports
        .iter()
        .filter_map(|report| report["interfaces"].as_array())
        .flatten()
        .filter_map(|one| one["ledger"]["lost"]["blind"]["packets"].as_u64())
        .sum();
    ensure!(lost == 1_000, "{lost} lost");
    for report in blind {
        for estimate in [&report["unique"]["src_ip"], &report["unique"]["flows"], &report["new_flows"]] {
            ensure!(estimate["upper"].as_u64() > estimate["value"].as_u64(), "{estimate} is exact");
        }
        let rows = ["flows", "sources"].into_iter().filter_map(|table| report["top"][table].as_array()).flatten();
        for row in rows {
            ensure!(row["packets"]["upper"].as_u64() > row["packets"]["lower"].as_u64(), "{row} is exact");
        }
    }
    Ok(())
}
