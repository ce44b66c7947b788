//! A block of a top-k table: the tags of its eight candidates, and the cells for all keys that are not held.

use crate::Weight;

/// Candidates per block. Their tags fill a word.
pub const WAYS: usize = 8;

/// One cache line with everything that a key reads and writes while it is not held. (Candidates are stored elsewhere.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct Block<W: Weight> {
    /// The tag of the key in each way; 0 if the way is free. Way 0 has the lowest byte.
    tags: u64,
    /// A lower bound of the smallest score of the candidates, used only while no way is free. Scores only grow, so it
    /// is updated only when a key seems to become a candidate.
    pub price: u64,
    /// The cells for keys that are not held.
    pub light: Light<W>,
}

const _: () = assert!(size_of::<Block<u64>>() == 64 && size_of::<Block<crate::CountAndSum>>() == 64);

/// A key's tag: the last byte of its hash, but never 0.
#[inline(always)]
pub(super) const fn tag(hash: u64) -> u8 {
    let tag = hash as u8;
    if tag == 0 { 1 } else { tag }
}

impl<W: Weight> Block<W> {
    /// The ways with this tag.
    #[inline(always)]
    pub const fn ways_with(&self, tag: u8) -> Ways {
        const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        // All eight bytes are compared at once. A byte that differs has a bit set, and the addition carries it to the
        // highest bit.
        let differing = self.tags ^ u64::from_ne_bytes([tag; WAYS]);
        Ways(!(((differing & LOW) + LOW) | differing | LOW))
    }

    /// Returns the ways that hold a candidate.
    pub fn taken(&self) -> impl Iterator<Item = usize> + use<W> {
        let free = self.ways_with(0).0;
        (0..WAYS).filter(move |way| free >> (way * 8 + 7) & 1 == 0)
    }

    /// The tags of all ways.
    pub const fn tags(&self) -> u64 {
        self.tags
    }

    /// Sets the tags of all ways.
    pub const fn set_tags(&mut self, tags: u64) {
        self.tags = tags;
    }

    #[inline(always)]
    pub const fn tag(&self, way: usize) -> u8 {
        (self.tags >> (way * 8)) as u8
    }

    /// Gives this way to a key.
    #[inline(always)]
    pub const fn give(&mut self, way: usize, tag: u8) {
        self.tags = self.tags & !(0xff << (way * 8)) | (tag as u64) << (way * 8);
    }

    /// Frees all ways, but keeps the cells for keys that are not held.
    pub fn free(&mut self) {
        *self = Self { light: self.light, ..Self::default() };
    }
}

/// A row of cells. Each adds up the weights of many keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Light<W: Weight>(W::Cells);

impl<W: Weight> Light<W> {
    /// The number of cells.
    pub const CELLS: usize = size_of::<W::Cells>() / size_of::<W::Narrow>();

    /// An upper bound of a key's weight while it was not held.
    #[inline(always)]
    pub fn upper(&self, tag: u8) -> W {
        W::from_narrow(self.0.as_ref()[Self::cell(tag)])
    }

    /// For each cell, an upper bound of the weights of all its keys while they were not held.
    pub fn cells(&self) -> impl Iterator<Item = W> {
        self.0.as_ref().iter().map(|cell| W::from_narrow(*cell))
    }

    /// Adds to a key that is not held.
    #[inline(always)]
    pub fn add(&mut self, tag: u8, weight: W) {
        self.add_to(Self::cell(tag), weight);
    }

    /// Adds to a cell.
    #[inline(always)]
    pub fn add_to(&mut self, cell: usize, weight: W) {
        let cell = &mut self.0.as_mut()[cell];
        *cell = W::from_narrow(*cell).saturating_add(weight).narrow();
    }

    /// Adds the cells of another row.
    pub fn merge(&mut self, other: &Self) {
        for (cell, other) in self.0.as_mut().iter_mut().zip(other.0.as_ref()) {
            *cell = W::from_narrow(*cell).saturating_add(W::from_narrow(*other)).narrow();
        }
    }

    #[inline(always)]
    const fn cell(tag: u8) -> usize {
        (tag as usize * Self::CELLS) >> u8::BITS
    }
}

/// Some ways of a block: the highest bit of each such way's byte.
#[derive(Clone, Copy)]
pub(super) struct Ways(u64);

impl Iterator for Ways {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let way = self.0.trailing_zeros() as usize / 8;
        self.0 &= self.0 - 1;
        Some(way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CountAndSum;

    #[test]
    fn tags_are_found_where_they_were_given() {
        let mut block = Block::<u64>::default();
        assert_eq!((block.ways_with(0).count(), block.taken().count()), (WAYS, 0));
        for (way, tag) in [(0, 1), (3, 255), (4, 1), (7, 128)] {
            block.give(way, tag);
            assert_eq!(block.tag(way), tag);
        }
        assert!(block.ways_with(1).eq([0, 4]) && block.ways_with(255).eq([3]) && block.ways_with(128).eq([7]));
        assert!(block.ways_with(127).next().is_none() && block.ways_with(0).eq([1, 2, 5, 6]));
        assert!(block.taken().eq([0, 3, 4, 7]));
        assert!((0..=u64::from(u8::MAX)).all(|hash| tag(hash) != 0));
        block.give(3, 6);
        assert_eq!(block.tag(3), 6, "nothing is left of the earlier key of the way");
    }

    #[test]
    fn light_cells_are_never_too_low() {
        let mut light = Light::<CountAndSum>::default();
        let mut sum = CountAndSum::default();
        for weight in
            [(1, 10), (1, 1 << 31), (1 << 31, 5), (2, 1 << 31)].map(|(count, sum)| CountAndSum::new(count, sum))
        {
            light.add(5, weight);
            sum = sum.saturating_add(weight);
            assert!(light.upper(5).count >= sum.count && light.upper(5).sum >= sum.sum);
        }
        assert_eq!(
            light.upper(5),
            CountAndSum::new(sum.count, u64::MAX),
            "a number that does not fit has no upper bound"
        );
        assert_eq!(light.upper(255), CountAndSum::default());
        let cells: std::vec::Vec<_> = light.cells().collect();
        assert_eq!((cells.len(), cells[Light::<CountAndSum>::cell(5)]), (6, light.upper(5)));
        let before = light;
        light.merge(&before);
        assert_eq!(light.upper(5), CountAndSum::new(u64::MAX, u64::MAX));
    }
}
