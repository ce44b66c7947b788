//! A running weir gets another configuration: every packet is still counted, and a wrong configuration changes nothing.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_datapath::online_cpus;
use weir_tests::{
    account::{self, Loss},
    clock,
    daemon::{Daemon, Signal, weir_binary},
    inject::Pace,
    netns::{Lab, Namespace, QuietPair},
    oracle::{Dimension, Oracle},
    scratch::Scratch,
    traffic::{Mix, Plan, Traffic},
};

use crate::{
    cpus::send_on,
    forwarding::exchange,
    sampling::check_one_in,
    watch::{self, Ended, INTERVAL, QUIET_LINK, ROOMY_RINGS, TIMEOUT, Watch, config, list, native, seen_in, stop},
};

alone![reloads_beside_traffic_lose_no_packet, a_wrong_configuration_changes_nothing_and_says_why];
tests![
    settings_that_cannot_change_are_named_and_nothing_changes,
    interfaces_come_and_go_and_the_others_stay_attached,
    a_new_sink_takes_over_where_the_old_one_ends,
    another_sampling_rate_is_in_force_and_told,
    sketches_come_with_the_last_window_before_it,
    a_key_is_looked_up_in_the_views_of_its_window,
    a_hostile_file_is_refused_at_once,
    only_the_owner_may_reload,
    it_detaches_and_attaches_when_it_is_told,
    it_attaches_again_for_other_interfaces,
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
/// Reloads during traffic, unless `scripts/soak handover` sets another number.
const RELOADS: u32 = 60;
/// Packets a second during reloads.
const RATE: u32 = 20_000;

/// weir on a quiet link, with a configuration file that can be rewritten.
struct Reloaded {
    watch: Watch,
    scratch: Scratch,
}

impl Reloaded {
    /// Starts weir with these settings besides the interface, its rings and its socket.
    fn start(settings: &str) -> Result<Self> {
        let scratch = Scratch::new()?;
        let watch = Watch::start(&all(settings, &scratch))?;
        Ok(Self { watch, scratch })
    }

    /// Writes the configuration anew, with these settings.
    fn write(&self, settings: &str) -> Result<()> {
        let interfaces = format!("interfaces: [{}]\n", native(INTERFACE));
        self.write_all(&format!("{interfaces}{}", all(settings, &self.scratch)))
    }

    fn write_all(&self, settings: &str) -> Result<()> {
        let directory = self.watch.daemon.directory();
        Ok(fs::write(directory.join("weir.yaml"), config(settings, &directory.join("reports.ndjson")))?)
    }

    fn reload(&self, arguments: &[&str]) -> Result<Ended> {
        let mut command = Command::new(weir_binary()?);
        Ended::of(command.arg("reload").args(arguments).arg("--socket").arg(self.socket()))
    }

    fn socket(&self) -> PathBuf {
        self.scratch.file("control.sock")
    }

    /// Waits until a reloaded configuration is in force for the `nth` time.
    fn wait_for(&mut self, nth: usize) -> Result<()> {
        wait_until_in_force(&self.watch.daemon, nth)
    }
}

/// Waits until another configuration is in force for the `nth` time.
pub fn wait_until_in_force(daemon: &Daemon, nth: usize) -> Result<()> {
    let times = || Ok((daemon.log()?.matches("the new configuration is in force").count() >= nth).then_some(()));
    clock::wait_for("another configuration", TIMEOUT, times)
        .with_context(|| format!("weir wrote:\n{}", daemon.log().unwrap_or_default()))
}

fn all(settings: &str, scratch: &Scratch) -> String {
    format!("{ROOMY_RINGS}control: {{socket: {}}}\n{settings}", scratch.file("control.sock").display())
}

/// The program that is attached to the interface.
fn program(namespace: &Namespace, interface: &str) -> Result<u64> {
    let shown: Value = serde_json::from_str(&namespace.ip(&format!("-d -j link show dev {interface}"))?)?;
    shown[0]["xdp"]["prog"]["id"].as_u64().with_context(|| format!("no program on {interface}: {shown}"))
}

/// Returns the view of this name from a report.
fn view<'r>(report: &'r Value, name: &str) -> Result<&'r Value> {
    let named = |view: &&Value| view["name"] == name;
    list(&report["views"])?.iter().find(named).with_context(|| format!("no view {name} in {}", report["id"]))
}

