//! Interfaces that are missing, disappear, come back, or have a foreign program.

use std::{thread, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;
use weir_tests::{
    account::{Loss, tally},
    clock,
    daemon::{Daemon, weir_binary},
    inject::{self, Pace},
    netns::{Lab, Namespace, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan, Traffic},
};

use crate::watch::{
    self, Ended, QUIET_LINK, TIMEOUT, Watch, config, has_program, judge, list, measure, modes, native, seen_in,
    seen_on, stop,
};

// While the lock is held, the kernel answers no weir of other tests either.
alone![
    windows_end_while_another_process_holds_the_kernels_lock,
    bursts_around_an_edge_are_not_lost_if_the_lock_is_held_at_the_next_one
];

tests![
    a_missing_interface_is_refused_where_it_is_asked_for,
    an_interface_that_comes_later_is_waited_for,
    interfaces_without_an_entry_are_measured_as_others,
    windows_end_while_many_interfaces_are_attached,
    an_interface_that_vanishes_and_comes_back_is_measured_exactly,
    a_foreign_program_stays_and_is_not_disturbed,
    a_refused_interface_of_a_pattern_is_in_reports,
    an_alias_is_reported_and_followed,
    an_alternative_name_is_a_name,
    a_bridge_and_its_ports_have_generic_xdp
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

fn a_missing_interface_is_refused_where_it_is_asked_for() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let mut command = pair.observer.command(weir_binary()?);
    let ended = Ended::of(command.args(["run", "--strict", "--interface", INTERFACE, "--interface", "nope0"]))?;
    ended.check(2, &[&format!("interface \"nope0\" not found (have: lo, {INTERFACE})")])?;
    ensure!(!has_program(&pair.observer, INTERFACE)?, "a program is left on {INTERFACE}");
    Ok(())
}

fn an_interface_that_comes_later_is_waited_for() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let [_, far] = SECOND_LINK;
    let settings = format!("interfaces: [{}, {}]\nreport: {{interval: 1s}}\n", native(INTERFACE), native(far));
    let mut daemon = measure(&pair.observer, &settings)?;
    let line = format!("interface \"{far}\" not found (have: lo, {INTERFACE})");
    daemon.wait_for_line(&line, TIMEOUT)?;
    let mut oracle = Oracle::new();
    let mut send = |link, seed| {
        let plan = Plan { seed, packets: 5_000, mix: Mix::odd(), ..Plan::default() };
        watch::send(&pair, link, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)
    };
    // Meanwhile the existing interface is measured.
    let on_first = send(QUIET_LINK, 57)?;
    let while_absent = daemon.wait_for_reports(3, TIMEOUT)?;
    ensure!(modes(far, &while_absent) == ["absent"; 3][..], "{:?}", modes(far, &while_absent));
    make_second_link(&pair)?;
    daemon.wait_for_line(&format!("attached interface={far}"), TIMEOUT)?;
    let on_second = send(SECOND_LINK, 58)?;
    let log = daemon.log()?;
    let reports = stop(&mut daemon, Loss::None)?;
    for (interface, sent) in [(INTERFACE, on_first), (far, on_second)] {
        let seen = seen_on(interface, &reports)?;
        ensure!(seen == sent, "{interface}: seen {seen:?} of {sent:?}");
    }
    judge("both interfaces together", oracle.check_reports(&reports))?;
    ensure!(log.matches(&line).count() == 1, "it is logged once:\n{log}");
    Ok(())
}

/// A second link beside the pair's own.
const SECOND_LINK: [&str; 2] = ["gen1", "obs1"];

fn make_second_link(pair: &QuietPair) -> Result<()> {
    let QuietPair { generator, observer } = pair;
    let [near, far] = SECOND_LINK;
    generator.ip(&format!("link add {near} type veth peer name {far} netns {}", observer.name()))?;
    generator.ip(&format!("link set {near} arp off up"))?;
    observer.ip(&format!("link set {far} arp off up"))?;
    generator.wait_until_up(near)?;
    observer.wait_until_up(far)?;
    Ok(())
}

