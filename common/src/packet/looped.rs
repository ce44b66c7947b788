//! Copies of the router's own multicast and broadcast packets, as generic XDP sees them.
//!
//! The kernel delivers such a copy to the router's own sockets through the sending interface, before it has a link
//! header (`dev_loopback_xmit()`). The interface has not received it and does not count it. The tc hook and packet
//! sockets are told what it is; XDP is not, and takes its IP header for an Ethernet header.

use super::{Bytes, Window, ethertype, guess};

/// Whether a frame is such a copy: a whole IP packet starts at its first byte and ends at its last, and there is none
/// at the end of an Ethernet header.
///
/// A received frame would need addresses that are consistent with its length and, for IPv4, that make a checksum right:
/// by chance one frame in 65,536 to a suitable address. An attacker can only hide frames that contain no IP packet, or
/// one after a tag. The interface has counted them, and weir reports that it did not see them.
#[inline(always)]
pub fn is_looped_back<B: Bytes + ?Sized>(frame: &B) -> bool {
    const ETHERNET: usize = 14;
    let Some(first) = frame.first::<20>() else { return false };
    let is_copy = match first.u8::<0>() >> 4 {
        4 => usize::from(first.be16::<2>()) == frame.length() && guess::is_ipv4(frame, 0),
        6 => is_ipv6_multicast(frame),
        _ => false,
    };
    is_copy
        && match first.be16::<12>() {
            ethertype::IPV4 => !guess::is_ipv4(frame, ETHERNET),
            ethertype::IPV6 => !guess::is_ipv6(frame, ETHERNET),
            _ => true,
        }
}

/// IPv6 has no broadcast. A multicast address starts with `ff` and is never a source (RFC 4291 section 2.7).
#[inline(always)]
fn is_ipv6_multicast<B: Bytes + ?Sized>(frame: &B) -> bool {
    const HEADER: usize = 40;
    const MULTICAST: u8 = 0xff;
    let Some(ip) = frame.first::<HEADER>() else { return false };
    usize::from(ip.be16::<4>()) + HEADER == frame.length() && ip.u8::<8>() != MULTICAST && ip.u8::<24>() == MULTICAST
}

#[cfg(test)]
mod tests {
    use std::{vec, vec::Vec};

    use super::*;

    /// An IPv4 header with its checksum, followed by enough bytes for this packet length.
    fn ipv4(src: [u8; 4], dst: [u8; 4], options: usize, length: usize) -> Vec<u8> {
        let mut packet = vec![0; length];
        packet[0] = 0x45 + options as u8;
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet[8..10].copy_from_slice(&[1, 17]);
        packet[12..16].copy_from_slice(&src);
        packet[16..20].copy_from_slice(&dst);
        let words = packet[..20 + 4 * options].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = words.sum();
        packet[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        packet
    }

    fn ipv6(src: [u8; 2], dst: u8, length: usize) -> Vec<u8> {
        let mut packet = vec![0; length];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(length as u16 - 40).to_be_bytes());
        packet[6..8].copy_from_slice(&[17, 1]);
        packet[8..10].copy_from_slice(&src);
        packet[24] = dst;
        packet
    }

    /// The packet as a received frame with these addresses.
    fn framed(addresses: [u8; 12], packet: &[u8]) -> Vec<u8> {
        let ethertype = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
        [&addresses[..], &ethertype, packet].concat()
    }

    #[test]
    fn a_packet_without_a_link_header_is_a_copy_whatever_its_addresses_are() {
        // Most of these sources look like an `EtherType` of IPv4, IPv6, VLAN, MPLS or ARP.
        for src in [[10, 0, 0, 1], [8, 0, 69, 7], [134, 221, 96, 1], [129, 0, 0, 8], [136, 71, 0, 16], [8, 6, 0, 1]] {
            for dst in [[255; 4], [10, 0, 0, 255], [239, 1, 2, 3], [224, 0, 0, 22]] {
                for (options, length) in [(0, 28), (0, 49), (1, 32), (10, 1_500), (0, 9_000)] {
                    assert!(is_looped_back(&ipv4(src, dst, options, length)[..]), "{src:?} {dst:?} {options} {length}");
                }
            }
        }
        for src in [[0xfe, 0x80], [0x20, 0x01], [0, 0]] {
            assert!(is_looped_back(&ipv6(src, 0xff, 48)[..]) && is_looped_back(&ipv6(src, 0xff, 1_500)[..]));
            assert!(!is_looped_back(&ipv6(src, 0x20, 1_500)[..]), "not multicast");
        }
        assert!(!is_looped_back(&ipv6([0xff, 2], 0xff, 48)[..]), "not a source");
    }

    #[test]
    fn what_contradicts_itself_is_a_frame() {
        let good = ipv4([10, 0, 0, 1], [255; 4], 0, 60);
        for at in 0..20 {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(!is_looped_back(&bad[..]), "byte {at}");
        }
        assert!(!is_looped_back(&good[..59]) && !is_looped_back(&[&good[..], &[0]].concat()[..]), "another length");
        for length in 0..20 {
            assert!(!is_looped_back(&good[..length]), "{length}");
        }
        let good = ipv6([0xfe, 0x80], 0xff, 60);
        assert!(
            !is_looped_back(&good[..59])
                && !is_looped_back(&good[..39])
                && !is_looped_back(&[&good[..], &[0]].concat()[..])
        );
    }

    #[test]
    fn a_received_packet_is_no_copy_even_where_its_addresses_pass_for_a_header() {
        let inside = [ipv4([192, 0, 2, 1], [198, 51, 100, 7], 0, 60), ipv6([0x20, 0x01], 0x20, 60)];
        for mut inside in inside {
            // To an address that starts an IPv4 header with the frame's length, from one with the right checksum.
            let [high, low] = ((inside.len() + 14) as u16).to_be_bytes();
            let addresses = |sum: u16| {
                let [first, second] = sum.to_be_bytes();
                [0x46, 0, high, low, 0, 1, 0x40, 0, 64, 17, first, second]
            };
            let sum = (0..=u16::MAX).find(|sum| guess::is_ipv4(&framed(addresses(*sum), &inside)[..], 0));
            let addresses = addresses(sum.unwrap());
            assert!(!is_looped_back(&framed(addresses, &inside)[..]));
            let is_ipv4 = inside[0] >> 4 == 4;
            inside[16] ^= 1;
            assert_eq!(is_looped_back(&framed(addresses, &inside)[..]), is_ipv4, "its checksum is wrong");
        }
    }
}
