//! pcap: one file header, then records (draft-ietf-opsawg-pcap).

use std::io::Read;

use weir_common::packet::Link;

use super::{
    Buffer, Located, PACKET_BYTES_MAX, Part, Reason,
    link::link,
    order::Order::{self, Big, Little},
};

const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
/// A. Kuznetzov's patched libpcap adds interface, protocol and packet type.
const MODIFIED_RECORD_HEADER_BYTES: usize = 24;

/// What the file header says.
pub(super) struct Pcap {
    order: Order,
    ns_per_tick: u64,
    record_header_bytes: usize,
    lengths: Lengths,
    link: Link,
}

/// The order of a record's two lengths.
#[derive(Clone, Copy)]
enum Lengths {
    CapturedFirst,
    /// Before version 2.3, and in DG/UX's 543.0.
    OriginalFirst,
    /// Version 2.3 was written in both orders: the captured length is the smaller one.
    SmallerIsCaptured,
}

/// Whether a file that begins so is a pcap file, in either byte order.
pub(super) fn is_magic(first: &[u8; 4]) -> bool {
    const MICROSECONDS: u32 = 0xa1b2_c3d4;
    const NANOSECONDS: u32 = 0xa1b2_3c4d;
    const MODIFIED: u32 = 0xa1b2_cd34;
    // Of the modified format, `pcap-parser` reads what little-endian machines wrote.
    matches!(u32::from_le_bytes(*first), MICROSECONDS | NANOSECONDS | MODIFIED)
        || matches!(u32::from_be_bytes(*first), MICROSECONDS | NANOSECONDS)
}

impl Pcap {
    /// Reads the file header.
    pub(super) fn open<R: Read>(buffer: &mut Buffer<R>) -> Result<Self, Reason> {
        let bytes = buffer.peek(FILE_HEADER_BYTES)?;
        let Ok((_, header)) = pcap_parser::parse_pcap_header(bytes) else {
            return Err(Reason::cut(Part::FileHeader, bytes.len(), FILE_HEADER_BYTES));
        };
        let lengths = match (header.version_major, header.version_minor) {
            (0..2, _) => {
                return Err(Reason::Version { format: "pcap", version: header.version_major, known: "2 and later" });
            }
            (2, 0..3) | (543, _) => Lengths::OriginalFirst,
            (2, 3) => Lengths::SmallerIsCaptured,
            _ => Lengths::CapturedFirst,
        };
        let pcap = Self {
            order: if header.is_bigendian() { Big } else { Little },
            ns_per_tick: if header.is_nanosecond_precision() { 1 } else { 1_000 },
            record_header_bytes: if header.is_modified_format() {
                MODIFIED_RECORD_HEADER_BYTES
            } else {
                RECORD_HEADER_BYTES
            },
            lengths,
            // The upper half has other uses, such as the FCS's length.
            link: link(header.network.0 as u16),
        };
        buffer.take(FILE_HEADER_BYTES);
        Ok(pcap)
    }

    /// The next record, which the buffer then holds; `None` at the end.
    #[inline]
    pub(super) fn next<R: Read>(&self, buffer: &mut Buffer<R>) -> Result<Option<Located>, Reason> {
        let at = self.record_header_bytes;
        let header = buffer.peek(at)?;
        if header.is_empty() {
            return Ok(None);
        }
        if header.len() < at {
            return Err(Reason::cut(Part::Packet, header.len(), at));
        }
        let [seconds, ticks, first, second] = self.order.words(header);
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
            return Err(Reason::cut(Part::Packet, there, bytes));
        }
        Ok(Some(Located {
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * self.ns_per_tick,
            link: self.link,
            wire_bytes: original,
            captured: at..bytes,
            bytes,
        }))
    }
}
