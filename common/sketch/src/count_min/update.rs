//! How an update raises a key's cells.

use core::fmt::Debug;

use crate::Weight;

/// How an update raises a key's cells: [`Plain`] or [`Conservative`].
pub trait Update: Copy + Eq + Debug + Send + Sync + 'static + sealed::Sealed {
    /// What an image calls it.
    const NUMBER: u8;

    /// Adds `weight` to the key whose cells, all different, are at these indices; gives the key's estimate with it.
    fn raise<W: Weight, const DEPTH: usize>(cells: &mut [W], key: [usize; DEPTH], weight: W) -> W;
}

/// Adds the weight to each of the key's cells. Sketches merge as if one had been fed everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {}

/// Raises each of the key's cells to the key's new estimate, and none that is higher already.
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
        // All are read before the first is written: the compiler does not know that they are different.
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

/// Of some cells the least, number by number. In pairs of pairs: a chain would take longer, so long that compilers make
/// branches of what follows, which nobody can foresee (with conservative update 11 ns instead of 5).
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