fn sketches_come_with_the_last_window_before_it() -> Result<()> {
    let exported = format!("{INTERVAL}export: {{views: all, every: 1h}}\n");
    let mut reloaded = Reloaded::start(&exported)?;
    reloaded.watch.daemon.wait_for_reports(2, TIMEOUT)?;
    reloaded.write(&format!("{exported}standard_views: [flows, sources]\n"))?;
    ensure!(reloaded.reload(&[])?.code == Some(0), "the reload was refused");
    reloaded.wait_for(1)?;
    // Perhaps within the first window with the new configuration.
    let reports = reloaded.watch.stop(Loss::None)?;
    let with_sketches: Vec<&Value> = reports.iter().filter(|report| !report["sketches"].is_null()).collect();
    ensure!(with_sketches.len() >= 2, "{} of {} reports have sketches", with_sketches.len(), reports.len());
    for report in &with_sketches {
        let (sketches, window) = (&report["sketches"], &report["window"]);
        ensure!(sketches["end"] == window["end"], "{} comes with {window}", sketches["end"]);
    }
    let windows: u64 = with_sketches.iter().filter_map(|report| report["sketches"]["windows"].as_u64()).sum();
    ensure!(windows == reports.len() as u64, "the sketches of {windows} windows, of {}", reports.len());
    Ok(())
}

fn reloads_beside_traffic_lose_no_packet() -> Result<()> {
    let reloads = watch::times().unwrap_or(RELOADS);
    let mut reloaded = Reloaded::start(INTERVAL)?;
    let attached = program(&reloaded.watch.pair.observer, INTERFACE)?;
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 91, packets: u64::from(RATE) * u64::from(reloads) / 4, flows: 3_000, ..Plan::default() };
    let settings = [
        "report: {interval: 1s}\nviews: [{name: a, by: [src_ip], top: 5}]\n",
        "report: {interval: 2s, top: 20}\nestimates: {top_error: 0.001}\n",
        "report: {interval: 1s}\nnetworks: {n: {prefixes: [10.0.0.0/8]}}\nviews: [{name: b, by: [dst_net]}]\n",
        "report: {interval: 1s}\nstandard_views: [flows, sources]\nseen_flows: {generation: 20m}\n",
        "report: {interval: 1s}\nviews: [{name: a, measure: {distinct: src_ip}, by: [dst_ip]}]\nsampling: {cpu: 0.4}\n",
    ];
    let Watch { pair, daemon } = &mut reloaded.watch;
    let directory = daemon.directory().to_owned();
    let mut refused = 0;
    thread::scope(|scope| -> Result<()> {
        let sender = scope
            .spawn(|| watch::send(pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(RATE), &mut oracle));
        for nth in 0..reloads {
            let own = format!("interfaces: [{}]\n{}", native(INTERFACE), settings[nth as usize % settings.len()]);
            let text = config(&all(&own, &reloaded.scratch), &directory.join("reports.ndjson"));
            fs::write(directory.join("weir.yaml"), text)?;
            if nth % 2 == 0 {
                daemon.signal(Signal::HUP)?;
            } else {
                let mut command = Command::new(weir_binary()?);
                command.args(["reload", "--socket"]).arg(reloaded.scratch.file("control.sock"));
                let ended = Ended::of(&mut command)?;
                // Another reload may be in progress.
                refused += u32::from(ended.code != Some(0));
            }
            thread::sleep(Duration::from_millis(200));
        }
        sender.join().expect("the sender panicked")?;
        Ok(())
    })?;
    ensure!(refused <= reloads / 20, "{refused} of {reloads} reloads were refused:\n{}", reloaded.watch.daemon.log()?);
    let log = reloaded.watch.daemon.log()?;
    let in_force = log.matches("the new configuration is in force").count();
    ensure!(in_force >= 5, "only {in_force} configurations came into force:\n{log}");
    ensure!(program(&reloaded.watch.pair.observer, INTERFACE)? == attached, "another program is attached");
    ensure!(log.matches("attached interface=").count() == 1, "it was attached again:\n{log}");
    // The last configuration is in force from the next window on.
    let reported = reloaded.watch.daemon.reports()?.len();
    reloaded.watch.daemon.wait_for_reports(reported + 2, TIMEOUT)?;
    let reports = reloaded.watch.stop(Loss::None)?;
    for pair in reports.windows(2) {
        ensure!(
            pair[0]["window"]["end"] == pair[1]["window"]["start"],
            "a gap: {} {}",
            pair[0]["window"],
            pair[1]["window"]
        );
    }
    // Only the last configuration is certain to be in force at the end of a window; it has this view.
    ensure!(reports.iter().any(|report| view(report, "a").is_ok()), "no report has the view of the last configuration");
    // Seen flows stay known, so no flow is counted as new twice.
    let new: u64 = reports.iter().filter_map(|report| report["new_flows"]["lower"].as_u64()).sum();
    let flows = oracle.distinct(Dimension::Flows);
    ensure!(new <= flows, "{new} new flows of {flows}");
    watch::judge("over all reloads", oracle.check_reports(&reports))
}

