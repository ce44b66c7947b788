//! Buffers that stand for several packets: an offload merged these (GRO), or will split the buffer into them (GSO).
//!
//! On the wire each packet has all headers of the buffer, from the link layer's to the innermost transport header,
//! those of tunnels as well. So their bytes follow from how long all headers are together: [`headers`] reads it.

use super::{Bytes, Link, Payload, REACH_MAX, Window, ethertype, link};
use crate::{
    ledger::{Tally, Uncertain},
    proto,
};

/// A segment size that says: the packets are as long as the parts that the buffer consists of (`GSO_BY_FRAGS`, which
/// SCTP uses).
pub const BY_PARTS: u64 = 0xffff;

/// The most headers that are walked.
const STEPS_MAX: usize = 20;

/// No step looks farther than this, from where a header begins.
const FARTHEST: usize = 44;

const UDP_BYTES: usize = 8;
/// The common header of SCTP, before the chunks (RFC 9260 section 3.1).
const SCTP_BYTES: usize = 12;
/// The fragment header of IPv6 (RFC 8200 section 4.5).
const FRAGMENT_BYTES: u64 = 8;
/// The hop-by-hop header that Linux puts into a buffer whose length IPv6 cannot tell (RFC 2675). No packet has it.
const JUMBO_BYTES: usize = 8;
const IPV6_BYTES: usize = 40;
/// What encryption adds to a packet behind its payload: padding, its length, the next header, and a check (RFC 4303
/// section 2). The network card does it, after the buffer was counted.
const TRAILER_MAX: u64 = 255 + 2 + 64;
/// Headers that cannot be read are taken to be no longer than this, all together.
const UNREAD_MAX: u64 = 2 * REACH_MAX as u64;
/// The longest that an IP header can say.
const IP_LENGTH_MAX: u64 = 0xffff;

/// A buffer of several packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Its bytes, from the first header that its packets have on the wire.
    pub length: u64,
    /// Bytes of payload in each packet but the last, which may have fewer; or [`BY_PARTS`].
    pub segment: u64,
    /// How many packets; 0 if whoever made the buffer does not tell.
    pub segments: u64,
    /// Whether the packets, if they are UDP, are fragments of one packet (UFO): then only the first has the UDP header.
    /// `None` if whoever made the buffer does not tell.
    pub fragments: Option<bool>,
}

/// All headers of a buffer, from the first byte to the payload of the innermost transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Their length in the buffer, in bytes.
    pub in_buffer: u64,
    /// Their length in each packet on the wire.
    pub on_wire: u64,
    /// Whether the innermost IP header is IPv6.
    pub is_v6: bool,
    /// Whether the innermost transport header is of UDP.
    pub is_udp: bool,
}

impl Merged {
    /// The packets on the wire, with these headers each, and where it is not certain how many or how long these are,
    /// how much there may be at most. Then the number of packets and of bytes is the least.
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

    /// The packets if nothing is known of their headers but what their number says. Something may be behind their
    /// payload, too.
    #[inline(always)]
    fn unread(self) -> (Tally, Option<Uncertain>) {
        let (fewest, many) = match self.segments {
            0 => (self.needed(UNREAD_MAX.min(self.length.saturating_sub(1))).max(1), self.needed(0).max(1)),
            told => (told, told),
        };
        // All packets but the last are full, and the last has a byte of payload at least.
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

    /// Whether the buffer can be of so many packets with these headers.
    #[inline(always)]
    fn fits(self, headers: Headers) -> bool {
        let is_told = self.segments == 0 || self.segment == BY_PARTS;
        headers.in_buffer < self.length && (is_told || self.needed(headers.in_buffer) == self.segments)
    }

    #[inline(always)]
    fn packets(self, headers: u64) -> u64 {
        if self.segments == 0 { self.needed(headers).max(1) } else { self.segments }
    }

    /// How many packets it takes for what follows the headers.
    #[inline(always)]
    fn needed(self, headers: u64) -> u64 {
        let payload = self.length.saturating_sub(headers);
        // No segment is 0, but the compiler would keep a panic for that case.
        (payload + self.segment).saturating_sub(1).checked_div(self.segment).unwrap_or(0)
    }
}

/// What counts as `least` and may be as much as `most`; certain where there is no difference.
#[inline(always)]
fn uncertain(least: Tally, most: Tally) -> (Tally, Option<Uncertain>) {
    let is_certain = least.packets == most.packets && least.bytes == most.bytes;
    (least, if is_certain { None } else { Some(Uncertain { least, most }) })
}

impl Headers {
    /// Of a buffer in which so many bytes of them are absent on the wire.
    #[inline(always)]
    const fn new(in_buffer: usize, absent: usize, is_v6: usize, is_udp: bool) -> Self {
        let on_wire = in_buffer.saturating_sub(absent) as u64;
        Self { in_buffer: in_buffer as u64, on_wire, is_v6: is_v6 != 0, is_udp }
    }

