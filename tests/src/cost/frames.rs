//! The packets whose cost is measured.

use weir_common::packet::{EXTENSION_HEADERS_MAX, MPLS_LABELS_MAX, VLAN_TAGS_MAX};

/// Addresses and ports do not affect the time, so every packet has the same ones.
const MACS: [u8; 12] = [2, 0x77, 0, 0, 0, 1, 2, 0x77, 0, 0, 0, 2];
const PORTS: [u8; 4] = [0xc0, 0x01, 0x01, 0xbb];
const FRAME_MIN: usize = 60;

const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const DESTINATION_OPTIONS: u8 = 60;

/// A minimal TCP segment over IPv4.
pub fn tcp_v4() -> Vec<u8> {
    tagged_v4(&[])
}

/// Returns the IPv4 packet with these VLAN tags.
pub fn tagged_v4(tags: &[u16]) -> Vec<u8> {
    frame(tags, IPV4, &[&packet_v4()])
}

/// A minimal UDP datagram over IPv6.
pub fn udp_v6() -> Vec<u8> {
    tagged_v6(&[])
}

/// Returns the IPv6 packet with these VLAN tags.
pub fn tagged_v6(tags: &[u16]) -> Vec<u8> {
    frame(tags, IPV6, &[&ipv6(UDP, 8), &udp(PORTS, 0)])
}

/// The TCP segment in a session of PPP over Ethernet.
pub fn session_v4() -> Vec<u8> {
    let packet = packet_v4();
    let [high, low] = (2 + packet.len() as u16).to_be_bytes();
    frame(&[], 0x8864, &[&[0x11, 0, 0, 7, high, low, 0, 0x21], &packet])
}

/// The TCP segment in a GRE tunnel over IPv4.
pub fn gre_v4() -> Vec<u8> {
    let inner = [&[0, 0, 8, 0][..], &packet_v4()].concat();
    frame(&[], IPV4, &[&ipv4(GRE, inner.len() as u16), &inner])
}

/// The TCP segment in a VXLAN tunnel over IPv4.
pub fn vxlan_v4() -> Vec<u8> {
    let inner = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &tcp_v4()].concat();
    let udp = udp([0xc0, 0x01, 0x12, 0xb5], inner.len() as u16);
    frame(&[], IPV4, &[&ipv4(UDP, 8 + inner.len() as u16), &udp, &inner])
}

/// The deepest packet that the parser reads: all VLAN tags, PPP over Ethernet, and all MPLS labels and extension
/// headers that it follows.
pub fn deepest() -> Vec<u8> {
    let tags: Vec<_> = (1..=VLAN_TAGS_MAX as u16).collect();
    let mut chain = Vec::new();
    for depth in 1..=EXTENSION_HEADERS_MAX {
        let next = if depth == EXTENSION_HEADERS_MAX { UDP } else { DESTINATION_OPTIONS };
        chain.extend([next, 0, 1, 4, 0, 0, 0, 0]); // one option, of padding (RFC 8200 section 4.2)
    }
    let payload = chain.len() as u16 + 8;
    let packet = [ipv6(DESTINATION_OPTIONS, payload), chain, udp(PORTS, 0)].concat();
    let labels: Vec<_> = (1..=MPLS_LABELS_MAX).flat_map(|nth| [0, 1, u8::from(nth == MPLS_LABELS_MAX), 64]).collect();
    let length = (2 + labels.len() + packet.len()) as u16;
    let [high, low] = length.to_be_bytes();
    frame(&tags, 0x8864, &[&[0x11, 0, 0, 7, high, low, 0x02, 0x81], &labels, &packet])
}

/// Returns an ARP request.
pub fn arp() -> Vec<u8> {
    frame(&[], 0x0806, &[&[0, 1, 8, 0, 6, 4, 0, 1], &[0; 20]])
}

fn frame(tags: &[u16], ethertype: u16, parts: &[&[u8]]) -> Vec<u8> {
    let mut frame = MACS.to_vec();
    for tag in tags {
        frame.extend(0x8100_u16.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(parts.concat());
    frame.resize(frame.len().max(FRAME_MIN), 0);
    frame
}

fn packet_v4() -> Vec<u8> {
    [ipv4(TCP, 20), tcp()].concat()
}

fn ipv4(proto: u8, payload: u16) -> Vec<u8> {
    let [high, low] = (20 + payload).to_be_bytes();
    vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, proto, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]
}

fn ipv6(next: u8, payload: u16) -> Vec<u8> {
    let [high, low] = payload.to_be_bytes();
    let mut header = vec![0x60, 0, 0, 0, high, low, next, 64];
    header.extend([0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    header.extend([0x20, 1, 0x0d, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    header
}

fn tcp() -> Vec<u8> {
    let mut header = PORTS.to_vec();
    header.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    header
}

fn udp(ports: [u8; 4], payload: u16) -> Vec<u8> {
    let [high, low] = (8 + payload).to_be_bytes();
    [&ports[..], &[high, low, 0, 0]].concat()
}

#[cfg(test)]
mod tests {
    use weir_common::{
        ledger::Skip,
        packet::{Link, Tunnels, parse},
    };

    use super::*;

    #[test]
    fn each_packet_is_what_it_is_called() {
        let found = |frame: Vec<u8>, tunnels| {
            parse(&frame[..], Link::Ethernet, tunnels)
                .map(|parsed| (parsed.key.proto(), parsed.key.dst_port(), parsed.vlan))
        };
        let outer = |frame| found(frame, Tunnels::Outer);
        assert_eq!(outer(tcp_v4()), Ok((TCP, 443, 0)));
        assert_eq!(outer(udp_v6()), Ok((UDP, 443, 0)));
        assert_eq!(outer(tagged_v4(&[5, 6])), Ok((TCP, 443, 5)));
        assert_eq!(outer(tagged_v6(&[5])), Ok((UDP, 443, 5)));
        assert_eq!(outer(session_v4()), Ok((TCP, 443, 0)));
        assert_eq!(outer(deepest()), Ok((UDP, 443, 1)));
        assert_eq!(outer(arp()), Err(Skip::Arp));
        for (frame, proto) in [(gre_v4(), GRE), (vxlan_v4(), UDP)] {
            assert_eq!(outer(frame.clone()).map(|(proto, ..)| proto), Ok(proto));
            assert_eq!(found(frame, Tunnels::Inner), Ok((TCP, 443, 0)));
        }
    }
}
