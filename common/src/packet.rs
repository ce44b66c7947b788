//! The parser: from bytes to a flow key, or to the reason why there is none.
//!
//! One source for the kernel, for replay and for fuzzing, so that they cannot disagree. It is generic over
//! [`Bytes`], because the eBPF verifier wants each access proven against the packet's end in its own way. Every loop
//! is bounded by a constant and everything is inlined: the verifiers of 6.1, 6.12 and 6.18 accept it.
//!
//! A key needs addresses and a protocol. A packet that has both is attributed, with ports if its transport header is
//! there and says so in its [`class`] if not; every other packet is counted under its [`Skip`].

use crate::{
    flow::{Address, FlowKey, class},
    ledger::Skip,
};

/// The parser looks no further than this many bytes into a packet.
pub const REACH_MAX: usize = 512;
/// VLAN tags (802.1Q, 802.1ad) that are unwrapped.
pub const VLAN_TAGS_MAX: usize = 4;
/// IPv6 extension headers that are walked.
pub const EXTENSION_HEADERS_MAX: usize = 8;

/// Read access to a packet. `None` means that the packet, or [`REACH_MAX`], ends before.
pub trait Bytes {
    /// The byte at `at`.
    fn u8(&self, at: usize) -> Option<u8>;
    /// Two bytes at `at`, big-endian.
    fn be16(&self, at: usize) -> Option<u16>;
    /// Four bytes at `at`, in memory order.
    fn word32(&self, at: usize) -> Option<u32>;
    /// Eight bytes at `at`, in memory order.
    fn word64(&self, at: usize) -> Option<u64>;
}

impl Bytes for [u8] {
    #[inline(always)]
    fn u8(&self, at: usize) -> Option<u8> {
        array::<1>(self, at).map(|[byte]| byte)
    }
    #[inline(always)]
    fn be16(&self, at: usize) -> Option<u16> {
        array(self, at).map(u16::from_be_bytes)
    }
    #[inline(always)]
    fn word32(&self, at: usize) -> Option<u32> {
        array(self, at).map(u32::from_ne_bytes)
    }
    #[inline(always)]
    fn word64(&self, at: usize) -> Option<u64> {
        array(self, at).map(u64::from_ne_bytes)
    }
}

#[inline(always)]
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    if at + N > REACH_MAX {
        return None;
    }
    bytes.get(at..)?.first_chunk().copied()
}

/// What a packet begins with. Routers have Ethernet; captures have more.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet II or IEEE 802.3.
    Ethernet,
    /// An IP header at once.
    RawIp,
    /// BSD loopback: a 4-byte address family, in the byte order of whoever captured.
    Loopback,
    /// Linux cooked capture, version 1.
    Sll,
    /// Linux cooked capture, version 2.
    Sll2,
    /// PPP, with or without the HDLC-like address and control bytes (RFC 1662).
    Ppp,
    /// A link type that weir does not read.
    Other,
}

impl Link {
    /// Every link type; the position is its code.
    pub const ALL: [Self; 7] =
        [Self::Ethernet, Self::RawIp, Self::Loopback, Self::Sll, Self::Sll2, Self::Ppp, Self::Other];

    /// The link type with this code; an unknown code is [`Link::Other`].
    #[inline(always)]
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Ethernet,
            1 => Self::RawIp,
            2 => Self::Loopback,
            3 => Self::Sll,
            4 => Self::Sll2,
            5 => Self::Ppp,
            _ => Self::Other,
        }
    }
}

/// A parsed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The flow's key; its scope (`interface`, `epoch`) is still zero.
    pub key: FlowKey,
    /// The TCP flags, 0 for other protocols.
    pub tcp_flags: u8,
}

/// Protocol numbers (IANA).
pub mod proto {
    #![allow(missing_docs, reason = "the names are IANA's")]
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const DCCP: u8 = 33;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const AUTHENTICATION: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const NO_NEXT_HEADER: u8 = 59;
    pub const DESTINATION_OPTIONS: u8 = 60;
    pub const SCTP: u8 = 132;
    pub const MOBILITY: u8 = 135;
    pub const UDP_LITE: u8 = 136;
    pub const HIP: u8 = 139;
    pub const SHIM6: u8 = 140;
}

