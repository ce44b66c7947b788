//! Count-min: how many packets and bytes did this key have?
//!
//! **Errs** upwards only. With the share `error` and the probability `p` that it was built for, an estimate exceeds
//! the truth by more than `error * total` with probability at most `p`; total is everything that was added. That is
//! the guarantee of the plain sketch; the conservative update never estimates more, and on skewed traffic much less.
//! Two estimates, of packets and of bytes, each hold on their own.
//!
//! **Cost** at error 0.0005 and probability 0.001: 8,192 cells x 7 rows x 16 bytes = 896 KiB; an update touches one
//! cache line a row.
//!
//! **Papers**: Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and its
//! applications", 2005; conservative update: Estan and Varghese, "New directions in traffic measurement and
//! accounting", 2002.
//!
//! **Why not a crate**: one touch of a cell must update packets and bytes, from a hash that is already there, and two
//! routers' sketches must merge; crates commonly hash the item themselves and keep one count.

use alloc::{boxed::Box, vec};
use core::f64::consts::E;

use super::{
    Geometry, MergeError, Sketch, check_mergeable,
    image::{Image, ImageError, Kind, Literal, Reader, Writer},
    saturating_add,
};
use crate::{hash::mix, ledger::Tally};

/// Most rows: at e^-8 an estimate misses its bound once in 3,000, and each row costs a cache miss.
pub const DEPTH_MAX: usize = 8;
/// Cells a row at most: 1 GiB a row, an error of 4e-8.
pub const WIDTH_MAX: usize = 1 << 26;
/// Cells a row at least: an error of 68 % is the largest that says anything.
pub const WIDTH_MIN: usize = 4;

/// A count-min sketch of packets and bytes with conservative update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountMin {
    /// Row after row.
    cells: Box<[Tally]>,
    /// Cells a row, a power of two.
    width: usize,
    depth: usize,
    total: Tally,
    key_id: u64,
}

impl CountMin {
    /// A sketch whose estimates exceed the truth by more than `error` (a share of all that is added) with at most
    /// the probability `probability_of_more`.
    ///
    /// The width e / `error` is rounded up to a power of two within [`WIDTH_MIN`] and [`WIDTH_MAX`]; the depth
    /// ln(1 / probability) is rounded up, within 1 and [`DEPTH_MAX`]. Not-a-number gives the smallest.
    /// `error()` and `probability_of_more()` say what it came to.
    pub fn with_error(error: f64, probability_of_more: f64, key_id: u64) -> Self {
        let width = libm::ceil(E / error.clamp(E / WIDTH_MAX as f64, 1.0)) as usize;
        let width = width.clamp(WIDTH_MIN, WIDTH_MAX).next_power_of_two();
        let depth = (libm::ceil(-libm::log(probability_of_more.clamp(0.0, 1.0))) as usize).clamp(1, DEPTH_MAX);
        let cells = vec![Tally::default(); width * depth].into_boxed_slice();
        Self { cells, width, depth, total: Tally::default(), key_id }
    }

    /// Adds `weight` to the key with this hash; gives the key's estimate including it, never below the truth.
    ///
    /// The conservative update raises only what must be raised: each of the key's counters to the new estimate, and
    /// none that is higher already.
    #[inline]
    pub fn add(&mut self, hash: u64, weight: Tally) -> Tally {
        self.total = saturating_add(self.total, weight);
        let slots = self.slots(hash);
        let slots = &slots[..self.depth];
        let estimate = saturating_add(least(&self.cells, slots), weight);
        for &slot in slots {
            let cell = &mut self.cells[slot];
            cell.packets = cell.packets.max(estimate.packets);
            cell.bytes = cell.bytes.max(estimate.bytes);
        }
        estimate
    }

    /// The packets and bytes of the key with this hash, never below the truth.
    #[inline]
    pub fn estimate(&self, hash: u64) -> Tally {
        least(&self.cells, &self.slots(hash)[..self.depth])
    }

