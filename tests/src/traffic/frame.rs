//! Frames: encodes the packets that the generator has chosen.

use std::net::IpAddr;

use pnet::{
    packet::{
        arp::{ArpHardwareTypes, ArpOperations, MutableArpPacket},
        ethernet::{EtherType, EtherTypes, MutableEthernetPacket},
        icmp::{IcmpCode, IcmpType, MutableIcmpPacket},
        icmpv6::{Icmpv6Code, Icmpv6Type, MutableIcmpv6Packet},
        ip::IpNextHeaderProtocol,
        ipv4::{Ipv4Flags, MutableIpv4Packet},
        ipv6::{MutableDestinationPacket, MutableFragmentPacket, MutableIpv6Packet, MutableRoutingPacket},
        tcp::MutableTcpPacket,
        udp::MutableUdpPacket,
        vlan::{ClassOfService, MutableVlanPacket},
    },
    util::MacAddr,
};

use super::flow::{Flow, Shim, proto};

/// The smallest frame, in bytes (IEEE 802.3, without the frame check sequence).
pub const FRAME_MIN: usize = 60;
/// The largest frame of an ordinary MTU, in bytes.
pub const FRAME_MAX: usize = 1514;
/// This many bytes of a frame include all headers that it may have, so they are enough to find its flow.
pub const HEADERS_MAX: usize = 256;
/// The destination of all frames: a locally administered address that no interface has.
const DST_MAC: MacAddr = MacAddr(0x02, 0x77, 0xff, 0, 0, 1);
/// The byte that fills payloads. It is not zero, so a parser that mistakes payload for a header is noticed.
const PAYLOAD: u8 = 0x5a;
const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
const FRAGMENT: usize = 8;
/// PPP over Ethernet and the PPP protocol that follows.
const PPPOE: usize = 8;
const LABEL: usize = 4;
/// PPP protocols (IANA).
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
const PPP_MPLS: u16 = 0x0281;
const PPP_LCP: u16 = 0xc021;

/// An IPv6 extension header, with its length in units of eight bytes.
#[derive(Clone, Copy, Debug)]
pub enum Extension {
    /// Hop-by-hop options (RFC 8200 section 4.3), which only the first header may be.
    HopByHop(u8),
    /// Routing (section 4.4).
    Routing(u8),
    /// Destination options (section 4.6).
    Destination(u8),
    /// Authentication (RFC 4302); at least two units.
    Authentication(u8),
    /// Destination options that claim 2,048 bytes but have only eight, so the next header would be beyond the frame.
    Overlong,
}

impl Extension {
    const fn number(self) -> u8 {
        match self {
            Self::HopByHop(_) => 0,
            Self::Routing(_) => 43,
            Self::Destination(_) | Self::Overlong => 60,
            Self::Authentication(_) => 51,
        }
    }

    fn length(self) -> usize {
        match self {
            Self::HopByHop(units) | Self::Routing(units) | Self::Destination(units) | Self::Authentication(units) => {
                usize::from(units) * 8
            }
            Self::Overlong => 8,
        }
    }
}

/// Tells which fragment of its datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The whole datagram.
    Whole,
    /// The first fragment.
    First,
    /// A later fragment, at this offset in units of eight bytes (not 0).
    Later {
        /// The offset of the fragment.
        offset: u16,
        /// True if more fragments follow.
        more: bool,
    },
}

impl Piece {
    fn more(self) -> bool {
        matches!(self, Self::First | Self::Later { more: true, .. })
    }

    fn offset(self) -> u16 {
        if let Self::Later { offset, .. } = self { offset } else { 0 }
    }
}

/// An IP packet to build.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The flow of the datagram.
    pub flow: Flow,
    /// VLAN tags, outermost first.
    pub vlans: Vec<u16>,
    /// The headers between the tags and the IP header.
    pub shim: Shim,
    /// Bytes of IPv4 options: a multiple of 4, at most 40.
    pub options: usize,
    /// IPv6 extension headers, in order; over IPv4 only authentication headers.
    pub extensions: Vec<Extension>,
    /// Tells which fragment it is.
    pub piece: Piece,
    /// TCP flags.
    pub tcp_flags: u8,
}

