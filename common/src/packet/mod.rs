//! The parser: finds the flow key of a packet, or the reason why it has none.
//!
//! The kernel, replay and fuzzing use the same source, so they cannot disagree. It is generic over [`Bytes`], because
//! the eBPF verifier needs a proof that each access is within the packet. Every loop is bounded by a constant, and
//! everything is inlined. The verifiers of Linux 6.1, 6.12 and 6.18 accept it.
//!
//! A key needs addresses and a protocol. A packet with both is attributed to a flow. If its transport header is
//! missing, the key has no ports, and its [`class`](crate::flow::class) says so. Every other packet is counted under
//! its [`Skip`].
//!
//! [`parse`] first tries the [`common`] packets, whose headers are at fixed offsets. [`walk`] parses all others header
//! by header: `link` up to the first IP header (over `tag`s, PPP and MPLS), `network` through it, `transport`, and, if
//! tunnels are looked into, `tunnel` up to the next one.
//!
//! Where no type field says what follows (after MPLS, in GTP-U), `guess` accepts IP only if its header is valid.

mod common;
mod guess;
mod link;
mod looped;
mod merged;
mod network;
mod tag;
#[cfg(test)]
mod tests;
mod transport;
mod tunnel;

use crate::{flow::FlowKey, ledger::Skip};

pub use self::{
    common::common,
    looped::is_looped_back,
    merged::{BY_PARTS, Headers, Merged, headers},
    tag::vlan_id,
    tunnel::{Look, PORTS_MAX, TunnelPorts, UdpTunnel},
};

/// The parser reads at most this many bytes of a packet.
pub const REACH_MAX: usize = 512;
/// The longest header that the parser can skip, in bytes. IPv6 extension headers (RFC 8200 section 4) have a one-byte
/// length in units of eight, plus a few bytes that it does not count.
pub const HEADER_MAX: usize = 2100;
/// Tags that are removed: VLAN tags (802.1Q, 802.1ad), and others before an `EtherType`.
pub const VLAN_TAGS_MAX: usize = 4;
/// MPLS labels that are removed.
pub const MPLS_LABELS_MAX: usize = 4;
/// IPv6 extension headers, and authentication headers over IPv4, that are parsed.
pub const EXTENSION_HEADERS_MAX: usize = 8;
/// The length of a packet if it is not known.
pub const UNKNOWN_LENGTH: usize = usize::MAX >> 1;
/// Nested tunnels that are looked into.
pub const TUNNELS_MAX: usize = 2;

/// How many places [`Bytes::forget_all`] has for numbers.
pub const PLACES: usize = 8;

/// Read access to a packet.
pub trait Bytes {
    /// `N` bytes that are known to exist.
    type Window<'a, const N: usize>: Window<N>
    where
        Self: 'a;

    /// The `N` bytes at `at`. `None` if the packet, or [`REACH_MAX`], ends before.
    fn window<const N: usize>(&self, at: usize) -> Option<Self::Window<'_, N>>;

    /// The first `N` bytes.
    #[inline(always)]
    fn first<const N: usize>(&self) -> Option<Self::Window<'_, N>> {
        self.window(0)
    }

    /// The length of the whole packet, of which only the beginning can be read; [`UNKNOWN_LENGTH`] if not known.
    fn length(&self) -> usize;

    /// Returns `at` with its origin hidden from the verifier, which would otherwise follow each of the many paths to a
    /// header separately. It is at most [`REACH_MAX`] plus [`HEADER_MAX`], or a number of twelve bits.
    #[inline(always)]
    fn forget(&self, at: usize) -> usize {
        at
    }

    /// Returns any number with everything about it hidden from the verifier.
    #[inline(always)]
    fn forget_word(&self, number: u64) -> u64 {
        number
    }

    /// Returns a number below 2^16; that is all the verifier knows about it afterwards. Each number in a loop needs its
    /// own `PLACE`, up to [`PLACES`].
    #[inline(always)]
    fn forget_all<const PLACE: usize>(&self, number: usize) -> usize {
        number
    }

    /// Returns a number that is nearly always `USUAL`. The processor predicts that it is, and does not wait for the
    /// read that the number comes from. Otherwise the offset of each header waits for the header before.
    #[inline(always)]
    fn predict<const USUAL: usize>(&self, number: usize) -> usize {
        number
    }

    /// An index into a table of 2^16 entries. Verifiers before Linux 6.0 do not know that a number is below 2^16 after
    /// its bytes were swapped.
    #[inline(always)]
    fn place(&self, number: u16) -> usize {
        usize::from(number)
    }

    /// The byte at `at`.
    #[inline(always)]
    fn u8(&self, at: usize) -> Option<u8> {
        self.window::<1>(at).map(|window| window.u8::<0>())
    }
    /// Two bytes at `at`, big-endian.
    #[inline(always)]
    fn be16(&self, at: usize) -> Option<u16> {
        self.window::<2>(at).map(|window| window.be16::<0>())
    }
}

