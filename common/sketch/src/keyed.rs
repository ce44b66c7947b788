//! A sketch together with its hash key. Its methods take items instead of hashes.

use alloc::{borrow::ToOwned, vec::Vec};
use core::{borrow::Borrow, hash::Hash};

use super::{
    Bounds, CandidateBuckets, Distinct, Filter, Frequency, Full, Image, ImageError, Merge, MergeError, Quotient,
    Remove, SampleAndHold, Seen, SharedBloom, Sketch, Spread, TopK, Touch, Weight,
};
use crate::{
    hash::{Key, KeyedHash, WrongKey},
    image::MEMORY_MAX,
};

/// How many items of a batch are hashed before the sketch gets the hashes. They take 2 KiB: enough for a large sketch
/// to prefetch most of its lines.
const BATCH: usize = 256;

/// A sketch that takes items of any type, and hashes them with a secret key.
///
/// Each structure has two constructors: `new` with a random key, and `with_key` with your key. A sketch and a key that
/// do not belong together cannot be combined, so no query can use wrong hashes.
///
/// ```
/// use weir_sketch::{BlockedBloom, Keyed, hash::Key};
///
/// let key = Key([1, 2]);
/// let mut visited = BlockedBloom::with_key(key, 1_000, 0.01).unwrap();
/// visited.insert("https://example.org/");
/// let image = visited.to_image();
///
/// let loaded = Keyed::<BlockedBloom>::from_image(key, &image)?;
/// assert!(loaded.contains("https://example.org/"));
/// assert!(Keyed::<BlockedBloom>::from_image(Key([3, 4]), &image).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Keyed<S> {
    sketch: S,
    key: Key,
    hash: KeyedHash,
}

impl<S: Sketch> Keyed<S> {
    /// Combines a sketch with the key of its hashes.
    ///
    /// # Errors
    ///
    /// The sketch has another key. With this one it would not find its content.
    pub fn new(key: Key, sketch: S) -> Result<Self, WrongKey> {
        sketch.key_ids().into_iter().try_for_each(|key_id| key.check(key_id))?;
        Ok(Self { sketch, key, hash: KeyedHash::new(key) })
    }

    /// Calls `build` with the fingerprint of the key, and combines the result with the key.
    pub(crate) fn build<E>(key: Key, build: impl FnOnce(u64) -> Result<S, E>) -> Result<Self, E> {
        let sketch = build(key.id())?;
        debug_assert_eq!(sketch.key_id(), key.id());
        Ok(Self { sketch, key, hash: KeyedHash::new(key) })
    }

    /// The hash of an item, for methods of the sketch that take hashes.
    #[inline]
    pub fn hash<T: Hash + ?Sized>(&self, item: &T) -> u64 {
        self.hash.of(item)
    }

    /// The secret key. Store it apart from images, which have only its fingerprint: anyone who can read both can choose
    /// items that collide.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// The sketch alone, for methods that take hashes and change it. [`Keyed::new`] combines it with its key again.
    pub fn into_sketch(self) -> S {
        self.sketch
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.sketch.clear();
    }
}

impl<S: Image> Keyed<S> {
    /// The sketch as bytes, with the fingerprint of its key, but without the key.
    pub fn to_image(&self) -> Vec<u8> {
        self.sketch.to_image()
    }

    /// The sketch in these bytes, if it has this key and occupies at most [`MEMORY_MAX`].
    ///
    /// # Errors
    ///
    /// The bytes are not an image of this kind of sketch, the sketch has another key, or it is too large.
    pub fn from_image(key: Key, image: &[u8]) -> Result<Self, ImageError> {
        Self::from_image_within(key, image, MEMORY_MAX)
    }

    /// Like [`Keyed::from_image`], with another limit for its memory, in bytes.
    ///
    /// # Errors
    ///
    /// See [`Keyed::from_image`].
    pub fn from_image_within(key: Key, image: &[u8], memory_max: usize) -> Result<Self, ImageError> {
        Self::new(key, S::from_image(image, memory_max)?).map_err(ImageError::Key)
    }
}

impl<S> core::ops::Deref for Keyed<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.sketch
    }
}