fn an_interface_that_vanishes_and_comes_back_is_measured_exactly() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    make_second_link(&pair)?;
    let [near, far] = SECOND_LINK;
    let settings = format!("interfaces: [{}, {}]\nreport: {{interval: 1s}}\n", native(INTERFACE), native(far));
    let mut daemon = measure(&pair.observer, &settings)?;
    let mut oracle = Oracle::new();
    let mut send = |link, seed| {
        let plan = Plan { seed, packets: 5_000, mix: Mix::odd(), ..Plan::default() };
        watch::send(&pair, link, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)
    };
    let wait_for_mode = |daemon: &mut Daemon, mode: &str| {
        clock::wait_for(&format!("a report that {far} is {mode}"), TIMEOUT, || {
            Ok(modes(far, &daemon.reports()?).last().is_some_and(|last| *last == mode).then_some(()))
        })
    };

    let (mut on_first, mut on_second) = (send(QUIET_LINK, 51)?, send(SECOND_LINK, 52)?);
    pair.generator.ip(&format!("link delete {near}"))?;
    wait_for_mode(&mut daemon, "gone")?;
    on_first.add(send(QUIET_LINK, 53)?);
    make_second_link(&pair)?;
    wait_for_mode(&mut daemon, "xdp-native")?;
    on_second.add(send(SECOND_LINK, 54)?);
    on_first.add(send(QUIET_LINK, 55)?);

    let reports = stop(&mut daemon, Loss::None)?;
    for (interface, sent) in [(INTERFACE, on_first), (far, on_second)] {
        let seen = seen_on(interface, &reports)?;
        ensure!(seen == sent, "{interface}: seen {seen:?} of {sent:?}");
    }
    judge("both interfaces together", oracle.check_reports(&reports))?;
    ensure!(modes(INTERFACE, &reports).iter().all(|mode| *mode == "xdp-native"), "{INTERFACE} was not there always");
    Ok(())
}

/// The ends of one of many links.
fn link(nth: usize) -> [String; 2] {
    [format!("near{nth}"), format!("far{nth}")]
}

fn make_links(pair: &QuietPair, links: usize) -> Result<()> {
    for nth in 0..links {
        let [near, far] = link(nth);
        pair.generator
            .ip(&format!("link add {near} arp off type veth peer name {far} netns {}", pair.observer.name()))?;
        pair.generator.ip(&format!("link set {near} up"))?;
        pair.observer.ip(&format!("link set {far} arp off up"))?;
    }
    let [_, last] = link(links - 1);
    pair.observer.wait_until_up(&last)
}

/// Makes links with so many queues that Linux needs some seconds to delete them all at once, with its configuration
/// lock held. How many that are depends on the machine.
fn make_slow_links(namespace: &Namespace) -> Result<()> {
    const HELD: Duration = Duration::from_secs(3);
    const TRIED: u32 = 8;
    const MOST: u32 = 200;
    const QUEUES: &str = "numtxqueues 4096 numrxqueues 4096";
    let make = |count: u32| {
        (0..count).try_for_each(|nth| {
            let pair = format!("slow{nth} {QUEUES} group 7 type veth peer name peer{nth} {QUEUES}");
            namespace.ip(&format!("link add {pair}")).map(drop)
        })
    };
    make(TRIED)?;
    let begin = clock::now();
    delete_slow_links(namespace)?;
    let each = begin.elapsed() / TRIED;
    make(((HELD.as_secs_f64() / each.as_secs_f64()) as u32).clamp(TRIED, MOST))
}

fn delete_slow_links(namespace: &Namespace) -> Result<()> {
    namespace.ip("link delete group 7").map(drop)
}

/// Interfaces appear, and one of weir's programs is removed, while the kernel's lock is held.
fn windows_end_while_another_process_holds_the_kernels_lock() -> Result<()> {
    const SECONDS_MAX: f64 = 1.6;
    let pair = Lab::quiet_pair()?;
    let elsewhere = Lab::quiet_pair()?;
    make_slow_links(&elsewhere.observer)?;
    let settings = format!("interfaces: [{INTERFACE}]\nreport: {{interval: 1s}}\n");
    let mut daemon = measure(&pair.observer, &settings)?;
    daemon.wait_for_reports(2, TIMEOUT)?;
    let traffic = Traffic::new(Plan { seed: 62, packets: 20_000, ..Plan::default() })?;
    let (sent, deleted) = thread::scope(|scope| {
        let deleting = scope.spawn(|| delete_slow_links(&elsewhere.observer));
        let sent = watch::send(&pair, QUIET_LINK, traffic, Pace::PacketsPerSecond(5_000), &mut Oracle::new());
        (sent, deleting.join())
    });
    deleted.map_err(|_| anyhow!("it panicked"))??;
    daemon.wait_for_line("the kernel answers again", TIMEOUT)?;
    let so_far = daemon.reports()?.len();
    daemon.wait_for_reports(so_far + 2, TIMEOUT)?;
    let log = daemon.log()?;
    ensure!(log.contains("another process holds its configuration lock"), "the lock was not held:\n{log}");
    let reports = stop(&mut daemon, Loss::None)?;
    for report in &reports {
        let seconds = report["window"]["seconds"].as_f64();
        ensure!(seconds.is_some_and(|seconds| seconds < SECONDS_MAX), "a window of {seconds:?} s\n{log}");
    }
    ensure!(seen_on(INTERFACE, &reports)? == sent?, "{:?}", seen_on(INTERFACE, &reports)?);
    Ok(())
}

