//! What is wrong with an image.

use core::fmt;

/// Why bytes are not an image of a sketch: what was found, where, and what belongs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// It ends too early.
    Truncated {
        /// What was to be read.
        field: &'static str,
        /// Where, in bytes from the beginning.
        at: usize,
        /// How many bytes it takes.
        needed: u64,
        /// How many there are.
        available: usize,
    },
    /// A field has a value that it cannot have.
    Value {
        /// Which.
        field: &'static str,
        /// Where, in bytes from the beginning.
        at: usize,
        /// What it is.
        found: u64,
        /// What it may be.
        expected: &'static str,
    },
    /// The sketch would take more memory than the reader was allowed.
    TooLarge {
        /// What would have been allocated.
        field: &'static str,
        /// Where the image asks for it, in bytes from the beginning.
        at: usize,
        /// How many bytes it asks for.
        needed: u64,
        /// How many are left of those allowed.
        allowed: usize,
    },
    /// Some bit is not as it was written.
    Checksum {
        /// What the image says.
        stored: u32,
        /// What its bytes give.
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
            Self::Checksum { stored, computed } => {
                write!(f, "the checksum is {computed:08x}, but must be {stored:08x}: the image was damaged on its way")
            }
        }
    }
}

impl core::error::Error for ImageError {}
