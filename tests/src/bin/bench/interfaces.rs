//! Very many interfaces at once: how long windows become, how fast weir follows and stops, and how long other programs
//! wait when they query the kernel's configuration.

use std::{
    fs,
    io::Write as _,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use weir_tests::{
    clock,
    daemon::Daemon,
    netns::{Lab, Namespace},
};

use crate::table;

const TIMEOUT: Duration = Duration::from_secs(300);
/// If nothing has changed for this long, weir has finished.
const QUIET: Duration = Duration::from_secs(2);

/// The measurements of one phase.
struct Phase {
    what: &'static str,
    took: Duration,
    /// How long `ip route get` took, sorted.
    waited: Vec<Duration>,
    /// The longest window, in seconds.
    longest: f64,
}

/// Creates this many interfaces before weir starts, then deletes and creates them again. All are measured in both
/// directions.
///
/// # Errors
///
/// Something could not be started, or weir did not measure all interfaces.
pub fn bench(links: usize, mode: &str) -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let namespace = &pair.observer;
    change(namespace, links, true)?;
    let (mut phases, mut daemon) = (Vec::new(), None);
    phases.push(phase(namespace, "weir starts", || {
        let started = daemon.insert(Daemon::start(Some(namespace), |reports| {
            format!(
                "interfaces: [{{name: \"p*\", direction: both, mode: {mode}}}]\nreport: {{interval: 1s}}\nsinks:\n  - {{type: file, \
                 path: {}}}\n",
                reports.display()
            )
        })?);
        settle(started, 2 * links)
    })?);
    let Some(mut daemon) = daemon else { anyhow::bail!("it was not started") };
    for (what, come) in [("they go", false), ("they come", true)] {
        phases.push(phase(namespace, what, || {
            change(namespace, links, come)?;
            settle(&daemon, if come { 2 * links } else { 0 })
        })?);
        phases.last_mut().into_iter().try_for_each(|phase| longest(&mut daemon, phase))?;
    }
    phases.push(phase(namespace, "weir stops", || daemon.stop(TIMEOUT).map(drop))?);
    phases.last_mut().into_iter().try_for_each(|phase| longest(&mut daemon, phase))?;
    table::say(format!("{links} interfaces in both directions, mode {mode}. {}\n", table::machine()?))?;
    let rows: Vec<_> = phases.iter().map(row).collect();
    table::write(["while", "takes", "longest window", "`ip route get`: median", "90 %", "99 %", "longest"], &rows)
}

fn row(phase: &Phase) -> [String; 7] {
    let Phase { what, took, waited, longest } = phase;
    let ms = |share: usize| format!("{:.1} ms", waited[(waited.len() - 1) * share / 100].as_secs_f64() * 1e3);
    let longest = if *longest > 0.0 { format!("{longest:.2} s") } else { "-".to_owned() };
    [(*what).to_owned(), format!("{:.2} s", took.as_secs_f64()), longest, ms(50), ms(90), ms(99), ms(100)]
}

/// Runs `act` while another program asks for a route again and again.
fn phase(namespace: &Namespace, what: &'static str, act: impl FnOnce() -> Result<()>) -> Result<Phase> {
    let is_over = AtomicBool::new(false);
    let ask = || -> Result<Vec<Duration>> {
        let mut waited = Vec::new();
        while !is_over.load(Ordering::Relaxed) || waited.is_empty() {
            let begin = clock::now();
            namespace.ip("route get 127.0.0.1")?;
            waited.push(begin.elapsed());
            thread::sleep(Duration::from_millis(2));
        }
        waited.sort_unstable();
        Ok(waited)
    };
    thread::scope(|scope| {
        let asks = scope.spawn(ask);
        let begin = clock::now();
        let done = act();
        let took = begin.elapsed();
        is_over.store(true, Ordering::Relaxed);
        let waited = asks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        done?;
        Ok(Phase { what, took, waited, longest: 0.0 })
    })
}

/// Creates or deletes the interfaces.
fn change(namespace: &Namespace, links: usize, come: bool) -> Result<()> {
    let mut lines = String::new();
    for nth in 0..links {
        if come {
            lines += &format!("link add p{nth} type veth peer name q{nth}\nlink set p{nth} up\n");
        } else {
            lines += &format!("link del p{nth}\n");
        }
    }
    let mut child = namespace.command("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(lines.as_bytes()))?;
    ensure!(child.wait()?.success(), "ip -batch failed");
    Ok(())
}

/// Waits until weir is attached in this many directions: it holds a descriptor for each of them.
fn settle(daemon: &Daemon, directions: usize) -> Result<()> {
    let count = || -> Result<usize> { Ok(fs::read_dir(format!("/proc/{}/fd", daemon.pid()))?.count()) };
    let is_done = |held: usize| if directions == 0 { held < 1_000 } else { held >= directions };
    let (begin, mut last, mut since) = (clock::now(), count()?, clock::now());
    while !is_done(last) || since.elapsed() < QUIET {
        thread::sleep(Duration::from_millis(20));
        let held = count()?;
        if held != last {
            (last, since) = (held, clock::now());
        }
        ensure!(begin.elapsed() < TIMEOUT, "weir holds {held} descriptors for {directions} directions");
    }
    Ok(())
}

/// The longest window so far.
fn longest(daemon: &mut Daemon, phase: &mut Phase) -> Result<()> {
    let reports = daemon.reports()?;
    let seconds = reports.iter().filter_map(|report| report["window"]["seconds"].as_f64());
    phase.longest = seconds.fold(0.0, f64::max);
    Ok(())
}
