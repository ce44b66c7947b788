//! Two-choice filter: is this key present? It is for keys that come and go, at a speed that does not depend on how full
//! the filter is.
//!
//! The fingerprint of a key goes to the emptier one of two cache lines. A line has 31 slots, so lines fill so evenly
//! that a fingerprint hardly ever has to be moved to make room. A [`Cuckoo`](super::Cuckoo) filter slows down when it
//! is nearly full; this filter does not. In return its rate of false positives is eight times as high.
//!
//! **Errors**: only towards "yes", as long as no key is removed that was not inserted. A key is found until it was
//! removed as often as it was inserted. An absent key is found with a probability of at most 0.095 %, which can be
//! computed exactly from the fingerprints.
//!
//! **Cost** for 1,000,000 keys: 2.1 MiB (17.4 bits per key). A key has two cache lines.
//!
//! **Papers**: Azar, Broder, Karlin and Upfal, "Balanced allocations", 1994; Berenbrink, Czumaj, Steger and Vöcking,
//! "Balanced allocations: the heavily loaded case", 2000: the fullest line has hardly more than the average, for any
//! number of keys. Filters of such lines: Pandey, Conway, Durie, Bender, Farach-Colton and Johnson, "Vector quotient
//! filters", 2021. Their lines are divided once more, and a lookup also has to search inside the line.
//!
//! **Why not a crate**: there is none.

use alloc::{boxed::Box, vec};

use super::{
    Full, Geometry,
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
    partial_key::{Ahead, BATCH, Place, other},
    setting::{SettingError, check_room},
};
use crate::simd;

/// The most lines: 4 GiB.
pub const LINES_MAX: usize = 1 << 26;
/// Fingerprints per line.
pub const SLOTS: usize = 31;

/// The planned load. More keys can be inserted until the filter is [`Full`], at about 99 %.
const LOAD: f64 = 0.95;
/// Additional lines, for filters so small that chance matters.
const LINES_SPARE: f64 = 1.0;
/// From this size on, lines are prefetched. Smaller filters are in the second-level cache anyway.
const PREFETCH_BYTES: usize = 1 << 20;
/// Lower numbers are not fingerprints, so the count of a line cannot be mistaken for one.
const FINGERPRINT_MIN: u16 = SLOTS as u16 + 1;

/// A two-choice filter of 16-bit fingerprints. It is a multiset: a key that was inserted twice is found until it was
/// removed twice. A key can be inserted at most 62 times.
///
/// ```
/// use weir_sketch::{Keyed, TwoChoice, hash::Key};
///
/// let mut sessions = TwoChoice::with_key(Key([1, 2]), 1_000).unwrap();
/// let (begins, again) = (sessions.insert("session 7")?, sessions.insert("session 7")?);
/// assert!(begins && !again);
/// assert!(sessions.remove("session 7") && sessions.contains("session 7"), "it went in twice");
/// # Ok::<(), weir_sketch::Full>(())
/// ```
#[derive(Clone, Debug)]
pub struct TwoChoice {
    lines: Box<[Line]>,
    /// The number of stored fingerprints.
    items: u64,
    /// The number of keys that it was built for.
    capacity: u64,
    key_id: u64,
}

impl TwoChoice {
    /// A filter for this many keys. There is room for at most [`LINES_MAX`] lines.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_capacity(items: u64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(items)?;
        let lines = libm::ceil(items.max(1) as f64 / SLOTS as f64 / LOAD + LINES_SPARE) as usize;
        let lines = vec![Line::default(); lines.min(LINES_MAX)].into_boxed_slice();
        Ok(Self { capacity: items.max(1), lines, items: 0, key_id })
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// There is no room for so many keys.
    pub fn check(items: u64) -> Result<(), SettingError> {
        check_room("items", items, capacity_max(LINES_MAX))
    }

