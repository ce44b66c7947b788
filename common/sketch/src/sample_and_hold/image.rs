//! The image of a sample-and-hold structure: the price for which keys wait, and each held key with its counter and its
//! memory.

use super::{Counter, Held, KEYS_MAX, Missed, PLACES, SampleAndHold};
use crate::{
    image::{Image, ImageError, Kind, Literal, PlainKey, Reader, Writer},
    ultraloglog::{PRECISION_MAX, PRECISION_MIN},
};

impl<K: PlainKey> Image for SampleAndHold<K> {
    const KIND: Kind = Kind::SampleAndHold;

    fn write(&self, payload: &mut Writer) {
        let Self {
            held,
            counters,
            room,
            memory,
            spare: _,
            precision,
            index: _,
            price,
            limit: _,
            admitted,
            tables,
            left,
            key_id: _,
        } = self;
        let numbers = [*room as u64, (*precision).into(), K::BYTES as u64, *price, *admitted, (*tables).into()];
        numbers.into_iter().for_each(|number| payload.varint(number));
        payload.numbers(Literal::Byte, left.iter().map(|times| u64::from(*times)));
        payload.varint(held.len() as u64);
        for (place, (Held { key, hash, missed }, counter)) in held.iter().zip(counters).enumerate() {
            payload.word(*hash);
            key.write(payload);
            missed.numbers().into_iter().chain(counter.numbers()).for_each(|number| payload.varint(number));
            let memory = &memory[place << precision..][..1 << precision];
            payload.numbers(Literal::Byte, memory.iter().map(|byte| u64::from(*byte)));
        }
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let room = payload.within("the room", 1..=KEYS_MAX as u64, "from 1 to 2^14", Reader::varint)? as usize;
        let range = u64::from(PRECISION_MIN)..=u64::from(PRECISION_MAX);
        let precision = payload.within("the precision", range, "from 4 to 18", Reader::varint)? as u32;
        let length = K::BYTES as u64;
        payload.within("a key's bytes", length..=length, "the size of the requested keys", Reader::varint)?;
        let price = payload.varint("the price")?;
        let admitted = payload.varint("the number of keys ever held")?;
        let tables = payload.within("the tables", 1..=u32::MAX.into(), "from 1 to 2^32 - 1", Reader::varint)? as u32;
        payload.allow::<u8>("the memory of counters", (room + 1).saturating_mul(1 << precision))?;
        payload.allow::<(Held<K>, Counter)>("the held keys", room)?;
        payload.allow::<u16>("the places of keys", 16 * room)?;
        payload.allow::<u8>("the counts of keys that left", PLACES)?;
        let mut hold = Self::of_precision(room, precision, key_id);
        payload.numbers("how often keys left", Literal::Byte, PLACES, |at, times| {
            hold.left[at] = times as u8;
            Ok(())
        })?;
        let range = 0..=room as u64;
        let count = payload.within("the number of held keys", range, "at most the room", Reader::varint)? as usize;
        for place in 0..count {
            hold.read_held(place, payload)?;
        }
        (hold.admitted, hold.tables) = (admitted, tables);
        hold.set_price(price);
        Ok(hold)
    }
}

impl<K: PlainKey> SampleAndHold<K> {
    fn read_held(&mut self, place: usize, payload: &mut Reader) -> Result<(), ImageError> {
        let (at, hash) = (payload.at(), payload.u64("a key's hash")?);
        if self.place_of(hash).is_some() {
            return Err(ImageError::Value {
                field: "a key's hash",
                at,
                found: hash,
                expected: "different from those of other keys",
            });
        }
        let key = K::read(payload, "a key")?;
        let missed = Missed::read(payload)?;
        let (at, score, set) = (payload.at(), payload.varint("a score")?, payload.varint("the size of a set")?);
        let precision = self.precision;
        let memory = &mut self.memory[place << precision..][..1 << precision];
        payload.numbers("a counter's memory", Literal::Byte, 1 << precision, |at, byte| {
            memory[at] = byte as u8;
            Ok(())
        })?;
        let expected = "the number of a set in order, or 0 with registers that hashes can lead to";
        let refused = ImageError::Value { field: "the size of a set", at, found: set, expected };
        let counter = Counter::restored(score, set, memory, precision).ok_or(refused)?;
        self.place(place, Held { key, hash, missed }, counter);
        Ok(())
    }
}

impl Missed {
    fn read(payload: &mut Reader) -> Result<Self, ImageError> {
        let [before, waited] = [payload.varint("the missed weight")?, payload.varint("the awaited weight")?];
        let times = payload.within("how often it left", 0..=u32::MAX.into(), "below 2^32", Reader::varint)? as u32;
        Ok(Self::of_numbers(before, waited, times))
    }
}
