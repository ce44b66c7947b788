//! Makes seeded traffic with known content.
//!
//! Zipf's law decides which flow a packet belongs to. The seed and the flow's index decide what the flow looks like.
//! Oddities (fragments, options, extension headers, damage) are drawn for each packet. The same [`Plan`] always gives
//! the same bytes.

use anyhow::{Result, ensure};

use crate::truth::{Key, Lacks, Truth};

mod flow;
mod frame;
pub mod random;
pub mod tunnel;

pub use flow::{DESTINATION_BITS, FLOWS_PER_SOURCE_MAX, Flow, SOURCE_BITS, proto};
pub use frame::{FRAME_MAX, FRAME_MIN, HEADERS_MAX, checksum};

use flow::{Population, Shim, Sizes};
use frame::{Datagram, Extension, NonIp, Piece};
use random::{Random, Zipf};

/// The settings of the traffic to make.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed: it makes this traffic differ from other traffic of the same plan.
    pub seed: u64,
    /// The number of packets.
    pub packets: u64,
    /// The number of possible flows (not all of them need occur).
    pub flows: u32,
    /// The exponent of Zipf's law by which flows are chosen; 0 makes all equally likely.
    pub zipf: f64,
    /// How many flows share a source, at most [`FLOWS_PER_SOURCE_MAX`].
    pub flows_per_source: u32,
    /// How many flows share a destination, on average.
    pub flows_per_destination: u32,
    /// The composition of the packets.
    pub mix: Mix,
}

impl Default for Plan {
    /// 10,000 packets of 1,000 flows from 250 sources, with everything that a router sees.
    fn default() -> Self {
        Self {
            seed: 1,
            packets: 10_000,
            flows: 1_000,
            zipf: 1.0,
            flows_per_source: 4,
            flows_per_destination: 8,
            mix: Mix::default(),
        }
    }
}

impl Plan {
    fn population(&self) -> Result<Population> {
        let Self { seed, flows, zipf, flows_per_source, flows_per_destination, mix, packets: _ } = *self;
        ensure!(flows > 0, "flows: 0 is below the minimum of 1");
        ensure!(zipf.is_finite() && zipf >= 0.0, "zipf: {zipf} is not a number from 0 up");
        ensure!(
            (1..=FLOWS_PER_SOURCE_MAX).contains(&flows_per_source),
            "flows_per_source: {flows_per_source} is not from 1 to {FLOWS_PER_SOURCE_MAX}"
        );
        ensure!(flows_per_destination > 0, "flows_per_destination: 0 is below the minimum of 1");
        mix.check()?;
        let (sources, destinations) = (flows.div_ceil(flows_per_source), flows.div_ceil(flows_per_destination));
        ensure!(sources <= 1 << SOURCE_BITS, "flows: {sources} sources are more than 2^{SOURCE_BITS}");
        ensure!(
            destinations.saturating_add(flows_per_source) <= 1 << DESTINATION_BITS,
            "flows: {destinations} destinations are more than 2^{DESTINATION_BITS}"
        );
        Ok(Population { seed, sources, destinations, mix })
    }
}

/// The composition of traffic, as shares from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Flows that are IPv6.
    pub ipv6: f64,
    /// Flows that are TCP.
    pub tcp: f64,
    /// Flows that are UDP.
    pub udp: f64,
    /// Flows that are ICMP or `ICMPv6`.
    pub icmp: f64,
    /// Flows that are SCTP. What is left is other protocols: GRE, ESP, OSPF, DCCP and more.
    pub sctp: f64,
    /// Flows with one VLAN tag.
    pub vlan: f64,
    /// Flows with two VLAN tags.
    pub qinq: f64,
    /// Flows behind a PPP-over-Ethernet session or MPLS labels.
    pub shims: f64,
    /// IPv4 packets with options.
    pub options: f64,
    /// IPv6 packets with extension headers, and IPv4 packets with an authentication header.
    pub extensions: f64,
    /// IP packets that are fragments.
    pub fragments: f64,
    /// Packets that are not IP.
    pub non_ip: f64,
    /// Packets that are IP and damaged: the wrong version, too short, too deep.
    pub damaged: f64,
}

impl Default for Mix {
    fn default() -> Self {
        Self::ROUTER
    }
}

