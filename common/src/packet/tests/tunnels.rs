//! Every tunnel that is looked into, and every reason to keep the tunnel's own key.

use super::*;

/// The content of all tunnels here: TCP over IPv6.
fn inner() -> Vec<u8> {
    v6(6, &TCP_SYN)
}

fn inner_frame() -> Vec<u8> {
    ethernet(&[0x8100], 0x86dd, &inner())
}

fn udp(port: u16, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut udp = vec![0x12, 0x34, 0, 0, 0, 0, 0, 0];
    udp[2..4].copy_from_slice(&port.to_be_bytes());
    [&udp, header, payload].concat()
}

/// Whether the flow of a packet with the IPv4 payload `transport` is the one inside the tunnel.
fn is_inside(proto: u8, transport: &[u8]) -> bool {
    let frame = ethernet(&[], 0x0800, &v4(proto, 0, 0, transport));
    let found = both(&frame, Link::Ethernet, Tunnels::Inner).unwrap();
    let (inside, outside) = (flow(&ethernet(&[], 0x86dd, &inner())), flow(&frame));
    assert!(Ok(found) == inside || Ok(found) == outside, "{found:?} is neither inside nor outside");
    Ok(found) == inside
}

#[test]
fn ip_in_ip_mpls_and_ethernet() {
    assert!(is_inside(41, &inner()));
    assert!(is_inside(143, &inner_frame()));
    assert!(is_inside(137, &[&[0, 1, 1, 64][..], &inner()].concat()));
    assert!(!is_inside(42, &inner()), "no tunnel");
    let v4_inside = ethernet(&[], 0x86dd, &v6(4, &v4(6, 0, 0, &TCP_SYN)));
    let expected = flow(&ethernet(&[], 0x0800, &v4(6, 0, 0, &TCP_SYN)));
    assert_eq!(both(&v4_inside, Link::Ethernet, Tunnels::Inner), expected);
}

#[test]
fn a_piece_of_a_tunnel_packet_is_not_looked_into() {
    let piece = ethernet(&[], 0x0800, &v4(41, 0x2000, 0, &inner()));
    let found = both(&piece, Link::Ethernet, Tunnels::Inner).unwrap();
    assert_eq!((found.key.proto(), found.key.class()), (41, class::FRAGMENT));
}

#[test]
fn gre_with_all_its_optional_fields() {
    let gre = |flags: u16, ethertype: u16, payload: &[u8]| {
        let fields = (flags >> 12 & !4).count_ones() as usize;
        let header = [flags.to_be_bytes(), ethertype.to_be_bytes()].concat();
        is_inside(47, &[&header, &vec![0; 4 * fields][..], payload].concat())
    };
    for checksum_key_and_sequence in [0, 0x8000, 0x2000, 0x1000, 0xa000, 0x9000, 0x3000, 0xb000] {
        assert!(gre(checksum_key_and_sequence, 0x86dd, &inner()), "{checksum_key_and_sequence:#x}");
        assert!(gre(checksum_key_and_sequence, 0x6558, &inner_frame()), "{checksum_key_and_sequence:#x}");
    }
    for routing_or_version in [0x4000, 0x0001, 0x0002, 0x0004] {
        assert!(!gre(routing_or_version, 0x86dd, &inner()), "{routing_or_version:#x}");
    }
    assert!(!gre(0, 0x0806, &inner()), "ARP");
}

#[test]
fn erspan() {
    let gre = |flags: u16, ethertype: u16, header: &[u8]| {
        let sequence = vec![0; if flags & 0x1000 == 0 { 0 } else { 4 }];
        let fixed = [flags.to_be_bytes(), ethertype.to_be_bytes()].concat();
        is_inside(47, &[&fixed, &sequence[..], header, &inner_frame()].concat())
    };
    assert!(gre(0, 0x88be, &[]), "type I has no header");
    assert!(gre(0x1000, 0x88be, &[0x10, 0, 0, 0, 0, 0, 0, 0]), "type II");
    let third = |last: u16| {
        let mut header = vec![0x20; if last & 1 == 0 { 12 } else { 20 }];
        header[10..12].copy_from_slice(&last.to_be_bytes());
        gre(0x1000, 0x22eb, &header)
    };
    assert!([0, 1, 0x83fe, 0x83ff].into_iter().all(third), "type III, with a subheader and without");
    assert!(!(10..15).any(|bit| third(1 << bit)), "a frame type that is not Ethernet");
}

