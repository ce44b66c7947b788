//! Two-choice filter: is this key here, and has not been removed? At a speed that does not depend on how full it is.
//!
//! A key's fingerprint goes to the emptier one of two cache lines: with 31 slots a line, that fills lines so evenly
//! that hardly ever a fingerprint must move to make room. So there is no cliff, as a [`Cuckoo`](super::Cuckoo) filter
//! has, at the price of a rate of false positives eight times as high.
//!
//! **Errs** only towards "yes", as long as nothing is removed that was not inserted: a key is found as often as it was
//! inserted and not removed. A foreign key is found at 0.09 % at most, computed exactly from the fingerprints.
//!
//! **Cost** for 1,000,000 keys: 2.1 MiB (17.4 bits a key); two cache lines a key.
//!
//! **Papers**: Azar, Broder, Karlin and Upfal, "Balanced allocations", 1994; Berenbrink, Czumaj, Steger and Vöcking,
//! "Balanced allocations: the heavily loaded case", 2000: however many keys, the fullest line has hardly more than the
//! average. Filters of such lines: Pandey, Conway, Durie, Bender, Farach-Colton and Johnson, "Vector quotient filters",
//! 2021, where lines are divided once more, at the price of finding the way inside them.
//!
//! **Why not a crate**: there is none.

use alloc::{boxed::Box, vec};

use super::{
    Filter, Full, Geometry, Remove, Sketch,
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
    partial_key::{Ahead, BATCH, Place, other},
};
use crate::simd;

/// Lines at most: 4 GiB.
pub const LINES_MAX: usize = 1 << 26;
/// Fingerprints a line.
pub const SLOTS: usize = 31;

/// The load that is planned for; more goes in until it is [`Full`], at about 99 %.
const LOAD: f64 = 0.95;
/// Lines beyond the planned load, for filters so small that chance matters.
const LINES_SPARE: f64 = 1.0;
/// From this size on, lines are asked for ahead: below, they are in the second-level cache anyway.
const PREFETCH_BYTES: usize = 1 << 20;
/// Lower numbers are no fingerprints: so a line's count cannot be taken for one.
const FINGERPRINT_MIN: u16 = SLOTS as u16 + 1;

/// A two-choice filter of 16-bit fingerprints: a multiset, so that a key that was inserted twice is found until it was
/// removed twice. One key goes in 62 times at most.
///
/// ```
/// use weir_sketch::{Keyed, TwoChoice, hash::Key};
///
/// let mut flows = Keyed::new(Key([1, 2]), |key_id| TwoChoice::with_capacity(1_000, key_id));
/// let (begins, again) = (flows.insert("a flow")?, flows.insert("a flow")?);
/// assert!(begins && !again);
/// assert!(flows.remove("a flow") && flows.contains("a flow"), "it went in twice");
/// # Ok::<(), weir_sketch::Full>(())
/// ```
#[derive(Clone, Debug)]
pub struct TwoChoice {
    lines: Box<[Line]>,
    /// How many fingerprints are in.
    items: u64,
    /// How many keys it was planned for.
    capacity: u64,
    key_id: u64,
}

impl TwoChoice {
    /// A filter for as many keys. More than [`LINES_MAX`] lines are not built: then it is full before.
    pub fn with_capacity(items: u64, key_id: u64) -> Self {
        let lines = libm::ceil(items.max(1) as f64 / SLOTS as f64 / LOAD + LINES_SPARE) as usize;
        let lines = vec![Line::default(); lines.min(LINES_MAX)].into_boxed_slice();
        Self { capacity: items.clamp(1, capacity_max(lines.len())), lines, items: 0, key_id }
    }

