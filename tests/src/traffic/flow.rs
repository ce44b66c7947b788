//! Flows: the same seed and index always give the same flow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pnet::util::MacAddr;

use super::{
    Mix,
    random::{Random, scatter},
};
use crate::truth::{Key, Lacks};

/// Protocol numbers (IANA) that the generator treats specially.
pub mod proto {
    #![allow(missing_docs, reason = "the names are IANA's")]
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const DCCP: u8 = 33;
    pub const GRE: u8 = 47;
    pub const ESP: u8 = 50;
    pub const ICMPV6: u8 = 58;
    pub const NO_NEXT_HEADER: u8 = 59;
    pub const OSPF: u8 = 89;
    pub const PIM: u8 = 103;
    pub const VRRP: u8 = 112;
    pub const SCTP: u8 = 132;
    pub const MOBILITY: u8 = 135;
    pub const UDP_LITE: u8 = 136;
}

/// Sources have this many address bits in `10.0.0.0/8`, which limits their number.
pub const SOURCE_BITS: u32 = 24;
/// Destinations have this many address bits in `100.64.0.0/10`.
pub const DESTINATION_BITS: u32 = 22;
/// Source ports begin at 1024; each flow of a source has a different one.
pub const FLOWS_PER_SOURCE_MAX: u32 = 65_536 - PORT_FIRST;
const PORT_FIRST: u32 = 1024;
/// Coprime to [`FLOWS_PER_SOURCE_MAX`], so that the ports of neighbouring flows are far apart and always different.
const PORT_STRIDE: u32 = 10_007;

/// The properties of a population of flows.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    /// The seed, which makes this population differ from another.
    pub seed: u64,
    /// How many sources the flows share: flow `i` belongs to source `i % sources`.
    pub sources: u32,
    /// How many destinations they share. Each flow of a protocol without ports has a separate destination in addition.
    pub destinations: u32,
    /// The shares of protocols and versions.
    pub mix: Mix,
}

/// How large a flow's packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Mostly full frames: a download.
    Bulk,
    /// Anything small: a conversation.
    Interactive,
    /// Mostly minimal frames: acknowledgements.
    Minimal,
}

/// A flow: constant for its seed and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The key of its whole packets.
    pub key: Key,
    /// The sender's link-layer address.
    pub src_mac: MacAddr,
    /// VLAN identifiers, outermost first; 0 where there is no tag.
    pub vlans: [u16; 2],
    /// The TOS byte of its packets, or their traffic class.
    pub tos: u8,
    /// The headers between the link layer and IP.
    pub shim: Shim,
    /// How large its packets are.
    pub sizes: Sizes,
}

/// The headers between the link layer and IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shim {
    /// No header.
    None,
    /// A PPP-over-Ethernet session (RFC 2516).
    Pppoe,
    /// This many MPLS labels (RFC 3032).
    Mpls(u8),
    /// Both: MPLS over PPP over Ethernet.
    MplsOverPppoe(u8),
}

impl Flow {
    /// Flow `index` of the population. Different indexes have different keys.
    ///
    /// The index is `source + sources * nth`. The source number is in the source address; `nth` is in the source port,
    /// or in the destination address if the protocol has no ports.
    pub fn new(population: &Population, index: u32) -> Self {
        let Population { seed, sources, destinations, mix } = *population;
        let mut random = Random::of(seed, u64::from(index));
        let (source, nth) = (index % sources, index / sources);
        let v6 = random.chance(mix.ipv6);
        let proto = protocol(&mut random, &mix, v6);
        let (src_port, dst_port, destination) = if has_ports(proto) {
            let src_port = port(source, nth, seed);
            (src_port, service(&mut random, proto), random.between(0, destinations as usize - 1) as u32)
        } else {
            let (kind, code) = icmp(&mut random, proto);
            (kind, code, destinations + nth)
        };
        let key = Key {
            src: source_ip(source, v6, seed),
            dst: destination_ip(destination, v6, seed),
            src_port,
            dst_port,
            proto,
            lacks: Lacks::Nothing,
        };
        let [_, high, middle, low] = source.to_be_bytes();
        let src_mac = MacAddr::new(0x02, 0x77, 0, high, middle, low);
        let (vlans, shim, sizes) = (vlans(&mut random, &mix), shim(&mut random, &mix), sizes(&mut random));
        Self { key, src_mac, vlans, tos: tos(&mut random), shim, sizes }
    }

    /// Returns true if it is IPv6.
    pub fn is_v6(&self) -> bool {
        self.key.src.is_ipv6()
    }

    /// Returns true if the key has fields of the transport header: ports, or ICMP's type and code.
    pub fn reads_transport(&self) -> bool {
        has_ports(self.key.proto) || matches!(self.key.proto, proto::ICMP | proto::ICMPV6)
    }
}

fn has_ports(proto: u8) -> bool {
    matches!(proto, proto::TCP | proto::UDP | proto::SCTP | proto::DCCP | proto::UDP_LITE)
}