fn a_wrong_configuration_changes_nothing_and_says_why() -> Result<()> {
    let mut reloaded = Reloaded::start(INTERVAL)?;
    reloaded.watch.daemon.wait_for_reports(1, TIMEOUT)?;
    for (settings, parts) in [
        ("report: {interval: 7s}\n", &["weir.yaml:", "7s"][..]),
        ("views: [{name: w, by: [src_ipp]}]\n", &["weir.yaml:", "src_ipp", "src_ip"]),
        ("views: [\n", &["weir.yaml:"]),
        ("memory: 16MiB\n", &["16.0 MiB are allowed"]),
        ("geo: {asn: /nowhere/asn.mmdb}\n", &["/nowhere/asn.mmdb"]),
    ] {
        let interval = if settings.starts_with("report") { "" } else { INTERVAL };
        reloaded.write(&format!("{interval}{settings}"))?;
        reloaded.reload(&[])?.check(2, parts).with_context(|| settings.to_owned())?;
        let line = reloaded.watch.daemon.wait_for_line("stays as it is: ", TIMEOUT)?;
        ensure!(line.contains("asked_by=\"weir reload\""), "{line}");
        reloaded.watch.daemon.signal(Signal::HUP)?;
    }
    fs::remove_file(reloaded.watch.daemon.directory().join("weir.yaml"))?;
    reloaded.reload(&[])?.check(2, &["weir.yaml", "there is no such file", "write the file"])?;
    let reported = reloaded.watch.daemon.reports()?.len();
    reloaded.watch.daemon.wait_for_reports(reported + 2, TIMEOUT)?;
    let log = reloaded.watch.daemon.log()?;
    ensure!(!log.contains("is in force") && !log.contains("is valid"), "{log}");
    ensure!(log.matches("SIGHUP").count() >= 4, "{log}");
    let reports = stop(&mut reloaded.watch.daemon, Loss::None)?;
    ensure!(reports.iter().all(|report| report["views"].as_array().is_some_and(|views| views.len() == 3)));
    Ok(())
}

fn settings_that_cannot_change_are_named_and_nothing_changes() -> Result<()> {
    let mut reloaded = Reloaded::start(INTERVAL)?;
    for (settings, name) in [
        ("observer: {name: other}\n", "observer"),
        ("hash_key: {file: /etc/weir/none}\n", "hash_key"),
        ("seen_flows: {capacity: 5000}\n", "seen_flows"),
        ("sampling: {packets: 10}\n", "sampling.packets"),
    ] {
        reloaded.write(&format!("{INTERVAL}{settings}"))?;
        reloaded.reload(&[])?.check(2, &["weir.yaml:", &format!(" {name}: needs a restart")])?;
    }
    reloaded.write_all(&format!("interfaces: [{}]\n{INTERVAL}datapath: {{tunnels: inner}}\n", native(INTERFACE)))?;
    reloaded.reload(&[])?.check(2, &[" datapath: needs a restart", " control: needs a restart"])?;
    let log = reloaded.watch.daemon.log()?;
    ensure!(!log.contains("is in force"), "{log}");
    stop(&mut reloaded.watch.daemon, Loss::None).map(drop)
}