impl Datagram {
    /// A whole packet of the flow, with nothing special.
    pub fn plain(flow: Flow) -> Self {
        let vlans = flow.vlans.into_iter().filter(|vlan| *vlan != 0).collect();
        Self { flow, vlans, shim: flow.shim, options: 0, extensions: Vec::new(), piece: Piece::Whole, tcp_flags: 0x10 }
    }

    /// Returns where its IP header begins in the frame.
    pub fn ip_at(&self) -> usize {
        ETHERNET + TAG * self.vlans.len() + shim_length(self.shim)
    }

    /// Returns the frame, of `wanted` bytes, or just large enough for its headers.
    pub fn encode(&self, wanted: usize) -> Vec<u8> {
        let network = self.network_length();
        let body = self.body(wanted.saturating_sub(self.ip_at() + network));
        let ethertype = if self.flow.is_v6() { EtherTypes::Ipv6 } else { EtherTypes::Ipv4 };
        let mut frame = link(self.flow.src_mac, &self.vlans, shim_type(self.shim, ethertype));
        append_shim(&mut frame, self.shim, ethertype, network + body.len());
        match (self.flow.key.src, self.flow.key.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = append(&mut frame, IPV4 + self.options);
                let mut ip = MutableIpv4Packet::new(header).expect("an IPv4 header is 20 bytes at least");
                ip.set_version(4);
                ip.set_header_length(((IPV4 + self.options) / 4) as u8);
                ip.set_dscp(self.flow.tos >> 2);
                ip.set_ecn(self.flow.tos & 3);
                ip.set_total_length((network + body.len()) as u16);
                ip.set_identification(0x7e1f);
                ip.set_flags(if self.piece.more() { Ipv4Flags::MoreFragments } else { 0 });
                ip.set_fragment_offset(self.piece.offset());
                ip.set_ttl(61);
                let first = self.extensions.first().map_or(self.flow.key.proto, |extension| extension.number());
                ip.set_next_level_protocol(IpNextHeaderProtocol(first));
                ip.set_source(src);
                ip.set_destination(dst);
                // The option "no operation" (RFC 791 section 3.1), as often as needed.
                header[IPV4..].fill(1);
                let checksum = checksum(header);
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                for extension in &self.extensions {
                    append_extension(&mut frame, *extension, self.flow.key.proto);
                }
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let chain = self.chain();
                let mut ip = MutableIpv6Packet::new(append(&mut frame, IPV6)).expect("an IPv6 header is 40 bytes");
                ip.set_version(6);
                ip.set_traffic_class(self.flow.tos);
                ip.set_flow_label(0xf_5a5a);
                ip.set_payload_length((network - IPV6 + body.len()) as u16);
                ip.set_next_header(IpNextHeaderProtocol(chain[0]));
                ip.set_hop_limit(61);
                ip.set_source(src);
                ip.set_destination(dst);
                for (extension, next) in self.extensions.iter().zip(&chain[1..]) {
                    append_extension(&mut frame, *extension, *next);
                }
                if self.piece != Piece::Whole {
                    self.append_fragment(&mut frame);
                }
            }
            _ => unreachable!("a flow's addresses are of one version"),
        }
        frame.extend_from_slice(&body);
        frame.resize(frame.len().max(FRAME_MIN), 0);
        frame
    }

    /// The length of the IP header and the extension headers before the transport header.
    fn network_length(&self) -> usize {
        let extensions: usize = self.extensions.iter().map(|extension| extension.length()).sum();
        if !self.flow.is_v6() {
            return IPV4 + self.options + extensions;
        }
        IPV6 + extensions + if self.piece == Piece::Whole { 0 } else { FRAGMENT }
    }

    /// The `next header` fields in order: the IPv6 header's, then those of the extension headers.
    fn chain(&self) -> Vec<u8> {
        const FRAGMENT: u8 = 44;
        let last = if self.piece == Piece::Whole { self.flow.key.proto } else { FRAGMENT };
        self.extensions.iter().map(|extension| extension.number()).chain([last]).collect()
    }

    /// A fragment header (RFC 8200 section 4.5).
    fn append_fragment(&self, frame: &mut Vec<u8>) {
        let mut fragment = MutableFragmentPacket::new(append(frame, FRAGMENT)).expect("8 bytes are enough");
        fragment.set_next_header(IpNextHeaderProtocol(self.flow.key.proto));
        fragment.set_fragment_offset_with_flags(self.piece.offset() << 3 | u16::from(self.piece.more()));
        fragment.set_id(0x7e1f_0001);
    }

    /// The content of the IP packet: the transport header, unless this is a later fragment, and payload.
    fn body(&self, room: usize) -> Vec<u8> {
        let mut body = if self.piece.offset() == 0 { transport(&self.flow, self.tcp_flags, room) } else { Vec::new() };
        let mut length = room.max(body.len());
        if self.piece.more() {
            // All fragments but the last carry a multiple of eight bytes.
            length = (length / 8 * 8).max(body.len().next_multiple_of(8)).max(8);
        }
        body.resize(length.max(usize::from(self.piece != Piece::Whole) * 8), PAYLOAD);
        body
    }
}

