//! Count-min: how many packets and bytes did this key have?
//!
//! **Errs** upwards only. With the share `error` and the probability `p` that it was built for, an estimate exceeds
//! the truth by more than `error * total` with probability at most `p`; total is everything that was added. That is
//! the guarantee of the plan; [`CountMin::excess`] says, mostly much less, from the counters as they are. Two
//! estimates, of packets and of bytes, each hold on their own.
//!
//! Two updates, told apart by type. [`Conservative`] raises only what must be raised: it never estimates more than
//! the plain one, and on skewed traffic much less (Zipf 1.05, 10 million packets of 670,000 keys, 1 MiB, 4 rows: 10.5
//! against 19.9 packets too many). [`Plain`] adds everywhere: it is cheaper, and two of them merge to exactly what one
//! would be that was fed both.
//!
//! **Cost** at error 0.0005 and probability 0.001: 5,437 cells x 7 rows x 16 bytes = 595 KiB; an update touches one
//! cache line a row. Far beyond the caches each row costs some 10 ns, in huge pages 8.
//!
//! **Papers**: Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and its
//! applications", 2005; conservative update: Estan and Varghese, "New directions in traffic measurement and
//! accounting", 2002; the column by a product instead of a remainder: Lemire, "Fast random integer generation in an
//! interval", 2019.
//!
//! **Why not a crate**: one touch of a cell must update packets and bytes, from a hash that is already there, and two
//! routers' sketches must merge; crates commonly hash the item themselves, keep one count and say no bounds.

mod image;
mod rows;
mod update;

use alloc::{boxed::Box, vec};
use core::{f64::consts::E, marker::PhantomData};

use self::rows::{Grid, Rows};
pub use self::update::{Conservative, Plain, Update};
pub(super) use self::update::{least, read};
use super::{
    Bounds, Frequency, Geometry, Merge, MergeError, Sketch,
    batch::{estimate_each, estimate_in_lanes, is_far, visit},
    check_mergeable,
    weight::{Weight, excess, sum},
};
use crate::simd::prefetch;

/// Most rows: at e^-8 an estimate misses its bound once in 3,000, and each row costs a cache miss.
pub const DEPTH_MAX: usize = 8;
/// Cells a row at most: 1 GiB a row, an error of 4e-8.
pub const WIDTH_MAX: usize = 1 << 26;
/// Cells a row at least: an error of 68 % is the largest that says anything.
pub const WIDTH_MIN: usize = 4;

/// Calls a method made for this number of rows, so that its loops over the rows are unrolled.
macro_rules! for_depth {
    ($sketch:ident.$method:ident($($argument:expr),*)) => {
        match $sketch.depth {
            1 => $sketch.$method::<1>($($argument),*),
            2 => $sketch.$method::<2>($($argument),*),
            3 => $sketch.$method::<3>($($argument),*),
            4 => $sketch.$method::<4>($($argument),*),
            5 => $sketch.$method::<5>($($argument),*),
            6 => $sketch.$method::<6>($($argument),*),
            7 => $sketch.$method::<7>($($argument),*),
            _ => $sketch.$method::<DEPTH_MAX>($($argument),*),
        }
    };
}

/// A count-min sketch; of packets and bytes with conservative update unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountMin<W = u64, U = Conservative> {
    /// Row after row.
    cells: Box<[W]>,
    /// Cells a row.
    width: usize,
    depth: usize,
    total: W,
    key_id: u64,
    update: PhantomData<U>,
}

impl<W: Weight> CountMin<W> {
    /// A sketch with conservative update whose estimates exceed the truth by more than `error` (a share of all that is
    /// added) with at most the probability `probability_of_more`.
    ///
    /// The width e / `error` is rounded up, within [`WIDTH_MIN`] and [`WIDTH_MAX`]; the depth ln(1 / probability) is
    /// rounded up, within 1 and [`DEPTH_MAX`]. Not-a-number gives the smallest. `error()` and
    /// `probability_of_more()` say what it came to.
    pub fn with_error(error: f64, probability_of_more: f64, key_id: u64) -> Self {
        Self::new(error, probability_of_more, key_id)
    }
}

