//! The static program of `scripts/release` on a system that has only busybox, as `OpenWrt`'s and Alpine's is
//! made of it: installed from its tarball, and started by its script for procd. `scripts/release --check` runs this.

use std::{
    env, fs,
    io::Read,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    collector::Collector,
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan, Traffic},
};

use crate::watch::{self, Ended, QUIET_LINK, TIMEOUT, check_accounts, judge};

/// The variable that names the tarball.
const TARBALL: &str = "WEIR_TARBALL";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/bare/root.sh");
const HOLD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/bare/hold.sh");
const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
const MAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/bare/make.sh");
const CONFIG: &str = "etc/weir/weir.yaml";
const UCI: &str = "etc/config/weir";
/// The folder of the container's image, within the system.
const IMAGE: &str = "image";
/// The folder in it for what belongs to the engine.
const TOOLS: &str = "tools";
const REPORTS: &str = "var/lib/weir/reports.ndjson";
const SERVICE: &str = "/etc/init.d/weir";
/// The port of the collector's TLS, in the system's own network.
const PORT: u16 = 8443;

/// How many packets come before anything is changed.
const FIRST: u64 = 20_000;

/// The tests of the tarball; none if it is not given.
pub fn of_tarball() -> &'static [crate::Test] {
    const TESTS: &[crate::Test] = &[
        ("it_measures_on_a_bare_system", it_measures_on_a_bare_system),
        ("uci_is_its_configuration", uci_is_its_configuration),
        ("the_makefile_installs_from_the_tarball", the_makefile_installs_from_the_tarball),
        ("a_container_needs_three_capabilities", a_container_needs_three_capabilities),
    ];
    if env::var_os(TARBALL).is_some() { TESTS } else { &[] }
}

fn it_measures_on_a_bare_system() -> Result<()> {
    let system = System::boot()?;
    system.done(&format!("{SERVICE} check"))?;
    system.done(&format!("{SERVICE} start"))?;
    let measures = || Ok(system.run("weir status")?.out.contains(INTERFACE).then_some(()));
    clock::wait_for("a weir that measures", TIMEOUT, measures).with_context(|| system.log())?;

    // The first true talker, with the first configuration.
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 90, packets: FIRST, flows: 20, mix: Mix::PLAIN, ..Plan::default() };
    watch::send(&system.pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(5_000), &mut oracle)?;
    let sources = oracle.grouped(|key| vec![key.src]);
    let (largest, _) = sources.iter().max_by_key(|(_, tally)| tally.bytes).context("sources")?;
    let shown = || Ok(system.run("weir status")?.out.contains(&largest.to_string()).then_some(()));
    clock::wait_for("the source that sent most", TIMEOUT, shown).with_context(|| system.log())?;

    // A reload adds a collector, whose name is in /etc/hosts, and whose certificate the system trusts.
    let collector = system.pair.observer.enter(|| Collector::listen(([127, 0, 0, 1], 0).into()))??;
    let _front = system.tls(&collector)?;
    let sink = format!("  - {{type: http, url: \"https://collector.test:{PORT}/\"}}\n");
    let text = fs::read_to_string(system.path(CONFIG))?.replace("interval: 1m", "interval: 1s") + &sink;
    fs::write(system.path(CONFIG), text)?;
    system.done(&format!("{SERVICE} reload"))?;
    system.measures(91, FIRST)?;
    let got = collector.wait_for(1, TIMEOUT).with_context(|| system.log())?;
    ensure!(!got.is_empty(), "no report came by TLS\n{}", system.log());

    system.done(&format!("{SERVICE} restart"))?;
    clock::wait_for("a weir that measures again", TIMEOUT, measures).with_context(|| system.log())?;
    system.measures(92, 0)?;
    system.done(&format!("{SERVICE} stop"))?;
    ensure!(!watch::has_program(&system.pair.observer, INTERFACE)?, "a program is still attached");
    let restricted = system.log().contains("no sandbox");
    ensure!(!restricted, "{}", system.log());
    Ok(())
}