    /// Those of each fragment of a UDP packet, whose own header is payload of the first. IPv6 has a fragment header,
    /// which the buffer has not.
    #[inline(always)]
    const fn of_fragments(self) -> Self {
        let on_wire = self.on_wire.saturating_sub(UDP_BYTES as u64) + if self.is_v6 { FRAGMENT_BYTES } else { 0 };
        Self { in_buffer: self.in_buffer.saturating_sub(UDP_BYTES as u64), on_wire, ..self }
    }
}

/// All headers of a merged buffer of `length` bytes that begins with `link`; `None` if they cannot be read.
///
/// It walks header by header, and forgets how it came there: so the verifier goes through each kind of header once for
/// each step.
#[inline(always)]
pub fn headers<B: Bytes + ?Sized>(packet: &B, link: Link, length: u64) -> Option<Headers> {
    let Payload { ethertype, at } = link::begin(packet, link).ok()?;
    let mut next = Next { kind: by_type(ethertype), at };
    // Where the latest UDP header ends, or 0: tunnels in UDP are known by their looks only, and may be payload.
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
    // What was not followed to its end, because that is beyond reach, may have been a tunnel.
    let is_beyond = next.at > REACH_MAX - FARTHEST;
    if plain == 0 || is_beyond { None } else { Some(Headers::new(plain, absent, is_v6, true)) }
}

/// The next header: an `EtherType` or, below these, a protocol number, and where it begins.
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

/// IPv4 and what follows it. If the `buffer`'s length is given, the packet has to end where that does.
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

/// Whether an IP header says what there is in the buffer from `at` on. What is too long for its field is not told.
#[inline(always)]
fn is_told(told: u16, length: u64, at: usize) -> bool {
    let rest = length.saturating_sub(at as u64);
    u64::from(told) == if rest > IP_LENGTH_MAX { 0 } else { rest }
}

/// What follows a header that is neither IP nor a transport header.
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
        // PPP's numbers of IPv4 and IPv6.
        ethertype::PPPOE_SESSION => match packet.be16(at + 6)? {
            0x0021 => Some(Next { kind: IPV4, at: at + 8 }),
            0x0057 => Some(Next { kind: IPV6, at: at + 8 }),
            _ => None,
        },
        GRE => gre(packet, at),
        _ => None,
    }
}

/// A protocol number that is reserved: no header.
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

/// An `EtherType`, and not the length that may be in its place.
#[inline(always)]
const fn by_type(ethertype: u16) -> u16 {
    if ethertype < ethertype::FIRST { NOTHING } else { ethertype }
}

/// RFC 2784 and RFC 2890, and ERSPAN of types II and III behind a sequence number.
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

/// What a UDP payload carries if it is a tunnel, by its looks and whatever the port. Chance can look like that: whether
/// the packet inside ends where the buffer does has to be checked.
#[inline(always)]
fn in_udp<B: Bytes + ?Sized>(packet: &B, at: usize) -> Option<Next> {
    /// Neither version 1 nor a control message (draft-ietf-intarea-gue-09 section 3.1).
    const GUE_VERSION_AND_CONTROL: u8 = 0xe0;
    const VXLAN_HAS_IDENTIFIER: u8 = 0x08;
    const VXLAN_HAS_PROTOCOL: u8 = 0x04;
    let header = packet.window::<8>(at)?;
    let (first, second, fourth) = (header.u8::<0>(), header.u8::<1>(), header.u8::<3>());
    if matches!(first >> 4, 4 | 6) {
        // At once: FOU, bareudp, GUE of version 1.
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
