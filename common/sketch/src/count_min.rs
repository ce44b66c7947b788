//! Count-min: how much did this key have?
//!
//! **Errors**: only upwards. The sketch is built for a share `error` and a probability `p`: an estimate exceeds the
//! truth by more than `error * total` with a probability of at most `p`, where total is the sum of everything that was
//! added. That is the guarantee of the plan. [`CountMin::excess`] computes a bound from the present counters, which is
//! usually much lower. If a weight has two numbers, all of this holds for each of them.
//!
//! There are two kinds of updates, distinguished by type. [`Conservative`] raises only the counters that must be
//! raised. It never estimates more than [`Plain`], and much less on skewed streams (Zipf 1.05, 10 million additions to
//! 670,000 keys, 1 MiB, 4 rows: 10.5 too many on average, against 19.9). [`Plain`] raises all counters. It is cheaper,
//! and merging two such sketches gives exactly the sketch that was fed both streams.
//!
//! **Cost** at error 0.0005 and probability 0.001: 5,437 cells x 7 rows x 16 bytes = 595 KiB with two numbers. An
//! update touches one cache line for each row. If the sketch is much larger than the caches, each row costs some 10 ns,
//! and 8 ns with huge pages.
//!
//! **Papers**: Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and its applications",
//! 2005. Conservative update: Estan and Varghese, "New directions in traffic measurement and accounting", 2002.
//! Choosing the column by a product instead of a remainder: Lemire, "Fast random integer generation in an interval",
//! 2019.
//!
//! **Why not a crate**: here one access to a cell updates two numbers, from a given hash, and sketches of several
//! machines can be merged. Crates usually hash the item themselves, keep one number, and state no bounds.

mod image;
mod rows;
mod update;

use alloc::{boxed::Box, vec};
use core::{f64::consts::E, marker::PhantomData};

use self::rows::{Grid, Rows};
pub use self::update::{Conservative, Plain, Update};
pub(super) use self::update::{least, read};
use super::{
    Bounds, Geometry, MergeError,
    batch::{estimate_each, estimate_in_lanes, is_far, visit},
    merge::check_mergeable,
    setting::{SettingError, check_error},
    weight::{Weight, excess, sum},
};
use crate::simd::prefetch;

/// The most rows. With a probability of e^-8 an estimate misses its bound once in 3,000, and each row costs a cache
/// miss.
pub const DEPTH_MAX: usize = 8;
/// The most cells per row: 1 GiB per row, and an error of 4e-8.
pub const WIDTH_MAX: usize = 1 << 26;
/// The fewest cells per row: an error of 68 % is the largest one that is meaningful.
pub const WIDTH_MIN: usize = 4;
/// The lowest error, that of the widest sketch.
const ERROR_MIN: f64 = E / WIDTH_MAX as f64;

/// Calls a method that is compiled for this number of rows, so that its loops over the rows are unrolled.
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

/// A count-min sketch. Without type parameters it counts `u64` with conservative update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountMin<W = u64, U = Conservative> {
    /// The cells, row after row.
    cells: Box<[W]>,
    /// The number of cells per row.
    width: usize,
    depth: usize,
    total: W,
    key_id: u64,
    update: PhantomData<U>,
}

impl<W: Weight> CountMin<W> {
    /// A sketch with conservative update. An estimate exceeds the truth by more than `error` (a share of everything
    /// that is added) with a probability of at most `probability_of_more`.
    ///
    /// The width e / `error` is rounded up, within [`WIDTH_MIN`] and [`WIDTH_MAX`]. The depth ln(1 / probability) is
    /// rounded up, to at most [`DEPTH_MAX`]. `error()` and `probability_of_more()` return the values of the result.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_error(error: f64, probability_of_more: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::of_error(error, probability_of_more, key_id)
    }
}

impl<W: Weight> CountMin<W, Plain> {
    /// A sketch with plain update. Otherwise like [`CountMin::with_error`].
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn plain_with_error(error: f64, probability_of_more: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::of_error(error, probability_of_more, key_id)
    }
}

impl<W: Weight, U: Update> CountMin<W, U> {
    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// The error or the probability is lower than the largest sketch has ([`WIDTH_MAX`], [`DEPTH_MAX`]), or at least 1.
    pub fn check(error: f64, probability_of_more: f64) -> Result<(), SettingError> {
        check_error("error", error, ERROR_MIN)?;
        check_error("probability_of_more", probability_of_more, libm::exp(-(DEPTH_MAX as f64)))
    }

    fn of_error(error: f64, probability_of_more: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(error, probability_of_more)?;
        // The lowest values may be rounded, so they are allowed to be a little lower.
        let width = (libm::ceil(E / error) as usize).clamp(WIDTH_MIN, WIDTH_MAX);
        let depth = (libm::ceil(-libm::log(probability_of_more)) as usize).clamp(1, DEPTH_MAX);
        let cells = vec![W::default(); width * depth].into_boxed_slice();
        Ok(Self { cells, width, depth, total: W::default(), key_id, update: PhantomData })
    }

