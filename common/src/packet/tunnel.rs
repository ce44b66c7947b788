//! From the transport header of a tunnel to the packet that it carries.
//!
//! Tunnels are recognised by their protocol or by their UDP destination port, as in the kernel's own decapsulation.

use super::{Bytes, Layer, Payload, Tunnels, Window, ethertype, with_type_at};
use crate::{flow::class, proto};

/// The most GTP-U extension headers that are parsed (3GPP TS 29.281 section 5.2).
const GTP_EXTENSION_HEADERS_MAX: usize = 4;

const UDP_HEADER: usize = 8;

/// A tunnel identified by its UDP destination port.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpTunnel {
    /// VXLAN (RFC 7348).
    Vxlan = 1,
    /// VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe-13).
    VxlanGpe = 2,
    /// Geneve (RFC 8926).
    Geneve = 3,
    /// GTP-U (3GPP TS 29.281).
    GtpU = 4,
}

impl UdpTunnel {
    /// All kinds; the position is the number minus one.
    pub const ALL: [Self; 4] = [Self::Vxlan, Self::VxlanGpe, Self::Geneve, Self::GtpU];

    const fn place(self) -> usize {
        self as usize - 1
    }

    /// The kind with this number; `None` for 0 and for unknown numbers.
    #[inline(always)]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Vxlan),
            2 => Some(Self::VxlanGpe),
            3 => Some(Self::Geneve),
            4 => Some(Self::GtpU),
            _ => None,
        }
    }
}

/// The most ports of one kind of tunnel.
pub const PORTS_MAX: usize = 8;

/// The UDP destination ports of each kind of tunnel; a free place has 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelPorts(pub [[u16; PORTS_MAX]; UdpTunnel::ALL.len()]);

impl TunnelPorts {
    /// No ports.
    pub const NONE: Self = Self([[0; PORTS_MAX]; UdpTunnel::ALL.len()]);

    /// The ports assigned by IANA, and 8472, Linux's default port for VXLAN (`net/vxlan` of Linux: `vxlan_port`).
    pub const USUAL: Self = {
        let mut ports = Self::NONE.0;
        ports[UdpTunnel::Vxlan.place()][0] = 4789;
        ports[UdpTunnel::Vxlan.place()][1] = 8472;
        ports[UdpTunnel::VxlanGpe.place()][0] = 4790;
        ports[UdpTunnel::Geneve.place()][0] = 6081;
        ports[UdpTunnel::GtpU.place()][0] = 2152;
        Self(ports)
    };

    /// Adds a port, if there is a free place.
    pub fn add(&mut self, kind: UdpTunnel, port: u16) {
        if let Some(free) = self.0[kind.place()].iter_mut().find(|port| **port == 0) {
            *free = port;
        }
    }

    /// The ports of a kind.
    pub fn of(&self, kind: UdpTunnel) -> impl Iterator<Item = u16> + '_ {
        self.0[kind.place()].iter().copied().filter(|port| *port != 0)
    }

    /// The kind of tunnel with this port.
    #[inline]
    pub fn kind(&self, port: u16) -> Option<UdpTunnel> {
        UdpTunnel::ALL.into_iter().find(|kind| port != 0 && self.0[kind.place()].contains(&port))
    }
}

/// How far the parser looks.
pub trait Look: Copy {
    /// Whether a tunnelled packet belongs to the outer or to the inner flow.
    fn tunnels(self) -> Tunnels;
    /// The kind of tunnel with this UDP destination port.
    fn udp(self, port: u16) -> Option<UdpTunnel>;
}

/// With the usual ports.
impl Look for Tunnels {
    #[inline(always)]
    fn tunnels(self) -> Tunnels {
        self
    }

    #[inline(always)]
    fn udp(self, port: u16) -> Option<UdpTunnel> {
        TunnelPorts::USUAL.kind(port)
    }
}

/// With other ports.
impl Look for (Tunnels, &TunnelPorts) {
    #[inline(always)]
    fn tunnels(self) -> Tunnels {
        self.0
    }

    #[inline(always)]
    fn udp(self, port: u16) -> Option<UdpTunnel> {
        self.1.kind(port)
    }
}

/// The content of the tunnel. `None` if this is not a tunnel, or cannot be read.
#[inline(always)]
pub(super) fn inside<B: Bytes + ?Sized>(packet: &B, layer: &Layer, look: impl Look) -> Option<Payload> {
    let Layer { parsed, at } = *layer;
    if parsed.key.class() & (class::FRAGMENT | class::NO_TRANSPORT) != 0 {
        return None;
    }
    let mut payload = match parsed.key.proto() {
        proto::IPV4 => Payload { ethertype: ethertype::IPV4, at },
        proto::IPV6 => Payload { ethertype: ethertype::IPV6, at },
        // RFC 4023.
        proto::MPLS => Payload { ethertype: ethertype::MPLS, at },
        // RFC 8986 section 10.1.
        proto::ETHERNET => ethernet(packet, at)?,
        proto::GRE => gre(packet, at)?,
        proto::UDP => {
            let at = at + UDP_HEADER;
            match look.udp(parsed.key.dst_port())? {
                UdpTunnel::Vxlan => vxlan(packet, at)?,
                UdpTunnel::VxlanGpe => vxlan_gpe(packet, at)?,
                UdpTunnel::Geneve => geneve(packet, at)?,
                UdpTunnel::GtpU => gtp_u(packet, at)?,
            }
        }
        _ => return None,
    };
    payload.at = packet.forget(payload.at);
    Some(payload)
}

