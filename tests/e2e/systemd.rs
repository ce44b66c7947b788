//! The unit that ships: systemd accepts it, its exposure is as low as promised, and a real systemd runs weir with it.

use std::{
    collections::BTreeMap,
    env, fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::thread::CapabilitySet;
use serde_json::Value;
use weir_datapath::probe_tcx;
use weir_tests::{
    account::Loss,
    clock,
    collector::Collector,
    daemon::weir_binary,
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan, Traffic},
};

use self::{
    machine::Installed,
    service::{INTERFACE, Service, run_of},
};
use crate::watch::{self, Ended, QUIET_LINK, TIMEOUT, check_accounts, judge, modes, number};

pub mod machine;
pub mod service;

tests![the_unit_is_understood, the_unit_exposes_little];

/// The tests that boot their own systemd.
pub const IN_A_MACHINE: &[crate::Test] = &[
    ("it_is_started_killed_restarted_and_stopped", it_is_started_killed_restarted_and_stopped),
    ("an_interface_that_comes_late_is_measured", an_interface_that_comes_late_is_measured),
    ("it_starts_at_boot_and_reports_to_a_collector", it_starts_at_boot_and_reports_to_a_collector),
];

const ANALYZE: &str = "systemd-analyze";

/// Why the unit cannot be checked here.
pub fn requirements() -> Result<(), String> {
    let found = Command::new(ANALYZE).arg("--version").output();
    found.map(drop).map_err(|error| format!("{ANALYZE} (Debian: apt-get install systemd): {error}"))
}

/// Why no systemd can be booted here.
pub fn machine_requirements() -> Result<(), String> {
    weir_tests::netns::requirements().and_then(|()| machine::requirements())
}

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/weir.service")
}

fn the_unit_is_understood() -> Result<()> {
    let text = fs::read_to_string(unit())?;
    // The binary is not installed, so the unit names the one that was built.
    let (installed, built) = ("/usr/bin/weir", weir_binary()?.canonicalize()?);
    ensure!(text.contains(&format!("ExecStart={installed} run")), "ExecStart= is another one");
    let scratch = Scratch::new()?;
    let copy = scratch.file("weir.service");
    fs::write(&copy, text.replace(installed, &built.display().to_string()))?;
    let ended = Ended::of(Command::new(ANALYZE).arg("verify").arg(&copy))?;
    ended.check(0, &[])?;
    ensure!(ended.err.is_empty() && ended.out.is_empty(), "it has something to say:\n{}{}", ended.err, ended.out);
    Ok(())
}

fn the_unit_exposes_little() -> Result<()> {
    /// The maximum exposure in tenths: 1.7 out of 10.
    const EXPOSURE_MAX: &str = "--threshold=17";
    let ended = Ended::of(Command::new(ANALYZE).args(["security", "--offline=true", EXPOSURE_MAX]).arg(unit()))?;
    let verdict = ended.out.lines().last().context("it judged nothing")?;
    ensure!(ended.code == Some(0), "{verdict}{}", ended.err);
    Ok(())
}

