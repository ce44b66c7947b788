//! Reads capture files packet by packet: pcap and pcapng, also compressed with gzip or zstd, in bounded memory.
//!
//! ```text
//! open: look at the first bytes; pcap: read the file header
//! next: read the record's header, check its lengths, read the whole record into the buffer,
//!       lend the packet from the buffer; an unreadable record ends the file
//! ```
//!
//! pcapng's interface options are rare and are read with `pcap-parser`. Everything else is decoded here, for five
//! reasons. `pcap-parser` does not know the modified format of big-endian machines. Each length must be checked before
//! it is used. Before version 2.3, pcap had its two lengths swapped. Obsolete pcapng packet blocks still occur. And
//! nothing may be allocated per packet.
//!
//! A packet's bytes are its *original* length, without what some link types put before the packet ([`link`]). If the
//! capture states that frames include an FCS (the upper bits of pcap's link type, pcapng's `if_fcslen`), the FCS is
//! counted, as in other tools.

mod broken;
mod buffer;
pub mod buffers;
pub mod input;
pub mod link;
mod link_names;
pub mod merge;
mod order;
mod packed;
pub mod packet_buffer;
mod pcap;
mod pcapng;
pub mod span;
pub mod strays;
#[cfg(test)]
mod tests;

use std::{fs::File, io::Read, ops::Range, path::Path};

use weir_common::packet::Link;
use weir_system::magic::PCAPNG;

pub use self::broken::{Broken, CapturePart, Reason};
use self::{
    buffer::Buffer,
    buffers::Split,
    link::{LinkType, Opened},
    order::Order,
    pcap::{Magic, Pcap},
    pcapng::Pcapng,
};

/// A record with more captured bytes is invalid: no capture tool writes a larger snapshot length.
pub const PACKET_BYTES_MAX: u32 = 256 << 10;
/// A longer pcapng block is invalid, as for other readers. The read buffer never grows beyond this size.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;
/// A longer pcapng interface description is invalid: parsing its options takes ten times their length in memory.
pub const DESCRIPTION_BYTES_MAX: u32 = 1 << 20;
/// A pcapng section that describes more interfaces is invalid: older blocks have 16 bits for the interface, and this
/// many descriptions already take 4 MiB.
pub const DESCRIPTIONS_MAX: usize = 1 << 16;

/// The size of the read buffer: it holds many packets per system call, but still fits a core's cache.
const BUFFER_BYTES: usize = 256 << 10;

/// One packet of a capture, borrowed from its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Capture time in nanoseconds since the Unix epoch. `None` if the capture has no time (pcapng's simple packet
    /// blocks), or if the time is before 1970 or after July 2554.
    pub time_ns: Option<u64>,
    /// True if its time is far from that of the packets around it (see [`strays`]). [`Capture`] does not know.
    pub stray: bool,
    /// The link type that the capture declares.
    pub link_type: LinkType,
    /// The link layer of the first captured bytes; [`Link::Other`] if weir does not read its link type.
    pub link: Link,
    /// Length on the wire in bytes, as recorded, without what the link type adds to the packet. In a few captures it is
    /// less than the number of captured bytes.
    pub wire_bytes: u32,
    /// The packets that it has, if it is a buffer of several. [`Capture`] does not know.
    pub split: Split,
    /// The captured bytes, which may be fewer than the packet had.
    pub captured: &'a [u8],
}

/// A capture that is being read.
pub struct Capture<R> {
    file: String,
    buffer: Buffer<R>,
    format: Format,
    /// The next packet, if it has been peeked at.
    next: Option<Located>,
    packets: u64,
    ended: bool,
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// The position of the next packet in the buffer, and the capture's data about it.
struct Located {
    time_ns: Option<u64>,
    link_type: LinkType,
    order: Order,
    wire_bytes: u32,
    captured: Range<usize>,
    /// Length of the whole record in bytes.
    bytes: usize,
}

impl Capture<File> {
    /// Opens a capture file.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or read, is empty, or is not a capture.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Broken> {
        let file = path.as_ref().display().to_string();
        match File::open(path) {
            Ok(reader) => Self::new(reader, file),
            Err(error) => Err(Broken { file, packets: 0, offset: 0, reason: Reason::Open(error) }),
        }
    }
}

