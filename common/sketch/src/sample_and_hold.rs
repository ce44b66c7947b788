//! Sample and hold: which keys touch the most items, and how many? Each of a few keys has its own counter.
//!
//! The structure has room for a few keys. A key that it holds counts its items in its own memory: first in a set, and
//! when that is full, in registers. When a pair (a key and an item) arrives:
//!
//! ```text
//! held:      count the item
//! not held:  if the pair's hash is rare enough (about CHANCES of n pairs, where n is the smallest held key's items):
//!                replace the smallest held key, whose count is dropped
//!            else: ignore the pair
//! ```
//!
//! 1. The hash of a pair decides, not a coin. So a pair that appears again has no second chance, and no random numbers
//!    are needed.
//! 2. A new key inherits the score of the key that it replaces. So scores only grow, and pairs must be ever rarer: a
//!    flood of small keys replaces some thousand keys, and does not continue to replace them.
//!
//! **Errors**: the count since the key is held is exact up to some 0.4 items per register. Larger counts err in both
//! directions, by 0.761 / sqrt(registers). Items that the key touched before are missing: the lower bound leaves them
//! out, and the upper bound allows for them. A key that touches many items from the start is held almost from the
//! start.
//!
//! **Cost** for 32 keys and an error of 0.02: 64 KiB, 2,048 registers for each key. So up to 832 items are counted
//! exactly. A pair of a key that is not held takes a hash and a lookup in a small table. A pair of a held key also
//! takes its register, or two buckets of its set.
//!
//! **Papers**: sampling pairs by their hashes, to find keys that touch many items: Venkataraman, Song, Gibbons and
//! Blum, "New streaming algorithms for fast detection of superspreaders", 2005. Counting exactly once sampled: Estan
//! and Varghese, "New directions in traffic measurement and accounting", 2002. A new key that inherits the smallest
//! score: Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams",
//! 2005. Registers and estimates are those of [`UltraLogLog`](super::UltraLogLog).
//!
//! **Why not a crate**: no crate has it. [`Spread`](super::Spread) answers for every key, with wider bounds, and can be
//! merged exactly: use both together.

use alloc::{boxed::Box, vec, vec::Vec};
use core::cmp::Reverse;

mod counter;
mod image;
mod index;
mod missed;
mod poisson;
mod set;

use self::{
    counter::{Counter, Memory},
    index::Index,
    missed::Missed,
};
use super::{
    Estimate, Geometry, MergeError, Touch,
    hash::{combine, combine_all, mix, scale},
    merge::check_mergeable,
    normal::deviations,
    setting::{SettingError, check_error, check_room},
    spread::Spreader,
    ultraloglog,
};

/// How many pairs are hashed together.
const CHUNK: usize = 32;
/// The most keys for which a structure has room.
pub const KEYS_MAX: usize = 1 << 14;
/// A key is held, on average, after as many items as the smallest held key has, divided by this number.
const CHANCES: u64 = 2;
/// The number of places in which keys that leave are counted. If more keys leave, more new keys are mistaken for
/// returning ones.
const PLACES: usize = 1 << 13;
/// In how many ways a bound may fail: the real count is more or less than estimated, the count before the key left was
/// more than estimated, or the key waited longer than is likely.
const WAYS: f64 = 4.0;

/// Distinct counts of a few keys: those that touch the most items.
///
/// ```
/// use weir_sketch::{hash::{Key, sip}, SampleAndHold, Touch};
///
/// let key = Key([1, 2]);
/// let touch = |source: u32, destination: u32| Touch {
///     key: source,
///     key_hash: sip(key, &source.to_le_bytes()),
///     item_hash: sip(key, &destination.to_le_bytes()),
/// };
/// let mut hold = SampleAndHold::with_room(16, 0.02, key.id()).unwrap();
/// // A thousand sources with five destinations each, and one that scans.
/// for source in 0..1_000 {
///     (0..5).for_each(|destination| hold.insert(touch(source, destination)));
///     (0..2).for_each(|nth| hold.insert(touch(4_242, 2 * source + nth)));
/// }
/// let scanner = hold.held(&hold.margin(0, 0.001)).into_iter().max_by_key(|held| held.touched.value).unwrap();
/// assert_eq!(scanner.key, 4_242);
/// assert!(scanner.touched.lower <= 2_000 && 2_000 <= scanner.touched.upper);
/// ```
#[derive(Clone, Debug)]
pub struct SampleAndHold<K> {
    /// The held keys by place. The first places are used.
    held: Vec<Held<K>>,
    /// The counters by place.
    counters: Vec<Counter>,
    room: usize,
    /// The memory of the counters by place: two to the `precision` bytes each.
    memory: Box<[u8]>,
    /// A temporary buffer of the same size as one counter's memory.
    spare: Box<[u8]>,
    /// How many high bits of a hash choose the register.
    precision: u32,
    /// Finds the place of a key.
    index: Index,
    /// A lower bound of the scores of all held keys; 0 while there is room. Scores grow without updating it.
    price: u64,
    /// A pair's rarity must be at most this for its key to be held.
    limit: u64,
    /// How many keys were ever held. A key that returns counts each time.
    admitted: u64,
    /// How many structures were merged.
    tables: u32,
    /// How often keys left, by their hash.
    left: Box<[u8]>,
    key_id: u64,
}

