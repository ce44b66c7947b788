//! From the beginning of a packet to its IP header: link layer, VLAN tags, PPP over Ethernet, MPLS.

use super::{Bytes, Link, MPLS_LABELS_MAX, Payload, VLAN_TAGS_MAX, Window, ethertype};
use crate::ledger::Skip;

/// The packet's outermost payload.
#[inline(always)]
pub(super) fn begin<B: Bytes + ?Sized>(packet: &B, link: Link) -> Result<Payload, Skip> {
    match link {
        Link::Ethernet => with_type_at(packet, 12),
        Link::RawIp => by_version(packet, 0)?.ok_or(Skip::BadIpHeader),
        Link::Loopback => loopback(packet),
        Link::Sll => with_type_at(packet, 14),
        Link::Sll2 => Ok(Payload { ethertype: packet.be16(0).ok_or(Skip::TruncatedLink)?, at: 20 }),
        Link::Ppp => {
            const ADDRESS_AND_CONTROL: u16 = 0xff03;
            let framed = packet.be16(0).ok_or(Skip::TruncatedLink)? == ADDRESS_AND_CONTROL;
            ppp(packet, if framed { 2 } else { 0 })
        }
        Link::Other => Err(Skip::LinkType),
    }
}

/// What follows an `EtherType` at `at`.
#[inline(always)]
pub(super) fn with_type_at<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Payload, Skip> {
    Ok(Payload { ethertype: packet.be16(at).ok_or(Skip::TruncatedLink)?, at: at + 2 })
}

/// An IP packet by its version field; `None` if it is neither.
#[inline(always)]
pub(super) fn by_version<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Option<Payload>, Skip> {
    Ok(match packet.u8(at).ok_or(Skip::TruncatedIp)? >> 4 {
        4 => Some(Payload { ethertype: ethertype::IPV4, at }),
        6 => Some(Payload { ethertype: ethertype::IPV6, at }),
        _ => None,
    })
}

/// The payload behind VLAN tags, PPP over Ethernet and MPLS labels, in this order.
#[inline(always)]
pub(super) fn unwrap<B: Bytes + ?Sized>(packet: &B, payload: Payload) -> Result<Payload, Skip> {
    let mut payload = untag(packet, payload)?;
    if payload.ethertype == ethertype::PPPOE_SESSION {
        payload = pppoe(packet, payload.at)?;
    }
    payload.at = packet.forget(payload.at);
    if matches!(payload.ethertype, ethertype::MPLS | ethertype::MPLS_MULTICAST) {
        payload = mpls(packet, payload.at)?;
        payload.at = packet.forget(payload.at);
    }
    Ok(payload)
}

/// The VLAN identifier of the outermost tag, without its priority; 0 if there is no tag.
#[inline(always)]
pub(super) fn vlan<B: Bytes + ?Sized>(packet: &B, payload: Payload) -> u16 {
    const IDENTIFIER: u16 = 0x0fff;
    let tag = if is_tag(payload.ethertype) { packet.be16(payload.at).unwrap_or(0) } else { 0 };
    // One number to the verifier, with a tag and without.
    packet.forget(usize::from(tag & IDENTIFIER)) as u16
}

#[inline(always)]
const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ethertype::VLAN | ethertype::PROVIDER_VLAN | ethertype::OLD_QINQ)
}

/// IEEE 802.1Q: two bytes of tag, and the next `EtherType`.
#[inline(always)]
fn untag<B: Bytes + ?Sized>(packet: &B, mut payload: Payload) -> Result<Payload, Skip> {
    for _ in 0..VLAN_TAGS_MAX + 1 {
        if !is_tag(payload.ethertype) {
            return Ok(payload);
        }
        payload = with_type_at(packet, payload.at + 2)?;
    }
    Err(Skip::VlanDepth)
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

/// By the protocol field at `at` (IANA, PPP DLL protocol numbers).
#[inline(always)]
fn ppp<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Payload, Skip> {
    let ethertype = match packet.be16(at).ok_or(Skip::TruncatedLink)? {
        0x0021 => ethertype::IPV4,
        0x0057 => ethertype::IPV6,
        0x0281 => ethertype::MPLS,
        0x0283 => ethertype::MPLS_MULTICAST,
        _ => return Err(Skip::Ppp),
    };
    Ok(Payload { ethertype, at: at + 2 })
}

/// RFC 3032 section 2.1. A label stack does not tell what it carries. IP is recognised by its version field, as routers
/// do it to choose among equal paths (RFC 4928). A pseudowire without a control word whose frames begin with 4 or 6
/// looks the same.
#[inline(always)]
fn mpls<B: Bytes + ?Sized>(packet: &B, mut at: usize) -> Result<Payload, Skip> {
    const BOTTOM_OF_STACK: u8 = 1;
    for _ in 0..MPLS_LABELS_MAX {
        let label = packet.window::<4>(at).ok_or(Skip::TruncatedLink)?;
        at += 4;
        if label.u8::<2>() & BOTTOM_OF_STACK != 0 {
            return by_version(packet, at)?.ok_or(Skip::Mpls);
        }
    }
    Err(Skip::MplsDepth)
}

/// `AF_INET` is 2 everywhere; `AF_INET6` is 10, 24, 28 or 30 by system. One of the outer bytes holds it, whatever the
/// byte order.
#[inline(always)]
fn loopback<B: Bytes + ?Sized>(packet: &B) -> Result<Payload, Skip> {
    let family = packet.window::<4>(0).ok_or(Skip::TruncatedLink)?;
    let ethertype = match family.u8::<0>() | family.u8::<3>() {
        2 => ethertype::IPV4,
        10 | 24 | 28 | 30 => ethertype::IPV6,
        _ => return Err(Skip::NonIp),
    };
    Ok(Payload { ethertype, at: 4 })
}
