//! A fast path for common packets, which are nearly all packets.

use super::{
    Bytes, Look, Parsed, Tunnels, Window, ethertype,
    network::FRAGMENTED_V4,
    tag::{VLAN, vlan_id},
    transport::{FLAGS_END, PORTS_END},
};
use crate::{
    flow::{Address, FlowKey, class},
    ledger::Skip,
    proto,
};

/// The result of `found` for a whole TCP or UDP packet over IPv4 without options, or over IPv6 without extension
/// headers, and for ARP, in an Ethernet frame with one VLAN tag (802.1Q) or none. `None` for any other packet.
///
/// All headers are at fixed offsets, so one check of the packet's length is enough for IPv4, and two for IPv6. `found`
/// is compiled into each branch: without a tag there is no VLAN, UDP has no flags, and in an IPv4 branch half of the
/// address bits are known.
#[inline(always)]
pub fn common<B: Bytes + ?Sized, T>(
    packet: &B,
    look: impl Look,
    found: impl FnOnce(Result<Parsed, Skip>) -> T,
) -> Option<T> {
    // Ethernet, IPv4 and TCP: 14, 20 and 20 bytes. UDP packets are padded to more.
    let frame = packet.first::<54>()?;
    if starts::<IPV4, _>(&frame) {
        return ipv4(&frame, 0, look, found);
    }
    if starts::<IPV6, _>(&frame) {
        return ipv6::<_, _, 0>(packet, &frame, 0, look, found);
    }
    if frame.be16::<12>() == ethertype::VLAN {
        let vlan = vlan_id(frame.be16::<14>());
        let frame = packet.window::<54>(VLAN)?;
        if starts::<IPV4, _>(&frame) {
            return ipv4(&frame, vlan, look, found);
        }
        if starts::<IPV6, _>(&frame) {
            return ipv6::<_, _, VLAN>(packet, &frame, vlan, look, found);
        }
        return None;
    }
    if frame.be16::<12>() == ethertype::ARP { Some(found(Err(Skip::Arp))) } else { None }
}

/// The `EtherType` and the first bits of the header after it: IPv4 without options.
const IPV4: u32 = (ethertype::IPV4 as u32) << 16 | 0x4500;
/// The same for IPv6.
const IPV6: u32 = (ethertype::IPV6 as u32) << 16 | 0x6000;

/// Whether a frame without tags has this header: one comparison of the bits that are always the same.
#[inline(always)]
fn starts<const HEADER: u32, W: Window<54>>(frame: &W) -> bool {
    let mask: u32 = const { if HEADER == IPV4 { 0xffff_ff00 } else { 0xffff_f000 } };
    frame.word32::<12>() & mask.to_be() == HEADER.to_be()
}

/// A packet over IPv4 in a frame from which the tag was removed.
#[inline(always)]
fn ipv4<T>(
    frame: &impl Window<54>,
    vlan: u16,
    look: impl Look,
    found: impl FnOnce(Result<Parsed, Skip>) -> T,
) -> Option<T> {
    if frame.be16::<20>() & FRAGMENTED_V4 != 0 {
        return None;
    }
    let ports = u32::from_be(frame.word32::<34>());
    // A buffer that an offload merged has a length of 0.
    let room = u64::from(frame.be16::<16>()).wrapping_sub(20);
    match frame.u8::<23>() {
        proto::TCP if room >= FLAGS_END as u64 => {
            Some(found(Ok(of_v4(frame, proto::TCP, ports, frame.u8::<47>(), vlan))))
        }
        proto::UDP if room >= PORTS_END as u64 && !is_tunnel(ports, look) => {
            Some(found(Ok(of_v4(frame, proto::UDP, ports, 0, vlan))))
        }
        _ => None,
    }
}

/// What a frame without tags says of a packet over IPv4.
#[inline(always)]
fn of_v4(frame: &impl Window<54>, proto: u8, ports: u32, tcp_flags: u8, vlan: u16) -> Parsed {
    let none = Address::from_v4_word(0);
    let key = FlowKey::new(none, none, proto, 0).with_both_ports(ports).with_v4_addresses(frame.word64::<26>());
    Parsed { key, tcp_flags, tos: u32::from_be(frame.word32::<12>()) as u8, vlan }
}

/// A packet over IPv6 in a frame from which the tag was removed; it took `TAG` bytes of the packet.
#[inline(always)]
fn ipv6<B: Bytes + ?Sized, T, const TAG: usize>(
    packet: &B,
    frame: &impl Window<54>,
    vlan: u16,
    look: impl Look,
    found: impl FnOnce(Result<Parsed, Skip>) -> T,
) -> Option<T> {
    let tos = (u32::from_be(frame.word32::<12>()) >> 4) as u8;
    // A packet of more than 65,535 bytes has a length of 0.
    let beyond_first = u64::from(frame.be16::<18>()).wrapping_sub(1);
    match frame.u8::<20>() {
        proto::TCP if beyond_first >= FLAGS_END as u64 - 1 => {
            let whole = window::<_, 68, TAG>(packet)?;
            let key = key_v6(frame, proto::TCP, whole.word32::<54>());
            Some(found(Ok(Parsed { key, tcp_flags: whole.u8::<67>(), tos, vlan })))
        }
        proto::UDP if beyond_first >= PORTS_END as u64 - 1 => {
            let key = key_v6(frame, proto::UDP, window::<_, 58, TAG>(packet)?.word32::<54>());
            if is_tunnel(key.dst_port().into(), look) {
                return None;
            }
            Some(found(Ok(Parsed { key, tcp_flags: 0, tos, vlan })))
        }
        _ => None,
    }
}

/// The key of a packet over IPv6 in a frame without tags.
#[inline(always)]
fn key_v6(frame: &impl Window<54>, proto: u8, ports: u32) -> FlowKey {
    let src = Address([frame.word64::<22>(), frame.word64::<30>()]);
    let dst = Address([frame.word64::<38>(), frame.word64::<46>()]);
    FlowKey::new(src, dst, proto, class::V6).with_both_ports(u32::from_be(ports))
}

/// The packet without the first `TAG` bytes.
#[inline(always)]
fn window<B: Bytes + ?Sized, const N: usize, const TAG: usize>(packet: &B) -> Option<B::Window<'_, N>> {
    if TAG == 0 { packet.first() } else { packet.window(TAG) }
}

/// Whether UDP to the second of these ports is a tunnel that has to be looked into.
#[inline(always)]
fn is_tunnel(ports: u32, look: impl Look) -> bool {
    matches!(look.tunnels(), Tunnels::Inner) && look.udp(ports as u16).is_some()
}
