//! Merged buffers count as the packets they stand for: each with all headers, however many there are.

#![expect(clippy::needless_pass_by_value, reason = "stacks of headers read better without a reference at each level")]

use super::*;
use crate::ledger::{Tally, Uncertain};

/// Headers, given how many bytes follow them in the buffer.
type Stack<'a> = &'a dyn Fn(usize) -> Vec<u8>;

/// An IP header before these headers and this much payload, with its length: 0 if the field is too small.
fn ip4(proto: u8, options: usize, inner: Vec<u8>, payload: usize) -> Vec<u8> {
    let mut ip = v4(proto, 0, options, &inner);
    let length = u16::try_from(ip.len() + payload).unwrap_or(0);
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip
}

fn ip6(next: u8, inner: Vec<u8>, payload: usize) -> Vec<u8> {
    let length = u16::try_from(inner.len() + payload).unwrap_or(0);
    let mut ip = v6(next, &inner);
    ip[4..6].copy_from_slice(&length.to_be_bytes());
    ip
}

/// TCP with twelve bytes of options.
fn tcp() -> Vec<u8> {
    let mut tcp = [&TCP_SYN[..], &[1; 12]].concat();
    tcp[12] = 8 << 4;
    tcp
}

fn udp(port: u16, inner: &[u8]) -> Vec<u8> {
    [&[0xc0, 1][..], &port.to_be_bytes(), &[0; 4], inner].concat()
}

fn frame(ethertype: u16, inner: Vec<u8>) -> Vec<u8> {
    ethernet(&[], ethertype, &inner)
}

fn tcp4(payload: usize) -> Vec<u8> {
    ip4(6, 0, tcp(), payload)
}

/// UDP over IPv4 with this before the inner packet.
fn in_udp(port: u16, header: &[u8], inner: &[u8], payload: usize) -> Vec<u8> {
    frame(0x0800, ip4(17, 0, udp(port, &[header, inner].concat()), payload))
}

/// The packets by arithmetic: each has all headers except the `absent` ones, and at most one segment of payload.
fn on_the_wire(headers: usize, payload: usize, segment: usize) -> Tally {
    let packets = payload.div_ceil(segment);
    Tally::new(packets as u64, (payload + packets * headers) as u64)
}

/// The tallies of a buffer with a known number of packets, and of one with an unknown number.
fn tallies(stack: &[u8], link: Link, payload: usize, segment: usize) -> [Tally; 2] {
    let length = (stack.len() + payload) as u64;
    let beginning = [stack, &vec![0; payload.min(REACH_MAX)]].concat();
    let segments = payload.div_ceil(segment) as u64;
    [segments, 0].map(|segments| {
        let merged = Merged { length, segment: segment as u64, segments, fragments: Some(false) };
        let (tally, uncertain) = merged.tally(headers(&beginning[..], link, length));
        assert_eq!(uncertain, None, "{segments} by {segment}");
        assert_bounds(merged, tally);
        tally
    })
}

/// If no header could be read, the bounds must include the truth, and what encryption adds after each packet.
fn assert_bounds(merged: Merged, truth: Tally) {
    let (least, bounds) = merged.tally(None);
    let most = bounds.map_or(least, |bounds| bounds.most);
    let encrypted = truth.bytes + truth.packets * 64;
    assert!((least.packets..=most.packets).contains(&truth.packets), "{merged:?}: {least:?} to {most:?}, {truth:?}");
    assert!(least.bytes <= truth.bytes && encrypted <= most.bytes, "{merged:?}: {least:?} to {most:?}, {truth:?}");
}

const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 7, 0];