/// `EtherType`s (IEEE).
mod ethertype {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const MPLS: u16 = 0x8847;
    pub const MPLS_MULTICAST: u16 = 0x8848;
    pub const PPPOE_DISCOVERY: u16 = 0x8863;
    pub const PPPOE_SESSION: u16 = 0x8864;
    pub const PROVIDER_VLAN: u16 = 0x88a8;
    pub const LLDP: u16 = 0x88cc;
    pub const MACSEC: u16 = 0x88e5;
    /// Q-in-Q before 802.1ad.
    pub const OLD_QINQ: u16 = 0x9100;
    /// Smaller values are an IEEE 802.3 length.
    pub const FIRST: u16 = 0x0600;
}

/// The flow of a packet that begins with `link`.
///
/// # Errors
///
/// The reason why the packet has no flow key.
#[inline(always)]
pub fn parse<B: Bytes + ?Sized>(packet: &B, link: Link) -> Result<Parsed, Skip> {
    let (ethertype, at) = match link {
        Link::Ethernet => ethernet(packet, 12)?,
        Link::RawIp => raw_ip(packet, 0)?,
        Link::Loopback => loopback(packet)?,
        Link::Sll => ethernet(packet, 14)?,
        Link::Sll2 => (packet.be16(0).ok_or(Skip::TruncatedLink)?, 20),
        Link::Ppp => ppp(packet)?,
        Link::Other => return Err(Skip::LinkType),
    };
    match ethertype {
        ethertype::IPV4 => ipv4(packet, at),
        ethertype::IPV6 => ipv6(packet, at),
        ethertype::ARP => Err(Skip::Arp),
        ethertype::LLDP => Err(Skip::Lldp),
        ethertype::MPLS | ethertype::MPLS_MULTICAST => Err(Skip::Mpls),
        ethertype::PPPOE_DISCOVERY | ethertype::PPPOE_SESSION => Err(Skip::Pppoe),
        ethertype::MACSEC => Err(Skip::Macsec),
        0..ethertype::FIRST => Err(Skip::Llc),
        _ => Err(Skip::NonIp),
    }
}

/// The `EtherType` at `at`, behind any VLAN tags, and where its payload begins (IEEE 802.1Q).
#[inline(always)]
fn ethernet<B: Bytes + ?Sized>(packet: &B, mut at: usize) -> Result<(u16, usize), Skip> {
    for _ in 0..=VLAN_TAGS_MAX {
        let ethertype = packet.be16(at).ok_or(Skip::TruncatedLink)?;
        match ethertype {
            ethertype::VLAN | ethertype::PROVIDER_VLAN | ethertype::OLD_QINQ => at += 4,
            _ => return Ok((ethertype, at + 2)),
        }
    }
    Err(Skip::VlanDepth)
}

#[inline(always)]
fn raw_ip<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<(u16, usize), Skip> {
    match packet.u8(at).ok_or(Skip::TruncatedIp)? >> 4 {
        4 => Ok((ethertype::IPV4, at)),
        6 => Ok((ethertype::IPV6, at)),
        _ => Err(Skip::BadIpHeader),
    }
}

/// `AF_INET` is 2 everywhere; `AF_INET6` is 10, 24, 28 or 30 by system. One of the outer bytes holds it, whatever the
/// byte order.
#[inline(always)]
fn loopback<B: Bytes + ?Sized>(packet: &B) -> Result<(u16, usize), Skip> {
    let first = packet.u8(0).ok_or(Skip::TruncatedLink)?;
    let last = packet.u8(3).ok_or(Skip::TruncatedLink)?;
    match first | last {
        2 => Ok((ethertype::IPV4, 4)),
        10 | 24 | 28 | 30 => Ok((ethertype::IPV6, 4)),
        _ => Err(Skip::NonIp),
    }
}

