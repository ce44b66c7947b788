//! How long numbers are in an image.

/// How numbers that are not 0 are written.
#[derive(Clone, Copy, Debug)]
pub enum Literal {
    /// In one byte: registers, fingerprints.
    Byte,
    /// In two bytes, little endian.
    Short,
    /// In eight bytes, little endian: bits.
    Word,
    /// In as many bytes as they need, seven bits each: counters.
    Varint,
}
