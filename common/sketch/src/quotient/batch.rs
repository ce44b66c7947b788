//! A quotient filter's batches. Each is compiled for several instruction sets, and prefetches lines.

use super::{Quotient, search};
use crate::{Full, simd};

/// How many keys' lines are prefetched at once.
const BATCH: usize = 32;

simd::dispatch! {
    /// Inserts keys in lanes.
    pub fn insert_batch(filter: &mut Quotient, hashes: &[u64]) -> Result<(), Full> {
        insert_all(filter, hashes)
    }
}

/// These are loops and not closures, because closures would be compiled for the portable level only.
#[inline(always)]
pub(super) fn insert_all(filter: &mut Quotient, hashes: &[u64]) -> Result<(), Full> {
    for hashes in hashes.chunks(BATCH) {
        prefetch(filter, hashes);
        for &hash in hashes {
            filter.insert_at(filter.place(hash))?;
        }
    }
    Ok(())
}

simd::dispatch! {
    /// Removes keys in lanes.
    pub fn remove_batch(filter: &mut Quotient, hashes: &[u64]) -> u64 {
        remove_all(filter, hashes)
    }
}

#[inline(always)]
pub(super) fn remove_all(filter: &mut Quotient, hashes: &[u64]) -> u64 {
    let mut removed = 0;
    for hashes in hashes.chunks(BATCH) {
        prefetch(filter, hashes);
        for &hash in hashes {
            removed += u64::from(filter.remove_at(filter.place(hash)));
        }
    }
    removed
}

simd::dispatch! {
    /// Looks up keys in lanes.
    pub fn contains_batch(filter: &Quotient, hashes: &[u64], found: &mut [bool]) {
        find_all(filter, hashes, found);
    }
}

#[inline(always)]
pub(super) fn find_all(filter: &Quotient, hashes: &[u64], found: &mut [bool]) {
    for (hashes, found) in hashes.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
        prefetch(filter, hashes);
        for (found, &hash) in found.iter_mut().zip(hashes) {
            *found = search(&filter.lines, filter.place(hash)).1;
        }
    }
}

/// Prefetches the lines of these keys if they are probably not in a cache. The places are computed again later, because
/// one multiplication costs less than storing them.
#[inline(always)]
fn prefetch(filter: &Quotient, hashes: &[u64]) {
    if filter.is_far() {
        hashes.iter().for_each(|&hash| simd::prefetch(&filter.lines[filter.place(hash).line()]));
    }
}
