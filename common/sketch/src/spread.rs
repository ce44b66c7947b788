//! Spread: which keys touch many others, and how many? A scanner touches many destinations, a flooded host is touched
//! by many sources.
//!
//! Every key has a few lines of registers, picked by its hash and shared with whatever other keys pick them; each of
//! its pairs (key and item) goes to one of them. What the others put there is known well enough to be taken off: it is
//! what a key would find that touched nothing. Besides, each line remembers the key of one of its pairs, each pair with
//! the same chance: keys that touch many cannot hide.
//!
//! **Errs** both ways: by 0.106 / sqrt(lines per key), and by how much the lines' other content varies. The bounds hold
//! both, with the probability [`CONFIDENCE`]; those of a key far below the resolution say only that it is. A key at the
//! resolution is missing among the largest with a probability of (1/3)^(lines per key).
//!
//! **Cost** for 3 million pairs, told apart from 1,000 a key on, at an error of 0.04: 48,000 lines = 3 MiB, and 1.5 MiB
//! of keys (IPv4 and IPv6), however many keys there are. An insertion touches one cache line, seldom a second; answers
//! need a [`Survey`] of all lines, about a microsecond each.
//!
//! **Papers**: sharing registers among virtual sketches: Xiao, Chen, Chen and Ling, "Hyper-compact virtual estimators
//! for big network data based on register sharing", 2015; here by whole lines, of which a key's quartiles in the middle
//! count, so that other large keys in some of them do no harm. That a sketch finds its spreaders itself by
//! keeping the key with the rarest pair is Tang, Huang and Lee, "`SpreadSketch`: toward invertible and network-wide
//! detection of superspreaders", 2020. Registers and estimates are those of [`UltraLogLog`](super::UltraLogLog).
//!
//! **Why not a crate**: none has it; one distinct counter for each key takes memory as an attacker likes, and several
//! times as long.

use alloc::{boxed::Box, vec};

mod image;
mod line;
mod place;
mod survey;

pub use self::survey::{CONFIDENCE, Spreader, Survey};
use self::{
    line::{Line, raise, raise_chunk},
    place::{CHUNK, Grid, Places, place_chunk},
    survey::relative_error_of,
};
use super::{Geometry, Merge, MergeError, Sketch, check_mergeable, ultraloglog};
use crate::simd;

/// Lines at least: fewer say too little of what lines hold.
pub const LINES_MIN: usize = 256;
/// Lines at most: 256 MiB, and their keys.
pub const LINES_MAX: usize = 1 << 22;
/// Lines per key: 4 for an error of 0.053, 8 for 0.038, 16 for 0.027.
pub const LINES_PER_KEY: [usize; 3] = [4, 8, 16];

/// A key's touch of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<K> {
    /// Who touches.
    pub key: K,
    /// The key's hash.
    pub key_hash: u64,
    /// The hash of what is touched.
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
    /// A sketch for this many `pairs` (a key and an item) of all keys together, in which keys that touch `smallest`
    /// items or more stand out, and have this relative error once they touch many more. The error is brought to one
    /// that [`LINES_PER_KEY`] has, the lines to [`LINES_MIN`] and [`LINES_MAX`]. More pairs widen the bounds.
    pub fn with_resolution(pairs: u64, smallest: u64, relative_error: f64, key_id: u64) -> Self {
        let [few, some, many] = LINES_PER_KEY;
        let lines_per_key = [few, some].into_iter().find(|lines| relative_error_of(*lines) <= relative_error);
        let lines_per_key = lines_per_key.unwrap_or(many);
        // Twice as much of a key at the resolution as of all others, in each of its lines.
        let lines = u128::from(pairs) * 2 * lines_per_key as u128 / u128::from(smallest.max(1));
        let lines = lines.clamp(LINES_MIN as u128, LINES_MAX as u128) as usize;
        Self {
            lines: vec![Line::EMPTY; lines].into_boxed_slice(),
            samples: vec![None; lines].into_boxed_slice(),
            lines_per_key,
            key_id,
        }
    }

    /// Counts that a key touches an item, once however often it does.
    #[inline]
    pub fn insert(&mut self, touch: Touch<K>) {
        let place = self.grid().place(touch.key_hash, touch.item_hash);
        if raise(&mut self.lines, place) {
            self.offer(place.line as usize, place.tag(), touch.sample());
        }
    }

    /// Counts many touches, each part in a column of its own: `key(i)` touches the item with `item_hashes[i]`, and its
    /// own hash is `key_hashes[i]`. As many as the shorter column has; keys are asked for seldom.
    ///
    /// Faster than one by one, and more so where the sketch is larger than caches are.
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

    /// Reads all lines, to answer from.
    pub fn survey(&self) -> Survey<'_, K> {
        Survey::of(self)
    }

    /// Takes in another sketch: afterwards this one is as if it had been fed both.
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

    /// Forgets everything; writes every line. (Not inlined: next to the allocation, the writes would be optimised
    /// out, and the pages would not become resident.)
    #[inline(never)]
    pub fn clear(&mut self) {
        self.lines.fill(Line::EMPTY);
        self.samples.fill(None);
    }

    /// The relative standard error of the counts of keys that touch many more items than their lines hold otherwise.
    pub fn relative_error(&self) -> f64 {
        relative_error_of(self.lines_per_key)
    }

    /// Its size and shape.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Lines { count: self.lines.len(), per_key: self.lines_per_key }
    }

    /// The fingerprint of the hash key.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// Everything it occupies, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lines.len() * (size_of::<Line>() + size_of::<Option<Sample<K>>>())
    }

    const fn grid(&self) -> Grid {
        Grid { lines: self.lines.len() as u64, lines_per_key: self.lines_per_key as u64 }
    }

    /// Keeps the rarest pair's key; of pairs as rare the key with the highest hash, so that order does not matter.
    fn offer(&mut self, at: usize, tag: u16, sample: Sample<K>) {
        let (held, holder) = (&mut self.lines[at].tag, &mut self.samples[at]);
        if (tag, Some(sample.hash)) > (*held, holder.as_ref().map(|holder| holder.hash)) {
            (*held, *holder) = (tag, Some(sample));
        }
    }
}

impl<K: Copy> Sketch for Spread<K> {
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

impl<K: Copy> Merge for Spread<K> {
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.merge(other)
    }
}

#[cfg(test)]
mod tests;