    /// Inserts the key with this hash once more, even if it is already present. Returns whether it was absent.
    ///
    /// # Errors
    ///
    /// There is no room. The filter is unchanged, and all keys that were inserted before are still found.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> Result<bool, Full> {
        let place = self.place(hash);
        let is_new = self.is_new(place);
        self.insert_at(place).map(|()| is_new)
    }

    /// Whether the key with this hash is present. This is true by mistake with the probability
    /// [`TwoChoice::false_positive_rate`].
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        self.holds(self.place(hash))
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
    /// See [`TwoChoice::insert`]. The keys before the failed one are inserted.
    pub fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
        let mut ahead = Ahead::<FINGERPRINT_MIN>::new(hashes, &self.lines, self.is_far());
        for hashes in hashes.chunks(BATCH) {
            let places = ahead.next(&self.lines);
            (0..hashes.len()).try_for_each(|nth| self.insert_at(places.get(nth)))?;
        }
        Ok(())
    }

    /// Removes one insertion of each of many keys, in order. Returns how many insertions there were.
    pub fn remove_batch(&mut self, hashes: &[u64]) -> u64 {
        remove_batch(self, hashes)
    }

    /// Looks up many keys: `found[i]` becomes what [`TwoChoice::contains`] returns for `hashes[i]`. Stops at the end of
    /// the shorter slice.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        contains_batch(&self.lines, self.is_far(), hashes, found);
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

    /// The share of used slots.
    pub const fn fill(&self) -> f64 {
        self.items as f64 / (self.lines.len() * SLOTS) as f64
    }

    /// The exact probability that an absent key is found, computed from the fingerprints: the share of all pairs of a
    /// first line and a fingerprint that are found. This reads the whole filter, and the other line of each
    /// fingerprint.
    pub fn false_positive_rate(&self) -> f64 {
        let fingerprints = f64::from(u16::MAX - FINGERPRINT_MIN) + 1.0;
        let found: u64 = (0..self.count()).map(|index| self.pairs_found_by(index)).sum();
        found as f64 / (self.lines.len() as f64 * fingerprints)
    }

    /// Whether it contains more keys than it was built for.
    pub const fn is_saturated(&self) -> bool {
        self.items > self.capacity
    }

    /// Its size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Blocks { count: self.lines.len() }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.lines)
    }

    #[inline(always)]
    fn insert_at(&mut self, Place { fingerprint, choices }: Place) -> Result<(), Full> {
        let [one, two] = choices;
        let mut choice = if self.line(one).count() <= self.line(two).count() { one } else { two };
        if !self.line(choice).has_room() {
            let with_room = choices.into_iter().find(|choice| self.make_room(*choice));
            choice = with_room.ok_or_else(|| self.full(Place { fingerprint, choices }))?;
        }
        self.lines[choice as usize].push(fingerprint);
        self.items += 1;
        Ok(())
    }

    /// The line is chosen without a branch, because it cannot be predicted which of the two has the fingerprint.
    #[inline(always)]
    fn remove_at(&mut self, Place { fingerprint, choices: [one, two] }: Place) -> bool {
        let (in_one, in_two) = (self.line(one).find(fingerprint), self.line(two).find(fingerprint));
        let (choice, slot) = if in_one < SLOTS { (one, in_one) } else { (two, in_two) };
        let is_there = slot < SLOTS;
        if is_there {
            self.lines[choice as usize].take(slot);
            self.items -= 1;
        }
        is_there
    }

    /// Moves one fingerprint of a full line to its other line. Returns whether one of these lines had room.
    ///
    /// One move is enough: some of the 31 other lines have room as long as one slot in a hundred is free.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, index: u32) -> bool {
        for slot in 0..SLOTS {
            let fingerprint = self.line(index).get(slot);
            let to = other(index, fingerprint, self.count());
            if self.line(to).has_room() {
                self.lines[index as usize].take(slot);
                self.lines[to as usize].push(fingerprint);
                return true;
            }
        }
        false
    }

    /// The error for a key that finds no room.
    #[cold]
    fn full(&self, Place { fingerprint, choices }: Place) -> Full {
        let lines = choices.map(|choice| self.line(choice));
        let slots = lines.iter().flat_map(|line| (0..line.count()).map(|slot| line.get(slot)));
        let copies = slots.filter(|other| *other == fingerprint).count() as u64;
        Full { items: self.items, capacity: self.capacity, copies }
    }

    /// How many pairs of a first line and a fingerprint are found because of this line. A fingerprint that both lines
    /// contain counts half in each.
    fn pairs_found_by(&self, index: u32) -> u64 {
        let line = self.line(index);
        (0..line.count())
            .map(|slot| {
                let fingerprint = line.get(slot);
                let is_repeated = line.find(fingerprint) != slot;
                let is_in_both = self.line(other(index, fingerprint, self.count())).holds(fingerprint);
                if is_repeated { 0 } else { 2 - u64::from(is_in_both) }
            })
            .sum()
    }

    /// This is not inlined, because next to writes compilers compare lane by lane, which takes four times as long.
    #[inline(never)]
    fn is_new(&self, place: Place) -> bool {
        !self.holds(place)
    }

    #[inline(always)]
    fn holds(&self, Place { fingerprint, choices: [one, two] }: Place) -> bool {
        self.line(one).holds(fingerprint) | self.line(two).holds(fingerprint)
    }

    /// Whether lines are probably not in a cache.
    fn is_far(&self) -> bool {
        size_of_val(&*self.lines) > PREFETCH_BYTES
    }

    fn count(&self) -> u32 {
        self.lines.len() as u32
    }

    #[inline(always)]
    fn line(&self, index: u32) -> &Line {
        &self.lines[index as usize]
    }

    #[inline(always)]
    pub(super) fn place(&self, hash: u64) -> Place {
        Place::of::<FINGERPRINT_MIN>(hash, self.count())
    }
}

