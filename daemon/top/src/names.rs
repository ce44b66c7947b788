//! Looks up the names of addresses by reverse DNS, on a separate thread, and only while the user wants them.

use std::{
    collections::HashMap,
    fs,
    hash::{BuildHasher, RandomState},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use crate::{ptr, text::clean};

/// How many names are kept. When there would be more, all are forgotten.
const KNOWN_MAX: usize = 4096;
/// How many addresses may wait for their lookup. The next screen asks again for further ones.
const WAITING_MAX: usize = 64;
/// How long to wait for a server.
const PATIENCE: Duration = Duration::from_secs(1);
const DNS_PORT: u16 = 53;
/// The longest answer over UDP without extensions is 512 bytes (RFC 1035, 4.2.1).
const ANSWER_MAX: usize = 512;

/// The known names.
#[derive(Default)]
pub struct Names {
    known: HashMap<IpAddr, Option<String>>,
    asker: Option<Asker>,
}

struct Asker {
    wanted: SyncSender<IpAddr>,
    found: Receiver<(IpAddr, Option<String>)>,
}

impl Names {
    /// Starts lookups.
    pub fn start(&mut self) {
        self.asker.get_or_insert_with(|| Asker::new(server()));
    }

    /// Stops lookups.
    pub fn stop(&mut self) {
        self.asker = None;
    }

    /// Whether names are looked up.
    pub const fn is_on(&self) -> bool {
        self.asker.is_some()
    }

    /// The name of an address, if it is known already. Otherwise requests it.
    pub fn of(&mut self, address: IpAddr) -> Option<&str> {
        let asker = self.asker.as_ref()?;
        for (address, name) in asker.found.try_iter() {
            self.known.insert(address, name);
        }
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        // If too many addresses wait, the next screen asks again.
        if !self.known.contains_key(&address) && asker.wanted.try_send(address).is_ok() {
            self.known.insert(address, None);
        }
        self.known.get(&address)?.as_deref()
    }
}

impl Asker {
    fn new(server: SocketAddr) -> Self {
        let (wanted, addresses) = sync_channel::<IpAddr>(WAITING_MAX);
        let (send, found) = sync_channel(WAITING_MAX);
        // The thread ends when `wanted` is dropped. If it cannot be started, addresses are shown instead of names.
        drop(thread::Builder::new().name("weir-names".to_owned()).spawn(move || {
            for address in addresses {
                let name = look_up(server, address).unwrap_or(None);
                if send.send((address, name)).is_err() {
                    return;
                }
            }
        }));
        Self { wanted, found }
    }
}

/// The first server of the system's resolver; the local host if none is configured.
fn server() -> SocketAddr {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let named = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok());
    SocketAddr::new(named.into_iter().next().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), DNS_PORT)
}

fn look_up(server: SocketAddr, address: IpAddr) -> io::Result<Option<String>> {
    let any: IpAddr = if server.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    // The id is random, so that nobody else can forge an answer.
    let id = RandomState::new().hash_one(address) as u16;
    socket.send(&ptr::question(id, address))?;
    let mut answer = [0; ANSWER_MAX];
    let length = socket.recv(&mut answer)?;
    Ok(ptr::name(&answer[..length], id).map(|name| clean(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_once_and_its_control_characters_are_removed() {
        let dns = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut names = Names { asker: Some(Asker::new(dns.local_addr().unwrap())), ..Names::default() };
        let address = "192.0.2.53".parse().unwrap();
        for _ in 0..2 {
            assert_eq!(names.of(address), None);
        }
        let mut packet = [0; ANSWER_MAX];
        let (length, client) = dns.recv_from(&mut packet).unwrap();
        let mut answer = packet[..length].to_vec();
        (answer[2], answer[7]) = (0x81, 1);
        answer.extend(b"\xc0\x0c\0\x0c\0\x01\0\0\0\x3c\0\x06\x04n\x1b[2\0");
        dns.send_to(&answer, client).unwrap();
        let mut tries = 0..1000;
        while names.of(address).is_none() && tries.next().is_some() {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(names.of(address), Some("n\u{fffd}[2"));
        dns.set_nonblocking(true).unwrap();
        assert!(dns.recv_from(&mut packet).is_err(), "it was asked for twice");
    }

    #[test]
    fn nothing_is_looked_up_unless_the_user_wants_it() {
        let mut names = Names::default();
        assert!(!names.is_on());
        assert_eq!(names.of("192.0.2.53".parse().unwrap()), None);
        assert!(names.known.is_empty());
    }
}
