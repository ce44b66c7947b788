//! Numbered packets through the router of a [`Lab`]: which of them came through, and how often.

use std::{
    fmt,
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::{clock, netns::Lab};

/// Packets that the client sends to the server in a second.
pub const PACKETS_PER_SECOND: u64 = 20_000;
/// The UDP port of these packets, on both sides.
pub const PORT: u16 = 7_000;
/// Packets that are sent together.
const BURST: u64 = 20;
/// How long packets may take to arrive.
const SILENCE: Duration = Duration::from_millis(500);
/// A socket buffer for two seconds of packets, in case the receiver gets no CPU time.
const BUFFER_BYTES: usize = 64 << 20;

/// The packets that came through the router.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Packets that were sent.
    pub sent: u64,
    /// The packets of these that did not arrive.
    pub missing: u64,
    /// The packets of these that arrived more than once.
    pub twice: u64,
}

impl Passed {
    /// Returns true if each packet arrived once.
    pub const fn expect_whole(&self) -> bool {
        self.sent > 0 && self.missing == 0 && self.twice == 0
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, missing, twice } = self;
        write!(f, "{sent} packets sent, {missing} missing, {twice} came twice")
    }
}

/// Sends numbered packets through the router while `meanwhile` does something.
///
/// # Errors
///
/// A socket fails; or the error of `meanwhile`.
pub fn through(lab: &Lab, meanwhile: impl FnOnce() -> Result<()>) -> Result<Passed> {
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

/// Sends numbers at a steady rate; returns how many.
fn send(socket: &UdpSocket, is_over: &AtomicBool) -> Result<u64> {
    let start = clock::now();
    let mut sent = 0;
    while !is_over.load(Relaxed) {
        let due = start.elapsed().as_micros() as u64 * PACKETS_PER_SECOND / 1_000_000;
        // A late sender does not catch up, because that would be a burst.
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
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if is_over.load(Relaxed) {
                    return Ok(seen);
                }
            }
            // The kernel does not restart reads of a socket with a timeout (signal(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}
