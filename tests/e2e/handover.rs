//! From one weir to the next under a real systemd: restarts and crashes beside traffic. The programs stay on the interface,
//! and each packet is in exactly one report, or is declared to be lost with what was killed.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account::{self, Loss},
    clock,
    inject::Pace,
    netns::Lab,
    oracle::{Dimension, Oracle},
    traffic::{Plan, Traffic},
};

use crate::{
    systemd::{
        machine::Installed,
        service::{self, INTERFACE, Service, run_of},
    },
    watch::{self, QUIET_LINK, TIMEOUT, check_accounts, number, seen_in},
};

tests![restarts_lose_no_packet, what_a_killed_weir_had_read_is_declared];

/// Packets a second beside restarts.
const RATE: u32 = 20_000;
/// How often weir ends and begins in a test, unless `scripts/soak handover` says otherwise.
const TIMES: u32 = 8;
/// How long weir takes to begin again, about.
const ABOUT_A_START: Duration = Duration::from_millis(700);
/// systemd starts it again at once.
const AT_ONCE: &str = "[Service]\nRestartSec=50ms\n";

/// What a run of a test has seen.
struct Outcome {
    sent: Tally,
    flows: u64,
    reports: Vec<Value>,
    log: String,
}

fn times() -> u32 {
    watch::times().unwrap_or(TIMES)
}

fn settings() -> String {
    format!(
        "interfaces: [{{name: {INTERFACE}, mode: native, direction: both}}]\n\
         report: {{interval: 1s}}\n\
         datapath: {{ring: 4 MiB}}\n\
         sinks: [{{type: file, path: /var/lib/weir/reports.ndjson}}]\n"
    )
}

/// Sends packets while `end` ends weir again and again, and stops it when all are reported. There is a program on the
/// interface at each moment until then, and never after.
fn beside_traffic(end: &str, (pause, seed): (Duration, u64)) -> Result<Outcome> {
    let drop_in =
        Installed { path: "etc/systemd/system/weir.service.d/at-once.conf", content: AT_ONCE.as_bytes(), mode: 0o644 };
    let machine = service::boot(&settings(), &[drop_in])?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    let service = Service { machine: &machine, pair: &pair };
    machine.done("systemctl start weir")?;
    let packets = u64::from(RATE) * u64::from(times()) * (pause + ABOUT_A_START).as_millis() as u64 / 1_000;
    let plan = Plan { seed, packets, flows: 2_000, ..Plan::default() };
    let is_over = AtomicBool::new(false);
    let mut oracle = Oracle::new();
    let sent = thread::scope(|scope| -> Result<Tally> {
        let sender = scope
            .spawn(|| watch::send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(RATE), &mut oracle));
        let watcher = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                service.is_attached(true)?;
                thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        });
        let ended = (0..times()).try_for_each(|_| {
            thread::sleep(pause);
            let before = service.property("MainPID")?;
            machine.done(end)?;
            service.wait_for_other(&before).map(drop)
        });
        let sent = sender.join().expect("it does not panic");
        is_over.store(true, Ordering::Relaxed);
        watcher.join().expect("it does not panic").context("while weir was ended and began")?;
        ended.and(sent)
    })?;
    let all_seen = || Ok((seen(&service.reports()?)? >= sent.packets).then_some(()));
    let found = clock::wait_for("reports of all packets", TIMEOUT, all_seen);
    machine.done("systemctl stop weir")?;
    service.is_attached(false).context("after it was stopped")?;
    let (reports, log) = (service.reports()?, machine.done("journalctl --no-pager --unit=weir")?);
    found.with_context(|| {
        format!("{} of {} packets are in reports\n{log}", seen(&reports).unwrap_or(0), sent.packets)
    })?;
    check_accounts(&reports, Loss::Possible(&["restart"])).context(log.clone())?;
    Ok(Outcome { sent, flows: oracle.distinct(Dimension::Flows), reports, log })
}

fn seen(reports: &[Value]) -> Result<u64> {
    Ok(seen_in(INTERFACE, "ingress", reports)?.packets)
}

impl Outcome {
    /// Each packet is in exactly one report, each report follows the one before, and windows have no gap.
    fn is_whole(&self) -> Result<()> {
        let Self { sent, flows: _, reports, log } = self;
        let received = seen_in(INTERFACE, "ingress", reports)?;
        ensure!(received == *sent, "{sent:?} were sent and {received:?} are in reports\n{log}");
        for (before, after) in reports.iter().zip(&reports[1..]) {
            ensure!(after["previous"] == before["id"], "{} follows {}\n{log}", after["id"], before["id"]);
            let (end, start) = (&before["window"]["end"], &after["window"]["start"]);
            ensure!(end == start, "a gap between windows, from {end} to {start}\n{log}");
        }
        // One that is killed early has no report.
        let runs: BTreeSet<_> = reports.iter().map(run_of).collect();
        ensure!(runs.len() > times() as usize / 2, "only {} runs have reported\n{log}", runs.len());
        let keys: BTreeSet<_> = reports.iter().map(|report| report["key_id"].to_string()).collect();
        // Midnight may have been meanwhile.
        ensure!(keys.len() <= 2, "{} keys: what was seen before is not known any more", keys.len());
        let covered = |report: &Value| {
            let interfaces = report["interfaces"].as_array().cloned().unwrap_or_default();
            interfaces.iter().filter_map(|one| one["coverage"].as_f64()).all(|coverage| coverage > 0.9)
        };
        ensure!(reports.iter().all(covered), "a program did not see all packets\n{log}");
        Ok(())
    }
}

fn restarts_lose_no_packet() -> Result<()> {
    let outcome = beside_traffic("systemctl restart weir", (Duration::from_millis(400), 95))?;
    outcome.is_whole()?;
    account::check(&outcome.reports, Loss::None).context(outcome.log.clone())?;
    // No flow is new twice.
    let new: u64 = outcome.reports.iter().filter_map(|report| report["new_flows"]["lower"].as_u64()).sum();
    ensure!(new <= outcome.flows, "{new} of {} flows are new\n{}", outcome.flows, outcome.log);
    Ok(())
}

fn what_a_killed_weir_had_read_is_declared() -> Result<()> {
    let outcome = beside_traffic("systemctl kill -s KILL weir", (Duration::from_millis(700), 96))?;
    outcome.is_whole()?;
    let lost = account::check(&outcome.reports, Loss::Provoked(&["restart"])).context(outcome.log.clone())?.all_lost();
    ensure!(lost.packets < outcome.sent.packets, "{lost:?} of {:?} are lost", outcome.sent);
    let without: u64 = outcome.reports.iter().map(|report| number(&report["totals"]["packets"])).sum::<Result<_>>()?;
    ensure!(without >= outcome.sent.packets, "what is lost is counted in totals, too");
    Ok(())
}
