//! However weir ends, it leaves nothing behind. When it is asked to end, it first reports the last window.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::process::ExitStatusExt,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use weir_tests::{
    account::Loss,
    clock,
    collector::{Behaviour, Collector},
    daemon::{Daemon, Signal},
    netns::{Lab, QuietPair},
    oracle::Oracle,
    traffic::Plan,
};

use crate::watch::{ONE_WINDOW, TIMEOUT, Watch, config, end, has_program, judge, measure, modes, native, one_window};

tests![
    sigint_and_sigterm_bring_the_last_report,
    a_signal_that_comes_twice_is_one,
    a_later_signal_ends_it_at_once,
    killed_it_leaves_no_program_and_packets_pass
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

fn sigint_and_sigterm_bring_the_last_report() -> Result<()> {
    for signal in [Signal::INT, Signal::TERM] {
        let mut watch = Watch::one_window("")?;
        ensure!(has_program(&watch.pair.observer, INTERFACE)?, "nothing is attached while it measures");
        let mut oracle = Oracle::new();
        watch.send(Plan { seed: 41, ..Plan::default() }, &mut oracle)?;
        let reports = end(&mut watch.daemon, signal, Loss::None).with_context(|| format!("{signal:?}"))?;
        ensure!(!has_program(&watch.pair.observer, INTERFACE)?, "{signal:?}: a program is left on {INTERFACE}");
        ensure!(reports.len() == 1, "{signal:?}: {} reports", reports.len());
        judge(format_args!("the last report after {signal:?}"), oracle.check_report(&reports[0]))?;
        ensure!(modes(INTERFACE, &reports) == ["xdp-native"], "{signal:?}: {:?}", modes(INTERFACE, &reports));
    }
    Ok(())
}

/// `timeout`, `sudo` and shells do this: they signal their child, and then its process group.
fn a_signal_that_comes_twice_is_one() -> Result<()> {
    let mut watch = Watch::one_window("")?;
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 42, ..Plan::default() }, &mut oracle)?;
    // weir finds both signals when it continues, so the order of threads does not matter.
    watch.daemon.signal(Signal::STOP)?;
    watch.daemon.signal(Signal::TERM)?;
    watch.daemon.signal(Signal::INT)?;
    let reports = end(&mut watch.daemon, Signal::CONT, Loss::None)?;
    ensure!(reports.len() == 1, "{} reports", reports.len());
    judge("the last report", oracle.check_report(&reports[0]))?;
    ensure!(!has_program(&watch.pair.observer, INTERFACE)?, "a program is left on {INTERFACE}");
    Ok(())
}

fn a_later_signal_ends_it_at_once() -> Result<()> {
    /// After this time the second signal is not taken for a duplicate of the first.
    const LATER: Duration = Duration::from_millis(1_100);
    const INTERRUPTED: i32 = 130;
    one_window();
    let pair = Lab::quiet_pair()?;
    let collector = pair.observer.enter(|| Collector::listen((Ipv4Addr::LOCALHOST, 0).into()))??;
    collector.behave(Behaviour::Hang)?;
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
        let config = config(&format!("interfaces: [{}]\n{ONE_WINDOW}", native(INTERFACE)), reports);
        format!("{config}  - {{type: http, url: \"{}\", timeout: 60s}}\n", collector.url())
    })?;
    daemon.wait_for_line("measuring every packet", TIMEOUT)?;
    daemon.signal(Signal::TERM)?;
    // Once the last report is in the file, weir waits only for the collector.
    daemon.wait_for_reports(1, TIMEOUT)?;
    thread::sleep(LATER);
    daemon.signal(Signal::INT)?;
    let status = daemon.wait(TIMEOUT)?;
    // If it had waited for the collector, it would have ended as after one signal.
    ensure!(status.code() == Some(INTERRUPTED), "it ended with {status}");
    ensure!(!has_program(&pair.observer, INTERFACE)?, "a program is left on {INTERFACE}");
    Ok(())
}

fn killed_it_leaves_no_program_and_packets_pass() -> Result<()> {
    let lab = Lab::new()?;
    let address = SocketAddr::new(Lab::SERVER[0].parse()?, 7000);
    let listener = lab.server.enter(|| TcpListener::bind(address))??;
    let settings =
        format!("interfaces: [{}]\nreport: {{interval: 1s}}\n", Lab::router_interfaces().map(native).join(", "));
    let mut daemon = measure(&lab.router, &settings)?;

    let mut stream = lab.client.enter(|| TcpStream::connect_timeout(&address, TIMEOUT))??;
    let (mut echo, _) = listener.accept()?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let echoing = thread::spawn(move || {
        let mut byte = [0];
        while echo.read_exact(&mut byte).and_then(|()| echo.write_all(&byte)).is_ok() {}
    });
    let round_trips = AtomicU64::new(0);
    let killed = thread::scope(|scope| {
        let talking = scope.spawn(|| -> Result<()> {
            // One round trip; weir is killed during one of them.
            for _ in 0..4_000 {
                stream.write_all(b"?")?;
                stream.read_exact(&mut [0]).context("no answer through the router")?;
                round_trips.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_micros(500));
            }
            Ok(())
        });
        let killed = (|| {
            // Any moment is as good as another, and each run has a different one.
            thread::sleep(Duration::from_millis(300 + u64::from(clock::since_epoch().subsec_millis())));
            daemon.signal(Signal::KILL)?;
            let status = daemon.wait(TIMEOUT)?;
            let at_death = round_trips.load(Ordering::Relaxed);
            ensure!(status.signal() == Some(9), "it ended with {status}");
            for interface in Lab::router_interfaces() {
                ensure!(!has_program(&lab.router, interface)?, "a program is left on {interface}");
            }
            Ok(at_death)
        })();
        talking.join().expect("talking does not panic")?;
        killed
    })?;
    let all = round_trips.load(Ordering::Relaxed);
    ensure!(killed > 0 && killed < all, "it was killed after {killed} of {all} round trips");
    drop(stream);
    echoing.join().expect("echoing does not panic");
    Ok(())
}