fn interfaces_come_and_go_and_the_others_stay_attached() -> Result<()> {
    let lab = Lab::new()?;
    let [near, far] = Lab::router_interfaces();
    let settings = |interfaces: &str| format!("interfaces: [{interfaces}]\n{INTERVAL}{ROOMY_RINGS}");
    let mut daemon = watch::measure(&lab.router, &settings(&native(near)))?;
    let attached = program(&lab.router, near)?;
    let directory = daemon.directory().to_owned();
    let mut nth = 0;
    let mut reload = |daemon: &mut Daemon, interfaces: &str| -> Result<()> {
        let text = config(&settings(interfaces), &directory.join("reports.ndjson"));
        fs::write(directory.join("weir.yaml"), format!("{text}control: {{socket: none}}\n"))?;
        daemon.signal(Signal::HUP)?;
        nth += 1;
        wait_until_in_force(daemon, nth)
    };
    let exchanged = || Lab::SERVER.iter().try_for_each(|server| exchange(&lab, server.parse()?).map(drop));
    exchanged()?;
    let both = format!("{}, {{name: {far}, direction: both}}", native(near));
    reload(&mut daemon, &both)?;
    attached_times(&daemon, far, 2)?;
    ensure!(program(&lab.router, near)? == attached, "another program is attached to {near}");
    // The same program may be attached again, which leaves a gap.
    attached_times(&daemon, near, 1)?;
    exchanged()?;
    // The order changes, one direction goes, and so does the first interface.
    reload(&mut daemon, &format!("{{name: {far}, direction: egress}}"))?;
    ensure!(!watch::has_program(&lab.router, near)?, "{near} is still measured");
    exchanged()?;
    reload(&mut daemon, &both)?;
    // Ingress twice, egress once.
    attached_times(&daemon, far, 3)?;
    exchanged()?;
    let reports = stop(&mut daemon, Loss::None)?;
    for (interface, direction, rounds) in [(near, "ingress", 3), (far, "egress", 3), (far, "ingress", 2)] {
        let seen = seen_in(interface, direction, &reports)?.packets;
        ensure!(seen > 0, "{interface} {direction} has seen nothing in {rounds} rounds");
    }
    let listed = |report: &Value| Ok::<_, anyhow::Error>(list(&report["interfaces"])?.len());
    let counts: Vec<usize> = reports.iter().map(listed).collect::<Result<_>>()?;
    ensure!(counts.first() == Some(&1) && counts.last() == Some(&3) && counts.contains(&3), "{counts:?}");
    // A removed interface is in the report of its last window, and an added one is in no earlier report.
    let mut steps = counts.clone();
    steps.dedup();
    ensure!(steps == [1, 3, 1, 3], "{counts:?}");
    Ok(())
}

/// Waits until weir has attached to the interface `expected` times, and checks that it was not more often.
fn attached_times(daemon: &Daemon, interface: &str, expected: usize) -> Result<()> {
    let times = || anyhow::Ok(daemon.log()?.matches(&format!("attached interface={interface} ")).count());
    clock::wait_for("the attachment", TIMEOUT, || Ok((times()? >= expected).then_some(())))
        .with_context(|| format!("weir wrote:\n{}", daemon.log().unwrap_or_default()))?;
    ensure!(times()? == expected, "{interface} was attached {} times:\n{}", times()?, daemon.log()?);
    Ok(())
}

fn a_new_sink_takes_over_where_the_old_one_ends() -> Result<()> {
    let mut reloaded = Reloaded::start(INTERVAL)?;
    reloaded.watch.daemon.wait_for_reports(2, TIMEOUT)?;
    let directory = reloaded.watch.daemon.directory().to_owned();
    let settings = format!("interfaces: [{}]\n{}", native(INTERFACE), all(INTERVAL, &reloaded.scratch));
    fs::write(directory.join("weir.yaml"), config(&settings, &directory.join("other.ndjson")))?;
    let told = reloaded.reload(&[])?;
    told.check(0, &[])?;
    ensure!(told.out.contains("changed: sinks") && told.out.contains("is valid"), "{}", told.out);
    reloaded.wait_for(1)?;
    let others = || anyhow::Ok(fs::read_to_string(directory.join("other.ndjson")).unwrap_or_default());
    clock::wait_for("reports in the other file", TIMEOUT, || Ok((others()?.lines().count() >= 2).then_some(())))?;
    let before = stop(&mut reloaded.watch.daemon, Loss::None)?;
    let after: Vec<Value> = others()?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let numbers: Vec<u64> =
        before.iter().chain(&after).filter_map(|report| report["observer"]["seq"].as_u64()).collect();
    ensure!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "each report once, in order: {numbers:?}");
    Ok(())
}

