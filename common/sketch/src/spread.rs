//! Spread: which keys touch many different items, and how many? A scanner touches many hosts; a popular film has many
//! viewers.
//!
//! Every key has a few lines of registers. Its hash picks them, and it shares them with other keys that pick them too.
//! Each pair (a key and an item) goes to one of the key's lines. What other keys put there is taken off: it is known
//! from what a key would find that touched nothing. Besides, each line remembers the key of one of its pairs, each pair
//! with the same chance. So keys that touch many items are remembered.
//!
//! **Errors**: both ways, by 0.106 / sqrt(lines per key), and by how much the content of other keys varies between
//! lines. The bounds include both, and hold with the probability [`CONFIDENCE`]. Of a key far below the resolution they
//! say only that it is small. A key at the resolution is missing among the largest with a probability of (1/3)^(lines
//! per key).
//!
//! **Cost** for 3 million pairs, a resolution of 1,000 items a key, and an error of 0.04: 48,000 lines = 3 MiB, and 1.5
//! MiB for keys of 24 bytes, however many keys there are. An insertion touches one cache line, seldom a second. Answers
//! need a [`Survey`] of all lines, and take about a microsecond each.
//!
//! **Papers**: sharing registers among virtual sketches: Xiao, Chen, Chen and Ling, "Hyper-compact virtual estimators
//! for big network data based on register sharing", 2015. Here keys share whole lines, and only the two middle
//! quartiles of a key's lines count, so that other large keys in some of them do no harm. A sketch that finds its
//! largest keys itself, by keeping the key with the rarest pair: Tang, Huang and Lee, "`SpreadSketch`: toward
//! invertible and network-wide detection of superspreaders", 2020. Registers and estimates are those of
//! [`UltraLogLog`](super::UltraLogLog).
//!
//! **Why not a crate**: none has it. One distinct counter for each key takes as much memory as an attacker likes, and
//! several times as long.

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
use super::{Geometry, MergeError, merge::check_mergeable, ultraloglog};
use crate::simd;

/// The least number of lines: fewer do not tell what lines hold.
pub const LINES_MIN: usize = 256;
/// The largest number of lines: 256 MiB, and their keys.
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
    /// The hash of the item that is touched.
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
/// let mut spread = Spread::with_resolution(100_000, 500, 0.04, key.id());
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
    /// One a line.
    samples: Box<[Option<Sample<K>>]>,
    lines_per_key: usize,
    key_id: u64,
}

impl<K: Copy> Spread<K> {
    /// A sketch for this many `pairs` (a key and an item) of all keys together. Keys that touch `smallest` items or
    /// more stand out. The counts of keys that touch many more have this relative error. The error becomes the nearest
    /// that [`LINES_PER_KEY`] allows, and the number of lines stays within [`LINES_MIN`] and [`LINES_MAX`]. More pairs
    /// than planned widen the bounds.
    pub fn with_resolution(pairs: u64, smallest: u64, relative_error: f64, key_id: u64) -> Self {
        let [few, some, many] = LINES_PER_KEY;
        let lines_per_key = [few, some].into_iter().find(|lines| relative_error_of(*lines) <= relative_error);
        let lines_per_key = lines_per_key.unwrap_or(many);
        // In each of its lines, a key at the resolution has twice as much as all other keys.
        let lines = u128::from(pairs) * 2 * lines_per_key as u128 / u128::from(smallest.max(1));
        let lines = lines.clamp(LINES_MIN as u128, LINES_MAX as u128) as usize;
        Self {
            lines: vec![Line::EMPTY; lines].into_boxed_slice(),
            samples: vec![None; lines].into_boxed_slice(),
            lines_per_key,
            key_id,
        }
    }

    /// Counts that a key touches an item. A pair counts once, however often it comes.
    #[inline]
    pub fn insert(&mut self, touch: Touch<K>) {
        let place = self.grid().place(touch.key_hash, touch.item_hash);
        if raise(&mut self.lines, place) {
            self.offer(place.line as usize, place.tag(), touch.sample());
        }
    }

    /// Counts many pairs, each part of them in a column of its own: `key(i)`, whose hash is `key_hashes[i]`, touches
    /// the item with the hash `item_hashes[i]`. Stops at the end of the shorter column. `key` is called seldom.
    ///
    /// This is faster than one by one, most of all if the sketch is larger than the caches.
    pub fn insert_batch(&mut self, key_hashes: &[u64], item_hashes: &[u64], key: impl Fn(usize) -> K) {
        let grid = self.grid();
        let (mut places, mut rare) = (Places::EMPTY, [0; CHUNK]);
        for (nth, (keys, items)) in key_hashes.chunks(CHUNK).zip(item_hashes.chunks(CHUNK)).enumerate() {
            let count = keys.len().min(items.len());
            place_chunk(grid, &keys[..count], &items[..count], &mut places);
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

    /// Reads all lines, and gives an overview that answers questions.
    pub fn survey(&self) -> Survey<'_, K> {
        Survey::of(self)
    }

    /// Merges another sketch into this one: afterwards it is as if the keys of both had been counted here.
    ///
    /// # Errors
    ///
    /// The other has another geometry or another key. Nothing has changed then.
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

    /// Empties it. Writes every line, so that its pages become resident.
    // Not inlined: next to the allocation, compilers would leave the writes out.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.lines.fill(Line::EMPTY);
        self.samples.fill(None);
    }

    /// Makes an empty sketch ready for hashes of another key.
    pub const fn rekey(&mut self, key_id: u64) {
        self.key_id = key_id;
    }

    /// The relative standard error of the counts of keys that touch many more items than their lines hold otherwise.
    pub fn relative_error(&self) -> f64 {
        relative_error_of(self.lines_per_key)
    }

    /// Its size and shape: sketches merge if these are equal.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Lines { count: self.lines.len(), per_key: self.lines_per_key }
    }

    /// The fingerprint of the key that its hashes are made with.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The memory that it takes, in bytes, with itself.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lines.len() * (size_of::<Line>() + size_of::<Option<Sample<K>>>())
    }

    const fn grid(&self) -> Grid {
        Grid { lines: self.lines.len() as u64, lines_per_key: self.lines_per_key as u64 }
    }

    /// Keeps the key of the rarest pair; among equally rare pairs the key with the highest hash, so that order does not
    /// matter.
    fn offer(&mut self, at: usize, tag: u16, sample: Sample<K>) {
        let (held, holder) = (&mut self.lines[at].tag, &mut self.samples[at]);
        if (tag, Some(sample.hash)) > (*held, holder.as_ref().map(|holder| holder.hash)) {
            (*held, *holder) = (tag, Some(sample));
        }
    }
}

#[cfg(test)]
mod tests;