/// The margins that the bounds of some keys need, so that all of them hold together.
#[derive(Clone, Debug)]
pub struct Margin {
    /// How many rare pairs a key waits for at most, by how often it left before.
    waits: Vec<f64>,
    /// The probability with which one bound may fail.
    probability: f64,
    /// A normal variable is farther than this many standard deviations from its mean, on either side, with twice that
    /// probability.
    deviations: f64,
    /// The price for which keys that are not held wait.
    price: u64,
}

/// A key that is held, with its hash.
#[derive(Clone, Copy, Debug)]
struct Held<K> {
    key: K,
    hash: u64,
    missed: Missed,
}

impl<K: Copy> SampleAndHold<K> {
    /// A structure that holds this many keys, at most [`KEYS_MAX`], and at least one. Counts that are not exact have at
    /// most this relative standard error, down to 0.0015.
    ///
    /// To find the k keys that touch the most items, use room for several times as many keys.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_room(keys: usize, relative_error: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(keys, relative_error)?;
        Ok(Self::of_precision(keys.max(1), ultraloglog::precision_for(relative_error), key_id))
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// There are more than [`KEYS_MAX`] keys, or the error is lower than 0.0015, or at least 1.
    pub fn check(keys: usize, relative_error: f64) -> Result<(), SettingError> {
        check_room("keys", keys as u64, KEYS_MAX as u64)?;
        check_error("relative_error", relative_error, ultraloglog::relative_error(ultraloglog::PRECISION_MAX))
    }

    fn of_precision(room: usize, precision: u32, key_id: u64) -> Self {
        Self {
            held: Vec::with_capacity(room),
            counters: Vec::with_capacity(room),
            room,
            memory: vec![0; room << precision].into_boxed_slice(),
            spare: vec![0; 1 << precision].into_boxed_slice(),
            precision,
            index: Index::with_room(room),
            price: 0,
            limit: u64::MAX,
            admitted: 0,
            tables: 1,
            left: vec![0; PLACES].into_boxed_slice(),
            key_id,
        }
    }

    /// Counts that a key touches an item. A pair counts only once, however often it is inserted.
    #[inline]
    pub fn insert(&mut self, touch: Touch<K>) {
        let Touch { key, key_hash, item_hash } = touch;
        self.insert_pair(key_hash, combine(key_hash, item_hash), || key);
    }

    /// Counts many pairs, given as columns: `key(i)`, whose hash is `key_hashes[i]`, touches the item with the hash
    /// `item_hashes[i]`. Stops at the end of the shorter column. `key` is called seldom.
    pub fn insert_batch(&mut self, key_hashes: &[u64], item_hashes: &[u64], key: impl Fn(usize) -> K) {
        let mut pairs = [0; CHUNK];
        for (nth, (keys, items)) in key_hashes.chunks(CHUNK).zip(item_hashes.chunks(CHUNK)).enumerate() {
            combine_all(keys, items, &mut pairs);
            self.insert_pairs(keys, &pairs[..keys.len().min(items.len())], |i| key(nth * CHUNK + i));
        }
    }

    /// [`SampleAndHold::insert_batch`] with the hash of each pair instead of its item: [`combine_all`] of both columns.
    pub fn insert_pairs(&mut self, key_hashes: &[u64], pairs: &[u64], key: impl Fn(usize) -> K) {
        let mut places = [None; CHUNK];
        for (nth, (keys, pairs)) in key_hashes.chunks(CHUNK).zip(pairs.chunks(CHUNK)).enumerate() {
            for ((&key_hash, &pair), place) in keys.iter().zip(pairs).zip(&mut places) {
                *place = self.place_of(key_hash);
                if let Some(place) = *place {
                    self.counters[place].prefetch(self.memory_of(place), self.precision, mix(pair));
                }
            }
            let admitted = self.admitted;
            for (at, ((&key_hash, &pair), place)) in keys.iter().zip(pairs).zip(&places).enumerate() {
                match place {
                    // The places are those of before, so they are looked up again once a key has taken one.
                    _ if self.admitted != admitted => self.insert_pair(key_hash, pair, || key(nth * CHUNK + at)),
                    Some(place) => self.count(*place, pair),
                    None if pair <= self.limit => self.admit(key_hash, pair, key(nth * CHUNK + at)),
                    None => (),
                }
            }
        }
    }

