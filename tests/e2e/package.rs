//! The Debian packages in a small Debian with a real systemd: they are installed, upgraded and purged as an operator
//! would do it. `scripts/package --check` makes the packages and runs this.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_datapath::probe_tcx;
use weir_tests::{
    account::Loss,
    clock,
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan, Traffic},
};

use crate::{
    systemd::machine::{Installed, Machine},
    watch::{self, Ended, QUIET_LINK, TIMEOUT, check_accounts, judge, number},
};

tests![a_purge_removes_only_the_user_that_the_package_made];

/// The tests of the packages; none if the packages are not given.
pub fn of_packages() -> &'static [crate::Test] {
    const TESTS: &[crate::Test] = &[("it_is_installed_upgraded_and_purged", it_is_installed_upgraded_and_purged)];
    if package(WEIR).is_some() { TESTS } else { &[] }
}

/// Runs the package's last script where all files of the system that it could change are others.
fn a_purge_removes_only_the_user_that_the_package_made() -> Result<()> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/package/scripts/postrm");
    for (user, stays) in [
        ("weir:x:990:990:weir packet analytics:/:/usr/sbin/nologin", false),
        ("weir:x:990:990:weir packet analytics:/:/sbin/nologin", false),
        ("weir:x:1000:1000:Weir Smith,,,:/home/weir:/bin/bash", true),
        ("weir:x:990:990::/var/lib/weir:/usr/sbin/nologin", true),
        ("someone:x:990:990:weir packet analytics:/:/usr/sbin/nologin", true),
    ] {
        let id = user.split(':').nth(3).context("no group")?;
        let inside = format!(
            "set -e; for folder in /etc /run /var/lib; do mount -t tmpfs none $folder; done; \
             echo '{user}' >/etc/passwd; echo 'weir:x:{id}:' >/etc/group; touch /etc/shadow /etc/gshadow; \
             sh {script} purge >&2; cat /etc/passwd /etc/group"
        );
        let ended = Ended::of(Command::new("unshare").args(["--mount", "sh", "-c", &inside]))?;
        ended.check(0, &[])?;
        let left = if stays { format!("{user}\nweir:x:{id}:\n") } else { String::new() };
        ensure!(ended.out == left, "{user}:\n{}{}", ended.out, ended.err);
    }
    Ok(())
}

/// The variables that name the packages: of weir, and of its collector.
const WEIR: &str = "WEIR_DEB";
const COLLECTOR: &str = "WEIR_COLLECT_DEB";

/// A package that `scripts/package` made.
fn package(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from)
}

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
const CONFIG: &str = "etc/weir/weir.yaml";
const REPORTS: &str = "var/lib/weir/reports.ndjson";

