//! The image of a count-min sketch: the kind of its updates, its geometry, its total and its cells, row after row.

use alloc::boxed::Box;
use core::marker::PhantomData;

use super::{CountMin, DEPTH_MAX, Update, WIDTH_MAX, WIDTH_MIN};
use crate::{
    Weight,
    image::{Image, ImageError, Kind, Reader, Writer},
};

/// The width of weights is not written. A number that is too large for the reader's weights becomes their maximum.
impl<W: Weight, U: Update> Image for CountMin<W, U> {
    const KIND: Kind = Kind::CountMin;

    fn write(&self, payload: &mut Writer) {
        let Self { cells, width, depth, total, key_id: _, update: PhantomData } = self;
        [U::NUMBER.into(), *depth as u64, *width as u64].into_iter().for_each(|number| payload.varint(number));
        payload.weight(*total);
        payload.weights(&cells.iter().copied());
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let update = U::NUMBER.into();
        payload.within("the update", update..=update, "0 if plain, 1 if conservative", Reader::varint)?;
        let depth = payload.within("the depth", 1..=DEPTH_MAX as u64, "from 1 to 8", Reader::varint)? as usize;
        let widths = WIDTH_MIN as u64..=WIDTH_MAX as u64;
        let width = payload.within("the width", widths, "from 4 to 2^26", Reader::varint)? as usize;
        let total = payload.weight("the total")?;
        let mut cells: Box<[W]> = payload.allocate("the cells", depth * width)?;
        // `part` has one number of the weight at a time.
        payload.weights("a cell", cells.len(), |at, part| cells[at] = cells[at].saturating_add(part))?;
        Ok(Self { cells, width, depth, total, key_id, update: PhantomData })
    }
}
