//! A buffer from a packet socket, and the packets on the wire that it represents. The tc programs count in the same way
//! (`ebpf/src/skb.rs`).

use weir_common::{
    ledger::{Tally, Uncertain},
    packet::{Headers, Link, Merged, REACH_MAX, headers},
    proto,
};

/// A VLAN tag, in bytes.
const VLAN_BYTES: usize = 4;
/// The length of the two addresses at the start of an Ethernet header. The VLAN tag follows them.
const ADDRESSES_BYTES: usize = 12;
const UDP_BYTES: usize = 8;

/// A buffer for the beginning of a packet as it was on the wire.
pub type Scratch = [u8; REACH_MAX];

/// The data that the socket reports about a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<'a> {
    /// The first bytes, as many as the socket copied.
    pub bytes: &'a [u8],
    /// The full length in bytes.
    pub length: u32,
    /// The outer VLAN tag, if it is not in `bytes`.
    pub vlan: Option<[u8; VLAN_BYTES]>,
    /// Payload bytes of each packet that an offload merged; 0 if the buffer is a single packet.
    pub segment: u16,
    /// True if the packets are fragments of one UDP packet.
    pub fragments: bool,
    /// The protocol of the innermost transport header and its offset in `bytes`, if the kernel reports them.
    pub transport: Option<(u8, usize)>,
    /// The arrival time in milliseconds, modulo 2^32.
    pub tick: u32,
    /// The arrival time in seconds since 1970.
    pub second: u64,
}

impl Frame<'_> {
    /// The packets on the wire and their bytes, each with its own headers, and the uncertain part of that. `beginning`
    /// is the result of [`Frame::headers`].
    pub fn tally(&self, link: Link, beginning: &[u8]) -> (Tally, Option<Uncertain>) {
        let tag = if self.vlan.is_some() { VLAN_BYTES as u64 } else { 0 };
        let length = u64::from(self.length) + tag;
        if self.segment == 0 {
            return (Tally::new(1, length), None);
        }
        let merged = Merged { length, segment: self.segment.into(), segments: 0, fragments: Some(self.fragments) };
        let read = headers(beginning, link, length);
        merged.tally(self.told_by_checksum().map(|bytes| bytes + tag).map_or(read, |in_buffer| {
            let Headers { in_buffer: before, on_wire, is_v6, is_udp: _ } = read.unwrap_or_default();
            let on_wire = in_buffer.saturating_sub(before - on_wire);
            Some(Headers { in_buffer, on_wire, is_v6, is_udp: self.fragments })
        }))
    }

    /// The first bytes as they were on the wire. If the kernel had removed the VLAN tag, it is put back.
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

    /// The length of all headers in `bytes`, from the position of the checksum. It includes tunnels that the parser
    /// does not know.
    fn told_by_checksum(&self) -> Option<u64> {
        match self.transport? {
            (proto::TCP, at) => Some((at + usize::from(self.byte(at + 12) >> 4) * 4) as u64),
            (proto::UDP, at) => Some((at + UDP_BYTES) as u64),
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

    /// The tally of a frame from Ethernet.
    fn tally(frame: &Frame<'_>) -> Tally {
        let mut scratch = [0; REACH_MAX];
        frame.tally(Link::Ethernet, frame.headers(&mut scratch)).0
    }

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
    fn a_merged_buffer_counts_its_original_packets() {
        let bytes = tcp();
        for (payload, segment, packets) in [(100, 0, 1), (1448, 1448, 1), (1449, 1448, 2), (14_480, 1448, 10)] {
            let frame = Frame { bytes: &bytes, length: 66 + payload, segment, ..Frame::default() };
            let expected = Tally::new(packets, packets * 66 + u64::from(payload));
            assert_eq!(tally(&frame), expected, "{payload} bytes by {segment}");
            let tagged = Frame { vlan: Some([0x81, 0, 0, 7]), ..frame };
            assert_eq!(tally(&tagged), Tally::new(packets, expected.bytes + packets * 4));
        }
    }

    #[test]
    fn headers_have_the_length_that_the_kernel_reports() {
        /// Ethernet, IPv4, UDP and VXLAN, then Ethernet and IPv4 inside, then TCP with 12 bytes of options.
        const VXLAN: [usize; 2] = [14 + 20 + 8 + 8 + 14 + 20, 32];
        /// Ethernet, two VLAN tags and IPv4.
        const TWO_TAGS: [usize; 2] = [14 + 2 * 4 + 20, 32];
        /// Ethernet, IPv6 with an extension header, and UDP.
        const EXTENDED: [usize; 2] = [14 + 40 + 8, 8];
        for ([at, transport], outer, protocol) in [
            (VXLAN, [0x08, 0x00, 0x45], proto::TCP),
            (TWO_TAGS, [0x88, 0xa8, 0x20], proto::TCP),
            (EXTENDED, [0x86, 0xdd, 0x60], proto::UDP),
        ] {
            let mut bytes = [0; 128];
            bytes[12..15].copy_from_slice(&outer);
            // Make UDP follow IPv4.
            bytes[23] = proto::UDP;
            bytes[at + 12] = 8 << 4;
            let headers = (at + transport) as u32;
            let merged = Frame { bytes: &bytes, segment: 1348, length: 10 * 1348 + headers, ..Frame::default() };
            let told = Frame { transport: Some((protocol, at)), ..merged };
            let expected = Tally::new(10, u64::from(10 * (1348 + headers)));
            assert_eq!(tally(&told), expected, "{protocol} at {at}");
            assert_ne!(tally(&merged), expected, "{protocol} at {at}, untold");
        }
    }

    #[test]
    fn only_the_first_fragment_has_a_udp_header() {
        let mut bytes = tcp();
        bytes[23] = proto::UDP;
        let frame = Frame { bytes: &bytes, length: 42 + 5_000, segment: 1_480, fragments: true, ..Frame::default() };
        assert_eq!(tally(&frame), Tally::new(4, 5_008 + 4 * 34));
    }

    #[test]
    fn unknown_merged_buffers_are_counted_by_their_payloads() {
        let frame = Frame { bytes: &[0; 14], length: 2 * 1000 + 50, segment: 1000, ..Frame::default() };
        assert_eq!(tally(&frame), Tally::new(2, 2050), "the smallest possible number");
        let nothing = Frame { segment: 1000, ..Frame::default() };
        assert_eq!(tally(&nothing), Tally::new(1, 0));
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
        assert_eq!(short.headers(&mut scratch), &bytes[..11], "the header is too short for the tag");
    }
}