    /// Inserts the key with this hash, also if it is there already; tells whether it was absent.
    ///
    /// # Errors
    ///
    /// No room was found: nothing has changed, and everything inserted before is still found.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> Result<bool, Full> {
        let place = self.place(hash);
        let is_new = self.is_new(place);
        self.insert_at(place).map(|()| is_new)
    }

    /// Whether the key with this hash is in; wrongly true at [`TwoChoice::false_positive_rate`].
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        self.holds(self.place(hash))
    }

    /// Removes one insertion of the key with this hash; tells whether there was one.
    ///
    /// Remove only what was inserted: a foreign key that is found by mistake takes another key with it.
    #[inline]
    pub fn remove(&mut self, hash: u64) -> bool {
        self.remove_at(self.place(hash))
    }

    /// Inserts many keys, one after the other.
    ///
    /// # Errors
    ///
    /// As for one; those before it are in.
    pub fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
        let mut ahead = Ahead::<FINGERPRINT_MIN>::new(hashes, &self.lines, self.is_far());
        for hashes in hashes.chunks(BATCH) {
            let places = ahead.next(&self.lines);
            (0..hashes.len()).try_for_each(|nth| self.insert_at(places.get(nth)))?;
        }
        Ok(())
    }

    /// Removes one insertion of each of many keys, one after the other; tells of how many there was one.
    pub fn remove_batch(&mut self, hashes: &[u64]) -> u64 {
        remove_batch(self, hashes)
    }

    /// Looks up many keys: `found[i]` is what [`TwoChoice::contains`] says of `hashes[i]`. Looks at as many as the
    /// shorter of the two has.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        contains_batch(&self.lines, self.is_far(), hashes, found);
    }

    /// Forgets everything; writes every line. (Not inlined: next to the allocation, the writes would be optimised out,
    /// and the pages would not become resident.)
    #[inline(never)]
    pub fn clear(&mut self) {
        self.lines.fill(Line::default());
        self.items = 0;
    }

    /// How many keys are in, each as often as it was inserted and not removed.
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// How many keys it was planned for.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The share of slots that are taken.
    pub const fn fill(&self) -> f64 {
        self.items as f64 / (self.lines.len() * SLOTS) as f64
    }

    /// The probability that a foreign key is found, exactly, from the fingerprints: of all pairs of a first line and a
    /// fingerprint, the share that finds one. Reads the whole filter, and for each fingerprint its other line.
    pub fn false_positive_rate(&self) -> f64 {
        let fingerprints = f64::from(u16::MAX - FINGERPRINT_MIN) + 1.0;
        let found: u64 = (0..self.count()).map(|index| self.pairs_found_by(index)).sum();
        found as f64 / (self.lines.len() as f64 * fingerprints)
    }

    /// Whether it holds more than it was planned for.
    pub const fn is_saturated(&self) -> bool {
        self.items > self.capacity
    }

    /// Its size and shape.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Blocks { count: self.lines.len() }
    }

    /// The fingerprint of the hash key.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// Everything it occupies, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.lines)
    }

    #[inline(always)]
    fn insert_at(&mut self, Place { fingerprint, choices }: Place) -> Result<(), Full> {
        let [one, two] = choices;
        let mut choice = if self.line(one).count() <= self.line(two).count() { one } else { two };
        if !self.line(choice).has_room() {
            let full = Full { items: self.items, capacity: self.capacity };
            choice = choices.into_iter().find(|choice| self.make_room(*choice)).ok_or(full)?;
        }
        self.lines[choice as usize].push(fingerprint);
        self.items += 1;
        Ok(())
    }

    /// Which line has the fingerprint cannot be foreseen: it is chosen without a branch.
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

    /// Moves one fingerprint of a full line to its other line; tells whether one of them has room.
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

    /// How many pairs of a first line and a fingerprint are found because of this line, if those that both lines hold
    /// count half in each.
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

    /// (Not inlined: next to writes, the compiler compares lane by lane, at four times the cost.)
    #[inline(never)]
    fn is_new(&self, place: Place) -> bool {
        !self.holds(place)
    }

    #[inline(always)]
    fn holds(&self, Place { fingerprint, choices: [one, two] }: Place) -> bool {
        self.line(one).holds(fingerprint) | self.line(two).holds(fingerprint)
    }

    /// Whether lines must be expected to come from memory.
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

impl Sketch for TwoChoice {
    fn geometry(&self) -> Geometry {
        self.geometry()
    }
    fn key_id(&self) -> u64 {
        self.key_id
    }
    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
    fn clear(&mut self) {
        self.clear();
    }
}

impl Filter for TwoChoice {
    fn insert(&mut self, hash: u64) -> Result<bool, Full> {
        self.insert(hash)
    }
    fn contains(&self, hash: u64) -> bool {
        self.contains(hash)
    }
    fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
        self.insert_batch(hashes)
    }
    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        self.contains_batch(hashes, found);
    }
    fn fill(&self) -> f64 {
        self.fill()
    }
    fn false_positive_rate(&self) -> f64 {
        self.false_positive_rate()
    }
    fn is_saturated(&self) -> bool {
        self.is_saturated()
    }
}

impl Remove for TwoChoice {
    fn remove(&mut self, hash: u64) -> bool {
        self.remove(hash)
    }
    fn remove_batch(&mut self, hashes: &[u64]) -> u64 {
        self.remove_batch(hashes)
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

/// How many keys so many lines are for, at most.
fn capacity_max(lines: usize) -> u64 {
    ((lines * SLOTS) as f64 * LOAD) as u64
}

/// One cache line: how many fingerprints there are, and then they, side by side; the slots that are free are zero.
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

    /// Whether as many slots are taken as are counted, and those are the first.
    fn is_sound(&self) -> bool {
        let (taken, free) = self.0[1..].split_at(self.count());
        taken.iter().all(|fingerprint| *fingerprint != 0) && free.iter().all(|fingerprint| *fingerprint == 0)
    }

    /// Needs room.
    #[inline(always)]
    const fn push(&mut self, fingerprint: u16) {
        self.0[0] += 1;
        self.0[self.count()] = fingerprint;
    }

    /// Takes the fingerprint out of a slot; the last one takes its place.
    #[inline(always)]
    const fn take(&mut self, slot: usize) {
        let last = self.count();
        self.0[1 + slot] = self.0[last];
        self.0[last] = 0;
        self.0[0] -= 1;
    }

    /// Whether a fingerprint is here: all are compared at once. (The count is compared too, and equals none.)
    #[inline(always)]
    fn holds(&self, fingerprint: u16) -> bool {
        self.0.iter().fold(0, |found, &lane| found | u16::from(lane == fingerprint)) != 0
    }

    /// The first slot with this fingerprint, or a number beyond them: all are compared at once, each half to a word of
    /// bits. (None of them is the lowest, which would be one of its own kind, and keep the compiler from lanes.)
    #[inline(always)]
    fn find(&self, fingerprint: u16) -> usize {
        const HALF: usize = SLOTS.div_ceil(2);
        let [mut low, mut high] = [0u32; 2];
        for at in 0..HALF {
            low |= u32::from(self.0[at] == fingerprint) << (1 + at);
            high |= u32::from(self.0[HALF + at] == fingerprint) << (1 + at);
        }
        // Before the first slot are the bit that is none and the count's.
        (u64::from(low) | u64::from(high) << HALF).trailing_zeros() as usize - 2
    }
}

simd::dispatch! {
    /// Removes keys in lanes.
    fn remove_batch(filter: &mut TwoChoice, hashes: &[u64]) -> u64 {
        remove_all(filter, hashes)
    }
}

/// Removes keys: places, then both lines of each.
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

/// Looks up keys: places, then both lines of each.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{oracle::hash, partial_key::all_hashes, simd::Level};
    use std::{format, vec::Vec};

