//! The interfaces of this network namespace and their changes, from the kernel's routing socket (rtnetlink(7)).

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    mem::MaybeUninit,
    net::IpAddr,
    ops::ControlFlow,
    os::fd::OwnedFd,
};

use crossbeam::channel::Sender;
use libc::{
    IFA_ADDRESS, IFA_LOCAL, IFLA_ADDRESS, IFLA_ALT_IFNAME, IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND,
    IFLA_LINK, IFLA_LINK_NETNSID, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_NEW_NETNSID, IFLA_PROP_LIST, IFLA_STATS64,
    IFLA_XDP, RTM_DELADDR, RTM_DELLINK, RTM_GETADDR, RTM_GETLINK, RTM_NEWADDR, RTM_NEWLINK,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvFlags, SocketFlags, recv, sockopt},
};
use tracing::debug;
use weir_common::ledger::Tally;
use weir_config::{limits::INTERFACE_NAME_BYTES, names::Prefix};
use weir_system::waker::Waker;

use super::{
    message::{ALL, Message, ONE, attributes, double, half, messages, put, text, value, word},
    routes::Routes,
    socket::{BUFFER_BYTES, Socket, open},
};

/// The groups of the socket for news: changes of interfaces, and of their addresses.
const LINK_GROUP: u32 = libc::RTMGRP_LINK as u32;
const ADDRESS_GROUPS: u32 = (libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;

/// `struct ifinfomsg`: family, type, index, flags, change.
pub(super) const LINK_BYTES: usize = size_of::<libc::ifinfomsg>();
/// `struct ifaddrmsg`: family, length of the prefix, flags, scope, index.
const ADDRESS_BYTES: usize = 8;
const IFF_UP: u32 = libc::IFF_UP as u32;
const IFF_LOOPBACK: u32 = libc::IFF_LOOPBACK as u32;

/// These are not in `libc`.
const IFLA_VXLAN_LINK: u16 = 3;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

/// Buffer space for news when hundreds of interfaces appear at once. The kernel may grant less.
const EVENTS_BYTES: usize = 1 << 20;
/// How many times to request a dump that is interrupted each time.
const ATTEMPTS: u32 = 3;

/// An interface as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The interface index, which is unique in a namespace at any time.
    pub ifindex: u32,
    /// The primary name of the interface.
    pub name: String,
    /// Alternative names (`ip link property add dev NAME altname OTHER`), from Linux 5.5 on.
    pub other_names: Vec<String>,
    /// The operator's name for it (`ip link set NAME alias TEXT`), if any.
    pub alias: Option<String>,
    /// The hardware type (`ARPHRD_*`).
    pub hardware: u16,
    /// The link address, if it is an Ethernet address.
    pub address: Option<[u8; 6]>,
    /// The longest packet after the link layer's header, in bytes.
    pub mtu: u32,
    /// True if the interface is set up (`ip link set NAME up`).
    pub up: bool,
    /// True for a loopback interface.
    pub loopback: bool,
    /// The kind of a virtual interface: `veth`, `bridge`, `vlan`, ...
    pub kind: Option<String>,
    /// The index of the interface in this namespace that it is stacked on, or of a veth's peer.
    pub lower: Option<u32>,
    /// True if the interface that it is stacked on, or a veth's peer, is in another namespace.
    pub elsewhere: bool,
    /// The bridge, bond or similar interface that it is a member of.
    pub master: Option<u32>,
    /// True if it carries a default route, provided that routes were requested ([`Devices::list_with_routes`]). Always
    /// false for the loopback.
    pub carries_default: bool,
    /// The XDP program on it.
    pub xdp: Option<XdpProgram>,
    /// The interface's own counts of received and sent packets, if available.
    pub counts: Option<[Tally; 2]>,
}

impl Device {
    /// Returns true if it is made by software, so that no hardware is below its driver.
    pub const fn is_virtual(&self) -> bool {
        self.kind.is_some() || self.loopback
    }