impl Mix {
    /// Roughly the traffic of a router in the middle of a provider's network; the default.
    pub const ROUTER: Self = Self {
        ipv6: 0.3,
        tcp: 0.68,
        udp: 0.24,
        icmp: 0.03,
        sctp: 0.01,
        vlan: 0.15,
        qinq: 0.05,
        shims: 0.02,
        options: 0.01,
        extensions: 0.03,
        fragments: 0.01,
        non_ip: 0.01,
        damaged: 0.002,
    };
    /// TCP and UDP over IPv4 and IPv6, and nothing else: every packet has ports.
    pub const PLAIN: Self = Self {
        ipv6: 0.3,
        tcp: 0.75,
        udp: 0.25,
        icmp: 0.0,
        sctp: 0.0,
        vlan: 0.0,
        qinq: 0.0,
        shims: 0.0,
        options: 0.0,
        extensions: 0.0,
        fragments: 0.0,
        non_ip: 0.0,
        damaged: 0.0,
    };

    /// Returns [`Mix::PLAIN`].
    pub const fn plain() -> Self {
        Self::PLAIN
    }

    /// Traffic with as many rare kinds of packets as possible.
    pub fn odd() -> Self {
        Self {
            ipv6: 0.5,
            tcp: 0.3,
            udp: 0.2,
            icmp: 0.15,
            sctp: 0.1,
            vlan: 0.3,
            qinq: 0.3,
            shims: 0.2,
            options: 0.3,
            extensions: 0.6,
            fragments: 0.3,
            non_ip: 0.1,
            damaged: 0.2,
        }
    }

    fn check(&self) -> Result<()> {
        let Self { ipv6, tcp, udp, icmp, sctp, vlan, qinq, shims, options, extensions, fragments, non_ip, damaged } =
            *self;
        for (name, share) in [
            ("ipv6", ipv6),
            ("tcp", tcp),
            ("udp", udp),
            ("icmp", icmp),
            ("sctp", sctp),
            ("vlan", vlan),
            ("qinq", qinq),
            ("shims", shims),
            ("options", options),
            ("extensions", extensions),
            ("fragments", fragments),
            ("non_ip", non_ip),
            ("damaged", damaged),
        ] {
            ensure!((0.0..=1.0).contains(&share), "mix.{name}: {share} is not a share from 0 to 1");
        }
        // Because of rounding, shares such as 0.7 and 0.3 may add up to a little more than 1.
        const ONE: f64 = 1.0 + 1e-9;
        ensure!(tcp + udp + icmp + sctp <= ONE, "mix: tcp, udp, icmp and sctp add up to more than 1");
        ensure!(vlan + qinq <= ONE, "mix: vlan and qinq add up to more than 1");
        Ok(())
    }
}

/// A packet and all that is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The Ethernet frame, from [`FRAME_MIN`] to [`FRAME_MAX`] bytes, without the frame check sequence.
    pub frame: Vec<u8>,
    /// The truth that weir must find in it.
    pub truth: Truth,
}

impl Packet {
    fn new(frame: Vec<u8>, key: Key, tcp_flags: u8, flow: &Flow) -> Self {
        let (bytes, vlan) = (frame.len() as u64, flow.vlans[0]);
        Self { frame, truth: Truth { flow: Ok(key), tcp_flags, tos: flow.tos, vlan, bytes } }
    }

    fn skipped(frame: Vec<u8>, reason: &'static str) -> Self {
        let bytes = frame.len() as u64;
        Self { frame, truth: Truth { flow: Err(reason), tcp_flags: 0, tos: 0, vlan: 0, bytes } }
    }
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

/// The packets of a plan, in order.
#[derive(Clone, Debug)]
pub struct Traffic {
    population: Population,
    zipf: Zipf,
    random: Random,
    left: u64,
}

impl Traffic {
    /// Prepares the plan: 8 bytes a flow.
    ///
    /// # Errors
    ///
    /// The plan is impossible; the error has the field, its value and the limit.
    pub fn new(plan: Plan) -> Result<Self> {
        Ok(Self {
            population: plan.population()?,
            zipf: Zipf::new(plan.flows, plan.zipf),
            random: Random::new(plan.seed),
            left: plan.packets,
        })
    }

    /// Returns the flow with this index in the plan.
    pub fn flow(&self, index: u32) -> Flow {
        Flow::new(&self.population, index)
    }

    fn packet(&mut self) -> Packet {
        let mix = self.population.mix;
        if self.random.chance(mix.non_ip) {
            return non_ip(&mut self.random);
        }
        let rank = self.zipf.rank(&mut self.random);
        let flow = self.flow(rank);
        if self.random.chance(mix.damaged) {
            damaged(&mut self.random, flow)
        } else {
            ordinary(&mut self.random, &mix, flow)
        }
    }
}

impl Iterator for Traffic {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        self.left = self.left.checked_sub(1)?;
        Some(self.packet())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.left) {
            Ok(left) => (left, Some(left)),
            Err(_) => (usize::MAX, None),
        }
    }
}

