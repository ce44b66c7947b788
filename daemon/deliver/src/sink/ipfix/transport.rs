//! Transport of messages to a collector: datagrams, or a connection (RFC 7011 section 10).

use std::{
    io::{self, ErrorKind, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket},
    thread,
    time::Duration,
};

use rustix::net::sockopt::set_socket_linger;
use weir_config::{Address, Transport};
use weir_system::sockopt;

use super::super::{now, vrf};

/// Datagrams of this size pass every IPv6 path unfragmented, headers included (RFC 8200 section 5).
const DATAGRAM_BYTES: usize = 1280 - 40 - 8;
/// A connection has no such limit, but collectors read one message at a time.
const STREAM_BYTES: usize = 16 << 10;
/// How often weir checks whether the collector has acknowledged.
const LOOK: Duration = Duration::from_millis(2);

/// The path to the collector.
#[derive(Debug)]
pub enum Way {
    Datagrams(UdpSocket),
    Stream(TcpStream),
}

impl Way {
    /// Opens a path to one of the addresses of this name.
    pub fn open(address: &Address, vrf: Option<&str>, transport: Transport, timeout: Duration) -> io::Result<Self> {
        let mut error = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in resolve(address)? {
            match Self::open_one(address, vrf, transport, timeout) {
                Ok(way) => return Ok(way),
                Err(why) => error = why,
            }
        }
        Err(error)
    }

    fn open_one(address: SocketAddr, vrf: Option<&str>, transport: Transport, timeout: Duration) -> io::Result<Self> {
        Ok(match transport {
            Transport::Udp => {
                let socket = vrf::datagrams(vrf, address)?;
                socket.set_write_timeout(Some(timeout))?;
                Self::Datagrams(socket)
            }
            Transport::Tcp => {
                let stream = vrf::connect(vrf, address, Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                stream.set_nodelay(true)?;
                Self::Stream(stream)
            }
        })
    }

    /// Maximum size of a message in bytes.
    pub const fn message_bytes(&self) -> usize {
        match self {
            Self::Datagrams(_) => DATAGRAM_BYTES,
            Self::Stream(_) => STREAM_BYTES,
        }
    }

    /// Returns true if templates have to be repeated: a datagram with them may have been lost, and the collector may
    /// have been replaced.
    pub const fn forgets(&self) -> bool {
        matches!(self, Self::Datagrams(_))
    }

    /// Returns true if the collector has closed the connection.
    pub fn is_closed(&self) -> bool {
        let Self::Stream(stream) = self else { return false };
        let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
        let is_open =
            matches!(&peeked, Err(error) if error.kind() == ErrorKind::WouldBlock) || peeked.is_ok_and(|read| read > 0);
        !is_open || stream.set_nonblocking(false).is_err()
    }

    /// Returns true if datagrams no longer lead to the collector: its name has another address, or the router has. If
    /// the lookup fails, weir keeps sending to the old address.
    pub fn has_moved(&self, address: &Address, vrf: Option<&str>) -> bool {
        let Self::Datagrams(socket) = self else { return false };
        compare_addresses(socket, address, vrf).unwrap_or(false)
    }

    /// Aborts a connection on which the collector reads nothing. Its unread messages are sent again over another
    /// connection, so the system must not go on sending them here.
    pub fn abandon(self) {
        if let Self::Stream(stream) = self {
            // If this fails, some records arrive twice.
            let _ = set_socket_linger(&stream, Some(Duration::ZERO));
        }
    }

    /// Sends messages. On a connection, waits up to `timeout` until the collector's system has acknowledged all of
    /// them.
    pub fn send(&mut self, messages: &[Vec<u8>], timeout: Duration) -> io::Result<()> {
        match self {
            Self::Datagrams(socket) => messages.iter().try_for_each(|message| socket.send(message).map(|_| ())),
            Self::Stream(stream) => {
                messages.iter().try_for_each(|message| stream.write_all(message))?;
                let deadline = now() + timeout;
                while sockopt::unacknowledged(&*stream)? > 0 {
                    if let Some(error) = stream.take_error()? {
                        return Err(error);
                    }
                    if now() >= deadline {
                        return Err(io::Error::new(ErrorKind::TimedOut, "the collector has not acknowledged in time"));
                    }
                    thread::sleep(LOOK);
                }
                stream.take_error()?.map_or(Ok(()), Err)
            }
        }
    }
}

/// The current addresses of the name.
fn resolve(Address { host, port }: &Address) -> io::Result<impl Iterator<Item = SocketAddr>> {
    (host.as_str(), *port).to_socket_addrs()
}

/// Looks up whether the collector now has another address, or the router another local address for it. A connected
/// socket keeps both for ever.
fn compare_addresses(socket: &UdpSocket, address: &Address, vrf: Option<&str>) -> io::Result<bool> {
    let peer = socket.peer_addr()?;
    if !resolve(address)?.any(|known| known == peer) {
        return Ok(true);
    }
    Ok(vrf::datagrams(vrf, peer)?.local_addr()?.ip() != socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener};

    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn a_collector_that_moves_is_followed() {
        let way = Way::open(&at("127.0.0.1", 9), None, Transport::Udp, Duration::from_secs(1)).unwrap();
        assert!(!way.has_moved(&at("127.0.0.1", 9), None));
        assert!(way.has_moved(&at("127.0.0.2", 9), None) && way.has_moved(&at("127.0.0.1", 10), None));
        assert!(!way.has_moved(&at("no.such.host.invalid", 9), None));
    }

    #[test]
    fn messages_that_a_collector_does_not_read_are_not_sent_after_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = at("127.0.0.1", listener.local_addr().unwrap().port());
        let limit = Duration::from_millis(100);
        let mut way = Way::open(&address, None, Transport::Tcp, limit).unwrap();
        let (mut collector, _) = listener.accept().unwrap();
        let messages = vec![vec![7; 1 << 20]; 64];
        assert!(way.send(&messages, limit).is_err(), "nobody reads");
        way.abandon();
        let mut read = Vec::new();
        let ended = collector.read_to_end(&mut read);
        assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset), "{} bytes", read.len());
    }

    #[test]
    fn a_socket_is_replaced_when_the_routes_choose_another_local_address() {
        let collector = at("127.0.0.1", 9);
        let socket = UdpSocket::bind("127.0.0.3:0").unwrap();
        socket.connect("127.0.0.1:9").unwrap();
        assert!(Way::Datagrams(socket).has_moved(&collector, None), "from 127.0.0.3, and the routes choose 127.0.0.1");
    }
}
