//! Guesses what a payload without a declared type is.
//!
//! The first four bits tell little: the address at the start of an Ethernet frame in a pseudowire may begin with 4 or
//! 6, too. So a header counts as IP only if all its fields are consistent with each other and with the packet: lengths,
//! and the IPv4 checksum. IP within such a frame is not looked for, because that takes too long in old kernels'
//! verifiers.

use super::{Bytes, Payload, Window, ethertype};
use crate::proto;

/// How many bytes may follow a packet in its frame if it is shorter than Ethernet's minimum, or if the checksum was
/// captured as well.
const PADDING_MAX: i64 = 6;
/// The largest value of the length in an IP header. In longer packets, which an offload merged, it is 0.
const LENGTH_MAX: i64 = 0xffff;
/// No packet is longer than this, only [`UNKNOWN_LENGTH`](super::UNKNOWN_LENGTH) is.
const KNOWN_MAX: i64 = u32::MAX as i64;

/// The IP packet in a payload; has another `EtherType` if there is none.
#[inline(always)]
pub(super) fn ip<B: Bytes + ?Sized>(packet: &B, at: usize) -> Payload {
    let ethertype = match packet.u8(at).unwrap_or(0) >> 4 {
        4 if is_ipv4(packet, packet.forget(at)) => ethertype::IPV4,
        6 if is_ipv6(packet, packet.forget(at)) => ethertype::IPV6,
        _ => 0,
    };
    Payload { ethertype, at }
}

/// The bytes of the packet from `at` on; negative if it ends before. Only the results of subtractions are compared. If
/// the length itself were compared, the verifier would remember what it learned and follow each case to the end.
#[inline(always)]
fn room<B: Bytes + ?Sized>(packet: &B, at: usize) -> i64 {
    (packet.length() as i64).wrapping_sub(at as i64)
}

/// Whether a valid IPv4 header is at `at` (RFC 791 section 3.1).
#[inline(always)]
pub(super) fn is_ipv4<B: Bytes + ?Sized>(packet: &B, at: usize) -> bool {
    let Some(ip) = packet.window::<20>(at) else { return false };
    let first = ip.u8::<0>();
    let (header, total) = (usize::from(first & 0x0f) * 4, usize::from(ip.be16::<2>()));
    let room = room(packet, at);
    let fits = total >= header && total as i64 <= room || total == 0 && room > LENGTH_MAX;
    if first >> 4 != 4 || header < 20 || !fits {
        return false;
    }
    let mut sum = u64::from(ip.word32::<0>()) + u64::from(ip.word32::<4>()) + u64::from(ip.word32::<8>());
    sum = folded(sum + u64::from(ip.word32::<12>()) + u64::from(ip.word32::<16>()));
    for option in (20..60).step_by(4) {
        if option >= header {
            break;
        }
        let Some(word) = packet.window::<4>(at + option) else { return false };
        sum = folded(sum + u64::from(word.word32::<0>()));
    }
    sum == 0xffff
}

/// RFC 1071: the sum of all 16-bit words with carries added, in any byte order. It is folded at each step, so the
/// verifier sees the same kind of number however many words there were.
#[inline(always)]
const fn folded(sum: u64) -> u64 {
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// Whether a valid IPv6 header is at `at` (RFC 8200 section 3). There is no checksum, but the length must match the
/// packet.
#[inline(always)]
pub(super) fn is_ipv6<B: Bytes + ?Sized>(packet: &B, at: usize) -> bool {
    const HEADER: usize = 40;
    let Some(ip) = packet.window::<HEADER>(at) else { return false };
    let (payload, room) = (i64::from(ip.be16::<4>()), room(packet, at + HEADER));
    // A header with options has a payload.
    let fits = payload <= room && room - payload <= PADDING_MAX && (payload > 0 || ip.u8::<6>() != proto::HOP_BY_HOP);
    let fits = fits || payload == 0 && room > LENGTH_MAX;
    ip.be16::<0>() >> 12 == 6 && (fits || room > KNOWN_MAX)
}
