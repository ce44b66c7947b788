//! pcap: one file header, then records (draft-ietf-opsawg-pcap).

use std::io::Read;

use weir_system::magic::{PCAP_MICROSECONDS, PCAP_MODIFIED, PCAP_NANOSECONDS};

use super::{
    Buffer, CapturePart, Located, PACKET_BYTES_MAX, Reason,
    link::LinkType,
    order::Order::{self, Big, Little},
};

const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
/// The record header of A. Kuznetzov's patched libpcap, which adds the interface, protocol and packet type.
const MODIFIED_RECORD_HEADER_BYTES: usize = 24;

/// The content of the file header.
pub(super) struct Pcap {
    magic: Magic,
    lengths: Lengths,
    link_type: LinkType,
}

/// The order of a record's two lengths.
#[derive(Clone, Copy)]
enum Lengths {
    CapturedFirst,
    /// The original length comes first: before version 2.3, and in DG/UX's version 543.0.
    OriginalFirst,
    /// Version 2.3 exists with both orders: the smaller length is the captured one.
    SmallerIsCaptured,
}

/// The format that a file's first bytes identify.
#[derive(Clone, Copy)]
pub(super) struct Magic {
    order: Order,
    ns_per_tick: u64,
    record_header_bytes: usize,
}

impl Magic {
    /// The magic of a pcap file with these first bytes; `None` if it is not a pcap file.
    pub(super) fn of(first: &[u8; 4]) -> Option<Self> {
        [Little, Big].into_iter().find_map(|order| {
            let (ns_per_tick, record_header_bytes) = match order.u32(*first) {
                PCAP_MICROSECONDS => (1_000, RECORD_HEADER_BYTES),
                PCAP_NANOSECONDS => (1, RECORD_HEADER_BYTES),
                PCAP_MODIFIED => (1_000, MODIFIED_RECORD_HEADER_BYTES),
                _ => return None,
            };
            Some(Self { order, ns_per_tick, record_header_bytes })
        })
    }
}

impl Pcap {
    /// Reads the header of a file with this `magic`.
    pub(super) fn open<R: Read>(buffer: &mut Buffer<R>, magic: Magic) -> Result<Self, Reason> {
        let bytes = buffer.peek(FILE_HEADER_BYTES)?;
        if bytes.len() < FILE_HEADER_BYTES {
            return Err(Reason::cut(CapturePart::FileHeader, bytes.len(), FILE_HEADER_BYTES));
        }
        let order = magic.order;
        let [major, minor] = [order.u16([bytes[4], bytes[5]]), order.u16([bytes[6], bytes[7]])];
        let lengths = match (major, minor) {
            (0..2, _) => {
                return Err(Reason::Version { format: "pcap", version: major, known: "2 and later" });
            }
            (2, 0..3) | (543, _) => Lengths::OriginalFirst,
            (2, 3) => Lengths::SmallerIsCaptured,
            _ => Lengths::CapturedFirst,
        };
        let [.., linktype] = order.words::<6>(bytes);
        // The upper half of the link type has other uses, such as the FCS's length.
        let pcap = Self { magic, lengths, link_type: LinkType(linktype as u16) };
        buffer.take(FILE_HEADER_BYTES);
        Ok(pcap)
    }

    /// Loads the next record into the buffer and returns its position; `None` at the end.
    #[inline]
    pub(super) fn next<R: Read>(&self, buffer: &mut Buffer<R>) -> Result<Option<Located>, Reason> {
        let Magic { order, ns_per_tick, record_header_bytes: at } = self.magic;
        let header = buffer.peek(at)?;
        if header.is_empty() {
            return Ok(None);
        }
        if header.len() < at {
            return Err(Reason::cut(CapturePart::Packet, header.len(), at));
        }
        let [seconds, ticks, first, second] = order.words(header);
        let (captured, original) = match self.lengths {
            Lengths::CapturedFirst => (first, second),
            Lengths::OriginalFirst => (second, first),
            Lengths::SmallerIsCaptured => (first.min(second), first.max(second)),
        };
        if captured > PACKET_BYTES_MAX {
            return Err(Reason::Captured(captured));
        }
        let bytes = at + captured as usize;
        let there = buffer.peek(bytes)?.len();
        if there < bytes {
            return Err(Reason::cut(CapturePart::Packet, there, bytes));
        }
        Ok(Some(Located {
            time_ns: Some(u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * ns_per_tick),
            link_type: self.link_type,
            order,
            wire_bytes: original,
            captured: at..bytes,
            bytes,
        }))
    }
}
