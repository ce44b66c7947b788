//! Reads one field after the other from bytes of unknown origin.
//!
//! Each field is checked against the bytes that are left. Memory is checked against the caller's limit before it is
//! allocated.

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
    /// Reads from the first byte on. The structures may allocate `allowed` bytes of memory.
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

    /// Reads one byte.
    ///
    /// # Errors
    ///
    /// For this and the methods below: the bytes end too early.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, ImageError> {
        self.array(field).map(|[byte]| byte)
    }

    /// Reads an integer of two bytes.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, ImageError> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// Reads an integer of four bytes.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, ImageError> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// Reads an integer of eight bytes.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, ImageError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Reads a number in as few groups of seven bits as needed, the lowest group first (LEB128).
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

    /// Reads the next `count` bytes.
    pub fn take(&mut self, field: &'static str, count: u64) -> Result<&'a [u8], ImageError> {
        let rest = &self.bytes[self.at..];
        let short = ImageError::Truncated { field, at: self.at, needed: count, available: rest.len() };
        let taken = usize::try_from(count).ok().and_then(|count| rest.get(..count)).ok_or(short)?;
        self.at += taken.len();
        Ok(taken)
    }

    /// Reads the next `N` bytes.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ImageError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(field, N as u64)?);
        Ok(array)
    }

    /// Splits off a reader of the next `count` bytes. It takes over the memory that is still allowed.
    pub fn part(&mut self, field: &'static str, count: u64) -> Result<Self, ImageError> {
        let at = self.at;
        self.take(field, count)?;
        Ok(Self { bytes: &self.bytes[..self.at], at, allowed: core::mem::take(&mut self.allowed) })
    }

    fn literal(&mut self, literal: Literal, field: &'static str) -> Result<u64, ImageError> {
        match literal {
            Literal::Byte => self.u8(field).map(u64::from),
            Literal::Short => self.u16(field).map(u64::from),
            Literal::Word => self.u64(field),
            Literal::Varint => self.varint(field),
        }
    }

    /// Reads `count` numbers that [`Writer::numbers`](super::Writer::numbers) wrote. Calls `put` with the index and the
    /// value of each number that is not 0. `put` may refuse a number with a description of what is expected.
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
                        let found = self.literal(literal, field)?;
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

    /// Reads `count` weights that [`Writer::weights`](super::Writer::weights) wrote. Calls `put` with the index and one
    /// number of a weight at a time, for each number that is not 0. The caller adds these weights up.
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

    /// Reads one weight.
    pub fn weight<W: Weight>(&mut self, field: &'static str) -> Result<W, ImageError> {
        let mut weight = W::default();
        self.weights(field, 1, |_, part| weight = weight.saturating_add(part))?;
        Ok(weight)
    }

    /// Reads a number with `read`. It must be within `range`.
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

    /// Allocates `count` default elements, if that much memory is allowed.
    pub fn allocate<T: Default>(&mut self, field: &'static str, count: usize) -> Result<Box<[T]>, ImageError> {
        self.allow::<T>(field, count)?;
        Ok((0..count).map(|_| T::default()).collect())
    }

    /// Subtracts the memory of `count` elements from the memory that is still allowed.
    pub fn allow<T>(&mut self, field: &'static str, count: usize) -> Result<(), ImageError> {
        let needed = (count as u64).saturating_mul(size_of::<T>() as u64);
        let too_large = ImageError::TooLarge { field, at: self.at, needed, allowed: self.allowed };
        let needed = usize::try_from(needed).map_err(|_| too_large)?;
        self.allowed = self.allowed.checked_sub(needed).ok_or(too_large)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{vec, vec::Vec};

    use super::*;
    use crate::weight::CountAndSum;

    fn value(at: usize, found: u64, expected: &'static str) -> ImageError {
        ImageError::Value { field: "x", at, found, expected }
    }

    #[test]
    fn fields_follow_each_other_and_are_little_endian() {
        let bytes: Vec<u8> = (1..=17).collect();
        let mut reader = Reader::new(&bytes, 0);
        assert_eq!(reader.u8("x"), Ok(1));
        assert_eq!((reader.at(), reader.u16("x")), (1, Ok(0x0302)));
        assert_eq!((reader.at(), reader.u32("x")), (3, Ok(0x0706_0504)));
        assert_eq!((reader.at(), reader.u64("x")), (7, Ok(0x0f0e_0d0c_0b0a_0908)));
        assert_eq!(
            reader.end(),
            Err(ImageError::Value { field: "the number of bytes left over", at: 15, found: 2, expected: "0" })
        );
        let short = ImageError::Truncated { field: "x", at: 15, needed: 4, available: 2 };
        assert_eq!((reader.u32("x"), reader.at()), (Err(short), 15));
        assert_eq!(reader.take("x", 2), Ok(&[16, 17][..]));
        assert_eq!((reader.at(), reader.end()), (17, Ok(())));
    }

    #[test]
    fn a_varint_has_at_most_64_bits() {
        let varint = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes, 0);
            reader.varint("x").map(|number| (number, reader.at()))
        };
        for (bytes, number) in [
            (vec![0], 0),
            (vec![0x7f], 127),
            (vec![0x80, 1], 128),
            (vec![0xac, 2], 300),
            (vec![0xff, 0xff, 3], 65_535),
            (vec![0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1], 1 << 63),
            ([vec![0xff; 9], vec![1]].concat(), u64::MAX),
        ] {
            assert_eq!(varint(&bytes), Ok((number, bytes.len())), "{bytes:02x?}");
        }
        for bytes in [[vec![0x80; 9], vec![2]].concat(), [vec![0xff; 10], vec![0]].concat()] {
            assert!(matches!(varint(&bytes), Err(ImageError::Value { at: 0, .. })), "{bytes:02x?}");
        }
        assert!(matches!(varint(&[0x80]), Err(ImageError::Truncated { at: 1, .. })));
    }

    #[test]
    fn a_part_has_its_length_and_takes_over_the_allowed_memory() {
        let mut reader = Reader::new(&[1, 2, 3, 4], 100);
        reader.u8("x").unwrap();
        let mut part = reader.part("x", 2).unwrap();
        assert_eq!((part.at(), part.u16("x"), part.end()), (1, Ok(0x0302), Ok(())));
        assert_eq!((part.allow::<u8>("x", 100), reader.allow::<u8>("x", 0)), (Ok(()), Ok(())));
        let none = ImageError::TooLarge { field: "x", at: 3, needed: 1, allowed: 0 };
        assert_eq!(reader.allow::<u8>("x", 1), Err(none), "the part took it over");
        assert_eq!((reader.u8("x"), reader.end()), (Ok(4), Ok(())));
        assert!(Reader::new(&[1], 0).part("x", 2).is_err());
    }

    #[test]
    fn numbers_come_in_runs_of_zeros_and_of_others() {
        let read = |bytes: &[u8], count| {
            let (mut reader, mut put) = (Reader::new(bytes, 0), Vec::new());
            let put_all = |at, number| {
                put.push((at, number));
                if number == 66 { Err("no 66") } else { Ok(()) }
            };
            reader.numbers("x", Literal::Byte, count, put_all)?;
            reader.end()?;
            Ok(put)
        };
        // This is two zeros, three others (one of which is 0, too), one zero, and no others.
        assert_eq!(read(&[2, 3, 9, 0, 7, 1, 0], 6), Ok(vec![(2, 9), (4, 7)]));
        assert_eq!(read(&[], 0), Ok(vec![]));
        let too_many = "at most as many numbers as are left";
        assert_eq!(read(&[7, 0], 6), Err(value(0, 7, too_many)));
        assert_eq!(read(&[2, 5, 1, 1, 1, 1, 1], 6), Err(value(1, 5, too_many)));
        assert_eq!(read(&[0, 2, 65, 66], 2), Err(value(3, 66, "no 66")));
    }

    #[test]
    fn weights_come_column_by_column() {
        // The image of two weights has first both counts, then both sums.
        let bytes = [0, 2, 1, 2, 0, 2, 30, 40];
        let mut weights = [CountAndSum::default(); 2];
        let mut reader = Reader::new(&bytes, 0);
        let put = |at: usize, part| weights[at] = weights[at].saturating_add(part);
        reader.weights::<CountAndSum>("x", 2, put).unwrap();
        reader.end().unwrap();
        assert_eq!(weights, [CountAndSum { count: 1, sum: 30 }, CountAndSum { count: 2, sum: 40 }]);
        assert_eq!(Reader::new(&[0, 1, 5, 0, 1, 6], 0).weight("x"), Ok(CountAndSum { count: 5, sum: 6 }));
        assert_eq!(Reader::new(&[0, 1, 7], 0).weight("x"), Ok(7u64));
    }

    #[test]
    fn a_number_lies_within_its_range() {
        let within = |byte: u8| Reader::new(&[byte], 0).within("x", 2..=4, "2 to 4", Reader::u8);
        assert_eq!([2, 3, 4].map(within), [Ok(2), Ok(3), Ok(4)]);
        assert_eq!([1, 5].map(within), [1, 5].map(|found| Err(value(0, found, "2 to 4"))));
    }

    #[test]
    fn allocations_reduce_the_allowed_memory() {
        let mut reader = Reader::new(&[], 100);
        assert_eq!(reader.allow::<u64>("x", 11), Ok(()));
        let too_large = |needed, allowed| ImageError::TooLarge { field: "x", at: 0, needed, allowed };
        assert_eq!(reader.allow::<u64>("x", 2), Err(too_large(16, 12)));
        assert_eq!(reader.allow::<u64>("x", usize::MAX), Err(too_large(u64::MAX, 12)));
        assert_eq!(reader.allocate::<u32>("x", 3).as_deref(), Ok(&[0; 3][..]));
        assert_eq!(reader.allocate::<u8>("x", 1), Err(too_large(1, 0)), "nothing is left");
    }
}