/// Packets pass while the counts of many interfaces are read one after the other. While the lock is held, weir cannot
/// check whether it has missed any.
fn bursts_around_an_edge_are_not_lost_if_the_lock_is_held_at_the_next_one() -> Result<()> {
    const LINKS: usize = 200;
    const PACKETS: u64 = 101;
    let pair = Lab::quiet_pair()?;
    let elsewhere = Lab::quiet_pair()?;
    make_links(&pair, LINKS)?;
    make_slow_links(&elsewhere.observer)?;
    let settings = "interfaces: [{name: \"far*\", mode: generic}]\nreport: {interval: 1s}\n";
    let mut daemon = measure(&pair.observer, settings)?;
    let burst = |seed: u64| -> Result<()> {
        for nth in 0..LINKS {
            let traffic =
                Traffic::new(Plan { seed: seed + nth as u64, packets: PACKETS, flows: 10, ..Plan::default() })?;
            pair.generator.enter(|| inject::send(&link(nth)[0], traffic, Pace::Unlimited))??;
        }
        Ok(())
    };
    let attached = || {
        let reports = daemon.reports()?;
        let last = reports.last().map(|report| list(&report["interfaces"])).transpose()?;
        Ok(last.is_some_and(|all| all.iter().filter(|one| one["mode"] == "xdp-generic").count() == LINKS).then_some(()))
    };
    clock::wait_for("the attachment of all", TIMEOUT, attached)?;
    let seen = |reports: &[Value]| {
        let all = reports.iter().map(|report| list(&report["interfaces"])).collect::<Result<Vec<_>>>()?;
        let ledgers = all.into_iter().flatten().map(|one| &one["ledger"]);
        let sums = ledgers.map(|ledger| Ok([tally(&ledger["seen"])?, tally(&ledger["lost"]["blind"])?]));
        sums.collect::<Result<Vec<_>>>().map(|all| {
            all.into_iter().fold([0; 2], |[seen, blind], [more, lost]| [seen + more.packets, blind + lost.packets])
        })
    };
    let so_far = daemon.reports()?.len();
    daemon.wait_for_reports(so_far + 1, TIMEOUT)?;
    burst(1_000)?;
    let deleted = thread::scope(|scope| {
        let deleting = scope.spawn(|| delete_slow_links(&elsewhere.observer));
        burst(2_000)?;
        deleting.join().map_err(|_| anyhow!("it panicked"))?
    });
    deleted?;
    let so_far = daemon.reports()?.len();
    // A later window decides what may have been missed.
    daemon.wait_for_reports(so_far + 6, TIMEOUT)?;
    let log = daemon.log()?;
    let reports = stop(&mut daemon, Loss::None)?;
    let found = seen(&reports)?;
    ensure!(found == [2 * LINKS as u64 * PACKETS, 0], "{found:?} packets are seen and lost\n{log}");
    Ok(())
}

/// The kernel needs a grace period for each TCX link. Windows must end in time meanwhile.
fn windows_end_while_many_interfaces_are_attached() -> Result<()> {
    const LINKS: usize = 60;
    const ALL: &str = "all interfaces that can be measured are measured";
    let pair = Lab::quiet_pair()?;
    make_links(&pair, LINKS)?;
    let settings = "interfaces: [{name: \"far*\", direction: both, mode: tcx}]\nreport: {interval: 1s}\n";
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| config(settings, reports))?;
    daemon.wait_for_line("so many interfaces came at once that some are not measured yet", TIMEOUT)?;
    daemon.wait_for_reports(1, TIMEOUT)?;
    ensure!(!daemon.log()?.contains(ALL), "no window ended before everything was attached");
    // Each link takes a grace period of the kernel, and those are long on a busy machine.
    daemon.wait_for_line(ALL, 8 * TIMEOUT)?;
    let [near, far] = link(LINKS - 1);
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 86, packets: 3_000, mix: Mix::odd(), ..Plan::default() };
    watch::send(&pair, [&near, &far], Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
    let reports = stop(&mut daemon, Loss::None)?;
    judge("all interfaces together", oracle.check_reports(&reports))
}

