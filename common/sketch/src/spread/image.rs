//! A spread sketch's image: its registers, and the tag and the key of the rarest pair of each line that is not empty.

use alloc::vec;

use super::{
    LINES_MAX, LINES_MIN, LINES_PER_KEY, Sample, Spread,
    line::Line,
    place::{Grid, RANK_BITS, REGISTERS, TAG_BITS},
};
use crate::{
    image::{Image, ImageError, Kind, Literal, PlainKey, Reader, Writer},
    ultraloglog::register,
};

impl<K: PlainKey> Image for Spread<K> {
    const KIND: Kind = Kind::Spread;

    fn write(&self, payload: &mut Writer) {
        let Self { lines, samples, lines_per_key, key_id: _ } = self;
        [*lines_per_key, lines.len(), K::BYTES].into_iter().for_each(|number| payload.varint(number as u64));
        payload.numbers(Literal::Byte, lines.iter().flat_map(|line| line.registers).map(u64::from));
        payload.numbers(Literal::Short, lines.iter().map(|line| line.tag.into()));
        for Sample { hash, key } in samples.iter().flatten() {
            payload.word(*hash);
            key.write(payload);
        }
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let at = payload.at();
        let found = payload.varint("the lines per key")?;
        let lines_per_key = LINES_PER_KEY.into_iter().find(|lines| *lines as u64 == found);
        let refused = ImageError::Value { field: "the lines per key", at, found, expected: "4, 8 or 16" };
        let lines_per_key = lines_per_key.ok_or(refused)?;
        let range = LINES_MIN as u64..=LINES_MAX as u64;
        let count = payload.within("the lines", range, "from 2^8 to 2^22", Reader::varint)? as usize;
        let length = K::BYTES as u64;
        payload.within("a key's bytes", length..=length, "the size of the requested keys", Reader::varint)?;
        payload.allow::<Line>("the lines", count)?;
        payload.allow::<Option<Sample<K>>>("the keys", count)?;
        let mut lines = vec![Line::EMPTY; count].into_boxed_slice();
        payload.numbers("a register", Literal::Byte, count * REGISTERS, |at, register| {
            lines[at / REGISTERS].registers[at % REGISTERS] = register as u8;
            if is_possible(register as u8) { Ok(()) } else { Err("one that hashes can lead to") }
        })?;
        payload.numbers("a tag", Literal::Short, count, |at, tag| {
            lines[at].tag = tag as u16;
            Ok(())
        })?;
        let mut samples = vec![None; count].into_boxed_slice();
        let grid = Grid { lines: count as u64, lines_per_key: lines_per_key as u64 };
        for (nth, (line, sample)) in (0..).zip(lines.iter().zip(&mut samples)) {
            let at = payload.at();
            let refused = |field, found, expected| Err(ImageError::Value { field, at, found, expected });
            // The rarest pair is the one with the highest rank.
            let highest = line.registers.iter().fold(0, |highest, register| highest.max(rank(*register)));
            if u32::from(line.tag) >> TAG_BITS != highest || (highest == 0 && line.tag != 0) {
                return refused("a line's tag", line.tag.into(), "one of its highest register's rank");
            }
            if line.tag != 0 {
                let hash = payload.u64("a key's hash")?;
                if !grid.has(hash, nth) {
                    return refused("a key's hash", hash, "one of a key that has this line");
                }
                *sample = Some(Sample { hash, key: K::read(payload, "a key")? });
            }
        }
        Ok(Self { lines, samples, lines_per_key, key_id })
    }
}

impl Grid {
    /// Returns true if a line belongs to a key.
    fn has(self, key_hash: u64, line: u64) -> bool {
        let which = line / (self.lines / self.lines_per_key);
        which < self.lines_per_key && self.line(key_hash, which) == line
    }
}

/// The rank of a register: position 2 is rank 1. It is 0 for an empty register.
const fn rank(register: u8) -> u32 {
    (register::highest(register) as u32).saturating_sub(1)
}

/// Returns true if pairs can lead to this register, which is not 0. Its two low bits are for the two positions before
/// the highest one.
fn is_possible(register: u8) -> bool {
    let before = [0, 0b00, 0b10].get(rank(register) as usize).copied().unwrap_or(0b11);
    (1..=RANK_BITS + 1).contains(&rank(register)) && register & 0b11 & !before == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Touch, oracle::hash};
    use std::{format, vec::Vec};

    fn fed<K: PlainKey>(items: u64, key: impl Fn(u64) -> K) -> Spread<K> {
        let mut spread = Spread::with_resolution(5_000, 50, 0.04, 7).unwrap();
        for item in 0..items {
            spread.insert(Touch { key: key(item % 9), key_hash: hash(1, item % 9), item_hash: hash(2, item) });
        }
        spread
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        let spread = fed(crate::test_size::of(3_000, 50), |key| [key as u8; 13]);
        let image = spread.to_image();
        assert_eq!(Spread::from_image(&image, 1 << 20).as_ref(), Ok(&spread));
        let error = Spread::<u64>::from_image(&image, 1 << 20).unwrap_err();
        assert_eq!(format!("{error}"), "byte 27: a key's bytes is 13, but must be the size of the requested keys");
    }

    #[test]
    fn lines_that_no_pairs_lead_to_are_refused() {
        let refused = |change: fn(&mut Spread<u32>, usize)| {
            let mut spread = fed(20, |key| key as u32);
            let taken = spread.lines.iter().position(|line| line.tag != 0).unwrap();
            change(&mut spread, taken);
            let error = Spread::<u32>::from_image(&spread.to_image(), 1 << 20).unwrap_err();
            let ImageError::Value { field, .. } = error else { panic!("{error}") };
            field
        };
        assert_eq!(refused(|spread, at| spread.lines[at].registers.fill(3)), "a register");
        assert_eq!(refused(|spread, at| spread.lines[at].registers.fill(0)), "a line's tag");
        assert_eq!(refused(|spread, at| spread.lines[at].registers[0] = 42 << 2), "a line's tag");
        assert_eq!(refused(|spread, at| spread.lines[at].registers[0] = 43 << 2), "a register");
        assert_eq!(refused(|spread, at| spread.lines[at].tag &= (1 << TAG_BITS) - 1), "a line's tag");
        assert_eq!(refused(|spread, at| spread.samples[at].as_mut().unwrap().hash ^= 1), "a key's hash");
        assert_eq!(refused(|spread, _| spread.lines_per_key = 5), "the lines per key");
    }

    #[test]
    fn every_rank_of_a_hash_is_possible() {
        let mut found = Vec::new();
        for zeros in 0..=RANK_BITS {
            let register = register::with(0, zeros + 2);
            assert!(is_possible(register) && rank(register) == zeros + 1, "{zeros}");
            found.push(register);
        }
        assert!((1..=u8::MAX).filter(|register| is_possible(*register)).count() > found.len());
    }
}
