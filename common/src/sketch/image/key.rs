//! Keys that an image can hold.

use super::{ImageError, Reader, Writer};
use crate::flow::{Address, FlowKey, Scope};

/// A key that can be written: always the same number of bytes, which are the same on every machine.
///
/// An image says how long its keys are, not what they are: whoever reads it must know, as with hashes.
pub trait PlainKey: Copy {
    /// How many bytes.
    const BYTES: usize;

    /// Writes so many bytes.
    fn write(&self, payload: &mut Writer);

    /// Reads what [`PlainKey::write`] wrote. Bytes that it never writes must give an error.
    ///
    /// # Errors
    ///
    /// The bytes end before, or are no key.
    fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError>;
}

impl<const N: usize> PlainKey for [u8; N] {
    const BYTES: usize = N;

    fn write(&self, payload: &mut Writer) {
        payload.bytes(self);
    }
    fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError> {
        payload.array(field)
    }
}

macro_rules! numbers {
    ($($number:ty)+) => {
        $(
            /// Little endian.
            impl PlainKey for $number {
                const BYTES: usize = size_of::<Self>();

                fn write(&self, payload: &mut Writer) {
                    payload.bytes(&self.to_le_bytes());
                }
                fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError> {
                    payload.array(field).map(Self::from_le_bytes)
                }
            }
        )+
    };
}

numbers! { u8 u16 u32 u64 u128 }

/// Its octets.
impl PlainKey for Address {
    const BYTES: usize = 16;

    fn write(&self, payload: &mut Writer) {
        payload.bytes(&self.octets());
    }
    fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError> {
        payload.array::<16>(field).map(|octets| core::net::Ipv6Addr::from(octets).into())
    }
}

/// Source, destination, both ports, protocol, class, interface and epoch.
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
    use core::fmt::Debug;

    fn assert_is_read_as_written<K: PlainKey + Debug + PartialEq>(key: K, bytes: &[u8]) {
        let mut writer = Writer::default();
        key.write(&mut writer);
        assert_eq!((writer.0.as_slice(), bytes.len()), (bytes, K::BYTES));
        let mut reader = Reader::new(bytes, 0);
        assert_eq!(K::read(&mut reader, "a key"), Ok(key));
        reader.end().unwrap();
        assert!(K::read(&mut Reader::new(&bytes[1..], 0), "a key").is_err());
    }

    #[test]
    fn keys_have_the_same_bytes_everywhere() {
        assert_is_read_as_written(0x0102u16, &[2, 1]);
        assert_is_read_as_written(1u128 << 120 | 7, &[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_is_read_as_written(*b"weir", b"weir");
        let [src, dst] = [1, 2].map(|last| Address::from(core::net::Ipv4Addr::new(192, 0, 2, last)));
        let key = FlowKey::new(src, dst, 6, 3).with_ports(443, 0x1234).with_scope(Scope::new(9, 255));
        let bytes = [
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 2],
        ];
        assert_is_read_as_written(key, &[&bytes.concat()[..], &[0xbb, 1, 0x34, 0x12, 6, 3, 9, 255]].concat());
    }
}