/// There are more interface directions than accounts.
fn interfaces_without_an_entry_are_measured_as_others() -> Result<()> {
    const ACCOUNTS: usize = 255;
    const LINKS: usize = 150;
    const OTHERS: &str = "others";
    let pair = Lab::quiet_pair()?;
    make_links(&pair, LINKS)?;
    let settings = "interfaces: [{name: \"far*\", direction: both}]\nreport: {interval: 1s}\n";
    let mut daemon = measure(&pair.observer, settings)?;
    daemon.wait_for_line("share the account `others`", TIMEOUT)?;
    let mut oracle = Oracle::new();
    let mut send = |nth: usize, seed| {
        let [near, far] = link(nth);
        let plan = Plan { seed, packets: 3_000, mix: Mix::odd(), ..Plan::default() };
        watch::send(&pair, [&near, &far], Traffic::new(plan)?, Pace::Unlimited, &mut oracle)
    };
    // With so many interfaces, TCX would block other configuration of the kernel for a while.
    for nth in [0, 1] {
        let [_, far] = link(nth);
        let attached =
            |reports: &[Value]| modes(&far, reports).into_iter().find(|mode| *mode != "waiting").map(str::to_owned);
        let mode = clock::wait_for("its mode", TIMEOUT, || Ok(attached(&daemon.reports()?)))?;
        ensure!(mode == "tc", "{far}: {mode}");
    }
    // The first links have accounts of their own; the last ones have none, for either direction.
    let own = [(0, send(0, 81)?), (1, send(1, 82)?)];
    let mut shared = send(LINKS - 1, 83)?;
    shared.add(send(LINKS - 2, 84)?);
    let reports = daemon.wait_for_reports(2, TIMEOUT)?;
    let listed = |report: &Value| report["interfaces"].as_array().map_or(0, Vec::len);
    clock::wait_for("a report of all accounts", TIMEOUT, || {
        Ok(daemon.reports()?.last().is_some_and(|last| listed(last) == ACCOUNTS + 1).then_some(()))
    })?;
    // An interface that disappears leaves the shared account; the others stay in it.
    pair.generator.ip(&format!("link delete {}", link(LINKS - 1)[0]))?;
    daemon.wait_for_reports(reports.len() + 2, TIMEOUT)?;
    shared.add(send(LINKS - 2, 85)?);

    let reports = stop(&mut daemon, Loss::None)?;
    for (nth, sent) in own {
        let [_, far] = link(nth);
        let seen = seen_in(&far, "ingress", &reports)?;
        ensure!(seen == sent, "{far}: seen {seen:?} of {sent:?}");
    }
    let seen = seen_on(OTHERS, &reports)?;
    ensure!(seen == shared, "{OTHERS}: seen {seen:?} of {shared:?}");
    ensure!(modes(OTHERS, &reports).iter().all(|mode| *mode == OTHERS), "{:?}", modes(OTHERS, &reports));
    judge("all interfaces together", oracle.check_reports(&reports))
}

fn a_foreign_program_stays_and_is_not_disturbed() -> Result<()> {
    let watch = Watch::one_window("")?;
    let settings = format!("interfaces: [{}]\n", native(INTERFACE));
    let mut second = Daemon::start(Some(&watch.pair.observer), |reports| config(&settings, reports))?;
    let status = second.wait(TIMEOUT)?;
    let log = second.log()?;
    ensure!(status.code() == Some(3), "the second ended with {status}:\n{log}");
    let taken = format!("interface \"{INTERFACE}\" has another XDP program");
    ensure!(log.contains(&taken), "it did not write \"{taken}\" but:\n{log}");
    ensure!(has_program(&watch.pair.observer, INTERFACE)?, "the first one's program is gone");

    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 56, ..Plan::default() }, &mut oracle)?;
    let reports = watch.stop(Loss::None)?;
    ensure!(reports.len() == 1, "{} reports of one window", reports.len());
    judge("the first one's report", oracle.check_report(&reports[0]))
}

/// Reports must not let a refused interface look like a quiet one.
fn a_refused_interface_of_a_pattern_is_in_reports() -> Result<()> {
    let watch = Watch::one_window("")?;
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let settings = format!(
        "interfaces: [{{name: \"{}*\", mode: native}}, lo]\nreport: {{interval: 1s}}\ncontrol: {{socket: {}}}\n",
        &INTERFACE[..1],
        socket.display()
    );
    let mut second = measure(&watch.pair.observer, &settings)?;
    second.wait_for_reports(2, TIMEOUT)?;
    let status = Ended::of(watch.pair.observer.command(weir_binary()?).args(["status", "--socket"]).arg(&socket))?;
    ensure!(status.code == Some(0) && status.out.contains("has another XDP program"), "{}", status.out);
    let reports = stop(&mut second, Loss::None)?;
    for report in &reports {
        let all = report["interfaces"].as_array().context("no interfaces")?;
        let refused: Vec<&Value> = all.iter().filter(|one| one["name"] == INTERFACE).collect();
        ensure!(refused.len() == 1 && refused[0]["mode"] == "refused", "{all:?}");
        let trouble = refused[0]["trouble"].as_str().unwrap_or_default();
        ensure!(trouble.contains("has another XDP program"), "{trouble:?}");
        ensure!(refused[0]["direction"] == "ingress" && refused[0]["index"].is_u64(), "{all:?}");
    }
    watch.stop(Loss::None).map(drop)
}