impl<S: Merge> Keyed<S> {
    /// Merges another sketch into this one.
    ///
    /// # Errors
    ///
    /// The geometries or keys differ.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.sketch.merge(&other.sketch)
    }
}

impl<S: Filter> Keyed<S> {
    /// Inserts an item. Returns whether it was absent: a `bool`, or a `Result<bool, Full>` for filters that may have no
    /// room for it.
    pub fn insert<T: Hash + ?Sized>(&mut self, item: &T) -> S::Outcome<bool> {
        S::outcome(self.sketch.insert(self.hash.of(item)))
    }

    /// Inserts many items, in order. Returns nothing, or a `Result<(), Full>` for filters that may have no room. In
    /// case of an error, the items before the failed one are inserted.
    pub fn insert_batch<T: Hash>(&mut self, items: &[T]) -> S::Outcome<()> {
        let Self { sketch, hash, .. } = self;
        S::outcome(
            items.chunks(BATCH).try_for_each(|items| sketch.insert_batch(hash_all(hash, items, &mut [0; BATCH]))),
        )
    }

    /// Returns true if an item was inserted. This is true by mistake with the filter's false positive rate.
    pub fn contains<T: Hash + ?Sized>(&self, item: &T) -> bool {
        self.sketch.contains(self.hash.of(item))
    }

    /// Looks up many items: `found[i]` is for `items[i]`. Stops at the end of the shorter slice.
    pub fn contains_batch<T: Hash>(&self, items: &[T], found: &mut [bool]) {
        for (items, found) in items.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            self.sketch.contains_batch(hash_all(&self.hash, items, &mut [0; BATCH]), found);
        }
    }
}

impl<S: Remove> Keyed<S> {
    /// Removes one insertion of an item. Returns whether there was one.
    pub fn remove<T: Hash + ?Sized>(&mut self, item: &T) -> bool {
        self.sketch.remove(self.hash.of(item))
    }

    /// Removes one insertion of each of many items. Returns how many insertions there were.
    pub fn remove_batch<T: Hash>(&mut self, items: &[T]) -> u64 {
        let Self { sketch, hash, .. } = self;
        items.chunks(BATCH).map(|items| sketch.remove_batch(hash_all(hash, items, &mut [0; BATCH]))).sum()
    }
}

impl<S: Frequency> Keyed<S> {
    /// Adds `weight` to an item. Returns the item's new estimate, which is never below the truth.
    pub fn add<T: Hash + ?Sized>(&mut self, item: &T, weight: S::Weight) -> S::Weight {
        self.sketch.add(self.hash.of(item), weight)
    }

    /// The estimate of an item, which is never below the truth.
    pub fn estimate<T: Hash + ?Sized>(&self, item: &T) -> S::Weight {
        self.sketch.estimate(self.hash.of(item))
    }

    /// Adds `weights[i]` to `items[i]`. Stops at the end of the shorter slice.
    pub fn add_batch<T: Hash>(&mut self, items: &[T], weights: &[S::Weight]) {
        for (items, weights) in items.chunks(BATCH).zip(weights.chunks(BATCH)) {
            self.sketch.add_batch(hash_all(&self.hash, items, &mut [0; BATCH]), weights);
        }
    }

    /// Sets `estimates[i]` to the estimate of `items[i]`. Stops at the end of the shorter slice.
    pub fn estimate_batch<T: Hash>(&self, items: &[T], estimates: &mut [S::Weight]) {
        for (items, estimates) in items.chunks(BATCH).zip(estimates.chunks_mut(BATCH)) {
            self.sketch.estimate_batch(hash_all(&self.hash, items, &mut [0; BATCH]), estimates);
        }
    }
}

impl<K: Clone + Eq + Default, W: Weight> Keyed<TopK<K, W>> {
    /// Adds `weight` to a key, which is cloned if it becomes a candidate. The keys of a `TopK<String>` are added as
    /// `&str`.
    pub fn add<Q: Hash + Eq + ToOwned<Owned = K> + ?Sized>(&mut self, key: &Q, weight: W)
    where
        K: Borrow<Q>,
    {
        self.sketch.add_borrowed(self.hash.of(key), key, weight);
    }