/// The checksum of an IPv4 header whose checksum field is still 0 (RFC 1071).
pub fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum + (sum >> 16)) as u16
}

/// The Ethernet header and the VLAN tags in front of a payload of type `ethertype`.
///
/// If there are several tags, the outermost has the type 802.1ad.
fn link(src: MacAddr, vlans: &[u16], ethertype: EtherType) -> Vec<u8> {
    let mut types: Vec<_> = vlans.iter().map(|_| EtherTypes::Vlan).collect();
    if let [first, _, ..] = &mut types[..] {
        *first = EtherTypes::PBridge;
    }
    types.push(ethertype);
    let mut frame = Vec::with_capacity(FRAME_MAX);
    let mut ethernet = MutableEthernetPacket::new(append(&mut frame, ETHERNET)).expect("14 bytes are enough");
    ethernet.set_source(src);
    ethernet.set_destination(DST_MAC);
    ethernet.set_ethertype(types[0]);
    for (vlan, next) in vlans.iter().zip(&types[1..]) {
        let mut tag = MutableVlanPacket::new(append(&mut frame, TAG)).expect("4 bytes are enough");
        tag.set_priority_code_point(ClassOfService((vlan & 7) as u8));
        tag.set_vlan_identifier(*vlan);
        tag.set_ethertype(*next);
    }
    frame
}

const fn shim_length(shim: Shim) -> usize {
    match shim {
        Shim::None => 0,
        Shim::Pppoe => PPPOE,
        Shim::Mpls(labels) => LABEL * labels as usize,
        Shim::MplsOverPppoe(labels) => PPPOE + LABEL * labels as usize,
    }
}

/// The type in the link-layer header of a packet with this IP type.
const fn shim_type(shim: Shim, ip: EtherType) -> EtherType {
    match shim {
        Shim::None => ip,
        Shim::Mpls(_) => EtherTypes::Mpls,
        Shim::Pppoe | Shim::MplsOverPppoe(_) => EtherTypes::PppoeSession,
    }
}

fn append_shim(frame: &mut Vec<u8>, shim: Shim, ip: EtherType, packet: usize) {
    let (protocol, labels) = match (shim, ip) {
        (Shim::None, _) => return,
        (Shim::Mpls(labels), _) => (None, labels),
        (Shim::MplsOverPppoe(labels), _) => (Some(PPP_MPLS), labels),
        (Shim::Pppoe, EtherTypes::Ipv4) => (Some(PPP_IPV4), 0),
        (Shim::Pppoe, _) => (Some(PPP_IPV6), 0),
    };
    if let Some(protocol) = protocol {
        append_pppoe(frame, 0, protocol, LABEL * usize::from(labels) + packet);
    }
    for left in (0..labels).rev() {
        frame.extend_from_slice(&label(100 + u32::from(left), left == 0));
    }
}

/// The header of RFC 2516 section 4, and the PPP protocol that it carries.
fn append_pppoe(frame: &mut Vec<u8>, code: u8, protocol: u16, payload: usize) {
    frame.extend_from_slice(&[0x11, code, 0, 7]);
    frame.extend_from_slice(&(payload as u16 + 2).to_be_bytes());
    frame.extend_from_slice(&protocol.to_be_bytes());
}

/// A label stack (RFC 3032 section 2.1), with a time to live of 61.
fn label(value: u32, bottom: bool) -> [u8; LABEL] {
    (value << 12 | u32::from(bottom) << 8 | 61).to_be_bytes()
}

