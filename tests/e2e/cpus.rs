//! CPUs go offline and come back, and weir may not use some of them. Every packet is still in the ledger.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_datapath::{Cpus, pin};
use weir_tests::{
    account::Loss,
    clock,
    daemon::Signal,
    inject::{self, Pace},
    netns::{self, QuietPair},
    oracle::Oracle,
    traffic::{Packet, Plan, Traffic},
};

use crate::watch::{INTERVAL, ROOMY_RINGS, TIMEOUT, Watch, judge, number, seen_on};

alone![
    records_of_a_cpu_that_went_offline_are_reported,
    a_cpu_that_comes_later_is_measured_from_its_first_packet_on,
    an_affinity_smaller_than_the_machine_is_no_reason_to_stop
];

/// The CPU that is switched off and on.
const CPU: u32 = 1;
const SWITCH: &str = "/sys/devices/system/cpu/cpu1/online";
const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// These tests need namespaces, and a CPU that may be switched off.
pub fn requirements() -> Result<(), String> {
    netns::requirements()?;
    let cpus = Cpus::of_this_machine().map_err(|error| error.to_string())?;
    if !cpus.online.contains(&CPU) {
        return Err(format!("CPU {CPU} is not online"));
    }
    if fs::metadata(SWITCH).is_err() {
        return Err(format!("this machine cannot switch a CPU off: there is no {SWITCH}"));
    }
    Ok(())
}

/// A CPU that is offline until this is dropped.
struct Offline;

impl Offline {
    fn new() -> Result<Self> {
        fs::write(SWITCH, "0").with_context(|| format!("cannot switch CPU {CPU} off"))?;
        Ok(Self)
    }

    fn end(self) {
        drop(self);
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        fs::write(SWITCH, "1").expect("a CPU that went offline comes back");
    }
}

/// A control group that has only CPU 0. Unlike an affinity, a process cannot leave it by itself.
struct Cpuset(PathBuf);

impl Cpuset {
    /// Creates the group; `None` unless the machine has cpusets of cgroups version 1.
    fn new() -> Result<Option<Self>> {
        let all = Path::new("/sys/fs/cgroup/cpuset");
        if !all.join("cpuset.cpus").exists() {
            return Ok(None);
        }
        let own = Self(all.join(format!("weir-test-{}", std::process::id())));
        fs::create_dir(&own.0)?;
        fs::write(own.0.join("cpuset.cpus"), "0")?;
        fs::write(own.0.join("cpuset.mems"), fs::read_to_string(all.join("cpuset.mems"))?)?;
        Ok(Some(own))
    }

    /// Moves this thread into the group, and with it everything that the thread starts.
    fn enter(&self) -> Result<()> {
        Ok(fs::write(self.0.join("tasks"), "0")?)
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        // A process that has just ended may still be in it: then the next attempt succeeds.
        let removed = clock::wait_for("an empty cpuset", TIMEOUT, || Ok(fs::remove_dir(&self.0).ok()));
        removed.expect("no process stays in it");
    }
}

/// Sends packets from a CPU, which then receives them as well.
pub fn send_on(cpu: u32, watch: &Watch, plan: Plan, oracle: &mut Oracle) -> Result<Tally> {
    let arrived = || anyhow::Ok(watch.pair.observer.counters(INTERFACE)?.received.packets);
    let before = arrived()?;
    let packets: Vec<Packet> = Traffic::new(plan)?.collect();
    for packet in &packets {
        oracle.add(&packet.truth);
    }
    let send = || {
        pin(cpu)?;
        inject::send(QuietPair::GENERATOR_INTERFACE, packets, Pace::Unlimited)
    };
    let sending = thread::scope(|scope| scope.spawn(|| watch.pair.generator.enter(send)).join());
    let sent = sending.expect("sending does not panic")??;
    let all = || Ok((arrived()? - before >= sent.packets).then_some(()));
    clock::wait_for("the arrival of all packets", TIMEOUT, all)?;
    Ok(sent)
}

