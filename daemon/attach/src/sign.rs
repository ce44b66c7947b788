//! The sign by which a running weir shows other weirs that a program is its own. It is a netlink socket in the network
//! namespace that joins the groups whose mask is the program's id. It vanishes with its process, every process can read
//! it (`/proc/net/netlink`), and setting it requires `CAP_NET_ADMIN` (`netlink_bind()`). weir cannot look for other
//! processes instead, because a container only sees its own, nor for names of programs, because the kernel shows them
//! only to root.

use std::{io, os::fd::OwnedFd};

use rustix::net::{Protocol, SocketFlags};
use tracing::debug;
use weir_datapath::syscall;
use weir_system::{bounded, text::escaped};

use super::netlink::open_socket;

/// The protocol between user programs (`NETLINK_USERSOCK`). The kernel sends nothing there, and few programs use it.
const PROTOCOL: u32 = libc::NETLINK_USERSOCK as u32;
/// The kernel's list of the netlink sockets of this thread's network namespace.
const SOCKETS: &str = "/proc/thread-self/net/netlink";

/// Shows that a running weir uses this program, until the returned socket is dropped.
///
/// # Errors
///
/// This process lacks permission, or the program has no id.
pub fn show(program: u32) -> io::Result<OwnedFd> {
    // A mask of 0 would show nothing.
    if program == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    open_socket(rustix::net::RawProtocol::new(PROTOCOL).map(Protocol::from_raw), program, SocketFlags::CLOEXEC)
}

/// Returns true if a running weir uses this program.
pub fn is_weir(program: u32) -> bool {
    match bounded::read_to_string(SOCKETS) {
        Ok(sockets) => shown(&sockets).any(|shown| shown == program),
        Err(error) => {
            debug!("cannot see which programs are weir's: {error}");
            false
        }
    }
}

/// The programs shown in the kernel's list of sockets. Its columns begin with an address, the protocol, the socket's
/// number and its groups.
fn shown(sockets: &str) -> impl Iterator<Item = u32> {
    sockets.lines().filter_map(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let (protocol, groups) = (columns.next()?, columns.nth(1)?);
        let program = u32::from_str_radix(groups, 16).ok()?;
        (protocol.parse() == Ok(PROTOCOL) && program != 0).then_some(program)
    })
}

/// Describes a program for messages: by its id, and by its name if this process may read it.
pub fn named(program: u32) -> String {
    match syscall::program_name(program) {
        Ok(name) if !name.is_empty() => format!("program {program}, \"{}\"", escaped(&name)),
        _ => format!("program {program}"),
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::CapabilitySet;
    use weir_system::privileges;

    use super::*;

    #[test]
    fn a_program_is_weirs_while_a_sign_shows_it() {
        let program = 0xffff_0000 | std::process::id();
        assert!(!is_weir(program));
        if !privileges::has(CapabilitySet::NET_ADMIN) {
            return;
        }
        let sign = show(program).unwrap();
        assert!(is_weir(program) && !is_weir(program ^ 1));
        drop(sign);
        assert!(!is_weir(program));
        assert!(show(0).is_err());
    }

    #[test]
    fn showing_a_program_needs_the_right_to_attach_one() {
        let refused = std::thread::spawn(|| {
            privileges::give_up_all();
            show(0xfffe_0000 | std::process::id()).unwrap_err()
        });
        assert_eq!(refused.join().unwrap().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn sockets_of_other_kinds_show_nothing() {
        let sockets = "sk       Eth Pid        Groups   Rmem\n0000 2   5936       00001234 0 \n0000 0 1 00000011 0\n\
                       0000 2   0  00000000 0\nshort 2\n";
        assert_eq!(shown(sockets).collect::<Vec<_>>(), [0x1234]);
    }
}
