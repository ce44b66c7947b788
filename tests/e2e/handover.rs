//! The handover from one weir to the next under a real systemd: restarts and crashes during traffic. The programs stay
//! on the interface, and each packet is in exactly one report, or is declared lost with the killed weir.

use std::{
    collections::BTreeSet,
    fs,
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
    netns::{Lab, QuietPair},
    oracle::{Dimension, Oracle},
    traffic::{Plan, Traffic},
};

use crate::{
    systemd::{
        machine::Installed,
        service::{self, INTERFACE, Service, run_of},
    },
    watch::{self, QUIET_LINK, TIMEOUT, check_accounts, seen_in},
};

alone![restarts_lose_no_packet, packets_that_a_killed_weir_had_read_are_declared];
tests![a_start_that_fails_detaches_nothing, a_weir_that_hangs_is_ended_and_the_next_one_goes_on];

/// Packets a second during restarts.
pub const RATE: u32 = 20_000;
/// How often weir is restarted in a test, unless `scripts/soak handover` sets another number.
const TIMES: u32 = 8;
/// About how long weir takes to start again.
const ABOUT_A_START: Duration = Duration::from_millis(700);

/// The results of a test run.
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
    settings_of(&format!("{{name: {INTERFACE}, mode: native, direction: both}}"))
}

/// A drop-in for the unit: systemd restarts weir at once.
pub const fn at_once() -> Installed<'static> {
    const AT_ONCE: &str = "[Service]\nRestartSec=50ms\n";
    Installed { path: "etc/systemd/system/weir.service.d/at-once.conf", content: AT_ONCE.as_bytes(), mode: 0o644 }
}

/// Settings that measure these interfaces, in windows of a second.
pub fn settings_of(interfaces: &str) -> String {
    format!(
        "interfaces: [{interfaces}]\n\
         report: {{interval: 1s}}\n\
         datapath: {{ring: 4 MiB}}\n\
         sinks: [{{type: file, path: /var/lib/weir/reports.ndjson}}]\n"
    )
}

/// Sends packets while the command `end` restarts or kills weir again and again. Stops weir when all packets are
/// reported. A program must be on the interface at each moment until then, and none after that.
fn beside_traffic(end: &str, (pause, seed): (Duration, u64)) -> Result<Outcome> {
    let machine = service::boot(&settings(), &[at_once()])?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    let service = Service { machine: &machine, observer: &pair.observer };
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
                service.expect_attached(true)?;
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
    // After two whole windows without a packet, everything has been reported.
    let is_quiet = || {
        let reports = service.reports()?;
        Ok((reports.len() > 2 && seen(&reports[reports.len() - 2..])? == 0).then_some(()))
    };
    let found = clock::wait_for("reports of all packets", TIMEOUT, is_quiet);
    machine.done("systemctl stop weir")?;
    service.expect_attached(false).context("after it was stopped")?;
    let (reports, log) = (service.reports()?, machine.done("journalctl --no-pager --unit=weir")?);
    found.with_context(|| log.clone())?;
    check_accounts(&reports, Loss::Possible(&["restart"])).context(log.clone())?;
    Ok(Outcome { sent, flows: oracle.distinct(Dimension::Flows), reports, log })
}

fn seen(reports: &[Value]) -> Result<u64> {
    Ok(seen_in(INTERFACE, "ingress", reports)?.packets)
}

impl Outcome {
    /// Each packet is in exactly one report, each report follows the one before, and windows have no gap. Up to
    /// `missing_most` reports may be missing, which a killed weir had made and not delivered; the next report names its
    /// predecessor.
    fn expect_whole(&self, missing_most: usize) -> Result<()> {
        let Self { sent, flows: _, reports, log } = self;
        let mut missing = 0;
        for (before, after) in reports.iter().zip(&reports[1..]) {
            if after["previous"] != before["id"] {
                missing += 1;
                continue;
            }
            let (end, start) = (&before["window"]["end"], &after["window"]["start"]);
            ensure!(end == start, "a gap between windows, from {end} to {start}\n{log}");
        }
        ensure!(missing <= missing_most, "{missing} reports are missing\n{log}");
        let received = seen_in(INTERFACE, "ingress", reports)?;
        // A missing report may be of a second without packets.
        let all = if missing == 0 { received == *sent } else { received.packets <= sent.packets };
        ensure!(all, "{sent:?} were sent and {received:?} are in reports, of which {missing} are missing\n{log}");
        // A weir that is killed early has no report.
        let runs: BTreeSet<_> = reports.iter().map(run_of).collect();
        ensure!(runs.len() > times() as usize / 4, "only {} runs have reported\n{log}", runs.len());
        let keys: BTreeSet<_> = reports.iter().map(|report| report["key_id"].to_string()).collect();
        // The test may run over midnight.
        ensure!(keys.len() <= 2, "{} keys: seen flows are no longer known", keys.len());
        for one in reports.iter().filter_map(|report| report["interfaces"].as_array()).flatten() {
            let coverage = one["coverage"].as_f64();
            ensure!(coverage.is_none_or(|coverage| coverage > 0.1), "hardly any packets were seen: {one}\n{log}");
        }
        let whole = account::coverage(reports)?;
        ensure!(whole > 0.98, "coverage {whole} over all windows\n{log}");
        ensure!(!log.contains("did not see"), "a false alarm\n{log}");
        Ok(())
    }
}