    /// Adds another sketch cell by cell, as if both had fed one.
    ///
    /// Estimates stay upper bounds, and the error stays a share `error()` of the total of both. But the saving of the
    /// conservative update happened in each sketch apart: the excess after merging is up to the sum of both, where one
    /// sketch fed with everything might have done better.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id), (other.geometry(), other.key_id))?;
        self.total = saturating_add(self.total, other.total);
        self.cells.iter_mut().zip(&other.cells).for_each(|(cell, other)| *cell = saturating_add(*cell, *other));
        Ok(())
    }

    /// Forgets everything; writes every cell. (Not inlined: next to the allocation, the writes would be optimised
    /// out, and the pages would not become resident.)
    #[inline(never)]
    pub fn clear(&mut self) {
        self.cells.fill(Tally::default());
        self.total = Tally::default();
    }

    /// All that was added.
    pub const fn total(&self) -> Tally {
        self.total
    }

    /// By what share of [`CountMin::total`] an estimate can exceed the truth.
    pub fn error(&self) -> f64 {
        E / self.width as f64
    }

    /// The probability that one estimate exceeds the truth by more than [`CountMin::error`].
    pub fn probability_of_more(&self) -> f64 {
        libm::exp(-(self.depth as f64))
    }

    /// Cells a row.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Its size and shape.
    pub const fn geometry(&self) -> Geometry {
        Geometry::Cells { depth: self.depth, width: self.width }
    }

    /// The fingerprint of the hash key.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// Everything it occupies, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.cells.len() * size_of::<Tally>()
    }

    /// The index of the key's cell in each row.
    ///
    /// Rows read disjoint bits of the hash, which a keyed hash makes independent: no double hashing, whose rows
    /// collide together. When the bits run out (at a width of 8,192, after four rows) the next word of the `SplitMix64`
    /// stream that starts at the hash gives more. It adds no entropy but needs none: 64 bits tell all flows apart.
    #[inline(always)]
    fn slots(&self, hash: u64) -> [usize; DEPTH_MAX] {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let mask = self.width - 1;
        let bits = self.width.trailing_zeros();
        let (mut word, mut bits_left, mut stream) = (hash, u64::BITS, hash);
        let mut slots = [0; DEPTH_MAX];
        for (row, slot) in slots[..self.depth].iter_mut().enumerate() {
            if bits_left < bits {
                stream = stream.wrapping_add(GOLDEN);
                (word, bits_left) = (mix(stream), u64::BITS);
            }
            *slot = row * self.width + (word as usize & mask);
            word >>= bits;
            bits_left -= bits;
        }
        slots
    }
}

impl Sketch for CountMin {
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

impl Image for CountMin {
    const KIND: Kind = Kind::CountMin;