impl<W: Weight> CountMin<W, Plain> {
    /// A sketch with plain update; otherwise as [`CountMin::with_error`].
    pub fn plain_with_error(error: f64, probability_of_more: f64, key_id: u64) -> Self {
        Self::new(error, probability_of_more, key_id)
    }
}

impl<W: Weight, U: Update> CountMin<W, U> {
    fn new(error: f64, probability_of_more: f64, key_id: u64) -> Self {
        let width = libm::ceil(E / error.clamp(E / WIDTH_MAX as f64, 1.0)) as usize;
        let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
        let depth = (libm::ceil(-libm::log(probability_of_more.clamp(0.0, 1.0))) as usize).clamp(1, DEPTH_MAX);
        let cells = vec![W::default(); width * depth].into_boxed_slice();
        Self { cells, width, depth, total: W::default(), key_id, update: PhantomData }
    }

    /// Adds `weight` to the key with this hash; gives the key's estimate including it, never below the truth.
    #[inline]
    pub fn add(&mut self, hash: u64, weight: W) -> W {
        self.total = self.total.saturating_add(weight);
        for_depth!(self.add_in(hash, weight))
    }

    /// Adds `weights[i]` to the key with `hashes[i]`, as [`CountMin::add`] does one after the other; as many as the
    /// shorter of the two has.
    pub fn add_batch(&mut self, hashes: &[u64], weights: &[W]) {
        let count = hashes.len().min(weights.len());
        self.total = self.total.saturating_add(sum(&weights[..count]));
        for_depth!(self.add_batch_in(hashes, weights));
    }

    /// The weight of the key with this hash, never below the truth.
    #[inline]
    pub fn estimate(&self, hash: u64) -> W {
        for_depth!(self.estimate_in(hash))
    }

    /// Puts what [`CountMin::estimate`] says of `hashes[i]` into `estimates[i]`; as many as the shorter of the two has.
    pub fn estimate_batch(&self, hashes: &[u64], estimates: &mut [W]) {
        for_depth!(self.estimate_batch_in(hashes, estimates));
    }

    /// By how much an estimate can exceed the truth, with at least the probability `confidence`: from the counters as
    /// they are, rounded up by less than 2 %. Reads the sketch a dozen times for each number.
    ///
    /// It holds for a key chosen without regard to its estimate and for hashes as if drawn at random, for packets and
    /// for bytes each; after merging and with either update. A confidence of 1 (or more, or not-a-number) gives
    /// what no cell exceeds. Why: let the sketch be without that key. Adding to a key raises no cell by more than
    /// the weight, and what was in a cell before keeps its effect on later updates, so with the key no cell is
    /// higher by more than what the key had: the key's excess is at most the least of its cells in the sketch
    /// without it. Where these lie the sketch without it says nothing about. So the excess is above `x` with at
    /// most the product, over the rows, of the shares of cells above `x`; and with the key these shares are, if
    /// anything, larger.
    pub fn excess(&self, confidence: f64) -> W {
        let share_above = |row: &[W], read: fn(W) -> u64, excess: u64| {
            row.iter().filter(|&&cell| read(cell) > excess).count() as f64 / self.width as f64
        };
        excess(1.0 - confidence, self.total, |read, excess| {
            self.cells.chunks(self.width).map(|row| share_above(row, read, excess)).product()
        })
    }

    /// Between what the weight of the key with this hash lies, given what [`CountMin::excess`] says. The upper end
    /// always holds, the lower one with the excess's confidence.
    #[inline]
    pub fn bounds(&self, hash: u64, excess: W) -> Bounds<W> {
        let upper = self.estimate(hash);
        Bounds { lower: upper.saturating_sub(excess), upper }
    }

