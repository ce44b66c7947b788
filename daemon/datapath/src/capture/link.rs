//! The link type of a capture: where the packet begins in what was captured, and its [`Link`] for the parser.
//!
//! Some link types put data about a packet before it that was not on the wire: the log of a firewall has the rule that
//! matched, macOS has the process. These bytes are no bytes of the packet.

use weir_common::packet::Link;

use super::{link_names::NAMES, order::Order};

/// A `LINKTYPE_` number (<https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkType(pub u16);

/// A packet without what its link type puts before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened<'a> {
    pub link: Link,
    pub wire_bytes: u32,
    pub captured: &'a [u8],
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const AF_INET: u8 = 2;
/// `AF_INET6` of Linux, OpenBSD, FreeBSD and macOS.
const AF_INET6: [u8; 4] = [10, 24, 28, 30];

impl LinkType {
    /// Returns the name without `LINKTYPE_`, if weir knows it.
    pub fn name(self) -> Option<&'static str> {
        let place = NAMES.binary_search_by_key(&self.0, |(number, _)| *number).ok()?;
        Some(NAMES[place].1)
    }

    /// The link layer, if the packet begins with the first captured byte.
    const fn plain(self) -> Link {
        match self.0 {
            1 => Link::Ethernet,
            // RAW; the same as DLT_RAW on most systems, and on OpenBSD; IPV4; IPV6.
            101 | 12 | 14 | 228 | 229 => Link::RawIp,
            // NULL; LOOP.
            0 | 108 => Link::Loopback,
            113 => Link::Sll,
            276 => Link::Sll2,
            // PPP; PPP_HDLC; C_HDLC.
            9 | 50 | 104 => Link::Ppp,
            // PPP_PPPD; PPP_WITH_DIR.
            166 | 204 => Link::PppWithDirection,
            // PPP_ETHER.
            51 => Link::Pppoe,
            _ => Link::Other,
        }
    }

    /// Finds the packet in what was captured of it. `order` is that of the machine that captured it.
    #[inline]
    pub(super) fn open(self, order: Order, captured: &[u8], wire_bytes: u32) -> Opened<'_> {
        let whole = Opened { link: self.plain(), wire_bytes, captured };
        match whole.link {
            Link::Other => self.open_rare(order, whole),
            Link::Sll | Link::Sll2 => whole.of_known_hardware(),
            _ => whole,
        }
    }

    fn open_rare(self, order: Order, whole: Opened<'_>) -> Opened<'_> {
        match self.0 {
            239 => nflog(order, whole),
            117 => pflog(whole),
            258 => pktap(whole),
            192 => ppi(whole),
            226 => ipnet(whole),
            // ENC: the address family, an SPI, and flags.
            109 => whole.after_data(12).of_family(whole.byte(0) | whole.byte(3)),
            // SLIP: the direction and the compressed header, which is before the packet as it was.
            8 => whole.after_data(16).or_truncated(Link::RawIp),
            // JUNIPER_ETHER; JUNIPER_PPP and JUNIPER_CHDLC.
            178 => juniper(whole, Link::Ethernet),
            179 | 181 => juniper(whole, Link::Ppp),
            // DSA_TAG_BRCM_PREPEND: a tag of four bytes before the frame.
            282 => whole.after(4).or_truncated(Link::Ethernet),
            // DSA_TAG_EDSA: the tag has a type of its own.
            285 => Opened { link: Link::Ethernet, ..whole },
            // IPOIB: the global routing header.
            242 => whole.after(44).of_type(whole.be16(40)),
            // APPLE_IP_OVER_IEEE1394: two addresses of eight bytes.
            138 => whole.after(18).of_type(whole.be16(16)),
            // ATM_RFC1483; SUNATM, with a header of four bytes, of which the first says that LLC follows; FDDI.
            100 => whole.of_snap(0),
            123 if whole.byte(0) & 0x0f == 2 => whole.after_data(4).of_snap(0),
            10 => whole.of_snap(13),
            107 => frame_relay(whole),
            _ => whole,
        }
    }
}

impl<'a> Opened<'a> {
    /// Nothing of the packet can be read, because the headers before it are cut or contradict themselves.
    const fn truncated(self) -> Self {
        Self { link: Link::Sll, captured: &[], ..self }
    }