impl Image for TwoChoice {
    const KIND: Kind = Kind::TwoChoice;

    fn write(&self, payload: &mut Writer) {
        let Self { lines, items: _, capacity, key_id: _ } = self;
        payload.varint(*capacity);
        payload.varint(lines.len() as u64);
        payload.numbers(Literal::Short, lines.iter().flat_map(|line| line.0).map(u64::from));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        const NUMBERS: usize = 1 + SLOTS;
        let capacity = payload.within("the capacity", 1..=u64::MAX, "at least 1", Reader::varint)?;
        let count = payload.within("the lines", 2..=LINES_MAX as u64, "from 2 to 2^26", Reader::varint)? as usize;
        let mut lines: Box<[Line]> = payload.allocate("the lines", count)?;
        let begin = payload.at();
        payload.numbers("a number of a line", Literal::Short, count * NUMBERS, |at, number| {
            let (line, nth) = (&mut lines[at / NUMBERS], at % NUMBERS);
            line.0[nth] = number as u16;
            let is_sound = if nth == 0 { line.count() <= SLOTS } else { line.get(nth - 1) >= FINGERPRINT_MIN };
            if is_sound { Ok(()) } else { Err("a count up to 31, or a fingerprint, which is at least 32") }
        })?;
        if let Some(line) = lines.iter().find(|line| !line.is_sound()) {
            let (found, expected) = (line.count() as u64, "the number of fingerprints, which come first");
            return Err(ImageError::Value { field: "the count of a line", at: begin, found, expected });
        }
        let items = lines.iter().map(|line| line.count() as u64).sum();
        Ok(Self { lines, items, capacity: capacity.min(capacity_max(count)), key_id })
    }
}

/// The number of keys for which this many lines have room.
fn capacity_max(lines: usize) -> u64 {
    ((lines * SLOTS) as f64 * LOAD) as u64
}