/// Starts, kills, restarts and stops the service. Each packet of a run that is stopped normally is in a report, a crash
/// is followed by a new run, and nothing is left on the interface in the end.
fn it_is_started_killed_restarted_and_stopped() -> Result<()> {
    let config = format!(
        "interfaces: [{{name: {INTERFACE}, mode: native, direction: both}}]\n\
         report: {{interval: 1s}}\n\
         hash_key: {{file: /run/credentials/weir.service/hash.key}}\n\
         sinks: [{{type: file, path: /var/lib/weir/reports.ndjson}}]\n"
    );
    // As in the unit's comment and in config/examples/fleet.yaml, root owns the key, and systemd passes it on.
    let drop_in = "[Service]\nLoadCredential=hash.key:/etc/weir/hash.key\n";
    let key = "8f3c1a7be02d4965b1fe7730c4a9d258\n";
    let machine = service::boot(
        &config,
        &[
            Installed { path: "etc/systemd/system/weir.service.d/key.conf", content: drop_in.as_bytes(), mode: 0o644 },
            Installed { path: "etc/weir/hash.key", content: key.as_bytes(), mode: 0o600 },
        ],
    )?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    let service = Service { machine: &machine, observer: &pair.observer };

    machine.done("systemctl start weir")?;
    service.expect_attached(true).context("when systemd says that it is started")?;
    let first = service.reports_of(None)?;
    service.sees_the_tc_hook_only()?;
    service.expect_closed_in()?;
    service.reloads(&config)?;
    let first = service.measures(&pair, 91, &first)?;

    let killed = service.kill()?;
    // Filters of the classic tc hook are removed, before Linux 6.6.
    if probe_tcx()? {
        service.expect_attached(true).context("after it was killed")?;
    }
    service.wait_for_other(&killed)?;
    ensure!(service.property("NRestarts")? == "1", "{} restarts", service.property("NRestarts")?);
    service.expect_attached(true).context("after the restart")?;
    let second = service.reports_of(Some(&first))?;
    let second = service.measures(&pair, 92, &second)?;

    machine.done("systemctl stop weir")?;
    let state = ["ActiveState", "Result", "ExecMainStatus"].map(|name| service.property(name));
    let state = state.into_iter().collect::<Result<Vec<_>>>()?;
    ensure!(state == ["inactive", "success", "0"], "{state:?}\n{}", machine.log());
    service.expect_attached(false).context("after it was stopped")?;
    let after = service.reports()?;
    ensure!(after.last().is_some_and(|report| run_of(report) == second), "the last report is another run's");
    one_key_a_day(&after)?;
    // Packets are still forwarded.
    watch::send(&pair, QUIET_LINK, Traffic::new(Plan::default())?, Pace::Unlimited, &mut Oracle::new()).map(drop)
}

/// All runs use the key from the file, so there is one derived key for each day.
fn one_key_a_day(reports: &[Value]) -> Result<()> {
    let mut keys = BTreeMap::new();
    for report in reports {
        let day = report["window"]["start"].as_str().and_then(|start| start.split_once('T'));
        let (day, _) = day.with_context(|| format!("no day in {}", report["window"]))?;
        let key_id = keys.entry(day).or_insert(&report["key_id"]);
        ensure!(*key_id == &report["key_id"], "{} and {key_id} on {day}", report["key_id"]);
    }
    Ok(())
}

/// After how long the interface appears: some windows, or the seconds in `WEIR_LATE`.
fn late() -> Result<Duration> {
    const SECONDS: u64 = 3;
    let told = env::var("WEIR_LATE").ok();
    let seconds = told.map_or(Ok(SECONDS), |told| told.parse().with_context(|| format!("WEIR_LATE={told}")))?;
    Ok(Duration::from_secs(seconds))
}