/// `N` bytes that are known to exist, read at constant offsets: bounds are checked at compile time.
pub trait Window<const N: usize> {
    /// The byte at `AT`.
    fn u8<const AT: usize>(&self) -> u8;
    /// Two bytes at `AT`, big-endian.
    fn be16<const AT: usize>(&self) -> u16;
    /// Four bytes at `AT`, in memory order.
    fn word32<const AT: usize>(&self) -> u32;
    /// Eight bytes at `AT`, in memory order.
    fn word64<const AT: usize>(&self) -> u64;
}

/// The beginning of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// The available bytes.
    pub bytes: &'a [u8],
    /// See [`Bytes::length`].
    pub length: usize,
}

impl Bytes for Beginning<'_> {
    type Window<'a, const N: usize>
        = &'a [u8; N]
    where
        Self: 'a;

    #[inline(always)]
    fn window<const N: usize>(&self, at: usize) -> Option<&[u8; N]> {
        self.bytes.window(at)
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.length
    }
}

impl Bytes for [u8] {
    type Window<'a, const N: usize> = &'a [u8; N];

    #[inline(always)]
    fn window<const N: usize>(&self, at: usize) -> Option<&[u8; N]> {
        if at + N > REACH_MAX {
            return None;
        }
        self.get(at..)?.first_chunk()
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.len()
    }
}

impl<const N: usize> Window<N> for &[u8; N] {
    #[inline(always)]
    fn u8<const AT: usize>(&self) -> u8 {
        let [byte] = part::<N, AT, 1>(self);
        byte
    }
    #[inline(always)]
    fn be16<const AT: usize>(&self) -> u16 {
        u16::from_be_bytes(part::<N, AT, 2>(self))
    }
    #[inline(always)]
    fn word32<const AT: usize>(&self) -> u32 {
        u32::from_ne_bytes(part::<N, AT, 4>(self))
    }
    #[inline(always)]
    fn word64<const AT: usize>(&self) -> u64 {
        u64::from_ne_bytes(part::<N, AT, 8>(self))
    }
}

#[inline(always)]
fn part<const N: usize, const AT: usize, const LENGTH: usize>(bytes: &[u8; N]) -> [u8; LENGTH] {
    const { assert!(AT + LENGTH <= N, "the read lies within the window") };
    core::array::from_fn(|nth| bytes[AT + nth])
}

/// The link layer. Routers have Ethernet; captures have more.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet II or IEEE 802.3.
    Ethernet,
    /// An IP header first.
    RawIp,
    /// BSD loopback: a 4-byte address family, in the byte order of the capturing machine.
    Loopback,
    /// Linux cooked capture, version 1.
    Sll,
    /// Linux cooked capture, version 2.
    Sll2,
    /// PPP, with or without the HDLC-like address and control bytes (RFC 1662); or Cisco's HDLC (RFC 1547 section
    /// 4.3.1).
    Ppp,
    /// PPP after a byte for the direction, which may replace the address.
    PppWithDirection,
    /// PPP over Ethernet, without the Ethernet header.
    Pppoe,
    /// A link type that weir does not support.
    Other,
}

