//! Kills weir again and again on a router, while it forwards: every packet must come through.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use weir_tests::{
    clock,
    daemon::{Daemon, Signal},
    netns::Lab,
    quiet::TIMEOUT,
    table,
};

const PACKETS_PER_SECOND: u64 = 20_000;
/// Packets that are sent together.
const BURST: u64 = 20;
const PORT: u16 = 7_000;
/// How long packets may be on their way.
const SILENCE: Duration = Duration::from_millis(500);
/// Room for two seconds of packets, where the receiver gets no time.
const BUFFER_BYTES: usize = 64 << 20;
/// Each of them. What the classic tc hook has outlives its daemon.
const MODES: [&str; 4] = ["native", "generic", "tcx", "tc"];
/// How long weir measures before it is killed, at most.
const LIFE_MAX_MS: u64 = 200;

/// Kills `kills` daemons, one after the other; prints what came through.
///
/// # Errors
///
/// A packet was lost or came twice; or weir did not start.
pub fn soak(kills: u32) -> Result<bool> {
    let lab = Lab::new()?;
    let quiet = through(&lab, || {
        thread::sleep(Duration::from_secs(2));
        Ok(())
    })?;
    quiet.say("without weir")?;
    ensure!(quiet.is_whole(), "this machine loses packets without weir: the rest would say nothing");
    let mut is_whole = true;
    for mode in MODES {
        let killed = through(&lab, || (0..kills).try_for_each(|_| live(&lab, mode)))?;
        killed.say(&format!("with weir in mode {mode}, killed {kills} times"))?;
        is_whole &= killed.is_whole();
    }
    Ok(is_whole)
}

/// Starts weir on both interfaces of the router, and kills it a while after it has begun to measure.
fn live(lab: &Lab, mode: &str) -> Result<()> {
    // XDP has no hook for what is sent.
    let direction = if mode.starts_with("tc") { "both" } else { "ingress" };
    let interface = |name| format!("{{name: {name}, mode: {mode}, direction: {direction}}}");
    let interfaces = Lab::router_interfaces().map(interface).join(", ");
    let mut daemon = Daemon::start(Some(&lab.router), |_| {
        format!("interfaces: [{interfaces}]\nreport: {{interval: 1s}}\nsinks: [{{type: stdout}}]\n")
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    thread::sleep(Duration::from_millis(u64::from(clock::since_epoch().subsec_nanos()) % LIFE_MAX_MS));
    daemon.signal(Signal::KILL)?;
    daemon.wait(TIMEOUT)?;
    Ok(())
}

/// What came through the router.
struct Passed {
    sent: u64,
    missing: u64,
    twice: u64,
}

impl Passed {
    const fn is_whole(&self) -> bool {
        self.sent > 0 && self.missing == 0 && self.twice == 0
    }

    fn say(&self, what: &str) -> Result<()> {
        let Self { sent, missing, twice } = self;
        table::say(format!("{what}: {sent} packets sent, {missing} missing, {twice} came twice"))
    }
}

/// Sends numbered packets through the router while `meanwhile` does something.
fn through(lab: &Lab, meanwhile: impl FnOnce() -> Result<()>) -> Result<Passed> {
    let address = |ip: &str| anyhow::Ok(SocketAddr::new(ip.parse::<IpAddr>()?, PORT));
    let (here, there) = (address(Lab::CLIENT[0])?, address(Lab::SERVER[0])?);
    let receiver = lab.server.enter(|| UdpSocket::bind(there))??;
    set_socket_recv_buffer_size_force(&receiver, BUFFER_BYTES)?;
    receiver.set_read_timeout(Some(SILENCE))?;
    let sender = lab.client.enter(|| UdpSocket::bind(here))??;
    sender.connect(there)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sending = scope.spawn(|| send(&sender, &is_over));
        let receiving = scope.spawn(|| receive(&receiver, &is_over));
        let done = meanwhile();
        is_over.store(true, Relaxed);
        let sent = sending.join().expect("sending does not panic")?;
        let seen = receiving.join().expect("receiving does not panic")?;
        done?;
        let missing = seen.iter().take(sent as usize).filter(|times| **times == 0).count();
        let twice = seen.iter().filter(|times| **times > 1).count();
        ensure!(seen.len() as u64 <= sent, "{} packets came of {sent}", seen.len());
        Ok(Passed { sent, missing: missing as u64 + sent - seen.len() as u64, twice: twice as u64 })
    })
}

/// Sends numbers at a steady rate; gives how many.
fn send(socket: &UdpSocket, is_over: &AtomicBool) -> Result<u64> {
    let start = clock::now();
    let mut sent = 0;
    while !is_over.load(Relaxed) {
        let due = start.elapsed().as_micros() as u64 * PACKETS_PER_SECOND / 1_000_000;
        // What the sender is late with is not made up for: that would be a burst.
        for _ in 0..due.saturating_sub(sent).min(BURST) {
            socket.send(&sent.to_be_bytes()).context("cannot send")?;
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(sent)
}

/// How often each number came.
fn receive(socket: &UdpSocket, is_over: &AtomicBool) -> Result<Vec<u8>> {
    let mut seen: Vec<u8> = Vec::new();
    let mut number = [0; 8];
    loop {
        match socket.recv(&mut number) {
            Ok(_) => {
                let number = usize::try_from(u64::from_be_bytes(number))?;
                if seen.len() <= number {
                    seen.resize(number + 1, 0);
                }
                seen[number] = seen[number].saturating_add(1);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if is_over.load(Relaxed) {
                    return Ok(seen);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}
