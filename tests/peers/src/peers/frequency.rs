//! Crates that answer "how much?".

use std::{fmt::Debug, marker::PhantomData, ops::AddAssign};

use asap_sketchlib::{CountMinSketch, DataInput, FastPath, MatrixFastHash, OwnedDataInput, SketchHasher, Vector2D};
use count_min_sketch::CountMinSketch64;
use datasketches::countmin::{CountMinSketch as DataSketchesSketch, UnsignedCountMinValue};
use weir_sketch::hash::mix;

use crate::{contender::Subject, item::Item, ours::hash};

/// Plain count-min in a matrix of counters `C`; takes ready hashes, `W` wide.
pub struct AsapSketchlib<C, W: Width>(CountMinSketch<Vector2D<C>, FastPath, Ready<W>>)
where
    C: Counter;

impl<C: Counter, W: Width> AsapSketchlib<C, W> {
    /// A sketch with this many counters.
    pub fn with_cells(rows: usize, columns: usize) -> Self {
        Self(CountMinSketch::with_dimensions(rows, columns))
    }
}

/// The type of its counters.
pub trait Counter: Copy + Default + PartialOrd + From<i32> + AddAssign + TryInto<u64, Error: Debug> {}

impl Counter for i32 {}
impl Counter for i64 {}

impl<K: Item, C: Counter, W: Width> Subject<K> for AsapSketchlib<C, W> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        let hash = hash();
        for key in keys.iter() {
            self.0.update_with_hash(&W::of(key.digest(hash)));
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        let hash = hash();
        keys.iter()
            .map(|key| self.0.estimate_with_hash(&W::of(key.digest(hash))))
            .map(|count| count.try_into().expect("no count is negative"))
            .sum()
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// A hash that is wide enough to hold the column of each row in its bits.
pub trait Width: MatrixFastHash + Debug + 'static {
    /// Makes this hash from 64 bits.
    fn of(hash: u64) -> Self;
}

impl Width for u64 {
    #[inline(always)]
    fn of(hash: u64) -> Self {
        hash
    }
}

impl Width for u128 {
    #[inline(always)]
    fn of(hash: u64) -> Self {
        Self::from(hash) << 64 | Self::from(mix(hash))
    }
}

/// Tells the crate that the keys are already hashed.
#[derive(Clone, Debug)]
pub struct Ready<W>(PhantomData<W>);

impl<W: Width> SketchHasher for Ready<W> {
    type HashType = W;

    fn hash64_seeded(_: usize, _: &DataInput) -> u64 {
        unreachable!("hashes are ready")
    }
    fn hash128_seeded(_: usize, _: &DataInput) -> u128 {
        unreachable!("hashes are ready")
    }
    fn hash64_seeded_owned(_: usize, _: &OwnedDataInput) -> u64 {
        unreachable!("hashes are ready")
    }
    fn hash128_seeded_owned(_: usize, _: &OwnedDataInput) -> u128 {
        unreachable!("hashes are ready")
    }
    fn hash_for_matrix_seeded(_: usize, _: usize, _: usize, _: &DataInput) -> W {
        unreachable!("hashes are ready")
    }
}

/// Plain count-min of Apache DataSketches. It hashes by itself, once for each row.
pub struct DataSketchesCountMin<U: Unsigned>(DataSketchesSketch<U>);

/// The type of its counters.
pub trait Unsigned: UnsignedCountMinValue + Into<u64> {}

impl Unsigned for u32 {}
impl Unsigned for u64 {}

impl<U: Unsigned> DataSketchesCountMin<U> {
    /// A sketch with this many counters.
    pub fn with_cells(rows: usize, columns: usize) -> Self {
        Self(DataSketchesSketch::new(rows as u8, columns as u32).expect("the settings are in range"))
    }
}

impl<K: Item, U: Unsigned> Subject<K> for DataSketchesCountMin<U> {
    fn clear(&mut self) {
        // It cannot be cleared. The pages of a new one would be faulted in while it is measured.
        self.0.decay(1e-18);
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.0.update(key);
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| self.0.estimate(key).into()).sum()
    }
    fn memory_bytes(&self) -> usize {
        self.0.estimated_size()
    }
}

/// Count-min with conservative update.
pub struct CountMinSketchCrate<K: Item>(CountMinSketch64<K>, usize);

impl<K: Item> CountMinSketchCrate<K> {
    /// Four rows of this many columns.
    pub fn with_columns(columns: usize) -> Self {
        // The width is twice the capacity divided by the tolerance; each row halves the probability.
        let sketch = CountMinSketch64::new(columns / 2, 0.94, 1.0).expect("the settings are in range");
        Self(sketch, columns * 4 * size_of::<u64>())
    }
}

impl<K: Item> Subject<K> for CountMinSketchCrate<K> {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, keys: &[K]) {
        for key in keys.iter() {
            self.0.increment(key);
        }
    }
    fn ask(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| self.0.estimate(key)).sum()
    }
    fn memory_bytes(&self) -> usize {
        self.1
    }
}