impl Link {
    /// All link types; the position is the code.
    pub const ALL: [Self; 9] = [
        Self::Ethernet,
        Self::RawIp,
        Self::Loopback,
        Self::Sll,
        Self::Sll2,
        Self::Ppp,
        Self::PppWithDirection,
        Self::Pppoe,
        Self::Other,
    ];

    /// The link type with this code; an unknown code is [`Link::Other`].
    #[inline(always)]
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Ethernet,
            1 => Self::RawIp,
            2 => Self::Loopback,
            3 => Self::Sll,
            4 => Self::Sll2,
            5 => Self::Ppp,
            6 => Self::PppWithDirection,
            7 => Self::Pppoe,
            _ => Self::Other,
        }
    }
}

/// Whether a tunnelled packet belongs to the outer or to the inner flow.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tunnels {
    /// The tunnel: the key is that of the outermost IP header.
    #[default]
    Outer,
    /// The inner flow: the key is that of the innermost IP header that can be read, inside at most [`TUNNELS_MAX`]
    /// tunnels.
    ///
    /// If nothing inside can be read (encrypted, truncated, a fragment, not IP), the key is the tunnel's. So looking
    /// into tunnels never loses a key.
    Inner,
}

/// A parsed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The flow's key; its scope (`interface`, `epoch`) is still zero.
    pub key: FlowKey,
    /// The TCP flags, 0 for other protocols.
    pub tcp_flags: u8,
    /// The TOS byte of IPv4 or the traffic class of IPv6, from the IP header that the key is from: DSCP in the upper
    /// six bits (RFC 2474), ECN in the lower two (RFC 3168).
    pub tos: u8,
    /// The VLAN ID of the frame's outermost tag, even if the key is from a packet inside a tunnel; 0 if there is none.
    /// A tag with ID 0 has only a priority and is not a VLAN (IEEE 802.1Q).
    pub vlan: u16,
}

impl Parsed {
    /// A packet of a flow with nothing else: no TCP flags, TOS 0, no VLAN.
    #[inline(always)]
    pub const fn new(key: FlowKey) -> Self {
        Self { key, tcp_flags: 0, tos: 0, vlan: 0 }
    }
}

/// `EtherType`s (IEEE).
mod ethertype {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const ERSPAN_III: u16 = 0x22eb;
    pub const TRANSPARENT_ETHERNET: u16 = 0x6558;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const MPLS: u16 = 0x8847;
    pub const MPLS_MULTICAST: u16 = 0x8848;
    pub const PPPOE_DISCOVERY: u16 = 0x8863;
    pub const PPPOE_SESSION: u16 = 0x8864;
    /// LLC in frames too long for a length field (draft-ietf-isis-ext-eth-01).
    pub const LONG_LLC: u16 = 0x8870;
    pub const PROVIDER_VLAN: u16 = 0x88a8;
    pub const ERSPAN_II: u16 = 0x88be;
    pub const LLDP: u16 = 0x88cc;
    pub const MACSEC: u16 = 0x88e5;
    /// A backbone service (IEEE 802.1ah).
    pub const SERVICE: u16 = 0x88e7;
    pub const FABRIC_PATH: u16 = 0x8903;
    /// Cisco's security group tag.
    pub const CISCO_METADATA: u16 = 0x8909;
    pub const VN_TAG: u16 = 0x8926;
    /// High-availability Seamless Redundancy (IEC 62439-3).
    pub const HSR: u16 = 0x892f;
    /// IEEE 802.1BR.
    pub const E_TAG: u16 = 0x893f;
    /// Q-in-Q before 802.1ad.
    pub const OLD_QINQ: u16 = 0x9100;
    pub const OLDER_QINQ: u16 = 0x9200;
    /// A switch chip's tag as defined by Linux (`ETH_P_EDSA`).
    pub const EDSA: u16 = 0xdada;
    /// Reserved: the type is unknown and must be guessed.
    pub const UNKNOWN: u16 = 0xffff;
    /// Smaller values are IEEE 802.3 lengths.
    pub const FIRST: u16 = 0x0600;
}