    /// Adds another sketch cell by cell: with plain updates, exactly as if one had been fed both.
    ///
    /// With conservative updates estimates stay upper bounds, and the error stays a share `error()` of the total of
    /// both. But the saving happened in each sketch apart: the excess after merging is up to the sum of both, where one
    /// sketch fed with everything might have done better.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        self.total = self.total.saturating_add(other.total);
        self.cells.iter_mut().zip(&other.cells).for_each(|(cell, other)| *cell = cell.saturating_add(*other));
        Ok(())
    }

    /// Forgets everything; writes every cell. (Not inlined: next to the allocation, the writes would be optimised
    /// out, and the pages would not become resident.)
    #[inline(never)]
    pub fn clear(&mut self) {
        self.cells.fill(W::default());
        self.total = W::default();
    }

    /// All that was added.
    pub const fn total(&self) -> W {
        self.total
    }

    /// By what share of [`CountMin::total`] an estimate can exceed the truth.
    pub fn error(&self) -> f64 {
        E / self.width as f64
    }

    /// The probability that one estimate exceeds the truth by more than [`CountMin::error`].
    pub fn probability_of_more(&self) -> f64 {
        libm::exp(-(self.depth as f64))
    }

    /// Cells a row.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Its size and shape.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Cells { depth: self.depth, width: self.width }
    }

    /// The fingerprint of the hash key.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// Everything it occupies, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.cells.len() * size_of::<W>()
    }

    #[inline(always)]
    fn add_in<const DEPTH: usize>(&mut self, hash: u64, weight: W) -> W {
        U::raise(&mut self.cells, Rows::<DEPTH>(self.width).slots(hash), weight)
    }

    #[inline(always)]
    fn estimate_in<const DEPTH: usize>(&self, hash: u64) -> W {
        least(read(&self.cells, Rows::<DEPTH>(self.width).slots(hash)))
    }

    fn add_batch_in<const DEPTH: usize>(&mut self, hashes: &[u64], weights: &[W]) {
        visit(&mut self.cells, &Rows::<DEPTH>(self.width), (hashes, weights), ask, |cells, slots, weight| {
            U::raise(cells, indices(slots), *weight);
        });
    }

    fn estimate_batch_in<const DEPTH: usize>(&self, hashes: &[u64], estimates: &mut [W]) {
        let (cells, rows) = (&*self.cells, Rows::<DEPTH>(self.width));
        if is_far(cells) || !estimate_in_lanes(&Grid { cells, rows }, hashes, estimates) {
            let estimate = |cells: &[W], slots| least(read(cells, indices(slots)));
            estimate_each(cells, &rows, (hashes, estimates), ask, estimate);
        }
    }
}

/// Asks for cells ahead of their use.
#[inline(always)]
fn ask<W, const DEPTH: usize>(cells: &[W], slots: [u32; DEPTH]) {
    slots.iter().for_each(|&slot| prefetch(&cells[slot as usize]));
}

/// Slots, to be used as indices.
#[inline(always)]
fn indices<const DEPTH: usize>(slots: [u32; DEPTH]) -> [usize; DEPTH] {
    core::array::from_fn(|row| slots[row] as usize)
}

impl<W: Weight, U: Update> Sketch for CountMin<W, U> {
    fn geometry(&self) -> Geometry {
        self.geometry()
    }
    fn key_id(&self) -> u64 {
        self.key_id
    }
    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
    fn clear(&mut self) {
        self.clear();
    }
}

impl<W: Weight, U: Update> Frequency for CountMin<W, U> {
    type Weight = W;

    fn add(&mut self, hash: u64, weight: W) -> W {
        self.add(hash, weight)
    }
    fn estimate(&self, hash: u64) -> W {
        self.estimate(hash)
    }
    fn add_batch(&mut self, hashes: &[u64], weights: &[W]) {
        self.add_batch(hashes, weights);
    }
    fn estimate_batch(&self, hashes: &[u64], estimates: &mut [W]) {
        self.estimate_batch(hashes, estimates);
    }
}

impl<W: Weight, U: Update> Merge for CountMin<W, U> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.merge(other)
    }
}

#[cfg(test)]
mod tests;