fn append_extension(frame: &mut Vec<u8>, extension: Extension, next: u8) {
    let next = IpNextHeaderProtocol(next);
    let header = append(frame, extension.length());
    let units = (extension.length() / 8 - 1) as u8;
    match extension {
        Extension::Routing(_) => {
            let mut routing = MutableRoutingPacket::new(header).expect("8 bytes are enough");
            routing.set_next_header(next);
            routing.set_hdr_ext_len(units);
            routing.set_routing_type(4);
        }
        Extension::HopByHop(_) | Extension::Destination(_) | Extension::Overlong => {
            let mut options = MutableDestinationPacket::new(header).expect("8 bytes are enough");
            options.set_next_header(next);
            options.set_hdr_ext_len(if matches!(extension, Extension::Overlong) { u8::MAX } else { units });
            // Padding (option 1, RFC 8200 section 4.2) fills the rest.
            header[2] = 1;
            header[3] = (extension.length() - 4) as u8;
        }
        Extension::Authentication(_) => {
            header[0] = next.0;
            // RFC 4302 section 2.2: in units of four bytes, less two.
            header[1] = (extension.length() / 4 - 2) as u8;
            header[7] = 1;
        }
    }
}

/// The transport header, for `room` bytes of header and payload.
fn transport(flow: &Flow, tcp_flags: u8, room: usize) -> Vec<u8> {
    let (src_port, dst_port) = (flow.key.src_port, flow.key.dst_port);
    let mut header = Vec::with_capacity(FRAME_MAX);
    match flow.key.proto {
        proto::TCP => {
            let mut tcp = MutableTcpPacket::new(append(&mut header, 20)).expect("20 bytes are enough");
            tcp.set_source(src_port);
            tcp.set_destination(dst_port);
            tcp.set_sequence(0x7700_0001);
            tcp.set_data_offset(5);
            tcp.set_flags(tcp_flags);
            tcp.set_window(64_240);
        }
        proto::UDP => {
            let mut udp = MutableUdpPacket::new(append(&mut header, 8)).expect("8 bytes are enough");
            udp.set_source(src_port);
            udp.set_destination(dst_port);
            udp.set_length(room.max(8) as u16);
        }
        proto::ICMP => {
            let mut icmp = MutableIcmpPacket::new(append(&mut header, 8)).expect("8 bytes are enough");
            icmp.set_icmp_type(IcmpType(src_port as u8));
            icmp.set_icmp_code(IcmpCode(dst_port as u8));
        }
        proto::ICMPV6 => {
            let mut icmp = MutableIcmpv6Packet::new(append(&mut header, 8)).expect("8 bytes are enough");
            icmp.set_icmpv6_type(Icmpv6Type(src_port as u8));
            icmp.set_icmpv6_code(Icmpv6Code(dst_port as u8));
        }
        // SCTP, DCCP and UDP-Lite begin with the ports, like UDP; pnet does not support them.
        proto::SCTP | proto::DCCP | proto::UDP_LITE => {
            let bytes = append(&mut header, if flow.key.proto == proto::UDP_LITE { 8 } else { 12 });
            bytes[..2].copy_from_slice(&src_port.to_be_bytes());
            bytes[2..4].copy_from_slice(&dst_port.to_be_bytes());
        }
        // RFC 6275 section 6.1.1: a header of eight bytes without a payload.
        proto::MOBILITY => append(&mut header, 8)[0] = proto::NO_NEXT_HEADER,
        _ => append(&mut header, 8).fill(PAYLOAD),
    }
    header
}

/// A frame that is not IP.
#[derive(Clone, Copy, Debug)]
pub enum NonIp {
    /// ARP.
    Arp,
    /// Link layer discovery.
    Lldp,
    /// IEEE 802.3 with a length: spanning tree.
    Llc,
    /// MPLS with a pseudowire: a control word (RFC 4385) where IP would be.
    Pseudowire,
    /// More MPLS labels than any parser has to take.
    ManyLabels,
    /// PPP's link control in a PPP-over-Ethernet session.
    LinkControl,
    /// PPP-over-Ethernet discovery.
    PppoeDiscovery,
    /// `MACsec`.
    Macsec,
    /// The precision time protocol, as an example of another `EtherType`.
    Other,
}

