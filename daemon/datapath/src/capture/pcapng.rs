//! pcapng: sections of blocks (draft-ietf-opsawg-pcapng).

use std::io::Read;

use pcap_parser::{
    OptionCode,
    pcapng::{parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le},
};

use super::{
    BLOCK_BYTES_MAX, Buffer, CapturePart, DESCRIPTION_BYTES_MAX, DESCRIPTIONS_MAX, Located, PACKET_BYTES_MAX, Reason,
    link::LinkType,
    order::Order::{self, Big, Little},
};

/// The types of blocks that weir reads.
mod kind {
    use weir_system::magic::PCAPNG;

    /// A section header. Its type reads the same in both byte orders.
    pub const SECTION: u32 = u32::from_be_bytes(PCAPNG);
    pub const INTERFACE: u32 = 1;
    /// An obsolete block: a 16-bit interface and a drop count replace the 32-bit interface of an enhanced block.
    pub const PACKET: u32 = 2;
    pub const SIMPLE_PACKET: u32 = 3;
    pub const ENHANCED_PACKET: u32 = 6;
}

/// The type and the length before a block's content.
const HEAD_BYTES: usize = 8;
/// The length after the content.
const TAIL_BYTES: usize = 4;
/// Offset of the packet in an enhanced (or obsolete) packet block.
const PACKET_AT: usize = HEAD_BYTES + 20;
/// Offset of the packet in a simple packet block.
const SIMPLE_PACKET_AT: usize = HEAD_BYTES + 4;

/// The section that is being read.
pub(super) struct Pcapng {
    order: Order,
    interfaces: Vec<Interface>,
}

struct Interface {
    link_type: LinkType,
    snap_bytes: u32,
    resolution: Resolution,
    offset_ns: i128,
}

/// `if_tsresol`: the length of a tick, as a power of ten or two.
#[derive(Clone, Copy)]
enum Resolution {
    /// 10^-n, at least a nanosecond: ticks are multiplied by this number to get nanoseconds.
    Coarse(u64),
    /// 10^-n, less than a nanosecond: ticks are divided by this number.
    Fine(u64),
    /// The unit is 2^-n seconds.
    Binary(u8),
}

impl Default for Pcapng {
    fn default() -> Self {
        Self { order: Little, interfaces: Vec::new() }
    }
}

impl Pcapng {
    /// Loads the next packet's block into the buffer and returns the packet's position; `None` at the end.
    pub(super) fn next<R: Read>(&mut self, buffer: &mut Buffer<R>) -> Result<Option<Located>, Reason> {
        while let Some((kind, bytes)) = self.block(buffer)? {
            let block = buffer.peek(bytes)?;
            match kind {
                kind::ENHANCED_PACKET | kind::PACKET => return self.packet(kind, block).map(Some),
                kind::SIMPLE_PACKET => return self.simple_packet(block).map(Some),
                kind::INTERFACE => self.describe(block)?,
                kind::SECTION => self.begin(block)?,
                _ => {}
            }
            buffer.take(bytes);
        }
        Ok(None)
    }

    /// Loads the next block and checks that its two lengths agree. Returns its type and length, or `None` at the end.
    fn block<R: Read>(&mut self, buffer: &mut Buffer<R>) -> Result<Option<(u32, usize)>, Reason> {
        let head = buffer.peek(HEAD_BYTES + 4)?;
        if head.is_empty() {
            return Ok(None);
        }
        let Some((kind_and_length, Some(magic))) = head.split_at_checked(HEAD_BYTES).map(|(a, b)| (a, b.first_chunk()))
        else {
            return Err(Reason::cut(CapturePart::Block, head.len(), HEAD_BYTES + TAIL_BYTES));
        };
        let [kind, _] = self.order.words(kind_and_length);
        if kind == kind::SECTION {
            self.order = byte_order(magic)?;
        }
        let [_, length] = self.order.words(kind_and_length);
        let (smallest, largest) = lengths(kind);
        if length < smallest || length > largest {
            return Err(Reason::BlockLength { kind, bytes: length, smallest, largest });
        }
        let bytes = length as usize;
        let block = buffer.peek(bytes)?;
        if block.len() < bytes {
            return Err(Reason::cut(part(kind), block.len(), bytes));
        }
        let [end] = self.order.words(&block[bytes - TAIL_BYTES..]);
        if end != length {
            return Err(Reason::BlockLengths { start: length, end });
        }
        Ok(Some((kind, bytes)))
    }

    /// Starts a section, which has its own interfaces.
    fn begin(&mut self, block: &[u8]) -> Result<(), Reason> {
        let version = self.order.u16([block[12], block[13]]);
        if version != 1 {
            return Err(Reason::Version { format: "pcapng", version, known: "1" });
        }
        self.interfaces.clear();
        Ok(())
    }

    /// Adds an interface to the section.
    fn describe(&mut self, block: &[u8]) -> Result<(), Reason> {
        if self.interfaces.len() == DESCRIPTIONS_MAX {
            return Err(Reason::Interfaces);
        }
        let parsed = match self.order {
            Little => parse_interfacedescriptionblock_le(block),
            Big => parse_interfacedescriptionblock_be(block),
        };
        let (_, description) = parsed.map_err(|_| Reason::Description)?;
        let mut interface = Interface {
            link_type: LinkType(description.linktype.0 as u16),
            snap_bytes: description.snaplen,
            resolution: Resolution::new(description.if_tsresol),
            offset_ns: 0,
        };
        let offset = description.options.iter().find(|option| option.code == OptionCode::IfTsoffset);
        if let Some(seconds) = offset.and_then(|option| option.value.first_chunk()) {
            interface.offset_ns = i128::from(self.order.i64(*seconds)) * 1_000_000_000;
        }
        self.interfaces.push(interface);
        Ok(())
    }

