//! Cuckoo filter: is this key present? It is for keys that come and go, in little memory.
//!
//! **Errors**: only towards "yes", as long as no key is removed that was not inserted. A key is found until it was
//! removed as often as it was inserted. An absent key is found with a probability of at most 0.012 %, which can be
//! computed exactly from the fingerprints.
//!
//! **Cost** for 1,000,000 keys: 2.0 MiB (17 bits per key), which is allocated at once. A key has two cache lines.
//! Insertion slows down as the filter fills: beyond about 80 %, other keys must be moved first, and beyond 96 % there
//! is no more room ([`Full`]).
//!
//! **Papers**: Fan, Andersen, Kaminsky and Mitzenmacher, "Cuckoo filter: practically better than Bloom", 2014.
//! Breadth-first search for the shortest way to a free slot: Li, Andersen, Kaminsky and Freedman, "Algorithmic
//! improvements for fast concurrent cuckoo hashing", 2014.
//!
//! **Why not a crate**: when they are full, crates drop the fingerprint of another key, which is then not found. Their
//! sizes are powers of two, and they hash items and every moved fingerprint themselves.

use alloc::{boxed::Box, vec};

use super::{
    Full, Geometry,
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
    partial_key::{Ahead, BATCH, FINGERPRINT_MIN, Place, other},
    setting::{SettingError, check_room},
};
use crate::simd;

/// The most buckets: 4 GiB.
pub const BUCKETS_MAX: usize = 1 << 29;
/// The number of slots per bucket.
pub const SLOTS: usize = 4;
/// The width of a fingerprint in bits.
pub const FINGERPRINT_BITS: u32 = 16;

/// The share of slots that are used when it has as many keys as planned. More keys can be inserted until the filter is
/// [`Full`], at about 97 %.
const LOAD: f64 = 0.945;
/// Additional buckets, for filters so small that chance matters.
const BUCKETS_SPARE: f64 = 4.0;
/// How many buckets' fingerprints are tried for a move: those of up to three moves. With the fourth move, 682 buckets
/// are checked.
const TRIED: usize = 2 + 8 + 32 + 128;
/// From this size on, buckets are prefetched. Smaller filters are in the second-level cache anyway.
const PREFETCH_BYTES: usize = 1 << 20;

/// The lowest bit of every slot.
const ONES: u64 = 0x0001_0001_0001_0001;
/// The highest bit of every slot.
const HIGHS: u64 = ONES << (FINGERPRINT_BITS - 1);

/// A cuckoo filter of 16-bit fingerprints. It is a multiset: a key that was inserted twice is found until it was
/// removed twice. A key can be inserted at most eight times.
///
/// ```
/// use weir_sketch::{Cuckoo, Keyed, hash::Key};
///
/// let mut sessions = Cuckoo::with_key(Key([1, 2]), 1_000).unwrap();
/// assert!(sessions.insert("192.0.2.1:51000")?);
/// assert!(sessions.contains("192.0.2.1:51000"));
/// assert!(sessions.remove("192.0.2.1:51000"));
/// assert!(!sessions.contains("192.0.2.1:51000"));
/// # Ok::<(), weir_sketch::Full>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cuckoo {
    buckets: Box<[Bucket]>,
    /// The number of stored fingerprints.
    items: u64,
    /// The number of keys that it was built for.
    capacity: u64,
    key_id: u64,
}

impl Cuckoo {
    /// A filter for this many keys. There is room for at most [`BUCKETS_MAX`] buckets.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_capacity(items: u64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(items)?;
        let buckets = libm::ceil(items.max(1) as f64 / SLOTS as f64 / LOAD + BUCKETS_SPARE) as usize;
        let buckets = vec![Bucket::default(); buckets.min(BUCKETS_MAX)].into_boxed_slice();
        Ok(Self { capacity: items.max(1), buckets, items: 0, key_id })
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// There is no room for so many keys.
    pub fn check(items: u64) -> Result<(), SettingError> {
        check_room("items", items, capacity_max(BUCKETS_MAX))
    }