fn non_ip(random: &mut Random) -> Packet {
    let kind = random.pick(&NonIp::LIKELY);
    let vlans: &[u16] = if random.chance(0.1) { &[7] } else { &[] };
    let wanted = random.between(FRAME_MIN, FRAME_MAX);
    Packet::skipped(kind.encode(vlans, wanted), kind.reason())
}

/// A packet with a key, perhaps with fragments, options or other headers that make the key hard to find.
fn ordinary(random: &mut Random, mix: &Mix, flow: Flow) -> Packet {
    let mut datagram = Datagram::plain(flow);
    datagram.tcp_flags = tcp_flags(random);
    if flow.is_v6() {
        // After an extension header, "no next header" would make that header's number the protocol of the key.
        if flow.key.proto != proto::NO_NEXT_HEADER && random.chance(mix.extensions) {
            datagram.extensions = extensions(random);
        }
    } else {
        if random.chance(mix.options) {
            datagram.options = 4 * random.between(1, 10);
        }
        if random.chance(mix.extensions / 4.0) {
            datagram.extensions = vec![Extension::Authentication(random.between(2, 3) as u8)];
        }
    }
    // Each fragment of an IPv4 packet states the protocol of its first header.
    let begins_otherwise = !flow.is_v6() && !datagram.extensions.is_empty();
    if flow.key.proto != proto::NO_NEXT_HEADER && !begins_otherwise && random.chance(mix.fragments) {
        datagram.piece = piece(random);
    }
    let frame = datagram.encode(size(random, flow.sizes));
    if datagram.piece != Piece::Whole {
        return Packet::new(frame, flow.key.without_ports(Lacks::Fragment), 0, &flow);
    }
    let tcp_flags = if flow.key.proto == proto::TCP { datagram.tcp_flags } else { 0 };
    Packet::new(frame, flow.key, tcp_flags, &flow)
}

/// Mostly ACK, sometimes SYN, FIN or URG (RFC 9293 section 3.1, RFC 3168).
fn tcp_flags(random: &mut Random) -> u8 {
    const LIKELY: [u8; 16] =
        [0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x18, 0x18, 0x18, 0x18, 0x02, 0x12, 0x11, 0x04, 0xd0];
    random.pick(&LIKELY)
}

fn piece(random: &mut Random) -> Piece {
    /// With a larger offset, in units of eight bytes, a fragment would exceed the largest datagram.
    const OFFSET_MAX: usize = (65_535 - FRAME_MAX) / 8;
    if random.chance(0.4) {
        return Piece::First;
    }
    Piece::Later { offset: random.between(1, OFFSET_MAX) as u16, more: random.chance(0.5) }
}

/// One to eight headers in the order that RFC 8200 section 4.1 recommends, or in any order.
fn extensions(random: &mut Random) -> Vec<Extension> {
    const DEPTH_MAX: usize = 7; // a fragment header may follow, and eight are walked
    if random.chance(0.05) {
        return vec![Extension::Destination(1); DEPTH_MAX];
    }
    let mut chain = Vec::new();
    if random.chance(0.5) {
        chain.push(Extension::HopByHop(random.between(1, 3) as u8));
    }
    if random.chance(0.3) {
        chain.push(Extension::Routing(random.between(1, 5) as u8));
    }
    if random.chance(0.2) {
        chain.push(Extension::Authentication(random.between(2, 3) as u8));
    }
    if chain.is_empty() || random.chance(0.3) {
        chain.push(Extension::Destination(random.between(1, 4) as u8));
    }
    chain
}

/// The size of a frame in bytes, by the size distribution of its flow.
fn size(random: &mut Random, sizes: Sizes) -> usize {
    let (often, common, rare) = match sizes {
        Sizes::Bulk => (0.8, (FRAME_MAX, FRAME_MAX), (FRAME_MIN, FRAME_MAX)),
        Sizes::Interactive => (0.7, (FRAME_MIN, 300), (300, 1000)),
        Sizes::Minimal => (0.95, (FRAME_MIN, 66), (FRAME_MIN, 500)),
    };
    let (from, to) = if random.chance(often) { common } else { rare };
    random.between(from, to)
}