    /// Returns true if it may be deleted without saying what it has received. A veth's received packets are counted at
    /// its peer (`drivers/net/veth.c`). When the pair is deleted, each end first loses the other one, and from then on
    /// says 0.
    pub fn forgets_received(&self) -> bool {
        self.kind.as_deref() == Some("veth")
    }

    /// Returns the primary name, followed by the alternative ones.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.other_names).map(String::as_str)
    }
}

/// An XDP program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpProgram {
    /// The kernel's id of the program; `None` if there are several programs.
    pub id: Option<u32>,
    /// The place at which it is attached, as reports name it.
    pub place: &'static str,
}

/// A change of an interface that the kernel reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// This interface was deleted, with these counts. They may be incomplete: those of a veth lack what its peer had
    /// counted.
    Deleted(Box<Device>),
    /// This interface has moved to another network namespace, with these counts.
    Moved(Box<Device>),
    /// This interface is new, or its description has changed.
    Described(Box<Device>),
    /// Something else about the interfaces has changed.
    Changed,
    /// So much happened that the kernel could not report everything.
    Missed,
}

/// The socket that lists interfaces.
pub struct Devices {
    socket: Socket,
    routes: Option<Routes>,
}

impl Devices {
    /// Opens the socket, in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel does not support such sockets, or this process lacks permission.
    pub fn open() -> io::Result<Self> {
        // `NETLINK_ROUTE` is 0, the default protocol.
        Ok(Self { socket: Socket::open(None)?, routes: None })
    }