    /// Inserts the key with this hash once more, even if it is already present. Returns whether it was absent.
    ///
    /// # Errors
    ///
    /// There is no room. The filter is unchanged, and all keys that were inserted before are still found.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> Result<bool, Full> {
        self.insert_at(self.place(hash))
    }

    /// Returns true if the key with this hash is present. This is true by mistake with the probability
    /// [`Cuckoo::false_positive_rate`].
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        holds(&self.buckets, self.place(hash))
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
    /// See [`Cuckoo::insert`]. The keys before the failed one are inserted.
    pub fn insert_batch(&mut self, hashes: &[u64]) -> Result<(), Full> {
        if !self.is_far() {
            return hashes.iter().try_for_each(|&hash| self.insert(hash).map(drop));
        }
        let mut ahead = Ahead::new(hashes, &self.buckets, true);
        for hashes in hashes.chunks(BATCH) {
            let places = ahead.next(&self.buckets);
            (0..hashes.len()).try_for_each(|nth| self.insert_at(places.get(nth)).map(drop))?;
        }
        Ok(())
    }

    /// Removes one insertion of each of many keys, in order. Returns how many insertions there were.
    pub fn remove_batch(&mut self, hashes: &[u64]) -> u64 {
        let mut ahead = Ahead::new(hashes, &self.buckets, self.is_far());
        let mut removed = 0;
        for hashes in hashes.chunks(BATCH) {
            let places = ahead.next(&self.buckets);
            for nth in 0..hashes.len() {
                removed += u64::from(self.remove_at(places.get(nth)));
            }
        }
        removed
    }

    /// Looks up many keys: `found[i]` becomes what [`Cuckoo::contains`] returns for `hashes[i]`. Stops at the end of
    /// the shorter slice.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        contains_batch(&self.buckets, self.is_far(), hashes, found);
    }

    /// Empties it, and writes every bucket, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.buckets.fill(Bucket::default());
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
        self.items as f64 / (self.buckets.len() * SLOTS) as f64
    }

    /// The exact probability that an absent key is found, computed from the fingerprints: the share of all pairs of a
    /// first bucket and a fingerprint that are found. This reads the whole filter, and the other bucket of each
    /// fingerprint.
    pub fn false_positive_rate(&self) -> f64 {
        let fingerprints = f64::from(u16::MAX - FINGERPRINT_MIN) + 1.0;
        let found: u64 = (0..self.count()).map(|index| self.pairs_found_by(index)).sum();
        found as f64 / (self.buckets.len() as f64 * fingerprints)
    }

    /// Returns true if it contains more keys than it was built for.
    pub const fn is_saturated(&self) -> bool {
        self.items > self.capacity
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Buckets { count: self.buckets.len(), slots: SLOTS }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.buckets)
    }

    #[inline(always)]
    fn insert_at(&mut self, place: Place) -> Result<bool, Full> {
        let Place { fingerprint, choices: [one, two] } = place;
        let is_new = !holds(&self.buckets, place);
        // The emptier bucket is the smaller number. If it is full, so is the other one.
        let choice = if self.buckets[one as usize] <= self.buckets[two as usize] { one } else { two };
        let bucket = &mut self.buckets[choice as usize];
        if bucket.has_room() {
            bucket.push(fingerprint);
        } else {
            self.insert_by_moving(place)?;
        }
        self.items += 1;
        Ok(is_new)
    }

    /// The bucket is chosen without a branch, because it cannot be predicted which of the two has the fingerprint.
    #[inline(always)]
    fn remove_at(&mut self, Place { fingerprint, choices: [one, two] }: Place) -> bool {
        let [in_one, in_two] = [one, two].map(|choice| self.buckets[choice as usize].matches(fingerprint));
        let (choice, matches) = if in_one != 0 { (one, in_one) } else { (two, in_two) };
        if matches != 0 {
            self.buckets[choice as usize].take(first(matches));
            self.items -= 1;
        }
        matches != 0
    }

    /// Inserts a key whose buckets are both full. It finds the shortest chain of fingerprints that each move to their
    /// other bucket.
    ///
    /// The search is breadth first. The roots of its tree are the two choices, and the children of a bucket are the
    /// buckets to which its four fingerprints would move. Buckets are numbered level by level: the child `slot` of
    /// bucket `n` has the number `2 + 4 * n + slot`. Nothing is moved before a bucket with room is found. The way there
    /// is the shortest one, so each bucket occurs only once on it, and slots still contain what the search read.
    #[cold]
    #[inline(never)]
    fn insert_by_moving(&mut self, place: Place) -> Result<(), Full> {
        let mut tried = [0; TRIED];
        tried[..2].copy_from_slice(&place.choices);
        for parent in 0..TRIED {
            let from = tried[parent];
            let bucket = self.buckets[from as usize];
            for slot in 0..SLOTS {
                let child = 2 + SLOTS * parent + slot;
                let to = other(from, bucket.get(slot), self.count());
                if self.buckets[to as usize].has_room() {
                    let root = self.move_along(&tried, child, to);
                    self.buckets[root as usize].push(place.fingerprint);
                    return Ok(());
                }
                if child < TRIED {
                    tried[child] = to;
                }
            }
        }
        let slots =
            place.choices.iter().flat_map(|choice| (0..SLOTS).map(|slot| self.buckets[*choice as usize].get(slot)));
        let copies = slots.filter(|fingerprint| *fingerprint == place.fingerprint).count() as u64;
        Err(Full { items: self.items, capacity: self.capacity, copies })
    }

    /// Moves a fingerprint into the bucket `to`, number `child` in the tree, then another one into the slot that became
    /// free, and so on. Returns the root, which then has room.
    fn move_along(&mut self, tried: &[u32; TRIED], mut child: usize, mut to: u32) -> u32 {
        while child >= 2 {
            let (parent, slot) = ((child - 2) / SLOTS, (child - 2) % SLOTS);
            let from = tried[parent];
            let fingerprint = self.buckets[from as usize].take(slot);
            self.buckets[to as usize].push(fingerprint);
            (child, to) = (parent, from);
        }
        to
    }

    /// How many pairs of a first bucket and a fingerprint are found because of this bucket. A fingerprint that both
    /// buckets contain counts half in each.
    fn pairs_found_by(&self, index: u32) -> u64 {
        let bucket = self.buckets[index as usize];
        (0..SLOTS)
            .map(|slot| {
                let fingerprint = bucket.get(slot);
                if fingerprint == 0 || bucket.find(fingerprint) != Some(slot) {
                    return 0;
                }
                let other = other(index, fingerprint, self.count());
                if self.buckets[other as usize].holds(fingerprint) { 1 } else { 2 }
            })
            .sum()
    }

    /// Returns true if buckets are probably not in a cache.
    fn is_far(&self) -> bool {
        size_of_val(&*self.buckets) > PREFETCH_BYTES
    }

    fn count(&self) -> u32 {
        self.buckets.len() as u32
    }

    #[inline(always)]
    pub(super) fn place(&self, hash: u64) -> Place {
        Place::of(hash, self.count())
    }
}