/// A damaged packet of the flow.
fn damaged(random: &mut Random, flow: Flow) -> Packet {
    /// The first byte of an IPv4 header that claims the maximum length, 60 bytes.
    const LONGEST: u8 = 0x4f;
    /// More tags than the parser reads, which is four.
    const TAGS: (usize, usize) = (5, 8);
    /// More headers than the parser reads, which is eight.
    const HEADERS: (usize, usize) = (9, 12);
    // After MPLS labels, only the version distinguishes IP from other protocols.
    let mut datagram = Datagram { shim: Shim::None, ..Datagram::plain(flow) };
    let ip_at = datagram.ip_at();
    let wanted = size(random, flow.sizes);
    match random.between(0, 4) {
        0 => {
            let mut frame = datagram.encode(wanted);
            // The version becomes 5 or 7; or, for IPv4, the header length 16 bytes.
            frame[ip_at] = if !flow.is_v6() && random.chance(0.5) { 0x44 } else { frame[ip_at] + 0x10 };
            Packet::skipped(frame, "bad_ip_header")
        }
        1 if flow.is_v6() && flow.key.proto != proto::NO_NEXT_HEADER => {
            let depth = random.between(HEADERS.0, HEADERS.1);
            datagram.extensions = vec![Extension::Destination(1); depth];
            Packet::skipped(datagram.encode(wanted), "extension_depth")
        }
        2 if flow.is_v6() => {
            datagram.extensions = vec![Extension::Overlong, Extension::Destination(1)];
            Packet::skipped(datagram.encode(wanted), "truncated_ip")
        }
        2 => {
            let mut frame = datagram.encode(FRAME_MIN);
            frame[ip_at] = LONGEST;
            frame.truncate(FRAME_MIN);
            Packet::skipped(frame, "truncated_ip")
        }
        3 if flow.reads_transport() => {
            let key = flow.key.without_ports(Lacks::Transport);
            if flow.is_v6() {
                datagram.extensions = vec![Extension::Overlong];
                return Packet::new(datagram.encode(wanted), key, 0, &flow);
            }
            datagram.options = 40;
            let mut frame = datagram.encode(FRAME_MIN);
            frame.truncate(ip_at + 60);
            Packet::new(frame, key, 0, &flow)
        }
        _ => {
            let tags = random.between(TAGS.0, TAGS.1);
            datagram.vlans = (1..=tags as u16).collect();
            Packet::skipped(datagram.encode(wanted), "vlan_depth")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, HashSet},
        net::IpAddr,
    };

    use pnet::packet::{
        Packet as _,
        ethernet::{EtherTypes, EthernetPacket},
        ipv4::Ipv4Packet,
        ipv6::Ipv6Packet,
        tcp::TcpPacket,
        udp::UdpPacket,
    };
    use weir_common::{
        ledger::Skip,
        packet::{Beginning, Link, Tunnels, parse},
    };

    use super::*;
    use crate::truth::Truth;

    fn traffic(seed: u64, packets: u64, mix: Mix) -> Traffic {
        Traffic::new(Plan { seed, packets, flows: 20_000, zipf: 0.8, mix, ..Plan::default() }).unwrap()
    }

    #[test]
    fn the_seed_decides_every_byte() {
        let frames = |seed| traffic(seed, 2_000, Mix::default()).collect::<Vec<_>>();
        assert_eq!(frames(5), frames(5));
        assert_ne!(frames(5), frames(6));
        assert_eq!(frames(5).len(), 2_000);
    }

    #[test]
    fn no_two_flows_share_a_key() {
        for mix in [Mix::default(), Mix::plain(), Mix::odd()] {
            let plan = Plan { flows: 100_000, flows_per_source: 50, mix, ..Plan::default() };
            let traffic = Traffic::new(plan).unwrap();
            let keys: HashSet<_> = (0..plan.flows).map(|index| traffic.flow(index).key).collect();
            assert_eq!(keys.len(), 100_000);
        }
    }

    /// The differential test: the generator says what each packet is, and weir's parser has to find the same.
    #[test]
    fn weirs_parser_finds_what_the_generator_knows() {
        let mut met = BTreeMap::<String, u32>::new();
        for (seed, mix) in [(1, Mix::default()), (2, Mix::odd()), (3, Mix::odd()), (4, Mix::plain()), (5, Mix::odd())] {
            for (at, Packet { frame, truth }) in traffic(seed, 20_000, mix).enumerate() {
                let Truth { flow, bytes, .. } = truth;
                assert_eq!(bytes, frame.len() as u64);
                assert!((FRAME_MIN..=FRAME_MAX).contains(&frame.len()), "seed {seed} packet {at}: {bytes} bytes");
                let found = parse(&frame[..], Link::Ethernet, Tunnels::Outer).map_err(|skip| skip.name());
                assert_eq!(found, truth.parsed(), "seed {seed} packet {at}: {frame:02x?}");
                let beginning = Beginning { bytes: &frame[..frame.len().min(HEADERS_MAX)], length: frame.len() };
                let cut = parse(&beginning, Link::Ethernet, Tunnels::Outer);
                assert_eq!(
                    cut,
                    parse(&frame[..], Link::Ethernet, Tunnels::Outer),
                    "seed {seed} packet {at}: {frame:02x?}"
                );
                let kind = match flow {
                    Ok(key) => format!("{:?} {}", key.lacks, if key.src.is_ipv6() { "v6" } else { "v4" }),
                    Err(reason) => reason.to_owned(),
                };
                *met.entry(kind).or_default() += 1;
            }
        }
        // These two reasons do not occur in captures of whole Ethernet frames.
        let met_in_frames =
            Skip::ALL.iter().map(|skip| skip.name()).filter(|name| !["truncated_link", "link_type"].contains(name));
        let lacking = ["Nothing v4", "Nothing v6", "Fragment v4", "Fragment v6", "Transport v4", "Transport v6"];
        for kind in met_in_frames.chain(lacking) {
            assert!(met.get(kind).is_some_and(|count| *count >= 20), "too few of {kind}: {met:?}");
        }
    }

    /// A second opinion from pnet for simple frames: it does not read options, tags and extension headers.
    #[test]
    fn pnet_reads_the_same_out_of_simple_frames() {
        let mut compared = 0;
        for Packet { frame, truth } in traffic(9, 20_000, Mix { damaged: 0.0, extensions: 0.0, ..Mix::default() }) {
            let ethernet = EthernetPacket::new(&frame).unwrap();
            let Ok(key) = truth.flow else { continue };
            if key.lacks != Lacks::Nothing {
                continue;
            }
            let (src, dst, proto, payload): (IpAddr, IpAddr, _, _) = match ethernet.get_ethertype() {
                EtherTypes::Ipv4 => {
                    let ip = Ipv4Packet::new(ethernet.payload()).unwrap();
                    assert!(usize::from(ip.get_total_length()) <= ethernet.payload().len());
                    (ip.get_source().into(), ip.get_destination().into(), ip.get_next_level_protocol(), {
                        ip.payload().to_vec()
                    })
                }
                EtherTypes::Ipv6 => {
                    let ip = Ipv6Packet::new(ethernet.payload()).unwrap();
                    assert!(usize::from(ip.get_payload_length()) + 40 <= ethernet.payload().len());
                    if ip.get_next_header().0 == 44 {
                        continue;
                    }
                    (ip.get_source().into(), ip.get_destination().into(), ip.get_next_header(), ip.payload().to_vec())
                }
                _ => continue,
            };
            assert_eq!((src, dst, proto.0), (key.src, key.dst, key.proto));
            let ports = match key.proto {
                proto::TCP => {
                    let tcp = TcpPacket::new(&payload).unwrap();
                    assert_eq!(tcp.get_flags(), truth.tcp_flags);
                    (tcp.get_source(), tcp.get_destination())
                }
                proto::UDP => {
                    let udp = UdpPacket::new(&payload).unwrap();
                    (udp.get_source(), udp.get_destination())
                }
                _ => continue,
            };
            assert_eq!(ports, (key.src_port, key.dst_port));
            compared += 1;
        }
        assert!(compared > 12_000, "only {compared} frames were simple");
    }

    #[test]
    fn an_impossible_plan_is_refused_with_the_value() {
        let refused = |plan: Plan| Traffic::new(plan).unwrap_err().to_string();
        assert_eq!(refused(Plan { flows: 0, ..Plan::default() }), "flows: 0 is below the minimum of 1");
        assert_eq!(refused(Plan { zipf: f64::NAN, ..Plan::default() }), "zipf: NaN is not a number from 0 up");
        let mix = Mix { vlan: 1.5, ..Mix::default() };
        assert_eq!(refused(Plan { mix, ..Plan::default() }), "mix.vlan: 1.5 is not a share from 0 to 1");
        let mix = Mix { tcp: 0.9, udp: 0.2, ..Mix::default() };
        assert!(refused(Plan { mix, ..Plan::default() }).contains("more than 1"));
        let many = Plan { flows: u32::MAX, ..Plan::default() };
        assert!(refused(many).contains("2^24"));
    }
}