/// `/etc/config/weir` is the configuration, if it is there.
fn uci_is_its_configuration() -> Result<()> {
    let system = System::boot()?;
    fs::create_dir_all(system.path("etc/config"))?;
    fs::copy(system.path("tmp/weir/openwrt/weir.config"), system.path(UCI))?;
    // As shipped, it is the same as the YAML that is shipped beside it.
    let by_uci = system.settings()?;
    let uci = fs::read_to_string(system.path(UCI))?;
    fs::remove_file(system.path(UCI))?;
    let by_yaml = system.settings()?;
    ensure!(by_uci == by_yaml, "{by_uci}\n\n{by_yaml}");
    let text = uci.replace("option interval '1m'", &format!("option interval '1s'\n\tlist interface '{INTERFACE}'"));
    fs::write(system.path(UCI), &text)?;
    system.done(&format!("{SERVICE} start"))?;
    let measures = || Ok(system.run("weir status")?.out.contains(INTERFACE).then_some(()));
    clock::wait_for("a weir that measures", TIMEOUT, measures).with_context(|| system.log())?;
    system.measures(93, 0)?;

    let sink = "\nconfig sink\n\toption url 'http://192.0.2.9/it'\n\toption vrf 'mgmt'\n";
    fs::write(system.path(UCI), text + sink)?;
    system.done(&format!("{SERVICE} reload"))?;
    let told = || Ok(system.run("weir status")?.out.contains("http://192.0.2.9/it").then_some(()));
    clock::wait_for("a sink of UCI", TIMEOUT, told).with_context(|| system.log())?;
    system.done(&format!("{SERVICE} stop"))?;

    let disabled = uci.replace("option enabled '1'", "option enabled '0'");
    fs::write(system.path(UCI), disabled)?;
    fs::remove_file(system.path("run/service.pid"))?;
    system.done(&format!("{SERVICE} start"))?;
    ensure!(!system.path("run/service.pid").exists(), "it was started, and is disabled");
    Ok(())
}

/// The makefile for `OpenWrt`, with a stand-in for its build system, installs what the tarball has.
fn the_makefile_installs_from_the_tarball() -> Result<()> {
    let folder = Scratch::new()?;
    let tarball = env::var_os(TARBALL).map(PathBuf::from).context("no tarball")?;
    let ended = Ended::of(Command::new("sh").arg(MAKE).arg(folder.path()).arg(tarball.canonicalize()?))?;
    ended.check(0, &[])?;
    for (file, mode) in [("usr/bin/weir", 0o755), ("etc/init.d/weir", 0o755), (UCI, 0o600), (CONFIG, 0o600)] {
        let found =
            fs::metadata(folder.file("installed").join(file)).with_context(|| format!("{file}: {}", ended.err))?;
        ensure!(found.permissions().mode() & 0o777 == mode && found.len() > 0, "{file}: {found:?}");
    }
    Ok(())
}