fn an_alias_is_reported_and_followed() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    // An empty alias removes the alias.
    let call = |alias: &str| pair.observer.ip(&format!("link set dev {INTERFACE} alias {alias}"));
    call("uplink")?;
    let settings = format!("interfaces: [{}]\nreport: {{interval: 1s}}\n", native(INTERFACE));
    let mut daemon = measure(&pair.observer, &settings)?;
    for (alias, next) in [(Some("uplink"), "downlink"), (Some("downlink"), ""), (None, "")] {
        clock::wait_for(&format!("a report with the alias {alias:?}"), TIMEOUT, || {
            let reports = daemon.reports()?;
            let last = reports.last().map(|report| report["interfaces"][0].get("alias").and_then(|text| text.as_str()));
            Ok((last == Some(alias)).then_some(()))
        })?;
        call(next)?;
    }
    stop(&mut daemon, Loss::None)?;
    Ok(())
}

/// This works in the configuration and on the command line. The report has both the kernel's name and the alternative
/// name.
fn an_alternative_name_is_a_name() -> Result<()> {
    const NAME: &str = "uplink0-that-is-longer-than-15";
    let scratch = Scratch::new()?;
    let line = format!("#!/bin/sh\nexec '{}' \"$@\" --interface {NAME}\n", weir_binary()?.display());
    let by_option = scratch.script(&line, "weir-of-an-interface", 0o755)?;
    for (program, interface) in [(weir_binary()?, NAME), (by_option, "nope0")] {
        let pair = Lab::quiet_pair()?;
        pair.observer.ip(&format!("link property add dev {INTERFACE} altname {NAME}"))?;
        let settings = format!("interfaces: [{interface}]\n");
        let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |reports| config(&settings, reports))?;
        daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
        let traffic = Traffic::new(Plan { seed: 61, packets: 1_000, ..Plan::default() })?;
        let sent = watch::send(&pair, QUIET_LINK, traffic, Pace::Unlimited, &mut Oracle::new())?;
        let reports = stop(&mut daemon, Loss::None)?;
        ensure!(seen_on(INTERFACE, &reports)? == sent, "{:?} of {sent:?}", seen_on(INTERFACE, &reports)?);
        ensure!(reports[0]["interfaces"][0]["alias"] == NAME, "{}", reports[0]["interfaces"]);
    }
    Ok(())
}

/// Linux allows no XDP program below one in generic mode. So weir attaches ports first, whatever was created first, and
/// whether the configuration names them or they match a pattern.
fn a_bridge_and_its_ports_have_generic_xdp() -> Result<()> {
    for names in [&["br7", "port7", "port*"][..], &["br7", "port*"]] {
        check_bridge(names).with_context(|| format!("{names:?}"))?;
    }
    Ok(())
}

fn check_bridge(names: &[&str]) -> Result<()> {
    let pair = Lab::quiet_pair()?;
    // The port joins its bridge when it is created, because weir may notice it at any time.
    let join = |port: &str| pair.observer.ip(&format!("link add {port} master br7 type veth peer name far-{port}"));
    pair.observer.ip("link add br7 type bridge")?;
    join("port7")?;
    let interfaces: Vec<_> = names.iter().map(|name| format!("{{name: \"{name}\", mode: generic}}")).collect();
    let settings = format!("interfaces: [{}]\nreport: {{interval: 1s}}\n", interfaces.join(", "));
    let mut daemon = measure(&pair.observer, &settings)?;
    join("port8")?;
    let line = daemon.wait_for_line("interface=port8", TIMEOUT)?;
    ensure!(line.contains("an interface stacked on it"), "{line}");
    let reports = stop(&mut daemon, Loss::None)?;
    for name in ["br7", "port7"] {
        let modes = modes(name, &reports);
        ensure!(!modes.is_empty() && modes.iter().all(|mode| *mode == "xdp-generic"), "{name}: {modes:?}");
    }
    Ok(())
}
