//! Interfaces appear, disappear and change. weir follows them, and nothing leaks.

use std::{collections::BTreeMap, fs, thread, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use weir_tests::{
    account::{Loss, tally},
    clock,
    daemon::{Daemon, Signal},
    inject::Pace,
    netns::{Lab, Namespace, QuietPair},
    oracle::Oracle,
    traffic::{Mix, Plan, Traffic},
};

use crate::watch::{self, QUIET_LINK, ROOMY_RINGS, TIMEOUT, list, measure, modes, seen_on, stop};

tests![
    a_pattern_follows_interfaces_that_come_and_go,
    a_name_that_fits_no_more_is_no_longer_measured,
    names_are_swapped_and_every_packet_counts,
    a_thousand_changes_leave_nothing_behind
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// Joins the two namespaces by one more quiet link, and waits until it passes packets.
pub fn link(pair: &QuietPair, [near, far]: [&str; 2]) -> Result<()> {
    let QuietPair { generator, observer } = pair;
    generator.ip(&format!("link add {near} type veth peer name {far} netns {}", observer.name()))?;
    generator.ip(&format!("link set {near} arp off up"))?;
    observer.ip(&format!("link set {far} arp off up"))?;
    generator.wait_until_up(near)?;
    observer.wait_until_up(far)
}

/// The names in a report, in their own order.
fn names(report: &Value) -> Result<Vec<&str>> {
    let mut names: Vec<_> =
        list(&report["interfaces"])?.iter().filter_map(|interface| interface["name"].as_str()).collect();
    names.sort_unstable();
    Ok(names)
}

/// Waits for a report about these interfaces.
pub fn wait_for_names(daemon: &mut Daemon, expected: &[&str]) -> Result<()> {
    clock::wait_for(&format!("a report about {expected:?}"), TIMEOUT, || {
        let reports = daemon.reports()?;
        Ok(reports.last().map(names).transpose()?.filter(|names| names == expected).map(drop))
    })
}

fn a_pattern_follows_interfaces_that_come_and_go() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let mut daemon = measure(&pair.observer, "interfaces: [\"port*\"]\nreport: {interval: 1s}\n")?;
    daemon.wait_for_line("no interface fits", TIMEOUT)?;
    let mut oracle = Oracle::new();
    for round in 0..3 {
        link(&pair, ["gen1", "port1"])?;
        daemon.wait_for_line("attached interface=port1", TIMEOUT)?;
        let plan = Plan { seed: 70 + round, packets: 3_000, mix: Mix::odd(), ..Plan::default() };
        wait_for_names(&mut daemon, &["port1"])?;
        watch::send(&pair, ["gen1", "port1"], Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
        pair.generator.ip("link delete gen1")?;
        wait_for_names(&mut daemon, &[])?;
    }
    let reports = stop(&mut daemon, Loss::None)?;
    judge_all(&reports, &oracle)?;
    ensure!(modes("port1", &reports).contains(&"gone"), "{:?}", modes("port1", &reports));
    Ok(())
}

/// Judges all reports together.
pub fn judge_all(reports: &[Value], oracle: &Oracle) -> Result<()> {
    watch::judge("all windows together", oracle.check_reports(reports))
}

fn a_name_that_fits_no_more_is_no_longer_measured() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    link(&pair, ["gen1", "port1"])?;
    let mut daemon = measure(&pair.observer, "interfaces: [\"port*\"]\nreport: {interval: 1s}\n")?;
    let mut oracle = Oracle::new();
    let traffic = |seed| Traffic::new(Plan { seed, packets: 2_000, mix: Mix::odd(), ..Plan::default() });
    watch::send(&pair, ["gen1", "port1"], traffic(74)?, Pace::Unlimited, &mut oracle)?;

    pair.observer.ip("link set port1 name port2")?;
    wait_for_names(&mut daemon, &["port2"])?;
    watch::send(&pair, ["gen1", "port2"], traffic(75)?, Pace::Unlimited, &mut oracle)?;
    ensure!(!daemon.log()?.contains("is gone"), "a new name is no reason to attach anew");

    pair.observer.ip("link set port2 name other2")?;
    daemon.wait_for_line("the interface was renamed to \"other2\"", TIMEOUT)?;
    wait_for_names(&mut daemon, &[])?;
    watch::send(&pair, ["gen1", "other2"], traffic(76)?, Pace::Unlimited, &mut Oracle::new())?;
    judge_all(&stop(&mut daemon, Loss::None)?, &oracle)
}

/// The kernel's BPF objects that a process holds, by kind. weir pins none, so it has no others.
fn bpf_objects(pid: u32) -> Result<BTreeMap<String, usize>> {
    let mut objects = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor that was closed meanwhile is skipped.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let target = target.to_string_lossy();
        if target.contains("bpf") {
            *objects.entry(target.into_owned()).or_default() += 1;
        }
    }
    Ok(objects)
}

