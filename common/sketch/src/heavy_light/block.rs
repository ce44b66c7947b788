//! One block of heavy and light counters: four large keys, and a cell for each of the others.

use core::{cmp::Reverse, hint::select_unpredictable};

use crate::Weight;

/// Large keys a block.
pub const WAYS: usize = 4;
/// Light cells a block: with 32-bit counters and 16-bit cells it fills two cache lines.
pub const CELLS: usize = 46;

/// What the keys of one block share. With 64-bit counters the heavy part is in one cache line; with any, the first line
/// has what each small key reads of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Block<W: Weight> {
    /// Of the large keys; 0 where a way is free.
    pub fingerprints: [u32; WAYS],
    /// At least what any key had that is not large.
    pub ceiling: W,
    /// Of the large keys: at least what they had.
    pub counts: [W; WAYS],
    /// Of the other keys: one cell a key, which is at least what the key had, or full.
    pub light: [W::Narrow; CELLS],
}

impl<W: Weight> Default for Block<W> {
    fn default() -> Self {
        let (ceiling, counts, light) = Default::default();
        Self { fingerprints: [0; WAYS], ceiling, counts, light: [light; CELLS] }
    }
}

impl<W: Weight> Block<W> {
    /// Adds to a key; gives at least what it had and has now.
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

    /// Adds to a key that is in no way: in its light cell, or, if it has outgrown the smallest of the large keys, in
    /// its place.
    #[inline(always)]
    fn add_outside(&mut self, fingerprint: u32, weight: W) -> W {
        let upper = self.outside(fingerprint).saturating_add(weight);
        // What was put out last was the smallest then, so nothing below the ceiling gets in: four counts less to read.
        if upper.magnitude() <= self.ceiling.magnitude() || !self.replace_smallest(fingerprint, upper) {
            self.raise(fingerprint, upper);
        }
        upper
    }

    /// Lets a key in if it is larger than the smallest that is in.
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
            // The smallest is known now: what has not outgrown it either need not look.
            self.ceiling = self.ceiling.most(evicted_count);
            return false;
        }
        (self.fingerprints[smallest], self.counts[smallest]) = (fingerprint, count);
        self.raise(evicted, evicted_count);
        true
    }

    /// Raises a key's light cell to what it had, if that is not higher already.
    #[inline(always)]
    fn raise(&mut self, fingerprint: u32, count: W) {
        self.ceiling = self.ceiling.most(count);
        let cell = &mut self.light[place(fingerprint)];
        *cell = W::from_narrow(*cell).most(count).narrow();
    }

    /// The way with this fingerprint; [`WAYS`] if there is none.
    #[inline(always)]
    pub fn way(&self, fingerprint: u32) -> usize {
        // All four compared at once, without a branch: small keys are in no way. (Without bit 0: a compiler that makes
        // it of the comparison itself treats one way unlike the others, and then compares one by one.)
        const BITS: [u32; WAYS] = [2, 4, 8, 16];
        let bit = |way: usize| if self.fingerprints[way] == fingerprint { BITS[way] } else { 0 };
        let matches = core::array::from_fn::<_, WAYS, _>(bit).into_iter().fold(0, |matches, bit| matches | bit);
        // Four ways have bits 1 to 4; the fifth says that there is none.
        (matches | 2 << WAYS).trailing_zeros() as usize - 1
    }

    /// At least what the key had.
    #[inline(always)]
    pub fn upper(&self, fingerprint: u32) -> W {
        let way = self.way(fingerprint);
        // Both are read, and one is chosen without a branch: which it will be nobody can foresee.
        select_unpredictable(way < WAYS, self.counts[way % WAYS], self.outside(fingerprint))
    }

    /// At least what the key had while it was in no way: its light cell, or, where that is full, what no key outside
    /// exceeds.
    #[inline(always)]
    pub fn outside(&self, fingerprint: u32) -> W {
        W::from_narrow(self.light[place(fingerprint)]).least(self.ceiling)
    }

    /// Takes in another block, neither being empty.
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
        // Equal ranks in an order that does not depend on which of the two takes in the other.
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

/// The hash's low half, of which the number of a block reads nothing; never 0, which marks a free way.
#[inline(always)]
pub const fn fingerprint(hash: u64) -> u32 {
    match hash as u32 {
        0 => 1,
        fingerprint => fingerprint,
    }
}

/// A key's light cell. Only by the fingerprint: nothing else is known of a key that is put out.
#[inline(always)]
pub const fn place(fingerprint: u32) -> usize {
    let place = ((fingerprint as u64 * CELLS as u64) >> 32) as usize;
    // It always is; that tells the compiler so, which otherwise makes no lanes of it.
    if place < CELLS { place } else { CELLS - 1 }
}
