//! From the start of a packet to its IP header: link layer, tags, PPP over Ethernet, MPLS.

use super::{
    Bytes, Link, MPLS_LABELS_MAX, Payload, Window, ethertype, guess,
    tag::{open, untag},
    with_type_at,
};
use crate::ledger::Skip;

/// The packet's outermost payload.
#[inline(always)]
pub(super) fn begin<B: Bytes + ?Sized>(packet: &B, link: Link) -> Result<Payload, Skip> {
    match link {
        Link::Ethernet => with_type_at(packet, 12),
        Link::RawIp => by_version(packet),
        Link::Loopback => loopback(packet),
        Link::Sll => cooked(packet, 2, Payload { ethertype: packet.be16(14).ok_or(Skip::TruncatedLink)?, at: 16 }),
        Link::Sll2 => {
            let header = packet.first::<20>().ok_or(Skip::TruncatedLink)?;
            cooked(packet, 8, Payload { ethertype: header.be16::<0>(), at: 20 })
        }
        Link::Ppp => match packet.u8(0).ok_or(Skip::TruncatedLink)? {
            CISCO_UNICAST | CISCO_BROADCAST => with_type_at(packet, 2),
            _ => ppp(packet, 0),
        },
        Link::PppWithDirection => {
            const CONTROL: u8 = 0x03;
            let instead_of_address = packet.u8(1).ok_or(Skip::TruncatedLink)? == CONTROL;
            ppp(packet, if instead_of_address { 2 } else { 1 })
        }
        Link::Pppoe => Ok(Payload { ethertype: ethertype::PPPOE_SESSION, at: 0 }),
        Link::Other => Err(Skip::LinkType),
    }
}

/// The first byte of Cisco's HDLC, in place of PPP's address (RFC 1547 section 4.3.1).
const CISCO_UNICAST: u8 = 0x0f;
const CISCO_BROADCAST: u8 = 0x8f;

/// An IP packet, by its version field; the packet contains nothing else.
#[inline(always)]
fn by_version<B: Bytes + ?Sized>(packet: &B) -> Result<Payload, Skip> {
    match packet.u8(0).ok_or(Skip::TruncatedIp)? >> 4 {
        4 => Ok(Payload { ethertype: ethertype::IPV4, at: 0 }),
        6 => Ok(Payload { ethertype: ethertype::IPV6, at: 0 }),
        _ => Err(Skip::BadIpHeader),
    }
}

/// The payload after tags, LLC, PPP over Ethernet and MPLS labels, in this order.
#[inline(always)]
pub(super) fn unwrap<B: Bytes + ?Sized>(packet: &B, payload: Payload) -> Result<Payload, Skip> {
    let mut payload = untag(packet, payload)?;
    payload.at = packet.forget(payload.at);
    payload = open(packet, payload)?;
    if payload.ethertype == ethertype::PPPOE_SESSION {
        payload = pppoe(packet, payload.at)?;
    }
    payload.at = packet.forget(payload.at);
    let is_mpls = matches!(payload.ethertype, ethertype::MPLS | ethertype::MPLS_MULTICAST);
    if is_mpls {
        payload.at = labels(packet, payload.at)?;
    }
    if is_mpls || payload.ethertype == ethertype::UNKNOWN {
        payload = guess::ip(packet, packet.forget(payload.at));
        if payload.ethertype == 0 {
            return Err(if is_mpls { Skip::Mpls } else { Skip::NonIp });
        }
    }
    payload.at = packet.forget(payload.at);
    Ok(payload)
}

/// RFC 2516 section 4.
#[inline(always)]
fn pppoe<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Payload, Skip> {
    const VERSION_TYPE_AND_SESSION: u16 = 0x1100;
    if packet.be16(at).ok_or(Skip::TruncatedLink)? != VERSION_TYPE_AND_SESSION {
        return Err(Skip::Pppoe);
    }
    ppp(packet, at + 6)
}

/// By the protocol field (IANA, PPP DLL protocol numbers). The address and control fields may come before it (RFC 1662
/// section 3.1); the two sides can agree to omit them (RFC 1661 section 6.6), and to omit the first byte of the
/// protocol if it is 0 (section 6.5). Only the last byte of a protocol is odd.
#[inline(always)]
fn ppp<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Payload, Skip> {
    const ADDRESS_AND_CONTROL: u16 = 0xff03;
    let framed = packet.be16(at).ok_or(Skip::TruncatedLink)? == ADDRESS_AND_CONTROL;
    let at = packet.forget(if framed { at + 2 } else { at });
    let whole = packet.be16(at).ok_or(Skip::TruncatedLink)?;
    let first = whole >> 8;
    let (protocol, at) = if first & 1 != 0 { (first, at + 1) } else { (whole, at + 2) };
    let ethertype = match protocol {
        0x0021 => ethertype::IPV4,
        0x0057 => ethertype::IPV6,
        0x0281 => ethertype::MPLS,
        0x0283 => ethertype::MPLS_MULTICAST,
        _ => return Err(Skip::Ppp),
    };
    Ok(Payload { ethertype, at })
}

/// RFC 3032 section 2.1: finds the end of the label stack, which does not tell what it carries.
#[inline(always)]
fn labels<B: Bytes + ?Sized>(packet: &B, mut at: usize) -> Result<usize, Skip> {
    const BOTTOM_OF_STACK: u8 = 1;
    for _ in 0..MPLS_LABELS_MAX {
        let label = packet.window::<4>(at).ok_or(Skip::TruncatedLink)?;
        at += 4;
        if label.u8::<2>() & BOTTOM_OF_STACK != 0 {
            return Ok(at);
        }
    }
    Err(Skip::MplsDepth)
}

/// `AF_INET` is 2 everywhere; `AF_INET6` is 10, 24, 28 or 30, depending on the system; in either byte order.
#[inline(always)]
fn loopback<B: Bytes + ?Sized>(packet: &B) -> Result<Payload, Skip> {
    let family = packet.window::<4>(0).ok_or(Skip::TruncatedLink)?;
    let (little, big) = (family.u8::<0>(), family.u8::<3>());
    if family.u8::<1>() | family.u8::<2>() != 0 || little != 0 && big != 0 {
        return Err(Skip::NonIp);
    }
    let ethertype = match little | big {
        2 => ethertype::IPV4,
        10 | 24 | 28 | 30 => ethertype::IPV6,
        _ => return Err(Skip::NonIp),
    };
    Ok(Payload { ethertype, at: 4 })
}

/// Linux cooked capture with a hardware type at `hardware`. For some types, what looks like an `EtherType` is something
/// else (<https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL.html>): frame relay, 802.11, netlink.
#[inline(always)]
fn cooked<B: Bytes + ?Sized>(packet: &B, hardware: usize, payload: Payload) -> Result<Payload, Skip> {
    match packet.be16(hardware).ok_or(Skip::TruncatedLink)? {
        770 | 801..=803 | 824 => Err(Skip::LinkType),
        _ => Ok(payload),
    }
}
