//! Finds the packets in a capture that were several on the wire.
//!
//! A host whose network card cuts packets (TSO, GSO) or joins them (LRO, GRO) captures buffers of up to 64 kB. A router
//! that forwards sees them, too. Nothing in a capture says so. A buffer is too long for the link; but whether a link
//! has an MTU above 1500 is not known either. What is known:
//!
//! - A TCP packet has no more payload than its receiver has asked for (the MSS option of its SYN, RFC 9293 section
//!   3.7.1). So if the SYN is in the capture, a longer one is cut into parts of this size: the fewest packets that it
//!   can be. It may be more, if the path had a lower MTU.
//! - A packet that no offload makes, or makes rarely, and that is not longer than jumbo frames are, shows that the link
//!   carries such packets. Then TCP packets of this length stay packets, too.
//! - Otherwise a long TCP packet counts as one, and may have been many. The same holds for anything longer than a jumbo
//!   frame.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use weir_common::{
    ledger::{Tally, Uncertain},
    packet::{Link, REACH_MAX},
    proto,
};

use super::Packet;

/// Longer IP packets are on no ordinary link (RFC 894), so each may be a buffer.
const ORDINARY: u32 = 1_500;
/// Longer ones are on no link with jumbo frames, but on a loopback interface.
const JUMBO: u32 = 9_216;
/// The MSS if a SYN states none (RFC 9293 section 3.7.1), for IPv4 and IPv6. Hosts do not use a lower one.
const MSS_LEAST: [u16; 2] = [536, 1_220];
/// The most packets of a UDP buffer (`UDP_MAX_SEGMENTS` of Linux).
const UDP_SEGMENTS_MAX: u64 = 128;
/// How many connections are known by their SYN: a power of two.
const CONNECTIONS: usize = 1 << 15;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// How a captured packet was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Payload bytes of each packet except the last; 0 if it is one packet.
    segment: u16,
    /// The length of all headers.
    headers: u16,
    /// The offset of the IP header; `tcp` is that of the TCP header.
    ip: u16,
    tcp: u16,
    /// The most that it can have been, if that is not certain.
    most: Option<(u32, u64)>,
}

/// The facts about the links of captures that tell merged buffers from packets.
#[derive(Default)]
pub struct Buffers {
    /// The longest IP packet that certainly is one.
    proven: u32,
    /// The hash of a connection and the MSS that each side asks for. Empty before the first SYN.
    connections: Vec<Connection>,
    hash: BuildHasherDefault<DefaultHasher>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    hash: u64,
    /// The MSS that the end with the lower address asks for, and that of the other end; 0 if unknown.
    mss: [u16; 2],
}

/// The headers of an IP packet that is the payload of the link layer.
struct Ip<'a> {
    bytes: &'a [u8],
    at: usize,
    /// 0 for IPv4, 1 for IPv6.
    version: usize,
    /// The protocol of the payload; none for a fragment.
    proto: Option<u8>,
    /// The offset of the next header.
    next: usize,
    /// True if it has an option that is not on the wire, because its length needs more than 16 bits.
    is_jumbogram: bool,
}

impl Split {
    /// A single packet, not split.
    pub const NONE: Self = Self { segment: 0, headers: 0, ip: 0, tcp: 0, most: None };

    /// Returns true if it counts as one packet, but may be several.
    pub const fn is_buffer(&self) -> bool {
        self.segment == 0 && self.most.is_some()
    }
}

