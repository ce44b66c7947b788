//! Tests of the laboratory itself on the real kernel. They need root; without root they count as ignored.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    panic,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weir_tests::{
    clock,
    collector::Collector,
    daemon::{Daemon, Signal},
    inject::{self, Pace},
    netns::{Lab, QuietPair, requirements},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan, Traffic},
    trial::{needed, run, trial},
};

const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let met = needed(requirements());
    let trial = |name, test| trial(name, test, &[&met]);
    let trials = vec![
        trial("packets_pass_from_client_to_server", packets_pass_from_client_to_server),
        trial("only_what_is_injected_arrives", only_what_is_injected_arrives),
        trial("pacing_holds_the_rate", pacing_holds_the_rate),
        trial("nothing_is_left_after_a_panic", nothing_is_left_after_a_panic),
        trial("an_error_names_the_command", an_error_names_the_command),
        trial("a_collector_listens_inside", a_collector_listens_inside),
        trial("a_daemon_is_started_read_and_stopped", a_daemon_is_started_read_and_stopped),
        trial("a_daemon_that_ends_is_quoted", a_daemon_that_ends_is_quoted),
        trial("a_daemon_is_killed_on_drop", a_daemon_is_killed_on_drop),
    ];
    run(trials)
}

fn packets_pass_from_client_to_server() -> Result<()> {
    let lab = Lab::new()?;
    let [wan, lan] = Lab::router_interfaces();
    for address in Lab::SERVER.map(|ip| SocketAddr::new(ip.parse().expect("it is an address"), 7000)) {
        let listener = lab.server.enter(|| TcpListener::bind(address))??;
        let echo = std::thread::spawn(move || -> Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut text = Vec::new();
            stream.read_to_end(&mut text)?;
            stream.write_all(&text)?;
            Ok(())
        });
        let answer = lab.client.enter(|| -> Result<String> {
            let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
            stream.write_all(b"through the router")?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })??;
        ensure!(answer == "through the router", "{answer}");
        echo.join().expect("the echo does not panic")?;
    }
    for interface in [wan, lan] {
        let counters = lab.router.counters(interface)?;
        ensure!(counters.received.packets >= 8 && counters.sent.packets >= 8, "{interface}: {counters:?}");
    }
    Ok(())
}

fn only_what_is_injected_arrives() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let plan = Plan { packets: 20_000, mix: Mix::odd(), ..Plan::default() };
    let mut oracle = Oracle::new();
    let packets = Traffic::new(plan)?.inspect(|packet| oracle.add(&packet.truth));
    let sent = pair.generator.enter(|| inject::send(QuietPair::GENERATOR_INTERFACE, packets, Pace::Unlimited))??;
    ensure!(sent == oracle.sent(), "sent {sent:?} of {:?}", oracle.sent());
    // Long enough for packets that the kernel might send by itself.
    std::thread::sleep(Duration::from_secs(2));
    let observed = pair.observer.counters(QuietPair::OBSERVER_INTERFACE)?;
    ensure!(observed.received == sent, "observed {observed:?} of {sent:?}");
    ensure!(observed.sent.is_zero(), "{observed:?}");
    let generated = pair.generator.counters(QuietPair::GENERATOR_INTERFACE)?;
    ensure!(generated.sent == sent && generated.received.is_zero(), "generated {generated:?} of {sent:?}");
    Ok(())
}

fn pacing_holds_the_rate() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let start = clock::now();
    let frames = std::iter::repeat_n([0u8; 60], 2_001);
    pair.generator.enter(|| inject::send(QuietPair::GENERATOR_INTERFACE, frames, Pace::PacketsPerSecond(4_000)))??;
    let took = start.elapsed();
    ensure!((Duration::from_millis(500)..TIMEOUT).contains(&took), "2,001 packets at 4,000 a second took {took:?}");
    Ok(())
}

fn nothing_is_left_after_a_panic() -> Result<()> {
    let names = panic::catch_unwind(|| {
        let lab = Lab::new().expect("a laboratory");
        let names = [&lab.client, &lab.router, &lab.server].map(|namespace| namespace.name().to_owned());
        assert!(names.iter().all(|name| exists(name)));
        panic::panic_any(names);
    });
    let names = names.expect_err("it panics");
    let names = names.downcast::<[String; 3]>().ok().context("it panicked otherwise")?;
    ensure!(names.iter().all(|name| !exists(name)), "left: {names:?}");
    Ok(())
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

fn an_error_names_the_command() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let error = format!("{:#}", pair.observer.ip("link set moon0 up").expect_err("there is no moon0"));
    let expected = format!("ip -n {} link set moon0 up: Cannot find device \"moon0\"", pair.observer.name());
    ensure!(error == expected, "{error}");
    let panics: fn() = || panic!("inside");
    let error = format!("{:#}", pair.observer.enter(panics).expect_err("it panics"));
    ensure!(error.ends_with("panicked"), "{error}");
    Ok(())
}