    fn write(&self, payload: &mut Writer) {
        let Self { cells, width, depth, total, key_id: _ } = self;
        [*depth as u64, *width as u64, total.packets, total.bytes].into_iter().for_each(|n| payload.varint(n));
        payload.numbers(Literal::Varint, cells.iter().map(|cell| cell.packets));
        payload.numbers(Literal::Varint, cells.iter().map(|cell| cell.bytes));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let depth = payload.within("the depth", 1..=DEPTH_MAX as u64, "from 1 to 8", Reader::varint)? as usize;
        let width = payload.power_of_two("the width", WIDTH_MIN, WIDTH_MAX, "a power of two from 4 to 2^26")?;
        let total = Tally::new(payload.varint("all packets")?, payload.varint("all bytes")?);
        let count = depth * width;
        let mut cells: Box<[Tally]> = payload.allocate("the cells", count)?;
        payload.numbers("packets", Literal::Varint, count, |cell, packets| cells[cell].packets = packets)?;
        payload.numbers("bytes", Literal::Varint, count, |cell, bytes| cells[cell].bytes = bytes)?;
        Ok(Self { cells, width, depth, total, key_id })
    }
}

/// The smallest packets and the smallest bytes among some cells.
#[inline(always)]
fn least(cells: &[Tally], slots: &[usize]) -> Tally {
    slots.iter().fold(Tally::new(u64::MAX, u64::MAX), |least, &slot| {
        let cell = cells[slot];
        Tally::new(least.packets.min(cell.packets), least.bytes.min(cell.bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::{
        Metric,
        oracle::{Amounts, SplitMix64, Zipf},
    };

    const KEY: u64 = 7;

    /// Feeds `records` of Zipf traffic to a sketch and an oracle.
    fn feed(sketch: &mut CountMin, truth: &mut Amounts, seed: u64, records: u32) {
        let (zipf, mut random) = (Zipf::new(20_000, 1.1), SplitMix64(seed));
        for _ in 0..records {
            let hash = mix(zipf.draw(&mut random));
            let weight = random.weight();
            truth.add(hash, weight);
            let estimate = sketch.add(hash, weight);
            assert_eq!(estimate, sketch.estimate(hash));
        }
    }

    /// The share of keys whose estimate exceeds the truth by more than the promised share of the total.
    fn share_in_excess(sketch: &CountMin, truth: &Amounts) -> f64 {
        let allowed = |total: u64| (total as f64 * sketch.error()) as u64;
        let in_excess = truth.iter().filter(|&(hash, truth)| {
            let estimate = sketch.estimate(hash);
            assert!(estimate.packets >= truth.packets && estimate.bytes >= truth.bytes, "below the truth");
            estimate.packets - truth.packets > allowed(sketch.total().packets)
                || estimate.bytes - truth.bytes > allowed(sketch.total().bytes)
        });
        in_excess.count() as f64 / truth.len() as f64
    }

    #[test]
    fn estimates_are_never_low_and_seldom_high() {
        for (error, probability) in [(0.01, 0.2), (0.001, 0.01), (0.0005, 0.001)] {
            let mut sketch = CountMin::with_error(error, probability, KEY);
            let mut truth = Amounts::default();
            feed(&mut sketch, &mut truth, 1, 60_000);
            assert!(sketch.error() <= error && sketch.probability_of_more() <= probability);
            assert_eq!(sketch.total(), truth.total());
            assert!(share_in_excess(&sketch, &truth) <= 2.0 * probability);
        }
    }

    #[test]
    fn bounds_hold_after_merging_and_feeding_on() {
        let (mut one, mut other) = (CountMin::with_error(0.002, 0.01, KEY), CountMin::with_error(0.002, 0.01, KEY));
        let mut truth = Amounts::default();
        feed(&mut one, &mut truth, 2, 30_000);
        feed(&mut other, &mut truth, 3, 30_000);
        one.merge(&other).unwrap();
        assert_eq!(one.total(), truth.total());
        assert!(share_in_excess(&one, &truth) <= 0.02);
        feed(&mut one, &mut truth, 4, 10_000);
        assert!(share_in_excess(&one, &truth) <= 0.02);
    }

    #[test]
    fn a_conservative_update_never_exceeds_the_plain_one() {
        let mut conservative = CountMin::with_error(0.02, 0.05, KEY);
        let mut plain = conservative.clone();
        let (zipf, mut random) = (Zipf::new(5_000, 1.0), SplitMix64(5));
        for _ in 0..20_000 {
            let (hash, weight) = (mix(zipf.draw(&mut random)), random.weight());
            conservative.add(hash, weight);
            for slot in plain.slots(hash).into_iter().take(plain.depth) {
                plain.cells[slot].add(weight);
            }
        }
        let lower = |(low, high): (&Tally, &Tally)| low.packets <= high.packets && low.bytes <= high.bytes;
        assert!(conservative.cells.iter().zip(&plain.cells).all(lower));
        for metric in [Metric::Packets, Metric::Bytes] {
            let sum = |sketch: &CountMin| (0..5_000).map(|key| metric.of(sketch.estimate(mix(key)))).sum::<u64>();
            let (conservative, plain) = (sum(&conservative), sum(&plain));
            assert!(conservative * 4 < plain * 3, "{conservative} of {plain} {metric:?}");
        }
    }

    #[test]
    fn rows_are_independent() {
        // Two keys that agree in one row's index, here in its low six bits, agree in another's as often as chance has
        // it. The rows' bits come from one, two and three words.
        for (error, width) in [(0.05, 64), (0.0005, 8192), (0.000_03, 1 << 17)] {
            let sketch = CountMin::with_error(error, 0.0005, KEY);
            assert_eq!((sketch.width(), sketch.depth()), (width, 8));
            let keys: vec::Vec<_> = (0..1_500).map(|key| sketch.slots(mix(key)).map(|slot| slot % 64)).collect();
            let (mut shared, mut twice) = (0u32, 0u32);
            for (i, one) in keys.iter().enumerate() {
                for other in &keys[..i] {
                    let rows = one.iter().zip(other).filter(|(one, other)| one == other).count() as u32;
                    shared += rows;
                    twice += rows * rows.saturating_sub(1) / 2;
                }
            }
            // 1,124,250 pairs, 8 rows, 28 pairs of rows: 140,531 and 7,685 expected; five standard deviations allowed.
            assert!((138_700..142_400).contains(&shared), "width {width}: {shared}");
            assert!((7_245..8_125).contains(&twice), "width {width}: {twice}");
        }
    }

    #[test]
    fn geometry_follows_from_the_errors_and_stays_in_range() {
        let sketch = CountMin::with_error(0.0005, 0.001, KEY);
        assert_eq!(sketch.geometry(), Geometry::Cells { depth: 7, width: 8192 });
        assert_eq!(sketch.memory_bytes() - size_of::<CountMin>(), 896 << 10);
        for (error, probability) in [(f64::NAN, f64::NAN), (9.0, 9.0), (f64::INFINITY, 1.0), (1.0, -1.0)] {
            let mut sketch = CountMin::with_error(error, probability, KEY);
            assert!(sketch.width() == WIDTH_MIN && sketch.depth() <= DEPTH_MAX, "{error} {probability}");
            assert_eq!(sketch.add(u64::MAX, Tally::new(1, 60)), Tally::new(1, 60));
        }
        assert_eq!(CountMin::with_error(0.5, 0.0, KEY).depth(), DEPTH_MAX);
    }

    #[test]
    fn counters_saturate() {
        let mut sketch = CountMin::with_error(0.5, 0.5, KEY);
        sketch.add(1, Tally::new(1, u64::MAX));
        assert_eq!(sketch.add(1, Tally::new(1, 1)), Tally::new(2, u64::MAX));
    }
}
