//! The lengths of numbers in an image.

/// How numbers that are not 0 are written.
#[derive(Clone, Copy, Debug)]
pub enum Literal {
    /// In one byte, for registers and fingerprints.
    Byte,
    /// In two bytes, little endian.
    Short,
    /// In eight bytes, little endian, for bits.
    Word,
    /// In as many bytes as needed, with seven bits each, for counters.
    Varint,
}
