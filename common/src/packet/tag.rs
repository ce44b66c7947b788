//! Tags between the addresses of a frame and the `EtherType` of its payload: VLAN tags, and others that end with
//! another `EtherType`.

use super::{Bytes, Link, Payload, VLAN_TAGS_MAX, Window, ethertype, with_type_at};
use crate::ledger::Skip;

/// The length of a VLAN tag.
pub(super) const VLAN: usize = 4;
/// The addresses at the start of an Ethernet header.
const ADDRESSES: u8 = 12;

/// For each `EtherType`, the bytes to the next one; 0 if it is not a tag. A table takes one load and gives the verifier
/// one path; comparisons would give it one path per kind of tag.
static STEPS: [u8; 1 << 16] = {
    let mut steps = [0; 1 << 16];
    // IEEE 802.1Q.
    steps[ethertype::VLAN as usize] = 2 + 2;
    steps[ethertype::PROVIDER_VLAN as usize] = 2 + 2;
    steps[ethertype::OLD_QINQ as usize] = 2 + 2;
    steps[ethertype::OLDER_QINQ as usize] = 2 + 2;
    steps[ethertype::VN_TAG as usize] = 2 + 4;
    steps[ethertype::HSR as usize] = 2 + 4;
    steps[ethertype::E_TAG as usize] = 2 + 6;
    steps[ethertype::EDSA as usize] = 2 + 6;
    // A single option, the security group tag.
    steps[ethertype::CISCO_METADATA as usize] = 2 + 6;
    // A service identifier and a frame.
    steps[ethertype::SERVICE as usize] = 2 + 4 + ADDRESSES;
    // A fabric tag and a frame.
    steps[ethertype::FABRIC_PATH as usize] = 2 + 2 + ADDRESSES;
    steps[ethertype::TRANSPARENT_ETHERNET as usize] = 2 + ADDRESSES;
    steps
};

/// The bytes from this `EtherType` to the next one; 0 if it is not a tag.
#[inline(always)]
pub(super) fn step<B: Bytes + ?Sized>(packet: &B, ethertype: u16) -> usize {
    usize::from(STEPS[packet.place(ethertype) & (STEPS.len() - 1)])
}

/// The payload after all tags.
#[inline(always)]
pub(super) fn untag<B: Bytes + ?Sized>(packet: &B, mut payload: Payload) -> Result<Payload, Skip> {
    for _ in 0..VLAN_TAGS_MAX + 1 {
        let step = step(packet, payload.ethertype);
        if step == 0 {
            return Ok(payload);
        }
        payload = with_type_at(packet, packet.forget(payload.at - 2 + packet.predict::<VLAN>(step)))?;
    }
    Err(Skip::VlanDepth)
}

/// What follows LLC or `MACsec`, which have lengths of their own; the payload itself if it is neither, or cannot be
/// read.
#[inline(always)]
pub(super) fn open<B: Bytes + ?Sized>(packet: &B, payload: Payload) -> Result<Payload, Skip> {
    let bytes = match payload.ethertype {
        0..ethertype::FIRST | ethertype::LONG_LLC => snap(packet, payload.at),
        ethertype::MACSEC => macsec(packet, payload.at),
        _ => 0,
    };
    if bytes == 0 { Ok(payload) } else { with_type_at(packet, packet.forget(payload.at + bytes)) }
}

/// RFC 1042: LLC with an `EtherType`.
#[inline(always)]
fn snap<B: Bytes + ?Sized>(packet: &B, at: usize) -> usize {
    let Some(llc) = packet.window::<8>(at) else { return 0 };
    let is_snap = llc.be16::<0>() == 0xaaaa && llc.be16::<2>() == 0x0300 && llc.be16::<4>() == 0;
    if is_snap { 6 } else { 0 }
}

/// IEEE 802.1AE: the payload can be read if it was neither encrypted nor modified.
#[inline(always)]
fn macsec<B: Bytes + ?Sized>(packet: &B, at: usize) -> usize {
    const VERSION_ENCRYPTED_CHANGED: u8 = 0x8c;
    const HAS_IDENTIFIER: u8 = 0x20;
    match packet.u8(at) {
        Some(first) if first & VERSION_ENCRYPTED_CHANGED == 0 => 6 + usize::from(first & HAS_IDENTIFIER) / 4,
        _ => 0,
    }
}

/// The ID of the VLAN in a tag's content, without its priority.
#[inline(always)]
pub const fn vlan_id(content: u16) -> u16 {
    const IDENTIFIER: u16 = 0x0fff;
    content & IDENTIFIER
}

/// The ID of the outermost VLAN, without its priority; 0 if there is no VLAN tag. One other tag may come before it.
#[inline(always)]
pub(super) fn vlan<B: Bytes + ?Sized>(packet: &B, link: Link) -> u16 {
    let (type_at, at) = match link {
        Link::Ethernet => (12, 14),
        Link::Sll => (14, 16),
        Link::Sll2 => (0, 20),
        _ => return 0,
    };
    // One path for the verifier, whatever the link type.
    let (type_at, at) = (packet.forget(type_at), packet.forget(at));
    let mut payload = Payload { ethertype: packet.be16(type_at).unwrap_or(0), at };
    let step = step(packet, payload.ethertype);
    if step > VLAN {
        let at = packet.forget(at - 2 + step);
        payload = Payload { ethertype: packet.be16(at).unwrap_or(0), at: at + 2 };
    }
    let Payload { ethertype, at } = payload;
    let tag = if self::step(packet, ethertype) == VLAN { packet.be16(packet.forget(at)).unwrap_or(0) } else { 0 };
    // One number for the verifier, with or without a tag.
    packet.forget(usize::from(vlan_id(tag))) as u16
}