#[test]
fn every_packet_has_all_headers() {
    let stacks: [(&str, Stack<'_>); 22] = [
        ("TCP over IPv4", &|n| frame(0x0800, tcp4(n))),
        ("with options of IPv4", &|n| frame(0x0800, ip4(6, 8, tcp(), n))),
        ("UDP over IPv6", &|n| frame(0x86dd, ip6(17, udp(443, &[]), n))),
        ("SCTP", &|n| frame(0x0800, ip4(132, 0, vec![0; 12], n))),
        ("two tags", &|n| ethernet(&[0x88a8, 0x8100], 0x0800, &tcp4(n))),
        ("two extension headers", &|n| {
            frame(0x86dd, ip6(0, [&[60, 0, 1, 4, 0, 0, 0, 0, 6, 1][..], &[0; 14], &tcp()].concat(), n))
        }),
        ("MPLS", &|n| frame(0x8847, [&[0, 1, 0, 64, 0, 1, 1, 64][..], &tcp4(n)].concat())),
        ("PPP over Ethernet", &|n| frame(0x8864, [&[0x11, 0, 0, 1, 0, 0, 0, 0x21][..], &tcp4(n)].concat())),
        ("IPv4 in IPv4", &|n| frame(0x0800, ip4(4, 0, tcp4(n), n))),
        ("IPv4 in IPv6", &|n| frame(0x86dd, ip6(4, tcp4(n), n))),
        ("IPv6 in IPv4", &|n| frame(0x0800, ip4(41, 0, ip6(6, tcp(), n), n))),
        ("GRE with a key", &|n| frame(0x0800, ip4(47, 0, [&[0x20, 0, 8, 0, 0, 0, 0, 9][..], &tcp4(n)].concat(), n))),
        ("Ethernet in GRE", &|n| {
            frame(0x0800, ip4(47, 0, [&[0, 0, 0x65, 0x58][..], &frame(0x0800, tcp4(n))].concat(), n))
        }),
        ("VXLAN", &|n| in_udp(4789, &VXLAN, &frame(0x0800, tcp4(n)), n)),
        ("VXLAN on Linux's port, with a tag inside", &|n| {
            in_udp(8472, &VXLAN, &ethernet(&[0x8100], 0x0800, &tcp4(n)), n)
        }),
        ("VXLAN on any port, over IPv6, with UDP inside", &|n| {
            let inner = [&VXLAN[..], &frame(0x86dd, ip6(17, udp(443, &[]), n))].concat();
            frame(0x86dd, ip6(17, udp(1234, &inner), n))
        }),
        ("VXLAN with a group", &|n| in_udp(4789, &[0x88, 0, 1, 2, 0, 0, 7, 0], &frame(0x0800, tcp4(n)), n)),
        ("VXLAN-GPE", &|n| in_udp(4790, &[0x0c, 0, 0, 1, 0, 0, 7, 0], &tcp4(n), n)),
        ("Geneve with options", &|n| {
            let header = [&[2, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[0; 8]].concat();
            in_udp(6081, &header, &frame(0x0800, tcp4(n)), n)
        }),
        ("IP in UDP", &|n| in_udp(5555, &[], &tcp4(n), n)),
        ("GUE", &|n| in_udp(6080, &[1, 4, 0, 0, 0, 0, 0, 0], &tcp4(n), n)),
        ("GRE in VXLAN", &|n| {
            let gre = ip4(47, 0, [&[0, 0, 8, 0][..], &tcp4(n)].concat(), n);
            in_udp(4789, &VXLAN, &frame(0x0800, gre), n)
        }),
    ];
    for (name, stack) in stacks {
        for (payload, segment) in [(3_000, 1_348), (2 * 1_348, 1_348), (100, 1_348), (60_000, 1_200)] {
            let stack = stack(payload);
            let expected = on_the_wire(stack.len(), payload, segment);
            assert_eq!(
                tallies(&stack, Link::Ethernet, payload, segment),
                [expected; 2],
                "{name}: {payload} by {segment}"
            );
        }
    }
    let raw = tcp4(3_000);
    assert_eq!(tallies(&raw, Link::RawIp, 3_000, 1_348), [on_the_wire(raw.len(), 3_000, 1_348); 2]);
}

/// UDP that an offload split into datagrams, each of which looks like a tunnel: the inner packet ends before the buffer
/// does.
#[test]
fn what_only_looks_like_a_tunnel_is_payload() {
    let one = [&VXLAN[..], &frame(0x0800, tcp4(500))].concat();
    let inner: [(&str, Vec<u8>); 5] = [
        ("VXLAN for each datagram", one),
        ("no IP inside", [&VXLAN[..], &[0x11; 60]].concat()),
        ("IP of another length", tcp4(7)),
        ("the beginning of Geneve", vec![0, 0, 0x65, 0x58, 0, 0, 7, 0]),
        ("text", b"GET / HTTP/1.1 and so on and on".to_vec()),
    ];
    for (name, inner) in inner {
        let payload = 3_000 - inner.len();
        let stack = in_udp(4789, &inner, &[], payload);
        let expected = on_the_wire(14 + 20 + 8, 3_000, 1_200);
        assert_eq!(tallies(&stack, Link::Ethernet, payload, 1_200)[0], expected, "{name}");
    }
}

#[test]
fn buffers_beyond_the_length_of_ip() {
    const PAYLOAD: usize = 150_000;
    const SEGMENT: usize = 1_428;
    let v4 = frame(0x0800, tcp4(PAYLOAD));
    assert_eq!(tallies(&v4, Link::Ethernet, PAYLOAD, SEGMENT), [on_the_wire(v4.len(), PAYLOAD, SEGMENT); 2]);
    let jumbo = [&[6, 0, 0xc2, 4, 0, 2, 0x4a, 0x18][..], &tcp()].concat();
    let v6 = frame(0x86dd, ip6(0, jumbo, PAYLOAD));
    // The header with the length is in the buffer, but not on the wire.
    assert_eq!(tallies(&v6, Link::Ethernet, PAYLOAD, SEGMENT), [on_the_wire(v6.len() - 8, PAYLOAD, SEGMENT); 2]);
    let without = frame(0x86dd, ip6(6, tcp(), PAYLOAD));
    assert_eq!(tallies(&without, Link::Ethernet, PAYLOAD, SEGMENT), [on_the_wire(without.len(), PAYLOAD, SEGMENT); 2]);
}

#[test]
fn packets_as_long_as_the_parts_of_the_buffer() {
    let stack = frame(0x0800, ip4(132, 0, vec![0; 12], 5_000));
    let length = (stack.len() + 5_000) as u64;
    let merged = Merged { length, segment: BY_PARTS, segments: 7, fragments: Some(false) };
    let tally = Tally::new(7, 5_000 + 7 * stack.len() as u64);
    assert_eq!(merged.tally(headers(&stack[..], Link::Ethernet, length)), (tally, None));
    assert_bounds(merged, tally);
}

#[test]
fn fragments_of_one_udp_packet() {
    for (stack, per_fragment) in [
        (frame(0x0800, ip4(17, 0, udp(443, &[]), 5_000)), 14 + 20),
        (frame(0x86dd, ip6(17, udp(443, &[]), 5_000)), 14 + 40 + 8),
    ] {
        let length = (stack.len() + 5_000) as u64;
        let merged = |fragments| {
            let merged = Merged { length, segment: 1_480, segments: 0, fragments };
            merged.tally(headers(&stack[..], Link::Ethernet, length))
        };
        let fragments = Tally::new(4, 5_008 + 4 * per_fragment);
        assert_eq!(merged(Some(true)), (fragments, None));
        let datagrams = on_the_wire(stack.len(), 5_000, 1_480);
        assert_eq!(merged(Some(false)), (datagrams, None));
        let least = Tally::new(4, fragments.bytes.min(datagrams.bytes));
        let most = Tally::new(4, fragments.bytes.max(datagrams.bytes));
        assert_eq!(merged(None), (least, (least != most).then_some(Uncertain { least, most })), "one or the other");
    }
}

/// A tunnel's options may be so long that the content is out of reach. It might be plain UDP.
#[test]
fn headers_beyond_reach_are_uncertain() {
    let options = [&[63, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[0; 252]].concat();
    for (tags, is_certain) in [(0, true), (3, false)] {
        let inner = in_udp(6081, &options, &frame(0x0800, tcp4(3_000)), 3_000);
        let extension = [17, 7].into_iter().chain([0; 62]).collect::<Vec<u8>>();
        let chain = (0..tags).fold(udp(6081, &[&options[..], &frame(0x0800, tcp4(3_000))].concat()), |inner, nth| {
            let mut extension = extension.clone();
            extension[0] = if nth == 0 { 17 } else { 60 };
            [extension, inner].concat()
        });
        let stack = if tags == 0 { inner } else { frame(0x86dd, ip6(60, chain, 3_000)) };
        let truth = on_the_wire(stack.len(), 3_000, 1_348);
        let length = (stack.len() + 3_000) as u64;
        let merged = Merged { length, segment: 1_348, segments: 3, fragments: Some(false) };
        let (tally, uncertain) = merged.tally(headers(&stack[..stack.len().min(REACH_MAX)], Link::Ethernet, length));
        assert_eq!(uncertain.is_none(), is_certain, "{tags} headers: {tally:?}, {truth:?}");
        assert!(tally == truth || !is_certain);
        assert_bounds(merged, truth);
    }
}

#[test]
fn headers_that_cannot_be_read_are_as_short_as_the_packets_allow() {
    let length = 2 * 1_000 + 50;
    for (segments, least, most) in [
        (2, (2, 2_000 + 2 * 50), (2, 2_050 + 1_024 + 2 * 321)),
        (3, (3, 2_050), (3, 2_050 + 2 * 49 + 3 * 321)),
        (0, (2, 2_050), (3, 2_050 + 2 * 1_024 + 3 * 321)),
    ] {
        let merged = Merged { length, segment: 1_000, segments, fragments: Some(false) };
        assert_eq!(headers(&[0; 60][..], Link::Ethernet, length), None);
        let [least, most] = [least, most].map(|(packets, bytes)| Tally::new(packets, bytes));
        assert_eq!(merged.tally(None), (least, Some(Uncertain { least, most })), "{segments} are told");
    }
    let nothing = Merged { length: 0, segment: 0, segments: 0, fragments: None };
    assert_eq!(nothing.tally(None).0, Tally::new(1, 0));
}
