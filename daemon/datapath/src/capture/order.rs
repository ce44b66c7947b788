//! The byte order of a capture. Each capture, and each section of a pcapng capture, has the byte order of the machine
//! that wrote it.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    #[inline]
    pub(super) const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(super) const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(super) const fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        }
    }

    /// Consecutive 32-bit words; missing bytes count as 0.
    #[inline]
    pub(super) fn words<const N: usize>(self, bytes: &[u8]) -> [u32; N] {
        let mut words = [0; N];
        let (chunks, _) = bytes.as_chunks();
        for (word, chunk) in words.iter_mut().zip(chunks) {
            *word = self.u32(*chunk);
        }
        words
    }
}
