//! Quotient filter: is this key present? It is for keys that come and go. It can be merged, and resized without the
//! keys.
//!
//! A fingerprint is split into two parts. The quotient determines the place of the key; the remainder is stored there.
//! The place identifies the quotient, so whole fingerprints can be read back, in order, and put into a filter of
//! another size.
//!
//! Sixteen quotients share a cache line. Four bits for each quotient count its fingerprints. Their remainders follow
//! side by side, sorted. Remainders that do not fit *spill* into the next line, before the remainders of that line. So
//! the same fingerprints always give the same bits, in whatever order they were inserted, removed and merged.
//!
//! **Errors**: only towards "yes", as long as no key is removed that was not inserted. A key is found until it was
//! removed as often as it was inserted. An absent key is found with a probability of at most 0.005 %, which can be
//! computed exactly from the fingerprints. The rate grows in proportion if the filter is resized for more keys.
//!
//! **Cost** for 1,000,000 keys: 2.5 MiB (21 bits per key). A key has one cache line, and a few more when the filter is
//! nearly full.
//!
//! **Papers**: Bender, Farach-Colton, Johnson, Kraner, Kuszmaul, Medjedovic, Montes, Shetty, Spillane and Zadok, "Don't
//! thrash: how to cache your hash on flash", 2012. There, three bits for each slot mark runs, and a linear search finds
//! a run. Pandey, Bender, Johnson and Patro, "A general-purpose counting filter", 2017, use rank and select to find it.
//! The counts used here cost two bits more, and one multiplication adds them up.
//!
//! **Why not a crate**: this filter allows sizes other than powers of two, is twice as fast, and a merge that fails
//! changes nothing.

mod batch;
mod image;
mod line;

use alloc::{boxed::Box, vec};
use core::ops::Range;

use self::{
    batch::{contains_batch, insert_batch, remove_batch},
    line::{COUNT_BITS, Line},
};
use super::{
    Full, Geometry, MergeError,
    merge::check_mergeable,
    setting::{SettingError, check_room},
};

/// The most lines: 4 GiB.
pub const LINES_MAX: usize = 1 << 26;
/// The number of remainders per line.
pub const SLOTS: usize = 27;
/// The number of quotients per line.
pub const QUOTIENTS: usize = 16;
/// The most fingerprints of one quotient: the largest count in four bits.
pub const RUN_MAX: usize = 15;
/// The width of a remainder in bits.
pub const REMAINDER_BITS: u32 = 16;

/// The share of slots that are used when it has as many keys as planned.
const LOAD: f64 = 0.9;
/// The load at which the filter is full, in percent. An insertion moves about 1 / (1 - load)^2 / 2 remainders: 50 at 90
/// %, and 200 here.
const LOAD_MAX_PERCENT: u64 = 95;
/// From this size on, lines are prefetched. Smaller filters are in the second-level cache anyway.
const PREFETCH_BYTES: usize = 1 << 20;

/// A quotient filter of 16-bit remainders. It is a multiset: a key that was inserted twice is found until it was
/// removed twice. A key can be inserted at most 15 times.
///
/// ```
/// use weir_sketch::{Keyed, Quotient, hash::Key};
///
/// let [mut monday, mut tuesday] = [(); 2].map(|()| Quotient::with_key(Key([1, 2]), 100).unwrap());
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
    /// How many high bits of each hash are stored, by the place and the remainder together. Resizing the filter does
    /// not change this.
    fingerprint_bits: u32,
    /// The number of stored fingerprints.
    items: u64,
    /// The number of keys that it was built for.
    capacity: u64,
    key_id: u64,
}

/// The place of a fingerprint, and the part that is stored there.
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

    /// The number of its quotient within the line.
    #[inline(always)]
    const fn nth(self) -> u32 {
        self.quotient % QUOTIENTS as u32
    }
}