/// One cache line: the number of fingerprints, then the fingerprints side by side. Free slots are zero.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([u16; 1 + SLOTS]);

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    #[inline(always)]
    const fn count(&self) -> usize {
        self.0[0] as usize
    }

    #[inline(always)]
    const fn has_room(&self) -> bool {
        self.count() < SLOTS
    }

    #[inline(always)]
    const fn get(&self, slot: usize) -> u16 {
        self.0[1 + slot]
    }

    /// Whether as many slots are used as are counted, and these are the first ones.
    fn is_sound(&self) -> bool {
        let (taken, free) = self.0[1..].split_at(self.count());
        taken.iter().all(|fingerprint| *fingerprint != 0) && free.iter().all(|fingerprint| *fingerprint == 0)
    }

    /// Adds a fingerprint. There must be room.
    #[inline(always)]
    const fn push(&mut self, fingerprint: u16) {
        self.0[0] += 1;
        self.0[self.count()] = fingerprint;
    }

    /// Takes the fingerprint out of a slot. The last fingerprint moves there.
    #[inline(always)]
    const fn take(&mut self, slot: usize) {
        let last = self.count();
        self.0[1 + slot] = self.0[last];
        self.0[last] = 0;
        self.0[0] -= 1;
    }

    /// Whether a fingerprint is in this line. All slots are compared at once. (The count is compared, too, and equals
    /// no fingerprint.)
    #[inline(always)]
    fn holds(&self, fingerprint: u16) -> bool {
        self.0.iter().fold(0, |found, &lane| found | u16::from(lane == fingerprint)) != 0
    }

    /// The first slot with this fingerprint, or a number beyond the slots. All slots are compared at once, and each
    /// half makes a word of bits. The lowest bit is not used, because a compiler would treat it unlike the others, and
    /// not use lanes.
    #[inline(always)]
    fn find(&self, fingerprint: u16) -> usize {
        const HALF: usize = SLOTS.div_ceil(2);
        let [mut low, mut high] = [0u32; 2];
        for at in 0..HALF {
            low |= u32::from(self.0[at] == fingerprint) << (1 + at);
            high |= u32::from(self.0[HALF + at] == fingerprint) << (1 + at);
        }
        // The unused bit and the bit of the count come before the bit of the first slot.
        (u64::from(low) | u64::from(high) << HALF).trailing_zeros() as usize - 2
    }
}

simd::dispatch! {
    /// Removes keys in lanes.
    fn remove_batch(filter: &mut TwoChoice, hashes: &[u64]) -> u64 {
        remove_all(filter, hashes)
    }
}

/// Removes keys: finds places, then both lines of each.
#[inline(always)]
fn remove_all(filter: &mut TwoChoice, hashes: &[u64]) -> u64 {
    let mut ahead = Ahead::<FINGERPRINT_MIN>::new(hashes, &filter.lines, filter.is_far());
    let mut removed = 0;
    for hashes in hashes.chunks(BATCH) {
        let places = ahead.next(&filter.lines);
        for nth in 0..hashes.len() {
            removed += u64::from(filter.remove_at(places.get(nth)));
        }
    }
    removed
}

simd::dispatch! {
    /// Looks up keys in lanes.
    fn contains_batch(lines: &[Line], is_far: bool, hashes: &[u64], found: &mut [bool]) {
        find_batch(lines, is_far, hashes, found);
    }
}

/// Looks up keys: finds places, then both lines of each.
#[inline(always)]
fn find_batch(lines: &[Line], is_far: bool, hashes: &[u64], found: &mut [bool]) {
    let mut ahead = Ahead::<FINGERPRINT_MIN>::new(hashes, lines, is_far);
    for (hashes, found) in hashes.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
        let places = ahead.next(lines);
        for (nth, found) in found.iter_mut().enumerate().take(hashes.len()) {
            let Place { fingerprint, choices } = places.get(nth);
            let [one, two] = choices.map(|choice| &lines[choice as usize]);
            *found = one.holds(fingerprint) | two.holds(fingerprint);
        }
    }
}

/// For the tests that this filter shares with [`Cuckoo`](super::Cuckoo).
#[cfg(test)]
impl super::partial_key::laws::PartialKey for TwoChoice {
    const SLOTS: usize = SLOTS;
    const LOAD_WHEN_FULL: f64 = 0.98;
    const FEW: u64 = 70;
    const BITS_PER_KEY: core::ops::Range<f64> = 17.3..17.5;
    const OF_A_MILLION: Geometry = Geometry::Blocks { count: 33_957 };

    fn all_hashes(&self) -> impl Iterator<Item = u64> {
        super::partial_key::all_hashes::<FINGERPRINT_MIN>(self.count())
    }
    fn find_at(&self, level: simd::Level, hashes: &[u64], found: &mut [bool]) {
        let lines = &*self.lines;
        simd::at_level!(level, (lines: &[Line], hashes: &[u64], found: &mut [bool]) {
            find_batch(lines, true, hashes, found);
        });
    }
    fn remove_at_level(&mut self, level: simd::Level, hashes: &[u64]) -> u64 {
        let filter = self;
        simd::at_level!(level, (filter: &mut TwoChoice, hashes: &[u64]) -> u64 {
            remove_all(filter, hashes)
        })
    }
}
