//! Once it measures, weir has given up all capabilities except for one that it may still need, and goes on that way.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use weir_tests::{
    account::Loss,
    clock,
    daemon::{Daemon, Signal},
    inject::Pace,
    netns::Lab,
    oracle::Oracle,
    traffic::{Mix, Plan, Traffic},
};

use crate::{
    following::link,
    reload::wait_until_in_force,
    watch::{self, INTERVAL, ROOMY_RINGS, TIMEOUT, config, measure, stop},
};

tests![without_capabilities_it_measures_what_comes_later, needed_capabilities_stay_and_are_logged];

/// Root's access to files of other users (`CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`). Threads that read or write files
/// keep it. A service does not have it.
const FILES: u64 = 0b110;
const NET_ADMIN: u64 = 1 << 12;

/// The effective capabilities of each thread, with its name. Fails if another set has more than these.
fn capabilities(pid: u32) -> Result<Vec<(String, u64)>> {
    let threads = PathBuf::from(format!("/proc/{pid}/task"));
    let mut all = Vec::new();
    for thread in fs::read_dir(&threads)? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim).with_context(|| format!("no {name} in {status}"))
        };
        let set = |name: &str| anyhow::Ok(u64::from_str_radix(value(name)?, 16)?);
        let effective = set("CapEff:")?;
        for other in ["CapPrm:", "CapInh:", "CapAmb:"] {
            ensure!(set(other)? & !effective == 0, "{}: {other} {}", value("Name:")?, value(other)?);
        }
        ensure!(value("NoNewPrivs:")? == "1", "{} may get new rights", value("Name:")?);
        all.push((value("Name:")?.to_owned(), effective));
    }
    Ok(all)
}

/// Checks the capabilities of every thread: only `keeper` may have `CAP_NET_ADMIN`. A thread gives up the others when
/// it first runs.
fn check(daemon: &Daemon, keeper: &str) -> Result<()> {
    let settled = || Ok(check_now(daemon, keeper).ok());
    clock::wait_for("threads without capabilities", TIMEOUT, settled).or_else(|_| check_now(daemon, keeper))
}

fn check_now(daemon: &Daemon, keeper: &str) -> Result<()> {
    let threads = capabilities(daemon.pid())?;
    ensure!(threads.iter().any(|(name, effective)| name == keeper && *effective == NET_ADMIN), "{threads:?}");
    for (name, effective) in threads {
        let allowed = match name.as_str() {
            _ if name == keeper => NET_ADMIN,
            "sink" | "weir-history" | "weir-local" | "weir-reload" | "weir-state" | "weir-usage" => FILES,
            _ => 0,
        };
        ensure!(effective & !allowed == 0, "{name} has {effective:x}, and may have {allowed:x}");
    }
    Ok(())
}

fn without_capabilities_it_measures_what_comes_later() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let interfaces = "{name: \"port*\", mode: native}, {name: \"late*\", mode: tcx}";
    let settings = |more: &str| format!("interfaces: [{interfaces}{more}]\n{INTERVAL}{ROOMY_RINGS}");
    let mut daemon = measure(&pair.observer, &settings(""))?;
    daemon.wait_for_line("keeps CAP_NET_ADMIN: to see which programs run before", TIMEOUT)?;
    check(&daemon, "weir-chains")?;
    let mut oracle = Oracle::new();
    let mut send = |names: [&str; 2], seed| {
        let plan = Plan { seed, packets: 4_000, mix: Mix::odd(), ..Plan::default() };
        watch::send(&pair, names, Traffic::new(plan)?, Pace::Unlimited, &mut oracle).map(drop)
    };
    for (names, seed) in [(["gen1", "port1"], 121), (["gen2", "late2"], 122)] {
        link(&pair, names)?;
        daemon.wait_for_line(&format!("attached interface={}", names[1]), TIMEOUT)?;
        send(names, seed)?;
    }
    // An interface that the first configuration did not name.
    link(&pair, ["gen3", "new3"])?;
    let directory = daemon.directory().to_owned();
    let text = config(&settings(", {name: new3, mode: native}"), &directory.join("reports.ndjson"));
    fs::write(directory.join("weir.yaml"), format!("{text}control: {{socket: none}}\n"))?;
    daemon.signal(Signal::HUP)?;
    wait_until_in_force(&daemon, 1)?;
    daemon.wait_for_line("attached interface=new3", TIMEOUT)?;
    send(["gen3", "new3"], 123)?;
    check(&daemon, "weir-chains")?;
    let reports = stop(&mut daemon, Loss::None)?;
    watch::judge("all windows together", oracle.check_reports(&reports))
}

fn needed_capabilities_stay_and_are_logged() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let mut daemon = measure(&pair.observer, &format!("interfaces: [{{name: \"port*\", mode: tc}}]\n{INTERVAL}"))?;
    daemon.wait_for_line("keeps CAP_NET_ADMIN: filters", TIMEOUT)?;
    check(&daemon, "weir-attach")?;
    link(&pair, ["gen1", "port1"])?;
    daemon.wait_for_line("attached interface=port1", TIMEOUT)?;
    stop(&mut daemon, Loss::None).map(drop)
}
