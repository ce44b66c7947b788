//! A table of packets of each kind, which the program `weir` measures, with the record or the counter that each must
//! produce.

use anyhow::{Context, Result, ensure};
use weir_common::{
    flow::{FlowKey, Scope},
    ledger::{Ledger, Skip, Tally},
    packet::{Parsed, TunnelPorts, Tunnels, UdpTunnel},
    record::{Record, Sample},
    size::size_class,
};
use weir_datapath::{Features, LoadedProgram, PacketFlags, Plan};
use weir_tests::{
    object::{Object, PLAN, load_all},
    truth::{Key, Lacks},
};

use crate::frame::{
    DST_PORT, DST4, DST6, IPV4, IPV6, SRC_PORT, SRC4, SRC6, TOS, authentication, chain, ethernet, extension, fragment,
    ipv4, ipv6, labels, ports, pppoe, tcp,
};

const VLAN: u16 = 0x8100;
const PROVIDER: u16 = 0x88a8;
const OLD_QINQ: u16 = 0x9100;
const SYN: u8 = 0x02;
/// The protocol numbers of IPv6's extension headers.
const EXTENSIONS: [u8; 6] = [0, 43, 60, 135, 139, 140];
const MPLS: u16 = 0x8847;
const SESSION: u16 = 0x8864;
/// More fragments follow (RFC 791 section 3.1).
const MORE: u16 = 0x2000;

struct Case {
    name: String,
    frame: Vec<u8>,
    expect: Expect,
}

#[derive(Clone, Copy)]
enum Expect {
    /// The VLAN is taken from the frame: see [`vlan`].
    Flow {
        key: Key,
        tcp_flags: u8,
        tos: u8,
    },
    Skip(Skip),
}

pub fn every_kind_of_packet_makes_its_record_or_its_counter() -> Result<()> {
    run(Tunnels::Outer, cases().into_iter().chain(tunnelled().into_iter().map(|(outer, _)| outer)))
}

/// weir looks into tunnels; all other packets give the same result as without.
pub fn every_kind_of_tunnel_shows_what_is_inside() -> Result<()> {
    run(Tunnels::Inner, cases().into_iter().chain(tunnelled().into_iter().map(|(_, inner)| inner)))
}

/// The parser uses the ports that the loader sets, not the usual ones.
pub fn tunnels_at_other_ports() -> Result<()> {
    let mut tunnel_ports = TunnelPorts::NONE;
    tunnel_ports.add(UdpTunnel::Vxlan, 65_535);
    tunnel_ports.add(UdpTunnel::GtpU, 1);
    let (v4, v6) = (ipv4(6, 0, 0, &tcp(SYN)), ipv6(6, &tcp(SYN)));
    let udp = |port: u16, header: &[u8], payload: &[u8]| {
        let mut udp = ports(8);
        udp[2..4].copy_from_slice(&port.to_be_bytes());
        ethernet(&[], IPV4, &ipv4(17, 0, 0, &[&udp, header, payload].concat()))
    };
    let (vxlan, gtp, frame) = ([8, 0, 0, 0, 0, 0, 7, 0], [0x30, 255, 0, 0, 0, 0, 0, 7], ethernet(&[], IPV6, &v6));
    let outside = |dst_port| flow(Key { dst_port, ..key4(17) });
    let cases = [
        ("VXLAN", udp(65_535, &vxlan, &frame), syn(key6(6))),
        ("GTP-U", udp(1, &gtp, &v4), syn(key4(6))),
        ("the usual port of VXLAN", udp(4789, &vxlan, &frame), outside(4789)),
        ("the usual port of GTP-U", udp(2152, &gtp, &v4), outside(2152)),
        ("port 0", udp(0, &vxlan, &frame), outside(0)),
    ];
    let cases = cases.map(|(name, frame, expect)| Case { name: name.to_owned(), frame, expect });
    run_plan(Features::of_this_kernel(), Plan { tunnels: Tunnels::Inner, tunnel_ports, ..PLAN }, cases.into_iter())
}

/// A kernel refuses a program if its verifier processes more than a million instructions, and older kernels process
/// more for the same program.
pub fn the_verifier_has_little_to_do() -> Result<()> {
    const PLENTY: u32 = 400_000;
    // Inside tunnels Linux 6.1 processes 156,000 instructions where 6.12 and 6.18 process 47,000.
    let most_inside = if Features::of_this_kernel().packet_flags.is_some() { 100_000 } else { 200_000 };
    for (tunnels, most_of_weir) in [(Tunnels::Outer, 50_000), (Tunnels::Inner, most_inside)] {
        for LoadedProgram { name, verified_instructions } in load_all(&Plan { tunnels, ..PLAN })? {
            let Some(verified) = verified_instructions else { continue };
            let most = if ["weir", "weir_generic"].contains(&name) { most_of_weir } else { PLENTY };
            ensure!(verified > 0 && verified < most, "{tunnels:?}: {name}: {verified} instructions were verified");
        }
    }
    Ok(())
}

