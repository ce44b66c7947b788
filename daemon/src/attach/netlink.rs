//! The interfaces of this network namespace, and news of them, from the kernel's routing socket (rtnetlink(7)).
//!
//! Two requests and six attributes are all that is needed, so this speaks the protocol itself. All integers are in the
//! byte order of the machine.

use std::{io, mem::MaybeUninit, os::fd::OwnedFd, sync::Arc};

use crossbeam::channel::Sender;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv, sendto, socket_with, sockopt,
    },
};
use tracing::debug;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x0301;
/// `NLM_F_DUMP_INTR`: something changed meanwhile, and the list may lack an interface.
const INTERRUPTED: u16 = 0x10;
/// `RTMGRP_LINK`.
const LINK_GROUP: u32 = 1;

/// `struct nlmsghdr`, and `struct ifinfomsg` after it.
const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;
/// Without the flags for nesting and byte order.
const ATTRIBUTE_TYPE: u16 = 0x3fff;

const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_STATS64: u16 = 23;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;

/// The kernel never writes more at once to whoever reads with less than 32 KiB, but for one interface that needs more:
/// one with many virtual functions.
const BUFFER_BYTES: usize = 256 << 10;
/// What waits for the reader when hundreds of interfaces come at once; the kernel may give less.
const EVENTS_BYTES: usize = 1 << 20;
/// An interrupted list is asked for again this often.
const ATTEMPTS: u32 = 5;

/// An interface as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index, of which no two are alike in one namespace at one time.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Its hardware type (`ARPHRD_*`).
    pub hardware: u16,
    /// What it is if no device: `veth`, `bridge`, `vlan`, ...
    pub kind: Option<String>,
    /// The interface in this namespace that it is stacked on; a veth's peer too.
    pub lower: Option<u32>,
    /// The bridge, bond or the like that it is a member of.
    pub master: Option<u32>,
    /// Whether an XDP program is attached.
    pub has_xdp: bool,
    /// Packets received and sent, by its own count; absent where it does not tell.
    pub packets: Option<[u64; 2]>,
}

/// What has happened to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The interface with this index is gone from this namespace.
    Gone(u32),
    /// One is new or has changed.
    Changed,
    /// More happened than could be told.
    Missed,
}

/// The socket that lists interfaces.
pub struct Links {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Links {
    /// Opens it, in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel has no such sockets, or this process may not use them.
    pub fn open() -> io::Result<Self> {
        let socket = open(0, SocketFlags::CLOEXEC)?;
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES], sequence: 0 })
    }

    /// All interfaces, with their counters as of now.
    ///
    /// # Errors
    ///
    /// The kernel refused, or its answer was no answer.
    pub fn list(&mut self) -> io::Result<Vec<Link>> {
        for _ in 1..ATTEMPTS {
            if let Some(links) = self.try_list()? {
                return Ok(links);
            }
        }
        self.try_list()?.ok_or_else(|| io::Error::other("the interfaces change faster than they can be listed"))
    }

    /// The same; `None` if it was interrupted.
    fn try_list(&mut self) -> io::Result<Option<Vec<Link>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = Vec::with_capacity(HEADER_BYTES + LINK_BYTES);
        request.extend(((HEADER_BYTES + LINK_BYTES) as u32).to_ne_bytes());
        request.extend(RTM_GETLINK.to_ne_bytes());
        request.extend(DUMP.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.resize(HEADER_BYTES + LINK_BYTES, 0);
        sendto(&self.socket, &request, SendFlags::empty(), &netlink::SocketAddrNetlink::new(0, 0))?;

        let (mut links, mut whole) = (Vec::new(), true);
        loop {
            let (_, length) = retry(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC))?;
            let bytes =
                self.buffer.get(..length).ok_or_else(|| io::Error::other("an interface's description is too long"))?;
            for Message { kind, flags, sequence, body } in messages(bytes) {
                if sequence != self.sequence {
                    continue;
                }
                whole &= flags & INTERRUPTED == 0;
                match kind {
                    NLMSG_DONE => return Ok(whole.then_some(links)),
                    NLMSG_ERROR => {
                        let code = word(body, 0).map_or(0, |code| (code as i32).wrapping_neg());
                        return Err(io::Error::from_raw_os_error(code));
                    }
                    RTM_NEWLINK => links.extend(link(body)),
                    _ => {}
                }
            }
        }
    }
}

