//! Buffers that stand for several packets: an offload merged these (GRO), or will split the buffer into them (GSO).
//!
//! On the wire each packet has all headers of the buffer, from the link layer to the innermost transport header,
//! including those of tunnels. So the bytes follow from the total length of the headers, which [`headers`] finds.

use super::{Bytes, Link, Payload, REACH_MAX, Window, ethertype, link};
use crate::{
    ledger::{Tally, Uncertain},
    proto,
};

/// A special segment size: each packet is as long as one of the buffer's parts (`GSO_BY_FRAGS`, used by SCTP).
pub const BY_PARTS: u64 = 0xffff;

/// The most headers that are parsed.
const STEPS_MAX: usize = 20;

/// No step reads further than this from the start of a header.
const FARTHEST: usize = 44;

const UDP_BYTES: usize = 8;
/// The common header of SCTP, before the chunks (RFC 9260 section 3.1).
const SCTP_BYTES: usize = 12;
/// The fragment header of IPv6 (RFC 8200 section 4.5).
const FRAGMENT_BYTES: u64 = 8;
/// The hop-by-hop header that Linux adds to a buffer too long for IPv6's length field (RFC 2675). No packet has it.
const JUMBO_BYTES: usize = 8;
const IPV6_BYTES: usize = 40;
/// What encryption adds after a packet's payload: padding, its length, the next header, and a check value (RFC 4303
/// section 2). The network card adds it, after the buffer was counted.
const TRAILER_MAX: u64 = 255 + 2 + 64;
/// Assumed maximum length of headers that cannot be read, all together.
const UNREAD_MAX: u64 = 2 * REACH_MAX as u64;
/// The longest length that an IP header can state.
const IP_LENGTH_MAX: u64 = 0xffff;

/// A buffer of several packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Its bytes from the first header that its packets have on the wire.
    pub length: u64,
    /// Payload bytes in each packet except the last, which may have fewer; or [`BY_PARTS`].
    pub segment: u64,
    /// The number of packets; 0 if the buffer's maker does not tell.
    pub segments: u64,
    /// Whether UDP packets are fragments of one packet (UFO): then only the first has the UDP header. `None` if the
    /// buffer's maker does not tell.
    pub fragments: Option<bool>,
}

/// All headers of a buffer, from its first byte to the payload of the innermost transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Their length in the buffer, in bytes.
    pub in_buffer: u64,
    /// Their length in each packet on the wire.
    pub on_wire: u64,
    /// Whether the innermost IP header is IPv6.
    pub is_v6: bool,
    /// Whether the innermost transport header is UDP.
    pub is_udp: bool,
}

impl Merged {
    /// The packets on the wire, each with these headers. If their number or length is uncertain, the tally is the
    /// minimum, and the maximum is returned as well.
    #[inline(always)]
    pub fn tally(self, headers: Option<Headers>) -> (Tally, Option<Uncertain>) {
        match headers {
            Some(headers) if headers.is_udp && self.fragments == Some(true) => {
                (self.split(headers.of_fragments()), None)
            }
            Some(headers) if headers.is_udp && self.fragments.is_none() && headers.in_buffer < self.length => {
                let [one, other] = [self.split(headers), self.split(headers.of_fragments())];
                uncertain(
                    Tally::new(one.packets.min(other.packets), one.bytes.min(other.bytes)),
                    Tally::new(one.packets.max(other.packets), one.bytes.max(other.bytes)),
                )
            }
            Some(headers) if self.fits(headers) => (self.split(headers), None),
            _ => self.unread(),
        }
    }

    /// The packets if only their number is known and not their headers. Something may also follow their payload.
    #[inline(always)]
    fn unread(self) -> (Tally, Option<Uncertain>) {
        let (fewest, many) = match self.segments {
            0 => (self.needed(UNREAD_MAX.min(self.length.saturating_sub(1))).max(1), self.needed(0).max(1)),
            told => (told, told),
        };
        // All packets except the last are full, and the last has at least one byte of payload.
        let (shortest, longest) = match self.segment {
            BY_PARTS => (0, self.length),
            full => (self.length.saturating_sub(many * full), self.length.saturating_sub((fewest - 1) * full)),
        };
        let longest = longest.saturating_sub(1).min(UNREAD_MAX);
        let least = Tally::new(fewest, self.length + (fewest - 1) * shortest);
        uncertain(least, Tally::new(many, self.length + (many - 1) * longest + many * TRAILER_MAX))
    }

