//! Finds the place of a held key, in a small table by hash.

use alloc::{boxed::Box, vec};

/// The number of cells for each key, at least. So one lookup is enough for nearly all keys that are not held: a second
/// one is a branch that the processor predicts wrongly.
const CELLS_PER_KEY: usize = 32;

/// A hash table of places with linear probing. The hashes are stored at the places.
#[derive(Clone, Debug)]
pub struct Index {
    /// A place plus 1, or 0 if the cell is free.
    cells: Box<[u16]>,
}

impl Index {
    /// An index for this many keys.
    pub fn with_room(keys: usize) -> Self {
        Self { cells: vec![0; (keys * CELLS_PER_KEY).next_power_of_two()].into_boxed_slice() }
    }

    /// The place of the key with this hash. `hash_at` returns the hash at a place.
    #[inline(always)]
    pub fn find(&self, hash: u64, hash_at: impl Fn(usize) -> u64) -> Option<usize> {
        let mut cell = self.first(hash);
        loop {
            let place = usize::from(self.cells[cell]).checked_sub(1)?;
            if hash_at(place) == hash {
                return Some(place);
            }
            cell = self.next(cell);
        }
    }

    /// Adds the place of a key that has none.
    pub fn insert(&mut self, hash: u64, place: usize, hash_at: impl Fn(usize) -> u64) {
        debug_assert_eq!(self.find(hash, &hash_at), None);
        let mut cell = self.first(hash);
        while self.cells[cell] != 0 {
            cell = self.next(cell);
        }
        self.cells[cell] = place as u16 + 1;
    }

    /// Removes the place of a key. Later cells move up, so that no gap separates them from the cell where their search
    /// begins.
    pub fn remove(&mut self, hash: u64, hash_at: impl Fn(usize) -> u64) {
        let mut gap = self.first(hash);
        loop {
            match usize::from(self.cells[gap]).checked_sub(1) {
                None => return,
                Some(place) if hash_at(place) == hash => break,
                Some(_) => gap = self.next(gap),
            }
        }
        let mut cell = gap;
        loop {
            cell = self.next(cell);
            let Some(place) = usize::from(self.cells[cell]).checked_sub(1) else { break };
            let first = self.first(hash_at(place));
            // A cell may move up unless the gap is before the cell where its search begins.
            if self.distance(first, cell) >= self.distance(gap, cell) {
                self.cells[gap] = self.cells[cell];
                gap = cell;
            }
        }
        self.cells[gap] = 0;
    }

    /// Removes all places.
    pub fn clear(&mut self) {
        self.cells.fill(0);
    }

    /// The memory that it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of_val(&*self.cells)
    }

    #[inline(always)]
    const fn first(&self, hash: u64) -> usize {
        hash as usize & (self.cells.len() - 1)
    }

    #[inline(always)]
    const fn next(&self, cell: usize) -> usize {
        (cell + 1) & (self.cells.len() - 1)
    }

    /// How many cells `to` is after `from`.
    const fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.cells.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::hash;

    #[test]
    fn one_lookup_is_enough_for_nearly_all_keys_that_are_not_held() {
        let mut index = Index::with_room(100);
        let hash_at = |place: usize| hash(1, place as u64);
        (0..100).for_each(|place| index.insert(hash_at(place), place, hash_at));
        let empty = (0..1_000).filter(|nth| index.cells[index.first(hash(2, *nth))] == 0).count();
        // 100 of 4,096 cells are used.
        assert!((955..995).contains(&empty), "{empty} of 1,000");
        assert_eq!(index.memory_bytes(), 2 * 4_096);
    }
}
