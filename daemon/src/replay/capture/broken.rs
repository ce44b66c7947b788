//! Why a capture cannot be read: the error messages.

use std::{
    fmt::{self, Display, Formatter},
    io,
};

use super::{DESCRIPTIONS_MAX, PACKET_BYTES_MAX};
use crate::text::grouped;

/// A capture that cannot be read, or not further.
#[derive(Debug)]
pub struct Broken {
    /// The file, as it was named.
    pub file: String,
    /// How many packets were read before.
    pub packets: u64,
    /// Where the record that cannot be read begins, in bytes from the start of the capture, unpacked if it was packed.
    pub offset: u64,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with a capture.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The file cannot be opened.
    #[error("cannot open it: {0}")]
    Open(#[source] io::Error),
    /// Reading failed.
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    /// What it is packed with, and why that cannot be unpacked.
    #[error("{}", packed(.packing, .error))]
    Packed {
        /// The packing's name.
        packing: &'static str,
        /// What its decoder says.
        #[source]
        error: io::Error,
    },
    /// There is not one byte.
    #[error("the file is empty")]
    Empty,
    /// Compressed, with what weir does not read.
    #[error("the file is {0}-compressed: decompress it first (weir reads gzip and zstd)")]
    Compressed(&'static str),
    /// The first bytes are no capture's.
    #[error("not a capture: expected pcap or pcapng, but it begins with {}", Hex(.0))]
    NotACapture(Vec<u8>),
    /// A version that nobody wrote for decades, or noise.
    #[error("{format} version {version} is unknown: weir reads {known}")]
    Version {
        /// The format's name.
        format: &'static str,
        /// The major version found.
        version: u16,
        /// The versions that are read.
        known: &'static str,
    },
    /// The file ends too early.
    #[error("the file ends inside {inside}: {} of its {} bytes are there", grouped(*.there), grouped(*.bytes))]
    CutShort {
        /// In what it ends.
        inside: Part,
        /// How many bytes of that are there.
        there: u64,
        /// How many there should be.
        bytes: u64,
    },
    /// A packet that claims more than [`PACKET_BYTES_MAX`].
    #[error(
        "the record says {} captured bytes, the limit is {}",
        grouped(u64::from(*.0)), grouped(u64::from(PACKET_BYTES_MAX))
    )]
    Captured(u32),
    /// A packet that does not fit into its block.
    #[error(
        "the block says {} captured bytes, but has room for {}",
        grouped(u64::from(*.captured)), grouped(u64::from(*.room))
    )]
    Overrun {
        /// The captured length, in bytes.
        captured: u32,
        /// What the block's length leaves for it.
        room: u32,
    },
    /// A block's length that is impossible, or beyond [`BLOCK_BYTES_MAX`](super::BLOCK_BYTES_MAX)
    /// or [`DESCRIPTION_BYTES_MAX`](super::DESCRIPTION_BYTES_MAX).
    #[error(
        "the block of type {kind:#010x} says {} bytes, possible are {smallest} to {}",
        grouped(u64::from(*.bytes)), grouped(u64::from(*.largest))
    )]
    BlockLength {
        /// The block's type.
        kind: u32,
        /// The length that it claims.
        bytes: u32,
        /// The smallest that this type of block can have.
        smallest: u32,
        /// The largest that is read of this type.
        largest: u32,
    },
    /// A block's length stands at both its ends; they must be equal.
    #[error(
        "the block's length is {} at its start, but {} at its end",
        grouped(u64::from(*.start)), grouped(u64::from(*.end))
    )]
    BlockLengths {
        /// The length before the block's content.
        start: u32,
        /// The length behind it.
        end: u32,
    },
    /// A section without a readable byte order.
    #[error("the section's byte-order magic is {}, expected 1a 2b 3c 4d or its reverse", Hex(.0))]
    ByteOrder([u8; 4]),
    /// A packet on an interface that its section does not describe.
    #[error("the packet is from interface {interface}, but the section describes {described} so far")]
    Interface {
        /// The interface's index.
        interface: u32,
        /// How many interfaces are described.
        described: usize,
    },
    /// More than [`DESCRIPTIONS_MAX`] interfaces in one section.
    #[error("the section describes more than {} interfaces", grouped(DESCRIPTIONS_MAX as u64))]
    Interfaces,
    /// An interface description that cannot be read.
    #[error("the interface description cannot be read")]
    Description,
}

/// The part of a file inside which it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// pcap's file header.
    FileHeader,
    /// A packet's record or block.
    Packet,
    /// A pcapng block of another kind, or one whose kind is cut off.
    Block,
}

impl Reason {
    /// How many of a file's first bytes are looked at, and shown if they are no capture's.
    pub(super) const FIRST_BYTES: usize = 8;

    /// Says what a file that is no capture seems to be instead.
    pub(super) fn not_a_capture(first: &[u8]) -> Self {
        const COMPRESSED: [(&[u8], &str); 3] =
            [(&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"), (b"BZh", "bzip2"), (&[0x04, 0x22, 0x4d, 0x18], "lz4")];
        match COMPRESSED.iter().find(|(magic, _)| first.starts_with(magic)) {
            Some((_, name)) => Self::Compressed(name),
            None => Self::NotACapture(first.to_vec()),
        }
    }

    /// The same of a file that is packed: what cannot be read cannot be unpacked.
    pub(super) fn of_packed(self, packing: Option<&'static str>) -> Self {
        match (self, packing) {
            // What the system says of the file itself has a number.
            (Self::Read(error), Some(packing)) if error.raw_os_error().is_none() => Self::Packed { packing, error },
            (other, _) => other,
        }
    }

    pub(super) const fn cut(inside: Part, there: usize, bytes: usize) -> Self {
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

/// Its text says all; there is no further source to print.
impl std::error::Error for Broken {}

impl Display for Part {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FileHeader => "its header",
            Self::Packet => "a packet",
            Self::Block => "a block",
        })
    }
}

/// Bytes as two digits each.
struct Hex<'a>(&'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}
