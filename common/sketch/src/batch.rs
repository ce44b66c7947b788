//! Batches for the sketches that estimate frequencies. The work for each key is part of the sketch; the loops over
//! many keys are here.
//!
//! ```text
//! if the counters fit into the core's own cache:
//!     for each group of keys: find all places by vectors, then touch the cells of one key after the other
//! else for each key: prefetch the cells of a later key, touch its own
//! ```
//!
//! Estimates of keys that are in the cache do not depend on each other. So on a processor with fast gathers, vectors
//! read them, too.

use core::cell::Cell;

use super::Weight;
use crate::simd::{dispatch, gathers};

/// A batch prefetches the cells of sketches larger than this. Cells that fit into the core's own cache arrive sooner
/// than a prefetch would.
const PREFETCH_ABOVE_BYTES: usize = 1 << 20;
/// How many keys ahead it prefetches. With one line each, that is about as many lines as a core can wait for at once.
const AHEAD: usize = 16;
/// How many keys' places are found together.
pub const GROUP: usize = 64;

/// Returns true if there are so many counters that batches prefetch them.
pub const fn is_far<C>(counters: &[C]) -> bool {
    size_of_val(counters) > PREFETCH_ABOVE_BYTES
}

/// Finds the places of keys in a sketch. A place is `N` numbers.
pub trait Places<const N: usize> {
    /// The place of one key.
    fn of(&self, hash: u64) -> [u32; N];

    /// The places of many keys: `places[n][key]` is the n-th number of the key's place.
    fn of_group(&self, places: &mut [[u32; GROUP]; N], hashes: &[u64; GROUP]);
}

/// [`scale`](crate::hash::scale) to a number below 2^32, by digits of 32 bits, because vectors have no wider products.
#[inline(always)]
pub const fn scale_in_lanes(word: u64, end: usize) -> u32 {
    let end = end as u32 as u64;
    (((word >> 32) * end + ((word as u32 as u64 * end) >> 32)) >> 32) as u32
}

/// The block that a hash is scaled to; `None` if there are no blocks. The minimum, which never changes the index,
/// avoids a bounds check that compilers cannot remove on their own.
#[inline(always)]
pub fn block_in_lanes<B>(blocks: &[B], hash: u64) -> Option<&B> {
    let last = blocks.len().checked_sub(1)?;
    Some(&blocks[(scale_in_lanes(hash, blocks.len()) as usize).min(last)])
}

/// Calls `touch` with the place of each key of a batch and the value for it. If the counters are not in the core's
/// cache, it also calls `ask` with that place, some keys earlier.
///
/// Waiting for memory takes so long that finding places twice costs nothing.
#[inline(always)]
pub fn visit<T, C: AsRef<[T]>, V, const N: usize>(
    counters: &mut C,
    places: &impl Places<N>,
    (hashes, values): (&[u64], &[V]),
    ask: impl Fn(&[T], [u32; N]),
    touch: impl Fn(&mut C, [u32; N], &V),
) {
    let count = hashes.len().min(values.len());
    let (mut hashes, mut values) = (&hashes[..count], &values[..count]);
    let is_far = is_far(counters.as_ref());
    if !is_far {
        let mut found = [[0; GROUP]; N];
        while let (Some((group, hashes_after)), Some((of_group, values_after))) =
            (hashes.split_first_chunk(), values.split_first_chunk::<GROUP>())
        {
            places.of_group(&mut found, group);
            for key in 0..GROUP {
                touch(counters, core::array::from_fn(|number| found[number][key]), &of_group[key]);
            }
            (hashes, values) = (hashes_after, values_after);
        }
    }
    for (nth, (&hash, value)) in hashes.iter().zip(values).enumerate() {
        if is_far && let Some(&later) = hashes.get(nth + AHEAD) {
            ask(counters.as_ref(), places.of(later));
        }
        touch(counters, places.of(hash), value);
    }
}