/// Ends [`Events::watch`] from another thread; also when it is dropped.
#[derive(Debug)]
pub struct Ender(Arc<OwnedFd>);

impl Drop for Ender {
    fn drop(&mut self) {
        // The only error would be a full counter, and then the watcher is about to wake anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// The socket that brings news of interfaces.
pub struct Events {
    socket: OwnedFd,
    end: Arc<OwnedFd>,
}

impl Events {
    /// Opens it, in this thread's network namespace: from now on no news is missed without notice.
    ///
    /// # Errors
    ///
    /// The kernel gives no such socket, or no file descriptor is left.
    pub fn open() -> io::Result<(Self, Ender)> {
        let socket = open(LINK_GROUP, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        if let Err(error) = sockopt::set_socket_recv_buffer_size(&socket, EVENTS_BYTES) {
            debug!("news of interfaces have little room: {error}");
        }
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok((Self { socket, end: end.clone() }, Ender(end)))
    }

    /// Passes news on until it is ended or nobody receives them.
    pub fn watch(self, news: &Sender<News>) {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        loop {
            let mut wait = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&*self.end, PollFlags::IN)];
            match poll(&mut wait, None) {
                Ok(_) if !wait[1].revents().is_empty() => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    debug!("cannot wait for news of interfaces: {error}");
                    return;
                }
            }
            let told = match recv(&self.socket, &mut buffer[..], RecvFlags::TRUNC) {
                Ok(((bytes, _), length)) if length > bytes.len() => vec![News::Missed],
                Ok(((bytes, _), _)) => messages(bytes).filter_map(|message| read_news(&message)).collect(),
                Err(Errno::AGAIN | Errno::INTR) => Vec::new(),
                Err(Errno::NOBUFS) => vec![News::Missed],
                Err(error) => {
                    debug!("no more news of interfaces: {error}");
                    return;
                }
            };
            for one in told {
                if news.send(one).is_err() {
                    return;
                }
            }
        }
    }
}

fn read_news(message: &Message<'_>) -> Option<News> {
    match message.kind {
        // A bridge tells of ports that leave it in the same words, but for its address family.
        RTM_DELLINK if message.body.first() == Some(&0) => Some(News::Gone(word(message.body, 4)?)),
        RTM_NEWLINK | RTM_DELLINK => Some(News::Changed),
        _ => None,
    }
}

fn open(groups: u32, flags: SocketFlags) -> io::Result<OwnedFd> {
    // `NETLINK_ROUTE` is 0, the protocol that is meant where none is named.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, groups))?;
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

/// A netlink message.
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

/// The messages of a datagram, up to the first that is broken.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = word(bytes, 0)? as usize;
        let body = bytes.get(HEADER_BYTES..length)?;
        let message = Message { kind: half(bytes, 4)?, flags: half(bytes, 6)?, sequence: word(bytes, 8)?, body };
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes of a message or of another attribute, up to the first that is broken.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(half(bytes, 0)?);
        let value = bytes.get(ATTRIBUTE_BYTES..length)?;
        let attribute = (half(bytes, 2)? & ATTRIBUTE_TYPE, value);
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some(attribute)
    })
}

fn link(body: &[u8]) -> Option<Link> {
    let mut link = Link { hardware: half(body, 2)?, ifindex: word(body, 4)?, ..Link::default() };
    let mut elsewhere = false;
    for (kind, value) in attributes(body.get(LINK_BYTES..)?) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_LINK => link.lower = word(value, 0).filter(|lower| *lower != 0 && *lower != link.ifindex),
            IFLA_LINK_NETNSID => elsewhere = true,
            IFLA_MASTER => link.master = word(value, 0).filter(|master| *master != 0),
            IFLA_LINKINFO => {
                link.kind = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND).map(|(_, kind)| text(kind));
            }
            IFLA_STATS64 => link.packets = double(value, 0).zip(double(value, 8)).map(|(rx, tx)| [rx, tx]),
            IFLA_XDP => {
                link.has_xdp =
                    attributes(value).any(|(kind, value)| kind == IFLA_XDP_ATTACHED && value.first() != Some(&0));
            }
            _ => {}
        }
    }
    if elsewhere {
        link.lower = None;
    }
    (link.ifindex != 0 && !link.name.is_empty()).then_some(link)
}

