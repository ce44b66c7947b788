//! A netlink socket: sends one request at a time, and receives all messages of the answer.

use std::{io, ops::ControlFlow, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink::SocketAddrNetlink, recv,
        sendto, socket_with,
    },
};
use weir_system::sockopt::set_number;

use super::message::{DONE, ERROR, INTERRUPTED, Message, message, messages, word};

/// The size of the buffer for one `recv`, in bytes. The kernel puts at most 32 KiB of a list into one datagram
/// (`netlink_recvmsg`), unless the message about a single interface is longer, for example with many virtual functions.
pub const BUFFER_BYTES: usize = 256 << 10;

/// A socket for requests.
pub struct Socket {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Socket {
    /// Opens the socket, in this thread's network namespace. `None` means routing netlink.
    pub fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = open(protocol, 0, SocketFlags::CLOEXEC)?;
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES], sequence: 0 })
    }

    /// From now on the kernel rejects anything that it does not understand in a request for a list, and applies the
    /// request's filters (`NETLINK_GET_STRICT_CHK`, from Linux 4.20 on).
    pub fn be_strict(&self) -> io::Result<()> {
        set_number(&self.socket, libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, 1)
    }

    /// Sends a request and reads all answers. Skips those for which `read` returns `None`.
    ///
    /// # Errors
    ///
    /// The kernel's error; [`io::ErrorKind::Interrupted`] if a list may lack an entry.
    pub fn ask<T>(
        &mut self,
        kind: u16,
        flags: u16,
        question: &[u8],
        mut read: impl FnMut(&Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let mut answers = Vec::new();
        self.hear(kind, flags, question, |message| {
            answers.extend(read(message));
            ControlFlow::Continue(())
        })?;
        Ok(answers)
    }

    /// Sends a request and reads answers until there are no more, or until `read` stops. If `read` stops, the rest of
    /// the answer stays in the kernel, and the socket must not be used again.
    ///
    /// # Errors
    ///
    /// See [`Socket::ask`].
    pub fn hear(
        &mut self,
        kind: u16,
        flags: u16,
        question: &[u8],
        mut read: impl FnMut(&Message<'_>) -> ControlFlow<()>,
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = message(kind, flags, self.sequence, question);
        sendto(&self.socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;

        let mut whole = true;
        loop {
            let (_, length) = retry(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC))?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let bytes = self.buffer.get(..length).ok_or_else(|| {
                io::Error::other(format!("the kernel's answer has {length} bytes, and weir reads {BUFFER_BYTES}"))
            })?;
            // The rest of an abandoned answer has another sequence number.
            for message in messages(bytes).filter(|message| message.sequence == self.sequence) {
                whole &= message.flags & INTERRUPTED == 0;
                match message.kind {
                    DONE => {
                        done(&message)?;
                        return if whole { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) };
                    }
                    ERROR => return acknowledged(&message),
                    _ if read(&message).is_break() => return Ok(()),
                    _ => {}
                }
            }
        }
    }
}

/// The result in an `NLMSG_DONE`: the kernel's error number, negative, if an error ended the list early.
fn done(message: &Message<'_>) -> io::Result<()> {
    match word(message.body, 0).map(|code| code as i32) {
        Some(code @ ..0) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        _ => Ok(()),
    }
}

/// The result in an `NLMSG_ERROR`: the kernel's error number, negative, or 0 if there was no error.
fn acknowledged(message: &Message<'_>) -> io::Result<()> {
    match word(message.body, 0) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error((code as i32).saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Opens a socket that also joins these groups.
pub fn open(protocol: Option<Protocol>, groups: u32, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::{ALL, ONE};

    #[test]
    fn an_error_is_the_kernels_and_zero_is_an_acknowledgement() {
        let told = |body: &[u8]| acknowledged(&Message { kind: ERROR, flags: 0, sequence: 1, body });
        assert!(told(&0_u32.to_ne_bytes()).is_ok());
        assert_eq!(told(&(-19_i32).to_ne_bytes()).unwrap_err().raw_os_error(), Some(19));
        assert!(told(&i32::MIN.to_ne_bytes()).is_err());
        assert_eq!(told(&[1, 2]).unwrap_err().kind(), io::ErrorKind::InvalidData, "cut");
        let ended = |body: &[u8]| done(&Message { kind: DONE, flags: 0, sequence: 1, body });
        assert!(ended(&[]).is_ok() && ended(&0_u32.to_ne_bytes()).is_ok() && ended(&20_u32.to_ne_bytes()).is_ok());
        assert_eq!(ended(&(-2_i32).to_ne_bytes()).unwrap_err().raw_os_error(), Some(2));
    }

    #[test]
    fn an_unknown_request_is_refused_and_the_socket_stays_usable() {
        let mut socket = Socket::open(None).unwrap();
        let mut ask = |kind, flags| socket.ask(kind, flags, &[0; 16], |message| Some(message.kind));
        assert!(ask(0xfff0, ONE).is_err());
        assert!(!ask(libc::RTM_GETLINK, ALL).unwrap().is_empty());
    }
}