    /// Bounds of a key's weight, whether the key is held or not.
    pub fn bounds_of<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Bounds<W>
    where
        K: Borrow<Q>,
    {
        self.sketch.bounds(self.hash.of(key), key)
    }
}

impl<K: Copy + Default + Hash, W: Weight> Keyed<CandidateBuckets<K, W>> {
    /// Adds `weight` to a key, which is stored if it becomes a candidate.
    pub fn add(&mut self, key: K, weight: W) {
        self.sketch.add(self.hash.of(&key), key, weight);
    }

    /// Bounds of a key's weight, whether the key is listed or not.
    pub fn bounds_of(&self, key: &K) -> Bounds<W> {
        self.sketch.bounds(self.hash.of(key))
    }
}

impl Keyed<SharedBloom> {
    /// Inserts an item from one of several threads. Returns whether it was absent: see [`SharedBloom::insert`].
    pub fn insert_shared<T: Hash + ?Sized>(&self, item: &T) -> bool {
        self.sketch.insert(self.hash.of(item))
    }
}

impl Keyed<Seen> {
    /// Inserts an item. Returns whether it is new, so that neither generation contained it: see [`Seen::insert`].
    pub fn insert<T: Hash + ?Sized>(&self, item: &T) -> bool {
        self.sketch.insert(self.hash.of(item))
    }

    /// Returns true if an item is in the current or the previous generation.
    pub fn contains<T: Hash + ?Sized>(&self, item: &T) -> bool {
        self.sketch.contains(self.hash.of(item))
    }
}

impl Keyed<Quotient> {
    /// Makes room for another number of keys: see [`Quotient::resize`].
    ///
    /// # Errors
    ///
    /// It contains more keys than that.
    pub fn resize(&mut self, items: u64) -> Result<(), Full> {
        self.sketch.resize(items)
    }
}

impl<K: Copy + Hash> Keyed<SampleAndHold<K>> {
    /// Counts that a key touches an item. A pair counts only once, however often it is inserted.
    pub fn touch<T: Hash + ?Sized>(&mut self, key: K, item: &T) {
        self.sketch.insert(Touch { key, key_hash: self.hash.of(&key), item_hash: self.hash.of(item) });
    }
}

impl<K: Copy + Hash> Keyed<Spread<K>> {
    /// Counts that a key touches an item. A pair counts only once, however often it is inserted.
    pub fn touch<T: Hash + ?Sized>(&mut self, key: K, item: &T) {
        self.sketch.insert(Touch { key, key_hash: self.hash.of(&key), item_hash: self.hash.of(item) });
    }
}

impl<S: Distinct> Keyed<S> {
    /// Counts an item. It counts only once, however often it is inserted.
    pub fn count_in<T: Hash + ?Sized>(&mut self, item: &T) {
        self.sketch.insert(self.hash.of(item));
    }

    /// Counts many items, faster than one by one.
    pub fn count_in_batch<T: Hash>(&mut self, items: &[T]) {
        for items in items.chunks(BATCH) {
            self.sketch.insert_batch(hash_all(&self.hash, items, &mut [0; BATCH]));
        }
    }
}

