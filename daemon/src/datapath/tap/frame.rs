//! A buffer from a packet socket, and the packets on the wire that it stands for. The programs at the tc hook count in
//! the same way (`ebpf/src/skb.rs`).

use weir_common::{
    ledger::Tally,
    packet::{Link, REACH_MAX},
    proto,
};

/// A VLAN tag, in bytes.
const VLAN_BYTES: usize = 4;
/// The two addresses that begin an Ethernet header; the tag belongs behind them.
const ADDRESSES_BYTES: usize = 12;
const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

/// A packet's beginning as it was on the wire.
pub type Scratch = [u8; REACH_MAX];

/// What the socket tells of a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<'a> {
    /// Its beginning.
    pub bytes: &'a [u8],
    /// Its whole length, in bytes.
    pub length: u32,
    /// The outer VLAN tag, where it is not in `bytes`.
    pub vlan: Option<[u8; VLAN_BYTES]>,
    /// Payload of each packet that an offload merged, in bytes; 0 for a buffer that is one packet.
    pub segment: u16,
    /// If the kernel tells it: the protocol of the innermost transport header, and where in `bytes` that begins.
    pub transport: Option<(u8, usize)>,
    /// Milliseconds, modulo 2^32.
    pub tick: u32,
    /// Seconds since 1970.
    pub second: u64,
}