/// Long enough for an interface to be noticed: weir looks at all of them every 50 ms at most.
const NOTICED: Duration = Duration::from_millis(80);

/// One interface with ten changes, from its creation to its deletion.
fn live(observer: &Namespace, generator: &Namespace, nth: usize) -> Result<()> {
    let name = format!("port{nth}");
    observer.ip(&format!("link add {name} arp off type veth peer name peer{nth}"))?;
    observer.ip(&format!("link set {name} up"))?;
    observer.ip(&format!("link set peer{nth} arp off up"))?;
    thread::sleep(NOTICED);
    observer.ip(&format!("link set {name} mtu 9000"))?;
    observer.ip(&format!("link set {name} down"))?;
    observer.ip(&format!("link set {name} name other{nth}"))?;
    observer.ip(&format!("link set other{nth} name {name}"))?;
    observer.ip(&format!("link set {name} up"))?;
    match nth % 3 {
        0 => observer.ip(&format!("link delete {name}"))?,
        1 => observer.ip(&format!("link delete peer{nth}"))?,
        _ => {
            observer.ip(&format!("link set {name} netns {}", generator.name()))?;
            generator.ip(&format!("link delete {name}"))?
        }
    };
    Ok(())
}

fn a_thousand_changes_leave_nothing_behind() -> Result<()> {
    const LIVES: usize = 100;
    let pair = Lab::quiet_pair()?;
    let settings =
        format!("interfaces: [{INTERFACE}, {{name: \"port*\", direction: both}}]\nreport: {{interval: 1s}}\n");
    let mut daemon = measure(&pair.observer, &settings)?;
    // A program is loaded when it is first needed, and stays loaded. Loading takes longer than the interfaces below
    // exist.
    link(&pair, ["gen1", "port"])?;
    daemon.wait_for_line("direction=\"egress\" mode", TIMEOUT)?;
    pair.generator.ip("link delete gen1")?;
    daemon.wait_for_line("the interface is gone interface=port direction=\"egress\"", TIMEOUT)?;
    wait_for_names(&mut daemon, &[INTERFACE])?;
    let before = clock::wait_for("one link at most: the others are detached in their turn", TIMEOUT, || {
        let now = bpf_objects(daemon.pid())?;
        Ok(now.iter().all(|(kind, count)| !kind.contains("link") || *count <= 1).then_some(now))
    })?;
    ensure!(before.keys().any(|kind| kind.contains("prog")), "no program among {before:?}");

    let mut oracle = Oracle::new();
    let plan = Plan { seed: 78, packets: 60_000, mix: Mix::odd(), ..Plan::default() };
    let sent = thread::scope(|scope| {
        let changing = scope.spawn(|| (0..LIVES).try_for_each(|nth| live(&pair.observer, &pair.generator, nth)));
        let pace = Pace::PacketsPerSecond(10_000);
        let sent = watch::send(&pair, QUIET_LINK, Traffic::new(plan)?, pace, &mut oracle)?;
        changing.join().expect("changing does not panic")?;
        anyhow::Ok(sent)
    })?;
    wait_for_names(&mut daemon, &[INTERFACE])?;
    let attached = daemon.log()?.matches("attached interface=port").count();
    ensure!(attached > LIVES, "it attached {attached} times to {LIVES} interfaces");
    // The kernel releases some objects later.
    let after = clock::wait_for("what there was before", Duration::from_secs(5), || {
        let now = bpf_objects(daemon.pid())?;
        Ok((now == before).then_some(now))
    });
    after.with_context(|| format!("{before:?} before, {:?} after", bpf_objects(daemon.pid())))?;
    let reports = stop(&mut daemon, Loss::None)?;
    let seen = seen_on(INTERFACE, &reports)?;
    ensure!(seen == sent, "{INTERFACE}: seen {seen:?} of {sent:?}");
    Ok(())
}