#[inline(always)]
fn ppp<B: Bytes + ?Sized>(packet: &B) -> Result<(u16, usize), Skip> {
    const ADDRESS_AND_CONTROL: u16 = 0xff03;
    let first = packet.be16(0).ok_or(Skip::TruncatedLink)?;
    let (protocol, at) =
        if first == ADDRESS_AND_CONTROL { (packet.be16(2).ok_or(Skip::TruncatedLink)?, 4) } else { (first, 2) };
    match protocol {
        0x0021 => Ok((ethertype::IPV4, at)),
        0x0057 => Ok((ethertype::IPV6, at)),
        0x0281 | 0x0283 => Err(Skip::Mpls),
        _ => Err(Skip::NonIp),
    }
}

/// RFC 791 section 3.1.
#[inline(always)]
fn ipv4<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Parsed, Skip> {
    const FRAGMENT_OFFSET: u16 = 0x1fff;
    let first = packet.u8(at).ok_or(Skip::TruncatedIp)?;
    let header = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || header < 20 {
        return Err(Skip::BadIpHeader);
    }
    let fragment = packet.be16(at + 6).ok_or(Skip::TruncatedIp)?;
    let key = FlowKey::new(
        Address::from_v4_word(packet.word32(at + 12).ok_or(Skip::TruncatedIp)?),
        Address::from_v4_word(packet.word32(at + 16).ok_or(Skip::TruncatedIp)?),
        packet.u8(at + 9).ok_or(Skip::TruncatedIp)?,
        0,
    );
    // The options must be there too, or the transport header is not where it seems.
    if packet.u8(at + header - 1).is_none() {
        return Err(Skip::TruncatedIp);
    }
    if fragment & FRAGMENT_OFFSET != 0 {
        return Ok(without_ports(key, class::FRAGMENT));
    }
    Ok(transport(packet, at + header, key))
}

/// RFC 8200 section 3, and section 4 for the extension headers.
#[inline(always)]
fn ipv6<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Parsed, Skip> {
    let first = packet.u8(at).ok_or(Skip::TruncatedIp)?;
    if first >> 4 != 6 {
        return Err(Skip::BadIpHeader);
    }
    let mut next = packet.u8(at + 6).ok_or(Skip::TruncatedIp)?;
    let key = FlowKey::new(
        Address([packet.word64(at + 8).ok_or(Skip::TruncatedIp)?, packet.word64(at + 16).ok_or(Skip::TruncatedIp)?]),
        Address([packet.word64(at + 24).ok_or(Skip::TruncatedIp)?, packet.word64(at + 32).ok_or(Skip::TruncatedIp)?]),
        0,
        class::V6,
    );
    let mut at = at + 40;
    for _ in 0..=EXTENSION_HEADERS_MAX {
        let length = match next {
            proto::HOP_BY_HOP
            | proto::ROUTING
            | proto::DESTINATION_OPTIONS
            | proto::MOBILITY
            | proto::HIP
            | proto::SHIM6 => (usize::from(packet.u8(at + 1).ok_or(Skip::TruncatedIp)?) + 1) * 8,
            // RFC 4302 section 2.2: in 4-byte units, less two.
            proto::AUTHENTICATION => (usize::from(packet.u8(at + 1).ok_or(Skip::TruncatedIp)?) + 2) * 4,
            proto::FRAGMENT => {
                // RFC 8200 section 4.5: the upper 13 bits are the offset.
                if packet.be16(at + 2).ok_or(Skip::TruncatedIp)? >> 3 != 0 {
                    let proto = packet.u8(at).ok_or(Skip::TruncatedIp)?;
                    return Ok(without_ports(key.with_proto(proto), class::FRAGMENT));
                }
                8
            }
            _ => {
                return Ok(transport(packet, at, key.with_proto(next)));
            }
        };
        // Mobility, HIP and Shim6 may end the chain (RFC 6275 section 6.1.1): then they are the protocol.
        let following = packet.u8(at).ok_or(Skip::TruncatedIp)?;
        if following == proto::NO_NEXT_HEADER && matches!(next, proto::MOBILITY | proto::HIP | proto::SHIM6) {
            return Ok(Parsed { key: key.with_proto(next), tcp_flags: 0 });
        }
        next = following;
        at += length;
    }
    Err(Skip::ExtensionDepth)
}

