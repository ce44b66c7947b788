//! The image of candidate buckets. Each field is written for all buckets before the next field. So zeros often follow
//! each other, and zeros in a row cost almost nothing.

use super::{
    BUCKETS_MAX, CandidateBuckets, WAYS,
    bucket::{self, Bucket, CELLS, HAS_LOST},
    candidate::Row,
    counters::Counters,
    rounded::Rounded,
};
use crate::{
    Weight,
    image::{Image, ImageError, Kind, Literal, PlainKey, Reader, Writer},
};

/// The image has the geometry and the coins, then the fields of the buckets, and at the end the keys of all candidates.
/// The width of weights is not written. A number that is too large for the reader's weights becomes their maximum.
///
/// With the state of the coins, a reader can continue where the writer stopped. The state also reveals later coins: see
/// [`CandidateBuckets::rekey`].
impl<K: PlainKey + Default, W: Weight> Image for CandidateBuckets<K, W> {
    const KIND: Kind = Kind::CandidateBuckets;

    fn write(&self, payload: &mut Writer) {
        let Self { counters, rows, scratch: _, random, seed, places, key_id } = self;
        let buckets = &counters.buckets;
        payload.varint(buckets.len() as u64);
        payload.varint(K::BYTES as u64);
        payload.varint(*places);
        // Both differences are 0, which takes one byte, if the seed is the default one and no coin was tossed.
        payload.varint(seed.wrapping_sub(*key_id));
        payload.varint(random.wrapping_sub(*seed));
        payload.numbers(Literal::Word, buckets.iter().flat_map(|bucket| bucket.hashes));
        payload.numbers(Literal::Byte, buckets.iter().map(|bucket| u64::from(bucket.has(HAS_LOST))));
        payload.numbers(Literal::Varint, buckets.iter().map(Bucket::price));
        let credits = buckets.iter().flat_map(|bucket| bucket.credits);
        payload.numbers(Literal::Short, credits.map(|Rounded(credit)| u64::from(credit)));
        let slots = |slots: core::ops::Range<usize>| {
            (0..buckets.len()).flat_map(move |at| slots.clone().map(move |slot| counters.get(at, slot)))
        };
        payload.weights(&slots(0..WAYS));
        payload.weights(&slots(bucket::cells()));
        let entries = rows.iter().flat_map(|Row(entries)| entries);
        payload.weights(&entries.clone().map(|entry| entry.missed));
        payload.numbers(Literal::Varint, entries.map(|entry| entry.likely));
        for (bucket, Row(entries)) in buckets.iter().zip(rows) {
            for way in bucket.taken() {
                entries[way].key.write(payload);
            }
        }
    }

    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let count = payload.within("the buckets", 1..=BUCKETS_MAX as u64, "from 1 to 2^24", Reader::varint)? as usize;
        let bytes = K::BYTES as u64;
        payload.within("the length of keys", bytes..=bytes, "the length of the reader's keys", Reader::varint)?;
        let at = payload.at();
        let places = payload.varint("the places")?;
        if places.is_multiple_of(2) {
            return Err(ImageError::Value { field: "the places", at, found: places, expected: "an odd number" });
        }
        let seed = key_id.wrapping_add(payload.varint("the coins' seed")?);
        let random = seed.wrapping_add(payload.varint("the coins' state")?);
        payload.allow::<u8>("the buckets", Self::bytes_of(count))?;
        let mut read = Self { random, seed, places, ..Self::of_buckets(count, key_id) };
        let Counters { buckets, .. } = &mut read.counters;
        payload.numbers("a hash", Literal::Word, count * WAYS, |at, hash| {
            buckets[at / WAYS].hashes[at % WAYS] = hash;
            Ok(())
        })?;
        // The closure is not called for zeros.
        payload.numbers("a mark", Literal::Byte, count, |at, mark| match mark {
            1 => {
                buckets[at].mark(HAS_LOST);
                Ok(())
            }
            _ => Err("0 or 1"),
        })?;
        payload.numbers("a price", Literal::Varint, count, |at, price| {
            buckets[at].set_price(price);
            Ok(())
        })?;
        payload.numbers("a credit", Literal::Short, count * WAYS, |at, credit| {
            buckets[at / WAYS].credits[at % WAYS] = Rounded(credit as u16);
            Ok(())
        })?;
        let counters = &mut read.counters;
        payload.weights("a count", count * WAYS, |at, part| counters.add(at / WAYS, at % WAYS, part))?;
        payload.weights("a light cell", count * CELLS, |at, part| counters.add(at / CELLS, WAYS + at % CELLS, part))?;
        let rows = &mut read.rows;
        payload.weights("a missed weight", count * WAYS, |at, part| {
            let missed = &mut rows[at / WAYS].0[at % WAYS].missed;
            *missed = missed.saturating_add(part);
        })?;
        payload.numbers("a likely score", Literal::Varint, count * WAYS, |at, likely| {
            rows[at / WAYS].0[at % WAYS].likely = likely;
            Ok(())
        })?;
        for (bucket, Row(entries)) in read.counters.buckets.iter().zip(rows) {
            for way in bucket.taken() {
                entries[way].key = K::read(payload, "a key")?;
            }
        }
        Ok(read)
    }
}