impl Image for Cuckoo {
    const KIND: Kind = Kind::Cuckoo;

    fn write(&self, payload: &mut Writer) {
        let Self { buckets, items: _, capacity, key_id: _ } = self;
        payload.varint(*capacity);
        payload.varint(buckets.len() as u64);
        payload.numbers(Literal::Word, buckets.iter().map(|bucket| bucket.0));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let capacity = payload.within("the capacity", 1..=u64::MAX, "at least 1", Reader::varint)?;
        let count = payload.within("the buckets", 2..=BUCKETS_MAX as u64, "from 2 to 2^29", Reader::varint)? as usize;
        let mut buckets: Box<[Bucket]> = payload.allocate("the buckets", count)?;
        let mut items = 0;
        payload.numbers("a bucket", Literal::Word, count, |at, word| {
            buckets[at] = Bucket(word);
            items += buckets[at].count() as u64;
            let is_sound = (0..buckets[at].count()).all(|slot| buckets[at].get(slot) != 0);
            if is_sound { Ok(()) } else { Err("without a free slot below one that is taken") }
        })?;
        Ok(Self { buckets, items, capacity: capacity.min(capacity_max(count)), key_id })
    }
}

/// The number of keys for which this many buckets have room.
fn capacity_max(buckets: usize) -> u64 {
    ((buckets * SLOTS) as f64 * LOAD) as u64
}

