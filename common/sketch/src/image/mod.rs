//! A format for sketches that leave the machine. It is versioned, has a checksum, and is safe to read from any source.
//!
//! ```text
//!  0  4  "weir"
//!  4  1  version of the format, 1
//!  5  1  kind of sketch
//!  6  2  0
//!  8  8  fingerprint of the hash key
//! 16  8  length of the payload
//! 24     payload: the geometry, then the state
//!     4  CRC-32 (IEEE) of everything before
//! ```
//!
//! Numbers are little endian. Single numbers in a payload are written in groups of seven bits. Sequences of numbers are
//! written so that zeros in a row cost nothing. The payload of each structure is described at its `impl Image`.
//!
//! A sketch that keeps keys ([`TopK`](super::TopK), [`CandidateBuckets`](super::CandidateBuckets),
//! [`Spread`](super::Spread), [`SampleAndHold`](super::SampleAndHold)) has an image if they are [`PlainKey`]s. For a
//! [`TopK`](super::TopK) they may also be texts.
//!
//! **What reading guarantees**: any bytes give a sketch or an [`ImageError`], and never a panic. Before anything is
//! allocated, lengths are checked against the number of bytes, and memory is checked against the caller's limit. The
//! second check is needed because a few bytes can describe a large empty sketch.
//!
//! **What it does not guarantee**: the checksum finds accidents, not forgeries. A sender can claim any content. Accept
//! images only from senders that you trust, over an authenticated channel.

use alloc::vec::Vec;

use super::Sketch;

mod error;
mod key;
mod literal;
mod reader;
mod writer;

#[cfg(test)]
pub(super) mod damage;
#[cfg(test)]
mod tests;

pub use error::ImageError;
pub use key::{ImageKey, PlainKey};
pub use literal::Literal;
pub use reader::Reader;
pub use writer::Writer;

/// The memory that a sketch may take if its reader sets no limit: 1 GiB.
pub const MEMORY_MAX: usize = 1 << 30;

const MAGIC: [u8; 4] = *b"weir";
const VERSION: u8 = 1;
const HEADER: usize = 24;

/// Every sketch that has an image: its number, its structure, and its name. A number is never used again for another
/// sketch.
macro_rules! kinds {
    ($($number:literal $kind:ident $name:literal)+) => {
        /// The sketches that have an image.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind {
            $(#[doc = $name] $kind = $number,)+
        }

        impl Kind {
            /// All kinds, by their numbers.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            const fn number_and_name(self) -> &'static str {
                match self {
                    $(Self::$kind => concat!($number, " (", $name, ")"),)+
                }
            }
        }
    };
}

/// Numbers of sketches of earlier versions, which had other places for keys or are gone. They must not be used again.
const OLDER: [u8; 4] = [7, 8, 11, 12];

kinds! {
    1 HyperLogLog "`HyperLogLog`"
    2 CountMin "count-min"
    3 BlockedBloom "blocked Bloom filter"
    4 CompactHyperLogLog "compact `HyperLogLog`"
    5 UltraLogLog "`UltraLogLog`"
    6 Cuckoo "cuckoo filter"
    9 CountingBloom "counting Bloom filter"
    10 ScalableBloom "scalable Bloom filter"
    13 Quotient "quotient filter"
    14 SharedBloom "shared Bloom filter"
    15 BlockedCountMin "blocked count-min"
    16 HeavyLight "heavy and light"
    17 Spread "spread"
    18 CandidateBuckets "candidate buckets"
    20 TopK "top-k"
    21 Seen "seen"
    22 SampleAndHold "sample and hold"
    23 Bloom "Bloom filter"
}

/// A sketch that can be written as an image and read again.
///
/// ```
/// use weir_sketch::{HyperLogLog, Image};
///
/// let mut sketch = HyperLogLog::with_error(0.01, 7).unwrap();
/// (0..500).for_each(|n| sketch.insert(weir_sketch::hash::mix(n)));
/// let image = sketch.to_image();
/// assert_eq!(HyperLogLog::from_image(&image, 1 << 20).unwrap(), sketch);
///
/// let error = HyperLogLog::from_image(&image[..20], 1 << 20).unwrap_err();
/// assert_eq!(error.to_string(), "byte 16: 8 bytes of the payload's length expected, but only 4 are left");
/// ```
pub trait Image: Sketch + Sized {
    /// The kind of sketch.
    const KIND: Kind;

    /// Writes geometry and state.
    fn write(&self, payload: &mut Writer);

    /// Reads what [`Image::write`] wrote. For any payload, it must return a sound sketch or an error.
    ///
    /// # Errors
    ///
    /// [`Image::write`] cannot have written this payload.
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError>;

    /// The sketch as bytes.
    fn to_image(&self) -> Vec<u8> {
        let mut image = Writer::default();
        image.0.extend(MAGIC);
        image.0.extend([VERSION, Self::KIND as u8, 0, 0]);
        image.word(self.key_id());
        image.word(0);
        self.write(&mut image);
        let Writer(mut image) = image;
        let length = (image.len() - HEADER) as u64;
        image[HEADER - size_of_val(&length)..HEADER].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32fast::hash(&image);
        image.extend(checksum.to_le_bytes());
        image
    }

    /// The sketch in these bytes, if it occupies at most `memory_max` bytes. This does not check the key of its hashes:
    /// the caller must compare [`Sketch::key_id`] with its own key. [`Keyed::from_image`](crate::Keyed::from_image)
    /// does that.
    ///
    /// # Errors
    ///
    /// The bytes are not exactly one image of this kind of sketch, or the sketch is too large. The error has the
    /// details and the position.
    fn from_image(image: &[u8], memory_max: usize) -> Result<Self, ImageError> {
        let mut header = Reader::new(image, memory_max);
        let magic = u32::from_le_bytes(MAGIC);
        header.within("the beginning", magic..=magic, "\"weir\"", Reader::u32)?;
        header.within("the format's version", VERSION..=VERSION, "1", Reader::u8)?;
        let kind = Self::KIND as u8;
        if let Some(older) = image.get(header.at()).filter(|kind| OLDER.contains(kind)) {
            return Err(ImageError::Older { at: header.at(), kind: *older });
        }
        header.within("the kind of sketch", kind..=kind, Self::KIND.number_and_name(), Reader::u8)?;
        header.within("the reserved number", 0..=0, "0", Reader::u16)?;
        let key_id = header.u64("the key's fingerprint")?;
        let length = header.u64("the payload's length")?;
        let mut payload = header.part("the payload", length)?;
        let computed = crc32fast::hash(&image[..header.at()]);
        let stored = header.u32("the checksum")?;
        if stored != computed {
            return Err(ImageError::Checksum { stored, computed });
        }
        header.end()?;
        let sketch = Self::read(&mut payload, key_id)?;
        payload.end()?;
        Ok(sketch)
    }
}
