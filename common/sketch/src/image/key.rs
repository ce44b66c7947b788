//! Keys that an image can hold.

use super::{ImageError, Reader, Writer};

/// A key that can be written into an image. All keys of a type have the same number of bytes, and these are the same on
/// every machine.
///
/// An image says how long its keys are, not of which type. The reader must know the type, just as it must know how
/// hashes were made.
pub trait PlainKey: Copy {
    /// How many bytes.
    const BYTES: usize;

    /// Writes the key in that many bytes.
    fn write(&self, payload: &mut Writer);

    /// Reads a key that [`PlainKey::write`] wrote. It must refuse bytes that `write` never writes.
    ///
    /// # Errors
    ///
    /// The bytes end too early, or are no key.
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
    }
}