    #[inline(always)]
    fn split(self, headers: Headers) -> Tally {
        let packets = self.packets(headers.in_buffer);
        Tally::new(packets, self.length.saturating_sub(headers.in_buffer) + packets * headers.on_wire)
    }

    /// Whether the buffer can have that many packets with these headers.
    #[inline(always)]
    fn fits(self, headers: Headers) -> bool {
        let is_told = self.segments == 0 || self.segment == BY_PARTS;
        headers.in_buffer < self.length && (is_told || self.needed(headers.in_buffer) == self.segments)
    }

    #[inline(always)]
    fn packets(self, headers: u64) -> u64 {
        if self.segments == 0 { self.needed(headers).max(1) } else { self.segments }
    }

    /// How many packets are needed for the bytes after the headers.
    #[inline(always)]
    fn needed(self, headers: u64) -> u64 {
        let payload = self.length.saturating_sub(headers);
        // No segment is 0, but the compiler would keep a panic for that case.
        (payload + self.segment).saturating_sub(1).checked_div(self.segment).unwrap_or(0)
    }
}

/// Counts as `least`, but may be as much as `most`; certain if they are equal.
#[inline(always)]
fn uncertain(least: Tally, most: Tally) -> (Tally, Option<Uncertain>) {
    let is_certain = least.packets == most.packets && least.bytes == most.bytes;
    (least, if is_certain { None } else { Some(Uncertain { least, most }) })
}

impl Headers {
    /// Headers of a buffer, of which `absent` bytes are not on the wire.
    #[inline(always)]
    const fn new(in_buffer: usize, absent: usize, is_v6: usize, is_udp: bool) -> Self {
        let on_wire = in_buffer.saturating_sub(absent) as u64;
        Self { in_buffer: in_buffer as u64, on_wire, is_v6: is_v6 != 0, is_udp }
    }

    /// The headers of each fragment of a UDP packet; its UDP header is payload of the first. IPv6 adds a fragment
    /// header, which the buffer does not have.
    #[inline(always)]
    const fn of_fragments(self) -> Self {
        let on_wire = self.on_wire.saturating_sub(UDP_BYTES as u64) + if self.is_v6 { FRAGMENT_BYTES } else { 0 };
        Self { in_buffer: self.in_buffer.saturating_sub(UDP_BYTES as u64), on_wire, ..self }
    }
}

/// All headers of a merged buffer of `length` bytes that starts with `link`; `None` if they cannot be read.
///
/// It goes header by header and forgets its path, so the verifier checks each kind of header once per step.
#[inline(always)]
pub fn headers<B: Bytes + ?Sized>(packet: &B, link: Link, length: u64) -> Option<Headers> {
    let Payload { ethertype, at } = link::begin(packet, link).ok()?;
    let mut next = Next { kind: by_type(ethertype), at };
    // Where the latest UDP header ends, or 0. Tunnels in UDP are only recognised by their content, so they may be
    // payload.
    let mut plain = 0;
    let (mut absent, mut is_v6) = (0, 0);
    for _ in 0..STEPS_MAX {
        let kind = packet.forget_all::<0>(next.kind.into()) as u16;
        let at = packet.forget_all::<1>(next.at);
        plain = packet.forget_all::<2>(plain);
        absent = packet.forget_all::<3>(absent);
        is_v6 = packet.forget_all::<4>(is_v6);
        let step = match kind {
            TCP => {
                let transport = usize::from(packet.u8(at + 12)? >> 4) * 4;
                return Some(Headers::new(at + transport, absent, is_v6, false));
            }
            SCTP => return Some(Headers::new(at + SCTP_BYTES, absent, is_v6, false)),
            UDP => {
                plain = at + UDP_BYTES;
                in_udp(packet, plain)
            }
            ethertype::IPV4 | IPV4 => {
                is_v6 = 0;
                ipv4(packet, at, (plain != 0).then_some(length))
            }
            ethertype::IPV6 | IPV6 => {
                is_v6 = 1;
                if is_jumbo(packet, at, length) {
                    absent = JUMBO_BYTES;
                }
                ipv6(packet, at, (plain != 0).then_some(length))
            }
            _ => between(packet, kind, at),
        };
        match step {
            Some(step) => next = step,
            None => break,
        }
    }
    // What is beyond reach was not followed to its end and may have been a tunnel.
    let is_beyond = next.at > REACH_MAX - FARTHEST;
    if plain == 0 || is_beyond { None } else { Some(Headers::new(plain, absent, is_v6, true)) }
}