#[test]
fn vxlan() {
    let vxlan = |flags: u8| is_inside(17, &udp(4789, &[flags, 0, 0, 0, 0, 0, 7, 0], &inner_frame()));
    assert!(vxlan(0x08) && vxlan(0xff));
    assert!(!vxlan(0) && !vxlan(0xf7), "without an identifier");
    assert!(!is_inside(17, &udp(4788, &[8, 0, 0, 0, 0, 0, 7, 0], &inner_frame())), "another port");
}

#[test]
fn vxlan_with_a_protocol() {
    let gpe =
        |flags: u8, next: u8, payload: &[u8]| is_inside(17, &udp(4790, &[flags, 0, 0, next, 0, 0, 7, 0], payload));
    for flags in [0x04, 0x0c, 0xce] {
        assert!(gpe(flags, 2, &inner()), "{flags:#x}");
        assert!(gpe(flags, 3, &inner_frame()), "{flags:#x}");
        assert!(gpe(flags, 5, &[&[0, 1, 1, 64][..], &inner()].concat()), "{flags:#x}");
        assert!(!gpe(flags, 4, &inner()), "a network service header");
    }
    for flags in [0x00, 0x08, 0x05, 0x14, 0x24] {
        assert!(!gpe(flags, 2, &inner()), "{flags:#x}");
    }
    let v4_inside = udp(4790, &[4, 0, 0, 1, 0, 0, 7, 0], &v4(6, 0, 0, &TCP_SYN));
    let found = both(&ethernet(&[], 0x0800, &v4(17, 0, 0, &v4_inside)), Link::Ethernet, Tunnels::Inner);
    assert_eq!(found, flow(&ethernet(&[], 0x0800, &v4(6, 0, 0, &TCP_SYN))));
}

#[test]
fn geneve() {
    let geneve = |first: u8, second: u8, ethertype: u16, payload: &[u8]| {
        let mut header = vec![0; 8 + 4 * usize::from(first & 0x3f)];
        header[..2].copy_from_slice(&[first, second]);
        header[2..4].copy_from_slice(&ethertype.to_be_bytes());
        is_inside(17, &udp(6081, &header, payload))
    };
    for options in [0, 1, 2, 32, 63] {
        assert!(geneve(options, 0, 0x86dd, &inner()), "{options} words of options");
        assert!(geneve(options, 0x40, 0x6558, &inner_frame()), "{options} words of options, some critical");
    }
    assert!(!geneve(0x40, 0, 0x86dd, &inner()) && !geneve(0x80, 0, 0x86dd, &inner()), "another version");
    assert!(!geneve(0, 0x80, 0x86dd, &inner()), "a control packet");
}

#[test]
fn gtp_u() {
    let gtp = |flags: u8, kind: u8, header: &[u8]| {
        is_inside(17, &udp(2152, &[&[flags, kind, 0, 0, 0, 0, 0, 1], header].concat(), &inner()))
    };
    assert!(gtp(0x30, 255, &[]));
    for one_of_the_optional in [1, 2, 3, 4, 5, 7] {
        assert!(gtp(0x30 | one_of_the_optional, 255, &[0, 0, 0, 0]), "{one_of_the_optional}");
    }
    assert!(gtp(0x33, 255, &[0, 9, 9, 0x85]), "what is not flagged says nothing");
    // Extension headers: a length in words, some content, the next one's type.
    let chain = |headers: usize, words: u8, content: u8| {
        let mut header = vec![content; usize::from(words) * 4];
        header[0] = words;
        let mut all = vec![0, 0, 0, if headers == 0 { 0 } else { 0x85 }];
        for nth in 1..=headers {
            let end = header.len() - 1;
            header[end] = if nth == headers { 0 } else { 0x85 };
            all.extend_from_slice(&header);
        }
        gtp(0x34, 255, &all)
    };
    for (words, content) in [(1, 0), (1, 9), (2, 0), (3, 9)] {
        assert!((0..=4).all(|headers| chain(headers, words, content)), "{words} words");
        assert!(!chain(5, words, content), "one too many");
    }
    assert!(!gtp(0x34, 255, &[0, 0, 0, 0x85, 0, 0, 0, 0]), "an extension header without a length");
    assert!(!gtp(0x30, 254, &[]), "an end marker");
    assert!(!gtp(0x20, 255, &[]) && !gtp(0x50, 255, &[]) && !gtp(0x70, 255, &[]), "another protocol or version");
}