/// In generic mode a copy of a multicast or broadcast packet that the router sends has no link header, and counts
/// nowhere. All other packets count as they do in native mode.
pub fn generic_mode_leaves_out_what_the_router_sends() -> Result<()> {
    for features in [Features::of_this_kernel(), without_flags(), Features::FLOOR] {
        Object::load_with(features, PLAN, |object| {
            let frames: Vec<_> = cases().into_iter().map(|case| case.frame).collect();
            let frames: Vec<_> = frames.iter().filter(|frame| object.takes(frame.len())).collect();
            for frame in &frames {
                object.pass(frame)?;
            }
            let native = object.close()?.0.ledger();
            for frame in &frames {
                object.pass_generic(frame)?;
            }
            let generic = object.close()?.0.ledger();
            ensure!(generic == native, "{generic:?}\nshould be {native:?}");
            let mut multicast = ipv6(17, &ports(8));
            multicast[24] = 0xff;
            for copy in [ipv4(17, 0, 0, &ports(8)), ipv4(17, 0, 40, &ports(1_400)), multicast] {
                object.pass_generic(&copy)?;
                let counted = object.close()?.0.ledger();
                ensure!(counted.counters.seen.is_zero(), "{counted:?}, of {copy:02x?}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The same with the program for kernels that do not support packets in several pieces.
pub fn the_same_on_the_oldest_kernels() -> Result<()> {
    run_with(Features::FLOOR, Tunnels::Outer, cases().into_iter())
}

/// The same where the kernel does not say which packets have fragments, or refuses the program that asks.
pub fn the_same_without_flags_of_packets() -> Result<()> {
    let no_function = PacketFlags { function: 1, offset: 0 };
    for packet_flags in [None, Some(no_function)] {
        run_with(Features { packet_flags, ..without_flags() }, Tunnels::Outer, cases().into_iter())?;
    }
    Ok(())
}

fn without_flags() -> Features {
    Features { packet_flags: None, ..Features::of_this_kernel() }
}

fn run(tunnels: Tunnels, cases: impl Iterator<Item = Case> + Send) -> Result<()> {
    run_with(Features::of_this_kernel(), tunnels, cases)
}

fn run_with(features: Features, tunnels: Tunnels, cases: impl Iterator<Item = Case> + Send) -> Result<()> {
    run_plan(features, Plan { tunnels, ..PLAN }, cases)
}

fn run_plan(features: Features, plan: Plan, cases: impl Iterator<Item = Case> + Send) -> Result<()> {
    Object::load_with(features, plan, |object| {
        let cases: Vec<_> = cases.filter(|case| object.takes(case.frame.len())).collect();
        for (nth, case) in cases.into_iter().enumerate() {
            check(object, &case, nth as u8).with_context(|| format!("{}: {:02x?}", case.name, case.frame))?;
        }
        Ok(())
    })
}

fn check(object: &mut Object<'_>, case: &Case, epoch: u8) -> Result<()> {
    object.pass(&case.frame)?;
    let (window, _) = object.close()?;
    let tally = Tally::new(1, case.frame.len() as u64);
    let mut expected = Ledger::default();
    expected.counters.seen = tally;
    expected.counters.sizes.count(size_class(tally.bytes), 1);
    match case.expect {
        Expect::Flow { key, tcp_flags, tos } => {
            expected.counters.tcp.count(tcp_flags, 1);
            ensure!(window.records.len() == 1, "records: {:?}", window.records);
            let record = window.records[0];
            let key = FlowKey::from(key).with_scope(Scope::new(0, epoch));
            let (tick, vlan) = (record.first_tick, vlan(&case.frame));
            let parsed = Parsed { key, tcp_flags, tos, vlan };
            let expected = Record::first(key, Sample::new(&parsed, tally, tick.into(), 1));
            ensure!(record == expected, "{record:?}\nshould be {expected:?}");
        }
        Expect::Skip(skip) => expected.counters.skipped[skip as usize] = tally,
    }
    if matches!(case.expect, Expect::Flow { .. }) {
        expected.attributed = tally;
    }
    ensure!(window.ledger() == expected, "{:?}\nshould be {expected:?}", window.ledger());
    let class = size_class(tally.bytes);
    let sizes = window.edge.sizes.iter().enumerate().all(|(nth, count)| *count == u64::from(nth == class));
    ensure!(sizes, "it counts under another size than {class}");
    Ok(())
}

/// The identifier of the frame's first tag, 0 if it has none.
fn vlan(frame: &[u8]) -> u16 {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    if [VLAN, PROVIDER, OLD_QINQ].contains(&word(12)) { word(14) & 0x0fff } else { 0 }
}

fn cases() -> Vec<Case> {
    [
        tagged(),
        marked(),
        shims(),
        other_tags(),
        version_4(),
        fragments(),
        version_6(),
        protocols(),
        not_ip(),
        cut(),
        malformed(),
        far(),
    ]
    .concat()
    .into_iter()
    .map(|(name, frame, expect)| Case { name, frame, expect })
    .collect()
}

type Row = (String, Vec<u8>, Expect);

fn row(name: impl Into<String>, frame: Vec<u8>, expect: Expect) -> Row {
    (name.into(), frame, expect)
}

fn key4(proto: u8) -> Key {
    Key { src: SRC4.into(), dst: DST4.into(), src_port: SRC_PORT, dst_port: DST_PORT, proto, lacks: Lacks::Nothing }
}

fn key6(proto: u8) -> Key {
    Key { src: SRC6.into(), dst: DST6.into(), ..key4(proto) }
}

const fn flow(key: Key) -> Expect {
    Expect::Flow { key, tcp_flags: 0, tos: TOS }
}

const fn syn(key: Key) -> Expect {
    Expect::Flow { key, tcp_flags: SYN, tos: TOS }
}

fn without_ports(key: Key) -> Expect {
    flow(key.without_ports(Lacks::Nothing))
}

fn tagged() -> Vec<Row> {
    let (v4, v6) = (ipv4(6, 0, 0, &tcp(SYN)), ipv6(6, &tcp(SYN)));
    let stacks: [&[u16]; 9] = [
        &[],
        &[VLAN],
        &[PROVIDER],
        &[OLD_QINQ],
        &[PROVIDER, VLAN],
        &[VLAN, VLAN],
        &[OLD_QINQ, PROVIDER, VLAN],
        &[VLAN, VLAN, VLAN, VLAN],
        &[PROVIDER, OLD_QINQ, VLAN, VLAN],
    ];
    let too_deep: [&[u16]; 2] = [&[VLAN; 5], &[PROVIDER, VLAN, VLAN, VLAN, VLAN, VLAN, VLAN, VLAN]];
    let readable = stacks.into_iter().flat_map(|tags| {
        [
            row(format!("IPv4 behind tags {tags:04x?}"), ethernet(tags, IPV4, &v4), syn(key4(6))),
            row(format!("IPv6 behind tags {tags:04x?}"), ethernet(tags, IPV6, &v6), syn(key6(6))),
        ]
    });
    let deep = too_deep
        .into_iter()
        .map(|tags| row(format!("{} tags", tags.len()), ethernet(tags, IPV4, &v4), Expect::Skip(Skip::VlanDepth)));
    let priority = row("ARP behind a tag", ethernet(&[VLAN], 0x0806, &[0; 46]), Expect::Skip(Skip::Arp));
    readable.chain(deep).chain([priority]).collect()
}

/// Every bit of the TOS byte and of the outer tag; the upper four bits of the tag are not part of the VLAN.
fn marked() -> Vec<Row> {
    let (v4, v6) = (ipv4(6, 0, 0, &tcp(SYN)), ipv6(6, &tcp(SYN)));
    let mut rows = Vec::new();
    for tos in (0..8).map(|bit| 1 << bit).chain([0, 0xff]) {
        let (mut v4, mut v6) = (v4.clone(), v6.clone());
        v4[1] = tos;
        v6[..2].copy_from_slice(&[0x60 | tos >> 4, tos << 4 | 0x05]);
        let expect = |key| Expect::Flow { key, tcp_flags: SYN, tos };
        for tags in [&[][..], &[VLAN]] {
            rows.push(row(format!("TOS {tos:#04x}, {tags:04x?}"), ethernet(tags, IPV4, &v4), expect(key4(6))));
            rows.push(row(
                format!("traffic class {tos:#04x}, {tags:04x?}"),
                ethernet(tags, IPV6, &v6),
                expect(key6(6)),
            ));
        }
    }
    for control in (0..16).map(|bit| 1_u16 << bit).chain([0, 0xffff, 0xf000, 0x0fff]) {
        for tags in [&[VLAN][..], &[PROVIDER, VLAN], &[OLD_QINQ]] {
            let mut frame = ethernet(tags, IPV6, &v6);
            frame[14..16].copy_from_slice(&control.to_be_bytes());
            rows.push(row(format!("tag {control:#06x} of {tags:04x?}"), frame, syn(key6(6))));
        }
    }
    rows
}

/// PPP over Ethernet, and MPLS.
fn shims() -> Vec<Row> {
    let (v4, v6) = (ipv4(6, 0, 0, &tcp(SYN)), ipv6(6, &tcp(SYN)));
    let session = |protocol: u16, payload: &[u8]| pppoe(0, protocol, payload);
    let mut rows = vec![
        row("IPv4 in a PPPoE session", ethernet(&[], SESSION, &session(0x21, &v4)), syn(key4(6))),
        row("IPv6 in a PPPoE session", ethernet(&[], SESSION, &session(0x57, &v6)), syn(key6(6))),
        row("a PPPoE session behind tags", ethernet(&[PROVIDER, VLAN], SESSION, &session(0x57, &v6)), syn(key6(6))),
        row("MPLS in a PPPoE session", ethernet(&[], SESSION, &session(0x281, &labels(4, &v4))), syn(key4(6))),
        row("multicast MPLS", ethernet(&[], 0x8848, &labels(1, &v6)), syn(key6(6))),
        row("MPLS behind a tag", ethernet(&[VLAN], MPLS, &labels(2, &v4)), syn(key4(6))),
    ];
    let skipped = |name: &str, kind, payload: &[u8], skip| row(name, ethernet(&[], kind, payload), Expect::Skip(skip));
    rows.extend([
        skipped("PPP link control", SESSION, &session(0xc021, &[1; 8]), Skip::Ppp),
        skipped("PPP authentication", SESSION, &session(0xc223, &[1; 8]), Skip::Ppp),
        skipped("a session that ends", SESSION, &pppoe(0xa7, 0x21, &v4), Skip::Pppoe),
        skipped("PPPoE cut in its header", SESSION, &session(0x21, &[])[..7], Skip::TruncatedLink),
        skipped("PPPoE without IP", SESSION, &session(0x21, &[]), Skip::TruncatedIp),
        skipped("IPv6 in PPP that says IPv4", SESSION, &session(0x21, &v6), Skip::BadIpHeader),
        skipped("a pseudowire's control word", MPLS, &labels(2, &[0, 0, 0, 7, 2, 2, 2, 2]), Skip::Mpls),
        skipped("a generic associated channel", MPLS, &labels(1, &[0x10, 0, 0, 7, 2, 2, 2, 2]), Skip::Mpls),
        skipped("MPLS cut in a label", MPLS, &labels(3, &[])[..11], Skip::TruncatedLink),
        skipped("labels and no more", MPLS, &labels(2, &[]), Skip::Mpls),
        skipped("half of IPv4 behind labels", MPLS, &labels(2, &v4[..10]), Skip::Mpls),
        skipped("IPv4 with another checksum behind labels", MPLS, &labels(1, &changed(&v4, 11)), Skip::Mpls),
        skipped("IPv4 of another length behind labels", MPLS, &labels(1, &v4[..v4.len() - 1]), Skip::Mpls),
        skipped("IPv6 of another length behind labels", MPLS, &labels(1, &changed(&v6, 5)), Skip::Mpls),
        skipped("PPP compression", SESSION, &session(0xfd, &[1; 8]), Skip::Ppp),
    ]);
    for (kind, ip, key, protocol) in [(IPV4, &v4, key4(6), 0x21), (IPV6, &v6, key6(6), 0x57)] {
        let whole = pppoe(0, protocol, ip);
        // The protocol may lack its first byte, and the fields that PPP over Ethernet leaves out may be present.
        let short = [&whole[..6], &whole[7..]].concat();
        let framed = [&whole[..6], &[0xff, 0x03], &whole[6..]].concat();
        let both = [&whole[..6], &[0xff, 0x03], &whole[7..]].concat();
        for (nth, payload) in [short, framed, both].into_iter().enumerate() {
            rows.push(row(format!("PPP in form {nth} of {protocol:#04x}"), ethernet(&[], SESSION, &payload), syn(key)));
        }
        // Ethernet in a pseudowire; its first address begins like an IP version or a control word.
        for first in [0x02, 0x45, 0x4c, 0x60, 0x6c, 0x12] {
            for tags in [&[][..], &[VLAN]] {
                let mut frame = ethernet(tags, kind, ip);
                frame[0] = first;
                let name = format!("Ethernet to {first:#04x} with {tags:04x?} and {kind:#06x} in a pseudowire");
                let controlled = [&[0; 4], &frame[..]].concat();
                rows.push(row(&name, ethernet(&[], MPLS, &labels(1, &frame)), Expect::Skip(Skip::Mpls)));
                let frame = ethernet(&[], MPLS, &labels(2, &controlled));
                rows.push(row(name + ", controlled", frame, Expect::Skip(Skip::Mpls)));
            }
        }
        let mut arp = ethernet(&[], 0x0806, &[0; 46]);
        arp[0] = if kind == IPV4 { 0x4c } else { 0x6c };
        rows.push(row("ARP in a pseudowire", ethernet(&[], MPLS, &labels(1, &arp)), Expect::Skip(Skip::Mpls)));
    }
    rows.extend((1..=8).map(|depth| {
        let expect = if depth <= 4 { syn(key6(6)) } else { Expect::Skip(Skip::MplsDepth) };
        row(format!("{depth} labels"), ethernet(&[], MPLS, &labels(depth, &v6)), expect)
    }));
    rows
}

/// The packet with another value of one byte.
fn changed(packet: &[u8], at: usize) -> Vec<u8> {
    let mut changed = packet.to_vec();
    changed[at] ^= 0x10;
    changed
}

/// Tags other than those of VLANs.
fn other_tags() -> Vec<Row> {
    let addresses = [2; 12];
    let tags: [(&str, u16, Vec<u8>); 12] = [
        ("VN-Tag", 0x8926, vec![0x80, 1, 0, 2]),
        ("E-Tag", 0x893f, vec![0x10, 0, 0, 1, 0, 0]),
        ("Cisco metadata", 0x8909, vec![1, 1, 0, 1, 0, 100]),
        ("a backbone's service", 0x88e7, [&[0, 0, 1, 1][..], &addresses].concat()),
        ("HSR", 0x892f, vec![0, 60, 0, 9]),
        ("a switch's tag", 0xdada, vec![0, 0, 0xc0, 8, 0, 1]),
        ("FabricPath", 0x8903, [&[0, 0x41][..], &addresses].concat()),
        ("Ethernet in Ethernet", 0x6558, addresses.to_vec()),
        ("MACsec without encryption", 0x88e5, vec![0x03, 0, 0, 0, 0, 1]),
        ("MACsec with an identifier", 0x88e5, vec![0x63, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 0, 1]),
        ("SNAP", 0x0040, vec![0xaa, 0xaa, 3, 0, 0, 0]),
        ("long SNAP", 0x8870, vec![0xaa, 0xaa, 3, 0, 0, 0]),
    ];
    let mut rows = Vec::new();
    for (name, tag, content) in tags {
        for (kind, ip, key) in [(IPV4, ipv4(6, 0, 0, &tcp(SYN)), key4(6)), (IPV6, ipv6(6, &tcp(SYN)), key6(6))] {
            let packet = [&content[..], &kind.to_be_bytes(), &ip].concat();
            rows.push(row(format!("{kind:#06x} behind {name}"), ethernet(&[], tag, &packet), syn(key)));
            rows.push(row(format!("{kind:#06x} behind a VLAN and {name}"), ethernet(&[VLAN], tag, &packet), syn(key)));
        }
    }
    let skipped = |name: &str, tag, content: &[u8], skip| row(name, ethernet(&[], tag, content), Expect::Skip(skip));
    rows.extend([
        skipped("MACsec with encryption", 0x88e5, &[0x0c, 0, 0, 0, 0, 1, 8, 0, 0x45], Skip::Macsec),
        skipped("VN-Tag cut", 0x8926, &[0x80, 1, 0, 2, 8], Skip::TruncatedLink),
        skipped("NSH", 0x894f, &[0x0f, 0xc2, 1, 6, 0, 0, 7, 0], Skip::NonIp),
        skipped("LLC", 0x0040, &[0x42, 0x42, 3, 0, 0, 0, 8, 0], Skip::Llc),
        skipped("five VN-Tags", 0x8926, &[0x80, 1, 0, 2, 0x89, 0x26].repeat(5), Skip::VlanDepth),
    ]);
    rows
}

fn version_4() -> Vec<Row> {
    let options = (0..=40).step_by(4).map(|options| {
        row(format!("{options} bytes of options"), ethernet(&[], IPV4, &ipv4(6, 0, options, &tcp(SYN))), syn(key4(6)))
    });
    let flags = [0x00, 0x01, 0x10, 0x18, 0xff].into_iter().map(|tcp_flags| {
        let frame = ethernet(&[], IPV4, &ipv4(6, 0, 0, &tcp(tcp_flags)));
        row(format!("TCP flags {tcp_flags:#04x}"), frame, Expect::Flow { key: key4(6), tcp_flags, tos: TOS })
    });
    let dont_fragment = row("do not fragment", ethernet(&[], IPV4, &ipv4(6, 0x4000, 0, &tcp(SYN))), syn(key4(6)));
    options.chain(flags).chain([dont_fragment]).collect()
}

fn fragments() -> Vec<Row> {
    let v4 = |name: &str, bits, expect| {
        row(format!("IPv4 {name}"), ethernet(&[], IPV4, &ipv4(17, bits, 0, &ports(16))), expect)
    };
    let v6 = |name: &str, offset, more, expect| {
        row(format!("IPv6 {name}"), ethernet(&[], IPV6, &ipv6(44, &fragment(17, offset, more, &ports(16)))), expect)
    };
    let piece = |key: Key| flow(key.without_ports(Lacks::Fragment));
    vec![
        v4("first fragment", MORE, piece(key4(17))),
        v4("middle fragment", MORE | 2, piece(key4(17))),
        v4("last fragment", 0x1fff, piece(key4(17))),
        v6("first fragment", 0, true, piece(key6(17))),
        v6("atomic fragment", 0, false, flow(key6(17))),
        v6("middle fragment", 2, true, piece(key6(17))),
        v6("last fragment", 0x1fff, false, piece(key6(17))),
        row(
            "a later fragment whose headers are in the first",
            ethernet(&[], IPV6, &ipv6(0, &extension(44, 1, &fragment(60, 3, false, &[9; 16])))),
            piece(key6(60)),
        ),
        row(
            "a first fragment with options behind its header",
            ethernet(&[], IPV6, &ipv6(44, &fragment(60, 0, true, &extension(6, 2, &tcp(SYN))))),
            piece(key6(60)),
        ),
        row("a first fragment with TCP flags", ethernet(&[VLAN], IPV4, &ipv4(6, MORE, 4, &tcp(SYN))), piece(key4(6))),
    ]
}

fn version_6() -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in EXTENSIONS {
        for units in [1, 2, 30] {
            let packet = ipv6(kind, &extension(6, units, &tcp(SYN)));
            rows.push(row(format!("header {kind} of {units} units"), ethernet(&[], IPV6, &packet), syn(key6(6))));
        }
    }
    for depth in 0..=64 {
        let (first, payload) = chain(60, depth, 6, &tcp(SYN));
        let expect = if depth <= 8 { syn(key6(6)) } else { Expect::Skip(Skip::ExtensionDepth) };
        rows.push(row(format!("{depth} headers"), ethernet(&[], IPV6, &ipv6(first, &payload)), expect));
    }
    let ah = |rest: &[u8]| authentication(6, rest);
    let all = extension(43, 1, &extension(60, 2, &extension(51, 3, &ah(&tcp(SYN)))));
    let mixed = extension(60, 1, &extension(43, 2, &extension(44, 3, &fragment(51, 0, false, &ah(&tcp(SYN))))));
    rows.extend([
        row("authentication header", ethernet(&[], IPV6, &ipv6(51, &ah(&tcp(SYN)))), syn(key6(6))),
        row("four kinds of headers", ethernet(&[], IPV6, &ipv6(0, &all)), syn(key6(6))),
        row("five kinds of headers", ethernet(&[], IPV6, &ipv6(0, &mixed)), syn(key6(6))),
        row("nothing behind options", ethernet(&[], IPV6, &ipv6(60, &extension(59, 1, &[]))), without_ports(key6(59))),
        row(
            "nothing in a fragment",
            ethernet(&[], IPV6, &ipv6(44, &fragment(59, 0, false, &[]))),
            without_ports(key6(59)),
        ),
    ]);
    // These three headers may be the payload itself (RFC 6275 section 6.1.1, RFC 7401 section 5.1, RFC 5533 section
    // 5.3).
    rows.extend([135, 139, 140].map(|kind| {
        row(
            format!("{kind} at the end"),
            ethernet(&[], IPV6, &ipv6(kind, &extension(59, 1, &[]))),
            without_ports(key6(kind)),
        )
    }));
    rows
}

fn protocols() -> Vec<Row> {
    let with_ports = [(6, 20), (17, 8), (33, 12), (132, 12), (136, 8)].into_iter().flat_map(|(proto, bytes)| {
        let header = if proto == 6 { tcp(0) } else { ports(bytes) };
        [
            row(
                format!("protocol {proto} over IPv4"),
                ethernet(&[], IPV4, &ipv4(proto, 0, 0, &header)),
                flow(key4(proto)),
            ),
            row(format!("protocol {proto} over IPv6"), ethernet(&[], IPV6, &ipv6(proto, &header)), flow(key6(proto))),
        ]
    });
    let plain = [2, 4, 41, 46, 47, 50, 89, 103, 112, 115, 255].into_iter().flat_map(|proto| {
        [
            row(
                format!("protocol {proto} over IPv4"),
                ethernet(&[], IPV4, &ipv4(proto, 0, 0, &[0x5a; 24])),
                without_ports(key4(proto)),
            ),
            row(
                format!("protocol {proto} over IPv6"),
                ethernet(&[], IPV6, &ipv6(proto, &[0x5a; 24])),
                without_ports(key6(proto)),
            ),
        ]
    });
    // IPv4 has no extension header except AH. The other numbers are ordinary protocols there.
    let only_v4 = [0, 43, 44, 59, 60, 135].into_iter().map(|proto| {
        let frame = ethernet(&[], IPV4, &ipv4(proto, 0, 0, &[6, 0, 0, 0, 0, 0, 0, 0]));
        row(format!("protocol {proto} over IPv4"), frame, without_ports(key4(proto)))
    });
    let ah = |rest: &[u8], proto| authentication(proto, rest);
    let authenticated = [
        row("AH over IPv4", ethernet(&[], IPV4, &ipv4(51, 0, 8, &ah(&tcp(SYN), 6))), syn(key4(6))),
        row(
            "AH and ESP over IPv4",
            ethernet(&[], IPV4, &ipv4(51, 0, 0, &ah(&[0x5a; 16], 50))),
            without_ports(key4(50)),
        ),
        row("AH and options", ethernet(&[], IPV4, &ipv4(51, 0, 0, &ah(&[6; 16], 60))), without_ports(key4(60))),
        row("AH cut", ethernet(&[], IPV4, &ipv4(51, 0, 0, &[6, 4, 0, 0])), Expect::Skip(Skip::TruncatedIp)),
        row("AH in pieces", ethernet(&[], IPV4, &ipv4(51, MORE, 0, &ah(&tcp(SYN), 6))), {
            flow(key4(51).without_ports(Lacks::Fragment))
        }),
    ];
    let icmp = |key: Key, kind, code| flow(Key { src_port: kind, dst_port: code, ..key });
    let both = [
        row("ICMP echo", ethernet(&[], IPV4, &ipv4(1, 0, 0, &[8, 0, 0, 0])), icmp(key4(1), 8, 0)),
        row("ICMP unreachable", ethernet(&[], IPV4, &ipv4(1, 0, 0, &[3, 13, 0, 0])), icmp(key4(1), 3, 13)),
        row("ICMPv6 solicitation", ethernet(&[], IPV6, &ipv6(58, &[135, 0, 0, 0])), icmp(key6(58), 135, 0)),
        row("ICMPv6 by number over IPv4", ethernet(&[], IPV4, &ipv4(58, 0, 0, &[1, 4])), icmp(key4(58), 1, 4)),
        row("no next header", ethernet(&[], IPV6, &ipv6(59, &[0x5a; 30])), without_ports(key6(59))),
    ];
    with_ports.chain(plain).chain(only_v4).chain(authenticated).chain(both).collect()
}

fn not_ip() -> Vec<Row> {
    let kinds = [
        (0x0806, Skip::Arp),
        (0x88cc, Skip::Lldp),
        (0x0000, Skip::Llc),
        (0x0026, Skip::Llc),
        (0x05dc, Skip::Llc),
        (0x05ff, Skip::Llc),
        (0x0600, Skip::NonIp),
        (0x8863, Skip::Pppoe),
        (0x8864, Skip::Pppoe),
        (0x88e5, Skip::Macsec),
        (0x88f7, Skip::NonIp),
        (0x8035, Skip::NonIp),
        (0xffff, Skip::NonIp),
    ];
    let row_of = |(ethertype, skip)| {
        row(format!("EtherType {ethertype:#06x}"), ethernet(&[], ethertype, &[0x45; 46]), Expect::Skip(skip))
    };
    kinds.into_iter().map(row_of).collect()
}

fn cut() -> Vec<Row> {
    let mut rows = vec![
        row("the smallest frame", ethernet(&[], 0x0806, &[]), Expect::Skip(Skip::Arp)),
        row("the smallest frame, of IPv4", ethernet(&[], IPV4, &[]), Expect::Skip(Skip::TruncatedIp)),
        row("the smallest frame, of IPv6", ethernet(&[], IPV6, &[]), Expect::Skip(Skip::TruncatedIp)),
        row("a tag and no more", ethernet(&[], VLAN, &[]), Expect::Skip(Skip::TruncatedLink)),
        row("a tag without its type", ethernet(&[], VLAN, &[0, 1, 8]), Expect::Skip(Skip::TruncatedLink)),
    ];
    for (version, ethertype, packet, headers, key) in [
        (4, IPV4, ipv4(6, 0, 0, &tcp(SYN)), 20, key4(6)),
        (4, IPV4, ipv4(6, 0, 8, &tcp(SYN)), 28, key4(6)),
        (6, IPV6, ipv6(6, &tcp(SYN)), 40, key6(6)),
        (6, IPV6, ipv6(60, &extension(6, 1, &tcp(SYN))), 48, key6(6)),
    ] {
        for end in 1..=packet.len() {
            let expect = match end.checked_sub(headers) {
                Some(14..) => syn(key),
                Some(4..) => flow(key),
                _ if end >= headers => flow(key.without_ports(Lacks::Transport)),
                _ => Expect::Skip(Skip::TruncatedIp),
            };
            rows.push(row(
                format!("IPv{version} cut to {end} of {headers}"),
                ethernet(&[], ethertype, &packet[..end]),
                expect,
            ));
        }
    }
    let icmp = |end: usize| ethernet(&[], IPV4, &ipv4(1, 0, 0, &[8, 0][..end]));
    let cut_icmp = flow(key4(1).without_ports(Lacks::Transport));
    rows.extend([row("ICMP without its code", icmp(1), cut_icmp), row("ICMP without its type", icmp(0), cut_icmp)]);
    rows
}

fn malformed() -> Vec<Row> {
    let changed = |ethertype, mut packet: Vec<u8>, first: u8| {
        packet[0] = first;
        row(
            format!("{ethertype:#06x} beginning {first:#04x}"),
            ethernet(&[], ethertype, &packet),
            Expect::Skip(Skip::BadIpHeader),
        )
    };
    let (v4, v6) = (ipv4(6, 0, 0, &tcp(SYN)), ipv6(6, &tcp(SYN)));
    let mut rows: Vec<_> = (0..=0xff_u8)
        .step_by(0x11)
        .map(|first| first & 0xf0 | 5)
        .filter(|first| first >> 4 != 4)
        .map(|first| changed(IPV4, v4.clone(), first))
        .collect();
    rows.extend((0..5).map(|words| changed(IPV4, v4.clone(), 0x40 | words)));
    rows.extend((0..16).filter(|version| *version != 6).map(|version| changed(IPV6, v6.clone(), version << 4)));
    let mut longest = v4;
    longest[0] = 0x4f;
    rows.push(row("60 bytes of header in 40", ethernet(&[], IPV4, &longest), Expect::Skip(Skip::TruncatedIp)));
    rows
}

/// Frames with a tunnel, with the expected result outside and inside.
fn tunnelled() -> Vec<(Case, Case)> {
    let (v4, v6) = (ipv4(6, 0, 0, &tcp(SYN)), ipv6(6, &tcp(SYN)));
    let (frame4, frame6) = (ethernet(&[], IPV4, &v4), ethernet(&[PROVIDER, VLAN], IPV6, &v6));
    let (in4, in6) = (syn(key4(6)), syn(key6(6)));
    let segment_routed = ipv6(43, &extension(41, 5, &v6));
    let mut rows = Vec::new();
    let mut over = |name: &str, proto: u8, payload: &[u8], inner: Option<Expect>| {
        for (version, frame, key) in [
            (4, ethernet(&[], IPV4, &ipv4(proto, 0, 0, payload)), key4(proto)),
            (6, ethernet(&[VLAN], IPV6, &ipv6(proto, payload)), key6(proto)),
        ] {
            let outer = match payload {
                [high, low, to_high, to_low, ..] if proto == 17 => flow(Key {
                    src_port: u16::from_be_bytes([*high, *low]),
                    dst_port: u16::from_be_bytes([*to_high, *to_low]),
                    ..key
                }),
                _ => without_ports(key),
            };
            let name = format!("{name} over IPv{version}");
            rows.push((name, frame, outer, inner.unwrap_or(outer)));
        }
    };
    over("IPv4 in IP", 4, &v4, Some(in4));
    over("IPv6 in IP", 41, &v6, Some(in6));
    over("IPv6 that says IPv4 in IP", 4, &v6, None);
    over("AH in IP in IP", 4, &ipv4(51, 0, 0, &authentication(6, &tcp(SYN))), Some(in4));
    over("a fragment in IP", 4, &ipv4(6, MORE, 0, &tcp(SYN)), Some(flow(key4(6).without_ports(Lacks::Fragment))));
    over("ARP in Ethernet in IP", 143, &ethernet(&[], 0x0806, &[0; 28]), None);
    over("Ethernet in IP", 143, &frame6, Some(in6));
    over("MPLS in IP", 137, &labels(4, &v4), Some(in4));
    over("too much MPLS in IP", 137, &labels(5, &v4), None);
    let gre = |flags: u16, kind: u16, rest: &[u8]| [&flags.to_be_bytes(), &kind.to_be_bytes(), rest].concat();
    for fields in 0..8_u16 {
        // Checksum, key, sequence number.
        let flags = (fields & 4) << 13 | (fields & 2) << 12 | (fields & 1) << 12;
        let optional = vec![0x5a; 4 * fields.count_ones() as usize];
        over(&format!("GRE {flags:#06x}"), 47, &gre(flags, IPV4, &[&optional[..], &v4].concat()), Some(in4));
    }
    over("IPv6 in GRE", 47, &gre(0, IPV6, &v6), Some(in6));
    over("MPLS in GRE", 47, &gre(0, MPLS, &labels(2, &v6)), Some(in6));
    over("NVGRE", 47, &gre(0x2000, 0x6558, &[&[0, 0, 7, 0], &frame6[..]].concat()), Some(in6));
    over("PPTP", 47, &gre(0x2081, 0x880b, &[0x21; 40]), None);
    over("GRE with routes", 47, &gre(0x4000, IPV4, &v4), None);
    over("GRE keepalive", 47, &gre(0, 0, &[]), None);
    over("ERSPAN I", 47, &gre(0, 0x88be, &frame4), Some(in4));
    over("ERSPAN II", 47, &gre(0x1000, 0x88be, &[&[0x10; 12], &frame6[..]].concat()), Some(in6));
    let third = |last: [u8; 2], rest: &[u8]| [&[0; 4][..], &[0x20; 10], &last[..], rest].concat();
    over("ERSPAN III", 47, &gre(0x1000, 0x22eb, &third([0x80, 0x10], &frame4)), Some(in4));
    let subheader = [&[0x5a; 8], &frame4[..]].concat();
    over("ERSPAN III with a subheader", 47, &gre(0x1000, 0x22eb, &third([0x80, 1], &subheader)), Some(in4));
    over("ERSPAN III of another frame type", 47, &gre(0x1000, 0x22eb, &third([0x08, 0], &frame4)), None);
    let udp = |port: u16, rest: &[u8]| [&SRC_PORT.to_be_bytes()[..], &port.to_be_bytes(), &[0; 4], rest].concat();
    let vni = |first: [u8; 4], rest: &[u8]| [&first[..], &[0, 0, 7, 0], rest].concat();
    over("VXLAN", 17, &udp(4789, &vni([8, 0, 0, 0], &frame4)), Some(in4));
    over("VXLAN with tags", 17, &udp(4789, &vni([8, 0, 0, 0], &frame6)), Some(in6));
    over("VXLAN with a group policy", 17, &udp(4789, &vni([0x88, 0, 0, 9], &frame4)), Some(in4));
    over("VXLAN without identifier", 17, &udp(4789, &vni([0, 0, 0, 0], &frame4)), None);
    over("VXLAN of ARP", 17, &udp(4789, &vni([8, 0, 0, 0], &ethernet(&[], 0x0806, &[0; 28]))), None);
    over("VXLAN cut in its frame", 17, &udp(4789, &vni([8, 0, 0, 0], &frame4[..30])), None);
    over("VXLAN-GPE of IPv4", 17, &udp(4790, &vni([0x0c, 0, 0, 1], &v4)), Some(in4));
    over("VXLAN-GPE of IPv6", 17, &udp(4790, &vni([0x0c, 0, 0, 2], &v6)), Some(in6));
    over("VXLAN-GPE of Ethernet", 17, &udp(4790, &vni([0x0c, 0, 0, 3], &frame6)), Some(in6));
    over("VXLAN-GPE of MPLS", 17, &udp(4790, &vni([0x0c, 0, 0, 5], &labels(1, &v6))), Some(in6));
    over("VXLAN-GPE of NSH", 17, &udp(4790, &vni([0x0c, 0, 0, 4], &v4)), None);
    for words in [0, 1, 31, 63] {
        let options = vec![0x5a; 4 * usize::from(words)];
        let of = |kind: u16, rest: &[u8]| {
            let [high, low] = kind.to_be_bytes();
            udp(6081, &vni([words, 0, high, low], &[&options[..], rest].concat()))
        };
        over(&format!("Geneve of Ethernet, {words} words"), 17, &of(0x6558, &frame6), Some(in6));
        over(&format!("Geneve of IPv4, {words} words"), 17, &of(IPV4, &v4), Some(in4));
    }
    over("Geneve control", 17, &udp(6081, &vni([0, 0x80, 0x65, 0x58], &frame4)), None);
    over("another version of Geneve", 17, &udp(6081, &vni([0x40, 0, 0x65, 0x58], &frame4)), None);
    let gtp = |flags: u8, kind: u8, rest: &[u8]| udp(2152, &[&[flags, kind, 0, 0, 0, 0, 0, 7], rest].concat());
    over("GTP-U", 17, &gtp(0x30, 255, &v4), Some(in4));
    over("GTP-U with a sequence number", 17, &gtp(0x32, 255, &[&[0, 1, 0, 0], &v6[..]].concat()), Some(in6));
    for extensions in 0..=6_usize {
        let mut rest = vec![0, 0, 0];
        for units in (1..=2).cycle().take(extensions) {
            rest.push(0x85);
            rest.push(units);
            rest.resize(rest.len() + 4 * usize::from(units) - 2, 0x5a);
        }
        rest.push(0);
        let inner = (extensions <= 4).then_some(in4);
        over(&format!("GTP-U, {extensions} headers"), 17, &gtp(0x34, 255, &[&rest, &v4[..]].concat()), inner);
    }
    over("GTP-U with an empty header", 17, &gtp(0x34, 255, &[&[0, 0, 0, 0x85, 0], &v4[..]].concat()), None);
    over("GTP-U echo", 17, &gtp(0x32, 1, &[&[0, 1, 0, 0], &v4[..]].concat()), None);
    over("GTP'", 17, &gtp(0x20, 255, &v4), None);
    over("GTP-U of something else", 17, &gtp(0x30, 255, &[0x21; 40]), None);
    let deep = |tunnels: usize| (0..tunnels).fold(v4.clone(), |packet, _| ipv4(4, 0, 0, &packet));
    over("two tunnels", 4, &deep(1), Some(in4));
    over("three tunnels", 4, &deep(2), Some(without_ports(key4(4))));
    over("four tunnels", 4, &deep(3), Some(without_ports(key4(4))));
    over("ESP in IP", 4, &ipv4(50, 0, 0, &[0x5a; 40]), Some(without_ports(key4(50))));
    rows.extend([
        ("SRv6".to_owned(), ethernet(&[], IPV6, &segment_routed), without_ports(key6(41)), in6),
        (
            "a first fragment of a tunnel".to_owned(),
            ethernet(&[], IPV4, &ipv4(4, MORE, 0, &v4)),
            flow(key4(4).without_ports(Lacks::Fragment)),
            flow(key4(4).without_ports(Lacks::Fragment)),
        ),
    ]);
    rows.into_iter()
        .map(|(name, frame, outer, inner)| {
            let inside = Case { name: format!("{name}, inside"), frame: frame.clone(), expect: inner };
            (Case { name, frame, expect: outer }, inside)
        })
        .collect()
}

/// Large frames, and headers at the end of the parser's reach.
fn far() -> Vec<Row> {
    let jumbo = |bytes: usize| {
        let mut frame = ethernet(&[], IPV4, &ipv4(17, 0, 0, &ports(8)));
        frame.resize(bytes, 0x5a);
        row(format!("a frame of {bytes} bytes"), frame, flow(key4(17)))
    };
    let mut rows: Vec<_> = [60, 1514, 3000, 3500, 4096, 4097, 9018, 40_000].map(jumbo).into();
    // Ethernet has 14 bytes and IPv6 has 40. With this many bytes of extension headers, only the first byte of the
    // transport header is within the reach of 512 bytes.
    for (fill, expect) in [
        (54, syn(key6(6))),
        // The TCP flags are beyond the reach, and the ports within.
        (55, flow(key6(6))),
        (56, flow(key6(6).without_ports(Lacks::Transport))),
        (57, flow(key6(6).without_ports(Lacks::Transport))),
    ] {
        let payload = extension(60, 1, &extension(6, fill, &tcp(SYN)));
        rows.push(row(format!("TCP behind {fill} units"), ethernet(&[], IPV6, &ipv6(0, &payload)), expect));
    }
    let beyond = extension(60, 58, &extension(6, 1, &tcp(SYN)));
    rows.push(row("a header beyond reach", ethernet(&[], IPV6, &ipv6(0, &beyond)), Expect::Skip(Skip::TruncatedIp)));
    let long = extension(60, 255, &extension(6, 1, &tcp(SYN)));
    rows.push(row("a header of 2,040 bytes", ethernet(&[], IPV6, &ipv6(0, &long)), Expect::Skip(Skip::TruncatedIp)));
    rows
}
