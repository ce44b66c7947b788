//! The IP header, its extension headers, fragments.

use super::{Bytes, EXTENSION_HEADERS_MAX, Layer, Parsed, REACH_MAX, Window, transport::transport};
use crate::{
    flow::{Address, FlowKey, class},
    ledger::Skip,
    proto,
};

/// The bits of IPv4's flags and fragment offset (RFC 791 section 3.1) that are set in fragments: more fragments follow,
/// or this is not the first.
pub(super) const FRAGMENTED_V4: u16 = 0x3fff;
/// The same bits of IPv6's fragment offset and flags (RFC 8200 section 4.5). An atomic fragment (RFC 6946) has none of
/// them.
const FRAGMENTED_V6: u16 = 0xfff9;

/// RFC 791 section 3.1.
#[inline(always)]
pub(super) fn ipv4<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Layer, Skip> {
    let ip = packet.window::<20>(at).ok_or(Skip::TruncatedIp)?;
    let first = ip.u8::<0>();
    let header = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || header < 20 {
        return Err(Skip::BadIpHeader);
    }
    // The options must be present, too; otherwise the transport header is not where it seems to be.
    if packet.u8(at + header - 1).is_none() {
        return Err(Skip::TruncatedIp);
    }
    let src = Address::from_v4_word(ip.word32::<12>());
    let dst = Address::from_v4_word(ip.word32::<16>());
    let parsed = Parsed { tos: ip.u8::<1>(), ..Parsed::new(FlowKey::new(src, dst, ip.u8::<9>(), 0)) };
    // A buffer that an offload merged has a length of 0: this wraps.
    let room = ip.be16::<2>().wrapping_sub(header as u16);
    let at = packet.forget(at + header);
    if ip.be16::<6>() & FRAGMENTED_V4 != 0 {
        return Ok(Layer { parsed: fragment(parsed), at });
    }
    behind(packet, at, room, parsed)
}

/// RFC 8200 section 3.
#[inline(always)]
pub(super) fn ipv6<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Layer, Skip> {
    let ip = packet.window::<40>(at).ok_or(Skip::TruncatedIp)?;
    let first = ip.be16::<0>();
    if first >> 12 != 6 {
        return Err(Skip::BadIpHeader);
    }
    let src = Address([ip.word64::<8>(), ip.word64::<16>()]);
    let dst = Address([ip.word64::<24>(), ip.word64::<32>()]);
    let key = FlowKey::new(src, dst, ip.u8::<6>(), class::V6);
    // A jumbogram (RFC 2675), or a buffer that an offload merged, has a length of 0.
    let room = match ip.be16::<4>() {
        0 => u16::MAX,
        length => length,
    };
    behind(packet, at + 40, room, Parsed { tos: (first >> 4) as u8, ..Parsed::new(key) })
}

/// What follows an IP header, by protocol number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The packet's protocol.
    Protocol,
    /// An extension header whose length is in 8-byte units.
    Extension,
    /// As [`Self::Extension`], unless it ends the chain (RFC 6275 section 6.1.1): then it is the protocol.
    ExtensionOrProtocol,
    /// The fragment header.
    Fragment,
    /// The authentication header.
    Authentication,
}

/// A table takes one load; comparisons would take ten instructions for each header.
static KINDS_V6: [Kind; 256] = {
    let mut kinds = [Kind::Protocol; 256];
    kinds[proto::HOP_BY_HOP as usize] = Kind::Extension;
    kinds[proto::ROUTING as usize] = Kind::Extension;
    kinds[proto::DESTINATION_OPTIONS as usize] = Kind::Extension;
    kinds[proto::MOBILITY as usize] = Kind::ExtensionOrProtocol;
    kinds[proto::HIP as usize] = Kind::ExtensionOrProtocol;
    kinds[proto::SHIM6 as usize] = Kind::ExtensionOrProtocol;
    kinds[proto::FRAGMENT as usize] = Kind::Fragment;
    kinds[proto::AUTHENTICATION as usize] = Kind::Authentication;
    kinds
};

/// Over IPv4 the authentication header is the only extension header. The other numbers are protocols.
#[inline(always)]
fn kind(proto: u8, is_v6: bool) -> Kind {
    match proto {
        _ if is_v6 => KINDS_V6[usize::from(proto)],
        proto::AUTHENTICATION => Kind::Authentication,
        _ => Kind::Protocol,
    }
}

/// RFC 8200 section 4: the extension headers from `at` on, within the packet's `room` bytes. The key's protocol is the
/// number of the first one.
#[inline(always)]
fn behind<B: Bytes + ?Sized>(packet: &B, mut at: usize, room: u16, parsed: Parsed) -> Result<Layer, Skip> {
    let key = parsed.key;
    let mut this = key.proto();
    at = packet.forget(at);
    let end = packet.forget_word((at + usize::from(room)) as u64) as usize;
    for _ in 0..EXTENSION_HEADERS_MAX + 1 {
        let kind = kind(this, key.is_v6());
        if kind == Kind::Protocol {
            let parsed = transport(packet, at, end, Parsed { key: key.with_proto(this), ..parsed });
            // Nothing comes after the end.
            return Ok(Layer { parsed, at: if at < end { at } else { REACH_MAX } });
        }
        // No header is shorter than eight bytes, and most of these are not longer.
        if at + 8 > end {
            return Err(Skip::TruncatedIp);
        }
        let header = packet.window::<8>(at).ok_or(Skip::TruncatedIp)?;
        let (next, units) = (header.u8::<0>(), usize::from(header.u8::<1>()));
        let more = match kind {
            // RFC 4302 section 2.2: in units of 4 bytes, minus two.
            Kind::Authentication => units * 4,
            Kind::Fragment if header.be16::<2>() & FRAGMENTED_V6 != 0 => {
                return Ok(Layer { parsed: fragment(Parsed { key: key.with_proto(next), ..parsed }), at });
            }
            Kind::Fragment => 0,
            Kind::ExtensionOrProtocol if next == proto::NO_NEXT_HEADER => {
                return Ok(Layer { parsed: Parsed { key: key.with_proto(this), ..parsed }, at });
            }
            _ => units * 8,
        };
        at = packet.forget(at + 8 + packet.predict::<0>(more));
        this = next;
    }
    Err(Skip::ExtensionDepth)
}

/// A fragment of a packet, the first or a later one: see [`class::FRAGMENT`].
#[inline(always)]
const fn fragment(parsed: Parsed) -> Parsed {
    Parsed { key: parsed.key.with_class(class::FRAGMENT), ..parsed }
}
