//! The errors of reading an image.

use core::fmt;

use crate::hash::WrongKey;

/// Why bytes are not an image of a sketch: the value that was found, its position, and what is expected there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The bytes end too early.
    Truncated {
        /// The field that ends too early.
        field: &'static str,
        /// The position, in bytes from the beginning.
        at: usize,
        /// How many bytes are needed.
        needed: u64,
        /// How many bytes are left.
        available: usize,
    },
    /// A field has a value that it cannot have.
    Value {
        /// The field that has this value.
        field: &'static str,
        /// The position, in bytes from the beginning.
        at: usize,
        /// The value that was found.
        found: u64,
        /// The values that it may have.
        expected: &'static str,
    },
    /// The sketch would take more memory than the caller allows.
    TooLarge {
        /// The field that asks for the memory.
        field: &'static str,
        /// The position of the request in the image, in bytes from the beginning.
        at: usize,
        /// How many bytes the image needs.
        needed: u64,
        /// How many bytes the caller still allows.
        allowed: usize,
    },
    /// An older version of this crate wrote the image. Its sketch had other places for keys, so it would not find them.
    Older {
        /// The position of the kind, in bytes from the beginning.
        at: usize,
        /// The number of the kind of sketch.
        kind: u8,
    },
    /// The sketch has another key than the one with which it is read.
    Key(WrongKey),
    /// Some bits have changed since the image was written.
    Checksum {
        /// The checksum in the image.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { field, at, needed, available } => {
                write!(f, "byte {at}: {needed} bytes of {field} expected, but only {available} are left")
            }
            Self::Value { field, at, found, expected } => {
                write!(f, "byte {at}: {field} is {found}, but must be {expected}")
            }
            Self::TooLarge { field, at, needed, allowed } => write!(
                f,
                "byte {at}: {field} would take {needed} bytes of memory, but only {allowed} are allowed: raise the limit \
                 if you trust the sender"
            ),
            Self::Older { at, kind } => write!(
                f,
                "byte {at}: the kind of sketch is {kind}, which only older versions of this crate wrote: fill a new sketch"
            ),
            Self::Key(wrong) => wrong.fmt(f),
            Self::Checksum { stored, computed } => {
                write!(f, "the checksum is {computed:08x}, but must be {stored:08x}: the image was damaged in transit")
            }
        }
    }
}

impl core::error::Error for ImageError {}
