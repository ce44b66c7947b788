//! A top-k table's image: the tags, the price and the light cells of each block, then its candidates.

use alloc::{boxed::Box, vec, vec::Vec};

use super::{Block, Candidate, ENTRIES_MAX, Light, Row, TopK, WAYS};
use crate::{
    Weight,
    image::{Image, ImageError, ImageKey, Kind, Literal, Reader, Writer},
};

impl<K: ImageKey + Eq + Default, W: Weight> Image for TopK<K, W> {
    const KIND: Kind = Kind::TopK;

    fn write(&self, payload: &mut Writer) {
        let Self { blocks, rows, random, seed, key_id: _ } = self;
        payload.varint(blocks.len() as u64);
        payload.varint(K::BYTES as u64);
        payload.word(*random);
        payload.word(*seed);
        payload.numbers(Literal::Word, blocks.iter().map(Block::tags));
        payload.numbers(Literal::Varint, blocks.iter().map(|block| block.price));
        let light: Vec<W> = self.light().collect();
        payload.weights(&light.into_iter());
        let taken: Vec<(&Row<K, W>, usize)> =
            blocks.iter().zip(rows).flat_map(|(block, row)| block.taken().map(move |way| (row, way))).collect();
        let candidates = taken.iter().map(|(row, way)| row.get(*way));
        payload.weights(&candidates.clone().map(|candidate| candidate.lower()));
        payload.weights(&candidates.clone().map(|candidate| candidate.missed()));
        payload.numbers(Literal::Varint, candidates.clone().map(|candidate| candidate.credit.into()));
        payload.numbers(Literal::Varint, candidates.clone().map(|candidate| candidate.likely.into()));
        for candidate in candidates {
            candidate.key.write(payload);
        }
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let most = (ENTRIES_MAX / WAYS) as u64;
        let count = payload.within("the blocks", 1..=most, "from 1 to 2^21", Reader::varint)? as usize;
        let length = K::BYTES as u64;
        payload.within("a key's bytes", length..=length, "the size of the requested keys", Reader::varint)?;
        let (random, seed) = (payload.u64("the state of the coins")?, payload.u64("the seed of the coins")?);
        payload.allow::<Row<K, W>>("the candidates", count)?;
        payload.allow::<Block<W>>("the blocks", count)?;
        let mut blocks: Box<[Block<W>]> = vec![Block::default(); count].into_boxed_slice();
        payload.numbers("tags", Literal::Word, count, |at, tags| {
            blocks[at].set_tags(tags);
            Ok(())
        })?;
        payload.numbers("a price", Literal::Varint, count, |at, price| {
            blocks[at].price = price;
            if price < 1 << 63 { Ok(()) } else { Err("below 2^63, as every score") }
        })?;
        payload.weights("a light cell", count * Light::<W>::CELLS, |at, weight| {
            blocks[at / Light::<W>::CELLS].light.add_to(at % Light::<W>::CELLS, weight);
        })?;
        let mut rows: Box<[Row<K, W>]> = (0..count).map(|_| Row::default()).collect();
        read_candidates(payload, &blocks, &mut rows)?;
        Ok(Self { blocks, rows, random, seed, key_id })
    }
}

/// Reads the candidates, column by column.
fn read_candidates<K: ImageKey + Eq + Default, W: Weight>(
    payload: &mut Reader,
    blocks: &[Block<W>],
    rows: &mut [Row<K, W>],
) -> Result<(), ImageError> {
    let places: Vec<(usize, usize)> =
        blocks.iter().enumerate().flat_map(|(at, block)| block.taken().map(move |way| (at, way))).collect();
    let count = places.len();
    let [mut counted, mut missed] = [(); 2].map(|()| vec![W::default(); count]);
    let [mut credits, mut likely] = [(); 2].map(|()| vec![0; count]);
    payload.weights("a candidate's weight", count, |at, more| counted[at] = counted[at].saturating_add(more))?;
    payload.weights("the weight that a candidate missed", count, |at, more| {
        missed[at] = missed[at].saturating_add(more);
    })?;
    for (field, column) in [("a candidate's credit", &mut credits), ("a candidate's likely weight", &mut likely)] {
        payload.numbers(field, Literal::Varint, count, |at, number| {
            column[at] = number;
            if number <= u32::MAX.into() { Ok(()) } else { Err("below 2^32") }
        })?;
    }
    for (nth, (at, way)) in places.into_iter().enumerate() {
        let key = K::read(payload, "a key")?;
        rows[at].set(way, Candidate::new(key, counted[nth], missed[nth], credits[nth], likely[nth]));
    }
    Ok(())
}
