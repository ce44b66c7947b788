//! Spread: which keys touch many different items, and how many? For example, a scanner touches many hosts, and a
//! popular film has many viewers.
//!
//! Every key has a few lines of registers. Its hash chooses them, and other keys share them. Each pair (a key and an
//! item) goes to one of the key's lines. The part of other keys is subtracted: it is estimated from the lines of random
//! keys that touched nothing. In addition, each line remembers the key of one of its pairs, where each pair has the
//! same chance. So keys that touch many items are remembered.
//!
//! **Errors**: in both directions, by 0.106 / sqrt(lines per key), and by how much the content of other keys varies
//! between lines. The bounds include both, and hold with the probability [`CONFIDENCE`]. For a key far below the
//! resolution they only show that it is small. A key at the resolution is missing among the largest with a probability
//! of (1/3)^(lines per key).
//!
//! **Cost** for 3 million pairs, a resolution of 1,000 items per key, and an error of 0.04: 48,000 lines = 3 MiB, and
//! 1.5 MiB for keys of 24 bytes, for any number of keys. An insertion touches one cache line, and seldom a second one.
//! Queries need a [`Survey`] of all lines, and take about a microsecond each.
//!
//! **Papers**: sharing registers among virtual sketches: Xiao, Chen, Chen and Ling, "Hyper-compact virtual estimators
//! for big network data based on register sharing", 2015. Here keys share whole lines, and only the two middle
//! quartiles of a key's lines count, so that other large keys in some of them do no harm. A sketch that finds its
//! largest keys itself, by keeping the key with the rarest pair: Tang, Huang and Lee, "`SpreadSketch`: toward
//! invertible and network-wide detection of superspreaders", 2020. Registers and estimates are those of
//! [`UltraLogLog`](super::UltraLogLog).
//!
//! **Why not a crate**: no crate has it. With one distinct counter for each key, an attacker determines how much memory
//! is used, and it takes several times as long.

use alloc::{boxed::Box, vec};

mod idle;
mod image;
mod line;
mod place;
mod survey;

pub use self::survey::{CONFIDENCE, Margin, Spreader, Survey};
use self::{
    line::{Line, raise, raise_chunk},
    place::{CHUNK, Grid, Places, place_chunk},
    survey::relative_error_of,
};
use super::{
    Geometry, MergeError,
    merge::check_mergeable,
    setting::{SettingError, check_error, check_room},
    ultraloglog,
};
use crate::{
    hash::{combine, combine_all},
    simd,
};

/// The smallest number of lines. With fewer lines, the usual content of lines cannot be estimated.
pub const LINES_MIN: usize = 256;
/// The largest number of lines: 256 MiB, plus their keys.
pub const LINES_MAX: usize = 1 << 22;
/// Lines per key: 4 for an error of 0.053, 8 for 0.038, 16 for 0.027.
pub const LINES_PER_KEY: [usize; 3] = [4, 8, 16];

/// One pair: a key that touches an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<K> {
    /// The key that touches.
    pub key: K,
    /// The hash of the key.
    pub key_hash: u64,
    /// The hash of the touched item.
    pub item_hash: u64,
}

impl<K: Copy> Touch<K> {
    const fn sample(&self) -> Sample<K> {
        Sample { hash: self.key_hash, key: self.key }
    }
}

/// The key of a line's rarest pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample<K> {
    hash: u64,
    key: K,
}

/// Distinct counts of any number of keys.
///
/// ```
/// use weir_sketch::{hash::{Key, sip}, Spread, Touch};
///
/// let key = Key([1, 2]);
/// let touch = |source: u32, destination: u32| Touch {
///     key: source,
///     key_hash: sip(key, &source.to_le_bytes()),
///     item_hash: sip(key, &destination.to_le_bytes()),
/// };
/// let mut spread = Spread::with_resolution(100_000, 500, 0.04, key.id()).unwrap();
/// // A thousand sources with five destinations each, and one that scans.
/// for source in 0..1_000 {
///     (0..5).for_each(|destination| spread.insert(touch(source, destination)));
/// }
/// (0..2_000).for_each(|destination| spread.insert(touch(4_242, destination)));
/// let scanner = spread.survey().top(1)[0];
/// assert_eq!(scanner.key, 4_242);
/// assert!(scanner.touched.lower <= 2_000 && 2_000 <= scanner.touched.upper);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread<K> {
    lines: Box<[Line]>,
    /// The sample of each line.
    samples: Box<[Option<Sample<K>>]>,
    lines_per_key: usize,
    key_id: u64,
}