    #[inline(always)]
    fn insert_pair(&mut self, key_hash: u64, pair: u64, key: impl FnOnce() -> K) {
        if let Some(place) = self.place_of(key_hash) {
            self.count(place, pair);
        } else if pair <= self.limit {
            self.admit(key_hash, pair, key());
        }
    }

    #[inline(always)]
    fn count(&mut self, place: usize, pair: u64) {
        let (counter, memory) = self.counter(place);
        // The bits of the pair itself decided whether its key is held, so they are mixed again.
        counter.count(memory, mix(pair));
    }

    /// The counter in a place, and its memory.
    #[inline(always)]
    fn counter(&mut self, place: usize) -> (&mut Counter, Memory<'_>) {
        let bytes = &mut self.memory[place << self.precision..][..1 << self.precision];
        (&mut self.counters[place], Memory { bytes, spare: &mut self.spare, precision: self.precision })
    }

    /// Holds a key, if this pair is rare enough for the present score of the smallest held key.
    #[cold]
    #[inline(never)]
    fn admit(&mut self, hash: u64, pair: u64, key: K) {
        let (place, price) = if self.held.len() < self.room {
            (self.held.len(), self.price)
        } else {
            let (place, score) = self.smallest();
            (place, self.price.max(score))
        };
        self.set_price(price);
        if pair > self.limit {
            return;
        }
        let held = Held { key, hash, missed: Missed::new(price, self.left[place_of_leaver(hash)]) };
        self.place(place, held, Counter::new(price, self.precision));
        self.memory[place << self.precision..][..1 << self.precision].fill(0);
        self.admitted = self.admitted.saturating_add(1);
        self.count(place, pair);
    }

    /// Holds a key in this place, which may be in use.
    fn place(&mut self, place: usize, held: Held<K>, counter: Counter) {
        if place == self.held.len() {
            self.held.push(held);
            self.counters.push(counter);
        } else {
            let leaves = self.held[place].hash;
            self.index.remove(leaves, |place| self.held[place].hash);
            self.count_leaver(leaves);
            (self.held[place], self.counters[place]) = (held, counter);
        }
        self.index.insert(held.hash, place, |place| self.held[place].hash);
    }

    /// The place and the score of the held key with the smallest score, if any key is held.
    fn smallest(&self) -> (usize, u64) {
        let scores = self.counters.iter().map(|counter| counter.score());
        scores.enumerate().min_by_key(|(_, score)| *score).unwrap_or_default()
    }

    fn set_price(&mut self, price: u64) {
        self.price = price;
        self.limit = if price > CHANCES { u64::MAX / price * CHANCES } else { u64::MAX };
    }

    fn count_leaver(&mut self, hash: u64) {
        let times = &mut self.left[place_of_leaver(hash)];
        *times = times.saturating_add(1);
    }

    /// The margin with which the bounds of all held keys, and of this many others, hold together, except with the
    /// probability `failure`.
    pub fn margin(&self, others: usize, failure: f64) -> Margin {
        // This includes keys that were held and left, because a list shows keys that chance has favoured.
        let keys = self.admitted.saturating_add(others as u64).max(1);
        let probability = failure / WAYS / keys as f64;
        let most = self.left.iter().max().copied().unwrap_or(0);
        Margin {
            waits: missed::waits(most.into(), probability / f64::from(self.tables)),
            probability,
            deviations: deviations(1.0 - 2.0 * probability),
            price: self.price_now(),
        }
    }

    /// All held keys, in no particular order, with bounds that have this margin.
    pub fn held(&self, margin: &Margin) -> Vec<Spreader<K>> {
        let certainty = (margin.probability, margin.deviations);
        let memory = self.memory.chunks(1 << self.precision);
        let all = self.held.iter().zip(self.counters.iter().zip(memory));
        let touched = all.map(|(held, (counter, memory))| {
            let Estimate { value, lower, upper } = counter.items(memory, self.precision, certainty);
            let upper = upper.saturating_add(self.most(held.missed, margin));
            let touched = Estimate { value: value.saturating_add(held.missed.usual()).min(upper), lower, upper };
            Spreader { hash: held.hash, key: held.key, touched }
        });
        touched.collect()
    }

    /// The most items that a key that is not held touches, with bounds that have this margin. The value is the score of
    /// the smallest held key: a key that touched much more would be held.
    pub fn estimate_unheld(&self, key_hash: u64, margin: &Margin) -> Estimate {
        let upper = self.most(self.missed_by(key_hash, margin.price), margin);
        Estimate { value: margin.price.min(upper), lower: 0, upper }
    }

