//! An image of heavy and light counters.

use alloc::boxed::Box;

use super::{
    BLOCKS_MAX, HeavyLight,
    block::{Block, CELLS, WAYS},
};
use crate::{
    Weight,
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
};

/// The image has one field after the other, each for all blocks. The width of weights is not written. A number that is
/// too large for the reader's weights becomes their maximum.
impl<W: Weight> Image for HeavyLight<W> {
    const KIND: Kind = Kind::HeavyLight;

    fn write(&self, payload: &mut Writer) {
        let Self { blocks, total, key_id: _ } = self;
        payload.varint(blocks.len() as u64);
        payload.weight(*total);
        let fingerprints = blocks.iter().flat_map(|block| &block.fingerprints);
        payload.numbers(Literal::Varint, fingerprints.map(|fingerprint| u64::from(*fingerprint)));
        payload.weights(&blocks.iter().flat_map(|block| block.counts));
        payload.weights(&blocks.iter().map(|block| block.ceiling));
        let cells = blocks.iter().flat_map(|block| &block.light);
        payload.weights(&cells.map(|cell| W::from_narrow(*cell)));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let count = payload.within("the blocks", 1..=BLOCKS_MAX as u64, "from 1 to 2^25", Reader::varint)? as usize;
        let total = payload.weight("the total")?;
        let mut blocks: Box<[Block<W>]> = payload.allocate("the blocks", count)?;
        payload.numbers("a fingerprint", Literal::Varint, count * WAYS, |at, fingerprint| {
            blocks[at / WAYS].fingerprints[at % WAYS] = u32::try_from(fingerprint).map_err(|_| "below 2^32")?;
            Ok(())
        })?;
        payload.weights("a count", count * WAYS, |at, part| {
            let count = &mut blocks[at / WAYS].counts[at % WAYS];
            *count = count.saturating_add(part);
        })?;
        payload.weights("a ceiling", count, |at, part| {
            blocks[at].ceiling = blocks[at].ceiling.saturating_add(part);
        })?;
        payload.weights("a light cell", count * CELLS, |at, part| {
            let cell = &mut blocks[at / CELLS].light[at % CELLS];
            *cell = W::from_narrow(*cell).saturating_add(part).narrow();
        })?;
        Ok(Self { blocks, total, key_id })
    }
}