/// The flow of a packet that starts with `link`.
///
/// # Errors
///
/// The reason why the packet has no flow key.
#[inline(always)]
pub fn parse<B: Bytes + ?Sized>(packet: &B, link: Link, look: impl Look) -> Result<Parsed, Skip> {
    if matches!(link, Link::Ethernet)
        && let Some(parsed) = common(packet, look, |parsed| parsed)
    {
        return parsed;
    }
    walk(packet, link, look)
}

/// As [`parse`], but header by header from the start: slower, and correct for every packet.
///
/// # Errors
///
/// The reason why the packet has no flow key.
#[inline(always)]
pub fn walk<B: Bytes + ?Sized>(packet: &B, link: Link, look: impl Look) -> Result<Parsed, Skip> {
    walk_captured(packet, link, || link, look)
}

/// The same, but rereads the link type for the VLAN, so that the verifier merges the paths of all link types.
///
/// # Errors
///
/// The reason why the packet has no flow key.
#[inline(always)]
pub fn walk_captured<B: Bytes + ?Sized>(
    packet: &B,
    link: Link,
    again: impl Fn() -> Link,
    look: impl Look,
) -> Result<Parsed, Skip> {
    let parsed = innermost(packet, link, look)?;
    // Read last and from the start: keeping a number all the way would cost the verifier more paths.
    Ok(Parsed { vlan: tag::vlan(packet, again()), ..parsed })
}

/// The flow, without its VLAN.
#[inline(always)]
fn innermost<B: Bytes + ?Sized>(packet: &B, link: Link, look: impl Look) -> Result<Parsed, Skip> {
    let mut payload = link::begin(packet, link)?;
    // Not an `Option`: for `None`, LLVM would spill a register that was never written, which the verifier refuses.
    let (mut outer, mut has_outer) = (Parsed::new(FlowKey::default()), false);
    for _ in 0..TUNNELS_MAX + 1 {
        let layer = match layer(packet, payload) {
            Ok(layer) => layer,
            Err(_) if has_outer => return Ok(outer),
            Err(skip) => return Err(skip),
        };
        if matches!(look.tunnels(), Tunnels::Outer) {
            return Ok(layer.parsed);
        }
        // Whatever the layer was, its paths merge here for the verifier.
        let key = layer.parsed.key.map_words(|word| packet.forget_word(word));
        let parsed = Parsed { key, ..layer.parsed };
        match tunnel::inside(packet, &Layer { parsed, at: packet.forget(layer.at) }, look) {
            Some(inside) => payload = inside,
            None => return Ok(parsed),
        }
        // No tunnel is TCP. Stating it halves the paths that the verifier follows.
        (outer, has_outer) = (Parsed { tcp_flags: 0, ..parsed }, true);
    }
    // There is another tunnel, but it is nested too deep.
    Ok(outer)
}

/// A payload: its `EtherType` and its offset.
#[derive(Clone, Copy)]
struct Payload {
    ethertype: u16,
    at: usize,
}

/// What follows an `EtherType` at `at`.
#[inline(always)]
fn with_type_at<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Payload, Skip> {
    Ok(Payload { ethertype: packet.be16(at).ok_or(Skip::TruncatedLink)?, at: at + 2 })
}

/// The content of an IP header and its extension headers, and the offset of the transport header.
#[derive(Clone, Copy)]
struct Layer {
    parsed: Parsed,
    at: usize,
}

/// Parses up to the transport header.
#[inline(always)]
fn layer<B: Bytes + ?Sized>(packet: &B, payload: Payload) -> Result<Layer, Skip> {
    let Payload { ethertype, at } = link::unwrap(packet, payload)?;
    match ethertype {
        ethertype::IPV4 => network::ipv4(packet, at),
        ethertype::IPV6 => network::ipv6(packet, at),
        ethertype::ARP => Err(Skip::Arp),
        ethertype::LLDP => Err(Skip::Lldp),
        ethertype::PPPOE_DISCOVERY => Err(Skip::Pppoe),
        ethertype::MACSEC => Err(Skip::Macsec),
        0..ethertype::FIRST | ethertype::LONG_LLC => Err(Skip::Llc),
        _ => Err(Skip::NonIp),
    }
}
