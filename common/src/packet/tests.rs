use super::*;
use crate::flow::class;
use core::net::IpAddr;
use std::{vec, vec::Vec};

mod merged;
mod tunnels;

fn v4(proto: u8, fragment: u16, options: usize, transport: &[u8]) -> Vec<u8> {
    let mut ip = vec![0; 20 + options];
    ip[0] = 0x40 | (5 + options / 4) as u8;
    ip[6..8].copy_from_slice(&fragment.to_be_bytes());
    ip[9] = proto;
    ip[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 7]);
    let total = (ip.len() + transport.len()) as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    with_checksum(&mut ip);
    ip.extend_from_slice(transport);
    ip
}

/// Gives an IPv4 header its checksum (RFC 1071).
fn with_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let words = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0; 40];
    ip[0] = 0x60;
    ip[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    ip[6] = next;
    ip[8] = 0x20;
    ip[23] = 1;
    ip[24] = 0x20;
    ip[39] = 2;
    ip.extend_from_slice(payload);
    ip
}

/// The VLAN of every tag.
const TAG: u16 = 5;

fn ethernet(tags: &[u16], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for tag in tags {
        frame.extend_from_slice(&tag.to_be_bytes());
        frame.extend_from_slice(&TAG.to_be_bytes());
    }
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

const TCP_SYN: [u8; 20] = [0xc7, 0x38, 0x01, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0, 0, 0, 0, 0, 0];

/// The parser's result, with and without the fast path.
fn both(bytes: &[u8], link: Link, tunnels: Tunnels) -> Result<Parsed, Skip> {
    let parsed = parse(bytes, link, tunnels);
    assert_eq!(parsed, walk(bytes, link, tunnels), "{bytes:02x?}");
    parsed
}

fn flow(bytes: &[u8]) -> Result<Parsed, Skip> {
    both(bytes, Link::Ethernet, Tunnels::Outer)
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
    for tags in 0..=VLAN_TAGS_MAX {
        for tag in [0x8100, 0x88a8, 0x9100] {
            let parsed = flow(&ethernet(&vec![tag; tags], 0x0800, &v4(6, 0, 0, &TCP_SYN))).unwrap();
            assert_eq!(parsed.key.dst_port(), 443, "{tags} tags of {tag:#x}");
        }
    }
    assert_eq!(flow(&ethernet(&[0x8100; VLAN_TAGS_MAX + 1], 0x0800, &[])), Err(Skip::VlanDepth));
}

#[test]
fn tos_is_the_byte_that_the_ip_header_has() {
    for tos in [0, 0x01, 0x02, 0x03, 0x10, 0xb8, 0xb9, 0xfc, 0xff] {
        for (tags, options) in [(&[][..], 0), (&[][..], 4), (&[0x8100][..], 0)] {
            let mut ip4 = v4(6, 0, options, &TCP_SYN);
            ip4[1] = tos;
            assert_eq!(flow(&ethernet(tags, 0x0800, &ip4)).map(|parsed| parsed.tos), Ok(tos));
            for proto in [17, 1, 47] {
                ip4[9] = proto;
                assert_eq!(flow(&ethernet(tags, 0x0800, &ip4)).map(|parsed| parsed.tos), Ok(tos), "{proto}");
            }
            ip4[6] = 0x20;
            assert_eq!(flow(&ethernet(tags, 0x0800, &ip4)).map(|parsed| parsed.tos), Ok(tos), "a piece");
        }
        for (tags, next) in
            [(&[][..], 6), (&[][..], 17), (&[0x8100][..], 6), (&[][..], 58), (&[][..], 0), (&[][..], 44)]
        {
            // After a header of eight bytes, or a fragment header: the first byte says TCP.
            let mut ip6 = v6(next, &[&[6, 0, 1, 4, 0, 0, 0, 0][..], &TCP_SYN].concat());
            // The lower half of the second byte belongs to the flow label, whose bits are all set.
            ip6[0] |= tos >> 4;
            ip6[1..4].copy_from_slice(&[tos << 4 | 0x0f, 0xff, 0xff]);
            assert_eq!(flow(&ethernet(tags, 0x86dd, &ip6)).map(|parsed| parsed.tos), Ok(tos), "{next}");
        }
    }
}

#[test]
fn the_vlan_is_the_outermost_tags_without_its_priority() {
    for ip in [v4(6, 0, 0, &TCP_SYN), v6(17, &TCP_SYN), v4(6, 0x2000, 0, &TCP_SYN), v4(47, 0, 8, &TCP_SYN)] {
        let ethertype = if ip[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        assert_eq!(flow(&ethernet(&[], ethertype, &ip)).map(|parsed| parsed.vlan), Ok(0), "no tag");
        for stack in [&[0x8100][..], &[0x88a8, 0x8100], &[0x9100, 0x8100], &[0x8100; VLAN_TAGS_MAX]] {
            for (control, vlan) in [(0x0005, 5), (0xffff, 4095), (0xe000, 0), (0x1001, 1), (0x0ffe, 4094)] {
                let mut frame = ethernet(stack, ethertype, &ip);
                frame[14..16].copy_from_slice(&u16::to_be_bytes(control));
                assert_eq!(flow(&frame).map(|parsed| parsed.vlan), Ok(vlan), "{control:#06x} of {stack:04x?}");
                // Cooked: the protocol at 14, the packet at 16.
                let cooked = [&[0; 2], &frame[..]].concat();
                assert_eq!(both(&cooked, Link::Sll, Tunnels::Outer).map(|parsed| parsed.vlan), Ok(vlan));
            }
        }
    }
    assert_eq!(both(&v4(6, 0, 0, &TCP_SYN), Link::RawIp, Tunnels::Outer).map(|parsed| parsed.vlan), Ok(0));
}

#[test]
fn addresses_are_read_whole() {
    let octets: Vec<u8> = (1..=32).collect();
    let (mut ip4, mut ip6) = (v4(6, 0, 0, &TCP_SYN), v6(6, &TCP_SYN));
    ip4[12..20].copy_from_slice(&octets[..8]);
    ip6[8..40].copy_from_slice(&octets);
    let addresses = |ethertype, ip: &[u8]| {
        let key = flow(&ethernet(&[], ethertype, ip)).unwrap().key;
        assert_eq!(key, flow(&ethernet(&[0x8100], ethertype, ip)).unwrap().key, "behind a tag");
        (key.src_ip(), key.dst_ip())
    };
    assert_eq!(addresses(0x0800, &ip4), (IpAddr::from([1, 2, 3, 4]), IpAddr::from([5, 6, 7, 8])));
    let half = |first: u8| IpAddr::from(core::array::from_fn::<u8, 16, _>(|at| first + at as u8));
    assert_eq!(addresses(0x86dd, &ip6), (half(1), half(17)));
}

#[test]
fn the_short_cut_takes_the_common_packets_and_no_others() {
    let takes = |frame: &[u8], tunnels| {
        let short = common(frame, tunnels, |parsed| parsed);
        assert!(short.is_none() || short == Some(walk(frame, Link::Ethernet, tunnels)), "{frame:02x?}");
        short.is_some()
    };
    let udp = |port: u16| {
        let mut udp = TCP_SYN;
        udp[2..4].copy_from_slice(&port.to_be_bytes());
        udp
    };
    let (https, vxlan) = (udp(443), udp(4789));
    let (packet_v4, packet_v6) = (v4(6, 0, 0, &[0; 34]), v6(6, &TCP_SYN));
    for (tunnels, tags) in
        [(Tunnels::Outer, &[][..]), (Tunnels::Inner, &[]), (Tunnels::Outer, &[0x8100]), (Tunnels::Inner, &[0x8100])]
    {
        let v4 = |proto, fragment, options, transport: &[u8]| {
            takes(&ethernet(tags, 0x0800, &v4(proto, fragment, options, transport)), tunnels)
        };
        let v6 = |next, payload: &[u8]| takes(&ethernet(tags, 0x86dd, &v6(next, payload)), tunnels);
        assert!(v4(6, 0, 0, &TCP_SYN) && v4(17, 0, 0, &https) && v4(6, 0x4000, 0, &TCP_SYN));
        assert!(v6(6, &TCP_SYN[..14]) && v6(17, &https[..4]));
        assert!(v4(6, 0, 0, &vxlan) && v6(6, &vxlan), "TCP is no tunnel");
        let is_outer = tunnels == Tunnels::Outer;
        assert_eq!((v4(17, 0, 0, &vxlan), v6(17, &vxlan)), (is_outer, is_outer));
        assert!(!v4(6, 0, 0, &TCP_SYN[..19]) && !v6(6, &TCP_SYN[..13]) && !v6(17, &https[..3]), "cut short");
        assert!(!v4(6, 0x2000, 0, &TCP_SYN) && !v4(6, 1, 0, &TCP_SYN), "a piece");
        assert!(!v4(6, 0, 4, &TCP_SYN) && !v6(0, &TCP_SYN), "options");
        assert!(!v4(1, 0, 0, &TCP_SYN) && !v6(58, &TCP_SYN), "neither TCP nor UDP");
        let other = |ethertype, packet: &[u8]| takes(&ethernet(tags, ethertype, packet), tunnels);
        assert!(!other(0x0800, &packet_v6), "another version");
        assert!(!other(0x86dd, &packet_v4), "another version");
    }
    for tags in [&[0x88a8][..], &[0x9100], &[0x8926], &[0x8100, 0x8100], &[0x88a8, 0x8100]] {
        assert!(!takes(&ethernet(tags, 0x0800, &v4(6, 0, 0, &TCP_SYN)), Tunnels::Outer), "{tags:x?}");
    }
    for content in [0xf005_u16, 0xf000, 0x0fff, 0] {
        let mut frame = ethernet(&[0x8100], 0x0800, &v4(6, 0, 0, &TCP_SYN));
        frame[14..16].copy_from_slice(&content.to_be_bytes());
        assert!(takes(&frame, Tunnels::Outer), "a priority beside VLAN {content:#x}");
        assert!((0..58).all(|end| !takes(&frame[..end], Tunnels::Outer)), "cut off");
    }
}

#[test]
fn all_pieces_of_a_packet_share_a_key_without_ports() {
    let v4 = |fragment| flow(&ethernet(&[], 0x0800, &v4(6, fragment, 0, &TCP_SYN))).unwrap();
    assert_eq!((v4(0x4000).key.src_port(), v4(0x4000).key.class()), (51000, 0), "not fragmented");
    for piece in [0x2000, 0x2001, 0x0001, 0x1fff] {
        assert_eq!(v4(piece), v4(0x2000), "{piece:#x}");
    }
    assert_eq!((v4(0x2000).key.src_port(), v4(0x2000).key.class(), v4(0x2000).tcp_flags), (0, class::FRAGMENT, 0));
    let v6 = |offset: u16, more: u16| {
        // The second byte is reserved; in other headers it is a length.
        let mut payload = vec![6, 9, 0, 0, 0, 0, 0, 1];
        payload[2..4].copy_from_slice(&(offset << 3 | more).to_be_bytes());
        payload.extend_from_slice(&TCP_SYN);
        flow(&ethernet(&[], 0x86dd, &v6(44, &payload))).unwrap()
    };
    assert_eq!((v6(0, 0).key.dst_port(), v6(0, 0).key.class(), v6(0, 0).tcp_flags), (443, class::V6, 2), "atomic");
    for (offset, more) in [(0, 1), (7, 1), (7, 0), (0x1fff, 0)] {
        assert_eq!(v6(offset, more), v6(0, 1));
    }
    let key = v6(0, 1).key;
    assert_eq!((key.src_port(), key.class(), key.proto()), (0, class::V6 | class::FRAGMENT, 6));
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
    // The others are in units of eight bytes, not counting the first.
    for header in [0, 43, 60, 135, 139, 140] {
        for units in [0, 1, 5] {
            let mut payload = vec![6, units];
            payload.resize(8 + 8 * usize::from(units), 0);
            payload.extend_from_slice(&TCP_SYN);
            let key = flow(&ethernet(&[], 0x86dd, &v6(header, &payload))).unwrap().key;
            assert_eq!((key.proto(), key.src_port(), key.dst_port()), (6, 51000, 443), "{header}, {units} units");
        }
    }
}

#[test]
fn a_header_at_the_end_of_the_chain_is_the_protocol() {
    for header in [135, 139, 140] {
        let key = flow(&ethernet(&[], 0x86dd, &v6(header, &[59, 0, 0, 0, 0, 0, 0, 0]))).unwrap().key;
        assert_eq!((key.proto(), key.src_port(), key.class()), (header, 0, class::V6));
        // Even if it is not the first.
        let chain = [header, 0, 1, 4, 0, 0, 0, 0, 59, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(flow(&ethernet(&[], 0x86dd, &v6(0, &chain))).unwrap().key, key);
    }
}

#[test]
fn ports_are_read_of_every_protocol_that_has_them_and_flags_of_tcp() {
    for (proto, flags) in [(6, 2), (17, 0), (33, 0), (132, 0), (136, 0)] {
        let parsed = flow(&ethernet(&[0x8100], 0x0800, &v4(proto, 0, 0, &TCP_SYN))).unwrap();
        assert_eq!((parsed.key.src_port(), parsed.key.dst_port(), parsed.tcp_flags), (51000, 443, flags), "{proto}");
        let cut = flow(&ethernet(&[], 0x0800, &v4(proto, 0, 0, &TCP_SYN[..4]))).unwrap();
        assert_eq!((cut.key.src_port(), cut.key.class(), cut.tcp_flags), (51000, 0, 0), "{proto} with its ports only");
        let none = flow(&ethernet(&[], 0x0800, &v4(proto, 0, 0, &[]))).unwrap();
        assert_eq!((none.key.src_port(), none.key.class()), (0, class::NO_TRANSPORT), "{proto} without a header");
    }
    for (version, proto) in [(4, 1), (6, 58)] {
        let icmp = |message: &[u8]| match version {
            4 => flow(&ethernet(&[], 0x0800, &v4(proto, 0, 0, message))).unwrap().key,
            _ => flow(&ethernet(&[], 0x86dd, &v6(proto, message))).unwrap().key,
        };
        assert_eq!((icmp(&[3, 4]).src_port(), icmp(&[3, 4]).dst_port()), (3, 4));
        assert_eq!(icmp(&[3]).class() & class::NO_TRANSPORT, class::NO_TRANSPORT);
    }
}

#[test]
fn what_is_behind_the_end_of_the_ip_packet_is_padding() {
    for (room, ports, flags) in [(0, 0, 0), (3, 0, 0), (4, 51000, 0), (13, 51000, 0), (14, 51000, 2), (20, 51000, 2)] {
        for proto in [6, 17] {
            let flags = if proto == 6 { flags } else { 0 };
            let mut ip4 = v4(proto, 0, 0, &TCP_SYN);
            ip4[2..4].copy_from_slice(&(20 + room as u16).to_be_bytes());
            // In IPv6, length 0 means a jumbogram.
            let mut ip6 = v6(proto, &TCP_SYN);
            ip6[4..6].copy_from_slice(&(room as u16).to_be_bytes());
            // After an extension header of eight bytes.
            let mut extended = v6(60, &[&[proto, 0, 1, 4, 0, 0, 0, 0][..], &TCP_SYN].concat());
            extended[4..6].copy_from_slice(&(8 + room as u16).to_be_bytes());
            for (ethertype, ip) in
                [(0x0800, ip4), (0x86dd, if room == 0 { extended.clone() } else { ip6 }), (0x86dd, extended)]
            {
                for tags in [&[][..], &[0x8100]] {
                    let parsed = flow(&ethernet(tags, ethertype, &ip)).unwrap();
                    let found = (parsed.key.src_port(), parsed.tcp_flags);
                    assert_eq!(found, (ports, flags), "{proto} with {room} bytes of {ethertype:#x}, {tags:?}");
                    assert_eq!(parsed.key.class() & class::NO_TRANSPORT != 0, ports == 0, "{proto}, {room} bytes");
                }
            }
        }
    }
    let mut cut = v6(60, &[6, 0, 1, 4, 0, 0, 0, 0]);
    cut[4..6].copy_from_slice(&7_u16.to_be_bytes());
    assert_eq!(flow(&ethernet(&[], 0x86dd, &cut)), Err(Skip::TruncatedIp), "an extension header in the padding");
    // A buffer that an offload merged has a length of 0.
    let mut merged = v4(6, 0, 0, &TCP_SYN);
    merged[2..4].fill(0);
    assert_eq!(flow(&ethernet(&[], 0x0800, &merged)).unwrap().key.dst_port(), 443);
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
        (0x05ff, &[], Skip::Llc),
        (0x0600, &[], Skip::NonIp),
        (0x8847, &[0, 1, 0x01, 64, 0, 0, 0, 0], Skip::Mpls),
        (0x8848, &[0, 1, 0x00, 64], Skip::TruncatedLink),
        (0x8847, &[0, 1, 0x01, 64], Skip::Mpls),
        (0x8847, &[0; 16], Skip::MplsDepth),
        (0x8863, &[0x11, 0x09, 0, 0, 0, 0], Skip::Pppoe),
        (0x8864, &[0x11, 0x01, 0, 0, 0, 0, 0, 0x21], Skip::Pppoe),
        (0x8864, &[0x11, 0, 0, 7, 0, 4, 0xc0, 0x21], Skip::Ppp),
        (0x8864, &[0x11, 0, 0, 7, 0, 4, 0], Skip::TruncatedLink),
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
    assert_eq!(both(&good, Link::Other, Tunnels::Outer), Err(Skip::LinkType));
    for (link, bytes, reason) in [
        (Link::RawIp, &[][..], Skip::TruncatedIp),
        (Link::RawIp, &[0x50; 40], Skip::BadIpHeader),
        (Link::Loopback, &[2, 0, 0], Skip::TruncatedLink),
        (Link::Loopback, &[7, 0, 0, 0, 0x45], Skip::NonIp),
        (Link::Sll, &[0; 15], Skip::TruncatedLink),
        (Link::Sll2, &[8], Skip::TruncatedLink),
        (Link::Ppp, &[0xff], Skip::TruncatedLink),
        (Link::Ppp, &[0xff, 0x03, 0], Skip::TruncatedLink),
        (Link::Ppp, &[0xc0, 0x21], Skip::Ppp),
    ] {
        assert_eq!(both(bytes, link, Tunnels::Outer), Err(reason), "{link:?} {bytes:02x?}");
    }
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
        (Link::Ppp, behind(&[0x21], &ip)),
        (Link::Ppp, behind(&[0xff, 0x03, 0x21], &ip)),
        // Cisco's HDLC.
        (Link::Ppp, behind(&[0x0f, 0, 0x08, 0], &ip)),
        (Link::Ppp, behind(&[0x8f, 0, 0x08, 0], &ip)),
        (Link::PppWithDirection, behind(&[0, 0x03, 0, 0x21], &ip)),
        (Link::PppWithDirection, behind(&[1, 0x03, 0x21], &ip)),
        (Link::PppWithDirection, behind(&[0, 0xff, 0x03, 0, 0x21], &ip)),
        (Link::PppWithDirection, behind(&[1, 0x21], &ip)),
        (Link::PppWithDirection, behind(&[1, 0, 0x21], &ip)),
        (Link::Pppoe, behind(&[0x11, 0, 0, 7, 0, 42, 0, 0x21], &ip)),
        (Link::Pppoe, behind(&[0x11, 0, 0, 7, 0, 41, 0x21], &ip)),
    ] {
        assert_eq!(both(&bytes, link, Tunnels::Outer), Ok(expected), "{link:?} {bytes:02x?}");
    }
    for (at, link) in [(2, Link::Sll), (8, Link::Sll2)] {
        // With these hardware types, the protocol is not an `EtherType`.
        for hardware in [770_u16, 801, 802, 803, 824] {
            let mut cooked = if link == Link::Sll { sll.clone() } else { sll2.clone() };
            cooked[at..at + 2].copy_from_slice(&hardware.to_be_bytes());
            assert_eq!(both(&behind(&cooked, &ip), link, Tunnels::Outer), Err(Skip::LinkType), "{link:?} {hardware}");
        }
    }
    for family in [[2, 0, 0, 2], [8, 0, 0, 2], [2, 1, 0, 0], [0, 0, 1, 2], [24, 0, 0, 4]] {
        assert_eq!(both(&behind(&family, &ip), Link::Loopback, Tunnels::Outer), Err(Skip::NonIp), "{family:?}");
    }
    let expected6 = flow(&ethernet(&[], 0x86dd, &ip6)).unwrap();
    assert_eq!(both(&ip6, Link::RawIp, Tunnels::Outer), Ok(expected6));
    for family in [10, 24, 28, 30] {
        for header in [[0, 0, 0, family], [family, 0, 0, 0]] {
            assert_eq!(both(&behind(&header, &ip6), Link::Loopback, Tunnels::Outer), Ok(expected6), "{header:?}");
        }
    }
    assert_eq!(both(&behind(&[0, 0x57], &ip6), Link::Ppp, Tunnels::Outer), Ok(expected6));
    for (code, link) in Link::ALL.into_iter().enumerate() {
        assert_eq!((Link::from_code(code as u8), link as usize), (link, code));
    }
}

/// Miri interprets about a thousand times slower, so only every fifth place.
const STEP: usize = if cfg!(miri) { 5 } else { 1 };

#[test]
fn no_truncation_and_no_bit_flip_panics() {
    let frame = ethernet(&[0x8100], 0x86dd, &v6(0, &[&[44, 0, 1, 4, 0, 0, 0, 0][..], &[6; 40]].concat()));
    for end in (0..=frame.len()).step_by(STEP) {
        for link in Link::ALL {
            for tunnels in [Tunnels::Outer, Tunnels::Inner] {
                let _ = both(&frame[..end], link, tunnels);
            }
        }
    }
    for bit in (0..frame.len() * 8).step_by(STEP) {
        let mut flipped = frame.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let _ = flow(&flipped);
    }
}

#[test]
fn windows_lie_within_the_packet_and_the_reach() {
    let packet: Vec<u8> = (0..=255).cycle().take(REACH_MAX + 100).collect();
    let bytes = packet.as_slice();
    let last = REACH_MAX - 4;
    assert_eq!(bytes.window::<4>(last).map(|window| window.be16::<2>()), Some(0xfeff));
    assert!(bytes.window::<4>(last + 1).is_none() && Bytes::u8(bytes, REACH_MAX).is_none());
    let short = &bytes[..10];
    assert!(short.window::<4>(6).is_some() && short.window::<4>(7).is_none() && short.window::<4>(11).is_none());
    assert!(Bytes::first::<10>(short).is_some() && Bytes::first::<11>(short).is_none());
    assert_eq!((Bytes::u8(short, 9), Bytes::be16(short, 8), Bytes::be16(short, 9)), (Some(9), Some(0x0809), None));
}

#[test]
fn nothing_beyond_the_reach_is_read() {
    let mut packet = ethernet(&[], 0x86dd, &v6(60, &[]));
    // A destination options header of 512 bytes: TCP after it is out of reach.
    packet.extend_from_slice(&[6, 63]);
    packet.resize(14 + 40 + 512, 0);
    packet.extend_from_slice(&TCP_SYN);
    let key = flow(&packet).unwrap().key;
    assert_eq!((key.proto(), key.src_port(), key.class()), (6, 0, class::V6 | class::NO_TRANSPORT));
}

#[test]
fn ip_behind_pppoe_and_mpls_is_found() {
    for (version, ip) in [(0x21, v4(6, 0, 0, &TCP_SYN)), (0x57, v6(6, &TCP_SYN))] {
        let expected = flow(&ethernet(&[], if version == 0x21 { 0x0800 } else { 0x86dd }, &ip));
        let session = [&[0x11, 0, 0, 7, 0, 42, 0, version][..], &ip].concat();
        let tagged = expected.map(|parsed| Parsed { vlan: TAG, ..parsed });
        assert_eq!(flow(&ethernet(&[0x8100], 0x8864, &session)), tagged);
        for labels in 1..=MPLS_LABELS_MAX {
            // All bits of the traffic class, which is next to the bottom bit.
            let mut stack = [0, 1, 0x0e, 64].repeat(labels);
            stack[labels * 4 - 2] |= 1;
            stack.extend_from_slice(&ip);
            for (ethertype, ppp) in [(0x8847, 0x81), (0x8848, 0x83)] {
                assert_eq!(flow(&ethernet(&[], ethertype, &stack)), expected, "{labels} labels");
                let session = [&[0x11, 0, 0, 7, 0, 42, 0x02, ppp][..], &stack].concat();
                assert_eq!(flow(&ethernet(&[], 0x8864, &session)), expected, "{labels} labels over PPP");
            }
        }
    }
}

#[test]
fn the_authentication_header_is_walked_over_ipv4_too() {
    let ah = [&[6, 4][..], &[0; 22], &TCP_SYN].concat();
    let key = flow(&ethernet(&[], 0x0800, &v4(51, 0, 0, &ah))).unwrap().key;
    assert_eq!((key.proto(), key.src_port()), (6, 51000));
    // IPv6's other extension headers are protocols in IPv4.
    let behind = [&[60, 4][..], &[0; 22], &TCP_SYN].concat();
    let key = flow(&ethernet(&[], 0x0800, &v4(51, 0, 0, &behind))).unwrap().key;
    assert_eq!((key.proto(), key.src_port()), (60, 0));
}

#[test]
fn tunnels_are_looked_into_when_asked_and_to_a_depth() {
    let inner = ethernet(&[0x8100], 0x86dd, &v6(6, &TCP_SYN));
    let vxlan = |inner: &[u8]| {
        let udp = [&[0x12, 0x34, 0x12, 0xb5, 0, 0, 0, 0][..], &[8, 0, 0, 0, 0, 0, 7, 0], inner].concat();
        ethernet(&[], 0x0800, &v4(17, 0, 0, &udp))
    };
    let look = |frame: &[u8]| both(frame, Link::Ethernet, Tunnels::Inner).unwrap();
    let (once, twice) = (vxlan(&inner), vxlan(&vxlan(&inner)));
    assert_eq!(flow(&once).unwrap().key.dst_port(), 4789);
    // The VLAN is that of the frame, which has none, not the one inside.
    let seen_inside = Parsed { vlan: 0, ..flow(&inner).unwrap() };
    assert_eq!(look(&once), seen_inside);
    assert_eq!(look(&twice), seen_inside);
    assert_eq!(look(&vxlan(&twice)), flow(&once).unwrap(), "the third is not looked into");
    let mut marked = once.clone();
    // The tunnel's TOS, and the traffic class of the packet inside.
    marked[15] = 0x28;
    marked[14 + 20 + 8 + 8 + 18] |= 0x0b;
    marked[14 + 20 + 8 + 8 + 18 + 1] = 0x8f;
    marked.splice(12..12, [0x81, 0, 0x0f, 0xfe]);
    assert_eq!(look(&marked), Parsed { tos: 0xb8, vlan: 4094, ..seen_inside });
    let outside = flow(&marked).unwrap();
    assert_eq!((outside.tos, outside.vlan), (0x28, 4094));
    // If the inner packet cannot be read, the tunnel's key stays.
    for end in 42..once.len() {
        let parsed = look(&once[..end]);
        let inner_ip = end >= 42 + 8 + 18 + 40;
        assert_eq!(parsed.key.is_v6(), inner_ip, "cut to {end}");
    }
}

/// The start of tags up to the next `EtherType`, for tags other than VLAN tags.
fn tags() -> Vec<(u16, Vec<u8>)> {
    let frame = [2; 12];
    vec![
        // VN-Tag, E-Tag, Cisco metadata, a service tag, HSR, a switch's tag, FabricPath, Ethernet.
        (0x8926, vec![0x80, 1, 0, 2]),
        (0x893f, vec![0x10, 0, 0, 1, 0, 0]),
        (0x8909, vec![1, 1, 0, 1, 0, 100]),
        (0x88e7, [&[0, 0, 1, 1][..], &frame].concat()),
        (0x892f, vec![0, 60, 0, 9]),
        (0xdada, vec![0, 0, 0xc0, 8, 0, 1]),
        (0x8903, [&[0, 0x41][..], &frame].concat()),
        (0x6558, frame.to_vec()),
        // MACsec with authentication only, with and without an identifier.
        (0x88e5, vec![0x03, 0, 0, 0, 0, 1]),
        (0x88e5, vec![0x63, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 0, 1]),
        // SNAP after a length, and after the type that replaces a length.
        (0x0040, vec![0xaa, 0xaa, 3, 0, 0, 0]),
        (0x8870, vec![0xaa, 0xaa, 3, 0, 0, 0]),
        (0x9200, vec![0, 7]),
    ]
}

#[test]
fn ip_is_found_behind_every_kind_of_tag() {
    for (ethertype, ip) in [(0x0800_u16, v4(6, 0, 0, &TCP_SYN)), (0x86dd, v6(6, &TCP_SYN))] {
        let expected = flow(&ethernet(&[], ethertype, &ip)).unwrap();
        for (tag, content) in tags() {
            let next = |ethertype: u16, rest: &[u8]| [&content[..], &ethertype.to_be_bytes(), rest].concat();
            let tagged = |rest: &[u8]| [&TAG.to_be_bytes(), &ethertype.to_be_bytes(), rest].concat();
            let vlan = if tag == 0x9200 { 7 } else { 0 };
            let found = flow(&ethernet(&[], tag, &next(ethertype, &ip)));
            assert_eq!(found, Ok(Parsed { vlan, ..expected }), "{tag:#06x}");
            // A VLAN before it and after it.
            let found = flow(&ethernet(&[0x8100], tag, &next(ethertype, &ip)));
            assert_eq!(found, Ok(Parsed { vlan: TAG, ..expected }), "{tag:#06x} behind a tag");
            if !matches!(tag, 0x0040 | 0x8870 | 0x88e5) {
                let found = flow(&ethernet(&[], tag, &next(0x8100, &tagged(&ip))));
                assert_eq!(found, Ok(Parsed { vlan: if vlan == 0 { TAG } else { vlan }, ..expected }), "{tag:#06x}");
            }
            // Cut before the type that follows.
            let cut = flow(&ethernet(&[], tag, &content));
            let expected = if matches!(tag, 0x0040 | 0x8870) { Skip::Llc } else { Skip::TruncatedLink };
            assert_eq!(cut, Err(expected), "{tag:#06x} cut");
        }
    }
}

#[test]
fn tags_that_cannot_be_read_are_skipped_under_their_names() {
    let ip = [&[8, 0][..], &v4(6, 0, 0, &TCP_SYN)].concat();
    let skip = |tag: u16, content: &[u8]| flow(&ethernet(&[], tag, &[content, &ip].concat()));
    for first in [0x04, 0x08, 0x0c, 0x2c, 0x80] {
        assert_eq!(skip(0x88e5, &[first, 0, 0, 0, 0, 1]), Err(Skip::Macsec), "{first:#04x}");
    }
    assert_eq!(skip(0x22f3, &[0x00, 0x3f, 0, 1, 0, 2]), Err(Skip::NonIp), "TRILL");
    assert_eq!(skip(0x894f, &[0x0f, 0xc2, 1, 1, 0, 0, 0, 0]), Err(Skip::NonIp), "a network service header");
    assert_eq!(skip(0x0040, &[0xaa, 0xaa, 3, 0, 0, 0xf8]), Err(Skip::Llc), "of another organization");
    assert_eq!(skip(0x0040, &[0x42, 0x42, 3, 0, 0, 0]), Err(Skip::Llc));
    let deep = |tags: usize| {
        let tag = [0x80, 1, 0, 2, 0x89, 0x26].repeat(tags);
        flow(&ethernet(&[], 0x8926, &[&tag, &[0x80, 1, 0, 2][..], &ip].concat())).map(drop)
    };
    assert_eq!((deep(VLAN_TAGS_MAX - 1), deep(VLAN_TAGS_MAX)), (Ok(()), Err(Skip::VlanDepth)));
}

/// IP after labels, and what only looks like it.
#[test]
fn behind_labels_only_sound_headers_are_ip() {
    let behind = |payload: &[u8]| ethernet(&[], 0x8847, &[&[0, 12, 0x81, 0xff], payload].concat());
    for (ethertype, ip) in
        [(0x0800, v4(6, 0, 0, &TCP_SYN)), (0x0800, v4(6, 0, 40, &TCP_SYN)), (0x86dd, v6(6, &TCP_SYN))]
    {
        let expected = flow(&ethernet(&[], ethertype, &ip));
        assert_eq!(flow(&behind(&ip)), expected);
        // Ethernet whose first address starts with any four bits, with and without a control word, tagged and untagged.
        for first in 0..16 {
            for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
                let mut frame = ethernet(tags, ethertype, &ip);
                frame[0] = first << 4 | 0x0c;
                assert_eq!(flow(&behind(&frame)), Err(Skip::Mpls), "{frame:02x?}");
                let controlled = [&[0; 4], &frame[..]].concat();
                assert_eq!(flow(&behind(&controlled)), Err(Skip::Mpls), "a control word, {frame:02x?}");
            }
        }
        let padded = [&ip[..], &[0; 7]].concat();
        assert_eq!(flow(&behind(&padded)), if ethertype == 0x86dd { Err(Skip::Mpls) } else { expected });
        // No bit of an IPv4 header may change; in an IPv6 header only the version and the length tell.
        let bits = if ethertype == 0x0800 { 0..8 * (ip.len() - 20) } else { 0..4 };
        for bit in bits.chain(if ethertype == 0x0800 { 0..0 } else { 32..45 }) {
            let mut flipped = ip.clone();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            assert_eq!(flow(&behind(&flipped)), Err(Skip::Mpls), "bit {bit} of {ip:02x?}");
        }
        for end in 0..ip.len() {
            let cut = behind(&ip[..end]);
            assert_eq!(flow(&cut), Err(Skip::Mpls), "cut to {end}: it is shorter than it says");
            // A capture with only the beginning: the packet itself is as long as it says.
            let length = 18 + ip.len();
            let found = walk(&Beginning { bytes: &cut, length }, Link::Ethernet, Tunnels::Outer);
            assert_eq!(found.is_ok(), end >= ip.len() - 20, "captured to {end}");
        }
    }
    // Merged packets are longer than the header can state, or their length is unknown.
    for (mut ip, at) in [(v4(6, 0, 0, &TCP_SYN), 2), (v6(6, &TCP_SYN), 4)] {
        ip[at..at + 2].fill(0);
        if at == 2 {
            with_checksum(&mut ip[..20]);
        }
        let merged = |length| walk(&Beginning { bytes: &behind(&ip), length }, Link::Ethernet, Tunnels::Outer).is_ok();
        assert!(merged(70_000) && merged(UNKNOWN_LENGTH) && !merged(18 + ip.len() + 7));
    }
}