impl Quotient {
    /// A filter for this many keys. There is room for at most [`LINES_MAX`] lines.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_capacity(items: u64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(items)?;
        let lines = lines_for(items);
        // With this many bits, the fingerprints of one quotient differ in their remainders.
        let fingerprint_bits = (lines * QUOTIENTS).ilog2() + REMAINDER_BITS;
        Ok(Self::of_lines(lines, fingerprint_bits, items.max(1), key_id))
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// There is no room for so many keys.
    pub fn check(items: u64) -> Result<(), SettingError> {
        check_room("items", items, capacity_max(LINES_MAX))
    }

    fn of_lines(lines: usize, fingerprint_bits: u32, capacity: u64, key_id: u64) -> Self {
        // The capacity is no more than the lines have room for.
        let capacity = capacity.min(capacity_max(lines));
        let lines = vec![Line::default(); lines].into_boxed_slice();
        Self { lines, fingerprint_bits, items: 0, capacity, key_id }
    }

    /// Inserts the key with this hash once more, even if it is already present. Returns whether it was absent.
    ///
    /// # Errors
    ///
    /// The filter is full, or one of its quotients is (see [`RUN_MAX`]). The filter is unchanged, and all keys that
    /// were inserted before are still found.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> Result<bool, Full> {
        self.insert_at(self.place(hash))
    }

    /// Returns true if the key with this hash is present. This is true by mistake with the probability
    /// [`Quotient::false_positive_rate`].
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        search(&self.lines, self.place(hash)).1
    }

    /// Removes one insertion of the key with this hash. Returns whether there was one.
    ///
    /// Only remove keys that were inserted. Removing an absent key that is found by mistake removes another key.
    #[inline]
    pub fn remove(&mut self, hash: u64) -> bool {
        self.remove_at(self.place(hash))
    }

    /// Inserts many keys, in order.
    ///
    /// # Errors
    ///
    /// See [`Quotient::insert`]. The keys before the failed one are inserted.
    pub fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
        insert_batch(self, hashes)
    }

    /// Removes one insertion of each of many keys, in order. Returns how many insertions there were.
    pub fn remove_batch(&mut self, hashes: &[u64]) -> u64 {
        remove_batch(self, hashes)
    }

    /// Looks up many keys: `found[i]` becomes what [`Quotient::contains`] returns for `hashes[i]`. Stops at the end of
    /// the shorter slice.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        contains_batch(self, hashes, found);
    }

    /// The stored fingerprints, each as often as it was inserted, in ascending order. They are hashes whose low bits
    /// are zero. If they are inserted into a filter of at most as many [`Quotient::fingerprint_bits`], that filter
    /// finds the same keys. Each costs a division of 128 bits.
    pub fn fingerprints(&self) -> impl Iterator<Item = u64> {
        self.places().map(|place| self.fingerprint(place))
    }

    /// Merges another filter into this one. Afterwards it contains each key as often as both did together. It equals,
    /// bit by bit, the filter that was built from all their keys. (The work is done on a copy, so that a failure
    /// changes nothing.)
    ///
    /// # Errors
    ///
    /// The geometries or keys differ, or there is no room for the keys of both: use [`Quotient::resize`] on both
    /// before. The filter is unchanged.
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

    /// Changes the number of keys for which the filter has room. It does not need the keys. Fingerprints stay as they
    /// are, so the rate of false positives depends only on the number of stored keys. It does not shrink below half of
    /// its first size, because remainders would be too short.
    ///
    /// # Errors
    ///
    /// The filter contains more keys than the new size has room for. It is unchanged.
    pub fn resize(&mut self, items: u64) -> Result<(), Full> {
        let lines_min = (1usize << (self.fingerprint_bits - REMAINDER_BITS)).div_ceil(QUOTIENTS);
        let lines = lines_for(items).max(lines_min);
        let mut resized = Self::of_lines(lines, self.fingerprint_bits, items.max(1), self.key_id);
        let full = Full { items: self.items, capacity: items, copies: 0 };
        self.fingerprints().try_for_each(|fingerprint| resized.insert(fingerprint).map(drop)).map_err(|_| full)?;
        *self = resized;
        Ok(())
    }

    /// Empties it, and writes every line, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.lines.fill(Line::default());
        self.items = 0;
    }

    /// The number of stored insertions: a key counts as often as it was inserted and not removed.
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// The number of keys that it was built for.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many high bits of each hash it stores.
    pub const fn fingerprint_bits(&self) -> u32 {
        self.fingerprint_bits
    }

    /// The share of used slots.
    pub const fn fill(&self) -> f64 {
        self.items as f64 / (self.lines.len() * SLOTS) as f64
    }

    /// The exact probability that an absent key is found: the share of all possible fingerprints that are stored. This
    /// reads the whole filter.
    pub fn false_positive_rate(&self) -> f64 {
        let mut before = None;
        let distinct = self.places().filter(|place| before.replace(*place) != Some(*place)).count();
        libm::ldexp(distinct as f64, -(self.fingerprint_bits as i32))
    }

    /// Returns true if it contains more keys than it was built for.
    pub const fn is_saturated(&self) -> bool {
        self.items > self.capacity
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Quotients { count: self.lines.len() * QUOTIENTS, fingerprint_bits: self.fingerprint_bits }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.lines)
    }

    /// How many fingerprints can be stored. At least one slot stays free, so that spilled remainders find an end.
    const fn items_max(&self) -> u64 {
        (self.lines.len() * SLOTS) as u64 * LOAD_MAX_PERCENT / 100
    }

    /// The place of a hash, from the fingerprint times the number of quotients. The upper half of the product is the
    /// quotient. The lower half is the position within that quotient, and its high bits are the remainder. This needs
    /// no division, and allows any number of quotients.
    #[inline(always)]
    fn place(&self, hash: u64) -> Place {
        let fingerprint = hash & (u64::MAX << (u64::BITS - self.fingerprint_bits));
        let product = u128::from(fingerprint) * (self.lines.len() * QUOTIENTS) as u128;
        let remainder = (product as u64 >> (u64::BITS - REMAINDER_BITS)) as u16;
        Place { quotient: (product >> u64::BITS) as u32, remainder }
    }

    /// The fingerprint at a place. There is only one: the first that is not before the place.
    fn fingerprint(&self, Place { quotient, remainder }: Place) -> u64 {
        let place = u128::from(quotient) << REMAINDER_BITS | u128::from(remainder);
        let quotients = (self.lines.len() * QUOTIENTS) as u128;
        let fingerprint = (place << (self.fingerprint_bits - REMAINDER_BITS)).div_ceil(quotients);
        (fingerprint as u64) << (u64::BITS - self.fingerprint_bits)
    }

    /// The places of all fingerprints, in order.
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

    /// The error for a key that finds no room.
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

    /// Returns true if there is room both in the filter and in the quotient.
    #[inline(always)]
    fn has_room(&self, place: Place) -> bool {
        self.items < self.items_max() && self.lines[place.line()].run(place.nth()).len() < RUN_MAX
    }

    #[inline(always)]
    fn count(&mut self, place: Place) {
        self.lines[place.line()].counts += 1 << (COUNT_BITS * place.nth());
        self.items += 1;
    }

    /// Inserts a remainder this many slots after the first slot of a line. The remainders from there on move by one
    /// slot, up to the first free slot. If that slot is too far away, nothing changes.
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

    /// Returns true if all lines up to the next one with room can count one more spilled remainder.
    ///
    /// There is a line with room, because at least one slot is always free. Only keys that were chosen to collide spill
    /// that far.
    fn can_spill(&self, line: usize) -> bool {
        let mut next = after(&self.lines, line);
        while !self.lines[next].has_room() && self.lines[next].spilled < u16::MAX {
            next = after(&self.lines, next);
        }
        self.lines[next].spilled < u16::MAX
    }

    /// Returns true if lines are probably not in a cache.
    fn is_far(&self) -> bool {
        size_of_val(&*self.lines) > PREFETCH_BYTES
    }
}

/// The number of keys for which this many lines have room.
fn capacity_max(lines: usize) -> u64 {
    libm::round((lines * SLOTS) as f64 * LOAD) as u64
}

/// How many lines are needed for this many planned keys.
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

/// The same for a run that ends in a later line.
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

/// The next line. The first line follows the last one.
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