/// Four fingerprints in a word, the latest one in the lowest bits. Free slots are above them, and are zero.
///
/// So an insertion is a shift, and of two buckets the emptier one is the smaller number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Bucket(u64);

impl Bucket {
    #[inline(always)]
    const fn has_room(self) -> bool {
        self.0 >> (u64::BITS - FINGERPRINT_BITS) == 0
    }

    const fn count(self) -> usize {
        (u64::BITS - self.0.leading_zeros()).div_ceil(FINGERPRINT_BITS) as usize
    }

    #[inline(always)]
    const fn push(&mut self, fingerprint: u16) {
        self.0 = self.0 << FINGERPRINT_BITS | fingerprint as u64;
    }

    /// Returns true if a fingerprint is in this bucket. This takes no branch, and four comparisons at once.
    #[inline(always)]
    const fn holds(self, fingerprint: u16) -> bool {
        self.matches(fingerprint) != 0
    }

    /// The first slot with this fingerprint.
    #[inline(always)]
    const fn find(self, fingerprint: u16) -> Option<usize> {
        match self.matches(fingerprint) {
            0 => None,
            matches => Some(first(matches)),
        }
    }

    /// The highest bit of the first slot with this fingerprint, and perhaps those of later slots. Zero if no slot has
    /// it.
    #[inline(always)]
    const fn matches(self, fingerprint: u16) -> u64 {
        let difference = self.0 ^ (ONES * fingerprint as u64);
        difference.wrapping_sub(ONES) & !difference & HIGHS
    }

    #[inline(always)]
    const fn get(self, slot: usize) -> u16 {
        (self.0 >> (slot as u32 * FINGERPRINT_BITS)) as u16
    }

    /// Takes the fingerprint out of a slot. Those above it move down.
    #[inline(always)]
    const fn take(&mut self, slot: usize) -> u16 {
        let fingerprint = self.get(slot);
        let below = (1 << (slot as u32 * FINGERPRINT_BITS)) - 1;
        self.0 = self.0 & below | self.0 >> FINGERPRINT_BITS & !below;
        fingerprint
    }
}

/// The first matching slot.
#[inline(always)]
const fn first(matches: u64) -> usize {
    (matches.trailing_zeros() / FINGERPRINT_BITS) as usize
}

/// Returns true if either bucket has the fingerprint. Both are always read, because which one has it cannot be
/// predicted.
#[inline(always)]
fn holds(buckets: &[Bucket], Place { fingerprint, choices: [one, two] }: Place) -> bool {
    buckets[one as usize].holds(fingerprint) | buckets[two as usize].holds(fingerprint)
}

simd::dispatch! {
    /// Looks up keys in lanes.
    fn contains_batch(buckets: &[Bucket], is_far: bool, hashes: &[u64], found: &mut [bool]) {
        find_batch(buckets, is_far, hashes, found);
    }
}

/// Looks up keys in three loops that can use lanes: over places, over buckets, and over comparisons.
#[inline(always)]
fn find_batch(buckets: &[Bucket], is_far: bool, hashes: &[u64], found: &mut [bool]) {
    let mut ahead = Ahead::new(hashes, buckets, is_far);
    let mut pairs = [[Bucket::default(); BATCH]; 2];
    for (hashes, found) in hashes.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
        let places = ahead.next(buckets);
        for (buckets_of_keys, choices) in pairs.iter_mut().zip(&places.choices) {
            for (bucket, &choice) in buckets_of_keys.iter_mut().zip(choices) {
                *bucket = buckets[choice as usize];
            }
        }
        let keys = pairs[0].iter().zip(&pairs[1]).zip(&places.fingerprints).take(hashes.len());
        for (found, ((one, two), &fingerprint)) in found.iter_mut().zip(keys) {
            *found = one.matches(fingerprint) | two.matches(fingerprint) != 0;
        }
    }
}

#[cfg(test)]
mod tests;
