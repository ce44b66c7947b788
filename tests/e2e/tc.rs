//! The classic tc hook: as exact as TCX, on any kernel. Filters there outlive the process, so weir removes its own
//! filters, and touches nothing else.

use std::{fs, process::Command};

use anyhow::{Result, ensure};
use weir_tests::{
    account::Loss,
    daemon::{Signal, weir_binary},
    foreign::Foreign,
    netns::{Lab, Namespace, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan},
};

use crate::{
    afpacket::with_few_rights,
    tcx::{check_both, check_merged, check_received, check_sent, watch_by},
    watch::{self, Ended, ONE_WINDOW, ROOMY_RINGS, Watch, judge, measure, modes, seen_in},
};

tests![
    received_packets_are_exact,
    sent_packets_are_exact,
    both_directions_have_their_own_account,
    merged_segments_count_as_the_packets_that_they_are,
    stopping_leaves_the_interface_clean,
    filters_of_a_killed_weir_are_removed_at_the_next_start,
    detach_removes_filters_of_a_killed_weir_and_nothing_else,
    detach_without_rights_does_not_say_that_nothing_is_left,
    a_removed_filter_is_attached_again,
    a_discipline_for_what_is_received_alone_is_used_for_that
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

fn received_packets_are_exact() -> Result<()> {
    check_received(watch_by("tc", "ingress")?, "tc")
}

fn sent_packets_are_exact() -> Result<()> {
    check_sent(watch_by("tc", "egress")?)
}

fn both_directions_have_their_own_account() -> Result<()> {
    check_both(watch_by("tc", "both")?)
}

fn merged_segments_count_as_the_packets_that_they_are() -> Result<()> {
    check_merged("tc")
}

/// The output of `tc` for the hook of the observer's interface.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    /// `clsact` or `ingress`, if any.
    discipline: Option<String>,
    /// The names of the filters of both directions that run a program of weir's.
    weir: Vec<String>,
    /// How many other filters there are.
    others: usize,
}