impl Frame<'_> {
    /// The packets on the wire, and their bytes with their own headers each.
    pub fn tally(&self, link: Link) -> Tally {
        let tag = if self.vlan.is_some() { VLAN_BYTES as u64 } else { 0 };
        let (length, segment) = (u64::from(self.length), u64::from(self.segment));
        let headers = if segment == 0 { 0 } else { self.header_bytes(link) as u64 };
        let payload = length.saturating_sub(headers.max(ETHERNET_BYTES as u64));
        if segment == 0 || payload <= segment {
            return Tally::new(1, length + tag);
        }
        let packets = payload.div_ceil(segment);
        // Where the headers are not known, they are at least what the payloads leave.
        let headers = headers.max(length.saturating_sub(packets * segment));
        Tally::new(packets, length + tag + (packets - 1) * (headers + tag))
    }

    /// The beginning as it was on the wire: with the VLAN tag back in its place, where it had been taken out.
    pub fn headers<'s>(&'s self, scratch: &'s mut Scratch) -> &'s [u8] {
        let Some((tag, (addresses, rest))) = self.vlan.zip(self.bytes.split_at_checked(ADDRESSES_BYTES)) else {
            return self.bytes;
        };
        let tagged = ADDRESSES_BYTES + VLAN_BYTES;
        let rest = &rest[..rest.len().min(REACH_MAX - tagged)];
        scratch[..ADDRESSES_BYTES].copy_from_slice(addresses);
        scratch[ADDRESSES_BYTES..tagged].copy_from_slice(&tag);
        scratch[tagged..tagged + rest.len()].copy_from_slice(rest);
        &scratch[..tagged + rest.len()]
    }

    /// The length of all headers down to the payload of TCP or UDP, which offloads repeat for each packet; 0 for other
    /// protocols.
    fn header_bytes(&self, link: Link) -> usize {
        match self.transport.or_else(|| self.outer_transport(link)) {
            Some((proto::TCP, at)) => at + usize::from(self.byte(at + 12) >> 4) * 4,
            Some((proto::UDP, at)) => at + UDP_BYTES,
            _ => 0,
        }
    }

    /// What follows the outer IP header, and where: with one VLAN tag at most, and no IPv6 extension headers.
    fn outer_transport(&self, link: Link) -> Option<(u8, usize)> {
        let ip = match link {
            Link::Ethernet if matches!([self.byte(12), self.byte(13)], [0x81, 0x00] | [0x88, 0xa8]) => {
                ETHERNET_BYTES + VLAN_BYTES
            }
            Link::Ethernet => ETHERNET_BYTES,
            _ => 0,
        };
        let version = self.byte(ip);
        match version >> 4 {
            4 => Some((self.byte(ip + 9), ip + usize::from(version & 15) * 4)),
            6 => Some((self.byte(ip + 6), ip + IPV6_BYTES)),
            _ => None,
        }
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4 and TCP with 12 bytes of options.
    fn tcp() -> [u8; 66] {
        let mut bytes = [0; 66];
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14] = 0x45;
        bytes[23] = proto::TCP;
        bytes[46] = 8 << 4;
        bytes
    }

    #[test]
    fn a_merged_buffer_is_the_packets_that_it_was() {
        let bytes = tcp();
        for (payload, segment, packets) in [(100, 0, 1), (1448, 1448, 1), (1449, 1448, 2), (14_480, 1448, 10)] {
            let frame = Frame { bytes: &bytes, length: 66 + payload, segment, ..Frame::default() };
            let expected = Tally::new(packets, packets * 66 + u64::from(payload));
            assert_eq!(frame.tally(Link::Ethernet), expected, "{payload} bytes by {segment}");
            let tagged = Frame { vlan: Some([0x81, 0, 0, 7]), ..frame };
            assert_eq!(tagged.tally(Link::Ethernet), Tally::new(packets, expected.bytes + packets * 4));
        }
    }

    #[test]
    fn headers_are_as_long_as_the_kernel_tells() {
        /// Of Ethernet, IPv4, UDP and VXLAN, of Ethernet and IPv4 in them, and of TCP with 12 bytes of options.
        const VXLAN: [usize; 2] = [14 + 20 + 8 + 8 + 14 + 20, 32];
        /// Of Ethernet, two VLAN tags and IPv4.
        const TWO_TAGS: [usize; 2] = [14 + 2 * 4 + 20, 32];
        /// Of Ethernet, IPv6 and an extension header, and of UDP.
        const EXTENDED: [usize; 2] = [14 + 40 + 8, 8];
        for ([at, transport], outer, protocol) in [
            (VXLAN, [0x08, 0x00, 0x45], proto::TCP),
            (TWO_TAGS, [0x88, 0xa8, 0x20], proto::TCP),
            (EXTENDED, [0x86, 0xdd, 0x60], proto::UDP),
        ] {
            let mut bytes = [0; 128];
            bytes[12..15].copy_from_slice(&outer);
            // What follows IPv4 is UDP.
            bytes[23] = proto::UDP;
            bytes[at + 12] = 8 << 4;
            let headers = (at + transport) as u32;
            let merged = Frame { bytes: &bytes, segment: 1348, length: 10 * 1348 + headers, ..Frame::default() };
            let told = Frame { transport: Some((protocol, at)), ..merged };
            let expected = Tally::new(10, u64::from(10 * (1348 + headers)));
            assert_eq!(told.tally(Link::Ethernet), expected, "{protocol} at {at}");
            assert_ne!(merged.tally(Link::Ethernet), expected, "{protocol} at {at}, untold");
        }
    }

    #[test]
    fn what_is_merged_and_cannot_be_read_is_counted_by_its_payloads() {
        let frame = Frame { bytes: &[0; 14], length: 2 * 1000 + 50, segment: 1000, ..Frame::default() };
        assert_eq!(frame.tally(Link::Ethernet).packets, 3);
        let nothing = Frame { segment: 1000, ..Frame::default() };
        assert_eq!(nothing.tally(Link::Ethernet), Tally::new(1, 0));
    }

    #[test]
    fn a_tag_goes_back_to_its_place() {
        let mut scratch = [0xff; REACH_MAX];
        let bytes: [u8; REACH_MAX] = std::array::from_fn(|nth| nth as u8);
        let untagged = Frame { bytes: &bytes[..60], ..Frame::default() };
        assert_eq!(untagged.headers(&mut scratch), &bytes[..60]);
        for length in [12, 60, REACH_MAX] {
            let frame = Frame { bytes: &bytes[..length], vlan: Some([0x88, 0xa8, 0x20, 0x07]), ..Frame::default() };
            let expected = [&bytes[..12], &[0x88, 0xa8, 0x20, 0x07], &bytes[12..length]].concat();
            assert_eq!(frame.headers(&mut scratch), &expected[..expected.len().min(REACH_MAX)]);
        }
        let short = Frame { bytes: &bytes[..11], vlan: Some([0; 4]), ..Frame::default() };
        assert_eq!(short.headers(&mut scratch), &bytes[..11], "there is no place for it");
    }
}
