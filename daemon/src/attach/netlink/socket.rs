//! A netlink socket: sends one question at a time, and receives all messages of the answer.

use std::{io, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink::SocketAddrNetlink, recv,
        sendto, socket_with,
    },
};

use super::message::{INTERRUPTED, Message, NLMSG_DONE, NLMSG_ERROR, message, messages, word};

/// The kernel never writes more at once to whoever reads with less than 32 KiB, but for one interface that needs more:
/// one with many virtual functions.
pub const BUFFER_BYTES: usize = 256 << 10;

/// A socket for questions.
pub struct Socket {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Socket {
    /// Opens it, in this thread's network namespace; `None` is routing netlink.
    pub fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = open(protocol, 0, SocketFlags::CLOEXEC)?;
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES], sequence: 0 })
    }

    /// Asks, and reads all answers; those that `read` makes nothing of are left out.
    ///
    /// # Errors
    ///
    /// What the kernel refused with; [`io::ErrorKind::Interrupted`] if a list may lack an entry.
    pub fn ask<T>(
        &mut self,
        kind: u16,
        flags: u16,
        question: &[u8],
        mut read: impl FnMut(&Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = message(kind, flags, self.sequence, question);
        sendto(&self.socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;

        let (mut answers, mut whole) = (Vec::new(), true);
        loop {
            let (_, length) = retry(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC))?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let bytes = self.buffer.get(..length).ok_or_else(|| {
                io::Error::other(format!("the kernel's answer has {length} bytes, and weir reads {BUFFER_BYTES}"))
            })?;
            // What is left of an answer that was given up is of another sequence.
            for message in messages(bytes).filter(|message| message.sequence == self.sequence) {
                whole &= message.flags & INTERRUPTED == 0;
                match message.kind {
                    NLMSG_DONE if whole => return Ok(answers),
                    NLMSG_DONE => return Err(io::ErrorKind::Interrupted.into()),
                    NLMSG_ERROR => return acknowledged(&message).map(|()| answers),
                    _ => answers.extend(read(&message)),
                }
            }
        }
    }
}

/// What an `NLMSG_ERROR` tells: the kernel's number of the error, negative, or 0 if there was none.
fn acknowledged(message: &Message<'_>) -> io::Result<()> {
    match word(message.body, 0) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error((code as i32).saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A socket that hears of these groups too.
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
    use crate::attach::netlink::message::{ALL, ONE};

    #[test]
    fn an_error_is_the_kernels_and_none_is_an_acknowledgement() {
        let told = |body: &[u8]| acknowledged(&Message { kind: NLMSG_ERROR, flags: 0, sequence: 1, body });
        assert!(told(&0_u32.to_ne_bytes()).is_ok());
        assert_eq!(told(&(-19_i32).to_ne_bytes()).unwrap_err().raw_os_error(), Some(19));
        assert!(told(&i32::MIN.to_ne_bytes()).is_err());
        assert_eq!(told(&[1, 2]).unwrap_err().kind(), io::ErrorKind::InvalidData, "cut");
    }

    #[test]
    fn what_the_kernel_does_not_know_is_refused_and_the_socket_stays_usable() {
        const RTM_GETLINK: u16 = 18;
        let mut socket = Socket::open(None).unwrap();
        let mut ask = |kind, flags| socket.ask(kind, flags, &[0; 16], |message| Some(message.kind));
        assert!(ask(0xfff0, ONE).is_err());
        assert!(!ask(RTM_GETLINK, ALL).unwrap().is_empty());
    }
}
