//! Reads one field after the other from bytes of unknown origin.
//!
//! Each field is checked against the bytes that are really there. Memory is checked against what the caller allows,
//! before it is allocated.

use alloc::boxed::Box;

use super::{ImageError, Literal};
use crate::weight::Weight;

/// Reads bytes in order. Numbers are little endian.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many bytes of memory may still be allocated.
    allowed: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the first byte on. Structures that are built may take `allowed` bytes of memory.
    pub const fn new(bytes: &'a [u8], allowed: usize) -> Self {
        Self { bytes, at: 0, allowed }
    }

    /// The position of the next byte, from the beginning of the image.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Checks that no bytes are left.
    pub fn end(&self) -> Result<(), ImageError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            rest => {
                let field = "the number of bytes left over";
                Err(ImageError::Value { field, at: self.at, found: rest as u64, expected: "0" })
            }
        }
    }

    /// One byte.
    ///
    /// # Errors
    ///
    /// For this and the methods below: the bytes end too early.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, ImageError> {
        self.array(field).map(|[byte]| byte)
    }

    /// Two bytes.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, ImageError> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, ImageError> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, ImageError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A number in as few groups of seven bits as it needs, the lowest first (LEB128).
    pub fn varint(&mut self, field: &'static str) -> Result<u64, ImageError> {
        let at = self.at;
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8(field)?;
            let group = u64::from(byte & 0x7f);
            number |= group << shift;
            if group << shift >> shift != group {
                break;
            }
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ImageError::Value { field, at, found: number, expected: "a number below 2^64" })
    }

    /// The next `count` bytes.
    pub fn take(&mut self, field: &'static str, count: u64) -> Result<&'a [u8], ImageError> {
        let rest = &self.bytes[self.at..];
        let short = ImageError::Truncated { field, at: self.at, needed: count, available: rest.len() };
        let taken = usize::try_from(count).ok().and_then(|count| rest.get(..count)).ok_or(short)?;
        self.at += taken.len();
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ImageError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(field, N as u64)?);
        Ok(array)
    }

    /// A reader of the next `count` bytes. The memory that is still allowed goes with it.
    pub fn part(&mut self, field: &'static str, count: u64) -> Result<Self, ImageError> {
        let at = self.at;
        self.take(field, count)?;
        Ok(Self { bytes: &self.bytes[..self.at], at, allowed: core::mem::take(&mut self.allowed) })
    }

    /// Reads `count` numbers that [`Writer::numbers`](super::Writer::numbers) wrote. It calls `put` with the index and
    /// the value of each number that is not 0. `put` may refuse one, with a text that says what is expected.
    pub fn numbers(
        &mut self,
        field: &'static str,
        literal: Literal,
        count: usize,
        mut put: impl FnMut(usize, u64) -> Result<(), &'static str>,
    ) -> Result<(), ImageError> {
        let mut done = 0;
        while done < count {
            for is_literal in [false, true] {
                let left = (count - done) as u64;
                let run = self.within(field, 0..=left, "at most as many numbers as are left", Self::varint)? as usize;
                if is_literal {
                    for number in done..done + run {
                        let at = self.at;
                        let found = literal.read(self, field)?;
                        if found != 0 {
                            put(number, found).map_err(|expected| ImageError::Value { field, at, found, expected })?;
                        }
                    }
                }
                done += run;
            }
        }
        Ok(())
    }

    /// Reads `count` weights that [`Writer::weights`](super::Writer::weights) wrote. It calls `put` with the index and
    /// one number of a weight at a time, for each number that is not 0. The caller adds them up.
    pub fn weights<W: Weight>(
        &mut self,
        field: &'static str,
        count: usize,
        mut put: impl FnMut(usize, W),
    ) -> Result<(), ImageError> {
        let mut numbers = 0;
        W::by_number(|_| {
            numbers += 1;
            0
        });
        for nth in 0..numbers {
            self.numbers(field, Literal::Varint, count, |at, number| {
                let mut seen = 0..;
                put(at, W::by_number(|_| if seen.next() == Some(nth) { number } else { 0 }));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// One weight.
    pub fn weight<W: Weight>(&mut self, field: &'static str) -> Result<W, ImageError> {
        let mut weight = W::default();
        self.weights(field, 1, |_, part| weight = weight.saturating_add(part))?;
        Ok(weight)
    }

    /// A number, read by `read`, which must lie within `range`.
    pub fn within<N: Copy + PartialOrd + Into<u64>>(
        &mut self,
        field: &'static str,
        range: core::ops::RangeInclusive<N>,
        expected: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Result<N, ImageError>,
    ) -> Result<N, ImageError> {
        let at = self.at;
        let found = read(self, field)?;
        if range.contains(&found) {
            return Ok(found);
        }
        Err(ImageError::Value { field, at, found: found.into(), expected })
    }

    /// `count` default elements, if their memory is allowed.
    pub fn allocate<T: Default>(&mut self, field: &'static str, count: usize) -> Result<Box<[T]>, ImageError> {
        self.allow::<T>(field, count)?;
        Ok((0..count).map(|_| T::default()).collect())
    }

    /// Subtracts the memory of `count` elements from what is still allowed.
    pub fn allow<T>(&mut self, field: &'static str, count: usize) -> Result<(), ImageError> {
        let needed = (count as u64).saturating_mul(size_of::<T>() as u64);
        let too_large = ImageError::TooLarge { field, at: self.at, needed, allowed: self.allowed };
        let needed = usize::try_from(needed).map_err(|_| too_large)?;
        self.allowed = self.allowed.checked_sub(needed).ok_or(too_large)?;
        Ok(())
    }
}
