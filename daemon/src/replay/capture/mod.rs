//! Capture files, packet by packet: pcap and pcapng, packed with gzip or zstd or not, in bounded memory.
//!
//! ```text
//! open: look at the first bytes; pcap: read the file header
//! next: read the record's header, check its lengths, read the whole record into the buffer,
//!       lend the packet from the buffer; a record that cannot be read ends the file
//! ```
//!
//! pcapng's interface options, which are rarely read, are read with `pcap-parser`. All else is decoded here, for five
//! reasons. `pcap-parser` does not know the modified format of big-endian machines. Each length must be checked before
//! it is used. Before version 2.3, pcap had its two lengths swapped. Obsolete packet blocks of pcapng still occur. And
//! nothing may be allocated per packet.
//!
//! A packet's bytes are its *original* length. Where the capture says that frames carry an FCS (the upper bits of
//! pcap's link type, pcapng's `if_fcslen`), it is counted with them, as other tools do.

mod broken;
mod buffer;
mod link;
mod order;
mod packed;
mod pcap;
mod pcapng;
#[cfg(test)]
mod tests;

use std::{fs::File, io::Read, ops::Range, path::Path};

use weir_common::packet::Link;

pub use self::broken::{Broken, Part, Reason};
use self::{
    buffer::Buffer,
    pcap::{Magic, Pcap},
    pcapng::Pcapng,
};

/// A record with more captured bytes is broken: capture tools write no larger snapshot length.
pub const PACKET_BYTES_MAX: u32 = 256 << 10;
/// A longer pcapng block is broken, as for other readers. The read buffer never grows beyond it.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;
/// A longer pcapng interface description is broken: its options need ten times their length when they are parsed.
pub const DESCRIPTION_BYTES_MAX: u32 = 1 << 20;
/// A section of a pcapng capture that describes more interfaces is broken: older blocks number interfaces by 16 bits,
/// and this many descriptions already need 4 MiB.
pub const DESCRIPTIONS_MAX: usize = 1 << 16;

/// A read buffer that holds many packets a system call, and is still inside a core's cache.
const BUFFER_BYTES: usize = 256 << 10;

/// One packet of a capture, borrowed from its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it was captured, in nanoseconds since the Unix epoch. `None` where the capture has no time (pcapng's simple
    /// packet blocks), or one that these nanoseconds cannot tell: before 1970, or after July 2554.
    pub time_ns: Option<u64>,
    /// What it begins with.
    pub link: Link,
    /// Its length on the wire in bytes, as the record says; in a few captures that is less than what was captured.
    pub wire_bytes: u32,
    /// What was captured of it.
    pub captured: &'a [u8],
}

/// A capture that is being read.
pub struct Capture<R> {
    file: String,
    buffer: Buffer<R>,
    format: Format,
    /// The next packet, if it was looked at.
    next: Option<Located>,
    packets: u64,
    ended: bool,
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// Where the buffer holds the next packet, and what the capture says of it.
struct Located {
    time_ns: Option<u64>,
    link: Link,
    wire_bytes: u32,
    captured: Range<usize>,
    /// The whole record's length, in bytes.
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
    /// Reads a capture from `reader`; `file` is what error messages call it. It needs no buffering around it.
    ///
    /// # Errors
    ///
    /// The input cannot be read, is empty, or is not a capture.
    pub fn new(reader: R, file: impl Into<String>) -> Result<Self, Broken> {
        Self::with_buffer(reader, file, BUFFER_BYTES)
    }

    /// The same with a read buffer of so many bytes. It grows where a record needs more.
    ///
    /// # Errors
    ///
    /// As for [`Capture::new`].
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

    /// When the next packet was captured, which may be unknown; `None` at the end.
    ///
    /// # Errors
    ///
    /// As for [`Capture::next_packet`].
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
    /// What cannot be read, and where. Everything before it was delivered; nothing comes after it.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Broken> {
        let next = match self.next.take() {
            None => self.locate()?,
            next => next,
        };
        Ok(next.map(|Located { time_ns, link, wire_bytes, captured, bytes }| {
            self.packets += 1;
            Packet { time_ns, link, wire_bytes, captured: &self.buffer.take(bytes)[captured] }
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

    /// How many bytes of the capture, unpacked, lie behind the packets delivered so far.
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
        if first.starts_with(&pcapng::MAGIC) {
            return Ok(Self::Pcapng(Pcapng::default()));
        }
        if let Some(magic) = first.first_chunk().and_then(Magic::of) {
            return Pcap::open(buffer, magic).map(Self::Pcap);
        }
        Err(Reason::not_a_capture(first))
    }
}
