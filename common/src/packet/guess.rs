//! What a payload is whose type nothing tells.
//!
//! The first four bits say little: the address that begins an Ethernet frame in a pseudowire may begin with 4 or 6,
//! too. So a header counts as one of IP only if all of it agrees with itself and with the packet: lengths, and the
//! checksum of IPv4. IP within such a frame is not looked for, because that takes old kernels' verifiers too long.

use super::{Bytes, Payload, Window, ethertype};
use crate::proto;

/// What may follow a packet in its frame where it is shorter than Ethernet's shortest frame, or the checksum was
/// captured as well.
const PADDING_MAX: i64 = 6;
/// The most that the length of an IP header can say. In longer packets, which an offload merged, it is 0.
const LENGTH_MAX: i64 = 0xffff;
/// No packet is longer than this; [`UNKNOWN_LENGTH`](super::UNKNOWN_LENGTH) is.
const KNOWN_MAX: i64 = u32::MAX as i64;

/// The IP packet of a payload; of another `EtherType` if there is none.
#[inline(always)]
pub(super) fn ip<B: Bytes + ?Sized>(packet: &B, at: usize) -> Payload {
    let ethertype = match packet.u8(at).unwrap_or(0) >> 4 {
        4 if is_ipv4(packet, packet.forget(at)) => ethertype::IPV4,
        6 if is_ipv6(packet, packet.forget(at)) => ethertype::IPV6,
        _ => 0,
    };
    Payload { ethertype, at }
}

/// The bytes of the packet from `at` on; negative if it ends before. Only what comes out of a subtraction is compared:
/// of a length that was compared, the verifier would remember what it learned, and follow each case to the end.
#[inline(always)]
fn room<B: Bytes + ?Sized>(packet: &B, at: usize) -> i64 {
    (packet.length() as i64).wrapping_sub(at as i64)
}

/// Whether a sound header of IPv4 is at `at` (RFC 791 section 3.1).
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

/// RFC 1071: the sum of all words of 16 bits, carries added, whatever the byte order. Folded at each step, it is one
/// number to the verifier however many there were.
#[inline(always)]
const fn folded(sum: u64) -> u64 {
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// Whether a sound header of IPv6 is at `at` (RFC 8200 section 3). There is no checksum, but the length is that of the
/// packet.
#[inline(always)]
pub(super) fn is_ipv6<B: Bytes + ?Sized>(packet: &B, at: usize) -> bool {
    const HEADER: usize = 40;
    let Some(ip) = packet.window::<HEADER>(at) else { return false };
    let (payload, room) = (i64::from(ip.be16::<4>()), room(packet, at + HEADER));
    // Options are a payload.
    let fits = payload <= room && room - payload <= PADDING_MAX && (payload > 0 || ip.u8::<6>() != proto::HOP_BY_HOP);
    let fits = fits || payload == 0 && room > LENGTH_MAX;
    ip.be16::<0>() >> 12 == 6 && (fits || room > KNOWN_MAX)
}