/// Sets each element of the output to what `estimate` returns for the place of its key. Otherwise like [`visit`].
#[inline(always)]
pub fn estimate_each<T, W, const N: usize>(
    mut counters: &[T],
    places: &impl Places<N>,
    (hashes, estimates): (&[u64], &mut [W]),
    ask: impl Fn(&[T], [u32; N]),
    estimate: impl Fn(&[T], [u32; N]) -> W,
) {
    let estimates = Cell::from_mut(estimates).as_slice_of_cells();
    visit(&mut counters, places, (hashes, estimates), ask, |counters, place, result| {
        result.set(estimate(counters, place));
    });
}

/// Counters that can be read in lanes: an estimate takes loads and arithmetic, but no branches.
///
/// The compiler decides whether it uses gathers. If it uses none, the answers are the same, but a batch is slower than
/// single estimates; the benchmark shows this.
pub trait Lanes {
    /// The type of an estimate.
    type Weight: Weight;

    /// The estimate of a key, always inlined. Compilers use lanes only if they can prove that no index is out of
    /// bounds. If they cannot, the index must be clamped below the length.
    fn estimate(&self, hash: u64) -> Self::Weight;
}

/// Estimates all keys in lanes, and returns true, if that is faster on this processor. It is not for counters outside
/// of the core's own cache, because nothing is prefetched.
#[inline(always)]
pub fn estimate_in_lanes<L: Lanes>(counters: &L, hashes: &[u64], estimates: &mut [L::Weight]) -> bool {
    let gathers = gathers();
    if gathers {
        gather(counters, hashes, estimates);
    }
    gathers
}

dispatch! {
    fn gather<L: Lanes>(counters: &L, hashes: &[u64], estimates: &mut [L::Weight]) {
        // This is not a closure, because a closure that is not inlined is compiled for the portable level.
        for (estimate, &hash) in estimates.iter_mut().zip(hashes) {
            *estimate = counters.estimate(hash);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        hash::{mix, scale},
        simd::{Level, at_level, level},
    };

    /// Each level that this CPU has.
    pub fn levels() -> impl Iterator<Item = Level> {
        [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|at| *at <= level())
    }

    /// Asserts that estimates in lanes equal those of `estimate`, at each level.
    pub fn assert_lanes_are_estimates<L: Lanes>(counters: &L, hashes: &[u64], estimate: impl Fn(u64) -> L::Weight) {
        let expected: std::vec::Vec<_> = hashes.iter().map(|hash| estimate(*hash)).collect();
        for level in levels() {
            let mut estimates = std::vec![L::Weight::default(); hashes.len()];
            let results = &mut estimates[..];
            at_level!(level, <L: Lanes>(counters: &L, hashes: &[u64], results: &mut [L::Weight]) {
                results.iter_mut().zip(hashes).for_each(|(result, &hash)| *result = counters.estimate(hash));
            });
            assert_eq!(estimates, expected, "{level:?}");
        }
        let mut estimates = std::vec![L::Weight::default(); hashes.len()];
        gather(counters, hashes, &mut estimates);
        assert_eq!(estimates, expected);
    }

    #[test]
    fn scaling_in_lanes_is_scaling() {
        for end in [1, 2, 46, 1_360, u32::MAX as usize] {
            for word in [0, 1, u64::MAX, u64::MAX << 32, u32::MAX.into()].into_iter().chain((0..100).map(mix)) {
                assert_eq!(u64::from(scale_in_lanes(word, end)), scale(word, end as u64), "{word} of {end}");
            }
        }
    }

    /// Asserts that `place` finds for a group of keys the same as `places` for each key, at each level.
    pub fn assert_groups_are_their_keys<const N: usize>(
        places: &impl Places<N>,
        place: impl Fn(Level, &mut [[u32; GROUP]; N], &[u64; GROUP]),
    ) {
        let hashes = core::array::from_fn(|key| match key {
            0 => 0,
            1 => u64::MAX,
            _ => mix(key as u64),
        });
        let assert = |found: [[u32; GROUP]; N], level| {
            for (key, &hash) in hashes.iter().enumerate() {
                assert_eq!(core::array::from_fn(|number| found[number][key]), places.of(hash), "{key} at {level:?}");
            }
        };
        let mut found = [[7; GROUP]; N];
        places.of_group(&mut found, &hashes);
        assert(found, None);
        for level in levels() {
            let mut found = [[7; GROUP]; N];
            place(level, &mut found, &hashes);
            assert(found, Some(level));
        }
    }
}