#[test]
fn a_cut_tunnel_header_leaves_the_tunnels_key() {
    let tunnels: [(u8, Vec<u8>); 5] = [
        (47, [&[0x10, 0, 0x22, 0xeb][..], &[0; 16], &inner_frame()].concat()),
        (17, udp(4789, &[8, 0, 0, 0, 0, 0, 7, 0], &inner_frame())),
        (17, udp(4790, &[4, 0, 0, 2, 0, 0, 7, 0], &inner())),
        (17, udp(6081, &[0, 0, 0x86, 0xdd, 0, 0, 7, 0], &inner())),
        (17, udp(2152, &[0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 0, 0], &inner())),
    ];
    for (proto, whole) in tunnels {
        let behind_ip = whole.len() - TCP_SYN.len();
        for end in 0..whole.len() {
            assert_eq!(is_inside_ip(proto, &whole, end), end >= behind_ip, "{proto}, cut to {end}");
        }
    }
}

/// Whether the key is from the inner IPv6 packet, if only the first `end` bytes were captured.
fn is_inside_ip(proto: u8, transport: &[u8], end: usize) -> bool {
    let frame = ethernet(&[], 0x0800, &v4(proto, 0, 0, transport));
    let packet = Beginning { bytes: &frame[..34 + end], length: frame.len() };
    walk(&packet, Link::Ethernet, Tunnels::Inner).unwrap().key.is_v6()
}

#[test]
fn other_ports_are_known_when_they_are_named() {
    let mut ports = TunnelPorts::NONE;
    [(UdpTunnel::Vxlan, 9000), (UdpTunnel::VxlanGpe, 1), (UdpTunnel::Geneve, 65_535), (UdpTunnel::GtpU, 4789)]
        .into_iter()
        .for_each(|(kind, port)| ports.add(kind, port));
    let inside = |port: u16, header: &[u8], payload: &[u8]| {
        let frame = ethernet(&[], 0x0800, &v4(17, 0, 0, &udp(port, header, payload)));
        let [usual, named] = [&TunnelPorts::USUAL, &ports]
            .map(|ports| parse(&frame[..], Link::Ethernet, (Tunnels::Inner, ports)).unwrap().key.is_v6());
        (usual, named)
    };
    let vxlan = [8, 0, 0, 0, 0, 0, 7, 0];
    assert_eq!(inside(4789, &vxlan, &inner_frame()), (true, false));
    assert_eq!(inside(8472, &vxlan, &inner_frame()), (true, false));
    assert_eq!(inside(9000, &vxlan, &inner_frame()), (false, true));
    assert_eq!(inside(0, &vxlan, &inner_frame()), (false, false));
    assert_eq!(inside(1, &[4, 0, 0, 2, 0, 0, 7, 0], &inner()), (false, true));
    assert_eq!(inside(65_535, &[0, 0, 0x86, 0xdd, 0, 0, 7, 0], &inner()), (false, true));
    assert_eq!(inside(4789, &[0x30, 255, 0, 0, 0, 0, 0, 1], &inner()), (false, true));
    for kind in UdpTunnel::ALL {
        assert_eq!(UdpTunnel::from_number(kind as u8), Some(kind));
        assert!(TunnelPorts::USUAL.of(kind).all(|port| TunnelPorts::USUAL.kind(port) == Some(kind)));
    }
    (0..20).for_each(|_| ports.add(UdpTunnel::Vxlan, 7));
    assert_eq!(ports.of(UdpTunnel::Vxlan).count(), PORTS_MAX);
}
