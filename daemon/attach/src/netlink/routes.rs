//! Finds the interfaces that carry the default routes of this network namespace (rtnetlink(7)): the routes to
//! `0.0.0.0/0` and `::/0` in the main table.
//!
//! A router may have a million routes, and the kernel cannot list only those of one prefix length: it filters by table
//! and type (`NETLINK_GET_STRICT_CHK`, from Linux 4.20 on), but not by prefix. So weir reads as little as possible:
//!
//! - **IPv4**: the kernel lists a table in the order of addresses, so the default routes are among the first. weir
//!   reads up to the first route with another address, and closes the socket; the kernel does not continue on its own.
//!   This is done at every check, because the kernel sends no news about IPv4 routes that vanish with their interface.
//! - **IPv6**: the kernel lists the routes below a prefix before the prefix itself, so the default routes come last.
//!   weir reads all routes, but reads a long list only after news about a default route. A filter on the socket drops
//!   news about all other routes, so their changes cost nothing here.

use std::{collections::HashSet, io, ops::ControlFlow, os::fd::OwnedFd};

use libc::{RT_TABLE_MAIN, RTA_DST, RTA_MULTIPATH, RTA_OIF, RTA_TABLE, RTM_GETROUTE, RTM_NEWROUTE, RTN_UNICAST};
use rustix::{
    io::Errno,
    net::{RecvFlags, SocketFlags, recv},
};
use weir_system::sockopt::{attach_filter, instruction};

use super::{
    message::{ALL, Message, ONE, attributes, half, put, value, word},
    socket::{Socket, open},
};

/// The group for changes of IPv6 routes.
const IPV6_ROUTE_GROUP: u32 = libc::RTMGRP_IPV6_ROUTE as u32;

/// `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
const ROUTE_BYTES: usize = 12;
/// The offset of the destination's prefix length in a route message, including the header of 16 bytes.
const LENGTH_AT: u32 = 17;

/// `struct nhmsg`: family, scope, protocol, reserved, flags.
const NEXT_HOP_BYTES: usize = 8;
/// `struct nexthop_grp`: id, weight, and reserved bytes.
const MEMBER_BYTES: usize = 8;

/// These are not in `libc`.
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_GETNEXTHOP: u16 = 106;
const RTA_NH_ID: u16 = 30;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;

/// A list with more routes than this is not read at every check, because it takes more than a fraction of a
/// millisecond.
const SHORT_LIST: usize = 1_000;
/// A long list is read again after this many checks, in case it was cut short while routes changed.
const LOOKS: u32 = 60;

/// How packets of a route leave the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// The packets leave by the interface with this index.
    Interface(u32),
    /// By the next hop, or the group of next hops, with this id.
    NextHop(u32),
}

/// The contents of a route message.
#[derive(Debug, PartialEq, Eq)]
enum RouteKind {
    /// A default route, and how its packets leave the router.
    Default(Vec<Exit>),
    /// Another route that begins at the same address.
    AtZero,
    /// Any other route, which leads beyond the router.
    Beyond,
}

/// The IPv6 default routes, as last read.
struct DefaultRoutes {
    exits: Vec<Exit>,
    /// How many routes were read.
    routes: usize,
    /// How many checks were made since then.
    looks: u32,
}

/// Finds the interfaces that carry a default route.
pub struct Routes {
    /// The socket for news. It is readable if an IPv6 default route has changed.
    news: OwnedFd,
    known: Option<DefaultRoutes>,
}

