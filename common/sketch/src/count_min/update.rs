//! How an update raises a key's cells.

use core::fmt::Debug;

use crate::Weight;

/// How an update raises a key's cells: [`Plain`] or [`Conservative`].
pub trait Update: Copy + Eq + Debug + Send + Sync + 'static + sealed::Sealed {
    /// The number of the update rule in images.
    const NUMBER: u8;

    /// Adds `weight` to the key whose cells, all different, are at these indices. Returns the key's new estimate.
    fn raise<W: Weight, const DEPTH: usize>(cells: &mut [W], key: [usize; DEPTH], weight: W) -> W;
}

/// Adds the weight to each of the key's cells. A merged sketch equals one sketch that was fed everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {}

/// Raises each of the key's cells to the key's new estimate, except cells that are already higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conservative {}

impl Update for Plain {
    const NUMBER: u8 = 0;

    #[inline(always)]
    fn raise<W: Weight, const DEPTH: usize>(cells: &mut [W], key: [usize; DEPTH], weight: W) -> W {
        key.into_iter().for_each(|at| cells[at] = cells[at].saturating_add(weight));
        least(read(cells, key))
    }
}

impl Update for Conservative {
    const NUMBER: u8 = 1;

    #[inline(always)]
    fn raise<W: Weight, const DEPTH: usize>(cells: &mut [W], key: [usize; DEPTH], weight: W) -> W {
        // All cells are read before the first one is written, because the compiler does not know that they are
        // different.
        let before = read(cells, key);
        let least = least(before);
        let estimate = least.saturating_add(weight);
        key.into_iter().zip(before).for_each(|(at, cell)| cells[at] = cell.raised(least, weight, estimate));
        estimate
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Plain {}
    impl Sealed for super::Conservative {}
}

/// The cells of a key.
#[inline(always)]
pub(crate) fn read<W: Weight, const DEPTH: usize>(cells: &[W], key: [usize; DEPTH]) -> [W; DEPTH] {
    core::array::from_fn(|row| cells[key[row]])
}

/// The smallest of some cells, number by number. It compares pairs of pairs. A chain of comparisons would take so long
/// that compilers would make unpredictable branches of the following code (with conservative update, 11 ns instead of
/// 5).
#[inline(always)]
pub(crate) fn least<W: Weight, const DEPTH: usize>(mut cells: [W; DEPTH]) -> W {
    let mut left = DEPTH;
    while left > 1 {
        let pairs = left / 2;
        for pair in 0..pairs {
            cells[pair] = cells[pair].least(cells[left - 1 - pair]);
        }
        left -= pairs;
    }
    cells[0]
}
