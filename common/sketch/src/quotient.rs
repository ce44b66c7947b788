//! Quotient filter: is this key here? For keys that come and go. It merges, and changes its size without the keys.
//!
//! A fingerprint is cut in two. The quotient says where the key lies; the remainder is what is kept there. The place
//! tells the quotient, so whole fingerprints can be read back, in order, and put into a filter of another size.
//!
//! Sixteen quotients share a cache line. Four bits for each quotient count its fingerprints. Their remainders follow
//! side by side, sorted. Remainders that have no room *spill* into the next line, before the remainders of that line.
//! So the same fingerprints always give the same bits, in whatever order they were inserted, removed and merged.
//!
//! **Errors**: only towards "yes", as long as nobody removes a key that was not inserted. A key is found until it was
//! removed as often as it was inserted. An absent key is found with a probability of 0.005 % at most, which is computed
//! exactly from the fingerprints. The rate grows in proportion when the filter is resized for more keys.
//!
//! **Cost** for 1,000,000 keys: 2.5 MiB (21 bits a key). A key has one cache line, and a few more when the filter is
//! nearly full.
//!
//! **Papers**: Bender, Farach-Colton, Johnson, Kraner, Kuszmaul, Medjedovic, Montes, Shetty, Spillane and Zadok, "Don't
//! thrash: how to cache your hash on flash", 2012. There, three bits for each slot mark runs, which are found by a
//! walk. Pandey, Bender, Johnson and Patro, "A general-purpose counting filter", 2017, find them by rank and select.
//! The counts that are used here cost two bits more, and one multiplication adds them up.
//!
//! **Why not a crate**: this one takes sizes other than powers of two, is twice as fast, and a merge that fails changes
//! nothing.

mod batch;
mod image;
mod line;

use alloc::{boxed::Box, vec};
use core::ops::Range;

use self::{
    batch::{contains_batch, insert_batch, remove_batch},
    line::{COUNT_BITS, Line},
};
use super::{Full, Geometry, MergeError, merge::check_mergeable};

/// The most lines: 4 GiB.
pub const LINES_MAX: usize = 1 << 26;
/// Remainders a line.
pub const SLOTS: usize = 27;
/// Quotients a line.
pub const QUOTIENTS: usize = 16;
/// The most fingerprints of one quotient: as many as four bits count.
pub const RUN_MAX: usize = 15;
/// Bits a remainder.
pub const REMAINDER_BITS: u32 = 16;

/// The planned load.
const LOAD: f64 = 0.9;
/// The load at which it is full, in percent. Insertion moves about 1 / (1 - load)^2 / 2 remainders: 50 at 90 %, 200
/// here.
const LOAD_MAX_PERCENT: u64 = 95;
/// From this size on, lines are prefetched. Smaller filters are in the second-level cache anyway.
const PREFETCH_BYTES: usize = 1 << 20;

/// A quotient filter of 16-bit remainders. It is a multiset: a key that was inserted twice is found until it was
/// removed twice. One key can be inserted 15 times at most.
///
/// ```
/// use weir_sketch::{Keyed, Quotient, hash::Key};
///
/// let [mut monday, mut tuesday] = [(); 2].map(|()| Quotient::with_key(Key([1, 2]), 100));
/// monday.insert("192.0.2.1")?;
/// tuesday.insert("192.0.2.2")?;
/// [&mut monday, &mut tuesday].into_iter().try_for_each(|day| day.resize(200))?;
/// monday.merge(&tuesday)?;
/// assert!(monday.contains("192.0.2.1") && monday.contains("192.0.2.2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Quotient {
    lines: Box<[Line]>,
    /// How many high bits of each hash are kept, by the place and the remainder together. Does not change when the
    /// filter is resized.
    fingerprint_bits: u32,
    /// How many fingerprints are in.
    items: u64,
    /// How many keys it was built for.
    capacity: u64,
    key_id: u64,
}

/// Where a fingerprint belongs, and what is kept there.
#[derive(Clone, Copy, Default, PartialEq)]
struct Place {
    quotient: u32,
    remainder: u16,
}

impl Place {
    #[inline(always)]
    const fn line(self) -> usize {
        self.quotient as usize / QUOTIENTS
    }