fn protocol(random: &mut Random, mix: &Mix, v6: bool) -> u8 {
    const OTHERS_V4: [u8; 12] = [
        proto::GRE,
        proto::ESP,
        proto::OSPF,
        proto::PIM,
        proto::VRRP,
        proto::DCCP,
        proto::UDP_LITE,
        2,   // IGMP
        4,   // IPv4 in IPv4
        41,  // IPv6 in IPv4
        46,  // RSVP
        253, // for experiments (RFC 3692)
    ];
    const OTHERS_V6: [u8; 9] = [
        proto::GRE,
        proto::ESP,
        proto::OSPF,
        proto::PIM,
        proto::VRRP,
        proto::DCCP,
        proto::UDP_LITE,
        proto::MOBILITY,
        proto::NO_NEXT_HEADER,
    ];
    let mut left = random.unit();
    let icmp = if v6 { proto::ICMPV6 } else { proto::ICMP };
    for (share, proto) in [(mix.tcp, proto::TCP), (mix.udp, proto::UDP), (mix.icmp, icmp), (mix.sctp, proto::SCTP)] {
        if left < share {
            return proto;
        }
        left -= share;
    }
    if v6 { random.pick(&OTHERS_V6) } else { random.pick(&OTHERS_V4) }
}

fn port(source: u32, nth: u32, seed: u64) -> u16 {
    let offset = Random::of(seed, u64::from(source)).between(0, FLOWS_PER_SOURCE_MAX as usize - 1) as u64;
    let place = (u64::from(nth) * u64::from(PORT_STRIDE) + offset) % u64::from(FLOWS_PER_SOURCE_MAX);
    (u64::from(PORT_FIRST) + place) as u16
}

/// A destination port: usually one of a few common ones, otherwise any.
fn service(random: &mut Random, proto: u8) -> u16 {
    const TCP: [u16; 10] = [443, 443, 443, 443, 80, 80, 22, 25, 993, 8080];
    const UDP: [u16; 8] = [443, 443, 443, 53, 53, 123, 4500, 51820];
    const OTHER: [u16; 3] = [3868, 5060, 38412];
    if random.chance(0.1) {
        return random.between(1024, 65_535) as u16;
    }
    match proto {
        proto::TCP => random.pick(&TCP),
        proto::UDP => random.pick(&UDP),
        _ => random.pick(&OTHER),
    }
}

/// ICMP type and code; at least one is not 0, unless it is an echo reply. Zeros for other protocols.
fn icmp(random: &mut Random, proto: u8) -> (u16, u16) {
    const V4: [(u16, u16); 6] = [(8, 0), (8, 0), (0, 0), (3, 1), (3, 4), (11, 0)];
    const V6: [(u16, u16); 6] = [(128, 0), (128, 0), (129, 0), (1, 4), (2, 0), (135, 0)];
    match proto {
        proto::ICMP => random.pick(&V4),
        proto::ICMPV6 => random.pick(&V6),
        _ => (0, 0),
    }
}

fn source_ip(source: u32, v6: bool, seed: u64) -> IpAddr {
    const V4: u32 = u32::from_be_bytes([10, 0, 0, 0]);
    const V6: u64 = 0x2001_0db8_0001_0000;
    ip(V4, V6, SOURCE_BITS, source, v6, seed)
}

fn destination_ip(destination: u32, v6: bool, seed: u64) -> IpAddr {
    const V4: u32 = u32::from_be_bytes([100, 64, 0, 0]);
    const V6: u64 = 0x2001_0db8_0002_0000;
    ip(V4, V6, DESTINATION_BITS, destination, v6, seed)
}

/// Host `number` of a network: its IPv4 address, or its IPv6 address in one of 65,536 subnets.
fn ip(v4: u32, v6: u64, bits: u32, number: u32, is_v6: bool, seed: u64) -> IpAddr {
    let number = u64::from(number);
    if is_v6 {
        let interface = scatter(number, 64, seed);
        let subnet = Random::of(seed, number).bits() & 0xffff;
        Ipv6Addr::from(u128::from(v6 | subnet) << 64 | u128::from(interface)).into()
    } else {
        Ipv4Addr::from(v4 | scatter(number, bits, seed) as u32).into()
    }
}

/// A TOS byte: mostly 0, otherwise ECN (RFC 3168), expedited forwarding, network control, a class (RFC 4594), or all
/// bits.
fn tos(random: &mut Random) -> u8 {
    const LIKELY: [u8; 12] = [0, 0, 0, 0, 0, 0, 0x01, 0x02, 0xb8, 0xc0, 0x2b, 0xff];
    random.pick(&LIKELY)
}

fn vlans(random: &mut Random, mix: &Mix) -> [u16; 2] {
    const LAST: usize = 4094;
    let tags = random.unit();
    let mut tag = || random.between(1, LAST) as u16;
    if tags < mix.vlan {
        [tag(), 0]
    } else if tags < mix.vlan + mix.qinq {
        [tag(), tag()]
    } else {
        [0, 0]
    }
}

fn shim(random: &mut Random, mix: &Mix) -> Shim {
    const LABELS: (usize, usize) = (1, 4);
    if !random.chance(mix.shims) {
        return Shim::None;
    }
    let labels = random.between(LABELS.0, LABELS.1) as u8;
    random.pick(&[Shim::Pppoe, Shim::Mpls(labels), Shim::MplsOverPppoe(labels)])
}

fn sizes(random: &mut Random) -> Sizes {
    random.pick(&[Sizes::Bulk, Sizes::Bulk, Sizes::Interactive, Sizes::Interactive, Sizes::Minimal])
}