fn restarts_lose_no_packet() -> Result<()> {
    let outcome = beside_traffic("systemctl restart weir", (Duration::from_millis(400), 95))?;
    outcome.expect_whole(0)?;
    account::check(&outcome.reports, Loss::None).context(outcome.log.clone())?;
    // No flow is counted as new twice.
    let new: u64 = outcome.reports.iter().filter_map(|report| report["new_flows"]["lower"].as_u64()).sum();
    ensure!(new <= outcome.flows, "{new} of {} flows are new\n{}", outcome.flows, outcome.log);
    Ok(())
}

fn packets_that_a_killed_weir_had_read_are_declared() -> Result<()> {
    let outcome = beside_traffic("systemctl kill -s KILL weir", (Duration::from_millis(700), 96))?;
    // A report takes some milliseconds of each second to be delivered.
    outcome.expect_whole(1 + times() as usize / 20)?;
    let lost = account::check(&outcome.reports, Loss::Provoked(&["restart"])).context(outcome.log.clone())?.all_lost();
    ensure!(lost.packets < outcome.sent.packets, "{lost:?} of {:?} are lost", outcome.sent);
    Ok(())
}

/// The watchdog ends a weir that does not answer. The programs count the packets that come meanwhile, and the next weir
/// reports them.
fn a_weir_that_hangs_is_ended_and_the_next_one_goes_on() -> Result<()> {
    const WATCHDOG: &str = "[Service]\nWatchdogSec=3s\nTimeoutAbortSec=1s\nRestartSec=50ms\n";
    let path = "etc/systemd/system/weir.service.d/watchdog.conf";
    let machine = service::boot(&settings(), &[Installed { path, content: WATCHDOG.as_bytes(), mode: 0o644 }])?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    let service = Service { machine: &machine, observer: &pair.observer };
    machine.done("systemctl start weir")?;
    let mut all = 0;
    send((&service, &pair), 85, &mut all)?;
    let before = service.property("MainPID")?;
    // Waits longer than the watchdog does: it must not end a healthy weir.
    thread::sleep(Duration::from_secs(4));
    ensure!(service.property("MainPID")? == before, "the watchdog ended weir too soon\n{}", machine.log());
    machine.done("systemctl kill -s STOP weir")?;
    let plan = Plan { seed: 86, packets: 3_000, flows: 100, ..Plan::default() };
    all +=
        watch::send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(RATE), &mut Oracle::new())?.packets;
    service.wait_for_other(&before)?;
    service.expect_attached(true).context("after the watchdog")?;
    send((&service, &pair), 87, &mut all)?;
    let restarts = service.property("NRestarts")?;
    let log = machine.log();
    ensure!(restarts == "1" && log.contains("Watchdog timeout"), "{restarts} restarts\n{log}");
    machine.done("systemctl stop weir")?;
    let reports = service.reports()?;
    ensure!(seen(&reports)? == all, "{} of {all} packets are in reports\n{}", seen(&reports)?, machine.log());
    // The stopped weir had read no packets that it had not reported.
    check_accounts(&reports, Loss::Possible(&["restart"])).with_context(|| machine.log()).map(drop)
}

/// Sends some packets and waits until that many in all are in reports.
pub fn send((service, pair): (&Service<'_>, &QuietPair), seed: u64, all: &mut u64) -> Result<()> {
    let plan = Plan { seed, packets: 3_000, flows: 100, ..Plan::default() };
    let traffic = Traffic::new(plan)?;
    *all += watch::send(pair, QUIET_LINK, traffic, Pace::PacketsPerSecond(RATE), &mut Oracle::new())?.packets;
    let all_seen = || Ok((seen(&service.reports()?)? >= *all).then_some(()));
    clock::wait_for("reports of all packets", TIMEOUT, all_seen).with_context(|| service.machine.log())
}

fn a_start_that_fails_detaches_nothing() -> Result<()> {
    let machine = service::boot(&settings(), &[])?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    let service = Service { machine: &machine, observer: &pair.observer };
    machine.done("systemctl start weir")?;
    let mut all = 0;
    send((&service, &pair), 80, &mut all)?;
    // The driver of this interface has no native XDP.
    let wrong =
        settings_of(&format!("{{name: {INTERFACE}, mode: native, direction: both}}, {{name: lo, mode: native}}"));
    fs::write(machine.path("etc/weir/weir.yaml"), wrong)?;
    ensure!(machine.run("systemctl restart weir")?.code != Some(0), "it has started\n{}", machine.log());
    for _ in 0..2 {
        service.expect_attached(true).context("after a start that failed")?;
        thread::sleep(Duration::from_millis(1_500));
    }
    let plan = Plan { seed: 81, packets: 3_000, flows: 100, ..Plan::default() };
    let unseen = watch::send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(RATE), &mut Oracle::new())?;
    all += unseen.packets;
    let kept = |service: &Service<'_>| -> Result<u64> { Ok(service.property("NFileDescriptorStore")?.parse()?) };
    let before = kept(&service)?;
    thread::sleep(Duration::from_secs(3));
    ensure!(kept(&service)? <= before + 1, "each start leaves descriptors: {before}, {}", kept(&service)?);
    fs::write(machine.path("etc/weir/weir.yaml"), settings())?;
    machine.done("systemctl restart weir")?;
    send((&service, &pair), 82, &mut all)?;
    machine.done("systemctl stop weir")?;
    let reports = service.reports()?;
    ensure!(seen(&reports)? == all, "{} of {all} packets are in reports\n{}", seen(&reports)?, machine.log());
    check_accounts(&reports, Loss::None).with_context(|| machine.log()).map(drop)
}