impl<K: Copy> Spread<K> {
    /// A sketch for this many `pairs` (a key and an item) of all keys together. Keys that touch `smallest` items or
    /// more can be found. The counts of keys that touch many more items have this relative error, or the next lower one
    /// that [`LINES_PER_KEY`] allows. There are at least [`LINES_MIN`] lines. More pairs than planned widen the bounds.
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_resolution(pairs: u64, smallest: u64, relative_error: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(pairs, smallest, relative_error)?;
        let lines_per_key = lines_per_key(relative_error);
        let lines = Self::lines_for(pairs, smallest, relative_error);
        Ok(Self {
            lines: vec![Line::EMPTY; lines].into_boxed_slice(),
            samples: vec![None; lines].into_boxed_slice(),
            lines_per_key,
            key_id,
        })
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// The error is lower than that of the most lines per key, or at least 1, or more than [`LINES_MAX`] lines are
    /// needed.
    pub fn check(pairs: u64, smallest: u64, relative_error: f64) -> Result<(), SettingError> {
        let [.., most] = LINES_PER_KEY;
        check_error("relative_error", relative_error, relative_error_of(most))?;
        let room = (LINES_MAX / lines_per_key(relative_error) / 2) as u64;
        check_room("pairs", pairs, room.saturating_mul(smallest.max(1)))
    }

    /// How many lines [`Spread::with_resolution`] creates with settings that it allows.
    pub fn lines_for(pairs: u64, smallest: u64, relative_error: f64) -> usize {
        // In each of its lines, a key at the resolution has twice as many pairs as all other keys.
        let lines = u128::from(pairs) * 2 * lines_per_key(relative_error) as u128 / u128::from(smallest.max(1));
        lines.clamp(LINES_MIN as u128, LINES_MAX as u128) as usize
    }

    /// Counts that a key touches an item. A pair counts only once, however often it is inserted.
    #[inline]
    pub fn insert(&mut self, touch: Touch<K>) {
        let place = self.grid().place(touch.key_hash, combine(touch.key_hash, touch.item_hash));
        if raise(&mut self.lines, place) {
            self.offer(place.line as usize, place.tag(), touch.sample());
        }
    }

    /// Counts many pairs, given as columns: `key(i)`, whose hash is `key_hashes[i]`, touches the item with the hash
    /// `item_hashes[i]`. Stops at the end of the shorter column. `key` is called seldom.
    ///
    /// This is faster than one by one, especially if the sketch is larger than the caches.
    pub fn insert_batch(&mut self, key_hashes: &[u64], item_hashes: &[u64], key: impl Fn(usize) -> K) {
        let mut pairs = [0; CHUNK];
        for (nth, (keys, items)) in key_hashes.chunks(CHUNK).zip(item_hashes.chunks(CHUNK)).enumerate() {
            combine_all(keys, items, &mut pairs);
            self.insert_pairs(keys, &pairs[..keys.len().min(items.len())], |i| key(nth * CHUNK + i));
        }
    }

    /// [`Spread::insert_batch`] with the hash of each pair instead of its item: [`combine_all`] of both columns.
    pub fn insert_pairs(&mut self, key_hashes: &[u64], pairs: &[u64], key: impl Fn(usize) -> K) {
        let grid = self.grid();
        let (mut places, mut rare) = (Places::EMPTY, [0; CHUNK]);
        for (nth, (keys, pairs)) in key_hashes.chunks(CHUNK).zip(pairs.chunks(CHUNK)).enumerate() {
            let count = keys.len().min(pairs.len());
            place_chunk(grid, &keys[..count], &pairs[..count], &mut places);
            let rares = raise_chunk(&mut self.lines, &places, count, &mut rare);
            let rare = rare[..rares].iter().map(|i| usize::from(*i));
            rare.clone().for_each(|i| simd::prefetch(&self.samples[places.lines[i] as usize]));
            for i in rare {
                let place = places.get(i);
                let sample = Sample { hash: keys[i], key: key(nth * CHUNK + i) };
                self.offer(place.line as usize, place.tag(), sample);
            }
        }
    }

    /// Reads all lines, and returns a survey that answers queries.
    pub fn survey(&self) -> Survey<'_, K> {
        Survey::of(self)
    }

    /// Merges another sketch into this one. Afterwards it is as if the keys of both had been counted here.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        for (at, theirs) in other.lines.iter().enumerate() {
            ultraloglog::merge_all(&mut self.lines[at].registers, &theirs.registers);
            if let Some(sample) = other.samples[at] {
                self.offer(at, theirs.tag, sample);
            }
        }
        Ok(())
    }

    /// Empties it, and writes every line, so that its pages become resident.
    // This is not inlined, because next to the allocation compilers would omit the writes.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.lines.fill(Line::EMPTY);
        self.samples.fill(None);
    }

    /// Makes an empty sketch ready for hashes of another key.
    pub const fn rekey(&mut self, key_id: u64) {
        self.key_id = key_id;
    }

    /// The relative standard error of the counts of keys that touch many more items than their lines contain of other
    /// keys.
    pub fn relative_error(&self) -> f64 {
        relative_error_of(self.lines_per_key)
    }

    /// Returns the size and shape. Sketches with equal geometries can be merged.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Lines { count: self.lines.len(), per_key: self.lines_per_key }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lines.len() * (size_of::<Line>() + size_of::<Option<Sample<K>>>())
    }

    const fn grid(&self) -> Grid {
        Grid { lines: self.lines.len() as u64, lines_per_key: self.lines_per_key as u64 }
    }

    /// Keeps the key of the rarest pair. Among equally rare pairs it keeps the key with the highest hash, so that the
    /// order does not matter.
    fn offer(&mut self, at: usize, tag: u16, sample: Sample<K>) {
        let (held, holder) = (&mut self.lines[at].tag, &mut self.samples[at]);
        if (tag, Some(sample.hash)) > (*held, holder.as_ref().map(|holder| holder.hash)) {
            (*held, *holder) = (tag, Some(sample));
        }
    }
}

/// The fewest lines per key that give this relative error, but no more than the maximum.
fn lines_per_key(relative_error: f64) -> usize {
    let [few, some, many] = LINES_PER_KEY;
    let lines = [few, some].into_iter().find(|lines| relative_error_of(*lines) <= relative_error);
    lines.unwrap_or(many)
}

#[cfg(test)]
mod tests;