impl Routes {
    /// Opens the socket for news, in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel does not support such sockets, or this process lacks permission.
    pub fn open() -> io::Result<Self> {
        let news = open(None, IPV6_ROUTE_GROUP, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        let mut only_default = [
            instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, LENGTH_AT),
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, 0),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        ];
        attach_filter(&news, &mut only_default)?;
        Ok(Self { news, known: None })
    }

    /// The indexes of all interfaces that carry a default route now.
    ///
    /// # Errors
    ///
    /// The kernel refused, or its answer was malformed.
    pub fn carriers(&mut self) -> io::Result<HashSet<u32>> {
        // Check for news before reading the list: a later change causes news again.
        let has_news = self.read_news()?;
        let known = self.known.take().filter(|known| !has_news && known.is_good());
        let known = match known {
            Some(known) => DefaultRoutes { looks: known.looks + 1, ..known },
            None => read_ipv6()?,
        };
        let exits = [&read_ipv4()?[..], &known.exits].concat();
        self.known = Some(known);
        resolve(&exits)
    }

    /// Reads all news. Returns whether there was any, or may have been.
    fn read_news(&self) -> io::Result<bool> {
        let mut has_news = false;
        loop {
            match recv(&self.news, &mut [0_u8; 4][..], RecvFlags::empty()) {
                Ok(_) | Err(Errno::NOBUFS) => has_news = true,
                Err(Errno::AGAIN) => return Ok(has_news),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl DefaultRoutes {
    const fn is_good(&self) -> bool {
        self.routes > SHORT_LIST && self.looks < LOOKS
    }
}

fn read_ipv4() -> io::Result<Vec<Exit>> {
    let mut all = Vec::new();
    list(libc::AF_INET as u8, |told| match told {
        RouteKind::Default(exits) => {
            all.extend(exits);
            ControlFlow::Continue(())
        }
        RouteKind::AtZero => ControlFlow::Continue(()),
        RouteKind::Beyond => ControlFlow::Break(()),
    })?;
    Ok(all)
}

fn read_ipv6() -> io::Result<DefaultRoutes> {
    let mut known = DefaultRoutes { exits: Vec::new(), routes: 0, looks: 0 };
    list(libc::AF_INET6 as u8, |told| {
        known.routes += 1;
        if let RouteKind::Default(exits) = told {
            known.exits.extend(exits);
        }
        ControlFlow::Continue(())
    })?;
    Ok(known)
}

/// Reads the unicast routes of the main table in the kernel's order, until `take` stops it.
fn list(family: u8, mut take: impl FnMut(RouteKind) -> ControlFlow<()>) -> io::Result<()> {
    let mut question = [0; ROUTE_BYTES];
    (question[0], question[4], question[7]) = (family, RT_TABLE_MAIN, RTN_UNICAST);
    // Use a separate socket: the rest of an unfinished list would interfere with the next request.
    let mut socket = Socket::open(None)?;
    socket.be_strict()?;
    let read = |message: &Message<'_>| read_route(message, family).map_or(ControlFlow::Continue(()), &mut take);
    match socket.hear(RTM_GETROUTE, ALL, &question, read) {
        // The list changed meanwhile. If a default route changed, there is news of it.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        // The table does not exist, because there was no such route yet; or the kernel does not support this address
        // family.
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::AFNOSUPPORT) => Ok(()),
            _ => Err(error),
        },
        Ok(()) => Ok(()),
    }
}

/// Reads an `RTM_NEWROUTE` of the main table.
fn read_route(message: &Message<'_>, family: u8) -> Option<RouteKind> {
    let (header, rest) = (message.body.get(..ROUTE_BYTES)?, message.body.get(ROUTE_BYTES..)?);
    let table = value(rest, RTA_TABLE).map_or(Some(header[4].into()), |table| word(table, 0))?;
    let is_asked_for = (header[0], header[7], table) == (family, RTN_UNICAST, RT_TABLE_MAIN.into());
    if message.kind != RTM_NEWROUTE || !is_asked_for {
        return None;
    }
    if header[1] != 0 {
        let is_zero = value(rest, RTA_DST)?.iter().all(|byte| *byte == 0);
        return Some(if is_zero { RouteKind::AtZero } else { RouteKind::Beyond });
    }
    let mut exits = Vec::new();
    for (kind, data) in attributes(rest) {
        match kind {
            RTA_OIF => exits.extend(word(data, 0).map(Exit::Interface)),
            RTA_MULTIPATH => exits.extend(hops(data).map(Exit::Interface)),
            RTA_NH_ID => exits.extend(word(data, 0).map(Exit::NextHop)),
            _ => {}
        }
    }
    // The kernel adds the interfaces to the id, unless it is configured not to (`net.ipv4.nexthop_compat_mode`).
    if exits.iter().any(|exit| matches!(exit, Exit::Interface(_))) {
        exits.retain(|exit| matches!(exit, Exit::Interface(_)));
    }
    Some(RouteKind::Default(exits))
}

/// The interfaces of a route with several next hops. Each next hop is a `struct rtnexthop` (length, flags, hops, index)
/// with attributes. The iterator stops at the first malformed one.
fn hops(mut bytes: &[u8]) -> impl Iterator<Item = u32> {
    const HOP_BYTES: usize = 8;
    std::iter::from_fn(move || {
        let length = usize::from(half(bytes, 0)?);
        if length < HOP_BYTES || length > bytes.len() {
            return None;
        }
        let ifindex = word(bytes, 4);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        ifindex
    })
}

/// The interfaces of these exits.
fn resolve(exits: &[Exit]) -> io::Result<HashSet<u32>> {
    let (mut interfaces, mut numbers) = (HashSet::new(), Vec::new());
    for exit in exits {
        match exit {
            Exit::Interface(ifindex) => _ = interfaces.insert(*ifindex),
            Exit::NextHop(number) => numbers.push(*number),
        }
    }
    if numbers.is_empty() {
        return Ok(interfaces);
    }
    let mut socket = Socket::open(None)?;
    // Two rounds are enough, because a group contains no groups.
    for _ in 0..2 {
        for number in std::mem::take(&mut numbers) {
            for exit in next_hop(&mut socket, number)? {
                match exit {
                    Exit::Interface(ifindex) => _ = interfaces.insert(ifindex),
                    Exit::NextHop(number) => numbers.push(number),
                }
            }
        }
    }
    Ok(interfaces)
}

/// How packets of a next hop leave the router; empty if the next hop has vanished.
fn next_hop(socket: &mut Socket, number: u32) -> io::Result<Vec<Exit>> {
    let mut question = vec![0; NEXT_HOP_BYTES];
    put(&mut question, NHA_ID, &number.to_ne_bytes());
    match socket.ask(RTM_GETNEXTHOP, ONE, &question, read_next_hop) {
        Ok(exits) => Ok(exits.concat()),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads the exits of a next hop from an `RTM_NEWNEXTHOP` message.
fn read_next_hop(message: &Message<'_>) -> Option<Vec<Exit>> {
    if message.kind != RTM_NEWNEXTHOP {
        return None;
    }
    let rest = message.body.get(NEXT_HOP_BYTES..)?;
    let members = value(rest, NHA_GROUP).unwrap_or_default().chunks_exact(MEMBER_BYTES);
    let members = members.filter_map(|member| word(member, 0)).map(Exit::NextHop);
    let own = value(rest, NHA_OIF).and_then(|ifindex| word(ifindex, 0)).map(Exit::Interface);
    Some(members.chain(own).collect())
}

#[cfg(test)]
mod tests {
    use super::{
        super::message::{NESTED, message, messages},
        *,
    };

    const IPV4: u8 = libc::AF_INET as u8;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, kind, value);
        bytes
    }

    fn number(kind: u16, value: u32) -> Vec<u8> {
        attribute(kind, &value.to_ne_bytes())
    }

    /// A message about a unicast route of the main table to a prefix of this length.
    fn route(length: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        of(RTM_NEWROUTE, [IPV4, length, 0, 0, RT_TABLE_MAIN, 0, 0, RTN_UNICAST], attributes)
    }

    fn of(kind: u16, header: [u8; 8], attributes: &[Vec<u8>]) -> Vec<u8> {
        message(kind, 0, 0, &[&header[..], &[0; 4], &attributes.concat()].concat())
    }

    /// A next hop of a route, with a gateway.
    fn hop(ifindex: u32) -> Vec<u8> {
        let gateway = attribute(5, &[192, 0, 2, 1]);
        let length = (8 + gateway.len()) as u16;
        [&length.to_ne_bytes()[..], &[0, 0], &ifindex.to_ne_bytes(), &gateway].concat()
    }

    fn told(bytes: &[u8]) -> Option<RouteKind> {
        messages(bytes).find_map(|message| read_route(&message, IPV4))
    }

    #[test]
    fn a_default_route_has_one_interface_or_several() {
        let (main, one) = (number(RTA_TABLE, 254), number(RTA_OIF, 7));
        let one_of = |exits: &[Exit]| Some(RouteKind::Default(exits.to_vec()));
        assert_eq!(told(&route(0, &[main.clone(), one.clone()])), one_of(&[Exit::Interface(7)]));
        let several = attribute(RTA_MULTIPATH | NESTED, &[hop(7), hop(9)].concat());
        let both = [Exit::Interface(7), Exit::Interface(9)];
        assert_eq!(told(&route(0, std::slice::from_ref(&several))), one_of(&both), "the header names the table, too");
        assert_eq!(told(&route(0, &[number(RTA_NH_ID, 3), several])), one_of(&both), "the kernel names the interfaces");
        assert_eq!(told(&route(0, &[number(RTA_NH_ID, 3)])), one_of(&[Exit::NextHop(3)]));
        assert_eq!(told(&route(0, &[])), one_of(&[]));
    }

    #[test]
    fn routes_other_than_the_default_routes_of_the_main_table_are_recognized() {
        let one = number(RTA_OIF, 7);
        let to = |bytes: [u8; 4]| attribute(RTA_DST, &bytes);
        assert_eq!(told(&route(8, &[to([0; 4]), one.clone()])), Some(RouteKind::AtZero));
        assert_eq!(told(&route(1, &[to([128, 0, 0, 0]), one.clone()])), Some(RouteKind::Beyond));
        let unicast = [IPV4, 0, 0, 0, RT_TABLE_MAIN, 0, 0, RTN_UNICAST];
        let mut blackhole = unicast;
        blackhole[7] = 6;
        let mut ipv6 = unicast;
        ipv6[0] = libc::AF_INET6 as u8;
        for (kind, header, table) in [
            (RTM_NEWROUTE, blackhole, 254),
            (RTM_NEWROUTE, ipv6, 254),
            (RTM_NEWROUTE, unicast, 1_000),
            (25, unicast, 254),
        ] {
            assert_eq!(told(&of(kind, header, &[number(RTA_TABLE, table), one.clone()])), None, "{kind} {header:?}");
        }
    }

    #[test]
    fn a_next_hop_has_an_interface_and_a_group_has_next_hops() {
        let read = |attributes: &[Vec<u8>]| {
            let bytes = message(RTM_NEWNEXTHOP, 0, 0, &[&[0; NEXT_HOP_BYTES][..], &attributes.concat()].concat());
            messages(&bytes).find_map(|message| read_next_hop(&message))
        };
        assert_eq!(read(&[number(NHA_ID, 1), number(NHA_OIF, 7)]), Some(vec![Exit::Interface(7)]));
        let member = |number: u32| [&number.to_ne_bytes()[..], &[0; 4]].concat();
        let group = attribute(NHA_GROUP, &[member(1), member(2)].concat());
        assert_eq!(read(&[number(NHA_ID, 3), group]), Some(vec![Exit::NextHop(1), Exit::NextHop(2)]));
        assert_eq!(read(&[]), Some(vec![]));
    }

    #[test]
    fn a_malformed_route_is_ignored() {
        let several = attribute(RTA_MULTIPATH | NESTED, &[hop(7), hop(9)].concat());
        let whole = route(0, &[number(RTA_TABLE, 254), several, number(RTA_NH_ID, 3)]);
        let body = messages(&whole).next().unwrap().body;
        for cut in 0..body.len() {
            let message = Message { kind: RTM_NEWROUTE, flags: 0, sequence: 0, body: &body[..cut] };
            if let Some(RouteKind::Default(exits)) = read_route(&message, IPV4) {
                let both = [Exit::Interface(7), Exit::Interface(9)];
                assert!(exits.is_empty() || exits == both, "cut at {cut}: {exits:?}");
            }
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                let read = messages(&damaged).filter_map(|message| {
                    read_route(&message, IPV4).or(read_next_hop(&message).map(RouteKind::Default))
                });
                read.for_each(drop);
            }
        }
        let hops = |bytes: &[u8]| hops(bytes).collect::<Vec<_>>();
        let two = [hop(7), hop(9)].concat();
        for cut in 0..two.len() {
            assert_eq!(hops(&two[..cut]), if cut < hop(7).len() { vec![] } else { vec![7] }, "cut at {cut}");
        }
        assert_eq!(hops(&[0; 16]), [0; 0], "a length of 0");
    }

    #[test]
    fn this_machine_has_routes_and_a_missing_next_hop_is_no_error() {
        let mut routes = Routes::open().unwrap();
        let first = routes.carriers().unwrap();
        assert_eq!(routes.carriers().unwrap(), first);
        let mut socket = Socket::open(None).unwrap();
        assert_eq!(next_hop(&mut socket, u32::MAX).unwrap(), []);
    }

    #[test]
    fn a_long_list_is_kept_for_a_while() {
        let known = |routes, looks| DefaultRoutes { exits: Vec::new(), routes, looks }.is_good();
        assert!(known(SHORT_LIST + 1, 0) && !known(SHORT_LIST, 0) && !known(SHORT_LIST + 1, LOOKS));
    }
}
