//! Errors when reading a capture.

use std::{
    fmt::{self, Display, Formatter},
    io,
};

use weir_system::numbers::grouped;

use super::{DESCRIPTIONS_MAX, PACKET_BYTES_MAX};

/// A capture that cannot be read, or not to its end.
#[derive(Debug)]
pub struct Broken {
    /// The file, as it was given.
    pub file: String,
    /// How many packets were read before the error.
    pub packets: u64,
    /// The offset of the unreadable record from the start of the capture, in bytes, after decompression.
    pub offset: u64,
    /// The mistake at that place.
    pub reason: Reason,
}

/// The ways in which a capture can be broken.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The file cannot be opened.
    #[error("cannot open it: {0}")]
    Open(#[source] io::Error),
    /// The operating system could not read the file.
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    /// A compressed file cannot be decompressed.
    #[error("{}", packed(.packing, .error))]
    Packed {
        /// The name of the compression.
        packing: &'static str,
        /// The decoder's error.
        #[source]
        error: io::Error,
    },
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The file is compressed in a format that weir does not read.
    #[error("the file is {0}-compressed: decompress it first (weir reads gzip and zstd)")]
    Compressed(&'static str),
    /// The first bytes are not those of a capture.
    #[error("not a capture: expected pcap or pcapng, but it begins with {}", Hex(.0))]
    NotACapture(Vec<u8>),
    /// The version has been out of use for decades, or the file is random data.
    #[error("{format} version {version} is unknown: weir reads {known}")]
    Version {
        /// The name of the format.
        format: &'static str,
        /// The major version that was found.
        version: u16,
        /// The supported versions, for the message.
        known: &'static str,
    },
    /// The file is truncated.
    #[error("the file ends inside {inside}: {} of its {} bytes are there", grouped(*.there), grouped(*.bytes))]
    CutShort {
        /// The part in which it ends.
        inside: CapturePart,
        /// How many bytes of that part are present.
        there: u64,
        /// How many bytes that part should have.
        bytes: u64,
    },
    /// A packet has more bytes than [`PACKET_BYTES_MAX`].
    #[error(
        "the record claims {} captured bytes, but the limit is {}",
        grouped(u64::from(*.0)), grouped(u64::from(PACKET_BYTES_MAX))
    )]
    Captured(u32),
    /// A packet is larger than its block.
    #[error(
        "the block claims {} captured bytes, but has room for {}",
        grouped(u64::from(*.captured)), grouped(u64::from(*.room))
    )]
    Overrun {
        /// The captured length, in bytes.
        captured: u32,
        /// The bytes in the block that are left for the packet.
        room: u32,
    },
    /// A block's length is impossible, or beyond [`BLOCK_BYTES_MAX`](super::BLOCK_BYTES_MAX) or
    /// [`DESCRIPTION_BYTES_MAX`](super::DESCRIPTION_BYTES_MAX).
    #[error(
        "the block of type {kind:#010x} claims {} bytes, but {smallest} to {} are possible",
        grouped(u64::from(*.bytes)), grouped(u64::from(*.largest))
    )]
    BlockLength {
        /// The type of the block.
        kind: u32,
        /// The length that it states.
        bytes: u32,
        /// The smallest length for this type.
        smallest: u32,
        /// The largest length accepted for this type.
        largest: u32,
    },
    /// A block states its length at both ends, and the two differ.
    #[error(
        "the block's length is {} at its start, but {} at its end",
        grouped(u64::from(*.start)), grouped(u64::from(*.end))
    )]
    BlockLengths {
        /// The length before the content.
        start: u32,
        /// The length after the content.
        end: u32,
    },
    /// A section has an invalid byte order.
    #[error("the section's byte-order magic is {}, expected 1a 2b 3c 4d or its reverse", Hex(.0))]
    ByteOrder([u8; 4]),
    /// A packet is from an interface that its section does not describe.
    #[error("the packet is from interface {interface}, but the section describes {described} so far")]
    Interface {
        /// The index of the interface within its section.
        interface: u32,
        /// How many interfaces are described.
        described: usize,
    },
    /// One section describes more than [`DESCRIPTIONS_MAX`] interfaces.
    #[error("the section describes more than {} interfaces", grouped(DESCRIPTIONS_MAX as u64))]
    Interfaces,
    /// An interface description cannot be read.
    #[error("the interface description cannot be read")]
    Description,
}

/// The part of a file in which it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePart {
    /// The header of a pcap file.
    FileHeader,
    /// A packet's record or block.
    Packet,
    /// A pcapng block of another type, or of an unknown type because it is truncated.
    Block,
}

impl Reason {
    /// How many of a file's first bytes are inspected, and shown if the file is not a capture.
    pub(super) const FIRST_BYTES: usize = 8;

    /// Describes what a file that is not a capture seems to be.
    pub(super) fn not_a_capture(first: &[u8]) -> Self {
        const COMPRESSED: [(&[u8], &str); 3] =
            [(&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"), (b"BZh", "bzip2"), (&[0x04, 0x22, 0x4d, 0x18], "lz4")];
        match COMPRESSED.iter().find(|(magic, _)| first.starts_with(magic)) {
            Some((_, name)) => Self::Compressed(name),
            None => Self::NotACapture(first.to_vec()),
        }
    }

    /// Changes a read error of a compressed file: there it means that the file cannot be decompressed.
    pub(super) fn of_packed(self, packing: Option<&'static str>) -> Self {
        match (self, packing) {
            // A system error about the file itself has an error number.
            (Self::Read(error), Some(packing)) if error.raw_os_error().is_none() => Self::Packed { packing, error },
            (other, _) => other,
        }
    }

    pub(super) const fn cut(inside: CapturePart, there: usize, bytes: usize) -> Self {
        Self::CutShort { inside, there: there as u64, bytes: bytes as u64 }
    }
}

fn packed(packing: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("the {packing} data ends too early"),
        _ => format!("the {packing} data cannot be unpacked: {error}"),
    }
}

impl Display for Broken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { file, packets, offset, reason } = self;
        write!(f, "{file}: ")?;
        match offset {
            0 => write!(f, "{reason}"),
            _ => write!(
                f,
                "at byte {offset}, after {packets} {}: {reason}",
                if *packets == 1 { "packet" } else { "packets" }
            ),
        }
    }
}

/// The message is complete; there is no further source to print.
impl std::error::Error for Broken {}

impl Display for CapturePart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FileHeader => "its header",
            Self::Packet => "a packet",
            Self::Block => "a block",
        })
    }
}

/// Bytes in hex, two digits each.
struct Hex<'a>(&'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}
