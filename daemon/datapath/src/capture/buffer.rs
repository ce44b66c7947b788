//! A read buffer: a window that moves over a file's decompressed content. It grows only when there is input to fill it.

use std::io::{ErrorKind, Read, Result};

use super::{BLOCK_BYTES_MAX, packed::Unpacked};

pub(super) struct Buffer<R> {
    reader: Unpacked<R>,
    bytes: Vec<u8>,
    /// `bytes[start..end]` has been read but not consumed.
    start: usize,
    end: usize,
    /// The number of bytes consumed so far.
    offset: u64,
}

impl<R: Read> Buffer<R> {
    /// Creates a buffer of this many bytes. It grows if a record needs more.
    ///
    /// # Errors
    ///
    /// The first bytes cannot be read.
    pub(super) fn new(reader: R, bytes: usize) -> Result<Self> {
        Ok(Self { reader: Unpacked::new(reader)?, bytes: vec![0; bytes], start: 0, end: 0, offset: 0 })
    }

    /// The compression of the input, if any.
    pub(super) const fn packing(&self) -> Option<&'static str> {
        self.reader.packing()
    }

    /// The next `bytes` of the input, or as many as are left. `bytes` is at most [`BLOCK_BYTES_MAX`].
    #[inline]
    pub(super) fn peek(&mut self, bytes: usize) -> Result<&[u8]> {
        if self.end - self.start < bytes {
            self.fill(bytes)?;
        }
        Ok(&self.bytes[self.start..self.end.min(self.start + bytes)])
    }

    /// Consumes `bytes` bytes that were peeked at. They stay in place until the next peek.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> &[u8] {
        let taken = self.start..self.start + bytes;
        self.start += bytes;
        self.offset += bytes as u64;
        &self.bytes[taken]
    }

    /// The number of bytes consumed so far.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The memory of the window, in bytes.
    #[cfg(test)]
    pub(super) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    #[cold]
    fn fill(&mut self, bytes: usize) -> Result<()> {
        debug_assert!(bytes <= BLOCK_BYTES_MAX as usize);
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < bytes {
            if self.end == self.bytes.len() {
                // The input may claim any length. So the window doubles when it is full, and never grows to a claimed
                // length.
                self.bytes.resize((self.end * 2).min(BLOCK_BYTES_MAX as usize), 0);
            }
            match self.reader.read(&mut self.bytes[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