    #[test]
    fn it_takes_what_was_planned_at_any_size_and_more() {
        for items in [1, 20, 31, 32, 50, 333, 1_000, 20_000].into_iter().take(crate::test_size::of(8, 6)) {
            let mut filter = TwoChoice::with_capacity(items, 7);
            let full = (0..).map(|item| filter.insert(hash(items, item))).find_map(Result::err).unwrap();
            assert_eq!(full, Full { items: filter.items(), capacity: items });
            assert!(full.items >= items && filter.is_saturated(), "{full}");
            assert!(items < 1_000 || filter.fill() > 0.98, "{}", filter.fill());
        }
    }

    #[test]
    fn one_key_goes_in_sixty_two_times() {
        let mut filter = TwoChoice::with_capacity(1_000, 7);
        let twins = (0..).take_while(|_| filter.insert(hash(1, 1)).is_ok()).count();
        assert_eq!(twins, 2 * SLOTS);
        assert!((0..twins).all(|_| filter.remove(hash(1, 1))));
        assert!(!filter.remove(hash(1, 1)) && filter.items() == 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "every hash there is: says nothing about memory")]
    fn the_rate_is_exact() {
        // Some keys twice, so that they lie in one place twice, or in both.
        let mut filter = TwoChoice::with_capacity(70, 7);
        (0..12).chain(0..4).chain(0..2).for_each(|item| assert!(filter.insert(hash(1, item)).is_ok()));
        let hashes = all_hashes::<FINGERPRINT_MIN>(filter.count());
        let (pairs, found) =
            hashes.fold((0, 0), |(pairs, found), hash| (pairs + 1, found + u32::from(filter.contains(hash))));
        assert_eq!(filter.false_positive_rate(), f64::from(found) / f64::from(pairs));
    }

    #[test]
    fn every_level_finds_the_same() {
        const KEYS: u64 = crate::test_size::of(1_000, 60);
        let mut filter = TwoChoice::with_capacity(KEYS, 7);
        (0..KEYS).for_each(|item| assert!(filter.insert(hash(1, item)).is_ok()));
        let hashes: Vec<u64> = (KEYS / 2..KEYS * 3 / 2 + 1).map(|item| hash(1, item)).collect();
        let one_by_one: Vec<bool> = hashes.iter().map(|hash| filter.contains(*hash)).collect();
        for level in [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|level| *level <= simd::level()) {
            let mut all = std::vec![false; hashes.len()];
            let (lines, hashes, found) = (&*filter.lines, &*hashes, &mut *all);
            simd::at_level!(level, (lines: &[Line], hashes: &[u64], found: &mut [bool]) {
                find_batch(lines, true, hashes, found);
            });
            assert_eq!(all, one_by_one, "{level:?}");
            let (mut batched, mut single) = (filter.clone(), filter.clone());
            let filter = &mut batched;
            let removed = simd::at_level!(level, (filter: &mut TwoChoice, hashes: &[u64]) -> u64 {
                remove_all(filter, hashes)
            });
            assert_eq!(removed, hashes.iter().filter(|hash| single.remove(**hash)).count() as u64, "{level:?}");
            assert_eq!(format!("{batched:?}"), format!("{single:?}"), "{level:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "a filter of a million keys: takes too long")]
    fn geometry_follows_from_the_plan_and_stays_in_range() {
        let million = TwoChoice::with_capacity(1_000_000, 7);
        let bits = (million.memory_bytes() - size_of::<TwoChoice>()) as f64 * 8.0 / 1e6;
        assert!((17.3..17.5).contains(&bits), "{bits} bits a key");
        assert_eq!(million.geometry(), Geometry::Blocks { count: 33_957 });
        let smallest = TwoChoice::with_capacity(0, 7);
        assert_eq!((smallest.capacity(), smallest.fill(), smallest.false_positive_rate()), (1, 0.0, 0.0));
    }
}
