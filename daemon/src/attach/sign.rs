//! The sign by which a running weir shows others that a program is its own: the name of an abstract socket, which
//! nobody connects to. The network namespace has these names, and they go with their process. Processes themselves may
//! not be seen from here: a container has its own view of them. The kernel tells names of programs only to root.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
};

use crate::{datapath::syscall, text::visible};

/// Takes a sign, which is there until it is dropped.
///
/// # Errors
///
/// [`io::ErrorKind::AddrInUse`]: somebody has it.
pub fn take(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// The sign of a program that passes every packet on, because it is weir's.
pub fn of_program(program: u32) -> String {
    format!("weir program {program}")
}

/// Whether a weir that runs has this program.
pub fn is_weir(program: u32) -> bool {
    take(&of_program(program)).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// A program, as messages name it: by its number, and by its name where this process may ask for it.
pub fn named(program: u32) -> String {
    match syscall::program_name(program) {
        Ok(name) if !name.is_empty() => {
            format!("program {program}, \"{}\"", name.chars().map(visible).collect::<String>())
        }
        _ => format!("program {program}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_weirs_while_somebody_has_its_sign() {
        let program = 0xffff_0000 | std::process::id();
        assert!(!is_weir(program));
        let sign = take(&of_program(program)).unwrap();
        assert!(is_weir(program));
        drop(sign);
        assert!(!is_weir(program));
    }
}
