//! A quotient filter's image: its fingerprints, in order.

use super::{
    LINES_MAX, Place, QUOTIENTS, Quotient, REMAINDER_BITS, SLOTS,
    line::{Line, sum},
};
use crate::image::{Image, ImageError, Kind, Reader, Writer};

/// The image has the fingerprints in ascending order, each as its difference from the one before. The reader puts each
/// into its place again, so the result is always a sound filter.
impl Image for Quotient {
    const KIND: Kind = Kind::Quotient;

    fn write(&self, payload: &mut Writer) {
        let Self { lines, fingerprint_bits, items, capacity, key_id: _ } = self;
        let numbers = [*capacity, (*fingerprint_bits).into(), lines.len() as u64, *items];
        numbers.into_iter().for_each(|number| payload.varint(number));
        self.fingerprints().fold(0, |before, fingerprint| {
            payload.varint((fingerprint - before) >> (u64::BITS - fingerprint_bits));
            fingerprint
        });
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        const BITS_MIN: u32 = QUOTIENTS.ilog2() + REMAINDER_BITS;
        const BITS_MAX: u32 = (LINES_MAX * QUOTIENTS).ilog2() + REMAINDER_BITS;
        let capacity = payload.within("the capacity", 1..=u64::MAX, "at least 1", Reader::varint)?;
        let bits = BITS_MIN.into()..=BITS_MAX.into();
        let bits = payload.within("the fingerprints' bits", bits, "from 20 to 46", Reader::varint)? as u32;
        let lines = (1 << (bits - BITS_MIN))..=LINES_MAX as u64;
        let lines = payload.within("the lines", lines, "enough for the bits, at most 2^26", Reader::varint)? as usize;
        let items = payload.varint("the number of fingerprints")?;
        payload.allow::<Line>("the lines", lines)?;
        let mut filter = Self::of_lines(lines, bits, capacity, key_id);
        // The fingerprints are counted first, so that each goes to its final place. (If they were inserted, a forger
        // could make each of them move through thousands of lines.)
        let at = payload.at();
        let mut counted = payload.clone();
        filter.read_places(&mut counted, items, |filter, place| filter.has_room(place).then(|| filter.count(place)))?;
        let too_far = "such that at most 65535 of them spill into one line";
        filter.spill().ok_or(ImageError::Value { field: "the fingerprints", at, found: items, expected: too_far })?;
        let mut next = 0;
        filter.read_places(payload, items, |filter, place| {
            next = filter.append(place, next);
            Some(())
        })?;
        Ok(filter)
    }
}

impl Quotient {
    /// Reads fingerprints from an image. `take` gets the place of each, and returns whether there is room.
    fn read_places(
        &mut self,
        payload: &mut Reader,
        items: u64,
        mut take: impl FnMut(&mut Self, Place) -> Option<()>,
    ) -> Result<(), ImageError> {
        let mut fingerprint = 0u64;
        for _ in 0..items {
            let at = payload.at();
            let difference = payload.varint("a fingerprint")?;
            let refused = |expected| ImageError::Value { field: "a fingerprint", at, found: difference, expected };
            fingerprint = difference
                .checked_mul(1 << (u64::BITS - self.fingerprint_bits))
                .and_then(|difference| fingerprint.checked_add(difference))
                .ok_or(refused("of no more bits than given before"))?;
            take(self, self.place(fingerprint)).ok_or(refused("one for which there is room"))?;
        }
        Ok(())
    }

    /// Writes into each line how many remainders spill into it once all are counted; `None` if a line cannot count that
    /// many.
    fn spill(&mut self) -> Option<()> {
        let (count, mut spilled) = (self.lines.len(), 0);
        // Go through the lines twice, because the last line spills into the first one.
        for line in (0..count).chain(0..count) {
            let line = &mut self.lines[line];
            line.spilled = u16::try_from(spilled).ok()?;
            spilled = (spilled + sum(line.counts)).saturating_sub(SLOTS);
        }
        Some(())
    }

    /// Puts a remainder into its final slot. Remainders arrive in ascending order, and the previous one is before slot
    /// `next` of all lines. Returns the slot after this one.
    fn append(&mut self, place: Place, next: usize) -> usize {
        let line = place.line();
        let at = next.max(line * SLOTS + usize::from(self.lines[line].spilled));
        self.lines[at / SLOTS % self.lines.len()].remainders[at % SLOTS] = place.remainder;
        at + 1
    }
}

#[cfg(test)]
mod tests {
    use super::{super::RUN_MAX, *};
    use core::ops::Range;
    use std::format;

    #[test]
    #[cfg_attr(miri, ignore = "150,000 fingerprints take too long")]
    fn images_are_read_however_far_remainders_spill() {
        // The quotients of some lines in a row are full, including the last lines, which spill into the first ones.
        const LINES: u64 = 1 << 13;
        const FULL: u64 = (QUOTIENTS * RUN_MAX) as u64;
        let image = |lines: Range<u64>| {
            let (mut payload, mut before) = (Writer::default(), 0);
            let numbers = [100_000, 33, LINES, FULL * (lines.end - lines.start)];
            numbers.into_iter().for_each(|number| payload.varint(number));
            for quotient in lines.start * QUOTIENTS as u64..lines.end * QUOTIENTS as u64 {
                for fingerprint in (0..RUN_MAX as u64).map(|nth| (quotient << REMAINDER_BITS) + nth / 2) {
                    payload.varint(fingerprint - before);
                    before = fingerprint;
                }
            }
            payload.0
        };
        let read = |image: &[u8]| Quotient::read(&mut Reader::new(image, 1 << 20), 7);
        for lines in [0..2, LINES - 20..LINES] {
            let filter = read(&image(lines)).unwrap();
            let mut fed = Quotient::of_lines(LINES as usize, 33, 100_000, 7);
            filter.fingerprints().for_each(|fingerprint| assert!(fed.insert(fingerprint).is_ok()));
            assert_eq!(format!("{filter:?}"), format!("{fed:?}"));
        }
        // A line stores 27 of its 240 remainders. So many spill that each insertion would move them through 2,400
        // lines.
        let far = image(100..407);
        let mut again = Writer::default();
        read(&far).unwrap().write(&mut again);
        assert!(again.0 == far);
        let error = read(&image(100..408)).unwrap_err();
        assert!(matches!(error, ImageError::Value { field: "the fingerprints", .. }), "{error}");
    }
}