    /// A packet that is surely not IP.
    const fn non_ip(self) -> Self {
        /// An address family that is none.
        const NO_FAMILY: &[u8] = &[0; 4];
        Self { link: Link::Loopback, captured: NO_FAMILY, ..self }
    }

    const fn arp(self) -> Self {
        const HEADER: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x06];
        Self { link: Link::Ethernet, captured: HEADER, ..self }
    }

    /// The byte at this place; 0 after the end.
    fn byte(&self, at: usize) -> u8 {
        self.captured.get(at).copied().unwrap_or(0)
    }

    fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at + 1)])
    }

    /// Skips so many bytes, which are a header of the link layer. The link type of the rest is still unknown.
    fn after(self, header: usize) -> Self {
        Self { link: Link::Other, captured: self.captured.get(header..).unwrap_or(&[]), ..self }
    }

    /// Skips so many bytes, which were not on the wire.
    fn after_data(self, header: usize) -> Self {
        let wire_bytes = match self.captured.len() >= header {
            true => self.wire_bytes.saturating_sub(header as u32),
            // The length of the packet is not known.
            false => self.wire_bytes,
        };
        Self { wire_bytes, ..self.after(header) }
    }

    const fn or_truncated(self, link: Link) -> Self {
        if self.captured.is_empty() { self.truncated() } else { Self { link, ..self } }
    }

    /// The packet of an address family.
    fn of_family(self, family: u8) -> Self {
        match family {
            AF_INET => self.or_truncated(Link::RawIp),
            family if AF_INET6.contains(&family) => self.or_truncated(Link::RawIp),
            _ if self.captured.is_empty() => self.truncated(),
            _ => self.non_ip(),
        }
    }

    /// The packet of an `EtherType`. A tag or label that would follow cannot be read there.
    fn of_type(self, ethertype: u16) -> Self {
        match ethertype {
            _ if self.captured.is_empty() => self.truncated(),
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Self { link: Link::RawIp, ..self },
            ETHERTYPE_ARP => self.arp(),
            0x8100 | 0x88a8 | 0x8847 | 0x8848 | 0x8864 => Self { link: Link::Other, ..self },
            _ => self.non_ip(),
        }
    }

    /// The packet after LLC and SNAP (RFC 1042) at this place.
    fn of_snap(self, at: usize) -> Self {
        const LLC: &[u8] = &[0xaa, 0xaa, 0x03, 0, 0, 0];
        match self.captured.get(at..at + LLC.len() + 2) {
            None => self.truncated(),
            Some(header) if header.starts_with(LLC) => self.after(at + 8).of_type(self.be16(at + 6)),
            Some(_) => Self { link: Link::Other, ..self },
        }
    }

    /// A Linux cooked packet. For some types of hardware, the field in place of the `EtherType` is something else
    /// (<https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL.html>). The parser knows these, too; here the packet
    /// becomes one whose link type is not read, so that it is named.
    fn of_known_hardware(self) -> Self {
        let (header, at) = if self.link == Link::Sll { (16, 2) } else { (20, 8) };
        match self.be16(at) {
            770 | 801..=803 | 824 if self.captured.len() >= header => Self { link: Link::Other, ..self },
            _ => self,
        }
    }
}