    /// All interfaces, with their current counters. While interfaces keep coming and going, some listed ones may
    /// already be gone, and some new ones may be missing. The kernel reports these changes as news.
    ///
    /// # Errors
    ///
    /// The kernel refused, or its answer was malformed.
    pub fn list(&mut self) -> io::Result<Vec<Device>> {
        let mut all = BTreeMap::new();
        for _ in 0..ATTEMPTS {
            let mut listed = Vec::new();
            let result = self.socket.hear(RTM_GETLINK, ALL, &[0; LINK_BYTES], |message| {
                listed.extend(read_answer(message));
                ControlFlow::Continue(())
            });
            match result {
                Ok(()) => return Ok(listed),
                // The kernel omitted an interface, or listed one twice. The interfaces of all attempts together are
                // better than nothing.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    all.extend(listed.into_iter().map(|device| (device.ifindex, device)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all.into_values().collect())
    }

    /// All interfaces, with their current counters and whether they carry a default route.
    ///
    /// # Errors
    ///
    /// The kernel refused, or its answer was malformed.
    pub fn list_with_routes(&mut self) -> io::Result<Vec<Device>> {
        let routes = match &mut self.routes {
            Some(routes) => routes,
            none => none.insert(Routes::open()?),
        };
        let carriers = routes.carriers()?;
        let mut devices = self.list()?;
        for device in &mut devices {
            device.carries_default = !device.loopback && carriers.contains(&device.ifindex);
        }
        Ok(devices)
    }

    /// The IP addresses of all interfaces. Addresses that change meanwhile may be missing; the kernel reports these as
    /// news.
    ///
    /// # Errors
    ///
    /// The kernel refused, or its answer was malformed.
    pub fn addresses(&mut self) -> io::Result<Vec<IpAddr>> {
        let mut all = Vec::new();
        let result = self.socket.hear(RTM_GETADDR, ALL, &[0; ADDRESS_BYTES], |message| {
            all.extend(read_address(message));
            ControlFlow::Continue(())
        });
        match result {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(all),
        }
    }

    /// The networks of the addresses of all interfaces but the loopback and those that carry a default route: what is
    /// behind this machine, if it is a router. Each is there once, in order. Without a default route, those of all
    /// interfaces.
    ///
    /// # Errors
    ///
    /// The kernel refused, or its answer was malformed.
    pub fn inner_networks(&mut self) -> io::Result<Vec<Prefix>> {
        let outer: Vec<u32> = self
            .list_with_routes()?
            .into_iter()
            .filter(|device| device.loopback || device.carries_default)
            .map(|device| device.ifindex)
            .collect();
        let mut all = BTreeSet::new();
        let result = self.socket.hear(RTM_GETADDR, ALL, &[0; ADDRESS_BYTES], |message| {
            all.extend(read_network(message).filter(|(ifindex, _)| !outer.contains(ifindex)).map(|(_, of)| of));
            ControlFlow::Continue(())
        });
        match result {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(all.into_iter().collect()),
        }
    }

    /// The interface with this name or alternative name; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The kernel refused, or its answer was malformed.
    pub fn find(&mut self, name: &str) -> io::Result<Option<Device>> {
        // With the attribute for short names, the kernel also finds alternative ones.
        let kind = if INTERFACE_NAME_BYTES.contains(&name.len()) { IFLA_IFNAME } else { IFLA_ALT_IFNAME };
        let mut question = vec![0; LINK_BYTES];
        put(&mut question, kind, &[name.as_bytes(), &[0]].concat());
        match self.socket.ask(RTM_GETLINK, ONE, &question, read_answer) {
            Ok(devices) => Ok(devices.into_iter().next()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NODEV | Errno::RANGE | Errno::INVAL) => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// Ends [`Events::watch`] from another thread, also on drop.
#[derive(Debug)]
pub struct Ender(Waker);

impl Drop for Ender {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// The socket that receives news of interfaces.
pub struct Events {
    socket: OwnedFd,
    end: Waker,
}

impl Events {
    /// Opens the socket, in this thread's network namespace. From now on every change is reported, or reported as
    /// missed. If `hears_addresses` is set, this includes changes of addresses.
    ///
    /// # Errors
    ///
    /// The kernel does not support such a socket, or no file descriptor is left.
    pub fn open(hears_addresses: bool) -> io::Result<(Self, Ender)> {
        let groups = if hears_addresses { LINK_GROUP | ADDRESS_GROUPS } else { LINK_GROUP };
        let socket = open(None, groups, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        if let Err(error) = sockopt::set_socket_recv_buffer_size(&socket, EVENTS_BYTES) {
            debug!("the buffer for changes of interfaces stays small: {error}");
        }
        let end = Waker::new()?;
        Ok((Self { socket, end: end.clone() }, Ender(end)))
    }

    /// Forwards news until it is ended or the receiver is gone.
    pub fn watch(self, news: &Sender<News>) {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        loop {
            let mut wait = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.end, PollFlags::IN)];
            match poll(&mut wait, None) {
                Ok(_) if !wait[1].revents().is_empty() => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    debug!("cannot wait for changes of interfaces: {error}");
                    return;
                }
            }
            let told = match recv(&self.socket, &mut buffer[..], RecvFlags::TRUNC) {
                Ok(((bytes, _), length)) if length > bytes.len() => vec![News::Missed],
                Ok(((bytes, _), _)) => messages(bytes).filter_map(|message| read_news(&message)).collect(),
                Err(Errno::AGAIN | Errno::INTR) => Vec::new(),
                Err(Errno::NOBUFS) => vec![News::Missed],
                Err(error) => {
                    debug!("the kernel reports no more changes of interfaces: {error}");
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
        // When a port leaves a bridge, the kernel sends the same message, but with the bridge's address family.
        RTM_DELLINK if message.body.first() == Some(&0) => {
            let ifindex = word(message.body, 4)?;
            let has_moved = value(message.body.get(LINK_BYTES..)?, IFLA_NEW_NETNSID).is_some();
            let device = read_device(message.body).unwrap_or_else(|| Device { ifindex, ..Device::default() });
            Some(if has_moved { News::Moved(device.into()) } else { News::Deleted(device.into()) })
        }
        // Messages about the ports of a bridge have another family, and no counts.
        RTM_NEWLINK if message.body.first() == Some(&0) => {
            Some(read_device(message.body).map_or(News::Changed, |device| News::Described(device.into())))
        }
        RTM_NEWLINK | RTM_DELLINK | RTM_NEWADDR | RTM_DELADDR => Some(News::Changed),
        _ => None,
    }
}

/// Parses the address in an `RTM_NEWADDR`.
fn read_address(message: &Message<'_>) -> Option<IpAddr> {
    if message.kind != RTM_NEWADDR {
        return None;
    }
    let attributes = message.body.get(ADDRESS_BYTES..)?;
    // Only a point-to-point link has both. There `IFA_ADDRESS` is the address of the other end.
    let bytes = value(attributes, IFA_LOCAL).or_else(|| value(attributes, IFA_ADDRESS))?;
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

/// Parses the interface's index and the network in an `RTM_NEWADDR`.
fn read_network(message: &Message<'_>) -> Option<(u32, Prefix)> {
    let (length, ifindex) = (*message.body.get(1)?, word(message.body, 4)?);
    Some((ifindex, Prefix::of(read_address(message)?, length)))
}

fn read_answer(message: &Message<'_>) -> Option<Device> {
    if message.kind == RTM_NEWLINK { read_device(message.body) } else { None }
}

/// Parses the body of an `RTM_NEWLINK`.
fn read_device(body: &[u8]) -> Option<Device> {
    let flags = word(body, 8)?;
    let mut device = Device {
        hardware: half(body, 2)?,
        ifindex: word(body, 4)?,
        up: flags & IFF_UP != 0,
        loopback: flags & IFF_LOOPBACK != 0,
        ..Device::default()
    };
    let mut bound = None;
    for (kind, data) in attributes(body.get(LINK_BYTES..)?) {
        match kind {
            IFLA_ADDRESS => device.address = data.try_into().ok().filter(|address| *address != [0; 6]),
            IFLA_IFNAME => device.name = text(data),
            IFLA_IFALIAS => device.alias = Some(text(data)).filter(|alias| !alias.is_empty()),
            IFLA_PROP_LIST => device
                .other_names
                .extend(attributes(data).filter(|(kind, _)| *kind == IFLA_ALT_IFNAME).map(|(_, name)| text(name))),
            IFLA_MTU => device.mtu = word(data, 0).unwrap_or_default(),
            IFLA_LINK => device.lower = word(data, 0).filter(|lower| *lower != 0 && *lower != device.ifindex),
            IFLA_LINK_NETNSID => device.elsewhere = true,
            IFLA_MASTER => device.master = word(data, 0).filter(|master| *master != 0),
            IFLA_LINKINFO => {
                device.kind = value(data, IFLA_INFO_KIND).map(text);
                if device.kind.as_deref() == Some("vxlan") {
                    // The kernel reports the lower interface of a VXLAN only here.
                    bound = value(data, IFLA_INFO_DATA).and_then(|data| word(value(data, IFLA_VXLAN_LINK)?, 0));
                }
            }
            IFLA_STATS64 => device.counts = read_counts(data),
            IFLA_XDP => device.xdp = read_xdp(data),
            _ => {}
        }
    }
    device.lower = device.lower.or(bound.filter(|lower| *lower != 0));
    if device.elsewhere {
        device.lower = None;
    }
    (device.ifindex != 0 && !device.name.is_empty()).then_some(device)
}

/// Parses a `struct rtnl_link_stats64`, which begins with packets received and sent, and the bytes of both.
fn read_counts(data: &[u8]) -> Option<[Tally; 2]> {
    let count = |packets, bytes| Some(Tally::new(double(data, packets)?, double(data, bytes)?));
    Some([count(0, 16)?, count(8, 24)?])
}

fn read_xdp(attribute: &[u8]) -> Option<XdpProgram> {
    let place = match value(attribute, IFLA_XDP_ATTACHED)?.first()? {
        0 => return None,
        1 => "native",
        2 => "generic",
        3 => "offloaded",
        _ => "several modes",
    };
    let id = value(attribute, IFLA_XDP_PROG_ID).and_then(|id| word(id, 0));
    Some(XdpProgram { id, place })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::{DONE, NESTED, message};

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, kind, value);
        bytes
    }

    fn told(kind: u16, family: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![family, 0];
        body.extend(1_u16.to_ne_bytes());
        body.extend(7_u32.to_ne_bytes());
        body.extend(IFF_UP.to_ne_bytes());
        body.resize(LINK_BYTES, 0);
        for attribute in attributes {
            body.extend(attribute);
        }
        message(kind, 0, 0, &body)
    }

    fn a_vlan() -> Vec<u8> {
        let counters: Vec<u8> = [11_u64, 12, 13, 14].iter().flat_map(|count| count.to_ne_bytes()).collect();
        let names = [&b"uplink0\0"[..], b"a-name-of-more-than-fifteen-bytes\0"];
        let names = names.map(|name| attribute(IFLA_ALT_IFNAME, name)).concat();
        let xdp = [attribute(IFLA_XDP_ATTACHED, &[1]), attribute(IFLA_XDP_PROG_ID, &42_u32.to_ne_bytes())].concat();
        told(
            RTM_NEWLINK,
            0,
            &[
                attribute(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 7]),
                attribute(IFLA_IFNAME, b"wan0.7\0"),
                attribute(IFLA_IFALIAS, b"uplink \xff ACME\0"),
                attribute(99, b"unknown"),
                attribute(IFLA_PROP_LIST | NESTED, &names),
                attribute(IFLA_MTU, &1500_u32.to_ne_bytes()),
                attribute(IFLA_LINK, &3_u32.to_ne_bytes()),
                attribute(IFLA_MASTER, &4_u32.to_ne_bytes()),
                attribute(IFLA_LINKINFO | NESTED, &attribute(IFLA_INFO_KIND, b"vlan\0")),
                attribute(IFLA_XDP | NESTED, &xdp),
                attribute(IFLA_STATS64, &counters),
            ],
        )
    }

    #[test]
    fn an_interface_is_read() {
        let expected = Device {
            address: Some([2, 0, 0, 0, 0, 7]),
            ifindex: 7,
            name: "wan0.7".to_owned(),
            other_names: vec!["uplink0".to_owned(), "a-name-of-more-than-fifteen-bytes".to_owned()],
            alias: Some("uplink \\xff ACME".to_owned()),
            hardware: 1,
            mtu: 1500,
            up: true,
            loopback: false,
            kind: Some("vlan".to_owned()),
            lower: Some(3),
            elsewhere: false,
            master: Some(4),
            carries_default: false,
            xdp: Some(XdpProgram { id: Some(42), place: "native" }),
            counts: Some([Tally::new(11, 13), Tally::new(12, 14)]),
        };
        let two = [a_vlan(), a_vlan()].concat();
        let read: Vec<_> = messages(&two).filter_map(|message| read_answer(&message)).collect();
        assert_eq!(read, [expected.clone(), expected]);

        let elsewhere = [
            attribute(IFLA_IFNAME, b"v0\0"),
            attribute(IFLA_LINK, &3_u32.to_ne_bytes()),
            attribute(IFLA_LINK_NETNSID, &[0; 4]),
            attribute(IFLA_XDP, &attribute(IFLA_XDP_ATTACHED, &[0])),
        ];
        let bytes = told(RTM_NEWLINK, 0, &elsewhere);
        let peer = messages(&bytes).find_map(|message| read_answer(&message)).unwrap();
        assert_eq!((peer.lower, peer.kind, peer.xdp, peer.counts), (None, None, None, None));
        let data = attribute(IFLA_VXLAN_LINK, &3_u32.to_ne_bytes());
        for (kind, lower) in [("vxlan", Some(3)), ("geneve", None)] {
            let kind = attribute(IFLA_INFO_KIND, format!("{kind}\0").as_bytes());
            let info = [kind, attribute(IFLA_INFO_DATA | NESTED, &data)].concat();
            let tunnel =
                told(RTM_NEWLINK, 0, &[attribute(IFLA_IFNAME, b"vx0\0"), attribute(IFLA_LINKINFO | NESTED, &info)]);
            assert_eq!(messages(&tunnel).find_map(|message| read_answer(&message)).unwrap().lower, lower);
        }
        assert!(peer.elsewhere);

        let gone = told(RTM_DELLINK, 0, &elsewhere);
        assert_eq!(messages(&gone).find_map(|message| read_answer(&message)), None);
    }

    #[test]
    fn malformed_messages_are_ignored() {
        let whole = a_vlan();
        let body = messages(&whole).next().unwrap().body;
        for cut in 0..body.len() {
            if let Some(device) = read_device(&body[..cut]) {
                assert_eq!((device.ifindex, device.name.as_str()), (7, "wan0.7"), "cut at {cut}");
            }
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                for message in messages(&damaged) {
                    drop(read_device(message.body));
                }
            }
        }
    }

    #[test]
    fn kinds_of_news_are_distinguished() {
        let tell = |bytes: &[u8]| messages(bytes).find_map(|message| read_news(&message));
        let unnamed = Box::new(Device { ifindex: 7, ..Device::default() });
        assert_eq!(tell(&told(RTM_DELLINK, 0, &[])), Some(News::Deleted(unnamed.clone())));
        let moved = told(RTM_DELLINK, 0, &[attribute(IFLA_NEW_NETNSID, &3_u32.to_ne_bytes())]);
        assert_eq!(tell(&moved), Some(News::Moved(unnamed)));
        let counters: Vec<u8> = (11_u64..15).flat_map(u64::to_ne_bytes).collect();
        let last = [attribute(IFLA_IFNAME, b"ppp0\0"), attribute(IFLA_STATS64, &counters)];
        let counts = Some([Tally::new(11, 13), Tally::new(12, 14)]);
        match tell(&told(RTM_DELLINK, 0, &last)) {
            Some(News::Deleted(device)) => assert_eq!((device.name.as_str(), device.counts), ("ppp0", counts)),
            other => panic!("{other:?}"),
        }
        assert_eq!(tell(&told(RTM_DELLINK, 7, &[])), Some(News::Changed), "the port left a bridge");
        assert!(matches!(tell(&a_vlan()), Some(News::Described(device)) if device.name == "wan0.7"));
        assert_eq!(tell(&told(RTM_NEWLINK, 7, &[])), Some(News::Changed), "a port of a bridge");
        assert_eq!(tell(&told(DONE, 0, &[])), None);
    }

    #[test]
    fn this_machine_has_a_loopback() {
        let mut devices = Devices::open().unwrap();
        let all = devices.list().unwrap();
        let listed = all.iter().find(|device| device.name == "lo").expect("every namespace has one");
        assert_eq!((listed.ifindex, listed.hardware, listed.loopback, &listed.kind), (1, 772, true, &None));
        assert!(listed.counts.is_some() && listed.mtu > 0);
        let found = devices.find("lo").unwrap().expect("it was listed");
        assert_eq!(Device { counts: None, ..found }, Device { counts: None, ..listed.clone() });
    }

    #[test]
    fn a_missing_interface_is_none() {
        let mut devices = Devices::open().unwrap();
        for name in
            ["weir-none0", "", &"x".repeat(127), &"x".repeat(300), "a-name-that-is-longer-than-an-interface-may-have"]
        {
            assert_eq!(devices.find(name).unwrap(), None, "{name}");
        }
    }
}
