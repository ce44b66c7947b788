//! Finds out which packets the router itself sends. A packet socket does not show through which interface a sent packet
//! arrived. But if the router does not translate addresses, only its own packets have one of its addresses as the
//! source.

use weir_common::{
    flow::Address,
    packet::{Beginning, Link, Tunnels, parse},
};
use weir_system::{memory::Part, numbers::mebibytes};

/// The most addresses of either kind that are stored. A packet from any further address counts as forwarded.
pub const OWN_MAX: usize = 4_096;
/// The memory of all addresses while they are being replaced, in bytes.
const OWN_BYTES: u64 = (2 * OWN_MAX * (size_of::<Address>() + size_of::<LinkAddress>())) as u64;

/// The memory of packet sockets apart from the readers' sketches: for so many of them, with rings of this size.
pub fn memory(taps: u64, packet_ring: u64) -> [Part; 2] {
    let how = format!("{taps} x {}, at most", mebibytes(packet_ring, 1));
    let own = if taps > 0 { OWN_BYTES } else { 0 };
    [
        Part::new("packet sockets' rings", taps * packet_ring, how).if_any(),
        Part::new("the router's own addresses", own, format!("at most {OWN_MAX} of IP and of links")).if_any(),
    ]
}

/// An Ethernet (MAC) address.
pub type LinkAddress = [u8; 6];

/// The router's own addresses, sorted and without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    addresses: Vec<Address>,
    links: Vec<LinkAddress>,
}

impl Own {
    /// Stores the addresses of all interfaces.
    pub fn new(addresses: Vec<Address>, links: Vec<LinkAddress>) -> Self {
        Self { addresses: ordered(addresses), links: ordered(links) }
    }

    /// Returns true if the router itself sends this packet: the source of the outer IP header is one of its addresses.
    /// A packet that has no source yet (RFC 2131 section 4.1, RFC 4862 section 5.4.2) and a packet that is not IP, such
    /// as ARP, are not routed. They are the router's if the source in the Ethernet header is.
    pub fn sends(&self, packet: &Beginning<'_>, link: Link) -> bool {
        match parse(packet, link, Tunnels::Outer).map(|parsed| parsed.key.src_ip()) {
            Ok(source) if !source.is_unspecified() => self.addresses.binary_search(&source.into()).is_ok(),
            _ if link == Link::Ethernet => packet.bytes.get(6..12).is_some_and(|from| self.has_link(from)),
            source => source.is_ok(),
        }
    }

    /// The number of IP addresses.
    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    fn has_link(&self, from: &[u8]) -> bool {
        self.links.binary_search_by(|link| link[..].cmp(from)).is_ok()
    }
}

fn ordered<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all.dedup();
    all.truncate(OWN_MAX);
    all.shrink_to_fit();
    all
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const MINE: LinkAddress = [2, 0, 0, 0, 0, 1];
    const OTHERS: LinkAddress = [2, 0, 0, 0, 0, 9];

    fn own() -> Own {
        let v6 = Ipv6Addr::from_bits(0xfd77_0001_u128 << 96 | 1);
        let addresses = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 0, 0, 1)].map(Address::from);
        Own::new([&addresses[..], &[v6.into()]].concat(), vec![[2, 0, 0, 0, 0, 3], MINE, MINE])
    }

    fn ipv4(source: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 46];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&46_u16.to_be_bytes());
        packet[9] = 17;
        packet[12..16].copy_from_slice(&source);
        packet[16..20].copy_from_slice(&[198, 51, 100, 7]);
        packet
    }

    fn ipv6(source: u128) -> Vec<u8> {
        let mut packet = vec![0; 60];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&20_u16.to_be_bytes());
        packet[6] = 58;
        packet[8..24].copy_from_slice(&source.to_be_bytes());
        packet
    }

    fn sends(from: LinkAddress, ethertype: &[u8], payload: &[u8]) -> bool {
        let frame = [&[0xff; 6][..], &from, ethertype, payload].concat();
        own().sends(&Beginning { bytes: &frame, length: frame.len() }, Link::Ethernet)
    }

    #[test]
    fn a_packet_is_the_routers_if_its_source_address_is() {
        const IPV4: &[u8] = &[0x08, 0x00];
        const IPV6: &[u8] = &[0x86, 0xdd];
        for (source, expected) in [([192, 0, 2, 1], true), ([10, 0, 0, 1], true), ([10, 0, 0, 2], false)] {
            // Forwarded packets have the router's link address, too.
            for from in [MINE, OTHERS] {
                assert_eq!(sends(from, IPV4, &ipv4(source)), expected, "{source:?}");
                assert_eq!(sends(from, &[0x81, 0, 0, 7, 0x08, 0], &ipv4(source)), expected, "{source:?} in a VLAN");
            }
            let bare = ipv4(source);
            assert_eq!(own().sends(&Beginning { bytes: &bare, length: bare.len() }, Link::RawIp), expected);
        }
        assert!(sends(OTHERS, IPV6, &ipv6(0xfd77_0001 << 96 | 1)) && !sends(MINE, IPV6, &ipv6(0xfd77_0001 << 96 | 2)));
        assert!(!Own::default().sends(&Beginning { bytes: &[0; 60], length: 60 }, Link::Ethernet));
    }

    #[test]
    fn packets_that_are_not_routed_are_recognized_by_their_link_address() {
        for (ethertype, payload) in [
            (&[0x08, 0x06][..], vec![0; 46]),
            (&[0x88, 0xcc], vec![0; 46]),
            (&[0x08, 0x00], ipv4([0; 4])),
            (&[0x86, 0xdd], ipv6(0)),
        ] {
            assert!(sends(MINE, ethertype, &payload) && !sends(OTHERS, ethertype, &payload), "{ethertype:02x?}");
        }
        let bare = ipv4([0; 4]);
        assert!(own().sends(&Beginning { bytes: &bare, length: bare.len() }, Link::RawIp));
        assert!(!own().sends(&Beginning { bytes: &[0; 40], length: 40 }, Link::RawIp), "not an IP packet");
    }

    #[test]
    fn the_number_of_own_addresses_is_limited() {
        let many = (0..2 * OWN_MAX as u32).map(|nth| Address::from(Ipv4Addr::from(nth))).collect();
        assert_eq!(Own::new(many, Vec::new()).addresses.len(), OWN_MAX);
    }
}
