//! Captures built by hand, byte by byte.

mod broken;
mod packed;
mod pcap;
mod pcapng;

use std::io::Read;

use weir_common::packet::Link;

use super::{
    Broken, Capture,
    order::Order::{self, Big, Little},
};

/// A packet as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnedPacket {
    time_ns: Option<u64>,
    link: Link,
    wire_bytes: u32,
    captured: Vec<u8>,
}

fn packet(time_ns: impl Into<Option<u64>>, link: Link, wire_bytes: u32, captured: &[u8]) -> OwnedPacket {
    OwnedPacket { time_ns: time_ns.into(), link, wire_bytes, captured: captured.to_vec() }
}

/// All packets, and the result at the end.
fn read(bytes: &[u8]) -> (Vec<OwnedPacket>, Result<(), Broken>) {
    read_from(bytes)
}

fn read_from(reader: impl Read) -> (Vec<OwnedPacket>, Result<(), Broken>) {
    let mut packets = Vec::new();
    let mut capture = match Capture::new(reader, "x") {
        Ok(capture) => capture,
        Err(broken) => return (packets, Err(broken)),
    };
    loop {
        // Peek at every other packet first.
        let looked = (packets.len() % 2 == 1).then(|| capture.next_time());
        match capture.next_packet() {
            Ok(Some(next)) => {
                assert!(looked.is_none_or(|looked| looked.is_ok_and(|looked| looked == Some(next.time_ns))));
                packets.push(packet(next.time_ns, next.link, next.wire_bytes, next.captured));
            }
            Ok(None) => return (packets, looked.map_or(Ok(()), |looked| looked.map(|_| ()))),
            Err(broken) => {
                assert!(matches!(capture.next_packet(), Ok(None)), "nothing follows an error");
                return (packets, Err(broken));
            }
        }
    }
}

/// All packets of an intact capture.
fn read_whole(bytes: &[u8]) -> Vec<OwnedPacket> {
    let (packets, end) = read(bytes);
    end.unwrap();
    packets
}

/// The error message for a broken capture.
fn complaint(bytes: &[u8]) -> String {
    read(bytes).1.unwrap_err().to_string()
}

/// A file that is being written.
struct Writer {
    order: Order,
    bytes: Vec<u8>,
}

impl Writer {
    fn new(order: Order) -> Self {
        Self { order, bytes: Vec::new() }
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.put(match self.order {
            Little => value.to_le_bytes(),
            Big => value.to_be_bytes(),
        })
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.put(match self.order {
            Little => value.to_le_bytes(),
            Big => value.to_be_bytes(),
        })
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.put(match self.order {
            Little => value.to_le_bytes(),
            Big => value.to_be_bytes(),
        })
    }

    fn words(&mut self, values: &[u32]) -> &mut Self {
        for value in values {
            self.u32(*value);
        }
        self
    }

    fn put(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.bytes.extend_from_slice(bytes.as_ref());
        self
    }

    fn pad(&mut self) -> &mut Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }
}

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const MODIFIED: u32 = 0xa1b2_cd34;

/// Writes captures in the format pcap.
impl Writer {
    fn pcap(order: Order, magic: u32, version: (u16, u16), linktype: u32) -> Self {
        let mut file = Self::new(order);
        file.u32(magic).u16(version.0).u16(version.1).words(&[0, 0, 65_535, linktype]);
        file
    }

    fn record(&mut self, seconds: u32, ticks: u32, lengths: (u32, u32), data: &[u8]) -> &mut Self {
        self.words(&[seconds, ticks, lengths.0, lengths.1]).put(data)
    }
}

/// Writes captures in the format pcapng.
impl Writer {
    fn pcapng(order: Order) -> Self {
        let mut file = Self::new(order);
        file.section();
        file
    }

    fn section(&mut self) -> &mut Self {
        self.block(0x0a0d_0d0a, |block| {
            block.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX);
        })
    }

    fn interface(&mut self, linktype: u16, snap_bytes: u32, options: impl FnOnce(&mut Self)) -> &mut Self {
        self.block(1, |block| {
            block.u16(linktype).u16(0).u32(snap_bytes);
            options(block);
        })
    }

    fn option(&mut self, code: u16, value: &[u8]) -> &mut Self {
        self.u16(code).u16(value.len() as u16).put(value).pad()
    }

    fn enhanced(&mut self, interface: u32, ticks: u64, original: u32, data: &[u8]) -> &mut Self {
        self.block(6, |block| {
            block.words(&[interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, original]);
            block.put(data).pad();
        })
    }

    fn simple(&mut self, original: u32, data: &[u8]) -> &mut Self {
        self.block(3, |block| {
            block.u32(original).put(data).pad();
        })
    }

    /// A block around `content`, with its length at both ends.
    fn block(&mut self, kind: u32, content: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inside = Self::new(self.order);
        content(&mut inside);
        let bytes = inside.bytes.len() as u32 + 12;
        self.words(&[kind, bytes]).put(inside.bytes).u32(bytes)
    }
}
