//! `HyperLogLog` in the format of `DataSketches`: written as `HLL_8`, read in any variant.
//!
//! All images begin with 8 bytes of preamble: its length in 32-bit words, the version of the format, the family, the
//! logarithm of the number of registers, that of a table's entries, flags, the lowest rank (or the length of a list),
//! and the mode. The rest depends on the mode:
//!
//! - A small count has a list (LIST) or a hash table (SET) of *coupons*: 26 bits of place and 6 of rank each.
//! - Otherwise (HLL), there are 32 bytes for the estimators, then the registers: a byte each (`HLL_8`), 6 bits
//!   (`HLL_6`), or 4 bits above the lowest rank (`HLL_4`). With 4 bits, the value 15 means that the rank is in a table
//!   of coupons at the end.
//!
//! A sketch of keyed hashes has 12 more bytes: "weir" and the fingerprint of its key, little endian. `DataSketches`
//! ignores bytes after an image, and does not copy them.
//!
//! **What is lost**: ranks above the maximum that a 64-bit hash can have in this crate; that concerns at most one key
//! in 2^46. More than 2^18 registers are reduced to 2^18, as a union in `DataSketches` would do.
//!
//! **Source**: the documentation of the format and the C++ folder `hll` of `DataSketches`.

use alloc::vec::Vec;

use crate::{
    HyperLogLog,
    hash::WrongKey,
    hyperloglog::PRECISION_MAX,
    image::{ImageError, Reader},
    merge::PUBLIC,
};

/// The preamble's length in 32-bit words. It also distinguishes the modes.
const LIST: u8 = 2;
const SET: u8 = 3;
const HLL: u8 = 10;
const VERSION: u8 = 1;
const FAMILY: u8 = 7;
/// The numbers of registers, as powers of two.
const PRECISIONS: core::ops::RangeInclusive<u8> = 4..=21;
/// A rank is one more than the leading zeros of a 64-bit word, of which at most 62 are counted.
const RANK_MAX: u8 = 63;

mod flag {
    /// The flag of a sketch that has counted nothing.
    pub const EMPTY: u8 = 4;
    /// The flag of a table without free entries.
    pub const COMPACT: u8 = 8;
    /// The flag of an unknown order of arrival, with which readers estimate from the registers.
    pub const OUT_OF_ORDER: u8 = 16;
}

/// The two low bits of the mode. The next two have the format of registers.
mod mode {
    pub const LIST: u8 = 0;
    pub const SET: u8 = 1;
    pub const HLL: u8 = 2;
    pub const HLL_8: u8 = 2 << 2;
}

/// A mark before the fingerprint of a key.
const MARK: [u8; 4] = *b"weir";

/// A rank of 4 bits with this value is in the table that follows.
const EXCEPTION: u8 = 15;

/// The sketch as an `HLL_8` image: 40 bytes plus one per register, or 8 bytes if it is empty, plus 12 bytes for a key.
///
/// Readers estimate from the registers, with an error of 1.04 / sqrt(registers), as after a merge.
pub fn write(sketch: &HyperLogLog) -> Vec<u8> {
    let registers = sketch.registers();
    if registers.iter().any(|rank| *rank != 0) {
        return write_registers(sketch);
    }
    const LIST_LG: u8 = 3;
    let mut image = Vec::with_capacity(4 * usize::from(LIST) + MARK.len() + size_of::<u64>());
    image.extend([LIST, VERSION, FAMILY, sketch.precision() as u8, LIST_LG, flag::EMPTY | flag::COMPACT, 0]);
    image.push(mode::LIST | mode::HLL_8);
    mark(&mut image, sketch.key_id());
    image
}

/// The sketch as an `HLL_8` image that has all registers from byte 40 on, even if it has counted nothing. So programs
/// can merge such images without a library: each register of the union is the highest one.
pub fn write_registers(sketch: &HyperLogLog) -> Vec<u8> {
    let registers = sketch.registers();
    let histogram = sketch.histogram();
    let mut image = Vec::with_capacity(4 * usize::from(HLL) + registers.len() + MARK.len() + size_of::<u64>());
    // The sum of 2^-rank is split into two parts, which a double can represent without rounding.
    let sum = |ranks: core::ops::Range<usize>| {
        ranks.fold(0.0, |sum, rank| sum + histogram[rank] as f64 * libm::exp2(-(rank as f64)))
    };
    // Without the flag COMPACT: the bytes are the same, and DataSketches for Rust 0.3.0 reads no registers after it.
    let precision = sketch.precision() as u8;
    image.extend([HLL, VERSION, FAMILY, precision, 0, flag::OUT_OF_ORDER, 0, mode::HLL | mode::HLL_8]);
    image.extend(0f64.to_le_bytes()); // the estimate by order of arrival
    image.extend(sum(0..32).to_le_bytes());
    image.extend(sum(32..histogram.len()).to_le_bytes());
    image.extend((histogram[0] as u32).to_le_bytes());
    image.extend(0u32.to_le_bytes()); // exceptions
    image.extend(registers);
    mark(&mut image, sketch.key_id());
    image
}