fn a_collector_listens_inside() -> Result<()> {
    let lab = Lab::new()?;
    let address = SocketAddr::new(Lab::SERVER[0].parse()?, 8090);
    let collector = lab.server.enter(|| Collector::listen(address))??;
    let post =
        "POST / HTTP/1.1\r\nHost: lab\r\nContent-Type: application/x-ndjson\r\nContent-Length: 7\r\n\r\n{\"n\":1}";
    lab.router.enter(|| TcpStream::connect_timeout(&address, TIMEOUT)?.write_all(post.as_bytes()))??;
    let received = collector.wait_for(1, TIMEOUT)?;
    ensure!(received[0].report == json!({"n": 1}), "{received:?}");
    drop(collector);
    let closed = || lab.router.enter(|| TcpStream::connect_timeout(&address, TIMEOUT).is_err());
    clock::wait_for("a closed port", TIMEOUT, || Ok(closed()?.then_some(())))
}

/// A stand-in that looks like `weir run --config F` from outside.
fn stand_in(scratch: &Scratch, script: &str) -> Result<PathBuf> {
    let path = scratch.file("weir");
    fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path)
}

fn a_daemon_is_started_read_and_stopped() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let scratch = Scratch::new()?;
    // The first line of its "config" is the path to write reports to. It reports which interfaces it sees.
    let script = r#"
        [ "$1 $2" = "run --config" ] || exit 2
        reports=$(head -n 1 "$3")
        trap 'printf "{\"last\":true}\n" >> "$reports"; exit 0' TERM
        printf '{"interfaces":"%s"}\n' "$(ls /sys/class/net | tr '\n' ' ')" >> "$reports"
        printf '{"half' >> "$reports"
        echo "ready to measure" >&2
        while :; do sleep 0.05; printf '":1}\n{"half' >> "$reports"; done"#;
    let program = stand_in(&scratch, script)?;
    let config = |reports: &Path| reports.display().to_string();
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), config)?;
    let line = daemon.wait_for_line("ready", TIMEOUT)?;
    ensure!(line == "ready to measure", "{line}");
    let reports = daemon.wait_for_reports(2, TIMEOUT)?;
    let seen = reports[0]["interfaces"].as_str().context("no interfaces")?;
    ensure!(seen.split(' ').any(|name| name == QuietPair::OBSERVER_INTERFACE), "inside there are: {seen}");
    ensure!(daemon.stop(TIMEOUT)?.success(), "{}", daemon.log()?);
    ensure!(daemon.reports().is_err(), "its last line is torn");
    ensure!(daemon.signal(Signal::TERM).is_err(), "it has ended");
    Ok(())
}

fn a_daemon_that_ends_is_quoted() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = stand_in(&scratch, "echo 'weir.yaml:1:1: nonsense' >&2; exit 2")?;
    let mut daemon = Daemon::start_program(&program, None, |_| String::new())?;
    let error = format!("{:#}", daemon.wait_for_line("ready", TIMEOUT).expect_err("it is never ready"));
    ensure!(error.contains("exit status: 2") && error.contains("weir.yaml:1:1: nonsense"), "{error}");
    ensure!(daemon.reports()?.is_empty(), "it wrote none");
    Ok(())
}

fn a_daemon_is_killed_on_drop() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = stand_in(&scratch, "trap '' TERM INT; echo ready >&2; while :; do sleep 0.05; done")?;
    let mut daemon = Daemon::start_program(&program, None, |_| String::new())?;
    daemon.wait_for_line("ready", TIMEOUT)?;
    daemon.signal(Signal::INT)?;
    ensure!(daemon.stop(Duration::from_millis(100)).is_err(), "it ignores SIGTERM");
    let (process, directory) = (format!("/proc/{}", daemon.pid()), daemon.directory().to_owned());
    drop(daemon);
    ensure!(!Path::new(&process).exists() && !directory.exists(), "{process} or {}", directory.display());

    let mut daemon = Daemon::start_program(&program, None, |_| String::new())?;
    daemon.wait_for_line("ready", TIMEOUT)?;
    daemon.signal(Signal::KILL)?;
    ensure!(daemon.wait(TIMEOUT)?.signal() == Some(9), "SIGKILL has ended it");
    Ok(())
}
