//! What systemd is told, if it started weir (`Type=notify`).
//!
//! `sd-notify` writes the messages. They are sent here, because it would wait for a systemd that does not read.

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
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sd_notify::NotifyState;

use crate::log::Lasting;

/// How long to wait until systemd takes a descriptor. What else it is told comes again, or can be done without.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells systemd these states, in order. If it does not read just now, it is not told.
pub fn notify(states: &[NotifyState<'_>]) {
    /// systemd is told something each second.
    static TELLING: Mutex<Lasting> = Mutex::new(Lasting::new("notify systemd"));
    match send(states, &[], None) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        result => drop(TELLING.lock().unwrap_or_else(PoisonError::into_inner).note(result)),
    }
}

/// Tells systemd these states, which go with a descriptor.
///
/// # Errors
///
/// systemd does not take it.
pub fn notify_with(states: &[NotifyState<'_>], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    send(states, &[descriptor], Some(PATIENCE))
}

fn send(states: &[NotifyState<'_>], descriptors: &[BorrowedFd<'_>], patience: Option<Duration>) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(patience.is_none())?;
    socket.set_write_timeout(patience)?;
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(&socket, &[io::IoSlice::new(message.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
