//! The words of all buckets, and the few weights that do not fit into a word.

use alloc::{boxed::Box, vec, vec::Vec};

use super::bucket::{Bucket, HAS_LOST, HAS_SPILLED, SLOTS};
use crate::Weight;

/// Counters by bucket and slot. A count is exact unless it is marked as lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counters<W> {
    pub buckets: Box<[Bucket]>,
    pub spills: Spills<W>,
}

/// Weights that do not fit into their words, in the order of their places. There is room for few of them: before a
/// weight spills, a word must have counted some 33 million packets or 137 GB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spills<W> {
    weights: Vec<(u32, W)>,
    room: usize,
}

/// The place in this table for the weight of a slot.
const fn place(bucket: usize, slot: usize) -> u32 {
    (bucket * SLOTS + slot) as u32
}

impl<W: Weight> Spills<W> {
    fn find(&self, place: u32) -> Result<usize, usize> {
        self.weights.binary_search_by_key(&place, |(place, _)| *place)
    }

    fn get(&self, place: u32) -> W {
        self.find(place).map_or(W::default(), |at| self.weights[at].1)
    }

    /// Sets a weight. Returns whether there was room for it.
    fn set(&mut self, place: u32, weight: W) -> bool {
        match self.find(place) {
            Ok(at) => self.weights[at].1 = weight,
            Err(_) if self.weights.len() == self.room => return false,
            Err(at) => self.weights.insert(at, (place, weight)),
        }
        true
    }

    fn remove(&mut self, place: u32) {
        if let Ok(at) = self.find(place) {
            self.weights.remove(at);
        }
    }
}

impl<W: Weight> Counters<W> {
    pub fn new(buckets: Box<[Bucket]>) -> Self {
        let room = Self::room(buckets.len());
        Self { buckets, spills: Spills { weights: Vec::with_capacity(room), room } }
    }

    /// How many weights may spill with this many buckets.
    const fn room(buckets: usize) -> usize {
        64 + buckets / 4
    }

    /// The memory of this many buckets, including the weights that may spill.
    pub const fn bytes(buckets: usize) -> usize {
        buckets * size_of::<Bucket>() + Self::room(buckets) * size_of::<(u32, W)>()
    }

    /// The count of a slot; a lower bound if something was lost.
    #[inline(always)]
    pub fn get(&self, at: usize, slot: usize) -> W {
        let bucket = &self.buckets[at];
        let weight = W::unpack(bucket.words[slot]);
        if bucket.has(HAS_SPILLED) { weight.saturating_add(self.spills.get(place(at, slot))) } else { weight }
    }

    /// The largest possible count of a slot.
    #[inline(always)]
    pub fn most(&self, at: usize, slot: usize) -> W {
        if self.buckets[at].has(HAS_LOST) { W::by_number(|_| u64::MAX) } else { self.get(at, slot) }
    }

    /// Sets the count of a slot.
    #[inline(always)]
    pub fn set(&mut self, at: usize, slot: usize, weight: W) {
        let (bucket, word) = (&mut self.buckets[at], weight.pack());
        if word & W::GUARDS != 0 || bucket.has(HAS_SPILLED) {
            return self.set_large(at, slot, weight);
        }
        bucket.words[slot] = word;
    }

    #[cold]
    #[inline(never)]
    fn set_large(&mut self, at: usize, slot: usize, weight: W) {
        let (bucket, word) = (&mut self.buckets[at], weight.pack());
        bucket.words[slot] = if word & W::GUARDS == 0 {
            self.spills.remove(place(at, slot));
            word
        } else if self.spills.set(place(at, slot), weight) {
            bucket.mark(HAS_SPILLED);
            0
        } else {
            bucket.mark(HAS_LOST);
            // This is the largest weight that fits.
            weight.least(W::unpack(!W::GUARDS)).pack()
        };
    }

    /// Adds to the count of a slot.
    #[inline(always)]
    pub fn add(&mut self, at: usize, slot: usize, weight: W) {
        self.set(at, slot, self.get(at, slot).saturating_add(weight));
    }

    /// Adds the count of a slot to another one, and returns it. The caller must then set the first slot.
    #[inline(always)]
    pub fn move_to(&mut self, at: usize, slot: usize, to: usize) -> W {
        let weight = self.get(at, slot);
        self.add(at, to, weight);
        weight
    }

    /// Makes an empty bucket equal to that of another table.
    pub fn copy_bucket(&mut self, at: usize, other: &Self) {
        self.buckets[at] = other.buckets[at].clone();
        if other.buckets[at].has(HAS_SPILLED) {
            for slot in 0..SLOTS {
                self.set(at, slot, other.get(at, slot));
            }
        }
    }

    pub fn clear_bucket(&mut self, at: usize) {
        if self.buckets[at].has(HAS_SPILLED) {
            for slot in 0..SLOTS {
                self.spills.remove(place(at, slot));
            }
        }
        self.buckets[at] = Bucket::default();
    }

    /// Empties all buckets, and writes each of them.
    pub fn clear(&mut self) {
        self.buckets.fill(Bucket::default());
        self.spills.weights.clear();
        // Write every place, so that its page becomes resident.
        self.spills.weights.resize(self.spills.room, (0, W::default()));
        self.spills.weights.clear();
    }
}

/// Creates this many empty buckets.
pub(super) fn buckets(count: usize) -> Box<[Bucket]> {
    vec![Bucket::default(); count].into_boxed_slice()
}
