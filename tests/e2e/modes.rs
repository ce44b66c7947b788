//! Modes beside each other: whichever way weir sees the packets of an interface, and whatever else sees them there, its
//! ledger is the interface's own count.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use anyhow::{Context, Result, ensure};
use weir_tests::{
    account::Loss,
    netns::{Lab, Namespace, QuietPair},
};

use crate::watch::{self, ONE_WINDOW, ROOMY_PACKET_RINGS, measure, modes, one_window, seen_in};

tests![own_copies_are_not_received];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
/// The modes of the configuration, and what a veth is measured by in each.
const MODES: [(&str, &str); 5] =
    [("native", "xdp-native"), ("generic", "xdp-generic"), ("tcx", "tcx"), ("tc", "tc"), ("afpacket", "afpacket")];
/// The router's own addresses. Most of them, where a link header would have its `EtherType`, say IPv4, IPv6 or VLAN.
const OWN: [[u8; 4]; 4] = [[10, 1, 0, 1], [8, 0, 69, 7], [134, 221, 96, 1], [129, 0, 8, 0]];
const OWN_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x86dd, 0x6000, 0, 0, 0, 1);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP_IPV6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0x86dd, 0x6001);
const PORT: u16 = 7_007;

/// The kernel hands a copy of each multicast and broadcast packet that the router sends to the router's own sockets,
/// by way of what the interface receives.
fn own_copies_are_not_received() -> Result<()> {
    for (mode, obtained) in MODES {
        for sampling in ["", "sampling: {packets: 10}\n"] {
            check_own_copies(mode, obtained, sampling).with_context(|| format!("mode: {mode}, {sampling:?}"))?;
        }
    }
    Ok(())
}

fn check_own_copies(mode: &str, obtained: &str, sampling: &str) -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    let observer = &pair.observer;
    observer.set(&format!("ipv6/conf/{INTERFACE}/disable_ipv6"), "0")?;
    for [a, b, c, d] in OWN {
        observer.ip(&format!("address add {a}.{b}.{c}.{d}/24 broadcast {a}.{b}.{c}.255 dev {INTERFACE}"))?;
    }
    observer.ip(&format!("address add {OWN_IPV6}/64 dev {INTERFACE} nodad"))?;
    let interfaces = format!("interfaces: [{{name: {INTERFACE}, mode: {mode}, direction: both}}]\n");
    let mut daemon = measure(observer, &format!("{interfaces}{sampling}{ROOMY_PACKET_RINGS}{ONE_WINDOW}"))?;
    let sent = send_to_all(observer)?;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    ensure!(modes(INTERFACE, &reports)[0] == obtained, "{:?}", modes(INTERFACE, &reports));
    let [received, seen] = [observer.counters(INTERFACE)?.received, seen_in(INTERFACE, "ingress", &reports)?];
    ensure!(seen == received, "the interface has received {received:?}, and weir saw {seen:?}");
    let seen = seen_in(INTERFACE, "egress", &reports)?;
    ensure!(sent > 0 && seen.packets >= sent, "{sent} were sent, and weir saw {seen:?}");
    Ok(())
}

/// Sends packets to everybody, of which each comes back to a socket of the sender; returns how many. Some are longer than
/// what the interface carries: they come back in one piece.
fn send_to_all(router: &Namespace) -> Result<u64> {
    const LENGTHS: [usize; 3] = [1, 400, 3_000];
    let mut ways = vec![(IpAddr::from(GROUP_IPV6), IpAddr::from(OWN_IPV6))];
    for own @ [a, b, c, _] in OWN {
        let all = [Ipv4Addr::new(a, b, c, 255), Ipv4Addr::BROADCAST, GROUP];
        ways.extend(all.map(|to| (IpAddr::from(to), IpAddr::from(own))));
    }
    let all = || -> Result<u64> {
        let mut copies = 0;
        for (to, own) in ways {
            let (gets, sends) = sockets(to, own)?;
            for length in LENGTHS {
                sends.send_to(&vec![0; length], (to, PORT)).with_context(|| format!("from {own} to {to}"))?;
                let came = gets.recv(&mut [0; 4_096]).with_context(|| format!("no copy from {own} to {to}"))?;
                copies += u64::from(came == length);
            }
        }
        Ok(copies)
    };
    router.enter(all)?
}

/// A socket that gets what is sent to these addresses, and one that sends from the router's own.
fn sockets(to: IpAddr, own: IpAddr) -> Result<(UdpSocket, UdpSocket)> {
    const ANY_INTERFACE: u32 = 0;
    let any: IpAddr = if own.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let gets = UdpSocket::bind((any, PORT))?;
    gets.set_read_timeout(Some(watch::TIMEOUT))?;
    let sends = UdpSocket::bind((own, 0))?;
    match (to, own) {
        (IpAddr::V4(group), IpAddr::V4(own)) if group.is_multicast() => {
            gets.join_multicast_v4(&group, &own)?;
        }
        (IpAddr::V6(group), IpAddr::V6(_)) => gets.join_multicast_v6(&group, ANY_INTERFACE)?,
        _ => sends.set_broadcast(true)?,
    }
    Ok((gets, sends))
}
