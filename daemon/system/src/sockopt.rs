//! Socket options that have no safe wrapper.
#![expect(unsafe_code, reason = "the kernel reads and writes what a pointer points to")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _},
    ptr,
};

use libc::{c_int, sock_filter, socklen_t, tpacket_req3};

/// Sets a numeric option.
///
/// # Errors
///
/// The kernel refused.
pub fn set_number(socket: impl AsFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    set(socket, level, option, &value)
}

/// Sets up a packet socket's ring.
///
/// # Errors
///
/// The kernel refused.
pub fn set_ring(socket: impl AsFd, request: &tpacket_req3) -> io::Result<()> {
    set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, request)
}

/// Attaches a filter in classic BPF. From here on, the socket receives only those bytes of each packet or message that
/// the filter returns.
///
/// # Errors
///
/// The kernel refused, for example because it does not accept the filter.
pub fn attach_filter(socket: impl AsFd, instructions: &mut [sock_filter]) -> io::Result<()> {
    let len = u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: instructions.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// One instruction of such a filter.
pub const fn instruction(code: u32, if_true: u8, if_false: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: if_true, jf: if_false, k }
}

/// The number of bytes sent on a connection that the other side has not acknowledged yet (`SIOCOUTQ`, tcp(7)).
///
/// # Errors
///
/// The kernel refused.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one number of this type.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, ptr::from_mut(&mut bytes)) };
    if result == 0 { Ok(bytes.unsigned_abs() as usize) } else { Err(io::Error::last_os_error()) }
}

fn set<T>(socket: impl AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads as many bytes as `value` has, and the memory that a filter points to, which outlives the
    // call.
    let result =
        unsafe { libc::setsockopt(socket, level, option, ptr::from_ref(value).cast(), size_of::<T>() as socklen_t) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