/// Writes the fingerprint of the hashes' key.
fn mark(image: &mut Vec<u8>, key_id: u64) {
    if key_id != PUBLIC {
        image.extend(MARK);
        image.extend(key_id.to_le_bytes());
    }
}

/// Checks what [`mark`] wrote. An image without a mark has public hashes.
fn check_mark(reader: &mut Reader, key_id: u64) -> Result<(), ImageError> {
    let mut after = reader.clone();
    let is_marked = after.array("the mark").is_ok_and(|mark| mark == MARK);
    let marked = if is_marked { after.u64("the key's fingerprint")? } else { PUBLIC };
    WrongKey::check(key_id, marked).map_err(ImageError::Key)
}

/// Reads an image in any mode and format, whose hashes were made with the key of this fingerprint. That is [`PUBLIC`]
/// if `DataSketches` itself made the image.
///
/// This takes at most 256 KiB of memory for any input. Other bytes after the image are ignored, as in `DataSketches`.
///
/// # Errors
///
/// The bytes are not such an image, and the error has the position; or [`write()`] has marked the image with another
/// key, or with none.
pub fn read(image: &[u8], key_id: u64) -> Result<HyperLogLog, ImageError> {
    let mut reader = Reader::new(image, 0);
    let preamble = Preamble::read(&mut reader)?;
    // `DataSketches` has larger sketches. Their values go to fewer registers.
    let precision = u32::from(preamble.precision).min(PRECISION_MAX);
    let mut sketch = HyperLogLog::of_precision(precision, key_id);
    let mask = sketch.registers().len() - 1;
    let raise = |place: u32, rank: u8| sketch.raise(place as usize & mask, rank);
    match preamble.words {
        LIST if preamble.has(flag::EMPTY) => {}
        LIST => coupons(&mut reader, preamble.table(preamble.byte_6.into()), raise)?,
        SET => {
            let count = reader.u32("the number of coupons")?;
            coupons(&mut reader, preamble.table(count), raise)?;
        }
        _ => {
            reader.take("the data of the estimators", 24)?;
            reader.u32("the number of empty registers")?;
            let exceptions = reader.u32("the number of exceptions")?;
            match preamble.form {
                Form::Hll4 => nibbles(&mut reader, &preamble, exceptions, raise)?,
                Form::Hll6 => sextets(&mut reader, preamble.registers(), raise)?,
                Form::Hll8 => bytes(&mut reader, preamble.registers(), raise)?,
            }
        }
    }
    check_mark(&mut reader, key_id)?;
    Ok(sketch)
}

/// The data before the registers.
struct Preamble {
    words: u8,
    precision: u8,
    table_lg: u8,
    flags: u8,
    /// The length of a list, or the lowest rank.
    byte_6: u8,
    form: Form,
}

#[derive(Clone, Copy)]
enum Form {
    Hll4,
    Hll6,
    Hll8,
}

/// A table of coupons.
#[derive(Clone, Copy)]
struct Table {
    entries: u32,
    /// How many entries are used.
    taken: u32,
}