/// The hashes of at most [`BATCH`] items.
fn hash_all<'a, T: Hash>(hash: &KeyedHash, items: &[T], hashes: &'a mut [u64; BATCH]) -> &'a [u64] {
    let hashes = &mut hashes[..items.len()];
    hash.of_all(items, hashes);
    hashes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockedBloom, CountAndSum, CountMin, Cuckoo, HeavyLight, HyperLogLog, merge::PUBLIC};
    use std::{format, string::String, vec::Vec};

    const KEY: Key = Key([4, 2]);

    const NAMES: usize = crate::test_size::of(1_000, 50);

    fn names() -> Vec<String> {
        (0..NAMES).map(|number| format!("host-{number}")).collect()
    }

    #[test]
    fn a_batch_equals_its_items_one_by_one() {
        let mut one_by_one = BlockedBloom::with_key(KEY, 1_000, 0.001).unwrap();
        let mut batched = one_by_one.clone();
        for name in names() {
            one_by_one.insert(&name);
        }
        batched.insert_batch(&names());
        assert_eq!(*one_by_one, *batched);
        let mut found = [false; NAMES];
        batched.contains_batch(&names(), &mut found);
        assert!(found.iter().all(|found| *found) && batched.contains("host-7") && !batched.contains("guest-7"));

        let mut one_by_one = HyperLogLog::with_key(KEY, 0.01).unwrap();
        let mut batched = one_by_one.clone();
        names().iter().for_each(|name| one_by_one.count_in(name));
        batched.count_in_batch(&names());
        assert_eq!(*one_by_one, *batched);

        let mut one_by_one = CountMin::<u64>::with_key(KEY, 0.01, 0.01).unwrap();
        let mut batched = one_by_one.clone();
        let weights: Vec<u64> = (1..=NAMES as u64).collect();
        names().iter().zip(&weights).for_each(|(name, weight)| _ = one_by_one.add(name, *weight));
        batched.add_batch(&names(), &weights);
        assert_eq!(*one_by_one, *batched);
        let mut estimates = [0; NAMES];
        batched.estimate_batch(&names(), &mut estimates);
        assert!(names().iter().zip(estimates).all(|(name, estimate)| one_by_one.estimate(name) == estimate));
        assert!(estimates.iter().zip(&weights).all(|(estimate, weight)| estimate >= weight));
    }

    #[test]
    fn a_sketch_and_another_key_cannot_be_combined() {
        let mut filter = BlockedBloom::with_key(KEY, NAMES as u64, 0.01).unwrap();
        filter.insert_batch(&names());
        let image = filter.to_image();
        let other = Key([4, 3]);
        let error = Keyed::<BlockedBloom>::from_image(other, &image).unwrap_err();
        let wrong = WrongKey::Other { key: other.id(), sketch: KEY.id() };
        assert_eq!(error, ImageError::Key(wrong));
        assert_eq!(
            format!("{error}"),
            format!(
                "the sketch was made with a key of fingerprint {:016x}, but this key has {:016x}: use the key that it \
                 was made with",
                KEY.id(),
                other.id()
            )
        );
        let read = BlockedBloom::from_image(&image, 1 << 20).unwrap();
        assert_eq!(Keyed::new(other, read.clone()).err(), Some(wrong));
        let joined = Keyed::new(KEY, read).unwrap();
        assert!(names().iter().all(|name| joined.contains(name)) && joined.key() == KEY);
        assert_eq!(Keyed::new(KEY, joined.into_sketch()).map(|joined| joined.to_image()), Ok(image.clone()));
        assert!(matches!(
            Keyed::<BlockedBloom>::from_image_within(KEY, &image, 16),
            Err(ImageError::TooLarge { allowed: 16, .. })
        ));

        let older = BlockedBloom::with_capacity(1, 0.5, KEY.derive("id").0[0]).unwrap();
        let error = Keyed::new(KEY, older).unwrap_err();
        assert!(format!("{error}").contains("older version"), "{error}");
        let public = Keyed::new(KEY, HyperLogLog::with_error(0.1, PUBLIC).unwrap()).unwrap_err();
        assert!(format!("{public}").contains("public hashes"), "{public}");
        let merged = HyperLogLog::with_key(KEY, 0.1).unwrap().merge(&HyperLogLog::with_key(other, 0.1).unwrap());
        assert_eq!(merged, Err(MergeError::Key { ours: KEY.id(), theirs: other.id() }));
    }

    #[test]
    #[cfg(feature = "std")]
    fn one_line_makes_a_filter_with_a_random_key() {
        let [mut one, other] = [(); 2].map(|()| BlockedBloom::new(1_000, 0.01).unwrap());
        let is_new: bool = one.insert("https://example.org/");
        assert!(is_new && one.contains("https://example.org/") && one.key() != other.key());
        let loaded = Keyed::<BlockedBloom>::from_image(one.key(), &one.to_image()).unwrap();
        assert!(loaded.contains("https://example.org/"));
        assert!(Keyed::<BlockedBloom>::from_image(other.key(), &one.to_image()).is_err());
        assert!(one.merge(&other).is_err());
    }

    #[test]
    fn the_largest_texts_are_listed() {
        let mut words = TopK::<String>::with_key(KEY, 64).unwrap();
        for word in "a rose is a rose is a rose".split(' ') {
            words.add(word, 1);
        }
        let top: Vec<_> = words.top(2).into_iter().map(|word| (word.key.clone(), word.value())).collect();
        assert!(
            top == [("a".into(), 3), ("rose".into(), 3)] || top == [("rose".into(), 3), ("a".into(), 3)],
            "{top:?}"
        );
        let read = Keyed::<TopK<String>>::from_image(KEY, &words.to_image()).unwrap();
        assert_eq!((read.top(9).len(), read.bounds_of("is")), (3, Bounds { lower: 2, upper: 2 }));
        assert_eq!((*read == *words, read.bounds_of("was").lower), (true, 0));
    }

    #[test]
    fn both_generations_need_the_key() {
        let seen = Seen::with_key(KEY, 100, 0.01).unwrap().into_sketch();
        seen.rotate_to(Key([5, 5]).id());
        for key in [KEY, Key([5, 5])] {
            assert!(Keyed::new(key, Seen::from_image(&seen.to_image(), 1 << 20).unwrap()).is_err());
        }
        seen.rotate();
        assert!(Keyed::<Seen>::from_image(Key([5, 5]), &seen.to_image()).is_ok());
    }

    #[test]
    fn threads_and_pairs_take_items() {
        let shared = SharedBloom::with_key(KEY, 100, 0.01).unwrap();
        assert!(shared.insert_shared("a") && !shared.insert_shared("a") && shared.contains("a"));
        let seen = Seen::with_key(KEY, 100, 0.01).unwrap();
        assert!(seen.insert("a") && !seen.insert("a") && seen.contains("a"));
        let (mut spread, mut hold) =
            (Spread::with_key(KEY, 1_000, 50, 0.1).unwrap(), SampleAndHold::with_key(KEY, 4, 0.1).unwrap());
        for item in 0..100 {
            spread.touch(7u32, &item);
            hold.touch(7u32, &item);
        }
        assert_eq!(spread.survey().top(1)[0].key, 7);
        assert_eq!(hold.held(&hold.margin(0, 0.001))[0].key, 7);
        let mut days = [(); 2].map(|()| Quotient::with_key(KEY, 10).unwrap());
        for day in &mut days {
            day.insert("a").unwrap();
            day.resize(100).unwrap();
        }
        days[0].clear();
        assert!(!days[0].contains("a") && days[0].capacity() == 100);
    }

    #[test]
    fn every_query_takes_items() {
        let mut filter = Cuckoo::with_key(KEY, 100).unwrap();
        filter.insert("a").unwrap();
        assert!(filter.remove("a") && !filter.contains("a"));
        filter.insert_batch(&["b", "c"]).unwrap();
        assert_eq!((filter.remove_batch(&["a", "b", "c", "c"]), filter.fill()), (2, 0.0));
        let mut counts = CountMin::<u64>::with_key(KEY, 0.01, 0.01).unwrap();
        counts.add("a", 3);
        assert_eq!((counts.add("a", 4), counts.estimate("a"), counts.estimate("b")), (7, 7, 0));
        let mut largest = HeavyLight::<u64>::with_key(KEY, 0.01).unwrap();
        largest.add("a", 3);
        assert_eq!(largest.estimate("a"), 3);
        let mut top = TopK::with_key(KEY, 64).unwrap();
        top.add(&7u32, CountAndSum::new(1, 60));
        assert_eq!(top.bounds_of(&7), Bounds { lower: CountAndSum::new(1, 60), upper: CountAndSum::new(1, 60) });
        let mut top = CandidateBuckets::with_key(KEY, 64).unwrap();
        top.add(7u32, 60u64);
        assert_eq!((top.bounds_of(&7), top.bounds_of(&8).lower), (Bounds { lower: 60, upper: 60 }, 0));
    }
}