/// Two named interfaces swap their names, at once or while weir notices each step. They stay attached, so every packet
/// counts for the interface that it came by, and the window's account has both names.
fn names_are_swapped_and_every_packet_counts() -> Result<()> {
    for mode in ["native", "tcx", "tc", "afpacket"] {
        for at_once in [true, false] {
            swap(mode, at_once).with_context(|| format!("{mode}, at once: {at_once}"))?;
        }
    }
    Ok(())
}

fn swap(mode: &str, at_once: bool) -> Result<()> {
    const LINKS: [[&str; 2]; 2] = [["gen1", "port1"], ["gen2", "port2"]];
    let pair = Lab::quiet_pair()?;
    LINKS.iter().try_for_each(|ends| link(&pair, *ends))?;
    let interfaces = LINKS.map(|[_, far]| format!("{{name: {far}, mode: {mode}}}")).join(", ");
    let settings = format!("interfaces: [{interfaces}]\nreport: {{interval: 1s}}\n{ROOMY_RINGS}");
    let mut daemon = measure(&pair.observer, &settings)?;
    let send = |ends, packets| -> Result<()> {
        let traffic = Traffic::new(Plan { seed: 71, packets, ..Plan::default() })?;
        watch::send(&pair, ends, traffic, Pace::Unlimited, &mut Oracle::new()).map(drop)
    };
    send(LINKS[0], 300)?;
    send(LINKS[1], 500)?;
    if at_once {
        daemon.signal(Signal::STOP)?;
    }
    // One process, because weir waits only for a moment for a third name to go.
    let renamed =
        pair.observer.ip_batch(&["link set port1 name tmp", "link set port2 name port1", "link set tmp name port2"]);
    let sent = renamed.and_then(|_| send(["gen1", "port2"], 10)).and_then(|()| send(["gen2", "port1"], 20));
    if at_once {
        daemon.signal(Signal::CONT)?;
    }
    sent?;
    let windows = daemon.reports()?.len();
    daemon.wait_for_reports(windows + 2, TIMEOUT)?;
    send(["gen1", "port2"], 1)?;
    send(["gen2", "port1"], 2)?;
    let reports = stop(&mut daemon, Loss::None)?;
    let log = daemon.log()?;
    let (mut seen, mut told) = (BTreeMap::new(), Vec::new());
    for one in reports.iter().filter_map(|report| report["interfaces"].as_array()).flatten() {
        let index = one["index"].as_u64().with_context(|| format!("{one}\n{log}"))?;
        *seen.entry(index).or_insert(0) += tally(&one["ledger"]["seen"])?.packets;
        // A window that ends between two steps of the swap has two interfaces of one name; the second is "port1 (2)".
        let name = one["name"].as_str().map(|name| name.trim_end_matches(" (2)"));
        told.extend(one["earlier_name"].as_str().zip(name).map(|names| (index, names)));
        ensure!(one["blind_seconds"].is_null(), "{one}\n{log}");
    }
    let seen: Vec<_> = seen.into_iter().collect();
    let [(first, 311), (second, 522)] = seen[..] else { bail!("{seen:?}\n{log}") };
    told.sort_unstable();
    ensure!(told == [(first, ("port1", "port2")), (second, ("port2", "port1"))], "{told:?}\n{log}");
    let last = reports.last().context("no report")?;
    ensure!(names(last)? == ["port1", "port2"], "{}", last["interfaces"]);
    Ok(())
}