    #[inline]
    fn packet(&self, kind: u32, block: &[u8]) -> Result<Located, Reason> {
        let [interface, time_high, time_low, captured, original] = self.order.words(&block[HEAD_BYTES..]);
        let interface = match kind {
            kind::PACKET => u32::from(self.order.u16([block[HEAD_BYTES], block[HEAD_BYTES + 1]])),
            _ => interface,
        };
        let interface = self.interface(interface)?;
        fits(captured, PACKET_AT, block)?;
        Ok(Located {
            time_ns: interface.time_ns(u64::from(time_high) << 32 | u64::from(time_low)),
            link_type: interface.link_type,
            order: self.order,
            wire_bytes: original,
            captured: PACKET_AT..PACKET_AT + captured as usize,
            bytes: block.len(),
        })
    }

    /// Locates a packet without a time and without a captured length. It is from the section's first interface.
    fn simple_packet(&self, block: &[u8]) -> Result<Located, Reason> {
        let interface = self.interface(0)?;
        let [original] = self.order.words(&block[HEAD_BYTES..]);
        let captured = match interface.snap_bytes {
            0 => original,
            limit => original.min(limit),
        };
        fits(captured, SIMPLE_PACKET_AT, block)?;
        Ok(Located {
            time_ns: None,
            link_type: interface.link_type,
            order: self.order,
            wire_bytes: original,
            captured: SIMPLE_PACKET_AT..SIMPLE_PACKET_AT + captured as usize,
            bytes: block.len(),
        })
    }

    #[inline]
    fn interface(&self, interface: u32) -> Result<&Interface, Reason> {
        let described = self.interfaces.len();
        self.interfaces.get(interface as usize).ok_or(Reason::Interface { interface, described })
    }
}

impl Interface {
    /// Nanoseconds since the Unix epoch, unless the time is before it or beyond 64 bits (in 2554).
    #[inline]
    fn time_ns(&self, ticks: u64) -> Option<u64> {
        let ns = self.resolution.ns(ticks);
        match self.offset_ns {
            0 => u64::try_from(ns).ok(),
            offset => u64::try_from(i128::try_from(ns).ok()? + offset).ok(),
        }
    }
}

impl Resolution {
    fn new(if_tsresol: u8) -> Self {
        let exponent = if_tsresol & 0x7f;
        match if_tsresol {
            0..=9 => Self::Coarse(10_u64.pow(u32::from(9 - exponent))),
            // If the divisor does not fit into 64 bits, every time rounds to 0. The largest divisor does that, too.
            10..0x80 => Self::Fine(10_u64.checked_pow(u32::from(exponent - 9)).unwrap_or(u64::MAX)),
            0x80.. => Self::Binary(exponent),
        }
    }

    #[inline]
    const fn ns(self, ticks: u64) -> u128 {
        match self {
            Self::Coarse(ns) => ticks as u128 * ns as u128,
            Self::Fine(per_ns) => (ticks / per_ns) as u128,
            Self::Binary(exponent) => (ticks as u128 * 1_000_000_000) >> exponent,
        }
    }
}

fn byte_order(magic: &[u8; 4]) -> Result<Order, Reason> {
    const MAGIC: u32 = 0x1a2b_3c4d;
    match *magic {
        bytes if u32::from_le_bytes(bytes) == MAGIC => Ok(Little),
        bytes if u32::from_be_bytes(bytes) == MAGIC => Ok(Big),
        bytes => Err(Reason::ByteOrder(bytes)),
    }
}

/// The smallest and the largest valid length of a block of this type.
const fn lengths(kind: u32) -> (u32, u32) {
    let content = match kind {
        kind::SECTION => 16,
        kind::INTERFACE => 8,
        kind::ENHANCED_PACKET | kind::PACKET => PACKET_AT - HEAD_BYTES,
        kind::SIMPLE_PACKET => SIMPLE_PACKET_AT - HEAD_BYTES,
        _ => 0,
    };
    let largest = if kind == kind::INTERFACE { DESCRIPTION_BYTES_MAX } else { BLOCK_BYTES_MAX };
    ((HEAD_BYTES + content + TAIL_BYTES) as u32, largest)
}

const fn part(kind: u32) -> CapturePart {
    match kind {
        kind::ENHANCED_PACKET | kind::PACKET | kind::SIMPLE_PACKET => CapturePart::Packet,
        _ => CapturePart::Block,
    }
}

/// Checks that the packet at this offset is within its block and within the limit.
#[inline]
fn fits(captured: u32, at: usize, block: &[u8]) -> Result<(), Reason> {
    let room = (block.len() - TAIL_BYTES - at) as u32;
    if captured > PACKET_BYTES_MAX {
        Err(Reason::Captured(captured))
    } else if captured > room {
        Err(Reason::Overrun { captured, room })
    } else {
        Ok(())
    }
}