impl NonIp {
    /// Every kind, the common ones more than once.
    pub const LIKELY: [Self; 13] = [
        Self::Arp,
        Self::Arp,
        Self::Arp,
        Self::Arp,
        Self::Arp,
        Self::Lldp,
        Self::Llc,
        Self::Pseudowire,
        Self::ManyLabels,
        Self::LinkControl,
        Self::PppoeDiscovery,
        Self::Macsec,
        Self::Other,
    ];

    /// Why weir skips it: the name of the reason in reports.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Arp => "arp",
            Self::Lldp => "lldp",
            Self::Llc => "llc",
            Self::Pseudowire => "mpls",
            Self::ManyLabels => "mpls_depth",
            Self::LinkControl => "ppp",
            Self::PppoeDiscovery => "pppoe",
            Self::Macsec => "macsec",
            Self::Other => "non_ip",
        }
    }

    /// A frame of this kind: of `wanted` bytes if its payload is arbitrary, otherwise a minimal one.
    pub fn encode(self, vlans: &[u16], wanted: usize) -> Vec<u8> {
        /// DSAP, SSAP and control field of spanning tree.
        const SPANNING_TREE: [u8; 3] = [0x42, 0x42, 0x03];
        const LABELS_TOO_MANY: usize = 5;
        let src = MacAddr(0x02, 0x77, 0, 0, 0, 0);
        match self {
            Self::Arp => {
                let mut frame = link(src, vlans, EtherTypes::Arp);
                let mut arp = MutableArpPacket::new(append(&mut frame, 28)).expect("28 bytes are enough");
                arp.set_hardware_type(ArpHardwareTypes::Ethernet);
                arp.set_protocol_type(EtherTypes::Ipv4);
                arp.set_hw_addr_len(6);
                arp.set_proto_addr_len(4);
                arp.set_operation(ArpOperations::Request);
                arp.set_sender_hw_addr(src);
                arp.set_sender_proto_addr([10, 0, 0, 1].into());
                arp.set_target_proto_addr([10, 0, 0, 2].into());
                padded(frame, FRAME_MIN, 0)
            }
            Self::Llc => {
                let mut frame = link(src, vlans, EtherType(SPANNING_TREE.len() as u16 + 35));
                frame.extend_from_slice(&SPANNING_TREE);
                padded(frame, FRAME_MIN, 0)
            }
            Self::Lldp => padded(link(src, vlans, EtherTypes::Lldp), FRAME_MIN, 0),
            Self::Pseudowire => {
                let mut frame = link(src, vlans, EtherTypes::Mpls);
                frame.extend(label(16, true));
                frame.extend([0; LABEL]);
                padded(frame, wanted, PAYLOAD)
            }
            Self::ManyLabels => {
                let mut frame = link(src, vlans, EtherTypes::Mpls);
                frame.extend((0..LABELS_TOO_MANY).flat_map(|left| label(16, left + 1 == LABELS_TOO_MANY)));
                frame.push(0x45);
                padded(frame, wanted, PAYLOAD)
            }
            Self::LinkControl => {
                let mut frame = link(src, vlans, EtherTypes::PppoeSession);
                append_pppoe(&mut frame, 0, PPP_LCP, 8);
                padded(frame, FRAME_MIN, 0)
            }
            Self::PppoeDiscovery => {
                /// PADI, the first packet of a discovery.
                const INITIATION: u8 = 0x09;
                let mut frame = link(src, vlans, EtherTypes::PppoeDiscovery);
                append_pppoe(&mut frame, INITIATION, 0x0101, 2);
                padded(frame, FRAME_MIN, 0)
            }
            Self::Macsec => padded(link(src, vlans, EtherType(0x88e5)), wanted, PAYLOAD),
            Self::Other => padded(link(src, vlans, EtherType(0x88f7)), wanted, PAYLOAD),
        }
    }
}

fn padded(mut frame: Vec<u8>, bytes: usize, filler: u8) -> Vec<u8> {
    frame.resize(bytes.max(FRAME_MIN), filler);
    frame
}

/// Appends `length` zeros and returns them for writing.
fn append(frame: &mut Vec<u8>, length: usize) -> &mut [u8] {
    let at = frame.len();
    frame.resize(at + length, 0);
    &mut frame[at..]
}
