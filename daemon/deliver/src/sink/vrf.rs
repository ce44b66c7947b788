//! Sockets in a VRF: their packets take the routes of that VRF only (`Documentation/networking/vrf.rst` of Linux).
//!
//! The kernel needs no privilege for that from Linux 5.7 on. A name of a collector is looked up outside the VRF.

use std::{
    io,
    net::{SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use socket2::{Domain, Socket, Type};

/// A TCP connection to this address, in this VRF if there is one.
///
/// # Errors
///
/// There is no such VRF, or the connection failed.
pub fn connect(vrf: Option<&str>, address: SocketAddr, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let Some(vrf) = vrf else {
        return timeout
            .map_or_else(|| TcpStream::connect(address), |timeout| TcpStream::connect_timeout(&address, timeout));
    };
    let socket = socket(vrf, address, Type::STREAM)?;
    match timeout {
        Some(timeout) => socket.connect_timeout(&address.into(), timeout)?,
        None => socket.connect(&address.into())?,
    }
    Ok(socket.into())
}

/// A UDP socket connected to this address, in this VRF if there is one, with the local address that the routes choose
/// now.
///
/// # Errors
///
/// There is no such VRF, or no route to the address.
pub fn datagrams(vrf: Option<&str>, address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match vrf {
        Some(vrf) => socket(vrf, address, Type::DGRAM)?,
        None => Socket::new(Domain::for_address(address), Type::DGRAM, None)?,
    };
    socket.connect(&address.into())?;
    Ok(socket.into())
}

/// Checks that there is such a VRF now; without one, there is nothing to check.
///
/// # Errors
///
/// A sentence for people.
pub fn check(vrf: Option<&str>) -> Result<(), String> {
    let Some(vrf) = vrf else { return Ok(()) };
    socket(vrf, SocketAddr::from(([0; 4], 0)), Type::DGRAM).map(drop).map_err(|error| error.to_string())
}

fn socket(vrf: &str, address: SocketAddr, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    match socket.bind_device(Some(vrf.as_bytes())) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no VRF \"{vrf}\": create it (ip link add {vrf} type vrf table NUMBER), or correct `vrf`"),
        )),
        bound => bound.map(|()| socket),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_socket_sends_by_its_device_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let soon = Some(Duration::from_secs(5));
        for vrf in [None, Some("lo")] {
            assert_eq!(check(vrf), Ok(()));
            assert_eq!(connect(vrf, address, soon).unwrap().peer_addr().unwrap(), address);
            assert_eq!(datagrams(vrf, address).unwrap().peer_addr().unwrap(), address);
        }
        // The loopback leads to no other machine.
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 9));
        assert!(connect(Some("lo"), elsewhere, Some(Duration::from_millis(50))).is_err());
    }

    #[test]
    fn a_vrf_that_is_not_there_is_named() {
        let why = check(Some("mgmt0")).unwrap_err();
        assert!(why.contains("there is no VRF \"mgmt0\": create it (ip link add mgmt0 type vrf"), "{why}");
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        assert_eq!(connect(Some("mgmt0"), address, None).unwrap_err().to_string(), why);
        assert_eq!(datagrams(Some("mgmt0"), address).unwrap_err().to_string(), why);
    }
}