impl Packet<'_> {
    /// How many packets this was on the wire, and their bytes.
    pub fn tally(&self) -> Tally {
        let (whole, Split { segment, headers, .. }) = (u64::from(self.wire_bytes), self.split);
        match segment {
            0 => Tally::new(1, whole),
            _ => {
                let payload = whole.saturating_sub(headers.into());
                let packets = payload.div_ceil(segment.into()).max(1);
                Tally::new(packets, whole + (packets - 1) * u64::from(headers))
            }
        }
    }

    /// Returns bounds for the numbers of packets and bytes, if they are uncertain.
    pub fn uncertain(&self) -> Option<Uncertain> {
        let (packets, bytes) = self.split.most?;
        Some(Uncertain { least: self.tally(), most: Tally::new(packets.into(), bytes) })
    }

    /// Passes on each packet that this was on the wire, as it was there.
    ///
    /// # Errors
    ///
    /// The first error of `each`.
    pub fn each<E>(&self, mut each: impl FnMut(&Packet<'_>) -> Result<(), E>) -> Result<(), E> {
        let Split { segment, headers, .. } = self.split;
        if segment == 0 {
            return each(self);
        }
        let mut scratch = [0; REACH_MAX];
        let captured = &self.captured[..self.captured.len().min(REACH_MAX)];
        let mut left = self.wire_bytes.saturating_sub(headers.into());
        let mut is_first = true;
        while left > 0 {
            let payload = left.min(segment.into());
            left -= payload;
            let wire_bytes = u32::from(headers) + payload;
            let part = &mut scratch[..captured.len().min(wire_bytes as usize)];
            part.copy_from_slice(&captured[..part.len()]);
            self.split.correct(part, wire_bytes, is_first, left == 0);
            each(&Packet { wire_bytes, split: Split::NONE, captured: part, ..*self })?;
            is_first = false;
        }
        Ok(())
    }
}

impl Split {
    /// Makes the headers of a buffer those of a packet of this length.
    fn correct(&self, packet: &mut [u8], wire_bytes: u32, is_first: bool, is_last: bool) {
        let [ip, tcp] = [self.ip, self.tcp].map(usize::from);
        let of_ip = wire_bytes.saturating_sub(self.ip.into());
        let (at, length) = match packet.get(ip).map(|first| first >> 4) {
            Some(4) => (ip + 2, of_ip),
            _ => (ip + 4, of_ip.saturating_sub(40)),
        };
        if let Some(place) = packet.get_mut(at..at + 2) {
            place.copy_from_slice(&(length as u16).to_be_bytes());
        }
        if let Some(flags) = packet.get_mut(tcp + 13) {
            *flags &= if is_last { 0xff } else { !(FIN | PSH) };
            *flags &= if is_first { 0xff } else { !CWR };
        }
    }
}

impl Buffers {
    /// How a packet was sent, as far as that is known. It also learns from the packet.
    pub fn look(&mut self, packet: &Packet<'_>) -> Split {
        const LONGEST_SYN: u32 = 160;
        if packet.wire_bytes > ORDINARY {
            return self.look_at_long(packet);
        }
        if packet.wire_bytes <= LONGEST_SYN {
            self.learn(packet);
        }
        Split::NONE
    }

    /// Remembers the MSS of a SYN.
    fn learn(&mut self, packet: &Packet<'_>) {
        let Some(ip) = Ip::of(packet) else { return };
        let Some(tcp) = ip.tcp() else { return };
        if tcp[13] & SYN == 0 {
            return;
        }
        let options = tcp.get(20..header_bytes(tcp)).unwrap_or(&[]);
        let mss = mss(options).unwrap_or(MSS_LEAST[ip.version]);
        let Some((hash, end)) = self.connection(&ip, tcp) else { return };
        if self.connections.is_empty() {
            self.connections.resize(CONNECTIONS, Connection::default());
        }
        let known = &mut self.connections[hash as usize % CONNECTIONS];
        if known.hash != hash {
            *known = Connection { hash, mss: [0; 2] };
        }
        known.mss[end] = mss;
    }

    #[cold]
    fn look_at_long(&mut self, packet: &Packet<'_>) -> Split {
        let Some(ip) = Ip::of(packet).filter(|_| !is_loopback(packet)) else { return Split::NONE };
        let length = packet.wire_bytes.saturating_sub(ip.at as u32);
        if length <= ORDINARY {
            return Split::NONE;
        }
        match (ip.proto, ip.tcp()) {
            (Some(proto::TCP), Some(tcp)) => self.tcp(packet, &ip, tcp, length),
            (Some(proto::UDP), _) if length > JUMBO => may_be(packet, &ip, UDP_SEGMENTS_MAX),
            _ if length > JUMBO => may_be(packet, &ip, u64::from(length) / u64::from(MSS_LEAST[ip.version]) + 1),
            _ => {
                self.proven = self.proven.max(length);
                Split::NONE
            }
        }
    }