#[inline(always)]
fn ethernet<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<Payload> {
    with_type_at(packet, packet.forget(at) + 12).ok()
}

/// A payload with a type, which may be a whole Ethernet frame.
#[inline(always)]
fn typed<B: Bytes + ?Sized>(packet: &B, ethertype: u16, at: usize) -> Option<Payload> {
    match ethertype {
        ethertype::TRANSPARENT_ETHERNET => ethernet(packet, at),
        _ => Some(Payload { ethertype, at }),
    }
}

/// RFC 2784 and RFC 2890, including NVGRE (RFC 7637) and ERSPAN (draft-foschiano-erspan-03). Version 1 (PPTP) and the
/// source routes of RFC 1701 are not supported.
#[inline(always)]
fn gre<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<Payload> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const VERSION: u16 = 0x0007;
    let header = packet.window::<4>(at)?;
    let (flags, ethertype) = (header.be16::<0>(), header.be16::<2>());
    if flags & (ROUTING | VERSION) != 0 {
        return None;
    }
    let fields = u32::from(flags & CHECKSUM != 0) + u32::from(flags & KEY != 0) + u32::from(flags & SEQUENCE != 0);
    let at = packet.forget(at + 4 + 4 * fields as usize);
    match ethertype {
        // Type I has no header of its own, and no sequence number before it.
        ethertype::ERSPAN_II => ethernet(packet, if flags & SEQUENCE != 0 { at + 8 } else { at }),
        ethertype::ERSPAN_III => erspan_iii(packet, at),
        _ => typed(packet, ethertype, at),
    }
}

#[inline(always)]
fn erspan_iii<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<Payload> {
    /// The frame type; 0 is Ethernet.
    const FRAME_TYPE: u16 = 0x7c00;
    /// A subheader of eight bytes follows.
    const SUBHEADER: u16 = 0x0001;
    let last = packet.window::<12>(at)?.be16::<10>();
    if last & FRAME_TYPE != 0 {
        return None;
    }
    ethernet(packet, if last & SUBHEADER != 0 { at + 20 } else { at + 12 })
}

/// RFC 7348 section 5.
#[inline(always)]
fn vxlan<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<Payload> {
    const HAS_IDENTIFIER: u8 = 0x08;
    if packet.window::<8>(at)?.u8::<0>() & HAS_IDENTIFIER == 0 {
        return None;
    }
    ethernet(packet, at + 8)
}

/// draft-ietf-nvo3-vxlan-gpe-13 section 3.
#[inline(always)]
fn vxlan_gpe<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<Payload> {
    const VERSION: u8 = 0x30;
    const HAS_PROTOCOL: u8 = 0x04;
    const OPERATIONS: u8 = 0x01;
    let header = packet.window::<8>(at)?;
    let at = at + 8;
    if header.u8::<0>() & (VERSION | HAS_PROTOCOL | OPERATIONS) != HAS_PROTOCOL {
        return None;
    }
    match header.u8::<3>() {
        1 => Some(Payload { ethertype: ethertype::IPV4, at }),
        2 => Some(Payload { ethertype: ethertype::IPV6, at }),
        3 => ethernet(packet, at),
        5 => Some(Payload { ethertype: ethertype::MPLS, at }),
        _ => None,
    }
}

/// RFC 8926 section 3.4.
#[inline(always)]
fn geneve<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<Payload> {
    const VERSION: u8 = 0xc0;
    const OPTIONS: u8 = 0x3f;
    const CONTROL: u8 = 0x80;
    let header = packet.window::<8>(at)?;
    let first = header.u8::<0>();
    if first & VERSION != 0 || header.u8::<1>() & CONTROL != 0 {
        return None;
    }
    let at = packet.forget(at + 8 + 4 * usize::from(first & OPTIONS));
    typed(packet, header.be16::<2>(), at)
}

/// 3GPP TS 29.281 section 5.1.
#[inline(always)]
fn gtp_u<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<Payload> {
    /// GTP version 1, and not GTP'.
    const VERSION_AND_PROTOCOL: u8 = 0xf0;
    const GTP_1: u8 = 0x30;
    const EXTENSION: u8 = 0x04;
    /// If any of extension, sequence number and N-PDU number is present, the header has room for all three.
    const OPTIONAL: u8 = 0x07;
    const G_PDU: u8 = 255;
    let header = packet.window::<8>(at)?;
    let flags = header.u8::<0>();
    if flags & VERSION_AND_PROTOCOL != GTP_1 || header.u8::<1>() != G_PDU {
        return None;
    }
    let mut at = at + 8;
    if flags & OPTIONAL != 0 {
        let mut next = packet.window::<4>(at)?.u8::<3>();
        at += 4;
        if flags & EXTENSION != 0 {
            for _ in 0..GTP_EXTENSION_HEADERS_MAX {
                at = packet.forget(at);
                if next == 0 {
                    break;
                }
                let units = usize::from(packet.u8(at)?);
                if units == 0 {
                    return None;
                }
                at += 4 * units;
                next = packet.u8(packet.forget(at) - 1)?;
            }
            if next != 0 {
                return None;
            }
        }
    }
    Some(Payload { ethertype: ethertype::UNKNOWN, at: packet.forget(at) })
}
