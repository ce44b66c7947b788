//! The IP header, its extension headers, fragments.

use super::{Bytes, EXTENSION_HEADERS_MAX, Layer, Parsed, Window, proto, transport::transport};
use crate::{
    flow::{Address, FlowKey, class},
    ledger::Skip,
};

/// Of IPv4's flags and fragment offset (RFC 791 section 3.1): more fragments follow, or this is not the first.
pub(super) const FRAGMENTED_V4: u16 = 0x3fff;
/// Of IPv6's fragment offset and flags (RFC 8200 section 4.5) the same. An atomic fragment (RFC 6946) is neither.
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
    // The options must be there too, or the transport header is not where it seems.
    if packet.u8(at + header - 1).is_none() {
        return Err(Skip::TruncatedIp);
    }
    let src = Address::from_v4_word(ip.word32::<12>());
    let dst = Address::from_v4_word(ip.word32::<16>());
    let key = FlowKey::new(src, dst, ip.u8::<9>(), 0);
    let at = packet.forget(at + header);
    if ip.be16::<6>() & FRAGMENTED_V4 != 0 {
        return Ok(Layer { parsed: fragment(key), at });
    }
    behind(packet, at, key)
}

/// RFC 8200 section 3.
#[inline(always)]
pub(super) fn ipv6<B: Bytes + ?Sized>(packet: &B, at: usize) -> Result<Layer, Skip> {
    let ip = packet.window::<40>(at).ok_or(Skip::TruncatedIp)?;
    if ip.u8::<0>() >> 4 != 6 {
        return Err(Skip::BadIpHeader);
    }
    let src = Address([ip.word64::<8>(), ip.word64::<16>()]);
    let dst = Address([ip.word64::<24>(), ip.word64::<32>()]);
    let key = FlowKey::new(src, dst, ip.u8::<6>(), class::V6);
    behind(packet, at + 40, key)
}

/// RFC 8200 section 4: extension headers from `at` on, of which the first is `key.proto`. Over IPv4 the authentication
/// header is the only one; the other numbers are protocols there.
#[inline(always)]
fn behind<B: Bytes + ?Sized>(packet: &B, mut at: usize, mut key: FlowKey) -> Result<Layer, Skip> {
    for _ in 0..=EXTENSION_HEADERS_MAX {
        at = packet.forget(at);
        let this = key.proto();
        if !is_extension(this) || (this != proto::AUTHENTICATION && !key.is_v6()) {
            return Ok(Layer { parsed: transport(packet, at, key), at });
        }
        // None is shorter than eight bytes.
        let header = packet.window::<8>(at).ok_or(Skip::TruncatedIp)?;
        let (next, units) = (header.u8::<0>(), usize::from(header.u8::<1>()));
        // Mobility, HIP and Shim6 may end the chain (RFC 6275 section 6.1.1): then they are the protocol.
        if next == proto::NO_NEXT_HEADER && matches!(this, proto::MOBILITY | proto::HIP | proto::SHIM6) {
            return Ok(Layer { parsed: Parsed { key, tcp_flags: 0 }, at });
        }
        key = key.with_proto(next);
        at += match this {
            proto::FRAGMENT if header.be16::<2>() & FRAGMENTED_V6 != 0 => {
                return Ok(Layer { parsed: fragment(key), at });
            }
            proto::FRAGMENT => 8,
            // RFC 4302 section 2.2: in 4-byte units, less two.
            proto::AUTHENTICATION => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
    }
    Err(Skip::ExtensionDepth)
}

#[inline(always)]
const fn is_extension(proto: u8) -> bool {
    matches!(
        proto,
        proto::HOP_BY_HOP
            | proto::ROUTING
            | proto::FRAGMENT
            | proto::AUTHENTICATION
            | proto::DESTINATION_OPTIONS
            | proto::MOBILITY
            | proto::HIP
            | proto::SHIM6
    )
}

/// A piece of a packet, be it the first: see [`class::FRAGMENT`].
#[inline(always)]
const fn fragment(key: FlowKey) -> Parsed {
    Parsed { key: key.with_class(class::FRAGMENT), tcp_flags: 0 }
}
