//! Keys that an image can contain. A [`PlainKey`] has a fixed size, so that a reader knows how many bytes follow; an
//! [`ImageKey`] may also be a text.

use alloc::string::String;

use super::{ImageError, Reader, Writer};

/// A key that can be written into an image. All keys of a type have the same number of bytes, and the bytes are the
/// same on every machine.
///
/// An image states the length of its keys, but not their type. The reader must know the type, just as it must know how
/// hashes were made.
pub trait PlainKey: Copy {
    /// The number of bytes of a key.
    const BYTES: usize;

    /// Writes the key in this number of bytes.
    fn write(&self, payload: &mut Writer);

    /// Reads a key that [`PlainKey::write`] wrote. It must refuse bytes that `write` never writes.
    ///
    /// # Errors
    ///
    /// The bytes end too early, or are not a key.
    fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError>;
}

/// A key that an image of a [`TopK`](crate::TopK) can contain: a [`PlainKey`], or a `String`.
pub trait ImageKey: Clone {
    /// The number of bytes of a key; 0 if each key has its own length.
    const BYTES: usize;

    /// Writes the key in the form that `read` expects.
    fn write(&self, payload: &mut Writer);

    /// Reads a key that [`ImageKey::write`] wrote.
    ///
    /// # Errors
    ///
    /// The bytes end too early, or are not a key.
    fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError>;
}

impl<K: PlainKey> ImageKey for K {
    const BYTES: usize = K::BYTES;

    fn write(&self, payload: &mut Writer) {
        PlainKey::write(self, payload);
    }
    fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError> {
        PlainKey::read(payload, field)
    }
}

/// A `String` is its length in bytes, followed by its UTF-8.
impl ImageKey for String {
    const BYTES: usize = 0;

    fn write(&self, payload: &mut Writer) {
        payload.varint(self.len() as u64);
        payload.bytes(self.as_bytes());
    }
    fn read(payload: &mut Reader, field: &'static str) -> Result<Self, ImageError> {
        let length = payload.varint(field)?;
        let at = payload.at();
        let bytes = payload.take(field, length)?;
        payload.allow::<u8>(field, bytes.len())?;
        let refused = ImageError::Value { field, at, found: length, expected: "the length of a text in UTF-8" };
        core::str::from_utf8(bytes).map(Self::from).map_err(|_| refused)
    }
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
            /// A number is little endian.
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
        ImageKey::write(&key, &mut writer);
        assert_eq!((writer.0.as_slice(), bytes.len()), (bytes, <K as PlainKey>::BYTES));
        let mut reader = Reader::new(bytes, 0);
        assert_eq!(<K as ImageKey>::read(&mut reader, "a key"), Ok(key));
        reader.end().unwrap();
        assert!(<K as PlainKey>::read(&mut Reader::new(&bytes[1..], 0), "a key").is_err());
    }

    #[test]
    fn keys_have_the_same_bytes_everywhere() {
        assert_is_read_as_written(0x0102u16, &[2, 1]);
        assert_is_read_as_written(1u128 << 120 | 7, &[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_is_read_as_written(*b"weir", b"weir");
    }

    #[test]
    fn a_text_has_its_length_before_it() {
        let mut writer = Writer::default();
        String::from("wéir").write(&mut writer);
        assert_eq!(writer.0, b"\x05w\xc3\xa9ir");
        let read = |bytes: &[u8], allowed| String::read(&mut Reader::new(bytes, allowed), "a key");
        assert_eq!(read(&writer.0, 5).as_deref(), Ok("wéir"));
        assert!(matches!(read(&writer.0, 4), Err(ImageError::TooLarge { needed: 5, .. })));
        assert!(matches!(read(&writer.0[..5], 5), Err(ImageError::Truncated { .. })));
        let error = read(b"\x02\xc3\xc3", 5).unwrap_err();
        assert_eq!(std::format!("{error}"), "byte 1: a key is 2, but must be the length of a text in UTF-8");
    }
}
