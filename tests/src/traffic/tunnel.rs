//! Tunnels around packets: for each kind of tunnel its header, as specified, and the flow key of the tunnel itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{flow::proto, frame::checksum, random::Random};
use crate::truth::{Key, Lacks};

const ETHERNET: usize = 14;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_ETHERNET: u16 = 0x6558;
const TYPE_MPLS: u16 = 0x8847;

/// A kind of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tunnel {
    /// IP in IP (RFC 2003, RFC 2473, RFC 4213): protocol 4 or 41.
    Ip,
    /// GRE with any of checksum, key and sequence number (RFC 2784, RFC 2890).
    Gre,
    /// NVGRE (RFC 7637).
    Nvgre,
    /// ERSPAN type I (draft-foschiano-erspan-03).
    ErspanI,
    /// ERSPAN type II.
    ErspanII,
    /// ERSPAN type III, with or without a subheader.
    ErspanIII,
    /// MPLS over GRE (RFC 4023).
    MplsOverGre,
    /// MPLS in IP (RFC 4023).
    Mpls,
    /// Ethernet in IP (RFC 8986).
    Ethernet,
    /// VXLAN (RFC 7348).
    Vxlan,
    /// VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe-13).
    VxlanGpe,
    /// Geneve with up to 32 bytes of options (RFC 8926).
    Geneve,
    /// GTP-U with or without sequence number and extension headers (3GPP TS 29.281).
    GtpU,
}

impl Tunnel {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Ip,
        Self::Gre,
        Self::Nvgre,
        Self::ErspanI,
        Self::ErspanII,
        Self::ErspanIII,
        Self::MplsOverGre,
        Self::Mpls,
        Self::Ethernet,
        Self::Vxlan,
        Self::VxlanGpe,
        Self::Geneve,
        Self::GtpU,
    ];

    /// An untagged Ethernet frame with the tunnel in it and `inner` in the tunnel, and the tunnel's own key.
    ///
    /// `inner` is an untagged Ethernet frame, too; tunnels that carry IP drop its Ethernet header.
    pub fn wrap(self, random: &mut Random, inner: &[u8]) -> (Vec<u8>, Key) {
        let ip = &inner[ETHERNET..];
        let v6 = inner[12..14] == TYPE_IPV6.to_be_bytes();
        let ip_type = if v6 { TYPE_IPV6 } else { TYPE_IPV4 };
        match self {
            Self::Ip => outer(random, if v6 { 41 } else { 4 }, ip),
            Self::Mpls => outer(random, 137, &[&label()[..], ip].concat()),
            Self::Ethernet => outer(random, 143, inner),
            Self::Gre => {
                let header = gre(random, ip_type);
                outer(random, proto::GRE, &[&header[..], ip].concat())
            }
            Self::MplsOverGre => {
                let header = gre(random, TYPE_MPLS);
                outer(random, proto::GRE, &[&header[..], &label(), ip].concat())
            }
            // The first 24 bits of the key are the virtual subnet.
            Self::Nvgre => outer(random, proto::GRE, &[&[0x20, 0, 0x65, 0x58, 0, 0, 7, 0][..], inner].concat()),
            Self::ErspanI => outer(random, proto::GRE, &[&[0, 0, 0x88, 0xbe][..], inner].concat()),
            Self::ErspanII => {
                let header = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 5, 0, 9, 0, 0, 0, 3];
                outer(random, proto::GRE, &[&header[..], inner].concat())
            }
            Self::ErspanIII => {
                let subheader = random.chance(0.5);
                let mut header = vec![0x10, 0, 0x22, 0xeb, 0, 0, 0, 1];
                header.extend([0x20, 5, 0, 9, 1, 2, 3, 4, 0, 0, 0x80, u8::from(subheader)]);
                header.resize(header.len() + if subheader { 8 } else { 0 }, 0x5a);
                outer(random, proto::GRE, &[&header[..], inner].concat())
            }
            Self::Vxlan => {
                let port = random.pick(&[4789, 8472]);
                udp(random, port, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], inner].concat())
            }
            Self::VxlanGpe => {
                let (next, payload) = if random.chance(0.5) { (3, inner) } else { (if v6 { 2 } else { 1 }, ip) };
                udp(random, 4790, &[&[0x0c, 0, 0, next, 0, 0, 7, 0][..], payload].concat())
            }
            Self::Geneve => {
                let words = random.between(0, 8);
                let (kind, payload) = if random.chance(0.5) { (TYPE_ETHERNET, inner) } else { (ip_type, ip) };
                let [high, low] = kind.to_be_bytes();
                let mut header = vec![words as u8, 0, high, low, 0, 0, 7, 0];
                header.resize(8 + 4 * words, 0x5a);
                udp(random, 6081, &[&header[..], payload].concat())
            }
            Self::GtpU => {
                let header = gtp_u(random);
                udp(random, 2152, &[&header[..], ip].concat())
            }
        }
    }
}