    fn most(&self, missed: Missed, margin: &Margin) -> u64 {
        missed.most(&margin.waits, margin.deviations * counter::relative_error(self.precision))
    }

    /// How many items a key that is not held may have touched, if it waits for this price.
    fn missed_by(&self, key_hash: u64, price: u64) -> Missed {
        Missed::new(price, self.left[place_of_leaver(key_hash)])
    }

    /// Merges another structure into this one. Bounds hold for the streams of both together. The keys with the largest
    /// scores stay.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        let price = self.price_now().saturating_add(other.price_now());
        let mut arriving: Vec<(usize, Held<K>)> = Vec::with_capacity(other.held.len());
        for (place, held) in other.held.iter().enumerate().filter(|(_, held)| self.place_of(held.hash).is_none()) {
            let missed = held.missed.and(self.missed_by(held.hash, self.price_now()));
            arriving.push((place, Held { missed, ..*held }));
        }
        for place in 0..self.held.len() {
            let held = &mut self.held[place];
            let Some(theirs) = other.place_of(held.hash) else {
                held.missed = held.missed.and(other.missed_by(held.hash, other.price_now()));
                continue;
            };
            held.missed = held.missed.and(other.held[theirs].missed);
            let (counter, memory) = self.counter(place);
            counter.merge(memory, other.counters[theirs], other.memory_of(theirs));
        }
        for (times, more) in self.left.iter_mut().zip(&other.left) {
            *times = times.saturating_add(*more);
        }
        self.admitted = self.admitted.saturating_add(other.admitted);
        self.tables = self.tables.saturating_add(other.tables);
        self.set_price(price);
        // The largest keys come first: when a key finds no place with a smaller score, it leaves, and so do the keys
        // after it. The hash decides among equals, so that the result does not depend on which one is merged into the
        // other.
        arriving.sort_unstable_by_key(|(theirs, held)| Reverse((other.counters[*theirs].score(), held.hash)));
        for (theirs, held) in arriving {
            self.receive(held, other.counters[theirs], other.memory_of(theirs));
        }
        Ok(())
    }

    /// Receives a key of another table. If there is no room, either the key or our smallest one leaves.
    fn receive(&mut self, held: Held<K>, counter: Counter, memory: &[u8]) {
        let mut place = self.held.len();
        if place == self.room {
            let worth = |place: usize| (self.counters[place].score(), self.held[place].hash);
            let Some(smallest) = (0..place).min_by_key(|place| worth(*place)) else { return };
            let (least, arriving) = (worth(smallest), (counter.score(), held.hash));
            self.set_price(self.price.max(least.min(arriving).0));
            if arriving < least {
                self.count_leaver(held.hash);
                return;
            }
            place = smallest;
        }
        self.place(place, held, counter);
        self.memory[place << self.precision..][..1 << self.precision].copy_from_slice(memory);
    }

    fn place_of(&self, hash: u64) -> Option<usize> {
        self.index.find(hash, |place| self.held[place].hash)
    }

    fn memory_of(&self, place: usize) -> &[u8] {
        &self.memory[place << self.precision..][..1 << self.precision]
    }

    /// The price for which a key that is not held waits; 0 while there is room.
    fn price_now(&self) -> u64 {
        if self.held.len() < self.room { self.price } else { self.price.max(self.smallest().1) }
    }

    /// Empties it, and writes every register, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        // The memory of unused places is already empty, but its pages may not be resident yet.
        self.memory.fill(0);
        self.spare.fill(0);
        self.left.fill(0);
        self.held.clear();
        self.counters.clear();
        self.index.clear();
        self.set_price(0);
        self.admitted = 0;
        self.tables = 1;
    }

    /// Makes an empty structure ready for hashes of another key.
    pub const fn rekey(&mut self, key_id: u64) {
        self.key_id = key_id;
    }

    /// The relative standard error of the count of a held key with many items.
    pub fn relative_error(&self) -> f64 {
        ultraloglog::relative_error(self.precision)
    }

    /// How many keys it can hold.
    pub const fn room(&self) -> usize {
        self.room
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Counters { count: self.room, registers: 1 << self.precision }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.held.capacity() * size_of::<Held<K>>()
            + self.counters.capacity() * size_of::<Counter>()
            + self.memory.len()
            + self.spare.len()
            + self.left.len()
            + self.index.memory_bytes()
    }
}

/// The place in which keys with this hash are counted when they leave.
const fn place_of_leaver(hash: u64) -> usize {
    scale(hash, PLACES as u64) as usize
}

#[cfg(test)]
mod tests;
