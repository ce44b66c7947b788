//! Sends messages to systemd, if systemd started weir (`Type=notify`).
//!
//! `sd-notify` formats the messages. They are sent here for two reasons: `sd-notify` would block if systemd does not
//! read, and the sandbox allows no new Unix socket, so this one is opened at the start.

use std::{
    env, io,
    mem::MaybeUninit,
    os::{
        fd::BorrowedFd,
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    slice,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sd_notify::NotifyState;

use crate::log::Lasting;

/// How long to wait for systemd to accept a descriptor. Other messages are repeated, or can be dropped.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sends these states to systemd, in order. If systemd is not reading at the moment, they are dropped.
pub fn notify(states: &[NotifyState<'_>]) {
    /// Logs changes only, because there is a message every second.
    static TELLING: Mutex<Lasting> = Mutex::new(Lasting::new("notify systemd"));
    match send(states, None) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        result => drop(TELLING.lock().unwrap_or_else(PoisonError::into_inner).note(result)),
    }
}

/// Sends these states to systemd together with a descriptor.
///
/// # Errors
///
/// systemd does not accept the descriptor.
pub fn notify_with(states: &[NotifyState<'_>], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    send(states, Some(descriptor))
}

/// systemd's socket, and its address.
struct Peer {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Peer {
    /// Finds systemd's socket. `None` if systemd did not start weir.
    fn find() -> io::Result<Option<Self>> {
        let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
        let address = match path.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Some(Self { socket, address }))
    }
}

/// Connects to systemd, if it started weir. Call this before the sandbox is closed.
pub fn connect() {
    let _ = peer();
}

fn peer() -> io::Result<Option<&'static Peer>> {
    static PEER: OnceLock<io::Result<Option<Peer>>> = OnceLock::new();
    match PEER.get_or_init(Peer::find) {
        Ok(peer) => Ok(peer.as_ref()),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}

fn send(states: &[NotifyState<'_>], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let Some(Peer { socket, address }) = peer()? else { return Ok(()) };
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    match send_to(socket, &message, descriptor) {
        // systemd has restarted, and recreated its socket.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected) => {
            socket.connect_addr(address)?;
            send_to(socket, &message, descriptor)
        }
        result => result,
    }
}

/// Sends a message. Blocks only if there is a descriptor.
fn send_to(socket: &UnixDatagram, message: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptor.iter().all(|one| ancillary.push(SendAncillaryMessage::ScmRights(slice::from_ref(one)))) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let wait = if descriptor.is_some() { SendFlags::empty() } else { SendFlags::DONTWAIT };
    sendmsg(socket, &[io::IoSlice::new(message.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL | wait)?;
    Ok(())
}