/// The next header, as an `EtherType` or, for smaller values, a protocol number; and its offset.
#[derive(Clone, Copy)]
struct Next {
    kind: u16,
    at: usize,
}

const TCP: u16 = proto::TCP as u16;
const UDP: u16 = proto::UDP as u16;
const SCTP: u16 = proto::SCTP as u16;
const IPV4: u16 = proto::IPV4 as u16;
const IPV6: u16 = proto::IPV6 as u16;
const GRE: u16 = proto::GRE as u16;
const ETHERNET: u16 = proto::ETHERNET as u16;
const MPLS: u16 = proto::MPLS as u16;
const AUTHENTICATION: u16 = proto::AUTHENTICATION as u16;
const HOP_BY_HOP: u16 = proto::HOP_BY_HOP as u16;
const ROUTING: u16 = proto::ROUTING as u16;
const DESTINATION_OPTIONS: u16 = proto::DESTINATION_OPTIONS as u16;
const MOBILITY: u16 = proto::MOBILITY as u16;
const HIP: u16 = proto::HIP as u16;
const SHIM6: u16 = proto::SHIM6 as u16;

/// IPv4 and what follows it. If the `buffer`'s length is given, the packet must end with the buffer.
#[inline(always)]
fn ipv4<B: Bytes + ?Sized>(packet: &B, at: usize, buffer: Option<u64>) -> Option<Next> {
    let ip = packet.window::<20>(at)?;
    let first = ip.u8::<0>();
    if first >> 4 != 4 || buffer.is_some_and(|length| !is_told(ip.be16::<2>(), length, at)) {
        return None;
    }
    Some(Next { kind: ip.u8::<9>().into(), at: at + usize::from(first & 0x0f) * 4 })
}

#[inline(always)]
fn ipv6<B: Bytes + ?Sized>(packet: &B, at: usize, buffer: Option<u64>) -> Option<Next> {
    let ip = packet.window::<8>(at)?;
    let payload = at + IPV6_BYTES;
    if ip.u8::<0>() >> 4 != 6 || buffer.is_some_and(|length| !is_told(ip.be16::<4>(), length, payload)) {
        return None;
    }
    Some(Next { kind: ip.u8::<6>().into(), at: payload })
}

/// Whether an IP header's length field matches the buffer from `at` on. Lengths that do not fit the field are not
/// checked.
#[inline(always)]
fn is_told(told: u16, length: u64, at: usize) -> bool {
    let rest = length.saturating_sub(at as u64);
    u64::from(told) == if rest > IP_LENGTH_MAX { 0 } else { rest }
}

/// What follows a header that is neither IP nor transport.
#[inline(always)]
fn between<B: Bytes + ?Sized>(packet: &B, kind: u16, at: usize) -> Option<Next> {
    let of_type = |at: usize| Some(Next { kind: by_type(packet.be16(at)?), at: at + 2 });
    match kind {
        ethertype::TRANSPARENT_ETHERNET | ETHERNET => of_type(at + 12),
        ethertype::VLAN | ethertype::PROVIDER_VLAN | ethertype::OLD_QINQ => of_type(at + 2),
        HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6 | AUTHENTICATION => {
            let header = packet.window::<8>(at)?;
            let unit = if kind == AUTHENTICATION { 4 } else { 8 };
            Some(Next { kind: header.u8::<0>().into(), at: at + 8 + unit * usize::from(header.u8::<1>()) })
        }
        ethertype::MPLS | ethertype::MPLS_MULTICAST | MPLS => {
            const BOTTOM_OF_STACK: u8 = 1;
            let label = packet.window::<5>(at)?;
            let is_last = label.u8::<2>() & BOTTOM_OF_STACK != 0;
            Some(Next { kind: if is_last { by_version(label.u8::<4>()) } else { MPLS }, at: at + 4 })
        }
        // PPP's protocol numbers for IPv4 and IPv6.
        ethertype::PPPOE_SESSION => match packet.be16(at + 6)? {
            0x0021 => Some(Next { kind: IPV4, at: at + 8 }),
            0x0057 => Some(Next { kind: IPV6, at: at + 8 }),
            _ => None,
        },
        GRE => gre(packet, at),
        _ => None,
    }
}

