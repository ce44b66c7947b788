//! Builds frames by hand, byte by byte, including frames that no network stack would send.

use std::net::{Ipv4Addr, Ipv6Addr};

use weir_tests::traffic::checksum;

/// The source of every IPv4 packet.
pub const SRC4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The IPv4 destination.
pub const DST4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// The source of every IPv6 packet.
pub const SRC6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// The IPv6 destination.
pub const DST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 2);
/// The source port of every packet with ports.
pub const SRC_PORT: u16 = 51_000;
/// The destination port.
pub const DST_PORT: u16 = 443;

/// The TOS byte of every packet: expedited forwarding, and a mark of ECN.
pub const TOS: u8 = 0xb9;

/// `EtherType`s.
pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;

/// An Ethernet frame with a tag of each of these types before its `EtherType`; not padded.
pub fn ethernet(tags: &[u16], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    for (nth, tag) in tags.iter().enumerate() {
        frame.extend_from_slice(&tag.to_be_bytes());
        frame.extend_from_slice(&(nth as u16 + 1).to_be_bytes());
    }
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// An IPv4 packet with `options` bytes of options; `fragment` holds flags and offset.
pub fn ipv4(proto: u8, fragment: u16, options: usize, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20 + options];
    packet[0] = 0x40 | (packet.len() / 4) as u8;
    packet[1] = TOS;
    let total = packet.len() + payload.len();
    packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[8] = 64;
    packet[9] = proto;
    packet[12..16].copy_from_slice(&SRC4.octets());
    packet[16..20].copy_from_slice(&DST4.octets());
    packet[20..].fill(1);
    let checksum = checksum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// An IPv6 packet.
pub fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 8];
    // The lowest bits are the flow label's.
    packet[..4].copy_from_slice(&[0x60 | TOS >> 4, TOS << 4 | 0x0a, 0x5a, 0x5a]);
    packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    packet[6] = next;
    packet[7] = 64;
    packet.extend_from_slice(&SRC6.octets());
    packet.extend_from_slice(&DST6.octets());
    packet.extend_from_slice(payload);
    packet
}

/// An IPv6 extension header of `units` times eight bytes, full of padding, before a header of type `next`.
pub fn extension(next: u8, units: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0; usize::from(units) * 8];
    header[0] = next;
    header[1] = units - 1;
    header.extend_from_slice(rest);
    header
}

/// `depth` extension headers of type `kind`, then a header of type `next`; returns also the type of the first header.
pub fn chain(kind: u8, depth: usize, next: u8, rest: &[u8]) -> (u8, Vec<u8>) {
    (0..depth).fold((next, rest.to_vec()), |(next, rest), _| (kind, extension(next, 1, &rest)))
}

/// An authentication header of 24 bytes (RFC 4302 section 2.2).
pub fn authentication(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 24];
    header[..2].copy_from_slice(&[next, 4]);
    header.extend_from_slice(rest);
    header
}

/// A fragment header (RFC 8200 section 4.5) with the offset in units of eight bytes.
pub fn fragment(next: u8, offset: u16, more: bool, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![next, 0, 0, 0, 0, 0, 0, 9];
    header[2..4].copy_from_slice(&(offset << 3 | u16::from(more)).to_be_bytes());
    header.extend_from_slice(rest);
    header
}

/// `depth` MPLS labels (RFC 3032 section 2.1); the last one is the bottom of the stack.
pub fn labels(depth: usize, rest: &[u8]) -> Vec<u8> {
    let mut stack: Vec<_> = (1..=depth).flat_map(|nth| [0, 6, 0x40 | u8::from(nth == depth), 64]).collect();
    stack.extend_from_slice(rest);
    stack
}

/// PPP over Ethernet (RFC 2516 section 4) with this code, and the PPP protocol.
pub fn pppoe(code: u8, protocol: u16, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0x11, code, 0, 7];
    header.extend_from_slice(&(rest.len() as u16 + 2).to_be_bytes());
    header.extend_from_slice(&protocol.to_be_bytes());
    header.extend_from_slice(rest);
    header
}

/// A TCP header with these flags.
pub fn tcp(flags: u8) -> Vec<u8> {
    let mut header = ports(20);
    header[12] = 0x50;
    header[13] = flags;
    header
}

/// `bytes` bytes that begin with the two ports, as TCP, UDP, SCTP, DCCP and UDP-Lite do.
pub fn ports(bytes: usize) -> Vec<u8> {
    let mut header = vec![0x5a; bytes];
    header[..2].copy_from_slice(&SRC_PORT.to_be_bytes());
    header[2..4].copy_from_slice(&DST_PORT.to_be_bytes());
    header
}