fn another_sampling_rate_is_in_force_and_told() -> Result<()> {
    let mut reloaded = Reloaded::start(&format!("{INTERVAL}sampling: {{packets: 4}}\n"))?;
    let mut oracle = Oracle::new();
    let plan = |seed| Plan { seed, packets: 8_000, mix: Mix::PLAIN, ..Plan::default() };
    let quarter = reloaded.watch.send(plan(95), &mut oracle)?;
    // The report of a window that has just ended may still be missing, so the packets are in one of the next two
    // reports at the latest.
    let open = reloaded.watch.daemon.reports()?.len();
    let first = reloaded.watch.daemon.wait_for_reports(open + 2, TIMEOUT)?.len();
    reloaded.write(&format!("{INTERVAL}sampling: {{packets: 2}}\n"))?;
    reloaded.reload(&[])?.check(0, &[])?;
    reloaded.wait_for(1)?;
    // Each CPU has drawn its next packet at the old rate. After these packets it draws at the new one.
    for cpu in online_cpus()? {
        send_on(cpu, &reloaded.watch, Plan { packets: 500, ..plan(96) }, &mut oracle)?;
    }
    let open = reloaded.watch.daemon.reports()?.len();
    let last = reloaded.watch.daemon.wait_for_reports(open + 2, TIMEOUT)?.len();
    let half = reloaded.watch.send(plan(97), &mut oracle)?;
    let reports = reloaded.watch.stop(Loss::None)?;
    for (rate, reports, sent) in [(4, &reports[..first], quarter), (2, &reports[last..], half)] {
        check_one_in(rate, reports, sent)?;
        // A window without packets states a rate of 1.
        let busy =
            reports.iter().map(|report| &report["interfaces"][0]).filter(|link| link["ledger"]["seen"]["packets"] != 0);
        let told: Vec<&Value> = busy.map(|link| &link["sampling"]).collect();
        ensure!(told.iter().all(|told| *told == rate), "1 in {rate} was asked for, and told: {told:?}");
    }
    let seen = account::add_up(&reports)?.seen;
    ensure!(seen == oracle.sent(), "{seen:?} of {:?}", oracle.sent());
    Ok(())
}

fn a_key_is_looked_up_in_the_views_of_its_window() -> Result<()> {
    let mut reloaded = Reloaded::start("report: {interval: 2s}\nviews: [{name: w, by: [vlan]}]\n")?;
    reloaded.watch.daemon.wait_for_reports(1, TIMEOUT)?;
    let socket = reloaded.socket();
    let ask = || {
        let mut command = Command::new(weir_binary()?);
        Ended::of(command.args(["ask", "vlan=7", "--socket"]).arg(&socket))
    };
    ask()?.check(0, &[])?;
    reloaded.write("report: {interval: 2s}\nviews: [{name: w, by: [dscp]}]\n")?;
    reloaded.reload(&[])?.check(0, &[])?;
    reloaded.wait_for(1)?;
    // The window that has just ended was measured with the previous views.
    ask()?.check(0, &[])?;
    let reported = reloaded.watch.daemon.reports()?.len();
    reloaded.watch.daemon.wait_for_reports(reported + 2, TIMEOUT)?;
    ask()?.check(2, &["no list or view has keys of"])?;
    stop(&mut reloaded.watch.daemon, Loss::None).map(drop)
}

/// The YAML parser alone would take minutes for so many nested brackets.
fn a_hostile_file_is_refused_at_once() -> Result<()> {
    let mut reloaded = Reloaded::start(INTERVAL)?;
    let path = reloaded.watch.daemon.directory().join("weir.yaml");
    for (text, parts) in [
        ("{a: ".repeat(32_000), &["weir.yaml:1:129: nested too deeply"][..]),
        ("[".repeat(130_000), &["weir.yaml:1:33: nested too deeply"]),
        (String::new(), &["weir.yaml: it names no interface to measure"]),
        ("\u{feff}reprt: {}\n".to_owned(), &["weir.yaml:1:1: reprt: unknown key"]),
    ] {
        fs::write(&path, text)?;
        reloaded.reload(&[])?.check(2, parts)?;
    }
    stop(&mut reloaded.watch.daemon, Loss::None).map(drop)
}