/// Ports, or ICMP's type and code, and TCP's flags.
///
/// One read for both ports: two optional reads joined make LLVM carry a pointer where the verifier wants a number.
#[inline(always)]
fn transport<B: Bytes + ?Sized>(packet: &B, at: usize, key: FlowKey) -> Parsed {
    match key.proto() {
        proto::TCP | proto::UDP | proto::SCTP | proto::DCCP | proto::UDP_LITE => {
            let Some(ports) = packet.word32(at).map(u32::from_be) else {
                return without_ports(key, class::NO_TRANSPORT);
            };
            let tcp_flags = if key.proto() == proto::TCP { packet.u8(at + 13).unwrap_or(0) } else { 0 };
            Parsed { key: key.with_both_ports(ports), tcp_flags }
        }
        proto::ICMP | proto::ICMPV6 => {
            let Some(kind_and_code) = packet.be16(at) else {
                return without_ports(key, class::NO_TRANSPORT);
            };
            Parsed { key: key.with_ports(kind_and_code >> 8, kind_and_code & 0xff), tcp_flags: 0 }
        }
        _ => Parsed { key, tcp_flags: 0 },
    }
}

#[inline(always)]
const fn without_ports(key: FlowKey, why: u8) -> Parsed {
    Parsed { key: key.with_class(why), tcp_flags: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use std::{vec, vec::Vec};

    fn v4(proto: u8, fragment: u16, options: usize, transport: &[u8]) -> Vec<u8> {
        let mut ip = vec![0; 20 + options];
        ip[0] = 0x40 | (5 + options / 4) as u8;
        ip[6..8].copy_from_slice(&fragment.to_be_bytes());
        ip[9] = proto;
        ip[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 7]);
        ip.extend_from_slice(transport);
        ip
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut ip = vec![0; 40];
        ip[0] = 0x60;
        ip[6] = next;
        ip[8] = 0x20;
        ip[23] = 1;
        ip[24] = 0x20;
        ip[39] = 2;
        ip.extend_from_slice(payload);
        ip
    }

    fn ethernet(tags: &[u16], ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in tags {
            frame.extend_from_slice(&tag.to_be_bytes());
            frame.extend_from_slice(&[0, 5]);
        }
        frame.extend_from_slice(&ethertype.to_be_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    const TCP_SYN: [u8; 20] = [0xc7, 0x38, 0x01, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0, 0, 0, 0, 0, 0];

    fn flow(bytes: &[u8]) -> Result<Parsed, Skip> {
        parse(bytes, Link::Ethernet)
    }

    #[test]
    fn ipv4_tcp_with_options_and_vlan_stacks() {
        for (tags, options) in [(&[][..], 0), (&[0x8100][..], 4), (&[0x88a8, 0x8100][..], 40)] {
            let parsed = flow(&ethernet(tags, 0x0800, &v4(6, 0x4000, options, &TCP_SYN))).unwrap();
            assert_eq!(parsed.key.src_ip(), IpAddr::from([192, 0, 2, 1]));
            assert_eq!(parsed.key.dst_ip(), IpAddr::from([198, 51, 100, 7]));
            assert_eq!((parsed.key.src_port(), parsed.key.dst_port()), (51000, 443));
            assert_eq!((parsed.key.proto(), parsed.key.class(), parsed.tcp_flags), (6, 0, 0x02));
        }
        assert_eq!(flow(&ethernet(&[0x8100; VLAN_TAGS_MAX + 1], 0x0800, &[])), Err(Skip::VlanDepth));
    }

    #[test]
    fn later_fragments_have_no_ports_and_say_so() {
        let first = flow(&ethernet(&[], 0x0800, &v4(17, 0x2000, 0, &TCP_SYN))).unwrap();
        assert_eq!((first.key.src_port(), first.key.class()), (51000, 0));
        let later = flow(&ethernet(&[], 0x0800, &v4(17, 0x0001, 0, &TCP_SYN))).unwrap();
        assert_eq!((later.key.src_port(), later.key.class()), (0, class::FRAGMENT));
        let header = |offset: u16| {
            let mut payload = vec![17, 0, 0, 0, 0, 0, 0, 1];
            payload[2..4].copy_from_slice(&(offset << 3 | 1).to_be_bytes());
            payload.extend_from_slice(&TCP_SYN);
            flow(&ethernet(&[], 0x86dd, &v6(44, &payload))).unwrap().key
        };
        assert_eq!((header(0).dst_port(), header(0).class(), header(0).proto()), (443, class::V6, 17));
        assert_eq!((header(7).dst_port(), header(7).class(), header(7).proto()), (0, class::V6 | class::FRAGMENT, 17));
    }

    #[test]
    fn ipv6_extension_headers_are_walked_up_to_the_limit() {
        let chain = |depth: usize| {
            let mut payload = Vec::new();
            for i in 0..depth {
                payload.extend_from_slice(&[if i + 1 == depth { 6 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
            }
            payload.extend_from_slice(&TCP_SYN);
            flow(&ethernet(&[], 0x86dd, &v6(if depth == 0 { 6 } else { 0 }, &payload)))
        };
        for depth in 0..=EXTENSION_HEADERS_MAX {
            let key = chain(depth).unwrap().key;
            assert_eq!((key.proto(), key.src_port(), key.is_v6()), (6, 51000, true), "{depth}");
        }
        assert_eq!(chain(EXTENSION_HEADERS_MAX + 1), Err(Skip::ExtensionDepth));
        // Authentication header of 24 bytes: payload length 4.
        let mut payload = vec![6, 4];
        payload.resize(24, 0);
        payload.extend_from_slice(&TCP_SYN);
        assert_eq!(flow(&ethernet(&[], 0x86dd, &v6(51, &payload))).unwrap().key.src_port(), 51000);
    }

    #[test]
    fn every_other_protocol_is_still_counted() {
        let icmp = flow(&ethernet(&[], 0x0800, &v4(1, 0, 0, &[8, 0]))).unwrap().key;
        assert_eq!((icmp.proto(), icmp.src_port(), icmp.dst_port()), (1, 8, 0));
        let unreachable = flow(&ethernet(&[], 0x86dd, &v6(58, &[1, 4]))).unwrap().key;
        assert_eq!((unreachable.proto(), unreachable.src_port(), unreachable.dst_port()), (58, 1, 4));
        let ospf = flow(&ethernet(&[], 0x0800, &v4(89, 0, 0, &[]))).unwrap().key;
        assert_eq!((ospf.proto(), ospf.src_port(), ospf.class()), (89, 0, 0));
        let short = flow(&ethernet(&[], 0x0800, &v4(6, 0, 0, &[1, 2, 3]))).unwrap().key;
        assert_eq!((short.proto(), short.src_port(), short.class()), (6, 0, class::NO_TRANSPORT));
        let no_next = flow(&ethernet(&[], 0x86dd, &v6(59, &[]))).unwrap().key;
        assert_eq!((no_next.proto(), no_next.class()), (59, class::V6));
        let mobility = flow(&ethernet(&[], 0x86dd, &v6(135, &[59, 0, 0, 0, 0, 0, 0, 0]))).unwrap().key;
        assert_eq!(mobility.proto(), 135);
        let nothing = flow(&ethernet(&[], 0x86dd, &v6(60, &[59, 0, 1, 4, 0, 0, 0, 0]))).unwrap().key;
        assert_eq!(nothing.proto(), 59);
    }

    #[test]
    fn every_skip_has_its_reason() {
        let good = v4(6, 0, 4, &TCP_SYN);
        let mut bad_version = good.clone();
        bad_version[0] = 0x65;
        let mut bad_length = good.clone();
        bad_length[0] = 0x44;
        for (ethertype, payload, reason) in [
            (0x0806, &[][..], Skip::Arp),
            (0x88cc, &[], Skip::Lldp),
            (0x0026, &[], Skip::Llc),
            (0x8847, &[], Skip::Mpls),
            (0x8864, &[], Skip::Pppoe),
            (0x88e5, &[], Skip::Macsec),
            (0x9000, &[], Skip::NonIp),
            (0x8100, &[], Skip::TruncatedLink),
            (0x0800, &good[..23], Skip::TruncatedIp),
            (0x86dd, &good[..], Skip::BadIpHeader),
            (0x0800, &bad_version, Skip::BadIpHeader),
            (0x0800, &bad_length, Skip::BadIpHeader),
            (0x86dd, &v6(0, &[6]), Skip::TruncatedIp),
        ] {
            assert_eq!(flow(&ethernet(&[], ethertype, payload)), Err(reason), "{ethertype:#06x}");
        }
        assert_eq!(flow(&[0; 13]), Err(Skip::TruncatedLink));
        assert_eq!(parse(&good[..], Link::Other), Err(Skip::LinkType));
    }

    #[test]
    fn every_link_type_finds_the_same_flow() {
        let ip = v4(6, 0, 0, &TCP_SYN);
        let ip6 = v6(6, &TCP_SYN);
        let behind = |header: &[u8], ip: &[u8]| [header, ip].concat();
        let mut sll = vec![0; 16];
        sll[14] = 8;
        let mut sll2 = vec![0; 20];
        sll2[0] = 8;
        let expected = flow(&ethernet(&[], 0x0800, &ip)).unwrap();
        for (link, bytes) in [
            (Link::RawIp, ip.clone()),
            (Link::Loopback, behind(&[2, 0, 0, 0], &ip)),
            (Link::Loopback, behind(&[0, 0, 0, 2], &ip)),
            (Link::Sll, behind(&sll, &ip)),
            (Link::Sll2, behind(&sll2, &ip)),
            (Link::Ppp, behind(&[0xff, 0x03, 0, 0x21], &ip)),
            (Link::Ppp, behind(&[0, 0x21], &ip)),
        ] {
            assert_eq!(parse(&bytes[..], link), Ok(expected), "{link:?}");
        }
        let expected6 = flow(&ethernet(&[], 0x86dd, &ip6)).unwrap();
        assert_eq!(parse(&ip6[..], Link::RawIp), Ok(expected6));
        assert_eq!(parse(&behind(&[0, 0, 0, 30], &ip6)[..], Link::Loopback), Ok(expected6));
        for (code, link) in Link::ALL.into_iter().enumerate() {
            assert_eq!((Link::from_code(code as u8), link as usize), (link, code));
        }
    }

    #[test]
    fn no_truncation_and_no_bit_flip_panics() {
        let frame = ethernet(&[0x8100], 0x86dd, &v6(0, &[&[44, 0, 1, 4, 0, 0, 0, 0][..], &[6; 40]].concat()));
        for end in 0..=frame.len() {
            for link in Link::ALL {
                let _ = parse(&frame[..end], link);
            }
        }
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = flow(&flipped);
        }
    }

    #[test]
    fn nothing_beyond_the_reach_is_read() {
        let mut packet = ethernet(&[], 0x86dd, &v6(60, &[]));
        // A destination-options header of 512 bytes: TCP behind it is out of reach.
        packet.extend_from_slice(&[6, 63]);
        packet.resize(14 + 40 + 512, 0);
        packet.extend_from_slice(&TCP_SYN);
        let key = flow(&packet).unwrap().key;
        assert_eq!((key.proto(), key.src_port(), key.class()), (6, 0, class::V6 | class::NO_TRANSPORT));
    }
}