impl<R: Read> Capture<R> {
    /// Reads a capture from `reader`, which needs no buffering. `file` is the name for error messages.
    ///
    /// # Errors
    ///
    /// The input cannot be read, is empty, or is not a capture.
    pub fn new(reader: R, file: impl Into<String>) -> Result<Self, Broken> {
        Self::with_buffer(reader, file, BUFFER_BYTES)
    }

    /// Like [`Capture::new`], with a read buffer of this many bytes. It grows if a record needs more.
    ///
    /// # Errors
    ///
    /// See [`Capture::new`].
    pub fn with_buffer(reader: R, file: impl Into<String>, bytes: usize) -> Result<Self, Broken> {
        let file = file.into();
        let opened = Buffer::new(reader, bytes).map_err(Reason::from).and_then(|mut buffer| {
            let packing = buffer.packing();
            let format = Format::detect(&mut buffer).map_err(|reason| reason.of_packed(packing))?;
            Ok((buffer, format))
        });
        match opened {
            Ok((buffer, format)) => Ok(Self { file, buffer, format, next: None, packets: 0, ended: false }),
            Err(reason) => Err(Broken { file, packets: 0, offset: 0, reason }),
        }
    }

    /// The capture time of the next packet, which may be unknown. `None` at the end.
    ///
    /// # Errors
    ///
    /// See [`Capture::next_packet`].
    pub fn next_time(&mut self) -> Result<Option<Option<u64>>, Broken> {
        if self.next.is_none() {
            self.next = self.locate()?;
        }
        Ok(self.next.as_ref().map(|next| next.time_ns))
    }

    /// The next packet, or `None` at the end.
    ///
    /// # Errors
    ///
    /// A record cannot be read; the error has its place. All packets before it were returned, and none will follow.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Broken> {
        let next = match self.next.take() {
            None => self.locate()?,
            next => next,
        };
        Ok(next.map(|Located { time_ns, link_type, order, wire_bytes, captured, bytes }| {
            self.packets += 1;
            let captured = &self.buffer.take(bytes)[captured];
            let Opened { link, wire_bytes, captured } = link_type.open(order, captured, wire_bytes);
            Packet { time_ns, stray: false, link_type, link, wire_bytes, split: Split::NONE, captured }
        }))
    }

    /// Reads the next packet into the buffer.
    fn locate(&mut self) -> Result<Option<Located>, Broken> {
        if self.ended {
            return Ok(None);
        }
        let record = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.buffer),
            Format::Pcapng(pcapng) => pcapng.next(&mut self.buffer),
        };
        self.ended = !matches!(record, Ok(Some(_)));
        record.map_err(|reason| {
            let reason = reason.of_packed(self.buffer.packing());
            Broken { file: self.file.clone(), packets: self.packets, offset: self.buffer.offset(), reason }
        })
    }

    /// How many bytes of the decompressed capture were read, up to the end of the last returned packet.
    pub const fn bytes_read(&self) -> u64 {
        self.buffer.offset()
    }
}

impl Format {
    fn detect<R: Read>(buffer: &mut Buffer<R>) -> Result<Self, Reason> {
        let first = buffer.peek(Reason::FIRST_BYTES)?;
        if first.is_empty() {
            return Err(Reason::Empty);
        }
        if first.starts_with(&PCAPNG) {
            return Ok(Self::Pcapng(Pcapng::default()));
        }
        if let Some(magic) = first.first_chunk().and_then(Magic::of) {
            return Pcap::open(buffer, magic).map(Self::Pcap);
        }
        Err(Reason::not_a_capture(first))
    }
}