fn only_the_owner_may_reload() -> Result<()> {
    const NOBODY: u32 = 65_534;
    let mut reloaded = Reloaded::start(INTERVAL)?;
    let socket = reloaded.socket();
    open_to_all(&socket)?;
    let as_nobody = |arguments: &[&str]| {
        let weir = weir_binary()?;
        let copy = reloaded.scratch.file("weir");
        if !copy.exists() {
            reloaded.scratch.program(&weir, "weir", 0o755)?;
        }
        Ended::of(Command::new(copy).args(arguments).arg("--socket").arg(&socket).uid(NOBODY).gid(NOBODY))
    };
    as_nobody(&["status"])?.check(0, &[])?;
    as_nobody(&["reload"])?.check(2, &["not permitted: user 65534"])?;
    as_nobody(&["detach", "--all"])?.check(2, &["not permitted: user 65534"])?;
    as_nobody(&["attach", "--all"])?.check(2, &["not permitted: user 65534"])?;
    ensure!(program(&reloaded.watch.pair.observer, INTERFACE).is_ok(), "another user has made weir detach");
    ensure!(!reloaded.watch.daemon.log()?.contains("is valid"), "{}", reloaded.watch.daemon.log()?);
    reloaded.reload(&["--json"])?.check(0, &[])?;
    stop(&mut reloaded.watch.daemon, Loss::None).map(drop)
}

/// Lets every user open the socket.
fn open_to_all(socket: &Path) -> Result<()> {
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666))?;
    let parents = socket.ancestors().skip(1).take_while(|parent| parent.parent().is_some());
    for parent in parents.filter(|parent| *parent != std::env::temp_dir()) {
        fs::set_permissions(parent, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Checks that `weir status`, the last report and the last windows together say that the interface is not measured, and
/// show no rate of it.
fn expect_not_measured_on_any_screen(reloaded: &Reloaded) -> Result<()> {
    let shown = |arguments: &[&str]| {
        let ended = Ended::of(Command::new(weir_binary()?).args(arguments).arg("--socket").arg(reloaded.socket()))?;
        ended.check(0, &[])?;
        anyhow::Ok(ended.out)
    };
    // The window in which weir detached has packets of the time before.
    clock::wait_for("a window without a packet", TIMEOUT, || {
        Ok(shown(&["report"])?.contains("kept unknown").then_some(()))
    })?;
    let (status, report, together) = (shown(&["status"])?, shown(&["report"])?, shown(&["report", "--last", "5"])?);
    let of_interface = |text: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(INTERFACE));
        line.map(str::to_owned).with_context(|| format!("{INTERFACE} is not shown:\n{text}"))
    };
    for text in [&status, &report] {
        let line = of_interface(text)?;
        ensure!(line.contains("detached") && line.contains("not measured") && !line.contains("bit/s"), "{text}");
    }
    let line = of_interface(&together)?;
    ensure!(line.contains("detached") && !line.contains("bit/s"), "a part of the time has no rate:\n{together}");
    for text in [&report, &together] {
        let words = ["attached 0 of 1", &format!("not measured: {INTERFACE} (detached)")];
        ensure!(words.iter().all(|words| text.contains(words)), "{text}");
        ensure!(!text.contains("weir saw none"), "{text}");
    }
    ensure!(report.contains("TRAFFIC   not measured"), "{report}");
    Ok(())
}

/// Runs `weir detach` or `weir attach`.
fn order(reloaded: &Reloaded, command: &str, names: &[&str]) -> Result<Ended> {
    Ended::of(Command::new(weir_binary()?).arg(command).args(names).arg("--socket").arg(reloaded.socket()))
}