    /// Which of the quotients of its line it has.
    #[inline(always)]
    const fn nth(self) -> u32 {
        self.quotient % QUOTIENTS as u32
    }
}

impl Quotient {
    /// A filter for this many keys. More than [`LINES_MAX`] lines are not allocated: such a filter is full earlier.
    pub fn with_capacity(items: u64, key_id: u64) -> Self {
        let lines = lines_for(items);
        // So that the fingerprints of one quotient differ in their remainders.
        let fingerprint_bits = (lines * QUOTIENTS).ilog2() + REMAINDER_BITS;
        Self::of_lines(lines, fingerprint_bits, items.max(1), key_id)
    }

    fn of_lines(lines: usize, fingerprint_bits: u32, capacity: u64, key_id: u64) -> Self {
        // No more than the lines have room for.
        let capacity = capacity.min(libm::round((lines * SLOTS) as f64 * LOAD) as u64);
        let lines = vec![Line::default(); lines].into_boxed_slice();
        Self { lines, fingerprint_bits, items: 0, capacity, key_id }
    }

    /// Inserts the key with this hash once more, even if it is in already; returns whether it was absent.
    ///
    /// # Errors
    ///
    /// The filter is full, or one of its quotients is (see [`RUN_MAX`]). The filter did not change, and all keys that
    /// were inserted before are still found.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> Result<bool, Full> {
        self.insert_at(self.place(hash))
    }

    /// Whether the key with this hash is in; true by mistake with the probability [`Quotient::false_positive_rate`].
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        search(&self.lines, self.place(hash)).1
    }

    /// Removes one insertion of the key with this hash; returns whether there was one.
    ///
    /// Remove only keys that were inserted. An absent key that is found by mistake removes another key.
    #[inline]
    pub fn remove(&mut self, hash: u64) -> bool {
        self.remove_at(self.place(hash))
    }

    /// Inserts many keys, in order.
    ///
    /// # Errors
    ///
    /// As for one key. The keys before it are in.
    pub fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
        insert_batch(self, hashes)
    }

    /// Removes one insertion of each of many keys, in order; returns how many insertions there were.
    pub fn remove_batch(&mut self, hashes: &[u64]) -> u64 {
        remove_batch(self, hashes)
    }

    /// Looks up many keys: `found[i]` becomes what [`Quotient::contains`] returns for `hashes[i]`. Stops at the end of
    /// the shorter slice.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        contains_batch(self, hashes, found);
    }

    /// The fingerprints that are in, each as often as it was inserted, in ascending order. They are hashes whose low
    /// bits are zero. A filter of at most as many [`Quotient::fingerprint_bits`] that they are inserted into finds the
    /// same keys. Each costs a division of 128 bits.
    pub fn fingerprints(&self) -> impl Iterator<Item = u64> {
        self.places().map(|place| self.fingerprint(place))
    }

    /// Merges another filter into this one: afterwards it holds each key as often as both did together. It is the same
    /// filter, bit by bit, that all their keys would have made. (The work is done on a copy, so that nothing has
    /// changed if it fails.)
    ///
    /// # Errors
    ///
    /// They differ in geometry or key, or there is no room for what both hold: [`Quotient::resize`] both before. The
    /// filter did not change.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        let full = MergeError::Full { items: self.items + other.items, room: self.items_max() };
        if self.items + other.items > self.items_max() {
            return Err(full);
        }
        let mut merged = self.clone();
        other.places().try_for_each(|place| merged.insert_at(place).map(drop)).map_err(|_| full)?;
        *self = merged;
        Ok(())
    }

    /// Changes the number of keys that the filter has room for. It needs no keys. Fingerprints stay as they are, so the
    /// rate of false positives depends only on how many keys are in. It does not shrink to less than half of its first
    /// size, because remainders would be too short.
    ///
    /// # Errors
    ///
    /// The filter holds more than the new size has room for. It did not change.
    pub fn resize(&mut self, items: u64) -> Result<(), Full> {
        let lines_min = (1usize << (self.fingerprint_bits - REMAINDER_BITS)).div_ceil(QUOTIENTS);
        let lines = lines_for(items).max(lines_min);
        let mut resized = Self::of_lines(lines, self.fingerprint_bits, items.max(1), self.key_id);
        let full = Full { items: self.items, capacity: items, copies: 0 };
        self.fingerprints().try_for_each(|fingerprint| resized.insert(fingerprint).map(drop)).map_err(|_| full)?;
        *self = resized;
        Ok(())
    }

    /// Empties it. Writes every line, so that its pages become resident.
    // Not inlined: next to the allocation, compilers would leave the writes out.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.lines.fill(Line::default());
        self.items = 0;
    }

    /// How many insertions are in: a key counts as often as it was inserted and not removed.
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// How many keys it was built for.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many high bits of each hash it keeps.
    pub const fn fingerprint_bits(&self) -> u32 {
        self.fingerprint_bits
    }

    /// The share of slots that are taken.
    pub const fn fill(&self) -> f64 {
        self.items as f64 / (self.lines.len() * SLOTS) as f64
    }

    /// The exact probability that an absent key is found: the share of all fingerprints that are in. Reads the whole
    /// filter.
    pub fn false_positive_rate(&self) -> f64 {
        let mut before = None;
        let distinct = self.places().filter(|place| before.replace(*place) != Some(*place)).count();
        libm::ldexp(distinct as f64, -(self.fingerprint_bits as i32))
    }

    /// Whether it holds more than it was built for.
    pub const fn is_saturated(&self) -> bool {
        self.items > self.capacity
    }

    /// Its size and shape: sketches merge if these are equal.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Quotients { count: self.lines.len() * QUOTIENTS, fingerprint_bits: self.fingerprint_bits }
    }

    /// The fingerprint of the key that its hashes are made with.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes, in bytes, with itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.lines)
    }

    /// How many fingerprints go in. At least one slot stays free, so that spilled remainders find an end.
    const fn items_max(&self) -> u64 {
        (self.lines.len() * SLOTS) as u64 * LOAD_MAX_PERCENT / 100
    }

    /// The fingerprint times the number of quotients. The upper half of the product is the quotient. The lower half is
    /// how far into that quotient the fingerprint lies, and its high bits are the remainder. This needs no division,
    /// and allows any number of quotients.
    #[inline(always)]
    fn place(&self, hash: u64) -> Place {
        let fingerprint = hash & (u64::MAX << (u64::BITS - self.fingerprint_bits));
        let product = u128::from(fingerprint) * (self.lines.len() * QUOTIENTS) as u128;
        let remainder = (product as u64 >> (u64::BITS - REMAINDER_BITS)) as u16;
        Place { quotient: (product >> u64::BITS) as u32, remainder }
    }

    /// The fingerprint at a place: the first one that is not before it, because there is only one.
    fn fingerprint(&self, Place { quotient, remainder }: Place) -> u64 {
        let place = u128::from(quotient) << REMAINDER_BITS | u128::from(remainder);
        let quotients = (self.lines.len() * QUOTIENTS) as u128;
        let fingerprint = (place << (self.fingerprint_bits - REMAINDER_BITS)).div_ceil(quotients);
        (fingerprint as u64) << (u64::BITS - self.fingerprint_bits)
    }

    /// All fingerprints, in order.
    fn places(&self) -> impl Iterator<Item = Place> {
        let quotients = (self.lines.len() * QUOTIENTS) as u32;
        (0..quotients).map(|quotient| Place { quotient, remainder: 0 }).flat_map(move |place| {
            let run = self.lines[place.line()].run(place.nth());
            run.map(move |at| Place { remainder: remainder(&self.lines, place.line(), at), ..place })
        })
    }

    #[inline(always)]
    fn insert_at(&mut self, place: Place) -> Result<bool, Full> {
        let line = place.line();
        let (at, is_there) = search(&self.lines, place);
        if !self.has_room(place) || !self.open(line, at, place.remainder) {
            return Err(self.full(place));
        }
        self.count(place);
        Ok(!is_there)
    }

    /// The error of a key that finds no room.
    #[cold]
    fn full(&self, place: Place) -> Full {
        let run = self.lines[place.line()].run(place.nth());
        let copies = run.filter(|at| remainder(&self.lines, place.line(), *at) == place.remainder).count() as u64;
        Full { items: self.items, capacity: self.capacity, copies }
    }

    #[inline(always)]
    fn remove_at(&mut self, place: Place) -> bool {
        let (at, is_there) = search(&self.lines, place);
        if is_there {
            self.lines[place.line()].counts -= 1 << (COUNT_BITS * place.nth());
            self.close(place.line(), at);
            self.items -= 1;
        }
        is_there
    }

    /// Whether neither the filter nor the quotient is full.
    #[inline(always)]
    fn has_room(&self, place: Place) -> bool {
        self.items < self.items_max() && self.lines[place.line()].run(place.nth()).len() < RUN_MAX
    }

    #[inline(always)]
    fn count(&mut self, place: Place) {
        self.lines[place.line()].counts += 1 << (COUNT_BITS * place.nth());
        self.items += 1;
    }

    /// Inserts a remainder this many slots after the first slot of a line. The remainders from there on move by one, up
    /// to the first free slot. If that is too far away, nothing changes.
    #[inline(always)]
    fn open(&mut self, mut line: usize, mut at: usize, mut remainder: u16) -> bool {
        let mut is_last = self.lines[line].has_room();
        if !is_last && !self.can_spill(line) {
            return false;
        }
        loop {
            if at < SLOTS {
                remainder = self.lines[line].open(at, remainder);
                at = 0;
            } else {
                at -= SLOTS;
            }
            if is_last {
                return true;
            }
            line = after(&self.lines, line);
            is_last = self.lines[line].has_room();
            self.lines[line].spilled += 1;
        }
    }

    /// Removes the remainder this many slots after the first slot of a line. The remainders that had moved for it move
    /// back.
    fn close(&mut self, mut line: usize, mut at: usize) {
        loop {
            let next = after(&self.lines, line);
            let is_last = self.lines[next].spilled == 0;
            if at < SLOTS {
                let moved_back = if is_last { 0 } else { self.lines[next].remainders[0] };
                self.lines[line].close(at, moved_back);
                at = 0;
            } else {
                at -= SLOTS;
            }
            if is_last {
                return;
            }
            self.lines[next].spilled -= 1;
            line = next;
        }
    }

    /// Whether all lines up to the next one with room can count one more spilled remainder.
    ///
    /// There is a line with room, because never all slots are taken. Only keys that were chosen to collide spill that
    /// far.
    fn can_spill(&self, line: usize) -> bool {
        let mut next = after(&self.lines, line);
        while !self.lines[next].has_room() && self.lines[next].spilled < u16::MAX {
            next = after(&self.lines, next);
        }
        self.lines[next].spilled < u16::MAX
    }

    /// Whether lines probably come from memory.
    fn is_far(&self) -> bool {
        size_of_val(&*self.lines) > PREFETCH_BYTES
    }
}