fn shown(observer: &Namespace) -> Result<Shown> {
    let tc = |what: &[&str]| -> Result<String> {
        let output = observer.enter(|| Command::new("tc").args(what).output())??;
        ensure!(output.status.success(), "tc {what:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    let disciplines = tc(&["qdisc", "show", "dev", INTERFACE])?;
    let discipline = ["clsact", "ingress"].into_iter().find(|kind| disciplines.contains(&format!("qdisc {kind} ")));
    let mut filters = Vec::new();
    for way in if discipline == Some("clsact") { &["ingress", "egress"][..] } else { &["ingress"] } {
        let text = tc(&["filter", "show", "dev", INTERFACE, way])?;
        // A `u32` filter has its handle in `fh`, and so have its hash tables.
        let is_filter = |line: &&str| line.contains(" handle ") || line.contains(" fh ") && line.contains(" order ");
        filters.extend(text.lines().filter(is_filter).map(str::to_owned));
    }
    let (weir, others): (Vec<_>, Vec<_>) = filters.into_iter().partition(|line| line.contains("name weir_"));
    Ok(Shown { discipline: discipline.map(str::to_owned), weir, others: others.len() })
}

/// Runs `tc`; `INTERFACE` is the observer's interface.
fn tc(observer: &Namespace, arguments: &str) -> Result<()> {
    let words = arguments.split(' ').map(|word| if word == "INTERFACE" { INTERFACE } else { word });
    let status = observer.enter(|| Command::new("tc").args(words).status())??;
    ensure!(status.success(), "tc {arguments}: {status}");
    Ok(())
}

/// Returns the output of `weir detach` in the namespace.
fn detach(observer: &Namespace, arguments: &[&str]) -> Result<String> {
    let weir = weir_binary()?;
    let output = observer.enter(|| Command::new(weir).arg("detach").args(arguments).output())??;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs `weir detach` where other processes are not visible.
fn detach_in_a_container(observer: &Namespace) -> Result<String> {
    let mut command = observer.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(weir_binary()?).args(["detach", "--leftovers"]);
    let output = command.output()?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn plan(packets: u64) -> Plan {
    Plan { seed: 71, packets, mix: Mix::odd(), ..Plan::default() }
}

/// Starts weir on both directions of the classic hook.
fn both() -> Result<Watch> {
    let watch = watch_by("tc", "both")?;
    let there = shown(&watch.pair.observer)?;
    ensure!(there.discipline.as_deref() == Some("clsact") && there.weir.len() == 2, "{there:?}");
    Ok(watch)
}

/// Checks that only the empty discipline is at the hook: removing it would drop packets.
fn ensure_clean(observer: &Namespace) -> Result<()> {
    let there = shown(observer)?;
    ensure!(there == Shown { discipline: Some("clsact".to_owned()), weir: Vec::new(), others: 0 }, "{there:?}");
    Ok(())
}

/// Kills weir, which leaves its filters; returns the link.
fn kill(Watch { pair, mut daemon }: Watch) -> Result<QuietPair> {
    daemon.signal(Signal::KILL)?;
    daemon.wait(watch::TIMEOUT)?;
    let there = shown(&pair.observer)?;
    ensure!(there.weir.len() == 2, "a killed weir leaves its filters, or this tests nothing: {there:?}");
    Ok(pair)
}

fn stopping_leaves_the_interface_clean() -> Result<()> {
    let mut watch = both()?;
    let told = detach(&watch.pair.observer, &["--leftovers"])?;
    ensure!(told.matches("still uses it").count() == 2, "a weir that runs keeps its filters: {told}");
    let told = detach_in_a_container(&watch.pair.observer)?;
    ensure!(told.matches("still uses it").count() == 2, "also where its process is not to be seen: {told}");
    let sent = watch.send(plan(1_000), &mut Oracle::new())?;
    let reports = watch::stop(&mut watch.daemon, Loss::None)?;
    ensure!(seen_in(INTERFACE, "ingress", &reports)? == sent, "detach has disturbed a weir that runs");
    ensure_clean(&watch.pair.observer)
}

fn filters_of_a_killed_weir_are_removed_at_the_next_start() -> Result<()> {
    let pair = kill(both()?)?;
    let settings = format!("interfaces: [{{name: {INTERFACE}, mode: tc}}]\n{ONE_WINDOW}{ROOMY_RINGS}");
    let daemon = measure(&pair.observer, &settings)?;
    let mut watch = Watch { pair, daemon };
    let there = shown(&watch.pair.observer)?;
    ensure!(there.weir.len() == 1, "one of this weir, none of the other: {there:?}");
    let mut oracle = Oracle::new();
    watch.send(plan(5_000), &mut oracle)?;
    let reports = watch::stop(&mut watch.daemon, Loss::None)?;
    judge("after a kill", oracle.check_report(&reports[0]))?;
    ensure_clean(&watch.pair.observer)
}

fn detach_removes_filters_of_a_killed_weir_and_nothing_else() -> Result<()> {
    let watch = both()?;
    tc(&watch.pair.observer, "filter add dev INTERFACE ingress protocol ip prio 7 u32 match u32 0 0")?;
    let foreign = Foreign::attach_tc(&watch.pair.observer, INTERFACE)?;
    let pair = kill(watch)?;
    let before = shown(&pair.observer)?;
    let weir = |arguments: &[&str]| Ended::of(pair.observer.command(weir_binary()?).arg("detach").args(arguments));
    weir(&[])?.check(2, &["name the interfaces", "--all", "--leftovers"])?;
    weir(&[INTERFACE, "--socket", "/nowhere/control.sock"])?.check(3, &["/nowhere", "`weir detach --leftovers`"])?;
    ensure!(shown(&pair.observer)? == before, "{:?}", shown(&pair.observer)?);
    ensure!(detach(&pair.observer, &["lo"])?.contains("left nothing"), "only of the interfaces that are named");
    ensure!(shown(&pair.observer)? == before, "{:?}", shown(&pair.observer)?);
    let told = detach(&pair.observer, &[INTERFACE])?;
    ensure!(told.matches("removed").count() == 2, "{told}");
    let there = shown(&pair.observer)?;
    let others = before.others;
    ensure!(there == Shown { weir: Vec::new(), ..before }, "{there:?}");
    ensure!(others == 2, "{others} foreign filters");
    ensure!(detach(&pair.observer, &["--leftovers"])?.contains("left nothing"), "nothing is left");
    drop(foreign);
    Ok(())
}

/// A process that may not list filters cannot tell whether one is left.
fn detach_without_rights_does_not_say_that_nothing_is_left() -> Result<()> {
    let pair = kill(both()?)?;
    let before = shown(&pair.observer)?;
    let scratch = Scratch::new()?;
    let ended = Ended::of(pair.observer.command(with_few_rights("", &scratch)?).args(["detach", "--all"]))?;
    ended.check(3, &["filters", "at the tc hooks", "CAP_"])?;
    ensure!(!ended.out.contains("left nothing"), "{}", ended.out);
    ensure!(shown(&pair.observer)? == before, "{:?}", shown(&pair.observer)?);
    ensure!(detach(&pair.observer, &["--leftovers"])?.matches("removed").count() == 2, "root removes it");
    ensure_clean(&pair.observer)
}

fn a_removed_filter_is_attached_again() -> Result<()> {
    let mut watch = both()?;
    tc(&watch.pair.observer, "qdisc del dev INTERFACE clsact")?;
    let there = || Ok((shown(&watch.pair.observer)?.weir.len() == 2).then_some(()));
    weir_tests::clock::wait_for("both filters again", watch::TIMEOUT, there)?;
    // Waits for the line in the log before packets are sent.
    for _direction in 0..2 {
        watch.daemon.wait_for_line("another process has removed weir's program", watch::TIMEOUT)?;
    }
    let before = watch.send(plan(3_000), &mut Oracle::new())?;
    let reports = watch::stop(&mut watch.daemon, Loss::None)?;
    let seen = seen_in(INTERFACE, "ingress", &reports)?;
    ensure!(seen == before, "{seen:?} of {before:?}");
    ensure_clean(&watch.pair.observer)
}

fn a_discipline_for_what_is_received_alone_is_used_for_that() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    tc(&pair.observer, "qdisc add dev INTERFACE ingress")?;
    let weir = weir_binary()?;
    let mut egress = Command::new(weir);
    let scratch = Scratch::new()?;
    let config = scratch.file("weir.yaml");
    fs::write(&config, format!("interfaces: [{{name: {INTERFACE}, mode: tc, direction: egress}}]\n"))?;
    egress.arg("run").arg("--config").arg(config);
    let ended = pair.observer.enter(|| Ended::of(&mut egress))??;
    ended.check(3, &["discipline `ingress`", "tc qdisc del", "direction: ingress"])?;
    let daemon =
        measure(&pair.observer, &format!("interfaces: [{{name: {INTERFACE}, mode: tc}}]\n{ONE_WINDOW}{ROOMY_RINGS}"))?;
    let mut watch = Watch { pair, daemon };
    let mut oracle = Oracle::new();
    watch.send(plan(5_000), &mut oracle)?;
    let reports = watch::stop(&mut watch.daemon, Loss::None)?;
    judge("on an `ingress` discipline", oracle.check_report(&reports[0]))?;
    ensure!(modes(INTERFACE, &reports) == ["tc"], "{:?}", modes(INTERFACE, &reports));
    let there = shown(&watch.pair.observer)?;
    ensure!(there == Shown { discipline: Some("ingress".to_owned()), weir: Vec::new(), others: 0 }, "{there:?}");
    Ok(())
}