/// Linux, netfilter's log: a family, a version, a resource, then attributes of type, length and value. The packet, from
/// its IP header on, is one of them; it has the bytes that this attribute has.
fn nflog(order: Order, whole: Opened<'_>) -> Opened<'_> {
    const PACKET_HEADER: u16 = 1;
    const PAYLOAD: u16 = 9;
    /// The upper two bits are flags.
    const TYPE: u16 = 0x3fff;
    const HEADER: usize = 4;
    let [family, version, ..] = *whole.captured else { return whole.truncated() };
    if version != 0 {
        return whole;
    }
    let all = whole.captured.len().max(whole.wire_bytes as usize);
    let (mut at, mut ethertype, mut payload) = (HEADER, None, None);
    while let Some(&[length_0, length_1, type_0, type_1]) = whole.captured.get(at..).and_then(<[u8]>::first_chunk) {
        let length = usize::from(order.u16([length_0, length_1]));
        if length < HEADER || at + length > all {
            break;
        }
        match order.u16([type_0, type_1]) & TYPE {
            PACKET_HEADER if length >= HEADER + 2 => ethertype = Some(whole.be16(at + HEADER)),
            PAYLOAD => payload = Some((at + HEADER, length - HEADER)),
            _ => {}
        }
        at += length.next_multiple_of(4);
    }
    let Some((start, bytes)) = payload else { return whole.truncated() };
    let end = whole.captured.len().min(start + bytes);
    let captured = whole.captured.get(start..end).unwrap_or(&[]);
    let packet = Opened { link: Link::Other, wire_bytes: bytes as u32, captured };
    match (family, ethertype) {
        (2 | 10, _) => packet.of_family(family),
        (_, Some(ethertype)) => packet.of_type(ethertype),
        _ => packet,
    }
}

/// The log of the packet filter of the BSDs: a header that states its length, without padding, and the address family.
fn pflog(whole: Opened<'_>) -> Opened<'_> {
    /// The shortest header that any system has.
    const SHORTEST: u8 = 45;
    match whole.byte(0) {
        _ if whole.captured.len() < 2 => whole.truncated(),
        0..SHORTEST => whole.truncated(),
        length => whole.after_data(usize::from(length).next_multiple_of(4)).of_family(whole.byte(1)),
    }
}

/// macOS: a header that states its length, that a packet follows, and the packet's link type.
fn pktap(whole: Opened<'_>) -> Opened<'_> {
    const PACKET: u32 = 1;
    let [length, record, link_type] = Order::Little.words(whole.captured);
    match whole.captured.len() {
        0..12 => whole.truncated(),
        _ if record != PACKET || length < 12 => whole,
        _ => whole.after_data(length as usize).or_truncated(LinkType(link_type as u16).plain()),
    }
}

/// Per-packet information: a version, flags, the length of the header, and the packet's link type.
fn ppi(whole: Opened<'_>) -> Opened<'_> {
    let [length, link_type] = Order::Little.words(whole.captured);
    match whole.captured.len() {
        0..8 => whole.truncated(),
        _ if length >> 16 < 8 => whole.truncated(),
        _ => whole.after_data((length >> 16) as usize).or_truncated(LinkType(link_type as u16).plain()),
    }
}

/// Solaris: a header of 24 bytes with the version and its own numbers of the families.
fn ipnet(whole: Opened<'_>) -> Opened<'_> {
    const VERSION: u8 = 1;
    const INET6: u8 = 26;
    match [whole.byte(0), whole.byte(1)] {
        [VERSION, AF_INET | INET6] => whole.after_data(24).or_truncated(Link::RawIp),
        _ => whole,
    }
}

/// Junos: a magic number, flags, and the length of further data if a flag says so. A flag says that the packet begins
/// with its IP header.
fn juniper(whole: Opened<'_>, link: Link) -> Opened<'_> {
    const MAGIC: &[u8] = b"MGC";
    const EXTENDED: u8 = 0x80;
    const NO_LINK_LAYER: u8 = 0x02;
    if !whole.captured.starts_with(MAGIC) {
        return whole;
    }
    let flags = whole.byte(3);
    let header = if flags & EXTENDED == 0 { 4 } else { 6 + usize::from(whole.be16(4)) };
    whole.after_data(header).or_truncated(if flags & NO_LINK_LAYER == 0 { link } else { Link::RawIp })
}

/// Frame relay with an address of two bytes: the multiprotocol header of RFC 2427, or Cisco's `EtherType`.
fn frame_relay(whole: Opened<'_>) -> Opened<'_> {
    let is_address = whole.byte(0) & 1 == 0 && whole.byte(1) & 1 == 1;
    let header: [u8; 6] = std::array::from_fn(|nth| whole.byte(2 + nth));
    match header {
        _ if whole.captured.len() < 4 => whole.truncated(),
        _ if !is_address => whole,
        [0x03, 0xcc | 0x8e, ..] => whole.after(4).or_truncated(Link::RawIp),
        [0x03, 0x00, 0xcc | 0x8e, ..] => whole.after(5).or_truncated(Link::RawIp),
        [0x03, 0x00, 0x80, 0, 0, 0] => whole.after(10).of_type(whole.be16(8)),
        [0x08, 0x00, ..] | [0x86, 0xdd, ..] => whole.after(4).or_truncated(Link::RawIp),
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Order::{Big, Little},
        *,
    };

    /// The beginning of an IPv4 header.
    const IPV4: &[u8] = &[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17];
    const IPV6: &[u8] = &[0x60, 0, 0, 0, 0, 8, 17, 64];

    fn opened(link_type: u16, order: Order, parts: &[&[u8]]) -> (Link, u32, Vec<u8>) {
        let captured = parts.concat();
        let wire_bytes = captured.len() as u32 + 1_000;
        let Opened { link, wire_bytes, captured } = LinkType(link_type).open(order, &captured, wire_bytes);
        (link, wire_bytes, captured.to_vec())
    }

    /// An attribute of netfilter's log, with its padding.
    fn attribute(order: Order, kind: u16, value: &[u8]) -> Vec<u8> {
        let [length, kind] = [value.len() as u16 + 4, kind].map(|number| match order {
            Little => number.to_le_bytes(),
            Big => number.to_be_bytes(),
        });
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        [&length[..], &kind, value, &padding].concat()
    }

    fn log(order: Order, family: u8, attributes: &[(u16, &[u8])]) -> (Link, u32, Vec<u8>) {
        let attributes: Vec<_> = attributes.iter().map(|(kind, value)| attribute(order, *kind, value)).collect();
        opened(239, order, &[&[family, 0, 0, 30], &attributes.concat()])
    }

    #[test]
    fn netfilters_log_has_the_packet_in_one_of_its_attributes() {
        const PREFIX: (u16, &[u8]) = (10, b"dropped: ");
        for order in [Little, Big] {
            let bytes = |payload: &[u8]| (Link::RawIp, payload.len() as u32, payload.to_vec());
            assert_eq!(log(order, 2, &[PREFIX, (9, IPV4)]), bytes(IPV4), "last");
            assert_eq!(log(order, 2, &[(9, IPV4), PREFIX]), bytes(IPV4), "first, with padding");
            assert_eq!(log(order, 10, &[(9 | 0x8000, IPV6), PREFIX]), bytes(IPV6), "with a flag");
            // A bridge tells the type of its packets, before or after them.
            assert_eq!(log(order, 7, &[(9, IPV6), (1, &[0x86, 0xdd, 3, 0])]), bytes(IPV6));
            assert_eq!(log(order, 7, &[(1, &[0x08, 0x06, 3, 0]), (9, &[0, 1])]).0, Link::Ethernet, "ARP");
            assert_eq!(log(order, 7, &[(1, &[0x88, 0xcc, 3, 0]), (9, &[0, 1])]).0, Link::Loopback, "not IP");
            assert_eq!(log(order, 7, &[(9, IPV4)]).0, Link::Other, "nothing says what it is");
            let whole = |parts: usize| (Link::Sll, parts as u32 + 1_000, Vec::new());
            assert_eq!(log(order, 2, &[PREFIX]), whole(4 + 16), "there is no packet");
            assert_eq!(log(order, 2, &[]), whole(4));
        }
    }

    #[test]
    fn attributes_that_are_cut_or_wrong_are_not_read() {
        let payload = attribute(Little, 9, IPV4);
        let (link, wire_bytes, captured) = opened(239, Little, &[&[2, 0, 0, 30], &payload[..10]]);
        assert_eq!((link, wire_bytes, &captured[..]), (Link::RawIp, IPV4.len() as u32, &IPV4[..6]), "a snap length");
        for wrong in [&[3, 0, 9, 0][..], &[0, 0, 9, 0], &[0xff, 0xff, 9, 0, 0x45], &[20, 0, 9]] {
            let (link, wire_bytes, captured) = opened(239, Little, &[&[2, 0, 0, 30], wrong]);
            assert_eq!((link, wire_bytes, captured.len()), (Link::Sll, 1_004 + wrong.len() as u32, 0), "{wrong:?}");
            let after = opened(239, Little, &[&[2, 0, 0, 30], &payload, wrong]);
            assert_eq!(after, (Link::RawIp, IPV4.len() as u32, IPV4.to_vec()), "{wrong:?} after the packet");
        }
        assert_eq!(opened(239, Little, &[&[2, 1, 0, 30], &payload]).0, Link::Other, "another version");
    }

    #[test]
    fn the_packet_filters_log_has_a_header_of_many_lengths() {
        for (length, header) in [(45, 48), (61, 64), (64, 64), (69, 72), (100, 100)] {
            for (family, packet) in [(2, IPV4), (24, IPV6), (28, IPV6), (30, IPV6)] {
                let mut data = vec![0; header];
                data[..2].copy_from_slice(&[length, family]);
                let due = (Link::RawIp, 1_000 + packet.len() as u32, packet.to_vec());
                assert_eq!(opened(117, Little, &[&data, packet]), due, "{length}");
                assert_eq!(opened(117, Little, &[&data[..header - 1]]).0, Link::Sll, "{length}, cut");
            }
        }
        assert_eq!(opened(117, Little, &[&[61, 99], &[0; 62], IPV4]).0, Link::Loopback, "no IP");
        assert_eq!(opened(117, Little, &[&[44, 2], &[0; 62], IPV4]).0, Link::Sll, "no header is so short");
        assert_eq!(opened(117, Little, &[]).0, Link::Sll);
    }

    #[test]
    fn what_was_not_on_the_wire_is_not_counted() {
        let pktap = [&108_u32.to_le_bytes()[..], &1_u32.to_le_bytes(), &1_u32.to_le_bytes(), &[7; 96]].concat();
        let ppi = [0, 0, 12, 0, 101, 0, 0, 0, 1, 2, 3, 4];
        let ipnet = [&[1, 26][..], &[0; 22]].concat();
        let junos = [&b"MGC"[..], &[0x80, 0, 3, 1, 2, 3]].concat();
        for (link_type, header, link) in [
            (258, &pktap[..], Link::Ethernet),
            (192, &ppi, Link::RawIp),
            (226, &ipnet, Link::RawIp),
            (109, &[0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0], Link::RawIp),
            (8, &[0; 16], Link::RawIp),
            (178, &junos, Link::Ethernet),
            (178, b"MGC\x02", Link::RawIp),
            (179, b"MGC\x00", Link::Ppp),
        ] {
            let due = (link, 1_000 + IPV4.len() as u32, IPV4.to_vec());
            assert_eq!(opened(link_type, Little, &[header, IPV4]), due, "{link_type}");
            assert_eq!(opened(link_type, Little, &[&header[..header.len() - 1]]).1, 999 + header.len() as u32);
        }
    }

    #[test]
    fn headers_of_the_link_layer_are_counted() {
        let snap = [0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0x00];
        for (link_type, header, link) in [
            (242, &[&[0; 40][..], &[0x08, 0x00, 0, 0]].concat()[..], Link::RawIp),
            (138, &[&[0; 16][..], &[0x08, 0x00]].concat(), Link::RawIp),
            (100, &snap, Link::RawIp),
            (10, &[&[0x50; 13][..], &snap].concat(), Link::RawIp),
            (107, &[0x18, 0x41, 0x03, 0xcc], Link::RawIp),
            (107, &[0x18, 0x41, 0x03, 0, 0x80, 0, 0, 0, 0x08, 0x00], Link::RawIp),
            (107, &[0x18, 0x41, 0x08, 0x00], Link::RawIp),
            (282, &[1, 2, 3, 4], Link::Ethernet),
        ] {
            let due = (link, 1_000 + (header.len() + IPV4.len()) as u32, IPV4.to_vec());
            assert_eq!(opened(link_type, Little, &[header, IPV4]), due, "{link_type}");
        }
    }

    #[test]
    fn a_link_type_that_is_not_read_has_a_name() {
        for (number, name) in
            [(147, Some("USER0")), (239, Some("NFLOG")), (127, Some("IEEE802_11_RADIOTAP")), (999, None)]
        {
            assert_eq!(LinkType(number).name(), name);
        }
        assert!(NAMES.is_sorted_by_key(|(number, _)| *number));
        assert_eq!(opened(147, Little, &[IPV4]).0, Link::Other);
        let cooked = [0, 4, 0x03, 0x23, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x00];
        assert_eq!(opened(113, Little, &[&cooked, IPV4]).0, Link::Other, "802.11 with radiotap");
    }

    #[test]
    fn any_bytes_are_opened_without_a_panic() {
        let bytes: Vec<u8> = (0..=255).map(|nth: u8| nth.wrapping_mul(151)).collect();
        for number in 0..300 {
            for start in 0..64 {
                for length in [0, 1, 3, 4, 5, 11, 16, 40, 120] {
                    for order in [Little, Big] {
                        let captured = &bytes[start..start + length];
                        for wire_bytes in [0, length as u32, u32::MAX] {
                            let opened = LinkType(number).open(order, captured, wire_bytes);
                            assert!(opened.captured.len() <= captured.len().max(14));
                        }
                    }
                }
            }
        }
    }
}
