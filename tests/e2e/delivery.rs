//! Every report on disk arrives exactly once, or a tombstone says why not. This holds for every failure of the
//! collector and the disk, and however often weir is killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    collector::{Behaviour, Collector},
    daemon::{Daemon, Signal},
    netns::{Lab, QuietPair},
    scratch::Scratch,
};

use crate::{
    clocks::Clock,
    watch::{Ended, TIMEOUT, check_accounts, number, times, weir_with},
};

tests![
    whatever_the_collector_does_and_however_often_weir_is_killed,
    a_disk_without_room_and_one_that_cannot_be_written,
    a_file_on_a_full_disk_has_whole_lines_and_each_report_once,
    a_reload_while_the_collector_hangs_keeps_reports_on_disk,
    an_outage_costs_no_report_and_no_memory,
    untrusted_certificates_lose_no_report,
    a_mistake_of_the_operator_costs_no_report,
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// All behaviours of a collector, one after the other; in between it accepts reports for a while.
const SCRIPT: [Behaviour; 16] = [
    Behaviour::Down,
    Behaviour::Lost,
    Behaviour::Refuse(500),
    Behaviour::Reset,
    Behaviour::Refuse(401),
    Behaviour::Accept,
    Behaviour::Busy,
    Behaviour::Garbage,
    Behaviour::Hang,
    Behaviour::Endless,
    Behaviour::Refuse(404),
    Behaviour::Slow,
    Behaviour::Redirect,
    Behaviour::Refuse(403),
    Behaviour::Down,
    Behaviour::Lost,
];

const AN_HOUR_MS: i64 = 3_600_000;

/// A router, its collector, and the folder that outlives each weir.
struct Delivery {
    pair: QuietPair,
    collector: Collector,
    state: Scratch,
    clock: Clock,
}

impl Delivery {
    fn new() -> Result<Self> {
        let pair = Lab::quiet_pair()?;
        let collector = pair.observer.enter(|| Collector::listen((Ipv4Addr::LOCALHOST, 0).into()))??;
        Ok(Self { pair, collector, state: Scratch::new()?, clock: Clock::new()? })
    }

    fn behave(&self, behaviour: Behaviour) -> Result<()> {
        self.pair.observer.enter(|| self.collector.behave(behaviour))?
    }

    fn start(&self) -> Result<Daemon> {
        self.start_with(&format!("url: \"{}\", timeout: 500ms", self.collector.url()))
    }

    /// Starts weir with these settings of its sink.
    fn start_with(&self, settings: &str) -> Result<Daemon> {
        let scratch = Scratch::new()?;
        let variables = [("STATE_DIRECTORY", self.state.path()), ("LD_PRELOAD", &self.clock.library())];
        let program = weir_with(&variables, &scratch)?;
        let mut daemon = Daemon::start_program(&program, Some(&self.pair.observer), |_| {
            let sink = format!("{{type: http, queue: 8, {settings}}}");
            format!("interfaces: [{INTERFACE}]\nreport: {{interval: 1s}}\nsinks: [{sink}]\n")
        })?;
        daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
        Ok(daemon)
    }

    /// Kills weir after a while, and returns the reports that wait on the disk then.
    fn kill(&self, mut daemon: Daemon, after: Duration) -> Result<BTreeSet<String>> {
        thread::sleep(after);
        daemon.signal(Signal::KILL)?;
        daemon.wait(TIMEOUT)?;
        let log = daemon.log()?;
        ensure!(!log.contains("panicked"), "{log}");
        Ok(self.waiting()?.into_iter().filter(|(_, state)| state == "waits").map(|(id, _)| id).collect())
    }

    /// The spool's entries: their ids and states.
    fn waiting(&self) -> Result<Vec<(String, String)>> {
        let spool = self.state.file("spool");
        let mut command = Command::new(weir_tests::daemon::weir_binary()?);
        let listed = Ended::of(command.args(["spool", "ls", "--json", "--path"]).arg(spool))?;
        listed.check(0, &[])?;
        let one = |line: &str| {
            let item: Value = serde_json::from_str(line)?;
            let text = |key: &str| item[key].as_str().map(str::to_owned).context(key.to_owned());
            Ok((text("id")?, text("state")?))
        };
        listed.out.lines().map(one).collect()
    }

    fn wait_until_empty(&self) -> Result<()> {
        clock::wait_for("an empty spool", TIMEOUT, || Ok(self.waiting()?.is_empty().then_some(())))
    }

    /// The reports that arrived. Fails if one arrived twice with different content.
    fn arrived(&self) -> Result<Arrived> {
        let mut arrived = Arrived::default();
        for received in self.collector.received() {
            let id = received.report["id"].as_str().context("id")?.to_owned();
            let before = arrived.lines.insert(id.clone(), received.report.clone());
            ensure!(before.is_none_or(|before| before == received.report), "{id} came twice, and not the same");
        }
        for (id, line) in &arrived.lines {
            if line["schema"] == "weir.tombstone/1" {
                let observer = format!("{}/{}", line["observer"]["id"], line["observer"]["boot_id"]).replace('"', "");
                for seq in number(&line["first_seq"])?..=number(&line["last_seq"])? {
                    let lost = format!("{observer}/{seq}");
                    ensure!(!arrived.lines.contains_key(&lost), "{lost} came, and {id} says that it is lost");
                    ensure!(arrived.lost.insert(lost), "{id} is about a report that another tombstone is about");
                }
            } else {
                arrived.reports.insert(number(&line["observer"]["seq"])?, line.clone());
            }
        }
        let reports: Vec<Value> = arrived.reports.values().cloned().collect();
        check_accounts(&reports, Loss::None)?;
        Ok(arrived)
    }
}

/// The lines that a collector has.
#[derive(Default)]
struct Arrived {
    /// Reports and tombstones by their ids.
    lines: BTreeMap<String, Value>,
    /// Reports by their numbers.
    reports: BTreeMap<u64, Value>,
    /// Ids of reports that tombstones are about.
    lost: BTreeSet<String>,
}

impl Arrived {
    /// How many reports neither arrived nor have a tombstone. Reports are numbered from one, and each must name the
    /// number before its own.
    fn missing(&self) -> Result<u64> {
        for (seq, report) in self.reports.range(2..) {
            let previous =
                report["previous"].as_str().with_context(|| format!("report {seq} names no previous report"))?;
            let named = previous.rsplit('/').next();
            ensure!(named == Some(&(seq - 1).to_string()), "report {seq} came after {previous}");
        }
        let last = *self.reports.keys().next_back().context("there are reports")?;
        last.checked_sub((self.reports.len() + self.lost.len()) as u64)
            .context("more reports came than there are numbers")
    }
}

fn whatever_the_collector_does_and_however_often_weir_is_killed() -> Result<()> {
    let delivery = Delivery::new()?;
    let mut on_disk = BTreeSet::new();
    let kills = times().unwrap_or(SCRIPT.len() as u32 / 2);
    let mut behaviours = SCRIPT.iter().cycle();
    for kill in 0..kills {
        let daemon = delivery.start()?;
        for behaviour in behaviours.by_ref().take(2) {
            delivery.behave(*behaviour)?;
            delivery.clock.set(AN_HOUR_MS * (i64::from(kill) % 3 - 1))?;
            // Each kill comes at a different moment of the window of one second.
            thread::sleep(Duration::from_millis(u64::from(kill * 7919 % 1000)));
        }
        on_disk.extend(delivery.kill(daemon, Duration::from_millis(u64::from(kill * 6101 % 700)))?);
    }
    ensure!(!on_disk.is_empty(), "nothing ever waited on the disk: this tests nothing");
    delivery.behave(Behaviour::Accept)?;
    let mut daemon = delivery.start()?;
    delivery.wait_until_empty()?;
    daemon.signal(Signal::TERM)?;
    ensure!(daemon.wait(TIMEOUT)?.success(), "{}", daemon.log()?);
    let arrived = delivery.arrived()?;
    for id in &on_disk {
        ensure!(arrived.lines.contains_key(id), "{id} was on the disk, but never came");
    }
    ensure!(arrived.lost.is_empty(), "there was room for all, but {:?} are lost", arrived.lost);
    // A window that was not on disk yet is lost with the killed weir, perhaps after its report had a number.
    let missing = arrived.missing()?;
    ensure!(missing <= kills.into(), "{missing} reports are missing after {kills} kills");
    Ok(())
}

/// A small file system, mounted on a folder until it is dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path, size: &str) -> Result<Self> {
        fs::create_dir(path)?;
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size},mode=0700"), "weir-test"])
            .arg(path))?;
        Ok(Self(path))
    }

    fn remount(&self, how: &str) -> Result<()> {
        run(Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(self.0))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // The processes that used it have ended.
        let _ = run(Command::new("umount").arg("--lazy").arg(self.0));
    }
}