/// Checks that no window is missing.
pub fn check_numbers(reports: &[Value]) -> Result<()> {
    let numbers: Result<Vec<_>> = reports.iter().map(|report| number(&report["observer"]["seq"])).collect();
    let numbers = numbers?;
    ensure!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    Ok(())
}

fn records_of_a_cpu_that_went_offline_are_reported() -> Result<()> {
    let mut watch = Watch::start(&format!("{INTERVAL}{ROOMY_RINGS}"))?;
    let mut oracle = Oracle::new();
    let mut sent = Tally::default();
    for seed in [31, 32] {
        let plan = |packets| Plan { seed, packets, flows: 300, ..Plan::default() };
        // There are only a few flows, so almost all packets are still in the CPU's cache when it goes offline.
        sent.add(send_on(CPU, &watch, plan(4_000), &mut oracle)?);
        let offline = Offline::new()?;
        let reported = watch.daemon.reports()?.len();
        sent.add(send_on(0, &watch, plan(3_000), &mut oracle)?);
        // Waits for a whole window without that CPU.
        watch.daemon.wait_for_reports(reported + 3, TIMEOUT)?;
        let seen = seen_on(INTERFACE, &watch.daemon.reports()?)?;
        ensure!(seen == sent, "{seen:?} of {sent:?} were reported while the CPU was away");
        offline.end();
        sent.add(send_on(CPU, &watch, plan(2_000), &mut oracle)?);
        // The CPU goes offline again before its window ends.
        Offline::new()?.end();
        sent.add(send_on(CPU, &watch, plan(1_000), &mut oracle)?);
    }
    let reports = watch.stop(Loss::None)?;
    ensure!(seen_on(INTERFACE, &reports)? == sent, "{:?} of {sent:?}", seen_on(INTERFACE, &reports)?);
    check_numbers(&reports)?;
    judge("all windows together", oracle.check_reports(&reports))
}

fn a_cpu_that_comes_later_is_measured_from_its_first_packet_on() -> Result<()> {
    let offline = Offline::new()?;
    let mut watch = Watch::start(&format!("{INTERVAL}{ROOMY_RINGS}"))?;
    let mut oracle = Oracle::new();
    // weir is stopped and cannot notice the CPU until all packets have come, with many more flows than the cache holds.
    watch.daemon.signal(Signal::STOP)?;
    offline.end();
    let plan = Plan { seed: 33, packets: 60_000, flows: 40_000, zipf: 0.2, ..Plan::default() };
    let mut sent = send_on(CPU, &watch, plan, &mut oracle)?;
    watch.daemon.signal(Signal::CONT)?;
    watch.daemon.wait_for_line("a CPU came", TIMEOUT)?;
    let reported = watch.daemon.reports()?.len();
    watch.daemon.wait_for_reports(reported + 2, TIMEOUT)?;
    sent.add(send_on(CPU, &watch, Plan { seed: 34, ..plan }, &mut oracle)?);
    let reports = watch.stop(Loss::None)?;
    ensure!(seen_on(INTERFACE, &reports)? == sent, "{:?} of {sent:?}", seen_on(INTERFACE, &reports)?);
    check_numbers(&reports)?;
    judge("all windows together", oracle.check_reports(&reports))
}

fn an_affinity_smaller_than_the_machine_is_no_reason_to_stop() -> Result<()> {
    // The daemon inherits the CPU affinity of its parent.
    let cpuset = Cpuset::new()?;
    let start = || {
        match &cpuset {
            Some(cpuset) => cpuset.enter()?,
            None => pin(0)?,
        }
        Watch::start(&format!("{INTERVAL}{ROOMY_RINGS}"))
    };
    let watch = thread::scope(|scope| scope.spawn(start).join()).expect("starting does not panic")?;
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 35, packets: 20_000, ..Plan::default() };
    let mut sent = send_on(CPU, &watch, plan, &mut oracle)?;
    sent.add(send_on(0, &watch, plan, &mut oracle)?);
    let reports = watch.stop(Loss::None)?;
    ensure!(seen_on(INTERFACE, &reports)? == sent, "{:?} of {sent:?}", seen_on(INTERFACE, &reports)?);
    judge("all windows together", oracle.check_reports(&reports))
}
