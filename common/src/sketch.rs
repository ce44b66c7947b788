//! What sketches need to know about flow keys and tallies: their bytes in an image, and which of two tallies is larger.

use weir_sketch::{
    Columns,
    image::{ImageError, PlainKey, Reader, Writer},
};

use crate::{
    flow::{Address, FlowKey, Scope},
    ledger::Tally,
};

/// Packets and bytes. The larger of two tallies is the one with more bytes.
impl Columns for Tally {
    #[inline(always)]
    fn from_columns([packets, bytes]: [u64; 2]) -> Self {
        Self { packets, bytes }
    }
    #[inline(always)]
    fn columns(self) -> [u64; 2] {
        [self.packets, self.bytes]
    }
    #[inline(always)]
    fn magnitude(self) -> u64 {
        self.bytes
    }
    /// A packet is worth 512 bytes, in units of four bytes. So both the largest flows by packets and those by bytes
    /// have high scores.
    #[inline(always)]
    fn score(self) -> u64 {
        (self.bytes >> 2) + (Ord::min(self.packets, 1 << 54) << 7)
    }
}

/// The number by which a flow is large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// By packets.
    Packets,
    /// By bytes.
    Bytes,
}

impl Metric {
    /// This metric of a tally.
    #[inline(always)]
    pub const fn of(self, tally: Tally) -> u64 {
        match self {
            Self::Packets => tally.packets,
            Self::Bytes => tally.bytes,
        }
    }

    /// The tally with these numbers.
    #[inline(always)]
    pub fn each(mut number: impl FnMut(Self) -> u64) -> Tally {
        Tally::new(number(Self::Packets), number(Self::Bytes))
    }
}

/// The 16 octets of the address.
impl PlainKey for Address {
    const BYTES: usize = 16;

    fn write(&self, payload: &mut Writer) {
        payload.bytes(&self.octets());
    }
    fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError> {
        payload.array::<16>(field).map(|octets| core::net::Ipv6Addr::from(octets).into())
    }
}

/// Source, destination, both ports, protocol, class, interface, epoch: 40 bytes.
impl PlainKey for FlowKey {
    const BYTES: usize = 40;

    fn write(&self, payload: &mut Writer) {
        self.src.write(payload);
        self.dst.write(payload);
        [self.src_port(), self.dst_port()].iter().for_each(|port| port.write(payload));
        payload.bytes(&[self.proto(), self.class(), self.interface(), self.epoch()]);
    }
    fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError> {
        let [src, dst] = [Address::read(payload, field)?, Address::read(payload, field)?];
        let [src_port, dst_port] = [payload.u16(field)?, payload.u16(field)?];
        let [proto, class, interface, epoch] = payload.array(field)?;
        let key = Self::new(src, dst, proto, class).with_ports(src_port, dst_port);
        Ok(key.with_scope(Scope::new(interface, epoch)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sketch::{TopK, Weight};

    #[test]
    fn a_flow_key_has_the_same_bytes_everywhere() {
        let [src, dst] = [1, 2].map(|last| Address::from(core::net::Ipv4Addr::new(192, 0, 2, last)));
        let key = FlowKey::new(src, dst, 6, 3).with_ports(443, 0x1234).with_scope(Scope::new(9, 255));
        let bytes = [
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1][..],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 2],
            &[0xbb, 1, 0x34, 0x12, 6, 3, 9, 255],
        ]
        .concat();
        let mut writer = Writer::default();
        key.write(&mut writer);
        assert_eq!((writer.as_slice(), bytes.len()), (&bytes[..], FlowKey::BYTES));
        let mut reader = Reader::new(&bytes, 0);
        assert_eq!(FlowKey::read(&mut reader, "a key"), Ok(key));
        reader.end().unwrap();
        assert!(FlowKey::read(&mut Reader::new(&bytes[1..], 0), "a key").is_err());
    }

    #[test]
    fn a_table_of_flows_is_as_large_as_the_design_says() {
        let table = TopK::<FlowKey, Tally>::with_error(0.0005, 1024, 7).unwrap();
        assert_eq!((table.capacity(), table.key_id()), (8000, 7));
        assert_eq!(table.memory_bytes() - size_of_val(&table), 1000 * (64 + 8 * 72));
    }

    #[test]
    fn packets_and_bytes_keep_their_columns() {
        let (one, other) = (Tally::new(3, u64::MAX), Tally::new(5, 7));
        assert_eq!(one.saturating_add(other), Tally::new(8, u64::MAX));
        assert_eq!((one.least(other), one.most(other)), (Tally::new(3, 7), Tally::new(5, u64::MAX)));
        assert_eq!((Weight::magnitude(other), Weight::score(other)), (7, 1 + 5 * 128));
        assert_eq!([Metric::Packets, Metric::Bytes].map(|metric| metric.of(other)), [5, 7]);
    }
}