/// At boot an interface may not exist yet. weir starts without it, gives up its capabilities, and attaches to it later.
fn an_interface_that_comes_late_is_measured() -> Result<()> {
    let config = format!(
        "interfaces: [{{name: {INTERFACE}, mode: native, direction: both}}]\n\
         report: {{interval: 1s}}\n\
         sinks: [{{type: file, path: /var/lib/weir/reports.ndjson}}]\n"
    );
    let machine = service::boot(&config, &[])?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    let service = Service { machine: &machine, observer: &pair.observer };
    let rename = |from: &str, to: &str| -> Result<()> {
        // Before Linux 6.2 an interface has to be down to be renamed.
        for change in [format!("{from} down"), format!("{from} name {to}"), format!("{to} up")] {
            pair.observer.ip(&format!("link set {change}"))?;
        }
        pair.observer.wait_until_up(to)
    };
    rename(INTERFACE, "later0")?;
    machine.done("systemctl start weir")?;
    service.reports_of(None)?;
    thread::sleep(late()?);
    service.sees_the_tc_hook_only()?;
    rename("later0", INTERFACE)?;
    let attached = || Ok(service.expect_attached(true).ok());
    clock::wait_for("programs on the interface", TIMEOUT, attached).with_context(|| machine.log())?;
    let plan = Plan { seed: 94, packets: 5_000, mix: Mix::odd(), ..Plan::default() };
    let mut oracle = Oracle::new();
    let sent = watch::send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
    let all_seen =
        || Ok((watch::seen_in(INTERFACE, "ingress", &service.reports()?)?.packets >= sent.packets).then_some(()));
    clock::wait_for("reports of all packets", TIMEOUT, all_seen).with_context(|| machine.log())?;
    machine.done("systemctl stop weir")?;
    service.expect_attached(false).context("after it was stopped")?;
    let reports = service.reports()?;
    check_accounts(&reports, Loss::None).with_context(|| machine.log())?;
    judge("packets after the late start", oracle.check_reports(&reports)).with_context(|| machine.log())?;
    let modes = modes(INTERFACE, &reports);
    ensure!(modes.contains(&"absent") && modes.contains(&"xdp-native"), "{modes:?}");
    ensure!(reports.iter().map(run_of).all(|run| run == run_of(&reports[0])), "it was started again");
    Ok(())
}

/// A router boots: systemd starts weir, the interface does not exist yet, and the collector does not answer. Later both
/// are there. Each report arrives once, including those that were made before.
fn it_starts_at_boot_and_reports_to_a_collector() -> Result<()> {
    let port = 9_400;
    let config = format!(
        "interfaces: [{{name: {INTERFACE}, mode: native, direction: both}}]\n\
         report: {{interval: 1s}}\n\
         sinks: [{{type: file, path: /var/lib/weir/reports.ndjson}}, {{type: http, url: 'http://127.0.0.1:{port}/'}}]\n"
    );
    let mut machine = service::boot(&config, &[])?;
    machine.done("systemctl enable weir")?;
    machine.reboot()?;
    machine.done("systemctl is-active weir")?;
    let pair = Lab::quiet_pair_to(machine.init())?;
    let service = Service { machine: &machine, observer: &pair.observer };
    let run = service.reports_of(None)?;
    let collector = pair.observer.enter(|| Collector::listen((Ipv4Addr::LOCALHOST, port).into()))??;
    let attached = || Ok(service.expect_attached(true).ok());
    clock::wait_for("programs on the interface", TIMEOUT, attached).with_context(|| machine.log())?;
    service.measures(&pair, 97, &run)?;
    machine.done("systemctl stop weir")?;
    service.expect_attached(false).context("after it was stopped")?;
    let reports = service.reports()?;
    ensure!(reports.iter().all(|report| run_of(report) == run), "more than one run\n{}", machine.log());
    let received = collector.wait_for(reports.len(), TIMEOUT).with_context(|| machine.log())?;
    let received: Vec<_> = received.into_iter().map(|received| received.report).collect();
    ensure!(received == reports, "the collector has others than the file: {}, {}", received.len(), reports.len());
    Ok(())
}