impl Preamble {
    fn read(reader: &mut Reader) -> Result<Self, ImageError> {
        let words = reader.u8("the preamble's length")?;
        let mode = match words {
            LIST => mode::LIST,
            SET => mode::SET,
            HLL => mode::HLL,
            _ => {
                let expected = "2 (a list), 3 (a table) or 10 (registers)";
                return Err(ImageError::Value { field: "the preamble's length", at: 0, found: words.into(), expected });
            }
        };
        reader.within("the format's version", VERSION..=VERSION, "1", Reader::u8)?;
        reader.within("the family", FAMILY..=FAMILY, "7 (HLL)", Reader::u8)?;
        let precision = reader.within("lg of the registers", PRECISIONS, "from 4 to 21", Reader::u8)?;
        let table_lg = reader.within("lg of the table", 0..=26, "at most 26", Reader::u8)?;
        let flags = reader.u8("the flags")?;
        let byte_6 = reader.u8("the least rank")?;
        let (at, found) = (reader.at(), reader.u8("the mode")?);
        let form = match (found & 3 == mode, found >> 2 & 3) {
            (true, 0) => Form::Hll4,
            (true, 1) => Form::Hll6,
            (true, 2) => Form::Hll8,
            _ => {
                let expected = "the mode that belongs to the preamble's length, and HLL_4, HLL_6 or HLL_8";
                return Err(ImageError::Value { field: "the mode", at, found: found.into(), expected });
            }
        };
        Ok(Self { words, precision, table_lg, flags, byte_6, form })
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    const fn registers(&self) -> u32 {
        1 << self.precision
    }

    const fn table(&self, taken: u32) -> Table {
        Table { entries: if self.has(flag::COMPACT) { taken } else { 1 << self.table_lg }, taken }
    }
}

// These functions read the content of each mode and format, rank by rank.

fn coupons(reader: &mut Reader, table: Table, mut raise: impl FnMut(u32, u8)) -> Result<(), ImageError> {
    const PLACE_BITS: u32 = 26;
    let at = reader.at();
    let mut taken = 0;
    let bytes = reader.take("the coupons", 4 * u64::from(table.entries))?;
    for (nth, bytes) in bytes.as_chunks::<4>().0.iter().enumerate() {
        let coupon = u32::from_le_bytes(*bytes);
        if coupon != 0 {
            let rank = checked((coupon >> PLACE_BITS) as u8, at + 4 * nth + 3)?;
            raise(coupon & ((1 << PLACE_BITS) - 1), rank);
            taken += 1;
        }
    }
    if taken != table.taken {
        let expected = "the number given before";
        return Err(ImageError::Value { field: "the number of coupons found", at, found: taken.into(), expected });
    }
    Ok(())
}

fn bytes(reader: &mut Reader, registers: u32, mut raise: impl FnMut(u32, u8)) -> Result<(), ImageError> {
    let at = reader.at();
    let ranks = reader.take("the registers", registers.into())?;
    for (register, rank) in (0..).zip(ranks).filter(|(_, rank)| **rank != 0) {
        raise(register, checked(*rank, at + register as usize)?);
    }
    Ok(())
}

fn sextets(reader: &mut Reader, registers: u32, mut raise: impl FnMut(u32, u8)) -> Result<(), ImageError> {
    // Four registers take three bytes, and there is always one more byte at the end.
    let packed = reader.take("the registers", u64::from(registers) / 4 * 3 + 1)?;
    for (four, bytes) in (0..registers).step_by(4).zip(packed.as_chunks::<3>().0) {
        let ranks = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        (0..4).for_each(|nth| raise(four + nth, (ranks >> (6 * nth) & 0x3f) as u8));
    }
    Ok(())
}

fn nibbles(
    reader: &mut Reader,
    preamble: &Preamble,
    exceptions: u32,
    mut raise: impl FnMut(u32, u8),
) -> Result<(), ImageError> {
    let at = reader.at();
    let packed = reader.take("the registers", u64::from(preamble.registers()) / 2)?;
    let nibble = |register: u32| packed[register as usize / 2] >> (register % 2 * 4) & 0xf;
    let mut found = 0;
    for register in 0..preamble.registers() {
        match nibble(register) {
            EXCEPTION => found += 1,
            above => match preamble.byte_6.saturating_add(above) {
                0 => {}
                rank => raise(register, checked(rank, at + register as usize / 2)?),
            },
        }
    }
    if found != exceptions {
        let expected = "the number given before";
        return Err(ImageError::Value { field: "the number of exceptions found", at, found: found.into(), expected });
    }
    if exceptions == 0 {
        return Ok(());
    }
    let (at, mask) = (reader.at(), preamble.registers() - 1);
    let mut stray = None;
    coupons(reader, preamble.table(exceptions), |place, rank| match nibble(place & mask) {
        EXCEPTION => raise(place & mask, rank),
        _ => stray = Some(place),
    })?;
    match stray {
        Some(place) => {
            let expected = "a register that is marked as one";
            Err(ImageError::Value { field: "the place of an exception", at, found: place.into(), expected })
        }
        None => Ok(()),
    }
}

fn checked(rank: u8, at: usize) -> Result<u8, ImageError> {
    if (1..=RANK_MAX).contains(&rank) {
        return Ok(rank);
    }
    Err(ImageError::Value { field: "a rank", at, found: rank.into(), expected: "from 1 to 63" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        datasketches::{PUBLIC, PublicHash, golden},
        image::damage,
    };
    use std::format;

    fn fed(precision: u32, hashes: impl Iterator<Item = PublicHash>) -> HyperLogLog {
        let mut sketch = HyperLogLog::with_precision(precision.min(PRECISION_MAX), PUBLIC).unwrap();
        let precision = sketch.precision();
        hashes.for_each(|hash| sketch.insert(hash.for_precision(precision)));
        sketch
    }

    #[test]
    fn images_of_every_mode_and_format_equal_our_counts() {
        for (precision, count, image) in
            golden::INTEGERS.iter().filter(|(_, count, _)| *count <= crate::test_size::of(u64::MAX, 50))
        {
            let ours = fed(*precision, (0..*count).map(PublicHash::of_integer));
            assert!(read(image, PUBLIC) == Ok(ours), "{count} integers in 2^{precision} registers");
        }
        let words = (0..1_000).map(|n| PublicHash::of_bytes(format!("host-{n}").as_bytes()));
        assert!(read(golden::WORDS, PUBLIC) == Ok(fed(8, words)));
        assert!(read(golden::UNION, PUBLIC) == Ok(fed(9, (0..3_000).map(PublicHash::of_integer))));
    }

    #[test]
    fn written_values_are_read_back() {
        for precision in [4, 10, crate::test_size::of(18, 11)] {
            for count in [0, 1, 60, crate::test_size::of(5_000, 200)] {
                let sketch = fed(precision, (0..count).map(PublicHash::of_integer));
                assert!(read(&write(&sketch), PUBLIC).as_ref() == Ok(&sketch));
            }
        }
        let mut extreme = HyperLogLog::with_precision(4, 7).unwrap();
        extreme.insert(0);
        assert!(read(&write(&extreme), 7) == Ok(extreme));
    }

    #[test]
    fn images_equal_those_of_the_official_package() {
        // A union has the flag for an unknown order of arrival, like all sketches that this crate writes. Only the flag
        // COMPACT differs.
        let mut theirs = golden::UNION.to_vec();
        theirs[5] &= !flag::COMPACT;
        assert_eq!(write(&fed(9, (0..3_000).map(PublicHash::of_integer))), theirs);
        let empty = write(&HyperLogLog::with_precision(12, PUBLIC).unwrap());
        let (.., theirs) = golden::INTEGERS[0];
        assert_eq!(empty, theirs);
    }

    #[test]
    fn registers_begin_at_the_same_byte_in_every_sketch() {
        for count in [0, 1, 300] {
            let sketch = fed(9, (0..count).map(PublicHash::of_integer));
            let image = write_registers(&sketch);
            assert_eq!(&image[40..], sketch.registers(), "{count}");
            assert_eq!(image[5] & flag::COMPACT, 0);
            assert!(read(&image, PUBLIC) == Ok(sketch));
        }
    }

    #[test]
    fn another_key_is_refused() {
        for count in [0, 3, 1_000] {
            let mut keyed = HyperLogLog::with_precision(10, 7).unwrap();
            (0..count).for_each(|item| keyed.insert(crate::hash::mix(item)));
            let marked = write(&keyed);
            assert_eq!(read(&marked, 7).as_ref(), Ok(&keyed));
            for key in [8, PUBLIC] {
                assert_eq!(read(&marked, key), Err(ImageError::Key(WrongKey::Other { key, sketch: 7 })));
            }
            // Other programs write it without a mark.
            let unmarked = &marked[..marked.len() - 12];
            assert_eq!(read(unmarked, 7), Err(ImageError::Key(WrongKey::Public)));
            assert!(read(unmarked, PUBLIC).is_ok_and(|public| public.registers() == keyed.registers()));
        }
    }

    #[test]
    fn damaged_images_do_no_harm() {
        let ours = write(&fed(6, (0..300).map(PublicHash::of_integer)));
        let all = golden::INTEGERS.iter().map(|(.., image)| *image).chain([golden::WORDS, golden::UNION, &ours]);
        for image in all.filter(|image| image.len() <= crate::test_size::of(usize::MAX, 500)) {
            let refused = damage::survived(image, |image| read(image, PUBLIC));
            // Bytes after the content are not read, so damage there goes unnoticed. In an updatable table these are at
            // most the unused exceptions.
            assert!(refused.len() * damage::STEP + 64 >= image.len(), "{} of {}", refused.len(), image.len());
        }
    }

    #[test]
    fn errors_say_what_and_where() {
        let image = write(&fed(6, (0..300).map(PublicHash::of_integer)));
        let with = |at: usize, byte| {
            let mut image = image.clone();
            image[at] = byte;
            format!("{}", read(&image, PUBLIC).unwrap_err())
        };
        assert_eq!(
            with(0, 4),
            "byte 0: the preamble's length is 4, but must be 2 (a list), 3 (a table) or 10 (registers)"
        );
        assert_eq!(with(2, 10), "byte 2: the family is 10, but must be 7 (HLL)");
        assert_eq!(with(3, 22), "byte 3: lg of the registers is 22, but must be from 4 to 21");
        assert_eq!(with(3, 21), "byte 40: 2097152 bytes of the registers expected, but only 64 are left");
        assert_eq!(with(45, 64), "byte 45: a rank is 64, but must be from 1 to 63");
        assert_eq!(
            with(7, 14),
            "byte 7: the mode is 14, but must be the mode that belongs to the preamble's length, and HLL_4, HLL_6 or HLL_8"
        );
    }
}
