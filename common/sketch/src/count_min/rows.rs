//! The places of a key's cells: one in each row.

use crate::{
    Weight,
    batch::{GROUP, Lanes, Places},
    count_min::update::least,
    hash::mix,
    simd::dispatch,
};

/// `DEPTH` rows of this many cells.
#[derive(Clone, Copy)]
pub struct Rows<const DEPTH: usize>(pub usize);

impl<const DEPTH: usize> Rows<DEPTH> {
    /// The index of the key's cell in each row.
    #[inline(always)]
    pub fn slots(self, hash: u64) -> [usize; DEPTH] {
        core::array::from_fn(|row| slot(word(hash, row / 2), row, self.0) as usize)
    }
}

impl<const DEPTH: usize> Places<DEPTH> for Rows<DEPTH> {
    #[inline(always)]
    fn of(&self, hash: u64) -> [u32; DEPTH] {
        core::array::from_fn(|row| slot(word(hash, row / 2), row, self.0))
    }

    #[inline(always)]
    fn of_group(&self, places: &mut [[u32; GROUP]; DEPTH], hashes: &[u64; GROUP]) {
        place(places, self.0, hashes);
    }
}

dispatch! {
    /// Finds the cells of a group of keys in each row of this many cells.
    fn place(rows: &mut [[u32; GROUP]], width: usize, hashes: &[u64; GROUP]) {
        place_each(rows, width, hashes);
    }
}

#[inline(always)]
fn place_each(rows: &mut [[u32; GROUP]], width: usize, hashes: &[u64; GROUP]) {
    let mut words = [0; GROUP];
    for (pair, rows) in rows.chunks_mut(2).enumerate() {
        words.iter_mut().zip(hashes).for_each(|(place, &hash)| *place = word(hash, pair));
        for (nth, row) in rows.iter_mut().enumerate() {
            row.iter_mut().zip(&words).for_each(|(place, &word)| *place = slot(word, 2 * pair + nth, width));
        }
    }
}

/// Cells, arranged in rows.
pub struct Grid<'a, W, const DEPTH: usize> {
    /// The cells, row after row.
    pub cells: &'a [W],
    /// The rows, with the number of cells per row.
    pub rows: Rows<DEPTH>,
}

impl<W: Weight, const DEPTH: usize> Lanes for Grid<'_, W, DEPTH> {
    type Weight = W;

    #[inline(always)]
    fn estimate(&self, hash: u64) -> W {
        // No slot is above the last one. The minimum shows this to the compiler.
        let Some(last) = self.cells.len().checked_sub(1) else { return W::default() };
        let slots = self.rows.slots(hash);
        least::<W, DEPTH>(core::array::from_fn(|row| self.cells[slots[row].min(last)]))
    }
}

/// The word that two rows share, derived from the key's hash.
///
/// The first two rows share the hash, whose parts are independent with a keyed hash. This is not double hashing, whose
/// rows collide together. The hash is rotated so that its highest bits, by which other structures choose their buckets,
/// have the least effect. Each further pair of rows takes the next word of the `SplitMix64` stream that starts at the
/// hash. That adds no entropy, but none is needed: 64 bits distinguish all keys.
#[inline(always)]
const fn word(hash: u64, pair: usize) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    if pair == 0 { hash.rotate_left(16) } else { mix(hash.wrapping_add(GOLDEN.wrapping_mul(pair as u64))) }
}

/// The index of a key's cell in a row. 32 bits of the word are a fraction of the width, so any width is possible.
#[inline(always)]
const fn slot(word: u64, row: usize, width: usize) -> u32 {
    let half = (word >> (row % 2 * 32)) as u32;
    row as u32 * width as u32 + ((half as u64 * width as u32 as u64) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CountAndSum, CountMin,
        batch::tests::{assert_groups_are_their_keys, assert_lanes_are_estimates},
        count_min::{DEPTH_MAX, WIDTH_MAX, WIDTH_MIN},
        simd::at_level,
    };
    use core::f64::consts::E;
    use std::vec::Vec;

    const KEY: u64 = 7;

    #[test]
    fn every_level_finds_the_same_cells() {
        fn check<const DEPTH: usize>() {
            for width in [WIDTH_MIN, 5_437, WIDTH_MAX] {
                assert_groups_are_their_keys(&Rows::<DEPTH>(width), |level, rows, hashes| {
                    let rows = &mut rows[..];
                    at_level!(level, (rows: &mut [[u32; GROUP]], width: usize, hashes: &[u64; GROUP]) {
                        place_each(rows, width, hashes);
                    });
                });
            }
        }
        check::<1>();
        check::<5>();
        check::<DEPTH_MAX>();
    }

    #[test]
    fn every_level_reads_the_same_cells() {
        fn check<W: Weight, const DEPTH: usize>(probability: f64, weight: impl Fn(u64) -> W) {
            let mut sketch = CountMin::<W>::with_error(0.05, probability, KEY).unwrap();
            assert_eq!(sketch.depth(), DEPTH);
            let hashes: Vec<_> = (0..150).map(mix).collect();
            hashes[..100].iter().for_each(|&hash| _ = sketch.add(hash, weight(hash)));
            let grid = Grid { cells: &sketch.cells, rows: Rows::<DEPTH>(sketch.width) };
            assert_lanes_are_estimates(&grid, &hashes, |hash| sketch.estimate(hash));
        }
        check::<u32, 1>(0.5, |hash| hash as u32 >> 8);
        check::<u64, 4>(0.02, |hash| hash >> 9);
        check::<CountAndSum, 3>(0.05, |hash| CountAndSum::new(hash >> 50, hash >> 20));
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn rows_are_independent() {
        // Two keys that agree in one row's column, here in a sixty-fourth of the row, agree in another row as often as
        // expected by chance.
        for error in [E / 64.0, 0.0005, 0.000_03] {
            let sketch = CountMin::<u32>::with_error(error, 0.0005, KEY).unwrap();
            let part = |slot: usize| slot % sketch.width() * 64 / sketch.width();
            let keys: Vec<_> =
                (0..1_500).map(|key| Rows::<DEPTH_MAX>(sketch.width()).slots(mix(key)).map(part)).collect();
            let (mut shared, mut twice) = (0u32, 0u32);
            for (i, one) in keys.iter().enumerate() {
                for other in &keys[..i] {
                    let rows = one.iter().zip(other).filter(|(one, other)| one == other).count() as u32;
                    shared += rows;
                    twice += rows * rows.saturating_sub(1) / 2;
                }
            }
            // There are 1,124,250 pairs of keys, 8 rows, and 28 pairs of rows: 140,531 and 7,685 are expected, five
            // standard deviations allowed.
            let width = sketch.width();
            assert!((138_700..142_400).contains(&shared), "width {width}: {shared}");
            assert!((7_245..8_125).contains(&twice), "width {width}: {twice}");
        }
    }
}