fn run(command: &mut Command) -> Result<()> {
    Ended::of(command)?.check(0, &[])
}

fn a_disk_without_room_and_one_that_cannot_be_written() -> Result<()> {
    let delivery = Delivery::new()?;
    let spool = delivery.state.file("spool");
    // Room for some five reports and their folder.
    let disk = SmallDisk::mount(&spool, "40k")?;
    delivery.behave(Behaviour::Down)?;
    let mut daemon = delivery.start()?;
    let is_lost = |(_, state): &(String, String)| state == "lost: spool_full";
    clock::wait_for("a tombstone on a full disk", TIMEOUT, || {
        Ok(delivery.waiting()?.iter().any(is_lost).then_some(()))
    })?;
    // The remount fails as long as weir is writing.
    clock::wait_for("a disk without a writer", TIMEOUT, || Ok(disk.remount("ro").ok()))?;
    daemon.wait_for_line("the spool takes no reports", TIMEOUT)?;
    disk.remount("rw")?;
    daemon.wait_for_line("the spool takes reports again", TIMEOUT)?;
    delivery.behave(Behaviour::Accept)?;
    delivery.wait_until_empty()?;
    daemon.signal(Signal::TERM)?;
    ensure!(daemon.wait(TIMEOUT)?.success(), "{}", daemon.log()?);
    let arrived = delivery.arrived()?;
    ensure!(!arrived.lost.is_empty(), "nothing was lost: this tests nothing");
    let missing = arrived.missing()?;
    ensure!(missing == 0, "{missing} reports are missing: {:?}, lost: {:?}", arrived.lines.keys(), arrived.lost);
    Ok(())
}