/// A reserved protocol number: no header.
const NOTHING: u16 = 0xff;

/// IP by its version.
#[inline(always)]
const fn by_version(first: u8) -> u16 {
    match first >> 4 {
        4 => IPV4,
        6 => IPV6,
        _ => NOTHING,
    }
}

/// An `EtherType`, unless it is a length.
#[inline(always)]
const fn by_type(ethertype: u16) -> u16 {
    if ethertype < ethertype::FIRST { NOTHING } else { ethertype }
}

/// RFC 2784 and RFC 2890, and ERSPAN types II and III after a sequence number.
#[inline(always)]
fn gre<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<Next> {
    const CHECKSUM: u16 = 15;
    const KEY: u16 = 13;
    const SEQUENCE: u16 = 12;
    let header = packet.window::<4>(at)?;
    let (flags, kind) = (header.be16::<0>(), header.be16::<2>());
    let fields = (flags >> CHECKSUM & 1) + (flags >> KEY & 1) + (flags >> SEQUENCE & 1);
    let at = at + 4 + 4 * usize::from(fields);
    match kind {
        ethertype::ERSPAN_II => Some(Next { kind: ETHERNET, at: at + usize::from(flags >> SEQUENCE & 1) * 8 }),
        // With its subheader, which Linux always sends.
        ethertype::ERSPAN_III => Some(Next { kind: ETHERNET, at: at + 20 }),
        _ => Some(Next { kind: by_type(kind), at }),
    }
}

/// The content of a UDP payload if it looks like a tunnel, whatever the port. It may be a coincidence, so the caller
/// must check that the inner packet ends with the buffer.
#[inline(always)]
fn in_udp<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<Next> {
    /// Neither version 1 nor a control message (draft-ietf-intarea-gue-09 section 3.1).
    const GUE_VERSION_AND_CONTROL: u8 = 0xe0;
    const VXLAN_HAS_IDENTIFIER: u8 = 0x08;
    const VXLAN_HAS_PROTOCOL: u8 = 0x04;
    let header = packet.window::<8>(at)?;
    let (first, second, fourth) = (header.u8::<0>(), header.u8::<1>(), header.u8::<3>());
    if matches!(first >> 4, 4 | 6) {
        // IP without a header before it: FOU, bareudp, GUE version 1.
        return Some(Next { kind: by_version(first), at });
    }
    let geneve = header.be16::<2>();
    if matches!(geneve, ethertype::TRANSPARENT_ETHERNET | ethertype::IPV4 | ethertype::IPV6) {
        return Some(Next { kind: geneve, at: at + 8 + 4 * usize::from(first & 0x3f) });
    }
    if second != 0 && first & GUE_VERSION_AND_CONTROL == 0 {
        return Some(Next { kind: second.into(), at: at + 4 + 4 * usize::from(first) });
    }
    if first & VXLAN_HAS_IDENTIFIER == 0 {
        return None;
    }
    let kind = match fourth {
        1 if first & VXLAN_HAS_PROTOCOL != 0 => IPV4,
        2 if first & VXLAN_HAS_PROTOCOL != 0 => IPV6,
        _ => ETHERNET,
    };
    Some(Next { kind, at: at + 8 })
}

/// Whether Linux's hop-by-hop header follows the IPv6 header at `at`.
#[inline(always)]
fn is_jumbo<B: Bytes + ?Sized>(packet: &B, at: usize, length: u64) -> bool {
    /// RFC 2675 section 2: the option's type, and the length of its value.
    const OPTION: u16 = 0xc204;
    if length <= IP_LENGTH_MAX {
        return false;
    }
    let Some(ip) = packet.window::<44>(at) else { return false };
    ip.be16::<4>() == 0 && ip.u8::<6>() == proto::HOP_BY_HOP && ip.u8::<41>() == 0 && ip.be16::<42>() == OPTION
}
