//! Parses any bytes as a packet: the parser ends, its fast path gives the same result, and its keys are valid.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_common::{
    flow::{Address, class},
    packet::{Link, Parsed, REACH_MAX, Tunnels, parse, walk},
    proto,
};

fuzz_target!(|input: &[u8]| {
    let Some((code, packet)) = input.split_first() else { return };
    let link = Link::ALL[usize::from(*code) % Link::ALL.len()];
    let [outer, inner] = [Tunnels::Outer, Tunnels::Inner].map(|tunnels| {
        let parsed = parse(packet, link, tunnels);
        assert_eq!(parsed, walk(packet, link, tunnels), "the fast path has another result");
        let reach = &packet[..packet.len().min(REACH_MAX)];
        assert_eq!(parsed, parse(reach, link, tunnels), "something beyond reach was read");
        parsed.inspect(keeps_its_promises)
    });
    // A packet has a key inside tunnels exactly if it has one without looking into them.
    assert_eq!(outer.err(), inner.err());
    // The VLAN is the frame's, whatever is inside.
    assert_eq!(outer.map(|parsed| parsed.vlan), inner.map(|parsed| parsed.vlan));
});

fn keeps_its_promises(parsed: &Parsed) {
    let Parsed { key, tcp_flags, tos: _, vlan } = *parsed;
    let (src_port, dst_port, proto, class) = (key.src_port(), key.dst_port(), key.proto(), key.class());
    assert_eq!((key.interface(), key.epoch()), (0, 0), "the scope is not the parser's");
    assert!(class & !(class::V6 | class::FRAGMENT | class::NO_TRANSPORT) == 0, "unknown class {class}");
    assert!(class & (class::FRAGMENT | class::NO_TRANSPORT) != class::FRAGMENT | class::NO_TRANSPORT);
    let has_ports = matches!(
        proto,
        proto::TCP | proto::UDP | proto::SCTP | proto::DCCP | proto::UDP_LITE | proto::ICMP | proto::ICMPV6
    );
    let lacks = class & (class::FRAGMENT | class::NO_TRANSPORT) != 0;
    assert!((has_ports && !lacks) || (src_port, dst_port, tcp_flags) == (0, 0, 0), "ports without a header");
    assert!(proto == proto::TCP || tcp_flags == 0, "flags without TCP");
    assert!(vlan < 1 << 12, "more than an identifier");
    if !key.is_v6() {
        for (address, ip) in [(key.src, key.src_ip()), (key.dst, key.dst_ip())] {
            assert_eq!(address, Address::from(ip), "not a mapped address");
        }
    }
}