fn a_file_on_a_full_disk_has_whole_lines_and_each_report_once() -> Result<()> {
    let (pair, scratch) = (Lab::quiet_pair()?, Scratch::new()?);
    let folder = scratch.file("small");
    let disk = SmallDisk::mount(&folder, "40k")?;
    let (file, state) = (folder.join("reports.ndjson"), Scratch::new()?);
    let program = weir_with(&[("STATE_DIRECTORY", state.path())], &scratch)?;
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |_| {
        let sink = format!("{{type: file, path: {}}}", file.display());
        format!("interfaces: [{INTERFACE}]\nreport: {{interval: 1s}}\nsinks: [{sink}]\n")
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    daemon.wait_for_line("No space left on device", TIMEOUT)?;
    let reports = || -> Result<Vec<Value>> {
        let text = fs::read_to_string(&file)?;
        ensure!(text.ends_with('\n'), "the last line is not whole");
        text.lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("a line is not whole: {line}")))
            .collect()
    };
    let before = reports()?.len();
    disk.remount("size=1m")?;
    // Waits for the reports that were waiting, and for one more.
    let more = || Ok((fs::read_to_string(&file)?.lines().count() > before + 2).then_some(()));
    clock::wait_for("the reports that waited", TIMEOUT, more)?;
    daemon.signal(Signal::TERM)?;
    ensure!(daemon.wait(TIMEOUT)?.success(), "{}", daemon.log()?);
    let reports = reports()?;
    let numbers: Vec<_> = reports.iter().filter_map(|report| report["observer"]["seq"].as_u64()).collect();
    ensure!(numbers == (1..=numbers.len() as u64).collect::<Vec<_>>(), "{numbers:?}");
    check_accounts(&reports, Loss::None).map(drop)
}