/// Nothing is detached or attached unless the command names it. A reload says what stays detached, and `weir attach`
/// brings it back.
fn it_detaches_and_attaches_when_it_is_told() -> Result<()> {
    let mut reloaded = Reloaded::start(INTERVAL)?;
    let mut oracle = Oracle::new();
    let plan = |seed| Plan { seed, packets: 3_000, mix: Mix::PLAIN, ..Plan::default() };
    let has_program = |reloaded: &Reloaded| watch::has_program(&reloaded.watch.pair.observer, INTERFACE);
    for command in ["detach", "attach"] {
        order(&reloaded, command, &[])?.check(2, &["name the interfaces", "--all"])?;
        ensure!(has_program(&reloaded)?, "a bare `weir {command}` has detached");
    }
    order(&reloaded, "attach", &[INTERFACE])?.check(2, &[&format!("was not told to detach from \"{INTERFACE}\"")])?;
    for (nth, (away, back)) in
        [(INTERFACE, INTERFACE), ("--all", "--all"), ("--all", INTERFACE)].into_iter().enumerate()
    {
        order(&reloaded, "detach", &[away])?.check(0, &[])?;
        ensure!(!has_program(&reloaded)?, "{away}: its program is still there");
        let ended = reloaded.reload(&[])?;
        ended.check(0, &[])?;
        let way_back = format!("because of `weir detach`: {INTERFACE} (`weir attach {INTERFACE}`");
        ensure!(ended.out.contains(&way_back), "{}", ended.out);
        reloaded.wait_for(nth + 1)?;
        ensure!(!has_program(&reloaded)?, "{away}: a reload has attached again");
        let ended = order(&reloaded, "attach", &[back])?;
        ended.check(0, &[])?;
        ensure!(ended.out.contains(&format!("{INTERFACE} (ingress): xdp-native: ")), "{}", ended.out);
        ensure!(has_program(&reloaded)?, "{back}: it is not attached");
    }
    let ended = reloaded.reload(&[])?;
    ensure!(!ended.out.contains("weir detach"), "nothing is detached any more: {}", ended.out);
    reloaded.watch.send(plan(96), &mut oracle)?;
    let reports = reloaded.watch.stop(Loss::None)?;
    watch::judge("attached again", oracle.check_reports(&reports))
}

fn it_attaches_again_for_other_interfaces() -> Result<()> {
    let mut reloaded = Reloaded::start(INTERVAL)?;
    let mut oracle = Oracle::new();
    let plan = |seed| Plan { seed, packets: 3_000, mix: Mix::PLAIN, ..Plan::default() };
    reloaded.watch.send(plan(97), &mut oracle)?;
    order(&reloaded, "detach", &["nowhere0"])?.check(2, &["\"nowhere0\"", INTERFACE])?;
    let ended = order(&reloaded, "detach", &[INTERFACE])?;
    ended.check(0, &[])?;
    ensure!(ended.out.contains(&format!("{INTERFACE} (ingress): detached")), "{}", ended.out);
    ensure!(!watch::has_program(&reloaded.watch.pair.observer, INTERFACE)?, "its program is still there");
    // These packets are not counted: weir is detached from the interface.
    thread::sleep(Duration::from_millis(1_500));
    reloaded.watch.send(plan(98), &mut Oracle::new())?;
    ensure!(!watch::has_program(&reloaded.watch.pair.observer, INTERFACE)?, "it has attached again by itself");
    expect_not_measured_on_any_screen(&reloaded)?;
    // It does not attach again after a reload of the same file, or of one with other settings for the same interfaces.
    for (nth, settings) in [INTERVAL, "report: {interval: 1s, top: 7}\n"].into_iter().enumerate() {
        reloaded.write(settings)?;
        reloaded.reload(&[])?.check(0, &[])?;
        reloaded.wait_for(nth + 1)?;
        thread::sleep(Duration::from_millis(1_500));
        ensure!(!watch::has_program(&reloaded.watch.pair.observer, INTERFACE)?, "a reload has attached again: {nth}");
    }
    let others = format!("interfaces: [{}, later0]\n", native(INTERFACE));
    reloaded.write_all(&format!("{others}{}", all(INTERVAL, &reloaded.scratch)))?;
    reloaded.reload(&[])?.check(0, &[])?;
    reloaded.wait_for(3)?;
    let there = || Ok(watch::has_program(&reloaded.watch.pair.observer, INTERFACE)?.then_some(()));
    clock::wait_for("the program", TIMEOUT, there)?;
    reloaded.watch.send(plan(99), &mut oracle)?;
    let reports = reloaded.watch.stop(Loss::None)?;
    ensure!(watch::modes(INTERFACE, &reports).contains(&"detached"), "{:?}", watch::modes(INTERFACE, &reports));
    watch::judge("before and after", oracle.check_reports(&reports))
}
