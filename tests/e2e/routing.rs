//! A router forwards numbered packets while its weir is started, restarted, reloaded, killed and stopped under a real
//! systemd. Each packet arrives exactly once. Between the start and the stop the programs stay attached, and each
//! packet is in exactly one report, or is declared lost with a killed weir.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    forwarded::{PORT, Passed, through},
    netns::Lab,
};

use crate::{
    handover::at_once,
    systemd::{
        machine::Machine,
        service::{self, Service},
    },
    watch::{self, TIMEOUT, check_accounts, has_program, list},
};

alone![forwarding_never_notices_weir];

/// How often weir is restarted and killed, unless `scripts/soak handover` sets another number. It is reloaded ten times
/// as often.
const TIMES: u32 = 3;
/// How long weir measures before it is killed.
const LIFE: Duration = Duration::from_millis(300);
/// Where the packets come in.
const WAN: &str = Lab::router_interfaces()[0];
const CONFIG: &str = "etc/weir/weir.yaml";

/// Windows of a second, and a view of only the numbered packets. `top` makes configurations differ.
fn settings(top: u32) -> String {
    let interfaces = Lab::router_interfaces().map(watch::native).join(", ");
    format!(
        "interfaces: [{interfaces}]\n\
         report: {{interval: 1s, top: {top}}}\n\
         datapath: {{ring: 4 MiB}}\n\
         views: [{{name: numbered, match: {{proto: udp, dst_port: {PORT}}}, by: [interface], measure: packets}}]\n\
         sinks: [{{type: file, path: /var/lib/weir/reports.ndjson}}]\n"
    )
}

fn forwarding_never_notices_weir() -> Result<()> {
    let times = watch::times().unwrap_or(TIMES);
    let machine = service::boot(&settings(10), &[at_once()])?;
    let lab = Lab::around_process(machine.init())?;
    let service = Service { machine: &machine, observer: &lab.router };
    let quiet = through(&lab, || {
        thread::sleep(Duration::from_secs(1));
        Ok(())
    })?;
    ensure!(quiet.expect_whole(), "this machine loses packets without weir: {quiet}");
    let started = through(&lab, || machine.done("systemctl start weir").map(drop))?;
    ensure!(started.expect_whole(), "while weir starts: {started}\n{}", machine.log());
    all_reported(&service, 0)?;
    let first = service.reports()?.len();

    let gentle = beside(&lab, &machine, || {
        for nth in 0..times {
            machine.done("systemctl restart weir")?;
            for reload in 0..10 {
                fs::write(machine.path(CONFIG), settings(10 + (nth + reload) % 3))?;
                machine.done("systemctl reload weir")?;
            }
        }
        Ok(())
    })?;
    all_reported(&service, first)?;
    let reports = service.reports()?;
    check_accounts(&reports, Loss::None).with_context(|| machine.log())?;
    let counted = numbered(&reports[first..])?;
    ensure!(counted == gentle.sent, "{gentle}; {counted} are in reports\n{}", machine.log());

    let killed = beside(&lab, &machine, || {
        (0..times).try_for_each(|_| {
            thread::sleep(LIFE);
            let before = service.property("MainPID")?;
            machine.done("systemctl kill -s KILL weir")?;
            service.wait_for_other(&before).map(drop)
        })
    })?;
    all_reported(&service, reports.len())?;
    let all = service.reports()?;
    let stopped = through(&lab, || machine.done("systemctl stop weir").map(drop))?;
    ensure!(stopped.expect_whole(), "while weir stops: {stopped}\n{}", machine.log());
    for interface in Lab::router_interfaces() {
        ensure!(!has_program(&lab.router, interface)?, "there is a program on {interface} after weir was stopped");
    }
    let reports = &all[reports.len()..];
    check_accounts(reports, Loss::Possible(&["restart"])).with_context(|| machine.log())?;
    let (counted, lost) = (numbered(reports)?, lost_with_killed(reports)?);
    let missing = reports.iter().zip(&reports[1..]).filter(|(before, after)| after["previous"] != before["id"]).count();
    ensure!(counted <= killed.sent, "{killed}; {counted} are in reports: some twice\n{}", machine.log());
    // A weir may be killed before its report is on disk; the next report then names the missing one.
    ensure!(missing <= 1 + times as usize / 20, "{missing} reports are missing\n{}", machine.log());
    ensure!(
        missing > 0 || counted + lost >= killed.sent,
        "{killed}; {counted} are in reports and {lost} declared to be lost\n{}",
        machine.log()
    );
    Ok(())
}

/// Sends numbered packets while something happens to weir. Each of them must arrive, and programs must be attached at
/// each moment.
fn beside(lab: &Lab, machine: &Machine, happens: impl FnOnce() -> Result<()>) -> Result<Passed> {
    let is_over = AtomicBool::new(false);
    let passed = thread::scope(|scope| {
        let watcher = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                for interface in Lab::router_interfaces() {
                    ensure!(has_program(&lab.router, interface)?, "{interface} has no program\n{}", machine.log());
                }
                thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        });
        let passed = through(lab, happens);
        is_over.store(true, Ordering::Relaxed);
        watcher.join().expect("it does not panic")?;
        passed
    })
    .with_context(|| machine.log())?;
    ensure!(passed.expect_whole(), "{passed}\n{}", machine.log());
    Ok(passed)
}

/// Waits for two whole windows without a numbered packet after the first `after` reports: then everything has been
/// reported.
fn all_reported(service: &Service<'_>, after: usize) -> Result<()> {
    let is_quiet = || {
        let reports = service.reports()?;
        Ok((reports.len() > after + 2 && numbered(&reports[reports.len() - 2..])? == 0).then_some(()))
    };
    clock::wait_for("reports of all packets", TIMEOUT, is_quiet).with_context(|| service.machine.log())
}

/// Numbered packets that came in, as the reports count them.
fn numbered(reports: &[Value]) -> Result<u64> {
    let mut all = 0;
    for report in reports {
        let view =
            list(&report["views"])?.iter().find(|view| view["name"] == "numbered").context("the view is missing")?;
        for row in list(&view["rows"])?.iter().filter(|row| row["interface"] == WAN) {
            all += row["packets"]["value"].as_u64().with_context(|| format!("no packets in {row}"))?;
        }
    }
    Ok(all)
}

/// Packets that came in and that a killed weir had read.
fn lost_with_killed(reports: &[Value]) -> Result<u64> {
    let mut lost = 0;
    for report in reports {
        for interface in list(&report["interfaces"])?.iter().filter(|interface| interface["name"] == WAN) {
            lost += interface["ledger"]["lost"]["restart"]["packets"].as_u64().context("no account of restarts")?;
        }
    }
    Ok(lost)
}