fn it_is_installed_upgraded_and_purged() -> Result<()> {
    let [weir, collector] = [WEIR, COLLECTOR].map(|name| package(name).with_context(|| format!("no package: {name}")));
    let weir = weir?;
    let before = version_before(&weir)?;
    let (weir, collector) = (fs::read(weir)?, fs::read(collector?)?);
    let mut machine = Machine::boot(&[
        Installed { path: "root/before.deb", content: &before, mode: 0o644 },
        Installed { path: "root/smoke", content: include_bytes!("../../config/package/tests/smoke"), mode: 0o755 },
        Installed { path: "root/weir.deb", content: &weir, mode: 0o644 },
        Installed { path: "root/weir-collect.deb", content: &collector, mode: 0o644 },
    ])?;
    let pair = network_of(&machine)?;
    let before = files(&machine)?;

    let told = first_top_talker(&machine, &pair)?;
    let measured = format!("weir is measuring {INTERFACE} (");
    ensure!(told.contains(&measured) && told.contains("try `weir top`"), "{told}");
    ensure!(machine.done("systemctl is-active weir")? == "active\n", "{}", machine.log());
    ensure!(machine.done("systemctl is-enabled weir")? == "enabled\n");
    ensure!(machine.done("cat /usr/share/doc/weir/THIRD-PARTY")?.contains("\naya "));
    the_collector_has_its_own(&machine)?;
    ensure!(machine.done("zcat /usr/share/man/man1/weir-report.1.gz")?.contains("\\-\\-full"));
    ensure!(machine.done("cat /usr/share/bash-completion/completions/weir")?.contains("--full"));
    ensure!(machine.done("weir check /etc/weir/weir.yaml")?.contains("# memory, fixed"));
    // With the configuration as shipped, weir measures both directions of the interface with the default route.
    let told = status(&machine)?;
    ensure!(told["interval_seconds"] == 60, "{told}");
    let log = machine.log();
    for direction in ["ingress", "egress"] {
        let attached = log.lines().any(|line| {
            line.contains(&format!("attached interface={INTERFACE}"))
                && line.contains(&format!("direction=\"{direction}\""))
        });
        ensure!(attached, "{INTERFACE} {direction} is not measured:\n{log}");
    }

    // A reload sets a shorter interval, so that the test does not wait a minute.
    let text = fs::read_to_string(machine.path(CONFIG))?.replace("interval: 1m", "interval: 1s");
    fs::write(machine.path(CONFIG), &text)?;
    machine.done("systemctl restart weir")?;
    measures(&machine, &pair, 81)?;

    // The edited configuration stays.
    let pid = status(&machine)?["pid"].clone();
    if probe_tcx()? {
        upgrades_beside_traffic(&machine, &pair)?;
    } else {
        // With the classic tc hook weir detaches when it stops.
        machine.done("dpkg --install /root/weir.deb")?;
    }
    let version = machine.done("dpkg-query --show --showformat '${Version}' weir")?;
    ensure!(version != VERSION_BEFORE, "it was not upgraded");
    let upgraded = || Ok(status(&machine).ok().filter(|told| told["pid"] != pid).map(drop));
    clock::wait_for("the upgraded weir", TIMEOUT, upgraded).with_context(|| machine.log())?;
    ensure!(fs::read_to_string(machine.path(CONFIG))? == text, "the configuration was overwritten");
    measures(&machine, &pair, 82)?;

    let smoke = machine.done("/root/smoke")?;
    ensure!(smoke.contains("counted 200 of 200 datagrams"), "{smoke}");

    // At boot it starts by itself, and finds the interface as soon as there is one.
    drop(pair);
    machine.reboot()?;
    ensure!(machine.done("systemctl is-active weir")? == "active\n", "{}", machine.log());
    let pair = network_of(&machine)?;
    let attached = || Ok(has_programs(&pair)?.then_some(()));
    clock::wait_for("programs on the interface", TIMEOUT, attached).with_context(|| machine.log())?;
    measures(&machine, &pair, 84)?;

    machine.done("dpkg --remove weir")?;
    ensure!(!has_programs(&pair)?, "a program is still attached");
    ensure!(machine.path(CONFIG).exists(), "the configuration is gone before a purge");
    machine.done("dpkg --purge weir")?;
    let left: Vec<String> = files(&machine)?.into_iter().filter(|file| !before.contains(file)).collect();
    ensure!(left.is_empty(), "a purge leaves these: {left:?}");
    for database in ["passwd", "group"] {
        ensure!(machine.run(&format!("getent {database} weir"))?.code != Some(0), "{database} still has weir");
    }
    Ok(())
}

/// What [`version_before`] makes.
const VERSION_BEFORE: &str = "0.0.1-1";

/// The same package with an earlier version.
fn version_before(package: &Path) -> Result<Vec<u8>> {
    let scratch = Scratch::new()?;
    let (folder, packed) = (scratch.file("package"), scratch.file("before.deb"));
    Ended::of(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&folder))?.check(0, &[])?;
    let control = folder.join("DEBIAN/control");
    let text = fs::read_to_string(&control)?;
    let lines = text.lines().map(|line| match line.split_once(": ") {
        Some(("Version", _)) => format!("Version: {VERSION_BEFORE}\n"),
        _ => format!("{line}\n"),
    });
    fs::write(&control, lines.collect::<String>())?;
    Ended::of(Command::new("dpkg-deb").args(["--root-owner-group", "--build", "-Znone"]).arg(&folder).arg(&packed))?
        .check(0, &[])?;
    Ok(fs::read(packed)?)
}

/// Installs the package while packets come, and prints how long it takes until weir shows the source that really sent
/// most. Nothing is configured. Returns what the package manager wrote.
#[expect(clippy::print_stdout, reason = "the time is for people; a test asserts none")]
fn first_top_talker(machine: &Machine, pair: &QuietPair) -> Result<String> {
    const RATE: u32 = 2_000;
    const SECONDS: u64 = 20;
    let plan = Plan { seed: 80, packets: u64::from(RATE) * SECONDS, flows: 20, mix: Mix::PLAIN, ..Plan::default() };
    let mut oracle = Oracle::new();
    let (told, shown) = thread::scope(|scope| -> Result<_> {
        let sender = scope
            .spawn(|| watch::send(pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(RATE), &mut oracle));
        // Some packets have passed before.
        thread::sleep(Duration::from_secs(1));
        let begun = clock::now();
        let told = machine.done("dpkg --install /root/before.deb")?;
        let installed = begun.elapsed();
        let shown = clock::wait_for("the first top talker", TIMEOUT, || {
            let told = machine.run("weir status")?.out;
            let has_rows = told.split_once("SOURCES").is_some_and(|(_, rows)| rows.contains("bit/s"));
            Ok(has_rows.then_some(told))
        })?;
        println!("installed after {installed:.1?}, the first top talker is shown after {:.1?}", begun.elapsed());
        sender.join().expect("it does not panic")?;
        Ok((told, shown))
    })?;
    let sources = oracle.grouped(|key| vec![key.src]);
    let (largest, _) = sources.iter().max_by_key(|(_, tally)| tally.bytes).context("sources")?;
    ensure!(shown.contains(&largest.to_string()), "{largest} sent most:\n{shown}");
    Ok(told)
}