/// Text that ends with a NUL.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

const fn aligned(length: usize) -> usize {
    (length + 3) & !3
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

fn double(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn message(kind: u16, family: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![family, 0];
        body.extend(1_u16.to_ne_bytes());
        body.extend(7_u32.to_ne_bytes());
        body.resize(LINK_BYTES, 0);
        attributes.iter().for_each(|attribute| body.extend(attribute));
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    fn a_vlan() -> Vec<u8> {
        let counters: Vec<u8> = [11_u64, 12, 13].iter().flat_map(|count| count.to_ne_bytes()).collect();
        message(
            RTM_NEWLINK,
            0,
            &[
                attribute(IFLA_IFNAME, b"wan0.7\0"),
                attribute(99, b"unknown"),
                attribute(IFLA_LINK, &3_u32.to_ne_bytes()),
                attribute(IFLA_MASTER, &4_u32.to_ne_bytes()),
                attribute(IFLA_LINKINFO | 0x8000, &attribute(IFLA_INFO_KIND, b"vlan\0")),
                attribute(IFLA_XDP, &attribute(IFLA_XDP_ATTACHED, &[1])),
                attribute(IFLA_STATS64, &counters),
            ],
        )
    }

    #[test]
    fn an_interface_is_read() {
        let expected = Link {
            ifindex: 7,
            name: "wan0.7".to_owned(),
            hardware: 1,
            kind: Some("vlan".to_owned()),
            lower: Some(3),
            master: Some(4),
            has_xdp: true,
            packets: Some([11, 12]),
        };
        let two = [a_vlan(), a_vlan()].concat();
        let read: Vec<_> = messages(&two).filter_map(|message| link(message.body)).collect();
        assert_eq!(read, [expected.clone(), expected]);

        let elsewhere = [
            attribute(IFLA_IFNAME, b"v0\0"),
            attribute(IFLA_LINK, &3_u32.to_ne_bytes()),
            attribute(IFLA_LINK_NETNSID, &[0; 4]),
        ];
        let bytes = message(RTM_NEWLINK, 0, &elsewhere);
        let peer = messages(&bytes).find_map(|message| link(message.body)).unwrap();
        assert_eq!((peer.lower, peer.kind, peer.has_xdp, peer.packets), (None, None, false, None));
    }

    #[test]
    fn broken_messages_are_no_interfaces_and_end_the_list() {
        let whole = a_vlan();
        for cut in 0..whole.len() {
            assert_eq!(messages(&whole[..cut]).count(), 0, "cut at {cut}");
            let body = &whole[HEADER_BYTES.min(cut)..cut];
            if let Some(link) = link(body) {
                assert_eq!(link.name, "wan0.7");
            }
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                messages(&damaged).for_each(|message| drop(link(message.body)));
            }
        }
    }

    #[test]
    fn news_are_told_apart() {
        let tell = |bytes: &[u8]| messages(bytes).find_map(|message| read_news(&message));
        assert_eq!(tell(&message(RTM_DELLINK, 0, &[])), Some(News::Gone(7)));
        assert_eq!(tell(&message(RTM_DELLINK, 7, &[])), Some(News::Changed), "it left a bridge");
        assert_eq!(tell(&a_vlan()), Some(News::Changed));
        assert_eq!(tell(&message(NLMSG_DONE, 0, &[])), None);
    }

    #[test]
    fn this_machine_has_a_loopback() {
        let links = Links::open().unwrap().list().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").expect("every namespace has one");
        assert_eq!((lo.ifindex, lo.hardware, &lo.kind), (1, 772, &None));
        assert!(lo.packets.is_some());
    }
}