/// How many lines have room for as many keys as planned.
fn lines_for(items: u64) -> usize {
    (libm::ceil(items.max(1) as f64 / SLOTS as f64 / LOAD) as usize).min(LINES_MAX)
}

/// How many slots after the first slot of its line a fingerprint belongs, and whether it is there.
#[inline(always)]
fn search(lines: &[Line], place: Place) -> (usize, bool) {
    let line = &lines[place.line()];
    let run = line.run(place.nth());
    if run.end > SLOTS {
        return search_spilled(lines, place, run);
    }
    let (smaller, is_there) = line.search(run.clone(), place.remainder);
    (run.start + smaller, is_there)
}

/// The same if the run ends in a later line.
#[inline(always)]
fn search_spilled(lines: &[Line], place: Place, Range { mut start, mut end }: Range<usize>) -> (usize, bool) {
    let (mut line, mut at, mut is_there) = (place.line(), start, false);
    loop {
        let (smaller, is_here) = lines[line].search(start.min(SLOTS)..end.min(SLOTS), place.remainder);
        at += smaller;
        is_there |= is_here;
        if end <= SLOTS {
            return (at, is_there);
        }
        (start, end) = (start.saturating_sub(SLOTS), end - SLOTS);
        line = after(lines, line);
    }
}

/// After the last line comes the first.
#[inline(always)]
fn after(lines: &[Line], line: usize) -> usize {
    if line + 1 < lines.len() { line + 1 } else { 0 }
}

/// The remainder this many slots after the first slot of a line.
fn remainder(lines: &[Line], line: usize, at: usize) -> u16 {
    lines[(line + at / SLOTS) % lines.len()].remainders[at % SLOTS]
}

#[cfg(test)]
mod tests;
