//! Handles two rare cases: a key may become a candidate, or a word is full. The code for all other records does not
//! include them, so it is short and has only one branch.

use core::hint::select_unpredictable;

use super::{Packed, WAYS, bucket::cell, counters::Counters, rounded::Rounded};
use crate::{Weight, coin::Coin};

/// A weight that arrives for a key.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a, W> {
    /// The hash of the key, which is not 0.
    pub hash: u64,
    pub packed: &'a Packed<W>,
    pub coin: Coin,
}

/// The place where a key becomes a candidate, and what its bucket knew about the key.
#[derive(Clone, Copy, Default)]
pub(super) struct Admission<W> {
    pub bucket: u32,
    pub way: u16,
    /// The number of the key in its chunk. The caller sets it.
    pub nth: u16,
    /// See [`Entry`](super::candidate::Entry).
    pub missed: W,
    /// See [`Entry`](super::candidate::Entry).
    pub likely: u64,
    /// The count of the key that had the place before; 0 if the place was free.
    pub counted_before: W,
}

impl<W: Weight> Counters<W> {
    /// Adds to a key, held or not, that counts in this slot. Returns the admission if the key becomes a candidate.
    #[cold]
    #[inline(never)]
    pub fn add_slowly(&mut self, at: usize, slot: usize, arrival: Arrival<'_, W>) -> Option<Admission<W>> {
        let admission = if slot < WAYS { None } else { self.admit(at, slot, arrival) };
        if admission.is_none() {
            self.add(at, slot, arrival.packed.weight);
        }
        admission
    }

    /// Gives the key the place of the smallest candidate, if the key may have a higher score, and the coin shows head
    /// for that candidate's present score. (Before, it was tossed for an earlier, lower score.)
    #[inline(always)]
    fn admit(&mut self, at: usize, light: usize, arrival: Arrival<'_, W>) -> Option<Admission<W>> {
        let Arrival { hash, packed, coin } = arrival;
        let Cheapest { way, score: price, next } = self.cheapest(at);
        self.buckets[at].set_price(price);
        let missed = self.most(at, light);
        let most = missed.score().saturating_add(packed.score);
        if most <= price || !coin.is_head(price) {
            return None;
        }
        let before = self.buckets[at].hashes[way];
        let counted_before = if before == 0 { W::default() } else { self.move_to(at, way, cell(before)) };
        // `likely` is the part of the missed weight that the key probably had itself. A key that needs a coin is
        // admitted, on average, when it has missed as much as the price. A key that needs no coin probably missed
        // nothing: an earlier record of this weight would have been admitted, because prices only grow. It nevertheless
        // competes with the whole credit, because otherwise one heavy key after the other would take the same place.
        let credit = price.min(missed.score());
        let likely = if coin.is_needed(price) { credit } else { 0 };
        self.set(at, way, packed.weight);
        let bucket = &mut self.buckets[at];
        bucket.hashes[way] = hash;
        bucket.credits[way] = Rounded::down(credit);
        // The new candidate may now have the smallest score of all.
        bucket.set_price(next.min(packed.score + bucket.credits[way].get()));
        Some(Admission { bucket: at as u32, way: way as u16, nth: 0, missed, likely, counted_before })
    }

    #[inline(always)]
    fn cheapest(&self, at: usize) -> Cheapest {
        let bucket = &self.buckets[at];
        let mut cheapest = Cheapest { way: 0, score: u64::MAX, next: u64::MAX };
        for way in 0..WAYS {
            let score = self.get(at, way).score() + bucket.credits[way].get();
            // A free way may have a count if the image comes from another program.
            let score = select_unpredictable(bucket.hashes[way] == 0, 0, score);
            let Cheapest { score: least, next, .. } = cheapest;
            let more = Cheapest { next: next.min(score), ..cheapest };
            cheapest = select_unpredictable(score < least, Cheapest { way, score, next: least }, more);
        }
        cheapest
    }
}

/// The way whose candidate has the smallest score.
#[derive(Clone, Copy)]
struct Cheapest {
    /// The first such way, if there are several. A free way has the score 0.
    way: usize,
    score: u64,
    /// The smallest score of the other ways.
    next: u64,
}
