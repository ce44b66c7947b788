//! A fast path for common packets, which are nearly all packets.

use super::{
    Bytes, Look, Parsed, Tunnels, Window, ethertype,
    network::FRAGMENTED_V4,
    tag::{VLAN, vlan_id},
    transport::{FLAGS_END, PORTS_END},
};
use crate::{
    flow::{Address, FlowKey, class},
    proto,
};

/// The result of `found` for a whole TCP or UDP packet over IPv4 without options, or over IPv6 without extension
/// headers, in an Ethernet frame with one VLAN tag (802.1Q) or none. `None` for any other packet.
///
/// All headers are at fixed offsets, so one check of the packet's length is enough for IPv4, and two for IPv6. `found`
/// is compiled into each of the four branches: without a tag there is no VLAN, and in an IPv4 branch half of the
/// address bits are known.
#[inline(always)]
pub fn common<B: Bytes + ?Sized, T>(packet: &B, look: impl Look, found: impl FnOnce(Parsed) -> T) -> Option<T> {
    // Ethernet, IPv4 and TCP: 14, 20 and 20 bytes. UDP packets are padded to more.
    let frame = packet.first::<54>()?;
    match frame.be16::<12>() {
        ethertype::IPV4 => ipv4(&frame, 0, look).map(found),
        ethertype::IPV6 => ipv6::<_, 0>(packet, &frame, 0, look).map(found),
        ethertype::VLAN => {
            let vlan = vlan_id(frame.be16::<14>());
            let frame = packet.window::<54>(VLAN)?;
            match frame.be16::<12>() {
                ethertype::IPV4 => ipv4(&frame, vlan, look).map(found),
                ethertype::IPV6 => ipv6::<_, VLAN>(packet, &frame, vlan, look).map(found),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A packet over IPv4 in a frame from which the tag was removed.
#[inline(always)]
fn ipv4(frame: &impl Window<54>, vlan: u16, look: impl Look) -> Option<Parsed> {
    const WITHOUT_OPTIONS: u8 = 0x45;
    if frame.u8::<14>() != WITHOUT_OPTIONS || frame.be16::<20>() & FRAGMENTED_V4 != 0 {
        return None;
    }
    let proto = frame.u8::<23>();
    // A buffer that an offload merged has a length of 0.
    let room = frame.be16::<16>().wrapping_sub(20);
    let tcp_flags = match proto {
        proto::TCP if room >= FLAGS_END as u16 => frame.u8::<47>(),
        proto::UDP if room >= PORTS_END as u16 => 0,
        _ => return None,
    };
    let src = Address::from_v4_word(frame.word32::<26>());
    let dst = Address::from_v4_word(frame.word32::<30>());
    let key = FlowKey::new(src, dst, proto, 0);
    whole(Parsed { key, tcp_flags, tos: frame.u8::<15>(), vlan }, frame.word32::<34>(), look)
}

/// A packet over IPv6 in a frame from which the tag was removed; it took `TAG` bytes of the packet.
#[inline(always)]
fn ipv6<B: Bytes + ?Sized, const TAG: usize>(
    packet: &B,
    frame: &impl Window<54>,
    vlan: u16,
    look: impl Look,
) -> Option<Parsed> {
    let first = frame.be16::<14>();
    if first >> 12 != 6 {
        return None;
    }
    let proto = frame.u8::<20>();
    let src = Address([frame.word64::<22>(), frame.word64::<30>()]);
    let dst = Address([frame.word64::<38>(), frame.word64::<46>()]);
    let key = FlowKey::new(src, dst, proto, class::V6);
    let beyond_first = frame.be16::<18>().wrapping_sub(1);
    let (ports, tcp_flags) = match proto {
        proto::TCP if beyond_first >= FLAGS_END as u16 - 1 => {
            let frame = window::<_, 68, TAG>(packet)?;
            (frame.word32::<54>(), frame.u8::<67>())
        }
        proto::UDP if beyond_first >= PORTS_END as u16 - 1 => (window::<_, 58, TAG>(packet)?.word32::<54>(), 0),
        _ => return None,
    };
    whole(Parsed { key, tcp_flags, tos: (first >> 4) as u8, vlan }, ports, look)
}

/// The packet without the first `TAG` bytes.
#[inline(always)]
fn window<B: Bytes + ?Sized, const N: usize, const TAG: usize>(packet: &B) -> Option<B::Window<'_, N>> {
    if TAG == 0 { packet.first() } else { packet.window(TAG) }
}

/// The packet with its ports. `None` for a tunnel that has to be looked into.
#[inline(always)]
fn whole(parsed: Parsed, ports: u32, look: impl Look) -> Option<Parsed> {
    let key = parsed.key.with_both_ports(u32::from_be(ports));
    if key.proto() == proto::UDP && matches!(look.tunnels(), Tunnels::Inner) && look.udp(key.dst_port()).is_some() {
        return None;
    }
    Some(Parsed { key, ..parsed })
}