fn a_reload_while_the_collector_hangs_keeps_reports_on_disk() -> Result<()> {
    let delivery = Delivery::new()?;
    delivery.behave(Behaviour::Hang)?;
    let mut daemon = delivery.start_with(&format!("url: \"{}\", timeout: 59s", delivery.collector.url()))?;
    let wait_for = |count: usize| {
        clock::wait_for("reports on the disk", TIMEOUT, || Ok((delivery.waiting()?.len() >= count).then_some(())))
    };
    wait_for(2)?;
    let config = daemon.directory().join("weir.yaml");
    fs::write(&config, fs::read_to_string(&config)?.replace("timeout: 59s", "timeout: 500ms"))?;
    daemon.signal(Signal::HUP)?;
    daemon.wait_for_line("the new configuration is in force", TIMEOUT)?;
    // The old attempt is still hanging.
    wait_for(delivery.waiting()?.len() + 3)?;
    daemon.signal(Signal::KILL)?;
    daemon.wait(TIMEOUT)?;
    delivery.behave(Behaviour::Accept)?;
    let on_disk = delivery.waiting()?;
    let mut daemon = delivery.start()?;
    delivery.wait_until_empty()?;
    daemon.signal(Signal::TERM)?;
    ensure!(daemon.wait(TIMEOUT)?.success(), "{}", daemon.log()?);
    let arrived = delivery.arrived()?;
    ensure!(
        on_disk.iter().all(|(id, _)| arrived.lines.contains_key(id)),
        "{on_disk:?}, and {:?}",
        arrived.lines.keys()
    );
    ensure!(arrived.missing()? <= 1, "one SIGKILL: {:?}", arrived.lines.keys());
    Ok(())
}

/// A collector that answers like a path that accepts no POST, or like a TLS port that gets plain text.
fn a_mistake_of_the_operator_costs_no_report() -> Result<()> {
    let delivery = Delivery::new()?;
    for status in [405, 400] {
        delivery.behave(Behaviour::Refuse(status))?;
        let mut daemon = delivery.start()?;
        let wait_for = |count: usize| {
            clock::wait_for("reports on the disk", TIMEOUT, || Ok((delivery.waiting()?.len() >= count).then_some(())))
        };
        wait_for(5)?;
        daemon.wait_for_line("look at its settings", TIMEOUT)?;
        let waiting = delivery.waiting()?;
        ensure!(waiting.iter().all(|(_, state)| state == "waits"), "{waiting:?}");
        delivery.behave(Behaviour::Accept)?;
        delivery.wait_until_empty()?;
        daemon.signal(Signal::TERM)?;
        ensure!(daemon.wait(TIMEOUT)?.success(), "{}", daemon.log()?);
    }
    let arrived = delivery.arrived()?;
    ensure!(arrived.lost.is_empty() && arrived.missing()? == 0, "{:?} are lost", arrived.lost);
    Ok(())
}