    fn tcp(&self, packet: &Packet<'_>, ip: &Ip<'_>, tcp: &[u8], length: u32) -> Split {
        let tcp_bytes = header_bytes(tcp);
        let options = tcp_bytes.saturating_sub(20) as u16;
        let headers = ip.next + tcp_bytes;
        let payload = packet.wire_bytes.saturating_sub(headers as u32);
        let asked = self.connection(ip, tcp).and_then(|(hash, end)| {
            let known = self.connections.get(hash as usize % CONNECTIONS).filter(|known| known.hash == hash)?;
            Some(known.mss[1 - end]).filter(|mss| *mss > options && !ip.is_jumbogram)
        });
        let shortest = MSS_LEAST[ip.version].min(asked.unwrap_or(u16::MAX)).saturating_sub(options).max(1);
        let most = u64::from(payload).div_ceil(shortest.into());
        match asked {
            Some(mss) if u32::from(mss - options) >= payload => Split::NONE,
            Some(mss) => Split {
                segment: mss - options,
                headers: headers as u16,
                ip: ip.at as u16,
                tcp: ip.next as u16,
                ..may_be_cut(packet, headers, most)
            },
            None if length <= self.proven => Split::NONE,
            None => may_be_cut(packet, headers, most),
        }
    }

    /// The hash of a connection, and which of its ends sent this packet.
    fn connection(&self, ip: &Ip<'_>, tcp: &[u8]) -> Option<(u64, usize)> {
        let addresses = match ip.version {
            0 => ip.bytes.get(ip.at + 12..ip.at + 20)?,
            _ => ip.bytes.get(ip.at + 8..ip.at + 40)?,
        };
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        let [from, to] = [(source, &tcp[..2]), (destination, &tcp[2..4])];
        Some(if from <= to { (self.hash.hash_one((from, to)), 0) } else { (self.hash.hash_one((to, from)), 1) })
    }
}

/// Returns true if it comes from a loopback interface, which cuts nothing.
fn is_loopback(packet: &Packet<'_>) -> bool {
    const NO_ADDRESSES: [u8; 12] = [0; 12];
    packet.link == Link::Loopback || packet.link == Link::Ethernet && packet.captured.starts_with(&NO_ADDRESSES)
}

/// It counts as one packet, and is at most so many. `headers` are those that each has.
fn may_be_cut(packet: &Packet<'_>, headers: usize, most: u64) -> Split {
    let most = most.max(1);
    let bytes = u64::from(packet.wire_bytes) + (most - 1) * headers as u64;
    Split { most: Some((u32::try_from(most).unwrap_or(u32::MAX), bytes)), ..Split::NONE }
}

/// Bounds the packets in a buffer if not all of its headers are known.
fn may_be(packet: &Packet<'_>, ip: &Ip<'_>, most: u64) -> Split {
    const HEADERS_MAX: usize = 256;
    may_be_cut(packet, ip.next + HEADERS_MAX, most)
}

impl<'a> Ip<'a> {
    /// The IP header after a common link layer, if it is there.
    fn of(packet: &Packet<'a>) -> Option<Self> {
        let bytes = packet.captured;
        let at = match packet.link {
            Link::Ethernet => 14 + 4 * tags(bytes),
            Link::RawIp => 0,
            Link::Loopback => 4,
            Link::Sll => 16,
            Link::Sll2 => 20,
            _ => return None,
        };
        let has_type = |place: usize, due: [u8; 2]| bytes.get(place..place + 2).is_some_and(|kind| kind == due);
        let is_typed = |due: [u8; 2]| match packet.link {
            Link::Ethernet => has_type(at - 2, due),
            Link::Sll => has_type(14, due),
            Link::Sll2 => has_type(0, due),
            _ => true,
        };
        match *bytes.get(at)? {
            first @ 0x45..=0x4f if is_typed([0x08, 0x00]) => {
                let is_fragment = u16::from_be_bytes([*bytes.get(at + 6)?, *bytes.get(at + 7)?]) & 0x3fff != 0;
                let proto = Some(*bytes.get(at + 9)?).filter(|_| !is_fragment);
                let next = at + usize::from(first & 0x0f) * 4;
                Some(Self { bytes, at, version: 0, proto, next, is_jumbogram: false })
            }
            0x60..=0x6f if is_typed([0x86, 0xdd]) => {
                /// The option of Linux for buffers too long for the header's length (RFC 2675): no packet has it.
                const JUMBO_OPTION: [u8; 3] = [0, 0xc2, 4];
                let next = at + 40;
                let option = bytes.get(next + 1..next + 4);
                let (proto, is_jumbogram) = match *bytes.get(at + 6)? {
                    0 if option.is_some_and(|option| option == JUMBO_OPTION) => (*bytes.get(next)?, true),
                    proto => (proto, false),
                };
                let next = if is_jumbogram { next + 8 } else { next };
                let proto = Some(proto).filter(|proto| *proto != FRAGMENT);
                Some(Self { bytes, at, version: 1, proto, next, is_jumbogram })
            }
            _ => None,
        }
    }