fn gre(random: &mut Random, kind: u16) -> Vec<u8> {
    let flags = [0x8000, 0x2000, 0x1000].map(|flag: u16| if random.chance(0.5) { flag } else { 0 });
    let present = flags.iter().filter(|flag| **flag != 0).count();
    let mut header = flags.iter().sum::<u16>().to_be_bytes().to_vec();
    header.extend(kind.to_be_bytes());
    header.resize(header.len() + 4 * present, 0x5a);
    header
}

/// TS 29.281 section 5: if any flag is set, the header has four more bytes; the last one is the type of the first
/// extension header. Each extension header begins with its length in units of four bytes and ends with the next type.
fn gtp_u(random: &mut Random) -> Vec<u8> {
    const PDU_SESSION_CONTAINER: u8 = 0x85;
    let (extensions, sequence) = (random.between(0, 4), random.chance(0.5));
    let flags = 0x30 | if extensions > 0 { 0x04 } else { 0 } | if sequence { 0x02 } else { 0 };
    let mut header = vec![flags, 255, 0, 0, 0, 0, 0, 7];
    if flags != 0x30 {
        header.extend([0, 1, 0, if extensions > 0 { PDU_SESSION_CONTAINER } else { 0 }]);
    }
    for left in (0..extensions).rev() {
        let units = random.between(1, 3);
        let mut extension = vec![0x5a; 4 * units];
        extension[0] = units as u8;
        extension[4 * units - 1] = if left > 0 { PDU_SESSION_CONTAINER } else { 0 };
        header.extend(extension);
    }
    header
}

/// The only label of a stack.
const fn label() -> [u8; 4] {
    (100_u32 << 12 | 1 << 8 | 61).to_be_bytes()
}

fn udp(random: &mut Random, dst_port: u16, payload: &[u8]) -> (Vec<u8>, Key) {
    let src_port = random.between(49_152, 65_535) as u16;
    let mut datagram = src_port.to_be_bytes().to_vec();
    datagram.extend(dst_port.to_be_bytes());
    datagram.extend((payload.len() as u16 + 8).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    let (frame, key) = outer(random, proto::UDP, &datagram);
    (frame, Key { src_port, dst_port, ..key })
}

/// IP of either version between two tunnel ends; there are only a few ends.
fn outer(random: &mut Random, proto: u8, payload: &[u8]) -> (Vec<u8>, Key) {
    let mut frame = vec![2; 12];
    let (from, to) = (random.between(1, 250) as u8, random.between(1, 250) as u8);
    let (src, dst): (IpAddr, IpAddr) = if random.chance(0.5) {
        let (src, dst) = (Ipv4Addr::new(203, 0, 113, from), Ipv4Addr::new(198, 18, 0, to));
        let [high, low] = (20 + payload.len() as u16).to_be_bytes();
        frame.extend(TYPE_IPV4.to_be_bytes());
        frame.extend([0x45, 0, high, low, 0, 0, 0x40, 0, 61, proto, 0, 0]);
        frame.extend(src.octets());
        frame.extend(dst.octets());
        let checksum = checksum(&frame[ETHERNET..]);
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
        (src.into(), dst.into())
    } else {
        let end = |number: u8| Ipv6Addr::new(0x2001, 0xdb8, 0xaaaa, 0, 0, 0, 0, number.into());
        let [high, low] = (payload.len() as u16).to_be_bytes();
        frame.extend(TYPE_IPV6.to_be_bytes());
        frame.extend([0x60, 0, 0, 0, high, low, proto, 61]);
        frame.extend(end(from).octets());
        frame.extend(end(to).octets());
        (end(from).into(), end(to).into())
    };
    frame.extend(payload);
    (frame, Key { src, dst, src_port: 0, dst_port: 0, proto, lacks: Lacks::Nothing })
}
