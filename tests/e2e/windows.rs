//! Windows follow each other without a gap, whenever packets arrive.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    inject::{self, Pace},
    netns::QuietPair,
    oracle::{Dimension, Oracle},
    traffic::{Mix, Plan, Traffic},
};

use crate::watch::{self, QUIET_LINK, ROOMY_RINGS, TIMEOUT, Watch, check_accounts, judge, number, seen_on};

alone![windows_add_up_to_what_was_sent, a_window_cut_while_packets_flow_balances];
tests![a_flow_is_new_once];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

fn windows_add_up_to_what_was_sent() -> Result<()> {
    let watch = Watch::start("report: {interval: 1s}\n")?;
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 21, packets: 45_000, flows: 5_000, mix: Mix::odd(), ..Plan::default() };
    watch::send(&watch.pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(10_000), &mut oracle)?;
    let reports = watch.stop(Loss::None)?;
    ensure!(reports.len() >= 5, "{} reports of 4.5 s", reports.len());
    judge("all windows together", oracle.check_reports(&reports))?;
    check_edges(&reports)
}

/// Each window begins where the one before ended, on a full second.
fn check_edges(reports: &[Value]) -> Result<()> {
    for pair in reports.windows(2) {
        let [end, start] = [&pair[0]["window"]["end"], &pair[1]["window"]["start"]];
        ensure!(end == start, "a window ends at {end} and the next begins at {start}");
        let text = start.as_str().context("a window has no start")?;
        let seconds = text.strip_suffix('Z').and_then(|time| time.rsplit(':').next());
        ensure!(seconds.is_some_and(|seconds| seconds.ends_with(".000000")), "{start} is no full second");
    }
    Ok(())
}

fn a_window_cut_while_packets_flow_balances() -> Result<()> {
    check_cut(Watch::start(&format!("report: {{interval: 1s}}\n{ROOMY_RINGS}"))?, Pace::Unlimited)
}

/// Sends packets all the time while windows of a second end, and while weir is stopped.
pub fn check_cut(Watch { pair, mut daemon }: Watch, pace: Pace) -> Result<()> {
    let received = || anyhow::Ok(pair.observer.counters(INTERFACE)?.received.packets);
    let done = AtomicBool::new(false);
    let plan = Plan { seed: 22, packets: inject::PACKETS_MAX, mix: Mix::odd(), ..Plan::default() };
    let traffic = Traffic::new(plan)?.take_while(|_| !done.load(Ordering::Relaxed));
    let (before, reports, after) = thread::scope(|scope| {
        let sending =
            scope.spawn(|| pair.generator.enter(|| inject::send(QuietPair::GENERATOR_INTERFACE, traffic, pace)));
        let stopped = (|| {
            thread::sleep(Duration::from_millis(2_300));
            let before = received()?;
            let status = daemon.stop(TIMEOUT)?;
            ensure!(status.success(), "weir ended with {status}");
            let (reports, after) = (daemon.reports()?, received()?);
            let more = || Ok((received()? > after).then_some(()));
            clock::wait_for("a packet after the stop, without which nothing was cut", TIMEOUT, more)?;
            Ok((before, reports, after))
        })();
        done.store(true, Ordering::Relaxed);
        sending.join().expect("sending does not panic")??;
        stopped
    })?;
    check_accounts(&reports, Loss::None)?;
    ensure!(reports.len() >= 3, "{} reports of 2.3 s", reports.len());
    let seen = seen_on(INTERFACE, &reports)?.packets;
    // weir was attached before the first packet, and detached between the two readings of the interface's own counter.
    ensure!((before..=after).contains(&seen), "seen {seen}; arrived {before} before the stop and {after} after it");
    check_edges(&reports)
}

fn a_flow_is_new_once() -> Result<()> {
    let settings = format!("report: {{interval: 1s}}\nseen_flows: {{false_positive_rate: 0.001}}\n{ROOMY_RINGS}");
    let mut watch = Watch::start(&settings)?;
    let plan = Plan { seed: 23, packets: 120_000, flows: 60_000, zipf: 0.5, ..Plan::default() };
    let mut oracle = Oracle::new();
    watch.send(plan, &mut oracle)?;
    // The window of the last packet has ended once two more windows are reported.
    let reported = watch.daemon.reports()?.len();
    let first = watch.daemon.wait_for_reports(reported + 2, TIMEOUT)?.len();
    watch.send(plan, &mut oracle)?;
    let reports = watch.stop(Loss::None)?;

    let new =
        |reports: &[Value]| -> Result<u64> { reports.iter().map(|report| number(&report["new_flows"]["value"])).sum() };
    let truth = oracle.distinct(Dimension::Flows);
    let (new_at_first, new_again) = (new(&reports[..first])?, new(&reports[first..])?);
    const RATE: f64 = 0.001;
    let least = (truth as f64 * (1.0 - RATE * 1.2)) as u64;
    ensure!((least..=truth).contains(&new_at_first), "{new_at_first} new flows of {truth}");
    ensure!(new_again == 0, "{new_again} of {truth} flows were new again");
    judge("all windows together", oracle.check_reports(&reports))
}
