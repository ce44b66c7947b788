//! Interfaces that are missing, vanish, come back, or belong to somebody else.

use anyhow::{Result, ensure};
use weir_tests::{
    account::Loss,
    clock,
    daemon::Daemon,
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    traffic::{Mix, Plan, Traffic},
};

use crate::watch::{
    self, QUIET_LINK, TIMEOUT, Watch, config, has_program, judge, measure, modes, native, seen_on, stop,
};

tests![
    a_missing_interface_is_named_with_those_there_are,
    an_interface_that_vanishes_and_comes_back_is_measured_exactly,
    a_foreign_program_stays_and_is_not_disturbed
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

fn a_missing_interface_is_named_with_those_there_are() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{INTERFACE}, nope0]\n");
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| config(&settings, reports))?;
    let status = daemon.wait(TIMEOUT)?;
    let log = daemon.log()?;
    ensure!(status.code() == Some(2), "it ended with {status}:\n{log}");
    let have = format!("interface \"nope0\" not found (have: lo, {INTERFACE})");
    ensure!(log.contains(&have), "it did not write \"{have}\" but:\n{log}");
    ensure!(!has_program(&pair.observer, INTERFACE)?, "a program is left on {INTERFACE}");
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

fn a_foreign_program_stays_and_is_not_disturbed() -> Result<()> {
    let watch = Watch::one_window("")?;
    let settings = format!("interfaces: [{}]\n", native(INTERFACE));
    let mut second = Daemon::start(Some(&watch.pair.observer), |reports| config(&settings, reports))?;
    let status = second.wait(TIMEOUT)?;
    let log = second.log()?;
    ensure!(status.code() == Some(3), "the second ended with {status}:\n{log}");
    let taken = format!("interface \"{INTERFACE}\" has an XDP program of somebody else");
    ensure!(log.contains(&taken), "it did not write \"{taken}\" but:\n{log}");
    ensure!(has_program(&watch.pair.observer, INTERFACE)?, "the first one's program is gone");

    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 56, ..Plan::default() }, &mut oracle)?;
    let reports = watch.stop(Loss::None)?;
    ensure!(reports.len() == 1, "{} reports of one window", reports.len());
    judge("the first one's report", oracle.check_report(&reports[0]))
}