    /// The TCP header, if it is there.
    fn tcp(&self) -> Option<&'a [u8]> {
        let is_tcp = self.proto == Some(proto::TCP);
        self.bytes.get(self.next..).filter(|tcp| is_tcp && tcp.len() >= 20)
    }
}

/// The fragment header of IPv6.
const FRAGMENT: u8 = 44;

/// How many VLAN tags a frame has.
fn tags(frame: &[u8]) -> usize {
    const MOST: usize = 2;
    let is_tag = |nth: &usize| {
        let kind = frame.get(12 + 4 * nth..14 + 4 * nth);
        kind.is_some_and(|kind| kind == [0x81, 0x00] || kind == [0x88, 0xa8])
    };
    (0..MOST).take_while(is_tag).count()
}

/// The length of a TCP header.
fn header_bytes(tcp: &[u8]) -> usize {
    usize::from(tcp[12] >> 4).max(5) * 4
}

/// The MSS among the options of a SYN.
fn mss(mut options: &[u8]) -> Option<u16> {
    loop {
        match *options {
            [2, 4, high, low, ..] => return Some(u16::from_be_bytes([high, low])),
            [1, ref rest @ ..] => options = rest,
            [0, ..] => return None,
            [_, length, ..] if length >= 2 => options = options.get(usize::from(length)..)?,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::link::LinkType, *};

    const ACK: u8 = 0x10;

    /// Ethernet, IPv4 and TCP; a SYN has an MSS, other packets a timestamp.
    fn tcp(is_back: bool, flags: u8, mss: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        let ends = [([192, 0, 2, 1], [0xab, 0x12]), ([198, 51, 100, 7], [0x01, 0xbb])];
        let [from, to] = if is_back { [ends[1], ends[0]] } else { ends };
        frame.extend([from.0, to.0].concat());
        frame.extend([from.1, to.1].concat());
        frame.extend([0; 8]);
        if flags & SYN == 0 {
            frame.extend([8 << 4, flags, 0, 0, 0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        } else {
            let [high, low] = mss.to_be_bytes();
            frame.extend([7 << 4, flags, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 4, high, low][..16].iter());
        }
        frame
    }

    fn other(proto: u8) -> Vec<u8> {
        let mut frame = tcp(false, ACK, 0);
        frame[23] = proto;
        frame
    }

    fn packet(captured: &[u8], wire_bytes: u32) -> Packet<'_> {
        let (link_type, split) = (LinkType(1), Split::NONE);
        Packet { time_ns: None, stray: false, link_type, link: Link::Ethernet, wire_bytes, split, captured }
    }

    /// A packet of this length, as it is known after the others.
    fn looked<'a>(buffers: &mut Buffers, captured: &'a [u8], wire_bytes: u32) -> Packet<'a> {
        let packet = packet(captured, wire_bytes);
        Packet { split: buffers.look(&packet), ..packet }
    }

    #[test]
    fn a_buffer_is_cut_by_what_its_receiver_has_asked_for() {
        let mut buffers = Buffers::default();
        looked(&mut buffers, &tcp(false, SYN, 1_460), 74);
        looked(&mut buffers, &tcp(true, SYN | ACK, 8_960), 74);
        let data = tcp(true, ACK | PSH | FIN, 0);
        let buffer = looked(&mut buffers, &data, 66 + 19 * 1_448 + 700);
        assert_eq!(buffer.tally(), Tally::new(20, 20 * 66 + 19 * 1_448 + 700));
        assert!(!buffer.split.is_buffer());
        let beyond = buffer.uncertain().unwrap();
        assert_eq!((beyond.least, beyond.most.packets), (buffer.tally(), (19_u64 * 1_448 + 700).div_ceil(524)));
        let mut parts = Vec::new();
        let all: Result<(), ()> = buffer.each(|part| {
            let length = u16::from_be_bytes([part.captured[16], part.captured[17]]);
            assert_eq!(u32::from(length) + 14, part.wire_bytes);
            parts.push((part.wire_bytes, part.captured[47]));
            Ok(())
        });
        assert_eq!((all, parts.len()), (Ok(()), 20));
        assert!(parts[..19].iter().all(|part| *part == (1_514, ACK)), "{parts:?}");
        assert_eq!(parts[19], (766, ACK | PSH | FIN));
        // The other way the receiver takes jumbo frames.
        let back = tcp(false, ACK, 0);
        let jumbo = looked(&mut buffers, &back, 9_014);
        assert_eq!((jumbo.tally(), jumbo.uncertain()), (Tally::new(1, 9_014), None));
    }

    #[test]
    fn without_a_syn_only_a_bound_is_known() {
        let mut buffers = Buffers::default();
        let data = tcp(false, ACK, 0);
        let buffer = looked(&mut buffers, &data, 29_026);
        assert!(buffer.split.is_buffer());
        assert_eq!(buffer.tally(), Tally::new(1, 29_026));
        assert_eq!(buffer.uncertain().unwrap().most, Tally::new(56, 29_026 + 55 * 66));
        let ordinary = looked(&mut buffers, &data, 1_514);
        assert_eq!((ordinary.tally(), ordinary.uncertain()), (Tally::new(1, 1_514), None));
    }

    #[test]
    fn a_link_that_carries_other_packets_of_this_length_has_jumbo_frames() {
        const ICMP: u8 = 1;
        for proto in [ICMP, proto::UDP, 50] {
            let mut buffers = Buffers::default();
            let data = tcp(false, ACK, 0);
            assert!(looked(&mut buffers, &data, 9_014).split.is_buffer(), "nothing is known yet");
            let shown = other(proto);
            assert_eq!(looked(&mut buffers, &shown, 9_014).split, Split::NONE);
            assert_eq!(looked(&mut buffers, &data, 9_014).split, Split::NONE);
            assert!(looked(&mut buffers, &data, 9_015).split.is_buffer());
            assert!(looked(&mut buffers, &shown, 20_000).split.is_buffer(), "no link carries it");
        }
    }

    #[test]
    fn a_loopback_interface_cuts_nothing() {
        let mut buffers = Buffers::default();
        let mut data = tcp(false, ACK, 0);
        data[..12].fill(0);
        assert_eq!(looked(&mut buffers, &data, 65_549).split, Split::NONE);
    }

    #[test]
    fn any_bytes_are_looked_at_without_a_panic() {
        let frames = [tcp(false, SYN, 1_460), tcp(true, ACK, 0), other(proto::UDP)];
        let mut buffers = Buffers::default();
        for frame in &frames {
            for at in 12..frame.len() {
                for value in [0, 1, 0x60, 0x86, 0xff] {
                    let mut frame = frame.clone();
                    frame[at] = value;
                    for length in [0, 14, 20, 40, 54, frame.len()] {
                        for wire_bytes in [0, 60, 3_000, u32::MAX] {
                            let packet = looked(&mut buffers, &frame[..length], wire_bytes);
                            let uncertain = packet.uncertain();
                            assert!(uncertain.is_none_or(|all| all.most.packets >= packet.tally().packets));
                            if wire_bytes < u32::MAX {
                                let mut bytes = Tally::default();
                                let _: Result<(), ()> = packet.each(|part| {
                                    bytes.add(Tally::new(1, part.wire_bytes.into()));
                                    Ok(())
                                });
                                assert_eq!(bytes, packet.tally());
                            }
                        }
                    }
                }
            }
        }
    }
}
