//! How long it takes from the end of a window until the collector has acknowledged its report: workers, merging, the
//! report, the spool and the network. The collector is `weir collect`. A relay between the two notes when the answers
//! pass.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use weir_tests::{
    account::{self, Loss},
    clock,
    collecting::{self, Collecting},
    daemon::{Daemon, weir_binary},
    netns::{Lab, Namespace, QuietPair},
    scratch::Scratch,
};

/// Windows that are measured.
const WINDOWS: usize = 200;
const TIMEOUT: Duration = Duration::from_secs(30);

/// The times from the end of each window to the acknowledgement of its report, with windows of a second on an interface
/// without traffic.
///
/// # Errors
///
/// A report did not arrive, or more than one answer came for it.
pub fn times(sync: bool) -> Result<Vec<Duration>> {
    let pair = Lab::quiet_pair()?;
    let (database, state) = (Scratch::new()?, Scratch::new()?);
    let command = pair.observer.command(weir_binary()?);
    let collector = Collecting::start_in(command, database.path(), database.path(), &[])?;
    let (address, answers) = relay(&pair.observer, collector.address())?;
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
        format!(
            "interfaces: [{}]\nreport: {{interval: 1s}}\nspool: {{path: {}, fsync: {}}}\nsinks:\n  - {{type: http, url: \
             'http://{address}/'}}\n  - {{type: file, path: {}}}\n",
            QuietPair::OBSERVER_INTERFACE,
            state.path().display(),
            if sync { "report" } else { "never" },
            reports.display()
        )
    })?;
    daemon.wait_for_reports(WINDOWS, TIMEOUT + Duration::from_secs(WINDOWS as u64))?;
    daemon.stop(TIMEOUT)?;
    let reports = daemon.reports()?;
    account::check(&reports, Loss::None)?;
    let arrived = collecting::query(database.path(), &["windows"])?.len();
    let answers: Vec<_> = answers.try_iter().collect();
    ensure!(
        answers.len() == reports.len() && arrived == reports.len(),
        "{arrived} arrived, with {} answers, of {} reports",
        answers.len(),
        reports.len()
    );
    // The first report is left out because it waits for the setup, and the last one because its window is cut short.
    let whole = 1..reports.len() - 1;
    reports[whole.clone()].iter().zip(&answers[whole]).map(|(report, &answer)| since_end(report, answer)).collect()
}

/// From the end of a report's window to its answer, both in time since 1970.
fn since_end(report: &Value, answer: Duration) -> Result<Duration> {
    let end = report["window"]["end"].as_str().with_context(|| format!("no end in {report}"))?;
    let end = end.parse::<Timestamp>()?.as_duration().try_into()?;
    answer.checked_sub(end).context("an answer before the window's end")
}

/// Passes bytes on between weir and the collector, over the one connection that weir keeps open. Returns where it
/// listens, and when each answer passed.
fn relay(namespace: &Namespace, collector: SocketAddr) -> Result<(SocketAddr, Receiver<Duration>)> {
    let listener = namespace.enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))??;
    let mut up = namespace.enter(|| TcpStream::connect(collector))??;
    let mut answers = up.try_clone()?;
    let address = listener.local_addr()?;
    let (passed, receiver) = channel();
    thread::spawn(move || -> io::Result<()> {
        let (mut weir, _) = listener.accept()?;
        let mut down = weir.try_clone()?;
        down.set_nodelay(true)?;
        up.set_nodelay(true)?;
        thread::spawn(move || -> io::Result<()> {
            let mut bytes = [0; 64 << 10];
            while let count @ 1.. = answers.read(&mut bytes)? {
                let now = clock::since_epoch();
                down.write_all(&bytes[..count])?;
                if bytes.starts_with(b"HTTP/1.1 200 ") && passed.send(now).is_err() {
                    break;
                }
            }
            Ok(())
        });
        // The loop ends when weir or the collector ends.
        io::copy(&mut weir, &mut up).map(drop)
    });
    Ok((address, receiver))
}
