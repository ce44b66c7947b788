//! Live traffic: real sockets of the client and the server, through the router, over IPv4 and IPv6.
//!
//! The server sends everything back, and the client compares it. This shows that weir does not disturb forwarding.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use weir_tests::netns::Lab;

use crate::interrupt;

/// Each round is a connection and some datagrams of each IP version.
const ROUNDS: u32 = 8;
const ROUND_PAUSE: Duration = Duration::from_millis(600);
const CHUNK_BYTES: usize = 64 << 10; // fits the socket buffers, so all of it can be sent before any of it comes back
const CHUNKS: usize = 16; // 1 MiB a connection
const DATAGRAMS: usize = 60;
const DATAGRAM_BYTES: usize = 480;
const TCP_PORT: u16 = 7001;
const UDP_PORT: u16 = 7002;
/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often the server checks whether it should end.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The data that came back to the client unchanged.
#[derive(Clone, Copy, Default)]
pub struct Returned {
    /// The data over TCP.
    pub stream_bytes: u64,
    /// The data over UDP.
    pub datagrams: u64,
}

/// Sends all data, which takes some five seconds.
///
/// # Errors
///
/// Something did not come back, or came back changed; or an interrupt.
pub fn exchange(lab: &Lab) -> Result<Returned> {
    let addresses = Lab::SERVER.map(|ip| ip.parse::<IpAddr>().expect("the laboratory's addresses are addresses"));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for ip in addresses {
            let (listener, socket) = lab.server.enter(|| -> io::Result<_> {
                Ok((TcpListener::bind((ip, TCP_PORT))?, UdpSocket::bind((ip, UDP_PORT))?))
            })??;
            let over = &over;
            scope.spawn(move || serve_streams(&listener, over));
            scope.spawn(move || serve_datagrams(&socket, over));
        }
        let returned = lab.client.enter(|| rounds(addresses));
        over.store(true, Ordering::Relaxed);
        returned?
    })
}

fn rounds(addresses: [IpAddr; 2]) -> Result<Returned> {
    let mut returned = Returned::default();
    for _ in 0..ROUNDS {
        for ip in addresses {
            stream((ip, TCP_PORT).into()).with_context(|| format!("TCP to {ip}"))?;
            returned.stream_bytes += (CHUNKS * CHUNK_BYTES) as u64;
            datagrams((ip, UDP_PORT).into()).with_context(|| format!("UDP to {ip}"))?;
            returned.datagrams += DATAGRAMS as u64;
        }
        interrupt::sleep(ROUND_PAUSE)?;
    }
    Ok(returned)
}

fn stream(server: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut back = vec![0; CHUNK_BYTES];
    for nth in 0..CHUNKS {
        let sent = pattern(nth, CHUNK_BYTES);
        stream.write_all(&sent)?;
        stream.read_exact(&mut back)?;
        ensure!(back == sent, "chunk {nth} came back changed");
    }
    Ok(())
}

fn datagrams(server: SocketAddr) -> Result<()> {
    let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect(server)?;
    let mut back = [0; DATAGRAM_BYTES];
    for nth in 0..DATAGRAMS {
        let sent = pattern(nth, DATAGRAM_BYTES);
        socket.send(&sent)?;
        let length = socket.recv(&mut back).with_context(|| format!("datagram {nth} did not come back"))?;
        ensure!(back[..length] == sent, "datagram {nth} came back changed");
    }
    Ok(())
}

/// Bytes that differ from piece to piece.
fn pattern(nth: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + nth * 17) as u8).collect()
}

/// Sends back everything that it receives. The client reports a failure, because it misses what it sent.
fn serve_streams(listener: &TcpListener, over: &AtomicBool) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => drop(send_back(&stream)),
            Err(_) => thread::sleep(POLL_INTERVAL),
        }
    }
}

fn send_back(stream: &TcpStream) -> io::Result<u64> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let (mut from, mut to) = (stream.take(u64::MAX), stream);
    io::copy(&mut from, &mut to)
}

fn serve_datagrams(socket: &UdpSocket, over: &AtomicBool) {
    let mut datagram = [0; DATAGRAM_BYTES];
    let _ = socket.set_read_timeout(Some(10 * POLL_INTERVAL));
    while !over.load(Ordering::Relaxed) {
        match socket.recv_from(&mut datagram) {
            Ok((length, client)) => drop(socket.send_to(&datagram[..length], client)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}
