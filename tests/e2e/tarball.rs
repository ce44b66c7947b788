//! The static program of `scripts/release` on a system that has only busybox, as `OpenWrt`'s and Alpine's is
//! made of it: installed from its tarball, and started by its script for procd. `scripts/release --check` runs this.

use std::{
    env, fs,
    io::Read,
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
const CONFIG: &str = "etc/weir/weir.yaml";
const REPORTS: &str = "var/lib/weir/reports.ndjson";
const SERVICE: &str = "/etc/init.d/weir";
/// The port of the collector's TLS, in the system's own network.
const PORT: u16 = 8443;

/// How many packets come before anything is changed.
const FIRST: u64 = 20_000;

/// The test of the tarball; none if it is not given.
pub fn of_tarball() -> &'static [crate::Test] {
    const TESTS: &[crate::Test] = &[("it_measures_on_a_bare_system", it_measures_on_a_bare_system)];
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
