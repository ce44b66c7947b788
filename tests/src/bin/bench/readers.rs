//! Measures what a client that looks each second costs the daemon: `weir top`, and the page in a browser.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use weir_tests::{
    account::{self, Loss},
    clock,
    daemon::Daemon,
    inject::{self, Pace},
    netns::{Lab, QuietPair},
    scratch::Scratch,
    traffic::{Plan, Traffic},
};

use crate::{table, tax::process::cpu_time};

/// How long each reader is measured at a time: with ticks of 10 ms this resolves 0.05 %.
const WATCHED: Duration = Duration::from_secs(20);
const EACH: Duration = Duration::from_secs(1);
/// Each reader is measured this often, in turn with the others.
const ROUNDS: u32 = 3;
const TIMEOUT: Duration = Duration::from_secs(30);
const RATE: u32 = 20_000;
const FLOWS: [u32; 2] = [200, 20_000];
const PAGE: &str = "127.0.0.1:9470";

#[derive(Clone, Copy)]
enum Looking {
    Nobody,
    /// As `weir top`: each second's message, and the lists of the open window each second.
    Top,
    /// As the page: each second's event, and the lists of the open window each second.
    Page,
}

/// Runs weir beside traffic, and looks at it in turn in each way.
///
/// # Errors
///
/// It could not be started, a packet is in no report, or an answer is wrong.
pub fn bench() -> Result<()> {
    let mut rows = Vec::new();
    for flows in FLOWS {
        let shares = with(flows)?.map(|spent| spent.as_secs_f64() / (WATCHED * ROUNDS).as_secs_f64() * 100.0);
        let [nobody, top, page] = shares;
        rows.push([
            table::thousands(flows.into()),
            format!("{nobody:.2} % of a core"),
            format!("+{:.2} %", top - nobody),
            format!("+{:.2} %", page - nobody),
        ]);
    }
    table::say(format!("{RATE} packets a second. {}\n", table::machine()?))?;
    table::write(["flows", "without a reader", "`weir top`", "the page"], &rows)
}

/// The CPU time of the daemon with each reader, over all rounds.
fn with(flows: u32) -> Result<[Duration; 3]> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let pair = Lab::quiet_pair()?;
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
        format!(
            "interfaces: [{}]\nreport: {{interval: 10s}}\ncontrol: {{socket: {}}}\nweb: {{listen: {PAGE}}}\n\
             sinks:\n  - {{type: file, path: {}}}\n",
            QuietPair::OBSERVER_INTERFACE,
            socket.display(),
            reports.display()
        )
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    let seconds = (WATCHED * ROUNDS * 3).as_secs();
    let plan = Plan { packets: u64::from(RATE) * (seconds + 2), flows, ..Plan::default() };
    let traffic = Traffic::new(plan)?.map(|packet| packet.frame);
    let pid = daemon.pid();
    let (sent, spent) = thread::scope(|scope| {
        let generator = &pair.generator;
        let sending = scope.spawn(move || {
            generator.enter(|| inject::send(QuietPair::GENERATOR_INTERFACE, traffic, Pace::PacketsPerSecond(RATE)))?
        });
        let spent = pair.observer.enter(|| in_turn(pid, &socket));
        (sending.join(), spent)
    });
    let sent = sent.map_err(|_| anyhow::anyhow!("the sender panicked"))??;
    let spent = spent??;
    daemon.stop(TIMEOUT)?;
    let reports = daemon.reports()?;
    account::check(&reports, Loss::None)?;
    let counted: u64 = reports.iter().filter_map(|report| report["totals"]["packets"].as_u64()).sum();
    ensure!(counted == sent.packets, "{counted} of {} packets are in reports", sent.packets);
    Ok(spent)
}

fn in_turn(pid: u32, socket: &Path) -> Result<[Duration; 3]> {
    let mut spent = [Duration::ZERO; 3];
    for _ in 0..ROUNDS {
        for (sum, looking) in spent.iter_mut().zip([Looking::Nobody, Looking::Top, Looking::Page]) {
            *sum += look(pid, socket, looking)?;
        }
    }
    Ok(spent)
}

/// The CPU time of the daemon while somebody looks.
fn look(pid: u32, socket: &Path, looking: Looking) -> Result<Duration> {
    let before = cpu_time(pid)?;
    let start = clock::now();
    // It gets a message each second, and is closed at the end.
    let stream: Option<Box<dyn std::any::Any>> = match looking {
        Looking::Nobody => None,
        Looking::Top => Some(Box::new(request(socket, "subscribe")?)),
        Looking::Page => Some(Box::new(get("/api/seconds")?)),
    };
    for second in 1..=WATCHED.as_secs() as u32 {
        let live = match looking {
            Looking::Nobody => None,
            Looking::Top => Some(answer_of(request(socket, "live")?)?),
            Looking::Page => Some(body_of(get("/api/live")?)?),
        };
        if let Some(live) = live {
            ensure!(live["window"]["seconds"].as_f64() > Some(0.0), "no open window: {live}");
        }
        thread::sleep((EACH * second).saturating_sub(start.elapsed()));
    }
    drop(stream);
    Ok(cpu_time(pid)? - before)
}

fn request(socket: &Path, command: &str) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    writeln!(stream, "{}", json!({"version": 1, "command": command}))?;
    Ok(stream)
}

fn answer_of(mut stream: UnixStream) -> Result<Value> {
    let mut line = String::new();
    stream.read_to_string(&mut line)?;
    let mut told: Value = serde_json::from_str(&line).with_context(|| format!("{line:?}"))?;
    Ok(told["answer"].take())
}

fn get(path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&PAGE.parse::<SocketAddr>()?, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {PAGE}\r\nConnection: close\r\n\r\n")?;
    Ok(stream)
}

fn body_of(mut stream: TcpStream) -> Result<Value> {
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    serde_json::from_str(body).with_context(|| format!("{body:?}"))
}