fn an_outage_costs_no_report_and_no_memory() -> Result<()> {
    /// How much the process may grow: it touches some pages for the first time.
    const MORE_BYTES: u64 = 4 << 20;
    let windows = times().unwrap_or(20) as usize;
    let delivery = Delivery::new()?;
    delivery.behave(Behaviour::Down)?;
    let mut daemon = delivery.start()?;
    let patience = TIMEOUT + 2 * Duration::from_secs(windows as u64);
    clock::wait_for("reports on the disk", patience, || Ok((delivery.waiting()?.len() >= windows).then_some(())))?;
    delivery.behave(Behaviour::Accept)?;
    delivery.wait_until_empty()?;
    daemon.signal(Signal::TERM)?;
    ensure!(daemon.wait(TIMEOUT)?.success(), "{}", daemon.log()?);
    let arrived = delivery.arrived()?;
    let numbers: Vec<u64> = arrived.reports.keys().copied().collect();
    ensure!(numbers == (1..=numbers.len() as u64).collect::<Vec<_>>(), "reports are missing: {numbers:?}");
    ensure!(numbers.len() >= windows && arrived.lost.is_empty(), "{} reports, lost: {:?}", numbers.len(), arrived.lost);
    let rss = |report: &Value| number(&report["self"]["rss_bytes"]);
    let quarter = windows / 4;
    let most = |reports: &mut dyn Iterator<Item = &Value>| -> Result<u64> {
        reports.map(rss).try_fold(0, |most, rss| Ok(most.max(rss?)))
    };
    let begun = most(&mut arrived.reports.values().take(quarter))?;
    let ended = most(&mut arrived.reports.values().skip(windows - quarter))?;
    ensure!(ended <= begun + MORE_BYTES, "{begun} bytes at the begin, and {ended} at the end");
    Ok(())
}

/// A program in front of a collector; killed on drop.
struct Front(Child);

impl Drop for Front {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn untrusted_certificates_lose_no_report() -> Result<()> {
    const PORT: u16 = 8443;
    let delivery = Delivery::new()?;
    let certificate = |name: &str| -> Result<String> {
        let path = delivery.state.file(name).display().to_string();
        let mut openssl = Command::new("openssl");
        openssl.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=collector".split(' '));
        openssl.args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]);
        run(openssl.args(["-keyout", &path, "-out", &format!("{path}.pem")]))?;
        let both = fs::read_to_string(format!("{path}.pem"))? + &fs::read_to_string(&path)?;
        fs::write(&path, both)?;
        Ok(path)
    };
    let [known, unknown] = [certificate("known")?, certificate("unknown")?];
    let target = format!("TCP:{}", delivery.collector.address());
    let front = |listen: String| -> Result<Front> {
        let mut socat = delivery.pair.observer.command("socat");
        socat.args([&listen, &target]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Front(socat.spawn().context("cannot start socat")?))
    };
    let tls =
        |certificate: &str| format!("OPENSSL-LISTEN:{PORT},bind=127.0.0.1,reuseaddr,fork,verify=0,cert={certificate}");
    let settings = format!("url: \"https://127.0.0.1:{PORT}/\", timeout: 500ms, tls: {{ca_file: {known}.pem}}");
    let mut on_disk = BTreeSet::new();
    for listen in [tls(&unknown), format!("TCP-LISTEN:{PORT},bind=127.0.0.1,reuseaddr,fork")] {
        let _front = front(listen)?;
        let daemon = delivery.start_with(&settings)?;
        let so_far = delivery.waiting()?.len();
        clock::wait_for(
            "reports on the disk",
            TIMEOUT,
            || Ok((delivery.waiting()?.len() >= so_far + 2).then_some(())),
        )?;
        on_disk.extend(delivery.kill(daemon, Duration::ZERO)?);
    }
    ensure!(delivery.collector.received().is_empty(), "a report went to an untrusted collector");
    let _front = front(tls(&known))?;
    let mut daemon = delivery.start_with(&settings)?;
    delivery.wait_until_empty()?;
    daemon.signal(Signal::TERM)?;
    ensure!(daemon.wait(TIMEOUT)?.success(), "{}", daemon.log()?);
    let arrived = delivery.arrived()?;
    ensure!(on_disk.iter().all(|id| arrived.lines.contains_key(id)), "{on_disk:?}, and {:?}", arrived.lines.keys());
    ensure!(arrived.lost.is_empty(), "{:?}", arrived.lost);
    Ok(())
}