    /// Adds `weight` to the key with this hash. Returns the key's new estimate, which is never below the truth.
    #[inline]
    pub fn add(&mut self, hash: u64, weight: W) -> W {
        self.total = self.total.saturating_add(weight);
        for_depth!(self.add_in(hash, weight))
    }

    /// Adds `weights[i]` to the key with the hash `hashes[i]`, in order. Stops at the end of the shorter slice.
    pub fn add_batch(&mut self, hashes: &[u64], weights: &[W]) {
        let count = hashes.len().min(weights.len());
        self.total = self.total.saturating_add(sum(&weights[..count]));
        for_depth!(self.add_batch_in(hashes, weights));
    }

    /// The estimate for the key with this hash, never below the truth.
    #[inline]
    pub fn estimate(&self, hash: u64) -> W {
        for_depth!(self.estimate_in(hash))
    }

    /// Sets `estimates[i]` to what [`CountMin::estimate`] returns for `hashes[i]`. Stops at the end of the shorter
    /// slice.
    pub fn estimate_batch(&self, hashes: &[u64], estimates: &mut [W]) {
        for_depth!(self.estimate_batch_in(hashes, estimates));
    }

    /// An upper bound of the difference between an estimate and the truth, which holds with at least the probability
    /// `confidence`. It is computed from the present counters, and rounded up by less than 2 %. This reads the sketch a
    /// dozen times for each number of a weight.
    ///
    /// It holds for a key that was chosen without regard to its estimate, for hashes that look random, and for each
    /// number of a weight; also after merging, and with either kind of update. A confidence of 1 (or more, or NaN)
    /// gives a number that no cell exceeds.
    ///
    /// It holds for this reason. Consider the sketch without that key. Adding to the key raises no cell by more than
    /// the weight. So with the key, no cell is higher by more than the key's total weight, and the excess of the key is
    /// at most the smallest of its cells in the sketch without it. That sketch does not depend on which cells these
    /// are. So the probability of an excess above `x` is at most the product, over the rows, of the shares of cells
    /// above `x`. With the key, these shares can only be larger.
    pub fn excess(&self, confidence: f64) -> W {
        let share_above = |row: &[W], read: fn(W) -> u64, excess: u64| {
            row.iter().filter(|&&cell| read(cell) > excess).count() as f64 / self.width as f64
        };
        excess(1.0 - confidence, self.total, |read, excess| {
            self.cells.chunks(self.width).map(|row| share_above(row, read, excess)).product()
        })
    }

    /// Bounds of the weight of the key with this hash, from a result of [`CountMin::excess`]. The upper bound always
    /// holds. The lower bound holds with the confidence of the excess.
    #[inline]
    pub fn bounds(&self, hash: u64, excess: W) -> Bounds<W> {
        let upper = self.estimate(hash);
        Bounds { lower: upper.saturating_sub(excess), upper }
    }

    /// Merges another sketch into this one, cell by cell. With plain updates the result is exactly the sketch that was
    /// fed both streams.
    ///
    /// With conservative updates, estimates are still upper bounds, and the error is still a share `error()` of the
    /// total of both. But the excess can be as large as that of both together. One sketch that was fed both streams
    /// might have a smaller one.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        self.total = self.total.saturating_add(other.total);
        self.cells.iter_mut().zip(&other.cells).for_each(|(cell, other)| *cell = cell.saturating_add(*other));
        Ok(())
    }

    /// Empties it, and writes every cell, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.cells.fill(W::default());
        self.total = W::default();
    }

    /// The sum of everything that was added.
    pub const fn total(&self) -> W {
        self.total
    }

    /// By which share of [`CountMin::total`] an estimate may exceed the truth.
    pub fn error(&self) -> f64 {
        E / self.width as f64
    }

    /// The probability that one estimate exceeds the truth by more than [`CountMin::error`].
    pub fn probability_of_more(&self) -> f64 {
        libm::exp(-(self.depth as f64))
    }

    /// The number of cells per row.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// The number of rows.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Cells { depth: self.depth, width: self.width }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
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

/// Prefetches the cells of a key.
#[inline(always)]
fn ask<W, const DEPTH: usize>(cells: &[W], slots: [u32; DEPTH]) {
    slots.iter().for_each(|&slot| prefetch(&cells[slot as usize]));
}

/// Converts slots to indices.
#[inline(always)]
fn indices<const DEPTH: usize>(slots: [u32; DEPTH]) -> [usize; DEPTH] {
    core::array::from_fn(|row| slots[row] as usize)
}

#[cfg(test)]
mod tests;
