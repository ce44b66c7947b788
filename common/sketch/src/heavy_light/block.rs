//! One block of heavy and light counters: four large keys, and a cell for each of the others.

use core::{cmp::Reverse, hint::select_unpredictable};

use crate::Weight;

/// Ways per block: a way is the place of one large key.
pub const WAYS: usize = 4;
/// Light cells per block. With 32-bit counters and 16-bit cells, the block fills two cache lines.
pub const CELLS: usize = 46;

/// The counters that the keys of one block share. With 64-bit counters the part for large keys is in one cache line.
/// With any counters, everything that a small key reads of that part is in the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Block<W: Weight> {
    /// The fingerprints of the large keys; 0 if the way is free.
    pub fingerprints: [u32; WAYS],
    /// An upper bound of the weight of any key that is not large.
    pub ceiling: W,
    /// Upper bounds of the weights of the large keys.
    pub counts: [W; WAYS],
    /// The cells of all other keys, one cell per key. A cell is an upper bound of the key's weight, or it is full.
    pub light: [W::Narrow; CELLS],
}

impl<W: Weight> Default for Block<W> {
    fn default() -> Self {
        let (ceiling, counts, light) = Default::default();
        Self { fingerprints: [0; WAYS], ceiling, counts, light: [light; CELLS] }
    }
}

impl<W: Weight> Block<W> {
    /// Adds to a key. Returns an upper bound of its new weight.
    #[inline(always)]
    pub fn add(&mut self, fingerprint: u32, weight: W) -> W {
        let way = self.way(fingerprint);
        if way < WAYS {
            self.counts[way] = self.counts[way].saturating_add(weight);
            self.counts[way]
        } else {
            self.add_outside(fingerprint, weight)
        }
    }

    /// Adds to a key that is not one of the large keys. The weight goes to its light cell. If the key has outgrown the
    /// smallest large key, it takes that key's way instead.
    #[inline(always)]
    fn add_outside(&mut self, fingerprint: u32, weight: W) -> W {
        let upper = self.outside(fingerprint).saturating_add(weight);
        // The key that was evicted last was the smallest then. So no key below the ceiling can become large, and the
        // four counts need not be read.
        if upper.magnitude() <= self.ceiling.magnitude() || !self.replace_smallest(fingerprint, upper) {
            self.raise(fingerprint, upper);
        }
        upper
    }

    /// Makes a key large if it is larger than the smallest large key.
    fn replace_smallest(&mut self, fingerprint: u32, count: W) -> bool {
        let smallest =
            (1..WAYS).fold(
                0,
                |least, way| {
                    if self.counts[way].magnitude() < self.counts[least].magnitude() { way } else { least }
                },
            );
        let (evicted, evicted_count) = (self.fingerprints[smallest], self.counts[smallest]);
        if count.magnitude() <= evicted_count.magnitude() {
            // The smallest count is known now. Keys that have not outgrown it need not check again.
            self.ceiling = self.ceiling.most(evicted_count);
            return false;
        }
        (self.fingerprints[smallest], self.counts[smallest]) = (fingerprint, count);
        self.raise(evicted, evicted_count);
        true
    }

    /// Raises a key's light cell to the key's weight, if the cell is lower.
    #[inline(always)]
    fn raise(&mut self, fingerprint: u32, count: W) {
        self.ceiling = self.ceiling.most(count);
        let cell = &mut self.light[place(fingerprint)];
        *cell = W::from_narrow(*cell).most(count).narrow();
    }

    /// The way with this fingerprint; [`WAYS`] if there is none.
    #[inline(always)]
    pub fn way(&self, fingerprint: u32) -> usize {
        // All four are compared at once, without a branch. Bit 0 is not used, because a compiler would make it from the
        // comparison itself, treat one way unlike the others, and then compare one by one.
        const BITS: [u32; WAYS] = [2, 4, 8, 16];
        let bit = |way: usize| if self.fingerprints[way] == fingerprint { BITS[way] } else { 0 };
        let matches = core::array::from_fn::<_, WAYS, _>(bit).into_iter().fold(0, |matches, bit| matches | bit);
        // The four ways have bits 1 to 4. The fifth bit means that no way matches.
        (matches | 2 << WAYS).trailing_zeros() as usize - 1
    }

    /// An upper bound of the key's weight.
    #[inline(always)]
    pub fn upper(&self, fingerprint: u32) -> W {
        let way = self.way(fingerprint);
        // Both are read, and one is chosen without a branch, because the choice cannot be predicted.
        select_unpredictable(way < WAYS, self.counts[way % WAYS], self.outside(fingerprint))
    }

    /// An upper bound of the weight of a key that is not large: its light cell, or the ceiling if the cell is full.
    #[inline(always)]
    pub fn outside(&self, fingerprint: u32) -> W {
        W::from_narrow(self.light[place(fingerprint)]).least(self.ceiling)
    }

    /// Merges another block into this one. Neither is empty.
    pub fn merge_in(&mut self, other: &Self) {
        let mut large = [(0, W::default()); 2 * WAYS];
        for (entry, way) in large.iter_mut().zip(0..WAYS) {
            let fingerprint = self.fingerprints[way];
            if fingerprint != 0 {
                *entry = (fingerprint, self.counts[way].saturating_add(other.upper(fingerprint)));
            }
        }
        for (entry, way) in large[WAYS..].iter_mut().zip(0..WAYS) {
            let fingerprint = other.fingerprints[way];
            if fingerprint != 0 && self.way(fingerprint) == WAYS {
                *entry = (fingerprint, other.counts[way].saturating_add(self.outside(fingerprint)));
            }
        }
        // Equal magnitudes are ordered so that it does not matter which block is merged into which.
        large.sort_unstable_by_key(|&(fingerprint, count)| Reverse((count.magnitude(), fingerprint)));
        self.ceiling = self.ceiling.saturating_add(other.ceiling);
        for (cell, &other) in self.light.iter_mut().zip(&other.light) {
            *cell = W::from_narrow(*cell).saturating_add(W::from_narrow(other)).narrow();
        }
        let (stay, leave) = large.split_at(WAYS);
        for (way, &(fingerprint, count)) in stay.iter().enumerate() {
            (self.fingerprints[way], self.counts[way]) = (fingerprint, count);
        }
        leave.iter().for_each(|&(fingerprint, count)| self.raise(fingerprint, count));
    }
}

/// The low half of the hash, which the choice of the block does not use. It is never 0, which marks a free way.
#[inline(always)]
pub const fn fingerprint(hash: u64) -> u32 {
    match hash as u32 {
        0 => 1,
        fingerprint => fingerprint,
    }
}

/// A key's light cell. It depends only on the fingerprint, because nothing else is known about a key that is evicted.
#[inline(always)]
pub const fn place(fingerprint: u32) -> usize {
    let place = ((fingerprint as u64 * CELLS as u64) >> 32) as usize;
    // This is always true. It lets the compiler use lanes.
    if place < CELLS { place } else { CELLS - 1 }
}