/// `weir collect` names the package of the collector, until it is installed.
fn the_collector_has_its_own(machine: &Machine) -> Result<()> {
    let missing = machine.run("weir collect --help")?;
    ensure!(missing.code == Some(2) && missing.err.contains("install the package weir-collect"), "{}", missing.err);
    machine.done("dpkg --install /root/weir-collect.deb")?;
    ensure!(machine.done("weir collect --help")?.contains("Usage: weir collect "));
    ensure!(machine.done("cat /usr/share/doc/weir-collect/THIRD-PARTY")?.contains("\nlibsqlite3-sys "));
    machine.done("dpkg --purge weir-collect").map(drop)
}

/// An interface of the machine, which carries its default route.
fn network_of(machine: &Machine) -> Result<QuietPair> {
    let pair = Lab::quiet_pair_to(machine.init())?;
    pair.observer.ip(&format!("address add 192.0.2.1/24 dev {INTERFACE}"))?;
    pair.observer.ip("route add default via 192.0.2.254")?;
    Ok(pair)
}

fn status(machine: &Machine) -> Result<Value> {
    Ok(serde_json::from_str(&machine.done("weir status --json")?)?)
}

/// Returns true if there is a program on the interface, for the packets that it receives or sends.
fn has_programs(pair: &QuietPair) -> Result<bool> {
    Ok(watch::has_program(&pair.observer, INTERFACE)?
        || crate::systemd::service::sends_through_a_program(&pair.observer)?)
}

/// Files with weir in their names, except for those of the test itself and logs of the package manager.
fn files(machine: &Machine) -> Result<Vec<String>> {
    let found = machine.done("find / -xdev -name *weir* -not -path /proc/* -not -path /sys/* -not -path /root/*")?;
    Ok(found.lines().map(str::to_owned).collect())
}

/// Upgrades to the package while packets come: each is in a report, and programs stay on the interface.
fn upgrades_beside_traffic(machine: &Machine, pair: &QuietPair) -> Result<()> {
    const RATE: u32 = 5_000;
    let known = reports(machine)?.len();
    let plan = Plan { seed: 83, packets: u64::from(RATE) * 6, mix: Mix::PLAIN, ..Plan::default() };
    let mut oracle = Oracle::new();
    let sent = thread::scope(|scope| -> Result<_> {
        let sender = scope
            .spawn(|| watch::send(pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(RATE), &mut oracle));
        let installed = thread::scope(|inner| -> Result<()> {
            let install = inner.spawn(|| machine.done("dpkg --install /root/weir.deb"));
            while !install.is_finished() {
                ensure!(has_programs(pair)?, "no program is attached during the upgrade\n{}", machine.log());
                thread::sleep(Duration::from_millis(10));
            }
            install.join().expect("it does not panic").map(drop)
        });
        let sent = sender.join().expect("it does not panic");
        installed.and(sent)
    })?;
    let after = clock::wait_for("reports of all packets", TIMEOUT, || {
        let after = reports(machine)?.split_off(known);
        Ok((watch::seen_in(INTERFACE, "ingress", &after)?.packets >= sent.packets).then_some(after))
    });
    let after = after.with_context(|| machine.log())?;
    ensure!(watch::seen_in(INTERFACE, "ingress", &after)? == sent, "more than was sent");
    check_accounts(&after, Loss::None).with_context(|| machine.log()).map(drop)
}

/// All reports so far.
fn reports(machine: &Machine) -> Result<Vec<Value>> {
    let text = fs::read_to_string(machine.path(REPORTS)).unwrap_or_default();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    complete.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Sends packets, and waits until the run that measures now has reported them, exactly.
fn measures(machine: &Machine, pair: &QuietPair, seed: u64) -> Result<()> {
    let known = clock::wait_for("a report", TIMEOUT, || {
        // A report of this run shows that both directions are attached.
        let all = reports(machine)?;
        Ok(all.last().is_some_and(|last| last["window"]["seconds"].as_f64() < Some(2.0)).then_some(all.len()))
    });
    let known = known.with_context(|| machine.log())?;
    let mut oracle = Oracle::new();
    let plan = Plan { seed, packets: 5_000, mix: Mix::PLAIN, ..Plan::default() };
    let sent = watch::send(pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
    let after = clock::wait_for("reports of all packets", TIMEOUT, || {
        let after: Vec<Value> = reports(machine)?.split_off(known);
        let seen: u64 = after.iter().map(|report| number(&report["totals"]["packets"])).sum::<Result<_>>()?;
        Ok((seen >= sent.packets).then_some(after))
    });
    let after = after.with_context(|| machine.log())?;
    check_accounts(&after, Loss::None)?;
    judge("the service of the package", oracle.check_reports(&after))
}