/// The image of the Containerfile runs with a root that cannot be written, and no capability but three.
fn a_container_needs_three_capabilities() -> Result<()> {
    let system = System::boot()?;
    system.image()?;
    let (log, root) = (system.path("run/container.log"), system.path(IMAGE).display().to_string());
    let run = system.contained("run --config /etc/weir/weir.yaml");
    // What compose.yaml says: a root that is read-only, and two places that are not.
    let setup = format!(
        "mount --bind {root} {root} && mount -t proc proc {root}/proc && mount --rbind /sys {root}/sys && \
         mount -t tmpfs none {root}/run/weir && mount -t tmpfs none {root}/var/lib/weir && \
         mount -o remount,bind,ro {root} && (STATE_DIRECTORY=/var/lib/weir {run} >{0} 2>&1 & echo $! >{1})",
        log.display(),
        system.path("run/service.pid").display()
    );
    Ended::of(&mut system.outside(&setup))?.check(0, &[])?;
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let measures = || {
        let told = Ended::of(&mut system.outside(&system.contained("status")))?;
        Ok(told.out.contains(INTERFACE).then_some(()))
    };
    clock::wait_for("a weir that measures", TIMEOUT, measures).with_context(said)?;
    let mut oracle = Oracle::new();
    let plan = Plan { seed: 95, packets: 5_000, mix: Mix::PLAIN, ..Plan::default() };
    let sent = watch::send(&system.pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
    let pid = fs::read_to_string(system.path("run/service.pid"))?;
    Ended::of(Command::new("kill").arg(pid.trim()))?.check(0, &[])?;
    let inside = format!("/proc/{}/root{root}/var/lib/weir/reports.ndjson", system.holder.id());
    let reports = clock::wait_for("the last report", TIMEOUT, || {
        let text = fs::read_to_string(&inside).unwrap_or_default();
        let all = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>().unwrap_or_default();
        Ok((watch::seen_in(INTERFACE, "ingress", &all)?.packets >= sent.packets).then_some(all))
    });
    let reports = reports.with_context(said)?;
    check_accounts(&reports, Loss::None)?;
    judge("a container", oracle.check_reports(&reports))?;
    ensure!(!said().contains("no sandbox"), "{}", said());
    Ok(())
}

/// A system in a folder, with the network of one end of a link.
struct System {
    root: Scratch,
    holder: Child,
    pair: QuietPair,
}

impl System {
    fn boot() -> Result<Self> {
        let root = Scratch::new()?;
        let tarball = env::var_os(TARBALL).map(PathBuf::from).context("no tarball")?;
        Ended::of(Command::new("sh").arg(ROOT).arg(root.path()).arg(tarball.canonicalize()?))?.check(0, &[])?;
        let pair = Lab::quiet_pair()?;
        pair.observer.ip("link set lo up")?;
        pair.observer.ip(&format!("address add 192.0.2.1/24 dev {INTERFACE}"))?;
        pair.observer.ip("route add default via 192.0.2.254")?;
        let mut command = pair.observer.command("sh");
        let command = command.arg(HOLD).arg(root.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().context("cannot start sh")?;
        let mut said = [0; 6];
        holder.stdout.as_mut().context("no output")?.read_exact(&mut said).context("the mounts failed")?;
        Ok(Self { root, holder, pair })
    }

    /// Runs a line of the shell in the system.
    fn run(&self, line: &str) -> Result<Ended> {
        let holder = self.holder.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &holder, "--mount", "--net", "chroot"]).arg(self.root.path());
        command.args(["/bin/sh", "-c", line]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        // A service that it starts stays, and must not keep this test's pipes open.
        Ended::of(command.stdin(Stdio::null()))
    }

    fn done(&self, line: &str) -> Result<String> {
        let Ended { code, out, err } = self.run(line)?;
        ensure!(code == Some(0), "{line}: {code:?}\n{err}{out}\n{}", self.log());
        Ok(out)
    }

    /// Makes the container's image from the unpacked tarball: does what the Containerfile says.
    fn image(&self) -> Result<()> {
        let from = self.path("tmp/weir");
        let text = fs::read_to_string(from.join("container/Containerfile"))?;
        ensure!(text.contains("FROM scratch"), "it needs another image");
        for line in text.lines().filter_map(|line| line.strip_prefix("COPY ")) {
            let (files, to) = line.rsplit_once(' ').context("no destination")?;
            let to = self.path(IMAGE).join(to.trim_start_matches('/'));
            fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
            for file in files.split(' ') {
                let to = if line.ends_with('/') { to.join(file) } else { to.clone() };
                fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
                fs::copy(from.join(file), &to).with_context(|| format!("COPY {file} {}", to.display()))?;
            }
        }
        for folder in ["proc", "sys", "run/weir", "var/lib/weir", TOOLS] {
            fs::create_dir_all(self.path(IMAGE).join(folder))?;
        }
        // A container's engine takes the capabilities away; here setpriv does, which needs its libraries.
        let script = format!(
            "cp $(command -v setpriv) $(ldd $(command -v setpriv) | grep -o '/[^ ]*') {}",
            self.path(IMAGE).join(TOOLS).display()
        );
        Ended::of(Command::new("sh").args(["-c", &script]))?.check(0, &[])
    }

    /// A command that runs weir in the container's image as root with three capabilities.
    fn contained(&self, arguments: &str) -> String {
        format!(
            "chroot {} /{TOOLS}/ld-linux-x86-64.so.2 --library-path /{TOOLS} /{TOOLS}/setpriv --no-new-privs \
             --inh-caps=-all --bounding-set=-all,+bpf,+net_admin,+perfmon /usr/bin/weir {arguments}",
            self.path(IMAGE).display()
        )
    }

    /// Runs a line of this machine's shell with the mounts and the network of the system.
    fn outside(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--mount", "--net", "sh", "-c", line]);
        command.stdin(Stdio::null());
        command
    }

    /// The settings in force, without what each check measures.
    fn settings(&self) -> Result<String> {
        let told = self.done(&format!("{SERVICE} check"))?;
        let (settings, _) = told.split_once("# views: ").context("no views")?;
        Ok(settings.to_owned())
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.root.file(inside)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("run/service.log")).unwrap_or_default()
    }

    /// A server of TLS before the collector, with a certificate that becomes the only one that the system trusts.
    fn tls(&self, collector: &Collector) -> Result<Front> {
        let (key, certificate) = (self.path("tmp/key"), self.path("etc/ssl/certs/ca-certificates.crt"));
        let mut openssl = Command::new("openssl");
        openssl.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=collector".split(' '));
        openssl.args(["-addext", "subjectAltName=DNS:collector.test", "-addext", "basicConstraints=critical,CA:FALSE"]);
        Ended::of(openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate))?.check(0, &[])?;
        let listen = format!(
            "OPENSSL-LISTEN:{PORT},bind=127.0.0.1,reuseaddr,fork,verify=0,cert={},key={}",
            certificate.display(),
            key.display()
        );
        let mut socat = self.pair.observer.command("socat");
        socat.args([listen, format!("TCP:{}", collector.address())]);
        Ok(Front(socat.stdin(Stdio::null()).spawn().context("cannot start socat")?))
    }

    /// Sends packets after so many others, and waits until they are in reports, exactly.
    fn measures(&self, seed: u64, before: u64) -> Result<()> {
        let known = clock::wait_for("a short window", TIMEOUT, || {
            let all = self.reports()?;
            let is_short = all.last().is_some_and(|last| last["window"]["seconds"].as_f64() < Some(2.0));
            let has_all = watch::seen_in(INTERFACE, "ingress", &all)?.packets >= before;
            Ok((is_short && has_all).then_some(all.len()))
        });
        let known = known.with_context(|| self.log())?;
        let mut oracle = Oracle::new();
        let plan = Plan { seed, packets: 5_000, mix: Mix::PLAIN, ..Plan::default() };
        let sent = watch::send(&self.pair, QUIET_LINK, Traffic::new(plan)?, Pace::Unlimited, &mut oracle)?;
        let after = clock::wait_for("reports of all packets", TIMEOUT, || {
            let after = self.reports()?.split_off(known);
            Ok((watch::seen_in(INTERFACE, "ingress", &after)?.packets >= sent.packets).then_some(after))
        });
        let after = after.with_context(|| self.log())?;
        check_accounts(&after, Loss::None)?;
        judge("a bare system", oracle.check_reports(&after))
    }

    fn reports(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.path(REPORTS)).unwrap_or_default();
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        complete.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // A test that failed may have left weir running. The mounts go with the holder.
        if let Ok(pid) = fs::read_to_string(self.path("run/service.pid")) {
            let _ = Command::new("kill").args(["-KILL", pid.trim()]).stderr(Stdio::null()).status();
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A program that is killed on drop.
struct Front(Child);

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