impl Service<'_> {
    /// Checks the capabilities of each thread once weir measures, from Linux 6.6 on: only the one for seeing which
    /// programs run before weir's at the tc hook is left.
    fn sees_the_tc_hook_only(&self) -> Result<()> {
        if !probe_tcx()? {
            return Ok(());
        }
        let threads = self.machine.path(&format!("proc/{}/task", self.property("MainPID")?));
        for thread in fs::read_dir(&threads)? {
            let status = fs::read_to_string(thread?.path().join("status"))?;
            let sets = status.lines().filter(|line| line.starts_with("Cap") && !line.starts_with("CapBnd"));
            let given_up = sets.clone().all(|line| {
                let (_, set) = line.split_once('\t').unwrap_or_default();
                u64::from_str_radix(set, 16).is_ok_and(|set| set & !CapabilitySet::NET_ADMIN.bits() == 0)
            });
            ensure!(given_up && sets.count() == 4, "a thread has capabilities:\n{status}\n{}", self.machine.log());
        }
        Ok(())
    }

    /// Checks that the unit lets weir give up what it does not need.
    fn expect_closed_in(&self) -> Result<()> {
        let journal = self.machine.done("journalctl --no-pager --unit=weir")?;
        ensure!(!journal.contains("keeps all system calls"), "{journal}");
        ensure!(!weir_system::sandbox::is_known() || !journal.contains("keeps access to all files"), "{journal}");
        Ok(())
    }

    /// Reloads another configuration and refuses a wrong one, without ending this run.
    fn reloads(&self, config: &str) -> Result<()> {
        let Self { machine, .. } = self;
        let (path, pid) = (machine.path("etc/weir/weir.yaml"), self.property("MainPID")?);
        fs::write(&path, format!("{config}views: [{{name: reloaded, by: [vlan]}}]\n"))?;
        machine.done("systemctl reload weir")?;
        let reloaded = || {
            let views = self.reports()?.last().and_then(|report| report["views"].as_array().cloned());
            Ok(views.iter().flatten().any(|view| view["name"] == "reloaded").then_some(()))
        };
        clock::wait_for("a report with the new view", TIMEOUT, reloaded).with_context(|| machine.log())?;
        fs::write(&path, format!("{config}report: {{interval: 7s}}\n"))?;
        let refused = machine.run("systemctl reload weir")?;
        ensure!(refused.code != Some(0), "systemd did not notice that the configuration is wrong");
        let log = machine.log();
        ensure!(log.contains("weir.yaml:5:") || log.contains("weir.yaml:6:"), "no place of the mistake:\n{log}");
        fs::write(&path, config)?;
        let states = [self.property("ActiveState")?, self.property("MainPID")?];
        ensure!(states == ["active".to_owned(), pid], "{states:?}\n{log}");
        let status = self.property("StatusText")?;
        ensure!(status.contains(INTERFACE) && status.contains("pkt/s"), "{status}");
        self.expect_attached(true).context("after reloads")
    }

    /// The run that reports now, which must differ from `before`.
    fn reports_of(&self, before: Option<&str>) -> Result<String> {
        let found = clock::wait_for("a report of this run", TIMEOUT, || {
            let run = self.reports()?.last().map(run_of);
            Ok(run.filter(|run| Some(run.as_str()) != before))
        });
        found.with_context(|| self.machine.log())
    }

    /// Sends packets, and waits until this run has reported exactly these. Returns the run.
    fn measures(&self, pair: &QuietPair, seed: u64, run: &str) -> Result<String> {
        let mut oracle = Oracle::new();
        let plan = Plan { seed, packets: 5_000, mix: Mix::odd(), ..Plan::default() };
        let sent = watch::send(pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
        let reports = clock::wait_for("reports of all packets", TIMEOUT, || {
            let reports: Vec<_> = self.reports()?.into_iter().filter(|report| run_of(report) == run).collect();
            let seen: u64 = reports.iter().map(|report| number(&report["totals"]["packets"])).sum::<Result<_>>()?;
            Ok((seen >= sent.packets).then_some(reports))
        });
        let reports = reports.with_context(|| self.machine.log())?;
        check_accounts(&reports, Loss::None)?;
        judge(format_args!("run {run}"), oracle.check_reports(&reports))?;
        let modes = modes(INTERFACE, &reports);
        let sent = if probe_tcx()? { "tcx" } else { "tc" };
        // At boot the interface may appear after the first window. A window may also end between the two attachments.
        let attached: Vec<_> =
            modes.chunks(2).skip_while(|modes| modes.iter().any(|mode| ["absent", "waiting"].contains(mode))).collect();
        ensure!(!attached.is_empty() && attached.iter().all(|modes| *modes == ["xdp-native", sent]), "{modes:?}");
        Ok(run.to_owned())
    }
}
